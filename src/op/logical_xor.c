/* a xor b of bool, with broadcasting. Only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status xor_forward(const tl_sig *sig, tl_args *args) {
    return tl_binary_run(sig, args, args->kernels->logical_xor);
}

TL_OP(logical_xor, 0, tl_logic_infer, tl_cost_moves, TL_SAVES_NONE, xor_forward, TL_NO_GRAD, tl_logic_sample);

tl_tensor *tl_logical_xor_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_logical_xor, (tl_tensor *[]){a, b}, 2, NULL, site);
}
