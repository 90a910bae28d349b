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
    int64_t work;  /* layers that were planned to know it */
    int pass;      /* that last asked for it */
    int64_t least; /* guessed: tl_plan_estimate */
    tl_plan_suggestion is;
} tl_trial;

typedef struct tl_trials {
    const tl_plan_options *asked;
    const tl_plan *plan; /* of `asked` */
    tl_plan_pool *pool;
    tl_trial list[TL_TRIALS];
    int count;
    int pass;
    int64_t budget;      /* layers that may still be planned in this pass */
    int64_t asked_least; /* a guess of `asked`; 0: not made yet */
    int runs;            /* plans made */
    int64_t work;        /* layers planned, all passes */
} tl_trials;

/* The change as it is known so far, tried now if it never was: from fewer layers where that is clear, else planned. *trial NULL:
 * it cannot be planned, cannot fit and is not worth it, or nothing may be tried any more. */
tl_status tl_trial_try(tl_trials *trials, const tl_change *change, const tl_trial **trial, tl_error *error);
/* Plans it if it was only guessed. *planned: whether this call did. */
tl_status tl_trial_settle(tl_trials *trials, const tl_trial *trial, bool *planned, tl_error *error);
/* Whether it holds less than what was asked. */
tl_status tl_trial_helps(tl_trials *trials, const tl_trial *trial, bool *helps, tl_error *error);
/* What training all of the model with these options keeps between steps. */
tl_status tl_trial_state(const tl_plan_options *options, const tl_plan_options *asked, const tl_plan *plan,
                         int64_t *bytes, tl_error *error);

#endif
