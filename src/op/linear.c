/* x·wᵀ + bias: one product over all rows, the bias added where the product is stored. */
#include "op/linear.h"

/* Strides of axes of size 1 mean nothing: they are set as in a plain matrix. False: no product reads this. */
static bool settle(int64_t rows, int64_t columns, int64_t *row, int64_t *column) {
    if (columns <= 1)
        *column = 1;
    if (rows <= 1)
        *row = *column == 1 && columns > 1 ? columns : 1;
    return *row > 0 && *column > 0 && (*row == 1 || *column == 1);
}

/* The leading axes, merged wherever the strides of both x and the output allow. The last group is the product's rows, the
 * others are its batches. At most TL_MAX_NDIM − 1 axes lead, so that at most six are batches. */
typedef struct row_groups {
    int n;
    int64_t size[TL_MAX_NDIM], x[TL_MAX_NDIM], y[TL_MAX_NDIM];
} row_groups;

static void group_rows(int leading, const int64_t *size, const int64_t *x, const int64_t *y, row_groups *g) {
    g->n = 0;
    for (int i = 0; i < leading; i++) {
        int last = g->n - 1;
        if (size[i] == 1)
            continue;
        if (last >= 0 && g->x[last] == x[i] * size[i] && g->y[last] == y[i] * size[i]) {
            g->size[last] *= size[i];
        } else {
            last = g->n++;
            g->size[last] = size[i];
        }
        g->x[last] = x[i];
        g->y[last] = y[i];
    }
    if (g->n == 0) {
        g->n = 1;
        g->size[0] = 1;
        g->x[0] = g->y[0] = 0;
    }
}

static void groups_of(const tl_tensor *x, row_groups *g) {
    int64_t size[TL_MAX_NDIM], y[TL_MAX_NDIM];
    tl_shape leading = tl_shape_leading(&x->shape);
    tl_shape_contiguous(&leading, y);
    for (int i = 0; i < leading.ndim; i++)
        size[i] = leading.dim[i].size;
    group_rows(leading.ndim, size, x->stride, y, g);
}

bool tl_linear_reads(const tl_tensor *x) {
    row_groups g;
    groups_of(x, &g);
    int64_t row = g.x[g.n - 1], column = x->stride[x->shape.ndim - 1];
    return settle(g.size[g.n - 1], x->shape.dim[x->shape.ndim - 1].size, &row, &column);
}

static bool readable_weight(const tl_tensor *w) {
    if (w->shape.ndim != 2)
        return true; /* refused for its shape */
    int64_t row = w->stride[0], column = w->stride[1];
    return settle(w->shape.dim[0].size, w->shape.dim[1].size, &row, &column);
}

static tl_status linear_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 1)) || (status = tl_sig_want_float(sig, 0)) ||
        (status = tl_sig_want_same_dtype(sig)))
        return status;
    const tl_tensor *x = sig->in[0], *w = sig->in[1];
    char left[200], right[200];
    if (!tl_linear_reads(x) || !readable_weight(w))
        return tl_sig_fail(sig, TL_ERR_SHAPE,
                           "x is %s and the weight %s; one of the last two strides of each must be 1: copy it",
                           tl_tensor_text(x, left, sizeof left), tl_tensor_text(w, right, sizeof right));
    if (w->shape.ndim != 2 || !tl_dim_match(sig->ctx, x->shape.dim[x->shape.ndim - 1], w->shape.dim[1]))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "x is %s and the weight %s; a weight of [out, %lld] would work",
                           tl_tensor_text(x, left, sizeof left), tl_tensor_text(w, right, sizeof right),
                           (long long)x->shape.dim[x->shape.ndim - 1].size);
    if (sig->n_in > 2 && (status = tl_sig_want_vector(sig, 2, w->shape.dim[0], "the bias")))
        return status;
    tl_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = w->shape.dim[0];
    tl_sig_add(sig, x->dtype, &shape);
    return TL_OK;
}

void tl_linear_sizes(const tl_sig *sig, int64_t o, int64_t i, tl_cost *cost) {
    row_groups g;
    groups_of(sig->in[0], &g);
    cost->m = g.size[g.n - 1];
    cost->n = o;
    cost->k = i;
    cost->batch = 1;
    for (int at = 0; at < g.n - 1; at++)
        cost->batch *= g.size[at]; /* fits: x's element count was checked */
}

static void linear_cost(const tl_sig *sig, tl_cost *cost) {
    tl_dim rows = tl_rows_dim(sig->ctx, &sig->in[0]->shape), o = tl_in_dim(sig, 1, 0), i = tl_in_dim(sig, 1, 1);
    cost->matmul = TL_AMOUNT(sig->ctx, 2, rows, o, i);
    if (sig->n_in > 2)
        cost->arithmetic = TL_AMOUNT(sig->ctx, 1, rows, o);
    tl_linear_sizes(sig, o.size, i.size, cost);
}

static void linear_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = (sig->needs_grad[1] ? 1u : 0) | (sig->needs_grad[0] ? 2u : 0);
}

tl_status tl_linear_run(const tl_sig *sig, tl_args *args, const tl_array *w, const tl_array *bias) {
    const tl_array *x = &args->call.in[0], *y = &args->call.out[0];
    bool failed = false;
    row_groups g;
    group_rows(x->ndim - 1, x->size, x->stride, y->stride, &g);
    tl_product p = {.engine = args->call.engine, .dtype = y->dtype, .a = x->data, .b = w->data, .c = y->data};
    p.failed = &failed;
    p.m = g.size[g.n - 1];
    p.n = w->size[0];
    p.k = w->size[1];
    p.a_row = g.x[g.n - 1];
    p.a_col = x->stride[x->ndim - 1];
    settle(p.m, p.k, &p.a_row, &p.a_col);
    p.b_row = w->stride[1];
    p.b_col = w->stride[0];
    settle(p.n, p.k, &p.b_col, &p.b_row);
    p.c_row = p.m > 1 ? g.y[g.n - 1] : p.n;
    p.n_batch = g.n - 1;
    for (int i = 0; i < g.n - 1; i++) {
        p.batch[i] = g.size[i];
        p.a_batch[i] = g.x[i];
        p.c_batch[i] = g.y[i];
    }
    if (bias) {
        p.bias = bias->data;
        p.bias_stride = bias->stride[0];
    }
    args->kernels->product(&p);
    return failed ? tl_product_failed(sig) : TL_OK;
}

static tl_status linear_forward(const tl_sig *sig, tl_args *args) {
    return tl_linear_run(sig, args, &args->call.in[1], args->call.n_in > 2 ? &args->call.in[2] : NULL);
}

static tl_status linear_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const char *site = saved->site;
    const tl_shape *shape = tl_saved_shape(saved, 0);
    tl_tensor *g = gout[0];
    if (shape->ndim == 1 && g)
        g = tl_reshape_(g, TL_SHAPE(ctx, tl_dim_of(1), g->shape.dim[0]), site);
    g = tl_as_matrix(g, site);
    if (tl_saved_needs(saved, 0)) {
        tl_tensor *dx = tl_matmul_(g, tl_saved_in(saved, 1), site);
        gin[0] = shape->ndim == 2 ? dx : tl_view_(dx, *shape, site);
    }
    if (tl_saved_needs(saved, 1)) {
        tl_tensor *x = tl_saved_in(saved, 0), *into = tl_saved_into(saved, 1), *turned = tl_transpose_(g, 0, 1, site);
        if (shape->ndim == 1)
            x = tl_reshape_(x, TL_SHAPE(ctx, tl_dim_of(1), shape->dim[0]), site);
        x = tl_as_matrix(x, site);
        if (into)
            gin[1] = tl_matmul_into_(into, turned, x, TL_CAUSAL_NONE, site) ? into : NULL;
        else
            gin[1] = tl_matmul_(turned, x, site);
    }
    if (saved->n_in > 2 && tl_saved_needs(saved, 2))
        gin[2] = tl_sum_(g, (int[]){0}, 1, false, site);
    return tl_ctx_status(ctx);
}

static void linear_sample(uint64_t seed, tl_case *c) {
    int64_t o = 1 + tl_sample_below(&seed, 9), i = tl_sample_below(&seed, 9), rows = tl_sample_below(&seed, 17);
    int64_t b = 1 + tl_sample_below(&seed, 3);
    int form = (int)tl_sample_below(&seed, 4);
    if (form == 0)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, (int64_t[]){i});
    else if (form == 1)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){rows, i});
    else if (form == 2)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){b, rows, i});
    else
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, (int64_t[]){b, 1, rows, i});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){o, i});
    if (tl_sample_below(&seed, 2))
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, (int64_t[]){o});
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(linear, 0, linear_infer, linear_cost, linear_saves, linear_forward, linear_grad, linear_sample);

tl_tensor *tl_linear_(tl_tensor *x, tl_tensor *w, tl_tensor *bias, const char *site) {
    if (x && x->shape.ndim > 0 && !tl_linear_reads(x))
        x = tl_copy_(x, site);
    if (w && !readable_weight(w))
        w = tl_copy_(w, site);
    return tl_run1(&tl_op_linear, (tl_tensor *[]){x, w, bias}, bias ? 3 : 2, NULL, site);
}
