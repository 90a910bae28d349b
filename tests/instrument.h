/* tests/instrument.h: the second instrument. It measures what a run holds and computes and knows nothing of the ledger:
 * bytes and calls from a wrapper around the injected allocator, categories by asking public getters which tensor a block
 * belongs to, matmul FLOPs from the m, n, k that reach the product kernel, and allocations past the allocator from
 * interposed malloc (interpose.h).
 */
#ifndef TALLY_TESTS_INSTRUMENT_H
#define TALLY_TESTS_INSTRUMENT_H

#include "interpose.h"
#include "kernel/table.h"
#include "tally/train.h"

typedef struct measured {
    int64_t peak; /* largest sum of live storage bytes, at its first strict maximum */
    /* The live blocks at that moment, asked at the first release after it. rest: neither a parameter, gradient, optimizer
     * state, master copy nor batch, so saved or work. */
    int64_t param, grad, optim, master, data, rest;
    int64_t allocations; /* storage calls */
    tl_u128 matmul;      /* 2·m·n·k·batch of every product */
    int64_t products;
    int64_t host_calls;   /* bookkeeping through the allocator */
    interposed uncounted; /* allocations of the process that came by no injected allocator */
} measured;

typedef struct instrument instrument;

/* `base` NULL: malloc. */
instrument *instrument_new(const tl_allocator *base);
/* Fails the test (returns the number of blocks) if anything is still live: call it after the context is gone. */
int64_t instrument_free(instrument *i);
tl_allocator instrument_allocator(instrument *i);
/* A copy of `real` whose product counts. One instrument at a time counts: the last one asked. */
const tl_kernels *instrument_kernels(instrument *i, const tl_kernels *real);

/* Whose tensors to ask for at the peak; either may be NULL or empty. The list must outlive the steps. */
void instrument_watch(instrument *i, const tl_parameter *list, int count, const tl_optimizer *optimizer);
/* The trainer's extra tensors are optimizer state too. */
void instrument_watch_extra(instrument *i, const tl_trainer *trainer);
/* The block of this tensor is a batch, as long as it lives. */
void instrument_is_data(instrument *i, const tl_tensor *t);

/* Starts a measurement: peak from what lives now, counts from zero. */
void instrument_begin(instrument *i);
measured instrument_end(instrument *i);

int64_t instrument_live_bytes(const instrument *i);
int64_t instrument_live_blocks(const instrument *i); /* of storages */
int64_t instrument_host_blocks(const instrument *i);
/* The call after `calls` more returns NULL, once; −1: none. Both kinds count. */
void instrument_fail_after(instrument *i, int64_t calls);
bool instrument_has_failed(const instrument *i); /* the failing call was reached */

/* A tl_batch_source: random tokens (some targets ignored), or random vectors for the cruncher. */
typedef struct random_batch {
    instrument *instrument; /* may be NULL */
    const tl_model *model;
    uint64_t seed; /* changes with every batch */
} random_batch;
tl_batch_source random_batch_source;

#endif
