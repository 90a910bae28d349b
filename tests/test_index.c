/* Gathers, scatters, order, padding, repetition and quantising beside numpy (tests/fixtures/make_index_fixtures.py), what
 * they refuse, and the same bits on any number of threads. */
#include "layers.h"

#include "fixtures/index_fixtures.h"
#include "tally/ops_index.h"
#include "tally/ops_quantize.h"

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

static tl_tensor *ids(tl_ctx *ctx, const int64_t *values, int ndim, int64_t a, int64_t b, int64_t c) {
    tl_dim dim[] = {tl_dim_of(a), tl_dim_of(b), tl_dim_of(c)};
    return tl_from_data(ctx, TL_I64, tl_shape_of(ctx, ndim, dim), TL_DATA, values,
                        a * (ndim > 1 ? b : 1) * (ndim > 2 ? c : 1));
}

/* Equal, NaN to NaN. */
static void check_equal(const char *what, tl_tensor *t, const double *expected, int64_t count) {
    check_ok(tl_tensor_ctx(t));
    tl_tensor *wide = tl_cast(t, TL_F64);
    double *found = malloc((size_t)count * 8 + 8);
    assert_non_null(found);
    assert_int_equal(tl_tensor_count(wide), count);
    assert_int_equal(tl_tensor_read(wide, found, (size_t)count * 8), TL_OK);
    for (int64_t i = 0; i < count; i++)
        if (found[i] != expected[i] && !(isnan(found[i]) && isnan(expected[i])))
            fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, found[i], expected[i]);
    free(found);
}

static void check_ints(const char *what, tl_tensor *t, const int64_t *expected, int64_t count) {
    double wide[256];
    assert_true(count <= 256);
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)expected[i];
    check_equal(what, t, wide, count);
}

static void test_gathers(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_BF16, TL_F16}; /* which hold multiples of 1/8 up to 3 */
    EACH(ctx) {
        for (int i = 0; i < 4; i++) {
            tl_tensor *x = tensor_of(ctx, dtypes[i], x345, 3, 3, 4, 5);
            tl_tensor *index = ids(ctx, gather_index, 2, 2, 3, 0);
            check_equal("gather", tl_gather(x, index, 1), gather_y, COUNT(gather_y));
            check_equal("gather, i32", tl_gather(x, tl_cast(index, TL_I32), -2), gather_y, COUNT(gather_y));
            check_equal("take", tl_take(x, ids(ctx, take_index, 1, 7, 0, 0)), take_y, 7);
            check_equal("along", tl_gather_elements(x, ids(ctx, along_index, 3, 3, 4, 6), 2), along_y, COUNT(along_y));
            check_equal("nd", tl_gather_nd(x, ids(ctx, nd_index, 3, 2, 3, 2), 0), nd_y, COUNT(nd_y));
        }
    }
}

static void test_scatters(void **state) {
    (void)state;
    static const double *const expected[] = {scatter_replace, scatter_add, scatter_mul, scatter_max, scatter_min};
    EACH(ctx) {
        tl_tensor *x = tensor_of(ctx, TL_F64, scatter_x, 2, 4, 3), *u = tensor_of(ctx, TL_F64, scatter_u, 2, 6, 3);
        tl_tensor *index = ids(ctx, scatter_index, 2, 6, 3, 0), *rows = ids(ctx, rows_index, 1, 5, 0, 0);
        tl_tensor *source = tensor_of(ctx, TL_F64, rows_source, 2, 5, 3);
        for (int how = 0; how < 5; how++)
            check_equal("scatter", tl_scatter_elements(x, index, u, 0, (tl_scatter)how), expected[how], 12);
        check_equal("scatter leaves x", x, scatter_x, 12);
        check_equal("index_add", tl_index_add(x, rows, source, 0), rows_add, 12);
        check_equal("scatter_nd", tl_scatter_nd(x, ids(ctx, rows_index, 2, 5, 1, 0), source, TL_SCATTER_ADD), rows_add,
                    12);
        /* whole numbers in every width add alike */
        static const tl_dtype ints[] = {TL_I64, TL_I32, TL_I16, TL_I8};
        for (int i = 0; i < 4; i++) {
            tl_tensor *y =
                tl_index_add(tl_cast(tl_scale(x, 8, 0), ints[i]), rows, tl_cast(tl_scale(source, 8, 0), ints[i]), 0);
            check_equal("index_add of ints", tl_scale(tl_cast(y, TL_F64), 0.125, 0), rows_add, 12);
        }
    }
}

/* Repeated indices: what is replaced has no gradient, and a product's factors have the product of the others. */
static void test_repeated_gradient(void **state) {
    (void)state;
    static const double x[] = {2, 3}, u[] = {5, 7, 11}, ones[] = {1, 1};
    static const int64_t index[] = {1, 0, 1};
    static const double dx[][2] = {{0, 0}, {1, 1}, {7, 55}, {0, 0}, {1, 1}};
    static const double du[][3] = {{0, 1, 1}, {1, 1, 1}, {33, 2, 15}, {0, 1, 1}, {0, 0, 0}};
    EACH(ctx)
    for (int how = 0; how < 5; how++) {
        tl_record(ctx, true);
        tl_tensor *a = leaf_of(tensor_of(ctx, TL_F64, x, 1, 2)), *b = leaf_of(tensor_of(ctx, TL_F64, u, 1, 3));
        tl_tensor *y = tl_scatter_elements(a, ids(ctx, index, 1, 3, 0, 0), b, 0, (tl_scatter)how);
        backward_with(y, tensor_of(ctx, TL_F64, ones, 1, 2));
        check_equal("dx", tl_tensor_grad(a), dx[how], 2);
        check_equal("du", tl_tensor_grad(b), du[how], 3);
        tl_tape_clear(ctx);
    }
}

static void test_order(void **state) {
    (void)state;
    EACH(ctx) {
        tl_tensor *x = tensor_of(ctx, TL_F32, order_x, 2, 3, 11), *values, *at, *turned;
        assert_int_equal(tl_sort(x, 1, false, &values, &at), TL_OK);
        check_equal("ascending", values, sorted_up, 33);
        check_ints("ascending, where", at, order_up, 33);
        assert_int_equal(tl_sort(x, -1, true, &values, &at), TL_OK);
        check_equal("descending", values, sorted_down, 33);
        check_ints("descending, where", at, order_down, 33);
        turned = tl_contiguous(tl_transpose(x, 0, 1)); /* the same along the other axis */
        assert_int_equal(tl_sort(turned, 0, true, &values, &at), TL_OK);
        check_ints("along axis 0", tl_contiguous(tl_transpose(at, 0, 1)), order_down, 33);
        assert_int_equal(tl_top_k(x, 1, 4, true, &values, &at), TL_OK);
        for (int row = 0; row < 3; row++)
            check_ints("top 4", tl_contiguous(tl_slice(at, 0, row, tl_dim_of(1), 1)), order_down + (int64_t)11 * row,
                       4);
        /* beyond 2^53 a double would not tell these apart */
        static const int64_t large[] = {9007199254740993, 9007199254740992, 9007199254740994}, order[] = {1, 0, 2};
        assert_int_equal(tl_sort(ids(ctx, large, 1, 3, 0, 0), 0, false, &values, &at), TL_OK);
        check_ints("i64", at, order, 3);
        assert_int_equal(tl_top_k(x, 1, 12, true, &values, &at), TL_ERR_SHAPE);
        check_fails(ctx, TL_ERR_SHAPE, "0 to 11");
    }
}

static void test_padding(void **state) {
    (void)state;
    static const double *const expected[] = {pad_constant, pad_reflect, pad_edge, pad_wrap};
    static const int64_t before[] = {4, 0}, after[] = {7, 9}, cut_before[] = {-1, 0}, cut_after[] = {-1, -1};
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_BF16};
    EACH(ctx) {
        for (int i = 0; i < 3; i++) {
            tl_tensor *x = tensor_of(ctx, dtypes[i], pad_x, 2, 3, 4);
            for (int how = 0; how < 4; how++) {
                check_equal("pad", tl_pad(x, before, after, (tl_padding)how, 2.5), expected[how], 14 * 13);
                check_equal("cut", tl_pad(x, cut_before, cut_after, (tl_padding)how, 2.5), pad_cut, 3);
            }
            check_equal("tile", tl_tile(x, ((int64_t[]){2, 3})), tile_y, 72);
            check_equal("tile by 0", tl_tile(x, ((int64_t[]){0, 3})), NULL, 0);
        }
        tl_tensor *none = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(0), tl_dim_of(4)), TL_DATA);
        assert_int_equal(tl_tensor_count(tl_pad(none, before, after, TL_PADDING_CONSTANT, 1)), 11 * 13);
        assert_null(tl_pad(none, before, after, TL_PADDING_EDGE, 1));
        check_fails(ctx, TL_ERR_SHAPE, "no element to repeat");
        assert_null(tl_pad(none, ((int64_t[]){-1, 0}), after, TL_PADDING_CONSTANT, 1));
        check_fails(ctx, TL_ERR_SHAPE, "cannot be padded by -1 and 7");
        assert_null(tl_pad(none, ((int64_t[]){INT64_MAX, 0}), after, TL_PADDING_CONSTANT, 1));
        check_fails(ctx, TL_ERR_SHAPE, "cannot be padded");
        assert_null(tl_tile(none, ((int64_t[]){-1, 1})));
        check_fails(ctx, TL_ERR_ARGUMENT, "0 or more");
        tl_tensor *x = tensor_of(ctx, TL_F32, pad_x, 2, 3, 4);
        assert_null(tl_tile(x, ((int64_t[]){INT64_MAX, 1})));
        tl_ctx_clear_error(ctx);
        tl_tensor *pair[] = {x, x}, *odd[] = {x, none};
        tl_tensor *y = tl_stack(pair, 2, -1);
        assert_int_equal(tl_tensor_ndim(y), 3);
        assert_int_equal(tl_tensor_size(y, 2), 2);
        assert_null(tl_stack(odd, 2, 0));
        check_fails(ctx, TL_ERR_SHAPE, "tensor 1");
    }
}

/* Out of range in either direction names the position; the smallest of several, on any number of threads. */
static void test_refused(void **state) {
    (void)state;
    static const int64_t high[] = {0, 3, 9}, low[] = {0, 0, -5}, pair[] = {0, 1, 2, -5};
    EACH(ctx) {
        tl_tensor *x = tensor_of(ctx, TL_F32, scatter_x, 2, 4, 3), *u = tensor_of(ctx, TL_F32, scatter_u, 2, 3, 3);
        assert_null(tl_gather(x, ids(ctx, high, 1, 3, 0, 0), 0));
        check_fails(ctx, TL_ERR_ARGUMENT, "the index at position 2 is out of range for axis 0 of 4 elements: -4 to 3");
        assert_null(tl_gather_elements(x, ids(ctx, low, 2, 1, 3, 0), -2));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 2");
        assert_null(tl_index_add(x, ids(ctx, low, 1, 3, 0, 0), u, 0));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 2");
        assert_null(tl_gather_nd(x, ids(ctx, pair, 2, 2, 2, 0), 0));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 3 is out of range for axis 1 of 3");
        assert_null(tl_take(x, ids(ctx, (int64_t[]){12}, 1, 1, 0, 0)));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 0");
        assert_null(tl_gather(x, x, 0));
        check_fails(ctx, TL_ERR_DTYPE, "i32 or i64");
        assert_null(tl_gather(x, ids(ctx, low, 1, 3, 0, 0), 2));
        check_fails(ctx, TL_ERR_SHAPE, "-2 to 1");
        assert_null(tl_scatter_elements(x, ids(ctx, low, 2, 1, 3, 0), u, 0, TL_SCATTER_ADD));
        check_fails(ctx, TL_ERR_SHAPE, "the updates");
        assert_null(tl_gather_nd(x, ids(ctx, low, 2, 1, 3, 0), 0));
        check_fails(ctx, TL_ERR_SHAPE, "1 to 2 indices");
    }
}

static void test_quantize(void **state) {
    (void)state;
    static const struct {
        tl_dtype dtype;
        const int64_t *q[3];
        const double *back[3];
    } c[] = {{TL_I8,
              {quantize_int8_tensor, quantize_int8_axis, quantize_int8_block},
              {dequantize_int8_tensor, dequantize_int8_axis, dequantize_int8_block}},
             {TL_U8,
              {quantize_uint8_tensor, quantize_uint8_axis, quantize_uint8_block},
              {dequantize_uint8_tensor, dequantize_uint8_axis, dequantize_uint8_block}},
             {TL_I16,
              {quantize_int16_tensor, quantize_int16_axis, quantize_int16_block},
              {dequantize_int16_tensor, dequantize_int16_axis, dequantize_int16_block}},
             {TL_U16,
              {quantize_uint16_tensor, quantize_uint16_axis, quantize_uint16_block},
              {dequantize_uint16_tensor, dequantize_uint16_axis, dequantize_uint16_block}}};
    static const double one[] = {1};
    EACH(ctx) {
        tl_tensor *x = tensor_of(ctx, TL_F32, quantize_x, 2, 4, 6);
        tl_tensor *scale[] = {tensor_of(ctx, TL_F32, one, 0), tensor_of(ctx, TL_F32, quantize_axis_scale, 1, 4),
                              tensor_of(ctx, TL_F32, quantize_block_scale, 2, 4, 2)};
        for (int i = 0; i < 4; i++)
            for (int how = 0; how < 3; how++) {
                tl_quantize_options o = {.axis = how == 2 ? 1 : -2, .block = how == 2 ? 3 : 0};
                bool shifted = c[i].dtype == TL_U8 || c[i].dtype == TL_U16;
                tl_tensor *zero =
                    shifted ? tl_fill(tl_empty(ctx, c[i].dtype, *tl_tensor_shape(scale[how]), TL_DATA), 128) : NULL;
                tl_tensor *q = tl_quantize(x, scale[how], zero, c[i].dtype, &o);
                check_ints("quantize", q, c[i].q[how], 24);
                check_equal("dequantize", tl_dequantize(q, scale[how], zero, &o), c[i].back[how], 24);
            }
        /* OCP 8-bit floats: 464 is a tie that goes to 448, 465 and more are too large */
        static const double large[] = {464, 465, -1e9, 57344, 61440, 3};
        static const double clipped[] = {448, 448, -448, 448, 448, 3}, wide[] = {448, 448, -57344, 57344, 57344, 3};
        static const double open[] = {448, NAN, NAN, NAN, NAN, 3},
                            infinite[] = {448, 448, -INFINITY, 57344, INFINITY, 3};
        tl_tensor *y = tensor_of(ctx, TL_F32, large, 1, 6);
        tl_quantize_options o = {0}, overflows = {.overflows = true};
        check_equal("e4m3", tl_quantize(y, scale[0], NULL, TL_F8E4M3, &o), clipped, 6);
        check_equal("e5m2", tl_quantize(y, scale[0], NULL, TL_F8E5M2, &o), wide, 6);
        check_equal("e4m3 open", tl_quantize(y, scale[0], NULL, TL_F8E4M3, &overflows), open, 6);
        check_equal("e5m2 open", tl_quantize(y, scale[0], NULL, TL_F8E5M2, &overflows), infinite, 6);
        assert_null(tl_quantize(x, scale[2], NULL, TL_I8, &o));
        check_fails(ctx, TL_ERR_SHAPE, "one element, one for each of the axis");
        o.block = 4;
        assert_null(tl_quantize(x, scale[2], NULL, TL_I8, &o));
        check_fails(ctx, TL_ERR_SHAPE, "blocks of 4");
        o.block = 0;
        assert_null(tl_quantize(x, scale[0], NULL, TL_BOOL, &o));
        check_fails(ctx, TL_ERR_DTYPE, "f8e5m2 would work");
    }
}

/* Large enough that every kernel is cut into tasks; element i of the results, from 1, 2, 3 and 8 threads. */
static char *all_results(int threads, size_t *bytes) {
    enum { N = 300, D = 400 };
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(
        &(tl_ctx_options){.kernels = tl_kernels_for_cpu(NULL, &error), .threads = threads, .seed_init = 5}, &error);
    assert_non_null(ctx);
    static int64_t rows[N], along[N * D];
    for (int64_t i = 0; i < N; i++)
        rows[i] = i * i % 97;
    for (int64_t i = 0; i < (int64_t)N * D; i++)
        along[i] = i * 7919 % N;
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(N), tl_dim_of(D));
    tl_tensor *x = tl_normal(tl_empty(ctx, TL_F32, shape, TL_DATA), 0, 1, "x", 0);
    tl_tensor *u = tl_normal(tl_empty(ctx, TL_F32, shape, TL_DATA), 0, 1, "u", 0);
    tl_tensor *row = ids(ctx, rows, 1, N, 0, 0), *each = ids(ctx, along, 2, N, D, 0), *values, *at;
    tl_sort(x, 1, true, &values, &at);
    tl_quantize_options o = {.axis = 0};
    tl_tensor *out[] = {
        tl_gather(x, row, 0),
        tl_gather_elements(x, each, 0),
        tl_index_add(x, row, u, 0),
        tl_scatter_elements(x, each, u, 0, TL_SCATTER_ADD),
        values,
        tl_cast(at, TL_F32),
        tl_pad(x, ((int64_t[]){5, 450}), ((int64_t[]){70, 900}), TL_PADDING_REFLECT, 0),
        tl_cast(
            tl_quantize(x, tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(N)), TL_DATA), 0.1), NULL, TL_I8, &o),
            TL_F32)};
    check_ok(ctx);
    char *all = NULL;
    *bytes = 0;
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        size_t more = (size_t)tl_tensor_count(out[i]) * 4;
        char *longer = realloc(all, *bytes + more);
        assert_non_null(longer);
        all = longer;
        assert_int_equal(tl_tensor_read(out[i], all + *bytes, more), TL_OK);
        *bytes += more;
    }
    tl_ctx_free(ctx);
    return all;
}

static void test_threads(void **state) {
    (void)state;
    static const int threads[] = {2, 3, 8};
    size_t bytes, more;
    char *one = all_results(1, &bytes);
    for (int i = 0; i < 3; i++) {
        char *many = all_results(threads[i], &more);
        assert_int_equal(bytes, more);
        assert_memory_equal(one, many, bytes);
        free(many);
    }
    free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gathers),  cmocka_unit_test(test_scatters), cmocka_unit_test(test_repeated_gradient),
        cmocka_unit_test(test_order),    cmocka_unit_test(test_padding),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_quantize), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
