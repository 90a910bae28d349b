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
    double peak_fp32, peak_bf16,
        peak_fp64; /* FLOP/s of a register-only FMA loop (bf16: the best product), all threads; 0: none */
    int n_levels;
    struct {
        char name[8];  /* "L1", "L2", "L3", "memory" */
        int64_t bytes; /* of the working set measured */
        double bytes_per_s;
    } level[4];
    int n_shapes;
    tl_machine_shape shape[TL_MACHINE_SHAPES];
    int64_t memory_bytes, available_bytes; /* of the whole machine; available when read */
    int64_t measured_at;                   /* seconds since 1970 */
} tl_machine;

/* Peak of a dtype; 0: unknown. */
double tl_machine_peak(const tl_machine *machine, tl_dtype dtype);
/* FLOP/s to expect of a product, from the nearest measured shapes; 0: nothing measured. No libm. */
double tl_machine_product_rate(const tl_machine *machine, tl_dtype dtype, int64_t m, int64_t n, int64_t k);

/* ---- outside the planner core ---- */
/* Measures (a few seconds; `quick`: about one): peaks, bandwidth by level, products by shape. */
tl_status tl_machine_measure(int threads, bool quick, tl_machine *machine, tl_error *error) TL_MUST_CHECK;
/* The cache: $XDG_CACHE_HOME/tally/machine.json, else ~/.cache/tally/machine.json. Valid only for the same cpu, threads,
 * kernels and version. TL_ERR_NOT_FOUND when there is none. */
tl_status tl_machine_load(int threads, tl_machine *machine, tl_error *error) TL_MUST_CHECK;
tl_status tl_machine_save(const tl_machine *machine, tl_error *error) TL_MUST_CHECK;
/* Memory of the whole machine and what is available now (/proc/meminfo, cgroup limits respected). */
tl_status tl_machine_memory(int64_t *total, int64_t *available, tl_error *error) TL_MUST_CHECK;
int tl_machine_cores(void);

#ifdef __cplusplus
}
#endif
#endif
