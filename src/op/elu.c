/* x where x > 0, else α·(e^x − 1) (Clevert et al. 2016); dx = g or g·α·e^x. */
#include "op/elementwise.h"

#include <string.h>

static void elu_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 2, 1); /* e^x − 1, ·α; one exp */ }

static tl_status elu_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->elu); }

static void backward_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 2, 1); /* α·e^x, ·g; one exp */ }

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->elu_backward);
}

static void fill_attr(uint64_t seed, tl_case *c) {
    tl_alpha_attr attr = {(double)(1 + tl_sample_below(&seed, 8)) / 4};
    memcpy(c->attr, &attr, sizeof attr);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_unary_backward_sample(seed, c);
    fill_attr(seed, c);
}

TL_OP(elu_backward, sizeof(tl_alpha_attr), tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status elu_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_elu_backward, gout, gin);
}

static void elu_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    fill_attr(seed, c);
}

TL_OP(elu, sizeof(tl_alpha_attr), tl_unary_infer, elu_cost, tl_unary_saves_input, elu_forward, elu_grad, elu_sample);

tl_tensor *tl_elu_(tl_tensor *x, double alpha, const char *site) {
    tl_alpha_attr attr = {alpha};
    return tl_run1(&tl_op_elu, (tl_tensor *[]){x}, 1, &attr, site);
}
