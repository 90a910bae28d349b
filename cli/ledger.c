/* cli/ledger.c: tally ledger, the account of a run: planned beside measured. */
#include <string.h>
#include <unistd.h>

#include "tally/run.h"
#include "verb.h"

enum { OWN_BY };

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* The keys of ledger.json beside by_category, moments and step_seconds. */
static const char *const plain[] = {"parameters",      "steps_measured",    "steps_that_differ",
                                    "unplanned_bytes", "unaccounted_bytes", "unaccounted_flops"};
static const char *const pairs[] = {"peak_bytes", "flops_per_step", "allocations"};
static const char *const texts[] = {"model", "peak_phase", "peak_module", "peak_op", "peak_line"};

static const struct argp_option own_options[] = {
    {"by", TL_OWN(OWN_BY), "WHAT", 0, "The account by category, module, op, line or phase", 0},
    {0},
};

typedef struct ledger {
    tl_cli *cli;
    const char *folder;
    tl_run_file *file;
    tl_error error;
} ledger;

static int64_t whole(ledger *l, const char *path) {
    int64_t value = 0;
    if (l->error.status == TL_OK)
        (void)!tl_run_file_integer(l->file, path, INT64_MIN, INT64_MAX, &value, &l->error);
    return value;
}

static double real(ledger *l, const char *path) {
    double value = 0;
    if (l->error.status == TL_OK && tl_run_file_has(l->file, path))
        (void)!tl_run_file_real(l->file, path, 0, 1e300, &value, &l->error);
    return value;
}

static const char *text(ledger *l, const char *path) {
    const char *value = l->error.status == TL_OK ? tl_run_file_text(l->file, path, &l->error) : NULL;
    return value ? value : "";
}

typedef struct pair {
    int64_t planned, measured;
} pair;

static pair whole_pair(ledger *l, const char *path) {
    char name[160];
    pair p;
    snprintf(name, sizeof name, "%.128s.planned", path);
    p.planned = whole(l, name);
    snprintf(name, sizeof name, "%.128s.measured", path);
    p.measured = whole(l, name);
    return p;
}

static void grouped(int64_t value, char buffer[TL_TEXT + 2]) {
    buffer[0] = '-';
    tl_text_grouped(value < 0 ? (tl_u128)0 - (tl_u128)(__int128)value : (tl_u128)value, buffer + (value < 0));
}

static void out_pair(const ledger *l, const char *label, pair p, const char *unit) {
    char planned[TL_TEXT + 2], measured[TL_TEXT + 2];
    grouped(p.planned, planned);
    grouped(p.measured, measured);
    tl_out(l->cli, " %-14s %17s %17s %-2s %s\n", label, planned, measured, unit,
           p.planned == p.measured ? "equal" : "DIFFERENT");
}

static void out_seconds(ledger *l) {
    char planned[TL_TEXT] = "not known", measured[TL_TEXT], apart[32] = "";
    double p = real(l, "step_seconds.planned"), m = real(l, "step_seconds.measured");
    if (p > 0) {
        tl_text_duration(p, planned);
        snprintf(apart, sizeof apart, "%+.0f %%", 100 * (m - p) / p);
    }
    tl_out(l->cli, " %-14s %17s %17s    %s\n", "step time", planned, tl_text_duration(m, measured), apart);
}

static const char *const moments[] = {"init", "load", "save"};
enum { MOMENTS = sizeof moments / sizeof moments[0] };

/* Of the moments beside the steps; false: this run did not have it, or its ledger is of before they were measured. */
static bool has_moment(ledger *l, int i, char name[32]) {
    snprintf(name, 32, "moments.%s", moments[i]);
    return tl_run_file_has(l->file, name);
}

/* Equal in every step that was measured, and in the moments beside them? */
static bool agrees(ledger *l) {
    char name[32];
    for (int i = 0; i < MOMENTS; i++)
        if (has_moment(l, i, name)) {
            pair moment = whole_pair(l, name);
            if (moment.planned != moment.measured)
                return false;
        }
    pair peak = whole_pair(l, "peak_bytes"), flops = whole_pair(l, "flops_per_step");
    pair allocations = whole_pair(l, "allocations");
    return peak.planned == peak.measured && flops.planned == flops.measured &&
           allocations.planned == allocations.measured && whole(l, "steps_that_differ") == 0;
}

/* Reads all that out_whole says, so that of a ledger with a wrong value no line is out before it is known. */
static bool is_readable(ledger *l) {
    const char *category;
    char name[160];
    for (size_t i = 0; i < COUNT(texts); i++)
        (void)text(l, texts[i]);
    for (size_t i = 0; i < COUNT(plain); i++)
        (void)whole(l, plain[i]);
    for (size_t i = 0; i < COUNT(pairs); i++)
        (void)whole_pair(l, pairs[i]);
    for (int64_t i = 0; l->error.status == TL_OK && (category = tl_run_file_key(l->file, "by_category", i)); i++) {
        snprintf(name, sizeof name, "by_category.%.100s", category);
        (void)whole_pair(l, name);
    }
    for (int i = 0; i < MOMENTS; i++)
        if (has_moment(l, i, name))
            (void)whole_pair(l, name);
    (void)real(l, "step_seconds.planned");
    (void)real(l, "step_seconds.measured");
    return l->error.status == TL_OK;
}

static int out_whole(ledger *l) {
    if (!is_readable(l))
        return tl_failed(l->cli, &l->error);
    const char *category;
    char name[160], count[TL_TEXT];
    int64_t steps = whole(l, "steps_measured"), differ = whole(l, "steps_that_differ");
    tl_out(l->cli, "%s   %s, %s parameters, %lld steps measured\n", l->folder, text(l, "model"),
           tl_text_count((double)whole(l, "parameters"), count), (long long)steps);
    tl_out(l->cli, " %-14s %17s %17s\n", "", "planned", "measured");
    out_pair(l, "peak", whole_pair(l, "peak_bytes"), "B");
    for (int64_t i = 0; (category = tl_run_file_key(l->file, "by_category", i)) != NULL; i++) {
        char label[40];
        snprintf(name, sizeof name, "by_category.%.100s", category);
        snprintf(label, sizeof label, "  %.30s", category);
        out_pair(l, label, whole_pair(l, name), "B");
    }
    for (int i = 0; i < MOMENTS; i++)
        if (has_moment(l, i, name))
            out_pair(l, moments[i], whole_pair(l, name), "B");
    out_pair(l, "matmul FLOPs", whole_pair(l, "flops_per_step"), "");
    out_pair(l, "allocations", whole_pair(l, "allocations"), "");
    out_seconds(l);
    char bytes[TL_TEXT + 2], flops[TL_TEXT + 2];
    grouped(whole(l, "unaccounted_bytes"), bytes);
    grouped(whole(l, "unaccounted_flops"), flops);
    tl_out(l->cli, " %-14s %17s %17s B  and %s FLOPs, not booked\n", "unaccounted", "", bytes, flops);
    grouped(whole(l, "unplanned_bytes"), bytes);
    tl_out(l->cli, " %-14s %17s %17s B  outside the arena\n", "unplanned", "", bytes);
    if (differ)
        tl_out(l->cli, " %lld of %lld steps were not as planned\n", (long long)differ, (long long)steps);
    tl_out_item(l->cli, "peak at", "%s, %s, %s (%s)", text(l, "peak_phase"), text(l, "peak_module"), text(l, "peak_op"),
                text(l, "peak_line"));
    tl_out_item(
        l->cli, "measured by",
        "a second instrument: bytes where storages are allocated, FLOPs from the m, n, k that reach the product; "
        "saved and work are one to it");
    return agrees(l) ? TL_EXIT_OK : TL_EXIT_VIOLATED;
}

static const char *const tables[] = {"category", "module", "op", "line", "phase", NULL};

static int out_categories(ledger *l) {
    static const tl_column columns[] = {{"category", "category", false, false, false},
                                        {"planned_bytes", "planned, B", true, false, false},
                                        {"measured_bytes", "measured, B", true, false, false}};
    tl_grid *grid = tl_grid_new(columns, 3);
    const char *category;
    char name[160], human[TL_TEXT + 2];
    for (int64_t i = 0; (category = tl_run_file_key(l->file, "by_category", i)) != NULL; i++) {
        snprintf(name, sizeof name, "by_category.%.100s", category);
        pair p = whole_pair(l, name);
        tl_grid_string(grid, category, NULL);
        grouped(p.planned, human);
        tl_grid_integer(grid, p.planned, human);
        grouped(p.measured, human);
        tl_grid_integer(grid, p.measured, human);
    }
    int status = l->error.status == TL_OK ? tl_grid_print(l->cli, grid, "by_category") : tl_failed(l->cli, &l->error);
    tl_grid_free(grid);
    return status;
}

static int out_table(ledger *l, const char *by) {
    static const tl_column columns[] = {{"name", "", false, false, true},
                                        {"planned_flops", "planned FLOPs", true, false, false},
                                        {"run_flops", "run FLOPs", true, false, false},
                                        {"planned_bytes", "planned, B", true, false, false},
                                        {"run_bytes", "run, B", true, false, false}};
    char table[32], name[96], human[TL_TEXT + 2];
    if (strcmp(by, "category") == 0)
        return out_categories(l);
    snprintf(table, sizeof table, "by_%.16s", by);
    tl_grid *grid = tl_grid_new(columns, 5);
    int64_t count = tl_run_file_count(l->file, table);
    for (int64_t i = 0; i < count && l->error.status == TL_OK; i++) {
        snprintf(name, sizeof name, "%s.%lld.name", table, (long long)i);
        const char *row = text(l, name);
        tl_grid_string(grid, row, row[0] ? NULL : "(none)");
        for (int c = 1; c < 5; c++) {
            snprintf(name, sizeof name, "%s.%lld.%s", table, (long long)i, columns[c].key);
            int64_t value = whole(l, name);
            grouped(value, human);
            tl_grid_integer(grid, value, human);
        }
    }
    int status = l->error.status == TL_OK ? tl_grid_print(l->cli, grid, table) : tl_failed(l->cli, &l->error);
    tl_grid_free(grid);
    if (status == TL_EXIT_OK && l->cli->format == TL_FORMAT_TABLE)
        tl_out_item(l->cli, "bytes", "%s; FLOPs of matrix products in one step",
                    strcmp(by, "phase") == 0 ? "the most held during the phase" : "held at the step's peak");
    return status;
}

static void json_pair(ledger *l, tl_json *json, const char *path, const char *key) {
    pair p = whole_pair(l, path);
    tl_json_key(json, key);
    tl_json_object(json);
    tl_json_put_integer(json, "planned", p.planned);
    tl_json_put_integer(json, "measured", p.measured);
    tl_json_end(json);
}

static int out_json(ledger *l) {
    const char *category;
    char name[160];
    tl_json *json = tl_cli_json_open(l->cli);
    if (!json)
        return TL_EXIT_FAILED;
    for (size_t i = 0; i < COUNT(texts); i++)
        tl_json_put_string(json, texts[i], text(l, texts[i]));
    for (size_t i = 0; i < COUNT(plain); i++)
        tl_json_put_integer(json, plain[i], whole(l, plain[i]));
    for (size_t i = 0; i < COUNT(pairs); i++)
        json_pair(l, json, pairs[i], pairs[i]);
    tl_json_key(json, "by_category");
    tl_json_object(json);
    for (int64_t i = 0; (category = tl_run_file_key(l->file, "by_category", i)) != NULL; i++) {
        snprintf(name, sizeof name, "by_category.%.100s", category);
        json_pair(l, json, name, category);
    }
    tl_json_end(json);
    tl_json_key(json, "moments");
    tl_json_object(json);
    for (int i = 0; i < MOMENTS; i++)
        if (has_moment(l, i, name))
            json_pair(l, json, name, moments[i]);
    tl_json_end(json);
    double planned = real(l, "step_seconds.planned");
    tl_json_key(json, "step_seconds");
    tl_json_object(json);
    tl_json_key(json, "planned");
    if (planned > 0)
        tl_json_real(json, planned);
    else
        tl_json_null(json);
    tl_json_put_real(json, "measured", real(l, "step_seconds.measured"));
    tl_json_end(json);
    bool equal = agrees(l);
    tl_json_put_boolean(json, "equal", equal);
    if (l->error.status != TL_OK) {
        tl_json_free(json);
        return tl_failed(l->cli, &l->error);
    }
    int status = tl_cli_json_close(l->cli, json);
    return status == TL_EXIT_OK && !equal ? TL_EXIT_VIOLATED : status;
}

static int run(tl_cli *cli) {
    ledger l = {.cli = cli, .folder = cli->arguments[0]};
    const char *by = cli->own[OWN_BY];
    char path[4096];
    int known = 0;
    while (by && tables[known] && strcmp(tables[known], by) != 0)
        known++;
    if (by && !tables[known])
        return tl_usage(cli, "--by \"%.60s\": it is category, module, op, line or phase", by);
    if ((size_t)snprintf(path, sizeof path, "%s/ledger.json", l.folder) >= sizeof path)
        return tl_usage(cli, "a path of more than %zu bytes", sizeof path - 16);
    if (access(path, F_OK) != 0) {
        (void)snprintf(path, sizeof path, "%s/run.json", l.folder);
        if (access(path, F_OK) == 0)
            tl_say(cli, "%s has no ledger.json: `tally train' writes it when it stops", l.folder);
        else
            tl_say(cli, "%s holds no run (no run.json)", l.folder);
        return TL_EXIT_USAGE;
    }
    l.file = tl_run_file_read(path, &l.error);
    if (!l.file)
        return tl_failed(cli, &l.error);
    int status = by                               ? out_table(&l, by)
                 : cli->format == TL_FORMAT_JSON  ? out_json(&l)
                 : cli->format == TL_FORMAT_TABLE ? out_whole(&l)
                                                  : out_categories(&l);
    tl_run_file_free(l.file);
    return status;
}

const tl_verb tl_verb_ledger = {
    .name = "ledger",
    .summary = "the account of a run: planned beside measured",
    .group = TL_GROUP_AFTER,
    .arguments = "FOLDER",
    .words = NULL,
    .details = "FOLDER is the --out of a `tally train'. Exit status 3 where planned and measured\n"
               "are not equal. By module, op, line and phase the plan's ledger stands beside the\n"
               "one the run kept itself; the totals are held against a second instrument.\n\n"
               "  tally ledger runs/a\n"
               "  tally ledger runs/a --by module",
    .takes = 0,
    .does = {0},
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
