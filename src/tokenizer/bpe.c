/* tokenizer/bpe.c: byte-pair encoding of one word.
 *
 * The symbols of a word are a linked list; the merges that are possible lie in a heap by rank and place. A merge takes the
 * best, looks at its two new neighbours and never at the rest, so a word of n letters takes n log n, whatever it is.
 */
#include "tokenizer/bpe.h"

#include <string.h>

int tl_bpe_letter(unsigned char byte, char letter[2]) {
    /* 33 … 126, 161 … 172 and 174 … 255 print; 0 … 32, 127 … 160 and 173 do not. */
    const int code = byte >= 33 && byte <= 126                     ? byte
                     : byte >= 174 || (byte >= 161 && byte <= 172) ? byte
                     : byte <= 32                                  ? 256 + byte
                     : byte <= 160                                 ? 256 + 33 + (byte - 127)
                                                                   : 256 + 33 + 34;
    if (code < 128) {
        letter[0] = (char)code;
        return 1;
    }
    letter[0] = (char)(0xC0 | code >> 6);
    letter[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

int tl_bpe_byte(const char *text, size_t count, int *length) {
    const unsigned char *b = (const unsigned char *)text;
    *length = 1;
    if (b[0] < 128)
        return b[0] >= 33 && b[0] <= 126 ? b[0] : -1;
    if (count < 2 || b[0] < 0xC2 || b[0] > 0xC5 || (b[1] & 0xC0) != 0x80)
        return -1;
    *length = 2;
    const int code = (b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    if (code < 256)
        return code >= 174 || (code >= 161 && code <= 172) ? code : -1;
    const int rest = code - 256;
    return rest <= 32 ? rest : rest < 33 + 34 ? 127 + rest - 33 : rest == 33 + 34 ? 173 : -1;
}

int32_t tl_bpe_find(const tl_bpe *bpe, const char *text, size_t length) {
    size_t slot = (size_t)tl_bpe_hash(text, length) & (bpe->n_slots - 1);
    for (; bpe->slots[slot] >= 0; slot = (slot + 1) & (bpe->n_slots - 1)) {
        const tl_bpe_name *name = &bpe->names[bpe->slots[slot]];
        if (name->length == length && memcmp(name->text, text, length) == 0)
            return bpe->slots[slot];
    }
    return -1;
}

const tl_bpe_pair *tl_bpe_find_pair(const tl_bpe *bpe, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t slot = (size_t)tl_bpe_mix(key) & (bpe->n_pairs - 1);
    for (; bpe->pairs[slot].key != TL_BPE_NO_PAIR; slot = (slot + 1) & (bpe->n_pairs - 1))
        if (bpe->pairs[slot].key == key)
            return &bpe->pairs[slot];
    return NULL;
}

void tl_bpe_work_free(tl_bpe_work *work, const tl_allocator *allocator) {
    if (work->symbols)
        allocator->release(allocator->self, work->symbols, work->n_symbols * 12, TL_ALLOC_HOST);
    if (work->heap)
        allocator->release(allocator->self, work->heap, work->n_heap * sizeof(uint64_t), TL_ALLOC_HOST);
    if (work->letters)
        allocator->release(allocator->self, work->letters, work->n_letters, TL_ALLOC_HOST);
    memset(work, 0, sizeof *work);
}

/* ---- symbols ---- */

typedef struct symbol {
    int32_t id;          /* −1: merged into the one before */
    uint32_t next, last; /* places in the list; NOWHERE at its ends */
} symbol;
_Static_assert(sizeof(symbol) == 12, "tl_bpe_work_free gives back 12 bytes a symbol");
#define NOWHERE UINT32_MAX

static tl_status no_token(const tl_bpe *bpe, const char *word, size_t length, uint64_t at, tl_error *error) {
    unsigned code = (unsigned char)word[0];
    if (length > 1) {
        code &= 0x7Fu >> length;
        for (size_t i = 1; i < length; i++)
            code = code << 6 | ((unsigned char)word[i] & 0x3Fu);
    }
    return tl_fail(error, TL_ERR_ARGUMENT,
                   "the vocabulary has no token for %s%0*X at byte %llu of the text, and none for what "
                   "is unknown",
                   bpe->byte_level || length == 1 ? "the byte 0x" : "the character U+", length == 1 ? 2 : 4, code,
                   (unsigned long long)at);
}

/* The symbols a word starts as. Returns how many. */
static tl_status first_symbols(const tl_bpe *bpe, const char *word, size_t length, uint64_t at, symbol *symbols,
                               size_t *count, tl_error *error) {
    size_t n = 0;
    for (size_t i = 0; i < length;) {
        int bytes = 1;
        int32_t id = -1;
        if (bpe->byte_level)
            id = bpe->byte_ids[(unsigned char)word[i]];
        else {
            bytes = tl_tokenizer_character(word + i, length - i);
            if (bytes > 0)
                id = tl_bpe_find(bpe, word + i, (size_t)bytes);
            bytes = bytes > 0 ? bytes : 1;
            bool fallback = id < 0 && bpe->byte_fallback;
            for (int k = 0; k < bytes && fallback; k++)
                fallback = bpe->byte_ids[(unsigned char)word[i + (size_t)k]] >= 0;
            for (int k = 0; k < bytes && fallback; k++)
                symbols[n++].id = bpe->byte_ids[(unsigned char)word[i + (size_t)k]];
            if (fallback) {
                i += (size_t)bytes;
                continue;
            }
        }
        if (id < 0 && bpe->unk < 0)
            return no_token(bpe, word + i, (size_t)bytes, at, error);
        if (id >= 0)
            symbols[n++].id = id;
        else if (!(bpe->fuse_unk && n > 0 && symbols[n - 1].id == bpe->unk))
            symbols[n++].id = bpe->unk;
        i += (size_t)bytes;
    }
    for (size_t i = 0; i < n; i++) {
        symbols[i].next = i + 1 < n ? (uint32_t)i + 1 : NOWHERE;
        symbols[i].last = i > 0 ? (uint32_t)i - 1 : NOWHERE;
    }
    *count = n;
    return TL_OK;
}

/* ---- the heap: rank << 32 | place, smallest first ---- */

static void sift_up(uint64_t *heap, size_t at) {
    const uint64_t value = heap[at];
    while (at > 0 && heap[(at - 1) / 2] > value) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = value;
}

static void sift_down(uint64_t *heap, size_t count, size_t at) {
    const uint64_t value = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= value)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = value;
}

/* Merges until nothing merges. The heap has room for 3 entries a symbol: one at the start, two for each merge. */
static void merge(const tl_bpe *bpe, symbol *symbols, size_t count, uint64_t *heap) {
    size_t n = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        const tl_bpe_pair *pair = tl_bpe_find_pair(bpe, symbols[i].id, symbols[i + 1].id);
        if (pair) {
            heap[n++] = (uint64_t)pair->rank << 32 | (uint32_t)i;
            sift_up(heap, n - 1);
        }
    }
    while (n > 0) {
        const uint64_t best = heap[0];
        const uint32_t place = (uint32_t)best;
        heap[0] = heap[--n];
        if (n > 0)
            sift_down(heap, n, 0);
        symbol *left = &symbols[place];
        if (left->id < 0 || left->next == NOWHERE)
            continue;
        symbol *right = &symbols[left->next];
        const tl_bpe_pair *pair = tl_bpe_find_pair(bpe, left->id, right->id);
        /* The entry is old where a neighbour has merged since. */
        if (!pair || pair->rank != best >> 32)
            continue;
        left->id = pair->id;
        left->next = right->next;
        right->id = -1;
        if (left->next != NOWHERE) {
            symbols[left->next].last = place;
            pair = tl_bpe_find_pair(bpe, left->id, symbols[left->next].id);
            if (pair) {
                heap[n++] = (uint64_t)pair->rank << 32 | place;
                sift_up(heap, n - 1);
            }
        }
        if (left->last != NOWHERE) {
            pair = tl_bpe_find_pair(bpe, symbols[left->last].id, left->id);
            if (pair) {
                heap[n++] = (uint64_t)pair->rank << 32 | left->last;
                sift_up(heap, n - 1);
            }
        }
    }
}

/* The word as the file would spell it. */
static int32_t whole_word(const tl_bpe *bpe, const tl_allocator *allocator, tl_bpe_work *work, const char *word,
                          size_t length) {
    size_t n = 0;
    if (!bpe->byte_level)
        return tl_bpe_find(bpe, word, length);
    if (length > 4096 || !tl_tokenizer_grow(allocator, &work->letters, &work->n_letters, length * 2, 1))
        return -1;
    char *letters = work->letters;
    for (size_t i = 0; i < length; i++)
        n += (size_t)tl_bpe_letter((unsigned char)word[i], letters + n);
    return tl_bpe_find(bpe, letters, n);
}

tl_status tl_bpe_word(const tl_bpe *bpe, const tl_allocator *allocator, tl_bpe_work *work, const char *word,
                      size_t length, uint64_t at, tl_token_list *out, tl_error *error) {
    const size_t before = out->count;
    size_t count = 0;
    tl_status status = TL_OK;
    if (length == 0)
        return TL_OK;
    if (bpe->ignore_merges) {
        const int32_t id = whole_word(bpe, allocator, work, word, length);
        if (id >= 0)
            return tl_token_list_add(out, &id, 1, error);
    }
    if (length >= NOWHERE)
        return tl_fail(error, TL_ERR_OVERFLOW,
                       "a word of %zu bytes at byte %llu of the text: less than 4 GiB would work", length,
                       (unsigned long long)at);
    if (!tl_tokenizer_grow(allocator, &work->symbols, &work->n_symbols, length, sizeof(symbol)) ||
        !tl_tokenizer_grow(allocator, &work->heap, &work->n_heap, length * 3, sizeof(uint64_t)))
        return tl_fail(error, TL_ERR_MEMORY, "no memory for a word of %zu bytes", length);
    symbol *symbols = work->symbols;
    status = first_symbols(bpe, word, length, at, symbols, &count, error);
    if (status != TL_OK)
        return status;
    merge(bpe, symbols, count, work->heap);
    for (uint32_t i = 0; count > 0 && i != NOWHERE && status == TL_OK; i = symbols[i].next)
        status = tl_token_list_add(out, &symbols[i].id, 1, error);
    if (status != TL_OK)
        out->count = before;
    return status;
}
