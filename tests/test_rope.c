/* Rotary positions under every scaling against PyTorch's numbers, forward and backward; and what a cache does where the length
 * passes the original one. fixtures/make_rope_fixtures.py names the papers and transformers' functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "family_net.h"
#include "tally/cache.h"
#include "tally/config.h"
#include "tally/grad.h"
#include "tally/infer.h"

#include "fixtures/rope_fixtures.h"

enum { TURNED = (int)(sizeof rope_fixtures / sizeof *rope_fixtures), ELEMENTS = ROPE_ROWS * ROPE_WIDTH };

static tl_tensor *given(tl_ctx *ctx, tl_dtype dtype, const char *name) {
    float values[ELEMENTS];
    family_weights_fill(values, ELEMENTS, name, 0, 1);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(1), tl_dim_of(1), tl_dim_of(ROPE_ROWS), tl_dim_of(ROPE_WIDTH));
    return tl_cast(tl_from_data(ctx, TL_F32, shape, TL_WORK, values, ELEMENTS), dtype);
}

static void near(const char *name, const char *what, tl_ctx *ctx, tl_tensor *x, const float *expected) {
    double values[ELEMENTS];
    if (!x)
        fail_msg("%s: %s", name, tl_ctx_error(ctx)->message);
    assert_int_equal(tl_tensor_read(tl_cast(x, TL_F64), values, sizeof values), TL_OK);
    for (int i = 0; i < ELEMENTS; i++)
        if (!(fabs(values[i] - (double)expected[i]) < 1e-5))
            fail_msg("%s, %s: element %d is %.9g, PyTorch's %.9g", name, what, i, values[i], (double)expected[i]);
}

/* Both formats; the gradient of Σ y·g is what turns g back. */
static void angles_are_pytorchs(void **state) {
    static const tl_dtype dtypes[] = {TL_F32, TL_F64};
    (void)state;
    for (int i = 0; i < 2 * TURNED; i++) {
        const rope_fixture *f = &rope_fixtures[i / 2];
        tl_ctx *ctx = new_ctx();
        assert_non_null(ctx);
        tl_scope_begin(ctx);
        tl_tensor *x = tl_copy(given(ctx, dtypes[i % 2], "rope.x")), *g = given(ctx, dtypes[i % 2], "rope.g");
        tl_tensor_require_grad(x, true);
        assert_int_equal(tl_record(ctx, true), TL_OK);
        tl_tensor *y = tl_rotary(x, &f->options);
        near(f->name, "forward", ctx, y, f->y);
        tl_tensor *loss = tl_sum(tl_mul(y, g), NULL, 0, false);
        assert_non_null(loss);
        assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
        near(f->name, "backward", ctx, tl_tensor_grad(x), f->dx);
        tl_scope_end(ctx);
        tl_ctx_free(ctx);
    }
}

/* The same account whatever turns, and the same checks, where there are no values. */
static void scalings_on_meta(void **state) {
    (void)state;
    tl_error error = {0};
    for (int i = 0; i < TURNED; i++) {
        tl_ctx *ctx = tl_ctx_new(NULL, &error);
        tl_scope_begin(ctx);
        tl_shape shape = TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(3), tl_dim_of(ROPE_ROWS), tl_dim_of(ROPE_WIDTH));
        tl_tensor *y = tl_rotary(tl_empty(ctx, TL_F32, shape, TL_WORK), &rope_fixtures[i].options);
        if (!y)
            fail_msg("%s: %s", rope_fixtures[i].name, tl_ctx_error(ctx)->message);
        assert_int_equal(tl_tensor_count(y), 2 * 3 * ELEMENTS);
        tl_scope_end(ctx);
        tl_ctx_free(ctx);
    }
}

static void refused(const tl_rotary_options *options, const char *says) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_scope_begin(ctx);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(ROPE_ROWS), tl_dim_of(ROPE_WIDTH));
    assert_null(tl_rotary(tl_empty(ctx, TL_F32, shape, TL_WORK), options));
    if (!strstr(tl_ctx_error(ctx)->message, says))
        fail_msg("\"%s\" is not in: %s", says, tl_ctx_error(ctx)->message);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
}

static void what_cannot_turn(void **state) {
    static const double zero[8] = {1, 1, 1, 0, 1, 1, 1, 1};
    tl_rotary_options o = {.theta = 10000, .scaling = TL_ROTARY_LONGROPE, .factor = 4, .original_context = 64};
    (void)state;
    refused(&o, "longrope has factors for 0 of 8 pairs");
    o.factors = 8;
    refused(&o, "one for each would work");
    o.short_factors = o.long_factors = zero;
    refused(&o, "longrope's factors of pair 3 are 0 and 0");
    o.short_factors = o.long_factors = rope_short;
    o.original_context = 1;
    refused(&o, "original context 1");
    o = (tl_rotary_options){.theta = 10000, .scaling = TL_ROTARY_DYNAMIC, .factor = 4};
    refused(&o, "dynamic scaling has factor 4, original context 0");
    o = (tl_rotary_options){.theta = 10000, .scaling = TL_ROTARY_NTK, .factor = 4, .rotated = 2};
    refused(&o, "2 elements that turn");
    o.scaling = TL_ROTARY_LONGROPE + 1;
    refused(&o, "is of kind 7; 0 to 6 would work");
}

/* ---- through a cache ---- */

static tl_model model_of(const char *name) {
    const family_fixture *x = fixture_of(name);
    tl_error error = {0};
    tl_model m;
    if (tl_config_parse(x->config, strlen(x->config), name, &m, &error) != TL_OK)
        fail_msg("%s", error.message);
    return m;
}

static tl_cache *cache_of(tl_net *net, int64_t batch, int64_t capacity) {
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){.batch = batch, .capacity = capacity, .dtype = TL_F64});
    assert_non_null(cache);
    return cache;
}

/* Beyond 8 positions each key keeps the base of the length it came at: PyTorch's numbers, and not those of the whole at once. */
static void dynamic_keeps_what_was_turned(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx();
    tl_scope_begin(ctx);
    const family_fixture *x = fixture_of("llama_dynamic");
    tl_model m = model_of("llama_dynamic");
    tl_net *net = net_of(ctx, &m, TL_F64, x);
    tl_cache *cache = cache_of(net, FAMILY_BATCH, FAMILY_TOKENS);
    assert_true(tl_cache_holds(cache, FAMILY_TOKENS));
    compare("dynamic", "prompt", ctx, tl_net_forward_cached(net, cache, tokens_of(ctx, 0, ROPE_PROMPT), TL_LOGITS_ALL),
            0, ROPE_PROMPT, rope_dynamic_cached);
    for (int t = ROPE_PROMPT; t < FAMILY_TOKENS; t++) {
        assert_true(tl_cache_holds(cache, 1));
        compare("dynamic", "cached", ctx, tl_net_forward_cached(net, cache, tokens_of(ctx, t, 1), TL_LOGITS_LAST), t, 1,
                rope_dynamic_cached);
    }
    double apart = 0;
    for (int i = 0; i < VALUES; i++)
        apart = fmax(apart, fabs((double)rope_dynamic_cached[i] - (double)x->logits[i]));
    assert_true(apart > 1e-2);
    tl_scope_end(ctx);
    tl_cache_free(cache);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* Within 8 positions the short factors, beyond them the long ones, of all positions: a cache that holds short ones says so, and
 * from 0 the whole gives PyTorch's logits. */
static void longrope_begins_anew(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx();
    tl_scope_begin(ctx);
    const family_fixture *x = fixture_of("phi3_longrope_long");
    tl_model m = model_of("phi3_longrope_long");
    tl_net *net = net_of(ctx, &m, TL_F64, x);
    tl_cache *cache = cache_of(net, FAMILY_BATCH, FAMILY_TOKENS);
    assert_true(tl_cache_holds(cache, FAMILY_TOKENS)); /* empty */
    assert_non_null(tl_net_forward_cached(net, cache, tokens_of(ctx, 0, 5), TL_LOGITS_LAST));
    assert_true(tl_cache_holds(cache, 3) && !tl_cache_holds(cache, 4));
    assert_non_null(tl_net_forward_cached(net, cache, tokens_of(ctx, 5, 3), TL_LOGITS_LAST));
    assert_false(tl_cache_holds(cache, 1));
    assert_int_equal(tl_cache_truncate(cache, 0), TL_OK);
    compare("longrope", "anew", ctx, tl_net_forward_cached(net, cache, tokens_of(ctx, 0, FAMILY_TOKENS), TL_LOGITS_ALL),
            0, FAMILY_TOKENS, x->logits);
    assert_int_equal(tl_cache_truncate(cache, 9), TL_OK); /* long ones: it goes on */
    for (int t = 9; t < FAMILY_TOKENS; t++)
        compare("longrope", "on", ctx, tl_net_forward_cached(net, cache, tokens_of(ctx, t, 1), TL_LOGITS_LAST), t, 1,
                x->logits);
    assert_int_equal(tl_cache_truncate(cache, 8), TL_OK);
    assert_null(tl_net_forward_cached(net, cache, tokens_of(ctx, 8, 1), TL_LOGITS_LAST));
    assert_int_equal(tl_ctx_status(ctx), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "pass the original context 8"));
    assert_int_equal(tl_cache_length(cache), 8);
    tl_scope_end(ctx);
    tl_cache_free(cache);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* The likeliest token behind `count` of them, the whole sequence at once. */
static int32_t likeliest(tl_ctx *ctx, tl_net *net, const int32_t *tokens, int count) {
    double values[16 * FAMILY_VOCAB];
    int32_t best = 0;
    tl_scope_begin(ctx);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(1), tl_dim_of(count));
    tl_tensor *logits = tl_net_forward(net, tl_from_data(ctx, TL_I32, shape, TL_DATA, tokens, count));
    assert_non_null(logits);
    assert_int_equal(tl_tensor_read(logits, values, (size_t)(count * FAMILY_VOCAB) * sizeof *values), TL_OK);
    const double *last = values + (count - 1) * FAMILY_VOCAB;
    for (int32_t i = 1; i < FAMILY_VOCAB; i++)
        best = last[i] > last[best] ? i : best;
    tl_scope_end(ctx);
    return best;
}

static bool keep(void *user, int64_t index, int32_t token) {
    ((int32_t *)user)[index] = token;
    return true;
}

/* Greedy text that passes the original context is that of whole sequences; the plan counts the same forwards and tokens. */
static void longrope_generates(void **state) {
    enum { PROMPT = 5, NEW = 9 };
    (void)state;
    int32_t tokens[16], made[NEW];
    tl_generation done;
    tl_infer_plan plan;
    tl_error error = {0};
    tl_ctx *ctx = new_ctx();
    tl_scope_begin(ctx);
    tl_model m = model_of("phi3_longrope_long");
    tl_net *net = net_of(ctx, &m, TL_F64, fixture_of("phi3_longrope_long"));
    tl_cache *cache = cache_of(net, 1, PROMPT + NEW - 1);
    memcpy(tokens, family_tokens, sizeof tokens[0] * PROMPT);
    tl_generate_options o = {
        .max_tokens = NEW, .end_id = -1, .sample = tl_sample_defaults(), .token = keep, .user = made};
    o.sample.temperature = 0;
    if (tl_generate(net, cache, tokens, PROMPT, &o, &done) != TL_OK)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    for (int i = 0; i < NEW; i++) {
        tokens[PROMPT + i] = likeliest(ctx, net, tokens, PROMPT + i);
        assert_int_equal(made[i], tokens[PROMPT + i]);
    }
    /* the 9th position is fed with the 8 before it */
    assert_int_equal(done.decode.forwards, NEW - 1);
    assert_int_equal(done.decode.tokens, NEW - 1 + 8);
    tl_infer_options planned = {.model = m,
                                .dtype = TL_F64,
                                .cache_dtype = TL_F64,
                                .prompt_tokens = PROMPT,
                                .new_tokens = NEW,
                                .capacity = PROMPT + NEW - 1,
                                .threads = 1};
    if (tl_infer_plan_make(&planned, &plan, &error) != TL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(plan.generation.decode.tokens, done.decode.tokens);
    assert_true(plan.generation.decode.matmul == done.decode.matmul);
    assert_int_equal(plan.generation.decode.peak_bytes, done.decode.peak_bytes);
    /* with positions in the cache that are not known here: up to the original context, and an error beyond */
    assert_int_equal(tl_cache_truncate(cache, 2), TL_OK);
    assert_int_equal(tl_generate(net, cache, tokens + 2, 3, &o, &done), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "the cache held 2 before the prompt"));
    tl_scope_end(ctx);
    tl_cache_free(cache);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(angles_are_pytorchs),  cmocka_unit_test(scalings_on_meta),
        cmocka_unit_test(what_cannot_turn),     cmocka_unit_test(dynamic_keeps_what_was_turned),
        cmocka_unit_test(longrope_begins_anew), cmocka_unit_test(longrope_generates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
