/* cli/data_starts.c: where the documents of a stream of tokens begin, where no id between them says it. */
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "tally/cpu.h"
#include "tally/npy.h"
#include "tally/ops.h"
#include "tally/run.h"

typedef struct list {
    int64_t *at;
    int64_t count, capacity;
} list;

static tl_status add(list *l, int64_t value, tl_error *error) {
    if (l->count == l->capacity) {
        const int64_t capacity = l->capacity ? 2 * l->capacity : 64;
        int64_t *at = realloc(l->at, (size_t)capacity * sizeof *at);
        if (!at)
            return tl_fail(error, TL_ERR_MEMORY, "no memory for the beginnings of %lld documents", (long long)capacity);
        l->at = at;
        l->capacity = capacity;
    }
    l->at[l->count++] = value;
    return TL_OK;
}

/* Those of one file, which begins at `base` of the stream. *there: its notes have them. */
static tl_status add_file(list *l, const tl_token_file *file, int64_t base, bool *there, tl_error *error) {
    static char path[TL_DATA_PATH];
    tl_error why = {TL_OK, ""};
    tl_run_file *notes = tl_sidecar_path(file->path, path) ? tl_run_file_read(path, &why) : NULL;
    *there = notes && tl_run_file_kind(notes, "starts") == TL_RUN_LIST;
    const int64_t count = *there ? tl_run_file_count(notes, "starts") : 0;
    tl_status status = TL_OK;
    int64_t before = 0;
    for (int64_t i = 0; i < count && status == TL_OK; i++) {
        char key[40];
        snprintf(key, sizeof key, "starts.%lld", (long long)i);
        status = tl_run_file_integer(notes, key, before, file->count, &before, error);
        if (status == TL_OK)
            status = add(l, base + before, error);
    }
    tl_run_file_free(notes);
    return status;
}

tl_status tl_sidecar_starts(const tl_tokens *tokens, int64_t **starts, int64_t *count, tl_error *error) {
    list l = {NULL, 0, 0};
    tl_status status = TL_OK;
    bool there = true;
    int64_t base = 0;
    for (int i = 0; i < tl_tokens_files(tokens) && status == TL_OK && there; i++) {
        const tl_token_file *file = tl_tokens_file(tokens, i);
        status = add_file(&l, file, base, &there, error);
        base += file->count;
    }
    if (status != TL_OK || !there || l.count == 0) {
        free(l.at);
        l = (list){NULL, 0, 0};
    }
    *starts = l.at;
    *count = l.count;
    return status;
}

static tl_status read_npy(tl_ctx *ctx, const char *path, list *l) {
    tl_tensor *t = tl_npy_read(ctx, path, NULL);
    if (!t)
        return tl_ctx_status(ctx);
    const tl_dtype dtype = tl_tensor_dtype(t);
    if (tl_tensor_ndim(t) != 1 || tl_dtype_is_float(dtype) || dtype == TL_BOOL || tl_tensor_count(t) == 0) {
        tl_ctx_clear_error(ctx);
        return TL_ERR_FORMAT;
    }
    tl_tensor *wide = tl_cast(t, TL_I64);
    const size_t bytes = (size_t)tl_tensor_count(t) * sizeof(int64_t);
    l->at = wide ? malloc(bytes) : NULL;
    l->count = tl_tensor_count(t);
    return l->at ? tl_tensor_read(wide, l->at, bytes) : wide ? TL_ERR_MEMORY : tl_ctx_status(ctx);
}

tl_status tl_starts_from_npy(const char *path, int64_t **starts, int64_t *count, tl_error *error) {
    list l = {NULL, 0, 0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .threads = 1}, error);
    if (!ctx)
        return error->status;
    tl_scope_begin(ctx);
    tl_status status = read_npy(ctx, path, &l);
    if (status == TL_ERR_MEMORY)
        tl_fail(error, status, "no memory for the documents of %.900s", path);
    else if (tl_ctx_status(ctx) != TL_OK)
        tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    else if (status != TL_OK)
        tl_fail(error, status, "%.900s is no list of positions; whole numbers in one axis (numpy's int64) would work",
                path);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
    if (status != TL_OK) {
        free(l.at);
        l.at = NULL;
    }
    *starts = l.at;
    *count = status == TL_OK ? l.count : 0;
    return status;
}
