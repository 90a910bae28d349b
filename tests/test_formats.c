/* Tensors of every number format: cast, bitcast, tl_item, what is refused, and a gradient through eight bits. */
#include "layers.h"

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

static double item(tl_tensor *t) {
    double value = NAN;
    if (tl_item(t, &value) != TL_OK)
        fail_msg("no value");
    return value;
}

/* 3 is a number of every format but bool; -2.5 is one of every floating format. */
static void test_item_of_every_format(void **state) {
    (void)state;
    EACH(ctx) for (int from = 0; from < TL_DTYPE_COUNT; from++) for (int to = 0; to < TL_DTYPE_COUNT; to++) {
        static const double three[] = {3}, less[] = {-2.5};
        tl_tensor *a = tensor_of(ctx, (tl_dtype)from, three, 1, 1);
        assert_true(item(a) == (from == TL_BOOL ? 1 : 3));
        tl_tensor *b = tl_cast(a, (tl_dtype)to);
        assert_int_equal(tl_tensor_dtype(b), to);
        assert_true(item(b) == (from == TL_BOOL || to == TL_BOOL ? 1 : 3));
        if (!tl_dtype_is_float((tl_dtype)from))
            continue;
        const double want = tl_dtype_is_float((tl_dtype)to)           ? -2.5
                            : to == TL_BOOL                           ? 1
                            : tl_dtype_iinfo((tl_dtype)to)->is_signed ? -2
                                                                      : 0;
        assert_true(item(tl_cast(tensor_of(ctx, (tl_dtype)from, less, 1, 1), (tl_dtype)to)) == want);
    }
}

/* OCP specification, table 3. Other formats: the same whether it saturates or not. */
static void test_saturation_is_a_choice(void **state) {
    (void)state;
    static const double large[] = {465, -465, 1e6, -INFINITY, 464, 2};
    static const double most[] = {448, -448, 448, -448, 448, 2}, wide[] = {448, -448, 57344, -57344, 448, 2},
                        open[] = {448, -448, INFINITY, -INFINITY, 448, 2},
                        half[] = {465, -465, INFINITY, -INFINITY, 464, 2};
    EACH(ctx) for (int from = 0; from < 2; from++) {
        tl_tensor *x = tensor_of(ctx, from ? TL_F64 : TL_F32, large, 1, 6);
        check_close("e4m3, saturating", tl_cast_saturating(x, TL_F8E4M3), most, 6, 0);
        check_close("e5m2, saturating", tl_cast_saturating(x, TL_F8E5M2), wide, 6, 0);
        check_close("e5m2", tl_cast(x, TL_F8E5M2), open, 6, 0);
        check_close("f16, saturating", tl_cast_saturating(x, TL_F16), half, 6, 0);
        for (int64_t i = 0; i < 6; i++)
            assert_int_equal(isnan(item(tl_cast(tl_slice(x, 0, i, tl_dim_of(1), 1), TL_F8E4M3))) != 0, i < 4);
        assert_ptr_equal(tl_cast_saturating(x, tl_tensor_dtype(x)), x);
    }
}

static void test_bitcast(void **state) {
    (void)state;
    static const double ones[] = {1, -2, 0.5, 8, -0.25, 3};
    EACH(ctx) {
        tl_tensor *x = tensor_of(ctx, TL_F32, ones, 2, 2, 3), *bits = tl_bitcast(tl_transpose(x, 0, 1), TL_I32);
        assert_true(tl_tensor_shares_storage(x, bits));
        assert_int_equal(tl_tensor_dtype(bits), TL_I32);
        static const double want[] = {0x3F800000, 0x41000000, -0x40000000, (double)(int32_t)0xBE800000,
                                      0x3F000000, 0x40400000}; /* IEEE 754: sign, exponent + 127, fraction */
        check_close("bits", tl_cast(bits, TL_F64), want, 6, 0);
        assert_ptr_equal(tl_bitcast(x, TL_F32), x);
        assert_null(tl_bitcast(x, TL_F16));
        check_fails(ctx, TL_ERR_DTYPE, "f32 has 4 bytes an element and f16 has 2");
        assert_null(tl_bitcast(x, (tl_dtype)99));
        check_fails(ctx, TL_ERR_DTYPE, "dtype 99");
        assert_int_equal(tl_record(ctx, true), TL_OK);
        assert_null(tl_bitcast(leaf_of(x), TL_I32));
        check_fails(ctx, TL_ERR_DTYPE, "no gradient passes");
        assert_int_equal(tl_record(ctx, false), TL_OK);
    }
}

/* Integers of every width add; their sums are i64, as torch.sum's are; bool has no arithmetic. */
static void test_narrow_integers(void **state) {
    (void)state;
    static const tl_dtype ints[] = {TL_I64, TL_I32, TL_I16, TL_I8, TL_U16, TL_U8};
    static const double a[] = {100, 27, 3}, twice[] = {200, 54, 6}, half[] = {50, 14, 2}, flags[] = {1, 0, 1};
    EACH(ctx) {
        for (size_t d = 0; d < sizeof ints / sizeof ints[0]; d++) {
            tl_tensor *x = tensor_of(ctx, ints[d], a, 1, 3), *sum = tl_sum(x, NULL, 0, false);
            assert_int_equal(tl_tensor_dtype(sum), TL_I64);
            assert_true(item(sum) == 130); /* more than an i8 holds */
            assert_true(item(tl_max(x, NULL, 0, false)) == 100);
            if (ints[d] != TL_I8)
                check_close("x + x", tl_cast(tl_add(x, x), TL_F64), twice, 3, 0);
            check_close("x/2", tl_cast(tl_scale(x, 0.5, 0), TL_F64), half, 3, 0); /* 13.5 and 1.5 to even */
        }
        tl_tensor *b = tensor_of(ctx, TL_BOOL, flags, 1, 3);
        assert_true(item(tl_sum(b, NULL, 0, false)) == 2);
        assert_null(tl_add(b, b));
        check_fails(ctx, TL_ERR_DTYPE, "no arithmetic in bool");
        assert_null(tl_scale(b, 2, 0));
        check_fails(ctx, TL_ERR_DTYPE, "no arithmetic in bool");
        assert_null(tl_exp(tensor_of(ctx, TL_I8, flags, 1, 3)));
        check_fails(ctx, TL_ERR_DTYPE, "a floating format");
        assert_null(tl_add(tensor_of(ctx, TL_F8E4M3, a, 1, 3), tensor_of(ctx, TL_F8E5M2, a, 1, 3)));
        check_fails(ctx, TL_ERR_DTYPE, "cast one of them");
        assert_null(tl_cast(b, TL_DTYPE_COUNT));
        check_fails(ctx, TL_ERR_DTYPE, TL_DTYPE_NAMES);
    }
}

/* f32 → f8 → f32: the gradient takes the same way back and is rounded on it: 3.3 is 3.25 in e4m3 and 3.5 in e5m2. */
static void test_gradient_through_f8(void **state) {
    (void)state;
    static const double x[] = {1.1, -2}, g[] = {3.3, 0.5}, e4m3[] = {3.25, 0.5}, e5m2[] = {3.5, 0.5};
    EACH(ctx) for (int wide = 0; wide < 2; wide++) {
        tl_tensor *leaf = leaf_of(tensor_of(ctx, TL_F32, x, 1, 2)), *up = tensor_of(ctx, TL_F32, g, 1, 2);
        assert_int_equal(tl_record(ctx, true), TL_OK);
        backward_with(tl_cast(tl_cast(leaf, wide ? TL_F8E5M2 : TL_F8E4M3), TL_F32), up);
        check_close("gradient", tl_tensor_grad(leaf), wide ? e5m2 : e4m3, 2, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_item_of_every_format),
        cmocka_unit_test(test_saturation_is_a_choice),
        cmocka_unit_test(test_bitcast),
        cmocka_unit_test(test_narrow_integers),
        cmocka_unit_test(test_gradient_through_f8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
