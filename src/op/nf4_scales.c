/* The scales of an NF4 weight quantised once more: i8 codes of their distance from the mean. */
#include "op/nf4.h"

static tl_status nf4_scales_infer(tl_sig *sig) {
    tl_ctx *ctx = sig->ctx;
    const tl_tensor *s = sig->in[0];
    char text[200];
    if (s->dtype != TL_F32 || s->shape.ndim != 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the scales are %s; f32 along one axis would work",
                           tl_tensor_text(s, text, sizeof text));
    tl_shape outer = TL_SHAPE(ctx, tl_dim_ceil_div(ctx, s->shape.dim[0], TL_NF4_SCALE_BLOCK));
    tl_shape one = TL_SHAPE(ctx, tl_dim_of(1));
    tl_sig_add(sig, TL_I8, &s->shape);
    tl_sig_add(sig, TL_F32, &outer);
    tl_sig_add(sig, TL_F32, &one);
    return ctx->error.status;
}

/* Σ, − mean, ÷ outer; a block's largest ÷ 127; the mean's ÷ n */
static void nf4_scales_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 3, &sig->in[0]->shape);
    cost->arithmetic = tl_amount_add(sig->ctx, cost->arithmetic, tl_amount_shape(sig->ctx, 1, &sig->out[1].shape));
    cost->arithmetic = tl_amount_add(sig->ctx, cost->arithmetic, tl_amount_shape(sig->ctx, 1, &sig->out[2].shape));
}

static tl_status nf4_scales_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->nf4_scales);
}

static void nf4_scales_sample(uint64_t seed, tl_case *c) {
    int64_t size[1] = {tl_sample_below(&seed, 2) ? tl_sample_below(&seed, 20) : 250 + tl_sample_below(&seed, 300)};
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, size);
    c->in[0].fixed_dtype = true;
    c->n_out = 3;
}

TL_OP(nf4_scales, 0, nf4_scales_infer, nf4_scales_cost, TL_SAVES_NONE, nf4_scales_forward, TL_NO_GRAD,
      nf4_scales_sample);
