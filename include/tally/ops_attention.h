/* tally/ops_attention.h: attention that keeps nothing of size T×S. As in tally/ops.h the call is a macro that adds the caller's
 * line, returns a new handle in the current scope, or NULL with the context's sticky error.
 */
#ifndef TALLY_OPS_ATTENTION_H
#define TALLY_OPS_ATTENTION_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* softmax(mask(softcap(scale·q·kᵀ) + bias))·v by blocks of rows and keys with a running maximum and sum (Dao et al. 2022,
 * FlashAttention, algorithm 1; Dao 2023, FlashAttention-2, algorithms 1 and 2).
 *   q[B,H,T,K], k[B,G,S,K], v[B,G,S,L], one dtype of f64, f32, bf16, f16 → [B,H,T,L]. Any strides: the transposed views of
 *   [B,T,H,K] are read in place. G divides H: heads h·H/G … share key/value head h (Ainslie et al. 2023).
 *   The result lies in memory as [B,T,H,L] (as FlashAttention-2 returns it): tl_transpose(y, 1, 2) and tl_reshape to [B,T,H·L]
 *   are free. So do the gradients of q, k and v.
 * With position p = i + offset, row i sees column j where all of these say so:
 *   causal         j ≤ p
 *   window_before  j ≥ p − window_before; Hugging Face's sliding_window w is window_before w − 1 with causal
 *   chunk          ⌊j/chunk⌋ = ⌊p/chunk⌋ (Llama 4)
 *   positions      i32 or i64[B,T], NULL: none: j ≥ p − positions[b,i]. Counted from 0 in each document of a packed row they keep
 *                  attention within a document (Dubey et al. 2024, The Llama 3 herd of models, section 3.2)
 * A row that sees nothing is 0, and so are its gradients. Blocks of which nothing is seen are not computed; where
 * documents begin is known to no plan, so that what positions alone hide is computed and counted, as without them.
 *   sinks[H]    (floats; NULL: none) a learned logit of each head that joins the softmax's denominator alone (gpt-oss)
 *   slopes[H]   (f32; NULL: none) adds slope·(j − p) to the scores after the softcap (ALiBi, Press et al. 2022); no gradient. With
 *               slopes_scaled it adds scale·(slope·j), slope, j and their product each rounded to bf16 (Falcon)
 *   dropout     p of the probabilities, drawn as tl_dropout of [B,H,T,S] with this name would; drawn again in backward
 * Saves q, k, v, y, the log-sum-exp of each row (f32[B,H,T], f64 for f64), sinks, slopes and positions. Accumulates in f32 (f64
 * for f64).
 * Matmul FLOPs: 2·B·H·T·S·(K + L) forward; backward 2·B·H·T·S·(3·K + 2·L), of which 2·B·H·T·S·K are the scores computed
 * again: hardware FLOPs have them, model FLOPs do not. matmul_causal counts visible pairs instead of T·S, `executed` the pairs
 * of blocks (of 64 rows and 64 keys; fewer for large heads) of which at least one is seen.
 * Workspace of backward: sums in f32 for 16-bit dk and dv, and for dq where B·G < 8 heads of S ≥ 512 keys are cut into parts.
 * Under autocast q, k and v go to the low format, sinks and slopes stay: they join the scores, which are f32.
 * Same bits for any number of threads. K and L at most 1024. */
typedef struct tl_flash_options {
    double scale;          /* 0: 1/√K */
    double softcap;        /* c·tanh(x/c) (Gemma 2); 0: none */
    bool causal;           /* whatever is hidden: see above */
    int64_t offset;        /* position of row 0: the keys that a cache holds before it; ≥ 0 */
    int64_t window_before; /* negative: none. 0 is a window: a row sees no column before its own */
    int64_t chunk;         /* 0: none */
    double dropout;        /* 0: none */
    const char *dropout_name;
    tl_tensor *sinks, *slopes, *positions;
    bool slopes_scaled;
} tl_flash_options;
tl_tensor *tl_flash_attention_(tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_flash_options *options,
                               const char *site);

#define tl_flash_attention(q, k, v, options) tl_flash_attention_((q), (k), (v), (options), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
