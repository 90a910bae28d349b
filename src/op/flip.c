/* Axes backwards: strides change sign and the offset goes to the other end. */
#include "op/views.h"

#include <string.h>

typedef struct flip_attr {
    int axes[TL_MAX_NDIM], n; /* n 0: all */
} flip_attr;

static tl_status flip_infer(tl_sig *sig) {
    const flip_attr *attr = TL_ATTR(flip_attr, sig);
    const tl_tensor *t = sig->in[0];
    tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    unsigned mask = attr->n ? 0 : (1u << t->shape.ndim) - 1u;
    int64_t count;
    for (int i = 0; i < attr->n; i++) {
        int axis = 0;
        tl_status status = tl_sig_axis(sig, 0, attr->axes[i], &axis);
        if (status != TL_OK)
            return status;
        if (mask >> axis & 1u)
            return tl_sig_fail(sig, TL_ERR_SHAPE, "axis %d is named twice; each is turned round once", axis);
        mask |= 1u << axis;
    }
    if (!tl_shape_count(&t->shape, &count) || count == 0)
        return TL_OK; /* nothing to turn round: the offset must not leave the storage */
    for (int i = 0; i < t->shape.ndim; i++)
        if (mask >> i & 1u) {
            out->offset += (t->shape.dim[i].size - 1) * t->stride[i];
            out->stride[i] = t->shape.dim[i].size > 1 ? -t->stride[i] : t->stride[i];
        }
    return TL_OK;
}

static tl_status flip_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const flip_attr *attr = tl_saved_attr(saved);
    gin[0] = tl_flip_(gout[0], attr->axes, attr->n, saved->site);
    return tl_ctx_status(ctx);
}

static void flip_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 5)};
    flip_attr attr;
    memset(&attr, 0, sizeof attr);
    unsigned mask = (unsigned)tl_sample_below(&seed, 8);
    for (int i = 0; i < 3; i++)
        if (mask >> i & 1u)
            attr.axes[attr.n++] = tl_sample_below(&seed, 2) ? i : i - 3;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(flip, sizeof(flip_attr), flip_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, flip_grad, flip_sample);

tl_tensor *tl_flip_(tl_tensor *x, const int *axes, int n, const char *site) {
    flip_attr attr;
    memset(&attr, 0, sizeof attr);
    if (!x)
        return NULL;
    if (n < 0 || n > TL_MAX_NDIM) {
        tl_ctx_fail(x->ctx, TL_ERR_ARGUMENT, "flip (%s): %d axes; 0 (all) to %d would work", site, n, TL_MAX_NDIM);
        return NULL;
    }
    attr.n = n;
    for (int i = 0; i < n; i++)
        attr.axes[i] = axes[i];
    return tl_run1(&tl_op_flip, (tl_tensor *[]){x}, 1, &attr, site);
}
