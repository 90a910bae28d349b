/* kernel/body/functions.c: further functions of one number and their derivatives. sin, cos, erf and powers take libm's double
 * functions for both formats: they are the same for every instruction set. */
#include "kernel/body/body.h"
#include "kernel/body/math.h"

/* Two loops and the kernel that runs them; `alpha` is the call's constant, 0 without attributes. */
#define LOOP(name, type, suffix, in_b, expression)                                                                     \
    static void name##_##suffix(const void *constants, int64_t n, void *const pointer[]) {                             \
        const type alpha = constants ? (type)((const tl_alpha_attr *)constants)->alpha : 0;                            \
        type *y = pointer[0];                                                                                          \
        const type *a = pointer[1], *b = pointer[in_b];                                                                \
        (void)alpha;                                                                                                   \
        (void)b;                                                                                                       \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type x = a[i];                                                                                             \
            y[i] = expression;                                                                                         \
        }                                                                                                              \
    }
#define FUNCTION(name, expression_float, expression_double)                                                            \
    LOOP(name, float, float, 1, expression_float)                                                                      \
    LOOP(name, double, double, 1, expression_double)                                                                   \
    void TL_K(name)(tl_kcall * call) { TL_K(each_call)(call, name##_float, name##_double, call->attr); }
/* x is what was kept; the slope there times the gradient b. */
#define DERIVATIVE(name, slope_float, slope_double)                                                                    \
    LOOP(name##_backward, float, float, 2, (slope_float)*b[i])                                                         \
    LOOP(name##_backward, double, double, 2, (slope_double)*b[i])                                                      \
    void TL_K(name##_backward)(tl_kcall * call) {                                                                      \
        TL_K(each_call)(call, name##_backward_float, name##_backward_double, call->attr);                              \
    }

/* ---- exact in every format; abs and sign of integers too ---- */

LOOP(abs, float, float, 1, __builtin_fabsf(x))
LOOP(abs, double, double, 1, __builtin_fabs(x))
LOOP(abs, int64_t, int, 1, x < 0 ? (int64_t)(0u - (uint64_t)x) : x)
/* NaN stays NaN, ±0 stays ±0 */
LOOP(sign, float, float, 1, x > 0 ? 1.0f : x < 0 ? -1.0f : x)
LOOP(sign, double, double, 1, x > 0 ? 1.0 : x < 0 ? -1.0 : x)
LOOP(sign, int64_t, int, 1, (x > 0) - (x < 0))

static void run_any(tl_kcall *call, tl_each_loop *const loop[3]) {
    static const int access[] = {TL_WRITE, TL_READ};
    const tl_array *array[] = {&call->out[0], &call->in[0]};
    tl_compute compute = tl_compute_of(call->in[0].dtype);
    TL_K(each)(call->engine, array, access, 2, compute, loop[compute], NULL);
}
#define ANY_KERNEL(name)                                                                                               \
    void TL_K(name)(tl_kcall * call) {                                                                                 \
        static tl_each_loop *const loop[] = {name##_float, name##_double, name##_int};                                 \
        run_any(call, loop);                                                                                           \
    }
ANY_KERNEL(abs)
ANY_KERNEL(sign)
DERIVATIVE(abs, (x > 0 ? 1.0f : x < 0 ? -1.0f : x), (x > 0 ? 1.0 : x < 0 ? -1.0 : x))

/* → bool. An integer is neither. */
LOOP(is_nan, float, float, 1, (float)(x != x))
LOOP(is_nan, double, double, 1, (double)(x != x))
LOOP(is_nan, int64_t, int, 1, (x & 0))
ANY_KERNEL(is_nan)

/* → bool: 1 where infinite with a wanted sign. */
#define INFINITE(type, suffix)                                                                                         \
    static void is_inf_##suffix(const void *constants, int64_t n, void *const pointer[]) {                             \
        const tl_is_inf_attr *attr = constants;                                                                        \
        type up = attr->positive, down = attr->negative;                                                               \
        type *y = pointer[0];                                                                                          \
        const type *x = pointer[1];                                                                                    \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = x[i] == (type)INFINITY ? up : x[i] == -(type)INFINITY ? down : (type)0;                             \
    }
INFINITE(float, float)
INFINITE(double, double)
static void is_inf_int(const void *constants, int64_t n, void *const pointer[]) {
    (void)constants;
    if (n > 0)
        memset(pointer[0], 0, (size_t)n * sizeof(int64_t));
}
void TL_K(is_inf)(tl_kcall *call) {
    static tl_each_loop *const loop[] = {is_inf_float, is_inf_double, is_inf_int};
    static const int access[] = {TL_WRITE, TL_READ};
    const tl_array *array[] = {&call->out[0], &call->in[0]};
    tl_compute compute = tl_compute_of(call->in[0].dtype);
    TL_K(each)(call->engine, array, access, 2, compute, loop[compute], call->attr);
}

FUNCTION(floor, __builtin_floorf(x), __builtin_floor(x))
FUNCTION(ceil, __builtin_ceilf(x), __builtin_ceil(x))
FUNCTION(round, __builtin_rintf(x), __builtin_rint(x))
FUNCTION(reciprocal, 1.0f / x, 1.0 / x)
DERIVATIVE(reciprocal, -(x *x), -(x *x)) /* x: the output */

/* ---- by exp and log ---- */

/* log(1 + e) and e^x − 1 without cancelling: the error of 1 + e (of e^x) divides out (Kahan; Higham 2002, 1.14.1). */
TLM float log1p_float(float e) {
    float u = 1.0f + e;
    return u == 1.0f ? e : u < INFINITY ? tlm_log(u) * (e / (u - 1.0f)) : u;
}
TLM double log1p_double(double e) {
    double u = 1.0 + e;
    return u == 1.0 ? e : u < (double)INFINITY ? tlm_log64(u) * (e / (u - 1.0)) : u;
}
TLM float expm1_float(float x) {
    float u = tlm_exp(x), d = u - 1.0f;
    return u == 1.0f ? x : d == -1.0f || !(u < INFINITY) ? d : d * (x / tlm_log(u));
}
TLM double expm1_double(double x) {
    double u = tlm_exp64(x), d = u - 1.0;
    return u == 1.0 ? x : d == -1.0 || !(u < (double)INFINITY) ? d : d * (x / tlm_log64(u));
}
TLM float softplus_float_of(float x) {
    float a = x < 0 ? -x : x;
    return (x > 0 ? x : x < 0 ? 0.0f : x) + log1p_float(tlm_exp(-a));
}
TLM double softplus_double_of(double x) {
    double a = x < 0 ? -x : x;
    return (x > 0 ? x : x < 0 ? 0.0 : x) + log1p_double(tlm_exp64(-a));
}
TLM double sigmoid64(double x) { return 1.0 / (1.0 + tlm_exp64(-x)); }

FUNCTION(sigmoid, tlm_sigmoid(x), sigmoid64(x))
DERIVATIVE(sigmoid, x *(1.0f - x), x *(1.0 - x)) /* x: the output */
FUNCTION(softplus, softplus_float_of(x), softplus_double_of(x))
DERIVATIVE(softplus, tlm_sigmoid(x), sigmoid64(x))
FUNCTION(softsign, x / (1.0f + __builtin_fabsf(x)), x / (1.0 + __builtin_fabs(x)))
TLM float softsign_slope(float x) {
    float d = 1.0f / (1.0f + __builtin_fabsf(x));
    return d * d;
}
TLM double softsign_slope64(double x) {
    double d = 1.0 / (1.0 + __builtin_fabs(x));
    return d * d;
}
DERIVATIVE(softsign, softsign_slope(x), softsign_slope64(x))
FUNCTION(elu, x > 0 ? x : alpha * expm1_float(x), x > 0 ? x : alpha * expm1_double(x))
DERIVATIVE(elu, (x > 0 ? 1.0f : alpha * tlm_exp(x)), (x > 0 ? 1.0 : alpha * tlm_exp64(x)))
FUNCTION(leaky_relu, x < 0 ? alpha * x : x, x < 0 ? alpha * x : x)
DERIVATIVE(leaky_relu, (x > 0 ? 1.0f : alpha), (x > 0 ? 1.0 : alpha)) /* at 0 as PyTorch has it */
FUNCTION(hard_swish, x<-3.0f ? -0.0f : x> 3.0f ? x : x *(x / 6.0f + 0.5f),
         x<-3.0 ? -0.0 : x> 3.0 ? x : x *(x / 6.0 + 0.5))
TLM float hard_swish_slope(float x) { return x < -3.0f ? 0.0f : x >= 3.0f ? 1.0f : x / 3.0f + 0.5f; }
TLM double hard_swish_slope64(double x) { return x < -3.0 ? 0.0 : x >= 3.0 ? 1.0 : x / 3.0 + 0.5; }
DERIVATIVE(hard_swish, hard_swish_slope(x), hard_swish_slope64(x)) /* at the kinks as PyTorch has it */

/* x·tanh(softplus x) with w = e^x: tanh(log(1 + w)) = (w² + 2w)/(w² + 2w + 2). Beyond 20 it is x in both formats. */
TLM float mish_float_of(float x) {
    float w = tlm_exp(x > 20.0f ? 20.0f : x), q = w * (w + 2.0f);
    return x > 20.0f ? x : x < -104.0f ? -0.0f : x * (q / (q + 2.0f));
}
TLM double mish_double_of(double x) {
    double w = tlm_exp64(x > 40.0 ? 40.0 : x), q = w * (w + 2.0);
    return x > 40.0 ? x : x < -746.0 ? -0.0 : x * (q / (q + 2.0));
}
/* t + x·(1 − t²)·σ(x), t = tanh(softplus x); 1 − t² = 4(w² + 2w + 1)/(w² + 2w + 2)² */
TLM float mish_slope(float x) {
    float w = tlm_exp(x > 20.0f ? 20.0f : x), q = w * (w + 2.0f), d = q + 2.0f;
    float slope = q / d + x * (4.0f * (w * (w + 1.0f)) / (d * d));
    return x > 20.0f ? 1.0f : x < -104.0f ? 0.0f : slope;
}
TLM double mish_slope64(double x) {
    double w = tlm_exp64(x > 40.0 ? 40.0 : x), q = w * (w + 2.0), d = q + 2.0;
    double slope = q / d + x * (4.0 * (w * (w + 1.0)) / (d * d));
    return x > 40.0 ? 1.0 : x < -746.0 ? 0.0 : slope;
}
FUNCTION(mish, mish_float_of(x), mish_double_of(x))
DERIVATIVE(mish, mish_slope(x), mish_slope64(x))

/* x·σ(αx); where αx is far below 0 the product is 0, not −∞·0. */
TLM float swish_float_of(float x, float alpha) {
    return alpha * x < -104.0f ? x * 0x1p-149f : x * tlm_sigmoid(alpha * x);
}
TLM double swish_double_of(double x, double alpha) { return alpha * x < -746.0 ? x * 0.0 : x * sigmoid64(alpha * x); }
TLM float swish_slope(float x, float alpha) {
    float rest, s = tlm_sigmoid_rest(alpha * x, &rest), slope = s + alpha * x * s * rest;
    return alpha * x < -104.0f ? 0.0f : alpha * x > 104.0f ? 1.0f : slope;
}
TLM double swish_slope64(double x, double alpha) {
    double e = tlm_exp64(-(alpha * x)), s = 1.0 / (1.0 + e), rest = alpha * x > 0 ? e * s : 1.0 - s;
    double slope = s + alpha * x * s * rest;
    return alpha * x < -746.0 ? 0.0 : alpha * x > 746.0 ? 1.0 : slope;
}
FUNCTION(swish, swish_float_of(x, alpha), swish_double_of(x, alpha))
DERIVATIVE(swish, swish_slope(x, alpha), swish_slope64(x, alpha))

/* ---- by libm ---- */

#define TWO_OVER_ROOT_PI 1.12837916709551257390
FUNCTION(erf, (float)erf((double)x), erf(x))
DERIVATIVE(erf, (float)TWO_OVER_ROOT_PI *tlm_exp(-(x *x)), TWO_OVER_ROOT_PI *tlm_exp64(-(x *x)))
FUNCTION(sin, (float)sin((double)x), sin(x))
DERIVATIVE(sin, (float)cos((double)x), cos(x))
FUNCTION(cos, (float)cos((double)x), cos(x))
DERIVATIVE(cos, -(float)sin((double)x), -sin(x))
