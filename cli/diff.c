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
    int n, which, equal;
    bool full, same_device; /* what `here` has free is another number at every look */
} diff;

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

static void read_value(const tl_document *d, const char *path, row *r, int which) {
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
    read_value(&d->of[0], path, r, 0);
    read_value(&d->of[1], path, r, 1);
    if (same(r))
        d->equal++;
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

static tl_grid *make_grid(const diff *d, bool all, int *hidden) {
    static const tl_column columns[] = {
        {"kind", "", false, false, false}, {"path", "what", false, false, false},   {"a", "A", true, false, false},
        {"b", "B", true, false, false},    {"change", "B - A", true, false, false}, {"ratio", "", true, false, false},
    };
    tl_grid *grid = tl_grid_new(columns, 6);
    int shown[KINDS] = {0};
    for (int i = 0; i < d->n; i++) {
        const row *r = &d->rows[i];
        char text[TL_TEXT], with_sign[TL_TEXT + 2];
        if (!all && d->cli->format == TL_FORMAT_TABLE && ++shown[r->kind] > SHOWN) {
            (*hidden)++;
            continue;
        }
        bool first = i == 0 || d->rows[i - 1].kind != r->kind;
        tl_grid_string(grid, kind_names[r->kind], first ? NULL : "");
        tl_grid_string(grid, r->path, NULL);
        add_value(d->cli, grid, r, 0);
        add_value(d->cli, grid, r, 1);
        if (r->is_text || r->kind == SETTING) {
            tl_grid_null(grid);
            tl_grid_null(grid);
            continue;
        }
        double by = change(r);
        snprintf(with_sign, sizeof with_sign, "%s%s", by > 0 ? "+" : "", tl_document_text(d->cli, r->path, by, text));
        tl_grid_real(grid, by, with_sign);
        if (isnan(r->value[0]) || isnan(r->value[1]) || r->value[0] == 0) {
            tl_grid_null(grid);
        } else {
            snprintf(text, sizeof text, "%+.1f %%", 100 * (r->value[1] / r->value[0] - 1));
            tl_grid_real(grid, r->value[1] / r->value[0], text);
        }
    }
    return grid;
}

static int print(diff *d, bool all) {
    int hidden = 0;
    const tl_cli *cli = d->cli;
    tl_grid *grid = make_grid(d, all, &hidden);
    if (cli->format == TL_FORMAT_TABLE) {
        tl_out_item(cli, "A", "%s", d->of[0].title);
        tl_out_item(cli, "B", "%s", d->of[1].title);
    }
    if (cli->format == TL_FORMAT_TABLE && d->n == 0) {
        tl_out(cli, "no difference in %d values\n", d->equal);
        tl_grid_free(grid);
        return TL_EXIT_OK;
    }
    int status = tl_grid_print(cli, grid, "differences");
    tl_grid_free(grid);
    if (cli->format == TL_FORMAT_TABLE && hidden)
        tl_out_item(cli, "note", "%d smaller differences are not shown; --all shows them", hidden);
    if (cli->format == TL_FORMAT_TABLE)
        tl_out_item(cli, "equal", "%d values", d->equal);
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
    int status = TL_EXIT_OK;
    for (int i = 0; i < 2 && (status == TL_EXIT_OK || status == TL_EXIT_VIOLATED); i++)
        status = tl_document_open(cli, cli->arguments[i], &d->of[i]);
    if (status == TL_EXIT_OK || status == TL_EXIT_VIOLATED) {
        row r = {.path = ""};
        read_value(&d->of[0], "memory.device", &r, 0);
        read_value(&d->of[1], "memory.device", &r, 1);
        d->same_device = same(&r);
        for (d->which = 0; d->which < 2; d->which++)
            tl_document_each(&d->of[d->which], gather, d);
        qsort(d->rows, (size_t)d->n, sizeof *d->rows, by_size);
        if (d->full)
            tl_note(cli, "more than %d values differ; the first %d are compared", ROWS, ROWS);
        status = print(d, cli->own[OWN_ALL] != NULL);
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
               "bytes, FLOPs and seconds, the largest difference first.\n\n"
               "  tally diff 'gpt2 --seq 1024' 'gpt2 --seq 1024 --recompute full'\n"
               "  tally --json plan gpt2 >a.json; tally diff a.json 'gpt2 --optim sgd'",
    .own = own_options,
    .min_arguments = 2,
    .max_arguments = 2,
    .run = run,
};
