/* Functions, reductions and running values where formulas go wrong, with their gradients, against torch in float64
 * (tests/fixtures/make_function_fixtures.py). The inputs are floats, so f32 is held against the same numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/function_fixtures.h"
#include "op_case.h"
#include "tally/cpu.h"

#define COUNT(a) ((int64_t)(sizeof(a) / sizeof *(a)))

static tl_ctx *context(void) {
    tl_error error = {0};
    tl_ctx_options options = {.kernels = tl_kernels_for_cpu(NULL, &error)};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    if (!ctx)
        fail_msg("%s", error.message);
    return ctx;
}

static tl_tensor *tensor(tl_ctx *ctx, tl_dtype dtype, const double *value, int64_t rows, int64_t columns) {
    tl_shape shape = rows ? TL_SHAPE(ctx, tl_dim_of(rows), tl_dim_of(columns)) : TL_SHAPE(ctx, tl_dim_of(columns));
    tl_tensor *t = tl_cast(tl_from_data(ctx, TL_F64, shape, TL_WORK, value, (rows ? rows : 1) * columns), dtype);
    tl_tensor_require_grad(t, true);
    return t;
}

/* Where torch's derivative is NaN of a number (∞·0 in its formula), ours may be a number; the last element of edges is NaN,
 * whose derivative is nobody's. The derivative of log Σe^x is made from the rounded result: of −9998.6 in f32, 5e-4 off, as torch has it. */
static void compare_first(const tl_tensor *t, const double *want, int64_t count, int64_t n, const char *name,
                          const char *what, bool derivative) {
    if (!t)
        fail_msg("%s has no %s", name, what);
    double *got = op_read(t), relative = t->dtype == TL_F64 ? 1e-12 : 4e-6, tiny = t->dtype == TL_F64 ? 1e-300 : 1e-37;
    assert_int_equal(tl_tensor_count(t), count);
    if (derivative && t->dtype == TL_F32 && strcmp(name, "log_sum_exp") == 0)
        relative = 6e-4;
    if (derivative) /* torch differences two numbers near 1 (softsign), as does y·(1 − y) from a rounded y */
        tiny = t->dtype == TL_F64 ? 1e-15 : 0x1p-23;
    for (int64_t i = 0; i < n; i++) {
        double a = want[i], b = got[i];
        bool beyond = t->dtype != TL_F64 && fabs(a) > 3.4e38 && fabs(b) > 3.4e38 && (a > 0) == (b > 0);
        bool same = a == b || (isnan(a) && (isnan(b) || derivative)) || fabs(a - b) <= relative * fabs(a) + tiny;
        if (!same && !beyond)
            fail_msg("%s in %s, %s, element %lld: %.17g, not %.17g", name, tl_dtype_name(t->dtype), what, (long long)i,
                     b, a);
    }
    free(got);
}

static void compare(const tl_tensor *t, const double *want, int64_t n, const char *name, const char *what,
                    bool derivative) {
    compare_first(t, want, n, n, name, what, derivative);
}

static void check_ok(const tl_ctx *ctx, const char *name) {
    if (tl_ctx_status(ctx) != TL_OK)
        fail_msg("%s: %s", name, tl_ctx_error(ctx)->message);
}

static tl_tensor *elu(tl_tensor *x, const char *site) { return tl_elu_(x, 0.75, site); }
static tl_tensor *leaky_relu(tl_tensor *x, const char *site) { return tl_leaky_relu_(x, 0.125, site); }
static tl_tensor *clamp(tl_tensor *x, const char *site) { return tl_clamp_(x, -1.5, 2.5, site); }

static const struct {
    const char *name;
    tl_tensor *(*call)(tl_tensor *, const char *);
    const double *y, *dx; /* NULL: no gradient */
} unary[] = {
    {"abs", tl_abs_, abs_y, abs_dx},
    {"sign", tl_sign_, sign_y, NULL},
    {"floor", tl_floor_, floor_y, NULL},
    {"ceil", tl_ceil_, ceil_y, NULL},
    {"round", tl_round_, round_y, NULL},
    {"reciprocal", tl_reciprocal_, reciprocal_y, reciprocal_dx},
    {"sigmoid", tl_sigmoid_, sigmoid_y, sigmoid_dx},
    {"softplus", tl_softplus_, softplus_y, softplus_dx},
    {"softsign", tl_softsign_, softsign_y, softsign_dx},
    {"hard_swish", tl_hard_swish_, hard_swish_y, hard_swish_dx},
    {"mish", tl_mish_, mish_y, mish_dx},
    {"erf", tl_erf_, erf_y, erf_dx},
    {"sin", tl_sin_, sin_y, sin_dx},
    {"cos", tl_cos_, cos_y, cos_dx},
    {"elu", elu, elu_y, elu_dx},
    {"leaky_relu", leaky_relu, leaky_relu_y, leaky_relu_dx},
    {"clamp", clamp, clamp_y, clamp_dx},
};

static void functions_at_their_edges(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof unary / sizeof *unary; k++)
        for (tl_dtype dtype = TL_F64; dtype <= TL_F32; dtype++) {
            tl_ctx *ctx = context();
            tl_tensor *x = tensor(ctx, dtype, edges, 0, COUNT(edges));
            tl_record(ctx, true);
            tl_tensor *y = unary[k].call(x, TL_HERE), *loss = tl_sum(y, NULL, 0, false);
            tl_record(ctx, false);
            check_ok(ctx, unary[k].name);
            compare(y, unary[k].y, COUNT(edges), unary[k].name, "value", false);
            assert_int_equal(tl_tensor_needs_grad(y), unary[k].dx != NULL);
            if (unary[k].dx && tl_backward(ctx, loss, 1) == TL_OK)
                compare_first(tl_tensor_grad(x), unary[k].dx, COUNT(edges), COUNT(edges) - 1, unary[k].name,
                              "derivative", true);
            check_ok(ctx, unary[k].name);
            tl_ctx_free(ctx);
        }
}

static const struct {
    const char *name;
    tl_tensor *(*call)(tl_tensor *, tl_tensor *, const char *);
    int64_t n;
    const double *a, *b, *y, *da, *db;
} binary[] = {
    {"power", tl_power_, COUNT(power_a), power_a, power_b, power_y, power_da, power_db},
    {"maximum", tl_maximum_, COUNT(maximum_a), maximum_a, maximum_b, maximum_y, maximum_da, maximum_db},
    {"minimum", tl_minimum_, COUNT(minimum_a), minimum_a, minimum_b, minimum_y, minimum_da, minimum_db},
    {"mod", tl_mod_, COUNT(mod_a), mod_a, mod_b, mod_y, mod_da, mod_db},
    {"fmod", tl_fmod_, COUNT(fmod_a), fmod_a, fmod_b, fmod_y, fmod_da, fmod_db},
};

static void pairs_at_their_edges(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof binary / sizeof *binary; k++)
        for (tl_dtype dtype = TL_F64; dtype <= TL_F32; dtype++) {
            tl_ctx *ctx = context();
            const char *name = binary[k].name;
            tl_tensor *a = tensor(ctx, dtype, binary[k].a, 0, binary[k].n);
            tl_tensor *b = tensor(ctx, dtype, binary[k].b, 0, binary[k].n);
            tl_record(ctx, true);
            tl_tensor *y = binary[k].call(a, b, TL_HERE), *loss = tl_sum(y, NULL, 0, false);
            tl_record(ctx, false);
            check_ok(ctx, name);
            compare(y, binary[k].y, binary[k].n, name, "value", false);
            assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
            compare(tl_tensor_grad(a), binary[k].da, binary[k].n, name, "derivative in a", true);
            compare(tl_tensor_grad(b), binary[k].db, binary[k].n, name, "derivative in b", true);
            tl_ctx_free(ctx);
        }
}

static tl_tensor *prod(tl_tensor *x) { return tl_prod(x, (int[]){1}, 1, false); }
static tl_tensor *cumprod(tl_tensor *x) { return tl_cumprod(x, 1, false, false); }
static tl_tensor *cumsum(tl_tensor *x) { return tl_cumsum(x, 1, false, false); }
static tl_tensor *amax(tl_tensor *x) { return tl_max(x, (int[]){-1}, 1, false); }
static tl_tensor *amin(tl_tensor *x) { return tl_min(x, (int[]){-1}, 1, false); }
static tl_tensor *l1(tl_tensor *x) { return tl_l1(x, (int[]){1}, 1, false); }
static tl_tensor *l2(tl_tensor *x) { return tl_l2(x, (int[]){1}, 1, false); }
static tl_tensor *sum_square(tl_tensor *x) { return tl_sum_square(x, (int[]){1}, 1, false); }
static tl_tensor *log_sum_exp(tl_tensor *x) { return tl_log_sum_exp(x, (int[]){1}, 1, false); }

static const struct {
    const char *name;
    tl_tensor *(*call)(tl_tensor *);
    int64_t n; /* of y; x is [3, 4] */
    const double *x, *y, *dx;
} rows[] = {
    {"prod", prod, COUNT(prod_y), prod_x, prod_y, prod_dx},
    {"cumprod", cumprod, COUNT(cumprod_y), cumprod_x, cumprod_y, cumprod_dx},
    {"cumsum", cumsum, COUNT(cumsum_y), cumsum_x, cumsum_y, cumsum_dx},
    {"max", amax, COUNT(amax_y), amax_x, amax_y, amax_dx},
    {"min", amin, COUNT(amin_y), amin_x, amin_y, amin_dx},
    {"l1", l1, COUNT(l1_y), l1_x, l1_y, l1_dx},
    {"l2", l2, COUNT(l2_y), l2_x, l2_y, l2_dx},
    {"sum_square", sum_square, COUNT(sum_square_y), sum_square_x, sum_square_y, sum_square_dx},
    {"log_sum_exp", log_sum_exp, COUNT(log_sum_exp_y), log_sum_exp_x, log_sum_exp_y, log_sum_exp_dx},
};

/* Zeros in products, ties, a norm of 0, sums beyond exp's reach. */
static void rows_at_their_edges(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (tl_dtype dtype = TL_F64; dtype <= TL_F32; dtype++) {
            tl_ctx *ctx = context();
            double weight[12];
            for (int64_t i = 0; i < rows[k].n; i++)
                weight[i] = (double)(i + 1) / 2;
            tl_tensor *x = tensor(ctx, dtype, rows[k].x, 3, 4);
            tl_tensor *w = tensor(ctx, dtype, weight, rows[k].n == 12 ? 3 : 0, rows[k].n == 12 ? 4 : 3);
            tl_tensor_require_grad(w, false);
            tl_record(ctx, true);
            tl_tensor *y = rows[k].call(x), *loss = tl_sum(tl_mul(y, w), NULL, 0, false);
            tl_record(ctx, false);
            check_ok(ctx, rows[k].name);
            compare(y, rows[k].y, rows[k].n, rows[k].name, "value", false);
            assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
            compare(tl_tensor_grad(x), rows[k].dx, 12, rows[k].name, "derivative", true);
            tl_ctx_free(ctx);
        }
}

/* Integers are exact beyond what a double holds; by 0 there is no trap. Exact arithmetic. */
static void integers_are_exact(void **state) {
    (void)state;
    tl_ctx *ctx = context();
    const int64_t big = INT64_C(9007199254740993), a[] = {big, -7, 7, INT64_MIN, 5, 3},
                  b[] = {big - 1, 3, -3, -1, 0, 4};
    tl_shape six = TL_SHAPE(ctx, tl_dim_of(6));
    tl_tensor *x = tl_from_data(ctx, TL_I64, six, TL_WORK, a, 6), *y = tl_from_data(ctx, TL_I64, six, TL_WORK, b, 6);
    const struct {
        tl_tensor *result;
        int64_t want[6];
    } cases[] = {
        {tl_maximum(x, y), {big, 3, 7, -1, 5, 4}},
        {tl_minimum(x, y), {big - 1, -7, -3, INT64_MIN, 0, 3}},
        {tl_mod(x, y), {1, 2, -2, 0, 0, 3}},  /* Python's % */
        {tl_fmod(x, y), {1, -1, 1, 0, 0, 3}}, /* C's % */
        {tl_clamp(x, -5, 6), {6, -5, 6, -5, 5, 3}},
        {tl_cumsum(x, 0, true, false), {0, big, big - 7, big, INT64_MIN + big, INT64_MIN + big + 5}},
        {tl_where(tl_less(y, x), x, y), {big, 3, 7, -1, 5, 4}},
    };
    check_ok(ctx, "integers");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int64_t got[6];
        assert_int_equal(tl_tensor_read(cases[k].result, got, sizeof got), TL_OK);
        for (int i = 0; i < 6; i++)
            if (got[i] != cases[k].want[i])
                fail_msg("case %zu, element %d: %lld, not %lld", k, i, (long long)got[i], (long long)cases[k].want[i]);
    }
    tl_ctx_free(ctx);
}

static void expect(tl_ctx *ctx, const tl_tensor *result, tl_status status, const char *part) {
    assert_null(result);
    assert_int_equal(tl_ctx_status(ctx), status);
    if (!strstr(tl_ctx_error(ctx)->message, part))
        fail_msg("'%s' is not in: %s", part, tl_ctx_error(ctx)->message);
    tl_ctx_clear_error(ctx);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    tl_ctx *ctx = context();
    tl_tensor *x = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(3)), TL_WORK), 1);
    tl_tensor *y = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(4)), TL_WORK), 1);
    tl_tensor *none = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(0), tl_dim_of(3)), TL_WORK);
    expect(ctx, tl_where(x, x, x), TL_ERR_DTYPE, "bool would work");
    expect(ctx, tl_logical_and(x, x), TL_ERR_DTYPE, "input 0 is f32");
    expect(ctx, tl_equal(x, y), TL_ERR_SHAPE, "3 and 4");
    expect(ctx, tl_less(x, none), TL_ERR_DTYPE, "i32");
    expect(ctx, tl_min(none, (int[]){0}, 1, false), TL_ERR_SHAPE, "min of no elements");
    expect(ctx, tl_argmin_along(none, 0, false, false), TL_ERR_SHAPE, "axis 0");
    expect(ctx, tl_argmax_along(x, 2, false, false), TL_ERR_SHAPE, "axis 2");
    expect(ctx, tl_cumsum(x, -3, false, false), TL_ERR_SHAPE, "axis -3");
    expect(ctx, tl_masked_fill(tl_slice(x, 0, 0, tl_dim_of(1), 1), tl_equal(x, x), 0), TL_ERR_SHAPE, "larger");
    expect(ctx, tl_one_hot(x, tl_dim_of(3), -1, TL_F32, 1, 0), TL_ERR_DTYPE, "f32");
    expect(ctx, tl_range(x, 0, 1), TL_ERR_SHAPE, "one axis");
    expect(ctx, tl_lp_normalize(x, 3, -1), TL_ERR_ARGUMENT, "1 or 2");
    expect(ctx, tl_triu(tl_range(tl_empty(ctx, TL_I64, TL_SHAPE(ctx, tl_dim_of(3)), TL_WORK), 0, 1), 0), TL_ERR_SHAPE,
           "at least 2 axes");
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_at_their_edges), cmocka_unit_test(pairs_at_their_edges),
        cmocka_unit_test(rows_at_their_edges),      cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
