/* x^n = y, with broadcasting. dx = g·n·x^(n−1), dn = g·y·log x (0 where x is 0 and n is not negative). */
#include "op/elementwise.h"

#include <string.h>

static void power_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 0, 1); /* one pow */ }

static void power_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 3;
}

static tl_status power_forward(const tl_sig *sig, tl_args *args) {
    return tl_binary_run(sig, args, args->kernels->power);
}

typedef struct power_backward_attr {
    bool of_exponent;
} power_backward_attr;

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    /* n − 1, ·n, ·g and one pow; or y·log x·g: 2, one pow, one log */
    if (TL_ATTR(power_backward_attr, sig)->of_exponent)
        tl_unary_cost(sig, cost, 2, 2);
    else
        tl_unary_cost(sig, cost, 3, 1);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    bool of_exponent = TL_ATTR(power_backward_attr, sig)->of_exponent;
    return tl_binary_run(sig, args,
                         of_exponent ? args->kernels->power_backward_exponent : args->kernels->power_backward_base);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    power_backward_attr attr = {tl_sample_below(&seed, 2) != 0};
    tl_binary_backward_sample(seed, c);
    c->in[0].fill = TL_FILL_POSITIVE;
    c->tolerance = 4e-6;
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(power_backward, sizeof(power_backward_attr), tl_binary_backward_infer, backward_cost, TL_SAVES_NONE,
      backward_forward, TL_NO_GRAD, backward_sample);

static tl_status power_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_saved_in(saved, 1), gout[0]};
    for (int i = 0; i < 2; i++)
        if (tl_saved_needs(saved, i)) {
            power_backward_attr attr = {i == 1};
            tl_tensor *share = tl_run1(&tl_op_power_backward, in, 3, &attr, saved->site);
            gin[i] = tl_sum_to(share, tl_saved_shape(saved, i), saved->site);
            if (gin[i] != share)
                tl_release(share);
        }
    return tl_ctx_status(ctx);
}

static void power_sample(uint64_t seed, tl_case *c) {
    tl_binary_sample(seed, c);
    c->in[0].fill = TL_FILL_POSITIVE; /* a negative number has no real power of a fraction */
    c->tolerance = 2e-6;
}

TL_OP(power, 0, tl_binary_infer, power_cost, power_saves, power_forward, power_grad, power_sample);

tl_tensor *tl_power_(tl_tensor *x, tl_tensor *n, const char *site) {
    return tl_run1(&tl_op_power, (tl_tensor *[]){x, n}, 2, NULL, site);
}
