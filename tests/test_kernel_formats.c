/* Conversions in kernels against the scalar ones of tally/dtype.h, which test_dtype.c holds against an oracle: every
 * instruction set, every 8- and 16-bit pattern, a dense sample of float32, contiguous and strided; and 64-bit integers
 * and doubles, which must round once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "format_oracle.h"
#include "kernel_arrays.h"

enum { MOST = 1 << 16 };

static tl_array array_of(void *data, tl_dtype dtype, int64_t n, int64_t stride) {
    tl_array a = {.data = data, .dtype = dtype, .ndim = 1, .size = {n}, .stride = {stride}};
    return a;
}

static void convert(const tl_kernels *table, bool saturating, tl_dtype to, void *out, int64_t out_stride, tl_dtype from,
                    const void *in, int64_t in_stride, int64_t n) {
    tl_kcall call = {.n_in = 1, .n_out = 1};
    call.in[0] = array_of((char *)(uintptr_t)in, from, n, in_stride);
    call.out[0] = array_of(out, to, n, out_stride);
    (saturating ? table->copy_saturating : table->copy)(&call);
}

/* The bits of one conversion by the public functions. */
static uint32_t scalar(tl_dtype to, float v, bool saturating) {
    switch (to) {
    case TL_F16:
        return tl_f32_to_f16(v);
    case TL_BF16:
        return tl_f32_to_bf16(v);
    case TL_F8E4M3:
        return tl_f32_to_f8e4m3(v, saturating);
    default:
        return tl_f32_to_f8e5m2(v, saturating);
    }
}

static float widened(tl_dtype from, uint32_t bits) {
    switch (from) {
    case TL_F16:
        return tl_f16_to_f32((uint16_t)bits);
    case TL_BF16:
        return tl_bf16_to_f32((uint16_t)bits);
    case TL_F8E4M3:
        return tl_f8e4m3_to_f32((uint8_t)bits);
    default:
        return tl_f8e5m2_to_f32((uint8_t)bits);
    }
}

static const tl_dtype narrow[] = {TL_F16, TL_BF16, TL_F8E4M3, TL_F8E5M2};

static uint32_t bits_at(const void *data, int bytes, int64_t i) {
    uint32_t bits = 0;
    memcpy(&bits, (const char *)data + i * bytes, (size_t)bytes);
    return bits;
}

#define EACH_TABLE(table)                                                                                              \
    for (int isa_ = 0; isa_ < 3; isa_++)                                                                               \
        for (const tl_kernels *table = tl_kernels_for_cpu(table_names[isa_], NULL); table; table = NULL)

static void test_patterns_widen(void **state) {
    (void)state;
    static uint16_t in16[2 * MOST];
    static uint8_t in8[2 * MOST];
    static float out[MOST];
    static double wide[MOST];
    for (int d = 0; d < 4; d++)
        for (int stride = 1; stride <= 2; stride++) {
            const int bytes = tl_dtype_bytes(narrow[d]), n = 1 << 8 * bytes;
            for (int i = 0; i < n; i++) {
                in16[i * stride] = (uint16_t)i;
                in8[i * stride] = (uint8_t)i;
            }
            EACH_TABLE(table) {
                convert(table, false, TL_F32, out, 1, narrow[d], bytes == 2 ? (void *)in16 : (void *)in8, stride, n);
                convert(table, false, TL_F64, wide, 1, narrow[d], bytes == 2 ? (void *)in16 : (void *)in8, stride, n);
                for (int i = 0; i < n; i++) {
                    const float want = widened(narrow[d], (uint32_t)i);
                    if (memcmp(&out[i], &want, sizeof want) != 0)
                        fail_msg("%s, %s 0x%X: %a, not %a", table->name, tl_dtype_name(narrow[d]), i, (double)out[i],
                                 (double)want);
                    assert_true(wide[i] == (double)want || (isnan(wide[i]) && isnan(want)));
                }
            }
        }
}

static void check_block(const tl_kernels *table, const float *in, int64_t in_stride, int64_t n) {
    static uint16_t out[3 * MOST];
    for (int d = 0; d < 4; d++)
        for (int saturating = 0; saturating < 2; saturating++) {
            const int bytes = tl_dtype_bytes(narrow[d]);
            const int64_t out_stride = in_stride == 1 ? 1 : 3;
            convert(table, saturating, narrow[d], out, out_stride, TL_F32, in, in_stride, n);
            for (int64_t i = 0; i < n; i++) {
                const uint32_t want = scalar(narrow[d], in[i * in_stride], saturating);
                const uint32_t got = bits_at(out, bytes, i * out_stride);
                if (got != want)
                    fail_msg("%s, %s of %a%s: 0x%X, not 0x%X", table->name, tl_dtype_name(narrow[d]),
                             (double)in[i * in_stride], saturating ? ", saturating" : "", got, want);
            }
        }
}

static void test_floats_narrow(void **state) {
    (void)state;
    static float in[2 * MOST];
    /* Every upper half with lower halves around the ties, then a stride that shares no factor with 2^32. */
    static const uint32_t low[] = {0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    EACH_TABLE(table) {
        for (size_t l = 0; l < sizeof low / sizeof low[0]; l++)
            for (int stride = 1; stride <= 2; stride++) {
                for (uint32_t i = 0; i < MOST; i++) {
                    const uint32_t bits = i << 16 | low[l];
                    memcpy(&in[i * (uint32_t)stride], &bits, sizeof bits);
                }
                check_block(table, in, stride, MOST);
            }
        uint64_t bits = 0;
        while (bits <= UINT32_MAX) {
            int64_t n = 0;
            for (; n < MOST && bits <= UINT32_MAX; n++, bits += 4567) {
                const uint32_t word = (uint32_t)bits;
                memcpy(&in[n], &word, sizeof word);
            }
            check_block(table, in, 1, n);
        }
    }
}

/* Just beside every tie of f8, further than a float can say: two roundings would go to even. */
static void test_doubles_round_once(void **state) {
    (void)state;
    const oracle_format *const formats[] = {&oracle_f16, &oracle_bf16, &oracle_f8e4m3, &oracle_f8e5m2};
    EACH_TABLE(table)
    for (int d = 0; d < 4; d++) {
        const oracle_format *f = formats[d];
        for (uint32_t p = 0; p < oracle_top(f); p++) {
            const double tie = (oracle_value(f, p) + oracle_value(f, p + 1)) / 2, unit = ldexp(tie, -50);
            const double in[] = {tie - unit, tie, tie + unit, -(tie + unit)};
            uint16_t out[4];
            convert(table, false, narrow[d], out, 1, TL_F64, in, 1, 4);
            const int bytes = tl_dtype_bytes(narrow[d]);
            const uint32_t even = p & 1 ? p + 1 : p, sign = 1u << (8 * bytes - 1);
            const uint32_t want[] = {p, even, p + 1, sign | (p + 1)};
            for (int i = 0; i < 4; i++)
                if (bits_at(out, bytes, i) != want[i])
                    fail_msg("%s, %s of %a: 0x%X, not 0x%X", table->name, f->name, in[i], bits_at(out, bytes, i),
                             want[i]);
        }
    }
}

/* From ints: f8 rounds to nearest even and overflows as floats do; ints saturate at the ends of the narrower format. */
static void test_ints(void **state) {
    (void)state;
    static const int64_t in[] = {0,   1,   -1,   17,    18,    19,     25,        448,
                                 464, 465, -465, 61439, 61440, -61440, INT64_MAX, INT64_MIN};
    enum { N = sizeof in / sizeof in[0] };
    static const double e4m3[] = {0, 1, -1, 16, 18, 20, 24, 448, 448, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    static const double e5m2[] = {0,   1,   -1,   16,    16,       20,        24,       448,
                                  448, 448, -448, 57344, INFINITY, -INFINITY, INFINITY, -INFINITY};
    EACH_TABLE(table) {
        for (int saturating = 0; saturating < 2; saturating++)
            for (int wide = 0; wide < 2; wide++) { /* as i64, as i32 */
                int32_t in32[N];
                const int n = wide ? N - 2 : N;
                for (int i = 0; i < n; i++)
                    in32[i] = wide ? (int32_t)in[i] : 0;
                const void *from = wide ? (const void *)in32 : (const void *)in;
                for (int d = 2; d < 4; d++) {
                    uint8_t out[N];
                    const double *want = d == 2 ? e4m3 : e5m2, most = d == 2 ? 448 : 57344;
                    convert(table, saturating, narrow[d], out, 1, wide ? TL_I32 : TL_I64, from, 1, n);
                    for (int i = 0; i < n; i++) {
                        double w = want[i];
                        if (saturating && (isnan(w) || isinf(w)))
                            w = in[i] < 0 ? -most : most;
                        CLOSE(widened(narrow[d], out[i]), w, 0);
                    }
                }
            }
        int16_t i16[N];
        int8_t i8[N];
        uint16_t u16[N];
        uint8_t u8[N];
        convert(table, false, TL_I16, i16, 1, TL_I64, in, 1, N);
        convert(table, false, TL_I8, i8, 1, TL_I64, in, 1, N);
        convert(table, false, TL_U16, u16, 1, TL_I64, in, 1, N);
        convert(table, false, TL_U8, u8, 1, TL_I64, in, 1, N);
        for (int i = 0; i < N; i++) {
            assert_int_equal(i16[i], in[i] < -32768 ? -32768 : in[i] > 32767 ? 32767 : in[i]);
            assert_int_equal(i8[i], in[i] < -128 ? -128 : in[i] > 127 ? 127 : in[i]);
            assert_int_equal(u16[i], in[i] < 0 ? 0 : in[i] > 65535 ? 65535 : in[i]);
            assert_int_equal(u8[i], in[i] < 0 ? 0 : in[i] > 255 ? 255 : in[i]);
        }
    }
}

/* Arithmetic in a narrow format: in float (64-bit ints), then one rounding (the low bits). */
static void test_arithmetic(void **state) {
    (void)state;
    const int64_t size[2] = {3, 37};
    static const tl_dtype floats[] = {TL_F8E4M3, TL_F8E5M2}, ints[] = {TL_I16, TL_I8, TL_U16, TL_U8};
    EACH_TABLE(table)
    for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
        for (int d = 0; d < 2; d++) {
            box a = box_make(floats[d], 2, size, layout), b = box_make(floats[d], 2, size, LAYOUT_PLAIN),
                y = box_make(floats[d], 2, size, (layout + 1) % LAYOUT_COUNT);
            box_random(&a, 7, -4, 4);
            box_random(&b, 8, -4, 4);
            run(table->mul, NULL, (box *[]){&a, &b}, 2, (box *[]){&y}, 1, NULL, 0);
            for (int64_t i = 0; i < count_of(2, size); i++)
                CLOSE(box_get(&y, i), rounded(floats[d], box_get(&a, i) * box_get(&b, i)), 0);
            box_free(&a);
            box_free(&b);
            box_free(&y);
        }
        for (int d = 0; d < 4; d++) {
            box a = box_make(ints[d], 2, size, layout), y = box_make(ints[d], 2, size, LAYOUT_PLAIN),
                s = box_make(TL_I64, 2, (int64_t[]){3, 1}, LAYOUT_PLAIN);
            box_random(&a, 9, 0, 127);
            run(table->mul, NULL, (box *[]){&a, &a}, 2, (box *[]){&y}, 1, NULL, 0);
            run(table->sum, NULL, (box *[]){&a}, 1, (box *[]){&s}, 1, NULL, 0);
            for (int64_t row = 0; row < 3; row++) {
                int64_t sum = 0;
                for (int64_t i = row * size[1]; i < (row + 1) * size[1]; i++) {
                    const int64_t v = box_get_int(&a, i), square = v * v;
                    sum += v;
                    const int64_t want = ints[d] == TL_I16   ? (int16_t)square
                                         : ints[d] == TL_I8  ? (int8_t)square
                                         : ints[d] == TL_U16 ? (uint16_t)square
                                                             : (uint8_t)square;
                    assert_int_equal(box_get_int(&y, i), want);
                }
                assert_int_equal(box_get_int(&s, row), sum); /* beyond what i8 holds */
            }
            box_free(&a);
            box_free(&y);
            box_free(&s);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns_widen),     cmocka_unit_test(test_floats_narrow),
        cmocka_unit_test(test_doubles_round_once), cmocka_unit_test(test_ints),
        cmocka_unit_test(test_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
