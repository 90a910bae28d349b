/* Low-rank adapters (Hu et al. 2021): which layers have them, what they compute, and folding them into the base. */
#include "nn/lora.h"

#include "nn/start.h"
#include "tally/ops_choices.h"
#include "tally/ops_layers.h"
#include "tally/ops_moe.h"
#include "tally/views.h"
#include "tally/init.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

const char *tl_lora_base_name(tl_lora_base base) {
    static const char *const names[] = {"plain", "int8", "nf4", "nf4-dq"};
    return (unsigned)base < 4 ? names[base] : "?";
}

tl_status tl_lora_check(const tl_lora_options *o, tl_error *error) {
    if (o->rank < 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "adapters of rank %lld; 1 or more would work, or 0 for none",
                       (long long)o->rank);
    if (!(o->alpha >= 0) || o->alpha > 1e30)
        return tl_fail(error, TL_ERR_ARGUMENT, "an alpha of %g; a number above 0 would work, or 0 for twice the rank",
                       o->alpha);
    if (!(o->dropout >= 0) || o->dropout >= 1)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "dropout of the adapters' input with p %g; 0 or more, below 1, would work", o->dropout);
    if ((unsigned)o->base > TL_LORA_NF4_TWICE)
        return tl_fail(error, TL_ERR_ARGUMENT, "there is no kind %d of base; plain, int8, nf4 and nf4-dq are",
                       (int)o->base);
    if (o->base == TL_LORA_PLAIN && (o->base_head || o->base_by_f16 || o->base_keeps_input))
        return tl_fail(error, TL_ERR_ARGUMENT, "a plain base is not quantised: what it would do so with has no effect");
    if (o->prefix < 0 || o->prefix_from < 0 || (o->prefix == 0 && (o->prefix_from != 0 || o->scales)) ||
        (o->prefix > 0 && o->rank != 0))
        return tl_fail(
            error, TL_ERR_ARGUMENT,
            "a learned prompt of %lld rows from layer %lld on, beside adapters of rank %lld; one of the two would work",
            (long long)o->prefix, (long long)o->prefix_from, (long long)o->rank);
    if (o->rank == 0 && (o->base != TL_LORA_PLAIN || o->prefix > 0) && !o->alpha && !o->dropout &&
        !(o->targets && o->targets[0]) && !(o->trained && o->trained[0]))
        return TL_OK; /* frozen and quantised, nothing to train */
    if (o->rank == 0 && (o->alpha != 0 || o->dropout != 0 || (o->targets && o->targets[0]) ||
                         (o->trained && o->trained[0]) || o->base != TL_LORA_PLAIN || o->adapters_f32))
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "without adapters (rank 0) their alpha, dropout, targets, base and format have no effect");
    if ((o->targets && strlen(o->targets) >= TL_LORA_TARGETS) || (o->trained && strlen(o->trained) >= TL_LORA_TARGETS))
        return tl_fail(error, TL_ERR_ARGUMENT, "the names of layers are longer than %d bytes", TL_LORA_TARGETS - 1);
    return TL_OK;
}

/* ---- adapters ---- */

/* Kaiming uniform of a = √5 is ±1/√in, of experts' A [E, rank, in] too (torch's fans would count its rank as well). */
static tl_status start_uniform(tl_tensor *t, const char *name) {
    const tl_shape *s = tl_tensor_shape(t);
    double bound = 1 / tl_square_root((double)s->dim[s->ndim - 1].size);
    return tl_init_uniform(t, -bound, bound, name);
}

/* Behind the net's parameters, booked where the weight is. */
tl_tensor *tl_lora_parameter(tl_net *net, const char *weight, const char *which, tl_shape shape, tl_lora_start start) {
    tl_ctx *ctx = net->ctx;
    char name[200];
    bool narrow = tl_dtype_bytes(net->dtype) < 4;
    snprintf(name, sizeof name, "%.*s.%s.weight", tl_lora_module_length(weight), weight, which);
    if (!tl_host_grow(ctx, &net->parameters, sizeof *net->parameters, net->count + 1, &net->capacity))
        return NULL;
    tl_dtype dtype = narrow && net->lora->options.adapters_f32 ? TL_F32 : net->dtype;
    tl_tensor *t = tl_keep(tl_empty(ctx, dtype, shape, TL_PARAM));
    char *copy = t ? tl_host_text(ctx, name) : NULL;
    if (!copy) {
        tl_free(t);
        return NULL;
    }
    net->parameters[net->count++] = (tl_parameter){.name = copy, .tensor = t, .decay = true, .adapter = true};
    tl_status status = start == TL_LORA_ZEROS  ? tl_init_zeros(t)
                       : start == TL_LORA_ONES ? tl_init_ones(t)
                                               : start_uniform(t, name);
    if (status != TL_OK)
        return NULL;
    tl_tensor_require_grad(t, true);
    return t;
}

static void adapter_shapes(tl_net *net, const tl_lora_slot *slot, tl_dim r, tl_shape *a, tl_shape *b) {
    tl_ctx *ctx = net->ctx;
    const tl_dim *d = slot->shape.dim;
    if (slot->experts) {
        tl_dim in = d[slot->turned ? 1 : 2], out = d[slot->turned ? 2 : 1];
        *a = TL_SHAPE(ctx, d[0], r, in);
        *b = TL_SHAPE(ctx, d[0], out, r);
    } else if (net->lora->options.merged_qv) { /* all rows but the keys' */
        *a = TL_SHAPE(ctx, tl_dim_mul(ctx, tl_dim_of(2), r), d[1]);
        *b = TL_SHAPE(ctx, tl_dim_mul(ctx, tl_dim_add(ctx, net->symbols.H, net->symbols.G), net->symbols.K), r);
    } else {
        *a = TL_SHAPE(ctx, r, d[1]);
        *b = TL_SHAPE(ctx, d[0], r);
    }
}

static bool adapt(tl_net *net, int index) {
    tl_ctx *ctx = net->ctx;
    const char *name = net->parameters[index].name;
    tl_lora_slot *slot = tl_lora_slot_of(net, net->parameters[index].tensor, true);
    if (!slot)
        return false;
    tl_place before = ctx->place;
    ctx->place.region = slot->weight->storage->region;
    ctx->place.module = slot->weight->storage->module;
    tl_dim r = tl_dim_symbol(ctx, "r", net->lora->options.rank, "rank of the adapters");
    tl_shape a, b;
    adapter_shapes(net, slot, r, &a, &b);
    slot->a = tl_lora_parameter(net, name, "lora_A", a, TL_LORA_UNIFORM);
    slot->b = slot->a ? tl_lora_parameter(net, name, "lora_B", b, TL_LORA_ZEROS) : NULL;
    ctx->place = before;
    net->lora->layers += slot->b != NULL;
    return slot->b != NULL;
}

bool tl_lora_begin(tl_net *net, const tl_lora_options *options) {
    tl_ctx *ctx = net->ctx;
    if (tl_lora_check(options, &ctx->error) != TL_OK)
        return false;
    if (net->model.family == TL_FAMILY_CRUNCHER) {
        tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "adapters for %s, which has no blocks; language models have them",
                    net->model.name);
        return false;
    }
    net->lora = tl_host_alloc(ctx, sizeof *net->lora);
    if (!net->lora)
        return false;
    net->lora->options = *options;
    net->lora->options.alpha = options->alpha > 0 ? options->alpha : 2.0 * (double)options->rank;
    snprintf(net->lora->targets, sizeof net->lora->targets, "%s", options->targets ? options->targets : "");
    net->lora->options.targets = net->lora->targets;
    snprintf(net->lora->trained, sizeof net->lora->trained, "%s", options->trained ? options->trained : "");
    net->lora->options.trained = net->lora->trained;
    return true;
}

bool tl_lora_finish(tl_net *net) {
    struct tl_lora *l = net->lora;
    int count = net->count; /* adapters come behind */
    if (l->options.base_head && !net->head) {
        tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT, "the head of %s is its token table, which is not quantised",
                    net->model.name);
        return false;
    }
    if (l->options.rank == 0) {
        for (int i = 0; i < count; i++) {
            tl_tensor_require_grad(net->parameters[i].tensor, false);
            net->parameters[i].frozen = true;
        }
        return l->options.prefix == 0 || tl_prefix_finish(net);
    }
    if (l->options.merged_qv && !net->fused_qkv) {
        tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT,
                    "%s has no product of q, k and v in one, whose q and v alone could be adapted", net->model.name);
        return false;
    }
    if (l->options.merged_qv)
        snprintf(l->targets, sizeof l->targets, "%s", net->fused_qkv);
    if (!tl_lora_check_names(net))
        return false;
    for (int i = 0; i < count; i++) {
        tl_parameter *p = &net->parameters[i];
        if (tl_lora_is_trained(net, p) && tl_tensor_needs_grad(p->tensor))
            continue;
        tl_tensor_require_grad(p->tensor, false);
        p->frozen = true;
    }
    for (int i = 0; i < count; i++)
        if (tl_lora_is_target(net, &net->parameters[i]) && !adapt(net, i))
            return false;
    return true;
}

tl_status tl_net_use_lora(tl_net *net, const tl_lora_options *options) {
    tl_ctx *ctx = net->ctx;
    if (ctx->error.status != TL_OK || (options->rank == 0 && tl_lora_check(options, &ctx->error) == TL_OK))
        return ctx->error.status;
    if (net->lora || net->scales)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "%s %s already", net->model.name,
                           net->lora ? "has adapters" : "has int8 weights, and adapters choose their own base:");
    if (net->fp8_count && options->base != TL_LORA_PLAIN)
        return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "float8 layers over a base of %s; a plain base would work",
                           tl_lora_base_name(options->base));
    tl_phase before = tl_phase_get(ctx);
    bool recording = ctx->recording, ok = tl_lora_begin(net, options);
    ctx->recording = false;
    tl_phase_set(ctx, TL_PHASE_INIT);
    tl_scope_begin(ctx);
    for (int i = 0; i < net->count && ok; i++) {
        tl_place place = ctx->place;
        const tl_storage *s = net->parameters[i].tensor->storage;
        ctx->place.region = s->region;
        ctx->place.module = s->module;
        ok = tl_lora_settle_again(net, i);
        ctx->place.region = place.region;
        ctx->place.module = place.module;
    }
    if (ok)
        ok = tl_lora_finish(net);
    tl_scope_end(ctx);
    tl_phase_set(ctx, before);
    ctx->recording = recording;
    return ctx->error.status;
}

const tl_lora_options *tl_net_lora(const tl_net *net) { return net->lora ? &net->lora->options : NULL; }

int tl_net_lora_layers(const tl_net *net) { return net->lora ? net->lora->layers : 0; }

/* low [B,T,2r] → the change of q, k and v by group, [B,T,G·(R + 2)·K], zeros for the keys: a grouped product with B's two parts,
 * its result among zeros, scaled there. */
static tl_tensor *merged_delta(tl_net *net, const tl_lora_slot *slot, tl_tensor *low, const char *site) {
    tl_ctx *ctx = net->ctx;
    const tl_lora_options *o = &net->lora->options;
    tl_dim r = slot->b->shape.dim[1], G = net->symbols.G, K = net->symbols.K, one = tl_dim_of(1);
    tl_dim q = tl_dim_mul(ctx, net->symbols.H, K), kv = tl_dim_mul(ctx, G, K), R = tl_dim_div(ctx, net->symbols.H, G);
    tl_dim ranks[2] = {r, r}, rows[2] = {q, kv};
    tl_tensor *x[2] = {0}, *b[2] = {0};
    if (!low || tl_split(low, -1, ranks, 2, x) != TL_OK || tl_split(slot->b, 0, rows, 2, b) != TL_OK)
        return NULL;
    tl_dim B = low->shape.dim[0], T = low->shape.dim[1];
    tl_tensor *each[2] = {tl_linear_(x[0], b[0], NULL, site), tl_linear_(x[1], b[1], NULL, site)};
    tl_tensor *both = tl_concat_(each, 2, -1, site), *third[3] = {0}, *of[2] = {0};
    tl_release(each[0]);
    tl_release(each[1]);
    if (!both || tl_split(both, -1, rows, 2, of) != TL_OK)
        return NULL;
    tl_shape keys = TL_SHAPE(ctx, B, T, G, one, K);
    third[0] = tl_view_(of[0], TL_SHAPE(ctx, B, T, G, R, K), site);
    third[1] = tl_empty(ctx, both->dtype, keys, TL_WORK);
    if (!third[1] || !tl_fill_(third[1], 0, site))
        return NULL;
    third[2] = tl_view_(of[1], keys, site);
    tl_tensor *among = tl_concat_(third, 3, 3, site);
    tl_release(third[1]);
    among = tl_retain_(among, both, site);
    tl_tensor *all = among ? tl_view_(among, TL_SHAPE(ctx, B, T, slot->shape.dim[0]), site) : NULL;
    tl_tensor *delta = tl_scale_(all, o->alpha / (double)o->rank, 0, site);
    tl_release(all);
    tl_release(among);
    return delta;
}

static tl_tensor *times(tl_tensor *x, tl_tensor *w, tl_tensor *offsets, const char *site) {
    return offsets ? tl_grouped_linear_(x, w, NULL, offsets, false, site) : tl_linear_(x, w, NULL, site);
}

/* alpha/rank goes onto A's small result, where it costs rank and not `out` products a token. */
tl_tensor *tl_lora_layer(tl_net *net, tl_tensor *x, tl_tensor *w, tl_tensor *bias, const char *site) {
    tl_lora_slot *slot = tl_lora_slot_of(net, w, false);
    if (!slot)
        return tl_product_layer(net, x, w, bias, site);
    tl_tensor *y = tl_scaled_output(slot, tl_lora_base_layer(net, slot, x, bias, site), site);
    if (!slot->b || !y)
        return y;
    return tl_lora_add(net, slot, y, x, NULL, site);
}

/* y + B·(alpha/rank·A·x); takes x cast or dropped out as the options say. */
tl_tensor *tl_lora_add(tl_net *net, const tl_lora_slot *slot, tl_tensor *y, tl_tensor *x, tl_tensor *offsets,
                       const char *site) {
    const tl_lora_options *o = &net->lora->options;
    tl_module_begin_(net->ctx, "lora", -1, site);
    bool up = !net->ctx->cast_inputs && tl_dtype_bytes(x->dtype) < tl_dtype_bytes(slot->a->dtype);
    tl_tensor *in = up ? tl_cast_(x, slot->a->dtype, site) : x;
    in = tl_dropout_if(net, in, o->dropout, "lora");
    tl_tensor *low = times(in, slot->a, offsets, site), *delta;
    if (o->merged_qv)
        delta = merged_delta(net, slot, low, site);
    else
        delta = times(tl_scale_(low, o->alpha / (double)o->rank, 0, site), slot->b, offsets, site);
    tl_tensor *same = delta ? tl_cast_(delta, y->dtype, site) : NULL;
    if (same != delta)
        tl_release(delta);
    tl_tensor *sum = tl_add_(y, same, site);
    tl_release(same);
    tl_module_end(net->ctx);
    return sum;
}

/* ---- merging ---- */

static bool merge_one(tl_net *net, tl_lora_slot *slot) {
    const tl_lora_options *o = &net->lora->options;
    tl_dtype wide = net->dtype == TL_F64 ? TL_F64 : TL_F32;
    if (slot->kind == TL_LORA_PLAIN && !slot->b)
        return true;
    tl_scope_begin(net->ctx);
    tl_tensor *w = tl_lora_full(net, slot, wide);
    if (slot->b) {
        tl_tensor *delta = tl_matmul(tl_cast(slot->b, wide), tl_cast(slot->a, wide));
        delta = slot->turned ? tl_transpose(delta, -1, -2) : delta;
        w = tl_add(w, tl_scale(delta, o->alpha / (double)o->rank, 0));
    }
    bool ok = slot->kind == TL_LORA_PLAIN ? w && tl_write_slice(slot->weight, tl_cast(w, net->dtype), 0, 0)
                                          : tl_lora_unpack(net, slot, w);
    tl_scope_end(net->ctx);
    return ok;
}

static void drop_adapters(tl_net *net) {
    for (int i = 0; i < net->count; i++) {
        tl_parameter *p = &net->parameters[i];
        p->frozen = false;
        if (!p->adapter) {
            tl_tensor_require_grad(p->tensor, true);
            continue;
        }
        tl_tensor_clear_grad(p->tensor);
        tl_free(p->tensor);
        tl_host_free(net->ctx, (char *)(uintptr_t)p->name, strlen(p->name) + 1);
    }
    while (net->count > 0 && net->parameters[net->count - 1].adapter) /* they stand at the end */
        net->count--;
    tl_net_lora_free(net);
}

tl_status tl_net_merge_lora(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (!net->lora)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "%s has no adapters to merge", net->model.name);
    if (net->lora->options.prefix > 0 || net->lora->options.merged_qv)
        return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED,
                           "a learned prompt, or adapters of q and v in one product, into the weights of %s",
                           net->model.name);
    bool recording = ctx->recording, ok = true;
    ctx->recording = false;
    for (int i = 0; i < net->lora->count && ok; i++)
        ok = merge_one(net, net->lora->slots[i]);
    ctx->recording = recording;
    if (ok)
        drop_adapters(net);
    return ctx->error.status;
}
