/* data/replace.c: a file that is replaced whole or not at all. */
#include "data/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tl_status refused(tl_error *error, const char *what, const char *path) {
    int reason = errno;
    return tl_fail(error, TL_ERR_IO, "cannot %s %s: %s", what, path, strerror(reason));
}

/* A rename takes the place of whatever stands there: of a device, a pipe or a link to one it would make a plain file. */
static tl_status check_place(const char *path, tl_error *error) {
    struct stat about, link;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        return tl_fail(error, TL_ERR_IO, "cannot write %s: it is %s; the name of a file, old or new, would work", path,
                       S_ISDIR(about.st_mode) ? "a folder" : "no regular file");
    if (lstat(path, &link) == 0 && S_ISLNK(link.st_mode))
        return tl_fail(error, TL_ERR_IO,
                       "cannot write %s: it is a symbolic link, which would be replaced; the name of a "
                       "file, old or new, would work",
                       path);
    return TL_OK;
}

tl_status tl_replace_begin(tl_replace *r, const char *path, tl_error *error) {
    r->path = path;
    r->file = -1;
    if (check_place(path, error) != TL_OK)
        return error ? error->status : TL_ERR_IO;
    if ((size_t)snprintf(r->name, sizeof r->name, "%s.tmp", path) >= sizeof r->name)
        return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %zu bytes", sizeof r->name - 5);
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) /* renaming would put a file in the place of /dev/null */
        return tl_fail(error, TL_ERR_IO, "cannot write %s: it is no regular file", path);
    if (unlink(r->name) != 0 && errno != ENOENT) /* left by a run that was killed */
        return refused(error, "replace", r->name);
    r->file = open(r->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return r->file < 0 ? refused(error, "create", r->name) : TL_OK;
}

tl_status tl_replace_write(tl_replace *r, const void *data, uint64_t bytes, tl_error *error) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = write(r->file, at, bytes < 1 << 24 ? (size_t)bytes : (size_t)1 << 24);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return refused(error, "write", r->name);
        at += n;
        bytes -= (uint64_t)n;
    }
    return TL_OK;
}

tl_status tl_replace_patch(tl_replace *r, const void *data, size_t bytes, uint64_t offset, tl_error *error) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = pwrite(r->file, at, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return refused(error, "write", r->name);
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return TL_OK;
}

/* The folder's own entry: without this a power cut can undo the rename. */
tl_status tl_flush_folder(const char *folder, tl_error *error) {
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return refused(error, "open the folder", folder);
    tl_status status = TL_OK;
    if (fsync(file) != 0 && errno != EINVAL) /* EINVAL: a file system whose folders cannot be flushed */
        status = refused(error, "flush the folder", folder);
    close(file);
    return status;
}

static tl_status flush_folder_of(const char *path, tl_error *error) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else
        snprintf(folder, sizeof folder, ".");
    return tl_flush_folder(folder, error);
}

tl_status tl_replace_end(tl_replace *r, tl_status status, tl_error *error) {
    if (r->file < 0)
        return status;
    if (status == TL_OK && fsync(r->file) != 0)
        status = refused(error, "write", r->name);
    if (close(r->file) != 0 && status == TL_OK)
        status = refused(error, "close", r->name);
    r->file = -1;
    if (status == TL_OK && rename(r->name, r->path) != 0)
        status = refused(error, "rename to", r->path);
    if (status != TL_OK) {
        (void)unlink(r->name); /* best effort: it is never read under this name */
        return status;
    }
    return flush_folder_of(r->path, error);
}
