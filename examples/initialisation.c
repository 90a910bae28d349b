/* Why weights are divided by √d. Each output is a sum of d products: its size grows with √d, and so would every layer's. With
 * a standard deviation of 1/√d the outputs keep the size of the inputs, however wide the layer. Cutting at three standard
 * deviations keeps single weights from being very large.
 *
 *     cc initialisation.c $(pkg-config --cflags --libs tally) -lm -lm
 */
#include <math.h>
#include <stdio.h>

#include <tally/cpu.h>
#include <tally/ops.h>

enum { ROWS = 64, OUT = 32 };

/* The root of the mean square of the outputs of one linear layer of unit inputs. cut: in standard deviations; 0: not cut. */
static double size_of_outputs(tl_ctx *ctx, int64_t d, double std, double cut) {
    double squares = 0;
    tl_scope_begin(ctx);
    tl_tensor *w = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(OUT), tl_dim_of(d)), TL_PARAM);
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(ROWS), tl_dim_of(d)), TL_DATA);
    w = cut > 0 ? tl_truncated_normal(w, 0, std, cut, "w", 0) : tl_normal(w, 0, std, "w", 0);
    tl_tensor *y = tl_linear(tl_normal(x, 0, 1, "x", 0), w, NULL);
    if (tl_item(tl_square_sum(y), &squares) != TL_OK)
        squares = 0;
    tl_scope_end(ctx);
    return sqrt(squares / (ROWS * OUT));
}

int main(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx_options options = {.kernels = tl_kernels_for_cpu(NULL, &error), .seed_init = 0};
    tl_ctx *ctx = options.kernels ? tl_ctx_new(&options, &error) : NULL;
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    printf("width   std 1: size of outputs   divided by root of d   std 1/root of d   cut at 3 std\n");
    for (int64_t d = 256; d <= 16384; d *= 4) {
        double root = sqrt((double)d), wild = size_of_outputs(ctx, d, 1, 0);
        printf("%5lld   %22.0f   %20.2f   %15.2f   %12.2f\n", (long long)d, wild, wild / root,
               size_of_outputs(ctx, d, 1 / root, 0), size_of_outputs(ctx, d, 1 / root, 3));
    }
    tl_status status = tl_ctx_status(ctx);
    if (status != TL_OK)
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    tl_ctx_free(ctx);
    return status != TL_OK;
}
