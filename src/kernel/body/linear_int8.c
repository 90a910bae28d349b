/* kernel/body/linear_int8.c: activations times weights kept as int8, widened in registers: no copy of the weights in another
 * format is ever made. */
#include "kernel/body/body.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#if defined(__clang__)
#define TL_UNROLL _Pragma("unroll")
#else
#define TL_UNROLL _Pragma("GCC unroll 16")
#endif

#define ROWS 4       /* rows of x that share one widening of the weights */
#define ROW_BLOCK 64 /* rows and outputs of one task */
#define OUTPUT_BLOCK 64

typedef float float_vector __attribute__((vector_size(64), aligned(4), may_alias));
typedef double double_vector __attribute__((vector_size(128), aligned(8), may_alias));

/* 16 weights, exact in every compute type. Written out where there is an instruction for it: compilers make scalar code of
 * the loop, or take the bytes apart one by one. */
static inline __attribute__((always_inline)) void widen_float(const int8_t *q, float_vector *to) {
#if defined(__AVX512F__)
    __m512i whole = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)q));
    _mm512_storeu_ps((float *)to, _mm512_cvtepi32_ps(whole));
#elif defined(__AVX2__)
    for (int half = 0; half < 2; half++) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(q + 8 * half));
        _mm256_storeu_ps((float *)to + 8 * half, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
    }
#else
    float wide[16];
    for (int l = 0; l < 16; l++)
        wide[l] = q[l];
    memcpy(to, wide, sizeof wide);
#endif
}

static inline __attribute__((always_inline)) void widen_double(const int8_t *q, double_vector *to) {
    double wide[16];
    for (int l = 0; l < 16; l++)
        wide[l] = q[l];
    memcpy(to, wide, sizeof wide);
}

typedef struct int8_task {
    tl_walk walk; /* rows of y and x */
    tl_dtype dtype;
    int64_t rows, outputs, columns, blocks;
    int64_t x_stride, q_stride, scale_stride, bias_stride;
    const int8_t *q;
    const float *scale;
    const char *bias; /* NULL: none */
    void *work;       /* NULL, or all rows of x in the compute type */
} int8_task;

#define REAL float
#define N(name) name##_float
#define LOAD TL_K(load_float)
#define STORE TL_K(store_float)
#define SUM tl_lanes_sum_float
#define VECTOR float_vector
#include "kernel/body/linear_int8.h"
#undef REAL
#undef N
#undef LOAD
#undef STORE
#undef SUM
#undef VECTOR
#define REAL double
#define N(name) name##_double
#define LOAD TL_K(load_double)
#define STORE TL_K(store_double)
#define SUM tl_lanes_sum_double
#define VECTOR double_vector
#include "kernel/body/linear_int8.h"

void TL_K(linear_int8)(tl_kcall *call) {
    const tl_array *x = &call->in[0], *q = &call->in[1], *y = &call->out[0];
    const tl_array *both[] = {y, x};
    int8_task t = {.dtype = x->dtype, .outputs = q->size[0], .columns = q->size[1], .work = call->work};
    TL_K(walk_make)(&t.walk, both, 2, x->ndim - 1, false);
    t.rows = t.walk.total;
    t.blocks = tl_blocks_of(t.outputs, OUTPUT_BLOCK);
    t.x_stride = x->stride[x->ndim - 1];
    t.q = (const int8_t *)q->data;
    t.q_stride = q->stride[0];
    t.scale = (const float *)(const void *)call->in[2].data;
    t.scale_stride = call->in[2].stride[0];
    if (call->n_in > 3) {
        t.bias = call->in[3].data;
        t.bias_stride = call->in[3].stride[0];
    }
    if (t.rows == 0 || t.outputs == 0)
        return;
    bool wide = t.dtype == TL_F64;
    if (t.work)
        tl_engine_run(t.rows * t.columns < 2 * TL_TASK_ELEMENTS ? NULL : call->engine, t.rows,
                      wide ? load_double : load_float, &t);
    int64_t tasks = tl_blocks_of(t.rows, ROW_BLOCK) * t.blocks;
    tl_engine_run(t.rows * t.outputs * t.columns < 2 * TL_TASK_ELEMENTS ? NULL : call->engine, tasks,
                  wide ? tile_double : tile_float, &t);
}
