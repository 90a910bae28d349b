/* cli/runs.c: tally runs, the runs below a folder, or two of them beside each other.
 *
 * --json: {"schema","verb","runs":[{"name","path","model","task","parameters","step","steps","loss","val_loss","best",
 *   "tokens_per_second","mfu","planned_peak_bytes","measured_peak_bytes","state","damage","changed" (seconds since 1970)}]};
 * what is not known is null. Of two: {"schema","verb","a","b","settings":[{"name","a","b"}],
 *   "steps":[{"step","loss_a","loss_b"}]} with every step that both logged.
 */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "runs.h"

static const tl_column columns[] = {
    {"name", "run", false, false, true},
    {"path", NULL, false, false, false},
    {"model", "model", false, true, true},
    {"task", NULL, false, false, false},
    {"parameters", "params", true, true, false},
    {"step", "steps", true, false, false},
    {"steps", NULL, true, false, false},
    {"loss", "loss", true, false, false},
    {"val_loss", "val", true, false, false},
    {"best", "best", true, true, false},
    {"tokens_per_second", "tok/s", true, false, false},
    {"mfu", "MFU", true, false, false},
    {"planned_peak_bytes", "planned", true, true, false},
    {"measured_peak_bytes", "peak", true, false, false},
    {"state", "state", false, false, false},
    {"damage", NULL, false, false, false},
    {"changed", NULL, true, false, false},
};
#define COLUMNS ((int)(sizeof columns / sizeof columns[0]))

static void put_real(tl_grid *grid, double value, const char *format) {
    char text[48];
    if (isnan(value)) {
        tl_grid_null(grid);
        return;
    }
    snprintf(text, sizeof text, format, value);
    tl_grid_real(grid, value, text);
}

static void put_bytes(const tl_cli *cli, tl_grid *grid, int64_t bytes) {
    char text[TL_TEXT];
    if (bytes > 0)
        tl_grid_integer(grid, bytes, tl_text_bytes((double)bytes, cli->units, text));
    else
        tl_grid_null(grid);
}

static void put_known(tl_grid *grid, int64_t value, bool known, const char *human) {
    if (known)
        tl_grid_integer(grid, value, human);
    else
        tl_grid_null(grid);
}

static void put_run(const tl_cli *cli, tl_grid *grid, const tl_run *r) {
    char text[TL_TEXT + 24];
    tl_grid_string(grid, r->name, NULL);
    tl_grid_string(grid, r->path, NULL);
    tl_grid_string(grid, r->model[0] ? r->model : NULL, r->model[0] ? NULL : "-");
    tl_grid_string(grid, r->task[0] ? r->task : NULL, NULL);
    put_known(grid, r->parameters, r->parameters > 0, tl_text_count((double)r->parameters, text));
    if (r->steps > 0)
        snprintf(text, sizeof text, "%lld/%lld", (long long)(r->step > 0 ? r->step : 0), (long long)r->steps);
    else
        snprintf(text, sizeof text, "%lld", (long long)r->step);
    put_known(grid, r->step > 0 ? r->step : 0, r->step >= 0 || r->steps > 0, text);
    put_known(grid, r->steps, r->steps > 0, NULL);
    put_real(grid, r->loss, "%.4f");
    put_real(grid, r->val_loss, "%.4f");
    put_real(grid, r->best, "%.4f");
    if (isnan(r->tokens_per_second))
        tl_grid_null(grid);
    else
        tl_grid_real(grid, r->tokens_per_second, tl_text_count(r->tokens_per_second, text));
    put_real(grid, r->mfu, "%.3f");
    put_bytes(cli, grid, r->planned_peak);
    put_bytes(cli, grid, r->measured_peak);
    tl_grid_string(grid, tl_run_state_name(r->state), NULL);
    tl_grid_string(grid, r->damage[0] ? r->damage : NULL, NULL);
    tl_grid_integer(grid, r->changed, NULL);
}

static void out_rest(const tl_cli *cli, const tl_runs *runs) {
    int shown = 0, more = 0;
    for (int64_t i = 0; i < runs->count; i++) {
        const tl_run *r = &runs->list[i];
        if (!r->damage[0])
            continue;
        if (shown++ < 8)
            tl_note(cli, "%s is damaged: %s", r->name, r->damage);
        else
            more++;
    }
    if (more)
        tl_note(cli, "and %d more damaged; --json names them all", more);
    for (int i = 0; i < runs->unread.n; i++)
        tl_note(cli, "not read: %s", runs->unread.text[i]);
    if (runs->n_unread > runs->unread.n)
        tl_note(cli, "and %lld more not read", (long long)(runs->n_unread - runs->unread.n));
    if (runs->links)
        tl_note(cli, "%lld link%s to folders not followed", (long long)runs->links, runs->links == 1 ? "" : "s");
}

static int list(tl_cli *cli, const char *folder) {
    tl_runs runs;
    struct stat st;
    if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) {
        tl_say(cli, "%s is no folder: one with runs below it would work", folder);
        return TL_EXIT_USAGE;
    }
    if (strlen(folder) >= TL_RUN_PATH - 64)
        return tl_usage(cli, "a path of more than %d bytes", TL_RUN_PATH - 64);
    tl_runs_find(&runs, folder);
    tl_grid *grid = tl_grid_new(columns, COLUMNS);
    for (int64_t i = 0; i < runs.count; i++)
        put_run(cli, grid, &runs.list[i]);
    int status = TL_EXIT_OK;
    if (runs.count == 0 && cli->format == TL_FORMAT_TABLE)
        tl_note(cli, "no runs below %s: tally train makes one", folder);
    else
        status = tl_grid_print(cli, grid, "runs");
    tl_grid_free(grid);
    out_rest(cli, &runs);
    bool failed = runs.out_of_memory;
    tl_runs_free(&runs);
    if (failed)
        tl_say(cli, "no memory for all runs: some are missing above");
    return failed ? TL_EXIT_FAILED : status;
}

static int run(tl_cli *cli) {
    struct stat st;
    if (cli->n_arguments == 2)
        return tl_runs_compare(cli, cli->arguments[0], cli->arguments[1]);
    if (cli->n_arguments == 1)
        return list(cli, cli->arguments[0]);
    return list(cli, stat("runs", &st) == 0 && S_ISDIR(st.st_mode) ? "runs" : ".");
}

const tl_verb tl_verb_runs = {
    .name = "runs",
    .summary = "the runs below a folder, or two of them compared",
    .group = TL_GROUP_LOOKUP,
    .arguments = "[FOLDER | RUN RUN]",
    .words = NULL,
    .details = "A run is a folder with a run.json. Without FOLDER: runs, or here. Newest first.\n"
               "best is the lowest val loss, or loss where there is none. A state:\n"
               "  finished     all steps are done\n"
               "  running?     steps are left and metrics.jsonl changed in the last two minutes\n"
               "  interrupted  steps are left; tally train --resume goes on\n"
               "  damaged      a file is missing or broken; it is named below the table\n"
               "Of two runs: the settings that differ, and the losses at steps both logged.\n\n"
               "  tally runs\n"
               "  tally runs runs/a runs/b",
    .takes = 0,
    .does = {0},
    .own = NULL,
    .min_arguments = 0,
    .max_arguments = 2,
    .run = run,
};
