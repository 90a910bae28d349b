/* tally/ops_fp8.h: training in 8-bit floats, emulated. No tensor is kept in 8 bits here and no product is computed in them:
 * values are scaled, rounded to float8 by the library's own conversion, scaled back, and multiplied in the format they came
 * in. Part of tally/ops.h, whose rules hold here too.
 *
 * Formats after Micikevicius et al. 2022 (FP8 formats for deep learning): e4m3 for a product's input and weight, e5m2 for the
 * gradient of its output. Scaling is delayed and per tensor, the recipe of NVIDIA's Transformer Engine (DelayedScaling,
 * margin 0, amax_compute_algo "max", amax_history_len 16 as its examples use; its default is 1024): a step rounds with a
 * scale that follows from the largest magnitudes of the TL_FP8_HISTORY steps before it, so that no pass over the values must
 * wait for another. The scale is 2^floor(log2(largest of the format ÷ largest of the history)): powers of two, as in the
 * recipe's first form. What is rounded so is exact in bf16 and f16's range permitting in f16, so that an emulated product
 * differs from one of 8-bit tensor cores with f32 sums in the order of its sums alone. A finite value beyond the format's
 * largest, which a history that is behind can cause, becomes the largest (saturating, as the recipe casts); an infinity
 * becomes NaN, so that it is not hidden. A scale starts at 1. A history whose largest is 0 or not finite leaves it as it is.
 */
#ifndef TALLY_OPS_FP8_H
#define TALLY_OPS_FP8_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_FP8_HISTORY 16

/* f32[3, 1 + TL_FP8_HISTORY], category optim, kept (tl_free it): rows input, weight, gradient; of each the scale, then the
 * largest magnitudes of this step and those before it. */
tl_tensor *tl_fp8_state_new(tl_ctx *ctx);
/* x rounded as row says (0 input, 1 weight: e4m3; 2 gradient: e5m2), in x's format; with `record`, which an evaluation
 * leaves out, its largest magnitude is recorded first. The gradient passes as it is. */
tl_tensor *tl_fp8_round_(tl_tensor *x, tl_tensor *state, int row, bool record, const char *site);
/* x itself, whose gradient is rounded on its way back. The state must outlive backward. */
tl_tensor *tl_fp8_gradient_(tl_tensor *x, tl_tensor *state, const char *site);
/* After a step: scales from the histories, which then move on by one. In place. */
tl_tensor *tl_fp8_roll_(tl_tensor *state, const char *site);

#define tl_fp8_round(x, state, row, record) tl_fp8_round_((x), (state), (row), (record), TL_HERE)
#define tl_fp8_gradient(x, state) tl_fp8_gradient_((x), (state), TL_HERE)
#define tl_fp8_roll(state) tl_fp8_roll_((state), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
