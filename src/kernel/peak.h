/* kernel/peak.h: loops that do nothing but the work a machine is rated by: multiply-adds in registers, and streams through
 * memory. The widest instruction set the processor has is chosen when asked, whatever the build's flags.
 */
#ifndef TALLY_KERNEL_PEAK_H
#define TALLY_KERNEL_PEAK_H

#include "tally/dtype.h"

typedef struct tl_peak_loop {
    const char *name; /* "avx512" */
    tl_dtype dtype;
    int flop_per_round;
    /* Runs `rounds`; the result is finite and depends on all of them, so that none is left out. */
    double (*run)(int64_t rounds);
} tl_peak_loop;

/* The loops this processor can run, of all dtypes: several for one dtype where it is not known beforehand which is the
 * fastest. bf16 only where there is an instruction for it. Returns how many, at most TL_PEAK_LOOPS. */
#define TL_PEAK_LOOPS 8
int tl_peak_loops(tl_peak_loop loops[TL_PEAK_LOOPS]);

/* STREAM's triad, a[i] = b[i] + s·c[i] (McCalpin 1995, "Memory bandwidth and machine balance in current high performance
 * computers"), over `count` floats, a multiple of 64, each array 64-byte aligned. It moves 12·count bytes by STREAM's way
 * of counting, which leaves out that a write may first read its line. */
typedef void tl_peak_triad(float *a, const float *b, const float *c, int64_t count);
tl_peak_triad *tl_peak_triad_best(void);

#endif
