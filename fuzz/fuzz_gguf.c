/* Any bytes at all as a GGUF file: refused with a message, or read; never a crash, a hang or a large allocation. What is accepted
 * must be consistent: ranges in the file, names that are found again. Three of four inputs get the mark and the version, and small
 * counts, so that pairs and tensors are reached. */
#include "tally/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(const tl_error *error) {
    if (error->status == TL_OK || error->message[0] == '\0')
        abort();
    for (const char *c = error->message; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
}

static void check_file(const tl_gguf *g, const char *path) {
    tl_model model;
    tl_error error = {TL_OK, ""};
    for (int64_t i = 0; i < tl_gguf_tensors(g); i++) {
        const tl_gguf_tensor *t = tl_gguf_tensor_at(g, i);
        int64_t count = 1;
        for (int d = 0; d < t->ndim; d++)
            count *= t->dim[d];
        if (count != t->count || t->offset < tl_gguf_header_bytes(g) || tl_gguf_tensor_find(g, t->name) != t ||
            (t->bytes > 0 && t->bytes > tl_gguf_bytes(g) - t->offset))
            abort();
    }
    for (int64_t i = 0; i < tl_gguf_pairs(g); i++) {
        const tl_gguf_pair *p = tl_gguf_pair_at(g, i);
        if (tl_gguf_pair_find(g, p->key) != p || p->count < 0)
            abort();
    }
    if (tl_gguf_model(g, path, &model, &error) != TL_OK)
        check_message(&error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char bytes[1 << 16];
    char path[64];
    tl_error error = {TL_OK, ""};
    size_t n = 0;
    if (size < 4 || size > sizeof bytes - 64)
        return 0;
    if (data[0] % 4) {
        memcpy(bytes, "GGUF\3\0\0", 8);
        memset(bytes + 8, 0, 16);
        bytes[8] = data[1] % 8;
        bytes[16] = data[2] % 16;
        n = 24;
    }
    memcpy(bytes + n, data + 3, size - 3);
    n += size - 3;
    int file = memfd_create("gguf", 0);
    if (file < 0 || write(file, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    tl_gguf *g = tl_gguf_open(path, &error);
    if (g)
        check_file(g, path);
    else
        check_message(&error);
    tl_gguf_close(g);
    close(file);
    return 0;
}
