/* Keys that would make the model another one, keys that say nothing about it, and all the rest. */
#include "config/reader.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

/* The value at which a key changes nothing. */
typedef enum harmless { OFF, ON, ONE, NOTHING } harmless;

static const struct {
    const char *key;
    harmless when;
    const char *why;
} refused[] = {
    {"quantization_config", NOTHING, "the weights are held in other formats"}, /* FORMATS: these two first */
    {"compression_config", NOTHING, "the weights are held in other formats"},
    {"add_cross_attention", OFF, "it adds an attention per layer"},
    {"is_encoder_decoder", OFF, "only decoders are built in"},
    {"pruned_heads", NOTHING, "layers differ in their heads"},
    {"scale_attn_weights", ON, "unscaled attention is another model"},
    {"scale_attn_by_inverse_layer_idx", OFF, "it scales attention by layer"},
    {"reorder_and_upcast_attn", OFF, "it holds scores in fp32"},
    {"multi_query", OFF, "the family has one key/value head per head"},
    {"num_experts", ONE, "the family has no experts"},
    {"num_local_experts", ONE, "the family has no experts"},
    {"n_routed_experts", ONE, "the family has no experts"},
    {"kv_lora_rank", NOTHING, "the family has no latent attention"},
    {"q_lora_rank", NOTHING, "the family has no latent attention"},
    {"use_qk_norm", OFF, "the family has no norms of queries and keys"},
    {"qk_norm", OFF, "the family has no norms of queries and keys"},
    {"qk_layernorm", OFF, "the family has no norms of queries and keys"},
    {"qkv_bias", OFF, "that bias is not built in for the family"},
    {"lm_head_bias", OFF, "the family has no bias of the head"},
    {"partial_rotary_factor", ONE, "the family turns whole heads"},
    {"rotary_pct", ONE, "the family turns whole heads"},
    {"attn_logit_softcapping", NOTHING, "the family caps no scores"},
    {"final_logit_softcapping", NOTHING, "the family caps no logits"},
    {"embedding_multiplier", ONE, "scaled embeddings are not built in"},
    {"residual_multiplier", ONE, "scaled residuals are not built in"},
    {"logits_scaling", ONE, "scaled logits are not built in"},
    {"attention_multiplier", NOTHING, "scaled attention is not built in"},
    {"use_parallel_residual", OFF, "the family has no parallel blocks"},
    {"parallel_attn", OFF, "the family has no parallel blocks"},
    {"alibi", OFF, "the family has no ALiBi"},
    {"use_bidirectional_attention", OFF, "attention that looks ahead is not built in"},
    {"use_mrope", OFF, "positions of several axes are not built in"},
    {"no_rope_layers", NOTHING, "the family has no layers without positions"},
    {"vision_config", NOTHING, "only text models are built in"},
    {"audio_config", NOTHING, "only text models are built in"},
};

/* Keys of neighbouring families that scale or clip what is computed: the same products and tensors, other results. */
static const struct {
    const char *key;
    harmless when;
} other_results[] = {
    {"clip_qkv", NOTHING},
    {"logit_scale", ONE},
    {"embedding_scale", ONE},
    {"scale_embedding", OFF},
    {"attn_scale", ONE},
    {"attn_temperature_tuning", OFF},
    {"attention_scale", ONE},
    {"query_pre_attn_scalar", NOTHING},
    {"rope_local_base_freq", NOTHING},
};

static bool is_harmless(const json_t *value, harmless when) {
    if (value == NULL || json_is_null(value))
        return true;
    switch (when) {
    case OFF:
        return json_is_false(value) || (json_is_integer(value) && json_integer_value(value) == 0);
    case ON:
        return json_is_true(value);
    case ONE:
        return json_is_number(value) &&
               (json_number_value(value) == 1 || (json_is_integer(value) && json_integer_value(value) == 0));
    case NOTHING:
        return (json_is_object(value) && json_object_size(value) == 0) ||
               (json_is_array(value) && json_array_size(value) == 0);
    }
    return false;
}

/* A window narrower than the context is another attention, with another account; families that have windows ask for them. */
static void refuse_windows(tl_config_reader *r) {
    const json_t *types = json_object_get(r->object, "layer_types");
    char raw[64];
    const json_t *window = json_object_get(r->object, "sliding_window");
    bool off = json_is_false(json_object_get(r->object, "use_sliding_window"));
    if (!tl_config_was_asked(r, "sliding_window") && window != NULL && !json_is_null(window) && !off)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, "sliding_window",
                       "is %s; windows of attention are not built in, null says there is none",
                       tl_config_raw(r, "sliding_window", raw, sizeof raw));
    for (size_t i = 0; !tl_config_was_asked(r, "layer_types") && i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type == NULL || strcmp(type, "full_attention") != 0) {
            tl_config_fail(r, TL_ERR_UNSUPPORTED, "layer_types",
                           "has layers other than full_attention; they are not built in");
            return;
        }
    }
}

#define FORMATS 2

/* The formats that DeepSeek-V3 and gpt-oss were published in hold the same matrices in fewer bits: as torch_dtype, not another
 * model. Other methods change what a layer holds. */
static bool is_published_format(tl_config_reader *r, const char *key) {
    const json_t *object = json_object_get(r->object, key), *block = json_object_get(object, "weight_block_size");
    const char *method = json_string_value(json_object_get(object, "quant_method"));
    if (strcmp(key, "quantization_config") != 0 || method == NULL ||
        (strcmp(method, "fp8") != 0 && strcmp(method, "mxfp4") != 0))
        return false;
    if (strcmp(method, "mxfp4") == 0)
        r->model->stored = TL_STORED_MXFP4;
    else if (json_array_size(block) == 2 && json_integer_value(json_array_get(block, 0)) == 128 &&
             json_integer_value(json_array_get(block, 1)) == 128)
        r->model->stored = TL_STORED_FP8;
    tl_config_ignore(r, "quantization_config %s: how the published weights are held; precision is the plan's to choose",
                     method);
    return true;
}

/* "of quant_method gptq" */
static const char *method_text(const tl_config_reader *r, const char *key, char out[96]) {
    char quoted[64];
    const char *method = json_string_value(json_object_get(json_object_get(r->object, key), "quant_method"));
    out[0] = '\0';
    if (method != NULL)
        (void)snprintf(out, 96, " of quant_method %s", tl_quotable(method, strlen(method), quoted, sizeof quoted));
    return out;
}

static void refuse_first(tl_config_reader *r, size_t count) {
    char raw[64], method[96];
    for (size_t i = 0; i < count && r->status == TL_OK; i++)
        if (!tl_config_was_asked(r, refused[i].key) &&
            !is_harmless(json_object_get(r->object, refused[i].key), refused[i].when) &&
            !is_published_format(r, refused[i].key))
            tl_config_fail(r, TL_ERR_UNSUPPORTED, refused[i].key, "is %s%s: %s, so the account would be another%s",
                           tl_config_raw(r, refused[i].key, raw, sizeof raw), method_text(r, refused[i].key, method),
                           refused[i].why,
                           i < FORMATS ? "; the model's config.json before that would work, with --weights int8 or nf4 "
                                         "of plan --infer"
                                       : "");
}

void tl_config_refuse_formats(tl_config_reader *r) { refuse_first(r, FORMATS); }

/* MXFP4 is read of gpt_oss's experts alone, in blocks of 32 along what a product sums over (weights_mx.c). */
static void check_mxfp4(tl_config_reader *r) {
    const tl_model *m = r->model;
    const char *key = "quantization_config";
    if (r->status != TL_OK || m->stored != TL_STORED_MXFP4)
        return;
    if (m->family != TL_FAMILY_GPT_OSS)
        tl_config_fail(r, TL_ERR_UNSUPPORTED, key,
                       "is of quant_method mxfp4, which is read of gpt_oss's experts; the model's config.json before "
                       "that would work, with --weights int8 or nf4 of plan --infer");
    else if (m->width % 32 != 0 || m->expert_ff % 32 != 0)
        tl_config_fail(r, TL_ERR_SHAPE, key,
                       "is of quant_method mxfp4, in blocks of 32: hidden_size %lld and intermediate_size %lld must be "
                       "multiples of that",
                       (long long)m->width, (long long)m->expert_ff);
}

void tl_config_refuse_others(tl_config_reader *r) {
    refuse_first(r, sizeof refused / sizeof refused[0]);
    check_mxfp4(r);
    if (r->status == TL_OK)
        refuse_windows(r);
}

/* Read elsewhere, or about tokens, files and generation. */
static const char *const known[] = {
    "architectures",
    "model_type",
    "_name_or_path",
    "name_or_path",
    "_commit_hash",
    "transformers_version",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "cls_token_id",
    "decoder_start_token_id",
    "use_cache",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "task_specific_params",
    "id2label",
    "label2id",
    "num_labels",
    "finetuning_task",
    "problem_type",
    "tokenizer_class",
    "prefix",
    "n_special",
    "predict_special_tokens",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "is_llama_config",
    "transformers.js_config",
    "is_decoder",
    "chunk_size_feed_forward",
    "layer_types",
    "sliding_window",
    "use_sliding_window",
    "text_config",
    "tie_word_embeddings",
    "initializer_range",
    "vocab_size",
    "_attn_implementation_autoset",
    "attn_implementation",
    "max_length",
    "min_length",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "gradient_checkpointing",
    "model_max_length",
    "auto_map",
    "cache_implementation",
    "attention_softmax_in_fp32",
    "scale_attention_softmax_in_fp32",
    "masked_softmax_fusion",
    "bias_dropout_fusion",
    "skip_bias_add",
    "skip_bias_add_qkv",
    "slow_but_exact",
    "offset_alibi",
    "flash_attn",
    "flash_rotary",
    "fused_dense",
    "ep_size",
};

static bool is_in(const char *key, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

static bool is_refusable(const char *key) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (strcmp(refused[i].key, key) == 0)
            return true;
    return false;
}

#define IN(list) is_in(key, list, sizeof list / sizeof list[0])

void tl_config_note_rest(tl_config_reader *r) {
    void *at;
    for (at = json_object_iter((json_t *)r->object); at != NULL; at = json_object_iter_next((json_t *)r->object, at)) {
        const char *key = json_object_iter_key(at);
        char raw[48], name[64];
        if (json_is_null(json_object_iter_value(at)) || IN(known) || tl_config_was_asked(r, key) || is_refusable(key))
            continue;
        if (r->model->n_ignored == TL_MODEL_NOTES) {
            /* No room: say so and stop, since finding the place of each of a million keys would take hours. */
            tl_config_ignore(r, "and more");
            return;
        }
        tl_config_raw(r, key, raw, sizeof raw);
        tl_quotable(key, strlen(key), name, sizeof name);
        for (size_t i = 0; i < sizeof other_results / sizeof other_results[0]; i++)
            if (strcmp(key, other_results[i].key) == 0 &&
                !is_harmless(json_object_get(r->object, key), other_results[i].when))
                tl_config_not_computed(r, "%s %s", name, raw);
        if (strcmp(key, "torch_dtype") == 0 || strcmp(key, "dtype") == 0)
            tl_config_ignore(r, "%s %s: precision is the plan's to choose", name, raw);
        else if (strcmp(key, "pretraining_tp") == 0) {
            if (strcmp(raw, "1") != 0 && strcmp(raw, "0") != 0)
                tl_config_ignore(r, "%s %s: the same products in slices, not another account", name, raw);
        } else
            tl_config_ignore(r, "%s %s: no key of %s, not read", name, raw, r->family);
    }
}
