/* sin x; dx = g·cos x. */
#include "op/elementwise.h"

static void sin_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 1); /* one sine */ }

static tl_status sin_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->sin); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 1, 1); /* one cosine, ·g */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->sin_backward);
}

TL_OP(sin_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status sin_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_sin_backward, gout, gin);
}

TL_OP(sin, 0, tl_unary_infer, sin_cost, tl_unary_saves_input, sin_forward, sin_grad, tl_unary_sample);

tl_tensor *tl_sin_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_sin, (tl_tensor *[]){x}, 1, NULL, site); }
