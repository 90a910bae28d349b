/* Where x is infinite with a sign that is asked for, as bool. Of integers: nowhere. Only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

#include <string.h>

static tl_status is_inf_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->is_inf);
}

static void is_inf_sample(uint64_t seed, tl_case *c) {
    tl_is_inf_attr attr = {true, tl_sample_below(&seed, 2) != 0};
    tl_unary_sample(seed, c);
    memcpy(c->attr, &attr, sizeof attr);
    c->tolerance = 0;
}

TL_OP(is_inf, sizeof(tl_is_inf_attr), tl_bool_infer, tl_cost_moves, TL_SAVES_NONE, is_inf_forward, TL_NO_GRAD,
      is_inf_sample);

tl_tensor *tl_is_inf_(tl_tensor *x, bool positive, bool negative, const char *site) {
    tl_is_inf_attr attr = {positive, negative};
    return tl_run1(&tl_op_is_inf, (tl_tensor *[]){x}, 1, &attr, site);
}
