/* The bare context: memory, errors, phases. */
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

static const char *const category_names[TL_CATEGORY_COUNT] = {"param", "grad",  "master", "optim", "saved",
                                                              "work",  "cache", "data",   "comm"};
static const char *const phase_names[TL_PHASE_COUNT] = {"init", "load", "forward", "loss", "backward", "step", "save"};

const char *tl_category_name(tl_category category) {
    return (unsigned)category < TL_CATEGORY_COUNT ? category_names[category] : "?";
}

const char *tl_phase_name(tl_phase phase) { return (unsigned)phase < TL_PHASE_COUNT ? phase_names[phase] : "?"; }

tl_status tl_ctx_fail(tl_ctx *ctx, tl_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tl_vfail(&ctx->error, status, format, args);
    va_end(args);
    return status;
}

static void *host_raw(tl_ctx *ctx, size_t bytes) {
    void *pointer = ctx->allocator.alloc(ctx->allocator.self, bytes ? bytes : 1, 16, TL_ALLOC_HOST);
    if (!pointer)
        tl_ctx_fail(ctx, TL_ERR_MEMORY, "no memory for %zu bytes of bookkeeping", bytes);
    return pointer;
}

void *tl_host_alloc(tl_ctx *ctx, size_t bytes) {
    void *pointer = host_raw(ctx, bytes);
    if (pointer)
        memset(pointer, 0, bytes);
    return pointer;
}

void tl_host_free(tl_ctx *ctx, void *pointer, size_t bytes) {
    if (pointer)
        ctx->allocator.release(ctx->allocator.self, pointer, bytes ? bytes : 1, TL_ALLOC_HOST);
}

bool tl_host_grow(tl_ctx *ctx, void *array, size_t size, int64_t need, int64_t *capacity) {
    if (need <= *capacity)
        return true;
    int64_t wanted = *capacity ? *capacity * 2 : 64;
    if (wanted < need)
        wanted = need;
    void *old;
    memcpy(&old, array, sizeof old);
    size_t kept = (size_t)*capacity * size, bytes = (size_t)wanted * size;
    char *grown = host_raw(ctx, bytes);
    if (!grown)
        return false;
    if (old)
        memcpy(grown, old, kept);
    memset(grown + kept, 0, bytes - kept);
    tl_host_free(ctx, old, (size_t)*capacity * size);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

char *tl_host_text(tl_ctx *ctx, const char *text) {
    size_t length = strlen(text) + 1;
    char *copy = tl_host_alloc(ctx, length);
    if (copy)
        memcpy(copy, text, length);
    return copy;
}

tl_ctx *tl_ctx_new_bare(const tl_ctx_options *options, tl_error *error) {
    static const tl_ctx_options defaults = {0};
    const tl_ctx_options *o = options ? options : &defaults;
    const tl_allocator *allocator = o->allocator ? o->allocator : tl_allocator_default();
    if (o->threads < 0 || o->threads > 1024) {
        tl_fail(error, TL_ERR_ARGUMENT, "threads is %d; 1 to 1024 would work", o->threads);
        return NULL;
    }
    if (o->scratch_bytes < 0 && (o->scratch_bytes != TL_NO_SCRATCH || o->kernels)) {
        tl_fail(error, TL_ERR_ARGUMENT, "scratch_bytes is %lld; products need a block per thread (0 is 2 MiB)",
                (long long)o->scratch_bytes);
        return NULL;
    }
    tl_ctx *ctx = allocator->alloc(allocator->self, sizeof *ctx, 16, TL_ALLOC_HOST);
    if (!ctx) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for a context");
        return NULL;
    }
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = *allocator;
    ctx->kernels = o->kernels;
    ctx->threads = o->threads ? o->threads : 1;
    ctx->scratch_bytes = o->scratch_bytes == TL_NO_SCRATCH ? 0 : o->scratch_bytes ? o->scratch_bytes : (int64_t)2 << 20;
    ctx->seed_init = o->seed_init;
    ctx->seed_data = o->seed_data;
    ctx->seed_dropout = o->seed_dropout;
    if (o->formulas)
        ctx->space = tl_space_new(&ctx->allocator, &ctx->error);
    if ((o->formulas && !ctx->space) || !tl_place_init(ctx)) {
        tl_fail(error, ctx->error.status, "%s", ctx->error.message);
        tl_ctx_free_bare(ctx);
        return NULL;
    }
    return ctx;
}

void tl_ctx_free_bare(tl_ctx *ctx) {
    if (!ctx)
        return;
    while (ctx->storages) { /* whatever still lives: handles go with their slabs */
        tl_storage *storage = ctx->storages;
        storage->refs = 1;
        tl_storage_unref(storage);
    }
    for (int i = 0; i < ctx->block_count; i++)
        tl_host_free(ctx, ctx->blocks[i], 64 * sizeof(tl_tensor));
    tl_host_free(ctx, ctx->blocks, (size_t)ctx->block_capacity * sizeof *ctx->blocks);
    while (ctx->free_storages) {
        tl_storage *storage = ctx->free_storages;
        ctx->free_storages = storage->next;
        tl_host_free(ctx, storage, sizeof *storage);
    }
    tl_host_free(ctx, ctx->scope, (size_t)ctx->scope_capacity * sizeof *ctx->scope);
    tl_host_free(ctx, ctx->marks, (size_t)ctx->mark_capacity * sizeof *ctx->marks);
    for (int i = 0; i < ctx->assumption_count; i++)
        tl_host_free(ctx, ctx->assumptions[i], strlen(ctx->assumptions[i]) + 1);
    tl_host_free(ctx, ctx->assumptions, (size_t)ctx->assumption_capacity * sizeof *ctx->assumptions);
    tl_place_free(ctx);
    tl_space_free(ctx->space);
    tl_allocator allocator = ctx->allocator;
    allocator.release(allocator.self, ctx, sizeof *ctx, TL_ALLOC_HOST);
}

const tl_error *tl_ctx_error(const tl_ctx *ctx) { return &ctx->error; }

tl_status tl_ctx_status(const tl_ctx *ctx) { return ctx->error.status; }

void tl_ctx_clear_error(tl_ctx *ctx) { tl_error_clear(&ctx->error); }

bool tl_ctx_is_meta(const tl_ctx *ctx) { return ctx->kernels == NULL; }

int tl_ctx_threads(const tl_ctx *ctx) { return ctx->threads; }

tl_space *tl_ctx_space(tl_ctx *ctx) { return ctx->space; }

int tl_ctx_assumptions(const tl_ctx *ctx, const char *const **texts) {
    *texts = (const char *const *)ctx->assumptions;
    return ctx->assumption_count;
}

void tl_phase_set(tl_ctx *ctx, tl_phase phase) {
    tl_phase before = ctx->place.phase;
    ctx->place.phase = phase;
    if (ctx->hooks && before != phase)
        ctx->hooks->phase_changed(ctx, before);
}

tl_phase tl_phase_get(const tl_ctx *ctx) { return ctx->place.phase; }
