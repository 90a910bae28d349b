/* The training step, in one place for plan and run. */
#include "tally/train.h"

#include "tally/account.h"
#include "tally/grad.h"
#include "tally/init.h"
#include "tally/ops.h"
#include "tensor/ctx.h"

struct tl_trainer {
    tl_ctx *ctx;
    tl_net *net;
    tl_optimizer *optimizer;
    tl_train_options options;
};

static tl_status check(tl_ctx *ctx, const tl_train_options *o) {
    const char *name = NULL;
    int64_t value = 0;
    if (o->micro_batch < 1)
        name = "micro-batch", value = o->micro_batch;
    else if (o->seq < 1)
        name = "sequence length", value = o->seq;
    else if (o->accumulation < 1)
        name = "number of micro-batches", value = o->accumulation;
    else if (o->ranks < 1)
        name = "number of ranks", value = o->ranks;
    if (name)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "the %s is %lld; 1 or more would work", name, (long long)value);
    if (o->ranks > 1 && !tl_ctx_is_meta(ctx))
        return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "%lld ranks: this build trains on one; plan takes any number",
                           (long long)o->ranks);
    if (!(o->clip >= 0))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "a clipping norm of %g; 0 (none) or a positive number would work",
                           o->clip);
    return TL_OK;
}

tl_trainer *tl_trainer_new(tl_ctx *ctx, const tl_model *model, const tl_train_options *options) {
    if (ctx->error.status != TL_OK || check(ctx, options) != TL_OK)
        return NULL;
    tl_trainer *trainer = tl_host_alloc(ctx, sizeof *trainer);
    if (!trainer)
        return NULL;
    trainer->ctx = ctx;
    trainer->options = *options;
    trainer->net = tl_net_new_as(ctx, model, options->dtype, options->init);
    if (trainer->net) {
        const tl_parameter *list;
        int count = tl_net_parameters(trainer->net, &list);
        tl_net_train(trainer->net, true);
        if (tl_net_recompute(trainer->net, options->recompute) == TL_OK)
            trainer->optimizer = tl_optimizer_new(ctx, list, count, &options->optimizer);
    }
    if (!trainer->optimizer || tl_record(ctx, true) != TL_OK) {
        tl_trainer_free(trainer);
        return NULL;
    }
    return trainer;
}

void tl_trainer_free(tl_trainer *trainer) {
    if (!trainer)
        return;
    tl_tape_clear(trainer->ctx);
    tl_optimizer_free(trainer->optimizer);
    tl_net_free(trainer->net);
    tl_host_free(trainer->ctx, trainer, sizeof *trainer);
}

tl_net *tl_trainer_net(const tl_trainer *trainer) { return trainer->net; }

tl_optimizer *tl_trainer_optimizer(const tl_trainer *trainer) { return trainer->optimizer; }

tl_status tl_batch_empty(tl_ctx *ctx, const tl_net *net, const tl_train_options *options, tl_batch *batch) {
    tl_dim B = tl_dim_named(tl_dim_symbol(ctx, "B", options->micro_batch, "micro-batch"), "batch");
    if (tl_net_model(net)->family == TL_FAMILY_CRUNCHER) {
        batch->input = tl_empty(ctx, options->dtype, TL_SHAPE(ctx, B, tl_net_symbols(net)->D), TL_DATA);
        batch->target = tl_empty(ctx, options->dtype, TL_SHAPE(ctx, B), TL_DATA);
    } else {
        tl_dim T = tl_dim_named(tl_dim_symbol(ctx, "T", options->seq, "sequence length"), "seq");
        batch->input = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, B, T), TL_DATA);
        batch->target = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, B, T), TL_DATA);
    }
    return tl_ctx_status(ctx);
}

/* A step's running sums. */
typedef struct sums {
    double loss;            /* of each micro-batch, times its counted targets where they are told */
    int64_t total, counted; /* told by the batches */
} sums;

/* A wrong weight would train on quietly, so what the batches tell has to agree. */
static tl_status weigh(tl_trainer *tr, const tl_batch *b, int64_t micro, sums *sum, double *weight) {
    if (micro == 0)
        sum->total = b->total;
    if (b->counted < 0 || b->counted > b->total || b->total != sum->total)
        return tl_ctx_fail(tr->ctx, TL_ERR_ARGUMENT,
                           "micro-batch %lld tells of %lld counted targets out of %lld, and the first of %lld; a count "
                           "no more than the step's total, which is the same in all of them, would work",
                           (long long)micro + 1, (long long)b->counted, (long long)b->total, (long long)sum->total);
    *weight = b->total ? (double)b->counted / (double)b->total : 1.0 / (double)tr->options.accumulation;
    return tl_add_i64(sum->counted, b->counted, &sum->counted)
               ? TL_OK
               : tl_ctx_fail(tr->ctx, TL_ERR_OVERFLOW, "the counted targets of this step are beyond 63 bits");
}

static tl_status micro_batch(tl_trainer *tr, tl_batch_source *source, void *user, int64_t micro, sums *sum) {
    tl_ctx *ctx = tr->ctx;
    tl_batch batch = {0};
    double weight = 1;
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_status status =
        source ? source(user, ctx, &tr->options, micro, &batch) : tl_batch_empty(ctx, tr->net, &tr->options, &batch);
    if (status != TL_OK || (status = weigh(tr, &batch, micro, sum, &weight)) != TL_OK)
        return status;
    tl_tensor *loss = tl_net_loss(tr->net, batch.input, batch.target);
    if (!loss)
        return ctx->error.status;
    if (!tl_ctx_is_meta(ctx)) {
        double value;
        if ((status = tl_item(loss, &value)) != TL_OK)
            return status;
        if (!(value - value == 0.0)) /* NaN or infinite */
            return tl_ctx_fail(ctx, TL_ERR_STATE,
                               "the loss is %g at step %lld, micro-batch %lld; stopped before the update", value,
                               (long long)tl_optimizer_steps(tr->optimizer) + 1, (long long)micro + 1);
        sum->loss += batch.total ? value * (double)batch.counted : value;
    }
    tl_phase_set(ctx, TL_PHASE_BACKWARD);
    return tl_backward(ctx, loss, weight);
}

static tl_status all_micro_batches(tl_trainer *tr, tl_batch_source *source, void *user, sums *sum) {
    tl_ctx *ctx = tr->ctx;
    tl_status status = TL_OK;
    if (tr->options.accumulation == 1) {
        tl_scope_begin(ctx);
        status = micro_batch(tr, source, user, 0, sum);
        tl_scope_end(ctx);
        return status;
    }
    (void)tl_dim_symbol(ctx, "A", tr->options.accumulation, "micro-batches of a step"); /* says where it is from */
    tl_repeat r = tr->options.condensed ? tl_repeat_begin_condensed(ctx, "A", tr->options.accumulation)
                                        : tl_repeat_begin(ctx, "A", tr->options.accumulation);
    while (tl_repeat_next(&r)) {
        status = micro_batch(tr, source, user, r.index, sum);
        if (status != TL_OK)
            tl_repeat_end(&r);
    }
    return ctx->error.status;
}

static tl_status reduce_gradients(tl_trainer *tr, const tl_parameter *list, int count) {
    for (int i = 0; i < count && tr->options.ranks > 1; i++) {
        tl_tensor *grad = tl_tensor_grad(list[i].tensor);
        if (!grad)
            continue;
        tr->ctx->place.region = grad->storage->region;
        tr->ctx->place.module = grad->storage->module;
        tl_release(tl_all_reduce(grad, tr->options.ranks, true));
    }
    tr->ctx->place.region = 0;
    tr->ctx->place.module = 0;
    return tr->ctx->error.status;
}

static tl_status finish(tl_trainer *tr, double lr, tl_step_result *result) {
    tl_ctx *ctx = tr->ctx;
    const tl_parameter *list;
    int count = tl_net_parameters(tr->net, &list);
    tl_status status = reduce_gradients(tr, list, count);
    if (status != TL_OK)
        return status;
    tl_phase_set(ctx, TL_PHASE_STEP);
    if (tr->options.clip > 0) {
        tl_tensor *norm = tl_clip_gradients(ctx, list, count, tr->options.clip);
        if (norm && !tl_ctx_is_meta(ctx) && (status = tl_item(norm, &result->gradient_norm)) != TL_OK)
            return status;
    }
    return tl_optimizer_step(tr->optimizer, lr);
}

/* Also after a failure: gradients of a step that did not happen must not be added to the next one's. */
static void let_gradients_go(tl_trainer *tr) {
    const tl_parameter *list;
    int count = tl_net_parameters(tr->net, &list);
    tl_tape_clear(tr->ctx);
    for (int i = 0; i < count; i++)
        tl_tensor_clear_grad(list[i].tensor);
}

tl_status tl_trainer_step(tl_trainer *tr, tl_batch_source *source, void *user, double lr, tl_step_result *result) {
    tl_ctx *ctx = tr->ctx;
    tl_step_result local = {0};
    sums sum = {0};
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_ledger_step_begin(ctx);
    tl_scope_begin(ctx);
    tl_status status = all_micro_batches(tr, source, user, &sum);
    if (status == TL_OK && sum.counted != sum.total)
        status =
            tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                        "the micro-batches' counted targets add up to %lld, and %lld were told as the step's total; "
                        "stopped before the update",
                        (long long)sum.counted, (long long)sum.total);
    if (status == TL_OK)
        status = finish(tr, lr, &local);
    let_gradients_go(tr);
    tl_scope_end(ctx);
    local.loss = sum.loss / (double)(sum.total ? sum.total : tr->options.accumulation);
    if (result)
        *result = local;
    return status;
}
