/* cli/model_facts.c: what a model computes beside its sizes, in words for people and field by field for machines. */
#include <stdarg.h>
#include <string.h>

#include "model_facts.h"

static const char *const norms[] = {NULL,
                                    "LayerNorm",
                                    "LayerNorm without biases",
                                    "LayerNorm without parameters",
                                    "RMSNorm",
                                    "RMSNorm times 1 + weight"};
static const char *const places[] = {"before attention and MLP",           "after attention and MLP",
                                     "before and after attention and MLP", "one for parallel attention and MLP",
                                     "two for parallel attention and MLP", "after each residual sum"};
static const char *const qk_norms[] = {NULL, "of each head of q and k", "of all of q and of all of k",
                                       "of each head of q and k without a gain"};
static const char *const routers[] = {"softmax over all experts, then the best", "the best, then softmax over them",
                                      "sigmoid", "sigmoid that scales the expert's input"};
/* The same for machines. */
static const char *const norm_keys[] = {NULL, "layer", "layer_no_bias", "layer_plain", "rms", "rms_one"};
static const char *const place_keys[] = {"before", "after", "around", "parallel", "parallel_two", "post"};
static const char *const qk_keys[] = {"none", "head", "all", "l2"};
static const char *const position_keys[] = {NULL, "learned", "rotary", "alibi"};
static const char *const router_keys[] = {"softmax", "top_softmax", "sigmoid", "sigmoid_input"};

tl_positions tl_model_positions(const tl_model *m) {
    if (m->positions != TL_POSITIONS_OF_FAMILY)
        return m->positions;
    return m->learned_positions ? TL_POSITIONS_LEARNED : TL_POSITIONS_ROTARY;
}

static tl_norm_kind norm_of(const tl_model *m) {
    if (m->norm != TL_NORM_OF_FAMILY)
        return m->norm;
    return m->family == TL_FAMILY_GPT2 ? TL_NORM_LAYER : TL_NORM_RMS;
}

static int layers_with(const tl_model *m, unsigned bit) {
    int count = 0;
    for (int64_t i = 0; i < m->layers && i < TL_MODEL_LAYERS; i++)
        count += (m->layer[i] & bit) != 0;
    return count;
}

/* One line of facts, joined by "; ". */
typedef struct line {
    char text[512];
    size_t used;
} line;

TL_PRINTF(2, 3) static void say(line *l, const char *format, ...) {
    va_list args;
    size_t room = sizeof l->text - l->used;
    int n = l->used > 0 ? snprintf(l->text + l->used, room, "; ") : 0;
    l->used = n < (int)room ? l->used + (size_t)n : sizeof l->text - 1;
    va_start(args, format);
    room = sizeof l->text - l->used;
    n = vsnprintf(l->text + l->used, room, format, args);
    va_end(args);
    l->used = n < (int)room ? l->used + (size_t)n : sizeof l->text - 1;
}

static void put(const tl_cli *cli, const char *label, const line *l) {
    if (l->used > 0)
        tl_out_item(cli, label, "%s", l->text);
}

/* "in all layers", "in 24 of 48 layers" */
static const char *in_layers(const tl_model *m, unsigned bit, char *out, size_t size) {
    int count = layers_with(m, bit);
    if (count == m->layers)
        snprintf(out, size, "in all layers");
    else
        snprintf(out, size, "in %d of %lld layers", count, (long long)m->layers);
    return out;
}

static void norms_out(const tl_cli *cli, const tl_model *m) {
    line l = {.used = 0};
    say(&l, "%s, %s", norms[norm_of(m)], places[m->place]);
    if (m->qk_norm != TL_QK_NONE)
        say(&l, "%s", qk_norms[m->qk_norm]);
    if (m->embedding_norm)
        say(&l, "of the embeddings");
    put(cli, "norm", &l);
}

static void positions_out(const tl_cli *cli, const tl_model *m) {
    line l = {.used = 0};
    char where[64];
    switch (tl_model_positions(m)) {
    case TL_POSITIONS_LEARNED:
        say(&l, "learned");
        if (m->position_offset > 0)
            say(&l, "%lld rows before the first", (long long)m->position_offset);
        break;
    case TL_POSITIONS_ALIBI:
        say(&l, "ALiBi");
        break;
    default:
        say(&l, "rotary, theta %.15g%s", m->rope_theta, m->rope_interleaved ? ", neighbouring pairs" : "");
        if (m->rope_factor > 0)
            say(&l, "%s by %.15g", tl_model_rope_name(m), m->rope_factor);
        if (layers_with(m, TL_LAYER_LOCAL_ROPE))
            say(&l, "theta %.15g %s", m->rope_local_theta, in_layers(m, TL_LAYER_LOCAL_ROPE, where, sizeof where));
        if (layers_with(m, TL_LAYER_NO_ROTARY))
            say(&l, "none %s", in_layers(m, TL_LAYER_NO_ROTARY, where, sizeof where));
    }
    put(cli, "positions", &l);
}

static void attention_out(const tl_cli *cli, const tl_model *m) {
    line l = {.used = 0};
    char where[64];
    if (layers_with(m, TL_LAYER_WINDOW))
        say(&l, "a window of %lld %s", (long long)m->window, in_layers(m, TL_LAYER_WINDOW, where, sizeof where));
    if (layers_with(m, TL_LAYER_CHUNKED))
        say(&l, "chunks of %lld %s", (long long)m->window, in_layers(m, TL_LAYER_CHUNKED, where, sizeof where));
    if (m->attention_bias || m->qkv_bias || m->out_bias)
        say(&l, "biases%s",
            m->attention_bias || (m->qkv_bias && m->out_bias) ? ""
            : m->qkv_bias                                     ? " of q, k, v"
                                                              : " of the output");
    if (m->query_scale > 0)
        say(&l, "scores times %.6g", m->query_scale);
    if (m->attention_softcap > 0)
        say(&l, "scores capped at %.6g", m->attention_softcap);
    if (m->clip_qkv > 0)
        say(&l, "q, k, v clamped to %.6g", m->clip_qkv);
    if (m->sinks)
        say(&l, "a sink for each head");
    if (layers_with(m, TL_LAYER_SHARED_KV))
        say(&l, "keys and values of an earlier layer %s", in_layers(m, TL_LAYER_SHARED_KV, where, sizeof where));
    if (m->temperature_scale > 0)
        say(&l, "q of layers without positions grows with the position");
    put(cli, "attention", &l);
}

static void mlp_out(const tl_cli *cli, const tl_model *m) {
    line l = {.used = 0};
    char where[64];
    if (m->mlp_bias)
        say(&l, "biases");
    if (layers_with(m, TL_LAYER_WIDE_MLP))
        say(&l, "2·F wide %s", in_layers(m, TL_LAYER_WIDE_MLP, where, sizeof where));
    if (m->experts > 0) {
        say(&l, "experts %s", in_layers(m, TL_LAYER_EXPERTS, where, sizeof where));
        say(&l, "router: %s", routers[m->router]);
        if (m->router_groups > 0)
            say(&l, "within the best %lld of %lld groups", (long long)m->router_top_groups,
                (long long)m->router_groups);
        if (m->norm_top_k)
            say(&l, "weights divided by their sum");
        if (m->routed_scale > 0)
            say(&l, "routed output times %.6g", m->routed_scale);
        if (m->correction_bias)
            say(&l, "a bias of choice");
        if (m->shared_gate)
            say(&l, "a gate of the shared expert");
        if (m->router_loss > 0)
            say(&l, "balance loss times %.6g", m->router_loss);
    }
    put(cli, "MLP", &l);
}

void tl_model_facts_out(const tl_cli *cli, const tl_model *m) {
    line ends = {.used = 0};
    if (m->family == TL_FAMILY_CRUNCHER)
        return;
    norms_out(cli, m);
    positions_out(cli, m);
    attention_out(cli, m);
    mlp_out(cli, m);
    if (m->embedding_scale > 0)
        say(&ends, "embeddings times %.6g", m->embedding_scale);
    if (m->head_bias)
        say(&ends, "a bias of the output");
    if (m->final_softcap > 0)
        say(&ends, "logits capped at %.6g", m->final_softcap);
    put(cli, "ends", &ends);
    if (m->not_computed[0])
        tl_out_item(
            cli, "planned",
            "%s changes results, not the account; it is not computed, so running, training and loading are refused",
            m->not_computed);
}

/* ---- JSON ---- */

static void put_number(tl_json *json, const char *key, double value) {
    if (value > 0)
        tl_json_put_real(json, key, value);
}

static void put_size(tl_json *json, const char *key, int64_t value) {
    if (value > 0)
        tl_json_put_integer(json, key, value);
}

static void put_flag(tl_json *json, const char *key, bool value) {
    if (value)
        tl_json_put_boolean(json, key, true);
}

static void put_layers(tl_json *json, const char *key, const tl_model *m, unsigned bit) {
    if (!layers_with(m, bit))
        return;
    tl_json_key(json, key);
    tl_json_array(json);
    for (int64_t i = 0; i < m->layers && i < TL_MODEL_LAYERS; i++)
        if (m->layer[i] & bit)
            tl_json_integer(json, i);
    tl_json_end(json);
}

static void put_factors(tl_json *json, const char *key, const double *factors, int64_t count) {
    if (count == 0)
        return;
    tl_json_key(json, key);
    tl_json_array(json);
    for (int64_t i = 0; i < count; i++)
        tl_json_real(json, factors[i]);
    tl_json_end(json);
}

static void json_positions(tl_json *json, const tl_model *m) {
    tl_positions positions = tl_model_positions(m);
    tl_json_put_string(json, "positions", position_keys[positions]);
    put_size(json, "position_offset", m->position_offset);
    if (positions != TL_POSITIONS_ROTARY)
        return;
    tl_json_put_real(json, "rope_theta", m->rope_theta);
    tl_json_put_string(json, "rope_scaling", tl_model_rope_name(m));
    put_number(json, "rope_factor", m->rope_factor);
    put_number(json, "rope_low_freq", m->rope_low_freq);
    put_number(json, "rope_high_freq", m->rope_high_freq);
    put_size(json, "rope_original_context", m->rope_original_context);
    put_number(json, "rope_beta_fast", m->rope_beta_fast);
    put_number(json, "rope_beta_slow", m->rope_beta_slow);
    put_number(json, "rope_attention_factor", m->rope_attention_factor);
    put_number(json, "rope_mscale", m->rope_mscale);
    put_number(json, "rope_mscale_all", m->rope_mscale_all);
    put_flag(json, "rope_no_truncate", m->rope_no_truncate);
    put_factors(json, "rope_short_factor", m->rope_short, m->rope_factors);
    put_factors(json, "rope_long_factor", m->rope_long, m->rope_factors);
    put_flag(json, "rope_interleaved", m->rope_interleaved);
    put_number(json, "rope_local_theta", m->rope_local_theta);
    put_size(json, "rotary_size", m->rotary_size);
    put_layers(json, "layers_local_rope", m, TL_LAYER_LOCAL_ROPE);
    put_layers(json, "layers_no_rotary", m, TL_LAYER_NO_ROTARY);
}

static void json_attention(tl_json *json, const tl_model *m) {
    put_size(json, "window", m->window);
    put_layers(json, "layers_window", m, TL_LAYER_WINDOW);
    put_layers(json, "layers_chunked", m, TL_LAYER_CHUNKED);
    put_layers(json, "layers_global_heads", m, TL_LAYER_GLOBAL_HEADS);
    put_size(json, "global_head_size", m->global_head_size);
    put_size(json, "global_kv_heads", m->global_kv_heads);
    put_flag(json, "keys_are_values", m->keys_are_values);
    put_layers(json, "layers_shared_kv", m, TL_LAYER_SHARED_KV);
    put_flag(json, "qkv_bias", m->attention_bias || m->qkv_bias);
    put_flag(json, "out_bias", m->attention_bias || m->out_bias);
    put_number(json, "query_scale", m->query_scale);
    put_number(json, "attention_softcap", m->attention_softcap);
    put_number(json, "clip_qkv", m->clip_qkv);
    put_flag(json, "sinks", m->sinks);
    put_number(json, "temperature_scale", m->temperature_scale);
    put_number(json, "temperature_floor", m->temperature_floor);
    put_size(json, "q_rank", m->q_rank);
    put_size(json, "kv_rank", m->kv_rank);
    put_size(json, "qk_nope", m->qk_nope);
    put_size(json, "qk_rope", m->qk_rope);
    put_size(json, "value_size", m->value_size);
}

static void json_mlp(tl_json *json, const tl_model *m) {
    put_flag(json, "gated", m->gated);
    put_flag(json, "mlp_bias", m->mlp_bias);
    put_layers(json, "layers_wide_mlp", m, TL_LAYER_WIDE_MLP);
    if (m->experts == 0)
        return;
    tl_json_put_integer(json, "experts", m->experts);
    tl_json_put_integer(json, "experts_per_token", m->experts_per_token);
    tl_json_put_integer(json, "expert_ff", m->expert_ff);
    put_size(json, "shared_ff", m->shared_ff);
    put_flag(json, "shared_gate", m->shared_gate);
    tl_json_put_string(json, "router", router_keys[m->router]);
    put_flag(json, "router_bias", m->router_bias);
    put_flag(json, "expert_bias", m->expert_bias);
    put_flag(json, "norm_top_k", m->norm_top_k);
    put_flag(json, "correction_bias", m->correction_bias);
    put_size(json, "router_groups", m->router_groups);
    put_size(json, "router_top_groups", m->router_top_groups);
    put_number(json, "routed_scale", m->routed_scale);
    put_number(json, "router_loss", m->router_loss);
    put_layers(json, "layers_experts", m, TL_LAYER_EXPERTS);
}

void tl_model_facts_json(tl_json *json, const tl_model *m) {
    tl_json_key(json, "description");
    tl_json_object(json);
    if (m->family != TL_FAMILY_CRUNCHER) {
        tl_json_put_string(json, "norm", norm_keys[norm_of(m)]);
        tl_json_put_real(json, "norm_epsilon", m->norm_epsilon);
        tl_json_put_string(json, "place", place_keys[m->place]);
        tl_json_put_string(json, "qk_norm", qk_keys[m->qk_norm]);
        json_positions(json, m);
        json_attention(json, m);
        json_mlp(json, m);
        put_size(json, "embedding_size", m->embedding_size);
        put_size(json, "layer_input_size", m->layer_input_size);
        put_size(json, "layer_input_vocab", m->layer_input_vocab);
        put_number(json, "embedding_scale", m->embedding_scale);
        put_flag(json, "embedding_norm", m->embedding_norm);
        put_flag(json, "head_bias", m->head_bias);
        put_number(json, "final_softcap", m->final_softcap);
        put_number(json, "dropout_embedding", m->dropout_embedding);
        put_number(json, "dropout_attention", m->dropout_attention);
        put_number(json, "dropout_residual", m->dropout_residual);
        put_number(json, "init_std", m->init_std);
    }
    tl_json_end(json);
    if (m->not_computed[0])
        tl_json_put_string(json, "not_computed", m->not_computed);
}
