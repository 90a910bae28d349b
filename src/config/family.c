/* The two families that are built in, key by key, with the defaults of Hugging Face's GPT2Config and LlamaConfig (transformers 4,
 * configuration_gpt2.py and configuration_llama.py). A size that is missing is refused: files that save_pretrained wrote hold
 * every size, so a missing one is a slip. Anything else that is missing is the family's default, and is noted. */
#include "config/reader.h"

#include <stdio.h>
#include <string.h>

static void set_text(tl_source *source, const char *text) {
    (void)snprintf(source->text, sizeof source->text, "%s", text);
}

/* ---- sizes under any of their names ---- */

/* What other families call the same size. */
static const char *const other_names[][8] = {
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers"},
    {"hidden_size", "n_embd", "d_model", "dim", "model_dim"},
    {"num_attention_heads", "n_head", "n_heads", "num_heads"},
    {"intermediate_size", "ffn_dim", "d_ff", "ffn_hidden_size", "n_inner"},
    {"vocab_size", "n_vocab", "padded_vocab_size"},
};

static void fail_missing(tl_config_reader *r, const char *key, long long standard) {
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++) {
        bool same = false;
        for (int j = 0; j < 8 && other_names[i][j] != NULL; j++)
            same = same || strcmp(other_names[i][j], key) == 0;
        for (int j = 0; same && j < 8 && other_names[i][j] != NULL; j++)
            if (tl_config_has(r, other_names[i][j]))
                tl_config_fail(r, TL_ERR_FORMAT, other_names[i][j],
                               "is another family's name; %s reads \"%s\", which is missing", r->family, key);
    }
    tl_config_fail(r, TL_ERR_FORMAT, NULL,
                   "\"%s\" is missing; %s's default is %lld, and sizes are not guessed: add it if that is meant", key,
                   r->family, standard);
}

/* A size that must be there, under its own name or the one Hugging Face also takes for it. */
static int64_t required(tl_config_reader *r, const char *key, const char *alias, long long standard,
                        tl_source *source) {
    const char *used = key;
    int64_t value;
    if (r->status != TL_OK)
        return 0;
    if (!tl_config_has(r, key) && alias != NULL && tl_config_has(r, alias))
        used = alias;
    else if (!tl_config_has(r, key)) {
        fail_missing(r, key, standard);
        return 0;
    }
    value = tl_config_size(r, used);
    if (used == key && alias != NULL && tl_config_has(r, alias)) {
        int64_t other = tl_config_size(r, alias);
        if (r->status == TL_OK && other != value)
            tl_config_fail(r, TL_ERR_FORMAT, alias, "is %lld but \"%s\" is %lld; they are two names of one size",
                           (long long)other, key, (long long)value);
    }
    tl_config_source(r, source, used);
    return value;
}

static double real_or(tl_config_reader *r, const char *key, double low, double high, double standard) {
    if (tl_config_has(r, key))
        return tl_config_real(r, key, low, high);
    tl_config_assume(r, "%s absent: %g, assumed from %s", key, standard, r->family);
    return standard;
}

static bool flag_or(tl_config_reader *r, const char *key, bool standard) {
    if (tl_config_has(r, key))
        return tl_config_flag(r, key);
    tl_config_assume(r, "%s absent: %s, assumed from %s", key, standard ? "true" : "false", r->family);
    return standard;
}

/* Dropout of exactly 1 drops everything: no model. */
#define MOST_DROPOUT 0.999999

static tl_activation activation_or(tl_config_reader *r, const char *key, const char *standard) {
    static const struct {
        const char *name;
        tl_activation activation;
    } known[] = {
        {"gelu_new", TL_GELU_TANH},   {"gelu_pytorch_tanh", TL_GELU_TANH},
        {"gelu_fast", TL_GELU_TANH},  {"gelu", TL_GELU_ERF},
        {"gelu_python", TL_GELU_ERF}, {"silu", TL_SILU},
        {"swish", TL_SILU},           {"relu", TL_RELU},
    };
    const char *name = standard;
    char raw[64];
    if (tl_config_has(r, key))
        name = tl_config_string(r, key);
    else
        tl_config_assume(r, "%s absent: %s, assumed from %s", key, standard, r->family);
    if (name == NULL)
        return TL_GELU_TANH;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].activation;
    tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is %s; gelu_new, gelu_pytorch_tanh, gelu, relu and silu are built in",
                   tl_config_raw(r, key, raw, sizeof raw));
    return TL_GELU_TANH;
}

/* ---- gpt2 ---- */

static void read_gpt2_context(tl_config_reader *r) {
    tl_model *m = r->model;
    if (tl_config_has(r, "n_positions") || tl_config_has(r, "max_position_embeddings")) {
        m->context = required(r, "n_positions", "max_position_embeddings", 1024, &m->source_context);
        if (tl_config_has(r, "n_ctx") && r->status == TL_OK && tl_config_size(r, "n_ctx") != m->context)
            tl_config_ignore(r, "n_ctx differs from n_positions %lld: the number of position rows counts",
                             (long long)m->context);
    } else if (tl_config_has(r, "n_ctx")) {
        m->context = required(r, "n_ctx", NULL, 1024, &m->source_context);
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
    m->layers = required(r, "n_layer", "num_hidden_layers", 12, &m->source_layers);
    m->width = required(r, "n_embd", "hidden_size", 768, &m->source_width);
    m->heads = required(r, "n_head", "num_attention_heads", 12, &m->source_heads);
    m->vocab = required(r, "vocab_size", NULL, 50257, &m->source_vocab);
    read_gpt2_context(r);
    if (r->status != TL_OK)
        return;
    if (m->width % m->heads != 0)
        tl_config_fail(r, TL_ERR_SHAPE, "n_head",
                       "is %lld, which does not divide n_embd %lld; gpt2 splits the width evenly", (long long)m->heads,
                       (long long)m->width);
    m->kv_heads = m->heads;
    m->head_size = m->width / m->heads;
    set_text(&m->source_kv_heads, "H in gpt2");
    set_text(&m->source_head_size, "D/H");
    if (tl_config_has(r, "n_inner"))
        m->ff = required(r, "n_inner", NULL, 0, &m->source_ff);
    else if (!tl_mul_i64(4, m->width, &m->ff))
        tl_config_fail(r, TL_ERR_OVERFLOW, "n_embd", "is so large that 4·n_embd is beyond 64 bits");
    else {
        set_text(&m->source_ff, "4·D assumed by gpt2");
        tl_config_assume(r, "n_inner absent: 4·n_embd = %lld, assumed from gpt2", (long long)m->ff);
    }
    m->learned_positions = true;
    m->attention_bias = true;
    m->mlp_bias = true;
    m->activation = activation_or(r, "activation_function", "gelu_new");
    m->norm_epsilon = real_or(r, "layer_norm_epsilon", 0, 1, 1e-5);
    m->dropout_embedding = real_or(r, "embd_pdrop", 0, MOST_DROPOUT, 0.1);
    m->dropout_attention = real_or(r, "attn_pdrop", 0, MOST_DROPOUT, 0.1);
    m->dropout_residual = real_or(r, "resid_pdrop", 0, MOST_DROPOUT, 0.1);
    m->init_std = real_or(r, "initializer_range", 0, 1e6, 0.02);
    m->tied = flag_or(r, "tie_word_embeddings", true);
}

/* ---- llama ---- */

/* Llama 3.1's own scaling is built in; the others turn the same pairs by other angles, which no count sees. */
static void read_rope_kind(tl_config_reader *r, const char *outer) {
    static const char *const angles_only[] = {"linear", "dynamic", "yarn", "longrope", "su", "ntk", "proportional"};
    tl_model *m = r->model;
    const char *key = tl_config_has(r, "rope_type") ? "rope_type" : "type";
    const char *kind;
    char raw[64];
    if (!tl_config_has(r, key)) {
        if (tl_config_has(r, "factor"))
            tl_config_fail(r, TL_ERR_FORMAT, key,
                           "is missing from %s; llama3, linear, dynamic, yarn and longrope are known", outer);
        return;
    }
    kind = tl_config_string(r, key);
    if (kind == NULL || strcmp(kind, "default") == 0)
        return;
    for (size_t i = 0; i < sizeof angles_only / sizeof angles_only[0]; i++)
        if (strcmp(kind, angles_only[i]) == 0) {
            tl_config_ignore(r, "%s %s: changes angles only, not the account", outer, kind);
            tl_config_not_computed(r, "%s of type %s", outer, kind);
            return;
        }
    if (strcmp(kind, "llama3") != 0) {
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is %s; llama3, linear, dynamic, yarn and longrope are known",
                       tl_config_raw(r, key, raw, sizeof raw));
        return;
    }
    m->rope_factor = tl_config_real(r, "factor", 1, 1e9);
    m->rope_low_freq = tl_config_real(r, "low_freq_factor", 1e-9, 1e9);
    m->rope_high_freq = tl_config_real(r, "high_freq_factor", 1e-9, 1e9);
    m->rope_original_context = tl_config_size(r, "original_max_position_embeddings");
    if (r->status == TL_OK && m->rope_high_freq <= m->rope_low_freq)
        tl_config_fail(r, TL_ERR_ARGUMENT, "high_freq_factor", "is %g; it must be above low_freq_factor %g",
                       m->rope_high_freq, m->rope_low_freq);
}

static void read_rope(tl_config_reader *r) {
    static const char *const places[] = {"rope_parameters", "rope_scaling"}; /* transformers 5 and 4 */
    tl_model *m = r->model;
    bool have_theta = false;
    for (int i = 0; i < 2 && r->status == TL_OK; i++) {
        const json_t *saved;
        if (!tl_config_has(r, places[i]) || !tl_config_enter(r, places[i], &saved))
            continue;
        read_rope_kind(r, places[i]);
        if (tl_config_has(r, "rope_theta")) {
            m->rope_theta = tl_config_real(r, "rope_theta", 1e-9, 1e18);
            have_theta = true;
        }
        tl_config_leave(r, saved);
        break;
    }
    if (!have_theta)
        m->rope_theta = real_or(r, "rope_theta", 1e-9, 1e18, 10000);
    m->rope_interleaved = tl_config_has(r, "rope_interleaved") && tl_config_flag(r, "rope_interleaved");
}

static void read_llama_heads(tl_config_reader *r) {
    tl_model *m = r->model;
    if (tl_config_has(r, "num_key_value_heads"))
        m->kv_heads = required(r, "num_key_value_heads", NULL, 0, &m->source_kv_heads);
    else {
        m->kv_heads = m->heads;
        set_text(&m->source_kv_heads, "H assumed by llama");
        tl_config_assume(r, "num_key_value_heads absent: equal to heads, %lld, assumed from llama",
                         (long long)m->heads);
    }
    if (r->status == TL_OK && m->heads % m->kv_heads != 0)
        tl_config_fail(r, TL_ERR_SHAPE, "num_key_value_heads",
                       "is %lld, which does not divide num_attention_heads %lld", (long long)m->kv_heads,
                       (long long)m->heads);
    if (tl_config_has(r, "head_dim")) {
        m->head_size = required(r, "head_dim", NULL, 0, &m->source_head_size);
        if (r->status == TL_OK && m->head_size % 2 != 0)
            tl_config_fail(r, TL_ERR_SHAPE, "head_dim", "is %lld; rotary positions turn pairs, so it must be even",
                           (long long)m->head_size);
        return;
    }
    if (r->status == TL_OK && m->width % m->heads != 0)
        tl_config_fail(r, TL_ERR_SHAPE, "num_attention_heads",
                       "is %lld, which does not divide hidden_size %lld; \"head_dim\" would say the size",
                       (long long)m->heads, (long long)m->width);
    if (r->status != TL_OK)
        return;
    m->head_size = m->width / m->heads;
    set_text(&m->source_head_size, "D/H");
    if (m->head_size % 2 != 0)
        tl_config_fail(r, TL_ERR_SHAPE, "num_attention_heads",
                       "makes heads of %lld/%lld = %lld; rotary positions turn pairs, so it must be even",
                       (long long)m->width, (long long)m->heads, (long long)m->head_size);
}

static void read_llama(tl_config_reader *r) {
    tl_model *m = r->model;
    m->family = TL_FAMILY_LLAMA;
    m->layers = required(r, "num_hidden_layers", NULL, 32, &m->source_layers);
    m->width = required(r, "hidden_size", NULL, 4096, &m->source_width);
    m->heads = required(r, "num_attention_heads", NULL, 32, &m->source_heads);
    m->ff = required(r, "intermediate_size", NULL, 11008, &m->source_ff);
    m->vocab = required(r, "vocab_size", NULL, 32000, &m->source_vocab);
    if (tl_config_has(r, "max_position_embeddings"))
        m->context = required(r, "max_position_embeddings", NULL, 2048, &m->source_context);
    else {
        m->context = 2048;
        tl_config_assume(r, "max_position_embeddings absent: 2048, assumed from llama");
        tl_config_source(r, &m->source_context, "assumed by llama");
    }
    if (r->status != TL_OK)
        return;
    read_llama_heads(r);
    read_rope(r);
    m->gated = true;
    m->activation = activation_or(r, "hidden_act", "silu");
    if (r->status == TL_OK && m->activation != TL_SILU)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "hidden_act", "is not silu; llama is built in with silu");
    m->norm_epsilon = real_or(r, "rms_norm_eps", 0, 1, 1e-6);
    m->init_std = real_or(r, "initializer_range", 0, 1e6, 0.02);
    m->dropout_attention =
        tl_config_has(r, "attention_dropout") ? tl_config_real(r, "attention_dropout", 0, MOST_DROPOUT) : 0;
    m->attention_bias = tl_config_has(r, "attention_bias") && tl_config_flag(r, "attention_bias");
    m->mlp_bias = tl_config_has(r, "mlp_bias") && tl_config_flag(r, "mlp_bias");
    m->tied = flag_or(r, "tie_word_embeddings", false);
}

tl_config_family_read *tl_config_family_find(const char *model_type, const char **family) {
    static const struct {
        const char *name;
        tl_config_family_read *read;
    } families[] = {{"gpt2", read_gpt2}, {"llama", read_llama}};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].name, model_type) == 0) {
            *family = families[i].name;
            return families[i].read;
        }
    return NULL;
}
