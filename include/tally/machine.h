/* tally/machine.h: this machine as measured, for MFU and for the time of a plan with `-g here`. The struct is read by the
 * planner core; measuring and the cache file are outside it.
 */
#ifndef TALLY_MACHINE_H
#define TALLY_MACHINE_H

#include "tally/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_MACHINE_SHAPES 64

typedef struct tl_machine_shape {
    tl_dtype dtype;
    int64_t m, n, k;
    double flop_per_s; /* measured, all threads */
} tl_machine_shape;

typedef struct tl_machine {
    char cpu[96], kernels[16]; /* model name; kernel table measured */
    int threads;
    /* FLOP/s of a loop of multiply-adds in registers (bf16: of the processor's own bf16 instruction, where it has one), and
     * never less than the best product measured; all threads; 0: none */
    double peak_fp32, peak_bf16, peak_fp64;
    int n_levels;
    struct {
        char name[8];  /* "L1", "L2", "L3", "memory" */
        int64_t bytes; /* of the working set measured */
        double bytes_per_s;
    } level[4];
    int n_shapes;
    tl_machine_shape shape[TL_MACHINE_SHAPES];
    int64_t memory_bytes, available_bytes; /* of the whole machine; available when read */
    double
        disturbed; /* 0 to 1: what others took of the processors meanwhile; over 0.1, bandwidths and products are too low */
    int64_t measured_at; /* seconds since 1970 */
} tl_machine;

/* Peak of a dtype; 0: unknown. */
double tl_machine_peak(const tl_machine *machine, tl_dtype dtype);
/* FLOP/s to expect of a product, from the nearest measured shapes; 0: nothing measured. No libm. */
double tl_machine_product_rate(const tl_machine *machine, tl_dtype dtype, int64_t m, int64_t n, int64_t k);

/* ---- outside the planner core ---- */
/* Measures (a few seconds; `quick`: about one): peaks, bandwidth by level, products by shape. `threads` ≥ 1. */
tl_status tl_machine_measure(int threads, bool quick, tl_machine *machine, tl_error *error) TL_MUST_CHECK;
/* The cache: $XDG_CACHE_HOME/tally/machine.json, else ~/.cache/tally/machine.json. Valid only for the same cpu, threads,
 * kernels, build (with oneDNN or without) and version: TL_ERR_NOT_FOUND when there is none or it is another's. A file that is
 * no such cache is TL_ERR_FORMAT. Nothing of either is handed out. The memory is read anew. */
tl_status tl_machine_load(int threads, tl_machine *machine, tl_error *error) TL_MUST_CHECK;
tl_status tl_machine_save(const tl_machine *machine, tl_error *error) TL_MUST_CHECK;
/* Where the cache is or would be. TL_ERR_IO when the environment names no place for it. */
tl_status tl_machine_cache_path(char *path, size_t size, tl_error *error) TL_MUST_CHECK;
/* Memory of the whole machine and what is available now (/proc/meminfo, cgroup limits respected). */
tl_status tl_machine_memory(int64_t *total, int64_t *available, tl_error *error) TL_MUST_CHECK;
/* Threads worth having: cores this process may use, within a cgroup's quota. At least 1. */
int tl_machine_cores(void);

#ifdef __cplusplus
}
#endif
#endif
