/* tokenizer/encode.c: text to ids, whole or in pieces.
 *
 * A text is cut into segments at added tokens and at bytes that are no UTF-8; each segment is encoded as a text of its own.
 */
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

struct tl_encoder {
    const tl_tokenizer *tokenizer;
    const tl_allocator *allocator;
    tl_special special;
    char *pending; /* fed and not yet encoded */
    size_t count, capacity;
    size_t wanted;      /* pending bytes from which another try is worth it: doubles while nothing comes of it */
    uint64_t position;  /* of pending[0] in the text */
    tl_token_list *out; /* of the call that runs */
    tl_error *error;
};

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

static tl_status refuse_special(const tl_encoder *e, int32_t id, size_t at) {
    const tl_token *token = &e->tokenizer->tokens[id];
    return tl_fail(
        e->error, TL_ERR_ARGUMENT,
        "the text holds the special token %.*s (id %d) at byte %llu; say whether it is to be encoded as that "
        "token or as ordinary text",
        (int)token->length, token->bytes, (int)id, (unsigned long long)e->position + at);
}

/* The next added token in text[from … count) that this encoder acts on: its place, and *id; count where there is none. *open:
 * from here on more bytes could make one (never, if final). */
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
        int32_t found = tl_tokenizer_added_at(t, text + at, count - at, &partial);
        if (partial && !final) {
            *open = at;
            return count;
        }
        if (found >= 0 && (!t->tokens[found].special || e->special != TL_SPECIAL_TEXT)) {
            *id = found;
            return at;
        }
    }
    return count;
}

/* Encodes as much of the text as is certain; *used says how much that was: all of it if final. */
static tl_status run(tl_encoder *e, const char *text, size_t count, bool final, size_t *used) {
    size_t at = 0;
    tl_status status = TL_OK;
    while (status == TL_OK && at < count) {
        size_t open;
        int32_t id;
        size_t cut = find_added(e, text, at, count, final, &id, &open);
        size_t end = cut < open ? cut : open;
        status = encode_bytes(e, text + at, end - at);
        at = end;
        if (id < 0)
            break;
        if (status == TL_OK && e->tokenizer->tokens[id].special && e->special == TL_SPECIAL_REFUSE)
            status = refuse_special(e, id, at);
        if (status == TL_OK)
            status = tl_token_list_add(e->out, &id, 1, e->error);
        at += e->tokenizer->tokens[id].length;
    }
    *used = at;
    return status;
}

/* ---- the calls ---- */

static void start(tl_encoder *e) {
    e->count = 0;
    e->wanted = 1;
    e->position = 0;
}

tl_encoder *tl_encoder_new(const tl_tokenizer *tokenizer, tl_special special, const tl_allocator *allocator,
                           tl_error *error) {
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
    start(e);
    return e;
}

void tl_encoder_free(tl_encoder *e) {
    if (!e)
        return;
    if (e->pending)
        e->allocator->release(e->allocator->self, e->pending, e->capacity, TL_ALLOC_HOST);
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
    tl_encoder *e = tl_encoder_new(tokenizer, special, out->allocator, error);
    if (!e)
        return TL_ERR_MEMORY;
    tl_status status = advance(e, text, bytes, true, out, error);
    tl_encoder_free(e);
    return status;
}
