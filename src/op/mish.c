/* x·tanh(log(1 + e^x)) (Misra 2019), by w = e^x as x·(w² + 2w)/(w² + 2w + 2). */
#include "op/elementwise.h"

static void mish_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 5, 1); /* w + 2, ·w, + 2, ÷, ·x; one exp */
}

static tl_status mish_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->mish); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 11, 1); /* q = w(w + 2): 2, q + 2, ÷; 4w(w + 1)/(q + 2)²: 5 and ·x, +; ·g; one exp */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->mish_backward);
}

TL_OP(mish_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status mish_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_mish_backward, gout, gin);
}

TL_OP(mish, 0, tl_unary_infer, mish_cost, tl_unary_saves_input, mish_forward, mish_grad, tl_unary_sample);

tl_tensor *tl_mish_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_mish, (tl_tensor *[]){x}, 1, NULL, site); }
