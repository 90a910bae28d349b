/* op/inplace.h: what ops that write into input 0 share. */
#ifndef TALLY_OP_INPLACE_H
#define TALLY_OP_INPLACE_H

#include "op/core.h"

tl_status tl_inplace_infer_any(tl_sig *sig);   /* the output is input 0, of any dtype */
tl_status tl_inplace_infer_float(tl_sig *sig); /* … of a float format */
void tl_inplace_sample(uint64_t seed, tl_case *c);
/* For fills: no FLOPs, nothing read, the output written. */
void tl_cost_writes(const tl_sig *sig, tl_cost *cost);

#endif
