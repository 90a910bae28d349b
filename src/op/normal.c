/* Normal numbers (Box & Muller 1958), by position: element i is a function of (seed, name, first + i) alone. */
#include "op/elementwise.h"
#include "op/random.h"

static void normal_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(
        sig, cost, 6,
        2); /* 1 − u, ·(−2), √, r·cos, ·std, + mean; a log and a sine or cosine, as if each were drawn alone */
    tl_cost_writes(sig, cost);
}

static tl_status normal_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->normal);
}

static void normal_sample(uint64_t seed, tl_case *c) { tl_random_sample(seed, c, 0, 1, 0); }

TL_OP(normal, sizeof(tl_random_attr), tl_inplace_infer_float, normal_cost, TL_SAVES_NONE, normal_forward, TL_NO_GRAD,
      normal_sample);

tl_tensor *tl_normal_(tl_tensor *x, double mean, double std, const char *name, int64_t first, const char *site) {
    return tl_random_call(&tl_op_normal, x, mean, std, 0, name, first, site);
}
