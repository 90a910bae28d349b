/* The live set at a peak as formulas, and where another phase would take the peak over. */
#include "plan/explain.h"

#include <stdio.h>
#include <string.h>

static bool gather_live(void *user, const tl_live_entry *e) {
    tl_gather *g = user;
    bool by_module = e->category == TL_SAVED || e->category == TL_WORK;
    tl_gather_add(g, by_module ? e->pattern : "", tl_category_name(e->category), e->region, (tl_u128)e->bytes,
                  e->formula);
    return !g->failed;
}

tl_status tl_explain_memory(const tl_plan_run *run, tl_phase phase, tl_explain_sum *sum, tl_error *error) {
    tl_gather g;
    tl_peak peak;
    tl_ledger_phase_peak(run->ctx, phase, &peak);
    tl_gather_begin(&g, run, sum);
    g.moment = &peak;
    bool found = tl_ledger_each_live(run->ctx, phase, gather_live, &g);
    tl_status status = tl_gather_end(&g, "the live bytes", true, error);
    if (status != TL_OK)
        return status;
    if (!found) {
        tl_explain_free(sum);
        return tl_fail(error, TL_ERR_STATE, "the moment of the peak in phase %s is not in the log of the step",
                       phase < TL_PHASE_COUNT ? tl_phase_name(phase) : "all");
    }
    for (int i = 0; i < sum->count; i++)
        sum->term[i].group = sum->term[i].what;
    return tl_explain_check(run, "the peak", sum->formula, (tl_u128)peak.bytes, error);
}

/* ---- the swap ---- */

/* "h.3.attn" is "h.*.attn": of whichever layer. */
void tl_explain_moment_of(const tl_plan_run *run, tl_phase phase, tl_explain_moment *moment) {
    tl_peak peak;
    tl_ledger_phase_peak(run->ctx, phase, &peak);
    memset(moment, 0, sizeof *moment);
    moment->phase = peak.phase;
    tl_explain_pattern(peak.module ? peak.module : "", moment->pattern, sizeof moment->pattern);
    snprintf(moment->op, sizeof moment->op, "%s", peak.op ? peak.op : "");
}

/* One run serves all sizes: parameters and states are made once, and every size takes one more step. What was found is kept,
 * as two searches ask for much the same sizes. */
typedef struct probe {
    tl_plan_options options;
    tl_explain_moment now;
    tl_plan_run run;  /* trainer NULL: to be made */
    int64_t limit[2]; /* T, B */
    bool phases;
    struct {
        int which;
        int64_t value;
        bool counts; /* false: beyond what can be counted */
        tl_explain_moment moment;
    } known[128];
    int n_known;
} probe;

static bool is_now(const probe *p, const tl_explain_moment *m) {
    if (p->phases || m->phase != p->now.phase)
        return m->phase == p->now.phase;
    return strcmp(m->pattern, p->now.pattern) == 0 && strcmp(m->op, p->now.op) == 0;
}

static bool run_at(probe *p, int64_t seq, int64_t micro_batch, tl_explain_moment *moment) {
    tl_error ignored = {0};
    if (!p->run.trainer && tl_plan_run_make(&p->options, false, &p->run, &ignored) != TL_OK)
        return false;
    bool ok = tl_trainer_resize(p->run.trainer, micro_batch, seq) == TL_OK &&
              tl_trainer_step(p->run.trainer, NULL, NULL, p->run.train.optimizer.lr, NULL) == TL_OK;
    if (ok)
        tl_explain_moment_of(&p->run, TL_PHASE_ALL, moment);
    else
        tl_plan_run_free(&p->run); /* its error stays with it */
    return ok;
}

/* The moment of the peak with T (which 0) or B (which 1) at `value`, all else and the number of micro-batches as it was;
 * false beyond what can be counted. */
static bool moment_at(probe *p, int which, int64_t value, tl_explain_moment *moment) {
    for (int i = 0; i < p->n_known; i++)
        if (p->known[i].which == which && p->known[i].value == value) {
            *moment = p->known[i].moment;
            return p->known[i].counts;
        }
    bool counts = run_at(p, which ? p->options.seq : value, which ? value : p->options.micro_batch, moment);
    if (p->n_known < (int)(sizeof p->known / sizeof p->known[0])) {
        p->known[p->n_known].which = which;
        p->known[p->n_known].value = value;
        p->known[p->n_known].counts = counts;
        p->known[p->n_known++].moment = *moment;
    }
    return counts;
}

/* Halves the gap between `from` (as now) and `to` (another) until they are neighbours. */
static void close_in(probe *p, int which, int64_t from, int64_t to, const tl_explain_moment *other,
                     tl_explain_swap *swap) {
    swap->other = *other;
    while (to - from > 1 || from - to > 1) {
        int64_t middle = from + (to - from) / 2;
        tl_explain_moment m = {0};
        if (!moment_at(p, which, middle, &m))
            return;
        if (is_now(p, &m))
            from = middle;
        else {
            to = middle;
            swap->other = m;
        }
    }
    swap->found = true;
    swap->symbol = which ? "B" : "T";
    swap->from = from;
    swap->to = to;
}

static void search(probe *p, int which, tl_explain_swap *swap) {
    int64_t start = which ? p->options.micro_batch : p->options.seq, limit = p->limit[which];
    tl_explain_moment m = {0};
    swap->lowest[which] = swap->highest[which] = start;
    for (int64_t at = start; at < limit && !swap->found;) { /* upwards, doubling */
        int64_t next = at > limit / 2 ? limit : at * 2;
        if (!moment_at(p, which, next, &m))
            break;
        swap->highest[which] = next;
        if (!is_now(p, &m))
            close_in(p, which, at, next, &m, swap);
        at = next;
    }
    for (int64_t at = start; at > 1 && !swap->found; at /= 2) {
        if (!moment_at(p, which, at / 2, &m))
            break;
        swap->lowest[which] = at / 2;
        if (!is_now(p, &m))
            close_in(p, which, at, at / 2, &m, swap);
    }
}

static void find(probe *p, bool phases, tl_explain_swap *swap) {
    memset(swap, 0, sizeof *swap);
    swap->now = p->now;
    p->phases = phases;
    if (p->options.model.family != TL_FAMILY_CRUNCHER)
        search(p, 0, swap);
    if (!swap->found)
        search(p, 1, swap);
}

tl_status tl_explain_swap_find(const tl_plan_options *options, tl_explain_swap *phases, tl_explain_swap *moments,
                               tl_error *error) {
    const tl_model *m = &options->model;
    probe p = {.options = *options};
    tl_status status = tl_plan_run_make(options, false, &p.run, error);
    if (status != TL_OK)
        return status;
    tl_explain_moment_of(&p.run, TL_PHASE_ALL, &p.now);
    p.limit[0] = m->learned_positions && m->context < TL_EXPLAIN_SWAP_LIMIT ? m->context : TL_EXPLAIN_SWAP_LIMIT;
    p.limit[1] = TL_EXPLAIN_SWAP_LIMIT;
    if (phases)
        find(&p, true, phases);
    if (moments)
        find(&p, false, moments);
    tl_plan_run_free(&p.run);
    return TL_OK;
}
