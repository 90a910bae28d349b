/* Storages: the unit the ledger accounts. One allocator call per storage that has bytes and a device that holds them. */
#include "tensor/ctx.h"

#include <string.h>

/* Not yet in the context's list, and without bytes. */
static tl_storage *storage_blank(tl_ctx *ctx, int64_t bytes, const tl_poly *formula, tl_category category) {
    tl_storage *storage = ctx->free_storages;
    if (storage)
        ctx->free_storages = storage->next;
    else if (!(storage = tl_host_alloc(ctx, sizeof *storage)))
        return NULL;
    storage->ctx = ctx; /* field by field: clearing it first would take longer than all the rest here */
    storage->previous = storage->next = NULL;
    storage->data = NULL;
    storage->version = storage->saved = 0;
    storage->release = NULL;
    storage->release_self = NULL;
    storage->bytes = bytes;
    storage->formula = formula;
    storage->refs = 1;
    storage->category = category;
    storage->slot = TL_NO_SLOT;
    storage->module = ctx->place.module;
    storage->region = ctx->place.region;
    storage->op = ctx->place.op;
    storage->site = ctx->place.site;
    storage->user_site = ctx->place.user_site;
    return storage;
}

static tl_storage *storage_enter(tl_ctx *ctx, tl_storage *storage) {
    storage->next = ctx->storages;
    if (storage->next)
        storage->next->previous = storage;
    ctx->storages = storage;
    if (ctx->hooks)
        ctx->hooks->allocated(ctx, storage);
    return storage;
}

tl_storage *tl_storage_new(tl_ctx *ctx, int64_t bytes, const tl_poly *formula, tl_category category) {
    tl_storage *storage = storage_blank(ctx, bytes, formula, category);
    if (!storage)
        return NULL;
    if (bytes > 0 && ctx->kernels) {
        storage->data = (uint64_t)bytes > SIZE_MAX - TL_ALIGN
                            ? NULL
                            : ctx->allocator.alloc(ctx->allocator.self, (size_t)bytes, TL_ALIGN, TL_ALLOC_STORAGE);
        if (!storage->data) {
            storage->next = ctx->free_storages;
            ctx->free_storages = storage;
            tl_ctx_fail(ctx, TL_ERR_MEMORY, "no memory for %lld bytes of %s%s%s", (long long)bytes,
                        tl_category_name(category), ctx->place.site ? " at " : "",
                        ctx->place.site ? ctx->place.site : "");
            return NULL;
        }
    }
    return storage_enter(ctx, storage);
}

tl_storage *tl_storage_external(tl_ctx *ctx, int64_t bytes, const tl_poly *formula, tl_category category, void *data,
                                void (*release)(void *self, void *data), void *self) {
    tl_storage *storage = storage_blank(ctx, bytes, formula, category);
    if (!storage)
        return NULL;
    storage->data = data;
    storage->release = release;
    storage->release_self = self;
    return storage_enter(ctx, storage);
}

void tl_storage_unref(tl_storage *storage) {
    if (--storage->refs > 0)
        return;
    tl_ctx *ctx = storage->ctx;
    if (ctx->hooks)
        ctx->hooks->freed(ctx, storage);
    if (storage->release)
        storage->release(storage->release_self, storage->data);
    else if (storage->data)
        ctx->allocator.release(ctx->allocator.self, storage->data, (size_t)storage->bytes, TL_ALLOC_STORAGE);
    if (storage->previous)
        storage->previous->next = storage->next;
    else
        ctx->storages = storage->next;
    if (storage->next)
        storage->next->previous = storage->previous;
    storage->data = NULL;
    storage->next = ctx->free_storages;
    ctx->free_storages = storage;
}

void tl_storage_retag(tl_storage *storage, tl_category category) {
    tl_category before = storage->category;
    if (before == category)
        return;
    storage->category = category;
    if (storage->ctx->hooks)
        storage->ctx->hooks->retagged(storage->ctx, storage, before);
}
