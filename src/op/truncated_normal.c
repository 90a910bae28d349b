/* Normal numbers within ±cut standard deviations, by the normal quantile (Wichura 1988, AS 241) of a uniform number. */
#include "op/elementwise.h"
#include "op/random.h"

static void truncated_normal_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(
        sig, cost, 37,
        1); /* the probability: 2, two polynomials of degree 7: 28, around them: 5, ·std + mean: 2; the tail takes a log */
    tl_cost_writes(sig, cost);
}

static tl_status truncated_normal_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->truncated_normal);
}

static void truncated_normal_sample(uint64_t seed, tl_case *c) { tl_random_sample(seed, c, 0, 1, 2); }

TL_OP(truncated_normal, sizeof(tl_random_attr), tl_inplace_infer_float, truncated_normal_cost, TL_SAVES_NONE,
      truncated_normal_forward, TL_NO_GRAD, truncated_normal_sample);

tl_tensor *tl_truncated_normal_(tl_tensor *x, double mean, double std, double cut, const char *name, int64_t first,
                                const char *site) {
    return tl_random_call(&tl_op_truncated_normal, x, mean, std, cut, name, first, site);
}
