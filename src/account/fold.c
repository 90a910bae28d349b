/* Folding: sums over regions become formulas. Iterations of a repetition with equal content fold into its symbol; where
 * they differ, each odd one stands alone and the rest fold: (N − 1) × […] + last […]. */
#include "account/ledger.h"

#include <stdio.h>
#include <string.h>

struct tl_fold {
    tl_ctx *ctx;
    const tl_poly **sum; /* per region; NULL: nothing */
    uint32_t regions;
    const tl_poly *zero;
    bool at_moment; /* sums what lives at a moment, which stands in the region `moment` */
    uint32_t moment;
};

tl_fold *tl_fold_new(tl_ctx *ctx) {
    if (!ctx->space) {
        tl_ctx_fail(ctx, TL_ERR_STATE, "formulas were asked of a context that keeps none");
        return NULL;
    }
    tl_fold *fold = tl_host_alloc(ctx, sizeof *fold);
    if (!fold)
        return NULL;
    fold->ctx = ctx;
    fold->regions = ctx->region_count;
    fold->zero = tl_poly_constant(ctx->space, 0);
    fold->sum = tl_host_alloc(ctx, fold->regions * sizeof *fold->sum);
    if (!fold->sum) {
        tl_host_free(ctx, fold, sizeof *fold);
        return NULL;
    }
    return fold;
}

void tl_fold_free(tl_fold *fold) {
    if (!fold)
        return;
    tl_host_free(fold->ctx, fold->sum, fold->regions * sizeof *fold->sum);
    tl_host_free(fold->ctx, fold, sizeof *fold);
}

void tl_fold_at(tl_fold *fold, uint32_t region) {
    if (!fold)
        return;
    fold->at_moment = true;
    fold->moment = region;
}

void tl_fold_add(tl_fold *fold, uint32_t region, const tl_poly *p) {
    if (!fold || !p || region >= fold->regions)
        return;
    fold->sum[region] = fold->sum[region] ? tl_poly_add(fold->ctx->space, fold->sum[region], p) : p;
}

static void check(tl_fold *fold) {
    const tl_error *error = tl_space_error(fold->ctx->space);
    if (error->status != TL_OK)
        tl_ctx_fail(fold->ctx, error->status, "%s", error->message);
}

/* The iteration of a repetition in which a region lies; −1: in none. */
static int64_t iteration_of(const tl_ctx *ctx, const tl_repeat_node *node, uint32_t region) {
    while (region != 0 && region < ctx->region_count) {
        const tl_region_node *r = &ctx->regions[region];
        if (&ctx->repeats[r->repeat] == node)
            return r->iteration;
        region = ctx->repeats[r->repeat].outer;
    }
    return -1;
}

/* How unfit a content is to be the common one when as many iterations have another: the one where the moment stands is
 * odd; without a moment the first is (its input needs no gradient, it adopts gradients where later ones add); then the one
 * nearest the middle is common. */
static int64_t oddness(const tl_fold *fold, const tl_repeat_node *node, const tl_poly *p, int64_t first) {
    int64_t odd = fold->at_moment ? iteration_of(fold->ctx, node, fold->moment) : 0;
    if (odd >= 0 && fold->sum[node->regions[odd]] == p)
        return INT64_MAX;
    int64_t off = 2 * first - (node->count - 1);
    return off < 0 ? -off : off;
}

/* The content that most iterations have, and how many do not have it. */
static const tl_poly *common_content(const tl_fold *fold, const tl_repeat_node *node, int64_t *others) {
    const tl_poly *best = NULL;
    int64_t best_count = 0, best_oddness = 0;
    if (node->run <
        node->count) { /* condensed: the second stands for all later ones, but at a moment it stands alone */
        best = fold->at_moment ? NULL : fold->sum[node->regions[1]];
        *others = fold->at_moment ? 0 : fold->sum[node->regions[0]] != best;
        return best;
    }
    for (int64_t i = 0; i < node->run; i++) {
        const tl_poly *p = fold->sum[node->regions[i]];
        int64_t count = 0;
        bool met = false;
        for (int64_t j = 0; j < node->run; j++) {
            if (fold->sum[node->regions[j]] != p)
                continue;
            if (j < i) {
                met = true;
                break;
            }
            count++;
        }
        if (met || count < best_count)
            continue;
        int64_t odd = oddness(fold, node, p, i);
        if (count > best_count || odd < best_oddness) {
            best = p;
            best_count = count;
            best_oddness = odd;
        }
        if (best_count * 2 > node->count)
            break;
    }
    *others = node->count - best_count;
    return best;
}

static void where_text(const tl_repeat_node *node, int64_t i, char *out, size_t size) {
    if (i == 0)
        snprintf(out, size, "first %s", node->symbol);
    else if (i == node->count - 1)
        snprintf(out, size, "last %s", node->symbol);
    else
        snprintf(out, size, "%s = %lld", node->symbol, (long long)i + 1);
}

const tl_poly *tl_fold_total(tl_fold *fold) {
    if (!fold)
        return NULL;
    tl_space *space = fold->ctx->space;
    const tl_poly **saved = tl_host_alloc(fold->ctx, fold->regions * sizeof *saved);
    if (!saved)
        return NULL;
    memcpy(saved, fold->sum, fold->regions * sizeof *saved);
    for (uint32_t r = fold->ctx->repeat_count; r-- > 0;) { /* inner repetitions come after outer ones */
        const tl_repeat_node *node = &fold->ctx->repeats[r];
        if (node->count == 0 || node->regions[node->run - 1] >= fold->regions)
            continue;
        int64_t others;
        const tl_poly *common = common_content(fold, node, &others), *sum = NULL;
        if (common) {
            const tl_poly *times = tl_poly_sub(space, node->formula, tl_poly_constant(space, others));
            sum = tl_poly_mul(space, times, common);
        }
        for (int64_t i = 0; i < node->run; i++) {
            const tl_poly *p = fold->sum[node->regions[i]];
            if (p && p != common)
                sum = sum ? tl_poly_add(space, sum, p) : p;
        }
        tl_fold_add(fold, node->outer, sum);
    }
    const tl_poly *total = fold->sum[0] ? fold->sum[0] : fold->zero;
    memcpy(fold->sum, saved, fold->regions * sizeof *saved);
    tl_host_free(fold->ctx, saved, fold->regions * sizeof *saved);
    check(fold);
    return fold->ctx->error.status == TL_OK ? total : NULL;
}

static void put_term(tl_fold_term *terms, int capacity, int *count, const tl_poly *times, const tl_poly *content,
                     const char *where) {
    if (*count < capacity) {
        terms[*count].times = times;
        terms[*count].content = content;
        snprintf(terms[*count].where, sizeof terms[*count].where, "%s", where);
    }
    ++*count;
}

/* Odd iterations of the same content are one class, told where the first of them is met. */
static void put_class(tl_fold *fold, const tl_repeat_node *node, int64_t first, tl_fold_term *terms, int capacity,
                      int *n) {
    const tl_poly *p = fold->sum[node->regions[first]];
    int64_t same = 0;
    char where[48];
    for (int64_t i = 0; i < first; i++)
        if (fold->sum[node->regions[i]] == p)
            return; /* told already */
    where_text(node, first, where, sizeof where);
    for (int64_t i = first; i < node->run; i++) {
        if (fold->sum[node->regions[i]] != p || same++ == 0)
            continue;
        if (same == 2)
            snprintf(where, sizeof where, "%s = %lld", node->symbol, (long long)first + 1);
        size_t at = strlen(where);
        if (same <= 4)
            snprintf(where + at, sizeof where - at, ", %lld", (long long)i + 1);
        else if (same == 5)
            snprintf(where + at, sizeof where - at, ", ...");
    }
    put_term(terms, capacity, n, tl_poly_constant(fold->ctx->space, same), p, where);
}

int tl_fold_terms(tl_fold *fold, tl_fold_term *terms, int capacity) {
    /* Outermost repetitions only are told apart; what nests inside them is folded first. */
    if (!fold)
        return 0;
    tl_space *space = fold->ctx->space;
    int count = 0;
    const tl_poly *one = tl_poly_constant(space, 1);
    const tl_poly **saved = tl_host_alloc(fold->ctx, fold->regions * sizeof *saved);
    if (!saved)
        return 0;
    memcpy(saved, fold->sum, fold->regions * sizeof *saved);
    if (fold->sum[0])
        put_term(terms, capacity, &count, one, fold->sum[0], "");
    fold->sum[0] = NULL;
    for (uint32_t r = fold->ctx->repeat_count; r-- > 0;) {
        const tl_repeat_node *node = &fold->ctx->repeats[r];
        if (node->count == 0 || node->regions[node->run - 1] >= fold->regions)
            continue;
        int64_t others;
        const tl_poly *common = common_content(fold, node, &others), *sum = NULL;
        const tl_poly *times = tl_poly_sub(space, node->formula, tl_poly_constant(space, others));
        if (common && node->outer == 0)
            put_term(terms, capacity, &count, times, common, "");
        else if (common)
            sum = tl_poly_mul(space, times, common);
        for (int64_t i = 0; i < node->run; i++) {
            const tl_poly *p = fold->sum[node->regions[i]];
            if (!p || p == common)
                continue;
            if (node->outer == 0)
                put_class(fold, node, i, terms, capacity, &count);
            else
                sum = sum ? tl_poly_add(space, sum, p) : p;
        }
        if (node->outer != 0)
            tl_fold_add(fold, node->outer, sum);
    }
    memcpy(fold->sum, saved, fold->regions * sizeof *saved);
    tl_host_free(fold->ctx, saved, fold->regions * sizeof *saved);
    check(fold);
    return count < capacity ? count : capacity;
}
