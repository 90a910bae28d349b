/* Σx² in double, one element: the norm of gradients, safe where their squares leave float. */
#include "op/elementwise.h"

static tl_status square_sum_infer(tl_sig *sig) {
    tl_shape one = {.ndim = 0};
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        tl_sig_add(sig, TL_F64, &one);
    return status;
}

static void square_sum_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 2, &sig->in[0]->shape); /* one ×, one + an element */
}

static tl_status square_sum_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->square_sum);
}

static void square_sum_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->tolerance = 1e-12;
}

TL_OP(square_sum, 0, square_sum_infer, square_sum_cost, TL_SAVES_NONE, square_sum_forward, TL_NO_GRAD,
      square_sum_sample);

tl_tensor *tl_square_sum_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_square_sum, (tl_tensor *[]){x}, 1, NULL, site);
}
