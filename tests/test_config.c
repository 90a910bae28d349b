/* Reading Hugging Face descriptions: what is taken, assumed, ignored and refused, and what hostile files do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tally/config.h"

#define GPT2                                                                                                           \
    "\"model_type\":\"gpt2\",\"n_layer\":12,\"n_embd\":768,\"n_head\":12,\"vocab_size\":50257,\"n_positions\":1024"
#define LLAMA                                                                                                          \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,\"intermediate_"    \
    "size\":172,"                                                                                                      \
    "\"vocab_size\":1000,\"max_position_embeddings\":128"

static tl_model model; /* 9 KB: not for the stack of a test that takes several */

/* Messages go into char[1024], the size of tl_error's own. */
static tl_status parse(const char *text, size_t length, char *message) {
    tl_error error = {0};
    tl_status status = tl_config_parse(text, length, "x.json", &model, &error);
    assert_int_equal(status, error.status);
    if (status != TL_OK && error.message[0] == '\0')
        fail_msg("a failure without a message");
    memcpy(message, error.message, sizeof error.message);
    return status;
}

static void takes(const char *text) {
    char message[1024];
    if (parse(text, strlen(text), message) != TL_OK)
        fail_msg("%s\n%s", text, message);
}

static void refuses(const char *text, const char *says) {
    char message[1024];
    if (parse(text, strlen(text), message) == TL_OK)
        fail_msg("%s\nwas taken", text);
    if (strstr(message, says) == NULL || strncmp(message, "x.json:", 7) != 0)
        fail_msg("%s\nsays: %s\nnot: %s", text, message, says);
}

static bool noted(char list[TL_MODEL_NOTES][160], int count, const char *text) {
    for (int i = 0; i < count; i++)
        if (strstr(list[i], text) != NULL)
            return true;
    return false;
}
#define ASSUMED(text) assert_true(noted(model.assumed, model.n_assumed, text))
#define IGNORED(text) assert_true(noted(model.ignored, model.n_ignored, text))

static void gpt2_says_what_it_assumed(void **state) {
    (void)state;
    /* Defaults of Hugging Face's GPT2Config. */
    takes("{" GPT2 "}");
    assert_int_equal(model.family, TL_FAMILY_GPT2);
    assert_int_equal(model.layers, 12);
    assert_int_equal(model.ff, 3072);
    assert_int_equal(model.head_size, 64);
    assert_int_equal(model.kv_heads, 12);
    assert_true(model.tied && model.learned_positions);
    assert_int_equal(model.activation, TL_GELU_TANH);
    assert_true(model.norm_epsilon == 1e-5 && model.dropout_attention == 0.1 && model.init_std == 0.02);
    assert_string_equal(model.source_ff.text, "4·D assumed by gpt2");
    assert_string_equal(model.source_width.text, "n_embd");
    assert_string_equal(model.source_head_size.text, "D/H");
    ASSUMED("n_inner absent: 4·n_embd = 3072");
    ASSUMED("tie_word_embeddings absent: true, assumed from gpt2");
    ASSUMED("layer_norm_epsilon absent");
    takes("{" GPT2 ",\"n_inner\":null}");
    assert_int_equal(model.ff, 3072);
    takes("{" GPT2 ",\"n_inner\":1000,\"tie_word_embeddings\":false,\"activation_function\":\"gelu\"}");
    assert_int_equal(model.ff, 1000);
    assert_string_equal(model.source_ff.text, "n_inner");
    assert_false(model.tied);
    assert_int_equal(model.activation, TL_GELU_ERF);
    takes("{" GPT2 ",\"activation_function\":\"relu\"}");
    assert_int_equal(model.activation, TL_RELU);
    takes("{" GPT2 ",\"activation_function\":\"gelu_pytorch_tanh\",\"resid_pdrop\":0,\"embd_pdrop\":0.0}");
    assert_int_equal(model.activation, TL_GELU_TANH);
    assert_true(model.dropout_residual == 0);
    /* GPT2Config's attribute_map takes the general names too. */
    takes("{\"model_type\":\"gpt2\",\"num_hidden_layers\":3,\"hidden_size\":8,\"num_attention_heads\":2,\"vocab_size\":"
          "9,\"n_ctx\":16}");
    assert_int_equal(model.layers, 3);
    assert_int_equal(model.context, 16);
    assert_string_equal(model.source_layers.text, "num_hidden_layers");
    ASSUMED("equal to n_ctx");
    takes("{" GPT2 ",\"n_ctx\":512}");
    assert_int_equal(model.context, 1024);
    IGNORED("n_ctx");
}

static void llama_says_what_it_assumed(void **state) {
    (void)state;
    /* Defaults of Hugging Face's LlamaConfig. */
    takes("{" LLAMA "}");
    assert_int_equal(model.family, TL_FAMILY_LLAMA);
    assert_int_equal(model.kv_heads, 4);
    assert_int_equal(model.head_size, 16);
    assert_true(model.gated && !model.tied && !model.learned_positions && !model.attention_bias && !model.mlp_bias);
    assert_true(model.rope_theta == 10000 && model.rope_factor == 0 && model.norm_epsilon == 1e-6);
    ASSUMED("num_key_value_heads absent: equal to heads, 4, assumed from llama");
    ASSUMED("rope_theta absent");
    ASSUMED("tie_word_embeddings absent: false");
    assert_string_equal(model.source_kv_heads.text, "H assumed by llama");
    /* head_dim that is not hidden_size ÷ heads */
    takes("{" LLAMA ",\"head_dim\":32,\"num_key_value_heads\":2,\"attention_bias\":true,\"mlp_bias\":true,\"rope_"
          "interleaved\":true}");
    assert_int_equal(model.head_size, 32);
    assert_int_equal(model.kv_heads, 2);
    assert_true(model.attention_bias && model.mlp_bias && model.rope_interleaved);
    assert_string_equal(model.source_head_size.text, "head_dim");
    takes("{" LLAMA ",\"head_dim\":null,\"num_key_value_heads\":null,\"rope_scaling\":null,\"quantization_config\":"
          "null,\"sliding_window\":null}");
    assert_int_equal(model.head_size, 16);
    /* whatever torch_dtype says, nothing changes */
    takes("{" LLAMA ",\"torch_dtype\":\"float16\",\"pretraining_tp\":2,\"use_cache\":false}");
    IGNORED("torch_dtype \"float16\"");
    IGNORED("pretraining_tp 2");
    takes("{" LLAMA ",\"architectures\":[\"LlamaForSequenceClassification\"],\"frobnicate\":7}");
    IGNORED("LlamaForSequenceClassification");
    IGNORED("frobnicate 7: no key of llama");
    takes("{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_"
          "heads\":4,"
          "\"intermediate_size\":172,\"vocab_size\":1000}");
    ASSUMED("model_type absent: llama");
    ASSUMED("max_position_embeddings absent: 2048");
}

/* Kinds whose angles depend on the length, or on a list. transformers' modeling_rope_utils.py; ntk: Peng et al. 2023, eq. 16. */
static void rope_by_length_and_by_list(void **state) {
    static const char lists[] = "\"short_factor\":[1,1,1,1,1.5,2,3,4.5],\"long_factor\":[2,2,2,2,3,4,5,6]";
    char text[640];
    (void)state;
    takes("{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}");
    assert_true(model.rope_scaling == TL_ROPE_DYNAMIC && model.rope_factor == 2 && model.rope_original_context == 128);
    assert_string_equal(model.not_computed, "");
    takes("{" LLAMA ",\"rope_scaling\":{\"type\":\"ntk\",\"factor\":4}}");
    assert_true(model.rope_scaling == TL_ROPE_NTK && model.rope_factor == 4);
    ASSUMED("rope_scaling ntk: the base times factor^(R/(R-2))");
    takes("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"proportional\",\"factor\":4}}");
    assert_true(model.rope_scaling == TL_ROPE_LINEAR && model.rope_factor == 4);
    takes("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"proportional\",\"rope_theta\":5000}}");
    assert_true(model.rope_scaling == TL_ROPE_PLAIN && model.rope_theta == 5000);
    refuses("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25}}",
            "built in for gemma4 alone");
    static const char *const names[] = {"longrope", "su", "yarn"}; /* the last two in Phi-3's first files */
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text,
                 "{" LLAMA ",\"rope_scaling\":{\"type\":\"%s\",%s},"
                 "\"original_max_position_embeddings\":32}",
                 names[i], lists);
        takes(text);
        assert_true(model.rope_scaling == TL_ROPE_LONGROPE && model.rope_factors == 8 && model.rope_short[7] == 4.5);
        assert_true(model.rope_long[0] == 2 && model.rope_original_context == 32 && model.rope_factor == 4);
        assert_string_equal(model.not_computed, "");
    }
    snprintf(text, sizeof text,
             "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"longrope\",%s,\"factor\":8,"
             "\"attention_factor\":1.25,\"original_max_position_embeddings\":16}}",
             lists);
    takes(text); /* transformers 5 */
    assert_true(model.rope_original_context == 16 && model.rope_factor == 8 && model.rope_attention_factor == 1.25);
    snprintf(text, sizeof text, "{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",%s}}", lists);
    takes(text);
    ASSUMED("original_max_position_embeddings absent: 128, the context");
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}",
            "\"rope_scaling.short_factor\" is missing");
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1,2]}}",
            "is not as long as short_factor");
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[2]}}",
            "has 1 factors in short_factor; 8 pairs of a head turn");
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[0],\"long_factor\":[2]}}",
            "holds at 0 what is no number above 0");
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":7,\"long_factor\":[2]}}",
            "it must be a list");
    takes("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":null,\"original_max_position_embeddings\":32}}");
    assert_true(model.rope_factor == 4);
    refuses("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":8,\"num_attention_heads\":4,"
            "\"intermediate_size\":8,"
            "\"vocab_size\":10,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}",
            "need two or more");
}

static void rope_scaling_is_read_noted_or_refused(void **state) {
    (void)state;
    takes("{" LLAMA
          ",\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
          "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}}");
    assert_true(model.rope_factor == 8 && model.rope_low_freq == 1 && model.rope_high_freq == 4);
    assert_true(model.rope_original_context == 8192 && model.rope_theta == 500000);
    takes("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":250000}}");
    assert_true(model.rope_theta == 250000);
    assert_string_equal(model.not_computed, "");
    takes("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}");
    assert_true(model.rope_scaling == TL_ROPE_LINEAR && model.rope_factor == 2 && model.not_computed[0] == '\0');
    takes("{" LLAMA
          ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32768}}");
    assert_true(model.rope_scaling == TL_ROPE_YARN && model.rope_factor == 4 && model.rope_original_context == 32768);
    assert_true(model.rope_beta_fast == 32 && model.rope_beta_slow == 1 && !model.rope_no_truncate);
    takes("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"beta_fast\":16,\"beta_slow\":2,\"mscale\":"
          "0.707,\"mscale_all_dim\":0.5,\"attention_factor\":1.5,\"truncate\":false}}");
    assert_true(model.rope_beta_fast == 16 && model.rope_beta_slow == 2 && model.rope_no_truncate);
    assert_true(model.rope_mscale == 0.707 && model.rope_mscale_all == 0.5 && model.rope_attention_factor == 1.5);
    assert_int_equal(model.rope_original_context, 128);
    ASSUMED("rope_scaling.original_max_position_embeddings absent: the context, 128");
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":1,\"beta_slow\":2}}",
            "beta_fast 1 must not be below beta_slow 2");
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\"}}", "\"rope_scaling.factor\" is missing");
    refuses("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}}",
            "llama turns whole heads");
    refuses("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"spiral\"}}", "\"rope_scaling.rope_type\" is \"spiral\"");
    refuses("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", "\"rope_scaling.factor\" is missing");
    refuses("{" LLAMA ",\"rope_scaling\":{\"factor\":2}}", "missing from rope_scaling");
    refuses("{" LLAMA ",\"rope_scaling\":7}", "must be an object");
    refuses("{" LLAMA ",\"rope_scaling\":{\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":3,"
            "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}}",
            "must not be below low_freq_factor");
    /* Llama 4 has both at 1 */
    takes("{" LLAMA ",\"rope_scaling\":{\"factor\":16,\"low_freq_factor\":1,\"high_freq_factor\":1,"
          "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}}");
    assert_true(model.rope_low_freq == 1 && model.rope_high_freq == 1);
}

static void text_inside_another_model(void **state) {
    (void)state;
    takes("{\"model_type\":\"llava\",\"vision_config\":{\"hidden_size\":1024},\"text_config\":{" LLAMA
          "},\"tie_word_embeddings\":true}");
    assert_int_equal(model.family, TL_FAMILY_LLAMA);
    assert_int_equal(model.width, 64);
    assert_true(model.tied);
    assert_string_equal(model.source_width.text, "text_config.hidden_size");
    ASSUMED("text_config of \"llava\": its text model alone");
    refuses("{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"mamba\"}}", "\"llava\" around \"mamba\"");
    refuses("{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\",\n\"hidden_size\":-1}}", "missing");
    refuses("{\"model_type\":\"llava\",\"text_config\":{" LLAMA ",\"head_dim\":-2}}", "\"text_config.head_dim\" is -2");
    refuses("{\"model_type\":\"llava\",\"quantization_config\":{\"bits\":4},\"text_config\":{" LLAMA "}}",
            "quantization_config");
    refuses("{\"model_type\":\"llava\",\"text_config\":[]}", "\"llava\"");
}

static void other_models_are_refused_by_name(void **state) {
    static const char *const families[] = {"mamba", "t5", "bert", "Llama", "gpt2 ", "glm4", "RefinedWeb", ""};
    char text[256], says[64];
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"hidden_size\":64}", families[i]);
        snprintf(says, sizeof says, "\"model_type\" is \"%s\"", families[i]);
        refuses(text, says);
        refuses(text, "this build plans gpt2, llama, mistral, ");
    }
    refuses("{}", "no \"model_type\"");
    refuses("{\"metadata\":{},\"weight_map\":{}}", "index of a checkpoint");
    refuses("{\"dim\":4096,\"n_layers\":32,\"n_heads\":32}", "params.json");
    refuses("{\"tokenizer_class\":\"LlamaTokenizer\"}", "tokenizer");
    refuses("{\"model_type\":7}", "\"model_type\" is 7; it must be a string");
    refuses("{\"model_type\":null}", "no \"model_type\"");
}

static void keys_that_change_the_model_are_refused(void **state) {
    static const struct {
        const char *base, *key, *value;
    } cases[] = {
        {GPT2, "add_cross_attention", "true"},
        {GPT2, "scale_attn_by_inverse_layer_idx", "true"},
        {GPT2, "reorder_and_upcast_attn", "true"},
        {GPT2, "scale_attn_weights", "false"},
        {GPT2, "quantization_config", "{\"quant_method\":\"gptq\"}"},
        {GPT2, "pruned_heads", "{\"0\":[1]}"},
        {GPT2, "activation_function", "\"tanh\""},
        {LLAMA, "quantization_config", "{\"quant_method\":\"bitsandbytes\"}"},
        {LLAMA, "hidden_act", "\"gelu\""},
        {LLAMA, "sliding_window", "4096"},
        {LLAMA, "layer_types", "[\"full_attention\",\"sliding_attention\"]"},
        {LLAMA, "num_local_experts", "8"},
        {LLAMA, "partial_rotary_factor", "0.5"},
        {LLAMA, "is_encoder_decoder", "true"},
        {LLAMA, "kv_lora_rank", "512"},
        {LLAMA, "qk_norm", "true"},
    };
    char text[1024], says[80];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{%s,\"%s\":%s}", cases[i].base, cases[i].key, cases[i].value);
        snprintf(says, sizeof says, "\"%s\"", cases[i].key);
        refuses(text, says);
    }
    takes("{" GPT2 ",\"add_cross_attention\":false,\"reorder_and_upcast_attn\":false,\"scale_attn_weights\":true,"
          "\"pruned_heads\":{}}");
    takes("{" LLAMA
          ",\"use_sliding_window\":false,\"sliding_window\":4096,\"partial_rotary_factor\":1.0,\"num_local_experts\":0,"
          "\"layer_types\":[\"full_attention\"]}");
}

static void bad_values_name_place_and_key(void **state) {
    static const struct {
        const char *value, *says;
    } cases[] = {
        {"0", "\"n_layer\" is 0; it must be at least 1"},
        {"-12", "\"n_layer\" is -12"},
        {"1.5", "\"n_layer\" is 1.5; it must be a whole number"},
        {"12.0", "\"n_layer\" is 12.0; it must be a whole number"},
        {"1e1", "\"n_layer\" is 1e1"},
        {"\"12\"", "\"n_layer\" is \"12\"; it must be a whole number"},
        {"true", "\"n_layer\" is true"},
        {"[12]", "\"n_layer\" is a list"},
        {"{}", "\"n_layer\" is an object"},
        {"null", "\"n_layer\" is missing; gpt2's default is 12"},
        {"Infinity", "\"n_layer\" is Infinity"},
        {"-Infinity", "\"n_layer\" is -Infinity"},
        {"NaN", "\"n_layer\" is NaN"},
        {"9223372036854775808", "\"n_layer\" is 9223372036854775808, beyond 64 bits"},
        {"-9223372036854775809", "beyond 64 bits"},
        {"1000000000000000019884624838656", "beyond 64 bits"},
        {"1e999", "\"n_layer\" is 1e999"},
        {"9223372036854775807", "9223372036854775807"},
        {"1025", "from 1 to 1024"},
    };
    char text[512];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(
            text, sizeof text,
            "{\n \"model_type\": \"gpt2\",\n \"n_layer\": %s, \"n_embd\": 768, \"n_head\": 12, \"vocab_size\": 50257}",
            cases[i].value);
        refuses(text, cases[i].says);
        if (strstr(cases[i].says, "missing") == NULL && strstr(cases[i].says, "from 1 to") == NULL &&
            strcmp(cases[i].value, "9223372036854775807") != 0)
            refuses(text, "x.json:3:13:");
    }
    refuses("{" GPT2 ",\"layer_norm_epsilon\":\"1e-5\"}",
            "\"layer_norm_epsilon\" is \"1e-5\"; it must be a finite number");
    refuses("{" GPT2 ",\"layer_norm_epsilon\":-1}", "from 0 to 1");
    refuses("{" GPT2 ",\"resid_pdrop\":1.0}", "resid_pdrop");
    refuses("{" GPT2 ",\"resid_pdrop\":NaN}", "\"resid_pdrop\" is NaN");
    refuses("{" GPT2 ",\"tie_word_embeddings\":\"yes\"}", "must be true or false");
    refuses("{" GPT2 ",\"tie_word_embeddings\":1}", "must be true or false");
    refuses("{" GPT2 ",\"n_inner\":0}", "\"n_inner\" is 0");
    refuses("{" GPT2 ",\"hidden_size\":64}", "two names of one size");
    refuses("{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":770,\"n_head\":12,\"vocab_size\":9}",
            "does not divide n_embd 770");
    refuses("{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":4611686018427387904,\"n_head\":1,\"vocab_size\":9}",
            "beyond 64 bits");
    refuses("{\"model_type\":\"gpt2\",\"n_layer\":1000,\"n_embd\":274877906944,\"n_head\":1,\"vocab_size\":9}",
            "63 bits");
    refuses("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"d_model\":64}",
            "\"d_model\" is another family's name; llama reads \"hidden_size\"");
    refuses("{\"model_type\":\"llama\",\"n_layer\":2}", "\"n_layer\" is another family's name");
    refuses("{" LLAMA ",\"num_key_value_heads\":3}", "does not divide num_attention_heads 4");
    refuses("{" LLAMA ",\"head_dim\":15}", "must be even");
    refuses("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":66,\"num_attention_heads\":4,"
            "\"intermediate_size\":172,"
            "\"vocab_size\":1000}",
            "does not divide hidden_size 66");
    refuses("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":60,\"num_attention_heads\":4,"
            "\"intermediate_size\":172,"
            "\"vocab_size\":1000}",
            "60/4 = 15");
    /* the same values under keys that do not matter */
    takes("{" GPT2
          ",\"model_max_length\":1000000000000000019884624838656,\"weird\":Infinity,\"list\":[NaN,-Infinity,1e999]}");
    IGNORED("weird Infinity");
    takes("{" GPT2 ",\"text\":\"Infinity, NaN and 99999999999999999999 \\\" NaN\"}");
}

static void hostile_text(void **state) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "empty"},
        {" \n\t ", "empty"},
        {"{", "half a download"},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 12,", "half a download"},
        {"{\"model_type\": \"gp", "x.json:1:"},
        {"{\"n_layer\":1,\"n_layer\":2}", "duplicate object key"},
        {"{\"a\":{\"b\":1,\"b\":1}}", "duplicate object key"},
        {"{\"a\":1,}", "not valid JSON"},
        {"{'a':1}", "not valid JSON"},
        {"{\"a\":01}", "not valid JSON"},
        {"{\"a\":00000000000000000000001}", "not valid JSON"},
        {"{\"a\":1.}", "not valid JSON"},
        {"{\"a\":.5}", "not valid JSON"},
        {"{\"a\":+1}", "not valid JSON"},
        {"{Infinity:1}", "not valid JSON"},
        {"{\"a\":1,NaN:1}", "not valid JSON"},
        {"{\"a\":Infinit}", "not valid JSON"},
        {"{\"a\":\"\\x\"}", "not valid JSON"},
        {"{\"a\":\"\\ud800\"}", "not valid JSON"},
        {"{\"a\":\"\\u0000\"}", "not valid JSON"},
        {"{\"a\":\"\xff\"}", "not valid JSON"},
        {"{\"a\":\"\x01\"}", "not valid JSON"},
        {"{\"a\":1} {\"b\":2}", "not valid JSON"},
        {"{\"a\":1}// comment", "not valid JSON"},
        {"[1,2]", "a JSON list"},
        {"\"gpt2\"", "no JSON object"},
        {"12", "no JSON object"},
        {"null", "no JSON object"},
        {"<!DOCTYPE html><html>", "HTML"},
        {"\n<HTML lang=en>", "HTML"},
        {"<?xml version='1.0'?>", "XML"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git-LFS pointer"},
        {"PK\3\4 archive", "zip"},
        {"GGUF\3", "GGUF"},
        {"\x80\x02}q\x01", "pickle"},
        {"\x80\x04\x95", "pickle"},
        {"\x1f\x8b\x08", "gzip"},
        {"\x93NUMPY\x01", "NumPy"},
        {"\x89HDF\r\n", "HDF5"},
        {"\x7f"
         "ELF\x02",
         "ELF"},
        {"\xff\xfe{", "UTF-16"},
        {"---\nlicense: mit\n", "YAML"},
        {"model_type: gpt2\n", "no JSON object"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuses(cases[i].text, cases[i].says);
    {
        /* safetensors: an 8-byte length, then the header; and a file with a NUL in it */
        char message[1024];
        const char safetensors[] = "\x02\0\0\0\0\0\0\0{}";
        const char binary[] = "ab\0cd";
        const char inside[] = "{\"a\":\0 1}";
        assert_int_equal(parse(safetensors, sizeof safetensors - 1, message), TL_ERR_FORMAT);
        assert_non_null(strstr(message, "safetensors"));
        assert_int_equal(parse(binary, sizeof binary - 1, message), TL_ERR_FORMAT);
        assert_non_null(strstr(message, "binary"));
        assert_int_equal(parse(inside, sizeof inside - 1, message), TL_ERR_FORMAT);
    }
    takes("\xef\xbb\xbf{" GPT2 "}"); /* a byte order mark is let through */
    refuses("{\"model_type\":\"\x1b[31mred\"}", "not valid JSON");
    refuses("{\"model_type\":\"\\u001b[31m\"}", "\\u001b[31m"); /* quoted as written, never sent to a terminal */
    refuses("{\n\"model_type\":\"gpt2\",\n\"n_layer\":12,\n  \"\\u006e_embd\":0,\"n_head\":1,\"vocab_size\":1}",
            "\"n_embd\" is there");
}

static size_t write_keys(char *text, size_t size, int count) {
    size_t used = (size_t)snprintf(text, size, "{%s", GPT2);
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, size - used, ",\"key%d\":%d", i, i);
    return used + (size_t)snprintf(text + used, size - used, "}");
}

static void size_and_depth_are_bounded(void **state) {
    size_t large = ((size_t)16 << 20) + 1, deep = 1000000, many = 1100000;
    char *text = malloc(large + 64), message[1024];
    (void)state;
    assert_non_null(text);
    memset(text, ' ', large);
    assert_int_equal(parse(text, large, message), TL_ERR_FORMAT);
    assert_non_null(strstr(message, "16 MiB"));
    /* {"a":[[[[… */
    memset(text, '[', deep);
    memcpy(text, "{\"a\":", 5);
    assert_int_equal(parse(text, deep, message), TL_ERR_FORMAT);
    assert_non_null(strstr(message, "nests"));
    for (size_t i = 0; i < deep; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    assert_int_equal(parse(text, deep, message), TL_ERR_FORMAT);
    assert_non_null(strstr(message, "nests"));
    memset(text, ',', many);
    memcpy(text, "{\"a\":", 5);
    assert_int_equal(parse(text, many, message), TL_ERR_FORMAT);
    assert_non_null(strstr(message, "values"));
    {
        /* 100,000 keys of no family: read in good time, and the notes say that there are more */
        size_t used = write_keys(text, large, 100000);
        assert_int_equal(parse(text, used, message), TL_OK);
        assert_int_equal(model.n_ignored, TL_MODEL_NOTES);
        assert_non_null(strstr(model.ignored[TL_MODEL_NOTES - 1], "more"));
    }
    /* a key and a value of a megabyte each: the message stays short */
    memset(text, 'k', (size_t)2 << 20);
    memcpy(text, "{\"model_type\":\"", 15);
    memcpy(text + ((size_t)2 << 20), "\"}", 2);
    assert_int_equal(parse(text, ((size_t)2 << 20) + 2, message), TL_ERR_UNSUPPORTED);
    assert_true(strlen(message) < 400);
    free(text);
}

/* ---- files ---- */

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tally-config-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static const char *at(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(at(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int remove_folder(void **state) {
    static const char *const names[] = {
        "gpt2-tiny.json", "Tiny-Llama/config.json", "Tiny-Llama", "empty", "fifo", "secret.json", "dir"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)remove(at(names[i]));
    return rmdir(folder);
}

static tl_status find(const char *name, char *message) {
    tl_error error = {0};
    tl_status status = tl_model_find(name, &model, &error);
    memcpy(message, error.message, sizeof error.message);
    return status;
}

static void models_are_found_by_name_file_and_folder(void **state) {
    char message[1024], path[300];
    (void)state;
    write_file("gpt2-tiny.json", "{" GPT2 "}");
    assert_int_equal(mkdir(at("Tiny-Llama"), 0700), 0);
    write_file("Tiny-Llama/config.json", "{" LLAMA "}");
    assert_int_equal(mkdir(at("dir"), 0700), 0);

    assert_int_equal(find("gpt2-xl", message), TL_OK);
    assert_string_equal(model.name, "gpt2-xl");
    assert_int_equal(find("meta-llama/Llama-3.1-8B", message), TL_OK);
    assert_string_equal(model.name, "llama-3.1-8b");
    assert_int_equal(find(at("gpt2-tiny.json"), message), TL_OK);
    assert_string_equal(model.name, "gpt2-tiny");
    assert_int_equal(find(at("Tiny-Llama"), message), TL_OK);
    assert_string_equal(model.name, "Tiny-Llama");
    snprintf(path, sizeof path, "%s/Tiny-Llama/", folder);
    assert_int_equal(find(path, message), TL_OK);
    assert_int_equal(find(at("Tiny-Llama/config.json"), message), TL_OK);
    assert_string_equal(model.name, "Tiny-Llama");

    assert_int_equal(find(at("dir"), message), TL_ERR_NOT_FOUND);
    assert_non_null(strstr(message, "folder without a config.json"));
    assert_int_equal(find(at("none.json"), message), TL_ERR_NOT_FOUND);
    assert_int_equal(find("gpt2-xxl", message), TL_ERR_NOT_FOUND);
    assert_non_null(strstr(message, "gpt2-xl"));
    assert_int_equal(find("", message), TL_ERR_ARGUMENT);
    assert_int_equal(find(NULL, message), TL_ERR_ARGUMENT);
    {
        char name[5000];
        memset(name, 'a', sizeof name - 1);
        name[sizeof name - 1] = '\0';
        assert_int_equal(find(name, message), TL_ERR_NOT_FOUND);
    }
}

static void files_that_are_none_are_named(void **state) {
    char message[1024];
    tl_error error = {0};
    (void)state;
    write_file("empty", "");
    assert_int_equal(find(at("empty"), message), TL_ERR_FORMAT);
    assert_non_null(strstr(message, "is empty"));
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(find(at("fifo"), message), TL_ERR_FORMAT); /* and does not wait for a writer */
    assert_non_null(strstr(message, "a FIFO"));
    assert_int_equal(find("/dev/zero", message), TL_ERR_FORMAT);
    assert_non_null(strstr(message, "character device"));
    assert_int_equal(find("/dev/null", message), TL_ERR_FORMAT);
    assert_int_equal(tl_config_read(folder, &model, &error), TL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "a folder"));
    assert_int_equal(find("/proc/self/exe", message), TL_ERR_FORMAT);
    assert_non_null(strstr(message, "ELF"));
    write_file("secret.json", "{" GPT2 "}");
    assert_int_equal(chmod(at("secret.json"), 0), 0);
    if (geteuid() != 0) {
        assert_int_equal(find(at("secret.json"), message), TL_ERR_IO);
        assert_non_null(strstr(message, "ermission"));
    }
    memset(&error, 0, sizeof error);
    assert_int_equal(tl_config_read("", &model, &error), TL_ERR_ARGUMENT);
}

static void every_description_given_is_read_or_refused_by_name(void **state) {
    const char *shared = getenv("TALLY_SHARED");
    char path[800];
    int read = 0;
    struct dirent *entry;
    DIR *dir;
    (void)state;
    snprintf(path, sizeof path, "%s/data/configs", shared != NULL ? shared : "../shared");
    dir = opendir(path);
    if (dir == NULL) {
        print_message("%s is not there: its descriptions not read\n", path);
        skip();
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        tl_error error = {0};
        tl_status status;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/data/configs/%s", shared != NULL ? shared : "../shared", entry->d_name);
        status = tl_config_read(path, &model, &error);
        if (status == TL_OK)
            read++;
        else
            fail_msg("%s", error.message);
        /* shapes of the two that models.csv has too, under the same names */
        if (strcmp(entry->d_name, "meta-llama--Meta-Llama-3.1-405B.json") == 0) {
            assert_true(model.layers == 126 && model.width == 16384 && model.heads == 128 && model.kv_heads == 8 &&
                        model.head_size == 128);
            assert_true(model.ff == 53248 && model.vocab == 128256 && model.context == 131072 && !model.tied &&
                        model.rope_factor == 8);
        }
        if (strcmp(entry->d_name, "openai-community--gpt2-medium.json") == 0)
            assert_true(model.layers == 24 && model.width == 1024 && model.heads == 16 && model.ff == 4096 &&
                        model.tied);
    }
    closedir(dir);
    assert_int_equal(read, 37); /* ls in the folder */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_says_what_it_assumed),
        cmocka_unit_test(llama_says_what_it_assumed),
        cmocka_unit_test(rope_scaling_is_read_noted_or_refused),
        cmocka_unit_test(rope_by_length_and_by_list),
        cmocka_unit_test(text_inside_another_model),
        cmocka_unit_test(other_models_are_refused_by_name),
        cmocka_unit_test(keys_that_change_the_model_are_refused),
        cmocka_unit_test(bad_values_name_place_and_key),
        cmocka_unit_test(hostile_text),
        cmocka_unit_test(size_and_depth_are_bounded),
        cmocka_unit_test(models_are_found_by_name_file_and_folder),
        cmocka_unit_test(files_that_are_none_are_named),
        cmocka_unit_test(every_description_given_is_read_or_refused_by_name),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
