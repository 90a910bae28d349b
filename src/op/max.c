/* The largest element over axes; NaN wins. A comparison is no FLOP: only bytes are counted. */
#include "op/reduce.h"
#include "op/views.h"

static tl_status max_infer(tl_sig *sig) {
    int64_t reduced, count;
    char text[200];
    tl_status status = tl_reduce_infer(sig, &reduced);
    if (status != TL_OK)
        return status;
    tl_shape_count(&sig->out[0].shape, &count);
    if (reduced == 0 && count > 0)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the largest of no elements was asked of %s; at least one is needed",
                           tl_tensor_text(sig->in[0], text, sizeof text));
    return TL_OK;
}

static tl_status max_forward(const tl_sig *sig, tl_args *args) { return tl_reduce_run(sig, args, args->kernels->max); }

static void max_sample(uint64_t seed, tl_case *c) {
    tl_reduce_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(max, sizeof(tl_reduce_attr), max_infer, tl_cost_moves, TL_SAVES_NONE, max_forward, TL_NO_GRAD, max_sample);

tl_tensor *tl_max_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_max, x, axes, n, keep, site);
}
