/* The largest element over axes; NaN wins. Of no floats it is −∞. Each of equals gets an equal share of the gradient
 * (PyTorch's amax). A comparison is no FLOP: only bytes are counted. */
#include "op/reduce.h"
#include "op/views.h"

static tl_status max_forward(const tl_sig *sig, tl_args *args) { return tl_reduce_run(sig, args, args->kernels->max); }

static void max_sample(uint64_t seed, tl_case *c) {
    tl_reduce_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(max, sizeof(tl_reduce_attr), tl_reduce_extreme_infer, tl_cost_moves, tl_reduce_saves_both, max_forward,
      tl_reduce_extreme_grad, max_sample);

tl_tensor *tl_max_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_max, x, axes, n, keep, site);
}
