/* What the families share: module brackets, norms, eager attention, the loss. */
#include "nn/cache.h"
#include "nn/lora.h"
#include "tally/ops_quantize.h"

#include "tally/grad.h"

#include <stdio.h>

void tl_enter_(tl_net *net, const char *name, int64_t index, const char *site) {
    tl_module_begin_(net->ctx, name, index, site);
    tl_scope_begin(net->ctx);
}

tl_tensor *tl_leave(tl_net *net, tl_tensor *result) {
    tl_tensor *carried = NULL;
    tl_scope_end_into(net->ctx, &carried, result);
    tl_module_end(net->ctx);
    return carried;
}

tl_tensor *tl_apply_norm(tl_net *net, const tl_norm *norm, const char *name, tl_tensor *x) {
    tl_enter(net, name, -1);
    double epsilon = net->model.norm_epsilon;
    return tl_leave(net, norm->bias ? tl_layer_norm(x, norm->gain, norm->bias, epsilon)
                                    : tl_rms_norm(x, norm->gain, epsilon));
}

tl_tensor *tl_apply_linear_(tl_net *net, const char *name, tl_tensor *x, tl_tensor *w, tl_tensor *bias,
                            const char *site) {
    tl_enter_(net, name, -1, site);
    if (net->lora)
        return tl_leave(net, tl_lora_layer(net, x, w, bias, site));
    tl_tensor *scale = tl_net_scale_of(net, w);
    return tl_leave(net, scale ? tl_linear_int8_(x, w, scale, bias, site) : tl_product_layer(net, x, w, bias, site));
}

tl_tensor *tl_dropout_if(tl_net *net, tl_tensor *x, double p, const char *name) {
    return net->training && p > 0 ? tl_dropout(x, p, name) : x;
}

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
    return NULL;
}

struct tl_core {
    tl_net *net;
};

/* in: q[…,T,K], k and v alike, with the axes of the heads in front → out: […,T,K]. */
static tl_status attention_core(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const struct tl_core *core = user;
    tl_net *net = core->net;
    tl_module_begin(ctx, "scores", -1);
    tl_tensor *scores = tl_matmul_causal(in[0], tl_transpose(in[1], -1, -2), TL_CAUSAL_MN);
    tl_module_end(ctx);
    tl_tensor *weights = tl_softmax(scores, 1.0 / tl_square_root((double)net->symbols.K.size), true);
    tl_release(scores);
    weights = tl_dropout_if(net, weights, net->model.dropout_attention, "attention");
    tl_module_begin(ctx, "values", -1);
    out[0] = tl_matmul_causal(weights, in[2], TL_CAUSAL_MK);
    tl_module_end(ctx);
    return tl_ctx_status(ctx);
}

tl_tensor *tl_gated(tl_net *net, tl_tensor *gate, tl_tensor *up) { return tl_mul(tl_activate(net, gate), up); }

tl_tensor *tl_attend(tl_net *net, tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attend_options *options) {
    (void)options;
    if (!q || !k || !v || (net->cache && !tl_cache_append(net, &k, &v)))
        return NULL;
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    const tl_shape *shape = tl_tensor_shape(q);
    tl_dim B = shape->dim[0], T = shape->dim[2], H = shape->dim[1], K = shape->dim[3];
    tl_dim seen = tl_tensor_shape(k)->dim[2]; /* T, and before it what a cache holds */
    bool grouped = net->model.kv_heads != net->model.heads;
    if (grouped) { /* H = G·R: the R queries of a group read the same keys, without a copy */
        tl_dim R = tl_dim_div(ctx, H, s->G), one = tl_dim_of(1);
        q = tl_view(q, TL_SHAPE(ctx, B, s->G, R, T, K));
        k = tl_view(k, TL_SHAPE(ctx, B, s->G, one, seen, K));
        v = tl_view(v, TL_SHAPE(ctx, B, s->G, one, seen, K));
    }
    struct tl_core core = {net};
    tl_tensor *in[] = {q, k, v}, *mixed = NULL;
    if (net->recompute.kind == TL_RECOMPUTE_SELECTIVE)
        tl_checkpoint(ctx, attention_core, &core, sizeof core, in, 3, &mixed, 1);
    else
        attention_core(ctx, &core, in, &mixed);
    if (grouped)
        mixed = tl_view(mixed, TL_SHAPE(ctx, B, H, T, K));
    return tl_reshape(tl_transpose(mixed, 1, 2), TL_SHAPE(ctx, B, T, tl_dim_mul(ctx, H, K)));
}

tl_tensor *tl_rotate(tl_net *net, tl_tensor *x, bool local) {
    const tl_model *m = &net->model;
    tl_rotary_options options = {.theta = local ? m->rope_local_theta : m->rope_theta,
                                 .first_position = tl_first_position(net),
                                 .interleaved = m->rope_interleaved,
                                 .factor = local ? 0 : m->rope_factor,
                                 .low_freq_factor = m->rope_low_freq,
                                 .high_freq_factor = m->rope_high_freq,
                                 .original_context = m->rope_original_context};
    return tl_rotary(x, &options);
}

int64_t tl_first_position(const tl_net *net) { return net->cache ? net->cache->length : 0; }

struct tl_block_call {
    tl_net *net;
    const tl_block *block;
    tl_block_function *function;
};

static tl_status block_region(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const struct tl_block_call *call = user;
    out[0] = call->function(call->net, call->block, in[0]);
    return tl_ctx_status(ctx);
}

tl_tensor *tl_apply_block(tl_net *net, int64_t index, tl_block_function *function, tl_tensor *x) {
    const tl_recompute *r = &net->recompute;
    bool again = r->kind == TL_RECOMPUTE_FULL || (r->kind == TL_RECOMPUTE_EVERY && index % r->every == 0);
    struct tl_block_call call = {net, &net->blocks[index], function};
    if (!again)
        return function(net, call.block, x);
    tl_tensor *y = NULL;
    tl_checkpoint(net->ctx, block_region, &call, sizeof call, &x, 1, &y, 1);
    return y;
}

tl_tensor *tl_head(tl_net *net, tl_tensor *x) {
    tl_enter(net, "lm_head", -1);
    if (net->cache && net->cache->last_only && x)
        x = tl_slice(x, 1, tl_tensor_size(x, 1) - 1, tl_dim_of(1), 1);
    return tl_leave(net, tl_linear(x, net->head ? net->head : net->token_table, NULL));
}

tl_tensor *tl_token_loss(tl_net *net, tl_tensor *logits, tl_tensor *target) {
    tl_enter(net, "loss", -1);
    return tl_leave(net, tl_cross_entropy(logits, target, TL_IGNORE_INDEX));
}
