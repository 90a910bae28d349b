/* Any bytes at all as an .npy and as an .npz: read or refused with a message. What is read is written, read again and the
 * same. */
#include "tally/cpu.h"
#include "tally/format.h"
#include "tally/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOO_MUCH = 1 << 20 };

static void check(bool good) {
    if (!good)
        abort();
}

static void check_message(const tl_error *error) {
    check(error->status != TL_OK && error->message[0] != '\0');
    for (const char *c = error->message; *c != '\0'; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* Written and read again it has the same values; as text it ends. */
static void again(tl_ctx *ctx, const tl_tensor *t, const char *path) {
    size_t bytes = (size_t)tl_tensor_count(t) * (size_t)tl_dtype_bytes(tl_tensor_dtype(t));
    tl_text text = {0};
    if (bytes > TOO_MUCH)
        return;
    check(tl_npy_write(t, path) == TL_OK);
    tl_tensor *u = tl_npy_read(ctx, path, NULL);
    check(u && tl_tensor_ndim(u) == tl_tensor_ndim(t) && tl_tensor_dtype(u) == tl_tensor_dtype(t));
    for (int i = 0; i < tl_tensor_ndim(t); i++)
        check(tl_tensor_size(u, i) == tl_tensor_size(t, i));
    unsigned char *a = malloc(bytes + 1), *b = malloc(bytes + 1);
    check(a && b && tl_tensor_read(t, a, bytes) == TL_OK && tl_tensor_read(u, b, bytes) == TL_OK);
    check(memcmp(a, b, bytes) == 0);
    free(a);
    free(b);
    check(tl_tensor_format(t, NULL, &text) == TL_OK && text.length > 0);
    tl_text_free(&text);
}

static void as_archive(tl_ctx *ctx, const char *path, const char *out) {
    tl_error error = {0};
    tl_npz *z = tl_npz_open(path, NULL, &error);
    if (!z) {
        check_message(&error);
        return;
    }
    for (int i = 0; i < tl_npz_count(z); i++) {
        tl_npy_header header;
        error = (tl_error){0};
        if (tl_npz_peek(z, i, &header, &error) != TL_OK)
            check_message(&error);
        else if (header.bytes <= TOO_MUCH) {
            tl_tensor *t = tl_npz_read(ctx, z, tl_npz_at(z, i)->name, NULL);
            if (t)
                again(ctx, t, out);
            else
                check_message(tl_ctx_error(ctx));
            tl_ctx_clear_error(ctx);
        }
    }
    tl_npz_close(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[64], out[64];
    tl_error error = {0};
    tl_npy_header header;
    if (!path[0]) {
        snprintf(path, sizeof path, "/tmp/fuzz-npy-%ld", (long)getpid());
        snprintf(out, sizeof out, "/tmp/fuzz-npy-%ld.out", (long)getpid());
    }
    FILE *file = fopen(path, "wb");
    check(file && fwrite(data, 1, size, file) == size);
    check(fclose(file) == 0);
    /* A header alone: the values may be as long as they say. */
    if (tl_npy_parse(data, size, (int64_t)size, "fuzz.npy", &header, &error) != TL_OK)
        check_message(&error);
    error = (tl_error){0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .scratch_bytes = 4096}, &error);
    check(ctx);
    tl_tensor *t = tl_npy_read(ctx, path, NULL);
    check((t != NULL) == (tl_npy_peek(path, &header, &error) == TL_OK && tl_ctx_status(ctx) == TL_OK));
    if (t)
        again(ctx, t, out);
    else
        check_message(tl_ctx_error(ctx));
    tl_ctx_clear_error(ctx);
    as_archive(ctx, path, out);
    tl_ctx_free(ctx);
    (void)unlink(path);
    (void)unlink(out);
    return 0;
}
