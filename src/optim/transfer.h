/* optim/transfer.h: what loading and saving hold, apart from any file. All that the two allocate from a context is allocated
 * here: src/ckpt comes with a file behind `values`, a plan runs the same on meta with none.
 *
 * What counts as held: storages, of the state and of the one block that values pass through. Files are read by position and
 * written from where the values lie, nothing is mapped; pages of a file that the system caches are its own. A file's header
 * and the tables of names are bookkeeping, as tensor handles are: some hundred bytes a tensor, in no account.
 */
#ifndef TALLY_OPTIM_TRANSFER_H
#define TALLY_OPTIM_TRANSFER_H

#include "tally/optim.h"

/* The block at most: pieces that large are read as fast as whole tensors. It is no larger than the net's largest parameter
 * either, so that loading never holds more than the state and one tensor. */
#define TL_TRANSFER_BYTES ((int64_t)1 << 20)
/* And at least: a value of the widest format, before and after conversion. */
#define TL_TRANSFER_LEAST 16

/* Moves the values while the phase is set; `block` NULL where there is none. */
typedef tl_status tl_transfer_values(void *self, char *block, int64_t block_bytes);

/* A checkpoint is loaded: phase load, states made as after `updates` updates (optimizer NULL: weights alone), then values.
 * `states`: also where `updates` is 0, after a run whose steps were all skipped. values NULL: meta. */
tl_status tl_transfer_load(tl_ctx *ctx, tl_optimizer *optimizer, int64_t updates, bool states,
                           tl_transfer_values *values, void *self);
/* A checkpoint is saved: phase save; values go from where they lie. */
tl_status tl_transfer_save(tl_ctx *ctx, tl_transfer_values *values, void *self);
/* A net's weights in a published form are loaded or saved (`phase`), through a block. values NULL: meta. */
tl_status tl_transfer_weights(const tl_net *net, tl_phase phase, tl_transfer_values *values, void *self);
/* A quantised parameter's values come in full, in the format of the net, and are quantised where they lie: `fill` puts them into
 * `full` (NULL: meta), which lives no longer than this. */
typedef tl_status tl_transfer_fill(void *self, tl_tensor *full);
tl_status tl_transfer_quantized(tl_net *net, int index, tl_transfer_fill *fill, void *self);
/* Loading a net's weights on meta: the block, and of quantised weights what reading would make. */
tl_status tl_transfer_weights_meta(tl_net *net);

#endif
