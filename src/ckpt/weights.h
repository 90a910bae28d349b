/* ckpt/weights.h: what reading and writing Hugging Face's weights share. */
#ifndef TALLY_CKPT_WEIGHTS_H
#define TALLY_CKPT_WEIGHTS_H

#include "config/tensor_header.h"
#include "tally/safetensors.h"
#include "tally/weights.h"

#define TL_WEIGHTS_FILE "model.safetensors"
#define TL_WEIGHTS_INDEX "model.safetensors.index.json"
enum { TL_WEIGHTS_PATH = 4096, TL_WEIGHTS_NAME = 512 };

/* Whether the published file holds the parameter transposed: GPT-2's Conv1D keeps [in, out]. */
bool tl_weights_is_transposed(const tl_model *model, const char *name);
/* Whether a tensor of a published file is no parameter: a mask or a table of angles kept as a buffer. `name` without prefix. */
bool tl_weights_is_buffer(const tl_model *model, const char *name);

/* count values between floating formats, rounded to nearest even. False where a finite value became infinite. */
bool tl_weights_convert(const void *in, tl_dtype from, void *out, tl_dtype to, int64_t count);

/* dst[column·dst_row + row] = src[row·columns + column], values of `width` bytes. */
void tl_weights_scatter(const void *src, int64_t rows, int64_t columns, void *dst, int64_t dst_row, int width);
/* The way back: dst[row·columns + column] = src[column·src_row + row]. */
void tl_weights_gather(const void *src, int64_t src_row, void *dst, int64_t rows, int64_t columns, int width);

/* The files of a model: one, or those an index names. */
typedef struct tl_weights_source {
    char name[512]; /* of the file, index or folder, for messages */
    tl_weight_map map;
    const char **names; /* of the files, as in the index */
    tl_safetensors **files;
    int64_t count;
    int *file_of;                  /* of each pair of the map */
    const tl_header_pair **sorted; /* the map's pairs by tensor */
} tl_weights_source;

tl_status tl_weights_source_open(tl_weights_source *source, const char *path, tl_weights_report *report,
                                 tl_error *error);
void tl_weights_source_close(tl_weights_source *source);
/* NULL: no such tensor. */
const tl_safetensors_tensor *tl_weights_source_find(const tl_weights_source *source, const char *name,
                                                    const tl_safetensors **file);
int64_t tl_weights_source_tensors(const tl_weights_source *source);
const char *tl_weights_source_name(const tl_weights_source *source, int64_t index);
/* Adds a sentence to the report's note. */
void tl_weights_note(tl_weights_report *report, const char *format, ...) TL_PRINTF(2, 3);

#endif
