/* tally/train.h: the training step. Written once: a plan runs it on meta, `tally train` runs it here.
 */
#ifndef TALLY_TRAIN_H
#define TALLY_TRAIN_H

#include "tally/lora.h"
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
    double clip;          /* global gradient norm; 0: none */
    bool condensed;       /* on meta: run two micro-batches and book the second for all later ones */
    bool autocast;        /* forward under tl_autocast (tally/grad.h): parameters in dtype, products in `low` */
    tl_dtype low;         /* bf16 or f16; used with autocast alone */
    bool loss_scaling;    /* dynamic loss scaling: tl_loss_scaler */
    bool fp8;             /* linear layers of blocks in emulated float8: tl_net_use_fp8 */
    tl_choices choices;   /* how the model is run, gradients kept and parameters stepped (tally/choices.h) */
    tl_lora_options lora; /* rank 0: every parameter is trained */
    int prefetch;         /* steps whose batches a reader holds ready: their buffers are the trainer's; 0: none */
} tl_train_options;

/* Dynamic loss scaling (Micikevicius et al. 2018, Mixed precision training, section 3.2) with the numbers of
 * torch.cuda.amp.GradScaler: the gradient of the loss is `scale` instead of 1, so that small gradients are not rounded to
 * zero in f16; they are divided by it in f32 just before the update (a power of two: exact). A step whose gradients are not
 * all finite is skipped and halves the scale; after 2000 good steps in a row it doubles. At a scale of 1 nothing is left to
 * halve, and the run stops with the parameter named. A loss that is not finite is no matter of its scale and always stops. */
#define TL_LOSS_SCALE_START 65536.0
#define TL_LOSS_SCALE_GROWS_AFTER 2000
typedef struct tl_loss_scaler {
    double scale;
    int64_t good_steps; /* since the scale last changed */
    int64_t skipped;    /* steps, in all */
} tl_loss_scaler;

/* One micro-batch: input and target tensors (category data) made in the current scope. tokens i32 [B,T], targets i32 [B,T];
 * cruncher: x [B,D], y [B]. */
typedef struct tl_batch {
    tl_tensor *input, *target;
    /* Micro-batches with different numbers of counted targets (not TL_IGNORE_INDEX): `counted` of this one and `total` of
     * the whole step, the same in each of its batches, which add up to it. Loss and gradients are then those of one batch
     * of all of them: this one weighs counted/total instead of 1/A. A total of 0: not told. */
    int64_t counted, total;
    /* With choices.documents: positions i32 [B,T], counted from 0 in each document of a row (tl_net_documents). */
    tl_tensor *positions;
} tl_batch;
typedef tl_status tl_batch_source(void *user, tl_ctx *ctx, const tl_train_options *options, int64_t micro,
                                  tl_batch *batch);

typedef struct tl_trainer tl_trainer;
/* Net and optimizer in `ctx` (phase init). NULL with the context's error. Free it before the context. */
tl_trainer *tl_trainer_new(tl_ctx *ctx, const tl_model *model, const tl_train_options *options);
void tl_trainer_free(tl_trainer *trainer);
/* The steps to come have batches of other sizes; parameters and states stay. */
tl_status tl_trainer_resize(tl_trainer *trainer, int64_t micro_batch, int64_t seq) TL_MUST_CHECK;
tl_net *tl_trainer_net(const tl_trainer *trainer);
tl_optimizer *tl_trainer_optimizer(const tl_trainer *trainer);
/* With prefetch: i32 [prefetch,A,2,B,T], or [prefetch,A,3,B,T] with choices.documents, of category data, what
 * tl_reader_options.ring wants; else NULL. Borrowed; pure. */
tl_tensor *tl_trainer_ring(const tl_trainer *trainer);

/* What a checkpoint must carry beside parameters, optimizer and streams. */
/* The loss scaler's state; false: the run has none. */
bool tl_trainer_scaler(const tl_trainer *trainer, tl_loss_scaler *scaler);
tl_status tl_trainer_set_scaler(tl_trainer *trainer, const tl_loss_scaler *scaler) TL_MUST_CHECK;
/* Tensor k that training carries from step to step and that is neither a parameter nor the optimizer's (float8 scales and
 * histories), and its name; returns 1, or 0 beyond the last. They exist from the start. Borrowed; pure. */
int tl_trainer_extra(const tl_trainer *trainer, int k, const char **name, tl_tensor **tensor);

typedef struct tl_step_result {
    double loss;          /* mean over the micro-batches, by targets where they tell; 0 on meta */
    double gradient_norm; /* before clipping, the loss scale divided out; 0 on meta and in a skipped step */
    bool skipped;         /* with loss scaling: gradients were not finite, nothing was updated */
} tl_step_result;
/* Ledger log restarted; A × (batch, forward, loss, backward); gradients reduced over ranks and
 * looked at (Σ g², one pass, booked under backward); clipped; optimizer step; gradients let go. A loss or gradient that is not
 * finite stops before the optimizer step and is TL_ERR_STATE: the message names the first tensor that was not finite, in
 * forward order with module, op and line, or the parameter whose gradient it is. `source` NULL: tensors of the right shapes
 * with no particular contents (meta). */
tl_status tl_trainer_step(tl_trainer *trainer, tl_batch_source *source, void *user, double lr,
                          tl_step_result *result) TL_MUST_CHECK;

/* The shapes of a micro-batch, in the account's symbols B and T. */
tl_status tl_batch_empty(tl_ctx *ctx, const tl_net *net, const tl_train_options *options, tl_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
