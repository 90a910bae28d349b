/* The mean over axes. Backward needs its size alone. Of nothing it is 0/0, NaN. */
#include "op/reduce.h"
#include "tally/ops_choices.h"

#include <string.h>

static tl_status mean_infer(tl_sig *sig) {
    int64_t reduced;
    tl_status status = tl_sig_want_float(sig, 0);
    return status == TL_OK ? tl_reduce_infer(sig, &reduced) : status;
}

/* One + per element of the input (see sum) and one ÷ per element of the output. */
static void mean_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape),
                                     tl_amount_shape(sig->ctx, 1, &sig->out[0].shape));
}

static tl_status mean_forward(const tl_sig *sig, tl_args *args) {
    return tl_reduce_run(sig, args, args->kernels->mean);
}

/* Scaled while it is small, then seen large. */
static tl_status mean_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    int64_t count = tl_reduce_count(tl_saved_attr(saved), tl_saved_shape(saved, 0));
    gin[0] = tl_reduce_spread(saved, tl_scale_(gout[0], count ? 1.0 / (double)count : 0, 0, saved->site));
    return tl_ctx_status(ctx);
}

static void mean_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = TL_ATTR(tl_reduce_attr, sig)->saves_input ? 1 : 0;
}

TL_OP(mean, sizeof(tl_reduce_attr), mean_infer, mean_cost, mean_saves, mean_forward, mean_grad, tl_reduce_sample);

tl_tensor *tl_mean_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_mean, x, axes, n, keep, site);
}

tl_tensor *tl_mean_of_kept_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    tl_reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    if (!x || n < 1 || n > TL_MAX_NDIM)
        return tl_reduce_call(&tl_op_mean, x, axes, n, keep, site); /* which says what is wrong */
    attr.keep = keep;
    attr.saves_input = true;
    attr.n = n;
    memcpy(attr.axes, axes, (size_t)n * sizeof *axes);
    return tl_run1(&tl_op_mean, (tl_tensor *[]){x}, 1, &attr, site);
}
