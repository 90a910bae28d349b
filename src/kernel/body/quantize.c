/* kernel/body/quantize.c: to a coarse grid and back (ONNX QuantizeLinear and DequantizeLinear). */
#include "kernel/body/body.h"

/* x ÷ scale in x's own precision, as ONNX; rint is to nearest even. A float8 result is rounded by its store. */
#define QUANTIZE(name, type, rint)                                                                                     \
    static void name(const void *constants, int64_t n, void *const pointer[]) {                                        \
        const tl_quantize_attr *attr = constants;                                                                      \
        type *y = pointer[0], low = (type)attr->lowest, high = (type)attr->highest;                                    \
        const type *x = pointer[1], *scale = pointer[2], *zero = attr->has_zero ? pointer[3] : NULL;                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type v = x[i] / scale[i];                                                                                  \
            if (!attr->floating)                                                                                       \
                v = rint(v);                                                                                           \
            if (zero)                                                                                                  \
                v += zero[i];                                                                                          \
            if (attr->saturate)                                                                                        \
                v = v < low ? low : v > high ? high : v; /* NaN stays */                                               \
            y[i] = v;                                                                                                  \
        }                                                                                                              \
    }
QUANTIZE(quantize_float, float, __builtin_rintf)
QUANTIZE(quantize_double, double, __builtin_rint)

static void run(tl_kcall *call, tl_compute compute, tl_each_loop *loop) {
    static const int access[] = {TL_WRITE, TL_READ, TL_READ, TL_READ};
    const tl_array *array[] = {&call->out[0], &call->in[0], &call->in[1], &call->in[2]};
    TL_K(each)(call->engine, array, access, call->n_in + 1, compute, loop, call->attr);
}

void TL_K(quantize)(tl_kcall *call) {
    if (call->in[0].dtype == TL_F64)
        run(call, TL_COMPUTE_DOUBLE, quantize_double);
    else
        run(call, TL_COMPUTE_FLOAT, quantize_float);
}

/* In double: a difference of 32-bit ints is exact, and the product is rounded once. */
static void dequantize_double(const void *constants, int64_t n, void *const pointer[]) {
    const tl_quantize_attr *attr = constants;
    double *y = pointer[0];
    const double *q = pointer[1], *scale = pointer[2], *zero = attr->has_zero ? pointer[3] : NULL;
    for (int64_t i = 0; i < n; i++)
        y[i] = (zero ? q[i] - zero[i] : q[i]) * scale[i];
}

void TL_K(dequantize)(tl_kcall *call) { run(call, TL_COMPUTE_DOUBLE, dequantize_double); }
