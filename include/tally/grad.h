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

/* ---- autocast: parameters stay in f32, and each op gets its inputs in the format that its rule says ----
 * The rules follow torch.cuda.amp.autocast's lists (PyTorch 1.13, "Automatic Mixed Precision: op reference"), one per op, in
 * one table (src/grad/autocast.c). A cast is an op: it is booked with its bytes where it happens, and its backward casts
 * the gradient back. A weight is cast anew by each op that uses it (PyTorch keeps the casts of one forward). Backward is not
 * cast: its ops get what forward left. Tensors of f64, integers and bool are never cast. */
typedef enum tl_autocast_rule {
    TL_AUTOCAST_NO_RULE, /* an op nobody thought about: it is refused under autocast */
    TL_AUTOCAST_KEEP,    /* as they come: moves, views, activations, updates, backward */
    TL_AUTOCAST_LOW,     /* all in the low format: matrix products */
    TL_AUTOCAST_FLOAT,   /* all in f32: norms, softmax, losses, sums, powers and logarithms */
    TL_AUTOCAST_WIDEST   /* in f32 where the inputs' formats differ: two operands of one sum or product of elements */
} tl_autocast_rule;
struct tl_op;
tl_autocast_rule tl_autocast_rule_of(const struct tl_op *op);
const char *tl_autocast_rule_name(tl_autocast_rule rule); /* "keep" "low" "float" "widest"; "none" */
/* From now on: low TL_BF16 or TL_F16 switches it on, TL_F32 off. */
tl_status tl_autocast(tl_ctx *ctx, tl_dtype low);

#ifdef __cplusplus
}
#endif
#endif
