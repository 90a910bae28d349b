/* a where the condition holds, else b; all three broadcast. Each input's gradient is g where it was taken. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status where_infer(tl_sig *sig) {
    char text[3][200];
    tl_status status = tl_sig_want_bool(sig, 0);
    if (status != TL_OK)
        return status;
    if (sig->in[1]->dtype != sig->in[2]->dtype)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the choices are %s and %s; cast one of them",
                           tl_dtype_name(sig->in[1]->dtype), tl_dtype_name(sig->in[2]->dtype));
    tl_shape shape = {.ndim = 0};
    for (int i = 0; i < 3; i++)
        if (sig->in[i]->shape.ndim > shape.ndim)
            shape.ndim = sig->in[i]->shape.ndim;
    for (int from_end = 1; from_end <= shape.ndim; from_end++) {
        tl_dim *to = &shape.dim[shape.ndim - from_end];
        *to = tl_dim_fixed(sig->ctx, tl_dim_of(1));
        for (int i = 0; i < 3; i++) {
            const tl_shape *s = &sig->in[i]->shape;
            if (from_end > s->ndim || s->dim[s->ndim - from_end].size == 1)
                continue;
            if (to->size != 1 && !tl_dim_match(sig->ctx, *to, s->dim[s->ndim - from_end]))
                return tl_sig_fail(
                    sig, TL_ERR_SHAPE,
                    "%s, %s and %s do not broadcast at axis %d from the end; equal sizes, or 1, would work",
                    tl_tensor_text(sig->in[0], text[0], sizeof text[0]),
                    tl_tensor_text(sig->in[1], text[1], sizeof text[1]),
                    tl_tensor_text(sig->in[2], text[2], sizeof text[2]), from_end);
            *to = s->dim[s->ndim - from_end];
        }
    }
    tl_sig_add(sig, sig->in[1]->dtype, &shape);
    return TL_OK;
}

static void where_saves(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    saves->in = 1;
}

static tl_status where_forward(const tl_sig *sig, tl_args *args) {
    for (int i = 0; i < 3; i++)
        tl_array_broadcast(&args->call.in[i], &sig->out[0].shape);
    return tl_args_run(sig, args, args->kernels->where);
}

static tl_status where_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_shape one = {.ndim = 0};
    tl_tensor *zero = tl_zeros_of(ctx, gout[0] ? gout[0]->dtype : TL_F32, &one, saved->site);
    for (int i = 1; i < 3; i++)
        if (tl_saved_needs(saved, i)) {
            tl_tensor *a = i == 1 ? gout[0] : zero, *b = i == 1 ? zero : gout[0];
            tl_tensor *share = tl_where_(tl_saved_in(saved, 0), a, b, saved->site);
            gin[i] = tl_sum_to(share, tl_saved_shape(saved, i), saved->site);
            if (gin[i] != share)
                tl_release(share);
        }
    tl_release(zero);
    return tl_ctx_status(ctx);
}

static void where_sample(uint64_t seed, tl_case *c) {
    int64_t size[] = {1 + tl_sample_below(&seed, 4), tl_sample_below(&seed, 6), 1 + tl_sample_below(&seed, 19)};
    int form = (int)tl_sample_below(&seed, 3);
    tl_sample_input(c, TL_BOOL, TL_FILL_INDEX, form == 1 ? 1 : 3, form == 1 ? &size[2] : size);
    c->in[0].limit = 2;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, size);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, form == 2 ? 0 : 3, size);
    c->n_out = 1;
}

TL_OP(where, 0, where_infer, tl_cost_moves, where_saves, where_forward, where_grad, where_sample);

tl_tensor *tl_where_(tl_tensor *condition, tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_where, (tl_tensor *[]){condition, a, b}, 3, NULL, site);
}
