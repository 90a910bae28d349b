/* config/gguf_model.c: GGUF metadata as a model. The metadata of an architecture is put into the words of Hugging Face's config.json
 * and read by the family's own reader, so that ranges, defaults and refusals are the same whatever the file was. */
#include "tally/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "tally/config.h"

enum { TEXT = 1 << 14, KEY = 160 };

/* "block_count" of "llama.block_count", and what config.json calls it. */
typedef struct key_pair {
    const char *gguf, *config;
} key_pair;

static const key_pair llama_keys[] = {
    {"block_count", "num_hidden_layers"},
    {"embedding_length", "hidden_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"feed_forward_length", "intermediate_size"},
    {"context_length", "max_position_embeddings"},
    {"rope.freq_base", "rope_theta"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {NULL, NULL},
};

static const key_pair gpt2_keys[] = {
    {"block_count", "n_layer"},
    {"embedding_length", "n_embd"},
    {"attention.head_count", "n_head"},
    {"feed_forward_length", "n_inner"},
    {"context_length", "n_positions"},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    {NULL, NULL},
};

/* llama.cpp writes Llama, Mistral and Mixtral all as "llama"; what tells them apart is in the metadata. */
static const struct {
    const char *architecture, *model_type;
    const key_pair *keys;
    const char *fixed; /* further keys, as JSON; "" or ending in a comma */
} architectures[] = {
    {"llama", "llama", llama_keys, ""},
    {"gpt2", "gpt2", gpt2_keys, ""},
    {"qwen2", "qwen2", llama_keys, ""},
    {"qwen3", "qwen3", llama_keys, ""},
    {"gemma", "gemma", llama_keys, "\"hidden_activation\": \"gelu_pytorch_tanh\","},
    {"gemma2", "gemma2", llama_keys, "\"hidden_activation\": \"gelu_pytorch_tanh\","},
    {"olmo2", "olmo2", llama_keys, ""},
    {"phi3", "phi3", llama_keys, ""},
};

static const tl_gguf_pair *scalar(const tl_gguf *g, const char *architecture, const char *key, char full[KEY]) {
    snprintf(full, KEY, "%s.%s", architecture, key);
    const tl_gguf_pair *p = tl_gguf_pair_find(g, full);
    return p;
}

/* A count that a key of the metadata says; 0 where it says none. */
static int64_t count_of(const tl_gguf_pair *p) {
    bool whole = p && p->integer && p->type != TL_GGUF_ARRAY && p->type != TL_GGUF_BOOL;
    return !whole ? 0 : p->integer[0] < 0 && p->type == TL_GGUF_U64 ? INT64_MAX : p->integer[0];
}

/* The vocabulary: a key, or the length of the tokenizer's list. */
static int64_t vocabulary(const tl_gguf *g, const char *architecture) {
    char full[KEY];
    const tl_gguf_pair *p = scalar(g, architecture, "vocab_size", full);
    if (p && p->integer)
        return count_of(p);
    p = tl_gguf_pair_find(g, "tokenizer.ggml.tokens");
    return p && p->type == TL_GGUF_ARRAY ? p->count : 0;
}

/* One number, or an array of equal ones. False: neither. */
static bool one_number(const tl_gguf_pair *p, double *number, int64_t *integer, bool *whole) {
    tl_gguf_type type = p->type == TL_GGUF_ARRAY ? p->element : p->type;
    if (!p->number || p->count < 1 || type == TL_GGUF_BOOL)
        return false;
    for (int64_t i = 1; i < p->count; i++)
        if (p->number[i] < p->number[0] || p->number[i] > p->number[0])
            return false;
    *number = p->number[0];
    *whole = p->integer != NULL;
    *integer = *whole ? p->integer[0] : 0;
    return true;
}

static tl_status put_keys(const tl_gguf *g, const char *path, const char *architecture, const key_pair *keys,
                          char *text, size_t *at, tl_error *error) {
    char full[KEY];
    for (; keys->gguf; keys++) {
        const tl_gguf_pair *p = scalar(g, architecture, keys->gguf, full);
        double number;
        int64_t integer;
        bool whole;
        if (!p)
            continue;
        if (!one_number(p, &number, &integer, &whole))
            return tl_fail(error, TL_ERR_UNSUPPORTED,
                           "%s: %s is %s; a number that all layers share is what can be planned from GGUF metadata, "
                           "the model's config.json may say it",
                           path, full, p->type == TL_GGUF_ARRAY ? "an array" : tl_gguf_type_name(p->type));
        if (!__builtin_isfinite(number))
            return tl_fail(error, TL_ERR_FORMAT, "%s: %s is %g; a finite number is wanted", path, full, number);
        if (whole && integer < 0 && number > 0)
            return tl_fail(error, TL_ERR_FORMAT, "%s: %s is %llu, beyond 63 bits", path, full,
                           (unsigned long long)(uint64_t)integer);
        if (whole)
            *at += (size_t)snprintf(text + *at, TEXT - *at, ", \"%s\": %lld", keys->config, (long long)integer);
        else
            *at += (size_t)snprintf(text + *at, TEXT - *at, ", \"%s\": %.9g", keys->config, number);
    }
    return TL_OK;
}

static void note(tl_model *model, const char *text) {
    if (model->n_assumed < TL_MODEL_NOTES)
        snprintf(model->assumed[model->n_assumed++], sizeof model->assumed[0], "%s", text);
}

/* Neither a key nor a list of tokens: without its table's rows nothing of the model can be counted. */
static tl_status without_vocabulary(const char *path, const char *architecture, tl_error *error) {
    return tl_fail(error, TL_ERR_FORMAT,
                   "%s: its vocabulary is not said: neither %s.vocab_size nor tokenizer.ggml.tokens holds a number of "
                   "tokens; the model's config.json may say it",
                   path, architecture);
}

static tl_status refuse(const tl_gguf *g, const char *path, const char *architecture, tl_error *error) {
    char known[256] = "", quoted[96];
    for (size_t i = 0, n = 0; i < sizeof architectures / sizeof architectures[0]; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", architectures[i].architecture);
    (void)g;
    return tl_fail(
        error, TL_ERR_UNSUPPORTED,
        "%s: general.architecture is %s; from GGUF metadata this build plans %s; the model's config.json may "
        "work",
        path, tl_quotable(architecture, strlen(architecture), quoted, sizeof quoted), known);
}

/* "models/Llama-3.2-1B-Q4_K_M.gguf" is Llama-3.2-1B-Q4_K_M. */
static void name_model(const char *path, tl_model *model) {
    const char *slash = strrchr(path, '/'), *start = slash ? slash + 1 : path;
    size_t n = strlen(start);
    if (n > 5 && strcmp(start + n - 5, ".gguf") == 0)
        n -= 5;
    tl_quotable(start, n, model->name, sizeof model->name);
}

/* Angles that the metadata or tensors scale: planned, since no count sees them, and not computed. */
static void note_angles(const tl_gguf *g, const char *architecture, tl_model *model) {
    static const char *const tensors[] = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
    char full[KEY];
    const tl_gguf_pair *kind = scalar(g, architecture, "rope.scaling.type", full);
    if (model->not_computed[0] != '\0')
        return;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        if (tl_gguf_tensor_find(g, tensors[i])) {
            snprintf(model->not_computed, sizeof model->not_computed, "angles scaled by a tensor (%s)", tensors[i]);
            return;
        }
    if (kind && kind->text && strcmp(kind->text, "none") != 0) {
        char quoted[64];
        snprintf(model->not_computed, sizeof model->not_computed, "angles scaled by rope.scaling.type %s",
                 tl_quotable(kind->text, strlen(kind->text), quoted, sizeof quoted));
    }
}

static bool is_word(char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* The family's reader names keys of a config.json and places in it; this file has neither. "x.gguf:1:93: "num_hidden_layers" is 0"
 * becomes "x.gguf: llama.block_count is 0". */
static void in_its_words(const char *path, const char *architecture, const key_pair *keys, tl_error *error) {
    char text[sizeof error->message];
    size_t n = strlen(path), to = 0;
    const char *from = error ? error->message : "";
    if (strncmp(from, path, n) == 0 && from[n] == ':') {
        from += n + strspn(from + n, ":0123456789");
        to = (size_t)snprintf(text, sizeof text, "%s:", path);
    }
    for (char before = ' '; *from && to + 1 < sizeof text; before = *from++) {
        const key_pair *key = keys;
        bool quote = *from == '"';
        size_t length = 0;
        for (; key->gguf; key++) {
            length = strlen(key->config);
            if (!is_word(before) && strncmp(from + quote, key->config, length) == 0 &&
                (quote ? from[length + 1] == '"' : !is_word(from[length])))
                break;
        }
        if (!key->gguf) {
            text[to++] = *from;
            continue;
        }
        int put = snprintf(text + to, sizeof text - to, "%s.%s", architecture, key->gguf);
        to += put > 0 && (size_t)put < sizeof text - to ? (size_t)put : 0;
        from += quote ? length + 1 : length - 1; /* its last byte: the loop steps over that */
    }
    text[to] = '\0';
    if (error)
        snprintf(error->message, sizeof error->message, "%s", text);
}

/* Values of all tensors but tables of angles, which are no parameters. */
static int64_t values_of(const tl_gguf *g) {
    int64_t sum = 0;
    for (int64_t i = 0; i < tl_gguf_tensors(g); i++) {
        const tl_gguf_tensor *t = tl_gguf_tensor_at(g, i);
        if (strncmp(t->name, "rope_", 5) != 0 && !tl_add_i64(sum, t->count, &sum))
            return INT64_MAX;
    }
    return sum;
}

tl_status tl_gguf_model(const tl_gguf *g, const char *path, tl_model *model, tl_error *error) {
    char quoted[256], full[KEY];
    const tl_gguf_pair *p = tl_gguf_pair_find(g, "general.architecture");
    const char *architecture = p ? p->text : NULL;
    size_t which = 0, count = sizeof architectures / sizeof architectures[0], at = 0;
    tl_quotable(path, strlen(path), quoted, sizeof quoted);
    if (!architecture)
        return tl_fail(error, TL_ERR_FORMAT, "%s: has no general.architecture, so its family is unknown", quoted);
    if (!architecture[0])
        return tl_fail(error, TL_ERR_FORMAT, "%s: general.architecture is empty, so its family is unknown", quoted);
    while (which < count && strcmp(architectures[which].architecture, architecture) != 0)
        which++;
    if (which == count)
        return refuse(g, quoted, architecture, error);
    p = scalar(g, architecture, "expert_count", full);
    bool mixture = count_of(p) > 0;
    if (mixture && strcmp(architecture, "llama") != 0)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: %s is %lld; mixtures of %s are read from their config.json",
                       quoted, full, (long long)count_of(p), architecture);
    if (vocabulary(g, architecture) == 0)
        return without_vocabulary(quoted, architecture, error);
    char *text = malloc(TEXT);
    if (!text)
        return tl_fail(error, TL_ERR_MEMORY, "%s: no memory for its description", quoted);
    at = (size_t)snprintf(text, TEXT, "{%s \"model_type\": \"%s\", \"vocab_size\": %lld, \"tie_word_embeddings\": %s",
                          architectures[which].fixed, mixture ? "mixtral" : architectures[which].model_type,
                          (long long)vocabulary(g, architecture),
                          tl_gguf_tensor_find(g, "output.weight") ? "false" : "true");
    tl_status status = put_keys(g, quoted, architecture, architectures[which].keys, text, &at, error);
    if (status == TL_OK && architectures[which].keys == llama_keys &&
        !scalar(g, architecture, "attention.head_count_kv", full))
        at += (size_t)snprintf(text + at, TEXT - at, ", \"num_key_value_heads\": null"); /* as many as heads */
    if (status == TL_OK && mixture) {
        const tl_gguf_pair *used = scalar(g, architecture, "expert_used_count", full);
        at += (size_t)snprintf(text + at, TEXT - at, ", \"num_local_experts\": %lld", (long long)count_of(p));
        if (used)
            at += (size_t)snprintf(text + at, TEXT - at, ", \"num_experts_per_tok\": %lld", (long long)count_of(used));
    }
    if (status == TL_OK) {
        at += (size_t)snprintf(text + at, TEXT - at, "}");
        status = tl_config_parse(text, at, path, model, error);
    }
    free(text);
    if (status != TL_OK) {
        in_its_words(quoted, architecture, architectures[which].keys, error);
        return status;
    }
    int64_t value_length = count_of(scalar(g, architecture, "attention.value_length", full));
    if (value_length && value_length != model->head_size)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "%s: %s is %lld, keys have %lld; values of another size than keys are not built in for %s",
                       quoted, full, (long long)value_length, (long long)model->head_size, architecture);
    model->file_values = values_of(g);
    name_model(path, model);
    note(model, "read from GGUF metadata, each key under the name that config.json has for it");
    note_angles(g, architecture, model);
    return TL_OK;
}
