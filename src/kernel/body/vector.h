/* kernel/body/vector.h: exp, tanh, sigmoid and the normal distribution for 16 floats at once, with what AVX-512 has for
 * them: fused multiply-adds, scaling by a power of two with one rounding, coefficients picked from 32. The methods are
 * math.h's or cost less; results are within 2 ulp as there, but not bit for bit the same. The compiler cannot make
 * these from math.h's loops, which take two to three times as long.
 *
 * Every element's value depends on itself alone: the last elements of a run go through the same code under a mask. */
#ifndef TALLY_KERNEL_BODY_VECTOR_H
#define TALLY_KERNEL_BODY_VECTOR_H

#include "kernel/body/math.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define TL_HAVE_VECTOR_MATH 1
#include <immintrin.h>

#include "kernel/body/vector_tables.h"

TLM __m512 tlv_set(float value) { return _mm512_set1_ps(value); }

/* e^(x + tail). min and max take the second operand where one is NaN: so that a NaN stays. */
TLM __m512 tlv_exp_tail(__m512 x, __m512 tail) {
    __m512 c = _mm512_min_ps(tlv_set(89.0f), _mm512_max_ps(tlv_set(-104.0f), x));
    __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(c, tlv_set(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(k, tlv_set(0.693359375f), c);
    r = _mm512_add_ps(_mm512_fnmadd_ps(k, tlv_set(-2.12194440e-4f), r), tail);
    __m512 p = _mm512_fmadd_ps(tlv_set(1.3951717e-03f), r, tlv_set(8.369599e-03f));
    p = _mm512_fmadd_ps(p, r, tlv_set(4.1666187e-02f));
    p = _mm512_fmadd_ps(p, r, tlv_set(1.6666512e-01f));
    p = _mm512_fmadd_ps(p, r, tlv_set(0.5f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
    return _mm512_scalef_ps(_mm512_add_ps(p, tlv_set(1.0f)), k);
}
/* One of 32 floats by the low five bits of each element. */
TLM __m512 tlv_pick(const float table[32], __m512 bits) {
    return _mm512_permutex2var_ps(_mm512_loadu_ps(table), _mm512_castps_si512(bits), _mm512_loadu_ps(table + 16));
}

/* e^c for −104 ≤ c ≤ 89 or NaN: k = c/ln 2 to the nearest 32nd, e^c = 2^k·e^r with |r| < 0.011, of which 2^k's fraction is
 * picked, e^r − 1 = r + r²/2 + r³/6, and the power of two is one rounding at the end (it takes k's floor). */
TLM __m512 tlv_exp_within(__m512 c) {
    __m512 shifted = _mm512_fmadd_ps(c, tlv_set(1.44269504f), tlv_set(0x1.8p18f)); /* its last bit counts 32nds */
    __m512 k = _mm512_sub_ps(shifted, tlv_set(0x1.8p18f));
    __m512 r = _mm512_fnmadd_ps(k, tlv_set(0.693359375f), c);
    r = _mm512_fnmadd_ps(k, tlv_set(-2.12194440e-4f), r);
    __m512 p = _mm512_fmadd_ps(r, tlv_set(1.66666667e-01f), tlv_set(0.5f)), fraction = tlv_pick(tlv_two_to, shifted);
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
    return _mm512_scalef_ps(_mm512_fmadd_ps(fraction, p, fraction), k);
}
TLM __m512 tlv_exp(__m512 x) {
    return tlv_exp_within(_mm512_min_ps(tlv_set(89.0f), _mm512_max_ps(tlv_set(-104.0f), x)));
}
/* for x ≤ 0 */
TLM __m512 tlv_exp_negative(__m512 x) { return tlv_exp_within(_mm512_max_ps(tlv_set(-104.0f), x)); }

/* e^−|y| */
TLM __m512 tlv_exp_falling(__m512 y) { return tlv_exp_negative(_mm512_or_ps(y, tlv_set(-0.0f))); }

/* 1/d for 1 ≤ d < 2^100: the 14-bit estimate and one step of Newton's. */
TLM __m512 tlv_reciprocal(__m512 d) {
    __m512 r = _mm512_rcp14_ps(d);
    return _mm512_fmadd_ps(r, _mm512_fnmadd_ps(d, r, tlv_set(1.0f)), r);
}

TLM __m512 tlv_abs(__m512 x) { return _mm512_abs_ps(x); }
TLM __mmask16 tlv_less(__m512 a, __m512 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }

TLM __m512 tlv_tanh(__m512 x) {
    __m512 a = tlv_abs(x), z = _mm512_mul_ps(x, x);
    __m512 p = _mm512_fmadd_ps(tlv_set(2.1227426e-03f), z, tlv_set(-8.156276e-03f));
    p = _mm512_fmadd_ps(p, z, tlv_set(2.1692606e-02f));
    p = _mm512_fmadd_ps(p, z, tlv_set(-5.3945377e-02f));
    p = _mm512_fmadd_ps(p, z, tlv_set(1.3333195e-01f));
    p = _mm512_fmadd_ps(p, z, tlv_set(-3.333333e-01f));
    __m512 near = _mm512_fmadd_ps(_mm512_mul_ps(x, z), p, x);
    __m512 e = tlv_exp(_mm512_min_ps(tlv_set(40.0f), _mm512_add_ps(a, a)));
    __m512 far = _mm512_fnmadd_ps(tlv_set(2.0f), tlv_reciprocal(_mm512_add_ps(e, tlv_set(1.0f))), tlv_set(1.0f));
    far = _mm512_mask_sub_ps(far, tlv_less(x, _mm512_setzero_ps()), _mm512_setzero_ps(), far);
    return _mm512_mask_blend_ps(tlv_less(a, tlv_set(0.625f)), far, near);
}

/* σ(y) and 1 − σ(y), neither by subtraction: e = e^−|y|, one of them is 1/(1 + e), the other e/(1 + e). */
TLM __m512 tlv_sigmoid_rest(__m512 y, __m512 *rest) {
    __m512 e = tlv_exp_falling(y);
    __m512 large = tlv_reciprocal(_mm512_add_ps(e, tlv_set(1.0f))), small = _mm512_mul_ps(e, large);
    __mmask16 negative = tlv_less(y, _mm512_setzero_ps());
    *rest = _mm512_mask_blend_ps(negative, small, large);
    return _mm512_mask_blend_ps(negative, large, small);
}
TLM __m512 tlv_sigmoid(__m512 y) {
    __m512 rest;
    return tlv_sigmoid_rest(y, &rest);
}

/* `inside` where low < x (a NaN too), else −0. */
TLM __m512 tlv_above(__m512 x, float low, __m512 inside) {
    return _mm512_mask_blend_ps(tlv_less(x, tlv_set(low)), inside, tlv_set(-0.0f));
}
/* A slope: 0 below −reach, 1 above reach. */
TLM __m512 tlv_within(__m512 x, float reach, __m512 inside) {
    __m512 y = _mm512_mask_blend_ps(tlv_less(x, tlv_set(-reach)), inside, _mm512_setzero_ps());
    return _mm512_mask_blend_ps(tlv_less(tlv_set(reach), x), y, tlv_set(1.0f));
}

TLM __m512 tlv_silu(__m512 x) { return tlv_above(x, -104.0f, _mm512_mul_ps(x, tlv_sigmoid(x))); }
TLM __m512 tlv_silu_slope(__m512 x) {
    __m512 rest, s = tlv_sigmoid_rest(x, &rest);
    return tlv_within(x, 104.0f, _mm512_fmadd_ps(_mm512_mul_ps(x, s), rest, s));
}

/* x·F(x) where Q(a) = F(−a) = 1 − F(a): max(x, 0) − |x|·Q(|x|), both sides of which keep their relative accuracy. Q of |x| <
 * TLV_GELU_REACH is a polynomial of degree 5 about the nearest 8th, whose coefficients are picked by it. */
#define TLV_GELU_REACH 3.9375f
TLM __m512 tlv_gelu_near(__m512 x, const float tail[6][32]) {
    __m512 a = tlv_abs(x), shifted = _mm512_add_ps(a, tlv_set(0x1.8p20f)); /* its last bit counts 8ths */
    __m512 r = _mm512_sub_ps(a, _mm512_sub_ps(shifted, tlv_set(0x1.8p20f))), q = tlv_pick(tail[5], shifted);
    for (int i = 4; i >= 0; i--)
        q = _mm512_fmadd_ps(q, r, tlv_pick(tail[i], shifted));
    return _mm512_fnmadd_ps(a, q, _mm512_max_ps(x, _mm512_setzero_ps()));
}
/* Elements (NaN too) that tlv_gelu_near does not serve: few, so that they may cost more. */
TLM __mmask16 tlv_gelu_far(__m512 x) { return _mm512_cmp_ps_mask(tlv_abs(x), tlv_set(TLV_GELU_REACH), _CMP_NLT_UQ); }

static __attribute__((noinline)) __m512 tlv_gelu_tanh_far(__m512 x) {
    __m512 z = _mm512_mul_ps(x, x);
    __m512 y2 = _mm512_mul_ps(x, _mm512_fmadd_ps(z, tlv_set(0.0713548162726f), tlv_set(1.59576912f)));
    return tlv_above(x, -12.0f, _mm512_mul_ps(x, tlv_sigmoid(y2)));
}
TLM __m512 tlv_gelu_tanh(__m512 x) {
    __m512 y = tlv_gelu_near(x, tlv_gelu_tanh_tail);
    __mmask16 far = tlv_gelu_far(x);
    return __builtin_expect(far != 0, 0) ? _mm512_mask_blend_ps(far, y, tlv_gelu_tanh_far(x)) : y;
}
TLM __m512 tlv_gelu_tanh_slope(__m512 x) {
    __m512 z = _mm512_mul_ps(x, x), rest;
    __m512 y2 = _mm512_mul_ps(x, _mm512_fmadd_ps(z, tlv_set(0.0713548162726f), tlv_set(1.59576912f)));
    __m512 slope2 = _mm512_fmadd_ps(z, tlv_set(0.2140644488f), tlv_set(1.59576912f));
    __m512 s = tlv_sigmoid_rest(y2, &rest);
    return tlv_within(x, 12.0f, _mm512_fmadd_ps(_mm512_mul_ps(_mm512_mul_ps(x, s), rest), slope2, s));
}

/* Q(t) and e^(−t²/2) for 0 ≤ t, both of use up to 14.5: math.h's form, t² and its rounding by a multiply-add. */
TLM __m512 tlv_normal_tail(__m512 t, __m512 *gauss) {
    __m512 c = _mm512_min_ps(tlv_set(14.5f), t), half = _mm512_mul_ps(c, tlv_set(-0.5f)), head = _mm512_mul_ps(half, c);
    __m512 e = tlv_exp_tail(head, _mm512_fmsub_ps(half, c, head));
    __m512 u = _mm512_mul_ps(_mm512_sub_ps(c, tlv_set(4.0f)), tlv_reciprocal(_mm512_add_ps(c, tlv_set(4.0f))));
    __m512 p = _mm512_fmadd_ps(u, tlv_set(-6.528484e-05f), tlv_set(-1.6782574e-04f));
    p = _mm512_fmadd_ps(p, u, tlv_set(6.577629e-04f));
    p = _mm512_fmadd_ps(p, u, tlv_set(5.025514e-04f));
    p = _mm512_fmadd_ps(p, u, tlv_set(-8.497917e-03f));
    p = _mm512_fmadd_ps(p, u, tlv_set(3.08655e-02f));
    p = _mm512_fmadd_ps(p, u, tlv_set(-7.170674e-02f));
    p = _mm512_fmadd_ps(p, u, tlv_set(1.243792e-01f));
    p = _mm512_fmadd_ps(p, u, tlv_set(-1.7039774e-01f));
    p = _mm512_fmadd_ps(p, u, tlv_set(9.441064e-02f));
    *gauss = e;
    return _mm512_mul_ps(e, p);
}

static __attribute__((noinline)) __m512 tlv_gelu_erf_far(__m512 x) {
    __m512 a = tlv_abs(x), gauss, q = tlv_normal_tail(a, &gauss);
    __m512 y = _mm512_mask_blend_ps(tlv_less(x, _mm512_setzero_ps()), _mm512_fnmadd_ps(x, q, x), _mm512_mul_ps(x, q));
    y = _mm512_mask_blend_ps(tlv_less(tlv_set(14.5f), x), y, x);
    return tlv_above(x, -14.5f, y);
}
/* x·Φ(x) */
TLM __m512 tlv_gelu_erf(__m512 x) {
    __m512 y = tlv_gelu_near(x, tlv_gelu_erf_tail);
    __mmask16 far = tlv_gelu_far(x);
    return __builtin_expect(far != 0, 0) ? _mm512_mask_blend_ps(far, y, tlv_gelu_erf_far(x)) : y;
}
TLM __m512 tlv_gelu_erf_slope(__m512 x) {
    __m512 gauss, q = tlv_normal_tail(tlv_abs(x), &gauss);
    __m512 phi = _mm512_mask_sub_ps(q, tlv_less(_mm512_setzero_ps(), x), tlv_set(1.0f), q);
    return tlv_within(x, 14.5f, _mm512_fmadd_ps(_mm512_mul_ps(x, gauss), tlv_set(0.39894228f), phi));
}
#endif

#endif
