/* A new axis of `depth`: one value where its place is the index, another elsewhere. A negative index counts from the end;
 * one outside is nowhere. Only bytes are counted. */
#include "op/along.h"

#include <string.h>

typedef struct one_hot_attr {
    tl_one_hot_attr values; /* first: the kernel reads this much */
    tl_dtype dtype;
    int axis;
    tl_dim depth;
} one_hot_attr;

static tl_status one_hot_infer(tl_sig *sig) {
    const one_hot_attr *attr = TL_ATTR(one_hot_attr, sig);
    const tl_shape *in = &sig->in[0]->shape;
    int ndim = in->ndim + 1, axis = attr->axis < 0 ? attr->axis + ndim : attr->axis;
    if (tl_dtype_is_float(sig->in[0]->dtype) || sig->in[0]->dtype == TL_BOOL)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the indices are %s; an integer format would work",
                           tl_dtype_name(sig->in[0]->dtype));
    if (ndim > TL_MAX_NDIM || axis < 0 || axis >= ndim)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the new axis is %d of %d; %d to %d, and at most %d axes, would work",
                           attr->axis, ndim, -ndim, ndim - 1, TL_MAX_NDIM);
    tl_shape shape = {.ndim = ndim};
    for (int i = 0, from = 0; i < ndim; i++)
        shape.dim[i] = i == axis ? attr->depth : in->dim[from++];
    tl_status status = tl_sig_check_shape(sig, &shape);
    if (status == TL_OK)
        tl_sig_add(sig, attr->dtype, &shape);
    return status;
}

static tl_status one_hot_forward(const tl_sig *sig, tl_args *args) {
    int ndim = args->call.out[0].ndim, axis = TL_ATTR(one_hot_attr, sig)->axis;
    tl_array_axis_last(&args->call.out[0], tl_axis_normal(axis, ndim));
    return tl_args_run(sig, args, args->kernels->one_hot);
}

static void one_hot_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 9)};
    one_hot_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.values = (tl_one_hot_attr){3, -1};
    attr.dtype = tl_sample_below(&seed, 2) ? TL_F32 : TL_I64;
    attr.axis = (int)tl_sample_below(&seed, 6) - 3;
    attr.depth = tl_dim_of(tl_sample_below(&seed, 8));
    tl_sample_input(c, TL_I64, TL_FILL_INDEX, 2, size);
    c->in[0].limit = 9;
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(one_hot, sizeof(one_hot_attr), one_hot_infer, tl_cost_moves, TL_SAVES_NONE, one_hot_forward, TL_NO_GRAD,
      one_hot_sample);

tl_tensor *tl_one_hot_(tl_tensor *indices, tl_dim depth, int axis, tl_dtype dtype, double on, double off,
                       const char *site) {
    one_hot_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.values = (tl_one_hot_attr){on, off};
    attr.dtype = dtype;
    attr.axis = axis;
    attr.depth = depth;
    return tl_run1(&tl_op_one_hot, (tl_tensor *[]){indices}, 1, &attr, site);
}
