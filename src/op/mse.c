/* Mean of (a − b)². */
#include "op/rows.h"

static tl_status want_pair(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)))
        return status;
    if (sig->in[1]->dtype != sig->in[0]->dtype)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "a is %s and b is %s; cast one of them", tl_dtype_name(sig->in[0]->dtype),
                           tl_dtype_name(sig->in[1]->dtype));
    return tl_sig_want_shape(sig, 1, &sig->in[0]->shape, "b");
}

static tl_status mse_infer(tl_sig *sig) {
    tl_shape one = {.ndim = 0};
    tl_status status = want_pair(sig);
    if (status == TL_OK)
        tl_sig_add(sig, tl_statistic_dtype(sig->in[0]->dtype), &one);
    return status;
}

static void mse_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *a = &sig->in[0]->shape;
    cost->arithmetic = tl_amount_shape(sig->ctx, 3, a); /* a − b, its square, Σ; then the division */
    tl_amount_more(sig->ctx, &cost->arithmetic, 1, NULL, 0);
    cost->workspace =
        tl_dim_mul(sig->ctx, tl_dim_of(8), tl_dim_ceil_div(sig->ctx, tl_elements_dim(sig->ctx, a), TL_ERROR_BLOCK));
}

static void mse_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 3;
}

static tl_status mse_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->mse); }

/* in: a, b, gradient of the loss */
static tl_status backward_infer(tl_sig *sig) {
    tl_status status = want_pair(sig);
    if (status == TL_OK)
        status = tl_sig_want_one(sig, 2, "the loss's gradient");
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 2, &sig->in[0]->shape); /* (a − b)·factor; factor = 2·gradient ÷ n */
    tl_amount_more(sig->ctx, &cost->arithmetic, 2, NULL, 0);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->mse_backward);
}

static void mse_sample(uint64_t seed, tl_case *c) {
    int64_t size[2] = {tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 1100)}; /* one block or two */
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, size);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

static void backward_sample(uint64_t seed, tl_case *c) {
    mse_sample(seed, c);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 0, NULL);
}

TL_OP(mse_backward, 0, backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD, backward_sample);

static tl_status mse_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_saved_in(saved, 1), gout[0]};
    tl_tensor *g = tl_run1(&tl_op_mse_backward, in, 3, NULL, saved->site);
    if (tl_saved_needs(saved, 0))
        gin[0] = g;
    if (tl_saved_needs(saved, 1))
        gin[1] = tl_neg_(g, saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(mse, 0, mse_infer, mse_cost, mse_saves, mse_forward, mse_grad, mse_sample);

tl_tensor *tl_mse_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_mse, (tl_tensor *[]){a, b}, 2, NULL, site);
}
