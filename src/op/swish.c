/* x·σ(αx) (Ramachandran et al. 2017); with α = 1 it is SiLU. With s = σ(αx), dx = g·(s + αx·s·(1 − s)). */
#include "op/elementwise.h"

#include <string.h>

static void swish_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 5, 1); /* αx, −, 1 + e, ÷, ·x; one exp */
}

static tl_status swish_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->swish);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 9, 1); /* αx, −, 1 + e, ÷, 1 − s, two products, +, ·g; one exp */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->swish_backward);
}

static void fill_attr(uint64_t seed, tl_case *c) {
    tl_alpha_attr attr = {(double)(1 + tl_sample_below(&seed, 8)) / 4};
    memcpy(c->attr, &attr, sizeof attr);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_unary_backward_sample(seed, c);
    fill_attr(seed, c);
}

TL_OP(swish_backward, sizeof(tl_alpha_attr), tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status swish_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_swish_backward, gout, gin);
}

static void swish_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    fill_attr(seed, c);
}

TL_OP(swish, sizeof(tl_alpha_attr), tl_unary_infer, swish_cost, tl_unary_saves_input, swish_forward, swish_grad,
      swish_sample);

tl_tensor *tl_swish_(tl_tensor *x, double alpha, const char *site) {
    tl_alpha_attr attr = {alpha};
    return tl_run1(&tl_op_swish, (tl_tensor *[]){x}, 1, &attr, site);
}
