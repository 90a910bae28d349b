/* tests/instrument_elements.h: the second instrument's third part. Every entry of a kernel table is wrapped; what reaches it
 * (sizes, strides, dtypes and attributes of one call) says how many bytes it reads and writes and how many operations its
 * published formula takes. Nothing here knows an op's `cost` or the ledger; calls are put down to ops by the context's
 * watch hook, which runs after each.
 *
 * What counts as touched, the same for every kernel:
 *   - an array is all elements that its sizes span; an axis of stride 0 is one element, read once;
 *   - each kernel reads its inputs once and writes its outputs once, however often the loop comes back to them; an op of
 *     two kernels makes two passes. What is added into is read, too;
 *   - what lies in the op's workspace is scratch and no traffic;
 *   - an output the caller did not ask for (data NULL) is not written.
 * Kernels that are otherwise are listed by name in instrument_elements.c.
 */
#ifndef TALLY_TESTS_INSTRUMENT_ELEMENTS_H
#define TALLY_TESTS_INSTRUMENT_ELEMENTS_H

#include "kernel/table.h"
#include "tally/op.h"

typedef struct touched {
    const char *op, *site;
    int64_t read, written; /* bytes */
    tl_u128 arithmetic, special;
    int calls;
    bool empty;          /* an input or output has no elements */
    const char *unknown; /* a kernel whose formula is not in the list, or NULL */
} touched;

/* A copy of `real` in which every entry counts. One table at a time: the last one asked. */
const tl_kernels *elements_kernels(const tl_kernels *real);
/* Puts down what this context's kernels do to its ops from now on. */
void elements_watch(tl_ctx *ctx);
/* Forgets what was counted so far. */
void elements_begin(void);
/* One entry for each op run since, in order; ops without a cost of their own (views) are left out if they touched
 * nothing. */
const touched *elements_of_ops(int64_t *count);
/* How many elements the kernel of this name worked through since: of a reduction, a norm, a loss and their gradients the
 * input's, else the result's. Aborts on a name that no kernel has. */
int64_t elements_of_kernel(const char *kernel);
void elements_free(void);

#endif
