/* into = keep·into + value·x (or x·y, or x/y), in place: mul_ and add_, addcmul_ or addcdiv_ of optimizers written operation by
 * operation. */
#include "op/inplace.h"
#include "op/rows.h"
#include "tally/ops_choices.h"

#include <string.h>

static tl_status multiply_add_infer(tl_sig *sig) {
    static const char *const what[] = {"", "x", "y"};
    tl_status status = tl_inplace_infer_float(sig);
    for (int i = 1; i < sig->n_in && status == TL_OK; i++)
        if ((status = tl_sig_want_float(sig, i)) == TL_OK)
            status = tl_sig_want_shape(sig, i, &sig->in[0]->shape, what[i]);
    return status;
}

static void multiply_add_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_multiply_add_attr *a = TL_ATTR(tl_multiply_add_attr, sig);
    /* ·keep where it is not 1; ·value, +; x·y or x/y */
    cost->arithmetic = tl_amount_shape(sig->ctx, (a->keep != 1) + 2 + (sig->n_in > 2), &sig->in[0]->shape);
}

static tl_status multiply_add_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->multiply_add);
}

static void multiply_add_sample(uint64_t seed, tl_case *c) {
    tl_multiply_add_attr attr;
    memset(&attr, 0, sizeof attr);
    tl_inplace_sample(seed, c);
    attr.keep = tl_sample_below(&seed, 2) ? 1 : 0.75;
    attr.value = tl_sample_below(&seed, 2) ? 0.25 : -1.5;
    int operands = 1 + (int)tl_sample_below(&seed, 2);
    attr.divides = operands > 1 && tl_sample_below(&seed, 2);
    for (int i = 0; i < operands; i++)
        tl_sample_input(c, TL_F32, i > 0 ? TL_FILL_POSITIVE : TL_FILL_NORMAL, 3, c->in[0].size);
    memcpy(c->attr, &attr, sizeof attr);
    c->tolerance = 1e-5;
}

TL_OP(multiply_add, sizeof(tl_multiply_add_attr), multiply_add_infer, multiply_add_cost, TL_SAVES_NONE,
      multiply_add_forward, TL_NO_GRAD, multiply_add_sample);

tl_tensor *tl_multiply_add_(tl_tensor *into, double keep, double value, tl_tensor *x, tl_tensor *y, bool divides,
                            const char *site) {
    tl_multiply_add_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.keep = keep;
    attr.value = value;
    attr.divides = divides;
    return tl_run1(&tl_op_multiply_add, (tl_tensor *[]){into, x, y}, y ? 3 : 2, &attr, site);
}
