/* All axes in a new order. */
#include "op/views.h"

#include <string.h>

typedef struct permute_attr {
    int axes[TL_MAX_NDIM];
} permute_attr;

static tl_status permute_infer(tl_sig *sig) {
    const permute_attr *attr = TL_ATTR(permute_attr, sig);
    const tl_tensor *t = sig->in[0];
    tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    unsigned seen = 0;
    for (int i = 0; i < t->shape.ndim; i++) {
        int from = 0;
        tl_status status = tl_sig_axis(sig, 0, attr->axes[i], &from);
        if (status != TL_OK)
            return status;
        if (seen >> from & 1u)
            return tl_sig_fail(sig, TL_ERR_SHAPE, "axis %d is named twice; each of the %d axes must be named once",
                               from, t->shape.ndim);
        seen |= 1u << from;
        out->shape.dim[i] = t->shape.dim[from];
        out->stride[i] = t->stride[from];
    }
    return TL_OK;
}

static tl_status permute_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const permute_attr *attr = tl_saved_attr(saved);
    int ndim = tl_saved_shape(saved, 0)->ndim, back[TL_MAX_NDIM] = {0};
    for (int i = 0; i < ndim; i++)
        back[tl_axis_normal(attr->axes[i], ndim)] = i;
    gin[0] = tl_permute_(gout[0], back, saved->site);
    return tl_ctx_status(ctx);
}

static void permute_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 5),
                      1 + tl_sample_below(&seed, 3)};
    permute_attr attr = {{0, 1, 2, 3}};
    for (int i = 3; i > 0; i--) {
        int j = (int)tl_sample_below(&seed, i + 1), swap = attr.axes[i];
        attr.axes[i] = attr.axes[j];
        attr.axes[j] = swap;
    }
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(permute, sizeof(permute_attr), permute_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, permute_grad,
      permute_sample);

tl_tensor *tl_permute_(tl_tensor *x, const int *axes, const char *site) {
    permute_attr attr = {{0}};
    for (int i = 0; x && i < x->shape.ndim; i++)
        attr.axes[i] = axes[i];
    return tl_run1(&tl_op_permute, (tl_tensor *[]){x}, 1, &attr, site);
}
