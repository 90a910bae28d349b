/* What the readers of families share: sizes under any of their names, defaults that are noted, heads. */
#include "config/fields.h"

#include <stdio.h>
#include <string.h>

void tl_config_set_source(tl_source *source, const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)vsnprintf(source->text, sizeof source->text, format, args);
    va_end(args);
}

/* What other families call the same size. */
static const char *const other_names[][8] = {
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers"},
    {"hidden_size", "n_embd", "d_model", "dim", "model_dim", "n_embed"},
    {"num_attention_heads", "n_head", "n_heads", "num_heads"},
    {"intermediate_size", "ffn_dim", "d_ff", "ffn_hidden_size", "n_inner"},
    {"vocab_size", "n_vocab", "padded_vocab_size"},
    {"num_experts", "num_local_experts", "n_routed_experts"},
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

int64_t tl_config_required(tl_config_reader *r, const char *key, const char *alias, int64_t standard,
                           tl_source *source) {
    const char *used = key;
    int64_t value;
    if (r->status != TL_OK)
        return 0;
    if (!tl_config_has(r, key) && alias != NULL && tl_config_has(r, alias))
        used = alias;
    else if (!tl_config_has(r, key) && r->sizes_assumed) {
        tl_config_set_source(source, "assumed by %s", r->family);
        tl_config_assume(r, "%s absent: %lld, assumed from %s", key, (long long)standard, r->family);
        return standard;
    } else if (!tl_config_has(r, key)) {
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

int64_t tl_config_size_or(tl_config_reader *r, const char *key, int64_t standard) {
    if (tl_config_has(r, key))
        return tl_config_size(r, key);
    tl_config_assume(r, "%s absent: %lld, assumed from %s", key, (long long)standard, r->family);
    return standard;
}

int64_t tl_config_count_or(tl_config_reader *r, const char *key, int64_t standard) {
    if (tl_config_has(r, key))
        return tl_config_count(r, key);
    tl_config_assume(r, "%s absent: %lld, assumed from %s", key, (long long)standard, r->family);
    return standard;
}

double tl_config_real_or(tl_config_reader *r, const char *key, double low, double high, double standard) {
    if (tl_config_has(r, key))
        return tl_config_real(r, key, low, high);
    tl_config_assume(r, "%s absent: %g, assumed from %s", key, standard, r->family);
    return standard;
}

bool tl_config_flag_or(tl_config_reader *r, const char *key, bool standard) {
    if (tl_config_has(r, key))
        return tl_config_flag(r, key);
    tl_config_assume(r, "%s absent: %s, assumed from %s", key, standard ? "true" : "false", r->family);
    return standard;
}

bool tl_config_flag_given(tl_config_reader *r, const char *key) {
    return tl_config_has(r, key) && tl_config_flag(r, key);
}

double tl_config_dropout_given(tl_config_reader *r, const char *key) {
    return tl_config_has(r, key) ? tl_config_real(r, key, 0, TL_CONFIG_MOST_DROPOUT) : 0;
}

void tl_config_only(tl_config_reader *r, const char *key, bool wanted, const char *why) {
    if (tl_config_has(r, key) && tl_config_flag(r, key) != wanted && r->status == TL_OK)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is %s: %s, so the account would be another",
                       wanted ? "false" : "true", why);
}

void tl_config_only_text(tl_config_reader *r, const char *key, const char *wanted, const char *why) {
    char raw[64];
    const char *text = tl_config_has(r, key) ? tl_config_string(r, key) : NULL;
    if (text != NULL && strcmp(text, wanted) != 0)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is %s: %s with \"%s\" %s", tl_config_raw(r, key, raw, sizeof raw),
                       r->family, wanted, why);
}

tl_activation tl_config_activation_or(tl_config_reader *r, const char *key, const char *standard) {
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

/* ---- groups of keys ---- */

void tl_config_read_sizes(tl_config_reader *r, const tl_config_sizes *standard) {
    tl_model *m = r->model;
    m->layers = tl_config_required(r, "num_hidden_layers", NULL, standard->layers, &m->source_layers);
    m->width = tl_config_required(r, "hidden_size", NULL, standard->width, &m->source_width);
    m->heads = tl_config_required(r, "num_attention_heads", NULL, standard->heads, &m->source_heads);
    m->ff = tl_config_required(r, "intermediate_size", NULL, standard->ff, &m->source_ff);
    m->vocab = tl_config_required(r, "vocab_size", NULL, standard->vocab, &m->source_vocab);
    if (tl_config_has(r, "max_position_embeddings"))
        m->context = tl_config_required(r, "max_position_embeddings", NULL, standard->context, &m->source_context);
    else {
        m->context = standard->context;
        tl_config_assume(r, "max_position_embeddings absent: %lld, assumed from %s", (long long)standard->context,
                         r->family);
        tl_config_set_source(&m->source_context, "assumed by %s", r->family);
    }
    /* Everything per layer is written by index. */
    if (r->status == TL_OK && m->layers > TL_MODEL_LAYERS)
        tl_config_fail(r, TL_ERR_OVERFLOW, "num_hidden_layers", "is %lld; it must be from 1 to %d",
                       (long long)m->layers, TL_MODEL_LAYERS);
}

static void fail_odd(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_config_fail(r, TL_ERR_SHAPE, "num_attention_heads",
                   "makes heads of %lld/%lld = %lld; rotary positions turn pairs, so it must be even",
                   (long long)m->width, (long long)m->heads, (long long)m->head_size);
}

void tl_config_read_heads(tl_config_reader *r, int64_t head_standard, int64_t kv_standard) {
    tl_model *m = r->model;
    if (tl_config_has(r, "num_key_value_heads") || (r->sizes_assumed && kv_standard != 0))
        m->kv_heads = tl_config_required(r, "num_key_value_heads", NULL, kv_standard, &m->source_kv_heads);
    else if (kv_standard != 0 && !tl_config_is_null(r, "num_key_value_heads")) {
        m->kv_heads = tl_config_size_or(r, "num_key_value_heads", kv_standard);
        tl_config_set_source(&m->source_kv_heads, "assumed by %s", r->family);
        if (r->status == TL_OK && m->heads % kv_standard != 0)
            tl_config_fail(r, TL_ERR_SHAPE, NULL,
                           "\"num_key_value_heads\" is missing; %s's default is %lld, which does not divide "
                           "num_attention_heads %lld: say the number, or null for one per head",
                           r->family, (long long)kv_standard, (long long)m->heads);
    } else {
        m->kv_heads = m->heads;
        tl_config_set_source(&m->source_kv_heads, "H assumed by %s", r->family);
        tl_config_assume(r, "num_key_value_heads absent: equal to heads, %lld, assumed from %s", (long long)m->heads,
                         r->family);
    }
    if (r->status == TL_OK && m->heads % m->kv_heads != 0)
        tl_config_fail(r, TL_ERR_SHAPE, "num_key_value_heads",
                       "is %lld, which does not divide num_attention_heads %lld", (long long)m->kv_heads,
                       (long long)m->heads);
    if (tl_config_has(r, "head_dim") || head_standard != 0) {
        m->head_size = tl_config_required(r, "head_dim", NULL, head_standard, &m->source_head_size);
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
    tl_config_set_source(&m->source_head_size, "D/H");
    if (m->head_size % 2 != 0)
        fail_odd(r);
}

void tl_config_plain_heads(tl_config_reader *r, const char *heads_key, const char *width_key) {
    tl_model *m = r->model;
    if (r->status != TL_OK)
        return;
    if (m->width % m->heads != 0) {
        tl_config_fail(r, TL_ERR_SHAPE, heads_key, "is %lld, which does not divide %s %lld; %s splits the width evenly",
                       (long long)m->heads, width_key, (long long)m->width, r->family);
        return;
    }
    m->kv_heads = m->heads;
    m->head_size = m->width / m->heads;
    tl_config_set_source(&m->source_kv_heads, "H in %s", r->family);
    tl_config_set_source(&m->source_head_size, "D/H");
}

void tl_config_ff_or_4d(tl_config_reader *r, const char *key) {
    tl_model *m = r->model;
    if (r->status != TL_OK)
        return;
    if (tl_config_has(r, key))
        m->ff = tl_config_required(r, key, NULL, 0, &m->source_ff);
    else if (!tl_mul_i64(4, m->width, &m->ff))
        tl_config_fail(r, TL_ERR_OVERFLOW, NULL, "the width %lld is so large that 4·D is beyond 64 bits",
                       (long long)m->width);
    else {
        tl_config_set_source(&m->source_ff, "4·D assumed by %s", r->family);
        tl_config_assume(r, "%s absent: 4·D = %lld, assumed from %s", key, (long long)m->ff, r->family);
    }
}

void tl_config_like_llama(tl_config_reader *r, double epsilon, bool tied) {
    tl_model *m = r->model;
    if (tl_config_activation_or(r, "hidden_act", "silu") != TL_SILU && r->status == TL_OK)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "hidden_act", "is not silu; %s is built in with silu", r->family);
    m->norm_epsilon = tl_config_real_or(r, "rms_norm_eps", 0, 1, epsilon);
    m->init_std = tl_config_real_or(r, "initializer_range", 0, 1e6, 0.02);
    m->dropout_attention = tl_config_dropout_given(r, "attention_dropout");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", tied);
}

void tl_config_read_router_noise(tl_config_reader *r) {
    if (tl_config_has(r, "router_jitter_noise") && tl_config_real(r, "router_jitter_noise", 0, 1) != 0)
        tl_config_ignore(r, "router_jitter_noise: no noise is added to the router here");
}

void tl_config_read_router_loss(tl_config_reader *r, double standard) {
    bool given = tl_config_has(r, "router_aux_loss_coef");
    double loss = given ? tl_config_real(r, "router_aux_loss_coef", 0, 1e9) : standard;
    if (tl_config_flag_given(r, "output_router_logits")) {
        r->model->router_loss = loss;
        if (!given)
            tl_config_assume(r, "router_aux_loss_coef absent: %g, assumed from %s", standard, r->family);
    } else if (given && loss > 0)
        tl_config_ignore(r, "router_aux_loss_coef %g: added to the loss only with output_router_logits", loss);
}
