/* start + i·step in place along the only axis: of floats in double, rounded once; of integers with start and step taken
 * towards zero. */
#include "op/elementwise.h"
#include "op/inplace.h"

#include <string.h>

static tl_status range_infer(tl_sig *sig) {
    char text[200];
    if (sig->in[0]->shape.ndim != 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s is to hold a range; one axis would work",
                           tl_tensor_text(sig->in[0], text, sizeof text));
    tl_status status = tl_sig_want_arithmetic(sig, 0);
    return status == TL_OK ? tl_inplace_infer_any(sig) : status;
}

static void range_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 2, 0); /* i·step, + start */
    tl_cost_writes(sig, cost);
}

static tl_status range_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->range);
}

static void range_sample(uint64_t seed, tl_case *c) {
    tl_range_attr attr = {(double)tl_sample_below(&seed, 9) - 4, (double)tl_sample_below(&seed, 9) / 4, 0, 0};
    attr.start_int = (int64_t)attr.start;
    attr.step_int = (int64_t)attr.step;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, (int64_t[]){tl_sample_below(&seed, 30)});
    c->in[0].fixed_layout = c->in_place = true;
    c->n_out = 1;
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(range, sizeof(tl_range_attr), range_infer, range_cost, TL_SAVES_NONE, range_forward, TL_NO_GRAD, range_sample);

static int64_t whole(double v) {
    return !(v == v) ? 0 : v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

tl_tensor *tl_range_(tl_tensor *x, double start, double step, const char *site) {
    tl_range_attr attr = {start, step, whole(start), whole(step)};
    return tl_run1(&tl_op_range, (tl_tensor *[]){x}, 1, &attr, site);
}
