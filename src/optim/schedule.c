/* Learning-rate schedules. Outside the planner core: they need cos. */
#include "tally/optim.h"

#include <math.h>

static const char *const names[] = {"constant", "linear", "cosine", "wsd", "wsd-sqrt"};

const char *tl_schedule_name(tl_schedule_kind kind) {
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "?";
}

/* What a schedule has no use for must be 0, so that nobody believes it had an effect. */
static tl_status check_effect(const tl_schedule *s, tl_error *error) {
    bool wsd = s->kind == TL_SCHEDULE_WSD || s->kind == TL_SCHEDULE_WSD_SQRT;
    const char *name = NULL;
    if (!wsd && s->decay_steps != 0)
        name = "decay_steps; wsd and wsd-sqrt would take it";
    else if (s->kind == TL_SCHEDULE_CONSTANT && s->min != 0)
        name = "min; linear, cosine, wsd and wsd-sqrt would take it";
    else if (s->kind == TL_SCHEDULE_CONSTANT && s->total != 0)
        name = "total; linear, cosine, wsd and wsd-sqrt would take it";
    if (name)
        return tl_fail(error, TL_ERR_ARGUMENT, "a schedule %s has no %s", tl_schedule_name(s->kind), name);
    return TL_OK;
}

tl_status tl_schedule_check(const tl_schedule *s, tl_error *error) {
    if ((unsigned)s->kind > TL_SCHEDULE_WSD_SQRT)
        return tl_fail(error, TL_ERR_ARGUMENT, "schedule %d; constant, linear, cosine, wsd and wsd-sqrt are 0 to 4",
                       (int)s->kind);
    const char *name = tl_schedule_name(s->kind);
    if (!(s->max >= 0) || !isfinite(s->max) || !(s->min >= 0) || s->min > s->max)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "schedule %s: learning rates from %g down to %g; finite ones, 0 ≤ min ≤ max, would work", name,
                       s->max, s->min);
    if (s->warmup < 0 || s->total < 0 || s->decay_steps < 0)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "schedule %s: warm-up %lld, total %lld, decay %lld steps; none may be negative", name,
                       (long long)s->warmup, (long long)s->total, (long long)s->decay_steps);
    if (s->kind == TL_SCHEDULE_CONSTANT)
        return check_effect(s, error);
    if (s->total < 1 || s->warmup > s->total)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "schedule %s: %lld steps of warm-up in %lld in all; a total of 1 or more, and no less than the "
                       "warm-up, would work",
                       name, (long long)s->warmup, (long long)s->total);
    if (s->decay_steps > s->total - s->warmup)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "schedule %s: %lld steps of decay after %lld of warm-up in %lld in all; at most %lld would work",
                       name, (long long)s->decay_steps, (long long)s->warmup, (long long)s->total,
                       (long long)(s->total - s->warmup));
    return check_effect(s, error);
}

/* The part of the way from step `from` to step `to` that is done: 0 to 1. */
static double done(int64_t step, int64_t from, int64_t to) {
    return step <= from ? 0 : (double)(step - from) / (double)(to - from);
}

double tl_schedule_lr(const tl_schedule *s, int64_t step) {
    static const double pi = 3.14159265358979323846;
    double x;
    if (step < s->warmup)
        return step < 0 ? 0 : (double)step / (double)s->warmup * s->max;
    if (s->kind == TL_SCHEDULE_CONSTANT)
        return s->max;
    if (step >= s->total)
        return s->min;
    switch (s->kind) {
    case TL_SCHEDULE_LINEAR:
        return s->max + done(step, s->warmup, s->total) * (s->min - s->max);
    case TL_SCHEDULE_COSINE:
        return s->min + 0.5 * (1.0 + cos(pi * done(step, s->warmup, s->total))) * (s->max - s->min);
    default:
        x = done(step, s->total - s->decay_steps, s->total);
        return s->max + (s->kind == TL_SCHEDULE_WSD_SQRT ? sqrt(x) : x) * (s->min - s->max);
    }
}
