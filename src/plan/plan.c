/* The account of a run before it: two steps on meta, the second one read. */
#include "plan/plan.h"

#include "optim/transfer.h"
#include "tally/engine.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

const char *tl_precision_name(tl_precision precision) {
    static const char *const names[] = {"fp32", "bf16", "bf16-mixed", "fp16-mixed", "fp8-mixed"};
    return (unsigned)precision < 5 ? names[precision] : "?";
}

/* Low-precision parameters and gradients beside an fp32 master copy and states; or, with autocast, parameters in fp32. */
static void mixed(tl_train_options *o, tl_dtype low) {
    o->dtype = o->autocast ? TL_F32 : low;
    o->low = low;
    o->optimizer.master = o->optimizer.state_f32 = !o->autocast;
}

tl_status tl_precision_apply(tl_precision precision, tl_train_options *o, tl_error *error) {
    o->optimizer.master = o->optimizer.state_f32 = o->loss_scaling = o->fp8 = false;
    switch (precision) {
    case TL_PRECISION_FP32:
    case TL_PRECISION_BF16:
        if (o->autocast)
            return tl_fail(
                error, TL_ERR_ARGUMENT,
                "autocast casts fp32 parameters for products in bf16 or fp16: %s has no use for it; bf16-mixed, "
                "fp16-mixed and fp8-mixed have",
                tl_precision_name(precision));
        o->dtype = precision == TL_PRECISION_FP32 ? TL_F32 : TL_BF16;
        return TL_OK;
    case TL_PRECISION_BF16_MIXED:
        mixed(o, TL_BF16);
        return TL_OK;
    case TL_PRECISION_FP16_MIXED:
        mixed(o, TL_F16);
        o->loss_scaling = true;
        return TL_OK;
    case TL_PRECISION_FP8_MIXED:
        mixed(o, TL_BF16);
        o->fp8 = true;
        return TL_OK;
    }
    return tl_fail(error, TL_ERR_ARGUMENT, "there is no precision %d", (int)precision);
}

/* Micro-batches times layers, where all of them run: a block's forward and backward leave 50 kB in the log. */
#define MOST_BLOCK_RUNS INT64_C(65536)

/* Micro-batches per step: global = micro-batch × accumulation × devices. */
static tl_status layout(const tl_plan_options *o, tl_train_options *train, tl_error *error) {
    int64_t per_micro = 0;
    if (o->micro_batch < 1 || o->seq < 1 || o->global_batch < 0 || o->devices.count < 1)
        return tl_fail(error, TL_ERR_ARGUMENT, "micro-batch %lld, sequence %lld, devices %lld: each must be at least 1",
                       (long long)o->micro_batch, (long long)o->seq, (long long)o->devices.count);
    if (!tl_mul_i64(o->micro_batch, o->devices.count, &per_micro))
        return tl_fail(error, TL_ERR_OVERFLOW, "%lld sequences on each of %lld devices is beyond 64 bits",
                       (long long)o->micro_batch, (long long)o->devices.count);
    int64_t global = o->global_batch ? o->global_batch : per_micro;
    if (global % per_micro)
        return tl_fail(
            error, TL_ERR_ARGUMENT,
            "a global batch of %lld sequences cannot be made of micro-batches of %lld on %lld devices; a multiple "
            "of %lld would work",
            (long long)global, (long long)o->micro_batch, (long long)o->devices.count, (long long)per_micro);
    int64_t micros = global / per_micro, layers = o->model.layers > 0 ? o->model.layers : 1;
    if (o->every_micro_batch && micros > MOST_BLOCK_RUNS / layers)
        return tl_fail(
            error, TL_ERR_ARGUMENT,
            "a global batch of %lld is %lld micro-batches of %lld on each device, and all of them are run on "
            "meta; at most %lld would work for a model of %lld layers: take a larger micro-batch or more devices",
            (long long)global, (long long)micros, (long long)o->micro_batch, (long long)(MOST_BLOCK_RUNS / layers),
            (long long)o->model.layers);
    *train = (tl_train_options){.micro_batch = o->micro_batch,
                                .seq = o->seq,
                                .accumulation = micros,
                                .ranks = o->devices.count,
                                .optimizer = o->optimizer,
                                .recompute = o->recompute,
                                .choices = o->choices,
                                .lora = o->lora,
                                .condensed = !o->every_micro_batch,
                                .prefetch = o->prefetch,
                                .autocast = o->autocast,
                                .clip = o->clip};
    return tl_precision_apply(o->precision, train, error);
}

tl_status tl_plan_run_steps(const tl_plan_options *o, bool formulas, int steps, tl_plan_pool *pool, tl_plan_run *run,
                            tl_error *error) {
    memset(run, 0, sizeof *run);
    tl_status status = layout(o, &run->train, error);
    if (status != TL_OK)
        return status;
    tl_ctx_options c = {
        .allocator = tl_plan_pool_allocator(pool), .formulas = formulas, .threads = o->devices.here ? o->threads : 1};
    c.scratch_bytes = o->devices.here ? 0 : TL_NO_SCRATCH;
    run->ctx = tl_ctx_new(&c, error);
    if (!run->ctx)
        return error ? error->status : TL_ERR_MEMORY;
    if (tl_plan_pool_reserve(pool, run->ctx))
        run->trainer = tl_trainer_new(run->ctx, &o->model, &run->train);
    /* A run that goes on from a checkpoint: its states are there before its first step, and the second finds what a new run's
     * second would. */
    if (run->trainer)
        (void)tl_transfer_load(run->ctx, tl_trainer_optimizer(run->trainer), 1, true, NULL, NULL);
    for (int i = 0; i < steps && run->trainer; i++)
        if (tl_trainer_step(run->trainer, NULL, NULL, run->train.optimizer.lr, NULL) != TL_OK)
            break;
    const tl_error *e = tl_ctx_error(run->ctx);
    if (e->status != TL_OK) {
        status = tl_fail(error, e->status, "%s", e->message);
        tl_plan_run_free(run);
        return status;
    }
    return TL_OK;
}

tl_status tl_plan_run_make(const tl_plan_options *o, bool formulas, tl_plan_run *run, tl_error *error) {
    return tl_plan_run_steps(o, formulas, 2, NULL, run, error);
}

void tl_plan_run_free(tl_plan_run *run) {
    tl_trainer_free(run->trainer);
    tl_ctx_free(run->ctx);
    memset(run, 0, sizeof *run);
}

tl_status tl_plan_count(const tl_model *model, tl_parameter_count *count, tl_error *error) {
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.scratch_bytes = TL_NO_SCRATCH}, error);
    if (!ctx)
        return error ? error->status : TL_ERR_MEMORY;
    tl_net *net = tl_net_new(ctx, model, TL_F32);
    tl_status status = TL_OK;
    if (net)
        tl_net_count(net, count);
    else
        status = tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    tl_net_free(net);
    tl_ctx_free(ctx);
    return status;
}

tl_status tl_plan_count_parameters(const tl_model *model, tl_u128 *total, tl_error *error) {
    tl_parameter_count count;
    tl_status status = tl_plan_count(model, &count, error);
    if (status == TL_OK)
        *total = (tl_u128)count.unique;
    return status;
}

/* The layer alone, not Cruncher's small head: an optimizer may treat few parameters otherwise. */
static int64_t optimizer_bytes(const tl_optimizer *optimizer) {
    int64_t bytes = 0;
    for (int k = 0; k < tl_optimizer_states(optimizer, 0); k++)
        bytes += tl_tensor_storage_bytes(tl_optimizer_state(optimizer, 0, k));
    return bytes;
}

tl_status tl_plan_block_bytes(tl_precision precision, const tl_optimizer_options *optimizer,
                              int64_t bytes[TL_CATEGORY_COUNT], tl_error *error) {
    return tl_plan_block_bytes_kept(precision, optimizer, TL_GRADS_AS_PARAMETERS, bytes, error);
}

tl_status tl_plan_block_bytes_kept(tl_precision precision, const tl_optimizer_options *optimizer, tl_grads_code grads,
                                   int64_t bytes[TL_CATEGORY_COUNT], tl_error *error) {
    enum { WIDTH = 64 };
    tl_plan_options o = {.micro_batch = 1, .seq = 1, .precision = precision, .optimizer = *optimizer};
    o.optimizer.groups = NULL; /* patterns of other names */
    o.optimizer.n_groups = 0;
    o.choices.grads = grads;
    o.devices.count = 1;
    o.model.family = TL_FAMILY_CRUNCHER;
    o.model.layers = 1;
    o.model.width = WIDTH;
    snprintf(o.model.name, sizeof o.model.name, "one linear layer");
    tl_plan_run run;
    tl_status status = tl_plan_run_make(&o, false, &run, error);
    if (status != TL_OK)
        return status;
    tl_parameter_count count;
    const tl_parameter *list;
    const tl_optimizer *states = tl_trainer_optimizer(run.trainer);
    tl_net_count(tl_trainer_net(run.trainer), &count);
    tl_net_parameters(tl_trainer_net(run.trainer), &list);
    memset(bytes, 0, TL_CATEGORY_COUNT * sizeof *bytes);
    int64_t blocks = tl_tensor_count(list[0].tensor) / TL_PLAN_BLOCK;
    bytes[TL_PARAM] = tl_tensor_storage_bytes(list[0].tensor) / blocks;
    const tl_tensor *buffer = tl_tensor_grad(list[0].tensor);
    bytes[TL_GRAD] = buffer ? tl_tensor_storage_bytes(buffer) / blocks /* else it is gone by now */
                            : tl_ledger_high(run.ctx, TL_GRAD) * TL_PLAN_BLOCK / count.unique;
    bytes[TL_MASTER] = tl_tensor_storage_bytes(tl_optimizer_master(states, 0)) / blocks;
    bytes[TL_OPTIM] = optimizer_bytes(states) / blocks;
    tl_plan_run_free(&run);
    return TL_OK;
}

/* ---- reading the second step ---- */

void tl_plan_copy_peak(const tl_peak *from, tl_plan_peak *to) {
    memset(to, 0, sizeof *to);
    to->bytes = from->bytes;
    memcpy(to->by_category, from->by_category, sizeof to->by_category);
    to->phase = from->phase;
    snprintf(to->module, sizeof to->module, "%s", from->module ? from->module : "");
    snprintf(to->op, sizeof to->op, "%s", from->op ? from->op : "");
    snprintf(to->site, sizeof to->site, "%s", from->site ? from->site : "");
}

/* One device's counts times all of them. */
static tl_status read_flops(const tl_plan_options *o, tl_plan_run *run, tl_plan *p, tl_error *error) {
    tl_counts all, again, forward, loss;
    tl_ledger_counts(run->ctx, TL_PHASE_ALL, &all);
    tl_ledger_counts(run->ctx, TL_PHASE_FORWARD, &forward);
    tl_ledger_counts(run->ctx, TL_PHASE_LOSS, &loss);
    tl_ledger_recomputed(run->ctx, TL_PHASE_ALL, &again);
    bool tokens = o->model.family != TL_FAMILY_CRUNCHER;
    tl_u128 per_device = (tl_u128)run->train.micro_batch * (tl_u128)run->train.accumulation;
    if (tokens)
        per_device *= (tl_u128)run->train.seq;
    tl_u128 n = (tl_u128)o->devices.count;
    p->forward_per_token = (forward.matmul + loss.matmul) / per_device;
    p->forward_per_token_causal = (forward.matmul_causal + loss.matmul_causal) / per_device;
    p->per_token = (all.matmul - again.matmul) / per_device;
    p->per_token_causal = (all.matmul_causal - again.matmul_causal) / per_device;
    if (!tl_mul_u128(all.executed, n, &p->hardware_per_step) ||
        !tl_mul_u128(all.matmul - again.matmul, n, &p->per_step) || !tl_mul_u128(again.matmul, n, &p->again_per_step) ||
        !tl_mul_u128(all.matmul_causal - again.matmul_causal, n, &p->per_step_causal) ||
        !tl_mul_u128(all.arithmetic, n, &p->arithmetic_per_step) || !tl_mul_u128(all.special, n, &p->special_per_step))
        return tl_fail(error, TL_ERR_OVERFLOW, "the FLOPs of a step on %lld devices are beyond 128 bits",
                       (long long)o->devices.count);
    p->sent_per_step = all.sent;
    return TL_OK;
}

static void read_phases(tl_plan_run *run, tl_plan *p) {
    tl_peak peak;
    tl_ledger_peak(run->ctx, &peak);
    tl_plan_copy_peak(&peak, &p->peak);
    int64_t next = -1;
    for (int phase = TL_PHASE_FORWARD; phase <= TL_PHASE_STEP; phase++) {
        tl_ledger_phase_peak(run->ctx, (tl_phase)phase, &peak);
        tl_plan_copy_peak(&peak, &p->step[phase]);
        if ((tl_phase)phase != p->peak.phase && peak.bytes > next) {
            next = peak.bytes;
            p->runner_up = (tl_phase)phase;
        }
    }
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        p->high[c] = tl_ledger_high(run->ctx, (tl_category)c);
    p->allocations = tl_ledger_allocations(run->ctx);
}

enum { TL_PLAN_KINDS = 256 };
typedef struct holders {
    tl_plan_holder list[TL_PLAN_KINDS];
    int count;
    int64_t dropped; /* tensors of kinds that found no place in the list */
} holders;

static bool gather_holder(void *user, const tl_live_entry *e) {
    holders *h = user;
    const char *op = e->op ? e->op : "";
    for (int i = 0; i < h->count; i++)
        if (h->list[i].category == e->category &&
            strncmp(h->list[i].module, e->pattern, sizeof h->list[i].module - 1) == 0 &&
            strncmp(h->list[i].op, op, sizeof h->list[i].op - 1) == 0) {
            h->list[i].bytes += e->bytes;
            h->list[i].count++;
            return true;
        }
    if (h->count < (int)(sizeof h->list / sizeof h->list[0])) {
        tl_plan_holder *n = &h->list[h->count++];
        snprintf(n->module, sizeof n->module, "%s", e->pattern);
        snprintf(n->op, sizeof n->op, "%s", op);
        n->category = e->category;
        n->bytes = e->bytes;
        n->count = 1;
    } else
        h->dropped++;
    return true;
}

tl_status tl_plan_top(const tl_plan_run *run, tl_phase phase, tl_plan_holder top[TL_PLAN_TOP], int *count,
                      int64_t *dropped, tl_error *error) {
    holders h = {.count = 0};
    *count = 0;
    if (!tl_ledger_each_live(run->ctx, phase, gather_holder, &h))
        return tl_fail(error, TL_ERR_MEMORY, "no memory to list what is live at the peak");
    *dropped = h.dropped;
    for (int k = 0; k < TL_PLAN_TOP && k < h.count; k++) {
        int best = k;
        for (int i = k + 1; i < h.count; i++)
            if (h.list[i].bytes > h.list[best].bytes)
                best = i;
        tl_plan_holder swap = h.list[k];
        h.list[k] = h.list[best];
        h.list[best] = swap;
        top[(*count)++] = h.list[k];
    }
    return TL_OK;
}

static tl_status read_holders(tl_plan_run *run, tl_plan *p, tl_error *error) {
    int64_t dropped = 0;
    tl_status status = tl_plan_top(run, TL_PHASE_ALL, p->top, &p->n_top, &dropped, error);
    if (status == TL_OK && dropped)
        tl_plan_note(p->leaves_out, &p->n_leaves_out,
                     "%lld tensors at the peak beyond the %d kinds of holders told apart", (long long)dropped,
                     TL_PLAN_KINDS);
    return status;
}

static tl_status read_arena(tl_plan_run *run, tl_plan *p, tl_error *error) {
    tl_arena_plan arena;
    tl_status status = tl_arena_plan_make(run->ctx, &arena);
    if (status != TL_OK)
        return tl_fail(error, status, "%s", tl_ctx_error(run->ctx)->message);
    p->arena_bytes = arena.carried_bytes + arena.bytes;
    tl_arena_plan_free(run->ctx, &arena);
    return TL_OK;
}

/* On this machine every engine's choices run in tally's arena. */
static void read_outside(const tl_plan_options *o, tl_plan *p) {
    const tl_engine *e = o->engine && o->devices.accelerator ? o->engine : tl_engine_at(0);
    tl_plan_capacity(&o->devices, o->machine, o->engine, &p->capacity_bytes, &p->usable_bytes, &p->context_bytes);
    p->needs_bytes = tl_plan_needs(p, e);
    if (e->allocator == TL_ALLOCATOR_CACHING)
        p->slack_bytes = p->needs_bytes - tl_plan_largest_moment(p)->bytes;
    if (o->devices.accelerator)
        p->workspace_bytes = e->workspaces * e->workspace_bytes;
    p->fits = p->usable_bytes > 0 && p->needs_bytes <= p->usable_bytes;
}

static tl_status find_max(const tl_plan_options *o, tl_plan *p, tl_error *error) {
    tl_plan_largest found;
    if (p->usable_bytes <= 0)
        return TL_OK; /* unknown stays unknown */
    tl_status status = tl_plan_find_largest(o, TL_PLAN_MICRO_BATCH, &found, error);
    if (status == TL_OK)
        p->max_micro_batch = found.value;
    return status;
}

static bool is_same_rule(const tl_parameter_rule *a, const tl_parameter_rule *b) {
    return a->group == b->group && a->frozen == b->frozen && a->weight_decay == b->weight_decay;
}

static int64_t elements_of(const tl_parameter *p) {
    int64_t n = 0;
    if (!p->full)
        return tl_tensor_count(p->tensor);
    tl_shape_count(p->full, &n);
    return n;
}

/* Which parameters are under which rule, the default's first. */
static void read_groups(const tl_plan_options *o, tl_plan_run *run, tl_plan *p) {
    const tl_parameter *list;
    const int count = tl_net_parameters(tl_trainer_net(run->trainer), &list);
    p->trainable = 0;
    for (int k = -1; k < o->optimizer.n_groups; k++)
        for (int i = 0; i < count; i++) {
            const tl_parameter_rule rule = tl_optimizer_rule(tl_trainer_optimizer(run->trainer), i);
            int at = 0;
            if (rule.group != k)
                continue;
            while (at < p->n_groups && !is_same_rule(&p->groups[at].rule, &rule))
                at++;
            if (at == TL_PLAN_GROUPS)
                continue;
            if (at == p->n_groups)
                p->groups[p->n_groups++].rule = rule;
            p->groups[at].tensors++;
            p->groups[at].parameters += elements_of(&list[i]);
            p->trainable += rule.frozen ? 0 : elements_of(&list[i]);
        }
}

/* What a plan holds and computes: the least that says whether it fits. */
static tl_status read_account(const tl_plan_options *o, tl_plan_run *run, tl_plan *p, tl_error *error) {
    read_groups(o, run, p);
    p->devices = o->devices.count;
    p->seq = o->seq;
    p->micro_batch = o->micro_batch;
    p->accumulation = run->train.accumulation;
    p->global_batch = o->micro_batch * run->train.accumulation * o->devices.count;
    p->max_micro_batch = -1;
    read_phases(run, p);
    tl_status status = read_flops(o, run, p, error);
    if (status == TL_OK)
        status = read_arena(run, p, error);
    if (status == TL_OK)
        status = tl_plan_moments(o, run, p, error);
    if (status == TL_OK)
        read_outside(o, p);
    return status;
}

tl_status tl_plan_account(const tl_plan_options *o, bool timed, tl_plan_pool *pool, tl_plan *p, tl_error *error) {
    memset(p, 0, sizeof *p);
    tl_plan_run run;
    tl_status status = tl_plan_run_steps(o, false, 1, pool, &run, error);
    if (status != TL_OK)
        return status;
    status = read_account(o, &run, p, error);
    if (status == TL_OK && timed)
        tl_plan_time(o, &run, p);
    tl_plan_pool_saw(pool, run.ctx);
    tl_plan_run_free(&run);
    return status;
}

tl_status tl_plan_make(const tl_plan_options *o, tl_plan *p, tl_error *error) {
    memset(p, 0, sizeof *p);
    tl_plan_run run;
    tl_status status = tl_plan_run_make(o, false, &run, error);
    if (status != TL_OK)
        return status;
    tl_net_count(tl_trainer_net(run.trainer), &p->parameters);
    status = read_holders(&run, p, error); /* before the moments: saving goes on in the log */
    if (status == TL_OK)
        status = read_account(o, &run, p, error);
    if (status == TL_OK) {
        tl_plan_notes(o, &run, p);
        tl_plan_time(o, &run, p);
    }
    tl_plan_run_free(&run);
    if (status == TL_OK && o->find_max_micro_batch)
        status = find_max(o, p, error);
    return status;
}
