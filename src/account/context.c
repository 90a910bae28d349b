/* A whole context: the bare one with its ledger, its scratch blocks and, on a device that holds bytes, its engine. */
#include "account/ledger.h"
#include "kernel/table.h"

tl_ctx *tl_ctx_new(const tl_ctx_options *options, tl_error *error) {
    tl_ctx *ctx = tl_ctx_new_bare(options, error);
    if (!ctx)
        return NULL;
    int64_t bytes = 0;
    bool ok = tl_ledger_attach(ctx) && tl_mul_i64(ctx->scratch_bytes, ctx->threads, &bytes);
    if (ok && bytes > 0) {
        const tl_poly *formula = ctx->space ? tl_poly_constant(ctx->space, bytes) : NULL;
        ctx->scratch = tl_storage_new(ctx, bytes, formula, TL_WORK);
        ok = ctx->scratch != NULL;
    }
    if (ok && ctx->kernels)
        ok = ctx->kernels->engine_open(&ctx->allocator, ctx->threads, ctx->scratch->data, ctx->scratch_bytes,
                                       &ctx->engine, &ctx->error) == TL_OK;
    if (!ok) {
        if (ctx->error.status == TL_OK)
            tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "%d scratch blocks of %lld bytes are too many", ctx->threads,
                        (long long)ctx->scratch_bytes);
        tl_fail(error, ctx->error.status, "%s", ctx->error.message);
        tl_ctx_free(ctx);
        return NULL;
    }
    return ctx;
}

void tl_ctx_free(tl_ctx *ctx) {
    if (!ctx)
        return;
    if (ctx->tape_hooks)
        ctx->tape_hooks->close(ctx);
    if (ctx->axes)
        ctx->axes_close(ctx);
    if (ctx->engine)
        ctx->kernels->engine_close(ctx->engine);
    tl_ledger_detach(ctx);
    tl_ctx_free_bare(ctx);
}

const char *tl_ctx_device(const tl_ctx *ctx) { return ctx->kernels ? ctx->kernels->name : "meta"; }
