/* Frozen weights kept in 4 or 8 bits: a parameter's handle stays, and what it holds is replaced. */
#include "nn/lora.h"

#include "tally/ops_choices.h"
#include "tally/ops_moe.h"
#include "tally/ops_quantize.h"
#include "tally/views.h"
#include "tensor/ctx.h"

#include <stdlib.h>

/* Layers come in the order of their slots, so the next is nearly always the one asked for. */
static tl_lora_slot *find(struct tl_lora *l, const tl_tensor *weight) {
    for (int i = 0; i < l->count; i++) {
        int at = (l->next + i) % l->count;
        if (l->slots[at]->weight == weight) {
            l->next = (at + 1) % l->count;
            return l->slots[at];
        }
    }
    return NULL;
}

static int place_of(const tl_net *net, const tl_tensor *weight) {
    for (int i = net->count - 1; i >= 0; i--)
        if (net->parameters[i].tensor == weight)
            return i;
    return -1;
}

tl_lora_slot *tl_lora_slot_of(tl_net *net, const tl_tensor *weight, bool make) {
    struct tl_lora *l = net->lora;
    tl_lora_slot *slot = l && weight ? find(l, weight) : NULL;
    if (slot || !make)
        return slot;
    slot = tl_host_alloc(net->ctx, sizeof *slot);
    if (!slot || !tl_host_grow(net->ctx, &l->slots, sizeof(tl_lora_slot *), l->count + 1, &l->capacity)) {
        tl_host_free(net->ctx, slot, sizeof *slot);
        return NULL;
    }
    slot->parameter = place_of(net, weight);
    slot->weight = net->parameters[slot->parameter].tensor;
    slot->shape = slot->weight->shape;
    slot->experts = net->parameters[slot->parameter].experts;
    slot->turned = net->parameters[slot->parameter].turned;
    l->slots[l->count++] = slot;
    return slot;
}

/* Each handle gets what the other held. */
static void exchange(tl_tensor *a, tl_tensor *b) {
    tl_tensor was = *a;
    a->storage = b->storage;
    a->dtype = b->dtype;
    a->shape = b->shape;
    a->offset = b->offset;
    b->storage = was.storage;
    b->dtype = was.dtype;
    b->shape = was.shape;
    b->offset = was.offset;
    for (int d = 0; d < TL_MAX_NDIM; d++) {
        a->stride[d] = b->stride[d];
        b->stride[d] = was.stride[d];
    }
}

static tl_tensor *keep_as_parameter(tl_tensor *t) {
    t = tl_keep(t);
    if (t)
        tl_storage_retag(t->storage, TL_PARAM);
    return t;
}

/* Experts' rows as rows of one matrix. */
static tl_tensor *as_rows(tl_net *net, tl_tensor *w) {
    const tl_shape *s = &w->shape;
    return s->ndim == 3 ? tl_reshape(w, TL_SHAPE(net->ctx, tl_dim_mul(net->ctx, s->dim[0], s->dim[1]), s->dim[2])) : w;
}

/* The packed form of `weight` and its scales, kept; false with the context's error and nothing kept. */
static bool pack(tl_net *net, tl_lora_base kind, const char *name, tl_tensor *weight, tl_tensor **packed,
                 tl_tensor *scale[3]) {
    tl_ctx *ctx = net->ctx;
    tl_nf4 w;
    if (kind == TL_LORA_INT8)
        return tl_net_int8_of(net, name, as_rows(net, weight), packed, &scale[0]);
    if (tl_quantize_nf4(weight, kind == TL_LORA_NF4_TWICE, &w) != TL_OK) {
        if (ctx->error.status == TL_ERR_ARGUMENT) { /* a value: of which parameter the op cannot know */
            tl_error was = ctx->error;
            tl_ctx_clear_error(ctx);
            tl_ctx_fail(ctx, was.status, "parameter %.120s: %.600s", name, was.message);
        }
        return false;
    }
    *packed = keep_as_parameter(w.packed);
    scale[0] = keep_as_parameter(w.scales);
    scale[1] = keep_as_parameter(w.outer);
    scale[2] = keep_as_parameter(w.mean);
    return true;
}

/* Into the slot's parameter: what it held is let go. */
static bool quantize_into(tl_net *net, tl_lora_slot *slot, tl_lora_base kind, tl_tensor *weight) {
    tl_ctx *ctx = net->ctx;
    tl_tensor *packed = NULL, *scale[3] = {0};
    bool recording = ctx->recording;
    ctx->recording = false;
    tl_module_begin(ctx, "quantize", -1);
    tl_scope_begin(ctx);
    bool ok = pack(net, kind, net->parameters[slot->parameter].name, weight, &packed, scale);
    tl_scope_end(ctx);
    tl_module_end(ctx);
    ctx->recording = recording;
    if (!ok)
        return false;
    tl_tensor_clear_grad(slot->weight);
    tl_tensor_require_grad(slot->weight, false);
    exchange(slot->weight, packed);
    tl_free(packed);
    for (int k = 0; k < 3; k++) {
        tl_free(slot->scale[k]);
        slot->scale[k] = scale[k];
    }
    slot->kind = kind;
    return true;
}

/* Quantises parameter `index` where the net's options say so. */
static bool settle(tl_net *net, int index) {
    tl_parameter *p = &net->parameters[index];
    if (!net->lora || net->lora->options.base == TL_LORA_PLAIN)
        return true;
    tl_lora_slot *slot = tl_lora_slot_of(net, p->tensor, true);
    if (!slot || !quantize_into(net, slot, net->lora->options.base, slot->weight))
        return false;
    p->full = &slot->shape;
    return true;
}

bool tl_lora_settle(tl_net *net, int index) {
    tl_parameter *p = &net->parameters[index];
    p->linear = true;
    return settle(net, index);
}

bool tl_lora_settle_experts(tl_net *net, int index, bool turned) {
    tl_parameter *p = &net->parameters[index];
    p->experts = true;
    p->turned = turned;
    return settle(net, index);
}

bool tl_lora_settle_again(tl_net *net, int index) {
    const tl_parameter *p = &net->parameters[index];
    if (p->tensor == net->head)
        return tl_lora_settle_head(net, index);
    return !(p->linear || p->experts) || settle(net, index);
}

bool tl_lora_settle_head(tl_net *net, int index) {
    return !net->lora || !net->lora->options.base_head || settle(net, index);
}

static tl_nf4 packed_of(const tl_net *net, const tl_lora_slot *slot) {
    return (tl_nf4){.packed = slot->weight,
                    .scales = slot->scale[0],
                    .outer = slot->scale[1],
                    .mean = slot->scale[2],
                    .by_f16 = net->lora->options.base_by_f16};
}

/* bitsandbytes' product keeps its input: options.base_keeps_input. Takes y. */
static tl_tensor *keeping(const tl_net *net, tl_tensor *y, tl_tensor *x, const char *site) {
    bool keeps = net->lora->options.base_keeps_input && x && tl_tensor_needs_grad(x);
    tl_tensor *kept = keeps ? tl_retain_(y, x, site) : y;
    if (kept != y)
        tl_release(y);
    return kept;
}

tl_tensor *tl_lora_base_layer(tl_net *net, const tl_lora_slot *slot, tl_tensor *x, tl_tensor *bias, const char *site) {
    tl_ctx *ctx = net->ctx;
    if (slot->kind == TL_LORA_PLAIN)
        return tl_product_layer(net, x, slot->weight, bias, site);
    /* Autocast's rule for a product, which cannot know of scales that must stay f32. */
    if (x && ctx->cast_inputs && x->dtype != TL_F64) {
        x = tl_cast_(x, ctx->autocast, site);
        bias = bias ? tl_cast_(bias, ctx->autocast, site) : NULL;
    }
    tl_nf4 w = packed_of(net, slot);
    tl_tensor *y = slot->kind == TL_LORA_INT8 ? tl_linear_int8_(x, slot->weight, slot->scale[0], bias, site)
                                              : tl_linear_nf4_(x, &w, slot->shape.dim[0], bias, site);
    return keeping(net, y, x, site);
}

tl_tensor *tl_lora_base_experts(tl_net *net, const tl_lora_slot *slot, tl_tensor *x, tl_tensor *bias,
                                tl_tensor *offsets, const char *site) {
    tl_ctx *ctx = net->ctx;
    if (slot->kind == TL_LORA_PLAIN)
        return tl_grouped_linear_(x, slot->weight, bias, offsets, slot->turned, site);
    if (x && ctx->cast_inputs && x->dtype != TL_F64) {
        x = tl_cast_(x, ctx->autocast, site);
        bias = bias ? tl_cast_(bias, ctx->autocast, site) : NULL;
    }
    tl_frozen_experts w = {.experts = slot->shape.dim[0], .transposed = slot->turned};
    if (slot->kind == TL_LORA_INT8) {
        w.q = slot->weight;
        w.scale = slot->scale[0];
    } else
        w.nf4 = packed_of(net, slot);
    tl_dim out = slot->shape.dim[slot->turned ? 2 : 1];
    return keeping(net, tl_grouped_linear_packed_(x, &w, out, bias, offsets, site), x, site);
}

tl_tensor *tl_lora_full(tl_net *net, const tl_lora_slot *slot, tl_dtype dtype) {
    (void)net;
    tl_quantize_options rows = {.axis = 0};
    if (slot->kind == TL_LORA_PLAIN)
        return tl_cast(slot->weight, dtype);
    if (slot->kind == TL_LORA_INT8)
        return tl_cast(tl_reshape(tl_dequantize(slot->weight, slot->scale[0], NULL, &rows), slot->shape), dtype);
    tl_nf4 w = packed_of(net, slot);
    return tl_dequantize_nf4(&w, slot->shape, dtype);
}

bool tl_lora_unpack(tl_net *net, tl_lora_slot *slot, tl_tensor *full) {
    tl_place before = net->ctx->place;
    net->ctx->place.region = slot->weight->storage->region;
    net->ctx->place.module = slot->weight->storage->module;
    tl_tensor *t = tl_keep(tl_empty(net->ctx, net->dtype, slot->shape, TL_PARAM));
    bool ok = t && full && tl_write_slice(t, tl_cast(full, net->dtype), 0, 0);
    net->ctx->place = before;
    if (ok) {
        exchange(slot->weight, t);
        net->parameters[slot->parameter].full = NULL;
        slot->kind = TL_LORA_PLAIN;
        for (int k = 0; k < 3; k++) {
            tl_free(slot->scale[k]);
            slot->scale[k] = NULL;
        }
    }
    tl_free(t);
    return ok;
}

void tl_net_lora_free(tl_net *net) {
    struct tl_lora *l = net->lora;
    if (!l)
        return;
    for (int i = 0; i < l->count; i++) {
        for (int k = 0; k < 3; k++)
            tl_free(l->slots[i]->scale[k]);
        tl_host_free(net->ctx, l->slots[i], sizeof *l->slots[i]);
    }
    tl_host_free(net->ctx, l->slots, (size_t)l->capacity * sizeof(tl_lora_slot *));
    tl_host_free(net->ctx, l, sizeof *l);
    net->lora = NULL;
}

static tl_lora_slot *slot_at(const tl_net *net, int index) {
    for (int i = 0; net->lora && i < net->lora->count; i++)
        if (net->lora->slots[i]->parameter == index)
            return net->lora->slots[i];
    return NULL;
}

tl_tensor *tl_net_quantization(const tl_net *net, int index, int k, const char **suffix) {
    static const char *const names[] = {"absmax", "nested_absmax", "nested_mean"};
    const tl_parameter *p = index >= 0 && index < net->count ? &net->parameters[index] : NULL;
    const tl_lora_slot *slot = p && p->full && k >= 0 && k < 3 ? slot_at(net, index) : NULL;
    if (!slot || !slot->scale[k])
        return NULL;
    if (suffix)
        *suffix = slot->kind == TL_LORA_INT8 ? "scale" : names[k];
    return slot->scale[k];
}

tl_status tl_net_requantize(tl_net *net, int index, tl_tensor *weight) {
    tl_lora_slot *slot = slot_at(net, index);
    char have[200], want[160];
    if (!weight || net->ctx->error.status != TL_OK)
        return net->ctx->error.status;
    if (!slot || slot->kind == TL_LORA_PLAIN)
        return tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT, "parameter %d is not quantised", index);
    if (!tl_shape_equal(&weight->shape, &slot->shape))
        return tl_ctx_fail(net->ctx, TL_ERR_SHAPE, "%s for the weight %s %s", tl_tensor_text(weight, have, sizeof have),
                           net->parameters[index].name, tl_shape_text(&slot->shape, want, sizeof want));
    tl_place before = net->ctx->place;
    net->ctx->place.region = slot->weight->storage->region;
    net->ctx->place.module = slot->weight->storage->module;
    quantize_into(net, slot, slot->kind, weight);
    net->ctx->place = before;
    return net->ctx->error.status;
}
