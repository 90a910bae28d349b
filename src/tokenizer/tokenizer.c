/* tokenizer/tokenizer.c: opening, asking and decoding. */
#include "tokenizer/bpe.h"
#include "tokenizer/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char END_OF_TEXT[] = "<|endoftext|>";

/* ---- added tokens ---- */

static int compare_bytes(const char *a, size_t a_length, const char *b, size_t b_length) {
    int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static int compare_added(const void *a, const void *b, void *tokens) {
    const tl_token *x = (const tl_token *)tokens + *(const int32_t *)a,
                   *y = (const tl_token *)tokens + *(const int32_t *)b;
    return compare_bytes(x->bytes, x->length, y->bytes, y->length);
}

tl_status tl_tokenizer_index_added(tl_tokenizer *t, tl_error *error) {
    static const char *const ends[] = {END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>",
                                       "<\xEF\xBD\x9C"
                                       "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};
    size_t count = 0;
    for (int64_t id = 0; id < t->size; id++)
        count += t->tokens[id].bytes && t->tokens[id].added;
    t->added = tl_arena_alloc(&t->arena, (count + 1) * sizeof *t->added);
    if (!t->added)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for %zu added tokens", count);
    for (int64_t id = 0; id < t->size; id++)
        if (t->tokens[id].bytes && t->tokens[id].added) {
            t->added[t->n_added++] = (int32_t)id;
            t->starts_added[(unsigned char)t->tokens[id].bytes[0]] = true;
            t->has_lstrip |= t->tokens[id].lstrip;
        }
    qsort_r(t->added, t->n_added, sizeof *t->added, compare_added, t->tokens);
    t->end_of_text = -1;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && t->end_of_text < 0; i++)
        for (size_t k = 0; k < t->n_added; k++) {
            const tl_token *token = &t->tokens[t->added[k]];
            if (token->length == strlen(ends[i]) && memcmp(token->bytes, ends[i], token->length) == 0)
                t->end_of_text = t->added[k];
        }
    return TL_OK;
}

int32_t tl_tokenizer_added_at(const tl_tokenizer *t, const char *bytes, size_t count, bool plain, bool *partial) {
    int32_t found = -1;
    *partial = false;
    if (count == 0 || !t->starts_added[(unsigned char)bytes[0]])
        return -1;
    /* The tokens that start with bytes[0 … n), narrowed byte by byte; sorted, so the one that ends here comes first. */
    size_t low = 0, high = t->n_added;
    for (size_t n = 0; low < high; n++) {
        const tl_token *first = &t->tokens[t->added[low]];
        if (first->length == n) {
            found = plain && first->special ? found : t->added[low];
            low++;
        }
        if (low >= high)
            break;
        if (n == count) {
            *partial = true;
            break;
        }
        const unsigned char byte = (unsigned char)bytes[n];
        size_t a = low, b = high;
        while (a < b) {
            size_t middle = (a + b) / 2;
            if ((unsigned char)t->tokens[t->added[middle]].bytes[n] < byte)
                a = middle + 1;
            else
                b = middle;
        }
        low = a;
        b = high;
        while (a < b) {
            size_t middle = (a + b) / 2;
            if ((unsigned char)t->tokens[t->added[middle]].bytes[n] <= byte)
                a = middle + 1;
            else
                b = middle;
        }
        high = a;
    }
    return found;
}

/* ---- opening ---- */

static tl_status open_bytes(tl_tokenizer *t, bool with_end, tl_error *error) {
    t->size = t->entries = with_end ? 257 : 256;
    t->tokens = tl_arena_alloc(&t->arena, (size_t)t->size * sizeof *t->tokens);
    char *bytes = tl_arena_alloc(&t->arena, 256);
    if (!t->tokens || !bytes)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for a tokenizer of bytes");
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        t->tokens[i] = (tl_token){.bytes = bytes + i, .length = 1};
    }
    if (with_end)
        t->tokens[256] =
            (tl_token){.bytes = END_OF_TEXT, .length = sizeof END_OF_TEXT - 1, .added = true, .special = true};
    (void)snprintf(t->describe, sizeof t->describe, "bytes, %d tokens", (int)t->size);
    return tl_tokenizer_index_added(t, error);
}

static tl_tokenizer *new_tokenizer(const tl_allocator *allocator, tl_error *error) {
    if (!allocator)
        allocator = tl_allocator_default();
    tl_tokenizer *t = allocator->alloc(allocator->self, sizeof *t, 16, TL_ALLOC_HOST);
    if (!t) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for a tokenizer");
        return NULL;
    }
    memset(t, 0, sizeof *t);
    t->allocator = allocator;
    tl_arena_open(&t->arena, allocator);
    return t;
}

tl_tokenizer *tl_tokenizer_build(const tl_tokenizer_file *file, const tl_allocator *allocator, tl_error *error) {
    tl_tokenizer *t = new_tokenizer(allocator, error);
    if (!t)
        return NULL;
    if (tl_bpe_build(t, file, error) == TL_OK &&
        tl_splitter_new(file->stages, file->n_stages, file->name, t->allocator, &t->splitter, error) == TL_OK)
        return t;
    tl_tokenizer_free(t);
    return NULL;
}

tl_tokenizer *tl_tokenizer_open(const char *path, const tl_allocator *allocator, tl_error *error) {
    tl_tokenizer *t = NULL;
    if (strcmp(path, "bytes") == 0 || strcmp(path, "bytes+eot") == 0) {
        t = new_tokenizer(allocator, error);
        if (t && open_bytes(t, path[5] != '\0', error) != TL_OK) {
            tl_tokenizer_free(t);
            t = NULL;
        }
        return t;
    }
    tl_tokenizer_file *file = malloc(sizeof *file);
    if (!file) {
        tl_fail(error, TL_ERR_MEMORY, "no memory to read a tokenizer");
        return NULL;
    }
    if (tl_tokenizer_file_read(path, file, error) == TL_OK)
        t = tl_tokenizer_build(file, allocator, error);
    tl_tokenizer_file_free(file);
    free(file);
    return t;
}

void tl_tokenizer_free(tl_tokenizer *t) {
    if (!t)
        return;
    tl_splitter_free(t->splitter);
    tl_arena_close(&t->arena);
    t->allocator->release(t->allocator->self, t, sizeof *t, TL_ALLOC_HOST);
}

/* ---- asking ---- */

int64_t tl_tokenizer_size(const tl_tokenizer *t) { return t->size; }

int64_t tl_tokenizer_entries(const tl_tokenizer *t) { return t->entries; }

int32_t tl_tokenizer_end_of_text(const tl_tokenizer *t) { return t->end_of_text; }

const char *tl_tokenizer_describe(const tl_tokenizer *t) { return t->describe; }

const char *tl_tokenizer_bytes(const tl_tokenizer *t, int32_t id, size_t *length) {
    const bool there = id >= 0 && id < t->size && t->tokens[id].bytes;
    *length = there ? t->tokens[id].length : 0;
    return there ? t->tokens[id].bytes : NULL;
}

bool tl_tokenizer_is_special(const tl_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->size && t->tokens[id].bytes && t->tokens[id].special;
}

int32_t tl_tokenizer_find(const tl_tokenizer *t, const char *bytes, size_t length) {
    for (int64_t id = 0; id < t->size; id++)
        if (t->tokens[id].bytes && t->tokens[id].length == length && memcmp(t->tokens[id].bytes, bytes, length) == 0)
            return (int32_t)id;
    return -1;
}

const int32_t *tl_tokenizer_prefix(const tl_tokenizer *t, size_t *count) {
    *count = t->n_prefix;
    return t->prefix;
}

const int32_t *tl_tokenizer_suffix(const tl_tokenizer *t, size_t *count) {
    *count = t->n_suffix;
    return t->suffix;
}

/* ---- decoding ---- */

tl_status tl_tokenizer_decode_more(const tl_tokenizer *t, bool first, const int32_t *ids, size_t count,
                                   tl_token_text *out, tl_error *error) {
    const size_t before = out->count;
    for (size_t i = 0; i < count; i++) {
        tl_status status;
        if (ids[i] < 0 || ids[i] >= t->size || !t->tokens[ids[i]].bytes)
            status =
                tl_fail(error, TL_ERR_ARGUMENT, "id %d at position %zu stands for no token (%s; ids are below %lld)",
                        (int)ids[i], i, t->describe, (long long)t->size);
        else
            status = tl_token_text_add(out, t->tokens[ids[i]].bytes, t->tokens[ids[i]].length, error);
        if (status != TL_OK) {
            out->count = before;
            return status;
        }
    }
    /* The blank that encoding put in front. */
    if (first && t->bpe && t->bpe->strip_first && out->count > before && out->bytes[before] == ' ' &&
        !t->tokens[ids[0]].added) {
        out->count--;
        memmove(out->bytes + before, out->bytes + before + 1, out->count - before);
    }
    return TL_OK;
}

tl_status tl_tokenizer_decode(const tl_tokenizer *t, const int32_t *ids, size_t count, tl_token_text *out,
                              tl_error *error) {
    return tl_tokenizer_decode_more(t, true, ids, count, out, error);
}
