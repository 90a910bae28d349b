/* 1/√x; dx = −g·y³/2. Only the output is kept; at most two temporaries live at a time. */
#include "op/elementwise.h"

static void rsqrt_cost(const tl_sig *sig, tl_cost *cost) { tl_unary_cost(sig, cost, 2, 0); /* one √, one ÷ */ }

static tl_status rsqrt_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->rsqrt);
}

static tl_status rsqrt_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_tensor *y = tl_saved_out(saved, 0), *g = gout[0];
    for (int i = 0; i < 3; i++) {
        tl_tensor *product = tl_mul_(g, y, saved->site);
        if (i > 0)
            tl_release(g);
        g = product;
    }
    gin[0] = g;
    tl_release(tl_scale_into_(g, -0.5, saved->site));
    return tl_ctx_status(ctx);
}

TL_OP(rsqrt, 0, tl_unary_infer, rsqrt_cost, tl_unary_saves_output, rsqrt_forward, rsqrt_grad, tl_unary_sample_positive);

tl_tensor *tl_rsqrt_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_rsqrt, (tl_tensor *[]){x}, 1, NULL, site);
}
