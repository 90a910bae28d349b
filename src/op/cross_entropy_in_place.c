/* Cross-entropy whose gradient is written over the logits: for a loss that makes its gradients in forward, a chunk of tokens at
 * a time (Hsu et al. 2024, Liger Kernel, section 3.2; Wijmans et al. 2024, Cut Your Losses). */
#include "op/inplace.h"
#include "op/rows.h"
#include "tally/ops_choices.h"

#include <string.h>

/* in: logits, targets, weight → the logits' gradient times the weight, in place; the mean loss, without it */
static tl_status in_place_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 1)) || (status = tl_sig_want_index(sig, 1, "the targets")))
        return status;
    tl_shape rows = tl_shape_leading(&sig->in[0]->shape), one = {.ndim = 0};
    if ((status = tl_sig_want_shape(sig, 1, &rows, "the target tensor")) ||
        (status = tl_sig_want_one(sig, 2, "the weight")) || (status = tl_inplace_infer_float(sig)))
        return status;
    tl_sig_add(sig, tl_statistic_dtype(sig->in[0]->dtype), &one);
    return TL_OK;
}

static void in_place_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[0]->shape, *targets = &sig->in[1]->shape;
    tl_ctx *ctx = sig->ctx;
    /* cross_entropy's 2 and e^ an element, 3 and log a row, a ÷; its backward's 2 and e^ an element, 1 a row, a ÷ */
    cost->arithmetic = tl_amount_shape(ctx, 4, x);
    tl_amount_more(ctx, &cost->arithmetic, 4, x->dim, x->ndim - 1);
    tl_amount_more(ctx, &cost->arithmetic, 2, NULL, 0);
    cost->special = tl_amount_shape(ctx, 2, x);
    tl_amount_more(ctx, &cost->special, 1, x->dim, x->ndim - 1);
    int64_t statistic = tl_dtype_bytes(sig->out[1].dtype), size = tl_dtype_bytes(sig->in[0]->dtype);
    cost->read = tl_amount_shape(ctx, 2 * size, x);
    tl_amount_more(ctx, &cost->read, 2 * tl_dtype_bytes(sig->in[1]->dtype), targets->dim, targets->ndim);
    tl_amount_more(ctx, &cost->read, tl_dtype_bytes(sig->in[2]->dtype), NULL, 0);
    cost->written = tl_amount_shape(ctx, size, x);
    tl_amount_more(ctx, &cost->written, statistic, NULL, 0);
    cost->read_set = cost->written_set = true;
    /* a row's log-sum-exp, and how many count */
    cost->workspace = tl_dim_add(ctx, tl_dim_mul(ctx, tl_dim_of(statistic), tl_rows_dim(ctx, x)), tl_dim_of(statistic));
}

static tl_status in_place_forward(const tl_sig *sig, tl_args *args) {
    tl_kcall *call = &args->call;
    tl_array logits = call->in[0], targets = call->in[1], weight = call->in[2], loss = call->out[1];
    tl_array lse = targets, count = loss;
    int64_t rows = 1;
    lse.dtype = count.dtype = sig->out[1].dtype;
    for (int d = targets.ndim - 1; d >= 0; d--) {
        lse.stride[d] = rows;
        rows *= targets.size[d];
    }
    lse.data = call->work;
    count.data = (char *)call->work + rows * tl_dtype_bytes(lse.dtype);
    call->n_in = 2;
    call->n_out = 3;
    call->out[0] = loss;
    call->out[1] = lse;
    call->out[2] = count;
    args->kernels->cross_entropy(call);
    if (call->fault)
        return tl_ctx_fail(sig->ctx, TL_ERR_ARGUMENT,
                           "%s (%s): the target at position %lld is outside 0 … %lld and is not the ignored index %lld",
                           sig->op->name, sig->site, (long long)call->fault - 1,
                           (long long)logits.size[logits.ndim - 1] - 1,
                           (long long)TL_ATTR(tl_loss_attr, sig)->ignore_index);
    call->n_in = 5;
    call->n_out = 1;
    call->in[2] = lse;
    call->in[3] = count;
    call->in[4] = weight;
    call->out[0] = logits;
    return tl_args_run(sig, args, args->kernels->cross_entropy_backward);
}

static void in_place_sample(uint64_t seed, tl_case *c) {
    int64_t size[2] = {1 + tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 40)};
    tl_loss_attr attr = {tl_sample_below(&seed, 2) ? -100 : 0};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, size);
    c->in[0].fixed_layout = true;
    tl_sample_input(c, tl_sample_below(&seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, 1, size);
    c->in[1].limit = size[1];
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, (int64_t[]){1});
    memcpy(c->attr, &attr, sizeof attr);
    c->in_place = true;
    c->n_out = 2;
    c->tolerance = 1e-5;
}

TL_OP(cross_entropy_in_place, sizeof(tl_loss_attr), in_place_infer, in_place_cost, TL_SAVES_NONE, in_place_forward,
      TL_NO_GRAD, in_place_sample);

tl_tensor *tl_cross_entropy_in_place_(tl_tensor *logits, tl_tensor *targets, tl_tensor *weight, int64_t ignore_index,
                                      const char *site) {
    tl_loss_attr attr = {ignore_index};
    tl_tensor *in[] = {logits, targets, weight}, *out[2] = {NULL, NULL};
    if (!logits || tl_run(logits->ctx, &tl_op_cross_entropy_in_place, in, 3, &attr, out, 2, site) != TL_OK)
        return NULL;
    tl_release(out[0]); /* the caller has a handle on it */
    return out[1];
}
