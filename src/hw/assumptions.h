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

/* What PyTorch holds beside tensors. Rows: shared/data/measured/measured_memory_misc.csv, "CUDA context, torch 2.1.1 lazy load,
 * A100: 0.47 GiB" and "CUDA context + kernels, torch 1.13.1 eager load, A100: 0.9 GiB"; kernels are loaded when first used since
 * CUDA 11.7, so the first is taken. NCCL's own (0.35-1.5 GiB) is not in it. */
#define TL_TORCH_CONTEXT_BYTES ((int64_t)481 << 20)
#define TL_TORCH_CONTEXT_LOW_GIB 0.47
/* "cuBLAS workspace 8-32 MiB/handle (x streams)" (formulas.md, "Static bytes per parameter"): the upper one, Hopper's, for two
 * handles: the forward's thread and autograd's. Error: − 48 MiB. */
#define TL_TORCH_WORKSPACES 2
#define TL_TORCH_WORKSPACE_BYTES ((int64_t)32 << 20)
/* "allocator slack (reserved/allocated 1.02-1.15; more without expandable_segments)" (the same): the middle; with
 * expandable_segments the low end. Error: ± 0.065. */
#define TL_TORCH_SLACK_PERMILLE 85
#define TL_TORCH_SLACK_SEGMENTS_PERMILLE 20

#endif
