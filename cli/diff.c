/* cli/diff.c: tally diff, two accounts side by side: settings that differ, then what became of them, the largest difference first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "document.h"

enum { OWN_ALL };
enum { PATH = 160, ROWS = 1024, SHOWN = 16 };

static const struct argp_option own_options[] = {
    {"all", TL_OWN(OWN_ALL), 0, 0, "Every difference, not the largest of each kind alone", 0},
    {0},
};

/* Kinds, in the order they are shown: bytes cannot be set beside seconds. */
typedef enum sort { SETTING, BYTES, FLOPS, SECONDS, COUNT, KINDS } sort;
static const char *const kind_names[KINDS] = {"setting", "memory", "FLOPs", "time", "other"};

typedef struct row {
    char path[PATH];
    sort kind;
    bool is_text;
    double value[2]; /* NaN: not there */
    bool whole[2], below[2];
    tl_u128 count[2]; /* of a whole number, every digit, and below zero or not */
    char text[2][96];
    const char *all[2]; /* a text in full, as the document has it */
} row;

typedef struct diff {
    tl_cli *cli;
    tl_document of[2];
    row *rows;
    int n, which, equal, alone[2]; /* alone: what only one of the two has, and is not shown */
    bool full, all, same_device;   /* what `here` has free is another number at every look */
} diff;

/* The same value in a plan's account and in a run's (ledger.json), of which what was measured counts. */
static const struct {
    const char *plan, *run;
} in_both[] = {{"memory.by_category.", "by_category."},       {"memory.moments.", "moments."},
               {"memory.peak_bytes", "peak_bytes"},           {"memory.allocations_per_step", "allocations"},
               {"flops.hardware_per_step", "flops_per_step"}, {"time.step_seconds", "step_seconds"}};
static const struct {
    const char *plan, *run;
} texts_in_both[] = {{"model.parameters", "parameters"},
                     {"memory.peak_phase", "peak_phase"},
                     {"memory.peak_module", "peak_module"},
                     {"memory.peak_op", "peak_op"},
                     {"memory.peak_site", "peak_line"}};

/* What a run calls a plan's value; the path itself where it has none. */
static const char *in_run(const char *path, char buffer[PATH]) {
    for (size_t i = 0; i < sizeof in_both / sizeof in_both[0]; i++) {
        size_t n = strlen(in_both[i].plan);
        bool group = in_both[i].plan[n - 1] == '.';
        if (strncmp(path, in_both[i].plan, n) != 0 || (!group && path[n]))
            continue;
        snprintf(buffer, PATH, "%s%s.measured", in_both[i].run, path + n);
        return buffer;
    }
    for (size_t i = 0; i < sizeof texts_in_both / sizeof texts_in_both[0]; i++)
        if (strcmp(path, texts_in_both[i].plan) == 0)
            return texts_in_both[i].run;
    return path;
}

static sort kind_of(const char *path) {
    if (strncmp(path, "layout.", 7) == 0 || strncmp(path, "options.", 8) == 0)
        return SETTING;
    if (tl_document_is_bytes(path))
        return BYTES;
    if (strstr(path, "flop"))
        return FLOPS;
    return strstr(path, "seconds") || strncmp(path, "time.", 5) == 0 ? SECONDS : COUNT;
}

/* "schema" and "command" are no values of the account; the command's differences are the settings'. */
static bool is_frame(const char *path) {
    static const char *const frame[] = {"schema", "verb", "command", "flops.convention", "time.peak_source"};
    for (size_t i = 0; i < sizeof frame / sizeof frame[0]; i++)
        if (strcmp(path, frame[i]) == 0)
            return true;
    return false;
}

static void read_value(const diff *of, const char *path, row *r, int which) {
    const tl_document *d = &of->of[which];
    char other[PATH];
    if (d->is_run && !of->of[1 - which].is_run)
        path = in_run(path, other);
    tl_error ignored = {TL_OK, ""};
    tl_run_value kind = tl_run_file_kind(d->file, path);
    r->value[which] = (double)NAN;
    snprintf(r->text[which], sizeof r->text[which], "-");
    if (kind == TL_RUN_TEXT) {
        const char *text = tl_run_file_text(d->file, path, &ignored);
        r->is_text = true;
        r->all[which] = text;
        snprintf(r->text[which], sizeof r->text[which], "%.90s", text ? text : "");
    } else if (kind == TL_RUN_NUMBER || kind == TL_RUN_FLAG) {
        r->value[which] = tl_run_file_number(d->file, path);
        r->whole[which] = tl_run_file_whole(d->file, path, &r->count[which], &r->below[which]);
        if (kind == TL_RUN_FLAG)
            snprintf(r->text[which], sizeof r->text[which], "%s", r->value[which] > 0 ? "true" : "false");
        else
            tl_text_exact(r->value[which], r->text[which]);
        r->is_text = r->is_text || kind == TL_RUN_FLAG;
    }
}

static bool is_missing(const row *r, int which) {
    return r->is_text ? strcmp(r->text[which], "-") == 0 : (bool)isnan(r->value[which]);
}

static bool same(const row *r) {
    if (r->all[0] && r->all[1])
        return strcmp(r->all[0], r->all[1]) == 0;
    if (r->is_text)
        return !r->all[0] && !r->all[1] && strcmp(r->text[0], r->text[1]) == 0;
    if (r->whole[0] && r->whole[1])
        return r->count[0] == r->count[1] && r->below[0] == r->below[1];
    return r->value[0] <= r->value[1] && r->value[0] >= r->value[1];
}

static bool gather(void *user, const char *path, tl_run_value kind) {
    diff *d = user;
    (void)kind;
    if (d->of[d->which].is_run && !d->of[1 - d->which].is_run)
        return true; /* a plan's names are those of the account */
    if (is_frame(path) || (d->same_device && strcmp(path, "memory.usable_bytes") == 0) ||
        (d->which == 1 && tl_run_file_kind(d->of[0].file, path) != TL_RUN_MISSING))
        return true; /* both have it: taken from the first */
    if (d->n == ROWS) {
        d->full = true;
        return false;
    }
    row *r = &d->rows[d->n];
    memset(r, 0, sizeof *r);
    snprintf(r->path, sizeof r->path, "%s", path);
    r->kind = kind_of(path);
    read_value(d, path, r, 0);
    read_value(d, path, r, 1);
    if (same(r))
        d->equal++;
    else if (!d->all && d->cli->format == TL_FORMAT_TABLE && (is_missing(r, 0) || is_missing(r, 1)))
        d->alone[is_missing(r, 0)]++;
    else
        d->n++;
    return true;
}

static double change(const row *r) {
    if (r->whole[0] && r->whole[1] && r->below[0] == r->below[1]) {
        bool more = r->count[1] > r->count[0];
        double by = tl_u128_double(more ? r->count[1] - r->count[0] : r->count[0] - r->count[1]);
        return more != r->below[0] ? by : -by;
    }
    return (isnan(r->value[1]) ? 0 : r->value[1]) - (isnan(r->value[0]) ? 0 : r->value[0]);
}

static int by_size(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (x->kind != y->kind)
        return (x->kind > y->kind) - (x->kind < y->kind);
    if (x->kind == SETTING)
        return strcmp(x->path, y->path);
    double left = fabs(change(x)), right = fabs(change(y));
    return left > right ? -1 : left < right ? 1 : strcmp(x->path, y->path);
}

static void add_value(const tl_cli *cli, tl_grid *grid, const row *r, int which) {
    char text[TL_TEXT];
    if (r->is_text)
        tl_grid_string(grid, r->text[which], NULL);
    else if (isnan(r->value[which]))
        tl_grid_null(grid);
    else if (r->whole[which] && !r->below[which])
        tl_grid_unsigned(grid, r->count[which], tl_document_text(cli, r->path, r->value[which], text));
    else
        tl_grid_real(grid, r->value[which], tl_document_text(cli, r->path, r->value[which], text));
}

/* "by_category.saved": people read it beside its kind; check takes it so too. */
static const char *short_name(const char *path) {
    static const char *const places[] = {"memory.", "time.", "flops.", "model.", "layout.choices.", "layout."};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (strncmp(path, places[i], strlen(places[i])) == 0)
            return path + strlen(places[i]);
    return path;
}

/* "+31.1 %", and from tenfold on "x 12.3". */
static void add_ratio(tl_grid *grid, const row *r) {
    char text[TL_TEXT];
    if (isnan(r->value[0]) || isnan(r->value[1]) || r->value[0] == 0) {
        tl_grid_null(grid);
        return;
    }
    double ratio = r->value[1] / r->value[0];
    if (ratio >= 10)
        snprintf(text, sizeof text, "× %.3g", ratio);
    else
        snprintf(text, sizeof text, "%+.1f %%", 100 * (ratio - 1));
    tl_grid_real(grid, ratio, text);
}

static void add_row(const diff *d, tl_grid *grid, const row *r, bool first) {
    bool people = d->cli->format == TL_FORMAT_TABLE;
    char text[TL_TEXT], with_sign[TL_TEXT + 2];
    double by = change(r);
    tl_grid_string(grid, kind_names[r->kind], first ? NULL : "");
    tl_grid_string(grid, r->path, people ? short_name(r->path) : NULL);
    add_value(d->cli, grid, r, 0);
    add_value(d->cli, grid, r, 1);
    if (r->is_text || r->kind == SETTING) {
        tl_grid_null(grid);
        tl_grid_null(grid);
        return;
    }
    if (strcmp(r->path, "time.mfu") == 0 || strcmp(r->path, "time.hfu") == 0) /* of shares: percentage points */
        snprintf(with_sign, sizeof with_sign, "%+.1f pp", 100 * by);
    else
        snprintf(with_sign, sizeof with_sign, "%s%s", by > 0 ? "+" : "", tl_document_text(d->cli, r->path, by, text));
    tl_grid_real(grid, by, with_sign);
    add_ratio(grid, r);
}

static tl_grid *make_grid(const diff *d, int *hidden) {
    static const tl_column columns[] = {
        {"kind", "", false, false, false}, {"path", "what", false, false, false},   {"a", "A", true, false, false},
        {"b", "B", true, false, false},    {"change", "B - A", true, false, false}, {"ratio", "", true, false, false},
    };
    const bool people = d->cli->format == TL_FORMAT_TABLE;
    tl_grid *grid = tl_grid_new(columns, 6);
    int shown[KINDS] = {0};
    for (int i = 0; i < d->n; i++) {
        const row *r = &d->rows[i];
        if (people && (r->is_text || r->kind == SETTING))
            continue; /* a line each: names of modules would make the columns of numbers wide */
        if (people && !d->all && shown[r->kind] == SHOWN) {
            (*hidden)++;
            continue;
        }
        add_row(d, grid, r, shown[r->kind]++ == 0);
    }
    return grid;
}

/* What became of the two numbers that people ask for first. */
static void out_headline(const diff *d) {
    static const char *const asked[][3] = {{"memory.peak_bytes", "holds", "at the peak"},
                                           {"time.step_seconds", "takes", "a step"}};
    char line[256] = "", size[TL_TEXT], share[32];
    for (size_t k = 0; k < sizeof asked / sizeof asked[0] && d->n; k++) {
        row r = {.path = ""};
        read_value(d, asked[k][0], &r, 0);
        read_value(d, asked[k][0], &r, 1);
        if (is_missing(&r, 0) || is_missing(&r, 1) || r.is_text || r.value[0] <= 0)
            continue;
        size_t at = strlen(line);
        double by = change(&r), ratio = r.value[1] / r.value[0];
        snprintf(share, sizeof share, ratio >= 10 ? "× %.3g" : "%+.1f %%", ratio >= 10 ? ratio : 100 * (ratio - 1));
        if (same(&r))
            snprintf(line + at, sizeof line - at, "%s%s as much %s", at ? ", " : "B ", asked[k][1], asked[k][2]);
        else
            snprintf(line + at, sizeof line - at, "%s%s %s %s %s (%s)", at ? ", " : "B ", asked[k][1],
                     tl_document_text(d->cli, asked[k][0], fabs(by), size), by > 0 ? "more" : "less", asked[k][2],
                     share);
    }
    if (d->n == 0 && d->equal == 0)
        snprintf(line, sizeof line, "nothing to compare: no value is in both");
    else if (d->n == 0)
        snprintf(line, sizeof line, "no difference in %s%d values%s", d->alone[0] + d->alone[1] ? "the " : "", d->equal,
                 d->alone[0] + d->alone[1] ? " that both have" : "");
    else if (!line[0])
        snprintf(line, sizeof line, "%d value%s", d->n, d->n == 1 ? " differs" : "s differ");
    tl_out_answer(d->cli, line, NULL);
}

/* Settings and names, "recompute: none → full". */
static void out_texts(const diff *d, bool settings) {
    const char *label = settings ? "setting" : "names";
    char text[2][TL_TEXT];
    for (int i = 0; i < d->n; i++) {
        const row *r = &d->rows[i];
        if ((r->kind == SETTING) != settings || (!settings && !r->is_text))
            continue;
        const char *side[2];
        for (int k = 0; k < 2; k++)
            side[k] =
                r->is_text || isnan(r->value[k]) ? r->text[k] : tl_document_text(d->cli, r->path, r->value[k], text[k]);
        tl_out_item(d->cli, label, "%s: %s → %s", short_name(r->path), side[0], side[1]);
        label = "";
    }
}

static int print_people(diff *d) {
    const tl_cli *cli = d->cli;
    int hidden = 0, status = TL_EXIT_OK;
    out_headline(d);
    tl_out_item(cli, "A", "%s", d->of[0].title);
    tl_out_item(cli, "B", "%s", d->of[1].title);
    out_texts(d, true);
    bool numbers = false;
    for (int i = 0; i < d->n; i++)
        numbers = numbers || !(d->rows[i].is_text || d->rows[i].kind == SETTING);
    if (numbers) {
        tl_grid *grid = make_grid(d, &hidden);
        tl_out(cli, "\n");
        status = tl_grid_print(cli, grid, "differences");
        tl_grid_free(grid);
        tl_out(cli, "\n");
    }
    out_texts(d, false);
    if (hidden)
        tl_out_item(cli, "note", "%d smaller differences are not shown; --all shows them", hidden);
    if (d->alone[0] + d->alone[1])
        tl_out_item(cli, "alone", "values only A has: %d; only B: %d; --all shows them", d->alone[0], d->alone[1]);
    tl_out_item(cli, "equal", "%d values", d->equal);
    return status;
}

static int print(diff *d) {
    int hidden = 0;
    if (d->cli->format == TL_FORMAT_TABLE)
        return print_people(d);
    tl_grid *grid = make_grid(d, &hidden);
    int status = tl_grid_print(d->cli, grid, "differences");
    tl_grid_free(grid);
    return status;
}

static int run(tl_cli *cli) {
    diff *d = calloc(1, sizeof *d);
    if (d)
        d->rows = calloc(ROWS, sizeof *d->rows);
    if (!d || !d->rows) {
        free(d);
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    d->cli = cli;
    d->all = cli->own[OWN_ALL] != NULL;
    int status = TL_EXIT_OK;
    for (int i = 0; i < 2 && (status == TL_EXIT_OK || status == TL_EXIT_VIOLATED); i++)
        status = tl_document_open(cli, cli->arguments[i], &d->of[i]);
    if (status == TL_EXIT_OK || status == TL_EXIT_VIOLATED) {
        row r = {.path = ""};
        read_value(d, "memory.device", &r, 0);
        read_value(d, "memory.device", &r, 1);
        d->same_device = same(&r);
        for (d->which = 0; d->which < 2; d->which++)
            tl_document_each(&d->of[d->which], gather, d);
        qsort(d->rows, (size_t)d->n, sizeof *d->rows, by_size);
        if (d->full)
            tl_note(cli, "more than %d values differ; the first %d are compared", ROWS, ROWS);
        status = print(d);
    }
    tl_document_close(&d->of[0]);
    tl_document_close(&d->of[1]);
    free(d->rows);
    free(d);
    return status;
}

const tl_verb tl_verb_diff = {
    .name = "diff",
    .summary = "two plans or runs, largest difference first",
    .group = TL_GROUP_BEFORE,
    .arguments = "A B",
    .words = NULL,
    .details = "A and B are each a plan's command line in quotes, a file of\n"
               "`tally --json plan', or a run's folder. Settings that differ come first, then\n"
               "bytes, FLOPs and seconds, the largest difference first. Of a run what was\n"
               "measured counts; beside a plan it is what the plan foretold.\n\n"
               "  tally diff 'gpt2 --seq 1024' 'gpt2 --seq 1024 --recompute full'\n"
               "  tally diff runs/a runs/b\n"
               "  tally --json plan gpt2 >a.json; tally diff a.json 'gpt2 --optim sgd'",
    .own = own_options,
    .min_arguments = 2,
    .max_arguments = 2,
    .run = run,
};
