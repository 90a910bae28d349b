/* hw/machine_cache.c: what was measured, kept in a file. Never trusted: a file that is not whole, or of another machine or
 * build, is not used.
 *
 *   {"schema":"tally/machine/1", "version":"0.1.0", "build":"onednn"|"plain", "cpu", "kernels", "threads", "measured_at", "disturbed",
 *    "peak_flop_per_s":{"fp32","bf16","fp64"}, "bandwidth":[{"level","bytes","bytes_per_s"}],
 *    "products":[{"dtype","m","n","k","flop_per_s"}]}
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/machine_file.h"
#include "hw/machine_system.h"
#include "kernel/table.h"
#include "tally/json.h"
#include "tally/machine.h"

#ifdef TL_HAVE_DNNL
#define BUILD "onednn"
#else
#define BUILD "plain"
#endif

#define MOST_BYTES (1 << 20) /* a full file is some 6 KB */

tl_status tl_machine_cache_path(char *path, size_t size, tl_error *error) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    /* The XDG Base Directory Specification has relative paths ignored. */
    if (cache && cache[0] == '/')
        n = snprintf(path, size, "%s/tally/machine.json", cache);
    else if (home && home[0] == '/')
        n = snprintf(path, size, "%s/.cache/tally/machine.json", home);
    else
        return tl_fail(error, TL_ERR_IO,
                       "there is no place for what was measured of this machine: HOME is %s and XDG_CACHE_HOME %s; set "
                       "one to a folder's absolute path",
                       home ? "no absolute path" : "not set", cache ? "neither" : "not set");
    if (n < 0 || (size_t)n >= size)
        return tl_fail(error, TL_ERR_IO, "the path of the cache, under %.80s…, is longer than %zu bytes",
                       cache && cache[0] == '/' ? cache : home, size);
    return TL_OK;
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* The whole file into `text` (MOST_BYTES + 1). A pipe or a device is refused, not waited for. */
static tl_status read_file(const char *path, char *text, size_t *length, tl_error *error) {
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 && (errno == ENOENT || errno == ENOTDIR))
        return tl_fail(error, TL_ERR_NOT_FOUND, "this machine is not measured yet (no %s); `tally machine' does", path);
    if (file < 0)
        return tl_fail(error, TL_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MOST_BYTES) {
        bool regular = S_ISREG(info.st_mode);
        close(file);
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s: %s: no measurement of ours; remove it, then `tally machine --refresh'", path,
                       regular ? "over 1 MiB" : "not a plain file");
    }
    size_t used = 0;
    ssize_t got = 1;
    while (used <= MOST_BYTES && got != 0) {
        got = read(file, text + used, MOST_BYTES + 1 - used);
        if (got < 0 && errno != EINTR)
            break;
        used += got > 0 ? (size_t)got : 0;
    }
    int reason = errno;
    close(file);
    if (got < 0)
        return tl_fail(error, TL_ERR_IO, "%s: cannot be read: %s", path, strerror(reason));
    *length = used;
    return TL_OK;
}

static tl_status check_same(const tl_machine_file *file, int threads, const char *path, tl_error *error) {
    char cpu[sizeof file->machine.cpu];
    const tl_machine *machine = &file->machine;
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, error);
    if (!kernels)
        return error ? error->status : TL_ERR_NOT_FOUND;
    tl_cpu_name("", cpu, sizeof cpu);
    if (strcmp(machine->cpu, cpu) != 0)
        return tl_fail(error, TL_ERR_NOT_FOUND, "%s is of another processor: \"%s\", and this is \"%s\"", path,
                       machine->cpu, cpu);
    if (machine->threads != threads)
        return tl_fail(error, TL_ERR_NOT_FOUND, "%s was measured with %d threads, and %d are asked for", path,
                       machine->threads, threads);
    if (strcmp(machine->kernels, kernels->name) != 0)
        return tl_fail(error, TL_ERR_NOT_FOUND, "%s was measured with the %s kernels, and these are %s", path,
                       machine->kernels, kernels->name);
    if (strcmp(file->version, TL_VERSION) != 0 || strcmp(file->build, BUILD) != 0)
        return tl_fail(error, TL_ERR_NOT_FOUND, "%s was measured by tally %s (%s), and this is %s (%s)", path,
                       file->version, file->build, TL_VERSION, BUILD);
    return TL_OK;
}

tl_status tl_machine_load(int threads, tl_machine *machine, tl_error *error) {
    char path[PATH_MAX];
    tl_machine_file file;
    size_t length = 0;
    tl_error place = {TL_OK, ""};
    if (tl_machine_cache_path(path, sizeof path, &place) != TL_OK)
        return tl_fail(error, TL_ERR_NOT_FOUND, "%s", place.message);
    const tl_allocator *from = tl_allocator_default();
    char *text = from->alloc(from->self, MOST_BYTES + 1, 64, TL_ALLOC_HOST);
    if (!text)
        return tl_fail(error, TL_ERR_MEMORY, "no memory to read %s (1 MiB)", path);
    tl_status status = read_file(path, text, &length, error);
    if (status == TL_OK)
        status = tl_machine_file_parse(text, length, path, &file, error);
    from->release(from->self, text, MOST_BYTES + 1, TL_ALLOC_HOST);
    if (status == TL_OK)
        status = check_same(&file, threads, path, error);
    if (status == TL_OK)
        status = tl_machine_memory(&file.machine.memory_bytes, &file.machine.available_bytes, error);
    if (status == TL_OK)
        *machine = file.machine;
    return status;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

static void write_machine(tl_json *json, const tl_machine *machine) {
    tl_json_object(json);
    tl_json_put_string(json, "schema", TL_MACHINE_SCHEMA);
    tl_json_put_string(json, "version", TL_VERSION);
    tl_json_put_string(json, "build", BUILD);
    tl_json_put_string(json, "cpu", machine->cpu);
    tl_json_put_string(json, "kernels", machine->kernels);
    tl_json_put_integer(json, "threads", machine->threads);
    tl_json_put_integer(json, "measured_at", machine->measured_at);
    tl_json_put_real(json, "disturbed", machine->disturbed);
    tl_json_key(json, "peak_flop_per_s");
    tl_json_object(json);
    tl_json_put_real(json, "fp32", machine->peak_fp32);
    tl_json_put_real(json, "bf16", machine->peak_bf16);
    tl_json_put_real(json, "fp64", machine->peak_fp64);
    tl_json_end(json);
    tl_json_key(json, "bandwidth");
    tl_json_array(json);
    for (int i = 0; i < machine->n_levels; i++) {
        tl_json_object(json);
        tl_json_put_string(json, "level", machine->level[i].name);
        tl_json_put_integer(json, "bytes", machine->level[i].bytes);
        tl_json_put_real(json, "bytes_per_s", machine->level[i].bytes_per_s);
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_key(json, "products");
    tl_json_array(json);
    for (int i = 0; i < machine->n_shapes; i++) {
        const tl_machine_shape *shape = &machine->shape[i];
        tl_json_object(json);
        tl_json_put_string(json, "dtype", tl_dtype_name(shape->dtype));
        tl_json_put_integer(json, "m", shape->m);
        tl_json_put_integer(json, "n", shape->n);
        tl_json_put_integer(json, "k", shape->k);
        tl_json_put_real(json, "flop_per_s", shape->flop_per_s);
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_end(json);
}

/* The folders that lead to `path`, made where they are missing; `path` is put back as it was. */
static tl_status make_folders(char *path, tl_error *error) {
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        int failed = mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
        struct stat info;
        if (failed && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            failed = 0; /* a read-only system may refuse before it looks */
        if (failed)
            tl_fail(error, TL_ERR_IO, "%s: cannot be made: %s", path, strerror(failed));
        *at = '/';
        if (failed)
            return TL_ERR_IO;
    }
    return TL_OK;
}

static bool write_text(int file, const char *text, size_t length) {
    while (length) {
        ssize_t put = write(file, text, length);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        text += put;
        length -= (size_t)put;
    }
    return fsync(file) == 0;
}

/* Written beside and moved into place: a reader, or a power cut, sees the old file or the new one. */
static tl_status replace_file(char *path, const char *text, size_t length, tl_error *error) {
    char beside[PATH_MAX + 8];
    tl_status status = make_folders(path, error);
    if (status != TL_OK)
        return status;
    snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    int file = mkostemp(beside, O_CLOEXEC);
    if (file < 0)
        return tl_fail(error, TL_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    bool done = write_text(file, text, length);
    int reason = errno;
    if (close(file) != 0 && done) {
        done = false;
        reason = errno;
    }
    if (done && rename(beside, path) != 0) {
        done = false;
        reason = errno;
    }
    if (!done) {
        unlink(beside);
        return tl_fail(error, TL_ERR_IO, "%s: cannot be written: %s", path, strerror(reason));
    }
    char *cut = strrchr(path, '/');
    *cut = '\0';
    int folder = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    *cut = '/';
    if (folder >= 0) { /* some file systems cannot; the file itself is safe */
        (void)!fsync(folder);
        close(folder);
    }
    return TL_OK;
}

tl_status tl_machine_save(const tl_machine *machine, tl_error *error) {
    char path[PATH_MAX];
    size_t length = 0;
    if (machine->n_levels < 0 || machine->n_levels > 4 || machine->n_shapes < 0 ||
        machine->n_shapes > TL_MACHINE_SHAPES)
        return tl_fail(error, TL_ERR_ARGUMENT, "a machine of %d levels and %d shapes; at most 4 and %d",
                       machine->n_levels, machine->n_shapes, TL_MACHINE_SHAPES);
    tl_status status = tl_machine_cache_path(path, sizeof path, error);
    if (status != TL_OK)
        return status;
    tl_json *json = tl_json_new(tl_allocator_default(), 2);
    if (json)
        write_machine(json, machine);
    const char *text = json ? tl_json_text(json, &length) : NULL;
    status =
        text ? replace_file(path, text, length, error) : tl_fail(error, TL_ERR_MEMORY, "no memory to write %s", path);
    tl_json_free(json);
    return status;
}
