/* Results of 16 MiB and more are written past the caches, and wide transpositions go through registers. Expected: what the
 * same kernel gives for the parts, which are small and so go the ordinary way; for copies, the elements themselves. Sizes are
 * odd and memory starts off a cache line, so that every kind of remainder occurs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernel/engine.h"
#include "tally/cpu.h"

#define ROWS 4231
#define COLUMNS 1003 /* 4231 · 1003 · 4 bytes = 16.2 MiB */

static const char *const names[] = {"portable", "avx2", "avx512"};

static tl_array array(tl_dtype dtype, int64_t rows, int64_t columns) {
    tl_array a = {.dtype = dtype, .ndim = 2, .size = {rows, columns}, .stride = {columns, 1}};
    size_t bytes = (size_t)(rows * columns * tl_dtype_bytes(dtype));
    char *memory = malloc(bytes + 92);
    assert_non_null(memory);
    memset(memory, 0x5A, bytes + 92);
    a.data = memory + 24; /* aligned for doubles, not for vectors; 68 bytes after the end must stay as they are */
    return a;
}

static tl_array filled(int64_t rows, int64_t columns) {
    tl_array a = array(TL_F32, rows, columns);
    float *x = (float *)(void *)a.data;
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] = (float)((i * 7919) % 10007) * 0.001f - 5.0f;
    return a;
}

static void check_end(const tl_array *a) {
    const char *end = a->data + a->size[0] * a->size[1] * tl_dtype_bytes(a->dtype);
    for (int i = 0; i < 60; i++)
        assert_int_equal(end[i], 0x5A);
}

static void array_free(tl_array *a) { free(a->data - 24); }

/* Rows [first, first + count). */
static tl_array part(const tl_array *a, int64_t first, int64_t count) {
    tl_array p = *a;
    if (a->size[0] == ROWS) {
        p.data += first * a->stride[0] * tl_dtype_bytes(a->dtype);
        p.size[0] = count;
    }
    return p;
}

static void whole_is_parts(tl_kernel *kernel, int n_in, const tl_array *in, const void *attr, tl_dtype dtype) {
    tl_array y = array(dtype, ROWS, COLUMNS), z = array(dtype, ROWS, COLUMNS);
    tl_kcall call = {.n_in = n_in, .n_out = 1, .attr = attr};
    memcpy(call.in, in, (size_t)n_in * sizeof *in);
    call.out[0] = y;
    kernel(&call);
    for (int64_t at = 0; at < ROWS; at += 1000) {
        int64_t count = ROWS - at < 1000 ? ROWS - at : 1000;
        for (int i = 0; i < n_in; i++)
            call.in[i] = part(&in[i], at, count);
        call.out[0] = part(&z, at, count);
        kernel(&call);
    }
    assert_memory_equal(y.data, z.data, (size_t)(ROWS * COLUMNS * tl_dtype_bytes(dtype)));
    check_end(&y);
    array_free(&y);
    array_free(&z);
}

static void test_rows_and_elements(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++) {
        const tl_kernels *k = tl_kernels_for_cpu(names[t], NULL);
        if (!k)
            continue;
        tl_array x = filled(ROWS, COLUMNS), row = filled(1, COLUMNS);
        tl_array two[] = {x, x}, norm[] = {x, row, row};
        norm[1].ndim = norm[2].ndim = 1;
        norm[1].size[0] = norm[2].size[0] = COLUMNS;
        norm[1].stride[0] = norm[2].stride[0] = 1;
        tl_softmax_attr softmax = {.scale = 0.7};
        tl_norm_attr epsilon = {1e-5, 0};
        whole_is_parts(k->add, 2, two, NULL, TL_F32);
        whole_is_parts(k->exp, 1, &x, NULL, TL_F32);
        whole_is_parts(k->gelu_tanh_backward, 2, two, NULL, TL_F32);
        whole_is_parts(k->copy, 1, &x, NULL, TL_F32);
        whole_is_parts(k->copy, 1, &x, NULL, TL_F64);
        whole_is_parts(k->softmax, 1, &x, &softmax, TL_F32);
        whole_is_parts(k->layer_norm, 3, norm, &epsilon, TL_F32);
        whole_is_parts(k->rms_norm, 2, norm, &epsilon, TL_F32);
        array_free(&x);
        array_free(&row);
    }
}

static void copy_is_elements(const tl_kernels *k, tl_array from, int64_t rows, int64_t columns) {
    tl_array y = array(from.dtype, rows, columns);
    tl_kcall call = {.n_in = 1, .n_out = 1, .in = {from}, .out = {y}};
    k->copy(&call);
    const uint32_t *x = (const uint32_t *)(const void *)from.data, *found = (const uint32_t *)(const void *)y.data;
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            wrong += found[i * columns + j] != x[i * from.stride[0] + j * from.stride[1]];
    assert_int_equal(wrong, 0);
    check_end(&y);
    array_free(&y);
}

static void test_turned(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{ROWS, COLUMNS}, {2048, 2064}, {17, 16}, {100, 131}, {16, 300}};
    for (int t = 0; t < 3; t++) {
        const tl_kernels *k = tl_kernels_for_cpu(names[t], NULL);
        for (int s = 0; k && s < 5; s++) {
            tl_array x = filled(sizes[s][0], sizes[s][1]), turned = x;
            turned.size[0] = x.size[1], turned.size[1] = x.size[0];
            turned.stride[0] = 1, turned.stride[1] = x.stride[0];
            copy_is_elements(k, turned, x.size[1], x.size[0]);
            array_free(&x);
        }
    }
}

/* [a, b, c, d] → [a, c, b, d] with runs of d: read in the input's order. */
static void test_permuted(void **state) {
    (void)state;
    enum { A = 3, B = 257, C = 83, D = 70 };
    for (int t = 0; t < 3; t++) {
        const tl_kernels *k = tl_kernels_for_cpu(names[t], NULL);
        if (!k)
            continue;
        tl_array x = filled(A * B * C, D), y = array(TL_F32, A * B * C, D);
        tl_kcall call = {.n_in = 1, .n_out = 1};
        call.in[0] = (tl_array){x.data, TL_F32, 4, {A, C, B, D}, {B * C * D, D, C * D, 1}};
        call.out[0] = (tl_array){y.data, TL_F32, 4, {A, C, B, D}, {B * C * D, B * D, D, 1}};
        k->copy(&call);
        int64_t wrong = 0;
        for (int64_t a = 0; a < A; a++)
            for (int64_t c = 0; c < C; c++)
                for (int64_t b = 0; b < B; b++)
                    wrong += memcmp(y.data + 4 * (((a * C + c) * B + b) * D), x.data + 4 * (((a * B + b) * C + c) * D),
                                    4 * D) != 0;
        assert_int_equal(wrong, 0);
        check_end(&y);
        array_free(&x);
        array_free(&y);
    }
}

/* max of a long run: where the largest and a NaN stand must not matter. */
static void test_max_anywhere(void **state) {
    (void)state;
    enum { N = 777 };
    for (int t = 0; t < 3; t++) {
        const tl_kernels *k = tl_kernels_for_cpu(names[t], NULL);
        for (int at = 0; k && at < N; at++) {
            float x[N], y = 0;
            for (int i = 0; i < N; i++)
                x[i] = -(float)(i % 13) - 1;
            tl_kcall call = {.n_in = 1, .n_out = 1};
            call.in[0] = (tl_array){(char *)x, TL_F32, 1, {N}, {1}};
            call.out[0] = (tl_array){(char *)&y, TL_F32, 1, {1}, {1}};
            x[at] = -0.25f;
            k->max(&call);
            assert_true(y == -0.25f);
            x[at] = __builtin_nanf("");
            k->max(&call);
            assert_true(y != y);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_and_elements), cmocka_unit_test(test_turned),
                                       cmocka_unit_test(test_permuted), cmocka_unit_test(test_max_anywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
