/* deepseek_v2, deepseek_v3 (and kimi_k2), gpt_oss, llama4. Defaults: transformers' configuration_deepseek_v2.py, …_deepseek_v3.py,
 * …_gpt_oss.py, …_llama4.py; shapes of the blocks: DeepSeek-AI 2024 (arXiv 2405.04434, section 2.1; 2412.19437, section 2.1). */
#include "config/fields.h"
#include "nn/family.h"

#include <string.h>

/* ---- deepseek ---- */

typedef struct deepseek {
    tl_config_sizes sizes;
    int64_t experts, per_token, expert_ff, shared, first_dense, groups, top_groups;
    double routed_scale;
    bool norm_top_k;
    const char *scoring, *method;
} deepseek;

static void read_latent(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_source source = {""}; /* five sizes whose place no one shows */
    m->kv_rank = tl_config_required(r, "kv_lora_rank", NULL, 512, &source);
    /* null: queries are projected whole, as in V2-Lite */
    if (tl_config_has(r, "q_lora_rank"))
        m->q_rank = tl_config_size(r, "q_lora_rank");
    else if (!tl_config_is_null(r, "q_lora_rank"))
        m->q_rank = tl_config_required(r, "q_lora_rank", NULL, 1536, &source);
    m->qk_nope = tl_config_required(r, "qk_nope_head_dim", NULL, 128, &source);
    m->qk_rope = tl_config_required(r, "qk_rope_head_dim", NULL, 64, &source);
    m->value_size = tl_config_required(r, "v_head_dim", NULL, 128, &source);
    (void)tl_config_has(r, "head_dim"); /* qk_rope_head_dim once more */
    m->kv_heads = m->heads;
    if (tl_config_has(r, "num_key_value_heads") && tl_config_size(r, "num_key_value_heads") != m->heads)
        tl_config_ignore(r, "num_key_value_heads: latent attention gives each of the %lld heads its own",
                         (long long)m->heads);
    if (r->status == TL_OK && !tl_add_i64(m->qk_nope, m->qk_rope, &m->head_size))
        tl_config_fail(r, TL_ERR_OVERFLOW, "qk_nope_head_dim", "and qk_rope_head_dim add up beyond 64 bits");
    if (r->status == TL_OK && m->qk_rope % 2 != 0)
        tl_config_fail(r, TL_ERR_SHAPE, "qk_rope_head_dim", "is %lld; rotary positions turn pairs, so it must be even",
                       (long long)m->qk_rope);
    tl_config_set_source(&m->source_kv_heads, "H in latent attention");
    tl_config_set_source(&m->source_head_size, "qk_nope_head_dim + qk_rope_head_dim");
}

static void read_groups(tl_config_reader *r, const deepseek *d) {
    tl_model *m = r->model;
    const char *method = tl_config_has(r, "topk_method") ? tl_config_string(r, "topk_method") : d->method;
    bool grouped;
    if (r->status != TL_OK)
        return;
    grouped = strcmp(method, "noaux_tc") == 0 || strcmp(method, "group_limited_greedy") == 0;
    if (!grouped && strcmp(method, "greedy") != 0) {
        char raw[64];
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "topk_method",
                       "is %s; greedy, group_limited_greedy and noaux_tc are built in",
                       tl_config_raw(r, "topk_method", raw, sizeof raw));
        return;
    }
    m->correction_bias = strcmp(method, "noaux_tc") == 0;
    int64_t groups = tl_config_has(r, "n_group") ? tl_config_count(r, "n_group") : d->groups;
    int64_t top = tl_config_has(r, "topk_group") ? tl_config_count(r, "topk_group") : d->top_groups;
    if (grouped && groups > 1) {
        m->router_groups = groups;
        m->router_top_groups = top;
    }
}

static void read_deepseek_experts(tl_config_reader *r, const deepseek *d) {
    tl_model *m = r->model;
    m->experts = tl_config_required(r, "n_routed_experts", NULL, d->experts, &m->source_experts);
    tl_source source = {""};
    m->experts_per_token = d->norm_top_k /* V2's class has no default */
                               ? tl_config_size_or(r, "num_experts_per_tok", d->per_token)
                               : tl_config_required(r, "num_experts_per_tok", NULL, d->per_token, &source);
    m->expert_ff = tl_config_required(r, "moe_intermediate_size", NULL, d->expert_ff, &m->source_expert_ff);
    int64_t shared =
        tl_config_is_null(r, "n_shared_experts") ? 0 : tl_config_count_or(r, "n_shared_experts", d->shared);
    if (r->status == TL_OK && !tl_mul_i64(shared, m->expert_ff, &m->shared_ff))
        tl_config_fail(r, TL_ERR_OVERFLOW, "n_shared_experts", "times moe_intermediate_size is beyond 64 bits");
    tl_config_only_text(r, "scoring_func", d->scoring, "is built in");
    m->norm_top_k = tl_config_flag_or(r, "norm_topk_prob", d->norm_top_k);
    double scale = tl_config_real_or(r, "routed_scaling_factor", 0, 1e9, d->routed_scale);
    m->routed_scale = scale == 1 ? 0 : scale;
    if (r->status == TL_OK && !d->norm_top_k && m->norm_top_k && scale != 1)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "norm_topk_prob",
                       "is true beside routed_scaling_factor %g: DeepSeek's own code leaves the factor out then, "
                       "transformers the normalisation; a factor of 1 is one model in both",
                       scale);
    read_groups(r, d);
    int64_t dense = tl_config_count_or(r, "first_k_dense_replace", d->first_dense);
    int64_t step = tl_config_has(r, "moe_layer_freq") ? tl_config_size(r, "moe_layer_freq") : 1;
    for (int64_t i = dense; r->status == TL_OK && i < m->layers; i++)
        if (i % step == 0)
            tl_config_mark(m, i, TL_LAYER_EXPERTS);
    /* The loss of balance is no key of transformers' class; DeepSeek's own files name it. */
    if (tl_config_has(r, "aux_loss_alpha"))
        tl_config_ignore(r, "aux_loss_alpha %g: the loss of balance is not added here",
                         tl_config_real(r, "aux_loss_alpha", 0, 1e9));
}

static void read_deepseek(tl_config_reader *r, const deepseek *d) {
    tl_model *m = r->model;
    tl_config_read_sizes(r, &d->sizes);
    if (r->status != TL_OK)
        return;
    read_latent(r);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 10000});
    m->rope_interleaved = tl_config_has(r, "rope_interleave") ? tl_config_flag(r, "rope_interleave") : true;
    tl_config_like_llama(r, 1e-6, false);
    m->attention_bias = tl_config_flag_given(r, "attention_bias");
    tl_config_only(r, "mlp_bias", false, "DeepSeek's MLPs have no biases");
    read_deepseek_experts(r, d);
    if (tl_config_has(r, "num_nextn_predict_layers") && tl_config_count(r, "num_nextn_predict_layers") > 0)
        tl_config_ignore(r, "num_nextn_predict_layers: the module of multi-token prediction is left out");
}

void tl_config_deepseek_v2(tl_config_reader *r) {
    tl_model_start(r->model, TL_FAMILY_DEEPSEEK_V2);
    read_deepseek(r, &(deepseek){.sizes = {32, 4096, 32, 11008, 32000, 2048},
                                 .experts = 64,
                                 .per_token = 6,
                                 .expert_ff = 1407,
                                 .shared = 2,
                                 .routed_scale = 1,
                                 .scoring = "softmax",
                                 .method = "greedy"});
}

void tl_config_deepseek_v3(tl_config_reader *r) {
    tl_model_start(r->model, TL_FAMILY_DEEPSEEK_V3);
    read_deepseek(r, &(deepseek){.sizes = {61, 7168, 128, 18432, 129280, 4096},
                                 .experts = 256,
                                 .per_token = 8,
                                 .expert_ff = 2048,
                                 .shared = 1,
                                 .first_dense = 3,
                                 .groups = 8,
                                 .top_groups = 4,
                                 .routed_scale = 2.5,
                                 .norm_top_k = true,
                                 .scoring = "sigmoid",
                                 .method = "noaux_tc"});
}

/* ---- gpt_oss ---- */

static void read_oss_mlp(tl_config_reader *r) {
    tl_model *m = r->model;
    m->expert_ff = m->ff; /* no layer has another MLP */
    m->source_expert_ff = m->source_ff;
    m->experts = tl_config_required(r, "num_local_experts", "num_experts", 128, &m->source_experts);
    (void)tl_config_has(r, "experts_per_token"); /* the same under OpenAI's name */
    m->experts_per_token = tl_config_size_or(
        r,
        !tl_config_has(r, "num_experts_per_tok") && tl_config_has(r, "experts_per_token") ? "experts_per_token"
                                                                                          : "num_experts_per_tok",
        4);
    m->activation = TL_GLU_CLAMPED;
    if (tl_config_has(r, "swiglu_limit") && tl_config_real(r, "swiglu_limit", 0, 1e9) != 7 && r->status == TL_OK)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "swiglu_limit", "is not 7; the clamp is built in at 7");
    if (tl_config_has(r, "swiglu_alpha") && tl_config_real(r, "swiglu_alpha", 0, 1e9) != 1.702 && r->status == TL_OK)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "swiglu_alpha", "is not 1.702; the gate is built in with 1.702");
    for (int64_t i = 0; i < m->layers; i++)
        tl_config_mark(m, i, TL_LAYER_EXPERTS);
}

void tl_config_gpt_oss(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_GPT_OSS);
    tl_config_read_sizes(r, &(tl_config_sizes){36, 2880, 64, 2880, 201088, 131072});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 64, 8);
    (void)tl_config_has(r, "initial_context_length"); /* yarn's original length once more */
    if (tl_config_has(r, "rope_scaling") || tl_config_has(r, "rope_parameters"))
        tl_config_read_rope(r, &(tl_config_rope){.theta = 150000});
    else {
        m->rope_theta = tl_config_real_or(r, "rope_theta", 1e-9, 1e18, 150000);
        m->rope_scaling = TL_ROPE_YARN;
        m->rope_factor = m->rope_beta_fast = 32;
        m->rope_beta_slow = 1;
        m->rope_original_context = 4096;
        m->rope_no_truncate = true;
        tl_config_assume(r, "rope_parameters absent: yarn by 32 from 4096, assumed from %s", r->family);
    }
    tl_config_like_llama(r, 1e-5, false);
    m->attention_bias = tl_config_has(r, "attention_bias") ? tl_config_flag(r, "attention_bias") : true;
    if (tl_config_read_window(r, "sliding_window", 128)) {
        if (!tl_config_read_layer_types(r, TL_LAYER_WINDOW))
            for (int64_t i = 0; i < m->layers; i += 2)
                tl_config_mark(m, i, TL_LAYER_WINDOW);
    } else
        (void)tl_config_has(r, "layer_types");
    read_oss_mlp(r);
    tl_config_read_router_loss(r, 0.001);
}

/* ---- llama4 ---- */

static void read_llama4_layers(tl_config_reader *r) {
    tl_model *m = r->model;
    bool plain[TL_MODEL_LAYERS], routed[TL_MODEL_LAYERS];
    int64_t interval = tl_config_has(r, "no_rope_layer_interval") ? tl_config_size(r, "no_rope_layer_interval") : 4;
    bool given = tl_config_read_layer_flags(r, "no_rope_layers", plain); /* named for what it is not: 1 turns */
    for (int64_t i = 0; r->status == TL_OK && i < m->layers; i++) {
        if (!given)
            plain[i] = (i + 1) % interval == 0;
        if (plain[i])
            tl_config_mark(m, i, TL_LAYER_NO_ROTARY);
    }
    /* Chunks of attention, in the layers that turn. */
    if (tl_config_read_window(r, "attention_chunk_size", 8192)) {
        if (!tl_config_read_layer_types(r, TL_LAYER_WINDOW))
            for (int64_t i = 0; i < m->layers; i++)
                if (!plain[i])
                    tl_config_mark(m, i, TL_LAYER_CHUNKED);
    } else
        (void)tl_config_has(r, "layer_types");
    int64_t step = tl_config_size_or(r, "interleave_moe_layer_step", 1);
    bool listed = tl_config_has(r, "moe_layers");
    if (listed)
        (void)tl_config_read_layer_list(r, "moe_layers", routed);
    for (int64_t i = 0; r->status == TL_OK && i < m->layers; i++)
        if (listed ? routed[i] : (i + 1) % step == 0)
            tl_config_mark(m, i, TL_LAYER_EXPERTS);
}

/* The first published files say 4 for true. */
static bool read_tuning(tl_config_reader *r) {
    static const char key[] = "attn_temperature_tuning";
    const json_t *value = json_object_get(r->object, key);
    if (json_is_integer(value))
        return tl_config_has(r, key) && tl_config_count(r, key) != 0;
    return tl_config_flag_or(r, key, true);
}

void tl_config_llama4(tl_config_reader *r) {
    tl_model *m = r->model;
    tl_model_start(m, TL_FAMILY_LLAMA4);
    tl_config_read_sizes(r, &(tl_config_sizes){48, 5120, 40, 8192, 202048, 131072});
    if (r->status != TL_OK)
        return;
    tl_config_read_heads(r, 128, 8);
    tl_config_read_rope(r, &(tl_config_rope){.theta = 500000});
    tl_config_like_llama(r, 1e-5, false);
    m->attention_bias = tl_config_flag_given(r, "attention_bias");
    m->qk_norm = tl_config_flag_or(r, "use_qk_norm", true) ? TL_QK_L2 : TL_QK_NONE;
    /* intermediate_size is an expert's, routed or shared; dense layers have their own. */
    m->expert_ff = m->shared_ff = m->ff;
    m->source_expert_ff = m->source_ff;
    m->ff = tl_config_required(r, "intermediate_size_mlp", NULL, 16384, &m->source_ff);
    m->experts = tl_config_required(r, "num_local_experts", NULL, 16, &m->source_experts);
    m->experts_per_token = tl_config_size_or(r, "num_experts_per_tok", 1);
    read_llama4_layers(r);
    if (read_tuning(r)) {
        m->temperature_scale = tl_config_real_or(r, "attn_scale", 0, 1e9, 0.1);
        m->temperature_floor = tl_config_real_or(r, "floor_scale", 1, 1e18, 8192);
    }
    tl_config_read_router_noise(r);
    tl_config_read_router_loss(r, 0.001);
}
