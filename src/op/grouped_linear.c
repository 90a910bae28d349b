/* Rows of experts times their own weights: a product for each expert, of as many rows as it has. Whatever the routing, the
 * rows add up to m, and so do the FLOPs. Backward is grouped too: dx by the weights the other way round, dw by the rows' outer
 * products, the bias's by their sums. */
#include "op/moe.h"

#include <string.h>

typedef struct grouped_attr {
    bool transposed; /* weights are [E, in, out] */
} grouped_attr;

tl_status tl_moe_want_offsets(tl_sig *sig, int input, tl_dim n_expert) {
    tl_dim more = tl_dim_add(sig->ctx, tl_dim_fixed(sig->ctx, n_expert), tl_dim_fixed(sig->ctx, tl_dim_of(1)));
    tl_status status = tl_sig_want_index(sig, input, "the offsets");
    return status ? status : tl_sig_want_vector(sig, input, more, "the tensor of offsets");
}

tl_dim tl_moe_offsets_workspace(const tl_sig *sig, int input) {
    return tl_dim_mul(sig->ctx, tl_dim_fixed(sig->ctx, tl_dim_of(8)), tl_in_dim(sig, input, 0));
}

tl_status tl_moe_read_offsets(const tl_sig *sig, tl_args *args, int input, int64_t rows, const int64_t **offsets) {
    const tl_array *from = &args->call.in[input];
    int64_t n = from->size[0], *to = args->call.work;
    tl_kcall copy = {
        .engine = args->call.engine, .n_in = 1, .n_out = 1, .work = to, .work_bytes = args->call.work_bytes};
    copy.in[0] = *from;
    copy.out[0] = (tl_array){.data = (char *)to, .dtype = TL_I64, .ndim = 1, .size = {n}, .stride = {1}};
    args->kernels->copy(&copy);
    for (int64_t e = 0; e < n; e++) {
        int64_t least = e == 0 ? 0 : to[e - 1], most = e == 0 ? 0 : rows;
        if (to[e] < least || to[e] > most || (e == n - 1 && to[e] != rows))
            return tl_ctx_fail(sig->ctx, TL_ERR_ARGUMENT,
                               "%s (%s): offset %lld is %lld; offsets that rise from 0 to the %lld rows would work",
                               sig->op->name, sig->site, (long long)e, (long long)to[e], (long long)rows);
    }
    *offsets = to;
    return TL_OK;
}

void tl_moe_even_load(tl_cost *cost, int64_t m, int64_t n, int64_t k, int64_t n_expert) {
    cost->m = m / n_expert + (m % n_expert != 0);
    cost->n = n;
    cost->k = k;
    cost->batch = n_expert;
}

char *tl_moe_rows_from(const tl_array *a, int64_t row) {
    return a->data ? a->data + row * a->stride[0] * tl_dtype_bytes(a->dtype) : a->data;
}

/* ---- x·wᵀ + bias; in: x, w, offsets, [bias] ---- */

static tl_status grouped_linear_infer(tl_sig *sig) {
    bool transposed = TL_ATTR(grouped_attr, sig)->transposed;
    const tl_tensor *x = sig->in[0], *w = sig->in[1], *bias = sig->n_in > 3 ? sig->in[3] : NULL;
    char left[200], right[200];
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = tl_sig_want_ndim(sig, 0, 2)) ||
        (status = tl_sig_want_ndim(sig, 1, 2)) || (status = tl_sig_want_readable(sig, 0)) ||
        (status = tl_sig_want_readable(sig, 1)))
        return status;
    if (w->dtype != x->dtype || (bias && bias->dtype != x->dtype))
        return tl_sig_fail(sig, TL_ERR_DTYPE, "x is %s, the weights %s%s%s; one format would work",
                           tl_dtype_name(x->dtype), tl_dtype_name(w->dtype), bias ? ", the bias " : "",
                           bias ? tl_dtype_name(bias->dtype) : "");
    if (x->shape.ndim != 2 || w->shape.ndim != 3 ||
        !tl_dim_match(sig->ctx, x->shape.dim[1], w->shape.dim[transposed ? 1 : 2]) || w->shape.dim[0].size < 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "x is %s and the weights %s; [rows, in] and [experts, %s] would work",
                           tl_tensor_text(x, left, sizeof left), tl_tensor_text(w, right, sizeof right),
                           transposed ? "in, out" : "out, in");
    tl_dim out = w->shape.dim[transposed ? 2 : 1];
    if ((status = tl_moe_want_offsets(sig, 2, w->shape.dim[0])))
        return status;
    tl_shape bias_shape = {.ndim = 2, .dim = {w->shape.dim[0], out}};
    if (bias && (status = tl_sig_want_shape(sig, 3, &bias_shape, "the bias")))
        return status;
    tl_shape shape = {.ndim = 2, .dim = {x->shape.dim[0], out}};
    if ((status = tl_sig_check_shape(sig, &shape)) == TL_OK)
        tl_sig_add(sig, x->dtype, &shape);
    return status;
}

static void grouped_linear_cost(const tl_sig *sig, tl_cost *cost) {
    tl_dim rows = tl_in_dim(sig, 0, 0), in = tl_in_dim(sig, 0, 1), out = sig->out[0].shape.dim[1];
    cost->matmul = TL_AMOUNT(sig->ctx, 2, rows, in, out);
    if (sig->n_in > 3)
        cost->arithmetic = TL_AMOUNT(sig->ctx, 1, rows, out);
    cost->workspace = tl_moe_offsets_workspace(sig, 2);
    tl_moe_even_load(cost, rows.size, out.size, in.size, tl_in_dim(sig, 1, 0).size);
}

static void grouped_linear_saves(const tl_sig *sig, tl_saves *saves) {
    bool bias = sig->n_in > 3 && sig->needs_grad[3];
    saves->in = (sig->needs_grad[1] ? 1u : 0) | (sig->needs_grad[0] ? 2u : 0) |
                (sig->needs_grad[0] || sig->needs_grad[1] || bias ? 4u : 0);
}

static tl_status grouped_linear_forward(const tl_sig *sig, tl_args *args) {
    const tl_array *x = &args->call.in[0], *w = &args->call.in[1], *y = &args->call.out[0];
    const tl_array *bias = args->call.n_in > 3 ? &args->call.in[3] : NULL;
    int in = TL_ATTR(grouped_attr, sig)->transposed ? 1 : 2, out = 3 - in;
    const int64_t *offsets;
    bool failed = false;
    tl_status status = tl_moe_read_offsets(sig, args, 2, x->size[0], &offsets);
    tl_product p = {.engine = args->call.engine, .dtype = y->dtype, .failed = &failed};
    p.n = w->size[out];
    p.k = w->size[in];
    p.a_row = x->stride[0];
    p.a_col = x->stride[1];
    p.b_row = w->stride[in];
    p.b_col = w->stride[out];
    p.c_row = y->stride[0];
    /* Experts without rows too: their weights count as read, since no plan can know which they are. */
    for (int64_t e = 0; status == TL_OK && !failed && e < w->size[0]; e++) {
        p.m = offsets[e + 1] - offsets[e];
        p.a = tl_moe_rows_from(x, offsets[e]);
        p.b = tl_moe_rows_from(w, e);
        p.c = tl_moe_rows_from(y, offsets[e]);
        if (bias) {
            p.bias = tl_moe_rows_from(bias, e);
            p.bias_stride = bias->stride[1];
        }
        args->kernels->product(&p);
    }
    return failed ? tl_product_failed(sig) : status;
}

/* ---- a[m,P], b[m,Q] → [E,P,Q], expert e's aᵀ·b; into: added to what is there. in: [c], a, b, offsets ---- */

typedef struct outer_attr {
    tl_dim n_expert;
} outer_attr;

static tl_status infer_outer(tl_sig *sig, int a, tl_dim n_expert, tl_shape *shape) {
    char left[200], right[200];
    const tl_tensor *x = sig->in[a], *y = sig->in[a + 1];
    tl_status status;
    for (int i = a; i < a + 2; i++)
        if ((status = tl_sig_want_float(sig, i)) || (status = tl_sig_want_ndim(sig, i, 2)) ||
            (status = tl_sig_want_readable(sig, i)))
            return status;
    if (x->shape.ndim != 2 || y->shape.ndim != 2 || x->dtype != y->dtype ||
        !tl_dim_match(sig->ctx, x->shape.dim[0], y->shape.dim[0]) || n_expert.size < 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s and %s for %lld experts; matrices of as many rows would work",
                           tl_tensor_text(x, left, sizeof left), tl_tensor_text(y, right, sizeof right),
                           (long long)n_expert.size);
    if ((status = tl_moe_want_offsets(sig, a + 2, n_expert)))
        return status;
    *shape = (tl_shape){.ndim = 3, .dim = {n_expert, x->shape.dim[1], y->shape.dim[1]}};
    return tl_sig_check_shape(sig, shape);
}

static tl_status outer_infer(tl_sig *sig) {
    tl_shape shape = {0};
    tl_status status = infer_outer(sig, 0, TL_ATTR(outer_attr, sig)->n_expert, &shape);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &shape);
    return status;
}

static void cost_outer(const tl_sig *sig, int a, tl_cost *cost) {
    tl_dim rows = tl_in_dim(sig, a, 0), p = tl_in_dim(sig, a, 1), q = tl_in_dim(sig, a + 1, 1);
    cost->matmul = TL_AMOUNT(sig->ctx, 2, rows, p, q);
    cost->workspace = tl_moe_offsets_workspace(sig, a + 2);
    int64_t n_expert = sig->out[0].shape.dim[0].size;
    tl_moe_even_load(cost, rows.size, q.size, p.size, n_expert);
    int64_t share = cost->m;
    cost->m = p.size;
    cost->k = share;
}

static void outer_cost(const tl_sig *sig, tl_cost *cost) { cost_outer(sig, 0, cost); }

static tl_status run_outer(const tl_sig *sig, tl_args *args, int a, bool accumulate) {
    const tl_array *x = &args->call.in[a], *y = &args->call.in[a + 1], *c = &args->call.out[0];
    const int64_t *offsets;
    bool failed = false;
    tl_status status = tl_moe_read_offsets(sig, args, a + 2, x->size[0], &offsets);
    tl_product p = {.engine = args->call.engine, .dtype = c->dtype, .accumulate = accumulate, .failed = &failed};
    p.m = x->size[1];
    p.n = y->size[1];
    p.a_row = x->stride[1];
    p.a_col = x->stride[0];
    p.b_row = y->stride[0];
    p.b_col = y->stride[1];
    p.c_row = c->stride[1];
    for (int64_t e = 0; status == TL_OK && !failed && e < c->size[0]; e++) {
        p.k = offsets[e + 1] - offsets[e];
        p.a = tl_moe_rows_from(x, offsets[e]);
        p.b = tl_moe_rows_from(y, offsets[e]);
        p.c = tl_moe_rows_from(c, e);
        args->kernels->product(&p); /* of no rows: zeros */
    }
    return failed ? tl_product_failed(sig) : status;
}

static tl_status outer_forward(const tl_sig *sig, tl_args *args) { return run_outer(sig, args, 0, false); }

void tl_moe_sample_offsets(tl_case *c, int64_t n_expert, int64_t rows) {
    int64_t size = n_expert + 1;
    tl_sample_input(c, TL_I32, TL_FILL_OFFSETS, 1, &size);
    c->in[c->n_in - 1].limit = rows;
    c->in[c->n_in - 1].fixed_layout = true;
}

static void sample_outer(uint64_t *seed, tl_case *c, bool into) {
    int64_t n_expert = 1 + tl_sample_below(seed, 4), rows = tl_sample_below(seed, 17);
    int64_t p = 1 + tl_sample_below(seed, 9), q = 1 + tl_sample_below(seed, 9);
    outer_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert.size = n_expert;
    if (into) {
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){n_expert, p, q});
        c->in[0].fixed_layout = c->in_place = true;
    }
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){rows, p});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){rows, q});
    tl_moe_sample_offsets(c, n_expert, rows);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

static void outer_sample(uint64_t seed, tl_case *c) { sample_outer(&seed, c, false); }

TL_OP(grouped_outer, sizeof(outer_attr), outer_infer, outer_cost, TL_SAVES_NONE, outer_forward, TL_NO_GRAD,
      outer_sample);

static tl_status outer_into_infer(tl_sig *sig) {
    tl_shape shape = {0};
    char left[200], right[200];
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, 0, 3)) || (status = infer_outer(sig, 1, sig->in[0]->shape.dim[0], &shape)))
        return status;
    if (!tl_shape_equal(&shape, &sig->in[0]->shape) || sig->in[0]->dtype != sig->in[1]->dtype ||
        (shape.dim[2].size > 1 && sig->in[0]->stride[2] != 1))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the products are %s but are to be added into %s",
                           tl_shape_text(&shape, left, sizeof left), tl_tensor_text(sig->in[0], right, sizeof right));
    tl_output *out = tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    out->alias = 0;
    out->in_place = true;
    return TL_OK;
}

static void outer_into_cost(const tl_sig *sig, tl_cost *cost) {
    cost_outer(sig, 1, cost);
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->out[0].shape); /* the addition into c */
}

static tl_status outer_into_forward(const tl_sig *sig, tl_args *args) { return run_outer(sig, args, 1, true); }

static void outer_into_sample(uint64_t seed, tl_case *c) { sample_outer(&seed, c, true); }

TL_OP(grouped_outer_into, sizeof(outer_attr), outer_into_infer, outer_into_cost, TL_SAVES_NONE, outer_into_forward,
      TL_NO_GRAD, outer_into_sample);

/* ---- g[m,F] → [E,F], the sum of each expert's rows. in: g, offsets ---- */

static tl_status grouped_sum_infer(tl_sig *sig) {
    tl_dim n_expert = TL_ATTR(outer_attr, sig)->n_expert;
    char text[200];
    tl_status status = tl_sig_want_float(sig, 0);
    if (status != TL_OK)
        return status;
    if (sig->in[0]->shape.ndim != 2 || n_expert.size < 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s for %lld experts; [rows, width] would work",
                           tl_tensor_text(sig->in[0], text, sizeof text), (long long)n_expert.size);
    tl_shape shape = {.ndim = 2, .dim = {n_expert, tl_in_dim(sig, 0, 1)}};
    if ((status = tl_moe_want_offsets(sig, 1, n_expert)) || (status = tl_sig_check_shape(sig, &shape)))
        return status;
    tl_sig_add(sig, sig->in[0]->dtype, &shape);
    return TL_OK;
}

static void grouped_sum_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
    cost->workspace = tl_moe_offsets_workspace(sig, 1);
}

static tl_status grouped_sum_forward(const tl_sig *sig, tl_args *args) {
    const tl_array *g = &args->call.in[0], *sums = &args->call.out[0];
    const int64_t *offsets;
    tl_status status = tl_moe_read_offsets(sig, args, 1, g->size[0], &offsets);
    tl_kcall one = {.engine = args->call.engine, .n_in = 1, .n_out = 1};
    for (int64_t e = 0; status == TL_OK && e < sums->size[0]; e++) {
        one.in[0] = *g;
        one.in[0].data = tl_moe_rows_from(g, offsets[e]);
        one.in[0].size[0] = offsets[e + 1] - offsets[e];
        one.out[0] = *sums;
        one.out[0].data = tl_moe_rows_from(sums, e);
        one.out[0].size[0] = 1;
        args->kernels->sum(&one);
    }
    return status;
}

static void grouped_sum_sample(uint64_t seed, tl_case *c) {
    int64_t n_expert = 1 + tl_sample_below(&seed, 4), rows = tl_sample_below(&seed, 17);
    outer_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert.size = n_expert;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){rows, 1 + tl_sample_below(&seed, 20)});
    tl_moe_sample_offsets(c, n_expert, rows);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(grouped_sum, sizeof(outer_attr), grouped_sum_infer, grouped_sum_cost, TL_SAVES_NONE, grouped_sum_forward,
      TL_NO_GRAD, grouped_sum_sample);

tl_tensor *tl_grouped_sum_(tl_tensor *g, tl_tensor *offsets, tl_dim n_expert, const char *site) {
    outer_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert = n_expert;
    return tl_run1(&tl_op_grouped_sum, (tl_tensor *[]){g, offsets}, 2, &attr, site);
}

/* ---- backward ---- */

/* What a product cannot read is copied, and the ledger shows the copy. */
static tl_tensor *readable(tl_tensor *x, const char *site) {
    return !x || x->shape.ndim < 2 || tl_is_readable_matrix(x) ? x : tl_copy_(x, site);
}

static tl_status grouped_linear_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    bool transposed = ((const grouped_attr *)tl_saved_attr(saved))->transposed;
    tl_tensor *g = readable(gout[0], saved->site), *offsets = tl_saved_in(saved, 2);
    outer_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.n_expert = tl_saved_shape(saved, 1)->dim[0];
    if (tl_saved_needs(saved, 0))
        gin[0] = tl_grouped_linear_(g, tl_saved_in(saved, 1), NULL, offsets, !transposed, saved->site);
    if (tl_saved_needs(saved, 1)) {
        tl_tensor *x = tl_saved_in(saved, 0), *into = tl_saved_into(saved, 1);
        tl_tensor *a = transposed ? x : g, *b = transposed ? g : x;
        if (into)
            gin[1] = tl_run1(&tl_op_grouped_outer_into, (tl_tensor *[]){into, a, b, offsets}, 4, &attr, saved->site)
                         ? into
                         : NULL;
        else
            gin[1] = tl_run1(&tl_op_grouped_outer, (tl_tensor *[]){a, b, offsets}, 3, &attr, saved->site);
    }
    if (saved->n_in > 3 && tl_saved_needs(saved, 3))
        gin[3] = tl_grouped_sum_(g, offsets, attr.n_expert, saved->site);
    return tl_ctx_status(ctx);
}

static void grouped_linear_sample(uint64_t seed, tl_case *c) {
    int64_t n_expert = 1 + tl_sample_below(&seed, 4), rows = tl_sample_below(&seed, 17);
    int64_t in = tl_sample_below(&seed, 9), out = 1 + tl_sample_below(&seed, 9);
    grouped_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.transposed = tl_sample_below(&seed, 2);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){rows, in});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3,
                    (int64_t[]){n_expert, attr.transposed ? in : out, attr.transposed ? out : in});
    tl_moe_sample_offsets(c, n_expert, rows);
    if (tl_sample_below(&seed, 2))
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){n_expert, out});
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(grouped_linear, sizeof(grouped_attr), grouped_linear_infer, grouped_linear_cost, grouped_linear_saves,
      grouped_linear_forward, grouped_linear_grad, grouped_linear_sample);

tl_tensor *tl_grouped_linear_(tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_tensor *offsets, bool transposed,
                              const char *site) {
    grouped_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.transposed = transposed;
    return tl_run1(&tl_op_grouped_linear, (tl_tensor *[]){readable(x, site), readable(w, site), offsets, bias},
                   bias ? 4 : 3, &attr, site);
}
