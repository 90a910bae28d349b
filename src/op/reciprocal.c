/* 1/x = y; dx = −g·y²: the output is kept. */
#include "op/elementwise.h"

static void reciprocal_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 1, 0); /* one ÷ */ }

static tl_status reciprocal_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->reciprocal);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 3, 0); /* y²: 1, −: 1, ·g: 1 */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->reciprocal_backward);
}

TL_OP(reciprocal_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status reciprocal_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_reciprocal_backward, gout, gin);
}

TL_OP(reciprocal, 0, tl_unary_infer, reciprocal_cost, tl_unary_saves_output, reciprocal_forward, reciprocal_grad,
      tl_unary_sample_positive);

tl_tensor *tl_reciprocal_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_reciprocal, (tl_tensor *[]){x}, 1, NULL, site);
}
