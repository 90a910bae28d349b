/* cli/explain_out.c: formulas, symbols and derivations for people and machines. */
#include <string.h>

#include "explain_out.h"

const char *tl_explained_text(const tl_plan_run *run, const tl_poly *p, int style) {
    const char *text = tl_poly_text(tl_ctx_space(run->ctx), p, style);
    return text ? text : "?";
}

char *tl_explained_value(tl_u128 value, char *buffer) { return tl_text_grouped(value, buffer); }

double tl_explained_share(tl_u128 part, tl_u128 whole) {
    return whole ? tl_u128_double(part) / tl_u128_double(whole) : 0;
}

static bool occurs(const tl_plan_run *run, const char *symbol, const tl_poly *const formulas[]) {
    for (int i = 0; formulas[i]; i++)
        if (tl_poly_uses(tl_ctx_space(run->ctx), formulas[i], symbol))
            return true;
    return false;
}

/* Pieces joined by " | ", broken only between pieces. */
typedef struct tl_pieces {
    const tl_cli *cli;
    const char *label;
    char line[1024];
} tl_pieces;

static void pieces_flush(tl_pieces *p) {
    if (p->line[0]) {
        tl_out_item(p->cli, p->label, "%s", p->line);
        p->label = "";
        p->line[0] = '\0';
    }
}

static void pieces_add(tl_pieces *p, const char *piece) {
    size_t at = strlen(p->line);
    if (at && 13 + tl_text_columns(p->line, at) + 3 + tl_text_columns(piece, strlen(piece)) >= p->cli->width) {
        pieces_flush(p);
        at = 0;
    }
    snprintf(p->line + at, sizeof p->line - at, "%s%s", at ? " | " : "", piece);
}

void tl_explained_symbols_out(const tl_explained *e, const tl_plan_run *run, const tl_poly *const formulas[]) {
    enum { N_FIRST = 11 };
    static const char *const first[N_FIRST + 1] = {"N", "D", "H", "G", "K", "F", "V", "C", "B", "T", "A"};
    const tl_symbol *symbols;
    int n = tl_space_symbols(tl_ctx_space(run->ctx), &symbols);
    tl_pieces p = {.cli = e->cli, .label = "where"};
    for (int pass = 0; pass <= N_FIRST; pass++) /* the last for all others */
        for (int i = 0; i < n; i++) {
            char piece[256];
            bool listed = false;
            for (int k = 0; first[k]; k++)
                listed |= strcmp(first[k], symbols[i].name) == 0;
            bool now = first[pass] ? strcmp(first[pass], symbols[i].name) == 0 : !listed;
            if (!now || !occurs(run, symbols[i].name, formulas))
                continue;
            snprintf(piece, sizeof piece, "%s %lld %s", symbols[i].name, (long long)symbols[i].value,
                     symbols[i].source);
            pieces_add(&p, piece);
        }
    pieces_flush(&p);
}

void tl_explained_symbols_json(tl_json *json, const tl_plan_run *run, const tl_poly *const formulas[]) {
    const tl_symbol *symbols;
    int n = tl_space_symbols(tl_ctx_space(run->ctx), &symbols);
    tl_json_key(json, "symbols");
    tl_json_object(json);
    for (int i = 0; i < n; i++) {
        if (!occurs(run, symbols[i].name, formulas))
            continue;
        tl_json_key(json, symbols[i].name);
        tl_json_object(json);
        tl_json_put_integer(json, "value", symbols[i].value);
        tl_json_put_string(json, "source", symbols[i].source);
        tl_json_end(json);
    }
    tl_json_end(json);
}

void tl_explained_shares_out(const tl_explained *e, const char *label, const tl_explain_sum *sum) {
    tl_explain_sum groups;
    tl_error error = {TL_OK, ""};
    tl_pieces p = {.cli = e->cli, .label = label};
    if (tl_explain_grouped(sum, &groups, &error) != TL_OK)
        return;
    for (int i = 0; i < groups.count; i++) {
        char piece[96];
        snprintf(piece, sizeof piece, "%s %.2f %%", groups.term[i].group,
                 100 * tl_explained_share(groups.term[i].value, sum->value));
        pieces_add(&p, piece);
    }
    pieces_flush(&p);
    tl_explain_free(&groups);
}

/* "(N − 1) × [8·D] + last N [4·D]" */
static void parts_text(const tl_plan_run *run, const tl_explain_term *t, char *out, size_t size) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < t->n_parts && at < size; i++) {
        const tl_fold_term *part = &t->part[i];
        int64_t one, over;
        const char *content = tl_explained_text(run, part->content, 0);
        bool once = tl_poly_is_constant(part->times, &one, &over) && one == 1 && over == 1;
        const char *times = tl_explained_text(run, part->times, 0);
        const char *open = strchr(times, ' ') ? "(" : "", *close = open[0] ? ")" : "";
        int n;
        if (once && !part->where[0])
            n = snprintf(out + at, size - at, "%s%s", i ? " + " : "", content);
        else if (once)
            n = snprintf(out + at, size - at, "%s%s [%s]", i ? " + " : "", part->where, content);
        else
            n = snprintf(out + at, size - at, "%s%s%s%s × [%s]%s%s", i ? " + " : "", open, times, close, content,
                         part->where[0] ? " at " : "", part->where);
        at += n > 0 ? (size_t)n : 0;
    }
}

/* Is there more to say than the folded formula says? A lone class of N iterations is that formula. */
static bool has_parts(const tl_plan_run *run, const tl_explain_term *t) {
    return t->n_parts > 1 ||
           (t->n_parts == 1 && (t->part[0].where[0] || strchr(tl_explained_text(run, t->part[0].times, 0), ' ')));
}

static void step_out(const tl_explained *e, const tl_explain_sum *sum, const tl_explain_term *t) {
    char value[TL_TEXT], plain[TL_U128_DIGITS], parts[2048] = "", put_in[4096] = "";
    if (has_parts(sum->run, t))
        parts_text(sum->run, t, parts, sizeof parts);
    const char *formula = parts[0] ? parts : tl_explained_text(sum->run, t->formula, 0);
    const char *numbers = tl_explained_text(sum->run, t->formula, TL_FORMULA_NUMBERS);
    const char *what = t->what[0] && t->pattern[0] && strcmp(t->what, t->group) != 0 ? t->what : "";
    if (strcmp(numbers, tl_u128_text(t->value, plain)) != 0) /* else the value says it */
        snprintf(put_in, sizeof put_in, "\n= %.4000s", numbers);
    tl_out_item(e->cli, t->group, "%s%s%s%s%s%s\n= %s   %.2f %%", t->pattern, what[0] ? " " : "", what,
                t->pattern[0] ? "\n= " : "", formula, put_in, tl_explained_value(t->value, value),
                100 * tl_explained_share(t->value, sum->value));
}

void tl_explained_steps_out(const tl_explained *e, const char *title, const tl_explain_sum *sum) {
    char value[TL_TEXT];
    tl_out(e->cli, "\n");
    if (title)
        tl_out(e->cli, "%s\n", title);
    for (int i = 0; i < sum->count; i++)
        step_out(e, sum, &sum->term[i]);
    tl_out_item(e->cli, "sum", "= %s\n= %s\n= %s", tl_explained_text(sum->run, sum->formula, 0),
                tl_explained_text(sum->run, sum->formula, TL_FORMULA_NUMBERS), tl_explained_value(sum->value, value));
}

static void assumed(const tl_explained *e, const tl_plan_run *run, tl_notes *all) {
    const char *const *texts;
    int n = tl_ctx_assumptions(run->ctx, &texts);
    *all = e->assumed;
    for (int i = 0; i < n; i++)
        tl_notes_add(all, "%s", texts[i]);
    for (int i = 0; i < e->options.model.n_assumed; i++)
        tl_notes_add(all, "%s", e->options.model.assumed[i]);
}

void tl_explained_assumed_out(const tl_explained *e, const tl_plan_run *run) {
    tl_notes all;
    assumed(e, run, &all);
    tl_notes_out(e->cli, "assumed", &all);
}

void tl_explained_assumed_json(const tl_explained *e, const tl_plan_run *run, tl_json *json) {
    tl_notes all;
    assumed(e, run, &all);
    tl_notes_json(json, "assumptions", &all);
}

void tl_explained_pair_json(tl_json *json, const tl_plan_run *run, const char *key, tl_u128 value, const tl_poly *p) {
    tl_json_key(json, key);
    tl_json_object(json);
    tl_json_put_unsigned(json, "value", value);
    tl_json_put_string(json, "formula", tl_explained_text(run, p, 0));
    tl_json_end(json);
}

void tl_explained_json(tl_json *json, const char *name, const char *unit, const tl_explain_sum *sum,
                       const tl_poly *const formulas[]) {
    tl_json_put_string(json, "name", name);
    tl_json_put_unsigned(json, "value", sum->value);
    tl_json_put_string(json, "unit", unit);
    tl_json_put_string(json, "formula", tl_explained_text(sum->run, sum->formula, 0));
    tl_json_key(json, "terms");
    tl_json_array(json);
    for (int i = 0; i < sum->count; i++) {
        const tl_explain_term *t = &sum->term[i];
        char parts[2048] = "";
        tl_json_object(json);
        tl_json_put_string(json, "name", t->pattern[0] ? t->pattern : t->group);
        tl_json_put_string(json, "group", t->group);
        if (t->what[0])
            tl_json_put_string(json, "what", t->what);
        tl_json_put_string(json, "formula", tl_explained_text(sum->run, t->formula, 0));
        if (has_parts(sum->run, t)) {
            parts_text(sum->run, t, parts, sizeof parts);
            tl_json_put_string(json, "unexpanded", parts);
        }
        tl_json_put_unsigned(json, "value", t->value);
        tl_json_put_real(json, "share", tl_explained_share(t->value, sum->value));
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_explained_symbols_json(json, sum->run, formulas);
}

int tl_explained_print_grid(const tl_explained *e, const tl_explain_sum *sum) {
    static const tl_column columns[] = {
        {"group", "part", false, false, false}, {"name", "module", false, false, false},
        {"what", "op", false, false, false},    {"formula", "formula", false, false, false},
        {"value", "value", true, false, false}, {"share", "share", true, false, false},
    };
    tl_grid *grid = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    for (int i = 0; i <= sum->count; i++) {
        char value[TL_TEXT], percent[32];
        bool total = i == sum->count;
        const tl_explain_term *t = total ? NULL : &sum->term[i];
        tl_u128 number = total ? sum->value : t->value;
        double share = tl_explained_share(number, sum->value);
        snprintf(percent, sizeof percent, "%.2f %%", 100 * share);
        tl_grid_string(grid, total ? "sum" : t->group, NULL);
        tl_grid_string(grid, total ? "" : t->pattern, NULL);
        tl_grid_string(grid, total ? "" : t->what, NULL);
        tl_grid_string(grid, tl_explained_text(sum->run, total ? sum->formula : t->formula, 0), NULL);
        tl_grid_unsigned(grid, number, tl_explained_value(number, value));
        tl_grid_real(grid, share, percent);
    }
    int status = tl_grid_print(e->cli, grid, "terms");
    tl_grid_free(grid);
    return status;
}
