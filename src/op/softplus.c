/* log(1 + e^x), computed as max(x, 0) + log(1 + e^−|x|); dx = g·σ(x). */
#include "op/elementwise.h"

static void softplus_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 3, 2); /* −|x|, 1 +, + max; one exp, one log */
}

static tl_status softplus_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->softplus);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 4, 1); /* −x, 1 + e, ÷, ·g; one exp */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->softplus_backward);
}

TL_OP(softplus_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status softplus_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_softplus_backward, gout, gin);
}

TL_OP(softplus, 0, tl_unary_infer, softplus_cost, tl_unary_saves_input, softplus_forward, softplus_grad,
      tl_unary_sample);

tl_tensor *tl_softplus_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_softplus, (tl_tensor *[]){x}, 1, NULL, site);
}
