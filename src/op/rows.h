/* op/rows.h: what ops along the last axis share. A tensor […, D] is rows of D; the rows are all leading axes. */
#ifndef TALLY_OP_ROWS_H
#define TALLY_OP_ROWS_H

#include "op/core.h"

tl_dim tl_rows_dim(tl_ctx *ctx, const tl_shape *shape);     /* the product of the leading axes */
tl_dim tl_elements_dim(tl_ctx *ctx, const tl_shape *shape); /* the product of all axes */
tl_shape tl_shape_leading(const tl_shape *shape);           /* the shape without its last axis */
tl_tensor *tl_as_matrix(tl_tensor *x, const char *site);    /* [rows, D]: a view, or a copy where that needs one */
/* The dtype of statistics and losses: f32, f64 for f64. */
tl_dtype tl_statistic_dtype(tl_dtype dtype);

/* Input `input` must be [size]; `what` names it in the message. */
tl_status tl_sig_want_vector(tl_sig *sig, int input, tl_dim size, const char *what);
/* Input `input` must have exactly this shape. */
tl_status tl_sig_want_shape(tl_sig *sig, int input, const tl_shape *shape, const char *what);
tl_status tl_sig_want_index(tl_sig *sig, int input, const char *what); /* i32 or i64 */
tl_status tl_sig_want_one(tl_sig *sig, int input, const char *what);   /* one element, a float */

/* amount += factor for each element of `dims` (count of them). */
void tl_amount_more(tl_ctx *ctx, tl_amount *amount, int64_t factor, const tl_dim *dims, int count);

/* Backward of a norm. The mask says which gradients are wanted: only those are outputs, so that no other is allocated. */
enum { TL_NORM_DX = 1, TL_NORM_DGAIN = 2, TL_NORM_DBIAS = 4 };
typedef struct tl_norm_backward_attr {
    tl_norm_attr norm; /* first: the kernel reads this much */
    uint32_t wanted;
} tl_norm_backward_attr;
/* The outputs of the mask, in its order: dx like input 0, dgain and dbias like input 1. */
void tl_norm_backward_outputs(tl_sig *sig);
/* Runs the kernel with the outputs where it has them (dx, dgain, dbias; n_out slots), data NULL for those not wanted. */
tl_status tl_norm_backward_run(const tl_sig *sig, tl_args *args, int n_out, tl_kernel *kernel);
/* The partial sums of blocks of TL_ROW_BLOCK rows, `sums` of them a column, in bytes. */
tl_dim tl_norm_workspace(const tl_sig *sig, int64_t sums);

#endif
