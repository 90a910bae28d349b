/* tally/train.h: the training step. Written once: a plan runs it on meta, `tally train` runs it here.
 */
#ifndef TALLY_TRAIN_H
#define TALLY_TRAIN_H

#include "tally/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_train_options {
    int64_t micro_batch;  /* B: sequences in one forward and backward */
    int64_t seq;          /* T: tokens of a sequence; cruncher: not used */
    int64_t accumulation; /* A: micro-batches per step; gradients are their mean, by targets where the batches tell */
    int64_t ranks;        /* data-parallel group; more than 1 on meta only */
    tl_dtype dtype;       /* of parameters and activations */
    tl_optimizer_options optimizer;
    const char *init; /* tally/init.h: the net's scheme; NULL: its family's */
    tl_recompute recompute;
    double clip;    /* global gradient norm; 0: none */
    bool condensed; /* on meta: run two micro-batches and book the second for all later ones */
} tl_train_options;

/* One micro-batch: input and target tensors (category data) made in the current scope. tokens i32 [B,T], targets i32 [B,T];
 * cruncher: x [B,D], y [B]. */
typedef struct tl_batch {
    tl_tensor *input, *target;
    /* Micro-batches with different numbers of counted targets (not TL_IGNORE_INDEX): `counted` of this one and `total` of
     * the whole step, the same in each of its batches, which add up to it. Loss and gradients are then those of one batch
     * of all of them: this one weighs counted/total instead of 1/A. A total of 0: not told, or no target counts at all. */
    int64_t counted, total;
} tl_batch;
typedef tl_status tl_batch_source(void *user, tl_ctx *ctx, const tl_train_options *options, int64_t micro,
                                  tl_batch *batch);

typedef struct tl_trainer tl_trainer;
/* Net and optimizer in `ctx` (phase init). NULL with the context's error. Free it before the context. */
tl_trainer *tl_trainer_new(tl_ctx *ctx, const tl_model *model, const tl_train_options *options);
void tl_trainer_free(tl_trainer *trainer);
tl_net *tl_trainer_net(const tl_trainer *trainer);
tl_optimizer *tl_trainer_optimizer(const tl_trainer *trainer);

typedef struct tl_step_result {
    double loss;          /* mean over the micro-batches, by targets where they tell; 0 on meta */
    double gradient_norm; /* before clipping; 0 without clipping or on meta */
} tl_step_result;
/* Ledger log restarted; A × (batch, forward, loss, backward); gradients reduced over ranks; clipped; optimizer step;
 * gradients let go. A loss that is not finite stops before the optimizer step. `source` NULL: tensors of the right shapes
 * with no particular contents (meta). */
tl_status tl_trainer_step(tl_trainer *trainer, tl_batch_source *source, void *user, double lr,
                          tl_step_result *result) TL_MUST_CHECK;

/* The shapes of a micro-batch, in the account's symbols B and T. */
tl_status tl_batch_empty(tl_ctx *ctx, const tl_net *net, const tl_train_options *options, tl_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
