/* A diagonal of two axes as the last axis: its stride is the sum of theirs. */
#include "op/views.h"

#include <string.h>

typedef struct diagonal_attr {
    int64_t offset;
    int a, b;
} diagonal_attr;

/* dim − less where that is not below 0; else 0. */
static tl_dim shortened(tl_ctx *ctx, tl_dim dim, int64_t less) {
    if (less == 0)
        return dim;
    if (less >= dim.size)
        return tl_dim_fixed(ctx, tl_dim_of(0));
    tl_dim rest = {.size = dim.size - less, .axis = dim.axis};
    if (ctx->space)
        rest.formula = tl_poly_sub(ctx->space, tl_dim_fixed(ctx, dim).formula, tl_poly_constant(ctx->space, less));
    return rest;
}

static tl_status diagonal_infer(tl_sig *sig) {
    const diagonal_attr *attr = TL_ATTR(diagonal_attr, sig);
    const tl_tensor *t = sig->in[0];
    int a = 0, b = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->a, &a);
    if (status == TL_OK)
        status = tl_sig_axis(sig, 0, attr->b, &b);
    if (status != TL_OK)
        return status;
    if (a == b)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "a diagonal of axis %d with itself; two axes are needed", a);
    if (attr->offset == INT64_MIN)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "an offset of -2^63");
    int64_t down = attr->offset < 0 ? -attr->offset : 0, right = attr->offset > 0 ? attr->offset : 0;
    tl_dim rows = shortened(sig->ctx, t->shape.dim[a], down), columns = shortened(sig->ctx, t->shape.dim[b], right);
    if (rows.size == columns.size)
        tl_dim_assume_equal(sig->ctx, rows, columns);
    tl_dim dim = columns.size < rows.size ? columns : rows;
    tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    tl_output_drop_axis(out, a > b ? a : b);
    tl_output_drop_axis(out, a > b ? b : a);
    out->shape.dim[out->shape.ndim] = dim;
    out->stride[out->shape.ndim++] = t->stride[a] + t->stride[b];
    if (dim.size > 0)
        out->offset += down * t->stride[a] + right * t->stride[b];
    return TL_OK;
}

static tl_status diagonal_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const diagonal_attr *attr = tl_saved_attr(saved);
    const tl_shape *full = tl_saved_shape(saved, 0);
    int a = tl_axis_normal(attr->a, full->ndim), b = tl_axis_normal(attr->b, full->ndim), n = 0;
    int64_t whole[TL_MAX_NDIM], stride[TL_MAX_NDIM], count = tl_tensor_count(gout[0]);
    tl_shape_contiguous(full, whole);
    for (int i = 0; i < full->ndim; i++)
        if (i != a && i != b)
            stride[n++] = whole[i];
    stride[n] = whole[a] + whole[b];
    int64_t first = attr->offset < 0 ? -attr->offset * whole[a] : attr->offset * whole[b];
    gin[0] = tl_strided_gradient(gout[0], full, stride, count ? first : 0, saved->site);
    return tl_ctx_status(ctx);
}

static void diagonal_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 5)};
    diagonal_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.offset = tl_sample_below(&seed, 7) - 3; /* sometimes outside: no elements */
    attr.a = (int)tl_sample_below(&seed, 3);
    attr.b = (attr.a + 1 + (int)tl_sample_below(&seed, 2)) % 3 - 3;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(diagonal, sizeof(diagonal_attr), diagonal_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, diagonal_grad,
      diagonal_sample);

tl_tensor *tl_diagonal_(tl_tensor *x, int64_t offset, int axis_a, int axis_b, const char *site) {
    diagonal_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.offset = offset;
    attr.a = axis_a;
    attr.b = axis_b;
    return tl_run1(&tl_op_diagonal, (tl_tensor *[]){x}, 1, &attr, site);
}
