/* log softmax over the last axis: (x − largest) − log Σ e^(x − largest). Its own output is enough for the gradient,
 * g − e^y·Σg. */
#include "op/elementwise.h"
#include "tally/ops_layers.h"

static tl_status log_softmax_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_ndim(sig, 0, 1);
    return status == TL_OK ? tl_unary_infer(sig) : status;
}

static void log_softmax_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->out[0].shape;
    tl_unary_cost(sig, cost, 4, 1); /* − largest twice, Σ, − log; one exp. A row: one log. */
    cost->special = tl_amount_add(sig->ctx, cost->special, tl_amount_of(sig->ctx, 1, x->dim, x->ndim - 1));
}

static tl_status log_softmax_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->log_softmax);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 3, 1); }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->log_softmax_backward);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_unary_backward_sample(seed, c);
    c->tolerance = 1e-5;
}

TL_OP(log_softmax_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      backward_sample);

static tl_status log_softmax_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_log_softmax_backward, gout, gin);
}

static void log_softmax_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->tolerance = 1e-5;
}

TL_OP(log_softmax, 0, log_softmax_infer, log_softmax_cost, tl_unary_saves_output, log_softmax_forward, log_softmax_grad,
      log_softmax_sample);

tl_tensor *tl_log_softmax_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_log_softmax, (tl_tensor *[]){x}, 1, NULL, site);
}
