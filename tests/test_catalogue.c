/* The built-in models: names, shapes against the facts given, and what a description may not be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tally/model.h"
#include "tally/plan.h"

static tl_model get(const char *name) {
    tl_model model;
    tl_error error = {0};
    if (tl_catalogue_model(name, &model, &error) != TL_OK)
        fail_msg("%s: %s", name, error.message);
    return model;
}

static int index_of(const char *name) {
    for (int i = 0; i < tl_catalogue_count(); i++)
        if (strcmp(tl_catalogue_name(i), name) == 0)
            return i;
    fail_msg("%s is not in the catalogue", name);
    return -1;
}

static void every_row_is_a_model(void **state) {
    (void)state;
    assert_true(tl_catalogue_count() >= 40);
    for (int i = 0; i < tl_catalogue_count(); i++) {
        tl_model model = get(tl_catalogue_name(i));
        tl_error error = {0};
        assert_string_equal(model.name, tl_catalogue_name(i));
        assert_int_equal(tl_model_check(&model, &error), TL_OK);
        assert_true(tl_catalogue_note(i)[0] != '\0' && tl_catalogue_source(i)[0] != '\0');
        assert_null(strchr(tl_catalogue_note(i), '\n'));
        assert_true(tl_catalogue_parameters(i) >= 0);
        assert_true(model.source_layers.text[0] != '\0' && model.source_width.text[0] != '\0');
        assert_int_equal(model.n_assumed, 0);
        assert_int_equal(model.n_ignored, 0);
    }
    assert_null(tl_catalogue_name(-1));
    assert_null(tl_catalogue_name(tl_catalogue_count()));
    assert_null(tl_catalogue_note(tl_catalogue_count()));
    assert_null(tl_catalogue_source(-1));
    assert_int_equal(tl_catalogue_parameters(-1), 0);
}

static void names_come_in_every_spelling(void **state) {
    static const struct {
        const char *asked, *name;
    } cases[] = {
        {"gpt2", "gpt2"},
        {"GPT2-XL", "gpt2-xl"},
        {"openai-community/gpt2-medium", "gpt2-medium"},
        {"meta-llama/Llama-2-7b-hf", "llama-2-7b"},
        {"meta-llama/Meta-Llama-3.1-405B", "llama-3.1-405b"},
        {"Llama_3.1_8B", "llama-3.1-8b"},
        {"gpt3", "gpt3-175b"},
        {"gpt3-125m", "gpt3-small"},
        {"HuggingFaceTB/SmolLM2-135M", "smollm2-135m"},
        {"codellama/CodeLlama-34b-hf", "codellama-34b"},
        {"cruncher", "cruncher"},
        {"CS336-GPT2-XL-Ungated", "cs336-gpt2-xl-ungated"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(get(cases[i].asked).name, cases[i].name);
}

static void unknown_names_get_the_nearest(void **state) {
    static const struct {
        const char *asked, *says;
    } cases[] = {
        {"gpt2-xxl", "gpt2-xl"},          {"lama-3-8b", "llama-3-8b"}, {"llama-3.1-405", "llama-3.1-405b"},
        {"llama-2-7bb", "llama-2-7b"},    {"gpt-2", "gpt2"},           {"cs336-gpt2", "cs336-gpt2-"},
        {"zebra", "config.json"},         {"", "no model \"\""},       {"a/b/", "no model"},
        {"gpt2\n\x1b[31m", "gpt2??[31m"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_model model;
        tl_error error = {0};
        tl_status status = tl_catalogue_model(cases[i].asked, &model, &error);
        assert_int_equal(status, TL_ERR_NOT_FOUND);
        if (strstr(error.message, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].asked, error.message);
    }
    {
        tl_model model;
        tl_error error = {0};
        assert_int_equal(tl_catalogue_model(NULL, &model, &error), TL_ERR_NOT_FOUND);
    }
}

static void symbols_say_where_they_come_from(void **state) {
    /* UX.md: "F 6400 = 4·D assumed by gpt2" */
    tl_model xl = get("gpt2-xl"), eight = get("llama-3-8b"), one = get("llama-3.2-1b"), seven = get("llama-7b");
    (void)state;
    assert_int_equal(xl.ff, 6400);
    assert_string_equal(xl.source_ff.text, "4·D assumed by gpt2");
    assert_non_null(strstr(xl.source_layers.text, "n_layer"));
    assert_non_null(strstr(xl.source_width.text, "n_embd"));
    assert_non_null(strstr(xl.source_width.text, "catalogue"));
    assert_string_equal(xl.source_head_size.text, "D/H");
    assert_non_null(strstr(eight.source_kv_heads.text, "num_key_value_heads"));
    assert_string_equal(eight.source_head_size.text, "D/H");
    assert_non_null(strstr(one.source_head_size.text, "head_dim"));
    assert_non_null(strstr(seven.source_kv_heads.text, "H"));
}

static void cs336_rows_are_the_handouts_model(void **state) {
    /* cs336.md: 48 layers, 1600 wide, 25 heads, d_ff 6400; 2,127,057,600 gated and 1,635,537,600 ungated parameters; 8,256 in the
     * Cruncher of lecture 2. */
    tl_model xl = get("cs336-gpt2-xl"), ungated = get("cs336-gpt2-xl-ungated"), cruncher = get("cruncher");
    (void)state;
    assert_int_equal(xl.family, TL_FAMILY_LLAMA);
    assert_true(xl.gated && !xl.tied && xl.rope_interleaved && !xl.learned_positions && !xl.attention_bias &&
                !xl.mlp_bias);
    assert_int_equal(xl.layers, 48);
    assert_int_equal(xl.width, 1600);
    assert_int_equal(xl.heads, 25);
    assert_int_equal(xl.kv_heads, 25);
    assert_int_equal(xl.head_size, 64);
    assert_int_equal(xl.ff, 6400);
    assert_int_equal(xl.vocab, 50257);
    assert_int_equal(xl.context, 1024);
    assert_true(!ungated.gated && ungated.ff == 6400);
    assert_true(tl_catalogue_parameters(index_of("cs336-gpt2-small")) == 190460160);
    assert_true(tl_catalogue_parameters(index_of("cs336-gpt2-medium")) == 505629696);
    assert_true(tl_catalogue_parameters(index_of("cs336-gpt2-large")) == 1072469760);
    assert_true(tl_catalogue_parameters(index_of("cs336-gpt2-xl")) == 2127057600);
    assert_true(tl_catalogue_parameters(index_of("cs336-gpt2-xl-ungated")) == 1635537600);
    assert_int_equal(cruncher.family, TL_FAMILY_CRUNCHER);
    assert_int_equal(cruncher.width, 64);
    assert_int_equal(cruncher.layers, 2);
    assert_int_equal(tl_catalogue_parameters(index_of("cruncher")), 8256);
}

static void gpt3_rows_are_table_2_1(void **state) {
    /* arXiv:2005.14165 Table 2.1: layers, d_model, heads, head size; where it contradicts itself, see models/README.md */
    static const struct {
        const char *name;
        int layers, width, heads, head_size;
    } rows[] = {
        {"gpt3-small", 12, 768, 12, 64}, {"gpt3-medium", 24, 1024, 16, 64}, {"gpt3-large", 24, 1536, 16, 96},
        {"gpt3-xl", 24, 2048, 16, 128},  {"gpt3-2.7b", 32, 2560, 32, 80},   {"gpt3-6.7b", 32, 4096, 32, 128},
        {"gpt3-13b", 40, 5120, 40, 128}, {"gpt3-175b", 96, 12288, 96, 128},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tl_model model = get(rows[i].name);
        assert_int_equal(model.family, TL_FAMILY_GPT2);
        assert_int_equal(model.layers, rows[i].layers);
        assert_int_equal(model.width, rows[i].width);
        assert_int_equal(model.heads, rows[i].heads);
        assert_int_equal(model.head_size, rows[i].head_size);
        assert_int_equal(model.ff, 4 * rows[i].width);
        assert_int_equal(model.vocab, 50257);
        assert_int_equal(model.context, 2048);
        assert_true(model.tied && model.learned_positions);
    }
    assert_non_null(strstr(tl_catalogue_note(index_of("gpt3-13b")), "5140"));
    assert_non_null(strstr(tl_catalogue_note(index_of("gpt3-xl")), "24 heads"));
}

/* Splits a record of RFC 4180 in place; returns the number of fields. */
static int split(char *line, char *field[], int most) {
    int count = 0;
    char *from = line, *to = line;
    bool quoted = false;
    line[strcspn(line, "\r\n")] = '\0';
    field[count++] = to;
    for (; *from != '\0'; from++) {
        if (*from == '"')
            quoted = !quoted;
        else if (*from == ',' && !quoted && count < most) {
            *to++ = '\0';
            field[count++] = to;
        } else
            *to++ = *from;
    }
    *to = '\0';
    return count;
}

enum {
    NAME,
    LAYERS,
    WIDTH,
    HEADS,
    KV_HEADS,
    HEAD_SIZE,
    FF,
    VOCAB,
    TIED,
    GATED,
    NORM,
    NOTES,
    EXPERTS,
    PER_TOKEN,
    EXPERT_FF,
    SHARED_FF,
    COMPUTED,
    KNOWN,
    MATCH,
    ACTIVE,
    FIELDS
};

static void same_size(const char *model, const char *what, const char *text, int64_t value) {
    char *end;
    long long wanted = strtoll(text, &end, 10);
    if (end == text) /* "", or latent attention's sizes in words */
        return;
    if (wanted != value)
        fail_msg("%s: %s is %lld, not %lld", model, what, (long long)value, wanted);
}

static void one_fact(char *field[FIELDS]) {
    char asked[96];
    tl_parameter_count count;
    tl_error error = {0};
    snprintf(asked, sizeof asked, "%.95s", field[NAME]);
    asked[strcspn(asked, " ")] = '\0'; /* "Llama-4-Scout-17B-16E (text)" */
    tl_model model = get(asked);
    same_size(asked, "layers", field[LAYERS], model.layers);
    same_size(asked, "width", field[WIDTH], model.width);
    same_size(asked, "heads", field[HEADS], model.heads);
    same_size(asked, "key/value heads", field[KV_HEADS], model.kv_heads);
    same_size(asked, "head size", field[HEAD_SIZE], model.head_size);
    same_size(asked, "feed-forward", field[FF], model.ff);
    same_size(asked, "vocabulary", field[VOCAB], model.vocab);
    same_size(asked, "tied", field[TIED], model.tied);
    same_size(asked, "gated", field[GATED], model.gated);
    same_size(asked, "experts", field[EXPERTS], model.experts);
    same_size(asked, "experts of a token", field[PER_TOKEN], model.experts_per_token);
    same_size(asked, "expert feed-forward", field[EXPERT_FF], model.expert_ff);
    same_size(asked, "shared feed-forward", field[SHARED_FF], model.shared_ff);
    if (tl_plan_count(&model, &count, &error) != TL_OK)
        fail_msg("%s", error.message);
    same_size(asked, "the published count", field[KNOWN], tl_catalogue_parameters(index_of(model.name)));
    same_size(asked, "the count", field[KNOWN], count.unique);
    /* of the two that are not published, an independent closed form */
    same_size(asked, "the count", field[COMPUTED], count.unique);
    if (field[ACTIVE][0] != '\0')
        same_size(asked, "the active count", field[ACTIVE], count.active);
    else
        assert_true(count.active == count.unique);
}

static void shapes_and_counts_are_the_facts_given(void **state) {
    const char *shared = getenv("TALLY_SHARED");
    char path[512], line[1024];
    int rows = 0;
    FILE *file;
    (void)state;
    snprintf(path, sizeof path, "%s/data/models.csv", shared != NULL ? shared : "../shared");
    file = fopen(path, "r");
    if (file == NULL) {
        print_message("%s is not there: catalogue not compared with it\n", path);
        skip();
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        char *field[FIELDS + 2];
        if (line[0] == '#' || strncmp(line, "model,", 6) == 0)
            continue;
        if (split(line, field, FIELDS + 2) <= ACTIVE)
            fail_msg("%s: too few fields", line);
        one_fact(field);
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, 66);
}

/* The published counts, which stand in the rows as facts, are what the models hold when they run. */
static void published_counts_are_what_runs(void **state) {
    int published = 0;
    (void)state;
    for (int i = 0; i < tl_catalogue_count(); i++) {
        tl_model model = get(tl_catalogue_name(i));
        tl_parameter_count count;
        tl_error error = {0};
        if (tl_plan_count(&model, &count, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_true(count.active <= count.unique && (model.experts == 0) == (count.active == count.unique));
        if (tl_catalogue_parameters(i) == 0)
            continue;
        published++;
        if (count.unique != tl_catalogue_parameters(i))
            fail_msg("%s holds %lld, published %lld", model.name, (long long)count.unique,
                     (long long)tl_catalogue_parameters(i));
    }
    assert_true(published >= 90);
}

/* Gemma 4's text models: fixtures/count_gemma4.py adds up the modules of transformers' modeling_gemma4.py. With the encoders (about
 * 0.15 B for pictures and 0.3 B for sound in the small ones) these are the cards' 2.3 B effective and 5.1 B with embeddings, 4.5 B and
 * 8 B, 25.2 B and 3.8 B active. */
static void gemma4_counts_are_its_modules(void **state) {
    static const struct {
        const char *name;
        int64_t unique, effective, active;
    } rows[] = {{"gemma-4-e2b", 4628569379, 1877105955, 4628569379},
                {"gemma-4-e4b", 7463013418, 3973352490, 7463013418},
                {"gemma-4-26b-a4b", 25233141790, 24494944286, 3822530590}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tl_model model = get(rows[i].name);
        tl_parameter_count count;
        tl_error error = {0};
        if (tl_plan_count(&model, &count, &error) != TL_OK)
            fail_msg("%s", error.message);
        assert_int_equal(count.unique, rows[i].unique);
        assert_int_equal(count.non_embedding, rows[i].effective);
        assert_int_equal(count.active, rows[i].active);
    }
}

/* A row with one change, refused with a message that says so. */
#define REFUSES(base, change, says)                                                                                    \
    do {                                                                                                               \
        model = get(base);                                                                                             \
        memset(&error, 0, sizeof error);                                                                               \
        change;                                                                                                        \
        assert_int_not_equal(tl_model_check(&model, &error), TL_OK);                                                   \
        if (strstr(error.message, says) == NULL)                                                                       \
            fail_msg("%s", error.message);                                                                             \
    } while (0)

static void check_refuses_what_cannot_be_built(void **state) {
    tl_model model;
    tl_error error;
    (void)state;
    REFUSES("gpt2", model.layers = 0, "layers (N) is 0");
    REFUSES("gpt2", model.layers = -12, "layers (N) is -12");
    REFUSES("gpt2", model.layers = INT64_MAX, "9223372036854775807");
    REFUSES("gpt2", model.width = 770, "D = 770");
    REFUSES("gpt2", model.width = INT64_MIN, "width (D)");
    REFUSES("gpt2", model.head_size = 128, "12·128");
    REFUSES("gpt2", model.kv_heads = 4, "not 4 for 12");
    REFUSES("gpt2", model.learned_positions = false, "learned positions");
    REFUSES("gpt2", model.vocab = 0, "vocabulary (V)");
    REFUSES("gpt2", model.context = -1, "context (C)");
    REFUSES("gpt2", model.ff = 0, "feed-forward size (F)");
    REFUSES("gpt2", model.dropout_attention = 1, "dropout_attention");
    REFUSES("gpt2", model.dropout_residual = -0.1, "dropout_residual");
    REFUSES("gpt2", model.norm_epsilon = 0.0 / 0.0, "norm_epsilon");
    REFUSES("gpt2", model.init_std = 1.0 / 0.0, "init_std");
    REFUSES("gpt2", model.family = TL_FAMILY_COUNT, "is not built in");
    REFUSES("llama-3-8b", model.kv_heads = 5, "32 heads (H)");
    REFUSES("llama-3-8b", model.head_size = 127, "127 is odd");
    REFUSES("llama-3-8b", model.rope_theta = 0, "rope_theta");
    REFUSES("llama-3.1-8b", model.rope_high_freq = 0.5, "rope_high_freq");
    REFUSES("llama-3-8b", (model.vocab = INT64_C(1) << 40, model.width = INT64_C(1) << 40), "63 bits");
    REFUSES("llama-3-8b", model.context = INT64_C(1) << 32, "H·C²");
    REFUSES("cruncher", model.layers = 0, "layers (N)");
    REFUSES("cruncher", model.width = INT64_C(1) << 40, "63 bits");
    /* The largest known shapes pass with room: 405B at a context of ten million. */
    model = get("llama-3.1-405b");
    model.context = 10485760;
    memset(&error, 0, sizeof error);
    assert_int_equal(tl_model_check(&model, &error), TL_OK);
    assert_string_equal(tl_family_name(TL_FAMILY_GPT2), "gpt2");
    assert_string_equal(tl_family_name(TL_FAMILY_LLAMA), "llama");
    assert_string_equal(tl_family_name(TL_FAMILY_CRUNCHER), "cruncher");
    assert_string_equal(tl_family_name(TL_FAMILY_COUNT), "unknown");
}

static void each_field_is_refused_by_its_name(void **state) {
    tl_model model;
    tl_error error;
    (void)state;
    REFUSES("gemma-2-2b", model.window = 0, "window is 0");
    REFUSES("gemma-2-2b", model.layer[3] |= 256, "layer 3 has the unknown bits 256");
    REFUSES("gemma-2-2b", model.layer[0] |= TL_LAYER_CHUNKED, "layer 0 sees both a window and a chunk");
    REFUSES("gemma-2-2b", model.attention_softcap = -1, "attention_softcap");
    REFUSES("gemma-2-2b", model.query_scale = 0.0 / 0.0, "query_scale");
    REFUSES("gemma-2-2b", model.embedding_scale = 1.0 / 0.0, "embedding_scale");
    REFUSES("gemma-3-1b", model.rope_local_theta = 0, "rope_local_theta");
    REFUSES("gemma-3-4b", model.rope_factor = 0, "rope_factor is 0; it must be above 0");
    REFUSES("gemma-3-1b", model.place = (tl_norm_place)9, "place is 9; it must be from 0 to 5");
    REFUSES("gemma-3-1b", model.router = (tl_router)4, "router is 4");
    REFUSES("phi-2", model.rotary_size = 31, "rotary_size 31 is odd");
    REFUSES("phi-2", model.rotary_size = 82, "rotary_size is 82; it must be from 0 to the head size 80");
    REFUSES("bloom-560m", model.rotary_size = 2, "rotary_size is 2 without rotary positions");
    REFUSES("bloom-560m", model.layer[1] = TL_LAYER_NO_ROTARY, "layer 1 says how it turns");
    REFUSES("bloom-560m", model.learned_positions = true, "positions says another kind");
    REFUSES("opt-125m", model.position_offset = -1, "position_offset is -1");
    REFUSES("opt-350m", model.embedding_size = -512, "embedding_size is -512");
    REFUSES("llama-3-8b", model.position_offset = 2, "position_offset is 2 without learned positions");
    REFUSES("mixtral-8x7b", model.experts = 0, "experts (E) is 0");
    REFUSES("mixtral-8x7b", model.experts_per_token = 9, "experts_per_token (k) is 9");
    REFUSES("mixtral-8x7b", model.expert_ff = 0, "expert_ff (Fe) is 0");
    REFUSES("mixtral-8x7b", memset(model.layer, 0, sizeof model.layer), "no layer holds its 8 experts");
    REFUSES("mixtral-8x7b", model.shared_gate = true, "shared_gate gates nothing");
    REFUSES("mixtral-8x7b", model.correction_bias = true, "sigmoid router alone");
    REFUSES("mixtral-8x7b", model.expert_ff = INT64_C(1) << 40, "63 bits");
    REFUSES("llama-3-8b", model.expert_ff = 5, "mean nothing without experts");
    REFUSES("llama-4-scout", model.experts_per_token = 2, "sends a token to one expert, not to 2");
    REFUSES("llama-4-scout", model.temperature_floor = 0, "temperature_floor");
    REFUSES("deepseek-v3", model.router_groups = 7, "router_groups is 7; it must divide the 256 experts");
    REFUSES("deepseek-v3", model.router_top_groups = 9, "router_top_groups is 9; it must be from 1 to 8");
    REFUSES("deepseek-v3", model.experts_per_token = 129, "the chosen groups hold 128 experts");
    REFUSES("deepseek-v3", model.qk_rope = 63, "qk_rope 63 is odd");
    REFUSES("deepseek-v3", model.qk_nope = 0, "qk_nope is 0");
    REFUSES("deepseek-v3", model.head_size = 128, "not qk_nope + qk_rope = 128 + 64");
    REFUSES("deepseek-v3", model.kv_heads = 8, "G must be H = 128");
    REFUSES("deepseek-v3", model.kv_rank = 0, "mean nothing without a kv_rank");
    REFUSES("deepseek-v3", model.q_rank = INT64_C(1) << 40, "63 bits");
    REFUSES("deepseek-v3", model.rope_beta_fast = 0.5, "rope_beta_fast 0.5 must not be below rope_beta_slow 1");
    REFUSES("gpt-oss-20b", model.gated = false, "takes a gate");
    REFUSES("gpt-oss-20b", model.rope_original_context = 0, "rope_original_context");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_a_model),
        cmocka_unit_test(names_come_in_every_spelling),
        cmocka_unit_test(unknown_names_get_the_nearest),
        cmocka_unit_test(symbols_say_where_they_come_from),
        cmocka_unit_test(cs336_rows_are_the_handouts_model),
        cmocka_unit_test(gpt3_rows_are_table_2_1),
        cmocka_unit_test(shapes_and_counts_are_the_facts_given),
        cmocka_unit_test(published_counts_are_what_runs),
        cmocka_unit_test(gemma4_counts_are_its_modules),
        cmocka_unit_test(check_refuses_what_cannot_be_built),
        cmocka_unit_test(each_field_is_refused_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
