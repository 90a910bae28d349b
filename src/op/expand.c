/* Size-1 and new leading axes stretched with stride 0. */
#include "op/views.h"

#include <string.h>

static tl_status expand_infer(tl_sig *sig) {
    const tl_tensor *t = sig->in[0];
    tl_shape shape = *TL_ATTR(tl_shape, sig);
    char from[200], to[160];
    int64_t stride[TL_MAX_NDIM] = {0};
    tl_status status = tl_sig_check_shape(sig, &shape);
    if (status != TL_OK)
        return status;
    int more = shape.ndim - t->shape.ndim;
    if (more < 0)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s has more axes than %s; axes can be added in front, not taken away",
                           tl_tensor_text(t, from, sizeof from), tl_shape_text(&shape, to, sizeof to));
    for (int i = more; i < shape.ndim; i++) {
        tl_dim have = t->shape.dim[i - more];
        if (have.size != shape.dim[i].size && have.size != 1)
            return tl_sig_fail(sig, TL_ERR_SHAPE,
                               "%s cannot be expanded to %s: axis %d%s%s is %lld, and only 1 stretches",
                               tl_tensor_text(t, from, sizeof from), tl_shape_text(&shape, to, sizeof to), i - more,
                               have.axis ? " " : "", have.axis ? have.axis : "", (long long)have.size);
        if (have.size != shape.dim[i].size)
            continue;
        stride[i] = t->stride[i - more];
        if (have.size != 1)
            tl_dim_assume_equal(sig->ctx, have, shape.dim[i]);
        if (!shape.dim[i].axis)
            shape.dim[i].axis = have.axis;
    }
    tl_sig_add_view(sig, &shape, stride, t->offset);
    return TL_OK;
}

static tl_status expand_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_sum_to(gout[0], tl_saved_shape(saved, 0), saved->site);
    return tl_ctx_status(ctx);
}

static void expand_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 3), 1 + tl_sample_below(&seed, 3), 1 + tl_sample_below(&seed, 5)};
    tl_shape shape = {.ndim = 4};
    shape.dim[0] = tl_dim_of(1 + tl_sample_below(&seed, 3));
    for (int i = 0; i < 3; i++) {
        shape.dim[1 + i] = tl_dim_of(size[i]);
        if (size[i] == 1)
            shape.dim[1 + i] = tl_dim_of(tl_sample_below(&seed, 4)); /* sometimes to nothing */
    }
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &shape, sizeof shape);
    c->n_out = 1;
}

TL_OP(expand, sizeof(tl_shape), expand_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, expand_grad, expand_sample);

tl_tensor *tl_expand_(tl_tensor *x, tl_shape shape, const char *site) {
    return tl_run1(&tl_op_expand, (tl_tensor *[]){x}, 1, &shape, site);
}
