/* a + b, with broadcasting. An input of the output's shape gets the gradient itself, uncopied. */
#include "op/elementwise.h"

static tl_status add_forward(const tl_sig *sig, tl_args *args) { return tl_binary_run(sig, args, args->kernels->add); }

static tl_status add_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    for (int i = 0; i < 2; i++)
        if (tl_saved_needs(saved, i))
            gin[i] = tl_sum_to(gout[0], tl_saved_shape(saved, i), saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(add, 0, tl_binary_infer, tl_binary_cost, TL_SAVES_NONE, add_forward, add_grad, tl_binary_sample);

tl_tensor *tl_add_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_add, (tl_tensor *[]){a, b}, 2, NULL, site);
}
