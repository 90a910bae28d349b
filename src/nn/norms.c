/* Norms of every family (tally/model.h's tl_norm_kind), as one op or operation by operation. */
#include "nn/net.h"
#include "tally/ops_choices.h"

static bool is_layer_norm(const tl_norm *norm) {
    switch (norm->kind) {
    case TL_NORM_LAYER:
    case TL_NORM_LAYER_NO_BIAS:
    case TL_NORM_LAYER_PLAIN:
        return true;
    case TL_NORM_OF_FAMILY:
        return norm->bias != NULL;
    default:
        return false;
    }
}

/* A norm without a gain multiplies by 1: one element, stretched. */
static tl_tensor *ones_like_last(tl_net *net, const tl_tensor *x) {
    const tl_shape *shape = tl_tensor_shape(x);
    tl_tensor *one = tl_empty(net->ctx, tl_tensor_dtype(x), TL_SHAPE(net->ctx, tl_dim_of(1)), TL_WORK);
    return tl_expand(one ? tl_fill(one, 1) : NULL, TL_SHAPE(net->ctx, shape->dim[shape->ndim - 1]));
}

static bool is_narrow(tl_dtype dtype) { return dtype == TL_BF16 || dtype == TL_F16; }

/* Hugging Face's LlamaRMSNorm: x to f32; x·rsqrt(mean(x²) + ε); back; ·gain. GemmaRMSNorm goes back after ·(1 + gain). What no
 * later operation reads is let go as Python lets it go. */
static tl_tensor *composed_rms(const tl_choices *c, tl_norm_kind kind, tl_tensor *gain, tl_tensor *x, double epsilon) {
    tl_dtype dtype = tl_tensor_dtype(x), wide = is_narrow(dtype) ? TL_F32 : dtype;
    bool one_more = kind == TL_NORM_RMS_ONE;
    tl_tensor *h = tl_cast(x, wide), *square = tl_power_of(h, 2);
    tl_tensor *mean =
        c->mean_input ? tl_mean_of_kept(square, (int[]){-1}, 1, true) : tl_mean(square, (int[]){-1}, 1, true);
    tl_release(square);
    tl_tensor *normal = tl_mul(h, tl_rsqrt(tl_scale(mean, 1, epsilon)));
    if (h != x)
        tl_release(h);
    if (gain && (one_more || c->norm == TL_NORM_WIDE)) {
        bool mixed = !one_more && tl_tensor_dtype(gain) != wide; /* torch keeps the narrow gain, and no wide copy */
        tl_tensor *by = mixed ? NULL : tl_cast(gain, wide);
        tl_tensor *product = mixed ? tl_mul_mixed(normal, gain) : tl_mul(normal, one_more ? tl_scale(by, 1, 1) : by);
        tl_release(normal);
        return tl_cast(product, dtype);
    }
    tl_tensor *back = tl_cast(normal, dtype);
    if (back != normal)
        tl_release(normal);
    return gain ? tl_mul(gain, back) : back;
}

tl_tensor *tl_apply_norm(tl_net *net, const tl_norm *norm, const char *name, tl_tensor *x) {
    double epsilon = norm->epsilon != 0 ? norm->epsilon : net->model.norm_epsilon;
    tl_enter(net, name, -1);
    if (!x)
        return tl_leave(net, NULL);
    if (!is_layer_norm(norm) && net->choices.norm != TL_NORM_FUSED)
        return tl_leave(net, composed_rms(&net->choices, norm->kind, norm->gain, x, epsilon));
    tl_tensor *gain = norm->gain ? norm->gain : ones_like_last(net, x);
    if (is_layer_norm(norm))
        return tl_leave(net, tl_layer_norm(x, gain, norm->bias, epsilon));
    double offset = norm->gain && norm->kind == TL_NORM_RMS_ONE ? 1 : 0;
    return tl_leave(net, tl_rms_norm_offset(x, gain, offset, epsilon));
}
