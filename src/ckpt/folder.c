/* ckpt/folder.c: the checkpoints of a run: which is the latest, which the best, which may go. */
#include "ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nearest.h"
#include "data/replace.h"

enum { FILE_NAME = 64 };

static tl_status refused(tl_error *error, const char *what, const char *path) {
    char reason[128], quoted[512];
    const char *why = strerror_r(errno, reason, sizeof reason);
    return tl_fail(error, TL_ERR_IO, "cannot %s %s: %s", what, tl_quotable(path, strlen(path), quoted, sizeof quoted),
                   why);
}

static char *file_name(int64_t step, char name[FILE_NAME]) {
    snprintf(name, FILE_NAME, "step-%08" PRId64 ".safetensors", step);
    return name;
}

/* The step of "step-00000500.safetensors", −1 of any other name. */
static int64_t step_of(const char *name) {
    char again[FILE_NAME];
    int64_t step = 0;
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    for (const char *at = name + 5; *at >= '0' && *at <= '9'; at++)
        if (!tl_mul_i64(step, 10, &step) || !tl_add_i64(step, *at - '0', &step))
            return -1;
    return strcmp(file_name(step, again), name) == 0 ? step : -1;
}

static tl_status join(const char *folder, const char *name, char path[TL_CKPT_PATH], tl_error *error) {
    if (snprintf(path, TL_CKPT_PATH, "%s/%s", folder, name) >= TL_CKPT_PATH - 8)
        return tl_fail(error, TL_ERR_ARGUMENT, "a path of more than %d bytes", TL_CKPT_PATH - 8);
    return TL_OK;
}

/* ---- which are there ---- */

typedef struct listing {
    int64_t *steps; /* newest first */
    int64_t count, capacity;
} listing;

static int newest_first(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return *x > *y ? -1 : *x < *y;
}

static bool add_step(listing *l, int64_t step) {
    if (l->count == l->capacity) {
        int64_t more = l->capacity ? 2 * l->capacity : 16;
        int64_t *larger = realloc(l->steps, (size_t)more * sizeof *larger);
        if (!larger)
            return false;
        l->steps = larger;
        l->capacity = more;
    }
    l->steps[l->count++] = step;
    return true;
}

/* A folder that is not there holds none. `clean`: takes away what was never finished. */
static tl_status list(const char *folder, bool clean, listing *l, tl_error *error) {
    *l = (listing){0};
    DIR *at = opendir(folder);
    if (!at)
        return errno == ENOENT ? TL_OK : refused(error, "read the folder", folder);
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(at)) != NULL;) {
        size_t length = strlen(e->d_name);
        int64_t step = step_of(e->d_name);
        if (step >= 0)
            ok = add_step(l, step);
        else if (clean && length > 4 && strncmp(e->d_name, "step-", 5) == 0 &&
                 strcmp(e->d_name + length - 4, ".tmp") == 0)
            (void)unlinkat(dirfd(at), e->d_name, 0); /* best effort: never read under this name */
    }
    closedir(at);
    if (!ok) {
        free(l->steps);
        return tl_fail(error, TL_ERR_MEMORY, "no memory for a list of checkpoints");
    }
    if (l->count > 0)
        qsort(l->steps, (size_t)l->count, sizeof *l->steps, newest_first);
    return TL_OK;
}

/* The step that a link names, −1: no such link, or it names something else. */
static int64_t linked(const char *folder, const char *link) {
    char path[TL_CKPT_PATH], target[FILE_NAME];
    if (join(folder, link, path, NULL) != TL_OK)
        return -1;
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return -1;
    target[length] = '\0';
    return step_of(target);
}

/* ---- saving ---- */

static tl_status point(const char *folder, const char *link, int64_t step, tl_error *error) {
    char path[TL_CKPT_PATH], temporary[TL_CKPT_PATH], name[FILE_NAME], hidden[FILE_NAME];
    snprintf(hidden, sizeof hidden, "%s.tmp", link);
    tl_status status = join(folder, link, path, error);
    if (status == TL_OK)
        status = join(folder, hidden, temporary, error);
    if (status != TL_OK)
        return status;
    if (unlink(temporary) != 0 && errno != ENOENT)
        return refused(error, "replace", temporary);
    if (symlink(file_name(step, name), temporary) != 0) {
        if (errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP) /* a file system that has no links */
            return TL_OK;
        return refused(error, "create", temporary);
    }
    if (rename(temporary, path) != 0) {
        status = refused(error, "rename to", path);
        (void)unlink(temporary);
    }
    return status;
}

/* Whether what `best` names is gone, unreadable, or no better than this. */
static bool is_best(const char *folder, const tl_ckpt_state *state) {
    char path[TL_CKPT_PATH], name[FILE_NAME];
    int64_t step = linked(folder, "best");
    if (!state->has_validation_loss || !(state->validation_loss == state->validation_loss))
        return false;
    if (step < 0 || join(folder, file_name(step, name), path, NULL) != TL_OK)
        return true;
    tl_ckpt *best = tl_ckpt_open(path, NULL);
    bool better = !best || !tl_ckpt_state_of(best)->has_validation_loss ||
                  !(tl_ckpt_state_of(best)->validation_loss <= state->validation_loss);
    tl_ckpt_close(best);
    return better;
}

/* Those of later steps are of a way that was not gone on with; they are overwritten when the run comes there. */
static tl_status drop_old(const char *folder, int64_t keep, int64_t step, tl_error *error) {
    listing l;
    int64_t kept = 0, best = linked(folder, "best");
    tl_status status = list(folder, true, &l, error);
    for (int64_t i = 0; status == TL_OK && i < l.count; i++) {
        char path[TL_CKPT_PATH], name[FILE_NAME];
        if (l.steps[i] > step || kept++ < keep || l.steps[i] == best)
            continue;
        status = join(folder, file_name(l.steps[i], name), path, error);
        if (status == TL_OK && unlink(path) != 0 && errno != ENOENT)
            status = refused(error, "remove", path);
    }
    free(l.steps);
    return status;
}

tl_status tl_ckpt_folder_save(const char *folder, int64_t keep, const tl_ckpt_contents *contents,
                              const tl_ckpt_state *state, tl_error *error) {
    char path[TL_CKPT_PATH], name[FILE_NAME];
    int64_t step = tl_ckpt_step(contents, state);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return refused(error, "make the folder", folder);
    tl_status status = join(folder, file_name(step, name), path, error);
    if (status == TL_OK)
        status = tl_ckpt_save(path, contents, state, error);
    if (status == TL_OK)
        status = point(folder, "latest", step, error);
    if (status == TL_OK && is_best(folder, state))
        status = point(folder, "best", step, error);
    if (status == TL_OK)
        status = tl_flush_folder(folder, error); /* before anything older goes */
    return status == TL_OK ? drop_old(folder, keep < 1 ? 1 : keep, step, error) : status;
}

/* ---- loading ---- */

static void add_note(tl_ckpt_found *found, const char *format, const char *what) {
    size_t used = strlen(found->note);
    snprintf(found->note + used, sizeof found->note - used, format, what);
}

/* Damage and files that are gone; anything else would be the same with every file. */
static bool is_damage(tl_status status) {
    return status == TL_ERR_FORMAT || status == TL_ERR_IO || status == TL_ERR_NOT_FOUND;
}

typedef tl_status try_file(const char *path, const tl_ckpt_contents *contents, tl_ckpt_state *state, tl_error *error);

/* The latest first, then the others from the newest on, until one loads. */
static tl_status first_whole(const char *folder, try_file *take, const tl_ckpt_contents *contents, tl_ckpt_state *state,
                             tl_ckpt_found *found, tl_error *error) {
    char name[FILE_NAME];
    listing l;
    int64_t latest = linked(folder, "latest");
    tl_status status = list(folder, false, &l, error);
    if (status != TL_OK)
        return status;
    found->note[0] = '\0';
    status = TL_ERR_NOT_FOUND;
    for (int64_t i = latest >= 0 ? -1 : 0; i < l.count && is_damage(status); i++) {
        tl_error why = {TL_OK, ""};
        if (i >= 0 && l.steps[i] == latest)
            continue;
        status = join(folder, file_name(i < 0 ? latest : l.steps[i], name), found->path, &why);
        if (status == TL_OK)
            status = take(found->path, contents, state, &why);
        if (is_damage(status))
            add_note(found, "%s; ", why.message);
        else if (status != TL_OK)
            tl_fail(error, status, "%s", why.message);
    }
    free(l.steps);
    if (status == TL_OK && found->note[0])
        add_note(found, "%s is whole and taken in its place", strrchr(found->path, '/') + 1);
    if (!is_damage(status))
        return status;
    if (found->note[0])
        return tl_fail(error, TL_ERR_FORMAT, "%.800s no checkpoint in the folder is whole", found->note);
    char quoted[512];
    return tl_fail(error, TL_ERR_NOT_FOUND, "there is no checkpoint in %s",
                   tl_quotable(folder, strlen(folder), quoted, sizeof quoted));
}

tl_status tl_ckpt_folder_load(const char *folder, const tl_ckpt_contents *contents, tl_ckpt_state *state,
                              tl_ckpt_found *found, tl_error *error) {
    return first_whole(folder, tl_ckpt_load, contents, state, found, error);
}

static tl_status look(const char *path, const tl_ckpt_contents *contents, tl_ckpt_state *state, tl_error *error) {
    tl_error own = {TL_OK, ""};
    tl_ckpt *c = tl_ckpt_open(path, &own);
    (void)contents;
    if (!c)
        return tl_fail(error, own.status, "%s", own.message);
    *state = *tl_ckpt_state_of(c);
    tl_ckpt_close(c);
    return TL_OK;
}

tl_status tl_ckpt_folder_find(const char *folder, tl_ckpt_found *found, tl_error *error) {
    tl_ckpt_state state;
    return first_whole(folder, look, NULL, &state, found, error);
}

tl_status tl_ckpt_folder_latest(const char *folder, char path[TL_CKPT_PATH], tl_error *error) {
    tl_ckpt_found found;
    tl_status status = tl_ckpt_folder_find(folder, &found, error);
    if (status == TL_OK)
        memcpy(path, found.path, TL_CKPT_PATH);
    return status;
}
