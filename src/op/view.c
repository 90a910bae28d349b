/* The same elements under another shape. */
#include "op/views.h"

#include <string.h>

/* How the counts compare; a difference in formulas alone is an assumption of the account. */
static tl_status match_counts(tl_sig *sig, const tl_shape *shape) {
    const tl_tensor *t = sig->in[0];
    char from[200], to[160];
    int64_t have, want;
    tl_shape_count(&t->shape, &have);
    tl_shape_count(shape, &want);
    if (have != want)
        return tl_sig_fail(sig, TL_ERR_SHAPE,
                           "%s has %lld elements but %s has %lld; the sizes must multiply to the same",
                           tl_tensor_text(t, from, sizeof from), (long long)have, tl_shape_text(shape, to, sizeof to),
                           (long long)want);
    if (sig->ctx->space) {
        tl_dim a = {.size = have, .formula = tl_shape_formula(sig->ctx, &t->shape, 1)};
        tl_dim b = {.size = want, .formula = tl_shape_formula(sig->ctx, shape, 1)};
        tl_dim_assume_equal(sig->ctx, a, b);
    }
    return TL_OK;
}

static tl_status view_infer(tl_sig *sig) {
    const tl_tensor *t = sig->in[0];
    tl_shape shape = *TL_ATTR(tl_shape, sig);
    int64_t stride[TL_MAX_NDIM];
    int axis = 0;
    tl_status status = tl_sig_check_shape(sig, &shape);
    if (status == TL_OK)
        status = match_counts(sig, &shape);
    if (status != TL_OK)
        return status;
    if (!tl_view_strides(t, &shape, stride, &axis)) {
        char from[200], to[160];
        return tl_sig_fail(
            sig, TL_ERR_SHAPE,
            "%s cannot be seen as %s without a copy: axis %d%s%s does not join the axes after it in memory; "
            "tl_reshape copies where it must",
            tl_tensor_text(t, from, sizeof from), tl_shape_text(&shape, to, sizeof to), axis,
            t->shape.dim[axis].axis ? " " : "", t->shape.dim[axis].axis ? t->shape.dim[axis].axis : "");
    }
    tl_sig_add_view(sig, &shape, stride, t->offset);
    return TL_OK;
}

static tl_status view_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_reshape_(gout[0], *tl_saved_shape(saved, 0), saved->site);
    return tl_ctx_status(ctx);
}

static void view_sample(uint64_t seed, tl_case *c) {
    int64_t a = 1 + tl_sample_below(&seed, 4), b = tl_sample_below(&seed, 5), d = 1 + tl_sample_below(&seed, 7);
    tl_shape shape = {0};
    int form = (int)tl_sample_below(&seed, 3);
    shape.ndim = 1 + form;
    shape.dim[0] = tl_dim_of(form == 0 ? a * b * d : form == 1 ? a * b : 1);
    shape.dim[1] = tl_dim_of(form == 1 ? d : a);
    shape.dim[2] = tl_dim_of(b * d);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, (int64_t[]){a, b, d});
    c->in[0].fixed_layout = true; /* other layouts may need a copy, which a view refuses */
    memcpy(c->attr, &shape, sizeof shape);
    c->n_out = 1;
}

TL_OP(view, sizeof(tl_shape), view_infer, TL_COST_FREE, TL_SAVES_NONE, tl_forward_view, view_grad, view_sample);

tl_tensor *tl_view_(tl_tensor *x, tl_shape shape, const char *site) {
    return tl_run1(&tl_op_view, (tl_tensor *[]){x}, 1, &shape, site);
}

tl_tensor *tl_reshape_(tl_tensor *x, tl_shape shape, const char *site) {
    int64_t have, want, stride[TL_MAX_NDIM];
    int axis;
    /* Only a shape that is right in itself is worth a copy: view says what is wrong with any other. */
    bool whole = x && shape.ndim >= 0 && shape.ndim <= TL_MAX_NDIM && tl_shape_count(&shape, &want) &&
                 tl_shape_count(&x->shape, &have) && have == want;
    if (!whole || tl_view_strides(x, &shape, stride, &axis))
        return tl_view_(x, shape, site);
    tl_tensor *copy = tl_copy_(x, site);
    tl_tensor *view = tl_view_(copy, shape, site);
    tl_release(copy); /* so that the view alone holds the storage */
    return view;
}
