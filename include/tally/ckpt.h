/* tally/ckpt.h: checkpoints. One file holds what a run needs to go on bit for bit: parameters, master copies, optimizer
 * states, the step, the position in the data, and the seeds and position of the random streams. docs/checkpoint.md
 * describes the format.
 *
 * Writing: under a temporary name beside it, flushed to the disk, then renamed over the old file, then the folder flushed.
 * Whatever happens meanwhile (a kill, a full disk), the old file is whole or the new one is. A file under its temporary
 * name is never read.
 *
 * Reading: the file must hold exactly the tensors of the net and optimizer it is read into. Everything in its header is
 * held against them, and the header against its checksum, before a single value is taken; nothing is allocated by a number
 * in the file. A failure while values are read leaves the net and optimizer partly filled: let go of them.
 */
#ifndef TALLY_CKPT_H
#define TALLY_CKPT_H

#include "tally/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_ckpt_state {
    int64_t step;                                                  /* optimizer steps done: filled in by both */
    int64_t total_steps;                                           /* of the learning-rate schedule; the caller's */
    uint64_t data_position;                                        /* examples drawn; the caller's */
    uint64_t seed_init, seed_data, seed_dropout, dropout_position; /* of the context: filled in by both */
} tl_ckpt_state;

/* Saves net and optimizer, which live in `ctx` (phase save). total_steps and data_position are taken from `state`. */
tl_status tl_ckpt_save(const char *path, tl_ctx *ctx, const tl_net *net, const tl_optimizer *optimizer,
                       const tl_ckpt_state *state, tl_error *error) TL_MUST_CHECK;
/* Loads into net and optimizer (phase load), both as new; sets the context's seeds and stream position. */
tl_status tl_ckpt_load(const char *path, tl_ctx *ctx, tl_net *net, tl_optimizer *optimizer, tl_ckpt_state *state,
                       tl_error *error) TL_MUST_CHECK;
/* The state alone, with the file's length and header checked. */
tl_status tl_ckpt_peek(const char *path, tl_ckpt_state *state, tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
