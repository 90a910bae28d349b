/* Numbers as people write and read them. Expected values: the examples of shared/UX.md and include/tally/units.h, and
 * exact arithmetic; the doubles of test_rates were printed by Python's float(), which rounds correctly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/units.h"

static void expect_count(const char *text, const char *digits) {
    tl_u128 value = 0;
    tl_error error = {0};
    char buffer[TL_U128_DIGITS];
    if (tl_parse_count(text, &value, &error) != TL_OK)
        fail_msg("\"%s\": %s", text, error.message);
    assert_string_equal(tl_u128_text(value, buffer), digits);
}

static void refuse_count(const char *text, const char *part) {
    tl_u128 value = 77;
    tl_error error = {0};
    if (tl_parse_count(text, &value, &error) == TL_OK)
        fail_msg("\"%s\" was accepted", text);
    assert_true(value == 77);
    if (!strstr(error.message, part))
        fail_msg("\"%s\" is refused with \"%s\", which does not say \"%s\"", text, error.message, part);
}

static void test_counts(void **state) {
    (void)state;
    expect_count("0", "0");
    expect_count("000", "0");
    expect_count("0e999999999999999999999", "0");
    expect_count("70B", "70000000000");
    expect_count("70g", "70000000000");
    expect_count("1.5T", "1500000000000");
    expect_count("15e12", "15000000000000");
    expect_count("15E12", "15000000000000");
    expect_count("15E", "15000000000000000000");
    expect_count("1_000_000", "1000000");
    expect_count("1,000", "1000");
    expect_count("1,234,567.5K", "1234567500");
    expect_count("8.03 B", "8030000000");
    expect_count("100k", "100000");
    expect_count("1e-3K", "1");
    expect_count("0.000001M", "1");
    expect_count(".5K", "500");
    expect_count("1.000000000000000000000000000000000000000000000000000000000", "1");
    expect_count("1000000000000000000000000000000000000000000000e-45", "1");
    /* 2^127, and Python's 2**127 - 1. */
    expect_count("170141183460469231731687303715884105728", "170141183460469231731687303715884105728");
    expect_count("170141183460469231731687303715884105727", "170141183460469231731687303715884105727");
}

static void test_refused_counts(void **state) {
    (void)state;
    refuse_count("", "empty");
    refuse_count("-1", "\"-1\"");
    refuse_count("-1", "negative");
    refuse_count("nan", "\"nan\"");
    refuse_count("inf", "not a number");
    refuse_count("abc", "70B");
    refuse_count("12x", "\"12x\"");
    refuse_count("12 ", "text after");
    refuse_count(" 12", "not a number");
    refuse_count("+5", "not a number");
    refuse_count("0x10", "text after");
    refuse_count("1m", "use M");
    refuse_count("1.5", "not a whole number");
    refuse_count("1e-1", "not a whole number");
    refuse_count("1e999", "more than 2^127");
    refuse_count("1e99999999999999999999999", "more than 2^127");
    refuse_count("1e-99999999999999999999999", "not a whole number");
    refuse_count("170141183460469231731687303715884105729", "more than 2^127"); /* 2^127 + 1 */
    refuse_count("340282366920938463463374607431768211457", "more than 2^127"); /* 2^128 + 1 must not wrap to 1 */
    refuse_count("1e", "exponent");
    refuse_count("1e+", "exponent");
    refuse_count("1,5", "separators");
    refuse_count("1,0000", "separators");
    refuse_count("1000,000", "separators");
    refuse_count("1__0", "separators");
    refuse_count("_1", "separators");
    refuse_count("1_", "separators");
    refuse_count(".", "not a number");
    refuse_count("1.2.3", "text after");
    refuse_count("1KB", "text after");
    refuse_count("0.1234567890123456789012345678901234567890123456789", "not a whole number");
    char digits[5001];
    memset(digits, '9', sizeof digits - 1);
    digits[sizeof digits - 1] = '\0';
    refuse_count(digits, "more than 2^127");
    refuse_count(digits, "...");
    tl_u128 value;
    assert_int_equal(tl_parse_count(NULL, &value, NULL), TL_ERR_ARGUMENT);
}

static void test_sizes(void **state) {
    (void)state;
    int64_t value = 77;
    tl_error error = {0};
    assert_int_equal(tl_parse_size("9223372036854775807", &value, &error), TL_OK);
    assert_true(value == INT64_MAX);
    assert_int_equal(tl_parse_size("9223372036854775808", &value, &error), TL_ERR_OVERFLOW);
    assert_non_null(strstr(error.message, "9223372036854775808"));
    assert_true(value == INT64_MAX);
}

static void expect_bytes(const char *text, int64_t bytes) {
    int64_t value = -1;
    tl_error error = {0};
    if (tl_parse_bytes(text, &value, &error) != TL_OK)
        fail_msg("\"%s\": %s", text, error.message);
    assert_true(value == bytes);
}

static void refuse_bytes(const char *text, const char *part) {
    int64_t value = 77;
    tl_error error = {0};
    if (tl_parse_bytes(text, &value, &error) == TL_OK)
        fail_msg("\"%s\" was accepted", text);
    assert_true(value == 77);
    if (!strstr(error.message, part))
        fail_msg("\"%s\" is refused with \"%s\", which does not say \"%s\"", text, error.message, part);
}

static void test_bytes(void **state) {
    (void)state;
    expect_bytes("80GB", INT64_C(80000000000));
    expect_bytes("80GiB", INT64_C(85899345920));
    expect_bytes("80 GB", INT64_C(80000000000));
    expect_bytes("80gb", INT64_C(80000000000));
    expect_bytes("512MiB", INT64_C(536870912));
    expect_bytes("1e9B", INT64_C(1000000000));
    expect_bytes("85899345920", INT64_C(85899345920));
    expect_bytes("1.5GiB", INT64_C(1610612736));
    expect_bytes("0.5kB", 500);
    expect_bytes("1EB", INT64_C(1000000000000000000));
    expect_bytes("7EiB", INT64_C(8070450532247928832));
    expect_bytes("1_024KiB", 1048576);
    refuse_bytes("80G", "80GB");
    refuse_bytes("80G", "80GiB");
    refuse_bytes("80Gi", "80GiB");
    refuse_bytes("80 G", "80GB");
    refuse_bytes("80g", "80GiB");
    refuse_bytes("1E", "1EiB");
    refuse_bytes("16K", "16kB");
    refuse_bytes("80Gb", "bits");
    refuse_bytes("80b", "known");
    refuse_bytes("80XB", "known");
    refuse_bytes("80GBs", "known");
    refuse_bytes("8EiB", "2^63");
    refuse_bytes("1.1GiB", "not a whole number");
    refuse_bytes("-1", "negative");
    refuse_bytes("", "empty");
    refuse_bytes("1e999", "2^127");
    refuse_bytes("nan", "not a number");
}

static void expect_rate(const char *text, double rate) {
    double value = -1;
    tl_error error = {0};
    if (tl_parse_rate(text, &value, &error) != TL_OK)
        fail_msg("\"%s\": %s", text, error.message);
    if (value != rate)
        fail_msg("\"%s\" became %.17g, not %.17g", text, value, rate);
}

static void refuse_rate(const char *text) {
    double value = 77;
    tl_error error = {0};
    if (tl_parse_rate(text, &value, &error) == TL_OK)
        fail_msg("\"%s\" was accepted", text);
    assert_true(value == 77);
    assert_non_null(strstr(error.message, text));
}

static void test_rates(void **state) {
    (void)state;
    expect_rate("989.4e12", 989.4e12);
    expect_rate("989.4T", 989.4e12);
    expect_rate("989.4TFLOP/s", 989.4e12);
    expect_rate("989.4 TFLOP/s", 989.4e12);
    expect_rate("1.979P", 1.979e15);
    expect_rate("312TFLOPS", 312e12);
    expect_rate("5FLOP/s", 5);
    expect_rate("1.7976931348623157e308", 0x1.fffffffffffffp1023);
    expect_rate("1.7976931348623158e308", 0x1.fffffffffffffp1023);
    expect_rate("5e-324", 0x1p-1074);
    expect_rate("2.4703282292062328e-324", 0x1p-1074); /* just above half of the least subnormal */
    expect_rate("2.2250738585072011e-308", 0x0.fffffffffffffp-1022);
    expect_rate("2.2250738585072014e-308", 0x1p-1022);
    expect_rate("9007199254740993", 0x1p53);                                       /* a tie, to even */
    expect_rate("9007199254740993.000000000000000000000000000000001", 0x1p53 + 2); /* and just above it */
    const char *const refused[] = {"0",       "-1",          "nan", "inf", "1e999",          "1.8e308", "1e-400",
                                   "989.4Tx", "989.4TFLOP/", "1m",  "1e",  "989.4 T FLOP/s", "12x"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        refuse_rate(refused[i]);
    double value;
    assert_int_equal(tl_parse_rate("", &value, NULL), TL_ERR_ARGUMENT);
}

/* Against the C library's strtod, which glibc rounds correctly. */
static void test_doubles_against_strtod(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        char text[80];
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        union {
            uint64_t bits;
            double value;
        } random = {seed & INT64_MAX};
        const int digits = 1 + (int)(seed >> 20) % 45;
        if (!isfinite(random.value) || random.value == 0)
            continue;
        snprintf(text, sizeof text, "%.*e", digits, random.value);
        const double expected = strtod(text, NULL);
        double value = -1;
        if (expected > 0 && isfinite(expected)) {
            assert_int_equal(tl_parse_rate(text, &value, NULL), TL_OK);
            if (value != expected)
                fail_msg("%s became %a, not %a", text, value, expected);
        }
    }
}

static void test_numbers(void **state) {
    (void)state;
    double value = 77;
    tl_error error = {0};
    assert_int_equal(tl_parse_number("-0.25", -1, 1, &value, &error), TL_OK);
    assert_true(value == -0.25);
    assert_int_equal(tl_parse_number("1.5", 0, 1, &value, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "between 0 and 1"));
    assert_non_null(strstr(error.message, "\"1.5\""));
    const char *const refused[] = {"", "-", "--1", "nan", "inf", "1e999", "-1e999", "12x", "1K", "0,5"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_int_equal(tl_parse_number(refused[i], -1e308, 1e308, &value, NULL), TL_ERR_ARGUMENT);
    assert_true(value == -0.25);
}

#define EXPECT(call, expected) assert_string_equal(call, expected)

static void test_texts(void **state) {
    (void)state;
    char b[TL_TEXT];
    EXPECT(tl_text_count(8.03e9, b), "8.03 B");
    EXPECT(tl_text_count(405.9e9, b), "405.9 B");
    EXPECT(tl_text_count(1.23e6, b), "1.23 M");
    EXPECT(tl_text_count(512, b), "512");
    EXPECT(tl_text_count(0, b), "0");
    EXPECT(tl_text_count(0.5, b), "0.50");
    EXPECT(tl_text_count(15e12, b), "15.0 T");
    EXPECT(tl_text_count(999, b), "999");
    EXPECT(tl_text_count(999949, b), "999.9 K");
    EXPECT(tl_text_count(999950, b), "1.00 M");
    EXPECT(tl_text_count(9.6789e6, b), "9.68 M");
    EXPECT(tl_text_count(9.9961e6, b), "10.0 M");
    EXPECT(tl_text_count(99.96e6, b), "100.0 M");
    EXPECT(tl_text_count(-1.5e6, b), "-1.50 M");
    EXPECT(tl_text_count(6.3e24, b), "6.3e24");
    EXPECT(tl_text_bytes(61.2e6, TL_UNITS_SI, b), "61.2 MB");
    EXPECT(tl_text_bytes(61.2e6, TL_UNITS_IEC, b), "58.4 MiB");
    EXPECT(tl_text_bytes(80e9, TL_UNITS_SI, b), "80.0 GB");
    EXPECT(tl_text_bytes(1020.0 * 1048576, TL_UNITS_IEC, b), "1020 MiB");
    EXPECT(tl_text_bytes(1023.9 * 1048576, TL_UNITS_IEC, b), "1.00 GiB");
    EXPECT(tl_text_bytes(1000, TL_UNITS_IEC, b), "1000 B");
    EXPECT(tl_text_bytes(1500, TL_UNITS_SI, b), "1.50 kB");
    EXPECT(tl_text_bytes(0, TL_UNITS_SI, b), "0 B");
    EXPECT(tl_text_flops(4.51e12, b), "4.51 TFLOPs");
    EXPECT(tl_text_flops(3.9e19, b), "39.0 EFLOPs");
    EXPECT(tl_text_flops(3.8e25, b), "38.0 YFLOPs");
    EXPECT(tl_text_flops(3.8e27, b), "3.8e27 FLOPs");
    EXPECT(tl_text_rate(989.4e12, b), "989.4 TFLOP/s");
    EXPECT(tl_text_bandwidth(3.35e12, b), "3.35 TB/s");
    EXPECT(tl_text_rate((double)NAN, b), "nan FLOP/s");
    EXPECT(tl_text_count((double)INFINITY, b), "inf");
    EXPECT(tl_text_power(6.3e24, b), "6.3e24");
    EXPECT(tl_text_power(-1.25e-7, b), "-1.2e-7");
    EXPECT(tl_text_power(9.96, b), "1.0e1");
    EXPECT(tl_text_power(0, b), "0");
    EXPECT(tl_text_grouped(1557611200, b), "1,557,611,200");
    EXPECT(tl_text_grouped(0, b), "0");
    EXPECT(tl_text_grouped(999, b), "999");
    EXPECT(tl_text_grouped(~(tl_u128)0, b), "340,282,366,920,938,463,463,374,607,431,768,211,455");
}

static void test_durations(void **state) {
    (void)state;
    char b[TL_TEXT];
    EXPECT(tl_text_duration(8.70e-6, b), "8.70 us");
    EXPECT(tl_text_duration(12.9e-3, b), "12.9 ms");
    EXPECT(tl_text_duration(3.2 * 3600, b), "3.2 h");
    EXPECT(tl_text_duration(1.2437e7, b), "143.9 days"); /* UX.md: 1.2437e7 s = 143.9 days */
    EXPECT(tl_text_duration(17.4 * 31557600, b), "17.4 years");
    EXPECT(tl_text_duration(0, b), "0 s");
    EXPECT(tl_text_duration(1, b), "1.00 s");
    EXPECT(tl_text_duration(59.97, b), "1.0 min");
    EXPECT(tl_text_duration(90, b), "1.5 min");
    EXPECT(tl_text_duration(999.96e-6, b), "1.00 ms");
    EXPECT(tl_text_duration(250e-9, b), "250.0 ns");
    EXPECT(tl_text_duration(1e20, b), "3.2e12 years");
    EXPECT(tl_text_duration((double)INFINITY, b), "inf s");
}

/* A comma locale changes nothing, in either direction. */
static void test_locale(void **state) {
    (void)state;
    const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    bool set = false;
    for (size_t i = 0; !set && i < sizeof locales / sizeof locales[0]; i++)
        set = setlocale(LC_ALL, locales[i]) != NULL;
    if (!set) {
        print_message("no locale with a decimal comma is installed: locale independence is NOT checked\n");
        skip();
    }
    test_texts(state);
    expect_rate("989.4T", 989.4e12);
    setlocale(LC_ALL, "C");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),    cmocka_unit_test(test_refused_counts),
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_rates),     cmocka_unit_test(test_doubles_against_strtod),
        cmocka_unit_test(test_numbers),   cmocka_unit_test(test_texts),
        cmocka_unit_test(test_durations), cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
