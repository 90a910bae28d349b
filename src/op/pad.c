/* Elements added before and after each axis, or cut off. The gradient of a constant padding is the padding undone; that of a
 * repeating one sums what was repeated. */
#include "op/pad.h"

#include <string.h>

tl_status tl_sig_padded(tl_sig *sig, const tl_pad_attr *attr, const tl_shape *full, tl_shape *padded) {
    char text[200];
    *padded = *full;
    for (int d = 0; d < full->ndim; d++) {
        int64_t n = full->dim[d].size, added = 0, size = 0;
        bool fits = tl_add_i64(attr->before[d], attr->after[d], &added) && tl_add_i64(n, added, &size);
        if (!fits || size < 0 || n + attr->before[d] < 0 || n + attr->after[d] < 0)
            return tl_sig_fail(sig, TL_ERR_SHAPE, "axis %d of %s cannot be padded by %lld and %lld elements", d,
                               tl_shape_text(full, text, sizeof text), (long long)attr->before[d],
                               (long long)attr->after[d]);
        if (attr->mode != TL_PAD_CONSTANT && n == 0 && size > 0)
            return tl_sig_fail(sig, TL_ERR_SHAPE,
                               "axis %d of %s has no element to repeat; a constant padding would work", d,
                               tl_shape_text(full, text, sizeof text));
        if (added)
            padded->dim[d] = tl_dim_named(tl_dim_add(sig->ctx, full->dim[d], tl_dim_of(added)), full->dim[d].axis);
    }
    return tl_sig_check_shape(sig, padded);
}

static tl_status pad_infer(tl_sig *sig) {
    tl_shape padded = {0};
    tl_status status = tl_sig_padded(sig, TL_ATTR(tl_pad_attr, sig), &sig->in[0]->shape, &padded);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &padded);
    return status == TL_OK ? tl_ctx_status(sig->ctx) : status;
}

/* The value everywhere, then the part of x that stays over it: two kernels that are there already. */
static tl_status pad_constant(const tl_sig *sig, tl_args *args) {
    const tl_pad_attr *attr = TL_ATTR(tl_pad_attr, sig);
    tl_array *in = &args->call.in[0], *out = &args->call.out[0];
    tl_fill_attr value = {attr->value};
    args->call.attr = &value;
    args->kernels->fill(&args->call);
    args->call.attr = NULL;
    int64_t in_first = 0, out_first = 0, count = 1;
    for (int d = 0; d < in->ndim; d++) {
        int64_t before = attr->before[d], after = attr->after[d], n = in->size[d];
        n += (before < 0 ? before : 0) + (after < 0 ? after : 0);
        if (n <= 0)
            return TL_OK;
        in_first += (before < 0 ? -before : 0) * in->stride[d];
        out_first += (before > 0 ? before : 0) * out->stride[d];
        in->size[d] = out->size[d] = n;
        count *= n;
    }
    if (count == 0 || !in->data)
        return TL_OK;
    in->data += in_first * tl_dtype_bytes(in->dtype);
    out->data += out_first * tl_dtype_bytes(out->dtype);
    return tl_args_run(sig, args, args->kernels->copy);
}

/* No arithmetic. A constant padding writes the value everywhere and then reads and writes what stays of x. */
static void pad_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_pad_attr *attr = TL_ATTR(tl_pad_attr, sig);
    int64_t bytes = tl_dtype_bytes(sig->out[0].dtype);
    tl_shape kept = sig->in[0]->shape;
    if (attr->mode != TL_PAD_CONSTANT)
        return;
    for (int d = 0; d < kept.ndim; d++) {
        int64_t cut = (attr->before[d] < 0 ? attr->before[d] : 0) + (attr->after[d] < 0 ? attr->after[d] : 0);
        if (kept.dim[d].size + cut <= 0)
            kept.dim[d] = tl_dim_fixed(sig->ctx, tl_dim_of(0));
        else if (cut)
            kept.dim[d] = tl_dim_add(sig->ctx, kept.dim[d], tl_dim_of(cut));
    }
    cost->read = tl_amount_shape(sig->ctx, bytes, &kept);
    cost->written = tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, bytes, &sig->out[0].shape), cost->read);
    cost->read_set = cost->written_set = true;
}

static tl_status pad_forward(const tl_sig *sig, tl_args *args) {
    if (TL_ATTR(tl_pad_attr, sig)->mode == TL_PAD_CONSTANT)
        return pad_constant(sig, args);
    return tl_args_run(sig, args, args->kernels->pad);
}

/* The padded tensor's shape is the gradient's; x's travels as an attribute. */
typedef struct pad_backward_attr {
    tl_pad_attr pad; /* first: the kernel reads this much */
    tl_shape full;
} pad_backward_attr;

static tl_status backward_infer(tl_sig *sig) {
    const pad_backward_attr *attr = TL_ATTR(pad_backward_attr, sig);
    tl_shape padded = {0};
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = tl_sig_padded(sig, &attr->pad, &attr->full, &padded)) ||
        (status = tl_sig_want_shape(sig, 0, &padded, "the gradient")))
        return status;
    tl_sig_add(sig, sig->in[0]->dtype, &attr->full);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape); /* each element is added once */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->pad_backward);
}

static void sample_pads(uint64_t *seed, tl_pad_attr *attr, int64_t size[3]) {
    memset(attr, 0, sizeof *attr);
    attr->mode = (tl_pad_mode)tl_sample_below(seed, 4);
    attr->value = 0.5;
    for (int d = 0; d < 3; d++) {
        size[d] = 1 + tl_sample_below(seed, 4);
        attr->before[d] = tl_sample_below(seed, size[d] + 5) - size[d];
        attr->after[d] = tl_sample_below(seed, 6);
        if (attr->before[d] >= 0 && tl_sample_below(seed, 3) == 0)
            attr->after[d] = -tl_sample_below(seed, size[d] + 1);
    }
}

static void backward_sample(uint64_t seed, tl_case *c) {
    pad_backward_attr attr;
    int64_t size[3];
    memset(&attr, 0, sizeof attr);
    sample_pads(&seed, &attr.pad, size);
    if (attr.pad.mode == TL_PAD_CONSTANT)
        attr.pad.mode = TL_PAD_WRAP;
    attr.full.ndim = 3;
    for (int d = 0; d < 3; d++) {
        attr.full.dim[d].size = size[d];
        size[d] += attr.pad.before[d] + attr.pad.after[d];
    }
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(pad_backward, sizeof(pad_backward_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

tl_tensor *tl_pad_backward(tl_tensor *gradient, const tl_pad_attr *attr, const tl_shape *full, const char *site) {
    pad_backward_attr back;
    memset(&back, 0, sizeof back);
    back.pad = *attr;
    back.full = *full;
    return tl_run1(&tl_op_pad_backward, (tl_tensor *[]){gradient}, 1, &back, site);
}

static tl_status pad_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const tl_pad_attr *attr = tl_saved_attr(saved);
    const tl_shape *full = tl_saved_shape(saved, 0);
    if (attr->mode == TL_PAD_CONSTANT) {
        int64_t before[TL_MAX_NDIM], after[TL_MAX_NDIM];
        for (int d = 0; d < full->ndim; d++) {
            before[d] = -attr->before[d];
            after[d] = -attr->after[d];
        }
        gin[0] = tl_pad_(gout[0], before, after, TL_PADDING_CONSTANT, 0, saved->site);
    } else
        gin[0] = tl_pad_backward(gout[0], attr, full, saved->site);
    return tl_ctx_status(ctx);
}

static void pad_sample(uint64_t seed, tl_case *c) {
    tl_pad_attr attr;
    int64_t size[3];
    sample_pads(&seed, &attr, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(pad, sizeof(tl_pad_attr), pad_infer, pad_cost, TL_SAVES_NONE, pad_forward, pad_grad, pad_sample);

tl_tensor *tl_pad_(tl_tensor *x, const int64_t *before, const int64_t *after, tl_padding how, double value,
                   const char *site) {
    tl_pad_attr attr;
    if (!x)
        return NULL;
    memset(&attr, 0, sizeof attr);
    attr.mode = (tl_pad_mode)how;
    attr.value = value;
    for (int d = 0; d < x->shape.ndim; d++) {
        attr.before[d] = before[d];
        attr.after[d] = after[d];
    }
    return tl_run1(&tl_op_pad, (tl_tensor *[]){x}, 1, &attr, site);
}
