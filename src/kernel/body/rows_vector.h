/* kernel/body/rows_vector.h: what rows.h does to a contiguous row of floats, in fewer passes: for AVX-512, where 16 floats are
 * one register and a result can go straight past the caches. Each returns false where it does not serve; rows.h then goes its
 * own way. What is made of + − × ÷ √ gives the same bits as there.
 *
 * `next` is what will be read next, fetched meanwhile: only a hint, so it may point anywhere. */
#ifndef TALLY_KERNEL_BODY_ROWS_VECTOR_H
#define TALLY_KERNEL_BODY_ROWS_VECTOR_H

#include "kernel/body/body.h"
#include "kernel/body/vector.h"

#ifdef TL_HAVE_VECTOR_MATH

TLM __mmask16 tlv_first(int64_t n) { return n >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << (n > 0 ? n : 0)) - 1); }

/* The largest of scale·x, a NaN passed over; −inf for none. */
static inline float tlv_row_largest(const float *x, int64_t n, float scale) {
    const __m512 low = tlv_set(-__builtin_inff()), factor = tlv_set(scale);
    __m512 best[4] = {low, low, low, low};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (int k = 0; k < 4; k++)
            best[k] = _mm512_max_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i + 16 * k), factor), best[k]);
    for (; i < n; i += 16) {
        __mmask16 there = tlv_first(n - i);
        best[0] =
            _mm512_mask_max_ps(best[0], there, _mm512_mul_ps(_mm512_maskz_loadu_ps(there, x + i), factor), best[0]);
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3])));
}

/* e^(factor·x − shift), shift the largest of factor·x (then not above 0 but for a rounding) */
TLM __m512 tlv_row_exp_of(__m512 x, __m512 factor, __m512 shift) {
    return tlv_exp_negative(_mm512_fmsub_ps(x, factor, shift));
}
TLM __m512 tlv_row_exp(const float *x, __m512 factor, __m512 shift) {
    return tlv_row_exp_of(_mm512_loadu_ps(x), factor, shift);
}

/* Largest element and Σ e^(scale·x − largest); `terms` takes the terms, or is NULL. */
static bool exp_sum_direct_float(const float *x, int64_t n, float scale, float *terms, const char *next, float *largest,
                                 float *sum) {
    float best = tlv_row_largest(x, n, scale);
    const __m512 factor = tlv_set(scale), shift = tlv_set(best == -__builtin_inff() ? 0 : best);
    __m512 total[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    int64_t i = 0;
    for (; terms && i + 64 <= n; i += 64)
        for (int k = 0; k < 4; k++) {
            _mm_prefetch(next + 4 * i + 64 * k, _MM_HINT_T0);
            __m512 e = tlv_row_exp(x + i + 16 * k, factor, shift);
            total[k] = _mm512_add_ps(total[k], e);
            _mm512_storeu_ps(terms + i + 16 * k, e);
        }
    for (; i + 64 <= n; i += 64)
        for (int k = 0; k < 4; k++)
            total[k] = _mm512_add_ps(total[k], tlv_row_exp(x + i + 16 * k, factor, shift));
    for (; i < n; i += 16) {
        __mmask16 there = tlv_first(n - i);
        __m512 v = _mm512_maskz_loadu_ps(there, x + i);
        __m512 e = _mm512_maskz_mov_ps(there, tlv_row_exp_of(v, factor, shift));
        total[0] = _mm512_add_ps(total[0], e);
        if (terms)
            _mm512_mask_storeu_ps(terms + i, there, e);
    }
    float lane[16];
    _mm512_storeu_ps(lane, _mm512_add_ps(_mm512_add_ps(total[0], total[1]), _mm512_add_ps(total[2], total[3])));
    *largest = best;
    *sum = tl_lanes_sum_float(lane);
    return true;
}

/* to = from·factor past the caches */
static bool scale_past_float(char *to, const float *from, int64_t n, float factor) {
    if (((uintptr_t)to & 63u) != 0 || n % 16 != 0)
        return false;
    for (int64_t i = 0; i < n; i += 16)
        _mm512_stream_ps((float *)(void *)to + i, _mm512_mul_ps(_mm512_loadu_ps(from + i), tlv_set(factor)));
    return true;
}

/* to = (x − mean)·rstd·gain + bias past the caches; bias may be NULL */
static bool norm_past_float(char *to, const float *x, const float *gain, const float *bias, int64_t n, float mean,
                            float rstd) {
    if (((uintptr_t)to & 63u) != 0 || n % 16 != 0)
        return false;
    const __m512 middle = tlv_set(mean), factor = tlv_set(rstd);
    for (int64_t i = 0; i < n; i += 16) {
        __m512 y = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), middle), factor);
        y = _mm512_mul_ps(y, _mm512_loadu_ps(gain + i));
        if (bias)
            y = _mm512_add_ps(y, _mm512_loadu_ps(bias + i));
        _mm512_stream_ps((float *)(void *)to + i, y);
    }
    return true;
}

/* ---- rows in a pipeline: a large tensor's rows are read, worked on and written at one time ----
 *
 * Taken one after the other, the passes over a row leave the memory idle while they compute, and then wait for it: a third of
 * the time. Here one loop does the first pass of row i + 1, which reads it from memory, the second of row i and the last of row
 * i − 1, which writes it past the caches. The order of every sum is that of the passes on their own. */

/* Sizes and places that the pipeline serves: whole groups of four registers, whole lines, rows that stay near. */
#define TLV_PIPE_MOST 4096
#ifndef TLV_AHEAD
#define TLV_AHEAD 1024
#endif
static inline bool tlv_pipe_serves(int64_t columns) { return columns % 64 == 0 && columns <= TLV_PIPE_MOST; }
static inline bool tlv_whole_line(const void *to) { return ((uintptr_t)to & 63u) == 0; }

typedef struct softmax_stage {
    const float *x1; /* first pass, or NULL: the largest of scale·x */
    float best1;
    const float *x2; /* second, or NULL: e^(scale·x − shift) */
    float shift2, sum2, *terms2;
    const float *terms3; /* last, or NULL: y = terms·factor */
    float factor3, *y3;
} softmax_stage;

static void softmax_pipe(softmax_stage *s, int64_t n, float scale) {
    const __m512 zero = _mm512_setzero_ps(), low = tlv_set(-__builtin_inff()), by = tlv_set(scale);
    const __m512 shift = tlv_set(s->shift2), factor = tlv_set(s->factor3);
    const float *x1 = s->x1, *x2 = s->x2, *terms3 = s->terms3;
    float *terms2 = s->terms2, *y3 = s->y3;
    const char *next = (const char *)(x1 ? x1 + TLV_AHEAD : x2 ? x2 : terms3);
    __m512 best[4] = {low, low, low, low}, total[4] = {zero, zero, zero, zero};
    for (int64_t i = 0; i < n; i += 64) {
        for (int k = 0; k < 4; k++) /* processors do not guess beyond a page */
            _mm_prefetch(next + 4 * (i + 16 * k), _MM_HINT_T0);
        if (x1)
            for (int k = 0; k < 4; k++)
                best[k] = _mm512_max_ps(_mm512_mul_ps(_mm512_loadu_ps(x1 + i + 16 * k), by), best[k]);
        if (x2)
            for (int k = 0; k < 4; k++) {
                __m512 e = tlv_row_exp(x2 + i + 16 * k, by, shift);
                total[k] = _mm512_add_ps(total[k], e);
                _mm512_storeu_ps(terms2 + i + 16 * k, e);
            }
        if (terms3)
            for (int k = 0; k < 4; k++)
                _mm512_stream_ps(y3 + i + 16 * k, _mm512_mul_ps(_mm512_loadu_ps(terms3 + i + 16 * k), factor));
    }
    float lane[16];
    s->best1 = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3])));
    _mm512_storeu_ps(lane, _mm512_add_ps(_mm512_add_ps(total[0], total[1]), _mm512_add_ps(total[2], total[3])));
    s->sum2 = tl_lanes_sum_float(lane);
}

#else
static inline bool exp_sum_direct_float(const float *x, int64_t n, float scale, float *terms, const char *next,
                                        float *largest, float *sum) {
    (void)x, (void)n, (void)scale, (void)terms, (void)next, (void)largest, (void)sum;
    return false;
}
static inline bool scale_past_float(char *to, const float *from, int64_t n, float factor) {
    (void)to, (void)from, (void)n, (void)factor;
    return false;
}
static inline bool norm_past_float(char *to, const float *x, const float *gain, const float *bias, int64_t n,
                                   float mean, float rstd) {
    (void)to, (void)x, (void)gain, (void)bias, (void)n, (void)mean, (void)rstd;
    return false;
}
#endif

static inline bool exp_sum_direct_double(const double *x, int64_t n, double scale, double *terms, const char *next,
                                         double *largest, double *sum) {
    (void)x, (void)n, (void)scale, (void)terms, (void)next, (void)largest, (void)sum;
    return false;
}
static inline bool scale_past_double(char *to, const double *from, int64_t n, double factor) {
    (void)to, (void)from, (void)n, (void)factor;
    return false;
}
static inline bool norm_past_double(char *to, const double *x, const double *gain, const double *bias, int64_t n,
                                    double mean, double rstd) {
    (void)to, (void)x, (void)gain, (void)bias, (void)n, (void)mean, (void)rstd;
    return false;
}

#endif
