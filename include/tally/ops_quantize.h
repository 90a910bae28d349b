/* tally/ops_quantize.h: to a coarse grid and back (ONNX QuantizeLinear and DequantizeLinear 25).
 *
 * Where the scale (and the zero point, of its shape) holds
 *   per tensor  one element
 *   per axis    [n] for axis `axis` of n elements, block 0
 *   blocked     x's shape but for `axis`, which is n/block: each stretch of `block` elements has its own
 */
#ifndef TALLY_OPS_QUANTIZE_H
#define TALLY_OPS_QUANTIZE_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_quantize_options {
    int axis;       /* not looked at per tensor */
    int64_t block;  /* 0: per tensor or per axis */
    bool overflows; /* float8 only: too large a number is NaN or infinity, not the largest */
} tl_quantize_options;

/* saturate(round(x ÷ scale) + zero) as i8, u8, i16, u16 or i32, rounded to nearest even; x ÷ scale in x's precision (f32 for 16
 * bits). As f8e4m3 or f8e5m2: x ÷ scale rounded once. zero may be NULL; it has the dtype of the result. NaN is 0 in integers. No
 * gradient: a staircase's is 0 or none; an estimator of one (straight through) is a choice of the caller. */
tl_tensor *tl_quantize_(tl_tensor *x, tl_tensor *scale, tl_tensor *zero, tl_dtype dtype,
                        const tl_quantize_options *options, const char *site);
/* (q − zero)·scale in scale's dtype; zero may be NULL. The scale has a gradient: Σ g·(q − zero). */
tl_tensor *tl_dequantize_(tl_tensor *q, tl_tensor *scale, tl_tensor *zero, const tl_quantize_options *options,
                          const char *site);

/* x[… i] · (q[o,i]·scale[o])ᵀ + bias[o] (bias may be NULL) → [… o] in x's dtype, the weights q as i8, scale f32. Each sum over
 * x·q runs in f32 (f64 for f64) and is then multiplied by the scale; weights are widened in registers, never written out.
 * 2·rows·o·i FLOPs as tl_linear; one byte read a weight. 16-bit x, and x whose last axis is not contiguous, take rows·i
 * elements of workspace. The gradient goes to x and the bias: (g·scale)·q, with q cast to x's format for as long as that
 * takes. The weight is frozen, and nothing of x is kept. */
tl_tensor *tl_linear_int8_(tl_tensor *x, tl_tensor *q, tl_tensor *scale, tl_tensor *bias, const char *site);

#define tl_linear_int8(x, q, scale, bias) tl_linear_int8_((x), (q), (scale), (bias), TL_HERE)
#define tl_quantize(x, scale, zero, dtype, options) tl_quantize_((x), (scale), (zero), (dtype), (options), TL_HERE)
#define tl_dequantize(q, scale, zero, options) tl_dequantize_((q), (scale), (zero), (options), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
