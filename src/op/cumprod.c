/* Running products along an axis: y_i = Π_{j≤i} x_j; exclusive: j < i; reverse: from the end. dx without division: see
 * kernel/body/along.c. */
#include "op/along.h"
#include "op/elementwise.h"

static tl_status cumprod_forward(const tl_sig *sig, tl_args *args) {
    return tl_cumulative_run(sig, args, args->kernels->cumulate);
}

static tl_status backward_infer(tl_sig *sig) {
    int axis;
    tl_status status = tl_sig_axis(sig, 0, TL_ATTR(tl_cumulative_attr, sig)->axis, &axis);
    return status == TL_OK ? tl_unary_backward_infer(sig) : status;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 4, 0); /* the product before: 1; g + x·S: 2; their product: 1 */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_cumulative_run(sig, args, args->kernels->cumprod_backward);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_cumulative_sample(seed, c, true);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, c->in[0].size);
}

TL_OP(cumprod_backward, sizeof(tl_cumulative_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status cumprod_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_cumprod_backward, gout, gin);
}

static void cumprod_sample(uint64_t seed, tl_case *c) { tl_cumulative_sample(seed, c, true); }

TL_OP(cumprod, sizeof(tl_cumulative_attr), tl_cumulative_infer, tl_cumulative_cost, tl_unary_saves_input,
      cumprod_forward, cumprod_grad, cumprod_sample);

tl_tensor *tl_cumprod_(tl_tensor *x, int axis, bool exclusive, bool reverse, const char *site) {
    tl_cumulative_attr attr = tl_cumulative_attr_of(axis, true, exclusive, reverse);
    return tl_run1(&tl_op_cumprod, (tl_tensor *[]){x}, 1, &attr, site);
}
