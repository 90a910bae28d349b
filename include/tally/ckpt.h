/* tally/ckpt.h: checkpoints. One safetensors file holds what a run needs to go on bit for bit: parameters, master copies,
 * optimizer states, the step, the position in the data, the seeds and position of the random streams, and what the caller
 * adds. docs/checkpoint.md describes the format; any safetensors reader opens it.
 *
 * Writing: under a temporary name beside it, flushed to the disk, then renamed over the old file, then the folder flushed.
 * Whatever happens meanwhile (a kill, a full disk), the old file is whole or the new one is. A file under its temporary
 * name is never read. Saving holds nothing beyond the state but the header. Both are phases of the account (load, save), which
 * a plan runs on meta; the header and tables of names are bookkeeping, in no account.
 *
 * Reading: the file must hold exactly the tensors of the run it is read into, each in its shape and format; nothing is
 * cast. The header is held against its checksum and against the run before a single value is taken, every value against
 * its checksum as it arrives. Values go straight into the tensors. A failure while values are read leaves the run partly
 * filled: load another checkpoint into it or let go of it.
 */
#ifndef TALLY_CKPT_H
#define TALLY_CKPT_H

#include "tally/optim.h"
#include "tally/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_ckpt_state {
    int64_t
        step; /* of the run, the caller's: steps done, skipped ones among them. Never saved as less than the optimizer's */
    int64_t optimizer_steps;                                       /* updates done: filled in by both */
    int64_t total_steps;                                           /* of the learning-rate schedule; the caller's */
    uint64_t data_position;                                        /* examples drawn; the caller's */
    uint64_t seed_init, seed_data, seed_dropout, dropout_position; /* of the context: filled in by both */
    bool has_loss, has_validation_loss;
    double loss, validation_loss; /* the caller's; `best` goes by the latter */
} tl_ckpt_state;

/* What else belongs to a run's state, a list for each matter: loss scaling, histories of fp8 scales. Tensors are stored as
 * "PART.NAME", texts as metadata "PART.KEY". A part's name is lower-case letters, digits and _; model, master, optim and
 * tally are taken. Tensors are contiguous and, when loading, there already: they are filled. Texts are only written;
 * tl_ckpt_text reads them back. */
typedef struct tl_ckpt_tensor {
    const char *name;
    tl_tensor *tensor;
} tl_ckpt_tensor;
typedef struct tl_ckpt_part {
    const char *name;
    const tl_ckpt_tensor *tensors;
    int64_t n_tensors;
    const tl_safetensors_text *texts;
    int64_t n_texts;
} tl_ckpt_part;

/* A run. Loading with optimizer NULL takes the parameters alone (to evaluate or sample) and ignores states and parts. */
typedef struct tl_ckpt_contents {
    tl_ctx *ctx; /* net and optimizer live in it */
    tl_net *net;
    tl_optimizer *optimizer;
    const tl_ckpt_part *parts;
    int n_parts;
} tl_ckpt_contents;

/* ---- one file ---- */

/* Phase save. */
tl_status tl_ckpt_save(const char *path, const tl_ckpt_contents *contents, const tl_ckpt_state *state,
                       tl_error *error) TL_MUST_CHECK;
/* Phase load. Net and optimizer as new; sets the context's seeds and stream position (not with optimizer NULL).
 * TL_ERR_FORMAT: the file is damaged or no checkpoint. TL_ERR_SHAPE, TL_ERR_DTYPE: a checkpoint of another run; the
 * message names the first tensors that differ. */
tl_status tl_ckpt_load(const char *path, const tl_ckpt_contents *contents, tl_ckpt_state *state,
                       tl_error *error) TL_MUST_CHECK;

/* To look at: length and header are checked, values are not. NULL with *error filled. */
typedef struct tl_ckpt tl_ckpt;
tl_ckpt *tl_ckpt_open(const char *path, tl_error *error);
void tl_ckpt_close(tl_ckpt *ckpt); /* NULL allowed */
const tl_ckpt_state *tl_ckpt_state_of(const tl_ckpt *ckpt);
/* A part's text, "PART.KEY"; NULL if there is none. Lives as long as the checkpoint is open. */
const char *tl_ckpt_text(const tl_ckpt *ckpt, const char *key);
const tl_safetensors *tl_ckpt_file(const tl_ckpt *ckpt);
/* Whether a safetensors file says that it is a checkpoint. */
bool tl_ckpt_is(const tl_safetensors *file);
/* Every value against its checksum; holds one tensor at a time. */
tl_status tl_ckpt_verify(const tl_ckpt *ckpt, tl_error *error) TL_MUST_CHECK;
/* The same as tl_ckpt_load, of a file that is open. */
tl_status tl_ckpt_read(const tl_ckpt *ckpt, const tl_ckpt_contents *contents, tl_ckpt_state *state,
                       tl_error *error) TL_MUST_CHECK;

/* ---- a folder of them ----
 * FOLDER/step-00000500.safetensors, and the symbolic links `latest` and, where there is a validation loss, `best`. Links are
 * replaced only after the file they name is whole. Where a file system has no symbolic links there are none, and the
 * newest file is the latest. */

/* Saves under the step's name (making the folder if need be), points `latest` at it, and `best` where its validation loss is
 * the lowest so far; then removes all but the `keep` newest (at least 1) and the best, and what a kill left behind. */
tl_status tl_ckpt_folder_save(const char *folder, int64_t keep, const tl_ckpt_contents *contents,
                              const tl_ckpt_state *state, tl_error *error) TL_MUST_CHECK;

#define TL_CKPT_PATH 4096
typedef struct tl_ckpt_found {
    char path[TL_CKPT_PATH]; /* of what was loaded */
    char note[2048];         /* "" or what was damaged, why, and what was taken in its place */
} tl_ckpt_found;
/* Loads what `latest` names or, where that is damaged or gone, the newest whole one; *found says which and why. A checkpoint
 * of another run is an error, not damage. TL_ERR_NOT_FOUND: no checkpoint is there. */
tl_status tl_ckpt_folder_load(const char *folder, const tl_ckpt_contents *contents, tl_ckpt_state *state,
                              tl_ckpt_found *found, tl_error *error) TL_MUST_CHECK;
/* The same without loading: each header and the file's length are checked, the values are not. */
tl_status tl_ckpt_folder_find(const char *folder, tl_ckpt_found *found, tl_error *error) TL_MUST_CHECK;
/* Of the same the path alone: what was passed over is not said. */
tl_status tl_ckpt_folder_latest(const char *folder, char path[TL_CKPT_PATH], tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
