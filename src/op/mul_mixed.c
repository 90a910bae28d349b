/* x·g for a g of another format, which is cast to x's where it is read: PyTorch's product of mixed formats keeps g as it is, and
 * no copy of it in x's format. */
#include "op/elementwise.h"
#include "op/rows.h"
#include "tally/ops_choices.h"

static tl_status mixed_infer(tl_sig *sig) {
    const tl_tensor *x = sig->in[0], *g = sig->in[1];
    char left[200], right[200];
    int last = x->shape.ndim - 1;
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = tl_sig_want_float(sig, 1)))
        return status;
    if (last < 0 || g->shape.ndim != 1 || !tl_dim_match(sig->ctx, g->shape.dim[0], x->shape.dim[last]))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "x is %s and g %s; a g of x's last axis would work",
                           tl_tensor_text(x, left, sizeof left), tl_tensor_text(g, right, sizeof right));
    tl_sig_add(sig, x->dtype, &x->shape);
    return TL_OK;
}

static void mixed_cost(const tl_sig *sig, tl_cost *cost) {
    tl_ctx *ctx = sig->ctx;
    const tl_tensor *x = sig->in[0], *g = sig->in[1];
    const int64_t size = tl_dtype_bytes(x->dtype);
    const tl_amount whole = tl_amount_shape(ctx, size, &x->shape), cast = tl_amount_shape(ctx, size, &g->shape);
    int64_t count = 0;
    cost->arithmetic = tl_amount_shape(ctx, 1, &sig->out[0].shape);
    cost->workspace = tl_dim_mul(ctx, tl_dim_of(size), tl_in_dim(sig, 1, 0));
    cost->read = tl_amount_add(ctx, whole, tl_amount_shape(ctx, tl_dtype_bytes(g->dtype), &g->shape));
    if (tl_shape_count(&x->shape, &count) &&
        count > 0) /* the cast one is written in any case, and read where there are rows */
        cost->read = tl_amount_add(ctx, cost->read, cast);
    cost->written = tl_amount_add(ctx, whole, cast);
    cost->read_set = cost->written_set = true;
}

static void mixed_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = (sig->needs_grad[1] ? 1u : 0) | (sig->needs_grad[0] ? 2u : 0);
}

static tl_status mixed_forward(const tl_sig *sig, tl_args *args) {
    const tl_array *x = &args->call.in[0], *g = &args->call.in[1];
    tl_kcall widen = {.engine = args->call.engine, .n_in = 1, .n_out = 1};
    tl_kcall times = {.engine = args->call.engine, .n_in = 2, .n_out = 1};
    (void)sig;
    widen.in[0] = *g;
    widen.out[0] =
        (tl_array){.data = args->call.work, .dtype = x->dtype, .ndim = 1, .size = {g->size[0]}, .stride = {1}};
    args->kernels->copy(&widen);
    times.in[0] = *x;
    times.in[1] = (tl_array){.data = args->call.work, .dtype = x->dtype, .ndim = x->ndim};
    for (int d = 0; d < x->ndim; d++)
        times.in[1].size[d] = x->size[d];
    times.in[1].stride[x->ndim - 1] = 1; /* the other axes repeat it */
    times.out[0] = args->call.out[0];
    args->kernels->mul(&times);
    return TL_OK;
}

static tl_status mixed_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const char *site = saved->site;
    if (tl_saved_needs(saved, 0))
        gin[0] = tl_mul_mixed_(gout[0], tl_saved_in(saved, 1), site);
    if (tl_saved_needs(saved, 1)) {
        tl_tensor *all = tl_mul_(gout[0], tl_saved_in(saved, 0), site);
        tl_tensor *sum = tl_sum_to(all, tl_saved_shape(saved, 1), site);
        if (sum != all)
            tl_release(all);
        gin[1] = tl_cast_(sum, tl_saved_dtype(saved, 1), site);
    }
    return tl_ctx_status(ctx);
}

static void mixed_sample(uint64_t seed, tl_case *c) {
    int64_t size[3] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 5), 1 + tl_sample_below(&seed, 20)};
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, size + 2);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(mul_mixed, 0, mixed_infer, mixed_cost, mixed_saves, mixed_forward, mixed_grad, mixed_sample);

tl_tensor *tl_mul_mixed_(tl_tensor *x, tl_tensor *g, const char *site) {
    return tl_run1(&tl_op_mul_mixed, (tl_tensor *[]){x, g}, 2, NULL, site);
}
