/* Number formats: every 16-bit pattern, the cases of shared/FAULTS.md, the vectors of web-platform-tests, and a dense
 * sample of float32 against a slow oracle in exact double arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/dtype.h"

static float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void test_table(void **state) {
    (void)state;
    static const int bytes[] = {8, 4, 2, 2, 8, 4, 1, 1, 1, 1, 2, 1, 2};
    static const char *const names[] = {"f64",  "f32",    "bf16",   "f16", "i64", "i32", "u8",
                                        "bool", "f8e4m3", "f8e5m2", "i16", "i8",  "u16"};
    assert_int_equal(TL_DTYPE_COUNT, 13);
    for (int i = 0; i < TL_DTYPE_COUNT; i++) {
        assert_int_equal(tl_dtype_bytes((tl_dtype)i), bytes[i]);
        assert_string_equal(tl_dtype_name((tl_dtype)i), names[i]);
        assert_int_equal(tl_dtype_is_float((tl_dtype)i), i < 4 || i == 8 || i == 9);
    }
    assert_int_equal(tl_dtype_bytes((tl_dtype)99), 0);
    assert_string_equal(tl_dtype_name(TL_DTYPE_COUNT), "unknown");
    assert_false(tl_dtype_is_float((tl_dtype)-1));
}

/* ---- the oracle: formats by their definition (IEEE 754-2019, 3.4), all values exact in double ---- */

typedef struct format {
    int exponent_bits, fraction_bits;
} format;

static const format binary16 = {5, 10}, bfloat16 = {8, 7};

/* The value of a finite pattern; for the pattern of infinity the power of two it stands for when rounding. */
static double pattern_value(format f, uint32_t pattern) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1, exponent = (int)(pattern >> f.fraction_bits);
    const double fraction = (double)(pattern & ((1u << f.fraction_bits) - 1));
    if (exponent == 0)
        return ldexp(fraction, 1 - bias - f.fraction_bits);
    return ldexp(fraction + ldexp(1, f.fraction_bits), exponent - bias - f.fraction_bits);
}

static uint32_t oracle(format f, uint32_t bits) {
    const uint32_t sign = (bits >> 31) << (f.exponent_bits + f.fraction_bits);
    const uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.fraction_bits;
    const double size = fabs((double)of_bits(bits));
    if (isnan(size)) {
        const uint32_t payload = (bits & 0x7FFFFF) >> (23 - f.fraction_bits);
        return sign | infinity | payload | 1u << (f.fraction_bits - 1);
    }
    uint32_t low = 0, high = infinity; /* the largest pattern whose value is at most `size` */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (pattern_value(f, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    if (isinf(size))
        return sign | infinity;
    const double down = size - pattern_value(f, low), up = pattern_value(f, high) - size;
    const bool take_high = up < down || (up == down && (low & 1));
    return sign | (take_high ? high : low);
}

static void check_float(uint32_t bits) {
    const float value = of_bits(bits);
    if (tl_f32_to_f16(value) != oracle(binary16, bits))
        fail_msg("f16 of 0x%08X is 0x%04X, not 0x%04X", bits, tl_f32_to_f16(value), oracle(binary16, bits));
    if (tl_f32_to_bf16(value) != oracle(bfloat16, bits))
        fail_msg("bf16 of 0x%08X is 0x%04X, not 0x%04X", bits, tl_f32_to_bf16(value), oracle(bfloat16, bits));
}

static void test_floats_against_oracle(void **state) {
    (void)state;
    /* Every upper half with the lower halves around each tie, then a stride that shares no factor with 2^32. */
    static const uint32_t low[] = {0,      1,      0x0FFF, 0x1000, 0x1001, 0x1FFF,
                                   0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    for (uint32_t high = 0; high < 0x10000; high++)
        for (size_t i = 0; i < sizeof low / sizeof low[0]; i++)
            check_float(high << 16 | low[i]);
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4567)
        check_float((uint32_t)bits);
    /* All about the subnormals of binary16 and its overflow. */
    for (uint32_t bits = 0x33000000 - 2000; bits < 0x33000000 + 2000; bits++)
        check_float(bits);
    for (uint32_t bits = 0x477FE000; bits < 0x47800100; bits++)
        check_float(bits | 0x80000000);
}

static void test_all_patterns_round_trip(void **state) {
    (void)state;
    for (uint32_t p = 0; p < 0x10000; p++) {
        const uint16_t half = (uint16_t)p, magnitude = half & 0x7FFF;
        const float f = tl_f16_to_f32(half), b = tl_bf16_to_f32(half);
        assert_int_equal(bits_of(f) >> 31, p >> 15);
        assert_int_equal(isnan(f) != 0, magnitude > 0x7C00);
        assert_int_equal(isinf(f) != 0, magnitude == 0x7C00);
        assert_int_equal(isnan(b) != 0, magnitude > 0x7F80);
        if (magnitude < 0x7C00)
            assert_true(fabs((double)f) == pattern_value(binary16, magnitude));
        assert_int_equal(bits_of(b), p << 16);
        /* Signalling NaNs come back quiet, all else as it was. */
        assert_int_equal(tl_f32_to_f16(f), magnitude > 0x7C00 ? (p | 0x0200) : p);
        assert_int_equal(tl_f32_to_bf16(b), magnitude > 0x7F80 ? (p | 0x0040) : p);
    }
}

/* shared/FAULTS.md, "Number formats". */
static void test_known_faults(void **state) {
    (void)state;
    assert_int_equal(tl_f32_to_bf16(of_bits(0x3E89CCD5)), 0x3E8A);
    assert_true(tl_bf16_to_f32(0x3E8A) == 0.26953125f);
    assert_true(isnan(tl_bf16_to_f32(tl_f32_to_bf16(of_bits(0x7FFF8C22)))));
    assert_int_equal(tl_f32_to_bf16(of_bits(0x7FFF8C22)), 0x7FFF);
    assert_int_equal(tl_f32_to_bf16(of_bits(0x7F800001)), 0x7FC0);
    assert_int_equal(tl_f32_to_f16(of_bits(0x7F800001)), 0x7E00);
    assert_int_equal(tl_f32_to_f16(of_bits(0xFF800001)), 0xFE00);
    assert_int_equal(tl_f32_to_f16(of_bits(0x38400000)), 0x0300);
    assert_int_equal(bits_of(tl_f16_to_f32(0x0300)), 0x38400000);
}

/* ---- web-platform-tests' vectors; the file's layout is flat enough for strstr ---- */

static char *read_vectors(void) {
    char path[4096];
    const char *shared = getenv("TALLY_SHARED");
    const int length =
        snprintf(path, sizeof path, "%s/suites/wpt-f16-rounding-vectors.json", shared ? shared : "../shared");
    assert_true(length > 0 && (size_t)length < sizeof path);
    FILE *file = fopen(path, "rb");
    if (!file) {
        print_message("%s: %s; the vectors are NOT checked\n", path, strerror(errno));
        return NULL;
    }
    static char text[8192];
    const size_t count = fread(text, 1, sizeof text - 1, file);
    text[count] = '\0';
    fclose(file);
    return text;
}

/* The numbers of the next "[...]" after `key`, times `unit`; returns how many. */
static int read_list(const char *text, const char *key, double unit, double *out, int limit) {
    const char *p = strstr(text, key);
    assert_non_null(p);
    p = strchr(p, '[');
    assert_non_null(p);
    int count = 0;
    for (p++; *p && *p != ']' && count < limit;) {
        p += strspn(p, ", \"");
        char *end = NULL;
        out[count++] = strtod(p, &end) * unit;
        assert_true(end != p);
        p = end + strspn(end, "\", ");
    }
    return count;
}

static void check_group(const char *text, const char *group, const char *in_key, double in_unit, const char *out_key,
                        double out_unit) {
    double in[64], out[64];
    text = strstr(text, group);
    assert_non_null(text);
    const int count = read_list(text, in_key, in_unit, in, 64);
    assert_int_equal(count, read_list(text, out_key, out_unit, out, 64));
    assert_true(count >= 10);
    for (int i = 0; i < count; i++) {
        const float result = tl_f16_to_f32(tl_f32_to_f16((float)in[i]));
        if (isnan(out[i]))
            assert_true(isnan(result));
        else if ((double)result != out[i] || !signbit(result) != !signbit(out[i]))
            fail_msg("%s: %.17g became %.9g, not %.17g", group, in[i], (double)result, out[i]);
    }
}

static void test_wpt_vectors(void **state) {
    (void)state;
    const char *text = read_vectors();
    if (!text)
        skip();
    check_group(text, "\"normal_and_ties\"", "\"in\"", 1, "\"out\"", 1);
    check_group(text, "\"subnormal\"", "\"in_as_multiple_of_2^-25\"", 0x1p-25, "\"out_as_multiple_of_2^-24\"", 0x1p-24);
    check_group(text, "\"overflow\"", "\"in\"", 1, "\"out\"", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_floats_against_oracle),
        cmocka_unit_test(test_all_patterns_round_trip),
        cmocka_unit_test(test_known_faults),
        cmocka_unit_test(test_wpt_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
