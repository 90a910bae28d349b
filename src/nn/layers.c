/* What the families share: module brackets, linear layers, dropout, blocks. */
#include "nn/cache.h"
#include "nn/lora.h"
#include "tally/ops_quantize.h"

#include "tally/grad.h"
#include "tensor/ctx.h"

#include <stdio.h>

void tl_enter_(tl_net *net, const char *name, int64_t index, const char *site) {
    tl_module_begin_(net->ctx, name, index, site);
    tl_scope_begin(net->ctx);
}

tl_tensor *tl_leave(tl_net *net, tl_tensor *result) {
    tl_tensor *carried = NULL;
    tl_scope_end_into(net->ctx, &carried, result);
    tl_module_end(net->ctx);
    return carried;
}

tl_tensor *tl_apply_linear_(tl_net *net, const char *name, tl_tensor *x, tl_tensor *w, tl_tensor *bias,
                            const char *site) {
    tl_enter_(net, name, -1, site);
    if (net->lora)
        return tl_leave(net, tl_lora_layer(net, x, w, bias, site));
    tl_tensor *scale = tl_net_scale_of(net, w);
    return tl_leave(net, scale ? tl_linear_int8_(x, w, scale, bias, site) : tl_product_layer(net, x, w, bias, site));
}

/* PyTorch's dropout off its fused kernel: the mask is noise in the run's format, 0 or 1/(1 − p), and a product keeps it. The
 * numbers drawn are tl_dropout's. */
static tl_tensor *dropout_by_noise(tl_net *net, tl_tensor *x, double p, const char *name) {
    tl_ctx *ctx = net->ctx;
    bool recording = ctx->recording;
    ctx->recording = false;
    tl_tensor *one = tl_empty(ctx, tl_tensor_dtype(x), (tl_shape){.ndim = 0}, TL_WORK);
    tl_tensor *noise = one && tl_fill(one, 1) ? tl_dropout(tl_expand(one, *tl_tensor_shape(x)), p, name) : NULL;
    ctx->recording = recording;
    tl_tensor *y = tl_mul(x, noise);
    tl_release(noise);
    return y;
}

tl_tensor *tl_dropout_if(tl_net *net, tl_tensor *x, double p, const char *name) {
    if (!x || !net->training || !(p > 0))
        return x;
    return net->choices.dropout_mask_bytes > 1 ? dropout_by_noise(net, x, p, name) : tl_dropout(x, p, name);
}

int64_t tl_first_position(const tl_net *net) { return net->cache ? net->cache->length : 0; }

struct tl_block_call {
    tl_net *net;
    const tl_block *block;
    tl_block_function *function;
};

/* The region's inputs in turn: x, the layer's own embeddings, keys and values of another layer; outputs: y, and keys and values
 * that others read. */
static tl_status block_region(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const struct tl_block_call *call = user;
    const tl_block *b = call->block;
    tl_beside beside = {0};
    int n = 1;
    if (b->own_gate)
        beside.own = in[n++];
    if (b->kv_from >= 0) {
        beside.k = in[n++];
        beside.v = in[n++];
    }
    out[0] = call->function(call->net, b, in[0], &beside);
    if (b->kv_given) {
        out[1] = beside.k;
        out[2] = beside.v;
    }
    return tl_ctx_status(ctx);
}

static tl_tensor *apply_again(tl_net *net, struct tl_block_call *call, tl_tensor *x, tl_beside *beside) {
    tl_tensor *in[4] = {x}, *out[3] = {0};
    const tl_block *b = call->block;
    int n = 1;
    if (b->own_gate)
        in[n++] = beside->own;
    if (b->kv_from >= 0) {
        in[n++] = beside->k;
        in[n++] = beside->v;
    }
    bool before = net->ctx->offload;
    net->ctx->offload = net->choices.offload;
    tl_checkpoint(net->ctx, block_region, call, sizeof *call, in, n, out, b->kv_given ? 3 : 1);
    net->ctx->offload = before;
    if (b->kv_given) {
        beside->k = out[1];
        beside->v = out[2];
    }
    return out[0];
}

tl_tensor *tl_apply_block(tl_net *net, int64_t index, tl_block_function *function, tl_tensor *x, tl_beside *beside) {
    const tl_recompute *r = &net->recompute;
    bool again = r->kind == TL_RECOMPUTE_FULL || (r->kind == TL_RECOMPUTE_EVERY && index % r->every == 0);
    struct tl_block_call call = {net, &net->blocks[index], function};
    return again ? apply_again(net, &call, x, beside) : function(net, call.block, x, beside);
}
