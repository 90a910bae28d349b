/* Attention as a composition: softmax(mask(softcap(scale·q·kᵀ)))·v. What each part saves is what attention saves: q and k (the
 * first product), the tanh (a softcap), the probabilities (softmax and the second product share them) and v. */
#include "op/rows.h"
#include "op/views.h"
#include "tally/ops_index.h"
#include "tally/ops_layers.h"

typedef struct attention_heads {
    tl_tensor *q, *k, *v; /* [B,H,T,K], [B,G,S,K], [B,G,S,L] */
    bool split;           /* they came as [B,T,H·K] */
    int64_t past;
} attention_heads;

static tl_dim dim_of(const tl_tensor *x, int axis) { return x->shape.dim[axis < 0 ? x->shape.ndim + axis : axis]; }

/* [B,T,n·K] → [B,n,T,K], a view */
static tl_tensor *split_heads(tl_tensor *x, int64_t n, const char *site) {
    tl_ctx *ctx = x->ctx;
    tl_dim heads = tl_dim_of(n);
    tl_shape shape = TL_SHAPE(ctx, dim_of(x, 0), dim_of(x, 1), heads, tl_dim_div(ctx, dim_of(x, 2), heads));
    return tl_transpose_(tl_view_(x, shape, site), 1, 2, site);
}

static tl_status fail(const tl_tensor *q, const tl_tensor *k, const tl_tensor *v, const char *site, const char *why) {
    char a[200], b[200], c[200];
    return tl_ctx_fail(q->ctx, TL_ERR_SHAPE, "attention (%s): q %s, k %s, v %s: %s", site,
                       tl_tensor_text(q, a, sizeof a), tl_tensor_text(k, b, sizeof b), tl_tensor_text(v, c, sizeof c),
                       why);
}

static tl_status check(const attention_heads *h, const tl_tensor *mask, const char *site) {
    const tl_tensor *q = h->q, *k = h->k, *v = h->v;
    int64_t groups = dim_of(k, 1).size;
    if (dim_of(q, 0).size != dim_of(k, 0).size || dim_of(k, 0).size != dim_of(v, 0).size)
        return fail(q, k, v, site, "their batches must be equal");
    if (groups < 1 || dim_of(q, 1).size % groups || dim_of(v, 1).size != groups)
        return fail(q, k, v, site, "k and v must have as many heads, and q a multiple of that");
    if (dim_of(q, 3).size != dim_of(k, 3).size)
        return fail(q, k, v, site, "the heads of q and k must be of one size");
    if (dim_of(k, 2).size != dim_of(v, 2).size)
        return fail(q, k, v, site, "k and v must have as many rows");
    if (mask && (mask->shape.ndim < 1 || mask->shape.ndim > 4))
        return fail(q, k, v, site, "a mask has 1 to 4 axes");
    return TL_OK;
}

static bool prepare(attention_heads *h, tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attention_options *o,
                    const char *site) {
    int ndim = q->shape.ndim;
    *h = (attention_heads){.q = q, .k = k, .v = v, .split = ndim == 3};
    if ((ndim != 3 && ndim != 4) || k->shape.ndim != ndim || v->shape.ndim != ndim)
        return fail(q, k, v, site, "all three have 3 axes, or all have 4") == TL_OK;
    if (h->split && (o->heads < 1 || o->kv_heads < 1))
        return fail(q, k, v, site, "the numbers of heads must be given with 3 axes") == TL_OK;
    if (h->split) {
        h->q = split_heads(q, o->heads, site);
        h->k = split_heads(k, o->kv_heads, site);
        h->v = split_heads(v, o->kv_heads, site);
    }
    if (!h->q || !h->k || !h->v)
        return false;
    if (o->past_key) {
        if (o->past_key->shape.ndim == 4)
            h->past = dim_of(o->past_key, 2).size;
        h->k = tl_concat_((tl_tensor *[]){o->past_key, h->k}, 2, 2, site);
    }
    if (o->past_value)
        h->v = tl_concat_((tl_tensor *[]){o->past_value, h->v}, 2, 2, site);
    return h->k && h->v && check(h, o->mask, site) == TL_OK;
}

/* [B,H,…] → [B,G,H/G,…] of x; of k and v [B,G,…] → [B,G,1,…]. Views: heads that share are read in place. */
static tl_tensor *grouped(tl_tensor *x, tl_dim groups, tl_dim each, const char *site) {
    if (!x)
        return NULL;
    tl_shape shape = TL_SHAPE(x->ctx, dim_of(x, 0), groups, each, dim_of(x, 2), dim_of(x, 3));
    return tl_view_(x, shape, site);
}

/* A mask shorter than the keys hides what is beyond it. */
static tl_tensor *whole_mask(tl_tensor *mask, tl_dim keys, const char *site) {
    int64_t before[TL_MAX_NDIM] = {0}, after[TL_MAX_NDIM] = {0};
    if (!mask || dim_of(mask, -1).size >= keys.size)
        return mask;
    after[mask->shape.ndim - 1] = keys.size - dim_of(mask, -1).size;
    return tl_pad_(mask, before, after, TL_PADDING_CONSTANT, mask->dtype == TL_BOOL ? 0 : -__builtin_inf(), site);
}

/* scale·q·kᵀ, softcapped; *left is the factor that the softmax has yet to apply. */
static tl_tensor *scores_of(const attention_heads *h, const tl_attention_options *o, tl_dim groups, tl_dim each,
                            double *left, const char *site) {
    tl_dim rows = dim_of(h->q, 2), keys = dim_of(h->k, 2);
    bool shared = each.size != 1, capped = o->softcap != 0, early = capped || o->scores;
    tl_tensor *q = h->q, *k = tl_transpose_(h->k, -1, -2, site);
    if (early)
        q = tl_scale_(q, *left, 0, site);
    if (shared) {
        q = grouped(q, groups, each, site);
        k = grouped(k, groups, tl_dim_of(1), site);
    }
    bool square = o->causal && rows.size == keys.size;
    tl_tensor *x = tl_matmul_causal_(q, k, square ? TL_CAUSAL_MN : TL_CAUSAL_NONE, site);
    if (x && shared)
        x = tl_view_(x, TL_SHAPE(x->ctx, dim_of(h->q, 0), dim_of(h->q, 1), rows, keys), site);
    if (early)
        *left = 1;
    if (o->scores && o->scores_kind == TL_SCORES_RAW)
        *o->scores = x;
    if (capped)
        x = tl_scale_(tl_tanh_(tl_scale_(x, 1 / o->softcap, 0, site), site), o->softcap, 0, site);
    if (o->scores && o->scores_kind == TL_SCORES_CAPPED)
        *o->scores = x;
    return x;
}

static double scale_of(const attention_heads *h, const tl_attention_options *o) {
    double size = (double)dim_of(h->q, 3).size;
    return o->scale != 0 ? o->scale : size > 0 ? 1 / __builtin_sqrt(size) : 1;
}

tl_tensor *tl_attention_(tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attention_options *options,
                         const char *site) {
    const tl_attention_options *o = options;
    attention_heads h;
    tl_tensor **const extra[] = {o->present_key, o->present_value, o->scores};
    for (int i = 0; i < 3; i++)
        if (extra[i])
            *extra[i] = NULL;
    if (!q || !k || !v || tl_ctx_status(q->ctx) != TL_OK || !prepare(&h, q, k, v, o, site))
        return NULL;
    tl_ctx *ctx = q->ctx;
    tl_dim rows = dim_of(h.q, 2), keys = dim_of(h.k, 2), groups = dim_of(h.k, 1);
    tl_dim each = tl_dim_div(ctx, dim_of(h.q, 1), groups);
    if (o->present_key)
        *o->present_key = h.k;
    if (o->present_value)
        *o->present_value = h.v;
    tl_mask_options seen = {.scale = scale_of(&h, o), .causal = o->causal, .offset = h.past};
    seen.window_before = o->window ? o->before : -1;
    seen.window_after = o->window ? o->after : -1;
    tl_tensor *x = scores_of(&h, o, groups, each, &seen.scale, site), *mask = whole_mask(o->mask, keys, site);
    if (!x || (o->mask && !mask))
        return NULL;
    if (o->scores && o->scores_kind == TL_SCORES_MASKED)
        *o->scores = tl_masked_scores_(x, mask, o->lengths, &seen, site);
    bool plain = !mask && !o->lengths && !o->window && (!o->causal || h.past == keys.size - rows.size);
    tl_tensor *p =
        plain ? tl_softmax_(x, seen.scale, o->causal, site) : tl_masked_softmax_(x, mask, o->lengths, &seen, site);
    if (o->scores && o->scores_kind == TL_SCORES_SOFTMAX)
        *o->scores = p;
    bool square = o->causal && rows.size == keys.size, shared = each.size != 1;
    tl_tensor *values = shared ? grouped(h.v, groups, tl_dim_of(1), site) : h.v;
    tl_tensor *y = tl_matmul_causal_(shared ? grouped(p, groups, each, site) : p, values,
                                     square ? TL_CAUSAL_MK : TL_CAUSAL_NONE, site);
    if (y && shared)
        y = tl_view_(y, TL_SHAPE(ctx, dim_of(h.q, 0), dim_of(h.q, 1), rows, dim_of(h.v, 3)), site);
    if (!y || !h.split)
        return y;
    tl_shape joined = TL_SHAPE(ctx, dim_of(h.q, 0), rows, tl_dim_mul(ctx, dim_of(h.q, 1), dim_of(h.v, 3)));
    return tl_reshape_(tl_transpose_(y, 1, 2, site), joined, site);
}
