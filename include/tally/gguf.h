/* tally/gguf.h: what a GGUF file says before its values: metadata and the list of tensors (format text:
 * github.com/ggml-org/ggml, docs/gguf.md; versions 2 and 3, little-endian):
 *
 *   "GGUF", u32 version, u64 tensors, u64 pairs
 *   pairs     key (u64 length, bytes), u32 type, value; an array is a u32 type, u64 count, values
 *   tensors   name, u32 ndim (at most 4), u64 sizes (the fastest first), u32 type, u64 offset
 *   values    from the next multiple of general.alignment (32 where it is not given); offsets count from there
 *
 * Reading checks that lengths and counts are borne out by the file's own length before anything is allocated by them, that
 * keys and names are unique, and that the tensors' ranges lie in the file and do not overlap. Values are not read.
 */
#ifndef TALLY_GGUF_H
#define TALLY_GGUF_H

#include "tally/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_gguf tl_gguf;

/* In the order of the format's numbers. */
typedef enum tl_gguf_type {
    TL_GGUF_U8,
    TL_GGUF_I8,
    TL_GGUF_U16,
    TL_GGUF_I16,
    TL_GGUF_U32,
    TL_GGUF_I32,
    TL_GGUF_F32,
    TL_GGUF_BOOL,
    TL_GGUF_STRING,
    TL_GGUF_ARRAY,
    TL_GGUF_U64,
    TL_GGUF_I64,
    TL_GGUF_F64,
    TL_GGUF_TYPE_COUNT
} tl_gguf_type;

/* Arrays of numbers are kept up to this many elements, and strings up to this many bytes; of longer ones the length alone. */
#define TL_GGUF_KEPT_NUMBERS 1024
#define TL_GGUF_KEPT_BYTES 4096

typedef struct tl_gguf_pair {
    const char *key;
    tl_gguf_type type, element; /* element: of an array */
    int64_t count;              /* elements of an array, bytes of a string; else 1 */
    const char *text;           /* of a string, its first TL_GGUF_KEPT_BYTES, ended by NUL; else NULL */
    const double *number;       /* of a number, flag or kept array of them: count values; else NULL */
    const int64_t *integer;     /* the same as whole numbers, exactly; NULL for floats. Of u64 the bits: (uint64_t) */
} tl_gguf_pair;

typedef struct tl_gguf_tensor {
    const char *name;
    const char *format; /* ggml's word: "Q4_K"; "type 77" where it is not known here */
    int ndim;
    int64_t dim[4]; /* as in the file: the fastest first */
    int64_t count;
    int64_t bytes;  /* −1: of an unknown format */
    int64_t offset; /* from the start of the file */
} tl_gguf_tensor;

/* NULL with *error filled: TL_ERR_NOT_FOUND, TL_ERR_IO, TL_ERR_MEMORY, TL_ERR_UNSUPPORTED (version 1, big-endian) or
 * TL_ERR_FORMAT with what is wrong and where. */
tl_gguf *tl_gguf_open(const char *path, tl_error *error);
void tl_gguf_close(tl_gguf *file); /* NULL allowed */

int tl_gguf_version(const tl_gguf *file);
int64_t tl_gguf_bytes(const tl_gguf *file);        /* of the file */
int64_t tl_gguf_header_bytes(const tl_gguf *file); /* before the values, padding included */
int64_t tl_gguf_pairs(const tl_gguf *file);
const tl_gguf_pair *tl_gguf_pair_at(const tl_gguf *file, int64_t index);     /* NULL beyond the last */
const tl_gguf_pair *tl_gguf_pair_find(const tl_gguf *file, const char *key); /* NULL if there is none */
int64_t tl_gguf_tensors(const tl_gguf *file);
const tl_gguf_tensor *tl_gguf_tensor_at(const tl_gguf *file, int64_t index);      /* in the file's order */
const tl_gguf_tensor *tl_gguf_tensor_find(const tl_gguf *file, const char *name); /* NULL if there is none */
const char *tl_gguf_type_name(tl_gguf_type type);                                 /* "u32", "string" */

/* The model that the metadata describes: general.architecture and its keys ("llama.block_count"). An architecture that is
 * not built in, and one that llama.cpp writes for several families that differ beyond its metadata, is TL_ERR_UNSUPPORTED by
 * name. Whether the head is tied is read off the tensors (no output.weight). */
tl_status tl_gguf_model(const tl_gguf *file, const char *path, tl_model *model, tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
