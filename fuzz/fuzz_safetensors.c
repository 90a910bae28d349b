/* Any bytes at all as a safetensors file, or, by the first byte, as the index of a model in several files: refused with a
 * message, or read; never a crash, a hang or a large allocation. What is accepted must be consistent: ranges that tile the
 * file, and names that are found again. Two of three inputs get their first 8 bytes from their own length, so that the
 * header is reached. */
#include "config/tensor_header.h"
#include "tally/safetensors.h"

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

static void check_file(const tl_safetensors *f) {
    tl_error error = {TL_OK, ""};
    int64_t at = tl_safetensors_header_bytes(f);
    for (int64_t i = 0; i < tl_safetensors_count(f); i++) {
        const tl_safetensors_tensor *t = tl_safetensors_at(f, i);
        unsigned char byte;
        int64_t count = 1;
        for (int64_t d = 0; d < t->ndim; d++)
            count *= t->dim[d];
        if (t->offset != at || t->bytes < 0 || count != t->count || tl_safetensors_find(f, t->name) != t)
            abort();
        at += t->bytes;
        if (t->bytes > 0 && tl_safetensors_read(f, t, t->bytes - 1, &byte, 1, &error) != TL_OK)
            abort();
    }
    if (at != tl_safetensors_bytes(f))
        abort();
    for (int64_t i = 0; i < tl_safetensors_metadata_count(f); i++)
        if (!tl_safetensors_metadata(f, tl_safetensors_metadata_key(f, i)))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char bytes[1 << 16];
    char path[64];
    tl_error error = {TL_OK, ""};
    if (size < 2 || size > sizeof bytes - 8)
        return 0;
    unsigned kind = data[0];
    data++, size--;
    if (kind % 4 == 3) {
        tl_weight_map map;
        if (tl_weight_map_parse((const char *)data, size, "index", &map, &error) == TL_OK)
            tl_weight_map_free(&map);
        else
            check_message(&error);
        return 0;
    }
    size_t length = size;
    if (kind % 4 != 0) { /* up to the last brace it is header, behind it values */
        const unsigned char *brace = memrchr(data, '}', size);
        size_t header = brace ? (size_t)(brace - data) + 1 : size;
        for (int i = 0; i < 8; i++)
            bytes[i] = (unsigned char)(header >> 8 * i & 255);
        memcpy(bytes + 8, data, size);
        length = size + 8;
    } else {
        memcpy(bytes, data, size);
    }
    int file = memfd_create("safetensors", 0);
    if (file < 0 || write(file, bytes, length) != (ssize_t)length)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    tl_safetensors *f = tl_safetensors_open(path, &error);
    if (f)
        check_file(f);
    else
        check_message(&error);
    tl_safetensors_close(f);
    close(file);
    return 0;
}
