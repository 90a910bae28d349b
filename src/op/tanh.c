/* tanh x; dx = g·(1 − y²): the output is kept. */
#include "op/elementwise.h"

static void tanh_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 1); /* one tanh */ }

static tl_status tanh_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->tanh); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 3, 0); /* y²: 1, 1 − y²: 1, ·g: 1 */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->tanh_backward);
}

TL_OP(tanh_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status tanh_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_tanh_backward, gout, gin);
}

TL_OP(tanh, 0, tl_unary_infer, tanh_cost, tl_unary_saves_output, tanh_forward, tanh_grad, tl_unary_sample);

tl_tensor *tl_tanh_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_tanh, (tl_tensor *[]){x}, 1, NULL, site); }
