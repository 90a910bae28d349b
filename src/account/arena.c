/* The arena at run time: follows the planned sequence event by event. The first deviation sends the rest of the step to the
 * heap, so that a block can never be handed out twice. */
#include "tally/account.h"

#include <string.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

struct tl_arena {
    tl_allocator base;
    char *block;
    int64_t block_bytes, event_count, count, next, allocated, unplanned;
    int64_t live; /* blocks handed out and not given back: while there are any, a step cannot start anew */
    int64_t *event, *offset;
    bool following;
};

enum { HUGE_PAGE = 2 << 20 };

static void *arena_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    tl_arena *a = self;
    if (kind == TL_ALLOC_STORAGE && a->block) {
        if (a->following && a->next < a->event_count && a->event[a->next] == (int64_t)bytes) {
            a->next++;
            a->live++;
            return a->block + a->offset[a->allocated++];
        }
        a->following = false;
        a->unplanned += (int64_t)bytes;
    }
    return a->base.alloc(a->base.self, bytes, align, kind);
}

static void arena_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    tl_arena *a = self;
    char *p = pointer;
    if (kind != TL_ALLOC_STORAGE || !a->block || p < a->block || p >= a->block + a->block_bytes) {
        a->base.release(a->base.self, pointer, bytes, kind);
        return;
    }
    a->live--;
    if (!a->following)
        return;
    int64_t index = a->next < a->event_count ? -1 - a->event[a->next] : -1;
    if (index >= 0 && a->block + a->offset[index] == p)
        a->next++;
    else
        a->following = false;
}

tl_arena *tl_arena_new(const tl_allocator *base, tl_error *error) {
    const tl_allocator *b = base ? base : tl_allocator_default();
    tl_arena *a = b->alloc(b->self, sizeof *a, 16, TL_ALLOC_HOST);
    if (!a) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for an arena");
        return NULL;
    }
    memset(a, 0, sizeof *a);
    a->base = *b;
    return a;
}

static void drop(tl_arena *a) {
    if (a->block)
        a->base.release(a->base.self, a->block, (size_t)a->block_bytes, TL_ALLOC_HOST);
    if (a->event)
        a->base.release(a->base.self, a->event, (size_t)a->event_count * sizeof *a->event, TL_ALLOC_HOST);
    if (a->offset)
        a->base.release(a->base.self, a->offset, (size_t)a->count * sizeof *a->offset, TL_ALLOC_HOST);
    a->block = NULL;
    a->event = a->offset = NULL;
}

void tl_arena_free(tl_arena *a) {
    if (!a)
        return;
    drop(a);
    tl_allocator base = a->base;
    base.release(base.self, a, sizeof *a, TL_ALLOC_HOST);
}

tl_allocator tl_arena_allocator(tl_arena *a) { return (tl_allocator){arena_alloc, arena_release, a}; }

tl_status tl_arena_use(tl_arena *a, const tl_arena_plan *plan, tl_error *error) {
    drop(a);
    if (plan->count == 0)
        return TL_OK;
    a->block_bytes = (plan->bytes + HUGE_PAGE - 1) & ~(int64_t)(HUGE_PAGE - 1);
    a->event_count = plan->event_count;
    a->count = plan->count;
    a->block = a->base.alloc(a->base.self, (size_t)a->block_bytes, HUGE_PAGE, TL_ALLOC_HOST);
    a->event = a->base.alloc(a->base.self, (size_t)plan->event_count * sizeof *a->event, 16, TL_ALLOC_HOST);
    a->offset = a->base.alloc(a->base.self, (size_t)plan->count * sizeof *a->offset, 16, TL_ALLOC_HOST);
    if (!a->block || !a->event || !a->offset) {
        drop(a);
        return tl_fail(error, TL_ERR_MEMORY, "no memory for an arena of %lld bytes", (long long)plan->bytes);
    }
    memcpy(a->event, plan->event, (size_t)plan->event_count * sizeof *a->event);
    memcpy(a->offset, plan->offset, (size_t)plan->count * sizeof *a->offset);
#if defined(__linux__)
    (void)madvise(a->block, (size_t)a->block_bytes, MADV_HUGEPAGE); /* a hint: nothing depends on it */
#endif
    a->following = false;
    return TL_OK;
}

void tl_arena_step_begin(tl_arena *a) {
    a->next = a->allocated = 0;
    a->following = a->block != NULL && a->live == 0;
}

int64_t tl_arena_unplanned(const tl_arena *a) { return a->unplanned; }
