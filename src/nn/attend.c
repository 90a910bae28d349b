/* Attention of the families: which columns a row sees, what is added to its scores, and the products. */
#include "nn/cache.h"
#include "tally/ops_layers.h"

#include "tally/grad.h"

/* What the core needs beside q, k and v; in a checkpointed region it is copied, and the tensors in it live with the net. */
struct tl_core {
    tl_net *net;
    tl_attend_options options;
    int64_t past; /* columns before the first row's own */
};

static double scale_of(const struct tl_core *core, const tl_tensor *q) {
    double given = core->options.scale;
    return given != 0 ? given : 1.0 / tl_square_root((double)tl_tensor_size(q, -1));
}

/* [H] as one number a matrix of the scores: [H,1,1], or [G,R,1,1] where heads share keys. */
static tl_tensor *by_matrix(tl_ctx *ctx, tl_tensor *x, const tl_tensor *scores) {
    const tl_shape *s = tl_tensor_shape(scores);
    tl_dim one = tl_dim_of(1);
    if (s->ndim == 5)
        return tl_view(x, TL_SHAPE(ctx, s->dim[1], s->dim[2], one, one));
    return tl_view(x, TL_SHAPE(ctx, s->dim[1], one, one));
}

/* slope·j, a row for each head (Press et al. 2022, ALiBi, section 3): what is the same for a whole row of scores, slope·i,
 * softmax does not see. In the scores' format, as Hugging Face's models have it. */
static tl_tensor *alibi(tl_ctx *ctx, tl_tensor *slopes, const tl_tensor *scores) {
    const tl_shape *s = tl_tensor_shape(scores);
    tl_tensor *column = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, s->dim[s->ndim - 1]), TL_WORK);
    tl_tensor *by_head = by_matrix(ctx, slopes, scores);
    if (!column || !by_head)
        return NULL;
    tl_tensor *bias = tl_mul(tl_cast(by_head, TL_F32), tl_range(column, 0, 1));
    return tl_cast(bias, tl_tensor_dtype(scores));
}

/* Causal softmax of the scores, as far as the options let a row see. */
static tl_tensor *softmax(tl_ctx *ctx, const struct tl_core *core, tl_tensor *scores, double scale) {
    const tl_attend_options *o = &core->options;
    bool limited = o->window > 0 && o->window < tl_tensor_size(scores, -1);
    if (!scores || (!limited && !o->sinks && !o->slopes))
        return tl_softmax(scores, scale, true);
    tl_mask_options seen = {.scale = scale,
                            .causal = true,
                            .offset = core->past,
                            .window_before = limited && !o->chunked ? o->window - 1 : -1,
                            .window_after = -1,
                            .chunk = limited && o->chunked ? o->window : 0};
    if (o->sinks && !(seen.sink = by_matrix(ctx, o->sinks, scores)))
        return NULL;
    tl_tensor *bias = o->slopes ? alibi(ctx, o->slopes, scores) : NULL;
    return o->slopes && !bias ? NULL : tl_masked_softmax(scores, bias, NULL, &seen);
}

/* c·tanh(scale·x/c) */
static tl_tensor *capped(tl_tensor *scores, double scale, double cap) {
    tl_tensor *inner = tl_tanh(tl_scale(scores, scale / cap, 0));
    tl_release(scores);
    return tl_scale(inner, cap, 0);
}

/* in: q[…,T,K], k and v alike, with the axes of the heads in front, [sinks] → out: […,T,L]. */
static tl_status attention_core(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const struct tl_core *core = user;
    tl_net *net = core->net;
    double scale = scale_of(core, in[0]);
    tl_module_begin(ctx, "scores", -1);
    tl_tensor *scores = tl_matmul_causal(in[0], tl_transpose(in[1], -1, -2), TL_CAUSAL_MN);
    tl_module_end(ctx);
    if (core->options.softcap != 0) {
        scores = capped(scores, scale, core->options.softcap);
        scale = 1;
    }
    tl_tensor *weights = softmax(ctx, core, scores, scale);
    tl_release(scores);
    weights = tl_dropout_if(net, weights, net->model.dropout_attention, "attention");
    tl_module_begin(ctx, "values", -1);
    out[0] = tl_matmul_causal(weights, in[2], TL_CAUSAL_MK);
    tl_module_end(ctx);
    return tl_ctx_status(ctx);
}

tl_tensor *tl_attend(tl_net *net, tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attend_options *options) {
    if (!q || !k || !v)
        return NULL;
    tl_ctx *ctx = net->ctx;
    struct tl_core core = {net, *options, tl_first_position(net)};
    if (net->cache && !tl_cache_append(net, &k, &v))
        return NULL;
    const tl_shape *shape = tl_tensor_shape(q);
    tl_dim B = shape->dim[0], T = shape->dim[2], H = shape->dim[1], K = shape->dim[3];
    tl_dim G = tl_tensor_shape(k)->dim[1], L = tl_tensor_shape(v)->dim[3];
    tl_dim seen = tl_tensor_shape(k)->dim[2]; /* T, and before it what a cache holds */
    bool grouped = G.size != H.size;
    if (grouped) { /* H = G·R: the R queries of a group read the same keys, without a copy */
        tl_dim R = tl_dim_div(ctx, H, G), one = tl_dim_of(1);
        q = tl_view(q, TL_SHAPE(ctx, B, G, R, T, K));
        k = tl_view(k, TL_SHAPE(ctx, B, G, one, seen, K));
        v = tl_view(v, TL_SHAPE(ctx, B, G, one, seen, L));
    }
    tl_tensor *in[] = {q, k, v}, *mixed = NULL;
    if (net->recompute.kind == TL_RECOMPUTE_SELECTIVE)
        tl_checkpoint(ctx, attention_core, &core, sizeof core, in, 3, &mixed, 1);
    else
        attention_core(ctx, &core, in, &mixed);
    if (grouped)
        mixed = tl_view(mixed, TL_SHAPE(ctx, B, H, T, L));
    return tl_reshape(tl_transpose(mixed, 1, 2), TL_SHAPE(ctx, B, T, tl_dim_mul(ctx, H, L)));
}
