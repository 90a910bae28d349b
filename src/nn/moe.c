/* The feed-forward part as a mixture of experts: a router, its k of E experts for each token, experts that every token passes.
 * Tokens are sorted by expert and go through grouped products, or into places of a fixed number (tl_choices.experts); both have
 * shapes that no routing changes. The families' code adds no load-balancing loss to the loss unless its user asks for router logits
 * (output_router_logits, false in every family), and so none is added here. */
#include "nn/lora.h"
#include "nn/names.h"

#include "tally/ops_index.h"
#include "tally/ops_elementwise.h"
#include "tally/ops_moe.h"
#include "tally/views.h"
#include "tensor/ctx.h"

#include <stdio.h>

/* ---- parameters ---- */

static tl_tensor *parameter(tl_net *net, const char *path, const char *end, tl_shape shape, double std) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", path, end);
    tl_start start = {std > 0 ? TL_START_NORMAL : TL_START_ZERO, std};
    return tl_net_parameter(net, name, shape, start, std > 0, false);
}

static tl_tensor *weights(tl_net *net, const char *path, const char *end, tl_shape shape, bool turned) {
    tl_tensor *w = parameter(net, path, end, shape, net->model.init_std);
    return w && tl_lora_settle_experts(net, net->count - 1, turned) ? w : NULL;
}

static bool build_apart(tl_net *net, tl_experts *e, const char *path) {
    char gate[48], up[48], down[48];
    tl_ctx *ctx = net->ctx;
    const tl_names *n = net->names;
    const tl_symbols *s = &net->symbols;
    snprintf(gate, sizeof gate, "experts.%s.weight", n->expert_gate);
    snprintf(up, sizeof up, "experts.%s.weight", n->expert_up);
    snprintf(down, sizeof down, "experts.%s.weight", n->expert_down);
    return (e->gate = weights(net, path, gate, TL_SHAPE(ctx, s->E, s->Fe, s->D), false)) &&
           (e->up = weights(net, path, up, TL_SHAPE(ctx, s->E, s->Fe, s->D), false)) &&
           (e->down = weights(net, path, down, TL_SHAPE(ctx, s->E, s->D, s->Fe), false));
}

static bool build_fused(tl_net *net, tl_experts *e, const char *path) {
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    tl_dim both = tl_dim_mul(ctx, tl_dim_of(2), s->Fe);
    bool bias = net->model.expert_bias, rows = net->names->fused_rows;
    tl_shape up = rows ? TL_SHAPE(ctx, s->E, both, s->D) : TL_SHAPE(ctx, s->E, s->D, both);
    tl_shape down = rows ? TL_SHAPE(ctx, s->E, s->D, s->Fe) : TL_SHAPE(ctx, s->E, s->Fe, s->D);
    return (e->fused = weights(net, path, "experts.gate_up_proj", up, !rows)) &&
           (!bias ||
            (e->fused_bias = parameter(net, path, "experts.gate_up_proj_bias", TL_SHAPE(ctx, s->E, both), 0))) &&
           (e->down = weights(net, path, "experts.down_proj", down, !rows)) &&
           (!bias || (e->down_bias = parameter(net, path, "experts.down_proj_bias", TL_SHAPE(ctx, s->E, s->D), 0)));
}

static bool build_beside(tl_net *net, tl_block *b, const char *path) {
    char text[3][160];
    tl_ctx *ctx = net->ctx;
    const tl_symbols *s = &net->symbols;
    tl_experts *e = &b->experts;
    tl_start one = {TL_START_ONE, 0};
    snprintf(text[0], sizeof text[0], "%srouter.scale", path);
    snprintf(text[1], sizeof text[1], "%srouter.per_expert_scale", path);
    if (!(e->router_scale = tl_net_parameter(net, text[0], TL_SHAPE(ctx, s->D), one, false, false)) ||
        !(e->expert_scale = tl_net_parameter(net, text[1], TL_SHAPE(ctx, s->E), one, false, false)))
        return false;
    snprintf(text[0], sizeof text[0], "%spost_feedforward_layernorm_1", path);
    snprintf(text[1], sizeof text[1], "%spre_feedforward_layernorm_2", path);
    snprintf(text[2], sizeof text[2], "%spost_feedforward_layernorm_2", path);
    return tl_net_norm(net, &b->mlp_after, text[0], s->D) && tl_net_norm(net, &b->experts_before, text[1], s->D) &&
           tl_net_norm(net, &b->experts_after, text[2], s->D);
}

/* DeepSeek-V3's bias of choice is moved by the load of the experts, not by a gradient (DeepSeek-V3, section 2.1.2). */
static bool build_correction(tl_net *net, tl_experts *e, const char *path) {
    char end[64];
    snprintf(end, sizeof end, "%s.e_score_correction_bias", net->names->router);
    e->correction = parameter(net, path, end, TL_SHAPE(net->ctx, net->symbols.E), 0);
    if (e->correction)
        tl_tensor_require_grad(e->correction, false);
    return e->correction != NULL;
}

/* DeepSeek's router is a parameter and no nn.Linear (modeling_deepseek.py, MoEGate: F.linear of both in f32): what quantises
 * linear layers, or sets adapters on them, passes it by. */
static tl_tensor *build_router(tl_net *net, tl_experts *e, const char *path) {
    const tl_symbols *s = &net->symbols;
    const tl_model *m = &net->model;
    char name[192];
    if (!net->names->router_f32)
        return tl_net_linear(net, path, s->E, s->D, m->init_std, m->router_bias, &e->router_bias);
    snprintf(name, sizeof name, "%s.weight", path);
    return tl_net_parameter(net, name, TL_SHAPE(net->ctx, s->E, s->D), (tl_start){TL_START_NORMAL, m->init_std}, true,
                            false);
}

bool tl_experts_build(tl_net *net, tl_block *block, const char *path) {
    char inside[128], part[160];
    const tl_names *n = net->names;
    const tl_symbols *s = &net->symbols;
    const tl_model *m = &net->model;
    tl_experts *e = &block->experts;
    snprintf(inside, sizeof inside, "%s%s%s", path, n->moe, n->moe[0] ? "." : "");
    snprintf(part, sizeof part, "%s%s", inside, n->router);
    bool ok = (e->router = build_router(net, e, part)) != NULL;
    ok = ok && (!m->correction_bias || build_correction(net, e, inside));
    ok = ok && (n->expert_gate_up ? build_fused : build_apart)(net, e, inside);
    if (ok && m->shared_ff > 0) {
        snprintf(part, sizeof part, "%s%s.", inside, n->shared);
        ok = tl_mlp_build(net, &e->shared, part, s->Fs);
    }
    if (ok && m->shared_gate) {
        snprintf(part, sizeof part, "%s%s_gate", inside, n->shared);
        e->shared_gate = tl_net_linear(net, part, tl_dim_of(1), s->D, m->init_std, false, NULL);
        ok = e->shared_gate != NULL;
    }
    return ok && (!m->experts_beside || build_beside(net, block, path));
}

/* ---- routing ---- */

static bool is_16_bit(tl_dtype dtype) { return dtype == TL_BF16 || dtype == TL_F16; }

/* [n,E]. Softmax and sigmoid of a router run in f32 in every family; DeepSeek's product too. */
static tl_tensor *scores(tl_net *net, const tl_experts *e, tl_tensor *x) {
    tl_tensor *w = e->router;
    bool narrow = is_16_bit(net->dtype);
    if (narrow && net->names->router_f32) { /* no linear layer, so never packed nor adapted */
        x = tl_cast(x, TL_F32);
        w = tl_cast(w, TL_F32);
    }
    tl_tensor *y = tl_apply_linear(net, net->names->router, x, w, e->router_bias);
    return narrow && y ? tl_cast(y, TL_F32) : y;
}

static bool route(tl_net *net, const tl_experts *e, tl_tensor *x, tl_routing *routing) {
    static const tl_route_score kinds[] = {[TL_ROUTER_SOFTMAX] = TL_ROUTE_SOFTMAX,
                                           [TL_ROUTER_TOP_SOFTMAX] = TL_ROUTE_CHOSEN_SOFTMAX,
                                           [TL_ROUTER_SIGMOID] = TL_ROUTE_SIGMOID,
                                           [TL_ROUTER_SIGMOID_INPUT] = TL_ROUTE_CHOSEN_SIGMOID};
    const tl_model *m = &net->model;
    tl_tensor *y = scores(net, e, x), *bias = e->correction;
    if (!y)
        return false;
    if (bias && tl_tensor_dtype(bias) != tl_tensor_dtype(y))
        bias = tl_cast(bias, tl_tensor_dtype(y));
    bool sigmoid = m->router == TL_ROUTER_SIGMOID;
    bool renormalise = m->norm_top_k && m->router <= TL_ROUTER_SIGMOID && m->router != TL_ROUTER_TOP_SOFTMAX;
    tl_route_options options = {.k = net->symbols.k,
                                .score = kinds[m->router],
                                .bias = bias,
                                .n_group = m->router_groups > 1 ? m->router_groups : 0,
                                .topk_group = m->router_groups > 1 ? m->router_top_groups : 0,
                                .group = sigmoid ? TL_ROUTE_GROUP_TOP2 : TL_ROUTE_GROUP_MAX,
                                .renormalise = renormalise,
                                .renormalise_epsilon = renormalise && net->names->router_f32 ? 1e-20 : 0,
                                .scale = m->routed_scale};
    if (tl_route_top_k(y, &options, routing) != TL_OK || !e->expert_scale)
        return tl_ctx_status(net->ctx) == TL_OK;
    tl_tensor *scale = tl_gather(e->expert_scale, routing->experts, 0);
    routing->weights = scale ? tl_mul(routing->weights, tl_cast(scale, tl_tensor_dtype(routing->weights))) : NULL;
    return routing->weights != NULL;
}

/* ---- the experts ---- */

struct dispatch {
    tl_tensor *order, *offsets; /* offsets NULL: places of a fixed number, rows [E,C,…] */
    tl_tensor *even;            /* then these, where weights are not plain */
};

/* Rows times weights that are quantised, have adapters, or both: by grouped products alone. */
static tl_tensor *adapted_product(tl_net *net, const struct dispatch *d, const tl_lora_slot *slot, tl_tensor *x,
                                  tl_tensor *bias) {
    tl_ctx *ctx = net->ctx;
    tl_tensor *offsets = d->offsets ? d->offsets : d->even;
    tl_shape s = *tl_tensor_shape(x);
    if (s.ndim == 3)
        x = tl_reshape(x, TL_SHAPE(ctx, tl_dim_mul(ctx, s.dim[0], s.dim[1]), s.dim[2]));
    tl_tensor *y = tl_lora_base_experts(net, slot, x, bias, offsets, TL_HERE);
    if (y && slot->b)
        y = tl_lora_add(net, slot, y, x, offsets, TL_HERE);
    return y && s.ndim == 3 ? tl_view(y, TL_SHAPE(ctx, s.dim[0], s.dim[1], tl_tensor_shape(y)->dim[1])) : y;
}

static bool is_adapted(tl_net *net, const tl_experts *e) {
    tl_tensor *weights[] = {e->gate, e->up, e->fused, e->down};
    for (int i = 0; net->lora && i < 4; i++)
        if (weights[i] && tl_lora_slot_of(net, weights[i], false))
            return true;
    return false;
}

/* 0, C, 2·C, …: what tl_moe_sort's offsets would be, with all places taken. */
static tl_tensor *even_offsets(tl_net *net, tl_dim places) {
    tl_ctx *ctx = net->ctx;
    tl_dim n = tl_dim_add(ctx, net->symbols.E, tl_dim_of(1));
    tl_tensor *t = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, n), TL_WORK);
    return t ? tl_range(t, 0, (double)places.size) : NULL;
}

/* Rows of experts times their weights: apart [E,out,in], or as published fused [E,in,out]. */
static tl_tensor *expert_product(tl_net *net, const struct dispatch *d, const char *name, tl_tensor *x, tl_tensor *w,
                                 tl_tensor *bias, bool as_published) {
    if (!x)
        return NULL;
    tl_enter(net, name, -1);
    const tl_lora_slot *slot = net->lora ? tl_lora_slot_of(net, w, false) : NULL;
    if (slot)
        return tl_leave(net, adapted_product(net, d, slot, x, bias));
    if (d->offsets)
        return tl_leave(net, tl_grouped_linear(x, w, bias, d->offsets, as_published));
    tl_tensor *y = tl_matmul(x, as_published ? w : tl_transpose(w, -1, -2));
    if (y && bias) {
        const tl_shape *shape = tl_tensor_shape(bias);
        y = tl_add(y, tl_view(bias, TL_SHAPE(net->ctx, shape->dim[0], tl_dim_of(1), shape->dim[1])));
    }
    return tl_leave(net, y);
}

/* […,2·Fe] → activation of the gate times the value. gpt_oss lays gate and value in turn, column by column; llama4 in halves. */
static tl_tensor *gated_columns(tl_net *net, tl_tensor *both) {
    if (!both)
        return NULL;
    tl_ctx *ctx = net->ctx;
    tl_shape shape = *tl_tensor_shape(both);
    tl_dim Fe = net->symbols.Fe, one = tl_dim_of(1), halves[2] = {Fe, Fe}, pair[2] = {one, one};
    tl_tensor *part[2] = {0};
    if (!net->names->columns_in_turn) {
        tl_split(both, -1, halves, 2, part);
        return tl_gated(net, part[0], part[1]);
    }
    tl_shape wide = shape;
    wide.dim[wide.ndim - 1] = Fe;
    shape = wide;
    wide.dim[wide.ndim++] = tl_dim_of(2);
    both = tl_view(both, tl_shape_of(ctx, wide.ndim, wide.dim));
    if (!both)
        return NULL;
    tl_split(both, -1, pair, 2, part);
    return tl_gated(net, tl_view(part[0], shape), tl_view(part[1], shape));
}

static tl_tensor *run_experts(tl_net *net, const tl_experts *e, const struct dispatch *d, tl_tensor *x) {
    const tl_names *n = net->names;
    tl_tensor *y;
    if (e->fused)
        y = gated_columns(net, expert_product(net, d, n->expert_gate_up, x, e->fused, e->fused_bias, !n->fused_rows));
    else {
        tl_tensor *gate = expert_product(net, d, n->expert_gate, x, e->gate, NULL, false);
        y = tl_gated(net, gate, expert_product(net, d, n->expert_up, x, e->up, NULL, false));
    }
    return expert_product(net, d, n->expert_down, y, e->down, e->down_bias, e->fused && !n->fused_rows);
}

/* x[n,D] → [n,D]; the router reads `seen`[n,D] */
static tl_tensor *routed(tl_net *net, const tl_experts *e, tl_tensor *seen, tl_tensor *x) {
    const tl_symbols *s = &net->symbols;
    struct dispatch d = {0};
    tl_routing r = {0};
    if (!seen || !x || !route(net, e, seen, &r))
        return NULL;
    tl_enter(net, "experts", -1);
    tl_dim n = tl_tensor_shape(x)->dim[0];
    bool into = net->model.router == TL_ROUTER_SIGMOID_INPUT; /* k = 1: the weight scales what the expert reads */
    if (net->choices.experts == TL_EXPERTS_CAPACITY) {
        double factor = net->choices.capacity_factor > 0 ? net->choices.capacity_factor : 1;
        tl_dim places = tl_moe_capacity_dim(net->ctx, n, s->k, s->E, factor);
        d.order = tl_moe_capacity(r.experts, s->E, places, false);
        if (is_adapted(net, e) && !(d.even = even_offsets(net, places)))
            return tl_leave(net, NULL);
    } else if (tl_moe_sort(r.experts, s->E, &d.order, &d.offsets) != TL_OK)
        return tl_leave(net, NULL);
    if (into)
        x = tl_mul(x, tl_cast(r.weights, tl_tensor_dtype(x)));
    tl_tensor *y = d.order ? run_experts(net, e, &d, tl_moe_permute(x, d.order, s->k)) : NULL;
    if (!y)
        return tl_leave(net, NULL);
    return tl_leave(net, into ? tl_moe_sum(y, d.order, n, s->k) : tl_moe_combine(y, d.order, r.weights));
}

static tl_tensor *shared(tl_net *net, const tl_experts *e, tl_tensor *x) {
    char gate[64];
    const char *name = net->names->shared;
    tl_enter(net, name, -1);
    tl_tensor *y = tl_leave(net, tl_apply_mlp(net, &e->shared, x));
    if (!e->shared_gate)
        return y;
    snprintf(gate, sizeof gate, "%s_gate", name);
    return tl_mul(tl_sigmoid(tl_apply_linear(net, gate, x, e->shared_gate, NULL)), y);
}

tl_tensor *tl_apply_experts(tl_net *net, const tl_block *b, tl_tensor *x) {
    const tl_experts *e = &b->experts;
    tl_ctx *ctx = net->ctx;
    if (!x)
        return NULL;
    tl_enter_part(net, net->names->moe);
    tl_shape shape = *tl_tensor_shape(x);
    tl_dim n = tl_dim_mul(ctx, shape.dim[0], shape.dim[1]);
    tl_tensor *rows = tl_view(x, TL_SHAPE(ctx, n, shape.dim[2])), *y = routed(net, e, rows, rows);
    y = y ? tl_view(y, shape) : NULL;
    if (y && net->model.shared_ff > 0)
        y = tl_add(y, shared(net, e, x));
    return tl_leave_part(net, net->names->moe, y);
}

/* What the router reads is normed without a gain, and times scale·D^(−1/2) (Hugging Face's modeling_gemma4.py). */
static tl_tensor *seen_by_router(tl_net *net, const tl_experts *e, tl_tensor *x) {
    static const tl_norm without_gain = {.kind = TL_NORM_RMS};
    tl_tensor *y = tl_apply_norm(net, &without_gain, "router.norm", x);
    y = y ? tl_mul(y, e->router_scale) : NULL;
    return y ? tl_scale(y, 1 / tl_square_root((double)net->model.width), 0) : NULL;
}

tl_tensor *tl_apply_experts_beside(tl_net *net, const tl_block *b, tl_tensor *x) {
    tl_ctx *ctx = net->ctx;
    if (!x)
        return NULL;
    tl_scope_begin(ctx);
    tl_shape shape = *tl_tensor_shape(x);
    tl_dim n = tl_dim_mul(ctx, shape.dim[0], shape.dim[1]);
    tl_tensor *rows = tl_view(x, TL_SHAPE(ctx, n, shape.dim[2])), *seen = seen_by_router(net, &b->experts, rows);
    tl_tensor *read = tl_apply_norm(net, &b->experts_before, "pre_feedforward_layernorm_2", rows);
    tl_tensor *y = routed(net, &b->experts, seen, read);
    y = y ? tl_apply_norm(net, &b->experts_after, "post_feedforward_layernorm_2", tl_view(y, shape)) : NULL;
    return tl_leave_part(net, "", y);
}
