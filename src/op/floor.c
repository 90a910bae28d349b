/* The largest whole number ≤ x. Flat almost everywhere: no gradient passes. A comparison is no FLOP: only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status floor_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->floor);
}

static void floor_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(floor, 0, tl_unary_infer, tl_cost_moves, TL_SAVES_NONE, floor_forward, TL_NO_GRAD, floor_sample);

tl_tensor *tl_floor_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_floor, (tl_tensor *[]){x}, 1, NULL, site);
}
