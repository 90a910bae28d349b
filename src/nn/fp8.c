/* Emulated float8 in the linear layers of blocks: which layers, their states, the product itself. Embeddings, norms, attention's
 * own products and the head stay as they are, as in Transformer Engine, which replaces Linear layers alone. */
#include "nn/names.h"

#include "kernel/table.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

static const char *name_of(const tl_net *net, const tl_tensor *weight) {
    for (int i = 0; i < net->count; i++)
        if (net->parameters[i].tensor == weight)
            return net->parameters[i].name;
    return "";
}

/* "h.0.attn.c_attn.weight" → "h.0.attn.c_attn.fp8" */
static char *state_name(tl_net *net, const tl_tensor *weight) {
    char text[200];
    const char *name = name_of(net, weight);
    size_t length = strlen(name), suffix = strlen(".weight");
    length = length > suffix ? length - suffix : 0;
    snprintf(text, sizeof text, "%.*s.fp8", (int)length, name);
    return tl_host_text(net->ctx, text);
}

static bool add_state(tl_net *net, tl_tensor *weight) {
    tl_ctx *ctx = net->ctx;
    if (!tl_host_grow(ctx, &net->fp8, sizeof *net->fp8, net->fp8_count + 1, &net->fp8_capacity))
        return false;
    tl_place before = ctx->place;
    ctx->place.region = weight->storage->region;
    ctx->place.module = weight->storage->module;
    tl_fp8_slot slot = {.weight = weight, .state = tl_fp8_state_new(ctx)};
    ctx->place = before;
    slot.name = slot.state ? state_name(net, weight) : NULL;
    if (!slot.name) {
        tl_free(slot.state);
        return false;
    }
    net->fp8[net->fp8_count++] = slot;
    return true;
}

tl_status tl_net_use_fp8(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    tl_phase before = tl_phase_get(ctx);
    bool ok = net->fp8_count == 0;
    if (!ok)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "this net computes in float8 already");
    tl_phase_set(ctx, TL_PHASE_INIT);
    tl_scope_begin(ctx);
    for (int64_t l = 0; l < net->model.layers && ok; l++) {
        tl_tensor **at[TL_BLOCK_WEIGHTS];
        tl_block_weights(&net->blocks[l], at);
        for (int i = 0; i < TL_BLOCK_PRODUCTS && ok; i++)
            ok = !at[i] || !*at[i] || add_state(net, *at[i]);
    }
    tl_scope_end(ctx);
    tl_phase_set(ctx, before);
    return ctx->error.status;
}

int tl_net_fp8_states(const tl_net *net) { return net->fp8_count; }

tl_tensor *tl_net_fp8_state(const tl_net *net, int k, const char **name) {
    if (k < 0 || k >= net->fp8_count)
        return NULL;
    if (name)
        *name = net->fp8[k].name;
    return net->fp8[k].state;
}

/* Layers come in the order of their states, so the next is nearly always the one asked for. */
static tl_tensor *state_of(tl_net *net, const tl_tensor *weight) {
    for (int i = 0; i < net->fp8_count; i++) {
        int at = (net->fp8_next + i) % net->fp8_count;
        if (net->fp8[at].weight == weight) {
            net->fp8_next = (at + 1) % net->fp8_count;
            return net->fp8[at].state;
        }
    }
    return NULL;
}

tl_tensor *tl_product_layer(tl_net *net, tl_tensor *x, tl_tensor *w, tl_tensor *bias, const char *site) {
    tl_tensor *state = w && net->fp8_count ? state_of(net, w) : NULL;
    if (!state)
        return tl_linear_(x, w, bias, site);
    /* An evaluation between two steps changes nothing about the next: it records no magnitudes. */
    x = tl_fp8_round_(x, state, TL_FP8_INPUT, net->training, site);
    w = tl_fp8_round_(w, state, TL_FP8_WEIGHT, net->training, site);
    return tl_fp8_gradient_(tl_linear_(x, w, bias, site), state, site);
}

/* "model.layers.3.mlp.up_proj.fp8" is of the pattern "layers.*.mlp.up_proj" where the blocks are "layers". */
static bool is_of_pattern(const char *state, const char *layers, const char *pattern) {
    char first[64], want[160];
    snprintf(first, sizeof first, "%s.", layers);
    const char *found = strstr(state, first);
    if (!found)
        return false;
    const char *tail = found + strlen(first);
    tail += strspn(tail, "0123456789");
    const char *end = strstr(tail, ".fp8");
    snprintf(want, sizeof want, "%s.*%.*s", layers, (int)(end ? end - tail : 0), tail);
    return strcmp(want, pattern) == 0;
}

/* Layers may differ, so that no block stands for all. */
bool tl_net_is_fp8_layer(const tl_net *net, const char *pattern) {
    const char *layers = net->names ? net->names->layers : "layers";
    for (int i = 0; i < net->fp8_count; i++)
        if (is_of_pattern(net->fp8[i].name, layers, pattern))
            return true;
    return false;
}

tl_status tl_net_fp8_roll(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    tl_place before = ctx->place;
    for (int i = 0; i < net->fp8_count && ctx->error.status == TL_OK; i++) {
        ctx->place.region = net->fp8[i].weight->storage->region;
        ctx->place.module = net->fp8[i].weight->storage->module;
        tl_release(tl_fp8_roll(net->fp8[i].state));
    }
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    return ctx->error.status;
}

void tl_net_fp8_free(tl_net *net) {
    for (int i = 0; i < net->fp8_count; i++) {
        tl_free(net->fp8[i].state);
        tl_host_free(net->ctx, net->fp8[i].name, strlen(net->fp8[i].name) + 1);
    }
    tl_host_free(net->ctx, net->fp8, (size_t)net->fp8_capacity * sizeof *net->fp8);
    net->fp8_count = 0;
}
