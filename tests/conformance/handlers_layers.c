/* Norms, losses, attention, positions, optimizer updates. */
#include <string.h>

#include "conformance/conformance.h"
#include "tally/ops_layers.h"
#include "tally/ops_quantize.h"

static bool wanted(const conformance_case *c, int output) { return output < c->n_out && c->out[output].given; }

/* ---- norms ---- */

static void run_layer_norm(conformance_case *c) {
    c->y[0] = tl_layer_norm_from(c->x[0], c->x[1], c->x[2], (int)conformance_int(c, "axis", -1),
                                 conformance_real(c, "epsilon", 1e-5), wanted(c, 1) ? &c->y[1] : NULL,
                                 wanted(c, 2) ? &c->y[2] : NULL);
}

static void run_rms_norm(conformance_case *c) {
    c->y[0] =
        tl_rms_norm_from(c->x[0], c->x[1], (int)conformance_int(c, "axis", -1), conformance_real(c, "epsilon", 1e-5));
}

/* Before version 21 there was one gain a group. */
static tl_tensor *per_channel(tl_tensor *x, tl_tensor *vector) {
    int64_t channels = tl_tensor_size(x, 1), n = tl_tensor_count(vector);
    if (n == channels || n == 0)
        return vector;
    tl_ctx *ctx = tl_tensor_ctx(x);
    tl_tensor *column = tl_view(vector, TL_SHAPE(ctx, tl_dim_of(n), tl_dim_of(1)));
    return tl_reshape(tl_expand(column, TL_SHAPE(ctx, tl_dim_of(n), tl_dim_of(channels / n))),
                      TL_SHAPE(ctx, tl_dim_of(channels)));
}

static void run_group_norm(conformance_case *c) {
    c->y[0] = tl_group_norm(c->x[0], per_channel(c->x[0], c->x[1]), per_channel(c->x[0], c->x[2]),
                            conformance_int(c, "num_groups", 1), conformance_real(c, "epsilon", 1e-5));
}

static void run_mean_variance_norm(conformance_case *c) {
    int64_t given[TL_MAX_NDIM];
    int axes[TL_MAX_NDIM] = {0, 2, 3}, n = conformance_ints(c, -1, "axes", given);
    for (int i = 0; i < n; i++)
        axes[i] = (int)given[i];
    c->y[0] = tl_mean_variance_norm(c->x[0], axes, n < 0 ? 3 : n, 1e-9);
}

/* ---- losses ---- */

static tl_loss_options loss_of(const conformance_case *c) {
    const char *reduction = conformance_text(c, "reduction", "mean");
    return (tl_loss_options){.reduction = strcmp(reduction, "none") == 0  ? TL_LOSS_NONE
                                          : strcmp(reduction, "sum") == 0 ? TL_LOSS_SUM
                                                                          : TL_LOSS_MEAN,
                             .ignores = conformance_has(c, "ignore_index"),
                             .ignore_index = conformance_int(c, "ignore_index", 0)};
}

static void run_nll_loss(conformance_case *c) {
    tl_loss_options options = loss_of(c);
    c->y[0] = tl_cast(tl_nll_loss(c->x[0], c->x[1], c->x[2], &options), c->out[0].dtype);
}

static void run_cross_entropy(conformance_case *c) {
    tl_loss_options options = loss_of(c);
    tl_tensor *loss = tl_cross_entropy_loss(c->x[0], c->x[1], c->x[2], &options, wanted(c, 1) ? &c->y[1] : NULL);
    c->y[0] = tl_cast(loss, c->out[0].dtype);
}

/* ---- attention ---- */

static void run_attention(conformance_case *c) {
    tl_attention_options options = {.scale = conformance_real(c, "scale", 0),
                                    .softcap = conformance_real(c, "softcap", 0),
                                    .causal = conformance_int(c, "is_causal", 0) != 0,
                                    .heads = conformance_int(c, "q_num_heads", 0),
                                    .kv_heads = conformance_int(c, "kv_num_heads", 0),
                                    .mask = c->x[3],
                                    .past_key = c->x[4],
                                    .past_value = c->x[5],
                                    .lengths = c->x[6],
                                    .present_key = wanted(c, 1) ? &c->y[1] : NULL,
                                    .present_value = wanted(c, 2) ? &c->y[2] : NULL,
                                    .scores = wanted(c, 3) ? &c->y[3] : NULL};
    options.scores_kind = (tl_attention_scores)conformance_int(c, "qk_matmul_output_mode", 0);
    c->y[0] = tl_attention(c->x[0], c->x[1], c->x[2], &options);
}

static void run_rotary(conformance_case *c) {
    tl_rotary_cache cache = {.cosine = c->x[1],
                             .sine = c->x[2],
                             .position_ids = c->x[3],
                             .heads = conformance_int(c, "num_heads", 0),
                             .rotated = conformance_int(c, "rotary_embedding_dim", 0),
                             .interleaved = conformance_int(c, "interleaved", 0) != 0};
    c->y[0] = tl_rotary_cached(c->x[0], &cache);
}

/* ---- gates and dropout ---- */

static void run_swiglu(conformance_case *c) { c->y[0] = tl_swiglu(c->x[0], c->x[1], conformance_real(c, "alpha", 1)); }

static void run_gelu(conformance_case *c) {
    bool by_tanh = strcmp(conformance_text(c, "approximate", "none"), "tanh") == 0;
    c->y[0] = by_tanh ? tl_gelu_tanh(c->x[0]) : tl_gelu_erf(c->x[0]);
}

static void run_dropout(conformance_case *c) {
    bool training = conformance_first(c, 2, 0) != 0;
    if (training && conformance_first(c, 1, conformance_real(c, "ratio", 0.5)) != 0) {
        conformance_skip(c, "random numbers of another generator");
        return;
    }
    c->y[0] = tl_copy(c->x[0]);
    if (wanted(c, 1))
        c->y[1] = tl_fill(tl_empty(c->ctx, TL_BOOL, *tl_tensor_shape(c->x[0]), TL_WORK), 1);
}

/* ---- quantising ---- */

static tl_quantize_options quantize_of(const conformance_case *c) {
    return (tl_quantize_options){.axis = (int)conformance_int(c, "axis", 1),
                                 .block = conformance_int(c, "block_size", 0),
                                 .overflows = conformance_int(c, "saturate", 1) == 0};
}

static void run_quantize(conformance_case *c) {
    tl_quantize_options options = quantize_of(c);
    conformance_exact(c);
    c->y[0] = tl_quantize(c->x[0], c->x[1], c->x[2], c->out[0].dtype, &options);
}

static void run_dequantize(conformance_case *c) {
    tl_quantize_options options = quantize_of(c);
    c->y[0] = tl_cast(tl_dequantize(c->x[0], c->x[1], c->x[2], &options), c->out[0].dtype);
}

/* ---- optimizers ----
 * Inputs R, T, then all X, all G, all states. ONNX adds norm·X to the gradient (L2), where AdamW decays apart from it. */

typedef struct step {
    int n, states;
    double rate, count;
} step;

static step step_of(conformance_case *c, int states) {
    step s = {.states = states, .n = (c->n_in - 2) / (2 + states)};
    s.rate = conformance_first(c, 0, 0);
    s.count = conformance_first(c, 1, 0);
    return s;
}

/* norm·X + G */
static tl_tensor *regular(conformance_case *c, const step *s, int i) {
    tl_tensor *x = c->x[2 + i], *g = c->x[2 + s->n + i];
    return tl_add(tl_scale(x, conformance_real(c, "norm_coefficient", 0), 0), g);
}

/* Our SGD's buffer takes the whole gradient: the same where beta is 1 or does not act yet; otherwise composed. */
static void run_momentum(conformance_case *c) {
    step s = step_of(c, 1);
    bool nesterov = strcmp(conformance_text(c, "mode", "standard"), "nesterov") == 0;
    double alpha = conformance_real(c, "alpha", 0), beta = s.count > 0 ? conformance_real(c, "beta", 1) : 1;
    double norm = conformance_real(c, "norm_coefficient", 0);
    for (int i = 0; i < s.n; i++) {
        tl_tensor *x = tl_copy(c->x[2 + i]), *v = tl_copy(c->x[2 + 2 * s.n + i]);
        if (beta == 1)
            tl_sgd_update(x, c->x[2 + s.n + i], v, NULL, s.rate, alpha, norm, nesterov, false);
        else {
            tl_tensor *g = regular(c, &s, i);
            v = tl_add(tl_scale(v, alpha, 0), tl_scale(g, beta, 0));
            x = tl_sub(x, tl_scale(nesterov ? tl_add(g, tl_scale(v, alpha, 0)) : v, s.rate, 0));
        }
        c->y[i] = x;
        c->y[s.n + i] = v;
    }
}

/* The rate decays with the step; ε stands outside the root and norm is L2, both as options have it. */
static void run_adagrad(conformance_case *c) {
    step s = step_of(c, 1);
    tl_adagrad_options options = {.lr = s.rate / (1 + s.count * conformance_real(c, "decay_factor", 0)),
                                  .epsilon = conformance_real(c, "epsilon", 0),
                                  .weight_decay = conformance_real(c, "norm_coefficient", 0),
                                  .epsilon_outside = true};
    for (int i = 0; i < s.n; i++) {
        c->y[i] = tl_copy(c->x[2 + i]);
        c->y[s.n + i] = tl_copy(c->x[2 + 2 * s.n + i]);
        tl_adagrad_update(c->y[i], c->x[2 + s.n + i], c->y[s.n + i], NULL, &options);
    }
}

/* CS336's order of AdamW is ONNX's from T = 1 on; at 0 ONNX corrects no bias, which is composed. */
static void run_adam(conformance_case *c) {
    step s = step_of(c, 2);
    double alpha = conformance_real(c, "alpha", 0.9), beta = conformance_real(c, "beta", 0.999);
    double epsilon = conformance_real(c, "epsilon", 0), post = conformance_real(c, "norm_coefficient_post", 0);
    for (int i = 0; i < s.n; i++) {
        tl_tensor *x = tl_copy(c->x[2 + i]), *g = regular(c, &s, i);
        tl_tensor *v = tl_copy(c->x[2 + 2 * s.n + i]), *h = tl_copy(c->x[2 + 3 * s.n + i]);
        if (s.count > 0) {
            tl_adamw_options options = {.lr = s.rate,
                                        .beta1 = alpha,
                                        .beta2 = beta,
                                        .epsilon = epsilon,
                                        .step = (int64_t)s.count,
                                        .cs336 = true};
            tl_adamw_update(x, g, v, h, NULL, &options);
        } else {
            v = tl_add(tl_scale(v, alpha, 0), tl_scale(g, 1 - alpha, 0));
            h = tl_add(tl_scale(h, beta, 0), tl_scale(tl_mul(g, g), 1 - beta, 0));
            x = tl_sub(x, tl_scale(tl_div(v, tl_scale(tl_sqrt(h), 1, epsilon)), s.rate, 0));
        }
        c->y[i] = tl_scale(x, 1 - post, 0);
        c->y[s.n + i] = v;
        c->y[2 * s.n + i] = h;
    }
}

const conformance_entry conformance_layers[] = {
    {"Adagrad", run_adagrad},
    {"Adam", run_adam},
    {"Attention", run_attention},
    {"DequantizeLinear", run_dequantize},
    {"Dropout", run_dropout},
    {"Gelu", run_gelu},
    {"GroupNormalization", run_group_norm},
    {"LayerNormalization", run_layer_norm},
    {"MeanVarianceNormalization", run_mean_variance_norm},
    {"Momentum", run_momentum},
    {"NegativeLogLikelihoodLoss", run_nll_loss},
    {"QuantizeLinear", run_quantize},
    {"RMSNormalization", run_rms_norm},
    {"RotaryEmbedding", run_rotary},
    {"SoftmaxCrossEntropyLoss", run_cross_entropy},
    {"SwiGLU", run_swiglu},
    {NULL, NULL},
};
