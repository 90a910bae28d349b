/* Σ|x| over axes; of integers in i64. dx = g·sign x. */
#include "op/elementwise.h"
#include "op/reduce.h"

/* One + per element of the input, as for sum; a sign bit is no FLOP. */
static void l1_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
}

static tl_status l1_forward(const tl_sig *sig, tl_args *args) { return tl_reduce_run(sig, args, args->kernels->l1); }

static tl_status l1_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    extern const tl_op tl_op_abs_backward;
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_reduce_spread(saved, gout[0])};
    gin[0] = tl_run1(&tl_op_abs_backward, in, 2, NULL, saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(l1, sizeof(tl_reduce_attr), tl_reduce_wide_infer, l1_cost, tl_unary_saves_input, l1_forward, l1_grad,
      tl_reduce_sample);

tl_tensor *tl_l1_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_l1, x, axes, n, keep, site);
}
