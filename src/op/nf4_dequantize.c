/* Back from NF4: level·scale. */
#include "op/nf4.h"

#include <string.h>

typedef struct nf4_attr {
    tl_shape shape;
    tl_dtype dtype;
} nf4_attr;

static int64_t ceil_div(int64_t n, int64_t by) { return n / by + (n % by != 0); }

static tl_status want(tl_sig *sig, int input, tl_dtype dtype, int64_t count, const char *what) {
    const tl_tensor *t = sig->in[input];
    char text[200];
    if (t->dtype == dtype && t->shape.ndim == 1 && t->shape.dim[0].size == count && tl_tensor_is_contiguous(t))
        return TL_OK;
    return tl_sig_fail(sig, t->dtype == dtype ? TL_ERR_SHAPE : TL_ERR_DTYPE,
                       "%s are %s; %s [%lld], contiguous, would work", what, tl_tensor_text(t, text, sizeof text),
                       tl_dtype_name(dtype), (long long)count);
}

tl_status tl_sig_want_nf4(tl_sig *sig, int first, bool twice, int64_t elements) {
    int64_t blocks = ceil_div(elements, TL_NF4_BLOCK);
    for (int i = first; i < first + (twice ? 4 : 2); i++)
        if (sig->needs_grad[i])
            return tl_sig_fail(sig, TL_ERR_UNSUPPORTED,
                               "a quantised weight is frozen and its scales have no gradient; stop asking for one");
    tl_status status = want(sig, first, TL_U8, ceil_div(elements, 2), "the packed codes");
    if (status == TL_OK)
        status = want(sig, first + 1, twice ? TL_I8 : TL_F32, blocks, twice ? "the codes of the scales" : "the scales");
    if (status == TL_OK && twice)
        status = want(sig, first + 2, TL_F32, ceil_div(blocks, TL_NF4_SCALE_BLOCK), "the scales of the scales");
    if (status == TL_OK && twice)
        status = want(sig, first + 3, TL_F32, 1, "the means of the scales");
    return status;
}

int tl_nf4_inputs(const tl_nf4 *w, tl_tensor *in[4]) {
    in[0] = w->packed;
    in[1] = w->scales;
    in[2] = w->outer;
    in[3] = w->mean;
    return w->outer ? 4 : 2;
}

static tl_status nf4_dequantize_infer(tl_sig *sig) {
    const nf4_attr *attr = TL_ATTR(nf4_attr, sig);
    int64_t count = 0;
    char text[160];
    if (!tl_dtype_is_float(attr->dtype))
        return tl_sig_fail(sig, TL_ERR_DTYPE, "NF4 written out as %s; a floating format would work",
                           tl_dtype_name(attr->dtype));
    if (!tl_shape_count(&attr->shape, &count))
        return tl_sig_fail(sig, TL_ERR_OVERFLOW, "the shape %s has more than 2^63 elements",
                           tl_shape_text(&attr->shape, text, sizeof text));
    tl_status status = tl_sig_want_nf4(sig, 0, sig->n_in == 4, count);
    if (status == TL_OK)
        tl_sig_add(sig, attr->dtype, &attr->shape);
    return status;
}

static void nf4_dequantize_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->out[0].shape);
    if (sig->n_in == 4) /* code·outer + mean */
        cost->arithmetic = tl_amount_add(sig->ctx, cost->arithmetic, tl_amount_shape(sig->ctx, 2, &sig->in[1]->shape));
}

static tl_status nf4_dequantize_forward(const tl_sig *sig, tl_args *args) {
    args->call.attr = NULL; /* all values, from the first */
    return tl_args_run(sig, args, args->kernels->nf4_dequantize);
}

void tl_nf4_sample(tl_case *c, bool twice, int64_t n) {
    int64_t bytes = ceil_div(n, 2), blocks = ceil_div(n, TL_NF4_BLOCK), outer = ceil_div(blocks, TL_NF4_SCALE_BLOCK);
    int first = c->n_in;
    tl_sample_input(c, TL_U8, TL_FILL_INDEX, 1, &bytes);
    c->in[first].limit = 256;
    tl_sample_input(c, twice ? TL_I8 : TL_F32, twice ? TL_FILL_INDEX : TL_FILL_POSITIVE, 1, &blocks);
    c->in[first + 1].limit = twice ? 127 : 0;
    if (twice) {
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, &outer);
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, (int64_t[]){1});
    }
    for (int i = first; i < c->n_in; i++)
        c->in[i].fixed_dtype = c->in[i].fixed_layout = c->in[i].frozen = true;
}

static void nf4_dequantize_sample(uint64_t seed, tl_case *c) {
    static const tl_dtype formats[] = {TL_F32, TL_F32, TL_BF16, TL_F16};
    int64_t rows = 1 + tl_sample_below(&seed, 7), columns = tl_sample_below(&seed, 60);
    nf4_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.ndim = 2;
    attr.shape.dim[0] = tl_dim_of(rows);
    attr.shape.dim[1] = tl_dim_of(columns);
    attr.dtype = formats[tl_sample_below(&seed, 4)];
    tl_nf4_sample(c, tl_sample_below(&seed, 2), rows * columns);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(nf4_dequantize, sizeof(nf4_attr), nf4_dequantize_infer, nf4_dequantize_cost, TL_SAVES_NONE,
      nf4_dequantize_forward, TL_NO_GRAD, nf4_dequantize_sample);

tl_tensor *tl_dequantize_nf4_(const tl_nf4 *w, tl_shape shape, tl_dtype dtype, const char *site) {
    tl_tensor *in[4];
    nf4_attr attr;
    int n = tl_nf4_inputs(w, in);
    memset(&attr, 0, sizeof attr);
    attr.shape = shape;
    attr.dtype = dtype;
    return tl_run1(&tl_op_nf4_dequantize, in, n, &attr, site);
}
