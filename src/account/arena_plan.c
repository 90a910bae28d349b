/* Offsets in one block for a step's allocations: a best-fit allocator, run on the log. */
#include "account/ledger.h"

#include <string.h>

typedef struct hole {
    int64_t offset, bytes;
} hole;

typedef struct planner {
    tl_ctx *ctx;
    tl_arena_plan *plan;
    hole *holes; /* by offset; the block is open-ended: its end is `top` */
    int64_t hole_count, hole_capacity, event_capacity, offset_capacity, top;
    int64_t *taken; /* per slot: 1 + index of its allocation; 0: carried or none */
    int64_t *size;  /* per allocation, aligned */
    int64_t size_capacity;
} planner;

static int64_t aligned(int64_t bytes) { return (bytes + TL_ALIGN - 1) & ~(int64_t)(TL_ALIGN - 1); }

static int64_t take(planner *p, int64_t bytes) {
    int64_t best = -1;
    for (int64_t i = 0, least = INT64_MAX; i < p->hole_count && least > bytes; i++)
        if (p->holes[i].bytes >= bytes && p->holes[i].bytes < least)
            best = i, least = p->holes[i].bytes;
    if (best >= 0) {
        int64_t offset = p->holes[best].offset;
        p->holes[best].offset += bytes;
        p->holes[best].bytes -= bytes;
        if (p->holes[best].bytes == 0)
            memmove(&p->holes[best], &p->holes[best + 1], (size_t)(--p->hole_count - best) * sizeof *p->holes);
        return offset;
    }
    int64_t offset = p->top;
    if (p->hole_count && p->holes[p->hole_count - 1].offset + p->holes[p->hole_count - 1].bytes == p->top)
        offset = p->holes[--p->hole_count].offset; /* the last hole ends the block: grow it */
    p->top = offset + bytes;
    if (p->top > p->plan->bytes)
        p->plan->bytes = p->top;
    return offset;
}

static bool give(planner *p, int64_t offset, int64_t bytes) {
    if (!tl_host_grow(p->ctx, &p->holes, sizeof *p->holes, p->hole_count + 1, &p->hole_capacity))
        return false;
    int64_t i = p->hole_count;
    while (i > 0 && p->holes[i - 1].offset > offset)
        i--;
    bool joins_left = i > 0 && p->holes[i - 1].offset + p->holes[i - 1].bytes == offset;
    bool joins_right = i < p->hole_count && offset + bytes == p->holes[i].offset;
    if (joins_left && joins_right) {
        p->holes[i - 1].bytes += bytes + p->holes[i].bytes;
        memmove(&p->holes[i], &p->holes[i + 1], (size_t)(--p->hole_count - i) * sizeof *p->holes);
    } else if (joins_left)
        p->holes[i - 1].bytes += bytes;
    else if (joins_right) {
        p->holes[i].offset = offset;
        p->holes[i].bytes += bytes;
    } else {
        memmove(&p->holes[i + 1], &p->holes[i], (size_t)(p->hole_count - i) * sizeof *p->holes);
        p->holes[i] = (hole){offset, bytes};
        p->hole_count++;
    }
    return true;
}

static bool append(planner *p, int64_t event) {
    if (!tl_host_grow(p->ctx, &p->plan->event, sizeof *p->plan->event, p->plan->event_count + 1, &p->event_capacity))
        return false;
    p->plan->event[p->plan->event_count++] = event;
    return true;
}

static bool on_alloc(planner *p, uint32_t slot, int64_t bytes) {
    tl_arena_plan *plan = p->plan;
    if (!append(p, bytes) ||
        !tl_host_grow(p->ctx, &plan->offset, sizeof *plan->offset, plan->count + 1, &p->offset_capacity) ||
        !tl_host_grow(p->ctx, &p->size, sizeof *p->size, plan->count + 1, &p->size_capacity))
        return false;
    p->size[plan->count] = aligned(bytes);
    plan->offset[plan->count] = take(p, aligned(bytes));
    p->taken[slot] = ++plan->count;
    return true;
}

static bool on_free(planner *p, uint32_t slot) {
    int64_t index = p->taken[slot] - 1;
    if (index < 0)
        return true; /* carried: not in the block */
    p->taken[slot] = 0;
    return append(p, -1 - index) && give(p, p->plan->offset[index], p->size[index]);
}

tl_status tl_arena_plan_make(tl_ctx *ctx, tl_arena_plan *plan) {
    memset(plan, 0, sizeof *plan);
    const struct tl_ledger *l = ctx->ledger;
    planner p = {.ctx = ctx, .plan = plan};
    p.taken = tl_host_alloc(ctx, (size_t)l->slot_count * sizeof *p.taken);
    bool ok = p.taken != NULL;
    for (int64_t i = 0; ok && i < l->event_count; i++) {
        const tl_event *e = &l->events[i];
        if (e->bytes == 0)
            continue;
        if (e->kind == TL_EVENT_CARRIED)
            plan->carried_bytes += aligned(e->bytes);
        else if (e->kind == TL_EVENT_ALLOC)
            ok = on_alloc(&p, e->slot, e->bytes);
        else if (e->kind == TL_EVENT_FREE)
            ok = on_free(&p, e->slot);
    }
    tl_host_free(ctx, p.taken, (size_t)l->slot_count * sizeof *p.taken);
    tl_host_free(ctx, p.holes, (size_t)p.hole_capacity * sizeof *p.holes);
    tl_host_free(ctx, p.size, (size_t)p.size_capacity * sizeof *p.size);
    /* The arrays are kept at their exact capacity so that they can be freed by count. */
    int64_t *event = ok ? tl_host_alloc(ctx, (size_t)plan->event_count * sizeof *event) : NULL;
    int64_t *offset = event ? tl_host_alloc(ctx, (size_t)plan->count * sizeof *offset) : NULL;
    if (offset) {
        if (plan->event_count)
            memcpy(event, plan->event, (size_t)plan->event_count * sizeof *event);
        if (plan->count)
            memcpy(offset, plan->offset, (size_t)plan->count * sizeof *offset);
    } else
        tl_host_free(ctx, event, (size_t)plan->event_count * sizeof *event);
    tl_host_free(ctx, plan->event, (size_t)p.event_capacity * sizeof *plan->event);
    tl_host_free(ctx, plan->offset, (size_t)p.offset_capacity * sizeof *plan->offset);
    plan->event = offset ? event : NULL;
    plan->offset = offset;
    if (ctx->error.status != TL_OK) { /* from before, perhaps: a caller who sees an error frees nothing */
        tl_host_free(ctx, plan->event, (size_t)plan->event_count * sizeof *plan->event);
        tl_host_free(ctx, plan->offset, (size_t)plan->count * sizeof *plan->offset);
        memset(plan, 0, sizeof *plan);
    }
    return ctx->error.status;
}

void tl_arena_plan_free(tl_ctx *ctx, tl_arena_plan *plan) {
    tl_host_free(ctx, plan->event, (size_t)plan->event_count * sizeof *plan->event);
    tl_host_free(ctx, plan->offset, (size_t)plan->count * sizeof *plan->offset);
    memset(plan, 0, sizeof *plan);
}
