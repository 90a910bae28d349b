/* Linear layers' weights as int8, one scale a row. Made of ops, so that meta knows what it takes. */
#include "nn/lora.h"

#include "tally/cache.h"
#include "tally/ops_elementwise.h"
#include "tally/ops_quantize.h"
#include "tally/ops_reduce.h"
#include "tensor/ctx.h"

#include <string.h>

/* Of the blocks' linear layers and the projections of embeddings: not the experts', whose products are grouped. */
static bool is_linear(tl_net *net, const tl_tensor *t) {
    bool found = t == net->embed_in || t == net->embed_out || t == net->own_in;
    for (int64_t i = 0; i < net->model.layers && !found; i++) {
        tl_tensor **at[TL_BLOCK_WEIGHTS];
        tl_block_weights(&net->blocks[i], at);
        for (int k = 0; k < TL_BLOCK_WEIGHTS; k++)
            found = found || (at[k] && *at[k] == t);
    }
    return found;
}

/* The largest |w| of each row, without a copy of the weight: the larger of its largest and −its smallest. */
static tl_tensor *largest_of_rows(tl_tensor *w) {
    const int axes[] = {1};
    tl_tensor *high = tl_max(w, axes, 1, false), *low = tl_neg(tl_min(w, axes, 1, false));
    return tl_cast(tl_maximum(high, low), TL_F32);
}

/* No value of a row's largest may be NaN or infinite: then no weight is. */
static tl_status check_finite(tl_net *net, const char *name, const tl_tensor *largest) {
    tl_ctx *ctx = net->ctx;
    int64_t count = tl_tensor_count(largest);
    size_t bytes = (size_t)count * sizeof(float);
    if (tl_ctx_is_meta(ctx) || ctx->error.status != TL_OK)
        return ctx->error.status;
    float *values = tl_host_alloc(ctx, bytes);
    tl_status status = values ? tl_tensor_read(largest, values, bytes) : ctx->error.status;
    for (int64_t i = 0; i < count && status == TL_OK; i++)
        if (!(values[i] <= 3.402823466e38f))
            status = tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "row %lld of %s holds %s and has no int8 form", (long long)i,
                                 name, values[i] != values[i] ? "NaN" : "infinity");
    tl_host_free(ctx, values, bytes);
    return status;
}

static void replace_everywhere(tl_net *net, const tl_tensor *old, tl_tensor *new) {
    for (int64_t i = 0; i < net->model.layers; i++) {
        tl_tensor **at[TL_BLOCK_WEIGHTS];
        tl_block_weights(&net->blocks[i], at);
        for (int k = 0; k < TL_BLOCK_WEIGHTS; k++)
            if (at[k] && *at[k] == old)
                *at[k] = new;
    }
    if (net->embed_in == old)
        net->embed_in = new;
    if (net->embed_out == old)
        net->embed_out = new;
    if (net->own_in == old)
        net->own_in = new;
}

bool tl_net_int8_of(tl_net *net, const char *name, tl_tensor *weight, tl_tensor **q_out, tl_tensor **scale_out) {
    tl_ctx *ctx = net->ctx;
    const tl_shape *shape = tl_tensor_shape(weight);
    tl_tensor *largest = largest_of_rows(weight);
    if (!largest || check_finite(net, name, largest) != TL_OK)
        return false;
    tl_tensor *scale = tl_keep(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, shape->dim[0]), TL_PARAM));
    tl_tensor *q = tl_keep(tl_empty(ctx, TL_I8, *shape, TL_PARAM));
    tl_quantize_options rows = {.axis = 0};
    tl_tensor *s = tl_scale(largest, 1.0 / 127, 0), *z = tl_quantize(weight, s, NULL, TL_I8, &rows);
    if (scale && q && tl_write_slice(scale, s, 0, 0) && tl_write_slice(q, z, 0, 0)) {
        *q_out = q;
        *scale_out = scale;
        return true;
    }
    tl_free(q);
    tl_free(scale);
    return false;
}

/* In a scope and module of its own. */
static bool quantize_one(tl_net *net, int index) {
    tl_parameter *p = &net->parameters[index];
    tl_tensor *old = p->tensor, *q = NULL;
    if (!tl_net_int8_of(net, p->name, old, &q, &net->scales[index]))
        return false;
    p->tensor = q;
    replace_everywhere(net, old, q);
    tl_tensor_clear_grad(old);
    tl_free(old);
    return true;
}

tl_status tl_net_quantize_int8(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (net->model.family == TL_FAMILY_CRUNCHER)
        return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "%s is not quantised; decoders are", net->model.name);
    if (net->lora)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "%s has adapters, which choose their base: int8 is one (tl_lora_options)",
                           net->model.name);
    if (net->scales)
        return tl_ctx_fail(ctx, TL_ERR_STATE, "the weights of %s are int8 already", net->model.name);
    net->scales = tl_host_alloc(ctx, (size_t)net->count * sizeof(tl_tensor *));
    if (!net->scales)
        return ctx->error.status;
    bool recording = ctx->recording, ok = true;
    tl_phase before = tl_phase_get(ctx);
    ctx->recording = false;
    tl_phase_set(ctx, TL_PHASE_LOAD);
    for (int i = 0; i < net->count && ok; i++) {
        if (!is_linear(net, net->parameters[i].tensor))
            continue;
        tl_module_begin(ctx, "quantize", -1);
        tl_scope_begin(ctx);
        ok = quantize_one(net, i);
        tl_scope_end(ctx);
        tl_module_end(ctx);
    }
    tl_phase_set(ctx, before);
    ctx->recording = recording;
    return ctx->error.status;
}

bool tl_net_is_quantized(const tl_net *net) { return net->scales != NULL; }

tl_tensor *tl_net_scale(const tl_net *net, int index) {
    return net->scales && index >= 0 && index < net->count ? net->scales[index] : NULL;
}

tl_tensor *tl_net_scale_of(const tl_net *net, const tl_tensor *weight) {
    for (int i = 0; net->scales && i < net->count; i++)
        if (net->parameters[i].tensor == weight)
            return net->scales[i];
    return NULL;
}
