/* tally/dtype.h: number formats.
 *
 *   name    bits  what                                                                                         source
 *   f64 f32 f16   binary64, binary32, binary16                                              IEEE 754-2019, table 3.5
 *   bf16     16   the upper half of binary32: its range, 8 significant bits
 *   f8e4m3    8   1 sign, 4 exponent, 3 mantissa bits; no infinity, S.1111.111 is NaN    OCP 8-bit Floating Point
 *   f8e5m2    8   1 sign, 5 exponent, 2 mantissa bits; infinities and NaN as in binary16 Specification 1.0 (2023), table 1
 *   i64 i32 i16 i8 u16 u8 bool   integers in two's complement; bool is one byte, 0 or 1
 */
#ifndef TALLY_DTYPE_H
#define TALLY_DTYPE_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checkpoints store these numbers: new ones go to the end. */
typedef enum tl_dtype {
    TL_F64,
    TL_F32,
    TL_BF16,
    TL_F16,
    TL_I64,
    TL_I32,
    TL_U8,
    TL_BOOL,
    TL_F8E4M3, /* e4m3fn: finite, no infinity */
    TL_F8E5M2,
    TL_I16,
    TL_I8,
    TL_U16,
    TL_DTYPE_COUNT
} tl_dtype;

/* All names in one line, for messages. */
#define TL_DTYPE_NAMES "f64 f32 f16 bf16 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 u16 bool"

/* Bytes of one element; 0 of what is no format. */
int tl_dtype_bytes(tl_dtype dtype);
/* "f64" "f32" "bf16" …, as in the table above; "unknown" of what is no format. */
const char *tl_dtype_name(tl_dtype dtype);
/* The format of this name, TL_DTYPE_COUNT if there is none. Other usual names are known too: fp32, float32, bfloat16,
 * float8_e4m3fn, e4m3, int8, uint16 … */
tl_dtype tl_dtype_parse(const char *name);
bool tl_dtype_is_float(tl_dtype dtype);
/* Integers, bool not among them. */
bool tl_dtype_is_integer(tl_dtype dtype);

/* ---- what a format holds ---- */

/* Floating formats. All values are exact in double. p mantissa bits, e exponent bits, bias 2^(e−1) − 1 (IEEE 754-2019,
 * 3.3): smallest normal 2^(1 − bias), smallest subnormal 2^(1 − bias − p), epsilon (the step from 1 to the next number)
 * 2^−p, largest 2^bias·(2 − 2^−p); f8e4m3, whose top exponent holds numbers too, 2^(bias + 1)·(2 − 2^(1−p)) = 448. */
typedef struct tl_finfo {
    int bits, exponent_bits, mantissa_bits;
    double largest, smallest_normal, smallest_subnormal, epsilon;
    bool has_infinity, has_nan;
} tl_finfo;
/* NULL of a format that is not floating. */
const tl_finfo *tl_dtype_finfo(tl_dtype dtype);

/* Integers, and bool as 0 … 1. */
typedef struct tl_iinfo {
    int bits;
    bool is_signed;
    int64_t least, most;
} tl_iinfo;
/* NULL of a floating format. */
const tl_iinfo *tl_dtype_iinfo(tl_dtype dtype);

/* ---- promotion ---- */

/* The format of a result of a and b, as PyTorch has it for tensors (torch.promote_types; the table of torch 1.13 is
 * tests/fixtures/promotion.h). Symmetric; a with itself is a. Rules, the first that fits:
 *   - bool gives way to anything.
 *   - An integer gives way to a floating format, whatever their sizes: i64 with f16 is f16.
 *   - Of two floating formats, the smallest that holds all values of both: f16 with bf16 is f32. PyTorch refuses to promote
 *     8-bit formats; here the same rule serves: f8e4m3 or f8e5m2 with f16, bf16, f32, f64 is the latter, and
 *     f8e4m3 with f8e5m2 is f16.
 *   - Of two integers, the smallest that holds both: u8 with i8 is i16. PyTorch refuses u16 with another integer; here
 *     the same rule serves: u16 with u8 is u16, with i8 or i16 it is i32.
 * Of what is no format: TL_DTYPE_COUNT. */
tl_dtype tl_dtype_promote(tl_dtype a, tl_dtype b);

/* ---- conversions ---- */

/* Rounded to nearest even; subnormals kept; NaN stays NaN (quiet bit set, sign and top payload kept). Beyond the largest
 * number, after rounding, is infinity. */
uint16_t tl_f32_to_bf16(float value);
float tl_bf16_to_f32(uint16_t bits);
uint16_t tl_f32_to_f16(float value);
float tl_f16_to_f32(uint16_t bits);

/* The same to 8 bits, where what becomes of too large a number is a choice (OCP specification, 5.2.2, table 3):
 *   saturating      ±448 (e4m3), ±57344 (e5m2), for infinity too
 *   not saturating  NaN of that sign (e4m3), infinity (e5m2), as PyTorch does
 * "Too large" is after rounding: 464 is a tie between 448 and the missing 480 and becomes 448; 465 is too large. e5m2:
 * from 61440 on. NaN stays NaN and keeps its sign in both. */
uint8_t tl_f32_to_f8e4m3(float value, bool saturating);
float tl_f8e4m3_to_f32(uint8_t bits);
uint8_t tl_f32_to_f8e5m2(float value, bool saturating);
float tl_f8e5m2_to_f32(uint8_t bits);

#ifdef __cplusplus
}
#endif
#endif
