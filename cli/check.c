/* cli/check.c: tally check, claims about a plan or a run, for scripts: exit 3 where one does not hold. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "document.h"

enum { CLAIMS = 64, NAME = 160 };

typedef enum relation { IS_TRUE, LESS, AT_MOST, EQUAL, NOT_EQUAL, AT_LEAST, MORE } relation;
static const char *const signs[] = {"", "<", "<=", "==", "!=", ">=", ">"};

typedef struct claim {
    const char *text; /* as typed */
    char path[NAME], wanted[NAME];
    relation relation;
    bool is_text, holds;
    double value, limit;
    bool whole;                 /* both are counts: compared digit by digit, as a double holds 2^53 of them */
    tl_u128 count, limit_count; /* then */
    const char *found;          /* of a text */
} claim;

/* −1, 0 or 1 */
static int order(const claim *c) {
    if (c->whole)
        return (c->count > c->limit_count) - (c->count < c->limit_count);
    return (c->value > c->limit) - (c->value < c->limit);
}

static bool holds(const claim *c) {
    switch (c->relation) {
    case LESS:
        return order(c) < 0;
    case AT_MOST:
        return order(c) <= 0;
    case EQUAL:
        return order(c) == 0;
    case NOT_EQUAL:
        return order(c) != 0;
    case AT_LEAST:
        return order(c) >= 0;
    case MORE:
        return order(c) > 0;
    case IS_TRUE:
        break;
    }
    return c->value > 0;
}

static const char *without_blanks(const char *from, size_t n, char out[NAME]) {
    while (n && strchr(" \t", *from))
        from++, n--;
    while (n && strchr(" \t", from[n - 1]))
        n--;
    snprintf(out, NAME, "%.*s", (int)(n < NAME - 1 ? n : NAME - 1), from);
    return out;
}

static int read_claim(const tl_cli *cli, const char *text, claim *c) {
    size_t at = strcspn(text, "<>=!"), width = 1;
    c->text = text;
    c->relation = IS_TRUE;
    if (strlen(text) >= NAME)
        return tl_usage(cli, "\"%.60s…\": a claim of more than %d bytes", text, NAME - 1);
    without_blanks(text, at, c->path);
    if (text[at]) {
        bool equals = text[at + 1] == '=';
        width = equals ? 2 : 1;
        switch (text[at]) {
        case '<':
            c->relation = equals ? AT_MOST : LESS;
            break;
        case '>':
            c->relation = equals ? AT_LEAST : MORE;
            break;
        case '!':
            c->relation = NOT_EQUAL;
            break;
        default:
            c->relation = EQUAL;
        }
        if (text[at] == '!' && !equals)
            return tl_usage(cli, "\"%.120s\": != is meant?", text);
        without_blanks(text + at + width, strlen(text + at + width), c->wanted);
    }
    if (!c->path[0] || (text[at] && !c->wanted[0]))
        return tl_usage(cli, "\"%.120s\": a claim is PATH, PATH<=VALUE, or with <, >, >=, ==, !=", text);
    return TL_EXIT_OK;
}

/* 80e9, 80GB, 80GiB, 1.5B of a count, 40%, true. */
static bool read_limit(claim *c, tl_error *error) {
    char number[NAME];
    const char *path = c->path, *text = c->wanted;
    double *limit = &c->limit;
    size_t n = strlen(text);
    tl_error ignored = {TL_OK, ""};
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        *limit = text[0] == 't';
        c->whole = false;
        return true;
    }
    if (n > 1 && text[n - 1] == '%') {
        snprintf(number, sizeof number, "%.*s", (int)(n - 1), text);
        c->whole = false;
        if (tl_parse_number(number, -1e300, 1e300, limit, error) != TL_OK)
            return false;
        *limit /= 100;
        return true;
    }
    if (n > 1 && strchr("BKMGT", text[n - 1]) && tl_document_is_bytes(path)) {
        int64_t bytes;
        if (tl_parse_bytes(text, &bytes, error) != TL_OK)
            return false;
        *limit = (double)bytes;
        c->limit_count = (tl_u128)bytes;
        return true;
    }
    bool letter = n > 1 && strchr("KMBT", text[n - 1]);
    if (tl_parse_count(text, &c->limit_count, letter ? error : &ignored) == TL_OK) {
        *limit = tl_u128_double(c->limit_count);
        return true;
    }
    c->whole = false;
    return !letter && tl_parse_number(text, -1e300, 1e300, limit, error) == TL_OK;
}

static int judge(const tl_cli *cli, const tl_document *d, claim *c) {
    tl_error error = {TL_OK, ""};
    char near[160], full[NAME + 16];
    tl_run_value kind = tl_run_file_kind(d->file, c->path);
    static const char *const places[] = {"memory", "time", "flops", "model", "layout", "cost"};
    for (size_t i = 0; kind == TL_RUN_MISSING && i < sizeof places / sizeof places[0]; i++) { /* "fits", "mfu" */
        snprintf(full, sizeof full, "%s.%s", places[i], c->path);
        kind = tl_run_file_kind(d->file, full);
        if (kind != TL_RUN_MISSING)
            snprintf(c->path, sizeof c->path, "%.*s", (int)sizeof c->path - 1, full);
    }
    if (kind == TL_RUN_OBJECT && d->is_run) { /* of a ledger, planned beside measured: what was measured counts */
        snprintf(full, sizeof full, "%s.measured", c->path);
        kind = tl_run_file_kind(d->file, full);
        if (kind != TL_RUN_MISSING)
            snprintf(c->path, sizeof c->path, "%.*s", (int)sizeof c->path - 1, full);
    }
    if (kind == TL_RUN_TEXT) {
        c->is_text = true;
        c->found = tl_run_file_text(d->file, c->path, &error);
        if (c->relation != EQUAL && c->relation != NOT_EQUAL)
            return tl_usage(cli, "%s is a text, \"%.80s\": == and != compare it", c->path, c->found ? c->found : "");
        c->holds = c->found && (strcmp(c->found, c->wanted) == 0) == (c->relation == EQUAL);
        return TL_EXIT_OK;
    }
    if (kind != TL_RUN_NUMBER && kind != TL_RUN_FLAG) {
        const char *found = tl_document_nearest(d, c->path, near);
        return tl_usage(cli, "%s is %s in the account of %.120s%s%s%s", c->path,
                        kind == TL_RUN_MISSING ? "not" : "no single value", d->title, found ? "; did you mean " : "",
                        found ? found : "", found ? "?" : "");
    }
    c->value = tl_run_file_number(d->file, c->path);
    bool negative = false;
    c->whole = kind == TL_RUN_NUMBER && tl_run_file_whole(d->file, c->path, &c->count, &negative) && !negative;
    if (c->relation != IS_TRUE && !read_limit(c, &error))
        return tl_usage(cli, "\"%.120s\": %s", c->text, error.message);
    if (c->relation == IS_TRUE && kind != TL_RUN_FLAG)
        return tl_usage(cli, "%s is a number; compare it, as in \"%s<=%g\"", c->path, c->path, c->value);
    c->holds = holds(c);
    return TL_EXIT_OK;
}

static void add_row(const tl_cli *cli, tl_grid *grid, const claim *c) {
    char value[TL_TEXT], claimed[NAME * 2 + 8], exact[TL_TEXT];
    tl_grid_string(grid, c->holds ? "holds" : "violated", c->holds ? "ok" : "VIOLATED");
    snprintf(claimed, sizeof claimed, "%s%s%s%s%s", c->path, c->relation ? " " : "", signs[c->relation],
             c->relation ? " " : "", c->wanted);
    tl_grid_string(grid, claimed, NULL);
    if (c->is_text)
        tl_grid_string(grid, c->found, NULL);
    else if (c->relation == IS_TRUE)
        tl_grid_boolean(grid, c->value > 0, NULL);
    else {
        tl_document_text(cli, c->path, c->value, value);
        tl_text_exact(c->value, exact);
        if (c->whole)
            tl_grid_unsigned(grid, c->count, value);
        else if (fabs(c->value) < 1e15 && c->value == floor(c->value))
            tl_grid_integer(grid, (int64_t)c->value, value);
        else
            tl_grid_real(grid, c->value, value);
    }
    if (c->is_text || c->relation == IS_TRUE || c->limit == 0)
        tl_grid_null(grid);
    else {
        snprintf(value, sizeof value, "%.1f %%", 100 * c->value / c->limit);
        tl_grid_real(grid, c->value / c->limit, value);
    }
}

static int run(tl_cli *cli) {
    static const tl_column columns[] = {
        {"result", "", false, false, false},
        {"claim", "claim", false, false, true},
        {"value", "is", true, false, false},
        {"of_limit", "of the limit", true, false, false},
    };
    tl_document d;
    int n = cli->n_arguments - 1, violated = 0, status;
    if (n > CLAIMS)
        return tl_usage(cli, "%d claims at once; %d would do", n, CLAIMS);
    claim *claims = calloc((size_t)n, sizeof *claims);
    if (!claims) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    memset(&d, 0, sizeof d);
    status = TL_EXIT_OK;
    for (int i = 0; i < n && status == TL_EXIT_OK; i++)
        status = read_claim(cli, cli->arguments[i + 1], &claims[i]);
    if (status == TL_EXIT_OK)
        status = tl_document_open(cli, cli->arguments[0], &d);
    if (status == TL_EXIT_VIOLATED) /* whether it fits is a claim like any other */
        status = TL_EXIT_OK;
    for (int i = 0; i < n && status == TL_EXIT_OK; i++)
        status = judge(cli, &d, &claims[i]);
    if (status == TL_EXIT_OK) {
        tl_grid *grid = tl_grid_new(columns, 4);
        for (int i = 0; i < n; i++) {
            add_row(cli, grid, &claims[i]);
            violated += !claims[i].holds;
        }
        status = tl_grid_print(cli, grid, "claims");
        tl_grid_free(grid);
        if (status == TL_EXIT_OK && cli->format == TL_FORMAT_TABLE)
            tl_out(cli, "%s: %d of %d hold\n", d.title, n - violated, n);
        if (status == TL_EXIT_OK && violated)
            status = TL_EXIT_VIOLATED;
    }
    tl_document_close(&d);
    free(claims);
    return status;
}

const tl_verb tl_verb_check = {
    .name = "check",
    .summary = "claims about a plan or a run, for use in CI (exit 3)",
    .group = TL_GROUP_BEFORE,
    .arguments = "PLAN|RUN CLAIM...",
    .words = NULL,
    .details = "PLAN is a plan's command line in quotes or a file of `tally --json plan'; RUN\n"
               "is a run's folder, and of it what was measured counts. A CLAIM is PATH,\n"
               "PATH<=VALUE, or with <, >, >=, ==, !=; paths are those of the JSON, and\n"
               "memory., time., flops. or model. may be left out.\n\n"
               "  tally check 'gpt2 -g A100-80G --micro-batch 8' fits 'peak_bytes<=40GB'\n"
               "  tally check runs/a 'peak_bytes<=61203456' 'unaccounted_bytes==0'",
    .min_arguments = 2,
    .max_arguments = CLAIMS + 1,
    .run = run,
};
