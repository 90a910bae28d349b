/* kernel/body/compare.c: functions of two and three: comparisons, logic, selections, powers and remainders. */
#include "kernel/body/body.h"
#include "kernel/body/math.h"

#define TWO(name, type, suffix, expression)                                                                            \
    static void name##_##suffix(const void *constants, int64_t n, void *const pointer[]) {                             \
        (void)constants;                                                                                               \
        type *y = pointer[0];                                                                                          \
        const type *a = pointer[1], *b = pointer[2];                                                                   \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type p = a[i], q = b[i];                                                                                   \
            y[i] = (type)(expression);                                                                                 \
        }                                                                                                              \
    }

/* The compute type is the first input's: an output of bool says nothing about it. */
static void run(tl_kcall *call, tl_each_loop *const loop[3], int of) {
    static const int access[] = {TL_WRITE, TL_READ, TL_READ, TL_READ};
    const tl_array *array[] = {&call->out[0], &call->in[0], &call->in[1], &call->in[2]};
    tl_compute compute = tl_compute_of(call->in[of].dtype);
    TL_K(each)(call->engine, array, access, 1 + call->n_in, compute, loop[compute], call->attr);
}
#define KERNEL_OF(name, of)                                                                                            \
    void TL_K(name)(tl_kcall * call) {                                                                                 \
        static tl_each_loop *const loop[] = {name##_float, name##_double, name##_int};                                 \
        run(call, loop, of);                                                                                           \
    }
#define TWO_KERNEL(name, expression)                                                                                   \
    TWO(name, float, float, expression)                                                                                \
    TWO(name, double, double, expression)                                                                              \
    TWO(name, int64_t, int, expression)                                                                                \
    KERNEL_OF(name, 0)

TWO_KERNEL(equal, p == q)
TWO_KERNEL(not_equal, p != q)
TWO_KERNEL(less, p < q)
TWO_KERNEL(less_equal, p <= q)
TWO_KERNEL(greater, p > q)
TWO_KERNEL(greater_equal, p >= q)
TWO_KERNEL(logical_and, (p != 0) & (q != 0))
TWO_KERNEL(logical_or, (p != 0) | (q != 0))
TWO_KERNEL(logical_xor, (p != 0) ^ (q != 0))
/* a NaN on either side wins, as PyTorch and numpy have it */
TWO_KERNEL(minimum, p < q || p != p ? p : q)
TWO_KERNEL(maximum, p > q || p != p ? p : q)

/* in: mine, the other, gradient. All of it where mine was taken, half where both are equal (PyTorch's rule). */
#define CHOSEN(name, type, suffix, test)                                                                               \
    static void name##_##suffix(const void *constants, int64_t n, void *const pointer[]) {                             \
        (void)constants;                                                                                               \
        type *y = pointer[0];                                                                                          \
        const type *a = pointer[1], *b = pointer[2], *g = pointer[3];                                                  \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = a[i] test b[i] ? g[i] : a[i] == b[i] ? g[i] / 2 : 0;                                                \
    }
CHOSEN(minimum_backward, float, float, <)
CHOSEN(minimum_backward, double, double, <)
CHOSEN(maximum_backward, float, float, >)
CHOSEN(maximum_backward, double, double, >)
void TL_K(minimum_backward)(tl_kcall *call) {
    TL_K(each_call)(call, minimum_backward_float, minimum_backward_double, NULL);
}
void TL_K(maximum_backward)(tl_kcall *call) {
    TL_K(each_call)(call, maximum_backward_float, maximum_backward_double, NULL);
}

/* x^n by squaring, modulo 2^64; 1/x^n for n < 0, which is 0 unless x is 1 or −1 (0 to a negative power is 0: a kernel
 * cannot fail). */
static int64_t power_int_of(int64_t x, int64_t n) {
    if (n < 0)
        return x == 1 ? 1 : x == -1 ? (n & 1 ? -1 : 1) : 0;
    uint64_t result = 1, square = (uint64_t)x;
    for (; n > 0; n >>= 1) {
        if (n & 1)
            result *= square;
        square *= square;
    }
    return (int64_t)result;
}
TWO(power, float, float, pow((double)p, (double)q))
TWO(power, double, double, pow(p, q))
TWO(power, int64_t, int, power_int_of(p, q))
KERNEL_OF(power, 0)

/* in: x, n, y, gradient. The slope in x is n·x^(n−1); in n it is y·log x, and 0 where y is 0 (x = 0). */
#define POWER_SLOPE(name, type, suffix, expression)                                                                    \
    static void name##_##suffix(const void *constants, int64_t n, void *const pointer[]) {                             \
        (void)constants;                                                                                               \
        type *out = pointer[0];                                                                                        \
        const type *a = pointer[1], *b = pointer[2], *g = pointer[3];                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            double p = (double)a[i], q = (double)b[i];                                                                 \
            out[i] = g[i] * (type)(expression);                                                                        \
        }                                                                                                              \
    }
POWER_SLOPE(power_backward_base, float, float, q == 0 ? 0 : q * pow(p, q - 1))
POWER_SLOPE(power_backward_base, double, double, q == 0 ? 0 : q * pow(p, q - 1))
POWER_SLOPE(power_backward_exponent, float, float, p == 0 && q >= 0 ? 0 : pow(p, q) * log(p))
POWER_SLOPE(power_backward_exponent, double, double, p == 0 && q >= 0 ? 0 : pow(p, q) * log(p))
void TL_K(power_backward_base)(tl_kcall *call) {
    TL_K(each_call)(call, power_backward_base_float, power_backward_base_double, NULL);
}
void TL_K(power_backward_exponent)(tl_kcall *call) {
    TL_K(each_call)(call, power_backward_exponent_float, power_backward_exponent_double, NULL);
}

/* Remainders. mod has the divisor's sign (Python's %, a floored quotient), fmod the dividend's (C's). Of integers by 0: 0,
 * as a kernel cannot fail. fmod is exact, so a float's remainder in double is the float's own. */
static double floored(double p, double q) {
    double r = fmod(p, q);
    return r != 0 && (r < 0) != (q < 0) ? r + q : r == 0 ? copysign(0, q) : r;
}
static int64_t fmod_int_of(int64_t p, int64_t q) { return q == 0 || q == -1 ? 0 : p % q; }
static int64_t mod_int_of(int64_t p, int64_t q) {
    int64_t r = fmod_int_of(p, q);
    return r != 0 && (r < 0) != (q < 0) ? r + q : r;
}
TWO(mod, float, float, floored((double)p, (double)q))
TWO(mod, double, double, floored(p, q))
TWO(mod, int64_t, int, mod_int_of(p, q))
KERNEL_OF(mod, 0)
TWO(fmod, float, float, fmod((double)p, (double)q))
TWO(fmod, double, double, fmod(p, q))
TWO(fmod, int64_t, int, fmod_int_of(p, q))
KERNEL_OF(fmod, 0)

/* ---- selections ---- */

/* in: condition (bool), a, b */
#define WHERE(type, suffix)                                                                                            \
    static void where_##suffix(const void *constants, int64_t n, void *const pointer[]) {                              \
        (void)constants;                                                                                               \
        type *y = pointer[0];                                                                                          \
        const type *c = pointer[1], *a = pointer[2], *b = pointer[3];                                                  \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = c[i] != 0 ? a[i] : b[i];                                                                            \
    }
WHERE(float, float)
WHERE(double, double)
WHERE(int64_t, int)
KERNEL_OF(where, 1)

/* A constant of the call as an integer: towards zero and saturated. */
static int64_t whole(double v) {
    return !(v == v) ? 0 : v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
}
static float as_float(double v) { return (float)v; }
static double as_double(double v) { return v; }

/* in: x, mask (bool) */
#define FILLED(type, suffix, as)                                                                                       \
    static void masked_fill_##suffix(const void *constants, int64_t n, void *const pointer[]) {                        \
        type value = as(((const tl_fill_attr *)constants)->value);                                                     \
        type *y = pointer[0];                                                                                          \
        const type *x = pointer[1], *mask = pointer[2];                                                                \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = mask[i] != 0 ? value : x[i];                                                                        \
    }
FILLED(float, float, as_float)
FILLED(double, double, as_double)
FILLED(int64_t, int, whole)
KERNEL_OF(masked_fill, 0)

/* max(low, x), then min(high, …): with low > high it is high, as PyTorch and ONNX have it. NaN stays. */
#define CLIPPED(type, suffix, as)                                                                                      \
    static void clamp_##suffix(const void *constants, int64_t n, void *const pointer[]) {                              \
        const tl_clamp_attr *attr = constants;                                                                         \
        type low = as(attr->low), high = as(attr->high);                                                               \
        type *y = pointer[0];                                                                                          \
        const type *x = pointer[1];                                                                                    \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type v = x[i] < low ? low : x[i];                                                                          \
            y[i] = v > high ? high : v;                                                                                \
        }                                                                                                              \
    }
CLIPPED(float, float, as_float)
CLIPPED(double, double, as_double)
CLIPPED(int64_t, int, whole)
KERNEL_OF(clamp, 0)

/* in: x, gradient, which passes within the bounds, they included */
#define CLIPPED_BACKWARD(type, suffix)                                                                                 \
    static void clamp_backward_##suffix(const void *constants, int64_t n, void *const pointer[]) {                     \
        const tl_clamp_attr *attr = constants;                                                                         \
        type low = (type)attr->low, high = (type)attr->high;                                                           \
        type *y = pointer[0];                                                                                          \
        const type *x = pointer[1], *g = pointer[2];                                                                   \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = x[i] >= low && x[i] <= high ? g[i] : 0;                                                             \
    }
CLIPPED_BACKWARD(float, float)
CLIPPED_BACKWARD(double, double)
void TL_K(clamp_backward)(tl_kcall *call) {
    TL_K(each_call)(call, clamp_backward_float, clamp_backward_double, call->attr);
}
