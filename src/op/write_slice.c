/* A part of one axis written in place, converted on the way: how a cache of keys and values grows without a copy of itself. */
#include "op/inplace.h"
#include "op/views.h"

#include <string.h>

typedef struct write_slice_attr {
    int axis;
    int64_t start;
} write_slice_attr;

static tl_status write_slice_infer(tl_sig *sig) {
    const write_slice_attr *attr = TL_ATTR(write_slice_attr, sig);
    const tl_shape *into = &sig->in[0]->shape, *x = &sig->in[1]->shape;
    char a[200], b[200];
    int axis = 0;
    int64_t end = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->axis, &axis);
    if (status != TL_OK)
        return status;
    bool fits = into->ndim == x->ndim && attr->start >= 0 && tl_add_i64(attr->start, x->dim[axis].size, &end) &&
                end <= into->dim[axis].size;
    for (int i = 0; fits && i < into->ndim; i++)
        fits = i == axis || tl_dim_match(sig->ctx, into->dim[i], x->dim[i]);
    if (!fits)
        return tl_sig_fail(sig, TL_ERR_SHAPE,
                           "%s is to be written into %s from %lld on along axis %d; equal sizes but for that axis, and "
                           "an end within it, would work",
                           tl_tensor_text(sig->in[1], a, sizeof a), tl_tensor_text(sig->in[0], b, sizeof b),
                           (long long)attr->start, axis);
    return tl_inplace_infer_any(sig);
}

/* No arithmetic. What is written is as much as x, in the other's format. */
static void write_slice_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_shape *x = &sig->in[1]->shape;
    cost->read = tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[1]->dtype), x);
    cost->written = tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->out[0].dtype), x);
    cost->read_set = cost->written_set = true;
}

static tl_status write_slice_forward(const tl_sig *sig, tl_args *args) {
    const write_slice_attr *attr = TL_ATTR(write_slice_attr, sig);
    tl_array *out = &args->call.out[0];
    int axis = tl_axis_normal(attr->axis, out->ndim);
    args->call.in[0] = args->call.in[1];
    args->call.n_in = 1;
    args->call.attr = NULL;
    out->size[axis] = args->call.in[0].size[axis];
    if (out->size[axis] > 0)
        out->data += attr->start * out->stride[axis] * tl_dtype_bytes(out->dtype);
    return tl_args_run(sig, args, args->kernels->copy);
}

static void write_slice_sample(uint64_t seed, tl_case *c) {
    int64_t size[3] = {1 + tl_sample_below(&seed, 3), 1 + tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 20)};
    write_slice_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = (int)tl_sample_below(&seed, 6) - 3;
    int axis = tl_axis_normal(attr.axis, 3);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    attr.start = tl_sample_below(&seed, size[axis] + 1);
    size[axis] = tl_sample_below(&seed, size[axis] - attr.start + 1);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    c->in[0].fixed_layout = true;
    c->in_place = true;
    c->n_out = 1;
    memcpy(c->attr, &attr, sizeof attr);
}

TL_OP(write_slice, sizeof(write_slice_attr), write_slice_infer, write_slice_cost, TL_SAVES_NONE, write_slice_forward,
      TL_NO_GRAD, write_slice_sample);

tl_tensor *tl_write_slice_(tl_tensor *into, tl_tensor *x, int axis, int64_t start, const char *site) {
    write_slice_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = axis;
    attr.start = start;
    return tl_run1(&tl_op_write_slice, (tl_tensor *[]){into, x}, 2, &attr, site);
}
