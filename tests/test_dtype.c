/* Number formats: every 8- and 16-bit pattern, the cases of shared/FAULTS.md, the vectors of web-platform-tests, and a dense
 * sample of float32 against a slow oracle; what a format holds and what two make together, against PyTorch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/promotion.h"
#include "format_oracle.h"
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

/* ---- against the oracle ---- */

static void check_one(const oracle_format *f, uint32_t bits, bool saturating, uint32_t got) {
    const uint32_t want = oracle_round(f, bits, saturating, NULL);
    if (got != want)
        fail_msg("%s of 0x%08X%s is 0x%X, not 0x%X", f->name, bits, saturating ? ", saturating," : "", got, want);
}

static void check_float(uint32_t bits) {
    const float value = of_bits(bits);
    check_one(&oracle_f16, bits, false, tl_f32_to_f16(value));
    check_one(&oracle_bf16, bits, false, tl_f32_to_bf16(value));
    for (int saturating = 0; saturating < 2; saturating++) {
        check_one(&oracle_f8e4m3, bits, saturating, tl_f32_to_f8e4m3(value, saturating));
        check_one(&oracle_f8e5m2, bits, saturating, tl_f32_to_f8e5m2(value, saturating));
    }
}

static void test_floats_against_oracle(void **state) {
    (void)state;
    /* Every upper half with the lower halves around each tie, then a stride that shares no factor with 2^32. */
    static const uint32_t low[] = {0,      1,      0x0FFF, 0x1000, 0x1001, 0x1FFF,
                                   0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    /* 8-bit formats: ties lie at bits 19 and 20 of normal numbers, further up of subnormal ones; upper halves hold all. */
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
    /* About the subnormals of the 8-bit formats and their overflow: 2^-10 and 2^-17 are half the smallest, 464 and 61440
     * the largest ties. */
    static const uint32_t about[] = {0x3A800000, 0x37000000, 0x43E80000, 0x47700000, 0x3C800000, 0x38800000};
    for (size_t i = 0; i < sizeof about / sizeof about[0]; i++)
        for (uint32_t bits = about[i] - 300; bits < about[i] + 300; bits++) {
            check_float(bits);
            check_float(bits | 0x80000000);
        }
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
            assert_true(fabs((double)f) == oracle_value(&oracle_f16, magnitude));
        assert_int_equal(bits_of(b), p << 16);
        /* Signalling NaNs come back quiet, all else as it was. */
        assert_int_equal(tl_f32_to_f16(f), magnitude > 0x7C00 ? (p | 0x0200) : p);
        assert_int_equal(tl_f32_to_bf16(b), magnitude > 0x7F80 ? (p | 0x0040) : p);
    }
}

static void test_all_bytes_round_trip(void **state) {
    (void)state;
    for (uint32_t p = 0; p < 0x100; p++) {
        const uint8_t byte = (uint8_t)p, magnitude = byte & 0x7F;
        const float a = tl_f8e4m3_to_f32(byte), b = tl_f8e5m2_to_f32(byte);
        assert_int_equal(bits_of(a) >> 31, p >> 7);
        assert_int_equal(bits_of(b) >> 31, p >> 7);
        assert_int_equal(isnan(a) != 0, magnitude == 0x7F);
        assert_int_equal(isnan(b) != 0, magnitude > 0x7C);
        assert_false(isinf(a));
        assert_int_equal(isinf(b) != 0, magnitude == 0x7C);
        if (magnitude < 0x7F)
            assert_true(fabs((double)a) == oracle_value(&oracle_f8e4m3, magnitude));
        if (magnitude < 0x7C)
            assert_true(fabs((double)b) == oracle_value(&oracle_f8e5m2, magnitude));
        assert_int_equal(tl_f32_to_f8e4m3(a, false), p);
        assert_int_equal(tl_f32_to_f8e4m3(a, true), p);
        /* the signalling NaN 0x7D comes back quiet; saturating, infinity is the largest number */
        assert_int_equal(tl_f32_to_f8e5m2(b, false), magnitude == 0x7D ? (p | 2) : p);
        assert_int_equal(tl_f32_to_f8e5m2(b, true), magnitude == 0x7D ? (p | 2) : magnitude == 0x7C ? p - 1 : p);
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
    /* E4M3: 464 is a tie to 448, 465 and infinity are too large; -NaN keeps its sign; saturation at 448, not 256. */
    assert_int_equal(tl_f32_to_f8e4m3(464, false), 0x7E);
    assert_int_equal(tl_f32_to_f8e4m3(464, true), 0x7E);
    assert_int_equal(tl_f32_to_f8e4m3(465, false), 0x7F);
    assert_int_equal(tl_f32_to_f8e4m3(465, true), 0x7E);
    assert_int_equal(tl_f32_to_f8e4m3(-465, true), 0xFE);
    assert_int_equal(tl_f32_to_f8e4m3(INFINITY, false), 0x7F);
    assert_int_equal(tl_f32_to_f8e4m3(-INFINITY, false), 0xFF);
    assert_int_equal(tl_f32_to_f8e4m3(INFINITY, true), 0x7E);
    assert_int_equal(tl_f32_to_f8e4m3(of_bits(0xFFC00000), false), 0xFF);
    assert_int_equal(tl_f32_to_f8e4m3(of_bits(0xFFC00000), true), 0xFF);
    assert_true(tl_f8e4m3_to_f32(0x7E) == 448);
    /* OCP specification, table 3: E5M2 */
    assert_int_equal(tl_f32_to_f8e5m2(61439, false), 0x7B);
    assert_int_equal(tl_f32_to_f8e5m2(61440, false), 0x7C);
    assert_int_equal(tl_f32_to_f8e5m2(61440, true), 0x7B);
    assert_int_equal(tl_f32_to_f8e5m2(-INFINITY, false), 0xFC);
    assert_int_equal(tl_f32_to_f8e5m2(-INFINITY, true), 0xFB);
    assert_int_equal(tl_f32_to_f8e5m2(of_bits(0xFFC00000), true), 0xFE);
}

/* Stanford CS336, lecture 2: 1e-8 underflows in float16 and not in bfloat16; FP8: E4M3 holds [-448, 448], E5M2
 * [-57344, 57344]. */
static void test_lecture_facts(void **state) {
    (void)state;
    assert_int_equal(tl_f32_to_f16(1e-8f), 0);
    assert_true(tl_bf16_to_f32(tl_f32_to_bf16(1e-8f)) != 0);
    assert_true(fabs((double)tl_bf16_to_f32(tl_f32_to_bf16(1e-8f)) / 1e-8 - 1) < 0x1p-8);
    assert_true(tl_dtype_finfo(TL_F8E4M3)->largest == 448);
    assert_true(tl_dtype_finfo(TL_F8E5M2)->largest == 57344);
    assert_true(tl_f8e4m3_to_f32(0xFE) == -448);
    assert_true(tl_f8e5m2_to_f32(0xFB) == -57344);
}

/* ---- what a format holds ---- */

static void check_finfo(tl_dtype dtype, const oracle_format *f) {
    const tl_finfo *info = tl_dtype_finfo(dtype);
    assert_non_null(info);
    assert_int_equal(info->bits, 8 * tl_dtype_bytes(dtype));
    assert_int_equal(info->bits, 1 + info->exponent_bits + info->mantissa_bits);
    assert_int_equal(info->exponent_bits, f->exponent_bits);
    assert_int_equal(info->mantissa_bits, f->fraction_bits);
    assert_true(info->largest == oracle_value(f, oracle_top(f) - 1));
    assert_true(info->smallest_normal == oracle_value(f, 1u << f->fraction_bits));
    assert_true(info->smallest_subnormal == oracle_value(f, 1));
    const uint32_t one = ((1u << (f->exponent_bits - 1)) - 1) << f->fraction_bits;
    assert_true(oracle_value(f, one) == 1);
    assert_true(info->epsilon == oracle_value(f, one + 1) - 1);
    assert_int_equal(info->has_infinity, !f->no_infinity);
    assert_true(info->has_nan);
}

static void test_finfo(void **state) {
    (void)state;
    static const oracle_format binary32 = {"f32", 8, 23, false};
    check_finfo(TL_F32, &binary32);
    check_finfo(TL_BF16, &oracle_bf16);
    check_finfo(TL_F16, &oracle_f16);
    check_finfo(TL_F8E4M3, &oracle_f8e4m3);
    check_finfo(TL_F8E5M2, &oracle_f8e5m2);
    const tl_finfo *wide = tl_dtype_finfo(TL_F64); /* <float.h> is the compiler's */
    assert_true(wide->largest == DBL_MAX && wide->smallest_normal == DBL_MIN && wide->epsilon == DBL_EPSILON);
    assert_true(wide->smallest_subnormal > 0 && wide->smallest_subnormal / 2 == 0);
    assert_true(wide->bits == 64 && wide->exponent_bits == 11 && wide->mantissa_bits == 52 && wide->has_infinity);
    for (int i = 0; i < TL_DTYPE_COUNT; i++) {
        const tl_iinfo *whole = tl_dtype_iinfo((tl_dtype)i);
        assert_true((tl_dtype_finfo((tl_dtype)i) != NULL) == tl_dtype_is_float((tl_dtype)i));
        assert_true((whole != NULL) != tl_dtype_is_float((tl_dtype)i));
        assert_int_equal(tl_dtype_is_integer((tl_dtype)i), whole && i != TL_BOOL);
        if (!whole)
            continue;
        assert_int_equal(whole->bits, 8 * tl_dtype_bytes((tl_dtype)i));
        assert_int_equal(whole->is_signed, tl_dtype_name((tl_dtype)i)[0] == 'i');
        if (i == TL_BOOL)
            assert_true(whole->least == 0 && whole->most == 1);
        else if (whole->is_signed)
            assert_true((double)whole->least == -ldexp(1, whole->bits - 1) && whole->most == -(whole->least + 1));
        else
            assert_true(whole->least == 0 && (double)whole->most == ldexp(1, whole->bits) - 1);
    }
    assert_null(tl_dtype_finfo(TL_DTYPE_COUNT));
    assert_null(tl_dtype_iinfo((tl_dtype)-1));
    assert_false(tl_dtype_is_integer(TL_DTYPE_COUNT));
}

static void test_parse(void **state) {
    (void)state;
    for (int i = 0; i < TL_DTYPE_COUNT; i++) {
        assert_int_equal(tl_dtype_parse(tl_dtype_name((tl_dtype)i)), i);
        assert_non_null(strstr(" " TL_DTYPE_NAMES " ", tl_dtype_name((tl_dtype)i)));
    }
    assert_int_equal(tl_dtype_parse("float8_e4m3fn"), TL_F8E4M3); /* torch's and safetensors' names */
    assert_int_equal(tl_dtype_parse("bfloat16"), TL_BF16);
    assert_int_equal(tl_dtype_parse("half"), TL_F16);
    assert_int_equal(tl_dtype_parse("uint16"), TL_U16);
    static const char *const none[] = {"", "f", "f8", "f166", "F16", "unknown", "float8_e4m3fnuz"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_int_equal(tl_dtype_parse(none[i]), TL_DTYPE_COUNT);
    assert_int_equal(tl_dtype_parse(NULL), TL_DTYPE_COUNT);
}

/* ---- promotion ---- */

static void test_promotion_as_pytorch(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof promotions / sizeof promotions[0]; i++) {
        const char *const *p = promotions[i];
        const tl_dtype a = tl_dtype_parse(p[0]), b = tl_dtype_parse(p[1]);
        assert_true(a != TL_DTYPE_COUNT && b != TL_DTYPE_COUNT);
        if (strcmp(tl_dtype_name(tl_dtype_promote(a, b)), p[2]) != 0)
            fail_msg("%s with %s is %s, not %s", p[0], p[1], tl_dtype_name(tl_dtype_promote(a, b)), p[2]);
    }
}

/* What torch 1.13 has no formats for: as dtype.h says. u16 with another integer is as in numpy. */
static void test_promotion_of_others(void **state) {
    (void)state;
    static const tl_dtype cases[][3] = {
        {TL_F8E4M3, TL_F8E5M2, TL_F16}, {TL_F8E4M3, TL_F16, TL_F16},    {TL_F8E4M3, TL_BF16, TL_BF16},
        {TL_F8E4M3, TL_F32, TL_F32},    {TL_F8E4M3, TL_F64, TL_F64},    {TL_F8E5M2, TL_F16, TL_F16},
        {TL_F8E5M2, TL_BF16, TL_BF16},  {TL_F8E5M2, TL_F32, TL_F32},    {TL_F8E5M2, TL_F64, TL_F64},
        {TL_F8E4M3, TL_I64, TL_F8E4M3}, {TL_F8E5M2, TL_U8, TL_F8E5M2},  {TL_F8E4M3, TL_BOOL, TL_F8E4M3},
        {TL_U16, TL_U8, TL_U16},        {TL_U16, TL_I8, TL_I32},        {TL_U16, TL_I16, TL_I32},
        {TL_U16, TL_I32, TL_I32},       {TL_U16, TL_I64, TL_I64},       {TL_U16, TL_BOOL, TL_U16},
        {TL_U16, TL_F16, TL_F16},       {TL_U16, TL_F8E4M3, TL_F8E4M3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(tl_dtype_promote(cases[i][0], cases[i][1]), cases[i][2]);
    for (int a = 0; a < TL_DTYPE_COUNT; a++) {
        assert_int_equal(tl_dtype_promote((tl_dtype)a, (tl_dtype)a), a);
        for (int b = 0; b < TL_DTYPE_COUNT; b++) {
            const tl_dtype r = tl_dtype_promote((tl_dtype)a, (tl_dtype)b);
            assert_int_equal(r, tl_dtype_promote((tl_dtype)b, (tl_dtype)a));
            assert_int_equal(tl_dtype_promote(r, (tl_dtype)a), r);
        }
    }
    assert_int_equal(tl_dtype_promote(TL_DTYPE_COUNT, TL_F32), TL_DTYPE_COUNT);
    assert_int_equal(tl_dtype_promote(TL_F32, (tl_dtype)-1), TL_DTYPE_COUNT);
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
        cmocka_unit_test(test_all_bytes_round_trip),
        cmocka_unit_test(test_known_faults),
        cmocka_unit_test(test_lecture_facts),
        cmocka_unit_test(test_finfo),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_promotion_as_pytorch),
        cmocka_unit_test(test_promotion_of_others),
        cmocka_unit_test(test_wpt_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
