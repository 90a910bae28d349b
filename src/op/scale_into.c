/* x = x·factor + offset, in place. */
#include "op/elementwise.h"
#include "op/inplace.h"
#include "tally/ops_choices.h"

#include <string.h>

static void scale_into_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, TL_ATTR(tl_scale_attr, sig)->offset != 0 ? 2 : 1,
                  0); /* ×, and + where there is an offset */
}

static tl_status scale_into_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->scale);
}

static void scale_into_sample(uint64_t seed, tl_case *c) {
    tl_inplace_sample(seed, c);
    tl_scale_attr attr = {(double)(tl_sample_below(&seed, 9) - 4) / 4, tl_sample_below(&seed, 2) ? 0 : 0.5};
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(scale_into, sizeof(tl_scale_attr), tl_inplace_infer_float, scale_into_cost, TL_SAVES_NONE, scale_into_forward,
      TL_NO_GRAD, scale_into_sample);

tl_tensor *tl_scale_into_(tl_tensor *x, double factor, const char *site) {
    tl_scale_attr attr = {factor, 0};
    return tl_run1(&tl_op_scale_into, (tl_tensor *[]){x}, 1, &attr, site);
}

tl_tensor *tl_shift_into_(tl_tensor *x, double factor, double offset, const char *site) {
    tl_scale_attr attr = {factor, offset};
    return tl_run1(&tl_op_scale_into, (tl_tensor *[]){x}, 1, &attr, site);
}
