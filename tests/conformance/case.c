/* What handlers ask of a case. */
#include <stdio.h>
#include <string.h>

#include "conformance/conformance.h"

int64_t conformance_int(const conformance_case *c, const char *attribute, int64_t otherwise) {
    const json_t *value = json_object_get(c->attrs, attribute);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

double conformance_real(const conformance_case *c, const char *attribute, double otherwise) {
    const json_t *value = json_object_get(c->attrs, attribute);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

const char *conformance_text(const conformance_case *c, const char *attribute, const char *otherwise) {
    const char *value = json_string_value(json_object_get(c->attrs, attribute));
    return value ? value : otherwise;
}

bool conformance_has(const conformance_case *c, const char *attribute) {
    return json_object_get(c->attrs, attribute) != NULL;
}

static int64_t whole_at(const npy_array *a, int64_t i) {
    int64_t value = 0;
    int spare = 64 - 8 * a->bytes;
    memcpy(&value, a->data + i * a->bytes, (size_t)a->bytes); /* little-endian, as the file is */
    return a->kind == 'i' ? (int64_t)((uint64_t)value << spare) >> spare : value;
}

int conformance_ints(const conformance_case *c, int input, const char *attribute, int64_t value[]) {
    int n = 0;
    if (input >= 0 && input < c->n_in && c->in[input].given) {
        const npy_array *a = &c->in[input].array;
        for (; n < a->count && n < TL_MAX_NDIM; n++)
            value[n] = whole_at(a, n);
        return n;
    }
    const json_t *list = attribute ? json_object_get(c->attrs, attribute) : NULL;
    if (!json_is_array(list))
        return -1;
    for (; n < (int)json_array_size(list) && n < TL_MAX_NDIM; n++)
        value[n] = (int64_t)json_integer_value(json_array_get(list, (size_t)n));
    return n;
}

double conformance_first(const conformance_case *c, int input, double otherwise) {
    if (input >= c->n_in || !c->in[input].given || c->in[input].array.count < 1)
        return otherwise;
    const npy_array *a = &c->in[input].array;
    double wide;
    float narrow;
    uint16_t half;
    switch (c->in[input].dtype) {
    case TL_F64:
        memcpy(&wide, a->data, 8);
        return wide;
    case TL_F32:
        memcpy(&narrow, a->data, 4);
        return (double)narrow;
    case TL_F16:
    case TL_BF16:
        memcpy(&half, a->data, 2);
        return (double)(c->in[input].dtype == TL_F16 ? tl_f16_to_f32(half) : tl_bf16_to_f32(half));
    default:
        return (double)whole_at(a, 0);
    }
}

void conformance_skip(conformance_case *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->skip, sizeof c->skip, format, args);
    va_end(args);
}

/* ONNX's TensorProto.DataType (onnx.proto), by its number; NULL: ours has no such format. */
static const char *const formats[][2] = {
    [1] = {"FLOAT", "f32"},         [2] = {"UINT8", "u8"},       [3] = {"INT8", "i8"},
    [4] = {"UINT16", "u16"},        [5] = {"INT16", "i16"},      [6] = {"INT32", "i32"},
    [7] = {"INT64", "i64"},         [9] = {"BOOL", "bool"},      [10] = {"FLOAT16", "f16"},
    [11] = {"DOUBLE", "f64"},       [16] = {"BFLOAT16", "bf16"}, [17] = {"FLOAT8E4M3FN", "f8e4m3"},
    [19] = {"FLOAT8E5M2", "f8e5m2"}};

bool conformance_dtype(int64_t onnx, tl_dtype *dtype) {
    if (onnx < 0 || onnx >= (int64_t)(sizeof formats / sizeof *formats) || !formats[onnx][1])
        return false;
    for (int t = 0; t < TL_DTYPE_COUNT; t++)
        if (strcmp(tl_dtype_name((tl_dtype)t), formats[onnx][1]) == 0) {
            *dtype = (tl_dtype)t;
            return true;
        }
    return false;
}

bool conformance_dtype_named(const char *name, tl_dtype *dtype) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i][0] && strcmp(formats[i][0], name) == 0)
            return conformance_dtype((int64_t)i, dtype);
    return false;
}

tl_tensor *conformance_constant(conformance_case *c, tl_dtype dtype, double value) {
    tl_shape one = {.ndim = 0};
    tl_tensor *t = tl_empty(c->ctx, dtype, one, TL_DATA);
    return t ? tl_fill(t, value) : NULL;
}
