/* Shared declarations of reductions. */
#include "op/reduce.h"
#include "op/views.h"

#include <string.h>

/* Bit i: axis i is reduced. Axes were checked by infer. */
static unsigned reduced_axes(const tl_reduce_attr *attr, int ndim) {
    unsigned mask = 0;
    if (attr->n == 0)
        return (1u << ndim) - 1u;
    for (int i = 0; i < attr->n; i++)
        mask |= 1u << tl_axis_normal(attr->axes[i], ndim);
    return mask;
}

int64_t tl_reduce_count(const tl_reduce_attr *attr, const tl_shape *shape) {
    unsigned mask = reduced_axes(attr, shape->ndim);
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++)
        if (mask >> i & 1u)
            count *= shape->dim[i].size; /* a factor of the element count, which fits */
    return count;
}

tl_status tl_reduce_infer(tl_sig *sig, int64_t *reduced) {
    const tl_reduce_attr *attr = TL_ATTR(tl_reduce_attr, sig);
    const tl_shape *in = &sig->in[0]->shape;
    unsigned seen = 0;
    for (int i = 0; i < attr->n; i++) {
        int axis = 0;
        tl_status status = tl_sig_axis(sig, 0, attr->axes[i], &axis);
        if (status != TL_OK)
            return status;
        if (seen >> axis & 1u)
            return tl_sig_fail(sig, TL_ERR_SHAPE, "axis %d is named twice", axis);
        seen |= 1u << axis;
    }
    unsigned mask = reduced_axes(attr, in->ndim);
    tl_shape shape = {0};
    for (int i = 0; i < in->ndim; i++)
        if (!(mask >> i & 1u))
            shape.dim[shape.ndim++] = in->dim[i];
        else if (attr->keep)
            shape.dim[shape.ndim++] = tl_dim_fixed(sig->ctx, tl_dim_of(1));
    *reduced = tl_reduce_count(attr, in);
    tl_sig_add(sig, sig->in[0]->dtype, &shape);
    return TL_OK;
}

tl_status tl_reduce_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel) {
    const tl_reduce_attr *attr = TL_ATTR(tl_reduce_attr, sig);
    const tl_array *in = &args->call.in[0];
    tl_array *out = &args->call.out[0], kept = *out;
    unsigned mask = reduced_axes(attr, in->ndim);
    kept.ndim = in->ndim;
    for (int i = 0, at = 0; i < in->ndim; i++) {
        bool gone = mask >> i & 1u;
        kept.size[i] = gone ? 1 : in->size[i];
        kept.stride[i] = gone ? 0 : out->stride[at];
        at += !gone || attr->keep;
    }
    *out = kept;
    args->call.attr = NULL;
    return tl_args_run(sig, args, kernel);
}

tl_tensor *tl_reduce_kept(const tl_saved *saved, tl_tensor *g) {
    const tl_reduce_attr *attr = tl_saved_attr(saved);
    tl_shape kept = *tl_saved_shape(saved, 0);
    unsigned mask = reduced_axes(attr, kept.ndim);
    for (int i = 0; i < kept.ndim; i++)
        if (mask >> i & 1u)
            kept.dim[i] = tl_dim_of(1);
    return attr->keep ? g : tl_reshape_(g, kept, saved->site);
}

tl_tensor *tl_reduce_spread(const tl_saved *saved, tl_tensor *g) {
    return tl_expand_(tl_reduce_kept(saved, g), *tl_saved_shape(saved, 0), saved->site);
}

void tl_reduce_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 70)};
    tl_reduce_attr attr = {.keep = tl_sample_below(&seed, 2) != 0};
    unsigned mask = (unsigned)tl_sample_below(&seed, 8); /* 0: all axes */
    for (int i = 0; i < 3; i++)
        if (mask >> i & 1u)
            attr.axes[attr.n++] = tl_sample_below(&seed, 2) ? i : i - 3;
    if (mask && mask != 7 && tl_sample_below(&seed, 4) == 0)
        for (int i = 0; i < 3; i++)
            if (!(mask >> i & 1u))
                size[i] = 0; /* nothing in, nothing out */
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

tl_tensor *tl_reduce_call(const tl_op *op, tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    tl_reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.keep = keep;
    if (!x)
        return NULL;
    if (n < 0 || n > TL_MAX_NDIM) {
        tl_ctx_fail(x->ctx, TL_ERR_ARGUMENT, "%s (%s): %d axes; 0 (all) to %d would work", op->name, site, n,
                    TL_MAX_NDIM);
        return NULL;
    }
    attr.n = n;
    for (int i = 0; i < n; i++)
        attr.axes[i] = axes[i];
    return tl_run1(op, (tl_tensor *[]){x}, 1, &attr, site);
}

tl_status tl_reduce_float_infer(tl_sig *sig) {
    int64_t reduced;
    tl_status status = tl_sig_want_float(sig, 0);
    return status == TL_OK ? tl_reduce_infer(sig, &reduced) : status;
}

tl_status tl_reduce_wide_infer(tl_sig *sig) {
    int64_t reduced;
    tl_status status = tl_reduce_infer(sig, &reduced);
    if (status == TL_OK && !tl_dtype_is_float(sig->in[0]->dtype))
        sig->out[0].dtype = TL_I64;
    return status;
}

tl_status tl_reduce_extreme_infer(tl_sig *sig) {
    int64_t reduced, count;
    char text[200];
    tl_status status = tl_reduce_infer(sig, &reduced);
    if (status != TL_OK)
        return status;
    tl_shape_count(&sig->out[0].shape, &count);
    if (reduced == 0 && count > 0 && !tl_dtype_is_float(sig->in[0]->dtype))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the %s of no elements was asked of %s; at least one is needed",
                           sig->op->name, tl_tensor_text(sig->in[0], text, sizeof text));
    return TL_OK;
}

void tl_reduce_saves_both(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = saves->out = 1;
}

tl_status tl_reduce_extreme_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const tl_reduce_attr *attr = tl_saved_attr(saved);
    const char *site = saved->site;
    tl_tensor *y = tl_reduce_spread(saved, tl_saved_out(saved, 0));
    tl_tensor *equal = tl_equal_(tl_saved_in(saved, 0), y, site);
    tl_tensor *taken = tl_cast_(equal, tl_saved_dtype(saved, 0), site);
    tl_release(equal);
    tl_tensor *share = tl_div_(gout[0], tl_sum_(taken, attr->axes, attr->n, attr->keep, site), site);
    gin[0] = tl_mul_(taken, tl_reduce_spread(saved, share), site);
    return tl_ctx_status(ctx);
}

tl_status tl_reduce_backward_infer(tl_sig *sig) {
    char a[200], b[200];
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        status = tl_sig_want_same_dtype(sig);
    if (status != TL_OK)
        return status;
    for (int i = 1; i < 3; i++)
        if (!tl_shape_equal(&sig->in[0]->shape, &sig->in[i]->shape))
            return tl_sig_fail(sig, TL_ERR_SHAPE, "%s and %s must have the same shape",
                               tl_tensor_text(sig->in[0], a, sizeof a), tl_tensor_text(sig->in[i], b, sizeof b));
    tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return TL_OK;
}

void tl_reduce_backward_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 19)};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    c->n_out = 1;
    c->tolerance = 1e-5;
}
