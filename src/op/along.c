/* Shared declarations of ops along one axis. */
#include "op/along.h"

#include <string.h>

void tl_array_axis_last(tl_array *array, int axis) {
    int64_t size = array->size[axis], stride = array->stride[axis];
    for (int i = axis; i + 1 < array->ndim; i++) {
        array->size[i] = array->size[i + 1];
        array->stride[i] = array->stride[i + 1];
    }
    array->size[array->ndim - 1] = size;
    array->stride[array->ndim - 1] = stride;
}

tl_status tl_arg_infer(tl_sig *sig) {
    char text[200];
    int axis = 0;
    const tl_arg_attr *attr = TL_ATTR(tl_arg_attr, sig);
    tl_status status = tl_sig_axis(sig, 0, attr->axis, &axis);
    if (status != TL_OK)
        return status;
    const tl_shape *in = &sig->in[0]->shape;
    tl_shape shape = {.ndim = 0};
    for (int i = 0; i < in->ndim; i++)
        if (i != axis)
            shape.dim[shape.ndim++] = in->dim[i];
        else if (attr->keep)
            shape.dim[shape.ndim++] = tl_dim_fixed(sig->ctx, tl_dim_of(1));
    int64_t rows;
    tl_shape_count(&shape, &rows);
    if (in->dim[axis].size == 0 && rows > 0)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "a place among no elements was asked of axis %d of %s; one is needed",
                           axis, tl_tensor_text(sig->in[0], text, sizeof text));
    tl_sig_add(sig, TL_I64, &shape);
    return TL_OK;
}

tl_status tl_arg_run(const tl_sig *sig, tl_args *args, bool least) {
    const tl_arg_attr *attr = TL_ATTR(tl_arg_attr, sig);
    tl_argmax_attr how = {least, attr->last};
    int axis = tl_axis_normal(attr->axis, sig->in[0]->shape.ndim);
    tl_array_axis_last(&args->call.in[0], axis);
    if (attr->keep) {
        tl_array_axis_last(&args->call.out[0], axis);
        args->call.out[0].ndim--;
    }
    args->call.attr = &how;
    return tl_args_run(sig, args, args->kernels->argmax);
}

void tl_arg_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 70)};
    tl_arg_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = (int)tl_sample_below(&seed, 6) - 3;
    attr.keep = tl_sample_below(&seed, 2) != 0;
    attr.last = tl_sample_below(&seed, 2) != 0;
    size[tl_axis_normal(attr.axis, 3) == 0] *= tl_sample_below(&seed, 5) != 0; /* sometimes another axis is empty */
    tl_sample_input(c, TL_F32, TL_FILL_INDEX, 3, size);
    c->in[0].limit = 6; /* equal values meet */
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

tl_cumulative_attr tl_cumulative_attr_of(int axis, bool product, bool exclusive, bool reverse) {
    tl_cumulative_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.how = (tl_cumulate_attr){product, exclusive, reverse};
    attr.axis = axis;
    return attr;
}

tl_status tl_cumulative_infer(tl_sig *sig) {
    int axis;
    tl_status status = tl_sig_want_arithmetic(sig, 0);
    if (status == TL_OK)
        status = tl_sig_axis(sig, 0, TL_ATTR(tl_cumulative_attr, sig)->axis, &axis);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

void tl_cumulative_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->out[0].shape);
}

tl_status tl_cumulative_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel) {
    int axis = tl_axis_normal(TL_ATTR(tl_cumulative_attr, sig)->axis, sig->in[0]->shape.ndim);
    for (int i = 0; i < args->call.n_in; i++)
        tl_array_axis_last(&args->call.in[i], axis);
    tl_array_axis_last(&args->call.out[0], axis);
    return tl_args_run(sig, args, kernel);
}

void tl_cumulative_sample(uint64_t seed, tl_case *c, bool product) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 12)};
    tl_cumulative_attr attr = tl_cumulative_attr_of((int)tl_sample_below(&seed, 6) - 3, product,
                                                    tl_sample_below(&seed, 2) != 0, tl_sample_below(&seed, 2) != 0);
    tl_sample_input(c, TL_F32, product ? TL_FILL_POSITIVE : TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}
