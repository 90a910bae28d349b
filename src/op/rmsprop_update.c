/* RMSProp (Tieleman & Hinton 2012; centered and with momentum: Graves 2013) as torch.optim.RMSprop: g += λ·θ;
 * s = α·s + (1−α)·g²; centered: a = α·a + (1−α)·g, and s − a² in place of s; u = g/(√s + ε); momentum: b = μ·b + u, and b
 * in place of u; θ −= lr·u. */
#include "op/update.h"

#include <string.h>

static int states_of(const tl_rmsprop_attr *a) { return 1 + (a->momentum != 0) + a->centered; }

static tl_status rmsprop_infer(tl_sig *sig) {
    const tl_rmsprop_attr *a = TL_ATTR(tl_rmsprop_attr, sig);
    if (!(a->alpha >= 0 && a->alpha < 1))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "alpha is %g; 0 or more and below 1 would work", a->alpha);
    if (!(a->epsilon >= 0))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "epsilon is %g; 0 or more would work", a->epsilon);
    if (!(a->momentum >= 0))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "momentum is %g; 0 or more would work", a->momentum);
    return tl_update_infer(sig, states_of(a));
}

static void rmsprop_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_rmsprop_attr *a = TL_ATTR(tl_rmsprop_attr, sig);
    /* α·s + (1−α)·g·g 4; √, + ε, g ÷ 3; θ − lr·u 2. A decay that is not 0: g + λ·θ 2; momentum: μ·b + u 2; centered:
     * α·a + (1−α)·g 3, s − a² 2. */
    int64_t each = 9 + (a->weight_decay != 0 ? 2 : 0) + (a->momentum != 0 ? 2 : 0) + (a->centered ? 5 : 0);
    tl_update_cost(sig, cost, states_of(a), each);
}

static tl_status rmsprop_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->rmsprop);
}

static void rmsprop_sample(uint64_t seed, tl_case *c) {
    tl_rmsprop_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.lr = 0.01;
    attr.alpha = 0.9;
    attr.epsilon = 1e-3;
    attr.weight_decay = tl_sample_below(&seed, 2) ? 0.1 : 0;
    attr.momentum = tl_sample_below(&seed, 2) ? 0.9 : 0;
    attr.centered = tl_sample_below(&seed, 2);
    tl_update_sample(&seed, c, states_of(&attr));
    memcpy(c->attr, &attr, sizeof attr);
    /* s is a mean of squares, and no smaller than the square of the mean a, the last */
    c->in[2].fill = TL_FILL_POSITIVE;
    if (attr.momentum != 0)
        c->in[3].fill = TL_FILL_NORMAL;
    if (attr.centered)
        c->in[1 + states_of(&attr)].fill = TL_FILL_ZERO;
}

TL_OP(rmsprop_update, sizeof(tl_rmsprop_attr), rmsprop_infer, rmsprop_cost, TL_SAVES_NONE, rmsprop_forward, TL_NO_GRAD,
      rmsprop_sample);

tl_status tl_rmsprop_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *const states[], tl_tensor *copy,
                             const tl_rmsprop_options *options, const char *site) {
    tl_rmsprop_attr attr;
    if (!options)
        return tl_update_no_options("rmsprop_update", param, site);
    memset(&attr, 0, sizeof attr);
    attr.lr = options->lr;
    attr.alpha = options->alpha;
    attr.epsilon = options->epsilon;
    attr.weight_decay = options->weight_decay;
    attr.momentum = options->momentum;
    attr.centered = options->centered;
    return tl_update_run(&tl_op_rmsprop_update, grad, param, states, states_of(&attr), copy, &attr, site);
}
