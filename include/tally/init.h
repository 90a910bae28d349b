/* tally/init.h: how parameters start. In place, phase and category as they are; element i of a random fill depends on the
 * context's seed_init, `name` and i alone, so that any order, and any sharding, initialises alike.
 */
#ifndef TALLY_INIT_H
#define TALLY_INIT_H

#include "tally/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

tl_status tl_init_zeros(tl_tensor *t) TL_MUST_CHECK;
tl_status tl_init_ones(tl_tensor *t) TL_MUST_CHECK;
tl_status tl_init_normal(tl_tensor *t, double mean, double std, const char *name) TL_MUST_CHECK;
/* Cut at mean ± 3σ (drawn inside, not clamped). σ is that of the normal before the cut, as in torch.nn.init.trunc_normal_
 * and CS336's handout; what is left has 0.9866·σ. */
tl_status tl_init_truncated_normal(tl_tensor *t, double mean, double std, const char *name) TL_MUST_CHECK;
/* Of [low, high). */
tl_status tl_init_uniform(tl_tensor *t, double low, double high, const char *name) TL_MUST_CHECK;

/* fan_in and fan_out of t [out, in, …]: in and out, each times the elements of what follows (torch.nn.init). The next four
 * refuse a tensor of less than two axes.
 * Glorot & Bengio 2010, equation 16: σ = gain·√(2/(fan_in + fan_out)); uniform of ±√3·σ. */
tl_status tl_init_xavier_normal(tl_tensor *t, double gain, const char *name) TL_MUST_CHECK;
tl_status tl_init_xavier_uniform(tl_tensor *t, double gain, const char *name) TL_MUST_CHECK;
/* He et al. 2015, equations 10 (fan_in) and 14 (fan_out): σ = gain/√fan; uniform of ±√3·σ. */
typedef enum tl_fan { TL_FAN_IN, TL_FAN_OUT } tl_fan;
tl_status tl_init_kaiming_normal(tl_tensor *t, tl_fan fan, double gain, const char *name) TL_MUST_CHECK;
tl_status tl_init_kaiming_uniform(tl_tensor *t, tl_fan fan, double gain, const char *name) TL_MUST_CHECK;
/* The gains of torch.nn.init.calculate_gain: linear and sigmoid 1, tanh 5/3, relu √2 (He et al. 2015), leaky relu
 * √(2/(1 + slope²)) with a slope that only it has a use for, selu 3/4. */
typedef enum tl_gain {
    TL_GAIN_LINEAR,
    TL_GAIN_SIGMOID,
    TL_GAIN_TANH,
    TL_GAIN_RELU,
    TL_GAIN_LEAKY_RELU,
    TL_GAIN_SELU
} tl_gain;
double tl_init_gain(tl_gain gain, double slope);
/* GPT-2's residual projections (Radford et al. 2019, section 2.3): normal of σ/√(2N), N the number of layers. */
tl_status tl_init_residual(tl_tensor *t, double std, int64_t layers, const char *name) TL_MUST_CHECK;

/* A net as tl_net_new makes it, started by a scheme instead of its family's own. Biases start at 0 and norms' gains at 1 in
 * all of them; "matrices" are weights of linear layers, an untied head among them; "tables" are those of tokens and
 * positions; a number after a colon is σ (uniform: the bound):
 *   default            the family's, as init NULL: gpt2 as below, llama normal, each with the description's init_std;
 *                      cruncher normal of 1/√D
 *   gpt2[:0.02]        all normal of σ; projections back into the residual stream (c_proj, o_proj, down_proj) of σ/√(2N)
 *   normal[:0.02]      all normal of σ
 *   truncated[:0.02]   all truncated normal of σ
 *   uniform[:0.0346]   all uniform of ± that
 *   cs336              matrices truncated normal of σ² = 2/(in + out), tables truncated normal of σ = 1 (CS336, assignment 1)
 *   xavier, xavier-normal, kaiming, kaiming-normal
 *                      matrices uniform, or normal: Xavier of gain 1; Kaiming by fan_in, gain √2. Tables as by default
 *   zeros              all 0
 * What is no scheme is TL_ERR_ARGUMENT with the list. */
tl_net *tl_net_new_as(tl_ctx *ctx, const tl_model *model, tl_dtype dtype, const char *init);
#define TL_INIT_NAMES "default gpt2 normal truncated uniform cs336 xavier xavier-normal kaiming kaiming-normal zeros"

#ifdef __cplusplus
}
#endif
#endif
