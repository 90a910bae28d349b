/* Tensors behind one another along an axis. The gradient is one split. */
#include "op/views.h"

#include <string.h>

typedef struct concat_attr {
    int axis;
} concat_attr;

static tl_status concat_infer(tl_sig *sig) {
    char left[200], right[200];
    int axis = 0;
    tl_status status = tl_sig_want_same_dtype(sig);
    if (status == TL_OK)
        status = tl_sig_axis(sig, 0, TL_ATTR(concat_attr, sig)->axis, &axis);
    if (status != TL_OK)
        return status;
    tl_shape shape = sig->in[0]->shape;
    for (int i = 1; i < sig->n_in; i++) {
        const tl_shape *s = &sig->in[i]->shape;
        bool same = s->ndim == shape.ndim;
        for (int d = 0; same && d < shape.ndim; d++)
            same = d == axis || tl_dim_match(sig->ctx, shape.dim[d], s->dim[d]);
        if (!same)
            return tl_sig_fail(
                sig, TL_ERR_SHAPE, "input %d is %s but input 0 is %s: all sizes except axis %d%s%s must be equal", i,
                tl_tensor_text(sig->in[i], left, sizeof left), tl_tensor_text(sig->in[0], right, sizeof right), axis,
                shape.dim[axis].axis ? " " : "", shape.dim[axis].axis ? shape.dim[axis].axis : "");
        const char *name = shape.dim[axis].axis;
        shape.dim[axis] = tl_dim_named(tl_dim_add(sig->ctx, shape.dim[axis], s->dim[axis]), name);
    }
    tl_sig_add(sig, sig->in[0]->dtype, &shape);
    return tl_ctx_status(sig->ctx);
}

static tl_status concat_forward(const tl_sig *sig, tl_args *args) {
    int axis = tl_axis_normal(TL_ATTR(concat_attr, sig)->axis, sig->out[0].shape.ndim), n = sig->n_in;
    tl_array in[TL_MAX_IO], whole = args->call.out[0];
    memcpy(in, args->call.in, (size_t)n * sizeof *in);
    args->call.n_in = 1;
    for (int i = 0; i < n; i++) {
        args->call.in[0] = in[i];
        args->call.out[0] = whole;
        args->call.out[0].size[axis] = in[i].size[axis];
        tl_status status = tl_args_run(sig, args, args->kernels->copy);
        if (status != TL_OK)
            return status;
        if (in[i].size[axis] > 0 && whole.data)
            whole.data += in[i].size[axis] * whole.stride[axis] * tl_dtype_bytes(whole.dtype);
    }
    return TL_OK;
}

static tl_status concat_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    int axis = tl_axis_normal(((const concat_attr *)tl_saved_attr(saved))->axis, tl_saved_shape(saved, 0)->ndim);
    tl_dim size[TL_MAX_IO];
    for (int i = 0; i < saved->n_in; i++)
        size[i] = tl_saved_shape(saved, i)->dim[axis];
    (void)ctx;
    return tl_split_(gout[0], axis, size, saved->n_in, gin, saved->site);
}

static void concat_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 3), 1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 4)};
    concat_attr attr = {(int)tl_sample_below(&seed, 6) - 3};
    int n = 1 + (int)tl_sample_below(&seed, 4);
    for (int i = 0; i < n; i++) {
        size[tl_axis_normal(attr.axis, 3)] = tl_sample_below(&seed, 5);
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    }
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(concat, sizeof(concat_attr), concat_infer, tl_cost_moves, TL_SAVES_NONE, concat_forward, concat_grad,
      concat_sample);

tl_tensor *tl_concat_(tl_tensor *const x[], int n, int axis, const char *site) {
    concat_attr attr = {axis};
    return tl_run1(&tl_op_concat, x, n, &attr, site);
}
