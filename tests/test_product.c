/* Products: every shape against a plain double-precision product written here, and the same bits at 1, 2, 3 and 8
 * threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/table.h"

#define SCRATCH (2 << 20)

typedef struct shape {
    int64_t m, n, k, batch;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1},      {1, 7, 5, 1},       {5, 1, 7, 1},      {7, 5, 1, 1},     {0, 5, 3, 1},      {5, 0, 3, 1},
    {5, 3, 0, 1},      {12, 12, 32, 9},    {12, 32, 12, 9},   {17, 33, 65, 1},  {64, 64, 64, 1},   {65, 129, 130, 2},
    {128, 300, 70, 1}, {400, 96, 128, 1},  {1, 512, 300, 1},  {512, 1, 300, 1}, {96, 96, 1500, 1}, {200, 16, 128, 1},
    {16, 200, 700, 1}, {130, 128, 64, 10}, {300, 520, 40, 1}, {9, 9, 2000, 3},  {33, 64, 64, 0},   {640, 640, 96, 1},
};

enum { TRANSPOSE_A = 1, TRANSPOSE_B = 2, ACCUMULATE = 4, BIAS = 8, PADDED = 16 };

typedef struct operands {
    tl_product product;
    char *a, *b, *c, *c_start, *bias;
    size_t c_bytes;
    double *value_a, *value_b, *value_c, *value_bias;
} operands;

static double round_to(tl_dtype dtype, double v) {
    switch (dtype) {
    case TL_F64:
        return v;
    case TL_F32:
        return (float)v;
    case TL_BF16:
        return tl_bf16_to_f32(tl_f32_to_bf16((float)v));
    default:
        return tl_f16_to_f32(tl_f32_to_f16((float)v));
    }
}

static void put(tl_dtype dtype, char *memory, int64_t at, double v) {
    switch (dtype) {
    case TL_F64:
        ((double *)memory)[at] = v;
        break;
    case TL_F32:
        ((float *)memory)[at] = (float)v;
        break;
    case TL_BF16:
        ((uint16_t *)memory)[at] = tl_f32_to_bf16((float)v);
        break;
    default:
        ((uint16_t *)memory)[at] = tl_f32_to_f16((float)v);
        break;
    }
}

static double get(tl_dtype dtype, const char *memory, int64_t at) {
    switch (dtype) {
    case TL_F64:
        return ((const double *)memory)[at];
    case TL_F32:
        return ((const float *)memory)[at];
    case TL_BF16:
        return tl_bf16_to_f32(((const uint16_t *)memory)[at]);
    default:
        return tl_f16_to_f32(((const uint16_t *)memory)[at]);
    }
}

static double *values(int64_t n, tl_dtype dtype, uint32_t *state) {
    double *v = calloc((size_t)n + 1, sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        v[i] = round_to(dtype, (double)(*state >> 8) / (1 << 24) * 2 - 1);
    }
    return v;
}

static operands make(shape s, tl_dtype dtype, int flags) {
    uint32_t state = 7;
    int64_t pad = flags & PADDED ? 3 : 0, bytes = tl_dtype_bytes(dtype);
    operands o = {.value_a = values(s.m * s.k * s.batch, dtype, &state),
                  .value_b = values(s.k * s.n * s.batch, dtype, &state),
                  .value_c = values(s.m * s.n * s.batch, dtype, &state),
                  .value_bias = values(s.n, dtype, &state)};
    tl_product *p = &o.product;
    *p = (tl_product){.dtype = dtype, .m = s.m, .n = s.n, .k = s.k, .n_batch = 1, .batch = {s.batch}};
    int64_t a_line = (flags & TRANSPOSE_A ? s.m : s.k) + pad, b_line = (flags & TRANSPOSE_B ? s.k : s.n) + pad;
    p->a_row = flags & TRANSPOSE_A ? 1 : a_line;
    p->a_col = flags & TRANSPOSE_A ? a_line : 1;
    p->b_row = flags & TRANSPOSE_B ? 1 : b_line;
    p->b_col = flags & TRANSPOSE_B ? b_line : 1;
    p->c_row = s.n + pad;
    p->a_batch[0] = a_line * (flags & TRANSPOSE_A ? s.k : s.m);
    p->b_batch[0] = b_line * (flags & TRANSPOSE_B ? s.n : s.k);
    p->c_batch[0] = p->c_row * s.m;
    o.c_bytes = (size_t)(p->c_batch[0] * s.batch * bytes) + 1;
    o.a = calloc((size_t)(p->a_batch[0] * s.batch * bytes) + 1, 1);
    o.b = calloc((size_t)(p->b_batch[0] * s.batch * bytes) + 1, 1);
    o.c = calloc(o.c_bytes, 1);
    o.c_start = calloc(o.c_bytes, 1);
    o.bias = calloc((size_t)(s.n * bytes) + 1, 1);
    assert_true(o.a && o.b && o.c && o.c_start && o.bias);
    for (int64_t g = 0; g < s.batch; g++) {
        for (int64_t i = 0; i < s.m; i++)
            for (int64_t l = 0; l < s.k; l++)
                put(dtype, o.a, g * p->a_batch[0] + i * p->a_row + l * p->a_col, o.value_a[(g * s.m + i) * s.k + l]);
        for (int64_t l = 0; l < s.k; l++)
            for (int64_t j = 0; j < s.n; j++)
                put(dtype, o.b, g * p->b_batch[0] + l * p->b_row + j * p->b_col, o.value_b[(g * s.k + l) * s.n + j]);
        for (int64_t i = 0; i < s.m; i++)
            for (int64_t j = 0; j < s.n; j++)
                put(dtype, o.c_start, g * p->c_batch[0] + i * p->c_row + j, o.value_c[(g * s.m + i) * s.n + j]);
    }
    for (int64_t j = 0; j < s.n; j++)
        put(dtype, o.bias, j, o.value_bias[j]);
    p->a = o.a;
    p->b = o.b;
    p->c = o.c;
    p->accumulate = flags & ACCUMULATE;
    p->bias = flags & BIAS ? o.bias : NULL;
    p->bias_stride = 1;
    return o;
}

static void drop(operands *o) {
    void *all[] = {o->a, o->b, o->c, o->c_start, o->bias, o->value_a, o->value_b, o->value_c, o->value_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Error of a sum of k products in precision u is below (k+2)·u·Σ|a·b|; then one rounding to the dtype. */
static void check(const operands *o, shape s, const char *what, int flags) {
    tl_dtype dtype = o->product.dtype;
    double u = dtype == TL_F64 ? 0x1p-53 : 0x1p-24, last = dtype == TL_BF16 ? 0x1p-8 : dtype == TL_F16 ? 0x1p-11 : u;
    for (int64_t g = 0; g < s.batch; g++)
        for (int64_t i = 0; i < s.m; i++)
            for (int64_t j = 0; j < s.n; j++) {
                double sum = 0, size = 0;
                for (int64_t l = 0; l < s.k; l++) {
                    double term = o->value_a[(g * s.m + i) * s.k + l] * o->value_b[(g * s.k + l) * s.n + j];
                    sum += term;
                    size += fabs(term);
                }
                if (flags & ACCUMULATE)
                    sum += o->value_c[(g * s.m + i) * s.n + j];
                if (flags & BIAS)
                    sum += o->value_bias[j];
                double found = get(dtype, o->c, g * o->product.c_batch[0] + i * o->product.c_row + j);
                double bound = (double)(s.k + 4) * u * (size + 2) + 2 * last * fabs(sum) + 1e-300;
                if (!(fabs(found - sum) <= bound)) {
                    print_error("%s %s m=%lld n=%lld k=%lld flags=%d at [%lld,%lld,%lld]: %.17g, expected %.17g\n",
                                what, tl_dtype_name(dtype), (long long)s.m, (long long)s.n, (long long)s.k, flags,
                                (long long)g, (long long)i, (long long)j, found, sum);
                    fail();
                }
            }
}

static tl_engine *engine_of(const tl_kernels *kernels, int threads, void **scratch) {
    tl_error error = {0};
    tl_engine *engine = NULL;
    assert_int_equal(posix_memalign(scratch, 64, (size_t)threads * SCRATCH), 0);
    if (kernels->engine_open(NULL, threads, *scratch, SCRATCH, &engine, &error) != TL_OK)
        fail_msg("%s", error.message);
    return engine;
}

/* ThreadSanitizer slows products a hundredfold; races show in the small ones too. */
#if defined(__SANITIZE_THREAD__)
#define MOST_TERMS 300000
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MOST_TERMS 300000
#endif
#endif
#ifndef MOST_TERMS
#define MOST_TERMS INT64_MAX
#endif

static const char *const names[] = {"portable", "avx2", "avx512"};

static void test_products(void **state) {
    (void)state;
    static const int combinations[] = {0,
                                       TRANSPOSE_A,
                                       TRANSPOSE_B,
                                       TRANSPOSE_A | TRANSPOSE_B,
                                       ACCUMULATE | PADDED,
                                       BIAS,
                                       TRANSPOSE_A | ACCUMULATE | BIAS | PADDED,
                                       TRANSPOSE_B | BIAS | PADDED};
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F64, TL_F16};
    static const int threads[] = {1, 2, 3, 8};
    for (size_t t = 0; t < 3; t++) {
        const tl_kernels *kernels = tl_kernels_for_cpu(names[t], NULL);
        if (!kernels)
            continue;
        void *scratch[4];
        tl_engine *engine[4];
        for (int e = 0; e < 4; e++)
            engine[e] = engine_of(kernels, threads[e], &scratch[e]);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t f = 0; f < sizeof combinations / sizeof *combinations; f++)
                for (size_t d = 0; d < 4; d++) {
                    int64_t terms = shapes[s].m * shapes[s].n * shapes[s].k * shapes[s].batch;
                    if (terms > (d >= 2 ? 2000000 : MOST_TERMS) || terms > MOST_TERMS)
                        continue;
                    operands o = make(shapes[s], dtypes[d], combinations[f]);
                    char *first = malloc(o.c_bytes);
                    assert_non_null(first);
                    for (int e = 0; e < 4; e++) {
                        memcpy(o.c, o.c_start, o.c_bytes);
                        o.product.engine = engine[e];
                        kernels->product(&o.product);
                        if (e == 0) {
                            check(&o, shapes[s], names[t], combinations[f]);
                            memcpy(first, o.c, o.c_bytes);
                        }
                        assert_memory_equal(first, o.c, o.c_bytes);
                    }
                    free(first);
                    drop(&o);
                }
        for (int e = 0; e < 4; e++) {
            kernels->engine_close(engine[e]);
            free(scratch[e]);
        }
    }
}

/* Strides oneDNN does not take: a broadcast row, rows backwards, a strided bias; and a scratch block too small. */
static void test_odd_strides(void **state) {
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        const tl_kernels *kernels = tl_kernels_for_cpu(names[t], NULL);
        if (!kernels)
            continue;
        enum { M = 70, N = 80, K = 90 };
        float *a = calloc(M * K, sizeof *a), *b = calloc(K * N, sizeof *b), *c = calloc(M * N, sizeof *c), bias[2 * N];
        assert_true(a && b && c);
        for (int i = 0; i < M * K; i++)
            a[i] = (float)(i % 11 - 5);
        for (int i = 0; i < K * N; i++)
            b[i] = (float)(i % 7 - 3);
        for (int i = 0; i < 2 * N; i++)
            bias[i] = (float)i;
        void *scratch = NULL;
        tl_engine *engine = NULL;
        assert_int_equal(posix_memalign(&scratch, 64, 64), 0);
        assert_int_equal(kernels->engine_open(NULL, 1, scratch, 64, &engine, NULL), TL_OK);
        for (int form = 0; form < 3; form++) { /* small integers: sums are exact */
            int64_t a_row = form == 0 ? 0 : form == 1 ? -K : K;
            const float *start = form == 1 ? a + (M - 1) * K : a;
            tl_product p = {.engine = engine,
                            .dtype = TL_F32,
                            .m = M,
                            .n = N,
                            .k = K,
                            .a = (const char *)start,
                            .b = (const char *)b,
                            .c = (char *)c,
                            .a_row = a_row,
                            .a_col = 1,
                            .b_row = N,
                            .b_col = 1,
                            .c_row = N,
                            .bias = (const char *)bias,
                            .bias_stride = 2};
            kernels->product(&p);
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                    double sum = bias[2 * j];
                    for (int l = 0; l < K; l++)
                        sum += (double)start[i * a_row + l] * (double)b[l * N + j];
                    assert_true((double)c[i * N + j] == sum);
                }
        }
        kernels->engine_close(engine);
        free(scratch);
        free(a);
        free(b);
        free(c);
    }
}

static void *no_memory(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    (void)bytes, (void)kind;
    int *left = self;
    void *p = NULL;
    if (--*left < 0 || posix_memalign(&p, align, bytes) != 0)
        return NULL;
    return p;
}
static void give_back(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    (void)self, (void)bytes, (void)kind;
    free(pointer);
}

/* Every allocation failing in turn: opening reports it, a product still comes out (through the reference). */
static void test_out_of_memory(void **state) {
    (void)state;
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, NULL);
    assert_non_null(kernels);
    shape s = {128, 128, 128, 1};
    for (int budget = 0; budget < 12; budget++) {
        int left = budget;
        tl_allocator allocator = {no_memory, give_back, &left};
        tl_error error = {0};
        tl_engine *engine = NULL;
        void *scratch = NULL;
        assert_int_equal(posix_memalign(&scratch, 64, 2 * SCRATCH), 0);
        tl_status status = kernels->engine_open(&allocator, 2, scratch, SCRATCH, &engine, &error);
        if (status != TL_OK) {
            assert_int_equal(status, TL_ERR_MEMORY);
            assert_true(strlen(error.message) > 0);
            assert_null(engine);
        } else {
            operands o = make(s, TL_F32, 0);
            o.product.engine = engine;
            kernels->product(&o.product);
            check(&o, s, "short of memory", 0);
            drop(&o);
            kernels->engine_close(engine);
        }
        free(scratch);
    }
}

/* More shapes than any table of them holds (as the rows of experts make, that differ every step): the last has the bits that it
 * has in a new engine. */
static void test_shapes_without_end(void **state) {
    (void)state;
    enum { SIDE = 40, LAST = 4500 };
    uint32_t seed = 5;
    double *value = values(SIDE * LAST, TL_F32, &seed);
    float *a = calloc(SIDE * LAST, sizeof *a), c[2][SIDE * SIDE];
    assert_non_null(a);
    for (int i = 0; i < SIDE * LAST; i++)
        a[i] = (float)value[i];
    for (int isa = 0; isa < 3; isa++) {
        tl_error error = {0};
        const tl_kernels *kernels = tl_kernels_for_cpu(names[isa], &error);
        for (int fresh = 0; kernels && fresh < 2; fresh++) {
            void *scratch;
            tl_engine *engine = engine_of(kernels, 1, &scratch);
            tl_product p = {.engine = engine, .dtype = TL_F32, .m = SIDE, .n = SIDE, .k = SIDE, .a = (const char *)a};
            p.b = (const char *)(a + 7);
            p.c = (char *)c[fresh];
            p.a_col = p.b_col = 1;
            p.b_row = p.c_row = SIDE;
            for (p.a_row = fresh ? LAST : SIDE; p.a_row <= LAST; p.a_row++)
                kernels->product(&p);
            kernels->engine_close(engine);
            free(scratch);
        }
        assert_true(!kernels || memcmp(c[0], c[1], sizeof c[0]) == 0);
    }
    free(a);
    free(value);
}

static void test_choice(void **state) {
    (void)state;
    tl_error error = {0};
    assert_null(tl_kernels_for_cpu("sse9", &error));
    assert_int_equal(error.status, TL_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "sse9"));
    assert_non_null(strstr(error.message, "portable"));
    assert_string_equal(tl_kernels_for_cpu("portable", NULL)->name, "portable");
    assert_ptr_equal(tl_kernels_portable(), tl_kernels_for_cpu("portable", NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),      cmocka_unit_test(test_odd_strides),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_shapes_without_end),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
