/* cli/train_files.c: the folder of a run. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runs.h"
#include "tally/config.h"
#include "groups.h"
#include "train.h"

char *tl_train_path(const tl_train *t, const char *name, char path[TL_PATH]) {
    snprintf(path, TL_PATH, "%.*s/%s", TL_PATH - 64, t->folder, name);
    return path;
}

tl_status tl_train_folder(const tl_train *t, size_t *made, tl_error *error) {
    char path[TL_PATH];
    struct stat st;
    *made = 0;
    snprintf(path, sizeof path, "%s", t->folder);
    for (char *at = path + 1;; at++) {
        char here = *at;
        if (here != '/' && here != '\0')
            continue;
        *at = '\0';
        bool is_new = mkdir(path, 0777) == 0;
        if (!is_new && errno != EEXIST)
            return tl_fail(error, TL_ERR_IO, "cannot make the folder %s: %s", path, strerror(errno));
        if (is_new && *made == 0)
            *made = (size_t)(at - path);
        *at = here;
        if (here == '\0')
            break;
    }
    if (stat(t->folder, &st) != 0 || !S_ISDIR(st.st_mode))
        return tl_fail(error, TL_ERR_IO, "%s is no folder", t->folder);
    return TL_OK;
}

void tl_train_folder_undo(const tl_train *t, size_t made) {
    char path[TL_PATH];
    snprintf(path, sizeof path, "%s", t->folder);
    for (size_t n = strlen(path); made > 0 && n >= made; n--) {
        const char here = path[n];
        if (here != '/' && here != '\0')
            continue;
        path[n] = '\0';
        if (rmdir(path) != 0 && errno != ENOENT) /* something is in it */
            return;
    }
}

static tl_status failed(const char *what, const char *path, tl_error *error) {
    return tl_fail(error, TL_ERR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

tl_status tl_train_write(const tl_train *t, const char *name, const tl_json *json, tl_error *error) {
    char path[TL_PATH];
    return tl_cli_write_json(tl_train_path(t, name, path), json, error);
}

static void put_machine(tl_json *json, const tl_machine *m) {
    tl_json_key(json, "machine");
    tl_json_object(json);
    tl_json_put_string(json, "cpu", m->cpu);
    tl_json_put_string(json, "kernels", m->kernels);
    tl_json_put_integer(json, "threads", m->threads);
    tl_json_put_real(json, "peak_fp32_flop_per_s", m->peak_fp32);
    tl_json_put_real(json, "peak_bf16_flop_per_s", m->peak_bf16);
    tl_json_put_integer(json, "memory_bytes", m->memory_bytes);
    tl_json_end(json);
}

static tl_json *run_json(const tl_train *t, const tl_plan *plan) {
    tl_json *json = tl_json_new(NULL, 2);
    if (!json)
        return NULL;
    tl_json_object(json);
    tl_json_put_string(json, "schema", "tally/1");
    tl_json_put_string(json, "version", TL_VERSION);
    tl_json_put_string(json, "task", t->task->name);
    tl_json_put_string(json, "model", t->model.name);
    tl_json_put_integer(json, "seed", (int64_t)t->seed);
    tl_json_put_integer(json, "seed_init", (int64_t)t->seed_init);
    tl_json_put_integer(json, "seed_data", (int64_t)t->seed_data);
    tl_json_put_integer(json, "seed_dropout", (int64_t)t->seed_dropout);
    if (t->tokenizer_hash[0])
        tl_json_put_string(json, "tokenizer_hash", t->tokenizer_hash);
    tl_json_key(json, "options"); /* as texts, the way they are typed; "" was not given */
    tl_json_object(json);
    for (int s = 0; s < TL_SET_COUNT; s++)
        tl_json_put_string(json, tl_setting_name((tl_setting)s), t->texts[s]);
    tl_json_end(json);
    tl_groups_json(json, &t->plan.optimizer, plan);
    put_machine(json, &t->machine);
    tl_json_end(json);
    return json;
}

static void put_categories(tl_json *json, const int64_t by_category[TL_CATEGORY_COUNT]) {
    tl_json_key(json, "by_category");
    tl_json_object(json);
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        tl_json_put_integer(json, tl_category_name((tl_category)c), by_category[c]);
    tl_json_end(json);
}

static void put_known(tl_json *json, const char *key, double value) {
    tl_json_key(json, key);
    if (value > 0)
        tl_json_real(json, value);
    else
        tl_json_null(json);
}

void tl_train_put_plan(tl_json *json, const tl_train *t, const tl_plan *p) {
    tl_json_key(json, "model");
    tl_json_object(json);
    tl_json_put_integer(json, "parameters", p->parameters.unique);
    tl_json_put_integer(json, "parameters_non_embedding", p->parameters.non_embedding);
    tl_json_put_integer(json, "parameters_trainable", p->trainable);
    tl_json_end(json);
    tl_groups_json(json, &t->plan.optimizer, p);
    tl_json_key(json, "flops");
    tl_json_object(json);
    tl_json_put_unsigned(json, "forward_per_token", p->forward_per_token);
    tl_json_put_unsigned(json, "per_token", p->per_token);
    tl_json_put_unsigned(json, "per_step", p->per_step);
    tl_json_put_unsigned(json, "hardware_per_step", p->hardware_per_step);
    tl_json_put_string(json, "attention", "full");
    tl_json_end(json);
    tl_json_key(json, "memory");
    tl_json_object(json);
    tl_json_put_integer(json, "peak_bytes", p->peak.bytes);
    tl_json_put_string(json, "peak_phase", tl_phase_name(p->peak.phase));
    tl_json_put_integer(json, "arena_bytes", p->arena_bytes);
    tl_json_put_integer(json, "evaluation_bytes", t->examine_bytes);
    tl_json_put_integer(json, "allocations", p->allocations);
    put_categories(json, p->peak.by_category);
    tl_json_key(json, "moments");
    tl_json_object(json);
    tl_json_put_integer(json, "init", p->init.bytes);
    tl_json_put_integer(json, "load", t->plan.weights ? p->weights.bytes : p->load.bytes);
    tl_json_put_integer(json, "step", p->peak.bytes);
    tl_json_put_integer(json, "save", p->save.bytes);
    tl_json_end(json);
    tl_json_end(json);
    tl_json_key(json, "time");
    tl_json_object(json);
    put_known(json, "step_seconds", p->step_seconds);
    put_known(json, "tokens_per_second", p->tokens_per_second);
    tl_json_end(json);
}

static tl_json *plan_json(const tl_train *t, const tl_plan *p) {
    tl_json *json = tl_json_new(NULL, 2);
    if (!json)
        return NULL;
    tl_json_object(json);
    tl_json_put_string(json, "schema", "tally/1");
    tl_json_put_string(json, "verb", "plan");
    tl_train_put_plan(json, t, p);
    tl_json_end(json);
    return json;
}

static tl_status write_and_free(const tl_train *t, const char *name, tl_json *json, tl_error *error) {
    tl_status status = tl_train_write(t, name, json, error);
    tl_json_free(json);
    return status;
}

tl_status tl_train_write_start(const tl_train *t, const tl_plan *plan, tl_error *error) {
    tl_status status = TL_OK;
    if (!t->resume)
        status = write_and_free(t, "config.json", tl_config_json(&t->model, TL_DTYPE_COUNT), error);
    if (status == TL_OK)
        status = write_and_free(t, "plan.json", plan_json(t, plan), error);
    if (status == TL_OK && !t->resume) /* last: a folder with a run.json is a run */
        status = write_and_free(t, "run.json", run_json(t, plan), error);
    return status;
}

/* Where the first line about a later step starts; also cuts off a last line that was not finished. */
static long long keep_until(FILE *file, int64_t step) {
    long long kept = 0;
    char line[TL_RUN_LINE];
    while (fgets(line, sizeof line, file)) {
        static const char start[] = "{\"step\":";
        const char *at = line;
        const size_t length = strlen(line);
        if (length == 0 || line[length - 1] != '\n' || strncmp(at, start, sizeof start - 1) != 0 ||
            strtoll(at + sizeof start - 1, NULL, 10) > step)
            break;
        kept += (long long)length;
    }
    return kept;
}

FILE *tl_train_metrics(const tl_train *t, int64_t step, tl_error *error) {
    char path[TL_PATH];
    struct stat about;
    tl_train_path(t, "metrics.jsonl", path);
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) {
        tl_fail(error, TL_ERR_IO, "cannot open %s: it is no regular file; without it the run goes on", path);
        return NULL;
    }
    FILE *file = fopen(path, t->resume ? "a+" : "w");
    if (!file) {
        failed("open", path, error);
        return NULL;
    }
    if (t->resume) {
        rewind(file);
        if (ftruncate(fileno(file), (off_t)keep_until(file, step)) != 0) {
            failed("shorten", path, error);
            fclose(file);
            return NULL;
        }
        (void)fseek(file, 0, SEEK_END);
    }
    return file;
}
