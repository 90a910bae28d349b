/* Experts' rows back to their tokens, weighted or not, and the gradients of a weighted sum in one op. */
#include "op/moe.h"

#include <string.h>

/* Both f64, or neither: the sum runs in y's compute type. */
static tl_status want_weights(tl_sig *sig, int input, tl_dtype dtype) {
    tl_status status = tl_sig_want_float(sig, input);
    tl_dtype weights = sig->in[input]->dtype;
    if (status == TL_OK && (weights == TL_F64) != (dtype == TL_F64))
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the weights are %s and the rows %s; cast one of them",
                           tl_dtype_name(weights), tl_dtype_name(dtype));
    return status;
}

/* in: y, order, [weights]; without weights n and k are attributes. */
static tl_status moe_combine_infer(tl_sig *sig) {
    const tl_moe_attrs *attr = TL_ATTR(tl_moe_attrs, sig);
    const tl_tensor *y = sig->in[0], *weights = sig->n_in > 2 ? sig->in[2] : NULL;
    char text[200];
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = tl_sig_want_ndim(sig, 0, 2)) ||
        (weights && (status = want_weights(sig, 2, y->dtype))))
        return status;
    if (weights && (weights->shape.ndim != 2 || weights->shape.dim[1].size != attr->moe.k))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the weights are %s; [tokens, choices], 1 choice or more, would work",
                           tl_tensor_text(weights, text, sizeof text));
    tl_dim n = weights ? weights->shape.dim[0] : attr->n;
    if ((status = tl_moe_want_order(sig, 1, n.size, attr->moe.k)) ||
        (status = tl_moe_want_rows(sig, 0, &sig->in[1]->shape, y->shape.dim[y->shape.ndim - 1], "the tensor of rows")))
        return status;
    tl_shape shape = {.ndim = 2, .dim = {n, y->shape.dim[y->shape.ndim - 1]}};
    if ((status = tl_sig_check_shape(sig, &shape)) == TL_OK)
        tl_sig_add(sig, y->dtype, &shape);
    return status;
}

static void moe_combine_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, sig->n_in > 2 ? 2 : 1, &sig->in[0]->shape); /* w·y, + */
    cost->workspace = tl_moe_workspace(sig->ctx, sig->out[0].shape.dim[0], &sig->in[1]->shape);
}

static void moe_combine_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = 2u;
    if (sig->n_in > 2)
        saves->in |= (sig->needs_grad[2] ? 1u : 0) | (sig->needs_grad[0] ? 4u : 0);
}

static tl_status moe_combine_forward(const tl_sig *sig, tl_args *args) {
    int64_t choices = sig->out[0].shape.dim[0].size * TL_ATTR(tl_moe_attrs, sig)->moe.k;
    return tl_moe_run_order(sig, args, args->kernels->moe_combine, choices);
}

/* in: order, gradient[n,D], [weights: dy], [y: dw] */
typedef struct backward_attr {
    tl_moe_attr moe; /* first: the kernel reads this much */
    tl_dim k;
    tl_dtype weights; /* of dw */
    bool wants_y, wants_weights;
} backward_attr;

static tl_status backward_infer(tl_sig *sig) {
    const backward_attr *attr = TL_ATTR(backward_attr, sig);
    tl_status status;
    if ((status = tl_sig_want_float(sig, 1)) || (status = tl_sig_want_ndim(sig, 1, 2)))
        return status;
    tl_dim n = tl_in_dim(sig, 1, 0), width = tl_in_dim(sig, 1, 1);
    tl_dtype dtype = sig->in[1]->dtype;
    tl_shape weights = {.ndim = 2, .dim = {n, attr->k}};
    const tl_shape *order = &sig->in[0]->shape;
    int next = 2;
    if ((status = tl_moe_want_order(sig, 0, n.size, attr->moe.k)) || (status = tl_sig_check_shape(sig, &weights)))
        return status;
    if (attr->wants_y && ((status = want_weights(sig, next, dtype)) ||
                          (status = tl_sig_want_shape(sig, next++, &weights, "the tensor of weights"))))
        return status;
    if (attr->wants_weights && (status = tl_moe_want_rows(sig, next, order, width, "the tensor of rows")))
        return status;
    tl_shape rows = tl_moe_rows_shape(order, width);
    if (attr->wants_y && (status = tl_sig_check_shape(sig, &rows)))
        return status;
    if (attr->wants_y)
        tl_sig_add(sig, dtype, &rows);
    if (attr->wants_weights)
        tl_sig_add(sig, dtype == TL_F64 ? dtype : attr->weights, &weights);
    return TL_OK;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    const backward_attr *attr = TL_ATTR(backward_attr, sig);
    tl_shape rows = tl_moe_rows_shape(&sig->in[0]->shape, tl_in_dim(sig, 1, 1));
    /* dy = w·g; dw = Σ y·g */
    cost->arithmetic = tl_amount_shape(sig->ctx, (attr->wants_y ? 1 : 0) + (attr->wants_weights ? 2 : 0), &rows);
    cost->workspace = tl_moe_workspace(sig->ctx, tl_in_dim(sig, 1, 0), &sig->in[0]->shape);
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    const backward_attr *attr = TL_ATTR(backward_attr, sig);
    tl_kcall *call = &args->call;
    tl_array none = attr->wants_y ? call->out[0] : call->in[2]; /* rows, of which data NULL says that there are none */
    tl_array in[4] = {call->in[0], call->in[1], call->in[2], call->in[3]}, out[2] = {call->out[0], call->out[1]};
    none.data = NULL;
    call->in[2] = attr->wants_y ? in[2] : none;
    call->in[3] = attr->wants_weights ? in[attr->wants_y ? 3 : 2] : none;
    call->n_in = 4;
    call->out[0] = attr->wants_y ? out[0] : none;
    call->out[1] = attr->wants_weights ? out[attr->wants_y ? 1 : 0] : none;
    call->n_out = 2;
    return tl_moe_run_order(sig, args, args->kernels->moe_combine_backward,
                            sig->in[1]->shape.dim[0].size * attr->moe.k);
}

static void backward_sample(uint64_t seed, tl_case *c) {
    int64_t n = tl_sample_below(&seed, 7), k = 1 + tl_sample_below(&seed, 3), width = tl_sample_below(&seed, 20);
    backward_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.moe.k = attr.k.size = k;
    attr.weights = TL_F32;
    attr.wants_y = tl_sample_below(&seed, 2);
    attr.wants_weights = !attr.wants_y || tl_sample_below(&seed, 2);
    tl_moe_sample_order(&seed, c, n, k);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){n, width});
    if (attr.wants_y)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){n, k});
    if (attr.wants_weights) {
        int64_t rows[3] = {c->in[0].size[0], c->in[0].size[1]};
        rows[c->in[0].ndim] = width;
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, c->in[0].ndim + 1, rows);
    }
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = (attr.wants_y ? 1 : 0) + (attr.wants_weights ? 1 : 0);
    c->tolerance = 1e-5;
}

TL_OP(moe_combine_backward, sizeof(backward_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status moe_combine_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const tl_moe_attrs *attr = tl_saved_attr(saved);
    tl_tensor *order = tl_saved_in(saved, 1);
    if (saved->n_in < 3) {
        gin[0] = tl_moe_permute_(gout[0], order, attr->k, saved->site);
        return tl_ctx_status(ctx);
    }
    backward_attr back;
    memset(&back, 0, sizeof back);
    back.moe = attr->moe;
    back.k = tl_saved_shape(saved, 2)->dim[1];
    back.weights = tl_saved_dtype(saved, 2);
    back.wants_y = tl_saved_needs(saved, 0);
    back.wants_weights = tl_saved_needs(saved, 2);
    tl_tensor *in[4] = {order, gout[0]}, *out[2] = {NULL, NULL};
    int n = 2, n_out = 0;
    if (back.wants_y)
        in[n++] = tl_saved_in(saved, 2);
    if (back.wants_weights)
        in[n++] = tl_saved_in(saved, 0);
    tl_status status = tl_run(ctx, &tl_op_moe_combine_backward, in, n, &back, out,
                              (back.wants_y ? 1 : 0) + (back.wants_weights ? 1 : 0), saved->site);
    if (back.wants_y)
        gin[0] = out[n_out++];
    if (back.wants_weights)
        gin[2] = out[n_out];
    return status;
}

static void moe_combine_sample(uint64_t seed, tl_case *c) {
    int64_t n = tl_sample_below(&seed, 7), k = 1 + tl_sample_below(&seed, 3), width = tl_sample_below(&seed, 20);
    tl_case order;
    memset(&order, 0, sizeof order);
    tl_moe_sample_order(&seed, &order, n, k);
    int64_t rows[3] = {order.in[0].size[0], order.in[0].size[1]};
    rows[order.in[0].ndim] = width;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, order.in[0].ndim + 1, rows);
    c->in[c->n_in++] = order.in[0];
    if (tl_sample_below(&seed, 2))
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){n, k});
    tl_moe_attrs attr = tl_moe_attrs_of(tl_dim_of(n), tl_dim_of(k));
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-6;
}

TL_OP(moe_combine, sizeof(tl_moe_attrs), moe_combine_infer, moe_combine_cost, moe_combine_saves, moe_combine_forward,
      moe_combine_grad, moe_combine_sample);

tl_tensor *tl_moe_combine_(tl_tensor *y, tl_tensor *order, tl_tensor *weights, const char *site) {
    tl_dim k = weights && weights->shape.ndim == 2 ? weights->shape.dim[1] : tl_dim_of(0);
    tl_moe_attrs attr = tl_moe_attrs_of(tl_dim_of(0), k);
    return tl_run1(&tl_op_moe_combine, (tl_tensor *[]){y, order, weights}, 3, &attr, site);
}

tl_tensor *tl_moe_sum_(tl_tensor *y, tl_tensor *order, tl_dim n, tl_dim k, const char *site) {
    tl_moe_attrs attr = tl_moe_attrs_of(n, k);
    return tl_run1(&tl_op_moe_combine, (tl_tensor *[]){y, order}, 2, &attr, site);
}
