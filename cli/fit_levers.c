/* cli/fit_levers.c: tally fit batch|context MODEL --levers: the largest that fits with each lever, alone and together.
 *
 * --json: {"schema","verb":"fit","what","model","device","capacity_bytes","usable_bytes",
 *   "levers":[{"change" ("" as asked),"value" (null: nothing fits),"arena_bytes","peak_bytes","peak_phase","param","grad","master",
 *              "optim","saved","work","next_bytes" (null: the model is the limit),"extra_percent","effect","alone"}],
 *   "largest_lever","farthest" (each {"change","value","as_asked"}; null where none brings more),"runs","assumptions","leaves_out"}
 */
#include <stdlib.h>
#include <string.h>

#include "fit.h"

static const char *noun(tl_fit_what what) { return what == TL_FIT_BATCH ? "micro-batch" : "sequence"; }

/* Executed FLOPs more than as asked, at the same size. */
static double extra_percent(const tl_plan_lever_row *row) {
    double asked = tl_u128_double(row->asked_per_step);
    return asked > 0 ? 100 * (tl_u128_double(row->hardware_per_step) / asked - 1) : 0;
}

static int64_t state_of(const tl_plan_lever_row *row) {
    const int64_t *at = row->peak.by_category;
    return at[TL_PARAM] + at[TL_GRAD] + at[TL_MASTER] + at[TL_OPTIM];
}

static void bytes_cell(const tl_cli *cli, tl_grid *grid, int64_t bytes) {
    char text[TL_TEXT];
    tl_grid_integer(grid, bytes, tl_text_bytes((double)bytes, cli->units, text));
}

static tl_grid *rows_of(const tl_cli *cli, const tl_plan_levers *levers) {
    static const tl_column columns[] = {
        {"change", "lever", false, false, false},
        {"value", "most", true, false, false},
        {"arena_bytes", "needs", true, false, false},
        {"state_bytes", "state", true, false, false},
        {"peak_bytes", NULL, true, false, false},
        {"peak_phase", "peak in", false, false, false},
        {"param", NULL, true, false, false},
        {"grad", NULL, true, false, false},
        {"master", NULL, true, false, false},
        {"optim", NULL, true, false, false},
        {"saved", "kept", true, false, false},
        {"work", "work", true, false, false},
        {"next_bytes", "one more", true, false, false},
        {"extra_percent", "FLOPs", true, false, false},
        {"effect", "effect", false, false, false},
        {"alone", NULL, false, false, false},
    };
    static const tl_category each[] = {TL_PARAM, TL_GRAD, TL_MASTER, TL_OPTIM, TL_SAVED, TL_WORK};
    char text[TL_TEXT];
    tl_grid *grid = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    for (int i = 0; i < levers->count; i++) {
        const tl_plan_lever_row *row = &levers->row[i];
        tl_grid_string(grid, row->change, row->change[0] ? row->change : "as asked");
        if (row->largest.value)
            tl_grid_integer(grid, row->largest.value, tl_text_grouped((tl_u128)row->largest.value, text));
        else
            tl_grid_null(grid);
        bytes_cell(cli, grid, row->largest.bytes);
        bytes_cell(cli, grid, state_of(row));
        bytes_cell(cli, grid, row->largest.peak_bytes);
        tl_grid_string(grid, tl_phase_name(row->peak.phase), NULL);
        for (size_t c = 0; c < sizeof each / sizeof each[0]; c++)
            bytes_cell(cli, grid, row->peak.by_category[each[c]]);
        if (row->largest.next_bytes)
            bytes_cell(cli, grid, row->largest.next_bytes);
        else
            tl_grid_null(grid);
        snprintf(text, sizeof text, "%+.1f %%", extra_percent(row));
        tl_grid_real(grid, extra_percent(row), text);
        tl_grid_string(grid, row->effect, NULL);
        tl_grid_boolean(grid, row->alone, NULL);
    }
    return grid;
}

/* One line each, two where the lever's text takes the place of the numbers. */
static void out_rows(const tl_cli *cli, const tl_plan_levers *levers) {
    enum { NUMBERS = 45, GAP = 2 };
    char most[TL_TEXT];
    int digits = 7;
    for (int i = 0; i < levers->count; i++) {
        tl_text_grouped((tl_u128)levers->row[i].largest.value, most);
        digits = (int)strlen(most) > digits ? (int)strlen(most) : digits;
    }
    const int left = cli->width - NUMBERS - digits, wide = left > 72 ? 72 : left;
    tl_out(cli, "%-*s%*s%9s%9s%9s%9s%9s\n", wide, "lever", digits, "most", "needs", "state", "kept", "work", "FLOPs");
    for (int i = 0; i < levers->count; i++) {
        const tl_plan_lever_row *row = &levers->row[i];
        char needs[TL_TEXT], state[TL_TEXT], kept[TL_TEXT], work[TL_TEXT], flops[32];
        const char *name = row->change[0] ? row->change : "as asked";
        bool long_name = (int)strlen(name) + GAP > wide;
        tl_text_grouped((tl_u128)row->largest.value, most);
        tl_text_bytes((double)row->largest.bytes, cli->units, needs);
        tl_text_bytes((double)state_of(row), cli->units, state);
        tl_text_bytes((double)row->peak.by_category[TL_SAVED], cli->units, kept);
        tl_text_bytes((double)row->peak.by_category[TL_WORK], cli->units, work);
        snprintf(flops, sizeof flops, "%+.1f %%", extra_percent(row));
        if (long_name)
            tl_out_wrapped(cli, 2, "", name);
        tl_out(cli, "%-*s%*s%9s%9s%9s%9s%9s\n", wide, long_name ? "" : name, digits, row->largest.value ? most : "none",
               needs, state, kept, work, flops);
    }
}

static void out_named(const tl_cli *cli, const char *label, const tl_plan_levers *levers, int index, tl_fit_what what) {
    const tl_plan_lever_row *asked = &levers->row[0], *row = &levers->row[index];
    char now[TL_TEXT], was[TL_TEXT], less[TL_TEXT];
    if (index == 0) {
        tl_out_item(cli, label, "none brings more than as asked");
        return;
    }
    tl_text_grouped((tl_u128)row->largest.value, now), tl_text_grouped((tl_u128)asked->largest.value, was);
    if (row->largest.value > asked->largest.value)
        tl_out_item(cli, label, "%s: %s %s instead of %s", row->change, noun(what), now,
                    asked->largest.value ? was : "none");
    else
        tl_out_item(cli, label, "%s: %s, in %s less", row->change, asked->largest.value ? "as much" : "still none",
                    tl_text_bytes((double)(asked->largest.bytes - row->largest.bytes), cli->units, less));
}

/* What brings more than the farthest of levers, at the price of another run. */
static void out_beyond(const tl_cli *cli, const tl_plan_levers *levers, tl_fit_what what) {
    int best = levers->farthest;
    char most[TL_TEXT];
    for (int i = 0; i < levers->count; i++)
        if (levers->row[i].largest.value > levers->row[best].largest.value)
            best = i;
    const tl_plan_lever_row *row = &levers->row[best];
    if (best != levers->farthest)
        tl_out_item(cli, "beyond", "%s: %s %s (%s)", row->change, noun(what),
                    tl_text_grouped((tl_u128)row->largest.value, most), row->effect);
}

static void json_named(tl_json *json, const char *key, const tl_plan_levers *levers, int index) {
    tl_json_key(json, key);
    if (index == 0) {
        tl_json_null(json);
        return;
    }
    tl_json_object(json);
    tl_json_put_string(json, "change", levers->row[index].change);
    tl_json_put_integer(json, "value", levers->row[index].largest.value);
    tl_json_put_integer(json, "as_asked", levers->row[0].largest.value);
    tl_json_end(json);
}

static int print_json(const tl_fit_levers_asked *a, const tl_plan_levers *levers, const tl_grid *grid) {
    tl_json *json = tl_cli_json_open(a->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "what", a->what == TL_FIT_BATCH ? "batch" : "context");
    tl_json_put_string(json, "model", a->options->model.name);
    tl_json_put_string(json, "device", a->device);
    tl_json_put_integer(json, "capacity_bytes", a->capacity);
    tl_json_put_integer(json, "usable_bytes", a->usable);
    tl_json_key(json, "levers");
    tl_json_array(json);
    for (int i = 0; i < levers->count; i++) {
        tl_json_object(json);
        tl_grid_json_row(grid, i, json);
        tl_json_end(json);
    }
    tl_json_end(json);
    json_named(json, "largest_lever", levers, levers->largest);
    json_named(json, "farthest", levers, levers->farthest);
    tl_json_put_integer(json, "runs", levers->runs);
    tl_notes_json(json, "assumptions", a->assumed);
    tl_notes_json(json, "leaves_out", a->left_out);
    return tl_cli_json_close(a->cli, json);
}

static int print_page(const tl_fit_levers_asked *a, const tl_plan_levers *levers) {
    const tl_cli *cli = a->cli;
    const tl_plan_lever_row *asked = &levers->row[0], *most = &levers->row[levers->farthest];
    char line[200], about[200], was[TL_TEXT], now[TL_TEXT], has[TL_TEXT];
    tl_text_grouped((tl_u128)asked->largest.value, was), tl_text_grouped((tl_u128)most->largest.value, now);
    if (asked->largest.value)
        snprintf(line, sizeof line, "%s %s as asked, %s with all that helps", noun(a->what), was, now);
    else if (most->largest.value)
        snprintf(line, sizeof line, "nothing fits as asked, %s %s with all that helps", noun(a->what), now);
    else
        snprintf(line, sizeof line, "nothing fits as asked, nor with all that helps and trains the same");
    snprintf(about, sizeof about, "(%s usable on %s)", tl_text_bytes((double)a->usable, cli->units, has), a->device);
    tl_out_answer(cli, line, about);
    tl_out(cli, "\n");
    out_rows(cli, levers);
    tl_out(cli, "\n");
    out_named(cli, "largest lever", levers, levers->largest, a->what);
    out_named(cli, "farthest", levers, levers->farthest, a->what);
    out_beyond(cli, levers, a->what);
    tl_out_item(cli, "reads",
                "most: the largest %s that fits; state: weights, gradients, copies and optimizer states at the "
                "peak; kept: for backward; FLOPs: executed in a step, against the same step as asked",
                noun(a->what));
    tl_out_item(cli, "found by", "%d plans on meta; nothing extrapolated", levers->runs);
    tl_notes_out(cli, "assumed", a->assumed);
    tl_notes_out(cli, "leaves out", a->left_out);
    return TL_EXIT_OK;
}

int tl_fit_levers(const tl_fit_levers_asked *a) {
    tl_error error = {TL_OK, ""};
    tl_plan_levers *levers = calloc(1, sizeof *levers);
    if (!levers) {
        tl_say(a->cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    tl_plan_axis axis = a->what == TL_FIT_BATCH ? TL_PLAN_MICRO_BATCH : TL_PLAN_SEQ;
    if (tl_plan_find_levers(a->options, axis, levers, &error) != TL_OK) {
        free(levers);
        return tl_failed(a->cli, &error);
    }
    tl_grid *grid = rows_of(a->cli, levers);
    bool any = false;
    for (int i = 0; i < levers->count; i++)
        any = any || levers->row[i].largest.value;
    int status = a->cli->format == TL_FORMAT_JSON    ? print_json(a, levers, grid)
                 : a->cli->format == TL_FORMAT_TABLE ? print_page(a, levers)
                                                     : tl_grid_print(a->cli, grid, "levers");
    tl_grid_free(grid);
    free(levers);
    return status == TL_EXIT_OK && !any ? TL_EXIT_VIOLATED : status;
}
