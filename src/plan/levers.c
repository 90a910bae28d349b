/* Which lever lets most fit: the largest batch or sequence for each of them, every value planned on meta. */
#include "plan/lever.h"

#include <stdio.h>
#include <string.h>

/* Alone, then together; those that keep the run first. */
static const tl_lever list[] = {
    {0},
    {.ways = TL_WAY_FLASH},
    {.ways = TL_WAY_LOSS_FUSED},
    {.ways = TL_WAY_LOSS_CHUNKED},
    {.ways = TL_WAY_FUSED},
    {.ways = TL_WAY_GRADS},
    {.ways = TL_WAY_IN_BACKWARD},
    {.recompute = TL_LEVER_SELECTIVE},
    {.recompute = TL_LEVER_EVERY_2},
    {.recompute = TL_LEVER_FULL},
    {.ways = TL_WAY_FLASH | TL_WAY_LOSS_FUSED},
    {.ways = TL_WAY_FLASH, .recompute = TL_LEVER_EVERY_2},
    {.ways = TL_WAY_FLASH, .recompute = TL_LEVER_FULL},
    {.ways = TL_WAY_FLASH | TL_WAY_LOSS_FUSED, .recompute = TL_LEVER_FULL},
    {.ways = TL_WAY_FLASH | TL_WAY_LOSS_CHUNKED, .recompute = TL_LEVER_FULL},
    {.ways = TL_WAY_FLASH | TL_WAY_LOSS_CHUNKED | TL_WAY_FUSED | TL_WAY_GRADS | TL_WAY_IN_BACKWARD,
     .recompute = TL_LEVER_FULL},
    {.precision = 1},
    {.precision = 2},
    {.optimizer = 1},
    {.adapters = 1},
    {.adapters = 2},
    {.ways = TL_WAY_FLASH | TL_WAY_LOSS_CHUNKED | TL_WAY_FUSED | TL_WAY_GRADS,
     .recompute = TL_LEVER_FULL,
     .adapters = 2},
};

static int parts_of(const tl_lever *l) {
    int n = (l->recompute > 0) + (l->precision > 0) + (l->optimizer > 0) + (l->adapters > 0);
    for (int bits = l->ways; bits; bits &= bits - 1)
        n++;
    return n;
}

/* A combination goes without what moves nothing. */
static tl_lever what_applies(const tl_plan_options *o, const tl_lever *all) {
    tl_lever l = {.recompute = all->recompute, .adapters = all->adapters};
    for (int bit = 1; bit <= TL_WAY_IN_BACKWARD; bit *= 2) {
        tl_lever more = l;
        more.ways |= all->ways & bit;
        if (tl_lever_applies(o, &more))
            l = more;
    }
    return l;
}

static bool is_listed(const tl_plan_levers *levers, const char *change) {
    for (int i = 0; i < levers->count; i++)
        if (strcmp(levers->row[i].change, change) == 0)
            return true;
    return false;
}

static void at_value(tl_plan_options *o, tl_plan_axis axis, int64_t value) {
    value = value ? value : 1;
    if (axis == TL_PLAN_MICRO_BATCH)
        o->micro_batch = value;
    else
        o->seq = value;
}

/* The account of a row; what cannot be planned is no error but for memory that ran out. */
static tl_status fill(const tl_plan_options *asked, tl_plan_options *o, tl_plan_axis axis, tl_plan_pool *pool,
                      tl_plan_lever_row *row, int *runs, bool *made, tl_error *error) {
    tl_error local = {TL_OK, ""};
    tl_plan_options as_asked = *asked;
    tl_plan p;
    *made = false;
    tl_status status = tl_plan_search(o, axis, pool, &row->largest, &local);
    if (status == TL_OK) {
        *runs += row->largest.runs + 2;
        at_value(o, axis, row->largest.value);
        at_value(&as_asked, axis, row->largest.value);
        status = tl_plan_account(o, false, pool, &p, &local);
    }
    if (status == TL_OK) {
        row->peak = p.peak;
        row->hardware_per_step = p.hardware_per_step;
        status = tl_plan_account(&as_asked, false, pool, &p, &local);
        row->asked_per_step = p.hardware_per_step;
    }
    *made = status == TL_OK;
    return status == TL_ERR_MEMORY ? tl_fail(error, status, "%s", local.message) : TL_OK;
}

/* x lets more fit than y, or as much in less memory. */
static bool brings_more(const tl_plan_lever_row *x, const tl_plan_lever_row *y) {
    return x->largest.value != y->largest.value ? x->largest.value > y->largest.value
                                                : x->largest.bytes < y->largest.bytes;
}

static void name_largest(tl_plan_levers *levers) {
    for (int i = 1; i < levers->count; i++) {
        const tl_plan_lever_row *row = &levers->row[i];
        if (row->cost != TL_PLAN_COST_NOTHING)
            continue;
        if (row->alone && brings_more(row, &levers->row[levers->largest]))
            levers->largest = i;
        if (brings_more(row, &levers->row[levers->farthest]))
            levers->farthest = i;
    }
}

static tl_status find_levers(const tl_plan_options *options, tl_plan_axis axis, tl_plan_pool *pool,
                             tl_plan_levers *levers, tl_error *error) {
    tl_plan_options asked = *options;
    asked.global_batch = 0;
    asked.find_max_micro_batch = false;
    for (size_t i = 0; i < sizeof list / sizeof list[0] && levers->count < TL_PLAN_LEVERS; i++) {
        const bool alone = parts_of(&list[i]) == 1;
        const tl_lever l = alone ? list[i] : what_applies(&asked, &list[i]);
        tl_plan_lever_row *row = &levers->row[levers->count];
        tl_plan_options o;
        bool made;
        memset(row, 0, sizeof *row);
        tl_lever_pull(&asked, &l, &o, row->change);
        if (!tl_lever_applies(&asked, &l) || is_listed(levers, row->change))
            continue;
        row->alone = parts_of(&l) == 1;
        row->cost = tl_lever_cost(&asked, &l);
        snprintf(row->effect, sizeof row->effect, "%s", i == 0 ? "as asked" : tl_lever_effect(&asked, &l));
        tl_status status = fill(&asked, &o, axis, pool, row, &levers->runs, &made, error);
        if (status != TL_OK)
            return status;
        if (i == 0 && !made) /* the reason is the answer */
            return tl_plan_search(&asked, axis, pool, &row->largest, error);
        levers->count += made;
    }
    name_largest(levers);
    return TL_OK;
}

tl_status tl_plan_find_levers(const tl_plan_options *options, tl_plan_axis axis, tl_plan_levers *levers,
                              tl_error *error) {
    memset(levers, 0, sizeof *levers);
    tl_plan_pool *pool = tl_plan_pool_new(error);
    if (!pool)
        return TL_ERR_MEMORY;
    tl_status status = find_levers(options, axis, pool, levers, error);
    tl_plan_pool_free(pool);
    return status;
}
