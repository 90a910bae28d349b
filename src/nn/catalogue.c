/* The built-in models. The table is generated from the files in models/; this file looks names up and fills in a tl_model. */
#include "nn/catalogue.h"

#include "base/nearest.h"
#include "nn/family.h"

#include <stdio.h>
#include <string.h>

static const tl_catalogue_entry *entry_at(int index) {
    return index >= 0 && index < tl_catalogue_table_count ? &tl_catalogue_table[index] : NULL;
}

int tl_catalogue_count(void) { return tl_catalogue_table_count; }

const char *tl_catalogue_name(int index) {
    const tl_catalogue_entry *entry = entry_at(index);
    return entry != NULL ? entry->name : NULL;
}

const char *tl_catalogue_note(int index) {
    const tl_catalogue_entry *entry = entry_at(index);
    return entry != NULL ? entry->note : NULL;
}

const char *tl_catalogue_source(int index) {
    const tl_catalogue_entry *entry = entry_at(index);
    return entry != NULL ? entry->source : NULL;
}

int64_t tl_catalogue_parameters(int index) {
    const tl_catalogue_entry *entry = entry_at(index);
    return entry != NULL ? entry->parameters : 0;
}

static char lower(char c) { return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

/* Compares `length` bytes of a typed name with a name of the table: no case, and '_' or ' ' for '-'. */
static bool same_name(const char *typed, size_t length, const char *name, size_t name_length) {
    if (length != name_length)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = lower(typed[i]);
        if (c == '_' || c == ' ')
            c = '-';
        if (c != name[i])
            return false;
    }
    return true;
}

static bool entry_is(const tl_catalogue_entry *entry, const char *typed, size_t length) {
    const char *alias = entry->aliases;
    if (same_name(typed, length, entry->name, strlen(entry->name)))
        return true;
    while (*alias != '\0') {
        size_t width = strcspn(alias, " ");
        if (same_name(typed, length, alias, width))
            return true;
        alias += width;
        while (*alias == ' ')
            alias++;
    }
    return false;
}

static bool starts_with(const char *text, const char *start) {
    for (; *start != '\0'; text++, start++)
        if (lower(*text) != *start)
            return false;
    return true;
}

static const tl_catalogue_entry *look_up(const char *typed, size_t length) {
    for (int i = 0; i < tl_catalogue_table_count; i++)
        if (entry_is(&tl_catalogue_table[i], typed, length))
            return &tl_catalogue_table[i];
    return NULL;
}

/* "meta-llama/Meta-Llama-3.1-8B-hf" is llama-3.1-8b: the organisation, Meta's own prefix, and the ending of a format or of a
 * finetuning, which changes no shape, go. */
static const tl_catalogue_entry *find_entry(const char *typed) {
    static const char *const endings[] = {"-hf", "-instruct", "-it", "-pt", "-base", "-chat", "-chat-hf"};
    const char *slash = strrchr(typed, '/');
    const char *name = slash != NULL ? slash + 1 : typed;
    size_t length = strlen(name);
    const tl_catalogue_entry *entry = look_up(name, length);
    if (entry == NULL && starts_with(name, "meta-llama")) {
        name += strlen("meta-");
        length -= strlen("meta-");
        entry = look_up(name, length);
    }
    for (size_t i = 0; entry == NULL && i < sizeof endings / sizeof endings[0]; i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && starts_with(name + length - ending, endings[i]))
            entry = look_up(name, length - ending);
    }
    return entry;
}

TL_PRINTF(2, 3) static void set_source(tl_source *source, const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)vsnprintf(source->text, sizeof source->text, format, args);
    va_end(args);
}

static void fill_gpt2(const tl_catalogue_entry *entry, tl_model *model) {
    model->kv_heads = entry->heads;
    model->head_size = entry->width / entry->heads;
    model->ff = entry->ff != 0 ? entry->ff : 4 * entry->width;
    model->learned_positions = true;
    model->attention_bias = true;
    model->mlp_bias = true;
    model->activation = TL_GELU_TANH;
    model->dropout_embedding = entry->dropout;
    model->dropout_attention = entry->dropout;
    model->dropout_residual = entry->dropout;
    set_source(&model->source_layers, "n_layer, catalogue");
    set_source(&model->source_width, "n_embd, catalogue");
    set_source(&model->source_heads, "n_head, catalogue");
    set_source(&model->source_kv_heads, "H in gpt2");
    set_source(&model->source_head_size, "D/H");
    set_source(&model->source_ff, "%s", entry->ff != 0 ? "n_inner, catalogue" : "4·D assumed by gpt2");
    set_source(&model->source_vocab, "vocab_size, catalogue");
    set_source(&model->source_context, "n_positions, catalogue");
}

void tl_catalogue_layers(tl_model *model, unsigned bit, int64_t first, int64_t period, bool others) {
    for (int64_t i = first; i < model->layers && i < TL_MODEL_LAYERS; i++)
        if (((i + 1) % period == 0) != others)
            model->layer[i] = (uint16_t)(model->layer[i] | bit);
}

/* The names that configurations of the family give its sizes. */
static void name_sizes(const tl_catalogue_entry *entry, tl_model *model) {
    bool gptj = entry->family == TL_FAMILY_GPTJ, opt = entry->family == TL_FAMILY_OPT;
    set_source(&model->source_layers, "%s, catalogue", gptj ? "n_layer" : "num_hidden_layers");
    set_source(&model->source_width, "%s, catalogue", gptj ? "n_embd" : "hidden_size");
    set_source(&model->source_heads, "%s, catalogue", gptj ? "n_head" : "num_attention_heads");
    set_source(&model->source_kv_heads, "%s",
               entry->kv_heads != 0 ? "num_key_value_heads, catalogue" : "H: one per head");
    set_source(&model->source_head_size, "%s", entry->head_size != 0 ? "head_dim, catalogue" : "D/H");
    set_source(&model->source_ff, "%s, catalogue", opt ? "ffn_dim" : "intermediate_size");
    set_source(&model->source_vocab, "vocab_size, catalogue");
    set_source(&model->source_context, "%s, catalogue", gptj ? "n_positions" : "max_position_embeddings");
}

/* Every family but the first: what it fixes, then the row, then what its column `more` says. */
static void fill_family(const tl_catalogue_entry *entry, tl_model *model) {
    model->kv_heads = entry->kv_heads != 0 ? entry->kv_heads : entry->heads;
    model->head_size = entry->head_size != 0 ? entry->head_size : entry->width / entry->heads;
    model->ff = entry->ff;
    model->rope_theta = entry->rope_theta;
    name_sizes(entry, model);
    if (entry->family == TL_FAMILY_LLAMA) {
        model->gated = entry->gated;
        model->rope_interleaved = entry->rope_interleaved;
        model->rope_factor = entry->rope_factor;
        model->rope_low_freq = entry->rope_low_freq;
        model->rope_high_freq = entry->rope_high_freq;
        model->rope_original_context = entry->rope_original_context;
    }
    if (model->norm == TL_NORM_RMS_ONE || entry->family == TL_FAMILY_GEMMA4) /* Gemma alone */
        model->embedding_scale = __builtin_sqrt((double)entry->width);
    if (entry->more != NULL)
        entry->more(model);
    if (model->kv_rank > 0) {
        model->head_size = model->qk_nope + model->qk_rope;
        set_source(&model->source_kv_heads, "H in latent attention");
        set_source(&model->source_head_size, "qk_nope + qk_rope");
    }
    if (model->experts > 0) {
        set_source(&model->source_experts, "catalogue");
        set_source(&model->source_expert_ff, "catalogue");
    }
    if (model->window > 0)
        set_source(&model->source_window, "catalogue");
}

static void fill_cruncher(tl_model *model) {
    set_source(&model->source_layers, "catalogue");
    set_source(&model->source_width, "catalogue");
}

tl_status tl_catalogue_model(const char *name, tl_model *model, tl_error *error) {
    const tl_catalogue_entry *entry = name != NULL ? find_entry(name) : NULL;
    if (entry == NULL) {
        char quoted[80], nearest[256];
        const char *typed = name != NULL ? name : "";
        const char *slash = strrchr(typed, '/');
        tl_quotable(typed, strlen(typed), quoted, sizeof quoted);
        if (tl_nearest_names(slash != NULL ? slash + 1 : typed, tl_catalogue_name, tl_catalogue_table_count, 3, nearest,
                             sizeof nearest) > 0)
            return tl_fail(error, TL_ERR_NOT_FOUND, "no model \"%s\"; did you mean %s? (`tally models` lists all)",
                           quoted, nearest);
        return tl_fail(
            error, TL_ERR_NOT_FOUND,
            "no model \"%s\"; `tally models` lists all %d, and the path of a Hugging Face config.json works too",
            quoted, tl_catalogue_table_count);
    }
    memset(model, 0, sizeof *model);
    (void)snprintf(model->name, sizeof model->name, "%s", entry->name);
    tl_model_start(model, entry->family);
    model->layers = entry->layers;
    model->width = entry->width;
    model->heads = entry->heads;
    model->vocab = entry->vocab;
    model->context = entry->context;
    model->tied = entry->tied;
    model->norm_epsilon = entry->norm_epsilon;
    model->init_std = entry->init_std;
    switch (entry->family) {
    case TL_FAMILY_GPT2:
        fill_gpt2(entry, model);
        break;
    case TL_FAMILY_CRUNCHER:
        fill_cruncher(model);
        break;
    default:
        fill_family(entry, model);
        break;
    }
    return tl_model_check(model, error);
}
