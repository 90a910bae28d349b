/* x/(1 + |x|); dx = g/(1 + |x|)². */
#include "op/elementwise.h"

static void softsign_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 2, 0); /* 1 + |x|, ÷ */ }

static tl_status softsign_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->softsign);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 4, 0); /* 1 + |x|, ÷, square, ·g */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->softsign_backward);
}

TL_OP(softsign_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status softsign_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_softsign_backward, gout, gin);
}

TL_OP(softsign, 0, tl_unary_infer, softsign_cost, tl_unary_saves_input, softsign_forward, softsign_grad,
      tl_unary_sample);

tl_tensor *tl_softsign_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_softsign, (tl_tensor *[]){x}, 1, NULL, site);
}
