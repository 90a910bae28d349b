/* ckpt/ckpt.h: what writing and reading a checkpoint share: the tensors of a run under their names in the file. */
#ifndef TALLY_CKPT_CKPT_H
#define TALLY_CKPT_CKPT_H

#include "ckpt/safetensors.h"
#include "tally/ckpt.h"

#define TL_CKPT_FORMAT "checkpoint 2"

/* The header's checksum stands first, so that it can be found in the bytes without reading them. */
#define TL_CKPT_START "{\"__metadata__\":{\"tally.header\":\""
enum { TL_CKPT_DIGITS = 16, TL_CKPT_NAME = 512 };

typedef struct tl_ckpt_entry {
    char *name;
    const tl_tensor *tensor;
    int64_t bytes;
} tl_ckpt_entry;

typedef struct tl_ckpt_list {
    tl_ckpt_entry *entries; /* in the order of the file */
    int64_t count, capacity;
} tl_ckpt_list;

/* Wide formats first, so that every value lies at a multiple of its size; else in the order of the net. */
tl_status tl_ckpt_list_make(const tl_ckpt_contents *contents, tl_ckpt_list *list, tl_error *error);
void tl_ckpt_list_free(tl_ckpt_list *list);

/* The step that a checkpoint is saved as. */
int64_t tl_ckpt_step(const tl_ckpt_contents *contents, const tl_ckpt_state *state);

/* XXH3 of 64 bits (Collet; xxhash.h 0.8). */
uint64_t tl_ckpt_hash(const void *data, size_t bytes);

#endif
