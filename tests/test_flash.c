/* Flash attention beside torch (tests/fixtures/make_flash_fixtures.py), beside tl_attention over many blocks, and its account: the
 * bytes it saves, the FLOPs it counts and those it executes, the same bits on any number of threads, what it refuses. */
#include "layers.h"

#include "fixtures/flash_fixtures.h"
#include "instrument.h"
#include "instrument_elements.h"
#include "tally/meter.h"
#include "tally/op.h"
#include "tally/ops_attention.h"
#include "tally/ops_layers.h"

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

#define PLAIN .window_before = -1

/* ---- beside torch ---- */

typedef struct torch_case {
    const double *y, *dq, *dk, *dv, *dsinks;
    bool sinks, slopes;
    tl_flash_options o;
} torch_case;

#define TORCH(n) flash_##n##_y, flash_##n##_dq, flash_##n##_dk, flash_##n##_dv, flash_##n##_dsinks
static const torch_case torch_cases[] = {
    {TORCH(0), false, false, {PLAIN}},
    {TORCH(1), false, false, {PLAIN, .causal = true, .offset = 2, .softcap = 1.5}},
    {TORCH(2), true, false, {.causal = true, .window_before = 2, .offset = 1, .scale = 0.75}},
    {TORCH(3), true, true, {PLAIN, .causal = true, .chunk = 3, .softcap = 2}},
    {TORCH(4), false, false, {PLAIN, .chunk = 2, .offset = 1}},
    {TORCH(5), true, false, {.causal = true, .window_before = 1, .offset = 5}},
    {TORCH(6), false, false, {.causal = true, .window_before = 1, .offset = 4}},
    {TORCH(7), false, true, {.window_before = 3, .offset = 2}},
};

static void test_against_torch(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_F64, TL_F32};
    EACH(ctx)
    for (size_t i = 0; i < sizeof torch_cases / sizeof *torch_cases; i++)
        for (int d = 0; d < 2; d++) {
            const torch_case *c = &torch_cases[i];
            double tolerance = d == 0 ? 1e-12 : 3e-6;
            tl_scope_begin(ctx);
            tl_record(ctx, true);
            tl_tensor *q = leaf_of(tensor_of(ctx, dtypes[d], flash_q, 4, 2, 4, 5, 3));
            tl_tensor *k = leaf_of(tensor_of(ctx, dtypes[d], flash_k, 4, 2, 2, 7, 3));
            tl_tensor *v = leaf_of(tensor_of(ctx, dtypes[d], flash_v, 4, 2, 2, 7, 4));
            tl_tensor *sinks = leaf_of(tensor_of(ctx, dtypes[d], flash_sinks, 1, 4));
            tl_flash_options o = c->o;
            o.sinks = c->sinks ? sinks : NULL;
            o.slopes = c->slopes ? tensor_of(ctx, TL_F32, flash_slopes, 1, 4) : NULL;
            tl_tensor *y = tl_flash_attention(q, k, v, &o);
            check_close("y", y, c->y, COUNT(flash_g), tolerance);
            backward_with(y, tensor_of(ctx, dtypes[d], flash_g, 4, 2, 4, 5, 4));
            check_close("dq", tl_tensor_grad(q), c->dq, COUNT(flash_q), tolerance);
            check_close("dk", tl_tensor_grad(k), c->dk, COUNT(flash_k), tolerance);
            check_close("dv", tl_tensor_grad(v), c->dv, COUNT(flash_v), tolerance);
            if (c->sinks)
                check_close("dsinks", tl_tensor_grad(sinks), c->dsinks, 4, tolerance);
            tl_tape_clear(ctx);
            tl_scope_end(ctx);
        }
}

/* Case 6: positions 7 and 8 of 7 keys with a window of one column back; the last row sees nothing. */
static void test_rows_that_see_nothing(void **state) {
    (void)state;
    static const double zeros[4];
    for (int row = 0; row < 2 * 4 * 5; row++)
        if (row % 5 == 4)
            for (int i = 0; i < 4; i++)
                assert_true(flash_6_y[row * 4 + i] == 0);
    EACH(ctx) {
        tl_record(ctx, true);
        tl_tensor *q = leaf_of(tensor_of(ctx, TL_F32, flash_q, 4, 1, 1, 2, 3));
        tl_tensor *k = leaf_of(tensor_of(ctx, TL_F32, flash_k, 4, 1, 1, 3, 3));
        tl_tensor *v = leaf_of(tensor_of(ctx, TL_F32, flash_v, 4, 1, 1, 3, 2));
        tl_flash_options o = {.causal = true, .offset = 9, .window_before = 2};
        tl_tensor *y = tl_flash_attention(q, k, v, &o);
        check_close("y", y, zeros, 4, 0);
        backward_with(y, tensor_of(ctx, TL_F32, flash_g, 4, 1, 1, 2, 2));
        static const double none[9];
        check_close("dq", tl_tensor_grad(q), none, 6, 0);
        check_close("dk", tl_tensor_grad(k), none, 9, 0);
        check_close("dv", tl_tensor_grad(v), none, 6, 0);
        tl_tape_clear(ctx);
    }
}

/* ---- beside tl_attention: scores, softmax and values as three ops, the rest as a mask ---- */

typedef struct sizes {
    int b, h, g, t, s, k, l;
} sizes;

typedef struct problem {
    sizes n;
    double *q, *k, *v, *dy, *sinks, *slopes; /* q [B,T,H,K] and so on, as a projection leaves them */
    double *y, *dq, *dk, *dv, *dsinks;       /* expected, [B,H,T,·] */
} problem;

static double *draw(uint64_t *seed, int64_t n) {
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)(tl_sample_below(seed, 513) - 256) / 128;
    return x;
}

static double *read_values(tl_tensor *t) {
    int64_t n = tl_tensor_count(t);
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    assert_int_equal(tl_tensor_read(tl_cast(t, TL_F64), x, (size_t)n * sizeof *x), TL_OK);
    return x;
}

static bool sees(const tl_flash_options *o, int64_t i, int64_t j) {
    int64_t p = i + o->offset;
    return (!o->causal || j <= p) && (o->window_before < 0 || j >= p - o->window_before) &&
           (o->chunk == 0 || j / o->chunk == p / o->chunk);
}

/* −inf where hidden, slope·(j − p) elsewhere; a last column for the sinks. */
static double *mask_of(const problem *p, const tl_flash_options *o, bool sinks, bool slopes) {
    int width = p->n.s + sinks;
    double *m = malloc((size_t)(p->n.h * p->n.t * width + 1) * sizeof *m);
    assert_non_null(m);
    for (int h = 0; h < p->n.h; h++)
        for (int i = 0; i < p->n.t; i++)
            for (int j = 0; j < width; j++) {
                double *to = &m[(h * p->n.t + i) * width + j];
                double bias = slopes ? p->slopes[h] * (double)(j - (i + o->offset)) : 0;
                *to = j == p->n.s ? p->sinks[h] : sees(o, i, j) ? bias : -INFINITY;
            }
    return m;
}

static tl_tensor *heads_of(tl_ctx *ctx, tl_dtype dtype, const double *x, int b, int t, int h, int size) {
    return tl_transpose(tensor_of(ctx, dtype, x, 4, b, t, h, size), 1, 2);
}

/* Fills in what tl_attention says in f64 (itself held against torch in test_attention.c). */
static void solve(problem *p, const tl_flash_options *o, bool sinks, bool slopes) {
    const sizes *n = &p->n;
    tl_error error = {0};
    tl_ctx *ctx = new_ctx(tl_kernels_for_cpu(NULL, &error), false);
    tl_record(ctx, true);
    tl_tensor *q = leaf_of(heads_of(ctx, TL_F64, p->q, n->b, n->t, n->h, n->k));
    tl_tensor *k = leaf_of(heads_of(ctx, TL_F64, p->k, n->b, n->s, n->g, n->k));
    tl_tensor *v = leaf_of(heads_of(ctx, TL_F64, p->v, n->b, n->s, n->g, n->l));
    double *zero = calloc((size_t)(n->b * n->g * (n->k + n->l)), sizeof *zero), *m = mask_of(p, o, sinks, slopes);
    tl_tensor *mask = leaf_of(tensor_of(ctx, TL_F64, m, 4, 1, n->h, n->t, n->s + sinks)), *wide_k = k, *wide_v = v;
    if (sinks) { /* a key whose score is the mask alone, and no value */
        wide_k = tl_concat(((tl_tensor *[]){k, tensor_of(ctx, TL_F64, zero, 4, n->b, n->g, 1, n->k)}), 2, 2);
        wide_v = tl_concat(((tl_tensor *[]){v, tensor_of(ctx, TL_F64, zero, 4, n->b, n->g, 1, n->l)}), 2, 2);
    }
    tl_attention_options eager = {.scale = o->scale, .softcap = o->softcap, .mask = mask};
    tl_tensor *y = tl_attention(q, wide_k, wide_v, &eager);
    check_ok(ctx);
    p->y = read_values(y);
    backward_with(y, tl_transpose(tensor_of(ctx, TL_F64, p->dy, 4, n->b, n->t, n->h, n->l), 1, 2));
    p->dq = read_values(tl_tensor_grad(q));
    p->dk = read_values(tl_tensor_grad(k));
    p->dv = read_values(tl_tensor_grad(v));
    double *dmask = read_values(tl_tensor_grad(mask));
    p->dsinks = calloc((size_t)n->h, sizeof *p->dsinks);
    for (int i = 0; sinks && i < n->h * n->t; i++)
        p->dsinks[i / n->t] += dmask[(int64_t)(i + 1) * (n->s + 1) - 1];
    free(dmask);
    free(zero);
    free(m);
    tl_tape_clear(ctx);
    check_ok(ctx);
    tl_ctx_free(ctx);
}

static void problem_make(problem *p, sizes n, const tl_flash_options *o, bool sinks, bool slopes) {
    uint64_t seed = 77;
    *p = (problem){.n = n};
    p->q = draw(&seed, n.b * n.t * n.h * n.k);
    p->k = draw(&seed, n.b * n.s * n.g * n.k);
    p->v = draw(&seed, n.b * n.s * n.g * n.l);
    p->dy = draw(&seed, n.b * n.t * n.h * n.l);
    p->sinks = draw(&seed, n.h);
    p->slopes = draw(&seed, n.h);
    for (int h = 0; h < n.h; h++)
        p->slopes[h] = ldexp(1, -(h % 8) - 1);
    solve(p, o, sinks, slopes);
}

static void problem_free(problem *p) {
    double *const all[] = {p->q, p->k, p->v, p->dy, p->sinks, p->slopes, p->y, p->dq, p->dk, p->dv, p->dsinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

typedef struct run {
    tl_tensor *q, *k, *v, *sinks, *y;
} run;

static run run_flash(tl_ctx *ctx, const problem *p, tl_dtype dtype, const tl_flash_options *options, bool sinks,
                     bool slopes) {
    const sizes *n = &p->n;
    tl_flash_options o = *options;
    run r;
    tl_record(ctx, true);
    r.q = leaf_of(heads_of(ctx, dtype, p->q, n->b, n->t, n->h, n->k));
    r.k = leaf_of(heads_of(ctx, dtype, p->k, n->b, n->s, n->g, n->k));
    r.v = leaf_of(heads_of(ctx, dtype, p->v, n->b, n->s, n->g, n->l));
    r.sinks = leaf_of(tensor_of(ctx, dtype, p->sinks, 1, n->h));
    o.sinks = sinks ? r.sinks : NULL;
    o.slopes = slopes ? tensor_of(ctx, TL_F32, p->slopes, 1, n->h) : NULL;
    r.y = tl_flash_attention(r.q, r.k, r.v, &o);
    check_ok(ctx);
    return r;
}

static void run_back(tl_ctx *ctx, const problem *p, tl_dtype dtype, const run *r) {
    const sizes *n = &p->n;
    backward_with(r->y, tl_transpose(tensor_of(ctx, dtype, p->dy, 4, n->b, n->t, n->h, n->l), 1, 2));
}

/* Relative to the largest element: with many terms a small one is the difference of large ones. */
static void check_far(const char *what, const char *of, tl_tensor *t, const double *expected, double tolerance) {
    double most = 0, *found = read_values(t);
    int64_t n = tl_tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(expected[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(found[i] - expected[i]) <= tolerance * (1e-300 + most)))
            fail_msg("%s, %s: element %lld is %.17g, expected %.17g", what, of, (long long)i, found[i], expected[i]);
    free(found);
}

static const struct {
    const char *name;
    sizes n;
    bool sinks, slopes;
    tl_flash_options o;
} block_cases[] = {
    {"causal", {1, 2, 2, 150, 150, 16, 16}, false, false, {PLAIN, .causal = true}},
    {"causal, softcap, sinks", {2, 2, 1, 70, 70, 5, 9}, true, false, {PLAIN, .causal = true, .softcap = 3}},
    {"grouped, cross lengths", {1, 6, 2, 65, 201, 8, 24}, false, false, {PLAIN, .scale = 0.2}},
    {"window", {1, 2, 1, 200, 200, 12, 8}, false, false, {.causal = true, .window_before = 40}},
    {"window, sinks, offset",
     {1, 4, 2, 70, 170, 16, 16},
     true,
     false,
     {.causal = true, .window_before = 99, .offset = 100}},
    {"chunks", {1, 2, 1, 190, 190, 16, 16}, false, false, {PLAIN, .causal = true, .chunk = 48}},
    {"chunks, both ways", {1, 2, 2, 100, 130, 16, 16}, false, false, {PLAIN, .chunk = 70, .offset = 30}},
    {"ALiBi", {1, 4, 4, 130, 130, 16, 16}, false, true, {PLAIN, .causal = true}},
    {"parts of keys", {1, 2, 1, 90, 900, 16, 16}, true, true, {PLAIN, .softcap = 4, .causal = true, .offset = 810}},
    {"parts of keys, causal", {1, 1, 1, 600, 600, 8, 8}, false, false, {PLAIN, .causal = true}},
    {"MLA", {1, 2, 2, 70, 70, 192, 128}, false, false, {PLAIN, .causal = true}},
    {"MLA, absorbed", {1, 2, 1, 66, 66, 576, 512}, false, false, {PLAIN, .causal = true}},
    {"largest heads", {1, 1, 1, 40, 40, 1024, 1024}, true, false, {PLAIN, .causal = true}},
    {"one row of a cache", {2, 4, 2, 1, 130, 16, 16}, true, false, {PLAIN, .causal = true, .offset = 129}},
    {"more rows than keys", {1, 2, 2, 140, 33, 7, 3}, false, false, {.causal = true, .window_before = 20}},
    {"nothing to see", {1, 2, 1, 66, 0, 4, 4}, false, false, {PLAIN}},
};
enum { BLOCK_CASES = sizeof block_cases / sizeof *block_cases };

/* f32 against the rounding of sums; 16 bits against inputs that they hold exactly (halves are drawn), results rounded once. */
static void test_against_composed(void **state) {
    (void)state;
    static const struct {
        tl_dtype dtype;
        double tolerance;
    } formats[] = {{TL_F64, 1e-13}, {TL_F32, 5e-6}, {TL_BF16, 0.02}, {TL_F16, 3e-3}};
    for (int c = 0; c < BLOCK_CASES; c++) {
        problem p;
        problem_make(&p, block_cases[c].n, &block_cases[c].o, block_cases[c].sinks, block_cases[c].slopes);
        EACH(ctx)
        for (int d = 0; d < 4; d++) {
            char what[120];
            snprintf(what, sizeof what, "%s, %s, %s", block_cases[c].name, tl_ctx_device(ctx),
                     tl_dtype_name(formats[d].dtype));
            tl_scope_begin(ctx);
            run r =
                run_flash(ctx, &p, formats[d].dtype, &block_cases[c].o, block_cases[c].sinks, block_cases[c].slopes);
            run_back(ctx, &p, formats[d].dtype, &r);
            check_far(what, "y", r.y, p.y, formats[d].tolerance);
            check_far(what, "dq", tl_tensor_grad(r.q), p.dq, formats[d].tolerance);
            check_far(what, "dk", tl_tensor_grad(r.k), p.dk, formats[d].tolerance);
            check_far(what, "dv", tl_tensor_grad(r.v), p.dv, formats[d].tolerance);
            if (block_cases[c].sinks)
                check_far(what, "dsinks", tl_tensor_grad(r.sinks), p.dsinks,
                          3 * formats[d].tolerance); /* Σ y·dy of a rounded y */
            tl_tape_clear(ctx);
            tl_scope_end(ctx);
            check_ok(ctx);
        }
        problem_free(&p);
    }
}

/* The mask of tl_dropout of the probabilities, drawn for each block alone. */
static void test_dropout_is_that_of_the_composition(void **state) {
    (void)state;
    enum { T = 90, S = 150, K = 4 };
    uint64_t seed = 5;
    double *q = draw(&seed, 2 * T * K), *k = draw(&seed, 2 * S * K), *v = draw(&seed, 2 * S * K);
    double *g = draw(&seed, 2 * T * K), *y[2], *dq[2], *dk[2], *dv[2];
    EACH(ctx) {
        for (int way = 0; way < 2; way++) {
            tl_ctx *fresh = new_ctx(*kernels, false);
            tl_record(fresh, true);
            tl_tensor *a = leaf_of(tensor_of(fresh, TL_F64, q, 4, 1, 2, T, K));
            tl_tensor *b = leaf_of(tensor_of(fresh, TL_F64, k, 4, 1, 2, S, K));
            tl_tensor *c = leaf_of(tensor_of(fresh, TL_F64, v, 4, 1, 2, S, K)), *out;
            tl_tensor *drop = tl_dropout(a, 0.5, "before"); /* so that the position is not 0 */
            if (way == 0) {
                tl_flash_options o = {PLAIN, .causal = true, .offset = S - T, .dropout = 0.3, .dropout_name = "attn"};
                out = tl_flash_attention(a, b, c, &o);
            } else {
                tl_tensor *scores = tl_matmul(a, tl_transpose(b, 2, 3));
                tl_tensor *dropped = tl_dropout(tl_softmax(scores, 0.5, true), 0.3, "attn");
                out = tl_matmul(dropped, c);
            }
            tl_tensor *after = tl_dropout(a, 0.5, "after"); /* and goes on alike */
            check_ok(fresh);
            y[way] = read_values(tl_add(out, tl_add(drop, after)));
            backward_with(out, tensor_of(fresh, TL_F64, g, 4, 1, 2, T, K));
            dq[way] = read_values(tl_tensor_grad(a));
            dk[way] = read_values(tl_tensor_grad(b));
            dv[way] = read_values(tl_tensor_grad(c));
            tl_tape_clear(fresh);
            tl_ctx_free(fresh);
        }
        for (int i = 0; i < 2 * T * K; i++) {
            assert_true(fabs(y[0][i] - y[1][i]) < 1e-13 * (1 + fabs(y[1][i])));
            assert_true(fabs(dq[0][i] - dq[1][i]) < 1e-13 * (1 + fabs(dq[1][i])));
        }
        for (int i = 0; i < 2 * S * K; i++) {
            assert_true(fabs(dk[0][i] - dk[1][i]) < 1e-13 * (1 + fabs(dk[1][i])));
            assert_true(fabs(dv[0][i] - dv[1][i]) < 1e-13 * (1 + fabs(dv[1][i])));
        }
        for (int way = 0; way < 2; way++) {
            free(y[way]);
            free(dq[way]);
            free(dk[way]);
            free(dv[way]);
        }
    }
    free(q);
    free(k);
    free(v);
    free(g);
}

/* ---- any number of threads ---- */

static void test_threads(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3, 8}, cases[] = {0, 1, 4, 8, 9, 11};
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        problem p;
        int at = cases[c];
        problem_make(&p, block_cases[at].n, &block_cases[at].o, block_cases[at].sinks, block_cases[at].slopes);
        for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)
            for (int d = 0; d < 2; d++) {
                char *first[5] = {NULL};
                for (int t = 0; t < 4; t++) {
                    tl_error error = {0};
                    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = *kernels, .threads = threads[t]}, &error);
                    assert_non_null(ctx);
                    run r = run_flash(ctx, &p, dtypes[d], &block_cases[at].o, block_cases[at].sinks,
                                      block_cases[at].slopes);
                    run_back(ctx, &p, dtypes[d], &r);
                    tl_tensor *const results[] = {r.y, tl_tensor_grad(r.q), tl_tensor_grad(r.k), tl_tensor_grad(r.v),
                                                  block_cases[at].sinks ? tl_tensor_grad(r.sinks) : r.y};
                    for (int i = 0; i < 5; i++) {
                        size_t bytes = (size_t)(tl_tensor_count(results[i]) * tl_dtype_bytes(dtypes[d]));
                        char *found = malloc(bytes + 1);
                        assert_non_null(found);
                        assert_int_equal(tl_tensor_read(results[i], found, bytes), TL_OK);
                        if (t > 0 && memcmp(found, first[i], bytes) != 0)
                            fail_msg("%s: result %d differs with %d threads", block_cases[at].name, i, threads[t]);
                        if (t > 0)
                            free(found);
                        else
                            first[i] = found;
                    }
                    tl_tape_clear(ctx);
                    tl_ctx_free(ctx);
                }
                for (int i = 0; i < 5; i++)
                    free(first[i]);
            }
        problem_free(&p);
    }
}

/* ---- the account ---- */

/* q, k, v, y in the format's bytes and 4 bytes a row (formulas.md: "attention out 1, logsumexp 4·a·s·b"); no score. */
static void test_saved_bytes(void **state) {
    (void)state;
    enum { B = 2, H = 4, G = 2, T = 96, S = 128, K = 16, L = 24 };
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F64};
    for (int d = 0; d < 3; d++) {
        tl_error error = {0};
        tl_ctx *ctx = tl_ctx_new(NULL, &error);
        int64_t bytes = tl_dtype_bytes(dtypes[d]);
        tl_record(ctx, true);
        tl_tensor *x[3];
        const tl_shape shape[] = {TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(T), tl_dim_of(H), tl_dim_of(K)),
                                  TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(S), tl_dim_of(G), tl_dim_of(K)),
                                  TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(S), tl_dim_of(G), tl_dim_of(L))};
        for (int i = 0; i < 3; i++) {
            tl_tensor *leaf = leaf_of(tl_empty(ctx, dtypes[d], shape[i], TL_PARAM));
            x[i] = tl_transpose(tl_scale(leaf, 2, 0), 1, 2);
        }
        tl_ledger_step_begin(ctx);
        tl_flash_options o = {PLAIN, .causal = true};
        tl_tensor *y = tl_flash_attention(x[0], x[1], x[2], &o);
        tl_tensor *joined =
            tl_reshape(tl_transpose(y, 1, 2), TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(T), tl_dim_of(H * L)));
        check_ok(ctx);
        assert_non_null(joined);
        int64_t q = B * T * H * K, k = B * S * G * K, v = B * S * G * L, out = B * T * H * L;
        assert_int_equal(tl_ledger_live(ctx, TL_SAVED),
                         bytes * (q + k + v + out) + (dtypes[d] == TL_F64 ? 8 : 4) * B * H * T);
        assert_int_equal(tl_ledger_allocations(ctx), 2); /* y and the log-sum-exp: joining the heads is free */
        assert_int_equal(tl_tensor_shape(y)->dim[1].size, H);
        tl_tape_clear(ctx);
        tl_ctx_free(ctx);
    }
}

static int64_t seen_pairs(const tl_flash_options *o, int64_t t, int64_t s) {
    int64_t sum = 0;
    for (int64_t i = 0; i < t; i++)
        for (int64_t j = 0; j < s; j++)
            sum += sees(o, i, j);
    return sum;
}

static int64_t block_pairs(const tl_flash_options *o, int64_t t, int64_t s, int64_t block) {
    int64_t sum = 0;
    for (int64_t i0 = 0; i0 < t; i0 += block)
        for (int64_t j0 = 0; j0 < s; j0 += block) {
            int64_t rows = t - i0 < block ? t - i0 : block, keys = s - j0 < block ? s - j0 : block;
            bool any = false;
            for (int64_t i = i0; i < i0 + rows; i++)
                for (int64_t j = j0; j < j0 + keys; j++)
                    any |= sees(o, i, j);
            sum += any ? rows * keys : 0;
        }
    return sum;
}

/* Two products forward, five backward of which one is the scores again; what the kernel multiplied is what the op says, and so are
 * the bytes of the peak (sums of 16-bit gradients and of parts of the keys are its workspace). */
static void test_flops(void **state) {
    (void)state;
    for (int run_of = 0; run_of < 2 * BLOCK_CASES; run_of++) {
        const int c = run_of / 2;
        const tl_dtype dtype = run_of % 2 ? TL_BF16 : TL_F32;
        const sizes *n = &block_cases[c].n;
        const tl_flash_options *o = &block_cases[c].o;
        problem p;
        problem_make(&p, *n, o, block_cases[c].sinks, block_cases[c].slopes);
        tl_error error = {0};
        instrument *i = instrument_new(NULL);
        tl_allocator allocator = instrument_allocator(i);
        tl_ctx_options options = {.allocator = &allocator, .threads = 2};
        options.kernels = instrument_kernels(i, tl_kernels_for_cpu(NULL, &error));
        tl_ctx *ctx = tl_ctx_new(&options, &error);
        assert_non_null(ctx);
        tl_ledger_step_begin(ctx);
        instrument_begin(i);
        run r = run_flash(ctx, &p, dtype, o, block_cases[c].sinks, block_cases[c].slopes);
        tl_counts forward, all, again;
        measured one_way = instrument_end(i);
        tl_u128 measured_forward = one_way.matmul;
        tl_ledger_counts(ctx, TL_PHASE_ALL, &forward);
        instrument_begin(i);
        run_back(ctx, &p, dtype, &r);
        measured way_back = instrument_end(i);
        tl_u128 measured_back = way_back.matmul;
        tl_peak peak;
        tl_ledger_peak(ctx, &peak);
        assert_int_equal(peak.bytes, one_way.peak > way_back.peak ? one_way.peak : way_back.peak);
        tl_ledger_counts(ctx, TL_PHASE_ALL, &all);
        tl_ledger_recomputed(ctx, TL_PHASE_ALL, &again);
        int64_t heads = n->b * n->h, pairs = (int64_t)n->t * n->s, seen = seen_pairs(o, n->t, n->s);
        int64_t block = n->k == 1024 ? 32 : 64, met = block_pairs(o, n->t, n->s, block);
        int64_t two = 2 * heads * (n->k + n->l), five = 2 * heads * (3 * n->k + 2 * n->l), one = 2 * heads * n->k;
        assert_true(forward.matmul == (tl_u128)(two * pairs) && forward.matmul_causal == (tl_u128)(two * seen));
        assert_true(all.matmul - forward.matmul == (tl_u128)(five * pairs));
        assert_true(all.matmul_causal - forward.matmul_causal == (tl_u128)(five * seen));
        assert_true(again.matmul == (tl_u128)(one * pairs) && again.matmul_causal == (tl_u128)(one * seen));
        /* model FLOPs: backward is twice forward */
        assert_true(all.matmul - again.matmul == 3 * forward.matmul);
        if (forward.executed != (tl_u128)(two * met) || all.executed - forward.executed != (tl_u128)(five * met))
            fail_msg("%s: executed FLOPs are not those of the blocks", block_cases[c].name);
        if (forward.executed != measured_forward || all.executed - forward.executed != measured_back)
            fail_msg("%s: executed FLOPs are not those measured", block_cases[c].name);
        tl_tape_clear(ctx);
        tl_ctx_free(ctx);
        assert_int_equal(instrument_free(i), 0);
        problem_free(&p);
    }
}

/* The meter that the command runs under sees its products too. */
static void test_meter_counts(void **state) {
    (void)state;
    tl_error error = {0};
    tl_meter *meter = tl_meter_new(tl_kernels_portable(), NULL, &error);
    assert_non_null(meter);
    tl_allocator allocator = tl_meter_allocator(meter);
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_meter_kernels(meter), .allocator = &allocator}, &error);
    assert_non_null(ctx);
    problem p;
    tl_reading reading;
    problem_make(&p, block_cases[3].n, &block_cases[3].o, false, false);
    tl_meter_step_begin(meter);
    run r = run_flash(ctx, &p, TL_F32, &block_cases[3].o, false, false);
    run_back(ctx, &p, TL_F32, &r);
    tl_meter_read(meter, &reading);
    /* 200 rows and keys in blocks of 64, a window of 40 back: the diagonal's and those below it; K 12, L 8 */
    int64_t met = 3 * 64 * 64 + 8 * 8 + 2 * 64 * 64 + 64 * 8, each = 2 * 2 * (12 + 8 + 3 * 12 + 2 * 8);
    assert_true(reading.flops == (tl_u128)(met * each) && reading.products == 2);
    tl_tape_clear(ctx);
    tl_ctx_free(ctx);
    tl_meter_free(meter);
    problem_free(&p);
}

/* Bytes and the operations beside products, from the kernel's entry. */
typedef struct compared {
    const touched *seen;
    int64_t count, at;
    int flash;
} compared;

static bool compare_op(void *user, const tl_op_entry *e) {
    compared *c = user;
    while (c->at < c->count && (strcmp(c->seen[c->at].op, e->op) != 0))
        c->at++; /* views touch nothing and are not in the ledger */
    assert_true(c->at < c->count);
    const touched *t = &c->seen[c->at++];
    if (strncmp(e->op, "flash", 5) != 0)
        return true;
    c->flash++;
    assert_null(t->unknown);
    assert_true(e->read.count == (tl_u128)t->read && e->written.count == (tl_u128)t->written);
    assert_true(e->arithmetic.count == t->arithmetic && e->special.count == t->special);
    return true;
}

static void test_operations(void **state) {
    (void)state;
    for (int c = 0; c < BLOCK_CASES; c++) {
        problem p;
        if (block_cases[c].n.k == 1024)
            continue; /* its blocks are not of 64 */
        problem_make(&p, block_cases[c].n, &block_cases[c].o, block_cases[c].sinks, block_cases[c].slopes);
        tl_ctx *ctx = new_ctx(elements_kernels(tl_kernels_portable()), false);
        tl_ledger_step_begin(ctx);
        elements_watch(ctx);
        elements_begin();
        tl_flash_options o = block_cases[c].o;
        o.dropout = c % 2 ? 0.25 : 0;
        run r = run_flash(ctx, &p, TL_F32, &o, block_cases[c].sinks, block_cases[c].slopes);
        run_back(ctx, &p, TL_F32, &r);
        compared d = {.at = 0};
        d.seen = elements_of_ops(&d.count);
        tl_ledger_each_op(ctx, compare_op, &d);
        assert_int_equal(d.flash, 2);
        tl_tape_clear(ctx);
        tl_ctx_free(ctx);
        problem_free(&p);
    }
    elements_free();
}

typedef struct formulas {
    tl_space *space;
    char matmul[2][200], causal[2][200], again[200];
} formulas;

static bool take_formulas(void *user, const tl_op_entry *e) {
    formulas *f = user;
    bool backward = strcmp(e->op, "flash_attention_backward") == 0;
    if (!backward && strcmp(e->op, "flash_attention") != 0)
        return true;
    snprintf(f->matmul[backward], 200, "%s", tl_poly_text(f->space, e->matmul.formula, TL_FORMULA_ASCII));
    snprintf(f->causal[backward], 200, "%s", tl_poly_text(f->space, e->matmul_causal.formula, TL_FORMULA_ASCII));
    if (backward)
        snprintf(f->again, 200, "%s", tl_poly_text(f->space, e->matmul_again.formula, TL_FORMULA_ASCII));
    return true;
}

static void formulas_of(formulas *f, const tl_flash_options *o, char *symbols, size_t size) {
    tl_ctx *ctx = new_ctx(NULL, true);
    f->space = tl_ctx_space(ctx);
    tl_dim B = tl_dim_symbol(ctx, "B", 2, "given"), T = tl_dim_symbol(ctx, "T", 128, "given");
    tl_dim H = tl_dim_symbol(ctx, "H", 4, "given"), G = tl_dim_symbol(ctx, "G", 2, "given");
    tl_dim K = tl_dim_symbol(ctx, "K", 16, "given");
    tl_record(ctx, true);
    tl_tensor *q = leaf_of(tl_empty(ctx, TL_BF16, TL_SHAPE(ctx, B, T, H, K), TL_PARAM));
    tl_tensor *k = leaf_of(tl_empty(ctx, TL_BF16, TL_SHAPE(ctx, B, T, G, K), TL_PARAM));
    tl_tensor *v = leaf_of(tl_empty(ctx, TL_BF16, TL_SHAPE(ctx, B, T, G, K), TL_PARAM));
    tl_tensor *y = tl_flash_attention(tl_transpose(q, 1, 2), tl_transpose(k, 1, 2), tl_transpose(v, 1, 2), o);
    backward_with(tl_sum(y, NULL, 0, false), NULL);
    tl_ledger_each_op(ctx, take_formulas, f);
    const tl_symbol *list;
    size_t at = 0;
    symbols[0] = 0;
    for (int i = 0, n = tl_space_symbols(f->space, &list); i < n; i++)
        if (list[i].name[0] == 'X')
            at += (size_t)snprintf(symbols + at, size - at, "%s=%lld: %s\n", list[i].name, (long long)list[i].value,
                                   list[i].source);
    tl_tape_clear(ctx);
    check_ok(ctx);
    tl_ctx_free(ctx);
}

static void test_formulas(void **state) {
    (void)state;
    formulas f;
    char symbols[600];
    tl_flash_options o = {PLAIN, .causal = true};
    formulas_of(&f, &o, symbols, sizeof symbols);
    assert_string_equal(f.matmul[0], "4*B*T^2*H*K");
    assert_string_equal(f.matmul[1], "10*B*T^2*H*K");
    assert_string_equal(f.again, "2*B*T^2*H*K");
    assert_string_equal(f.causal[0], "2*B*T*(H*K*T + H*K)"); /* 4·B·H·K·T(T + 1)/2 */
    o.window_before = 31;
    formulas_of(&f, &o, symbols, sizeof symbols);
    /* rows 0 … 31 see 1 … 32 columns, the other 96 see 32; of 2 × 2 blocks one is all hidden */
    if (!strstr(symbols, "=3600: visible pairs of T rows and T keys, causal, window 31") ||
        !strstr(symbols,
                "=12288: pairs in blocks of 64 that are not all hidden of T rows and T keys, causal, window 31"))
        fail_msg("%s", symbols);
    assert_string_equal(f.matmul[0], "4*B*T^2*H*K");
}

/* Under autocast q, k and v go to bf16; the slopes, which add up to whole distances, stay. */
static void test_autocast(void **state) {
    (void)state;
    EACH(ctx) {
        assert_int_equal(tl_autocast(ctx, TL_BF16), TL_OK);
        tl_flash_options o = {PLAIN, .causal = true};
        o.slopes = tensor_of(ctx, TL_F32, flash_slopes, 1, 4);
        tl_tensor *y = tl_flash_attention(tensor_of(ctx, TL_F32, flash_q, 4, 2, 4, 5, 3),
                                          tensor_of(ctx, TL_F32, flash_k, 4, 2, 2, 7, 3),
                                          tensor_of(ctx, TL_F32, flash_v, 4, 2, 2, 7, 4), &o);
        check_ok(ctx);
        assert_int_equal(tl_tensor_dtype(y), TL_BF16);
    }
}

static void refused(tl_ctx *ctx, tl_tensor *q, tl_tensor *k, tl_tensor *v, tl_flash_options o, tl_status status,
                    const char *part) {
    assert_null(tl_flash_attention(q, k, v, &o));
    check_fails(ctx, status, part);
}

static void test_refusals(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
#define MAKE(dtype, b, h, t, k)                                                                                        \
    tl_empty(ctx, dtype, TL_SHAPE(ctx, tl_dim_of(b), tl_dim_of(h), tl_dim_of(t), tl_dim_of(k)), TL_WORK)
    tl_tensor *q = MAKE(TL_F32, 2, 4, 5, 8), *k = MAKE(TL_F32, 2, 2, 7, 8), *v = MAKE(TL_F32, 2, 2, 7, 6);
    tl_tensor *three = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(3)), TL_WORK);
    tl_tensor *half = tl_empty(ctx, TL_BF16, TL_SHAPE(ctx, tl_dim_of(4)), TL_WORK);
    tl_flash_options none = {PLAIN};
    refused(ctx, three, k, v, none, TL_ERR_SHAPE, "have 4 axes");
    refused(ctx, q, MAKE(TL_F32, 1, 2, 7, 8), v, none, TL_ERR_SHAPE, "their batches must be equal");
    refused(ctx, q, MAKE(TL_F32, 2, 3, 7, 8), v, none, TL_ERR_SHAPE, "q a multiple of that");
    refused(ctx, q, k, MAKE(TL_F32, 2, 4, 7, 6), none, TL_ERR_SHAPE, "k and v must have as many heads");
    refused(ctx, q, MAKE(TL_F32, 2, 2, 7, 9), v, none, TL_ERR_SHAPE, "q and k must be of one size");
    refused(ctx, q, k, MAKE(TL_F32, 2, 2, 6, 6), none, TL_ERR_SHAPE, "k and v must have as many rows");
    refused(ctx, q, k, MAKE(TL_BF16, 2, 2, 7, 6), none, TL_ERR_DTYPE, "one format for all would work");
    refused(ctx, MAKE(TL_I32, 2, 4, 5, 8), k, v, none, TL_ERR_DTYPE, "a floating format");
    refused(ctx, q, k, MAKE(TL_F32, 2, 2, 7, 1025), none, TL_ERR_SHAPE, "at most 1024 would work");
    refused(ctx, q, k, v, (tl_flash_options){PLAIN, .sinks = three}, TL_ERR_SHAPE, "the sinks");
    refused(ctx, q, k, v, (tl_flash_options){PLAIN, .slopes = three}, TL_ERR_SHAPE, "slopes");
    refused(ctx, q, k, v, (tl_flash_options){PLAIN, .slopes = half}, TL_ERR_DTYPE, "f32 would work");
    refused(ctx, q, k, v, (tl_flash_options){PLAIN, .offset = -1}, TL_ERR_ARGUMENT, "the offset is -1");
    refused(ctx, q, k, v, (tl_flash_options){PLAIN, .chunk = -3}, TL_ERR_ARGUMENT, "a chunk of -3 columns");
    refused(ctx, q, k, v, (tl_flash_options){PLAIN, .softcap = -1}, TL_ERR_ARGUMENT, "the softcap is -1");
    refused(ctx, q, k, v, (tl_flash_options){PLAIN, .dropout = 1}, TL_ERR_ARGUMENT, "below 1 would work");
    tl_record(ctx, true);
    tl_tensor *slopes = leaf_of(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(4)), TL_WORK));
    refused(ctx, q, k, v, (tl_flash_options){PLAIN, .slopes = slopes}, TL_ERR_UNSUPPORTED,
            "the slopes want a gradient");
    tl_ctx_free(ctx);
    tl_error error = {0};
    ctx = tl_ctx_new(&(tl_ctx_options){.scratch_bytes = 4096}, &error);
    q = MAKE(TL_F32, 1, 1, 2, 64);
    refused(ctx, q, q, q, none, TL_ERR_ARGUMENT, "the context has 4096 bytes of scratch a thread");
    tl_ctx_free(ctx);
    ctx = tl_ctx_new(&(tl_ctx_options){.scratch_bytes = TL_NO_SCRATCH}, &error); /* another device's plan */
    q = MAKE(TL_F32, 1, 1, 2, 64);
    assert_non_null(tl_flash_attention(q, q, q, &none));
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_torch),
        cmocka_unit_test(test_rows_that_see_nothing),
        cmocka_unit_test(test_against_composed),
        cmocka_unit_test(test_dropout_is_that_of_the_composition),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_saved_bytes),
        cmocka_unit_test(test_flops),
        cmocka_unit_test(test_meter_counts),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_autocast),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
