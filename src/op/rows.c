/* Shared declarations of ops along the last axis. */
#include "op/rows.h"

tl_dim tl_elements_dim(tl_ctx *ctx, const tl_shape *shape) {
    tl_dim product = tl_dim_of(1);
    for (int i = 0; i < shape->ndim; i++)
        product = tl_dim_mul(ctx, product, shape->dim[i]);
    return product;
}

tl_shape tl_shape_leading(const tl_shape *shape) {
    tl_shape leading = *shape;
    if (leading.ndim > 0)
        leading.ndim--;
    return leading;
}

tl_dim tl_rows_dim(tl_ctx *ctx, const tl_shape *shape) {
    tl_shape leading = tl_shape_leading(shape);
    return tl_elements_dim(ctx, &leading);
}

tl_tensor *tl_as_matrix(tl_tensor *x, const char *site) {
    if (!x || x->shape.ndim == 2 || x->shape.ndim == 0)
        return x;
    tl_shape matrix = TL_SHAPE(x->ctx, tl_rows_dim(x->ctx, &x->shape), x->shape.dim[x->shape.ndim - 1]);
    return tl_reshape_(x, matrix, site);
}

tl_dtype tl_statistic_dtype(tl_dtype dtype) { return dtype == TL_F64 ? TL_F64 : TL_F32; }

tl_status tl_sig_want_shape(tl_sig *sig, int input, const tl_shape *shape, const char *what) {
    const tl_shape *found = &sig->in[input]->shape;
    bool same = found->ndim == shape->ndim;
    for (int i = 0; same && i < shape->ndim; i++)
        same = tl_dim_match(sig->ctx, found->dim[i], shape->dim[i]);
    if (same)
        return TL_OK;
    char asked[200], is[200];
    return tl_sig_fail(sig, TL_ERR_SHAPE, "%s is %s; %s would work", what,
                       tl_tensor_text(sig->in[input], is, sizeof is), tl_shape_text(shape, asked, sizeof asked));
}

tl_status tl_sig_want_vector(tl_sig *sig, int input, tl_dim size, const char *what) {
    tl_shape shape = {.ndim = 1, .dim = {size}};
    return tl_sig_want_shape(sig, input, &shape, what);
}

tl_status tl_sig_want_index(tl_sig *sig, int input, const char *what) {
    tl_dtype dtype = sig->in[input]->dtype;
    if (dtype == TL_I32 || dtype == TL_I64)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_DTYPE, "%s are %s; i32 or i64 would work", what, tl_dtype_name(dtype));
}

tl_status tl_sig_want_one(tl_sig *sig, int input, const char *what) {
    char is[200];
    if (tl_tensor_count(sig->in[input]) == 1)
        return tl_sig_want_float(sig, input);
    return tl_sig_fail(sig, TL_ERR_SHAPE, "%s is %s; one element would work", what,
                       tl_tensor_text(sig->in[input], is, sizeof is));
}

void tl_amount_more(tl_ctx *ctx, tl_amount *amount, int64_t factor, const tl_dim *dims, int count) {
    *amount = tl_amount_add(ctx, *amount, tl_amount_of(ctx, factor, dims, count));
}

void tl_norm_backward_outputs(tl_sig *sig) {
    uint32_t wanted = TL_ATTR(tl_norm_backward_attr, sig)->wanted;
    if (wanted & TL_NORM_DX)
        tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    if (wanted & TL_NORM_DGAIN)
        tl_sig_add(sig, sig->in[1]->dtype, &sig->in[1]->shape);
    if (wanted & TL_NORM_DBIAS)
        tl_sig_add(sig, sig->in[1]->dtype, &sig->in[1]->shape);
}

static void norm_backward_slots(const tl_sig *sig, tl_args *args, int n_out) {
    uint32_t wanted = TL_ATTR(tl_norm_backward_attr, sig)->wanted;
    tl_array given[3] = {args->call.out[0], args->call.out[1], args->call.out[2]};
    int next = 0;
    for (int slot = 0; slot < n_out; slot++) {
        args->call.out[slot] = args->call.in[slot > 0]; /* a shape to look at, and no data */
        args->call.out[slot].data = NULL;
        if (wanted & (1u << slot))
            args->call.out[slot] = given[next++];
    }
    args->call.n_out = n_out;
}

tl_status tl_norm_backward_run(const tl_sig *sig, tl_args *args, int n_out, tl_kernel *kernel) {
    norm_backward_slots(sig, args, n_out);
    tl_shape rows = tl_shape_leading(&sig->in[0]->shape);
    int64_t count = 0;
    if (tl_shape_count(&rows, &count) && count > 0)
        return tl_args_run(sig, args, kernel);
    for (int slot = 1; slot < n_out; slot++) { /* no rows, so no workspace: sums over nothing */
        tl_fill_attr zero = {0};
        tl_args fill = {.kernels = args->kernels};
        fill.call.engine = args->call.engine;
        fill.call.n_out = 1;
        fill.call.out[0] = args->call.out[slot];
        fill.call.attr = &zero;
        if (fill.call.out[0].data)
            tl_args_run(sig, &fill, args->kernels->fill);
    }
    return TL_OK;
}

tl_dim tl_norm_workspace(const tl_sig *sig, int64_t sums) {
    const tl_shape *x = &sig->in[0]->shape;
    if (!(TL_ATTR(tl_norm_backward_attr, sig)->wanted & (TL_NORM_DGAIN | TL_NORM_DBIAS)))
        return tl_dim_of(0);
    int64_t bytes = sums * tl_dtype_bytes(tl_statistic_dtype(sig->in[0]->dtype));
    tl_dim blocks = tl_dim_ceil_div(sig->ctx, tl_rows_dim(sig->ctx, x), TL_ROW_BLOCK);
    return tl_dim_mul(sig->ctx, tl_dim_mul(sig->ctx, tl_dim_of(bytes), blocks), x->dim[x->ndim - 1]);
}
