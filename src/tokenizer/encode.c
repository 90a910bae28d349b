/* tokenizer/encode.c: text to ids, whole or in pieces.
 *
 * A text is cut at added tokens; what lies between is cut into stretches of UTF-8 and stretches that are none; a stretch of
 * UTF-8 is split into words, and a word becomes ids. Every level says how far it is certain, so that a text which is still
 * growing gives the ids it would give as a whole.
 */
#include "tokenizer/encode.h"
#include "tokenizer/bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/split.h"

#include <stdio.h>
#include <string.h>

static const char BLOCK[] = "\xE2\x96\x81";
enum { BLOCK_BYTES = 3 };

/* Words seen before, by a hash of their bytes; a newcomer takes the place. 64 bytes each. */
enum { CACHE_WORDS = 16384, CACHED_BYTES = 26, CACHED_IDS = 9, CACHE_FROM = 16384 };
typedef struct cached {
    unsigned char length, count; /* length 0: none */
    char word[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
} cached;

struct tl_encoder {
    const tl_tokenizer *tokenizer;
    const tl_allocator *allocator;
    tl_special special;
    char *pending; /* fed and not yet encoded */
    size_t count, capacity;
    size_t wanted;      /* pending bytes from which another try is worth it: doubles while nothing comes of it */
    uint64_t position;  /* of pending[0] in the text */
    bool fresh;         /* at the start of the text or behind an added token */
    unsigned combining; /* class of the last character that was encoded, where normal form C is wanted */
    bool strip;         /* behind an added token that takes the white space after it */
    tl_split_state *split;
    tl_bpe_work work;
    cached *cache;       /* NULL: none */
    tl_split_word *take; /* NULL: words become ids */
    void *taker;
    char *scratch; /* a stretch or word as the tokenizer sees it */
    size_t n_scratch;
    /* Of the call that runs: */
    const char *text;
    uint64_t word_at; /* place of what is being encoded, for messages */
    tl_token_list *out;
    tl_error *error;
};

static uint64_t place(const tl_encoder *e, const char *at) { return e->position + (uint64_t)(at - e->text); }

/* ---- words ---- */

static tl_status encode_word(void *self, const char *word, size_t length) {
    tl_encoder *e = self;
    const tl_bpe *bpe = e->tokenizer->bpe;
    cached *slot = NULL;
    if (e->take)
        return e->take(e->taker, word, length);
    if (e->cache && length <= CACHED_BYTES) {
        slot = &e->cache[tl_bpe_hash(word, length) & (CACHE_WORDS - 1)];
        if (slot->length == length && memcmp(slot->word, word, length) == 0)
            return tl_token_list_add(e->out, slot->ids, slot->count, e->error);
    }
    const size_t before = e->out->count;
    const tl_status status = tl_bpe_word(bpe, e->allocator, &e->work, word, length, e->word_at, e->out, e->error);
    const size_t count = e->out->count - before;
    if (status == TL_OK && slot && count <= CACHED_IDS) {
        slot->length = (unsigned char)length;
        slot->count = (unsigned char)count;
        memcpy(slot->word, word, length);
        if (count > 0)
            memcpy(slot->ids, e->out->ids + before, count * sizeof *slot->ids);
    }
    return status;
}

/* Each byte its own id. */
static tl_status encode_bytes(tl_encoder *e, const char *text, size_t count) {
    int32_t ids[1024];
    while (count > 0) {
        size_t n = count < 1024 ? count : 1024;
        for (size_t i = 0; i < n; i++)
            ids[i] = (unsigned char)text[i];
        if (tl_token_list_add(e->out, ids, n, e->error) != TL_OK)
            return TL_ERR_MEMORY;
        text += n;
        count -= n;
    }
    return TL_OK;
}

static tl_status no_memory(const tl_encoder *e, size_t bytes) {
    return tl_fail(e->error, TL_ERR_MEMORY, "no memory for %zu bytes of text", bytes);
}

static bool scratch_holds(tl_encoder *e, size_t bytes) {
    void *pointer = e->scratch;
    const bool fits = tl_tokenizer_grow(e->allocator, &pointer, &e->n_scratch, bytes, 1);
    e->scratch = pointer;
    return fits;
}

/* ---- stretches of UTF-8 ---- */

/* Bytes of a blank as such tokenizers see it, ' ' or U+2581, at the front; 0: none. */
static size_t blank_at(const char *text, size_t length) {
    if (text[0] == ' ')
        return 1;
    return length >= BLOCK_BYTES && memcmp(text, BLOCK, BLOCK_BYTES) == 0 ? BLOCK_BYTES : 0;
}

/* One word of a SentencePiece-style tokenizer: blanks become U+2581, and one may stand in front. */
static tl_status encode_block_word(tl_encoder *e, const char *text, size_t length) {
    const tl_bpe *bpe = e->tokenizer->bpe;
    size_t n = 0;
    if (length > SIZE_MAX / 8 || !scratch_holds(e, length * BLOCK_BYTES + BLOCK_BYTES))
        return no_memory(e, length);
    const bool first =
        e->fresh && (bpe->prepend == TL_PREPEND_EACH || (bpe->prepend == TL_PREPEND_FIRST && place(e, text) == 0));
    if (first && (bpe->prepend_always || blank_at(text, length) == 0)) {
        memcpy(e->scratch, BLOCK, BLOCK_BYTES);
        n = BLOCK_BYTES;
    }
    for (size_t i = 0; i < length; i++)
        if (text[i] == ' ') {
            memcpy(e->scratch + n, BLOCK, BLOCK_BYTES);
            n += BLOCK_BYTES;
        } else
            e->scratch[n++] = text[i];
    e->fresh = false;
    e->word_at = place(e, text);
    return encode_word(e, e->scratch, n);
}

/* A word ends before a blank: with split_blocks before each, else before a row of them, and only where no token reaches
 * across. */
static tl_status encode_blocks(tl_encoder *e, const char *text, size_t length, bool closed, size_t *used) {
    const tl_bpe *bpe = e->tokenizer->bpe;
    const bool cuts = bpe->split_blocks || !bpe->block_inside;
    size_t start = 0;
    bool after_blank = false;
    tl_status status = TL_OK;
    for (size_t i = 0; i < length && cuts && status == TL_OK;) {
        const size_t blank = blank_at(text + i, length - i);
        if (blank > 0 && i > start && (bpe->split_blocks || !after_blank)) {
            status = encode_block_word(e, text + start, i - start);
            start = i;
        }
        after_blank = blank > 0;
        i += blank > 0 ? blank : 1;
    }
    if (status == TL_OK && closed && start < length) {
        status = encode_block_word(e, text + start, length - start);
        start = length;
    }
    *used = start;
    return status;
}

/* Normal form C is checked, not made: *last is the combining class before the text and, then, at its end. */
static tl_status check_nfc(const tl_encoder *e, const char *text, size_t length, unsigned *last) {
    for (size_t i = 0; i < length;) {
        const unsigned char *b = (const unsigned char *)text + i;
        const int bytes = tl_tokenizer_character(text + i, length - i);
        uint32_t c = bytes <= 1 ? b[0] : b[0] & (0x7Fu >> bytes);
        for (int k = 1; k < bytes; k++)
            c = c << 6 | (b[k] & 0x3Fu);
        if (!tl_nfc_follows(last, c))
            return tl_fail(e->error, TL_ERR_UNSUPPORTED,
                           "the tokenizer wants texts in Unicode's normal form C, and U+%04X at byte %llu may have to "
                           "change for it, which is not done here; a text normalized before would work where no such "
                           "character is left",
                           (unsigned)c, (unsigned long long)place(e, text + i));
        i += (size_t)bytes;
    }
    return TL_OK;
}

/* A blank in front, as ByteLevel's add_prefix_space asks for. */
static tl_status encode_prefixed(tl_encoder *e, const char *text, size_t length, bool closed, size_t *used) {
    size_t split = 0;
    if (length == SIZE_MAX || !scratch_holds(e, length + 1))
        return no_memory(e, length);
    e->scratch[0] = ' ';
    memcpy(e->scratch + 1, text, length);
    const tl_status status = tl_split(e->tokenizer->splitter, e->split, e->scratch, length + 1, closed, place(e, text),
                                      encode_word, e, &split, e->error);
    /* What was certain begins with the blank. */
    e->fresh = split == 0;
    *used = split > 0 ? split - 1 : 0;
    return status;
}

static tl_status encode_words(tl_encoder *e, const char *text, size_t length, bool closed, size_t *used) {
    const tl_bpe *bpe = e->tokenizer->bpe;
    if (bpe->blocks)
        return encode_blocks(e, text, length, closed, used);
    if (bpe->prefix_space && e->fresh && text[0] != ' ')
        return encode_prefixed(e, text, length, closed, used);
    const tl_status status =
        tl_split(e->tokenizer->splitter, e->split, text, length, closed, e->word_at, encode_word, e, used, e->error);
    e->fresh = e->fresh && *used == 0;
    return status;
}

static tl_status encode_utf8(tl_encoder *e, const char *text, size_t length, bool closed, size_t *used) {
    const bool nfc = e->tokenizer->bpe->nfc;
    unsigned last = e->combining;
    tl_status status = TL_OK;
    *used = 0;
    if (length == 0)
        return TL_OK;
    e->word_at = place(e, text);
    if (nfc)
        status = check_nfc(e, text, length, &last);
    if (status == TL_OK)
        status = encode_words(e, text, length, closed, used);
    if (nfc && status == TL_OK)
        status = check_nfc(e, text, *used, &e->combining);
    return status;
}

/* Text without added tokens. `closed`: nothing follows that could belong to it. */
static tl_status encode_plain(tl_encoder *e, const char *text, size_t length, bool closed, size_t *used) {
    size_t at = 0;
    tl_status status = TL_OK;
    if (!e->tokenizer->bpe) {
        *used = length;
        return encode_bytes(e, text, length);
    }
    while (status == TL_OK && at < length) {
        size_t end = at, n = 0;
        int bytes = 1;
        while (end < length && (bytes = tl_tokenizer_character(text + end, length - end)) > 0)
            end += (size_t)bytes;
        /* What is begun and not whole is, at the end, no character. */
        const bool ends = closed || (end < length && bytes == 0);
        status = encode_utf8(e, text + at, end - at, ends, &n);
        at += n;
        if (status != TL_OK || at < end || !ends)
            break;
        while (end < length && (bytes = tl_tokenizer_character(text + end, length - end)) <= 0 &&
               (bytes == 0 || closed))
            end++;
        /* The run goes on where the bytes at the end turn out to be no character either. */
        if (!closed && (end == length || bytes < 0))
            break;
        e->word_at = place(e, text + at);
        status = end > at ? encode_word(e, text + at, end - at) : TL_OK;
        e->combining = end > at ? 0 : e->combining;
        e->fresh = e->fresh && end == at;
        at = end;
    }
    *used = at;
    return status;
}

/* ---- added tokens ---- */

static tl_status refuse_special(const tl_encoder *e, int32_t id, const char *at) {
    const tl_token *token = &e->tokenizer->tokens[id];
    return tl_fail(
        e->error, TL_ERR_ARGUMENT,
        "the text holds the special token %.*s (id %d) at byte %llu; say whether it is to be encoded as that "
        "token or as ordinary text",
        (int)(token->length < 64 ? token->length : 64), token->bytes, (int)id, (unsigned long long)place(e, at));
}

/* Unicode's White_Space (PropList.txt) at the front: its bytes, 0: none. */
static size_t space_at(const char *text, size_t length) {
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] == ' ' || (b[0] >= 9 && b[0] <= 13))
        return 1;
    if (length >= 2 && b[0] == 0xC2 && (b[1] == 0x85 || b[1] == 0xA0))
        return 2;
    if (length < 3)
        return 0;
    const uint32_t three = (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
    return three == 0xE19A80 || (three >= 0xE28080 && three <= 0xE2808A) || three == 0xE280A8 || three == 0xE280A9 ||
                   three == 0xE280AF || three == 0xE2819F || three == 0xE38080
               ? 3
               : 0;
}

/* The end of text[from … end) without the white space it ends with. */
static size_t before_space(const char *text, size_t from, size_t end) {
    size_t kept = from;
    for (size_t i = from; i < end;) {
        const size_t space = space_at(text + i, end - i);
        i += space > 0 ? space : 1;
        kept = space > 0 ? kept : i;
    }
    return kept;
}

/* The next added token in text[from … count) that this encoder acts on: its place, and *id; count where there is none.
 * *open: from here on more bytes could make one (never, if final). */
static size_t find_added(const tl_encoder *e, const char *text, size_t from, size_t count, bool final, int32_t *id,
                         size_t *open) {
    const tl_tokenizer *t = e->tokenizer;
    *id = -1;
    *open = count;
    if (t->n_added == 0)
        return count;
    for (size_t at = from; at < count; at++) {
        bool partial;
        if (!t->starts_added[(unsigned char)text[at]])
            continue;
        const int32_t found = tl_tokenizer_added_at(t, text + at, count - at, e->special == TL_SPECIAL_TEXT, &partial);
        if (partial && !final) {
            *open = at;
            return count;
        }
        if (found >= 0) {
            *id = found;
            return at;
        }
    }
    return count;
}

/* Skips white space behind a token that takes it. false: the end is not in sight. */
static bool skip_space(tl_encoder *e, const char *text, size_t count, bool final, size_t *at) {
    while (e->strip) {
        if (*at == count)
            return false;
        const size_t space = space_at(text + *at, count - *at);
        if (space == 0 && !final && tl_tokenizer_character(text + *at, count - *at) < 0)
            return false;
        e->strip = space > 0;
        *at += space;
    }
    return true;
}

/* Encodes as much of the text as is certain; *used says how much that was: all of it if final. */
static tl_status run(tl_encoder *e, const char *text, size_t count, bool final, size_t *used) {
    size_t at = 0;
    tl_status status = TL_OK;
    e->text = text;
    while (status == TL_OK && at < count) {
        size_t open, n = 0;
        int32_t id;
        if (!skip_space(e, text, count, final, &at))
            break;
        const size_t cut = find_added(e, text, at, count, final, &id, &open);
        const tl_token *token = id >= 0 ? &e->tokenizer->tokens[id] : NULL;
        size_t end = cut < open ? cut : open;
        if (token ? token->lstrip : !final && e->tokenizer->has_lstrip)
            end = before_space(text, at, end);
        status = encode_plain(e, text + at, end - at, token || final, &n);
        at += n;
        if (!token || status != TL_OK)
            break;
        if (token->special && e->special == TL_SPECIAL_REFUSE)
            status = refuse_special(e, id, text + cut);
        if (status == TL_OK)
            status = tl_token_list_add(e->out, &id, 1, e->error);
        at = cut + token->length;
        e->fresh = true;
        e->combining = 0;
        e->strip = token->rstrip;
    }
    *used = at;
    return status;
}

/* ---- the calls ---- */

static void start(tl_encoder *e) {
    e->count = 0;
    e->wanted = 1;
    e->position = 0;
    e->fresh = true;
    e->combining = 0;
    e->strip = false;
    if (e->split)
        tl_split_state_reset(e->split);
}

static tl_encoder *new_encoder(const tl_tokenizer *tokenizer, tl_special special, bool caches,
                               const tl_allocator *allocator, tl_error *error) {
    if (!allocator)
        allocator = tl_allocator_default();
    tl_encoder *e = allocator->alloc(allocator->self, sizeof *e, 16, TL_ALLOC_HOST);
    if (!e) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for an encoder");
        return NULL;
    }
    memset(e, 0, sizeof *e);
    e->tokenizer = tokenizer;
    e->allocator = allocator;
    e->special = special;
    if (tokenizer->splitter) {
        e->split = tl_split_state_new(tokenizer->splitter, allocator, error);
        if (!e->split) {
            tl_encoder_free(e);
            return NULL;
        }
    }
    if (tokenizer->bpe && caches) {
        /* Without memory for it, words are encoded again. */
        e->cache = allocator->alloc(allocator->self, CACHE_WORDS * sizeof *e->cache, 64, TL_ALLOC_HOST);
        if (e->cache)
            memset(e->cache, 0, CACHE_WORDS * sizeof *e->cache);
    }
    start(e);
    return e;
}

tl_encoder *tl_encoder_new(const tl_tokenizer *tokenizer, tl_special special, const tl_allocator *allocator,
                           tl_error *error) {
    return new_encoder(tokenizer, special, true, allocator, error);
}

void tl_encoder_free(tl_encoder *e) {
    if (!e)
        return;
    if (e->pending)
        e->allocator->release(e->allocator->self, e->pending, e->capacity, TL_ALLOC_HOST);
    if (e->scratch)
        e->allocator->release(e->allocator->self, e->scratch, e->n_scratch, TL_ALLOC_HOST);
    if (e->cache)
        e->allocator->release(e->allocator->self, e->cache, CACHE_WORDS * sizeof *e->cache, TL_ALLOC_HOST);
    tl_bpe_work_free(&e->work, e->allocator);
    tl_split_state_free(e->split);
    e->allocator->release(e->allocator->self, e, sizeof *e, TL_ALLOC_HOST);
}

/* Runs over the text and leaves what is not certain yet in `pending`. `text` is the pending bytes or follows none. */
static tl_status advance(tl_encoder *e, const char *text, size_t count, bool final, tl_token_list *out,
                         tl_error *error) {
    const size_t before = out->count;
    size_t used = 0;
    e->out = out;
    e->error = error;
    tl_status status = run(e, text, count, final, &used);
    e->text = NULL;
    e->out = NULL;
    e->error = NULL;
    if (status == TL_OK && !final) {
        void *pointer = e->pending;
        const size_t rest = count - used;
        if (!tl_tokenizer_grow(e->allocator, &pointer, &e->capacity, rest, 1))
            status = tl_fail(error, TL_ERR_MEMORY, "no memory for %zu bytes of text", rest);
        else if (rest > 0) {
            e->pending = pointer;
            memmove(e->pending, text + used, rest);
        }
        e->count = rest;
        e->position += used;
        e->wanted = rest * 2;
    }
    if (status != TL_OK)
        out->count = before;
    if (status != TL_OK || final)
        start(e);
    return status;
}

tl_status tl_encoder_feed(tl_encoder *e, const char *text, size_t bytes, tl_token_list *out, tl_error *error) {
    void *pointer = e->pending;
    if (bytes == 0)
        return TL_OK;
    if (e->count == 0)
        return advance(e, text, bytes, false, out, error);
    if (bytes > SIZE_MAX - e->count || !tl_tokenizer_grow(e->allocator, &pointer, &e->capacity, e->count + bytes, 1)) {
        start(e);
        return tl_fail(error, TL_ERR_MEMORY, "no memory for %zu bytes of text", bytes);
    }
    e->pending = pointer;
    memcpy(e->pending + e->count, text, bytes);
    e->count += bytes;
    return e->count < e->wanted ? TL_OK : advance(e, e->pending, e->count, false, out, error);
}

tl_status tl_encoder_finish(tl_encoder *e, tl_token_list *out, tl_error *error) {
    return advance(e, e->pending, e->count, true, out, error);
}

tl_status tl_tokenizer_encode(const tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_special special,
                              tl_token_list *out, tl_error *error) {
    /* A short text does not repay a cache that is cleared first. */
    tl_encoder *e = new_encoder(tokenizer, special, bytes >= CACHE_FROM, out->allocator, error);
    if (!e)
        return TL_ERR_MEMORY;
    const tl_status status = advance(e, text, bytes, true, out, error);
    tl_encoder_free(e);
    return status;
}

tl_status tl_encoder_words(const tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_split_word *word,
                           void *self, const tl_allocator *allocator, tl_error *error) {
    tl_token_list specials = {.allocator = allocator};
    tl_encoder *e = new_encoder(tokenizer, TL_SPECIAL_ENCODE, false, allocator, error);
    if (!e)
        return TL_ERR_MEMORY;
    e->take = word;
    e->taker = self;
    const tl_status status = advance(e, text, bytes, true, &specials, error);
    tl_encoder_free(e);
    tl_token_list_free(&specials);
    return status;
}
