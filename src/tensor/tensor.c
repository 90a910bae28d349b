/* Tensor handles: creation, accessors, reading values out. */
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

enum { SLAB = 64 };

static tl_tensor *handle_new(tl_ctx *ctx) {
    if (!ctx->free_tensors) {
        int64_t capacity = ctx->block_capacity;
        if (!tl_host_grow(ctx, &ctx->blocks, sizeof *ctx->blocks, ctx->block_count + 1, &capacity))
            return NULL;
        ctx->block_capacity = (int)capacity;
        tl_tensor *slab = tl_host_alloc(ctx, SLAB * sizeof *slab);
        if (!slab)
            return NULL;
        ctx->blocks[ctx->block_count++] = slab;
        for (int i = SLAB - 1; i >= 0; i--) {
            slab[i].next_free = ctx->free_tensors;
            ctx->free_tensors = &slab[i];
        }
    }
    tl_tensor *t = ctx->free_tensors;
    ctx->free_tensors = t->next_free;
    t->ctx = ctx;
    t->grad = NULL;
    t->next_free = NULL;
    t->generation = 0;
    t->node = t->node_output = 0;
    t->requires_grad = false;
    t->refs = 1;
    t->scope_index = -1;
    return t;
}

static bool scope_push(tl_ctx *ctx, tl_tensor *t) {
    if (!tl_host_grow(ctx, &ctx->scope, sizeof *ctx->scope, ctx->scope_count + 1, &ctx->scope_capacity))
        return false;
    t->scope_index = ctx->scope_count;
    ctx->scope[ctx->scope_count++] = t;
    return true;
}

tl_tensor *tl_tensor_on(tl_ctx *ctx, tl_storage *storage, tl_dtype dtype, const tl_shape *shape, const int64_t *stride,
                        int64_t offset) {
    tl_tensor *t = handle_new(ctx);
    if (!t)
        return NULL;
    t->storage = storage;
    t->dtype = dtype;
    t->shape.ndim = shape->ndim;
    for (int i = 0; i < shape->ndim; i++) {
        t->shape.dim[i] = shape->dim[i];
        t->stride[i] = stride[i];
    }
    t->offset = offset;
    if (!scope_push(ctx, t)) {
        t->next_free = ctx->free_tensors;
        ctx->free_tensors = t;
        return NULL;
    }
    storage->refs++;
    return t;
}

void tl_tensor_ref(tl_tensor *t) { t->refs++; }

void tl_tensor_unref(tl_tensor *t) {
    if (!t || --t->refs > 0)
        return;
    tl_ctx *ctx = t->ctx;
    if (t->grad) {
        tl_tensor *grad = t->grad;
        t->grad = NULL;
        tl_tensor_unref(grad);
    }
    tl_storage_unref(t->storage);
    t->storage = NULL;
    t->next_free = ctx->free_tensors;
    ctx->free_tensors = t;
}

tl_tensor *tl_empty(tl_ctx *ctx, tl_dtype dtype, tl_shape shape, tl_category category) {
    int64_t count = 0, bytes = 0;
    char text[160];
    if (ctx->error.status != TL_OK)
        return NULL;
    if ((unsigned)dtype >= TL_DTYPE_COUNT) {
        tl_ctx_fail(ctx, TL_ERR_DTYPE, "dtype %d is not one of " TL_DTYPE_NAMES, (int)dtype);
        return NULL;
    }
    if (shape.ndim < 0 || shape.ndim > TL_MAX_NDIM) {
        tl_ctx_fail(ctx, TL_ERR_SHAPE, "%d axes; 0 to %d would work", shape.ndim, TL_MAX_NDIM);
        return NULL;
    }
    for (int i = 0; i < shape.ndim; i++) {
        if (shape.dim[i].size < 0) {
            tl_ctx_fail(ctx, TL_ERR_SHAPE, "size %lld of axis %d in %s is negative", (long long)shape.dim[i].size, i,
                        tl_shape_text(&shape, text, sizeof text));
            return NULL;
        }
        shape.dim[i] = tl_dim_fixed(ctx, shape.dim[i]);
    }
    if (!tl_shape_count(&shape, &count) || !tl_mul_i64(count, tl_dtype_bytes(dtype), &bytes)) {
        tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "a tensor %s%s would need more than 2^63 bytes", tl_dtype_name(dtype),
                    tl_shape_text(&shape, text, sizeof text));
        return NULL;
    }
    tl_storage *storage = tl_storage_new(ctx, bytes, tl_shape_formula(ctx, &shape, tl_dtype_bytes(dtype)), category);
    if (!storage)
        return NULL;
    int64_t stride[TL_MAX_NDIM];
    tl_shape_contiguous(&shape, stride);
    tl_tensor *t = tl_tensor_on(ctx, storage, dtype, &shape, stride, 0);
    tl_storage_unref(storage);
    return t;
}

tl_tensor *tl_from_data(tl_ctx *ctx, tl_dtype dtype, tl_shape shape, tl_category category, const void *data,
                        int64_t count) {
    tl_tensor *t = tl_empty(ctx, dtype, shape, category);
    if (!t)
        return NULL;
    if (count != tl_tensor_count(t)) {
        char text[160];
        tl_ctx_fail(ctx, TL_ERR_SHAPE, "%lld values for a tensor %s of %lld", (long long)count,
                    tl_shape_text(&shape, text, sizeof text), (long long)tl_tensor_count(t));
        return NULL;
    }
    if (t->storage->data && count > 0 && !data) {
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%lld values were promised, and the pointer to them is NULL",
                    (long long)count);
        return NULL;
    }
    if (t->storage->data && count > 0)
        memcpy(t->storage->data, data, (size_t)t->storage->bytes);
    return t;
}

void tl_free(tl_tensor *t) {
    if (t)
        tl_tensor_unref(t);
}

tl_tensor *tl_keep(tl_tensor *t) {
    if (!t)
        return NULL;
    if (t->scope_index >= 0) {
        t->ctx->scope[t->scope_index] = NULL;
        t->scope_index = -1;
    } else
        t->refs++; /* kept already, or borrowed: the caller gets a hold of its own */
    return t;
}

tl_tensor *tl_scope_take(tl_tensor *t) {
    if (!t || t->scope_index >= 0 || scope_push(t->ctx, t))
        return t;
    tl_tensor_unref(t);
    return NULL;
}

void tl_release(tl_tensor *t) {
    if (!t || t->scope_index < 0)
        return;
    t->ctx->scope[t->scope_index] = NULL;
    t->scope_index = -1;
    tl_tensor_unref(t);
}

void tl_scope_begin(tl_ctx *ctx) {
    int64_t capacity = ctx->mark_capacity;
    if (ctx->lost_scopes || !tl_host_grow(ctx, &ctx->marks, sizeof *ctx->marks, ctx->mark_count + 1, &capacity)) {
        ctx->lost_scopes++; /* so that its end does not end the outer one */
        return;
    }
    ctx->mark_capacity = (int)capacity;
    ctx->marks[ctx->mark_count++] = ctx->scope_count;
}

void tl_scope_end(tl_ctx *ctx) {
    if (ctx->lost_scopes) {
        ctx->lost_scopes--;
        return;
    }
    if (ctx->mark_count == 0)
        return;
    int64_t mark = ctx->marks[--ctx->mark_count];
    while (ctx->scope_count > mark) {
        tl_tensor *t = ctx->scope[--ctx->scope_count];
        if (t) {
            t->scope_index = -1;
            tl_tensor_unref(t);
        }
    }
}

void tl_scope_end_into(tl_ctx *ctx, tl_tensor **x, tl_tensor *carried) {
    if (ctx->lost_scopes) { /* everything lives in the outer scope already */
        tl_scope_end(ctx);
        *x = carried;
        return;
    }
    int64_t mark = ctx->mark_count ? ctx->marks[ctx->mark_count - 1] : 0;
    bool inner = carried && carried->scope_index >= mark;
    if (inner)
        tl_keep(carried);
    tl_scope_end(ctx);
    if (*x && *x != carried)
        tl_release(*x);
    if (inner && !scope_push(ctx, carried)) {
        tl_tensor_unref(carried);
        carried = NULL;
    }
    *x = carried;
}

/* Accessors take NULL, so that a chain that failed may be looked at before its error is. */
tl_dtype tl_tensor_dtype(const tl_tensor *t) { return t ? t->dtype : TL_F32; }

int tl_tensor_ndim(const tl_tensor *t) { return t ? t->shape.ndim : -1; }

int tl_axis(tl_ctx *ctx, const tl_tensor *t, int axis) {
    int n = t->shape.ndim;
    if (axis < -n || axis >= n) {
        char text[200];
        tl_ctx_fail(ctx, TL_ERR_SHAPE, "axis %d of %s; %d to %d would work", axis, tl_tensor_text(t, text, sizeof text),
                    -n, n - 1);
        return -1;
    }
    return axis < 0 ? axis + n : axis;
}

int64_t tl_tensor_size(const tl_tensor *t, int axis) {
    int i = t ? tl_axis(t->ctx, t, axis) : -1;
    return i < 0 ? -1 : t->shape.dim[i].size;
}

int64_t tl_tensor_stride(const tl_tensor *t, int axis) {
    int i = t ? tl_axis(t->ctx, t, axis) : -1;
    return i < 0 ? 0 : t->stride[i];
}

int64_t tl_tensor_offset(const tl_tensor *t) { return t ? t->offset : 0; }

int64_t tl_tensor_count(const tl_tensor *t) {
    int64_t count = 0;
    if (t)
        tl_shape_count(&t->shape, &count);
    return count;
}

const tl_shape *tl_tensor_shape(const tl_tensor *t) {
    static const tl_shape none = {.ndim = -1};
    return t ? &t->shape : &none;
}

bool tl_tensor_is_contiguous(const tl_tensor *t) {
    int64_t step = 1;
    if (!t)
        return false;
    for (int i = 0; i < t->shape.ndim; i++)
        if (t->shape.dim[i].size == 0)
            return true;
    for (int i = t->shape.ndim - 1; i >= 0; i--) {
        if (t->shape.dim[i].size == 1)
            continue;
        if (t->stride[i] != step)
            return false;
        step *= t->shape.dim[i].size;
    }
    return true;
}

bool tl_tensor_overlaps_itself(const tl_tensor *t) {
    /* Sorted by stride, each axis must step over everything the smaller ones reach. Sufficient for all views made here. */
    int order[TL_MAX_NDIM], n = 0;
    for (int i = 0; i < t->shape.ndim; i++) {
        if (t->shape.dim[i].size == 0)
            return false;
        if (t->shape.dim[i].size > 1)
            order[n++] = i;
    }
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0; j--) {
            int64_t a = t->stride[order[j - 1]], b = t->stride[order[j]];
            if ((a < 0 ? -a : a) > (b < 0 ? -b : b)) {
                int swap = order[j];
                order[j] = order[j - 1];
                order[j - 1] = swap;
            }
        }
    int64_t reach = 0;
    for (int i = 0; i < n; i++) {
        int64_t s = t->stride[order[i]];
        s = s < 0 ? -s : s;
        if (s <= reach)
            return true;
        reach += s * (t->shape.dim[order[i]].size - 1);
    }
    return false;
}

bool tl_tensor_shares_storage(const tl_tensor *a, const tl_tensor *b) { return a && b && a->storage == b->storage; }

bool tl_tensor_is_exclusive(const tl_tensor *t, int64_t own) {
    return t->refs <= own && t->storage->refs == 1 && t->storage->saved == 0;
}

uint32_t tl_tensor_version(const tl_tensor *t) { return t ? t->storage->version : 0; }

tl_category tl_tensor_category(const tl_tensor *t) { return t ? t->storage->category : TL_WORK; }

int64_t tl_tensor_storage_bytes(const tl_tensor *t) { return t ? t->storage->bytes : 0; }

tl_ctx *tl_tensor_ctx(const tl_tensor *t) { return t ? t->ctx : NULL; }

void *tl_tensor_data(const tl_tensor *t) {
    return t && t->storage->data ? t->storage->data + t->offset * tl_dtype_bytes(t->dtype) : NULL;
}

const void *tl_tensor_storage_data(const tl_tensor *t) { return t ? t->storage->data : NULL; }

tl_status tl_tensor_read(const tl_tensor *t, void *out, size_t bytes) {
    if (!t)
        return TL_ERR_ARGUMENT;
    tl_ctx *ctx = t->ctx;
    char text[200];
    size_t element = (size_t)tl_dtype_bytes(t->dtype);
    int64_t count = tl_tensor_count(t);
    if (!ctx->kernels)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "the values of %s were asked for, but the device meta holds none",
                           tl_tensor_text(t, text, sizeof text));
    if (bytes != (size_t)count * element)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "reading %s takes %lld bytes, not %zu",
                           tl_tensor_text(t, text, sizeof text), (long long)count * (long long)element, bytes);
    int64_t index[TL_MAX_NDIM] = {0};
    char *to = out;
    const char *from = tl_tensor_data(t);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        for (int d = 0; d < t->shape.ndim; d++)
            at += index[d] * t->stride[d];
        memcpy(to + (size_t)i * element, from + at * (int64_t)element, element);
        for (int d = t->shape.ndim - 1; d >= 0 && ++index[d] == t->shape.dim[d].size; d--)
            index[d] = 0;
    }
    return TL_OK;
}

double tl_element_value(tl_dtype dtype, const void *from) {
    union {
        double f64;
        float f32;
        uint16_t u16;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
    } v = {0};
    memcpy(&v, from, (size_t)tl_dtype_bytes(dtype));
    switch (dtype) {
    case TL_F64:
        return v.f64;
    case TL_F32:
        return v.f32;
    case TL_BF16:
        return tl_bf16_to_f32(v.u16);
    case TL_F16:
        return tl_f16_to_f32(v.u16);
    case TL_I64:
        return (double)v.i64;
    case TL_I32:
        return v.i32;
    case TL_F8E4M3:
        return tl_f8e4m3_to_f32(v.u8);
    case TL_F8E5M2:
        return tl_f8e5m2_to_f32(v.u8);
    case TL_I16:
        return v.i16;
    case TL_U16:
        return v.u16;
    case TL_I8:
        return v.i8;
    default:
        return v.u8;
    }
}

tl_status tl_item(const tl_tensor *t, double *value) {
    if (!t)
        return TL_ERR_ARGUMENT;
    char bytes[8] = {0}, text[200];
    if (tl_tensor_count(t) != 1)
        return tl_ctx_fail(t->ctx, TL_ERR_SHAPE, "one value was asked of %s, which has %lld",
                           tl_tensor_text(t, text, sizeof text), (long long)tl_tensor_count(t));
    tl_status status = tl_tensor_read(t, bytes, (size_t)tl_dtype_bytes(t->dtype));
    if (status == TL_OK)
        *value = tl_element_value(t->dtype, bytes);
    return status;
}

char *tl_tensor_text(const tl_tensor *t, char *buffer, size_t size) {
    char shape[160];
    if (!t) {
        snprintf(buffer, size, "no tensor");
        return buffer;
    }
    tl_shape_text(&t->shape, shape, sizeof shape);
    int n = snprintf(buffer, size, "%s%s", tl_dtype_name(t->dtype), shape);
    size_t used = n > 0 ? (size_t)n : 0;
    if (tl_tensor_is_contiguous(t) || used >= size)
        return buffer;
    n = snprintf(buffer + used, size - used, " strides [");
    used += n > 0 ? (size_t)n : 0;
    for (int i = 0; i < t->shape.ndim && used < size; i++) {
        n = snprintf(buffer + used, size - used, "%s%lld", i ? ", " : "", (long long)t->stride[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < size)
        snprintf(buffer + used, size - used, "]");
    return buffer;
}

void tl_tensor_require_grad(tl_tensor *t, bool on) {
    if (!t)
        return;
    if (on && !tl_dtype_is_float(t->dtype)) {
        tl_ctx_fail(t->ctx, TL_ERR_DTYPE, "a %s tensor cannot have a gradient; floating formats can",
                    tl_dtype_name(t->dtype));
        return;
    }
    t->requires_grad = on;
}

tl_tensor *tl_tensor_grad(const tl_tensor *t) { return t ? t->grad : NULL; }

void tl_tensor_clear_grad(tl_tensor *t) {
    if (t && t->grad) {
        tl_tensor *grad = t->grad;
        t->grad = NULL;
        tl_tensor_unref(grad);
    }
}

bool tl_tensor_needs_grad(const tl_tensor *t) {
    if (!t)
        return false;
    return t->requires_grad || (t->ctx->tape_hooks && t->ctx->tape_hooks->is_valid(t->ctx, t));
}
