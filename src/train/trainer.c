/* The training step, in one place for plan and run. */
#include "optim/optimizer.h"
#include "train/trainer.h"

#include "tally/account.h"
#include "tally/grad.h"
#include "tally/init.h"
#include "tally/ops.h"
#include "tensor/ctx.h"

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
    if (tl_lora_check(&o->lora, &ctx->error) != TL_OK)
        return ctx->error.status;
    if (o->fp8 && o->lora.base != TL_LORA_PLAIN)
        return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "float8 layers over a base of %s; a plain base would work",
                           tl_lora_base_name(o->lora.base));
    if (o->autocast && (o->dtype != TL_F32 || (o->low != TL_BF16 && o->low != TL_F16)))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "autocast of %s parameters to %s; f32 to bf16 or f16 would work",
                           tl_dtype_name(o->dtype), tl_dtype_name(o->low));
    return TL_OK;
}

static tl_tensor *make_ring(tl_ctx *ctx, const tl_train_options *o) {
    tl_dim A = o->accumulation > 1 ? tl_dim_symbol(ctx, "A", o->accumulation, "micro-batches of a step") : tl_dim_of(1);
    tl_dim B = tl_dim_named(tl_dim_symbol(ctx, "B", o->micro_batch, "micro-batch"), "batch");
    tl_dim T = tl_dim_named(tl_dim_symbol(ctx, "T", o->seq, "sequence length"), "seq");
    return tl_keep(tl_empty(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(o->prefetch), A, tl_dim_of(2), B, T), TL_DATA));
}

tl_trainer *tl_trainer_new(tl_ctx *ctx, const tl_model *model, const tl_train_options *options) {
    if (ctx->error.status != TL_OK || check(ctx, options) != TL_OK)
        return NULL;
    tl_trainer *trainer = tl_host_alloc(ctx, sizeof *trainer);
    if (!trainer)
        return NULL;
    trainer->ctx = ctx;
    trainer->options = *options;
    trainer->scaler.scale = TL_LOSS_SCALE_START;
    trainer->net = tl_net_new_lora(ctx, model, options->dtype, options->init, &options->lora);
    trainer->options.lora.targets = NULL; /* borrowed until here */
    if (trainer->net && (!options->fp8 || tl_net_use_fp8(trainer->net) == TL_OK)) {
        const tl_parameter *list;
        int count = tl_net_parameters(trainer->net, &list);
        tl_net_train(trainer->net, true);
        if (tl_net_recompute(trainer->net, options->recompute) == TL_OK)
            trainer->optimizer = tl_optimizer_new(ctx, list, count, &options->optimizer);
    }
    if (trainer->optimizer && options->prefetch > 0)
        trainer->ring = make_ring(ctx, options);
    if (!trainer->optimizer || (options->prefetch > 0 && !trainer->ring) || tl_record(ctx, true) != TL_OK) {
        tl_trainer_free(trainer);
        return NULL;
    }
    return trainer;
}

void tl_trainer_free(tl_trainer *trainer) {
    if (!trainer)
        return;
    tl_tape_clear(trainer->ctx);
    tl_free(trainer->ring);
    tl_optimizer_free(trainer->optimizer);
    tl_net_free(trainer->net);
    tl_host_free(trainer->ctx, trainer, sizeof *trainer);
}

tl_status tl_trainer_resize(tl_trainer *trainer, int64_t micro_batch, int64_t seq) {
    tl_train_options options = trainer->options;
    options.micro_batch = micro_batch;
    options.seq = seq;
    tl_status status = trainer->ctx->error.status == TL_OK ? check(trainer->ctx, &options) : trainer->ctx->error.status;
    if (status != TL_OK)
        return status;
    trainer->options = options;
    if (trainer->ring) {
        tl_free(trainer->ring);
        trainer->ring = make_ring(trainer->ctx, &options);
    }
    return tl_ctx_status(trainer->ctx);
}

tl_net *tl_trainer_net(const tl_trainer *trainer) { return trainer->net; }

tl_optimizer *tl_trainer_optimizer(const tl_trainer *trainer) { return trainer->optimizer; }

tl_tensor *tl_trainer_ring(const tl_trainer *trainer) { return trainer->ring; }

bool tl_trainer_scaler(const tl_trainer *tr, tl_loss_scaler *scaler) {
    *scaler = tr->scaler;
    return tr->options.loss_scaling;
}

tl_status tl_trainer_set_scaler(tl_trainer *tr, const tl_loss_scaler *scaler) {
    if (!tr->options.loss_scaling)
        return tl_ctx_fail(tr->ctx, TL_ERR_STATE, "a loss scale for a run without loss scaling");
    if (!(scaler->scale >= 1 && scaler->scale <= 0x1p126) || scaler->good_steps < 0 || scaler->skipped < 0)
        return tl_ctx_fail(
            tr->ctx, TL_ERR_ARGUMENT,
            "a loss scale of %g after %lld good and %lld skipped steps; a scale from 1 to 2^126 and counts "
            "from 0 would work",
            scaler->scale, (long long)scaler->good_steps, (long long)scaler->skipped);
    tr->scaler = *scaler;
    return TL_OK;
}

int tl_trainer_extra(const tl_trainer *tr, int k, const char **name, tl_tensor **tensor) {
    *tensor = tl_net_fp8_state(tr->net, k, name);
    return *tensor != NULL;
}

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
    uint64_t position = ctx->random_position;
    if (tr->options.autocast)
        (void)tl_autocast(ctx, tr->options.low); /* checked when the trainer was made */
    tl_tensor *loss = tl_net_loss(tr->net, batch.input, batch.target);
    if (tr->options.autocast)
        (void)tl_autocast(ctx, TL_F32);
    if (!loss)
        return ctx->error.status;
    if (!tl_ctx_is_meta(ctx)) {
        double value;
        if ((status = tl_item(loss, &value)) != TL_OK)
            return status;
        if (!(value - value == 0.0)) /* NaN or infinite */
            return tl_fail_not_finite_loss(tr, &batch, micro, value, position);
        sum->loss += batch.total ? value * (double)batch.counted : value;
    }
    tl_phase_set(ctx, TL_PHASE_BACKWARD);
    return tl_backward(ctx, loss, tr->options.loss_scaling ? weight * tr->scaler.scale : weight);
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

/* A skipped step: half the scale. States appear with it all the same, so that every step after the first allocates alike. */
static tl_status skip(tl_trainer *tr, tl_step_result *result) {
    tl_loss_scaler *s = &tr->scaler;
    int64_t steps = tl_optimizer_steps(tr->optimizer);
    if (s->scale <= 1)
        return tl_fail_not_finite_gradient(tr);
    tl_phase_set(tr->ctx, TL_PHASE_STEP);
    s->scale /= 2;
    s->good_steps = 0;
    s->skipped++;
    result->skipped = true;
    tl_status status = steps == 0 ? tl_optimizer_restore(tr->optimizer, 1) : TL_OK;
    return status == TL_OK && steps == 0 ? tl_optimizer_restore(tr->optimizer, 0) : status;
}

static void count_good_step(tl_loss_scaler *s) {
    if (++s->good_steps < TL_LOSS_SCALE_GROWS_AFTER)
        return;
    s->scale *= 2;
    s->good_steps = 0;
}

static tl_status update(tl_trainer *tr, double lr, tl_step_result *result) {
    tl_ctx *ctx = tr->ctx;
    double scale = tr->options.loss_scaling ? tr->scaler.scale : 1.0, total = 0;
    const tl_parameter *list;
    int count = tl_net_parameters(tr->net, &list);
    tl_tensor *squares = tl_gradient_squares(ctx, list, count);
    tl_status status = ctx->error.status;
    if (status == TL_OK && squares && !tl_ctx_is_meta(ctx) && (status = tl_item(squares, &total)) == TL_OK &&
        !(total - total == 0.0))
        return tr->options.loss_scaling ? skip(tr, result) : tl_fail_not_finite_gradient(tr);
    result->gradient_norm = __builtin_sqrt(total) / scale;
    tl_phase_set(ctx, TL_PHASE_STEP);
    if (status == TL_OK && tr->options.clip > 0) /* with a loss scale norm and limit are that much larger */
        status = tl_clip_by_squares(ctx, list, count, squares, tr->options.clip * scale);
    tl_optimizer_unscale(tr->optimizer, tr->options.loss_scaling, 1.0 / scale);
    if (status == TL_OK)
        status = tl_optimizer_step(tr->optimizer, lr);
    if (status == TL_OK && tr->options.loss_scaling && !tl_ctx_is_meta(ctx))
        count_good_step(&tr->scaler);
    return status;
}

static tl_status finish(tl_trainer *tr, double lr, tl_step_result *result) {
    tl_ctx *ctx = tr->ctx;
    const tl_parameter *list;
    int count = tl_net_parameters(tr->net, &list);
    tl_status status = reduce_gradients(tr, list, count);
    if (status != TL_OK)
        return status;
    bool recording = ctx->recording;
    ctx->recording = false;
    status = update(tr, lr, result);
    if (status == TL_OK)
        status = tl_net_fp8_roll(tr->net);
    ctx->recording = recording;
    return status;
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
