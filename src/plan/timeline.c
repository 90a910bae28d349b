/* Memory over the step: the ledger's log replayed, and thinned without losing any phase's maximum. */
#include "plan/plan.h"
#include "tensor/ctx.h"

#include <string.h>

typedef struct replay {
    tl_plan_timeline *t;
    int64_t live;
    bool failed; /* the context's error says */
} replay;

static bool add_point(replay *r, const tl_plan_point *point) {
    tl_plan_timeline *t = r->t;
    if (!tl_host_grow(t->run.ctx, &t->points, sizeof *t->points, t->n_points + 1, &t->point_capacity))
        return false;
    t->points[t->n_points++] = *point;
    return true;
}

/* What lives as a phase begins counts as its own, as in the ledger's peak of the phase. */
static bool begin_stretch(replay *r, tl_phase phase) {
    tl_plan_timeline *t = r->t;
    if (!tl_host_grow(t->run.ctx, &t->stretches, sizeof *t->stretches, t->n_stretches + 1, &t->stretch_capacity))
        return false;
    t->stretches[t->n_stretches++] = (tl_plan_stretch){
        .phase = phase, .first = t->n_points, .count = 1, .begin = t->events, .end = t->events, .high = t->n_points};
    return add_point(r, &(tl_plan_point){t->events, r->live, phase, true, "", "", ""});
}

static void play(void *user, const tl_log_entry *e) {
    replay *r = user;
    tl_plan_timeline *t = r->t;
    if (r->failed)
        return;
    if (e->carried) {
        r->live += e->bytes;
        return;
    }
    if (t->n_stretches == 0 || t->stretches[t->n_stretches - 1].phase != e->phase)
        r->failed = !begin_stretch(r, e->phase);
    r->live += e->bytes;
    t->events++;
    t->allocations += e->bytes > 0;
    tl_plan_point point = {t->events, r->live, e->phase, false, e->module, e->op ? e->op : "", e->site ? e->site : ""};
    r->failed = r->failed || !add_point(r, &point);
    if (r->failed)
        return;
    tl_plan_stretch *s = &t->stretches[t->n_stretches - 1];
    s->count++;
    s->end = t->events;
    if (r->live > t->points[s->high].bytes)
        s->high = t->n_points - 1;
}

/* Of points [first, first + count) `parts` pieces, of each its maximum and its last: moved down to `to`. Returns where it ends
 * and sets the stretch's. */
static int64_t thin(tl_plan_timeline *t, tl_plan_stretch *s, int64_t parts, int64_t to) {
    int64_t first = s->first, count = s->count, high = s->high;
    s->first = to;
    for (int64_t k = 0; k < parts; k++) {
        int64_t begin = first + (k == 0 ? 0 : 1 + (count - 1) * k / parts); /* the beginning is a point of its own */
        int64_t end = first + 1 + (count - 1) * (k + 1) / parts, most = begin;
        for (int64_t i = begin; i < end; i++)
            if (t->points[i].bytes > t->points[most].bytes)
                most = i;
        if (k == 0 && most != first)
            t->points[to++] = t->points[first];
        if (most < end) {
            if (most == high)
                s->high = to;
            t->points[to++] = t->points[most];
        }
        if (k > 0 && end - 1 > most)
            t->points[to++] = t->points[end - 1];
    }
    s->count = to - s->first;
    return to;
}

static void reduce(tl_plan_timeline *t, int64_t most) {
    int64_t to = 0, pairs = most / 2 > t->n_stretches ? most / 2 - t->n_stretches : 0, all = t->n_points;
    if (most <= 0 || all <= most)
        return;
    for (int64_t i = 0; i < t->n_stretches; i++) {
        tl_plan_stretch *s = &t->stretches[i];
        int64_t parts = 1 + (int64_t)((__int128)pairs * s->count / all);
        to = thin(t, s, parts < s->count ? parts : s->count, to);
    }
    t->n_points = to;
}

tl_status tl_plan_timeline_make(const tl_plan_options *options, int64_t most, tl_plan_timeline *t, tl_error *error) {
    memset(t, 0, sizeof *t);
    tl_status status = tl_plan_run_make(options, false, &t->run, error);
    if (status != TL_OK)
        return status;
    replay r = {.t = t};
    tl_ledger_each_entry(t->run.ctx, play, &r);
    if (r.failed) {
        status = tl_fail(error, tl_ctx_status(t->run.ctx), "%s", tl_ctx_error(t->run.ctx)->message);
        tl_plan_timeline_free(t);
        return status;
    }
    reduce(t, most);
    for (int64_t i = 0; i < t->n_stretches; i++)
        if (t->points[t->stretches[i].high].bytes > t->points[t->high].bytes)
            t->high = t->stretches[i].high;
    return TL_OK;
}

void tl_plan_timeline_free(tl_plan_timeline *t) {
    if (t->run.ctx) {
        tl_host_free(t->run.ctx, t->points, (size_t)t->point_capacity * sizeof *t->points);
        tl_host_free(t->run.ctx, t->stretches, (size_t)t->stretch_capacity * sizeof *t->stretches);
    }
    tl_plan_run_free(&t->run);
    memset(t, 0, sizeof *t);
}
