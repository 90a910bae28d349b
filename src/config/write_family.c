/* config/write_family.c: further families in their own keys; tests read each back and compare. */
#include "config/write.h"

static bool has(const tl_model *m, int64_t layer, unsigned bit) { return (m->layer[layer] & bit) != 0; }

static bool all_have(const tl_model *m, unsigned bit) {
    bool all = true;
    for (int64_t i = 0; i < m->layers; i++)
        all = all && has(m, i, bit);
    return all;
}

/* Indices of the layers that have the bit, or have it not. */
static void write_list(tl_json *json, const char *key, const tl_model *m, unsigned bit, bool wanted) {
    tl_json_key(json, key);
    tl_json_array(json);
    for (int64_t i = 0; i < m->layers; i++)
        if (has(m, i, bit) == wanted)
            tl_json_integer(json, i);
    tl_json_end(json);
}

static void write_layer_types(tl_json *json, const tl_model *m, unsigned sliding) {
    tl_json_key(json, "layer_types");
    tl_json_array(json);
    for (int64_t i = 0; i < m->layers; i++)
        tl_json_string(json, has(m, i, sliding)            ? "sliding_attention"
                             : has(m, i, TL_LAYER_CHUNKED) ? "chunked_attention"
                                                           : "full_attention");
    tl_json_end(json);
}

static void put_size(tl_json *json, const char *key, int64_t value) { /* 0 as null */
    if (value > 0) {
        tl_json_put_integer(json, key, value);
        return;
    }
    tl_json_key(json, key);
    tl_json_null(json);
}

static void put_real(tl_json *json, const char *key, double value) { /* 0 as null */
    if (value > 0) {
        tl_json_put_real(json, key, value);
        return;
    }
    tl_json_key(json, key);
    tl_json_null(json);
}

/* null says that no layer is cut, which a key left out does not in every family. */
static void write_windows(tl_json *json, const tl_model *m) {
    put_size(json, "sliding_window", m->window);
    if (m->window > 0 && !all_have(m, TL_LAYER_WINDOW))
        write_layer_types(json, m, TL_LAYER_WINDOW);
}

static void write_router_loss(tl_json *json, const tl_model *m) {
    tl_json_put_boolean(json, "output_router_logits", m->router_loss > 0);
    if (m->router_loss > 0)
        tl_json_put_real(json, "router_aux_loss_coef", m->router_loss);
}

static void write_share(tl_json *json, const char *key, const tl_model *m) {
    double share = m->rotary_size > 0 ? (double)m->rotary_size / (double)m->head_size : 1;
    if ((int64_t)(share * (double)m->head_size) < m->rotary_size)
        share += 1e-12; /* readers cut the product */
    tl_json_put_real(json, key, share);
}

/* ---- llama's kin ---- */

static void write_kin(tl_json *json, const tl_model *m) {
    tl_write_sizes(json, m);
    tl_json_put_string(json, "hidden_act", tl_write_activation(m->activation));
    tl_json_put_real(json, "rms_norm_eps", m->norm_epsilon);
    tl_write_rope(json, m);
}

static void write_mistral(tl_json *json, const tl_model *m) {
    write_kin(json, m);
    write_windows(json, m);
    if (m->family != TL_FAMILY_MIXTRAL)
        return;
    tl_json_put_integer(json, "num_local_experts", m->experts);
    tl_json_put_integer(json, "num_experts_per_tok", m->experts_per_token);
    write_router_loss(json, m);
}

static void write_qwen(tl_json *json, const tl_model *m) {
    write_kin(json, m);
    tl_json_put_boolean(json, "use_sliding_window", m->window > 0);
    if (m->window > 0) {
        tl_json_put_integer(json, "sliding_window", m->window);
        write_layer_types(json, m, TL_LAYER_WINDOW);
    }
    if (m->family == TL_FAMILY_QWEN3 || m->family == TL_FAMILY_QWEN3_MOE)
        tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    if (m->experts == 0)
        return;
    tl_json_put_integer(json, "num_experts", m->experts);
    tl_json_put_integer(json, "num_experts_per_tok", m->experts_per_token);
    tl_json_put_integer(json, "moe_intermediate_size", m->expert_ff);
    tl_json_put_boolean(json, "norm_topk_prob", m->norm_top_k);
    tl_json_put_integer(json, "decoder_sparse_step", 1);
    write_list(json, "mlp_only_layers", m, TL_LAYER_EXPERTS, false);
    write_router_loss(json, m);
    if (m->family == TL_FAMILY_QWEN2_MOE) {
        tl_json_put_integer(json, "shared_expert_intermediate_size", m->shared_ff);
        tl_json_put_boolean(json, "qkv_bias", m->qkv_bias);
    }
}

/* 1/√s back to s; the published ones are whole. */
static double query_scalar(const tl_model *m) {
    double scalar = m->query_scale > 0 ? 1 / (m->query_scale * m->query_scale) : (double)m->head_size;
    double whole = (double)(int64_t)(scalar + 0.5);
    return scalar - whole < 1e-9 && whole - scalar < 1e-9 ? whole : scalar;
}

static void write_gemma(tl_json *json, const tl_model *m) {
    tl_write_sizes(json, m);
    tl_json_put_string(json, "hidden_activation", "gelu_pytorch_tanh");
    tl_json_put_real(json, "rms_norm_eps", m->norm_epsilon);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    tl_write_rope(json, m);
    if (m->family == TL_FAMILY_GEMMA)
        return;
    tl_json_put_real(json, "query_pre_attn_scalar", query_scalar(m));
    put_real(json, "attn_logit_softcapping", m->attention_softcap);
    put_real(json, "final_logit_softcapping", m->final_softcap);
    if (m->family == TL_FAMILY_GEMMA2) {
        write_windows(json, m);
        return;
    }
    tl_json_put_real(json, "rope_local_base_freq", m->rope_local_theta);
    /* A window that cuts nothing still says which layers turn by the local angle. */
    tl_json_put_integer(json, "sliding_window", m->window > 0 ? m->window : m->context);
    write_layer_types(json, m, TL_LAYER_LOCAL_ROPE);
}

/* Gemma 4 says angles for each kind of attention; the share is of a global head. */
static void write_two_ropes(tl_json *json, const tl_model *m) {
    int64_t size = m->global_rotary_size > 0 ? m->global_rotary_size : m->global_head_size;
    double share = m->global_head_size > 0 ? (double)size / (double)m->global_head_size : 1;
    if (share < 1 && 2 * (int64_t)(share * (double)m->global_head_size / 2) < size)
        share += 1e-12; /* readers cut the product */
    tl_json_key(json, "rope_parameters");
    tl_json_object(json);
    tl_json_key(json, "full_attention");
    tl_json_object(json);
    tl_json_put_string(json, "rope_type", "proportional");
    tl_json_put_real(json, "partial_rotary_factor", share);
    tl_json_put_real(json, "rope_theta", m->rope_theta);
    if (m->rope_scaling == TL_ROPE_LINEAR)
        tl_json_put_real(json, "factor", m->rope_factor);
    tl_json_end(json);
    tl_json_key(json, "sliding_attention");
    tl_json_object(json);
    tl_json_put_string(json, "rope_type", "default");
    tl_json_put_real(json, "rope_theta", m->rope_local_theta);
    tl_json_end(json);
    tl_json_end(json);
}

static void write_gemma4(tl_json *json, const tl_model *m) {
    tl_write_sizes(json, m);
    tl_json_put_string(json, "hidden_activation", "gelu_pytorch_tanh");
    tl_json_put_real(json, "rms_norm_eps", m->norm_epsilon);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    write_two_ropes(json, m);
    put_real(json, "final_logit_softcapping", m->final_softcap);
    tl_json_put_integer(json, "sliding_window", m->window > 0 ? m->window : m->context);
    write_layer_types(json, m, TL_LAYER_LOCAL_ROPE);
    tl_json_put_integer(json, "global_head_dim", m->global_head_size);
    tl_json_put_boolean(json, "attention_k_eq_v", m->keys_are_values);
    if (m->keys_are_values)
        tl_json_put_integer(json, "num_global_key_value_heads", m->global_kv_heads);
    int64_t first = 0;
    while (first < m->layers && !has(m, first, TL_LAYER_SHARED_KV))
        first++;
    tl_json_put_integer(json, "hidden_size_per_layer_input", m->layer_input_size);
    if (m->layer_input_size > 0)
        tl_json_put_integer(json, "vocab_size_per_layer_input", m->layer_input_vocab);
    tl_json_put_integer(json, "num_kv_shared_layers", m->layers - first);
    tl_json_put_boolean(json, "use_double_wide_mlp", first < m->layers && has(m, first, TL_LAYER_WIDE_MLP));
    tl_json_put_boolean(json, "enable_moe_block", m->experts > 0);
    if (m->experts > 0) {
        tl_json_put_integer(json, "num_experts", m->experts);
        tl_json_put_integer(json, "top_k_experts", m->experts_per_token);
        tl_json_put_integer(json, "moe_intermediate_size", m->expert_ff);
    }
}

static void write_phi3(tl_json *json, const tl_model *m) {
    write_kin(json, m);
    write_share(json, "partial_rotary_factor", m);
    tl_json_put_real(json, "embd_pdrop", m->dropout_embedding);
    tl_json_put_real(json, "resid_pdrop", m->dropout_residual);
    put_size(json, "sliding_window", m->window);
}

static void write_olmo(tl_json *json, const tl_model *m) {
    write_kin(json, m);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    if (m->family == TL_FAMILY_OLMO)
        put_real(json, "clip_qkv", m->clip_qkv);
}

/* ---- LayerNorm and two matrices ---- */

static void write_phi(tl_json *json, const tl_model *m) {
    tl_write_sizes(json, m);
    tl_json_put_string(json, "hidden_act", tl_write_activation(m->activation));
    tl_json_put_real(json, "layer_norm_eps", m->norm_epsilon);
    tl_write_rope(json, m);
    write_share(json, "partial_rotary_factor", m);
    tl_json_put_real(json, "embd_pdrop", m->dropout_embedding);
    tl_json_put_real(json, "resid_pdrop", m->dropout_residual);
}

static void write_phi_msft(tl_json *json, const tl_model *m) {
    tl_write_gpt2_keys(json, m);
    put_size(json, "n_head_kv", m->kv_heads == m->heads ? 0 : m->kv_heads);
    tl_json_put_integer(json, "rotary_dim", m->rotary_size > 0 ? m->rotary_size : m->head_size);
}

static void write_gpt_neox(tl_json *json, const tl_model *m) {
    tl_write_sizes(json, m);
    tl_json_put_string(json, "hidden_act", tl_write_activation(m->activation));
    tl_json_put_real(json, "layer_norm_eps", m->norm_epsilon);
    tl_write_rope(json, m);
    tl_json_put_real(json, "rotary_emb_base", m->rope_theta);
    write_share(json, "rotary_pct", m);
    tl_json_put_boolean(json, "use_parallel_residual", m->place == TL_PLACE_PARALLEL_TWO);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    tl_json_put_real(json, "hidden_dropout", m->dropout_residual);
}

static void write_gptj(tl_json *json, const tl_model *m) {
    tl_write_gpt2_keys(json, m);
    tl_json_put_integer(json, "rotary_dim", m->rotary_size > 0 ? m->rotary_size : m->head_size);
}

static void write_opt(tl_json *json, const tl_model *m) {
    tl_json_put_integer(json, "num_hidden_layers", m->layers);
    tl_json_put_integer(json, "hidden_size", m->width);
    tl_json_put_integer(json, "num_attention_heads", m->heads);
    tl_json_put_integer(json, "ffn_dim", m->ff);
    tl_json_put_integer(json, "vocab_size", m->vocab);
    tl_json_put_integer(json, "max_position_embeddings", m->context);
    tl_json_put_integer(json, "word_embed_proj_dim", m->embedding_size > 0 ? m->embedding_size : m->width);
    tl_json_put_string(json, "activation_function", tl_write_activation(m->activation));
    tl_json_put_boolean(json, "do_layer_norm_before", m->place == TL_PLACE_BEFORE);
    tl_json_put_boolean(json, "enable_bias", m->attention_bias);
    tl_json_put_real(json, "init_std", m->init_std);
    tl_json_put_real(json, "attention_dropout", m->dropout_attention);
    tl_json_put_real(json, "dropout", m->dropout_residual);
    tl_json_put_boolean(json, "tie_word_embeddings", m->tied);
}

static void write_bloom(tl_json *json, const tl_model *m) {
    tl_json_put_integer(json, "n_layer", m->layers);
    tl_json_put_integer(json, "hidden_size", m->width);
    tl_json_put_integer(json, "n_head", m->heads);
    tl_json_put_integer(json, "n_inner", m->ff);
    tl_json_put_integer(json, "vocab_size", m->vocab);
    tl_json_put_integer(json, "seq_length", m->context);
    tl_json_put_real(json, "layer_norm_epsilon", m->norm_epsilon);
    tl_json_put_real(json, "initializer_range", m->init_std);
    tl_json_put_real(json, "attention_dropout", m->dropout_attention);
    tl_json_put_real(json, "hidden_dropout", m->dropout_residual);
    tl_json_put_boolean(json, "tie_word_embeddings", m->tied);
}

static void write_falcon(tl_json *json, const tl_model *m) {
    bool single = m->kv_heads == 1 && m->heads > 1, fresh = m->kv_heads != m->heads && !single;
    fresh = fresh || m->place == TL_PLACE_PARALLEL_TWO;
    tl_json_put_integer(json, "num_hidden_layers", m->layers);
    tl_json_put_integer(json, "hidden_size", m->width);
    tl_json_put_integer(json, "num_attention_heads", m->heads);
    tl_json_put_integer(json, "ffn_hidden_size", m->ff);
    tl_json_put_integer(json, "vocab_size", m->vocab);
    tl_json_put_integer(json, "max_position_embeddings", m->context);
    tl_json_put_boolean(json, "new_decoder_architecture", fresh);
    tl_json_put_boolean(json, "multi_query", single);
    if (fresh) {
        tl_json_put_integer(json, "num_kv_heads", m->kv_heads);
        tl_json_put_integer(json, "num_ln_in_parallel_attn", m->place == TL_PLACE_PARALLEL_TWO ? 2 : 1);
    }
    tl_json_put_boolean(json, "parallel_attn", m->place != TL_PLACE_BEFORE);
    tl_json_put_boolean(json, "bias", m->attention_bias);
    tl_json_put_boolean(json, "alibi", m->positions == TL_POSITIONS_ALIBI);
    tl_json_put_string(json, "activation", tl_write_activation(m->activation));
    tl_write_rope(json, m);
    tl_json_put_real(json, "layer_norm_epsilon", m->norm_epsilon);
    tl_json_put_real(json, "initializer_range", m->init_std);
    tl_json_put_real(json, "attention_dropout", m->dropout_attention);
    tl_json_put_real(json, "hidden_dropout", m->dropout_residual);
    tl_json_put_boolean(json, "tie_word_embeddings", m->tied);
}

static void write_starcoder2(tl_json *json, const tl_model *m) {
    tl_write_sizes(json, m);
    tl_json_put_string(json, "hidden_act",
                       m->activation == TL_GELU_TANH ? "gelu_pytorch_tanh" : tl_write_activation(m->activation));
    tl_json_put_real(json, "norm_epsilon", m->norm_epsilon);
    tl_json_put_boolean(json, "use_bias", m->attention_bias);
    tl_write_rope(json, m);
    tl_json_put_real(json, "embedding_dropout", m->dropout_embedding);
    tl_json_put_real(json, "residual_dropout", m->dropout_residual);
    put_size(json, "sliding_window", m->window);
}

/* ---- experts of their own kinds ---- */

static void write_deepseek(tl_json *json, const tl_model *m) {
    int64_t first = 0, step = 1;
    while (first < m->layers && !has(m, first, TL_LAYER_EXPERTS))
        first++;
    while (first + step < m->layers && !has(m, first + step, TL_LAYER_EXPERTS))
        step++;
    write_kin(json, m);
    put_size(json, "q_lora_rank", m->q_rank);
    tl_json_put_integer(json, "kv_lora_rank", m->kv_rank);
    tl_json_put_integer(json, "qk_nope_head_dim", m->qk_nope);
    tl_json_put_integer(json, "qk_rope_head_dim", m->qk_rope);
    tl_json_put_integer(json, "v_head_dim", m->value_size);
    tl_json_put_boolean(json, "rope_interleave", m->rope_interleaved);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    tl_json_put_integer(json, "n_routed_experts", m->experts);
    tl_json_put_integer(json, "num_experts_per_tok", m->experts_per_token);
    tl_json_put_integer(json, "moe_intermediate_size", m->expert_ff);
    tl_json_put_integer(json, "n_shared_experts", m->expert_ff > 0 ? m->shared_ff / m->expert_ff : 0);
    tl_json_put_string(json, "scoring_func", m->router == TL_ROUTER_SIGMOID ? "sigmoid" : "softmax");
    tl_json_put_string(json, "topk_method",
                       m->correction_bias     ? "noaux_tc"
                       : m->router_groups > 0 ? "group_limited_greedy"
                                              : "greedy");
    tl_json_put_integer(json, "n_group", m->router_groups > 0 ? m->router_groups : 1);
    tl_json_put_integer(json, "topk_group", m->router_groups > 0 ? m->router_top_groups : 1);
    tl_json_put_boolean(json, "norm_topk_prob", m->norm_top_k);
    tl_json_put_real(json, "routed_scaling_factor", m->routed_scale > 0 ? m->routed_scale : 1);
    tl_json_put_integer(json, "first_k_dense_replace", first);
    tl_json_put_integer(json, "moe_layer_freq", step);
}

static void write_gpt_oss(tl_json *json, const tl_model *m) {
    write_kin(json, m);
    tl_json_put_integer(json, "num_local_experts", m->experts);
    tl_json_put_integer(json, "num_experts_per_tok", m->experts_per_token);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    put_size(json, "sliding_window", m->window);
    if (m->window > 0)
        write_layer_types(json, m, TL_LAYER_WINDOW);
    write_router_loss(json, m);
}

static void write_llama4(tl_json *json, const tl_model *m) {
    tl_model sizes = *m;
    sizes.ff = m->expert_ff; /* the name that dense layers have elsewhere is the experts' */
    write_kin(json, &sizes);
    tl_json_put_integer(json, "intermediate_size_mlp", m->ff);
    tl_json_put_boolean(json, "attention_bias", m->attention_bias);
    tl_json_put_boolean(json, "use_qk_norm", m->qk_norm == TL_QK_L2);
    tl_json_put_integer(json, "num_local_experts", m->experts);
    tl_json_put_integer(json, "num_experts_per_tok", m->experts_per_token);
    write_list(json, "moe_layers", m, TL_LAYER_EXPERTS, true);
    tl_json_key(json, "no_rope_layers");
    tl_json_array(json);
    for (int64_t i = 0; i < m->layers; i++)
        tl_json_integer(json, has(m, i, TL_LAYER_NO_ROTARY) ? 0 : 1);
    tl_json_end(json);
    put_size(json, "attention_chunk_size", m->window);
    if (m->window > 0)
        write_layer_types(json, m, TL_LAYER_WINDOW);
    tl_json_put_boolean(json, "attn_temperature_tuning", m->temperature_scale > 0);
    if (m->temperature_scale > 0) {
        tl_json_put_real(json, "attn_scale", m->temperature_scale);
        tl_json_put_real(json, "floor_scale", m->temperature_floor);
    }
    write_router_loss(json, m);
}

void tl_write_family(tl_json *json, const tl_model *m) {
    static void (*const writers[TL_FAMILY_COUNT])(tl_json *, const tl_model *) = {
        [TL_FAMILY_MISTRAL] = write_mistral,
        [TL_FAMILY_MIXTRAL] = write_mistral,
        [TL_FAMILY_QWEN2] = write_qwen,
        [TL_FAMILY_QWEN2_MOE] = write_qwen,
        [TL_FAMILY_QWEN3] = write_qwen,
        [TL_FAMILY_QWEN3_MOE] = write_qwen,
        [TL_FAMILY_GEMMA] = write_gemma,
        [TL_FAMILY_GEMMA2] = write_gemma,
        [TL_FAMILY_GEMMA3] = write_gemma,
        [TL_FAMILY_GEMMA4] = write_gemma4,
        [TL_FAMILY_PHI] = write_phi,
        [TL_FAMILY_PHI_MSFT] = write_phi_msft,
        [TL_FAMILY_PHI3] = write_phi3,
        [TL_FAMILY_OLMO] = write_olmo,
        [TL_FAMILY_OLMO2] = write_olmo,
        [TL_FAMILY_GPT_NEOX] = write_gpt_neox,
        [TL_FAMILY_GPTJ] = write_gptj,
        [TL_FAMILY_OPT] = write_opt,
        [TL_FAMILY_BLOOM] = write_bloom,
        [TL_FAMILY_FALCON] = write_falcon,
        [TL_FAMILY_STARCODER2] = write_starcoder2,
        [TL_FAMILY_DEEPSEEK_V2] = write_deepseek,
        [TL_FAMILY_DEEPSEEK_V3] = write_deepseek,
        [TL_FAMILY_GPT_OSS] = write_gpt_oss,
        [TL_FAMILY_LLAMA4] = write_llama4,
    };
    if (writers[m->family] != NULL)
        writers[m->family](json, m);
}
