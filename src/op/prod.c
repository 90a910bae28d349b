/* The product over axes; of integers in i64, modulo 2^64. dx is g times the product of all others, made from what is before
 * and what is after, so that zeros need no division. */
#include "op/elementwise.h"
#include "op/reduce.h"

/* One × per element of the input, as for sum. */
static void prod_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->in[0]->shape);
}

static tl_status prod_forward(const tl_sig *sig, tl_args *args) {
    return tl_reduce_run(sig, args, args->kernels->prod);
}

/* in: x, and the gradient with size 1 where reduced */
static tl_status backward_infer(tl_sig *sig) {
    char x[200], g[200];
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        status = tl_sig_want_same_dtype(sig);
    if (status != TL_OK)
        return status;
    const tl_shape *in = &sig->in[0]->shape, *kept = &sig->in[1]->shape;
    bool fits = in->ndim == kept->ndim;
    for (int i = 0; fits && i < in->ndim; i++)
        fits = kept->dim[i].size == 1 || kept->dim[i].size == in->dim[i].size;
    if (!fits)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the gradient %s of %s must have its sizes, or 1",
                           tl_tensor_text(sig->in[1], g, sizeof g), tl_tensor_text(sig->in[0], x, sizeof x));
    tl_sig_add(sig, sig->in[0]->dtype, in);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 3, 0); /* what is before, what is after, their product */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->prod_backward);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 9)}, kept[3];
    for (int i = 0; i < 3; i++)
        kept[i] = tl_sample_below(&seed, 2) ? 1 : size[i];
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, kept);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(prod_backward, 0, backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD, backward_sample);

static tl_status prod_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *in[] = {tl_saved_in(saved, 0), tl_reduce_kept(saved, gout[0])};
    gin[0] = tl_run1(&tl_op_prod_backward, in, 2, NULL, saved->site);
    return tl_ctx_status(ctx);
}

static void prod_sample(uint64_t seed, tl_case *c) {
    tl_reduce_sample(seed, c);
    c->in[0].fill = TL_FILL_POSITIVE;
    c->in[0].size[2] = c->in[0].size[2] % 7; /* the rounding of a long product is that of its length */
}

TL_OP(prod, sizeof(tl_reduce_attr), tl_reduce_wide_infer, prod_cost, tl_unary_saves_input, prod_forward, prod_grad,
      prod_sample);

tl_tensor *tl_prod_(tl_tensor *x, const int *axes, int n, bool keep, const char *site) {
    return tl_reduce_call(&tl_op_prod, x, axes, n, keep, site);
}
