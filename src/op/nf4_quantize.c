/* To NF4: a code for each value and the largest magnitude of each block. */
#include "op/nf4.h"

static tl_status nf4_quantize_infer(tl_sig *sig) {
    tl_ctx *ctx = sig->ctx;
    tl_status status = tl_sig_want_float(sig, 0);
    if (status != TL_OK)
        return status;
    tl_dim n = tl_elements_dim(ctx, &sig->in[0]->shape);
    tl_shape bytes = TL_SHAPE(ctx, tl_dim_ceil_div(ctx, n, 2)), blocks = TL_SHAPE(ctx, tl_dim_ceil_div(ctx, n, 64));
    tl_sig_add(sig, TL_U8, &bytes);
    tl_sig_add(sig, TL_F32, &blocks);
    return ctx->error.status;
}

static void nf4_quantize_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape); /* ÷ scale; comparing counts nothing */
}

static tl_status nf4_quantize_forward(const tl_sig *sig, tl_args *args) {
    args->kernels->nf4_quantize(&args->call);
    if (!args->call.fault)
        return TL_OK;
    return tl_ctx_fail(
        sig->ctx, TL_ERR_ARGUMENT,
        "%s (%s): value %lld is NaN, infinite or beyond f32 and has no NF4 form; finite values would work",
        sig->op->name, sig->site, (long long)args->call.fault - 1);
}

static void nf4_quantize_sample(uint64_t seed, tl_case *c) {
    int64_t size[2] = {1 + tl_sample_below(&seed, 7), tl_sample_below(&seed, 60)};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, size);
    c->n_out = 2;
}

TL_OP(nf4_quantize, 0, nf4_quantize_infer, nf4_quantize_cost, TL_SAVES_NONE, nf4_quantize_forward, TL_NO_GRAD,
      nf4_quantize_sample);

extern const tl_op tl_op_nf4_scales;

tl_status tl_quantize_nf4_(tl_tensor *x, bool twice, tl_nf4 *w, const char *site) {
    tl_tensor *out[2] = {0}, *again[3] = {0};
    *w = (tl_nf4){0};
    if (!x)
        return TL_ERR_ARGUMENT;
    tl_status status = tl_run(x->ctx, &tl_op_nf4_quantize, &x, 1, NULL, out, 2, site);
    if (status == TL_OK && twice)
        status = tl_run(x->ctx, &tl_op_nf4_scales, &out[1], 1, NULL, again, 3, site);
    if (status != TL_OK)
        return status;
    w->packed = out[0];
    w->scales = twice ? again[0] : out[1];
    w->outer = again[1];
    w->mean = again[2];
    if (twice)
        tl_release(out[1]);
    return TL_OK;
}
