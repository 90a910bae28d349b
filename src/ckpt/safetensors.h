/* ckpt/safetensors.h: the words of the format. */
#ifndef TALLY_CKPT_SAFETENSORS_H
#define TALLY_CKPT_SAFETENSORS_H

#include "tally/safetensors.h"

typedef struct tl_safetensors_format {
    const char *word;
    int bits;
    tl_dtype dtype; /* TL_DTYPE_COUNT: none of ours */
} tl_safetensors_format;
/* NULL: the format does not know the word. */
const tl_safetensors_format *tl_safetensors_format_of(const char *word);

/* The header alone, its length before it and spaces behind it up to a multiple of 8: tensors in the order given, one after
 * the other. malloc'd; *length is its bytes, *total those of the values. NULL with *error filled. */
char *tl_safetensors_header(const tl_safetensors_item *items, int64_t count, const tl_safetensors_text *texts,
                            int64_t n_texts, int64_t *length, int64_t *total, tl_error *error);
/* Starts a file with such a header. NULL with *error filled and nothing left behind. */
tl_safetensors_writer *tl_safetensors_begin_header(const char *path, const char *header, int64_t length, int64_t total,
                                                   tl_error *error);

#endif
