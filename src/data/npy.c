/* data/npy.c: .npy files, read (mapped where they can be used as they lie) and written. */
#include "data/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/replace.h"
#include "tensor/ctx.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are used as they lie in a little-endian file");

/* ---- reading ---- */

typedef struct opened {
    int file;
    int64_t bytes, at;
    const char *path;
} opened;

static tl_status open_file(const char *path, opened *o, tl_error *error) {
    struct stat about;
    *o = (opened){.path = path};
    o->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not keep us waiting */
    if (o->file < 0 || fstat(o->file, &about) != 0) {
        int reason = errno;
        if (o->file >= 0)
            close(o->file);
        return tl_fail(error, TL_ERR_IO, "cannot read %s: %s", path, strerror(reason));
    }
    if (!S_ISREG(about.st_mode)) {
        close(o->file);
        return tl_fail(error, TL_ERR_IO, "cannot read %s: it is no regular file", path);
    }
    o->bytes = (int64_t)about.st_size;
    return TL_OK;
}

static tl_status read_file(void *self, void *to, uint64_t bytes, tl_error *error) {
    opened *o = self;
    char *at = to;
    while (bytes > 0) {
        ssize_t n = pread(o->file, at, bytes < 1 << 24 ? (size_t)bytes : (size_t)1 << 24, (off_t)o->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int reason = errno;
            return tl_fail(error, TL_ERR_IO, "cannot read %s: %s", o->path, strerror(reason));
        }
        if (n == 0)
            return tl_fail(error, TL_ERR_IO, "%s became shorter while it was read", o->path);
        at += n;
        o->at += n;
        bytes -= (uint64_t)n;
    }
    return TL_OK;
}

tl_status tl_npy_peek(const char *path, tl_npy_header *header, tl_error *error) {
    opened o;
    tl_status status = open_file(path, &o, error);
    if (status != TL_OK)
        return status;
    tl_npy_stream stream = {read_file, &o, o.bytes, path};
    status = tl_npy_stream_header(&stream, header, error);
    close(o.file);
    return status;
}

static void header_shape(const tl_npy_header *h, tl_ctx *ctx, tl_shape *shape, int64_t stride[TL_MAX_NDIM]) {
    *shape = (tl_shape){.ndim = h->ndim};
    for (int i = 0; i < h->ndim; i++)
        shape->dim[i] = tl_dim_fixed(ctx, tl_dim_of(h->size[i]));
    tl_shape_contiguous(shape, stride);
    if (!h->fortran)
        return;
    int64_t step = 1;
    for (int i = 0; i < h->ndim; i++) {
        stride[i] = step;
        step *= h->size[i] ? h->size[i] : 1;
    }
}

static void swap_bytes(unsigned char *values, int64_t count, int bytes) {
    for (int64_t i = 0; i < count; i++, values += bytes)
        for (int a = 0, b = bytes - 1; a < b; a++, b--) {
            unsigned char byte = values[a];
            values[a] = values[b];
            values[b] = byte;
        }
}

static tl_status check_bools(const unsigned char *values, int64_t count, const char *name, tl_error *error) {
    for (int64_t i = 0; i < count; i++)
        if (values[i] > 1)
            return tl_fail(error, TL_ERR_FORMAT, "%s: value %lld of a bool array is %d; 0 and 1 are all there may be",
                           name, (long long)i, values[i]);
    return TL_OK;
}

/* A handle on the storage, which is given up. */
static tl_tensor *tensor_on(tl_ctx *ctx, const tl_npy_header *h, tl_dtype dtype, tl_storage *storage) {
    tl_shape shape;
    int64_t stride[TL_MAX_NDIM];
    if (!storage)
        return NULL;
    header_shape(h, ctx, &shape, stride);
    tl_tensor *t = tl_tensor_on(ctx, storage, dtype, &shape, stride, 0);
    tl_storage_unref(storage);
    return t;
}

static const tl_poly *formula_of(tl_ctx *ctx, const tl_npy_header *h) {
    tl_shape shape;
    int64_t stride[TL_MAX_NDIM];
    header_shape(h, ctx, &shape, stride);
    return tl_shape_formula(ctx, &shape, h->element_bytes);
}

tl_tensor *tl_npy_stream_tensor(tl_ctx *ctx, tl_npy_stream *stream, const tl_npy_header *h, tl_dtype dtype) {
    tl_error error = {TL_OK, ""};
    tl_status status = TL_OK;
    tl_storage *storage = tl_storage_new(ctx, h->bytes, formula_of(ctx, h), TL_DATA);
    if (storage && storage->data) {
        status = stream->read(stream->self, storage->data, (uint64_t)h->bytes, &error);
        if (status == TL_OK && h->swapped)
            swap_bytes((unsigned char *)storage->data, h->count, h->element_bytes);
        if (status == TL_OK && h->kind == 'b')
            status = check_bools((unsigned char *)storage->data, h->count, stream->name, &error);
    }
    if (status != TL_OK) {
        tl_storage_unref(storage);
        tl_ctx_fail(ctx, status, "%s", error.message);
        return NULL;
    }
    return tensor_on(ctx, h, dtype, storage);
}

typedef struct mapping {
    tl_ctx *ctx;
    void *base;
    size_t length;
} mapping;

static void unmap(void *self, void *data) {
    mapping *m = self;
    (void)data;
    munmap(m->base, m->length);
    tl_host_free(m->ctx, m, sizeof *m);
}

/* False: the values are to be copied instead (a file system that maps nothing). */
static bool map_tensor(tl_ctx *ctx, const opened *o, const tl_npy_header *h, tl_dtype dtype, tl_tensor **out) {
    if (!ctx->kernels || h->bytes == 0 || h->swapped || h->kind == 'b' || h->data_offset % h->element_bytes ||
        (uint64_t)o->bytes > SIZE_MAX)
        return false;
    /* Writable, or writing into the tensor would end the program; private, so that it does not reach the file. */
    void *base = mmap(NULL, (size_t)o->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, o->file, 0);
    if (base == MAP_FAILED)
        return false;
    mapping *m = tl_host_alloc(ctx, sizeof *m);
    tl_storage *storage = NULL;
    if (m) {
        *m = (mapping){ctx, base, (size_t)o->bytes};
        storage =
            tl_storage_external(ctx, h->bytes, formula_of(ctx, h), TL_DATA, (char *)base + h->data_offset, unmap, m);
    }
    if (!storage) {
        munmap(base, (size_t)o->bytes);
        tl_host_free(ctx, m, sizeof *m);
    }
    *out = tensor_on(ctx, h, dtype, storage);
    return true;
}

tl_tensor *tl_npy_read(tl_ctx *ctx, const char *path, const tl_npy_options *options) {
    tl_error error = {TL_OK, ""};
    tl_npy_header header;
    tl_dtype dtype = TL_F32;
    tl_tensor *t = NULL;
    opened o;
    if (ctx->error.status != TL_OK)
        return NULL;
    tl_status status = open_file(path, &o, &error);
    if (status != TL_OK) {
        tl_ctx_fail(ctx, status, "%s", error.message);
        return NULL;
    }
    tl_npy_stream stream = {read_file, &o, o.bytes, path};
    status = tl_npy_stream_header(&stream, &header, &error);
    if (status == TL_OK)
        status = tl_npy_dtype(&header, options, path, &dtype, &error);
    if (status != TL_OK)
        tl_ctx_fail(ctx, status, "%s", error.message);
    else if ((options && options->copy) || !map_tensor(ctx, &o, &header, dtype, &t))
        t = tl_npy_stream_tensor(ctx, &stream, &header, dtype);
    close(o.file); /* a mapping outlives it */
    return t;
}

/* ---- writing ---- */

static const struct {
    const char *dtype, *descr;
} descriptions[] = {
    {"f64", "<f8"},    {"f32", "<f4"}, {"f16", "<f2"},  {"bf16", "<u2"}, {"f8e4m3", "|u1"},
    {"f8e5m2", "|u1"}, {"i64", "<i8"}, {"i32", "<i4"},  {"i16", "<i2"},  {"i8", "|i1"},
    {"u16", "<u2"},    {"u8", "|u1"},  {"bool", "|b1"},
};

static const char *descr_of(tl_dtype dtype) {
    for (size_t i = 0; i < sizeof descriptions / sizeof descriptions[0]; i++)
        if (strcmp(descriptions[i].dtype, tl_dtype_name(dtype)) == 0)
            return descriptions[i].descr;
    return "?";
}

/* The first axis is fastest and the elements lie without gaps. */
static bool is_fortran(const tl_tensor *t) {
    int64_t step = 1;
    for (int i = 0; i < t->shape.ndim; i++) {
        if (t->shape.dim[i].size == 1)
            continue;
        if (t->stride[i] != step)
            return false;
        step *= t->shape.dim[i].size;
    }
    return !tl_tensor_is_contiguous(t);
}

enum { HEADER_ROOM = 512, ALIGN = 64, GATHER = 1 << 16 };

/* As NumPy writes it: version 1.0, blanks up to a multiple of 64, among them room for the outermost axis to grow to 20
 * digits. Returns the length. */
static size_t make_header(const tl_tensor *t, char out[HEADER_ROOM]) {
    char shape[TL_MAX_NDIM * 24 + 8];
    int n = 0, ndim = t->shape.ndim;
    bool fortran = is_fortran(t);
    for (int i = 0; i < ndim; i++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", i ? ", " : "", (long long)t->shape.dim[i].size);
    shape[n] = 0;
    int length = snprintf(out + 10, HEADER_ROOM - 10, "{'descr': '%s', 'fortran_order': %s, 'shape': (%s%s), }",
                          descr_of(t->dtype), fortran ? "True" : "False", n ? shape : "", ndim == 1 ? "," : "");
    size_t used = (size_t)length + 10;
    if (ndim > 0) {
        int digits = snprintf(shape, sizeof shape, "%lld", (long long)t->shape.dim[fortran ? ndim - 1 : 0].size);
        for (int i = digits; i < 21; i++)
            out[used++] = ' ';
    }
    while ((used + 1) % ALIGN)
        out[used++] = ' ';
    out[used++] = '\n';
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (char)((used - 10) & 0xff);
    out[9] = (char)((used - 10) >> 8);
    return used;
}

int64_t tl_npy_length(const tl_tensor *t) {
    char header[HEADER_ROOM];
    int64_t bytes = 0;
    return tl_mul_i64(tl_tensor_count(t), tl_dtype_bytes(t->dtype), &bytes) &&
                   tl_add_i64(bytes, (int64_t)make_header(t, header), &bytes)
               ? bytes
               : -1;
}

/* Elements of any strides, in order, through a block that fits the cache. */
static tl_status put_gathered(const tl_tensor *t, tl_npy_sink *sink, tl_error *error) {
    char block[GATHER];
    size_t used = 0, element = (size_t)tl_dtype_bytes(t->dtype);
    int64_t index[TL_MAX_NDIM] = {0}, count = tl_tensor_count(t), at = 0;
    const char *from = tl_tensor_data(t);
    for (int64_t i = 0; i < count; i++) {
        memcpy(block + used, from + at * (int64_t)element, element);
        used += element;
        if (used == GATHER || i == count - 1) {
            tl_status status = sink->put(sink->self, block, used, error);
            if (status != TL_OK)
                return status;
            used = 0;
        }
        for (int d = t->shape.ndim - 1; d >= 0; d--) {
            at += t->stride[d];
            if (++index[d] < t->shape.dim[d].size)
                break;
            at -= t->stride[d] * index[d];
            index[d] = 0;
        }
    }
    return TL_OK;
}

tl_status tl_npy_put(const tl_tensor *t, tl_npy_sink *sink, tl_error *error) {
    char header[HEADER_ROOM];
    tl_status status = sink->put(sink->self, header, make_header(t, header), error);
    uint64_t bytes = (uint64_t)tl_tensor_count(t) * (uint64_t)tl_dtype_bytes(t->dtype);
    if (status != TL_OK || bytes == 0)
        return status;
    return tl_tensor_is_contiguous(t) || is_fortran(t) ? sink->put(sink->self, tl_tensor_data(t), bytes, error)
                                                       : put_gathered(t, sink, error);
}

static tl_status put_file(void *self, const void *data, uint64_t bytes, tl_error *error) {
    return tl_replace_write(self, data, bytes, error);
}

tl_status tl_npy_write(const tl_tensor *t, const char *path) {
    tl_error error = {TL_OK, ""};
    tl_replace replace;
    if (!t)
        return TL_ERR_ARGUMENT; /* the context knows why */
    if (t->ctx->error.status != TL_OK)
        return t->ctx->error.status;
    if (!t->ctx->kernels)
        return tl_ctx_fail(t->ctx, TL_ERR_STATE, "a tensor on meta has no values to write to %s", path);
    tl_npy_sink sink = {put_file, &replace};
    tl_status status = tl_replace_begin(&replace, path, &error);
    if (status == TL_OK)
        status = tl_replace_end(&replace, tl_npy_put(t, &sink, &error), &error);
    return status == TL_OK ? TL_OK : tl_ctx_fail(t->ctx, status, "%s", error.message);
}
