/* cli/train_model.c: the model to train: a short spec, or whatever other verbs take; and its config.json. */
#include <stdlib.h>
#include <string.h>

#include "tally/config.h"
#include "train.h"

typedef struct spec {
    int64_t N, D, H, G, F, V, C;
    double dropout;
    bool untied;
} spec;

static tl_status set_field(spec *s, const char *text, const char *key, const char *value, tl_error *error) {
    const struct {
        const char *key;
        int64_t *field;
    } fields[] = {{"N", &s->N}, {"D", &s->D}, {"H", &s->H}, {"G", &s->G}, {"F", &s->F}, {"V", &s->V}, {"C", &s->C}};
    tl_error inner = {TL_OK, ""};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(fields[i].key, key) == 0) {
            if (tl_parse_size(value, fields[i].field, &inner) != TL_OK)
                return tl_fail(error, TL_ERR_ARGUMENT, "--model %.80s: %s: %s", text, key, inner.message);
            if (*fields[i].field < 1)
                return tl_fail(error, TL_ERR_ARGUMENT, "--model %.80s: %s is at least 1", text, key);
            return TL_OK;
        }
    if (strcmp(key, "dropout") == 0) {
        if (tl_parse_number(value, 0, 0.9, &s->dropout, &inner) != TL_OK)
            return tl_fail(error, TL_ERR_ARGUMENT, "--model %.80s: dropout: %s", text, inner.message);
        return TL_OK;
    }
    return tl_fail(
        error, TL_ERR_ARGUMENT,
        "--model %.80s: there is no \"%.20s\"; N layers, D width, H heads, G key/value heads, F feed-forward, "
        "V vocabulary, C context and dropout are",
        text, key);
}

/* "N=2,D=128,H=4" */
static tl_status read_fields(spec *s, const char *text, const char *at, tl_error *error) {
    const char *first = at;
    do {
        char key[24], value[24];
        size_t length = strcspn(at, ",");
        const char *equals = memchr(at, '=', length);
        size_t key_length = equals ? (size_t)(equals - at) : length;
        if (!equals || key_length == 0 || key_length >= sizeof key || length - key_length - 1 >= sizeof value)
            return tl_fail(error, TL_ERR_ARGUMENT, "--model %.80s: \"%.*s\" is not NAME=NUMBER", text,
                           (int)(length < 40 ? length : 40), at);
        snprintf(key, sizeof key, "%.*s", (int)key_length, at);
        snprintf(value, sizeof value, "%.*s", (int)(length - key_length - 1), equals + 1);
        for (const char *p = first; p < at; p += strcspn(p, ",") + 1)
            if (strncmp(p, at, key_length + 1) == 0) /* with its '=' */
                return tl_fail(error, TL_ERR_ARGUMENT, "--model %.80s: %s is given twice", text, key);
        tl_status status = set_field(s, text, key, value, error);
        if (status != TL_OK)
            return status;
        at += length;
    } while (*at == ',' && at++);
    return TL_OK;
}

/* A spec goes through the reader of config.json like any other model, so that it is checked and named alike. */
static tl_status from_spec(const char *text, int64_t vocab, int64_t context, tl_model *model, tl_error *error) {
    bool llama = strncmp(text, "llama:", 6) == 0;
    spec s = {.N = 2, .D = 128, .H = 4, .V = vocab, .C = context};
    tl_status status = read_fields(&s, text, strchr(text, ':') + 1, error);
    if (status != TL_OK)
        return status;
    if (s.D > INT64_MAX / 8)
        return tl_fail(error, TL_ERR_ARGUMENT, "--model %.80s: a width of %lld is beyond any model", text,
                       (long long)s.D);
    /* gpt2: F = 4·D (Radford et al. 2019). llama: 8/3·D, rounded up to a multiple of 8, keeps the parameters of the MLP
     * the same with its third matrix (Shazeer 2020, section 3). */
    int64_t F = s.F ? s.F : llama ? (s.D * 8 / 3 + 7) / 8 * 8 : 4 * s.D;
    tl_model m = {.family = llama ? TL_FAMILY_LLAMA : TL_FAMILY_GPT2, .layers = s.N, .width = s.D, .heads = s.H};
    m.kv_heads = s.G ? s.G : s.H;
    m.head_size = s.D / s.H;
    m.ff = F;
    m.vocab = s.V;
    m.context = s.C;
    m.tied = true;
    m.activation = llama ? TL_SILU : TL_GELU_TANH;
    m.norm_epsilon = 1e-5;
    m.init_std = 0.02;
    m.rope_theta = 10000;
    m.dropout_embedding = m.dropout_attention = m.dropout_residual = s.dropout;
    if (!llama && s.G && s.G != s.H)
        return tl_fail(error, TL_ERR_ARGUMENT, "--model %.80s: gpt2 has no grouped heads (G); llama has", text);
    if (s.D % s.H != 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "--model %.80s: D %lld is no multiple of H %lld", text, (long long)s.D,
                       (long long)s.H);
    tl_json *json = tl_config_json(&m, TL_DTYPE_COUNT);
    size_t length = 0;
    const char *config = json ? tl_json_text(json, &length) : NULL;
    if (config)
        status = tl_config_parse(config, length, text, model, error);
    else
        status = tl_fail(error, TL_ERR_MEMORY, "no memory for the model's description");
    tl_json_free(json);
    return status;
}

tl_status tl_train_model(const char *text, int64_t vocab, int64_t context, tl_model *model, tl_error *error) {
    bool is_spec = strncmp(text, "gpt2:", 5) == 0 || strncmp(text, "llama:", 6) == 0;
    tl_status status = is_spec ? from_spec(text, vocab, context, model, error) : tl_model_find(text, model, error);
    if (status != TL_OK)
        return status;
    if (model->not_computed[0])
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s has %s: it is planned (`tally plan'), and not trained",
                       model->name, model->not_computed);
    if (model->family == TL_FAMILY_CRUNCHER)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s has no vocabulary; models of words are trained here",
                       model->name);
    if (model->family == TL_FAMILY_LLAMA && !model->gated)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s has an ungated MLP, which no config.json can say", model->name);
    if (model->vocab < vocab)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s has a vocabulary of %lld; the data's is %lld", model->name,
                       (long long)model->vocab, (long long)vocab);
    return TL_OK;
}
