/* plan/lever.h: what can be changed of a plan so that it holds less, one lever each, and how a change is typed. */
#ifndef TALLY_PLAN_LEVER_H
#define TALLY_PLAN_LEVER_H

#include "plan/plan.h"

/* Ways of tally/choices.h that compute the same mathematics, as bits. */
enum {
    TL_WAY_FLASH = 1,
    TL_WAY_LOSS_FUSED = 2,
    TL_WAY_LOSS_CHUNKED = 4, /* not with the one before */
    TL_WAY_FUSED = 8,        /* every fused form that keeps less */
    TL_WAY_GRADS = 16,       /* gradients in the format of the parameters */
    TL_WAY_IN_BACKWARD = 32
};
/* How far each lever is pulled: 0 leaves what was asked, then in the order of what it costs. */
typedef struct tl_lever {
    int batch;     /* 1: micro-batches of one sequence, as many as make the same step */
    int recompute; /* none, selective, every:4, every:2, full */
    int ways;
    int precision; /* as asked, bf16-mixed, bf16 */
    int optimizer; /* as asked, adamw8bit, sgd */
    int adapters;  /* none, LoRA, QLoRA; over a base that is not quantised yet: 2 quantises it */
} tl_lever;
enum { TL_LEVER_SELECTIVE = 1, TL_LEVER_EVERY_4, TL_LEVER_EVERY_2, TL_LEVER_FULL, TL_LEVER_RECOMPUTES };
enum { TL_LEVER_PRECISIONS = 3, TL_LEVER_OPTIMIZERS = 3, TL_LEVER_ADAPTERS = 3 };
#define TL_LEVER_RANK 16

/* Whether each part of it moves something from what was asked and may be done beside the others. */
bool tl_lever_applies(const tl_plan_options *asked, const tl_lever *lever);
/* *o: the options with it pulled; `change`: how that is typed, "--recompute full --attention flash". */
void tl_lever_pull(const tl_plan_options *asked, const tl_lever *lever, tl_plan_options *o,
                   char change[TL_PLAN_CHANGE]);
tl_plan_cost tl_lever_cost(const tl_plan_options *asked, const tl_lever *lever);
/* "same run", "same mathematics", "other rounding" */
const char *tl_lever_effect(const tl_plan_options *asked, const tl_lever *lever);
/* Every part of x is pulled no further than in y. */
bool tl_lever_within(const tl_lever *x, const tl_lever *y);
/* Sequences of a step on one device. */
int64_t tl_lever_per_device(const tl_plan_options *asked);

#endif
