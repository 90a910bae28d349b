/* cli/plan_timeline.c: memory over the step: a curve of live bytes, its phases, and who holds what at a moment. */
#include <string.h>

#include "plan_account.h"

enum { ROWS = 12, LABEL = 11, WIDEST = 240 };

bool tl_timeline_phase(const char *name, tl_phase *phase) {
    *phase = TL_PHASE_ALL;
    for (int p = TL_PHASE_FORWARD; p <= TL_PHASE_STEP; p++)
        if (strcmp(name, tl_phase_name((tl_phase)p)) == 0)
            *phase = (tl_phase)p;
    return *phase != TL_PHASE_ALL || strcmp(name, "peak") == 0;
}

/* ---- the curve ---- */

typedef struct curve {
    const tl_plan_timeline *t;
    int columns, stretches;
    int width[WIDEST]; /* of each stretch */
    int64_t most[WIDEST];
    int peak; /* its column */
} curve;

/* By their events, no stretch narrower than a column; what rounding leaves goes to, or comes from, the widest. */
static void share_columns(curve *c) {
    const tl_plan_timeline *t = c->t;
    int left = c->columns, widest = 0;
    c->stretches = t->n_stretches < c->columns ? (int)t->n_stretches : c->columns;
    for (int i = 0; i < c->stretches; i++) {
        const tl_plan_stretch *s = &t->stretches[i];
        double share = (double)(s->end - s->begin) / (double)(t->events > 0 ? t->events : 1);
        int width = (int)(share * (double)c->columns);
        c->width[i] = width < 1 ? 1 : width;
        left -= c->width[i];
        if (c->width[i] > c->width[widest])
            widest = i;
    }
    while (left < 0 && c->width[widest] > 1) {
        c->width[widest]--;
        left++;
        for (int i = 0; i < c->stretches; i++)
            widest = c->width[i] > c->width[widest] ? i : widest;
    }
    if (left > 0)
        c->width[widest] += left;
}

/* The most that lives during each column's events; where none falls into it, what lived before. */
static void fill_columns(curve *c) {
    const tl_plan_timeline *t = c->t;
    int from = 0;
    for (int i = 0; i < c->stretches; i++) {
        const tl_plan_stretch *s = &t->stretches[i];
        int64_t events = s->end > s->begin ? s->end - s->begin : 1, k = s->first, last = t->points[s->first].bytes;
        for (int column = 0; column < c->width[i]; column++) {
            int64_t most = last;
            for (bool first = true; k < s->first + s->count; k++, first = false) {
                int64_t at = t->points[k].event > s->begin ? t->points[k].event - s->begin - 1 : 0;
                if ((int64_t)((__int128)at * c->width[i] / events) > column)
                    break;
                last = t->points[k].bytes;
                most = first || last > most ? last : most;
                if (k == t->high)
                    c->peak = from + column;
            }
            c->most[from + column] = most;
        }
        from += c->width[i];
    }
}

/* Eighths of a cell that are filled; in ASCII there are less and more than half. */
static const char *cell(const tl_cli *cli, int eighths) {
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {" ", ".", ".", ".", ":", ":", ":", ":", "#"};
    int filled = eighths < 0 ? 0 : eighths > 8 ? 8 : eighths;
    return cli->utf8 ? blocks[filled] : ascii[filled];
}

static void out_rows(const tl_cli *cli, const curve *c) {
    int64_t peak = c->t->points[c->t->high].bytes > 0 ? c->t->points[c->t->high].bytes : 1;
    char line[WIDEST * 3 + 1], label[TL_TEXT];
    tl_out(cli, "%*s%s peak\n", LABEL + c->peak, "", cli->utf8 ? "▼" : "v");
    for (int row = ROWS; row > 0; row--) {
        size_t used = 0;
        label[0] = '\0';
        if (row % 3 == 0)
            tl_text_bytes((double)peak * row / ROWS, cli->units, label);
        for (int i = 0; i < c->columns; i++) {
            int eighths = (int)((__int128)c->most[i] * ROWS * 8 / peak);
            const char *text = cell(cli, eighths - (row - 1) * 8);
            memcpy(line + used, text, strlen(text));
            used += strlen(text);
        }
        while (used > 0 && line[used - 1] == ' ')
            used--;
        line[used] = '\0';
        const char *axis = cli->utf8 ? (row % 3 == 0 ? "┤" : "│") : (row % 3 == 0 ? "+" : "|");
        tl_out(cli, "%*s %s%s\n", LABEL - 2, label, axis, line);
    }
}

/* Where phases begin, and their names where there is room. */
static void out_phases_line(const tl_cli *cli, const curve *c) {
    char axis[WIDEST * 3 + 1], names[WIDEST + 1];
    size_t used = 0;
    int at = 0;
    memset(names, ' ', sizeof names);
    for (int i = 0; i < c->stretches; i++) {
        const char *name = tl_phase_name(c->t->stretches[i].phase);
        int length = (int)strlen(name);
        for (int k = 0; k < c->width[i]; k++) {
            const bool begins = k == 0 && i > 0;
            const char *mark = cli->utf8 ? (begins ? "┴" : "─") : (begins ? "+" : "-");
            memcpy(axis + used, mark, strlen(mark));
            used += strlen(mark);
        }
        if (length < c->width[i] || (length == c->width[i] && i == c->stretches - 1))
            memcpy(names + at, name, (size_t)length);
        at += c->width[i];
    }
    axis[used] = '\0';
    while (at > 0 && names[at - 1] == ' ')
        at--;
    names[at] = '\0';
    tl_out(cli, "%*s %s%s\n", LABEL - 2, "0", cli->utf8 ? "└" : "+", axis);
    tl_out(cli, "%*s%s\n", LABEL, "", names);
}

/* ---- phases and holders ---- */

static void out_stretches(const tl_cli *cli, const tl_plan_timeline *t) {
    static const tl_column columns[] = {
        {"phase", "phase", false, false, false},      {"events", "events", true, false, false},
        {"bytes", "high water", true, false, false},  {"share", "share", true, false, false},
        {"module", "in module", false, false, false}, {"op", "made by", false, false, false},
        {"site", "line", false, true, false},
    };
    char text[TL_TEXT];
    tl_grid *grid = tl_grid_new(columns, 7);
    double peak = (double)(t->points[t->high].bytes > 0 ? t->points[t->high].bytes : 1);
    for (int64_t i = 0; i < t->n_stretches; i++) {
        const tl_plan_stretch *s = &t->stretches[i];
        const tl_plan_point *p = &t->points[s->high];
        tl_grid_string(grid, tl_phase_name(s->phase), NULL);
        tl_grid_integer(grid, s->end - s->begin, NULL);
        tl_grid_integer(grid, p->bytes, tl_text_bytes((double)p->bytes, cli->units, text));
        snprintf(text, sizeof text, "%.1f %%", 100 * (double)p->bytes / peak);
        tl_grid_real(grid, (double)p->bytes / peak, text);
        tl_grid_string(grid, p->module, p->begins ? "(as it begins)" : p->module[0] ? NULL : "the model");
        tl_grid_string(grid, p->op, p->op[0] ? NULL : "-");
        tl_grid_string(grid, p->site, p->site[0] ? NULL : "-");
    }
    tl_grid_print(cli, grid, "phases");
    tl_grid_free(grid);
}

typedef struct moment {
    tl_peak peak;
    tl_plan_holder top[TL_PLAN_TOP];
    int count;
    int64_t dropped;
} moment;

static int read_moment(const tl_cli *cli, const tl_account *a, moment *m) {
    tl_error error = {TL_OK, ""};
    const tl_plan_run *run = &a->timeline->run;
    tl_ledger_phase_peak(run->ctx, a->at, &m->peak);
    return tl_plan_top(run, a->at, m->top, &m->count, &m->dropped, &error) == TL_OK ? TL_EXIT_OK
                                                                                    : tl_failed(cli, &error);
}

static const char *or_else(const char *text, const char *other) { return text && text[0] ? text : other; }

int tl_timeline_page(const tl_cli *cli, const tl_account *a) {
    const tl_plan_timeline *t = a->timeline;
    const tl_plan_point *high = &t->points[t->high];
    curve c = {.t = t, .columns = cli->width - LABEL < WIDEST ? cli->width - LABEL : WIDEST};
    char bytes[TL_TEXT], events[TL_TEXT];
    moment m;
    int status = read_moment(cli, a, &m);
    if (status != TL_EXIT_OK)
        return status;
    share_columns(&c);
    fill_columns(&c);
    tl_out_item(cli, "step", "live bytes over %s allocations and releases, from left to right%s",
                tl_text_grouped((tl_u128)t->events, events),
                a->plan.accumulation > 2 ? "; two micro-batches stand for all" : "");
    tl_out(cli, "\n");
    out_rows(cli, &c);
    out_phases_line(cli, &c);
    tl_out(cli, "\n");
    out_stretches(cli, t);
    tl_out(cli, "\n");
    tl_out_item(cli, "peak at", "%s, %s, %s%s%s%s: %s, event %s", tl_phase_name(high->phase),
                or_else(high->module, "no module"), or_else(high->op, "no op"), high->site[0] ? " (" : "", high->site,
                high->site[0] ? ")" : "", tl_text_bytes((double)high->bytes, cli->units, bytes),
                tl_text_grouped((tl_u128)high->event, events));
    if (a->at == TL_PHASE_ALL)
        tl_out_item(cli, "top", "at the peak");
    else
        tl_out_item(cli, "top", "at the most of %s: %s, %s, %s%s%s%s", tl_phase_name(a->at),
                    tl_text_bytes((double)m.peak.bytes, cli->units, bytes), or_else(m.peak.module, "no module"),
                    or_else(m.peak.op, "as it begins"), m.peak.site ? " (" : "", or_else(m.peak.site, ""),
                    m.peak.site ? ")" : "");
    tl_out(cli, "\n");
    tl_account_top(cli, m.top, m.count, m.peak.bytes);
    tl_out(cli, "\n");
    tl_out_item(cli, "account", "%s", a->command);
    return TL_EXIT_OK;
}

int tl_timeline_table(const tl_cli *cli, const tl_account *a) {
    static const tl_column columns[] = {
        {"event", "event", true, false, false},      {"phase", "phase", false, false, false},
        {"module", "module", false, false, false},   {"op", "op", false, false, false},
        {"bytes", "live bytes", true, false, false},
    };
    tl_grid *grid = tl_grid_new(columns, 5);
    for (int64_t i = 0; i < a->timeline->n_points; i++) {
        const tl_plan_point *p = &a->timeline->points[i];
        tl_grid_integer(grid, p->event, NULL);
        tl_grid_string(grid, tl_phase_name(p->phase), NULL);
        tl_grid_string(grid, p->module, NULL);
        tl_grid_string(grid, p->op, NULL);
        tl_grid_integer(grid, p->bytes, NULL);
    }
    int status = tl_grid_print(cli, grid, "timeline");
    tl_grid_free(grid);
    return status;
}

static void put_where(tl_json *json, const char *module, const char *op, const char *site) {
    tl_json_put_string(json, "module", module ? module : "");
    tl_json_put_string(json, "op", op ? op : "");
    if (site)
        tl_json_put_string(json, "site", site);
}

int tl_timeline_json(const tl_cli *cli, tl_json *json, const tl_account *a) {
    const tl_plan_timeline *t = a->timeline;
    moment m;
    int status = read_moment(cli, a, &m);
    if (status != TL_EXIT_OK)
        return status;
    tl_json_put_integer(json, "timeline_events", t->events);
    tl_json_key(json, "timeline");
    tl_json_array(json);
    for (int64_t i = 0; i < t->n_points; i++) {
        const tl_plan_point *p = &t->points[i];
        tl_json_object(json);
        tl_json_put_integer(json, "event", p->event);
        tl_json_put_string(json, "phase", tl_phase_name(p->phase));
        put_where(json, p->module, p->op, NULL);
        tl_json_put_integer(json, "bytes", p->bytes);
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_key(json, "phases");
    tl_json_array(json);
    for (int64_t i = 0; i < t->n_stretches; i++) {
        const tl_plan_stretch *s = &t->stretches[i];
        const tl_plan_point *p = &t->points[s->high];
        tl_json_object(json);
        tl_json_put_string(json, "phase", tl_phase_name(s->phase));
        tl_json_put_integer(json, "begin", s->begin);
        tl_json_put_integer(json, "end", s->end);
        tl_json_put_integer(json, "peak_bytes", p->bytes);
        tl_json_put_integer(json, "peak_event", p->event);
        put_where(json, p->module, p->op, p->site);
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_key(json, "at");
    tl_json_object(json);
    tl_json_put_string(json, "phase", a->at == TL_PHASE_ALL ? "peak" : tl_phase_name(a->at));
    tl_json_put_integer(json, "bytes", m.peak.bytes);
    put_where(json, m.peak.module, m.peak.op, m.peak.site ? m.peak.site : "");
    tl_account_top_json(json, m.top, m.count);
    tl_json_end(json);
    return TL_EXIT_OK;
}
