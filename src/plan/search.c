/* What fits: the answer and the next size are planned on meta, and where to look is told from plans with fewer layers. */
#include "plan/plan.h"

#include <string.h>

/* Sizes beyond this are no batch and no context; the doubling stops there. */
#define LARGEST ((int64_t)1 << 40)

typedef struct search {
    tl_plan_options o;
    tl_plan_axis axis;
    tl_plan_pool *pool;
    bool guesses; /* sizes are looked at with fewer layers */
    int64_t usable, limit;
    /* The largest that fits and the least that does not, so far; 0: none. */
    int64_t low, low_bytes, high, high_bytes;
    tl_plan_largest *largest;
} search;

static void set_value(search *s, int64_t value) {
    if (s->axis == TL_PLAN_MICRO_BATCH)
        s->o.micro_batch = value;
    else
        s->o.seq = value;
}

/* What is beyond 64 bits does not fit. */
static tl_status plan_value(search *s, int64_t value, int64_t *needs, tl_error *error) {
    tl_error local = {TL_OK, ""};
    tl_plan p;
    tl_status status = tl_plan_account(&s->o, false, s->pool, &p, &local);
    s->largest->runs++;
    if (status == TL_ERR_OVERFLOW) {
        *needs = INT64_MAX;
        return TL_OK;
    }
    if (status != TL_OK)
        return tl_fail(error, status, "%s", local.message);
    *needs = p.needs_bytes;
    s->usable = p.usable_bytes;
    if (p.fits || value == 1) {
        s->largest->bytes = p.needs_bytes;
        s->largest->peak_bytes = p.peak.bytes;
    }
    return TL_OK;
}

static tl_status look(search *s, int64_t value, tl_error *error) {
    int64_t needs = 0;
    set_value(s, value);
    if (s->guesses) {
        tl_plan_estimate e;
        tl_status status = tl_plan_guess(&s->o, INT64_MAX, s->pool, &e, error);
        if (status != TL_OK)
            return status;
        s->guesses = e.known;
        needs = e.needs;
    } else {
        tl_status status = plan_value(s, value, &needs, error);
        if (status != TL_OK)
            return status;
    }
    if (needs <= s->usable)
        s->low = value, s->low_bytes = needs;
    else
        s->high = value, s->high_bytes = needs;
    return TL_OK;
}

/* Between a value that fits and one that does not: where the line through their bytes meets the memory, every third time the
 * middle, as the bytes of a sequence grow faster than a line. */
static int64_t between(const search *s, int turn) {
    int64_t low = s->low, high = s->high;
    if (turn % 3 == 2 || s->high_bytes == INT64_MAX || s->high_bytes <= s->low_bytes || low == 0)
        return low + (high - low) / 2;
    double share = (double)(s->usable - s->low_bytes) / (double)(s->high_bytes - s->low_bytes);
    int64_t guess = low + (int64_t)(share * (double)(high - low));
    guess += turn % 3 == 1; /* the line may have found it: is the next one too large? */
    return guess <= low ? low + 1 : guess >= high ? high - 1 : guess;
}

/* How far from `start` the memory is met, if each unit there takes the same. */
static int64_t first_step(const search *s, int64_t start) {
    int64_t bytes = s->low ? s->low_bytes : s->high_bytes, each = bytes / start;
    int64_t from = bytes > s->usable ? bytes - s->usable : s->usable - bytes;
    return start > 1 && bytes < INT64_MAX && each > 0 ? 1 + from / each : 1;
}

/* From `start` in steps that double, up while it fits or down while it does not, then between the two. */
static tl_status find(search *s, int64_t start, tl_error *error) {
    bool guessed = s->guesses;
    s->low = s->high = 0;
    tl_status status = look(s, start, error);
    for (int64_t step = first_step(s, start), turn = 0; status == TL_OK && s->guesses == guessed; turn++) {
        if (s->high == 0 && s->low < s->limit) {
            status = look(s, s->low > s->limit - step ? s->limit : s->low + step, error);
            step *= 2;
        } else if (s->low == 0 && s->high > 1) {
            status = look(s, s->high > step ? s->high - step : 1, error);
            step *= 2;
        } else if (s->high - s->low > 1) /* no more once either is none */
            status = look(s, between(s, (int)turn), error);
        else
            break;
    }
    return status;
}

static tl_status check(const tl_plan_options *o, tl_plan_axis axis, int64_t *usable, tl_error *error) {
    int64_t capacity, context;
    if (axis == TL_PLAN_SEQ && o->model.family == TL_FAMILY_CRUNCHER)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s has no sequence; micro-batch would work", o->model.name);
    tl_plan_capacity(&o->devices, o->machine, o->engine, &capacity, usable, &context);
    return TL_OK;
}

/* Near where the guesses meet the memory; 1 where they do not tell. */
static tl_status first_guess(search *s, int64_t *start, tl_error *error) {
    s->guesses = true;
    tl_status status = find(s, 1, error);
    *start = s->guesses && s->low > 0 ? s->low : 1;
    s->guesses = false;
    return status;
}

tl_status tl_plan_search(const tl_plan_options *options, tl_plan_axis axis, tl_plan_pool *pool,
                         tl_plan_largest *largest, tl_error *error) {
    int64_t start = 1;
    memset(largest, 0, sizeof *largest);
    search s = {.o = *options, .axis = axis, .pool = pool, .limit = LARGEST, .largest = largest};
    s.o.find_max_micro_batch = false;
    s.o.global_batch = 0;
    if (axis == TL_PLAN_SEQ && s.o.model.learned_positions)
        s.limit = s.o.model.context;
    tl_status status = check(&s.o, axis, &s.usable, error);
    if (status == TL_OK && s.usable > 0)
        status = first_guess(&s, &start, error);
    if (status == TL_OK)
        status = find(&s, start, error);
    if (status != TL_OK)
        return status;
    if (s.usable <= 0)
        return tl_fail(error, TL_ERR_STATE, "the memory of the device is not known");
    if (s.low == 0 && s.high_bytes == INT64_MAX)
        return tl_fail(error, TL_ERR_OVERFLOW, "even 1 needs more than 2^63 bytes with the other sizes as they are");
    largest->value = s.low;
    largest->limited = s.high == 0;
    largest->next_bytes = s.high_bytes == INT64_MAX ? 0 : s.high_bytes;
    return TL_OK;
}

tl_status tl_plan_find_largest(const tl_plan_options *options, tl_plan_axis axis, tl_plan_largest *largest,
                               tl_error *error) {
    tl_plan_pool *pool = tl_plan_pool_new(error);
    if (!pool)
        return TL_ERR_MEMORY;
    tl_status status = tl_plan_search(options, axis, pool, largest, error);
    tl_plan_pool_free(pool);
    return status;
}
