/* Shared declarations of elementwise ops. */
#include "op/elementwise.h"

tl_status tl_unary_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape)->elementwise = true;
    return status;
}

void tl_unary_cost(const tl_sig *sig, tl_cost *cost, int64_t arithmetic, int64_t special) {
    const tl_shape *shape = &sig->out[0].shape;
    if (arithmetic)
        cost->arithmetic = tl_amount_shape(sig->ctx, arithmetic, shape);
    if (special)
        cost->special = tl_amount_shape(sig->ctx, special, shape);
}

void tl_unary_saves_input(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 1;
}

void tl_unary_saves_output(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->out = 1;
}

static void sample_shape(uint64_t *seed, int64_t size[3]) {
    size[0] = 1 + tl_sample_below(seed, 4);
    size[1] = tl_sample_below(seed, 6);
    size[2] = 1 + tl_sample_below(seed, 19);
}

void tl_unary_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    c->n_out = 1;
    c->tolerance = 2e-6;
}

void tl_unary_sample_positive(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->in[0].fill = TL_FILL_POSITIVE;
}

tl_status tl_unary_backward_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        status = tl_sig_want_same_dtype(sig);
    if (status != TL_OK)
        return status;
    if (!tl_shape_equal(&sig->in[0]->shape, &sig->in[1]->shape)) {
        char a[200], b[200];
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s and %s must have the same shape",
                           tl_tensor_text(sig->in[0], a, sizeof a), tl_tensor_text(sig->in[1], b, sizeof b));
    }
    tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return TL_OK;
}

void tl_unary_backward_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    c->n_out = 1;
    c->tolerance = 4e-6;
}

tl_status tl_unary_grad(tl_ctx *ctx, const tl_saved *saved, const tl_op *backward, tl_tensor *const gout[],
                        tl_tensor *gin[]) {
    tl_tensor *kept = tl_saved_in(saved, 0) ? tl_saved_in(saved, 0) : tl_saved_out(saved, 0);
    gin[0] = tl_run1(backward, (tl_tensor *[]){kept, gout[0]}, 2, saved->attr, saved->site);
    return tl_ctx_status(ctx);
}

tl_status tl_binary_infer(tl_sig *sig) {
    tl_shape shape;
    tl_status status = tl_sig_want_same_dtype(sig);
    if (status == TL_OK)
        status = tl_sig_want_arithmetic(sig, 0);
    if (status == TL_OK)
        status = tl_sig_broadcast(sig, 0, 1, &shape);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &shape)->elementwise = true;
    return status;
}

void tl_binary_cost(const tl_sig *sig, tl_cost *cost) {
    cost->arithmetic = tl_amount_shape(sig->ctx, 1, &sig->out[0].shape);
}

tl_status tl_binary_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel) {
    tl_array_broadcast(&args->call.in[0], &sig->out[0].shape);
    tl_array_broadcast(&args->call.in[1], &sig->out[0].shape);
    return tl_args_run(sig, args, kernel);
}

void tl_binary_sample(uint64_t seed, tl_case *c) {
    int64_t size[3];
    sample_shape(&seed, size);
    int form = (int)tl_sample_below(&seed, 4);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    if (form == 0)
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 3, size);
    else if (form == 1)
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 1, (int64_t[]){size[2]});
    else if (form == 2)
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 3, (int64_t[]){size[0], 1, 1});
    else
        tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 0, NULL);
    c->n_out = 1;
    c->tolerance = 0;
}

tl_status tl_unary_infer_arithmetic(tl_sig *sig) {
    tl_status status = tl_sig_want_arithmetic(sig, 0);
    if (status == TL_OK)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return status;
}

static tl_status broadcast_to(tl_sig *sig, tl_dtype dtype) {
    tl_shape shape;
    tl_status status = tl_sig_want_same_dtype(sig);
    if (status == TL_OK)
        status = tl_sig_broadcast(sig, 0, 1, &shape);
    if (status == TL_OK)
        tl_sig_add(sig, dtype, &shape);
    return status;
}

tl_status tl_binary_infer_any(tl_sig *sig) { return broadcast_to(sig, sig->in[0]->dtype); }

tl_status tl_compare_infer(tl_sig *sig) { return broadcast_to(sig, TL_BOOL); }

tl_status tl_bool_infer(tl_sig *sig) {
    tl_sig_add(sig, TL_BOOL, &sig->in[0]->shape);
    return TL_OK;
}

tl_status tl_sig_want_bool(tl_sig *sig, int input) {
    tl_dtype dtype = sig->in[input]->dtype;
    if (dtype == TL_BOOL)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_DTYPE, "input %d is %s; bool would work: compare it, or cast it to bool (≠ 0)",
                       input, tl_dtype_name(dtype));
}

tl_status tl_logic_infer(tl_sig *sig) {
    tl_status status = tl_sig_want_bool(sig, 0);
    if (status == TL_OK)
        status = tl_sig_want_bool(sig, 1);
    return status == TL_OK ? tl_compare_infer(sig) : status;
}

/* Few values, so that equal ones meet. */
void tl_compare_sample(uint64_t seed, tl_case *c) {
    tl_binary_sample(seed, c);
    for (int i = 0; i < 2; i++) {
        c->in[i].fill = TL_FILL_INDEX;
        c->in[i].limit = 4;
    }
}

void tl_logic_sample(uint64_t seed, tl_case *c) {
    tl_compare_sample(seed, c);
    for (int i = 0; i < 2; i++) {
        c->in[i].dtype = TL_BOOL;
        c->in[i].fixed_dtype = true;
        c->in[i].limit = 2;
    }
}

tl_status tl_binary_backward_infer(tl_sig *sig) {
    char found[200], asked[200];
    tl_shape shape;
    tl_status status = tl_sig_want_float(sig, 0);
    if (status == TL_OK)
        status = tl_sig_want_same_dtype(sig);
    if (status == TL_OK)
        status = tl_sig_broadcast(sig, 0, 1, &shape);
    if (status != TL_OK)
        return status;
    if (!tl_shape_equal(&shape, &sig->in[2]->shape))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the gradient is %s; %s would work",
                           tl_tensor_text(sig->in[2], found, sizeof found), tl_shape_text(&shape, asked, sizeof asked));
    tl_sig_add(sig, sig->in[0]->dtype, &shape);
    return TL_OK;
}

void tl_binary_backward_sample(uint64_t seed, tl_case *c) {
    tl_binary_sample(seed, c);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, c->in[0].size);
}
