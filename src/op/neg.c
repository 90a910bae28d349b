/* −x. */
#include "op/elementwise.h"

static void neg_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 1, 0); /* one − */ }

static tl_status neg_forward(const tl_sig *sig, tl_args *args) { return tl_args_run(sig, args, args->kernels->neg); }

static tl_status neg_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    gin[0] = tl_neg_(gout[0], saved->site);
    return tl_ctx_status(ctx);
}

TL_OP(neg, 0, tl_unary_infer, neg_cost, TL_SAVES_NONE, neg_forward, neg_grad, tl_unary_sample);

tl_tensor *tl_neg_(tl_tensor *x, const char *site) { return tl_run1(&tl_op_neg, (tl_tensor *[]){x}, 1, NULL, site); }
