/* a and b of bool, with broadcasting. Only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status and_forward(const tl_sig *sig, tl_args *args) {
    return tl_binary_run(sig, args, args->kernels->logical_and);
}

TL_OP(logical_and, 0, tl_logic_infer, tl_cost_moves, TL_SAVES_NONE, and_forward, TL_NO_GRAD, tl_logic_sample);

tl_tensor *tl_logical_and_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_logical_and, (tl_tensor *[]){a, b}, 2, NULL, site);
}
