/* tally/optim.h: optimizers, clipping, schedules. One pass per parameter and step; states appear in memory, and so in the
 * ledger, with the first step, as in PyTorch.
 */
#ifndef TALLY_OPTIM_H
#define TALLY_OPTIM_H

#include "tally/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* g: the gradient, θ: the parameter, λ: weight decay, lr: the step's learning rate, t: the step, from 1.
 *   sgd       g += λθ; b = μb + g (b = g at first); θ −= lr·(b, or g + μb with nesterov)     torch.optim.SGD, dampening 0
 *   adagrad   g += λθ; s += g²; θ −= lr·g/√(s + ε), or lr·g/(√s + ε) with epsilon_outside    Duchi, Hazan & Singer 2011;
 *             ε inside is the lecture's, outside torch.optim.Adagrad's
 *   rmsprop   g += λθ; s = α·s + (1−α)·g²; centered: a = α·a + (1−α)·g and s − a² for s;
 *             u = g/(√s + ε); momentum: b = μb + u and b for u; θ −= lr·u                      torch.optim.RMSprop
 *   adam      g += λθ; m = β1·m + (1−β1)·g; v = β2·v + (1−β2)·g²;
 *             θ −= lr/(1−β1^t)·m/(√v/√(1−β2^t) + ε)                                Kingma & Ba 2015; torch.optim.Adam
 *   adamw     adam with θ ·= 1 − lr·λ in place of g += λθ, before the update as torch.optim.AdamW does it, or after it as
 *             CS336 does it, which also has ε beside √v itself                         Loshchilov & Hutter 2019
 *   adamw8bit adamw, PyTorch's order, whose m and v are kept in 8 bits                          Dettmers et al. 2022
 *
 * adamw8bit: every 256 elements in a row (in the parameter's flat order) are a block. It holds one f32, the largest
 * magnitude in it, and one code a value: the nearest of 256 numbers times that magnitude. The numbers are those of the
 * paper's dynamic tree quantisation: 0, 1 and, for e of 0 … 6, the middles of the 2^e equal parts of [10^(e−7), 10^(e−6)],
 * with their negatives. A code is the place in ascending order. v has no sign and twice as many parts a decade; a v above 0
 * is never coded as 0. A parameter of less than 4096 elements keeps its two states in f32. */
typedef enum tl_optimizer_kind {
    TL_OPTIM_NONE,
    TL_OPTIM_SGD,
    TL_OPTIM_ADAGRAD,
    TL_OPTIM_ADAMW,
    TL_OPTIM_ADAM,
    TL_OPTIM_RMSPROP,
    TL_OPTIM_ADAMW8BIT,
    TL_OPTIM_KINDS
} tl_optimizer_kind;

#define TL_OPTIM_MAX_STATES 4
#define TL_OPTIM_8BIT_BLOCK 256
#define TL_OPTIM_8BIT_SMALLEST 4096 /* elements from which on adamw8bit's states have 8 bits */

/* The format of the states. A state of a parameter in f64 is f64 by default. */
typedef enum tl_state_format {
    TL_STATES_DEFAULT,   /* f32 with a master copy or with state_f32; else the parameter's */
    TL_STATES_PARAMETER, /* the parameter's (PyTorch), or its master copy's */
    TL_STATES_F32,
    TL_STATES_BF16,
    TL_STATES_F16
} tl_state_format;

/* Parameters by name, with rules of their own. In a pattern * is any run of characters, dots too, and ? any one of them:
 * "*.bias", "h.0.*". Of several groups that match one parameter the last holds, whole. Errors that name the pattern: it
 * matches no parameter; later groups hold every one that it matches; it has rules for frozen parameters alone. */
typedef struct tl_parameter_group {
    const char *pattern;
    double lr_factor;    /* times the step's learning rate; above 0 (0 would be a frozen parameter with states) */
    double weight_decay; /* the group's own, whether it holds norms or not; TL_GROUP_DECAY: as without the group */
    bool frozen; /* no gradient, no states, no master copy, no update; the others have no effect and must be 0 */
    bool has_betas;
    double beta1, beta2; /* adam, adamw, adamw8bit; with has_betas */
    double epsilon;      /* all but sgd; 0: as without the group */
} tl_parameter_group;
#define TL_GROUP_DECAY (-1.0)

/* Groups as one text: PATTERN:RULE,RULE;PATTERN:RULE. A rule is lr=X (of a run whose learning rate is `lr`), lr-factor=X,
 * weight-decay=X, beta1=X, beta2=X, epsilon=X or frozen. What a group does not say is as without it, a beta the other's
 * pair in `base`. Errors name the group, its rule and the place in the text. */
#define TL_GROUPS_MOST 32
#define TL_GROUPS_TEXT 1024
typedef struct tl_group_list {
    tl_parameter_group group[TL_GROUPS_MOST]; /* patterns lie in .text: not to be copied */
    int count;
    char text[TL_GROUPS_TEXT];
} tl_group_list;

/* What an optimizer has no use for must be 0; the message names who would take it. */
typedef struct tl_optimizer_options {
    tl_optimizer_kind kind;
    double lr;
    double beta1, beta2;              /* adam, adamw, adamw8bit */
    double epsilon;                   /* all but sgd */
    double weight_decay;              /* λ, of matrices and embeddings: tl_parameter.decay */
    double momentum;                  /* μ: sgd, rmsprop; 0: no buffer */
    double alpha;                     /* rmsprop */
    bool nesterov;                    /* sgd with momentum */
    bool centered;                    /* rmsprop */
    bool epsilon_outside;             /* adagrad: √s + ε as torch.optim.Adagrad, instead of √(s + ε) */
    bool cs336_order;                 /* adamw: CS336's order instead of PyTorch's */
    bool decay_all;                   /* decay norms and biases too */
    bool master;                      /* keep an fp32 copy of every parameter (category master), updated in its place */
    bool state_f32;                   /* states in f32 whatever the parameter's format */
    tl_state_format states;           /* overrides state_f32; not adamw8bit's */
    tl_update_code update;            /* tally/choices.h; adamw8bit's own tensors are always stepped in one pass */
    const tl_parameter_group *groups; /* borrowed until the optimizer is made */
    int n_groups;
} tl_optimizer_options;

/* adamw, adamw8bit: lr 1e-3, betas 0.9 0.999, ε 1e-8, decay 0.01 (torch.optim.AdamW). adam: the same without decay. sgd: lr
 * 1e-2. adagrad: lr 1e-2, ε 1e-5 (lecture). rmsprop: lr 1e-2, α 0.99, ε 1e-8 (torch.optim.RMSprop). */
tl_optimizer_options tl_optimizer_defaults(tl_optimizer_kind kind);
/* "" is no group. `base` gives lr and betas, and has no groups itself; the list must outlive whatever borrows it. */
tl_status tl_groups_parse(const char *text, const tl_optimizer_options *base, tl_group_list *list,
                          tl_error *error) TL_MUST_CHECK;
const char *tl_optimizer_name(tl_optimizer_kind kind); /* "none" "sgd" "adagrad" "adamw" "adam" "rmsprop" "adamw8bit" */

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

/* The rule that holds for parameter i: the default's, or its group's. Pure. */
typedef struct tl_parameter_rule {
    int group; /* its index in tl_optimizer_options.groups; −1: none */
    double lr_factor, weight_decay, beta1, beta2, epsilon;
    bool frozen;
} tl_parameter_rule;
tl_parameter_rule tl_optimizer_rule(const tl_optimizer *optimizer, int i);

/* How many state tensors parameter i has, or will have once it was updated: 0 to TL_OPTIM_MAX_STATES. Pure. */
int tl_optimizer_states(const tl_optimizer *optimizer, int i);
/* What state k is called, PyTorch's names where it has them. sgd: momentum_buffer. adagrad: sum. adam, adamw: exp_avg,
 * exp_avg_sq. rmsprop: square_avg, then momentum_buffer and grad_avg where they are. adamw8bit: exp_avg, exp_avg_sq (codes
 * u8 of the parameter's shape, or f32 of a small parameter), exp_avg_scale, exp_avg_sq_scale (f32, one a block). NULL
 * beyond the last. Static text. */
const char *tl_optimizer_state_name(const tl_optimizer *optimizer, int k);
/* State k of parameter i; NULL before it exists or where there is none. Borrowed; pure. */
tl_tensor *tl_optimizer_state(const tl_optimizer *optimizer, int i, int k);
tl_tensor *tl_optimizer_master(const tl_optimizer *optimizer, int i);
/* For loading: all states as they are before any update (zeros), and the step count. */
tl_status tl_optimizer_restore(tl_optimizer *optimizer, int64_t steps) TL_MUST_CHECK;
/* After the parameters were filled from elsewhere (published weights): master copies are made of them anew, else the first
 * update would write the old ones back. Phase load; nothing is held beyond the copies. */
tl_status tl_optimizer_refresh(tl_optimizer *optimizer) TL_MUST_CHECK;

/* Scales all gradients so that their global norm is at most max_norm (norm in f64: safe for 1e20; factor
 * max_norm/(norm + 1e-6), as torch.nn.utils.clip_grad_norm_). max_norm must be positive; infinity measures
 * the norm and changes nothing. A norm that is not
 * finite is TL_ERR_STATE naming the first parameter it comes from, and no gradient is changed. Returns the norm before as
 * a one-element f64 tensor of the current scope; NULL with the context's error. */
tl_tensor *tl_clip_gradients(tl_ctx *ctx, const tl_parameter *parameters, int count, double max_norm);

/* The name of the first parameter whose gradient holds a NaN or an infinity; NULL if all are finite, on meta, and after an
 * error of the context. One pass over each gradient, up to that one. */
const char *tl_first_non_finite_gradient(tl_ctx *ctx, const tl_parameter *parameters, int count);

/* ---- schedules; outside the planner core: they need cos ---- */
typedef enum tl_schedule_kind {
    TL_SCHEDULE_CONSTANT, /* max, after the warm-up */
    TL_SCHEDULE_LINEAR,   /* from max at step warmup down a line to min at step total */
    TL_SCHEDULE_COSINE, /* min + ½(1 + cos(π(t−w)/(T−w)))(max − min): CS336's handout, after Loshchilov & Hutter 2017 */
    TL_SCHEDULE_WSD,     /* warm-up, stable, decay (Hu et al. 2024, MiniCPM): max until step total − decay_steps, then
                             down a line to min at step total */
    TL_SCHEDULE_WSD_SQRT /* the same with max + (min − max)·√x for the decay, x its part done (Hägele et al. 2024) */
} tl_schedule_kind;

/* Each starts with a linear warm-up, t/warmup·max for t < warmup (so step 0 has lr 0), and stays at min from step total on;
 * constant has no use for min, total and decay_steps, and only wsd for decay_steps: 0 there. */
typedef struct tl_schedule {
    tl_schedule_kind kind;
    double max, min;
    int64_t warmup, total, decay_steps;
} tl_schedule;

/* TL_ERR_ARGUMENT with what is wrong: warmup > total, min > max, decay that overlaps the warm-up, numbers without effect. */
tl_status tl_schedule_check(const tl_schedule *schedule, tl_error *error) TL_MUST_CHECK;
/* The learning rate of a step of a schedule that was checked. */
double tl_schedule_lr(const tl_schedule *schedule, int64_t step);
const char *tl_schedule_name(tl_schedule_kind kind); /* "constant" "linear" "cosine" "wsd" "wsd-sqrt" */

#ifdef __cplusplus
}
#endif
#endif
