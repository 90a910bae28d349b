/* One decoder for every family: what a block is made of is in the description (tally/model.h), what its parts are called in
 * nn/names.c. */
#include "nn/lora.h"
#include "nn/names.h"

#include "tensor/ctx.h"

#include <stdio.h>

double tl_residual_std(const tl_net *net) {
    double std = net->model.init_std;
    return net->names->scaled_residual ? std / tl_square_root(2.0 * (double)net->model.layers) : std;
}

void tl_enter_part(tl_net *net, const char *name) {
    if (name && name[0])
        tl_enter(net, name, -1);
    else
        tl_scope_begin(net->ctx);
}

tl_tensor *tl_leave_part(tl_net *net, const char *name, tl_tensor *result) {
    if (name && name[0])
        return tl_leave(net, result);
    tl_tensor *carried = NULL;
    tl_scope_end_into(net->ctx, &carried, result);
    return carried;
}

void tl_block_weights(tl_block *b, tl_tensor **at[TL_BLOCK_WEIGHTS]) {
    tl_attention *a = &b->attention;
    tl_experts *e = &b->experts;
    tl_tensor **all[TL_BLOCK_WEIGHTS] = {
        &a->q,           &a->k,          &a->v,           &a->out,      &a->q_down,
        &a->kv_down,     &a->kv_up,      &b->mlp.gate,    &b->mlp.up,   &b->mlp.down,
        &e->shared.gate, &e->shared.up,  &e->shared.down, &b->own_gate, &b->own_projection,
        &e->router,      &e->shared_gate};
    for (int i = 0; i < TL_BLOCK_WEIGHTS; i++)
        at[i] = all[i];
}

/* ---- parameters ---- */

static bool has_two_norms(const tl_model *m) { return m->place != TL_PLACE_PARALLEL; }

static bool norm_at(tl_net *net, tl_norm *norm, const char *block, const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s%s", block, name);
    return tl_net_norm(net, norm, path, net->symbols.D);
}

/* Gemma 4's layer_scalar is a buffer: published, and moved by no gradient. */
static bool build_scalar(tl_net *net, tl_block *b, const char *block) {
    char name[128];
    snprintf(name, sizeof name, "%slayer_scalar", block);
    b->scalar =
        tl_net_parameter(net, name, TL_SHAPE(net->ctx, tl_dim_of(1)), (tl_start){TL_START_ONE, 0}, false, false);
    if (b->scalar)
        tl_tensor_require_grad(b->scalar, false);
    return b->scalar != NULL;
}

static bool build_block(tl_net *net, int64_t i) {
    char path[96], mlp[128];
    const tl_names *n = net->names;
    const tl_model *m = &net->model;
    tl_block *b = &net->blocks[i];
    int64_t source = tl_model_kv_source(m, i);
    b->layer = m->layer[i];
    b->kv_from = source == i ? -1 : source;
    if (source != i)
        net->blocks[source].kv_given = true;
    snprintf(path, sizeof path, "%s%s.%lld.", n->prefix, n->layers, (long long)i);
    bool around = m->place == TL_PLACE_AROUND;
    bool ok = norm_at(net, &b->norm_1, path, n->norm_1);
    ok = ok && (m->kv_rank > 0 ? tl_latent_build : tl_attention_build)(net, b, path);
    ok = ok && (!around || norm_at(net, &b->norm_1_after, path, n->norm_1_after));
    ok = ok && (!has_two_norms(m) || norm_at(net, &b->norm_2, path, n->norm_2));
    snprintf(mlp, sizeof mlp, "%s%s%s", path, n->mlp, n->mlp[0] ? "." : "");
    bool experts = b->layer & TL_LAYER_EXPERTS;
    tl_dim F = net->symbols.F, width = b->layer & TL_LAYER_WIDE_MLP ? tl_dim_mul(net->ctx, tl_dim_of(2), F) : F;
    ok = ok && ((experts && !m->experts_beside) || tl_mlp_build(net, &b->mlp, mlp, width));
    ok = ok && (!experts || tl_experts_build(net, b, path));
    ok = ok && (!around || norm_at(net, &b->norm_2_after, path, n->norm_2_after));
    ok = ok && (m->layer_input_size == 0 || tl_own_build_block(net, b, path));
    return ok && (!m->layer_scalar || build_scalar(net, b, path));
}

static bool build_head(tl_net *net) {
    char name[96];
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    tl_start normal = {TL_START_NORMAL, net->model.init_std};
    snprintf(name, sizeof name, "%s.weight", net->names->head);
    if (!net->model.tied && !(net->head = tl_net_parameter(net, name, TL_SHAPE(ctx, s->V, s->De), normal, true, true)))
        return false;
    if (net->head && !tl_lora_settle_head(net, net->count - 1))
        return false;
    if (!net->model.head_bias)
        return true;
    snprintf(name, sizeof name, "%s.bias", net->names->head);
    net->head_bias = tl_net_parameter(net, name, TL_SHAPE(ctx, s->V), (tl_start){TL_START_ZERO, 0}, false, true);
    return net->head_bias != NULL;
}

static bool decoder_build(tl_net *net) {
    char path[96];
    tl_ctx *ctx = net->ctx;
    const tl_names *n = net->names = tl_names_of(&net->model);
    bool ok = tl_embed_build(net) && (net->model.layer_input_size == 0 || tl_own_build(net));
    for (tl_repeat r = tl_repeat_begin(ctx, "N", net->model.layers); ok && tl_repeat_next(&r);) {
        tl_module_begin(ctx, n->layers, r.index);
        ok = build_block(net, r.index);
        tl_module_end(ctx);
        if (!ok)
            tl_repeat_end(&r);
    }
    snprintf(path, sizeof path, "%s%s", n->final_outside ? "" : n->prefix, n->final_norm);
    if (net->model.place != TL_PLACE_POST) /* there the last block has normed its result */
        ok = ok && tl_net_norm(net, &net->final_norm, path, net->symbols.D);
    if (ok && net->model.embedding_size > 0) {
        snprintf(path, sizeof path, "%sproject_out", n->prefix);
        ok = (net->embed_out =
                  tl_net_linear(net, path, net->symbols.De, net->symbols.D, net->model.init_std, false, NULL)) != NULL;
    }
    return ok && build_head(net);
}

/* ---- forward ---- */

static tl_tensor *attention(tl_net *net, const tl_block *b, tl_tensor *x, tl_beside *beside) {
    return net->model.kv_rank > 0 ? tl_apply_latent(net, b, x) : tl_apply_attention(net, b, x, beside);
}

static tl_tensor *mlp(tl_net *net, const tl_block *b, tl_tensor *x) {
    if (b->experts.router && !net->model.experts_beside)
        return tl_apply_experts(net, b, x);
    tl_enter_part(net, net->names->mlp);
    tl_tensor *y = tl_dropout_if(net, tl_apply_mlp(net, &b->mlp, x), net->model.dropout_residual, "mlp.residual");
    return tl_leave_part(net, net->names->mlp, y);
}

tl_tensor *tl_decoder_block(tl_net *net, const tl_block *b, tl_tensor *x, tl_beside *beside) {
    const tl_names *n = net->names;
    tl_tensor *y, *z;
    switch (net->model.place) {
    case TL_PLACE_BEFORE:
        y = tl_add(x, attention(net, b, tl_apply_norm(net, &b->norm_1, n->norm_1, x), beside));
        z = mlp(net, b, tl_apply_norm(net, &b->norm_2, n->norm_2, y));
        return tl_add(y, z);
    case TL_PLACE_AFTER:
        y = tl_add(x, tl_apply_norm(net, &b->norm_1, n->norm_1, attention(net, b, x, beside)));
        return tl_add(y, tl_apply_norm(net, &b->norm_2, n->norm_2, mlp(net, b, y)));
    case TL_PLACE_AROUND:
        y = attention(net, b, tl_apply_norm(net, &b->norm_1, n->norm_1, x), beside);
        y = tl_add(x, tl_apply_norm(net, &b->norm_1_after, n->norm_1_after, y));
        z = mlp(net, b, tl_apply_norm(net, &b->norm_2, n->norm_2, y));
        if (b->experts.router && net->model.experts_beside) {
            z = tl_apply_norm(net, &b->mlp_after, "post_feedforward_layernorm_1", z);
            z = tl_add(z, tl_apply_experts_beside(net, b, y));
        }
        z = tl_add(y, tl_apply_norm(net, &b->norm_2_after, n->norm_2_after, z));
        z = b->own_gate ? tl_own_add(net, b, z, beside->own) : z;
        return b->scalar ? tl_mul(z, b->scalar) : z;
    case TL_PLACE_PARALLEL:
    case TL_PLACE_PARALLEL_TWO: {
        tl_tensor *read = tl_apply_norm(net, &b->norm_1, n->norm_1, x);
        y = attention(net, b, read, beside);
        if (net->model.place == TL_PLACE_PARALLEL_TWO)
            read = tl_apply_norm(net, &b->norm_2, n->norm_2, x);
        z = mlp(net, b, read);
        return tl_add(tl_add(y, z), x);
    }
    case TL_PLACE_POST:
        y = tl_apply_norm(net, &b->norm_1, n->norm_1, tl_add(x, attention(net, b, x, beside)));
        return tl_apply_norm(net, &b->norm_2, n->norm_2, tl_add(y, mlp(net, b, y)));
    }
    return NULL;
}

/* Keys and values outlive the iteration that made them while a layer is still to read them. */
static void let_kept_go(tl_net *net) {
    for (int64_t i = 0; i < net->model.layers; i++)
        for (int which = 0; which < 2; which++) {
            tl_free(net->blocks[i].kept[which]);
            net->blocks[i].kept[which] = NULL;
        }
}

static tl_tensor *run_block(tl_net *net, int64_t index, tl_tensor *x, tl_tensor *own) {
    tl_block *b = &net->blocks[index];
    tl_beside beside = {.own = own};
    if (b->kv_from >= 0) {
        beside.k = net->blocks[b->kv_from].kept[0];
        beside.v = net->blocks[b->kv_from].kept[1];
    }
    tl_tensor *y = tl_apply_block(net, index, tl_decoder_block, x, &beside);
    if (b->kv_given) {
        b->kept[0] = tl_keep(beside.k);
        b->kept[1] = tl_keep(beside.v);
    }
    return y;
}

static tl_tensor *decoder_hidden(tl_net *net, tl_tensor *tokens) {
    const tl_names *n = net->names;
    tl_tensor *own[TL_MODEL_LAYERS] = {NULL}, *x = tl_embed(net, tokens);
    if (net->own_table && (!x || !tl_own_inputs(net, tokens, x, own)))
        return NULL;
    for (tl_repeat r = tl_repeat_begin(net->ctx, "N", net->model.layers); tl_repeat_next(&r);) {
        tl_module_begin(net->ctx, n->layers, r.index);
        tl_tensor *y = run_block(net, r.index, x, own[r.index]);
        tl_module_end(net->ctx);
        tl_repeat_into(&r, &x, y);
    }
    let_kept_go(net);
    if (net->model.place != TL_PLACE_POST) {
        tl_tensor *y = tl_apply_norm(net, &net->final_norm, n->final_norm, x);
        tl_release(x);
        x = y;
    }
    return net->embed_out ? tl_apply_linear(net, "project_out", x, net->embed_out, NULL) : x;
}

const tl_family_code tl_decoder = {decoder_build, decoder_hidden, tl_head, tl_token_loss};
