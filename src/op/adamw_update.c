/* AdamW (Loshchilov & Hutter 2019, algorithm 2), in PyTorch's order or CS336's: see tl_adamw_attr. */
#include "op/update.h"

#include <string.h>

static tl_status adamw_infer(tl_sig *sig) {
    return tl_update_adam_infer(sig) ? sig->ctx->error.status : tl_update_infer(sig, 2);
}

static void adamw_cost(const tl_sig *sig, tl_cost *cost) {
    /* m = β1·m + (1−β1)·g 3; v = β2·v + (1−β2)·g·g 4; √v, + ε, step·m, ÷, θ − 5; PyTorch's order: θ·(1 − lr·λ) 1, √v by
     * √(1−β2^t) 1; CS336's: θ − lr·λ·θ 2. What is the same for all elements (step sizes, corrections, 1 − lr·λ) is computed
     * once a call and counts nothing. A decay of 0 still multiplies. */
    tl_update_cost(sig, cost, 2, 14);
}

static tl_status adamw_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->adamw);
}

static void adamw_sample(uint64_t seed, tl_case *c) {
    tl_adamw_attr attr;
    tl_update_adam_sample(&seed, &attr);
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
        return tl_update_no_options("adamw_update", param, site);
    tl_update_adam_attr(options, &attr);
    return tl_update_run(&tl_op_adamw_update, grad, param, (tl_tensor *[]){m, v}, 2, copy, &attr, site);
}
