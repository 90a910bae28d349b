/* e^x. Its own derivative: the output is kept. */
#include "op/elementwise.h"

static void exp_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 1); /* one exp */ }

static tl_status exp_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->exp); }

static tl_status exp_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_mul_(gout[0], tl_saved_out(saved, 0), saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(exp, 0, tl_unary_infer, exp_cost, tl_unary_saves_output, exp_forward, exp_grad, tl_unary_sample);

tl_tensor *tl_exp_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_exp, (tl_tensor *[]){x}, 1, NULL, site); }
