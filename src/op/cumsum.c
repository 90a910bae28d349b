/* Running sums along an axis: y_i = Σ_{j≤i} x_j; exclusive: j < i; reverse: from the end. dx runs the other way over g. */
#include "op/along.h"

static tl_status cumsum_forward(const tl_sig *sig, tl_args *args) {
    return tl_cumulative_run(sig, args, args->kernels->cumulate);
}

static tl_status cumsum_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const tl_cumulative_attr *attr = tl_saved_attr(saved);
    gin[0] = tl_cumsum_(gout[0], attr->axis, attr->how.exclusive, !attr->how.reverse, saved->site);
    return tl_ctx_status(ctx);
}

static void cumsum_sample(uint64_t seed, tl_case *c) { tl_cumulative_sample(seed, c, false); }

TL_OP(cumsum, sizeof(tl_cumulative_attr), tl_cumulative_infer, tl_cumulative_cost, TL_SAVES_NONE, cumsum_forward,
      cumsum_grad, cumsum_sample);

tl_tensor *tl_cumsum_(tl_tensor *x, int axis, bool exclusive, bool reverse, const char *site) {
    tl_cumulative_attr attr = tl_cumulative_attr_of(axis, false, exclusive, reverse);
    return tl_run1(&tl_op_cumsum, (tl_tensor *[]){x}, 1, &attr, site);
}
