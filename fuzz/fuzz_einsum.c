/* Any bytes as a pattern, over tensors of any small shapes on meta: a result or a message, never a crash or a hang. Byte 0
 * says which function, byte 1 the number of tensors; each takes a count of axes and a size for each of them; the rest is
 * the pattern. A result's size must be what the ledger booked, and what the pattern's axes multiply to. */
#include "tally/axes.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct bytes {
    const uint8_t *data;
    size_t left;
} bytes;

static uint8_t next(bytes *b) {
    if (b->left == 0)
        return 0;
    b->left--;
    return *b->data++;
}

static void check_message(const tl_ctx *ctx) {
    const tl_error *error = tl_ctx_error(ctx);
    if (error->status == TL_OK)
        return;
    if (error->message[0] == '\0')
        abort();
    for (const char *c = error->message; *c != '\0'; c++) /* a caret has its own line; nothing else steers a terminal */
        if ((unsigned char)*c >= 0x7f || ((unsigned char)*c < 0x20 && *c != '\n'))
            abort();
}

static tl_tensor *call(tl_ctx *ctx, int which, const char *pattern, tl_tensor *in[], int n) {
    const tl_axis_length lengths[] = {{"a", {.size = 2}}, {"h", {.size = 3}}};
    tl_shape packed[16];
    tl_tensor *out[16];
    tl_axes axes = {0};
    switch (which % 7) {
    case 0:
        return tl_einsum(ctx, pattern, in, n);
    case 1:
        return tl_rearrange(in[0], pattern, lengths, n % 3);
    case 2:
        return tl_reduce(in[0], pattern, TL_REDUCE_SUM, lengths, n % 3);
    case 3:
        return tl_repeat_axes(in[0], pattern, lengths, n % 3);
    case 4: {
        tl_tensor *all = tl_pack(in, n, pattern, packed);
        if (all && tl_unpack(all, packed, n, pattern, out) != TL_OK)
            abort(); /* what was packed can be unpacked */
        return all;
    }
    case 5:
        for (int i = 0; i < n; i++)
            tl_check_shape(&axes, in[i], pattern);
        return NULL;
    default: {
        int pair[16][2];
        tl_u128 flops;
        tl_einsum_order(ctx, pattern, in, n, pair, &flops);
        return NULL;
    }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tl_error error = {0};
    tl_ctx_options options = {.formulas = size > 0 && data[0] & 0x80, .scratch_bytes = TL_NO_SCRATCH};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    bytes b = {data, size};
    if (!ctx)
        return 0;
    int which = next(&b) & 0x7f, n = 1 + next(&b) % 6;
    tl_tensor *in[6];
    for (int i = 0; i < n; i++) {
        tl_shape shape = {.ndim = next(&b) % (TL_MAX_NDIM + 1)};
        for (int d = 0; d < shape.ndim; d++)
            shape.dim[d] = tl_dim_of(next(&b) % 13);
        in[i] = tl_empty(ctx, TL_F32, shape, TL_WORK);
    }
    char pattern[512];
    size_t length = b.left < sizeof pattern - 1 ? b.left : sizeof pattern - 1;
    memcpy(pattern, b.data, length);
    pattern[length] = '\0';
    tl_tensor *y = tl_ctx_status(ctx) == TL_OK ? call(ctx, which, pattern, in, n) : NULL;
    if (y && tl_ctx_status(ctx) != TL_OK)
        abort();
    if (!y && which % 7 < 5 && tl_ctx_status(ctx) == TL_OK)
        abort(); /* nothing, and no word why */
    check_message(ctx);
    tl_ctx_free(ctx);
    return 0;
}
