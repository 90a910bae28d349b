/* The Euclidean norm y = √Σx² over axes; dx = g·x/y, and 0 where y is 0 (PyTorch's subgradient). */
#include "op/elementwise.h"
#include "op/reduce.h"
#include "op/rows.h"

static void l2_cost(const tl_sig *sig, tl_cost *cost) {
    /* one ×, one + an element; a √ per output */
    cost->arithmetic = tl_amount_shape(sig->ctx, 2, &sig->in[0]->shape);
    tl_amount_more(sig->ctx, &cost->arithmetic, 1, sig->out[0].shape.dim, sig->out[0].shape.ndim);
}

static tl_status l2_forward(const tl_sig *sig, tl_args *args) { return tl_reduce_run(sig, args, args->kernels->l2); }

/* in: x, and y and the gradient seen in x's shape */
static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 2, 0); /* x/y, ·g */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->l2_backward);
}

TL_OP(l2_backward, 0, tl_reduce_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_reduce_backward_sample);

static tl_status l2_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *y = tl_reduce_spread(saved, tl_saved_out(saved, 0)), *g = tl_reduce_spread(saved, gout[0]);
    gin[0] = tl_run1(&tl_op_l2_backward, (tl_tensor *[]){tl_saved_in(saved, 0), y, g}, 3, NULL, saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(l2, sizeof(tl_reduce_attr), tl_reduce_float_infer, l2_cost, tl_reduce_saves_both, l2_forward, l2_grad,
      tl_reduce_sample);

tl_tensor *tl_l2_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_l2, x, axes, n, keep, site);
}
