/* The smaller of a and b, with broadcasting; a NaN wins. The gradient goes to the one that was taken, half to each where both
 * are equal (PyTorch's rule). Comparisons are no FLOPs. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status minimum_forward(const tl_sig *sig, tl_args *args) {
    return tl_binary_run(sig, args, args->kernels->minimum);
}

static void minimum_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 3;
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_binary_run(sig, args, args->kernels->minimum_backward);
}

TL_OP(minimum_backward, 0, tl_binary_backward_infer, tl_binary_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_binary_backward_sample);

static tl_status minimum_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    for (int i = 0; i < 2; i++)
        if (tl_saved_needs(saved, i)) {
            tl_tensor *in[] = {tl_saved_in(saved, i), tl_saved_in(saved, 1 - i), gout[0]};
            tl_tensor *share = tl_run1(&tl_op_minimum_backward, in, 3, NULL, saved->site);
            gin[i] = tl_sum_to(share, tl_saved_shape(saved, i), saved->site);
            if (gin[i] != share)
                tl_release(share);
        }
    return tl_ctx_status(ctx);
}

TL_OP(minimum, 0, tl_binary_infer_any, tl_cost_moves, minimum_saves, minimum_forward, minimum_grad, tl_binary_sample);

tl_tensor *tl_minimum_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_minimum, (tl_tensor *[]){a, b}, 2, NULL, site);
}
