/* tally/ops_nf4.h: NF4, four bits a weight (Dettmers et al. 2023, "QLoRA", section 3 and appendix E).
 *
 * The values of a tensor in flat order, in blocks of 64 (the last may be short). A block holds one f32, the largest
 * magnitude in it, and one code a value: the nearest of the 16 levels of appendix E times that magnitude. Between two levels
 * the lower is taken; a block of zeros has scale 0 and codes of the level 0. Two codes lie in a byte, the earlier one in the
 * high four bits; behind an odd number of values stands the code of 0.
 *
 * Quantised twice (section 3, "double quantization"): the scales less their mean, in blocks of 256, become i8 codes of one f32
 * a block, its largest magnitude ÷ 127, rounded to nearest even; the mean is one f32. The paper codes them as 8-bit floats.
 *
 * Bytes for n values: ⌈n/2⌉ + 4·⌈n/64⌉; twice: ⌈n/2⌉ + ⌈n/64⌉ + 4·⌈⌈n/64⌉/256⌉ + 4.
 */
#ifndef TALLY_OPS_NF4_H
#define TALLY_OPS_NF4_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_NF4_BLOCK 64        /* values that share a scale */
#define TL_NF4_SCALE_BLOCK 256 /* scales that share a scale of theirs */

typedef struct tl_nf4 {
    tl_tensor *packed; /* u8 [⌈n/2⌉] */
    tl_tensor *scales; /* f32 [⌈n/64⌉], or their codes, i8 */
    tl_tensor *outer;  /* f32 [⌈⌈n/64⌉/256⌉]; NULL: quantised once */
    tl_tensor *mean;   /* f32 [1]; NULL: quantised once */
    /* A product writes the weight out in f16 and casts that to x's format, and both are there while it runs: what bitsandbytes
     * does with a weight that was f16 when it was quantised (dequantize_4bit gives the format of then, MatMul4Bit casts it). */
    bool by_f16;
} tl_nf4;

/* Quantises x (any floating format, any layout) into tensors of the current scope. x ÷ scale is computed in f32 (f64 for f64).
 * A value that is NaN or infinite, or beyond f32, is an error that says where. No gradient. The context's error. */
tl_status tl_quantize_nf4_(tl_tensor *x, bool twice, tl_nf4 *w, const char *site) TL_MUST_CHECK;
/* level·scale of `shape` in `dtype`: computed in f32 (f64 for f64), rounded once. No gradient. */
tl_tensor *tl_dequantize_nf4_(const tl_nf4 *w, tl_shape shape, tl_dtype dtype, const char *site);
/* x[… i] · W[o,i]ᵀ + bias[o] (bias may be NULL) → [… o] in x's format: f64, f32, bf16 or f16. W is written out in x's format
 * for as long as the op runs: o·i elements of workspace (w->by_f16: and o·i of f16), and in backward temporaries of that size. The gradient goes to x and
 * the bias; W is frozen, and nothing of x is kept: backward reads the packed weight again. 2·rows·o·i FLOPs as tl_linear. */
tl_tensor *tl_linear_nf4_(tl_tensor *x, const tl_nf4 *w, tl_dim out, tl_tensor *bias, const char *site);

#define tl_quantize_nf4(x, twice, w) tl_quantize_nf4_((x), (twice), (w), TL_HERE)
#define tl_dequantize_nf4(w, shape, dtype) tl_dequantize_nf4_((w), (shape), (dtype), TL_HERE)
#define tl_linear_nf4(x, w, out, bias) tl_linear_nf4_((x), (w), (out), (bias), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
