/* The training step, in one place for plan and run. */
#include "optim/optimizer.h"
#include "train/trainer.h"

#include "tally/account.h"
#include "tally/grad.h"
#include "tally/init.h"
#include "tally/ops.h"
#include "tensor/ctx.h"

/* What needs all gradients before the first update, or more than one backward pass to each. */
static tl_status check_in_backward(tl_ctx *ctx, const tl_train_options *o) {
    const char *why = NULL, *would = NULL;
    if (o->clip > 0)
        why = "clipping by the global norm needs all gradients first", would = "no clipping";
    else if (o->accumulation > 1)
        why = "gradients are whole after the last micro-batch alone", would = "one micro-batch a step";
    else if (o->loss_scaling)
        why = "with loss scaling a step is skipped once a gradient is not finite", would = "another precision";
    else if (o->choices.grads == TL_GRADS_F32)
        why = "buffers that live from step to step are never let go", would = "gradients in the parameters' format";
    else if (o->choices.update == TL_UPDATE_FOREACH)
        why = "an update of all parameters at once needs all gradients", would = "update tensor or fused";
    return why ? tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "update-in-backward: %s; %s would work", why, would) : TL_OK;
}

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
    return o->choices.update_in_backward ? check_in_backward(ctx, o) : TL_OK;
}

static tl_tensor *make_ring(tl_ctx *ctx, const tl_train_options *o) {
    tl_dim A = o->accumulation > 1 ? tl_dim_symbol(ctx, "A", o->accumulation, "micro-batches of a step") : tl_dim_of(1);
    tl_dim B = tl_dim_named(tl_dim_symbol(ctx, "B", o->micro_batch, "micro-batch"), "batch");
    tl_dim T = tl_dim_named(tl_dim_symbol(ctx, "T", o->seq, "sequence length"), "seq");
    return tl_keep(tl_empty(
        ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(o->prefetch), A, tl_dim_of(o->choices.documents ? 3 : 2), B, T), TL_DATA));
}

/* Buffers in f32 that backward adds into from the first step on (Shoeybi et al. 2019, Megatron-LM's main_grad). A frozen parameter has
 * none. */
static tl_status make_main_gradients(tl_trainer *trainer) {
    tl_ctx *ctx = trainer->ctx;
    const tl_parameter *list;
    int count = tl_net_parameters(trainer->net, &list);
    tl_place before = ctx->place;
    tl_scope_begin(ctx);
    for (int i = 0; i < count && ctx->error.status == TL_OK; i++) {
        tl_tensor *parameter = list[i].tensor;
        if (!parameter->requires_grad)
            continue;
        ctx->place.region = parameter->storage->region;
        ctx->place.module = parameter->storage->module;
        tl_tensor *grad = tl_empty(ctx, parameter->dtype == TL_F64 ? TL_F64 : TL_F32, parameter->shape, TL_GRAD);
        if (grad && tl_fill(grad, 0))
            parameter->grad = tl_keep(grad);
    }
    tl_scope_end(ctx);
    ctx->place = before;
    return ctx->error.status;
}

static tl_status make_parts(tl_trainer *trainer) {
    tl_ctx *ctx = trainer->ctx;
    tl_train_options *options = &trainer->options;
    const tl_parameter *list;
    int count = tl_net_parameters(trainer->net, &list);
    tl_net_train(trainer->net, true);
    ctx->grads_apart = options->choices.grads_apart;
    tl_status status = options->fp8 ? tl_net_use_fp8(trainer->net) : TL_OK;
    if (status == TL_OK)
        status = tl_net_recompute(trainer->net, options->recompute);
    if (status == TL_OK)
        status = tl_net_choose(trainer->net, &options->choices);
    if (status == TL_OK && !(trainer->optimizer = tl_optimizer_new(ctx, list, count, &options->optimizer)))
        status = ctx->error.status;
    if (status == TL_OK && options->choices.grads == TL_GRADS_F32)
        status = make_main_gradients(trainer);
    if (status == TL_OK && options->prefetch > 0 && !(trainer->ring = make_ring(ctx, options)))
        status = ctx->error.status;
    return status == TL_OK ? tl_record(ctx, true) : status;
}

/* The choices that are about adapters and their base; those that change nothing are left out (tl_plan says so). */
static void choose_lora(tl_lora_options *lora, const tl_model *model, const tl_choices *c) {
    bool quantised = lora->base != TL_LORA_PLAIN;
    lora->adapters_f32 |= c->adapters_f32 && lora->rank > 0;
    lora->base_head |= c->base_head && quantised && !model->tied;
    lora->base_by_f16 |= c->base_by_f16 && lora->base >= TL_LORA_NF4;
    lora->base_keeps_input |= c->base_keeps_input && quantised;
}

tl_trainer *tl_trainer_new(tl_ctx *ctx, const tl_model *model, const tl_train_options *options) {
    if (ctx->error.status != TL_OK || check(ctx, options) != TL_OK)
        return NULL;
    if (model->router_loss > 0 && !tl_ctx_is_meta(ctx)) {
        tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED,
                    "%s asks for %g times its router's load-balancing loss, which training does not add; without it "
                    "(output_router_logits false in its config.json) it is trained",
                    model->name, model->router_loss);
        return NULL;
    }
    tl_trainer *trainer = tl_host_alloc(ctx, sizeof *trainer);
    if (!trainer)
        return NULL;
    trainer->ctx = ctx;
    trainer->options = *options;
    trainer->options.optimizer.update = options->choices.update;
    trainer->scaler.scale = TL_LOSS_SCALE_START;
    tl_lora_options lora = options->lora;
    choose_lora(&lora, model, &options->choices);
    trainer->net = tl_net_new_lora(ctx, model, options->dtype, options->init, &lora);
    trainer->options.lora.targets = trainer->options.lora.trained = NULL; /* borrowed until here */
    if (!trainer->net || make_parts(trainer) != TL_OK) {
        tl_trainer_free(trainer);
        return NULL;
    }
    trainer->options.optimizer.groups = NULL; /* borrowed until here */
    trainer->options.optimizer.n_groups = 0;
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
        if (options->choices.documents)
            batch->positions = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, B, T), TL_DATA);
    }
    return tl_ctx_status(ctx);
}

/* A step's running sums. */
typedef struct sums {
    double lr;              /* the step's, for updates in backward */
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

static tl_status reduce_gradient(tl_trainer *tr, tl_tensor *parameter) {
    tl_tensor *grad = tl_tensor_grad(parameter);
    if (!grad || tr->options.ranks < 2)
        return tr->ctx->error.status;
    tr->ctx->place.region = grad->storage->region;
    tr->ctx->place.module = grad->storage->module;
    tl_release(tl_all_reduce(grad, tr->options.ranks, true));
    return tr->ctx->error.status;
}

/* A parameter whose gradient is whole: reduced, looked at, stepped, let go. What a step does at its end for all. */
static tl_status step_leaf(void *user, tl_tensor *parameter) {
    tl_trainer *tr = user;
    tl_ctx *ctx = tr->ctx;
    const tl_parameter *list;
    int i = 0, count = tl_net_parameters(tr->net, &list);
    while (i < count && list[i].tensor != parameter)
        i++;
    if (i == count)
        return TL_OK; /* no parameter of this net */
    double squares = 0;
    tl_scope_begin(ctx);
    tl_status status = reduce_gradient(tr, parameter);
    tl_tensor *sum = status == TL_OK ? tl_gradient_squares(ctx, &list[i], 1) : NULL;
    if (status == TL_OK && sum && !tl_ctx_is_meta(ctx))
        status = tl_item(sum, &squares);
    if (status == TL_OK && !(squares - squares == 0.0))
        status = tl_fail_not_finite_gradient(tr);
    tr->squares += squares;
    if (status == TL_OK)
        status = tl_optimizer_step_one(tr->optimizer, i, tr->lr);
    tl_scope_end(ctx);
    if (status == TL_OK)
        tl_tensor_clear_grad(parameter);
    return status;
}

/* They stay until backward is done, which may run layers again. */
static tl_status take_documents(tl_trainer *tr, const tl_batch *b, int64_t micro) {
    const bool masked = tr->options.choices.documents && tl_net_model(tr->net)->family != TL_FAMILY_CRUNCHER;
    if (masked == (b->positions != NULL))
        return tl_net_documents(tr->net, b->positions);
    return tl_ctx_fail(tr->ctx, TL_ERR_ARGUMENT,
                       masked ? "micro-batch %lld has no positions, and documents are masked (choice documents)"
                              : "micro-batch %lld has positions, and documents are joined (choice documents)",
                       (long long)micro + 1);
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
    if ((status = take_documents(tr, &batch, micro)) != TL_OK)
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
    if (tr->options.choices.update_in_backward && (status = tl_optimizer_begin_step(tr->optimizer, sum->lr)) != TL_OK)
        return status;
    tr->lr = sum->lr;
    tr->squares = 0;
    tl_backward_each_leaf(ctx, tr->options.choices.update_in_backward ? step_leaf : NULL, tr);
    status = tl_backward(ctx, loss, tr->options.loss_scaling ? weight * tr->scaler.scale : weight);
    tl_net_let_go(tr->net);
    return status;
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
    for (int i = 0; i < count && tr->options.ranks > 1; i++)
        if (reduce_gradient(tr, list[i].tensor) != TL_OK)
            break;
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
    if (tr->options.choices.update_in_backward)
        result->gradient_norm = __builtin_sqrt(tr->squares);
    else
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
    tl_net_let_go(tr->net);
    tl_net_documents(tr->net, NULL); /* which cannot fail */
    bool recording = tr->ctx->recording;
    tr->ctx->recording = false;
    for (int i = 0; i < count; i++) {
        tl_tensor *grad = list[i].tensor->grad;
        if (grad && tr->options.choices.grads == TL_GRADS_F32)
            tl_release(tl_fill(grad, 0)); /* it stays, for the next step to add into */
        else
            tl_tensor_clear_grad(list[i].tensor);
    }
    tr->ctx->recording = recording;
}

tl_status tl_trainer_step(tl_trainer *tr, tl_batch_source *source, void *user, double lr, tl_step_result *result) {
    tl_ctx *ctx = tr->ctx;
    tl_step_result local = {0};
    sums sum = {.lr = lr};
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
