/* What fits: answers found by planning again on meta, never by extrapolation. */
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* Sizes beyond this are no batch and no context; the doubling stops there. */
#define LARGEST ((int64_t)1 << 40)
/* Events that the plans of one answer may log together: about half a second. */
#define EVENT_BUDGET 60000

static void set_axis(tl_plan_options *o, tl_plan_axis axis, int64_t value) {
    if (axis == TL_PLAN_MICRO_BATCH)
        o->micro_batch = value;
    else
        o->seq = value;
}

/* Plans one value. What is beyond 64 bits does not fit. */
static tl_status try_value(tl_plan_options *o, tl_plan_axis axis, int64_t value, tl_plan *p, tl_error *error) {
    tl_error local = {TL_OK, ""};
    set_axis(o, axis, value);
    tl_status status = tl_plan_make(o, p, &local);
    if (status == TL_ERR_OVERFLOW) {
        memset(p, 0, sizeof *p);
        p->arena_bytes = INT64_MAX;
        return TL_OK;
    }
    return status == TL_OK ? TL_OK : tl_fail(error, status, "%s", local.message);
}

/* Between a value that fits and one that does not: where the line through their bytes meets the memory, every third time the
 * middle, as the bytes of a sequence grow faster than a line. */
static int64_t between(const tl_plan *p, int64_t low, int64_t low_bytes, int64_t high, int64_t high_bytes, int turn) {
    if (turn % 3 == 2 || high_bytes == INT64_MAX || high_bytes <= low_bytes)
        return low + (high - low) / 2;
    double share = (double)(p->usable_bytes - low_bytes) / (double)(high_bytes - low_bytes);
    int64_t guess = low + (int64_t)(share * (double)(high - low));
    guess += turn % 3 == 1; /* the line may have found it: is the next one too large? */
    return guess <= low ? low + 1 : guess >= high ? high - 1 : guess;
}

tl_status tl_plan_find_largest(const tl_plan_options *options, tl_plan_axis axis, tl_plan_largest *largest,
                               tl_error *error) {
    tl_plan_options o = *options;
    tl_plan p;
    int64_t limit = LARGEST, low, high = 0, low_bytes, high_bytes = 0;
    memset(largest, 0, sizeof *largest);
    o.find_max_micro_batch = false;
    o.global_batch = 0;
    if (axis == TL_PLAN_SEQ && o.model.family == TL_FAMILY_CRUNCHER)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s has no sequence; micro-batch would work", o.model.name);
    if (axis == TL_PLAN_SEQ && o.model.learned_positions)
        limit = o.model.context;
    tl_status status = try_value(&o, axis, 1, &p, error);
    if (status != TL_OK)
        return status;
    if (p.arena_bytes == INT64_MAX)
        return tl_fail(error, TL_ERR_OVERFLOW, "even 1 needs more than 2^63 bytes with the other sizes as they are");
    if (p.usable_bytes <= 0)
        return tl_fail(error, TL_ERR_STATE, "the memory of the device is not known");
    largest->runs = 1;
    largest->bytes = p.arena_bytes;
    largest->peak_bytes = p.peak.bytes;
    if (!p.fits) {
        largest->next_bytes = p.arena_bytes;
        return TL_OK;
    }
    low = 1, low_bytes = p.arena_bytes;
    for (int turn = 0; high == 0 ? low < limit : high - low > 1; turn++) {
        int64_t value = high ? between(&p, low, low_bytes, high, high_bytes, turn) : low > limit / 2 ? limit : low * 2;
        if ((status = try_value(&o, axis, value, &p, error)) != TL_OK)
            return status;
        largest->runs++;
        if (p.fits) {
            low = value, low_bytes = p.arena_bytes;
            largest->bytes = p.arena_bytes;
            largest->peak_bytes = p.peak.bytes;
        } else {
            high = value, high_bytes = p.arena_bytes;
            p.usable_bytes = 0; /* unknown where it overflowed */
            int64_t capacity, context;
            tl_plan_capacity(&o.devices, o.machine, &capacity, &p.usable_bytes, &context);
        }
    }
    largest->value = low;
    largest->limited = high == 0;
    largest->next_bytes = high_bytes == INT64_MAX ? 0 : high_bytes;
    return TL_OK;
}

/* ---- advice ---- */

typedef struct advisor {
    const tl_plan_options *asked;
    const tl_plan *plan;
    tl_plan_advice *advice;
    int64_t budget; /* plans that may still be made */
} advisor;

static tl_status state_of(const tl_plan_options *o, const tl_plan *p, int64_t *bytes, tl_error *error) {
    int64_t each[TL_CATEGORY_COUNT], sum = 0;
    tl_status status = tl_plan_bytes_per_parameter(o->precision, &o->optimizer, each, error);
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        sum += status == TL_OK ? each[c] : 0;
    int64_t scales = o->optimizer.kind == TL_OPTIM_ADAMW8BIT ? p->parameters.unique / TL_OPTIM_8BIT_BLOCK * 8 : 0;
    if (status == TL_OK && !(tl_mul_i64(sum, p->parameters.unique, bytes) && tl_add_i64(*bytes, scales, bytes)))
        *bytes = INT64_MAX;
    return status;
}

/* Plans `o` and keeps it as a suggestion. *fits says whether it does; plans that cannot be made are no suggestion. */
static tl_status suggest(advisor *a, const tl_plan_options *o, const char *change, const char *effect, bool *fits,
                         tl_error *error) {
    tl_plan p;
    tl_error local = {TL_OK, ""};
    int64_t state = 0;
    *fits = false;
    if (a->budget <= 0 || a->advice->count == TL_PLAN_SUGGESTIONS)
        return TL_OK;
    tl_status status = state_of(o, a->plan, &state, error);
    if (status != TL_OK || (o->devices.accelerator == a->asked->devices.accelerator && state > a->plan->usable_bytes))
        return status; /* its state alone is too much: no need to try */
    a->budget--;
    a->advice->runs++;
    status = tl_plan_make(o, &p, &local);
    if (status == TL_ERR_MEMORY)
        return tl_fail(error, status, "%s", local.message);
    if (status != TL_OK || (!p.fits && p.arena_bytes >= a->plan->arena_bytes))
        return TL_OK;
    tl_plan_suggestion *s = &a->advice->list[a->advice->count++];
    snprintf(s->change, sizeof s->change, "%s", change);
    snprintf(s->effect, sizeof s->effect, "%s", effect);
    s->bytes = p.arena_bytes;
    s->peak_bytes = p.peak.bytes;
    s->step_seconds = p.step_seconds;
    *fits = s->fits = p.fits;
    return TL_OK;
}

/* The levers, as bits, in the order of what they cost. */
enum { SMALLER_BATCH = 1, SMALL_STATES = 2, LEAN_PRECISION = 4, NO_STATES = 8, LEVERS = 4 };

static bool pull(const advisor *a, int levers, tl_plan_options *o, char change[96]) {
    int64_t per_device = a->plan->global_batch / a->plan->devices;
    char text[56] = "";
    *o = *a->asked;
    o->find_max_micro_batch = false;
    if (levers & SMALLER_BATCH) {
        if (o->micro_batch == 1)
            return false;
        o->micro_batch = 1; /* always divides */
        o->global_batch = per_device * a->plan->devices;
        snprintf(text, sizeof text, " --micro-batch 1 --global-batch %lld", (long long)o->global_batch);
    }
    if (levers & SMALL_STATES) {
        bool same = o->optimizer.kind == TL_OPTIM_ADAMW && !o->optimizer.cs336_order;
        if (!same || levers & NO_STATES)
            return false;
        o->optimizer.kind = TL_OPTIM_ADAMW8BIT;
        o->optimizer.states = TL_STATES_DEFAULT;
    }
    if (levers & LEAN_PRECISION) {
        if (o->precision == TL_PRECISION_BF16)
            return false;
        o->precision = TL_PRECISION_BF16;
    }
    if (levers & NO_STATES) {
        if (o->optimizer.kind == TL_OPTIM_NONE || (o->optimizer.kind == TL_OPTIM_SGD && o->optimizer.momentum == 0))
            return false;
        o->optimizer = tl_optimizer_defaults(TL_OPTIM_SGD);
    }
    snprintf(change, 96, "%s%s%s", text, levers & LEAN_PRECISION ? " --precision bf16" : "",
             levers & SMALL_STATES ? " --optim adamw8bit"
             : levers & NO_STATES  ? " --optim sgd"
                                   : "");
    memmove(change, change + 1, strlen(change)); /* without the first space */
    return true;
}

static const char *effect_of(int levers) {
    if (levers & NO_STATES)
        return "other optimizer";
    if (levers & LEAN_PRECISION)
        return levers & SMALL_STATES ? "bf16, 8 bits" : "bf16 rounding";
    if (levers & SMALL_STATES)
        return "8-bit states";
    return "same run";
}

/* The largest micro-batch below the asked one that divides the work of a step and fits. */
static tl_status smaller_batch(advisor *a, bool *fits, tl_error *error) {
    int64_t per_device = a->plan->global_batch / a->plan->devices;
    for (int64_t b = a->asked->micro_batch / 2; b > 1 && a->budget > 0; b /= 2) {
        if (per_device % b)
            continue;
        tl_plan_options o = *a->asked;
        char change[96];
        int before = a->advice->count;
        o.find_max_micro_batch = false;
        o.micro_batch = b;
        o.global_batch = a->plan->global_batch;
        snprintf(change, sizeof change, "--micro-batch %lld --global-batch %lld", (long long)b,
                 (long long)o.global_batch);
        tl_status status = suggest(a, &o, change, effect_of(SMALLER_BATCH), fits, error);
        if (status != TL_OK || *fits)
            return status;
        a->advice->count = before;
    }
    return TL_OK;
}

/* Half the sequence, a quarter … until it fits, with these levers pulled. */
static tl_status shorter(advisor *a, int levers, bool *fits, tl_error *error) {
    tl_plan_options o;
    char change[96] = "", text[96];
    *fits = false;
    if (levers == 0) {
        o = *a->asked;
        o.find_max_micro_batch = false;
    } else if (!pull(a, levers, &o, change)) {
        return TL_OK;
    }
    if (o.model.family == TL_FAMILY_CRUNCHER)
        return TL_OK;
    for (int64_t seq = a->asked->seq / 2; seq >= 128 && a->budget > 0; seq /= 2) {
        int before = a->advice->count;
        o.seq = seq;
        snprintf(text, sizeof text, "--seq %lld%s%.64s", (long long)seq, change[0] ? " " : "", change);
        tl_status status = suggest(a, &o, text, "changes the run", fits, error);
        if (status != TL_OK || *fits)
            return status;
        a->advice->count = before;
    }
    return TL_OK;
}

/* The device of the catalogue with the least memory that holds the plan as it is. */
static tl_status other_device(advisor *a, bool *fits, tl_error *error) {
    const tl_accelerator *best = NULL;
    int64_t least = INT64_MAX;
    *fits = false;
    for (int i = 0; i < tl_accelerator_count(); i++) {
        int64_t capacity, usable, context;
        tl_devices d = {.count = 1, .accelerator = tl_accelerator_at(i)};
        tl_plan_capacity(&d, NULL, &capacity, &usable, &context);
        if (usable >= a->plan->arena_bytes && usable < least)
            least = usable, best = d.accelerator;
    }
    if (!best || a->asked->devices.here)
        return TL_OK;
    tl_plan_options o = *a->asked;
    char change[96];
    o.find_max_micro_batch = false;
    o.peak = 0;
    o.devices = (tl_devices){.count = a->asked->devices.count, .accelerator = best};
    snprintf(change, sizeof change, "-g %lldx%s", (long long)o.devices.count, best->name);
    return suggest(a, &o, change, "same run, more memory", fits, error);
}

/* Those that fit first, each part in the order found. */
static void rank(tl_plan_advice *advice) {
    for (int i = 1; i < advice->count; i++)
        for (int j = i; j > 0 && advice->list[j].fits && !advice->list[j - 1].fits; j--) {
            tl_plan_suggestion swap = advice->list[j];
            advice->list[j] = advice->list[j - 1];
            advice->list[j - 1] = swap;
        }
}

tl_status tl_plan_advise(const tl_plan_options *options, const tl_plan *plan, tl_plan_advice *advice, tl_error *error) {
    memset(advice, 0, sizeof *advice);
    advisor a = {options, plan, advice, 1 + EVENT_BUDGET / (plan->allocations + 1)};
    tl_plan_options lean = *options;
    char change[96];
    bool fits = false, any = false, done[1 << LEVERS] = {false};
    lean.precision = TL_PRECISION_BF16;
    lean.optimizer = tl_optimizer_defaults(TL_OPTIM_SGD);
    if (a.budget > 24)
        a.budget = 24;
    tl_status status = state_of(options, plan, &advice->state_bytes, error);
    if (status == TL_OK)
        status = state_of(&lean, plan, &advice->leanest_bytes, error);
    if (status != TL_OK || plan->fits || plan->usable_bytes <= 0)
        return status;
    advice->state_exceeds = advice->leanest_bytes > plan->usable_bytes;
    if (!advice->state_exceeds) {
        status = smaller_batch(&a, &fits, error);
        done[SMALLER_BATCH] = any = fits;
        for (int levers = 1; levers < 1 << LEVERS && status == TL_OK; levers++) {
            bool subset = false; /* a cheaper part of it is enough */
            for (int part = 1; part < levers; part++)
                subset = subset || ((part & levers) == part && done[part]);
            if (subset || done[levers] || !pull(&a, levers, &lean, change))
                continue;
            status = suggest(&a, &lean, change, effect_of(levers), &done[levers], error);
            any = any || done[levers];
        }
        if (status == TL_OK)
            status = shorter(&a, 0, &fits, error);
        if (status == TL_OK && !fits && !any)
            status =
                shorter(&a, (options->micro_batch > 1 ? SMALLER_BATCH : 0) | LEAN_PRECISION | NO_STATES, &fits, error);
    }
    if (status == TL_OK)
        status = other_device(&a, &fits, error);
    rank(advice);
    return status;
}
