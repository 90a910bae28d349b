/* x·factor + offset; of integers, rounded to nearest. */
#include "op/elementwise.h"

#include <string.h>

static tl_status scale_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_arithmetic(sig, 0);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

static void scale_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, TL_ATTR(tl_scale_attr, sig)->offset == 0 ? 1 : 2,
                  0); /* one ×, and one + if there is one */
}

static tl_status scale_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->scale);
}

static tl_status scale_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_scale_(gout[0], ((const tl_scale_attr *)tl_saved_attr(saved))->factor, 0, saved->site);
    return tl_ctx_status(ctx);
}

static void scale_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    tl_scale_attr attr = {(double)(tl_sample_below(&seed, 9) - 4) / 4, (double)tl_sample_below(&seed, 3)};
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(scale, sizeof(tl_scale_attr), scale_infer, scale_cost, TL_SAVES_NONE, scale_forward, scale_grad, scale_sample);

tl_tensor *tl_scale_(tl_tensor *x, double factor, double offset, const char *site) {
    tl_scale_attr attr = {factor, offset};
    return tl_run1(&tl_op_scale, (tl_tensor *[]){x}, 1, &attr, site);
}
