/* base/pool.h: our own pool of threads.
 *
 * One caller at a time runs a job of n tasks; the calling thread is thread 0 and works too. Tasks are claimed one by
 * one, so which thread runs which is chance: a task's result must depend on its index alone (`thread` is for scratch
 * memory). Workers spin for about 50 us before they sleep, since a training step is hundreds of small jobs; with more
 * threads than processors they spin far less, to leave the processor to whoever has the work.
 */
#ifndef TL_BASE_POOL_H
#define TL_BASE_POOL_H

#include "tally/base.h"

typedef struct tl_pool tl_pool;
typedef void (*tl_pool_task)(void *arg, int64_t task, int thread);

enum { TL_POOL_MAX_THREADS = 1024 };

/* `threads` >= 1 counts the caller; 1 creates no thread. `allocator` NULL means the default one; it is used only here
 * and in tl_pool_close. Returns when every worker runs: what the system allocates for a thread is not left for later. */
tl_status tl_pool_open(const tl_allocator *allocator, int threads, tl_pool **pool, tl_error *error) TL_MUST_CHECK;
/* Ends the workers. NULL is fine. No job may be running. */
void tl_pool_close(tl_pool *pool);
int tl_pool_threads(const tl_pool *pool);

/* Runs `worker_start` once on the calling thread and once on each worker, and returns when all have: e.g. to keep a
 * library from starting threads of its own. No job may be running. */
void tl_pool_on_start(tl_pool *pool, void (*worker_start)(void));

/* Runs task 0 .. tasks-1 and returns when all are done; everything they wrote is visible to the caller. Not to be
 * called from inside a task, nor by two threads at once. `pool` NULL runs all tasks on the caller. */
void tl_pool_run(tl_pool *pool, int64_t tasks, tl_pool_task run, void *arg);

#endif
