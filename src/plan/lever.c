/* The levers by which a plan holds less: whether one moves anything, what it sets, how it is typed. */
#include "plan/lever.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const tl_recompute recomputes[TL_LEVER_RECOMPUTES] = {{TL_RECOMPUTE_NONE, 0},
                                                             {TL_RECOMPUTE_SELECTIVE, 0},
                                                             {TL_RECOMPUTE_EVERY, 4},
                                                             {TL_RECOMPUTE_EVERY, 2},
                                                             {TL_RECOMPUTE_FULL, 0}};
static const tl_precision precisions[TL_LEVER_PRECISIONS] = {TL_PRECISION_FP32, TL_PRECISION_BF16_MIXED,
                                                             TL_PRECISION_BF16};
static const tl_optimizer_kind optimizers[TL_LEVER_OPTIMIZERS] = {TL_OPTIM_ADAMW, TL_OPTIM_ADAMW8BIT, TL_OPTIM_SGD};

static int64_t global_of(const tl_plan_options *o) {
    int64_t all = 0;
    if (o->global_batch)
        return o->global_batch;
    return tl_mul_i64(o->micro_batch, o->devices.count, &all) ? all : 0;
}

int64_t tl_lever_per_device(const tl_plan_options *o) { return global_of(o) / o->devices.count; }

/* ---- ways ---- */

static int choice_index(const char *name) {
    int i = 0;
    while (i < tl_choice_count() && strcmp(tl_choice_at(i)->name, name) != 0)
        i++;
    return i;
}

/* The fused forms, and last what keeps gradients as narrow as parameters; each has an option of its own. */
static const struct {
    const char *name, *value;
} fused[] = {{"norm", "fused"},    {"glu", "fused"},    {"gelu", "fused"},      {"rotary", "computed"},
             {"repeat-kv", "off"}, {"update", "fused"}, {"grads", "parameters"}};
enum { GRADS = sizeof fused / sizeof fused[0] - 1, FUSED = GRADS };

/* Sets fused[k]; false where that changes nothing. */
static bool fuse(const tl_model *m, tl_choices *c, int k) {
    char was[40], now[40];
    tl_choices next = *c;
    int index = choice_index(fused[k].name);
    if (tl_choice_set(&next, fused[k].name, fused[k].value, NULL) != TL_OK ||
        strcmp(tl_choice_value(c, index, was, sizeof was), tl_choice_value(&next, index, now, sizeof now)) == 0 ||
        tl_choice_effect(m, c, index) || tl_choice_effect(m, &next, index))
        return false;
    *c = next;
    return true;
}

static bool may_step_in_backward(const tl_plan_options *o, const tl_lever *l) {
    bool fuses = l->ways & TL_WAY_FUSED, narrows = l->ways & TL_WAY_GRADS;
    const tl_choices *c = &o->choices;
    return !c->update_in_backward && o->optimizer.kind != TL_OPTIM_NONE && !(o->clip > 0) && !l->batch &&
           tl_lever_per_device(o) == o->micro_batch && (o->precision != TL_PRECISION_FP16_MIXED || l->precision) &&
           (narrows || c->grads == TL_GRADS_AS_PARAMETERS) && (fuses || c->update != TL_UPDATE_FOREACH);
}

static bool ways_apply(const tl_plan_options *o, const tl_lever *l) {
    bool loss = o->choices.loss == TL_LOSS_FULL || o->choices.loss == TL_LOSS_FULL_FP32;
    if (l->ways && o->model.family == TL_FAMILY_CRUNCHER &&
        (l->ways & ~(TL_WAY_FUSED | TL_WAY_GRADS | TL_WAY_IN_BACKWARD)))
        return false;
    if ((l->ways & TL_WAY_FLASH) && o->choices.attention == TL_ATTENTION_FLASH)
        return false;
    if (l->ways & (TL_WAY_LOSS_FUSED | TL_WAY_LOSS_CHUNKED) &&
        (!loss || (l->ways & TL_WAY_LOSS_FUSED && l->ways & TL_WAY_LOSS_CHUNKED)))
        return false;
    if ((l->ways & TL_WAY_IN_BACKWARD) && !may_step_in_backward(o, l))
        return false;
    tl_choices narrow = o->choices;
    if ((l->ways & TL_WAY_GRADS) && !fuse(&o->model, &narrow, GRADS))
        return false;
    if (l->ways & TL_WAY_FUSED) {
        tl_choices c = o->choices;
        bool any = false;
        if (l->ways & TL_WAY_FLASH)
            c.attention = TL_ATTENTION_FLASH;
        for (int k = 0; k < FUSED; k++)
            any = fuse(&o->model, &c, k) || any;
        return any;
    }
    return true;
}

/* ---- the others ---- */

/* In the order of what is computed again. */
static int strength(tl_recompute r) {
    switch (r.kind) {
    case TL_RECOMPUTE_NONE:
        return 0;
    case TL_RECOMPUTE_SELECTIVE:
        return TL_LEVER_SELECTIVE;
    case TL_RECOMPUTE_EVERY:
        return r.every >= 4 ? TL_LEVER_EVERY_4 : r.every > 1 ? TL_LEVER_EVERY_2 : TL_LEVER_FULL;
    default:
        return TL_LEVER_FULL;
    }
}

static bool recompute_applies(const tl_plan_options *o, const tl_lever *l) {
    bool flash = o->choices.attention == TL_ATTENTION_FLASH || (l->ways & TL_WAY_FLASH);
    if (l->recompute && (o->model.family == TL_FAMILY_CRUNCHER || l->recompute <= strength(o->recompute)))
        return false;
    if (l->recompute == TL_LEVER_SELECTIVE && flash)
        return false; /* its scores are no tensors */
    int64_t every = recomputes[l->recompute].every;
    return every == 0 || o->model.layers > every;
}

static bool precision_applies(const tl_plan_options *o, const tl_lever *l) {
    return !l->precision ||
           !(o->precision == TL_PRECISION_BF16 || o->autocast || precisions[l->precision] == o->precision ||
             (precisions[l->precision] == TL_PRECISION_BF16_MIXED && o->precision != TL_PRECISION_FP32));
}

static bool optimizer_applies(const tl_plan_options *o, const tl_lever *l) {
    const tl_optimizer_options *optimizer = &o->optimizer;
    if (l->optimizer &&
        (optimizer->kind == TL_OPTIM_NONE || (optimizer->kind == TL_OPTIM_SGD && optimizer->momentum == 0)))
        return false;
    for (int k = 0; l->optimizer && k < optimizer->n_groups; k++) /* numbers of the asked optimizer's own */
        if (optimizer->groups[k].has_betas || optimizer->groups[k].epsilon != 0)
            return false;
    /* 8 bits are AdamW's own states */
    return optimizers[l->optimizer] != TL_OPTIM_ADAMW8BIT ||
           (optimizer->kind == TL_OPTIM_ADAMW && !optimizer->cs336_order);
}

static bool adapters_apply(const tl_plan_options *o, const tl_lever *l) {
    if (l->adapters && (o->model.family == TL_FAMILY_CRUNCHER || o->optimizer.kind == TL_OPTIM_NONE))
        return false;
    if (l->adapters && o->lora.rank == 0 && o->optimizer.n_groups > 0) /* groups of parameters that are then frozen */
        return false;
    if (l->adapters == 2 && o->precision == TL_PRECISION_FP8_MIXED && !l->precision)
        return false;
    return !l->adapters || o->lora.rank == 0 || (l->adapters == 2 && o->lora.base == TL_LORA_PLAIN);
}

bool tl_lever_applies(const tl_plan_options *o, const tl_lever *l) {
    if (l->batch && (o->micro_batch == 1 || tl_lever_per_device(o) < 1))
        return false;
    return recompute_applies(o, l) && ways_apply(o, l) && precision_applies(o, l) && optimizer_applies(o, l) &&
           adapters_apply(o, l);
}

/* ---- pulling ---- */

static void append(char change[TL_PLAN_CHANGE], const char *format, ...) TL_PRINTF(2, 3);
static void append(char change[TL_PLAN_CHANGE], const char *format, ...) {
    size_t at = strlen(change);
    va_list args;
    va_start(args, format);
    if (at && at + 1 < TL_PLAN_CHANGE)
        change[at++] = ' ', change[at] = '\0';
    vsnprintf(change + at, TL_PLAN_CHANGE - at, format, args);
    va_end(args);
}

static void pull_ways(const tl_lever *l, tl_plan_options *o, char change[TL_PLAN_CHANGE]) {
    tl_choices *c = &o->choices;
    if (l->ways & TL_WAY_FLASH) {
        c->attention = TL_ATTENTION_FLASH;
        append(change, "--attention flash");
    }
    if (l->ways & (TL_WAY_LOSS_FUSED | TL_WAY_LOSS_CHUNKED)) {
        bool at_once = l->ways & TL_WAY_LOSS_FUSED;
        c->loss = at_once ? TL_LOSS_FUSED : TL_LOSS_CHUNKED;
        c->loss_chunks = TL_LOSS_CHUNKS_DEFAULT;
        append(change, "--loss %s:%d", at_once ? "fused" : "chunked", TL_LOSS_CHUNKS_DEFAULT);
    }
    for (int k = 0; (l->ways & TL_WAY_FUSED) && k < FUSED; k++)
        if (fuse(&o->model, c, k))
            append(change, "--%s %s", fused[k].name, fused[k].value);
    if ((l->ways & TL_WAY_GRADS) && fuse(&o->model, c, GRADS))
        append(change, "--%s %s", fused[GRADS].name, fused[GRADS].value);
    if (l->ways & TL_WAY_IN_BACKWARD) {
        c->update_in_backward = true;
        append(change, "--update-in-backward on");
    }
}

static void pull_adapters(const tl_lever *l, tl_plan_options *o, char change[TL_PLAN_CHANGE]) {
    if (l->adapters && o->lora.rank == 0) {
        o->lora =
            (tl_lora_options){.rank = TL_LEVER_RANK, .base = l->adapters == 2 ? TL_LORA_NF4_TWICE : TL_LORA_PLAIN};
        append(change, "--%s %d", l->adapters == 2 ? "qlora" : "lora", TL_LEVER_RANK);
    } else if (l->adapters) {
        o->lora.base = TL_LORA_NF4_TWICE;
        append(change, "--lora-base %s", tl_lora_base_name(o->lora.base));
    }
}

void tl_lever_pull(const tl_plan_options *asked, const tl_lever *l, tl_plan_options *o, char change[TL_PLAN_CHANGE]) {
    char text[32];
    *o = *asked;
    o->find_max_micro_batch = false;
    change[0] = '\0';
    if (l->batch) {
        o->micro_batch = 1; /* always divides */
        o->global_batch = tl_lever_per_device(asked) * asked->devices.count;
        append(change, "--micro-batch 1 --global-batch %lld", (long long)o->global_batch);
    }
    if (l->recompute) {
        o->recompute = recomputes[l->recompute];
        append(change, "--recompute %s", tl_recompute_text(o->recompute, text, sizeof text));
    }
    pull_ways(l, o, change);
    if (l->precision) {
        o->precision = precisions[l->precision];
        append(change, "--precision %s%s", tl_precision_name(o->precision), o->autocast ? " --autocast off" : "");
        o->autocast = false;
    }
    if (l->optimizer) {
        if (optimizers[l->optimizer] == TL_OPTIM_ADAMW8BIT)
            o->optimizer.kind = TL_OPTIM_ADAMW8BIT, o->optimizer.states = TL_STATES_DEFAULT; /* the rest as asked */
        else {
            o->optimizer = tl_optimizer_defaults(optimizers[l->optimizer]);
            o->optimizer.groups = asked->optimizer.groups;
            o->optimizer.n_groups = asked->optimizer.n_groups;
        }
        append(change, "--optim %s", tl_optimizer_name(o->optimizer.kind));
    }
    pull_adapters(l, o, change);
}

/* ---- what it costs ---- */

tl_plan_cost tl_lever_cost(const tl_plan_options *asked, const tl_lever *l) {
    if (l->adapters && asked->lora.rank == 0)
        return TL_PLAN_COST_ADAPTERS;
    bool narrower =
        (l->ways & TL_WAY_GRADS) && asked->choices.grads == TL_GRADS_F32; /* gradients are added in 16 bits */
    bool rounds = l->precision || l->adapters || (narrower && asked->precision != TL_PRECISION_FP32);
    if (l->optimizer)
        return rounds ? TL_PLAN_COST_BOTH : TL_PLAN_COST_OPTIMIZER;
    return rounds ? TL_PLAN_COST_PRECISION : TL_PLAN_COST_NOTHING;
}

const char *tl_lever_effect(const tl_plan_options *asked, const tl_lever *l) {
    switch (tl_lever_cost(asked, l)) {
    case TL_PLAN_COST_NOTHING: /* other ways may add in another order */
        return l->ways & ~TL_WAY_IN_BACKWARD ? "same mathematics" : "same run";
    case TL_PLAN_COST_PRECISION:
        return l->adapters ? "4-bit base" : "other rounding";
    case TL_PLAN_COST_OPTIMIZER:
        return optimizers[l->optimizer] == TL_OPTIM_ADAMW8BIT ? "8-bit states" : "other optimizer";
    case TL_PLAN_COST_BOTH:
        return "rounding, optimizer";
    default:
        return "trains something else";
    }
}

bool tl_lever_within(const tl_lever *x, const tl_lever *y) {
    return x->batch <= y->batch && x->recompute <= y->recompute && (x->ways & ~y->ways) == 0 &&
           x->precision <= y->precision && x->optimizer <= y->optimizer && x->adapters <= y->adapters;
}
