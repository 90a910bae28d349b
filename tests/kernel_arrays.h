/* What the kernel tests share: arrays of any dtype and layout filled from doubles. */
#ifndef TALLY_TESTS_KERNEL_ARRAYS_H
#define TALLY_TESTS_KERNEL_ARRAYS_H

#include "kernel/table.h"

/* An array, its memory, and nothing shared. */
typedef struct box {
    tl_array array;
    char *memory;
    int64_t bytes;
} box;

enum { LAYOUT_PLAIN, LAYOUT_TURNED, LAYOUT_FLIPPED, LAYOUT_GAPS, LAYOUT_COUNT };

extern const char *const table_names[3];

int64_t count_of(int ndim, const int64_t *size);
box box_make(tl_dtype dtype, int ndim, const int64_t *size, int layout);
/* stride 0 along axis `axis`, whose size in memory is 1 */
box box_broadcast(tl_dtype dtype, int ndim, const int64_t *size, int axis);
void box_free(box *b);
void box_put(box *b, int64_t flat, double value);
double box_get(const box *b, int64_t flat);
int64_t box_get_int(const box *b, int64_t flat);
/* value i is low + (high − low)·u_i, u from a small generator seeded with `seed`; rounded by the dtype */
void box_random(box *b, uint32_t seed, double low, double high);
void box_fill(box *b, double value);

double unit_of(tl_dtype dtype); /* half an ulp of 1 */
double rounded(tl_dtype dtype, double v);

tl_engine *engine_make(const tl_kernels *kernels, int threads);
void engine_drop(const tl_kernels *kernels, tl_engine *engine);

/* in … then NULL-free; runs a kernel once and returns the fault */
int64_t run(tl_kernel *kernel, tl_engine *engine, box *const in[], int n_in, box *const out[], int n_out,
            const void *attr, int64_t work_bytes);

#define CLOSE(found, expected, tolerance)                                                                              \
    do {                                                                                                               \
        double f_ = (found), e_ = (expected), t_ = (tolerance);                                                        \
        if (!(f_ == e_ || fabs(f_ - e_) <= t_ || (f_ != f_ && e_ != e_))) {                                            \
            print_error("%s:%d: found %.17g, expected %.17g within %g\n", __FILE__, __LINE__, f_, e_, t_);             \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
