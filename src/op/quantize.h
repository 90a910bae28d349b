/* op/quantize.h: what quantising and its reverse share: where a scale holds. */
#ifndef TALLY_OP_QUANTIZE_H
#define TALLY_OP_QUANTIZE_H

#include "op/rows.h"
#include "op/views.h"
#include "tally/ops_quantize.h"

typedef struct quantize_attr {
    tl_dtype dtype; /* quantize's result */
    int axis;
    int64_t block;
    bool overflows;
} quantize_attr;

/* Scale (input 1) and zero point (input 2, if there) fit x (input 0). */
tl_status tl_sig_want_scale(tl_sig *sig);
/* The call's arrays with x's sizes, a blocked axis split in two, scale and zero point standing still where they repeat. */
void tl_quantize_spread(const tl_sig *sig, tl_args *args);
/* A sample's x or q is there; adds a scale and half of the time a zero point of `zero`. */
void tl_quantize_sample(uint64_t *seed, tl_case *c, quantize_attr *attr, const int64_t size[3], tl_dtype zero);

#endif
