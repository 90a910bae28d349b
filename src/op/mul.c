/* a·b, with broadcasting. */
#include "op/elementwise.h"

static void mul_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = (sig->needs_grad[1] ? 1u : 0) | (sig->needs_grad[0] ? 2u : 0);
}

static tl_status mul_forward(const tl_sig *sig, tl_args *args) { return tl_binary_run(sig, args, args->kernels->mul); }

static tl_status mul_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const char *site = saved->site;
    for (int i = 0; i < 2; i++)
        if (tl_saved_needs(saved, i))
            gin[i] = tl_sum_to(tl_mul_(gout[0], tl_saved_in(saved, 1 - i), site), tl_saved_shape(saved, i), site);
    return tl_ctx_status(ctx);
}

TL_OP(mul, 0, tl_binary_infer, tl_binary_cost, mul_saves, mul_forward, mul_grad, tl_binary_sample);

tl_tensor *tl_mul_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_mul, (tl_tensor *[]){a, b}, 2, NULL, site);
}
