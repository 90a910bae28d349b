/* a/b = y, with broadcasting; da = g/b, db = −(g/b)·y: a itself is not kept. */
#include "op/elementwise.h"

static void div_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = 2;
    saves->out = sig->needs_grad[1] ? 1 : 0;
}

static tl_status div_forward(const tl_sig *sig, tl_args *args) { return tl_binary_run(sig, args, args->kernels->div); }

static tl_status div_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    const char *site = saved->site;
    tl_tensor *share = tl_div_(gout[0], tl_saved_in(saved, 1), site);
    if (tl_saved_needs(saved, 0))
        gin[0] = tl_sum_to(share, tl_saved_shape(saved, 0), site);
    if (!tl_saved_needs(saved, 1))
        return tl_ctx_status(ctx);
    tl_tensor *product = tl_mul_(share, tl_saved_out(saved, 0), site);
    if (gin[0] != share)
        tl_release(share);
    gin[1] = tl_sum_to(product, tl_saved_shape(saved, 1), site);
    if (gin[1] != product)
        tl_release(product);
    tl_release(tl_scale_into_(gin[1], -1, site));
    return tl_ctx_status(ctx);
}

TL_OP(div, 0, tl_binary_infer, tl_binary_cost, div_saves, div_forward, div_grad, tl_binary_sample);

tl_tensor *tl_div_(tl_tensor *a, tl_tensor *b, const char *site) {
    return tl_run1(&tl_op_div, (tl_tensor *[]){a, b}, 2, NULL, site);
}
