/* cli/explain_memory.c: tally explain MODEL memory. */
#include <string.h>

#include "explain_out.h"

typedef struct tl_bytes {
    tl_explain_sum live, categories;
    tl_peak peak, phase[TL_PHASE_COUNT];
    tl_phase runner_up;
    tl_explain_swap phases, moments;
} tl_bytes;

/* "backward, at layers.31.mlp (softmax_backward)" */
static void place_text(tl_phase phase, const char *module, const char *op, char *out, size_t size) {
    bool at = module && module[0], by = op && op[0];
    snprintf(out, size, "%s%s%s%s%s%s", tl_phase_name(phase), at ? " at " : "", at ? module : "", by ? " (" : "",
             by ? op : "", by ? ")" : "");
}

static tl_status bytes_make(const tl_explained *e, tl_bytes *b, tl_error *error) {
    memset(b, 0, sizeof *b);
    tl_status status = tl_explain_memory(&e->run, TL_PHASE_ALL, &b->live, error);
    if (status == TL_OK)
        status = tl_explain_grouped(&b->live, &b->categories, error);
    tl_ledger_peak(e->run.ctx, &b->peak);
    b->runner_up = TL_PHASE_COUNT;
    for (int p = TL_PHASE_FORWARD; p <= TL_PHASE_STEP && status == TL_OK; p++) {
        tl_explain_sum of_phase; /* made for its check alone: a phase whose formula is wrong is not printed */
        status = tl_explain_memory(&e->run, (tl_phase)p, &of_phase, error);
        if (status != TL_OK)
            break;
        tl_explain_free(&of_phase);
        tl_ledger_phase_peak(e->run.ctx, (tl_phase)p, &b->phase[p]);
        if ((tl_phase)p != b->peak.phase &&
            (b->runner_up == TL_PHASE_COUNT || b->phase[p].bytes > b->phase[b->runner_up].bytes))
            b->runner_up = (tl_phase)p;
    }
    if (status == TL_OK)
        status = tl_explain_swap_find(&e->options, &b->phases, &b->moments, error);
    return status;
}

static const tl_explain_term *category(const tl_bytes *b, const char *name) {
    for (int i = 0; i < b->categories.count; i++)
        if (strcmp(b->categories.term[i].group, name) == 0)
            return &b->categories.term[i];
    return NULL;
}

static void categories_out(const tl_explained *e, const tl_bytes *b) {
    char size[TL_TEXT];
    for (int c = 0; c < TL_CATEGORY_COUNT; c++) {
        const tl_explain_term *t = category(b, tl_category_name((tl_category)c));
        if (t)
            tl_out_item(e->cli, t->group, "%8s %5.1f %%\n= %s",
                        tl_text_bytes(tl_u128_double(t->value), e->cli->units, size),
                        100 * tl_explained_share(t->value, b->live.value), tl_explained_text(&e->run, t->formula, 0));
    }
}

static void phases_out(const tl_explained *e, const tl_bytes *b) {
    char size[TL_TEXT], place[320];
    for (int p = TL_PHASE_FORWARD; p <= TL_PHASE_STEP; p++) {
        place_text((tl_phase)p, b->phase[p].module, b->phase[p].op, place, sizeof place);
        tl_out_item(e->cli, p == TL_PHASE_FORWARD ? "phases" : "", "%8s  %s%s",
                    tl_text_bytes((double)b->phase[p].bytes, e->cli->units, size), place,
                    (tl_phase)p == b->peak.phase  ? ": the peak"
                    : (tl_phase)p == b->runner_up ? ": the runner-up"
                                                  : "");
    }
}

/* "T from 1 to 1,000,000" */
static void range_text(const tl_explain_swap *s, int which, char *out, size_t size) {
    char low[TL_TEXT], high[TL_TEXT];
    snprintf(out, size, "%s from %s to %s", which ? "B" : "T", tl_text_grouped((tl_u128)s->lowest[which], low),
             tl_text_grouped((tl_u128)s->highest[which], high));
}

static void swap_out(const tl_explained *e, const tl_bytes *b) {
    const tl_explain_swap *s = &b->phases, *m = &b->moments;
    char place[320], now[320], T[192] = "", B[192];
    range_text(s, 1, B, sizeof B);
    if (s->highest[0]) {
        range_text(s, 0, T, sizeof T);
        snprintf(T + strlen(T), sizeof T - strlen(T), ", nor for ");
    }
    if (s->found)
        tl_out_item(e->cli, "swap", "%s takes the peak over from %s at %s = %lld (at %lld it does not)",
                    tl_phase_name(s->other.phase), tl_phase_name(s->now.phase), s->symbol, (long long)s->to,
                    (long long)s->from);
    else
        tl_out_item(e->cli, "swap", "no other phase takes the peak over for %s%s (the rest as it is)", T, B);
    if (!m->found || (s->found && m->to == s->to && strcmp(m->symbol, s->symbol) == 0))
        return;
    place_text(m->other.phase, m->other.pattern, m->other.op, place, sizeof place);
    place_text(m->now.phase, m->now.pattern, m->now.op, now, sizeof now);
    tl_out_item(e->cli, "moves", "at %s = %lld the peak lies in %s, at %lld still in %s", m->symbol, (long long)m->to,
                place, (long long)m->from, now);
}

static void memory_text(const tl_explained *e, const tl_bytes *b) {
    const tl_cli *cli = e->cli;
    const tl_poly *const formulas[] = {b->live.formula, NULL};
    char size[TL_TEXT], value[TL_TEXT], line[2 * TL_TEXT + 8], place[320];
    place_text(b->peak.phase, b->peak.module, b->peak.op, place, sizeof place);
    snprintf(line, sizeof line, "%s = %s B", tl_text_bytes((double)b->peak.bytes, cli->units, size),
             tl_explained_value((tl_u128)b->peak.bytes, value));
    tl_out_answer(cli, line, place);
    categories_out(e, b);
    tl_out_item(cli, "peak", "= %s", tl_explained_text(&e->run, b->live.formula, 0));
    phases_out(e, b);
    swap_out(e, b);
    tl_explained_symbols_out(e, &e->run, formulas);
    if (e->steps) {
        tl_explained_steps_out(e, "live at the peak", &b->live);
        tl_out(cli, "\n");
    }
    tl_explained_assumed_out(e, &e->run);
    tl_out_item(cli, "leaves out", "what the allocator loses and what the driver takes; `tally plan' has both");
    if (!e->steps)
        tl_out_item(cli, "next:", "tally explain %.100s memory --steps\n  (by module, line by line)", e->asked);
}

static void swap_json(tl_json *json, const char *key, const tl_explain_swap *s) {
    char place[320];
    tl_json_key(json, key);
    if (!s->found) {
        tl_json_null(json);
        return;
    }
    place_text(s->other.phase, s->other.pattern, s->other.op, place, sizeof place);
    tl_json_object(json);
    tl_json_put_string(json, "symbol", s->symbol);
    tl_json_put_integer(json, "from", s->from);
    tl_json_put_integer(json, "to", s->to);
    tl_json_put_string(json, "phase", tl_phase_name(s->other.phase));
    tl_json_put_string(json, "at", place);
    tl_json_end(json);
}

static int memory_json(const tl_explained *e, const tl_bytes *b) {
    const tl_poly *const formulas[] = {b->live.formula, NULL};
    tl_json *json = tl_cli_json_open(e->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_explained_json(json, "memory", "B", &b->live, formulas);
    tl_json_put_string(json, "peak_phase", tl_phase_name(b->peak.phase));
    tl_json_put_string(json, "peak_module", b->peak.module);
    tl_json_put_string(json, "peak_op", b->peak.op);
    tl_json_key(json, "by_category");
    tl_json_object(json);
    for (int i = 0; i < b->categories.count; i++)
        tl_explained_pair_json(json, &e->run, b->categories.term[i].group, b->categories.term[i].value,
                               b->categories.term[i].formula);
    tl_json_end(json);
    tl_json_key(json, "phases");
    tl_json_object(json);
    for (int p = TL_PHASE_FORWARD; p <= TL_PHASE_STEP; p++)
        tl_json_put_integer(json, tl_phase_name((tl_phase)p), b->phase[p].bytes);
    tl_json_end(json);
    tl_json_put_string(json, "runner_up", tl_phase_name(b->runner_up));
    swap_json(json, "phase_swap", &b->phases);
    swap_json(json, "peak_moves", &b->moments);
    tl_explained_assumed_json(e, &e->run, json);
    return tl_cli_json_close(e->cli, json);
}

int tl_explain_topic_memory(tl_explained *e) {
    tl_bytes b;
    tl_error error = {TL_OK, ""};
    int status = TL_EXIT_OK;
    if (bytes_make(e, &b, &error) != TL_OK)
        status = tl_failed(e->cli, &error);
    else if (e->cli->format == TL_FORMAT_JSON)
        status = memory_json(e, &b);
    else if (e->cli->format != TL_FORMAT_TABLE)
        status = tl_explained_print_grid(e, &b.live);
    else
        memory_text(e, &b);
    if (b.live.run)
        tl_explain_free(&b.live);
    if (b.categories.run)
        tl_explain_free(&b.categories);
    return status;
}
