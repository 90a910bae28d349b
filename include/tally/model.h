/* tally/model.h: what a model is, as a parsed struct. The planner core reads nothing but this; readers of files
 * (config.json, the built-in catalogue) fill it in and say where every value came from.
 */
#ifndef TALLY_MODEL_H
#define TALLY_MODEL_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A family is the names of its published checkpoints and what no field below says. What a model computes is in the fields:
 * code that asks "which family?" where a field could answer is a mistake. */
typedef enum tl_family {
    TL_FAMILY_GPT2,     /* learned positions, LayerNorm, biases, GELU (tanh), two-matrix MLP */
    TL_FAMILY_LLAMA,    /* rotary, RMSNorm, gated SiLU, grouped heads */
    TL_FAMILY_CRUNCHER, /* CS336 lecture 2: linear layers D→D, then D→1, squared error; no vocabulary */
    TL_FAMILY_MISTRAL,  /* llama with a sliding window */
    TL_FAMILY_MIXTRAL,  /* mistral with a mixture of experts */
    TL_FAMILY_QWEN2,    /* llama with biases of q, k, v */
    TL_FAMILY_QWEN2_MOE,
    TL_FAMILY_QWEN3, /* llama with RMSNorm of each head of q and k */
    TL_FAMILY_QWEN3_MOE,
    TL_FAMILY_GEMMA,  /* embeddings times √D, RMSNorm times 1 + w, gated GELU */
    TL_FAMILY_GEMMA2, /* four norms a layer, soft caps, every other layer sees a window */
    TL_FAMILY_GEMMA3, /* four norms, norms of q and k, five local layers to a global one */
    TL_FAMILY_GEMMA4,
    TL_FAMILY_PHI,   /* phi-1, 1.5, 2: parallel blocks, partial rotary, biases */
    TL_FAMILY_PHI3,  /* llama with fused projections */
    TL_FAMILY_OLMO,  /* llama with LayerNorm without parameters */
    TL_FAMILY_OLMO2, /* norms after attention and MLP, RMSNorm of all of q and k */
    TL_FAMILY_GPT_NEOX,
    TL_FAMILY_GPTJ,
    TL_FAMILY_OPT,
    TL_FAMILY_BLOOM,
    TL_FAMILY_FALCON,
    TL_FAMILY_STARCODER2,
    TL_FAMILY_DEEPSEEK_V2, /* multi-head latent attention, routed and shared experts */
    TL_FAMILY_DEEPSEEK_V3, /* and kimi_k2 */
    TL_FAMILY_GPT_OSS,
    TL_FAMILY_LLAMA4,
    TL_FAMILY_PHI_MSFT, /* phi's first files: other names, q, k and v in one product */
    TL_FAMILY_COUNT
} tl_family;

typedef enum tl_activation {
    TL_GELU_TANH,
    TL_GELU_ERF,
    TL_SILU,
    TL_RELU,
    TL_GLU_CLAMPED /* gpt_oss: gate·σ(1.702·gate)·(up + 1), gate at most 7, up within ±7; gated alone */
} tl_activation;

/* ---- what a block is made of; 0 is what gpt2 and llama do ---- */
typedef enum tl_norm_kind {
    TL_NORM_OF_FAMILY,     /* LayerNorm with gain and bias in gpt2, RMSNorm in llama: what a zeroed struct means */
    TL_NORM_LAYER,         /* gain and bias */
    TL_NORM_LAYER_NO_BIAS, /* gain alone */
    TL_NORM_LAYER_PLAIN,   /* neither (OLMo 1) */
    TL_NORM_RMS,           /* gain */
    TL_NORM_RMS_ONE        /* 1 + gain, the product rounded once (Gemma) */
} tl_norm_kind;
typedef enum tl_norm_place {
    TL_PLACE_BEFORE,       /* y = x + A(n₁x); y + M(n₂y) */
    TL_PLACE_AFTER,        /* y = x + n₁A(x); y + n₂M(y) (OLMo 2) */
    TL_PLACE_AROUND,       /* y = x + n₁'A(n₁x); y + n₂'M(n₂y) (Gemma 2, 3) */
    TL_PLACE_PARALLEL,     /* x + A(nx) + M(nx) (GPT-J, Phi, Falcon 7B) */
    TL_PLACE_PARALLEL_TWO, /* x + A(n₁x) + M(n₂x) (GPT-NeoX, Falcon 40B and up) */
    TL_PLACE_POST          /* y = n₁(x + A(x)); n₂(y + M(y)) (OPT-350m) */
} tl_norm_place;
typedef enum tl_qk_norm {
    TL_QK_NONE,
    TL_QK_HEAD, /* RMSNorm with a gain of K over each head of q and of k (Qwen3, Gemma 3: 1 + gain there) */
    TL_QK_ALL,  /* RMSNorm with gains of H·K and G·K over all of q and of k (OLMo 2) */
    TL_QK_L2    /* RMSNorm without a gain over each head, after rotary, in layers that turn (Llama 4) */
} tl_qk_norm;
typedef enum tl_positions {
    TL_POSITIONS_OF_FAMILY, /* learned where learned_positions, else rotary */
    TL_POSITIONS_LEARNED,
    TL_POSITIONS_ROTARY,
    TL_POSITIONS_ALIBI /* slopes of Press et al. 2022; how they join the scores: alibi_scaled */
} tl_positions;
typedef enum tl_rope_scaling {
    TL_ROPE_PLAIN, /* or llama3 where rope_factor > 0 */
    TL_ROPE_LLAMA3,
    TL_ROPE_LINEAR, /* positions ÷ factor */
    TL_ROPE_YARN,   /* Peng et al. 2023, eq. 17–25 */
    /* These three as tl_rotary_scaling says of them (tally/ops.h). Two depend on the length: tl_cache_holds (tally/cache.h). */
    TL_ROPE_DYNAMIC, /* the base grows with a length beyond the context */
    TL_ROPE_NTK,     /* the base is larger at any length */
    TL_ROPE_LONGROPE /* a factor for each pair: rope_short, and rope_long beyond rope_original_context (Phi-3, MiniCPM) */
} tl_rope_scaling;
#define TL_MODEL_PAIRS 256
typedef enum tl_router {
    TL_ROUTER_SOFTMAX,      /* softmax over all, then the k largest (Mixtral, Qwen, DeepSeek-V2) */
    TL_ROUTER_TOP_SOFTMAX,  /* the k largest, then softmax over them (gpt_oss) */
    TL_ROUTER_SIGMOID,      /* sigmoid, chosen by score + bias (DeepSeek-V3, Kimi K2) */
    TL_ROUTER_SIGMOID_INPUT /* sigmoid of the chosen scales the expert's input (Llama 4) */
} tl_router;

/* How the published files hold the weights, as their quantization_config says: no other model, fewer bytes on disk. */
typedef enum tl_stored {
    TL_STORED_PLAIN, /* or not said */
    TL_STORED_FP8,   /* matrices of the layers in F8_E4M3, a scale in f32 for each 128 × 128 (DeepSeek-V3) */
    TL_STORED_MXFP4  /* experts in 4 bits, a scale in 8 for each 32 (gpt_oss) */
} tl_stored;

/* Bits of tl_model.layer: what makes one layer unlike another. */
enum {
    TL_LAYER_WINDOW = 1,        /* sees `window` positions */
    TL_LAYER_CHUNKED = 2,       /* sees its own chunk of `window` positions alone (Llama 4) */
    TL_LAYER_NO_ROTARY = 4,     /* Llama 4's every fourth */
    TL_LAYER_EXPERTS = 8,       /* mixture of experts instead of the dense MLP */
    TL_LAYER_LOCAL_ROPE = 16,   /* turns by rope_local_theta, unscaled */
    TL_LAYER_GLOBAL_HEADS = 32, /* Gemma 4: global_kv_heads heads of global_head_size */
    TL_LAYER_SHARED_KV = 64,    /* no keys and values of its own: those of tl_model_kv_source's layer */
    TL_LAYER_WIDE_MLP = 128     /* a dense MLP of twice ff */
};
#define TL_MODEL_LAYERS 1024

#define TL_MODEL_NOTES 24

typedef struct tl_source {
    char text[96]; /* "n_embd", "4·D assumed by gpt2", "catalogue" */
} tl_source;

typedef struct tl_model {
    char name[128];
    tl_family family;
    int64_t layers;    /* N */
    int64_t width;     /* D */
    int64_t heads;     /* H */
    int64_t kv_heads;  /* G */
    int64_t head_size; /* K */
    int64_t ff;        /* F */
    int64_t vocab;     /* V */
    int64_t context;   /* C */
    bool tied;         /* output projection shares the embedding */
    bool gated;        /* llama: three-matrix MLP (SiLU(x·W1) ⊙ x·W3)·W2; false: CS336's ungated W2·SiLU(x·W1) */
    bool fused_qkv;    /* a family with products of q, k and v apart has them in one, by group (LitGPT's checkpoints) */
    bool learned_positions;
    bool attention_bias, mlp_bias; /* llama */
    bool rope_interleaved;
    tl_activation activation;
    double norm_epsilon;
    double rope_theta;
    double rope_factor, rope_low_freq, rope_high_freq; /* Llama-3.1 scaling; factor 0: none */
    int64_t rope_original_context;
    double dropout_embedding, dropout_attention, dropout_residual;
    double init_std;
    tl_source source_layers, source_width, source_heads, source_kv_heads, source_head_size, source_ff, source_vocab,
        source_context;
    tl_source source_experts, source_expert_ff, source_window;
    /* ---- all further families; 0 means absent ---- */
    uint16_t layer[TL_MODEL_LAYERS]; /* bits TL_LAYER_… of each layer */
    tl_norm_kind norm;
    tl_norm_place place;
    tl_qk_norm qk_norm;
    tl_positions positions;
    int64_t embedding_size;  /* of the token table where not D, then projected in and out (OPT-350m); 0: D */
    int64_t position_offset; /* rows of the position table before position 0 (OPT: 2) */
    bool qkv_bias, out_bias; /* beside attention_bias, which means both */
    bool
        alibi_scaled; /* ALiBi's slope·j, rounded to bf16, joins before the scores are scaled (Falcon); else after (BLOOM) */
    bool head_bias;                          /* of the output projection (Phi, GPT-J) */
    bool embedding_norm;                     /* LayerNorm of the embeddings (BLOOM) */
    double embedding_scale;                  /* embeddings times this (Gemma: √D, rounded as the family does); 0: 1 */
    double query_scale;                      /* scores times this; 0: 1/√K */
    double attention_softcap, final_softcap; /* c·tanh(x/c); 0: none */
    int64_t window; /* of layers with TL_LAYER_WINDOW: a row sees itself and window − 1 before it; or the chunk */
    int64_t rotary_size; /* of K, the first that turn; 0: all */
    tl_rope_scaling rope_scaling;
    double rope_beta_fast, rope_beta_slow,
        rope_attention_factor; /* yarn; factor 0: 0.1·ln(factor) + 1; longrope: √(1 + ln(factor)/ln(original)) */
    double rope_mscale, rope_mscale_all; /* yarn in DeepSeek; 0: not given */
    bool rope_no_truncate;               /* yarn's ramp is not rounded to whole dimensions (gpt_oss) */
    int64_t rope_factors;                /* longrope: how many pairs turn, each by factors of its own */
    double rope_short[TL_MODEL_PAIRS], rope_long[TL_MODEL_PAIRS];
    double rope_local_theta; /* of layers with TL_LAYER_LOCAL_ROPE */
    double temperature_scale,
        temperature_floor; /* Llama 4: q of layers without rotary times 1 + scale·ln(⌊(p+1)/floor⌋ + 1) */
    bool sinks;            /* a learned logit a head joins the softmax (gpt_oss) */
    int64_t global_head_size, global_kv_heads; /* Gemma 4's global layers */
    int64_t
        global_rotary_size; /* of global_head_size: this many ÷ 2 of its pairs (i, i + half) turn, by θ^(−2i/size); 0: all */
    bool value_norm;      /* RMSNorm without a gain of each head of v (Gemma 4) */
    bool layer_scalar;    /* a block's result times a number, published and not trained (Gemma 4) */
    bool experts_beside;  /* experts and the dense MLP read the same x, each through norms of its own (Gemma 4) */
    bool keys_are_values; /* Gemma 4's global layers: v is k before its norm */
    /* Gemma 4's per-layer embeddings: of each token a row of layer_input_vocab × (layers · layer_input_size) and a projection of
     * its embedding, together layer_input_size numbers a layer, which gate what the layer adds last; 0: none */
    int64_t layer_input_size, layer_input_vocab;
    double clip_qkv; /* q, k, v clamped to ± this (OLMo 1); 0: not */
    /* multi-head latent attention (DeepSeek-AI 2024, section 2.1); kv_rank 0: none. K is qk_nope + qk_rope then */
    int64_t q_rank, kv_rank, qk_nope, qk_rope, value_size;
    /* mixture of experts; experts 0: none */
    int64_t experts, experts_per_token, expert_ff; /* E, k, Fe */
    int64_t shared_ff;                             /* width of the experts that every token passes; 0: none */
    bool shared_gate;                              /* times σ of a learned product (Qwen2-MoE) */
    tl_router router;
    bool router_bias, expert_bias, norm_top_k; /* norm_top_k: the k weights are divided by their sum */
    bool correction_bias; /* DeepSeek-V3's bias of choice: a buffer that no gradient moves, yet counted */
    int64_t router_groups, router_top_groups; /* experts are chosen within the best groups; 0: no groups */
    double routed_scale;                      /* routed output times this; 0: 1 */
    double
        router_loss; /* coefficient of the load-balancing loss; 0: none. Not added: training refuses it, a plan leaves it out by name */
    tl_stored stored; /* changes nothing of what is computed: tl_weights_stored_bytes */
    int n_assumed;    /* what the file left out: "num_key_value_heads absent: equal to heads, assumed from llama" */
    char assumed[TL_MODEL_NOTES][160];
    int n_ignored; /* what the file says that changes nothing in the account: "torch_dtype float16" */
    char ignored[TL_MODEL_NOTES][160];
    /* "", or what the file asks for that changes results but no account, and is not built in ("rope_scaling yarn"): such a
     * model is planned, and refused where values are: tl_net_new on a device that holds them, and with it training and loading. */
    char not_computed[160];
    int64_t file_values; /* of the tensors that lie beside the description in one file (GGUF); 0: there are none */
} tl_model;

/* Checks ranges, divisibility (heads by kv_heads; head_size even for rotary; D by H for gpt2) and overflow of the
 * products of sizes; the message names the field, the value and what would do. */
tl_status tl_model_check(const tl_model *model, tl_error *error) TL_MUST_CHECK;
const char *tl_family_name(tl_family family);
/* How the model's rotary angles are scaled, as config.json calls it: "plain" "llama3" "linear" "yarn" "dynamic" "ntk" "longrope". */
const char *tl_model_rope_name(const tl_model *model);
/* The layer whose keys and values a layer attends to: its own, or, with TL_LAYER_SHARED_KV, the last before that has its own and
 * sees and turns alike; −1 where there is none such, which tl_model_check refuses. */
int64_t tl_model_kv_source(const tl_model *model, int64_t layer);

/* The built-in catalogue: a const table. */
int tl_catalogue_count(void);
/* Entry i; description is one line. */
const char *tl_catalogue_name(int index);
const char *tl_catalogue_note(int index);
/* The exact parameter count published with the model, or 0 where none or only a rounded one is; never computed. */
int64_t tl_catalogue_parameters(int index);
/* Where the row's shapes and count come from. */
const char *tl_catalogue_source(int index);
tl_status tl_catalogue_model(const char *name, tl_model *model,
                             tl_error *error) TL_MUST_CHECK; /* unknown: names the nearest */

#ifdef __cplusplus
}
#endif
#endif
