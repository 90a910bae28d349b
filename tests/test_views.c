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
#include "tally/views.h"

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

static void more_views_see_what_they_should(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(2), D(3), D(4)));
    tl_ledger_step_begin(ctx);
    EXPECT(tl_select(x, 1, -1), 8, 9, 10, 11, 20, 21, 22, 23);
    EXPECT(tl_select(tl_select(tl_select(x, 0, 1), 0, 0), 0, 2), 14);
    tl_tensor *m = tl_select(x, 0, 0);
    EXPECT(tl_flip(m, ((int[]){1}), 1), 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8);
    EXPECT(tl_flip(m, NULL, 0), 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    EXPECT(tl_flip(tl_flip(m, NULL, 0), ((int[]){0}), 1), 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8);
    EXPECT(tl_diagonal(m, 0, 0, 1), 0, 5, 10);
    EXPECT(tl_diagonal(m, 1, 0, 1), 1, 6, 11);
    EXPECT(tl_diagonal(m, -1, 0, 1), 4, 9);
    EXPECT(tl_diagonal(m, 1, 1, 0), 4, 9); /* numpy: the offset is along the second axis named */
    EXPECT(tl_diagonal(x, 0, 0, 2), 0, 13, 4, 17, 8, 21);
    assert_int_equal(tl_tensor_count(tl_diagonal(m, 4, 0, 1)), 0);
    assert_int_equal(tl_tensor_count(tl_diagonal(m, -100, 0, 1)), 0);
    tl_tensor *line = tl_select(m, 0, 0);
    EXPECT(tl_unfold(line, 0, D(2), 1), 0, 1, 1, 2, 2, 3);
    EXPECT(tl_unfold(line, 0, D(3), 2), 0, 1, 2);
    EXPECT(tl_unfold(m, 0, D(2), 1), 0, 4, 1, 5, 2, 6, 3, 7, 4, 8, 5, 9, 6, 10, 7, 11);
    EXPECT(tl_as_strided(x, TL_SHAPE(ctx, D(2), D(3)), ((int64_t[]){-5, 2}), 7), 7, 9, 11, 2, 4, 6);
    EXPECT(tl_as_strided(line, TL_SHAPE(ctx, D(2), D(2)), ((int64_t[]){0, 23}), 0), 0, 23, 0, 23); /* the storage's */
    EXPECT(tl_as_strided(x, TL_SHAPE(ctx, D(5)), ((int64_t[]){-1}), 4), 4, 3, 2, 1, 0);
    tl_tensor *wide = tl_unsqueeze(tl_unsqueeze(line, 0), -1);
    assert_int_equal(tl_tensor_ndim(wide), 3);
    assert_int_equal(tl_tensor_size(wide, 1), 4);
    assert_int_equal(tl_tensor_ndim(tl_squeeze(tl_squeeze(wide, -1), 0)), 1);
    assert_int_equal(tl_ledger_allocations(ctx), 0); /* views are free */
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

static void more_views_refuse_what_is_outside(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(3), D(4)));
    refused(ctx, tl_select(x, 0, 3), TL_ERR_SHAPE, "index 3 leaves axis 0");
    refused(ctx, tl_select(x, 0, -4), TL_ERR_SHAPE, "index -4 leaves axis 0");
    refused(ctx, tl_select(x, 2, 0), TL_ERR_SHAPE, "axis 2");
    refused(ctx, tl_select(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(0)), TL_DATA), 0, 0), TL_ERR_SHAPE, "size is 0");
    refused(ctx, tl_flip(x, ((int[]){0, -2}), 2), TL_ERR_SHAPE, "twice");
    refused(ctx, tl_flip(x, ((int[]){0}), 9), TL_ERR_ARGUMENT, "9 axes");
    refused(ctx, tl_squeeze(x, 0), TL_ERR_SHAPE, "has size 3");
    refused(ctx, tl_unsqueeze(x, 3), TL_ERR_SHAPE, "-3 to 2");
    refused(ctx, tl_diagonal(x, 0, 1, -1), TL_ERR_SHAPE, "axis 1 with itself");
    refused(ctx, tl_unfold(x, 1, D(5), 1), TL_ERR_SHAPE, "a size of 1 to 4");
    refused(ctx, tl_unfold(x, 1, D(2), 0), TL_ERR_SHAPE, "a step of at least 1");
    refused(ctx, tl_unfold(x, 1, D(0), 1), TL_ERR_SHAPE, "a size of 1 to 4");
    tl_shape pair = TL_SHAPE(ctx, D(2)), huge = TL_SHAPE(ctx, D(INT64_C(1) << 40));
    refused(ctx, tl_as_strided(x, pair, ((int64_t[]){12}), 0), TL_ERR_SHAPE, "elements 0 to 12");
    refused(ctx, tl_as_strided(x, pair, ((int64_t[]){-1}), 0), TL_ERR_SHAPE, "elements -1 to 0");
    refused(ctx, tl_as_strided(x, pair, ((int64_t[]){1}), -1), TL_ERR_SHAPE, "elements -1 to 0");
    refused(ctx, tl_as_strided(x, pair, ((int64_t[]){INT64_MAX}), 1), TL_ERR_SHAPE, "holds 12");
    refused(ctx, tl_as_strided(x, huge, ((int64_t[]){INT64_C(1) << 40}), 0), TL_ERR_SHAPE, "holds 12");
    refused(ctx, tl_as_strided(x, pair, ((int64_t[]){1}), INT64_MAX), TL_ERR_SHAPE, "holds 12");
    refused(ctx, tl_as_strided(x, pair, ((int64_t[]){1}), INT64_MIN), TL_ERR_SHAPE, "holds 12");
    assert_int_equal(tl_tensor_count(tl_as_strided(x, TL_SHAPE(ctx, D(0)), ((int64_t[]){99}), 99)), 0);
    tl_tensor *deep = counting(ctx, TL_SHAPE(ctx, D(1), D(1), D(1), D(1), D(1), D(1), D(1), D(2)));
    refused(ctx, tl_unsqueeze(deep, 0), TL_ERR_SHAPE, "8 axes already");
    refused(ctx, tl_unfold(deep, 7, D(1), 1), TL_ERR_SHAPE, "8 axes already");
    tl_ctx_free(ctx);
}

/* Every window adds its ones: an element counts the windows it is in. */
static void overlapping_gradients_are_added(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(6)));
    tl_tensor_require_grad(x, true);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    assert_int_equal(tl_backward(ctx, tl_sum(tl_unfold(x, 0, D(3), 1), NULL, 0, false), 1), TL_OK);
    EXPECT(tl_tensor_grad(x), 1, 2, 3, 3, 2, 1);
    tl_tensor_clear_grad(x);
    tl_tensor *twice = tl_as_strided(x, TL_SHAPE(ctx, D(2), D(3)), ((int64_t[]){0, -2}), 5);
    assert_int_equal(tl_backward(ctx, tl_sum(twice, NULL, 0, false), 1), TL_OK);
    EXPECT(tl_tensor_grad(x), 0, 2, 0, 2, 0, 2);
    refused(ctx, tl_as_strided(tl_flip(x, NULL, 0), TL_SHAPE(ctx, D(2)), ((int64_t[]){1}), 0), TL_ERR_UNSUPPORTED,
            "not contiguous");
    tl_tensor *part = tl_slice(x, 0, 2, D(2), 1);
    refused(ctx, tl_as_strided(part, TL_SHAPE(ctx, D(3)), ((int64_t[]){1}), 2), TL_ERR_UNSUPPORTED, "nowhere to go");
    tl_tensor_clear_grad(x);
    part = tl_as_strided(part, TL_SHAPE(ctx, D(2)), ((int64_t[]){-1}), 3);
    EXPECT(part, 3, 2);
    assert_int_equal(tl_backward(ctx, tl_sum(part, NULL, 0, false), 1), TL_OK);
    EXPECT(tl_tensor_grad(x), 0, 0, 1, 1, 0, 0);
    tl_ctx_free(ctx);
}

/* Which elements a view meets, by walking it. */
static void mark(const tl_tensor *t, unsigned char *met) {
    int64_t index[TL_MAX_NDIM] = {0}, count = tl_tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = tl_tensor_offset(t);
        for (int d = 0; d < tl_tensor_ndim(t); d++)
            at += index[d] * tl_tensor_stride(t, d);
        assert_in_range(at, 0, 63);
        met[at] = 1;
        for (int d = tl_tensor_ndim(t) - 1; d >= 0 && ++index[d] == tl_tensor_size(t, d); d--)
            index[d] = 0;
    }
}

static tl_tensor *any_view(tl_ctx *ctx, tl_tensor *x, uint64_t *seed) {
    for (;;) {
        int64_t stride[3];
        tl_shape shape = {.ndim = (int)tl_sample_below(seed, 4)};
        for (int i = 0; i < shape.ndim; i++) {
            shape.dim[i] = D(tl_sample_below(seed, 16) ? 1 + tl_sample_below(seed, 5) : 0);
            stride[i] = tl_sample_below(seed, 25) - 12;
        }
        tl_tensor *view = tl_as_strided(x, shape, stride, tl_sample_below(seed, 64));
        if (view)
            return view;
        tl_ctx_clear_error(ctx);
    }
}

static void overlap_is_exact(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *x = counting(ctx, TL_SHAPE(ctx, D(64)));
    uint64_t seed = 5;
    int met_some = 0, met_none = 0;
    for (int k = 0; k < 4000; k++) {
        tl_scope_begin(ctx);
        tl_tensor *a = any_view(ctx, x, &seed), *b = any_view(ctx, x, &seed);
        unsigned char in_a[64] = {0}, in_b[64] = {0};
        bool want = false;
        mark(a, in_a);
        mark(b, in_b);
        for (int i = 0; i < 64; i++)
            want |= in_a[i] && in_b[i];
        assert_int_equal(tl_tensors_overlap(a, b), want);
        assert_int_equal(tl_tensors_overlap(b, a), want);
        (*(want ? &met_some : &met_none))++;
        tl_scope_end(ctx);
    }
    assert_true(met_some > 300 && met_none > 300);
    tl_tensor *other = counting(ctx, TL_SHAPE(ctx, D(64)));
    assert_false(tl_tensors_overlap(x, other));
    assert_false(tl_tensors_overlap(x, NULL));
    assert_true(tl_tensors_overlap(x, x));
    /* Columns of one matrix lie within each other's range and share nothing; odd and even elements likewise. */
    tl_tensor *m = tl_view(x, TL_SHAPE(ctx, D(8), D(8)));
    assert_false(tl_tensors_overlap(tl_slice(m, 1, 0, D(4), 1), tl_slice(m, 1, 4, D(4), 1)));
    assert_false(tl_tensors_overlap(tl_slice(x, 0, 0, D(32), 2), tl_slice(x, 0, 1, D(32), 2)));
    assert_true(tl_tensors_overlap(tl_slice(x, 0, 0, D(22), 3), tl_slice(x, 0, 1, D(32), 2)));
    tl_ctx_free(ctx);
    ctx = meta(); /* sizes beyond 32 bits */
    tl_tensor *big = tl_empty(ctx, TL_U8, TL_SHAPE(ctx, D(INT64_C(1) << 40), D(2)), TL_DATA);
    assert_false(tl_tensors_overlap(tl_select(big, 1, 0), tl_select(big, 1, 1)));
    assert_true(tl_tensors_overlap(tl_select(big, 1, 0), tl_flip(tl_select(big, 1, 0), NULL, 0)));
    tl_ctx_free(ctx);
}

static void results_are_written_into_tensors(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *a = counting(ctx, TL_SHAPE(ctx, D(2), D(3))), *b = counting(ctx, TL_SHAPE(ctx, D(3)));
    tl_tensor *out = tl_copy(a), *two = tl_fill(tl_copy(a), 2);
    tl_ledger_step_begin(ctx);
    uint32_t version = tl_tensor_version(out);
    tl_tensor *y = tl_add_into(out, a, b);
    EXPECT(y, 0, 2, 4, 3, 5, 7);
    EXPECT(out, 0, 2, 4, 3, 5, 7);
    assert_int_equal(tl_tensor_version(out), version + 1);
    EXPECT(tl_mul_into(out, out, out), 0, 4, 16, 9, 25, 49); /* exactly itself, twice */
    EXPECT(tl_sub_into(out, out, b), 0, 3, 14, 9, 24, 47);
    EXPECT(tl_neg_into(tl_transpose(out, 0, 1), tl_transpose(out, 0, 1)), 0, -9, -3, -24, -14, -47); /* along strides */
    EXPECT(tl_relu_into(out, out), 0, 0, 0, 0, 0, 0);
    EXPECT(tl_copy_into(out, tl_flip(a, NULL, 0)), 5, 4, 3, 2, 1, 0);
    EXPECT(tl_div_into(two, out, two), 2.5, 2, 1.5, 1, 0.5, 0);
    assert_int_equal(tl_ledger_allocations(ctx), 0);
    tl_counts counts; /* one operation an element and op: add, mul, sub, neg, div */
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    assert_int_equal(counts.ops, 7);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

extern const tl_op tl_op_select, tl_op_matmul;

static void wrong_writes_into_tensors_are_refused(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    tl_tensor *a = counting(ctx, TL_SHAPE(ctx, D(3), D(3))), *row = counting(ctx, TL_SHAPE(ctx, D(3)));
    refused(ctx, tl_add_into(row, a, row), TL_ERR_SHAPE, "the result is f32[3, 3]");
    refused(ctx, tl_add_into(tl_empty(ctx, TL_F64, TL_SHAPE(ctx, D(3), D(3)), TL_WORK), a, a), TL_ERR_SHAPE, "f64");
    refused(ctx, tl_add_into(tl_expand(row, TL_SHAPE(ctx, D(3), D(3))), a, a), TL_ERR_STATE, "several indices");
    refused(ctx, tl_neg_into(tl_transpose(a, 0, 1), a), TL_ERR_STATE, "also reads");
    refused(ctx, tl_add_into(a, a, tl_select(a, 0, 0)), TL_ERR_STATE, "input 1");
    refused(ctx, tl_neg_into(tl_flip(row, NULL, 0), row), TL_ERR_STATE, "also reads");
    refused(ctx, tl_copy_into(a, a), TL_ERR_STATE, "only an elementwise op");
    refused(ctx, tl_copy_into(tl_transpose(a, 0, 1), tl_copy(a)), TL_ERR_UNSUPPORTED, "not contiguous");
    struct {
        int axis;
        int64_t index;
    } attr = {0, 0};
    refused(ctx, tl_run_into(&tl_op_select, &a, 1, &attr, row, TL_HERE), TL_ERR_UNSUPPORTED, "one new output");
    tl_causal causal = TL_CAUSAL_NONE;
    tl_tensor *both[] = {a, a}, *c = tl_copy(a);
    refused(ctx, tl_run_into(&tl_op_matmul, both, 2, &causal, a, TL_HERE), TL_ERR_STATE, "in place");
    EXPECT(tl_run_into(&tl_op_matmul, both, 2, &causal, c, TL_HERE), 15, 18, 21, 42, 54, 66, 69, 90, 111);
    /* Parts of one storage that do not meet are no conflict. */
    EXPECT(tl_add_into(tl_select(a, 0, 0), tl_select(a, 0, 1), tl_select(a, 0, 2)), 9, 11, 13);
    tl_tensor *p = counting(ctx, TL_SHAPE(ctx, D(3)));
    tl_tensor_require_grad(p, true);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    refused(ctx, tl_mul_into(row, p, p), TL_ERR_STATE, "recorded expression");
    refused(ctx, tl_neg_into(p, row), TL_ERR_STATE, "recorded expression");
    tl_tensor *kept = tl_copy(row), *y = tl_mul(p, kept);
    assert_non_null(y);
    refused(ctx, tl_neg_into(kept, row), TL_ERR_STATE, "backward still needs");
    assert_non_null(tl_neg_into(row, row)); /* nobody's */
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
    assert_null(tl_select(NULL, 0, 0));
    assert_null(tl_flip(NULL, NULL, 0));
    assert_null(tl_as_strided(NULL, TL_SHAPE(ctx, D(1)), ((int64_t[]){1}), 0));
    assert_null(tl_add_into(NULL, NULL, NULL));
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
        cmocka_unit_test(more_views_see_what_they_should),
        cmocka_unit_test(more_views_refuse_what_is_outside),
        cmocka_unit_test(overlapping_gradients_are_added),
        cmocka_unit_test(overlap_is_exact),
        cmocka_unit_test(results_are_written_into_tensors),
        cmocka_unit_test(wrong_writes_into_tensors_are_refused),
        cmocka_unit_test(nothing_in_gives_nothing_out),
        cmocka_unit_test(accessors_take_no_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
