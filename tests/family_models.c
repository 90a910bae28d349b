#include "family_models.h"


/* What a row leaves out is the fixtures' usual: V 37, D 32, H 4, G 2, K 8. */
#define SMALL(family_, layers_, ff_) .family = (family_), .layers = (layers_), .ff = (ff_)
#define GATED .gated = true, .activation = TL_SILU, .norm = TL_NORM_RMS
#define GEMMA                                                                                                          \
    .gated = true, .activation = TL_GELU_TANH, .norm = TL_NORM_RMS_ONE, .tied = true,                                  \
    .embedding_scale = 5.656854249492381 /* √32 */
#define LAYER_NORM .norm = TL_NORM_LAYER
#define EXPERTS(count, each, size) .experts = (count), .experts_per_token = (each), .expert_ff = (size)
#define LATENT                                                                                                         \
    .kv_rank = 12, .qk_nope = 8, .qk_rope = 4, .value_size = 6, .rope_interleaved = true, .shared_ff = 32,             \
    EXPERTS(8, 3, 16)

enum { W = TL_LAYER_WINDOW, E = TL_LAYER_EXPERTS, LOCAL = TL_LAYER_WINDOW | TL_LAYER_LOCAL_ROPE };
enum { CHUNK = TL_LAYER_CHUNKED, STILL = TL_LAYER_NO_ROTARY };

static const tl_model models[] = {
    {.name = "mistral", SMALL(TL_FAMILY_MISTRAL, 2, 56), GATED, .norm_epsilon = 1e-5, .window = 5, .layer = {W, W}},
    {.name = "qwen2", SMALL(TL_FAMILY_QWEN2, 2, 48), GATED, .rope_theta = 1e6, .tied = true, .qkv_bias = true},
    {.name = "qwen2_window", SMALL(TL_FAMILY_QWEN2, 2, 48), GATED, .qkv_bias = true, .window = 4, .layer = {0, W}},
    {.name = "qwen3", SMALL(TL_FAMILY_QWEN3, 2, 48), GATED, .rope_theta = 1e6, .head_size = 12, .qk_norm = TL_QK_HEAD},
    {.name = "gemma", SMALL(TL_FAMILY_GEMMA, 2, 64), GEMMA, .kv_heads = 1, .head_size = 16},
    {.name = "mixtral", SMALL(TL_FAMILY_MIXTRAL, 2, 0), GATED, .norm_epsilon = 1e-5, .rope_theta = 1e6,
     EXPERTS(4, 2, 40), .norm_top_k = true, .layer = {E, E}},
    {.name = "deepseek_v3",
     SMALL(TL_FAMILY_DEEPSEEK_V3, 3, 40),
     GATED,
     LATENT,
     .kv_heads = 4,
     .head_size = 12,
     .q_rank = 20,
     .router = TL_ROUTER_SIGMOID,
     .correction_bias = true,
     .router_groups = 4,
     .router_top_groups = 2,
     .norm_top_k = true,
     .routed_scale = 2.5,
     .rope_scaling = TL_ROPE_YARN,
     .rope_factor = 4,
     .rope_mscale = 1,
     .rope_mscale_all = 0.8,
     .rope_original_context = 16,
     .rope_beta_fast = 32,
     .rope_beta_slow = 1,
     .layer = {0, E, E}},
    {.name = "deepseek_v3_plain",
     SMALL(TL_FAMILY_DEEPSEEK_V3, 2, 40),
     GATED,
     LATENT,
     .kv_heads = 4,
     .head_size = 12,
     .router = TL_ROUTER_SIGMOID,
     .correction_bias = true,
     .router_groups = 1,
     .router_top_groups = 1,
     .norm_top_k = true,
     .routed_scale = 1.5,
     .layer = {0, E}},
    {.name = "deepseek_v2_lite", SMALL(TL_FAMILY_DEEPSEEK_V2, 2, 40), GATED, LATENT, .kv_heads = 4, .head_size = 12,
     .routed_scale = 1, .layer = {0, E}},
    {.name = "deepseek_v2", SMALL(TL_FAMILY_DEEPSEEK_V2, 2, 40), GATED, LATENT, .kv_heads = 4, .head_size = 12,
     .q_rank = 20, .router_groups = 4, .router_top_groups = 2, .routed_scale = 2, .layer = {0, E}},
    {.name = "gemma2", SMALL(TL_FAMILY_GEMMA2, 3, 48), GEMMA, .head_size = 12, .place = TL_PLACE_AROUND,
     .query_scale = 0.25, .attention_softcap = 5, .final_softcap = 3, .window = 4, .layer = {W, 0, W}},
    {.name = "gemma3",
     SMALL(TL_FAMILY_GEMMA3, 7, 40),
     GEMMA,
     .rope_theta = 1000,
     .kv_heads = 1,
     .head_size = 12,
     .place = TL_PLACE_AROUND,
     .qk_norm = TL_QK_HEAD,
     .query_scale = 0.31622776601683794, /* 1/√10 */
     .window = 5,
     .rope_local_theta = 100,
     .rope_scaling = TL_ROPE_LINEAR,
     .rope_factor = 4,
     .layer = {LOCAL, LOCAL, LOCAL, LOCAL, LOCAL, 0, LOCAL}},
    {.name = "qwen2_moe", SMALL(TL_FAMILY_QWEN2_MOE, 2, 0), GATED, .qkv_bias = true, EXPERTS(6, 3, 20),
     .shared_ff = 36, .shared_gate = true, .layer = {E, E}},
    {.name = "qwen3_moe", SMALL(TL_FAMILY_QWEN3_MOE, 3, 48), GATED, .head_size = 12, .qk_norm = TL_QK_HEAD,
     EXPERTS(8, 3, 20), .norm_top_k = true, .layer = {E, 0, E}},
    {.name = "gpt_oss",
     SMALL(TL_FAMILY_GPT_OSS, 2, 0),
     .gated = true,
     .activation = TL_GLU_CLAMPED,
     .norm = TL_NORM_RMS,
     .norm_epsilon = 1e-5,
     .rope_theta = 150000,
     .head_size = 16,
     .attention_bias = true,
     .sinks = true,
     EXPERTS(6, 2, 24),
     .router = TL_ROUTER_TOP_SOFTMAX,
     .router_bias = true,
     .expert_bias = true,
     .window = 4,
     .rope_scaling = TL_ROPE_YARN,
     .rope_factor = 32,
     .rope_original_context = 32,
     .rope_beta_fast = 32,
     .rope_beta_slow = 1,
     .rope_no_truncate = true,
     .layer = {W | E, E}},
    {.name = "llama4",
     SMALL(TL_FAMILY_LLAMA4, 4, 40),
     GATED,
     .norm_epsilon = 1e-5,
     .rope_interleaved = true,
     .qk_norm = TL_QK_L2,
     .window = 5,
     EXPERTS(4, 1, 20),
     .shared_ff = 20,
     .router = TL_ROUTER_SIGMOID_INPUT,
     .temperature_scale = 0.1,
     .temperature_floor = 4,
     .layer = {CHUNK, CHUNK | E, CHUNK, STILL | E}},
    {.name = "phi3", SMALL(TL_FAMILY_PHI3, 2, 44), GATED, .window = 6, .layer = {W, W}},
    {.name = "olmo", SMALL(TL_FAMILY_OLMO, 2, 48), .gated = true, .activation = TL_SILU, .kv_heads = 4,
     .norm = TL_NORM_LAYER_PLAIN, .norm_epsilon = 1e-5},
    {.name = "olmo_clip", SMALL(TL_FAMILY_OLMO, 2, 48), .gated = true, .activation = TL_SILU, .kv_heads = 4,
     .norm = TL_NORM_LAYER_PLAIN, .norm_epsilon = 1e-5, .clip_qkv = 0.75},
    {.name = "olmo2", SMALL(TL_FAMILY_OLMO2, 2, 48), GATED, .rope_theta = 500000, .place = TL_PLACE_AFTER,
     .qk_norm = TL_QK_ALL},
    {.name = "phi", SMALL(TL_FAMILY_PHI, 2, 80), LAYER_NORM, .norm_epsilon = 1e-5, .kv_heads = 4,
     .place = TL_PLACE_PARALLEL, .attention_bias = true, .mlp_bias = true, .head_bias = true, .rotary_size = 4},
    {.name = "gpt_neox", SMALL(TL_FAMILY_GPT_NEOX, 2, 96), LAYER_NORM, .norm_epsilon = 1e-5, .kv_heads = 4,
     .activation = TL_GELU_ERF, .place = TL_PLACE_PARALLEL_TWO, .attention_bias = true, .mlp_bias = true,
     .rotary_size = 4},
    {.name = "gpt_neox_sequential", SMALL(TL_FAMILY_GPT_NEOX, 2, 96), LAYER_NORM, .norm_epsilon = 1e-5, .kv_heads = 4,
     .activation = TL_GELU_ERF, .attention_bias = true, .mlp_bias = true, .rotary_size = 2},
    {.name = "gptj", SMALL(TL_FAMILY_GPTJ, 2, 128), LAYER_NORM, .norm_epsilon = 1e-5, .kv_heads = 4,
     .place = TL_PLACE_PARALLEL, .mlp_bias = true, .head_bias = true, .rotary_size = 4, .rope_interleaved = true},
    {.name = "opt", SMALL(TL_FAMILY_OPT, 2, 72), LAYER_NORM, .norm_epsilon = 1e-5, .kv_heads = 4, .context = 20,
     .tied = true, .learned_positions = true, .position_offset = 2, .activation = TL_RELU, .attention_bias = true,
     .mlp_bias = true},
    {.name = "opt_350m", SMALL(TL_FAMILY_OPT, 2, 72), LAYER_NORM, .norm_epsilon = 1e-5, .kv_heads = 4, .context = 20,
     .tied = true, .learned_positions = true, .position_offset = 2, .activation = TL_RELU, .attention_bias = true,
     .mlp_bias = true, .place = TL_PLACE_POST, .embedding_size = 24},
    {.name = "bloom", SMALL(TL_FAMILY_BLOOM, 2, 144), LAYER_NORM, .norm_epsilon = 1e-5, .width = 36, .heads = 6,
     .kv_heads = 6, .head_size = 6, .tied = true, .positions = TL_POSITIONS_ALIBI, .embedding_norm = true,
     .attention_bias = true, .mlp_bias = true},
    {.name = "falcon_7b", SMALL(TL_FAMILY_FALCON, 2, 128), LAYER_NORM, .norm_epsilon = 1e-5, .kv_heads = 1,
     .tied = true, .activation = TL_GELU_ERF, .place = TL_PLACE_PARALLEL},
    {.name = "falcon_new", SMALL(TL_FAMILY_FALCON, 2, 128), LAYER_NORM, .norm_epsilon = 1e-5, .tied = true,
     .activation = TL_GELU_ERF, .place = TL_PLACE_PARALLEL_TWO},
    {.name = "starcoder2", SMALL(TL_FAMILY_STARCODER2, 2, 72), LAYER_NORM, .norm_epsilon = 1e-5, .tied = true,
     .attention_bias = true, .mlp_bias = true, .window = 5, .layer = {W, W}},
};

int family_model_count(void) { return (int)(sizeof models / sizeof models[0]); }

static void usual(int64_t *field, int64_t value) {
    if (*field == 0)
        *field = value;
}

tl_model family_model(int index) {
    tl_model m = models[index];
    usual(&m.width, 32);
    usual(&m.heads, 4);
    usual(&m.kv_heads, 2);
    usual(&m.head_size, 8);
    usual(&m.context, 64);
    m.vocab = 37;
    m.init_std = 0.02;
    m.norm_epsilon = m.norm_epsilon > 0 ? m.norm_epsilon : 1e-6;
    m.rope_theta = m.rope_theta > 0 ? m.rope_theta : 10000;
    return m;
}
