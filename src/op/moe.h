/* op/moe.h: what the ops of a mixture of experts share. */
#ifndef TALLY_OP_MOE_H
#define TALLY_OP_MOE_H

#include "op/rows.h"
#include "op/views.h"
#include "tally/ops_index.h"
#include "tally/ops_moe.h"

extern const tl_op tl_op_moe_permute, tl_op_moe_combine;

/* Choices and rows are numbered in 32 bits. */
#define TL_MOE_MOST_ROWS INT32_MAX

/* Input `input`: experts[n,k], i32 or i64, of fewer than 2^31 choices. */
tl_status tl_moe_want_experts(tl_sig *sig, int input);
/* Runs a kernel whose fault is a choice of no expert. */
tl_status tl_moe_run_experts(const tl_sig *sig, tl_args *args, tl_kernel *kernel, int64_t n_expert);
/* Input `input`: an order […] of fewer than 2^31 rows, for n tokens with k choices each. */
tl_status tl_moe_want_order(tl_sig *sig, int input, int64_t n, int64_t k);
/* Runs a kernel whose fault is a row of no choice. */
tl_status tl_moe_run_order(const tl_sig *sig, tl_args *args, tl_kernel *kernel, int64_t n_choice);
/* Input `input` must be `order`'s shape with [width] behind it. */
tl_status tl_moe_want_rows(tl_sig *sig, int input, const tl_shape *order, tl_dim width, const char *what);
/* order's shape with [width] behind it. */
tl_shape tl_moe_rows_shape(const tl_shape *order, tl_dim width);
/* The lists of each token's rows: n + 1 starts and a number for each row. */
tl_dim tl_moe_workspace(tl_ctx *ctx, tl_dim n, const tl_shape *order);
/* n and k are 1 or more (n may be 0) and an order is given. */
typedef struct tl_moe_attrs {
    tl_moe_attr moe; /* first: kernels read this much */
    tl_dim n, k;     /* tokens (where no input says it) and choices of each */
} tl_moe_attrs;
tl_moe_attrs tl_moe_attrs_of(tl_dim n, tl_dim k);

/* Input `input` must be offsets[E+1]. */
tl_status tl_moe_want_offsets(tl_sig *sig, int input, tl_dim n_expert);
/* Bytes at the front of the workspace that tl_moe_read_offsets takes. */
tl_dim tl_moe_offsets_workspace(const tl_sig *sig, int input);
/* The offsets in the workspace, checked. A product is told its sizes by the host, so that the host must know them; a device whose
 * products read them where they are has no use for this. */
tl_status tl_moe_read_offsets(const tl_sig *sig, tl_args *args, int input, int64_t rows, const int64_t **offsets);
/* The time model's efficiency is that of an even load; the count does not depend on it. */
void tl_moe_even_load(tl_cost *cost, int64_t m, int64_t n, int64_t k, int64_t n_expert);
/* Where row `row` of a starts. */
char *tl_moe_rows_from(const tl_array *a, int64_t row);
void tl_moe_sample_offsets(tl_case *c, int64_t n_expert, int64_t rows);

/* A sample's order: any choices, in one axis or two; *rows gets their number. */
void tl_moe_sample_order(uint64_t *seed, tl_case *c, int64_t n, int64_t k);

#endif
