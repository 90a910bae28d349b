/* RMS norm over the last axis (Zhang & Sennrich 2019, eq. 4): y = x/√(mean(x²) + ε)·gain; or ·(offset + gain), where the
 * sum is of the compute type and the product is rounded once (Gemma Team 2024; Hugging Face's GemmaRMSNorm). */
#include "op/rows.h"

#include <string.h>

static tl_status rms_norm_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 1)) || (status = tl_sig_want_float(sig, 0)) ||
        (status = tl_sig_want_same_dtype(sig)) ||
        (status = tl_sig_want_vector(sig, 1, tl_in_dim(sig, 0, -1), "the gain")))
        return status;
    const tl_tensor *x = sig->in[0];
    tl_sig_add(sig, x->dtype, &x->shape);
    if (sig->recording) {
        tl_shape rows = tl_shape_leading(&x->shape);
        tl_sig_add(sig, tl_statistic_dtype(x->dtype), &rows)->hidden = true; /* 1/rms */
    }
    return TL_OK;
}

static void rms_norm_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[0]->shape;
    /* An element: its square and Σ 2, ·1/rms·gain 2. A row: ÷ D, + ε, √ and its inverse. */
    cost->arithmetic = tl_amount_shape(sig->ctx, 4, x);
    tl_amount_more(sig->ctx, &cost->arithmetic, 4, x->dim, x->ndim - 1);
    if (TL_ATTR(tl_norm_attr, sig)->gain_offset != 0) /* offset + gain */
        tl_amount_more(sig->ctx, &cost->arithmetic, 1, &x->dim[x->ndim - 1], 1);
}

static void rms_norm_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 3;
    saves->out = 2;
}

static tl_status rms_norm_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->rms_norm);
}

/* in: x, gain, 1/rms, gradient */
static tl_status backward_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 1)) || (status = tl_sig_want_float(sig, 0)))
        return status;
    tl_shape rows = tl_shape_leading(&sig->in[0]->shape);
    if ((status = tl_sig_want_vector(sig, 1, tl_in_dim(sig, 0, -1), "the gain")) ||
        (status = tl_sig_want_shape(sig, 2, &rows, "1/rms")) ||
        (status = tl_sig_want_shape(sig, 3, &sig->in[0]->shape, "the gradient")))
        return status;
    tl_norm_backward_outputs(sig);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[0]->shape;
    uint32_t wanted = TL_ATTR(tl_norm_backward_attr, sig)->wanted;
    /* x̂ = x/rms 1, once. dx = 1/rms·(h − x̂·Σ(h·x̂)/D) with h = g·gain: h 1, h·x̂ 1, Σ 1, the rest 3; a row divides once.
     * dgain += g·x̂ 2. */
    int64_t each = 1 + (wanted & TL_NORM_DX ? 6 : 0) + (wanted & TL_NORM_DGAIN ? 2 : 0);
    cost->arithmetic = tl_amount_shape(sig->ctx, each, x);
    if (wanted & TL_NORM_DX)
        tl_amount_more(sig->ctx, &cost->arithmetic, 1, x->dim, x->ndim - 1);
    if (wanted & TL_NORM_DX && TL_ATTR(tl_norm_backward_attr, sig)->norm.gain_offset != 0)
        tl_amount_more(sig->ctx, &cost->arithmetic, 1, &x->dim[x->ndim - 1], 1);
    cost->workspace = tl_norm_workspace(sig, 1);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_norm_backward_run(sig, args, 2, args->kernels->rms_norm_backward);
}

static void sample_shape(uint64_t *seed, int64_t size[3]) {
    size[0] = 1 + tl_sample_below(seed, 3);
    size[1] = tl_sample_below(seed, 70);
    size[2] = 1 + tl_sample_below(seed, 33);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    tl_norm_backward_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.norm.epsilon = 1e-5;
    attr.norm.gain_offset = tl_sample_below(&seed, 3) == 0;
    attr.wanted = 1 + (uint32_t)tl_sample_below(&seed, 3);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &size[2]);
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 2, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = attr.wanted == 3 ? 2 : 1;
    c->tolerance = 1e-5;
}

TL_OP(rms_norm_backward, sizeof(tl_norm_backward_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status rms_norm_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_norm_backward_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.norm = *(const tl_norm_attr *)tl_saved_attr(saved);
    attr.wanted = (tl_saved_needs(saved, 0) ? TL_NORM_DX : 0u) | (tl_saved_needs(saved, 1) ? TL_NORM_DGAIN : 0u);
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_saved_in(saved, 1), tl_saved_out(saved, 1), gout[0]}, *out[2];
    int count = attr.wanted == 3 ? 2 : 1;
    tl_status status = tl_run(ctx, &tl_op_rms_norm_backward, in, 4, &attr, out, count, saved->site);
    if (attr.wanted & TL_NORM_DX)
        gin[0] = out[0];
    if (attr.wanted & TL_NORM_DGAIN)
        gin[1] = out[count - 1];
    return status;
}

static void rms_norm_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    tl_norm_attr attr = {1e-6, tl_sample_below(&seed, 3) == 0};
    if (tl_sample_below(&seed, 4) == 0)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &size[2]);
    else
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &size[2]);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(rms_norm, sizeof(tl_norm_attr), rms_norm_infer, rms_norm_cost, rms_norm_saves, rms_norm_forward, rms_norm_grad,
      rms_norm_sample);

tl_tensor *tl_rms_norm_(tl_tensor *x, tl_tensor *gain, double epsilon, const char *site) {
    return tl_rms_norm_offset_(x, gain, 0, epsilon, site);
}

tl_tensor *tl_rms_norm_offset_(tl_tensor *x, tl_tensor *gain, double offset, double epsilon, const char *site) {
    tl_norm_attr attr = {epsilon, offset};
    return tl_run1(&tl_op_rms_norm, (tl_tensor *[]){x, gain}, 2, &attr, site);
}
