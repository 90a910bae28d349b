/* The planner against numbers from outside: published counts, faults of other tools with the right values, and exact
 * arithmetic. Sources stand beside each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tally/bill.h"
#include "tally/config.h"
#include "tally/cpu.h"
#include "tally/plan.h"

static tl_plan_options options_for(const char *model, const char *devices) {
    tl_plan_options o;
    tl_error error = {TL_OK, ""};
    memset(&o, 0, sizeof o);
    if (tl_catalogue_model(model, &o.model, &error) != TL_OK || tl_parse_devices(devices, &o.devices, &error) != TL_OK)
        fail_msg("%s", error.message);
    o.micro_batch = 1;
    o.seq = 128;
    o.precision = TL_PRECISION_BF16_MIXED;
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    return o;
}

static tl_plan planned(const tl_plan_options *o) {
    tl_plan p;
    tl_error error = {TL_OK, ""};
    if (tl_plan_make(o, &p, &error) != TL_OK)
        fail_msg("%s", error.message);
    return p;
}

/* "fp32: 4+4+8; mixed: 2+2+4+4+4. Both are 16" (FAULTS.md); "torchtune bf16: 2+2+4", "SGD-m 4" (formulas.md, static bytes). */
static void keeps_the_published_bytes_per_parameter(void **state) {
    static const struct {
        tl_precision precision;
        tl_optimizer_kind kind;
        double momentum;
        int64_t param, grad, master, optim, scales; /* bytes of a parameter; scales: of 256 */
    } rows[] = {
        {TL_PRECISION_FP32, TL_OPTIM_ADAMW, 0, 4, 4, 0, 8, 0},
        {TL_PRECISION_BF16_MIXED, TL_OPTIM_ADAMW, 0, 2, 2, 4, 8, 0},
        {TL_PRECISION_BF16, TL_OPTIM_ADAMW, 0, 2, 2, 0, 4, 0},
        {TL_PRECISION_FP16_MIXED, TL_OPTIM_ADAMW, 0, 2, 2, 4, 8,
         0}, /* Micikevicius et al. 2018: fp16 beside an fp32 copy */
        {TL_PRECISION_FP8_MIXED, TL_OPTIM_ADAMW, 0, 2, 2, 4, 8,
         0}, /* bf16-mixed's; scales are no bytes per parameter */
        {TL_PRECISION_FP32, TL_OPTIM_SGD, 0, 4, 4, 0, 0, 0},
        {TL_PRECISION_FP32, TL_OPTIM_SGD, 0.9, 4, 4, 0, 4, 0},
        {TL_PRECISION_FP32, TL_OPTIM_ADAGRAD, 0, 4, 4, 0, 4, 0},
        {TL_PRECISION_BF16_MIXED, TL_OPTIM_SGD, 0, 2, 2, 4, 0, 0},
        {TL_PRECISION_FP32, TL_OPTIM_NONE, 0, 4, 4, 0, 0, 0},
        {TL_PRECISION_FP32, TL_OPTIM_ADAMW8BIT, 0, 4, 4, 0, 2, 8}, /* Dettmers et al. 2022: a scale a block and state */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t each[TL_CATEGORY_COUNT];
        tl_error error = {TL_OK, ""};
        tl_optimizer_options o = tl_optimizer_defaults(rows[i].kind);
        o.momentum = rows[i].momentum;
        assert_int_equal(tl_plan_block_bytes(rows[i].precision, &o, each, &error), TL_OK);
        assert_int_equal(each[TL_PARAM], rows[i].param * 256);
        assert_int_equal(each[TL_GRAD], rows[i].grad * 256);
        assert_int_equal(each[TL_MASTER], rows[i].master * 256);
        assert_int_equal(each[TL_OPTIM], rows[i].optim * 256 + rows[i].scales);
    }
}

/* "70.55e9 parameters in fp16 are 141.1 GB = 131.4 GiB, whatever torch_dtype says" (FAULTS.md); 70,553,706,496 is
 * Llama-3-70B's published count (models.csv). */
static void holds_the_weights_of_70b_in_full(void **state) {
    (void)state;
    tl_plan_options o = options_for("llama-3-70b", "H100");
    tl_plan p = planned(&o);
    assert_int_equal(p.parameters.unique, INT64_C(70553706496));
    assert_int_equal(p.high[TL_PARAM], INT64_C(70553706496) * 2);
    assert_float_equal((double)p.high[TL_PARAM] / 1e9, 141.1, 0.05);
    assert_float_equal((double)p.high[TL_PARAM] / 1073741824.0, 131.4, 0.05);
    assert_false(p.fits);
    assert_true(p.capacity_bytes > 0);
}

static const tl_plan_holder *holder(const tl_plan *p, const char *op, tl_category category) {
    for (int i = 0; i < p->n_top; i++)
        if (strcmp(p->top[i].op, op) == 0 && p->top[i].category == category)
            return &p->top[i];
    return NULL;
}

/* "B = 4, T = 1024, V = 50304 needs 4·1024·50304·4 B = 786 MiB for ONE fp32 logits tensor; logits … and their gradient must
 * each show" (FAULTS.md). */
static void shows_the_logits_and_their_gradient(void **state) {
    const int64_t logits = INT64_C(4) * 1024 * 50304 * 4;
    (void)state;
    tl_plan_options o = options_for("gpt2", "H100");
    o.model.vocab = 50304;
    o.seq = 1024;
    o.micro_batch = 4;
    o.precision = TL_PRECISION_FP32;
    tl_plan p = planned(&o);
    assert_int_equal(logits / 1048576, 786);
    const tl_plan_holder *kept = NULL, *gradient = holder(&p, "cross_entropy_backward", TL_WORK);
    for (int i = 0; i < p.n_top; i++)
        if (strcmp(p.top[i].module, "lm_head") == 0 && p.top[i].category == TL_SAVED)
            kept = &p.top[i];
    assert_non_null(kept);
    assert_int_equal(kept->bytes, logits);
    assert_non_null(gradient);
    assert_int_equal(gradient->bytes, logits);
    assert_int_equal(p.peak.phase, TL_PHASE_BACKWARD);
    assert_string_equal(p.peak.op, "cross_entropy_backward");
    assert_true(p.arena_bytes >= p.peak.bytes);
}

/* What a description asks for and training does not do is left out by name, and refused where values are. */
static void leaves_out_the_balance_loss(void **state) {
    (void)state;
    tl_plan_options o = options_for("mixtral-8x7b", "H100");
    o.seq = 64;
    for (int asked = 0; asked < 2; asked++) {
        bool named = false;
        o.model.router_loss = asked ? 0.02 : 0;
        tl_plan p = planned(&o);
        for (int i = 0; i < p.n_leaves_out; i++)
            named = named || strstr(p.leaves_out[i], "load-balancing");
        assert_int_equal(named, asked);
    }
    tl_error error = {TL_OK, ""};
    tl_ctx *cpu = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .threads = 1}, &error);
    tl_train_options train = {.micro_batch = 1, .seq = 64, .accumulation = 1, .ranks = 1, .dtype = TL_F32};
    train.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    assert_null(tl_trainer_new(cpu, &o.model, &train));
    assert_int_equal(tl_ctx_status(cpu), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(tl_ctx_error(cpu)->message, "output_router_logits"));
    tl_ctx_free(cpu);
}

/* "h = 4096, L = 32: norms hold exactly (2L+1)h = 266,240 … 2+2+12 with bf16 grads and 2+4+12 with fp32 grads" (FAULTS.md):
 * neither twice nor on every stage, and 4 bytes for a gradient where it is kept in fp32. */
static void counts_norms_once_and_gradients_as_kept(void **state) {
    (void)state;
    tl_plan_options o = options_for("llama-2-7b", "H100");
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_net *net = tl_net_new(ctx, &o.model, TL_F32);
    const tl_parameter *list;
    int64_t norms = 0;
    int count = tl_net_parameters(net, &list);
    for (int i = 0; i < count; i++)
        if (strstr(list[i].name, "norm"))
            norms += tl_tensor_count(list[i].tensor);
    assert_int_equal(norms, 266240);
    tl_net_free(net);
    tl_ctx_free(ctx);
    o.seq = 128;
    for (int wide = 0; wide < 2; wide++) {
        o.choices.grads = wide ? TL_GRADS_F32 : TL_GRADS_AS_PARAMETERS;
        tl_plan p = planned(&o);
        int64_t P = p.parameters.unique;
        assert_int_equal(p.high[TL_PARAM], 2 * P);
        assert_int_equal(p.high[TL_MASTER] + p.high[TL_OPTIM], 12 * P);
        if (wide)
            assert_true(p.high[TL_GRAD] >= 4 * P);
        else
            assert_int_equal(p.high[TL_GRAD], 2 * P);
    }
}

/* "Llama-2-7B, 4 sequences of 8192: attention 422.21 against 211.11 TFLOP a step (totals 1721.22, 1510.11; … with T(T+1)/2 it
 * is … 1510.14)" (FAULTS.md). */
static void counts_attention_both_ways(void **state) {
    (void)state;
    tl_plan_options o = options_for("llama-2-7b", "H100");
    o.seq = 8192;
    o.micro_batch = 4;
    tl_plan p = planned(&o);
    assert_int_equal(p.parameters.unique, INT64_C(6738415616));
    assert_float_equal(tl_u128_double(p.per_step) / 1e12, 1721.22, 0.005);
    assert_float_equal(tl_u128_double(p.per_step_causal) / 1e12, 1510.14, 0.005);
    assert_true(p.per_step == p.per_token * 4 * 8192);
    /* "backward = 2x forward" (formulas.md) */
    assert_true(p.per_token == 3 * p.forward_per_token);
}

/* "Same global batch on 1 and 8 ranks at equal speed: equal MFU" (FAULTS.md: it fell as 1/ranks). */
static void gives_one_and_eight_devices_the_same_mfu(void **state) {
    (void)state;
    tl_plan_options one = options_for("gpt2", "1xH100"), eight = options_for("gpt2", "8xH100");
    one.global_batch = eight.global_batch = 8;
    one.mfu = eight.mfu = 0.4;
    tl_plan a = planned(&one), b = planned(&eight);
    assert_int_equal(a.accumulation, 8);
    assert_int_equal(b.accumulation, 1);
    assert_true(a.per_step == b.per_step);
    assert_float_equal(a.mfu, 0.4, 1e-12);
    assert_float_equal(b.mfu, 0.4, 1e-12);
    assert_float_equal(a.step_seconds, 8 * b.step_seconds, 1e-12);
    assert_float_equal(a.step_seconds, tl_u128_double(a.per_step) / (989.4e12 * 0.4), 1e-9); /* accelerators.csv */
    /* ring all-reduce: 2·(D−1)/D·W·bytes (formulas.md), gradients in bf16 */
    assert_true(a.sent_per_step == 0);
    assert_true(b.sent_per_step == (tl_u128)124439808 * 2 * 2 * 7 / 8);
}

/* "An option that changes nothing. Vary each option alone: the answer changes" (FAULTS.md). */
static void answers_to_every_option(void **state) {
    (void)state;
    tl_plan_options base = options_for("gpt2", "H100"), o;
    base.tokens = 1000000000;
    base.price = 2;
    tl_plan p = planned(&base), q;
#define VARIED(change, differs)                                                                                        \
    do {                                                                                                               \
        o = base;                                                                                                      \
        change;                                                                                                        \
        q = planned(&o);                                                                                               \
        if (!(differs))                                                                                                \
            fail_msg("%s changes nothing", #change);                                                                   \
    } while (0)
    VARIED(o.seq = 64, q.peak.bytes < p.peak.bytes && q.forward_per_token < p.forward_per_token);
    VARIED(o.micro_batch = 2, q.peak.bytes > p.peak.bytes && q.per_step == 2 * p.per_step);
    VARIED(o.global_batch = 2, q.per_step == 2 * p.per_step && q.accumulation == 2);
    VARIED(o.devices.count = 2, q.per_step == 2 * p.per_step && q.sent_per_step > 0);
    VARIED(o.devices.accelerator = tl_accelerator_at(0), q.peak_flop_per_s != p.peak_flop_per_s);
    VARIED(o.precision = TL_PRECISION_FP32, q.high[TL_PARAM] == 2 * p.high[TL_PARAM]);
    VARIED(o.precision = TL_PRECISION_BF16, q.high[TL_MASTER] == 0 && p.high[TL_MASTER] > 0);
    VARIED(o.optimizer = tl_optimizer_defaults(TL_OPTIM_SGD), q.high[TL_OPTIM] == 0 && p.high[TL_OPTIM] > 0);
    VARIED(o.clip = 1, q.arithmetic_per_step > p.arithmetic_per_step && q.per_step == p.per_step);
    VARIED(o.causal = true, q.mfu < p.mfu && q.step_seconds == p.step_seconds);
    VARIED(o.mfu = 0.01, q.step_seconds > p.step_seconds);
    VARIED(o.peak = 100e12, q.mfu > p.mfu && q.step_seconds > p.step_seconds);
    VARIED(o.price = 4, q.amount == 2 * p.amount && p.amount > 0);
    VARIED(o.tokens = 2000000000, q.total_seconds > 1.99 * p.total_seconds);
#undef VARIED
}

/* What fits fits, one more does not: both planned apart. */
static void finds_the_largest_that_fits(void **state) {
    tl_error error = {TL_OK, ""};
    tl_plan_largest largest;
    (void)state;
    for (int axis = 0; axis < 2; axis++) {
        tl_plan_options o = options_for(axis ? "smollm2-135m" : "gpt2", "A100-40G");
        o.seq = 512;
        assert_int_equal(tl_plan_find_largest(&o, axis ? TL_PLAN_SEQ : TL_PLAN_MICRO_BATCH, &largest, &error), TL_OK);
        assert_true(largest.value > 1);
        assert_false(largest.limited);
        *(axis ? &o.seq : &o.micro_batch) = largest.value;
        tl_plan p = planned(&o);
        assert_true(p.fits);
        assert_int_equal(p.arena_bytes, largest.bytes);
        *(axis ? &o.seq : &o.micro_batch) = largest.value + 1;
        p = planned(&o);
        assert_false(p.fits);
        assert_int_equal(p.arena_bytes, largest.next_bytes);
    }
    tl_plan_options gpt2 = options_for("gpt2", "H100");
    assert_int_equal(tl_plan_find_largest(&gpt2, TL_PLAN_SEQ, &largest, &error), TL_OK);
    assert_int_equal(largest.value, 1024); /* n_positions: the model's own limit */
    assert_true(largest.limited);
    tl_plan_options big = options_for("llama-3-70b", "H100");
    assert_int_equal(tl_plan_find_largest(&big, TL_PLAN_MICRO_BATCH, &largest, &error), TL_OK);
    assert_int_equal(largest.value, 0);
    gpt2.find_max_micro_batch = true;
    assert_true(planned(&gpt2).max_micro_batch > 1);
    big.find_max_micro_batch = true;
    assert_int_equal(planned(&big).max_micro_batch, 0);
}

/* The first suggestion, planned by itself, is what the advice says. */
static void advises_what_it_has_planned(void **state) {
    tl_error error = {TL_OK, ""};
    tl_plan_advice advice;
    (void)state;
    tl_plan_options o = options_for("gpt2-xl", "A100-40G");
    o.seq = 1024;
    o.micro_batch = 32;
    tl_plan p = planned(&o);
    assert_false(p.fits);
    assert_int_equal(tl_plan_advise(&o, &p, &advice, &error), TL_OK);
    assert_true(advice.count > 1);
    assert_string_equal(advice.list[0].change, "--micro-batch 1 --global-batch 32");
    assert_string_equal(advice.list[0].effect, "same run");
    assert_true(advice.list[0].fits);
    assert_int_equal(advice.state_bytes, INT64_C(1557611200) * 16);
    assert_int_equal(advice.leanest_bytes, INT64_C(1557611200) * 4);
    o.micro_batch = 1;
    o.global_batch = 32;
    tl_plan q = planned(&o);
    assert_int_equal(q.arena_bytes, advice.list[0].bytes);
    assert_int_equal(q.peak.bytes, advice.list[0].peak_bytes);
    assert_true(q.per_step == p.per_step);
    for (int i = 1; i < advice.count; i++) /* what fits comes first */
        assert_true(advice.list[i - 1].fits || !advice.list[i].fits);
}

/* 405.853 B parameters (models.csv) × 4 B is more than 80 GB: nothing of one device helps, and nothing is tried. */
static void tries_nothing_where_the_state_alone_exceeds(void **state) {
    tl_error error = {TL_OK, ""};
    tl_plan_advice advice;
    (void)state;
    tl_plan_options o = options_for("llama-3.1-405b", "8xH100");
    tl_plan p = planned(&o);
    assert_false(p.fits);
    assert_int_equal(tl_plan_advise(&o, &p, &advice, &error), TL_OK);
    assert_true(advice.state_exceeds);
    assert_int_equal(advice.runs, 0);
    assert_int_equal(advice.count, 0);
    assert_int_equal(advice.state_bytes, INT64_C(405853388800) * 16);
}

/* 0.45 to 0.9 GiB (formulas.md, "Outside torch"); 81559 MiB is what nvidia-smi shows of an H100 (accelerators.csv). */
static void keeps_room_for_the_device_context(void **state) {
    int64_t capacity, usable, context;
    (void)state;
    tl_plan_options o = options_for("gpt2", "H100");
    tl_plan_capacity(&o.devices, NULL, NULL, &capacity, &usable, &context);
    assert_in_range(context, 483183820, 966367641);
    assert_int_equal(capacity, INT64_C(80) << 30);
    assert_true(usable + context <= capacity);
    assert_int_equal(usable, ((int64_t)81559 << 20) - context);
    o.devices = (tl_devices){.count = 1, .here = true};
    tl_plan p = planned(&o); /* nothing measured: unknown, not a guess */
    assert_int_equal(p.capacity_bytes, 0);
    assert_true(p.step_seconds == 0 && p.mfu == 0 && p.peak_flop_per_s == 0);
    assert_true(p.n_leaves_out > 0);
}

static void refuses_what_cannot_be(void **state) {
    tl_plan p;
    (void)state;
#define REFUSED(change, status, word)                                                                                  \
    do {                                                                                                               \
        tl_plan_options o = options_for("gpt2", "2xH100");                                                             \
        tl_error error = {TL_OK, ""};                                                                                  \
        change;                                                                                                        \
        assert_int_equal(tl_plan_make(&o, &p, &error), status);                                                        \
        if (!strstr(error.message, word))                                                                              \
            fail_msg("%s: %s", #change, error.message);                                                                \
    } while (0)
    REFUSED(o.micro_batch = 0, TL_ERR_ARGUMENT, "at least 1");
    REFUSED(o.micro_batch = -1, TL_ERR_ARGUMENT, "at least 1");
    REFUSED(o.seq = 0, TL_ERR_ARGUMENT, "at least 1");
    REFUSED(o.global_batch = 3, TL_ERR_ARGUMENT, "a multiple of 2");
    REFUSED(o.seq = 1025, TL_ERR_SHAPE, "1024");
    REFUSED(o.micro_batch = INT64_MAX, TL_ERR_OVERFLOW, "64 bits");
    REFUSED(o.micro_batch = INT64_C(1) << 50, TL_ERR_OVERFLOW, "2^63");
    REFUSED((o.precision = TL_PRECISION_BF16, o.autocast = true), TL_ERR_ARGUMENT, "bf16 has no use for it");
    REFUSED(o.precision = (tl_precision)5, TL_ERR_ARGUMENT, "precision 5");
    REFUSED(o.clip = -1, TL_ERR_ARGUMENT, "clipping");
#undef REFUSED
}

/* ---- the bill of one line ---- */

static tl_bill billed(const char *op, const char *device, int64_t tokens, tl_precision precision) {
    tl_bill b;
    tl_devices devices;
    tl_error error = {TL_OK, ""};
    tl_bill_options o = {
        .op = op, .tokens = tokens, .precision = precision, .optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW)};
    if (device && tl_parse_devices(device, &devices, &error) != TL_OK)
        fail_msg("%s", error.message);
    o.devices = device ? &devices : NULL;
    if (tl_bill_make(&o, &b, &error) != TL_OK)
        fail_msg("%s", error.message);
    return b;
}

/* A 2048×2048 linear layer without bias under AdamW: 16 MiB, 32 MiB after backward, 64 MiB after the step; 4, 8, 16 bytes per
 * parameter; bf16/fp16 copies 8 MiB: 4, 4 and 4 + 4 bytes times 2²². */
static void bills_a_square_linear_layer(void **state) {
    const int64_t n = INT64_C(2048) * 2048, MiB = 1048576;
    (void)state;
    tl_bill b = billed("linear 2048 2048", NULL, 0, TL_PRECISION_FP32);
    assert_int_equal(b.parameters, n);
    assert_int_equal(b.built_bytes, 16 * MiB);
    assert_int_equal(b.backward_bytes, 32 * MiB);
    assert_int_equal(b.step_bytes, 64 * MiB);
    assert_int_equal(b.built_bytes / n, 4);
    assert_int_equal(b.backward_bytes / n, 8);
    assert_int_equal(b.step_bytes / n, 16);
    b = billed("linear 2048 2048", NULL, 0, TL_PRECISION_BF16);
    assert_int_equal(b.param_bytes, 8 * MiB);
    b = billed("linear 2048 2048", NULL, 0, TL_PRECISION_BF16_MIXED);
    assert_int_equal(b.param_bytes, 8 * MiB);
    assert_int_equal(b.master_bytes, 16 * MiB);
    assert_int_equal(b.step_bytes, 64 * MiB);
    assert_true(b.forward.bound == TL_BOUND_UNKNOWN && b.ridge == 0); /* no device, no guess */
}

/* UX.md: "forward 2.10 M/token, backward 4.19 M, together 6.29 M = 6 per parameter; at 4096 tokens, bf16: intensity 455 FLOP/B
 * ≥ ridge 295 → compute-bound; 8.7 µs at peak". */
static void bills_the_linear_layer_of_the_sketch(void **state) {
    (void)state;
    tl_bill b = billed("linear 1024 1024 bias", "H100", 4096, TL_PRECISION_BF16_MIXED);
    assert_int_equal(b.parameters, 1048576 + 1024);
    assert_int_equal(b.biases, 1024);
    b = billed("linear 1024 1024", "H100", 0, TL_PRECISION_BF16_MIXED);
    assert_int_equal(b.tokens, 4096);
    assert_true(b.forward.matmul / 4096 == 2 * 1048576);
    assert_true(b.backward.matmul / 4096 == 4 * 1048576);
    assert_true((b.forward.matmul + b.backward.matmul) / 4096 == 6 * (tl_u128)b.parameters);
    /* 2·4096·1024² / (2·(2·4096·1024 + 1024²)) */
    assert_float_equal(b.forward.intensity, 8589934592.0 / 18874368.0, 1e-9);
    assert_float_equal(b.forward.intensity, 455, 0.5);
    assert_float_equal(b.ridge, 295, 0.5);
    assert_int_equal(b.forward.bound, TL_BOUND_COMPUTE);
    assert_float_equal(b.forward.seconds, 8.7e-6, 0.05e-6);
    assert_int_equal(b.step.bound, TL_BOUND_MEMORY);
    assert_int_equal(billed("linear 1024 1024", "H100", 1, TL_PRECISION_BF16_MIXED).forward.bound, TL_BOUND_MEMORY);
}

/* "CPU attention counted 0 ((1,12,64,64): 12,582,912)"; "GQA counted with KV heads (8 query / 2 KV: 4× low; right:
 * 134,217,728)" (FAULTS.md); a look-up costs no matmul, parameters as in formulas.md. */
static void bills_the_other_ops(void **state) {
    (void)state;
    tl_bill b = billed("attention 12 64 64", NULL, 0, TL_PRECISION_FP32);
    assert_true(b.forward.matmul == 12582912);
    assert_true(b.backward.matmul == 2 * (tl_u128)12582912);
    assert_true(b.forward.matmul_causal == (tl_u128)4 * 12 * 64 * (64 * 65 / 2));
    b = billed("attention 8 64 256 2", NULL, 0, TL_PRECISION_FP32);
    assert_true(b.forward.matmul == 134217728);
    b = billed("embedding 50257 768", NULL, 0, TL_PRECISION_FP32);
    assert_int_equal(b.parameters, 50257 * 768);
    assert_true(b.forward.matmul == 0 && b.backward.matmul == 0);
    b = billed("mlp 768 3072", NULL, 16, TL_PRECISION_FP32);
    assert_true(b.forward.matmul + b.backward.matmul == (tl_u128)6 * 16 * 2 * 768 * 3072);
    b = billed("mlp 768 3072 gated", NULL, 16, TL_PRECISION_FP32);
    assert_int_equal(b.parameters, 3 * 768 * 3072);
    /* one layer of GPT-2: (4h²+4h)+(2hf+f+h)+4h = 7,087,872 (formulas.md); matmul 2·12·h² + 4·T·h a token */
    b = billed("block gpt2 768 12 1024", NULL, 0, TL_PRECISION_FP32);
    assert_int_equal(b.parameters, 7087872);
    assert_true(b.forward.matmul == (tl_u128)1024 * (2 * 12 * 768 * 768 + 4 * 1024 * 768));
    assert_true(b.backward.matmul == 2 * b.forward.matmul);
    /* one layer of Llama-2-7B: 4h² + 3hf + 2h with f = 11008 */
    b = billed("block llama 4096 32 128", NULL, 0, TL_PRECISION_BF16_MIXED);
    assert_int_equal(b.parameters, INT64_C(4) * 4096 * 4096 + INT64_C(3) * 4096 * 11008 + 2 * 4096);
    /* classic activation terms of a block without dropout, in 2-byte formats (Korthikanti 2022): more than the two norm
     * inputs (4·s·b·h), less than sbh(34 + 5as/h) of the whole layer with dropout */
    b = billed("block gpt2 768 12 1024", NULL, 0, TL_PRECISION_BF16);
    assert_in_range(b.saved_bytes, 4 * 1024 * 768, 1024 * 768 * 34 + 5 * 12 * 1024 * 1024);
    static const char *const plain[] = {"layer_norm 768", "rms_norm 768",   "softmax 64", "gelu 64",
                                        "silu 64",        "relu 64",        "add 64",     "cross_entropy 50257",
                                        "matmul 3 4 5",   "linear 1 1 bias"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        b = billed(plain[i], "A100-80G", 0, TL_PRECISION_BF16_MIXED);
        assert_string_equal(b.title, plain[i]);
        assert_true(b.forward.read + b.forward.written > 0);
        /* a sum hands its gradient on as it is */
        assert_true((b.backward.ops > 0) == (strncmp(plain[i], "add", 3) != 0));
    }
}

static void refuses_ops_it_does_not_know(void **state) {
    static const struct {
        const char *op;
        int64_t tokens;
        const char *word;
    } cases[] = {
        {"", 0, "no such op"},
        {"   ", 0, "no such op"},
        {"conv 3 3", 0, "no such op"},
        {"linear", 0, "missing"},
        {"linear 3", 0, "missing"},
        {"linear 3 4 5", 0, "does not belong"},
        {"linear 3 x", 0, "does not belong"},
        {"linear 3 4 bias bias", 0, "does not belong"},
        {"linear 0 4", 0, "is no size"},
        {"linear 99999999999999999999 4", 0, "does not belong"},
        {"linear 9223372036854775807 4", 0, "is no size"},
        {"linear 1099511627776 1099511627776", 0, "2^63"},
        {"attention 8 64 100 3", 0, "divi"},
        {"attention 8 64 100", 150, "200 would work"},
        {"matmul 2 3 4", 5, "sizes in itself"},
        {"block gpt3 768 12 64", 0, "gpt2 or llama"},
        {"block gpt2 10 3 4", 0, "heads"},
        {"linear 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", 0, "does not belong"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_bill b;
        tl_error error = {TL_OK, ""};
        tl_bill_options o = {.op = cases[i].op,
                             .tokens = cases[i].tokens,
                             .precision = TL_PRECISION_FP32,
                             .optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW)};
        if (tl_bill_make(&o, &b, &error) == TL_OK || !strstr(error.message, cases[i].word))
            fail_msg("\"%s\": %s", cases[i].op, error.message);
    }
    char text[4096];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    tl_bill b;
    tl_error error = {TL_OK, ""};
    tl_bill_options o = {.op = text, .precision = TL_PRECISION_FP32, .optimizer = tl_optimizer_defaults(TL_OPTIM_SGD)};
    assert_int_equal(tl_bill_make(&o, &b, &error), TL_ERR_ARGUMENT);
    int n = 0;
    while (tl_bill_grammar(n, NULL))
        n++;
    assert_true(n >= 14);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_published_bytes_per_parameter),
        cmocka_unit_test(holds_the_weights_of_70b_in_full),
        cmocka_unit_test(leaves_out_the_balance_loss),
        cmocka_unit_test(counts_norms_once_and_gradients_as_kept),
        cmocka_unit_test(shows_the_logits_and_their_gradient),
        cmocka_unit_test(counts_attention_both_ways),
        cmocka_unit_test(gives_one_and_eight_devices_the_same_mfu),
        cmocka_unit_test(answers_to_every_option),
        cmocka_unit_test(finds_the_largest_that_fits),
        cmocka_unit_test(advises_what_it_has_planned),
        cmocka_unit_test(tries_nothing_where_the_state_alone_exceeds),
        cmocka_unit_test(keeps_room_for_the_device_context),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(bills_a_square_linear_layer),
        cmocka_unit_test(bills_the_linear_layer_of_the_sketch),
        cmocka_unit_test(bills_the_other_ops),
        cmocka_unit_test(refuses_ops_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
