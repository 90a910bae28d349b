/* From tokens to the residual stream: the token table, learned positions, scale, norm. */
#include "nn/names.h"

#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

/* Slopes of Press et al. 2022, "Train short, test long": 2^(−8i/n) for i = 1 … n where n heads are a power of two; of the heads
 * beyond the largest power, every other slope of twice as many. */
static void slopes_of(int64_t heads, float *slope) {
    int64_t n = 1;
    double step = 1.0 / 256, between; /* 2^(−8/n) */
    while (2 * n <= heads) {
        n *= 2;
        step = tl_square_root(step);
    }
    between = tl_square_root(step);
    double at = 1;
    for (int64_t i = 0; i < n; i++)
        slope[i] = (float)(at *= step);
    at = between;
    for (int64_t i = n; i < heads; i++, at *= step)
        slope[i] = (float)at;
}

static bool build_slopes(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    size_t bytes = (size_t)net->model.heads * sizeof(float);
    float *values = tl_host_alloc(ctx, bytes);
    if (!values)
        return false;
    slopes_of(net->model.heads, values);
    net->slopes = tl_keep(tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, net->symbols.H), TL_WORK, values, net->model.heads));
    tl_host_free(ctx, values, bytes);
    return net->slopes != NULL;
}

bool tl_embed_build(tl_net *net) {
    char path[96];
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    const tl_names *n = net->names;
    const tl_model *m = &net->model;
    tl_start normal = {TL_START_NORMAL, m->init_std};
    snprintf(path, sizeof path, "%s%s.weight", n->prefix, n->tokens);
    net->token_table = tl_net_parameter(net, path, TL_SHAPE(ctx, s->V, s->De), normal, true, true);
    if (!net->token_table)
        return false;
    if (m->embedding_size > 0) {
        snprintf(path, sizeof path, "%sproject_in", n->prefix);
        if (!(net->embed_in = tl_net_linear(net, path, s->D, s->De, m->init_std, false, NULL)))
            return false;
    }
    if (tl_positions_of(m) == TL_POSITIONS_LEARNED) {
        tl_dim rows = m->position_offset ? tl_dim_add(ctx, s->C, tl_dim_of(m->position_offset)) : s->C;
        snprintf(path, sizeof path, "%s%s.weight", n->prefix, n->positions);
        net->position_table = tl_net_parameter(net, path, TL_SHAPE(ctx, rows, s->D), normal, true, true);
        if (!net->position_table)
            return false;
    }
    if (tl_positions_of(m) == TL_POSITIONS_ALIBI && !build_slopes(net))
        return false;
    snprintf(path, sizeof path, "%s%s", n->prefix, n->embedding_norm ? n->embedding_norm : "");
    return !m->embedding_norm || tl_net_norm(net, &net->embedding_norm, path, s->D);
}

static bool tokens_fit(tl_net *net, const tl_tensor *tokens) {
    char text[200];
    const tl_shape *shape = tl_tensor_shape(tokens);
    if (!net->position_table || (shape->ndim == 2 && shape->dim[1].size <= net->model.context))
        return true;
    tl_ctx_fail(net->ctx, TL_ERR_SHAPE, "tokens are %s; [batch, seq] with at most %lld positions (%s) would work",
                tl_tensor_text(tokens, text, sizeof text), (long long)net->model.context,
                net->model.source_context.text);
    return false;
}

/* One row for each place in a row of tokens; of packed documents one for each token. */
static tl_tensor *positions_of(tl_net *net, const tl_tensor *tokens) {
    const tl_model *m = &net->model;
    tl_tensor *table = net->position_table;
    if (!net->positions)
        return tl_slice(table, 0, m->position_offset + tl_first_position(net), tl_tensor_shape(tokens)->dim[1], 1);
    if (m->position_offset)
        table = tl_slice(table, 0, m->position_offset, net->symbols.C, 1);
    return tl_embedding(table, net->positions);
}

tl_tensor *tl_embed(tl_net *net, tl_tensor *tokens) {
    const tl_names *n = net->names;
    const tl_model *m = &net->model;
    if (!tokens_fit(net, tokens))
        return NULL;
    tl_enter(net, n->embed, -1);
    tl_tensor *x = tl_embedding(net->token_table, tokens);
    if (net->embed_in)
        x = tl_apply_linear(net, "project_in", x, net->embed_in, NULL);
    if (m->embedding_scale > 0 && m->embedding_scale != 1)
        x = tl_scale(x, m->embedding_scale, 0);
    if (net->position_table)
        x = tl_add(x, positions_of(net, tokens));
    if (net->embedding_norm.gain)
        x = tl_apply_norm(net, &net->embedding_norm, n->embedding_norm, x);
    return tl_leave(net, tl_dropout_if(net, x, m->dropout_embedding, "embedding"));
}
