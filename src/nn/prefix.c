/* LLaMA-Adapter (Zhang et al. 2023, "LLaMA-Adapter: Efficient Fine-tuning of Language Models with Zero-init Attention", section 3)
 * and its second version (Gao et al. 2023, "LLaMA-Adapter V2", section 3.1), as lit_gpt/adapter.py and adapter_v2.py write them:
 * a learned prompt of each upper layer is attended to beside the text, its result times a gate a head that starts at 0; V2 also
 * trains norms, and a bias and a scale of each linear layer's output. */
#include "nn/lora.h"
#include "nn/names.h"
#include "tally/ops_attention.h"
#include "tally/ops_layers.h"
#include "tally/views.h"

#include "tensor/ctx.h"

static const char *name_of(const tl_net *net, const tl_tensor *weight) {
    for (int i = 0; i < net->count; i++)
        if (net->parameters[i].tensor == weight)
            return net->parameters[i].name;
    return "?";
}

static bool add_prefix(tl_net *net, tl_block *b) {
    tl_ctx *ctx = net->ctx;
    tl_attention *a = &b->attention;
    tl_dim P = tl_dim_symbol(ctx, "P", net->lora->options.prefix, "rows of a learned prompt"), one = tl_dim_of(1);
    tl_place before = ctx->place;
    const char *name = name_of(net, a->q);
    ctx->place.region = a->q->storage->region;
    ctx->place.module = a->q->storage->module;
    a->prefix = tl_lora_parameter(net, name, "adapter_wte", TL_SHAPE(ctx, P, net->symbols.D), TL_LORA_UNIFORM);
    a->prefix_gate = a->prefix ? tl_lora_parameter(net, name, "gating_factor", TL_SHAPE(ctx, net->symbols.H, one, one),
                                                   TL_LORA_ZEROS)
                               : NULL;
    ctx->place = before;
    return a->prefix_gate != NULL;
}

static void train_norm(tl_net *net, const tl_norm *norm) {
    for (int i = 0; i < net->count; i++)
        if (net->parameters[i].tensor == norm->gain || (norm->bias && net->parameters[i].tensor == norm->bias)) {
            net->parameters[i].frozen = false;
            tl_tensor_require_grad(net->parameters[i].tensor, true);
        }
}

static bool add_scale(tl_net *net, int index) {
    tl_ctx *ctx = net->ctx;
    tl_lora_slot *slot = tl_lora_slot_of(net, net->parameters[index].tensor, true);
    if (!slot)
        return false;
    tl_place before = ctx->place;
    const char *name = net->parameters[index].name;
    tl_shape rows = TL_SHAPE(ctx, slot->shape.dim[0]);
    ctx->place.region = slot->weight->storage->region;
    ctx->place.module = slot->weight->storage->module;
    slot->shift = tl_lora_parameter(net, name, "adapter_bias", rows, TL_LORA_ZEROS);
    slot->stretch = slot->shift ? tl_lora_parameter(net, name, "adapter_scale", rows, TL_LORA_ONES) : NULL;
    ctx->place = before;
    return slot->stretch != NULL;
}

bool tl_prefix_finish(tl_net *net) {
    const tl_lora_options *o = &net->lora->options;
    int count = net->count;
    if (!net->fused_qkv || (net->names->layout != TL_FUSED_BY_GROUP && !net->model.fused_qkv)) {
        tl_ctx_fail(net->ctx, TL_ERR_UNSUPPORTED,
                    "a learned prompt for %s, whose q, k and v are not one product by group", net->model.name);
        return false;
    }
    for (int64_t i = o->prefix_from; i < net->model.layers; i++)
        if (!add_prefix(net, &net->blocks[i]))
            return false;
    for (int i = 0; i < count && o->scales; i++)
        if ((net->parameters[i].linear || net->parameters[i].tensor == net->head) && !add_scale(net, i))
            return false;
    for (int64_t i = 0; i < net->model.layers && o->scales; i++) {
        train_norm(net, &net->blocks[i].norm_1);
        train_norm(net, &net->blocks[i].norm_2);
    }
    if (o->scales)
        train_norm(net, &net->final_norm);
    return true;
}

/* [1,P,G,K], part `which` of a group's */
static tl_tensor *part_of(tl_net *net, const tl_attention *a, tl_tensor *fused, int which) {
    tl_ctx *ctx = net->ctx;
    const tl_shape *s = &fused->shape;
    tl_dim one = tl_dim_of(1), R = tl_dim_div(ctx, net->symbols.H, a->G), counts[3] = {R, one, one};
    tl_tensor *part[3] = {0};
    tl_dim each = tl_dim_add(ctx, R, tl_dim_of(2));
    if (tl_split(tl_view(fused, TL_SHAPE(ctx, one, s->dim[1], a->G, each, a->K)), 3, counts, 3, part) != TL_OK)
        return NULL;
    return tl_transpose(tl_view(part[which], TL_SHAPE(ctx, one, s->dim[1], a->G, a->K)), 1, 2);
}

tl_tensor *tl_prefix_attend(tl_net *net, const tl_attention *a, tl_tensor *q, tl_tensor *mixed) {
    tl_ctx *ctx = net->ctx;
    if (!a->prefix || !q || !mixed)
        return mixed;
    tl_dim B = q->shape.dim[0], T = q->shape.dim[2], P = a->prefix->shape.dim[0], one = tl_dim_of(1);
    tl_tensor *prompt = tl_view(a->prefix, TL_SHAPE(ctx, one, P, net->symbols.D));
    tl_tensor *fused = tl_apply_linear(net, net->fused_qkv, prompt, a->q, a->q_bias), *pair[2];
    if (!fused)
        return NULL;
    for (int i = 0; i < 2; i++) {
        pair[i] = part_of(net, a, fused, i + 1);
        if (pair[i] && B.size > 1)
            pair[i] = tl_copy(tl_expand(pair[i], TL_SHAPE(ctx, B, a->G, P, a->K)));
    }
    tl_flash_options all = {.scale = net->model.query_scale, .window_before = -1};
    tl_tensor *y = tl_flash_attention(q, pair[0], pair[1], &all), *gated = tl_mul(y, a->prefix_gate);
    tl_release(y);
    tl_tensor *flat = tl_reshape(tl_transpose(gated, 1, 2), TL_SHAPE(ctx, B, T, tl_dim_mul(ctx, net->symbols.H, a->K)));
    tl_tensor *sum = tl_add(mixed, flat);
    tl_release(flat);
    tl_release(gated);
    tl_release(mixed);
    return sum;
}

tl_tensor *tl_scaled_output(const tl_lora_slot *slot, tl_tensor *y, const char *site) {
    if (!slot || !slot->stretch || !y)
        return y;
    tl_tensor *shifted = tl_add_(y, slot->shift, site);
    tl_release(y);
    tl_tensor *scaled = tl_mul_(shifted, slot->stretch, site);
    tl_release(shifted);
    return scaled;
}
