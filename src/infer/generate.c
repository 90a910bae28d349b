/* Generating: prefill, then one token at a time. The same code on meta, where nothing is drawn. */
#include "infer/infer.h"
#include "nn/net.h"
#include "tally/ops.h"
#include "tensor/ctx.h"

#include <string.h>

void tl_infer_count(const tl_ctx *ctx, int64_t tokens, tl_infer_counts *c) {
    tl_peak peak;
    tl_counts counts;
    tl_ledger_peak(ctx, &peak);
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    c->forwards++;
    c->tokens += tokens;
    if (peak.bytes > c->peak_bytes) {
        c->peak_bytes = peak.bytes;
        memcpy(c->peak_by_category, peak.by_category, sizeof c->peak_by_category);
    }
    c->allocations += tl_ledger_allocations(ctx);
    c->matmul += counts.matmul;
    c->matmul_causal += counts.matmul_causal;
    c->executed += counts.executed;
    c->read += counts.read;
    c->written += counts.written;
    c->last_matmul = counts.matmul;
    c->last_read = counts.read;
    c->last_written = counts.written;
}

typedef struct generator {
    tl_net *net;
    tl_cache *cache;
    tl_ctx *ctx;
    const tl_generate_options *options;
    tl_sample *sample; /* NULL on meta */
    double *logits;
    int64_t vocab;
    int32_t *history; /* longrope: prompt and new tokens, fed anew when the angles of all change; NULL elsewhere */
} generator;

/* One forward; the next token where there are values. */
static tl_status forward(const generator *g, const int32_t *tokens, int64_t count, int64_t index, int32_t *next,
                         tl_infer_counts *counts) {
    tl_ctx *ctx = g->ctx;
    tl_error error = {TL_OK, ""};
    tl_ledger_step_begin(ctx);
    if (g->options->begin && !tl_ctx_is_meta(ctx))
        g->options->begin(g->options->user, index);
    tl_scope_begin(ctx);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(1), tl_dim_of(count));
    tl_tensor *input = tl_ctx_is_meta(ctx) ? tl_empty(ctx, TL_I32, shape, TL_DATA)
                                           : tl_from_data(ctx, TL_I32, shape, TL_DATA, tokens, count);
    tl_tensor *logits = tl_cast(tl_net_forward_cached(g->net, g->cache, input, TL_LOGITS_LAST), TL_F64);
    tl_status status = tl_ctx_status(ctx);
    if (status == TL_OK && g->sample) {
        status = tl_tensor_read(logits, g->logits, (size_t)g->vocab * sizeof *g->logits);
        if (status == TL_OK &&
            tl_sample_next(g->sample, g->logits, g->options->sequence, (uint64_t)index, next, &error) != TL_OK)
            status = tl_ctx_fail(ctx, error.status, "new token %lld: %s", (long long)index, error.message);
    }
    tl_scope_end(ctx);
    if (status == TL_OK)
        tl_infer_count(ctx, count, counts);
    return status;
}

static tl_status check(const generator *g, const int32_t *prompt, int64_t count) {
    const tl_generate_options *o = g->options;
    int64_t left = tl_cache_capacity(g->cache) - tl_cache_length(g->cache);
    if (count < 1 || o->max_tokens < 1)
        return tl_ctx_fail(g->ctx, TL_ERR_ARGUMENT, "a prompt of %lld tokens and %lld new ones; 1 or more would work",
                           (long long)count, (long long)o->max_tokens);
    if (count > left || o->max_tokens - 1 > left - count)
        return tl_ctx_fail(g->ctx, TL_ERR_ARGUMENT,
                           "%lld tokens of prompt and %lld new ones need %lld positions; the cache has %lld left",
                           (long long)count, (long long)o->max_tokens, (long long)(count + o->max_tokens - 1),
                           (long long)left);
    for (int64_t i = 0; i < count && !tl_ctx_is_meta(g->ctx); i++)
        if (prompt[i] < 0 || prompt[i] >= g->vocab)
            return tl_ctx_fail(g->ctx, TL_ERR_ARGUMENT,
                               "token %lld of the prompt is %d; the vocabulary has ids 0 to %lld", (long long)i,
                               (int)prompt[i], (long long)(g->vocab - 1));
    return TL_OK;
}

/* One token more. Where longrope passes from short factors to long ones, what the cache holds was turned by the short ones: the
 * sequence is fed again, as transformers' generate does it with Phi-3 (prepare_inputs_for_generation). */
static tl_status further(const generator *g, int64_t known, int32_t token, int64_t index, int32_t *next,
                         tl_infer_counts *counts) {
    if (tl_cache_holds(g->cache, 1))
        return forward(g, &token, 1, index, next, counts);
    if (tl_cache_length(g->cache) + 1 != known)
        return tl_ctx_fail(
            g->ctx, TL_ERR_UNSUPPORTED,
            "new token %lld is past the %lld positions that %s turns by its short factors, and the cache "
            "held %lld before the prompt, which are not known here; one prompt with all of it would work",
            (long long)index, (long long)g->net->model.rope_original_context, g->net->model.name,
            (long long)(tl_cache_length(g->cache) + 1 - known));
    tl_status status = tl_cache_truncate(g->cache, 0);
    return status == TL_OK ? forward(g, g->history, known, index, next, counts) : status;
}

static tl_status run(const generator *g, const int32_t *prompt, int64_t count, tl_generation *r) {
    const tl_generate_options *o = g->options;
    bool meta = tl_ctx_is_meta(g->ctx);
    int32_t next = 0;
    int64_t known = count;
    tl_status status = forward(g, prompt, count, 0, &next, &r->prefill);
    while (status == TL_OK) {
        int64_t index = r->new_tokens++;
        r->ended = !meta && next == o->end_id;
        bool more = meta || !o->token || o->token(o->user, index, next);
        if (r->ended || !more || r->new_tokens == o->max_tokens)
            break;
        if (g->history)
            g->history[known] = next;
        known++;
        status = further(g, known, next, r->new_tokens, &next, &r->decode);
    }
    return status;
}

tl_status tl_generate(tl_net *net, tl_cache *cache, const int32_t *prompt, int64_t prompt_tokens,
                      const tl_generate_options *options, tl_generation *result) {
    tl_ctx *ctx = net->ctx;
    tl_error error = {TL_OK, ""};
    generator g = {.net = net, .cache = cache, .ctx = ctx, .options = options, .vocab = net->model.vocab};
    memset(result, 0, sizeof *result);
    result->prompt_tokens = prompt_tokens;
    tl_status status = tl_ctx_status(ctx);
    if (status == TL_OK)
        status = check(&g, prompt, prompt_tokens);
    if (status != TL_OK)
        return status;
    size_t bytes = (size_t)g.vocab * sizeof *g.logits;
    size_t tokens = (size_t)(prompt_tokens + options->max_tokens) * sizeof *g.history;
    if (!tl_ctx_is_meta(ctx)) {
        g.sample = tl_sample_new(&ctx->allocator, g.vocab, &options->sample, &error);
        if (!g.sample)
            return tl_ctx_fail(ctx, error.status, "%s", error.message);
        g.logits = tl_host_alloc(ctx, bytes);
        if (net->model.rope_scaling == TL_ROPE_LONGROPE && (g.history = tl_host_alloc(ctx, tokens)) != NULL)
            memcpy(g.history, prompt, (size_t)prompt_tokens * sizeof *g.history);
    }
    status = tl_ctx_status(ctx);
    if (status == TL_OK)
        status = run(&g, prompt, prompt_tokens, result);
    tl_host_free(ctx, g.history, tokens);
    tl_host_free(ctx, g.logits, bytes);
    tl_sample_free(g.sample);
    return status;
}
