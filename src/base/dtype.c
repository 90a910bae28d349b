/* The table of number formats, their promotion, and the public conversions. */
#include "tally/dtype.h"

#include <string.h>

#include "base/convert.h"

static const struct format {
    const char *name;
    int bytes;
    bool is_float;
    const char *other[3]; /* names elsewhere */
} formats[TL_DTYPE_COUNT] = {
    [TL_F64] = {"f64", 8, true, {"fp64", "float64", "double"}},
    [TL_F32] = {"f32", 4, true, {"fp32", "float32", "float"}},
    [TL_BF16] = {"bf16", 2, true, {"bfloat16"}},
    [TL_F16] = {"f16", 2, true, {"fp16", "float16", "half"}},
    [TL_I64] = {"i64", 8, false, {"int64", "long"}},
    [TL_I32] = {"i32", 4, false, {"int32", "int"}},
    [TL_U8] = {"u8", 1, false, {"uint8", "byte"}},
    [TL_BOOL] = {"bool", 1, false, {"boolean"}},
    [TL_F8E4M3] = {"f8e4m3", 1, true, {"e4m3", "float8_e4m3fn", "f8e4m3fn"}},
    [TL_F8E5M2] = {"f8e5m2", 1, true, {"e5m2", "float8_e5m2"}},
    [TL_I16] = {"i16", 2, false, {"int16", "short"}},
    [TL_I8] = {"i8", 1, false, {"int8"}},
    [TL_U16] = {"u16", 2, false, {"uint16"}},
};

static bool is_known(tl_dtype dtype) { return (unsigned)dtype < TL_DTYPE_COUNT; }

int tl_dtype_bytes(tl_dtype dtype) { return is_known(dtype) ? formats[dtype].bytes : 0; }
const char *tl_dtype_name(tl_dtype dtype) { return is_known(dtype) ? formats[dtype].name : "unknown"; }
bool tl_dtype_is_float(tl_dtype dtype) { return is_known(dtype) && formats[dtype].is_float; }
bool tl_dtype_is_integer(tl_dtype dtype) { return is_known(dtype) && !formats[dtype].is_float && dtype != TL_BOOL; }

tl_dtype tl_dtype_parse(const char *name) {
    for (int i = 0; name && i < TL_DTYPE_COUNT; i++) {
        if (strcmp(name, formats[i].name) == 0)
            return (tl_dtype)i;
        for (int j = 0; j < 3 && formats[i].other[j]; j++)
            if (strcmp(name, formats[i].other[j]) == 0)
                return (tl_dtype)i;
    }
    return TL_DTYPE_COUNT;
}

/* Written out, not computed: the planner links without libm. tests/test_dtype.c holds them against the patterns. */
const tl_finfo *tl_dtype_finfo(tl_dtype dtype) {
    static const tl_finfo infos[TL_DTYPE_COUNT] = {
        [TL_F64] = {64, 11, 52, 0x1.fffffffffffffp1023, 0x1p-1022, 0x1p-1074, 0x1p-52, true, true},
        [TL_F32] = {32, 8, 23, 0x1.fffffep127, 0x1p-126, 0x1p-149, 0x1p-23, true, true},
        [TL_BF16] = {16, 8, 7, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7, true, true},
        [TL_F16] = {16, 5, 10, 65504, 0x1p-14, 0x1p-24, 0x1p-10, true, true},
        [TL_F8E4M3] = {8, 4, 3, 448, 0x1p-6, 0x1p-9, 0x1p-3, false, true},
        [TL_F8E5M2] = {8, 5, 2, 57344, 0x1p-14, 0x1p-16, 0x1p-2, true, true},
    };
    return tl_dtype_is_float(dtype) ? &infos[dtype] : NULL;
}

const tl_iinfo *tl_dtype_iinfo(tl_dtype dtype) {
    static const tl_iinfo infos[TL_DTYPE_COUNT] = {
        [TL_I64] = {64, true, INT64_MIN, INT64_MAX},
        [TL_I32] = {32, true, INT32_MIN, INT32_MAX},
        [TL_I16] = {16, true, INT16_MIN, INT16_MAX},
        [TL_I8] = {8, true, INT8_MIN, INT8_MAX},
        [TL_U16] = {16, false, 0, UINT16_MAX},
        [TL_U8] = {8, false, 0, UINT8_MAX},
        [TL_BOOL] = {8, false, 0, 1},
    };
    return is_known(dtype) && !tl_dtype_is_float(dtype) ? &infos[dtype] : NULL;
}

/* True if every value of a is one of b, both floating: as many bits of significand, at least that range. */
static bool holds(const tl_finfo *b, const tl_finfo *a) {
    return b->mantissa_bits >= a->mantissa_bits && b->largest >= a->largest &&
           b->smallest_subnormal <= a->smallest_subnormal && b->has_infinity >= a->has_infinity;
}

static tl_dtype promote_floats(tl_dtype a, tl_dtype b) {
    static const tl_dtype rising[] = {TL_F8E4M3, TL_F8E5M2, TL_F16, TL_BF16, TL_F32};
    for (int i = 0; i < (int)(sizeof rising / sizeof rising[0]); i++) {
        const tl_finfo *info = tl_dtype_finfo(rising[i]);
        if (holds(info, tl_dtype_finfo(a)) && holds(info, tl_dtype_finfo(b)))
            return rising[i];
    }
    return TL_F64;
}

static tl_dtype promote_integers(tl_dtype a, tl_dtype b) {
    static const tl_dtype rising[] = {TL_I8, TL_U8, TL_I16, TL_U16, TL_I32};
    const tl_iinfo *x = tl_dtype_iinfo(a), *y = tl_dtype_iinfo(b);
    for (int i = 0; i < (int)(sizeof rising / sizeof rising[0]); i++) {
        const tl_iinfo *info = tl_dtype_iinfo(rising[i]);
        if (info->least <= x->least && info->least <= y->least && info->most >= x->most && info->most >= y->most)
            return rising[i];
    }
    return TL_I64;
}

tl_dtype tl_dtype_promote(tl_dtype a, tl_dtype b) {
    if (!is_known(a) || !is_known(b))
        return TL_DTYPE_COUNT;
    if (a == b || b == TL_BOOL)
        return a;
    if (a == TL_BOOL)
        return b;
    if (formats[a].is_float != formats[b].is_float)
        return formats[a].is_float ? a : b;
    return formats[a].is_float ? promote_floats(a, b) : promote_integers(a, b);
}

uint16_t tl_f32_to_bf16(float value) { return tl_convert_f32_bf16(value); }
float tl_bf16_to_f32(uint16_t bits) { return tl_convert_bf16_f32(bits); }
uint16_t tl_f32_to_f16(float value) { return tl_convert_f32_f16(value); }
float tl_f16_to_f32(uint16_t bits) { return tl_convert_f16_f32(bits); }
uint8_t tl_f32_to_f8e4m3(float value, bool saturating) {
    return tl_convert_f32_f8e4m3(saturating ? tl_clamp_float(value, 448) : value);
}
float tl_f8e4m3_to_f32(uint8_t bits) { return tl_convert_f8e4m3_f32(bits); }
uint8_t tl_f32_to_f8e5m2(float value, bool saturating) {
    return tl_convert_f32_f8e5m2(saturating ? tl_clamp_float(value, 57344) : value);
}
float tl_f8e5m2_to_f32(uint8_t bits) { return tl_convert_f8e5m2_f32(bits); }
