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
/* Called in backward for each leaf as soon as no later part of it can add to the leaf's gradient, when what the last op kept is
 * let go: the function may change the leaf and let its gradient go (an optimizer's step in backward). NULL: nobody. The next
 * tl_backward alone. Needs tl_record before. */
typedef tl_status tl_leaf_function(void *user, tl_tensor *leaf);
void tl_backward_each_leaf(tl_ctx *ctx, tl_leaf_function *function, void *user);
/* Lets go of everything recorded. */
void tl_tape_clear(tl_ctx *ctx);
/* ---- recompute (checkpoint) ----
 * A part of the forward pass that keeps its inputs alone and is computed again in backward (Chen et al. 2016, "Training
 * deep nets with sublinear memory cost"): memory for time. */

/* Computes out[] from in[], in the current scope, with ops. Called once in forward and once more in backward, and must do
 * the same both times. TL_OK, or the context's error. */
typedef tl_status tl_region_function(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]);

/* Runs `function` and hands its n_out outputs on (0 < n_out, n_in <= 16), in the caller's scope. While recording, nothing
 * inside is saved but the inputs; tl_backward runs `function` again, recorded, then walks what that recorded.
 *
 *   - The gradients have the same bits as without. Dropout draws the same numbers again: the stream's position is set back,
 *     and drawing another amount is an error.
 *   - Every tensor of the recorded expression that `function` reads must be among in[]; reading another one is refused.
 *     Leaves (parameters) need not be; what else it reads must live, unchanged, until backward.
 *   - `user` is copied when user_bytes > 0; with 0 the pointer itself is passed on and must stay good until backward.
 *   - What is computed again is booked in backward, in the module and repetition of the region, and counted apart
 *     (tl_ledger_recomputed, tl_op_entry.recomputed): model FLOPs leave it out, hardware FLOPs have it in.
 *   - Regions may nest: what an inner one computes in an outer one's second run is computed a third time in its own.
 *   - Without recording `function` just runs. */
tl_status tl_checkpoint_(tl_ctx *ctx, tl_region_function *function, const void *user, size_t user_bytes,
                         tl_tensor *const in[], int n_in, tl_tensor *out[], int n_out, const char *site);
#define tl_checkpoint(ctx, function, user, user_bytes, in, n_in, out, n_out)                                           \
    tl_checkpoint_((ctx), (function), (user), (user_bytes), (in), (n_in), (out), (n_out), TL_HERE)

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
