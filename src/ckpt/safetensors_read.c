/* ckpt/safetensors_read.c: a file of named tensors, checked before a value is read. The order of checks and what each
 * refuses follow the format's text and its reference reader (safetensors/src/tensor.rs, Metadata::validate). */
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nearest.h"
#include "config/tensor_header.h"
#include "config/text.h"

enum { SNIFFED = 512 };

struct tl_safetensors {
    int file;
    char name[512]; /* for messages */
    int64_t length, start;
    tl_tensor_header header;
    tl_safetensors_tensor *tensors; /* in the order of their values */
    const tl_safetensors_tensor **by_name;
};

/* safetensors/src/tensor.rs, enum Dtype. */
static const tl_safetensors_format formats[] = {
    {"F64", 64, TL_F64},
    {"F32", 32, TL_F32},
    {"F16", 16, TL_F16},
    {"BF16", 16, TL_BF16},
    {"F8_E4M3", 8, TL_F8E4M3},
    {"F8_E5M2", 8, TL_F8E5M2},
    {"I64", 64, TL_I64},
    {"I32", 32, TL_I32},
    {"I16", 16, TL_I16},
    {"I8", 8, TL_I8},
    {"U16", 16, TL_U16},
    {"U8", 8, TL_U8},
    {"BOOL", 8, TL_BOOL},
    {"U64", 64, TL_DTYPE_COUNT},
    {"U32", 32, TL_DTYPE_COUNT},
    {"C64", 64, TL_DTYPE_COUNT},
    {"F8_E8M0", 8, TL_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, TL_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, TL_DTYPE_COUNT},
    {"F6_E2M3", 6, TL_DTYPE_COUNT},
    {"F6_E3M2", 6, TL_DTYPE_COUNT},
    {"F4", 4, TL_DTYPE_COUNT},
};

const tl_safetensors_format *tl_safetensors_format_of(const char *word) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].word, word) == 0)
            return &formats[i];
    return NULL;
}

const char *tl_safetensors_word(tl_dtype dtype) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].dtype == dtype && dtype != TL_DTYPE_COUNT)
            return formats[i].word;
    return "unknown";
}

/* ---- bytes ---- */

tl_status tl_safetensors_read_raw(const tl_safetensors *f, int64_t offset, void *out, int64_t bytes, tl_error *error) {
    char *at = out;
    if (offset < 0 || bytes < 0 || offset > f->length || bytes > f->length - offset)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s: bytes %lld to %lld of a file of %lld", f->name, (long long)offset,
                       (long long)offset + (long long)bytes, (long long)f->length);
    while (bytes > 0) {
        ssize_t n = pread(f->file, at, bytes < 1 << 24 ? (size_t)bytes : (size_t)1 << 24, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int reason = errno;
            return tl_fail(error, TL_ERR_IO, "cannot read %s: %s", f->name, strerror(reason));
        }
        if (n == 0)
            return tl_fail(error, TL_ERR_FORMAT, "%s has become shorter while it was read: it ends at byte %lld",
                           f->name, (long long)offset);
        at += n;
        bytes -= n;
        offset += n;
    }
    return TL_OK;
}

tl_status tl_safetensors_read(const tl_safetensors *f, const tl_safetensors_tensor *t, int64_t from, void *out,
                              int64_t bytes, tl_error *error) {
    if (from < 0 || bytes < 0 || from > t->bytes || bytes > t->bytes - from) {
        char name[128];
        return tl_fail(error, TL_ERR_ARGUMENT, "%s: bytes %lld and %lld more of \"%s\", which has %lld", f->name,
                       (long long)from, (long long)bytes, tl_quotable(t->name, strlen(t->name), name, sizeof name),
                       (long long)t->bytes);
    }
    return tl_safetensors_read_raw(f, t->offset + from, out, bytes, error);
}

/* ---- what else the file may be ---- */

/* NULL: the first bytes do not say. */
static const char *what_is_it(const char *head, size_t n) {
    static const char pickle[] = "data.pkl";
    if (n > 4 && memcmp(head, "PK\3\4", 4) == 0 && memmem(head, n, pickle, sizeof pickle - 1))
        return "a PyTorch checkpoint (a zip archive with a pickle in it: code, not data)";
    const char *what = tl_config_sniff(head, n);
    if (what && (strcmp(what, "a safetensors file") == 0 || strcmp(what, "a binary file") == 0))
        return NULL; /* says no more than what is wrong with it */
    if (!what && head[0] == '{')
        return "JSON: a model's index or description, not its weights";
    bool text = n > 0;
    for (size_t i = 0; i < n; i++)
        text = text && ((head[i] >= 0x20 && head[i] < 0x7f) || head[i] == '\n' || head[i] == '\r' || head[i] == '\t');
    return what ? what : text ? "text (a server's answer instead of the file?)" : NULL;
}

/* TL_ERR_FORMAT in any case: `why` unless the file is known as something else. */
static tl_status no_header(const tl_safetensors *f, const char *why, tl_error *error) {
    char head[SNIFFED];
    int64_t n = f->length < SNIFFED ? f->length : SNIFFED;
    tl_status status = tl_safetensors_read_raw(f, 0, head, n, error);
    if (status != TL_OK)
        return status;
    const char *what = n > 0 ? what_is_it(head, (size_t)n) : NULL;
    if (what)
        return tl_fail(error, TL_ERR_FORMAT, "%s is no safetensors file: it is %s", f->name, what);
    return tl_fail(error, TL_ERR_FORMAT, "%s is no safetensors file: %s", f->name, why);
}

/* ---- the header ---- */

static tl_status wrong(const tl_safetensors *f, const tl_header_tensor *t, tl_error *error, const char *format, ...)
    TL_PRINTF(4, 5);

static tl_status wrong(const tl_safetensors *f, const tl_header_tensor *t, tl_error *error, const char *format, ...) {
    char name[128], what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return tl_fail(error, TL_ERR_FORMAT, "%s: tensor \"%s\" %s", f->name,
                   tl_quotable(t->name, strlen(t->name), name, sizeof name), what);
}

/* One entry on its own: its format and whether its range has the bytes its shape comes to. */
static tl_status check_tensor(const tl_safetensors *f, const tl_header_tensor *h, tl_safetensors_tensor *t,
                              tl_error *error) {
    const tl_safetensors_format *format = tl_safetensors_format_of(h->dtype);
    int64_t count = 1, bits = 0;
    if (!format) {
        char word[48];
        return wrong(f, h, error, "has the dtype \"%s\", which the format does not have",
                     tl_quotable(h->dtype, strlen(h->dtype), word, sizeof word));
    }
    for (int64_t i = 0; i < h->ndim; i++)
        if (!tl_mul_i64(count, h->dim[i], &count))
            return wrong(f, h, error, "has a shape whose sizes multiply to more than 63 bits");
    if (!tl_mul_i64(count, format->bits, &bits))
        return wrong(f, h, error, "holds more bytes than 63 bits count");
    if (bits % 8 != 0)
        return wrong(f, h, error, "ends in the middle of a byte: %lld values of %d bits", (long long)count,
                     format->bits);
    if (h->begin > h->end)
        return wrong(f, h, error, "begins at %lld, after its end at %lld", (long long)h->begin, (long long)h->end);
    if (h->end - h->begin != bits / 8)
        return wrong(f, h, error, "has %lld bytes between its offsets; its shape and dtype (%lld × %s) come to %lld",
                     (long long)(h->end - h->begin), (long long)count, format->word, (long long)(bits / 8));
    *t = (tl_safetensors_tensor){.name = h->name,
                                 .format = format->word,
                                 .dtype = format->dtype,
                                 .dim = h->dim,
                                 .ndim = h->ndim,
                                 .count = count,
                                 .bytes = bits / 8};
    return TL_OK;
}

static int by_place(const void *a, const void *b) {
    const tl_header_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name; /* names lie in the file's order */
}

static int by_name(const void *a, const void *b) {
    const tl_safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Ranges must follow one another and end with the file. */
static tl_status check_places(tl_safetensors *f, tl_error *error) {
    tl_header_tensor *h = f->header.tensors;
    int64_t at = 0, room = f->length - f->start;
    qsort(h, (size_t)f->header.count, sizeof *h, by_place);
    for (int64_t i = 0; i < f->header.count; i++) {
        tl_status status = check_tensor(f, &h[i], &f->tensors[i], error);
        if (status != TL_OK)
            return status;
        if (h[i].begin != at)
            return wrong(f, &h[i], error, "begins at %lld, the tensor before it ends at %lld: %s",
                         (long long)h[i].begin, (long long)at, h[i].begin < at ? "they overlap" : "there is a gap");
        at = h[i].end;
        if (at > room)
            return wrong(f, &h[i], error,
                         "ends %lld bytes behind the header, the file %lld: its end is missing (half a download, or a "
                         "disk that was full?)",
                         (long long)at, (long long)room);
        f->tensors[i].offset = f->start + h[i].begin;
        f->by_name[i] = &f->tensors[i];
    }
    if (at != room)
        return tl_fail(error, TL_ERR_FORMAT, "%s: %lld bytes follow the last tensor", f->name, (long long)(room - at));
    qsort(f->by_name, (size_t)f->header.count, sizeof *f->by_name, by_name);
    return TL_OK;
}

static tl_status read_header(tl_safetensors *f, tl_error *error) {
    unsigned char start[8];
    uint64_t length = 0;
    if (f->length == 0)
        return tl_fail(error, TL_ERR_FORMAT, "%s is empty", f->name);
    if (f->length < 8)
        return no_header(f, "it is shorter than the 8 bytes such a file starts with", error);
    tl_status status = tl_safetensors_read_raw(f, 0, start, 8, error);
    if (status != TL_OK)
        return status;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | start[i];
    if (length > TL_SAFETENSORS_LARGEST_HEADER)
        return no_header(f, "its header would be larger than 100,000,000 bytes", error);
    if (length > (uint64_t)f->length - 8) {
        char why[160];
        snprintf(why, sizeof why, "its header would have %llu bytes, the file has %lld: its end is missing",
                 (unsigned long long)length, (long long)f->length);
        return no_header(f, why, error);
    }
    char *text = malloc((size_t)length + 1);
    if (!text)
        return tl_fail(error, TL_ERR_MEMORY, "%s: no memory for its header of %llu bytes", f->name,
                       (unsigned long long)length);
    status = tl_safetensors_read_raw(f, 8, text, (int64_t)length, error);
    text[length] = '\0';
    if (status == TL_OK && text[strspn(text, " \t\r\n")] != '{')
        status = no_header(f, "its header is no JSON object", error);
    if (status == TL_OK)
        status = tl_tensor_header_parse(text, (size_t)length, f->name, &f->header, error);
    free(text);
    f->start = 8 + (int64_t)length;
    return status;
}

static tl_status check(tl_safetensors *f, tl_error *error) {
    struct stat st;
    if (fstat(f->file, &st) != 0) {
        int reason = errno;
        return tl_fail(error, TL_ERR_IO, "cannot read %s: %s", f->name, strerror(reason));
    }
    if (!S_ISREG(st.st_mode))
        return tl_fail(error, TL_ERR_FORMAT, "%s is %s", f->name,
                       S_ISDIR(st.st_mode) ? "a folder, no file" : "no regular file");
    f->length = (int64_t)st.st_size;
    tl_status status = read_header(f, error);
    if (status != TL_OK)
        return status;
    size_t n = (size_t)f->header.count + 1;
    f->tensors = calloc(n, sizeof *f->tensors);
    f->by_name = calloc(n, sizeof *f->by_name);
    if (!f->tensors || !f->by_name)
        return tl_fail(error, TL_ERR_MEMORY, "%s: no memory for its table of tensors", f->name);
    return check_places(f, error);
}

tl_safetensors *tl_safetensors_open(const char *path, tl_error *error) {
    tl_safetensors *f = calloc(1, sizeof *f);
    if (!f) {
        tl_fail(error, TL_ERR_MEMORY, "no memory to open a file");
        return NULL;
    }
    tl_quotable(path, strlen(path), f->name, sizeof f->name);
    do
        f->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* never waits for a FIFO */
    while (f->file < 0 && errno == EINTR);
    if (f->file < 0) {
        int reason = errno;
        tl_fail(error, reason == ENOENT ? TL_ERR_NOT_FOUND : TL_ERR_IO, "cannot open %s: %s", f->name,
                strerror(reason));
        free(f);
        return NULL;
    }
    if (check(f, error) != TL_OK) {
        tl_safetensors_close(f);
        return NULL;
    }
    return f;
}

void tl_safetensors_close(tl_safetensors *f) {
    if (!f)
        return;
    (void)close(f->file); /* only read from */
    tl_tensor_header_free(&f->header);
    free(f->tensors);
    free(f->by_name);
    free(f);
}

/* ---- what it holds ---- */

int64_t tl_safetensors_count(const tl_safetensors *f) { return f->header.count; }

int64_t tl_safetensors_bytes(const tl_safetensors *f) { return f->length; }

int64_t tl_safetensors_header_bytes(const tl_safetensors *f) { return f->start; }

const tl_safetensors_tensor *tl_safetensors_at(const tl_safetensors *f, int64_t index) {
    return index >= 0 && index < f->header.count ? &f->tensors[index] : NULL;
}

const tl_safetensors_tensor *tl_safetensors_find(const tl_safetensors *f, const char *name) {
    int64_t low = 0, high = f->header.count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, f->by_name[middle]->name);
        if (order == 0)
            return f->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

int64_t tl_safetensors_metadata_count(const tl_safetensors *f) { return f->header.pairs; }

const char *tl_safetensors_metadata_key(const tl_safetensors *f, int64_t index) {
    return index >= 0 && index < f->header.pairs ? f->header.metadata[index].key : NULL;
}

const char *tl_safetensors_metadata(const tl_safetensors *f, const char *key) {
    for (int64_t i = 0; i < f->header.pairs; i++)
        if (strcmp(f->header.metadata[i].key, key) == 0)
            return f->header.metadata[i].value;
    return NULL;
}
