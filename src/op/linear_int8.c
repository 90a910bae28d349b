/* x·(q·scale)ᵀ + bias for frozen weights q kept as int8, one scale an output: the sum over x·q is multiplied by the scale, so
 * that forward never writes a weight out in another format. Backward does: its product reads one of x's format. */
#include "op/rows.h"
#include "tally/ops_quantize.h"

static tl_status linear_int8_infer(tl_sig *sig) {
    tl_status status;
    char left[200], right[200];
    if ((status = tl_sig_want_ndim(sig, 0, 1)) || (status = tl_sig_want_float(sig, 0)))
        return status;
    const tl_tensor *x = sig->in[0], *q = sig->in[1];
    if (q->dtype != TL_I8 || sig->in[2]->dtype != TL_F32 || (sig->n_in > 3 && sig->in[3]->dtype != x->dtype))
        return tl_sig_fail(sig, TL_ERR_DTYPE, "weights are %s, scales %s; i8, f32 and a bias in x's %s would work",
                           tl_dtype_name(q->dtype), tl_dtype_name(sig->in[2]->dtype), tl_dtype_name(x->dtype));
    if (x->dtype != TL_F64 && x->dtype != TL_F32 && x->dtype != TL_BF16 && x->dtype != TL_F16)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "x is %s; f64, f32, bf16 or f16 would work", tl_dtype_name(x->dtype));
    if (q->shape.ndim != 2 || !tl_dim_match(sig->ctx, x->shape.dim[x->shape.ndim - 1], q->shape.dim[1]))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "x is %s and the weight %s; a weight of [out, %lld] would work",
                           tl_tensor_text(x, left, sizeof left), tl_tensor_text(q, right, sizeof right),
                           (long long)x->shape.dim[x->shape.ndim - 1].size);
    if (q->shape.dim[1].size > 1 && q->stride[1] != 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the rows of the weight %s must be contiguous: copy it",
                           tl_tensor_text(q, right, sizeof right));
    if (sig->needs_grad[2])
        return tl_sig_fail(sig, TL_ERR_UNSUPPORTED,
                           "a quantised weight is frozen and its scales have no gradient; stop asking for one");
    if ((status = tl_sig_want_vector(sig, 2, q->shape.dim[0], "the tensor of scales")) ||
        (sig->n_in > 3 && (status = tl_sig_want_vector(sig, 3, q->shape.dim[0], "the bias"))))
        return status;
    tl_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = q->shape.dim[0];
    tl_sig_add(sig, x->dtype, &shape);
    return TL_OK;
}

/* 16-bit rows, and rows that lie apart, are first written out in the compute type. */
static tl_dim workspace(const tl_sig *sig) {
    const tl_tensor *x = sig->in[0];
    int last = x->shape.ndim - 1;
    bool wide = x->dtype == TL_F64;
    if ((wide || x->dtype == TL_F32) && (x->stride[last] == 1 || x->shape.dim[last].size <= 1))
        return tl_dim_of(0);
    return tl_dim_mul(sig->ctx, tl_dim_of(wide ? 8 : 4), tl_elements_dim(sig->ctx, &x->shape));
}

static void linear_int8_cost(const tl_sig *sig, tl_cost *cost) {
    tl_dim rows = tl_rows_dim(sig->ctx, &sig->in[0]->shape), o = tl_in_dim(sig, 1, 0), i = tl_in_dim(sig, 1, 1);
    cost->matmul = TL_AMOUNT(sig->ctx, 2, rows, o, i);
    cost->arithmetic = TL_AMOUNT(sig->ctx, sig->n_in > 3 ? 2 : 1, rows, o); /* · scale, + bias */
    cost->workspace = workspace(sig);
    cost->m = rows.size;
    cost->n = o.size;
    cost->k = i.size;
    cost->batch = 1;
}

static void linear_int8_saves(const tl_sig *sig, tl_saves *saves) { saves->in = sig->needs_grad[0] ? 6 : 0; }

static tl_status linear_int8_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->linear_int8);
}

/* dx = (g·scale)·q: the gradient is scaled in f32, since a scale rounded to 16 bits would bend a whole row; q is exact in any
 * format. */
static tl_status linear_int8_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const tl_shape *shape = tl_saved_shape(saved, 0);
    const char *site = saved->site;
    tl_dtype dtype = tl_saved_dtype(saved, 0), wide = dtype == TL_F64 ? TL_F64 : TL_F32;
    tl_tensor *g = gout[0];
    if (shape->ndim == 1 && g)
        g = tl_reshape_(g, TL_SHAPE(ctx, tl_dim_of(1), g->shape.dim[0]), site);
    g = tl_as_matrix(g, site);
    if (tl_saved_needs(saved, 0)) {
        tl_tensor *scale = tl_cast_(tl_saved_in(saved, 2), wide, site);
        tl_tensor *up = tl_cast_(g, wide, site), *scaled = tl_mul_(up, scale, site);
        if (up != g)
            tl_release(up);
        tl_tensor *by = tl_cast_(scaled, dtype, site), *q = tl_cast_(tl_saved_in(saved, 1), dtype, site);
        tl_tensor *dx = tl_matmul_(by, q, site);
        tl_release(q);
        gin[0] = shape->ndim == 2 ? dx : tl_view_(dx, *shape, site);
    }
    if (saved->n_in > 3 && tl_saved_needs(saved, 3))
        gin[3] = tl_sum_(g, (int[]){0}, 1, false, site);
    return tl_ctx_status(ctx);
}

static void linear_int8_sample(uint64_t seed, tl_case *c) {
    int64_t o = 1 + tl_sample_below(&seed, 9), i = 1 + tl_sample_below(&seed, 40), rows = tl_sample_below(&seed, 9);
    int form = (int)tl_sample_below(&seed, 3);
    if (form == 0)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, (int64_t[]){i});
    else if (form == 1)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){rows, i});
    else
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){1 + tl_sample_below(&seed, 3), rows, i});
    tl_sample_input(c, TL_I8, TL_FILL_INDEX, 2, (int64_t[]){o, i});
    c->in[1].limit = 127;
    c->in[1].fixed_dtype = c->in[1].fixed_layout = true;
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, (int64_t[]){o});
    c->in[2].fixed_dtype = c->in[2].frozen = true;
    if (tl_sample_below(&seed, 2))
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, (int64_t[]){o});
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(linear_int8, 0, linear_int8_infer, linear_int8_cost, linear_int8_saves, linear_int8_forward, linear_int8_grad,
      linear_int8_sample);

tl_tensor *tl_linear_int8_(tl_tensor *x, tl_tensor *q, tl_tensor *scale, tl_tensor *bias, const char *site) {
    if (q && q->shape.ndim == 2 && q->shape.dim[1].size > 1 && q->stride[1] != 1)
        q = tl_copy_(q, site);
    return tl_run1(&tl_op_linear_int8, (tl_tensor *[]){x, q, scale, bias}, bias ? 4 : 3, NULL, site);
}
