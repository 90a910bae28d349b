/* Activations and gates, as one op or operation by operation. */
#include "nn/net.h"
#include "tally/ops_choices.h"
#include "tally/ops_layers.h"

#include "tensor/ctx.h"

#define ROOT_2_OVER_PI 0.79788456080286535588

/* 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) as Hugging Face's NewGELUActivation writes it: x, tanh, 1 + tanh and x/2 are kept. */
static tl_tensor *composed_gelu(tl_tensor *x) {
    tl_tensor *cube = tl_power_of(x, 3), *part = tl_scale(cube, 0.044715, 0);
    tl_release(cube);
    tl_tensor *sum = tl_add(x, part);
    tl_release(part);
    tl_tensor *inner = tl_scale(sum, ROOT_2_OVER_PI, 0);
    tl_release(sum);
    tl_tensor *bent = tl_tanh(inner);
    tl_release(inner);
    tl_tensor *more = tl_scale(bent, 1, 1);
    tl_release(bent);
    tl_tensor *half = tl_scale(x, 0.5, 0), *y = tl_mul(half, more);
    tl_release(half);
    tl_release(more);
    return y;
}

tl_tensor *tl_activate(tl_net *net, tl_tensor *x) {
    switch (net->model.activation) {
    case TL_GELU_TANH:
        return net->choices.gelu == TL_GELU_COMPOSED ? composed_gelu(x) : tl_gelu_tanh(x);
    case TL_GELU_ERF:
        return tl_gelu_erf(x);
    case TL_SILU:
        return net->choices.silu == TL_SILU_COMPOSED ? tl_mul(x, tl_sigmoid(x)) : tl_silu(x);
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
static tl_tensor *clamped(tl_tensor *gate, tl_tensor *up, bool fused) {
    tl_tensor *value = tl_clamp(up, -CLAMP, CLAMP), *limited = tl_clamp(gate, -__builtin_inf(), CLAMP);
    tl_tensor *more = tl_scale(value, 1, 1);
    tl_release(value);
    return fused ? tl_swiglu(limited, more, CLAMPED_ALPHA) : tl_mul(more, tl_swish(limited, CLAMPED_ALPHA));
}

tl_tensor *tl_gated(tl_net *net, tl_tensor *gate, tl_tensor *up) {
    tl_activation activation = net->model.activation;
    bool fused = net->choices.glu == TL_GLU_FUSED;
    if (activation == TL_GLU_CLAMPED)
        return clamped(gate, up, fused);
    if (fused && activation == TL_SILU)
        return tl_swiglu(gate, up, 1);
    if (fused && (activation == TL_GELU_TANH || activation == TL_GELU_ERF))
        return tl_geglu(gate, up, activation == TL_GELU_ERF);
    return tl_mul(tl_activate(net, gate), up);
}
