/* What was computed beside what the file says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/conformance.h"

static double real_at(tl_dtype dtype, const char *from) {
    double wide;
    float narrow;
    uint16_t half;
    switch (dtype) {
    case TL_F64:
        memcpy(&wide, from, 8);
        return wide;
    case TL_F32:
        memcpy(&narrow, from, 4);
        return (double)narrow;
    case TL_BF16:
        memcpy(&half, from, 2);
        return (double)tl_bf16_to_f32(half);
    default:
        memcpy(&half, from, 2);
        return (double)tl_f16_to_f32(half);
    }
}

/* 16 bits of format hold fewer digits than ONNX's tolerance asks of bfloat16: one unit of its last place. */
static double tolerance_of(tl_dtype dtype, double rtol) {
    return dtype == TL_BF16 && rtol > 0 && rtol < 0x1p-7 ? 0x1p-7 : rtol;
}

static bool close_enough(const conformance_case *c, tl_dtype dtype, const char *found, const char *expected) {
    int bytes = tl_dtype_bytes(dtype);
    if (!memcmp(found, expected, (size_t)bytes))
        return true;
    if (!tl_dtype_is_float(dtype) || bytes == 1)
        return false;
    double a = real_at(dtype, found), b = real_at(dtype, expected);
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= c->atol + tolerance_of(dtype, c->rtol) * fabs(b);
}

/* The element as text: a number, or for a format of one byte its pattern. */
static void element_text(tl_dtype dtype, const char *from, char *text, size_t size) {
    int64_t whole = 0;
    int bytes = tl_dtype_bytes(dtype);
    if (tl_dtype_is_float(dtype) && bytes > 1) {
        snprintf(text, size, "%.9g", real_at(dtype, from));
        return;
    }
    memcpy(&whole, from, (size_t)bytes);
    if (bytes < 8 && dtype != TL_BOOL && dtype != TL_U8) {
        int shift = 64 - 8 * bytes;
        whole = (int64_t)((uint64_t)whole << shift) >> shift;
    }
    snprintf(text, size, "%lld", (long long)whole);
}

static bool compare_one(const conformance_case *c, int j, char *text, size_t size) {
    const conformance_value *v = &c->out[j];
    const tl_tensor *y = c->y[j];
    char shape[200];
    bool same = tl_tensor_dtype(y) == v->dtype && tl_tensor_ndim(y) == v->array.ndim;
    for (int d = 0; same && d < v->array.ndim; d++)
        same = tl_tensor_size(y, d) == v->array.size[d];
    if (!same) {
        int used = snprintf(text, size, "output %d is %s, expected %s[", j, tl_tensor_text(y, shape, sizeof shape),
                            tl_dtype_name(v->dtype));
        for (int d = 0; d < v->array.ndim && used > 0 && (size_t)used < size; d++)
            used += snprintf(text + used, size - (size_t)used, "%s%lld", d ? ", " : "", (long long)v->array.size[d]);
        if (used > 0 && (size_t)used < size)
            snprintf(text + used, size - (size_t)used, "]");
        return false;
    }
    size_t element = (size_t)v->array.bytes, bytes = (size_t)v->array.count * element;
    char *found = tl_ctx_is_meta(c->ctx) ? NULL : malloc(bytes + 1);
    if (!found)
        return true;
    if (tl_tensor_read(y, found, bytes) != TL_OK) {
        snprintf(text, size, "output %d cannot be read: %s", j, tl_ctx_error(c->ctx)->message);
        same = false;
    }
    for (int64_t i = 0; same && i < v->array.count; i++) {
        const char *got = found + (size_t)i * element, *want = v->array.data + (size_t)i * element;
        if (close_enough(c, v->dtype, got, want))
            continue;
        char a[40], b[40];
        element_text(v->dtype, got, a, sizeof a);
        element_text(v->dtype, want, b, sizeof b);
        snprintf(text, size, "element %lld of output %d is %s, expected %s", (long long)i, j, a, b);
        same = false;
    }
    free(found);
    return same;
}

void conformance_compare(const conformance_case *c, char *text, size_t size) {
    text[0] = 0;
    if (tl_ctx_status(c->ctx) != TL_OK) {
        snprintf(text, size, "%s", tl_ctx_error(c->ctx)->message);
        return;
    }
    for (int j = 0; j < c->n_out; j++) {
        if (!c->out[j].given)
            continue;
        if (!c->y[j]) {
            snprintf(text, size, "output %d was not computed", j);
            return;
        }
        if (!compare_one(c, j, text, size))
            return;
    }
}
