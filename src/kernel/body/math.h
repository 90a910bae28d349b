/* kernel/body/math.h: exp, log, tanh and the normal distribution (erf in GELU's form) from + − × ÷ √, integer operations and selections
 * alone, so that every instruction set gives the same bits and loops over them vectorise. Float polynomials are minimax
 * fits (Lawson's iteration, coefficients rounded to float) made for these intervals; double ones are Taylor series.
 *
 * Polynomials are summed in pairs (Estrin) where the chain of one after the other would be what takes the time.
 * NaN in is NaN out everywhere; selections are written so that a NaN falls through.
 */
#ifndef TALLY_KERNEL_BODY_MATH_H
#define TALLY_KERNEL_BODY_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define TLM static inline __attribute__((always_inline))

TLM float tlm_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
TLM uint32_t tlm_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
TLM double tlm_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
TLM uint64_t tlm_bits64(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* c ? a : b by masks. gcc would turn the plain form into a branch, specialise what follows for each side and, when it
 * vectorises, compute a polynomial two or three times. (In double the plain form is the better one: SSE2 has no 64-bit masks.) */
TLM float tlm_select(int c, float a, float b) {
    uint32_t mask = 0u - (uint32_t)c;
    return tlm_float((tlm_bits(a) & mask) | (tlm_bits(b) & ~mask));
}

/* ---- float ---- */

/* e^(x + tail), tail a small correction: k = round(x/ln 2), r = x − k ln 2 in two pieces (Cody, Waite 1980),
 * e^r = 1 + r + r²·P(r), and 2^k in two factors so that subnormal results and overflow come out. */
TLM float tlm_exp_tail(float x, float tail) {
    float c = tlm_select(x < -104.0f, -104.0f, x);
    c = tlm_select(c > 89.0f, 89.0f, c);
    float shifted = c * 1.44269504f + 12582912.0f; /* 1.5·2^23: the sum's low bits are the rounded integer */
    float k = shifted - 12582912.0f;
    int32_t ki = (int32_t)(tlm_bits(shifted) - 0x4B400000u);
    float r = (c - k * 0.693359375f) - (k * -2.12194440e-4f - tail); /* ln 2 = 355/512 − 2.12194440e-4 */
    float z = r * r;
    float p = (0.5f + 1.6666512e-01f * r) + z * ((4.1666187e-02f + 8.369599e-03f * r) + z * 1.3951717e-03f);
    float e = 1.0f + (r + z * p);
    int32_t half = ki >> 1;
    float low = tlm_float((uint32_t)(half + 127) << 23), high = tlm_float((uint32_t)(ki - half + 127) << 23);
    return tlm_select(x == x, e * low * high, x);
}
TLM float tlm_exp(float x) { return tlm_exp_tail(x, 0.0f); }

/* x = 2^e·(1 + f) with 1 + f in [√½, √2): log x = e ln 2 + f − f²/2 + f³·P(f). */
TLM float tlm_log(float x) {
    float scaled = x < 0x1p-126f ? x * 0x1p24f : x;
    float bias = x < 0x1p-126f ? -24.0f : 0.0f;
    uint32_t bits = tlm_bits(scaled) - 0x3F3504F3u; /* √½ */
    float e = (float)((int32_t)bits >> 23) + bias;
    float f = tlm_float((bits & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    float p = 6.746601e-02f;
    p = p * f + -1.1675641e-01f;
    p = p * f + 1.1888175e-01f;
    p = p * f + -1.24055915e-01f;
    p = p * f + 1.4219551e-01f;
    p = p * f + -1.6667996e-01f;
    p = p * f + 2.0002119e-01f;
    p = p * f + -2.500001e-01f;
    p = p * f + 3.3333313e-01f;
    float z = f * f;
    float y = e * 0.693359375f + (f + (e * -2.12194440e-4f + (f * z * p - 0.5f * z)));
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x < INFINITY ? y : x;
}

/* |x| < 0.625: x + x³·P(x²); beyond, 1 − 2/(e^2x + 1), whose error is small beside 1. */
TLM float tlm_tanh(float x) {
    float a = x < 0 ? -x : x, z = x * x;
    float p = 2.1227426e-03f;
    p = p * z + -8.156276e-03f;
    p = p * z + 2.1692606e-02f;
    p = p * z + -5.3945377e-02f;
    p = p * z + 1.3333195e-01f;
    p = p * z + -3.333333e-01f;
    float near = x + x * z * p;
    float far = 1.0f - 2.0f / (tlm_exp(2.0f * a) + 1.0f);
    far = tlm_select(x < 0, -far, far);
    return tlm_select(a < 0.625f, near, far);
}

/* The upper tail of the normal distribution, Q(t) = 1 − Φ(t) for t ≥ 0, and e^(−t²/2) on the way: Q = e^(−t²/2)·R(u) with
 * u = (t − 4)/(t + 4), R fitted for t up to 14.5 where Q leaves the floats. t² is split so that its rounding does not
 * grow through exp. */
TLM float tlm_normal_tail(float t, float *gauss) {
    float c = tlm_select(t < 14.5f, t, 14.5f);
    float head = tlm_float(tlm_bits(c) & 0xFFFFF000u);
    float rest = (c - head) * (c + head);
    float e = tlm_exp_tail(-0.5f * (head * head), -0.5f * rest);
    float u = (c - 4.0f) / (c + 4.0f);
    float z = u * u, z2 = z * z;
    float low = (9.441064e-02f + -1.7039774e-01f * u) + z * (1.243792e-01f + -7.170674e-02f * u);
    float mid = (3.08655e-02f + -8.497917e-03f * u) + z * (5.025514e-04f + 6.577629e-04f * u);
    float p = low + z2 * (mid + z2 * (-1.6782574e-04f + -6.528484e-05f * u));
    *gauss = tlm_select(t < 14.5f, e, 0.0f);
    return tlm_select(t < 14.5f, e * p, 0.0f);
}

/* Φ(x) = ½ + x·P(x²) for |x| ≤ 1 */
TLM float tlm_normal_near(float x) {
    float z = x * x;
    float low = (3.989423e-01f + -6.649038e-02f * z) + z * z * (9.973541e-03f + -1.1872475e-03f * z);
    float p = low + (z * z) * (z * z) * ((1.15241564e-04f + -9.204696e-06f * z) + z * z * 5.143479e-07f);
    return 0.5f + x * p;
}

/* GELU, Hendrycks and Gimpel 2016: x·Φ(x). The negative side through Q keeps its relative accuracy. */
TLM float tlm_gelu_erf(float x) {
    float a = x < 0 ? -x : x, gauss, q = x * tlm_normal_tail(a, &gauss);
    float near = x * tlm_normal_near(x), far = tlm_select(x < 0, q, x - q);
    far = tlm_select(x < -14.5f, -0.0f, far);
    return tlm_select(a < 0.75f, near, far);
}
/* Φ(x) + x·φ(x) */
TLM float tlm_gelu_erf_slope(float x) {
    float a = x < 0 ? -x : x, gauss, q = tlm_normal_tail(a, &gauss);
    float density = tlm_select(a < 14.5f, x * gauss * 0.39894228f, 0.0f);
    float far = tlm_select(x < 0, q, 1.0f - q);
    float slope = tlm_select(a < 0.75f, tlm_normal_near(x), far) + density;
    return tlm_select(x == x, slope, x);
}

/* s = 1/(1 + e^−x); *rest = 1 − s, for x > 0 as e^−x·s, which does not cancel */
TLM float tlm_sigmoid_rest(float x, float *rest) {
    float e = tlm_exp(-x), s = 1.0f / (1.0f + e);
    *rest = x > 0 ? e * s : 1.0f - s;
    return s;
}
TLM float tlm_sigmoid(float x) { return 1.0f / (1.0f + tlm_exp(-x)); }
/* e^−x is clamped at e^104 = inf: x·0 for x = −inf would be NaN, hence the selection. */
TLM float tlm_silu(float x) { return x < -104.0f ? -0.0f : x * tlm_sigmoid(x); }
TLM float tlm_silu_slope(float x) {
    float rest, s = tlm_sigmoid_rest(x, &rest);
    float slope = s + x * s * rest;
    return x < -104.0f ? 0.0f : x > 104.0f ? 1.0f : slope;
}

/* The tanh form of GELU: ½·x·(1 + tanh y) = x·sigmoid(2y), y = √(2/π)(x + 0.044715 x³). */
TLM float tlm_gelu_tanh(float x) {
    float y2 = 1.59576912f * (x + 0.044715f * x * x * x);
    return x < -12.0f ? -0.0f : x * tlm_sigmoid(y2);
}
TLM float tlm_gelu_tanh_slope(float x) {
    float y2 = 1.59576912f * (x + 0.044715f * x * x * x), slope2 = 1.59576912f * (1.0f + 0.134145f * x * x);
    float rest, s = tlm_sigmoid_rest(y2, &rest);
    float slope = s + x * s * rest * slope2;
    return x < -12.0f ? 0.0f : x > 12.0f ? 1.0f : slope;
}

/* ---- double ---- */

TLM double tlm_exp64(double x) {
    double c = x < -746.0 ? -746.0 : x;
    c = c > 710.0 ? 710.0 : c;
    double shifted = c * 1.4426950408889634 + 6755399441055744.0; /* 1.5·2^52 */
    double k = shifted - 6755399441055744.0;
    int64_t ki = (int64_t)(tlm_bits64(shifted) - UINT64_C(0x4338000000000000));
    /* ln 2: the upper piece has 32 bits, so k times it is exact (fdlibm's split) */
    double r = (c - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    double e = 1.0 + (r + r * r * p);
    /* an arithmetic shift of 64 bits has no SSE2 or AVX2 form; halving a biased, unsigned number has */
    uint64_t whole = (uint64_t)ki, half = ((whole + 2048) >> 1) - 1024; /* unsigned: of a NaN they are anything */
    double low = tlm_double((half + 1023) << 52), high = tlm_double((whole - half + 1023) << 52);
    double y = e * low * high;
    return x == x ? y : x;
}

/* log(1 + f) = f − (f²/2 − s·(f²/2 + R)), s = f/(2 + f), R = 2 s² (1/3 + s²/5 + …): the atanh series, arranged as fdlibm's
 * e_log.c explains. */
TLM double tlm_log64(double x) {
    double scaled = x < 0x1p-1022 ? x * 0x1p54 : x;
    double bias = x < 0x1p-1022 ? -54.0 : 0.0;
    uint64_t bits = tlm_bits64(scaled) - UINT64_C(0x3FE6A09E667F3BCD); /* √½ */
    /* exponent of either sign to double without a 64-bit conversion: put it in a mantissa */
    uint64_t exponent = (bits + (UINT64_C(2048) << 52)) >> 52;
    double e = tlm_double(exponent | UINT64_C(0x4330000000000000)) - (4503599627370496.0 + 2048.0) + bias;
    double f = tlm_double((bits & UINT64_C(0x000FFFFFFFFFFFFF)) + UINT64_C(0x3FE6A09E667F3BCD)) - 1.0;
    double s = f / (2.0 + f), z = s * s;
    double p = 2.0 / 23.0;
    p = p * z + 2.0 / 21.0;
    p = p * z + 2.0 / 19.0;
    p = p * z + 2.0 / 17.0;
    p = p * z + 2.0 / 15.0;
    p = p * z + 2.0 / 13.0;
    p = p * z + 2.0 / 11.0;
    p = p * z + 2.0 / 9.0;
    p = p * z + 2.0 / 7.0;
    p = p * z + 2.0 / 5.0;
    p = p * z + 2.0 / 3.0;
    double h = 0.5 * f * f;
    double y = e * 6.93147180369123816490e-01 - ((h - (s * (h + z * p) + e * 1.90821492927058770002e-10)) - f);
    y = x == 0.0 ? -(double)INFINITY : y;
    y = x < 0.0 ? (double)NAN : y;
    return x < (double)INFINITY ? y : x;
}

/* s/(s + 2) with s = e^2|x| − 1 by its series while 2|x| < 1.1; beyond, as in float. */
TLM double tlm_tanh64(double x) {
    double a = x < 0 ? -x : x, t = 2.0 * a;
    double c = t < 1.1 ? t : 1.1;
    double p = 1.0 / 2432902008176640000.0;
    p = p * c + 1.0 / 121645100408832000.0;
    p = p * c + 1.0 / 6402373705728000.0;
    p = p * c + 1.0 / 355687428096000.0;
    p = p * c + 1.0 / 20922789888000.0;
    p = p * c + 1.0 / 1307674368000.0;
    p = p * c + 1.0 / 87178291200.0;
    p = p * c + 1.0 / 6227020800.0;
    p = p * c + 1.0 / 479001600.0;
    p = p * c + 1.0 / 39916800.0;
    p = p * c + 1.0 / 3628800.0;
    p = p * c + 1.0 / 362880.0;
    p = p * c + 1.0 / 40320.0;
    p = p * c + 1.0 / 5040.0;
    p = p * c + 1.0 / 720.0;
    p = p * c + 1.0 / 120.0;
    p = p * c + 1.0 / 24.0;
    p = p * c + 1.0 / 6.0;
    p = p * c + 0.5;
    double small = c + c * c * p; /* e^t − 1 */
    double far = 1.0 - 2.0 / (tlm_exp64(t) + 1.0);
    double y = t < 1.1 ? small / (small + 2.0) : far;
    y = x < 0 ? -y : y;
    return x == 0 || !(x == x) ? x : y;
}

/* sin and cos of 2π·turns, 0 ≤ turns < 1: quarter turns, then Taylor within ±π/4. */
TLM void tlm_sincos_turns(double turns, double *sine, double *cosine) {
    double shifted = turns * 4.0 + 6755399441055744.0;
    double k = shifted - 6755399441055744.0;
    uint64_t quadrant = tlm_bits64(shifted) & 3u;
    double r = (turns * 4.0 - k) * 1.5707963267948966, z = r * r;
    double s = 1.0 / 355687428096000.0;
    s = s * z - 1.0 / 1307674368000.0;
    s = s * z + 1.0 / 6227020800.0;
    s = s * z - 1.0 / 39916800.0;
    s = s * z + 1.0 / 362880.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    s = r + r * z * s;
    double c = 1.0 / 20922789888000.0;
    c = c * z - 1.0 / 87178291200.0;
    c = c * z + 1.0 / 479001600.0;
    c = c * z - 1.0 / 3628800.0;
    c = c * z + 1.0 / 40320.0;
    c = c * z - 1.0 / 720.0;
    c = c * z + 1.0 / 24.0;
    c = c * z - 0.5;
    c = 1.0 + z * c;
    double a = quadrant & 1u ? c : s, b = quadrant & 1u ? s : c;
    *sine = quadrant & 2u ? -a : a;
    *cosine = (quadrant + 1u) & 2u ? -b : b;
}

#endif
