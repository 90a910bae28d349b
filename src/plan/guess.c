/* Where a plan will come out, from plans of the same model with fewer layers. What a step holds at a moment, and what it
 * computes, grows by the same amount with each layer of a kind. Many changes to a run are looked at this way and those that are
 * told to anyone are planned; a guess that is wrong costs time, never a figure. */
#include "plan/plan.h"
#include "tally/engine.h"

#include <string.h>

enum { MOST_KINDS = 4, MOST_LAYERS = 32 };
/* Per cent by which a guess of the peak may be too high: over the catalogue and the levers it is 0.6 where all layers are alike and
 * 3.5 where they are not (tests/test_search.c). It may be too low by more, where another moment is the highest of all layers'. */
enum { ABOVE_ALIKE = 1, ABOVE_UNLIKE = 5 };

typedef struct short_model {
    int layers;
    uint16_t layer[MOST_LAYERS];
} short_model;

/* The whole is `base` and times[i] of what more[i] has beyond it. */
typedef struct parts {
    short_model base, more[MOST_KINDS];
    int64_t times[MOST_KINDS];
    int count;
    int64_t layers; /* of all that are to be planned */
} parts;

/* ---- which layers ---- */

static int count_of(const short_model *m, uint16_t kind) {
    int n = 0;
    for (int i = 0; i < m->layers; i++)
        n += m->layer[i] == kind;
    return n;
}

static void insert(short_model *m, int at, uint16_t kind) {
    memmove(&m->layer[at + 1], &m->layer[at], (size_t)(m->layers - at) * sizeof m->layer[0]);
    m->layer[at] = kind;
    m->layers++;
}

/* The first layer, one of each other kind, the last. */
static bool shortest(const tl_model *m, parts *p) {
    short_model *base = &p->base;
    for (int64_t i = 0; i < m->layers; i++)
        if (base->layers == 0 || i == m->layers - 1 || count_of(base, m->layer[i]) == 0) {
            if (base->layers > MOST_KINDS)
                return false;
            base->layer[base->layers++] = m->layer[i];
        }
    return true;
}

static bool is_first(const short_model *m, int at) {
    for (int i = 0; i < at; i++)
        if (m->layer[i] == m->layer[at])
            return false;
    return true;
}

static void by_kinds(const tl_model *m, parts *p) {
    for (int i = 0; i < p->base.layers; i++) {
        uint16_t kind = p->base.layer[i];
        int64_t all = 0;
        for (int64_t k = 0; k < m->layers; k++)
            all += m->layer[k] == kind;
        all -= count_of(&p->base, kind);
        if (!is_first(&p->base, i) || all == 0)
            continue;
        int at = p->count++; /* the most frequent first: it says most */
        for (; at > 0 && p->times[at - 1] < all; at--)
            p->more[at] = p->more[at - 1], p->times[at] = p->times[at - 1];
        p->more[at] = p->base;
        insert(&p->more[at], i, kind);
        p->times[at] = all;
    }
}

/* Which layers are computed again goes by their number: whole periods, and what the end has beyond them. */
static bool by_periods(const tl_model *m, int64_t every, parts *p) {
    int64_t rest = m->layers % every, fewer = rest + every;
    if (every > MOST_LAYERS / 3 || fewer + every > m->layers)
        return false;
    for (int64_t i = every; i < m->layers; i++)
        if (m->layer[i] != m->layer[i - every])
            return false;
    p->base.layers = (int)fewer;
    p->more[0].layers = (int)(fewer + every);
    memcpy(p->base.layer, m->layer, (size_t)fewer * sizeof m->layer[0]);
    memcpy(p->more[0].layer, m->layer, (size_t)(fewer + every) * sizeof m->layer[0]);
    p->times[0] = (m->layers - fewer) / every;
    p->count = 1;
    return true;
}

/* False: nothing repeats, or what layers do goes by their number. */
static bool split(const tl_plan_options *o, parts *p) {
    const tl_model *m = &o->model;
    memset(p, 0, sizeof *p);
    if (m->family == TL_FAMILY_CRUNCHER || m->layers > TL_MODEL_LAYERS || o->lora.prefix > 0)
        return false;
    if (o->recompute.kind == TL_RECOMPUTE_EVERY && o->recompute.every > 1) {
        if (!by_periods(m, o->recompute.every, p))
            return false;
    } else if (!shortest(m, p))
        return false;
    else
        by_kinds(m, p);
    p->layers = p->base.layers;
    for (int i = 0; i < p->count; i++)
        p->layers += p->more[i].layers;
    return p->count > 0;
}

/* ---- from their plans to the whole ---- */

/* Moment by moment: the highest of them may be another's with all layers. */
enum { INIT, LOAD, WEIGHTS, SAVE, PHASES, FIGURES = PHASES + TL_PHASE_COUNT };
typedef struct figures {
    __int128 of[FIGURES];
    tl_u128 hardware;
    int64_t beyond; /* the peak: what an arena holds follows no line */
} figures;

static tl_status plan_short(const tl_plan_options *whole, const short_model *m, tl_plan_pool *pool, figures *f,
                            tl_error *error) {
    tl_plan_options o = *whole;
    tl_plan p;
    o.model.layers = m->layers;
    memcpy(o.model.layer, m->layer, (size_t)m->layers * sizeof m->layer[0]);
    tl_status status = tl_plan_account(&o, false, pool, &p, error);
    if (status != TL_OK)
        return status;
    f->of[INIT] = p.init.bytes;
    f->of[LOAD] = p.load.bytes;
    f->of[WEIGHTS] = p.weights.bytes;
    f->of[SAVE] = p.save.bytes;
    for (int i = 0; i < TL_PHASE_COUNT; i++)
        f->of[PHASES + i] = p.step[i].bytes;
    f->hardware = p.hardware_per_step;
    f->beyond = p.arena_bytes - p.peak.bytes;
    return TL_OK;
}

static int64_t clamped(__int128 bytes) { return bytes > INT64_MAX ? INT64_MAX : bytes < 0 ? 0 : (int64_t)bytes; }

static void read_whole(const figures *f, const tl_engine *engine, tl_plan_estimate *e) {
    int64_t before_step = 0;
    tl_plan p;
    memset(&p, 0, sizeof p);
    p.init.bytes = clamped(f->of[INIT]);
    p.load.bytes = clamped(f->of[LOAD]);
    p.weights.bytes = clamped(f->of[WEIGHTS]);
    p.save.bytes = clamped(f->of[SAVE]);
    for (int i = PHASES; i < FIGURES; i++)
        p.peak.bytes = clamped(f->of[i]) > p.peak.bytes ? clamped(f->of[i]) : p.peak.bytes;
    for (int i = TL_PHASE_FORWARD; i < TL_PHASE_STEP; i++)
        before_step = clamped(f->of[PHASES + i]) > before_step ? clamped(f->of[PHASES + i]) : before_step;
    e->before_step = before_step;
    p.arena_bytes = p.peak.bytes;
    e->least = tl_plan_needs(&p, engine);
    p.arena_bytes = clamped((__int128)p.peak.bytes + f->beyond);
    e->needs = tl_plan_needs(&p, engine);
    e->hardware_per_step = f->hardware;
}

static void add_more(figures *whole, const figures *base, const figures *more, int64_t times) {
    for (int k = 0; k < FIGURES; k++)
        whole->of[k] += (more->of[k] - base->of[k]) * times;
    whole->hardware += (more->hardware - base->hardware) * (tl_u128)times;
    whole->beyond = more->beyond > whole->beyond ? more->beyond : whole->beyond;
}

/* A guess of many kinds of layers costs as much as the plan; a part of it may still tell that the whole is far too large. */
static bool may_go_on(const tl_plan_options *o, const parts *p, int64_t planned, int next) {
    return 2 * p->layers < o->model.layers || 3 * (planned + p->more[next].layers) <= o->model.layers;
}

tl_status tl_plan_guess(const tl_plan_options *o, int64_t enough, tl_plan_pool *pool, tl_plan_estimate *e,
                        tl_error *error) {
    tl_error local = {TL_OK, ""};
    parts p;
    figures base, more, whole;
    const tl_engine *engine = o->engine && o->devices.accelerator ? o->engine : tl_engine_at(0);
    memset(e, 0, sizeof *e);
    if (!split(o, &p) ||
        (2 * p.layers >= o->model.layers && (enough == INT64_MAX || 3 * p.base.layers > o->model.layers)))
        return TL_OK; /* as soon planned */
    tl_status status = plan_short(o, &p.base, pool, &base, &local);
    int done = 0;
    whole = base;
    e->layers = p.base.layers;
    if (status == TL_OK)
        read_whole(&whole, engine, e);
    while (status == TL_OK && done < p.count && e->least <= enough && may_go_on(o, &p, e->layers, done)) {
        status = plan_short(o, &p.more[done], pool, &more, &local);
        e->layers += p.more[done].layers;
        if (status != TL_OK)
            break;
        add_more(&whole, &base, &more, p.times[done++]);
        read_whole(&whole, engine, e);
    }
    if (status == TL_ERR_MEMORY)
        return tl_fail(error, status, "%s", local.message);
    if (status != TL_OK && status != TL_ERR_OVERFLOW)
        return TL_OK;
    e->known = true;
    e->in_part = status == TL_OK && done < p.count;
    e->above = p.count == 1 ? ABOVE_ALIKE : ABOVE_UNLIKE;
    if (status != TL_OK)
        e->least = e->before_step = e->needs = INT64_MAX;
    return TL_OK;
}
