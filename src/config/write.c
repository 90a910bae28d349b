/* config/write.c: a model description in Hugging Face's keys, which the readers here and transformers read alike. */
#include "config/write.h"

static void write_architecture(tl_json *json, const char *name) {
    tl_json_key(json, "architectures");
    tl_json_array(json);
    tl_json_string(json, name);
    tl_json_end(json);
}

const char *tl_write_activation(tl_activation activation) {
    static const char *const names[] = {"gelu_new", "gelu", "silu", "relu", "silu"};
    return names[activation];
}

void tl_write_gpt2_keys(tl_json *json, const tl_model *m) {
    tl_json_put_integer(json, "n_layer", m->layers);
    tl_json_put_integer(json, "n_embd", m->width);
    tl_json_put_integer(json, "n_head", m->heads);
    tl_json_put_integer(json, "n_inner", m->ff);
    tl_json_put_integer(json, "vocab_size", m->vocab);
    tl_json_put_integer(json, "n_positions", m->context);
    tl_json_put_string(json, "activation_function", tl_write_activation(m->activation));
    tl_json_put_real(json, "layer_norm_epsilon", m->norm_epsilon);
    tl_json_put_real(json, "initializer_range", m->init_std);
    tl_json_put_real(json, "embd_pdrop", m->dropout_embedding);
    tl_json_put_real(json, "attn_pdrop", m->dropout_attention);
    tl_json_put_real(json, "resid_pdrop", m->dropout_residual);
    tl_json_put_boolean(json, "tie_word_embeddings", m->tied);
}

static void write_llama(tl_json *json, const tl_model *m) {
    tl_write_sizes(json, m);
    tl_json_put_string(json, "hidden_act", "silu");
    tl_json_put_real(json, "rms_norm_eps", m->norm_epsilon);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    tl_json_put_boolean(json, "mlp_bias", m->mlp_bias);
    if (m->rope_interleaved)
        tl_json_put_boolean(json, "rope_interleaved", true);
    tl_write_rope(json, m);
}

void tl_write_sizes(tl_json *json, const tl_model *m) {
    tl_json_put_integer(json, "num_hidden_layers", m->layers);
    tl_json_put_integer(json, "hidden_size", m->width);
    tl_json_put_integer(json, "num_attention_heads", m->heads);
    if (m->family != TL_FAMILY_GPT_NEOX)
        tl_json_put_integer(json, "num_key_value_heads", m->kv_heads);
    if (m->kv_rank == 0 && m->family != TL_FAMILY_GPT_NEOX)
        tl_json_put_integer(json, "head_dim", m->head_size);
    tl_json_put_integer(json, "intermediate_size", m->ff);
    tl_json_put_integer(json, "vocab_size", m->vocab);
    tl_json_put_integer(json, "max_position_embeddings", m->context);
    tl_json_put_real(json, "initializer_range", m->init_std);
    tl_json_put_real(json, "attention_dropout", m->dropout_attention);
    tl_json_put_boolean(json, "tie_word_embeddings", m->tied);
}

static void write_factors(tl_json *json, const char *key, const double *factors, int64_t count) {
    tl_json_key(json, key);
    tl_json_array(json);
    for (int64_t i = 0; i < count; i++)
        tl_json_real(json, factors[i]);
    tl_json_end(json);
}

static void write_yarn(tl_json *json, const tl_model *m) {
    tl_json_put_real(json, "beta_fast", m->rope_beta_fast);
    tl_json_put_real(json, "beta_slow", m->rope_beta_slow);
    if (m->rope_mscale > 0)
        tl_json_put_real(json, "mscale", m->rope_mscale);
    if (m->rope_mscale_all > 0)
        tl_json_put_real(json, "mscale_all_dim", m->rope_mscale_all);
    if (m->rope_no_truncate)
        tl_json_put_boolean(json, "truncate", false);
}

/* longrope's factor is the context over the original one, where no other is given. */
static bool is_ratio(const tl_model *m) {
    double ratio = (double)m->context / (double)m->rope_original_context;
    return m->rope_scaling == TL_ROPE_LONGROPE && !(m->rope_factor < ratio) && !(m->rope_factor > ratio);
}

static void write_scaling(tl_json *json, const tl_model *m) {
    tl_json_put_string(json, "rope_type", tl_model_rope_name(m));
    if (!is_ratio(m))
        tl_json_put_real(json, "factor", m->rope_factor);
    if (m->rope_attention_factor > 0)
        tl_json_put_real(json, "attention_factor", m->rope_attention_factor);
    switch (m->rope_scaling) {
    case TL_ROPE_LINEAR:
    case TL_ROPE_DYNAMIC:
    case TL_ROPE_NTK:
        return;
    case TL_ROPE_LONGROPE:
        write_factors(json, "short_factor", m->rope_short, m->rope_factors);
        write_factors(json, "long_factor", m->rope_long, m->rope_factors);
        break;
    case TL_ROPE_YARN:
        write_yarn(json, m);
        break;
    default:
        tl_json_put_real(json, "low_freq_factor", m->rope_low_freq);
        tl_json_put_real(json, "high_freq_factor", m->rope_high_freq);
    }
    tl_json_put_integer(json, "original_max_position_embeddings", m->rope_original_context);
}

void tl_write_rope(tl_json *json, const tl_model *m) {
    tl_json_put_real(json, "rope_theta", m->rope_theta);
    tl_json_key(json, "rope_scaling");
    if (m->rope_factor == 0) {
        tl_json_null(json);
        return;
    }
    tl_json_object(json);
    write_scaling(json, m);
    tl_json_end(json);
    if (m->rope_scaling == TL_ROPE_LONGROPE) /* where transformers 4 looks for it */
        tl_json_put_integer(json, "original_max_position_embeddings", m->rope_original_context);
}

/* The type of a family's own text model, where the family's name is that of a larger one. */
static const tl_config_family *family_of(tl_family family) {
    const char *type = tl_family_name(family);
    if (family == TL_FAMILY_GEMMA3)
        type = "gemma3_text";
    else if (family == TL_FAMILY_GEMMA4)
        type = "gemma4_text";
    else if (family == TL_FAMILY_LLAMA4)
        type = "llama4_text";
    return tl_config_family_find(type, NULL);
}

tl_json *tl_config_json(const tl_model *m, tl_dtype dtype) {
    static const struct {
        tl_dtype dtype;
        const char *name;
    } names[] = {{TL_F64, "float64"}, {TL_F32, "float32"}, {TL_F16, "float16"}, {TL_BF16, "bfloat16"}};
    const tl_config_family *family = family_of(m->family);
    tl_json *json = tl_json_new(NULL, 2);
    if (!json)
        return NULL;
    tl_json_object(json);
    tl_json_put_string(json, "model_type", family != NULL ? family->type : tl_family_name(m->family));
    if (family != NULL)
        write_architecture(json, family->architecture);
    if (m->family == TL_FAMILY_GPT2)
        tl_write_gpt2_keys(json, m);
    else if (m->family == TL_FAMILY_LLAMA)
        write_llama(json, m);
    else
        tl_write_family(json, m);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].dtype == dtype)
            tl_json_put_string(json, "torch_dtype", names[i].name);
    tl_json_end(json);
    return json;
}
