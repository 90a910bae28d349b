/* max(x, 0). dx = g where y > 0, which is where x > 0: the output is kept, which the next product keeps anyway.
 * At 0 the derivative is taken to be 0. */
#include "op/elementwise.h"

static void relu_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 0, 0); /* a comparison is no FLOP: only bytes move */
}

static tl_status relu_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->relu); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 0); /* a choice, no FLOP */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->relu_backward);
}

TL_OP(relu_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status relu_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_relu_backward, gout, gin);
}

TL_OP(relu, 0, tl_unary_infer, relu_cost, tl_unary_saves_output, relu_forward, relu_grad, tl_unary_sample);

tl_tensor *tl_relu_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_relu, (tl_tensor *[]){x}, 1, NULL, site); }
