/* What fits: answers found by planning again on meta, never by extrapolation. */
#include "plan/plan.h"

#include <string.h>

/* Sizes beyond this are no batch and no context; the doubling stops there. */
#define LARGEST ((int64_t)1 << 40)
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
        p->arena_bytes = p->needs_bytes = INT64_MAX;
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
    if (p.needs_bytes == INT64_MAX)
        return tl_fail(error, TL_ERR_OVERFLOW, "even 1 needs more than 2^63 bytes with the other sizes as they are");
    if (p.usable_bytes <= 0)
        return tl_fail(error, TL_ERR_STATE, "the memory of the device is not known");
    largest->runs = 1;
    largest->bytes = p.needs_bytes;
    largest->peak_bytes = p.peak.bytes;
    if (!p.fits) {
        largest->next_bytes = p.needs_bytes;
        return TL_OK;
    }
    low = 1, low_bytes = p.needs_bytes;
    for (int turn = 0; high == 0 ? low < limit : high - low > 1; turn++) {
        int64_t value = high ? between(&p, low, low_bytes, high, high_bytes, turn) : low > limit / 2 ? limit : low * 2;
        if ((status = try_value(&o, axis, value, &p, error)) != TL_OK)
            return status;
        largest->runs++;
        if (p.fits) {
            low = value, low_bytes = p.needs_bytes;
            largest->bytes = p.needs_bytes;
            largest->peak_bytes = p.peak.bytes;
        } else {
            high = value, high_bytes = p.needs_bytes;
            p.usable_bytes = 0; /* unknown where it overflowed */
            int64_t capacity, context;
            tl_plan_capacity(&o.devices, o.machine, o.engine, &capacity, &p.usable_bytes, &context);
        }
    }
    largest->value = low;
    largest->limited = high == 0;
    largest->next_bytes = high_bytes == INT64_MAX ? 0 : high_bytes;
    return TL_OK;
}
