/* Norms of every family (tally/model.h's tl_norm_kind). */
#include "nn/net.h"

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

tl_tensor *tl_apply_norm(tl_net *net, const tl_norm *norm, const char *name, tl_tensor *x) {
    double epsilon = norm->epsilon != 0 ? norm->epsilon : net->model.norm_epsilon;
    tl_enter(net, name, -1);
    if (!x)
        return tl_leave(net, NULL);
    tl_tensor *gain = norm->gain ? norm->gain : ones_like_last(net, x);
    if (is_layer_norm(norm))
        return tl_leave(net, tl_layer_norm(x, gain, norm->bias, epsilon));
    double offset = norm->gain && norm->kind == TL_NORM_RMS_ONE ? 1 : 0;
    return tl_leave(net, tl_rms_norm_offset(x, gain, offset, epsilon));
}
