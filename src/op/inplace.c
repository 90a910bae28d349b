/* Shared declarations of ops that write into their first input. */
#include "op/inplace.h"

#include "op/elementwise.h"

tl_status tl_inplace_infer_any(tl_sig *sig) {
    tl_output *out = tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    out->alias = 0;
    out->in_place = true;
    return TL_OK;
}

tl_status tl_inplace_infer_float(tl_sig *sig) {
    tl_status status = tl_sig_want_float(sig, 0);
    return status == TL_OK ? tl_inplace_infer_any(sig) : status;
}

void tl_inplace_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->in[0].fixed_layout = true;
    c->in_place = true;
    c->tolerance = 0;
}

void tl_cost_writes(const tl_sig *sig, tl_cost *cost) {
    (void)sig;
    cost->read = (tl_amount){0};
    cost->read_set = true;
}
