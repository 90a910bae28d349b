/* Shared declarations of gathers and scatters. */
#include "op/index.h"

#include <string.h>

tl_index_attr tl_index_normal(const tl_index_attr *attr, int ndim) {
    tl_index_attr normal = *attr;
    normal.axis = tl_axis_normal(attr->axis, ndim);
    return normal;
}

static tl_status picked_nd(tl_sig *sig, int batch, const tl_shape *x, int index, tl_shape *picked) {
    const tl_shape *i = &sig->in[index]->shape;
    char text[200], of[200];
    int outer = i->ndim - 1;
    int64_t components = outer >= 0 ? i->dim[outer].size : 0;
    if (outer < 0 || components < 1 || components > x->ndim - batch || batch > outer)
        return tl_sig_fail(
            sig, TL_ERR_SHAPE,
            "%s cannot index %s after %d shared axes: its last axis holds the 1 to %d indices of a place",
            tl_tensor_text(sig->in[index], text, sizeof text), tl_shape_text(x, of, sizeof of), batch, x->ndim - batch);
    for (int d = 0; d < batch; d++)
        if (!tl_dim_match(sig->ctx, i->dim[d], x->dim[d]))
            return tl_sig_fail(sig, TL_ERR_SHAPE, "%s and %s must agree in their first %d axes",
                               tl_tensor_text(sig->in[index], text, sizeof text), tl_shape_text(x, of, sizeof of),
                               batch);
    int rest = x->ndim - batch - (int)components;
    if (outer + rest > TL_MAX_NDIM)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "a result of %d axes; at most %d would work", outer + rest, TL_MAX_NDIM);
    picked->ndim = outer + rest;
    for (int d = 0; d < picked->ndim; d++)
        picked->dim[d] = d < outer ? i->dim[d] : x->dim[batch + (int)components + d - outer];
    return TL_OK;
}

tl_status tl_sig_picked(tl_sig *sig, const tl_index_attr *attr, const tl_shape *x, int index, tl_shape *picked) {
    const tl_shape *i = &sig->in[index]->shape;
    char text[200], of[200];
    tl_status status = tl_sig_want_index(sig, index, "the indices");
    if (status != TL_OK)
        return status;
    bool nd = attr->kind == TL_INDEX_ND;
    if (nd && (attr->axis < 0 || attr->axis > x->ndim))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%d shared axes of %s; 0 to %d would work", attr->axis,
                           tl_shape_text(x, of, sizeof of), x->ndim);
    if (!nd && (attr->axis < -x->ndim || attr->axis >= x->ndim))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "axis %d of %s does not exist; %d to %d would work", attr->axis,
                           tl_shape_text(x, of, sizeof of), -x->ndim, x->ndim - 1);
    if (nd)
        return picked_nd(sig, attr->axis, x, index, picked);
    int axis = tl_axis_normal(attr->axis, x->ndim);
    if (attr->kind == TL_INDEX_AXIS) {
        if (x->ndim + i->ndim - 1 > TL_MAX_NDIM)
            return tl_sig_fail(sig, TL_ERR_SHAPE, "a result of %d axes; at most %d would work", x->ndim + i->ndim - 1,
                               TL_MAX_NDIM);
        picked->ndim = x->ndim + i->ndim - 1;
        for (int d = 0; d < picked->ndim; d++)
            picked->dim[d] = d < axis ? x->dim[d] : d < axis + i->ndim ? i->dim[d - axis] : x->dim[d - i->ndim + 1];
        return TL_OK;
    }
    bool fits = i->ndim == x->ndim;
    for (int d = 0; fits && d < x->ndim; d++)
        fits = d == axis || i->dim[d].size <= x->dim[d].size;
    if (!fits)
        return tl_sig_fail(sig, TL_ERR_SHAPE,
                           "the indices are %s; as many axes as %s, none but axis %d longer, would work",
                           tl_tensor_text(sig->in[index], text, sizeof text), tl_shape_text(x, of, sizeof of), axis);
    *picked = *i;
    return TL_OK;
}

/* Says which axis a bad index was for. */
static tl_status index_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel, const tl_index_attr *attr,
                           const tl_shape *x, const tl_shape *index) {
    kernel(&args->call);
    if (!args->call.fault)
        return TL_OK;
    int64_t position = args->call.fault - 1;
    int axis = attr->axis + (attr->kind == TL_INDEX_ND ? (int)(position % index->dim[index->ndim - 1].size) : 0);
    long long n = x->dim[axis].size;
    return tl_ctx_fail(
        sig->ctx, TL_ERR_ARGUMENT,
        "%s (%s): the index at position %lld is out of range for axis %d of %lld elements: %lld to %lld would work",
        sig->op->name, sig->site, (long long)position, axis, n, -n, n - 1);
}

/* ---- gathers ---- */

tl_status tl_gather_infer(tl_sig *sig) {
    tl_shape picked = {0};
    tl_status status = tl_sig_picked(sig, TL_ATTR(tl_index_attr, sig), &sig->in[0]->shape, 1, &picked);
    if (status == TL_OK)
        status = tl_sig_check_shape(sig, &picked);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &picked);
    return status;
}

/* No arithmetic. Of x, only what is picked is read. */
void tl_gather_cost(const tl_sig *sig, tl_cost *cost) {
    cost->read = tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->out[0].dtype), &sig->out[0].shape);
    cost->read = tl_amount_add(sig->ctx, cost->read,
                               tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[1]->dtype), &sig->in[1]->shape));
    cost->read_set = true;
}

void tl_gather_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 2;
}

tl_status tl_gather_forward(const tl_sig *sig, tl_args *args) {
    const tl_shape *x = &sig->in[0]->shape;
    tl_index_attr attr = tl_index_normal(TL_ATTR(tl_index_attr, sig), x->ndim);
    args->call.attr = &attr;
    return index_run(sig, args, args->kernels->gather, &attr, x, &sig->in[1]->shape);
}

/* x itself is not an input of backward, so its shape travels as an attribute. */
typedef struct gather_backward_attr {
    tl_index_attr index;
    tl_shape full;
} gather_backward_attr;

tl_tensor *tl_gather_backward(tl_tensor *index, tl_tensor *gradient, const tl_index_attr *attr, const tl_shape *full,
                              const char *site) {
    gather_backward_attr back;
    memset(&back, 0, sizeof back);
    back.index = tl_index_normal(attr, full->ndim);
    back.index.combine = TL_COMBINE_ADD;
    back.full = *full;
    return tl_run1(&tl_op_gather_backward, (tl_tensor *[]){index, gradient}, 2, &back, site);
}

tl_status tl_gather_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] =
        tl_gather_backward(tl_saved_in(saved, 1), gout[0], tl_saved_attr(saved), tl_saved_shape(saved, 0), saved->site);
    return tl_ctx_status(ctx);
}

/* in: index, gradient */
static tl_status backward_infer(tl_sig *sig) {
    const gather_backward_attr *attr = TL_ATTR(gather_backward_attr, sig);
    tl_shape picked = {0};
    tl_status status;
    if ((status = tl_sig_want_float(sig, 1)) || (status = tl_sig_picked(sig, &attr->index, &attr->full, 0, &picked)) ||
        (status = tl_sig_want_shape(sig, 1, &picked, "the gradient")))
        return status;
    tl_sig_add(sig, sig->in[1]->dtype, &attr->full);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    int64_t bytes = tl_dtype_bytes(sig->out[0].dtype);
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[1]->shape); /* each element is added once */
    cost->written = tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, bytes, &sig->out[0].shape),
                                  tl_amount_shape(sig->ctx, bytes, &sig->in[1]->shape)); /* zeros, then sums */
    /* The index, and for each sum what is added and what it is added to. */
    cost->read = tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, 2 * bytes, &sig->in[1]->shape),
                               tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[0]->dtype), &sig->in[0]->shape));
    cost->read_set = cost->written_set = true;
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    const gather_backward_attr *attr = TL_ATTR(gather_backward_attr, sig);
    tl_fill_attr zero = {0};
    args->call.attr = &zero;
    args->kernels->fill(&args->call);
    args->call.attr = &attr->index;
    return index_run(sig, args, args->kernels->scatter, &attr->index, &attr->full, &sig->in[0]->shape);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    gather_backward_attr attr;
    tl_case picked;
    memset(&picked, 0, sizeof picked);
    memset(&attr, 0, sizeof attr);
    tl_index_sample(&seed, &picked, (tl_index_kind)tl_sample_below(&seed, 3), true);
    memcpy(&attr.index, picked.attr, sizeof attr.index);
    attr.full.ndim = picked.in[0].ndim;
    for (int d = 0; d < attr.full.ndim; d++)
        attr.full.dim[d].size = picked.in[0].size[d];
    attr.index = tl_index_normal(&attr.index, attr.full.ndim);
    attr.index.combine = TL_COMBINE_ADD;
    c->in[0] = picked.in[1];
    c->in[1] = picked.in[2];
    c->n_in = 2;
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(gather_backward, sizeof(gather_backward_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

/* ---- scatters ---- */

static bool looks(tl_combine combine) { return combine != TL_COMBINE_REPLACE && combine != TL_COMBINE_ADD; }

tl_status tl_scatter_infer(tl_sig *sig) {
    const tl_index_attr *attr = TL_ATTR(tl_index_attr, sig);
    const tl_tensor *x = sig->in[0], *updates = sig->in[2];
    tl_shape picked = {0};
    tl_status status = tl_sig_picked(sig, attr, &x->shape, 1, &picked);
    if (status == TL_OK)
        status = tl_sig_want_shape(sig, 2, &picked, "the updates");
    if (status != TL_OK)
        return status;
    if (updates->dtype != x->dtype)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the updates are %s but the data is %s; cast one of them",
                           tl_dtype_name(updates->dtype), tl_dtype_name(x->dtype));
    if (attr->combine != TL_COMBINE_REPLACE && x->dtype == TL_BOOL)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "there is no arithmetic in bool; it can only be replaced");
    tl_sig_add(sig, x->dtype, &x->shape);
    return TL_OK;
}

/* A copy of x, then the updates. */
void tl_scatter_cost(const tl_sig *sig, tl_cost *cost) {
    tl_combine combine = TL_ATTR(tl_index_attr, sig)->combine;
    const tl_shape *updates = &sig->in[2]->shape;
    int64_t bytes = tl_dtype_bytes(sig->out[0].dtype);
    if (combine == TL_COMBINE_ADD || combine == TL_COMBINE_MUL)
        cost->arithmetic = tl_amount_shape(sig->ctx, 1, updates);
    cost->written = tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, bytes, &sig->out[0].shape),
                                  tl_amount_shape(sig->ctx, bytes, updates));
    cost->written_set = true;
    if (combine == TL_COMBINE_REPLACE)
        return;                                             /* all inputs are read, once */
    cost->read = tl_amount_shape(sig->ctx, bytes, updates); /* what an update is combined with */
    for (int i = 0; i < sig->n_in; i++)
        cost->read = tl_amount_add(sig->ctx, cost->read,
                                   tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[i]->dtype), &sig->in[i]->shape));
    cost->read_set = true;
}

void tl_scatter_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = looks(TL_ATTR(tl_index_attr, sig)->combine) ? 7 : 2;
}

tl_status tl_scatter_forward(const tl_sig *sig, tl_args *args) {
    const tl_shape *x = &sig->in[0]->shape;
    tl_index_attr attr = tl_index_normal(TL_ATTR(tl_index_attr, sig), x->ndim);
    args->call.n_in = 1;
    tl_status status = tl_args_run(sig, args, args->kernels->copy);
    if (status != TL_OK)
        return status;
    args->call.attr = &attr;
    args->call.in[0] = args->call.in[1];
    args->call.in[1] = args->call.in[2];
    args->call.n_in = 2;
    return index_run(sig, args, args->kernels->scatter, &attr, x, &sig->in[1]->shape);
}

/* in: index, gradient, [data, updates: mul, max, min] → gradients of data and of the updates, both, as they are made
 * together: the combinations are undone from the last to the first. */
typedef struct scatter_backward_attr {
    tl_index_attr index; /* first: kernels read this much */
} scatter_backward_attr;

static tl_status scatter_backward_infer(tl_sig *sig) {
    const tl_index_attr *attr = &TL_ATTR(scatter_backward_attr, sig)->index;
    const tl_shape *full = &sig->in[1]->shape;
    tl_shape picked = {0};
    tl_status status;
    if ((status = tl_sig_want_float(sig, 1)) || (status = tl_sig_picked(sig, attr, full, 0, &picked)))
        return status;
    if (looks(attr->combine) && ((status = tl_sig_want_shape(sig, 2, full, "the data")) ||
                                 (status = tl_sig_want_shape(sig, 3, &picked, "the updates"))))
        return status;
    tl_sig_add(sig, sig->in[1]->dtype, full);
    tl_sig_add(sig, sig->in[1]->dtype, &picked);
    return TL_OK;
}

static void scatter_backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_combine combine = TL_ATTR(scatter_backward_attr, sig)->index.combine;
    int64_t bytes = tl_dtype_bytes(sig->out[0].dtype), passes = looks(combine) ? 2 : 1;
    /* mul: the forward product again, and two more. */
    if (combine == TL_COMBINE_MUL)
        cost->arithmetic = tl_amount_shape(sig->ctx, 3, &sig->out[1].shape);
    /* A pass copies x's side whole and then goes through what was picked, on both sides. The first of two passes finds what
     * the combinations met, which the second reads again; both read the index and the updates. */
    cost->written = tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, passes * bytes, &sig->out[0].shape),
                                  tl_amount_shape(sig->ctx, passes * 2 * bytes, &sig->out[1].shape));
    cost->read = tl_amount_shape(sig->ctx, passes == 2 ? 3 * bytes : bytes, &sig->out[1].shape);
    for (int i = 0; i < sig->n_in; i++) {
        int64_t each = tl_dtype_bytes(sig->in[i]->dtype) * (i == 0 || i == 3 ? passes : 1);
        cost->read = tl_amount_add(sig->ctx, cost->read, tl_amount_shape(sig->ctx, each, &sig->in[i]->shape));
    }
    cost->read_set = cost->written_set = true;
}

static tl_status scatter_backward_forward(const tl_sig *sig, tl_args *args) {
    const tl_index_attr *attr = &TL_ATTR(scatter_backward_attr, sig)->index;
    tl_array index = args->call.in[0], gradient = args->call.in[1], data = args->call.in[2], updates = args->call.in[3];
    bool look = looks(attr->combine);
    tl_status status = TL_OK;
    if (look) {
        args->call.in[0] = data;
        args->call.n_in = 1;
        args->kernels->copy(&args->call);
        args->call.in[0] = index;
        args->call.in[1] = updates;
        args->call.n_in = 2;
        args->call.attr = attr;
        status = index_run(sig, args, args->kernels->scatter_trace, attr, &sig->out[0].shape, &sig->in[0]->shape);
        if (status != TL_OK)
            return status;
    }
    args->call.in[0] = gradient;
    args->call.n_in = 1;
    args->kernels->copy(&args->call);
    args->call.in[0] = index;
    args->call.in[1] = updates;
    args->call.n_in = look ? 2 : 1;
    args->call.attr = attr;
    return index_run(sig, args, args->kernels->scatter_reverse, attr, &sig->out[0].shape, &sig->in[0]->shape);
}

static void scatter_backward_sample(uint64_t seed, tl_case *c) {
    tl_index_attr attr;
    tl_case forward;
    memset(&forward, 0, sizeof forward);
    tl_index_sample(&seed, &forward, (tl_index_kind)(1 + tl_sample_below(&seed, 2)), true);
    memcpy(&attr, forward.attr, sizeof attr);
    attr = tl_index_normal(&attr, forward.in[0].ndim);
    c->in[0] = forward.in[1];
    c->in[1] = c->in[2] = forward.in[0];
    c->in[3] = forward.in[2];
    c->n_in = looks(attr.combine) ? 4 : 2;
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 2;
    c->tolerance = 1e-6;
}

TL_OP(scatter_backward, sizeof(scatter_backward_attr), scatter_backward_infer, scatter_backward_cost, TL_SAVES_NONE,
      scatter_backward_forward, TL_NO_GRAD, scatter_backward_sample);

tl_status tl_scatter_grad(tl_ctx *ctx, const tl_saved *saved, const tl_op *gather, tl_tensor *const gout[],
                          tl_tensor *gin[]) {
    scatter_backward_attr back;
    memset(&back, 0, sizeof back);
    back.index = tl_index_normal(tl_saved_attr(saved), tl_saved_shape(saved, 0)->ndim);
    tl_tensor *in[] = {tl_saved_in(saved, 1), gout[0], tl_saved_in(saved, 0), tl_saved_in(saved, 2)}, *out[2];
    if (back.index.combine == TL_COMBINE_ADD) { /* what is added passes the gradient on as it is */
        if (tl_saved_needs(saved, 0))
            gin[0] = gout[0];
        if (tl_saved_needs(saved, 2))
            gin[2] = tl_run1(gather, (tl_tensor *[]){gout[0], in[0]}, 2, &back.index, saved->site);
        return tl_ctx_status(ctx);
    }
    tl_status status =
        tl_run(ctx, &tl_op_scatter_backward, in, looks(back.index.combine) ? 4 : 2, &back, out, 2, saved->site);
    for (int i = 0; i < 2; i++) {
        if (tl_saved_needs(saved, 2 * i))
            gin[2 * i] = out[i];
        else
            tl_release(out[i]);
    }
    return status;
}

/* ---- samples ---- */

void tl_index_sample(uint64_t *seed, tl_case *c, tl_index_kind kind, bool scatter) {
    int64_t size[3] = {1 + tl_sample_below(seed, 3), 1 + tl_sample_below(seed, 5), 1 + tl_sample_below(seed, 4)};
    int64_t index[3] = {size[0], size[1], size[2]}, picked[TL_MAX_NDIM], limit = size[0];
    tl_index_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.kind = kind;
    attr.axis = (int)tl_sample_below(seed, 6) - 3;
    attr.combine = scatter ? (tl_combine)tl_sample_below(seed, 5) : TL_COMBINE_REPLACE;
    int axis = tl_axis_normal(attr.axis, 3), index_ndim = 3, picked_ndim = 3;
    if (kind == TL_INDEX_ELEMENTS) {
        for (int d = 0; d < 3; d++)
            picked[d] = index[d] = d == axis ? tl_sample_below(seed, 7) : 1 + tl_sample_below(seed, size[d]);
        limit = size[axis];
    } else if (kind == TL_INDEX_AXIS) {
        index_ndim = (int)tl_sample_below(seed, 3);
        picked_ndim = 2 + index_ndim;
        limit = size[axis];
        for (int d = 0; d < index_ndim; d++)
            index[d] = tl_sample_below(seed, 4);
        for (int d = 0; d < picked_ndim; d++)
            picked[d] = d < axis ? size[d] : d < axis + index_ndim ? index[d - axis] : size[d - index_ndim + 1];
    } else {
        attr.axis = (int)tl_sample_below(seed, 2); /* shared axes */
        index_ndim = 2;
        index[0] = attr.axis ? size[0] : tl_sample_below(seed, 6);
        index[1] = 1 + tl_sample_below(seed, 3 - attr.axis);
        limit = 3;
        picked[0] = index[0];
        picked_ndim = 1;
        for (int d = attr.axis; d < 3; d++) {
            bool chosen = d < attr.axis + (int)index[1];
            limit = chosen && size[d] < limit ? size[d] : limit;
            if (!chosen)
                picked[picked_ndim++] = size[d];
        }
    }
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, tl_sample_below(seed, 2) ? TL_I64 : TL_I32, TL_FILL_INDEX, index_ndim, index);
    c->in[1].limit = limit;
    if (scatter)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, picked_ndim, picked);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = scatter ? 1e-6 : 0;
}
