/* How many elements are NaN or infinite, in double: what a step asks of its gradients before it trusts them. */
#include "op/elementwise.h"

static tl_status non_finite_infer(tl_sig *sig) {
    tl_shape one = {.ndim = 0};
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        tl_sig_add(sig, TL_F64, &one);
    return status;
}

static void non_finite_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 2, &sig->in[0]->shape); /* x − x and one + an element */
}

static tl_status non_finite_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->non_finite);
}

TL_OP(non_finite, 0, non_finite_infer, non_finite_cost, TL_SAVES_NONE, non_finite_forward, TL_NO_GRAD, tl_unary_sample);

tl_tensor *tl_non_finite_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_non_finite, (tl_tensor *[]){x}, 1, NULL, site);
}
