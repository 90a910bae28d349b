/* Sample cases of ops as tensors, values and runs. */
#include "op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double uniform(uint64_t *seed) { return (double)tl_sample_below(seed, 1 << 24) / (1 << 24); }

static double draw(uint64_t *seed, tl_fill fill, int64_t limit) {
    double u = uniform(seed), v = uniform(seed);
    switch (fill) {
    case TL_FILL_POSITIVE:
        return 0.1 + 2 * u;
    case TL_FILL_UNIT:
        return u;
    case TL_FILL_INDEX:
        return (double)tl_sample_below(seed, limit);
    case TL_FILL_OFFSETS:
        return (double)tl_sample_below(seed, limit + 1);
    case TL_FILL_ZERO:
        return 0;
    default:
        return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
    }
}

static int order_of(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void make_offsets(double *value, int64_t count, int64_t limit) {
    qsort(value, (size_t)count, sizeof *value, order_of);
    value[0] = 0;
    value[count - 1] = (double)limit;
}

int64_t op_case_count(const op_case *o, int input) {
    int64_t count = 1;
    for (int d = 0; d < o->c.in[input].ndim; d++)
        count *= o->c.in[input].size[d];
    return count;
}

static tl_dtype dtype_of(const op_case *o, int input) {
    return o->c.in[input].fixed_dtype ? o->c.in[input].dtype : o->dtype;
}

bool op_case_is_float(const op_case *o, int input) { return tl_dtype_is_float(dtype_of(o, input)); }

/* A product of no rows counts no FLOPs, but says its sizes. */
static bool has_product(void *user, const tl_op_entry *entry) {
    *(bool *)user |= entry->m + entry->n + entry->k > 0;
    return true;
}

static bool multiplies(const op_case *o) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    bool product = false;
    op_case_inputs(o, ctx, LAYOUT_PLAIN, 0, in);
    tl_status status = op_case_run(o, ctx, in, out);
    if (status != TL_OK && status != TL_ERR_DTYPE) /* a format it does not take is a case of its own */
        printf("%s: %s\n", o->op->name, tl_ctx_error(ctx)->message);
    tl_ledger_each_op(ctx, has_product, &product);
    tl_ctx_free(ctx);
    return product;
}

void op_case_make(op_case *o, const tl_op *op, uint64_t seed, tl_dtype dtype) {
    memset(o, 0, sizeof *o);
    o->op = op;
    o->dtype = dtype;
    op->sample(seed, &o->c);
    for (int i = 0; i < o->c.n_in; i++) {
        int64_t count = op_case_count(o, i);
        o->value[i] = calloc((size_t)count + 1, sizeof(double));
        for (int64_t j = 0; o->value[i] && j < count; j++)
            o->value[i][j] = draw(&seed, o->c.in[i].fill, o->c.in[i].limit);
        if (o->value[i] && o->c.in[i].fill == TL_FILL_OFFSETS)
            make_offsets(o->value[i], count, o->c.in[i].limit);
    }
    o->product = multiplies(o);
}

void op_case_free(op_case *o) {
    for (int i = 0; i < o->c.n_in; i++)
        free(o->value[i]);
}

/* The axis LAYOUT_EXPANDED stretches: the first of more than one element; −1: none. A product keeps its matrices. */
static int stretched(const op_case *o, int input) {
    if (o->c.in[input].fixed_layout)
        return -1;
    for (int d = 0; d < o->c.in[input].ndim - (o->product ? 2 : 0); d++)
        if (o->c.in[input].size[d] > 1)
            return d;
    return -1;
}

void op_case_flatten(op_case *o) {
    for (int i = 0; i < o->c.n_in; i++) {
        int axis = stretched(o, i);
        if (axis < 0)
            continue;
        int64_t inner = 1, count = op_case_count(o, i), size = o->c.in[i].size[axis];
        for (int d = axis + 1; d < o->c.in[i].ndim; d++)
            inner *= o->c.in[i].size[d];
        for (int64_t j = 0; j < count; j++)
            o->value[i][j] = o->value[i][j / (inner * size) * inner * size + j % inner];
    }
}

static void store(tl_dtype dtype, char *to, double v) {
    union {
        double f64;
        float f32;
        uint16_t u16;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
    } x;
    switch (dtype) {
    case TL_F64:
        x.f64 = v;
        break;
    case TL_F32:
        x.f32 = (float)v;
        break;
    case TL_BF16:
        x.u16 = tl_f32_to_bf16((float)v);
        break;
    case TL_F16:
        x.u16 = tl_f32_to_f16((float)v);
        break;
    case TL_I64:
        x.i64 = (int64_t)v;
        break;
    case TL_I32:
        x.i32 = (int32_t)v;
        break;
    case TL_F8E4M3:
        x.u8 = tl_f32_to_f8e4m3((float)v, false);
        break;
    case TL_F8E5M2:
        x.u8 = tl_f32_to_f8e5m2((float)v, false);
        break;
    case TL_I16:
        x.i16 = (int16_t)v;
        break;
    case TL_U16:
        x.u16 = (uint16_t)v;
        break;
    case TL_I8:
        x.i8 = (int8_t)v;
        break;
    default:
        x.u8 = (uint8_t)v;
        break;
    }
    memcpy(to, &x, (size_t)tl_dtype_bytes(dtype));
}

static double load(tl_dtype dtype, const char *from) {
    union {
        double f64;
        float f32;
        uint16_t u16;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
    } x = {0};
    memcpy(&x, from, (size_t)tl_dtype_bytes(dtype));
    switch (dtype) {
    case TL_F64:
        return x.f64;
    case TL_F32:
        return (double)x.f32;
    case TL_BF16:
        return (double)tl_bf16_to_f32(x.u16);
    case TL_F16:
        return (double)tl_f16_to_f32(x.u16);
    case TL_I64:
        return (double)x.i64;
    case TL_I32:
        return (double)x.i32;
    case TL_F8E4M3:
        return (double)tl_f8e4m3_to_f32(x.u8);
    case TL_F8E5M2:
        return (double)tl_f8e5m2_to_f32(x.u8);
    case TL_I16:
        return (double)x.i16;
    case TL_U16:
        return (double)x.u16;
    case TL_I8:
        return (double)x.i8;
    default:
        return (double)x.u8;
    }
}

/* Strides, offset and the size of the storage in elements, made by hand: no view op is trusted here. */
static int64_t lay_out(const op_case *o, int input, const tl_shape *shape, layout how, int64_t stride[],
                       int64_t *offset) {
    int n = shape->ndim, order[TL_MAX_NDIM], axis = how == LAYOUT_EXPANDED ? stretched(o, input) : -1;
    int64_t step = 1;
    for (int i = 0; i < n; i++)
        order[i] = i;
    if (how == LAYOUT_TRANSPOSED && o->product && n >= 2) {
        order[n - 1] = n - 2;
        order[n - 2] = n - 1;
    } else if (how == LAYOUT_TRANSPOSED)
        for (int i = 0; i < n; i++)
            order[i] = n - 1 - i;
    if (how == LAYOUT_SLICED && !o->product)
        step = 2;
    *offset = how == LAYOUT_SLICED ? 1 : 0;
    for (int i = n - 1; i >= 0; i--) {
        stride[order[i]] = step;
        if (how == LAYOUT_SLICED && o->product && i == n - 1)
            step *= 2;
        if (order[i] == axis)
            stride[axis] = 0;
        else
            step *= shape->dim[order[i]].size > 0 ? shape->dim[order[i]].size : 1;
    }
    if (how == LAYOUT_REVERSED)
        for (int i = 0; i < n - (o->product ? 2 : 0); i++)
            if (shape->dim[i].size > 0) {
                *offset += (shape->dim[i].size - 1) * stride[i];
                stride[i] = -stride[i];
            }
    return step + 2;
}

static void write_values(const tl_tensor *t, const double *value) {
    int64_t index[TL_MAX_NDIM] = {0}, count = tl_tensor_count(t);
    char *data = tl_tensor_data(t);
    for (int64_t i = 0; data && i < count; i++) {
        int64_t at = 0;
        for (int d = 0; d < t->shape.ndim; d++)
            at += index[d] * t->stride[d];
        store(t->dtype, data + at * tl_dtype_bytes(t->dtype), value[i]);
        for (int d = t->shape.ndim - 1; d >= 0 && ++index[d] == t->shape.dim[d].size; d--)
            index[d] = 0;
    }
}

static tl_dim dim_for(tl_ctx *ctx, int64_t size) {
    char name[24];
    snprintf(name, sizeof name, "S%lld", (long long)size);
    return tl_ctx_space(ctx) ? tl_dim_symbol(ctx, name, size, "the test") : tl_dim_of(size);
}

void op_case_inputs(const op_case *o, tl_ctx *ctx, layout how, unsigned mask, tl_tensor *in[]) {
    for (int i = 0; i < o->c.n_in; i++) {
        tl_dtype dtype = dtype_of(o, i);
        tl_category category = mask >> i & 1u ? TL_PARAM : TL_WORK;
        layout mine = o->c.in[i].fixed_layout ? LAYOUT_PLAIN : how;
        tl_shape shape = {.ndim = o->c.in[i].ndim};
        for (int d = 0; d < shape.ndim; d++)
            shape.dim[d] = dim_for(ctx, o->c.in[i].size[d]);
        if (mine == LAYOUT_PLAIN)
            in[i] = tl_empty(ctx, dtype, shape, category);
        else {
            int64_t stride[TL_MAX_NDIM], offset;
            tl_shape flat = {.ndim = 1};
            flat.dim[0] = tl_dim_of(lay_out(o, i, &shape, mine, stride, &offset));
            tl_tensor *base = tl_empty(ctx, dtype, flat, category);
            in[i] = base ? tl_tensor_on(ctx, base->storage, dtype, &shape, stride, offset) : NULL;
            tl_release(base);
        }
        if (in[i])
            write_values(in[i], o->value[i]);
        if (mask >> i & 1u)
            tl_tensor_require_grad(in[i], true);
    }
}

tl_status op_case_run(const op_case *o, tl_ctx *ctx, tl_tensor *const in[], tl_tensor *out[]) {
    return tl_run(ctx, o->op, in, o->c.n_in, o->c.attr, out, o->c.n_out, "test:1");
}

double op_case_weight(uint64_t seed, int output, int64_t i) {
    uint64_t one = seed * 31 + (uint64_t)output, each = one * 1000003 + (uint64_t)i;
    if (output > 0 && tl_sample_below(&one, 3) == 0)
        return 0; /* an output that nothing is computed from */
    return (double)(1 + tl_sample_below(&each, 1000)) / 500 - 1.001;
}

tl_tensor *op_case_loss(tl_ctx *ctx, tl_tensor *const out[], int n, uint64_t seed) {
    tl_tensor *loss = NULL;
    for (int j = 0; j < n; j++) {
        if (!out[j] || !tl_dtype_is_float(out[j]->dtype) || op_case_weight(seed, j, 0) == 0)
            continue;
        int64_t count = tl_tensor_count(out[j]);
        tl_tensor *weight = tl_empty(ctx, out[j]->dtype, out[j]->shape, TL_DATA);
        double *value = calloc((size_t)count + 1, sizeof *value);
        for (int64_t i = 0; value && i < count; i++)
            value[i] = op_case_weight(seed, j, i);
        if (weight && value)
            write_values(weight, value);
        free(value);
        tl_tensor *part = tl_sum_(tl_mul_(out[j], weight, "test:2"), NULL, 0, false, "test:3");
        loss = loss ? tl_add_(loss, part, "test:4") : part;
        if (!loss)
            return NULL;
    }
    return loss;
}

double *op_read(const tl_tensor *t) {
    int64_t count = tl_tensor_count(t);
    size_t element = (size_t)tl_dtype_bytes(t->dtype);
    char *bytes = calloc((size_t)count + 1, element);
    double *value = calloc((size_t)count + 1, sizeof *value);
    if (!bytes || !value || tl_tensor_read(t, bytes, (size_t)count * element) != TL_OK)
        abort();
    for (int64_t i = 0; i < count; i++)
        value[i] = load(t->dtype, bytes + (size_t)i * element);
    free(bytes);
    return value;
}

void op_values_read(op_values *v, tl_tensor *const out[], int n) {
    v->n = n;
    for (int j = 0; j < n; j++) {
        v->count[j] = tl_tensor_count(out[j]);
        v->value[j] = op_read(out[j]);
    }
}

void op_values_free(op_values *v) {
    for (int j = 0; j < v->n; j++)
        free(v->value[j]);
    v->n = 0;
}

double op_case_rounded(tl_dtype dtype, double v) {
    char bytes[8];
    if (dtype == TL_BOOL)
        return v > 0;
    if (!tl_dtype_is_float(dtype)) { /* whole, and within every format */
        v = nearbyint(2 * v);
        if (dtype == TL_U8 || dtype == TL_U16)
            v = fabs(v);
        return v > 100 ? 100 : v < -100 ? -100 : v;
    }
    store(dtype, bytes, v);
    return load(dtype, bytes);
}
