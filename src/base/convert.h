/* base/convert.h: the 16- and 8-bit float formats, inline and without branches so that kernels vectorise them.
 *
 * Rounding is to nearest even (IEEE 754-2019, 4.3.1); subnormals are kept; a NaN stays a NaN: quiet bit set, sign and
 * the payload's top bits kept. Everything is done on integers except small formats' subnormals, whose one float operation
 * never meets a float32 subnormal, so that flush-to-zero modes change nothing. Assumes round-to-nearest mode.
 */
#ifndef TL_BASE_CONVERT_H
#define TL_BASE_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

static inline uint32_t tl_float_bits(float value) {
    union {
        float value;
        uint32_t bits;
    } both = {value};
    return both.bits;
}

static inline float tl_bits_float(uint32_t bits) {
    union {
        uint32_t bits;
        float value;
    } both = {bits};
    return both.value;
}

static inline uint16_t tl_convert_f32_bf16(float value) {
    const uint32_t bits = tl_float_bits(value);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16; /* only a NaN could wrap here */
    const uint32_t nan = bits >> 16 | 0x0040;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}

/* Exact: every bit kept, signalling NaNs included. */
static inline float tl_convert_bf16_f32(uint16_t bits) { return tl_bits_float((uint32_t)bits << 16); }

static inline uint16_t tl_convert_f32_f16(float value) {
    const uint32_t bits = tl_float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
    /* 2^-14 and more: rebias the exponent by 15 - 127, round away 13 bits. 65520 carries into infinity by itself. */
    const uint32_t normal = (size + 0xC8000FFF + (size >> 13 & 1)) >> 13;
    /* Below 2^-14: the unit of floats in [0.5, 1) is 2^-24, that of binary16 subnormals, so adding 0.5 rounds. */
    const uint32_t tiny = tl_float_bits(tl_bits_float(size) + 0.5f) - 0x3F000000;
    const uint32_t nan = 0x7E00 | (size >> 13 & 0x3FF);
    uint32_t result = size < 0x38800000 ? tiny : normal;
    result = size >= 0x47800000 ? 0x7C00 : result; /* 65536 and more */
    result = size > 0x7F800000 ? nan : result;
    return (uint16_t)(sign | result);
}

static inline float tl_convert_f16_f32(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    const uint32_t normal = ((uint32_t)(half & 0x7FFF) << 13) + 0x38000000; /* rebias by 127 - 15 */
    const uint32_t tiny = tl_float_bits((float)(int32_t)fraction * 0x1p-24f);
    const uint32_t special = 0x7F800000 | fraction << 13 | (fraction ? 0x400000u : 0u);
    uint32_t result = exponent == 0 ? tiny : normal;
    result = exponent == 0x1F ? special : result;
    return tl_bits_float(sign | result);
}

/* OCP E4M3: bias 7, 3 fraction bits; the pattern after 448 is NaN, so rounding up from above 464 makes NaN by itself. */
static inline uint8_t tl_convert_f32_f8e4m3(float value) {
    const uint32_t bits = tl_float_bits(value), sign = bits >> 24 & 0x80, size = bits & 0x7FFFFFFF;
    /* 2^-6 and more: rebias the exponent by 7 - 127, round away 20 bits. */
    const uint32_t normal = (size - 0x3C000000 + 0x7FFFF + (size >> 20 & 1)) >> 20;
    /* Below: the unit of floats in [2^14, 2^15) is 2^-9, that of E4M3's subnormals. */
    const uint32_t tiny = tl_float_bits(tl_bits_float(size) + 16384.0f) - 0x46800000;
    uint32_t result = size < 0x3C800000 ? tiny : normal;
    result = size >= 0x43E80001 ? 0x7F : result; /* above 464, infinity, NaN */
    return (uint8_t)(sign | result);
}

static inline float tl_convert_f8e4m3_f32(uint8_t v) {
    const uint32_t sign = (uint32_t)(v & 0x80) << 24, rest = v & 0x7F;
    const uint32_t normal = (rest << 20) + 0x3C000000; /* rebias by 127 - 7 */
    const uint32_t tiny = tl_float_bits((float)(int32_t)rest * 0x1p-9f);
    uint32_t result = rest < 8 ? tiny : normal;
    result = rest == 0x7F ? 0x7FC00000 : result;
    return tl_bits_float(sign | result);
}

/* OCP E5M2: the upper half of binary16, bias 15, 2 fraction bits. */
static inline uint8_t tl_convert_f32_f8e5m2(float value) {
    const uint32_t bits = tl_float_bits(value), sign = bits >> 24 & 0x80, size = bits & 0x7FFFFFFF;
    /* 2^-14 and more: rebias the exponent by 15 - 127, round away 21 bits. 61440 carries into infinity by itself. */
    const uint32_t normal = (size - 0x38000000 + 0xFFFFF + (size >> 21 & 1)) >> 21;
    /* Below: the unit of floats in [2^7, 2^8) is 2^-16, that of E5M2's subnormals. */
    const uint32_t tiny = tl_float_bits(tl_bits_float(size) + 128.0f) - 0x43000000;
    const uint32_t nan = 0x7E | (size >> 21 & 3);
    uint32_t result = size < 0x38800000 ? tiny : normal;
    result = size >= 0x47700000 ? 0x7C : result; /* 61440 and more */
    result = size > 0x7F800000 ? nan : result;
    return (uint8_t)(sign | result);
}

static inline float tl_convert_f8e5m2_f32(uint8_t v) { return tl_convert_f16_f32((uint16_t)(v << 8)); }

/* ±most for what is larger, infinity included; NaN stays. Clamping before rounding: between the largest number and the
 * next that would be, all would round to either. */
static inline float tl_clamp_float(float value, float most) {
    const float low = value < -most ? -most : value;
    return low > most ? most : low;
}

#endif
