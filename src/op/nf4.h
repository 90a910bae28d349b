/* op/nf4.h: what the ops on NF4 weights share. */
#ifndef TALLY_OP_NF4_H
#define TALLY_OP_NF4_H

#include "op/rows.h"
#include "tally/ops_nf4.h"

/* Inputs `first` … of a packed weight of `elements` values: packed and scales, or with `twice` packed, codes, outer and mean. */
tl_status tl_sig_want_nf4(tl_sig *sig, int first, bool twice, int64_t elements);
/* The inputs of a weight, in their order; returns how many: 2 or 4. */
int tl_nf4_inputs(const tl_nf4 *w, tl_tensor *in[4]);
/* A sample's weight of n values. */
void tl_nf4_sample(tl_case *c, bool twice, int64_t n);

#endif
