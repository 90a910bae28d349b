/* data/tokens_reader.c: batches made ahead of the step that takes them. */
#include "tally/tokens.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/worker.h"
#include "tensor/ctx.h"

struct tl_reader {
    tl_ctx *ctx;
    tl_sampler sampler;
    int64_t micro_batch, seq, accumulation;
    int64_t half;          /* ids of a micro-batch's inputs, of its targets, and its positions where there are some */
    int64_t parts;         /* 2, or 3 with positions */
    uint64_t first, taken; /* windows drawn before this reader, micro-batches handed out by it */
    int64_t micro;         /* of the step at hand, the next to hand out */
    int slot;              /* where that step lies */
    int64_t total;         /* its targets that count */
    double waited;
    tl_tensor *own_ring;
    int32_t *ring; /* [slots, A, parts, B, T] */
    size_t locked_bytes;
    tl_worker *worker;
};

static int32_t *inputs_of(const tl_reader *r, int slot, int64_t micro) {
    return r->ring + ((int64_t)slot * r->accumulation + micro) * r->parts * r->half;
}

static tl_status make_step(void *self, uint64_t item, int slot, tl_error *error) {
    const tl_reader *r = self;
    const int64_t windows = r->accumulation * r->micro_batch;
    for (int64_t w = 0; w < windows; w++) {
        int32_t *input = inputs_of(r, slot, w / r->micro_batch) + w % r->micro_batch * r->seq;
        const uint64_t window = r->first + item * (uint64_t)windows + (uint64_t)w;
        const tl_status status = tl_sampler_window(&r->sampler, window, input, input + r->half, error);
        if (status != TL_OK)
            return status;
        if (r->parts > 2)
            tl_sampler_positions(&r->sampler, window, input, input + 2 * r->half);
    }
    return TL_OK;
}

static int64_t count_targets(const tl_reader *r, int64_t micro) {
    const int32_t *target = inputs_of(r, r->slot, micro) + r->half;
    int64_t n = 0;
    for (int64_t i = 0; i < r->half; i++)
        n += target[i] != TL_IGNORE_INDEX;
    return n;
}

static void batch_dims(tl_ctx *ctx, int64_t micro_batch, int64_t seq, tl_dim *B, tl_dim *T) {
    *B = tl_dim_named(tl_dim_symbol(ctx, "B", micro_batch, "micro-batch"), "batch");
    *T = tl_dim_named(tl_dim_symbol(ctx, "T", seq, "sequence length"), "seq");
}

static tl_status check_ring(const tl_reader *r, const tl_tensor *ring, int slots) {
    const int64_t size[5] = {slots, r->accumulation, r->parts, r->micro_batch, r->seq};
    bool good = tl_tensor_dtype(ring) == TL_I32 && tl_tensor_ndim(ring) == 5 && tl_tensor_is_contiguous(ring);
    for (int i = 0; good && i < 5; i++)
        good = tl_tensor_size(ring, i) == size[i];
    char text[256];
    return good ? TL_OK
                : tl_ctx_fail(r->ctx, TL_ERR_SHAPE, "a ring of %s; i32 [%d, %lld, %lld, %lld, %lld] would work",
                              tl_tensor_text(ring, text, sizeof text), slots, (long long)r->accumulation,
                              (long long)r->parts, (long long)r->micro_batch, (long long)r->seq);
}

static tl_status make_room(tl_reader *r, const tl_reader_options *o, int slots) {
    tl_ctx *ctx = r->ctx;
    if (o->ring) {
        const tl_status status = check_ring(r, o->ring, slots);
        if (status != TL_OK)
            return status;
        r->ring = tl_tensor_data(o->ring);
        return TL_OK;
    }
    tl_dim B, T;
    batch_dims(ctx, r->micro_batch, r->seq, &B, &T);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(slots), tl_dim_of(r->accumulation), tl_dim_of(r->parts), B, T);
    r->own_ring = tl_keep(tl_empty(ctx, TL_I32, shape, TL_DATA));
    r->ring = tl_tensor_data(r->own_ring);
    return tl_ctx_status(ctx);
}

static tl_status lock_memory(tl_reader *r, int slots) {
    const size_t bytes = (size_t)slots * (size_t)r->accumulation * (size_t)r->parts * (size_t)r->half * sizeof *r->ring;
    char allowed[64] = "not known";
    struct rlimit limit;
    if (mlock(r->ring, bytes) == 0) {
        r->locked_bytes = bytes;
        return TL_OK;
    }
    const int reason = errno;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        if (limit.rlim_cur == RLIM_INFINITY)
            snprintf(allowed, sizeof allowed, "unlimited");
        else
            snprintf(allowed, sizeof allowed, "%llu bytes", (unsigned long long)limit.rlim_cur);
    }
    return tl_ctx_fail(
        r->ctx, TL_ERR_IO,
        "cannot lock %zu bytes of batches in memory: %s; RLIMIT_MEMLOCK is %s (ulimit -l): raise it, or read "
        "without locking",
        bytes, strerror(reason), allowed);
}

static tl_status set_up(tl_reader *r, const tl_tokens *tokens, const tl_reader_options *o) {
    tl_ctx *ctx = r->ctx;
    tl_error error = {TL_OK, ""};
    const int slots = o->slots ? o->slots : 2;
    int64_t windows, bytes;
    if (tl_ctx_is_meta(ctx))
        return tl_ctx_fail(ctx, TL_ERR_STATE, "a reader on meta, which holds no values");
    if (slots < 1 || slots > TL_WORKER_MAX_SLOTS)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%d batches held ready; 1 to %d would work", slots,
                           TL_WORKER_MAX_SLOTS);
    if (tl_sampler_init(&r->sampler, tokens, &o->sampler, &error) != TL_OK)
        return tl_ctx_fail(ctx, error.status, "%s", error.message);
    r->micro_batch = o->micro_batch;
    r->accumulation = o->accumulation ? o->accumulation : 1;
    r->seq = o->sampler.seq;
    r->parts = o->positions ? 3 : 2;
    if (o->positions && !o->sampler.ignore_boundaries)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "positions in documents whose boundaries are ignored");
    r->first = o->position;
    if (o->micro_batch < 1 || r->accumulation < 1 || !tl_mul_i64(o->micro_batch, r->accumulation, &windows) ||
        !tl_mul_i64(windows, r->seq, &bytes) ||
        !tl_mul_i64(bytes, (int64_t)slots * r->parts * (int64_t)sizeof(int32_t), &bytes))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "%lld micro-batches of %lld windows of %lld tokens; 1 or more that fit in memory would work",
                           (long long)r->accumulation, (long long)o->micro_batch, (long long)r->seq);
    r->half = o->micro_batch * r->seq;
    tl_status status = make_room(r, o, slots);
    if (status == TL_OK && o->locked)
        status = lock_memory(r, slots);
    if (status != TL_OK)
        return status;
    status = tl_worker_open(&ctx->allocator, o->threads, slots, 0, make_step, r, &r->worker, &error);
    return status == TL_OK ? TL_OK : tl_ctx_fail(ctx, status, "%s", error.message);
}

tl_reader *tl_reader_new(tl_ctx *ctx, const tl_tokens *tokens, const tl_reader_options *options) {
    if (tl_ctx_status(ctx) != TL_OK)
        return NULL;
    tl_reader *r = tl_host_alloc(ctx, sizeof *r);
    if (!r)
        return NULL;
    r->ctx = ctx;
    if (set_up(r, tokens, options) == TL_OK)
        return r;
    tl_reader_free(r);
    return NULL;
}

void tl_reader_free(tl_reader *r) {
    if (!r)
        return;
    tl_worker_close(r->worker); /* nothing writes into the ring from here on */
    if (r->locked_bytes)
        (void)munlock(r->ring, r->locked_bytes);
    tl_free(r->own_ring);
    tl_host_free(r->ctx, r, sizeof *r);
}

/* The next step's micro-batches. */
static tl_status take_step(tl_reader *r) {
    tl_error error = {TL_OK, ""};
    double waited = 0;
    const tl_status status = tl_worker_take(r->worker, &r->slot, &waited, &error);
    r->waited += waited;
    if (status != TL_OK)
        return tl_ctx_fail(r->ctx, status, "%s", error.message);
    r->total = 0;
    for (int64_t micro = 0; r->sampler.options.ignore_boundaries && micro < r->accumulation; micro++)
        r->total += count_targets(r, micro);
    const uint64_t window = tl_reader_position(r);
    if (r->sampler.options.ignore_boundaries && r->total == 0) /* a loss of nothing is 0, and decay would go on */
        return tl_ctx_fail(r->ctx, TL_ERR_FORMAT,
                           "no target counts in windows %llu to %llu, a whole step: each stands at a document's "
                           "boundary; another separator, or boundaries that count, would work",
                           (unsigned long long)window,
                           (unsigned long long)window + (uint64_t)(r->micro_batch * r->accumulation) - 1);
    return TL_OK;
}

tl_status tl_reader_next(tl_reader *r, tl_token_batch *batch) {
    tl_ctx *ctx = r->ctx;
    *batch = (tl_token_batch){.input = NULL};
    tl_status status = tl_ctx_status(ctx);
    if (status == TL_OK && r->micro == 0)
        status = take_step(r);
    if (status != TL_OK)
        return status;
    const int32_t *from = inputs_of(r, r->slot, r->micro);
    tl_dim B, T;
    batch_dims(ctx, r->micro_batch, r->seq, &B, &T);
    batch->input = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, B, T), TL_DATA, from, r->half);
    batch->target = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, B, T), TL_DATA, from + r->half, r->half);
    if (r->parts > 2)
        batch->positions = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, B, T), TL_DATA, from + 2 * r->half, r->half);
    batch->total = r->total;
    batch->counted = r->total ? count_targets(r, r->micro) : 0;
    r->taken++;
    r->micro = (r->micro + 1) % r->accumulation;
    if (r->micro == 0)
        tl_worker_give(r->worker);
    return tl_ctx_status(ctx);
}

uint64_t tl_reader_position(const tl_reader *r) { return r->first + r->taken * (uint64_t)r->micro_batch; }

double tl_reader_waited(const tl_reader *r) { return r->waited; }
