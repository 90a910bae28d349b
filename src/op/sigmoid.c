/* The logistic function y = 1/(1 + e^−x); dx = g·y·(1 − y): the output is kept. */
#include "op/elementwise.h"

static void sigmoid_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 3, 1); /* −x: 1, 1 + e: 1, ÷: 1; one exp */
}

static tl_status sigmoid_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->sigmoid);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 3, 0); /* 1 − y, ·y, ·g */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->sigmoid_backward);
}

TL_OP(sigmoid_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status sigmoid_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_sigmoid_backward, gout, gin);
}

TL_OP(sigmoid, 0, tl_unary_infer, sigmoid_cost, tl_unary_saves_output, sigmoid_forward, sigmoid_grad, tl_unary_sample);

tl_tensor *tl_sigmoid_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_sigmoid, (tl_tensor *[]){x}, 1, NULL, site);
}
