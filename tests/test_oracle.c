/* PyTorch as oracle: 200 AdamW steps of a small GPT-2 and a small Llama from the same weights and batches, in fp32 step by
 * step; and what each precision's last steps come to beside it. The losses were recorded with Debian's python3-torch 1.13.1 by tests/fixtures/make_oracle_losses.py, which also says how weights and
 * batches are made; this file makes them by the same integer arithmetic. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fixtures/oracle_losses.h"
#include "kernel/table.h"
#include "tally/account.h"
#include "tally/plan.h"

static uint32_t fnv1a(const char *text) {
    uint32_t h = 2166136261u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

static double uniform(uint32_t seed, int64_t i) {
    uint32_t x = (uint32_t)((uint64_t)i * 2654435761u) + seed;
    x ^= x >> 16;
    x *= 0x45D9F3Bu;
    x ^= x >> 16;
    return x / 4294967296.0 - 0.5;
}

/* Values in f32; a low-precision parameter gets them rounded, its master copy as they are. */
static void put(tl_tensor *t, int64_t k, float value) {
    if (t && tl_tensor_dtype(t) == TL_F32)
        ((float *)tl_tensor_data(t))[k] = value;
    else if (t)
        ((uint16_t *)tl_tensor_data(t))[k] =
            tl_tensor_dtype(t) == TL_BF16 ? tl_f32_to_bf16(value) : tl_f32_to_f16(value);
}

static void set_parameters(tl_trainer *trainer, const char *family) {
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(trainer), &list);
    for (int i = 0; i < count; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s/%s", family, list[i].name);
        uint32_t seed = fnv1a(name);
        bool norm = strstr(list[i].name, "ln_") || strstr(list[i].name, "norm");
        size_t length = strlen(list[i].name);
        bool bias = length > 4 && strcmp(list[i].name + length - 4, "bias") == 0;
        for (int64_t k = 0; k < tl_tensor_count(list[i].tensor); k++) {
            double u = uniform(seed, k);
            float value = (float)(bias ? u * 0.1 : norm ? 1.0 + u * 0.2 : u * 0.3);
            put(list[i].tensor, k, value);
            put(tl_optimizer_master(tl_trainer_optimizer(trainer), i), k, value);
        }
    }
}

typedef struct source {
    const char *family;
    int64_t vocab;
    int step;
} source;

static tl_status make_batch(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    source *s = user;
    char name[64];
    (void)micro;
    snprintf(name, sizeof name, "%s/batch/%d", s->family, s->step);
    uint32_t seed = fnv1a(name);
    snprintf(name, sizeof name, "%s/batch/%d/random", s->family, s->step);
    uint32_t random = fnv1a(name);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(o->micro_batch), tl_dim_of(o->seq));
    batch->input = tl_empty(ctx, TL_I32, shape, TL_DATA);
    batch->target = tl_empty(ctx, TL_I32, shape, TL_DATA);
    int32_t *x = tl_tensor_data(batch->input), *y = tl_tensor_data(batch->target), id = 0;
    for (int64_t b = 0; b < o->micro_batch; b++)
        for (int64_t t = 0; t <= o->seq; t++) {
            int64_t at = b * (o->seq + 1) + t;
            if (t == 0 || uniform(random, at) + 0.5 < 0.2)
                id = (int32_t)((uniform(seed, at) + 0.5) * (double)s->vocab);
            else
                id = (int32_t)((5 * id + 3) % s->vocab);
            if (t < o->seq)
                x[b * o->seq + t] = id;
            if (t > 0)
                y[b * o->seq + t - 1] = id;
        }
    return tl_ctx_status(ctx);
}

enum { STEPS = 200, LAST = 20 };

static double mean_of_last(const double *loss) {
    double sum = 0;
    for (int i = STEPS - LAST; i < STEPS; i++)
        sum += loss[i] / LAST;
    return sum;
}

typedef struct how {
    const tl_kernels *kernels;
    tl_precision precision;
    bool autocast;
    int threads, steps;
} how;

static void losses_of(const how *h, const tl_model *model, const char *family, tl_train_options options, double *loss,
                      tl_loss_scaler *scaler) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = h->kernels, .threads = h->threads}, &error);
    assert_non_null(ctx);
    options.accumulation = options.ranks = 1;
    options.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    options.autocast = h->autocast;
    assert_int_equal(tl_precision_apply(h->precision, &options, &error), TL_OK);
    tl_trainer *trainer = tl_trainer_new(ctx, model, &options);
    if (!trainer)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    set_parameters(trainer, family);
    source s = {.family = family, .vocab = model->vocab};
    for (s.step = 0; s.step < h->steps; s.step++) {
        tl_step_result result;
        if (tl_trainer_step(trainer, make_batch, &s, 1e-3, &result) != TL_OK)
            fail_msg("step %d: %s", s.step, tl_ctx_error(ctx)->message);
        loss[s.step] = result.loss;
    }
    (void)tl_trainer_scaler(trainer, scaler);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
}

typedef struct kind {
    const char *name;
    tl_precision precision;
    bool autocast;
    double bar; /* relative, of the last steps' mean; 0: reported alone */
} kind;

/* Bars of the issue: bf16-mixed and fp16-mixed within 1 % of fp32; emulated fp8 and pure bf16 reported. */
static const kind kinds[] = {{"bf16", TL_PRECISION_BF16, false, 0},
                             {"bf16-mixed", TL_PRECISION_BF16_MIXED, false, 0.01},
                             {"fp16-mixed", TL_PRECISION_FP16_MIXED, false, 0.01},
                             {"fp8-mixed (emulated)", TL_PRECISION_FP8_MIXED, false, 0},
                             {"bf16-mixed, autocast", TL_PRECISION_BF16_MIXED, true, 0.01},
                             {"fp16-mixed, autocast", TL_PRECISION_FP16_MIXED, true, 0.01},
                             {"fp8-mixed (emulated), autocast", TL_PRECISION_FP8_MIXED, true, 0}};

static void compare_precisions(const tl_kernels *kernels, const tl_model *model, const char *family,
                               tl_train_options options, const double *expected) {
    double want = mean_of_last(expected), loss[STEPS];
    print_message("%s: mean loss of the last %d of %d steps: PyTorch fp32 %.4f\n", family, LAST, STEPS, want);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        tl_loss_scaler scaler;
        how h = {kernels, k->precision, k->autocast, 2, STEPS};
        losses_of(&h, model, family, options, loss, &scaler);
        double got = mean_of_last(loss), off = got / want - 1;
        print_message("  %-32s %.4f, %+.2f %%\n", k->name, got, 100 * off);
        assert_true(got < 0.8 * expected[0]); /* it learns */
        if (k->bar > 0 && !(fabs(off) <= k->bar))
            fail_msg("%s in %s: %.5f, fp32 %.5f", family, k->name, got, want);
        if (k->precision == TL_PRECISION_FP16_MIXED)
            print_message("    loss scale %g at the end, %lld steps skipped\n", scaler.scale,
                          (long long)scaler.skipped);
    }
}

/* "Same seed, same bits, on any number of threads" (DESIGN.md), in every precision, and when everything is recomputed. */
static void same_bits_on_two_threads(const tl_kernels *kernels, const tl_model *model, const char *family,
                                     tl_train_options options) {
    enum { SOME = 12 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double one[SOME], two[SOME];
        tl_loss_scaler scaler;
        how h = {kernels, kinds[i].precision, kinds[i].autocast, 1, SOME};
        losses_of(&h, model, family, options, one, &scaler);
        h.threads = 2;
        losses_of(&h, model, family, options, two, &scaler);
        assert_memory_equal(one, two, sizeof one);
        tl_train_options again = options;
        again.recompute = (tl_recompute){TL_RECOMPUTE_FULL, 0};
        losses_of(&h, model, family, again, two, &scaler);
        assert_memory_equal(one, two, sizeof one);
    }
}

/* The bar: 1e-3 relative in fp32, throughout. */
static void follow(const tl_kernels *kernels, const tl_model *model, const char *family, tl_train_options options,
                   const double *expected) {
    double loss[STEPS], worst = 0;
    tl_loss_scaler scaler;
    how h = {kernels, TL_PRECISION_FP32, false, 2, STEPS};
    losses_of(&h, model, family, options, loss, &scaler);
    for (int i = 0; i < STEPS; i++) {
        double wrong = fabs(loss[i] - expected[i]) / expected[i];
        worst = wrong > worst ? wrong : worst;
        if (!(wrong < 1e-3))
            fail_msg("%s step %d: loss %.9g, PyTorch %.9g (%.2g relative)", family, i, loss[i], expected[i], wrong);
    }
    print_message("%s: %d steps, at most %.2g relative from PyTorch\n", family, STEPS, worst);
}

static const tl_kernels *best(void) {
    tl_error error = {0};
    const tl_kernels *k = tl_kernels_for_cpu(NULL, &error);
    if (!k)
        fail_msg("%s", error.message);
    return k;
}

static const tl_model gpt2 = {.name = "small",
                              .family = TL_FAMILY_GPT2,
                              .layers = 2,
                              .width = 48,
                              .heads = 4,
                              .kv_heads = 4,
                              .head_size = 12,
                              .ff = 160,
                              .vocab = 61,
                              .context = 24,
                              .tied = true,
                              .learned_positions = true,
                              .attention_bias = true,
                              .mlp_bias = true,
                              .activation = TL_GELU_TANH,
                              .norm_epsilon = 1e-5,
                              .init_std = 0.02};
static const tl_train_options gpt2_options = {.micro_batch = 4, .seq = 16};

static const tl_model llama = {.name = "small",
                               .family = TL_FAMILY_LLAMA,
                               .layers = 2,
                               .width = 48,
                               .heads = 6,
                               .kv_heads = 2,
                               .head_size = 10,
                               .ff = 96,
                               .vocab = 67,
                               .context = 32,
                               .gated = true,
                               .activation = TL_SILU,
                               .norm_epsilon = 1e-5,
                               .rope_theta = 10000,
                               .init_std = 0.02};
static const tl_train_options llama_options = {.micro_batch = 3, .seq = 13, .clip = 0.5};

static void gpt2_follows_pytorch(void **state) {
    (void)state;
    follow(best(), &gpt2, "gpt2", gpt2_options, oracle_gpt2);
}
static void llama_follows_pytorch(void **state) {
    (void)state;
    follow(best(), &llama, "llama", llama_options, oracle_llama);
}
static void gpt2_reference_follows_pytorch(void **state) {
    (void)state;
    follow(tl_kernels_portable(), &gpt2, "gpt2", gpt2_options, oracle_gpt2);
}
static void llama_reference_follows_pytorch(void **state) {
    (void)state;
    follow(tl_kernels_portable(), &llama, "llama", llama_options, oracle_llama);
}

static void gpt2_in_every_precision(void **state) {
    (void)state;
    compare_precisions(best(), &gpt2, "gpt2", gpt2_options, oracle_gpt2);
}
static void llama_in_every_precision(void **state) {
    (void)state;
    compare_precisions(best(), &llama, "llama", llama_options, oracle_llama);
}
static void every_precision_on_two_threads(void **state) {
    (void)state;
    same_bits_on_two_threads(best(), &gpt2, "gpt2", gpt2_options);
    same_bits_on_two_threads(best(), &llama, "llama", llama_options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_follows_pytorch),           cmocka_unit_test(llama_follows_pytorch),
        cmocka_unit_test(gpt2_reference_follows_pytorch), cmocka_unit_test(llama_reference_follows_pytorch),
        cmocka_unit_test(gpt2_in_every_precision),        cmocka_unit_test(llama_in_every_precision),
        cmocka_unit_test(every_precision_on_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
