/* Σx² over axes; of integers in i64. dx = 2·g·x: the gradient is doubled while it is small. */
#include "op/elementwise.h"
#include "op/reduce.h"

static void sum_square_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 2, &sig->in[0]->shape); /* one ×, one + an element */
}

static tl_status sum_square_forward(const tl_sig *sig, tl_args *args) {
    return tl_reduce_run(sig, args, args->kernels->sum_square);
}

static tl_status sum_square_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *twice = tl_reduce_spread(saved, tl_scale_(gout[0], 2, 0, saved->site));
    gin[0] = tl_mul_(tl_saved_in(saved, 0), twice, saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(sum_square, sizeof(tl_reduce_attr), tl_reduce_wide_infer, sum_square_cost, tl_unary_saves_input,
      sum_square_forward, sum_square_grad, tl_reduce_sample);

tl_tensor *tl_sum_square_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_sum_square, x, axes, n, keep, site);
}
