/* (q − zero)·scale. What was quantised has no gradient; the scale has Σ g·(q − zero) over where it holds. */
#include "op/quantize.h"

#include <string.h>

static tl_status dequantize_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_scale(sig);
    if (status != TL_OK)
        return status;
    if (sig->in[0]->dtype == TL_BOOL || sig->in[0]->dtype == TL_I64)
        return tl_sig_fail(sig, TL_ERR_DTYPE,
                           "%s is not what tensors are quantised to; i8, u8, i16, u16, i32 or float8",
                           tl_dtype_name(sig->in[0]->dtype));
    if (sig->n_in > 2 && sig->in[2]->dtype != sig->in[0]->dtype)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the zero point is %s; %s, as what was quantised, would work",
                           tl_dtype_name(sig->in[2]->dtype), tl_dtype_name(sig->in[0]->dtype));
    if (sig->needs_grad[0])
        return tl_sig_fail(sig, TL_ERR_UNSUPPORTED, "what is quantised has no gradient; stop asking it for one");
    tl_sig_add(sig, sig->in[1]->dtype, &sig->in[0]->shape);
    return TL_OK;
}

static void dequantize_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, sig->n_in > 2 ? 2 : 1, &sig->in[0]->shape);
}

static void dequantize_saves(const tl_sig *sig, tl_saves *saves) { saves->in = sig->n_in > 2 ? 5 : 1; }

static tl_status dequantize_forward(const tl_sig *sig, tl_args *args) {
    tl_quantize_attr attr = {.has_zero = sig->n_in > 2};
    tl_quantize_spread(sig, args);
    args->call.attr = &attr;
    return tl_args_run(sig, args, args->kernels->dequantize);
}

/* d summed to where each element of the scale holds. */
static tl_tensor *summed(tl_tensor *d, const tl_shape *scale, const quantize_attr *attr, const char *site) {
    int axes[TL_MAX_NDIM], n = 0;
    if (!d)
        return NULL;
    int ndim = d->shape.ndim, axis = tl_axis_normal(attr->axis, ndim);
    if (attr->block) {
        tl_shape split = d->shape;
        for (int i = split.ndim++; i > axis; i--)
            split.dim[i] = split.dim[i - 1];
        split.dim[axis] = scale->dim[axis];
        split.dim[axis + 1] = tl_dim_of(attr->block);
        return tl_sum_(tl_view_(d, split, site), (int[]){axis + 1}, 1, false, site);
    }
    for (int i = 0; i < ndim; i++)
        if (i != axis)
            axes[n++] = i;
    bool each = scale->ndim == 1 && scale->dim[0].size != 1;
    if (each && n == 0)
        return d;
    return tl_reshape_(each ? tl_sum_(d, axes, n, false, site) : tl_sum_(d, NULL, 0, false, site), *scale, site);
}

static tl_status dequantize_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const quantize_attr *attr = tl_saved_attr(saved);
    const tl_shape *scale = tl_saved_shape(saved, 1);
    const char *site = saved->site;
    tl_shape ones = {.ndim = scale->ndim};
    for (int d = 0; d < ones.ndim; d++)
        ones.dim[d] = tl_dim_of(1);
    tl_tensor *one = tl_fill_(tl_empty(ctx, tl_saved_dtype(saved, 1), ones, TL_WORK), 1, site);
    tl_quantize_options options = {attr->axis, attr->block, false};
    tl_tensor *levels = tl_dequantize_(tl_saved_in(saved, 0), tl_expand_(one, *scale, site),
                                       saved->n_in > 2 ? tl_saved_in(saved, 2) : NULL, &options, site);
    gin[1] = summed(tl_mul_(gout[0], levels, site), scale, attr, site);
    return tl_ctx_status(ctx);
}

static void dequantize_sample(uint64_t seed, tl_case *c) {
    static const tl_dtype from[] = {TL_I8, TL_U8, TL_I16, TL_U16, TL_I32};
    int64_t size[3] = {1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 6), tl_sample_below(&seed, 20)};
    quantize_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = from[tl_sample_below(&seed, 5)];
    tl_sample_input(c, attr.dtype, TL_FILL_INDEX, 3, size);
    c->in[0].limit = 100;
    tl_quantize_sample(&seed, c, &attr, size, attr.dtype);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(dequantize, sizeof(quantize_attr), dequantize_infer, dequantize_cost, dequantize_saves, dequantize_forward,
      dequantize_grad, dequantize_sample);

tl_tensor *tl_dequantize_(tl_tensor *q, tl_tensor *scale, tl_tensor *zero, const tl_quantize_options *options,
                          const char *site) {
    quantize_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = q ? q->dtype : TL_I8;
    attr.axis = options->axis;
    attr.block = options->block;
    return tl_run1(&tl_op_dequantize, (tl_tensor *[]){q, scale, zero}, zero ? 3 : 2, &attr, site);
}
