/* into += x, in place: how gradients of several uses become one. */
#include "op/elementwise.h"
#include "op/inplace.h"

static tl_status accumulate_infer(tl_sig *sig) {
    char a[200], b[200];
    bool narrow = sig->in[1]->dtype == TL_BF16 || sig->in[1]->dtype == TL_F16; /* into a sum kept in f32 */
    tl_status status = narrow && sig->in[0]->dtype == TL_F32 ? TL_OK : tl_sig_want_same_dtype(sig);
    if (status == TL_OK)
        status = tl_sig_want_arithmetic(sig, 0);
    if (status != TL_OK)
        return status;
    const tl_shape *into = &sig->in[0]->shape, *x = &sig->in[1]->shape;
    if (!tl_shape_equal(into, x))
        return tl_sig_fail(sig, TL_ERR_SHAPE, "%s is to be added into %s; the shapes must be equal",
                           tl_tensor_text(sig->in[1], a, sizeof a), tl_tensor_text(sig->in[0], b, sizeof b));
    for (int i = 0; i < into->ndim; i++)
        tl_dim_assume_equal(sig->ctx, into->dim[i], x->dim[i]);
    return tl_inplace_infer_any(sig);
}

static tl_status accumulate_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->add);
}

static void accumulate_sample(uint64_t seed, tl_case *c) {
    tl_inplace_sample(seed, c);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 3, c->in[0].size);
}

/* one + an element */
TL_OP(accumulate, 0, accumulate_infer, tl_binary_cost, TL_SAVES_NONE, accumulate_forward, TL_NO_GRAD,
      accumulate_sample);

tl_tensor *tl_accumulate_(tl_tensor *into, tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_accumulate, (tl_tensor *[]){into, x}, 2, NULL, site);
}
