/* What would make a plan fit that does not: every suggestion is a plan made on meta, none is extrapolated. */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* Events that the plans of one answer may log together: about half a second. */
#define EVENT_BUDGET 60000
#define MOST_PLANS 32

/* How far each lever is pulled: 0 leaves what was asked, then in the order of what it costs. */
typedef struct levers {
    int batch, recompute, precision, optimizer;
} levers;

enum { BATCHES = 2, RECOMPUTES = 3, PRECISIONS = 3, OPTIMIZERS = 3 };

static const tl_recompute_kind recomputes[RECOMPUTES] = {TL_RECOMPUTE_NONE, TL_RECOMPUTE_SELECTIVE, TL_RECOMPUTE_FULL};
static const tl_precision precisions[PRECISIONS] = {TL_PRECISION_FP32, TL_PRECISION_BF16_MIXED, TL_PRECISION_BF16};
static const tl_optimizer_kind optimizers[OPTIMIZERS] = {TL_OPTIM_ADAMW, TL_OPTIM_ADAMW8BIT, TL_OPTIM_SGD};

typedef struct advisor {
    const tl_plan_options *asked;
    const tl_plan *plan;
    tl_plan_advice *advice;
    int64_t budget; /* plans that may still be made */
    bool tried[BATCHES][RECOMPUTES][PRECISIONS][OPTIMIZERS], fits[BATCHES][RECOMPUTES][PRECISIONS][OPTIMIZERS];
    bool any, only_fitting;
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
        block += status == TL_OK ? each[c] : 0;
    tl_u128 all = (tl_u128)block * (tl_u128)p->trainable / TL_PLAN_BLOCK;
    if (p->adapted_layers && status == TL_OK) {
        int64_t trained = (int64_t)((tl_u128)was[TL_PARAM] * (tl_u128)p->trainable / TL_PLAN_BLOCK);
        int64_t frozen = p->high[TL_PARAM] > trained ? p->high[TL_PARAM] - trained : 0;
        all += (tl_u128)frozen * (tl_u128)each[TL_PARAM] / (tl_u128)was[TL_PARAM];
    }
    *bytes = all < INT64_MAX ? (int64_t)all : INT64_MAX;
    return status;
}

/* Plans `o` into *p. *made is false for what cannot be planned or has too much state to need trying. */
static tl_status try_plan(advisor *a, const tl_plan_options *o, tl_plan *p, bool *made, tl_error *error) {
    tl_error local = {TL_OK, ""};
    int64_t state = 0;
    *made = false;
    if (a->budget <= 0)
        return TL_OK;
    tl_status status = state_of(o, a->asked, a->plan, &state, error);
    if (status != TL_OK || (o->devices.accelerator == a->asked->devices.accelerator && state > a->plan->usable_bytes))
        return status;
    a->budget--;
    a->advice->runs++;
    status = tl_plan_make(o, p, &local);
    if (status == TL_ERR_MEMORY)
        return tl_fail(error, status, "%s", local.message);
    *made = status == TL_OK;
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

/* Plans `o` and keeps it as a suggestion if it fits, or, unless a->only_fitting, helps. */
static tl_status suggest(advisor *a, const tl_plan_options *o, const char *change, tl_plan_cost cost,
                         const char *effect, bool *fits, tl_error *error) {
    tl_plan p;
    bool made;
    *fits = false;
    tl_status status = try_plan(a, o, &p, &made, error);
    if (status != TL_OK || !made || (!p.fits && (a->only_fitting || p.needs_bytes >= a->plan->needs_bytes)))
        return status;
    *fits = p.fits;
    tl_plan_suggestion *s = place_for(a->advice, p.fits);
    if (!s)
        return TL_OK;
    *s = (tl_plan_suggestion){.cost = cost,
                              .bytes = p.needs_bytes,
                              .peak_bytes = p.peak.bytes,
                              .hardware_per_step = p.hardware_per_step,
                              .step_seconds = p.step_seconds,
                              .fits = p.fits};
    snprintf(s->change, sizeof s->change, "%s", change);
    snprintf(s->effect, sizeof s->effect, "%s", effect);
    return TL_OK;
}

/* ---- levers ---- */

static int strength(tl_recompute_kind kind) {
    return kind == TL_RECOMPUTE_NONE ? 0 : kind == TL_RECOMPUTE_FULL ? 2 : 1;
}

static int64_t per_device(const advisor *a) { return a->plan->global_batch / a->plan->devices; }

/* Whether each lever moves anything from what was asked. */
static bool applies(const advisor *a, const levers *l) {
    const tl_plan_options *o = a->asked;
    const tl_optimizer_options *optimizer = &o->optimizer;
    bool blocks = o->model.family != TL_FAMILY_CRUNCHER;
    if (l->batch && o->micro_batch == 1)
        return false;
    if (l->recompute && (!blocks || strength(recomputes[l->recompute]) <= strength(o->recompute.kind)))
        return false;
    if (l->precision && (o->precision == TL_PRECISION_BF16 || o->autocast || precisions[l->precision] == o->precision ||
                         (precisions[l->precision] == TL_PRECISION_BF16_MIXED && o->precision != TL_PRECISION_FP32)))
        return false;
    if (l->optimizer &&
        (optimizer->kind == TL_OPTIM_NONE || (optimizer->kind == TL_OPTIM_SGD && optimizer->momentum == 0)))
        return false;
    if (optimizers[l->optimizer] == TL_OPTIM_ADAMW8BIT && (optimizer->kind != TL_OPTIM_ADAMW || optimizer->cs336_order))
        return false; /* it is AdamW's own states in 8 bits */
    return true;
}

static void pull(const advisor *a, const levers *l, tl_plan_options *o, char *change, size_t size) {
    char batch[64] = "", recompute[32] = "", precision[48] = "", optimizer[32] = "", text[16];
    *o = *a->asked;
    o->find_max_micro_batch = false;
    if (l->batch) {
        o->micro_batch = 1; /* always divides */
        o->global_batch = per_device(a) * a->plan->devices;
        snprintf(batch, sizeof batch, " --micro-batch 1 --global-batch %lld", (long long)o->global_batch);
    }
    if (l->recompute) {
        o->recompute = (tl_recompute){recomputes[l->recompute], 0};
        snprintf(recompute, sizeof recompute, " --recompute %s", tl_recompute_text(o->recompute, text, sizeof text));
    }
    if (l->precision) {
        o->precision = precisions[l->precision];
        snprintf(precision, sizeof precision, " --precision %s%s", tl_precision_name(o->precision),
                 o->autocast ? " --autocast off" : "");
        o->autocast = false;
    }
    if (l->optimizer) {
        if (optimizers[l->optimizer] == TL_OPTIM_ADAMW8BIT)
            o->optimizer.kind = TL_OPTIM_ADAMW8BIT, o->optimizer.states = TL_STATES_DEFAULT; /* the rest as asked */
        else
            o->optimizer = tl_optimizer_defaults(optimizers[l->optimizer]);
        snprintf(optimizer, sizeof optimizer, " --optim %s", tl_optimizer_name(o->optimizer.kind));
    }
    char all[sizeof batch + sizeof recompute + sizeof precision + sizeof optimizer];
    snprintf(all, sizeof all, "%s%s%s%s", batch, recompute, precision, optimizer);
    snprintf(change, size, "%s", all[0] ? all + 1 : all);
}

static tl_plan_cost cost_of(const levers *l) {
    if (l->optimizer)
        return l->precision ? TL_PLAN_COST_BOTH : TL_PLAN_COST_OPTIMIZER;
    return l->precision ? TL_PLAN_COST_PRECISION : TL_PLAN_COST_NOTHING;
}

static const char *effect_of(const levers *l) {
    static const char *const effects[] = {"same run", "other rounding", "other optimizer", "rounding, optimizer"};
    if (optimizers[l->optimizer] == TL_OPTIM_ADAMW8BIT && !l->precision)
        return "8-bit states";
    return effects[cost_of(l)];
}

/* A cheaper part of it is enough. */
static bool is_needless(const advisor *a, const levers *l) {
    for (int b = 0; b <= l->batch; b++)
        for (int r = 0; r <= l->recompute; r++)
            for (int p = 0; p <= l->precision; p++)
                for (int o = 0; o <= l->optimizer; o++)
                    if (a->fits[b][r][p][o])
                        return true;
    return false;
}

static tl_status attempt(advisor *a, levers l, tl_error *error) {
    bool *tried = &a->tried[l.batch][l.recompute][l.precision][l.optimizer];
    tl_plan_options o;
    char change[TL_PLAN_CHANGE];
    bool fits = false;
    if (*tried || is_needless(a, &l) || !applies(a, &l))
        return TL_OK;
    *tried = true;
    pull(a, &l, &o, change, sizeof change);
    tl_status status = suggest(a, &o, change, cost_of(&l), effect_of(&l), &fits, error);
    a->fits[l.batch][l.recompute][l.precision][l.optimizer] = fits;
    a->any = a->any || fits;
    return status;
}

/* The largest micro-batch below the asked one that divides the work of a step and fits; 1 is tried as a lever. */
static tl_status smaller_batch(advisor *a, tl_error *error) {
    for (int64_t b = a->asked->micro_batch / 2; b > 1 && a->budget > 0; b /= 2) {
        if (per_device(a) % b)
            continue;
        tl_plan_options o = *a->asked;
        char change[TL_PLAN_CHANGE];
        int before = a->advice->count;
        bool fits;
        o.find_max_micro_batch = false;
        o.micro_batch = b;
        o.global_batch = a->plan->global_batch;
        snprintf(change, sizeof change, "--micro-batch %lld --global-batch %lld", (long long)b,
                 (long long)o.global_batch);
        tl_status status = suggest(a, &o, change, TL_PLAN_COST_NOTHING, "same run", &fits, error);
        if (status != TL_OK)
            return status;
        if (fits) {
            a->fits[1][0][0][0] = a->any = true;
            return TL_OK;
        }
        a->advice->count = before;
    }
    return attempt(a, (levers){.batch = 1}, error);
}

/* The run stays the same: computed in more parts, or partly twice. */
static tl_status same_run(advisor *a, tl_error *error) {
    tl_status status = smaller_batch(a, error);
    for (int batch = 0; batch < BATCHES; batch++)
        for (int r = 1; r < RECOMPUTES && status == TL_OK; r++)
            status = attempt(a, (levers){.batch = batch, .recompute = r}, error);
    return status;
}

static tl_status one_change(advisor *a, tl_error *error) {
    tl_status status = TL_OK;
    for (int p = 1; p < PRECISIONS && status == TL_OK; p++)
        status = attempt(a, (levers){.precision = p}, error);
    for (int o = 1; o < OPTIMIZERS && status == TL_OK; o++)
        status = attempt(a, (levers){.optimizer = o}, error);
    return status;
}

/* The levers that keep the run, as far as they go. */
static levers furthest(const advisor *a) {
    levers l = {.batch = 1};
    l.batch = applies(a, &l);
    for (int r = RECOMPUTES - 1; r > 0 && !l.recompute; r--)
        if (applies(a, &(levers){.recompute = r}))
            l.recompute = r;
    return l;
}

/* Another number format or optimizer with all of the cheaper levers, and if that fits with fewer of them. */
static tl_status changed_run(advisor *a, int precision, int optimizer, tl_error *error) {
    levers l = furthest(a);
    tl_plan_options o;
    tl_plan p;
    char change[TL_PLAN_CHANGE];
    bool made;
    l.precision = precision;
    l.optimizer = optimizer;
    if (is_needless(a, &l) || !applies(a, &l))
        return TL_OK;
    pull(a, &l, &o, change, sizeof change);
    tl_status status = try_plan(a, &o, &p, &made, error);
    if (status != TL_OK || !made || !p.fits)
        return status;
    a->only_fitting = true;
    for (int r = 0; r < RECOMPUTES; r++)
        for (int b = 0; b < BATCHES && status == TL_OK; b++)
            status = attempt(a, (levers){b, r, precision, optimizer}, error);
    a->only_fitting = false;
    return status;
}

/* Half the sequence, a quarter … until it fits, with these levers pulled. */
static tl_status shorter(advisor *a, levers l, bool *fits, tl_error *error) {
    tl_plan_options o;
    char change[TL_PLAN_CHANGE], text[TL_PLAN_CHANGE];
    *fits = false;
    if (a->asked->model.family == TL_FAMILY_CRUNCHER)
        return TL_OK;
    pull(a, &l, &o, change, sizeof change);
    for (int64_t seq = a->asked->seq / 2; seq >= 128 && a->budget > 0; seq /= 2) {
        int before = a->advice->count;
        o.seq = seq;
        snprintf(text, sizeof text, "--seq %lld%s%.160s", (long long)seq, change[0] ? " " : "", change);
        tl_status status = suggest(a, &o, text, TL_PLAN_COST_SEQUENCE, "changes the run", fits, error);
        if (status != TL_OK || *fits)
            return status;
        a->advice->count = before;
    }
    return TL_OK;
}

/* The device of the catalogue with the least memory that holds the plan as it is. */
static tl_status other_device(advisor *a, tl_error *error) {
    const tl_accelerator *best = NULL;
    int64_t least = INT64_MAX;
    bool fits;
    for (int i = 0; i < tl_accelerator_count(); i++) {
        int64_t capacity, usable, context;
        tl_devices d = {.count = 1, .accelerator = tl_accelerator_at(i)};
        tl_plan_capacity(&d, NULL, a->asked->engine, &capacity, &usable, &context);
        if (usable >= a->plan->needs_bytes && usable < least)
            least = usable, best = d.accelerator;
    }
    if (!best || a->asked->devices.here)
        return TL_OK;
    tl_plan_options o = *a->asked;
    char change[TL_PLAN_CHANGE];
    o.find_max_micro_batch = false;
    o.peak = 0;
    o.devices = (tl_devices){.count = a->asked->devices.count, .accelerator = best};
    snprintf(change, sizeof change, "-g %lldx%s", (long long)o.devices.count, best->name);
    a->budget++; /* one that is always worth it */
    return suggest(a, &o, change, TL_PLAN_COST_DEVICE, "same run, more memory", &fits, error);
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
}

static tl_status pull_all(advisor *a, tl_error *error) {
    bool fits = false;
    tl_status status = same_run(a, error);
    if (status == TL_OK)
        status = one_change(a, error);
    bool enough = a->any;
    for (int o = 0; o < OPTIMIZERS; o++)
        for (int p = 0; p < PRECISIONS && !enough && status == TL_OK; p++)
            if (p || o)
                status = changed_run(a, p, o, error);
    if (status == TL_OK)
        status = shorter(a, (levers){0}, &fits, error);
    if (status != TL_OK || fits || a->any)
        return status;
    levers all = furthest(a);
    if (applies(a, &(levers){.precision = PRECISIONS - 1}))
        all.precision = PRECISIONS - 1;
    if (applies(a, &(levers){.optimizer = OPTIMIZERS - 1}))
        all.optimizer = OPTIMIZERS - 1;
    return shorter(a, all, &fits, error);
}

tl_status tl_plan_advise(const tl_plan_options *options, const tl_plan *plan, tl_plan_advice *advice, tl_error *error) {
    memset(advice, 0, sizeof *advice);
    advisor a = {
        .asked = options, .plan = plan, .advice = advice, .budget = 1 + EVENT_BUDGET / (plan->allocations + 1)};
    tl_plan_options lean = *options;
    lean.precision = TL_PRECISION_BF16;
    lean.autocast = false;
    lean.optimizer = tl_optimizer_defaults(TL_OPTIM_SGD);
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
    rank(advice);
    return status;
}
