/* Adam (Kingma & Ba 2015) with weight decay as L2, as torch.optim.Adam: g += λ·θ; m = β1·m + (1−β1)·g;
 * v = β2·v + (1−β2)·g²; θ −= lr/(1−β1^t)·m/(√v/√(1−β2^t) + ε). */
#include "op/update.h"

#include <string.h>

static tl_status adam_infer(tl_sig *sig) {
    tl_status status = tl_update_adam_infer(sig);
    if (status == TL_OK && TL_ATTR(tl_adamw_attr, sig)->cs336)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "CS336's order is AdamW's; adam_update has none");
    return status == TL_OK ? tl_update_infer(sig, 2) : status;
}

static void adam_cost(const tl_sig *sig, tl_cost *cost) {
    /* m 3, v 4; √v, ÷ √(1−β2^t), + ε, step·m, ÷, θ − 6; a decay that is not 0: g + λ·θ 2 */
    tl_update_cost(sig, cost, 2, TL_ATTR(tl_adamw_attr, sig)->weight_decay != 0 ? 15 : 13);
}

static tl_status adam_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->adam); }

static void adam_sample(uint64_t seed, tl_case *c) {
    tl_adamw_attr attr;
    tl_update_adam_sample(&seed, &attr);
    tl_update_sample(&seed, c, 2);
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(adam_update, sizeof(tl_adamw_attr), adam_infer, adam_cost, TL_SAVES_NONE, adam_forward, TL_NO_GRAD, adam_sample);

tl_status tl_adam_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *m, tl_tensor *v, tl_tensor *copy,
                          const tl_adamw_options *options, const char *site) {
    tl_adamw_attr attr;
    if (!options)
        return tl_update_no_options("adam_update", param, site);
    tl_update_adam_attr(options, &attr);
    return tl_update_run(&tl_op_adam_update, grad, param, (tl_tensor *[]){m, v}, 2, copy, &attr, site);
}
