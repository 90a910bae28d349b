/* tally/ops_choices.h: ops that frameworks' ways of running a model are made of (tally/choices.h). As in tally/ops.h every call
 * is a macro that adds the caller's line, returns a new handle in the current scope, or NULL with the context's sticky error.
 */
#ifndef TALLY_OPS_CHOICES_H
#define TALLY_OPS_CHOICES_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x^n of one number for all elements. Saves x. */
tl_tensor *tl_power_of_(tl_tensor *x, double n, const char *site);
/* tl_mean that saves x, which its gradient does not need: PyTorch 1.13 asks it for its size later. n of 0 (all axes) saves nothing. */
tl_tensor *tl_mean_of_kept_(tl_tensor *x, const int *axes, int n, bool keep, const char *site);
/* GELU(a)·b, shapes equal (Shazeer 2020): by erf, or in its tanh form. Saves a and b, and nothing between. */
tl_tensor *tl_geglu_(tl_tensor *a, tl_tensor *b, bool erf, const char *site);

/* ---- in place; no gradient ---- */
/* x = x·factor + offset. */
tl_tensor *tl_shift_into_(tl_tensor *x, double factor, double offset, const char *site);
/* x ·= factor, a tensor of one element of any float format. */
tl_tensor *tl_scale_by_(tl_tensor *x, tl_tensor *factor, const char *site);
/* into = keep·into + value·x; with y value·x·y, or with `divides` value·x/y. Shapes equal, floats of any formats. PyTorch's
 * mul_ and add_, addcmul_, addcdiv_. Returns into's new handle. */
tl_tensor *tl_multiply_add_(tl_tensor *into, double keep, double value, tl_tensor *x, tl_tensor *y, bool divides,
                            const char *site);
/* Returns tl_cross_entropy of logits[… V] and targets, one element, and writes over the logits their gradient times `weight`, one
 * float. Nothing is saved; the workspace is a number a row. */
tl_tensor *tl_cross_entropy_in_place_(tl_tensor *logits, tl_tensor *targets, tl_tensor *weight, int64_t ignore_index,
                                      const char *site);

/* value[1], whose gradient with respect to x[i] is gradient[i] (shapes and formats equal; computed without recording), n of
 * them, 1 to 7: a loss that made its gradients in forward. Saves them; backward scales them in place and hands them over
 * without a copy, and can go back no further through `value`. */
tl_tensor *tl_given_gradients_(tl_tensor *value, tl_tensor *const x[], tl_tensor *const gradient[], int n,
                               const char *site);

/* x[… D]·g[D] in x's format, for a g of any float format: g is cast where it is read, and kept as it is. Workspace: D elements of
 * x's format. */
tl_tensor *tl_mul_mixed_(tl_tensor *x, tl_tensor *g, const char *site);

/* x, on its own memory, with `kept` saved beside it until backward has passed through here, though no gradient needs it: what a
 * framework's autograd function keeps by its formula (the source of PyTorch's index_copy, the input of bitsandbytes' frozen
 * product). `kept` gets no gradient this way. NULL: x. */
tl_tensor *tl_retain_(tl_tensor *x, tl_tensor *kept, const char *site);

#define tl_power_of(x, n) tl_power_of_((x), (n), TL_HERE)
#define tl_mean_of_kept(x, axes, n, keep) tl_mean_of_kept_((x), (axes), (n), (keep), TL_HERE)
#define tl_geglu(a, b, erf) tl_geglu_((a), (b), (erf), TL_HERE)
#define tl_shift_into(x, factor, offset) tl_shift_into_((x), (factor), (offset), TL_HERE)
#define tl_scale_by(x, factor) tl_scale_by_((x), (factor), TL_HERE)
#define tl_multiply_add(into, keep, value, x, y, divides)                                                              \
    tl_multiply_add_((into), (keep), (value), (x), (y), (divides), TL_HERE)
#define tl_cross_entropy_in_place(logits, targets, weight, ignore)                                                     \
    tl_cross_entropy_in_place_((logits), (targets), (weight), (ignore), TL_HERE)
#define tl_mul_mixed(x, g) tl_mul_mixed_((x), (g), TL_HERE)
#define tl_retain(x, kept) tl_retain_((x), (kept), TL_HERE)
#define tl_given_gradients(value, x, gradient, n) tl_given_gradients_((value), (x), (gradient), (n), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
