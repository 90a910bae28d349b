/* The lecture's Cruncher: two linear layers of 64 by 64 and one of 64 by 1, 8,256 parameters, trained with AdaGrad
 * (s += g², θ −= lr·g/√(s + ε)). Then its account: the lecture adds up everything that exists at some time, 4·(parameters +
 * activations + gradients + optimizer states); the ledger says what exists at one time, the peak. The two are laid side by side.
 *
 *     cc cruncher.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/account.h>
#include <tally/cpu.h>
#include <tally/ops.h>
#include <tally/train.h>

enum { B = 8, D = 64, LAYERS = 2, P = LAYERS * D * D + D, STEPS = 60 };

/* y = x·(0, 1, …, D−1): a linear function, which two linear layers can learn. */
static tl_status batch_of(void *user, tl_ctx *ctx, const tl_train_options *options, int64_t micro, tl_batch *batch) {
    int64_t *drawn = user;
    float truth[D];
    for (int i = 0; i < D; i++)
        truth[i] = (float)i / D;
    tl_status status = TL_OK;
    tl_tensor *x = tl_empty(ctx, options->dtype, TL_SHAPE(ctx, tl_dim_of(options->micro_batch), tl_dim_of(D)), TL_DATA);
    tl_tensor *w = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(1), tl_dim_of(D)), TL_DATA, truth, D);
    batch->input = tl_normal(x, 0, 1, "x", *drawn + micro * options->micro_batch * D);
    batch->target = tl_view(tl_linear(batch->input, w, NULL), TL_SHAPE(ctx, tl_dim_of(options->micro_batch)));
    *drawn += options->micro_batch * D;
    status = tl_ctx_status(ctx);
    return status;
}

static tl_train_options options_of(void) {
    tl_train_options o = {.micro_batch = B, .seq = 1, .accumulation = 1, .ranks = 1, .dtype = TL_F32};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAGRAD);
    return o;
}

static int train(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx_options where = {.kernels = tl_kernels_for_cpu(NULL, &error), .seed_init = 0};
    tl_ctx *ctx = where.kernels ? tl_ctx_new(&where, &error) : NULL;
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    tl_model model = {.name = "cruncher", .family = TL_FAMILY_CRUNCHER, .layers = LAYERS, .width = D};
    tl_train_options o = options_of();
    tl_trainer *trainer = tl_trainer_new(ctx, &model, &o);
    tl_parameter_count count = {0};
    tl_step_result result = {0};
    int64_t drawn = 0;
    double first = 0;
    tl_status status = trainer ? TL_OK : tl_ctx_status(ctx);
    if (trainer)
        tl_net_count(tl_trainer_net(trainer), &count);
    printf("%lld parameters\n", (long long)count.unique);
    for (int step = 0; step < STEPS && status == TL_OK; step++) {
        status = tl_trainer_step(trainer, batch_of, &drawn, 0.02, &result);
        if (step == 0)
            first = result.loss;
    }
    printf("loss %.3f after the first step, %.3f after %d: %s\n\n", first, result.loss, STEPS,
           result.loss < first / 2 ? "it learns" : "it does not learn");
    if (status != TL_OK)
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return status != TL_OK;
}

/* Two steps on meta; the second is the account, as the optimizer's states appear in the first. */
static int account(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.scratch_bytes = TL_NO_SCRATCH}, &error);
    tl_model model = {.name = "cruncher", .family = TL_FAMILY_CRUNCHER, .layers = LAYERS, .width = D};
    tl_train_options o = options_of();
    tl_trainer *trainer = ctx ? tl_trainer_new(ctx, &model, &o) : NULL;
    tl_status status = trainer ? TL_OK : TL_ERR_STATE;
    for (int step = 0; step < 2 && status == TL_OK; step++)
        status = tl_trainer_step(trainer, NULL, NULL, 0.01, NULL);
    if (status != TL_OK) {
        fprintf(stderr, "%s\n", ctx ? tl_ctx_error(ctx)->message : error.message);
        tl_trainer_free(trainer);
        tl_ctx_free(ctx);
        return 1;
    }
    tl_peak peak;
    tl_ledger_peak(ctx, &peak);
    long long A = B * D * LAYERS, G = P, S = P, lecture = 4 * (P + A + G + S);
    printf("lecture: 4·(P + A + G + S) = 4·(%d + %lld + %lld + %lld) = %lld B\n", P, A, G, S, lecture);
    printf("ledger:  peak in %s  %lld B\n", tl_phase_name(peak.phase), (long long)peak.bytes);
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        if (peak.by_category[c])
            printf("         %-6s %6lld\n", tl_category_name((tl_category)c), (long long)peak.by_category[c]);
    /* The last gradient arrives when backward is at the first layer. By then it has let go of both layers' outputs, which
     * are the lecture's A. The lecture leaves out the batch itself, the gradient that is on its way through the layers, and
     * two numbers: the loss and the gradient of the loss by itself. */
    long long gone = 4 * A, batch = 4 * (B * D + B), passing = 4 * B * D, numbers = 4 * 2;
    printf("lecture − activations gone %lld + batch %lld + gradient passing %lld + loss and seed %lld = %lld B\n", gone,
           batch, passing, numbers, lecture - gone + batch + passing + numbers);
    bool right = lecture - gone + batch + passing + numbers == peak.bytes;
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return !right;
}

int main(void) { return train() || account(); }
