/* op/index.h: what gathers and scatters share. */
#ifndef TALLY_OP_INDEX_H
#define TALLY_OP_INDEX_H

#include "op/rows.h"
#include "op/views.h"
#include "tally/ops_index.h"

extern const tl_op tl_op_gather, tl_op_gather_elements, tl_op_gather_nd, tl_op_gather_backward;

/* The shape that `index` (input `index` of sig) picks from `x`, or the op's error. The attribute's axis may be negative. */
tl_status tl_sig_picked(tl_sig *sig, const tl_index_attr *attr, const tl_shape *x, int index, tl_shape *picked);
/* The attribute with its axis counted from 0, for kernels. */
tl_index_attr tl_index_normal(const tl_index_attr *attr, int ndim);

/* Ops x, index → picked. The kind comes from the attribute. */
tl_status tl_gather_infer(tl_sig *sig);
void tl_gather_cost(const tl_sig *sig, tl_cost *cost);
void tl_gather_saves(const tl_sig *sig, tl_saves *saves);
tl_status tl_gather_forward(const tl_sig *sig, tl_args *args);
tl_status tl_gather_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]);
/* Zeros of `full`, and picked (like `gradient`) added where index says. */
tl_tensor *tl_gather_backward(tl_tensor *index, tl_tensor *gradient, const tl_index_attr *attr, const tl_shape *full,
                              const char *site);

/* Ops x, index, updates → x with the updates combined in. */
tl_status tl_scatter_infer(tl_sig *sig);
void tl_scatter_cost(const tl_sig *sig, tl_cost *cost);
void tl_scatter_saves(const tl_sig *sig, tl_saves *saves);
tl_status tl_scatter_forward(const tl_sig *sig, tl_args *args);
/* `gather` is the op that picks what this one scatters. */
tl_status tl_scatter_grad(tl_ctx *ctx, const tl_saved *saved, const tl_op *gather, tl_tensor *const gout[],
                          tl_tensor *gin[]);

/* Sample cases. A gather's x and index; updates of the shape that results when `scatter`. */
void tl_index_sample(uint64_t *seed, tl_case *c, tl_index_kind kind, bool scatter);

#endif
