/* op/reduce.h: what reductions over axes share. */
#ifndef TALLY_OP_REDUCE_H
#define TALLY_OP_REDUCE_H

#include "op/core.h"

typedef struct tl_reduce_attr {
    int axes[TL_MAX_NDIM], n; /* n 0: all */
    bool keep;                /* reduced axes stay with size 1 */
    bool saves_input;         /* the mean alone: kept for backward without need */
} tl_reduce_attr;

/* Checks the axes and adds the output; *reduced gets the product of the reduced sizes. */
tl_status tl_reduce_infer(tl_sig *sig, int64_t *reduced);
/* The output in keep-form, as kernels take it: the input's ndim, size 1 where reduced. Then runs. */
tl_status tl_reduce_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel);
/* A gradient of the output's shape as one of the input's: seen with kept axes and stride 0, no copy. */
tl_tensor *tl_reduce_spread(const tl_saved *saved, tl_tensor *g);
int64_t tl_reduce_count(const tl_reduce_attr *attr, const tl_shape *shape);
/* The same with size 1 where reduced: a view. */
tl_tensor *tl_reduce_kept(const tl_saved *saved, tl_tensor *g);
void tl_reduce_sample(uint64_t seed, tl_case *c);
tl_tensor *tl_reduce_call(const tl_op *op, tl_tensor *x, const int *axes, int n, bool keep, const char *site);

tl_status tl_reduce_float_infer(tl_sig *sig); /* floats alone */
tl_status tl_reduce_wide_infer(tl_sig *sig);  /* floats; integers and bool into i64, where narrow results would wrap */
/* min and max: any dtype; of no elements only floats, whose infinities are the answer. Each equal to the result gets an
 * equal share of the gradient. Keeps the input and the output. */
tl_status tl_reduce_extreme_infer(tl_sig *sig);
tl_status tl_reduce_extreme_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]);
void tl_reduce_saves_both(const tl_sig *sig, tl_saves *saves);
/* Fused backward of a reduction: x, and the result and its gradient seen in x's shape. */
tl_status tl_reduce_backward_infer(tl_sig *sig);
void tl_reduce_backward_sample(uint64_t seed, tl_case *c);

#endif
