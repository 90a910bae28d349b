/* cli/runs_compare.c: two runs: the settings that differ, and their losses at the same steps. */
#include <math.h>
#include <string.h>

#include "runs.h"
#include "tally/run.h"

enum { ROWS = 12, VALUE = 256 };

typedef struct pair {
    tl_cli *cli;
    tl_run run[2];
    tl_run_file *file[2];
    tl_grid *settings;
    int n_settings;
} pair;

static int open_run(pair *p, int which, const char *path) {
    char name[TL_RUN_PATH + 64];
    tl_error error = {TL_OK, ""};
    if (strlen(path) >= TL_RUN_PATH - 64)
        return tl_usage(p->cli, "a path of more than %d bytes", TL_RUN_PATH - 64);
    snprintf(name, sizeof name, "%s/run.json", path);
    p->file[which] = tl_run_file_read(name, &error);
    if (!p->file[which])
        return tl_failed(p->cli, &error);
    tl_run_read(&p->run[which], path, true);
    if (p->run[which].damage[0])
        tl_note(p->cli, "%s is damaged: %s", path, p->run[which].damage);
    return TL_EXIT_OK;
}

static const char *value_of(const tl_run_file *file, const char *key, char text[VALUE]) {
    tl_error ignored = {TL_OK, ""};
    if (!tl_run_file_has(file, key) || tl_run_file_typed(file, key, text, VALUE, &ignored) != TL_OK || !text[0])
        return NULL;
    return text;
}

static void add_setting(pair *p, const char *name, const char *key) {
    char a[VALUE], b[VALUE];
    const char *left = value_of(p->file[0], key, a), *right = value_of(p->file[1], key, b);
    if ((!left && !right) || (left && right && strcmp(left, right) == 0))
        return;
    tl_grid_string(p->settings, name, NULL);
    tl_grid_string(p->settings, left, left ? NULL : "-");
    tl_grid_string(p->settings, right, right ? NULL : "-");
    p->n_settings++;
}

/* All options of either; those that the first has not, behind the others. */
static void collect_settings(pair *p) {
    static const tl_column columns[] = {
        {"name", "setting", false, false, false}, {"a", "a", false, false, true}, {"b", "b", false, false, true}};
    static const char *const whole[] = {"task",        "model",           "seed",           "version",
                                        "machine.cpu", "machine.kernels", "machine.threads"};
    p->settings = tl_grid_new(columns, 3);
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        add_setting(p, whole[i], whole[i]);
    for (int which = 0; which < 2; which++) {
        const char *key;
        for (int64_t i = 0; (key = tl_run_file_key(p->file[which], "options", i)) != NULL; i++) {
            char path[160];
            snprintf(path, sizeof path, "options.%.140s", key);
            bool again = strcmp(key, "model") == 0 || strcmp(key, "seed") == 0;
            if (!again && !(which == 1 && tl_run_file_has(p->file[0], path)))
                add_setting(p, key, path);
        }
    }
}

/* The next step that both have; false: none is left. */
static bool next_common(const pair *p, int64_t at[2]) {
    const tl_run *a = &p->run[0], *b = &p->run[1];
    while (at[0] < a->n_points && at[1] < b->n_points) {
        int64_t x = a->points[at[0]].step, y = b->points[at[1]].step;
        if (x == y)
            return true;
        at[x > y]++;
    }
    return false;
}

/* All common steps, or for people a dozen of them, spread evenly, the last among them. */
static tl_grid *collect_steps(const pair *p, int64_t *common) {
    static const tl_column columns[] = {{"step", "step", true, false, false},
                                        {"loss_a", "loss a", true, false, false},
                                        {"loss_b", "loss b", true, false, false},
                                        {"difference", "b - a", true, false, false}};
    tl_grid *grid = tl_grid_new(columns, 4);
    int64_t at[2] = {0, 0}, n = 0;
    for (; next_common(p, at); at[0]++, at[1]++)
        n++;
    *common = n;
    bool all = p->cli->format != TL_FORMAT_TABLE || n <= ROWS;
    at[0] = at[1] = 0;
    for (int64_t i = 0, row = 0; next_common(p, at); i++, at[0]++, at[1]++) {
        if (!all && i != row * (n - 1) / (ROWS - 1))
            continue;
        row++;
        char text[48];
        double x = p->run[0].points[at[0]].loss, y = p->run[1].points[at[1]].loss;
        tl_grid_integer(grid, p->run[0].points[at[0]].step, NULL);
        snprintf(text, sizeof text, "%.4f", x);
        tl_grid_real(grid, x, text);
        snprintf(text, sizeof text, "%.4f", y);
        tl_grid_real(grid, y, text);
        snprintf(text, sizeof text, "%+.4f", y - x);
        tl_grid_real(grid, y - x, text);
    }
    return grid;
}

static int report_json(pair *p, const tl_grid *steps, int64_t common) {
    tl_json *json = tl_cli_json_open(p->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "a", p->run[0].path);
    tl_json_put_string(json, "b", p->run[1].path);
    tl_json_key(json, "settings");
    tl_json_array(json);
    for (int i = 0; i < p->n_settings; i++) {
        tl_json_object(json);
        tl_grid_json_row(p->settings, i, json);
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_key(json, "steps");
    tl_json_array(json);
    for (int64_t i = 0; i < common; i++) {
        tl_json_object(json);
        tl_grid_json_row(steps, (int)i, json);
        tl_json_end(json);
    }
    tl_json_end(json);
    return tl_cli_json_close(p->cli, json);
}

static int report(pair *p) {
    int64_t common = 0;
    tl_grid *steps = collect_steps(p, &common);
    int status = TL_EXIT_OK;
    if (p->cli->format == TL_FORMAT_JSON) {
        status = report_json(p, steps, common);
    } else if (p->cli->format != TL_FORMAT_TABLE) {
        status = tl_grid_print(p->cli, steps, "steps"); /* the settings are in run.json; one table a file */
    } else {
        const int a = (int)strlen(p->run[0].path), b = (int)strlen(p->run[1].path);
        for (int i = 0; i < 2; i++)
            tl_out(p->cli, "%s  %-*s   %s, step %lld\n", i ? "b" : "a", a > b ? a : b, p->run[i].path,
                   tl_run_state_name(p->run[i].state), (long long)(p->run[i].step > 0 ? p->run[i].step : 0));
        tl_out(p->cli, "\n");
        if (p->n_settings)
            status = tl_grid_print(p->cli, p->settings, "settings");
        else
            tl_out(p->cli, "all settings are equal\n");
        tl_out(p->cli, "\n");
        if (common && status == TL_EXIT_OK)
            status = tl_grid_print(p->cli, steps, "steps");
        else if (status == TL_EXIT_OK)
            tl_out(p->cli, "no step is in both logs\n");
        if (common > ROWS)
            tl_out(p->cli, "%d of %lld common steps; --format csv has them all\n", ROWS, (long long)common);
    }
    tl_grid_free(steps);
    return status;
}

int tl_runs_compare(tl_cli *cli, const char *a, const char *b) {
    pair p = {.cli = cli};
    int status = open_run(&p, 0, a);
    if (status == TL_EXIT_OK)
        status = open_run(&p, 1, b);
    if (status == TL_EXIT_OK) {
        collect_settings(&p);
        status = report(&p);
        tl_grid_free(p.settings);
    }
    for (int i = 0; i < 2; i++) {
        tl_run_file_free(p.file[i]);
        tl_run_release(&p.run[i]);
    }
    return status;
}
