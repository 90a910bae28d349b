/* An axis of size 1 taken away. */
#include "op/views.h"

#include <string.h>

typedef struct squeeze_attr {
    int axis;
} squeeze_attr;

static tl_status squeeze_infer(tl_sig *sig) {
    const tl_tensor *t = sig->in[0];
    char text[200];
    int axis = 0;
    tl_status status = tl_sig_axis(sig, 0, TL_ATTR(squeeze_attr, sig)->axis, &axis);
    if (status != TL_OK)
        return status;
    tl_dim dim = t->shape.dim[axis];
    if (dim.size != 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "axis %d%s%s of %s has size %lld; only an axis of size 1 can go", axis,
                           dim.axis ? " " : "", dim.axis ? dim.axis : "", tl_tensor_text(t, text, sizeof text),
                           (long long)dim.size);
    tl_dim_assume_equal(sig->ctx, dim, tl_dim_fixed(sig->ctx, tl_dim_of(1)));
    tl_output_drop_axis(tl_sig_add_view(sig, &t->shape, t->stride, t->offset), axis);
    return TL_OK;
}

static tl_status squeeze_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const squeeze_attr *attr = tl_saved_attr(saved);
    gin[0] = tl_unsqueeze_(gout[0], tl_axis_normal(attr->axis, tl_saved_shape(saved, 0)->ndim), saved->site);
    return tl_ctx_status(ctx);
}

static void squeeze_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 5)};
    squeeze_attr attr = {(int)tl_sample_below(&seed, 6) - 3};
    size[tl_axis_normal(attr.axis, 3)] = 1;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(squeeze, sizeof(squeeze_attr), squeeze_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, squeeze_grad,
      squeeze_sample);

tl_tensor *tl_squeeze_(tl_tensor *x, int axis, const char *site) {
    squeeze_attr attr = {axis};
    return tl_run1(&tl_op_squeeze, (tl_tensor *[]){x}, 1, &attr, site);
}
