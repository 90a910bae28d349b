/* Low precision in training: what stops a run and whom it names, dynamic loss scaling, emulated float8.
 * Sources: FAULTS.md ("NaN at step 2: stop before the optimizer step and name the first bad tensor"); Micikevicius et al. 2018
 * and torch.cuda.amp.GradScaler's defaults (2^16, ×2 after 2000 good steps, ×½); Micikevicius et al. 2022, table 1 (largest
 * values 448 and 57344). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "instrument.h"
#include "small_models.h"
#include "tally/account.h"
#include "tally/cpu.h"
#include "tally/grad.h"
#include "tally/ops.h"
#include "tally/plan.h"

typedef struct fixture {
    tl_model model;
    tl_ctx *ctx;
    tl_trainer *trainer;
    random_batch batch;
} fixture;

static void open_run(fixture *f, tl_model model, tl_precision precision, bool autocast, int64_t accumulation) {
    tl_error error = {0};
    tl_train_options o = {.micro_batch = 2, .seq = 8, .accumulation = accumulation, .ranks = 1, .autocast = autocast};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    assert_int_equal(tl_precision_apply(precision, &o, &error), TL_OK);
    f->model = model;
    f->ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    assert_non_null(f->ctx);
    f->trainer = tl_trainer_new(f->ctx, &f->model, &o);
    if (!f->trainer)
        fail_msg("%s", tl_ctx_error(f->ctx)->message);
    f->batch = (random_batch){NULL, &f->model, 3};
}

static void close_run(fixture *f) {
    tl_trainer_free(f->trainer);
    tl_ctx_free(f->ctx);
}

static tl_status step(fixture *f, tl_step_result *result) {
    return tl_trainer_step(f->trainer, random_batch_source, &f->batch, 1e-3, result);
}

static void good_step(fixture *f) {
    tl_step_result result;
    if (step(f, &result) != TL_OK)
        fail_msg("%s", tl_ctx_error(f->ctx)->message);
}

/* One element of a parameter, in whatever format it has. */
static void poison(fixture *f, const char *name, int64_t at, float value) {
    tl_tensor *t = tl_net_find(tl_trainer_net(f->trainer), name);
    assert_non_null(t);
    if (tl_tensor_dtype(t) == TL_F32)
        ((float *)tl_tensor_data(t))[at] = value;
    else
        ((uint16_t *)tl_tensor_data(t))[at] =
            tl_tensor_dtype(t) == TL_BF16 ? tl_f32_to_bf16(value) : tl_f32_to_f16(value);
}

static double checksum(const fixture *f) {
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(f->trainer), &list);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const unsigned char *bytes = tl_tensor_storage_data(list[i].tensor);
        for (int64_t k = 0; k < tl_tensor_storage_bytes(list[i].tensor); k++)
            sum += bytes[k] * (double)(k % 251 + 1);
    }
    return sum;
}

static void expect_message(const fixture *f, const char *const words[], int n) {
    const char *message = tl_ctx_error(f->ctx)->message;
    for (int i = 0; i < n; i++)
        if (!strstr(message, words[i]))
            fail_msg("\"%s\" is not in: %s", words[i], message);
}
#define EXPECT(f, ...)                                                                                                 \
    expect_message((f), (const char *const[]){__VA_ARGS__},                                                            \
                   (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)))

/* ---- what stops a run ---- */

/* A weight turns NaN or infinite after the first step: the second stops, changes nothing and names the layer, the op and the
 * weight. In every precision. */
static void names_the_first_bad_tensor(void **state) {
    (void)state;
    static const struct {
        tl_model (*model)(void);
        const char *weight, *module;
        float value;
    } cases[] = {{small_gpt2, "h.1.mlp.c_fc.weight", "h.1.mlp.c_fc", NAN},
                 {small_gpt2, "h.0.attn.c_proj.weight", "h.0.attn.c_proj", INFINITY},
                 {small_gpt2, "h.1.ln_2.weight", "h.1.ln_2", NAN},
                 {small_llama, "model.layers.1.mlp.down_proj.weight", "layers.1.mlp.down_proj", NAN},
                 {small_llama, "model.layers.0.self_attn.k_proj.weight", "layers.0.self_attn.k_proj", -INFINITY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int precision = 0; precision < 5; precision++)
            for (int autocast = 0; autocast < (precision >= TL_PRECISION_BF16_MIXED ? 2 : 1); autocast++) {
                fixture f;
                tl_step_result result;
                open_run(&f, cases[i].model(), (tl_precision)precision, autocast, 2);
                good_step(&f);
                poison(&f, cases[i].weight, 5, cases[i].value);
                double before = checksum(&f);
                int64_t live = tl_ledger_live_total(f.ctx);
                assert_int_equal(step(&f, &result), TL_ERR_STATE);
                EXPECT(&f, "at step 2, micro-batch 1", "stopped before the update", cases[i].module, cases[i].weight,
                       "first tensor that is not finite", isnan(cases[i].value) ? "nan" : "inf");
                assert_true(checksum(&f) == before);
                assert_int_equal(tl_ledger_live_total(f.ctx), live); /* nothing is left behind */
                close_run(&f);
            }
}

/* Numbers that leave f16 (65504) where no weight is bad: the op that made them is named, without a weight. */
static void names_an_overflow_in_fp16(void **state) {
    (void)state;
    fixture f;
    tl_step_result result;
    open_run(&f, small_gpt2(), TL_PRECISION_FP16_MIXED, false, 1);
    good_step(&f);
    for (int64_t k = 0; k < 80;
         k++) /* inputs of c_proj of 6e4 each, weights of 4: the product overflows, gelu does not */
        poison(&f, "h.0.mlp.c_fc.bias", k, 60000);
    for (int64_t k = 0; k < 80; k++)
        poison(&f, "h.0.mlp.c_proj.weight", k, 4);
    assert_int_equal(step(&f, &result), TL_ERR_STATE);
    EXPECT(&f, "what linear gives in h.0.mlp.c_proj", "f16[2, 8, 24]", "inf at [0, 0, 0]");
    assert_null(strstr(tl_ctx_error(f.ctx)->message, "itself"));
    close_run(&f);
}

/* Gradients leave f32 (3.4e38) behind a finite loss: a hidden value is 0 and its weight 3e38, so that the output does not see
 * it and the gradient of the row that made it is 3e38 times an error of some hundreds. */
static void names_the_parameter_of_a_bad_gradient(void **state) {
    (void)state;
    for (int precision = 0; precision < 5; precision++) {
        if (precision == TL_PRECISION_FP16_MIXED)
            continue; /* has a loss scale to try first */
        fixture f;
        tl_step_result result;
        open_run(&f, small_cruncher(), (tl_precision)precision, false, 1);
        for (int64_t k = 0; k < 64; k++)
            poison(&f, "layers.1.weight", 5 * 64 + k, 0);
        poison(&f, "final.weight", 5, 3e38f);
        poison(&f, "final.weight", 6, 1000);
        double before = checksum(&f);
        assert_int_equal(step(&f, &result), TL_ERR_STATE);
        EXPECT(&f, "the gradient of layers.", ".weight", "at step 1", "stopped before the update");
        assert_true(checksum(&f) == before);
        close_run(&f);
    }
}

/* ---- loss scaling ---- */

static tl_loss_scaler scaler_of(const fixture *f) {
    tl_loss_scaler s;
    assert_true(tl_trainer_scaler(f->trainer, &s));
    return s;
}

/* A scale whose gradients leave f16: skipped, counted and halved until they fit; nothing is updated meanwhile. */
static void skips_and_halves(void **state) {
    (void)state;
    for (int autocast = 0; autocast < 2; autocast++) {
        fixture f;
        tl_step_result result;
        open_run(&f, small_gpt2(), TL_PRECISION_FP16_MIXED, autocast, 1);
        assert_true(scaler_of(&f).scale == 65536.0);
        assert_int_equal(tl_trainer_set_scaler(f.trainer, &(tl_loss_scaler){0x1p40, 1999, 7}), TL_OK);
        double before = checksum(&f);
        int skipped = 0;
        for (;; skipped++) {
            assert_int_equal(step(&f, &result), TL_OK);
            if (!result.skipped)
                break;
            assert_true(checksum(&f) == before);
            assert_true(scaler_of(&f).scale == ldexp(0x1p40, -skipped - 1));
            assert_int_equal(scaler_of(&f).good_steps, 0);
            assert_int_equal(scaler_of(&f).skipped, 8 + skipped);
            assert_int_equal(tl_optimizer_steps(tl_trainer_optimizer(f.trainer)), 0);
        }
        assert_true(skipped > 10 && skipped < 36);
        assert_true(checksum(&f) != before && result.gradient_norm > 0 && isfinite(result.gradient_norm));
        assert_int_equal(scaler_of(&f).good_steps, 1);
        assert_int_equal(tl_optimizer_steps(tl_trainer_optimizer(f.trainer)), 1);
        /* 7 steps skipped before, `skipped` here and a good one: the next that fails is named as the run counts it. */
        char named[48];
        snprintf(named, sizeof named, "at step %d, micro-batch 1", 7 + skipped + 2);
        poison(&f, "h.1.mlp.c_fc.weight", 5, NAN);
        assert_int_equal(step(&f, &result), TL_ERR_STATE);
        EXPECT(&f, named);
        close_run(&f);
    }
}

static void doubles_after_2000_good_steps(void **state) {
    (void)state;
    fixture f;
    tl_step_result result;
    open_run(&f, small_gpt2(), TL_PRECISION_FP16_MIXED, false, 1);
    assert_int_equal(tl_trainer_set_scaler(f.trainer, &(tl_loss_scaler){1024, 1998, 0}), TL_OK);
    assert_int_equal(step(&f, &result), TL_OK);
    assert_true(scaler_of(&f).scale == 1024 && scaler_of(&f).good_steps == 1999);
    assert_int_equal(step(&f, &result), TL_OK);
    assert_true(scaler_of(&f).scale == 2048 && scaler_of(&f).good_steps == 0);
    close_run(&f);
}

/* The scale is a power of two and is taken out in f32: the update does not depend on it (Micikevicius et al. 2018, 3.2). */
static void the_scale_changes_no_large_gradient(void **state) {
    (void)state;
    double norm[2];
    for (int i = 0; i < 2; i++) {
        fixture f;
        tl_step_result result;
        open_run(&f, small_llama(), TL_PRECISION_FP16_MIXED, false, 1);
        assert_int_equal(tl_trainer_set_scaler(f.trainer, &(tl_loss_scaler){i ? 4096 : 256, 0, 0}), TL_OK);
        assert_int_equal(step(&f, &result), TL_OK);
        norm[i] = result.gradient_norm;
        close_run(&f);
    }
    assert_true(fabs(norm[0] - norm[1]) < 1e-3 * norm[0]);
}

/* Nothing is left to halve at 1: the run stops and names the parameter. */
static void stops_at_a_scale_of_one(void **state) {
    (void)state;
    fixture f;
    tl_step_result result;
    open_run(&f, small_gpt2(), TL_PRECISION_FP16_MIXED, false, 1);
    assert_int_equal(tl_trainer_set_scaler(f.trainer, &(tl_loss_scaler){1, 0, 0}), TL_OK);
    for (int64_t row = 0; row < 59;
         row++) /* logits of ±6e4·…: their softmax is 0 or 1, its gradient times 6e4 leaves f16 */
        for (int64_t c = 0; c < 24; c++)
            poison(&f, "wte.weight", row * 24 + c, row % 2 ? 300.0f : -300.0f);
    tl_status status = TL_OK;
    for (int i = 0; i < 3 && status == TL_OK; i++) {
        poison(&f, "ln_f.weight", 0, 60000);
        poison(&f, "ln_f.bias", 0, 0);
        status = step(&f, &result);
    }
    assert_int_equal(status, TL_ERR_STATE);
    EXPECT(&f, "stopped before the update");
    close_run(&f);
}

static void refuses_bad_scalers(void **state) {
    (void)state;
    const tl_loss_scaler bad[] = {{0.5, 0, 0}, {NAN, 0, 0}, {INFINITY, 0, 0}, {-4, 0, 0}, {4, -1, 0}, {4, 0, -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fixture f;
        open_run(&f, small_gpt2(), TL_PRECISION_FP16_MIXED, false, 1);
        assert_int_equal(tl_trainer_set_scaler(f.trainer, &bad[i]), TL_ERR_ARGUMENT);
        close_run(&f);
    }
    fixture f;
    tl_loss_scaler s;
    open_run(&f, small_gpt2(), TL_PRECISION_BF16_MIXED, false, 1);
    assert_false(tl_trainer_scaler(f.trainer, &s));
    assert_int_equal(tl_trainer_set_scaler(f.trainer, &(tl_loss_scaler){4, 0, 0}), TL_ERR_STATE);
    close_run(&f);
}

/* ---- emulated float8 ---- */

static float state_at(tl_tensor *state, int row, int column) {
    return ((float *)tl_tensor_data(state))[row * (1 + TL_FP8_HISTORY) + column];
}

static void put_state(tl_tensor *state, int row, int column, float value) {
    ((float *)tl_tensor_data(state))[row * (1 + TL_FP8_HISTORY) + column] = value;
}

static tl_tensor *row_of_values(tl_ctx *ctx, const float *values, int n) {
    return tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(n)), TL_WORK, values, n);
}

/* Values of the formats, scaled: 464 and above are 448 (saturating, stated), 57345… is 57344, an infinity is NaN. */
static void rounds_to_the_formats(void **state) {
    (void)state;
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    tl_tensor *s = tl_fp8_state_new(ctx);
    const float in[] = {0.26914087f, 464, 1000, -1e30f, INFINITY, NAN, 17, 0.001953125f, 0.0009765625f, 0};
    /* e4m3: 3 bits of fraction; 17 lies between 16 and 18, to even 16; smallest subnormal 2^-9, half of it to even 0 */
    const float e4m3[] = {0.28125f, 448, 448, -448, NAN, NAN, 16, 0.001953125f, 0, 0};
    /* e5m2: 2 bits of fraction; 17 → 16 (spacing 4) */
    const float e5m2[] = {0.25f, 448, 1024, -57344, NAN, NAN, 16, 0.001953125f, 0.0009765625f, 0};
    enum { N = sizeof in / sizeof *in };
    float out[N];
    tl_scope_begin(ctx);
    assert_int_equal(tl_tensor_category(s), TL_OPTIM);
    for (int row = 0; row < 3; row++)
        for (int shift = -6; shift <= 6; shift += 6) {
            float scaled[N];
            for (int i = 0; i < N; i++)
                scaled[i] = ldexpf(in[i], -shift);
            put_state(s, row, 0, ldexpf(1, shift));
            put_state(s, row, 1, 0);
            tl_tensor *y = tl_fp8_round(row_of_values(ctx, scaled, N), s, row, true);
            assert_int_equal(tl_tensor_read(y, out, sizeof out), TL_OK);
            for (int i = 0; i < N; i++) {
                float want = ldexpf(row == 2 ? e5m2[i] : e4m3[i], -shift);
                if (out[i] != want && !(isnan(out[i]) && isnan(want)))
                    fail_msg("row %d, 2^%d, %g: %g, not %g", row, shift, (double)in[i], (double)out[i], (double)want);
            }
            assert_true(isnan(state_at(s, row, 1))); /* a NaN is the largest magnitude: the scale will stay */
        }
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_scope_end(ctx);
    tl_free(s);
    tl_ctx_free(ctx);
}

/* The recipe by hand: scale 2^floor(log2(448/amax)) of the history's largest, which forgets after 16 steps. */
static void scales_are_delayed(void **state) {
    (void)state;
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    tl_tensor *s = tl_fp8_state_new(ctx);
    const float first[] = {0.5f, -3, 2}, second[] = {0.25f, 0.125f, -0.25f};
    tl_scope_begin(ctx);
    (void)tl_fp8_round(row_of_values(ctx, first, 3), s, 0, true);
    (void)tl_fp8_round(row_of_values(ctx, second, 3), s, 2, true);
    assert_true(state_at(s, 0, 0) == 1 && state_at(s, 0, 1) == 3); /* this step's scale is the old one */
    (void)tl_fp8_roll(s);
    assert_true(state_at(s, 0, 0) == 128);    /* 448/3 = 149.3 */
    assert_true(state_at(s, 1, 0) == 1);      /* never used: as it was */
    assert_true(state_at(s, 2, 0) == 131072); /* 57344/0.25 = 229376, between 2^17 and 2^18 */
    assert_true(state_at(s, 0, 1) == 0 && state_at(s, 0, 2) == 3);
    for (int i = 0; i < TL_FP8_HISTORY - 2; i++) {
        (void)tl_fp8_round(row_of_values(ctx, second, 3), s, 0, true);
        (void)tl_fp8_roll(s);
        assert_true(state_at(s, 0, 0) == 128);
    }
    (void)tl_fp8_round(row_of_values(ctx, second, 3), s, 0, true);
    (void)tl_fp8_roll(s); /* the 3 was 16 steps ago and leaves with this one … */
    (void)tl_fp8_round(row_of_values(ctx, second, 3), s, 0, true);
    (void)tl_fp8_roll(s);
    assert_true(state_at(s, 0, 0) == 1024); /* 448/0.25 = 1792 */
    put_state(s, 0, 1, INFINITY);
    (void)tl_fp8_roll(s);
    assert_true(state_at(s, 0, 0) == 1024); /* nothing follows from an infinity */
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_scope_end(ctx);
    tl_free(s);
    tl_ctx_free(ctx);
}

/* The states are named, listed, in the ledger as optimizer state, and move with the steps. */
static void lists_what_a_checkpoint_needs(void **state) {
    (void)state;
    fixture f;
    const char *name;
    tl_tensor *t;
    open_run(&f, small_llama(), TL_PRECISION_FP8_MIXED, false, 1);
    int n = 0;
    while (tl_trainer_extra(f.trainer, n, &name, &t)) {
        assert_int_equal(tl_tensor_category(t), TL_OPTIM);
        assert_int_equal(tl_tensor_count(t), 3 * 17);
        n++;
    }
    assert_int_equal(n, 2 * 7); /* q k v o gate up down in each of two layers; neither embedding nor head */
    assert_int_equal(tl_trainer_extra(f.trainer, 0, &name, &t), 1);
    assert_string_equal(name, "model.layers.0.self_attn.q_proj.fp8");
    assert_int_equal(tl_ledger_live(f.ctx, TL_OPTIM), n * 3 * 17 * 4);
    good_step(&f);
    for (int row = 0; row < 3; row++) {
        assert_true(state_at(t, row, 2) > 0 && state_at(t, row, 0) > 1);
        float scale = state_at(t, row, 0), largest = row == 2 ? 57344 : 448;
        int exponent;
        assert_true(frexpf(scale, &exponent) == 0.5f); /* a power of two */
        assert_true(scale * state_at(t, row, 2) <= largest && 2 * scale * state_at(t, row, 2) > largest);
    }
    float before[3 * 17], after[3 * 17]; /* an evaluation changes nothing of it */
    assert_int_equal(tl_tensor_read(t, before, sizeof before), TL_OK);
    tl_batch batch;
    tl_train_options o = {.micro_batch = 2, .seq = 8};
    tl_scope_begin(f.ctx);
    assert_int_equal(tl_record(f.ctx, false), TL_OK);
    assert_int_equal(random_batch_source(&f.batch, f.ctx, &o, 0, &batch), TL_OK);
    tl_net_train(tl_trainer_net(f.trainer), false);
    assert_non_null(tl_net_loss(tl_trainer_net(f.trainer), batch.input, batch.target));
    tl_scope_end(f.ctx);
    assert_int_equal(tl_tensor_read(t, after, sizeof after), TL_OK);
    assert_memory_equal(before, after, sizeof before);
    close_run(&f);
    open_run(&f, small_gpt2(), TL_PRECISION_FP16_MIXED, false, 1);
    assert_int_equal(tl_trainer_extra(f.trainer, 0, &name, &t), 0);
    close_run(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_first_bad_tensor),
        cmocka_unit_test(names_an_overflow_in_fp16),
        cmocka_unit_test(names_the_parameter_of_a_bad_gradient),
        cmocka_unit_test(skips_and_halves),
        cmocka_unit_test(doubles_after_2000_good_steps),
        cmocka_unit_test(the_scale_changes_no_large_gradient),
        cmocka_unit_test(stops_at_a_scale_of_one),
        cmocka_unit_test(refuses_bad_scalers),
        cmocka_unit_test(rounds_to_the_formats),
        cmocka_unit_test(scales_are_delayed),
        cmocka_unit_test(lists_what_a_checkpoint_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
