/* Clipping by the global norm of all gradients, and finding the one that is not finite. */
#include "optim/optimizer.h"

/* Ops on a gradient are booked where its parameter lives, so that equal layers fold. */
static void stand_at(tl_ctx *ctx, const tl_tensor *grad) {
    ctx->place.region = grad->storage->region;
    ctx->place.module = grad->storage->module;
}

const char *tl_first_non_finite_gradient(tl_ctx *ctx, const tl_parameter *parameters, int count) {
    if (tl_ctx_is_meta(ctx))
        return NULL;
    bool recording = ctx->recording;
    tl_place before = ctx->place;
    const char *found = NULL;
    ctx->recording = false;
    for (int i = 0; i < count && !found && ctx->error.status == TL_OK; i++) {
        double faults = 0;
        tl_tensor *grad = parameters[i].tensor ? parameters[i].tensor->grad : NULL;
        if (!grad)
            continue;
        stand_at(ctx, grad);
        tl_tensor *number = tl_non_finite_(grad, TL_HERE);
        if (number && tl_item(number, &faults) == TL_OK && faults > 0)
            found = parameters[i].name;
        tl_release(number);
    }
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    ctx->recording = recording;
    return ctx->error.status == TL_OK ? found : NULL;
}

/* Scaling by max_norm/∞ would make every gradient 0, and by NaN every one NaN: neither is done. */
static tl_status check_norm(tl_ctx *ctx, const tl_tensor *total, const tl_parameter *parameters, int count) {
    double value = 0;
    if (!total || tl_ctx_is_meta(ctx) || ctx->error.status != TL_OK)
        return ctx->error.status;
    tl_status status = tl_item(total, &value);
    if (status != TL_OK || value - value == 0)
        return status;
    const char *name = tl_first_non_finite_gradient(ctx, parameters, count);
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (!name)
        return tl_ctx_fail(ctx, TL_ERR_STATE,
                           "the squares of the gradients add up to more than f64 holds, so that they "
                           "have no norm to clip by; nothing was changed");
    return tl_ctx_fail(ctx, TL_ERR_STATE,
                       "the gradient of %.120s is not finite, the first of those; there is no norm to clip by, and no "
                       "gradient was changed",
                       name);
}

tl_tensor *tl_gradient_squares(tl_ctx *ctx, const tl_parameter *parameters, int count) {
    tl_place before = ctx->place;
    tl_tensor *total = NULL;
    for (int i = 0; i < count && ctx->error.status == TL_OK; i++) {
        tl_tensor *grad = parameters[i].tensor->grad;
        if (!grad)
            continue;
        stand_at(ctx, grad);
        tl_tensor *square = tl_square_sum_(grad, TL_HERE);
        if (!total)
            total = square;
        else {
            tl_release(tl_accumulate_(total, square, TL_HERE));
            tl_release(square);
        }
    }
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    return ctx->error.status == TL_OK ? total : NULL;
}

tl_status tl_clip_by_squares(tl_ctx *ctx, const tl_parameter *parameters, int count, tl_tensor *squares,
                             double max_norm) {
    tl_place before = ctx->place;
    for (int i = 0; i < count && squares && ctx->error.status == TL_OK; i++) {
        tl_tensor *grad = parameters[i].tensor->grad;
        if (!grad)
            continue;
        stand_at(ctx, grad);
        tl_release(tl_clip_scale_(grad, squares, max_norm, TL_HERE));
    }
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    return ctx->error.status;
}

tl_tensor *tl_clip_gradients(tl_ctx *ctx, const tl_parameter *parameters, int count, double max_norm) {
    if (!(max_norm > 0)) {
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "clipping to a norm of %g; it must be positive", max_norm);
        return NULL;
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (parameters[i].tensor->grad && parameters[i].tensor->grad == parameters[j].tensor->grad) {
                tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                            "parameter %s is given twice; its gradient would count twice in the norm",
                            parameters[i].name);
                return NULL;
            }
    bool recording = ctx->recording;
    ctx->recording = false;
    tl_tensor *total = tl_gradient_squares(ctx, parameters, count);
    if (check_norm(ctx, total, parameters, count) == TL_OK)
        (void)tl_clip_by_squares(ctx, parameters, count, total, max_norm);
    tl_tensor *norm = total && ctx->error.status == TL_OK ? tl_sqrt_(total, TL_HERE) : NULL;
    ctx->recording = recording;
    return ctx->error.status == TL_OK ? norm : NULL;
}
