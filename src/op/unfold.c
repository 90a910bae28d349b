/* All windows of an axis, as a new last axis. They share memory where they overlap; the gradient adds there. */
#include "op/views.h"

#include <string.h>

typedef struct unfold_attr {
    int axis;
    int64_t step;
    tl_dim size;
} unfold_attr;

/* (n − size)/step rounded down, + 1, which is (n − size + 1)/step rounded up. */
static tl_dim windows_of(tl_ctx *ctx, tl_dim n, tl_dim size, int64_t step) {
    tl_dim starts = {.size = n.size - size.size + 1, .axis = n.axis};
    if (ctx->space)
        starts.formula = tl_poly_add(ctx->space, tl_poly_sub(ctx->space, tl_dim_fixed(ctx, n).formula, size.formula),
                                     tl_poly_constant(ctx->space, 1));
    return step == 1 ? starts : tl_dim_named(tl_dim_ceil_div(ctx, starts, step), n.axis);
}

static tl_status unfold_infer(tl_sig *sig) {
    const unfold_attr *attr = TL_ATTR(unfold_attr, sig);
    const tl_tensor *t = sig->in[0];
    char text[200];
    int axis = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->axis, &axis);
    if (status != TL_OK)
        return status;
    tl_dim n = t->shape.dim[axis], size = tl_dim_fixed(sig->ctx, attr->size);
    if (t->shape.ndim >= TL_MAX_NDIM)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s has %d axes already, and no tensor has more",
                           tl_tensor_text(t, text, sizeof text), t->shape.ndim);
    if (attr->step < 1 || size.size < 1 || size.size > n.size)
        return tl_sig_fail(sig, TL_ERR_SHAPE,
                           "windows of %lld by step %lld along axis %d%s%s of %s; a size of 1 to %lld and a step of at "
                           "least 1 would work",
                           (long long)size.size, (long long)attr->step, axis, n.axis ? " " : "", n.axis ? n.axis : "",
                           tl_tensor_text(t, text, sizeof text), (long long)n.size);
    tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    out->shape.dim[axis] = windows_of(sig->ctx, n, size, attr->step);
    if (out->shape.dim[axis].size > 1)
        out->stride[axis] = t->stride[axis] * attr->step;
    out->shape.dim[out->shape.ndim] = size;
    out->stride[out->shape.ndim++] = t->stride[axis];
    return TL_OK;
}

static tl_status unfold_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const unfold_attr *attr = tl_saved_attr(saved);
    const tl_shape *full = tl_saved_shape(saved, 0);
    int64_t stride[TL_MAX_NDIM];
    int axis = tl_axis_normal(attr->axis, full->ndim);
    tl_shape_contiguous(full, stride);
    stride[full->ndim] = stride[axis];
    if (gout[0]->shape.dim[axis].size > 1)
        stride[axis] *= attr->step;
    gin[0] = tl_strided_gradient(gout[0], full, stride, 0, saved->site);
    return tl_ctx_status(ctx);
}

static void unfold_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 3), 1 + tl_sample_below(&seed, 9), 1 + tl_sample_below(&seed, 3)};
    unfold_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = (int)tl_sample_below(&seed, 6) - 3;
    attr.step = 1 + tl_sample_below(&seed, 4);
    attr.size = tl_dim_of(1 + tl_sample_below(&seed, size[tl_axis_normal(attr.axis, 3)]));
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(unfold, sizeof(unfold_attr), unfold_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, unfold_grad,
      unfold_sample);

tl_tensor *tl_unfold_(tl_tensor *x, int axis, tl_dim size, int64_t step, const char *site) {
    unfold_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = axis;
    attr.step = step;
    attr.size = size;
    return tl_run1(&tl_op_unfold, (tl_tensor *[]){x}, 1, &attr, site);
}
