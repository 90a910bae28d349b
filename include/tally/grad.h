/* tally/grad.h: the tape. While recording, every op whose inputs need a gradient leaves a node with what it declared to
 * save; tl_backward walks the nodes from last to first. Backward is written with ops and so is booked like forward, in
 * the module, repetition and source line of the op it differentiates.
 *
 *   - A leaf's first gradient is adopted, not copied; later ones are added in place, products straight into it.
 *   - Saved storages of category work become "saved" and revert when the tape lets go. A storage saved by the tape cannot be
 *     written in place (the write is refused).
 *   - A graph is walked once: backward frees it. Gradients of gradients are not offered.
 */
#ifndef TALLY_GRAD_H
#define TALLY_GRAD_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts or stops recording; a new context does not record. Only the first start can fail, for want of memory. */
tl_status tl_record(tl_ctx *ctx, bool on);
bool tl_is_recording(const tl_ctx *ctx);

/* Gradients of a one-element loss into every leaf that wants one (tl_tensor_grad), each added to what is there. The seed
 * is `seed` (1 normally; 1/A for A accumulated micro-batches). Sets no phase: the caller does. */
tl_status tl_backward(tl_ctx *ctx, tl_tensor *loss, double seed) TL_MUST_CHECK;
/* Lets go of everything recorded. */
void tl_tape_clear(tl_ctx *ctx);
/* How many nodes are recorded. What they hold is tl_ledger_live(ctx, TL_SAVED). */
int64_t tl_tape_nodes(const tl_ctx *ctx);

#ifdef __cplusplus
}
#endif
#endif
