/* The natural logarithm; dx = g/x. */
#include "op/elementwise.h"

static void log_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 1); /* one log */ }

static tl_status log_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->log); }

static tl_status log_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_div_(gout[0], tl_saved_in(saved, 0), saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(log, 0, tl_unary_infer, log_cost, tl_unary_saves_input, log_forward, log_grad, tl_unary_sample_positive);

tl_tensor *tl_log_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_log, (tl_tensor *[]){x}, 1, NULL, site); }
