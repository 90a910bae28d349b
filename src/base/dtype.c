/* The table of number formats, and the public conversions. */
#include "tally/dtype.h"

#include "base/convert.h"

static const struct {
    const char *name;
    int bytes;
    bool is_float;
} formats[TL_DTYPE_COUNT] = {
    [TL_F64] = {"f64", 8, true}, [TL_F32] = {"f32", 4, true},    [TL_BF16] = {"bf16", 2, true},
    [TL_F16] = {"f16", 2, true}, [TL_I64] = {"i64", 8, false},   [TL_I32] = {"i32", 4, false},
    [TL_U8] = {"u8", 1, false},  [TL_BOOL] = {"bool", 1, false},
};

static bool is_known(tl_dtype dtype) { return (unsigned)dtype < TL_DTYPE_COUNT; }

int tl_dtype_bytes(tl_dtype dtype) { return is_known(dtype) ? formats[dtype].bytes : 0; }
const char *tl_dtype_name(tl_dtype dtype) { return is_known(dtype) ? formats[dtype].name : "unknown"; }
bool tl_dtype_is_float(tl_dtype dtype) { return is_known(dtype) && formats[dtype].is_float; }

uint16_t tl_f32_to_bf16(float value) { return tl_convert_f32_bf16(value); }
float tl_bf16_to_f32(uint16_t bits) { return tl_convert_bf16_f32(bits); }
uint16_t tl_f32_to_f16(float value) { return tl_convert_f32_f16(value); }
float tl_f16_to_f32(uint16_t bits) { return tl_convert_f16_f32(bits); }
