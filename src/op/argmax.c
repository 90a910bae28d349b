/* Where the largest element of the last axis is; the first of equals. Comparisons are no FLOPs: only bytes are counted. */
#include "op/views.h"

static tl_status argmax_infer(tl_sig *sig) {
    char text[200];
    tl_status status = tl_sig_want_ndim(sig, 0, 1);
    if (status != TL_OK)
        return status;
    tl_shape shape = sig->in[0]->shape;
    int64_t rows;
    shape.ndim--;
    tl_shape_count(&shape, &rows);
    if (shape.dim[shape.ndim].size == 0 && rows > 0)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the largest of no elements was asked of %s; at least one is needed",
                           tl_tensor_text(sig->in[0], text, sizeof text));
    tl_sig_add(sig, TL_I64, &shape);
    return TL_OK;
}

static tl_status argmax_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->argmax);
}

static void argmax_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 70)};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    c->n_out = 1;
}

TL_OP(argmax, 0, argmax_infer, tl_cost_moves, TL_SAVES_NONE, argmax_forward, TL_NO_GRAD, argmax_sample);

tl_tensor *tl_argmax_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_argmax, (tl_tensor *[]){x}, 1, NULL, site);
}
