/* What would make a plan fit that does not: every suggestion is a plan made on meta, none is extrapolated. Which changes are
 * looked at is told from plans with fewer layers; then what would be shown is planned, and where a plan says otherwise it is all
 * chosen anew with what is known by then. */
#include "plan/trial.h"

#include <stdio.h>
#include <string.h>

/* What the trials of one answer may come to, in allocations if each were a plan: about half a second of plans, and less of guesses. */
#define ALLOCATION_BUDGET 60000
#define MOST_PLANS 56
/* Beyond the budget, for what comes last and may be all there is: adapters. */
#define ADAPTER_PLANS 12
/* Suggestions that do not fit are listed as long as the list is no longer than this. */
#define SHORT_LIST 8

typedef struct advisor {
    tl_trials t;
    tl_plan_advice *advice;
    const tl_trial *list[TL_PLAN_SUGGESTIONS];
    int count;
    tl_lever fits[TL_TRIALS]; /* what was suggested and fits */
    int n_fits;
    const tl_trial *alone[TL_TRIALS]; /* levers alone that keep the run */
    int n_alone;
} advisor;

static const tl_plan_options *asked_of(const advisor *a) { return a->t.asked; }
static bool may_try(const advisor *a) { return a->t.budget > 0; }

/* Room for that many more plans. */
static void allow(advisor *a, int plans) {
    int64_t work = asked_of(a)->model.layers * plans;
    a->t.budget = a->t.budget > 0 ? a->t.budget + work : work;
}

/* A place in the list; the last suggestion that does not fit makes room for one that does. NULL: none. */
static const tl_trial **place_for(advisor *a, bool fits) {
    if (a->count < TL_PLAN_SUGGESTIONS)
        return &a->list[a->count++];
    for (int i = a->count; fits && i-- > 0;)
        if (!a->list[i]->is.fits) {
            memmove(&a->list[i], &a->list[i + 1], (size_t)(a->count - 1 - i) * sizeof a->list[0]);
            return &a->list[a->count - 1];
        }
    return NULL;
}

static void keep(advisor *a, const tl_trial *t) {
    const tl_trial **place = place_for(a, t->is.fits);
    if (place)
        *place = t;
}

/* ---- levers ---- */

/* A part of it was suggested and is enough. */
static bool is_needless(const advisor *a, const tl_lever *l) {
    for (int i = 0; i < a->n_fits; i++)
        if (tl_lever_within(&a->fits[i], l))
            return true;
    return false;
}

static bool is_same(const tl_lever *x, const tl_lever *y) { return tl_lever_within(x, y) && tl_lever_within(y, x); }

/* The lever as it is known; NULL where it moves nothing, cannot be, or nothing may be tried any more. */
static tl_status try_lever(advisor *a, const tl_lever *l, tl_trial_question question, const tl_trial **result,
                           tl_error *error) {
    *result = NULL;
    return tl_lever_applies(asked_of(a), l) ? tl_trial_try(&a->t, &(tl_change){.lever = *l}, question, result, error)
                                            : TL_OK;
}

/* Suggests it if it fits, or helps. */
static tl_status attempt(advisor *a, tl_lever l, tl_error *error) {
    const tl_trial *t;
    bool helps = false;
    if (is_needless(a, &l))
        return TL_OK;
    tl_status status = try_lever(a, &l, TL_TRIAL_SIZE, &t, error);
    if (status == TL_OK && t && !t->is.fits)
        status = tl_trial_helps(&a->t, t, &helps, error);
    if (status != TL_OK || !t || (!t->is.fits && !helps))
        return status;
    if (t->is.fits)
        a->fits[a->n_fits++] = l;
    keep(a, t);
    return TL_OK;
}

/* One lever alone that keeps the run: it may be the largest. */
static tl_status attempt_alone(advisor *a, tl_lever l, tl_error *error) {
    const tl_trial *t;
    tl_status status = attempt(a, l, error);
    if (status == TL_OK)
        status = try_lever(a, &l, TL_TRIAL_SIZE, &t, error);
    if (status == TL_OK && t)
        a->alone[a->n_alone++] = t;
    return status;
}

/* The largest micro-batch below the asked one that divides the work of a step and fits; 1 is tried as a lever. */
static tl_status smaller_batch(advisor *a, tl_error *error) {
    int64_t whole = tl_lever_per_device(asked_of(a));
    for (int64_t b = asked_of(a)->micro_batch / 2; b > 1 && may_try(a); b /= 2) {
        const tl_trial *t;
        if (whole % b)
            continue;
        tl_status status = tl_trial_try(&a->t, &(tl_change){.micro_batch = b}, TL_TRIAL_FITS, &t, error);
        if (status != TL_OK)
            return status;
        if (t && t->is.fits) {
            keep(a, t);
            a->fits[a->n_fits++] = (tl_lever){.batch = 1};
            break;
        }
    }
    return attempt_alone(a, (tl_lever){.batch = 1}, error);
}

/* The run as it is, at no more FLOPs: nothing is cheaper. */
static bool is_free(const advisor *a) {
    for (int i = 0; i < a->count; i++) {
        const tl_plan_suggestion *s = &a->list[i]->is;
        if (s->fits && s->cost == TL_PLAN_COST_NOTHING && s->hardware_per_step <= a->t.plan->hardware_per_step)
            return true;
    }
    return false;
}

static const int ways[] = {TL_WAY_FLASH, TL_WAY_LOSS_FUSED, TL_WAY_FUSED, TL_WAY_GRADS, TL_WAY_IN_BACKWARD};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* The run stays the same: computed in more parts, partly twice, or by code that keeps less. */
static tl_status same_run(advisor *a, tl_error *error) {
    tl_status status = smaller_batch(a, error);
    for (int w = 0; w < WAYS && status == TL_OK; w++)
        status = attempt_alone(a, (tl_lever){.ways = ways[w]}, error);
    if (status == TL_OK)
        status = attempt_alone(a, (tl_lever){.recompute = TL_LEVER_SELECTIVE}, error);
    /* All layers first: where that is not enough, some of them are not. */
    if (status == TL_OK)
        status = attempt_alone(a, (tl_lever){.recompute = TL_LEVER_FULL}, error);
    const tl_trial *t;
    for (int r = TL_LEVER_EVERY_4; r < TL_LEVER_FULL && status == TL_OK; r++) {
        tl_lever part = {.recompute = r};
        if (is_free(a) || is_needless(a, &part) || !is_needless(a, &(tl_lever){.recompute = TL_LEVER_FULL}))
            break;
        status = try_lever(a, &part, TL_TRIAL_FITS, &t, error);
        if (status == TL_OK && t && t->is.fits)
            status = attempt(a, part, error);
    }
    return status;
}

static tl_status one_change(advisor *a, tl_error *error) {
    tl_status status = TL_OK;
    for (int p = 1; p < TL_LEVER_PRECISIONS && status == TL_OK; p++)
        status = attempt(a, (tl_lever){.precision = p}, error);
    for (int o = 1; o < TL_LEVER_OPTIMIZERS && status == TL_OK; o++)
        status = attempt(a, (tl_lever){.optimizer = o}, error);
    return status;
}

/* `l` with the levers that keep the run as far as they go. */
static tl_lever furthest(const advisor *a, tl_lever l) {
    for (int w = 0; w < WAYS; w++) {
        tl_lever more = l;
        more.ways |= ways[w];
        if (tl_lever_applies(asked_of(a), &more))
            l = more;
    }
    for (int r = TL_LEVER_RECOMPUTES - 1; r > 0 && !l.recompute; r--) {
        tl_lever more = l;
        more.recompute = r;
        if (tl_lever_applies(asked_of(a), &more))
            l = more;
    }
    tl_lever more = l; /* last: several micro-batches are stepped after backward */
    more.batch = 1;
    if (!tl_lever_applies(asked_of(a), &more))
        more.ways &= ~TL_WAY_IN_BACKWARD;
    return tl_lever_applies(asked_of(a), &more) ? more : l;
}

/* Part `part` of a lever with one thing less, the most of it first; false: no more. */
enum { PART_RECOMPUTE, PART_BATCH, PART_IN_BACKWARD, PART_GRADS, PART_FUSED, PART_LOSS, PART_FLASH, PARTS };
static bool with_less(const tl_lever *l, int part, int turn, tl_lever *less) {
    static const int bits[PARTS] = {0,           0, TL_WAY_IN_BACKWARD, TL_WAY_GRADS, TL_WAY_FUSED, TL_WAY_LOSS_FUSED,
                                    TL_WAY_FLASH};
    *less = *l;
    if (part == PART_RECOMPUTE) {
        if (turn >= l->recompute)
            return false;
        less->recompute = turn;
        return true;
    }
    if (turn > 0)
        return false;
    if (part == PART_BATCH)
        less->batch = 0;
    else
        less->ways &= ~bits[part];
    return !is_same(less, l);
}

/* Leaves out of a lever that fits what is not needed, in this order, and suggests the rest. saves_flops: nothing whose absence
 * takes more of them. */
static tl_status least_that_fits(advisor *a, tl_lever l, const int order[PARTS], bool saves_flops, tl_error *error) {
    const tl_trial *is, *t;
    tl_lever less;
    tl_status status = try_lever(a, &l, TL_TRIAL_FITS_LIKELY, &is, error);
    for (int i = 0; i < PARTS && is; i++)
        for (int turn = 0; with_less(&l, order[i], turn, &less); turn++) {
            bool likely =
                order[i] == PART_IN_BACKWARD || order[i] == PART_GRADS || order[i] == PART_FUSED; /* they hold least */
            status = try_lever(a, &less, likely ? TL_TRIAL_FITS_LIKELY : TL_TRIAL_FITS, &t, error);
            if (status != TL_OK)
                return status;
            if (t && t->is.fits && !(saves_flops && t->is.hardware_per_step > is->is.hardware_per_step)) {
                l = less;
                is = t;
                break;
            }
        }
    return status == TL_OK ? attempt(a, l, error) : status;
}

/* `l` beside the levers that keep the run, as few of them as are needed: the fewest FLOPs, and the fewest other ways. */
static tl_status in_combination(advisor *a, tl_lever l, tl_error *error) {
    static const int cheapest[PARTS] = {PART_RECOMPUTE, PART_BATCH, PART_IN_BACKWARD, PART_GRADS,
                                        PART_FUSED,     PART_LOSS,  PART_FLASH};
    static const int plainest[PARTS] = {PART_IN_BACKWARD, PART_GRADS, PART_FUSED,    PART_LOSS,
                                        PART_FLASH,       PART_BATCH, PART_RECOMPUTE};
    const tl_trial *t;
    tl_lever most = furthest(a, l);
    tl_status status = try_lever(a, &most, TL_TRIAL_FITS_LIKELY, &t, error);
    if (status != TL_OK || !t || !t->is.fits)
        return status;
    status = least_that_fits(a, most, cheapest, true, error);
    return status == TL_OK ? least_that_fits(a, most, plainest, false, error) : status;
}

/* Half the sequence, a quarter … until it fits, with this pulled. */
static tl_status shorter(advisor *a, tl_lever l, bool *fits, tl_error *error) {
    *fits = false;
    if (asked_of(a)->model.family == TL_FAMILY_CRUNCHER)
        return TL_OK;
    for (int64_t seq = asked_of(a)->seq / 2; seq >= 128 && may_try(a) && !*fits; seq /= 2) {
        const tl_trial *t;
        tl_status status = tl_trial_try(&a->t, &(tl_change){.lever = l, .seq = seq}, TL_TRIAL_FITS, &t, error);
        if (status != TL_OK)
            return status;
        *fits = t && t->is.fits;
        if (*fits)
            keep(a, t);
    }
    return TL_OK;
}

/* The device of the catalogue with the least memory that holds the plan as it is. */
static tl_status other_device(advisor *a, tl_error *error) {
    const tl_accelerator *best = NULL;
    int64_t least = INT64_MAX, need = a->t.plan->needs_bytes;
    for (int i = 0; i < tl_accelerator_count(); i++) {
        int64_t capacity, usable, context;
        tl_devices d = {.count = 1, .accelerator = tl_accelerator_at(i)};
        tl_plan_capacity(&d, NULL, asked_of(a)->engine, &capacity, &usable, &context);
        if (usable >= need && usable < least)
            least = usable, best = d.accelerator;
    }
    if (!best || asked_of(a)->devices.here)
        return TL_OK;
    const tl_trial *t;
    allow(a, 1); /* one that is always worth it */
    tl_status status = tl_trial_try(&a->t, &(tl_change){.device = best}, TL_TRIAL_SIZE, &t, error);
    if (status == TL_OK && t)
        keep(a, t);
    return status;
}

/* Adapters over frozen weights, then over 4-bit weights: alone, with the levers that keep the run, with a shorter sequence. */
static tl_status adapters(advisor *a, tl_error *error) {
    bool fits = false, enough = false;
    int before = a->n_fits;
    allow(a, ADAPTER_PLANS);
    tl_status status = TL_OK;
    for (int k = 1; k < TL_LEVER_ADAPTERS && status == TL_OK && a->n_fits == before; k++) {
        const tl_trial *t;
        tl_lever l = {.adapters = k};
        status = try_lever(a, &l, TL_TRIAL_FITS, &t, error);
        if (status == TL_OK && !(t && t->is.fits) && !enough)
            status = in_combination(a, l, error);
        /* Beside as many levers these fit, though fewer of them do without: 4 bits are not looked for. */
        if (status == TL_OK) {
            const tl_trial *all;
            tl_lever most = furthest(a, l);
            status = enough ? TL_OK : try_lever(a, &most, TL_TRIAL_FITS_LIKELY, &all, error);
            enough = enough || (status == TL_OK && all && all->is.fits);
        }
        /* One that does not fit is listed last, and only in a short list. */
        if (status == TL_OK && ((t && t->is.fits) || a->count < SHORT_LIST))
            status = attempt(a, l, error);
    }
    tl_lever most = furthest(a, (tl_lever){.adapters = TL_LEVER_ADAPTERS - 1});
    if (status == TL_OK && a->n_fits == before && a->advice->state_exceeds && tl_lever_applies(asked_of(a), &most))
        status = shorter(a, most, &fits, error);
    return status;
}

static bool comes_before(const tl_plan_suggestion *x, const tl_plan_suggestion *y) {
    if (x->fits != y->fits)
        return x->fits;
    if (x->cost != y->cost)
        return x->cost < y->cost;
    return x->hardware_per_step < y->hardware_per_step;
}

/* Those that fit first; then what changes least of the run; then the fewest FLOPs; then in the order found. */
static void rank(advisor *a) {
    for (int i = 1; i < a->count; i++)
        for (int j = i; j > 0 && comes_before(&a->list[j]->is, &a->list[j - 1]->is); j--) {
            const tl_trial *swap = a->list[j];
            a->list[j] = a->list[j - 1];
            a->list[j - 1] = swap;
        }
    while (a->count > SHORT_LIST && !a->list[a->count - 1]->is.fits)
        a->count--;
}

static tl_status pull_all(advisor *a, tl_error *error) {
    bool fits = false;
    tl_status status = same_run(a, error);
    if (status == TL_OK)
        status = one_change(a, error);
    if (status == TL_OK && !is_free(a))
        status = in_combination(a, (tl_lever){0}, error);
    bool enough = a->n_fits > 0;
    for (int o = 0; o < TL_LEVER_OPTIMIZERS; o++)
        for (int p = 0; p < TL_LEVER_PRECISIONS && !enough && status == TL_OK; p++) {
            tl_lever l = {.precision = p, .optimizer = o}, most = furthest(a, l);
            if ((p || o) && !is_needless(a, &most) && tl_lever_applies(asked_of(a), &l))
                status = in_combination(a, l, error);
        }
    if (status == TL_OK)
        status = shorter(a, (tl_lever){0}, &fits, error);
    if (status != TL_OK || fits || a->n_fits > 0)
        return status;
    tl_lever all = {0};
    if (tl_lever_applies(asked_of(a), &(tl_lever){.precision = TL_LEVER_PRECISIONS - 1}))
        all.precision = TL_LEVER_PRECISIONS - 1;
    if (tl_lever_applies(asked_of(a), &(tl_lever){.optimizer = TL_LEVER_OPTIMIZERS - 1}))
        all.optimizer = TL_LEVER_OPTIMIZERS - 1;
    return shorter(a, furthest(a, all), &fits, error);
}

/* All that is tried, in its order. */
static tl_status choose(advisor *a, tl_error *error) {
    a->count = a->n_fits = a->n_alone = 0;
    a->t.pass++;
    int64_t plans = 1 + ALLOCATION_BUDGET / (a->t.plan->allocations + 1);
    a->t.budget = 0;
    allow(a, plans < MOST_PLANS ? (int)plans : MOST_PLANS);
    tl_status status = a->advice->state_exceeds ? TL_OK : pull_all(a, error);
    if (status == TL_OK)
        status = other_device(a, error);
    if (status == TL_OK)
        status = adapters(a, error);
    rank(a);
    return status;
}

/* The lever alone that holds least, less than what was asked; NULL: none. */
static const tl_trial *largest(const advisor *a) {
    const tl_trial *best = NULL;
    for (int i = 0; i < a->n_alone; i++)
        if (a->alone[i]->how != TL_TRIAL_CANNOT_BE &&
            a->alone[i]->is.needs < (best ? best->is.needs : a->t.plan->needs_bytes))
            best = a->alone[i];
    return best;
}

static tl_status settle(advisor *a, const tl_trial *t, bool *done, tl_error *error) {
    bool planned = false;
    tl_status status = tl_trial_settle(&a->t, t, &planned, error);
    *done = *done && !planned;
    return status;
}

/* Plans what would be shown and is only guessed, and what may be larger than the largest lever. *done: there was nothing of the
 * kind. */
static tl_status plan_chosen(advisor *a, bool *done, tl_error *error) {
    tl_status status = TL_OK;
    *done = true;
    for (int i = 0; i < a->count && status == TL_OK; i++)
        status = settle(a, a->list[i], done, error);
    for (int i = 0; i < a->n_alone && status == TL_OK; i++) {
        const tl_trial *best = largest(a);
        if (best && a->alone[i]->is.needs / 100 * 95 <= best->is.needs)
            status = settle(a, a->alone[i], done, error);
    }
    return status;
}

static void show(const advisor *a) {
    tl_plan_advice *advice = a->advice;
    const tl_trial *best = largest(a);
    for (int i = 0; i < a->count; i++)
        advice->list[i] = a->list[i]->is;
    advice->count = a->count;
    advice->runs = a->t.runs;
    advice->layers = a->t.work;
    if (!best)
        return;
    advice->largest_saving = a->t.plan->needs_bytes - best->is.needs;
    snprintf(advice->largest_lever, sizeof advice->largest_lever, "%s", best->is.change);
}

static tl_status advise(advisor *a, tl_error *error) {
    bool done = false;
    tl_status status = TL_OK;
    while (!done && status == TL_OK) { /* each turn but the last plans a trial that never was */
        status = choose(a, error);
        if (status == TL_OK)
            status = plan_chosen(a, &done, error);
    }
    if (status == TL_OK)
        show(a);
    return status;
}

tl_status tl_plan_advise(const tl_plan_options *options, const tl_plan *plan, tl_plan_advice *advice, tl_error *error) {
    memset(advice, 0, sizeof *advice);
    tl_plan_options lean = *options;
    lean.precision = TL_PRECISION_BF16;
    lean.autocast = false;
    lean.optimizer = tl_optimizer_defaults(TL_OPTIM_SGD);
    lean.choices.update_in_backward = false;
    tl_status status = tl_trial_state(options, options, plan, &advice->state_bytes, error);
    if (status == TL_OK)
        status = tl_trial_state(&lean, options, plan, &advice->leanest_bytes, error);
    if (status != TL_OK || plan->fits || plan->usable_bytes <= 0)
        return status;
    advice->state_exceeds = advice->leanest_bytes > plan->usable_bytes;
    tl_plan_pool *pool = tl_plan_pool_new(error);
    if (!pool)
        return TL_ERR_MEMORY;
    const tl_allocator *memory = tl_plan_pool_allocator(pool);
    advisor *a = memory->alloc(memory->self, sizeof *a, 16, TL_ALLOC_HOST);
    if (a) {
        memset(a, 0, sizeof *a);
        a->t.asked = options;
        a->t.plan = plan;
        a->t.pool = pool;
        a->advice = advice;
        status = advise(a, error);
        memory->release(memory->self, a, sizeof *a, TL_ALLOC_HOST);
    } else
        status = tl_fail(error, TL_ERR_MEMORY, "no memory to look for what would fit");
    tl_plan_pool_free(pool);
    return status;
}
