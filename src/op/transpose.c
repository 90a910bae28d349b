/* Two axes change places. */
#include "op/views.h"

#include <string.h>

typedef struct transpose_attr {
    int a, b;
} transpose_attr;

static tl_status transpose_infer(tl_sig *sig) {
    const transpose_attr *attr = TL_ATTR(transpose_attr, sig);
    const tl_tensor *t = sig->in[0];
    int a = 0, b = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->a, &a);
    if (status == TL_OK)
        status = tl_sig_axis(sig, 0, attr->b, &b);
    if (status != TL_OK)
        return status;
    tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    out->shape.dim[a] = t->shape.dim[b];
    out->shape.dim[b] = t->shape.dim[a];
    out->stride[a] = t->stride[b];
    out->stride[b] = t->stride[a];
    return TL_OK;
}

static tl_status transpose_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const transpose_attr *attr = tl_saved_attr(saved);
    gin[0] = tl_transpose_(gout[0], attr->a, attr->b, saved->site);
    return tl_ctx_status(ctx);
}

static void transpose_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 5)};
    transpose_attr attr = {(int)tl_sample_below(&seed, 6) - 3, (int)tl_sample_below(&seed, 6) - 3};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(transpose, sizeof(transpose_attr), transpose_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, transpose_grad,
      transpose_sample);

tl_tensor *tl_transpose_(tl_tensor *x, int axis_a, int axis_b, const char *site) {
    transpose_attr attr = {axis_a, axis_b};
    return tl_run1(&tl_op_transpose, (tl_tensor *[]){x}, 1, &attr, site);
}
