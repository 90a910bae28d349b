/* data/npz_write.c: writing .npz. A member's length and checksum are known after it was written, so its header is patched then.
 */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "data/npy.h"
#include "data/replace.h"
#include "tensor/ctx.h"

enum { LOCAL_BYTES = 30, ENTRY_BYTES = 46, CHUNK = 1 << 16, NAME_MAX_BYTES = 1024 };

typedef struct written {
    uint64_t at, bytes, stored;
    uint32_t crc;
    bool wide; /* its own header has 64-bit fields */
} written;

typedef struct packer {
    tl_replace replace;
    uint64_t at, wide_from;
    written *members;
    bool deflate;
    written *now;
    z_stream stream;
    unsigned char chunk[CHUNK];
} packer;

static void put(unsigned char **at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++, value >>= 8)
        *(*at)++ = (unsigned char)value;
}

static tl_status append(packer *p, const void *data, uint64_t bytes, tl_error *error) {
    p->at += bytes;
    return tl_replace_write(&p->replace, data, bytes, error);
}

/* Feeds what was given to zlib and writes what comes out. */
static tl_status deflate_some(packer *p, const void *data, size_t bytes, int flush, tl_error *error) {
    p->stream.next_in = (Bytef *)(uintptr_t)data;
    p->stream.avail_in = (uInt)bytes;
    do {
        p->stream.next_out = p->chunk;
        p->stream.avail_out = CHUNK;
        if (deflate(&p->stream, flush) == Z_STREAM_ERROR)
            return tl_fail(error, TL_ERR_STATE, "zlib refused to pack %s", p->replace.path);
        uint64_t out = CHUNK - p->stream.avail_out;
        p->now->stored += out;
        tl_status status = append(p, p->chunk, out, error);
        if (status != TL_OK)
            return status;
    } while (p->stream.avail_out == 0);
    return TL_OK;
}

static tl_status put_member(void *self, const void *data, uint64_t bytes, tl_error *error) {
    packer *p = self;
    const unsigned char *at = data;
    while (bytes > 0) {
        size_t n = bytes < 1 << 24 ? (size_t)bytes : (size_t)1 << 24;
        p->now->crc = (uint32_t)crc32(p->now->crc, at, (uInt)n);
        p->now->bytes += n;
        tl_status status = p->deflate ? deflate_some(p, at, n, Z_NO_FLUSH, error) : append(p, at, n, error);
        if (status != TL_OK)
            return status;
        at += n;
        bytes -= n;
    }
    return TL_OK;
}

static uint64_t narrow(uint64_t value, bool wide) { return wide ? 0xFFFFFFFF : value; }

/* What a member's own header and its entry in the directory have in common, from "version needed" to the name's length.
 * 1980-01-01 00:00, the first date there is: no clock enters, so equal tensors make equal files. 0x800: names are UTF-8. */
static void put_common(unsigned char **at, const packer *p, const written *w, bool wide, size_t name_bytes) {
    put(at, wide ? 45 : 20, 2);
    put(at, 0x800, 2);
    put(at, p->deflate ? 8 : 0, 2);
    put(at, 0, 2);
    put(at, 0x21, 2);
    put(at, w->crc, 4);
    put(at, narrow(w->stored, wide), 4);
    put(at, narrow(w->bytes, wide), 4);
    put(at, name_bytes, 2);
}

static size_t make_local(unsigned char *out, const packer *p, const written *w, const char *name) {
    unsigned char *at = out;
    size_t name_bytes = strlen(name);
    put(&at, 0x04034b50, 4);
    put_common(&at, p, w, w->wide, name_bytes + 4);
    put(&at, w->wide ? 20 : 0, 2);
    memcpy(at, name, name_bytes);
    memcpy(at + name_bytes, ".npy", 4);
    at += name_bytes + 4;
    if (w->wide) {
        put(&at, 1, 2);
        put(&at, 16, 2);
        put(&at, w->bytes, 8);
        put(&at, w->stored, 8);
    }
    return (size_t)(at - out);
}

static tl_status write_member(packer *p, const tl_npz_entry *e, written *w, tl_error *error) {
    unsigned char local[LOCAL_BYTES + NAME_MAX_BYTES + 24];
    tl_npy_sink sink = {put_member, p};
    /* Deflate makes what it cannot pack a little longer: 5 bytes in 16,000. */
    int64_t length = tl_npy_length(e->tensor);
    *w = (written){.at = p->at, .wide = length < 0 || (uint64_t)length + ((uint64_t)length >> 11) + 64 >= p->wide_from};
    p->now = w;
    tl_status status = append(p, local, make_local(local, p, w, e->name), error);
    if (status == TL_OK && p->deflate) {
        memset(&p->stream, 0, sizeof p->stream);
        if (deflateInit2(&p->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
            return tl_fail(error, TL_ERR_MEMORY, "no memory to pack %s", p->replace.path);
        status = tl_npy_put(e->tensor, &sink, error);
        if (status == TL_OK)
            status = deflate_some(p, NULL, 0, Z_FINISH, error);
        deflateEnd(&p->stream);
    } else if (status == TL_OK) {
        status = tl_npy_put(e->tensor, &sink, error);
        w->stored = w->bytes;
    }
    if (status != TL_OK)
        return status;
    return tl_replace_patch(&p->replace, local, make_local(local, p, w, e->name), w->at, error);
}

static tl_status write_entry(packer *p, const tl_npz_entry *e, const written *w, tl_error *error) {
    unsigned char entry[ENTRY_BYTES + NAME_MAX_BYTES + 32], *at = entry;
    size_t name_bytes = strlen(e->name);
    bool far = w->at >= p->wide_from, wide = w->wide;
    put(&at, 0x02014b50, 4);
    put(&at, 45 | 3 << 8, 2); /* made by: zip 4.5 on Unix */
    put_common(&at, p, w, wide, name_bytes + 4);
    put(&at, (wide || far) ? 4u + (wide ? 16u : 0u) + (far ? 8u : 0u) : 0u, 2);
    put(&at, 0, 2); /* comment */
    put(&at, 0, 2); /* disk */
    put(&at, 0, 2);
    put(&at, (uint64_t)0100600 << 16, 4); /* rw------- when unpacked, as NumPy's */
    put(&at, narrow(w->at, far), 4);
    memcpy(at, e->name, name_bytes);
    memcpy(at + name_bytes, ".npy", 4);
    at += name_bytes + 4;
    if (wide || far) {
        put(&at, 1, 2);
        put(&at, (wide ? 16u : 0u) + (far ? 8u : 0u), 2);
        if (wide) {
            put(&at, w->bytes, 8);
            put(&at, w->stored, 8);
        }
        if (far)
            put(&at, w->at, 8);
    }
    return append(p, entry, (uint64_t)(at - entry), error);
}

static tl_status write_end(packer *p, uint64_t count, uint64_t directory_at, tl_error *error) {
    unsigned char end[56 + 20 + 22], *at = end;
    uint64_t directory_bytes = p->at - directory_at, end_at = p->at;
    bool wide = count >= 0xFFFF || directory_at >= p->wide_from || directory_bytes >= p->wide_from;
    if (wide) {
        put(&at, 0x06064b50, 4);
        put(&at, 44, 8);
        put(&at, 45, 2);
        put(&at, 45, 2);
        put(&at, 0, 4);
        put(&at, 0, 4);
        put(&at, count, 8);
        put(&at, count, 8);
        put(&at, directory_bytes, 8);
        put(&at, directory_at, 8);
        put(&at, 0x07064b50, 4);
        put(&at, 0, 4);
        put(&at, end_at, 8);
        put(&at, 1, 4);
    }
    put(&at, 0x06054b50, 4);
    put(&at, 0, 4);
    put(&at, wide ? 0xFFFF : count, 2);
    put(&at, wide ? 0xFFFF : count, 2);
    put(&at, narrow(directory_bytes, wide), 4);
    put(&at, narrow(directory_at, wide), 4);
    put(&at, 0, 2);
    return append(p, end, (uint64_t)(at - end), error);
}

static tl_status check_entries(const tl_npz_entry *entries, int count, tl_error *error) {
    if (count < 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "%d arrays; 0 or more would work", count);
    for (int i = 0; i < count; i++) {
        const tl_tensor *t = entries[i].tensor;
        const char *name = entries[i].name;
        if (!t)
            return tl_fail(error, TL_ERR_ARGUMENT, "array %d (%.80s) is NULL", i, name ? name : "no name");
        if (t->ctx->error.status != TL_OK)
            return tl_fail(error, t->ctx->error.status, "%s", t->ctx->error.message);
        if (!t->ctx->kernels)
            return tl_fail(error, TL_ERR_STATE, "%.80s is on meta and has no values to write",
                           name ? name : "a tensor");
        size_t length = name ? strlen(name) : 0;
        bool bad = length == 0 || length > NAME_MAX_BYTES - 4 || name[0] == '/' || strstr(name, "..") != NULL;
        for (size_t k = 0; k < length && !bad; k++)
            bad = (unsigned char)name[k] < 0x20 || name[k] == 0x7f || name[k] == '\\';
        if (bad)
            return tl_fail(error, TL_ERR_ARGUMENT,
                           "array %d cannot be a member of an archive under its name; letters, digits and _ would work",
                           i);
        for (int k = 0; k < i; k++)
            if (strcmp(entries[k].name, name) == 0)
                return tl_fail(error, TL_ERR_ARGUMENT, "two arrays are called %.80s", name);
    }
    return TL_OK;
}

static tl_status write_all(packer *p, const tl_npz_entry *entries, int count, tl_error *error) {
    tl_status status = TL_OK;
    for (int i = 0; status == TL_OK && i < count; i++)
        status = write_member(p, &entries[i], &p->members[i], error);
    uint64_t directory_at = p->at;
    for (int i = 0; status == TL_OK && i < count; i++)
        status = write_entry(p, &entries[i], &p->members[i], error);
    return status == TL_OK ? write_end(p, (uint64_t)count, directory_at, error) : status;
}

tl_status tl_npz_write_wide(const char *path, const tl_npz_entry *entries, int count, bool deflate, uint64_t wide_from,
                            tl_error *error) {
    tl_status status = check_entries(entries, count, error);
    if (status != TL_OK)
        return status;
    const tl_allocator *from = tl_allocator_default();
    size_t bytes = sizeof(packer) + (size_t)count * sizeof(written);
    packer *p = from->alloc(from->self, bytes, 16, TL_ALLOC_HOST);
    if (!p)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to write %s", path);
    memset(p, 0, bytes);
    p->wide_from = wide_from;
    p->deflate = deflate;
    p->members = (written *)(void *)(p + 1);
    status = tl_replace_begin(&p->replace, path, error);
    if (status == TL_OK)
        status = tl_replace_end(&p->replace, write_all(p, entries, count, error), error);
    from->release(from->self, p, bytes, TL_ALLOC_HOST);
    return status;
}

tl_status tl_npz_write(const char *path, const tl_npz_entry *entries, int count, bool deflate, tl_error *error) {
    return tl_npz_write_wide(path, entries, count, deflate, 0xFFFFFFFF, error);
}
