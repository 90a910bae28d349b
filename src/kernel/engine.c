/* kernel/engine.c: see engine.h. */
#include "kernel/engine.h"

#include "base/pool.h"

tl_status tl_engine_create(const tl_allocator *allocator, int threads, void *scratch, int64_t scratch_bytes,
                           void (*worker_start)(void), tl_engine **engine, tl_error *error) {
    *engine = NULL;
    if (threads < 1 || scratch_bytes < 0 || (scratch == NULL && scratch_bytes > 0))
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "an engine of %d threads with %lld scratch bytes each: needs at least 1 thread and its scratch",
                       threads, (long long)scratch_bytes);
    const tl_allocator *from = allocator ? allocator : tl_allocator_default();
    tl_engine *e = from->alloc(from->self, sizeof *e, 64, TL_ALLOC_HOST);
    if (!e)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for an engine (%zu bytes)", sizeof *e);
    *e = (tl_engine){.allocator = from, .threads = threads, .scratch = scratch, .scratch_bytes = scratch_bytes};
    tl_status status = tl_pool_open(from, threads, &e->pool, error);
    if (status != TL_OK) {
        from->release(from->self, e, sizeof *e, TL_ALLOC_HOST);
        return status;
    }
    if (worker_start)
        tl_pool_on_start(e->pool, worker_start);
    *engine = e;
    return TL_OK;
}

tl_status tl_engine_open_plain(const tl_allocator *allocator, int threads, void *scratch, int64_t scratch_bytes,
                               tl_engine **engine, tl_error *error) {
    return tl_engine_create(allocator, threads, scratch, scratch_bytes, NULL, engine, error);
}

void tl_engine_close(tl_engine *engine) {
    if (!engine)
        return;
    if (engine->product_cache_close)
        engine->product_cache_close(engine);
    tl_pool_close(engine->pool);
    engine->allocator->release(engine->allocator->self, engine, sizeof *engine, TL_ALLOC_HOST);
}

void tl_engine_run(tl_engine *engine, int64_t n_tasks, tl_engine_task *task, void *argument) {
    if (engine && engine->threads > 1 && n_tasks > 1) {
        tl_pool_run(engine->pool, n_tasks, task, argument);
        return;
    }
    for (int64_t i = 0; i < n_tasks; i++)
        task(argument, i, 0);
}

void *tl_engine_scratch(tl_engine *engine, int thread) {
    return engine && engine->scratch ? engine->scratch + thread * engine->scratch_bytes : NULL;
}
