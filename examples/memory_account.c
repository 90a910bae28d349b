/* What a training step holds, before anything is allocated: GPT-2 small with AdamW, planned by running it on meta. In f32 a
 * parameter takes 4 bytes, its gradient 4 and AdamW's two moments 8: 16 together. Activations come on top and grow with the
 * batch.
 *
 *     cc memory_account.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/account.h>
#include <tally/train.h>

static int account(int64_t sequences, int64_t tokens) {
    tl_error error = {TL_OK, ""};
    tl_model model;
    if (tl_catalogue_model("gpt2", &model, &error) != TL_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.scratch_bytes = TL_NO_SCRATCH}, &error);
    tl_train_options o = {.micro_batch = sequences, .seq = tokens, .accumulation = 1, .ranks = 1, .dtype = TL_F32};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_trainer *trainer = ctx ? tl_trainer_new(ctx, &model, &o) : NULL;
    tl_status status = trainer ? TL_OK : TL_ERR_STATE;
    for (int step = 0; step < 2 && status == TL_OK; step++) /* AdamW's states appear in the first step */
        status = tl_trainer_step(trainer, NULL, NULL, 1e-3, NULL);
    if (status != TL_OK) {
        fprintf(stderr, "%s\n", ctx ? tl_ctx_error(ctx)->message : error.message);
        tl_trainer_free(trainer);
        tl_ctx_free(ctx);
        return 1;
    }
    tl_parameter_count count;
    tl_peak peak;
    tl_counts counts;
    char digits[TL_U128_DIGITS];
    tl_net_count(tl_trainer_net(trainer), &count);
    tl_ledger_peak(ctx, &peak);
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    printf("gpt2, %lld parameters, %lld sequences of %lld tokens, f32\n", (long long)count.unique, (long long)sequences,
           (long long)tokens);
    printf("  16 bytes a parameter: %lld B once every gradient is there\n", 16 * (long long)count.unique);
    printf("  peak %lld B in %s, at %s\n", (long long)peak.bytes, tl_phase_name(peak.phase), peak.op ? peak.op : "?");
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        if (peak.by_category[c])
            printf("    %-6s %12lld\n", tl_category_name((tl_category)c), (long long)peak.by_category[c]);
    printf("  matmul FLOPs of the step %s\n", tl_u128_text(counts.matmul, digits));
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return 0;
}

int main(void) { return account(1, 1024) || account(8, 1024); }
