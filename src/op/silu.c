/* SiLU, x·σ(x) (Elfwing, Uchibe & Doya 2018; swish-1): x/(1 + e^−x); derivative σ·(1 + x·(1 − σ)). */
#include "op/elementwise.h"

static void silu_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 3, 1); /* −x: 1, 1 + e: 1, ÷: 1; one exp */
}

static tl_status silu_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->silu); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 8, 1); /* σ: 3, σ·(1 + x·(1 − σ)): 4, ·g: 1; one exp */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->silu_backward);
}

TL_OP(silu_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status silu_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_silu_backward, gout, gin);
}

TL_OP(silu, 0, tl_unary_infer, silu_cost, tl_unary_saves_input, silu_forward, silu_grad, tl_unary_sample);

tl_tensor *tl_silu_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_silu, (tl_tensor *[]){x}, 1, NULL, site); }
