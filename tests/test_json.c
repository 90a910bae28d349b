/* The JSON writer. Expected texts follow RFC 8259; shortest reals are what Python's repr() prints, digits alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/json.h"

static void write_sample(tl_json *j) {
    tl_json_object(j);
    tl_json_put_string(j, "name", "gpt2");
    tl_json_put_unsigned(j, "flops", ~(tl_u128)0);
    tl_json_put_integer(j, "least", INT64_MIN);
    tl_json_put_boolean(j, "fits", true);
    tl_json_key(j, "list");
    tl_json_array(j);
    tl_json_integer(j, 1);
    tl_json_null(j);
    tl_json_array(j);
    tl_json_end(j);
    tl_json_object(j);
    tl_json_end(j);
    tl_json_end(j);
    tl_json_put_real(j, "half", 0.5);
    tl_json_put_string(j, "none", NULL);
    tl_json_end(j);
}

static void test_structure(void **state) {
    (void)state;
    size_t length = 0;
    tl_json *j = tl_json_new(NULL, 0);
    write_sample(j);
    assert_string_equal(tl_json_text(j, &length),
                        "{\"name\":\"gpt2\",\"flops\":340282366920938463463374607431768211455,"
                        "\"least\":-9223372036854775808,\"fits\":true,\"list\":[1,null,[],{}],\"half\":0.5,"
                        "\"none\":null}");
    assert_int_equal(length, strlen(tl_json_text(j, NULL)));
    tl_json_free(j);
    j = tl_json_new(NULL, 2);
    write_sample(j);
    assert_string_equal(tl_json_text(j, NULL), "{\n  \"name\": \"gpt2\",\n"
                                               "  \"flops\": 340282366920938463463374607431768211455,\n"
                                               "  \"least\": -9223372036854775808,\n  \"fits\": true,\n"
                                               "  \"list\": [\n    1,\n    null,\n    [],\n    {}\n  ],\n"
                                               "  \"half\": 0.5,\n  \"none\": null\n}");
    tl_json_free(j);
    j = tl_json_new(NULL, 0);
    assert_string_equal(tl_json_text(j, NULL), "");
    tl_json_free(j);
}

static void expect_text(const char *text, const char *json) {
    tl_json *j = tl_json_new(NULL, 0);
    tl_json_string(j, text);
    assert_string_equal(tl_json_text(j, NULL), json);
    tl_json_free(j);
}

static void test_escapes(void **state) {
    (void)state;
    expect_text("", "\"\"");
    expect_text("a\"b\\c/", "\"a\\\"b\\\\c/\"");
    expect_text("\b\f\n\r\t", "\"\\b\\f\\n\\r\\t\"");
    expect_text("\x01\x0b\x1f\x7f", "\"\\u0001\\u000b\\u001f\x7f\"");
    expect_text("4·D² 😀", "\"4·D² 😀\"");
    expect_text("\xff", "\"\\u00ff\"");
    expect_text("a\x80z", "\"a\\u0080z\"");
    expect_text("\xc0\xaf", "\"\\u00c0\\u00af\"");            /* overlong "/" */
    expect_text("\xed\xa0\x80", "\"\\u00ed\\u00a0\\u0080\""); /* a surrogate */
    expect_text("\xf4\x90\x80\x80", "\"\\u00f4\\u0090\\u0080\\u0080\"");
    expect_text("\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\""); /* U+10FFFF */
    expect_text("cut \xe2\x82", "\"cut \\u00e2\\u0082\"");
}

static void expect_real(double value, const char *json) {
    tl_json *j = tl_json_new(NULL, 0);
    tl_json_real(j, value);
    assert_string_equal(tl_json_text(j, NULL), json);
    tl_json_free(j);
}

static void test_reals(void **state) {
    (void)state;
    expect_real(0, "0.0");
    expect_real(-0.0, "-0.0");
    expect_real(1, "1.0");
    expect_real(-2.5, "-2.5");
    expect_real(0.1, "0.1");
    expect_real(0.1 + 0.2, "0.30000000000000004");
    expect_real(100, "100.0");
    expect_real(123456.789, "123456.789");
    expect_real(0.00012, "0.00012");
    expect_real(1e15, "1000000000000000.0");
    expect_real(1e16, "1e16");
    expect_real(1.5e300, "1.5e300");
    expect_real(1e-7, "1e-7");
    expect_real(5e-324, "5e-324");
    expect_real(0x1.fffffffffffffp1023, "1.7976931348623157e308");
    expect_real(9007199254740993.0, "9007199254740992.0");
    expect_real((double)NAN, "null");
    expect_real(-(double)INFINITY, "null");
}

static void test_reals_read_back(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (int i = 0; i < 5000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        union {
            uint64_t bits;
            double value;
        } random = {seed};
        if (!isfinite(random.value))
            continue;
        tl_json *j = tl_json_new(NULL, 0);
        tl_json_real(j, random.value);
        assert_true(strtod(tl_json_text(j, NULL), NULL) == random.value);
        tl_json_free(j);
    }
}

typedef struct failing {
    int left;
} failing;

static void *failing_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    failing *f = self;
    return f->left-- > 0 ? tl_allocator_default()->alloc(NULL, bytes, align, kind) : NULL;
}

static void failing_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    (void)self;
    tl_allocator_default()->release(NULL, pointer, bytes, kind);
}

static void test_memory(void **state) {
    (void)state;
    for (int allowed = 0; allowed < 6; allowed++) {
        failing f = {allowed};
        const tl_allocator allocator = {failing_alloc, failing_release, &f};
        tl_json *j = tl_json_new(&allocator, 1);
        assert_true((j != NULL) == (allowed >= 2));
        tl_json_array(j); /* a missing writer is a failed one */
        for (int i = 0; i < 1000; i++)
            tl_json_integer(j, i);
        tl_json_end(j);
        /* 1 kB grows to 8 kB in three steps. */
        assert_true((tl_json_text(j, NULL) != NULL) == (allowed >= 5));
        tl_json_free(j);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structure),       cmocka_unit_test(test_escapes), cmocka_unit_test(test_reals),
        cmocka_unit_test(test_reals_read_back), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
