#include "instrument.h"

#include <stdlib.h>
#include <string.h>

typedef struct block {
    void *pointer;
    int64_t bytes;
    bool data;
} block;

struct instrument {
    tl_allocator base;
    block *blocks;
    int64_t count, capacity, live, host;
    bool fresh; /* a new maximum was reached and not yet looked at */
    measured m;
    const tl_parameter *list;
    int list_count;
    const tl_optimizer *optimizer;
    const tl_trainer *trainer;
    int64_t fail_after;
    bool failed;
    tl_kernels kernels;
    void (*real_product)(const tl_product *product);
    tl_kernel *real_linear_int8, *real_flash, *real_flash_backward;
};

/* The kernel's signature has no room for a user pointer. */
static instrument *counting;

static bool holds(const tl_tensor *t, const block *b) { return t && tl_tensor_storage_data(t) == b->pointer; }

/* Asks the owners, by pointer. */
static int64_t *owner_of(instrument *i, const block *b) {
    measured *m = &i->m;
    if (b->data)
        return &m->data;
    for (int p = 0; p < i->list_count; p++) {
        const tl_tensor *t = i->list[p].tensor;
        for (int k = 0; i->trainer && i->list[p].full && k < 3; k++) /* a quantised weight's scales belong to it */
            if (holds(tl_net_quantization(tl_trainer_net(i->trainer), p, k, NULL), b))
                return &m->param;
        if (holds(t, b))
            return &m->param;
        if (holds(tl_tensor_grad(t), b))
            return &m->grad;
        if (!i->optimizer)
            continue;
        for (int k = 0; k < TL_OPTIM_MAX_STATES; k++)
            if (holds(tl_optimizer_state(i->optimizer, p, k), b))
                return &m->optim;
        if (holds(tl_optimizer_master(i->optimizer, p), b))
            return &m->master;
    }
    tl_tensor *extra;
    for (int k = 0; i->trainer && tl_trainer_extra(i->trainer, k, NULL, &extra); k++)
        if (holds(extra, b))
            return &m->optim;
    return &m->rest;
}

static void look(instrument *i) {
    if (!i->fresh)
        return;
    i->fresh = false;
    i->m.param = i->m.grad = i->m.optim = i->m.master = i->m.data = i->m.rest = 0;
    for (int64_t k = 0; k < i->count; k++)
        *owner_of(i, &i->blocks[k]) += i->blocks[k].bytes;
}

static bool room(instrument *i) {
    if (i->count < i->capacity)
        return true;
    int64_t capacity = i->capacity ? 2 * i->capacity : 256;
    block *grown = realloc(i->blocks, (size_t)capacity * sizeof *grown);
    if (!grown)
        return false;
    i->blocks = grown;
    i->capacity = capacity;
    return true;
}

static void *on_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    instrument *i = self;
    if (i->fail_after == 0) {
        i->fail_after = -1;
        i->failed = true;
        return NULL;
    }
    if (i->fail_after > 0)
        i->fail_after--;
    interpose_known_begin();
    void *pointer = kind != TL_ALLOC_STORAGE || room(i) ? i->base.alloc(i->base.self, bytes, align, kind) : NULL;
    interpose_known_end();
    if (!pointer)
        return NULL;
    if (kind == TL_ALLOC_HOST) {
        i->m.host_calls++;
        i->host++;
        return pointer;
    }
    i->blocks[i->count++] = (block){.pointer = pointer, .bytes = (int64_t)bytes};
    i->m.allocations++;
    i->live += (int64_t)bytes;
    if (i->live > i->m.peak) {
        i->m.peak = i->live;
        i->fresh = true;
    }
    return pointer;
}

static void on_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    instrument *i = self;
    if (kind == TL_ALLOC_HOST)
        i->host--;
    else {
        look(i);
        int64_t at = i->count - 1;
        while (at >= 0 && i->blocks[at].pointer != pointer)
            at--;
        if (at < 0 || i->blocks[at].bytes != (int64_t)bytes)
            abort(); /* a block that was never handed out, or another size: the run itself is wrong */
        i->live -= (int64_t)bytes;
        i->blocks[at] = i->blocks[--i->count];
    }
    i->base.release(i->base.self, pointer, bytes, kind);
}

instrument *instrument_new(const tl_allocator *base) {
    instrument *i = calloc(1, sizeof *i);
    if (!i)
        abort();
    i->base = base ? *base : *tl_allocator_default();
    i->fail_after = -1;
    return i;
}

int64_t instrument_free(instrument *i) {
    int64_t left = i->count + i->host;
    if (counting == i)
        counting = NULL;
    free(i->blocks);
    free(i);
    return left;
}

tl_allocator instrument_allocator(instrument *i) { return (tl_allocator){on_alloc, on_release, i}; }

static void counting_product(const tl_product *p) {
    tl_u128 count = (tl_u128)2 * (tl_u128)p->m * (tl_u128)p->n * (tl_u128)p->k;
    for (int d = 0; d < p->n_batch; d++)
        count *= (tl_u128)p->batch[d];
    counting->m.matmul += count;
    counting->m.products++;
    counting->real_product(p);
}

/* rows × outputs of the result, columns of the weight */
static void counting_linear_int8(tl_kcall *call) {
    const tl_array *y = &call->out[0];
    tl_u128 count = (tl_u128)2 * (tl_u128)call->in[1].size[1];
    for (int d = 0; d < y->ndim; d++)
        count *= (tl_u128)y->size[d];
    counting->m.matmul += count;
    counting->m.products++;
    counting->real_linear_int8(call);
}

/* Its products are its own: it adds up m, n, k of each where it makes it. */
static void counting_flash(tl_kcall *call) {
    counting->real_flash(call);
    counting->m.matmul += (tl_u128)call->product_flops;
    counting->m.products++;
}

static void counting_flash_backward(tl_kcall *call) {
    counting->real_flash_backward(call);
    counting->m.matmul += (tl_u128)call->product_flops;
    counting->m.products++;
}

const tl_kernels *instrument_kernels(instrument *i, const tl_kernels *real) {
    counting = i;
    i->kernels = *real;
    i->real_product = real->product;
    i->kernels.product = counting_product;
    i->real_linear_int8 = real->linear_int8;
    i->kernels.linear_int8 = counting_linear_int8;
    i->real_flash = real->flash_attention;
    i->kernels.flash_attention = counting_flash;
    i->real_flash_backward = real->flash_attention_backward;
    i->kernels.flash_attention_backward = counting_flash_backward;
    return &i->kernels;
}

void instrument_watch(instrument *i, const tl_parameter *list, int count, const tl_optimizer *optimizer) {
    i->list = list;
    i->list_count = count;
    i->optimizer = optimizer;
}

void instrument_watch_extra(instrument *i, const tl_trainer *trainer) { i->trainer = trainer; }

void instrument_is_data(instrument *i, const tl_tensor *t) {
    for (int64_t k = i->count - 1; k >= 0; k--)
        if (holds(t, &i->blocks[k])) {
            i->blocks[k].data = true;
            return;
        }
}

void instrument_begin(instrument *i) {
    i->m = (measured){.peak = i->live};
    i->fresh = true;
    interpose_begin();
}

measured instrument_end(instrument *i) {
    i->m.uncounted = interpose_end();
    look(i);
    return i->m;
}

int64_t instrument_live_bytes(const instrument *i) { return i->live; }

int64_t instrument_live_blocks(const instrument *i) { return i->count; }

int64_t instrument_host_blocks(const instrument *i) { return i->host; }

void instrument_fail_after(instrument *i, int64_t calls) {
    i->fail_after = calls;
    i->failed = false;
}

bool instrument_has_failed(const instrument *i) { return i->failed; }

/* ---- batches ---- */

static uint32_t next(uint64_t *seed) { /* splitmix64 */
    uint64_t z = (*seed += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

enum { MOST = 16384 };

static tl_status tokens(random_batch *r, tl_ctx *ctx, const tl_train_options *o, tl_batch *batch) {
    static int32_t ids[MOST], targets[MOST];
    int64_t count = o->micro_batch * o->seq;
    if (count > MOST)
        return TL_ERR_ARGUMENT;
    for (int64_t i = 0; i < count; i++) {
        ids[i] = (int32_t)(next(&r->seed) % (uint32_t)r->model->vocab);
        targets[i] = next(&r->seed) % 7 == 0 ? TL_IGNORE_INDEX : (int32_t)(next(&r->seed) % (uint32_t)r->model->vocab);
    }
    targets[0] = ids[0]; /* never all ignored */
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(o->micro_batch), tl_dim_of(o->seq));
    batch->input = tl_from_data(ctx, TL_I32, shape, TL_DATA, ids, count);
    batch->target = tl_from_data(ctx, TL_I32, shape, TL_DATA, targets, count);
    if (o->choices.documents) { /* a document of 5 tokens after the other in each row */
        for (int64_t i = 0; i < count; i++)
            targets[i] = (int32_t)(i % o->seq % 5);
        batch->positions = tl_from_data(ctx, TL_I32, shape, TL_DATA, targets, count);
    }
    return tl_ctx_status(ctx);
}

static tl_tensor *vectors(random_batch *r, tl_ctx *ctx, tl_dtype dtype, tl_shape shape, int64_t count) {
    static union {
        float f32[MOST];
        uint16_t half[MOST];
    } v;
    for (int64_t i = 0; i < count; i++) {
        float value = (float)next(&r->seed) * 0x1p-31f - 1.0f;
        if (dtype == TL_BF16)
            v.half[i] = tl_f32_to_bf16(value);
        else if (dtype == TL_F16)
            v.half[i] = tl_f32_to_f16(value);
        else
            v.f32[i] = value;
    }
    return tl_from_data(ctx, dtype, shape, TL_DATA, &v, count);
}

static tl_status crunched(random_batch *r, tl_ctx *ctx, const tl_train_options *o, tl_batch *batch) {
    tl_dim B = tl_dim_of(o->micro_batch), D = tl_dim_of(r->model->width);
    if (B.size * D.size > MOST)
        return TL_ERR_ARGUMENT;
    batch->input = vectors(r, ctx, o->dtype, TL_SHAPE(ctx, B, D), B.size * D.size);
    batch->target = vectors(r, ctx, o->dtype, TL_SHAPE(ctx, B), B.size);
    return tl_ctx_status(ctx);
}

tl_status random_batch_source(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    random_batch *r = user;
    (void)micro;
    tl_status status = r->model->family == TL_FAMILY_CRUNCHER ? crunched(r, ctx, o, batch) : tokens(r, ctx, o, batch);
    if (status == TL_OK && r->instrument) {
        instrument_is_data(r->instrument, batch->input);
        instrument_is_data(r->instrument, batch->target);
        if (batch->positions)
            instrument_is_data(r->instrument, batch->positions);
    }
    return status;
}
