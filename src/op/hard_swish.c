/* x·max(0, min(1, x/6 + ½)) (Howard et al. 2019, eq. 1); the slope is 0 below −3, 1 from 3 on, x/3 + ½ between. */
#include "op/elementwise.h"

static void hard_swish_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 3, 0); /* x/6, + ½, ·x */ }

static tl_status hard_swish_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->hard_swish);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 3, 0); /* x/3, + ½, ·g */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->hard_swish_backward);
}

TL_OP(hard_swish_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status hard_swish_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_hard_swish_backward, gout, gin);
}

TL_OP(hard_swish, 0, tl_unary_infer, hard_swish_cost, tl_unary_saves_input, hard_swish_forward, hard_swish_grad,
      tl_unary_sample);

tl_tensor *tl_hard_swish_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_hard_swish, (tl_tensor *[]){x}, 1, NULL, site);
}
