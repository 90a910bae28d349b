/* tally/ops_layers.h: attention, gates, normalisations over several axes, and losses with weights, reductions and further axes.
 * As in tally/ops.h every call is a macro that adds the caller's line, returns a new handle in the current scope, or NULL with
 * the context's sticky error.
 */
#ifndef TALLY_OPS_LAYERS_H
#define TALLY_OPS_LAYERS_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- softmax ---- */

/* softmax(scale·x + mask) over the last axis of x[…,T,S]. Row i sees column j where all of these say so:
 *   mask     bool: it is true; floats of x's dtype: it is not −inf (added). Broadcast to x
 *   lengths  i32 or i64[B], x's first axis: j < lengths[b]
 *   causal   j ≤ i + offset; offset is given, or with lengths it is lengths[b] − T
 *   window   i + offset − window_before ≤ j ≤ i + offset + window_after; negative: no limit on that side
 *   positions  i32 or i64[B,T], x's first axis and rows: j ≥ i + offset − positions[b,i]. With positions that count from 0 in each
 *            document of a packed row, a row sees its own document alone
 *   chunk    above 0: j ≥ chunk·⌊(i + offset)/chunk⌋ (with causal: a row sees its own chunk alone; Llama 4)
 * sink, of x's dtype and broadcast to it as […,1,1]: a number a matrix whose e^sink joins the sum that a row is divided by, so
 * that a row adds up to less than 1 (gpt-oss; Xiao et al. 2023 call such columns sinks).
 * What is not seen may hold anything, NaN too. A row that sees nothing is all 0, and its gradient is 0: an additive −1e10
 * would make it uniform without a word. Saves its output, and the shape of a mask that wants a gradient. */
typedef struct tl_mask_options {
    double scale;
    bool causal;
    int64_t offset, window_before, window_after;
    int64_t chunk;        /* 0: none */
    tl_tensor *sink;      /* NULL: none */
    tl_tensor *positions; /* NULL: none */
} tl_mask_options;
tl_tensor *tl_masked_softmax_(tl_tensor *x, tl_tensor *mask, tl_tensor *lengths, const tl_mask_options *options,
                              const char *site);

/* The scores of the same: scale·x + mask, −inf where not seen. For a look at them; no gradient. */
tl_tensor *tl_masked_scores_(tl_tensor *x, tl_tensor *mask, tl_tensor *lengths, const tl_mask_options *options,
                             const char *site);

/* ---- attention ----
 * softmax(mask(softcap(scale·q·kᵀ)))·v (Vaswani et al. 2017, eq. 1; ONNX Attention 24), a composition: the products, a softcap
 * as scale, tanh, scale, and tl_masked_softmax. Backward gets q, k, v, the tanh where there is a softcap, and the
 * probabilities [B,H,T,S]; nothing else is saved.
 *   q[B,H,T,K], k[B,G,S,K], v[B,G,S,L] → [B,H,T,L]; or q[B,T,H·K], k[B,S,G·K], v[B,S,G·L] → [B,T,H·L] with the heads given.
 *   G divides H: heads h·H/G … share key/value head h (Ainslie et al. 2023). They are read in place, never repeated.
 *   past_key[B,G,P,K], past_value[B,G,P,L] come before k and v; causal rows then start at column P.
 *   mask: bool or floats of q's dtype, broadcast to [B,H,T,S]; a last axis shorter than S hides what is beyond it.
 *   softcap c: c·tanh(x/c) before the mask (Gemma 2), so that what is hidden stays hidden.
 * The softmax of 16-bit scores computes in f32 and rounds its result. */
typedef enum tl_attention_scores {
    TL_SCORES_RAW,    /* scale·q·kᵀ */
    TL_SCORES_CAPPED, /* after the softcap */
    TL_SCORES_MASKED, /* after mask and causality: −inf where hidden; no gradient flows back through these */
    TL_SCORES_SOFTMAX
} tl_attention_scores;
typedef struct tl_attention_options {
    double scale;            /* 0: 1/√K */
    double softcap;          /* 0: none */
    bool causal;             /* row i sees columns up to i + P, or with lengths up to i + lengths[b] − T */
    bool window;             /* the two below hold; otherwise there is no window */
    int64_t before, after;   /* of the window; negative: no limit */
    int64_t heads, kv_heads; /* of 3-D inputs; 0 with 4-D ones */
    tl_tensor *mask, *lengths, *past_key, *past_value; /* NULL: none. lengths: i32 or i64[B], the keys that count */
    /* Results beside y; NULL where not wanted. */
    tl_tensor **present_key, **present_value; /* past and present, [B,G,P+S,…] */
    tl_tensor **scores;                       /* [B,H,T,S], of the kind: */
    tl_attention_scores scores_kind;
} tl_attention_options;
tl_tensor *tl_attention_(tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attention_options *options,
                         const char *site);

/* Rotary embedding by given cosines and sines (Su et al. 2021; ONNX RotaryEmbedding): x[B,H,T,K], or [B,T,H·K] with `heads`;
 * cosine and sine [B,T,R/2], or [positions, R/2] with position_ids[B,T]. Turns the first R of K (`rotated`; 0: all): pairs
 * (2i, 2i+1) when interleaved, else (i, i + R/2). A composition of slices, products and a concat. */
typedef struct tl_rotary_cache {
    tl_tensor *cosine, *sine, *position_ids; /* position_ids may be NULL */
    int64_t heads, rotated;
    bool interleaved;
} tl_rotary_cache;
tl_tensor *tl_rotary_cached_(tl_tensor *x, const tl_rotary_cache *cache, const char *site);

/* a·σ(alpha·a)·b, shapes equal (Shazeer 2020 with alpha 1: SiLU(a)·b). Fused: saves a and b, and nothing between. */
tl_tensor *tl_swiglu_(tl_tensor *a, tl_tensor *b, double alpha, const char *site);

/* ---- normalisations ---- */
/* tl_layer_norm and tl_rms_norm over all axes from `axis` on; gain and bias have the shape of those axes (bias may be NULL). A view
 * and the op over the last axis. *mean and *inverse_std (NULL: not wanted): [… 1 …], f32 (f64 for f64), computed apart. */
tl_tensor *tl_layer_norm_from_(tl_tensor *x, tl_tensor *gain, tl_tensor *bias, int axis, double epsilon,
                               tl_tensor **mean, tl_tensor **inverse_std, const char *site);
tl_tensor *tl_rms_norm_from_(tl_tensor *x, tl_tensor *gain, int axis, double epsilon, const char *site);
/* x[N,C,…]: layer norm over each of `groups` groups of channels, then gain[C] and bias[C] (Wu & He 2018). */
tl_tensor *tl_group_norm_(tl_tensor *x, tl_tensor *gain, tl_tensor *bias, int64_t groups, double epsilon,
                          const char *site);
/* (x − mean)/(std + epsilon) over the n axes, biased (ONNX MeanVarianceNormalization, epsilon 1e-9). A composition. */
tl_tensor *tl_mean_variance_norm_(tl_tensor *x, const int *axes, int n, double epsilon, const char *site);

/* ---- losses ---- */
typedef enum tl_loss_reduction { TL_LOSS_MEAN, TL_LOSS_SUM, TL_LOSS_NONE } tl_loss_reduction;
typedef struct tl_loss_options {
    tl_loss_reduction reduction;
    bool ignores; /* targets equal to ignore_index do not count */
    int64_t ignore_index;
} tl_loss_options;
/* −weight[t]·log_p[n,t,d…] for targets t[N,d…], log_p[N,C,d…]; weight[C] may be NULL (ONNX NegativeLogLikelihoodLoss). mean: the
 * sum over the sum of the weights that count; 0, not 0/0, where none does. none: [N,d…]; else one element. f32 (f64 for f64).
 * A target outside [0,C) that is not ignored is an error naming its position. Saves log_p, targets, weight and the sum of weights. */
tl_tensor *tl_nll_loss_(tl_tensor *log_p, tl_tensor *targets, tl_tensor *weight, const tl_loss_options *options,
                        const char *site);
/* The same of log softmax over axis 1 of logits[N,C,d…] (ONNX SoftmaxCrossEntropyLoss). *log_p: NULL, or where that log softmax goes,
 * [N,C,d…]. Without weights, reduced to a mean and log_p not wanted this is tl_cross_entropy, which keeps no log softmax. */
tl_tensor *tl_cross_entropy_loss_(tl_tensor *logits, tl_tensor *targets, tl_tensor *weight,
                                  const tl_loss_options *options, tl_tensor **log_p, const char *site);

#define tl_masked_softmax(x, mask, lengths, options) tl_masked_softmax_((x), (mask), (lengths), (options), TL_HERE)
#define tl_masked_scores(x, mask, lengths, options) tl_masked_scores_((x), (mask), (lengths), (options), TL_HERE)
#define tl_attention(q, k, v, options) tl_attention_((q), (k), (v), (options), TL_HERE)
#define tl_rotary_cached(x, cache) tl_rotary_cached_((x), (cache), TL_HERE)
#define tl_swiglu(a, b, alpha) tl_swiglu_((a), (b), (alpha), TL_HERE)
#define tl_layer_norm_from(x, gain, bias, axis, epsilon, mean, inverse_std)                                            \
    tl_layer_norm_from_((x), (gain), (bias), (axis), (epsilon), (mean), (inverse_std), TL_HERE)
#define tl_rms_norm_from(x, gain, axis, epsilon) tl_rms_norm_from_((x), (gain), (axis), (epsilon), TL_HERE)
#define tl_group_norm(x, gain, bias, groups, epsilon) tl_group_norm_((x), (gain), (bias), (groups), (epsilon), TL_HERE)
#define tl_mean_variance_norm(x, axes, n, epsilon) tl_mean_variance_norm_((x), (axes), (n), (epsilon), TL_HERE)
#define tl_nll_loss(log_p, targets, weight, options) tl_nll_loss_((log_p), (targets), (weight), (options), TL_HERE)
#define tl_cross_entropy_loss(logits, targets, weight, options, log_p)                                                 \
    tl_cross_entropy_loss_((logits), (targets), (weight), (options), (log_p), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
