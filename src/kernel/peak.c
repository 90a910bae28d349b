/* kernel/peak.c: see peak.h. */
#include "kernel/peak.h"

#if defined(__x86_64__) && !defined(TL_PORTABLE_ONLY)
#define TL_HAVE_X86 1
#include <immintrin.h>
#endif

/* Twelve chains: enough for two units of latency four or five, and few enough for sixteen registers with two operands. */
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define CHAINS 12

/* Where x·½ + 1 is repeated, x goes to 2: never an infinity, never a subnormal, which some processors are slow at. Reading
 * the two numbers through volatile keeps the compiler from knowing that. */
#define START(i) VECTOR x##i = SET((SCALAR)(i));
#define ROUND(i) x##i = STEP(x##i);
#define GATHER(i) total = ADD(total, x##i);
#define LOOP(function, attribute)                                                                                      \
    attribute static double function(int64_t rounds) {                                                                 \
        volatile SCALAR given[2] = {(SCALAR)0.5, 1};                                                                   \
        const VECTOR half = SET(given[0]), one = SET(given[1]);                                                        \
        EACH(START)                                                                                                    \
        for (int64_t round = 0; round < rounds; round++) {                                                             \
            EACH(ROUND)                                                                                                \
        }                                                                                                              \
        VECTOR total = SET(0);                                                                                         \
        EACH(GATHER)                                                                                                   \
        union {                                                                                                        \
            VECTOR vector;                                                                                             \
            SCALAR lane[sizeof(VECTOR) / sizeof(SCALAR)];                                                              \
        } out = {total};                                                                                               \
        double sum = 0;                                                                                                \
        for (size_t i = 0; i < sizeof out.lane / sizeof out.lane[0]; i++)                                              \
            sum += (double)out.lane[i];                                                                                \
        return sum;                                                                                                    \
    }

/* ---- portable: a multiplication and an addition, of 16 bytes -------------------------------------------------- */

typedef float four_floats __attribute__((vector_size(16)));
typedef double two_doubles __attribute__((vector_size(16)));

#define ADD(a, b) ((a) + (b))
#define STEP(x) ((x)*half + one)
#define VECTOR four_floats
#define SCALAR float
#define SET(value) ((four_floats){value, value, value, value})
LOOP(fp32_portable, )
#undef VECTOR
#undef SCALAR
#undef SET
#define VECTOR two_doubles
#define SCALAR double
#define SET(value) ((two_doubles){value, value})
LOOP(fp64_portable, )
#undef VECTOR
#undef SCALAR
#undef SET
#undef ADD
#undef STEP

typedef float stream16 __attribute__((vector_size(16), may_alias));
typedef float stream32 __attribute__((vector_size(32), may_alias));
typedef float stream64 __attribute__((vector_size(64), may_alias));

#define TRIAD(function, attribute, stream)                                                                             \
    attribute static void function(float *a, const float *b, const float *c, int64_t count) {                          \
        volatile float given = 0.5F;                                                                                   \
        const float s = given;                                                                                         \
        for (int64_t i = 0; i < count; i += 64)                                                                        \
            for (int j = 0; j < 64; j += (int)(sizeof(stream) / sizeof(float)))                                        \
                *(stream *)(a + i + j) = *(const stream *)(b + i + j) + s * *(const stream *)(c + i + j);              \
    }
TRIAD(triad_portable, , stream16)

/* ---- x86-64 --------------------------------------------------------------------------------------------------- */
#ifdef TL_HAVE_X86
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f")))
#define AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

#define VECTOR __m256
#define SCALAR float
#define SET(value) _mm256_set1_ps(value)
#define ADD(a, b) _mm256_add_ps(a, b)
#define STEP(x) _mm256_fmadd_ps(x, half, one)
LOOP(fp32_avx2, AVX2)
#undef VECTOR
#undef SCALAR
#undef SET
#undef ADD
#undef STEP
#define VECTOR __m256d
#define SCALAR double
#define SET(value) _mm256_set1_pd(value)
#define ADD(a, b) _mm256_add_pd(a, b)
#define STEP(x) _mm256_fmadd_pd(x, half, one)
LOOP(fp64_avx2, AVX2)
#undef VECTOR
#undef SCALAR
#undef SET
#undef ADD
#undef STEP
#define VECTOR __m512
#define SCALAR float
#define SET(value) _mm512_set1_ps(value)
#define ADD(a, b) _mm512_add_ps(a, b)
#define STEP(x) _mm512_fmadd_ps(x, half, one)
LOOP(fp32_avx512, AVX512)
#undef STEP
/* Pairs of bf16 whose products are added to a float: x + 2·(a·b), here a tiny bit more each time. */
#define STEP(x) _mm512_dpbf16_ps(x, (__m512bh)_mm512_castps_si512(half), (__m512bh)_mm512_castps_si512(one))
LOOP(bf16_avx512, AVX512_BF16)
#undef VECTOR
#undef SCALAR
#undef SET
#undef ADD
#undef STEP
#define VECTOR __m512d
#define SCALAR double
#define SET(value) _mm512_set1_pd(value)
#define ADD(a, b) _mm512_add_pd(a, b)
#define STEP(x) _mm512_fmadd_pd(x, half, one)
LOOP(fp64_avx512, AVX512)
#undef VECTOR
#undef SCALAR
#undef SET
#undef ADD
#undef STEP

TRIAD(triad_avx2, AVX2, stream32)
TRIAD(triad_avx512, AVX512, stream64)
#endif

/* ---- choosing ------------------------------------------------------------------------------------------------- */

int tl_peak_loops(tl_peak_loop loops[TL_PEAK_LOOPS]) {
    int n = 0;
#ifdef TL_HAVE_X86
    __builtin_cpu_init();
    bool avx512 = __builtin_cpu_supports("avx512f");
    if (avx512) {
        loops[n++] = (tl_peak_loop){"avx512", TL_F32, CHAINS * 16 * 2, fp32_avx512};
        loops[n++] = (tl_peak_loop){"avx512", TL_F64, CHAINS * 8 * 2, fp64_avx512};
    }
    if (avx512 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bf16"))
        loops[n++] = (tl_peak_loop){"avx512-bf16", TL_BF16, CHAINS * 16 * 4, bf16_avx512};
    /* Beside AVX-512 too: some processors slow down for it. */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        loops[n++] = (tl_peak_loop){"avx2", TL_F32, CHAINS * 8 * 2, fp32_avx2};
        loops[n++] = (tl_peak_loop){"avx2", TL_F64, CHAINS * 4 * 2, fp64_avx2};
    }
    if (n)
        return n;
#endif
    loops[n++] = (tl_peak_loop){"portable", TL_F32, CHAINS * 4 * 2, fp32_portable};
    loops[n++] = (tl_peak_loop){"portable", TL_F64, CHAINS * 2 * 2, fp64_portable};
    return n;
}

tl_peak_triad *tl_peak_triad_best(void) {
#ifdef TL_HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return triad_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return triad_avx2;
#endif
    return triad_portable;
}
