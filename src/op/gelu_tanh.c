/* GELU in its tanh form (Hendrycks & Gimpel 2016, eq. 2; GPT-2's gelu_new): x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))). */
#include "op/elementwise.h"

static void gelu_tanh_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 8, 1); /* x³: 2, inner: 3, outer: 3; one tanh */
}

static tl_status gelu_tanh_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->gelu_tanh);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 16, 1); }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->gelu_tanh_backward);
}

TL_OP(gelu_tanh_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status gelu_tanh_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_gelu_tanh_backward, gout, gin);
}

TL_OP(gelu_tanh, 0, tl_unary_infer, gelu_tanh_cost, tl_unary_saves_input, gelu_tanh_forward, gelu_tanh_grad,
      tl_unary_sample);

tl_tensor *tl_gelu_tanh_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_gelu_tanh, (tl_tensor *[]){x}, 1, NULL, site);
}
