/* Rows of tokens to where their experts' rows are: a copy for each choice. The gradient adds the copies up again. */
#include "op/moe.h"

#include <string.h>

/* in: x, order */
static tl_status moe_permute_infer(tl_sig *sig) {
    const tl_tensor *x = sig->in[0];
    char text[200];
    if (x->shape.ndim != 2)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "x is %s; [tokens, width] would work",
                           tl_tensor_text(x, text, sizeof text));
    tl_status status = tl_moe_want_order(sig, 1, x->shape.dim[0].size, TL_ATTR(tl_moe_attrs, sig)->moe.k);
    if (status != TL_OK)
        return status;
    tl_shape shape = tl_moe_rows_shape(&sig->in[1]->shape, x->shape.dim[1]);
    if ((status = tl_sig_check_shape(sig, &shape)) == TL_OK)
        tl_sig_add(sig, x->dtype, &shape);
    return status;
}

/* No arithmetic. Of x a row is read for each row written. */
static void moe_permute_cost(const tl_sig *sig, tl_cost *cost) {
    cost->read = tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->out[0].dtype), &sig->out[0].shape);
    cost->read = tl_amount_add(sig->ctx, cost->read,
                               tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[1]->dtype), &sig->in[1]->shape));
    cost->read_set = true;
}

static void moe_permute_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 2;
}

static tl_status moe_permute_forward(const tl_sig *sig, tl_args *args) {
    int64_t k = TL_ATTR(tl_moe_attrs, sig)->moe.k;
    return tl_moe_run_order(sig, args, args->kernels->moe_permute, sig->in[0]->shape.dim[0].size * k);
}

static tl_status moe_permute_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const tl_moe_attrs *attr = tl_saved_attr(saved);
    gin[0] = tl_moe_sum_(gout[0], tl_saved_in(saved, 1), tl_saved_shape(saved, 0)->dim[0], attr->k, saved->site);
    return tl_ctx_status(ctx);
}

static void moe_permute_sample(uint64_t seed, tl_case *c) {
    int64_t n = tl_sample_below(&seed, 7), k = 1 + tl_sample_below(&seed, 3);
    tl_moe_attrs attr = tl_moe_attrs_of(tl_dim_of(0), tl_dim_of(k));
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){n, tl_sample_below(&seed, 20)});
    tl_moe_sample_order(&seed, c, n, k);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(moe_permute, sizeof(tl_moe_attrs), moe_permute_infer, moe_permute_cost, moe_permute_saves, moe_permute_forward,
      moe_permute_grad, moe_permute_sample);

tl_tensor *tl_moe_permute_(tl_tensor *x, tl_tensor *order, tl_dim k, const char *site) {
    tl_moe_attrs attr = tl_moe_attrs_of(tl_dim_of(0), k);
    return tl_run1(&tl_op_moe_permute, (tl_tensor *[]){x, order}, 2, &attr, site);
}
