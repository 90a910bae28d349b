/* cli/json_file.c: a JSON document as a file, whole or not at all. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "verb.h"

static tl_status failed(const char *what, const char *path, tl_error *error) {
    return tl_fail(error, TL_ERR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

tl_status tl_cli_write_json(const char *path, const tl_json *json, tl_error *error) {
    char temporary[4096 + 8];
    size_t length = 0;
    const char *text = json ? tl_json_text(json, &length) : NULL;
    if (!text)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to write %s", path);
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp", path) >= sizeof temporary)
        return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %zu bytes", sizeof temporary - 8);
    FILE *file = fopen(temporary, "w");
    if (!file)
        return failed("create", temporary, error);
    bool ok = fwrite(text, 1, length, file) == length && fputc('\n', file) != EOF && fflush(file) == 0 &&
              fsync(fileno(file)) == 0;
    int reason = errno;
    ok = fclose(file) == 0 && ok;
    const bool renamed = ok && rename(temporary, path) == 0;
    if (renamed)
        return TL_OK;
    if (ok)
        reason = errno;
    (void)unlink(temporary);
    errno = reason;
    return failed(ok ? "rename to" : "write", path, error);
}
