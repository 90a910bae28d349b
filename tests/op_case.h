/* op_case.h: turns a sample case of an op into tensors, values and runs. Shared by tests over all ops. */
#ifndef TALLY_TESTS_OP_CASE_H
#define TALLY_TESTS_OP_CASE_H

#include "op/core.h"
#include "tally/grad.h"

typedef enum layout {
    LAYOUT_PLAIN,
    LAYOUT_TRANSPOSED,
    LAYOUT_SLICED,
    LAYOUT_REVERSED,
    LAYOUT_EXPANDED,
    LAYOUT_COUNT
} layout;

typedef struct op_case {
    const tl_op *op;
    tl_case c;
    tl_dtype dtype;           /* of every floating input that is not fixed */
    double *value[TL_MAX_IO]; /* inputs, in order of elements */
    bool product;             /* it multiplies matrices: one of the two matrix strides must be 1 */
} op_case;

typedef struct op_values {
    int n;
    int64_t count[TL_MAX_IO];
    double *value[TL_MAX_IO];
} op_values;

void op_case_make(op_case *o, const tl_op *op, uint64_t seed, tl_dtype dtype);
void op_case_free(op_case *o);
int64_t op_case_count(const op_case *o, int input);
bool op_case_is_float(const op_case *o, int input);
/* Makes the values of an input equal along the axis that LAYOUT_EXPANDED stretches. */
void op_case_flatten(op_case *o);
/* Input tensors; those of `mask` want a gradient (category param, else work). NULLs after a failure. */
void op_case_inputs(const op_case *o, tl_ctx *ctx, layout how, unsigned mask, tl_tensor *in[]);
/* Runs the op; outputs in the current scope. */
tl_status op_case_run(const op_case *o, tl_ctx *ctx, tl_tensor *const in[], tl_tensor *out[]);
/* The weight that the tests' loss gives element i of output j; 0 for all of an output left out. */
double op_case_weight(uint64_t seed, int output, int64_t i);
/* Σ weight·output as recorded ops; NULL if no output counts. */
tl_tensor *op_case_loss(tl_ctx *ctx, tl_tensor *const out[], int n, uint64_t seed);
double *op_read(const tl_tensor *t); /* as doubles; free() it */
void op_values_read(op_values *v, tl_tensor *const out[], int n);
void op_values_free(op_values *v);

/* A value that the format holds: v rounded; for integers a small whole number made from it. */
double op_case_rounded(tl_dtype dtype, double v);

#endif
