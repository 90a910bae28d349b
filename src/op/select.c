/* One index of an axis, which goes. The gradient lies in zeros, as a slice's does. */
#include "op/views.h"

#include <string.h>

typedef struct select_attr {
    int axis;
    int64_t index;
} select_attr;

static tl_status select_infer(tl_sig *sig) {
    const select_attr *attr = TL_ATTR(select_attr, sig);
    const tl_tensor *t = sig->in[0];
    char text[200];
    int axis = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->axis, &axis);
    if (status != TL_OK)
        return status;
    tl_dim dim = t->shape.dim[axis];
    if (attr->index >= dim.size || attr->index < -dim.size)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "index %lld leaves axis %d%s%s of %s, whose size is %lld",
                           (long long)attr->index, axis, dim.axis ? " " : "", dim.axis ? dim.axis : "",
                           tl_tensor_text(t, text, sizeof text), (long long)dim.size);
    int64_t index = attr->index < 0 ? attr->index + dim.size : attr->index;
    tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, t->offset + index * t->stride[axis]);
    tl_output_drop_axis(out, axis);
    return TL_OK;
}

static tl_status select_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const select_attr *attr = tl_saved_attr(saved);
    const tl_shape *full = tl_saved_shape(saved, 0);
    int axis = tl_axis_normal(attr->axis, full->ndim);
    tl_tensor *row = tl_unsqueeze_(gout[0], axis, saved->site);
    gin[0] = tl_slice_gradient(row, full, axis, attr->index, 1, saved->site);
    return tl_ctx_status(ctx);
}

static void select_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 5)};
    select_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = (int)tl_sample_below(&seed, 6) - 3;
    int axis = tl_axis_normal(attr.axis, 3);
    attr.index = tl_sample_below(&seed, 2 * size[axis]) - size[axis];
    if (tl_sample_below(&seed, 4) == 0)
        size[(axis + 1) % 3] = 0;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(select, sizeof(select_attr), select_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, select_grad,
      select_sample);

tl_tensor *tl_select_(tl_tensor *x, int axis, int64_t index, const char *site) {
    select_attr attr = {.axis = axis, .index = index};
    return tl_run1(&tl_op_select, (tl_tensor *[]){x}, 1, &attr, site);
}
