/* tally/optim.h: optimizers. One pass per parameter and step; states appear in memory, and so in the ledger, with the
 * first step, as in PyTorch.
 */
#ifndef TALLY_OPTIM_H
#define TALLY_OPTIM_H

#include "tally/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_optimizer_kind { TL_OPTIM_NONE, TL_OPTIM_SGD, TL_OPTIM_ADAGRAD, TL_OPTIM_ADAMW } tl_optimizer_kind;

/* What an optimizer has no use for must be 0: momentum and nesterov are sgd's, cs336_order is adamw's, weight_decay is not
 * adagrad's. */
typedef struct tl_optimizer_options {
    tl_optimizer_kind kind;
    double lr;
    double beta1, beta2, epsilon,
        weight_decay; /* adamw; adagrad and sgd use epsilon and weight_decay where they have one */
    double momentum;  /* sgd; 0: no buffer */
    bool nesterov;
    bool cs336_order; /* adamw: CS336's order instead of PyTorch's (Loshchilov & Hutter 2019 as torch.optim.AdamW) */
    bool decay_all;   /* decay norms and biases too */
    bool master;      /* keep an fp32 copy of every parameter (category master), updated in its place */
    bool state_f32;   /* states in f32 whatever the parameter's dtype; else the parameter's (PyTorch) */
} tl_optimizer_options;

/* adamw: lr 1e-3, betas 0.9 0.999, ε 1e-8, decay 0.01 (torch.optim.AdamW). sgd: lr 1e-2. adagrad: lr 1e-2, ε 1e-5 (lecture). */
tl_optimizer_options tl_optimizer_defaults(tl_optimizer_kind kind);
const char *tl_optimizer_name(tl_optimizer_kind kind);

typedef struct tl_optimizer tl_optimizer;
/* Parameters may occur once each. A master copy is made here, states with the first step. NULL with the context's error. */
tl_optimizer *tl_optimizer_new(tl_ctx *ctx, const tl_parameter *parameters, int count,
                               const tl_optimizer_options *options);
void tl_optimizer_free(tl_optimizer *optimizer);
/* One update of every parameter that has a gradient, phase step. `lr` is this step's; step counts from 1. NULL, which
 * tl_optimizer_new returned with the context's error, is TL_ERR_ARGUMENT. */
tl_status tl_optimizer_step(tl_optimizer *optimizer, double lr) TL_MUST_CHECK;
/* With `on`, every later step takes each gradient times `factor`, computed in f32 before the update (loss scaling): a gradient
 * of another format as an f32 tensor that lives for that parameter's update, one in f32 in place. */
void tl_optimizer_unscale(tl_optimizer *optimizer, bool on, double factor);
int64_t tl_optimizer_steps(const tl_optimizer *optimizer);
/* State k (0 or 1) of parameter i: momentum or sum of squares, m and v; NULL before it exists. Borrowed; pure. */
tl_tensor *tl_optimizer_state(const tl_optimizer *optimizer, int i, int k);
tl_tensor *tl_optimizer_master(const tl_optimizer *optimizer, int i);
/* For loading: states of zeros as the first step would make them, and the step count. */
tl_status tl_optimizer_restore(tl_optimizer *optimizer, int64_t steps) TL_MUST_CHECK;

/* Scales all gradients so that their global norm is at most max_norm (norm in f64: safe for 1e20; factor
 * max_norm/(norm + 1e-6), as torch.nn.utils.clip_grad_norm_). max_norm must be positive. Returns the norm before as a
 * one-element f64 tensor of the current scope; NULL with the context's error. */
tl_tensor *tl_clip_gradients(tl_ctx *ctx, const tl_parameter *parameters, int count, double max_norm);

/* Outside the planner core (uses cos): linear warm-up to `max` over `warmup` steps, then half a cosine to `min` at step
 * `total`, then `min` (CS336's handout: t<Tw: t/Tw·max; t≤Tc: min + ½(1+cos(π(t−Tw)/(Tc−Tw)))(max−min); else min). */
double tl_schedule_cosine(int64_t step, double max, double min, int64_t warmup, int64_t total);

#ifdef __cplusplus
}
#endif
#endif
