#include "kernel_arrays.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *const table_names[3] = {"portable", "avx2", "avx512"};

int64_t count_of(int ndim, const int64_t *size) {
    int64_t n = 1;
    for (int d = 0; d < ndim; d++)
        n *= size[d];
    return n;
}

box box_make(tl_dtype dtype, int ndim, const int64_t *size, int layout) {
    box b = {.array = {.dtype = dtype, .ndim = ndim}};
    int bytes = tl_dtype_bytes(dtype);
    int64_t step = layout == LAYOUT_GAPS ? 2 : 1, offset = 0;
    for (int i = 0; i < ndim; i++) {
        int d = layout == LAYOUT_TURNED ? i : ndim - 1 - i;
        b.array.size[d] = size[d];
        b.array.stride[d] = step;
        step = step * size[d] + (layout == LAYOUT_GAPS ? 3 : 0);
        if (layout == LAYOUT_FLIPPED && size[d] > 0) {
            offset += (size[d] - 1) * b.array.stride[d];
            b.array.stride[d] = -b.array.stride[d];
        }
    }
    b.bytes = step * bytes + 64;
    b.memory = malloc((size_t)b.bytes);
    assert_non_null(b.memory);
    memset(b.memory, 0x5A, (size_t)b.bytes);
    b.array.data = b.memory + offset * bytes;
    return b;
}

box box_broadcast(tl_dtype dtype, int ndim, const int64_t *size, int axis) {
    int64_t small[TL_MAX_NDIM];
    memcpy(small, size, (size_t)ndim * sizeof *size);
    small[axis] = 1;
    box b = box_make(dtype, ndim, small, LAYOUT_PLAIN);
    b.array.size[axis] = size[axis];
    b.array.stride[axis] = 0;
    return b;
}

void box_free(box *b) {
    free(b->memory);
    b->memory = NULL;
}

static char *place(const box *b, int64_t flat) {
    int64_t offset = 0;
    for (int d = b->array.ndim - 1; d >= 0; d--) {
        offset += flat % b->array.size[d] * b->array.stride[d];
        flat /= b->array.size[d];
    }
    return b->array.data + offset * tl_dtype_bytes(b->array.dtype);
}

void box_put(box *b, int64_t flat, double v) {
    char *p = place(b, flat);
    switch (b->array.dtype) {
    case TL_F64:
        *(double *)p = v;
        break;
    case TL_F32:
        *(float *)p = (float)v;
        break;
    case TL_BF16:
        *(uint16_t *)p = tl_f32_to_bf16((float)v);
        break;
    case TL_F16:
        *(uint16_t *)p = tl_f32_to_f16((float)v);
        break;
    case TL_I64:
        *(int64_t *)p = (int64_t)v;
        break;
    case TL_I32:
        *(int32_t *)p = (int32_t)v;
        break;
    case TL_F8E4M3:
        *(uint8_t *)p = tl_f32_to_f8e4m3((float)v, false);
        break;
    case TL_F8E5M2:
        *(uint8_t *)p = tl_f32_to_f8e5m2((float)v, false);
        break;
    case TL_I16:
        *(int16_t *)p = (int16_t)v;
        break;
    case TL_U16:
        *(uint16_t *)p = (uint16_t)v;
        break;
    case TL_I8:
        *(int8_t *)p = (int8_t)v;
        break;
    default:
        *(uint8_t *)p = (uint8_t)v;
        break;
    }
}

double box_get(const box *b, int64_t flat) {
    const char *p = place(b, flat);
    switch (b->array.dtype) {
    case TL_F64:
        return *(const double *)p;
    case TL_F32:
        return *(const float *)p;
    case TL_BF16:
        return tl_bf16_to_f32(*(const uint16_t *)p);
    case TL_F16:
        return tl_f16_to_f32(*(const uint16_t *)p);
    case TL_F8E4M3:
        return tl_f8e4m3_to_f32(*(const uint8_t *)p);
    case TL_F8E5M2:
        return tl_f8e5m2_to_f32(*(const uint8_t *)p);
    default:
        return (double)box_get_int(b, flat);
    }
}

int64_t box_get_int(const box *b, int64_t flat) {
    const char *p = place(b, flat);
    switch (b->array.dtype) {
    case TL_I64:
        return *(const int64_t *)p;
    case TL_I32:
        return *(const int32_t *)p;
    case TL_I16:
        return *(const int16_t *)p;
    case TL_U16:
        return *(const uint16_t *)p;
    case TL_I8:
        return *(const int8_t *)p;
    default:
        return *(const uint8_t *)p;
    }
}

void box_random(box *b, uint32_t seed, double low, double high) {
    int64_t n = count_of(b->array.ndim, b->array.size);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        box_put(b, i, low + (high - low) * ((double)(seed >> 8) / (1 << 24)));
    }
}

void box_fill(box *b, double value) {
    int64_t n = count_of(b->array.ndim, b->array.size);
    for (int64_t i = 0; i < n; i++)
        box_put(b, i, value);
}

double unit_of(tl_dtype dtype) {
    switch (dtype) {
    case TL_F64:
        return 0x1p-53;
    case TL_F32:
        return 0x1p-24;
    case TL_F16:
        return 0x1p-11;
    case TL_F8E4M3:
        return 0x1p-4;
    case TL_F8E5M2:
        return 0x1p-3;
    default:
        return 0x1p-8;
    }
}

double rounded(tl_dtype dtype, double v) {
    switch (dtype) {
    case TL_F64:
        return v;
    case TL_F32:
        return (float)v;
    case TL_F16:
        return tl_f16_to_f32(tl_f32_to_f16((float)v));
    case TL_F8E4M3:
        return tl_f8e4m3_to_f32(tl_f32_to_f8e4m3((float)v, false));
    case TL_F8E5M2:
        return tl_f8e5m2_to_f32(tl_f32_to_f8e5m2((float)v, false));
    default:
        return tl_bf16_to_f32(tl_f32_to_bf16((float)v));
    }
}

typedef struct block {
    tl_engine *engine;
    void *scratch;
} block;
static block blocks[32];

tl_engine *engine_make(const tl_kernels *kernels, int threads) {
    for (size_t i = 0; i < 32; i++)
        if (!blocks[i].engine) {
            tl_error error = {0};
            assert_int_equal(posix_memalign(&blocks[i].scratch, 64, (size_t)threads << 20), 0);
            if (kernels->engine_open(NULL, threads, blocks[i].scratch, 1 << 20, &blocks[i].engine, &error) != TL_OK)
                fail_msg("%s", error.message);
            return blocks[i].engine;
        }
    fail();
    return NULL;
}

void engine_drop(const tl_kernels *kernels, tl_engine *engine) {
    kernels->engine_close(engine);
    for (size_t i = 0; i < 32; i++)
        if (blocks[i].engine == engine) {
            free(blocks[i].scratch);
            blocks[i] = (block){NULL, NULL};
            return;
        }
}

int64_t run(tl_kernel *kernel, tl_engine *engine, box *const in[], int n_in, box *const out[], int n_out,
            const void *attr, int64_t work_bytes) {
    tl_kcall call = {.engine = engine, .n_in = n_in, .n_out = n_out, .attr = attr, .work_bytes = work_bytes};
    for (int i = 0; i < n_in; i++)
        call.in[i] = in[i]->array;
    for (int i = 0; i < n_out; i++)
        if (out[i])
            call.out[i] = out[i]->array;
    call.work = work_bytes ? malloc((size_t)work_bytes) : NULL;
    kernel(&call);
    free(call.work);
    return call.fault;
}
