/* Where x is NaN, as bool. Of integers: nowhere. A comparison is no FLOP: only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status is_nan_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->is_nan);
}

static void is_nan_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(is_nan, 0, tl_bool_infer, tl_cost_moves, TL_SAVES_NONE, is_nan_forward, TL_NO_GRAD, is_nan_sample);

tl_tensor *tl_is_nan_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_is_nan, (tl_tensor *[]){x}, 1, NULL, site);
}
