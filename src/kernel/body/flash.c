/* kernel/body/flash.c: attention by blocks of rows and keys (Dao et al. 2022; Dao 2023). Nothing of rows × keys but one block is
 * ever held. Forward goes over blocks of rows, each of which meets its keys in order; backward over key/value heads (and parts
 * of their keys), each of which meets its rows in order: who runs a task never shows, and no two tasks add into one sum. */
#include "base/convert.h"
#include "kernel/body/body.h"
#include "kernel/body/vector.h"

#if defined(__clang__)
#define TL_UNROLL _Pragma("unroll")
#else
#define TL_UNROLL _Pragma("GCC unroll 16")
#endif

/* As in product_reference.c; but here a multiply-add may be fused: a library's product, which this stands for, does so too. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define ROWS 8
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define VECTOR_BYTES 32
#define ROWS 4
#else
#define VECTOR_BYTES 16
#define ROWS 4
#endif

typedef float flash_float __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef double flash_double __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

#if defined(__AVX512F__)
#define MULTIPLY_ADD_float(sum, left, right)                                                                           \
    sum = (flash_float)_mm512_fmadd_ps(_mm512_set1_ps(left), (__m512)(right), (__m512)(sum))
#define MULTIPLY_ADD_double(sum, left, right)                                                                          \
    sum = (flash_double)_mm512_fmadd_pd(_mm512_set1_pd(left), (__m512d)(right), (__m512d)(sum))
#elif VECTOR_BYTES == 32
#define MULTIPLY_ADD_float(sum, left, right)                                                                           \
    sum = (flash_float)_mm256_fmadd_ps(_mm256_set1_ps(left), (__m256)(right), (__m256)(sum))
#define MULTIPLY_ADD_double(sum, left, right)                                                                          \
    sum = (flash_double)_mm256_fmadd_pd(_mm256_set1_pd(left), (__m256d)(right), (__m256d)(sum))
#else
#define MULTIPLY_ADD_float(sum, left, right) sum += (left) * (right)
#define MULTIPLY_ADD_double(sum, left, right) sum += (left) * (right)
#endif

static float to_bf16(float x) { return tl_convert_bf16_f32(tl_convert_f32_bf16(x)); }

typedef struct flash_task {
    tl_kcall *call;
    const tl_flash_attr *attr;
    const tl_array *sinks, *slopes, *positions; /* NULL: none */
    int64_t B, H, G, T, S, K, L;
    int64_t block, row_blocks, kp, lp;
    uint32_t wanted;
    int64_t part, parts;         /* of the keys */
    char *sum_k, *sum_v, *sum_q; /* in the workspace */
} flash_task;

static char *place(const tl_array *x, int64_t i, int64_t j, int64_t k) {
    return x->data + (i * x->stride[0] + j * x->stride[1] + k * x->stride[2]) * tl_bytes_of(x->dtype);
}

/* The first key of row i's document. */
static int64_t document_of(const flash_task *t, int64_t b, int64_t i) {
    int64_t position = 0;
    const tl_array *a = t->positions;
    TL_K(load_int)
    (&position, a->dtype, a->data + (b * a->stride[0] + i * a->stride[1]) * tl_bytes_of(a->dtype), 1, 1);
    return i + t->attr->offset - position;
}

/* The keys of [from, to) that some row of a block sees, from the beginning of a block of keys. */
static void block_keys(const flash_task *t, int64_t i0, int64_t rows, int64_t from, int64_t to, int64_t *low,
                       int64_t *high) {
    int64_t first_high, last_low;
    tl_flash_sees(t->attr, i0, t->S, low, &first_high);
    tl_flash_sees(t->attr, i0 + rows - 1, t->S, &last_low, high);
    *low = tl_max_i64(*low, from);
    *high = tl_min_i64(*high, to);
    *low = *low < *high ? *low / t->block * t->block : *high;
}

/* Where a key/value head's gradient is summed: in the result, or in the workspace where that is rounded. */
typedef struct sums {
    char *data; /* of key 0; NULL: not wanted */
    int64_t row;
    bool rounds;
} sums;

static sums sums_of(const flash_task *t, int output, int64_t b, int64_t group) {
    const tl_array *out = &t->call->out[output];
    char *work = output == 1 ? t->sum_k : t->sum_v;
    int64_t size = output == 1 ? t->K : t->L;
    if (!out->data)
        return (sums){NULL, 0, false};
    if (work)
        return (sums){work + (b * t->G + group) * t->S * size * (int64_t)sizeof(float), size, true};
    return (sums){place(out, b, 0, group), out->stride[1], false};
}

/* x = e^(x − shift), sum += x; either may be NULL. */
static void exp_row_float(float *x, const float *shift, float *sum, int64_t n) {
    int64_t i = 0;
#ifdef TL_HAVE_VECTOR_MATH
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        v = tlv_exp(shift ? _mm512_sub_ps(v, _mm512_loadu_ps(shift + i)) : v);
        _mm512_storeu_ps(x + i, v);
        if (sum)
            _mm512_storeu_ps(sum + i, _mm512_add_ps(_mm512_loadu_ps(sum + i), v));
    }
#endif
    for (int64_t j = i; shift && j < n; j++)
        x[j] -= shift[j];
    TL_INDEPENDENT
    for (int64_t j = i; j < n; j++)
        x[j] = tlm_exp(x[j]);
    for (int64_t j = i; sum && j < n; j++)
        sum[j] += x[j];
}

static void exp_row_double(double *x, const double *shift, double *sum, int64_t n) {
    for (int64_t j = 0; shift && j < n; j++)
        x[j] -= shift[j];
    TL_INDEPENDENT
    for (int64_t j = 0; j < n; j++)
        x[j] = tlm_exp64(x[j]);
    for (int64_t j = 0; sum && j < n; j++)
        sum[j] += x[j];
}

#define REAL float
#define N(name) name##_float
#define OWN TL_F32
#define LOAD TL_K(load_float)
#define STORE TL_K(store_float)
#define VECTOR flash_float
#define MULTIPLY_ADD MULTIPLY_ADD_float
#define EXP_ROW exp_row_float
#define TANH tlm_tanh
#define LOG tlm_log
#include "kernel/body/flash.h"
#undef REAL
#undef N
#undef OWN
#undef LOAD
#undef STORE
#undef VECTOR
#undef MULTIPLY_ADD
#undef EXP_ROW
#undef TANH
#undef LOG
#define REAL double
#define N(name) name##_double
#define OWN TL_F64
#define LOAD TL_K(load_double)
#define STORE TL_K(store_double)
#define VECTOR flash_double
#define MULTIPLY_ADD MULTIPLY_ADD_double
#define EXP_ROW exp_row_double
#define TANH tlm_tanh64
#define LOG tlm_log64
#include "kernel/body/flash.h"

static void task_make(flash_task *t, tl_kcall *call, int vectors_at) {
    const tl_array *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    bool wide = q->dtype == TL_F64;
    *t = (flash_task){.call = call, .attr = call->attr};
    t->B = q->size[0], t->H = q->size[1], t->T = q->size[2], t->K = q->size[3];
    t->G = k->size[1], t->S = k->size[2], t->L = v->size[3];
    t->block = tl_flash_block(t->K, t->L, wide);
    t->row_blocks = tl_blocks_of(t->T, t->block);
    t->kp = (t->K + 15) / 16 * 16;
    t->lp = (t->L + 15) / 16 * 16;
    t->sinks = t->attr->has_sinks ? &call->in[vectors_at++] : NULL;
    t->slopes = t->attr->has_slopes ? &call->in[vectors_at++] : NULL;
    t->positions = t->attr->has_positions ? &call->in[vectors_at] : NULL;
}

/* Small work stays on the caller. Its scratch block is that of thread 0. */
static tl_engine *engine_for(const flash_task *t) {
    int64_t pairs = t->B * t->H * t->T * tl_max_i64(1, t->S);
    return pairs < TL_TASK_ELEMENTS / 16 ? NULL : t->call->engine;
}

void TL_K(flash_attention)(tl_kcall *call) {
    flash_task t;
    task_make(&t, call, 3);
    bool wide = call->in[0].dtype == TL_F64;
    tl_engine_run(engine_for(&t), t.B * t.H * t.row_blocks, wide ? forward_double : forward_float, &t);
}

void TL_K(flash_attention_backward)(tl_kcall *call) {
    flash_task t;
    task_make(&t, call, 6);
    bool wide = call->in[0].dtype == TL_F64, rounds = !wide && call->in[0].dtype != TL_F32;
    char *work = call->work;
    for (int o = 0; o < 4; o++)
        t.wanted |= o < call->n_out && call->out[o].data ? 1u << o : 0;
    t.part = tl_flash_part(t.B * t.G, t.S, t.block);
    t.parts = tl_max_i64(1, tl_blocks_of(t.S, t.part));
    if (rounds && (t.wanted & TL_FLASH_DK)) {
        t.sum_k = work;
        work += t.B * t.G * t.S * t.K * (int64_t)sizeof(float);
    }
    if (rounds && (t.wanted & TL_FLASH_DV)) {
        t.sum_v = work;
        work += t.B * t.G * t.S * t.L * (int64_t)sizeof(float);
    }
    t.sum_q = t.parts > 1 ? work : NULL;
    if (t.wanted & (TL_FLASH_DQ | TL_FLASH_DK | TL_FLASH_DV))
        tl_engine_run(engine_for(&t), t.B * t.G * t.parts, wide ? backward_double : backward_float, &t);
    if (t.parts > 1 && (t.wanted & TL_FLASH_DQ))
        tl_engine_run(engine_for(&t), t.B * t.H * t.row_blocks, wide ? add_parts_double : add_parts_float, &t);
    if (t.wanted & TL_FLASH_DSINKS)
        tl_engine_run(engine_for(&t), t.H, wide ? sink_gradient_double : sink_gradient_float, &t);
}
