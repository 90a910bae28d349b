/* tally/npy.h: NumPy's files. .npy holds one array (numpy.lib.format, versions 1.0, 2.0 and 3.0), .npz is a zip archive of
 * them (stored or deflated members; zip64).
 *
 * What is read: little-endian and big-endian numbers of the formats this library has; big-endian ones are byte-swapped into
 * a copy. C order as it lies; Fortran order becomes a view with strides, so that indices mean the same. 0-d and zero sizes
 * are arrays like any other. What is refused, by name: Python objects (descr '|O': a pickle, which is code), structured,
 * text, complex and date formats, more axes than TL_MAX_NDIM, and a file that is longer or shorter than its header says.
 * Nothing is allocated by a number in a file before the file was found long enough for it.
 *
 * NumPy has no bf16 and no 8-bit floats. They are written as their bits: bf16 as '<u2', f8e4m3 and f8e5m2 as '|u1'. The file
 * does not say so; whoever reads says `as` = "bf16", "f8e4m3" or "f8e5m2". In Python, bits b of bf16 are
 * (b.astype('<u4') << 16).view('<f4').
 *
 * A .npy is mapped into memory where it can be used as it lies (little-endian, aligned to its elements, not bool, whose
 * values are checked): a file of 2 GB then costs no memory until its pages are touched, and those can be dropped again.
 * The mapping is private: writing into the tensor never changes the file. The ledger books it as category data like a copy;
 * the allocator never sees it. As with any mapping, cutting the file short while it is in use ends the program by SIGBUS.
 * Members of an .npz are always copies: their checksums are verified.
 */
#ifndef TALLY_NPY_H
#define TALLY_NPY_H

#include "tally/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_npy_header {
    int version;       /* 1, 2 or 3 */
    char descr[16];    /* "<f4" */
    char kind;         /* f, i, u or b */
    int element_bytes; /* 1, 2, 4 or 8 */
    bool swapped;      /* big-endian */
    bool fortran;      /* first axis fastest */
    bool has_dtype;    /* this library has the format; not so for uint32 and uint64 */
    tl_dtype dtype;    /* if so */
    int ndim;          /* at most TL_MAX_NDIM */
    int64_t size[TL_MAX_NDIM];
    int64_t count, bytes; /* of the values */
    int64_t data_offset;  /* where the values begin */
} tl_npy_header;

typedef struct tl_npy_options {
    const char *as; /* NULL, or the format whose bits the file holds as unsigned integers: "bf16", "f8e4m3", "f8e5m2" */
    bool copy;      /* never map */
} tl_npy_options;

/* Header of a file that begins with these `size` bytes and is `total` bytes long. `name` stands in messages. */
tl_status tl_npy_parse(const void *bytes, size_t size, int64_t total, const char *name, tl_npy_header *header,
                       tl_error *error) TL_MUST_CHECK;
/* The header of a file, and that the file is as long as it says. */
tl_status tl_npy_peek(const char *path, tl_npy_header *header, tl_error *error) TL_MUST_CHECK;
/* The array as a tensor of category data in the current scope; options NULL: all as it is, mapped where possible. On meta
 * only the header is read. NULL with the context's error. */
tl_tensor *tl_npy_read(tl_ctx *ctx, const char *path, const tl_npy_options *options);
/* Writes under a temporary name beside `path`, flushes it to the disk and renames: the old file or the new one, never half
 * of one. A tensor whose first axis is fastest is written in Fortran order, any other in C order. On failure the context's
 * error sticks. */
tl_status tl_npy_write(const tl_tensor *t, const char *path) TL_MUST_CHECK;

/* ---- archives ---- */
typedef struct tl_npz tl_npz;
typedef struct tl_npz_member {
    const char *name;            /* without ".npy", as in NumPy */
    int64_t bytes, stored_bytes; /* of the .npy: unpacked, and in the archive */
    bool deflated;
} tl_npz_member;

/* Reads the directory. NULL with *error filled. allocator NULL: malloc. */
tl_npz *tl_npz_open(const char *path, const tl_allocator *allocator, tl_error *error);
void tl_npz_close(tl_npz *npz);
int tl_npz_count(const tl_npz *npz);
const tl_npz_member *tl_npz_at(const tl_npz *npz, int index); /* NULL outside */
int tl_npz_find(const tl_npz *npz, const char *name);         /* −1: not there */
tl_status tl_npz_peek(const tl_npz *npz, int index, tl_npy_header *header, tl_error *error) TL_MUST_CHECK;
/* As tl_npy_read; the member's length and CRC-32 are checked. */
tl_tensor *tl_npz_read(tl_ctx *ctx, const tl_npz *npz, const char *name, const tl_npy_options *options);

typedef struct tl_npz_entry {
    const char *name;
    const tl_tensor *tensor;
} tl_npz_entry;
/* All of them, from one context, atomically as tl_npy_write. The same tensors give the same bytes: no clock enters. */
tl_status tl_npz_write(const char *path, const tl_npz_entry *entries, int count, bool deflate,
                       tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
