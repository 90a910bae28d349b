/* Keys and values kept. The net's own modules run; while a forward is cached they find the cache in the net. */
#include "nn/cache.h"

#include "tensor/ctx.h"

#include <string.h>

static tl_tensor **parts_new(tl_ctx *ctx, const tl_net *net) {
    return tl_host_alloc(ctx, 2 * (size_t)net->model.layers * sizeof(tl_tensor *));
}

static bool options_are_good(const tl_net *net, const tl_cache_options *o) {
    const tl_model *m = &net->model;
    if (m->family == TL_FAMILY_CRUNCHER)
        return tl_ctx_fail(net->ctx, TL_ERR_UNSUPPORTED, "%s has no attention and so no cache; gpt2 and llama have",
                           m->name) == TL_OK;
    if (o->batch < 1 || o->capacity < 1)
        return tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT,
                           "a cache of %lld sequences of %lld positions; 1 or more would work", (long long)o->batch,
                           (long long)o->capacity) == TL_OK;
    if (!tl_dtype_is_float(o->dtype))
        return tl_ctx_fail(net->ctx, TL_ERR_DTYPE, "a cache in %s; a float would work", tl_dtype_name(o->dtype)) ==
               TL_OK;
    if (net->position_table && o->capacity > m->context)
        return tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT,
                           "a cache of %lld positions; %s has learned %lld (%s): that many would work",
                           (long long)o->capacity, m->name, (long long)m->context, m->source_context.text) == TL_OK;
    return true;
}

tl_cache *tl_cache_new(tl_net *net, const tl_cache_options *options) {
    tl_ctx *ctx = net->ctx;
    if (ctx->error.status != TL_OK || !options_are_good(net, options))
        return NULL;
    tl_cache *cache = tl_host_alloc(ctx, sizeof *cache);
    if (!cache)
        return NULL;
    *cache = (tl_cache){.net = net, .options = *options, .part = parts_new(ctx, net)};
    tl_phase before = tl_phase_get(ctx);
    tl_phase_set(ctx, TL_PHASE_INIT);
    tl_scope_begin(ctx);
    tl_dim B = tl_dim_symbol(ctx, "B", options->batch, "sequences");
    tl_dim S = tl_dim_symbol(ctx, "S", options->capacity, "positions kept");
    const int64_t window = net->model.window;
    tl_dim W = window > 0 && window < options->capacity
                   ? tl_dim_symbol(ctx, "W", window, "positions that a layer with a window sees")
                   : S;
    for (tl_repeat r = tl_repeat_begin(ctx, "N", net->model.layers); cache->part && tl_repeat_next(&r);) {
        const tl_attention *a = &net->blocks[r.index].attention;
        if (net->blocks[r.index].kv_from >= 0)
            continue;
        tl_dim held = net->blocks[r.index].layer & TL_LAYER_WINDOW ? W : S;
        tl_dim latent = tl_dim_add(ctx, net->symbols.Rkv, net->symbols.Kr);
        tl_module_begin(ctx, "cache", r.index);
        if (a->kv_down)
            cache->part[2 * r.index] =
                tl_keep(tl_empty(ctx, options->dtype, TL_SHAPE(ctx, B, tl_dim_of(1), S, latent), TL_CACHE));
        for (int which = 0; which < 2 && !a->kv_down; which++)
            cache->part[2 * r.index + which] = tl_keep(
                tl_empty(ctx, options->dtype, TL_SHAPE(ctx, B, a->G, held, which == 0 ? a->K : a->L), TL_CACHE));
        tl_module_end(ctx);
    }
    tl_scope_end(ctx);
    tl_phase_set(ctx, before);
    if (ctx->error.status == TL_OK)
        return cache;
    tl_cache_free(cache);
    return NULL;
}

void tl_cache_free(tl_cache *cache) {
    if (!cache)
        return;
    tl_net *net = cache->net;
    for (int64_t i = 0; cache->part && i < 2 * net->model.layers; i++)
        tl_free(cache->part[i]);
    tl_host_free(net->ctx, cache->part, 2 * (size_t)net->model.layers * sizeof *cache->part);
    tl_host_free(net->ctx, cache, sizeof *cache);
}

int64_t tl_cache_length(const tl_cache *cache) { return cache->length; }

int64_t tl_cache_capacity(const tl_cache *cache) { return cache->options.capacity; }

int64_t tl_cache_bytes(const tl_cache *cache) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < 2 * cache->net->model.layers; i++)
        bytes += cache->part[i] ? tl_tensor_storage_bytes(cache->part[i]) : 0;
    return bytes;
}

tl_status tl_cache_truncate(tl_cache *cache, int64_t length) {
    if (length < 0 || length > cache->length)
        return tl_ctx_fail(cache->net->ctx, TL_ERR_ARGUMENT,
                           "the cache holds %lld positions and cannot be cut to %lld; 0 to %lld would work",
                           (long long)cache->length, (long long)length, (long long)cache->length);
    for (int64_t i = 0; i < 2 * cache->net->model.layers && length > 0 && length < cache->length; i++)
        if (cache->part[i] && tl_tensor_size(cache->part[i], 2) < cache->length)
            return tl_ctx_fail(
                cache->net->ctx, TL_ERR_UNSUPPORTED,
                "the cache holds %lld positions, of which layers that see a window of %lld have let the first "
                "go: it cannot be cut to %lld; 0 would work",
                (long long)cache->length, (long long)tl_tensor_size(cache->part[i], 2), (long long)length);
    cache->length = length;
    return TL_OK;
}

bool tl_cache_holds(const tl_cache *cache, int64_t tokens) {
    const tl_model *m = &cache->net->model;
    return m->rope_scaling != TL_ROPE_LONGROPE || cache->length == 0 || cache->length > m->rope_original_context ||
           tokens <= m->rope_original_context - cache->length;
}

static tl_tensor *part_of(const tl_cache *cache, int64_t layer, int which) {
    if (layer < 0 || layer >= cache->net->model.layers)
        return NULL;
    return cache->part[2 * tl_model_kv_source(&cache->net->model, layer) + which];
}

tl_tensor *tl_cache_key(const tl_cache *cache, int64_t layer) { return part_of(cache, layer, 0); }

tl_tensor *tl_cache_value(const tl_cache *cache, int64_t layer) { return part_of(cache, layer, 1); }

/* Positions seen as a dim. In a run with formulas the first such number is the symbol P; a symbol has one value, so that
 * later ones are numbers. */
static tl_dim past_dim(tl_ctx *ctx, int64_t length) {
    const tl_symbol *symbols;
    int count = ctx->space && length > 0 ? tl_space_symbols(ctx->space, &symbols) : 0;
    if (!ctx->space || length == 0)
        return tl_dim_of(length);
    for (int i = 0; i < count; i++)
        if (strcmp(symbols[i].name, "P") == 0 && symbols[i].value != length)
            return tl_dim_of(length);
    return tl_dim_symbol(ctx, "P", length, "positions seen");
}

static tl_tensor *extended(tl_net *net, tl_tensor *kept, tl_tensor *x) {
    const tl_cache *cache = net->cache;
    if (!kept || !x)
        return NULL;
    tl_dim all = tl_dim_add(net->ctx, past_dim(net->ctx, cache->length), tl_tensor_shape(x)->dim[2]);
    tl_tensor *written = tl_write_slice(kept, x, 2, cache->length);
    return tl_cast(tl_slice(written, 2, 0, all, 1), net->dtype);
}

/* A layer that sees W positions keeps the last W, in their order. What new positions may see, the W − 1 before the first of them
 * and themselves, is put together first; then the last W of it are written. */
static tl_tensor *windowed(tl_net *net, tl_tensor *kept, tl_tensor *x, int64_t before) {
    const tl_cache *cache = net->cache;
    if (!kept || !x)
        return NULL;
    const int64_t W = tl_tensor_size(kept, 2), n = tl_tensor_size(x, 2);
    const int64_t held = cache->length < W ? cache->length : W, all = before + n;
    tl_tensor *old = before > 0 ? tl_slice(kept, 2, held - before, tl_dim_of(before), 1) : NULL;
    tl_tensor *part[2] = {old, old ? tl_cast(x, tl_tensor_dtype(kept)) : x};
    tl_tensor *seen = before > 0 ? tl_concat(part, 2, 2) : x;
    tl_tensor *last = all > W ? tl_slice(seen, 2, all - W, tl_dim_of(W), 1) : seen;
    return tl_write_slice(kept, last, 2, 0) ? tl_cast(seen, net->dtype) : NULL;
}

bool tl_cache_append(tl_net *net, const tl_block *block, tl_tensor **k, tl_tensor **v) {
    tl_cache *cache = net->cache;
    int64_t layer = block - net->blocks;
    if (!cache || block->kv_from >= 0 || !*k || !*v)
        return *k && *v;
    tl_tensor *kept[2] = {tl_cache_key(cache, layer), tl_cache_value(cache, layer)};
    const int64_t W = kept[0] ? tl_tensor_size(kept[0], 2) : 0, n = tl_tensor_size(*k, 2);
    const bool full = cache->length + n > W;
    const int64_t past = !full || cache->length < W - 1 ? cache->length : W - 1;
    tl_module_begin(net->ctx, "cache", -1);
    *k = full ? windowed(net, kept[0], *k, past) : extended(net, kept[0], *k);
    *v = full ? windowed(net, kept[1], *v, past) : extended(net, kept[1], *v);
    tl_module_end(net->ctx);
    return *k && *v;
}

tl_tensor *tl_cache_append_latent(tl_net *net, const tl_block *block, tl_tensor *x) {
    tl_module_begin(net->ctx, "cache", -1);
    tl_tensor *all = extended(net, tl_cache_key(net->cache, block - net->blocks), x);
    tl_module_end(net->ctx);
    return all;
}

static bool fits(tl_cache *cache, const tl_tensor *tokens) {
    tl_ctx *ctx = cache->net->ctx;
    const tl_cache_options *o = &cache->options;
    char text[200];
    if (tl_tensor_ndim(tokens) != 2 || tl_tensor_size(tokens, 0) != o->batch || tl_tensor_size(tokens, 1) < 1)
        return tl_ctx_fail(ctx, TL_ERR_SHAPE, "tokens are %s; the cache is for %lld sequences: [%lld, 1 or more]",
                           tl_tensor_text(tokens, text, sizeof text), (long long)o->batch,
                           (long long)o->batch) == TL_OK;
    if (tl_tensor_size(tokens, 1) > o->capacity - cache->length)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "the cache is full: %lld of %lld positions are taken and %lld more are asked for; a larger "
                           "capacity, or fewer tokens, would work",
                           (long long)cache->length, (long long)o->capacity,
                           (long long)tl_tensor_size(tokens, 1)) == TL_OK;
    if (!tl_cache_holds(cache, tl_tensor_size(tokens, 1)))
        return tl_ctx_fail(
                   ctx, TL_ERR_UNSUPPORTED,
                   "the cache holds %lld positions turned by longrope's short factors, and %lld more pass the "
                   "original context %lld, from where the long ones are all positions'; a cache cut to 0 and the "
                   "whole sequence fed again would work",
                   (long long)cache->length, (long long)tl_tensor_size(tokens, 1),
                   (long long)cache->net->model.rope_original_context) == TL_OK;
    return true;
}

tl_tensor *tl_net_forward_cached(tl_net *net, tl_cache *cache, tl_tensor *tokens, tl_logits logits) {
    tl_ctx *ctx = net->ctx;
    if (!tokens || ctx->error.status != TL_OK || !fits(cache, tokens))
        return NULL;
    bool recording = ctx->recording, training = net->training;
    ctx->recording = net->training = false;
    net->cache = cache;
    cache->last_only = logits == TL_LOGITS_LAST;
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_scope_begin(ctx);
    tl_tensor *out = tl_net_forward(net, tokens), *carried = NULL;
    tl_scope_end_into(ctx, &carried, out);
    net->cache = NULL;
    net->training = training;
    ctx->recording = recording;
    if (carried)
        cache->length += tl_tensor_size(tokens, 1);
    return carried;
}
