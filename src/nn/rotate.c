/* Rotary positions as the description has them: whole or partial, scaled or not, global or local; computed where they are used, or
 * from tables that stand for the whole step. */
#include "nn/net.h"
#include "tally/views.h"

#include "tensor/ctx.h"

static tl_rotary_options options_of(const tl_net *net, int64_t width, bool local) {
    const tl_model *m = &net->model;
    tl_rotary_options o = {.theta = local ? m->rope_local_theta : m->rope_theta,
                           .first_position = tl_first_position(net),
                           .interleaved = m->rope_interleaved};
    /* what is turned may be less than a head, and a layer's heads smaller than the model's */
    if (m->rotary_size > 0 && m->rotary_size < width)
        o.rotated = m->rotary_size;
    if (local)
        return o;
    if (width == m->global_head_size)
        o.pairs = m->global_rotary_size / 2;
    static const tl_rotary_scaling kinds[] = {
        [TL_ROPE_PLAIN] = TL_ROTARY_PLAIN,      [TL_ROPE_LLAMA3] = TL_ROTARY_PLAIN,
        [TL_ROPE_LINEAR] = TL_ROTARY_LINEAR,    [TL_ROPE_YARN] = TL_ROTARY_YARN,
        [TL_ROPE_DYNAMIC] = TL_ROTARY_DYNAMIC,  [TL_ROPE_NTK] = TL_ROTARY_NTK,
        [TL_ROPE_LONGROPE] = TL_ROTARY_LONGROPE};
    o.scaling = kinds[m->rope_scaling];
    o.factor = m->rope_factor;
    o.low_freq_factor = m->rope_low_freq;
    o.high_freq_factor = m->rope_high_freq;
    o.original_context = m->rope_original_context;
    o.beta_fast = m->rope_beta_fast != 0 ? m->rope_beta_fast : 32; /* YaRN, section 3.2 and Hugging Face's defaults */
    o.beta_slow = m->rope_beta_slow != 0 ? m->rope_beta_slow : 1;
    o.attention_factor = m->rope_attention_factor;
    o.mscale = m->rope_mscale;
    o.mscale_all = m->rope_mscale_all;
    o.no_truncate = m->rope_no_truncate;
    o.short_factors = m->rope_short;
    o.long_factors = m->rope_long;
    o.factors = m->rope_factors;
    return o;
}

static tl_tensor *joined(tl_tensor *a, tl_tensor *b) {
    tl_tensor *both[] = {a, b};
    return tl_concat(both, 2, -1);
}

static tl_status halved(tl_tensor *x, tl_dim first, tl_dim second, tl_tensor *part[2]) {
    tl_dim sizes[] = {first, second};
    part[0] = part[1] = NULL;
    return x ? tl_split(x, -1, sizes, 2, part) : TL_ERR_ARGUMENT;
}

/* ---- tables ---- */

/* Half of a table [T,R/2] once for each element of the pairs it turns: [T,R]. */
static tl_tensor *doubled(tl_net *net, tl_tensor *half, tl_dim T, tl_dim R) {
    if (!net->model.rope_interleaved)
        return joined(half, half);
    tl_tensor *pairs =
        tl_view(tl_contiguous(half), TL_SHAPE(net->ctx, T, tl_dim_div(net->ctx, R, tl_dim_of(2)), tl_dim_of(1)));
    return tl_reshape(joined(pairs, pairs), TL_SHAPE(net->ctx, T, R));
}

/* The rotary op turns the pair (1, 0) into (cos, sin): one row of such pairs, stretched over all positions. */
static bool fill_tables(tl_net *net, tl_rotary_table *table, tl_dim T, tl_dim R, int64_t width) {
    tl_ctx *ctx = net->ctx;
    tl_dim half = tl_dim_div(ctx, R, tl_dim_of(2));
    tl_dtype wide = net->dtype == TL_F64 ? TL_F64 : TL_F32;
    tl_rotary_options options = options_of(net, width, table->local);
    options.rotated = 0;
    options.interleaved = false;
    tl_tensor *one = tl_empty(ctx, wide, TL_SHAPE(ctx, tl_dim_of(1), half), TL_WORK);
    tl_tensor *zero = tl_empty(ctx, wide, TL_SHAPE(ctx, tl_dim_of(1), half), TL_WORK);
    if (!one || !zero || !tl_fill(one, 1) || !tl_fill(zero, 0))
        return false;
    tl_tensor *start = joined(one, zero), *part[2] = {0};
    tl_tensor *both = tl_rotary(tl_expand(start, TL_SHAPE(ctx, T, R)), &options);
    if (!both || halved(both, half, half, part) != TL_OK)
        return false;
    table->cosine = tl_cast(doubled(net, part[0], T, R), net->dtype);
    table->sine = tl_cast(doubled(net, part[1], T, R), net->dtype);
    if (!table->cosine || !table->sine)
        return false;
    tl_keep(table->cosine);
    tl_keep(table->sine);
    return true;
}

/* R is what turns of a head of `width`. */
static bool add_table(tl_net *net, tl_dim T, tl_dim R, int64_t width, bool local) {
    tl_rotary_table *table = &net->tables[net->n_tables];
    for (int i = 0; i < net->n_tables; i++)
        if (net->tables[i].local == local && tl_tensor_size(net->tables[i].cosine, 1) == R.size)
            return true;
    table->local = local;
    tl_scope_begin(net->ctx);
    bool ok = fill_tables(net, table, T, R, width);
    tl_scope_end(net->ctx);
    net->n_tables += ok;
    return ok;
}

static tl_dim turned_of(const tl_net *net, tl_dim width) {
    const tl_model *m = &net->model;
    return m->rotary_size > 0 && m->rotary_size < width.size ? net->symbols.R : width;
}

bool tl_make_rotary_tables(tl_net *net, const tl_tensor *tokens) {
    const tl_model *m = &net->model;
    const tl_shape *shape = tl_tensor_shape(tokens);
    bool local = false, recording = net->ctx->recording, ok = true;
    if (net->choices.rotary != TL_ROTARY_TABLES || tl_positions_of(m) != TL_POSITIONS_ROTARY || shape->ndim != 2)
        return true;
    for (int64_t i = 0; i < m->layers; i++)
        local = local || (m->layer[i] & TL_LAYER_LOCAL_ROPE);
    tl_dim head = m->kv_rank > 0 ? net->symbols.Kr : net->symbols.K;
    net->ctx->recording = false;
    tl_module_begin(net->ctx, "rotary", -1);
    ok = add_table(net, shape->dim[1], turned_of(net, head), head.size, false);
    if (ok && local)
        ok = add_table(net, shape->dim[1], turned_of(net, head), head.size, true);
    if (ok && m->global_head_size > 0)
        ok = add_table(net, shape->dim[1], turned_of(net, net->symbols.Kg), m->global_head_size, false);
    tl_module_end(net->ctx);
    net->ctx->recording = recording;
    return ok;
}

void tl_free_rotary_tables(tl_net *net) {
    for (int i = 0; i < net->n_tables; i++) {
        tl_free(net->tables[i].cosine);
        tl_free(net->tables[i].sine);
    }
    net->n_tables = 0;
}

/* (−x₂, x₁) of the pairs (x₁, x₂): Hugging Face's rotate_half, or rotate_every_two. */
static tl_tensor *turned_half(tl_net *net, tl_tensor *x) {
    tl_shape shape = *tl_tensor_shape(x), pairs = shape;
    tl_dim two = tl_dim_of(2), half = tl_dim_div(net->ctx, shape.dim[shape.ndim - 1], two), one = tl_dim_of(1);
    tl_tensor *part[2] = {0}, *negative, *y;
    if (net->model.rope_interleaved) {
        pairs.dim[pairs.ndim - 1] = half;
        pairs.dim[pairs.ndim++] = two;
        half = one;
        x = tl_reshape(x, pairs);
    }
    if (!x || halved(x, half, half, part) != TL_OK)
        return NULL;
    negative = tl_neg(part[1]);
    y = joined(negative, part[0]);
    tl_release(negative);
    return net->model.rope_interleaved ? tl_reshape(y, shape) : y;
}

/* x·cos + turned(x)·sin */
static tl_tensor *by_tables(tl_net *net, const tl_rotary_table *table, tl_tensor *x) {
    tl_tensor *straight = tl_mul(x, table->cosine), *half = turned_half(net, x);
    tl_tensor *across = tl_mul(half, table->sine);
    tl_release(half);
    tl_tensor *y = tl_add(straight, across);
    tl_release(straight);
    tl_release(across);
    return y;
}

static tl_tensor *with_tables(tl_net *net, tl_tensor *x, int64_t rotated, bool local) {
    const tl_shape *shape = tl_tensor_shape(x);
    tl_dim width = shape->dim[shape->ndim - 1], R = turned_of(net, width);
    const tl_rotary_table *table = NULL;
    for (int i = 0; i < net->n_tables && !table; i++)
        if (net->tables[i].local == local && tl_tensor_size(net->tables[i].cosine, 1) == R.size)
            table = &net->tables[i];
    if (!table)
        return NULL;
    if (rotated == 0)
        return by_tables(net, table, x);
    tl_tensor *part[2] = {0};
    if (halved(x, R, tl_dim_of(width.size - R.size), part) != TL_OK)
        return NULL;
    tl_tensor *turned = by_tables(net, table, part[0]);
    tl_tensor *y = joined(turned, part[1]);
    tl_release(turned);
    return y;
}

tl_tensor *tl_rotate(tl_net *net, tl_tensor *x, bool local) {
    if (!x)
        return NULL;
    tl_rotary_options options = options_of(net, tl_tensor_size(x, -1), local);
    if (net->n_tables > 0)
        return with_tables(net, x, options.rotated, local);
    return tl_rotary(x, &options);
}
