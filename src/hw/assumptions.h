/* hw/assumptions.h: every number about devices that is neither published with the part nor measured here, in one place,
 * with the rows it came from. Whatever uses one prints it as an assumption.
 */
#ifndef TALLY_HW_ASSUMPTIONS_H
#define TALLY_HW_ASSUMPTIONS_H

#include <stdint.h>

/* What a process holds on a CUDA or HIP device before its first tensor (context, loaded kernels). Rows: "Outside torch:
 * CUDA context 0.45-0.9 GiB" (shared/data/formulas.md, "Static bytes per parameter"); 675 MiB is the middle of the two.
 * Error: ± 0.225 GiB. Not in it: NCCL (0.35-1.5 GiB there), cuBLAS workspaces (8-32 MiB a handle). */
#define TL_DEVICE_CONTEXT_BYTES ((int64_t)675 << 20)
#define TL_DEVICE_CONTEXT_LOW_GIB 0.45
#define TL_DEVICE_CONTEXT_HIGH_GIB 0.9

#endif
