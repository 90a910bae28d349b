/* A generation or an evaluation before it: the same code on meta. */
#include "infer/infer.h"
#include "nn/cache.h"
#include "nn/net.h"
#include "optim/transfer.h"
#include "tensor/ctx.h"

#include <string.h>

void tl_infer_plan_read(const tl_ctx *ctx, tl_infer_plan *plan) {
    tl_peak peak;
    plan->weights_bytes = tl_ledger_live(ctx, TL_PARAM);
    tl_ledger_phase_peak(ctx, TL_PHASE_INIT, &peak);
    plan->init_peak_bytes = peak.bytes;
    tl_ledger_phase_peak(ctx, TL_PHASE_LOAD, &peak);
    plan->load_peak_bytes = peak.bytes;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* What a position takes in all layers; and what those hold that hold fewer positions than there may be. */
static void read_cache(const tl_cache *cache, tl_infer_plan *plan) {
    for (int64_t i = 0; i < 2 * cache->net->model.layers; i++) {
        const tl_tensor *t = cache->part[i];
        const int64_t held = t ? tl_tensor_size(t, 2) : 0, bytes = t ? tl_tensor_storage_bytes(t) : 0;
        plan->position_bytes += held ? bytes / held : 0;
        plan->window_bytes += held < cache->options.capacity ? bytes : 0;
    }
}

static int64_t expert_bytes(const tl_net *net) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < net->model.layers; i++) {
        const tl_experts *e = &net->blocks[i].experts;
        const tl_tensor *all[] = {e->gate, e->up, e->down, e->fused};
        for (int k = 0; k < 4 && e->router; k++)
            bytes += all[k] ? tl_tensor_storage_bytes(all[k]) : 0;
    }
    return bytes;
}

static tl_status generate(tl_net *net, const tl_infer_options *o, tl_infer_plan *plan) {
    tl_cache_options options = {.batch = 1, .capacity = o->capacity, .dtype = o->cache_dtype};
    tl_generate_options g = {.max_tokens = o->new_tokens, .end_id = -1, .sample = tl_sample_defaults()};
    tl_cache *cache = tl_cache_new(net, &options);
    if (!cache)
        return tl_ctx_status(net->ctx);
    plan->cache_bytes = tl_cache_bytes(cache);
    read_cache(cache, plan);
    plan->expert_bytes = expert_bytes(net);
    tl_infer_plan_read(net->ctx, plan);
    tl_status status = tl_generate(net, cache, NULL, o->prompt_tokens, &g, &plan->generation);
    tl_cache_free(cache);
    return status;
}

static tl_status make(tl_ctx *ctx, const tl_infer_options *o, tl_infer_plan *plan) {
    tl_net *net = tl_net_new_lora(ctx, &o->model, o->dtype, NULL, &o->base);
    if (!net)
        return tl_ctx_status(ctx);
    tl_status status = tl_net_choose(net, &o->choices);
    if (status == TL_OK) /* as published weights come; a checkpoint of a run takes no block */
        status = tl_transfer_weights_meta(net);
    if (status == TL_OK && o->int8)
        status = tl_net_quantize_int8(net);
    if (status == TL_OK && o->new_tokens > 0)
        status = generate(net, o, plan);
    else if (status == TL_OK) {
        tl_infer_plan_read(ctx, plan);
        status = o->rows ? tl_evaluate_rows(net, o->tokens, NULL, NULL, &o->eval, &plan->evaluation)
                         : tl_evaluate(net, o->tokens, NULL, NULL, &o->eval, &plan->evaluation);
    }
    tl_net_free(net);
    return status;
}

tl_status tl_infer_plan_make(const tl_infer_options *options, tl_infer_plan *plan, tl_error *error) {
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.threads = options->threads}, error);
    memset(plan, 0, sizeof *plan);
    if (!ctx)
        return error ? error->status : TL_ERR_MEMORY;
    tl_status status = make(ctx, options, plan);
    if (status != TL_OK)
        status = tl_fail(error, status, "%s", tl_ctx_error(ctx)->message);
    plan->peak_bytes = larger(larger(plan->init_peak_bytes, plan->load_peak_bytes), plan->evaluation.counts.peak_bytes);
    plan->peak_bytes =
        larger(plan->peak_bytes, larger(plan->generation.prefill.peak_bytes, plan->generation.decode.peak_bytes));
    tl_ctx_free(ctx);
    return status;
}
