/* Descriptions of every family: what a config.json of each says, what is assumed, refused by name, written back, and equal to the
 * catalogue's row. Values expected here are re-typed from the published files and from the defaults that transformers' configuration
 * classes document. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tally/config.h"

/* Sizes under llama's names, in each family's file. */
#define SIZES(type)                                                                                                    \
    "\"model_type\":\"" type "\",\"num_hidden_layers\":8,\"hidden_size\":64,\"num_attention_heads\":4,"                \
    "\"intermediate_size\":96,\"vocab_size\":100,\"max_position_embeddings\":512"
#define WIDE(type) /* heads that every class's default divides */                                                      \
    "\"model_type\":\"" type "\",\"num_hidden_layers\":8,\"hidden_size\":1024,\"num_attention_heads\":32,"             \
    "\"intermediate_size\":96,\"vocab_size\":100,\"max_position_embeddings\":512"
/* With one key/value head per head, which is not every class's default. */
#define EACH(type) SIZES(type) ",\"num_key_value_heads\":null"
#define HEAD ",\"head_dim\":16"

static tl_model model;

static tl_status parse(const char *text, char *message) {
    tl_error error = {0};
    tl_status status = tl_config_parse(text, strlen(text), "x.json", &model, &error);
    memcpy(message, error.message, sizeof error.message);
    return status;
}

static bool noted(char list[TL_MODEL_NOTES][160], int count, const char *text) {
    for (int i = 0; i < count; i++)
        if (strstr(list[i], text) != NULL)
            return true;
    return false;
}

/* What tells two descriptions apart when they compute the same: where from. */
static tl_model bare(const tl_model *m) {
    tl_model b = *m;
    memset(b.name, 0, sizeof b.name);
    memset(&b.source_layers, 0, sizeof b.source_layers);
    memset(&b.source_width, 0, sizeof b.source_width);
    memset(&b.source_heads, 0, sizeof b.source_heads);
    memset(&b.source_kv_heads, 0, sizeof b.source_kv_heads);
    memset(&b.source_head_size, 0, sizeof b.source_head_size);
    memset(&b.source_ff, 0, sizeof b.source_ff);
    memset(&b.source_vocab, 0, sizeof b.source_vocab);
    memset(&b.source_context, 0, sizeof b.source_context);
    memset(&b.source_experts, 0, sizeof b.source_experts);
    memset(&b.source_expert_ff, 0, sizeof b.source_expert_ff);
    memset(&b.source_window, 0, sizeof b.source_window);
    memset(b.assumed, 0, sizeof b.assumed);
    memset(b.ignored, 0, sizeof b.ignored);
    b.n_assumed = b.n_ignored = 0;
    return b;
}

static void same(const char *what, const tl_model *a, const tl_model *b) {
    tl_model x = bare(a), y = bare(b);
    const unsigned char *p = (const unsigned char *)&x, *q = (const unsigned char *)&y;
    for (size_t i = 0; i < sizeof x; i++)
        if (p[i] != q[i]) {
            tl_json *one = tl_config_json(a, TL_DTYPE_COUNT), *other = tl_config_json(b, TL_DTYPE_COUNT);
            fail_msg("%s: descriptions differ at byte %zu\n%s\n%s", what, i, tl_json_text(one, NULL),
                     tl_json_text(other, NULL));
        }
}

/* Written and read back, a description is the same. */
static void comes_back(const char *what, const tl_model *m) {
    static tl_model again;
    tl_error error = {0};
    size_t length = 0;
    tl_json *json = tl_config_json(m, TL_DTYPE_COUNT);
    assert_non_null(json);
    const char *text = tl_json_text(json, &length);
    if (tl_config_parse(text, length, "back.json", &again, &error) != TL_OK)
        fail_msg("%s: %s\n%s", what, error.message, text);
    if (again.n_ignored != 0 && strstr(again.ignored[0], "so it cuts nothing") == NULL)
        fail_msg("%s: %s", what, again.ignored[0]);
    same(what, m, &again);
    tl_json_free(json);
}

static void takes(const char *text) {
    char message[1024];
    if (parse(text, message) != TL_OK)
        fail_msg("%s\n%s", text, message);
    if (model.not_computed[0] == '\0')
        comes_back(text, &model);
}

static void refuses(const char *text, const char *says) {
    char message[1024];
    if (parse(text, message) == TL_OK)
        fail_msg("%s\nwas taken", text);
    if (strstr(message, says) == NULL || strncmp(message, "x.json:", 7) != 0)
        fail_msg("%s\nsays: %s\nnot: %s", text, message, says);
}

#define ASSUMED(text) assert_true(noted(model.assumed, model.n_assumed, text))
#define IGNORED(text) assert_true(noted(model.ignored, model.n_ignored, text))

/* Bit for bit, layer after layer: "1.1." */
static void layers_are(unsigned bit, const char *pattern) {
    assert_int_equal(strlen(pattern), model.layers);
    for (int64_t i = 0; i < model.layers; i++)
        if (((model.layer[i] & bit) != 0) != (pattern[i] == '1'))
            fail_msg("layer %d of %s", (int)i, pattern);
}

/* ---- llama's kin ---- */

static void mistral_and_mixtral(void **state) {
    (void)state;
    takes("{" SIZES("mistral") ",\"sliding_window\":128,\"num_key_value_heads\":2,\"rope_theta\":10000.0}");
    assert_int_equal(model.family, TL_FAMILY_MISTRAL);
    assert_true(model.window == 128 && model.kv_heads == 2 && model.gated && !model.tied);
    assert_true(model.norm == TL_NORM_RMS && model.positions == TL_POSITIONS_ROTARY && model.norm_epsilon == 1e-6);
    layers_are(TL_LAYER_WINDOW, "11111111");
    /* v0.3 says null; a file that says nothing has the class's 4096, which cuts nothing of 512 */
    takes("{" EACH("mistral") ",\"sliding_window\":null}");
    assert_int_equal(model.window, 0);
    layers_are(TL_LAYER_WINDOW, "........");
    takes("{" EACH("mistral") "}");
    ASSUMED("sliding_window absent: 4096, assumed from mistral");
    IGNORED("sliding_window 4096: not below the context 512");
    takes("{" EACH("mixtral") ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"router_aux_loss_coef\":0.02}");
    assert_true(model.experts == 8 && model.experts_per_token == 2 && model.expert_ff == 96 && model.norm_top_k);
    assert_true(model.router == TL_ROUTER_SOFTMAX && model.router_loss == 0 && model.rope_theta == 1e6);
    IGNORED("router_aux_loss_coef 0.02: added to the loss only with output_router_logits");
    layers_are(TL_LAYER_EXPERTS, "11111111");
    takes("{" EACH("mixtral") ",\"num_local_experts\":8,\"output_router_logits\":true,\"router_aux_loss_coef\":0.02}");
    assert_true(model.router_loss == 0.02);
    refuses("{" EACH("mixtral") "}", "\"num_local_experts\" is missing; mixtral's default is 8");
    refuses("{" EACH("mixtral") ",\"num_experts\":8}", "\"num_experts\" is another family's name");
    refuses("{" EACH("mixtral") ",\"num_local_experts\":8,\"num_experts_per_tok\":9}", "from 1 to the experts (E), 8");
}

static void qwen(void **state) {
    (void)state;
    takes("{" EACH("qwen2") ",\"use_sliding_window\":false,\"sliding_window\":128,\"max_window_layers\":4}");
    assert_true(model.qkv_bias && !model.out_bias && !model.attention_bias && model.window == 0);
    takes("{" EACH("qwen2") ",\"use_sliding_window\":true,\"sliding_window\":128,\"max_window_layers\":5}");
    layers_are(TL_LAYER_WINDOW, ".....111");
    takes("{" EACH(
        "qwen2") ",\"use_sliding_window\":true,\"sliding_window\":128,\"layer_types\":[\"full_attention\","
                 "\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\","
                 "\"full_attention\",\"sliding_attention\"]}");
    layers_are(TL_LAYER_WINDOW, ".1.....1");
    refuses("{" EACH("qwen2") ",\"use_sliding_window\":true,\"sliding_window\":128,\"layer_types\":[]}",
            "\"layer_types\" names 0 layers; the model has 8");
    takes("{" SIZES("qwen3") HEAD ",\"num_key_value_heads\":2,\"attention_bias\":false}");
    assert_true(model.qk_norm == TL_QK_HEAD && !model.qkv_bias && model.head_size == 16);
    takes("{" EACH("qwen3") ",\"head_dim\":32,\"tie_word_embeddings\":true}");
    assert_true(model.head_size == 32 && model.tied);
    refuses("{" EACH("qwen3") "}", "\"head_dim\" is missing; qwen3's default is 128");
    takes("{" EACH("qwen3_moe") HEAD ",\"num_experts\":16,\"num_experts_per_tok\":4,\"moe_intermediate_size\":24,"
                                     "\"norm_topk_prob\":true,\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]}");
    assert_true(model.experts == 16 && model.experts_per_token == 4 && model.expert_ff == 24 && model.norm_top_k);
    assert_true(model.ff == 96 && model.shared_ff == 0 && model.qk_norm == TL_QK_HEAD);
    layers_are(TL_LAYER_EXPERTS, ".1...1.1");
    takes("{" EACH("qwen2_moe") ",\"num_experts\":16,\"num_experts_per_tok\":4,\"moe_intermediate_size\":24,"
                                "\"shared_expert_intermediate_size\":48}");
    assert_true(model.shared_ff == 48 && model.shared_gate && model.qkv_bias && !model.norm_top_k);
    ASSUMED("norm_topk_prob absent: false, assumed from qwen2_moe");
    ASSUMED("decoder_sparse_step absent: 1");
    refuses("{" EACH("qwen3_moe") HEAD ",\"num_experts\":4,\"moe_intermediate_size\":8,\"num_experts_per_tok\":1,"
                                       "\"mlp_only_layers\":[8]}",
            "\"mlp_only_layers\" holds at 0 what is no layer; layers are 0 to 7");
    refuses("{" EACH("qwen3_moe") HEAD ",\"num_experts\":4,\"moe_intermediate_size\":8,\"num_experts_per_tok\":1,"
                                       "\"mlp_only_layers\":3}",
            "\"mlp_only_layers\" is 3; it must be a list");
}

static void gemma(void **state) {
    (void)state;
    takes("{" EACH("gemma") HEAD ",\"hidden_act\":\"gelu\"}");
    assert_true(model.norm == TL_NORM_RMS_ONE && model.activation == TL_GELU_TANH && model.gated && model.tied);
    assert_true(model.embedding_scale == 8); /* √64 */
    ASSUMED("hidden_act gelu: the tanh form");
    refuses("{" EACH("gemma") HEAD ",\"hidden_act\":\"silu\"}", "gemma is built in with it");
    takes("{" EACH("gemma2") HEAD ",\"query_pre_attn_scalar\":144,\"sliding_window\":128}");
    assert_true(model.place == TL_PLACE_AROUND && model.attention_softcap == 50 && model.final_softcap == 30);
    assert_true(model.query_scale > 0.0833333 && model.query_scale < 0.0833334); /* 1/√144 */
    layers_are(TL_LAYER_WINDOW, "1.1.1.1.");
    ASSUMED("final_logit_softcapping absent: 30, assumed from gemma2");
    takes("{" EACH("gemma2") HEAD ",\"query_pre_attn_scalar\":16,\"attn_logit_softcapping\":null}");
    assert_true(model.attention_softcap == 0 && model.query_scale == 0);
    takes("{" EACH("gemma3_text") HEAD
          ",\"sliding_window\":64,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}");
    assert_true(model.qk_norm == TL_QK_HEAD && model.rope_theta == 1e6 && model.rope_local_theta == 10000);
    assert_true(model.rope_scaling == TL_ROPE_LINEAR && model.rope_factor == 8 && model.final_softcap == 0);
    layers_are(TL_LAYER_WINDOW, "11111.11");
    layers_are(TL_LAYER_LOCAL_ROPE, "11111.11");
    takes("{" EACH("gemma3_text") HEAD ",\"sliding_window\":64,\"sliding_window_pattern\":2}");
    layers_are(TL_LAYER_LOCAL_ROPE, "1.1.1.1.");
    takes("{" EACH("gemma3_text") HEAD ",\"sliding_window\":1024}"); /* cuts nothing, turns otherwise all the same */
    layers_are(TL_LAYER_WINDOW, "........");
    layers_are(TL_LAYER_LOCAL_ROPE, "11111.11");
    /* transformers 5 says it by kind */
    takes("{" EACH("gemma3_text") HEAD
          ",\"sliding_window\":64,\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":4,"
          "\"rope_theta\":500000},\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":20000}}}");
    assert_true(model.rope_theta == 500000 && model.rope_local_theta == 20000 && model.rope_factor == 4);
    /* the larger Gemma 3: text_config holds what differs from the class, as google/gemma-3-4b-it has it */
    takes("{\"model_type\":\"gemma3\",\"vision_config\":{\"hidden_size\":1152},\"text_config\":{\"hidden_size\":2560,"
          "\"intermediate_size\":10240,\"model_type\":\"gemma3_text\",\"num_hidden_layers\":34,\"rope_scaling\":{"
          "\"factor\":8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024}}");
    assert_true(model.heads == 8 && model.kv_heads == 4 && model.head_size == 256 && model.vocab == 262208);
    ASSUMED("num_attention_heads absent: 8, assumed from gemma3_text");
}

#define GEMMA4 "{" SIZES("gemma4_text") HEAD ",\"num_key_value_heads\":2"

static void gemma4(void **state) {
    (void)state;
    /* the classes' defaults: transformers' configuration_gemma4.py */
    takes(GEMMA4 "}");
    assert_true(model.layer_input_size == 256 && model.layer_input_vocab == 262144 && model.global_head_size == 512);
    ASSUMED("hidden_size_per_layer_input absent: 256");
    layers_are(TL_LAYER_LOCAL_ROPE, "11111.1.");
    layers_are(TL_LAYER_GLOBAL_HEADS, ".....1.1");
    layers_are(TL_LAYER_SHARED_KV, "........");
    ASSUMED("layer_types: the last layer sees all positions");
    takes(GEMMA4 ",\"hidden_size_per_layer_input\":0}");
    assert_true(model.layer_input_size == 0 && model.layer_input_vocab == 0);
    takes(GEMMA4 ",\"hidden_size_per_layer_input\":null}");
    assert_int_equal(model.layer_input_size, 0);
    /* as E2B: the last layers take keys and values, and are twice as wide */
    takes(GEMMA4 ",\"hidden_size_per_layer_input\":8,\"vocab_size_per_layer_input\":100,\"num_kv_shared_layers\":3,"
                 "\"use_double_wide_mlp\":true,\"layer_types\":[\"sliding_attention\",\"full_attention\","
                 "\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"sliding_attention\","
                 "\"sliding_attention\",\"full_attention\"]}");
    layers_are(TL_LAYER_SHARED_KV, ".....111");
    layers_are(TL_LAYER_WIDE_MLP, ".....111");
    for (int64_t i = 0; i < 8; i++) /* the last of its kind that has its own */
        assert_int_equal(tl_model_kv_source(&model, i), i < 5 ? i : i < 7 ? 4 : 3);
    takes(GEMMA4 ",\"num_kv_shared_layers\":2}"); /* as E4B */
    layers_are(TL_LAYER_WIDE_MLP, "........");
    layers_are(TL_LAYER_SHARED_KV, "......11");
    takes(GEMMA4 ",\"use_double_wide_mlp\":true}"); /* no layer shares, so none is wide */
    layers_are(TL_LAYER_WIDE_MLP, "........");
    refuses(GEMMA4 ",\"num_kv_shared_layers\":8}",
            "is 8 of 8 layers; the first ones need keys and values of their own");
    refuses(GEMMA4 ",\"num_kv_shared_layers\":3}", "layer 5 takes keys and values of an earlier layer of its kind");
    refuses(GEMMA4 ",\"vocab_size_per_layer_input\":99}", "is 99; each of the 100 tokens needs a row");
}

static void phi3_and_olmo(void **state) {
    (void)state;
    takes(
        "{" SIZES("phi3") ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":"
                          "[2,2,2,2,2,2,2,2]},\"sliding_window\":2048,\"original_max_position_embeddings\":64,"
                          "\"resid_pdrop\":0.1}");
    assert_true(model.rope_scaling == TL_ROPE_LONGROPE && model.rope_original_context == 64);
    assert_string_equal(model.not_computed, "");
    assert_true(model.window == 0 && model.dropout_residual == 0.1);
    /* Phi-4-mini: of 12 of 16 that turn, 6 pairs; absent, the class's 4096 (configuration_phi3.py) */
    takes("{" SIZES("phi3") ",\"partial_rotary_factor\":0.75,\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":"
                            "[1,1,1,1,1,1],\"long_factor\":[2,2,2,2,2,2]}}");
    assert_true(model.rope_factors == 6 && model.rope_original_context == 4096);
    ASSUMED("original_max_position_embeddings absent: 4096, assumed from the family");
    takes("{" SIZES("phi3") ",\"partial_rotary_factor\":0.75,\"sliding_window\":100,\"rope_scaling\":null}");
    assert_true(model.rotary_size == 12 && model.window == 100);
    refuses("{" SIZES("phi3") ",\"attention_bias\":true}", "\"attention_bias\" is true: phi3's projections");
    takes("{" SIZES("olmo") ",\"clip_qkv\":8.0}");
    assert_true(model.norm == TL_NORM_LAYER_PLAIN && model.clip_qkv == 8 && model.norm_epsilon == 1e-5);
    takes("{" SIZES("olmo2") ",\"num_key_value_heads\":2}");
    assert_true(model.norm == TL_NORM_RMS && model.place == TL_PLACE_AFTER && model.qk_norm == TL_QK_ALL);
}

/* ---- two-matrix MLPs ---- */

static void phi_both_ways(void **state) {
    tl_model first;
    (void)state;
    takes("{\"model_type\":\"phi-msft\",\"n_layer\":8,\"n_embd\":64,\"n_head\":4,\"n_inner\":null,\"vocab_size\":100,"
          "\"n_positions\":512,\"rotary_dim\":8,\"n_head_kv\":null,\"layer_norm_epsilon\":1e-5,\"flash_attn\":false}");
    assert_true(model.family == TL_FAMILY_PHI_MSFT && model.place == TL_PLACE_PARALLEL && model.norm == TL_NORM_LAYER);
    assert_true(model.attention_bias && model.mlp_bias && model.head_bias && model.rotary_size == 8 && !model.gated);
    assert_true(model.ff == 256 && model.activation == TL_GELU_TANH && !model.tied);
    assert_int_equal(model.n_ignored, 0);
    comes_back("phi-msft", &model);
    first = model;
    first.family = TL_FAMILY_PHI; /* but for the names it is the same model */
    takes("{\"model_type\":\"phi\",\"num_hidden_layers\":8,\"hidden_size\":64,\"num_attention_heads\":4,"
          "\"intermediate_size\":256,\"vocab_size\":100,\"max_position_embeddings\":512}");
    ASSUMED("partial_rotary_factor absent: 0.5, assumed from phi");
    same("phi-msft and phi", &first, &model);
    refuses("{" SIZES("phi") ",\"qk_layernorm\":true}", "\"qk_layernorm\" is true");
    takes("{" SIZES("phi") ",\"partial_rotary_factor\":0.3}"); /* 4.8 of 16 is cut to 4 */
    assert_int_equal(model.rotary_size, 4);
    refuses("{" SIZES("phi") ",\"partial_rotary_factor\":0.2}", "turns 3 of a head's 16");
}

static void neox_and_gptj(void **state) {
    (void)state;
    takes("{" SIZES("gpt_neox") ",\"rotary_pct\":0.25,\"rotary_emb_base\":20000}");
    assert_true(model.place == TL_PLACE_PARALLEL_TWO && model.rotary_size == 4 && model.rope_theta == 20000);
    assert_true(model.activation == TL_GELU_ERF && model.attention_bias && !model.head_bias);
    takes("{" SIZES("gpt_neox") ",\"use_parallel_residual\":false,\"rotary_pct\":1,\"attention_bias\":false}");
    assert_true(model.place == TL_PLACE_BEFORE && model.rotary_size == 0 && !model.attention_bias && model.mlp_bias);
    takes("{\"model_type\":\"gptj\",\"n_layer\":8,\"n_embd\":64,\"n_head\":4,\"vocab_size\":100,\"n_positions\":512,"
          "\"rotary_dim\":8,\"rotary\":true,\"n_ctx\":512}");
    assert_true(model.place == TL_PLACE_PARALLEL && model.rope_interleaved && model.rotary_size == 8);
    assert_true(!model.attention_bias && model.mlp_bias && model.head_bias && model.ff == 256);
    refuses("{\"model_type\":\"gptj\",\"n_layer\":8,\"n_embd\":64,\"n_head\":4,\"vocab_size\":100,\"rotary_dim\":18}",
            "\"rotary_dim\" is 18; it must be even and at most the head size 16");
    refuses("{\"model_type\":\"gptj\",\"n_layer\":8,\"n_embd\":65,\"n_head\":4,\"vocab_size\":100}",
            "does not divide n_embd 65");
}

static void opt_and_bloom(void **state) {
    static const char opt[] = "\"model_type\":\"opt\",\"num_hidden_layers\":8,\"hidden_size\":64,"
                              "\"num_attention_heads\":4,\"ffn_dim\":96,\"vocab_size\":100,"
                              "\"max_position_embeddings\":512";
    char text[512];
    (void)state;
    snprintf(text, sizeof text, "{%s,\"word_embed_proj_dim\":64,\"do_layer_norm_before\":true,\"dropout\":0.1}", opt);
    takes(text);
    assert_true(model.learned_positions && model.position_offset == 2 && model.activation == TL_RELU && model.tied);
    assert_true(model.place == TL_PLACE_BEFORE && model.embedding_size == 0 && model.dropout_residual == 0.1);
    /* OPT-350m */
    snprintf(text, sizeof text, "{%s,\"word_embed_proj_dim\":32,\"do_layer_norm_before\":false}", opt);
    takes(text);
    assert_true(model.place == TL_PLACE_POST && model.embedding_size == 32);
    snprintf(text, sizeof text, "{%s,\"layerdrop\":0.1}", opt);
    refuses(text, "\"layerdrop\" is above 0");
    snprintf(text, sizeof text, "{%s,\"_remove_final_layer_norm\":true}", opt);
    refuses(text, "\"_remove_final_layer_norm\" is true");
    takes("{\"model_type\":\"bloom\",\"n_layer\":8,\"n_embed\":64,\"num_attention_heads\":4,\"vocab_size\":100,"
          "\"seq_length\":512,\"attention_softmax_in_fp32\":true,\"offset_alibi\":100}");
    assert_true(model.positions == TL_POSITIONS_ALIBI && model.embedding_norm && model.context == 512);
    assert_true(model.ff == 256 && model.attention_bias && model.mlp_bias && model.tied);
    assert_int_equal(model.n_ignored, 0);
    refuses("{\"model_type\":\"bloom\",\"n_layer\":8,\"hidden_size\":64,\"n_head\":4,\"vocab_size\":100,"
            "\"apply_residual_connection_post_layernorm\":true}",
            "residuals taken after the norm");
}

static void falcon_old_and_new(void **state) {
    static const char sizes[] = "\"model_type\":\"falcon\",\"num_hidden_layers\":8,\"hidden_size\":64,"
                                "\"num_attention_heads\":4,\"vocab_size\":100";
    char text[512];
    (void)state;
    snprintf(text, sizeof text, "{%s,\"multi_query\":true,\"parallel_attn\":true,\"bias\":false}", sizes);
    takes(text); /* 7B */
    assert_true(model.kv_heads == 1 && model.place == TL_PLACE_PARALLEL && model.ff == 256 && model.tied);
    assert_true(!model.attention_bias && !model.mlp_bias && model.activation == TL_GELU_ERF);
    snprintf(text, sizeof text, "{%s,\"new_decoder_architecture\":true,\"num_kv_heads\":2}", sizes);
    takes(text); /* 40B, 180B */
    assert_true(model.kv_heads == 2 && model.place == TL_PLACE_PARALLEL_TWO);
    snprintf(text, sizeof text,
             "{%s,\"new_decoder_architecture\":true,\"num_kv_heads\":2,\"num_ln_in_parallel_attn\":1}", sizes);
    takes(text); /* 11B */
    assert_true(model.place == TL_PLACE_PARALLEL);
    snprintf(text, sizeof text, "{%s,\"multi_query\":false,\"parallel_attn\":false,\"alibi\":true,\"bias\":true}",
             sizes);
    takes(text); /* RW-1B */
    assert_true(model.kv_heads == 4 && model.place == TL_PLACE_BEFORE && model.positions == TL_POSITIONS_ALIBI);
    assert_true(model.alibi_scaled && model.not_computed[0] == '\0');
    snprintf(text, sizeof text, "{%s,\"num_kv_heads\":2}", sizes);
    takes(text);
    IGNORED("num_kv_heads: without new_decoder_architecture");
    snprintf(text, sizeof text, "{%s,\"new_decoder_architecture\":true,\"num_kv_heads\":3}", sizes);
    refuses(text, "\"num_kv_heads\" is 3, which does not divide the heads 4");
}

static void starcoder2(void **state) {
    (void)state;
    takes("{" EACH("starcoder2") ",\"hidden_act\":\"gelu_pytorch_tanh\",\"sliding_window\":100,\"use_bias\":true,"
                                 "\"residual_dropout\":0.1}");
    assert_true(model.norm == TL_NORM_LAYER && model.attention_bias && model.mlp_bias && !model.gated && model.tied);
    assert_true(model.window == 100 && model.dropout_residual == 0.1 && model.init_std == 0.018042);
    refuses("{" EACH("starcoder2") ",\"mlp_type\":\"gated\"}", "\"mlp_type\" is \"gated\"");
    refuses("{" EACH("starcoder2") ",\"norm_type\":\"rms_norm\"}", "\"norm_type\"");
}

/* ---- experts ---- */

#define LATENT                                                                                                         \
    ",\"kv_lora_rank\":32,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_head_dim\":8,\"n_routed_experts\":16,"     \
    "\"num_experts_per_tok\":4,\"moe_intermediate_size\":24"

static void deepseek(void **state) {
    (void)state;
    takes("{" SIZES("deepseek_v2") LATENT ",\"q_lora_rank\":null,\"n_shared_experts\":2,\"first_k_dense_replace\":1}");
    assert_true(model.q_rank == 0 && model.kv_rank == 32 && model.head_size == 12 && model.value_size == 8);
    assert_true(model.kv_heads == 4 && model.shared_ff == 48 && model.rope_interleaved);
    assert_true(model.router == TL_ROUTER_SOFTMAX && !model.correction_bias && model.router_groups == 0);
    layers_are(TL_LAYER_EXPERTS, ".1111111");
    takes("{" SIZES("deepseek_v2") LATENT ",\"q_lora_rank\":24,\"topk_method\":\"group_limited_greedy\",\"n_group\":8,"
                                          "\"topk_group\":3,\"routed_scaling_factor\":16.0,\"moe_layer_freq\":1}");
    assert_true(model.q_rank == 24 && model.router_groups == 8 && model.router_top_groups == 3);
    assert_true(model.routed_scale == 16 && !model.norm_top_k);
    takes(
        "{" SIZES("deepseek_v3") LATENT
        ",\"q_lora_rank\":24,\"n_group\":8,\"topk_group\":4,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\","
        "\"num_nextn_predict_layers\":1,\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,\"factor\":40,\"mscale\":1."
        "0,"
        "\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096,\"type\":\"yarn\"}}");
    assert_true(model.router == TL_ROUTER_SIGMOID && model.correction_bias && model.norm_top_k);
    assert_true(model.routed_scale == 2.5 && model.rope_scaling == TL_ROPE_YARN && model.rope_mscale_all == 1);
    IGNORED("multi-token prediction is left out");
    layers_are(TL_LAYER_EXPERTS, "...11111");
    /* Kimi K2: no groups, another scale, a ramp of no width */
    takes("{" SIZES("kimi_k2") LATENT
          ",\"q_lora_rank\":24,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":2.827,\"first_k_dense_"
          "replace\":1,"
          "\"rope_scaling\":{\"beta_fast\":1.0,\"beta_slow\":1.0,\"factor\":32.0,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
          "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"}}");
    assert_true(model.family == TL_FAMILY_DEEPSEEK_V3 && model.router_groups == 0 && model.routed_scale == 2.827);
    refuses("{" SIZES("deepseek_v3") LATENT ",\"q_lora_rank\":24,\"scoring_func\":\"softmax\"}", "\"scoring_func\"");
    refuses("{" SIZES("deepseek_v2") LATENT ",\"q_lora_rank\":24,\"topk_method\":\"random\"}", "\"topk_method\"");
    refuses("{" SIZES("deepseek_v3") LATENT "}", "\"q_lora_rank\" is missing; deepseek_v3's default is 1536");
    refuses("{" SIZES("deepseek_v3") LATENT ",\"q_lora_rank\":24,\"n_group\":5}", "router_groups is 5; it must divide");
    takes("{" SIZES("deepseek_v3") LATENT ",\"q_lora_rank\":24,\"quantization_config\":{\"quant_method\":\"fp8\"}}");
    IGNORED("quantization_config fp8: how the published weights are held");
    refuses("{" SIZES("deepseek_v3") LATENT ",\"q_lora_rank\":24,\"quantization_config\":{\"quant_method\":\"awq\"}}",
            "\"quantization_config\" is an object");
}

static void gpt_oss(void **state) {
    (void)state;
    takes("{" EACH("gpt_oss") HEAD ",\"num_local_experts\":16,\"experts_per_token\":4,\"num_experts_per_tok\":4,"
                                   "\"sliding_window\":128,\"initial_context_length\":4096,\"swiglu_limit\":7.0}");
    assert_true(model.sinks && model.attention_bias && model.router_bias && model.expert_bias && model.gated);
    assert_true(model.activation == TL_GLU_CLAMPED && model.router == TL_ROUTER_TOP_SOFTMAX && model.expert_ff == 96);
    assert_true(model.rope_scaling == TL_ROPE_YARN && model.rope_factor == 32 && model.rope_no_truncate);
    ASSUMED("rope_parameters absent: yarn by 32 from 4096");
    layers_are(TL_LAYER_WINDOW, "1.1.1.1.");
    layers_are(TL_LAYER_EXPERTS, "11111111");
    refuses("{" EACH("gpt_oss") HEAD ",\"num_local_experts\":16,\"swiglu_limit\":6.0}", "\"swiglu_limit\" is not 7");
    refuses("{" EACH("gpt_oss") HEAD ",\"num_local_experts\":16,\"swiglu_alpha\":1}", "\"swiglu_alpha\" is not 1.702");
}

#define LLAMA4                                                                                                         \
    EACH("llama4_text") HEAD ",\"intermediate_size_mlp\":192,\"num_local_experts\":4,\"num_experts_per_tok\":1"

static void llama4(void **state) {
    (void)state;
    takes("{\"model_type\":\"llama4\",\"text_config\":{" LLAMA4 ",\"attention_chunk_size\":64,\"use_qk_norm\":true}}");
    assert_true(model.ff == 192 && model.expert_ff == 96 && model.shared_ff == 96 && !model.shared_gate);
    assert_true(model.router == TL_ROUTER_SIGMOID_INPUT && model.qk_norm == TL_QK_L2 && model.rope_interleaved);
    assert_true(model.window == 64 && model.temperature_scale == 0.1 && model.temperature_floor == 8192);
    layers_are(TL_LAYER_NO_ROTARY, "...1...1");
    layers_are(TL_LAYER_CHUNKED, "111.111.");
    layers_are(TL_LAYER_EXPERTS, "11111111");
    takes("{" LLAMA4
          ",\"attention_chunk_size\":64,\"no_rope_layers\":[1,0,1,0,1,0,1,0],\"interleave_moe_layer_step\":2,"
          "\"use_qk_norm\":false,\"attn_temperature_tuning\":false}");
    layers_are(TL_LAYER_NO_ROTARY, ".1.1.1.1");
    layers_are(TL_LAYER_CHUNKED, "1.1.1.1.");
    layers_are(TL_LAYER_EXPERTS, ".1.1.1.1");
    assert_true(model.qk_norm == TL_QK_NONE && model.temperature_scale == 0);
    takes("{" LLAMA4 ",\"moe_layers\":[0,5],\"no_rope_layers\":[]}");
    layers_are(TL_LAYER_EXPERTS, "1....1..");
    layers_are(TL_LAYER_NO_ROTARY, "...1...1");
    refuses("{" LLAMA4 ",\"no_rope_layers\":[1,0]}", "\"no_rope_layers\" names 2 layers; the model has 8");
    refuses("{" LLAMA4 ",\"no_rope_layers\":[1,0,1,0,1,0,1,2]}", "holds at 7 what is neither 0 nor 1");
    refuses("{" EACH("llama4_text") HEAD ",\"num_local_experts\":4}", "\"intermediate_size_mlp\" is missing");
}

/* ---- all families ---- */

static void keys_of_other_families_are_refused(void **state) {
    static const struct {
        const char *base, *key, *value;
    } cases[] = {
        {EACH("mistral"), "num_local_experts", "8"},
        {EACH("mistral"), "attn_logit_softcapping", "50"},
        {EACH("qwen2"), "kv_lora_rank", "512"},
        {EACH("qwen3") HEAD, "num_experts", "8"},
        {EACH("gemma") HEAD, "final_logit_softcapping", "30"},
        {EACH("gemma2") HEAD, "qk_norm", "true"},
        {SIZES("olmo2"), "alibi", "true"},
        {SIZES("phi"), "lm_head_bias", "true"},
        {SIZES("phi3"), "sliding_window", "\"wide\""},
        {SIZES("gpt_neox"), "sliding_window", "100"},
        {SIZES("gpt_neox"), "parallel_attn", "true"},
        {EACH("starcoder2"), "layer_types", "[\"sliding_attention\"]"},
        {SIZES("olmo"), "quantization_config", "{\"quant_method\":\"gptq\"}"},
        {EACH("mixtral") ",\"num_local_experts\":8", "partial_rotary_factor", "0.5"},
    };
    char text[1024], says[80];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{%s,\"%s\":%s}", cases[i].base, cases[i].key, cases[i].value);
        snprintf(says, sizeof says, "\"%s\"", cases[i].key);
        refuses(text, says);
    }
}

static void sizes_that_are_missing_are_refused_in_every_family(void **state) {
    static const char *const types[] = {"mistral",     "mixtral", "qwen2",       "qwen2_moe",   "qwen3",
                                        "qwen3_moe",   "gemma",   "gemma2",      "gemma3_text", "phi",
                                        "phi3",        "olmo",    "olmo2",       "gptj",        "deepseek_v2",
                                        "deepseek_v3", "kimi_k2", "llama4_text", "opt",         "bloom",
                                        "gpt_neox",    "falcon",  "gpt_oss",     "starcoder2",  "phi-msft"};
    char text[256];
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"torch_dtype\":\"float16\"}", types[i]);
        refuses(text, "is missing; ");
        refuses(text, types[i]);
    }
    refuses("{\"model_type\":\"qwen2\",\"num_hidden_layers\":1000000,\"hidden_size\":8,\"num_attention_heads\":1,"
            "\"intermediate_size\":8,\"vocab_size\":8}",
            "\"num_hidden_layers\" is 1000000; it must be from 1 to 1024");
}

/* num_key_value_heads of each class (transformers' configuration_….py): absent, null, and where it does not divide. */
static void heads_of_the_class(void **state) {
    static const struct {
        const char *text, *key;
        int64_t heads;
    } cases[] = {
        {WIDE("mistral"), "num_key_value_heads absent: 8, assumed from mistral", 8},
        {WIDE("mixtral") ",\"num_local_experts\":4", "num_key_value_heads absent: 8, assumed from mixtral", 8},
        {WIDE("qwen2"), "num_key_value_heads absent: 32, assumed from qwen2", 32},
        {WIDE("qwen3") ",\"head_dim\":32", "num_key_value_heads absent: 32", 32},
        {WIDE("qwen2_moe") ",\"num_experts\":4,\"moe_intermediate_size\":8", "num_key_value_heads absent: 16", 16},
        {WIDE("qwen3_moe") ",\"head_dim\":32,\"num_experts\":8,\"moe_intermediate_size\":8",
         "num_key_value_heads absent: 4", 4},
        {WIDE("gemma") ",\"head_dim\":32", "num_key_value_heads absent: 16", 16},
        {WIDE("gemma2") ",\"head_dim\":32", "num_key_value_heads absent: 4", 4},
        {WIDE("gemma3_text") ",\"head_dim\":32", "num_key_value_heads absent: 4", 4},
        {WIDE("gpt_oss") ",\"head_dim\":32,\"num_local_experts\":4", "num_key_value_heads absent: 8", 8},
        {WIDE("llama4_text") ",\"head_dim\":32,\"intermediate_size_mlp\":64,\"num_local_experts\":4",
         "num_key_value_heads absent: 8", 8},
        {WIDE("starcoder2"), "num_key_value_heads absent: 2", 2},
        {WIDE("llama"), "num_key_value_heads absent: equal to heads, 32", 32},
        {WIDE("olmo2"), "num_key_value_heads absent: equal to heads, 32", 32},
        {WIDE("phi3"), "num_key_value_heads absent: equal to heads, 32", 32},
    };
    char text[640];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{%s}", cases[i].text);
        takes(text);
        ASSUMED(cases[i].key);
        assert_int_equal(model.kv_heads, cases[i].heads);
    }
    takes("{" EACH("mistral") "}");
    assert_int_equal(model.kv_heads, 4);
    refuses("{" SIZES("mistral") "}", "mistral's default is 8, which does not divide num_attention_heads 4");
}

/* Defaults and values of single keys, each as transformers' class or model has it (configuration_….py, modeling_….py). */
static void keys_of_single_families(void **state) {
    static const char v2[] = SIZES(
        "deepseek_v2") ",\"kv_lora_rank\":16,\"q_lora_rank\":null,\"qk_nope_head_dim\":8,"
                       "\"qk_rope_head_dim\":8,\"v_head_dim\":8,\"n_routed_experts\":8,\"moe_intermediate_size\":8";
    static const char opt[] =
        "\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":8,\"num_attention_heads\":2,"
        "\"ffn_dim\":16,\"vocab_size\":10";
    static const char llama4[] =
        EACH("llama4_text") ",\"head_dim\":16,\"intermediate_size_mlp\":64,\"num_local_experts\":4";
    static const char gemma4[] =
        EACH("gemma4_text") ",\"head_dim\":16,\"global_head_dim\":32,\"hidden_size_per_layer_input\":0";
    char text[1024];
    (void)state;
    snprintf(text, sizeof text, "{%s,\"num_experts_per_tok\":2,\"n_shared_experts\":null}", v2);
    takes(text); /* null is none, where absent is 2 */
    assert_int_equal(model.shared_ff, 0);
    snprintf(text, sizeof text, "{%s}", v2);
    refuses(text, "\"num_experts_per_tok\" is missing");
    snprintf(text, sizeof text, "{%s,\"num_experts_per_tok\":2,\"norm_topk_prob\":true,\"routed_scaling_factor\":16}",
             v2);
    refuses(text, "\"norm_topk_prob\" is true beside routed_scaling_factor 16");
    snprintf(text, sizeof text, "{%s,\"num_experts_per_tok\":2,\"norm_topk_prob\":true}", v2);
    takes(text);
    takes("{" EACH("mixtral") ",\"num_local_experts\":4,\"router_jitter_noise\":0.0}");
    assert_int_equal(model.n_ignored, 0);
    takes("{" EACH("mixtral") ",\"num_local_experts\":4,\"router_jitter_noise\":0.1}");
    IGNORED("router_jitter_noise: no noise");
    snprintf(text, sizeof text, "{%s}", opt);
    takes(text);
    assert_true(model.dropout_residual == 0.1);
    ASSUMED("dropout absent: 0.1, assumed from opt");
    snprintf(text, sizeof text, "{%s,\"dropout\":0.0}", opt);
    takes(text);
    assert_true(model.dropout_residual == 0);
    takes(
        "{\"model_type\":\"bloom\",\"n_layer\":2,\"hidden_size\":64,\"n_head\":4,\"vocab_size\":100,\"n_inner\":100}");
    assert_int_equal(model.ff, 256);
    IGNORED("n_inner: BLOOM's MLP is 4·D = 256 wide");
    snprintf(text, sizeof text, "{%s,\"attn_temperature_tuning\":4,\"attn_scale\":0.2}", llama4);
    takes(text);
    assert_true(model.temperature_scale == 0.2 && model.temperature_floor == 8192);
    snprintf(text, sizeof text, "{%s,\"attn_temperature_tuning\":0}", llama4);
    takes(text);
    assert_true(model.temperature_scale == 0);
    snprintf(text, sizeof text, "{%s}", gemma4);
    takes(text); /* 8 layers: the last would see a window by the pattern of 6 */
    assert_int_equal(model.global_rotary_size, 8);
    assert_true(model.rope_theta == 1e6 && model.rope_local_theta == 1e4);
    assert_true((model.layer[7] & TL_LAYER_GLOBAL_HEADS) != 0 && (model.layer[6] & TL_LAYER_LOCAL_ROPE) != 0);
    ASSUMED("the last layer: full_attention");
    ASSUMED("rope_parameters absent: of global heads a quarter turns");
    snprintf(text, sizeof text, "{%s,\"use_bidirectional_attention\":\"vision\"}", gemma4);
    takes(text);
    snprintf(text, sizeof text, "{%s,\"use_bidirectional_attention\":\"all\"}", gemma4);
    refuses(text, "\"use_bidirectional_attention\" is \"all\": attention that looks ahead");
    snprintf(
        text, sizeof text,
        "{%s,\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,"
        "\"rope_theta\":1e6,\"factor\":8.0},\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":1e4}}}",
        gemma4);
    takes(text);
    assert_true(model.rope_scaling == TL_ROPE_LINEAR && model.rope_factor == 8 && model.global_rotary_size == 8);
    snprintf(text, sizeof text, "{%s,\"enable_moe_block\":true,\"num_experts\":4,\"moe_intermediate_size\":8}", gemma4);
    refuses(text, "\"top_k_experts\" is missing");
    refuses("{" EACH("gemma3_text") ",\"head_dim\":16,\"use_bidirectional_attention\":true}", "looks ahead");
    refuses("{" EACH("qwen2") ",\"use_mrope\":true}", "positions of several axes");
    refuses("{" SIZES("phi3") ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}",
            "\"rope_scaling.short_factor\" is missing");
}

static void every_model_of_the_catalogue_comes_back(void **state) {
    (void)state;
    for (int i = 0; i < tl_catalogue_count(); i++) {
        tl_error error = {0};
        if (tl_catalogue_model(tl_catalogue_name(i), &model, &error) != TL_OK)
            fail_msg("%s", error.message);
        /* neither has a key in any config.json */
        if (model.family == TL_FAMILY_CRUNCHER || (model.family == TL_FAMILY_LLAMA && !model.gated) ||
            model.not_computed[0] != '\0')
            continue;
        comes_back(model.name, &model);
    }
}

static void published_files_are_the_rows_of_the_catalogue(void **state) {
    static const struct {
        const char *file, *name;
    } pairs[] = {
        {"Qwen--Qwen1.5-MoE-A2.7B", "qwen1.5-moe-a2.7b"},
        {"Qwen--Qwen2.5-3B", "qwen2.5-3b"},
        {"Qwen--Qwen3-0.6B", "qwen3-0.6b"},
        {"Qwen--Qwen3-1.7B", "qwen3-1.7b"},
        {"Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b"},
        {"Qwen--Qwen3-32B", "qwen3-32b"},
        {"HuggingFaceTB--SmolLM-1.7B", "smollm-1.7b"},
        {"HuggingFaceTB--SmolLM2-135M", "smollm2-135m"},
        {"allenai--OLMo-2-32B", "olmo-2-32b"},
        {"allenai--OLMo-2-7B", "olmo-2-7b"},
        {"bigcode--starcoder2", "starcoder2-7b"},
        {"deepseek-ai--DeepSeek-V3", "deepseek-v3"},
        {"google--gemma-2-27b", "gemma-2-27b"},
        {"google--gemma-2-2b", "gemma-2-2b"},
        {"google--gemma-2b", "gemma-2b"},
        {"google--gemma-3-1b", "gemma-3-1b"},
        {"meta-llama--Llama-3.2-1B", "llama-3.2-1b"},
        {"meta-llama--Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"},
        {"meta-llama--Meta-Llama-3.1-405B", "llama-3.1-405b"},
        {"meta-llama--Meta-Llama-3.1-8B", "llama-3.1-8b"},
        {"microsoft--Phi-3.5-mini-instruct", "phi-3.5-mini"},
        {"microsoft--phi-1_5", "phi-1.5"},
        {"microsoft--phi-2", "phi-2"},
        {"mistralai--Mistral-7B-v0.1", "mistral-7b"},
        {"mistralai--Mistral-7B-v0.3", "mistral-7b-v0.3"},
        {"mistralai--Mixtral-8x7B-v0.1", "mixtral-8x7b"},
        {"openai--gpt-oss-120b", "gpt-oss-120b"},
        {"openai-community--gpt2", "gpt2"},
        {"openai-community--gpt2-medium", "gpt2-medium"},
    };
    const char *shared = getenv("TALLY_SHARED");
    static tl_model row;
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char path[512];
        tl_error error = {0};
        snprintf(path, sizeof path, "%s/data/configs/%s.json", shared != NULL ? shared : "../shared", pairs[i].file);
        tl_status status = tl_config_read(path, &model, &error);
        if (status == TL_ERR_NOT_FOUND || status == TL_ERR_IO) {
            print_message("%s is not there: not compared\n", path);
            skip();
            return;
        }
        if (status != TL_OK || tl_catalogue_model(pairs[i].name, &row, &error) != TL_OK)
            fail_msg("%s", error.message);
        bool first = model.family == TL_FAMILY_PHI_MSFT; /* phi-1.5 as published first: another file, the same model */
        if (first)
            model.family = TL_FAMILY_PHI;
        same(pairs[i].name, &model, &row);
        if (first)
            model.family = TL_FAMILY_PHI_MSFT;
        if (model.not_computed[0] == '\0')
            comes_back(pairs[i].file, &model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistral_and_mixtral),
        cmocka_unit_test(qwen),
        cmocka_unit_test(gemma),
        cmocka_unit_test(gemma4),
        cmocka_unit_test(phi3_and_olmo),
        cmocka_unit_test(phi_both_ways),
        cmocka_unit_test(neox_and_gptj),
        cmocka_unit_test(opt_and_bloom),
        cmocka_unit_test(falcon_old_and_new),
        cmocka_unit_test(starcoder2),
        cmocka_unit_test(deepseek),
        cmocka_unit_test(gpt_oss),
        cmocka_unit_test(llama4),
        cmocka_unit_test(heads_of_the_class),
        cmocka_unit_test(keys_of_single_families),
        cmocka_unit_test(keys_of_other_families_are_refused),
        cmocka_unit_test(sizes_that_are_missing_are_refused_in_every_family),
        cmocka_unit_test(every_model_of_the_catalogue_comes_back),
        cmocka_unit_test(published_files_are_the_rows_of_the_catalogue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
