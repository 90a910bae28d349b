/* Llama (Touvron et al. 2023) and what is built alike: rotary positions, RMSNorm, gated SiLU, grouped heads, no biases
 * unless the description says so. With `gated` off it is CS336's two-matrix count. Names as in published checkpoints. */
#include "nn/net.h"

#include <stdio.h>

static tl_tensor *weight(tl_net *net, int64_t i, const char *part, tl_dim out, tl_dim in, bool bias,
                         tl_tensor **bias_out) {
    char path[96];
    snprintf(path, sizeof path, "model.layers.%lld.%s", (long long)i, part);
    return tl_net_linear(net, path, out, in, net->model.init_std, bias, bias_out);
}

static bool build_block(tl_net *net, int64_t i) {
    char path[96];
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    const tl_model *m = &net->model;
    tl_block *b = &net->blocks[i];
    tl_attention *a = &b->attention;
    tl_dim q = tl_dim_mul(ctx, s->H, s->K), kv = tl_dim_mul(ctx, s->G, s->K);
    snprintf(path, sizeof path, "model.layers.%lld.input_layernorm", (long long)i);
    bool ok = tl_net_norm(net, &b->norm_1, path, false);
    ok = ok && (a->q = weight(net, i, "self_attn.q_proj", q, s->D, m->attention_bias, &a->q_bias));
    ok = ok && (a->k = weight(net, i, "self_attn.k_proj", kv, s->D, m->attention_bias, &a->k_bias));
    ok = ok && (a->v = weight(net, i, "self_attn.v_proj", kv, s->D, m->attention_bias, &a->v_bias));
    ok = ok && (a->out = weight(net, i, "self_attn.o_proj", s->D, q, m->attention_bias, &a->out_bias));
    snprintf(path, sizeof path, "model.layers.%lld.post_attention_layernorm", (long long)i);
    ok = ok && tl_net_norm(net, &b->norm_2, path, false);
    if (m->gated)
        ok = ok && (b->mlp.gate = weight(net, i, "mlp.gate_proj", s->F, s->D, m->mlp_bias, &b->mlp.gate_bias));
    ok = ok && (b->mlp.up = weight(net, i, "mlp.up_proj", s->F, s->D, m->mlp_bias, &b->mlp.up_bias));
    return ok && (b->mlp.down = weight(net, i, "mlp.down_proj", s->D, s->F, m->mlp_bias, &b->mlp.down_bias));
}

static bool llama_build(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    tl_start normal = {TL_START_NORMAL, net->model.init_std};
    tl_shape table = TL_SHAPE(ctx, s->V, s->D);
    bool ok =
        (net->token_table = tl_net_parameter(net, "model.embed_tokens.weight", table, normal, true, true)) != NULL;
    for (tl_repeat r = tl_repeat_begin(ctx, "N", net->model.layers); ok && tl_repeat_next(&r);) {
        tl_module_begin(ctx, "layers", r.index);
        ok = build_block(net, r.index);
        tl_module_end(ctx);
        if (!ok)
            tl_repeat_end(&r);
    }
    ok = ok && tl_net_norm(net, &net->final_norm, "model.norm", false);
    if (ok && !net->model.tied)
        ok = (net->head = tl_net_parameter(net, "lm_head.weight", table, normal, true, true)) != NULL;
    return ok;
}

static tl_tensor *heads(tl_net *net, const char *name, tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_dim count,
                        bool rotate) {
    tl_tensor *y = tl_apply_linear(net, name, x, w, bias);
    if (!y)
        return NULL;
    const tl_shape *shape = tl_tensor_shape(y);
    tl_shape split = TL_SHAPE(net->ctx, shape->dim[0], shape->dim[1], count, net->symbols.K);
    tl_tensor *z = tl_transpose(tl_view(y, split), 1, 2);
    if (!rotate)
        return z;
    z = tl_rotate(net, z, false);
    tl_release(y);
    return z;
}

static tl_tensor *attention(tl_net *net, const tl_attention *a, tl_tensor *x) {
    const tl_symbols *s = &net->symbols;
    tl_enter(net, "self_attn", -1);
    tl_tensor *q = heads(net, "q_proj", x, a->q, a->q_bias, s->H, true);
    tl_tensor *k = heads(net, "k_proj", x, a->k, a->k_bias, s->G, true);
    tl_tensor *v = heads(net, "v_proj", x, a->v, a->v_bias, s->G, false);
    tl_tensor *mixed = tl_attend(net, q, k, v, &(tl_attend_options){0});
    return tl_leave(net, tl_apply_linear(net, "o_proj", mixed, a->out, a->out_bias));
}

static tl_tensor *mlp(tl_net *net, const tl_mlp *m, tl_tensor *x) {
    tl_enter(net, "mlp", -1);
    tl_tensor *y;
    if (net->model.gated) {
        tl_tensor *gate = tl_apply_linear(net, "gate_proj", x, m->gate, m->gate_bias);
        y = tl_gated(net, gate, tl_apply_linear(net, "up_proj", x, m->up, m->up_bias));
    } else
        y = tl_activate(net, tl_apply_linear(net, "up_proj", x, m->up, m->up_bias));
    return tl_leave(net, tl_apply_linear(net, "down_proj", y, m->down, m->down_bias));
}

static tl_tensor *block(tl_net *net, const tl_block *b, tl_tensor *x) {
    tl_tensor *y = tl_add(x, attention(net, &b->attention, tl_apply_norm(net, &b->norm_1, "input_layernorm", x)));
    tl_tensor *z = mlp(net, &b->mlp, tl_apply_norm(net, &b->norm_2, "post_attention_layernorm", y));
    return tl_add(y, z);
}

static tl_tensor *llama_hidden(tl_net *net, tl_tensor *tokens) {
    tl_enter(net, "embed_tokens", -1);
    tl_tensor *x = tl_leave(net, tl_embedding(net->token_table, tokens));
    for (tl_repeat r = tl_repeat_begin(net->ctx, "N", net->model.layers); tl_repeat_next(&r);) {
        tl_module_begin(net->ctx, "layers", r.index);
        tl_tensor *z = tl_apply_block(net, r.index, block, x);
        tl_module_end(net->ctx);
        tl_repeat_into(&r, &x, z);
    }
    tl_tensor *y = tl_apply_norm(net, &net->final_norm, "norm", x);
    tl_release(x);
    return y;
}

const tl_family_code tl_family_llama = {"layers", llama_build, llama_hidden, tl_head, tl_token_loss};
