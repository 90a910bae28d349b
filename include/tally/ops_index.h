/* tally/ops_index.h: ops that pick, place, order and repeat elements. As in tally/ops.h every call is a macro that adds the
 * caller's line, returns a new handle in the current scope, or NULL with the context's sticky error.
 *
 * Indices are i32 or i64 and count from the end when negative, as ONNX's do. One out of range is an error that names its
 * position in the index tensor. Any dtype moves; gradients are for floats and go to the data, never to indices.
 */
#ifndef TALLY_OPS_INDEX_H
#define TALLY_OPS_INDEX_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- gathers. Backward adds what was picked to zeros, in order of position. Saves the indices ---- */
/* x[a…, index[i…], b…] for `axis` → [a…, i…, b…] (ONNX Gather, numpy.take). */
tl_tensor *tl_gather_(tl_tensor *x, tl_tensor *index, int axis, const char *site);
/* x flattened, by index → index's shape (PyTorch take). */
tl_tensor *tl_take_(tl_tensor *x, tl_tensor *index, const char *site);
/* y[… i …] = x[… index[… i …] …] along `axis`; no axis of index but that one is longer than x's (ONNX GatherElements,
 * PyTorch gather, numpy.take_along_axis). */
tl_tensor *tl_gather_elements_(tl_tensor *x, tl_tensor *index, int axis, const char *site);
/* index[b…, i…, n] holds places of n indices each, x[b…, …]; the first `shared_axes` axes b are both's → [b…, i…, rest of x]
 * (ONNX GatherND). */
tl_tensor *tl_gather_nd_(tl_tensor *x, tl_tensor *index, int shared_axes, const char *site);

/* ---- scatters: a copy of x with updates combined in, one after another in order of their position ----
 * Deterministic where indices repeat, on any number of threads: the last one replaces. The gradient follows that order
 * exactly: what was replaced gets none, and of max and min the one that decided gets it (of equals the first; x's before all).
 * Saves the indices; for mul, max and min also x and the updates. */
typedef enum tl_scatter {
    TL_SCATTER_REPLACE,
    TL_SCATTER_ADD,
    TL_SCATTER_MUL,
    TL_SCATTER_MAX,
    TL_SCATTER_MIN
} tl_scatter;
/* The places of tl_gather_elements (ONNX ScatterElements). */
tl_tensor *tl_scatter_elements_(tl_tensor *x, tl_tensor *index, tl_tensor *updates, int axis, tl_scatter how,
                                const char *site);
/* The places of tl_gather_nd without shared axes (ONNX ScatterND). */
tl_tensor *tl_scatter_nd_(tl_tensor *x, tl_tensor *index, tl_tensor *updates, tl_scatter how, const char *site);
/* The places of tl_gather, added (PyTorch index_add). */
tl_tensor *tl_index_add_(tl_tensor *x, tl_tensor *index, tl_tensor *source, int axis, const char *site);

/* ---- order ---- */
/* Values along `axis` in order, and where they were (i64). Stable in both directions: of equals the lower index first. NaN is the
 * largest. The gradient goes to where the values came from; saves the positions. */
tl_status tl_sort_(tl_tensor *x, int axis, bool descending, tl_tensor **values, tl_tensor **positions,
                   const char *site);
/* The k largest (or smallest) of that order, sorted (ONNX TopK). */
tl_status tl_top_k_(tl_tensor *x, int axis, int64_t k, bool largest, tl_tensor **values, tl_tensor **positions,
                    const char *site);

/* ---- padding and repetition ---- */
typedef enum tl_padding { TL_PADDING_CONSTANT, TL_PADDING_REFLECT, TL_PADDING_EDGE, TL_PADDING_WRAP } tl_padding;
/* before[i] and after[i] elements (negative: cut off) at both ends of axis i; one of each per axis. constant: `value`;
 * reflect: mirrored without the border itself, as often as it takes; edge: the border; wrap: from the other end (numpy.pad;
 * ONNX Pad). Cutting never changes what is mirrored: that is always x. */
tl_tensor *tl_pad_(tl_tensor *x, const int64_t *before, const int64_t *after, tl_padding how, double value,
                   const char *site);
/* x repeats[i] times along axis i, one number per axis. */
tl_tensor *tl_tile_(tl_tensor *x, const int64_t *repeats, const char *site);
/* n tensors of one shape along a new axis; n ≤ 16. Views and one concat: its gradient is one split. */
tl_tensor *tl_stack_(tl_tensor *const x[], int n, int axis, const char *site);

#define tl_gather(x, index, axis) tl_gather_((x), (index), (axis), TL_HERE)
#define tl_take(x, index) tl_take_((x), (index), TL_HERE)
#define tl_gather_elements(x, index, axis) tl_gather_elements_((x), (index), (axis), TL_HERE)
#define tl_gather_nd(x, index, shared_axes) tl_gather_nd_((x), (index), (shared_axes), TL_HERE)
#define tl_scatter_elements(x, index, updates, axis, how)                                                              \
    tl_scatter_elements_((x), (index), (updates), (axis), (how), TL_HERE)
#define tl_scatter_nd(x, index, updates, how) tl_scatter_nd_((x), (index), (updates), (how), TL_HERE)
#define tl_index_add(x, index, source, axis) tl_index_add_((x), (index), (source), (axis), TL_HERE)
#define tl_sort(x, axis, descending, values, positions)                                                                \
    tl_sort_((x), (axis), (descending), (values), (positions), TL_HERE)
#define tl_top_k(x, axis, k, largest, values, positions)                                                               \
    tl_top_k_((x), (axis), (k), (largest), (values), (positions), TL_HERE)
#define tl_pad(x, before, after, how, value) tl_pad_((x), (before), (after), (how), (value), TL_HERE)
#define tl_tile(x, repeats) tl_tile_((x), (repeats), TL_HERE)
#define tl_stack(x, n, axis) tl_stack_((x), (n), (axis), TL_HERE)

#ifdef __cplusplus
}
#endif
#endif
