/* Caches of every family: layers that see a window hold that many positions, latent attention the vectors that keys and values are
 * made from. Beside the forward without a cache, beside shared/data/formulas.md ("KV cache: 2·L·g·d·bytes per token (MLA:
 * L·(rkv+dr)·bytes; sliding layers cap at window)"), and the account beside the second instrument. */
#include "layers.h"

#include "family_models.h"
#include "instrument.h"
#include "tally/cache.h"
#include "tally/infer.h"

enum { B = 2, T = 14 };

static double *values_of(tl_tensor *t) {
    int64_t count = tl_tensor_count(t);
    double *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    assert_int_equal(tl_tensor_read(tl_cast(t, TL_F64), values, (size_t)count * sizeof *values), TL_OK);
    return values;
}

static tl_tensor *tokens_of(tl_ctx *ctx, const int32_t *tokens, int64_t count) {
    return tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(count)), TL_DATA, tokens, B * count);
}

/* Positions in the parts given, the rest one by one. */
static void check_parts(tl_ctx *ctx, tl_net *net, const double *whole, const int32_t *tokens, const int *parts) {
    const tl_model *m = tl_net_model(net);
    int32_t part[B * T];
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){.batch = B, .capacity = T, .dtype = TL_F64});
    assert_non_null(cache);
    for (int64_t at = 0; at < T;) {
        const int64_t n = *parts ? *parts++ : 1, V = m->vocab;
        for (int64_t b = 0; b < B; b++)
            memcpy(part + b * n, tokens + b * T + at, (size_t)n * sizeof *part);
        tl_tensor *made = tl_net_forward_cached(net, cache, tokens_of(ctx, part, n), TL_LOGITS_ALL);
        if (!made)
            fail_msg("%s: %s", m->name, tl_ctx_error(ctx)->message);
        double *y = values_of(made);
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = 0; i < n * V; i++) {
                double expected = whole[(b * T + at) * V + i], found = y[b * n * V + i];
                if (!(fabs(found - expected) <= 1e-10 * (1 + fabs(expected))))
                    fail_msg("%s: position %lld: %.12g, without a cache %.12g", m->name, (long long)(at + i / V), found,
                             expected);
            }
        free(y);
        at += n;
    }
    tl_cache_free(cache);
}

static void cached_is_as_without(void **state) {
    static const int splits[][6] = {{1}, {5}, {14}, {3, 7}, {2, 2, 2, 2, 2}, {4, 1, 6}, {9, 5}, {6, 1, 1, 4}};
    int compared = 0;
    (void)state;
    for (int i = 0; i < family_model_count(); i++)
        for (int flash = 0; flash < 2; flash++) {
            tl_model m = family_model(i);
            if (m.learned_positions && m.context < T)
                continue;
            tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
            int32_t tokens[B * T];
            tl_scope_begin(ctx);
            tl_net *net = tl_net_new(ctx, &m, TL_F64);
            assert_non_null(net);
            tl_choices choices = {.attention = flash ? TL_ATTENTION_FLASH : TL_ATTENTION_EAGER};
            assert_int_equal(tl_net_choose(net, &choices), TL_OK);
            for (int k = 0; k < B * T; k++)
                tokens[k] = (int32_t)((7 * k * k + 3 * k + 5) % m.vocab);
            tl_tensor *uncached = tl_net_forward(net, tokens_of(ctx, tokens, T));
            if (!uncached)
                fail_msg("%s: %s", m.name, tl_ctx_error(ctx)->message);
            double *whole = values_of(uncached);
            for (size_t k = 0; k < sizeof splits / sizeof splits[0]; k++)
                check_parts(ctx, net, whole, tokens, splits[k]);
            free(whole);
            tl_scope_end(ctx);
            tl_net_free(net);
            check_ok(ctx);
            tl_ctx_free(ctx);
            compared++;
        }
    assert_true(compared >= 60);
}

/* The formula, layer by layer. */
static int64_t bytes_by_formula(const tl_model *m, int64_t batch, int64_t positions, int64_t size) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < m->layers; i++) {
        const bool window = (m->layer[i] & TL_LAYER_WINDOW) && m->window > 0 && m->window < positions;
        const bool wide = m->layer[i] & TL_LAYER_GLOBAL_HEADS;
        if (m->layer[i] & TL_LAYER_SHARED_KV) /* it reads another layer's */
            continue;
        const int64_t each = m->kv_rank > 0 ? m->kv_rank + m->qk_rope
                             : wide         ? 2 * m->global_kv_heads * m->global_head_size
                                            : 2 * m->kv_heads * m->head_size;
        bytes += batch * (window ? m->window : positions) * each * size;
    }
    return bytes;
}

static void bytes_are_the_formulas(void **state) {
    (void)state;
    for (int i = 0; i < family_model_count(); i++)
        for (int64_t positions = 2; positions <= 16; positions += 7) {
            tl_ctx *ctx = new_ctx(NULL, true);
            tl_model m = family_model(i);
            tl_net *net = tl_net_new(ctx, &m, TL_F32);
            tl_cache *cache = tl_cache_new(net, &(tl_cache_options){3, positions, TL_BF16});
            assert_non_null(cache);
            if (tl_cache_bytes(cache) != bytes_by_formula(&m, 3, positions, 2))
                fail_msg("%s, %lld positions: %lld B, by the formula %lld", m.name, (long long)positions,
                         (long long)tl_cache_bytes(cache), (long long)bytes_by_formula(&m, 3, positions, 2));
            assert_int_equal(tl_ledger_live(ctx, TL_CACHE), tl_cache_bytes(cache));
            tl_cache_free(cache);
            assert_int_equal(tl_ledger_live(ctx, TL_CACHE), 0);
            tl_net_free(net);
            tl_ctx_free(ctx);
        }
}

static void a_window_cannot_be_cut_back(void **state) {
    int32_t tokens[B * T] = {0};
    (void)state;
    for (int i = 0; i < family_model_count(); i++) {
        tl_model m = family_model(i);
        if (strcmp(m.name, "mistral") != 0)
            continue;
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_net *net = tl_net_new(ctx, &m, TL_F32);
        tl_cache *cache = tl_cache_new(net, &(tl_cache_options){B, T, TL_F32});
        tl_scope_begin(ctx);
        assert_non_null(tl_net_forward_cached(net, cache, tokens_of(ctx, tokens, 5), TL_LOGITS_LAST));
        assert_int_equal(tl_cache_truncate(cache, 3), TL_OK); /* its window, 5, holds them all */
        assert_non_null(tl_net_forward_cached(net, cache, tokens_of(ctx, tokens, 5), TL_LOGITS_LAST));
        assert_int_equal(tl_cache_truncate(cache, 8), TL_OK);
        assert_int_equal(tl_cache_truncate(cache, 6), TL_ERR_UNSUPPORTED);
        check_fails(ctx, TL_ERR_UNSUPPORTED, "see a window of 5 have let the first go");
        assert_int_equal(tl_cache_length(cache), 8);
        assert_int_equal(tl_cache_truncate(cache, 0), TL_OK);
        assert_non_null(tl_net_forward_cached(net, cache, tokens_of(ctx, tokens, 5), TL_LOGITS_LAST));
        tl_scope_end(ctx);
        tl_cache_free(cache);
        tl_net_free(net);
        tl_ctx_free(ctx);
        return;
    }
    fail_msg("no mistral among the families");
}

/* ---- planned = measured ---- */

typedef struct watched {
    instrument *i;
    int64_t forward;
    int64_t forwards[2], peak[2], allocations[2]; /* prefill, decode */
    tl_u128 matmul[2];
} watched;

static void end_forward(watched *w) {
    if (w->forward < 0)
        return;
    const int which = w->forward > 0;
    measured m = instrument_end(w->i);
    w->forwards[which]++;
    w->peak[which] = m.peak > w->peak[which] ? m.peak : w->peak[which];
    w->allocations[which] += m.allocations;
    w->matmul[which] += m.matmul;
    w->forward = -1;
}

static void begin_forward(void *user, int64_t forward) {
    watched *w = user;
    end_forward(w);
    w->forward = forward;
    instrument_begin(w->i);
}

static void check_planned(tl_infer_options o) {
    static const int32_t prompt[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    tl_error error = {TL_OK, ""};
    tl_infer_plan plan;
    tl_generation done;
    o.threads = 1;
    if (tl_infer_plan_make(&o, &plan, &error) != TL_OK)
        fail_msg("%s: %s", o.model.name, error.message);
    watched w = {.i = instrument_new(NULL), .forward = -1};
    tl_allocator allocator = instrument_allocator(w.i);
    tl_ctx_options c = {
        .kernels = instrument_kernels(w.i, tl_kernels_portable()), .allocator = &allocator, .threads = 1};
    tl_ctx *ctx = tl_ctx_new(&c, &error);
    tl_net *net = tl_net_new_lora(ctx, &o.model, o.dtype, NULL, &o.base);
    assert_non_null(net);
    assert_int_equal(tl_net_choose(net, &o.choices), TL_OK);
    if (o.int8)
        assert_int_equal(tl_net_quantize_int8(net), TL_OK);
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){1, o.capacity, o.cache_dtype});
    tl_generate_options g = {.max_tokens = o.new_tokens, .end_id = -1, .sample = {1, 5, 0.9, 3}};
    const int64_t before = instrument_live_bytes(w.i);
    g.begin = begin_forward;
    g.user = &w;
    assert_int_equal(tl_generate(net, cache, prompt, o.prompt_tokens, &g, &done), TL_OK);
    end_forward(&w);
    assert_int_equal(instrument_live_bytes(w.i), before);
    const tl_infer_counts *planned[2] = {&plan.generation.prefill, &plan.generation.decode};
    for (int k = 0; k < 2; k++)
        if (w.forwards[k] != planned[k]->forwards || w.peak[k] != planned[k]->peak_bytes ||
            w.allocations[k] != planned[k]->allocations || w.matmul[k] != planned[k]->executed)
            fail_msg("%s, %s: %lld, %lld, %lld, %lld planned; %lld, %lld, %lld, %lld measured", o.model.name,
                     k ? "decode" : "prefill", (long long)planned[k]->forwards, (long long)planned[k]->peak_bytes,
                     (long long)planned[k]->allocations, (long long)planned[k]->executed, (long long)w.forwards[k],
                     (long long)w.peak[k], (long long)w.allocations[k], (long long)w.matmul[k]);
    assert_int_equal(plan.cache_bytes,
                     bytes_by_formula(&o.model, 1, o.capacity, (int64_t)tl_dtype_bytes(o.cache_dtype)));
    tl_cache_free(cache);
    assert_int_equal(before - instrument_live_bytes(w.i), plan.cache_bytes);
    tl_net_free(net);
    tl_ctx_free(ctx);
    assert_int_equal(instrument_free(w.i), 0);
}

static void planned_is_measured(void **state) {
    static const struct {
        tl_dtype dtype, cache;
        bool int8;
        tl_lora_base base;
        tl_attention_code attention;
        int64_t prompt, tokens;
    } cases[] = {{TL_F32, TL_F32, false, TL_LORA_PLAIN, TL_ATTENTION_EAGER, 5, 6},
                 {TL_BF16, TL_BF16, false, TL_LORA_PLAIN, TL_ATTENTION_FLASH, 3, 8},
                 {TL_F32, TL_BF16, false, TL_LORA_PLAIN, TL_ATTENTION_EAGER, 9, 3},
                 {TL_F32, TL_F32, true, TL_LORA_PLAIN, TL_ATTENTION_EAGER, 7, 4},
                 {TL_F32, TL_F32, false, TL_LORA_NF4, TL_ATTENTION_FLASH, 6, 5}};
    int count = 0;
    (void)state;
    for (int i = 0; i < family_model_count(); i++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            tl_infer_options o = {.model = family_model(i), .dtype = cases[c].dtype, .int8 = cases[c].int8};
            o.cache_dtype = cases[c].cache;
            o.base.base = cases[c].base;
            o.choices.attention = cases[c].attention;
            o.prompt_tokens = cases[c].prompt;
            o.new_tokens = cases[c].tokens;
            o.capacity = o.prompt_tokens + o.new_tokens - 1;
            if (o.model.learned_positions && o.model.context < o.capacity)
                continue;
            check_planned(o);
            count++;
        }
    print_message("planned = measured on %d generations\n", count);
    assert_true(count >= 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_is_as_without),
        cmocka_unit_test(bytes_are_the_formulas),
        cmocka_unit_test(a_window_cannot_be_cut_back),
        cmocka_unit_test(planned_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
