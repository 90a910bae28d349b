/* plan/explain.h: gathering terms: find the key, add to its fold, finish. */
#ifndef TALLY_PLAN_EXPLAIN_H
#define TALLY_PLAN_EXPLAIN_H

#include "tally/explain.h"
#include "tensor/ctx.h"

typedef struct tl_gather {
    tl_ctx *ctx;
    tl_explain_sum *sum;
    tl_fold **fold; /* one a term */
    int64_t capacity;
    const tl_peak *moment; /* what is gathered lives then; NULL: counts of work */
    bool failed;
} tl_gather;

void tl_gather_begin(tl_gather *g, const tl_plan_run *run, tl_explain_sum *sum);
/* Adds `count` (and its formula, in a region) to the term of this pattern and kind. */
void tl_gather_add(tl_gather *g, const char *pattern, const char *what, uint32_t region, tl_u128 count,
                   const tl_poly *formula);
/* Folds, evaluates every term and the total, and compares; `name` says what it is in the message. */
tl_status tl_gather_end(tl_gather *g, const char *name, bool parts, tl_error *error);
/* "h.3.attn" → "h.*.attn" */
void tl_explain_pattern(const char *name, char *out, size_t size);

#endif
