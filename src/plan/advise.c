/* What would make a plan fit that does not: every suggestion is a plan made on meta, none is extrapolated. */
#include "plan/lever.h"

#include <stdio.h>
#include <string.h>

/* Events that the plans of one answer may log together: about half a second. */
#define EVENT_BUDGET 60000
#define MOST_PLANS 56
/* Beyond the budget, for what comes last and may be all there is: adapters. */
#define ADAPTER_PLANS 12
#define MOST_TRIED 80
/* Suggestions that do not fit are listed as long as the list is no longer than this. */
#define SHORT_LIST 8

typedef struct trial { /* one lever, as it was planned */
    tl_lever lever;
    bool made; /* false: it cannot be planned, or its state alone is too much */
    tl_plan_suggestion is;
} trial;

typedef struct advisor {
    const tl_plan_options *asked;
    const tl_plan *plan;
    tl_plan_advice *advice;
    int64_t budget; /* plans that may still be made */
    trial trials[MOST_TRIED];
    int n_trials;
    tl_lever fits[MOST_TRIED]; /* what was suggested and fits */
    int n_fits;
    int64_t least; /* bytes with the largest lever so far */
} advisor;

/* What stays when everything else is changed; `p` is the plan of `asked`. Frozen weights are as that plan has them, or in this
 * precision's format. */
static tl_status state_of(const tl_plan_options *o, const tl_plan_options *asked, const tl_plan *p, int64_t *bytes,
                          tl_error *error) {
    int64_t each[TL_CATEGORY_COUNT], was[TL_CATEGORY_COUNT] = {0}, block = 0;
    tl_status status = tl_plan_block_bytes(o->precision, &o->optimizer, each, error);
    if (status == TL_OK)
        status = tl_plan_block_bytes(asked->precision, &asked->optimizer, was, error);
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        block += status == TL_OK && !(c == TL_GRAD && o->choices.update_in_backward) ? each[c] : 0;
    tl_u128 all = (tl_u128)block * (tl_u128)p->trainable / TL_PLAN_BLOCK;
    if (p->adapted_layers && status == TL_OK) {
        int64_t trained = (int64_t)((tl_u128)was[TL_PARAM] * (tl_u128)p->trainable / TL_PLAN_BLOCK);
        int64_t frozen = p->high[TL_PARAM] > trained ? p->high[TL_PARAM] - trained : 0;
        all += (tl_u128)frozen * (tl_u128)each[TL_PARAM] / (tl_u128)was[TL_PARAM];
    }
    *bytes = all < INT64_MAX ? (int64_t)all : INT64_MAX;
    return status;
}

/* No run of `o` holds less: half a byte a parameter where they are kept in 4 bits, the frozen weights where adapters come, else
 * the state. */
static tl_status least_of(const advisor *a, const tl_plan_options *o, int64_t *bytes, tl_error *error) {
    int64_t each[TL_CATEGORY_COUNT];
    tl_u128 parameters = (tl_u128)a->plan->parameters.unique;
    if (o->lora.rank == a->asked->lora.rank && o->lora.base == a->asked->lora.base)
        return state_of(o, a->asked, a->plan, bytes, error);
    tl_status status = tl_plan_block_bytes(o->precision, &o->optimizer, each, error);
    *bytes = 0;
    if (status == TL_OK)
        *bytes = (int64_t)(o->lora.base == TL_LORA_PLAIN ? parameters * (tl_u128)each[TL_PARAM] / TL_PLAN_BLOCK
                                                         : parameters / 2);
    return status;
}

/* Plans `o`. *made is false for what cannot be planned or holds too much to need trying. */
static tl_status try_plan(advisor *a, const tl_plan_options *o, tl_plan_suggestion *s, bool *made, tl_error *error) {
    tl_error local = {TL_OK, ""};
    tl_plan p;
    int64_t least = 0;
    *made = false;
    if (a->budget <= 0)
        return TL_OK;
    tl_status status = least_of(a, o, &least, error);
    if (status != TL_OK || (o->devices.accelerator == a->asked->devices.accelerator && least > a->plan->usable_bytes))
        return status;
    a->budget--;
    a->advice->runs++;
    status = tl_plan_make(o, &p, &local);
    if (status == TL_ERR_MEMORY)
        return tl_fail(error, status, "%s", local.message);
    *made = status == TL_OK;
    if (*made) {
        s->bytes = p.arena_bytes;
        s->needs = p.needs_bytes;
        s->peak_bytes = p.peak.bytes;
        s->hardware_per_step = p.hardware_per_step;
        s->step_seconds = p.step_seconds;
        s->fits = p.fits;
    }
    return TL_OK;
}

/* A place in the list; the last suggestion that does not fit makes room for one that does. NULL: none. */
static tl_plan_suggestion *place_for(tl_plan_advice *advice, bool fits) {
    if (advice->count < TL_PLAN_SUGGESTIONS)
        return &advice->list[advice->count++];
    for (int i = advice->count; fits && i-- > 0;)
        if (!advice->list[i].fits) {
            memmove(&advice->list[i], &advice->list[i + 1], (size_t)(advice->count - 1 - i) * sizeof advice->list[0]);
            return &advice->list[advice->count - 1];
        }
    return NULL;
}

static void keep(advisor *a, const tl_plan_suggestion *s) {
    tl_plan_suggestion *place = place_for(a->advice, s->fits);
    if (place)
        *place = *s;
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

/* The lever as planned, once; NULL where it moves nothing, cannot be, or the plans are used up. */
static tl_status try_lever(advisor *a, const tl_lever *l, const trial **result, tl_error *error) {
    tl_plan_options o;
    *result = NULL;
    for (int i = 0; i < a->n_trials; i++)
        if (is_same(&a->trials[i].lever, l)) {
            *result = a->trials[i].made ? &a->trials[i] : NULL;
            return TL_OK;
        }
    if (a->n_trials == MOST_TRIED || a->budget <= 0 || !tl_lever_applies(a->asked, l))
        return TL_OK;
    trial *t = &a->trials[a->n_trials++];
    memset(t, 0, sizeof *t);
    t->lever = *l;
    t->is.cost = tl_lever_cost(a->asked, l);
    snprintf(t->is.effect, sizeof t->is.effect, "%s", tl_lever_effect(a->asked, l));
    tl_lever_pull(a->asked, l, &o, t->is.change);
    tl_status status = try_plan(a, &o, &t->is, &t->made, error);
    *result = status == TL_OK && t->made ? t : NULL;
    return status;
}

/* Suggests it if it fits, or helps. */
static tl_status attempt(advisor *a, tl_lever l, tl_error *error) {
    const trial *t;
    if (is_needless(a, &l))
        return TL_OK;
    tl_status status = try_lever(a, &l, &t, error);
    if (!t || (!t->is.fits && t->is.needs >= a->plan->needs_bytes))
        return status;
    if (t->is.fits)
        a->fits[a->n_fits++] = l;
    keep(a, &t->is);
    return TL_OK;
}

/* One lever alone that keeps the run: it may be the largest. */
static tl_status attempt_alone(advisor *a, tl_lever l, tl_error *error) {
    const trial *t;
    tl_status status = attempt(a, l, error);
    if (status == TL_OK)
        status = try_lever(a, &l, &t, error);
    if (status == TL_OK && t && t->is.needs < a->least) {
        a->least = t->is.needs;
        a->advice->largest_saving = a->plan->needs_bytes - t->is.needs;
        snprintf(a->advice->largest_lever, sizeof a->advice->largest_lever, "%s", t->is.change);
    }
    return status;
}

/* The largest micro-batch below the asked one that divides the work of a step and fits; 1 is tried as a lever. */
static tl_status smaller_batch(advisor *a, tl_error *error) {
    int64_t whole = tl_lever_per_device(a->asked);
    for (int64_t b = a->asked->micro_batch / 2; b > 1 && a->budget > 0; b /= 2) {
        if (whole % b)
            continue;
        tl_plan_options o = *a->asked;
        tl_plan_suggestion s = {.cost = TL_PLAN_COST_NOTHING};
        bool made;
        o.find_max_micro_batch = false;
        o.micro_batch = b;
        o.global_batch = whole * o.devices.count;
        snprintf(s.change, sizeof s.change, "--micro-batch %lld --global-batch %lld", (long long)b,
                 (long long)o.global_batch);
        snprintf(s.effect, sizeof s.effect, "same run");
        tl_status status = try_plan(a, &o, &s, &made, error);
        if (status != TL_OK)
            return status;
        if (made && s.fits) {
            keep(a, &s);
            a->fits[a->n_fits++] = (tl_lever){.batch = 1};
            break;
        }
    }
    return attempt_alone(a, (tl_lever){.batch = 1}, error);
}

/* The run as it is, at no more FLOPs: nothing is cheaper. */
static bool is_free(const advisor *a) {
    for (int i = 0; i < a->advice->count; i++) {
        const tl_plan_suggestion *s = &a->advice->list[i];
        if (s->fits && s->cost == TL_PLAN_COST_NOTHING && s->hardware_per_step <= a->plan->hardware_per_step)
            return true;
    }
    return false;
}

static const int ways[] = {TL_WAY_FLASH, TL_WAY_LOSS_FUSED, TL_WAY_FUSED, TL_WAY_IN_BACKWARD};
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
    const trial *t;
    for (int r = TL_LEVER_EVERY_4; r < TL_LEVER_FULL && status == TL_OK; r++) {
        tl_lever part = {.recompute = r};
        if (is_free(a) || is_needless(a, &part) || !is_needless(a, &(tl_lever){.recompute = TL_LEVER_FULL}))
            break;
        status = try_lever(a, &part, &t, error);
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
        if (tl_lever_applies(a->asked, &more))
            l = more;
    }
    for (int r = TL_LEVER_RECOMPUTES - 1; r > 0 && !l.recompute; r--) {
        tl_lever more = l;
        more.recompute = r;
        if (tl_lever_applies(a->asked, &more))
            l = more;
    }
    tl_lever more = l; /* last: several micro-batches are stepped after backward */
    more.batch = 1;
    if (!tl_lever_applies(a->asked, &more))
        more.ways &= ~TL_WAY_IN_BACKWARD;
    return tl_lever_applies(a->asked, &more) ? more : l;
}

/* Part `part` of a lever with one thing less, the most of it first; false: no more. */
enum { PART_RECOMPUTE, PART_BATCH, PART_IN_BACKWARD, PART_FUSED, PART_LOSS, PART_FLASH, PARTS };
static bool with_less(const tl_lever *l, int part, int turn, tl_lever *less) {
    static const int bits[PARTS] = {0, 0, TL_WAY_IN_BACKWARD, TL_WAY_FUSED, TL_WAY_LOSS_FUSED, TL_WAY_FLASH};
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
    const trial *is, *t;
    tl_lever less;
    tl_status status = try_lever(a, &l, &is, error);
    for (int i = 0; i < PARTS && is; i++)
        for (int turn = 0; with_less(&l, order[i], turn, &less); turn++) {
            status = try_lever(a, &less, &t, error);
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
    static const int cheapest[PARTS] = {PART_RECOMPUTE, PART_BATCH, PART_IN_BACKWARD,
                                        PART_FUSED,     PART_LOSS,  PART_FLASH};
    static const int plainest[PARTS] = {PART_IN_BACKWARD, PART_FUSED, PART_LOSS,
                                        PART_FLASH,       PART_BATCH, PART_RECOMPUTE};
    const trial *t;
    tl_lever most = furthest(a, l);
    tl_status status = try_lever(a, &most, &t, error);
    if (status != TL_OK || !t || !t->is.fits)
        return status;
    status = least_that_fits(a, most, cheapest, true, error);
    return status == TL_OK ? least_that_fits(a, most, plainest, false, error) : status;
}

/* Half the sequence, a quarter … until it fits, with this pulled. */
static tl_status shorter(advisor *a, tl_lever l, bool *fits, tl_error *error) {
    tl_plan_options o;
    char change[TL_PLAN_CHANGE];
    *fits = false;
    if (a->asked->model.family == TL_FAMILY_CRUNCHER)
        return TL_OK;
    tl_lever_pull(a->asked, &l, &o, change);
    for (int64_t seq = a->asked->seq / 2; seq >= 128 && a->budget > 0; seq /= 2) {
        tl_plan_suggestion s = {.cost = l.adapters ? TL_PLAN_COST_ADAPTERS : TL_PLAN_COST_SEQUENCE};
        bool made;
        o.seq = seq;
        int wrote = snprintf(s.change, sizeof s.change, "--seq %lld%s%s", (long long)seq, change[0] ? " " : "", change);
        if (wrote >= (int)sizeof s.change)
            return TL_OK;
        snprintf(s.effect, sizeof s.effect, "%s", l.adapters ? "trains something else" : "changes the run");
        tl_status status = try_plan(a, &o, &s, &made, error);
        *fits = status == TL_OK && made && s.fits;
        if (*fits)
            keep(a, &s);
        if (status != TL_OK || *fits)
            return status;
    }
    return TL_OK;
}

/* The device of the catalogue with the least memory that holds the plan as it is. */
static tl_status other_device(advisor *a, tl_error *error) {
    const tl_accelerator *best = NULL;
    int64_t least = INT64_MAX, need = a->plan->needs_bytes;
    for (int i = 0; i < tl_accelerator_count(); i++) {
        int64_t capacity, usable, context;
        tl_devices d = {.count = 1, .accelerator = tl_accelerator_at(i)};
        tl_plan_capacity(&d, NULL, a->asked->engine, &capacity, &usable, &context);
        if (usable >= need && usable < least)
            least = usable, best = d.accelerator;
    }
    if (!best || a->asked->devices.here)
        return TL_OK;
    tl_plan_options o = *a->asked;
    tl_plan_suggestion s = {.cost = TL_PLAN_COST_DEVICE};
    bool made;
    o.find_max_micro_batch = false;
    o.peak = 0;
    o.devices = (tl_devices){.count = a->asked->devices.count, .accelerator = best};
    snprintf(s.change, sizeof s.change, "-g %lldx%s", (long long)o.devices.count, best->name);
    snprintf(s.effect, sizeof s.effect, "same run, more memory");
    a->budget = a->budget > 0 ? a->budget + 1 : 1; /* one that is always worth it */
    tl_status status = try_plan(a, &o, &s, &made, error);
    if (status == TL_OK && made)
        keep(a, &s);
    return status;
}

/* Adapters over frozen weights, then over 4-bit weights: alone, with the levers that keep the run, with a shorter sequence. */
static tl_status adapters(advisor *a, tl_error *error) {
    bool fits = false;
    int before = a->n_fits;
    a->budget = a->budget > 0 ? a->budget + ADAPTER_PLANS : ADAPTER_PLANS;
    tl_status status = TL_OK;
    for (int k = 1; k < TL_LEVER_ADAPTERS && status == TL_OK && a->n_fits == before; k++) {
        tl_lever l = {.adapters = k};
        status = attempt(a, l, error);
        if (status == TL_OK && a->n_fits == before)
            status = in_combination(a, l, error);
    }
    tl_lever most = furthest(a, (tl_lever){.adapters = TL_LEVER_ADAPTERS - 1});
    if (status == TL_OK && a->n_fits == before && a->advice->state_exceeds && tl_lever_applies(a->asked, &most))
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
static void rank(tl_plan_advice *advice) {
    for (int i = 1; i < advice->count; i++)
        for (int j = i; j > 0 && comes_before(&advice->list[j], &advice->list[j - 1]); j--) {
            tl_plan_suggestion swap = advice->list[j];
            advice->list[j] = advice->list[j - 1];
            advice->list[j - 1] = swap;
        }
    while (advice->count > SHORT_LIST && !advice->list[advice->count - 1].fits)
        advice->count--;
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
            if ((p || o) && !is_needless(a, &most) && tl_lever_applies(a->asked, &l))
                status = in_combination(a, l, error);
        }
    if (status == TL_OK)
        status = shorter(a, (tl_lever){0}, &fits, error);
    if (status != TL_OK || fits || a->n_fits > 0)
        return status;
    tl_lever all = {0};
    if (tl_lever_applies(a->asked, &(tl_lever){.precision = TL_LEVER_PRECISIONS - 1}))
        all.precision = TL_LEVER_PRECISIONS - 1;
    if (tl_lever_applies(a->asked, &(tl_lever){.optimizer = TL_LEVER_OPTIMIZERS - 1}))
        all.optimizer = TL_LEVER_OPTIMIZERS - 1;
    return shorter(a, furthest(a, all), &fits, error);
}

tl_status tl_plan_advise(const tl_plan_options *options, const tl_plan *plan, tl_plan_advice *advice, tl_error *error) {
    memset(advice, 0, sizeof *advice);
    advisor a = {.asked = options, .plan = plan, .advice = advice, .least = plan->needs_bytes};
    a.budget = 1 + EVENT_BUDGET / (plan->allocations + 1);
    tl_plan_options lean = *options;
    lean.precision = TL_PRECISION_BF16;
    lean.autocast = false;
    lean.optimizer = tl_optimizer_defaults(TL_OPTIM_SGD);
    lean.choices.update_in_backward = false;
    if (a.budget > MOST_PLANS)
        a.budget = MOST_PLANS;
    tl_status status = state_of(options, options, plan, &advice->state_bytes, error);
    if (status == TL_OK)
        status = state_of(&lean, options, plan, &advice->leanest_bytes, error);
    if (status != TL_OK || plan->fits || plan->usable_bytes <= 0)
        return status;
    advice->state_exceeds = advice->leanest_bytes > plan->usable_bytes;
    if (!advice->state_exceeds)
        status = pull_all(&a, error);
    if (status == TL_OK)
        status = other_device(&a, error);
    if (status == TL_OK)
        status = adapters(&a, error);
    rank(advice);
    return status;
}
