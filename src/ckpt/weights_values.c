/* ckpt/weights_values.c: values between a published file and a net. */
#include "ckpt/weights.h"

#include <math.h>
#include <string.h>

#include "base/convert.h"

/* ---- formats ---- */

/* To f32 so that rounding once more, to fewer bits, rounds as if at once: inexact results get an odd last bit (Boldo &
 * Melquiond 2008). */
static float narrow_odd(double value) {
    float near = (float)value;
    if ((double)near == value || isnan(value) || isinf(near))
        return near;
    uint32_t bits = tl_float_bits(near);
    if (fabs((double)near) > fabs(value))
        bits--;
    return tl_bits_float(bits | 1);
}

static bool to_floats(const void *in, tl_dtype from, float *out, int64_t n, bool odd) {
    const double *f64 = in;
    const float *f32 = in;
    const uint16_t *u16 = in;
    const uint8_t *u8 = in;
    for (int64_t i = 0; i < n; i++)
        switch (from) {
        case TL_F64:
            out[i] = odd ? narrow_odd(f64[i]) : (float)f64[i];
            if (isinf(out[i]) && !isinf(f64[i]))
                return false;
            break;
        case TL_F32:
            out[i] = f32[i];
            break;
        case TL_BF16:
            out[i] = tl_convert_bf16_f32(u16[i]);
            break;
        case TL_F16:
            out[i] = tl_convert_f16_f32(u16[i]);
            break;
        case TL_F8E4M3:
            out[i] = tl_convert_f8e4m3_f32(u8[i]);
            break;
        default:
            out[i] = tl_convert_f8e5m2_f32(u8[i]);
            break;
        }
    return true;
}

static bool from_floats(const float *in, void *out, tl_dtype to, int64_t n) {
    double *f64 = out;
    float *f32 = out;
    uint16_t *u16 = out;
    bool finite = true;
    for (int64_t i = 0; i < n; i++)
        switch (to) {
        case TL_F64:
            f64[i] = (double)in[i];
            break;
        case TL_F32:
            f32[i] = in[i];
            break;
        case TL_BF16:
            u16[i] = tl_convert_f32_bf16(in[i]);
            finite = finite && ((u16[i] & 0x7FFF) != 0x7F80 || isinf(in[i]));
            break;
        default:
            u16[i] = tl_convert_f32_f16(in[i]);
            finite = finite && ((u16[i] & 0x7FFF) != 0x7C00 || isinf(in[i]));
            break;
        }
    return finite;
}

bool tl_weights_convert(const void *in, tl_dtype from, void *out, tl_dtype to, int64_t count) {
    enum { PIECE = 4096 };
    float piece[PIECE];
    const char *src = in;
    char *dst = out;
    bool finite = true;
    if (from == to) {
        memcpy(out, in, (size_t)count * (size_t)tl_dtype_bytes(from));
        return true;
    }
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        finite = to_floats(src + i * tl_dtype_bytes(from), from, piece, n, to != TL_F32) &&
                 from_floats(piece, dst + i * tl_dtype_bytes(to), to, n) && finite;
    }
    return finite;
}

/* ---- transposition ---- */

#define TRANSPOSE(type, to, from)                                                                                      \
    do {                                                                                                               \
        const type *s = src;                                                                                           \
        type *d = dst;                                                                                                 \
        for (int64_t column = 0; column < columns; column++)                                                           \
            for (int64_t row = 0; row < rows; row++)                                                                   \
                d[to] = s[from];                                                                                       \
    } while (0)

void tl_weights_scatter(const void *src, int64_t rows, int64_t columns, void *dst, int64_t dst_row, int width) {
    if (width == 8)
        TRANSPOSE(uint64_t, column * dst_row + row, row * columns + column);
    else if (width == 4)
        TRANSPOSE(uint32_t, column * dst_row + row, row * columns + column);
    else
        TRANSPOSE(uint16_t, column * dst_row + row, row * columns + column);
}

void tl_weights_gather(const void *src, int64_t src_row, void *dst, int64_t rows, int64_t columns, int width) {
    if (width == 8)
        TRANSPOSE(uint64_t, row * columns + column, column * src_row + row);
    else if (width == 4)
        TRANSPOSE(uint32_t, row * columns + column, column * src_row + row);
    else
        TRANSPOSE(uint16_t, row * columns + column, column * src_row + row);
}
