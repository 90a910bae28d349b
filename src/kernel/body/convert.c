/* kernel/body/convert.c: loads and stores with conversion. Contiguous runs autovectorise; one rounding each way.
 *
 * A double on its way to a 16- or 8-bit format passes through a float rounded to odd (Boldo, Melquiond, "Emulation of FMA and
 * correctly rounded sums", 2008): rounding that float to nearest even then gives what one rounding would have. */
#include "base/convert.h"
#include "kernel/body/body.h"

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float from_f64(double v) { return (float)v; }
static inline float from_bf16(uint16_t v) { return float_of_bits((uint32_t)v << 16); }

/* The integer part scales by 2^112 through a product, which also normalises subnormals: exact. */
static inline float from_f16(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, rest = (uint32_t)(v & 0x7FFFu) << 13;
    uint32_t finite = bits_of_float(float_of_bits(rest) * 0x1p112f);
    uint32_t special = rest | 0x7F800000u | ((rest & 0x007FFFFFu) != 0 ? 0x00400000u : 0u);
    return float_of_bits(sign | ((v & 0x7C00u) == 0x7C00u ? special : finite));
}

static inline uint16_t to_bf16(float value) {
    uint32_t bits = bits_of_float(value);
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x0040u;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

static inline uint16_t to_f16(float value) {
    uint32_t bits = bits_of_float(value), sign = (bits >> 16) & 0x8000u, size = bits & 0x7FFFFFFFu;
    /* normal: rebias by −112 and round at bit 13 */
    uint32_t normal = (size - 0x38000000u + 0x0FFFu + ((size >> 13) & 1u)) >> 13;
    /* below 2^−14: adding 0.5 aligns the unit 2^−24 with the float's last bit, and rounds to even */
    uint32_t small = bits_of_float(float_of_bits(size) + 0.5f) - 0x3F000000u;
    uint32_t nan = 0x7E00u | ((size >> 13) & 0x03FFu);
    uint32_t result = size < 0x38800000u ? small : normal;
    result = size >= 0x47800000u ? 0x7C00u : result;
    result = size > 0x7F800000u ? nan : result;
    return (uint16_t)(sign | result);
}

static inline float odd_float(double value) {
    float nearest = (float)value;
    double back = nearest;
    uint32_t bits = bits_of_float(nearest);
    double size = value < 0 ? -value : value, back_size = back < 0 ? -back : back;
    uint32_t toward = size > back_size ? bits + 1u : bits - 1u;
    bool inexact_even = (size > back_size || size < back_size) && (bits & 1u) == 0;
    return float_of_bits(inexact_even ? toward : bits);
}

/* Beyond 2^53 the low 11 bits fold into a sticky one: the conversion to double is then exact, and a later rounding to 24
 * bits or fewer is unchanged. */
static inline double sticky_double(int64_t v) {
    uint64_t size = v < 0 ? 0u - (uint64_t)v : (uint64_t)v;
    uint64_t folded = (size & ~UINT64_C(2047)) | ((size & 2047u) != 0 ? 2048u : 0u);
    double value = (double)(size >> 53 ? folded : size);
    return v < 0 ? -value : value;
}

static inline int64_t saturate(double v, double low, double high, int64_t low_int, int64_t high_int) {
    if (!(v == v))
        return 0;
    return v <= low ? low_int : v >= high ? high_int : (int64_t)v;
}
static inline int64_t to_i64(double v) { return saturate(v, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX); }
static inline int32_t to_i32(double v) { return (int32_t)saturate(v, -0x1p31, 0x1.fffffffcp30, INT32_MIN, INT32_MAX); }
static inline int16_t to_i16(double v) { return (int16_t)saturate(v, -32768, 32767, -32768, 32767); }
static inline int8_t to_i8(double v) { return (int8_t)saturate(v, -128, 127, -128, 127); }
static inline uint16_t to_u16(double v) { return (uint16_t)saturate(v, 0, 65535, 0, 65535); }
static inline uint8_t to_u8(double v) { return (uint8_t)saturate(v, 0, 255, 0, 255); }
static inline uint8_t to_bool(double v) { return v != 0; }

static inline int64_t clamp_int(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

/* One loop over a run, contiguous apart so that it vectorises. */
#define LOOP(from_type, expression)                                                                                    \
    do {                                                                                                               \
        const from_type *f = (const from_type *)from;                                                                  \
        if (stride == 1) {                                                                                             \
            TL_INDEPENDENT                                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                from_type v = f[i];                                                                                    \
                to[i] = expression;                                                                                    \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                from_type v = f[i * stride];                                                                           \
                to[i] = expression;                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

#define STORE(to_type, expression)                                                                                     \
    do {                                                                                                               \
        to_type *t = (to_type *)to;                                                                                    \
        if (stride == 1) {                                                                                             \
            TL_INDEPENDENT                                                                                             \
            for (int64_t i = 0; i < n; i++)                                                                            \
                t[i] = expression;                                                                                     \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                                            \
                t[i * stride] = expression;                                                                            \
        }                                                                                                              \
    } while (0)

void TL_K(load_float)(float *to, tl_dtype dtype, const char *from, int64_t stride, int64_t n) {
    switch (dtype) {
    case TL_F32:
        LOOP(float, v);
        break;
    case TL_BF16:
        LOOP(uint16_t, from_bf16(v));
        break;
    case TL_F16:
        LOOP(uint16_t, from_f16(v));
        break;
    case TL_F64:
        LOOP(double, from_f64(v));
        break;
    case TL_I64:
        LOOP(int64_t, (float)v);
        break;
    case TL_I32:
        LOOP(int32_t, (float)v);
        break;
    case TL_U8:
        LOOP(uint8_t, (float)v);
        break;
    case TL_F8E4M3:
        LOOP(uint8_t, tl_convert_f8e4m3_f32(v));
        break;
    case TL_F8E5M2:
        LOOP(uint8_t, tl_convert_f8e5m2_f32(v));
        break;
    case TL_I16:
        LOOP(int16_t, (float)v);
        break;
    case TL_U16:
        LOOP(uint16_t, (float)v);
        break;
    case TL_I8:
        LOOP(int8_t, (float)v);
        break;
    default:
        LOOP(uint8_t, (float)(v != 0));
        break;
    }
}

void TL_K(load_double)(double *to, tl_dtype dtype, const char *from, int64_t stride, int64_t n) {
    switch (dtype) {
    case TL_F64:
        LOOP(double, v);
        break;
    case TL_F32:
        LOOP(float, (double)v);
        break;
    case TL_BF16:
        LOOP(uint16_t, (double)from_bf16(v));
        break;
    case TL_F16:
        LOOP(uint16_t, (double)from_f16(v));
        break;
    case TL_I64:
        LOOP(int64_t, (double)v);
        break;
    case TL_I32:
        LOOP(int32_t, (double)v);
        break;
    case TL_U8:
        LOOP(uint8_t, (double)v);
        break;
    case TL_F8E4M3:
        LOOP(uint8_t, (double)tl_convert_f8e4m3_f32(v));
        break;
    case TL_F8E5M2:
        LOOP(uint8_t, (double)tl_convert_f8e5m2_f32(v));
        break;
    case TL_I16:
        LOOP(int16_t, (double)v);
        break;
    case TL_U16:
        LOOP(uint16_t, (double)v);
        break;
    case TL_I8:
        LOOP(int8_t, (double)v);
        break;
    default:
        LOOP(uint8_t, (double)(v != 0));
        break;
    }
}

void TL_K(load_int)(int64_t *to, tl_dtype dtype, const char *from, int64_t stride, int64_t n) {
    switch (dtype) {
    case TL_I64:
        LOOP(int64_t, v);
        break;
    case TL_I32:
        LOOP(int32_t, (int64_t)v);
        break;
    case TL_U8:
        LOOP(uint8_t, (int64_t)v);
        break;
    case TL_BOOL:
        LOOP(uint8_t, (int64_t)(v != 0));
        break;
    case TL_F64:
        LOOP(double, to_i64(v));
        break;
    case TL_F32:
        LOOP(float, to_i64((double)v));
        break;
    case TL_BF16:
        LOOP(uint16_t, to_i64((double)from_bf16(v)));
        break;
    case TL_F8E4M3:
        LOOP(uint8_t, to_i64((double)tl_convert_f8e4m3_f32(v)));
        break;
    case TL_F8E5M2:
        LOOP(uint8_t, to_i64((double)tl_convert_f8e5m2_f32(v)));
        break;
    case TL_I16:
        LOOP(int16_t, (int64_t)v);
        break;
    case TL_U16:
        LOOP(uint16_t, (int64_t)v);
        break;
    case TL_I8:
        LOOP(int8_t, (int64_t)v);
        break;
    default:
        LOOP(uint16_t, to_i64((double)from_f16(v)));
        break;
    }
}

void TL_K(store_float)(tl_dtype dtype, char *to, int64_t stride, const float *from, int64_t n) {
    switch (dtype) {
    case TL_F32:
        STORE(float, from[i]);
        break;
    case TL_BF16:
        STORE(uint16_t, to_bf16(from[i]));
        break;
    case TL_F16:
        STORE(uint16_t, to_f16(from[i]));
        break;
    case TL_F64:
        STORE(double, (double)from[i]);
        break;
    case TL_I64:
        STORE(int64_t, to_i64((double)from[i]));
        break;
    case TL_I32:
        STORE(int32_t, to_i32((double)from[i]));
        break;
    case TL_U8:
        STORE(uint8_t, to_u8((double)from[i]));
        break;
    case TL_F8E4M3:
        STORE(uint8_t, tl_convert_f32_f8e4m3(from[i]));
        break;
    case TL_F8E5M2:
        STORE(uint8_t, tl_convert_f32_f8e5m2(from[i]));
        break;
    case TL_I16:
        STORE(int16_t, to_i16((double)from[i]));
        break;
    case TL_U16:
        STORE(uint16_t, to_u16((double)from[i]));
        break;
    case TL_I8:
        STORE(int8_t, to_i8((double)from[i]));
        break;
    default:
        STORE(uint8_t, to_bool((double)from[i]));
        break;
    }
}

void TL_K(store_double)(tl_dtype dtype, char *to, int64_t stride, const double *from, int64_t n) {
    switch (dtype) {
    case TL_F64:
        STORE(double, from[i]);
        break;
    case TL_F32:
        STORE(float, (float)from[i]);
        break;
    case TL_BF16:
        STORE(uint16_t, to_bf16(odd_float(from[i])));
        break;
    case TL_F16:
        STORE(uint16_t, to_f16(odd_float(from[i])));
        break;
    case TL_I64:
        STORE(int64_t, to_i64(from[i]));
        break;
    case TL_I32:
        STORE(int32_t, to_i32(from[i]));
        break;
    case TL_U8:
        STORE(uint8_t, to_u8(from[i]));
        break;
    case TL_F8E4M3:
        STORE(uint8_t, tl_convert_f32_f8e4m3(odd_float(from[i])));
        break;
    case TL_F8E5M2:
        STORE(uint8_t, tl_convert_f32_f8e5m2(odd_float(from[i])));
        break;
    case TL_I16:
        STORE(int16_t, to_i16(from[i]));
        break;
    case TL_U16:
        STORE(uint16_t, to_u16(from[i]));
        break;
    case TL_I8:
        STORE(int8_t, to_i8(from[i]));
        break;
    default:
        STORE(uint8_t, to_bool(from[i]));
        break;
    }
}

/* Arithmetic on ints wraps at 64 bits and keeps the low bits of a narrower output, as C's unsigned types do. */
void TL_K(store_int)(tl_dtype dtype, char *to, int64_t stride, const int64_t *from, int64_t n) {
    switch (dtype) {
    case TL_I64:
        STORE(int64_t, from[i]);
        break;
    case TL_I32:
        STORE(int32_t, (int32_t)(uint32_t)(uint64_t)from[i]);
        break;
    case TL_U8:
        STORE(uint8_t, (uint8_t)from[i]);
        break;
    case TL_BOOL:
        STORE(uint8_t, from[i] != 0);
        break;
    case TL_F64:
        STORE(double, (double)from[i]);
        break;
    case TL_F32:
        STORE(float, (float)from[i]);
        break;
    case TL_BF16:
        STORE(uint16_t, to_bf16(odd_float(sticky_double(from[i]))));
        break;
    case TL_F8E4M3:
        STORE(uint8_t, tl_convert_f32_f8e4m3(odd_float(sticky_double(from[i]))));
        break;
    case TL_F8E5M2:
        STORE(uint8_t, tl_convert_f32_f8e5m2(odd_float(sticky_double(from[i]))));
        break;
    case TL_I16:
        STORE(int16_t, (int16_t)(uint16_t)from[i]);
        break;
    case TL_U16:
        STORE(uint16_t, (uint16_t)from[i]);
        break;
    case TL_I8:
        STORE(int8_t, (int8_t)(uint8_t)from[i]);
        break;
    default:
        STORE(uint16_t, to_f16(odd_float(sticky_double(from[i]))));
        break;
    }
}

static void move(char *to, int64_t to_stride, const char *from, int64_t stride, int64_t n, int bytes) {
    if (n <= 0)
        return; /* then there may be no memory at all */
    if (to_stride == 1 && stride == 1) {
        memmove(to, from, (size_t)(n * bytes));
        return;
    }
#define SPREAD(type)                                                                                                   \
    do {                                                                                                               \
        type value = *(const type *)from, *t = (type *)to;                                                             \
        for (int64_t i = 0; i < n; i++)                                                                                \
            t[i] = value;                                                                                              \
    } while (0)
    if (to_stride == 1 && stride == 0) {
        switch (bytes) {
        case 8:
            SPREAD(uint64_t);
            break;
        case 4:
            SPREAD(uint32_t);
            break;
        case 2:
            SPREAD(uint16_t);
            break;
        default:
            memset(to, *(const unsigned char *)from, (size_t)n);
            break;
        }
        return;
    }
#undef SPREAD
#define MOVE(type)                                                                                                     \
    for (int64_t i = 0; i < n; i++)                                                                                    \
    ((type *)to)[i * to_stride] = ((const type *)from)[i * stride]
    switch (bytes) {
    case 8:
        MOVE(uint64_t);
        break;
    case 4:
        MOVE(uint32_t);
        break;
    case 2:
        MOVE(uint16_t);
        break;
    default:
        MOVE(uint8_t);
        break;
    }
#undef MOVE
}

/* What too large a number becomes before it is stored. */
static void clamp_ints(int64_t *value, int64_t n, tl_dtype dtype) {
    static const struct {
        int64_t low, high;
    } range[TL_DTYPE_COUNT] = {
        [TL_I32] = {INT32_MIN, INT32_MAX}, [TL_I16] = {INT16_MIN, INT16_MAX}, [TL_I8] = {INT8_MIN, INT8_MAX},
        [TL_U16] = {0, UINT16_MAX},        [TL_U8] = {0, UINT8_MAX},          [TL_F8E4M3] = {-448, 448},
        [TL_F8E5M2] = {-57344, 57344},
    };
    if (range[dtype].high != 0)
        for (int64_t i = 0; i < n; i++)
            value[i] = clamp_int(value[i], range[dtype].low, range[dtype].high);
}

static bool is_f8(tl_dtype dtype) { return dtype == TL_F8E4M3 || dtype == TL_F8E5M2; }

static void clamp_floats(float *value, int64_t n, float most) {
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        value[i] = tl_clamp_float(value[i], most);
}

static void clamp_doubles(double *value, int64_t n, double most) {
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        double v = value[i] < -most ? -most : value[i];
        value[i] = v > most ? most : v;
    }
}

static inline void convert_any(tl_dtype to_dtype, char *to, int64_t to_stride, tl_dtype from_dtype, const char *from,
                               int64_t from_stride, int64_t n, bool saturating) {
    if (to_dtype == from_dtype && to_dtype != TL_BOOL) {
        move(to, to_stride, from, from_stride, n, tl_bytes_of(to_dtype));
        return;
    }
    union {
        float f[TL_CHUNK];
        double d[TL_CHUNK];
        int64_t i[TL_CHUNK];
    } buffer;
    tl_compute compute = tl_compute_of(from_dtype);
    bool clamp = saturating && is_f8(to_dtype);
    float most = to_dtype == TL_F8E4M3 ? 448 : 57344;
    if (from_dtype == TL_F32 && from_stride == 1 && !clamp) {
        TL_K(store_float)(to_dtype, to, to_stride, (const float *)(const void *)from, n);
        return;
    }
    if (to_dtype == TL_F32 && to_stride == 1 && compute == TL_COMPUTE_FLOAT) {
        TL_K(load_float)((float *)(void *)to, from_dtype, from, from_stride, n);
        return;
    }
    for (int64_t at = 0; at < n; at += TL_CHUNK) {
        int64_t count = tl_min_i64(TL_CHUNK, n - at);
        const char *source = from + at * from_stride * tl_bytes_of(from_dtype);
        char *target = to + at * to_stride * tl_bytes_of(to_dtype);
        if (compute == TL_COMPUTE_FLOAT) {
            TL_K(load_float)(buffer.f, from_dtype, source, from_stride, count);
            if (clamp)
                clamp_floats(buffer.f, count, most);
            TL_K(store_float)(to_dtype, target, to_stride, buffer.f, count);
        } else if (compute == TL_COMPUTE_DOUBLE) {
            TL_K(load_double)(buffer.d, from_dtype, source, from_stride, count);
            if (clamp)
                clamp_doubles(buffer.d, count, (double)most);
            TL_K(store_double)(to_dtype, target, to_stride, buffer.d, count);
        } else {
            TL_K(load_int)(buffer.i, from_dtype, source, from_stride, count);
            if (clamp || !is_f8(to_dtype))
                clamp_ints(buffer.i, count, to_dtype);
            TL_K(store_int)(to_dtype, target, to_stride, buffer.i, count);
        }
    }
}

void TL_K(convert)(tl_dtype to_dtype, char *to, int64_t to_stride, tl_dtype from_dtype, const char *from,
                   int64_t from_stride, int64_t n) {
    convert_any(to_dtype, to, to_stride, from_dtype, from, from_stride, n, false);
}

void TL_K(convert_saturating)(tl_dtype to_dtype, char *to, int64_t to_stride, tl_dtype from_dtype, const char *from,
                              int64_t from_stride, int64_t n) {
    convert_any(to_dtype, to, to_stride, from_dtype, from, from_stride, n, true);
}
