/* axes/einsum.h: a contraction read, ordered and kept. */
#ifndef TALLY_AXES_EINSUM_H
#define TALLY_AXES_EINSUM_H

#include "axes/pattern.h"

enum { TL_EINSUM_LABELS = TL_MAX_IO * TL_MAX_NDIM };

typedef tl_u128 tl_label_set; /* bit i: label i */

typedef struct tl_label {
    const char *name; /* NULL: an axis of `...` */
    int64_t size;
    int at, length; /* where the pattern met it first */
    int operand, axis;
    int times; /* how often the operands name it */
} tl_label;

typedef struct tl_einsum_plan {
    /* what it was made for */
    char *text;
    int n, ndim[TL_MAX_IO];
    int64_t size[TL_MAX_IO][TL_MAX_NDIM];
    /* what was read */
    bool words;
    int labels, n_out;
    tl_label label[TL_EINSUM_LABELS];
    uint8_t axis[TL_MAX_IO][TL_MAX_NDIM], out[TL_MAX_NDIM];
    /* what was decided */
    int pair[TL_MAX_IO][2];
    tl_u128 flops;
} tl_einsum_plan;

static inline tl_label_set tl_label_bit(int label) { return (tl_label_set)1 << label; }

/* Reads the pattern for these operands into a plan without an order. */
tl_status tl_einsum_read(tl_einsum_plan *plan, tl_pattern *p, tl_tensor *const operands[]);
/* Decides the order of contractions; fails where every order meets a tensor of more than TL_MAX_NDIM axes. */
tl_status tl_einsum_decide(tl_einsum_plan *plan, const tl_pattern *p);
/* The labels operand i has once those it alone needs were summed, and sizes of 1 that stretch were dropped. */
tl_label_set tl_einsum_operand_set(const tl_einsum_plan *plan, int i);
tl_label_set tl_einsum_out_set(const tl_einsum_plan *plan);

#endif
