/* op/views.h: what views and copies share. */
#ifndef TALLY_OP_VIEWS_H
#define TALLY_OP_VIEWS_H

#include "op/core.h"

/* The one routine that merges and splits strides: those of `shape` over t's elements in the same order. False if no
 * strides can say it (*axis: the axis of t that cannot be joined to the next). Counts must be equal. */
bool tl_view_strides(const tl_tensor *t, const tl_shape *shape, int64_t stride[TL_MAX_NDIM], int *axis);

/* A normalised axis of an input, or the op's error naming the range. */
tl_status tl_sig_axis(tl_sig *sig, int input, int axis, int *normal);
/* The same without checks, for grad: infer looked before. */
static inline int tl_axis_normal(int axis, int ndim) { return axis < 0 ? axis + ndim : axis; }

/* Refuses negative sizes and more elements than 64 bits count; gives every dim its formula. */
tl_status tl_sig_check_shape(tl_sig *sig, tl_shape *shape);
/* Adds an output that is input 0 seen otherwise. */
tl_output *tl_sig_add_view(tl_sig *sig, const tl_shape *shape, const int64_t *stride, int64_t offset);

/* Takes axis `axis` of a view's shape and strides out. */
void tl_output_drop_axis(tl_output *out, int axis);

/* Gradients of views as new tensors of shape `full`: g at what a slice took (zeros elsewhere); g added at the elements that
 * a view with these strides and offset of the contiguous `full` meets, in order. */
tl_tensor *tl_slice_gradient(tl_tensor *g, const tl_shape *full, int axis, int64_t start, int64_t step,
                             const char *site);
tl_tensor *tl_strided_gradient(tl_tensor *g, const tl_shape *full, const int64_t *stride, int64_t offset,
                               const char *site);

/* For ops that only move: no FLOPs, all inputs read and all outputs written. */
void tl_cost_moves(const tl_sig *sig, tl_cost *cost);
/* Copies input 0 to output 0. */
tl_status tl_forward_copy(const tl_sig *sig, tl_args *args);

/* A new tensor of zeros, booked as a fill. */
tl_tensor *tl_zeros_of(tl_ctx *ctx, tl_dtype dtype, const tl_shape *shape, const char *site);

#endif
