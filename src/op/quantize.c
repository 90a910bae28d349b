/* saturate(round(x ÷ scale) + zero): to integers or float8. */
#include "op/quantize.h"

#include <string.h>

static bool per_tensor(const tl_shape *scale) {
    int64_t count = 0;
    return scale->ndim <= 1 && tl_shape_count(scale, &count) && count == 1;
}

static bool blocked_fits(const tl_sig *sig, const tl_shape *x, const tl_shape *scale, int axis, int64_t block) {
    int64_t whole = 0;
    bool fits = scale->ndim == x->ndim && tl_mul_i64(scale->dim[axis].size, block, &whole) &&
                whole == x->dim[axis].size && x->ndim < TL_MAX_NDIM;
    for (int d = 0; fits && d < x->ndim; d++)
        fits = d == axis || tl_dim_match(sig->ctx, scale->dim[d], x->dim[d]);
    return fits;
}

tl_status tl_sig_want_scale(tl_sig *sig) {
    const quantize_attr *attr = TL_ATTR(quantize_attr, sig);
    const tl_shape *x = &sig->in[0]->shape, *scale = &sig->in[1]->shape;
    char a[200], b[200];
    tl_status status = tl_sig_want_float(sig, 1);
    int axis = 0;
    if (status != TL_OK)
        return status;
    if (attr->block < 0)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "blocks of %lld elements; 0 (none) or more would work",
                           (long long)attr->block);
    if (attr->block || !per_tensor(scale)) {
        if ((status = tl_sig_axis(sig, 0, attr->axis, &axis)))
            return status;
        bool fits = attr->block ? blocked_fits(sig, x, scale, axis, attr->block)
                                : scale->ndim == 1 && tl_dim_match(sig->ctx, scale->dim[0], x->dim[axis]);
        if (!fits)
            return tl_sig_fail(
                sig, TL_ERR_SHAPE,
                "the scale is %s for %s, axis %d, blocks of %lld: one element, one for each of the axis, or "
                "with blocks one for each block would work",
                tl_tensor_text(sig->in[1], a, sizeof a), tl_tensor_text(sig->in[0], b, sizeof b), axis,
                (long long)attr->block);
    }
    return sig->n_in > 2 ? tl_sig_want_shape(sig, 2, scale, "the zero point") : TL_OK;
}

static void split_axis(tl_array *a, int axis, int64_t block) {
    for (int d = a->ndim++; d > axis; d--) {
        a->size[d] = a->size[d - 1];
        a->stride[d] = a->stride[d - 1];
    }
    a->size[axis] /= block;
    a->stride[axis] *= block;
    a->size[axis + 1] = block;
    a->stride[axis + 1] = a->stride[axis] / block;
}

/* A scale's or zero point's array at the sizes of x. */
static void spread(tl_array *a, const tl_array *x, int axis, int64_t block) {
    tl_array wide = *x;
    bool one = a->ndim == 0 || (a->ndim == 1 && a->size[0] == 1);
    wide.data = a->data;
    wide.dtype = a->dtype;
    for (int d = 0; d < x->ndim; d++) {
        if (block)
            wide.stride[d] = d == axis + 1 ? 0 : a->stride[d > axis ? d - 1 : d];
        else
            wide.stride[d] = d == axis && !one ? a->stride[0] : 0;
    }
    *a = wide;
}

void tl_quantize_spread(const tl_sig *sig, tl_args *args) {
    const quantize_attr *attr = TL_ATTR(quantize_attr, sig);
    int axis = tl_axis_normal(attr->axis, sig->in[0]->shape.ndim);
    if (attr->block) {
        split_axis(&args->call.in[0], axis, attr->block);
        split_axis(&args->call.out[0], axis, attr->block);
    }
    for (int i = 1; i < sig->n_in; i++)
        spread(&args->call.in[i], &args->call.in[0], axis, attr->block);
}

static bool quantizes_to(tl_dtype dtype) {
    switch (dtype) {
    case TL_I8:
    case TL_U8:
    case TL_I16:
    case TL_U16:
    case TL_I32:
    case TL_F8E4M3:
    case TL_F8E5M2:
        return true;
    default:
        return false;
    }
}

static tl_status quantize_infer(tl_sig *sig) {
    tl_dtype dtype = TL_ATTR(quantize_attr, sig)->dtype;
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = tl_sig_want_scale(sig)))
        return status;
    if (!quantizes_to(dtype))
        return tl_sig_fail(sig, TL_ERR_DTYPE, "quantised to %s; i8, u8, i16, u16, i32, f8e4m3 or f8e5m2 would work",
                           tl_dtype_name(dtype));
    if (sig->n_in > 2 && sig->in[2]->dtype != dtype)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the zero point is %s; %s, as the result, would work",
                           tl_dtype_name(sig->in[2]->dtype), tl_dtype_name(dtype));
    tl_sig_add(sig, dtype, &sig->in[0]->shape);
    return TL_OK;
}

static void quantize_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, sig->n_in > 2 ? 2 : 1, &sig->in[0]->shape); /* ÷ and + zero */
}

static tl_status quantize_forward(const tl_sig *sig, tl_args *args) {
    const quantize_attr *attr = TL_ATTR(quantize_attr, sig);
    const tl_finfo *f = tl_dtype_finfo(attr->dtype);
    const tl_iinfo *i = tl_dtype_iinfo(attr->dtype);
    tl_quantize_attr range = {.lowest = f ? -f->largest : (double)i->least,
                              .highest = f ? f->largest : (double)i->most,
                              .saturate = !f || !attr->overflows,
                              .floating = f != NULL,
                              .has_zero = sig->n_in > 2};
    tl_quantize_spread(sig, args);
    args->call.attr = &range;
    return tl_args_run(sig, args, args->kernels->quantize);
}

void tl_quantize_sample(uint64_t *seed, tl_case *c, quantize_attr *attr, const int64_t size[3], tl_dtype zero) {
    int64_t scale[3] = {size[0], size[1], size[2]};
    int axis = (int)tl_sample_below(seed, 3), ndim = 3, form = (int)tl_sample_below(seed, 3);
    attr->axis = axis - (tl_sample_below(seed, 2) ? 3 : 0);
    if (form == 0)
        ndim = 0;
    else if (form == 1) {
        scale[0] = size[axis];
        ndim = 1;
    } else {
        attr->block = size[axis] % 2 ? 1 : 2;
        scale[axis] /= attr->block;
    }
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, ndim, scale);
    if (tl_sample_below(seed, 2)) {
        tl_sample_input(c, zero, TL_FILL_INDEX, ndim, scale);
        c->in[2].limit = 5;
        c->in[2].fixed_dtype = true;
    }
}

static void quantize_sample(uint64_t seed, tl_case *c) {
    static const tl_dtype to[] = {TL_I8, TL_U8, TL_I16, TL_U16, TL_I32, TL_F8E4M3, TL_F8E5M2};
    int64_t size[3] = {1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 6), tl_sample_below(&seed, 20)};
    quantize_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = to[tl_sample_below(&seed, 7)];
    attr.overflows = tl_sample_below(&seed, 2);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_quantize_sample(&seed, c, &attr, size, attr.dtype);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(quantize, sizeof(quantize_attr), quantize_infer, quantize_cost, TL_SAVES_NONE, quantize_forward, TL_NO_GRAD,
      quantize_sample);

tl_tensor *tl_quantize_(tl_tensor *x, tl_tensor *scale, tl_tensor *zero, tl_dtype dtype,
                        const tl_quantize_options *options, const char *site) {
    quantize_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    attr.axis = options->axis;
    attr.block = options->block;
    attr.overflows = options->overflows;
    return tl_run1(&tl_op_quantize, (tl_tensor *[]){x, scale, zero}, zero ? 3 : 2, &attr, site);
}
