/* ckpt/read.c: reading a checkpoint back. The header of what is there in memory is made again; the file's must match it,
 * field by field. No number in the file is trusted for more than a comparison. */
#include "ckpt/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nearest.h"
#include "tensor/ctx.h"

typedef struct reader {
    int file;
    const char *path;
    uint64_t length;
    tl_error *error;
} reader;

static tl_status get_all(const reader *r, void *data, uint64_t bytes, uint64_t offset) {
    char *at = data;
    while (bytes > 0) {
        ssize_t n = pread(r->file, at, bytes < 1 << 24 ? (size_t)bytes : (size_t)1 << 24, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int reason = errno;
            return tl_fail(r->error, TL_ERR_IO, "cannot read %s: %s", r->path, strerror(reason));
        }
        if (n == 0)
            return tl_fail(r->error, TL_ERR_FORMAT, "%s ends at byte %llu, in the middle of a tensor", r->path,
                           (unsigned long long)offset);
        at += n;
        bytes -= (uint64_t)n;
        offset += (uint64_t)n;
    }
    return TL_OK;
}

/* What else such a file tends to be. */
static const char *guess(const unsigned char *at, size_t n) {
    static const struct {
        const char *start, *what;
    } known[] = {{"PK\003\004", "a zip archive (a PyTorch checkpoint?)"},
                 {"\200\002", "a Python pickle"},
                 {"version https://git-lfs", "a git-LFS pointer: fetch the file itself"},
                 {"<", "an HTML or XML page"},
                 {"{", "JSON"},
                 {"GGUF", "a GGUF file"},
                 {"\037\213", "a gzip archive"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (n >= strlen(known[i].start) && memcmp(at, known[i].start, strlen(known[i].start)) == 0)
            return known[i].what;
    return n > 9 && at[8] == '{' ? "a safetensors file" : "something else";
}

static tl_status read_fixed(const reader *r, tl_ckpt_head *h) {
    unsigned char at[TL_CKPT_FIXED] = {0};
    size_t n = r->length < sizeof at ? (size_t)r->length : sizeof at;
    tl_status status = get_all(r, at, n, 0);
    if (status != TL_OK)
        return status;
    if (n == 0)
        return tl_fail(r->error, TL_ERR_FORMAT, "%s is empty", r->path);
    size_t magic = n < 8 ? n : 8;
    if (memcmp(at, TL_CKPT_MAGIC, magic) != 0)
        return tl_fail(r->error, TL_ERR_FORMAT, "%s is no checkpoint of tally: it looks like %s", r->path,
                       guess(at, n));
    if (n < sizeof at)
        return tl_fail(r->error, TL_ERR_FORMAT, "%s is cut short: %llu bytes, a header has %d", r->path,
                       (unsigned long long)n, TL_CKPT_FIXED);
    h->version = (uint32_t)tl_ckpt_get(at + 8, 4);
    h->tensors = (uint32_t)tl_ckpt_get(at + 12, 4);
    h->header_bytes = tl_ckpt_get(at + 16, 8);
    h->file_bytes = tl_ckpt_get(at + 24, 8);
    h->states = (uint32_t)tl_ckpt_get(at + 36, 4);
    h->state = (tl_ckpt_state){.step = (int64_t)tl_ckpt_get(at + 40, 8),
                               .total_steps = (int64_t)tl_ckpt_get(at + 48, 8),
                               .data_position = tl_ckpt_get(at + 56, 8),
                               .seed_init = tl_ckpt_get(at + 64, 8),
                               .seed_data = tl_ckpt_get(at + 72, 8),
                               .seed_dropout = tl_ckpt_get(at + 80, 8),
                               .dropout_position = tl_ckpt_get(at + 88, 8)};
    if (h->version != TL_CKPT_VERSION)
        return tl_fail(r->error, TL_ERR_UNSUPPORTED, "%s is a checkpoint of format %u; this build reads format %d",
                       r->path, h->version, TL_CKPT_VERSION);
    if (h->file_bytes != r->length)
        return tl_fail(r->error, TL_ERR_FORMAT, "%s has %llu bytes where its header says %llu: %s", r->path,
                       (unsigned long long)r->length, (unsigned long long)h->file_bytes,
                       r->length < h->file_bytes ? "cut short" : "something was added");
    if (h->header_bytes > h->file_bytes || h->header_bytes > TL_CKPT_LARGEST_HEADER ||
        h->header_bytes < TL_CKPT_FIXED + TL_CKPT_CHECKSUM)
        return tl_fail(r->error, TL_ERR_FORMAT, "%s says its header has %llu bytes, of a file of %llu", r->path,
                       (unsigned long long)h->header_bytes, (unsigned long long)h->file_bytes);
    if (h->state.step < 0 || h->state.total_steps < 0)
        return tl_fail(r->error, TL_ERR_FORMAT, "%s is at step %lld of %lld", r->path, (long long)h->state.step,
                       (long long)h->state.total_steps);
    return TL_OK;
}

static tl_status open_file(reader *r, const char *path, tl_ckpt_head *h, tl_error *error) {
    *r = (reader){.path = path, .error = error};
    r->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits for a FIFO */
    struct stat st;
    if (r->file < 0 || fstat(r->file, &st) != 0) {
        int reason = errno;
        if (r->file >= 0)
            close(r->file);
        return tl_fail(error, reason == ENOENT ? TL_ERR_NOT_FOUND : TL_ERR_IO, "cannot open the checkpoint %s: %s",
                       path, strerror(reason));
    }
    tl_status status = TL_OK;
    r->length = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode))
        status = tl_fail(error, TL_ERR_FORMAT, "%s is no regular file", path);
    else
        status = read_fixed(r, h);
    if (status != TL_OK)
        close(r->file);
    return status;
}

static char *shape_text(const uint64_t *size, int ndim, char *buffer, size_t bytes) {
    size_t at = 0;
    buffer[0] = '\0';
    for (int i = 0; i < ndim && at < bytes - 1; i++)
        at += (size_t)snprintf(buffer + at, bytes - at, "%s%llu", i ? ", " : "", (unsigned long long)size[i]);
    return buffer;
}

/* One entry of the table against the tensor that should be there. */
static tl_status check_entry(const reader *r, const unsigned char *at, const unsigned char *want,
                             const tl_ckpt_entry *e) {
    size_t length = strlen(e->name), have = (size_t)tl_ckpt_get(at + 4, 4);
    const char *role = tl_ckpt_role_name(e->role);
    if (have != length || memcmp(at + TL_CKPT_ENTRY, e->name, length) != 0 || at[0] != want[0]) {
        char found[128]; /* of the file's bytes only those that were checked to be there */
        tl_quotable((const char *)at + TL_CKPT_ENTRY, have < length ? have : length, found, sizeof found);
        return tl_fail(r->error, TL_ERR_FORMAT, "%s holds the %s of \"%s\" where this model has the %s of \"%s\"",
                       r->path, tl_ckpt_role_name((tl_ckpt_role)at[0]), found, role, e->name);
    }
    if (at[1] != want[1])
        return tl_fail(r->error, TL_ERR_DTYPE, "%s holds the %s of %s in %s; this run has it in %s", r->path, role,
                       e->name, at[1] < TL_DTYPE_COUNT ? tl_dtype_name((tl_dtype)at[1]) : "an unknown number format",
                       tl_dtype_name((tl_dtype)want[1]));
    if (at[2] != want[2] || memcmp(at + 8, want + 8, 64) != 0) {
        uint64_t a[8], b[8];
        char text_a[200], text_b[200];
        for (int i = 0; i < 8; i++) {
            a[i] = tl_ckpt_get(at + 8 + 8 * i, 8);
            b[i] = tl_ckpt_get(want + 8 + 8 * i, 8);
        }
        return tl_fail(r->error, TL_ERR_SHAPE, "%s holds %s as [%s]; this model has it as [%s]", r->path, e->name,
                       shape_text(a, at[2] <= 8 ? at[2] : 8, text_a, sizeof text_a),
                       shape_text(b, want[2], text_b, sizeof text_b));
    }
    if (memcmp(at + 72, want + 72, 16) != 0)
        return tl_fail(r->error, TL_ERR_FORMAT,
                       "%s says %s lies at byte %llu with %llu bytes; it must lie at %llu with %llu", r->path, e->name,
                       (unsigned long long)tl_ckpt_get(at + 72, 8), (unsigned long long)tl_ckpt_get(at + 80, 8),
                       (unsigned long long)e->offset, (unsigned long long)e->bytes);
    return TL_OK;
}

/* Everything but the values. */
static tl_status check_header(const reader *r, const unsigned char *have, const unsigned char *want,
                              const tl_ckpt_head *h, const tl_ckpt_head *w, const tl_net *net,
                              const tl_optimizer *optimizer) {
    if (h->states != w->states)
        return tl_fail(r->error, TL_ERR_FORMAT,
                       "%s holds %u optimizer states of each parameter, this run's optimizer keeps %u: another --optim",
                       r->path, h->states, w->states);
    tl_ckpt_list list;
    tl_ckpt_entry e;
    size_t at = TL_CKPT_FIXED;
    tl_ckpt_list_begin(&list, net, optimizer, w->header_bytes);
    for (uint32_t i = 0; tl_ckpt_list_next(&list, &e); i++) {
        size_t bytes = TL_CKPT_ENTRY + strlen(e.name);
        if (i >= h->tensors || at + bytes + TL_CKPT_CHECKSUM > h->header_bytes)
            return tl_fail(r->error, TL_ERR_FORMAT, "%s holds %u tensors, this run has %u: the %s of \"%s\" is missing",
                           r->path, h->tensors, w->tensors, tl_ckpt_role_name(e.role), e.name);
        tl_status status = check_entry(r, have + at, want + at, &e);
        if (status != TL_OK)
            return status;
        at += bytes;
    }
    if (h->tensors != w->tensors || h->header_bytes != w->header_bytes || h->file_bytes != w->file_bytes)
        return tl_fail(r->error, TL_ERR_FORMAT, "%s holds %u tensors in %llu bytes, this run has %u in %llu", r->path,
                       h->tensors, (unsigned long long)h->file_bytes, w->tensors, (unsigned long long)w->file_bytes);
    if (tl_ckpt_get(have + at, 8) != tl_ckpt_hash(TL_CKPT_HASH, have, at))
        return tl_fail(r->error, TL_ERR_FORMAT, "%s is damaged: its header does not match its checksum", r->path);
    return TL_OK;
}

static tl_status read_values(const reader *r, const unsigned char *header, const tl_ckpt_head *h, const tl_net *net,
                             const tl_optimizer *optimizer) {
    tl_ckpt_list list;
    tl_ckpt_entry e;
    size_t at = TL_CKPT_FIXED;
    tl_ckpt_list_begin(&list, net, optimizer, h->header_bytes);
    while (tl_ckpt_list_next(&list, &e)) {
        void *data = tl_tensor_data((tl_tensor *)(uintptr_t)e.tensor);
        tl_status status = get_all(r, data, e.bytes, e.offset);
        if (status != TL_OK)
            return status;
        if (tl_ckpt_get(header + at + 88, 8) != tl_ckpt_hash(TL_CKPT_HASH, data, e.bytes))
            return tl_fail(r->error, TL_ERR_FORMAT, "%s is damaged: the %s of %s does not match its checksum", r->path,
                           tl_ckpt_role_name(e.role), e.name);
        e.tensor->storage->version++;
        at += TL_CKPT_ENTRY + strlen(e.name);
    }
    return TL_OK;
}

static tl_status load(const reader *r, tl_ctx *ctx, const tl_ckpt_head *h, tl_net *net, tl_optimizer *optimizer) {
    tl_ckpt_head want_head;
    tl_status status = tl_optimizer_restore(optimizer, h->state.step);
    if (status != TL_OK)
        return tl_fail(r->error, status, "%s", ctx->error.message);
    unsigned char *want = tl_ckpt_header_make(net, optimizer, &h->state, &want_head, r->error);
    if (!want)
        return r->error ? r->error->status : TL_ERR_MEMORY;
    unsigned char *have = malloc((size_t)h->header_bytes); /* at most the file's length, and 64 MiB */
    if (!have)
        status = tl_fail(r->error, TL_ERR_MEMORY, "no memory for the header of %s", r->path);
    if (status == TL_OK)
        status = get_all(r, have, h->header_bytes, 0);
    if (status == TL_OK)
        status = check_header(r, have, want, h, &want_head, net, optimizer);
    if (status == TL_OK)
        status = read_values(r, have, h, net, optimizer);
    free(have);
    free(want);
    return status;
}

tl_status tl_ckpt_load(const char *path, tl_ctx *ctx, tl_net *net, tl_optimizer *optimizer, tl_ckpt_state *state,
                       tl_error *error) {
    reader r;
    tl_ckpt_head head = {0};
    if (tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta takes no values");
    tl_status status = open_file(&r, path, &head, error);
    if (status != TL_OK)
        return status;
    tl_phase before = tl_phase_get(ctx);
    bool recording = ctx->recording;
    ctx->recording = false;
    tl_phase_set(ctx, TL_PHASE_LOAD);
    status = load(&r, ctx, &head, net, optimizer);
    tl_phase_set(ctx, before);
    ctx->recording = recording;
    close(r.file);
    if (status != TL_OK)
        return status;
    ctx->seed_init = head.state.seed_init;
    ctx->seed_data = head.state.seed_data;
    ctx->seed_dropout = head.state.seed_dropout;
    ctx->random_position = head.state.dropout_position;
    *state = head.state;
    return TL_OK;
}

tl_status tl_ckpt_peek(const char *path, tl_ckpt_state *state, tl_error *error) {
    reader r;
    tl_ckpt_head head = {0};
    tl_status status = open_file(&r, path, &head, error);
    if (status != TL_OK)
        return status;
    close(r.file);
    *state = head.state;
    return TL_OK;
}
