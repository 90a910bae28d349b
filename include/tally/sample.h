/* tally/sample.h: the next token from a net's logits.
 *
 * In this order, as is usual: temperature, top-k, top-p, then a draw.
 *   softmax(logits ÷ temperature) in f64, shifted by the largest logit so that no exp overflows
 *   top-k: the k largest stay (Fan, Lewis & Dauphin 2018)
 *   top-p: of those, the smallest set of the largest whose probability, of what top-k left, is at least p (Holtzman et al.
 *          2020, "nucleus"); the token that reaches p belongs to it
 *   what stays is normalised again and drawn from
 * Ties: of equal logits the lower id is the larger one, so that every set is one set. Greedy (temperature 0) takes the first.
 *
 * A draw depends on (seed, sequence, index, logits) alone: number `index` of stream ("sample", sequence) of Philox. No state,
 * no thread enters. The number u in [0, 1) chooses the first id, in order of ids, whose probability summed up to it exceeds u.
 */
#ifndef TALLY_SAMPLE_H
#define TALLY_SAMPLE_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_sample_options {
    double temperature; /* 0: greedy, and then top_k, top_p and seed have no say; else positive and finite */
    int64_t top_k;      /* 0: all; more than there are is all */
    double top_p;       /* in (0, 1]; 1: all */
    uint64_t seed;
} tl_sample_options;
/* Temperature 1, all tokens, seed 0. */
tl_sample_options tl_sample_defaults(void);

typedef struct tl_sample tl_sample;
/* For logits of `vocab` tokens; 24 bytes a token. NULL with *error filled. */
tl_sample *tl_sample_new(const tl_allocator *allocator, int64_t vocab, const tl_sample_options *options,
                         tl_error *error);
void tl_sample_free(tl_sample *sample);
/* Token `index` of sequence `sequence`. A logit of −infinity is never drawn; NaN, +infinity and nothing but −infinity are
 * errors that name the token. */
tl_status tl_sample_next(tl_sample *sample, const double *logits, uint64_t sequence, uint64_t index, int32_t *token,
                         tl_error *error) TL_MUST_CHECK;
/* What it draws from: probability[vocab], 0 for what is left out; *kept (may be NULL): how many are not. */
tl_status tl_sample_probabilities(tl_sample *sample, const double *logits, double *probability, int64_t *kept,
                                  tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
