/* infer/infer.h: what generating and evaluating share. */
#ifndef TALLY_INFER_INFER_H
#define TALLY_INFER_INFER_H

#include "tally/infer.h"

/* Adds the ledger's log, of one forward over `tokens` tokens. */
void tl_infer_count(const tl_ctx *ctx, int64_t tokens, tl_infer_counts *counts);

#endif
