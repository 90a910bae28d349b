/* The sum over axes; of integers and bool in i64, as PyTorch has it: narrow sums would wrap. */
#include "op/reduce.h"

static tl_status sum_infer(tl_sig *sig) {
    int64_t reduced;
    tl_status status = tl_reduce_infer(sig, &reduced);
    if (status == TL_OK && !tl_dtype_is_float(sig->in[0]->dtype))
        sig->out[0].dtype = TL_I64;
    return status;
}

/* One + per element of the input: the first of each sum, added to nothing, is counted too, as is usual. */
static void sum_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
}

static tl_status sum_forward(const tl_sig *sig, tl_args *args) { return tl_reduce_run(sig, args, args->kernels->sum); }

static tl_status sum_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_reduce_spread(saved, gout[0]);
    return tl_ctx_status(ctx);
}

TL_OP(sum, sizeof(tl_reduce_attr), sum_infer, sum_cost, TL_SAVES_NONE, sum_forward, sum_grad, tl_reduce_sample);

tl_tensor *tl_sum_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_sum, x, axes, n, keep, site);
}
