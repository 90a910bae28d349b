/* A linear layer of 2048 by 2048, trained for one step with AdamW: what each moment holds, as CS336's second lecture asks.
 * The same function runs twice: planned on meta, where nothing is allocated, and for real.
 *
 *     cc linear_layer.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/account.h>
#include <tally/cpu.h>
#include <tally/grad.h>
#include <tally/ops.h>
#include <tally/optim.h>

enum { WIDTH = 2048, ROWS = 256 };

static double mib(const tl_ctx *ctx, tl_category category) { return (double)tl_ledger_live(ctx, category) / (1 << 20); }

static void say(const tl_ctx *ctx, const char *moment) {
    printf("  %-14s param %4.0f  grad %4.0f  optim %4.0f MiB\n", moment, mib(ctx, TL_PARAM), mib(ctx, TL_GRAD),
           mib(ctx, TL_OPTIM));
}

static int one_step(const struct tl_kernels *kernels) {
    tl_error error = {TL_OK, ""};
    tl_ctx_options options = {.kernels = kernels, .threads = 2};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("on %s\n", tl_ctx_device(ctx));

    tl_dim D = tl_dim_of(WIDTH);
    tl_tensor *w = tl_keep(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D, D), TL_PARAM));
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(ROWS), D), TL_DATA);
    tl_tensor *y = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(ROWS), D), TL_DATA);
    tl_normal(w, 0.0, 0.02, "weight", 0);
    tl_normal(x, 0.0, 1.0, "x", 0);
    tl_fill(y, 0.0);
    tl_tensor_require_grad(w, true);

    tl_parameter parameter = {.name = "weight", .tensor = w, .decay = true};
    tl_optimizer_options adamw = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_optimizer *optimizer = tl_optimizer_new(ctx, &parameter, 1, &adamw);
    say(ctx, "made");

    tl_ledger_step_begin(ctx);
    tl_record(ctx, true);
    tl_scope_begin(ctx);
    tl_tensor *loss = tl_mse(tl_linear(x, w, NULL), y);
    tl_status status = tl_backward(ctx, loss, 1.0);
    tl_scope_end(ctx);
    say(ctx, "after backward");
    if (status == TL_OK)
        status = tl_optimizer_step(optimizer, adamw.lr);
    say(ctx, "after the step");

    tl_counts counts;
    char digits[TL_U128_DIGITS];
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    printf("  matmul FLOPs   %s = 4 · %d · %d²  (no gradient of the input)\n", tl_u128_text(counts.matmul, digits),
           ROWS, WIDTH);
    if (status != TL_OK) /* the first error stuck: one check is enough */
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    tl_optimizer_free(optimizer);
    tl_ctx_free(ctx);
    return status != TL_OK;
}

int main(void) {
    tl_error error = {TL_OK, ""};
    const struct tl_kernels *cpu = tl_kernels_for_cpu(NULL, &error);
    if (!cpu) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    return one_step(NULL) || one_step(cpu);
}
