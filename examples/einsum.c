/* Axes by name. x.transpose(-2, -1) leaves the reader to count; "batch seq hidden" does not. The same names multiply (einsum),
 * move (rearrange) and sum (reduce), and a mistake is reported with its name and place.
 *
 *     cc einsum.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/account.h>
#include <tally/axes.h>
#include <tally/cpu.h>
#include <tally/format.h>
#include <tally/ops.h>

#define DIM(n) tl_dim_of(n)

static void show(const char *name, const tl_tensor *t) {
    char about[160];
    printf("%-28s %s\n", name, t ? tl_tensor_text(t, about, sizeof about) : "(refused)");
}

static void values(const tl_tensor *t) {
    tl_text text = {0};
    if (t && tl_tensor_format(t, NULL, &text) == TL_OK)
        printf("%s\n", text.data);
    tl_text_free(&text);
}

static tl_tensor *ones(tl_ctx *ctx, tl_shape shape) { return tl_fill(tl_empty(ctx, TL_F32, shape, TL_WORK), 1); }

/* Products: every axis that the result leaves out is summed. `...` stands for whatever comes in front. */
static void products(tl_ctx *ctx) {
    tl_tensor *x = ones(ctx, TL_SHAPE(ctx, DIM(2), DIM(3), DIM(4)));
    tl_tensor *y = ones(ctx, TL_SHAPE(ctx, DIM(2), DIM(5), DIM(4)));
    tl_tensor *both[] = {x, y};
    tl_tensor *z = tl_einsum(ctx, "batch seq1 hidden, batch seq2 hidden -> batch seq1 seq2", both, 2);
    show("x · y over hidden", z);
    show("the same, with ...", tl_einsum(ctx, "... seq1 hidden, ... seq2 hidden -> ... seq1 seq2", both, 2));
    values(tl_slice(z, 0, 0, DIM(1), 1)); /* ones over 4: every value is 4 */
    show("x summed over hidden", tl_reduce(x, "... hidden -> ...", TL_REDUCE_SUM, TL_NO_LENGTHS));
}

/* One axis that is two: heads of a hidden axis. Split, work on each head, merge again. */
static void heads(tl_ctx *ctx) {
    tl_tensor *x = ones(ctx, TL_SHAPE(ctx, DIM(2), DIM(3), DIM(8)));
    tl_tensor *w = ones(ctx, TL_SHAPE(ctx, DIM(4), DIM(4)));
    tl_tensor *split = tl_rearrange(x, "... (heads hidden1) -> ... heads hidden1", TL_LENGTHS({"heads", DIM(2)}));
    show("split into 2 heads", split);
    printf("%-28s %s\n", "a view of x?", tl_tensor_shares_storage(split, x) ? "yes, nothing was copied" : "no");
    tl_tensor *each[] = {split, w};
    tl_tensor *y = tl_einsum(ctx, "... hidden1, hidden1 hidden2 -> ... hidden2", each, 2);
    show("each head times w", y);
    show("merged again", tl_rearrange(y, "... heads hidden2 -> ... (heads hidden2)", TL_NO_LENGTHS));
}

/* A chain of three can be multiplied in two orders. a·(b·c) takes 2·(64·1·64 + 64·64·64) FLOPs, (a·b)·c takes
 * 2·(64·64·1 + 64·1·64): the order that is used is the cheaper one, whatever order it is written in. */
static void chain(tl_ctx *ctx) {
    int pair[2][2];
    tl_u128 flops = 0;
    char digits[TL_U128_DIGITS];
    tl_counts counts;
    tl_tensor *three[] = {ones(ctx, TL_SHAPE(ctx, DIM(64), DIM(64))), ones(ctx, TL_SHAPE(ctx, DIM(64), DIM(1))),
                          ones(ctx, TL_SHAPE(ctx, DIM(1), DIM(64)))};
    if (tl_einsum_order(ctx, "ij,jk,kl->il", three, 3, pair, &flops) == 2)
        printf("a[64,64] · b[64,1] · c[1,64]: first %d with %d, %s FLOPs\n", pair[0][0], pair[0][1],
               tl_u128_text(flops, digits));
    tl_ledger_step_begin(ctx);
    (void)tl_einsum(ctx, "ij,jk,kl->il", three, 3);
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    printf("the ledger counted %s\n", tl_u128_text(counts.matmul, digits));
}

int main(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx_options options = {.kernels = tl_kernels_for_cpu(NULL, &error)};
    tl_ctx *ctx = options.kernels ? tl_ctx_new(&options, &error) : NULL;
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    products(ctx);
    heads(ctx);
    chain(ctx);
    tl_status status = tl_ctx_status(ctx);
    if (status != TL_OK)
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);

    /* 8 is not a multiple of 3: the message has the axis, its size and the place. */
    tl_tensor *x = ones(ctx, TL_SHAPE(ctx, DIM(2), DIM(8)));
    if (!tl_rearrange(x, "batch (heads width) -> batch heads width", TL_LENGTHS({"heads", DIM(3)})))
        printf("%s\n", tl_ctx_error(ctx)->message);
    tl_ctx_free(ctx);
    return status != TL_OK;
}
