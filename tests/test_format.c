/* Tensors as text: every case recorded from NumPy's array2string, its views, and the table of tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fixtures/format_fixtures.h"
#include "kernel/table.h"
#include "tally/format.h"
#include "tally/ops.h"

#define DIM(n) tl_dim_of(n)

static tl_ctx *cpu(void) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    assert_non_null(ctx);
    return ctx;
}

static int dtype_named(const char *name) {
    for (int i = 0; i < TL_DTYPE_COUNT; i++)
        if (strcmp(tl_dtype_name((tl_dtype)i), name) == 0)
            return i;
    return -1;
}

static void unhex(const char *hex, unsigned char *out, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++)
        out[i] =
            (unsigned char)((strchr(digits, hex[2 * i]) - digits) << 4 | (strchr(digits, hex[2 * i + 1]) - digits));
}

static tl_tensor *fixture_tensor(tl_ctx *ctx, const struct format_fixture *f, tl_dtype dtype) {
    static unsigned char bytes[1 << 16];
    int64_t count = 1;
    tl_dim dims[4];
    for (int d = 0; d < f->ndim; d++) {
        dims[d] = tl_dim_of(f->size[d]);
        count *= f->size[d];
    }
    assert_true(strlen(f->hex) / 2 <= sizeof bytes);
    unhex(f->hex, bytes, strlen(f->hex) / 2);
    return tl_from_data(ctx, dtype, tl_shape_of(ctx, f->ndim, dims), TL_DATA, bytes, count);
}

static tl_format_options fixture_options(const struct format_fixture *f) {
    return (tl_format_options){f->precision, f->threshold, f->edge, f->width, f->suppress != 0, f->sign};
}

static void test_as_numpy(void **state) {
    (void)state;
    int compared = 0;
    tl_ctx *ctx = cpu();
    for (size_t i = 0; i < sizeof format_fixtures / sizeof format_fixtures[0]; i++) {
        const struct format_fixture *f = &format_fixtures[i];
        int dtype = dtype_named(f->dtype);
        if (dtype < 0)
            continue;
        tl_text text = {0};
        tl_format_options o = fixture_options(f);
        tl_scope_begin(ctx);
        assert_int_equal(tl_tensor_format(fixture_tensor(ctx, f, (tl_dtype)dtype), &o, &text), TL_OK);
        assert_string_equal(text.data, f->want);
        tl_text_free(&text);
        tl_scope_end(ctx);
        compared++;
    }
    assert_true(compared >= 60);
    tl_ctx_free(ctx);
}

/* A view reads as the copy of it does: transposed twice, reversed twice. */
static void test_views(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    for (size_t i = 0; i < sizeof format_fixtures / sizeof format_fixtures[0]; i++) {
        const struct format_fixture *f = &format_fixtures[i];
        int dtype = dtype_named(f->dtype);
        if (dtype < 0 || f->ndim < 1 || f->size[0] == 0 || f->size[f->ndim - 1] == 0)
            continue;
        tl_text text = {0};
        tl_format_options o = fixture_options(f);
        tl_scope_begin(ctx);
        tl_tensor *x = fixture_tensor(ctx, f, (tl_dtype)dtype);
        tl_dim n = DIM(f->size[0]);
        x = tl_slice(tl_copy(tl_slice(x, 0, f->size[0] - 1, n, -1)), 0, f->size[0] - 1, n, -1);
        if (f->ndim > 1)
            x = tl_transpose(tl_copy(tl_transpose(x, 0, 1)), 0, 1);
        assert_non_null(x);
        assert_int_equal(tl_tensor_format(x, &o, &text), TL_OK);
        assert_string_equal(text.data, f->want);
        tl_text_free(&text);
        tl_scope_end(ctx);
    }
    tl_ctx_free(ctx);
}

/* bf16, which NumPy lacks. 0x3E8A is 0.26953125 and its neighbours lie 2^-9 away, so 0.27, 0.00047 from it and less than
 * half of that step, is told from them; 0.3 is not. 0x3DCD is 0.10009765625, with a step of 2^-11: 0.1 will do. */
static void test_bf16(void **state) {
    (void)state;
    static const uint16_t bits[] = {0x3E8A, 0x3F80, 0xC2C8, 0x0000, 0x7FC0, 0x3DCD};
    tl_ctx *ctx = cpu();
    tl_text text = {0};
    tl_tensor *x = tl_from_data(ctx, TL_BF16, TL_SHAPE(ctx, DIM(6)), TL_DATA, bits, 6);
    assert_int_equal(tl_tensor_format(x, NULL, &text), TL_OK);
    assert_string_equal(text.data, "[   0.27    1.   -100.      0.       nan    0.1 ]");
    tl_text_free(&text);
    tl_ctx_free(ctx);
}

static void test_refused(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_error error = {0};
    tl_text text = {0};
    tl_tensor *x = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(3)), TL_WORK), 1);
    tl_format_options o = tl_format_defaults();
    o.sign = 'x';
    assert_int_equal(tl_tensor_format(x, &o, &text), TL_ERR_ARGUMENT);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "would work"));
    tl_ctx_clear_error(ctx);
    o = tl_format_defaults();
    o.edge = 0;
    assert_int_equal(tl_tensor_format(x, &o, &text), TL_ERR_ARGUMENT);
    tl_ctx_clear_error(ctx);
    assert_int_equal(tl_tensor_format(NULL, NULL, &text), TL_ERR_ARGUMENT);
    o.edge = INT64_MAX; /* twice that must not wrap */
    o.threshold = 0;
    assert_int_equal(tl_tensor_format(x, &o, &text), TL_OK);
    assert_string_equal(text.data, "[1. 1. 1.]");
    tl_text_free(&text);
    tl_ctx_free(ctx);
    ctx = tl_ctx_new(NULL, &error);
    x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(3)), TL_WORK);
    assert_int_equal(tl_tensor_format(x, NULL, &text), TL_ERR_STATE);
    assert_null(text.data);
    tl_ctx_free(ctx);
}

static void test_summary(void **state) {
    (void)state;
    tl_error error = {0};
    tl_text text = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error); /* meta: a table needs no values */
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(4), DIM(8)), TL_WORK);
    tl_tensor *y = tl_empty(ctx, TL_BF16, TL_SHAPE(ctx, DIM(3)), TL_WORK);
    tl_tensor *row = tl_slice(x, 0, 1, DIM(1), 1);
    const tl_named_tensor list[] = {{"x", x}, {"y", y}, {"x.T", tl_transpose(x, 0, 1)}, {"row", row}};
    assert_int_equal(tl_tensors_summary(list, 4, &text, &error), TL_OK);
    /* 4·8·4 = 128 bytes once, 3·2 = 6. */
    assert_string_equal(text.data, "name  dtype  shape   strides  offset  bytes  storage  its bytes\n"
                                   "x     f32    [4, 8]  [8, 1]        0    128  A              128\n"
                                   "y     bf16   [3]     [1]           0      6  B                6\n"
                                   "x.T   f32    [8, 4]  [1, 8]        0    128  A              128\n"
                                   "row   f32    [1, 8]  [8, 1]        8     32  A              128\n"
                                   "4 tensors on 2 storages: 134 bytes\n");
    tl_text_free(&text);
    const tl_named_tensor hole[] = {{"x", x}, {"gone", NULL}};
    assert_int_equal(tl_tensors_summary(hole, 2, &text, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "gone"));
    tl_text_free(&text);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_numpy), cmocka_unit_test(test_views),   cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
