/* NF4 weights and the frozen linear layers over them and over int8: beside numpy's recorded codes
 * (tests/fixtures/make_nf4_fixtures.py), beside a product with the weight written out, and what they keep and hold beside the
 * formulas of tally/ops_nf4.h and the second instrument. */
#include "layers.h"

#include "fixtures/nf4_fixtures.h"
#include "instrument.h"
#include "tally/dtype.h"
#include "tally/ops_quantize.h"
#include "tensor/ctx.h"

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

/* The script's rule. */
static tl_tensor *values(tl_ctx *ctx, int64_t n) {
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((double)((13 * i * i + 7919 * i) % 2003 - 1001) / 1300 * (double)(1 + i / 64 % 7));
    tl_tensor *t = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(n)), TL_PARAM, v, n);
    free(v);
    return t;
}

static void same(const char *what, const tl_tensor *t, const void *want, int64_t bytes) {
    char *got = calloc(1, (size_t)bytes + 1);
    assert_int_equal(tl_tensor_count(t) * tl_dtype_bytes(tl_tensor_dtype(t)), bytes);
    assert_int_equal(tl_tensor_read(t, got, (size_t)bytes), TL_OK);
    for (int64_t i = 0; i < bytes; i++)
        if (((const char *)want)[i] != got[i])
            fail_msg("%s: byte %lld is %d, numpy says %d", what, (long long)i, got[i], ((const char *)want)[i]);
    free(got);
}

static void test_numpy(void **state) {
    (void)state;
    EACH(ctx) {
        tl_nf4 w;
        assert_int_equal(tl_quantize_nf4(values(ctx, 167), false, &w), TL_OK);
        same("packed", w.packed, nf4_small_packed, 84);
        same("scales", w.scales, nf4_small_scales, 12);
        assert_null(w.outer);
        same("back", tl_dequantize_nf4(&w, TL_SHAPE(ctx, tl_dim_of(167)), TL_F32), nf4_small_back, 167 * 4);
        tl_tensor *edge =
            tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(COUNT(nf4_edge))), TL_PARAM, nf4_edge, COUNT(nf4_edge));
        assert_true(COUNT(nf4_edge) > 16); /* all levels, and ties */
        assert_int_equal(tl_quantize_nf4(edge, false, &w), TL_OK);
        same("levels and ties", w.packed, nf4_edge_packed, COUNT(nf4_edge_packed));
        tl_tensor *levels = tl_dequantize_nf4(&w, TL_SHAPE(ctx, tl_dim_of(COUNT(nf4_edge))), TL_F32);
        same("levels", tl_slice(levels, 0, 0, tl_dim_of(16), 1), nf4_edge, 64);
    }
}

static void test_twice(void **state) {
    (void)state;
    EACH(ctx) {
        tl_nf4 w;
        double sum = 0;
        float last[8], all[64 * 300 + 5];
        int64_t n = COUNT(all);
        assert_int_equal(tl_quantize_nf4(values(ctx, n), true, &w), TL_OK);
        same("codes", w.scales, nf4_twice_codes, 301);
        same("outer", w.outer, nf4_twice_outer, 8);
        same("mean", w.mean, nf4_twice_mean, 4);
        tl_tensor *back = tl_dequantize_nf4(&w, TL_SHAPE(ctx, tl_dim_of(n)), TL_F32);
        assert_int_equal(tl_tensor_read(back, all, sizeof all), TL_OK);
        for (int64_t i = 0; i < n; i++)
            sum += (double)all[i];
        memcpy(last, all + n - 8, sizeof last);
        assert_memory_equal(last, nf4_twice_last, sizeof last);
        if (fabs(sum - nf4_twice_sum) > 1e-9)
            fail_msg("the values add up to %.17g; numpy's to %.17g", sum, nf4_twice_sum);
    }
}

/* Zeros, nothing, one value, other layouts and formats. */
static void test_edges(void **state) {
    (void)state;
    EACH(ctx) {
        tl_nf4 w;
        double zero[65] = {0};
        zero[64] = -2; /* the second block */
        assert_int_equal(tl_quantize_nf4(tensor_of(ctx, TL_F32, zero, 1, 65), false, &w), TL_OK);
        unsigned char want[33];
        memset(want, 0x77, sizeof want);
        want[32] = 0x07;
        same("a block of zeros", w.packed, want, 33);
        same("its scale", w.scales, (const float[]){0, 2}, 8);
        tl_tensor *none = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(0), tl_dim_of(3)), TL_PARAM);
        for (int twice = 0; twice < 2; twice++) {
            assert_int_equal(tl_quantize_nf4(none, twice, &w), TL_OK);
            assert_int_equal(tl_tensor_count(w.packed) + tl_tensor_count(w.scales), 0);
            assert_int_equal(tl_tensor_count(tl_dequantize_nf4(&w, TL_SHAPE(ctx, tl_dim_of(0)), TL_F32)), 0);
        }
        /* in flat order whatever the strides */
        tl_tensor *x = tl_view(values(ctx, 120), TL_SHAPE(ctx, tl_dim_of(8), tl_dim_of(15)));
        tl_nf4 plain, turned;
        assert_int_equal(tl_quantize_nf4(tl_copy(tl_transpose(x, 0, 1)), false, &plain), TL_OK);
        assert_int_equal(tl_quantize_nf4(tl_transpose(x, 0, 1), false, &turned), TL_OK);
        same("transposed", turned.packed, tl_tensor_data(plain.packed), 60);
        /* f64 beyond f32's smallest, and 16 bits: as of their f32 values */
        assert_int_equal(tl_quantize_nf4(tl_cast(tl_cast(x, TL_BF16), TL_F32), false, &plain), TL_OK);
        assert_int_equal(tl_quantize_nf4(tl_cast(x, TL_BF16), false, &turned), TL_OK);
        same("bf16", turned.packed, tl_tensor_data(plain.packed), 60);
        assert_int_equal(tl_quantize_nf4(tensor_of(ctx, TL_F64, (const double[]){1e-60, -1e-60}, 1, 2), false, &w),
                         TL_OK);
        same("below f32", w.scales, (const float[]){0}, 4);
        /* written out in bf16: the f32 value rounded once */
        assert_int_equal(tl_quantize_nf4(x, false, &w), TL_OK);
        tl_shape shape = TL_SHAPE(ctx, tl_dim_of(8), tl_dim_of(15));
        tl_tensor *low = tl_dequantize_nf4(&w, shape, TL_BF16), *wide = tl_dequantize_nf4(&w, shape, TL_F32);
        same("bf16 out", low, tl_tensor_data(tl_cast(wide, TL_BF16)), 240);
    }
}

static void test_refusals(void **state) {
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY, 1e300};
    for (size_t i = 0; i < 4; i++) {
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        double v[100] = {0};
        tl_nf4 w;
        v[77] = bad[i];
        assert_int_equal(tl_quantize_nf4(tensor_of(ctx, TL_F64, v, 1, 100), false, &w), TL_ERR_ARGUMENT);
        assert_non_null(strstr(tl_ctx_error(ctx)->message, "value 77 is NaN, infinite or beyond f32"));
        assert_null(w.packed);
        tl_ctx_free(ctx);
    }
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_nf4 w, other;
    assert_int_equal(tl_quantize_nf4(values(ctx, 120), false, &w), TL_OK);
    tl_scope_begin(ctx);
    assert_null(tl_dequantize_nf4(&w, TL_SHAPE(ctx, tl_dim_of(119), tl_dim_of(2)), TL_F32));
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "packed codes"));
    tl_ctx_clear_error(ctx);
    assert_null(tl_dequantize_nf4(&w, TL_SHAPE(ctx, tl_dim_of(120)), TL_I8));
    tl_ctx_clear_error(ctx);
    other = w;
    other.scales = w.packed;
    assert_null(tl_dequantize_nf4(&other, TL_SHAPE(ctx, tl_dim_of(120)), TL_F32));
    tl_ctx_clear_error(ctx);
    tl_tensor *x = values(ctx, 15);
    assert_null(tl_linear_nf4(x, &w, tl_dim_of(9), NULL)); /* 9·15 is not 120 */
    tl_ctx_clear_error(ctx);
    assert_null(tl_linear_nf4(tl_cast(x, TL_I32), &w, tl_dim_of(8), NULL));
    tl_ctx_clear_error(ctx);
    assert_null(tl_linear_nf4(x, &w, tl_dim_of(8), tl_cast(values(ctx, 8), TL_BF16)));
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "the bias is bf16"));
    tl_ctx_clear_error(ctx);
    tl_tensor_require_grad(w.scales, true);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    assert_null(tl_linear_nf4(x, &w, tl_dim_of(8), NULL));
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "frozen"));
    tl_ctx_free(ctx);
}

/* ---- layers ---- */

enum { O = 24, I = 40, ROWS = 6 };

typedef enum kind { PLAIN, INT8, ONCE, TWICE, KINDS } kind;

typedef struct weight {
    tl_tensor *full, *q, *scale;
    tl_nf4 nf4;
} weight;

/* Owned by nobody's ledger but the scope; `full` is what the quantised form stands for. */
static weight weight_of(tl_ctx *ctx, kind k, tl_dtype dtype) {
    weight w = {0};
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(O), tl_dim_of(I));
    tl_tensor *x = tl_view(values(ctx, O * I), shape);
    tl_quantize_options rows = {.axis = 0};
    if (k == PLAIN)
        w.full = tl_cast(x, dtype);
    else if (k == INT8) {
        w.scale = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(O)), TL_PARAM), 0.043);
        w.q = tl_quantize(x, w.scale, NULL, TL_I8, &rows);
        w.full = tl_cast(tl_dequantize(w.q, w.scale, NULL, &rows), dtype);
    } else {
        assert_int_equal(tl_quantize_nf4(x, k == TWICE, &w.nf4), TL_OK);
        w.full = tl_dequantize_nf4(&w.nf4, shape, dtype);
    }
    tl_tensor *all[] = {w.full, w.q, w.scale, w.nf4.packed, w.nf4.scales, w.nf4.outer, w.nf4.mean};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i])
            tl_storage_retag(all[i]->storage, TL_PARAM);
    return w;
}

static tl_tensor *apply(const weight *w, kind k, tl_tensor *x, tl_tensor *bias) {
    if (k == PLAIN)
        return tl_linear(x, w->full, bias);
    return k == INT8 ? tl_linear_int8(x, w->q, w->scale, bias) : tl_linear_nf4(x, &w->nf4, tl_dim_of(O), bias);
}

static tl_tensor *input_of(tl_ctx *ctx, tl_dtype dtype) {
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(3), tl_dim_of(I));
    return tl_cast(tl_view(tl_scale(values(ctx, ROWS * I), 0.25, 0), shape), dtype);
}

/* y, dx and the bias's gradient against a product with the weight written out: to the bit for NF4, which computes that. */
static void test_layers(void **state) {
    (void)state;
    static const tl_dtype formats[] = {TL_F64, TL_F32, TL_BF16, TL_F16};
    static const double loose[] = {1e-6, 1e-4, 0.03, 0.01}; /* int8: the weight written out is rounded to f32 */
    EACH(ctx) {
        for (int f = 0; f < 4; f++)
            for (kind k = INT8; k < KINDS; k++) {
                tl_tensor *y[2], *dx[2], *db[2];
                weight w = weight_of(ctx, k, formats[f]);
                for (int side = 0; side < 2; side++) {
                    tl_tensor *x = leaf_of(input_of(ctx, formats[f]));
                    tl_tensor *bias = leaf_of(tl_cast(values(ctx, O), formats[f]));
                    assert_int_equal(tl_record(ctx, true), TL_OK);
                    y[side] = apply(&w, side ? k : PLAIN, x, bias);
                    tl_tensor *loss = tl_sum(tl_mul(y[side], y[side]), NULL, 0, false);
                    assert_int_equal(tl_backward(ctx, loss, 0.5), TL_OK);
                    assert_int_equal(tl_record(ctx, false), TL_OK);
                    dx[side] = tl_cast(tl_tensor_grad(x), TL_F64);
                    db[side] = tl_cast(tl_tensor_grad(bias), TL_F64);
                    y[side] = tl_cast(y[side], TL_F64);
                }
                tl_tensor *const *pairs[] = {y, dx, db};
                for (int p = 0; p < 3; p++) {
                    const double *a = tl_tensor_data(pairs[p][0]), *b = tl_tensor_data(pairs[p][1]);
                    double most = 0;
                    for (int64_t i = 0; i < tl_tensor_count(pairs[p][0]); i++)
                        most = fmax(most, fabs(a[i]));
                    for (int64_t i = 0; i < tl_tensor_count(pairs[p][0]); i++)
                        if (!(fabs(a[i] - b[i]) <= (k == INT8 ? loose[f] * most : 0)))
                            fail_msg("format %d, kind %d, result %d, element %lld: %.9g, written out %.9g", f, (int)k,
                                     p, (long long)i, b[i], a[i]);
                }
                tl_tape_clear(ctx);
            }
    }
}

/* A frozen weight's layer keeps nothing: not its input, which only the weight's gradient would need, and no copy of the
 * weight. A weight that is trained keeps the input. */
static void test_kept(void **state) {
    (void)state;
    for (kind k = PLAIN; k < KINDS; k++) {
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        weight w = weight_of(ctx, k, TL_F32);
        tl_tensor *x = leaf_of(tl_add(input_of(ctx, TL_F32), input_of(ctx, TL_F32)));
        assert_int_equal(tl_record(ctx, true), TL_OK);
        tl_tensor *h = tl_scale(x, 2, 0); /* made by an op: it would be kept as "saved" */
        tl_tensor *y = apply(&w, k, h, NULL);
        assert_non_null(y);
        assert_int_equal(tl_ledger_live(ctx, TL_SAVED), 0);
        tl_tape_clear(ctx);
        if (k == PLAIN) {
            tl_tensor_require_grad(w.full, true);
            h = tl_scale(x, 2, 0);
            y = apply(&w, k, h, NULL);
            assert_int_equal(tl_ledger_live(ctx, TL_SAVED), ROWS * I * 4);
        }
        tl_tape_clear(ctx);
        tl_ctx_free(ctx);
    }
}

/* The weight written out lives in the op and in backward's product, and nowhere else: peaks by hand, and by the second
 * instrument. */
static void test_peak(void **state) {
    (void)state;
    for (kind k = ONCE; k < KINDS; k++) {
        instrument *in = instrument_new(NULL);
        tl_allocator allocator = instrument_allocator(in);
        tl_ctx_options options = {.kernels = instrument_kernels(in, tl_kernels_portable()), .allocator = &allocator};
        tl_error error = {0};
        instrument_begin(in);
        tl_ctx *ctx = tl_ctx_new(&options, &error);
        assert_non_null(ctx);
        weight w = weight_of(ctx, k, TL_F32);
        tl_release(w.full);
        tl_tensor *x = leaf_of(input_of(ctx, TL_F32));
        assert_int_equal(tl_record(ctx, true), TL_OK);
        (void)instrument_end(in);
        tl_ledger_step_begin(ctx);
        int64_t before = tl_ledger_live_total(ctx), full = O * I * 4, y_bytes = ROWS * O * 4;
        instrument_begin(in);
        tl_tensor *y = apply(&w, k, x, NULL);
        measured forward = instrument_end(in);
        tl_peak peak;
        tl_ledger_peak(ctx, &peak);
        assert_int_equal(peak.bytes, before + y_bytes + full);
        assert_int_equal(forward.peak, peak.bytes);
        assert_int_equal((int64_t)forward.matmul, 2 * ROWS * O * I);
        assert_int_equal(tl_ledger_live_total(ctx), before + y_bytes);
        tl_tensor *loss = tl_sum(y, NULL, 0, false);
        assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
        assert_int_equal(tl_tensor_count(tl_tensor_grad(x)), ROWS * I);
        tl_ctx_free(ctx);
        assert_int_equal(instrument_free(in), 0);
    }
}

/* Bytes of a weight: 0.5 + 4/64, and 0.5 + 1/64 + 4/(64·256) + one mean (Dettmers et al. 2023, section 3: 0.373 bits saved of
 * the 0.5 that f32 scales take). */
static void test_bytes(void **state) {
    (void)state;
    tl_ctx *ctx = tl_ctx_new(NULL, NULL);
    tl_nf4 w;
    int64_t n = 4096LL * 11008;
    tl_tensor *x = tl_empty(ctx, TL_BF16, TL_SHAPE(ctx, tl_dim_of(11008), tl_dim_of(4096)), TL_PARAM);
    assert_int_equal(tl_quantize_nf4(x, false, &w), TL_OK);
    assert_int_equal(tl_tensor_storage_bytes(w.packed) + tl_tensor_storage_bytes(w.scales), n / 2 + n / 16);
    assert_int_equal(tl_quantize_nf4(x, true, &w), TL_OK);
    assert_int_equal(tl_tensor_storage_bytes(w.packed) + tl_tensor_storage_bytes(w.scales) +
                         tl_tensor_storage_bytes(w.outer) + tl_tensor_storage_bytes(w.mean),
                     n / 2 + n / 64 + n / 64 / 256 * 4 + 4);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numpy),    cmocka_unit_test(test_twice),  cmocka_unit_test(test_edges),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_layers), cmocka_unit_test(test_kept),
        cmocka_unit_test(test_peak),     cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
