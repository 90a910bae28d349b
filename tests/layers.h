/* layers.h: what the tests of layers share: contexts on every kernel table, tensors from doubles, comparisons. */
#ifndef TESTS_LAYERS_H
#define TESTS_LAYERS_H

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
#include "tally/account.h"
#include "tally/grad.h"
#include "tally/ops.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))

static inline tl_ctx *new_ctx(const tl_kernels *kernels, bool formulas) {
    tl_error error = {0};
    tl_ctx_options options = {.kernels = kernels, .threads = 2, .formulas = formulas, .seed_dropout = 11};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    if (!ctx)
        fail_msg("no context: %s", error.message);
    return ctx;
}

/* Every table this machine has; the last is NULL. */
static inline const tl_kernels *const *all_kernels(void) {
    static const tl_kernels *table[4];
    static const char *const name[] = {"portable", "avx2", "avx512"};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        tl_error error = {0};
        const tl_kernels *kernels = tl_kernels_for_cpu(name[i], &error);
        if (kernels)
            table[n++] = kernels;
    }
    table[n] = NULL;
    return table;
}

/* A tensor of the sizes after `ndim`, its values converted. */
static inline tl_tensor *tensor_of(tl_ctx *ctx, tl_dtype dtype, const double *values, int ndim, ...) {
    tl_dim dim[TL_MAX_NDIM];
    int64_t count = 1;
    va_list args;
    va_start(args, ndim);
    for (int i = 0; i < ndim; i++) {
        dim[i] = tl_dim_of(va_arg(args, int));
        count *= dim[i].size;
    }
    va_end(args);
    tl_shape shape = tl_shape_of(ctx, ndim, dim);
    tl_tensor *wide = tl_from_data(ctx, TL_F64, shape, TL_DATA, values, count);
    return tl_cast(wide, dtype);
}

static inline tl_tensor *leaf_of(tl_tensor *t) {
    tl_tensor_require_grad(t, true);
    return t;
}

static inline void check_ok(tl_ctx *ctx) {
    if (tl_ctx_status(ctx) != TL_OK)
        fail_msg("%s", tl_ctx_error(ctx)->message);
}

static inline double value_at(const tl_tensor *t, const char *bytes, int64_t i) {
    double wide;
    float narrow;
    if (tl_tensor_dtype(t) == TL_F64) {
        memcpy(&wide, bytes + 8 * i, 8);
        return wide;
    }
    memcpy(&narrow, bytes + 4 * i, 4);
    return (double)narrow;
}

/* |found − expected| ≤ tolerance·(1 + |expected|) for each element; equal infinities pass, NaN never does. */
static inline void check_close(const char *what, tl_tensor *t, const double *expected, int64_t count,
                               double tolerance) {
    if (!t)
        fail_msg("%s: no tensor", what);
    tl_tensor *whole = tl_tensor_dtype(t) == TL_F64 || tl_tensor_dtype(t) == TL_F32 ? t : tl_cast(t, TL_F32);
    check_ok(tl_tensor_ctx(t));
    assert_int_equal(tl_tensor_count(whole), count);
    size_t bytes = (size_t)count * (size_t)tl_dtype_bytes(tl_tensor_dtype(whole));
    char *buffer = malloc(bytes + 1);
    assert_non_null(buffer);
    assert_int_equal(tl_tensor_read(whole, buffer, bytes), TL_OK);
    for (int64_t i = 0; i < count; i++) {
        double found = value_at(whole, buffer, i);
        if (found != expected[i] && !(fabs(found - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
            fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, found, expected[i]);
    }
    free(buffer);
}

static inline void check_fails(tl_ctx *ctx, tl_status status, const char *part) {
    assert_int_equal(tl_ctx_status(ctx), status);
    if (!strstr(tl_ctx_error(ctx)->message, part))
        fail_msg("\"%s\" does not say \"%s\"", tl_ctx_error(ctx)->message, part);
    tl_ctx_clear_error(ctx);
}

/* Backward of Σ y·g: any upstream gradient, through a loss of one element. */
static inline void backward_with(tl_tensor *y, tl_tensor *g) {
    tl_ctx *ctx = tl_tensor_ctx(y);
    tl_tensor *loss = g ? tl_sum(tl_mul(y, g), NULL, 0, false) : y;
    check_ok(ctx);
    tl_record(ctx, false);
    assert_int_equal(tl_backward(ctx, loss, 1.0), TL_OK);
}

#endif
