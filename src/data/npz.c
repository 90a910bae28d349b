/* data/npz.c: reading .npz, a zip archive of .npy files (PKWARE's APPNOTE 6.3). The directory at the end decides; every number
 * in it is held against the file's length before it is used, and members that lie over one another are refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "data/npy.h"
#include "tensor/ctx.h"

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MAX = 65535,
    CHUNK = 1 << 16
};

typedef struct member {
    tl_npz_member is;
    uint64_t local_at, bytes, stored;
    uint32_t crc;
    uint16_t name_bytes; /* in the archive, with ".npy" */
} member;

struct tl_npz {
    tl_allocator allocator;
    int file, count;
    uint64_t bytes;
    member *members;
    unsigned char *directory; /* names stay in it */
    uint64_t directory_at, directory_bytes;
    char path[1024];
};

static uint64_t get(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static tl_status read_at(const tl_npz *z, uint64_t at, void *to, uint64_t bytes, tl_error *error) {
    char *into = to;
    if (at > z->bytes || bytes > z->bytes - at)
        return tl_fail(error, TL_ERR_FORMAT, "%s: the archive points at byte %llu of %llu", z->path,
                       (unsigned long long)at + bytes, (unsigned long long)z->bytes);
    while (bytes > 0) {
        ssize_t n = pread(z->file, into, bytes < 1 << 24 ? (size_t)bytes : (size_t)1 << 24, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int reason = errno;
            return tl_fail(error, TL_ERR_IO, "cannot read %s: %s", z->path, strerror(reason));
        }
        if (n == 0)
            return tl_fail(error, TL_ERR_IO, "%s became shorter while it was read", z->path);
        into += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return TL_OK;
}

/* ---- the directory ---- */

static tl_status find_end64(tl_npz *z, uint64_t end_at, uint64_t *count, tl_error *error) {
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    tl_status status = end_at < LOCATOR_BYTES
                           ? tl_fail(error, TL_ERR_FORMAT, "%s: a zip64 archive without its locator", z->path)
                           : read_at(z, end_at - LOCATOR_BYTES, locator, sizeof locator, error);
    if (status != TL_OK)
        return status;
    if (memcmp(locator, "PK\6\7", 4) != 0 || get(locator + 16, 4) > 1)
        return tl_fail(error, TL_ERR_FORMAT, "%s: a zip64 archive without its locator, or on several disks", z->path);
    status = read_at(z, get(locator + 8, 8), end, sizeof end, error);
    if (status != TL_OK)
        return status;
    if (memcmp(end, "PK\6\6", 4) != 0)
        return tl_fail(error, TL_ERR_FORMAT, "%s: no zip64 directory where its locator points", z->path);
    *count = get(end + 32, 8);
    z->directory_bytes = get(end + 40, 8);
    z->directory_at = get(end + 48, 8);
    return TL_OK;
}

/* The end record lies before a comment of at most 65,535 bytes: looked for from the end. */
static tl_status find_directory(tl_npz *z, uint64_t *count, tl_error *error) {
    unsigned char *tail = z->allocator.alloc(z->allocator.self, END_BYTES + COMMENT_MAX, 16, TL_ALLOC_HOST);
    uint64_t length = z->bytes < END_BYTES + COMMENT_MAX ? z->bytes : END_BYTES + COMMENT_MAX;
    if (!tail)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to read %s", z->path);
    tl_status status = read_at(z, z->bytes - length, tail, length, error);
    int64_t i = (int64_t)length - END_BYTES;
    while (status == TL_OK && i >= 0 &&
           (memcmp(tail + i, "PK\5\6", 4) != 0 || get(tail + i + 20, 2) != length - (uint64_t)i - END_BYTES))
        i--;
    if (status == TL_OK && i < 0) {
        bool zip = length >= 4 && memcmp(tail, "PK\3\4", 4) == 0;
        status =
            tl_fail(error, TL_ERR_FORMAT, "%s is no .npz: %s", z->path,
                    length == 0                ? "the file is empty"
                    : zip || z->bytes > length ? "a zip archive's directory is missing at its end: half a download?"
                    : memcmp(tail, "\x93NUMPY", length < 6 ? (size_t)length : 6) == 0 ? "it is one array, an .npy"
                                                                                      : "no zip archive");
    }
    if (status == TL_OK) {
        const unsigned char *end = tail + i;
        uint64_t end_at = z->bytes - length + (uint64_t)i;
        *count = get(end + 10, 2);
        z->directory_bytes = get(end + 12, 4);
        z->directory_at = get(end + 16, 4);
        if (get(end + 4, 2) != 0 && get(end + 4, 2) != 0xFFFF)
            status = tl_fail(error, TL_ERR_UNSUPPORTED, "%s: a zip archive on several disks", z->path);
        else if (*count == 0xFFFF || z->directory_bytes == 0xFFFFFFFF || z->directory_at == 0xFFFFFFFF)
            status = find_end64(z, end_at, count, error);
        if (status == TL_OK && (z->directory_at > end_at || z->directory_bytes > end_at - z->directory_at ||
                                *count > z->directory_bytes / ENTRY_BYTES || *count > INT32_MAX))
            status = tl_fail(error, TL_ERR_FORMAT,
                             "%s: a directory of %llu members and %llu bytes from byte %llu on; the file has %llu",
                             z->path, (unsigned long long)*count, (unsigned long long)z->directory_bytes,
                             (unsigned long long)z->directory_at, (unsigned long long)z->bytes);
    }
    z->allocator.release(z->allocator.self, tail, END_BYTES + COMMENT_MAX, TL_ALLOC_HOST);
    return status;
}

/* The 64-bit fields that stand for those which are all ones, in this order. */
static bool widen(const unsigned char *extra, uint64_t length, uint64_t *fields[3]) {
    while (length >= 4) {
        uint64_t id = get(extra, 2), size = get(extra + 2, 2);
        const unsigned char *at = extra + 4;
        if (size > length - 4)
            return false;
        if (id == 1) {
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != 0xFFFFFFFF)
                    continue;
                if (size < 8)
                    return false;
                *fields[i] = get(at, 8);
                at += 8;
                size -= 8;
            }
            return true;
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    return *fields[0] != 0xFFFFFFFF && *fields[1] != 0xFFFFFFFF && *fields[2] != 0xFFFFFFFF;
}

/* A name goes into messages and out to terminals; ".npy" at its end goes. */
static bool tidy_name(unsigned char *name, size_t length) {
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] < 0x20 || name[i] == 0x7f)
            return false;
    if (length > 4 && memcmp(name + length - 4, ".npy", 4) == 0)
        length -= 4;
    name[length] = 0;
    return true;
}

/* One entry; *at moves on. The byte after its name is overwritten by the name's end, so what follows was read before. */
static tl_status read_entry(tl_npz *z, member *m, uint64_t *at, tl_error *error) {
    unsigned char *e = z->directory + *at;
    uint64_t left = z->directory_bytes - *at;
    if (left < ENTRY_BYTES || memcmp(e, "PK\1\2", 4) != 0)
        return tl_fail(error, TL_ERR_FORMAT, "%s: the archive's directory is damaged at its byte %llu", z->path,
                       (unsigned long long)*at);
    uint64_t flags = get(e + 8, 2), method = get(e + 10, 2), name = get(e + 28, 2), extra = get(e + 30, 2);
    uint64_t whole = ENTRY_BYTES + name + extra + get(e + 32, 2);
    uint64_t stored = get(e + 20, 4), bytes = get(e + 24, 4), local_at = get(e + 42, 4);
    uint64_t *fields[3] = {&bytes, &stored, &local_at};
    if (whole > left || !widen(e + ENTRY_BYTES + name, extra, fields))
        return tl_fail(error, TL_ERR_FORMAT, "%s: the archive's directory is damaged at its byte %llu", z->path,
                       (unsigned long long)*at);
    m->crc = (uint32_t)get(e + 16, 4);
    /* The name moves to the entry's front, over what was read: its end then overwrites nothing of the next entry. */
    memmove(e, e + ENTRY_BYTES, (size_t)name);
    if (!tidy_name(e, (size_t)name))
        return tl_fail(error, TL_ERR_FORMAT, "%s: a member whose name is empty or holds control characters", z->path);
    m->name_bytes = (uint16_t)name;
    m->is = (tl_npz_member){(const char *)e, (int64_t)bytes, (int64_t)stored, method == 8};
    m->local_at = local_at;
    m->bytes = bytes;
    m->stored = stored;
    *at += whole;
    if (flags & 1)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: %.80s is encrypted", z->path, m->is.name);
    if (method != 0 && method != 8)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "%s: %.80s is packed by method %llu; stored (0) and deflated (8) are read", z->path, m->is.name,
                       (unsigned long long)method);
    if (stored > z->directory_at || local_at > z->directory_at - stored || bytes > INT64_MAX ||
        (method == 0 && bytes != stored))
        return tl_fail(error, TL_ERR_FORMAT, "%s: %.80s is given %llu bytes (%llu unpacked) from byte %llu on", z->path,
                       m->is.name, (unsigned long long)stored, (unsigned long long)bytes, (unsigned long long)local_at);
    /* Deflate packs at most 258 bytes into two bits: more than 1032 to one is a lie, and nothing is allocated for it. */
    if (method == 8 && bytes / 1032 > stored + 1)
        return tl_fail(error, TL_ERR_FORMAT, "%s: %.80s cannot unpack %llu bytes to %llu", z->path, m->is.name,
                       (unsigned long long)stored, (unsigned long long)bytes);
    return TL_OK;
}

static int compare_place(const void *a, const void *b) {
    const member *x = *(const member *const *)a, *y = *(const member *const *)b;
    return x->local_at < y->local_at ? -1 : x->local_at > y->local_at;
}

static int compare_name(const void *a, const void *b) {
    return strcmp((*(const member *const *)a)->is.name, (*(const member *const *)b)->is.name);
}

static tl_status check_members(tl_npz *z, tl_error *error) {
    size_t n = (size_t)z->count, room = n * sizeof(member *);
    tl_status status = TL_OK;
    if (n < 2)
        return TL_OK;
    const member **sorted = z->allocator.alloc(z->allocator.self, room, 16, TL_ALLOC_HOST);
    if (!sorted)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to read %s", z->path);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &z->members[i];
    qsort(sorted, n, sizeof *sorted, compare_place);
    for (size_t i = 1; status == TL_OK && i < n; i++)
        if (sorted[i]->local_at - sorted[i - 1]->local_at <
            LOCAL_BYTES + sorted[i - 1]->name_bytes + sorted[i - 1]->stored)
            status = tl_fail(error, TL_ERR_FORMAT, "%s: %.80s and %.80s lie over one another", z->path,
                             sorted[i - 1]->is.name, sorted[i]->is.name);
    qsort(sorted, n, sizeof *sorted, compare_name);
    for (size_t i = 1; status == TL_OK && i < n; i++)
        if (strcmp(sorted[i]->is.name, sorted[i - 1]->is.name) == 0)
            status = tl_fail(error, TL_ERR_FORMAT, "%s: two members are called %.80s", z->path, sorted[i]->is.name);
    z->allocator.release(z->allocator.self, sorted, room, TL_ALLOC_HOST);
    return status;
}

static tl_status read_directory(tl_npz *z, tl_error *error) {
    uint64_t count = 0, at = 0;
    tl_status status = find_directory(z, &count, error);
    if (status != TL_OK || count == 0)
        return status;
    z->directory = z->allocator.alloc(z->allocator.self, (size_t)z->directory_bytes, 16, TL_ALLOC_HOST);
    z->members = z->allocator.alloc(z->allocator.self, (size_t)count * sizeof *z->members, 16, TL_ALLOC_HOST);
    z->count = (int)count;
    if (!z->directory || !z->members)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for the directory of %s, %llu bytes", z->path,
                       (unsigned long long)z->directory_bytes);
    status = read_at(z, z->directory_at, z->directory, z->directory_bytes, error);
    for (uint64_t i = 0; status == TL_OK && i < count; i++)
        status = read_entry(z, &z->members[i], &at, error);
    return status == TL_OK ? check_members(z, error) : status;
}

tl_npz *tl_npz_open(const char *path, const tl_allocator *allocator, tl_error *error) {
    const tl_allocator *from = allocator ? allocator : tl_allocator_default();
    struct stat about;
    tl_npz *z = from->alloc(from->self, sizeof *z, 16, TL_ALLOC_HOST);
    if (!z) {
        tl_fail(error, TL_ERR_MEMORY, "no memory to read %s", path);
        return NULL;
    }
    memset(z, 0, sizeof *z);
    z->allocator = *from;
    snprintf(z->path, sizeof z->path, "%s", path);
    z->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    tl_status status = TL_OK;
    if (z->file < 0 || fstat(z->file, &about) != 0) {
        int reason = errno;
        status = tl_fail(error, TL_ERR_IO, "cannot read %s: %s", path, strerror(reason));
    } else if (!S_ISREG(about.st_mode))
        status = tl_fail(error, TL_ERR_IO, "cannot read %s: it is no regular file", path);
    else {
        z->bytes = (uint64_t)about.st_size;
        status = read_directory(z, error);
    }
    if (status == TL_OK)
        return z;
    tl_npz_close(z);
    return NULL;
}

void tl_npz_close(tl_npz *z) {
    if (!z)
        return;
    tl_allocator from = z->allocator;
    if (z->file >= 0)
        close(z->file);
    if (z->directory)
        from.release(from.self, z->directory, (size_t)z->directory_bytes, TL_ALLOC_HOST);
    if (z->members)
        from.release(from.self, z->members, (size_t)z->count * sizeof *z->members, TL_ALLOC_HOST);
    from.release(from.self, z, sizeof *z, TL_ALLOC_HOST);
}

int tl_npz_count(const tl_npz *z) { return z->count; }

const tl_npz_member *tl_npz_at(const tl_npz *z, int index) {
    return index >= 0 && index < z->count ? &z->members[index].is : NULL;
}

int tl_npz_find(const tl_npz *z, const char *name) {
    for (int i = 0; i < z->count; i++)
        if (strcmp(z->members[i].is.name, name) == 0)
            return i;
    return -1;
}

/* ---- a member's bytes ---- */

typedef struct unpacker {
    const tl_npz *z;
    const member *m;
    uint64_t at, left; /* of the packed bytes */
    uint32_t crc;
    bool inflating;
    z_stream inflate;
    unsigned char chunk[CHUNK];
} unpacker;

/* Where the member's bytes begin: after its own header, whose name must be the directory's. */
static tl_status begin_member(unpacker *u, const tl_npz *z, const member *m, tl_error *error) {
    unsigned char local[LOCAL_BYTES];
    u->z = z;
    u->m = m;
    u->crc = 0;
    u->inflating = false;
    tl_status status = read_at(z, m->local_at, local, sizeof local, error);
    if (status != TL_OK)
        return status;
    uint64_t skip = LOCAL_BYTES + get(local + 26, 2) + get(local + 28, 2);
    if (memcmp(local, "PK\3\4", 4) != 0 || get(local + 26, 2) != m->name_bytes ||
        get(local + 8, 2) != (m->is.deflated ? 8u : 0u) || skip + m->stored > z->directory_at - m->local_at)
        return tl_fail(error, TL_ERR_FORMAT, "%s: the header of %.80s is not what the directory says", z->path,
                       m->is.name);
    u->at = m->local_at + skip;
    u->left = m->stored;
    if (!m->is.deflated)
        return TL_OK;
    memset(&u->inflate, 0, sizeof u->inflate);
    if (inflateInit2(&u->inflate, -MAX_WBITS) != Z_OK)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to unpack %s", z->path);
    u->inflating = true;
    return TL_OK;
}

static tl_status unpack_some(unpacker *u, unsigned char *to, size_t bytes, tl_error *error) {
    u->inflate.next_out = to;
    u->inflate.avail_out = (uInt)bytes;
    while (u->inflate.avail_out > 0) {
        if (u->inflate.avail_in == 0 && u->left > 0) {
            size_t more = u->left < CHUNK ? (size_t)u->left : CHUNK;
            tl_status status = read_at(u->z, u->at, u->chunk, more, error);
            if (status != TL_OK)
                return status;
            u->at += more;
            u->left -= more;
            u->inflate.next_in = u->chunk;
            u->inflate.avail_in = (uInt)more;
        }
        int result = inflate(&u->inflate, Z_NO_FLUSH);
        if (result == Z_STREAM_END && u->inflate.avail_out == 0)
            break;
        if (result != Z_OK)
            return tl_fail(error, TL_ERR_FORMAT, "%s: %.80s is damaged: its packed bytes %s", u->z->path, u->m->is.name,
                           result == Z_STREAM_END || result == Z_BUF_ERROR ? "end too early" : "make no sense");
    }
    return TL_OK;
}

static tl_status read_member(void *self, void *to, uint64_t bytes, tl_error *error) {
    unpacker *u = self;
    unsigned char *at = to;
    while (bytes > 0) {
        size_t n = bytes < 1 << 24 ? (size_t)bytes : (size_t)1 << 24;
        tl_status status = TL_OK;
        if (u->inflating)
            status = unpack_some(u, at, n, error);
        else if (n > u->left)
            status = tl_fail(error, TL_ERR_FORMAT, "%s: %.80s ends too early", u->z->path, u->m->is.name);
        else {
            status = read_at(u->z, u->at, at, n, error);
            u->at += n;
            u->left -= n;
        }
        if (status != TL_OK)
            return status;
        u->crc = (uint32_t)crc32(u->crc, at, (uInt)n);
        at += n;
        bytes -= n;
    }
    return TL_OK;
}

/* After its last byte: nothing may be left over, and the checksum must be right. */
static tl_status end_member(unpacker *u, tl_error *error) {
    unsigned char more;
    if (u->inflating) {
        u->inflate.next_out = &more;
        u->inflate.avail_out = 1;
        if (u->inflate.avail_in == 0 && u->left > 0) {
            size_t n = u->left < CHUNK ? (size_t)u->left : CHUNK;
            tl_status status = read_at(u->z, u->at, u->chunk, n, error);
            if (status != TL_OK)
                return status;
            u->left -= n;
            u->inflate.next_in = u->chunk;
            u->inflate.avail_in = (uInt)n;
        }
        int result = inflate(&u->inflate, Z_FINISH);
        if (result != Z_STREAM_END || u->inflate.avail_out == 0 || u->inflate.avail_in > 0 || u->left > 0)
            return tl_fail(error, TL_ERR_FORMAT, "%s: %.80s unpacks to more than the %lld bytes it is given",
                           u->z->path, u->m->is.name, (long long)u->m->is.bytes);
    }
    if (u->crc != u->m->crc)
        return tl_fail(error, TL_ERR_FORMAT, "%s: %.80s is damaged: CRC-32 %08x, and %08x by the archive", u->z->path,
                       u->m->is.name, (unsigned)u->crc, (unsigned)u->m->crc);
    return TL_OK;
}

static tl_status open_member(const tl_npz *z, int index, unpacker **u, tl_npy_stream *stream, char *name, size_t size,
                             tl_npy_header *header, tl_error *error) {
    const member *m = &z->members[index];
    snprintf(name, size, "%.300s: %.80s", z->path, m->is.name);
    *u = z->allocator.alloc(z->allocator.self, sizeof **u, 16, TL_ALLOC_HOST);
    if (!*u)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to unpack %s", name);
    *stream = (tl_npy_stream){read_member, *u, m->is.bytes, name};
    tl_status status = begin_member(*u, z, m, error);
    return status == TL_OK ? tl_npy_stream_header(stream, header, error) : status;
}

static void close_member(const tl_npz *z, unpacker *u) {
    tl_allocator from = z->allocator;
    if (!u)
        return;
    if (u->inflating)
        inflateEnd(&u->inflate);
    from.release(from.self, u, sizeof *u, TL_ALLOC_HOST);
}

tl_status tl_npz_peek(const tl_npz *z, int index, tl_npy_header *header, tl_error *error) {
    char name[512];
    tl_npy_stream stream;
    unpacker *u = NULL;
    if (index < 0 || index >= z->count)
        return tl_fail(error, TL_ERR_ARGUMENT, "member %d of %s, which has %d", index, z->path, z->count);
    tl_status status = open_member(z, index, &u, &stream, name, sizeof name, header, error);
    close_member(z, u);
    return status;
}

static tl_status no_member(const tl_npz *z, const char *name, tl_error *error) {
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; i < z->count && used < 200; i++) {
        int n = snprintf(list + used, sizeof list - used, "%s%.40s", i ? ", " : "", z->members[i].is.name);
        used += n > 0 ? (size_t)n : 0;
    }
    return tl_fail(error, TL_ERR_NOT_FOUND, "%s holds no \"%.80s\"; it holds %d: %s", z->path, name, z->count,
                   z->count ? list : "it is empty");
}

tl_tensor *tl_npz_read(tl_ctx *ctx, const tl_npz *z, const char *name, const tl_npy_options *options) {
    char full[512];
    tl_error error = {TL_OK, ""};
    tl_npy_header header;
    tl_npy_stream stream;
    tl_dtype dtype = TL_F32;
    tl_tensor *t = NULL;
    unpacker *u = NULL;
    if (ctx->error.status != TL_OK)
        return NULL;
    int index = tl_npz_find(z, name);
    tl_status status =
        index < 0 ? no_member(z, name, &error) : open_member(z, index, &u, &stream, full, sizeof full, &header, &error);
    if (status == TL_OK)
        status = tl_npy_dtype(&header, options, full, &dtype, &error);
    if (status == TL_OK) {
        t = tl_npy_stream_tensor(ctx, &stream, &header, dtype);
        if (t && ctx->kernels && (status = end_member(u, &error)) != TL_OK) {
            tl_release(t);
            t = NULL;
        }
    }
    if (status != TL_OK)
        tl_ctx_fail(ctx, status, "%s", error.message);
    close_member(z, u);
    return t;
}
