/* Planned = measured: a plan's second step on meta against a real second step as the second instrument saw it (instrument.h,
 * which shares no code with the ledger). Everything is compared exactly. The mutations at the end show that the comparison
 * can fail: a wrong cost, a storage the op did not declare, a malloc behind the allocator's back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "family_models.h"
#include "instrument.h"
#include "op/core.h"
#include "small_models.h"
#include "tally/account.h"
#include "tally/grad.h"
#include "tally/plan.h"

extern const tl_op tl_op_linear;

typedef enum rule { SGD, MOMENTUM, ADAMW, ADAMW_CS336, ADAGRAD, ADAM, RMSPROP, RMSPROP_ALL, ADAMW8BIT, RULES } rule;

typedef struct config {
    const char *name;
    tl_model (*base)(void); /* NULL: the family_model of this name, or of this index */
    const char *model;
    int family;
    rule rule;
    int64_t B, T, A;
    double clip, dropout;
    bool flip_tied, biases, mixed, bf16, best, ungated, interleaved;
    tl_precision precision; /* 0: from mixed and bf16 */
    bool autocast;
    int64_t kv_heads, layers, context, width; /* 0: the base model's */
    tl_state_format states;
    const tl_parameter_group *group; /* NULL: none */
    const char *init;
    int threads;
    tl_recompute recompute;
    tl_lora_options lora;
    const char *choices; /* "norm=composed,loss=chunked:3"; NULL: none */
    bool fused_qkv;      /* of the model */
} config;

/* name, model, rule, B, T, A; then what differs from the base model in float32 on one thread. */
#define CONFIG(name_, base_, rule_, B_, T_, A_, ...)                                                                   \
    { .name = (name_), .base = (base_), .rule = (rule_), .B = (B_), .T = (T_), .A = (A_), __VA_ARGS__ }

static const tl_parameter_group frozen_layer = {.pattern = "*.1.*", .frozen = true};
static const tl_parameter_group slow_norms = {.pattern = "*norm*", .lr_factor = 0.1, .weight_decay = TL_GROUP_DECAY};

static const config configs[] = {
    CONFIG("gpt2 sgd", small_gpt2, SGD, 2, 16, 1),
    CONFIG("gpt2 sgd, one sequence", small_gpt2, SGD, 1, 7, 1),
    CONFIG("gpt2 momentum, untied", small_gpt2, MOMENTUM, 2, 16, 1, .flip_tied = true),
    CONFIG("gpt2 adamw", small_gpt2, ADAMW, 3, 16, 1),
    CONFIG("gpt2 adamw, T = C", small_gpt2, ADAMW, 2, 20, 1),
    CONFIG("gpt2 adamw, T = 1", small_gpt2, ADAMW, 2, 1, 1),
    CONFIG("gpt2 adamw, clipped, T = C", small_gpt2, ADAMW, 2, 20, 1, .clip = 0.1),
    CONFIG("gpt2 adamw, 3 micro-batches", small_gpt2, ADAMW, 2, 12, 3),
    CONFIG("gpt2 cs336, 3 micro-batches, clipped", small_gpt2, ADAMW_CS336, 2, 12, 3, .clip = 1),
    CONFIG("gpt2 adamw, dropout", small_gpt2, ADAMW, 2, 16, 1, .dropout = 0.1),
    CONFIG("gpt2 adamw, dropout, 3 micro-batches, untied", small_gpt2, ADAMW, 2, 16, 3, .dropout = 0.2,
           .flip_tied = true),
    CONFIG("gpt2 adagrad", small_gpt2, ADAGRAD, 4, 8, 1),
    CONFIG("gpt2 adamw, bf16", small_gpt2, ADAMW, 2, 16, 1, .bf16 = true),
    CONFIG("gpt2 adamw, bf16-mixed", small_gpt2, ADAMW, 2, 16, 1, .mixed = true),
    CONFIG("gpt2 sgd, bf16-mixed, clipped, 3 micro-batches", small_gpt2, SGD, 2, 16, 3, .mixed = true, .clip = 1),
    CONFIG("gpt2 adamw, 2 threads", small_gpt2, ADAMW, 2, 16, 1, .threads = 2),
    CONFIG("gpt2 adamw, best kernels, 2 threads", small_gpt2, ADAMW, 2, 20, 3, .threads = 2, .best = true),
    CONFIG("gpt2 momentum, 5 layers, long context", small_gpt2, MOMENTUM, 1, 33, 1, .layers = 5, .context = 64),
    CONFIG("llama sgd", small_llama, SGD, 2, 16, 1),
    CONFIG("llama sgd, tied", small_llama, SGD, 2, 16, 1, .flip_tied = true),
    CONFIG("llama adamw", small_llama, ADAMW, 3, 11, 1),
    CONFIG("llama adamw, T = C", small_llama, ADAMW, 1, 64, 1),
    CONFIG("llama adamw, as many key heads", small_llama, ADAMW, 2, 16, 1, .kv_heads = 4),
    CONFIG("llama adamw, one key head", small_llama, ADAMW, 2, 16, 1, .kv_heads = 1),
    CONFIG("llama adamw, biases", small_llama, ADAMW, 2, 16, 1, .biases = true),
    CONFIG("llama cs336, interleaved, as many key heads", small_llama, ADAMW_CS336, 2, 16, 1, .kv_heads = 4,
           .interleaved = true),
    CONFIG("llama adamw, ungated, tied", small_llama, ADAMW, 2, 16, 1, .ungated = true, .flip_tied = true),
    CONFIG("llama adamw, 3 micro-batches, clipped", small_llama, ADAMW, 2, 10, 3, .clip = 0.5),
    CONFIG("llama adamw, 3 micro-batches, tied", small_llama, ADAMW, 2, 10, 3, .flip_tied = true),
    CONFIG("llama adagrad, clipped", small_llama, ADAGRAD, 2, 16, 1, .clip = 0.5),
    CONFIG("llama momentum, bf16", small_llama, MOMENTUM, 2, 16, 1, .bf16 = true),
    CONFIG("llama adamw, bf16-mixed, 3 micro-batches", small_llama, ADAMW, 2, 16, 3, .mixed = true),
    CONFIG("llama adamw, 2 threads", small_llama, ADAMW, 2, 16, 1, .threads = 2),
    CONFIG("llama adamw, best kernels", small_llama, ADAMW, 4, 32, 1, .best = true),
    CONFIG("llama adamw, best kernels, bf16-mixed, 2 threads", small_llama, ADAMW, 4, 32, 3, .mixed = true,
           .best = true, .threads = 2),
    CONFIG("llama sgd, 1 layer", small_llama, SGD, 1, 5, 1, .layers = 1),
    CONFIG("cruncher adagrad", small_cruncher, ADAGRAD, 8, 1, 1),
    CONFIG("cruncher sgd, 3 micro-batches", small_cruncher, SGD, 5, 1, 3),
    CONFIG("cruncher adamw, bf16-mixed, clipped", small_cruncher, ADAMW, 8, 1, 1, .mixed = true, .clip = 1),
    CONFIG("gpt2 adam", small_gpt2, ADAM, 2, 16, 1),
    CONFIG("gpt2 rmsprop", small_gpt2, RMSPROP, 2, 16, 1, .dropout = 0.1),
    CONFIG("gpt2 rmsprop, centered, momentum, 3 micro-batches", small_gpt2, RMSPROP_ALL, 2, 16, 3, .clip = 1),
    CONFIG("gpt2 adamw8bit, all small", small_gpt2, ADAMW8BIT, 2, 16, 1),
    CONFIG("gpt2 adamw8bit", small_gpt2, ADAMW8BIT, 2, 16, 1, .width = 96),
    CONFIG("gpt2 adamw8bit, bf16-mixed, 3 micro-batches", small_gpt2, ADAMW8BIT, 2, 16, 3, .width = 96, .mixed = true),
    CONFIG("gpt2 adamw8bit, bf16, 2 threads", small_gpt2, ADAMW8BIT, 2, 16, 1, .width = 96, .bf16 = true, .threads = 2),
    CONFIG("gpt2 adam, states in bf16", small_gpt2, ADAM, 2, 16, 1, .states = TL_STATES_BF16),
    CONFIG("gpt2 adamw, bf16-mixed, states in f16", small_gpt2, ADAMW, 2, 16, 1, .mixed = true,
           .states = TL_STATES_F16),
    CONFIG("gpt2 adamw, a frozen layer", small_gpt2, ADAMW, 2, 16, 1, .group = &frozen_layer, .clip = 1),
    CONFIG("gpt2 adamw, kaiming", small_gpt2, ADAMW, 2, 16, 1, .init = "kaiming-normal"),
    CONFIG("llama adam, bf16-mixed", small_llama, ADAM, 2, 16, 1, .mixed = true),
    CONFIG("llama rmsprop", small_llama, RMSPROP, 2, 16, 1),
    CONFIG("llama rmsprop, centered, momentum", small_llama, RMSPROP_ALL, 2, 16, 1, .bf16 = true),
    CONFIG("llama adamw8bit", small_llama, ADAMW8BIT, 2, 16, 1, .width = 96, .clip = 0.5),
    CONFIG("llama adamw8bit, bf16-mixed, 3 micro-batches", small_llama, ADAMW8BIT, 2, 16, 3, .width = 96,
           .mixed = true),
    CONFIG("llama adamw, bf16, states in f32", small_llama, ADAMW, 2, 16, 1, .bf16 = true, .states = TL_STATES_F32),
    CONFIG("llama adamw, a frozen layer, bf16-mixed", small_llama, ADAMW, 2, 16, 1, .group = &frozen_layer,
           .mixed = true),
    CONFIG("llama adamw, slow norms, cs336's start", small_llama, ADAMW, 2, 16, 1, .group = &slow_norms,
           .init = "cs336"),
    CONFIG("cruncher adamw8bit", small_cruncher, ADAMW8BIT, 8, 1, 1),
};

#define SELECTIVE .recompute = {TL_RECOMPUTE_SELECTIVE, 0}
#define FULL .recompute = {TL_RECOMPUTE_FULL, 0}
#define EVERY(k) .recompute = {TL_RECOMPUTE_EVERY, (k)}

/* Recompute by family and optimizer; condensed repetitions of micro-batches, odd layers, dropout. */
static const config recomputed[] = {
    CONFIG("gpt2 adamw, selective", small_gpt2, ADAMW, 2, 16, 1, SELECTIVE),
    CONFIG("gpt2 adamw, selective, dropout, 3 micro-batches", small_gpt2, ADAMW, 2, 16, 3, SELECTIVE, .dropout = 0.1),
    CONFIG("gpt2 adamw, full", small_gpt2, ADAMW, 3, 16, 1, FULL),
    CONFIG("gpt2 adamw, full, dropout, 4 micro-batches, clipped", small_gpt2, ADAMW, 2, 16, 4, FULL, .dropout = 0.1,
           .clip = 1),
    CONFIG("gpt2 cs336, full, untied", small_gpt2, ADAMW_CS336, 2, 12, 3, FULL, .flip_tied = true),
    CONFIG("gpt2 sgd, every 2 of 5, dropout", small_gpt2, SGD, 2, 16, 1, EVERY(2), .layers = 5, .dropout = 0.1),
    CONFIG("gpt2 momentum, every 3 of 5, 3 micro-batches", small_gpt2, MOMENTUM, 2, 16, 3, EVERY(3), .layers = 5),
    CONFIG("gpt2 adagrad, full", small_gpt2, ADAGRAD, 4, 8, 1, FULL),
    CONFIG("gpt2 sgd, selective", small_gpt2, SGD, 2, 16, 3, SELECTIVE),
    CONFIG("gpt2 momentum, full", small_gpt2, MOMENTUM, 2, 16, 1, FULL),
    CONFIG("gpt2 adagrad, selective", small_gpt2, ADAGRAD, 4, 8, 3, SELECTIVE),
    CONFIG("gpt2 adamw, bf16-mixed, full, best kernels, 2 threads", small_gpt2, ADAMW, 2, 16, 3, FULL, .mixed = true,
           .best = true, .threads = 2, .dropout = 0.1),
    CONFIG("gpt2 adamw, bf16, every layer", small_gpt2, ADAMW, 2, 16, 1, EVERY(1), .bf16 = true),
    CONFIG("llama adamw, selective", small_llama, ADAMW, 2, 16, 1, SELECTIVE),
    CONFIG("llama adamw, selective, one key head, 3 micro-batches", small_llama, ADAMW, 2, 16, 3, SELECTIVE,
           .kv_heads = 1),
    CONFIG("llama adamw, full", small_llama, ADAMW, 2, 16, 1, FULL),
    CONFIG("llama adamw, full, tied, 5 micro-batches", small_llama, ADAMW, 2, 16, 5, FULL, .flip_tied = true),
    CONFIG("llama sgd, full, biases, clipped", small_llama, SGD, 2, 16, 3, FULL, .biases = true, .clip = 0.5),
    CONFIG("llama momentum, every 2 of 5", small_llama, MOMENTUM, 2, 16, 1, EVERY(2), .layers = 5),
    CONFIG("llama adagrad, every 4 of 5, 3 micro-batches", small_llama, ADAGRAD, 2, 16, 3, EVERY(4), .layers = 5),
    CONFIG("llama cs336, selective, interleaved", small_llama, ADAMW_CS336, 2, 16, 1, SELECTIVE, .kv_heads = 4,
           .interleaved = true),
    CONFIG("llama sgd, selective", small_llama, SGD, 2, 16, 1, SELECTIVE),
    CONFIG("llama momentum, selective", small_llama, MOMENTUM, 2, 16, 3, SELECTIVE),
    CONFIG("llama adagrad, full", small_llama, ADAGRAD, 2, 16, 1, FULL),
    CONFIG("llama adamw, ungated, full", small_llama, ADAMW, 2, 16, 1, FULL, .ungated = true),
    CONFIG("llama adamw, bf16-mixed, selective, best kernels, 2 threads", small_llama, ADAMW, 4, 32, 3, SELECTIVE,
           .mixed = true, .best = true, .threads = 2),
};

#include "planned_adapters.h"
#include "planned_choices.h"
#include "planned_kept.h"

enum { ADAPTED = sizeof adapted / sizeof adapted[0] };

enum { CHOSEN = sizeof with_choices / sizeof with_choices[0] };

enum { KEPT = sizeof kept_so / sizeof kept_so[0] };
enum { RECOMPUTED = sizeof recomputed / sizeof recomputed[0] };
enum { CONFIGS = sizeof configs / sizeof configs[0] };

static tl_model model_of(const config *c) {
    tl_model m = c->base ? c->base() : family_model(c->family);
    for (int i = 0; c->model && i < family_model_count(); i++)
        if (strcmp(family_model(i).name, c->model) == 0)
            m = family_model(i);
    m.tied ^= c->flip_tied;
    m.gated &= !c->ungated;
    m.rope_interleaved = c->interleaved;
    m.fused_qkv = c->fused_qkv;
    if (m.family == TL_FAMILY_LLAMA)
        m.attention_bias = m.mlp_bias = c->biases;
    if (c->kv_heads)
        m.kv_heads = c->kv_heads;
    if (c->layers)
        m.layers = c->layers;
    if (c->width) {
        m.width = c->width;
        m.head_size = c->width / m.heads;
    }
    if (c->context)
        m.context = c->context;
    m.dropout_embedding = m.dropout_attention = m.dropout_residual = c->dropout;
    return m;
}

static void choose(const char *text, tl_choices *choices) {
    char list[200], *at = list, *one, *rest = NULL;
    tl_error error = {0};
    snprintf(list, sizeof list, "%s", text ? text : "");
    for (; (one = strtok_r(at, ",", &rest)); at = NULL) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        if (tl_choice_set(choices, one, value, &error) != TL_OK)
            fail_msg("%s", error.message);
    }
}

static tl_train_options train_of(const config *c) {
    static const tl_optimizer_kind kinds[] = {TL_OPTIM_SGD,     TL_OPTIM_SGD,     TL_OPTIM_ADAMW,
                                              TL_OPTIM_ADAMW,   TL_OPTIM_ADAGRAD, TL_OPTIM_ADAM,
                                              TL_OPTIM_RMSPROP, TL_OPTIM_RMSPROP, TL_OPTIM_ADAMW8BIT};
    tl_train_options o = {
        .micro_batch = c->B, .seq = c->T, .accumulation = c->A, .condensed = true, .ranks = 1, .clip = c->clip};
    o.dtype = c->mixed || c->bf16 ? TL_BF16 : TL_F32;
    o.optimizer = tl_optimizer_defaults(kinds[c->rule]);
    o.optimizer.momentum = c->rule == MOMENTUM || c->rule == RMSPROP_ALL ? 0.9 : 0;
    o.optimizer.centered = c->rule == RMSPROP_ALL;
    o.optimizer.states = c->states;
    o.optimizer.groups = c->group;
    o.optimizer.n_groups = c->group != NULL;
    o.init = c->init;
    o.optimizer.cs336_order = c->rule == ADAMW_CS336;
    o.optimizer.master = o.optimizer.state_f32 = c->mixed;
    o.recompute = c->recompute;
    o.lora = c->lora;
    o.autocast = c->autocast;
    tl_error error = {0};
    choose(c->choices, &o.choices);
    if (c->precision && tl_precision_apply(c->precision, &o, &error) != TL_OK)
        fail_msg("%s: %s", c->name, error.message);
    return o;
}

/* ---- the comparison ---- */

typedef struct account {
    measured step; /* products, host_calls and uncounted are not part of a plan */
    int64_t init_peak, init_allocations, init_blocks;
} account;

static void count_live(void *user, uint32_t slot, int64_t bytes, bool carried, tl_category category) {
    (void)slot;
    (void)carried;
    (void)category;
    *(int64_t *)user += bytes ? 1 : -1;
}

static void read_init(const tl_ctx *ctx, account *a) {
    tl_peak peak;
    tl_ledger_phase_peak(ctx, TL_PHASE_INIT, &peak);
    a->init_peak = peak.bytes;
    a->init_allocations = tl_ledger_allocations(ctx);
    a->init_blocks = 0;
    tl_ledger_each_event(ctx, count_live, &a->init_blocks);
}

static void read_step(const tl_ctx *ctx, measured *m) {
    tl_peak peak;
    tl_counts counts;
    tl_ledger_peak(ctx, &peak);
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    memset(m, 0, sizeof *m);
    m->peak = peak.bytes;
    m->param = peak.by_category[TL_PARAM];
    m->grad = peak.by_category[TL_GRAD];
    m->optim = peak.by_category[TL_OPTIM];
    m->master = peak.by_category[TL_MASTER];
    m->data = peak.by_category[TL_DATA];
    m->rest = peak.by_category[TL_SAVED] + peak.by_category[TL_WORK];
    m->allocations = tl_ledger_allocations(ctx);
    m->matmul = counts.executed;
}

static int differ(const char *name, const char *what, int64_t planned, int64_t measured_value, bool quiet) {
    if (planned == measured_value)
        return 0;
    if (!quiet)
        print_message("%s: %s planned %" PRId64 ", measured %" PRId64 "\n", name, what, planned, measured_value);
    return 1;
}

/* How many figures differ; each is printed unless quiet. Allocations nobody counted are a difference too. */
static int compare(const char *name, const account *p, const account *m, bool quiet) {
    int n = 0;
    char a[TL_U128_DIGITS], b[TL_U128_DIGITS];
    n += differ(name, "peak bytes", p->step.peak, m->step.peak, quiet);
    n += differ(name, "param", p->step.param, m->step.param, quiet);
    n += differ(name, "grad", p->step.grad, m->step.grad, quiet);
    n += differ(name, "optim", p->step.optim, m->step.optim, quiet);
    n += differ(name, "master", p->step.master, m->step.master, quiet);
    n += differ(name, "data", p->step.data, m->step.data, quiet);
    n += differ(name, "saved + work", p->step.rest, m->step.rest, quiet);
    n += differ(name, "allocations", p->step.allocations, m->step.allocations, quiet);
    n += differ(name, "peak bytes of init", p->init_peak, m->init_peak, quiet);
    n += differ(name, "allocations of init", p->init_allocations, m->init_allocations, quiet);
    n += differ(name, "storages after init", p->init_blocks, m->init_blocks, quiet);
    n += differ(name, "uncounted allocations", 0, m->step.uncounted.calls, quiet);
    n += differ(name, "uncounted bytes", 0, m->step.uncounted.bytes, quiet);
    if (p->step.matmul != m->step.matmul) {
        n++;
        if (!quiet)
            print_message("%s: matmul FLOPs planned %s, measured %s\n", name, tl_u128_text(p->step.matmul, a),
                          tl_u128_text(m->step.matmul, b));
    }
    return n;
}

/* ---- the two sides ---- */

static void plan(const config *c, account *a) {
    tl_error error = {0};
    tl_model model = model_of(c);
    tl_train_options train = train_of(c);
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.threads = c->threads}, &error);
    assert_non_null(ctx);
    tl_trainer *trainer = tl_trainer_new(ctx, &model, &train);
    assert_non_null(trainer);
    read_init(ctx, a);
    for (int i = 0; i < 2; i++)
        if (tl_trainer_step(trainer, NULL, NULL, 1e-3, NULL) != TL_OK)
            fail_msg("%s: %s", c->name, tl_ctx_error(ctx)->message);
    read_step(ctx, &a->step);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
}

static const tl_kernels *kernels_of(const config *c) {
    tl_error error = {0};
    const tl_kernels *k = c->best ? tl_kernels_for_cpu(NULL, &error) : tl_kernels_portable();
    assert_non_null(k);
    return k;
}

static void step(tl_trainer *trainer, random_batch *batch) {
    tl_step_result result;
    tl_status status = tl_trainer_step(trainer, random_batch_source, batch, 1e-3, &result);
    if (status != TL_OK)
        fail_msg("%s", tl_ctx_error(tl_tensor_ctx(tl_net_find(tl_trainer_net(trainer), "final.weight")))->message);
    assert_true(result.loss > 0);
}

/* The real run. `own`: what its own ledger said of the same step. */
static void measure(const config *c, account *a, account *own) {
    tl_error error = {0};
    tl_model model = model_of(c);
    tl_train_options train = train_of(c);
    instrument *in = instrument_new(NULL);
    tl_allocator allocator = instrument_allocator(in);
    tl_ctx_options options = {.kernels = instrument_kernels(in, kernels_of(c)), .allocator = &allocator};
    options.threads = c->threads;
    instrument_begin(in);
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    assert_non_null(ctx);
    tl_trainer *trainer = tl_trainer_new(ctx, &model, &train);
    assert_non_null(trainer);
    if (train
            .loss_scaling) /* random vectors have gradients that overflow at 2^16, and a skipped step updates nothing */
        assert_int_equal(tl_trainer_set_scaler(trainer, &(tl_loss_scaler){.scale = 256}), TL_OK);
    measured init = instrument_end(in);
    a->init_peak = init.peak;
    a->init_allocations = init.allocations;
    a->init_blocks = instrument_live_blocks(in);
    read_init(ctx, own);
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(trainer), &list);
    instrument_watch(in, list, count, tl_trainer_optimizer(trainer));
    instrument_watch_extra(in, trainer);
    random_batch batch = {in, &model, 42};
    step(trainer, &batch);
    instrument_begin(in);
    step(trainer, &batch);
    a->step = instrument_end(in);
    read_step(ctx, &own->step);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    assert_int_equal(instrument_free(in), 0);
}

static void compare_all(const config *list, int count) {
    int different = 0, compared = 0;
    for (int i = 0; i < count; i++) {
        const config *c = &list[i];
        account planned, real, own;
        plan(c, &planned);
        measure(c, &real, &own);
        if (c->best && real.step.uncounted.calls) { /* the product library's own, after its warm-up in the first step */
            print_message("%s: oneDNN allocated %" PRId64 " times, %" PRId64 " bytes, by itself\n", c->name,
                          real.step.uncounted.calls, real.step.uncounted.bytes);
            assert_true(real.step.uncounted.bytes < 1024 * real.step.products); /* handles, no workspace */
            real.step.uncounted = (interposed){0, 0};
        }
        assert_true(real.step.products > 0 && real.step.matmul > 0 && real.step.rest > 0);
        different += compare(c->name, &planned, &real, false) != 0;
        own.step.uncounted = real.step.uncounted;
        different += compare(c->name, &own, &real, false) != 0;
        compared++;
    }
    print_message("planned = measured on %d of %d configurations\n", compared - different, compared);
    assert_int_equal(different, 0);
}

static void test_planned_equals_measured(void **state) {
    (void)state;
    assert_true(CONFIGS >= 24);
    compare_all(configs, CONFIGS);
}

static void test_planned_equals_measured_with_recompute(void **state) {
    (void)state;
    compare_all(recomputed, RECOMPUTED);
}

static void test_planned_equals_measured_with_adapters(void **state) {
    (void)state;
    compare_all(adapted, ADAPTED);
}

static void test_planned_equals_measured_with_choices(void **state) {
    (void)state;
    compare_all(with_choices, CHOSEN);
}

static void test_planned_equals_measured_as_kept(void **state) {
    (void)state;
    compare_all(kept_so, KEPT);
}

/* Every precision with every optimizer and every way to recompute, on both families; Cruncher has no blocks to recompute. */
static void compare_kind(config c, int *different, int *compared) {
    account planned, real, own;
    plan(&c, &planned);
    measure(&c, &real, &own);
    *different += compare(c.name, &planned, &real, false) != 0;
    own.step.uncounted = real.step.uncounted;
    *different += compare(c.name, &own, &real, false) != 0;
    ++*compared;
}

static void test_every_precision(void **state) {
    (void)state;
    static const struct {
        tl_precision precision;
        bool autocast;
    } kinds[] = {{TL_PRECISION_FP32, false},       {TL_PRECISION_BF16, false},      {TL_PRECISION_BF16_MIXED, false},
                 {TL_PRECISION_FP16_MIXED, false}, {TL_PRECISION_FP8_MIXED, false}, {TL_PRECISION_BF16_MIXED, true},
                 {TL_PRECISION_FP16_MIXED, true},  {TL_PRECISION_FP8_MIXED, true}};
    static const tl_recompute again[] = {
        {TL_RECOMPUTE_NONE, 0}, {TL_RECOMPUTE_SELECTIVE, 0}, {TL_RECOMPUTE_FULL, 0}, {TL_RECOMPUTE_EVERY, 2}};
    tl_model (*const bases[])(void) = {small_gpt2, small_llama, small_cruncher};
    int different = 0, compared = 0;
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
        for (rule r = SGD; r < RULES; r++)
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
                for (size_t w = 0; w < (bases[b] == small_cruncher ? 1 : sizeof again / sizeof *again); w++) {
                    char name[96];
                    snprintf(name, sizeof name, "base %zu, rule %d, %s%s, recompute %zu", b, (int)r,
                             tl_precision_name(kinds[k].precision), kinds[k].autocast ? ", autocast" : "", w);
                    config c = {.name = name, .base = bases[b], .rule = r, .B = 2, .T = 16, .A = 1 + 2 * ((int)r % 2)};
                    c.precision = kinds[k].precision;
                    c.autocast = kinds[k].autocast;
                    c.recompute = again[w];
                    c.clip = r == ADAMW || r == SGD ? 0.5 : 0;
                    c.dropout = r == ADAM ? 0.1 : 0;
                    c.threads = r == ADAGRAD ? 2 : 1;
                    compare_kind(c, &different, &compared);
                }
    print_message("planned = measured on %d of %d precisions, optimizers and recomputations\n", compared - different,
                  compared);
    assert_int_equal(different, 0);
}

/* Every family's small model, in each way to recompute, in several micro-batches, in 16 bits and in float8. */
static void test_every_family(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tl_recompute recompute;
        tl_precision precision;
        rule rule;
        int64_t A;
        double dropout;
        bool autocast;
        const char *choices;
    } ways[] = {
        {"adamw", {TL_RECOMPUTE_NONE, 0}, TL_PRECISION_FP32, ADAMW, 1, 0, false, NULL},
        {"sgd, 3 micro-batches, selective", {TL_RECOMPUTE_SELECTIVE, 0}, TL_PRECISION_FP32, SGD, 3, 0, false, NULL},
        {"adamw, full, dropout", {TL_RECOMPUTE_FULL, 0}, TL_PRECISION_FP32, ADAMW, 1, 0.1, false, NULL},
        {"adamw, bf16", {TL_RECOMPUTE_NONE, 0}, TL_PRECISION_BF16, ADAMW, 1, 0, false, NULL},
        {"adam, bf16-mixed, every 2", {TL_RECOMPUTE_EVERY, 2}, TL_PRECISION_BF16_MIXED, ADAM, 2, 0, false, NULL},
        {"adamw, bf16-mixed, autocast", {TL_RECOMPUTE_NONE, 0}, TL_PRECISION_BF16_MIXED, ADAMW, 1, 0, true, NULL},
        {"adamw, fp8-mixed, full", {TL_RECOMPUTE_FULL, 0}, TL_PRECISION_FP8_MIXED, ADAMW, 1, 0, false, NULL},
        {"adamw, flash and fused",
         {TL_RECOMPUTE_NONE, 0},
         TL_PRECISION_BF16_MIXED,
         ADAMW,
         1,
         0,
         false,
         "attention=flash,glu=fused,loss=chunked:3"},
        {"adamw, composed",
         {TL_RECOMPUTE_FULL, 0},
         TL_PRECISION_BF16,
         ADAMW,
         1,
         0,
         false,
         "norm=composed,rotary=tables,mask-tensor=on,softmax-fp32=on,loss=full-fp32"},
        {"adamw, room for 1.5 times a share",
         {TL_RECOMPUTE_NONE, 0},
         TL_PRECISION_FP32,
         ADAMW,
         2,
         0,
         false,
         "experts=capacity:1.5"},
    };
    int different = 0, compared = 0;
    for (int f = 0; f < family_model_count(); f++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            char name[128];
            tl_model m = family_model(f);
            snprintf(name, sizeof name, "%.60s %s", m.name, ways[w].name);
            config c = {.name = name, .family = f, .rule = ways[w].rule, .B = 2, .T = 12, .A = ways[w].A};
            c.recompute = ways[w].recompute;
            c.precision = ways[w].precision;
            c.autocast = ways[w].autocast;
            c.dropout = ways[w].dropout;
            c.choices = ways[w].choices;
            compare_kind(c, &different, &compared);
        }
    print_message("planned = measured on %d of %d families and ways to train\n", compared - different, compared);
    assert_int_equal(different, 0);
}

/* ---- the arena ---- */

typedef struct losses {
    double value[5];
} losses;

/* Five steps; with a plan, steps three to five run inside its block. Returns what the heap below was asked for then. */
static measured run_steps(const config *c, const tl_arena_plan *arena_plan, losses *out, int64_t *unplanned) {
    tl_error error = {0};
    tl_model model = model_of(c);
    tl_train_options train = train_of(c);
    instrument *heap = instrument_new(NULL); /* below the arena: sees only what leaves it */
    tl_allocator base = instrument_allocator(heap);
    tl_arena *arena = tl_arena_new(&base, &error);
    assert_non_null(arena);
    tl_allocator allocator = tl_arena_allocator(arena);
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = kernels_of(c), .allocator = &allocator}, &error);
    assert_non_null(ctx);
    tl_trainer *trainer = tl_trainer_new(ctx, &model, &train);
    random_batch batch = {NULL, &model, 7};
    for (int i = 0; i < 5; i++) {
        tl_step_result result;
        if (i == 2 && arena_plan)
            assert_int_equal(tl_arena_use(arena, arena_plan, &error), TL_OK);
        if (i == 2)
            instrument_begin(heap);
        tl_arena_step_begin(arena);
        assert_int_equal(tl_trainer_step(trainer, random_batch_source, &batch, 1e-2, &result), TL_OK);
        out->value[i] = result.loss;
    }
    measured m = instrument_end(heap);
    *unplanned = tl_arena_unplanned(arena);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    tl_arena_free(arena);
    assert_int_equal(instrument_free(heap), 0);
    return m;
}

static void test_arena_holds_every_step(void **state) {
    (void)state;
    static const int chosen[] = {0, 3, 7, 8, 10, 14, 20, 27, 31, 36, 38};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        const config *c = &configs[chosen[i]];
        tl_error error = {0};
        tl_model model = model_of(c);
        tl_train_options train = train_of(c);
        train.condensed = false; /* an arena follows every micro-batch */
        tl_ctx *meta = tl_ctx_new(NULL, &error);
        tl_trainer *trainer = tl_trainer_new(meta, &model, &train);
        for (int k = 0; k < 2; k++)
            assert_int_equal(tl_trainer_step(trainer, NULL, NULL, 1e-2, NULL), TL_OK);
        tl_arena_plan arena_plan;
        assert_int_equal(tl_arena_plan_make(meta, &arena_plan), TL_OK);
        tl_peak peak;
        tl_ledger_peak(meta, &peak);
        assert_true(arena_plan.bytes + arena_plan.carried_bytes >= peak.bytes);
        losses with, without;
        int64_t unplanned = -1, none = -1;
        measured in_block = run_steps(c, &arena_plan, &with, &unplanned);
        measured on_heap = run_steps(c, NULL, &without, &none);
        assert_int_equal(unplanned, 0);
        assert_int_equal(in_block.allocations, 0);
        assert_int_equal(on_heap.allocations, 3 * arena_plan.count);
        assert_memory_equal(&with, &without, sizeof with);
        tl_arena_plan_free(meta, &arena_plan);
        tl_trainer_free(trainer);
        tl_ctx_free(meta);
    }
}

/* A step that does not follow the plan (half the sequence) still computes the same and reports what it took elsewhere. */
static void test_arena_reports_unplanned(void **state) {
    (void)state;
    config small = configs[3];
    small.T = 8;
    tl_error error = {0};
    tl_model model = model_of(&small);
    tl_train_options train = train_of(&small);
    tl_ctx *meta = tl_ctx_new(NULL, &error);
    tl_trainer *trainer = tl_trainer_new(meta, &model, &train);
    for (int k = 0; k < 2; k++)
        assert_int_equal(tl_trainer_step(trainer, NULL, NULL, 1e-2, NULL), TL_OK);
    tl_arena_plan arena_plan;
    assert_int_equal(tl_arena_plan_make(meta, &arena_plan), TL_OK);
    losses with, without;
    int64_t unplanned = 0, none = 0;
    measured m = run_steps(&configs[3], &arena_plan, &with, &unplanned);
    (void)run_steps(&configs[3], NULL, &without, &none);
    assert_true(unplanned > 0);
    assert_true(m.allocations > 0);
    assert_memory_equal(&with, &without, sizeof with);
    tl_arena_plan_free(meta, &arena_plan);
    tl_trainer_free(trainer);
    tl_ctx_free(meta);
}

/* ---- mutations: each must make the comparison fail ---- */

static void cost_doubled(const tl_sig *sig, tl_cost *cost) {
    tl_op_linear.cost(sig, cost);
    cost->matmul.count *= 2;
}

static void cost_nothing(const tl_sig *sig, tl_cost *cost) {
    (void)sig;
    (void)cost;
}

/* A storage of 100 bytes behind the dispatcher's back, as an op with an undeclared workspace would take. */
static tl_status forward_takes_storage(const tl_sig *sig, tl_args *args) {
    const tl_allocator *from = &sig->ctx->allocator;
    void *work = from->alloc(from->self, 100, 64, TL_ALLOC_STORAGE);
    if (!work)
        return TL_ERR_MEMORY;
    tl_status status = tl_op_linear.forward(sig, args);
    from->release(from->self, work, 100, TL_ALLOC_STORAGE);
    return status;
}

static void *volatile escaped; /* keeps the compiler from removing the pair */

static tl_status forward_mallocs(const tl_sig *sig, tl_args *args) {
    escaped = malloc(100);
    free(escaped);
    return tl_op_linear.forward(sig, args);
}

/* Two layers, their loss and gradients, with `op` as the layer. */
static void run_graph(tl_ctx *ctx, const tl_op *op) {
    tl_scope_begin(ctx);
    tl_tensor *w1 = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(9), tl_dim_of(5)), TL_PARAM), 0.5);
    tl_tensor *w2 = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(3), tl_dim_of(9)), TL_PARAM), 0.25);
    tl_tensor *x = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(7), tl_dim_of(5)), TL_DATA), 1.0);
    tl_tensor_require_grad(w1, true);
    tl_tensor_require_grad(w2, true);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_tensor *h = tl_run1(op, (tl_tensor *[]){x, w1}, 2, NULL, TL_HERE);
    tl_tensor *y = tl_run1(op, (tl_tensor *[]){h, w2}, 2, NULL, TL_HERE);
    assert_int_equal(tl_backward(ctx, tl_mean(y, NULL, 0, false), 1.0), TL_OK);
    tl_tensor_clear_grad(w1);
    tl_tensor_clear_grad(w2);
    tl_scope_end(ctx);
    assert_int_equal(tl_record(ctx, false), TL_OK);
}

static int graph_differences(const tl_op *op) {
    tl_error error = {0};
    account planned = {0}, real = {0};
    tl_ctx *meta = tl_ctx_new(NULL, &error);
    for (int i = 0; i < 2; i++) {
        tl_ledger_step_begin(meta);
        run_graph(meta, op);
    }
    read_step(meta, &planned.step);
    tl_ctx_free(meta);
    instrument *in = instrument_new(NULL);
    tl_allocator allocator = instrument_allocator(in);
    tl_ctx *ctx = tl_ctx_new(
        &(tl_ctx_options){.kernels = instrument_kernels(in, tl_kernels_portable()), .allocator = &allocator}, &error);
    run_graph(ctx, op);
    instrument_begin(in);
    run_graph(ctx, op);
    real.step = instrument_end(in);
    tl_ctx_free(ctx);
    assert_int_equal(instrument_free(in), 0);
    /* Nobody watches here: what a tensor is for is compared by the configurations above. */
    real.step.rest = planned.step.rest;
    real.step.param = planned.step.param;
    real.step.grad = planned.step.grad;
    real.step.data = planned.step.data;
    return compare(op->name, &planned, &real, true);
}

static void test_mutations_are_caught(void **state) {
    (void)state;
    tl_op op = tl_op_linear;
    assert_int_equal(graph_differences(&op), 0);
    op.cost = cost_doubled;
    assert_int_equal(graph_differences(&op), 1); /* FLOPs, nothing else */
    op.cost = cost_nothing;
    assert_int_equal(graph_differences(&op), 1);
    op = tl_op_linear;
    op.forward = forward_takes_storage;
    assert_true(graph_differences(&op) >= 1); /* allocations; the peak too where it lies there */
    op.forward = forward_mallocs;
    assert_int_equal(graph_differences(&op), 2); /* uncounted calls and bytes */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_equals_measured),
        cmocka_unit_test(test_planned_equals_measured_with_recompute),
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_planned_equals_measured_with_choices),
        cmocka_unit_test(test_planned_equals_measured_with_adapters),
        cmocka_unit_test(test_planned_equals_measured_as_kept),
        cmocka_unit_test(test_every_precision),
        cmocka_unit_test(test_arena_holds_every_step),
        cmocka_unit_test(test_arena_reports_unplanned),
        cmocka_unit_test(test_mutations_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
