/* optim/optimizer.h: what an optimizer is inside; shared by its options, groups and steps. */
#ifndef TALLY_OPTIM_OPTIMIZER_H
#define TALLY_OPTIM_OPTIMIZER_H

#include "tally/optim.h"

#include "op/core.h"

typedef struct tl_slot {
    tl_tensor *parameter, *master, *state[TL_OPTIM_MAX_STATES];
    tl_parameter_rule rule;
} tl_slot;

struct tl_optimizer {
    tl_ctx *ctx;
    tl_optimizer_options options;
    tl_slot *slots;
    int count;
    int64_t steps;
    bool unscale; /* gradients come times 1/factor */
    double factor;
};

/* Ranges, and options without effect; the context's error. */
tl_status tl_optimizer_check(tl_ctx *ctx, const tl_optimizer_options *options);
bool tl_optimizer_is_adam(tl_optimizer_kind kind); /* adam, adamw, adamw8bit: has betas */
/* Default rules, then the groups', into the slots. */
tl_status tl_groups_apply(tl_ctx *ctx, const tl_parameter *parameters, int count, const tl_optimizer_options *options,
                          tl_slot *slots);

/* The gradient with the loss scale divided out, in f32. */
tl_tensor *tl_optimizer_unscaled(tl_optimizer *opt, tl_tensor *grad);
/* A step in parts: first the count of steps, then each parameter that has a gradient (by its place, in any order). */
tl_status tl_optimizer_begin_step(tl_optimizer *opt, double lr);
tl_status tl_optimizer_step_one(tl_optimizer *opt, int i, double lr);
/* ---- composed.c: of slots whose states exist; `first`: they were made just now ---- */
tl_status tl_update_composed(tl_optimizer *opt, tl_slot *slot, double lr, bool first);
tl_status tl_update_foreach(tl_optimizer *opt, tl_slot *const slots[], const bool first[], int count, double lr);

/* ---- clip.c ---- */
/* Σ g² over all gradients in f64, one element of the current scope; finite exactly if every gradient is, and their squares'
 * sum. Books on meta as elsewhere. NULL: no gradient at all, or the context's error. */
tl_tensor *tl_gradient_squares(tl_ctx *ctx, const tl_parameter *parameters, int count);
/* All gradients times min(1, max_norm/(√squares + 1e-6)). */
tl_status tl_clip_by_squares(tl_ctx *ctx, const tl_parameter *parameters, int count, tl_tensor *squares,
                             double max_norm);

#endif
