/* kernel/engine.h: the threads, scratch blocks and cached products behind a tl_kernels table.
 *
 * Only this directory includes it. `tl_engine_run` is the one way a kernel uses threads: tasks are numbered by the shape
 * of the work, so which thread runs a task never shows in a result.
 */
#ifndef TALLY_KERNEL_ENGINE_H
#define TALLY_KERNEL_ENGINE_H

#include "kernel/table.h"

/* Elements of one task of an elementwise or row kernel; work below twice this stays on the calling thread (waking a
 * worker costs some microseconds, as much as 16K elements do). The tests compile a table with tiny tasks, so that their
 * small cases are cut too. */
#ifndef TL_TASK_ELEMENTS
#define TL_TASK_ELEMENTS 16384
#endif

struct tl_pool;

struct tl_engine {
    const tl_allocator *allocator;
    struct tl_pool *pool;
    int threads;
    char *scratch; /* threads × scratch_bytes */
    int64_t scratch_bytes;
    void *product_cache; /* of kernel/product_dnnl.c; NULL elsewhere */
    void (*product_cache_close)(tl_engine *engine);
};

typedef void tl_engine_task(void *argument, int64_t task, int thread);

/* Runs tasks 0 … n_tasks−1 and returns when all are done. `engine` may be NULL: then on the caller, in order. */
void tl_engine_run(tl_engine *engine, int64_t n_tasks, tl_engine_task *task, void *argument);

/* The fixed block of a thread (0 is the caller). */
void *tl_engine_scratch(tl_engine *engine, int thread);

/* `worker_start` runs once on each new worker before any task; may be NULL. */
tl_status tl_engine_create(const tl_allocator *allocator, int threads, void *scratch, int64_t scratch_bytes,
                           void (*worker_start)(void), tl_engine **engine, tl_error *error);
tl_status tl_engine_open_plain(const tl_allocator *allocator, int threads, void *scratch, int64_t scratch_bytes,
                               tl_engine **engine, tl_error *error);
void tl_engine_close(tl_engine *engine);

/* kernel/product_dnnl.c */
tl_status tl_engine_open_dnnl(const tl_allocator *allocator, int threads, void *scratch, int64_t scratch_bytes,
                              tl_engine **engine, tl_error *error);
void tl_product_dnnl_avx2(const tl_product *product);
void tl_product_dnnl_avx512(const tl_product *product);

/* body/product_reference.c, one per instruction set */
void tl_product_reference_portable(const tl_product *product);
void tl_product_reference_avx2(const tl_product *product);
void tl_product_reference_avx512(const tl_product *product);
void tl_product_reference_tiny(const tl_product *product);
void tl_product_reference_neon(const tl_product *product);

/* body/product_thin.c: a few rows times a matrix of contiguous columns; false: not one it does. */
bool tl_product_thin_portable(const tl_product *product);
bool tl_product_thin_avx2(const tl_product *product);
bool tl_product_thin_avx512(const tl_product *product);
bool tl_product_thin_tiny(const tl_product *product);
bool tl_product_thin_neon(const tl_product *product);

/* body/body_table.c, one per instruction set; the reference product and the plain engine are in each. */
extern const tl_kernels tl_kernels_table_portable;
extern const tl_kernels tl_kernels_table_avx2;
extern const tl_kernels tl_kernels_table_avx512;
extern const tl_kernels tl_kernels_table_tiny; /* in the tests alone: portable, with tasks of 16 elements */
extern const tl_kernels tl_kernels_table_neon; /* 64-bit ARM */

#endif
