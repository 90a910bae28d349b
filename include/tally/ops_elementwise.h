/* tally/ops_elementwise.h: functions, comparisons, logic, selections. Part of tally/ops.h, whose rules hold here too. */
#ifndef TALLY_OPS_ELEMENTWISE_H
#define TALLY_OPS_ELEMENTWISE_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- functions of one number. Floats; abs, sign, clamp integers too ---- */
tl_tensor *tl_abs_(tl_tensor *x, const char *site);
tl_tensor *tl_sign_(tl_tensor *x, const char *site);       /* −1, 0, 1; no gradient */
tl_tensor *tl_floor_(tl_tensor *x, const char *site);      /* no gradient */
tl_tensor *tl_ceil_(tl_tensor *x, const char *site);       /* no gradient */
tl_tensor *tl_round_(tl_tensor *x, const char *site);      /* halves to even; no gradient */
tl_tensor *tl_reciprocal_(tl_tensor *x, const char *site); /* 1/x */
tl_tensor *tl_sin_(tl_tensor *x, const char *site);
tl_tensor *tl_cos_(tl_tensor *x, const char *site);
tl_tensor *tl_erf_(tl_tensor *x, const char *site);
tl_tensor *tl_sigmoid_(tl_tensor *x, const char *site);           /* 1/(1 + e^−x) */
tl_tensor *tl_softplus_(tl_tensor *x, const char *site);          /* log(1 + e^x) */
tl_tensor *tl_softsign_(tl_tensor *x, const char *site);          /* x/(1 + |x|) */
tl_tensor *tl_elu_(tl_tensor *x, double alpha, const char *site); /* x, below 0 α·(e^x − 1) (Clevert et al. 2016) */
tl_tensor *tl_leaky_relu_(tl_tensor *x, double alpha, const char *site); /* x, below 0 α·x (Maas et al. 2013) */
tl_tensor *tl_hard_swish_(tl_tensor *x, const char *site); /* x·max(0, min(1, x/6 + ½)) (Howard et al. 2019) */
tl_tensor *tl_mish_(tl_tensor *x, const char *site);       /* x·tanh(log(1 + e^x)) (Misra 2019) */
tl_tensor *tl_swish_(tl_tensor *x, double alpha, const char *site); /* x·σ(αx) (Ramachandran et al. 2017) */
/* min(high, max(low, x)); ±INFINITY: no bound; a NaN stays */
tl_tensor *tl_clamp_(tl_tensor *x, double low, double high, const char *site);
/* ---- functions of two numbers of one format, with broadcasting ---- */
/* x^n; integers modulo 2^64, and 1/x^n towards zero for n < 0 */
tl_tensor *tl_power_(tl_tensor *x, tl_tensor *n, const char *site);
/* the remainder with b's sign, as Python's %; integers by 0: 0 */
tl_tensor *tl_mod_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_fmod_(tl_tensor *a, tl_tensor *b, const char *site); /* the remainder with a's sign, as C's % */
/* of any format; a NaN wins; half the gradient to each where equal */
tl_tensor *tl_minimum_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_maximum_(tl_tensor *a, tl_tensor *b, const char *site);
/* ---- to bool; no gradient. Compared are two tensors of one format, any; NaN equals nothing ---- */
tl_tensor *tl_equal_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_not_equal_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_less_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_less_equal_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_greater_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_greater_equal_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_logical_and_(tl_tensor *a, tl_tensor *b, const char *site); /* of bool, as the two below */
tl_tensor *tl_logical_or_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_logical_xor_(tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_logical_not_(tl_tensor *x, const char *site);
tl_tensor *tl_is_nan_(tl_tensor *x, const char *site);
tl_tensor *tl_is_inf_(tl_tensor *x, bool positive, bool negative, const char *site); /* which infinities count */
/* ---- selections, any format ---- */
/* bool ? a : b; all three broadcast */
tl_tensor *tl_where_(tl_tensor *condition, tl_tensor *a, tl_tensor *b, const char *site);
/* value where the bool mask, which broadcasts to x, holds */
tl_tensor *tl_masked_fill_(tl_tensor *x, tl_tensor *mask, double value, const char *site);
/* of the last two axes: column − row ≥ diagonal is kept, zero elsewhere */
tl_tensor *tl_triu_(tl_tensor *x, int64_t diagonal, const char *site);
tl_tensor *tl_tril_(tl_tensor *x, int64_t diagonal, const char *site); /* column − row ≤ diagonal */
/* ---- in place; the handle returned is on the same storage ---- */
/* start + i·step along the only axis of x */
tl_tensor *tl_range_(tl_tensor *x, double start, double step, const char *site);
/* 1 where column − row = diagonal of the last two axes, else 0 */
tl_tensor *tl_eye_(tl_tensor *x, int64_t diagonal, const char *site);

#define tl_abs(x) tl_abs_((x), TL_HERE)
#define tl_sign(x) tl_sign_((x), TL_HERE)
#define tl_floor(x) tl_floor_((x), TL_HERE)
#define tl_ceil(x) tl_ceil_((x), TL_HERE)
#define tl_round(x) tl_round_((x), TL_HERE)
#define tl_reciprocal(x) tl_reciprocal_((x), TL_HERE)
#define tl_sin(x) tl_sin_((x), TL_HERE)
#define tl_cos(x) tl_cos_((x), TL_HERE)
#define tl_erf(x) tl_erf_((x), TL_HERE)
#define tl_sigmoid(x) tl_sigmoid_((x), TL_HERE)
#define tl_softplus(x) tl_softplus_((x), TL_HERE)
#define tl_softsign(x) tl_softsign_((x), TL_HERE)
#define tl_elu(x, alpha) tl_elu_((x), (alpha), TL_HERE)
#define tl_leaky_relu(x, alpha) tl_leaky_relu_((x), (alpha), TL_HERE)
#define tl_hard_swish(x) tl_hard_swish_((x), TL_HERE)
#define tl_mish(x) tl_mish_((x), TL_HERE)
#define tl_swish(x, alpha) tl_swish_((x), (alpha), TL_HERE)
#define tl_clamp(x, low, high) tl_clamp_((x), (low), (high), TL_HERE)
#define tl_power(x, n) tl_power_((x), (n), TL_HERE)
#define tl_mod(a, b) tl_mod_((a), (b), TL_HERE)
#define tl_fmod(a, b) tl_fmod_((a), (b), TL_HERE)
#define tl_minimum(a, b) tl_minimum_((a), (b), TL_HERE)
#define tl_maximum(a, b) tl_maximum_((a), (b), TL_HERE)
#define tl_equal(a, b) tl_equal_((a), (b), TL_HERE)
#define tl_not_equal(a, b) tl_not_equal_((a), (b), TL_HERE)
#define tl_less(a, b) tl_less_((a), (b), TL_HERE)
#define tl_less_equal(a, b) tl_less_equal_((a), (b), TL_HERE)
#define tl_greater(a, b) tl_greater_((a), (b), TL_HERE)
#define tl_greater_equal(a, b) tl_greater_equal_((a), (b), TL_HERE)
#define tl_logical_and(a, b) tl_logical_and_((a), (b), TL_HERE)
#define tl_logical_or(a, b) tl_logical_or_((a), (b), TL_HERE)
#define tl_logical_xor(a, b) tl_logical_xor_((a), (b), TL_HERE)
#define tl_logical_not(x) tl_logical_not_((x), TL_HERE)
#define tl_is_nan(x) tl_is_nan_((x), TL_HERE)
#define tl_is_inf(x, positive, negative) tl_is_inf_((x), (positive), (negative), TL_HERE)
#define tl_where(condition, a, b) tl_where_((condition), (a), (b), TL_HERE)
#define tl_masked_fill(x, mask, value) tl_masked_fill_((x), (mask), (value), TL_HERE)
#define tl_triu(x, diagonal) tl_triu_((x), (diagonal), TL_HERE)
#define tl_tril(x, diagonal) tl_tril_((x), (diagonal), TL_HERE)
#define tl_range(x, start, step) tl_range_((x), (start), (step), TL_HERE)
#define tl_eye(x, diagonal) tl_eye_((x), (diagonal), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
