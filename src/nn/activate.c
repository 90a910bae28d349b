/* Activations and gates. */
#include "nn/net.h"
#include "tally/ops_layers.h"

#include "tensor/ctx.h"

tl_tensor *tl_activate(tl_net *net, tl_tensor *x) {
    switch (net->model.activation) {
    case TL_GELU_TANH:
        return tl_gelu_tanh(x);
    case TL_GELU_ERF:
        return tl_gelu_erf(x);
    case TL_SILU:
        return tl_silu(x);
    case TL_RELU:
        return tl_relu(x);
    case TL_GLU_CLAMPED: /* of a gate and a value: tl_gated */
        break;
    }
    tl_ctx_fail(net->ctx, TL_ERR_UNSUPPORTED, "%s has an activation of a gate and a value, and no gate here",
                net->model.name);
    return NULL;
}

#define CLAMP 7.0 /* gpt-oss: swiglu_limit and alpha of its reference model */
#define CLAMPED_ALPHA 1.702

/* gate·σ(1.702·gate)·(up + 1), the gate at most 7 and the value within ±7 (OpenAI's gpt-oss, torch/model.py, swiglu). */
static tl_tensor *clamped(tl_tensor *gate, tl_tensor *up) {
    tl_tensor *value = tl_clamp(up, -CLAMP, CLAMP), *limited = tl_clamp(gate, -__builtin_inf(), CLAMP);
    return tl_mul(tl_scale(value, 1, 1), tl_swish(limited, CLAMPED_ALPHA));
}

tl_tensor *tl_gated(tl_net *net, tl_tensor *gate, tl_tensor *up) {
    if (net->model.activation == TL_GLU_CLAMPED)
        return clamped(gate, up);
    return tl_mul(tl_activate(net, gate), up);
}
