/* Clipping by the global norm of all gradients. */
#include "tally/optim.h"

#include "op/core.h"

tl_tensor *tl_clip_gradients(tl_ctx *ctx, const tl_parameter *parameters, int count, double max_norm) {
    if (!(max_norm > 0)) {
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "clipping to a norm of %g; it must be positive", max_norm);
        return NULL;
    }
    bool recording = ctx->recording;
    tl_place before = ctx->place;
    ctx->recording = false;
    tl_tensor *total = NULL;
    for (int i = 0; i < count && ctx->error.status == TL_OK; i++) {
        tl_tensor *grad = parameters[i].tensor->grad;
        if (!grad)
            continue;
        ctx->place.region = grad->storage->region;
        ctx->place.module = grad->storage->module;
        tl_tensor *square = tl_square_sum_(grad, TL_HERE);
        if (!total)
            total = square;
        else {
            tl_accumulate_(total, square, TL_HERE);
            tl_release(square);
        }
    }
    for (int i = 0; i < count && total && ctx->error.status == TL_OK; i++) {
        tl_tensor *grad = parameters[i].tensor->grad;
        if (!grad)
            continue;
        ctx->place.region = grad->storage->region;
        ctx->place.module = grad->storage->module;
        tl_release(tl_clip_scale_(grad, total, max_norm, TL_HERE));
    }
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    tl_tensor *norm = total ? tl_sqrt_(total, TL_HERE) : NULL;
    ctx->recording = recording;
    return ctx->error.status == TL_OK ? norm : NULL;
}
