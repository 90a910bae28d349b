/* tally/views.h: more ways to see a storage, and writing into memory that is there.
 *
 * Views are free in the ledger: the storage is shared, nothing is copied, and backward is made of views where it can be.
 *
 *     tl_tensor *last = tl_select(x, 1, -1);                    // x[:, -1]
 *     tl_tensor *back = tl_flip(x, (int[]){0}, 1);              // x[::-1]: strides (-1), offset n − 1
 *     tl_tensor *grams = tl_unfold(ids, 0, tl_dim_of(3), 1);    // all windows of three, overlapping
 *     tl_add_into(x, x, y);                                     // x += y without a new storage
 */
#ifndef TALLY_VIEWS_H
#define TALLY_VIEWS_H

#include "tally/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- views ---- */
/* One index of an axis, which goes; negative: from the end. */
tl_tensor *tl_select_(tl_tensor *x, int axis, int64_t index, const char *site);
/* The axes backwards; n 0: all. */
tl_tensor *tl_flip_(tl_tensor *x, const int *axes, int n, const char *site);
/* Takes an axis of size 1 away; any other size is refused. */
tl_tensor *tl_squeeze_(tl_tensor *x, int axis, const char *site);
/* A new axis of size 1 that will be axis `axis` of the result: −ndim−1 to ndim. */
tl_tensor *tl_unsqueeze_(tl_tensor *x, int axis, const char *site);
/* Elements whose index along axis_b is that along axis_a plus `offset`; the two axes go and the diagonal is the last (as in
 * numpy). An offset beyond the matrix gives no elements. */
tl_tensor *tl_diagonal_(tl_tensor *x, int64_t offset, int axis_a, int axis_b, const char *site);
/* Windows of `size` elements that start every `step` ≥ 1: the axis becomes their number, (n − size)/step + 1, and a new last
 * axis holds them. Windows overlap where step < size; the gradient adds what they share in order. */
tl_tensor *tl_unfold_(tl_tensor *x, int axis, tl_dim size, int64_t step, const char *site);
/* Any shape, strides (negative and zero allowed) and offset, both in elements of x's storage. Every element must lie within
 * the storage. Where x needs a gradient it must be contiguous and every element one of its own. Elements met several
 * times get their gradients added in order of the view. */
tl_tensor *tl_as_strided_(tl_tensor *x, tl_shape shape, const int64_t *strides, int64_t offset, const char *site);

/* ---- writing into memory that is there ---- */
/* Runs an op with one new output and writes it into `out` instead of a new storage; books it as ever, allocates nothing.
 * Returns a new handle on out. `out` must have the shape and dtype the op would give. Refused:
 *   - an op whose output is a view or in place already, or that has several outputs;
 *   - memory that several indices of `out` share, that backward still needs, or that belongs to a recorded expression;
 *   - an input that overlaps `out` but is not exactly it; and exactly it where the op is not elementwise;
 *   - strides other than contiguous ones where the op is not elementwise. */
tl_tensor *tl_run_into(const tl_op *op, tl_tensor *const in[], int n_in, const void *attr, tl_tensor *out,
                       const char *site);
/* out = a + b, and so on; out may be a or b itself. (tl_matmul_into of tally/ops.h adds a product to c.) */
tl_tensor *tl_add_into_(tl_tensor *out, tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_sub_into_(tl_tensor *out, tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_mul_into_(tl_tensor *out, tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_div_into_(tl_tensor *out, tl_tensor *a, tl_tensor *b, const char *site);
tl_tensor *tl_neg_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_exp_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_log_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_sqrt_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_rsqrt_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_tanh_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_relu_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_gelu_erf_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_gelu_tanh_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_silu_into_(tl_tensor *out, tl_tensor *x, const char *site);
tl_tensor *tl_copy_into_(tl_tensor *out, tl_tensor *x, const char *site);

#define tl_select(x, axis, index) tl_select_((x), (axis), (index), TL_HERE)
#define tl_flip(x, axes, n) tl_flip_((x), (axes), (n), TL_HERE)
#define tl_squeeze(x, axis) tl_squeeze_((x), (axis), TL_HERE)
#define tl_unsqueeze(x, axis) tl_unsqueeze_((x), (axis), TL_HERE)
#define tl_diagonal(x, offset, axis_a, axis_b) tl_diagonal_((x), (offset), (axis_a), (axis_b), TL_HERE)
#define tl_unfold(x, axis, size, step) tl_unfold_((x), (axis), (size), (step), TL_HERE)
#define tl_as_strided(x, shape, strides, offset) tl_as_strided_((x), (shape), (strides), (offset), TL_HERE)
#define tl_add_into(out, a, b) tl_add_into_((out), (a), (b), TL_HERE)
#define tl_sub_into(out, a, b) tl_sub_into_((out), (a), (b), TL_HERE)
#define tl_mul_into(out, a, b) tl_mul_into_((out), (a), (b), TL_HERE)
#define tl_div_into(out, a, b) tl_div_into_((out), (a), (b), TL_HERE)
#define tl_neg_into(out, x) tl_neg_into_((out), (x), TL_HERE)
#define tl_exp_into(out, x) tl_exp_into_((out), (x), TL_HERE)
#define tl_log_into(out, x) tl_log_into_((out), (x), TL_HERE)
#define tl_sqrt_into(out, x) tl_sqrt_into_((out), (x), TL_HERE)
#define tl_rsqrt_into(out, x) tl_rsqrt_into_((out), (x), TL_HERE)
#define tl_tanh_into(out, x) tl_tanh_into_((out), (x), TL_HERE)
#define tl_relu_into(out, x) tl_relu_into_((out), (x), TL_HERE)
#define tl_gelu_erf_into(out, x) tl_gelu_erf_into_((out), (x), TL_HERE)
#define tl_gelu_tanh_into(out, x) tl_gelu_tanh_into_((out), (x), TL_HERE)
#define tl_silu_into(out, x) tl_silu_into_((out), (x), TL_HERE)
#define tl_copy_into(out, x) tl_copy_into_((out), (x), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
