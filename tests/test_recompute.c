/* What recompute saves and costs, by the account of real models: FLOPs and bytes against Korthikanti et al. 2022, "Reducing
 * activation recomputation in large transformer models", exactly where the count is the same and with each difference
 * named; formulas equal to the ledger under every policy; and what a plan that does not fit is advised to do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "small_models.h"
#include "tally/account.h"
#include "tally/explain.h"
#include "tally/grad.h"
#include "tally/plan.h"

static const tl_recompute none = {TL_RECOMPUTE_NONE, 0}, selective = {TL_RECOMPUTE_SELECTIVE, 0},
                          full = {TL_RECOMPUTE_FULL, 0};

static tl_recompute every(int64_t k) { return (tl_recompute){TL_RECOMPUTE_EVERY, k}; }

static tl_model model_of(const char *name) {
    tl_model m;
    tl_error error = {0};
    assert_int_equal(tl_catalogue_model(name, &m, &error), TL_OK);
    return m;
}

static tl_plan_options options_of(tl_model model, tl_recompute recompute) {
    tl_plan_options o = {.micro_batch = 1, .precision = TL_PRECISION_BF16_MIXED, .recompute = recompute};
    o.model = model;
    o.seq = model.context;
    o.devices.count = 1;
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    return o;
}

static tl_plan plan_of(const tl_plan_options *o) {
    tl_plan p;
    tl_error error = {0};
    if (tl_plan_make(o, &p, &error) != TL_OK)
        fail_msg("%s", error.message);
    return p;
}

/* ---- FLOPs ---- */

typedef struct sums { /* matmul FLOPs */
    const char *part; /* of the module's pattern */
    tl_u128 forward, backward, again;
} sums;

static bool add_op(void *user, const tl_op_entry *e) {
    sums *s = user;
    if (!strstr(e->pattern, s->part))
        return true;
    if (e->recomputed)
        s->again += e->matmul.count;
    else if (e->phase == TL_PHASE_FORWARD)
        s->forward += e->matmul.count;
    else
        s->backward += e->matmul.count;
    assert_true(!e->recomputed || e->phase == TL_PHASE_BACKWARD);
    return true;
}

static sums sum_of(tl_model model, tl_recompute recompute, int64_t batch, const char *part) {
    tl_plan_options o = options_of(model, recompute);
    tl_plan_run run;
    tl_error error = {0};
    sums s = {.part = part};
    o.micro_batch = batch;
    if (tl_plan_run_make(&o, false, &run, &error) != TL_OK)
        fail_msg("%s", error.message);
    tl_ledger_each_op(run.ctx, add_op, &s);
    tl_plan_run_free(&run);
    return s;
}

/* Section 5: recomputing attention's core adds its forward once more. The core's two products are 2·2·B·s²·h a layer, twice
 * that in backward: 4 + 8 = 12·B·L·s²·h, and with the 4 again 16·B·L·s²·h, not 24. */
static void test_selective_flops(void **state) {
    (void)state;
    tl_model m = model_of("gpt2");
    tl_u128 unit = (tl_u128)3 * 12 * 1024 * 1024 * 768; /* B·L·s²·h */
    sums scores = sum_of(m, selective, 3, ".scores"), mixed = sum_of(m, selective, 3, ".values");
    assert_true(scores.forward + mixed.forward == 4 * unit);
    assert_true(scores.backward + mixed.backward == 8 * unit);
    assert_true(scores.again + mixed.again == 4 * unit);
    assert_true(scores.forward + scores.backward + scores.again + mixed.forward + mixed.backward + mixed.again ==
                16 * unit);
    tl_plan_options o = options_of(m, selective), q = options_of(m, none);
    o.micro_batch = q.micro_batch = 3;
    tl_plan p = plan_of(&o), plain = plan_of(&q);
    assert_true(p.hardware_per_step - p.per_step == 4 * unit); /* nothing else is multiplied again */
    assert_true(p.per_step == plain.per_step && plain.hardware_per_step == plain.per_step);
    assert_true(p.per_step_causal == plain.per_step_causal);
    assert_true(p.per_token == plain.per_token && p.forward_per_token == plain.forward_per_token);
}

/* Section 4: a whole forward more, of the blocks: (1 + 2 + 1)/(1 + 2) = 4/3. */
static void test_full_flops(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2", "llama-3.2-1b"}, *const parts[] = {"h.*", "layers.*"};
    for (int i = 0; i < 2; i++) {
        tl_model m = model_of(names[i]);
        m.context = 512;
        sums s = sum_of(m, full, 2, parts[i]), all = sum_of(m, full, 2, "");
        assert_true(s.again == s.forward && s.backward == 2 * s.forward);
        assert_true(3 * (s.forward + s.backward + s.again) == 4 * (s.forward + s.backward));
        assert_true(all.again == s.again); /* the head and the loss are not */
        for (int64_t k = 1; k <= m.layers + 1; k++) {
            sums part = sum_of(m, every(k), 2, parts[i]);
            assert_true(part.again * (tl_u128)m.layers == s.forward * (tl_u128)((m.layers + k - 1) / k));
        }
    }
}

/* ---- bytes ---- */

/* Saved when the forward pass is over and the loss is about to be computed. */
static int64_t saved_by(tl_model model, int64_t layers, int64_t batch, int64_t seq, tl_dtype dtype,
                        tl_recompute recompute) {
    tl_error error = {0};
    model.layers = layers;
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_net *net = tl_net_new(ctx, &model, dtype);
    assert_non_null(net);
    tl_net_train(net, true);
    assert_int_equal(tl_net_recompute(net, recompute), TL_OK);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_tensor *tokens = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(batch), tl_dim_of(seq)), TL_DATA);
    assert_non_null(tl_net_forward(net, tokens));
    int64_t saved = tl_ledger_live(ctx, TL_SAVED);
    tl_tape_clear(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
    return saved;
}

static int64_t saved_a_layer(tl_model model, int64_t batch, int64_t seq, tl_dtype dtype, tl_recompute recompute) {
    return saved_by(model, 3, batch, seq, dtype, recompute) - saved_by(model, 2, batch, seq, dtype, recompute);
}

/* Table 2 with t = 1, 16 bits and dropout, bytes a layer: none s·b·h·(34 + 5·a·s/h), selective 34·s·b·h, full 2·s·b·h. Ours
 * are the same and one thing more: the two norms' mean and 1/σ in f32, 2·2·4 = 16·s·b, which the paper neglects ("small
 * buffers"). Masks are of 1 byte here as there. */
static void test_bytes_of_korthikanti(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t b, s;
    } cases[] = {{"gpt2", 3, 1024}, {"gpt2-xl", 1, 512}, {"gpt3-175b", 2, 2048}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_model m = model_of(cases[i].name);
        m.dropout_embedding = m.dropout_attention = m.dropout_residual = 0.1;
        int64_t b = cases[i].b, s = cases[i].s, h = m.width, a = m.heads, statistics = 16 * s * b;
        int64_t got[3] = {saved_a_layer(m, b, s, TL_BF16, none), saved_a_layer(m, b, s, TL_BF16, selective),
                          saved_a_layer(m, b, s, TL_BF16, full)};
        print_message("%-10s none %" PRId64 " = %g·sbh + %g·as²b + 16·sb; selective %g·sbh + 16·sb; full %g·sbh\n",
                      cases[i].name, got[0], (double)(got[1] - statistics) / (double)(s * b * h),
                      (double)(got[0] - got[1]) / (double)(a * s * s * b),
                      (double)(got[1] - statistics) / (double)(s * b * h), (double)got[2] / (double)(s * b * h));
        assert_int_equal(got[0], 34 * s * b * h + 5 * a * s * s * b + statistics);
        assert_int_equal(got[1], 34 * s * b * h + statistics);
        assert_int_equal(got[2], 2 * s * b * h);
    }
}

/* Without dropout no masks: 2·s·b·h and 3·a·s²·b less (its own output and a mask of 1 byte in attention, two masks beside).
 * Grouped heads share keys and values; a gated MLP keeps gate, its activation, up and their product. */
static void test_bytes_of_llama(void **state) {
    (void)state;
    tl_model m = model_of("llama-3.1-8b");
    int64_t b = 2, s = 256, D = 4096, F = 14336, H = 32, G = 8, K = 128;
    /* norms' inputs and outputs 2·(2 + 2)·D, their 1/rms in f32 2·4; q, k after rotation and v; the mix; softmax 2·H·s. */
    int64_t core = 2 * H * s, rest = 8 * D + 8 + 2 * (H + 2 * G) * K + 2 * H * K + 4 * 2 * F;
    assert_int_equal(saved_a_layer(m, b, s, TL_BF16, none), b * s * (rest + core));
    assert_int_equal(saved_a_layer(m, b, s, TL_BF16, selective), b * s * rest);
    assert_int_equal(saved_a_layer(m, b, s, TL_BF16, full), b * s * 2 * D);
    /* Every third of six: two blocks' inputs alone, and four whole blocks. */
    int64_t six = saved_by(m, 6, b, s, TL_BF16, every(3)),
            outside = saved_by(m, 6, b, s, TL_BF16, full) - 6 * b * s * 2 * D;
    assert_int_equal(six, outside + b * s * (2 * 2 * D + 4 * (rest + core)));
}

/* At the peak of a plan with every block recomputed: the inputs of all blocks and the inside of one. */
static void test_peak_of_full_recompute(void **state) {
    (void)state;
    tl_model m = model_of("llama-3.1-8b");
    tl_plan_options o = options_of(m, full), q = options_of(m, none);
    o.seq = q.seq = 8192;
    tl_plan p = plan_of(&o), plain = plan_of(&q);
    int64_t input = INT64_C(2) * 8192 * 4096, block = saved_a_layer(m, 1, 8192, TL_BF16, none);
    assert_true(p.high[TL_SAVED] >= 32 * input + block - input);
    assert_true(p.high[TL_SAVED] < 33 * input + block);
    assert_true(plain.high[TL_SAVED] >= 32 * block);
    assert_true(p.peak.bytes < plain.peak.bytes && p.arena_bytes < plain.arena_bytes);
    assert_int_equal(p.high[TL_PARAM], plain.high[TL_PARAM]);
    assert_int_equal(p.high[TL_OPTIM], plain.high[TL_OPTIM]);
}

/* ---- formulas ---- */

static void explain_all(const tl_plan_options *o) {
    tl_plan_run run;
    tl_error error = {0};
    tl_explain_sum sum;
    if (tl_plan_run_make(o, true, &run, &error) != TL_OK)
        fail_msg("%s", error.message);
    for (int which = TL_EXPLAIN_MATMUL; which <= TL_EXPLAIN_SPECIAL; which++) {
        tl_counts all, again;
        if (tl_explain_flops(&run, TL_PHASE_ALL, (tl_explain_count)which, &sum, &error) != TL_OK)
            fail_msg("%s", error.message); /* formula and ledger are compared where it is made */
        tl_u128 model = sum.value;
        tl_explain_free(&sum);
        if (tl_explain_recomputed(&run, (tl_explain_count)which, &sum, &error) != TL_OK)
            fail_msg("%s", error.message);
        tl_ledger_counts(run.ctx, TL_PHASE_ALL, &all);
        tl_ledger_recomputed(run.ctx, TL_PHASE_ALL, &again);
        if (which == TL_EXPLAIN_MATMUL) {
            assert_true(model + sum.value == all.matmul && sum.value == again.matmul);
            assert_true((sum.value > 0) == (o->recompute.kind != TL_RECOMPUTE_NONE));
        }
        tl_explain_free(&sum);
    }
    for (int phase = TL_PHASE_FORWARD; phase <= TL_PHASE_COUNT; phase++)
        if (phase <= TL_PHASE_STEP || phase == TL_PHASE_ALL) {
            if (tl_explain_memory(&run, (tl_phase)phase, &sum, &error) != TL_OK)
                fail_msg("%s", error.message);
            tl_explain_free(&sum);
        }
    tl_plan_run_free(&run);
}

static void test_formulas_hold(void **state) {
    (void)state;
    const tl_recompute policies[] = {none, selective, full, every(1), every(2), every(4), every(100)};
    for (int family = 0; family < 2; family++)
        for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
            for (int64_t micros = 1; micros <= 5; micros += 2) {
                tl_plan_options o = options_of(family ? small_llama() : small_gpt2(), policies[i]);
                o.model.layers = 7;
                o.model.dropout_attention = o.model.dropout_residual = family ? 0 : 0.1;
                o.seq = 16;
                o.micro_batch = 2;
                o.global_batch = 2 * micros;
                explain_all(&o);
            }
}

/* ---- time ---- */

static void test_a_large_plan_stays_quick(void **state) {
    (void)state;
    tl_plan_options o = options_of(model_of("llama-3.1-405b"), full);
    double best = 1e9;
    o.seq = 8192;
    for (int i = 0; i < 5; i++) {
        clock_t begin = clock(); /* of this process alone, whatever else runs */
        tl_plan p = plan_of(&o);
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        best = seconds < best ? seconds : best;
        assert_true(p.hardware_per_step > p.per_step);
    }
    print_message("llama-3.1-405b, every block recomputed: %.1f ms\n", best * 1e3);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(best < 0.05);
#endif
}

/* ---- advice ---- */

/* The options that a suggestion's text means, as the command line reads them. */
static void type_in(const char *change, tl_plan_options *o) {
    char word[32], value[64];
    tl_error error = {0};
    int used = 0;
    for (const char *at = change; *at; at += used) {
        assert_int_equal(sscanf(at, "%31s %63s %n", word, value, &used), 2);
        if (strcmp(word, "--micro-batch") == 0)
            o->micro_batch = strtoll(value, NULL, 10);
        else if (strcmp(word, "--global-batch") == 0)
            o->global_batch = strtoll(value, NULL, 10);
        else if (strcmp(word, "--seq") == 0)
            o->seq = strtoll(value, NULL, 10);
        else if (strcmp(word, "--recompute") == 0)
            assert_int_equal(tl_recompute_parse(value, &o->recompute, &error), TL_OK);
        else if (strcmp(word, "--precision") == 0) {
            int p = 0;
            while (p <= TL_PRECISION_BF16_MIXED && strcmp(tl_precision_name((tl_precision)p), value) != 0)
                p++;
            assert_true(p <= TL_PRECISION_BF16_MIXED);
            o->precision = (tl_precision)p;
        } else if (strcmp(word, "--optim") == 0) {
            int k = 0;
            while (strcmp(tl_optimizer_name((tl_optimizer_kind)k), value) != 0)
                k++;
            o->optimizer = tl_optimizer_defaults((tl_optimizer_kind)k);
        } else if (strcmp(word, "-g") == 0)
            assert_int_equal(tl_parse_devices(value, &o->devices, &error), TL_OK);
        else if (strcmp(word, "--lora") == 0 || strcmp(word, "--qlora") == 0)
            o->lora = (tl_lora_options){.rank = strtoll(value, NULL, 10),
                                        .base = word[2] == 'q' ? TL_LORA_NF4_TWICE : TL_LORA_PLAIN};
        else if (strcmp(word, "--lora-base") == 0)
            o->lora.base = TL_LORA_NF4_TWICE;
        else
            assert_int_equal(tl_choice_set(&o->choices, word + 2, value, &error), TL_OK);
    }
}

/* The advice for what does not fit: its first line, and all of it true as typed. */
static tl_plan_advice check_advice(tl_plan_options o, const char *first) {
    tl_plan p = plan_of(&o), q;
    tl_plan_advice advice;
    tl_error error = {0};
    assert_false(p.fits);
    assert_int_equal(tl_plan_advise(&o, &p, &advice, &error), TL_OK);
    assert_true(advice.count > 1 && advice.list[0].fits);
    assert_string_equal(advice.list[0].change, first);
    for (int i = 0; i < advice.count; i++) {
        const tl_plan_suggestion *s = &advice.list[i];
        tl_plan_options typed = o;
        type_in(s->change, &typed);
        q = plan_of(&typed);
        assert_int_equal(q.fits, s->fits);
        assert_int_equal(q.arena_bytes, s->bytes);
        assert_int_equal(q.peak.bytes, s->peak_bytes);
        assert_true(q.hardware_per_step == s->hardware_per_step);
        if (s->cost == TL_PLAN_COST_NOTHING)
            assert_true(q.per_step == p.per_step && q.global_batch == p.global_batch); /* the same run */
        assert_int_equal(q.needs_bytes, s->needs);
        if (strcmp(s->change, advice.largest_lever) == 0)
            assert_int_equal(p.needs_bytes - q.needs_bytes, advice.largest_saving);
        if (s->cost == TL_PLAN_COST_NOTHING && strchr(s->change, ' ') == strrchr(s->change, ' ')) /* alone */
            assert_true(p.needs_bytes - q.needs_bytes <= advice.largest_saving);
        if (i == 0)
            continue;
        assert_true(s[-1].fits || !s->fits);
        if (s[-1].fits == s->fits)
            assert_true(s[-1].cost < s->cost ||
                        (s[-1].cost == s->cost && s[-1].hardware_per_step <= s->hardware_per_step));
    }
    assert_true(advice.runs <= 80);
    return advice;
}

static bool advises(const tl_plan_advice *advice, const char *change) {
    for (int i = 0; i < advice->count; i++)
        if (strcmp(advice->list[i].change, change) == 0 && advice->list[i].fits)
            return true;
    return false;
}

static bool mentions(const tl_plan_advice *advice, const char *option) {
    for (int i = 0; i < advice->count; i++)
        if (strstr(advice->list[i].change, option))
            return true;
    return false;
}

static tl_plan_advice advice_for(const tl_plan_options *o) {
    tl_error error = {0};
    tl_plan p = plan_of(o);
    tl_plan_advice advice;
    assert_int_equal(tl_plan_advise(o, &p, &advice, &error), TL_OK);
    return advice;
}

/* The choices that keep the mathematics, as few as are enough; adapters last. */
static void test_advice_knows_every_lever(void **state) {
    (void)state;
    tl_error error = {0};
    tl_plan_options o = options_of(model_of("llama-3.2-1b"), none);
    assert_int_equal(tl_parse_devices("A100-40G", &o.devices, &error), TL_OK);
    o.seq = 16384;
    o.choices.norm = TL_NORM_COMPOSED;
    o.choices.grads = TL_GRADS_F32;
    tl_plan_advice a = check_advice(o, "--recompute full --attention flash");
    assert_string_equal(a.list[0].effect, "same mathematics");
    int narrower = 0; /* gradients added in 16 bits are no longer the same numbers */
    for (int i = 0; i < a.count; i++)
        if (strstr(a.list[i].change, "--grads parameters")) {
            assert_string_equal(a.list[i].effect, "other rounding");
            narrower++;
        }
    assert_true(narrower > 0 &&
                advises(&a, "--attention flash --loss fused:8 --norm fused --glu fused --grads parameters"));
    assert_true(advises(&a, "--recompute full --attention flash"));
    assert_string_equal(a.largest_lever, "--attention flash");
    assert_true(advises(&a, "--attention flash --lora 16"));
    o = options_of(model_of("llama-3.2-1b"), none); /* its state alone, but for gradients: none of them at once */
    assert_int_equal(tl_parse_devices("RTX-4090", &o.devices, &error), TL_OK);
    o.seq = 4096;
    check_advice(o, "--attention flash --loss fused:8");
    o = options_of(model_of("llama-3-8b"), none); /* other number formats, with what helps them */
    assert_int_equal(tl_parse_devices("A100-80G", &o.devices, &error), TL_OK);
    o.seq = 8192;
    a = check_advice(o, "--recompute every:4 --attention flash --loss fused:8 --precision bf16");
    assert_true(advises(&a, "--recompute full --precision bf16") && mentions(&a, "--optim adamw8bit"));
}

/* 70.55 B parameters (models.csv) are 282 GB in bf16 with their gradients, and within 80 GB in 4.127 bits. */
static void test_advice_beyond_the_state(void **state) {
    (void)state;
    tl_error error = {0};
    tl_plan_options o = options_of(model_of("llama-3-70b"), none);
    assert_int_equal(tl_parse_devices("A100-80G", &o.devices, &error), TL_OK);
    o.seq = 4096;
    tl_plan_advice a = advice_for(&o);
    assert_true(a.state_exceeds && a.count >= 1 && a.list[0].fits);
    assert_int_equal(a.list[0].cost, TL_PLAN_COST_ADAPTERS);
    assert_true(mentions(&a, "--qlora 16") && !mentions(&a, "--lora 16"));
    assert_string_equal(a.list[0].effect, "trains something else");
    tl_plan_options typed = o;
    type_in(a.list[0].change, &typed);
    tl_plan q = plan_of(&typed);
    assert_true(q.fits && q.arena_bytes == a.list[0].bytes && q.peak.bytes == a.list[0].peak_bytes);
    assert_true(a.runs < 20);
}

/* What was asked is no suggestion, and what would be refused neither. */
static void test_advice_leaves_out(void **state) {
    (void)state;
    tl_error error = {0};
    tl_plan_options o = options_of(model_of("gpt2-xl"), none);
    assert_int_equal(tl_parse_devices("A100-40G", &o.devices, &error), TL_OK);
    o.micro_batch = 64;
    o.seq = 1024;
    o.choices.attention = TL_ATTENTION_FLASH;
    o.choices.loss = TL_LOSS_CHUNKED;
    o.lora.rank = 8;
    tl_plan_advice a = advice_for(&o);
    assert_true(a.count > 0 && !mentions(&a, "--attention") && !mentions(&a, "--loss") && !mentions(&a, "--lora ") &&
                !mentions(&a, "selective"));
    o = options_of(model_of("gpt2-xl"), none); /* 16 bytes a parameter are too much for 24 GB, 14 are not */
    assert_int_equal(tl_parse_devices("A10", &o.devices, &error), TL_OK);
    o.seq = 1024;
    assert_true(mentions((a = advice_for(&o), &a), "--update-in-backward on"));
    o.clip = 1; /* needs all gradients at once */
    assert_false(mentions((a = advice_for(&o), &a), "--update-in-backward"));
    o.clip = 0;
    o.global_batch = 4; /* so do several micro-batches */
    assert_false(mentions((a = advice_for(&o), &a), "--update-in-backward"));
}

static void test_advice_is_true_as_typed(void **state) {
    (void)state;
    tl_error error = {0};
    tl_plan_options o = options_of(model_of("gpt2-xl"), none);
    assert_int_equal(tl_parse_devices("A100-40G", &o.devices, &error), TL_OK);
    o.micro_batch = 32; /* in more parts, at no FLOPs */
    check_advice(o, "--micro-batch 1 --global-batch 32");
    o.micro_batch = 4; /* by several levers */
    o.seq = 1024;
    check_advice(o, "--attention flash");           /* of them the one with the fewest FLOPs */
    o = options_of(model_of("llama-3.2-1b"), none); /* one sequence: nothing to split */
    assert_int_equal(tl_parse_devices("A100-40G", &o.devices, &error), TL_OK);
    o.seq = 6144;
    check_advice(o, "--attention flash");
    o.seq = 8192;
    check_advice(o, "--attention flash");
    o.choices.attention = TL_ATTENTION_FLASH;
    o.seq = 13312;
    check_advice(o, "--loss fused:8");
    o = options_of(model_of("gpt2"), none);
    o.seq = 1024;
    o.precision = TL_PRECISION_FP32;
    o.micro_batch = 16;
    tl_machine here = {.memory_bytes = INT64_C(4500000000), .available_bytes = INT64_C(4500000000), .threads = 1};
    o.devices = (tl_devices){.count = 1, .here = true};
    o.machine = &here;
    check_advice(o, "--micro-batch 1 --global-batch 16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_selective_flops),          cmocka_unit_test(test_full_flops),
        cmocka_unit_test(test_bytes_of_korthikanti),     cmocka_unit_test(test_bytes_of_llama),
        cmocka_unit_test(test_peak_of_full_recompute),   cmocka_unit_test(test_formulas_hold),
        cmocka_unit_test(test_a_large_plan_stays_quick), cmocka_unit_test(test_advice_is_true_as_typed),
        cmocka_unit_test(test_advice_knows_every_lever), cmocka_unit_test(test_advice_beyond_the_state),
        cmocka_unit_test(test_advice_leaves_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
