/* min(high, max(low, x)), of integers too. NaN stays. The gradient passes where low ≤ x ≤ high. Only bytes are counted. */
#include "op/elementwise.h"
#include "op/views.h"

#include <string.h>

static tl_status clamp_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->clamp);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->clamp_backward);
}

static void fill_attr(uint64_t seed, tl_case *c) {
    tl_clamp_attr attr = {-(double)tl_sample_below(&seed, 3) / 2, (double)tl_sample_below(&seed, 3) / 2};
    memcpy(c->attr, &attr, sizeof attr);
    c->tolerance = 0;
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_unary_backward_sample(seed, c);
    fill_attr(seed, c);
}

TL_OP(clamp_backward, sizeof(tl_clamp_attr), tl_unary_backward_infer, tl_cost_moves, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status clamp_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_clamp_backward, gout, gin);
}

static void clamp_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    fill_attr(seed, c);
}

TL_OP(clamp, sizeof(tl_clamp_attr), tl_unary_infer_arithmetic, tl_cost_moves, tl_unary_saves_input, clamp_forward,
      clamp_grad, clamp_sample);

tl_tensor *tl_clamp_(tl_tensor *x, double low, double high, const char *site) {
    tl_clamp_attr attr = {low, high};
    return tl_run1(&tl_op_clamp, (tl_tensor *[]){x}, 1, &attr, site);
}
