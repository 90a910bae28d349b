/* Writing an op's output into memory that is there: what is refused, and the elementwise ops' forms. */
#include "op/core.h"

/* The same elements in the same order: an elementwise kernel may read and write them in one pass. */
static bool is_exactly(const tl_tensor *a, const tl_tensor *b) {
    bool same = a->storage == b->storage && a->offset == b->offset && a->dtype == b->dtype &&
                tl_shape_equal(&a->shape, &b->shape);
    for (int i = 0; same && i < a->shape.ndim; i++)
        same = a->shape.dim[i].size <= 1 || a->stride[i] == b->stride[i];
    return same;
}

static tl_status check_form(tl_sig *sig, const tl_tensor *into) {
    const tl_output *o = &sig->out[0];
    char want[160], have[200];
    int visible = 0;
    for (int i = 0; i < sig->n_out; i++)
        visible += !sig->out[i].hidden;
    if (visible != 1 || o->hidden || o->alias != TL_NEW)
        return tl_sig_fail(sig, TL_ERR_UNSUPPORTED, "only an op with one new output can be written into a tensor");
    if (into->dtype != o->dtype || !tl_shape_equal(&into->shape, &o->shape))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the result is %s%s but is to be written into %s",
                           tl_dtype_name(o->dtype), tl_shape_text(&o->shape, want, sizeof want),
                           tl_tensor_text(into, have, sizeof have));
    if (!o->elementwise && !tl_tensor_is_contiguous(into))
        return tl_sig_fail(sig, TL_ERR_UNSUPPORTED, "%s is not contiguous; only elementwise ops write along strides",
                           tl_tensor_text(into, have, sizeof have));
    for (int i = 0; i < o->shape.ndim; i++)
        tl_dim_assume_equal(sig->ctx, into->shape.dim[i], o->shape.dim[i]);
    return TL_OK;
}

tl_status tl_sig_check_into(tl_sig *sig, const tl_tensor *into) {
    char text[200];
    tl_status status = check_form(sig, into);
    if (status != TL_OK)
        return status;
    bool recorded = sig->ctx->recording && tl_tensor_needs_grad(into);
    for (int i = 0; i < sig->n_in; i++)
        recorded |= sig->needs_grad[i];
    if (recorded)
        return tl_sig_fail(
            sig, TL_ERR_STATE,
            "writing into %s would be part of a recorded expression; stop recording or take a new tensor",
            tl_tensor_text(into, text, sizeof text));
    if (into->storage->saved > 0)
        return tl_sig_fail(sig, TL_ERR_STATE, "it would write into %s, which backward still needs; copy it first",
                           tl_tensor_text(into, text, sizeof text));
    if (tl_tensor_overlaps_itself(into))
        return tl_sig_fail(sig, TL_ERR_STATE,
                           "it would write through %s, a view in which several indices are one element; copy it first",
                           tl_tensor_text(into, text, sizeof text));
    for (int i = 0; i < sig->n_in; i++) {
        if (!tl_tensors_overlap(sig->in[i], into) || (sig->out[0].elementwise && is_exactly(sig->in[i], into)))
            continue;
        return tl_sig_fail(sig, TL_ERR_STATE, "it would write into memory that its input %d, %s, also reads; %s", i,
                           tl_tensor_text(sig->in[i], text, sizeof text),
                           sig->out[0].elementwise ? "copy that first" : "only an elementwise op can work in place");
    }
    return TL_OK;
}

#define UNARY_INTO(name)                                                                                               \
    extern const tl_op tl_op_##name;                                                                                   \
    tl_tensor *tl_##name##_into_(tl_tensor *out, tl_tensor *x, const char *site) {                                     \
        return x ? tl_run_into(&tl_op_##name, (tl_tensor *[]){x}, 1, NULL, out, site) : NULL;                          \
    }
#define BINARY_INTO(name)                                                                                              \
    extern const tl_op tl_op_##name;                                                                                   \
    tl_tensor *tl_##name##_into_(tl_tensor *out, tl_tensor *a, tl_tensor *b, const char *site) {                       \
        return a && b ? tl_run_into(&tl_op_##name, (tl_tensor *[]){a, b}, 2, NULL, out, site) : NULL;                  \
    }

BINARY_INTO(add)
BINARY_INTO(sub)
BINARY_INTO(mul)
BINARY_INTO(div)
UNARY_INTO(neg)
UNARY_INTO(exp)
UNARY_INTO(log)
UNARY_INTO(sqrt)
UNARY_INTO(rsqrt)
UNARY_INTO(tanh)
UNARY_INTO(relu)
UNARY_INTO(gelu_erf)
UNARY_INTO(gelu_tanh)
UNARY_INTO(silu)
UNARY_INTO(copy)
