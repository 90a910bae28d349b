/* AdamW (Loshchilov & Hutter 2019, algorithm 2), in PyTorch's order or CS336's: see tl_adamw_attr. */
#include "op/update.h"

#include <string.h>

static tl_status adamw_infer(tl_sig *sig) {
    const tl_adamw_attr *a = TL_ATTR(tl_adamw_attr, sig);
    if (!(a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "beta1 is %g and beta2 %g; 0 or more and below 1 would work", a->beta1,
                           a->beta2);
    if (a->step < 1)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "step is %lld; steps count from 1", (long long)a->step);
    if (!(a->epsilon >= 0))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "epsilon is %g; 0 or more would work", a->epsilon);
    return tl_update_infer(sig, 2);
}

static void adamw_cost(const tl_sig *sig, tl_cost *cost) {
    /* m = β1·m + (1−β1)·g 3; v = β2·v + (1−β2)·g·g 4; θ·(1 − lr·λ) 1; √v, + ε, step·m, ÷, θ − 5; PyTorch's order divides √v
     * by √(1−β2^t) 1. What is the same for all elements (step sizes, corrections, 1 − lr·λ) is computed once a call and
     * counts nothing. A decay of 0 still multiplies. */
    tl_update_cost(sig, cost, 2, TL_ATTR(tl_adamw_attr, sig)->cs336 ? 13 : 14);
}

static tl_status adamw_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->adamw);
}

static void adamw_sample(uint64_t seed, tl_case *c) {
    tl_adamw_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.lr = 1e-2;
    attr.beta1 = 0.9;
    attr.beta2 = 0.95;
    attr.epsilon = 1e-8;
    attr.weight_decay = tl_sample_below(&seed, 2) ? 0.1 : 0;
    attr.step = 1 + tl_sample_below(&seed, 1000);
    attr.cs336 = tl_sample_below(&seed, 2);
    tl_update_sample(&seed, c, 2);
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(adamw_update, sizeof(tl_adamw_attr), adamw_infer, adamw_cost, TL_SAVES_NONE, adamw_forward, TL_NO_GRAD,
      adamw_sample);

tl_status tl_adamw_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *copy,
                           const tl_adamw_options *options, const char *site) {
    tl_adamw_attr attr;
    if (!options)
        return param ? tl_ctx_fail(param->ctx, TL_ERR_ARGUMENT, "adamw_update (%s): options are missing", site)
                     : TL_ERR_ARGUMENT;
    memset(&attr, 0, sizeof attr);
    attr.lr = options->lr;
    attr.beta1 = options->beta1;
    attr.beta2 = options->beta2;
    attr.epsilon = options->epsilon;
    attr.weight_decay = options->weight_decay;
    attr.step = options->step;
    attr.cs336 = options->cs336;
    return tl_update_run(&tl_op_adamw_update, grad, param, (tl_tensor *[]){m, v}, 2, copy, &attr, site);
}
