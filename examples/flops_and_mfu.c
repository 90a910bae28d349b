/* FLOPs is a count, FLOP/s a rate. A product of [B,D] and [D,K] takes 2·B·D·K FLOPs: a multiply and an add for every triple.
 * MFU (model FLOPs utilisation) is the useful FLOP/s over what the machine could do. Here a product is timed and divided by
 * this machine's measured peak.
 *
 *     cc flops_and_mfu.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>
#include <time.h>

#include <tally/account.h>
#include <tally/cpu.h>
#include <tally/machine.h>
#include <tally/ops.h>

enum { SIZE = 1024, REPEATS = 5 };

/* "How long would it take to train a 70B model on 15T tokens with 1024 H100s?" 6 FLOPs a parameter and token: 2 forward, 4
 * backward. An H100's dense bf16 peak is 989.5e12 FLOP/s; the 1979e12 on its data sheet is for 2:4-sparse matrices. */
static void napkin(void) {
    double flops = 6.0 * 70e9 * 15e12, per_second = 1024 * 989.5e12 * 0.5;
    printf("70B parameters, 15T tokens: %.2g FLOPs\n", flops);
    printf("1024 H100 at MFU 0.5: %.2f days\n", flops / per_second / 86400);
    /* AdamW in f32: parameter, gradient and two moments, 4 bytes each; activations left out. */
    printf("largest model on 8 H100 of 80e9 B: %.2g parameters\n\n", 8 * 80e9 / (4 + 4 + 4 + 4));
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one product, the best of a few: others may use the machine too. */
static double time_product(tl_ctx *ctx, tl_dtype dtype) {
    double best = 1e9;
    tl_scope_begin(ctx);
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(SIZE), tl_dim_of(SIZE)), TL_DATA);
    tl_tensor *w = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(SIZE), tl_dim_of(SIZE)), TL_PARAM);
    x = tl_cast(tl_normal(x, 0, 1, "x", 0), dtype);
    w = tl_cast(tl_normal(w, 0, 1, "w", 0), dtype);
    for (int i = 0; i <= REPEATS; i++) { /* the first one warms up */
        tl_scope_begin(ctx);
        double start = now();
        if (!tl_matmul(x, w))
            best = 0;
        double seconds = now() - start;
        if (i > 0 && seconds < best)
            best = seconds;
        tl_scope_end(ctx);
    }
    tl_scope_end(ctx);
    return best;
}

static void report(tl_ctx *ctx, const tl_machine *machine, tl_dtype dtype) {
    double flops = 2.0 * SIZE * SIZE * SIZE, seconds = time_product(ctx, dtype), peak = tl_machine_peak(machine, dtype);
    printf("%s: %.2f ms, %.1f GFLOP/s", tl_dtype_name(dtype), seconds * 1e3, flops / seconds * 1e-9);
    if (peak > 0)
        printf(" of %.1f: MFU %.2f\n", peak * 1e-9, flops / seconds / peak);
    else
        printf("; the peak is unknown, and so is the MFU\n");
}

int main(void) {
    tl_error error = {TL_OK, ""};
    tl_machine machine;
    tl_counts counts;
    char digits[TL_U128_DIGITS];
    napkin();
    tl_ctx_options options = {.kernels = tl_kernels_for_cpu(NULL, &error), .threads = 1};
    tl_ctx *ctx = options.kernels ? tl_ctx_new(&options, &error) : NULL;
    if (!ctx || tl_machine_measure(1, true, &machine, &error) != TL_OK) {
        fprintf(stderr, "%s\n", error.message);
        tl_ctx_free(ctx);
        return 1;
    }
    tl_ledger_step_begin(ctx);
    (void)time_product(ctx, TL_F32);
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    printf("%d products of %d by %d: the ledger counts %s FLOPs\n", REPEATS + 1, SIZE, SIZE,
           tl_u128_text(counts.matmul, digits));
    printf("on %s, one thread, peak measured now (dense):\n", machine.cpu);
    report(ctx, &machine, TL_F32);
    report(ctx, &machine, TL_BF16);
    tl_status status = tl_ctx_status(ctx);
    if (status != TL_OK)
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    tl_ctx_free(ctx);
    return status != TL_OK;
}
