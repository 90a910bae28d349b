/* op/core.h: what an op's file includes: the op's contract, the kernel table and tensors from inside. */
#ifndef TALLY_OP_CORE_H
#define TALLY_OP_CORE_H

#include "tally/op.h"
#include "account/ledger.h"
#include "kernel/table.h"
#include "tally/ops.h"
#include "tally/views.h"
#include "tensor/ctx.h"

/* What forward gets: the device's kernels and a call with all inputs and outputs as arrays, attributes and workspace. */
struct tl_args {
    const tl_kernels *kernels;
    tl_kcall call;
};

/* Runs a kernel on the prepared call and turns a fault into an error. */
tl_status tl_args_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel);

/* A forward for ops that move nothing (views). */
tl_status tl_forward_view(const tl_sig *sig, tl_args *args);

/* Refuses what `into` cannot take the place of the first output in: see tl_run_into. */
tl_status tl_sig_check_into(tl_sig *sig, const tl_tensor *into);

/* The broadcast shape of two inputs into *shape; fails naming both. */
tl_status tl_sig_broadcast(tl_sig *sig, int a, int b, tl_shape *shape);
/* The error of a product that a library gave up part-way. */
tl_status tl_product_failed(const tl_sig *sig);
/* A product reads a matrix (the last two axes) of which one stride is 1 and none is negative. */
bool tl_is_readable_matrix(const tl_tensor *x);
tl_status tl_sig_want_readable(tl_sig *sig, int input);
/* Strides of array `from` seen as `shape` (leading axes added, size-1 axes stretched with stride 0). */
void tl_array_broadcast(tl_array *array, const tl_shape *shape);

/* What grad gets. Filled by the tape. */
struct tl_saved {
    tl_ctx *ctx;
    const tl_op *op;
    const void *attr;
    const char *site;
    int n_in, n_out;
    const tl_shape *in_shape;
    const tl_dtype *in_dtype;
    const bool *needs;
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO], *into[TL_MAX_IO];
    tl_tensor *(*take)(const tl_saved *saved, int input);
    void *node;
};

/* A saved input as the caller's own, in the current scope: the tape's hold on it ends, so that it may be written into and handed
 * on. Once for each. */
tl_tensor *tl_saved_take(const tl_saved *saved, int input);

/* The sum of g over the axes that broadcasting `shape` to g's shape stretched; g itself if none. */
tl_tensor *tl_sum_to(tl_tensor *g, const tl_shape *shape, const char *site);

#define TL_ATTR(type, sig) ((const type *)(sig)->attr)

/* dims of an input: shorthand for cost and infer. */
static inline tl_dim tl_in_dim(const tl_sig *sig, int input, int axis) {
    const tl_shape *s = &sig->in[input]->shape;
    return s->dim[axis < 0 ? s->ndim + axis : axis];
}

#endif
