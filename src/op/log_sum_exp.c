/* y = log Σe^x over axes, shifted by the largest so that no exp overflows; dx = g·e^(x − y). Of nothing it is −∞. */
#include "op/elementwise.h"
#include "op/reduce.h"
#include "op/rows.h"

static void log_sum_exp_cost(const tl_sig *sig, tl_cost *cost) {
    /* − largest, +, one exp an element; a log and a + per output */
    cost->arithmetic = tl_amount_shape(sig->ctx, 2, &sig->in[0]->shape);
    tl_amount_more(sig->ctx, &cost->arithmetic, 1, sig->out[0].shape.dim, sig->out[0].shape.ndim);
    cost->special = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
    tl_amount_more(sig->ctx, &cost->special, 1, sig->out[0].shape.dim, sig->out[0].shape.ndim);
}

static tl_status log_sum_exp_forward(const tl_sig *sig, tl_args *args) {
    return tl_reduce_run(sig, args, args->kernels->log_sum_exp);
}

/* in: x, and y and the gradient seen in x's shape */
static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 2, 1); /* x − y, ·g, one exp */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->log_sum_exp_backward);
}

TL_OP(log_sum_exp_backward, 0, tl_reduce_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_reduce_backward_sample);

static tl_status log_sum_exp_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *y = tl_reduce_spread(saved, tl_saved_out(saved, 0)), *g = tl_reduce_spread(saved, gout[0]);
    gin[0] = tl_run1(&tl_op_log_sum_exp_backward, (tl_tensor *[]){tl_saved_in(saved, 0), y, g}, 3, NULL, saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(log_sum_exp, sizeof(tl_reduce_attr), tl_reduce_float_infer, log_sum_exp_cost, tl_reduce_saves_both,
      log_sum_exp_forward, log_sum_exp_grad, tl_reduce_sample);

tl_tensor *tl_log_sum_exp_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_log_sum_exp, x, axes, n, keep, site);
}
