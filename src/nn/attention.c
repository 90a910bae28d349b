/* Attention with keys and values of its own size: projections as published, norms of queries and keys, what turns, what a layer
 * sees. Scores, softmax and the weighted sum are tl_attend's. */
#include "nn/cache.h"
#include "nn/lora.h"
#include "nn/names.h"

#include "tensor/ctx.h"

#include <stdio.h>

/* ---- parameters ---- */

static tl_tensor *linear(tl_net *net, const char *path, const char *name, tl_dim out, tl_dim in, double std, bool bias,
                         tl_tensor **bias_out) {
    char text[160];
    snprintf(text, sizeof text, "%s%s.%s", path, net->names->attention, name);
    return tl_net_linear(net, text, out, in, std, bias, bias_out);
}

static bool norm_of(tl_net *net, tl_norm *norm, const char *path, const char *name, tl_dim size) {
    char text[160];
    snprintf(text, sizeof text, "%s%s.%s", path, net->names->attention, name);
    return tl_net_norm(net, norm, text, size);
}

/* `same`: values are the keys before their norm. `shared`: keys and values are another layer's. */
static bool build_projections(tl_net *net, tl_attention *a, const char *path, tl_dim q, tl_dim kv, bool same,
                              bool shared) {
    tl_ctx *ctx = net->ctx;
    const tl_names *n = net->names;
    const tl_model *m = &net->model;
    tl_dim D = net->symbols.D;
    double std = m->init_std;
    bool bias = m->attention_bias || m->qkv_bias || n->biased;
    net->fused_qkv = n->layout != TL_FUSED_NONE ? n->fused : m->fused_qkv && !same ? "qkv_proj" : NULL;
    if (net->fused_qkv) {
        tl_dim all = tl_dim_add(ctx, q, tl_dim_mul(ctx, tl_dim_of(2), kv));
        a->q = linear(net, path, net->fused_qkv, all, D, std, bias, &a->q_bias);
        return a->q != NULL;
    }
    if (!(a->q = linear(net, path, n->q, q, D, std, bias, &a->q_bias)) || shared)
        return a->q != NULL;
    return (a->k = linear(net, path, n->k, kv, D, std, bias, &a->k_bias)) &&
           (same || (a->v = linear(net, path, n->v, kv, D, std, bias, &a->v_bias)));
}

bool tl_attention_build(tl_net *net, tl_block *b, const char *path) {
    char text[160];
    tl_ctx *ctx = net->ctx;
    const tl_names *n = net->names;
    const tl_model *m = &net->model;
    const tl_symbols *s = &net->symbols;
    tl_attention *a = &b->attention;
    bool wide = b->layer & TL_LAYER_GLOBAL_HEADS;
    a->G = wide ? s->Gg : s->G;
    a->K = a->L = wide ? s->Kg : s->K;
    tl_dim q = tl_dim_mul(ctx, s->H, a->K), kv = tl_dim_mul(ctx, a->G, a->K);
    bool shared = b->kv_from >= 0;
    bool ok = build_projections(net, a, path, q, kv, wide && m->keys_are_values, shared);
    if (ok && (m->qk_norm == TL_QK_HEAD || m->qk_norm == TL_QK_ALL)) {
        bool head = m->qk_norm == TL_QK_HEAD;
        ok = norm_of(net, &a->q_norm, path, n->q_norm, head ? a->K : q) &&
             (shared || norm_of(net, &a->k_norm, path, n->k_norm, head ? a->K : kv));
    }
    if (ok && m->sinks) {
        snprintf(text, sizeof text, "%s%s.sinks", path, n->attention);
        ok = (a->sinks = tl_net_parameter(net, text, TL_SHAPE(ctx, s->H), (tl_start){TL_START_NORMAL, m->init_std},
                                          false, false)) != NULL;
    }
    return ok && (a->out = linear(net, path, n->out, s->D, q, tl_residual_std(net),
                                  m->attention_bias || m->out_bias || n->biased, &a->out_bias));
}

/* ---- forward ---- */

static bool turns(const tl_net *net, const tl_block *b) {
    return tl_positions_of(&net->model) == TL_POSITIONS_ROTARY && !(b->layer & TL_LAYER_NO_ROTARY);
}

static tl_tensor *clipped(tl_net *net, tl_tensor *x) {
    return net->model.clip_qkv > 0 ? tl_clamp(x, -net->model.clip_qkv, net->model.clip_qkv) : x;
}

/* 1 + scale·ln(⌊(p + 1)/floor⌋ + 1) at each position, times q[B,H,T,K] (Llama 4, "temperature tuning"). In f32: 16 bits cannot
 * count positions. */
static tl_tensor *tempered(tl_net *net, tl_tensor *q) {
    const tl_model *m = &net->model;
    if (!q)
        return NULL;
    tl_ctx *ctx = net->ctx;
    tl_dtype dtype = tl_tensor_dtype(q);
    tl_dim T = tl_tensor_shape(q)->dim[2];
    tl_tensor *p = tl_empty(ctx, dtype == TL_F64 ? TL_F64 : TL_F32, TL_SHAPE(ctx, T), TL_WORK);
    p = tl_scale(tl_range(p, (double)tl_first_position(net) + 1, 1), 1 / m->temperature_floor, 0);
    p = tl_scale(tl_log(tl_scale(tl_floor(p), 1, 1)), m->temperature_scale, 1);
    return tl_mul(q, tl_view(tl_cast(p, dtype), TL_SHAPE(ctx, T, tl_dim_of(1))));
}

/* heads[B,T,n,K] → [B,n,T,K], normed and turned as queries and keys are. */
static tl_tensor *ready(tl_net *net, const tl_block *b, tl_tensor *heads, const tl_norm *norm, const char *name) {
    if (net->model.qk_norm == TL_QK_HEAD)
        heads = tl_apply_norm(net, norm, name, heads);
    tl_tensor *x = tl_transpose(heads, 1, 2);
    if (!turns(net, b))
        return x;
    x = tl_rotate(net, x, (b->layer & TL_LAYER_LOCAL_ROPE) != 0);
    static const tl_norm without_gain = {.kind = TL_NORM_RMS};
    return net->model.qk_norm == TL_QK_L2 ? tl_apply_norm(net, &without_gain, "qk_norm", x) : x;
}

static tl_tensor *split_heads(tl_net *net, tl_tensor *x, tl_dim count, tl_dim size) {
    if (!x)
        return NULL;
    const tl_shape *shape = tl_tensor_shape(x);
    return tl_view(x, TL_SHAPE(net->ctx, shape->dim[0], shape->dim[1], count, size));
}

struct projected {
    tl_tensor *q, *k, *v; /* [B,n,T,K] */
};

/* One projection each. What a projection gave is let go once a turned copy stands for it. */
static struct projected apart(tl_net *net, const tl_block *b, tl_tensor *x) {
    const tl_names *n = net->names;
    const tl_attention *a = &b->attention;
    const tl_norm *norms[2] = {&a->q_norm, &a->k_norm};
    const char *norm_names[2] = {n->q_norm, n->k_norm}, *names[2] = {n->q, n->k};
    tl_tensor *weight[2] = {a->q, a->k}, *bias[2] = {a->q_bias, a->k_bias}, *made[2] = {0}, *v = NULL;
    tl_dim count[2] = {net->symbols.H, a->G};
    for (int i = 0; i < (b->kv_from < 0 ? 2 : 1); i++) {
        tl_tensor *y = clipped(net, tl_apply_linear(net, names[i], x, weight[i], bias[i]));
        if (!y)
            return (struct projected){0};
        tl_tensor *wide = net->model.qk_norm == TL_QK_ALL ? tl_apply_norm(net, norms[i], norm_names[i], y) : y;
        tl_tensor *heads = split_heads(net, wide, count[i], a->K);
        made[i] = ready(net, b, heads, norms[i], norm_names[i]);
        v = heads; /* where there is no other: the keys before their norm */
        if (turns(net, b))
            tl_release(y);
    }
    if (b->kv_from >= 0)
        return (struct projected){.q = made[0]};
    if (a->v)
        v = split_heads(net, clipped(net, tl_apply_linear(net, n->v, x, a->v, a->v_bias)), a->G, a->L);
    static const tl_norm without_gain = {.kind = TL_NORM_RMS};
    if (net->model.value_norm)
        v = tl_apply_norm(net, &without_gain, "v_norm", v);
    return (struct projected){made[0], made[1], tl_transpose(v, 1, 2)};
}

/* [B,T,H·K + 2·G·K], q, k and v in turn. */
static struct projected in_turn(tl_net *net, const tl_block *b, tl_tensor *fused) {
    tl_ctx *ctx = net->ctx;
    const tl_attention *a = &b->attention;
    tl_dim H = net->symbols.H, kv = tl_dim_mul(ctx, a->G, a->K);
    tl_dim widths[3] = {tl_dim_mul(ctx, H, a->K), kv, kv};
    tl_tensor *part[3] = {0};
    if (fused)
        tl_split(fused, -1, widths, 3, part);
    tl_tensor *q = ready(net, b, split_heads(net, part[0], H, a->K), &a->q_norm, net->names->q_norm);
    tl_tensor *k = ready(net, b, split_heads(net, part[1], a->G, a->K), &a->k_norm, net->names->k_norm);
    return (struct projected){q, k, tl_transpose(split_heads(net, part[2], a->G, a->L), 1, 2)};
}

/* [B,T,G·(R + 2)·K], R = H/G: a group's queries, its key, its value. Queries of several groups lie apart, so that [B,T,H,K] is a
 * copy where both G and R exceed 1. */
static struct projected by_group(tl_net *net, const tl_block *b, tl_tensor *fused) {
    tl_ctx *ctx = net->ctx;
    const tl_attention *a = &b->attention;
    if (!fused)
        return (struct projected){0};
    const tl_shape *shape = tl_tensor_shape(fused);
    tl_dim B = shape->dim[0], T = shape->dim[1], one = tl_dim_of(1);
    tl_dim R = tl_dim_div(ctx, net->symbols.H, a->G), counts[3] = {R, one, one};
    tl_dim each = tl_dim_add(ctx, R, tl_dim_of(2));
    tl_tensor *part[3] = {0};
    tl_split(tl_view(fused, TL_SHAPE(ctx, B, T, a->G, each, a->K)), 3, counts, 3, part);
    tl_shape queries = TL_SHAPE(ctx, B, T, net->symbols.H, a->K), keys = TL_SHAPE(ctx, B, T, a->G, a->K);
    tl_tensor *q = ready(net, b, tl_reshape(part[0], queries), &a->q_norm, net->names->q_norm);
    tl_tensor *k = ready(net, b, tl_view(part[1], keys), &a->k_norm, net->names->k_norm);
    return (struct projected){q, k, tl_transpose(tl_view(part[2], keys), 1, 2)};
}

/* Keys and values that later layers read leave the module's scope. */
static tl_tensor *leave(tl_net *net, const tl_block *b, tl_tensor *y, const struct projected *p, tl_beside *beside) {
    if (!b->kv_given)
        return tl_leave(net, y);
    tl_keep(p->k);
    tl_keep(p->v);
    y = tl_leave(net, y);
    beside->k = tl_scope_take(p->k);
    beside->v = tl_scope_take(p->v);
    return y;
}

tl_tensor *tl_apply_attention(tl_net *net, const tl_block *b, tl_tensor *x, tl_beside *beside) {
    const tl_names *n = net->names;
    const tl_model *m = &net->model;
    const tl_attention *a = &b->attention;
    struct projected p = {0};
    tl_enter(net, n->attention, -1);
    if (x && !net->fused_qkv)
        p = apart(net, b, x);
    else if (x) {
        tl_tensor *fused = clipped(net, tl_apply_linear(net, net->fused_qkv, x, a->q, a->q_bias));
        p = n->layout == TL_FUSED_IN_TURN ? in_turn(net, b, fused) : by_group(net, b, fused);
    }
    if (b->kv_from >= 0) {
        p.k = beside->k;
        p.v = beside->v;
    } else if (!tl_cache_append(net, b, &p.k, &p.v))
        return tl_leave(net, NULL);
    if (m->temperature_scale > 0 && (b->layer & TL_LAYER_NO_ROTARY))
        p.q = tempered(net, p.q);
    bool sees_part = b->layer & (TL_LAYER_WINDOW | TL_LAYER_CHUNKED);
    tl_attend_options options = {.scale = m->query_scale,
                                 .softcap = m->attention_softcap,
                                 .window = sees_part ? m->window : 0,
                                 .chunked = (b->layer & TL_LAYER_CHUNKED) != 0,
                                 .sinks = a->sinks,
                                 .slopes = net->slopes,
                                 .slopes_scaled = m->alibi_scaled};
    tl_tensor *mixed = tl_prefix_attend(net, a, p.q, tl_attend(net, p.q, p.k, p.v, &options));
    tl_tensor *y = tl_apply_linear(net, n->out, mixed, a->out, a->out_bias);
    return leave(net, b, tl_dropout_if(net, y, m->dropout_residual, "attention.residual"), &p, beside);
}
