/* x where x ≥ 0, else α·x (Maas et al. 2013); dx = g or g·α. */
#include "op/elementwise.h"

#include <string.h>

static void leaky_relu_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 1, 0); /* α·x */ }

static tl_status leaky_relu_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->leaky_relu);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 1, 0); /* ·g */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->leaky_relu_backward);
}

static void fill_attr(uint64_t seed, tl_case *c) {
    tl_alpha_attr attr = {(double)(1 + tl_sample_below(&seed, 8)) / 4};
    memcpy(c->attr, &attr, sizeof attr);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_unary_backward_sample(seed, c);
    fill_attr(seed, c);
}

TL_OP(leaky_relu_backward, sizeof(tl_alpha_attr), tl_unary_backward_infer, backward_cost, TL_SAVES_NONE,
      backward_forward, TL_NO_GRAD, backward_sample);

static tl_status leaky_relu_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_leaky_relu_backward, gout, gin);
}

static void leaky_relu_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    fill_attr(seed, c);
}

TL_OP(leaky_relu, sizeof(tl_alpha_attr), tl_unary_infer, leaky_relu_cost, tl_unary_saves_input, leaky_relu_forward,
      leaky_relu_grad, leaky_relu_sample);

tl_tensor *tl_leaky_relu_(tl_tensor *x, double alpha, const char *site) {
    tl_alpha_attr attr = {alpha};
    return tl_run1(&tl_op_leaky_relu, (tl_tensor *[]){x}, 1, &attr, site);
}
