/* What a change of a plan holds at the least, before it is planned: from its state, and from other changes that were tried. That
 * it cannot fit may be told from it; what is shown is planned. */
#include "plan/trial.h"

#include <string.h>

/* ---- state ---- */

static int64_t state_of(const tl_plan_options *o, const tl_plan *p, const int64_t each[TL_CATEGORY_COUNT],
                        const int64_t was[TL_CATEGORY_COUNT]) {
    int64_t block = 0;
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        block += !(c == TL_GRAD && o->choices.update_in_backward) ? each[c] : 0;
    tl_u128 all = (tl_u128)block * (tl_u128)p->trainable / TL_PLAN_BLOCK;
    if (p->adapted_layers) {
        int64_t trained = (int64_t)((tl_u128)was[TL_PARAM] * (tl_u128)p->trainable / TL_PLAN_BLOCK);
        int64_t frozen = p->high[TL_PARAM] > trained ? p->high[TL_PARAM] - trained : 0;
        all += (tl_u128)frozen * (tl_u128)each[TL_PARAM] / (tl_u128)was[TL_PARAM];
    }
    return all < INT64_MAX ? (int64_t)all : INT64_MAX;
}

tl_status tl_trial_state(const tl_plan_options *o, const tl_plan_options *asked, const tl_plan *p, int64_t *bytes,
                         tl_error *error) {
    int64_t each[TL_CATEGORY_COUNT], was[TL_CATEGORY_COUNT];
    tl_status status = tl_plan_block_bytes(o->precision, &o->optimizer, each, error);
    if (status == TL_OK)
        status = tl_plan_block_bytes(asked->precision, &asked->optimizer, was, error);
    if (status == TL_OK)
        *bytes = state_of(o, p, each, was);
    return status;
}

/* tl_plan_block_bytes with a lever pulled, `o`; asked for once. */
static tl_status block_of(tl_trials *t, const tl_lever *l, const tl_plan_options *o, const int64_t **each,
                          tl_error *error) {
    tl_block *b = &t->block[l->precision][l->optimizer];
    tl_status status = b->known ? TL_OK : tl_plan_block_bytes(o->precision, &o->optimizer, b->bytes, error);
    b->known = status == TL_OK;
    *each = b->bytes;
    return status;
}

/* Half a byte a frozen parameter where they are kept in 4 bits; what is trained beside them (adapters, modules trained in full) is
 * as wide as ever. */
static int64_t adapted(const tl_trials *t, const tl_plan_options *o, const int64_t each[TL_CATEGORY_COUNT]) {
    tl_u128 all = (tl_u128)t->plan->parameters.unique, trained = 0;
    int64_t block = 0;
    if (t->asked->lora.rank)
        trained = (tl_u128)t->plan->trainable;
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        block += !(c == TL_GRAD && o->choices.update_in_backward) ? each[c] : 0;
    tl_u128 frozen = all > trained ? all - trained : 0;
    tl_u128 bytes = o->lora.base == TL_LORA_PLAIN ? frozen * (tl_u128)each[TL_PARAM] / TL_PLAN_BLOCK : frozen / 2;
    bytes += trained * (tl_u128)block / TL_PLAN_BLOCK;
    return bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

tl_status tl_trial_least(tl_trials *t, const tl_lever *l, const tl_plan_options *o, int64_t *bytes, tl_error *error) {
    const int64_t *each, *was;
    tl_status status = block_of(t, l, o, &each, error);
    if (status == TL_OK)
        status = block_of(t, &(tl_lever){0}, t->asked, &was, error);
    if (status != TL_OK)
        return status;
    bool as_asked = o->lora.rank == t->asked->lora.rank && o->lora.base == t->asked->lora.base;
    *bytes = as_asked ? state_of(o, t->plan, each, was) : adapted(t, o, each);
    return TL_OK;
}

/* ---- from others ---- */

/* Both compute in the same format. */
static bool same_activations(const tl_plan_options *x, const tl_plan_options *y) {
    bool bf16 = (x->precision == TL_PRECISION_BF16 || x->precision == TL_PRECISION_BF16_MIXED) && !x->autocast &&
                (y->precision == TL_PRECISION_BF16 || y->precision == TL_PRECISION_BF16_MIXED) && !y->autocast;
    return bf16 || (x->precision == y->precision && x->autocast == y->autocast);
}

/* Bytes by which the state of `y` may be below that of `x` at any moment. */
static int64_t less_state(const tl_trials *t, const tl_lever *x, const tl_lever *y) {
    const tl_block *from = &t->block[x->precision][x->optimizer], *to = &t->block[y->precision][y->optimizer];
    tl_u128 less = 0;
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        less += from->bytes[c] > to->bytes[c] ? (tl_u128)(from->bytes[c] - to->bytes[c]) : 0;
    less = less * (tl_u128)t->plan->parameters.unique / TL_PLAN_BLOCK;
    return from->known && to->known && less < INT64_MAX ? (int64_t)less : INT64_MAX;
}

/* What a step holds grows with the batch, and with the square of the sequence at most: of f with half of them at least that share
 * is left. */
static int64_t share_of(int64_t bytes, const tl_plan_options *from, const tl_plan_options *to) {
    double share = 1;
    if (to->micro_batch < from->micro_batch)
        share *= (double)to->micro_batch / (double)from->micro_batch;
    if (to->seq < from->seq)
        share *= (double)to->seq / (double)from->seq * ((double)to->seq / (double)from->seq);
    return (int64_t)((double)bytes * share);
}

/* Per cent of what holds nearly, not surely: a lever pulled further may hold a little more (the parts of a loss, a layer computed
 * again), and guesses are a little too high. */
enum { NEARLY = 92 };

/* What `other` (options `x`) says of a change (options `y`) that is pulled no further; 0: nothing. An optimizer's own temporaries
 * are left out by looking before the step, where they are not part of backward. */
static int64_t says(const tl_trials *t, const tl_trial *other, const tl_plan_options *x, const tl_change *c,
                    const tl_plan_options *y) {
    const tl_lever *from = &other->change.lever, *to = &c->lever;
    tl_lever run_from = *from, run_to = *to;
    run_from.precision = run_to.precision = run_from.optimizer = run_to.optimizer = 0;
    if (from->adapters != to->adapters || !tl_lever_within(&run_to, &run_from))
        return 0;
    int64_t bytes = other->least;
    if (from->precision != to->precision || from->optimizer != to->optimizer) {
        int64_t less = less_state(t, from, to);
        bool in_backward = x->choices.update_in_backward && x->choices.update != TL_UPDATE_FUSED;
        if (from->adapters || t->asked->lora.rank || in_backward || !same_activations(x, y) || x->seq != y->seq ||
            x->micro_batch != y->micro_batch)
            return 0;
        bytes = other->before_step > less ? other->before_step - less : 0;
    }
    bool surely = other->how != TL_TRIAL_GUESSED && tl_lever_within(&run_from, &run_to);
    return share_of(surely ? bytes : bytes / 100 * NEARLY, x, y);
}

int64_t tl_trial_bound(const tl_trials *t, const tl_change *c, const tl_plan_options *o) {
    const tl_trial asked = {.how = TL_TRIAL_PLANNED, .least = t->plan->peak.bytes};
    int64_t most = c->device ? 0 : says(t, &asked, t->asked, c, o);
    for (int i = 0; i < t->count && !c->device; i++) {
        const tl_trial *other = &t->list[i];
        tl_plan_options x;
        char words[TL_PLAN_CHANGE];
        if (&other->change == c || other->how == TL_TRIAL_CANNOT_BE || other->change.device || other->is_bound)
            continue;
        tl_lever_pull(t->asked, &other->change.lever, &x, words);
        x.seq = other->change.seq ? other->change.seq : x.seq;
        x.micro_batch = other->change.micro_batch ? other->change.micro_batch : x.micro_batch;
        int64_t said = says(t, other, &x, c, o);
        most = said > most ? said : most;
    }
    return most;
}
