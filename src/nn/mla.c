/* Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): queries, keys and values are made from vectors of a
 * low rank; of a query and a key the last Kr turn, and that part of the key is one for all heads (equations 9 to 19). Training
 * uses full keys and values. A cache keeps the vectors of low rank and the part of the key that turns, Rkv + Kr a position, and what
 * comes after a prompt reads them as they are: with the matrices that make keys and values in the query and the output instead (the
 * same section, "absorbed"; DeepSeek-V3's inference/model.py, attn_impl "absorb"). */
#include "nn/cache.h"
#include "nn/lora.h"
#include "nn/names.h"
#include "tally/ops_quantize.h"

#include "tensor/ctx.h"

#include <stdio.h>

/* ---- parameters ---- */

static tl_tensor *linear(tl_net *net, const char *path, const char *name, tl_dim out, tl_dim in, bool bias,
                         tl_tensor **bias_out) {
    char text[160];
    snprintf(text, sizeof text, "%s%s.%s", path, net->names->attention, name);
    return tl_net_linear(net, text, out, in, net->model.init_std, bias, bias_out);
}

static bool norm_of(tl_net *net, tl_norm *norm, const char *path, const char *name, tl_dim size) {
    char text[160];
    snprintf(text, sizeof text, "%s%s.%s", path, net->names->attention, name);
    return tl_net_norm(net, norm, text, size);
}

bool tl_latent_build(tl_net *net, tl_block *b, const char *path) {
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    const tl_model *m = &net->model;
    tl_attention *a = &b->attention;
    bool bias = m->attention_bias, ok;
    a->G = s->H;
    a->K = s->K;
    a->L = s->Kv;
    tl_dim q = tl_dim_mul(ctx, s->H, s->K), up = tl_dim_mul(ctx, s->H, tl_dim_add(ctx, s->Kn, s->Kv));
    if (m->q_rank > 0)
        ok = (a->q_down = linear(net, path, "q_a_proj", s->Rq, s->D, bias, &a->q_down_bias)) &&
             norm_of(net, &a->q_down_norm, path, "q_a_layernorm", s->Rq) &&
             (a->q = linear(net, path, "q_b_proj", q, s->Rq, false, NULL));
    else
        ok = (a->q = linear(net, path, "q_proj", q, s->D, false, NULL)) != NULL;
    return ok &&
           (a->kv_down = linear(net, path, "kv_a_proj_with_mqa", tl_dim_add(ctx, s->Rkv, s->Kr), s->D, bias,
                                &a->kv_down_bias)) &&
           norm_of(net, &a->kv_norm, path, "kv_a_layernorm", s->Rkv) &&
           (a->kv_up = linear(net, path, "kv_b_proj", up, s->Rkv, false, NULL)) &&
           (a->out = linear(net, path, net->names->out, s->D, tl_dim_mul(ctx, s->H, s->Kv), bias, &a->out_bias));
}

/* ---- forward ---- */

/* ln x for x > 0 without libm: x = m·2^e with m in [1, 2), ln m = 2·atanh((m − 1)/(m + 1)). */
static double natural_log(double x) {
    int twos = 0;
    for (; x >= 2 && twos < 2000; twos++)
        x /= 2;
    for (; x < 1 && x > 0 && twos > -2000; twos--)
        x *= 2;
    double t = (x - 1) / (x + 1), power = t, sum = 0;
    for (int i = 1; i < 60; i += 2, power *= t * t)
        sum += power / i;
    return 2 * sum + twos * 0.69314718055994530942;
}

/* Scores times 1/√K, and in models stretched by yarn times (0.1·mscale_all·ln(factor) + 1)² (DeepSeek's own model code). */
static double scale_of(const tl_net *net) {
    const tl_model *m = &net->model;
    double scale = m->query_scale > 0 ? m->query_scale : 1 / tl_square_root((double)net->symbols.K.size);
    if (m->rope_scaling != TL_ROPE_YARN || !(m->rope_mscale_all > 0) || !(m->rope_factor > 1))
        return scale;
    double stretch = 0.1 * m->rope_mscale_all * natural_log(m->rope_factor) + 1;
    return scale * stretch * stretch;
}

/* x[B,T,n·size] → [B,n,T,size] */
static tl_tensor *heads(tl_net *net, tl_tensor *x, tl_dim count, tl_dim size) {
    if (!x)
        return NULL;
    const tl_shape *shape = tl_tensor_shape(x);
    return tl_transpose(tl_view(x, TL_SHAPE(net->ctx, shape->dim[0], shape->dim[1], count, size)), 1, 2);
}

/* part: [B,H,T,Kn] and, turned, [B,H,T,Kr]. */
static bool queries(tl_net *net, const tl_attention *a, tl_tensor *x, tl_tensor *part[2]) {
    const tl_symbols *s = &net->symbols;
    const char *name = a->q_down ? "q_b_proj" : "q_proj";
    if (a->q_down) {
        x = tl_apply_linear(net, "q_a_proj", x, a->q_down, a->q_down_bias);
        x = tl_apply_norm(net, &a->q_down_norm, "q_a_layernorm", x);
    }
    tl_tensor *q = heads(net, tl_apply_linear(net, name, x, a->q, NULL), s->H, s->K);
    tl_dim sizes[2] = {s->Kn, s->Kr};
    if (q)
        tl_split(q, -1, sizes, 2, part);
    part[1] = part[1] ? tl_rotate(net, part[1], false) : NULL;
    return part[1] != NULL;
}

/* low: the normed vector of low rank [B,T,Rkv] and the part of the key that turns, not yet turned, [B,T,Kr]. */
static bool narrow(tl_net *net, const tl_attention *a, tl_tensor *x, tl_tensor *low[2]) {
    tl_dim sizes[2] = {net->symbols.Rkv, net->symbols.Kr};
    tl_tensor *both = tl_apply_linear(net, "kv_a_proj_with_mqa", x, a->kv_down, a->kv_down_bias);
    if (both)
        tl_split(both, -1, sizes, 2, low);
    low[0] = low[0] ? tl_apply_norm(net, &a->kv_norm, "kv_a_layernorm", low[0]) : NULL;
    return low[0] != NULL;
}

/* [B,T,Kr] → [B,1,T,Kr], turned: the part of a key that all heads share. */
static tl_tensor *turn(tl_net *net, tl_tensor *raw) {
    return tl_rotate(net, heads(net, raw, tl_dim_of(1), net->symbols.Kr), false);
}

/* Keys [B,H,T,K], and *value [B,H,T,Kv], of low[B,T,Rkv] and what turns: `turned`, or `raw` where that is NULL. */
static tl_tensor *keys(tl_net *net, const tl_attention *a, tl_tensor *low, tl_tensor *raw, tl_tensor *turned,
                       tl_tensor **value) {
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    tl_dim wide[2] = {s->Kn, s->Kv};
    tl_tensor *part[2] = {0}, *kv = tl_apply_linear(net, "kv_b_proj", low, a->kv_up, NULL);
    kv = heads(net, kv, s->H, tl_dim_add(ctx, s->Kn, s->Kv));
    if (!kv)
        return NULL;
    tl_split(kv, -1, wide, 2, part);
    turned = turned ? turned : turn(net, raw);
    *value = part[1];
    if (!turned)
        return NULL;
    const tl_shape *shape = tl_tensor_shape(turned);
    tl_tensor *key[2] = {part[0], tl_expand(turned, TL_SHAPE(ctx, shape->dim[0], s->H, shape->dim[2], s->Kr))};
    return key[1] ? tl_concat(key, 2, -1) : NULL;
}

/* ---- through a cache ---- */

/* kv_b_proj's weight as numbers, [1,H,Kn+Kv,Rkv]. */
static tl_tensor *up_weight(tl_net *net, const tl_attention *a) {
    const tl_symbols *s = &net->symbols;
    const tl_lora_slot *slot = tl_lora_slot_of(net, a->kv_up, false);
    tl_tensor *scale = tl_net_scale_of(net, a->kv_up), *w = a->kv_up;
    const tl_quantize_options rows = {.axis = 0};
    if (slot && slot->kind != TL_LORA_PLAIN)
        w = tl_lora_full(net, slot, net->dtype);
    else if (scale)
        w = tl_cast(tl_dequantize(w, scale, NULL, &rows), net->dtype);
    return w ? tl_view(w, TL_SHAPE(net->ctx, tl_dim_of(1), s->H, tl_dim_add(net->ctx, s->Kn, s->Kv), s->Rkv)) : NULL;
}

/* q·(W c) = (Wᵀq)·c, and Σp·(W c) = W·Σp·c: one key of Rkv + Kr for all heads, whose first Rkv are the value too. `all` is
 * [B,1,S,Rkv+Kr]. */
static tl_tensor *absorbed(tl_net *net, const tl_attention *a, tl_tensor *q[2], tl_tensor *all,
                           const tl_attend_options *options) {
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    const tl_shape *shape = tl_tensor_shape(q[0]);
    tl_dim B = shape->dim[0], T = shape->dim[2];
    tl_module_begin(ctx, "kv_b_proj", -1);
    tl_tensor *up = up_weight(net, a), *wide = NULL;
    tl_tensor *query[2] = {up ? tl_matmul(q[0], tl_slice(up, 2, 0, s->Kn, 1)) : NULL, q[1]};
    tl_module_end(ctx);
    tl_tensor *seeking = query[0] ? tl_concat(query, 2, -1) : NULL;
    tl_tensor *mixed = seeking ? tl_attend(net, seeking, all, tl_slice(all, -1, 0, s->Rkv, 1), options) : NULL;
    if (!mixed)
        return NULL;
    tl_module_begin(ctx, "kv_b_proj", -1);
    wide = tl_matmul(heads(net, mixed, s->H, s->Rkv), tl_transpose(tl_slice(up, 2, s->Kn.size, s->Kv, 1), -1, -2));
    wide = tl_reshape(tl_transpose(wide, 1, 2), TL_SHAPE(ctx, B, T, tl_dim_mul(ctx, s->H, s->Kv)));
    tl_module_end(ctx);
    return wide;
}

/* A prompt makes keys and values of its own, as training does: absorbing would cost it more. With adapters on kv_b_proj so does
 * whatever follows. */
static tl_tensor *through_cache(tl_net *net, const tl_block *b, tl_tensor *x, tl_tensor *q[2],
                                const tl_attend_options *options) {
    const tl_attention *a = &b->attention;
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    const tl_lora_slot *slot = tl_lora_slot_of(net, a->kv_up, false);
    tl_tensor *low[2] = {0}, *turned = narrow(net, a, x, low) ? turn(net, low[1]) : NULL, *v = NULL;
    const tl_shape *shape = turned ? tl_tensor_shape(turned) : NULL;
    if (!shape)
        return NULL;
    tl_dim B = shape->dim[0], T = shape->dim[2];
    tl_tensor *part[2] = {tl_view(low[0], TL_SHAPE(ctx, B, tl_dim_of(1), T, s->Rkv)), turned};
    tl_tensor *all = part[0] ? tl_cache_append_latent(net, b, tl_concat(part, 2, -1)) : NULL;
    if (!all)
        return NULL;
    if (net->cache->length > 0 && !(slot && slot->a))
        return absorbed(net, a, q, all, options);
    if (net->cache->length > 0) {
        tl_dim S = tl_tensor_shape(all)->dim[2];
        low[0] = tl_view(tl_contiguous(tl_slice(all, -1, 0, s->Rkv, 1)), TL_SHAPE(ctx, B, S, s->Rkv));
        turned = tl_slice(all, -1, s->Rkv.size, s->Kr, 1);
    }
    tl_tensor *query = tl_concat(q, 2, -1), *k = keys(net, a, low[0], NULL, turned, &v);
    return tl_attend(net, query, k, v, options);
}

tl_tensor *tl_apply_latent(tl_net *net, const tl_block *b, tl_tensor *x) {
    const tl_attention *a = &b->attention;
    tl_attend_options options = {.scale = scale_of(net), .softcap = net->model.attention_softcap};
    tl_tensor *v = NULL, *q[2] = {0}, *low[2] = {0}, *mixed = NULL;
    tl_enter(net, net->names->attention, -1);
    if (queries(net, a, x, q) && !net->cache) {
        tl_tensor *query = tl_concat(q, 2, -1);
        tl_tensor *k = query && narrow(net, a, x, low) ? keys(net, a, low[0], low[1], NULL, &v) : NULL;
        mixed = tl_attend(net, query, k, v, &options);
    } else if (q[1]) {
        mixed = through_cache(net, b, x, q, &options);
    }
    tl_tensor *y = tl_apply_linear(net, net->names->out, mixed, a->out, a->out_bias);
    return tl_leave(net, tl_dropout_if(net, y, net->model.dropout_residual, "attention.residual"));
}
