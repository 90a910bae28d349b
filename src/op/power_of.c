/* x^n of one number n for all elements: PyTorch's pow with a number, which keeps x alone. */
#include "op/elementwise.h"
#include "tally/ops_choices.h"

#include <string.h>

typedef struct power_of_attr {
    double n;
} power_of_attr;

/* The number is read beside x, as one element. */
static void read_number(const tl_sig *sig, tl_cost *cost) {
    for (int i = 0; i < sig->n_in; i++)
        cost->read = tl_amount_add(sig->ctx, cost->read,
                                   tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[i]->dtype), &sig->in[i]->shape));
    cost->read = tl_amount_add(sig->ctx, cost->read, tl_amount_of(sig->ctx, (int64_t)sizeof(double), NULL, 0));
    cost->read_set = true;
}

static tl_array number_as(const tl_array *x, double *n) {
    tl_array a = *x;
    a.dtype = TL_F64;
    a.data = (char *)n;
    memset(a.stride, 0, sizeof a.stride);
    return a;
}

static void power_of_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 0, 1); /* one pow */
    read_number(sig, cost);
}

static tl_status power_of_forward(const tl_sig *sig, tl_args *args) {
    double n = TL_ATTR(power_of_attr, sig)->n;
    args->call.in[1] = number_as(&args->call.in[0], &n);
    args->call.n_in = 2;
    return tl_args_run(sig, args, args->kernels->power);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 3, 1); /* n − 1, ·n, ·g and one pow */
    read_number(sig, cost);
}

/* in: x, gradient */
static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    double n = TL_ATTR(power_of_attr, sig)->n;
    args->call.in[2] = args->call.in[1];
    args->call.in[1] = number_as(&args->call.in[0], &n);
    args->call.n_in = 3;
    return tl_args_run(sig, args, args->kernels->power_backward_base);
}

static void set_number(uint64_t *seed, tl_case *c) {
    power_of_attr attr = {(double)(2 + tl_sample_below(seed, 3))};
    c->tolerance = 4e-6;
    memcpy(c->attr, &attr, sizeof attr);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_unary_backward_sample(seed, c);
    set_number(&seed, c);
}

TL_OP(power_of_backward, sizeof(power_of_attr), tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status power_of_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] =
        tl_run1(&tl_op_power_of_backward, (tl_tensor *[]){tl_saved_in(saved, 0), gout[0]}, 2, saved->attr, saved->site);
    return tl_ctx_status(ctx);
}

static void power_of_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    set_number(&seed, c);
}

TL_OP(power_of, sizeof(power_of_attr), tl_unary_infer, power_of_cost, tl_unary_saves_input, power_of_forward,
      power_of_grad, power_of_sample);

tl_tensor *tl_power_of_(tl_tensor *x, double n, const char *site) {
    power_of_attr attr = {n};
    return tl_run1(&tl_op_power_of, &x, 1, &attr, site);
}
