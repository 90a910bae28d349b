/* op/random.h: what random fills share. */
#ifndef TALLY_OP_RANDOM_H
#define TALLY_OP_RANDOM_H

#include "op/inplace.h"

void tl_random_sample(uint64_t seed, tl_case *c, double a, double b, double cut);
tl_tensor *tl_random_call(const tl_op *op, tl_tensor *x, double a, double b, double cut, const char *name,
                          int64_t first, const char *site);

#endif
