/* Layers at their edges, what they refuse, and what they book. Expected values are exact arithmetic or the documented
 * contract; the draws of dropout are base/random.h's, which has its own vectors. */
#include "layers.h"

#include "base/random.h"
#include "base/stream.h"
#include "tally/optim.h"

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

static const double zeros[256];

static tl_tensor *filled(tl_ctx *ctx, tl_dtype dtype, tl_shape shape, double value) {
    return tl_fill(tl_empty(ctx, dtype, shape, TL_DATA), value);
}

static tl_tensor *ids_of(tl_ctx *ctx, const int64_t *values, int64_t n) {
    return tl_from_data(ctx, TL_I64, TL_SHAPE(ctx, tl_dim_of(n)), TL_DATA, values, n);
}

/* FAULTS: all targets ignored is 0/0 elsewhere; a target of −4 is accepted elsewhere. */
static void test_targets(void **state) {
    (void)state;
    static const double logits[] = {1, 2, 3, 1e30, -1e30, 0};
    EACH(ctx) {
        tl_record(ctx, true);
        tl_tensor *x = leaf_of(tensor_of(ctx, TL_F32, logits, 2, 2, 3));
        tl_tensor *loss = tl_cross_entropy(x, ids_of(ctx, (int64_t[]){-100, -100}, 2), -100);
        check_close("all ignored", loss, zeros, 1, 0);
        backward_with(loss, NULL);
        check_close("gradient of all ignored", tl_tensor_grad(x), zeros, 6, 0);
        /* a target that is certain costs nothing, however large the logits: lse = 1e30 */
        loss = tl_cross_entropy(x, ids_of(ctx, (int64_t[]){-100, 0}, 2), -100);
        check_close("certain", loss, zeros, 1, 0);
        check_ok(ctx);
        assert_null(tl_cross_entropy(x, ids_of(ctx, (int64_t[]){0, -4}, 2), -100));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 1");
        assert_null(tl_cross_entropy(x, ids_of(ctx, (int64_t[]){3, 0}, 2), -100));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 0");
        assert_null(tl_cross_entropy(x, x, -100));
        check_fails(ctx, TL_ERR_DTYPE, "i32 or i64");
        assert_null(tl_cross_entropy(x, ids_of(ctx, (int64_t[]){0, 0, 0}, 3), -100));
        check_fails(ctx, TL_ERR_SHAPE, "[2]");
        assert_null(tl_embedding(x, ids_of(ctx, (int64_t[]){0, 1, 2}, 3)));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 2");
    }
}

/* FAULTS: fully masked rows. Here: all 0, with gradients that are 0 too. */
static void test_masked_rows(void **state) {
    (void)state;
    double x[12], g[12], expected[12], slope[12];
    for (int i = 0; i < 12; i++) {
        x[i] = i < 3 ? -INFINITY : 1;
        g[i] = 1 + i;
        expected[i] = i < 3 ? 0 : 1.0 / 3;
        slope[i] = i < 3 ? 0 : (i % 3 - 1) / 3.0; /* y·(g − Σ y·g): the mean of g is its middle */
    }
    EACH(ctx) {
        tl_record(ctx, true);
        tl_tensor *t = leaf_of(tensor_of(ctx, TL_F64, x, 2, 4, 3)), *y = tl_softmax(t, 1, false);
        check_close("a row of −∞", y, expected, 12, 1e-15);
        backward_with(y, tensor_of(ctx, TL_F64, g, 2, 4, 3));
        check_close("its gradient", tl_tensor_grad(t), slope, 12, 1e-14);
    }
}

static void test_masked_gradient(void **state) {
    (void)state;
    /* causal with 4 rows and 2 columns: rows 0 and 1 see nothing, row 2 sees one, row 3 both */
    static const double x[] = {5, 6, 7, 8, 1, 2, 3, 3}, g[] = {1, 2, 3, 4, 5, 6, 7, 9};
    static const double y[] = {0, 0, 0, 0, 1, 0, 0.5, 0.5}, dx[] = {0, 0, 0, 0, 0, 0, -0.5, 0.5};
    EACH(ctx) {
        tl_record(ctx, true);
        tl_tensor *t = leaf_of(tensor_of(ctx, TL_F32, x, 2, 4, 2)), *out = tl_softmax(t, 1, true);
        check_close("causal", out, y, 8, 1e-6);
        backward_with(out, tensor_of(ctx, TL_F32, g, 2, 4, 2));
        check_close("causal dx", tl_tensor_grad(t), dx, 8, 1e-6);
    }
}

static bool add_causal(void *user, const tl_op_entry *e) {
    *(tl_u128 *)user += e->matmul_causal.count;
    return true;
}

/* What could not be made may be passed on: the first error stands, nothing crashes. */
static void test_optimizer_of_nothing(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_parameter none = {.name = "w"};
    tl_optimizer *optimizer = tl_optimizer_new(ctx, &none, 1, &o);
    assert_null(optimizer);
    assert_int_equal(tl_optimizer_step(optimizer, 0.1), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "no tensor");
    tl_ctx_free(ctx);
}

/* Pairs seen under the mask of test_masked_gradient, counted by hand: row i sees i + 1 + columns − rows columns. */
static void test_causal_pairs(void **state) {
    (void)state;
    static const struct {
        int64_t rows, columns, pairs;
    } c[] = {{4, 4, 10}, {2, 4, 7}, {4, 2, 3}, {1, 5, 5}, {5, 1, 1}, {9, 2, 3}};
    enum { K = 3, FLOPS = 2 };
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        tl_ctx *ctx = new_ctx(NULL, true);
        tl_u128 counted = 0;
        tl_tensor *q = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(c[i].rows), tl_dim_of(K)), TL_DATA);
        tl_tensor *k = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(K), tl_dim_of(c[i].columns)), TL_DATA);
        assert_non_null(tl_matmul_causal(q, k, TL_CAUSAL_MN));
        tl_ledger_each_op(ctx, add_causal, &counted);
        assert_int_equal((int64_t)counted, FLOPS * K * c[i].pairs);
        check_ok(ctx);
        tl_ctx_free(ctx);
    }
}

/* Rows of any layout give what contiguous rows give; strides that a product can read are not copied. */
static void test_linear_layouts(void **state) {
    (void)state;
    double x[24], w[12];
    for (int i = 0; i < 24; i++)
        x[i] = i % 7 - 3;
    for (int i = 0; i < 12; i++)
        w[i] = i % 5 - 2;
    EACH(ctx) {
        tl_tensor *weight = tensor_of(ctx, TL_F32, w, 2, 3, 4),
                  *turned = tl_transpose(tensor_of(ctx, TL_F32, x, 3, 2, 3, 4), 0, 1);
        tl_tensor *columns = tl_transpose(tensor_of(ctx, TL_F32, x, 3, 2, 4, 3), 1, 2);
        tl_tensor *wide = tl_slice(tensor_of(ctx, TL_F32, x, 2, 3, 8), 1, 0, tl_dim_of(4), 2);
        tl_tensor *same = tl_expand(tensor_of(ctx, TL_F32, x, 1, 4), TL_SHAPE(ctx, tl_dim_of(5), tl_dim_of(4)));
        tl_tensor *in[] = {turned, columns, wide, same};
        for (int i = 0; i < 4; i++) {
            int64_t before = tl_ledger_allocations(ctx);
            tl_tensor *y = tl_linear(in[i], weight, NULL);
            assert_int_equal(tl_ledger_allocations(ctx) - before, i < 2 ? 1 : 2); /* the output; a copy of x */
            tl_tensor *plain = tl_linear(tl_copy(in[i]), weight, NULL);
            double values[24];
            int64_t count = tl_tensor_count(plain);
            float buffer[24];
            assert_int_equal(tl_tensor_read(plain, buffer, (size_t)count * 4), TL_OK);
            for (int64_t e = 0; e < count; e++)
                values[e] = (double)buffer[e];
            check_close("linear of a view", y, values, count, 0);
        }
        tl_tensor *none = tl_linear(tensor_of(ctx, TL_F32, x, 2, 0, 4), weight, tensor_of(ctx, TL_F32, w, 1, 3));
        assert_int_equal(tl_tensor_count(none), 0);
        tl_tensor *bias = tl_linear(tensor_of(ctx, TL_F32, x, 2, 2, 0), tensor_of(ctx, TL_F32, w, 2, 3, 0),
                                    tensor_of(ctx, TL_F32, w, 1, 3));
        check_close("no width: the bias", bias, (double[]){-2, -1, 0, -2, -1, 0}, 6, 0);
        check_ok(ctx);
        assert_null(tl_linear(tensor_of(ctx, TL_F32, x, 2, 2, 3), weight, NULL));
        check_fails(ctx, TL_ERR_SHAPE, "[out, 3]");
    }
}

static void test_no_rows(void **state) {
    (void)state;
    static const double ones[] = {1, 1, 1};
    EACH(ctx) {
        tl_record(ctx, true);
        tl_tensor *x = leaf_of(tensor_of(ctx, TL_F32, zeros, 2, 0, 3)),
                  *gain = leaf_of(tensor_of(ctx, TL_F32, ones, 1, 3));
        tl_tensor *bias = leaf_of(tensor_of(ctx, TL_F32, ones, 1, 3));
        backward_with(tl_layer_norm(x, gain, bias, 1e-5), tensor_of(ctx, TL_F32, zeros, 2, 0, 3));
        check_close("dgain of no rows", tl_tensor_grad(gain), zeros, 3, 0);
        check_close("dbias of no rows", tl_tensor_grad(bias), zeros, 3, 0);
        tl_tensor_clear_grad(gain);
        tl_record(ctx, true);
        backward_with(tl_rms_norm(x, gain, 1e-5), tensor_of(ctx, TL_F32, zeros, 2, 0, 3));
        check_close("dgain of no rows", tl_tensor_grad(gain), zeros, 3, 0);
    }
}

static void test_dropout(void **state) {
    (void)state;
    enum { N = 1000 };
    float first[N], second[N];
    double expected[N];
    static const double refused[] = {1, -0.1, NAN};
    const double p = 0.3;
    EACH(ctx) {
        tl_tensor *x = leaf_of(filled(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(N)), 2));
        assert_ptr_equal(tl_dropout(x, 0, "a"), x);
        tl_record(ctx, true);
        tl_tensor *y = tl_dropout(x, p, "a");
        for (int i = 0; i < N; i++) /* seed_dropout is 11: layers.h */
            expected[i] =
                tl_random_uniform_f32(11, tl_stream_id("dropout", "a"), (uint64_t)i) >= (float)p ? 2 / (1 - p) : 0;
        check_close("dropout", y, expected, N, 1e-6);
        assert_int_equal(tl_tensor_read(y, first, sizeof first), TL_OK);
        backward_with(y, filled(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(N)), 2));
        check_close("dropout dx", tl_tensor_grad(x), expected, N, 1e-6);
        y = tl_dropout(x, p, "a"); /* not recorded: the same mask as a recorded second call would draw */
        for (int i = 0; i < N; i++)
            expected[i] = tl_random_uniform_f32(11, tl_stream_id("dropout", "a"), (uint64_t)(N + i)) >= (float)p
                              ? 2 / (1 - p)
                              : 0;
        check_close("a second call", y, expected, N, 1e-6);
        assert_int_equal(tl_tensor_read(y, second, sizeof second), TL_OK);
        assert_memory_not_equal(first, second, sizeof first);
        for (int i = 0; i < 3; i++) {
            assert_null(tl_dropout(x, refused[i], "a"));
            check_fails(ctx, TL_ERR_ARGUMENT, "below 1");
        }
    }
}

static void test_update_refusals(void **state) {
    (void)state;
    tl_adamw_options good = {1e-3, 0.9, 0.999, 1e-8, 0, 1, false}, bad;
    EACH(ctx) {
        tl_tensor *p = tensor_of(ctx, TL_F32, zeros, 1, 4), *g = tensor_of(ctx, TL_F32, zeros, 1, 4);
        tl_tensor *m = tensor_of(ctx, TL_F32, zeros, 1, 4), *v = tensor_of(ctx, TL_F32, zeros, 1, 4);
        tl_tensor *whole = ids_of(ctx, (int64_t[]){1, 2, 3, 4}, 4);
        assert_int_equal(tl_adamw_update(whole, g, m, v, NULL, &good), TL_ERR_DTYPE);
        check_fails(ctx, TL_ERR_DTYPE, "the parameter is i64");
        assert_int_equal(tl_adamw_update(p, g, m, m, NULL, &good), TL_ERR_STATE);
        check_fails(ctx, TL_ERR_STATE, "share memory");
        assert_int_equal(tl_adamw_update(p, tensor_of(ctx, TL_F32, zeros, 1, 5), m, v, NULL, &good), TL_ERR_SHAPE);
        check_fails(ctx, TL_ERR_SHAPE, "the gradient");
        bad = good;
        bad.step = 0;
        assert_int_equal(tl_adamw_update(p, g, m, v, NULL, &bad), TL_ERR_ARGUMENT);
        check_fails(ctx, TL_ERR_ARGUMENT, "count from 1");
        bad = good;
        bad.beta2 = 1;
        assert_int_equal(tl_adamw_update(p, g, m, v, NULL, &bad), TL_ERR_ARGUMENT);
        check_fails(ctx, TL_ERR_ARGUMENT, "below 1");
        assert_int_equal(tl_sgd_update(p, g, NULL, NULL, 1, 0.9, 0, false, true), TL_ERR_ARGUMENT);
        check_fails(ctx, TL_ERR_ARGUMENT, "missing");
        assert_int_equal(tl_sgd_update(p, g, m, NULL, 1, 0, 0, true, true), TL_ERR_ARGUMENT);
        check_fails(ctx, TL_ERR_ARGUMENT, "Nesterov");
        tl_rotary_options turn = {.theta = 10000};
        assert_null(tl_rotary(tensor_of(ctx, TL_F32, zeros, 2, 2, 3), &turn));
        check_fails(ctx, TL_ERR_SHAPE, "even size");
        turn.theta = 0;
        assert_null(tl_rotary(tensor_of(ctx, TL_F32, zeros, 2, 2, 4), &turn));
        check_fails(ctx, TL_ERR_ARGUMENT, "theta");
        assert_null(tl_all_reduce(p, 2, false));
        check_fails(ctx, TL_ERR_UNSUPPORTED, "meta");
        assert_ptr_equal(tl_all_reduce(p, 1, true), p);
    }
}

/* ---- what is booked: exact arithmetic by hand from each op's comment, on meta ---- */

static tl_counts counts_since(tl_ctx *ctx) {
    tl_counts counts;
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    tl_ledger_step_begin(ctx);
    return counts;
}

static void check_counts(tl_ctx *ctx, int64_t matmul, int64_t arithmetic, int64_t special) {
    tl_counts counts = counts_since(ctx);
    check_ok(ctx);
    assert_int_equal((int64_t)counts.matmul, matmul);
    assert_int_equal((int64_t)counts.arithmetic, arithmetic);
    assert_int_equal((int64_t)counts.special, special);
}

static tl_tensor *meta_tensor(tl_ctx *ctx, tl_dtype dtype, int64_t a, int64_t b) {
    return tl_empty(ctx, dtype, TL_SHAPE(ctx, tl_dim_of(a), tl_dim_of(b)), TL_DATA);
}

static void test_counts(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, true);
    tl_tensor *x = meta_tensor(ctx, TL_F32, 10, 8), *w = meta_tensor(ctx, TL_F32, 6, 8);
    tl_tensor *o = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(6)), TL_PARAM);
    tl_tensor *d = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(8)), TL_PARAM);
    tl_tensor *ids = tl_empty(ctx, TL_I64, TL_SHAPE(ctx, tl_dim_of(10)), TL_DATA);
    tl_ledger_step_begin(ctx);
    tl_linear(x, w, o);
    check_counts(ctx, 2 * 10 * 6 * 8, 10 * 6, 0);
    tl_softmax(x, 1, false);
    check_counts(ctx, 0, 4 * 80, 80);
    tl_layer_norm(x, d, d, 1e-5);
    check_counts(ctx, 0, 8 * 80 + 5 * 10, 0);
    tl_rms_norm(x, d, 1e-5);
    check_counts(ctx, 0, 4 * 80 + 4 * 10, 0);
    tl_rotary_options turn = {.theta = 10000};
    tl_rotary(x, &turn);
    check_counts(ctx, 0, 3 * 80 + 40, 80);
    tl_cross_entropy(x, ids, -100);
    check_counts(ctx, 0, 2 * 80 + 3 * 10 + 1, 80 + 10);
    tl_mse(x, x);
    check_counts(ctx, 0, 3 * 80 + 1, 0);
    tl_embedding(w, ids);
    tl_counts counts = counts_since(ctx); /* no FLOPs; 10 ids of 8 bytes, 10 rows of 32 bytes read and written */
    assert_int_equal((int64_t)counts.arithmetic, 0);
    assert_int_equal((int64_t)counts.read, 10 * 8 + 10 * 32);
    assert_int_equal((int64_t)counts.written, 10 * 32);
    tl_tensor *m = meta_tensor(ctx, TL_F32, 10, 8), *v = meta_tensor(ctx, TL_F32, 10, 8),
              *g = meta_tensor(ctx, TL_BF16, 10, 8);
    tl_tensor *copy = meta_tensor(ctx, TL_BF16, 10, 8);
    tl_ledger_step_begin(ctx);
    tl_adamw_options options = {1e-3, 0.9, 0.999, 1e-8, 0, 1, false};
    assert_int_equal(tl_adamw_update(x, g, m, v, copy, &options), TL_OK);
    counts = counts_since(ctx); /* 14 an element; bf16 gradient and three f32 read; three f32 and the copy written */
    assert_int_equal((int64_t)counts.arithmetic, 14 * 80);
    assert_int_equal((int64_t)counts.read, 80 * (2 + 12));
    assert_int_equal((int64_t)counts.written, 80 * (12 + 2));
    check_ok(ctx);
    tl_ctx_free(ctx);
}

/* A ring all-reduce sends 2(N−1)/N of the bytes (TALLY_SHARED/data/cs336.md, A2): 80 bytes, 4 ranks: 120; 40 bytes, 3 ranks:
 * 53⅓, rounded up. */
static void test_all_reduce(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, true);
    tl_tensor *x = meta_tensor(ctx, TL_F32, 4, 5), *small = meta_tensor(ctx, TL_F32, 2, 5);
    tl_ledger_step_begin(ctx);
    tl_tensor *y = tl_all_reduce(x, 4, false);
    assert_true(tl_tensor_shares_storage(x, y));
    assert_int_equal((int64_t)counts_since(ctx).sent, 120);
    tl_all_reduce(small, 3, true);
    assert_int_equal((int64_t)counts_since(ctx).sent, 54);
    check_ok(ctx);
    assert_null(tl_all_reduce(x, 0, false));
    check_fails(ctx, TL_ERR_ARGUMENT, "0 ranks");
    tl_ctx_free(ctx);
}

/* Statistics exist only while something is recorded; unwanted gradients of a norm are never allocated. */
static void test_what_is_held(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(100), tl_dim_of(8)), TL_DATA);
    tl_tensor *gain = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(8)), TL_PARAM);
    int64_t before = tl_ledger_live_total(ctx);
    tl_release(tl_layer_norm(x, gain, gain, 1e-5));
    assert_int_equal(tl_ledger_live_total(ctx), before);
    tl_tensor_require_grad(gain, true);
    tl_record(ctx, true);
    tl_tensor *y = tl_layer_norm(x, gain, NULL, 1e-5);
    assert_int_equal(tl_ledger_live(ctx, TL_SAVED), 2 * 100 * 4); /* mean and 1/std */
    assert_int_equal(tl_ledger_live_total(ctx), before + 2 * 100 * 4 + 100 * 8 * 4);
    tl_tensor *loss = tl_sum(y, NULL, 0, false);
    tl_record(ctx, false);
    tl_ledger_step_begin(ctx);
    int64_t base = tl_ledger_live_total(ctx);
    assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
    tl_peak peak;
    tl_ledger_peak(ctx, &peak);
    /* seed 4, Σ's gradient copied or expanded, dgain 32, two blocks of 64 rows × 8 × 2 sums: far from dx's 3200 more */
    assert_true(peak.bytes <= base + 4 + 3200 + 32 + 2 * 2 * 8 * 4);
    assert_non_null(tl_tensor_grad(gain));
    tl_ctx_free(ctx);
}

static void test_ceil_div(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, true);
    tl_dim b = tl_dim_symbol(ctx, "B", 5, "test"), t = tl_dim_symbol(ctx, "T", 13, "test"),
           rows = tl_dim_mul(ctx, b, t);
    tl_dim up = tl_dim_ceil_div(ctx, rows, 64), again = tl_dim_ceil_div(ctx, rows, 64),
           other = tl_dim_ceil_div(ctx, t, 64);
    assert_int_equal(up.size, 2);
    assert_int_equal(other.size, 1);
    assert_non_null(up.formula);
    assert_ptr_equal(up.formula, again.formula);
    assert_ptr_not_equal(up.formula, other.formula);
    const tl_symbol *symbols;
    int count = tl_space_symbols(tl_ctx_space(ctx), &symbols), found = 0;
    for (int i = 0; i < count; i++)
        found += strcmp(symbols[i].source, "ceil((B·T)/64)") == 0 && symbols[i].value == 2;
    assert_int_equal(found, 1);
    assert_int_equal(tl_dim_ceil_div(ctx, tl_dim_of(128), 64).size, 2);
    assert_int_equal(tl_dim_ceil_div(ctx, tl_dim_of(0), 64).size, 0);
    assert_int_equal(tl_dim_ceil_div(ctx, tl_dim_of(INT64_MAX), 2).size, INT64_C(1) << 62);
    check_ok(ctx);
    tl_dim_ceil_div(ctx, rows, 0);
    check_fails(ctx, TL_ERR_ARGUMENT, "positive");
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_masked_rows),
        cmocka_unit_test(test_masked_gradient),
        cmocka_unit_test(test_linear_layouts),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_update_refusals),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_what_is_held),
        cmocka_unit_test(test_ceil_div),
        cmocka_unit_test(test_causal_pairs),
        cmocka_unit_test(test_optimizer_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
