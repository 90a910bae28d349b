/* Every family's small model computes the logits that PyTorch computed from the same weights, in float64 and float32; through a
 * cache as well, one token at a time; and its parameters are the published file's tensors, name by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "family_models.h"
#include "family_net.h"
#include "tally/cache.h"
#include "tally/config.h"

static tl_net *filled_net(tl_ctx *ctx, int index, tl_dtype dtype, const family_fixture *x) {
    tl_model m = family_model(index);
    return net_of(ctx, &m, dtype, x);
}

static void check_logits(tl_dtype dtype) {
    for (int i = 0; i < family_model_count(); i++) {
        tl_ctx *ctx = new_ctx();
        assert_non_null(ctx);
        tl_scope_begin(ctx);
        tl_model m = family_model(i);
        const family_fixture *x = fixture_of(m.name);
        tl_net *net = filled_net(ctx, i, dtype, x);
        compare(m.name, tl_dtype_name(dtype), ctx, tl_net_forward(net, tokens_of(ctx, 0, FAMILY_TOKENS)), 0,
                FAMILY_TOKENS, x->logits);
        tl_scope_end(ctx);
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
}

static void logits_are_pytorchs_f64(void **state) {
    (void)state;
    check_logits(TL_F64);
}

static void logits_are_pytorchs_f32(void **state) {
    (void)state;
    check_logits(TL_F32);
}

/* Five tokens at once, then one at a time. */
static void logits_through_a_cache(void **state) {
    (void)state;
    for (int i = 0; i < family_model_count(); i++) {
        tl_ctx *ctx = new_ctx();
        assert_non_null(ctx);
        tl_scope_begin(ctx);
        tl_model m = family_model(i);
        const family_fixture *x = fixture_of(m.name);
        tl_net *net = filled_net(ctx, i, TL_F64, x);
        tl_cache *cache =
            tl_cache_new(net, &(tl_cache_options){.batch = FAMILY_BATCH, .capacity = FAMILY_TOKENS, .dtype = TL_F64});
        if (!cache)
            fail_msg("%s: %s", m.name, tl_ctx_error(ctx)->message);
        compare(m.name, "cached", ctx, tl_net_forward_cached(net, cache, tokens_of(ctx, 0, 5), TL_LOGITS_ALL), 0, 5,
                x->logits);
        for (int t = 5; t < FAMILY_TOKENS; t++)
            compare(m.name, "cached", ctx, tl_net_forward_cached(net, cache, tokens_of(ctx, t, 1), TL_LOGITS_LAST), t,
                    1, x->logits);
        tl_scope_end(ctx);
        tl_cache_free(cache);
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
}

/* Gemma 4: layers 3 and 4 of 5 read the cache of layers 2 and 1. */
static void layers_that_share_keep_nothing(void **state) {
    (void)state;
    const family_fixture *x = fixture_of("gemma4");
    int i = 0;
    while (strcmp(family_model(i).name, "gemma4") != 0)
        i++;
    tl_ctx *ctx = new_ctx();
    assert_non_null(ctx);
    tl_scope_begin(ctx);
    tl_net *net = filled_net(ctx, i, TL_F64, x);
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){.batch = 3, .capacity = 7, .dtype = TL_F32});
    assert_non_null(cache);
    /* keys and values of one head: 8 wide in two layers that see 4 positions, 16 in a global one */
    assert_int_equal(tl_cache_bytes(cache), 2 * 3 * (4 * 8 + 7 * 16 + 4 * 8) * 4);
    assert_ptr_equal(tl_cache_key(cache, 3), tl_cache_key(cache, 2));
    assert_ptr_equal(tl_cache_value(cache, 4), tl_cache_value(cache, 1));
    assert_null(tl_net_find(net, "model.layers.3.self_attn.k_proj.weight"));
    tl_scope_end(ctx);
    tl_cache_free(cache);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void choose(tl_choices *choices, const char *const *ways, int count) {
    for (int i = 0; i < count && ways[i]; i++) {
        char name[64];
        tl_error error = {0};
        size_t length = strcspn(ways[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)length, ways[i]);
        if (tl_choice_set(choices, name, ways[i] + length + 1, &error) != TL_OK)
            fail_msg("%s: %s", ways[i], error.message);
    }
}

/* The same from the fixtures' config.json: what is read there is what is computed here. */
static void logits_of_what_config_says(void **state) {
    (void)state;
    int computed = 0;
    for (int i = 0; i < FAMILIES; i++) {
        tl_error error = {0};
        tl_model m;
        const family_fixture *x = &family_fixtures[i];
        tl_status status = tl_config_parse(x->config, strlen(x->config), x->name, &m, &error);
        if (status != TL_OK)
            fail_msg("%s: %s", x->name, error.message);
        if (m.not_computed[0])
            fail_msg("%s is not computed: %s", x->name, m.not_computed);
        tl_ctx *ctx = new_ctx();
        assert_non_null(ctx);
        tl_scope_begin(ctx);
        tl_net *net = net_of(ctx, &m, TL_F64, x);
        compare(x->name, "by its config", ctx, tl_net_forward(net, tokens_of(ctx, 0, FAMILY_TOKENS)), 0, FAMILY_TOKENS,
                x->logits);
        tl_scope_end(ctx);
        tl_net_free(net);
        tl_ctx_free(ctx);
        computed++;
    }
    assert_int_equal(computed, FAMILIES);
}

/* However a model is run, it is the same model: each choice that changes the order of operations gives PyTorch's logits. */
static void logits_with_choices(void **state) {
    (void)state;
    static const char *const ways[][4] = {
        {"attention=flash", "norm=composed", "glu=fused", "rotary=tables"},
        {"attention=math", "gelu=composed", "loss=full-fp32", NULL},
        {"mask-tensor=on", "clamp-scores=on", "repeat-kv=on", "attention-copies=on"},
    };
    int refused = 0, compared = 0;
    for (int i = 0; i < family_model_count(); i++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            tl_ctx *ctx = new_ctx();
            assert_non_null(ctx);
            tl_scope_begin(ctx);
            tl_model m = family_model(i);
            const family_fixture *x = fixture_of(m.name);
            tl_net *net = filled_net(ctx, i, TL_F64, x);
            tl_choices choices = {0};
            choose(&choices, ways[w], 4);
            if (tl_net_choose(net, &choices) == TL_OK) {
                compare(m.name, ways[w][0], ctx, tl_net_forward(net, tokens_of(ctx, 0, FAMILY_TOKENS)), 0,
                        FAMILY_TOKENS, x->logits);
                compared++;
            } else {
                assert_int_equal(tl_ctx_status(ctx), TL_ERR_UNSUPPORTED);
                refused++;
            }
            tl_scope_end(ctx);
            tl_net_free(net);
            tl_ctx_free(ctx);
        }
    print_message("%d of %d families and ways to run them compared\n", compared, compared + refused);
    assert_true(compared > 3 * refused);
}

/* With room for every token, places of a fixed number drop none: dropless and capacity are one function. */
static void experts_with_room_for_all(void **state) {
    (void)state;
    int compared = 0;
    for (int i = 0; i < family_model_count(); i++) {
        tl_model m = family_model(i);
        char factor[48];
        const char *way[] = {factor};
        if (m.experts == 0)
            continue;
        snprintf(factor, sizeof factor, "experts=capacity:%d", (int)m.experts); /* E·k·n/E ≥ n places each */
        tl_ctx *ctx = new_ctx();
        assert_non_null(ctx);
        tl_scope_begin(ctx);
        const family_fixture *x = fixture_of(m.name);
        tl_net *net = filled_net(ctx, i, TL_F64, x);
        tl_choices choices = {0};
        choose(&choices, way, 1);
        assert_int_equal(tl_net_choose(net, &choices), TL_OK);
        compare(m.name, factor, ctx, tl_net_forward(net, tokens_of(ctx, 0, FAMILY_TOKENS)), 0, FAMILY_TOKENS,
                x->logits);
        tl_scope_end(ctx);
        tl_net_free(net);
        tl_ctx_free(ctx);
        compared++;
    }
    assert_true(compared >= 10);
}

/* ---- int8 ---- */

/* scale = largest |w| ÷ 127 in f32, q the nearest even of w ÷ scale: what tally/cache.h says, done here by hand. */
static void round_rows(tl_tensor *t) {
    float *w = tl_tensor_data(t);
    int64_t rows = tl_tensor_size(t, 0), columns = tl_tensor_size(t, 1);
    for (int64_t r = 0; r < rows; r++, w += columns) {
        float largest = 0;
        for (int64_t c = 0; c < columns; c++)
            largest = fmaxf(largest, fabsf(w[c]));
        float scale = largest * (float)(1.0 / 127);
        for (int64_t c = 0; c < columns; c++)
            w[c] = nearbyintf(w[c] / scale) * scale;
    }
}

/* A net in int8 computes what one computes whose weights were rounded to int8 by hand; experts are not rounded. */
static void int8_is_rounded_weights(void **state) {
    (void)state;
    for (int i = 0; i < family_model_count(); i++) {
        double a[VALUES], b[VALUES], worst = 0;
        tl_ctx *ctx = new_ctx();
        assert_non_null(ctx);
        tl_scope_begin(ctx);
        tl_model m = family_model(i);
        const family_fixture *x = fixture_of(m.name);
        tl_net *narrow = filled_net(ctx, i, TL_F32, x), *by_hand = filled_net(ctx, i, TL_F32, x);
        assert_int_equal(tl_net_quantize_int8(narrow), TL_OK);
        const tl_parameter *list, *quantized;
        int count = tl_net_parameters(by_hand, &list), rounded = 0;
        assert_int_equal(tl_net_parameters(narrow, &quantized), count);
        for (int k = 0; k < count; k++) {
            bool matrix = tl_tensor_ndim(list[k].tensor) == 2 && !list[k].embedding;
            bool expected = matrix && !strstr(list[k].name, ".experts.");
            assert_int_equal(tl_tensor_dtype(quantized[k].tensor) == TL_I8, expected);
            if (expected)
                round_rows(list[k].tensor);
            rounded += expected;
        }
        assert_true(rounded >= (int)(3 * m.layers));
        tl_tensor *left = tl_net_forward(narrow, tokens_of(ctx, 0, FAMILY_TOKENS));
        tl_tensor *right = tl_net_forward(by_hand, tokens_of(ctx, 0, FAMILY_TOKENS));
        if (!left || !right)
            fail_msg("%s: %s", m.name, tl_ctx_error(ctx)->message);
        assert_int_equal(tl_tensor_read(tl_cast(left, TL_F64), a, sizeof a), TL_OK);
        assert_int_equal(tl_tensor_read(tl_cast(right, TL_F64), b, sizeof b), TL_OK);
        for (int k = 0; k < VALUES; k++)
            worst = fmax(worst, fabs(a[k] - b[k]));
        if (!(worst < 2e-4))
            fail_msg("%s: int8 differs from weights rounded by hand by %g", m.name, worst);
        tl_scope_end(ctx);
        tl_net_free(narrow);
        tl_net_free(by_hand);
        tl_ctx_free(ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_pytorchs_f64),    cmocka_unit_test(logits_are_pytorchs_f32),
        cmocka_unit_test(logits_through_a_cache),     cmocka_unit_test(layers_that_share_keep_nothing),
        cmocka_unit_test(logits_of_what_config_says), cmocka_unit_test(logits_with_choices),
        cmocka_unit_test(experts_with_room_for_all),  cmocka_unit_test(int8_is_rounded_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
