/* a < b as bool, with broadcasting; two inputs of any one format. Comparisons are no FLOPs: only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status less_forward(const tl_sig *sig, tl_args *args) {
    return tl_binary_run(sig, args, args->kernels->less);
}

TL_OP(less, 0, tl_compare_infer, tl_cost_moves, TL_SAVES_NONE, less_forward, TL_NO_GRAD, tl_compare_sample);

tl_tensor *tl_less_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_less, (tl_tensor *[]){a, b}, 2, NULL, site);
}
