/* a·σ(αa)·b: the gate and its product in one pass, so that neither SiLU(a) nor its gradient is a tensor. */
#include "op/rows.h"
#include "tally/ops_layers.h"

#include <string.h>

static tl_status want_equal(tl_sig *sig, int inputs) {
    static const char *const what[] = {"", "b", "the gradient"};
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        status = tl_sig_want_same_dtype(sig);
    for (int i = 1; i < inputs && status == TL_OK; i++)
        status = tl_sig_want_shape(sig, i, &sig->in[0]->shape, what[i]);
    return status;
}

static tl_status swiglu_infer(tl_sig *sig) {
    tl_status status = want_equal(sig, 2);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

static void swiglu_cost(const tl_sig *sig, tl_cost *cost) {
    /* αa, 1 + e^−x, its inverse, ·a, ·b */
    cost->arithmetic = tl_amount_shape(sig->ctx, 5, &sig->in[0]->shape);
    cost->special = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
}

static void swiglu_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 3;
}

static tl_status swiglu_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->swiglu);
}

/* in: a, b, gradient → both gradients: they share σ */
static tl_status backward_infer(tl_sig *sig) {
    tl_status status = want_equal(sig, 3);
    for (int i = 0; i < 2 && status == TL_OK; i++)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    /* αa and σ 3, 1 − σ 1; da = g·b·(σ + αa·σ·(1 − σ)) 5; db = g·a·σ 2 */
    cost->arithmetic = tl_amount_shape(sig->ctx, 11, &sig->in[0]->shape);
    cost->special = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->swiglu_backward);
}

static void sample(uint64_t seed, tl_case *c, int inputs) {
    int64_t size[3] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 19)};
    tl_swiglu_attr attr = {tl_sample_below(&seed, 2) ? 1 : 0.5};
    for (int i = 0; i < inputs; i++)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = inputs - 1;
    c->tolerance = 4e-6;
}

static void backward_sample(uint64_t seed, tl_case *c) { sample(seed, c, 3); }

TL_OP(swiglu_backward, sizeof(tl_swiglu_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status swiglu_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_saved_in(saved, 1), gout[0]}, *out[2];
    tl_status status = tl_run(ctx, &tl_op_swiglu_backward, in, 3, saved->attr, out, 2, saved->site);
    for (int i = 0; i < 2; i++) {
        if (tl_saved_needs(saved, i))
            gin[i] = out[i];
        else
            tl_release(out[i]);
    }
    return status;
}

static void swiglu_sample(uint64_t seed, tl_case *c) { sample(seed, c, 2); }

TL_OP(swiglu, sizeof(tl_swiglu_attr), swiglu_infer, swiglu_cost, swiglu_saves, swiglu_forward, swiglu_grad,
      swiglu_sample);

tl_tensor *tl_swiglu_(tl_tensor *a, tl_tensor *b, double alpha, const char *site) {
    tl_swiglu_attr attr = {alpha};
    return tl_run1(&tl_op_swiglu, (tl_tensor *[]){a, b}, 2, &attr, site);
}
