/* kernel/meter.c: counting at the two places all bytes and all products pass.
 *
 * A kernel table has no room for a user pointer. The meter finds itself through the engine, which keeps the allocator it
 * was opened with: the meter's own.
 */
#include "tally/meter.h"

#include <string.h>

#include "kernel/engine.h"

typedef struct block {
    const void *data; /* NULL: free */
    int64_t bytes;
} block;

struct tl_meter {
    tl_kernels table; /* a copy whose product counts */
    const tl_kernels *inner;
    tl_allocator base;
    tl_reading now;
    block *blocks; /* open addressing, a power of two of places, at most half full */
    size_t places, used;
    void (*moment)(void *user);
    void *user;
    bool pending; /* a new peak that `moment` has not seen */
};

enum { FIRST_PLACES = 1024 };

static size_t place_of(const void *data, size_t places) {
    uint64_t h = (uint64_t)(uintptr_t)data * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(h >> 32) & (places - 1);
}

static block *find(const tl_meter *m, const void *data) {
    size_t i = place_of(data, m->places);
    while (m->blocks[i].data && m->blocks[i].data != data)
        i = (i + 1) & (m->places - 1);
    return &m->blocks[i];
}

static bool grow(tl_meter *m) {
    size_t places = m->places * 2;
    block *more = m->base.alloc(m->base.self, places * sizeof *more, 16, TL_ALLOC_HOST);
    if (!more)
        return false;
    memset(more, 0, places * sizeof *more);
    block *old = m->blocks;
    size_t n = m->places;
    m->blocks = more;
    m->places = places;
    for (size_t i = 0; i < n; i++)
        if (old[i].data)
            *find(m, old[i].data) = old[i];
    m->base.release(m->base.self, old, n * sizeof *old, TL_ALLOC_HOST);
    return true;
}

/* Takes a block out and moves up those behind it that would no longer be found. */
static void forget(tl_meter *m, block *b) {
    size_t hole = (size_t)(b - m->blocks), i = hole;
    for (;;) {
        i = (i + 1) & (m->places - 1);
        if (!m->blocks[i].data)
            break;
        size_t home = place_of(m->blocks[i].data, m->places);
        if (((i - home) & (m->places - 1)) >= ((i - hole) & (m->places - 1))) {
            m->blocks[hole] = m->blocks[i];
            hole = i;
        }
    }
    m->blocks[hole] = (block){NULL, 0};
    m->used--;
}

static void show_peak(tl_meter *m) {
    if (m->pending && m->moment)
        m->moment(m->user);
    m->pending = false;
}

static void *meter_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    tl_meter *m = self;
    if (kind != TL_ALLOC_STORAGE)
        return m->base.alloc(m->base.self, bytes, align, kind);
    show_peak(m);
    if (m->used * 2 >= m->places && !grow(m))
        return NULL;
    void *data = m->base.alloc(m->base.self, bytes, align, kind);
    if (!data)
        return NULL;
    *find(m, data) = (block){data, (int64_t)bytes};
    m->used++;
    m->now.allocations++;
    m->now.live_bytes += (int64_t)bytes;
    if (m->now.live_bytes > m->now.peak_bytes) {
        m->now.peak_bytes = m->now.live_bytes;
        m->pending = true;
    }
    return data;
}

static void meter_release(void *self, void *data, size_t bytes, tl_alloc_kind kind) {
    tl_meter *m = self;
    if (kind == TL_ALLOC_STORAGE) {
        show_peak(m);
        block *b = find(m, data);
        if (b->data) {
            m->now.live_bytes -= b->bytes;
            forget(m, b);
        }
    }
    m->base.release(m->base.self, data, bytes, kind);
}

static void meter_product(const tl_product *p) {
    if (p->engine->allocator->alloc !=
        meter_alloc) { /* these kernels came without their allocator: nothing to count in */
        if (p->failed)
            *p->failed = true;
        return;
    }
    tl_meter *m = p->engine->allocator->self;
    tl_u128 flops = 2 * (tl_u128)p->m * (tl_u128)p->n * (tl_u128)p->k;
    for (int i = 0; i < p->n_batch; i++)
        flops *= (tl_u128)p->batch[i];
    m->now.flops += flops;
    m->now.products++;
    m->inner->product(p);
}

/* The one product that does not come by tl_product: its sizes are its arrays'. */
static void meter_linear_int8(tl_kcall *call) {
    if (call->engine->allocator->alloc != meter_alloc) {
        call->fault = 1;
        return;
    }
    tl_meter *m = call->engine->allocator->self;
    const tl_array *y = &call->out[0], *q = &call->in[1];
    tl_u128 flops = 2 * (tl_u128)q->size[1];
    for (int i = 0; i < y->ndim; i++)
        flops *= (tl_u128)y->size[i];
    m->now.flops += flops;
    m->now.products++;
    m->inner->linear_int8(call);
}

/* Kernels that make their products themselves add up what they made. */
static void meter_own(tl_kcall *call, bool backward) {
    if (call->engine->allocator->alloc != meter_alloc) {
        call->fault = 1;
        return;
    }
    tl_meter *m = call->engine->allocator->self;
    int64_t before = call->product_flops;
    (backward ? m->inner->flash_attention_backward : m->inner->flash_attention)(call);
    m->now.flops += (tl_u128)(call->product_flops - before);
    m->now.products++;
}
static void meter_flash(tl_kcall *call) { meter_own(call, false); }
static void meter_flash_backward(tl_kcall *call) { meter_own(call, true); }

tl_meter *tl_meter_new(const tl_kernels *kernels, const tl_allocator *base, tl_error *error) {
    const tl_allocator *b = base ? base : tl_allocator_default();
    tl_meter *m = b->alloc(b->self, sizeof *m, 64, TL_ALLOC_HOST);
    if (!m) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for a meter");
        return NULL;
    }
    memset(m, 0, sizeof *m);
    m->base = *b;
    m->inner = kernels;
    m->table = *kernels;
    m->table.product = meter_product;
    m->table.linear_int8 = meter_linear_int8;
    m->table.flash_attention = meter_flash;
    m->table.flash_attention_backward = meter_flash_backward;
    m->places = FIRST_PLACES;
    m->blocks = b->alloc(b->self, m->places * sizeof *m->blocks, 16, TL_ALLOC_HOST);
    if (!m->blocks) {
        b->release(b->self, m, sizeof *m, TL_ALLOC_HOST);
        tl_fail(error, TL_ERR_MEMORY, "no memory for a meter");
        return NULL;
    }
    memset(m->blocks, 0, m->places * sizeof *m->blocks);
    return m;
}

void tl_meter_free(tl_meter *m) {
    if (!m)
        return;
    tl_allocator base = m->base;
    base.release(base.self, m->blocks, m->places * sizeof *m->blocks, TL_ALLOC_HOST);
    base.release(base.self, m, sizeof *m, TL_ALLOC_HOST);
}

const tl_kernels *tl_meter_kernels(const tl_meter *m) { return &m->table; }

tl_allocator tl_meter_allocator(tl_meter *m) { return (tl_allocator){meter_alloc, meter_release, m}; }

void tl_meter_step_begin(tl_meter *m) {
    int64_t live = m->now.live_bytes;
    m->now = (tl_reading){.live_bytes = live, .peak_bytes = live};
    m->pending = true; /* what is carried in is a moment too, should nothing rise above it */
}

void tl_meter_read(const tl_meter *m, tl_reading *reading) { *reading = m->now; }

int64_t tl_meter_block_bytes(const tl_meter *m, const void *data) { return data ? find(m, data)->bytes : 0; }

void tl_meter_on_peak(tl_meter *m, void (*moment)(void *user), void *user) {
    m->moment = moment;
    m->user = user;
}
