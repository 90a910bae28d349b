/* Mean over the counted targets of log Σ e^logit − logit[target]. The log-sum-exp of a row is kept, not its softmax. */
#include "op/rows.h"

#include <string.h>

static tl_status want_rows(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 1)) || (status = tl_sig_want_float(sig, 0)) ||
        (status = tl_sig_want_index(sig, 1, "the targets")))
        return status;
    tl_shape rows = tl_shape_leading(&sig->in[0]->shape);
    return tl_sig_want_shape(sig, 1, &rows, "the target tensor");
}

static tl_status cross_entropy_infer(tl_sig *sig) {
    tl_status status = want_rows(sig);
    if (status != TL_OK)
        return status;
    tl_dtype dtype = tl_statistic_dtype(sig->in[0]->dtype);
    tl_shape rows = tl_shape_leading(&sig->in[0]->shape), one = {.ndim = 0};
    tl_sig_add(sig, dtype, &one);
    if (sig->recording) {
        tl_sig_add(sig, dtype, &rows)->hidden = true; /* log-sum-exp */
        one.ndim = 1;
        one.dim[0] = tl_dim_fixed(sig->ctx, tl_dim_of(1));
        tl_sig_add(sig, TL_F32, &one)->hidden = true; /* how many targets count */
    }
    return TL_OK;
}

static void cross_entropy_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[0]->shape;
    /* An element: − largest, exp, Σ. A row: log, + largest, − logit[target], Σ. Then the division. */
    cost->arithmetic = tl_amount_shape(sig->ctx, 2, x);
    tl_amount_more(sig->ctx, &cost->arithmetic, 3, x->dim, x->ndim - 1);
    tl_amount_more(sig->ctx, &cost->arithmetic, 1, NULL, 0);
    cost->special = tl_amount_shape(sig->ctx, 1, x);
    tl_amount_more(sig->ctx, &cost->special, 1, x->dim, x->ndim - 1);
    if (sig->n_out == 1) /* nowhere to keep the rows' log-sum-exp */
        cost->workspace = tl_dim_mul(sig->ctx, tl_dim_of(tl_dtype_bytes(sig->out[0].dtype)), tl_rows_dim(sig->ctx, x));
}

static void cross_entropy_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 3;
    saves->out = 6;
}

static tl_status cross_entropy_forward(const tl_sig *sig, tl_args *args) {
    args->kernels->cross_entropy(&args->call);
    if (!args->call.fault)
        return TL_OK;
    const tl_shape *x = &sig->in[0]->shape;
    return tl_ctx_fail(sig->ctx, TL_ERR_ARGUMENT,
                       "%s (%s): the target at position %lld is outside 0 … %lld and is not the ignored index %lld",
                       sig->op->name, sig->site, (long long)args->call.fault - 1,
                       (long long)x->dim[x->ndim - 1].size - 1, (long long)TL_ATTR(tl_loss_attr, sig)->ignore_index);
}

/* in: logits, targets, log-sum-exp, count, gradient of the loss */
static tl_status backward_infer(tl_sig *sig) {
    tl_status status = want_rows(sig);
    if (status != TL_OK)
        return status;
    tl_shape rows = tl_shape_leading(&sig->in[0]->shape);
    if ((status = tl_sig_want_shape(sig, 2, &rows, "the log-sum-exp")) ||
        (status = tl_sig_want_one(sig, 3, "the count")) || (status = tl_sig_want_one(sig, 4, "the loss's gradient")))
        return status;
    tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[0]->shape;
    /* (e^(logit − lse) − [target])·factor: 2 and one exp an element, − 1 a row, factor = gradient ÷ count. */
    cost->arithmetic = tl_amount_shape(sig->ctx, 2, x);
    tl_amount_more(sig->ctx, &cost->arithmetic, 1, x->dim, x->ndim - 1);
    tl_amount_more(sig->ctx, &cost->arithmetic, 1, NULL, 0);
    cost->special = tl_amount_shape(sig->ctx, 1, x);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->cross_entropy_backward);
}

static void sample_rows(uint64_t *seed, tl_case *c) {
    int64_t size[3] = {1 + tl_sample_below(seed, 3), tl_sample_below(seed, 6), 1 + tl_sample_below(seed, 40)};
    int first = (int)tl_sample_below(seed, 3); /* [V], [R,V] or [B,T,V] */
    tl_loss_attr attr = {tl_sample_below(seed, 2) ? -100 : 0};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3 - first, size + first);
    tl_sample_input(c, tl_sample_below(seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, 2 - first, size + first);
    c->in[1].limit = size[2];
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

static void backward_sample(uint64_t seed, tl_case *c) {
    sample_rows(&seed, c);
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, c->in[1].ndim, c->in[1].size);
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, (int64_t[]){1});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 0, NULL);
}

TL_OP(cross_entropy_backward, sizeof(tl_loss_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status cross_entropy_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_saved_in(saved, 1), tl_saved_out(saved, 1), tl_saved_out(saved, 2),
                       gout[0]};
    gin[0] = tl_run1(&tl_op_cross_entropy_backward, in, 5, saved->attr, saved->site);
    return tl_ctx_status(ctx);
}

static void cross_entropy_sample(uint64_t seed, tl_case *c) { sample_rows(&seed, c); }

TL_OP(cross_entropy, sizeof(tl_loss_attr), cross_entropy_infer, cross_entropy_cost, cross_entropy_saves,
      cross_entropy_forward, cross_entropy_grad, cross_entropy_sample);

tl_tensor *tl_cross_entropy_(tl_tensor *logits, tl_tensor *targets, int64_t ignore_index, const char *site) {
    tl_loss_attr attr = {ignore_index};
    return tl_run1(&tl_op_cross_entropy, (tl_tensor *[]){logits, targets}, 2, &attr, site);
}
