/* tally/dtype.h: number formats. */
#ifndef TALLY_DTYPE_H
#define TALLY_DTYPE_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_dtype { TL_F64, TL_F32, TL_BF16, TL_F16, TL_I64, TL_I32, TL_U8, TL_BOOL, TL_DTYPE_COUNT } tl_dtype;

/* Bytes of one element: 8 4 2 2 8 4 1 1. */
int tl_dtype_bytes(tl_dtype dtype);
/* "f64" "f32" "bf16" "f16" "i64" "i32" "u8" "bool". */
const char *tl_dtype_name(tl_dtype dtype);
bool tl_dtype_is_float(tl_dtype dtype);

/* Conversions, rounded to nearest even; subnormals kept; NaN stays NaN (quiet bit set, sign and top payload kept).
 * IEEE 754-2019 for f16, the upper half of f32 for bf16. */
uint16_t tl_f32_to_bf16(float value);
float tl_bf16_to_f32(uint16_t bits);
uint16_t tl_f32_to_f16(float value);
float tl_f16_to_f32(uint16_t bits);

#ifdef __cplusplus
}
#endif
#endif
