#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { CACHE_LINE = 64, SPIN_NANOSECONDS = 50000, CROWDED_SPIN_NANOSECONDS = 1000, PAUSES_BETWEEN_CLOCKS = 32 };

typedef struct worker {
    tl_pool *pool;
    pthread_t handle;
    int thread;
} worker;

/* How a job is handed over: the caller writes the job, opens the door, counts `generation` up. A worker that sees a
 * new generation says so in `inside`, then looks whether the door is open; the caller shuts the door, then waits until
 * nobody is inside. Both orders are sequentially consistent, so either the worker sees the shut door or the caller sees
 * the worker. A worker that comes too late does no harm and is not waited for. */
struct tl_pool {
    /* Written by the caller while the door is shut and nobody is inside. */
    tl_pool_task run;
    void *arg;
    int64_t tasks;
    void (*worker_start)(void); /* written while no worker is awaited; read by one that sees a new start_count */

    _Alignas(CACHE_LINE) atomic_llong next;
    _Alignas(CACHE_LINE) atomic_uint generation;
    atomic_bool open;
    atomic_bool stop;
    atomic_uint start_count; /* how often workers were asked to run worker_start; the first, without one, to exist */
    _Alignas(CACHE_LINE) atomic_int inside;
    atomic_int sleepers;
    atomic_bool caller_waits;
    atomic_bool busy; /* a job runs: catches misuse */

    _Alignas(CACHE_LINE) pthread_mutex_t mutex;
    pthread_cond_t work, done;
    int awaited; /* workers that have not run worker_start yet; under the mutex */
    const tl_allocator *allocator;
    int64_t spin_nanoseconds;
    int threads;
    int started; /* workers that exist */
    size_t bytes;
    worker workers[]; /* threads - 1 */
};

static inline void pause_processor(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static int64_t clock_nanoseconds(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now))
        return INT64_MAX; /* no clock: do not spin */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    return CPU_COUNT(&set);
}

static bool has_news(tl_pool *pool, unsigned seen) {
    return atomic_load(&pool->generation) != seen || atomic_load(&pool->stop);
}

/* Waits for a generation other than `seen`, first spinning, then asleep. */
static void wait_for_news(tl_pool *pool, unsigned seen) {
    const int64_t begin = clock_nanoseconds();
    do {
        for (int i = 0; i < PAUSES_BETWEEN_CLOCKS; i++) {
            if (has_news(pool, seen))
                return;
            pause_processor();
        }
    } while (clock_nanoseconds() - begin < pool->spin_nanoseconds);
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1); /* before looking again, so that the caller sees a sleeper or we the news */
    while (!has_news(pool, seen))
        pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void claim_tasks(tl_pool *pool, int thread) {
    for (;;) {
        const int64_t task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (task >= pool->tasks)
            return;
        pool->run(pool->arg, task, thread);
    }
}

static void leave(tl_pool *pool) {
    if (atomic_fetch_sub(&pool->inside, 1) == 1 && atomic_load(&pool->caller_waits)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static void start_worker(tl_pool *pool) {
    if (pool->worker_start)
        pool->worker_start();
    pthread_mutex_lock(&pool->mutex);
    if (--pool->awaited == 0)
        pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *arg) {
    worker *self = arg;
    tl_pool *pool = self->pool;
    unsigned seen = 0, started = 0;
    for (;;) {
        const unsigned start_count = atomic_load(&pool->start_count);
        if (started != start_count) {
            started = start_count;
            start_worker(pool);
        }
        wait_for_news(pool, seen);
        if (atomic_load(&pool->stop))
            return NULL;
        seen = atomic_load(&pool->generation);
        atomic_fetch_add(&pool->inside, 1);
        if (atomic_load(&pool->open))
            claim_tasks(pool, self->thread);
        leave(pool);
    }
}

static void wake_workers(tl_pool *pool) {
    if (!atomic_load(&pool->sleepers))
        return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

static void wait_until_empty(tl_pool *pool) {
    const int64_t begin = clock_nanoseconds();
    do {
        for (int i = 0; i < PAUSES_BETWEEN_CLOCKS; i++) {
            if (!atomic_load(&pool->inside))
                return;
            pause_processor();
        }
    } while (clock_nanoseconds() - begin < pool->spin_nanoseconds);
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_waits, true);
    while (atomic_load(&pool->inside))
        pthread_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->caller_waits, false);
    pthread_mutex_unlock(&pool->mutex);
}

void tl_pool_run(tl_pool *pool, int64_t tasks, tl_pool_task run, void *arg) {
    if (!pool || pool->threads == 1 || tasks <= 1) {
        for (int64_t task = 0; task < tasks; task++)
            run(arg, task, 0);
        return;
    }
    const bool busy = atomic_exchange(&pool->busy, true);
    assert(!busy && "tl_pool_run from inside a task or from two threads");
    (void)busy;
    pool->run = run;
    pool->arg = arg;
    pool->tasks = tasks;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store(&pool->open, true);
    atomic_fetch_add(&pool->generation, 1);
    wake_workers(pool);
    claim_tasks(pool, 0);
    atomic_store(&pool->open, false);
    wait_until_empty(pool);
    atomic_store(&pool->busy, false);
}

/* What a thread allocates once, when it begins, is allocated before this returns and not in the middle of some later job. */
static void await_workers(tl_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    while (pool->awaited > 0)
        pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

void tl_pool_on_start(tl_pool *pool, void (*worker_start)(void)) {
    worker_start();
    if (!pool || pool->threads == 1)
        return;
    pool->worker_start = worker_start;
    pthread_mutex_lock(&pool->mutex);
    pool->awaited = pool->threads - 1;
    pthread_mutex_unlock(&pool->mutex);
    atomic_fetch_add(&pool->start_count, 1);
    atomic_fetch_add(&pool->generation, 1); /* a job of no tasks: the door is shut */
    wake_workers(pool);
    await_workers(pool);
}

int tl_pool_threads(const tl_pool *pool) { return pool ? pool->threads : 1; }

/* Signals are the caller's business: workers take none. */
static int start_workers(tl_pool *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pool->awaited = pool->threads - 1;
    atomic_store(&pool->start_count, 1);
    int code = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (code)
        return code;
    while (code == 0 && pool->started < pool->threads - 1) {
        worker *w = &pool->workers[pool->started];
        *w = (worker){.pool = pool, .thread = pool->started + 1};
        code = pthread_create(&w->handle, NULL, worker_main, w);
        pool->started += code == 0;
    }
    const int restored = pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code ? code : restored;
}

tl_status tl_pool_open(const tl_allocator *allocator, int threads, tl_pool **pool, tl_error *error) {
    *pool = NULL;
    if (threads < 1 || threads > TL_POOL_MAX_THREADS)
        return tl_fail(error, TL_ERR_ARGUMENT, "%d threads: between 1 and %d would work", threads, TL_POOL_MAX_THREADS);
    if (!allocator)
        allocator = tl_allocator_default();
    const size_t bytes = sizeof(tl_pool) + (size_t)(threads - 1) * sizeof(worker);
    tl_pool *p = allocator->alloc(allocator->self, bytes, CACHE_LINE, TL_ALLOC_HOST);
    if (!p)
        return tl_fail(error, TL_ERR_MEMORY, "a pool of %d threads: the allocator failed on %zu bytes", threads, bytes);
    memset(p, 0, bytes);
    p->allocator = allocator;
    p->bytes = bytes;
    p->threads = threads;
    p->spin_nanoseconds = threads > processors() ? CROWDED_SPIN_NANOSECONDS : SPIN_NANOSECONDS;
    int code = pthread_mutex_init(&p->mutex, NULL);
    const bool mutex = code == 0;
    const bool work = mutex && (code = pthread_cond_init(&p->work, NULL)) == 0;
    const bool done = work && (code = pthread_cond_init(&p->done, NULL)) == 0;
    if (done) {
        code = start_workers(p);
        if (code == 0) {
            await_workers(p);
            *pool = p;
            return TL_OK;
        }
        const int started = p->started;
        tl_pool_close(p);
        return tl_fail(error, TL_ERR_IO, "the system started %d of %d threads, then refused (%s); ask for fewer",
                       started + 1, threads, strerror(code));
    }
    if (work)
        pthread_cond_destroy(&p->work);
    if (mutex)
        pthread_mutex_destroy(&p->mutex);
    allocator->release(allocator->self, p, bytes, TL_ALLOC_HOST);
    return tl_fail(error, TL_ERR_IO, "a pool of %d threads: %s", threads, strerror(code));
}

void tl_pool_close(tl_pool *pool) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].handle, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    pool->allocator->release(pool->allocator->self, pool, pool->bytes, TL_ALLOC_HOST);
}
