/* Uniform numbers in [low, high). */
#include "op/elementwise.h"
#include "op/random.h"

static void uniform_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 3, 0); /* bits·2^−24, ·(high − low), + low */
    tl_cost_writes(sig, cost);
}

static tl_status uniform_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->uniform);
}

static void uniform_sample(uint64_t seed, tl_case *c) { tl_random_sample(seed, c, -1, 1, 0); }

TL_OP(uniform, sizeof(tl_random_attr), tl_inplace_infer_float, uniform_cost, TL_SAVES_NONE, uniform_forward, TL_NO_GRAD,
      uniform_sample);

tl_tensor *tl_uniform_(tl_tensor *x, double low, double high, const char *name, int64_t first, const char *site) {
    return tl_random_call(&tl_op_uniform, x, low, high, 0, name, first, site);
}
