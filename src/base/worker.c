/* base/worker.c: a bounded queue of items made ahead. One mutex guards everything but the making itself. */
#include "base/worker.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

typedef struct item {
    bool ready;
    tl_error error; /* why it could not be made */
} item;

struct tl_worker {
    tl_allocator allocator;
    size_t bytes;
    tl_worker_make *make;
    void *self;
    pthread_mutex_t mutex;
    pthread_cond_t made, room;
    uint64_t claimed;  /* the next item that a thread begins */
    uint64_t taken;    /* the next item for the caller */
    uint64_t returned; /* items below this have been given back */
    bool stop;
    int slots, threads, started;
    pthread_t *handle;
    item *items; /* by slot */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *worker_main(void *arg) {
    tl_worker *w = arg;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->stop && w->claimed - w->returned >= (uint64_t)w->slots)
            pthread_cond_wait(&w->room, &w->mutex);
        if (w->stop)
            break;
        const uint64_t number = w->claimed++;
        const int slot = (int)(number % (uint64_t)w->slots);
        item *it = &w->items[slot];
        pthread_mutex_unlock(&w->mutex);
        it->error = (tl_error){TL_OK, ""};
        const tl_status status = w->make(w->self, number, slot, &it->error);
        if (status != TL_OK) /* records a message where the maker left none */
            tl_fail(&it->error, status, "item %llu could not be made", (unsigned long long)number);
        pthread_mutex_lock(&w->mutex);
        it->ready = true;
        pthread_cond_signal(&w->made);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Signals are the caller's business: these threads take none. */
static int start_threads(tl_worker *w) {
    sigset_t all, before;
    sigfillset(&all);
    int code = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (code)
        return code;
    while (code == 0 && w->started < w->threads) {
        code = pthread_create(&w->handle[w->started], NULL, worker_main, w);
        w->started += code == 0;
    }
    const int restored = pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code ? code : restored;
}

static void let_go(tl_worker *w) {
    const tl_allocator allocator = w->allocator;
    allocator.release(allocator.self, w, w->bytes, TL_ALLOC_HOST);
}

tl_status tl_worker_open(const tl_allocator *allocator, int threads, int slots, uint64_t first, tl_worker_make *make,
                         void *self, tl_worker **worker, tl_error *error) {
    *worker = NULL;
    if (threads < 0 || threads > TL_WORKER_MAX_THREADS)
        return tl_fail(error, TL_ERR_ARGUMENT, "%d reading threads: 0 to %d would work", threads,
                       TL_WORKER_MAX_THREADS);
    if (slots < 1 || slots > TL_WORKER_MAX_SLOTS)
        return tl_fail(error, TL_ERR_ARGUMENT, "%d batches held ready: 1 to %d would work", slots, TL_WORKER_MAX_SLOTS);
    const tl_allocator *from = allocator ? allocator : tl_allocator_default();
    const size_t handles = sizeof(tl_worker), items = handles + (size_t)threads * sizeof(pthread_t);
    const size_t aligned = (items + 15) & ~(size_t)15, bytes = aligned + (size_t)slots * sizeof(item);
    tl_worker *w = from->alloc(from->self, bytes, 16, TL_ALLOC_HOST);
    if (!w)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for %d batches held ready", slots);
    memset(w, 0, bytes);
    w->allocator = *from;
    w->bytes = bytes;
    w->make = make;
    w->self = self;
    w->slots = slots;
    w->threads = threads;
    w->claimed = w->taken = w->returned = first;
    w->handle = (pthread_t *)(void *)((char *)w + handles);
    w->items = (item *)(void *)((char *)w + aligned);
    int code = pthread_mutex_init(&w->mutex, NULL);
    if (code) {
        let_go(w);
        return tl_fail(error, TL_ERR_IO, "a reader of %d threads: %s", threads, strerror(code));
    }
    code = pthread_cond_init(&w->made, NULL);
    if (code == 0 && (code = pthread_cond_init(&w->room, NULL)) != 0)
        pthread_cond_destroy(&w->made);
    if (code) {
        pthread_mutex_destroy(&w->mutex);
        let_go(w);
        return tl_fail(error, TL_ERR_IO, "a reader of %d threads: %s", threads, strerror(code));
    }
    code = start_threads(w);
    if (code) {
        const int started = w->started;
        tl_worker_close(w);
        return tl_fail(error, TL_ERR_IO, "the system started %d of %d reading threads, then refused (%s)", started,
                       threads, strerror(code));
    }
    *worker = w;
    return TL_OK;
}

void tl_worker_close(tl_worker *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_broadcast(&w->room);
    pthread_mutex_unlock(&w->mutex);
    for (int i = 0; i < w->started; i++)
        pthread_join(w->handle[i], NULL);
    pthread_cond_destroy(&w->made);
    pthread_cond_destroy(&w->room);
    pthread_mutex_destroy(&w->mutex);
    let_go(w);
}

static tl_status make_now(tl_worker *w, int slot, tl_error *error) {
    tl_error why = {TL_OK, ""};
    const tl_status status = w->make(w->self, w->taken, slot, &why);
    if (status != TL_OK)
        return tl_fail(error, status, "%s", why.message);
    w->taken++;
    return TL_OK;
}

tl_status tl_worker_take(tl_worker *w, int *slot, double *waited, tl_error *error) {
    const double begin = now();
    *slot = (int)(w->taken % (uint64_t)w->slots);
    if (w->threads == 0) {
        const tl_status status = make_now(w, *slot, error);
        *waited = now() - begin;
        return status;
    }
    item *it = &w->items[*slot];
    pthread_mutex_lock(&w->mutex);
    while (!it->ready)
        pthread_cond_wait(&w->made, &w->mutex);
    const bool failed = it->error.status != TL_OK;
    if (!failed) { /* a failed item stays: asking again gives the same answer */
        it->ready = false;
        w->taken++;
    }
    pthread_mutex_unlock(&w->mutex);
    *waited = now() - begin;
    return failed ? tl_fail(error, it->error.status, "%s", it->error.message) : TL_OK;
}

void tl_worker_give(tl_worker *w) {
    pthread_mutex_lock(&w->mutex);
    w->returned = w->taken;
    pthread_cond_broadcast(&w->room);
    pthread_mutex_unlock(&w->mutex);
}
