/* −weight[t]·log_p[n,t,d…], as it is, summed, or as a weighted mean. One read and one addition a target. */
#include "op/rows.h"
#include "tally/ops_layers.h"

#include <stdio.h>
#include <string.h>

static tl_status want_inputs(tl_sig *sig) {
    const tl_shape *log_p = &sig->in[0]->shape;
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 2)) || (status = tl_sig_want_float(sig, 0)) ||
        (status = tl_sig_want_index(sig, 1, "the targets")))
        return status;
    tl_shape targets = *log_p;
    targets.ndim--;
    for (int d = 1; d < targets.ndim; d++)
        targets.dim[d] = log_p->dim[d + 1];
    if ((status = tl_sig_want_shape(sig, 1, &targets, "the target tensor")))
        return status;
    if (sig->n_in < 3)
        return TL_OK;
    return (status = tl_sig_want_float(sig, 2)) ? status
                                                : tl_sig_want_vector(sig, 2, log_p->dim[1], "the class weights");
}

static tl_status nll_loss_infer(tl_sig *sig) {
    tl_nll_reduction reduction = TL_ATTR(tl_nll_attr, sig)->reduction;
    tl_status status = want_inputs(sig);
    if (status != TL_OK)
        return status;
    tl_dtype dtype = tl_statistic_dtype(sig->in[0]->dtype);
    tl_shape one = {.ndim = 0};
    tl_sig_add(sig, dtype, reduction == TL_NLL_NONE ? &sig->in[1]->shape : &one);
    if (sig->recording && reduction == TL_NLL_MEAN)
        tl_sig_add(sig, dtype, &one)->hidden = true; /* the sum of the weights that count */
    return TL_OK;
}

static void nll_loss_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *targets = &sig->in[1]->shape;
    int64_t bytes = tl_dtype_bytes(sig->in[0]->dtype) + tl_dtype_bytes(sig->in[1]->dtype);
    /* −w·lp 1, Σ 1, Σw 1; a mean divides once. Of log_p, one class a target is read. */
    cost->arithmetic = tl_amount_shape(sig->ctx, 3, targets);
    if (TL_ATTR(tl_nll_attr, sig)->reduction == TL_NLL_MEAN)
        tl_amount_more(sig->ctx, &cost->arithmetic, 1, NULL, 0);
    cost->read = tl_amount_shape(sig->ctx, bytes, targets);
    if (sig->n_in > 2)
        tl_amount_more(sig->ctx, &cost->read, tl_dtype_bytes(sig->in[2]->dtype), sig->in[2]->shape.dim, 1);
    cost->read_set = true;
}

static void nll_loss_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = sig->n_in > 2 ? 7 : 3;
    if (TL_ATTR(tl_nll_attr, sig)->reduction == TL_NLL_MEAN)
        saves->out = 3;
}

static tl_status nll_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel) {
    kernel(&args->call);
    if (!args->call.fault)
        return TL_OK;
    int64_t ignore = TL_ATTR(tl_nll_attr, sig)->ignore_index;
    char ignored[64] = "";
    if (ignore != INT64_MIN)
        snprintf(ignored, sizeof ignored, " and is not the ignored index %lld", (long long)ignore);
    return tl_ctx_fail(sig->ctx, TL_ERR_ARGUMENT, "%s (%s): the target at position %lld is outside 0 … %lld%s",
                       sig->op->name, sig->site, (long long)args->call.fault - 1,
                       (long long)sig->in[0]->shape.dim[1].size - 1, ignored);
}

static tl_status nll_loss_forward(const tl_sig *sig, tl_args *args) {
    return nll_run(sig, args, args->kernels->nll_loss);
}

/* in: log p, targets, gradient, [weight], [sum of weights, loss: mean only] */
typedef struct backward_attr {
    tl_nll_attr nll; /* first: the kernel reads this much */
    bool has_weight, wants_log_p, wants_weight;
} backward_attr;

static tl_status backward_infer(tl_sig *sig) {
    const backward_attr *attr = TL_ATTR(backward_attr, sig);
    tl_status status;
    int n_in = sig->n_in, next = 3;
    sig->n_in = 2;
    status = want_inputs(sig);
    sig->n_in = n_in;
    if (status != TL_OK)
        return status;
    if (attr->nll.reduction == TL_NLL_NONE)
        status = tl_sig_want_shape(sig, 2, &sig->in[1]->shape, "the loss's gradient");
    else
        status = tl_sig_want_one(sig, 2, "the loss's gradient");
    if (status == TL_OK && attr->has_weight)
        status = tl_sig_want_vector(sig, next++, tl_in_dim(sig, 0, 1), "the class weights");
    if (status == TL_OK && attr->nll.reduction == TL_NLL_MEAN &&
        (status = tl_sig_want_one(sig, next++, "the sum of weights")) == TL_OK)
        status = tl_sig_want_one(sig, next, "the loss");
    if (status != TL_OK)
        return status;
    if (attr->wants_log_p)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    if (attr->wants_weight && attr->has_weight)
        tl_sig_add(sig, sig->in[3]->dtype, &sig->in[3]->shape);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    const backward_attr *attr = TL_ATTR(backward_attr, sig);
    /* g ÷ total, · w; and g·(−lp − loss), Σ */
    cost->arithmetic =
        tl_amount_shape(sig->ctx, (attr->wants_log_p ? 2 : 1) + (attr->wants_weight ? 3 : 0), &sig->in[1]->shape);
    /* Of log_p, one class a target, and only for the weight's gradient. */
    if (attr->wants_weight)
        cost->read = tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[0]->dtype), &sig->in[1]->shape);
    for (int i = 1; i < sig->n_in; i++)
        cost->read = tl_amount_add(sig->ctx, cost->read,
                                   tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[i]->dtype), &sig->in[i]->shape));
    cost->read_set = true;
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    const backward_attr *attr = TL_ATTR(backward_attr, sig);
    tl_array given[6], none = args->call.in[0];
    tl_array out[2] = {args->call.out[0], args->call.out[1]};
    memcpy(given, args->call.in, sizeof given);
    none.data = NULL;
    int next = 3, next_out = 0;
    args->call.in[2] = attr->has_weight ? given[next++] : none;
    args->call.in[3] = given[2];
    args->call.in[4] = given[next];
    args->call.in[5] = given[next + 1];
    args->call.n_in = 6;
    args->call.out[0] = attr->wants_log_p ? out[next_out++] : none;
    args->call.out[1] = attr->wants_weight ? out[next_out] : none;
    args->call.n_out = 2;
    return nll_run(sig, args, args->kernels->nll_loss_backward);
}

static void sample_inputs(uint64_t *seed, tl_case *c, tl_nll_attr *attr) {
    int64_t size[4] = {1 + tl_sample_below(seed, 5), 1 + tl_sample_below(seed, 6), tl_sample_below(seed, 4),
                       1 + tl_sample_below(seed, 3)};
    int ndim = 2 + (int)tl_sample_below(seed, 3);
    memset(attr, 0, sizeof *attr);
    attr->reduction = (tl_nll_reduction)tl_sample_below(seed, 3);
    attr->ignore_index = tl_sample_below(seed, 2) ? 0 : -100;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, ndim, size);
    tl_sample_input(c, tl_sample_below(seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, ndim - 1,
                    (int64_t[]){size[0], size[2], size[3]});
    c->in[1].limit = size[1];
    c->n_out = 1;
    c->tolerance = 1e-6;
}

static void backward_sample(uint64_t seed, tl_case *c) {
    backward_attr attr;
    memset(&attr, 0, sizeof attr);
    sample_inputs(&seed, c, &attr.nll);
    attr.has_weight = tl_sample_below(&seed, 2);
    attr.wants_weight = attr.has_weight && tl_sample_below(&seed, 2);
    attr.wants_log_p = !attr.wants_weight || tl_sample_below(&seed, 2);
    if (attr.nll.reduction == TL_NLL_NONE)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, c->in[1].ndim, c->in[1].size);
    else
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 0, NULL);
    if (attr.has_weight)
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, &c->in[0].size[1]);
    for (int i = 0; i < 2 && attr.nll.reduction == TL_NLL_MEAN; i++)
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 0, NULL);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = (attr.wants_log_p ? 1 : 0) + (attr.wants_weight ? 1 : 0);
}

TL_OP(nll_loss_backward, sizeof(backward_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status nll_loss_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    backward_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.nll = *(const tl_nll_attr *)tl_saved_attr(saved);
    attr.has_weight = saved->n_in > 2;
    attr.wants_log_p = tl_saved_needs(saved, 0);
    attr.wants_weight = attr.has_weight && tl_saved_needs(saved, 2);
    tl_tensor *in[6] = {tl_saved_in(saved, 0), tl_saved_in(saved, 1), gout[0]}, *out[2];
    int n = 3, next = 0;
    if (attr.has_weight)
        in[n++] = tl_saved_in(saved, 2);
    if (attr.nll.reduction == TL_NLL_MEAN) {
        in[n++] = tl_saved_out(saved, 1);
        in[n++] = tl_saved_out(saved, 0);
    }
    tl_status status = tl_run(ctx, &tl_op_nll_loss_backward, in, n, &attr, out,
                              (attr.wants_log_p ? 1 : 0) + (attr.wants_weight ? 1 : 0), saved->site);
    if (attr.wants_log_p)
        gin[0] = out[next++];
    if (attr.wants_weight)
        gin[2] = out[next];
    return status;
}

static void nll_loss_sample(uint64_t seed, tl_case *c) {
    tl_nll_attr attr;
    sample_inputs(&seed, c, &attr);
    if (tl_sample_below(&seed, 2))
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, &c->in[0].size[1]);
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(nll_loss, sizeof(tl_nll_attr), nll_loss_infer, nll_loss_cost, nll_loss_saves, nll_loss_forward, nll_loss_grad,
      nll_loss_sample);

tl_tensor *tl_nll_loss_(tl_tensor *log_p, tl_tensor *targets, tl_tensor *weight, const tl_loss_options *options,
                        const char *site) {
    tl_nll_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.reduction = (tl_nll_reduction)options->reduction;
    attr.ignore_index = options->ignores ? options->ignore_index : INT64_MIN;
    return tl_run1(&tl_op_nll_loss, (tl_tensor *[]){log_p, targets, weight}, weight ? 3 : 2, &attr, site);
}
