/* Every step-th element of one axis, forwards or backwards. The gradient lies in zeros: one op writes both. */
#include "op/views.h"

#include <string.h>

typedef struct slice_attr {
    int axis;
    int64_t start, step;
    tl_dim count;
} slice_attr;

/* First element counted from 0, if all `count` of them lie within `size`. */
static bool slice_start(int64_t size, int64_t start, int64_t count, int64_t step, int64_t *first) {
    int64_t span, last;
    if (start < 0)
        start += size;
    if (count < 0 || start < 0 || start > size || step == 0)
        return false;
    *first = start;
    if (count == 0)
        return true;
    if (!tl_mul_i64(count - 1, step, &span) || !tl_add_i64(start, span, &last))
        return false;
    return start < size && last >= 0 && last < size;
}

static tl_status slice_infer(tl_sig *sig) {
    const slice_attr *attr = TL_ATTR(slice_attr, sig);
    const tl_tensor *t = sig->in[0];
    char text[200];
    int axis = 0;
    int64_t first = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->axis, &axis);
    if (status != TL_OK)
        return status;
    tl_dim dim = t->shape.dim[axis], count = tl_dim_fixed(sig->ctx, attr->count);
    if (!slice_start(dim.size, attr->start, count.size, attr->step, &first))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%lld elements from %lld by step %lld leave axis %d%s%s of %s; %s",
                           (long long)count.size, (long long)attr->start, (long long)attr->step, axis,
                           dim.axis ? " " : "", dim.axis ? dim.axis : "", tl_tensor_text(t, text, sizeof text),
                           attr->step == 0 ? "the step must not be 0" : "first and last must lie within it");
    if (!count.axis)
        count.axis = dim.axis;
    tl_output *out = tl_sig_add_view(sig, &t->shape, t->stride, t->offset);
    out->shape.dim[axis] = count;
    if (count.size > 0)
        out->offset += first * t->stride[axis];
    if (count.size > 1)
        out->stride[axis] = t->stride[axis] * attr->step;
    return TL_OK;
}

typedef struct back_attr {
    int axis;
    int64_t start, step;
    tl_shape full;
} back_attr;

static tl_status back_infer(tl_sig *sig) {
    const back_attr *attr = TL_ATTR(back_attr, sig);
    tl_shape want = attr->full;
    char text[200], full[160];
    int axis = 0;
    int64_t first = 0;
    tl_status status = tl_sig_axis(sig, 0, attr->axis, &axis);
    if (status != TL_OK)
        return status;
    int64_t count = tl_in_dim(sig, 0, axis).size;
    if (axis < want.ndim)
        want.dim[axis].size = count;
    if (!tl_shape_equal(&want, &sig->in[0]->shape) ||
        !slice_start(attr->full.dim[axis].size, attr->start, count, attr->step, &first))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s is no slice of %s along axis %d",
                           tl_tensor_text(sig->in[0], text, sizeof text), tl_shape_text(&attr->full, full, sizeof full),
                           axis);
    tl_sig_add(sig, sig->in[0]->dtype, &attr->full);
    return TL_OK;
}

/* Zeros everywhere, then the slice over them: the slice is written twice. */
static void back_cost(const tl_sig *sig, tl_cost *cost) {
    int64_t bytes = tl_dtype_bytes(sig->out[0].dtype);
    cost->written = tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, bytes, &sig->out[0].shape),
                                  tl_amount_shape(sig->ctx, bytes, &sig->in[0]->shape));
    cost->written_set = true;
}

static tl_status back_forward(const tl_sig *sig, tl_args *args) {
    const back_attr *attr = TL_ATTR(back_attr, sig);
    tl_array *out = &args->call.out[0];
    const tl_array *in = &args->call.in[0];
    int axis = tl_axis_normal(attr->axis, out->ndim);
    int64_t first = attr->start < 0 ? attr->start + out->size[axis] : attr->start;
    tl_fill_attr zero = {0};
    args->call.attr = &zero;
    args->kernels->fill(&args->call);
    args->call.attr = NULL;
    if (in->size[axis] == 0)
        return TL_OK;
    out->data += first * out->stride[axis] * tl_dtype_bytes(out->dtype);
    if (in->size[axis] > 1)
        out->stride[axis] *= attr->step;
    out->size[axis] = in->size[axis];
    return tl_args_run(sig, args, args->kernels->copy);
}

/* A legal slice of an axis of `size`: any sign of step, sometimes from the end, sometimes empty. */
static void sample_range(uint64_t *seed, int64_t size, int64_t *start, int64_t *count, int64_t *step) {
    *step = 1 + tl_sample_below(seed, 3);
    *count = (size + *step - 1) / *step; /* half of the time as many as there can be */
    if (tl_sample_below(seed, 2))
        *count = tl_sample_below(seed, *count + 1);
    int64_t span = *count > 0 ? (*count - 1) * *step : 0;
    *start = *count > 0 ? tl_sample_below(seed, size - span) : 0;
    if (tl_sample_below(seed, 2) && *count > 0) { /* the same elements backwards */
        *start += span;
        *step = -*step;
    }
    if (tl_sample_below(seed, 2) && *count > 0)
        *start -= size;
}

static void back_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 9), 1 + tl_sample_below(&seed, 5)};
    back_attr attr = {.axis = (int)tl_sample_below(&seed, 6) - 3, .full = {.ndim = 3}};
    int axis = tl_axis_normal(attr.axis, 3);
    for (int i = 0; i < 3; i++)
        attr.full.dim[i] = tl_dim_of(size[i]);
    sample_range(&seed, size[axis], &attr.start, &size[axis], &attr.step);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(slice_backward, sizeof(back_attr), back_infer, back_cost, TL_SAVES_NONE, back_forward, TL_NO_GRAD, back_sample);

tl_tensor *tl_slice_gradient(tl_tensor *g, const tl_shape *full, int axis, int64_t start, int64_t step,
                             const char *site) {
    back_attr back = {.axis = axis, .start = start, .step = step, .full = *full};
    return tl_run1(&tl_op_slice_backward, (tl_tensor *[]){g}, 1, &back, site);
}

static tl_status slice_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const slice_attr *attr = tl_saved_attr(saved);
    gin[0] = tl_slice_gradient(gout[0], tl_saved_shape(saved, 0), attr->axis, attr->start, attr->step, saved->site);
    return tl_ctx_status(ctx);
}

static void slice_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 9), 1 + tl_sample_below(&seed, 5)};
    slice_attr attr = {.axis = (int)tl_sample_below(&seed, 6) - 3};
    int64_t count = 0;
    sample_range(&seed, size[tl_axis_normal(attr.axis, 3)], &attr.start, &count, &attr.step);
    attr.count = tl_dim_of(count);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(slice, sizeof(slice_attr), slice_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, slice_grad, slice_sample);

tl_tensor *tl_slice_(tl_tensor *x, int axis, int64_t start, tl_dim count, int64_t step, const char *site) {
    slice_attr attr = {.axis = axis, .start = start, .step = step, .count = count};
    return tl_run1(&tl_op_slice, (tl_tensor *[]){x}, 1, &attr, site);
}
