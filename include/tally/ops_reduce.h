/* tally/ops_reduce.h: reductions, places and running values. Part of tally/ops.h, whose rules hold here too. */
#ifndef TALLY_OPS_REDUCE_H
#define TALLY_OPS_REDUCE_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- over the axes in `axes` (n of them; negative allowed; n = 0: all), as tl_sum ---- */
/* any format; a NaN wins; of no floats: ∞ */
tl_tensor *tl_min_(tl_tensor *x, const int *axes, int n, bool keep, const char *site);
/* integers in i64, as the two below */
tl_tensor *tl_prod_(tl_tensor *x, const int *axes, int n, bool keep, const char *site);
tl_tensor *tl_l1_(tl_tensor *x, const int *axes, int n, bool keep, const char *site);         /* Σ|x| */
tl_tensor *tl_sum_square_(tl_tensor *x, const int *axes, int n, bool keep, const char *site); /* Σx² */
/* √Σx²; the gradient at 0 is 0 */
tl_tensor *tl_l2_(tl_tensor *x, const int *axes, int n, bool keep, const char *site);
tl_tensor *tl_log_sum_(tl_tensor *x, const int *axes, int n, bool keep, const char *site); /* log Σx: sum, then log */
/* log Σe^x, shifted by the largest */
tl_tensor *tl_log_sum_exp_(tl_tensor *x, const int *axes, int n, bool keep, const char *site);
/* ---- places, i64: the first of equals or the last; a NaN wins; no gradient ---- */
tl_tensor *tl_argmax_along_(tl_tensor *x, int axis, bool keep, bool last, const char *site);
tl_tensor *tl_argmin_along_(tl_tensor *x, int axis, bool keep, bool last, const char *site);
/* ---- along an axis ---- */
/* Σ_{j≤i}, exclusive: j < i, reverse: from the end */
tl_tensor *tl_cumsum_(tl_tensor *x, int axis, bool exclusive, bool reverse, const char *site);
tl_tensor *tl_cumprod_(tl_tensor *x, int axis, bool exclusive, bool reverse, const char *site);
tl_tensor *tl_log_softmax_(tl_tensor *x, const char *site); /* x − log Σe^x over the last axis; saves its output */
/* over any axis: tl_softmax between two transpositions */
tl_tensor *tl_softmax_along_(tl_tensor *x, int axis, const char *site);
tl_tensor *tl_log_softmax_along_(tl_tensor *x, int axis, const char *site);
/* 1 at the first largest, 0 elsewhere: argmax and one_hot; no gradient */
tl_tensor *tl_hardmax_(tl_tensor *x, int axis, const char *site);
/* x/‖x‖_p, p 1 or 2; a norm of 0 gives 0 */
tl_tensor *tl_lp_normalize_(tl_tensor *x, int p, int axis, const char *site);
/* a new axis of `depth`; −1 is its last place; an index outside: all off */
tl_tensor *tl_one_hot_(tl_tensor *indices, tl_dim depth, int axis, tl_dtype dtype, double on, double off,
                       const char *site);

#define tl_min(x, axes, n, keep) tl_min_((x), (axes), (n), (keep), TL_HERE)
#define tl_prod(x, axes, n, keep) tl_prod_((x), (axes), (n), (keep), TL_HERE)
#define tl_l1(x, axes, n, keep) tl_l1_((x), (axes), (n), (keep), TL_HERE)
#define tl_sum_square(x, axes, n, keep) tl_sum_square_((x), (axes), (n), (keep), TL_HERE)
#define tl_l2(x, axes, n, keep) tl_l2_((x), (axes), (n), (keep), TL_HERE)
#define tl_log_sum(x, axes, n, keep) tl_log_sum_((x), (axes), (n), (keep), TL_HERE)
#define tl_log_sum_exp(x, axes, n, keep) tl_log_sum_exp_((x), (axes), (n), (keep), TL_HERE)
#define tl_argmax_along(x, axis, keep, last) tl_argmax_along_((x), (axis), (keep), (last), TL_HERE)
#define tl_argmin_along(x, axis, keep, last) tl_argmin_along_((x), (axis), (keep), (last), TL_HERE)
#define tl_cumsum(x, axis, exclusive, reverse) tl_cumsum_((x), (axis), (exclusive), (reverse), TL_HERE)
#define tl_cumprod(x, axis, exclusive, reverse) tl_cumprod_((x), (axis), (exclusive), (reverse), TL_HERE)
#define tl_log_softmax(x) tl_log_softmax_((x), TL_HERE)
#define tl_softmax_along(x, axis) tl_softmax_along_((x), (axis), TL_HERE)
#define tl_log_softmax_along(x, axis) tl_log_softmax_along_((x), (axis), TL_HERE)
#define tl_hardmax(x, axis) tl_hardmax_((x), (axis), TL_HERE)
#define tl_lp_normalize(x, p, axis) tl_lp_normalize_((x), (p), (axis), TL_HERE)
#define tl_one_hot(indices, depth, axis, dtype, on, off)                                                               \
    tl_one_hot_((indices), (depth), (axis), (dtype), (on), (off), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
