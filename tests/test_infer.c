/* Decoding through a cache of keys and values, and int8 weights: beside torch's recorded logits
 * (tests/fixtures/make_infer_fixtures.py), beside the forward without a cache, and the account beside the second instrument. */
#include "layers.h"

#include "fixtures/infer_fixtures.h"
#include "instrument.h"
#include "small_models.h"
#include "family_models.h"
#include "tally/cache.h"
#include "tally/infer.h"
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
        double values[600] = {0};
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
    static const struct { int64_t heads, groups, size; } shapes[] = {{4, 4, 8}, {4, 2, 8}, {4, 1, 12}, {2, 2, 10}};
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

/* ---- planned = measured, by the second instrument ---- */

typedef struct watched {
    instrument *i;
    int64_t forward; /* the running one; −1: none */
    struct {
        int64_t forwards, peak, allocations;
        tl_u128 matmul;
    } part[2]; /* prefill, decode */
} watched;

static void end_forward(watched *w) {
    if (w->forward < 0)
        return;
    measured m = instrument_end(w->i);
    int which = w->forward > 0;
    w->part[which].forwards++;
    w->part[which].peak = m.peak > w->part[which].peak ? m.peak : w->part[which].peak;
    w->part[which].allocations += m.allocations;
    w->part[which].matmul += m.matmul;
    w->forward = -1;
}

static void begin_forward(void *user, int64_t forward) {
    watched *w = user;
    end_forward(w);
    w->forward = forward;
    instrument_begin(w->i);
}

static void check_counts(const char *what, const watched *w, int which, const tl_infer_counts *planned) {
    if (w->part[which].forwards != planned->forwards || w->part[which].peak != planned->peak_bytes ||
        w->part[which].allocations != planned->allocations || w->part[which].matmul != planned->executed)
        fail_msg("%s: %lld forwards, peak %lld, %lld allocations, %lld FLOPs planned; %lld, %lld, %lld, %lld measured",
                 what, (long long)planned->forwards, (long long)planned->peak_bytes, (long long)planned->allocations,
                 (long long)planned->executed, (long long)w->part[which].forwards, (long long)w->part[which].peak,
                 (long long)w->part[which].allocations, (long long)w->part[which].matmul);
}

static const int32_t any_prompt[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};

/* Values that a cache of this capacity holds. */
static int64_t kept_of(const tl_model *m, int64_t capacity) {
    int64_t values = 0;
    for (int64_t i = 0; i < m->layers; i++) {
        bool global = m->layer[i] & TL_LAYER_GLOBAL_HEADS;
        bool sees_part = m->layer[i] & TL_LAYER_WINDOW && m->window < capacity;
        if (!(m->layer[i] & TL_LAYER_SHARED_KV))
            values += 2 * (sees_part ? m->window : capacity) *
                      (global ? m->global_kv_heads * m->global_head_size : m->kv_heads * m->head_size);
    }
    return values;
}

static void check_planned(const tl_kernels *kernels, tl_infer_options o, int threads) {
    tl_error error = {TL_OK, ""};
    tl_infer_plan plan;
    o.threads = threads;
    if (tl_infer_plan_make(&o, &plan, &error) != TL_OK)
        fail_msg("%s", error.message);
    watched w = {.i = instrument_new(NULL), .forward = -1};
    tl_allocator allocator = instrument_allocator(w.i);
    tl_ctx_options c = {.kernels = instrument_kernels(w.i, kernels), .allocator = &allocator, .threads = threads};
    tl_ctx *ctx = tl_ctx_new(&c, &error);
    assert_non_null(ctx);
    tl_net *net = tl_net_new(ctx, &o.model, o.dtype);
    assert_int_equal(tl_net_choose(net, &o.choices), TL_OK);
    if (o.int8)
        assert_int_equal(tl_net_quantize_int8(net), TL_OK);
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){1, o.capacity, o.cache_dtype});
    assert_non_null(cache);
    int64_t before = instrument_live_bytes(w.i);
    tl_generate_options g = {.max_tokens = o.new_tokens, .end_id = -1, .sample = {1, 5, 0.9, 3}};
    g.begin = begin_forward;
    g.user = &w;
    tl_generation done;
    assert_int_equal(tl_generate(net, cache, any_prompt, o.prompt_tokens, &g, &done), TL_OK);
    end_forward(&w);
    assert_int_equal(instrument_live_bytes(w.i), before); /* the cache grows in place, and nothing is left behind */
    check_counts("prefill", &w, 0, &plan.generation.prefill);
    check_counts("decode", &w, 1, &plan.generation.decode);
    check_counts("prefill's ledger", &w, 0, &done.prefill);
    check_counts("decode's ledger", &w, 1, &done.decode);
    const tl_model *m = &o.model;
    int64_t bytes = kept_of(m, o.capacity) * tl_dtype_bytes(o.cache_dtype);
    assert_int_equal(plan.cache_bytes, bytes);
    assert_int_equal(plan.generation.decode.forwards ? plan.generation.decode.peak_by_category[TL_CACHE] : bytes,
                     bytes);
    tl_cache_free(cache);
    assert_int_equal(before - instrument_live_bytes(w.i), bytes);
    tl_net_free(net);
    tl_ctx_free(ctx);
    assert_int_equal(instrument_free(w.i), 0);
}

/* Gemma 4 with per-layer embeddings, and layers that keep no keys. */
static tl_model small_gemma4(void) {
    int i = 0;
    while (strcmp(family_model(i).name, "gemma4") != 0)
        i++;
    tl_model m = family_model(i);
    m.vocab = m.layer_input_vocab = small_llama().vocab;
    return m;
}

static void test_planned_is_measured(void **state) {
    (void)state;
    tl_error error = {TL_OK, ""};
    const tl_kernels *tables[] = {tl_kernels_portable(), tl_kernels_for_cpu(NULL, &error)};
    static const struct {
        tl_dtype dtype, cache;
        bool int8;
        int64_t prompt, tokens, spare;
        tl_attention_code attention;
    } cases[] = {
        {TL_F32, TL_F32, false, 5, 6, 0, TL_ATTENTION_EAGER},   {TL_F32, TL_F32, true, 5, 6, 0, TL_ATTENTION_EAGER},
        {TL_BF16, TL_BF16, false, 1, 9, 2, TL_ATTENTION_EAGER}, {TL_BF16, TL_BF16, true, 7, 4, 1, TL_ATTENTION_EAGER},
        {TL_F32, TL_BF16, false, 6, 5, 3, TL_ATTENTION_EAGER},  {TL_F64, TL_F64, false, 9, 1, 0, TL_ATTENTION_EAGER},
        {TL_F32, TL_F32, false, 5, 6, 0, TL_ATTENTION_FLASH},   {TL_BF16, TL_BF16, true, 7, 4, 1, TL_ATTENTION_FLASH}};
    int configurations = 0;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int family = 0; family < 4; family++)
            for (int k = 0; k < 2; k++) {
                tl_infer_options o = {.dtype = cases[c].dtype, .cache_dtype = cases[c].cache, .int8 = cases[c].int8};
                o.choices.attention = cases[c].attention;
                o.model = family == 0 ? small_gpt2() : family == 3 ? small_gemma4() : small_llama();
                if (family == 2)
                    o.model.head_size = 10; /* not D ÷ H */
                o.prompt_tokens = cases[c].prompt;
                o.new_tokens = cases[c].tokens;
                o.capacity = o.prompt_tokens + o.new_tokens - 1 + cases[c].spare;
                check_planned(tables[k], o, 1 + (int)(c % 2));
                configurations++;
            }
    print_message("planned = measured on %d generations\n", configurations);
}

/* A decoding step of a model of N layers reads each weight once: at least their bytes, the embedding's rows apart. */
static void test_bytes_of_a_step(void **state) {
    (void)state;
    tl_error error = {TL_OK, ""};
    tl_infer_plan plan;
    tl_infer_options o = {.dtype = TL_F32, .cache_dtype = TL_F32, .capacity = 20, .prompt_tokens = 10, .new_tokens = 2};
    o.model = small_llama();
    assert_int_equal(tl_infer_plan_make(&o, &plan, &error), TL_OK);
    int64_t table = o.model.vocab * o.model.width * 4;
    int64_t weights = plan.weights_bytes - table; /* untied: the table is a look-up, one row of it */
    /* keys and values of 11 positions, read by the two products; the scores and the rest are small */
    int64_t seen = 2 * o.model.layers * 11 * o.model.kv_heads * o.model.head_size * 4;
    int64_t read = (int64_t)plan.generation.decode.last_read;
    assert_true(read >= weights + seen);
    assert_true(read < weights + seen + weights / 2);
    /* 2 FLOPs a weight of the linear layers and the head, and 4·H·K·(positions seen) a layer (Kaplan et al. 2020, 2.1) */
    int64_t norms = (2 * o.model.layers + 1) * o.model.width;
    int64_t flops = 2 * (weights / 4 - norms) + 4 * o.model.layers * o.model.heads * o.model.head_size * 11;
    assert_int_equal((int64_t)plan.generation.decode.last_matmul, flops);
}

/* ---- generating ---- */

typedef struct heard {
    int32_t tokens[32];
    int64_t count, stop_at; /* 0: never */
} heard;

static bool hear(void *user, int64_t index, int32_t token) {
    heard *h = user;
    assert_int_equal(index, h->count);
    h->tokens[h->count++] = token;
    return h->count != h->stop_at;
}

/* Same seed, same text: on any threads, any table's own. Another sequence, another text. */
static void generate(const tl_kernels *kernels, int threads, uint64_t seed, uint64_t sequence, int32_t end,
                     int64_t stop_at, heard *h, tl_generation *done) {
    tl_error error = {TL_OK, ""};
    tl_ctx_options c = {.kernels = kernels, .threads = threads, .seed_init = 5};
    tl_ctx *ctx = tl_ctx_new(&c, &error);
    tl_model m = small_llama();
    tl_net *net = tl_net_new(ctx, &m, TL_F32);
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){1, 40, TL_F32});
    tl_generate_options g = {.max_tokens = 20, .end_id = end, .sample = {1, 0, 1, seed}, .sequence = sequence};
    g.token = hear;
    g.user = h;
    *h = (heard){.stop_at = stop_at};
    assert_int_equal(tl_generate(net, cache, any_prompt, 6, &g, done), TL_OK);
    assert_int_equal(done->new_tokens, h->count);
    assert_int_equal(tl_cache_length(cache), 6 + done->new_tokens - 1);
    tl_cache_free(cache);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void test_generating(void **state) {
    (void)state;
    tl_error error = {TL_OK, ""};
    const tl_kernels *best = tl_kernels_for_cpu(NULL, &error);
    heard a, b;
    tl_generation done;
    generate(best, 1, 7, 0, -1, 0, &a, &done);
    assert_int_equal(a.count, 20);
    assert_false(done.ended);
    for (int threads = 2; threads <= 8; threads += threads == 2 ? 1 : 5) {
        generate(best, threads, 7, 0, -1, 0, &b, &done);
        assert_memory_equal(a.tokens, b.tokens, sizeof a.tokens);
    }
    generate(best, 1, 8, 0, -1, 0, &b, &done);
    assert_memory_not_equal(a.tokens, b.tokens, sizeof a.tokens);
    generate(best, 1, 7, 1, -1, 0, &b, &done);
    assert_memory_not_equal(a.tokens, b.tokens, sizeof a.tokens);
    /* at the end of a text: the first time that its id is drawn */
    int64_t at = 4;
    for (int64_t i = 0; i < at; i++)
        if (a.tokens[i] == a.tokens[at])
            at = i;
    generate(best, 1, 7, 0, a.tokens[at], 0, &b, &done);
    assert_true(done.ended && b.count == at + 1);
    generate(best, 1, 7, 0, -1, 3, &b, &done); /* by the caller */
    assert_true(!done.ended && b.count == 3);
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_model m = small_gpt2();
    tl_net *net = tl_net_new(ctx, &m, TL_F32);
    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){1, 20, TL_F32});
    tl_generate_options g = {.max_tokens = 20, .end_id = -1, .sample = tl_sample_defaults()};
    assert_int_equal(tl_generate(net, cache, any_prompt, 2, &g, &done), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "need 21 positions; the cache has 20 left");
    g.max_tokens = 3;
    assert_int_equal(tl_generate(net, cache, (int32_t[]){1, 59}, 2, &g, &done), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "token 1 of the prompt is 59; the vocabulary has ids 0 to 58");
    assert_int_equal(tl_generate(net, cache, any_prompt, 0, &g, &done), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "1 or more");
    tl_cache_free(cache);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* ---- int8 ---- */

/* Whole activations, weights of −127 … 127 and scales that are powers of two make every sum exact in every format wide
 * enough: the product equals integer arithmetic, on every instruction set, for any rows, outputs and columns. */
static void test_int8_exactly(void **state) {
    (void)state;
    EACH(ctx) {
        for (int c = 0; c < 12; c++) {
            int64_t rows = (int64_t[]){1, 2, 3, 4, 5, 9}[c % 6], O = (int64_t[]){1, 5, 70}[c % 3],
                    I = (int64_t[]){1, 15, 16, 33, 100, 7}[c % 6];
            double x[9 * 100] = {0}, bias[70] = {0}, expected[9 * 70] = {0};
            int8_t q[70 * 100] = {0};
            float scale[70] = {0};
            for (int64_t i = 0; i < rows * I; i++)
                x[i] = (double)((i * 37 + c) % 15 - 7);
            for (int64_t i = 0; i < O * I; i++)
                q[i] = (int8_t)((i * i * 31 + 17 * i + c) % 255 - 127);
            for (int64_t o = 0; o < O; o++) {
                scale[o] = (float)(1.0 / (double)(1 << (o % 5)));
                bias[o] = (double)(o % 9 - 4);
            }
            for (int64_t r = 0; r < rows; r++)
                for (int64_t o = 0; o < O; o++) {
                    int64_t sum = 0;
                    for (int64_t i = 0; i < I; i++)
                        sum += (int64_t)x[r * I + i] * q[o * I + i];
                    expected[r * O + o] = (double)sum * (double)scale[o] + bias[o];
                }
            tl_scope_begin(ctx);
            tl_tensor *weight = tl_from_data(ctx, TL_I8, TL_SHAPE(ctx, tl_dim_of(O), tl_dim_of(I)), TL_PARAM, q, O * I);
            tl_tensor *s = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(O)), TL_PARAM, scale, O);
            for (int d = 0; d < 2; d++) {
                tl_dtype dtype = d ? TL_F64 : TL_F32;
                tl_tensor *in = tensor_of(ctx, dtype, x, 2, (int)rows, (int)I);
                tl_tensor *y = tl_linear_int8(in, weight, s, tensor_of(ctx, dtype, bias, 1, (int)O));
                check_close("int8 product", y, expected, rows * O, 0);
                in = tl_transpose(tl_contiguous(tl_transpose(in, 0, 1)), 0, 1); /* columns that lie apart */
                y = tl_linear_int8(in, weight, s, tensor_of(ctx, dtype, bias, 1, (int)O));
                check_close("int8 product of a transposed x", y, expected, rows * O, 0);
            }
            tl_scope_end(ctx);
        }
    }
}

/* |w − q·scale| ≤ scale/2 with scale = largest |w| of the row ÷ 127; the bytes are counted by hand. */
static void test_quantizing(void **state) {
    (void)state;
    for (int family = 0; family < 2; family++) {
        tl_model m = family ? small_llama() : small_gpt2();
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_net *net = tl_net_new(ctx, &m, TL_F32);
        const tl_parameter *list;
        int count = tl_net_parameters(net, &list);
        double *before[64] = {0};
        int64_t bytes = 0;
        for (int p = 0; p < count; p++) {
            int64_t n = tl_tensor_count(list[p].tensor);
            bool linear = strstr(list[p].name, "attn.") || strstr(list[p].name, "mlp.");
            linear = linear && strstr(list[p].name, "weight");
            bytes += linear ? n + 4 * tl_tensor_size(list[p].tensor, 0) : 4 * n;
            before[p] = linear ? values_of(list[p].tensor) : NULL;
        }
        assert_false(tl_net_is_quantized(net));
        assert_int_equal(tl_net_quantize_int8(net), TL_OK);
        assert_int_equal(tl_ledger_live(ctx, TL_PARAM), bytes);
        for (int p = 0; p < count; p++) {
            tl_tensor *scales = tl_net_scale(net, p);
            assert_true((before[p] != NULL) == (scales != NULL));
            if (!scales)
                continue;
            assert_int_equal(tl_tensor_dtype(list[p].tensor), TL_I8);
            double *q = values_of(list[p].tensor), *s = values_of(scales);
            int64_t rows = tl_tensor_size(list[p].tensor, 0), columns = tl_tensor_size(list[p].tensor, 1);
            for (int64_t r = 0; r < rows; r++) {
                double most = 0;
                for (int64_t i = 0; i < columns; i++)
                    most = fmax(most, fabs(before[p][r * columns + i]));
                assert_true(fabs(s[r] - most / 127) <= 1e-7 * most);
                for (int64_t i = 0; i < columns; i++)
                    assert_true(fabs(before[p][r * columns + i] - q[r * columns + i] * s[r]) <= s[r] * (0.5 + 1e-5));
            }
            free(q);
            free(s);
            free(before[p]);
        }
        assert_int_equal(tl_net_quantize_int8(net), TL_ERR_STATE);
        check_fails(ctx, TL_ERR_STATE, "int8 already");
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
}

/* Logits of the fixture's nets with int8 weights: each weight is off by at most 1/254 of its row's largest. Through two
 * layers the logits move by less than 5 % of their own spread (stated, not derived: a tighter bound is the test below). And
 * they equal, but for roundings, those of the same net whose weights were replaced by q·scale. */
static void test_int8_logits(void **state) {
    (void)state;
    EACH(ctx) {
        for (int family = 0; family < 2; family++) {
            tl_model m = family ? fixture_llama() : fixture_gpt2();
            const double *logits = family ? infer_llama_logits : infer_gpt2_logits;
            int64_t n = COUNT(infer_prompt), V = m.vocab;
            tl_net *net = tl_net_new(ctx, &m, TL_F64), *twin = tl_net_new(ctx, &m, TL_F64);
            fixture_weights(net);
            fixture_weights(twin);
            assert_int_equal(tl_net_quantize_int8(net), TL_OK);
            const tl_parameter *list, *other;
            int count = tl_net_parameters(net, &list);
            (void)tl_net_parameters(twin, &other);
            for (int p = 0; p < count; p++) {
                tl_tensor *scales = tl_net_scale(net, p);
                if (!scales)
                    continue;
                double *q = values_of(list[p].tensor), *s = values_of(scales), *w = tl_tensor_data(other[p].tensor);
                int64_t columns = tl_tensor_size(list[p].tensor, 1);
                for (int64_t i = 0; i < tl_tensor_count(list[p].tensor); i++)
                    w[i] = q[i] * s[i / columns];
                free(q);
                free(s);
            }
            double *y = values_of(tl_net_forward(net, tokens_of(ctx, infer_prompt, 1, n)));
            double *z = values_of(tl_net_forward(twin, tokens_of(ctx, infer_prompt, 1, n)));
            double mean = 0, spread = 0, error = 0;
            for (int64_t i = 0; i < n * V; i++)
                mean += logits[i] / (double)(n * V);
            for (int64_t i = 0; i < n * V; i++) {
                spread += (logits[i] - mean) * (logits[i] - mean);
                error += (y[i] - logits[i]) * (y[i] - logits[i]);
                assert_true(fabs(y[i] - z[i]) <= 1e-12 * (1 + fabs(z[i])));
            }
            assert_true(error > 0 && sqrt(error / spread) < 0.05);
            free(y);
            free(z);
            tl_net_free(net);
            tl_net_free(twin);
        }
    }
}

static void test_int8_refusals(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_model m = small_gpt2(), cruncher = small_cruncher();
    tl_net *net = tl_net_new(ctx, &m, TL_F32);
    ((float *)tl_tensor_data(tl_net_find(net, "h.1.mlp.c_fc.weight")))[3 * 24 + 5] = NAN;
    assert_int_equal(tl_net_quantize_int8(net), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "row 3 of h.1.mlp.c_fc.weight holds NaN");
    tl_net_free(net);
    net = tl_net_new(ctx, &cruncher, TL_F32);
    assert_int_equal(tl_net_quantize_int8(net), TL_ERR_UNSUPPORTED);
    check_fails(ctx, TL_ERR_UNSUPPORTED, "small cruncher");
    assert_null(tl_cache_new(net, &(tl_cache_options){1, 5, TL_F32}));
    check_fails(ctx, TL_ERR_UNSUPPORTED, "no attention");
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* ---- evaluating ---- */

static tl_status text_source(void *user, int64_t first, int64_t count, int32_t *ids, tl_error *error) {
    (void)error;
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)((first + i) * (first + i) * 7 % 61 % *(int64_t *)user);
    return TL_OK;
}

/* −Σ log softmax(logits)[target], by a forward of one window at a time, in double on the host. */
static double by_hand(tl_ctx *ctx, tl_net *net, int64_t tokens, int64_t seq, int64_t stride, int64_t *targets) {
    int64_t V = tl_net_model(net)->vocab, done = 0;
    double nats = 0;
    for (int64_t at = 0; done < tokens - 1; at += stride) {
        int32_t ids[64];
        int64_t length = tokens - 1 - at < seq ? tokens - 1 - at : seq;
        assert_int_equal(text_source(&V, at, length + 1, ids, NULL), TL_OK);
        double *logits = values_of(tl_net_forward(net, tokens_of(ctx, ids, 1, length)));
        for (int64_t i = 0; i < length; i++) {
            if (at + i < done)
                continue;
            double sum = exp(logits[i * V]);
            for (int64_t v = 1; v < V; v++)
                sum += exp(logits[i * V + v]);
            nats += log(sum) - logits[i * V + ids[i + 1]];
            done++;
        }
        free(logits);
    }
    *targets = done;
    return nats;
}

static void test_evaluating(void **state) {
    (void)state;
    static const struct {
        int64_t tokens, seq, stride, batch, windows;
    } cases[] = {{50, 8, 8, 3, 7}, {50, 8, 3, 4, 15}, {50, 8, 1, 5, 42}, {9, 8, 8, 2, 1},
                 {2, 8, 0, 1, 1},  {10, 8, 8, 2, 2},  {33, 8, 8, 64, 4}};
    EACH(ctx) {
        for (int family = 0; family < 2; family++) {
            tl_model m = family ? small_llama() : small_gpt2();
            int64_t V = m.vocab, targets = 0;
            tl_net *net = tl_net_new(ctx, &m, TL_F64);
            for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
                tl_eval_options o = {.seq = cases[c].seq, .stride = cases[c].stride, .batch = cases[c].batch};
                tl_evaluation r;
                int64_t stride = o.stride ? o.stride : o.seq;
                assert_int_equal(tl_evaluate(net, cases[c].tokens, text_source, &V, &o, &r), TL_OK);
                double expected = by_hand(ctx, net, cases[c].tokens, o.seq, stride, &targets);
                assert_int_equal(r.targets, cases[c].tokens - 1);
                assert_int_equal(r.targets, targets);
                assert_int_equal(r.windows, cases[c].windows);
                if (!(fabs(r.nats - expected) <= 1e-10 * expected))
                    fail_msg("case %d: %.15g nats, by hand %.15g", (int)c, r.nats, expected);
            }
            tl_net_free(net);
        }
    }
}

/* The loss has the same bits on any number of threads; and for any batch with the reference product. A library's product may
 * choose its kernel, and so the order of a sum, by the number of rows: there the batch moves the last bits. */
static void test_evaluating_bits(void **state) {
    (void)state;
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++) {
        double first[3] = {0};
        for (int threads = 1; threads <= 3; threads++)
            for (int64_t batch = 1; batch <= 9; batch += 4) {
                tl_error error = {TL_OK, ""};
                tl_ctx_options c = {.kernels = *kernels, .threads = threads, .seed_init = 3};
                tl_ctx *ctx = tl_ctx_new(&c, &error);
                tl_model m = small_llama();
                int64_t V = m.vocab;
                tl_net *net = tl_net_new(ctx, &m, TL_F32);
                tl_eval_options o = {.seq = 16, .batch = batch};
                tl_evaluation r;
                assert_int_equal(tl_evaluate(net, 300, text_source, &V, &o, &r), TL_OK);
                double *same = &first[*kernels == tl_kernels_portable() ? 0 : batch / 4];
                if (*same == 0)
                    *same = r.nats;
                assert_true(r.nats > 0 && memcmp(same, &r.nats, sizeof r.nats) == 0);
                assert_true(fabs(r.nats - first[0]) <= 1e-6 * first[0]);
                tl_net_free(net);
                tl_ctx_free(ctx);
            }
    }
}

/* Beside the logits, rows·V·4 bytes, there is never more than the log softmax of an eighth of the rows: a whole one would make it
 * twice as much. With a vocabulary this large all else together is less than a fourth of that eighth. */
static void test_evaluating_keeps_no_log_softmax(void **state) {
    (void)state;
    enum { SEQ = 16, BATCH = 8, VOCAB = 20000 };
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_model m = small_gpt2();
    m.vocab = VOCAB;
    tl_net *net = tl_net_new(ctx, &m, TL_F32);
    const int64_t before = tl_ledger_live_total(ctx), logits = (int64_t)SEQ * BATCH * VOCAB * 4;
    tl_eval_options o = {.seq = SEQ, .batch = BATCH};
    tl_evaluation r;
    assert_int_equal(tl_evaluate(net, SEQ * BATCH + 1, NULL, NULL, &o, &r), TL_OK);
    assert_in_range(r.counts.peak_bytes - before, logits + logits / 8, logits + logits / 8 + logits / 32);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void test_evaluating_refusals(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_model m = small_gpt2();
    int64_t V = 1000; /* ids the net does not have */
    tl_net *net = tl_net_new(ctx, &m, TL_F32);
    tl_evaluation r;
    static const struct {
        int64_t tokens;
        tl_eval_options o;
        const char *part;
    } bad[] = {{1, {.seq = 8, .batch = 1}, "nothing to foretell"},
               {0, {.seq = 8, .batch = 1}, "nothing to foretell"},
               {9, {.seq = 21, .batch = 1}, "20 positions"},
               {9, {.seq = 8, .batch = 0}, "1 or more"},
               {9, {.seq = 8, .stride = 9, .batch = 1}, "stride"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tl_evaluate(net, bad[i].tokens, text_source, &V, &bad[i].o, &r), TL_ERR_ARGUMENT);
        check_fails(ctx, TL_ERR_ARGUMENT, bad[i].part);
    }
    tl_eval_options o = {.seq = 8, .batch = 2};
    assert_int_not_equal(tl_evaluate(net, 50, text_source, &V, &o, &r), TL_OK); /* 60 is no id of 59 */
    assert_int_not_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_clear_error(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_torch),       cmocka_unit_test(test_as_without),
        cmocka_unit_test(test_cache_bytes),         cmocka_unit_test(test_planned_is_measured),
        cmocka_unit_test(test_bytes_of_a_step),     cmocka_unit_test(test_generating),
        cmocka_unit_test(test_int8_exactly),        cmocka_unit_test(test_quantizing),
        cmocka_unit_test(test_int8_logits),         cmocka_unit_test(test_int8_refusals),
        cmocka_unit_test(test_evaluating),          cmocka_unit_test(test_evaluating_bits),
        cmocka_unit_test(test_evaluating_refusals), cmocka_unit_test(test_evaluating_keeps_no_log_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
