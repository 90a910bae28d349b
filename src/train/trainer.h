/* train/trainer.h: what the files of this layer share. */
#ifndef TALLY_TRAIN_TRAINER_H
#define TALLY_TRAIN_TRAINER_H

#include "tally/train.h"

struct tl_trainer {
    tl_ctx *ctx;
    tl_net *net;
    tl_optimizer *optimizer;
    tl_train_options options;
    tl_loss_scaler scaler;
    tl_tensor *ring;    /* of a reader: batches held ready */
    double lr, squares; /* of updates in backward: the step's rate, and Σ g² so far */
};

/* ---- finite.c ---- */
/* The loss was no number: computes the micro-batch's forward again, watching every op, and fails naming the first tensor in
 * forward order that is not finite. `position`: of the dropout stream before that forward. Returns the error. */
tl_status tl_fail_not_finite_loss(tl_trainer *trainer, const tl_batch *batch, int64_t micro, double loss,
                                  uint64_t position);
/* Fails naming the first parameter whose gradient is not finite. */
tl_status tl_fail_not_finite_gradient(tl_trainer *trainer);

#endif
