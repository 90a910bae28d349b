/* Gemma 1 to 4. Defaults: transformers' configuration_gemma.py, …_gemma2.py, …_gemma3.py, …_gemma4.py. */
#include "config/fields.h"
#include "nn/family.h"

#include <string.h>

/* Gemma's files name the activation twice; "gelu" in hidden_act was always meant, and run, as the tanh form. */
static void read_gelu(tl_config_reader *r) {
    const char *key = tl_config_has(r, "hidden_activation") ? "hidden_activation" : "hidden_act";
    const char *name = tl_config_has(r, key) ? tl_config_string(r, key) : NULL;
    bool legacy = name != NULL && strcmp(key, "hidden_act") == 0 && strcmp(name, "gelu") == 0;
    if (legacy)
        tl_config_assume(r, "hidden_act gelu: the tanh form, as %s runs it", r->family);
    else if (tl_config_activation_or(r, key, "gelu_pytorch_tanh") != TL_GELU_TANH && r->status == TL_OK)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is not gelu_pytorch_tanh; %s is built in with it", r->family);
    (void)tl_config_has(r, "hidden_act");
}

static void read_gemma(tl_config_reader *r, const tl_config_sizes *standard, int64_t kv_standard,
                       const tl_config_rope *rope) {
    tl_model *m = r->model;
    tl_config_read_sizes(r, standard);
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 256, kv_standard);
    tl_config_read_rope(r, rope);
    m->embedding_scale = __builtin_sqrt((double)m->width);
    read_gelu(r);
    m->norm_epsilon = tl_config_real_or(r, "rms_norm_eps", 0, 1, 1e-6);
    m->init_std = tl_config_real_or(r, "initializer_range", 0, 1e6, 0.02);
    m->dropout_attention = tl_config_dropout_given(r, "attention_dropout");
    m->attention_bias = tl_config_flag_given(r, "attention_bias");
    m->tied = tl_config_flag_or(r, "tie_word_embeddings", true);
}

/* A cap that the file leaves out is the family's, null is none. */
static double read_cap(tl_config_reader *r, const char *key, double standard) {
    if (tl_config_has(r, key))
        return tl_config_real(r, key, 1e-9, 1e18);
    if (standard > 0 && !tl_config_is_null(r, key)) {
        tl_config_assume(r, "%s absent: %g, assumed from %s", key, standard, r->family);
        return standard;
    }
    return 0;
}

static void read_query_scale(tl_config_reader *r) {
    double scalar = tl_config_real_or(r, "query_pre_attn_scalar", 1e-9, 1e18, 256);
    if (r->status == TL_OK && scalar != (double)r->model->head_size)
        r->model->query_scale = 1 / __builtin_sqrt(scalar);
}

/* Every `pattern`-th layer sees all, the others a window. 0 is what a key that could not be read gives: an error by now. */
static void every_but(tl_model *m, int64_t pattern, unsigned bits) {
    for (int64_t i = 0; pattern > 0 && i < m->layers; i++)
        if ((i + 1) % pattern != 0)
            tl_config_mark(m, i, bits);
}

void tl_config_gemma(tl_config_reader *r) {
    tl_model_start(r->model, TL_FAMILY_GEMMA);
    read_gemma(r, &(tl_config_sizes){28, 3072, 16, 24576, 256000, 8192}, 16, &(tl_config_rope){.theta = 10000});
}

void tl_config_gemma2(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_GEMMA2);
    read_gemma(r, &(tl_config_sizes){26, 2304, 8, 9216, 256000, 8192}, 4, &(tl_config_rope){.theta = 10000});
    if (r->status != TL_OK)
        return;
    read_query_scale(r);
    m->attention_softcap = read_cap(r, "attn_logit_softcapping", 50);
    m->final_softcap = read_cap(r, "final_logit_softcapping", 30);
    if (tl_config_read_window(r, "sliding_window", 4096) && !tl_config_read_layer_types(r, TL_LAYER_WINDOW))
        every_but(m, 2, TL_LAYER_WINDOW);
}

void tl_config_gemma3(tl_config_reader *r) {
    const unsigned local = TL_LAYER_WINDOW | TL_LAYER_LOCAL_ROPE;
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_GEMMA3);
    /* The files of the larger ones hold in text_config only what differs from the class. */
    r->sizes_assumed = r->depth > 0;
    tl_config_only(r, "use_bidirectional_attention", false, "attention that looks ahead is not built in");
    read_gemma(r, &(tl_config_sizes){26, 2304, 8, 9216, 262208, 131072}, 4,
               &(tl_config_rope){.theta = 1e6, .local_theta = 10000, .local_key = "rope_local_base_freq"});
    if (r->status != TL_OK)
        return;
    read_query_scale(r);
    m->attention_softcap = read_cap(r, "attn_logit_softcapping", 0);
    m->final_softcap = read_cap(r, "final_logit_softcapping", 0);
    (void)tl_config_has(r, "_sliding_window_pattern");
    const char *key =
        tl_config_has(r, "_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
    bool window = tl_config_read_window(r, "sliding_window", 4096);
    /* Layers that would see a window turn by the local angle even where the window cuts nothing. */
    if (!tl_config_read_layer_types(r, local))
        every_but(m, tl_config_size_or(r, key, 6), local);
    else
        (void)tl_config_has(r, key);
    for (int64_t i = 0; !window && i < m->layers; i++)
        m->layer[i] = (uint16_t)(m->layer[i] & ~TL_LAYER_WINDOW);
}

/* Layers that see all have heads of their own, and often values that are the keys before their norm. */
static void read_global_heads(tl_config_reader *r) {
    tl_model *m = r->model;
    bool same = tl_config_flag_given(r, "attention_k_eq_v");
    m->global_kv_heads = m->kv_heads;
    m->keys_are_values = same;
    if (same && tl_config_has(r, "num_global_key_value_heads"))
        m->global_kv_heads = tl_config_size(r, "num_global_key_value_heads");
    else
        (void)tl_config_has(r, "num_global_key_value_heads");
    for (int64_t i = 0; i < m->layers; i++)
        if (!(m->layer[i] & TL_LAYER_LOCAL_ROPE))
            tl_config_mark(m, i, TL_LAYER_GLOBAL_HEADS);
}

static void read_experts_beside(tl_config_reader *r) {
    tl_model *m = r->model;
    static const char *const keys[] = {"num_experts", "top_k_experts", "moe_intermediate_size"};
    if (!tl_config_flag_given(r, "enable_moe_block")) {
        for (int i = 0; i < 3; i++)
            (void)tl_config_has(r, keys[i]);
        return;
    }
    m->experts_beside = m->norm_top_k = true;
    m->experts = tl_config_required(r, keys[0], NULL, 128, &m->source_experts);
    tl_source source = {""};
    m->experts_per_token = tl_config_required(r, keys[1], NULL, 8, &source); /* the class has no default */
    m->expert_ff = tl_config_required(r, keys[2], NULL, 704, &m->source_expert_ff);
    for (int64_t i = 0; i < m->layers; i++)
        tl_config_mark(m, i, TL_LAYER_EXPERTS);
}

/* Gemma4TextConfig.__post_init__ */
static void force_last_to_see_all(tl_config_reader *r) {
    tl_model *m = r->model;
    const unsigned local = TL_LAYER_WINDOW | TL_LAYER_LOCAL_ROPE;
    if (r->status != TL_OK || !(m->layer[m->layers - 1] & local))
        return;
    m->layer[m->layers - 1] = (uint16_t)(m->layer[m->layers - 1] & ~local);
    tl_config_assume(r, "layer_types: the last layer sees all positions, as %s forces it to", r->family);
}

/* The last num_kv_shared_layers have no keys and values of their own, and with use_double_wide_mlp twice the feed-forward size
 * (Gemma4TextAttention, Gemma4TextMLP). */
static void read_shared_layers(tl_config_reader *r) {
    tl_model *m = r->model;
    int64_t shared = tl_config_has(r, "num_kv_shared_layers") ? tl_config_count(r, "num_kv_shared_layers") : 0;
    bool wide = tl_config_flag_given(r, "use_double_wide_mlp");
    if (r->status == TL_OK && shared >= m->layers)
        tl_config_fail(r, TL_ERR_ARGUMENT, "num_kv_shared_layers",
                       "is %lld of %lld layers; the first ones need keys and values of their own", (long long)shared,
                       (long long)m->layers);
    for (int64_t i = m->layers - shared; r->status == TL_OK && i < m->layers; i++)
        tl_config_mark(m, i, TL_LAYER_SHARED_KV | (wide ? TL_LAYER_WIDE_MLP : 0));
}

/* The class has per-layer embeddings of 256; 0 or null says there are none. */
static void read_layer_inputs(tl_config_reader *r) {
    tl_model *m = r->model;
    const char *key = "hidden_size_per_layer_input", *rows = "vocab_size_per_layer_input";
    bool none = tl_config_has(r, key) ? tl_config_count(r, key) == 0 : tl_config_is_null(r, key);
    if (r->status == TL_OK && !none) {
        m->layer_input_size = tl_config_size_or(r, key, 256);
        m->layer_input_vocab = tl_config_size_or(r, rows, 262144);
    } else
        (void)tl_config_has(r, rows);
    if (r->status == TL_OK && !none && m->layer_input_vocab < m->vocab)
        tl_config_fail(r, TL_ERR_SHAPE, rows, "is %lld; each of the %lld tokens needs a row",
                       (long long)m->layer_input_vocab, (long long)m->vocab);
}

/* Of images alone ("vision"), or of all tokens. */
static void read_bidirectional(tl_config_reader *r) {
    static const char key[] = "use_bidirectional_attention";
    char raw[64];
    const char *which = tl_config_has(r, key) ? tl_config_string(r, key) : NULL;
    if (which != NULL && strcmp(which, "vision") != 0)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key, "is %s: attention that looks ahead is not built in",
                       tl_config_raw(r, key, raw, sizeof raw));
}

/* The class's own angles, where the file has none: a quarter of a global head's pairs. */
static void read_default_angles(tl_config_reader *r) {
    if (r->status != TL_OK || tl_config_has(r, "rope_parameters"))
        return;
    r->model->global_rotary_size = 2 * (r->model->global_head_size / 8);
    tl_config_assume(r, "rope_parameters absent: of global heads a quarter turns, assumed from %s", r->family);
}

void tl_config_gemma4(tl_config_reader *r) {
    const unsigned local = TL_LAYER_WINDOW | TL_LAYER_LOCAL_ROPE;
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_GEMMA4);
    read_bidirectional(r);
    /* transformers 5 may write sizes of single layers, which the two global_ keys say as published */
    if (tl_config_has(r, "per_layer_config"))
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "per_layer_config",
                       "says sizes layer by layer, which is not read; \"global_head_dim\" and "
                       "\"num_global_key_value_heads\" instead would work");
    m->global_head_size = tl_config_size_or(r, "global_head_dim", 512);
    if (r->status == TL_OK && m->global_head_size % 2 != 0)
        tl_config_fail(r, TL_ERR_SHAPE, "global_head_dim", "is %lld; rotary positions turn pairs, so it must be even",
                       (long long)m->global_head_size);
    read_gemma(
        r, &(tl_config_sizes){30, 2304, 8, 9216, 262144, 131072}, 4,
        &(tl_config_rope){.theta = 1e6, .local_theta = 10000, .local_key = "rope_local_base_freq", .spread = true});
    if (r->status != TL_OK)
        return;
    m->final_softcap = read_cap(r, "final_logit_softcapping", 0);
    bool window = tl_config_read_window(r, "sliding_window", 512);
    if (!tl_config_read_layer_types(r, local))
        every_but(m, 6, local);
    force_last_to_see_all(r);
    read_default_angles(r);
    read_global_heads(r);
    read_experts_beside(r);
    read_shared_layers(r);
    read_layer_inputs(r);
    for (int64_t i = 0; !window && i < m->layers; i++)
        m->layer[i] = (uint16_t)(m->layer[i] & ~TL_LAYER_WINDOW);
}
