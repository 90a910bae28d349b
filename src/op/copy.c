/* A contiguous copy in a storage of its own. */
#include "op/elementwise.h"
#include "op/views.h"

static tl_status copy_infer(tl_sig *sig) {
    tl_sig_add(sig, sig->in[0]->dtype, &sig->in[0]->shape);
    return TL_OK;
}

static tl_status copy_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    (void)saved;
    gin[0] = gout[0];
    return tl_ctx_status(ctx);
}

static void copy_sample(uint64_t seed, tl_case *c) {
    tl_unary_sample(seed, c);
    c->tolerance = 0;
}

TL_OP(copy, 0, copy_infer, tl_cost_moves, TL_SAVES_NONE, tl_forward_copy, copy_grad, copy_sample);

tl_tensor *tl_copy_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_copy, (tl_tensor *[]){x}, 1, NULL, site); }

tl_tensor *tl_contiguous_(tl_tensor *x, const char *site) {
    return x && tl_tensor_is_contiguous(x) ? x : tl_copy_(x, site);
}
