/* tally/ops.h: the ops. Every call is a macro that adds the caller's line, so that the account can name it.
 *
 * All return a new handle in the current scope, or NULL with the context's sticky error. Shapes in brackets; "…" is any
 * number of leading axes. Floats are f64, f32, bf16, f16; 16-bit formats compute in f32 and round once per stored value.
 * Backward of each is written with ops and booked like them.
 */
#ifndef TALLY_OPS_H
#define TALLY_OPS_H

#include "tally/ops_elementwise.h"
#include "tally/ops_fp8.h"
#include "tally/ops_nf4.h"
#include "tally/ops_reduce.h"
#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- views: free; the storage is shared ---- */
/* The same elements under another shape; refused where that needs a copy (the message says which axes). */
tl_tensor *tl_view_(tl_tensor *x, tl_shape shape, const char *site);
/* view where it can, else a copy, which the ledger shows. */
tl_tensor *tl_reshape_(tl_tensor *x, tl_shape shape, const char *site);
tl_tensor *tl_transpose_(tl_tensor *x, int axis_a, int axis_b, const char *site);
tl_tensor *tl_permute_(tl_tensor *x, const int *axes, const char *site); /* ndim axes, each once */
/* count elements from start (negative: from the end) by step ≠ 0 (negative: backwards); all within the axis. */
tl_tensor *tl_slice_(tl_tensor *x, int axis, int64_t start, tl_dim count, int64_t step, const char *site);
/* Size-1 and new leading axes stretched with stride 0. Writing through the result is refused. */
tl_tensor *tl_expand_(tl_tensor *x, tl_shape shape, const char *site);
/* n views of sizes[i] along axis; the sizes add up to the axis. One op: its gradient is one concat. n ≤ 16. */
tl_status tl_split_(tl_tensor *x, int axis, const tl_dim *sizes, int n, tl_tensor *out[], const char *site);
/* The bytes read as another format of the same width, e.g. f32 as i32. No gradient passes. */
tl_tensor *tl_bitcast_(tl_tensor *x, tl_dtype dtype, const char *site);
/* ---- copies ---- */
tl_tensor *tl_copy_(tl_tensor *x, const char *site);       /* contiguous, new storage */
tl_tensor *tl_contiguous_(tl_tensor *x, const char *site); /* x itself if it is contiguous already */
/* Another number format; x itself if it has that one. To a floating format: rounded once, to nearest even; too large is
 * infinity, in f8e4m3, which has none, NaN (as PyTorch). To an integer: towards zero, too large is the nearest there is,
 * NaN is 0. To bool: ≠ 0. */
tl_tensor *tl_cast_(tl_tensor *x, tl_dtype dtype, const char *site);
/* The same, but to f8e4m3 and f8e5m2 too large, infinity included, is the largest number, ±448 or ±57344 (the OCP
 * specification's saturating mode, ONNX's default); NaN stays NaN. */
tl_tensor *tl_cast_saturating_(tl_tensor *x, tl_dtype dtype, const char *site);
tl_tensor *tl_concat_(tl_tensor *const x[], int n, int axis, const char *site); /* n ≤ 16 */

/* ---- elementwise, with broadcasting ---- */
tl_tensor *tl_add_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_sub_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_mul_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_div_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_scale_(tl_tensor *x, double factor, double offset, const char *site); /* x·factor + offset */
tl_tensor *tl_neg_(tl_tensor *x, const char *site);
tl_tensor *tl_exp_(tl_tensor *x, const char *site);
tl_tensor *tl_log_(tl_tensor *x, const char *site);
tl_tensor *tl_sqrt_(tl_tensor *x, const char *site);
tl_tensor *tl_rsqrt_(tl_tensor *x, const char *site);
tl_tensor *tl_tanh_(tl_tensor *x, const char *site);
tl_tensor *tl_relu_(tl_tensor *x, const char *site);
/* GELU, x·Φ(x) by erf; and its tanh form (Hendrycks & Gimpel 2016; GPT-2's). SiLU: x·σ(x). */
tl_tensor *tl_gelu_erf_(tl_tensor *x, const char *site);
tl_tensor *tl_gelu_tanh_(tl_tensor *x, const char *site);
tl_tensor *tl_silu_(tl_tensor *x, const char *site);

/* ---- reductions over the axes in `axes` (n of them; negative allowed; n = 0: all) ---- */
tl_tensor *tl_sum_(tl_tensor *x, const int *axes, int n, bool keep, const char *site); /* of integers, bool: i64 */
tl_tensor *tl_mean_(tl_tensor *x, const int *axes, int n, bool keep, const char *site);
tl_tensor *tl_max_(tl_tensor *x, const int *axes, int n, bool keep, const char *site); /* as tl_min */
tl_tensor *tl_argmax_(tl_tensor *x, const char *site);     /* i64, along the last axis, first of equals; no gradient */
tl_tensor *tl_square_sum_(tl_tensor *x, const char *site); /* Σx² in f64, one element; no gradient */
tl_tensor *tl_non_finite_(tl_tensor *x, const char *site); /* NaNs and infinities of x, counted in f64, one element */

/* ---- products ---- */
/* [… m,k] · [… k,n] → [… m,n], leading axes broadcast. Transposed views are read as they lie. 2·m·n·k FLOPs each. */
typedef enum tl_causal { TL_CAUSAL_NONE, TL_CAUSAL_MN, TL_CAUSAL_MK, TL_CAUSAL_KN } tl_causal;
tl_tensor *tl_matmul_(tl_tensor *a, tl_tensor *b, const char *site);
/* The same; says which pair of axes is a causal T×T square, so that matmul_causal counts T(T+1)/2 of its pairs. The whole
 * product is computed. */
tl_tensor *tl_matmul_causal_(tl_tensor *a, tl_tensor *b, tl_causal causal, const char *site);
/* c += a·b in place; no gradient. Leading axes of a and b as in c. Returns c's new handle. */
tl_tensor *tl_matmul_into_(tl_tensor *c, tl_tensor *a, tl_tensor *b, tl_causal causal, const char *site);
/* x[… i] · w[o,i]ᵀ + bias[o] (bias may be NULL) → [… o]. */
tl_tensor *tl_linear_(tl_tensor *x, tl_tensor *w, tl_tensor *bias, const char *site);

/* ---- layers ---- */
/* softmax(scale·x) over the last axis; causal: row i of the second-last axis sees columns 0 … i + columns − rows. A row that
 * sees nothing is all 0. Saves its output. */
tl_tensor *tl_softmax_(tl_tensor *x, double scale, bool causal, const char *site);
/* (x − mean)/sqrt(var + ε)·gain + bias over the last axis, biased variance (Ba et al. 2016). bias may be NULL.
 * Saves x and two statistics a row. */
tl_tensor *tl_layer_norm_(tl_tensor *x, tl_tensor *gain, tl_tensor *bias, double epsilon, const char *site);
/* x/sqrt(mean(x²) + ε)·gain (Zhang & Sennrich 2019). Saves x and one statistic a row. */
tl_tensor *tl_rms_norm_(tl_tensor *x, tl_tensor *gain, double epsilon, const char *site);
/* The same times offset + gain, that sum in f32 (f64 for f64) and the product rounded once: Gemma's has offset 1. */
tl_tensor *tl_rms_norm_offset_(tl_tensor *x, tl_tensor *gain, double offset, double epsilon, const char *site);
/* Rotary embedding of x[… T,K] (Su et al. 2021): of the first R of K, even, pairs turned by position·theta^(−2i/R); the rest
 * stays as it is. Scaled frequencies f: */
typedef enum tl_rotary_scaling {
    TL_ROTARY_PLAIN,  /* f; with a factor above 0 as llama3 */
    TL_ROTARY_LLAMA3, /* Llama 3.1's: long waves by factor, short ones kept, blended between the two frequency factors */
    TL_ROTARY_LINEAR, /* f/factor (Chen et al. 2023, position interpolation) */
    TL_ROTARY_YARN, /* f/factor but for pairs that turn often in the original context: from all of f at beta_fast turns down a
                         ramp to none at beta_slow; cosine and sine times a magnitude (Peng et al. 2023, eq. 17–22) */
    /* The next depends on the length, which is the last position and 1: what earlier calls turned stays as it was. */
    TL_ROTARY_DYNAMIC, /* theta·(factor·n/original − factor + 1)^(R/(R−2)), n the length or, if larger, the original context
                          (Peng et al. 2023, section 3.3 and appendix A.2; transformers' modeling_rope_utils.py) */
    TL_ROTARY_NTK, /* theta·factor^(R/(R−2)) (Peng et al. 2023, eq. 16) */
    TL_ROTARY_LONGROPE /* f over each pair's own factor, of the long ones where the length is beyond the original context, else of
                          the short ones; cosine and sine times attention_factor; 0: √(1 + ln(factor)/ln(original)) where factor
                          is above 1, else 1 (Ding et al. 2024, LongRoPE, eq. 2; Abdin et al. 2024, Phi-3) */
} tl_rotary_scaling;
typedef struct tl_rotary_options {
    double theta;
    int64_t first_position;
    bool interleaved; /* pairs (2i, 2i+1); else (i, i + K/2), as Hugging Face and GPT-NeoX */
    double factor, low_freq_factor, high_freq_factor; /* factor 0: none */
    int64_t original_context;
    int64_t rotated; /* R; 0: K */
    int64_t pairs;   /* how many of the pairs turn, the others stand still (Gemma 4); 0: all */
    tl_rotary_scaling scaling;
    /* yarn: the magnitude is attention_factor; 0: m(mscale)/m(mscale_all) where both are given, else m(1), with
     * m(a) = 0.1·a·ln(factor) + 1. no_truncate: the ramp's ends are not rounded to whole pairs (gpt-oss). */
    double beta_fast, beta_slow, attention_factor, mscale, mscale_all;
    bool no_truncate;
    const double *short_factors, *long_factors; /* longrope: R/2 each; not copied, they outlive the graph */
    int64_t factors;                            /* R/2 */
} tl_rotary_options;
tl_tensor *tl_rotary_(tl_tensor *x, const tl_rotary_options *options, const char *site);
/* table[V,D], ids[…] i32 or i64 → […, D]. An id outside [0,V) is an error naming its position. No FLOPs. */
tl_tensor *tl_embedding_(tl_tensor *table, tl_tensor *ids, const char *site);
/* x·mask/(1−p); p 0: x itself. Element i draws from (seed_dropout, name, elements dropped by earlier calls in the context
 * + i), so that no two calls share a mask. Saves a mask of 1 byte an element. */
tl_tensor *tl_dropout_(tl_tensor *x, double p, const char *name, const char *site);

/* ---- losses: one element, f32 (f64 for f64) ---- */
/* Mean of −log softmax(logits[… V])[target] over targets ≠ ignore_index; all ignored: 0. Saves logits and a row's
 * log-sum-exp. A target outside [0,V) that is not ignore_index is an error naming its position. */
tl_tensor *tl_cross_entropy_(tl_tensor *logits, tl_tensor *targets, int64_t ignore_index, const char *site);
tl_tensor *tl_mse_(tl_tensor *a, tl_tensor *b, const char *site); /* mean (a−b)² */

/* ---- in place; the handle returned is on the same storage ---- */
tl_tensor *tl_fill_(tl_tensor *x, double value, const char *site);
tl_tensor *tl_accumulate_(tl_tensor *into, tl_tensor *x,
                          const char *site); /* into += x, same shape and dtype; or f32 += 16-bit */
tl_tensor *tl_scale_into_(tl_tensor *x, double factor, const char *site);
/* into[… start … ] = x along `axis`, converted to into's dtype; the other sizes are equal and the end lies within the axis.
 * Reads and writes as many elements as x has. Returns into's new handle; no gradient. */
tl_tensor *tl_write_slice_(tl_tensor *into, tl_tensor *x, int axis, int64_t start, const char *site);
/* x ·= min(1, max_norm/(√total + 1e-6)); total: one f64 value, the sum of squares over all gradients. */
tl_tensor *tl_clip_scale_(tl_tensor *x, tl_tensor *total, double max_norm, const char *site);
/* Random fills. Element i depends on (seed_init, name, first + i) alone: any sharding initialises alike. */
tl_tensor *tl_normal_(tl_tensor *x, double mean, double std, const char *name, int64_t first, const char *site);
tl_tensor *tl_truncated_normal_(tl_tensor *x, double mean, double std, double cut, const char *name, int64_t first,
                                const char *site);
tl_tensor *tl_uniform_(tl_tensor *x, double low, double high, const char *name, int64_t first, const char *site);

/* ---- optimizer updates, one pass; parameter and states in place. `copy` is NULL or the low-precision parameter that is
 * written from the (master) parameter. Gradients and states may have other float formats. ---- */
typedef struct tl_adamw_options {
    double lr, beta1, beta2, epsilon, weight_decay;
    int64_t step; /* from 1 */
    bool cs336;   /* CS336's order instead of PyTorch's; see kernel/table.h for both */
} tl_adamw_options;
tl_status tl_adamw_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *copy,
                           const tl_adamw_options *options, const char *site);
/* The same with decay as L2: g += λθ (torch.optim.Adam); cs336 must be false. */
tl_status tl_adam_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *copy,
                          const tl_adamw_options *options, const char *site);
/* adamw in PyTorch's order whose states have 8 bits: m, v (u8 codes of the parameter's shape), their scales (f32, one for
 * each 256 elements in flat order), all contiguous; tally/optim.h has the code. cs336 must be false. */
tl_status tl_adamw8bit_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *const states[4], tl_tensor *copy,
                               const tl_adamw_options *options, const char *site);
/* momentum may be NULL where its factor is 0; first: the buffer starts as the gradient. */
tl_status tl_sgd_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *momentum, tl_tensor *copy, double lr,
                         double factor, double weight_decay, bool nesterov, bool first, const char *site);
typedef struct tl_adagrad_options {
    double lr, epsilon, weight_decay;
    bool epsilon_outside; /* √s + ε as torch.optim.Adagrad, instead of the lecture's √(s + ε) */
} tl_adagrad_options;
tl_status tl_adagrad_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *sum, tl_tensor *copy,
                             const tl_adagrad_options *options, const char *site);
typedef struct tl_rmsprop_options {
    double lr, alpha, epsilon, weight_decay, momentum;
    bool centered;
} tl_rmsprop_options;
/* states: the mean of squares, then the momentum buffer where momentum is not 0, then the mean where centered. */
tl_status tl_rmsprop_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *const states[], tl_tensor *copy,
                             const tl_rmsprop_options *options, const char *site);

/* ---- communication ---- */
/* Sum over `ranks` ranks, in place, times 1/ranks when mean. On meta it books 2·(ranks−1)/ranks of its bytes as sent (ring).
 * ranks 1: free, x itself. Elsewhere more than one rank is refused: this build runs one. */
tl_tensor *tl_all_reduce_(tl_tensor *x, int64_t ranks, bool mean, const char *site);

#define tl_view(x, shape) tl_view_((x), (shape), TL_HERE)
#define tl_reshape(x, shape) tl_reshape_((x), (shape), TL_HERE)
#define tl_transpose(x, a, b) tl_transpose_((x), (a), (b), TL_HERE)
#define tl_permute(x, axes) tl_permute_((x), (axes), TL_HERE)
#define tl_slice(x, axis, start, count, step) tl_slice_((x), (axis), (start), (count), (step), TL_HERE)
#define tl_expand(x, shape) tl_expand_((x), (shape), TL_HERE)
#define tl_split(x, axis, sizes, n, out) tl_split_((x), (axis), (sizes), (n), (out), TL_HERE)
#define tl_bitcast(x, dtype) tl_bitcast_((x), (dtype), TL_HERE)
#define tl_copy(x) tl_copy_((x), TL_HERE)
#define tl_contiguous(x) tl_contiguous_((x), TL_HERE)
#define tl_cast(x, dtype) tl_cast_((x), (dtype), TL_HERE)
#define tl_cast_saturating(x, dtype) tl_cast_saturating_((x), (dtype), TL_HERE)
#define tl_concat(x, n, axis) tl_concat_((x), (n), (axis), TL_HERE)
#define tl_add(a, b) tl_add_((a), (b), TL_HERE)
#define tl_sub(a, b) tl_sub_((a), (b), TL_HERE)
#define tl_mul(a, b) tl_mul_((a), (b), TL_HERE)
#define tl_div(a, b) tl_div_((a), (b), TL_HERE)
#define tl_scale(x, factor, offset) tl_scale_((x), (factor), (offset), TL_HERE)
#define tl_neg(x) tl_neg_((x), TL_HERE)
#define tl_exp(x) tl_exp_((x), TL_HERE)
#define tl_log(x) tl_log_((x), TL_HERE)
#define tl_sqrt(x) tl_sqrt_((x), TL_HERE)
#define tl_rsqrt(x) tl_rsqrt_((x), TL_HERE)
#define tl_tanh(x) tl_tanh_((x), TL_HERE)
#define tl_relu(x) tl_relu_((x), TL_HERE)
#define tl_gelu_erf(x) tl_gelu_erf_((x), TL_HERE)
#define tl_gelu_tanh(x) tl_gelu_tanh_((x), TL_HERE)
#define tl_silu(x) tl_silu_((x), TL_HERE)
#define tl_sum(x, axes, n, keep) tl_sum_((x), (axes), (n), (keep), TL_HERE)
#define tl_mean(x, axes, n, keep) tl_mean_((x), (axes), (n), (keep), TL_HERE)
#define tl_max(x, axes, n, keep) tl_max_((x), (axes), (n), (keep), TL_HERE)
#define tl_argmax(x) tl_argmax_((x), TL_HERE)
#define tl_square_sum(x) tl_square_sum_((x), TL_HERE)
#define tl_non_finite(x) tl_non_finite_((x), TL_HERE)
#define tl_matmul(a, b) tl_matmul_((a), (b), TL_HERE)
#define tl_matmul_causal(a, b, causal) tl_matmul_causal_((a), (b), (causal), TL_HERE)
#define tl_matmul_into(c, a, b, causal) tl_matmul_into_((c), (a), (b), (causal), TL_HERE)
#define tl_linear(x, w, bias) tl_linear_((x), (w), (bias), TL_HERE)
#define tl_softmax(x, scale, causal) tl_softmax_((x), (scale), (causal), TL_HERE)
#define tl_layer_norm(x, gain, bias, epsilon) tl_layer_norm_((x), (gain), (bias), (epsilon), TL_HERE)
#define tl_rms_norm(x, gain, epsilon) tl_rms_norm_((x), (gain), (epsilon), TL_HERE)
#define tl_rms_norm_offset(x, gain, offset, epsilon) tl_rms_norm_offset_((x), (gain), (offset), (epsilon), TL_HERE)
#define tl_rotary(x, options) tl_rotary_((x), (options), TL_HERE)
#define tl_embedding(table, ids) tl_embedding_((table), (ids), TL_HERE)
#define tl_dropout(x, p, name) tl_dropout_((x), (p), (name), TL_HERE)
#define tl_cross_entropy(logits, targets, ignore) tl_cross_entropy_((logits), (targets), (ignore), TL_HERE)
#define tl_mse(a, b) tl_mse_((a), (b), TL_HERE)
#define tl_fill(x, value) tl_fill_((x), (value), TL_HERE)
#define tl_accumulate(into, x) tl_accumulate_((into), (x), TL_HERE)
#define tl_write_slice(into, x, axis, start) tl_write_slice_((into), (x), (axis), (start), TL_HERE)
#define tl_clip_scale(x, total, max_norm) tl_clip_scale_((x), (total), (max_norm), TL_HERE)
#define tl_scale_into(x, factor) tl_scale_into_((x), (factor), TL_HERE)
#define tl_normal(x, mean, std, name, first) tl_normal_((x), (mean), (std), (name), (first), TL_HERE)
#define tl_truncated_normal(x, mean, std, cut, name, first)                                                            \
    tl_truncated_normal_((x), (mean), (std), (cut), (name), (first), TL_HERE)
#define tl_uniform(x, low, high, name, first) tl_uniform_((x), (low), (high), (name), (first), TL_HERE)
#define tl_adamw_update(p, g, m, v, copy, options) tl_adamw_update_((p), (g), (m), (v), (copy), (options), TL_HERE)
#define tl_sgd_update(p, g, momentum, copy, lr, factor, weight_decay, nesterov, first)                                 \
    tl_sgd_update_((p), (g), (momentum), (copy), (lr), (factor), (weight_decay), (nesterov), (first), TL_HERE)
#define tl_adagrad_update(p, g, sum, copy, options) tl_adagrad_update_((p), (g), (sum), (copy), (options), TL_HERE)
#define tl_adam_update(p, g, m, v, copy, options) tl_adam_update_((p), (g), (m), (v), (copy), (options), TL_HERE)
#define tl_adamw8bit_update(p, g, states, copy, options)                                                               \
    tl_adamw8bit_update_((p), (g), (states), (copy), (options), TL_HERE)
#define tl_rmsprop_update(p, g, states, copy, options)                                                                 \
    tl_rmsprop_update_((p), (g), (states), (copy), (options), TL_HERE)
#define tl_all_reduce(x, ranks, mean) tl_all_reduce_((x), (ranks), (mean), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
