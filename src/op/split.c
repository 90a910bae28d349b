/* Several views of one axis, in one op: the gradient is one concat, where slices would make a tensor of zeros each. */
#include "op/views.h"

#include <string.h>

typedef struct split_attr {
    int axis, n;
    tl_dim size[TL_MAX_IO];
} split_attr;

static tl_status split_infer(tl_sig *sig) {
    const split_attr *attr = TL_ATTR(split_attr, sig);
    const tl_tensor *t = sig->in[0];
    char text[200];
    int axis = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->axis, &axis);
    if (status != TL_OK)
        return status;
    tl_dim whole = t->shape.dim[axis], sum = tl_dim_of(0);
    int64_t offset = t->offset;
    for (int i = 0; i < attr->n; i++) {
        tl_dim size = tl_dim_fixed(sig->ctx, attr->size[i]);
        if (size.size < 0)
            return tl_sig_fail(sig, TL_ERR_SHAPE, "size %lld of piece %d is negative", (long long)size.size, i);
        sum = i ? tl_dim_add(sig->ctx, sum, size) : size;
        if (sum.size > whole.size)
            break;
        tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, size.size ? offset : t->offset);
        if (!size.axis)
            size.axis = whole.axis;
        out->shape.dim[axis] = size;
        offset += size.size * t->stride[axis];
    }
    if (sum.size != whole.size)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the %d pieces do not add up to the %lld of axis %d%s%s of %s", attr->n,
                           (long long)whole.size, axis, whole.axis ? " " : "", whole.axis ? whole.axis : "",
                           tl_tensor_text(t, text, sizeof text));
    tl_dim_assume_equal(sig->ctx, whole, sum);
    return tl_ctx_status(sig->ctx);
}

/* A piece that nothing was computed from has no gradient: zeros. */
static tl_status split_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const split_attr *attr = tl_saved_attr(saved);
    tl_shape shape = *tl_saved_shape(saved, 0);
    int axis = tl_axis_normal(attr->axis, shape.ndim);
    tl_tensor *piece[TL_MAX_IO];
    for (int i = 0; i < attr->n; i++) {
        shape.dim[axis] = tl_dim_fixed(ctx, attr->size[i]);
        piece[i] = gout[i] ? gout[i] : tl_zeros_of(ctx, tl_saved_dtype(saved, 0), &shape, saved->site);
    }
    gin[0] = tl_concat_(piece, attr->n, axis, saved->site);
    if (gin[0]) /* the pieces' sum was found to be this */
        gin[0]->shape.dim[axis] = tl_saved_shape(saved, 0)->dim[axis];
    for (int i = 0; i < attr->n; i++)
        if (!gout[i])
            tl_release(piece[i]);
    return tl_ctx_status(ctx);
}

static void split_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 3), 0, 1 + tl_sample_below(&seed, 4)};
    split_attr attr = {.axis = 1, .n = 1 + (int)tl_sample_below(&seed, 4)};
    for (int i = 0; i < attr.n; i++) {
        attr.size[i] = tl_dim_of(tl_sample_below(&seed, 4));
        size[1] += attr.size[i].size;
    }
    if (tl_sample_below(&seed, 2)) {
        int64_t swap = size[2];
        size[2] = size[1];
        size[1] = swap;
        attr.axis = -1;
    }
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = attr.n;
}

TL_OP(split, sizeof(split_attr), split_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, split_grad, split_sample);

tl_status tl_split_(tl_tensor *x, int axis, const tl_dim *sizes, int n, tl_tensor *out[], const char *site) {
    split_attr attr = {.axis = axis, .n = n};
    for (int i = 0; i < n; i++)
        out[i] = NULL;
    if (!x)
        return TL_ERR_ARGUMENT;
    if (n < 1 || n > TL_MAX_IO)
        return tl_ctx_fail(x->ctx, TL_ERR_ARGUMENT, "split (%s): %d pieces; 1 to %d would work", site, n, TL_MAX_IO);
    for (int i = 0; i < n; i++)
        attr.size[i] = sizes[i];
    return tl_run(x->ctx, &tl_op_split, (tl_tensor *[]){x}, 1, &attr, out, n, site);
}
