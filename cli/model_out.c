/* cli/model_out.c: a model description for people and machines. */
#include <string.h>

#include "model_facts.h"
#include "model_out.h"
#include "tally/plan.h"

static const char *activation(tl_activation which) {
    switch (which) {
    case TL_GELU_TANH:
        return "gelu (tanh)";
    case TL_GELU_ERF:
        return "gelu (erf)";
    case TL_SILU:
        return "silu";
    case TL_RELU:
        return "relu";
    case TL_GLU_CLAMPED:
        return "clamped swiglu";
    }
    return "unknown";
}

typedef struct tl_field {
    const char *letter, *key, *what;
    int64_t value;
    const char *source;
} tl_field;

#define N_FIELDS 24
#define N_LISTED 8 /* the first, which have a column in lists */

static void fields_of(const tl_model *m, tl_field fields[N_FIELDS]) {
    const tl_field all[N_FIELDS] = {
        {"N", "layers", "layers", m->layers, m->source_layers.text},
        {"D", "width", "width", m->width, m->source_width.text},
        {"H", "heads", "heads", m->heads, m->source_heads.text},
        {"G", "kv_heads", "key/value heads", m->kv_heads, m->source_kv_heads.text},
        {"K", "head_size", "head size", m->head_size, m->source_head_size.text},
        {"F", "ff", "feed-forward width", m->ff, m->source_ff.text},
        {"V", "vocab", "vocabulary", m->vocab, m->source_vocab.text},
        {"C", "context", "context length", m->context, m->source_context.text},
        {"E", "experts", "experts", m->experts, m->source_experts.text},
        {"k", "experts_per_token", "experts of a token", m->experts_per_token, ""},
        {"Fe", "expert_ff", "feed-forward width of an expert", m->expert_ff, m->source_expert_ff.text},
        {"Fs", "shared_ff", "feed-forward width of the shared experts", m->shared_ff, ""},
        {"W", "window", "positions of a window or chunk", m->window, m->source_window.text},
        {"R", "rotary_size", "of a head, what turns", m->rotary_size, ""},
        {"Rq", "q_rank", "rank of queries", m->q_rank, ""},
        {"Rkv", "kv_rank", "rank of keys and values", m->kv_rank, ""},
        {"Kn", "qk_nope", "of a key, what does not turn", m->qk_nope, ""},
        {"Kr", "qk_rope", "of a key, what turns", m->qk_rope, ""},
        {"Kv", "value_size", "size of a value", m->value_size, ""},
        {"De", "embedding_size", "width of the embeddings", m->embedding_size, ""},
        {"Kg", "global_head_size", "head size of global layers", m->global_head_size, ""},
        {"Gg", "global_kv_heads", "key/value heads of global layers", m->global_kv_heads, ""},
        {"Dl", "layer_input_size", "width of a layer's own embeddings", m->layer_input_size, ""},
        {"Vl", "layer_input_vocab", "vocabulary of the layers' own embeddings", m->layer_input_vocab, ""},
    };
    memcpy(fields, all, sizeof all);
}

static void out_parameters(const tl_cli *cli, const tl_model *model) {
    char text[TL_TEXT], brief[TL_TEXT], active[TL_TEXT], part[TL_TEXT];
    tl_parameter_count count;
    tl_error error = {TL_OK, ""};
    if (tl_plan_count(model, &count, &error) != TL_OK)
        return;
    tl_out_item(cli, "params", "%s = %s%s", tl_text_grouped((tl_u128)count.unique, text),
                tl_text_count((double)count.unique, brief), model->tied ? "; the tied embedding counted once" : "");
    if (model->layer_input_size > 0)
        tl_out_item(cli, "effective", "%s = %s: without the tables of tokens, the layers' own among them",
                    tl_text_grouped((tl_u128)count.non_embedding, active),
                    tl_text_count((double)count.non_embedding, part));
    if (count.active != count.unique)
        tl_out_item(cli, "active", "%s = %s: what a token passes", tl_text_grouped((tl_u128)count.active, active),
                    tl_text_count((double)count.active, part));
    char differs[160];
    if (tl_plan_file_differs(model, &count, differs))
        tl_out_item(cli, "differs", "%s", differs);
}

static const char *const position_words[] = {"", "learned positions", "rotary positions", "ALiBi"};

void tl_model_out(const tl_cli *cli, const tl_model *m, const char *title) {
    char size[TL_TEXT], about[256];
    tl_field fields[N_FIELDS];
    snprintf(about, sizeof about, "(%s: %s, %s MLP with %s, %s)", tl_family_name(m->family),
             position_words[tl_model_positions(m)], m->gated ? "gated three-matrix" : "two-matrix",
             activation(m->activation), m->tied ? "tied embedding" : "output matrix of its own");
    if (m->family == TL_FAMILY_CRUNCHER)
        snprintf(about, sizeof about, "(%s: linear layers and a squared error, no vocabulary)",
                 tl_family_name(m->family));
    tl_out_answer(cli, title, about);
    out_parameters(cli, m);
    fields_of(m, fields);
    for (int i = 0; i < N_FIELDS; i++)
        if (fields[i].value)
            tl_out_item(cli, fields[i].letter, "%-9s %s%s%s%s", tl_text_grouped((tl_u128)fields[i].value, size),
                        fields[i].what, fields[i].source[0] ? " (" : "", fields[i].source,
                        fields[i].source[0] ? ")" : "");
    tl_model_facts_out(cli, m);
    for (int i = 0; i < m->n_assumed; i++)
        tl_out_item(cli, i ? "" : "assumed", "%s", m->assumed[i]);
    for (int i = 0; i < m->n_ignored; i++)
        tl_out_item(cli, i ? "" : "ignored", "%s", m->ignored[i]);
}

static const tl_column columns[] = {
    {"name", "name", false, false, false},
    {"family", "family", false, false, false},
    {"parameters", "params", true, false, false},
    {"parameters_active", "active", true, false, false},
    {"layers", "N", true, false, false},
    {"width", "D", true, false, false},
    {"heads", "H", true, true, false},
    {"kv_heads", "G", true, true, false},
    {"head_size", NULL, true, false, false},
    {"ff", "F", true, true, false},
    {"vocab", NULL, true, false, false},
    {"context", "C", true, false, false},
    {"tied", NULL, false, false, false},
    {"note", NULL, false, false, false},
};

tl_grid *tl_model_grid_new(void) { return tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0])); }

void tl_model_grid_row(tl_grid *grid, const tl_model *model, const char *note) {
    char text[TL_TEXT];
    tl_parameter_count count;
    tl_error error = {TL_OK, ""};
    tl_field fields[N_FIELDS];
    fields_of(model, fields);
    tl_grid_string(grid, model->name, NULL);
    tl_grid_string(grid, tl_family_name(model->family), NULL);
    if (tl_plan_count(model, &count, &error) == TL_OK) {
        tl_grid_integer(grid, count.unique, tl_text_count((double)count.unique, text));
        tl_grid_integer(grid, count.active,
                        count.active == count.unique ? "" : tl_text_count((double)count.active, text));
    } else {
        tl_grid_null(grid);
        tl_grid_null(grid);
    }
    for (int i = 0; i < N_LISTED; i++) {
        if (fields[i].value)
            tl_grid_integer(grid, fields[i].value, NULL);
        else
            tl_grid_null(grid);
    }
    tl_grid_boolean(grid, model->tied, model->tied ? "yes" : "no");
    tl_grid_string(grid, note, NULL);
}

void tl_model_json_notes(tl_json *json, const tl_model *model) {
    tl_field fields[N_FIELDS];
    tl_model_facts_json(json, model);
    fields_of(model, fields);
    tl_json_key(json, "sources");
    tl_json_object(json);
    for (int i = 0; i < N_FIELDS; i++)
        if (fields[i].source[0])
            tl_json_put_string(json, fields[i].key, fields[i].source);
    tl_json_end(json);
    tl_json_key(json, "assumed");
    tl_json_array(json);
    for (int i = 0; i < model->n_assumed; i++)
        tl_json_string(json, model->assumed[i]);
    tl_parameter_count count;
    tl_error error = {TL_OK, ""};
    char differs[160];
    if (model->file_values && tl_plan_count(model, &count, &error) == TL_OK &&
        tl_plan_file_differs(model, &count, differs))
        tl_json_string(json, differs);
    tl_json_end(json);
    tl_json_key(json, "ignored");
    tl_json_array(json);
    for (int i = 0; i < model->n_ignored; i++)
        tl_json_string(json, model->ignored[i]);
    tl_json_end(json);
}
