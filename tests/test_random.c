/* Random numbers: published known answers, independence of how they are drawn, moments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/random.h"

/* Random123's examples/kat_vectors, the lines "philox4x32 10": counter, key, result. */
static void test_known_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t seed, stream, counter;
        uint32_t answer[4];
    } known[] = {
        {0, 0, 0, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
        {UINT64_C(0x299F31D0A4093822), /* pi's digits: key words a4093822 299f31d0, low word first */
         UINT64_C(0x0370734413198A2E),
         UINT64_C(0x85A308D3243F6A88),
         {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        tl_random_u32x4(known[i].seed, known[i].stream, known[i].counter, out);
        assert_memory_equal(out, known[i].answer, sizeof out);
    }
}

static void test_uniform_from_known_answer(void **state) {
    (void)state;
    /* By the definition in random.h from the all-zero vector above: 0x6627e8 * 2^-24; 0xe169c58d6627e8d5 >> 11. */
    assert_true(tl_random_uniform_f32(0, 0, 0) == (float)0x6627E8 / 16777216.0f);
    assert_true(tl_random_uniform_f32(0, 0, 3) == (float)0x9B00DB / 16777216.0f);
    assert_true(tl_random_uniform_f64(0, 0, 0) == (double)(UINT64_C(0xE169C58D6627E8D5) >> 11) / 9007199254740992.0);
    assert_true(tl_random_uniform_f64(0, 0, 1) == (double)(UINT64_C(0x9B00DBD8BC57AC4C) >> 11) / 9007199254740992.0);
    assert_true(tl_random_below(0, 0, 0, UINT64_C(1) << 32) == 0xE169C58D);
    assert_true(tl_random_below(0, 0, 5, 1) == 0);
}

static void test_fill_equals_single(void **state) {
    (void)state;
    for (uint64_t first = 0; first < 9; first++) {
        for (int64_t count = 0; count < 11; count++) {
            float uniform[11], normal[11];
            double wide[11];
            tl_random_fill_uniform_f32(7, 8, first, count, uniform);
            tl_random_fill_normal_f32(7, 8, first, count, normal);
            tl_random_fill_normal_f64(7, 8, first, count, wide);
            for (int64_t i = 0; i < count; i++) {
                assert_true(uniform[i] == tl_random_uniform_f32(7, 8, first + (uint64_t)i));
                assert_true(normal[i] == tl_random_normal_f32(7, 8, first + (uint64_t)i));
                assert_true(wide[i] == tl_random_normal_f64(7, 8, first + (uint64_t)i));
                assert_true(normal[i] == (float)wide[i]);
            }
        }
    }
}

/* Means over n draws lie within 5 standard errors; a fixed seed, so this passes always or never. */
static void test_moments(void **state) {
    (void)state;
    enum { COUNT = 200000 };
    double sum = 0, square = 0, fourth = 0, cross = 0, uniform = 0, last = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        const double z = tl_random_normal_f64(42, 1, i), u = tl_random_uniform_f64(42, 2, i);
        assert_true(isfinite(z) && u >= 0 && u < 1);
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
        cross += z * last;
        uniform += u;
        last = z;
    }
    const double error = 1.0 / sqrt(COUNT);
    assert_true(fabs(sum / COUNT) < 5 * error);
    assert_true(fabs(square / COUNT - 1) < 5 * error * sqrt(2));  /* var of z^2 is 2 */
    assert_true(fabs(fourth / COUNT - 3) < 5 * error * sqrt(96)); /* var of z^4 is 105 - 9 */
    assert_true(fabs(cross / COUNT) < 5 * error);
    assert_true(fabs(uniform / COUNT - 0.5) < 5 * error / sqrt(12));
}

static void test_normal_is_box_muller(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 1000; i += 2) {
        const double u = tl_random_uniform_f64(3, 4, i), v = tl_random_uniform_f64(3, 4, i + 1);
        const double a = tl_random_normal_f64(3, 4, i), b = tl_random_normal_f64(3, 4, i + 1);
        /* a^2 + b^2 = -2 log(1-u), and the angle of (a, b) is 2 pi v. */
        assert_true(fabs(a * a + b * b + 2 * log1p(-u)) < 1e-12 * (1 + a * a + b * b));
        double turn = atan2(b, a) / (2 * acos(-1.0));
        assert_true(fabs((turn < 0 ? turn + 1 : turn) - v) < 1e-12);
    }
}

static void test_streams(void **state) {
    (void)state;
    /* FNV-1a 64 as published: empty 0xcbf29ce484222325 (then our zero byte), "foobar" 0x85944171f73967e8, one
     * multiplication by the prime for the zero byte each (a xor with 0). */
    const uint64_t prime = UINT64_C(0x100000001B3);
    assert_true(tl_stream_id("", "") == UINT64_C(0xCBF29CE484222325) * prime);
    assert_true(tl_stream_id("foobar", "") == UINT64_C(0x85944171F73967E8) * prime);
    assert_true(tl_stream_id("ab", "c") != tl_stream_id("a", "bc"));
    assert_true(tl_stream_id("init", "w") != tl_stream_id("data", "w"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),        cmocka_unit_test(test_uniform_from_known_answer),
        cmocka_unit_test(test_fill_equals_single),   cmocka_unit_test(test_moments),
        cmocka_unit_test(test_normal_is_box_muller), cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
