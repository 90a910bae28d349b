/* SGD in PyTorch's form: g += λ·θ; b = μ·b + g (b = g at first); Nesterov: g + μ·b, else b; θ −= lr·that. */
#include "op/update.h"

#include <string.h>

static int states_of(const tl_sig *sig) { return TL_ATTR(tl_sgd_attr, sig)->momentum != 0 ? 1 : 0; }

static tl_status sgd_infer(tl_sig *sig) {
    const tl_sgd_attr *a = TL_ATTR(tl_sgd_attr, sig);
    if (!(a->momentum >= 0))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "momentum is %g; 0 or more would work", a->momentum);
    if (a->nesterov && a->momentum == 0)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "Nesterov's form needs a momentum above 0");
    return tl_update_infer(sig, states_of(sig));
}

static void sgd_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_sgd_attr *a = TL_ATTR(tl_sgd_attr, sig);
    /* g + λ·θ 2 (with λ 0 too), θ − lr·… 2; μ·b + g 2 (at first b is g); Nesterov's g + μ·b 2. */
    int64_t each = 4 + (a->momentum != 0 && !a->first ? 2 : 0) + (a->nesterov ? 2 : 0);
    tl_update_cost(sig, cost, states_of(sig), each);
    if (a->first && states_of(sig)) { /* the buffer is written, not read */
        cost->read = tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[0]->dtype), &sig->in[0]->shape);
        cost->read = tl_amount_add(sig->ctx, cost->read,
                                   tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[1]->dtype), &sig->in[1]->shape));
    }
}

static tl_status sgd_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->sgd); }

static void sgd_sample(uint64_t seed, tl_case *c) {
    tl_sgd_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.lr = 0.1;
    attr.momentum = tl_sample_below(&seed, 2) ? 0.9 : 0;
    attr.weight_decay = tl_sample_below(&seed, 2) ? 0.01 : 0;
    attr.nesterov = attr.momentum != 0 && tl_sample_below(&seed, 2);
    attr.first = tl_sample_below(&seed, 2);
    tl_update_sample(&seed, c, attr.momentum != 0);
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(sgd_update, sizeof(tl_sgd_attr), sgd_infer, sgd_cost, TL_SAVES_NONE, sgd_forward, TL_NO_GRAD, sgd_sample);

tl_status tl_sgd_update_(tl_tensor *param, tl_tensor *grad, tl_tensor *momentum, tl_tensor *copy, double lr,
                         double factor, double weight_decay, bool nesterov, bool first, const char *site) {
    tl_sgd_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.lr = lr;
    attr.momentum = factor;
    attr.weight_decay = weight_decay;
    attr.nesterov = nesterov;
    attr.first = first;
    /* with a factor of 0 there is no buffer to keep */
    return tl_update_run(&tl_op_sgd_update, grad, param, &momentum, factor != 0 ? 1 : 0, copy, &attr, site);
}
