/* Products: [… m,k] · [… k,n] → [… m,n], leading axes broadcast, transposed views read as they lie. */
#include "op/core.h"

#include <string.h>

typedef struct matmul_attr {
    tl_causal causal; /* which two of m, n, k are a causal square: counted, not skipped */
} matmul_attr;

static tl_status infer_at(tl_sig *sig, int a, int b, tl_shape *shape) {
    const tl_shape *x = &sig->in[a]->shape, *y = &sig->in[b]->shape;
    char left[200], right[200];
    tl_status status;
    if ((status = tl_sig_want_ndim(sig, a, 2)) || (status = tl_sig_want_ndim(sig, b, 2)) ||
        (status = tl_sig_want_float(sig, a)) || (status = tl_sig_want_same_dtype(sig)) ||
        (status = tl_sig_want_readable(sig, a)) || (status = tl_sig_want_readable(sig, b)))
        return status;
    tl_dim ka = x->dim[x->ndim - 1], kb = y->dim[y->ndim - 2];
    if (!tl_dim_match(sig->ctx, ka, kb))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s times %s: the inner sizes %lld and %lld differ",
                           tl_tensor_text(sig->in[a], left, sizeof left),
                           tl_tensor_text(sig->in[b], right, sizeof right), (long long)ka.size, (long long)kb.size);
    int ndim = x->ndim > y->ndim ? x->ndim : y->ndim;
    shape->ndim = ndim;
    for (int i = 3; i <= ndim; i++) {
        tl_dim p = i <= x->ndim ? x->dim[x->ndim - i] : tl_dim_of(1),
               q = i <= y->ndim ? y->dim[y->ndim - i] : tl_dim_of(1);
        if (p.size != 1 && q.size != 1 && !tl_dim_match(sig->ctx, p, q))
            return tl_sig_fail(sig, TL_ERR_SHAPE, "%s times %s: leading sizes %lld and %lld do not broadcast",
                               tl_tensor_text(sig->in[a], left, sizeof left),
                               tl_tensor_text(sig->in[b], right, sizeof right), (long long)p.size, (long long)q.size);
        shape->dim[ndim - i] = tl_dim_fixed(sig->ctx, p.size == 1 ? q : p);
    }
    shape->dim[ndim - 2] = x->dim[x->ndim - 2];
    shape->dim[ndim - 1] = y->dim[y->ndim - 1];
    return TL_OK;
}

static tl_status matmul_infer(tl_sig *sig) {
    tl_shape shape;
    tl_status status = infer_at(sig, 0, 1, &shape);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &shape);
    return status;
}

/* T(2·T' − T + 1)/2 of T·T' pairs are below the diagonal that ends in the corner; with more rows than columns the first
 * T − T' rows see nothing, and the rest is a square: T'(T' + 1)/2. */
static tl_amount causal_count(tl_ctx *ctx, tl_dim rows, tl_dim columns, const tl_dim *rest, int n) {
    if (rows.size > columns.size)
        rows = columns;
    tl_dim twice = tl_dim_mul(ctx, tl_dim_of(2), columns);
    tl_dim reach = {.size = twice.size - rows.size + 1};
    if (ctx->space)
        reach.formula = tl_poly_add(ctx->space, tl_poly_sub(ctx->space, twice.formula, tl_dim_fixed(ctx, rows).formula),
                                    tl_poly_constant(ctx->space, 1));
    tl_dim dims[TL_MAX_NDIM + 2];
    int count = 0;
    dims[count++] = rows;
    dims[count++] = reach;
    for (int i = 0; i < n; i++)
        dims[count++] = rest[i];
    return tl_amount_of(ctx, 1, dims, count); /* 2 FLOPs × rows·reach/2 pairs × rest */
}

static void cost_of(const tl_sig *sig, const tl_shape *c, tl_dim k, tl_cost *cost) {
    const matmul_attr *attr = TL_ATTR(matmul_attr, sig);
    tl_dim m = c->dim[c->ndim - 2], n = c->dim[c->ndim - 1], dims[TL_MAX_NDIM + 1];
    int count = 0;
    int64_t batch = 1;
    for (int i = 0; i < c->ndim - 2; i++) {
        batch *= c->dim[i].size; /* fits: the output's element count was checked */
        dims[count++] = c->dim[i];
    }
    int leading = count;
    dims[count++] = m;
    dims[count++] = n;
    dims[count++] = k;
    cost->matmul = tl_amount_of(sig->ctx, 2, dims, count);
    cost->m = m.size;
    cost->n = n.size;
    cost->k = k.size;
    cost->batch = batch;
    if (attr->causal == TL_CAUSAL_NONE)
        return;
    tl_dim rows = attr->causal == TL_CAUSAL_KN ? k : m, columns = attr->causal == TL_CAUSAL_MK ? k : n;
    dims[leading] = attr->causal == TL_CAUSAL_MN ? k : attr->causal == TL_CAUSAL_MK ? n : m;
    cost->matmul_causal = causal_count(sig->ctx, rows, columns, dims, leading + 1);
    cost->causal_set = true;
}

static void matmul_cost(const tl_sig *sig, tl_cost *cost) {
    cost_of(sig, &sig->out[0].shape, tl_in_dim(sig, 0, -1), cost);
}

static void matmul_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = (sig->needs_grad[1] ? 1u : 0) | (sig->needs_grad[0] ? 2u : 0);
}

static tl_status run_product(const tl_sig *sig, tl_args *args, int a, int b, bool accumulate) {
    bool failed = false;
    tl_array x = args->call.in[a], y = args->call.in[b];
    const tl_array *c = &args->call.out[0];
    tl_product p = {.engine = args->call.engine, .dtype = c->dtype, .accumulate = accumulate, .failed = &failed};
    int nc = c->ndim;
    p.m = c->size[nc - 2];
    p.n = c->size[nc - 1];
    p.k = x.size[x.ndim - 1];
    p.a = x.data;
    p.b = y.data;
    p.c = c->data;
    p.a_row = x.stride[x.ndim - 2];
    p.a_col = x.stride[x.ndim - 1];
    p.b_row = y.stride[y.ndim - 2];
    p.b_col = y.stride[y.ndim - 1];
    p.c_row = c->stride[nc - 2];
    p.n_batch = nc - 2;
    for (int i = 0; i < nc - 2; i++) {
        int at_a = i - (nc - x.ndim), at_b = i - (nc - y.ndim);
        p.batch[i] = c->size[i];
        p.c_batch[i] = c->stride[i];
        p.a_batch[i] = at_a < 0 || x.size[at_a] == 1 ? 0 : x.stride[at_a];
        p.b_batch[i] = at_b < 0 || y.size[at_b] == 1 ? 0 : y.stride[at_b];
    }
    args->kernels->product(&p);
    return failed ? tl_product_failed(sig) : TL_OK;
}

static tl_status matmul_forward(const tl_sig *sig, tl_args *args) { return run_product(sig, args, 0, 1, false); }

/* Which pair stays causal in dA = dC·Bᵀ (m, k, n become m', n', k') and in dB = Aᵀ·dC (k, n, m become m', n', k'). */
static tl_causal causal_of_a(tl_causal c) {
    return c == TL_CAUSAL_MN ? TL_CAUSAL_MK : c == TL_CAUSAL_MK ? TL_CAUSAL_MN : c;
}

static tl_causal causal_of_b(tl_causal c) {
    return c == TL_CAUSAL_MN ? TL_CAUSAL_KN : c == TL_CAUSAL_KN ? TL_CAUSAL_MN : c;
}

static tl_tensor *gradient(const tl_saved *saved, int input, tl_tensor *a, tl_tensor *b, tl_causal causal) {
    tl_tensor *into = tl_saved_into(saved, input);
    if (into && tl_tensor_ndim(into) == 2 && tl_tensor_ndim(a) == 2 && tl_tensor_ndim(b) == 2)
        return tl_matmul_into_(into, a, b, causal, saved->site) ? into : NULL;
    return tl_sum_to(tl_matmul_causal_(a, b, causal, saved->site), tl_saved_shape(saved, input), saved->site);
}

static tl_status matmul_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_causal causal = ((const matmul_attr *)tl_saved_attr(saved))->causal;
    if (tl_saved_needs(saved, 0))
        gin[0] =
            gradient(saved, 0, gout[0], tl_transpose_(tl_saved_in(saved, 1), -1, -2, saved->site), causal_of_a(causal));
    if (tl_saved_needs(saved, 1))
        gin[1] =
            gradient(saved, 1, tl_transpose_(tl_saved_in(saved, 0), -1, -2, saved->site), gout[0], causal_of_b(causal));
    return tl_ctx_status(ctx);
}

static void matmul_sample(uint64_t seed, tl_case *c) {
    int64_t m = tl_sample_below(&seed, 9), n = 1 + tl_sample_below(&seed, 9), k = 1 + tl_sample_below(&seed, 9);
    int64_t b = 1 + tl_sample_below(&seed, 3), h = 1 + tl_sample_below(&seed, 3);
    int form = (int)tl_sample_below(&seed, 4);
    if (form == 0) {
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){m, k});
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){k, n});
    } else if (form == 1) {
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){b, m, k});
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){k, n});
    } else if (form == 2) { /* grouped heads */
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, (int64_t[]){b, h, m, k});
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, (int64_t[]){b, 1, k, n});
    } else {
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){1, m, k});
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){h, k, n});
    }
    matmul_attr attr = {form == 2 && m == n ? TL_CAUSAL_MN : TL_CAUSAL_NONE};
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(matmul, sizeof(matmul_attr), matmul_infer, matmul_cost, matmul_saves, matmul_forward, matmul_grad, matmul_sample);

static tl_status into_infer(tl_sig *sig) {
    tl_shape shape;
    char left[200], right[200];
    tl_status status = infer_at(sig, 1, 2, &shape);
    if (status != TL_OK)
        return status;
    if (!tl_shape_equal(&shape, &sig->in[0]->shape))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the product is %s but is to be added into %s",
                           tl_shape_text(&shape, left, sizeof left), tl_tensor_text(sig->in[0], right, sizeof right));
    if (sig->in[0]->stride[shape.ndim - 1] != 1 && shape.dim[shape.ndim - 1].size > 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the last axis of %s must be contiguous to be added into",
                           tl_tensor_text(sig->in[0], right, sizeof right));
    tl_output *out = tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    out->alias = 0;
    out->in_place = true;
    return TL_OK;
}

static void into_cost(const tl_sig *sig, tl_cost *cost) {
    cost_of(sig, &sig->out[0].shape, tl_in_dim(sig, 1, -1), cost);
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->out[0].shape); /* the addition into c */
}

static tl_status into_forward(const tl_sig *sig, tl_args *args) { return run_product(sig, args, 1, 2, true); }

static void into_sample(uint64_t seed, tl_case *c) {
    int64_t m = 1 + tl_sample_below(&seed, 9), n = 1 + tl_sample_below(&seed, 9), k = tl_sample_below(&seed, 9);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){m, n});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){m, k});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){k, n});
    c->in[0].fixed_layout = true;
    c->in_place = true;
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(matmul_into, sizeof(matmul_attr), into_infer, into_cost, TL_SAVES_NONE, into_forward, TL_NO_GRAD, into_sample);

/* What a kernel cannot read is copied, and the ledger shows the copy. */
static tl_tensor *readable(tl_tensor *x, const char *site) {
    return !x || x->shape.ndim < 2 || tl_is_readable_matrix(x) ? x : tl_copy_(x, site);
}

tl_tensor *tl_matmul_causal_(tl_tensor *a, tl_tensor *b, tl_causal causal, const char *site) {
    tl_tensor *in[] = {readable(a, site), readable(b, site)};
    matmul_attr attr = {causal};
    return tl_run1(&tl_op_matmul, in, 2, &attr, site);
}

tl_tensor *tl_matmul_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_matmul_causal_(a, b, TL_CAUSAL_NONE, site);
}

tl_tensor *tl_matmul_into_(tl_tensor *c, tl_tensor *a, tl_tensor *b, tl_causal causal, const char *site) {
    tl_tensor *in[] = {c, readable(a, site), readable(b, site)};
    matmul_attr attr = {causal};
    return tl_run1(&tl_op_matmul_into, in, 3, &attr, site);
}
