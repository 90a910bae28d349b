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

tl_tensor *tl_reduce_spread(const tl_saved *saved, tl_tensor *g) {
    const tl_reduce_attr *attr = tl_saved_attr(saved);
    const tl_shape *in = tl_saved_shape(saved, 0);
    tl_shape kept = *in;
    unsigned mask = reduced_axes(attr, in->ndim);
    for (int i = 0; i < in->ndim; i++)
        if (mask >> i & 1u)
            kept.dim[i] = tl_dim_of(1);
    return tl_expand_(attr->keep ? g : tl_reshape_(g, kept, saved->site), *in, saved->site);
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
