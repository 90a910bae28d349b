/* A new axis of size 1. */
#include "op/views.h"

#include <string.h>

typedef struct unsqueeze_attr {
    int axis;
} unsqueeze_attr;

static tl_status unsqueeze_infer(tl_sig *sig) {
    const tl_tensor *t = sig->in[0];
    char text[200];
    int axis = TL_ATTR(unsqueeze_attr, sig)->axis, n = t->shape.ndim;
    if (n >= TL_MAX_NDIM)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s has %d axes already, and no tensor has more",
                           tl_tensor_text(t, text, sizeof text), n);
    if (axis < -n - 1 || axis > n)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "a new axis %d of %s; %d to %d would work", axis,
                           tl_tensor_text(t, text, sizeof text), -n - 1, n);
    axis = tl_axis_normal(axis, n + 1);
    tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    for (int i = n; i > axis; i--) {
        out->shape.dim[i] = t->shape.dim[i - 1];
        out->stride[i] = t->stride[i - 1];
    }
    out->shape.ndim = n + 1;
    out->shape.dim[axis] = tl_dim_fixed(sig->ctx, tl_dim_of(1));
    /* Any stride is true of one element; this one lets the axis join the next where the next is contiguous. */
    out->stride[axis] = axis < n ? t->stride[axis] : 1;
    return TL_OK;
}

static tl_status unsqueeze_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const unsqueeze_attr *attr = tl_saved_attr(saved);
    gin[0] = tl_squeeze_(gout[0], tl_axis_normal(attr->axis, tl_saved_shape(saved, 0)->ndim + 1), saved->site);
    return tl_ctx_status(ctx);
}

static void unsqueeze_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 5)};
    unsqueeze_attr attr = {(int)tl_sample_below(&seed, 8) - 4};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(unsqueeze, sizeof(unsqueeze_attr), unsqueeze_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, unsqueeze_grad,
      unsqueeze_sample);

tl_tensor *tl_unsqueeze_(tl_tensor *x, int axis, const char *site) {
    unsqueeze_attr attr = {axis};
    return tl_run1(&tl_op_unsqueeze, (tl_tensor *[]){x}, 1, &attr, site);
}
