/* x several times along each axis: a padding that wraps around. */
#include "op/pad.h"

#include <string.h>

typedef struct tile_attr {
    int64_t repeats[TL_MAX_NDIM];
} tile_attr;

static tl_pad_attr as_padding(const tile_attr *attr, const tl_shape *full) {
    tl_pad_attr pad;
    memset(&pad, 0, sizeof pad);
    pad.mode = TL_PAD_WRAP;
    for (int d = 0; d < full->ndim; d++) /* infer has found that this fits */
        pad.after[d] = full->dim[d].size * (attr->repeats[d] - 1);
    return pad;
}

static tl_status tile_infer(tl_sig *sig) {
    const tile_attr *attr = TL_ATTR(tile_attr, sig);
    tl_shape shape = sig->in[0]->shape;
    char text[200];
    for (int d = 0; d < shape.ndim; d++) {
        if (attr->repeats[d] < 0)
            return tl_sig_fail(sig, TL_ERR_ARGUMENT, "axis %d of %s %lld times; 0 or more would work", d,
                               tl_shape_text(&shape, text, sizeof text), (long long)attr->repeats[d]);
        if (attr->repeats[d] != 1)
            shape.dim[d] =
                tl_dim_named(tl_dim_mul(sig->ctx, shape.dim[d], tl_dim_of(attr->repeats[d])), shape.dim[d].axis);
    }
    tl_status status = tl_ctx_status(sig->ctx);
    if (status == TL_OK)
        status = tl_sig_check_shape(sig, &shape);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &shape);
    return status;
}

static tl_status tile_forward(const tl_sig *sig, tl_args *args) {
    tl_pad_attr pad = as_padding(TL_ATTR(tile_attr, sig), &sig->in[0]->shape);
    args->call.attr = &pad;
    return tl_args_run(sig, args, args->kernels->pad);
}

static tl_status tile_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_pad_attr pad = as_padding(tl_saved_attr(saved), tl_saved_shape(saved, 0));
    gin[0] = tl_pad_backward(gout[0], &pad, tl_saved_shape(saved, 0), saved->site);
    return tl_ctx_status(ctx);
}

static void tile_sample(uint64_t seed, tl_case *c) {
    int64_t size[3] = {1 + tl_sample_below(&seed, 3), tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 4)};
    tile_attr attr;
    memset(&attr, 0, sizeof attr);
    for (int d = 0; d < 3; d++)
        attr.repeats[d] = tl_sample_below(&seed, 4);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(tile, sizeof(tile_attr), tile_infer, tl_cost_moves, TL_SAVES_NONE, tile_forward, tile_grad, tile_sample);

tl_tensor *tl_tile_(tl_tensor *x, const int64_t *repeats, const char *site) {
    tile_attr attr;
    if (!x)
        return NULL;
    memset(&attr, 0, sizeof attr);
    memcpy(attr.repeats, repeats, (size_t)x->shape.ndim * sizeof *repeats);
    return tl_run1(&tl_op_tile, (tl_tensor *[]){x}, 1, &attr, site);
}
