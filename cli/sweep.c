/* cli/sweep.c: tally sweep, a plan for every value of one or two inputs, as a table or a picture. Every point is a whole plan. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "document.h"
#include "plan_request.h"

enum { OWN_SHOW };
enum { INPUTS = 8, VALUES = 256, POINTS = 1024, WORD = 200, WORDS = 2 * TL_OPTION_COUNT + INPUTS + 4, BAR = 24 };

static const struct argp_option own_options[] = {
    {"show", TL_OWN(OWN_SHOW), "PATH", 0,
     "The value drawn, or tabled over two inputs: a path of plan's JSON (default: "
     "memory.peak_bytes)",
     5},
    {0},
};

typedef struct input {
    char name[64];
    char *value[VALUES]; /* owned */
    int n;
} input;

typedef struct point {
    int at[INPUTS];
    int status;
    double value[6], shown;
    char said[256];
} point;

typedef struct sweep {
    tl_cli *cli;
    input in[INPUTS];
    int n_in, varied[2], n_varied;
    point *points;
    int n;
    char show[160];
    tl_column list[VALUES + 1]; /* of the grid, which does not copy them */
    char corner[160];
} sweep;

/* What every point's row has, by plan's paths. */
static const struct {
    const char *path, *key, *title;
} columns[6] = {
    {"memory.peak_bytes", "peak_bytes", "peak"},
    {"memory.arena_bytes", "arena_bytes", "arena"},
    {"memory.fits", "fits", "fits"},
    {"time.step_seconds", "step_seconds", "step"},
    {"time.tokens_per_second", "tokens_per_second", "tokens/s"},
    {"time.mfu", "mfu", "MFU"},
};
enum { FITS = 2 };

/* ---- inputs ---- */

static bool add_value(input *in, const char *text, size_t n) {
    if (in->n == VALUES || n == 0 || n >= WORD)
        return false;
    char *copy = malloc(n + 1);
    if (!copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    in->value[in->n++] = copy;
    return true;
}

/* "1..8", "1..8+2" or "512..8192*2"; false: not of that form. */
static int add_range(const tl_cli *cli, input *in, const char *text, size_t n, bool *is_range) {
    char word[WORD], number[32], *end;
    const char *dots;
    *is_range = false;
    if (n >= sizeof word)
        return TL_EXIT_OK;
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    dots = strstr(word, "..");
    long long from = strtoll(word, &end, 10), to, by = 1;
    if (!dots || end != dots || end == word)
        return TL_EXIT_OK;
    *is_range = true;
    to = strtoll(dots + 2, &end, 10);
    char how = *end;
    if (how == '+' || how == '*')
        by = strtoll(end + 1, &end, 10);
    if (*end || end == dots + 2 || from < 1 || to < from || by < 1 || (how == '*' && by < 2))
        return tl_usage(cli, "%s=%s: a range is 1..8, 1..8+2 or 512..8192*2, upwards from 1 or more", in->name, word);
    for (long long at = from; at <= to; at = how == '*' ? at * by : at + by) {
        int width = snprintf(number, sizeof number, "%lld", at);
        if (!add_value(in, number, (size_t)width))
            return tl_usage(cli, "%s=%s: more than %d values", in->name, word, VALUES);
        if (how == '*' ? at > to / by : at > to - by)
            break;
    }
    return TL_EXIT_OK;
}

/* NAME=VALUE,VALUE… */
static int read_input(const tl_cli *cli, const char *text, input *in) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof in->name)
        return tl_usage(cli, "\"%.120s\": an input is NAME=VALUES, as seq=512..8192*2 or optim=adamw,sgd", text);
    const char *name = text + strspn(text, "-"); /* --seq=… is seq=… */
    snprintf(in->name, sizeof in->name, "%.*s", (int)(equals - name), name);
    for (const char *at = equals + 1;; at++) {
        size_t n = strcspn(at, ",");
        bool is_range;
        int status = add_range(cli, in, at, n, &is_range);
        if (status != TL_EXIT_OK)
            return status;
        if (!is_range && !add_value(in, at, n))
            return tl_usage(cli, "%.120s: an empty value, one of more than %d bytes, or more than %d values", text,
                            WORD - 1, VALUES);
        at += n;
        if (!*at)
            return TL_EXIT_OK;
    }
}

static int read_inputs(sweep *s) {
    tl_cli *cli = s->cli;
    int64_t points = 1;
    for (int i = 1; i < cli->n_arguments; i++) {
        if (s->n_in == INPUTS)
            return tl_usage(cli, "more than %d inputs", INPUTS);
        input *in = &s->in[s->n_in++];
        int status = read_input(cli, cli->arguments[i], in);
        if (status != TL_EXIT_OK)
            return status;
        for (int k = 0; k < s->n_in - 1; k++)
            if (strcmp(s->in[k].name, in->name) == 0)
                return tl_usage(cli, "%s is given twice", in->name);
        points *= in->n;
        if (in->n > 1) {
            if (s->n_varied == 2)
                return tl_usage(cli, "%s, %s and %s vary; two at once can be shown", s->in[s->varied[0]].name,
                                s->in[s->varied[1]].name, in->name);
            s->varied[s->n_varied++] = s->n_in - 1;
        }
        if (points > POINTS)
            return tl_usage(cli, "%lld points; %d would do", (long long)points, POINTS);
    }
    if (!s->n_varied)
        return tl_usage(cli, "nothing varies; give one or two inputs several values, as seq=512..8192*2");
    s->n = (int)points;
    s->points = calloc((size_t)s->n, sizeof *s->points);
    if (!s->points) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    for (int p = 0; p < s->n; p++)
        for (int i = s->n_in - 1, left = p; i >= 0; left /= s->in[i].n, i--)
            s->points[p].at[i] = left % s->in[i].n;
    return TL_EXIT_OK;
}

/* ---- points ---- */

/* A list of words; each is its own, from the pool. */
typedef struct words {
    char *word[WORDS];
    char pool[WORDS][WORD + 80];
    int n;
} words;

static void add_word(words *w, const char *name, const char *value) {
    if (w->n >= WORDS - 1)
        return;
    if (value)
        snprintf(w->pool[w->n], sizeof w->pool[0], "%s%.70s=%.190s", "--", name, value);
    else
        snprintf(w->pool[w->n], sizeof w->pool[0], "%.250s", name);
    w->word[w->n] = w->pool[w->n];
    w->n++;
}

static int make_point(sweep *s, point *p, words *w) {
    tl_cli *cli = s->cli;
    const char *model = cli->arguments[0];
    tl_document d;
    char said[1024] = "", near[160], text[WORD + 8];
    w->n = 0;
    add_word(w, "plan", NULL);
    for (int i = 0; i < s->n_in; i++)
        if (strcmp(s->in[i].name, "model") == 0)
            model = s->in[i].value[p->at[i]];
        else
            add_word(w, s->in[i].name, s->in[i].value[p->at[i]]);
    for (int o = 0; o < TL_OPTION_COUNT; o++)
        if (tl_given(cli, (tl_option)o)) {
            const char *value = cli->options.at[o].text;
            snprintf(text, sizeof text, "--%s", tl_option_name((tl_option)o));
            if (*value)
                add_word(w, tl_option_name((tl_option)o), value);
            else
                add_word(w, text, NULL);
        }
    add_word(w, model, NULL);
    w->word[w->n] = NULL;
    p->status = tl_document_make(cli, w->n, w->word, &d, said);
    p->shown = (double)NAN;
    for (int i = 0; i < 6; i++)
        p->value[i] = d.file ? tl_run_file_number(d.file, columns[i].path) : (double)NAN;
    if (!d.file) {
        snprintf(p->said, sizeof p->said, "%.250s", said);
        return TL_EXIT_OK;
    }
    tl_run_value kind = tl_run_file_kind(d.file, s->show);
    int status = TL_EXIT_OK;
    if (kind == TL_RUN_NUMBER || kind == TL_RUN_FLAG)
        p->shown = tl_run_file_number(d.file, s->show);
    else if (strncmp(s->show, "time.", 5) == 0 && !tl_run_file_has(d.file, "time"))
        snprintf(p->said, sizeof p->said, "the step's time is not known");
    else if (kind != TL_RUN_MISSING)
        status = tl_usage(cli, "--show %s: no single number", s->show);
    else {
        const char *found = tl_document_nearest(&d, s->show, near);
        status = tl_usage(cli, "--show %s is not in the account%s%s%s", s->show, found ? "; did you mean " : "",
                          found ? found : "", found ? "?" : "");
    }
    tl_document_close(&d);
    return status;
}

/* ---- printing ---- */

static const char *bar_of(const tl_cli *cli, double value, double most, char text[BAR * 4 + 1]) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int units = most > 0 && value > 0 ? (int)(value / most * BAR * 8 + 0.5) : 0;
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < units / 8; i++)
        at += (size_t)snprintf(text + at, BAR * 4 + 1 - at, "%s", cli->utf8 ? "█" : "#");
    if (cli->utf8 && units % 8)
        snprintf(text + at, BAR * 4 + 1 - at, "%s", eighths[units % 8]);
    return text;
}

static void add_cells(const sweep *s, tl_grid *grid, const point *p) {
    char text[TL_TEXT];
    for (int i = 0; i < 6; i++)
        if (isnan(p->value[i]))
            tl_grid_null(grid);
        else if (i == FITS)
            tl_grid_boolean(grid, p->value[i] > 0, p->value[i] > 0 ? "yes" : "no");
        else if (i < FITS)
            tl_grid_integer(grid, (int64_t)p->value[i], tl_document_text(s->cli, columns[i].path, p->value[i], text));
        else
            tl_grid_real(grid, p->value[i], tl_document_text(s->cli, columns[i].path, p->value[i], text));
}

/* One input: a row a value. Machines get this form of two inputs as well. */
static tl_grid *long_grid(sweep *s) {
    tl_column *list = s->list;
    char bar[BAR * 4 + 1], text[TL_TEXT];
    int n = 0;
    double most = 0;
    bool own = s->cli->own[OWN_SHOW] != NULL;
    for (int i = 0; i < s->n_varied; i++)
        list[n++] = (tl_column){s->in[s->varied[i]].name, s->in[s->varied[i]].name, true, false, false};
    for (int i = 0; i < 6; i++)
        list[n++] = (tl_column){columns[i].key, columns[i].title, true, i == 1 || i == 4, false};
    if (own)
        list[n++] = (tl_column){"shown", s->show, true, false, false};
    if (s->cli->format == TL_FORMAT_TABLE)
        list[n++] = (tl_column){"bar", own ? "" : "peak, drawn", false, false, false};
    else
        list[n++] = (tl_column){"error", "", false, false, false};
    for (int p = 0; p < s->n; p++)
        most = s->points[p].shown > most ? s->points[p].shown : most;
    tl_grid *grid = tl_grid_new(list, n);
    for (int p = 0; p < s->n; p++) {
        const point *at = &s->points[p];
        for (int i = 0; i < s->n_varied; i++)
            tl_grid_string(grid, s->in[s->varied[i]].value[at->at[s->varied[i]]], NULL);
        add_cells(s, grid, at);
        if (own && isnan(at->shown))
            tl_grid_null(grid);
        else if (own)
            tl_grid_real(grid, at->shown, tl_document_text(s->cli, s->show, at->shown, text));
        if (s->cli->format == TL_FORMAT_TABLE)
            tl_grid_string(grid, at->said[0] ? "(no plan)" : bar_of(s->cli, at->shown, most, bar), NULL);
        else
            tl_grid_string(grid, at->said[0] ? at->said : NULL, NULL);
    }
    return grid;
}

/* Two inputs: the first goes down, the second across. A star: does not fit. */
static tl_grid *square_grid(sweep *s) {
    const input *down = &s->in[s->varied[0]], *across = &s->in[s->varied[1]];
    tl_column *list = s->list;
    char *title = s->corner, text[TL_TEXT], cell[TL_TEXT + 4];
    snprintf(title, sizeof s->corner, "%s \\ %s", down->name, across->name);
    list[0] = (tl_column){down->name, title, true, false, false};
    for (int k = 0; k < across->n; k++)
        list[k + 1] = (tl_column){across->value[k], across->value[k], true, false, false};
    tl_grid *grid = tl_grid_new(list, across->n + 1);
    for (int i = 0; i < down->n; i++) {
        tl_grid_string(grid, down->value[i], NULL);
        for (int k = 0; k < across->n; k++) {
            const point *p = &s->points[i * across->n + k];
            if (isnan(p->shown)) {
                tl_grid_null(grid);
                continue;
            }
            bool over = !isnan(p->value[FITS]) && p->value[FITS] == 0;
            snprintf(cell, sizeof cell, "%s%s", tl_document_text(s->cli, s->show, p->shown, text), over ? "*" : " ");
            tl_grid_real(grid, p->shown, cell);
        }
    }
    return grid;
}

static int print(sweep *s) {
    const tl_cli *cli = s->cli;
    bool people = cli->format == TL_FORMAT_TABLE || cli->format == TL_FORMAT_MD;
    bool square = people && s->n_varied == 2, over = false;
    int failed = 0;
    const char *said = NULL;
    for (int p = 0; p < s->n; p++) {
        over = over || (!isnan(s->points[p].value[FITS]) && s->points[p].value[FITS] == 0);
        failed += s->points[p].said[0] != '\0';
        said = said || !s->points[p].said[0] ? said : s->points[p].said;
    }
    if (cli->format == TL_FORMAT_TABLE) {
        char line[320], about[200];
        snprintf(line, sizeof line, "%s over %s%s%s", s->show, s->in[s->varied[0]].name,
                 s->n_varied == 2 ? " and " : "", s->n_varied == 2 ? s->in[s->varied[1]].name : "");
        snprintf(about, sizeof about, "(%.160s, %d plans)", cli->arguments[0], s->n);
        tl_out_answer(cli, line, about);
        tl_out(cli, "\n");
    }
    tl_grid *grid = square ? square_grid(s) : long_grid(s);
    int status = tl_grid_print(cli, grid, "points");
    tl_grid_free(grid);
    if (cli->format == TL_FORMAT_TABLE && square && over)
        tl_out_item(cli, "*", "does not fit");
    if (failed)
        tl_note(cli, "%d of %d points are no plan; the first: %s", failed, s->n, said);
    if (failed == s->n && status == TL_EXIT_OK)
        status = TL_EXIT_USAGE;
    return status;
}

static int run(tl_cli *cli) {
    sweep *s = calloc(1, sizeof *s);
    words *w = calloc(1, sizeof *w);
    int status = TL_EXIT_FAILED;
    if (s && w) {
        s->cli = cli;
        snprintf(s->show, sizeof s->show, "%.159s", cli->own[OWN_SHOW] ? cli->own[OWN_SHOW] : "memory.peak_bytes");
        status = read_inputs(s);
        for (int p = 0; p < s->n && status == TL_EXIT_OK; p++)
            status = make_point(s, &s->points[p], w);
        if (status == TL_EXIT_OK)
            status = print(s);
    } else {
        tl_say(cli, "out of memory");
    }
    for (int i = 0; s && i < s->n_in; i++)
        for (int k = 0; k < s->in[i].n; k++)
            free(s->in[i].value[k]);
    if (s)
        free(s->points);
    free(s);
    free(w);
    return status;
}

const tl_verb tl_verb_sweep = {
    .name = "sweep",
    .summary = "a plan for each value of one or two inputs: a table or a picture",
    .group = TL_GROUP_BEFORE,
    .arguments = "MODEL NAME=VALUES [NAME=VALUES]",
    .words = NULL,
    .details = "NAME is any option of plan, or model; VALUES are 1,2,4 or 1..8 or 1..8+2 or\n"
               "512..8192*2. One value sets an input, several vary it. Two that vary make a\n"
               "square of --show. csv and JSON have a row a point, with plan's main values.\n\n"
               "  tally sweep gpt2 micro-batch=1..64*2 -g A100-80G\n"
               "  tally sweep gpt2 seq=512,1024 recompute=none,full --show time.step_seconds",
    .takes = TL_PLAN_TAKES,
    .does = {[TL_OPTION_OPTIM] = UINT32_MAX, [TL_OPTION_DP] = UINT32_MAX},
    .own = own_options,
    .min_arguments = 2,
    .max_arguments = INPUTS + 1,
    .run = run,
};
