/* a − b, with broadcasting. b's gradient is summed before it is negated: the smaller tensor. */
#include "op/elementwise.h"

static tl_status sub_forward(const tl_sig *sig, tl_args *args) { return tl_binary_run(sig, args, args->kernels->sub); }

static tl_status sub_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    if (tl_saved_needs(saved, 0))
        gin[0] = tl_sum_to(gout[0], tl_saved_shape(saved, 0), saved->site);
    if (tl_saved_needs(saved, 1))
        gin[1] = tl_neg_(tl_sum_to(gout[0], tl_saved_shape(saved, 1), saved->site), saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(sub, 0, tl_binary_infer, tl_binary_cost, TL_SAVES_NONE, sub_forward, sub_grad, tl_binary_sample);

tl_tensor *tl_sub_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_sub, (tl_tensor *[]){a, b}, 2, NULL, site);
}
