/* ckpt/weights_source.c: which files a model's weights lie in. The index decides: files that it does not name are strays. */
#include "ckpt/weights.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nearest.h"

void tl_weights_note(tl_weights_report *report, const char *format, ...) {
    va_list args;
    size_t used = strlen(report->note), room = sizeof report->note - used;
    int n = snprintf(report->note + used, room, "%s", used ? "; " : "");
    if (n < 0 || (size_t)n >= room)
        return;
    va_start(args, format);
    vsnprintf(report->note + used + n, room - (size_t)n, format, args);
    va_end(args);
}

static tl_status no_memory(const tl_weights_source *s, tl_error *error) {
    return tl_fail(error, TL_ERR_MEMORY, "%s: no memory for its table of tensors", s->name);
}

/* ---- one file ---- */

static tl_status open_single(tl_weights_source *s, const char *path, tl_error *error) {
    tl_error own = {TL_OK, ""};
    s->files = calloc(1, sizeof *s->files);
    if (!s->files)
        return no_memory(s, error);
    s->files[0] = tl_safetensors_open(path, &own);
    s->count = 1;
    return s->files[0] ? TL_OK : tl_fail(error, own.status, "%s", own.message);
}

/* ---- several ---- */

static int by_tensor(const void *a, const void *b) {
    const tl_header_pair *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static int64_t find_name(const tl_weights_source *s, const char *name) {
    for (int64_t i = s->count - 1; i >= 0; i--) /* an index names a file many times in a row */
        if (strcmp(s->names[i], name) == 0)
            return i;
    return -1;
}

static tl_status read_index(tl_weights_source *s, const char *path, tl_error *error) {
    tl_status status = tl_weight_map_read(path, &s->map, error);
    if (status != TL_OK)
        return status;
    size_t n = (size_t)s->map.count + 1;
    s->names = calloc(n, sizeof *s->names);
    s->files = calloc(n, sizeof *s->files);
    s->file_of = calloc(n, sizeof *s->file_of);
    s->sorted = calloc(n, sizeof *s->sorted);
    if (!s->names || !s->files || !s->file_of || !s->sorted)
        return no_memory(s, error);
    for (int64_t i = 0; i < s->map.count; i++) {
        int64_t file = find_name(s, s->map.pairs[i].value);
        if (file < 0)
            s->names[file = s->count++] = s->map.pairs[i].value;
        s->file_of[i] = (int)file;
        s->sorted[i] = &s->map.pairs[i];
    }
    qsort(s->sorted, (size_t)s->map.count, sizeof *s->sorted, by_tensor);
    return TL_OK;
}

static tl_status open_shards(tl_weights_source *s, const char *folder, tl_error *error) {
    char path[TL_WEIGHTS_PATH], quoted[128];
    for (int64_t i = 0; i < s->count; i++) {
        tl_error own = {TL_OK, ""};
        if (snprintf(path, sizeof path, "%s/%s", folder, s->names[i]) >= (int)sizeof path)
            return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %d bytes", TL_WEIGHTS_PATH);
        s->files[i] = tl_safetensors_open(path, &own);
        if (!s->files[i] && own.status == TL_ERR_NOT_FOUND)
            return tl_fail(error, TL_ERR_NOT_FOUND, "%s names %s, one of %lld files, which is not there", s->name,
                           tl_quotable(s->names[i], strlen(s->names[i]), quoted, sizeof quoted), (long long)s->count);
        if (!s->files[i])
            return tl_fail(error, own.status, "%s", own.message);
    }
    for (int64_t i = 0; i < s->map.count; i++) {
        const tl_header_pair *pair = &s->map.pairs[i];
        char file[128];
        if (!tl_safetensors_find(s->files[s->file_of[i]], pair->key))
            return tl_fail(error, TL_ERR_FORMAT, "%s says that %s lies in %s, which does not hold it", s->name,
                           tl_quotable(pair->key, strlen(pair->key), quoted, sizeof quoted),
                           tl_quotable(pair->value, strlen(pair->value), file, sizeof file));
    }
    return TL_OK;
}

/* Files that look as if they belonged to the model, and what shards hold beyond the index: named, not read. */
static void note_strays(const tl_weights_source *s, const char *folder, tl_weights_report *report) {
    DIR *at = opendir(folder);
    char first[128] = "", quoted[128];
    for (struct dirent *e; at && (e = readdir(at)) != NULL;) {
        size_t length = strlen(e->d_name);
        if (length < 12 || strcmp(e->d_name + length - 12, ".safetensors") != 0 || find_name(s, e->d_name) >= 0)
            continue;
        if (report->strays++ == 0)
            tl_quotable(e->d_name, length, first, sizeof first);
    }
    if (at)
        closedir(at);
    if (report->strays)
        tl_weights_note(report, "not read, since the index does not name %s: %s%s", report->strays > 1 ? "them" : "it",
                        first, report->strays > 1 ? " and others" : "");
    for (int64_t f = 0; f < s->count; f++)
        for (int64_t i = 0; i < tl_safetensors_count(s->files[f]); i++) {
            const char *name = tl_safetensors_at(s->files[f], i)->name;
            const tl_header_pair key = {name, NULL}, *at_key = &key;
            const tl_header_pair *const *found =
                bsearch(&at_key, s->sorted, (size_t)s->map.count, sizeof *s->sorted, by_tensor);
            if (found && s->file_of[*found - s->map.pairs] == f)
                continue;
            if (report->ignored++ == 0)
                tl_weights_note(report, "a shard holds %s, which the index %s: ignored",
                                tl_quotable(name, strlen(name), quoted, sizeof quoted),
                                found ? "says lies in another" : "does not name");
        }
}

static tl_status open_index(tl_weights_source *s, const char *path, tl_weights_report *report, tl_error *error) {
    char folder[TL_WEIGHTS_PATH];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (slash == path)
        snprintf(folder, sizeof folder, "/");
    tl_status status = read_index(s, path, error);
    if (status == TL_OK)
        status = open_shards(s, folder, error);
    if (status == TL_OK)
        note_strays(s, folder, report);
    return status;
}

/* ---- what the path is ---- */

static bool is_json(const char *path) {
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

static tl_status open_any(tl_weights_source *s, const char *path, tl_weights_report *report, tl_error *error) {
    struct stat st;
    char inside[TL_WEIGHTS_PATH];
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return is_json(path) ? open_index(s, path, report, error) : open_single(s, path, error);
    static const char *const files[] = {TL_WEIGHTS_INDEX, TL_WEIGHTS_FILE};
    for (int i = 0; i < 2; i++) {
        if (snprintf(inside, sizeof inside, "%s/%s", path, files[i]) >= (int)sizeof inside)
            return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %d bytes", TL_WEIGHTS_PATH);
        if (stat(inside, &st) != 0)
            continue;
        tl_quotable(inside, strlen(inside), s->name, sizeof s->name);
        return i == 0 ? open_index(s, inside, report, error) : open_single(s, inside, error);
    }
    snprintf(inside, sizeof inside, "%.4000s/pytorch_model.bin", path);
    return tl_fail(error, TL_ERR_NOT_FOUND, "%s holds neither " TL_WEIGHTS_INDEX " nor " TL_WEIGHTS_FILE "%s", s->name,
                   stat(inside, &st) == 0 ? "; its pytorch_model.bin is a pickle, which is code and is not read" : "");
}

tl_status tl_weights_source_open(tl_weights_source *s, const char *path, tl_weights_report *report, tl_error *error) {
    memset(s, 0, sizeof *s);
    tl_quotable(path, strlen(path), s->name, sizeof s->name);
    tl_status status = open_any(s, path, report, error);
    if (status != TL_OK)
        tl_weights_source_close(s);
    return status;
}

void tl_weights_source_close(tl_weights_source *s) {
    for (int64_t i = 0; i < s->count; i++)
        tl_safetensors_close(s->files[i]);
    free(s->names);
    free(s->files);
    free(s->file_of);
    free(s->sorted);
    tl_weight_map_free(&s->map);
    memset(s, 0, sizeof *s);
}

int64_t tl_weights_source_index(const tl_weights_source *s, const char *name) {
    if (!s->sorted) {
        const tl_safetensors_tensor *t = tl_safetensors_find(s->files[0], name);
        return t ? t - tl_safetensors_at(s->files[0], 0) : -1;
    }
    const tl_header_pair key = {name, NULL}, *at = &key;
    const tl_header_pair *const *found = bsearch(&at, s->sorted, (size_t)s->map.count, sizeof *s->sorted, by_tensor);
    return found ? *found - s->map.pairs : -1;
}

const tl_safetensors_tensor *tl_weights_source_find(const tl_weights_source *s, const char *name,
                                                    const tl_safetensors **file) {
    int64_t index = tl_weights_source_index(s, name);
    if (index < 0)
        return NULL;
    *file = s->files[s->sorted ? s->file_of[index] : 0];
    return tl_safetensors_find(*file, name);
}

int64_t tl_weights_source_tensors(const tl_weights_source *s) {
    return s->sorted ? s->map.count : tl_safetensors_count(s->files[0]);
}

const char *tl_weights_source_name(const tl_weights_source *s, int64_t index) {
    return s->sorted ? s->map.pairs[index].key : tl_safetensors_at(s->files[0], index)->name;
}

/* ---- to look at ---- */

struct tl_weights_files {
    tl_weights_source source;
    tl_weights_report report;
};

static void check_total(tl_weights_files *files) {
    const tl_weights_source *s = &files->source;
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->map.count; i++)
        bytes += tl_safetensors_find(s->files[s->file_of[i]], s->map.pairs[i].key)->bytes;
    if (s->sorted && s->map.total_bytes >= 0 && s->map.total_bytes != bytes)
        tl_weights_note(&files->report, "the index says total_size %lld, its tensors hold %lld bytes",
                        (long long)s->map.total_bytes, (long long)bytes);
}

tl_weights_files *tl_weights_open(const char *path, tl_error *error) {
    tl_weights_files *files = calloc(1, sizeof *files);
    if (!files) {
        tl_fail(error, TL_ERR_MEMORY, "no memory to open a model's files");
        return NULL;
    }
    if (tl_weights_source_open(&files->source, path, &files->report, error) == TL_OK) {
        check_total(files);
        return files;
    }
    free(files);
    return NULL;
}

void tl_weights_close(tl_weights_files *files) {
    if (files)
        tl_weights_source_close(&files->source);
    free(files);
}

int64_t tl_weights_file_count(const tl_weights_files *files) { return files->source.count; }

const tl_safetensors *tl_weights_file(const tl_weights_files *files, int64_t index) {
    return index >= 0 && index < files->source.count ? files->source.files[index] : NULL;
}

const char *tl_weights_file_name(const tl_weights_files *files, int64_t index) {
    return files->source.names && index >= 0 && index < files->source.count ? files->source.names[index] : NULL;
}

bool tl_weights_file_counts(const tl_weights_files *files, int64_t index, const char *name) {
    const tl_weights_source *s = &files->source;
    int64_t pair = tl_weights_source_index(s, name);
    return pair >= 0 && (!s->sorted || s->file_of[pair] == index);
}

const char *tl_weights_files_note(const tl_weights_files *files) { return files->report.note; }
