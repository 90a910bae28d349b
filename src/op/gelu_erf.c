/* GELU (Hendrycks & Gimpel 2016, eq. 1): x·Φ(x) = x/2·(1 + erf(x/√2)); derivative Φ(x) + x·φ(x). */
#include "op/elementwise.h"

static void gelu_erf_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 4, 1); /* x/√2: 1, 1 + erf: 1, ·x/2: 2; one erf */
}

static tl_status gelu_erf_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->gelu_erf);
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    tl_unary_cost(sig, cost, 9, 2); /* Φ: 3, φ = e^(−x²/2)/√(2π): 3, Φ + x·φ: 2, ·g: 1; one erf, one exp */
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->gelu_erf_backward);
}

TL_OP(gelu_erf_backward, 0, tl_unary_backward_infer, backward_cost, TL_SAVES_NONE, backward_forward, TL_NO_GRAD,
      tl_unary_backward_sample);

static tl_status gelu_erf_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    return tl_unary_grad(ctx, saved, &tl_op_gelu_erf_backward, gout, gin);
}

TL_OP(gelu_erf, 0, tl_unary_infer, gelu_erf_cost, tl_unary_saves_input, gelu_erf_forward, gelu_erf_grad,
      tl_unary_sample);

tl_tensor *tl_gelu_erf_(tl_tensor *x, const char *site) {
    return tl_run1(&tl_op_gelu_erf, (tl_tensor *[]){x}, 1, NULL, site);
}
