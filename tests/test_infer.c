/* Decoding through a cache of keys and values, and int8 weights: beside torch's recorded logits
 * (tests/fixtures/make_infer_fixtures.py), beside the forward without a cache, and the account beside the second instrument. */
#include "layers.h"

#include "fixtures/infer_fixtures.h"
#include "instrument.h"
#include "small_models.h"
#include "tally/cache.h"
#include "tally/ops_quantize.h"

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

static tl_model fixture_gpt2(void) {
    tl_model m = small_gpt2();
    m.width = 12;
    m.heads = m.kv_heads = 3;
    m.head_size = 4;
    m.ff = 20;
    m.vocab = 17;
    m.context = 16;
    return m;
}

static tl_model fixture_llama(void) {
    tl_model m = small_llama();
    m.width = 12;
    m.heads = 4;
    m.kv_heads = 2;
    m.head_size = 6; /* not 12 ÷ 4 */
    m.ff = 20;
    m.vocab = 19;
    return m;
}

/* The script's rule. */
static void fixture_weights(tl_net *net) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    for (int p = 0; p < count; p++) {
        double values[600];
        int64_t s = 0, n = tl_tensor_count(list[p].tensor);
        assert_true(n <= COUNT(values));
        for (const char *at = list[p].name; *at; at++)
            s += (unsigned char)*at;
        const char *dot = strrchr(list[p].name, '.');
        bool gain = strcmp(dot, ".weight") == 0 && (strstr(list[p].name, "norm.") || strstr(list[p].name, "ln_"));
        for (int64_t i = 0; i < n; i++)
            values[i] = (double)((13 * i * i + 7919 * i + 31 * s) % 2003 - 1001) / 1300 + gain;
        memcpy(tl_tensor_data(list[p].tensor), values, (size_t)n * sizeof *values);
    }
}

static tl_tensor *tokens_of(tl_ctx *ctx, const int32_t *tokens, int64_t batch, int64_t count) {
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(batch), tl_dim_of(count));
    return tl_from_data(ctx, TL_I32, shape, TL_DATA, tokens, batch * count);
}

static void check_fixture(tl_ctx *ctx, const tl_model *model, const double *logits, const int32_t *next, int steps) {
    tl_scope_begin(ctx);
    tl_net *net = tl_net_new(ctx, model, TL_F64);
    assert_non_null(net);
    fixture_weights(net);
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){.batch = 1, .capacity = 11, .dtype = TL_F64});
    int64_t n = COUNT(infer_prompt), V = model->vocab;
    tl_tensor *y = tl_net_forward_cached(net, cache, tokens_of(ctx, infer_prompt, 1, n), TL_LOGITS_ALL);
    check_close("prefill", y, logits, n * V, 1e-12);
    for (int step = 0; step < steps; step++) {
        int64_t best = -1;
        tl_tensor *last = tl_slice(y, 1, tl_tensor_size(y, 1) - 1, tl_dim_of(1), 1);
        assert_int_equal(tl_tensor_read(tl_argmax(last), &best, sizeof best), TL_OK);
        assert_int_equal(best, next[step]);
        y = tl_net_forward_cached(net, cache, tokens_of(ctx, &next[step], 1, 1), TL_LOGITS_LAST);
        check_close("decode", y, logits + (n + step) * V, V, 1e-12);
    }
    assert_int_equal(tl_cache_length(cache), n + steps);
    tl_cache_free(cache);
    tl_net_free(net);
    tl_scope_end(ctx);
}

static void test_against_torch(void **state) {
    (void)state;
    EACH(ctx) {
        tl_model gpt2 = fixture_gpt2(), llama = fixture_llama();
        check_fixture(ctx, &gpt2, infer_gpt2_logits, infer_gpt2_tokens, COUNT(infer_gpt2_tokens));
        check_fixture(ctx, &llama, infer_llama_logits, infer_llama_tokens, COUNT(infer_llama_tokens));
    }
}

static double *values_of(tl_tensor *t) {
    int64_t count = tl_tensor_count(t);
    double *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    assert_int_equal(tl_tensor_read(tl_cast(t, TL_F64), values, (size_t)count * sizeof *values), TL_OK);
    return values;
}

/* Prompt in one or two parts, the rest token by token: the logits of a forward without a cache. */
static void check_same(tl_ctx *ctx, const tl_model *model, tl_dtype dtype, int64_t B, int64_t T, int64_t first,
                       int64_t second, double tolerance) {
    int32_t tokens[64], part[64];
    tl_scope_begin(ctx);
    tl_net *net = tl_net_new(ctx, model, dtype);
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){.batch = B, .capacity = T, .dtype = dtype});
    assert_non_null(cache);
    for (int64_t i = 0; i < B * T; i++)
        tokens[i] = (int32_t)((7 * i * i + 3 * i + 5) % model->vocab);
    double *whole = values_of(tl_net_forward(net, tokens_of(ctx, tokens, B, T)));
    for (int64_t at = 0; at < T;) {
        int64_t n = at == 0 ? first : at == first && second ? second : 1, V = model->vocab;
        for (int64_t b = 0; b < B; b++)
            memcpy(part + b * n, tokens + b * T + at, (size_t)n * sizeof *part);
        double *y = values_of(tl_net_forward_cached(net, cache, tokens_of(ctx, part, B, n), TL_LOGITS_ALL));
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = 0; i < n * V; i++) {
                double expected = whole[(b * T + at) * V + i], found = y[b * n * V + i];
                if (!(fabs(found - expected) <= tolerance * (1 + fabs(expected))))
                    fail_msg("%s: position %lld: %.9g, without a cache %.9g", model->name, (long long)(at + i / V),
                             found, expected);
            }
        free(y);
        at += n;
    }
    free(whole);
    /* full: refused, and the cache is as it was */
    assert_null(tl_net_forward_cached(net, cache, tokens_of(ctx, tokens, B, 1), TL_LOGITS_LAST));
    check_fails(ctx, TL_ERR_ARGUMENT, "the cache is full");
    assert_int_equal(tl_cache_length(cache), T);
    tl_cache_free(cache);
    tl_net_free(net);
    tl_scope_end(ctx);
}

static void test_as_without(void **state) {
    (void)state;
    EACH(ctx) {
        tl_model gpt2 = small_gpt2(), llama = small_llama();
        for (int64_t first = 1; first <= 12; first += first < 4 ? 1 : 4) {
            check_same(ctx, &gpt2, TL_F64, 2, 12, first, 0, 1e-12);
            check_same(ctx, &llama, TL_F64, 2, 12, first, 0, 1e-12);
            check_same(ctx, &gpt2, TL_F32, 1, 12, first, 0, 2e-6);
            check_same(ctx, &llama, TL_F32, 1, 12, first, 0, 2e-6);
        }
        check_same(ctx, &llama, TL_F64, 3, 14, 5, 4, 1e-12); /* a prompt in two parts */
        check_same(ctx, &gpt2, TL_F64, 1, 20, 3, 7, 1e-12);  /* all learned positions */
        llama.rope_interleaved = true;
        llama.kv_heads = 1;
        llama.head_size = 10;
        check_same(ctx, &llama, TL_F64, 2, 9, 4, 0, 1e-12);
    }
}

/* 2·N·B·S·G·K·size: FAULTS.md, "KV cache sized by embedding ÷ heads". */
static void test_cache_bytes(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, true);
    static const struct {
        int64_t heads, groups, size;
    } shapes[] = {{4, 4, 8}, {4, 2, 8}, {4, 1, 12}, {2, 2, 10}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        tl_ctx *one = new_ctx(NULL, true);
        tl_model m = small_llama();
        m.heads = shapes[i].heads;
        m.kv_heads = shapes[i].groups;
        m.head_size = shapes[i].size;
        tl_net *net = tl_net_new(one, &m, TL_F32);
        tl_cache *cache = tl_cache_new(net, &(tl_cache_options){.batch = 3, .capacity = 50, .dtype = TL_BF16});
        int64_t expected = 2 * 2 * 3 * 50 * shapes[i].groups * shapes[i].size * 2;
        assert_int_equal(tl_cache_bytes(cache), expected);
        assert_int_equal(tl_ledger_live(one, TL_CACHE), expected);
        tl_cache_free(cache);
        assert_int_equal(tl_ledger_live(one, TL_CACHE), 0);
        tl_net_free(net);
        check_ok(one);
        tl_ctx_free(one);
    }
    /* GPT-2 small, 1024 positions in 16 bits: 2·12·1024·768·2 = 37,748,736 B (the arithmetic of its config.json) */
    tl_model gpt2;
    tl_error error = {TL_OK, ""};
    assert_int_equal(tl_catalogue_model("gpt2", &gpt2, &error), TL_OK);
    tl_net *net = tl_net_new(ctx, &gpt2, TL_BF16);
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){.batch = 1, .capacity = 1024, .dtype = TL_BF16});
    assert_int_equal(tl_cache_bytes(cache), 37748736);
    tl_cache_free(cache);
    assert_null(tl_cache_new(net, &(tl_cache_options){.batch = 1, .capacity = 1025, .dtype = TL_BF16}));
    check_fails(ctx, TL_ERR_ARGUMENT, "1024");
    assert_null(tl_cache_new(net, &(tl_cache_options){.batch = 0, .capacity = 5, .dtype = TL_BF16}));
    check_fails(ctx, TL_ERR_ARGUMENT, "1 or more");
    assert_null(tl_cache_new(net, &(tl_cache_options){.batch = 1, .capacity = 5, .dtype = TL_I8}));
    check_fails(ctx, TL_ERR_DTYPE, "i8");
    tl_net_free(net);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_torch),
        cmocka_unit_test(test_as_without),
        cmocka_unit_test(test_cache_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
