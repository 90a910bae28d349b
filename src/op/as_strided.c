/* Any view of a storage, checked against its bounds; and what adds a gradient of such a view into zeros, in order. */
#include "op/views.h"

#include <string.h>

typedef struct strided_attr {
    tl_shape shape; /* as_strided: of the view; as_strided_backward: of the whole */
    int64_t stride[TL_MAX_NDIM];
    int64_t offset; /* from the first element of as_strided's input, of as_strided_backward's output */
} strided_attr;

/* The lowest and highest element of a view; false on overflow. The shape has elements. */
static bool strided_range(const tl_shape *shape, const int64_t *stride, int64_t offset, int64_t *low, int64_t *high) {
    *low = *high = offset;
    for (int i = 0; i < shape->ndim; i++) {
        int64_t reach, *end = stride[i] < 0 ? low : high;
        if (!tl_mul_i64(stride[i], shape->dim[i].size - 1, &reach) || !tl_add_i64(*end, reach, end))
            return false;
    }
    return true;
}

static tl_status strided_infer(tl_sig *sig) {
    const strided_attr *attr = TL_ATTR(strided_attr, sig);
    const tl_tensor *t = sig->in[0];
    tl_shape shape = attr->shape;
    char text[200], view[160];
    int64_t low = 0, high = 0, first = 0, count, own;
    tl_status status = tl_sig_check_shape(sig, &shape);
    if (status != TL_OK)
        return status;
    if (sig->needs_grad[0] && !tl_tensor_is_contiguous(t))
        return tl_sig_fail(sig, TL_ERR_UNSUPPORTED, "%s needs a gradient and is not contiguous; tl_contiguous first",
                           tl_tensor_text(t, text, sizeof text));
    tl_shape_count(&shape, &count);
    if (count == 0) {
        tl_sig_add_view(sig, &shape, attr->stride, t->offset);
        return TL_OK;
    }
    int64_t held = t->storage->bytes / tl_dtype_bytes(t->dtype);
    if (!tl_add_i64(t->offset, attr->offset, &first) || !strided_range(&shape, attr->stride, first, &low, &high) ||
        low < 0 || high >= held)
        return tl_sig_fail(sig, TL_ERR_SHAPE,
                           "%s from offset %lld would reach elements %lld to %lld; the storage of %s holds %lld",
                           tl_shape_text(&shape, view, sizeof view), (long long)first, (long long)low, (long long)high,
                           tl_tensor_text(t, text, sizeof text), (long long)held);
    tl_shape_count(&t->shape, &own);
    if (sig->needs_grad[0] && (low < t->offset || high - t->offset >= own))
        return tl_sig_fail(sig, TL_ERR_UNSUPPORTED,
                           "elements %lld to %lld are not all of %s, so that a gradient would have nowhere to go",
                           (long long)low, (long long)high, tl_tensor_text(t, text, sizeof text));
    tl_sig_add_view(sig, &shape, attr->stride, first);
    return TL_OK;
}

static tl_status back_infer(tl_sig *sig) {
    const strided_attr *attr = TL_ATTR(strided_attr, sig);
    const tl_tensor *g = sig->in[0];
    char text[200], full[160];
    int64_t low = 0, high = 0, own;
    tl_status status = tl_sig_want_float(sig, 0);
    if (status != TL_OK)
        return status;
    bool inside = tl_shape_count(&attr->shape, &own);
    if (inside && tl_tensor_count(g) > 0)
        inside = strided_range(&g->shape, attr->stride, attr->offset, &low, &high) && low >= 0 && high < own;
    if (!inside)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s is no view of %s from offset %lld",
                           tl_tensor_text(g, text, sizeof text), tl_shape_text(&attr->shape, full, sizeof full),
                           (long long)attr->offset);
    tl_sig_add(sig, g->dtype, &attr->shape);
    return TL_OK;
}

/* Zeros everywhere; then each element of the gradient is added to one of them, which is read and written again. */
static void back_cost(const tl_sig *sig, tl_cost *cost) {
    int64_t bytes = tl_dtype_bytes(sig->out[0].dtype);
    tl_amount added = tl_amount_shape(sig->ctx, bytes, &sig->in[0]->shape);
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
    cost->read = tl_amount_add(sig->ctx, added, added);
    cost->written = tl_amount_add(sig->ctx, tl_amount_shape(sig->ctx, bytes, &sig->out[0].shape), added);
    cost->read_set = cost->written_set = true;
}

/* Axes (a mask) of which no two indices meet in one element; among those the most elements: one call of a kernel adds
 * them, in any order. The other axes are walked in order. */
static unsigned distinct_axes(const tl_array *g, const int64_t *stride) {
    unsigned best = 0;
    double most = 1;
    for (unsigned mask = 1; mask < 1u << g->ndim; mask++) {
        tl_tensor view = {.shape = {.ndim = 0}};
        double elements = 1;
        for (int i = 0; i < g->ndim; i++)
            if (mask >> i & 1u) {
                view.shape.dim[view.shape.ndim].size = g->size[i];
                view.stride[view.shape.ndim++] = stride[i];
                elements *= (double)g->size[i];
            }
        if (elements > most && !tl_tensor_overlaps_itself(&view)) {
            most = elements;
            best = mask;
        }
    }
    return best;
}

static void add_views(tl_args *args, const tl_array *g, const tl_array *whole, const int64_t *stride, unsigned inner) {
    tl_array from = *g, to = *whole;
    int64_t index[TL_MAX_NDIM] = {0};
    int outer[TL_MAX_NDIM], n = 0, bytes = tl_dtype_bytes(g->dtype);
    from.ndim = to.ndim = 0;
    for (int i = 0; i < g->ndim; i++)
        if (inner >> i & 1u) {
            from.size[from.ndim] = to.size[to.ndim] = g->size[i];
            from.stride[from.ndim++] = g->stride[i];
            to.stride[to.ndim++] = stride[i];
        } else
            outer[n++] = i;
    tl_kcall *call = &args->call;
    call->n_in = 2;
    for (int at = n; at >= 0;) {
        call->in[0] = call->out[0] = to;
        call->in[1] = from;
        for (int i = 0; i < n; i++) {
            call->in[1].data += index[i] * g->stride[outer[i]] * bytes;
            call->in[0].data += index[i] * stride[outer[i]] * bytes;
        }
        call->out[0].data = call->in[0].data;
        args->kernels->add(call);
        for (at = n - 1; at >= 0 && ++index[at] == g->size[outer[at]]; at--)
            index[at] = 0;
    }
}

static tl_status back_forward(const tl_sig *sig, tl_args *args) {
    const strided_attr *attr = TL_ATTR(strided_attr, sig);
    tl_array g = args->call.in[0], whole = args->call.out[0];
    tl_fill_attr zero = {0};
    args->call.attr = &zero;
    args->kernels->fill(&args->call);
    args->call.attr = NULL;
    for (int i = 0; i < g.ndim; i++)
        if (g.size[i] == 0)
            return TL_OK;
    whole.data += attr->offset * tl_dtype_bytes(whole.dtype);
    add_views(args, &g, &whole, attr->stride, distinct_axes(&g, attr->stride));
    return TL_OK;
}

/* A view with overlaps, gaps and negative steps of `size` elements. */
static void sample_view(uint64_t *seed, int64_t size, tl_shape *shape, int64_t *stride, int64_t *offset) {
    int64_t low = 0, high = 0;
    shape->ndim = (int)tl_sample_below(seed, 4);
    for (int i = 0; i < shape->ndim; i++) {
        stride[i] = tl_sample_below(seed, 7) - 3;
        shape->dim[i] = tl_dim_of(1 + tl_sample_below(seed, 4));
        int64_t *end = stride[i] < 0 ? &low : &high;
        while (shape->dim[i].size > 1 &&
               high - low + (stride[i] < 0 ? -stride[i] : stride[i]) * (shape->dim[i].size - 1) >= size)
            shape->dim[i].size--;
        *end += stride[i] * (shape->dim[i].size - 1);
    }
    *offset = -low + tl_sample_below(seed, size - (high - low));
    if (shape->ndim > 0 && tl_sample_below(seed, 8) == 0)
        shape->dim[0].size = 0;
}

static void back_sample(uint64_t seed, tl_case *c) {
    strided_attr attr;
    tl_shape view = {0};
    int64_t size[TL_MAX_NDIM];
    memset(&attr, 0, sizeof attr);
    attr.shape.ndim = 2;
    attr.shape.dim[0] = tl_dim_of(1 + tl_sample_below(&seed, 4));
    attr.shape.dim[1] = tl_dim_of(1 + tl_sample_below(&seed, 5));
    sample_view(&seed, attr.shape.dim[0].size * attr.shape.dim[1].size, &view, attr.stride, &attr.offset);
    for (int i = 0; i < view.ndim; i++)
        size[i] = view.dim[i].size;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, view.ndim, size);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(as_strided_backward, sizeof(strided_attr), back_infer, back_cost, TL_SAVES_NONE, back_forward, TL_NO_GRAD,
      back_sample);

tl_tensor *tl_strided_gradient(tl_tensor *g, const tl_shape *full, const int64_t *stride, int64_t offset,
                               const char *site) {
    strided_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape = *full;
    attr.offset = offset;
    for (int i = 0; g && i < g->shape.ndim; i++)
        attr.stride[i] = stride[i];
    return tl_run1(&tl_op_as_strided_backward, (tl_tensor *[]){g}, 1, &attr, site);
}

/* The input was contiguous, so that its elements lie in the storage as in its gradient. */
static tl_status strided_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const strided_attr *attr = tl_saved_attr(saved);
    gin[0] = tl_strided_gradient(gout[0], tl_saved_shape(saved, 0), attr->stride, attr->offset, saved->site);
    return tl_ctx_status(ctx);
}

static void strided_sample(uint64_t seed, tl_case *c) {
    strided_attr attr;
    memset(&attr, 0, sizeof attr);
    int64_t size[] = {1 + tl_sample_below(&seed, 4), 1 + tl_sample_below(&seed, 5)};
    sample_view(&seed, size[0] * size[1], &attr.shape, attr.stride, &attr.offset);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, size);
    c->in[0].fixed_layout = true; /* it sees the storage, not the layout */
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(as_strided, sizeof(strided_attr), strided_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, strided_grad,
      strided_sample);

tl_tensor *tl_as_strided_(tl_tensor *x, tl_shape shape, const int64_t *strides, int64_t offset, const char *site) {
    strided_attr attr;
    memset(&attr, 0, sizeof attr);
    if (x && !tl_add_i64(offset, -x->offset, &attr.offset)) {
        tl_ctx_fail(x->ctx, TL_ERR_SHAPE, "as_strided (%s): offset %lld lies before the storage", site,
                    (long long)offset);
        return NULL;
    }
    attr.shape = shape;
    for (int i = 0; i < shape.ndim && i < TL_MAX_NDIM; i++)
        attr.stride[i] = strides[i];
    return tl_run1(&tl_op_as_strided, (tl_tensor *[]){x}, 1, &attr, site);
}
