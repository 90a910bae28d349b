/* What makes a family: Hugging Face's modeling_*.py of transformers 4 and 5, and the papers named in docs and rows. */
#include "nn/family.h"

static void rotary(tl_model *m, tl_norm_kind norm, tl_activation activation, bool gated) {
    m->positions = TL_POSITIONS_ROTARY;
    m->norm = norm;
    m->activation = activation;
    m->gated = gated;
    m->rope_theta = 10000;
}

/* LayerNorm, biases everywhere, two matrices in the MLP */
static void classic(tl_model *m, tl_activation activation) {
    rotary(m, TL_NORM_LAYER, activation, false);
    m->attention_bias = m->mlp_bias = true;
}

static void gemma(tl_model *m, tl_norm_place place, tl_qk_norm qk_norm) {
    rotary(m, TL_NORM_RMS_ONE, TL_GELU_TANH, true);
    m->place = place;
    m->qk_norm = qk_norm;
}

static void start_classic(tl_model *m) {
    switch (m->family) {
    case TL_FAMILY_PHI:
    case TL_FAMILY_PHI_MSFT:
        classic(m, TL_GELU_TANH);
        m->place = TL_PLACE_PARALLEL;
        m->head_bias = true;
        break;
    case TL_FAMILY_GPT_NEOX:
        classic(m, TL_GELU_ERF);
        m->place = TL_PLACE_PARALLEL_TWO;
        break;
    case TL_FAMILY_GPTJ:
        classic(m, TL_GELU_TANH);
        m->place = TL_PLACE_PARALLEL;
        m->attention_bias = false;
        m->head_bias = true;
        m->rope_interleaved = true;
        break;
    case TL_FAMILY_OPT:
        classic(m, TL_RELU);
        m->positions = TL_POSITIONS_LEARNED;
        m->learned_positions = true;
        m->rope_theta = 0;
        m->position_offset = 2;
        break;
    case TL_FAMILY_BLOOM:
        classic(m, TL_GELU_TANH); /* BloomGelu */
        m->positions = TL_POSITIONS_ALIBI;
        m->rope_theta = 0;
        m->embedding_norm = true;
        break;
    case TL_FAMILY_STARCODER2:
        classic(m, TL_GELU_TANH);
        break;
    default:
        break;
    }
}

static void start_modern(tl_model *m) {
    rotary(m, TL_NORM_RMS, TL_SILU, true);
    switch (m->family) {
    case TL_FAMILY_MIXTRAL:
        m->norm_top_k = true;
        break;
    case TL_FAMILY_QWEN2_MOE:
        m->shared_gate = true;
        m->qkv_bias = true;
        break;
    case TL_FAMILY_QWEN2:
        m->qkv_bias = true;
        break;
    case TL_FAMILY_QWEN3:
    case TL_FAMILY_QWEN3_MOE:
        m->qk_norm = TL_QK_HEAD;
        break;
    case TL_FAMILY_OLMO:
        m->norm = TL_NORM_LAYER_PLAIN;
        break;
    case TL_FAMILY_OLMO2:
        m->place = TL_PLACE_AFTER;
        m->qk_norm = TL_QK_ALL;
        break;
    case TL_FAMILY_DEEPSEEK_V3:
        m->router = TL_ROUTER_SIGMOID;
        m->rope_interleaved = true;
        break;
    case TL_FAMILY_DEEPSEEK_V2:
        m->rope_interleaved = true;
        break;
    case TL_FAMILY_GPT_OSS:
        m->activation = TL_GLU_CLAMPED;
        m->router = TL_ROUTER_TOP_SOFTMAX;
        m->attention_bias = m->router_bias = m->expert_bias = m->sinks = true;
        break;
    case TL_FAMILY_LLAMA4:
        m->router = TL_ROUTER_SIGMOID_INPUT;
        m->qk_norm = TL_QK_L2;
        m->rope_interleaved = true;
        break;
    default:
        break;
    }
}

void tl_model_start(tl_model *m, tl_family family) {
    m->family = family;
    switch (family) {
    case TL_FAMILY_PHI:
    case TL_FAMILY_PHI_MSFT:
    case TL_FAMILY_GPT_NEOX:
    case TL_FAMILY_GPTJ:
    case TL_FAMILY_OPT:
    case TL_FAMILY_BLOOM:
    case TL_FAMILY_STARCODER2:
        start_classic(m);
        break;
    case TL_FAMILY_FALCON:
        rotary(m, TL_NORM_LAYER, TL_GELU_ERF, false);
        m->place = TL_PLACE_PARALLEL;
        m->alibi_scaled = true;
        break;
    case TL_FAMILY_GEMMA:
        gemma(m, TL_PLACE_BEFORE, TL_QK_NONE);
        break;
    case TL_FAMILY_GEMMA2:
        gemma(m, TL_PLACE_AROUND, TL_QK_NONE);
        break;
    case TL_FAMILY_GEMMA3:
        gemma(m, TL_PLACE_AROUND, TL_QK_HEAD);
        break;
    case TL_FAMILY_GEMMA4:
        gemma(m, TL_PLACE_AROUND, TL_QK_HEAD);
        m->norm = TL_NORM_RMS;
        m->query_scale = 1;
        m->value_norm = m->layer_scalar = true;
        break;
    case TL_FAMILY_GPT2:
    case TL_FAMILY_CRUNCHER:
    case TL_FAMILY_COUNT:
        break;
    default:
        start_modern(m);
        break;
    }
}
