/* ckpt/safetensors_write.c: a file of named tensors in one pass, there whole or not at all. */
#include "ckpt/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "data/replace.h"
#include "tally/json.h"

struct tl_safetensors_writer {
    tl_replace file;
    char *path;
    int64_t left; /* bytes of values still to come */
};

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static tl_status check_names(const tl_safetensors_item *items, int64_t count, tl_error *error) {
    const char **names = malloc(((size_t)count + 1) * sizeof *names);
    tl_status status = TL_OK;
    if (!names)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for a table of %lld tensors", (long long)count);
    for (int64_t i = 0; i < count; i++)
        names[i] = items[i].name;
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int64_t i = 0; i < count && status == TL_OK; i++) {
        char quoted[128];
        tl_quotable(names[i], strlen(names[i]), quoted, sizeof quoted);
        if (strcmp(names[i], "__metadata__") == 0)
            status = tl_fail(error, TL_ERR_ARGUMENT, "a tensor cannot be called \"__metadata__\"");
        else if (i > 0 && strcmp(names[i - 1], names[i]) == 0)
            status = tl_fail(error, TL_ERR_ARGUMENT, "two tensors are called \"%s\"", quoted);
    }
    free(names);
    return status;
}

/* *total: bytes of all values. */
static tl_status put_tensor(tl_json *json, const tl_safetensors_item *item, int64_t *total, tl_error *error) {
    int64_t bytes = tl_dtype_bytes(item->dtype), begin = *total;
    bool ok = bytes > 0 && item->ndim >= 0 && item->ndim <= 8;
    for (int i = 0; ok && i < item->ndim; i++)
        ok = item->dim[i] >= 0 && tl_mul_i64(bytes, item->dim[i], &bytes);
    if (!ok || !tl_add_i64(*total, bytes, total)) {
        char quoted[128];
        return tl_fail(error, TL_ERR_ARGUMENT, "tensor \"%s\": %d sizes of %s that no file can hold",
                       tl_quotable(item->name, strlen(item->name), quoted, sizeof quoted), item->ndim,
                       tl_dtype_name(item->dtype));
    }
    tl_json_key(json, item->name);
    tl_json_object(json);
    tl_json_put_string(json, "dtype", tl_safetensors_word(item->dtype));
    tl_json_key(json, "shape");
    tl_json_array(json);
    for (int i = 0; i < item->ndim; i++)
        tl_json_integer(json, item->dim[i]);
    tl_json_end(json);
    tl_json_key(json, "data_offsets");
    tl_json_array(json);
    tl_json_integer(json, begin);
    tl_json_integer(json, *total);
    tl_json_end(json);
    tl_json_end(json);
    return TL_OK;
}

static tl_status put_all(tl_json *json, const tl_safetensors_item *items, int64_t count,
                         const tl_safetensors_text *texts, int64_t n_texts, int64_t *total, tl_error *error) {
    tl_status status = TL_OK;
    *total = 0;
    tl_json_object(json);
    if (n_texts > 0) {
        tl_json_key(json, "__metadata__");
        tl_json_object(json);
        for (int64_t i = 0; i < n_texts; i++)
            tl_json_put_string(json, texts[i].key, texts[i].value ? texts[i].value : "");
        tl_json_end(json);
    }
    for (int64_t i = 0; i < count && status == TL_OK; i++)
        status = put_tensor(json, &items[i], total, error);
    tl_json_end(json);
    return status;
}

char *tl_safetensors_header(const tl_safetensors_item *items, int64_t count, const tl_safetensors_text *texts,
                            int64_t n_texts, int64_t *length, int64_t *total, tl_error *error) {
    if (check_names(items, count, error) != TL_OK)
        return NULL;
    tl_json *json = tl_json_new(NULL, 0);
    size_t used = 0;
    char *header = NULL;
    const char *text = NULL;
    tl_status status = json ? put_all(json, items, count, texts, n_texts, total, error) : TL_OK;
    if (status == TL_OK)
        text = json ? tl_json_text(json, &used) : NULL;
    size_t padded = (used + 7) / 8 * 8;
    if (text && padded > TL_SAFETENSORS_LARGEST_HEADER)
        status =
            tl_fail(error, TL_ERR_UNSUPPORTED, "a header of %zu bytes; no reader takes more than 100,000,000", padded);
    else if (text)
        header = malloc(8 + padded);
    if (status == TL_OK && !header)
        tl_fail(error, TL_ERR_MEMORY, "no memory for the header of %lld tensors", (long long)count);
    if (header) {
        for (int i = 0; i < 8; i++)
            header[i] = (char)(padded >> 8 * i & 255);
        memcpy(header + 8, text, used);
        memset(header + 8 + used, ' ', padded - used);
        *length = (int64_t)(8 + padded);
    }
    tl_json_free(json);
    return header;
}

tl_safetensors_writer *tl_safetensors_begin_header(const char *path, const char *header, int64_t length, int64_t total,
                                                   tl_error *error) {
    tl_safetensors_writer *w = calloc(1, sizeof *w);
    char *copy = w ? strdup(path) : NULL;
    if (!copy) {
        free(w);
        tl_fail(error, TL_ERR_MEMORY, "no memory to write a file");
        return NULL;
    }
    w->path = copy;
    w->left = total;
    tl_status status = tl_replace_begin(&w->file, w->path, error);
    if (status == TL_OK)
        status = tl_replace_write(&w->file, header, (uint64_t)length, error);
    if (status == TL_OK)
        return w;
    (void)tl_replace_end(&w->file, status, error); /* the failure is in *error already */
    free(w->path);
    free(w);
    return NULL;
}

tl_safetensors_writer *tl_safetensors_begin(const char *path, const tl_safetensors_item *items, int64_t count,
                                            const tl_safetensors_text *texts, int64_t n_texts, tl_error *error) {
    int64_t length = 0, total = 0;
    char *header = tl_safetensors_header(items, count, texts, n_texts, &length, &total, error);
    if (!header)
        return NULL;
    tl_safetensors_writer *w = tl_safetensors_begin_header(path, header, length, total, error);
    free(header);
    return w;
}

tl_status tl_safetensors_write(tl_safetensors_writer *w, const void *data, int64_t bytes, tl_error *error) {
    if (bytes < 0 || bytes > w->left)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s: %lld bytes of values where %lld are still to come", w->path,
                       (long long)bytes, (long long)w->left);
    w->left -= bytes;
    return tl_replace_write(&w->file, data, (uint64_t)bytes, error);
}

tl_status tl_safetensors_end(tl_safetensors_writer *w, tl_status status, tl_error *error) {
    if (status == TL_OK && w->left != 0)
        status =
            tl_fail(error, TL_ERR_STATE, "%s: %lld bytes of values were never written", w->path, (long long)w->left);
    status = tl_replace_end(&w->file, status, error);
    free(w->path);
    free(w);
    return status;
}
