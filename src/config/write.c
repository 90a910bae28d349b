/* config/write.c: a model description in Hugging Face's keys, which config/family.c and transformers read alike. */
#include "tally/config.h"

static void write_architecture(tl_json *json, const char *name) {
    tl_json_key(json, "architectures");
    tl_json_array(json);
    tl_json_string(json, name);
    tl_json_end(json);
}

static void write_gpt2(tl_json *json, const tl_model *m) {
    static const char *const activations[] = {"gelu_new", "gelu", "silu", "relu"};
    tl_json_put_string(json, "model_type", "gpt2");
    write_architecture(json, "GPT2LMHeadModel");
    tl_json_put_integer(json, "n_layer", m->layers);
    tl_json_put_integer(json, "n_embd", m->width);
    tl_json_put_integer(json, "n_head", m->heads);
    tl_json_put_integer(json, "n_inner", m->ff);
    tl_json_put_integer(json, "vocab_size", m->vocab);
    tl_json_put_integer(json, "n_positions", m->context);
    tl_json_put_string(json, "activation_function", activations[m->activation]);
    tl_json_put_real(json, "layer_norm_epsilon", m->norm_epsilon);
    tl_json_put_real(json, "initializer_range", m->init_std);
    tl_json_put_real(json, "embd_pdrop", m->dropout_embedding);
    tl_json_put_real(json, "attn_pdrop", m->dropout_attention);
    tl_json_put_real(json, "resid_pdrop", m->dropout_residual);
    tl_json_put_boolean(json, "tie_word_embeddings", m->tied);
}

static void write_llama(tl_json *json, const tl_model *m) {
    tl_json_put_string(json, "model_type", "llama");
    write_architecture(json, "LlamaForCausalLM");
    tl_json_put_integer(json, "num_hidden_layers", m->layers);
    tl_json_put_integer(json, "hidden_size", m->width);
    tl_json_put_integer(json, "num_attention_heads", m->heads);
    tl_json_put_integer(json, "num_key_value_heads", m->kv_heads);
    tl_json_put_integer(json, "head_dim", m->head_size);
    tl_json_put_integer(json, "intermediate_size", m->ff);
    tl_json_put_integer(json, "vocab_size", m->vocab);
    tl_json_put_integer(json, "max_position_embeddings", m->context);
    tl_json_put_string(json, "hidden_act", "silu");
    tl_json_put_real(json, "rms_norm_eps", m->norm_epsilon);
    tl_json_put_real(json, "initializer_range", m->init_std);
    tl_json_put_real(json, "attention_dropout", m->dropout_attention);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    tl_json_put_boolean(json, "mlp_bias", m->mlp_bias);
    tl_json_put_boolean(json, "tie_word_embeddings", m->tied);
    if (m->rope_interleaved)
        tl_json_put_boolean(json, "rope_interleaved", true);
    tl_json_put_real(json, "rope_theta", m->rope_theta);
    if (m->rope_factor > 0) {
        tl_json_key(json, "rope_scaling");
        tl_json_object(json);
        tl_json_put_string(json, "rope_type", "llama3");
        tl_json_put_real(json, "factor", m->rope_factor);
        tl_json_put_real(json, "low_freq_factor", m->rope_low_freq);
        tl_json_put_real(json, "high_freq_factor", m->rope_high_freq);
        tl_json_put_integer(json, "original_max_position_embeddings", m->rope_original_context);
        tl_json_end(json);
    }
}

tl_json *tl_config_json(const tl_model *m, tl_dtype dtype) {
    static const struct {
        tl_dtype dtype;
        const char *name;
    } names[] = {{TL_F64, "float64"}, {TL_F32, "float32"}, {TL_F16, "float16"}, {TL_BF16, "bfloat16"}};
    tl_json *json = tl_json_new(NULL, 2);
    if (!json)
        return NULL;
    tl_json_object(json);
    if (m->family == TL_FAMILY_GPT2)
        write_gpt2(json, m);
    else
        write_llama(json, m);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].dtype == dtype)
            tl_json_put_string(json, "torch_dtype", names[i].name);
    tl_json_end(json);
    return json;
}
