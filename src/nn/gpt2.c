/* GPT-2 (Radford et al. 2019): learned positions, pre-norm blocks with LayerNorm and biases, GELU, tied head. Names as in
 * the published checkpoint; weights are [out, in] here (the checkpoint's Conv1D keeps them transposed). */
#include "nn/net.h"

#include "tensor/ctx.h"

#include <stdio.h>

static bool build_block(tl_net *net, int64_t i) {
    char path[64];
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    tl_block *b = &net->blocks[i];
    double std = net->model.init_std;
    double scaled =
        std / tl_square_root(2.0 * (double)net->model.layers); /* residual projections: GPT-2, section 2.3 */
    long long n = (long long)i;
    snprintf(path, sizeof path, "h.%lld.ln_1", n);
    bool ok = tl_net_norm(net, &b->norm_1, path, true);
    snprintf(path, sizeof path, "h.%lld.attn.c_attn", n);
    ok = ok && (b->attention.q = tl_net_linear(net, path, tl_dim_mul(ctx, tl_dim_of(3), s->D), s->D, std, true,
                                               &b->attention.q_bias));
    snprintf(path, sizeof path, "h.%lld.attn.c_proj", n);
    ok = ok && (b->attention.out = tl_net_linear(net, path, s->D, s->D, scaled, true, &b->attention.out_bias));
    snprintf(path, sizeof path, "h.%lld.ln_2", n);
    ok = ok && tl_net_norm(net, &b->norm_2, path, true);
    snprintf(path, sizeof path, "h.%lld.mlp.c_fc", n);
    ok = ok && (b->mlp.up = tl_net_linear(net, path, s->F, s->D, std, true, &b->mlp.up_bias));
    snprintf(path, sizeof path, "h.%lld.mlp.c_proj", n);
    return ok && (b->mlp.down = tl_net_linear(net, path, s->D, s->F, scaled, true, &b->mlp.down_bias));
}

static bool gpt2_build(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    tl_start normal = {TL_START_NORMAL, net->model.init_std};
    net->token_table = tl_net_parameter(net, "wte.weight", TL_SHAPE(ctx, s->V, s->D), normal, true, true);
    if (!net->token_table)
        return false;
    net->position_table = tl_net_parameter(net, "wpe.weight", TL_SHAPE(ctx, s->C, s->D), normal, true, true);
    bool ok = net->position_table != NULL;
    for (tl_repeat r = tl_repeat_begin(ctx, "N", net->model.layers); ok && tl_repeat_next(&r);) {
        tl_module_begin(ctx, "h", r.index);
        ok = build_block(net, r.index);
        tl_module_end(ctx);
        if (!ok)
            tl_repeat_end(&r);
    }
    ok = ok && tl_net_norm(net, &net->final_norm, "ln_f", true);
    if (ok && !net->model.tied)
        ok = (net->head = tl_net_parameter(net, "lm_head.weight", TL_SHAPE(ctx, s->V, s->D), normal, true, true)) !=
             NULL;
    return ok;
}

static tl_tensor *attention(tl_net *net, const tl_block *b, tl_tensor *x) {
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    tl_enter(net, "attn", -1);
    if (!x)
        return tl_leave(net, NULL);
    const tl_shape *shape = tl_tensor_shape(x);
    tl_shape heads = TL_SHAPE(ctx, shape->dim[0], shape->dim[1], s->H, s->K);
    tl_tensor *part[3] = {0};
    tl_dim widths[3] = {s->D, s->D, s->D};
    tl_tensor *fused = tl_apply_linear(net, "c_attn", x, b->attention.q, b->attention.q_bias);
    if (fused)
        tl_split(fused, -1, widths, 3, part);
    for (int i = 0; i < 3; i++)
        part[i] = tl_transpose(tl_view(part[i], heads), 1, 2);
    tl_tensor *mixed = tl_attend(net, part[0], part[1], part[2], &(tl_attend_options){0});
    tl_tensor *y = tl_apply_linear(net, "c_proj", mixed, b->attention.out, b->attention.out_bias);
    return tl_leave(net, tl_dropout_if(net, y, net->model.dropout_residual, "attention.residual"));
}

static tl_tensor *mlp(tl_net *net, const tl_block *b, tl_tensor *x) {
    tl_enter(net, "mlp", -1);
    tl_tensor *up = tl_apply_linear(net, "c_fc", x, b->mlp.up, b->mlp.up_bias);
    tl_tensor *y = tl_apply_linear(net, "c_proj", tl_activate(net, up), b->mlp.down, b->mlp.down_bias);
    return tl_leave(net, tl_dropout_if(net, y, net->model.dropout_residual, "mlp.residual"));
}

static tl_tensor *block(tl_net *net, const tl_block *b, tl_tensor *x) {
    x = tl_add(x, attention(net, b, tl_apply_norm(net, &b->norm_1, "ln_1", x)));
    return tl_add(x, mlp(net, b, tl_apply_norm(net, &b->norm_2, "ln_2", x)));
}

static tl_tensor *embed(tl_net *net, tl_tensor *tokens) {
    const tl_shape *shape = tl_tensor_shape(tokens);
    if (shape->ndim != 2 || shape->dim[1].size > net->model.context) {
        char text[200];
        tl_ctx_fail(net->ctx, TL_ERR_SHAPE, "tokens are %s; [batch, seq] with at most %lld positions (%s) would work",
                    tl_tensor_text(tokens, text, sizeof text), (long long)net->model.context,
                    net->model.source_context.text);
        return NULL;
    }
    tl_enter(net, "embed", -1);
    tl_tensor *x = tl_embedding(net->token_table, tokens);
    tl_tensor *positions = tl_slice(net->position_table, 0, tl_first_position(net), shape->dim[1], 1);
    x = tl_add(x, positions);
    return tl_leave(net, tl_dropout_if(net, x, net->model.dropout_embedding, "embedding"));
}

static tl_tensor *gpt2_hidden(tl_net *net, tl_tensor *tokens) {
    tl_tensor *x = embed(net, tokens);
    for (tl_repeat r = tl_repeat_begin(net->ctx, "N", net->model.layers); tl_repeat_next(&r);) {
        tl_module_begin(net->ctx, "h", r.index);
        tl_tensor *y = tl_apply_block(net, r.index, block, x);
        tl_module_end(net->ctx);
        tl_repeat_into(&r, &x, y);
    }
    tl_tensor *y = tl_apply_norm(net, &net->final_norm, "ln_f", x);
    tl_release(x);
    return y;
}

const tl_family_code tl_family_gpt2 = {"h", gpt2_build, gpt2_hidden, tl_head, tl_token_loss};
