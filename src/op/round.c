/* The nearest whole number, halves to even (IEEE 754-2019, roundToIntegralTiesToEven). No gradient passes. A comparison is no FLOP: only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status round_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->round);
}

static void round_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(round, 0, tl_unary_infer, tl_cost_moves, TL_SAVES_NONE, round_forward, TL_NO_GRAD, round_sample);

tl_tensor *tl_round_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_round, (tl_tensor *[]){x}, 1, NULL, site);
}
