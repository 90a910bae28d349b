/* axes_case.h: a recorded case of einsum, rearrange, reduce or repeat. */
#ifndef TALLY_TESTS_AXES_CASE_H
#define TALLY_TESTS_AXES_CASE_H

#include "tally/axes.h"

typedef enum axes_kind { EINSUM, REARRANGE, REDUCE, REPEAT } axes_kind;

typedef struct axes_case {
    axes_kind kind;
    const char *pattern;
    int n;
    struct {
        int ndim;
        int64_t size[TL_MAX_NDIM];
    } in[8];
    int n_lengths;
    struct {
        const char *name;
        int64_t size;
    } length[4];
    tl_reduce_op reduction;
    int ndim;
    int64_t size[TL_MAX_NDIM];
    int first, kept; /* values[first …]: the first `kept` elements */
    double checksum; /* Σ element i · (1 + 7·i mod 13) */
} axes_case;

#endif
