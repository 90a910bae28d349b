/* AdaGrad (Duchi, Hazan & Singer 2011): g += λ·θ; s += g²; θ −= lr·g/√(s + ε) as CS336 writes it, or ÷ (√s + ε). */
#include "op/update.h"

#include <string.h>

static tl_status adagrad_infer(tl_sig *sig) {
    const tl_adagrad_attr *a = TL_ATTR(tl_adagrad_attr, sig);
    if (!(a->epsilon >= 0))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "epsilon is %g; 0 or more would work", a->epsilon);
    return tl_update_infer(sig, 1);
}

static void adagrad_cost(const tl_sig *sig, tl_cost *cost) {
    /* g², s + 2; + ε, √, lr·g, ÷, θ − 5; a decay that is not 0: g + λ·θ 2 */
    tl_update_cost(sig, cost, 1, TL_ATTR(tl_adagrad_attr, sig)->weight_decay != 0 ? 9 : 7);
}

static tl_status adagrad_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->adagrad);
}

static void adagrad_sample(uint64_t seed, tl_case *c) {
    tl_adagrad_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.lr = 0.1;
    attr.epsilon = 1e-8;
    attr.weight_decay = tl_sample_below(&seed, 2) ? 0.1 : 0;
    attr.epsilon_outside = tl_sample_below(&seed, 2);
    tl_update_sample(&seed, c, 1);
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(adagrad_update, sizeof(tl_adagrad_attr), adagrad_infer, adagrad_cost, TL_SAVES_NONE, adagrad_forward, TL_NO_GRAD,
      adagrad_sample);

tl_status tl_adagrad_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *sum, tl_tensor *copy,
                             const tl_adagrad_options *options, const char *site) {
    tl_adagrad_attr attr;
    if (!options)
        return tl_update_no_options("adagrad_update", param, site);
    memset(&attr, 0, sizeof attr);
    attr.lr = options->lr;
    attr.epsilon = options->epsilon;
    attr.weight_decay = options->weight_decay;
    attr.epsilon_outside = options->epsilon_outside;
    return tl_update_run(&tl_op_adagrad_update, grad, param, &sum, 1, copy, &attr, site);
}
