/* data/tokens_open.c: which files a stream of tokens is made of, and their mapping. */
#include "data/tokens.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are used as they lie in a little-endian file");

enum { INDEX_BYTES = 4 << 20, PATH_BYTES = 4096 };
#define INDEX_NAME "shards.txt"

/* ---- one file ---- */

static tl_status no_memory(tl_error *error) {
    return tl_fail(error, TL_ERR_MEMORY, "no memory for the list of token files");
}

static tl_status map_file(tl_token_shard *shard, const char *path, tl_error *error) {
    struct stat about;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not keep us waiting */
    if (file < 0 || fstat(file, &about) != 0) {
        const int reason = errno;
        if (file >= 0)
            close(file);
        return tl_fail(error, reason == ENOENT ? TL_ERR_NOT_FOUND : TL_ERR_IO, "cannot read %s: %s", path,
                       strerror(reason));
    }
    tl_status status = TL_OK;
    if (!S_ISREG(about.st_mode))
        status = tl_fail(error, TL_ERR_IO, "cannot read %s: it is no regular file", path);
    else if ((uint64_t)about.st_size > SIZE_MAX)
        status = tl_fail(error, TL_ERR_OVERFLOW, "%s is larger than the address space", path);
    if (status == TL_OK && about.st_size > 0) {
        void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
        if (map == MAP_FAILED) {
            const int reason = errno;
            status = tl_fail(error, TL_ERR_IO, "cannot map %s into memory: %s", path, strerror(reason));
        } else {
            shard->map = map;
            shard->map_bytes = (size_t)about.st_size;
            (void)madvise(map, shard->map_bytes, MADV_RANDOM); /* a hint: windows lie anywhere */
        }
    }
    shard->device = (uint64_t)about.st_dev;
    shard->inode = (uint64_t)about.st_ino;
    shard->file.bytes = (int64_t)about.st_size;
    close(file); /* the mapping outlives it */
    return status;
}

static bool grow(tl_tokens *t) {
    if (t->count < t->capacity)
        return true;
    const int more = t->capacity ? 2 * t->capacity : 8;
    tl_token_shard *shards = t->allocator.alloc(t->allocator.self, (size_t)more * sizeof *shards, 16, TL_ALLOC_HOST);
    if (!shards)
        return false;
    if (t->count)
        memcpy(shards, t->shards, (size_t)t->count * sizeof *shards);
    if (t->shards)
        t->allocator.release(t->allocator.self, t->shards, (size_t)t->capacity * sizeof *shards, TL_ALLOC_HOST);
    t->shards = shards;
    t->capacity = more;
    return true;
}

static tl_status add_file(tl_tokens *t, const char *path, const tl_tokens_options *options, tl_error *error) {
    if (t->count == TL_TOKENS_MOST_FILES)
        return tl_fail(error, TL_ERR_ARGUMENT, "more than %d files of tokens", TL_TOKENS_MOST_FILES);
    const char *name = tl_arena_text(&t->names, path, strlen(path));
    if (!name || !grow(t))
        return no_memory(error);
    tl_token_shard *shard = &t->shards[t->count];
    *shard = (tl_token_shard){.map = NULL};
    tl_status status = map_file(shard, name, error);
    if (shard->map)
        t->count++; /* from here on it is unmapped with the others */
    if (status != TL_OK)
        return status;
    const int64_t bytes = shard->file.bytes;
    const size_t head = bytes < 64 << 10 ? (size_t)bytes : (size_t)64 << 10;
    status =
        tl_tokens_parse(shard->map ? (const void *)shard->map : "", head, bytes, name, options, &shard->file, error);
    if (!shard->map)
        t->count++;
    return status;
}

/* ---- folders and patterns ---- */

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool is_shard_name(const char *name) {
    return name[0] != '.' && (tl_ends_with(name, ".bin") || tl_ends_with(name, ".npy"));
}

static tl_status join(const char *folder, const char *name, char path[PATH_BYTES], tl_error *error) {
    const size_t n = strlen(folder);
    const char *slash = n && folder[n - 1] == '/' ? "" : "/";
    if (snprintf(path, PATH_BYTES, "%s%s%s", folder, slash, name) >= PATH_BYTES)
        return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %d bytes in %s", PATH_BYTES - 1, folder);
    return TL_OK;
}

/* shards.txt: a name a line, relative to the folder; blank lines and what follows a # do not count. */
static tl_status add_index(tl_tokens *t, const char *folder, char *text, const tl_tokens_options *options,
                           tl_error *error) {
    char path[PATH_BYTES];
    tl_status status = TL_OK;
    const int before = t->count;
    while (*text && status == TL_OK) {
        const size_t length = strcspn(text, "\n");
        char *next = text + length + (text[length] == '\n');
        text[length] = '\0';
        text[strcspn(text, "#\r")] = '\0';
        text += strspn(text, " \t");
        size_t end = strlen(text);
        while (end && (text[end - 1] == ' ' || text[end - 1] == '\t'))
            text[--end] = '\0';
        for (size_t i = 0; i < end && status == TL_OK; i++)
            if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
                status = tl_fail(error, TL_ERR_FORMAT,
                                 "%s/" INDEX_NAME " is no list of names: it has control characters", folder);
        if (end && status == TL_OK) {
            if (text[0] == '/' && end < PATH_BYTES)
                memcpy(path, text, end + 1);
            else
                status = join(folder, text, path, error);
            if (status == TL_OK)
                status = add_file(t, path, options, error);
        }
        text = next;
    }
    if (status == TL_OK && t->count == before)
        status = tl_fail(error, TL_ERR_FORMAT, "%s/" INDEX_NAME " lists no files", folder);
    return status;
}

static tl_status read_index(tl_tokens *t, const char *folder, const char *path, const tl_tokens_options *options,
                            tl_error *error) {
    FILE *file = fopen(path, "rbe");
    if (!file) {
        const int reason = errno;
        return tl_fail(error, TL_ERR_IO, "cannot read %s: %s", path, strerror(reason));
    }
    char *text = t->allocator.alloc(t->allocator.self, INDEX_BYTES + 1, 16, TL_ALLOC_HOST);
    tl_status status = TL_OK;
    if (!text)
        status = no_memory(error);
    const size_t length = text ? fread(text, 1, INDEX_BYTES + 1, file) : 0;
    if (text && ferror(file))
        status = tl_fail(error, TL_ERR_IO, "cannot read %s", path);
    else if (length > INDEX_BYTES || (length && memchr(text, '\0', length)))
        status = tl_fail(error, TL_ERR_FORMAT, "%s is no list of names: %s", path,
                         length > INDEX_BYTES ? "it has more than 4 MiB" : "it has zero bytes");
    if (status == TL_OK) {
        text[length] = '\0';
        status = add_index(t, folder, text, options, error);
    }
    fclose(file);
    if (text)
        t->allocator.release(t->allocator.self, text, INDEX_BYTES + 1, TL_ALLOC_HOST);
    return status;
}

/* Names of training and of evaluation data side by side would make one stream of both. */
static tl_status check_names(char *const *names, int count, const char *folder, tl_error *error) {
    const char *train = NULL, *other = NULL;
    for (int i = 0; i < count; i++) {
        if (strstr(names[i], "train"))
            train = names[i];
        else if (strstr(names[i], "val") || strstr(names[i], "test"))
            other = names[i];
    }
    if (train && other)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "%s holds %s and %s, which are not one stream: name one of them, or a pattern '%s/*train*'",
                       folder, train, other, folder);
    return TL_OK;
}

static int count_shards(DIR *directory) {
    int n = 0;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        n += is_shard_name(entry->d_name);
    rewinddir(directory);
    return n;
}

static tl_status add_names(tl_tokens *t, DIR *directory, const char *folder, const tl_tokens_options *options,
                           tl_error *error) {
    char path[PATH_BYTES];
    int n = 0;
    const int most = count_shards(directory);
    if (most == 0)
        return tl_fail(error, TL_ERR_NOT_FOUND,
                       "%s holds no *.bin and no *.npy, and no " INDEX_NAME " that lists files", folder);
    if (most > TL_TOKENS_MOST_FILES)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s holds more than %d files of tokens", folder, TL_TOKENS_MOST_FILES);
    char **names = tl_arena_alloc(&t->names, (size_t)most * sizeof *names);
    if (!names)
        return no_memory(error);
    for (const struct dirent *entry; n < most && (entry = readdir(directory)) != NULL;)
        if (is_shard_name(entry->d_name) &&
            !(names[n++] = tl_arena_text(&t->names, entry->d_name, strlen(entry->d_name))))
            return no_memory(error);
    qsort(names, (size_t)n, sizeof *names, by_bytes);
    tl_status status = check_names(names, n, folder, error);
    for (int i = 0; i < n && status == TL_OK; i++) {
        status = join(folder, names[i], path, error);
        if (status == TL_OK)
            status = add_file(t, path, options, error);
    }
    return status;
}

static tl_status add_folder(tl_tokens *t, const char *folder, const tl_tokens_options *options, tl_error *error) {
    char path[PATH_BYTES];
    struct stat about;
    tl_status status = join(folder, INDEX_NAME, path, error);
    if (status != TL_OK)
        return status;
    if (stat(path, &about) == 0) {
        if (S_ISREG(about.st_mode))
            return read_index(t, folder, path, options, error);
        return tl_fail(error, TL_ERR_IO, "cannot read %s: it is no regular file", path);
    }
    DIR *directory = opendir(folder);
    if (!directory) {
        const int reason = errno;
        return tl_fail(error, TL_ERR_IO, "cannot read the folder %s: %s", folder, strerror(reason));
    }
    status = add_names(t, directory, folder, options, error);
    closedir(directory);
    return status;
}

static tl_status add_pattern(tl_tokens *t, const char *pattern, const tl_tokens_options *options, tl_error *error) {
    glob_t found;
    tl_status status = TL_OK;
    const int code = glob(pattern, GLOB_NOSORT, NULL, &found); /* its own order is the locale's */
    if (code != 0) {
        globfree(&found);
        return code == GLOB_NOSPACE ? no_memory(error)
                                    : tl_fail(error, TL_ERR_NOT_FOUND, "no file matches %s", pattern);
    }
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
    for (size_t i = 0; i < found.gl_pathc && status == TL_OK; i++)
        status = add_file(t, found.gl_pathv[i], options, error);
    globfree(&found);
    return status;
}

/* ---- the stream ---- */

/* Raw files whose ids leave doubt follow the others of the stream. */
static tl_status infer_widths(tl_tokens *t, tl_error *error) {
    tl_error doubt = {TL_OK, ""};
    int width = 0;
    for (int i = 0; i < t->count; i++) {
        tl_token_file *f = &t->shards[i].file;
        tl_error one = {TL_OK, ""};
        if (f->form == TL_TOKENS_RAW && !f->width && tl_tokens_infer(t->shards[i].map, f, &one) != TL_OK)
            tl_fail(&doubt, one.status, "%s", one.message);
        if (!width && f->form == TL_TOKENS_RAW && f->bytes > 0)
            width = f->width;
    }
    if (doubt.status != TL_OK && !width)
        return tl_fail(error, doubt.status, "%s", doubt.message);
    for (int i = 0; i < t->count; i++) {
        tl_token_file *f = &t->shards[i].file;
        if (f->form != TL_TOKENS_RAW || (f->width && f->bytes > 0))
            continue;
        f->width = width ? width : f->width;
        f->count = f->bytes / f->width;
        if (f->bytes > 0)
            snprintf(f->evidence, sizeof f->evidence, "as the other files of the stream");
    }
    return TL_OK;
}

static tl_status check_stream(tl_tokens *t, tl_error *error) {
    t->total = 0;
    for (int i = 0; i < t->count; i++) {
        tl_token_shard *shard = &t->shards[i];
        const tl_token_file *first = &t->shards[0].file, *f = &shard->file;
        if (f->form != first->form || f->width != first->width || f->is_signed != first->is_signed)
            return tl_fail(error, TL_ERR_FORMAT,
                           "%s is %s of %s, and %s, before it in the stream, is %s of %s: one stream has one form",
                           f->path, tl_token_form_name(f->form), tl_token_file_dtype(f), first->path,
                           tl_token_form_name(first->form), tl_token_file_dtype(first));
        for (int j = 0; j < i; j++)
            if (t->shards[j].inode == shard->inode && t->shards[j].device == shard->device)
                return tl_fail(error, TL_ERR_ARGUMENT, "%s is named twice%s%s", f->path,
                               strcmp(f->path, t->shards[j].file.path) ? ", also as " : "",
                               strcmp(f->path, t->shards[j].file.path) ? t->shards[j].file.path : "");
        shard->file.first = t->total;
        if (!tl_add_i64(t->total, f->count, &t->total))
            return tl_fail(error, TL_ERR_OVERFLOW, "more than 2^63 tokens");
    }
    return TL_OK;
}

tl_tokens *tl_tokens_open(const char *const *paths, int count, const tl_tokens_options *options,
                          const tl_allocator *allocator, tl_error *error) {
    const tl_allocator *from = allocator ? allocator : tl_allocator_default();
    tl_tokens *t = from->alloc(from->self, sizeof *t, 16, TL_ALLOC_HOST);
    if (!t) {
        no_memory(error);
        return NULL;
    }
    *t = (tl_tokens){.allocator = *from};
    tl_arena_open(&t->names, &t->allocator);
    tl_status status = count > 0 ? TL_OK : tl_fail(error, TL_ERR_ARGUMENT, "no file of tokens is named");
    for (int i = 0; i < count && status == TL_OK; i++) {
        struct stat about;
        const bool there = stat(paths[i], &about) == 0;
        if (there && S_ISDIR(about.st_mode))
            status = add_folder(t, paths[i], options, error);
        else if (!there && strpbrk(paths[i], "*?["))
            status = add_pattern(t, paths[i], options, error);
        else
            status = add_file(t, paths[i], options, error);
    }
    if (status == TL_OK)
        status = infer_widths(t, error);
    if (status == TL_OK)
        status = check_stream(t, error);
    if (status == TL_OK)
        return t;
    tl_tokens_close(t);
    return NULL;
}

void tl_tokens_close(tl_tokens *t) {
    if (!t)
        return;
    for (int i = 0; i < t->count; i++)
        if (t->shards[i].map)
            munmap((void *)(uintptr_t)t->shards[i].map, t->shards[i].map_bytes);
    const tl_allocator from = t->allocator;
    if (t->shards)
        from.release(from.self, t->shards, (size_t)t->capacity * sizeof *t->shards, TL_ALLOC_HOST);
    tl_arena_close(&t->names);
    from.release(from.self, t, sizeof *t, TL_ALLOC_HOST);
}

int64_t tl_tokens_count(const tl_tokens *t) { return t->total; }

int tl_tokens_files(const tl_tokens *t) { return t->count; }

const tl_token_file *tl_tokens_file(const tl_tokens *t, int index) {
    return index >= 0 && index < t->count ? &t->shards[index].file : NULL;
}
