/* |x|, of integers too; dx = g·sign x, 0 at 0. */
#include "op/elementwise.h"

static void abs_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 0); /* a sign bit, no FLOP */ }

static tl_status abs_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->abs); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 1, 0); /* a product with ±1 */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->abs_backward);
}

TL_OP(abs_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status abs_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_abs_backward, gout, gin);
}

TL_OP(abs, 0, tl_unary_infer_arithmetic, abs_cost, tl_unary_saves_input, abs_forward, abs_grad, tl_unary_sample);

tl_tensor *tl_abs_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_abs, (tl_tensor *[]){x}, 1, NULL, site); }
