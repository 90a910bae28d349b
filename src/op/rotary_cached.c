/* Rotary embedding by cosines and sines that are given: a composition, so that everything in it has a gradient. */
#include "op/rows.h"
#include "op/views.h"
#include "tally/ops_index.h"
#include "tally/ops_layers.h"

static tl_tensor *refuse(tl_tensor *x, const tl_rotary_cache *c, const char *site, const char *why) {
    char a[200], b[200];
    tl_ctx_fail(x->ctx, TL_ERR_SHAPE, "rotary_cached (%s): x %s, cosine %s: %s", site, tl_tensor_text(x, a, sizeof a),
                tl_tensor_text(c->cosine, b, sizeof b), why);
    return NULL;
}

/* [B,T,R/2] as [B,1,T,R/2], from a table by position where positions are given */
static tl_tensor *turns(tl_tensor *table, tl_tensor *position_ids, const char *site) {
    if (position_ids)
        table = tl_gather_(table, position_ids, 0, site);
    if (!table || table->shape.ndim != 3)
        return table;
    const tl_dim *dim = table->shape.dim;
    return tl_view_(table, TL_SHAPE(table->ctx, dim[0], tl_dim_of(1), dim[1], dim[2]), site);
}

/* The first `rotated` of the last axis, turned. */
static tl_tensor *turn(tl_tensor *x, tl_tensor *cosine, tl_tensor *sine, bool interleaved, const char *site) {
    tl_dim half = tl_dim_div(x->ctx, x->shape.dim[3], tl_dim_of(2));
    int64_t step = interleaved ? 2 : 1, second = interleaved ? 1 : half.size;
    tl_tensor *a = tl_slice_(x, -1, 0, half, step, site), *b = tl_slice_(x, -1, second, half, step, site);
    tl_tensor *p = tl_sub_(tl_mul_(a, cosine, site), tl_mul_(b, sine, site), site);
    tl_tensor *q = tl_add_(tl_mul_(a, sine, site), tl_mul_(b, cosine, site), site);
    if (!interleaved)
        return tl_concat_((tl_tensor *[]){p, q}, 2, -1, site);
    return tl_reshape_(tl_stack_((tl_tensor *[]){p, q}, 2, -1, site), x->shape, site);
}

tl_tensor *tl_rotary_cached_(tl_tensor *x, const tl_rotary_cache *cache, const char *site) {
    if (!x || !cache->cosine || !cache->sine || tl_ctx_status(x->ctx) != TL_OK)
        return NULL;
    tl_ctx *ctx = x->ctx;
    bool joined = x->shape.ndim == 3;
    tl_tensor *y = x;
    if (!joined && x->shape.ndim != 4)
        return refuse(x, cache, site, "x has 3 or 4 axes");
    if (cache->cosine->shape.ndim != (cache->position_ids ? 2 : 3))
        return refuse(x, cache, site, "a cache has 2 axes with position ids and 3 without");
    if (joined) {
        if (cache->heads < 1)
            return refuse(x, cache, site, "the number of heads must be given when x has 3 axes");
        tl_dim heads = tl_dim_of(cache->heads);
        const tl_dim *dim = x->shape.dim;
        tl_shape split = TL_SHAPE(ctx, dim[0], dim[1], heads, tl_dim_div(ctx, dim[2], heads));
        y = tl_transpose_(tl_view_(x, split, site), 1, 2, site);
        if (!y)
            return NULL;
    }
    int64_t width = y->shape.dim[3].size, rotated = cache->rotated ? cache->rotated : width;
    if (rotated < 0 || rotated > width || rotated % 2)
        return refuse(x, cache, site, "the part to rotate is even and no longer than a head");
    tl_tensor *cosine = turns(cache->cosine, cache->position_ids, site);
    tl_tensor *sine = turns(cache->sine, cache->position_ids, site);
    if (!cosine || !sine)
        return NULL;
    if (tl_tensor_size(cosine, -1) != rotated / 2)
        return refuse(x, cache, site, "the last axis of a cache is half of what is rotated");
    if (rotated == width)
        y = turn(y, cosine, sine, cache->interleaved, site);
    else {
        tl_tensor *part[2];
        tl_dim sizes[] = {tl_dim_of(rotated), tl_dim_of(width - rotated)};
        if (tl_split_(y, -1, sizes, 2, part, site) != TL_OK)
            return NULL;
        part[0] = turn(part[0], cosine, sine, cache->interleaved, site);
        y = tl_concat_(part, 2, -1, site);
    }
    return joined ? tl_reshape_(tl_transpose_(y, 1, 2, site), x->shape, site) : y;
}
