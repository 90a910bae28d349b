/* −1, 0 or 1; of integers too. Flat almost everywhere: no gradient passes. A comparison is no FLOP: only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status sign_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->sign); }

static void sign_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(sign, 0, tl_unary_infer_arithmetic, tl_cost_moves, TL_SAVES_NONE, sign_forward, TL_NO_GRAD, sign_sample);

tl_tensor *tl_sign_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_sign, (tl_tensor *[]){x}, 1, NULL, site); }
