/* Changes that were tried. What is shown of one is always from its own plan; that it is not worth planning may be told from a
 * plan with fewer layers (guess.c). */
#include "plan/trial.h"

#include <stdio.h>
#include <string.h>

/* Per cent of the usable bytes of which a guess surely fits, and beyond which what other trials say, or a part of the layers, is
 * too much. It may be wrong: what is shown is planned. */
enum { SURELY_FITS = 97, FAR = 120, BOUND = 102, IN_PART = 110, IN_PART_FAR = 300 };

/* ---- a change as options and as words ---- */

/* False: its words are too long. */
static bool with_seq(const tl_change *c, tl_plan_options *o, tl_plan_suggestion *s) {
    char lever[TL_PLAN_CHANGE];
    snprintf(lever, sizeof lever, "%s", s->change);
    o->seq = c->seq;
    int wrote = snprintf(s->change, sizeof s->change, "--seq %lld%s%s", (long long)c->seq, lever[0] ? " " : "", lever);
    snprintf(s->effect, sizeof s->effect, "%s", c->lever.adapters ? "trains something else" : "changes the run");
    s->cost = c->lever.adapters ? TL_PLAN_COST_ADAPTERS : TL_PLAN_COST_SEQUENCE;
    return wrote < (int)sizeof s->change;
}

static void with_batch(const tl_change *c, tl_plan_options *o, tl_plan_suggestion *s) {
    o->global_batch = tl_lever_per_device(o) * o->devices.count;
    o->micro_batch = c->micro_batch;
    snprintf(s->change, sizeof s->change, "--micro-batch %lld --global-batch %lld", (long long)o->micro_batch,
             (long long)o->global_batch);
}

static void with_device(const tl_change *c, tl_plan_options *o, tl_plan_suggestion *s) {
    o->peak = 0;
    o->devices = (tl_devices){.count = o->devices.count, .accelerator = c->device};
    snprintf(s->change, sizeof s->change, "-g %lldx%s", (long long)o->devices.count, c->device->name);
    snprintf(s->effect, sizeof s->effect, "same run, more memory");
    s->cost = TL_PLAN_COST_DEVICE;
}

static bool spell(const tl_trials *t, const tl_change *c, tl_plan_options *o, tl_plan_suggestion *s) {
    tl_lever_pull(t->asked, &c->lever, o, s->change);
    s->cost = tl_lever_cost(t->asked, &c->lever);
    snprintf(s->effect, sizeof s->effect, "%s", tl_lever_effect(t->asked, &c->lever));
    if (c->micro_batch)
        with_batch(c, o, s);
    if (c->device)
        with_device(c, o, s);
    return !c->seq || with_seq(c, o, s);
}

/* ---- trying ---- */

static tl_status plan(tl_trials *t, const tl_plan_options *o, tl_trial *trial, tl_error *error) {
    tl_error local = {TL_OK, ""};
    tl_plan p;
    t->runs++;
    tl_status status = tl_plan_account(o, true, t->pool, &p, &local);
    if (status == TL_ERR_MEMORY)
        return tl_fail(error, status, "%s", local.message);
    trial->how = status == TL_OK ? TL_TRIAL_PLANNED : TL_TRIAL_CANNOT_BE;
    trial->before_step = 0;
    trial->work += o->model.layers;
    t->work += o->model.layers;
    if (status == TL_OK) {
        trial->least = p.peak.bytes;
        for (int i = TL_PHASE_FORWARD; i < TL_PHASE_STEP; i++)
            trial->before_step = p.step[i].bytes > trial->before_step ? p.step[i].bytes : trial->before_step;
        trial->in_part = trial->is_bound = false;
        trial->is.bytes = p.arena_bytes;
        trial->is.needs = p.needs_bytes;
        trial->is.peak_bytes = p.peak.bytes;
        trial->is.hardware_per_step = p.hardware_per_step;
        trial->is.step_seconds = p.step_seconds;
        trial->is.fits = p.fits;
    }
    return TL_OK;
}

static bool is_same(const tl_change *x, const tl_change *y) {
    return tl_lever_within(&x->lever, &y->lever) && tl_lever_within(&y->lever, &x->lever) &&
           x->micro_batch == y->micro_batch && x->seq == y->seq && x->device == y->device;
}

static tl_trial *find(tl_trials *t, const tl_change *change) {
    for (int i = 0; i < t->count; i++)
        if (is_same(&t->list[i].change, change))
            return &t->list[i];
    return NULL;
}

static int64_t least_known(const tl_trial *trial) {
    return !trial || trial->how == TL_TRIAL_CANNOT_BE ? 0
           : trial->how == TL_TRIAL_GUESSED           ? trial->least
                                                      : trial->is.needs;
}

/* A layer in K computed again, where too few repeat to be guessed: of what no recomputing holds beyond recomputing all the share
 * that is kept. Far above the memory it does not fit. */
static void guess_between(tl_trials *t, const tl_plan_options *o, tl_trial *trial) {
    tl_change none = trial->change, full = trial->change;
    none.lever.recompute = 0;
    full.lever.recompute = TL_LEVER_FULL;
    int64_t most = least_known(find(t, &none)), least = least_known(find(t, &full)), usable = t->plan->usable_bytes;
    if (o->recompute.kind != TL_RECOMPUTE_EVERY || t->asked->recompute.kind != TL_RECOMPUTE_NONE || least == 0 ||
        most <= least)
        return;
    int64_t needs = least + (most - least) / o->recompute.every * (o->recompute.every - 1);
    if (needs / FAR * 100 < usable)
        return;
    trial->how = TL_TRIAL_GUESSED;
    trial->least = trial->is.needs = needs;
}

static int64_t share_of_usable(const tl_trials *t, int per_cent) {
    const __int128 bytes = (__int128)t->plan->usable_bytes * per_cent / 100;
    return bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

/* Where a guess may stop. Between no recomputing and all of it others are guessed: it goes on until that tells something. */
static int64_t enough(const tl_trials *t, const tl_trial *trial, tl_trial_question question) {
    return question != TL_TRIAL_FITS ? INT64_MAX
                                     : share_of_usable(t, trial->change.lever.recompute ? IN_PART : IN_PART_FAR);
}

/* Leaves the trial as it is where a guess cannot tell. */
static tl_status guess(tl_trials *t, const tl_plan_options *o, tl_trial *trial, tl_trial_question question,
                       tl_error *error) {
    tl_plan_estimate e;
    tl_status status = tl_plan_guess(o, enough(t, trial, question), t->pool, &e, error);
    trial->work += e.layers;
    t->work += e.layers;
    if (status == TL_OK && !e.known)
        guess_between(t, o, trial);
    if (status != TL_OK || !e.known)
        return status;
    const __int128 usable = t->plan->usable_bytes;
    bool fits = !e.in_part && (__int128)e.needs * 100 <= usable * SURELY_FITS;
    bool is_not = (__int128)e.least * 100 > usable * (e.in_part ? IN_PART : 100 + e.above);
    if (!fits && !is_not)
        return TL_OK;
    trial->how = TL_TRIAL_GUESSED;
    trial->least = e.least;
    trial->before_step = e.before_step;
    trial->in_part = e.in_part;
    trial->is_bound = false;
    trial->is.needs = e.needs;
    trial->is.hardware_per_step = e.hardware_per_step;
    trial->is.fits = fits;
    return TL_OK;
}

/* Whether others say that it does not fit: all that is known of it then. */
static bool is_too_much(const tl_trials *t, const tl_plan_options *o, tl_trial *trial) {
    int64_t bytes = tl_trial_bound(t, &trial->change, o);
    if (bytes <= share_of_usable(t, BOUND))
        return false;
    trial->how = TL_TRIAL_GUESSED;
    trial->least = trial->before_step = trial->is.needs = bytes;
    trial->in_part = trial->is_bound = true;
    return true;
}

static tl_status try_now(tl_trials *t, tl_trial *trial, tl_trial_question question, tl_error *error) {
    tl_plan_options o;
    int64_t least = 0;
    if (!spell(t, &trial->change, &o, &trial->is))
        return TL_OK;
    tl_status status = tl_trial_least(t, &trial->change.lever, &o, &least, error);
    if (status != TL_OK || (!trial->change.device && least > t->plan->usable_bytes))
        return status;
    if (question != TL_TRIAL_SIZE && is_too_much(t, &o, trial))
        return TL_OK;
    if (!trial->change.device)
        status = guess(t, &o, trial, question, error);
    return status == TL_OK && trial->how == TL_TRIAL_CANNOT_BE ? plan(t, &o, trial, error) : status;
}

tl_status tl_trial_try(tl_trials *t, const tl_change *change, tl_trial_question question, const tl_trial **result,
                       tl_error *error) {
    tl_status status = TL_OK;
    tl_trial *trial = find(t, change);
    *result = NULL;
    bool is_new_here = !trial || trial->pass != t->pass;
    if (is_new_here && (t->budget <= 0 || (!trial && t->count == TL_TRIALS)))
        return TL_OK;
    if (!trial) {
        trial = &t->list[t->count];
        memset(trial, 0, sizeof *trial);
        trial->change = *change;
        t->count++;
        status = try_now(t, trial, question, error);
    } else if (trial->in_part && question == TL_TRIAL_SIZE) {
        trial->how = TL_TRIAL_CANNOT_BE;
        status = try_now(t, trial, question, error);
    }
    if (is_new_here) { /* every pass may try what the first could */
        trial->pass = t->pass;
        t->budget -= trial->work;
    }
    *result = status == TL_OK && trial->how != TL_TRIAL_CANNOT_BE ? trial : NULL;
    return status;
}

tl_status tl_trial_helps(tl_trials *t, const tl_trial *trial, bool *helps, tl_error *error) {
    tl_status status = TL_OK;
    if (trial->how == TL_TRIAL_GUESSED && t->asked_least == 0) { /* guesses are compared with a guess */
        tl_plan_estimate e;
        status = tl_plan_guess(t->asked, INT64_MAX, t->pool, &e, error);
        t->asked_least = status == TL_OK && e.known ? e.least : t->plan->needs_bytes;
        t->asked_guessed = status == TL_OK && e.known;
        t->work += e.layers;
    }
    /* Where both guesses are the same byte for byte the peak is one that the change does not touch. */
    bool is_same = t->asked_guessed && trial->least == t->asked_least;
    bool is_near =
        !is_same && trial->least / 2000 * 1999 < t->asked_least && trial->least > t->asked_least / 2000 * 1999;
    bool planned;
    if (status == TL_OK && trial->how == TL_TRIAL_GUESSED && is_near)
        status = tl_trial_settle(t, trial, &planned, error);
    *helps = status == TL_OK && (trial->how == TL_TRIAL_GUESSED   ? trial->least < t->asked_least
                                 : trial->how == TL_TRIAL_PLANNED ? trial->is.needs < t->plan->needs_bytes
                                                                  : false);
    return status;
}

tl_status tl_trial_settle(tl_trials *t, const tl_trial *trial, bool *planned, tl_error *error) {
    tl_plan_options o;
    tl_plan_suggestion words;
    *planned = trial->how == TL_TRIAL_GUESSED;
    if (!*planned)
        return TL_OK;
    tl_trial *own = &t->list[trial - t->list];
    int64_t before = own->work;
    (void)spell(t, &own->change, &o, &words);
    tl_status status = plan(t, &o, own, error);
    own->work = before; /* beside the budget: only what is shown is settled */
    return status;
}
