/* One plan's bookkeeping after another's in the same memory: a plan of eighty layers fills 6 MB with logs and handles, and pages
 * that are new each time cost as much as a fifth of the plan. */
#include "account/ledger.h"
#include "plan/plan.h"

#include <string.h>

enum { CLASSES = 40, SMALLEST = 5, ALIGNED = 16 }; /* blocks of 2^5, 2^6 … bytes */

typedef struct block { /* a free one */
    struct block *next;
} block;

struct tl_plan_pool {
    const tl_allocator *base;
    tl_allocator allocator;
    block *free[CLASSES];
    int64_t events, ops; /* of the longest log */
};

static int class_of(size_t bytes) {
    int bits = bytes > 1 ? 64 - __builtin_clzll((unsigned long long)bytes - 1) : 0;
    return bits > SMALLEST ? bits - SMALLEST : 0;
}

static size_t size_of(int c) { return (size_t)1 << (c + SMALLEST); }

/* On meta no storage has bytes; should one, it is not kept. */
static bool is_kept(size_t bytes, tl_alloc_kind kind) { return kind == TL_ALLOC_HOST && class_of(bytes) < CLASSES; }

static void *pool_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    tl_plan_pool *pool = self;
    if (!is_kept(bytes, kind))
        return pool->base->alloc(pool->base->self, bytes, align, kind);
    int c = class_of(bytes);
    block *b = align <= ALIGNED ? pool->free[c] : NULL;
    if (!b)
        return align <= ALIGNED ? pool->base->alloc(pool->base->self, size_of(c), ALIGNED, kind) : NULL;
    pool->free[c] = b->next;
    return b;
}

static void pool_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    tl_plan_pool *pool = self;
    if (!is_kept(bytes, kind)) {
        pool->base->release(pool->base->self, pointer, bytes, kind);
        return;
    }
    block *b = pointer;
    b->next = pool->free[class_of(bytes)];
    pool->free[class_of(bytes)] = b;
}

tl_plan_pool *tl_plan_pool_new(tl_error *error) {
    const tl_allocator *base = tl_allocator_default();
    tl_plan_pool *pool = base->alloc(base->self, sizeof *pool, ALIGNED, TL_ALLOC_HOST);
    if (!pool) {
        tl_fail(error, TL_ERR_MEMORY, "no memory to plan in");
        return NULL;
    }
    memset(pool, 0, sizeof *pool);
    pool->base = base;
    pool->allocator = (tl_allocator){pool_alloc, pool_release, pool};
    return pool;
}

void tl_plan_pool_free(tl_plan_pool *pool) {
    for (int c = 0; pool && c < CLASSES; c++)
        while (pool->free[c]) {
            block *b = pool->free[c];
            pool->free[c] = b->next;
            pool->base->release(pool->base->self, b, size_of(c), TL_ALLOC_HOST);
        }
    if (pool)
        pool->base->release(pool->base->self, pool, sizeof *pool, TL_ALLOC_HOST);
}

const tl_allocator *tl_plan_pool_allocator(tl_plan_pool *pool) { return pool ? &pool->allocator : NULL; }

bool tl_plan_pool_reserve(const tl_plan_pool *pool, tl_ctx *ctx) {
    return !pool || tl_ledger_reserve(ctx, pool->events, pool->ops);
}

void tl_plan_pool_saw(tl_plan_pool *pool, const tl_ctx *ctx) {
    const struct tl_ledger *l = ctx->ledger;
    pool->events = l->event_count > pool->events ? l->event_count : pool->events;
    pool->ops = l->op_count > pool->ops ? l->op_count : pool->ops;
}
