/* Values in order along an axis, or the first of that order, and where they were. Merge sort: n·log n comparisons, which are no
 * FLOPs here. */
#include "op/index.h"

#include <string.h>

static tl_status sort_infer(tl_sig *sig) {
    const tl_sort_attr *attr = TL_ATTR(tl_sort_attr, sig);
    const tl_tensor *x = sig->in[0];
    char text[200];
    int axis = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->axis, &axis);
    if (status != TL_OK)
        return status;
    tl_shape shape = x->shape;
    if (attr->count < 0 || attr->count > shape.dim[axis].size)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%lld elements of axis %d of %s; 0 to %lld would work",
                           (long long)attr->count, axis, tl_tensor_text(x, text, sizeof text),
                           (long long)shape.dim[axis].size);
    if (attr->count != shape.dim[axis].size)
        shape.dim[axis] = tl_dim_fixed(sig->ctx, tl_dim_named(tl_dim_of(attr->count), shape.dim[axis].axis));
    tl_sig_add(sig, x->dtype, &shape);
    tl_sig_add(sig, TL_I64, &shape);
    return TL_OK;
}

static void sort_cost(const tl_sig *sig, tl_cost *cost) {
    int axis = tl_axis_normal(TL_ATTR(tl_sort_attr, sig)->axis, sig->in[0]->shape.ndim);
    /* keys, their order and the order being made, for each row that is sorted at a time */
    cost->workspace = tl_dim_mul(sig->ctx, tl_dim_of(TL_SORT_SLOTS * 3 * 8), tl_in_dim(sig, 0, axis));
}

static void sort_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->out = 2;
}

static tl_status sort_forward(const tl_sig *sig, tl_args *args) {
    tl_sort_attr attr = *TL_ATTR(tl_sort_attr, sig);
    attr.axis = tl_axis_normal(attr.axis, sig->in[0]->shape.ndim);
    args->call.attr = &attr;
    return tl_args_run(sig, args, args->kernels->sort);
}

static tl_status sort_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_index_attr attr = {TL_INDEX_ELEMENTS, ((const tl_sort_attr *)tl_saved_attr(saved))->axis, TL_COMBINE_ADD};
    gin[0] = tl_gather_backward(tl_saved_out(saved, 1), gout[0], &attr, tl_saved_shape(saved, 0), saved->site);
    return tl_ctx_status(ctx);
}

static void sort_sample(uint64_t seed, tl_case *c) {
    int64_t size[3] = {1 + tl_sample_below(&seed, 3), tl_sample_below(&seed, 20), 1 + tl_sample_below(&seed, 4)};
    tl_sort_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = (int)tl_sample_below(&seed, 6) - 3;
    attr.descending = tl_sample_below(&seed, 2);
    attr.count = size[tl_axis_normal(attr.axis, 3)];
    if (tl_sample_below(&seed, 2))
        attr.count = tl_sample_below(&seed, attr.count + 1);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 2;
}

TL_OP(sort, sizeof(tl_sort_attr), sort_infer, sort_cost, sort_saves, sort_forward, sort_grad, sort_sample);

static tl_status run(tl_tensor *x, const tl_sort_attr *attr, tl_tensor **values, tl_tensor **positions,
                     const char *site) {
    tl_tensor *out[2] = {NULL, NULL};
    tl_status status = x ? tl_run(x->ctx, &tl_op_sort, (tl_tensor *[]){x}, 1, attr, out, 2, site) : TL_ERR_ARGUMENT;
    *values = out[0];
    *positions = out[1];
    return status;
}

tl_status tl_sort_(tl_tensor *x, int axis, bool descending, tl_tensor **values, tl_tensor **positions,
                   const char *site) {
    tl_sort_attr attr = {.axis = axis, .descending = descending};
    int n = x ? x->shape.ndim : 0;
    if (axis >= -n && axis < n)
        attr.count = x->shape.dim[tl_axis_normal(axis, n)].size;
    return run(x, &attr, values, positions, site);
}

tl_status tl_top_k_(tl_tensor *x, int axis, int64_t k, bool largest, tl_tensor **values, tl_tensor **positions,
                    const char *site) {
    tl_sort_attr attr = {.axis = axis, .descending = largest, .count = k};
    return run(x, &attr, values, positions, site);
}
