/* op/along.h: what ops along one axis share. Kernels work along the last axis; arrays are turned, not copied. */
#ifndef TALLY_OP_ALONG_H
#define TALLY_OP_ALONG_H

#include "op/views.h"

/* The axis goes last, the others keep their order. */
void tl_array_axis_last(tl_array *array, int axis);

/* ---- argmax and argmin ---- */
typedef struct tl_arg_attr {
    int axis;
    bool keep, last;
} tl_arg_attr;
tl_status tl_arg_infer(tl_sig *sig);
tl_status tl_arg_run(const tl_sig *sig, tl_args *args, bool least);
void tl_arg_sample(uint64_t seed, tl_case *c);

/* ---- cumulative sums and products ---- */
typedef struct tl_cumulative_attr {
    tl_cumulate_attr how; /* first: the kernel reads this much */
    int axis;
} tl_cumulative_attr;
tl_status tl_cumulative_infer(tl_sig *sig);
void tl_cumulative_cost(const tl_sig *sig, tl_cost *cost); /* one FLOP an element */
/* All arrays turned, then run. */
tl_status tl_cumulative_run(const tl_sig *sig, tl_args *args, tl_kernel *kernel);
void tl_cumulative_sample(uint64_t seed, tl_case *c, bool product);
tl_cumulative_attr tl_cumulative_attr_of(int axis, bool product, bool exclusive, bool reverse);

#endif
