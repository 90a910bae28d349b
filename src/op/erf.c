/* The error function; dx = g·2/√π·e^(−x²). */
#include "op/elementwise.h"

static void erf_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 1); /* one erf */ }

static tl_status erf_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->erf); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 4, 1); /* x², −, ·2/√π, ·g; one exp */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->erf_backward);
}

TL_OP(erf_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status erf_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_erf_backward, gout, gin);
}

TL_OP(erf, 0, tl_unary_infer, erf_cost, tl_unary_saves_input, erf_forward, erf_grad, tl_unary_sample);

tl_tensor *tl_erf_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_erf, (tl_tensor *[]){x}, 1, NULL, site); }
