/* A value whose gradients are known already: backward hands them on, times the value's own. */
#include "op/core.h"
#include "tally/ops_choices.h"

#include <string.h>

typedef struct given_attr {
    int n;
} given_attr;

/* in: value, n tensors, n gradients → the value, on its own memory */
static tl_status given_infer(tl_sig *sig) {
    int n = TL_ATTR(given_attr, sig)->n;
    const tl_tensor *value = sig->in[0];
    char a[200], b[200];
    if (tl_tensor_count(value) != 1)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the value is %s; one element would work",
                           tl_tensor_text(value, a, sizeof a));
    for (int i = 1; i <= n; i++)
        if (!tl_shape_equal(&sig->in[i]->shape, &sig->in[n + i]->shape) || sig->in[i]->dtype != sig->in[n + i]->dtype)
            return tl_sig_fail(sig, TL_ERR_SHAPE,
                               "gradient %d is %s and its tensor %s; the same shape and format would work", i,
                               tl_tensor_text(sig->in[n + i], a, sizeof a), tl_tensor_text(sig->in[i], b, sizeof b));
    tl_output *out = tl_sig_add(sig, value->dtype, &value->shape);
    out->alias = 0;
    memcpy(out->stride, value->stride, sizeof out->stride);
    out->offset = value->offset;
    return TL_OK;
}

static void given_saves(const tl_sig *sig, tl_saves *saves) {
    int n = TL_ATTR(given_attr, sig)->n;
    for (int i = 1; i <= n; i++)
        saves->in |= sig->needs_grad[i] ? 1u << (n + i) : 0;
}

tl_tensor *tl_saved_take(const tl_saved *saved, int input) { return saved->take(saved, input); }

static tl_status given_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    int n = ((const given_attr *)tl_saved_attr(saved))->n;
    for (int i = 1; i <= n; i++)
        if (tl_saved_needs(saved, i))
            gin[i] = tl_scale_by_(tl_saved_take(saved, n + i), gout[0], saved->site);
    return tl_ctx_status(ctx);
}

/* No op of the list: what its gradient is is the caller's word, which no finite difference knows. */
static const tl_op given_op = {"given_gradients", sizeof(given_attr), given_infer, tl_cost_free,
                               given_saves,       tl_forward_view,    given_grad,  NULL};

tl_tensor *tl_given_gradients_(tl_tensor *value, tl_tensor *const x[], tl_tensor *const gradient[], int n,
                               const char *site) {
    given_attr attr = {n};
    tl_tensor *in[TL_MAX_IO] = {value};
    if (!value || n < 1 || 2 * n + 1 > TL_MAX_IO)
        return NULL;
    for (int i = 0; i < n; i++) {
        in[1 + i] = x[i];
        in[1 + n + i] = gradient[i];
    }
    return tl_run1(&given_op, in, 2 * n + 1, &attr, site);
}
