/* Layer norm over the last axis (Ba, Kiros & Hinton 2016, eq. 4): x̂ = (x − mean)/√(var + ε), y = x̂·gain + bias. */
#include "op/rows.h"

#include <string.h>

static tl_status layer_norm_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 1)) || (status = tl_sig_want_float(sig, 0)) ||
        (status = tl_sig_want_same_dtype(sig)) ||
        (status = tl_sig_want_vector(sig, 1, tl_in_dim(sig, 0, -1), "the gain")))
        return status;
    if (sig->n_in > 2 && (status = tl_sig_want_vector(sig, 2, tl_in_dim(sig, 0, -1), "the bias")))
        return status;
    const tl_tensor *x = sig->in[0];
    tl_sig_add(sig, x->dtype, &x->shape);
    if (sig->recording && (sig->needs_grad[0] || sig->needs_grad[1])) { /* the bias's gradient needs no statistics */
        tl_shape rows = tl_shape_leading(&x->shape);
        tl_dtype dtype = tl_statistic_dtype(x->dtype);
        tl_sig_add(sig, dtype, &rows)->hidden = true; /* mean */
        tl_sig_add(sig, dtype, &rows)->hidden = true; /* 1/√(var + ε) */
    }
    return TL_OK;
}

static void layer_norm_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[0]->shape;
    /* An element: Σx 1; x − mean, its square and Σ 3; the difference again as x̂·rstd·gain 3; + bias 1.
     * A row: two divisions by D, + ε, √ and its inverse. */
    cost->arithmetic = tl_amount_shape(sig->ctx, sig->n_in > 2 ? 8 : 7, x);
    tl_amount_more(sig->ctx, &cost->arithmetic, 5, x->dim, x->ndim - 1);
}

static void layer_norm_saves(const tl_sig *sig, tl_saves *saves) {
    if (sig->n_out > 1) {
        saves->in = 3;
        saves->out = 6;
    }
}

static tl_status layer_norm_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->layer_norm);
}

/* in: x, gain, mean, 1/std, gradient */
static tl_status backward_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 1)) || (status = tl_sig_want_float(sig, 0)))
        return status;
    tl_shape rows = tl_shape_leading(&sig->in[0]->shape);
    if ((status = tl_sig_want_vector(sig, 1, tl_in_dim(sig, 0, -1), "the gain")) ||
        (status = tl_sig_want_shape(sig, 2, &rows, "the mean")) ||
        (status = tl_sig_want_shape(sig, 3, &rows, "1/std")) ||
        (status = tl_sig_want_shape(sig, 4, &sig->in[0]->shape, "the gradient")))
        return status;
    tl_norm_backward_outputs(sig);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[0]->shape;
    uint32_t wanted = TL_ATTR(tl_norm_backward_attr, sig)->wanted;
    /* x̂ 2, once. dx = rstd·(h − Σh/D − x̂·Σ(h·x̂)/D) with h = g·gain: h 1, h·x̂ 1, two sums 2, the rest 4; a row divides
     * twice. dgain += g·x̂ 2. dbias += g 1. What a kernel computes twice to save memory is counted once. */
    int64_t each = (wanted & (TL_NORM_DX | TL_NORM_DGAIN) ? 2 : 0) + (wanted & TL_NORM_DX ? 8 : 0) +
                   (wanted & TL_NORM_DGAIN ? 2 : 0) + (wanted & TL_NORM_DBIAS ? 1 : 0);
    cost->arithmetic = tl_amount_shape(sig->ctx, each, x);
    if (wanted & TL_NORM_DX)
        tl_amount_more(sig->ctx, &cost->arithmetic, 2, x->dim, x->ndim - 1);
    cost->workspace = tl_norm_workspace(sig, 2);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    int n_out = TL_ATTR(tl_norm_backward_attr, sig)->wanted & TL_NORM_DBIAS ? 3 : 2;
    return tl_norm_backward_run(sig, args, n_out, args->kernels->layer_norm_backward);
}

static void sample_shape(uint64_t *seed, int64_t size[3]) {
    size[0] = 1 + tl_sample_below(seed, 3);
    size[1] = tl_sample_below(seed, 70); /* with size[0], on both sides of a block of 64 rows */
    size[2] = 1 + tl_sample_below(seed, 33);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    tl_norm_backward_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.norm.epsilon = 1e-5;
    attr.wanted = 1 + (uint32_t)tl_sample_below(&seed, 7);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &size[2]);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, size);
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 2, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = (int)((attr.wanted & 1) + (attr.wanted >> 1 & 1) + (attr.wanted >> 2 & 1));
    c->tolerance = 1e-5;
}

TL_OP(layer_norm_backward, sizeof(tl_norm_backward_attr), backward_infer, backward_cost, TL_SAVES_NONE,
      backward_forward, TL_NO_GRAD, backward_sample);

static tl_status layer_norm_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    bool bias = saved->n_in > 2 && tl_saved_needs(saved, 2);
    tl_norm_backward_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.norm = *(const tl_norm_attr *)tl_saved_attr(saved);
    attr.wanted = (tl_saved_needs(saved, 0) ? TL_NORM_DX : 0u) | (tl_saved_needs(saved, 1) ? TL_NORM_DGAIN : 0u) |
                  (bias ? TL_NORM_DBIAS : 0u);
    if (attr.wanted == TL_NORM_DBIAS) { /* nothing was saved for it */
        gin[2] = tl_sum_(tl_as_matrix(gout[0], saved->site), (int[]){0}, 1, false, saved->site);
        return tl_ctx_status(ctx);
    }
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_saved_in(saved, 1), tl_saved_out(saved, 1), tl_saved_out(saved, 2),
                       gout[0]};
    tl_tensor *out[3];
    int next = 0;
    for (uint32_t mask = attr.wanted; mask; mask &= mask - 1)
        next++;
    tl_status status = tl_run(ctx, &tl_op_layer_norm_backward, in, 5, &attr, out, next, saved->site);
    next = 0;
    for (int i = 0; i < saved->n_in; i++)
        if (attr.wanted & (1u << i))
            gin[i] = out[next++];
    return status;
}

static void layer_norm_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    int form = (int)tl_sample_below(&seed, 4);
    tl_norm_attr attr = {form == 3 ? 1e-3 : 1e-5, 0};
    if (form == 0)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &size[2]);
    else
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &size[2]);
    if (form & 1)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &size[2]);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(layer_norm, sizeof(tl_norm_attr), layer_norm_infer, layer_norm_cost, layer_norm_saves, layer_norm_forward,
      layer_norm_grad, layer_norm_sample);

tl_tensor *tl_layer_norm_(tl_tensor *x, tl_tensor *gain, tl_tensor *bias, double epsilon, const char *site) {
    tl_norm_attr attr = {epsilon, 0};
    return tl_run1(&tl_op_layer_norm, (tl_tensor *[]){x, gain, bias}, bias ? 3 : 2, &attr, site);
}
