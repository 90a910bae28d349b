/* Attention of the families: which columns a row sees, what is added to its scores, and the products, as chosen. */
#include "nn/cache.h"
#include "tally/ops_attention.h"
#include "tally/ops_index.h"
#include "tally/ops_layers.h"
#include "tally/ops_reduce.h"

#include "tally/grad.h"
#include "tensor/ctx.h"

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

static bool is_narrow(tl_dtype dtype) { return dtype == TL_BF16 || dtype == TL_F16; }

/* [H] as one number a matrix of the scores: [H,1,1], or [G,R,1,1] where heads share keys. */
static tl_tensor *by_matrix(tl_ctx *ctx, tl_tensor *x, const tl_tensor *scores) {
    const tl_shape *s = tl_tensor_shape(scores);
    tl_dim one = tl_dim_of(1);
    if (s->ndim == 5)
        return tl_view(x, TL_SHAPE(ctx, s->dim[1], s->dim[2], one, one));
    return tl_view(x, TL_SHAPE(ctx, s->dim[1], one, one));
}

/* slope·j, a row for each head (Press et al. 2022, ALiBi, section 3): what is the same for a whole row of scores, slope·i,
 * softmax does not see. In the scores' format, as Hugging Face's models have it. Falcon's is made in bf16 whatever the format,
 * and divided by √K with the scores (transformers' modeling_falcon.py, build_alibi_tensor and FalconAttention). */
static tl_tensor *alibi(tl_ctx *ctx, const tl_attend_options *o, const tl_tensor *scores, double scale) {
    const tl_shape *s = tl_tensor_shape(scores);
    tl_dtype made = o->slopes_scaled ? TL_BF16 : TL_F32;
    tl_tensor *column = tl_empty(ctx, made, TL_SHAPE(ctx, s->dim[s->ndim - 1]), TL_WORK);
    tl_tensor *by_head = by_matrix(ctx, o->slopes, scores);
    if (!column || !by_head)
        return NULL;
    tl_tensor *bias = tl_cast(tl_mul(tl_cast(by_head, made), tl_range(column, 0, 1)), tl_tensor_dtype(scores));
    return o->slopes_scaled ? tl_scale(bias, scale, 0) : bias;
}

static tl_mask_options seen_by(const tl_net *net, const tl_attend_options *o, int64_t past, int64_t columns,
                               double scale) {
    bool limited = o->window > 0 && o->window < columns;
    return (tl_mask_options){.scale = scale,
                             .causal = true,
                             .offset = past,
                             .window_before = limited && !o->chunked ? o->window - 1 : -1,
                             .window_after = -1,
                             .chunk = limited && o->chunked ? o->window : 0,
                             .positions = net->positions};
}

/* ---- masks as tensors: additive, one a forward for each way of seeing that a layer has ---- */

/* 0 where a row sees, −∞ where not; `shape` ends in rows and columns. */
static tl_tensor *make_mask(tl_net *net, const tl_attend_options *o, tl_dtype dtype, tl_shape shape) {
    tl_ctx *ctx = net->ctx;
    tl_mask_options seen = seen_by(net, o, 0, shape.dim[shape.ndim - 1].size, 1);
    tl_tensor *zero = tl_empty(ctx, dtype, (tl_shape){.ndim = 0}, TL_WORK);
    return zero && tl_fill(zero, 0) ? tl_masked_scores(tl_expand(zero, shape), NULL, NULL, &seen) : NULL;
}

static bool is_mask_of(const tl_mask *mask, const tl_attend_options *o) {
    return mask->window == o->window && (mask->chunked == o->chunked || o->window == 0);
}

static const tl_mask *mask_of(const tl_net *net, const tl_attend_options *o) {
    for (int i = 0; i < net->n_masks; i++)
        if (is_mask_of(&net->masks[i], o))
            return &net->masks[i];
    return NULL;
}

/* A composed softmax knows no causality either. */
static bool adds_mask(const tl_net *net) {
    const tl_choices *c = &net->choices;
    return (c->mask_tensor || c->softmax == TL_SOFTMAX_COMPOSED) && c->attention == TL_ATTENTION_EAGER && !net->cache;
}

bool tl_make_masks(tl_net *net, const tl_tensor *tokens) {
    const tl_shape *s = tl_tensor_shape(tokens);
    tl_ctx *ctx = net->ctx;
    bool recording = ctx->recording, ok = true;
    if (!adds_mask(net) || s->ndim != 2)
        return true;
    tl_dim each = net->choices.mask_tensor || net->positions ? s->dim[0] : tl_dim_of(1);
    ctx->recording = false;
    tl_module_begin(ctx, "mask", -1);
    for (int64_t i = 0; i < net->model.layers && ok; i++) {
        bool part = net->model.layer[i] & (TL_LAYER_WINDOW | TL_LAYER_CHUNKED);
        tl_attend_options o = {.window = part ? net->model.window : 0,
                               .chunked = (net->model.layer[i] & TL_LAYER_CHUNKED) != 0};
        if (mask_of(net, &o) || net->n_masks == TL_MASKS)
            continue;
        tl_scope_begin(ctx);
        tl_tensor *mask = make_mask(net, &o, net->dtype, TL_SHAPE(ctx, each, tl_dim_of(1), s->dim[1], s->dim[1]));
        if ((ok = mask != NULL))
            net->masks[net->n_masks++] = (tl_mask){tl_keep(mask), o.window, o.chunked};
        tl_scope_end(ctx);
    }
    tl_module_end(ctx);
    ctx->recording = recording;
    return ok;
}

void tl_free_masks(tl_net *net) {
    for (int i = 0; i < net->n_masks; i++)
        tl_free(net->masks[i].tensor);
    net->n_masks = 0;
}

/* ---- scores to weights ---- */

static tl_tensor *let_go(tl_tensor *old, tl_tensor *new) {
    if (new != old)
        tl_release(old);
    return new;
}

/* scale·scores + mask, as operations of their own. */
static tl_tensor *masked(tl_ctx *ctx, tl_tensor *scores, double scale, tl_tensor *mask, tl_tensor *bias) {
    if (scale != 1)
        scores = let_go(scores, tl_scale(scores, scale, 0));
    if (bias && scores)
        scores = let_go(scores, tl_add(scores, bias));
    if (!scores)
        return NULL;
    const tl_shape *s = tl_tensor_shape(scores), *m = tl_tensor_shape(mask);
    if (s->ndim == 5 && m->ndim == 4)
        mask = tl_view(mask, TL_SHAPE(ctx, m->dim[0], m->dim[1], tl_dim_of(1), m->dim[2], m->dim[3]));
    return let_go(scores, tl_add(scores, mask));
}

/* e^(x − the largest of its row) over their sum, as CS336's handout writes it. Python lets what no later line reads go. */
static tl_tensor *composed_softmax(tl_tensor *x) {
    tl_tensor *place = tl_argmax_along(x, -1, true, false), *top = tl_gather_elements(x, place, -1);
    tl_tensor *away = tl_sub(x, top);
    tl_release(place);
    tl_release(top);
    tl_tensor *power = let_go(away, tl_exp(away)), *sum = tl_sum(power, (int[]){-1}, 1, true);
    tl_tensor *y = tl_div(power, sum);
    tl_release(power);
    tl_release(sum);
    return y;
}

/* torch.max(scores, finfo.min): keeps the scores. Takes them. */
static tl_tensor *clamped(tl_ctx *ctx, tl_tensor *scores) {
    tl_dtype dtype = scores ? tl_tensor_dtype(scores) : TL_F32;
    double lowest = dtype == TL_F16 ? -65504.0 : dtype == TL_BF16 ? -0x1.FEp127 : -0x1.FFFFFEp127;
    tl_tensor *one = tl_empty(ctx, dtype, TL_SHAPE(ctx, tl_dim_of(1)), TL_WORK);
    return let_go(scores, tl_maximum(scores, one ? tl_fill(one, lowest) : NULL));
}

/* Causal softmax of the scores, as far as the options let a row see. `mask` is there already where it is not NULL. `scale` is
 * what is still to be multiplied, `whole` what is in the end. Takes the scores. */
static tl_tensor *softmax(tl_ctx *ctx, const struct tl_core *core, tl_tensor *scores, double scale, double whole,
                          tl_tensor *mask) {
    const tl_attend_options *o = &core->options;
    if (!scores)
        return NULL;
    tl_mask_options seen = seen_by(core->net, o, core->past, tl_tensor_size(scores, -1), scale);
    if (o->sinks && !(seen.sink = by_matrix(ctx, o->sinks, scores)))
        return NULL;
    tl_tensor *bias = o->slopes ? alibi(ctx, o, scores, whole) : NULL;
    if (o->slopes && !bias)
        return NULL;
    tl_dtype dtype = tl_tensor_dtype(scores);
    bool wide =
        core->net->choices.softmax_fp32 && is_narrow(dtype) && core->net->choices.attention == TL_ATTENTION_EAGER;
    if (mask) {
        scores = masked(ctx, scores, scale, mask, bias);
        seen = (tl_mask_options){.scale = 1, .window_before = -1, .window_after = -1, .sink = seen.sink};
        bias = NULL;
        if (core->net->choices.clamp_scores && core->net->choices.attention == TL_ATTENTION_EAGER)
            scores = clamped(ctx, scores);
    }
    if (wide) {
        scores = let_go(scores, tl_cast(scores, TL_F32));
        bias = bias ? tl_cast(bias, TL_F32) : NULL;
        seen.sink = seen.sink ? tl_cast(seen.sink, TL_F32) : NULL;
    }
    if (mask && !seen.sink && core->net->choices.softmax == TL_SOFTMAX_COMPOSED &&
        core->net->choices.attention == TL_ATTENTION_EAGER) {
        tl_tensor *made = scores ? composed_softmax(scores) : NULL;
        tl_release(scores);
        return wide && made ? let_go(made, tl_cast(made, dtype)) : made;
    }
    bool plain = !seen.sink && !seen.positions && !bias && seen.window_before < 0 && seen.chunk == 0;
    tl_tensor *weights =
        plain ? tl_softmax(scores, seen.scale, seen.causal) : tl_masked_softmax(scores, bias, NULL, &seen);
    tl_release(scores);
    return wide && weights ? let_go(weights, tl_cast(weights, dtype)) : weights;
}

/* c·tanh(scale·x/c) */
static tl_tensor *capped(tl_tensor *scores, double scale, double cap) {
    tl_tensor *inner = let_go(scores, tl_scale(scores, scale / cap, 0));
    return tl_scale(let_go(inner, tl_tanh(inner)), cap, 0);
}

/* ---- the products ---- */

/* torch.matmul makes one batch of the leading axes: a view where their strides allow, else a copy. */
static tl_tensor *one_batch(tl_tensor *x) {
    int lead = x ? tl_tensor_ndim(x) - 2 : 0;
    int64_t stride = -1;
    for (int d = lead - 1; d >= 0; d--) {
        if (tl_tensor_size(x, d) == 1)
            continue;
        if (stride >= 0 && tl_tensor_stride(x, d) != stride)
            return tl_copy(x);
        stride = tl_tensor_stride(x, d) * tl_tensor_size(x, d);
    }
    return x;
}

/* in: q[…,T,K], k and v alike, with the axes of the heads in front → out: […,T,L]. */
static tl_status eager_core(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const struct tl_core *core = user;
    tl_net *net = core->net;
    const tl_choices *c = &net->choices;
    const tl_attend_options *o = &core->options;
    double scale = scale_of(core, in[0]), whole = scale;
    bool math = c->attention == TL_ATTENTION_MATH;
    tl_tensor *q = in[0], *k = in[1], *v = in[2], *mask = NULL;
    if (math && !net->cache) {
        tl_dim B = tl_tensor_shape(q)->dim[0], T = tl_tensor_shape(q)->dim[tl_tensor_ndim(q) - 2];
        q = tl_scale(q, scale, 0);
        scale = 1;
        mask = make_mask(net, o, tl_tensor_dtype(q),
                         net->positions ? TL_SHAPE(ctx, B, tl_dim_of(1), T, T) : TL_SHAPE(ctx, T, T));
    } else if (adds_mask(net) && mask_of(net, o))
        mask = mask_of(net, o)->tensor;
    k = tl_transpose(k, -1, -2);
    if (c->attention_copies) {
        q = one_batch(q);
        k = one_batch(k);
        v = one_batch(v);
    }
    tl_module_begin(ctx, "scores", -1);
    tl_tensor *scores = tl_matmul_causal(q, k, TL_CAUSAL_MN);
    tl_module_end(ctx);
    if (o->softcap != 0) {
        scores = capped(scores, scale, o->softcap);
        scale = 1;
    }
    tl_tensor *weights = softmax(ctx, core, scores, scale, whole, mask);
    if (math)
        tl_release(mask);
    weights = tl_dropout_if(net, weights, net->model.dropout_attention, "attention");
    tl_module_begin(ctx, "values", -1);
    out[0] = tl_matmul_causal(weights, v, TL_CAUSAL_MK);
    tl_module_end(ctx);
    return tl_ctx_status(ctx);
}

static tl_status flash_core(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const struct tl_core *core = user;
    const tl_net *net = core->net;
    const tl_attend_options *o = &core->options;
    tl_mask_options seen = seen_by(net, o, core->past, tl_tensor_size(in[1], 2), 1);
    tl_flash_options flash = {.scale = scale_of(core, in[0]),
                              .softcap = o->softcap,
                              .causal = true,
                              .offset = core->past,
                              .window_before = seen.window_before,
                              .chunk = seen.chunk,
                              .dropout = net->training ? net->model.dropout_attention : 0,
                              .dropout_name = "attention",
                              .sinks = o->sinks,
                              .slopes = o->slopes,
                              .slopes_scaled = o->slopes_scaled,
                              .positions = net->positions};
    tl_module_begin(ctx, "flash", -1);
    out[0] = tl_flash_attention(in[0], in[1], in[2], &flash);
    tl_module_end(ctx);
    return tl_ctx_status(ctx);
}

/* [B,G,S,K] → [B,G,1,S,K] */
static tl_tensor *apart(tl_ctx *ctx, tl_tensor *x) {
    const tl_shape *s = tl_tensor_shape(x);
    return tl_view(x, TL_SHAPE(ctx, s->dim[0], s->dim[1], tl_dim_of(1), s->dim[2], s->dim[3]));
}

/* [B,G,S,K] → [B,G·R,S,K], a copy: Hugging Face's repeat_kv. Of one head it is a view, which torch.matmul copies where it must and
 * sdpa_attention_forward always (contiguous()). */
static tl_tensor *repeated(tl_ctx *ctx, tl_tensor *x, tl_dim H, tl_dim R) {
    if (!x)
        return NULL;
    const tl_shape *s = tl_tensor_shape(x);
    tl_dim B = s->dim[0], G = s->dim[1], S = s->dim[2], K = s->dim[3];
    tl_tensor *all = tl_expand(apart(ctx, x), TL_SHAPE(ctx, B, G, R, S, K));
    return tl_reshape(all, TL_SHAPE(ctx, B, H, S, K));
}

tl_tensor *tl_attend(tl_net *net, tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attend_options *options) {
    if (!q || !k || !v)
        return NULL;
    tl_ctx *ctx = net->ctx;
    struct tl_core core = {net, *options, tl_tensor_size(k, 2) - tl_tensor_size(q, 2)};
    const tl_shape *shape = tl_tensor_shape(q);
    tl_dim B = shape->dim[0], T = shape->dim[2], H = shape->dim[1], K = shape->dim[3];
    tl_dim G = tl_tensor_shape(k)->dim[1], L = tl_tensor_shape(v)->dim[3];
    bool grouped = G.size != H.size, flash = net->choices.attention == TL_ATTENTION_FLASH;
    tl_dim R = grouped ? tl_dim_div(ctx, H, G) : tl_dim_of(1);
    if (grouped && net->choices.repeat_kv) {
        k = repeated(ctx, k, H, R);
        v = repeated(ctx, v, H, R);
        k = flash && k ? tl_contiguous(k) : k;
        v = flash && v ? tl_contiguous(v) : v;
        grouped = false;
    }
    if (grouped && !flash) { /* H = G·R: the R queries of a group read the same keys, without a copy */
        q = tl_view(q, TL_SHAPE(ctx, B, G, R, T, K));
        k = apart(ctx, k);
        v = apart(ctx, v);
    }
    tl_region_function *run = flash ? flash_core : eager_core;
    tl_tensor *in[] = {q, k, v}, *mixed = NULL;
    if (!q || !k || !v)
        return NULL;
    if (net->recompute.kind == TL_RECOMPUTE_SELECTIVE)
        tl_checkpoint(ctx, run, &core, sizeof core, in, 3, &mixed, 1);
    else
        run(ctx, &core, in, &mixed);
    if (grouped && !flash)
        mixed = tl_view(mixed, TL_SHAPE(ctx, B, H, T, L));
    return tl_reshape(tl_transpose(mixed, 1, 2), TL_SHAPE(ctx, B, T, tl_dim_mul(ctx, H, L)));
}
