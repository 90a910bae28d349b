/* The order of contractions: fewest FLOPs, then smallest intermediate results. */
#include "axes/einsum.h"

enum { ALL_ORDERS = 6 }; /* 6 operands have 2,700 orders */

typedef struct cost {
    tl_u128 flops, size;
} cost;

typedef struct search {
    const tl_einsum_plan *plan;
    tl_label_set out;
    int pair[TL_MAX_IO][2], best_pair[TL_MAX_IO][2];
    cost best;
    bool found;
} search;

/* What is left to contract, each with its name in pairs. */
typedef struct pool {
    int n, made;
    tl_label_set set[TL_MAX_IO];
    int id[TL_MAX_IO];
} pool;

static bool cheaper(cost a, cost b) { return a.flops != b.flops ? a.flops < b.flops : a.size < b.size; }

static int set_count(tl_label_set set) {
    return __builtin_popcountll((unsigned long long)set) + __builtin_popcountll((unsigned long long)(set >> 64));
}

/* Saturating: an order beyond 128 bits is only ever compared. */
static tl_u128 product_of(const tl_einsum_plan *plan, tl_label_set set) {
    tl_u128 product = 1;
    for (int i = 0; i < plan->labels; i++)
        if (set >> i & 1 && !tl_mul_u128(product, (tl_u128)plan->label[i].size, &product))
            return ~(tl_u128)0;
    return product;
}

static tl_u128 sum_of(tl_u128 a, tl_u128 b) { return a + b < a ? ~(tl_u128)0 : a + b; }

tl_label_set tl_einsum_out_set(const tl_einsum_plan *plan) {
    tl_label_set set = 0;
    for (int i = 0; i < plan->n_out; i++)
        set |= tl_label_bit(plan->out[i]);
    return set;
}

static tl_label_set named_set(const tl_einsum_plan *plan, int i) {
    tl_label_set set = 0;
    for (int d = 0; d < plan->ndim[i]; d++) {
        int label = plan->axis[i][d];
        if (plan->size[i][d] == plan->label[label].size)
            set |= tl_label_bit(label);
    }
    return set;
}

tl_label_set tl_einsum_operand_set(const tl_einsum_plan *plan, int i) {
    tl_label_set needed = tl_einsum_out_set(plan);
    for (int k = 0; k < plan->n; k++)
        if (k != i)
            needed |= named_set(plan, k);
    return named_set(plan, i) & needed;
}

/* Contracts a and b of the pool; false: the result would have too many axes. The result takes a's place. */
static bool contract(const search *s, const pool *from, int a, int b, pool *to, cost *c) {
    tl_label_set needed = s->out, all = from->set[a] | from->set[b];
    for (int i = 0; i < from->n; i++)
        if (i != a && i != b)
            needed |= from->set[i];
    tl_label_set kept = all & needed;
    if (set_count(kept) > TL_MAX_NDIM)
        return false;
    tl_u128 flops = product_of(s->plan, all);
    if (all != kept)
        flops = sum_of(flops, flops);
    c->flops = sum_of(c->flops, flops);
    c->size = sum_of(c->size, product_of(s->plan, kept));
    *to = (pool){.made = from->made + 1};
    for (int i = 0; i < from->n; i++) {
        if (i == b)
            continue;
        to->set[to->n] = i == a ? kept : from->set[i];
        to->id[to->n++] = i == a ? s->plan->n + from->made : from->id[i];
    }
    return true;
}

static void all_orders(search *s, const pool *from, cost so_far) {
    if (from->n == 1) {
        s->found = true;
        s->best = so_far;
        for (int i = 0; i < from->made; i++) {
            s->best_pair[i][0] = s->pair[i][0];
            s->best_pair[i][1] = s->pair[i][1];
        }
        return;
    }
    for (int a = 0; a < from->n; a++)
        for (int b = a + 1; b < from->n; b++) {
            pool to;
            cost c = so_far;
            if (!contract(s, from, a, b, &to, &c) || (s->found && !cheaper(c, s->best)))
                continue;
            s->pair[from->made][0] = from->id[a];
            s->pair[from->made][1] = from->id[b];
            all_orders(s, &to, c);
        }
}

/* Each step the cheapest pair, among those that share an axis if there are any. */
static void greedy_order(search *s, pool from) {
    cost total = {0};
    while (from.n > 1) {
        pool best_to = {0};
        cost best = {0};
        bool found = false, best_shares = false;
        for (int a = 0; a < from.n; a++)
            for (int b = a + 1; b < from.n; b++) {
                pool to;
                cost c = {0};
                bool shares = (from.set[a] & from.set[b]) != 0;
                if ((best_shares && !shares) || !contract(s, &from, a, b, &to, &c))
                    continue;
                if (found && best_shares == shares && !cheaper(c, best))
                    continue;
                found = true;
                best_shares = shares;
                best = c;
                best_to = to;
                s->best_pair[from.made][0] = from.id[a];
                s->best_pair[from.made][1] = from.id[b];
            }
        if (!found)
            return;
        total.flops = sum_of(total.flops, best.flops);
        from = best_to;
    }
    s->best = total;
    s->found = true;
}

tl_status tl_einsum_decide(tl_einsum_plan *plan, const tl_pattern *p) {
    search s = {.plan = plan, .out = tl_einsum_out_set(plan)};
    pool start = {.n = plan->n};
    for (int i = 0; i < plan->n; i++) {
        start.set[i] = tl_einsum_operand_set(plan, i);
        start.id[i] = i;
    }
    if (plan->n <= ALL_ORDERS)
        all_orders(&s, &start, (cost){0});
    else
        greedy_order(&s, start);
    if (!s.found)
        return tl_pattern_fail(p, -1, 0, TL_ERR_SHAPE,
                               "too many axes: every order of contraction meets a tensor of more than %d", TL_MAX_NDIM);
    plan->flops = s.best.flops;
    for (int i = 0; i < plan->n - 1; i++) {
        plan->pair[i][0] = s.best_pair[i][0];
        plan->pair[i][1] = s.best_pair[i][1];
    }
    return TL_OK;
}
