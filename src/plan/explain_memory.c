/* The live set at a peak as formulas, and where another phase would take the peak over. */
#include "plan/explain.h"

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
    tl_gather_begin(&g, run, sum);
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
    tl_peak peak;
    tl_ledger_phase_peak(run->ctx, phase, &peak);
    return tl_explain_check(run, "the peak", sum->formula, (tl_u128)peak.bytes, error);
}

/* ---- the swap ---- */

typedef struct probe {
    tl_plan_options options;
    bool words;
    tl_phase base;
    int64_t limit[2]; /* T, B */
} probe;

/* Phase of the peak with T (which 0) or B (which 1) at `value`; false beyond what can be counted. */
static bool phase_at(const probe *p, int which, int64_t value, tl_phase *phase) {
    tl_plan_options o = p->options;
    tl_error ignored = {0};
    tl_plan_run run;
    if (which == 0)
        o.seq = value;
    else {
        o.global_batch = o.global_batch ? o.global_batch / o.micro_batch * value : 0; /* A stays */
        o.micro_batch = value;
    }
    if (tl_plan_run_make(&o, false, &run, &ignored) != TL_OK)
        return false;
    tl_peak peak;
    tl_ledger_peak(run.ctx, &peak);
    *phase = peak.phase;
    tl_plan_run_free(&run);
    return true;
}

/* Halves the gap between `same` (phase as at the base) and `other` until they are neighbours. */
static void close_in(const probe *p, int which, int64_t same, int64_t other, tl_phase other_phase,
                     tl_explain_swap *swap) {
    while (other - same > 1 || same - other > 1) {
        int64_t middle = same + (other - same) / 2;
        tl_phase phase;
        if (!phase_at(p, which, middle, &phase))
            return;
        if (phase == p->base)
            same = middle;
        else {
            other = middle;
            other_phase = phase;
        }
    }
    *swap = (tl_explain_swap){.found = true,
                              .symbol = which ? "B" : "T",
                              .from = same,
                              .to = other,
                              .phase = other_phase,
                              .searched_seq = swap->searched_seq,
                              .searched_micro_batch = swap->searched_micro_batch};
}

static void search(const probe *p, int which, tl_explain_swap *swap) {
    int64_t start = which ? p->options.micro_batch : p->options.seq, limit = p->limit[which], same = start;
    int64_t *searched = which ? &swap->searched_micro_batch : &swap->searched_seq;
    tl_phase phase;
    *searched = start;
    while (same < limit && !swap->found) { /* upwards, doubling */
        int64_t next = same > limit / 2 ? limit : same * 2;
        if (!phase_at(p, which, next, &phase))
            break;
        *searched = next;
        if (phase != p->base)
            close_in(p, which, same, next, phase, swap);
        same = next;
    }
    for (same = start; same > 1 && !swap->found;) {
        int64_t next = same / 2;
        if (!phase_at(p, which, next, &phase))
            break;
        if (phase != p->base)
            close_in(p, which, same, next, phase, swap);
        same = next;
    }
}

tl_status tl_explain_swap_find(const tl_plan_options *options, tl_explain_swap *swap, tl_error *error) {
    const tl_model *m = &options->model;
    probe p = {.options = *options, .words = m->family != TL_FAMILY_CRUNCHER};
    memset(swap, 0, sizeof *swap);
    tl_plan_run run;
    tl_status status = tl_plan_run_make(options, false, &run, error);
    if (status != TL_OK)
        return status;
    tl_peak peak;
    tl_ledger_peak(run.ctx, &peak);
    p.base = peak.phase;
    tl_plan_run_free(&run);
    p.limit[0] = m->learned_positions && m->context < TL_EXPLAIN_SWAP_LIMIT ? m->context : TL_EXPLAIN_SWAP_LIMIT;
    p.limit[1] = TL_EXPLAIN_SWAP_LIMIT;
    if (p.words)
        search(&p, 0, swap);
    if (!swap->found)
        search(&p, 1, swap);
    return TL_OK;
}
