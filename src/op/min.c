/* The smallest element over axes; NaN wins. Of no floats it is ∞. Each of equals gets an equal share of the gradient
 * (PyTorch's amin). A comparison is no FLOP: only bytes are counted. */
#include "op/reduce.h"
#include "op/views.h"

static tl_status min_forward(const tl_sig *sig, tl_args *args) { return tl_reduce_run(sig, args, args->kernels->min); }

static void min_sample(uint64_t seed, tl_case *c) {
    tl_reduce_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(min, sizeof(tl_reduce_attr), tl_reduce_extreme_infer, tl_cost_moves, tl_reduce_saves_both, min_forward,
      tl_reduce_extreme_grad, min_sample);

tl_tensor *tl_min_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_min, x, axes, n, keep, site);
}
