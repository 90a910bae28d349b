/* ckpt/write.c: a checkpoint that is either there whole or not there. */
#include "ckpt/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/ctx.h"

enum { LONGEST_PATH = 4096 };

static tl_status refused(tl_error *error, const char *what, const char *path) {
    int reason = errno;
    return tl_fail(error, TL_ERR_IO, "cannot %s %s: %s", what, path, strerror(reason));
}

static bool write_all(int file, const void *data, uint64_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = write(file, at, bytes < 1 << 24 ? (size_t)bytes : (size_t)1 << 24);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return false;
        }
        at += n;
        bytes -= (uint64_t)n;
    }
    return true;
}

/* The checksums of all values into their entries, then that of the header behind the last entry. */
static void seal(unsigned char *header, const tl_net *net, const tl_optimizer *optimizer, uint64_t header_bytes) {
    tl_ckpt_list list;
    tl_ckpt_entry e;
    unsigned char *at = header + TL_CKPT_FIXED;
    tl_ckpt_list_begin(&list, net, optimizer, header_bytes);
    while (tl_ckpt_list_next(&list, &e)) {
        tl_ckpt_put(at + 88, 8, tl_ckpt_hash(TL_CKPT_HASH, tl_tensor_data((tl_tensor *)(uintptr_t)e.tensor), e.bytes));
        at += TL_CKPT_ENTRY + strlen(e.name);
    }
    tl_ckpt_put(at, 8, tl_ckpt_hash(TL_CKPT_HASH, header, (size_t)(at - header)));
}

static tl_status write_file(int file, const char *name, const unsigned char *header, const tl_ckpt_head *head,
                            const tl_net *net, const tl_optimizer *optimizer, tl_error *error) {
    static const char filling[TL_CKPT_ALIGN];
    tl_ckpt_list list;
    tl_ckpt_entry e;
    uint64_t at = head->header_bytes;
    bool ok = write_all(file, header, head->header_bytes);
    tl_ckpt_list_begin(&list, net, optimizer, head->header_bytes);
    while (ok && tl_ckpt_list_next(&list, &e)) {
        ok = write_all(file, filling, e.offset - at) &&
             write_all(file, tl_tensor_data((tl_tensor *)(uintptr_t)e.tensor), e.bytes);
        at = e.offset + e.bytes;
    }
    if (!ok || fsync(file) != 0)
        return refused(error, "write", name);
    return TL_OK;
}

/* The folder's own entry: without this a power cut can undo the rename. */
static tl_status flush_folder(const char *path, tl_error *error) {
    char folder[LONGEST_PATH];
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else
        snprintf(folder, sizeof folder, ".");
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return refused(error, "open the folder", folder);
    tl_status status = TL_OK;
    if (fsync(file) != 0 && errno != EINVAL) /* EINVAL: a file system whose folders cannot be flushed */
        status = refused(error, "flush the folder", folder);
    close(file);
    return status;
}

static tl_status write_under(const char *name, const char *path, const unsigned char *header, const tl_ckpt_head *head,
                             const tl_net *net, const tl_optimizer *optimizer, tl_error *error) {
    if (unlink(name) != 0 && errno != ENOENT) /* left by a run that was killed */
        return refused(error, "replace", name);
    int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return refused(error, "create", name);
    tl_status status = write_file(file, name, header, head, net, optimizer, error);
    if (close(file) != 0 && status == TL_OK)
        status = refused(error, "close", name);
    if (status == TL_OK && rename(name, path) != 0)
        status = refused(error, "rename to", path);
    if (status != TL_OK) {
        (void)unlink(name); /* best effort: it is never read under this name */
        return status;
    }
    return flush_folder(path, error);
}

tl_status tl_ckpt_save(const char *path, tl_ctx *ctx, const tl_net *net, const tl_optimizer *optimizer,
                       const tl_ckpt_state *state, tl_error *error) {
    char name[LONGEST_PATH];
    if (tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta has no values to save");
    if (ctx->error.status != TL_OK)
        return tl_fail(error, ctx->error.status, "%s", ctx->error.message);
    if ((size_t)snprintf(name, sizeof name, "%s.tmp", path) >= sizeof name)
        return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %d bytes", LONGEST_PATH - 5);
    tl_ckpt_state all = *state;
    all.step = tl_optimizer_steps(optimizer);
    all.seed_init = ctx->seed_init;
    all.seed_data = ctx->seed_data;
    all.seed_dropout = ctx->seed_dropout;
    all.dropout_position = ctx->random_position;
    tl_ckpt_head head;
    unsigned char *header = tl_ckpt_header_make(net, optimizer, &all, &head, error);
    if (!header)
        return error ? error->status : TL_ERR_MEMORY;
    tl_phase before = tl_phase_get(ctx);
    tl_phase_set(ctx, TL_PHASE_SAVE);
    seal(header, net, optimizer, head.header_bytes);
    tl_status status = write_under(name, path, header, &head, net, optimizer, error);
    tl_phase_set(ctx, before);
    free(header);
    return status;
}
