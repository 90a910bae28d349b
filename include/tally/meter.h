/* tally/meter.h: the second instrument. It measures a run from outside and knows nothing of the ledger: bytes are counted
 * where they are allocated and freed, matmul FLOPs from the m, n and k that reach the product. What a plan said is laid
 * beside this.
 *
 * One meter serves one context: give the context both its allocator and its kernels.
 */
#ifndef TALLY_METER_H
#define TALLY_METER_H

#include "tally/cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_meter tl_meter;

/* Counts what passes between a context and `base` (NULL: malloc) and `kernels`. NULL with *error filled. */
tl_meter *tl_meter_new(const tl_kernels *kernels, const tl_allocator *base, tl_error *error);
void tl_meter_free(tl_meter *meter); /* after the context */
const tl_kernels *tl_meter_kernels(const tl_meter *meter);
tl_allocator tl_meter_allocator(tl_meter *meter);

typedef struct tl_reading {
    int64_t live_bytes;  /* of storages, now */
    int64_t peak_bytes;  /* the largest since tl_meter_step_begin */
    int64_t allocations; /* storages since then */
    tl_u128 flops;       /* of matrix products since then: 2·m·n·k a product (a multiply-add is 2) */
    int64_t products;
} tl_reading;
void tl_meter_step_begin(tl_meter *meter);
void tl_meter_read(const tl_meter *meter, tl_reading *reading);
/* Bytes of the live storage that starts at `data`; 0 where there is none. */
int64_t tl_meter_block_bytes(const tl_meter *meter, const void *data);
/* Calls `moment` after each new peak, before anything else is allocated or freed: what lives then can be told apart by
 * public pointers. It must not allocate from the context. NULL: no calls. */
void tl_meter_on_peak(tl_meter *meter, void (*moment)(void *user), void *user);

#ifdef __cplusplus
}
#endif
#endif
