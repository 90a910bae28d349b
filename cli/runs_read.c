/* cli/runs_read.c: what a run left behind. Nothing here trusts a file to be whole: a run may be writing it now, or have been
 * killed doing so. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "runs.h"
#include "tally/ckpt.h"
#include "tally/run.h"

enum { DEEPEST = 16, RUNNING_SECONDS = 120 };

const char *tl_run_state_name(tl_run_state state) {
    static const char *const names[] = {"finished", "running?", "interrupted", "damaged"};
    return names[state];
}

static char *path_of(const tl_run *run, const char *name, char path[TL_RUN_PATH + 64]) {
    snprintf(path, TL_RUN_PATH + 64, "%s/%s", run->path, name);
    return path;
}

/* Is it there? Its time counts for the run's. */
static bool look(tl_run *run, const char *name, int64_t *changed) {
    char path[TL_RUN_PATH + 64];
    struct stat st;
    if (stat(path_of(run, name, path), &st) != 0)
        return false;
    if (changed)
        *changed = (int64_t)st.st_mtime;
    if ((int64_t)st.st_mtime > run->changed)
        run->changed = (int64_t)st.st_mtime;
    return true;
}

static void damage(tl_run *run, const char *format, ...) TL_PRINTF(2, 3);
static void damage(tl_run *run, const char *format, ...) {
    va_list args;
    if (run->damage[0])
        return;
    va_start(args, format);
    vsnprintf(run->damage, sizeof run->damage, format, args);
    va_end(args);
}

static void copy_text(const tl_run_file *file, const char *key, char *to, size_t size) {
    tl_error ignored = {TL_OK, ""};
    if (tl_run_file_has(file, key) && tl_run_file_typed(file, key, to, size, &ignored) != TL_OK)
        to[0] = '\0';
}

static int64_t whole(const tl_run_file *file, const char *key, int64_t otherwise) {
    tl_error ignored = {TL_OK, ""};
    int64_t value = otherwise;
    if (tl_run_file_has(file, key) && tl_run_file_integer(file, key, 0, INT64_MAX, &value, &ignored) != TL_OK)
        value = otherwise;
    return value;
}

static void read_description(tl_run *run) {
    char path[TL_RUN_PATH + 64], steps[64] = "";
    tl_error error = {TL_OK, ""};
    tl_run_file *file = tl_run_file_read(path_of(run, "run.json", path), &error);
    if (!file) {
        damage(run, "%s", error.message);
        return;
    }
    copy_text(file, "model", run->model, sizeof run->model);
    copy_text(file, "task", run->task, sizeof run->task);
    copy_text(file, "options.steps", steps, sizeof steps);
    if (steps[0] == '\0' || tl_parse_size(steps, &run->steps, &error) != TL_OK)
        run->steps = -1;
    tl_run_file_free(file);
}

static void read_plan(tl_run *run) {
    char path[TL_RUN_PATH + 64];
    tl_error error = {TL_OK, ""};
    if (!look(run, "plan.json", NULL))
        return;
    tl_run_file *file = tl_run_file_read(path_of(run, "plan.json", path), &error);
    if (!file) {
        damage(run, "%s", error.message);
        return;
    }
    run->parameters = whole(file, "model.parameters", 0);
    run->planned_peak = whole(file, "memory.peak_bytes", 0);
    tl_run_file_free(file);
}

/* The number behind "key": in a line of our own making; NaN where there is none. */
static double field(const char *line, const char *key) {
    char quoted[64], *end;
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    if (!at)
        return NAN;
    at += strlen(quoted);
    double value = strtod(at, &end);
    return end == at ? NAN : value;
}

static void add_point(tl_run *run, int64_t *capacity, int64_t step, double loss) {
    if (run->n_points == *capacity) {
        int64_t wanted = *capacity ? 2 * *capacity : 256;
        tl_run_point *grown = realloc(run->points, (size_t)wanted * sizeof *grown);
        if (!grown) {
            damage(run, "no memory for the lines of metrics.jsonl");
            return;
        }
        run->points = grown;
        *capacity = wanted;
    }
    run->points[run->n_points++] = (tl_run_point){step, loss};
}

static void take_line(tl_run *run, const char *line, bool points, int64_t *capacity) {
    double step = field(line, "step"), loss = field(line, "loss"), val = field(line, "val_loss");
    double seen = isnan(val) ? loss : val;
    if (isnan(step) || step < 0 || step > 9e15)
        return;
    run->step = (int64_t)step;
    if (!isnan(loss))
        run->loss = loss;
    if (!isnan(val))
        run->val_loss = val;
    if (!isnan(val) && !run->best_is_val) { /* from here on it is of val losses */
        run->best_is_val = true;
        run->best = NAN;
    }
    if ((!isnan(val) || !run->best_is_val) && !(seen >= run->best))
        run->best = seen;
    run->tokens_per_second = field(line, "tokens_per_second");
    run->mfu = field(line, "mfu");
    double planned = field(line, "planned_peak_bytes"), measured = field(line, "measured_peak_bytes");
    if (planned > 0 && planned < 9e15)
        run->planned_peak = (int64_t)planned;
    if (measured > 0 && measured < 9e15)
        run->measured_peak = (int64_t)measured;
    if (points && !isnan(loss))
        add_point(run, capacity, run->step, loss);
}

/* A last line without its end is being written, or was when the run was killed: it is left out. */
static void read_metrics(tl_run *run, bool points) {
    char path[TL_RUN_PATH + 64], line[TL_RUN_LINE];
    struct stat about;
    int64_t bad = 0, number = 0, capacity = 0;
    path_of(run, "metrics.jsonl", path);
    const bool other = stat(path, &about) == 0 && !S_ISREG(about.st_mode); /* a pipe would keep us waiting for ever */
    FILE *file = other ? NULL : fopen(path, "r");
    if (!file) {
        if (other)
            damage(run, "metrics.jsonl is no regular file");
        else if (errno != ENOENT)
            damage(run, "cannot read metrics.jsonl: %s", strerror(errno));
        return;
    }
    while (fgets(line, sizeof line, file)) {
        const size_t length = strlen(line);
        number++;
        if (length + 1 == sizeof line && line[length - 1] != '\n') {
            bad = bad ? bad : number; /* no line of ours is as long, and what follows is none either */
            break;
        }
        if (length == 0 || line[length - 1] != '\n') {
            if (!feof(file) && !bad)
                bad = number; /* a zero byte in it */
            break;
        }
        if (line[0] == '{' && length > 2 && line[length - 2] == '}')
            take_line(run, line, points, &capacity);
        else if (!bad)
            bad = number;
    }
    if (ferror(file))
        damage(run, "cannot read metrics.jsonl: %s", strerror(errno));
    fclose(file);
    if (bad)
        damage(run, "line %lld of metrics.jsonl is no line of a run", (long long)bad);
}

/* The newest checkpoint's header: its step may be ahead of the log. Where it is cut or gone, an older one that is whole makes
 * the run no less damaged. *saved: that step, unchanged where there is no checkpoint. */
static void read_checkpoint(tl_run *run, int64_t *saved) {
    char folder[TL_RUN_PATH + 64];
    tl_ckpt_found found;
    tl_error error = {TL_OK, ""};
    if (!look(run, "checkpoints", NULL))
        return;
    tl_status status = tl_ckpt_folder_find(path_of(run, "checkpoints", folder), &found, &error);
    if (status == TL_ERR_NOT_FOUND)
        return;
    tl_ckpt *c = status == TL_OK ? tl_ckpt_open(found.path, &error) : NULL;
    if (!c) {
        damage(run, "%s", error.message);
        return;
    }
    if (found.note[0])
        damage(run, "%s", found.note);
    const tl_ckpt_state *state = tl_ckpt_state_of(c);
    *saved = state->step;
    if (state->step > run->step)
        run->step = state->step;
    if (state->total_steps > 0)
        run->steps = state->total_steps;
    if (state->has_validation_loss && isnan(run->val_loss))
        run->val_loss = state->validation_loss;
    tl_ckpt_close(c);
}

/* The validation loss at the end, and of the best checkpoint, where the run has them. */
static void read_validation(tl_run *run) {
    char path[TL_RUN_PATH + 64];
    tl_error ignored = {TL_OK, ""};
    if (look(run, "evaluation.json", NULL)) {
        tl_run_file *file = tl_run_file_read(path_of(run, "evaluation.json", path), &ignored);
        if (file && tl_run_file_has(file, "loss"))
            (void)!tl_run_file_real(file, "loss", 0, 1e300, &run->val_loss, &ignored);
        tl_run_file_free(file);
    }
    tl_ckpt *best = tl_ckpt_open(path_of(run, "checkpoints/best", path), NULL);
    if (best && tl_ckpt_state_of(best)->has_validation_loss) {
        run->best = tl_ckpt_state_of(best)->validation_loss;
        run->best_is_val = true;
    }
    tl_ckpt_close(best);
    if (!run->best_is_val && !isnan(run->val_loss)) {
        run->best = run->val_loss;
        run->best_is_val = true;
    }
    if (run->best_is_val && run->val_loss < run->best)
        run->best = run->val_loss;
}

void tl_run_read(tl_run *run, const char *path, bool points) {
    int64_t logged = 0, saved = INT64_MAX;
    *run = (tl_run){.step = -1, .steps = -1, .loss = NAN, .val_loss = NAN, .best = NAN, .mfu = NAN};
    run->tokens_per_second = NAN;
    snprintf(run->path, sizeof run->path, "%s", path);
    look(run, "run.json", NULL);
    read_description(run);
    read_plan(run);
    read_metrics(run, points);
    read_checkpoint(run, &saved);
    read_validation(run);
    bool log = look(run, "metrics.jsonl", &logged);
    if (!look(run, "config.json", NULL))
        damage(run, "config.json, its model, is missing");
    /* the last step is saved: a log that is ahead of the newest checkpoint leaves steps for --resume */
    bool whole_run = run->steps > 0 && run->step >= run->steps && saved >= run->steps;
    run->state = run->damage[0]                                          ? TL_RUN_DAMAGED
                 : whole_run                                             ? TL_RUN_FINISHED
                 : log && (int64_t)time(NULL) - logged < RUNNING_SECONDS ? TL_RUN_RUNNING
                                                                         : TL_RUN_INTERRUPTED;
}

void tl_run_release(tl_run *run) {
    free(run->points);
    run->points = NULL;
}

/* ---- all below a folder ---- */

static tl_run *next_run(tl_runs *runs) {
    if (runs->count == runs->capacity) {
        int64_t wanted = runs->capacity ? 2 * runs->capacity : 64;
        tl_run *grown = realloc(runs->list, (size_t)wanted * sizeof *grown);
        if (!grown) {
            runs->out_of_memory = true;
            return NULL;
        }
        runs->list = grown;
        runs->capacity = wanted;
    }
    return &runs->list[runs->count];
}

static void unread(tl_runs *runs, const char *path, const char *why) {
    if (runs->n_unread++ < 5)
        tl_notes_add(&runs->unread, "%.150s: %s", path, why);
}

static void add_run(tl_runs *runs, const char *path, const char *name) {
    tl_run *run = next_run(runs);
    if (!run)
        return;
    tl_run_read(run, path, false);
    snprintf(run->name, sizeof run->name, "%s", name[0] ? name : path);
    runs->count++;
}

/* `name`: what of the path lies below the folder asked for. A run's own folder holds no runs. */
static void search(tl_runs *runs, const char *path, size_t below, int depth) {
    char inner[TL_RUN_PATH];
    struct stat st;
    struct dirent *entry;
    if ((size_t)snprintf(inner, sizeof inner, "%s/run.json", path) >= sizeof inner || depth > DEEPEST) {
        unread(runs, path, depth > DEEPEST ? "deeper than 16 folders" : "its path is too long");
        return;
    }
    if (lstat(inner, &st) == 0) {
        add_run(runs, path, path + (strlen(path) > below ? below : strlen(path)));
        return;
    }
    DIR *folder = opendir(path);
    if (!folder) {
        unread(runs, path, strerror(errno));
        return;
    }
    while (!runs->out_of_memory && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) >= sizeof inner) {
            unread(runs, path, "a path below it is too long");
            continue;
        }
        if (lstat(inner, &st) != 0)
            continue; /* gone meanwhile */
        if (S_ISLNK(st.st_mode))
            runs->links += stat(inner, &st) == 0 && S_ISDIR(st.st_mode);
        else if (S_ISDIR(st.st_mode))
            search(runs, inner, below, depth + 1);
    }
    closedir(folder);
}

/* Newest first; of equals by name. */
static int newest_first(const void *a, const void *b) {
    const tl_run *x = a, *y = b;
    if (x->changed != y->changed)
        return x->changed > y->changed ? -1 : 1;
    return strcmp(x->name, y->name);
}

void tl_runs_find(tl_runs *runs, const char *folder) {
    char path[TL_RUN_PATH];
    size_t length = strlen(folder);
    *runs = (tl_runs){0};
    while (length > 1 && folder[length - 1] == '/')
        length--;
    snprintf(path, sizeof path, "%.*s", (int)length, folder);
    search(runs, path, length == 1 && folder[0] == '/' ? 1 : length + 1, 0);
    if (runs->count)
        qsort(runs->list, (size_t)runs->count, sizeof *runs->list, newest_first);
}

void tl_runs_free(tl_runs *runs) {
    for (int64_t i = 0; i < runs->count; i++)
        tl_run_release(&runs->list[i]);
    free(runs->list);
    *runs = (tl_runs){0};
}
