/* x ·= factor, in place, the factor a tensor of one element. */
#include "op/elementwise.h"
#include "op/inplace.h"
#include "op/rows.h"
#include "tally/ops_choices.h"

static tl_status scale_by_infer(tl_sig *sig) {
    tl_status status = tl_inplace_infer_float(sig);
    return status == TL_OK ? tl_sig_want_one(sig, 1, "the factor") : status;
}

static tl_status scale_by_forward(const tl_sig *sig, tl_args *args) {
    const tl_array *x = &args->call.in[0];
    tl_array *factor = &args->call.in[1];
    factor->ndim = x->ndim; /* one element, stretched */
    for (int d = 0; d < x->ndim; d++) {
        factor->size[d] = x->size[d];
        factor->stride[d] = 0;
    }
    return tl_args_run(sig, args, args->kernels->mul);
}

static void scale_by_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 1, 0); }

static void scale_by_sample(uint64_t seed, tl_case *c) {
    tl_inplace_sample(seed, c);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, (int64_t[]){1});
}

TL_OP(scale_by, 0, scale_by_infer, scale_by_cost, TL_SAVES_NONE, scale_by_forward, TL_NO_GRAD, scale_by_sample);

tl_tensor *tl_scale_by_(tl_tensor *x, tl_tensor *factor, const char *site) {
    return tl_run1(&tl_op_scale_by, (tl_tensor *[]){x, factor}, 2, NULL, site);
}
