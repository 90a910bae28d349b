/* Shared declarations of views and copies. */
#include "op/views.h"

/* Axes of t that lie behind one another in memory form blocks; the new shape must cut at every block's border. Going from
 * the last axis to the first, each block of t is filled with new axes until their sizes multiply to the block's. */
bool tl_view_strides(const tl_tensor *t, const tl_shape *shape, int64_t stride[TL_MAX_NDIM], int *axis) {
    tl_shape_contiguous(shape, stride);
    if (tl_tensor_is_contiguous(t)) /* also zero elements: any strides do */
        return true;
    int to = shape->ndim - 1;
    for (int last = t->shape.ndim - 1; last >= 0;) {
        if (t->shape.dim[last].size == 1) {
            last--;
            continue;
        }
        int64_t block = t->shape.dim[last].size, step = t->stride[last];
        int first = last, joint = -1; /* joint: where a block ended because the strides do not meet */
        for (int i = last - 1; i >= 0; i--) {
            int64_t size = t->shape.dim[i].size, reach;
            if (size == 1)
                continue;
            if (!tl_mul_i64(step, block, &reach) || t->stride[i] != reach) {
                joint = i;
                break;
            }
            block *= size; /* a factor of the element count, which fits */
            first = i;
        }
        int64_t filled = 1;
        while (to >= 0 && (filled < block || shape->dim[to].size == 1)) {
            stride[to] = filled * step; /* below the reach of the block, which fits */
            filled *= shape->dim[to].size;
            to--;
        }
        if (filled != block) {
            *axis = joint < 0 ? 0 : joint;
            return false;
        }
        for (last = first - 1; last >= 0 && t->shape.dim[last].size == 1;)
            last--;
    }
    return true;
}

tl_status tl_sig_axis(tl_sig *sig, int input, int axis, int *normal) {
    char text[200];
    int n = sig->in[input]->shape.ndim;
    if (n == 0)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "axis %d was asked for, but %s has no axes", axis,
                           tl_tensor_text(sig->in[input], text, sizeof text));
    if (axis < -n || axis >= n)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "axis %d of %s does not exist; %d to %d would work", axis,
                           tl_tensor_text(sig->in[input], text, sizeof text), -n, n - 1);
    *normal = tl_axis_normal(axis, n);
    return TL_OK;
}

tl_status tl_sig_check_shape(tl_sig *sig, tl_shape *shape) {
    char text[160];
    int64_t count;
    if (shape->ndim < 0 || shape->ndim > TL_MAX_NDIM)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%d axes; 0 to %d would work", shape->ndim, TL_MAX_NDIM);
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i].size < 0)
            return tl_sig_fail(sig, TL_ERR_SHAPE, "size %lld of axis %d in %s is negative; every size must be given",
                               (long long)shape->dim[i].size, i, tl_shape_text(shape, text, sizeof text));
        shape->dim[i] = tl_dim_fixed(sig->ctx, shape->dim[i]);
    }
    if (!tl_shape_count(shape, &count))
        return tl_sig_fail(sig, TL_ERR_OVERFLOW, "the sizes of %s multiply to more than 2^63",
                           tl_shape_text(shape, text, sizeof text));
    return TL_OK;
}

tl_output *tl_sig_add_view(tl_sig *sig, const tl_shape *shape, const int64_t *stride, int64_t offset) {
    tl_output *out = tl_sig_add(sig, sig->in[0]->dtype, shape);
    if (!out)
        return NULL;
    out->alias = 0;
    out->offset = offset;
    for (int i = 0; i < shape->ndim; i++)
        out->stride[i] = stride[i];
    return out;
}

void tl_output_drop_axis(tl_output *out, int axis) {
    if (!out)
        return;
    out->shape.ndim--;
    for (int i = axis; i < out->shape.ndim; i++) {
        out->shape.dim[i] = out->shape.dim[i + 1];
        out->stride[i] = out->stride[i + 1];
    }
}

void tl_cost_moves(const tl_sig *sig, tl_cost *cost) {
    (void)sig;
    (void)cost;
}

tl_status tl_forward_copy(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->copy); }

tl_tensor *tl_zeros_of(tl_ctx *ctx, tl_dtype dtype, const tl_shape *shape, const char *site) {
    tl_tensor *zeros = tl_empty(ctx, dtype, *shape, TL_WORK);
    if (!zeros)
        return NULL;
    tl_tensor *filled = tl_fill_(zeros, 0, site);
    if (!filled) {
        tl_release(zeros);
        return NULL;
    }
    tl_release(filled); /* the first handle stays alone, so that a gradient can be adopted */
    return zeros;
}
