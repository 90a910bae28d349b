/* Llama's kin with dense or routed MLPs: mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe. Defaults: transformers'
 * configuration_mistral.py, …_mixtral.py, …_qwen2.py, …_qwen2_moe.py, …_qwen3.py, …_qwen3_moe.py. */
#include "config/fields.h"
#include "nn/family.h"

static void all_layers(tl_model *m, unsigned bits) {
    for (int64_t i = 0; i < m->layers; i++)
        tl_config_mark(m, i, bits);
}

void tl_config_mistral(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_MISTRAL);
    tl_config_read_sizes(r, &(tl_config_sizes){32, 4096, 32, 14336, 32000, 131072});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 0, 8);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 10000});
    tl_config_like_llama(r, 1e-6, false);
    /* Absent is the class's 4096; Mistral-7B v0.2 and up say null. */
    if (tl_config_read_window(r, "sliding_window", 4096) && !tl_config_read_layer_types(r, TL_LAYER_WINDOW))
        all_layers(m, TL_LAYER_WINDOW);
}

/* ---- experts ---- */

static void read_experts(tl_config_reader *r, const char *key, int64_t experts, int64_t per_token) {
    tl_model *m = r->model;
    m->experts = tl_config_required(r, key, NULL, experts, &m->source_experts);
    m->experts_per_token = tl_config_size_or(r, "num_experts_per_tok", per_token);
    tl_config_read_router_loss(r, 0.001);
}

void tl_config_mixtral(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_MIXTRAL);
    tl_config_read_sizes(r, &(tl_config_sizes){32, 4096, 32, 14336, 32000, 131072});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 0, 8);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 1e6});
    tl_config_like_llama(r, 1e-5, false);
    if (tl_config_read_window(r, "sliding_window", 0) && !tl_config_read_layer_types(r, TL_LAYER_WINDOW))
        all_layers(m, TL_LAYER_WINDOW);
    read_experts(r, "num_local_experts", 8, 2);
    tl_config_read_router_noise(r);
    m->expert_ff = m->ff; /* no layer has another MLP */
    m->source_expert_ff = m->source_ff;
    all_layers(m, TL_LAYER_EXPERTS);
}

/* ---- qwen ---- */

typedef enum windows { FROM_MAX_WINDOW_LAYERS, ODD_BELOW_MAX_WINDOW_LAYERS, ALL_LAYERS } windows;

/* use_sliding_window is false by default, and sliding_window says nothing then. */
static void read_qwen_windows(tl_config_reader *r, windows which) {
    tl_model *m = r->model;
    bool on = tl_config_flag_given(r, "use_sliding_window");
    (void)tl_config_has(r, "max_window_layers"); /* read, or without effect */
    (void)tl_config_has(r, "sliding_window");
    if (!on || !tl_config_read_window(r, "sliding_window", 4096)) {
        (void)tl_config_has(r, "layer_types");
        return;
    }
    if (which != ALL_LAYERS && tl_config_read_layer_types(r, TL_LAYER_WINDOW))
        return;
    int64_t most = which == ALL_LAYERS ? 0 : tl_config_count_or(r, "max_window_layers", 28);
    for (int64_t i = 0; i < m->layers; i++)
        if (which == ALL_LAYERS || (which == FROM_MAX_WINDOW_LAYERS ? i >= most : i % 2 == 0 && i < most))
            tl_config_mark(m, i, TL_LAYER_WINDOW);
}

static void read_qwen(tl_config_reader *r, const tl_config_sizes *standard, int64_t head_standard, int64_t kv_standard,
                      windows which) {
    tl_config_read_sizes(r, standard);
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, head_standard, kv_standard);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 10000});
    tl_config_like_llama(r, 1e-6, false);
    read_qwen_windows(r, which);
}

/* Every decoder_sparse_step-th layer is routed, but those of mlp_only_layers. */
static void read_qwen_experts(tl_config_reader *r, int64_t experts, int64_t per_token, int64_t expert_ff) {
    static const char only[] = "mlp_only_layers";
    tl_model *m = r->model;
    bool dense[TL_MODEL_LAYERS];
    if (r->status != TL_OK)
        return;
    read_experts(r, "num_experts", experts, per_token);
    m->expert_ff = tl_config_required(r, "moe_intermediate_size", NULL, expert_ff, &m->source_expert_ff);
    m->norm_top_k = tl_config_flag_or(r, "norm_topk_prob", false);
    int64_t step = tl_config_size_or(r, "decoder_sparse_step", 1);
    (void)tl_config_read_layer_list(r, only, dense);
    for (int64_t i = 0; r->status == TL_OK && i < m->layers; i++)
        if (!dense[i] && (i + 1) % step == 0)
            tl_config_mark(m, i, TL_LAYER_EXPERTS);
}

void tl_config_qwen2(tl_config_reader *r) {
    tl_model_start(r->model, TL_FAMILY_QWEN2);
    read_qwen(r, &(tl_config_sizes){32, 4096, 32, 22016, 151936, 32768}, 0, 32, FROM_MAX_WINDOW_LAYERS);
}

void tl_config_qwen2_moe(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_QWEN2_MOE);
    read_qwen(r, &(tl_config_sizes){24, 2048, 16, 5632, 151936, 32768}, 0, 16, ODD_BELOW_MAX_WINDOW_LAYERS);
    m->qkv_bias = tl_config_has(r, "qkv_bias") ? tl_config_flag(r, "qkv_bias") : true;
    read_qwen_experts(r, 60, 4, 1408);
    m->shared_ff = tl_config_size_or(r, "shared_expert_intermediate_size", 5632);
}

void tl_config_qwen3(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_QWEN3);
    read_qwen(r, &(tl_config_sizes){32, 4096, 32, 22016, 151936, 32768}, 128, 32, FROM_MAX_WINDOW_LAYERS);
    m->attention_bias = tl_config_flag_given(r, "attention_bias");
}

void tl_config_qwen3_moe(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_QWEN3_MOE);
    read_qwen(r, &(tl_config_sizes){24, 2048, 32, 6144, 151936, 32768}, 128, 4, ALL_LAYERS);
    m->attention_bias = tl_config_flag_given(r, "attention_bias");
    read_qwen_experts(r, 128, 8, 768);
}
