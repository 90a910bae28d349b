/* a or b of bool, with broadcasting. Only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status or_forward(const tl_sig *sig, tl_args *args) {
    return tl_binary_run(sig, args, args->kernels->logical_or);
}

TL_OP(logical_or, 0, tl_logic_infer, tl_cost_moves, TL_SAVES_NONE, or_forward, TL_NO_GRAD, tl_logic_sample);

tl_tensor *tl_logical_or_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_logical_or, (tl_tensor *[]){a, b}, 2, NULL, site);
}
