/* tally/cpu.h: the kernel tables of this processor, for tl_ctx_options.kernels. Outside the planner core.
 */
#ifndef TALLY_CPU_H
#define TALLY_CPU_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_kernels tl_kernels;

/* The best table for this machine. isa_or_null NULL: TALLY_ISA=portable|avx2|avx512 in the environment, else the best; an
 * unknown or unavailable name is an error that lists what there is. */
const tl_kernels *tl_kernels_for_cpu(const char *isa_or_null, tl_error *error);
const tl_kernels *tl_kernels_portable(void); /* reference: plain loops, own product, one body */

#ifdef __cplusplus
}
#endif
#endif
