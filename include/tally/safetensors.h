/* tally/safetensors.h: files of named tensors, as Hugging Face's safetensors has them (format text:
 * github.com/huggingface/safetensors, README "Format"):
 *
 *   8 bytes   length of the header, little-endian, at most 100,000,000
 *   header    a JSON object, UTF-8: tensor name → {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
 *             and "__metadata__" of strings to strings; white space may surround it
 *   values    little-endian, without gaps: offsets count from here, tile the rest of the file exactly, and each range has
 *             the bytes that its shape and dtype come to
 *
 * Reading checks all of that before a value is read, allocates nothing by a number in the file that the file's own length
 * does not bear out, and reads values by position (pread): a file that shrinks meanwhile is an error, not a signal.
 * What cannot be read is named as what it is: a pickle, a page of HTML, a git-LFS pointer, half a download.
 *
 * Writing goes under PATH.tmp, is flushed, renamed over PATH, and the folder flushed: whatever happens meanwhile (a kill, a
 * full disk), the old file is whole or the new one is. A program that may meet a limit on file sizes should ignore SIGXFSZ:
 * the limit is then an error like any other.
 */
#ifndef TALLY_SAFETENSORS_H
#define TALLY_SAFETENSORS_H

#include "tally/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The reference reader's limit, and ours, in reading and writing. */
#define TL_SAFETENSORS_LARGEST_HEADER 100000000

typedef struct tl_safetensors tl_safetensors;

typedef struct tl_safetensors_tensor {
    const char *name;
    const char *format; /* the file's word: "F32", "BF16", "F8_E4M3", "U64" */
    tl_dtype
        dtype; /* TL_DTYPE_COUNT: known to the format and listed, but nothing here computes with it (U32, U64, C64, F4 …) */
    const int64_t *dim; /* ndim sizes; as many as the file says, so ndim may be beyond TL_MAX_NDIM */
    int64_t ndim;
    int64_t count, bytes;
    int64_t offset; /* of the first value, from the start of the file */
} tl_safetensors_tensor;

/* NULL with *error filled: TL_ERR_NOT_FOUND, TL_ERR_IO, TL_ERR_MEMORY, or TL_ERR_FORMAT with what is wrong and where. */
tl_safetensors *tl_safetensors_open(const char *path, tl_error *error);
void tl_safetensors_close(tl_safetensors *file); /* NULL allowed */

int64_t tl_safetensors_count(const tl_safetensors *file);
/* Tensor i in the order of the values; NULL beyond the last. Lives as long as the file is open. */
const tl_safetensors_tensor *tl_safetensors_at(const tl_safetensors *file, int64_t index);
/* By name; NULL if there is none. */
const tl_safetensors_tensor *tl_safetensors_find(const tl_safetensors *file, const char *name);
int64_t tl_safetensors_bytes(const tl_safetensors *file);        /* of the file */
int64_t tl_safetensors_header_bytes(const tl_safetensors *file); /* before the values: 8 + the header */

/* "__metadata__", in the file's order. */
int64_t tl_safetensors_metadata_count(const tl_safetensors *file);
const char *tl_safetensors_metadata_key(const tl_safetensors *file, int64_t index);
const char *tl_safetensors_metadata(const tl_safetensors *file, const char *key); /* NULL if there is none */

/* `bytes` of the tensor's values from its byte `from` on, as they lie in the file. The range must lie in the tensor. */
tl_status tl_safetensors_read(const tl_safetensors *file, const tl_safetensors_tensor *tensor, int64_t from, void *out,
                              int64_t bytes, tl_error *error) TL_MUST_CHECK;
/* Bytes of the file itself, the header included. */
tl_status tl_safetensors_read_raw(const tl_safetensors *file, int64_t offset, void *out, int64_t bytes,
                                  tl_error *error) TL_MUST_CHECK;

/* The format's word for one of our dtypes: "BF16". */
const char *tl_safetensors_word(tl_dtype dtype);

/* ---- writing ---- */

typedef struct tl_safetensors_item {
    const char *name; /* UTF-8; each once */
    tl_dtype dtype;
    int ndim;
    int64_t dim[8];
} tl_safetensors_item;

typedef struct tl_safetensors_text {
    const char *key, *value;
} tl_safetensors_text;

typedef struct tl_safetensors_writer tl_safetensors_writer;

/* Starts the file and writes that header. NULL with *error filled and nothing left behind. */
tl_safetensors_writer *tl_safetensors_begin(const char *path, const tl_safetensors_item *items, int64_t count,
                                            const tl_safetensors_text *texts, int64_t n_texts, tl_error *error);
/* The next bytes of the values: those of all tensors in order, in pieces of any size. */
tl_status tl_safetensors_write(tl_safetensors_writer *writer, const void *data, int64_t bytes,
                               tl_error *error) TL_MUST_CHECK;
/* Ends it and frees the writer. `status` TL_OK: all values must have been written; the file takes its name. Anything else:
 * the temporary file is taken away and `status` returned. */
tl_status tl_safetensors_end(tl_safetensors_writer *writer, tl_status status, tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
