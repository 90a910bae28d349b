/* base/worker.h: items made ahead of their use by threads of their own, handed out in order.
 *
 * Item i is made into slot i % slots, by whichever thread is free: what it is may depend on i alone, and then the order is
 * the same for any number of threads, also after starting in the middle. At most `slots` items are made and not yet given
 * back, so memory is bounded. One caller takes and gives back.
 */
#ifndef TL_BASE_WORKER_H
#define TL_BASE_WORKER_H

#include "tally/base.h"

typedef struct tl_worker tl_worker;

enum { TL_WORKER_MAX_THREADS = 64, TL_WORKER_MAX_SLOTS = 1024 };

/* Makes item `item` into slot `slot`; runs on any thread, at most once at a time for a slot. */
typedef tl_status tl_worker_make(void *self, uint64_t item, int slot, tl_error *error);

/* Starts making items `first`, first + 1, … at once. threads 0: each item is made when it is taken, by the caller.
 * allocator NULL: malloc. */
tl_status tl_worker_open(const tl_allocator *allocator, int threads, int slots, uint64_t first, tl_worker_make *make,
                         void *self, tl_worker **worker, tl_error *error) TL_MUST_CHECK;
/* Ends the threads; an item being made is finished first. NULL is fine. */
void tl_worker_close(tl_worker *worker);

/* Waits for the next item; *slot holds it until tl_worker_give. An item that could not be made is an error here, when its
 * turn has come; all before it are handed out. *waited: seconds the caller spent waiting (or making it itself). */
tl_status tl_worker_take(tl_worker *worker, int *slot, double *waited, tl_error *error) TL_MUST_CHECK;
/* The item taken last is done with: its slot is free for a later one. */
void tl_worker_give(tl_worker *worker);

#endif
