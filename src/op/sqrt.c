/* √x; dx = g/(2·√x), halved in place so that no second tensor is made. */
#include "op/elementwise.h"

static void sqrt_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 1, 0); /* one √ */ }

static tl_status sqrt_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->sqrt); }

static tl_status sqrt_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_div_(gout[0], tl_saved_out(saved, 0), saved->site);
    tl_release(tl_scale_into_(gin[0], 0.5, saved->site));
    return tl_ctx_status(ctx);
}

TL_OP(sqrt, 0, tl_unary_infer, sqrt_cost, tl_unary_saves_output, sqrt_forward, sqrt_grad, tl_unary_sample_positive);

tl_tensor *tl_sqrt_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_sqrt, (tl_tensor *[]){x}, 1, NULL, site); }
