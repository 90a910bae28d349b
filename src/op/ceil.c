/* The smallest whole number ≥ x. Flat almost everywhere: no gradient passes. A comparison is no FLOP: only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status ceil_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->ceil); }

static void ceil_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(ceil, 0, tl_unary_infer, tl_cost_moves, TL_SAVES_NONE, ceil_forward, TL_NO_GRAD, ceil_sample);

tl_tensor *tl_ceil_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_ceil, (tl_tensor *[]){x}, 1, NULL, site); }
