/* cos x; dx = −g·sin x. */
#include "op/elementwise.h"

static void cos_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 1); /* one cosine */ }

static tl_status cos_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->cos); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 2, 1); /* one sine, −, ·g */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->cos_backward);
}

TL_OP(cos_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status cos_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_cos_backward, gout, gin);
}

TL_OP(cos, 0, tl_unary_infer, cos_cost, tl_unary_saves_input, cos_forward, cos_grad, tl_unary_sample);

tl_tensor *tl_cos_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_cos, (tl_tensor *[]){x}, 1, NULL, site); }
