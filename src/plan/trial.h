/* plan/trial.h: changes of a plan that were tried, each once: told from fewer layers, or planned. */
#ifndef TALLY_PLAN_TRIAL_H
#define TALLY_PLAN_TRIAL_H

#include "plan/lever.h"

enum { TL_TRIALS = 80 };

typedef struct tl_change {
    tl_lever lever;
    int64_t micro_batch, seq;     /* 0: as asked; as many micro-batches as make the same step */
    const tl_accelerator *device; /* NULL: as asked */
} tl_change;

typedef struct tl_trial {
    tl_change change;
    enum { TL_TRIAL_CANNOT_BE, TL_TRIAL_GUESSED, TL_TRIAL_PLANNED } how;
    int64_t work; /* layers that were planned to know it */
    int pass;     /* that last asked for it */
    /* Planned: the step's peak; guessed: tl_plan_estimate. before_step: of its live bytes the highest of forward, loss and
     * backward. */
    int64_t least, before_step;
    bool in_part;  /* guessed: it does not fit, and `least` is but a part of what it holds */
    bool is_bound; /* … told by other trials */
    tl_plan_suggestion is;
} tl_trial;

typedef struct tl_block {
    bool known;
    int64_t bytes[TL_CATEGORY_COUNT]; /* tl_plan_block_bytes */
} tl_block;

typedef struct tl_trials {
    const tl_plan_options *asked;
    const tl_plan *plan; /* of `asked` */
    tl_plan_pool *pool;
    tl_trial list[TL_TRIALS];
    int count;
    int pass;
    int64_t budget;      /* layers that may still be planned in this pass */
    int64_t asked_least; /* a guess of `asked`; 0: not made yet */
    bool asked_guessed;  /* … and it could be made */
    tl_block block[TL_LEVER_PRECISIONS][TL_LEVER_OPTIMIZERS];
    int runs;     /* plans made */
    int64_t work; /* layers planned, all passes */
} tl_trials;

/* What is asked of a trial: whether it fits, where that is likely or not, and its size only if it does; or its size. */
typedef enum tl_trial_question { TL_TRIAL_FITS, TL_TRIAL_FITS_LIKELY, TL_TRIAL_SIZE } tl_trial_question;
/* The change as it is known so far, tried now if it never was: from other trials or fewer layers where that is clear, else
 * planned. *trial NULL: it cannot be planned, cannot fit and is not worth it, or nothing may be tried any more. */
tl_status tl_trial_try(tl_trials *trials, const tl_change *change, tl_trial_question question, const tl_trial **trial,
                       tl_error *error);
/* Plans it if it was only guessed. *planned: whether this call did. */
tl_status tl_trial_settle(tl_trials *trials, const tl_trial *trial, bool *planned, tl_error *error);
/* Whether it holds less than what was asked. */
tl_status tl_trial_helps(tl_trials *trials, const tl_trial *trial, bool *helps, tl_error *error);
/* What training all of the model with these options keeps between steps. */
tl_status tl_trial_state(const tl_plan_options *options, const tl_plan_options *asked, const tl_plan *plan,
                         int64_t *bytes, tl_error *error);

/* ---- what it holds at the least (bound.c) ---- */
/* No run with `lever`, whose options are `options`, holds less: its state; the frozen weights where adapters come, half a byte each
 * where they are kept in 4 bits. Of what is trained beside adapters all of the state. */
tl_status tl_trial_least(tl_trials *trials, const tl_lever *lever, const tl_plan_options *options, int64_t *bytes,
                         tl_error *error);
/* Bytes that it surely holds, nearly: told by what was asked and by trials whose levers are pulled further. 0: they do not tell. */
int64_t tl_trial_bound(const tl_trials *trials, const tl_change *change, const tl_plan_options *options);

#endif
