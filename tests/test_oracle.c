/* PyTorch as oracle: 50 AdamW steps of a small GPT-2 and a small Llama from the same weights and batches. The losses were
 * recorded with Debian's python3-torch 1.13.1 by tests/fixtures/make_oracle_losses.py, which also says how weights and
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
#include "tally/train.h"

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

static void set_parameters(tl_net *net, const char *family) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    for (int i = 0; i < count; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s/%s", family, list[i].name);
        uint32_t seed = fnv1a(name);
        bool norm = strstr(list[i].name, "ln_") || strstr(list[i].name, "norm");
        size_t length = strlen(list[i].name);
        bool bias = length > 4 && strcmp(list[i].name + length - 4, "bias") == 0;
        float *data = tl_tensor_data(list[i].tensor);
        for (int64_t k = 0; k < tl_tensor_count(list[i].tensor); k++) {
            double u = uniform(seed, k);
            data[k] = (float)(bias ? u * 0.1 : norm ? 1.0 + u * 0.2 : u * 0.3);
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
    snprintf(name, sizeof name, "%s/batch/%d", s->family, s->step % 5);
    uint32_t seed = fnv1a(name);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(o->micro_batch), tl_dim_of(o->seq));
    batch->input = tl_empty(ctx, TL_I32, shape, TL_DATA);
    batch->target = tl_empty(ctx, TL_I32, shape, TL_DATA);
    int32_t *x = tl_tensor_data(batch->input), *y = tl_tensor_data(batch->target);
    for (int64_t b = 0; b < o->micro_batch; b++)
        for (int64_t t = 0; t <= o->seq; t++) {
            int32_t id = (int32_t)((uniform(seed, b * (o->seq + 1) + t) + 0.5) * (double)s->vocab);
            if (t < o->seq)
                x[b * o->seq + t] = id;
            if (t > 0)
                y[b * o->seq + t - 1] = id;
        }
    return tl_ctx_status(ctx);
}

static void follow(const tl_kernels *kernels, const tl_model *model, const char *family, tl_train_options options,
                   const double *expected) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = kernels, .threads = 2}, &error);
    assert_non_null(ctx);
    options.dtype = TL_F32;
    options.accumulation = options.ranks = 1;
    options.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_trainer *trainer = tl_trainer_new(ctx, model, &options);
    if (!trainer)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    set_parameters(tl_trainer_net(trainer), family);
    source s = {.family = family, .vocab = model->vocab};
    for (s.step = 0; s.step < 50; s.step++) {
        tl_step_result result;
        if (tl_trainer_step(trainer, make_batch, &s, 1e-3, &result) != TL_OK)
            fail_msg("step %d: %s", s.step, tl_ctx_error(ctx)->message);
        double wrong = fabs(result.loss - expected[s.step]) / expected[s.step];
        if (!(wrong < 1e-4)) /* the bar: 1e-4 relative in fp32 */
            fail_msg("%s step %d: loss %.9g, PyTorch %.9g (%.2g relative)", family, s.step, result.loss,
                     expected[s.step], wrong);
    }
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
}

static const tl_kernels *best(void) {
    tl_error error = {0};
    const tl_kernels *k = tl_kernels_for_cpu(NULL, &error);
    if (!k)
        fail_msg("%s", error.message);
    return k;
}

static void run_gpt2(const tl_kernels *kernels) {
    tl_model m = {.name = "small",
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
    follow(kernels, &m, "gpt2", (tl_train_options){.micro_batch = 4, .seq = 16}, oracle_gpt2);
}

static void run_llama(const tl_kernels *kernels) {
    tl_model m = {.name = "small",
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
    follow(kernels, &m, "llama", (tl_train_options){.micro_batch = 3, .seq = 13, .clip = 0.5}, oracle_llama);
}

static void gpt2_follows_pytorch(void **state) {
    (void)state;
    run_gpt2(best());
}
static void llama_follows_pytorch(void **state) {
    (void)state;
    run_llama(best());
}
static void gpt2_reference_follows_pytorch(void **state) {
    (void)state;
    run_gpt2(tl_kernels_portable());
}
static void llama_reference_follows_pytorch(void **state) {
    (void)state;
    run_llama(tl_kernels_portable());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_follows_pytorch),
        cmocka_unit_test(llama_follows_pytorch),
        cmocka_unit_test(gpt2_reference_follows_pytorch),
        cmocka_unit_test(llama_reference_follows_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
