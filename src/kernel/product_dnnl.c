/* kernel/product_dnnl.c: products through oneDNN, the only file that includes it.
 *
 * oneDNN threaded by itself changes bits with the number of threads. So it never threads: a product is cut into tiles of C
 * by its shape alone, each tile is a primitive created and run under one OpenMP thread, and our pool runs the tiles. The
 * sum over k is never cut. Primitives are kept in the engine; they use the worker's fixed scratch block and allocate
 * nothing when they run.
 */
#include "kernel/engine.h"

#ifdef TL_HAVE_DNNL

#include <string.h>

#include <oneapi/dnnl/dnnl.h>

/* libdnnl's OpenMP (libgomp), which it links itself; declared here so that no compiler's own OpenMP comes in. */
extern void omp_set_num_threads(int threads);

/* Below this many multiply-adds oneDNN's call costs more than it saves; measured. */
#define SMALL_TERMS (32 * 1024)
#define TASK_TERMS (256 * 1024) /* small tiles of a batch are put together up to this */
#define MAX_SLOTS 4096          /* a power of two; a training step of a dense model has a few dozen tile shapes */

typedef struct tile_key {
    int64_t m, n, k, a_row, a_col, b_row, b_col, c_row;
    int64_t flags; /* dtype, accumulate, bias */
} tile_key;

enum { ARGUMENT_A, ARGUMENT_B, ARGUMENT_C, ARGUMENT_BIAS, ARGUMENT_SCRATCH, ARGUMENT_COUNT };

typedef struct tile_primitive {
    tile_key key;
    bool usable; /* false: oneDNN has none, or its scratch does not fit */
    dnnl_primitive_t primitive;
    dnnl_memory_t *memory; /* ARGUMENT_COUNT per thread */
} tile_primitive;

typedef struct product_cache {
    dnnl_engine_t engine;
    dnnl_stream_t *stream; /* one per thread */
    int64_t count;
    tile_primitive *slot[MAX_SLOTS];
} product_cache;

static void one_thread(void) { omp_set_num_threads(1); }

static void primitive_free(const tl_engine *engine, tile_primitive *tile) {
    const tl_allocator *from = engine->allocator;
    size_t memories = (size_t)engine->threads * ARGUMENT_COUNT;
    if (tile->memory) {
        for (size_t i = 0; i < memories; i++)
            if (tile->memory[i])
                dnnl_memory_destroy(tile->memory[i]);
        from->release(from->self, tile->memory, memories * sizeof *tile->memory, TL_ALLOC_HOST);
    }
    if (tile->primitive)
        dnnl_primitive_destroy(tile->primitive);
    tile->memory = NULL;
    tile->primitive = NULL;
}

static void cache_empty(tl_engine *engine) {
    const tl_allocator *from = engine->allocator;
    product_cache *cache = engine->product_cache;
    for (int i = 0; i < MAX_SLOTS; i++)
        if (cache->slot[i]) {
            primitive_free(engine, cache->slot[i]);
            from->release(from->self, cache->slot[i], sizeof *cache->slot[i], TL_ALLOC_HOST);
            cache->slot[i] = NULL;
        }
    cache->count = 0;
}

static void cache_close(tl_engine *engine) {
    const tl_allocator *from = engine->allocator;
    product_cache *cache = engine->product_cache;
    if (!cache)
        return;
    cache_empty(engine);
    if (cache->stream) {
        for (int t = 0; t < engine->threads; t++)
            if (cache->stream[t])
                dnnl_stream_destroy(cache->stream[t]);
        from->release(from->self, cache->stream, (size_t)engine->threads * sizeof *cache->stream, TL_ALLOC_HOST);
    }
    if (cache->engine)
        dnnl_engine_destroy(cache->engine);
    from->release(from->self, cache, sizeof *cache, TL_ALLOC_HOST);
    engine->product_cache = NULL;
}

static tl_status cache_open(tl_engine *engine, tl_error *error) {
    const tl_allocator *from = engine->allocator;
    size_t stream_bytes = (size_t)engine->threads * sizeof(dnnl_stream_t);
    product_cache *cache = from->alloc(from->self, sizeof *cache, 64, TL_ALLOC_HOST);
    if (!cache)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for the table of products (%zu bytes)", sizeof *cache);
    memset(cache, 0, sizeof *cache);
    engine->product_cache = cache;
    engine->product_cache_close = cache_close;
    cache->stream = from->alloc(from->self, stream_bytes, 64, TL_ALLOC_HOST);
    if (!cache->stream)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for %d oneDNN streams", engine->threads);
    memset(cache->stream, 0, stream_bytes);
    dnnl_status_t status = dnnl_engine_create(&cache->engine, dnnl_cpu, 0);
    for (int t = 0; status == dnnl_success && t < engine->threads; t++)
        status = dnnl_stream_create(&cache->stream[t], cache->engine, dnnl_stream_in_order);
    if (status != dnnl_success)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "oneDNN could not be started (its status %d); TALLY_ISA=portable does without it", (int)status);
    return TL_OK;
}

tl_status tl_engine_open_dnnl(const tl_allocator *allocator, int threads, void *scratch, int64_t scratch_bytes,
                              tl_engine **engine, tl_error *error) {
    tl_status status = tl_engine_create(allocator, threads, scratch, scratch_bytes, one_thread, engine, error);
    if (status == TL_OK)
        status = cache_open(*engine, error);
    if (status != TL_OK && *engine) {
        tl_engine_close(*engine);
        *engine = NULL;
    }
    return status;
}

/* ---- one primitive ---- */

typedef struct descriptions {
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    dnnl_primitive_desc_t primitive;
} descriptions;

static bool describe(const product_cache *cache, const tile_key *key, descriptions *d) {
    dnnl_data_type_t type = (key->flags & 0xFF) == TL_F32 ? dnnl_f32 : dnnl_bf16;
    bool accumulate = key->flags & 0x100, bias = key->flags & 0x200;
    dnnl_dims_t a_size = {key->m, key->k}, a_stride = {key->a_row, key->a_col};
    dnnl_dims_t b_size = {key->k, key->n}, b_stride = {key->b_row, key->b_col};
    dnnl_dims_t c_size = {key->m, key->n}, c_stride = {key->c_row, 1};
    dnnl_dims_t bias_size = {1, key->n}, bias_stride = {key->n, 1};
    dnnl_matmul_desc_t matmul;
    if (dnnl_memory_desc_init_by_strides(&d->a, 2, a_size, type, a_stride) != dnnl_success ||
        dnnl_memory_desc_init_by_strides(&d->b, 2, b_size, type, b_stride) != dnnl_success ||
        dnnl_memory_desc_init_by_strides(&d->c, 2, c_size, type, c_stride) != dnnl_success ||
        dnnl_memory_desc_init_by_strides(&d->bias, 2, bias_size, type, bias_stride) != dnnl_success ||
        dnnl_matmul_desc_init(&matmul, &d->a, &d->b, bias ? &d->bias : NULL, &d->c) != dnnl_success ||
        dnnl_primitive_attr_create(&d->attr) != dnnl_success ||
        dnnl_primitive_attr_set_scratchpad_mode(d->attr, dnnl_scratchpad_mode_user) != dnnl_success)
        return false;
    if (accumulate &&
        (dnnl_post_ops_create(&d->post) != dnnl_success || dnnl_post_ops_append_sum(d->post, 1.0f) != dnnl_success ||
         dnnl_primitive_attr_set_post_ops(d->attr, d->post) != dnnl_success))
        return false;
    return dnnl_primitive_desc_create(&d->primitive, &matmul, d->attr, cache->engine, NULL) == dnnl_success;
}

static bool primitive_make(tl_engine *engine, tile_primitive *tile) {
    const product_cache *cache = engine->product_cache;
    const tl_allocator *from = engine->allocator;
    size_t bytes = (size_t)engine->threads * ARGUMENT_COUNT * sizeof *tile->memory;
    descriptions d = {.attr = NULL};
    bool ok = describe(cache, &tile->key, &d);
    const dnnl_memory_desc_t *scratch =
        ok ? dnnl_primitive_desc_query_md(d.primitive, dnnl_query_scratchpad_md, 0) : NULL;
    ok = scratch && (int64_t)dnnl_memory_desc_get_size(scratch) <= engine->scratch_bytes &&
         dnnl_primitive_create(&tile->primitive, d.primitive) == dnnl_success;
    if (ok) {
        tile->memory = from->alloc(from->self, bytes, 64, TL_ALLOC_HOST);
        ok = tile->memory != NULL;
    }
    if (ok) {
        const dnnl_memory_desc_t *each[ARGUMENT_COUNT] = {&d.a, &d.b, &d.c, &d.bias, scratch};
        memset(tile->memory, 0, bytes);
        for (int t = 0; ok && t < engine->threads; t++)
            for (int i = 0; ok && i < ARGUMENT_COUNT; i++) {
                void *handle = i == ARGUMENT_SCRATCH ? tl_engine_scratch(engine, t) : DNNL_MEMORY_NONE;
                ok = dnnl_memory_create(&tile->memory[t * ARGUMENT_COUNT + i], each[i], cache->engine, handle) ==
                     dnnl_success;
            }
    }
    if (d.primitive)
        dnnl_primitive_desc_destroy(d.primitive);
    if (d.post)
        dnnl_post_ops_destroy(d.post);
    if (d.attr)
        dnnl_primitive_attr_destroy(d.attr);
    if (!ok)
        primitive_free(engine, tile);
    return ok;
}

static uint64_t key_hash(const tile_key *key) {
    const int64_t word[] = {key->m,     key->n,     key->k,     key->a_row, key->a_col,
                            key->b_row, key->b_col, key->c_row, key->flags};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        hash = (hash ^ (uint64_t)word[i]) * UINT64_C(0x9E3779B97F4A7C15), hash ^= hash >> 29;
    return hash;
}

/* The rows that experts get differ every step, so that a long run has shapes without end. A full table starts anew before a
 * product looks its tiles up: were it to stay full, whether oneDNN takes a product, and with it the bits, would depend on all
 * products before. */
static void make_room(tl_engine *engine, int64_t tiles) {
    const product_cache *cache = engine->product_cache;
    if (cache->count + tiles > MAX_SLOTS * 3 / 4)
        cache_empty(engine);
}

/* Called by the product's caller alone, before tiles run: no lock. NULL when memory is short. */
static const tile_primitive *primitive_find(tl_engine *engine, const tile_key *key) {
    product_cache *cache = engine->product_cache;
    const tl_allocator *from = engine->allocator;
    uint64_t at = key_hash(key) & (MAX_SLOTS - 1);
    for (; cache->slot[at]; at = (at + 1) & (MAX_SLOTS - 1))
        if (memcmp(&cache->slot[at]->key, key, sizeof *key) == 0)
            return cache->slot[at];
    tile_primitive *tile = from->alloc(from->self, sizeof *tile, 64, TL_ALLOC_HOST);
    if (!tile)
        return NULL;
    *tile = (tile_primitive){.key = *key};
    tile->usable = primitive_make(engine, tile);
    cache->slot[at] = tile;
    cache->count++;
    return tile;
}

/* ---- a product ---- */

typedef struct dnnl_task {
    const tl_product *product;
    int64_t tile_m, tile_n, rows, columns, tiles, per_task;
    const tile_primitive *primitive[2][2]; /* [last row of tiles][last column] */
    bool failed;
} dnnl_task;

static void run_tile(dnnl_task *t, int64_t at, int thread) {
    const tl_product *p = t->product;
    product_cache *cache = p->engine->product_cache;
    int64_t bytes = p->dtype == TL_F32 ? 4 : 2, rest = at / (t->rows * t->columns),
            within = at % (t->rows * t->columns);
    const char *a = p->a, *b = p->b;
    char *c = p->c;
    for (int d = p->n_batch - 1; d >= 0; d--) {
        int64_t index = rest % p->batch[d];
        rest /= p->batch[d];
        a += index * p->a_batch[d] * bytes;
        b += index * p->b_batch[d] * bytes;
        c += index * p->c_batch[d] * bytes;
    }
    int64_t row = within / t->columns, column = within % t->columns;
    int64_t i = row * t->tile_m, j = column * t->tile_n;
    const tile_primitive *tile = t->primitive[row == t->rows - 1][column == t->columns - 1];
    dnnl_memory_t *memory = tile->memory + thread * ARGUMENT_COUNT;
    dnnl_exec_arg_t argument[ARGUMENT_COUNT] = {{DNNL_ARG_SRC, memory[ARGUMENT_A]},
                                                {DNNL_ARG_WEIGHTS, memory[ARGUMENT_B]},
                                                {DNNL_ARG_DST, memory[ARGUMENT_C]},
                                                {DNNL_ARG_SCRATCHPAD, memory[ARGUMENT_SCRATCH]},
                                                {DNNL_ARG_BIAS, memory[ARGUMENT_BIAS]}};
    dnnl_memory_set_data_handle(memory[ARGUMENT_A], (char *)(uintptr_t)a + i * p->a_row * bytes);
    dnnl_memory_set_data_handle(memory[ARGUMENT_B], (char *)(uintptr_t)b + j * p->b_col * bytes);
    dnnl_memory_set_data_handle(memory[ARGUMENT_C], c + (i * p->c_row + j) * bytes);
    if (p->bias)
        dnnl_memory_set_data_handle(memory[ARGUMENT_BIAS], (char *)(uintptr_t)p->bias + j * bytes);
    if (dnnl_primitive_execute(tile->primitive, cache->stream[thread], p->bias ? 5 : 4, argument) != dnnl_success)
        __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
}

static void run_tiles(void *argument, int64_t task, int thread) {
    dnnl_task *t = argument;
    int64_t end = (task + 1) * t->per_task < t->tiles ? (task + 1) * t->per_task : t->tiles;
    for (int64_t at = task * t->per_task; at < end; at++)
        run_tile(t, at, thread);
}

static int64_t blocks(int64_t n, int64_t block) { return n / block + (n % block != 0); }

/* n cut evenly in pieces of at most `limit`, each a multiple of `unit` but the last. */
static int64_t even_piece(int64_t n, int64_t limit, int64_t unit) {
    int64_t pieces = blocks(n, limit);
    return blocks(blocks(n, pieces), unit) * unit;
}

/* Tile sizes by shape alone. Measured on the products of transformers of width 128 … 768 (bench/bench_kernel.c): near
 * 128 × 256 every shape runs at 90 % of peak or more, and tiles whose C outgrows the second-level cache fall to 60 %; a
 * long k against a transposed B likes taller tiles. A product of few tiles is cut finer, so that threads have work. */
static void tile_choose(const tl_product *p, int64_t *tile_m, int64_t *tile_n) {
    bool tall = p->b_col != 1 && p->k >= 512;
    int64_t limit_m = tall ? 256 : 128, limit_n = tall ? 128 : 256, batches = 1;
    for (int d = 0; d < p->n_batch; d++)
        batches *= p->batch[d];
    for (;;) {
        *tile_m = even_piece(p->m, limit_m, 16);
        *tile_n = even_piece(p->n, limit_n, 64);
        int64_t tiles = blocks(p->m, *tile_m) * blocks(p->n, *tile_n);
        if (tiles >= 8 || batches >= 8 || tiles * batches >= 8 || *tile_m * *tile_n * p->k < 4 * TASK_TERMS)
            return;
        if (limit_n > 64 && *tile_n >= *tile_m)
            limit_n = limit_n / 2;
        else if (limit_m > 32)
            limit_m = limit_m / 2;
        else
            return;
    }
}

/* A matrix's strides as oneDNN takes them; false when rows overlap, run backwards or neither stride is 1. */
static bool plain_strides(int64_t rows, int64_t columns, int64_t *row, int64_t *column) {
    if (columns == 1 && *row != 1)
        *column = 1;
    if (rows == 1 && *column != 1)
        *row = 1;
    if (*column == 1) {
        if (rows == 1 || (columns == 1 && *row < 1))
            *row = rows == 1 ? columns : *row;
        return *row >= columns;
    }
    if (*row == 1) {
        if (columns == 1)
            *column = rows;
        return *column >= rows;
    }
    return false;
}

static bool product_run(const tl_product *product) {
    tl_product p = *product;
    if (!p.engine || !p.engine->product_cache || p.k == 0 || p.m == 0 || p.n == 0)
        return false;
    if ((p.bias && p.bias_stride != 1 && p.n > 1) || (p.c_row < p.n && p.m > 1))
        return false;
    if (p.m == 1)
        p.c_row = p.n;
    if (!plain_strides(p.m, p.k, &p.a_row, &p.a_col) || !plain_strides(p.k, p.n, &p.b_row, &p.b_col))
        return false;
    dnnl_task t = {.product = &p};
    one_thread();
    tile_choose(&p, &t.tile_m, &t.tile_n);
    t.rows = blocks(p.m, t.tile_m);
    t.columns = blocks(p.n, t.tile_n);
    make_room(p.engine, 4);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            int64_t m = i ? p.m - (t.rows - 1) * t.tile_m : t.tile_m,
                    n = j ? p.n - (t.columns - 1) * t.tile_n : t.tile_n;
            if ((!i && t.rows == 1) || (!j && t.columns == 1))
                continue;
            tile_key key = {m, n, p.k, p.a_row, p.a_col, p.b_row, p.b_col, p.c_row, 0};
            key.flags = (int64_t)p.dtype | (p.accumulate ? 0x100 : 0) | (p.bias ? 0x200 : 0);
            t.primitive[i][j] = primitive_find(p.engine, &key);
            if (!t.primitive[i][j] || !t.primitive[i][j]->usable)
                return false;
        }
    t.tiles = t.rows * t.columns;
    for (int d = 0; d < p.n_batch; d++)
        t.tiles *= p.batch[d];
    int64_t terms = t.tile_m * t.tile_n * p.k;
    t.per_task = terms >= TASK_TERMS ? 1 : TASK_TERMS / terms;
    tl_engine_run(p.engine, blocks(t.tiles, t.per_task), run_tiles, &t);
    if (t.failed && p.accumulate) { /* cannot be run again: part of it is added already */
        if (product->failed)
            *product->failed = true;
        return true;
    }
    return !t.failed;
}

static bool is_small(const tl_product *p) {
    return p->m < 8 || p->n < 8 || (p->m < 4096 && p->n < 4096 && p->k < 4096 && p->m * p->n * p->k < SMALL_TERMS);
}

void tl_product_dnnl_avx2(const tl_product *product) {
    if (product->m < 8 && tl_product_thin_avx2(product))
        return;
    if (product->dtype != TL_F32 || is_small(product) || !product_run(product))
        tl_product_reference_avx2(product);
}

void tl_product_dnnl_avx512(const tl_product *product) {
    if (product->m < 8 && tl_product_thin_avx512(product))
        return;
    bool takes = product->dtype == TL_F32 || product->dtype == TL_BF16;
    if (!takes || is_small(product) || !product_run(product))
        tl_product_reference_avx512(product);
}

#endif
