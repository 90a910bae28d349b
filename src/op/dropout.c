/* Dropout (Srivastava et al. 2014) in its inverted form: x·mask/(1 − p), the mask drawn anew by every call. */
#include "op/rows.h"

#include "base/stream.h"

#include <string.h>

static tl_status check_probability(tl_sig *sig) {
    double p = TL_ATTR(tl_random_attr, sig)->a;
    if (p >= 0 && p < 1)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the probability is %g; 0 or more and below 1 would work", p);
}

static tl_status dropout_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = check_probability(sig)))
        return status;
    tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    if (sig->recording)
        tl_sig_add(sig, TL_U8, &sig->in[0]->shape)->hidden = true;
    return TL_OK;
}

static void dropout_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape); /* ·1/(1 − p); drawing bits is no FLOP */
    if (sig->n_out == 1)                                                 /* a mask nobody keeps */
        cost->workspace = tl_elements_dim(sig->ctx, &sig->in[0]->shape);
}

static void dropout_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->out = 2;
}

static tl_status dropout_forward(const tl_sig *sig, tl_args *args) {
    if (args->call.n_out == 1) {
        tl_array *mask = &args->call.out[1];
        *mask = args->call.out[0]; /* contiguous, as the mask must be */
        mask->dtype = TL_U8;
        mask->data = args->call.work;
        args->call.n_out = 2;
    }
    return tl_args_run(sig, args, args->kernels->dropout);
}

/* in: mask, gradient */
static tl_status backward_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_float(sig, 1)) || (status = check_probability(sig)) ||
        (status = tl_sig_want_shape(sig, 0, &sig->in[1]->shape, "the mask")))
        return status;
    if (sig->in[0]->dtype != TL_U8)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the mask is %s; u8 would work", tl_dtype_name(sig->in[0]->dtype));
    tl_sig_add(sig, sig->in[1]->dtype, &sig->in[1]->shape);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[1]->shape);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->dropout_backward);
}

static void fill_attr(uint64_t *seed, tl_case *c) {
    tl_random_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.seed = 7;
    attr.stream = tl_stream_id("dropout", "sample");
    attr.first = (uint64_t)tl_sample_below(seed, 1000);
    attr.a = tl_sample_below(seed, 2) ? 0.1 : 0.5;
    memcpy(c->attr, &attr, sizeof attr);
}

static void sample_shape(uint64_t *seed, int64_t size[3]) {
    size[0] = 1 + tl_sample_below(seed, 3);
    size[1] = tl_sample_below(seed, 8);
    size[2] = 1 + tl_sample_below(seed, 70);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    fill_attr(&seed, c);
    tl_sample_input(c, TL_U8, TL_FILL_INDEX, 3, size);
    c->in[0].limit = 2;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(dropout_backward, sizeof(tl_random_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status dropout_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] =
        tl_run1(&tl_op_dropout_backward, (tl_tensor *[]){tl_saved_out(saved, 1), gout[0]}, 2, saved->attr, saved->site);
    return tl_ctx_status(ctx);
}

static void dropout_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    fill_attr(&seed, c);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    c->random = true;
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(dropout, sizeof(tl_random_attr), dropout_infer, dropout_cost, dropout_saves, dropout_forward, dropout_grad,
      dropout_sample);

tl_tensor *tl_dropout_(tl_tensor *x, double p, const char *name, const char *site) {
    if (!x || p == 0)
        return x;
    tl_ctx *ctx = x->ctx;
    tl_random_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.seed = ctx->seed_dropout;
    attr.stream = tl_stream_id("dropout", name ? name : "");
    attr.first = ctx->random_position;
    attr.a = p;
    tl_tensor *y = tl_run1(&tl_op_dropout, &x, 1, &attr, site);
    if (y) /* no two calls of a run share bits, and a checkpoint that keeps the position goes on alike */
        ctx->random_position += (uint64_t)tl_tensor_count(x);
    return y;
}
