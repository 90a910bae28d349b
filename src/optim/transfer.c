/* Loading and saving as moments of a run: phases, states, and the block that converted values pass through. */
#include "optim/transfer.h"

#include "tally/lora.h"
#include "tensor/ctx.h"

typedef struct before {
    tl_phase phase;
    bool recording;
} before;

static before begin(tl_ctx *ctx, tl_phase phase) {
    before b = {tl_phase_get(ctx), ctx->recording};
    ctx->recording = false;
    tl_phase_set(ctx, phase);
    return b;
}

static tl_status end(tl_ctx *ctx, before b, tl_status status) {
    tl_phase_set(ctx, b.phase);
    ctx->recording = b.recording;
    return status;
}

tl_status tl_transfer_load(tl_ctx *ctx, tl_optimizer *optimizer, int64_t updates, bool states,
                           tl_transfer_values *values, void *self) {
    before b = begin(ctx, TL_PHASE_LOAD);
    tl_status status = TL_OK;
    if (optimizer) {
        bool skipped = states && updates == 0;
        status = tl_optimizer_restore(optimizer, skipped ? 1 : updates);
        if (status == TL_OK && skipped)
            status = tl_optimizer_restore(optimizer, 0);
    }
    if (status == TL_OK && values)
        status = values(self, NULL, 0);
    return end(ctx, b, status);
}

tl_status tl_transfer_save(tl_ctx *ctx, tl_transfer_values *values, void *self) {
    before b = begin(ctx, TL_PHASE_SAVE);
    return end(ctx, b, values ? values(self, NULL, 0) : TL_OK);
}

/* Of the net's shapes alone: what format a file has is not known before it is opened. */
static int64_t block_bytes(const tl_net *net) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    int64_t most = TL_TRANSFER_LEAST;
    for (int i = 0; i < count; i++) {
        int64_t bytes = tl_tensor_storage_bytes(list[i].tensor);
        most = bytes > most ? bytes : most;
    }
    return most < TL_TRANSFER_BYTES ? most : TL_TRANSFER_BYTES;
}

tl_status tl_transfer_quantized(tl_net *net, int index, tl_transfer_fill *fill, void *self) {
    const tl_parameter *list;
    tl_net_parameters(net, &list);
    tl_ctx *ctx = tl_tensor_ctx(list[index].tensor);
    tl_scope_begin(ctx);
    tl_tensor *full = tl_empty(ctx, tl_tensor_dtype(list[0].tensor), *list[index].full, TL_WORK);
    tl_status status = full ? TL_OK : ctx->error.status;
    if (status == TL_OK && fill)
        status = fill(self, full);
    if (status == TL_OK)
        status = tl_net_requantize(net, index, full);
    tl_scope_end(ctx);
    return status;
}

static tl_status make_quantized(void *self, char *block, int64_t block_bytes) {
    tl_net *net = self;
    (void)block, (void)block_bytes;
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    tl_status status = TL_OK;
    for (int i = 0; i < count && status == TL_OK; i++)
        if (list[i].full)
            status = tl_transfer_quantized(net, i, NULL, NULL);
    return status;
}

tl_status tl_transfer_weights(const tl_net *net, tl_phase phase, tl_transfer_values *values, void *self) {
    const tl_parameter *list;
    if (tl_net_parameters(net, &list) == 0)
        return TL_OK;
    tl_ctx *ctx = tl_tensor_ctx(list[0].tensor);
    before b = begin(ctx, phase);
    tl_scope_begin(ctx);
    int64_t bytes = block_bytes(net);
    tl_tensor *block = tl_empty(ctx, TL_U8, TL_SHAPE(ctx, tl_dim_of(bytes)), TL_WORK);
    tl_status status = block ? TL_OK : ctx->error.status;
    if (status == TL_OK && values)
        status = values(self, tl_tensor_data(block), bytes);
    tl_scope_end(ctx);
    return end(ctx, b, status);
}

tl_status tl_transfer_weights_meta(tl_net *net) { return tl_transfer_weights(net, TL_PHASE_LOAD, make_quantized, net); }
