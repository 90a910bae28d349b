/* Status, the first error, the default allocator, checked arithmetic, text of 128-bit counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tally/base.h"

static void test_first_error_stays(void **state) {
    (void)state;
    tl_error e = {0};
    assert_int_equal(tl_fail(&e, TL_ERR_SHAPE, "found %d, wanted %d", 3, 4), TL_ERR_SHAPE);
    assert_int_equal(tl_fail(&e, TL_ERR_MEMORY, "later"), TL_ERR_MEMORY);
    assert_int_equal(e.status, TL_ERR_SHAPE);
    assert_string_equal(e.message, "found 3, wanted 4");
    tl_error_clear(&e);
    assert_int_equal(e.status, TL_OK);
    assert_string_equal(e.message, "");
    assert_int_equal(tl_fail(NULL, TL_ERR_IO, "nobody listens"), TL_ERR_IO);
    tl_error_clear(NULL);
}

static void test_long_message_ends_in_whole_character(void **state) {
    (void)state;
    static char text[4096];
    for (int shift = 0; shift < 3; shift++) {
        memset(text, 'a', sizeof text);
        for (size_t i = (size_t)shift; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "€", 3);
        text[sizeof text - 1] = '\0';
        tl_error e = {0};
        tl_fail(&e, TL_ERR_FORMAT, "%s", text);
        const size_t length = strlen(e.message);
        assert_true(length < sizeof e.message && length > sizeof e.message - 8);
        assert_string_equal(e.message + length - 3, "...");
        assert_memory_equal(e.message + length - 6, "€", 3);
    }
}

static void test_status_names(void **state) {
    (void)state;
    assert_string_equal(tl_status_name(TL_OK), "ok");
    assert_string_equal(tl_status_name(TL_ERR_SHAPE), "shape");
    assert_string_equal(tl_status_name(TL_ERR_MEMORY), "memory");
    assert_string_equal(tl_status_name(TL_ERR_NOT_FOUND), "not found");
    assert_string_equal(tl_status_name((tl_status)99), "unknown");
}

static void test_default_allocator(void **state) {
    (void)state;
    const tl_allocator *a = tl_allocator_default();
    for (size_t align = 1; align <= 4096; align *= 2) {
        for (size_t bytes = 1; bytes < 300; bytes += 37) {
            void *p = a->alloc(a->self, bytes, align, TL_ALLOC_STORAGE);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % align, 0);
            memset(p, 1, bytes);
            a->release(a->self, p, bytes, TL_ALLOC_STORAGE);
        }
    }
    volatile size_t too_much = SIZE_MAX - 5; /* volatile: gcc would warn about the constant */
    assert_null(a->alloc(a->self, too_much, 64, TL_ALLOC_STORAGE));
}

static void test_checked_i64(void **state) {
    (void)state;
    int64_t out = 5;
    assert_false(tl_add_i64(INT64_MAX, 1, &out));
    assert_false(tl_add_i64(INT64_MIN, -1, &out));
    assert_false(tl_mul_i64(INT64_C(1) << 32, INT64_C(1) << 31, &out));
    assert_false(tl_mul_i64(INT64_MIN, -1, &out));
    assert_true(out == 5);
    assert_true(tl_mul_i64(INT64_C(1) << 31, INT64_C(1) << 31, &out) && out == INT64_C(1) << 62);
    assert_true(tl_add_i64(INT64_MAX, INT64_MIN, &out) && out == -1);
}

static void test_checked_u128(void **state) {
    (void)state;
    const tl_u128 most = ~(tl_u128)0, two64 = (tl_u128)1 << 64;
    tl_u128 out = 5;
    assert_false(tl_add_u128(most, 1, &out));
    assert_false(tl_mul_u128(two64, two64, &out));
    assert_false(tl_mul_u128(most, 2, &out));
    assert_false(tl_mul_u128(most / 3 + 1, 3, &out));
    assert_false(tl_mul_u128(3, most / 3 + 1, &out));
    assert_true(out == 5);
    assert_true(tl_mul_u128(most / 3, 3, &out) && out == most); /* 3 divides 2^128 - 1 */
    assert_true(tl_mul_u128(two64 - 1, two64 + 1, &out) && out == most);
    assert_true(tl_mul_u128(0, most, &out) && out == 0);
    assert_true(tl_add_u128(most - 1, 1, &out) && out == most);
}

static void test_u128_text_and_double(void **state) {
    (void)state;
    char text[TL_U128_DIGITS];
    assert_string_equal(tl_u128_text(0, text), "0");
    assert_string_equal(tl_u128_text(UINT64_MAX, text), "18446744073709551615");
    /* 2^128 - 1, as Python's 2**128 - 1 prints it. */
    assert_string_equal(tl_u128_text(~(tl_u128)0, text), "340282366920938463463374607431768211455");
    assert_true(tl_u128_double((tl_u128)1 << 100) == 0x1p100);
    assert_true(tl_u128_double(((tl_u128)1 << 53) + 1) == 0x1p53);                    /* tie to even, down */
    assert_true(tl_u128_double(((tl_u128)1 << 53) + 3) == 0x1p53 + 4);                /* tie to even, up */
    assert_true(tl_u128_double(((tl_u128)1 << 100) + ((tl_u128)1 << 47)) == 0x1p100); /* tie, far up */
    assert_true(tl_u128_double(((tl_u128)1 << 100) + ((tl_u128)1 << 47) + 1) == 0x1.0000000000001p100);
    assert_true(tl_u128_double(~(tl_u128)0) == 0x1p128);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_error_stays),    cmocka_unit_test(test_long_message_ends_in_whole_character),
        cmocka_unit_test(test_status_names),         cmocka_unit_test(test_default_allocator),
        cmocka_unit_test(test_checked_i64),          cmocka_unit_test(test_checked_u128),
        cmocka_unit_test(test_u128_text_and_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
