/* x·Wᵀ + bias for a frozen weight kept as NF4: W is written out for the product and let go with it. Backward reads the packed
 * weight again; of x it needs nothing, since the weight has no gradient. */
#include "op/linear.h"
#include "op/nf4.h"

#include <string.h>

typedef struct linear_nf4_attr {
    tl_dim out;
    bool twice, bias, by_f16;
} linear_nf4_attr;

static int weight_inputs(const linear_nf4_attr *attr) { return attr->twice ? 4 : 2; }

static tl_status linear_nf4_infer(tl_sig *sig) {
    const linear_nf4_attr *attr = TL_ATTR(linear_nf4_attr, sig);
    const tl_tensor *x = sig->in[0];
    int64_t elements = 0;
    tl_status status;
    char text[200];
    if ((status = tl_sig_want_ndim(sig, 0, 1)))
        return status;
    if (x->dtype != TL_F64 && x->dtype != TL_F32 && x->dtype != TL_BF16 && x->dtype != TL_F16)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "x is %s; f64, f32, bf16 or f16 would work", tl_dtype_name(x->dtype));
    if (!tl_linear_reads(x))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "x is %s; one of its last two strides must be 1: copy it",
                           tl_tensor_text(x, text, sizeof text));
    if (!tl_mul_i64(attr->out.size, x->shape.dim[x->shape.ndim - 1].size, &elements))
        return tl_sig_fail(sig, TL_ERR_OVERFLOW, "a weight of more than 2^63 elements");
    if ((status = tl_sig_want_nf4(sig, 1, attr->twice, elements)))
        return status;
    int bias = 1 + weight_inputs(attr);
    if (attr->bias && sig->in[bias]->dtype != x->dtype)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the bias is %s; %s, as x, would work",
                           tl_dtype_name(sig->in[bias]->dtype), tl_dtype_name(x->dtype));
    if (attr->bias && (status = tl_sig_want_vector(sig, bias, attr->out, "the bias")))
        return status;
    tl_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = attr->out;
    tl_sig_add(sig, x->dtype, &shape);
    return TL_OK;
}

static void linear_nf4_cost(const tl_sig *sig, tl_cost *cost) {
    const linear_nf4_attr *attr = TL_ATTR(linear_nf4_attr, sig);
    tl_ctx *ctx = sig->ctx;
    tl_dim rows = tl_rows_dim(ctx, &sig->in[0]->shape), o = attr->out, i = tl_in_dim(sig, 0, -1);
    int64_t size = tl_dtype_bytes(sig->in[0]->dtype);
    cost->matmul = TL_AMOUNT(ctx, 2, rows, o, i);
    cost->arithmetic = TL_AMOUNT(ctx, 1, o, i); /* level·scale */
    if (attr->twice)
        cost->arithmetic = tl_amount_add(ctx, cost->arithmetic, tl_amount_shape(ctx, 2, &sig->in[2]->shape));
    if (attr->bias)
        cost->arithmetic = tl_amount_add(ctx, cost->arithmetic, TL_AMOUNT(ctx, 1, rows, o));
    cost->workspace = tl_dim_mul(ctx, tl_dim_of(attr->by_f16 ? size + 2 : size), tl_dim_mul(ctx, o, i));
    /* Beside inputs and output, the weight written out is traffic: it goes to memory and comes back. */
    cost->written = tl_amount_add(ctx, tl_amount_shape(ctx, size, &sig->out[0].shape), TL_AMOUNT(ctx, size, o, i));
    cost->read = TL_AMOUNT(ctx, size, o, i);
    if (attr->by_f16) {
        cost->written = tl_amount_add(ctx, cost->written, TL_AMOUNT(ctx, 2, o, i));
        cost->read = tl_amount_add(ctx, cost->read, TL_AMOUNT(ctx, 2, o, i));
    }
    for (int k = 0; k < sig->n_in; k++)
        cost->read =
            tl_amount_add(ctx, cost->read, tl_amount_shape(ctx, tl_dtype_bytes(sig->in[k]->dtype), &sig->in[k]->shape));
    cost->read_set = cost->written_set = true;
    tl_linear_sizes(sig, o.size, i.size, cost);
}

static void linear_nf4_saves(const tl_sig *sig, tl_saves *saves) {
    uint32_t weight = (2u << weight_inputs(TL_ATTR(linear_nf4_attr, sig))) - 2u;
    saves->in = sig->needs_grad[0] ? weight : 0;
}

static tl_status linear_nf4_forward(const tl_sig *sig, tl_args *args) {
    const linear_nf4_attr *attr = TL_ATTR(linear_nf4_attr, sig);
    const tl_array *x = &args->call.in[0];
    int n = weight_inputs(attr);
    tl_kcall unpack = {.engine = args->call.engine, .n_in = n, .n_out = 1};
    tl_array *w = &unpack.out[0];
    for (int k = 0; k < n; k++)
        unpack.in[k] = args->call.in[1 + k];
    w->data = args->call.work;
    w->dtype = x->dtype;
    w->ndim = 2;
    w->size[0] = attr->out.size;
    w->size[1] = w->stride[0] = x->size[x->ndim - 1];
    w->stride[1] = 1;
    if (attr->by_f16) {
        tl_kcall cast = {.engine = args->call.engine, .n_in = 1, .n_out = 1};
        cast.out[0] = *w;
        w->data = (char *)w->data + (size_t)tl_dtype_bytes(x->dtype) * (size_t)w->size[0] * (size_t)w->size[1];
        w->dtype = TL_F16;
        cast.in[0] = *w;
        args->kernels->nf4_dequantize(&unpack);
        args->kernels->copy(&cast);
        *w = cast.out[0];
    } else
        args->kernels->nf4_dequantize(&unpack);
    if (w->size[1] <= 1)
        w->stride[0] = 1;
    return tl_linear_run(sig, args, w, attr->bias ? &args->call.in[1 + n] : NULL);
}

static tl_status linear_nf4_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const linear_nf4_attr *attr = tl_saved_attr(saved);
    const tl_shape *shape = tl_saved_shape(saved, 0);
    const char *site = saved->site;
    int n = weight_inputs(attr);
    tl_tensor *g = gout[0];
    if (shape->ndim == 1 && g)
        g = tl_reshape_(g, TL_SHAPE(ctx, tl_dim_of(1), g->shape.dim[0]), site);
    g = tl_as_matrix(g, site);
    if (tl_saved_needs(saved, 0)) {
        tl_nf4 packed = {.packed = tl_saved_in(saved, 1),
                         .scales = tl_saved_in(saved, 2),
                         .outer = attr->twice ? tl_saved_in(saved, 3) : NULL,
                         .mean = attr->twice ? tl_saved_in(saved, 4) : NULL};
        tl_shape full = TL_SHAPE(ctx, attr->out, shape->dim[shape->ndim - 1]);
        tl_dtype dtype = tl_saved_dtype(saved, 0);
        tl_tensor *half = attr->by_f16 ? tl_dequantize_nf4_(&packed, full, TL_F16, site) : NULL;
        tl_tensor *w = half ? tl_cast_(half, dtype, site) : tl_dequantize_nf4_(&packed, full, dtype, site);
        tl_release(half);
        tl_tensor *dx = tl_matmul_(g, w, site);
        tl_release(w);
        gin[0] = shape->ndim == 2 ? dx : tl_view_(dx, *shape, site);
    }
    if (attr->bias && tl_saved_needs(saved, 1 + n))
        gin[1 + n] = tl_sum_(g, (int[]){0}, 1, false, site);
    return tl_ctx_status(ctx);
}

static void linear_nf4_sample(uint64_t seed, tl_case *c) {
    int64_t o = 1 + tl_sample_below(&seed, 9), i = 1 + tl_sample_below(&seed, 40), rows = tl_sample_below(&seed, 9);
    linear_nf4_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.out = tl_dim_of(o);
    attr.twice = tl_sample_below(&seed, 2);
    attr.bias = tl_sample_below(&seed, 2);
    attr.by_f16 = tl_sample_below(&seed, 2);
    int form = (int)tl_sample_below(&seed, 3);
    if (form == 0)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, (int64_t[]){i});
    else if (form == 1)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){rows, i});
    else
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){1 + tl_sample_below(&seed, 3), 2 + rows, i});
    tl_nf4_sample(c, attr.twice, o * i);
    if (attr.bias)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &o);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(linear_nf4, sizeof(linear_nf4_attr), linear_nf4_infer, linear_nf4_cost, linear_nf4_saves, linear_nf4_forward,
      linear_nf4_grad, linear_nf4_sample);

tl_tensor *tl_linear_nf4_(tl_tensor *x, const tl_nf4 *w, tl_dim out, tl_tensor *bias, const char *site) {
    tl_tensor *in[6];
    linear_nf4_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.out = out;
    attr.bias = bias != NULL;
    if (x && x->shape.ndim > 0 && !tl_linear_reads(x))
        x = tl_copy_(x, site);
    in[0] = x;
    int n = 1 + tl_nf4_inputs(w, in + 1);
    attr.twice = n == 5;
    attr.by_f16 = w->by_f16 && x && x->dtype != TL_F16;
    if (bias)
        in[n++] = bias;
    return tl_run1(&tl_op_linear_nf4, in, n, &attr, site);
}
