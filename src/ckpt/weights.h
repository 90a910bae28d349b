/* ckpt/weights.h: what reading and writing Hugging Face's weights share. */
#ifndef TALLY_CKPT_WEIGHTS_H
#define TALLY_CKPT_WEIGHTS_H

#include "config/tensor_header.h"
#include "tally/names.h"
#include "tally/safetensors.h"
#include "tally/weights.h"

#define TL_WEIGHTS_FILE "model.safetensors"
/* The prefix of the names of Phi's very first form, where blocks are counted from 1 (weights_names.c). */
#define TL_WEIGHTS_SEQUENTIAL "layers."
#define TL_WEIGHTS_INDEX "model.safetensors.index.json"
enum { TL_WEIGHTS_PATH = 4096, TL_WEIGHTS_NAME = 512 };

/* ---- names (weights_names.c) ---- */

/* One published tensor of a parameter: all of it, or an expert's slice. */
typedef struct tl_weights_part {
    tl_published published;
    int ndim;
    int64_t dim[TL_MAX_NDIM]; /* in the file */
    int64_t first, count;     /* of the parameter's values, in its own order */
} tl_weights_part;

tl_status tl_weights_part_of(const tl_model *model, const tl_parameter *parameter, int64_t part, tl_weights_part *out,
                             tl_error *error);
/* The parameter as one tensor of its own name, as a checkpoint of tally has it. */
tl_status tl_weights_whole_part(const tl_parameter *parameter, tl_weights_part *out, tl_error *error);
/* What a family's names start with in its own files. NULL: the model has no published form. */
const char *tl_weights_own_prefix(const tl_model *model);
/* The name in a file whose names start with `prefix` where the family's own start otherwise. */
const char *tl_weights_whole_name(const tl_model *model, const char *prefix, const char *name,
                                  char whole[TL_WEIGHTS_NAME]);
/* The published names, in full, of the output projection and of the token table that it may be tied to. */
const char *tl_weights_head_name(const tl_model *model, const char *prefix, char whole[TL_WEIGHTS_NAME]);
const char *tl_weights_table_name(const tl_model *model, const char *prefix, char whole[TL_WEIGHTS_NAME]);

/* What a tensor is that no parameter is made of. */
typedef enum tl_weights_kind {
    TL_WEIGHTS_UNKNOWN,
    TL_WEIGHTS_BUFFER,     /* a mask or a table of angles */
    TL_WEIGHTS_OTHER_PART, /* of a model of text and pictures or sound */
    TL_WEIGHTS_PREDICTION, /* a layer beyond the last, for multi-token prediction: if it holds such a layer's eh_proj */
    TL_WEIGHTS_SHARED, /* keys and values, with their norms, of a layer that reads another's: published, never read */
    TL_WEIGHTS_FP8_SCALE, /* of an fp8 tensor, by blocks of 128 × 128 */
    TL_WEIGHTS_QUANTIZED  /* of a format that is not read; named in *format */
} tl_weights_kind;
tl_weights_kind tl_weights_kind_of(const tl_model *model, const char *prefix, const char *whole, const char **format);

/* ---- values (weights_values.c) ---- */

/* count values between floating formats, rounded to nearest even. False where a finite value became infinite. */
bool tl_weights_convert(const void *in, tl_dtype from, void *out, tl_dtype to, int64_t count);

/* dst[column·dst_row + row] = src[row·columns + column], values of `width` bytes. */
void tl_weights_scatter(const void *src, int64_t rows, int64_t columns, void *dst, int64_t dst_row, int width);
/* The way back: dst[row·columns + column] = src[column·src_row + row]. */
void tl_weights_gather(const void *src, int64_t src_row, void *dst, int64_t rows, int64_t columns, int width);

/* DeepSeek's fp8: a scale for each block of so many rows and columns (DeepSeek-AI 2024, arXiv 2412.19437, section 3.3.2). */
enum { TL_WEIGHTS_FP8_BLOCK = 128 };

/* MXFP4 (OCP Microscaling Formats 1.0, sections 5.2 to 6.3): values of 4 bits, E2M1, and a power of two for 32 of them, E8M0. As
 * gpt_oss is published: NAME_blocks u8 [E, out, in/32, 16], of two values in a byte the lower four bits first, and NAME_scales u8
 * [E, out, in/32]. A net has [E, in, out]. */
enum { TL_WEIGHTS_MX_BLOCK = 32 };
bool tl_weights_is_mx(const tl_safetensors_tensor *tensor); /* such blocks, by name and format */
/* The name of the blocks of a parameter, and of the scales of blocks; NULL where it is too long. */
const char *tl_weights_mx_blocks(const char *name, char out[TL_WEIGHTS_NAME]);
const char *tl_weights_mx_scales(const char *blocks, char out[TL_WEIGHTS_NAME]);
/* Whether blocks and scales are those of the part. */
bool tl_weights_mx_fits(const tl_weights_part *part, const tl_safetensors_tensor *blocks,
                        const tl_safetensors_tensor *scales);

/* A tensor on its way from its file to where its values go. */
typedef struct tl_weights_passage {
    const char *from; /* for messages */
    const tl_safetensors *file, *scale_file;
    const tl_safetensors_tensor *tensor, *scale; /* scale NULL: none. With one, F8_E4M3, or MXFP4's blocks */
    char *data;
    tl_dtype to;
    bool turned;
    char *block; /* two halves */
    int64_t half;
} tl_weights_passage;

tl_status tl_weights_read_mx(const tl_weights_passage *way, tl_error *error);
tl_status tl_weights_fail_infinite(const tl_weights_passage *way, tl_error *error);
tl_status tl_weights_read_tensor(const tl_weights_passage *way, tl_error *error);

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
/* Which of the source's tensors it is; −1: none. */
int64_t tl_weights_source_index(const tl_weights_source *source, const char *name);
int64_t tl_weights_source_tensors(const tl_weights_source *source);
const char *tl_weights_source_name(const tl_weights_source *source, int64_t index);
/* Adds a sentence to the report's note. */
void tl_weights_note(tl_weights_report *report, const char *format, ...) TL_PRINTF(2, 3);

#endif
