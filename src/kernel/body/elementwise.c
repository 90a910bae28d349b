/* kernel/body/elementwise.c: one loop per kernel and compute type. */
#include "kernel/body/body.h"
#include "kernel/body/math.h"
#include "kernel/body/vector.h"

/* ---- binary ---- */

#define BINARY(name, type, suffix, expression)                                                                         \
    static void name##_##suffix(const void *constants, int64_t n, void *const pointer[]) {                             \
        (void)constants;                                                                                               \
        type *y = pointer[0];                                                                                          \
        const type *a = pointer[1], *b = pointer[2];                                                                   \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = expression;                                                                                         \
    }
#define BINARY_FLOATS(name, expression)                                                                                \
    BINARY(name, float, float, expression)                                                                             \
    BINARY(name, double, double, expression)

BINARY_FLOATS(add, a[i] + b[i])
BINARY_FLOATS(sub, a[i] - b[i])
BINARY_FLOATS(mul, a[i] * b[i])
BINARY_FLOATS(div, a[i] / b[i])
/* ints wrap: through unsigned, where that is defined */
BINARY(add, int64_t, int, (int64_t)((uint64_t)a[i] + (uint64_t)b[i]))
BINARY(sub, int64_t, int, (int64_t)((uint64_t)a[i] - (uint64_t)b[i]))
BINARY(mul, int64_t, int, (int64_t)((uint64_t)a[i] * (uint64_t)b[i]))
/* Towards zero; x ÷ 0 is 0 (a kernel cannot fail), and INT64_MIN ÷ −1 wraps. */
BINARY(div, int64_t, int, b[i] == 0 ? 0 : b[i] == -1 ? (int64_t)(0u - (uint64_t)a[i]) : a[i] / b[i])

static void run_binary(tl_kcall *call, tl_each_loop *const loop[3]) {
    static const int access[] = {TL_WRITE, TL_READ, TL_READ};
    const tl_array *array[] = {&call->out[0], &call->in[0], &call->in[1]};
    tl_compute compute = tl_compute_of(call->out[0].dtype);
    TL_K(each)(call->engine, array, access, 3, compute, loop[compute], NULL);
}

#define BINARY_KERNEL(name)                                                                                            \
    void TL_K(name)(tl_kcall * call) {                                                                                 \
        static tl_each_loop *const loop[] = {name##_float, name##_double, name##_int};                                 \
        run_binary(call, loop);                                                                                        \
    }
BINARY_KERNEL(add)
BINARY_KERNEL(sub)
BINARY_KERNEL(mul)
BINARY_KERNEL(div)

/* ---- unary ---- */

#define UNARY(name, type, suffix, expression)                                                                          \
    static void name##_##suffix(const void *constants, int64_t n, void *const pointer[]) {                             \
        (void)constants;                                                                                               \
        type *y = pointer[0];                                                                                          \
        const type *a = pointer[1];                                                                                    \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type x = a[i];                                                                                             \
            y[i] = expression;                                                                                         \
        }                                                                                                              \
    }
#define UNARY_KERNEL(name, expression_float, expression_double)                                                        \
    UNARY(name, float, float, expression_float)                                                                        \
    UNARY(name, double, double, expression_double)                                                                     \
    void TL_K(name)(tl_kcall * call) { TL_K(each_call)(call, name##_float, name##_double, NULL); }

/* With 16 floats at a time where there are instructions for it (vector.h), else one by one (math.h). */
#ifdef TL_HAVE_VECTOR_MATH
/* name_past_float writes past the caches: to whole lines, n a multiple of 16. */
#define MATH_FLOAT(name, expression)                                                                                   \
    static void name##_float(const void *constants, int64_t n, void *const pointer[]) {                                \
        (void)constants;                                                                                               \
        float *y = pointer[0];                                                                                         \
        const float *x = pointer[1];                                                                                   \
        int64_t whole = n & ~(int64_t)15;                                                                              \
        for (int64_t i = 0; i < whole; i += 16)                                                                        \
            _mm512_storeu_ps(y + i, tlv_##name(_mm512_loadu_ps(x + i)));                                               \
        __mmask16 rest = (__mmask16)((1u << (n - whole)) - 1);                                                         \
        if (rest)                                                                                                      \
            _mm512_mask_storeu_ps(y + whole, rest, tlv_##name(_mm512_maskz_loadu_ps(rest, x + whole)));                \
    }                                                                                                                  \
    static void name##_past_float(const void *constants, int64_t n, void *const pointer[]) {                           \
        (void)constants;                                                                                               \
        float *y = pointer[0];                                                                                         \
        const float *x = pointer[1];                                                                                   \
        for (int64_t i = 0; i < n; i += 16)                                                                            \
            _mm512_stream_ps(y + i, tlv_##name(_mm512_loadu_ps(x + i)));                                               \
    }
#define PAST_FLOAT(name) name##_past_float
#define SLOPE_FLOAT(name, expression)                                                                                  \
    static void name##_backward_float(const void *constants, int64_t n, void *const pointer[]) {                       \
        (void)constants;                                                                                               \
        float *y = pointer[0];                                                                                         \
        const float *x = pointer[1], *g = pointer[2];                                                                  \
        int64_t whole = n & ~(int64_t)15;                                                                              \
        for (int64_t i = 0; i < whole; i += 16)                                                                        \
            _mm512_storeu_ps(y + i,                                                                                    \
                             _mm512_mul_ps(tlv_##name##_slope(_mm512_loadu_ps(x + i)), _mm512_loadu_ps(g + i)));       \
        __mmask16 rest = (__mmask16)((1u << (n - whole)) - 1);                                                         \
        if (rest)                                                                                                      \
            _mm512_mask_storeu_ps(y + whole, rest,                                                                     \
                                  _mm512_mul_ps(tlv_##name##_slope(_mm512_maskz_loadu_ps(rest, x + whole)),            \
                                                _mm512_maskz_loadu_ps(rest, g + whole)));                              \
    }
#else
#define MATH_FLOAT(name, expression) UNARY(name, float, float, expression)
#define PAST_FLOAT(name) NULL
#define SLOPE_FLOAT(name, expression) BINARY(name##_backward, float, float, expression)
#endif
#define MATH_KERNEL(name, expression_float, expression_double)                                                         \
    MATH_FLOAT(name, expression_float)                                                                                 \
    UNARY(name, double, double, expression_double)                                                                     \
    void TL_K(name)(tl_kcall * call) {                                                                                 \
        TL_K(each_call_past)(call, name##_float, name##_double, PAST_FLOAT(name), NULL);                               \
    }

UNARY_KERNEL(neg, -x, -x)
MATH_KERNEL(exp, tlm_exp(x), tlm_exp64(x))
UNARY_KERNEL(log, tlm_log(x), tlm_log64(x))
UNARY_KERNEL(sqrt, __builtin_sqrtf(x), __builtin_sqrt(x))
UNARY_KERNEL(rsqrt, 1.0f / __builtin_sqrtf(x), 1.0 / __builtin_sqrt(x))
MATH_KERNEL(tanh, tlm_tanh(x), tlm_tanh64(x))
UNARY_KERNEL(relu, x < 0 ? 0 : x, x < 0 ? 0 : x)

/* In double, gelu_erf takes libm's erfc: double serves gradient checks, and libm is the same for every table. */
static double gelu_erf64(double x) { return x < -39 ? -0.0 : 0.5 * x * erfc(-x * 0.70710678118654752440); }
static double gelu_erf_slope64(double x) {
    double density = x > -40 && x < 40 ? x * tlm_exp64(-0.5 * x * x) * 0.39894228040143267794 : 0;
    return 0.5 * erfc(-x * 0.70710678118654752440) + density;
}
TLM double sigmoid_rest64(double x, double *rest) {
    double e = tlm_exp64(-x), s = 1.0 / (1.0 + e);
    *rest = x > 0 ? e * s : 1.0 - s;
    return s;
}
TLM double sigmoid64(double x) { return 1.0 / (1.0 + tlm_exp64(-x)); }
TLM double silu64(double x) { return x < -746 ? -0.0 : x * sigmoid64(x); }
TLM double silu_slope64(double x) {
    double rest, s = sigmoid_rest64(x, &rest), slope = s + x * s * rest;
    return x < -746 ? 0.0 : x > 746 ? 1.0 : slope;
}
#define ROOT_8_OVER_PI 1.5957691216057308
TLM double gelu_tanh64(double x) { return x < -25 ? -0.0 : x * sigmoid64(ROOT_8_OVER_PI * (x + 0.044715 * x * x * x)); }
TLM double gelu_tanh_slope64(double x) {
    double rest, s = sigmoid_rest64(ROOT_8_OVER_PI * (x + 0.044715 * x * x * x), &rest);
    double slope = s + x * s * rest * (ROOT_8_OVER_PI * (1.0 + 0.134145 * x * x));
    return x < -25 ? 0.0 : x > 25 ? 1.0 : slope;
}

MATH_KERNEL(gelu_erf, tlm_gelu_erf(x), gelu_erf64(x))
MATH_KERNEL(gelu_tanh, tlm_gelu_tanh(x), gelu_tanh64(x))
MATH_KERNEL(silu, tlm_silu(x), silu64(x))

/* ---- in·factor + offset ---- */

static void scale_float(const void *constants, int64_t n, void *const pointer[]) {
    const tl_scale_attr *attr = constants;
    float factor = (float)attr->factor, offset = (float)attr->offset;
    float *y = pointer[0];
    const float *x = pointer[1];
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * factor + offset;
}

static void scale_double(const void *constants, int64_t n, void *const pointer[]) {
    const tl_scale_attr *attr = constants;
    double factor = attr->factor, offset = attr->offset;
    double *y = pointer[0];
    const double *x = pointer[1];
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * factor + offset;
}

/* Rounded to nearest even, saturated at 64 bits; NaN is 0. */
static void scale_int(const void *constants, int64_t n, void *const pointer[]) {
    const tl_scale_attr *attr = constants;
    int64_t *y = pointer[0];
    const int64_t *x = pointer[1];
    for (int64_t i = 0; i < n; i++) {
        double v = rint((double)x[i] * attr->factor + attr->offset);
        y[i] = !(v == v) ? 0 : v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
    }
}

void TL_K(scale)(tl_kcall *call) {
    static tl_each_loop *const loop[] = {scale_float, scale_double, scale_int};
    static const int access[] = {TL_WRITE, TL_READ};
    const tl_array *array[] = {&call->out[0], &call->in[0]};
    tl_compute compute = tl_compute_of(call->out[0].dtype);
    TL_K(each)(call->engine, array, access, 2, compute, loop[compute], call->attr);
}

/* ---- derivatives: in[0] x (tanh: y), in[1] the output's gradient ---- */

#define BACKWARD_KERNEL(name, slope_float, slope_double)                                                               \
    BINARY(name, float, float, (slope_float))                                                                          \
    BINARY(name, double, double, (slope_double))                                                                       \
    void TL_K(name)(tl_kcall * call) { TL_K(each_call)(call, name##_float, name##_double, NULL); }

BACKWARD_KERNEL(relu_backward, a[i] > 0 ? b[i] : 0, a[i] > 0 ? b[i] : 0)

#define SLOPE_KERNEL(name)                                                                                             \
    SLOPE_FLOAT(name, (tlm_##name##_slope(a[i]) * b[i]))                                                               \
    BINARY(name##_backward, double, double, (name##_slope64(a[i]) * b[i]))                                             \
    void TL_K(name##_backward)(tl_kcall * call) {                                                                      \
        TL_K(each_call)(call, name##_backward_float, name##_backward_double, NULL);                                    \
    }
SLOPE_KERNEL(gelu_erf)
SLOPE_KERNEL(gelu_tanh)
SLOPE_KERNEL(silu)
BACKWARD_KERNEL(tanh_backward, (1.0f - a[i] * a[i]) * b[i], (1.0 - a[i] * a[i]) * b[i])
