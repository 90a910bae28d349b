/* A tensor is a pointer into a storage, sizes and strides. Views share the storage and cost nothing; what needs a copy says so.
 *
 *     cc tensors_and_strides.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/account.h>
#include <tally/cpu.h>
#include <tally/format.h>
#include <tally/ops.h>

static void show(const char *name, const tl_tensor *t) {
    tl_text text = {0};
    char about[128];
    if (tl_tensor_format(t, NULL, &text) == TL_OK)
        printf("%s = %s\n%s\n\n", name, tl_tensor_text(t, about, sizeof about), text.data);
    tl_text_free(&text);
}

/* How many bytes: elements times the size of one. On meta, where sizes exist and bytes do not, any size is free. */
static void sizes(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(4), tl_dim_of(8)), TL_WORK);
    tl_tensor *w = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(49152), tl_dim_of(12288)), TL_WORK);
    printf("f32[4, 8] takes %lld bytes\n", (long long)tl_tensor_storage_bytes(x));
    printf("a feed-forward matrix of GPT-3 takes %lld MiB\n\n", (long long)tl_tensor_storage_bytes(w) >> 20);
    tl_ctx_free(ctx);
}

int main(void) {
    tl_error error = {TL_OK, ""};
    sizes();
    tl_ctx_options options = {.kernels = tl_kernels_for_cpu(NULL, &error)};
    tl_ctx *ctx = options.kernels ? tl_ctx_new(&options, &error) : NULL;
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }

    /* A row is 4 elements away from the next, a column 1: element (r, c) lies at r·4 + c·1. */
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = (float)i;
    tl_tensor *x = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(4), tl_dim_of(4)), TL_WORK, values, 16);
    show("x", x);
    int64_t index = 1 * tl_tensor_stride(x, 0) + 2 * tl_tensor_stride(x, 1);
    printf("x[1, 2] is element %lld of the storage\n\n", (long long)index);

    /* Rows, columns, the transpose: other sizes, strides and offsets on the same bytes. */
    tl_tensor *row = tl_slice(x, 0, 0, tl_dim_of(1), 1);
    tl_tensor *column = tl_slice(x, 1, 1, tl_dim_of(1), 1);
    tl_tensor *turned = tl_transpose(x, 0, 1);
    tl_tensor *backwards = tl_slice(x, 1, -1, tl_dim_of(4), -1);
    show("x, columns backwards", backwards);

    /* Writing through one view shows in the others. */
    tl_fill(row, 100);
    show("its transpose, after the first row was filled with 100", turned);

    /* A transposed tensor is not contiguous: its elements do not lie in the order of its indices. view refuses, and says
     * why; reshape copies, and the ledger knows. */
    int64_t before = tl_ledger_live_total(ctx);
    if (!tl_view(turned, TL_SHAPE(ctx, tl_dim_of(16))))
        printf("view: %s\n\n", tl_ctx_error(ctx)->message);
    tl_ctx_clear_error(ctx);
    tl_tensor *flat = tl_reshape(turned, TL_SHAPE(ctx, tl_dim_of(16)));
    printf("reshape copied %lld bytes\n\n", (long long)(tl_ledger_live_total(ctx) - before));

    const tl_named_tensor all[] = {
        {"x", x}, {"row", row}, {"column", column}, {"turned", turned}, {"backwards", backwards}, {"flat", flat}};
    tl_text table = {0};
    tl_status status = tl_tensors_summary(all, 6, &table, &error);
    if (status == TL_OK)
        printf("%s", table.data);
    tl_text_free(&table);
    if (tl_ctx_status(ctx) != TL_OK) /* the first error stuck: one check is enough */
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    status = status != TL_OK ? status : tl_ctx_status(ctx);
    tl_ctx_free(ctx);
    return status != TL_OK;
}
