/* What the ops of a mixture of experts share, and what is written with them. */
#include "op/moe.h"

#include <string.h>

tl_status tl_moe_want_experts(tl_sig *sig, int input) {
    const tl_shape *shape = &sig->in[input]->shape;
    char text[200];
    int64_t count = 0;
    tl_status status = tl_sig_want_index(sig, input, "the experts");
    if (status != TL_OK)
        return status;
    if (shape->ndim != 2)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the experts are %s; [tokens, choices] would work",
                           tl_tensor_text(sig->in[input], text, sizeof text));
    if (!tl_shape_count(shape, &count) || count > TL_MOE_MOST_ROWS)
        return tl_sig_fail(sig, TL_ERR_OVERFLOW,
                           "the experts are %s: choices are numbered in 32 bits, fewer tokens "
                           "would work",
                           tl_tensor_text(sig->in[input], text, sizeof text));
    return TL_OK;
}

tl_status tl_moe_run_experts(const tl_sig *sig, tl_args *args, tl_kernel *kernel, int64_t n_expert) {
    kernel(&args->call);
    if (!args->call.fault)
        return TL_OK;
    return tl_ctx_fail(sig->ctx, TL_ERR_ARGUMENT, "%s (%s): the expert at position %lld is outside 0 … %lld",
                       sig->op->name, sig->site, (long long)args->call.fault - 1, (long long)n_expert - 1);
}

tl_status tl_moe_want_order(tl_sig *sig, int input, int64_t n, int64_t k) {
    const tl_shape *shape = &sig->in[input]->shape;
    char text[200];
    int64_t count = 0, choices;
    tl_status status;
    if ((status = tl_sig_want_index(sig, input, "the order's choices")) || (status = tl_sig_want_ndim(sig, input, 1)))
        return status;
    if (shape->ndim >= TL_MAX_NDIM)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the order is %s; at most %d axes would work",
                           tl_tensor_text(sig->in[input], text, sizeof text), TL_MAX_NDIM - 1);
    if (k < 1 || n < 0)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "%lld tokens of %lld choices each; 1 or more would work", (long long)n,
                           (long long)k);
    if (!tl_shape_count(shape, &count) || count > TL_MOE_MOST_ROWS || __builtin_mul_overflow(n, k, &choices) ||
        choices > TL_MOE_MOST_ROWS)
        return tl_sig_fail(
            sig, TL_ERR_OVERFLOW,
            "the order is %s, for %lld tokens of %lld choices: rows and choices are numbered in 32 bits, "
            "fewer tokens would work",
            tl_tensor_text(sig->in[input], text, sizeof text), (long long)n, (long long)k);
    return TL_OK;
}

tl_status tl_moe_run_order(const tl_sig *sig, tl_args *args, tl_kernel *kernel, int64_t n_choice) {
    kernel(&args->call);
    if (!args->call.fault)
        return TL_OK;
    return tl_ctx_fail(sig->ctx, TL_ERR_ARGUMENT,
                       "%s (%s): the choice in row %lld is outside 0 … %lld, and not −1 for a free row", sig->op->name,
                       sig->site, (long long)args->call.fault - 1, (long long)n_choice - 1);
}

tl_shape tl_moe_rows_shape(const tl_shape *order, tl_dim width) {
    tl_shape shape = *order;
    shape.dim[shape.ndim++] = width;
    return shape;
}

tl_status tl_moe_want_rows(tl_sig *sig, int input, const tl_shape *order, tl_dim width, const char *what) {
    tl_shape shape = tl_moe_rows_shape(order, width);
    return tl_sig_want_shape(sig, input, &shape, what);
}

tl_dim tl_moe_workspace(tl_ctx *ctx, tl_dim n, const tl_shape *order) {
    tl_dim starts = tl_dim_add(ctx, n, tl_dim_fixed(ctx, tl_dim_of(1)));
    return tl_dim_mul(ctx, tl_dim_fixed(ctx, tl_dim_of(4)), tl_dim_add(ctx, starts, tl_elements_dim(ctx, order)));
}

tl_moe_attrs tl_moe_attrs_of(tl_dim n, tl_dim k) {
    tl_moe_attrs attr;
    memset(&attr, 0, sizeof attr);
    attr.moe.k = k.size;
    attr.n = n;
    attr.k = k;
    return attr;
}

void tl_moe_sample_order(uint64_t *seed, tl_case *c, int64_t n, int64_t k) {
    int64_t size[2] = {tl_sample_below(seed, 9), 1 + tl_sample_below(seed, 3)};
    if (n == 0)
        size[0] = 0;
    tl_sample_input(c, tl_sample_below(seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, 1 + (int)tl_sample_below(seed, 2),
                    size);
    c->in[c->n_in - 1].limit = n * k > 0 ? n * k : 1;
}

/* ---- composed ---- */

tl_tensor *tl_moe_balance_loss_(tl_tensor *probabilities, tl_tensor *experts, const char *site) {
    if (!probabilities || !experts)
        return NULL;
    tl_ctx *ctx = probabilities->ctx;
    char text[200], other[200];
    if (probabilities->shape.ndim != 2 || experts->shape.ndim != 2 ||
        !tl_dim_match(ctx, probabilities->shape.dim[0], experts->shape.dim[0]) ||
        probabilities->shape.dim[1].size < 1) {
        tl_ctx_fail(ctx, TL_ERR_SHAPE,
                    "moe_balance_loss (%s): probabilities %s and experts %s; [tokens, experts] and [tokens, choices] "
                    "would work",
                    site, tl_tensor_text(probabilities, text, sizeof text),
                    tl_tensor_text(experts, other, sizeof other));
        return NULL;
    }
    tl_dim n_expert = probabilities->shape.dim[1];
    tl_tensor *share = tl_mean_(probabilities, (int[]){0}, 1, false, site);
    tl_tensor *load = share ? tl_moe_load_(experts, n_expert, share->dtype, site) : NULL;
    return tl_scale_(tl_sum_(tl_mul_(share, load, site), NULL, 0, false, site), (double)n_expert.size, 0, site);
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

tl_dim tl_moe_capacity_dim(tl_ctx *ctx, tl_dim n, tl_dim k, tl_dim n_expert, double factor) {
    const int64_t parts = 1000;
    int64_t whole = factor > 0 && factor < 1e6 ? (int64_t)(factor * (double)parts + 0.5) : 0, below;
    double back = (double)whole / (double)parts - factor;
    if (whole < 1 || back > 1e-9 || back < -1e-9 || n_expert.size < 1) {
        tl_ctx_fail(
            ctx, TL_ERR_ARGUMENT,
            "a capacity factor of %g for %lld experts; above 0, of at most three decimals, for 1 expert or more "
            "would work",
            factor, (long long)n_expert.size);
        return (tl_dim){0};
    }
    int64_t common = common_divisor(whole, parts);
    if (__builtin_mul_overflow(parts / common, n_expert.size, &below)) {
        tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "%lld experts are too many", (long long)n_expert.size);
        return (tl_dim){0};
    }
    tl_dim choices = tl_dim_mul(ctx, tl_dim_fixed(ctx, n), tl_dim_fixed(ctx, k));
    return tl_dim_ceil_div(ctx, tl_dim_mul(ctx, tl_dim_fixed(ctx, tl_dim_of(whole / common)), choices), below);
}
