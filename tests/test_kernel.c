/* Elementwise kernels, copies and reductions: against double (long double for f64) formulas written here with libm, over
 * dtypes, layouts and instruction sets; the same bits for any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel_arrays.h"

typedef long double wide;

static wide add_(wide a, wide b) { return a + b; }
static wide sub_(wide a, wide b) { return a - b; }
static wide mul_(wide a, wide b) { return a * b; }
static wide div_(wide a, wide b) { return a / b; }
static wide neg_(wide a) { return -a; }
static wide rsqrt_(wide a) { return 1 / sqrtl(a); }
static wide relu_(wide a) { return a > 0 ? a : 0; }
static wide gelu_erf_(wide a) { return a * erfcl(-a / sqrtl(2)) / 2; }
static wide inner_(wide a) { return sqrtl(8 / acosl(-1)) * (a + 0.044715L * a * a * a); }
static wide gelu_tanh_(wide a) { return a / (1 + expl(-inner_(a))); }
static wide silu_(wide a) { return a / (1 + expl(-a)); }
static wide relu_slope(wide a) { return a > 0; }
static wide gelu_erf_slope(wide a) { return erfcl(-a / sqrtl(2)) / 2 + a * expl(-a * a / 2) / sqrtl(2 * acosl(-1)); }
static wide gelu_tanh_slope(wide a) {
    wide s = 1 / (1 + expl(-inner_(a)));
    return s + a * s * (1 - s) * sqrtl(8 / acosl(-1)) * (1 + 3 * 0.044715L * a * a);
}
static wide silu_slope(wide a) {
    wide s = 1 / (1 + expl(-a));
    return s + a * s * (1 - s);
}
static wide tanh_slope(wide y) { return 1 - y * y; }

typedef struct entry {
    const char *name;
    size_t offset; /* of the kernel in the table */
    wide (*one)(wide);
    wide (*two)(wide, wide);
    double low, high;
    double ulps;     /* allowed, in units of the last place of f32 or f64 */
    double absolute; /* and this many units of roundoff of 1, where terms cancel */
    bool exact; /* f32 too has the same bits on every instruction set; f64, and all but AVX-512's, have in any case */
} entry;

#define AT(name) offsetof(tl_kernels, name)
/* Ulp bounds: 2 for exp, log, tanh (DESIGN.md). GELU: 4 within ±5. The tanh form and silu's tail carry the rounding of
 * their argument through exp, so beyond small |x| the bound is absolute. */
static const entry unary[] = {
    {"neg", AT(neg), neg_, NULL, -9, 9, 0.5, 0, true},
    {"exp", AT(exp), expl, NULL, -20, 10, 2, 0, false},
    {"log", AT(log), logl, NULL, 1e-5, 20, 2, 0, true},
    {"sqrt", AT(sqrt), sqrtl, NULL, 0, 50, 0.5001, 0, true},
    {"rsqrt", AT(rsqrt), rsqrt_, NULL, 1e-3, 50, 2, 0, true},
    {"tanh", AT(tanh), tanhl, NULL, -6, 6, 2, 0, false},
    {"relu", AT(relu), relu_, NULL, -2, 2, 0.5, 0, true},
    {"gelu_erf", AT(gelu_erf), gelu_erf_, NULL, -5, 5, 4, 1, false},
    {"gelu_tanh", AT(gelu_tanh), gelu_tanh_, NULL, -5, 5, 4, 1, false},
    {"silu", AT(silu), silu_, NULL, -20, 20, 4, 0, false},
};
static const entry binary[] = {
    {"add", AT(add), NULL, add_, -3, 3, 0.5001, 0, true},
    {"sub", AT(sub), NULL, sub_, -3, 3, 0.5001, 0, true},
    {"mul", AT(mul), NULL, mul_, -3, 3, 0.5001, 0, true},
    {"div", AT(div), NULL, div_, 0.1, 3, 0.5001, 0, true},
};
static const entry backward[] = {
    {"relu_backward", AT(relu_backward), relu_slope, NULL, -3, 3, 1, 0, true},
    {"gelu_erf_backward", AT(gelu_erf_backward), gelu_erf_slope, NULL, -5, 5, 4, 4, false},
    {"gelu_tanh_backward", AT(gelu_tanh_backward), gelu_tanh_slope, NULL, -5, 5, 8, 16, false},
    {"silu_backward", AT(silu_backward), silu_slope, NULL, -9, 9, 4, 4, false},
    {"tanh_backward", AT(tanh_backward), tanh_slope, NULL, -0.99, 0.99, 2, 2, true},
};
#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static tl_kernel *kernel_of(const tl_kernels *table, const entry *e) {
    tl_kernel *kernel;
    memcpy(&kernel, (const char *)table + e->offset, sizeof kernel);
    assert_non_null(kernel);
    return kernel;
}

/* f16 and bf16 compute in float: its error, then one rounding */
static double allowed(tl_dtype dtype, const entry *e, double expected) {
    double u = dtype == TL_F64 ? 0x1p-53 : 0x1p-24;
    double narrow = dtype == TL_BF16 || dtype == TL_F16 ? 1.01 * unit_of(dtype) * fabs(expected) + 0x1p-25 : 0;
    /* a long double rounded to double may be one off the nearest: two roundings */
    double ulps = dtype == TL_F64 ? fmax(e->ulps, 1.01) : e->ulps;
    return 2 * u * ulps * fabs(expected) + e->absolute * u + narrow + (dtype == TL_F64 ? 0x1p-1074 : 0x1p-149);
}

static void elementwise(const entry *e, int n_in, int n_rows, int n_columns) {
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_BF16, TL_F16};
    const int64_t size[3] = {n_rows, 3, n_columns}, n = count_of(3, size);
    for (int d = 0; d < 4; d++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            char *bits = NULL;
            for (int t = 0; t < 3; t++) {
                const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
                if (!table)
                    continue;
                box a = box_make(dtypes[d], 3, size, layout), b = box_make(dtypes[d], 3, size, (layout + 1) % 4);
                box y = box_make(dtypes[d], 3, size, layout == LAYOUT_TURNED ? LAYOUT_PLAIN : layout);
                box_random(&a, 1, e->low, e->high);
                box_random(&b, 2, e->one ? -1 : e->low, e->one ? 1 : e->high);
                run(kernel_of(table, e), NULL, (box *[]){&a, &b}, n_in, (box *[]){&y}, 1, NULL, 0);
                for (int64_t i = 0; i < n; i++) {
                    wide x = box_get(&a, i), z = box_get(&b, i), r = e->two ? e->two(x, z) : e->one(x);
                    if (e->one && n_in == 2)
                        r *= z;
                    double room = allowed(dtypes[d], e, (double)r);
                    if (fabs(box_get(&y, i) - (double)r) > room)
                        print_error("%s %s %s layout %d x %.9g: ", table->name, e->name, tl_dtype_name(dtypes[d]),
                                    layout, (double)x);
                    CLOSE(box_get(&y, i), (double)r, room);
                }
                if (!bits) {
                    bits = malloc((size_t)y.bytes);
                    assert_non_null(bits);
                    memcpy(bits, y.memory, (size_t)y.bytes);
                } else if (e->exact || dtypes[d] == TL_F64 || strcmp(table->name, "avx512") != 0) {
                    assert_memory_equal(bits, y.memory, (size_t)y.bytes);
                }
                /* in place: on the last input for gradients, on the first otherwise */
                box *same = n_in == 2 && e->one ? &b : &a;
                run(kernel_of(table, e), NULL, (box *[]){&a, &b}, n_in, (box *[]){same}, 1, NULL, 0);
                for (int64_t i = 0; i < n; i++)
                    CLOSE(box_get(same, i), box_get(&y, i), 0);
                box_free(&a);
                box_free(&b);
                box_free(&y);
            }
            free(bits);
        }
}

static void test_elementwise(void **state) {
    (void)state;
    for (int i = 0; i < COUNT(unary); i++)
        elementwise(&unary[i], 1, 5, 613);
    for (int i = 0; i < COUNT(binary); i++)
        elementwise(&binary[i], 2, 5, 613);
    for (int i = 0; i < COUNT(backward); i++)
        elementwise(&backward[i], 2, 5, 613);
}

static void test_empty_and_scalar(void **state) {
    (void)state;
    for (int i = 0; i < COUNT(unary); i++) {
        elementwise(&unary[i], 1, 0, 7);
        elementwise(&unary[i], 1, 1, 1);
    }
    elementwise(&binary[0], 2, 3, 0);
}

/* The whole range of floats, densely: within 2 ulp of libm's double, special values included. */
static void test_accuracy(void **state) {
    (void)state;
    static const struct {
        size_t offset;
        double (*f)(double);
        double ulps;
    } all[] = {{AT(exp), exp, 2}, {AT(log), log, 2}, {AT(tanh), tanh, 2}};
    const int64_t n = 1 << 20;
    for (int t = 0; t < 3; t++) {
        const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
        if (!table)
            continue;
        box x = box_make(TL_F32, 1, &n, LAYOUT_PLAIN), y = box_make(TL_F32, 1, &n, LAYOUT_PLAIN);
        for (int64_t i = 0; i < n; i++) { /* every 4096th bit pattern: subnormals, infinities, NaNs */
            uint32_t bits = (uint32_t)i * 4096u + (uint32_t)(i % 4096);
            memcpy(x.array.data + 4 * i, &bits, 4);
        }
        for (int k = 0; k < 3; k++) {
            tl_kernel *kernel;
            memcpy(&kernel, (const char *)table + all[k].offset, sizeof kernel);
            run(kernel, NULL, (box *[]){&x}, 1, (box *[]){&y}, 1, NULL, 0);
            for (int64_t i = 0; i < n; i++) {
                double v = box_get(&x, i), r = all[k].f(v), found = box_get(&y, i);
                int exponent = 0;
                frexp(r, &exponent);
                double ulp = ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
                if ((double)(float)r == found || (isnan(r) && isnan(found)))
                    continue;
                CLOSE(found, r, all[k].ulps * ulp);
            }
        }
        box_free(&x);
        box_free(&y);
    }
}

static void test_broadcast(void **state) {
    (void)state;
    const int64_t size[3] = {6, 5, 700};
    for (int t = 0; t < 3; t++) {
        const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
        for (int axis = 0; table && axis < 3; axis++) {
            box a = box_make(TL_F32, 3, size, axis), b = box_broadcast(TL_F32, 3, size, axis),
                y = box_make(TL_F32, 3, size, 0);
            box_random(&a, 1, -1, 1);
            box_random(&b, 2, -1, 1);
            run(table->mul, NULL, (box *[]){&a, &b}, 2, (box *[]){&y}, 1, NULL, 0);
            for (int64_t i = 0; i < count_of(3, size); i++)
                CLOSE(box_get(&y, i), (double)((float)box_get(&a, i) * (float)box_get(&b, i)), 0);
            run(table->sub, NULL, (box *[]){&b, &a}, 2, (box *[]){&y}, 1, NULL, 0);
            for (int64_t i = 0; i < count_of(3, size); i++)
                CLOSE(box_get(&y, i), (double)((float)box_get(&b, i) - (float)box_get(&a, i)), 0);
            box_free(&a);
            box_free(&b);
            box_free(&y);
        }
    }
}

static void test_ints(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_I64, TL_I32, TL_U8, TL_I16, TL_U16, TL_I8};
    const int64_t n = 40;
    for (int t = 0; t < 3; t++)
        for (int d = 0; d < 6; d++) {
            const int first = dtypes[d] == TL_I8 ? 80 : 100;
            const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
            if (!table)
                continue;
            box a = box_make(dtypes[d], 1, &n, 0), b = box_make(dtypes[d], 1, &n, LAYOUT_GAPS),
                y = box_make(dtypes[d], 1, &n, 0);
            for (int64_t i = 0; i < n; i++) {
                box_put(&a, i, (double)(first + i));
                box_put(&b, i, (double)(i % 5));
            }
            run(table->add, NULL, (box *[]){&a, &b}, 2, (box *[]){&y}, 1, NULL, 0);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(box_get_int(&y, i), first + i + i % 5);
            run(table->div, NULL, (box *[]){&a, &b}, 2, (box *[]){&y}, 1, NULL, 0);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(box_get_int(&y, i), i % 5 ? (first + i) / (i % 5) : 0);
            tl_scale_attr scale = {0.5, 0.25}; /* 100·½ + ¼ = 50.25 → 50; 101·½ + ¼ = 50.75 → 51 */
            run(table->scale, NULL, (box *[]){&a}, 1, (box *[]){&y}, 1, &scale, 0);
            assert_int_equal(box_get_int(&y, 0), first / 2);
            assert_int_equal(box_get_int(&y, 1), first / 2 + 1);
            box_free(&a);
            box_free(&b);
            box_free(&y);
        }
}

static void test_copy(void **state) {
    (void)state;
    static const double specials[] = {0,
                                      -0.0,
                                      1,
                                      -1,
                                      0.5,
                                      2.5,
                                      -3.75,
                                      255,
                                      256,
                                      65504,
                                      65520,
                                      1e-8,
                                      3e9,
                                      -3e9,
                                      1e19,
                                      -1e19,
                                      0x1.00ffffffp0,
                                      1 + 0x1p-8 + 0x1p-40,
                                      0x1p-24,
                                      0x1p-25,
                                      0x1.8p-25,
                                      1e300,
                                      INFINITY,
                                      -INFINITY,
                                      NAN};
    const int64_t n = COUNT(specials);
    for (int t = 0; t < 3; t++)
        for (int from = 0; from < TL_DTYPE_COUNT; from++)
            for (int to = 0; to < TL_DTYPE_COUNT; to++)
                for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
                    const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
                    if (!table)
                        continue;
                    box x = box_make((tl_dtype)from, 1, &n, layout), y = box_make((tl_dtype)to, 1, &n, 3 - layout);
                    for (int64_t i = 0; i < n; i++) {
                        double v = specials[i];
                        if (from == TL_BOOL)
                            v = v > 0;
                        else if (!tl_dtype_is_float((tl_dtype)from)) /* what an int can hold, so that C defines it */
                            v = !(fabs(v) < 100) ? 7 : from == TL_U8 || from == TL_U16 ? fabs(trunc(v)) : trunc(v);
                        box_put(&x, i, v);
                    }
                    run(table->copy, NULL, (box *[]){&x}, 1, (box *[]){&y}, 1, NULL, 0);
                    for (int64_t i = 0; i < n; i++) {
                        double v = box_get(&x, i), r;
                        if (to == TL_BOOL)
                            r = v != 0;
                        else if (!tl_dtype_is_float((tl_dtype)to)) {
                            int bits = 8 * tl_dtype_bytes((tl_dtype)to);
                            bool natural = to == TL_U8 || to == TL_U16;
                            double low = natural ? 0 : -ldexp(1, bits - 1);
                            double high = ldexp(1, natural ? bits : bits - 1) - (bits < 64);
                            r = isnan(v) ? 0 : v < low ? low : v > high ? high : trunc(v);
                        } else {
                            r = to == TL_F64 ? v : rounded((tl_dtype)to, v);
                        }
                        if (from == TL_F64 && (to == TL_BF16 || to == TL_F16) && (i == 16 || i == 17))
                            continue; /* two roundings in rounded(): below */
                        CLOSE(box_get(&y, i), r, 0);
                    }
                    if (from == TL_F64 &&
                        to == TL_BF16) /* just above the tie 1 + 2^−8: up, where two roundings go down */
                        CLOSE(box_get(&y, 17), 1 + 0x1p-7, 0);
                    box_free(&x);
                    box_free(&y);
                }
}

static void test_copy_turned(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_BF16, TL_U8, TL_I16, TL_F8E5M2};
    const int64_t size[3] = {3, 70, 190};
    for (int t = 0; t < 3; t++)
        for (int d = 0; d < 6; d++) {
            const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
            if (!table)
                continue;
            tl_engine *engine = engine_make(table, 3);
            box x = box_make(dtypes[d], 3, size, LAYOUT_TURNED), y = box_make(dtypes[d], 3, size, LAYOUT_PLAIN);
            box_random(&x, 3, 0, 200);
            run(table->copy, engine, (box *[]){&x}, 1, (box *[]){&y}, 1, NULL, 0);
            for (int64_t i = 0; i < count_of(3, size); i++)
                CLOSE(box_get(&y, i), box_get(&x, i), 0);
            tl_fill_attr fill = {5};
            run(table->fill, engine, NULL, 0, (box *[]){&x}, 1, &fill, 0);
            for (int64_t i = 0; i < count_of(3, size); i++)
                CLOSE(box_get(&x, i), 5, 0);
            box_free(&x);
            box_free(&y);
            engine_drop(table, engine);
        }
}

static void reduce_one(const tl_kernels *table, tl_engine *engine, tl_dtype dtype, int mask, const int64_t size[4]) {
    int64_t out_size[4];
    for (int d = 0; d < 4; d++)
        out_size[d] = mask >> d & 1 ? 1 : size[d];
    int64_t n = count_of(4, size), m = count_of(4, out_size);
    box plain = box_make(dtype, 4, size, 0);
    box_random(&plain, 5, -1, 2);
    double *sum = calloc((size_t)m + 1, 8), *size_sum = calloc((size_t)m + 1, 8), *most = calloc((size_t)m + 1, 8);
    assert_true(sum && size_sum && most);
    for (int64_t i = 0; i < m; i++)
        most[i] = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, index[4];
        for (int d = 3; d >= 0; d--) {
            index[d] = rest % size[d];
            rest /= size[d];
        }
        for (int d = 0; d < 4; d++)
            at = at * out_size[d] + (mask >> d & 1 ? 0 : index[d]);
        double v = box_get(&plain, i);
        sum[at] += v;
        size_sum[at] += fabs(v);
        most[at] = fmax(most[at], v);
    }
    tl_kernel *kernel[] = {table->sum, table->mean, table->max};
    double u = dtype == TL_F64 ? 0x1p-53 : 0x1p-24, count = m ? (double)(n / m) : 0;
    for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
        box x = box_make(dtype, 4, size, layout);
        box_random(&x, 5, -1, 2);
        for (int k = 0; k < 3; k++) {
            box out = box_make(dtype, 4, out_size, layout);
            run(kernel[k], engine, (box *[]){&x}, 1, (box *[]){&out}, 1, NULL, 0);
            for (int64_t i = 0; i < m; i++) {
                double r = k == 0 ? sum[i] : k == 1 ? sum[i] / count : most[i];
                double room = k == 2 ? 0
                                     : 40 * u * size_sum[i] / (k == 1 ? count : 1) +
                                           1.01 * unit_of(dtype) * fabs(r) * (dtype != TL_F64);
                CLOSE(box_get(&out, i), r, room);
            }
            box_free(&out);
        }
        box_free(&x);
    }
    box_free(&plain);
    free(sum);
    free(size_sum);
    free(most);
}

static void test_reduce(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_F32, TL_F64, TL_BF16};
    static const int64_t sizes[][4] = {{3, 4, 5, 37}, {2, 300, 1, 90}, {1, 1, 1, 1}, {7, 3, 2, 2000}};
    for (int t = 0; t < 3; t++) {
        const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
        for (int s = 0; table && s < COUNT(sizes); s++)
            for (int d = 0; d < 3; d++)
                for (int mask = 0; mask < 16; mask++)
                    reduce_one(table, NULL, dtypes[d], mask, sizes[s]);
    }
}

/* A float sum must not drift: adding 2^20 times 1.001 one by one ends thousands of units off. */
static void test_reduce_special(void **state) {
    (void)state;
    const int64_t n = 1 << 20, one = 1, none = 0, ints = 5;
    for (int t = 0; t < 3; t++) {
        const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
        if (!table)
            continue;
        box x = box_make(TL_F32, 1, &n, 0), y = box_make(TL_F32, 1, &one, 0), q = box_make(TL_F64, 1, &one, 0);
        box_fill(&x, 1.001);
        run(table->sum, NULL, (box *[]){&x}, 1, (box *[]){&y}, 1, NULL, 0);
        CLOSE(box_get(&y, 0), (double)1.001f * (double)n, 1);
        box_put(&x, 77, NAN);
        run(table->max, NULL, (box *[]){&x}, 1, (box *[]){&y}, 1, NULL, 0);
        assert_true(isnan(box_get(&y, 0)));
        box big = box_make(TL_F32, 1, &(int64_t){128}, 0); /* 128 × 1e19 squared leaves float's range, not double's */
        box_fill(&big, 1e19);
        run(table->square_sum, NULL, (box *[]){&big}, 1, (box *[]){&q}, 1, NULL, 0);
        CLOSE(box_get(&q, 0), 128 * (double)1e19f * (double)1e19f, 1e26);
        box empty = box_make(TL_F32, 1, &none, 0);
        run(table->square_sum, NULL, (box *[]){&empty}, 1, (box *[]){&q}, 1, NULL, 0);
        CLOSE(box_get(&q, 0), 0, 0);
        box whole = box_make(TL_I64, 1, &ints, LAYOUT_FLIPPED), total = box_make(TL_I64, 1, &one, 0);
        for (int64_t i = 0; i < ints; i++)
            box_put(&whole, i, (double)(i * i) - 3);
        run(table->sum, NULL, (box *[]){&whole}, 1, (box *[]){&total}, 1, NULL, 0);
        assert_int_equal(box_get_int(&total, 0), 0 + 1 + 4 + 9 + 16 - 15);
        box_free(&x), box_free(&y), box_free(&q), box_free(&big), box_free(&empty), box_free(&whole), box_free(&total);
    }
}

static void test_argmax(void **state) {
    (void)state;
    const int64_t size[2] = {3, 1300}, rows = 3;
    for (int t = 0; t < 3; t++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
            if (!table)
                continue;
            box x = box_make(TL_F32, 2, size, layout), y = box_make(TL_I64, 1, &rows, 0);
            box_random(&x, 4, -1, 1);
            box_put(&x, 700, 5);
            box_put(&x, 900, 5);          /* the first of equals */
            box_put(&x, 1300 + 1299, 2);  /* the last element */
            box_put(&x, 2600 + 600, NAN); /* a NaN wins */
            run(table->argmax, NULL, (box *[]){&x}, 1, (box *[]){&y}, 1, NULL, 0);
            assert_int_equal(box_get_int(&y, 0), 700);
            assert_int_equal(box_get_int(&y, 1), 1299);
            assert_int_equal(box_get_int(&y, 2), 600);
            box_free(&x), box_free(&y);
        }
}

/* Large enough for several tasks: sums and loops give the same bytes on 1, 2, 3 and 8 threads. */
static void test_threads(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    const int64_t size[3] = {3, 333, 210}, column[3] = {1, 1, 210}, row[3] = {3, 333, 1}, one[3] = {1, 1, 1};
    for (int t = 0; t < 3; t++) {
        const tl_kernels *table = tl_kernels_for_cpu(table_names[t], NULL);
        if (!table)
            continue;
        box x = box_make(TL_F32, 3, size, LAYOUT_TURNED);
        box_random(&x, 9, -2, 2);
        box y[4], c[4], r[4], s[4];
        for (int e = 0; e < 4; e++) {
            tl_engine *engine = engine_make(table, threads[e]);
            y[e] = box_make(TL_BF16, 3, size, 0);
            c[e] = box_make(TL_F32, 3, column, 0);
            r[e] = box_make(TL_F32, 3, row, 0);
            s[e] = box_make(TL_F32, 3, one, 0);
            run(table->copy, engine, (box *[]){&x}, 1, (box *[]){&y[e]}, 1, NULL, 0);
            run(table->sum, engine, (box *[]){&x}, 1, (box *[]){&c[e]}, 1, NULL, 0);
            run(table->sum, engine, (box *[]){&x}, 1, (box *[]){&r[e]}, 1, NULL, 0);
            run(table->sum, engine, (box *[]){&x}, 1, (box *[]){&s[e]}, 1, NULL, 0);
            assert_memory_equal(y[0].memory, y[e].memory, (size_t)y[e].bytes);
            assert_memory_equal(c[0].memory, c[e].memory, (size_t)c[e].bytes);
            assert_memory_equal(r[0].memory, r[e].memory, (size_t)r[e].bytes);
            assert_memory_equal(s[0].memory, s[e].memory, (size_t)s[e].bytes);
            engine_drop(table, engine);
        }
        for (int e = 0; e < 4; e++)
            box_free(&y[e]), box_free(&c[e]), box_free(&r[e]), box_free(&s[e]);
        box_free(&x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise),    cmocka_unit_test(test_empty_and_scalar),
        cmocka_unit_test(test_accuracy),       cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_ints),           cmocka_unit_test(test_copy),
        cmocka_unit_test(test_copy_turned),    cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_reduce_special), cmocka_unit_test(test_argmax),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
