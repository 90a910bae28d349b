/* Views, strides and sizes: faults met in other systems. Expected values are
 * written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernel/table.h"
#include "tally/account.h"
#include "tally/grad.h"
#include "tally/ops.h"

#include <string.h>

#define D(n) tl_dim_of(n)

static tl_ctx *cpu(void) {
    tl_error error = {0};
    tl_ctx_options options = {.kernels = tl_kernels_portable()};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    if (!ctx)
        fail_msg("%s", error.message);
    return ctx;
}

static tl_ctx *meta(void) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    assert_non_null(ctx);
    return ctx;
}

/* 0, 1, 2, … */
static tl_tensor *counting(tl_ctx *ctx, tl_shape shape) {
    float value[256];
    int64_t count = 1;
    for (int i = 0; i < shape.ndim; i++)
        count *= shape.dim[i].size;
    assert_in_range(count, 0, 256);
    for (int64_t i = 0; i < count; i++)
        value[i] = (float)i;
    return tl_from_data(ctx, TL_F32, shape, TL_DATA, value, count);
}

static void expect(const tl_tensor *t, const float *want, int64_t count) {
    float got[256];
    assert_non_null(t);
    assert_int_equal(tl_tensor_count(t), count);
    assert_int_equal(tl_tensor_read(t, got, (size_t)count * sizeof *got), TL_OK);
    for (int64_t i = 0; i < count; i++)
        if (got[i] != want[i])
            fail_msg("element %lld is %g, not %g", (long long)i, (double)got[i], (double)want[i]);
}
#define EXPECT(t, ...) expect((t), (float[]){__VA_ARGS__}, (int64_t)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)))

/* The call gave NULL, this status, and a message that holds `words`. Clears the error. */
static void refused(tl_ctx *ctx, const tl_tensor *t, tl_status status, const char *words) {
    assert_null(t);
    assert_int_equal(tl_ctx_status(ctx), status);
    if (!strstr(tl_ctx_error(ctx)->message, words))
        fail_msg("the message does not say \"%s\": %s", words, tl_ctx_error(ctx)->message);
    tl_ctx_clear_error(ctx);
}

static void backwards_slices_stay_inside(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(5)));
    tl_tensor *back = tl_slice(x, 0, 4, D(5), -1);
    assert_int_equal(tl_tensor_stride(back, 0), -1);
    assert_int_equal(tl_tensor_offset(back), 4);
    EXPECT(back, 4, 3, 2, 1, 0);
    EXPECT(tl_slice(x, 0, -1, D(3), -2), 4, 2, 0);
    EXPECT(tl_slice(back, 0, 1, D(2), 2), 3, 1);
    EXPECT(tl_sum(back, NULL, 0, false), 10);
    assert_int_equal(tl_tensor_count(tl_slice(x, 0, 5, D(0), 1)), 0);
    refused(ctx, tl_slice(x, 0, 4, D(6), -1), TL_ERR_SHAPE, "within");
    refused(ctx, tl_slice(x, 0, 1, D(5), 1), TL_ERR_SHAPE, "within");
    refused(ctx, tl_slice(x, 0, -6, D(1), 1), TL_ERR_SHAPE, "within");
    refused(ctx, tl_slice(x, 0, 0, D(1), 0), TL_ERR_SHAPE, "step");
    refused(ctx, tl_slice(x, 0, 0, D(2), INT64_MAX), TL_ERR_SHAPE, "within");
    refused(ctx, tl_slice(x, 0, INT64_MIN, D(1), 1), TL_ERR_SHAPE, "within");
    refused(ctx, tl_slice(x, 0, 1, D(3), INT64_MIN), TL_ERR_SHAPE, "within");
    refused(ctx, tl_slice(x, 1, 0, D(1), 1), TL_ERR_SHAPE, "axis 1");
    /* Strides [-1, 2] over a 5-element storage: a sum that read outside elsewhere. */
    tl_tensor *m = counting(ctx, TL_SHAPE(ctx, D(3), D(2)));
    tl_tensor *flipped = tl_slice(tl_transpose(m, 0, 1), 0, 1, D(2), -1);
    EXPECT(flipped, 1, 3, 5, 0, 2, 4);
    EXPECT(tl_sum(flipped, (int[]){1}, 1, false), 9, 6);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

static void sizes_are_checked(void **state) {
    (void)state;
    tl_ctx *ctx = meta();
    const int64_t big = INT64_C(1) << 62;
    tl_tensor *a = tl_empty(ctx, TL_U8, TL_SHAPE(ctx, D(65536), D(65536), D(2)), TL_DATA);
    assert_int_equal(tl_tensor_count(a), INT64_C(8589934592));
    tl_tensor *last = tl_slice(a, 0, -1, D(1), 1);
    assert_int_equal(tl_tensor_offset(last), INT64_C(65535) * 131072); /* beyond 32 bits */
    assert_int_equal(tl_tensor_count(tl_view(a, TL_SHAPE(ctx, D(INT64_C(8589934592))))), INT64_C(8589934592));
    tl_tensor *b = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D((INT64_C(1) << 31) + 1)), TL_DATA);
    assert_int_equal(tl_tensor_storage_bytes(b), 4 * ((INT64_C(1) << 31) + 1));
    assert_int_equal(tl_tensor_offset(tl_slice(b, 0, -1, D(2), -1)), INT64_C(1) << 31);
    assert_int_equal(tl_tensor_count(tl_concat(((tl_tensor *[]){b, b}), 2, 0)), (INT64_C(1) << 32) + 2);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    refused(ctx, tl_empty(ctx, TL_U8, TL_SHAPE(ctx, D(big), D(4)), TL_DATA), TL_ERR_OVERFLOW, "2^63");
    tl_tensor *one = tl_empty(ctx, TL_U8, TL_SHAPE(ctx, D(1), D(1)), TL_DATA);
    refused(ctx, tl_expand(one, TL_SHAPE(ctx, D(big), D(4))), TL_ERR_OVERFLOW, "2^63");
    refused(ctx, tl_view(one, TL_SHAPE(ctx, D(big), D(4))), TL_ERR_OVERFLOW, "2^63");
    refused(ctx, tl_reshape(one, TL_SHAPE(ctx, D(big), D(4))), TL_ERR_OVERFLOW, "2^63");
    tl_ctx_free(ctx);
}

static void sizes_must_multiply_to_the_count(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *none = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(1), D(0), D(32), D(64)), TL_DATA);
    refused(ctx, tl_reshape(none, TL_SHAPE(ctx, D(1), D(0), D(-1))), TL_ERR_SHAPE, "negative");
    refused(ctx, tl_view(none, TL_SHAPE(ctx, D(1), D(0), D(-1))), TL_ERR_SHAPE, "negative");
    assert_int_equal(tl_tensor_count(tl_reshape(none, TL_SHAPE(ctx, D(7), D(0)))), 0);
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(2), D(3)));
    refused(ctx, tl_view(x, TL_SHAPE(ctx, D(4))), TL_ERR_SHAPE, "6 elements");
    refused(ctx, tl_reshape(x, TL_SHAPE(ctx, D(4), D(2))), TL_ERR_SHAPE, "8");
    refused(ctx, tl_reshape(none, TL_SHAPE(ctx, D(1))), TL_ERR_SHAPE, "0 elements");
    tl_tensor *out[2];
    assert_int_equal(tl_split(x, 1, ((tl_dim[]){D(1), D(1)}), 2, out), TL_ERR_SHAPE);
    refused(ctx, out[0], TL_ERR_SHAPE, "add up to the 3 of axis 1");
    refused(ctx, tl_permute(x, ((int[]){0, 0})), TL_ERR_SHAPE, "twice");
    refused(ctx, tl_expand(x, TL_SHAPE(ctx, D(2), D(6))), TL_ERR_SHAPE, "axis 1");
    tl_ctx_free(ctx);
}

static void views_refuse_what_only_a_copy_can_do(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(2), D(2), D(3)));
    tl_tensor *p = tl_permute(x, ((int[]){0, 2, 1})); /* (2,3,2) with strides 6, 1, 3 */
    tl_ledger_step_begin(ctx);
    refused(ctx, tl_view(p, TL_SHAPE(ctx, D(12))), TL_ERR_SHAPE, "without a copy");
    assert_int_equal(tl_ledger_allocations(ctx), 0);
    tl_tensor *flat = tl_reshape(p, TL_SHAPE(ctx, D(12)));
    assert_int_equal(tl_ledger_allocations(ctx), 1); /* the ledger shows the copy */
    assert_int_equal(tl_ledger_live(ctx, TL_WORK) > 0, 1);
    assert_false(tl_tensor_shares_storage(flat, x));
    EXPECT(flat, 0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11);
    tl_tensor *same = tl_reshape(x, TL_SHAPE(ctx, D(4), D(3)));
    assert_int_equal(tl_ledger_allocations(ctx), 1);
    assert_true(tl_tensor_shares_storage(same, x));
    /* Splitting an axis of a permuted tensor needs no copy, nor does merging axes that lie behind one another. */
    tl_tensor *t = tl_transpose(counting(ctx, TL_SHAPE(ctx, D(4), D(6))), 0, 1); /* (6,4), strides 1, 6 */
    tl_tensor *split = tl_view(t, TL_SHAPE(ctx, D(2), D(1), D(3), D(2), D(2)));
    EXPECT(split, 0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20, 3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23);
    EXPECT(tl_view(tl_slice(counting(ctx, TL_SHAPE(ctx, D(2), D(2), D(2))), 0, 1, D(2), -1), TL_SHAPE(ctx, D(2), D(4))),
           4, 5, 6, 7, 0, 1, 2, 3);
    EXPECT(tl_view(tl_slice(counting(ctx, TL_SHAPE(ctx, D(6))), 0, 5, D(6), -1), TL_SHAPE(ctx, D(2), D(3))), 5, 4, 3, 2,
           1, 0);
    /* Expanded axes merge with one another: both stand still. */
    tl_tensor *e = tl_expand(counting(ctx, TL_SHAPE(ctx, D(2))), TL_SHAPE(ctx, D(2), D(2), D(2)));
    EXPECT(tl_view(e, TL_SHAPE(ctx, D(4), D(2))), 0, 1, 0, 1, 0, 1, 0, 1);
    refused(ctx, tl_view(e, TL_SHAPE(ctx, D(8))), TL_ERR_SHAPE, "without a copy");
    EXPECT(tl_reshape(e, TL_SHAPE(ctx, D(8))), 0, 1, 0, 1, 0, 1, 0, 1);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

static void writes_through_expanded_views_are_refused(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(1), D(2)));
    tl_tensor *e = tl_expand(x, TL_SHAPE(ctx, D(3), D(2)));
    EXPECT(e, 0, 1, 0, 1, 0, 1);
    refused(ctx, tl_fill(e, 7), TL_ERR_STATE, "expanded");
    refused(ctx, tl_scale_into(e, 2), TL_ERR_STATE, "expanded");
    refused(ctx, tl_accumulate(e, tl_copy(e)), TL_ERR_STATE, "expanded");
    refused(ctx, tl_normal(e, 0, 1, "e", 0), TL_ERR_STATE, "expanded");
    EXPECT(x, 0, 1);
    assert_int_equal(tl_tensor_version(x), 0);
    /* A memory that is read and written in another order. */
    tl_tensor *m = counting(ctx, TL_SHAPE(ctx, D(2), D(2)));
    refused(ctx, tl_accumulate(m, tl_transpose(m, 0, 1)), TL_ERR_STATE, "also reads");
    EXPECT(tl_accumulate(m, m), 0, 2, 4, 6);
    tl_ctx_free(ctx);
}

static void writes_are_counted_and_seen_by_views(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(2), D(3)));
    tl_tensor *column = tl_slice(x, 1, 2, D(1), 1);
    uint32_t before = tl_tensor_version(x);
    assert_non_null(tl_fill(column, -1));
    assert_int_equal(tl_tensor_version(x), before + 1);
    assert_int_equal(tl_tensor_version(column), before + 1);
    EXPECT(x, 0, 1, -1, 3, 4, -1);
    tl_tensor *copy = tl_copy(x);
    assert_non_null(tl_scale_into(copy, 2));
    assert_int_equal(tl_tensor_version(x), before + 1);
    EXPECT(x, 0, 1, -1, 3, 4, -1);
    tl_ctx_free(ctx);
}

static void saved_tensors_cannot_be_written(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(3)));
    tl_tensor *y = counting(ctx, TL_SHAPE(ctx, D(3)));
    tl_tensor_require_grad(x, true);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_tensor *loss = tl_sum(tl_mul(x, y), NULL, 0, false); /* keeps y */
    assert_int_equal(tl_record(ctx, false), TL_OK);
    refused(ctx, tl_fill(y, 0), TL_ERR_STATE, "backward still needs");
    refused(ctx, tl_fill(tl_slice(y, 0, 1, D(1), 1), 0), TL_ERR_STATE, "backward still needs");
    assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
    EXPECT(tl_tensor_grad(x), 0, 1, 2);
    assert_non_null(tl_fill(y, 0)); /* the tape has let go */
    tl_ctx_free(ctx);
}

static void dims_keep_formulas_and_names(void **state) {
    (void)state;
    tl_error error = {0};
    tl_ctx_options options = {.formulas = true};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    tl_dim batch = tl_dim_named(tl_dim_symbol(ctx, "B", 2, "the test"), "batch");
    tl_dim heads = tl_dim_named(tl_dim_symbol(ctx, "H", 3, "the test"), "heads");
    tl_dim width = tl_dim_symbol(ctx, "K", 4, "the test");
    tl_dim model = tl_dim_mul(ctx, heads, width);
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, batch, model), TL_DATA);
    tl_tensor *t = tl_transpose(tl_view(x, TL_SHAPE(ctx, batch, heads, width)), 0, 1);
    assert_string_equal(tl_tensor_shape(t)->dim[0].axis, "heads");
    assert_ptr_equal(tl_tensor_shape(t)->dim[0].formula, heads.formula);
    assert_ptr_equal(tl_tensor_shape(t)->dim[1].formula, batch.formula);
    tl_tensor *both = tl_concat(((tl_tensor *[]){t, t}), 2, 0);
    assert_ptr_equal(tl_tensor_shape(both)->dim[0].formula, tl_dim_add(ctx, heads, heads).formula);
    assert_string_equal(tl_tensor_shape(both)->dim[0].axis, "heads");
    const char *const *texts;
    assert_int_equal(tl_ctx_assumptions(ctx, &texts), 0);
    tl_view(x, TL_SHAPE(ctx, D(24))); /* B·H·K = 24 is true in this run only */
    assert_int_equal(tl_ctx_assumptions(ctx, &texts), 1);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

static void nothing_in_gives_nothing_out(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *out[2];
    assert_null(tl_view(NULL, TL_SHAPE(ctx, D(1))));
    assert_null(tl_reshape(NULL, TL_SHAPE(ctx, D(1))));
    assert_null(tl_permute(NULL, NULL));
    assert_null(tl_sum(NULL, NULL, 0, false));
    assert_null(tl_contiguous(NULL));
    assert_null(tl_cast(NULL, TL_F64));
    assert_null(tl_normal(NULL, 0, 1, "x", 0));
    assert_int_not_equal(tl_split(NULL, 0, NULL, 0, out), TL_OK);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

/* A chain that failed may be looked at: accessors of no tensor answer, and add no message of their own. */
static void accessors_take_no_tensor(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    char text[32];
    float value = 0;
    double item = 0;
    assert_int_equal(tl_tensor_ndim(NULL), -1);
    assert_int_equal(tl_tensor_size(NULL, 0), -1);
    assert_int_equal(tl_tensor_stride(NULL, 0), 0);
    assert_int_equal(tl_tensor_count(NULL), 0);
    assert_int_equal(tl_tensor_shape(NULL)->ndim, -1);
    assert_int_equal(tl_tensor_storage_bytes(NULL), 0);
    assert_false(tl_tensor_is_contiguous(NULL));
    assert_null(tl_tensor_data(NULL));
    assert_null(tl_tensor_storage_data(NULL));
    assert_null(tl_tensor_ctx(NULL));
    assert_int_equal(tl_tensor_read(NULL, &value, sizeof value), TL_ERR_ARGUMENT);
    assert_int_equal(tl_item(NULL, &item), TL_ERR_ARGUMENT);
    assert_non_null(strstr(tl_tensor_text(NULL, text, sizeof text), "no tensor"));
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    assert_null(tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, D(2)), TL_DATA, NULL, 2));
    assert_int_equal(tl_ctx_status(ctx), TL_ERR_ARGUMENT);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backwards_slices_stay_inside),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(sizes_must_multiply_to_the_count),
        cmocka_unit_test(views_refuse_what_only_a_copy_can_do),
        cmocka_unit_test(writes_through_expanded_views_are_refused),
        cmocka_unit_test(writes_are_counted_and_seen_by_views),
        cmocka_unit_test(saved_tensors_cannot_be_written),
        cmocka_unit_test(dims_keep_formulas_and_names),
        cmocka_unit_test(nothing_in_gives_nothing_out),
        cmocka_unit_test(accessors_take_no_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
