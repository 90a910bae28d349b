/* Text is written token by token, and each token looks back at all before it. Without a cache every step computes the whole
 * text again; with one, the keys and values [B, G, S, K] of each layer are kept, and a step computes one token. The tokens
 * are the same; the FLOPs are not, and neither are the bytes, which are what a step then waits for.
 *
 *     cc cached_decoding.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/cpu.h>
#include <tally/infer.h>
#include <tally/ops.h>

enum { PROMPT = 8, NEW = 16 };

static const int32_t prompt[PROMPT] = {3, 1, 4, 1, 5, 9, 2, 6};

static tl_tensor *tokens_of(tl_ctx *ctx, const int32_t *ids, int64_t count) {
    return tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(1), tl_dim_of(count)), TL_DATA, ids, count);
}

/* The likeliest token after the last one of `ids`, the whole text computed. FLOPs of it in *flops. */
static int64_t whole_text(tl_net *net, tl_ctx *ctx, const int32_t *ids, int64_t count, tl_u128 *flops) {
    tl_counts counts;
    int64_t best = -1;
    tl_ledger_step_begin(ctx);
    tl_scope_begin(ctx);
    tl_tensor *logits = tl_net_forward(net, tokens_of(ctx, ids, count));
    tl_tensor *last = tl_slice(logits, 1, count - 1, tl_dim_of(1), 1);
    if (tl_tensor_read(tl_argmax(last), &best, sizeof best) != TL_OK)
        best = -1;
    tl_scope_end(ctx);
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    *flops += counts.matmul;
    return best;
}

static bool keep(void *user, int64_t index, int32_t token) {
    ((int32_t *)user)[index] = token;
    return true;
}

static int compare(tl_ctx *ctx, tl_net *net, int64_t capacity) {
    const tl_model *m = tl_net_model(net);
    int32_t text[PROMPT + NEW], written[NEW] = {0};
    tl_u128 without = 0;
    for (int i = 0; i < PROMPT; i++)
        text[i] = prompt[i];
    for (int i = 0; i < NEW; i++)
        text[PROMPT + i] = (int32_t)whole_text(net, ctx, text, PROMPT + i, &without);

    tl_cache *cache = tl_cache_new(net, &(tl_cache_options){1, capacity, TL_F32});
    tl_generate_options greedy = {.max_tokens = NEW, .end_id = -1, .token = keep, .user = written};
    tl_generation done;
    if (!cache || tl_generate(net, cache, prompt, PROMPT, &greedy, &done) != TL_OK)
        return 1;
    int same = 0;
    for (int i = 0; i < NEW; i++)
        same += written[i] == text[PROMPT + i];
    printf("%d of %d tokens are the same\n", same, NEW);
    printf("cache: 2*N*B*S*G*K*4 = 2*%lld*1*%lld*%lld*%lld*4 = %lld B\n", (long long)m->layers, (long long)capacity,
           (long long)m->kv_heads, (long long)m->head_size, (long long)tl_cache_bytes(cache));
    tl_u128 with = done.prefill.matmul + done.decode.matmul;
    printf("matmul FLOPs: %llu without the cache, %llu with it\n", (unsigned long long)without,
           (unsigned long long)with);
    printf("last step: %llu FLOPs, %llu bytes moved\n", (unsigned long long)done.decode.last_matmul,
           (unsigned long long)(done.decode.last_read + done.decode.last_written));
    tl_cache_free(cache);
    return 0;
}

/* The same on meta, before there is a value: what it will take. */
static int plan(const tl_model *model, int64_t capacity, bool int8) {
    tl_error error = {TL_OK, ""};
    tl_infer_plan p;
    tl_infer_options o = {.model = *model, .dtype = TL_F32, .cache_dtype = TL_F32, .int8 = int8, .threads = 1};
    o.capacity = capacity;
    o.prompt_tokens = PROMPT;
    o.new_tokens = NEW;
    if (tl_infer_plan_make(&o, &p, &error) != TL_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("planned, weights %s: %lld B, cache %lld B, last step %llu bytes moved\n", int8 ? "int8" : "f32",
           (long long)p.weights_bytes, (long long)p.cache_bytes,
           (unsigned long long)(p.generation.decode.last_read + p.generation.decode.last_written));
    return 0;
}

int main(void) {
    tl_error error = {TL_OK, ""};
    int64_t capacity = PROMPT + NEW - 1;
    tl_model model = {.name = "small llama", .family = TL_FAMILY_LLAMA, .layers = 4, .width = 64, .heads = 8};
    model.kv_heads = 2;   /* grouped: 8 heads of queries share 2 of keys and values */
    model.head_size = 16; /* and not 64 ÷ 8 */
    model.ff = 176;
    model.vocab = 256;
    model.context = 64;
    model.gated = model.tied = true;
    model.activation = TL_SILU;
    model.norm_epsilon = 1e-5;
    model.rope_theta = 10000;
    model.init_std = 0.1;
    tl_ctx_options options = {.kernels = tl_kernels_for_cpu(NULL, &error)};
    tl_ctx *ctx = options.kernels ? tl_ctx_new(&options, &error) : NULL;
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    tl_net *net = tl_net_new(ctx, &model, TL_F32);
    int failed = net ? compare(ctx, net, capacity) : 1;
    if (tl_ctx_status(ctx) != TL_OK)
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    tl_net_free(net);
    tl_ctx_free(ctx);
    return failed || plan(&model, capacity, false) || plan(&model, capacity, true);
}
