/* Nets of every family on meta: their parameters are the counts published with the checkpoints; the gradients of the small ones
 * are central differences of their losses in float64; and what can go wrong is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "family_models.h"
#include "tally/cache.h"
#include "tally/cpu.h"
#include "tally/grad.h"
#include "tally/nn.h"
#include "tally/ops.h"

/* ---- published counts ---- */

/* Shapes from the published configs; counts: the totals published with the checkpoints (safetensors indices), but for opt-66b and
 * Llama 4 Scout's text part, whose totals are a closed form written independently of this code; and so are all active counts. */
typedef struct known {
    const char *name;
    tl_family family;
    int64_t N, D, H, G, K, F, V;
    bool tied;
    int64_t E, k, Fe, Fs;
    int64_t parameters, active; /* active 0: all */
} known;

static const known published[] = {
    {"gpt2", TL_FAMILY_GPT2, 12, 768, 12, 12, 64, 3072, 50257, true, 0, 0, 0, 0, 124439808, 0},
    {"gpt2-medium", TL_FAMILY_GPT2, 24, 1024, 16, 16, 64, 4096, 50257, true, 0, 0, 0, 0, 354823168, 0},
    {"gpt2-large", TL_FAMILY_GPT2, 36, 1280, 20, 20, 64, 5120, 50257, true, 0, 0, 0, 0, 774030080, 0},
    {"gpt2-xl", TL_FAMILY_GPT2, 48, 1600, 25, 25, 64, 6400, 50257, true, 0, 0, 0, 0, 1557611200, 0},
    {"llama-7b", TL_FAMILY_LLAMA, 32, 4096, 32, 32, 128, 11008, 32000, false, 0, 0, 0, 0, 6738415616, 0},
    {"llama-13b", TL_FAMILY_LLAMA, 40, 5120, 40, 40, 128, 13824, 32000, false, 0, 0, 0, 0, 13015864320, 0},
    {"llama-30b", TL_FAMILY_LLAMA, 60, 6656, 52, 52, 128, 17920, 32000, false, 0, 0, 0, 0, 32528943616, 0},
    {"llama-65b", TL_FAMILY_LLAMA, 80, 8192, 64, 64, 128, 22016, 32000, false, 0, 0, 0, 0, 65285660672, 0},
    {"Llama-2-7b", TL_FAMILY_LLAMA, 32, 4096, 32, 32, 128, 11008, 32000, false, 0, 0, 0, 0, 6738415616, 0},
    {"Llama-2-13b", TL_FAMILY_LLAMA, 40, 5120, 40, 40, 128, 13824, 32000, false, 0, 0, 0, 0, 13015864320, 0},
    {"Llama-2-70b", TL_FAMILY_LLAMA, 80, 8192, 64, 8, 128, 28672, 32000, false, 0, 0, 0, 0, 68976648192, 0},
    {"Llama-3.1-8B", TL_FAMILY_LLAMA, 32, 4096, 32, 8, 128, 14336, 128256, false, 0, 0, 0, 0, 8030261248, 0},
    {"Llama-3.1-70B", TL_FAMILY_LLAMA, 80, 8192, 64, 8, 128, 28672, 128256, false, 0, 0, 0, 0, 70553706496, 0},
    {"Llama-3.1-405B", TL_FAMILY_LLAMA, 126, 16384, 128, 8, 128, 53248, 128256, false, 0, 0, 0, 0, 405853388800, 0},
    {"Mistral-7B-v0.1", TL_FAMILY_MISTRAL, 32, 4096, 32, 8, 128, 14336, 32000, false, 0, 0, 0, 0, 7241732096, 0},
    {"Mistral-7B-v0.3", TL_FAMILY_MISTRAL, 32, 4096, 32, 8, 128, 14336, 32768, false, 0, 0, 0, 0, 7248023552, 0},
    {"Phi-3.5-mini", TL_FAMILY_PHI3, 32, 3072, 32, 32, 96, 8192, 32064, false, 0, 0, 0, 0, 3821079552, 0},
    {"Llama-3.2-1B", TL_FAMILY_LLAMA, 16, 2048, 32, 8, 64, 8192, 128256, true, 0, 0, 0, 0, 1235814400, 0},
    {"Qwen2.5-0.5B", TL_FAMILY_QWEN2, 24, 896, 14, 2, 64, 4864, 151936, true, 0, 0, 0, 0, 494032768, 0},
    {"Qwen2.5-1.5B", TL_FAMILY_QWEN2, 28, 1536, 12, 2, 128, 8960, 151936, true, 0, 0, 0, 0, 1543714304, 0},
    {"Qwen2.5-3B", TL_FAMILY_QWEN2, 36, 2048, 16, 2, 128, 11008, 151936, true, 0, 0, 0, 0, 3085938688, 0},
    {"Qwen2.5-7B", TL_FAMILY_QWEN2, 28, 3584, 28, 4, 128, 18944, 152064, false, 0, 0, 0, 0, 7615616512, 0},
    {"Qwen2.5-32B", TL_FAMILY_QWEN2, 64, 5120, 40, 8, 128, 27648, 152064, false, 0, 0, 0, 0, 32763876352, 0},
    {"Qwen2.5-72B", TL_FAMILY_QWEN2, 80, 8192, 64, 8, 128, 29568, 152064, false, 0, 0, 0, 0, 72706203648, 0},
    {"Qwen3-0.6B", TL_FAMILY_QWEN3, 28, 1024, 16, 8, 128, 3072, 151936, true, 0, 0, 0, 0, 596049920, 0},
    {"Qwen3-1.7B", TL_FAMILY_QWEN3, 28, 2048, 16, 8, 128, 6144, 151936, true, 0, 0, 0, 0, 1720574976, 0},
    {"Qwen3-4B", TL_FAMILY_QWEN3, 36, 2560, 32, 8, 128, 9728, 151936, true, 0, 0, 0, 0, 4022468096, 0},
    {"Qwen3-14B", TL_FAMILY_QWEN3, 40, 5120, 40, 8, 128, 17408, 151936, false, 0, 0, 0, 0, 14768307200, 0},
    {"Qwen3-32B", TL_FAMILY_QWEN3, 64, 5120, 64, 8, 128, 25600, 151936, false, 0, 0, 0, 0, 32762123264, 0},
    {"gemma-2b", TL_FAMILY_GEMMA, 18, 2048, 8, 1, 256, 16384, 256000, true, 0, 0, 0, 0, 2506172416, 0},
    {"gemma-7b", TL_FAMILY_GEMMA, 28, 3072, 16, 16, 256, 24576, 256000, true, 0, 0, 0, 0, 8537680896, 0},
    {"gemma-2-2b", TL_FAMILY_GEMMA2, 26, 2304, 8, 4, 256, 9216, 256000, true, 0, 0, 0, 0, 2614341888, 0},
    {"gemma-2-27b", TL_FAMILY_GEMMA2, 46, 4608, 32, 16, 128, 36864, 256000, true, 0, 0, 0, 0, 27227128320, 0},
    {"gemma-3-1b", TL_FAMILY_GEMMA3, 26, 1152, 4, 1, 256, 6912, 262144, true, 0, 0, 0, 0, 999885952, 0},
    {"OLMo-2-7B", TL_FAMILY_OLMO2, 32, 4096, 32, 32, 128, 11008, 100352, false, 0, 0, 0, 0, 7298617344, 0},
    {"OLMo-2-32B", TL_FAMILY_OLMO2, 64, 5120, 40, 8, 128, 27648, 100352, false, 0, 0, 0, 0, 32234279936, 0},
    {"OLMo-7B", TL_FAMILY_OLMO, 32, 4096, 32, 32, 128, 11008, 50304, false, 0, 0, 0, 0, 6888095744, 0},
    {"pythia-70m", TL_FAMILY_GPT_NEOX, 6, 512, 8, 8, 64, 2048, 50304, false, 0, 0, 0, 0, 70426624, 0},
    {"pythia-160m", TL_FAMILY_GPT_NEOX, 12, 768, 12, 12, 64, 3072, 50304, false, 0, 0, 0, 0, 162322944, 0},
    {"pythia-410m", TL_FAMILY_GPT_NEOX, 24, 1024, 16, 16, 64, 4096, 50304, false, 0, 0, 0, 0, 405334016, 0},
    {"pythia-1b", TL_FAMILY_GPT_NEOX, 16, 2048, 8, 8, 256, 8192, 50304, false, 0, 0, 0, 0, 1011781632, 0},
    {"pythia-1.4b", TL_FAMILY_GPT_NEOX, 24, 2048, 16, 16, 128, 8192, 50304, false, 0, 0, 0, 0, 1414647808, 0},
    {"pythia-6.9b", TL_FAMILY_GPT_NEOX, 32, 4096, 32, 32, 128, 16384, 50432, false, 0, 0, 0, 0, 6857302016, 0},
    {"pythia-12b", TL_FAMILY_GPT_NEOX, 36, 5120, 40, 40, 128, 20480, 50688, false, 0, 0, 0, 0, 11846072320, 0},
    {"opt-125m", TL_FAMILY_OPT, 12, 768, 12, 12, 64, 3072, 50272, true, 0, 0, 0, 0, 125239296, 0},
    {"opt-1.3b", TL_FAMILY_OPT, 24, 2048, 32, 32, 64, 8192, 50272, true, 0, 0, 0, 0, 1315758080, 0},
    {"opt-2.7b", TL_FAMILY_OPT, 32, 2560, 32, 32, 80, 10240, 50272, true, 0, 0, 0, 0, 2651596800, 0},
    {"opt-13b", TL_FAMILY_OPT, 40, 5120, 40, 40, 128, 20480, 50272, true, 0, 0, 0, 0, 12853473280, 0},
    {"opt-30b", TL_FAMILY_OPT, 48, 7168, 56, 56, 128, 28672, 50272, true, 0, 0, 0, 0, 29974540288, 0},
    {"opt-66b", TL_FAMILY_OPT, 64, 9216, 72, 72, 128, 36864, 50272, true, 0, 0, 0, 0, 65719701504, 0},
    {"bloom-560m", TL_FAMILY_BLOOM, 24, 1024, 16, 16, 64, 4096, 250880, true, 0, 0, 0, 0, 559214592, 0},
    {"bloom-1b1", TL_FAMILY_BLOOM, 24, 1536, 16, 16, 96, 6144, 250880, true, 0, 0, 0, 0, 1065314304, 0},
    {"bloom-1b7", TL_FAMILY_BLOOM, 24, 2048, 16, 16, 128, 8192, 250880, true, 0, 0, 0, 0, 1722408960, 0},
    {"bloom-7b1", TL_FAMILY_BLOOM, 30, 4096, 32, 32, 128, 16384, 250880, true, 0, 0, 0, 0, 7069016064, 0},
    {"bloom", TL_FAMILY_BLOOM, 70, 14336, 112, 112, 128, 57344, 250880, true, 0, 0, 0, 0, 176247271424, 0},
    {"falcon-7b", TL_FAMILY_FALCON, 32, 4544, 71, 1, 64, 18176, 65024, true, 0, 0, 0, 0, 6921720704, 0},
    {"falcon-180b", TL_FAMILY_FALCON, 80, 14848, 232, 8, 64, 59392, 65024, false, 0, 0, 0, 0, 179522565120, 0},
    {"phi-2", TL_FAMILY_PHI, 32, 2560, 32, 32, 80, 10240, 51200, false, 0, 0, 0, 0, 2779683840, 0},
    {"phi-1.5", TL_FAMILY_PHI, 24, 2048, 32, 32, 64, 8192, 51200, false, 0, 0, 0, 0, 1418270720, 0},
    {"Mixtral-8x7B", TL_FAMILY_MIXTRAL, 32, 4096, 32, 8, 128, 0, 32000, false, 8, 2, 14336, 0, 46702792704,
     12879925248},
    {"Qwen3-30B-A3B", TL_FAMILY_QWEN3_MOE, 48, 2048, 32, 4, 128, 0, 151936, false, 128, 8, 768, 0, 30532122624,
     3353032704},
    {"Qwen1.5-MoE-A2.7B", TL_FAMILY_QWEN2_MOE, 24, 2048, 16, 16, 128, 0, 151936, false, 60, 4, 1408, 5632, 14315784192,
     2689173504},
    {"DeepSeek-V2", TL_FAMILY_DEEPSEEK_V2, 60, 5120, 128, 128, 192, 12288, 102400, false, 160, 6, 1536, 3072,
     235741434880, 21375800320},
    {"DeepSeek-V3", TL_FAMILY_DEEPSEEK_V3, 61, 7168, 128, 128, 192, 18432, 129280, false, 256, 8, 2048, 2048,
     671026419200, 37552297472},
    {"gpt-oss-120b", TL_FAMILY_GPT_OSS, 36, 2880, 64, 8, 64, 0, 201088, false, 128, 4, 2880, 0, 116829156672,
     5711982912},
    {"Llama-4-Scout-17B-16E (text)", TL_FAMILY_LLAMA4, 48, 5120, 40, 8, 128, 16384, 202048, false, 16, 1, 8192, 8192,
     107769861120, 17172894720},
};

static void all_layers(tl_model *m, int bits) {
    for (int64_t i = 0; i < m->layers; i++)
        m->layer[i] = (uint16_t)(m->layer[i] | bits);
}

static void layer_norm(tl_model *m, bool biases) {
    m->norm = TL_NORM_LAYER;
    m->gated = false;
    m->attention_bias = m->mlp_bias = biases;
}

static void latent(tl_model *m, int64_t dense) {
    m->q_rank = 1536;
    m->kv_rank = 512;
    m->qk_nope = 128;
    m->qk_rope = 64;
    m->value_size = 128;
    for (int64_t i = 0; i < dense; i++)
        m->layer[i] = 0;
}

/* What a family has, as far as it changes the number of parameters. */
static void as_family(tl_model *m) {
    switch (m->family) {
    case TL_FAMILY_GPT2:
        layer_norm(m, true);
        m->learned_positions = true;
        m->context = 1024;
        break;
    case TL_FAMILY_QWEN2:
    case TL_FAMILY_QWEN2_MOE:
        m->qkv_bias = true;
        m->shared_gate = m->family == TL_FAMILY_QWEN2_MOE;
        break;
    case TL_FAMILY_QWEN3:
    case TL_FAMILY_QWEN3_MOE:
        m->qk_norm = TL_QK_HEAD;
        break;
    case TL_FAMILY_GEMMA:
    case TL_FAMILY_GEMMA2:
    case TL_FAMILY_GEMMA3:
        m->norm = TL_NORM_RMS_ONE;
        m->place = m->family == TL_FAMILY_GEMMA ? TL_PLACE_BEFORE : TL_PLACE_AROUND;
        m->qk_norm = m->family == TL_FAMILY_GEMMA3 ? TL_QK_HEAD : TL_QK_NONE;
        break;
    case TL_FAMILY_OLMO:
        m->norm = TL_NORM_LAYER_PLAIN;
        break;
    case TL_FAMILY_OLMO2:
        m->place = TL_PLACE_AFTER;
        m->qk_norm = TL_QK_ALL;
        break;
    case TL_FAMILY_PHI:
        layer_norm(m, true);
        m->place = TL_PLACE_PARALLEL;
        m->head_bias = true;
        m->rotary_size = 32;
        break;
    case TL_FAMILY_GPT_NEOX:
        layer_norm(m, true);
        m->place = TL_PLACE_PARALLEL_TWO;
        m->rotary_size = m->head_size / 4;
        break;
    case TL_FAMILY_OPT:
        layer_norm(m, true);
        m->learned_positions = true;
        m->context = 2048;
        m->position_offset = 2;
        break;
    case TL_FAMILY_BLOOM:
        layer_norm(m, true);
        m->positions = TL_POSITIONS_ALIBI;
        m->embedding_norm = true;
        break;
    case TL_FAMILY_FALCON:
        layer_norm(m, false);
        m->place = m->kv_heads > 1 ? TL_PLACE_PARALLEL_TWO : TL_PLACE_PARALLEL;
        break;
    case TL_FAMILY_DEEPSEEK_V2:
        latent(m, 1);
        break;
    case TL_FAMILY_DEEPSEEK_V3:
        latent(m, 3);
        m->router = TL_ROUTER_SIGMOID;
        m->correction_bias = true;
        break;
    case TL_FAMILY_GPT_OSS:
        m->attention_bias = m->sinks = m->router_bias = m->expert_bias = true;
        m->activation = TL_GLU_CLAMPED;
        m->router = TL_ROUTER_TOP_SOFTMAX;
        break;
    case TL_FAMILY_LLAMA4:
        m->router = TL_ROUTER_SIGMOID_INPUT;
        m->qk_norm = TL_QK_L2;
        break;
    default:
        break;
    }
}

static tl_model model_of(const known *k) {
    tl_model m = {.family = k->family,
                  .layers = k->N,
                  .width = k->D,
                  .heads = k->H,
                  .kv_heads = k->G,
                  .head_size = k->K,
                  .ff = k->F,
                  .vocab = k->V,
                  .context = 4096,
                  .tied = k->tied,
                  .gated = true,
                  .activation = TL_SILU,
                  .norm = TL_NORM_RMS,
                  .norm_epsilon = 1e-5,
                  .rope_theta = 10000,
                  .init_std = 0.02,
                  .experts = k->E,
                  .experts_per_token = k->k,
                  .expert_ff = k->Fe,
                  .shared_ff = k->Fs};
    snprintf(m.name, sizeof m.name, "%s", k->name);
    if (k->E)
        all_layers(&m, TL_LAYER_EXPERTS);
    as_family(&m);
    return m;
}

static void counts_are_the_published(void **state) {
    (void)state;
    int count = (int)(sizeof published / sizeof published[0]), wrong = 0;
    for (int i = 0; i < count; i++) {
        const known *k = &published[i];
        tl_error error = {0};
        tl_model m = model_of(k);
        tl_ctx *ctx = tl_ctx_new(NULL, &error);
        assert_non_null(ctx);
        tl_net *net = tl_net_new(ctx, &m, TL_BF16);
        if (!net)
            fail_msg("%s: %s", k->name, tl_ctx_error(ctx)->message);
        tl_parameter_count c;
        tl_net_count(net, &c);
        int64_t active = k->active ? k->active : k->parameters;
        if (c.unique != k->parameters || c.active != active) {
            wrong++;
            print_message("%s: %lld parameters, %lld active; published %lld and %lld\n", k->name, (long long)c.unique,
                          (long long)c.active, (long long)k->parameters, (long long)active);
        }
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
    print_message("%d of %d counts are the published ones\n", count - wrong, count);
    assert_int_equal(wrong, 0);
    assert_true(count >= 60);
}

/* ---- gradients ---- */

enum { B = 2, T = 6, TRIED = 3 };

static tl_tensor *ids(tl_ctx *ctx, int seed) {
    int32_t id[B * T];
    for (int i = 0; i < B * T; i++)
        id[i] = (int32_t)((uint32_t)(i * 7919 + seed * 104729) % 37u);
    return tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(T)), TL_DATA, id, B * T);
}

static double loss_of(tl_ctx *ctx, tl_net *net, tl_tensor *input, tl_tensor *target) {
    double value = 0;
    tl_scope_begin(ctx);
    tl_tensor *loss = tl_net_loss(net, input, target);
    if (!loss)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    assert_int_equal(tl_tensor_read(loss, &value, sizeof value), TL_OK);
    tl_scope_end(ctx);
    return value;
}

/* (A start at which no clamped value of olmo_clip lies within the differences of its bound.) Parameters of a size at which activations bend: the usual start of 0.02 is nearly linear. */
static void spread(tl_tensor *t, int which) {
    double *v = tl_tensor_data(t);
    uint32_t x = 2463534243u + (uint32_t)which * 977u;
    bool vector = tl_tensor_ndim(t) == 1;
    for (int64_t i = 0; i < tl_tensor_count(t); i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        v[i] += (x / 4294967296.0 - 0.5) * (vector ? 0.3 : 0.5);
    }
}

static int check_gradients(const tl_model *m, bool recompute) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    assert_non_null(ctx);
    tl_scope_begin(ctx);
    tl_net *net = tl_net_new(ctx, m, TL_F64);
    if (!net)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    if (recompute)
        assert_int_equal(tl_net_recompute(net, (tl_recompute){TL_RECOMPUTE_FULL, 0}), TL_OK);
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list), wrong = 0;
    for (int i = 0; i < count; i++)
        spread(list[i].tensor, i);
    tl_tensor *input = ids(ctx, 1), *target = ids(ctx, 2);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_tensor *loss = tl_net_loss(net, input, target);
    if (!loss || tl_backward(ctx, loss, 1.0) != TL_OK)
        fail_msg("%s: %s", m->name, tl_ctx_error(ctx)->message);
    assert_int_equal(tl_record(ctx, false), TL_OK);
    for (int i = 0; i < count; i++) {
        tl_tensor *grad = tl_tensor_grad(list[i].tensor);
        if (strstr(list[i].name, "e_score_correction_bias") || strstr(list[i].name, "layer_scalar")) {
            assert_null(grad); /* no gradient moves it */
            continue;
        }
        if (!grad)
            fail_msg("%s: %s has no gradient", m->name, list[i].name);
        double *v = tl_tensor_data(list[i].tensor), *g = tl_tensor_data(grad);
        int64_t n = tl_tensor_count(list[i].tensor);
        for (int k = 0; k < TRIED; k++) {
            int64_t at = (n - 1) * k / (TRIED - 1);
            double before = v[at], h = 1e-5;
            v[at] = before + h;
            double up = loss_of(ctx, net, input, target);
            v[at] = before - h;
            double down = loss_of(ctx, net, input, target);
            v[at] = before;
            double numeric = (up - down) / (2 * h);
            if (fabs(numeric - g[at]) > 1e-7 + 1e-5 * fabs(numeric)) {
                wrong++;
                print_message("%s: %s[%lld] has gradient %.10g, differences give %.10g\n", m->name, list[i].name,
                              (long long)at, g[at], numeric);
            }
        }
    }
    tl_scope_end(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
    return wrong;
}

static void gradients_are_differences(void **state) {
    (void)state;
    int wrong = 0;
    for (int i = 0; i < family_model_count(); i++) {
        tl_model m = family_model(i);
        wrong += check_gradients(&m, i % 3 == 0);
    }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_the_published),
        cmocka_unit_test(gradients_are_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
