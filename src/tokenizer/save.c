/* tokenizer/save.c: writing vocab.json and merges.txt. */
#include "tokenizer/bpe.h"

#include "tally/json.h"

#include "data/replace.h"

#include <stdio.h>
#include <string.h>

static tl_status no_memory(tl_error *error) { return tl_fail(error, TL_ERR_MEMORY, "no memory to write a tokenizer"); }

/* A line a merge, best first. */
static tl_status write_merges(const tl_tokenizer *t, tl_token_text *text, tl_error *error) {
    const tl_bpe *bpe = t->bpe;
    const size_t bytes = (bpe->n_merges + 1) * sizeof(uint64_t);
    uint64_t *keys = t->allocator->alloc(t->allocator->self, bytes, 16, TL_ALLOC_HOST);
    if (!keys)
        return no_memory(error);
    for (size_t i = 0; i < bpe->n_pairs; i++)
        if (bpe->pairs[i].key != TL_BPE_NO_PAIR)
            keys[bpe->pairs[i].rank] = bpe->pairs[i].key;
    tl_status status = tl_token_text_add(text, "#version: 0.2\n", 14, error);
    for (size_t i = 0; i < bpe->n_merges && status == TL_OK; i++) {
        const tl_bpe_name *left = &bpe->names[keys[i] >> 32], *right = &bpe->names[keys[i] & UINT32_MAX];
        status = tl_token_text_add(text, left->text, left->length, error);
        if (status == TL_OK)
            status = tl_token_text_add(text, " ", 1, error);
        if (status == TL_OK)
            status = tl_token_text_add(text, right->text, right->length, error);
        if (status == TL_OK)
            status = tl_token_text_add(text, "\n", 1, error);
    }
    t->allocator->release(t->allocator->self, keys, bytes, TL_ALLOC_HOST);
    return status;
}

static const char *write_vocab(const tl_tokenizer *t, tl_json *json, size_t *length) {
    if (!json)
        return NULL;
    tl_json_object(json);
    for (int64_t id = 0; id < t->size; id++)
        if (t->bpe->names[id].text)
            tl_json_put_integer(json, t->bpe->names[id].text, id);
    tl_json_end(json);
    return tl_json_text(json, length);
}

/* Both are written under temporary names before either is renamed. */
static tl_status replace_both(const char *folder, const char *const texts[2], const size_t lengths[2],
                              tl_error *error) {
    static const char *const names[2] = {"vocab.json", "merges.txt"};
    tl_replace files[2];
    char paths[2][4096];
    tl_status status = TL_OK;
    int begun = 0;
    for (int i = 0; i < 2 && status == TL_OK; i++) {
        if ((size_t)snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]) >= sizeof paths[i])
            status = tl_fail(error, TL_ERR_ARGUMENT, "a folder's name of more than %zu bytes", sizeof paths[i] - 16);
        if (status == TL_OK)
            status = tl_replace_begin(&files[i], paths[i], error);
        if (status == TL_OK) {
            begun = i + 1;
            status = tl_replace_write(&files[i], texts[i], lengths[i], error);
        }
    }
    for (int i = 0; i < begun; i++)
        status = tl_replace_end(&files[i], status, error);
    return status;
}

tl_status tl_tokenizer_save(const tl_tokenizer *t, const char *folder, tl_error *error) {
    tl_token_text merges = {.allocator = t->allocator};
    const char *texts[2];
    size_t lengths[2] = {0, 0};
    if (!t->bpe || !t->bpe->plain)
        return tl_fail(
            error, TL_ERR_UNSUPPORTED,
            "%s: only a tokenizer that was learned, or read from vocab.json and merges.txt, is written as these",
            t->describe);
    tl_json *json = tl_json_new(t->allocator, 0);
    texts[0] = write_vocab(t, json, &lengths[0]);
    tl_status status = texts[0] ? write_merges(t, &merges, error) : no_memory(error);
    texts[1] = merges.bytes;
    lengths[1] = merges.count;
    if (status == TL_OK)
        status = replace_both(folder, texts, lengths, error);
    tl_token_text_free(&merges);
    tl_json_free(json);
    return status;
}
