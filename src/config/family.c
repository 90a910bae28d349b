/* The families that are built in, and the two that came first, key by key, with the defaults of Hugging Face's GPT2Config and
 * LlamaConfig (transformers 4, configuration_gpt2.py and configuration_llama.py). A size that is missing is refused: files that
 * save_pretrained wrote hold every size, so a missing one is a slip. Anything else that is missing is the family's default, and
 * is noted. */
#include "config/fields.h"
#include "nn/family.h"

#include <stdio.h>
#include <string.h>

/* ---- gpt2 ---- */

static void read_gpt2_context(tl_config_reader *r) {
    tl_model *m = r->model;
    if (tl_config_has(r, "n_positions") || tl_config_has(r, "max_position_embeddings")) {
        m->context = tl_config_required(r, "n_positions", "max_position_embeddings", 1024, &m->source_context);
        if (tl_config_has(r, "n_ctx") && r->status == TL_OK && tl_config_size(r, "n_ctx") != m->context)
            tl_config_ignore(r, "n_ctx differs from n_positions %lld: the number of position rows counts",
                             (long long)m->context);
    } else if (tl_config_has(r, "n_ctx")) {
        m->context = tl_config_required(r, "n_ctx", NULL, 1024, &m->source_context);
        tl_config_assume(r, "n_positions absent: equal to n_ctx, assumed from gpt2");
    } else {
        m->context = 1024;
        tl_config_assume(r, "n_positions absent: 1024, assumed from gpt2");
        tl_config_source(r, &m->source_context, "assumed by gpt2");
    }
}

static void read_gpt2(tl_config_reader *r) {
    tl_model *m = r->model;
    m->family = TL_FAMILY_GPT2;
    m->layers = tl_config_required(r, "n_layer", "num_hidden_layers", 12, &m->source_layers);
    m->width = tl_config_required(r, "n_embd", "hidden_size", 768, &m->source_width);
    m->heads = tl_config_required(r, "n_head", "num_attention_heads", 12, &m->source_heads);
    m->vocab = tl_config_required(r, "vocab_size", NULL, 50257, &m->source_vocab);
    read_gpt2_context(r);
    if (r->status != TL_OK)
        return;
    if (m->width % m->heads != 0)
        tl_config_fail(r, TL_ERR_SHAPE, "n_head",
                       "is %lld, which does not divide n_embd %lld; gpt2 splits the width evenly", (long long)m->heads,
                       (long long)m->width);
    m->kv_heads = m->heads;
    m->head_size = m->width / m->heads;
    tl_config_set_source(&m->source_kv_heads, "H in gpt2");
    tl_config_set_source(&m->source_head_size, "D/H");
    if (tl_config_has(r, "n_inner"))
        m->ff = tl_config_required(r, "n_inner", NULL, 0, &m->source_ff);
    else if (!tl_mul_i64(4, m->width, &m->ff))
        tl_config_fail(r, TL_ERR_OVERFLOW, "n_embd", "is so large that 4·n_embd is beyond 64 bits");
    else {
        tl_config_set_source(&m->source_ff, "4·D assumed by gpt2");
        tl_config_assume(r, "n_inner absent: 4·n_embd = %lld, assumed from gpt2", (long long)m->ff);
    }
    m->learned_positions = true;
    m->attention_bias = true;
    m->mlp_bias = true;
    m->activation = tl_config_activation_or(r, "activation_function", "gelu_new");
    m->norm_epsilon = tl_config_real_or(r, "layer_norm_epsilon", 0, 1, 1e-5);
    m->dropout_embedding = tl_config_real_or(r, "embd_pdrop", 0, TL_CONFIG_MOST_DROPOUT, 0.1);
    m->dropout_attention = tl_config_real_or(r, "attn_pdrop", 0, TL_CONFIG_MOST_DROPOUT, 0.1);
    m->dropout_residual = tl_config_real_or(r, "resid_pdrop", 0, TL_CONFIG_MOST_DROPOUT, 0.1);
    m->init_std = tl_config_real_or(r, "initializer_range", 0, 1e6, 0.02);
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", true);
}

/* ---- llama ---- */

static void read_llama(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_LLAMA);
    tl_config_read_sizes(r, &(tl_config_sizes){32, 4096, 32, 11008, 32000, 2048});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 0, 0);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 10000});
    m->rope_interleaved = tl_config_flag_given(r, "rope_interleaved");
    tl_config_like_llama(r, 1e-6, false);
    m->attention_bias = tl_config_flag_given(r, "attention_bias");
    m->mlp_bias = tl_config_flag_given(r, "mlp_bias");
}

/* ---- all ---- */

static const tl_config_family families[] = {
    {"gpt2", read_gpt2, "GPT2LMHeadModel", "gpt2"},
    {"llama", read_llama, "LlamaForCausalLM", "llama"},
    {"mistral", tl_config_mistral, "MistralForCausalLM", "mistral"},
    {"mixtral", tl_config_mixtral, "MixtralForCausalLM", "mixtral"},
    {"qwen2", tl_config_qwen2, "Qwen2ForCausalLM", "qwen2"},
    {"qwen2_moe", tl_config_qwen2_moe, "Qwen2MoeForCausalLM", "qwen2_moe"},
    {"qwen3", tl_config_qwen3, "Qwen3ForCausalLM", "qwen3"},
    {"qwen3_moe", tl_config_qwen3_moe, "Qwen3MoeForCausalLM", "qwen3_moe"},
    {"gemma", tl_config_gemma, "GemmaForCausalLM", "gemma"},
    {"gemma2", tl_config_gemma2, "Gemma2ForCausalLM", "gemma2"},
    {"gemma3_text", tl_config_gemma3, "Gemma3ForCausalLM", "gemma3"},
    {"gemma3", tl_config_gemma3, "Gemma3ForConditionalGeneration", NULL},
    {"gemma4_text", tl_config_gemma4, "Gemma4ForCausalLM", "gemma4"},
    {"gemma4", tl_config_gemma4, "Gemma4ForConditionalGeneration", NULL},
    {"phi", tl_config_phi, "PhiForCausalLM", "phi"},
    {"phi-msft", tl_config_phi_msft, "PhiForCausalLM", "phi-msft"},
    {"mixformer-sequential", tl_config_phi_msft, "MixFormerSequentialForCausalLM", NULL},
    {"phi3", tl_config_phi3, "Phi3ForCausalLM", "phi3"},
    {"olmo", tl_config_olmo, "OlmoForCausalLM", "olmo"},
    {"olmo2", tl_config_olmo2, "Olmo2ForCausalLM", "olmo2"},
    {"gpt_neox", tl_config_gpt_neox, "GPTNeoXForCausalLM", "gpt_neox"},
    {"gptj", tl_config_gptj, "GPTJForCausalLM", "gptj"},
    {"opt", tl_config_opt, "OPTForCausalLM", "opt"},
    {"bloom", tl_config_bloom, "BloomForCausalLM", "bloom"},
    {"falcon", tl_config_falcon, "FalconForCausalLM", "falcon"},
    {"starcoder2", tl_config_starcoder2, "Starcoder2ForCausalLM", "starcoder2"},
    {"deepseek_v2", tl_config_deepseek_v2, "DeepseekV2ForCausalLM", "deepseek_v2"},
    {"deepseek_v3", tl_config_deepseek_v3, "DeepseekV3ForCausalLM", "deepseek_v3"},
    {"kimi_k2", tl_config_deepseek_v3, "DeepseekV3ForCausalLM", "kimi_k2"},
    {"gpt_oss", tl_config_gpt_oss, "GptOssForCausalLM", "gpt_oss"},
    {"llama4_text", tl_config_llama4, "Llama4ForCausalLM", "llama4"},
    {"llama4", tl_config_llama4, "Llama4ForConditionalGeneration", NULL},
};
#define N_FAMILIES (sizeof families / sizeof families[0])

const tl_config_family *tl_config_family_find(const char *model_type, const char *architecture) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if ((model_type != NULL && strcmp(families[i].type, model_type) == 0) ||
            (model_type == NULL && architecture != NULL && strcmp(families[i].architecture, architecture) == 0))
            return &families[i];
    return NULL;
}

const char *tl_config_family_names(char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < N_FAMILIES && used < size; i++)
        if (families[i].note != NULL)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", families[i].note);
    return out;
}
