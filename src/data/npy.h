/* data/npy.h: what .npy and .npz share. Internal. */
#ifndef TALLY_DATA_NPY_H
#define TALLY_DATA_NPY_H

#include "tally/npy.h"

/* NumPy itself refuses headers of more than 10,000 characters; a shape of eight axes takes 200. */
enum { TL_NPY_HEADER_MAX = 16384, TL_NPY_PREFIX = 12 };

/* Bytes in order: a file, or a member of an archive as it is unpacked. */
typedef struct tl_npy_stream {
    tl_status (*read)(void *self, void *to, uint64_t bytes, tl_error *error); /* all of them, or an error */
    void *self;
    int64_t total;    /* bytes from the first to the last */
    const char *name; /* in messages */
} tl_npy_stream;

/* Where bytes go. */
typedef struct tl_npy_sink {
    tl_status (*put)(void *self, const void *data, uint64_t bytes, tl_error *error);
    void *self;
} tl_npy_sink;

/* Magic, version and header length of a file that begins with `size` bytes (TL_NPY_PREFIX, or all there are): where the
 * values begin. What is no .npy is named. */
tl_status tl_npy_prefix(const unsigned char *bytes, size_t size, int64_t total, const char *name, int *version,
                        int64_t *header_at, int64_t *data_at, tl_error *error);
/* The header, from the stream's first byte; the stream then stands at the values. */
tl_status tl_npy_stream_header(tl_npy_stream *stream, tl_npy_header *header, tl_error *error);
/* The dtype that the values get; refuses what cannot be. */
tl_status tl_npy_dtype(const tl_npy_header *header, const tl_npy_options *options, const char *name, tl_dtype *dtype,
                       tl_error *error);
/* A tensor of the header's shape with the values that follow in the stream. */
tl_tensor *tl_npy_stream_tensor(tl_ctx *ctx, tl_npy_stream *stream, const tl_npy_header *header, tl_dtype dtype);

/* The whole .npy of a tensor. Its length, to know before: tl_npy_length. */
tl_status tl_npy_put(const tl_tensor *t, tl_npy_sink *sink, tl_error *error);
int64_t tl_npy_length(const tl_tensor *t); /* −1: beyond 2^63 */

/* For tests: members of this many bytes or more, and archives that long, are written with 64-bit fields. */
tl_status tl_npz_write_wide(const char *path, const tl_npz_entry *entries, int count, bool deflate, uint64_t wide_from,
                            tl_error *error);

#endif
