/* op/linear.h: x·wᵀ + bias over all rows of x, for ops whose weight comes by another way. */
#ifndef TALLY_OP_LINEAR_H
#define TALLY_OP_LINEAR_H

#include "op/rows.h"

/* Whether a product reads the rows of x as they lie. */
bool tl_linear_reads(const tl_tensor *x);
/* m, n, k and batch of the product with a weight [o, i]. */
void tl_linear_sizes(const tl_sig *sig, int64_t o, int64_t i, tl_cost *cost);
/* Input 0 times wᵀ into output 0; bias may be NULL. */
tl_status tl_linear_run(const tl_sig *sig, tl_args *args, const tl_array *w, const tl_array *bias);

#endif
