/* data/npy_header.c: the header of a .npy, a Python dictionary with three keys. Anybody may have written it, so it is read
 * letter by letter, and what is not understood is refused with what was found and what would work. */
#include <string.h>

#include "data/npy.h"

typedef struct cursor {
    const char *at, *end;
    const char *name; /* of the file */
    tl_error *error;
} cursor;

/* Printable ASCII of at most 40 characters: messages go to terminals. */
typedef struct quoted {
    char text[48];
} quoted;

static quoted quote(const char *at, const char *end) {
    quoted q;
    size_t n = 0;
    while (at < end && n < 40) {
        q.text[n++] = *at >= 0x20 && *at < 0x7f ? *at : '?';
        at++;
    }
    if (at < end) {
        memcpy(q.text + n, "...", 3);
        n += 3;
    }
    q.text[n] = 0;
    return q;
}

static tl_status refuse(const cursor *c, const char *wanted) {
    return tl_fail(c->error, TL_ERR_FORMAT, "%s: the header has \"%s\" where %s is wanted", c->name,
                   quote(c->at, c->end).text, wanted);
}

static void blanks(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
        c->at++;
}

static bool take(cursor *c, char wanted) {
    blanks(c);
    if (c->at >= c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static bool take_word(cursor *c, const char *word) {
    size_t n = strlen(word);
    blanks(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* A string in single or double quotes without escapes; *text points into the header. */
static bool take_string(cursor *c, const char **text, size_t *length) {
    blanks(c);
    if (c->at >= c->end || (*c->at != '\'' && *c->at != '"'))
        return false;
    const char *from = c->at + 1, *to = from;
    while (to < c->end && *to != *c->at && *to != '\\' && *to != '\n')
        to++;
    if (to >= c->end || *to != *c->at)
        return false;
    *text = from;
    *length = (size_t)(to - from);
    c->at = to + 1;
    return true;
}

/* ---- descr ---- */

static const struct {
    char kind;
    int bytes;
    const char *dtype;
} numbers[] = {
    {'f', 2, "f16"}, {'f', 4, "f32"}, {'f', 8, "f64"}, {'i', 1, "i8"}, {'i', 2, "i16"}, {'i', 4, "i32"},
    {'i', 8, "i64"}, {'u', 1, "u8"},  {'u', 2, "u16"}, {'u', 4, ""},   {'u', 8, ""},    {'b', 1, "bool"},
};

/* Formats NumPy knows and a tensor library for language models does not want. */
static tl_status refuse_kind(const cursor *c, quoted descr, char kind) {
    static const struct {
        char kind;
        const char *what;
    } kinds[] = {
        {'O', "Python objects, that is a pickle: code, not data, never loaded here; in Python, save numbers: "
              "np.save(file, a.astype('f4'))"},
        {'U', "text; only numbers are read: encode it first"},
        {'S', "byte strings; only numbers are read: np.frombuffer(s, 'u1')"},
        {'a', "byte strings; only numbers are read: np.frombuffer(s, 'u1')"},
        {'V', "raw records; only numbers are read: save each field as an array of its own"},
        {'c', "complex numbers; save a.real and a.imag"},
        {'M', "dates; save a.astype('i8')"},
        {'m', "spans of time; save a.astype('i8')"},
        {'f', "floats of a size not read here; f2, f4 and f8 are: a.astype('f8')"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == kind)
            return tl_fail(c->error, TL_ERR_UNSUPPORTED, "%s: descr '%s' is %s", c->name, descr.text, kinds[i].what);
    return tl_fail(c->error, TL_ERR_FORMAT,
                   "%s: descr '%s' is no number format; '<f4', '<i8', '|u1' and their like would work", c->name,
                   descr.text);
}

static tl_status parse_descr(cursor *c, tl_npy_header *h) {
    const char *text = NULL;
    size_t length = 0;
    blanks(c);
    if (c->at < c->end && *c->at == '[')
        return tl_fail(
            c->error, TL_ERR_UNSUPPORTED,
            "%s: descr %s is a structured format; only numbers are read: save each field as an array of its own",
            c->name, quote(c->at, c->end).text);
    if (!take_string(c, &text, &length))
        return refuse(c, "a format in quotes, '<f4',");
    quoted found = quote(text, text + length);
    const char *at = text, *end = text + length;
    char order = 0;
    if (at < end && strchr("<>|=", *at) && *at)
        order = *at++;
    char kind = at < end ? *at++ : '\0';
    int bytes = 0, digits = 0;
    for (; at < end && *at >= '0' && *at <= '9' && digits < 3; digits++)
        bytes = bytes * 10 + (*at++ - '0');
    size_t i = 0, n = sizeof numbers / sizeof numbers[0];
    while (i < n && (numbers[i].kind != kind || numbers[i].bytes != bytes))
        i++;
    if (i == n || at != end || length >= sizeof h->descr)
        return refuse_kind(c, found, kind);
    if (bytes > 1 && order != '<' && order != '>')
        return tl_fail(c->error, TL_ERR_FORMAT,
                       "%s: descr '%s' does not say in which order the bytes are; '<%c%d' would", c->name, found.text,
                       kind, bytes);
    memcpy(h->descr, text, length);
    h->descr[length] = 0;
    h->kind = kind;
    h->element_bytes = bytes;
    h->swapped = bytes > 1 && order == '>';
    h->dtype = tl_dtype_parse(numbers[i].dtype);
    h->has_dtype = h->dtype != TL_DTYPE_COUNT;
    return TL_OK;
}

/* ---- shape ---- */

static tl_status parse_size(cursor *c, int64_t *size) {
    blanks(c);
    const char *from = c->at;
    int64_t value = 0;
    if (from < c->end && *from == '-')
        return refuse(c, "a size of 0 or more");
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (!tl_mul_i64(value, 10, &value) || !tl_add_i64(value, *c->at - '0', &value))
            return tl_fail(c->error, TL_ERR_OVERFLOW, "%s: the size %s is beyond 2^63", c->name,
                           quote(from, c->end).text);
    if (c->at == from)
        return refuse(c, "a size");
    if (c->at - from > 1 && *from == '0') { /* Python reads no 010 either */
        c->at = from;
        return refuse(c, "a size without leading zeros");
    }
    if (c->at < c->end && *c->at == 'L') /* written by Python 2 */
        c->at++;
    *size = value;
    return TL_OK;
}

static tl_status parse_shape(cursor *c, tl_npy_header *h) {
    int64_t n = 0;
    bool comma = true;
    if (!take(c, '('))
        return refuse(c, "a shape, (4, 8),");
    while (!take(c, ')')) {
        int64_t size = 0;
        if (!comma)
            return refuse(c, "a comma or the shape's end");
        tl_status status = parse_size(c, &size);
        if (status != TL_OK)
            return status;
        if (n < TL_MAX_NDIM)
            h->size[n] = size;
        n++;
        comma = take(c, ',');
    }
    if (n == 1 && !comma)
        return tl_fail(c->error, TL_ERR_FORMAT, "%s: the shape (%lld) is a number to Python; (%lld,) is one axis",
                       c->name, (long long)h->size[0], (long long)h->size[0]);
    if (n > TL_MAX_NDIM)
        return tl_fail(c->error, TL_ERR_UNSUPPORTED, "%s: %lld axes; at most %d are read", c->name, (long long)n,
                       TL_MAX_NDIM);
    h->ndim = (int)n;
    return TL_OK;
}

static tl_status check_sizes(cursor *c, tl_npy_header *h) {
    int64_t product = h->element_bytes; /* zeros apart: strides must not overflow either */
    bool zero = false;
    h->count = 1;
    for (int i = 0; i < h->ndim; i++) {
        zero = zero || h->size[i] == 0;
        if (h->size[i] && !tl_mul_i64(product, h->size[i], &product))
            return tl_fail(c->error, TL_ERR_OVERFLOW, "%s: the sizes up to axis %d multiply to more than 2^63 bytes",
                           c->name, i);
    }
    h->count = zero ? 0 : product / h->element_bytes;
    h->bytes = zero ? 0 : product;
    return TL_OK;
}

/* ---- the dictionary ---- */

static tl_status parse_entry(cursor *c, tl_npy_header *h, unsigned *seen) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    const char *key = NULL;
    size_t length = 0;
    int which = -1;
    if (!take_string(c, &key, &length))
        return refuse(c, "a key in quotes");
    for (int i = 0; i < 3; i++)
        if (strlen(keys[i]) == length && memcmp(keys[i], key, length) == 0)
            which = i;
    if (which < 0)
        return tl_fail(c->error, TL_ERR_FORMAT,
                       "%s: the header has the key \"%s\"; 'descr', 'fortran_order' and 'shape' are all there may be",
                       c->name, quote(key, key + length).text);
    if (*seen & 1u << which)
        return tl_fail(c->error, TL_ERR_FORMAT, "%s: the header has the key \"%s\" twice", c->name, keys[which]);
    *seen |= 1u << which;
    if (!take(c, ':'))
        return refuse(c, "a colon");
    if (which == 0)
        return parse_descr(c, h);
    if (which == 2)
        return parse_shape(c, h);
    h->fortran = take_word(c, "True");
    return h->fortran || take_word(c, "False") ? TL_OK : refuse(c, "True or False");
}

static tl_status parse_dictionary(cursor *c, tl_npy_header *h) {
    unsigned seen = 0;
    bool comma = true;
    if (!take(c, '{'))
        return refuse(c, "a dictionary, {'descr': ...},");
    while (!take(c, '}')) {
        if (!comma)
            return refuse(c, "a comma or the dictionary's end");
        tl_status status = parse_entry(c, h, &seen);
        if (status != TL_OK)
            return status;
        comma = take(c, ',');
    }
    if (seen != 7)
        return tl_fail(c->error, TL_ERR_FORMAT, "%s: the header lacks the key '%s'", c->name,
                       !(seen & 1)   ? "descr"
                       : !(seen & 2) ? "fortran_order"
                                     : "shape");
    blanks(c);
    return c->at == c->end ? check_sizes(c, h) : refuse(c, "nothing more");
}

/* ---- the bytes before it ---- */

static const char *what_else(const unsigned char *b, size_t n) {
    static const struct {
        const char *magic;
        size_t n;
        const char *is;
    } kinds[] = {
        {"PK\3\4", 4, "a zip archive: if it is an .npz, read it as one"},
        {"PK\5\6", 4, "an empty zip archive"},
        {"\x80", 1, "a Python pickle: code, not data"},
        {"\x1f\x8b", 2, "a gzip archive: unpack it first"},
        {"version http", 12, "a git-LFS pointer, not the file itself: run `git lfs pull'"},
        {"<", 1, "a page of HTML: the download asked for a log-in or failed"},
        {"\x89HDF", 4, "an HDF5 file"},
        {"GGUF", 4, "a GGUF model"},
        {"{", 1, "JSON"},
        {"\x93NUM", 4, "a damaged or unfinished .npy"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (n >= kinds[i].n && memcmp(b, kinds[i].magic, kinds[i].n) == 0)
            return kinds[i].is;
    return n == 0 ? "an empty file" : "no kind of file known here";
}

tl_status tl_npy_prefix(const unsigned char *b, size_t size, int64_t total, const char *name, int *version,
                        int64_t *header_at, int64_t *data_at, tl_error *error) {
    static const char magic[] = "\x93NUMPY";
    if (size < 10 || memcmp(b, magic, 6) != 0)
        return tl_fail(error, TL_ERR_FORMAT, "%s is no .npy file but %s", name, what_else(b, size));
    if (b[6] < 1 || b[6] > 3 || b[7] != 0)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: .npy version %d.%d; 1.0, 2.0 and 3.0 are read", name, b[6],
                       b[7]);
    *version = b[6];
    int64_t length = b[8] | b[9] << 8;
    *header_at = 10;
    if (*version > 1) {
        if (size < 12)
            return tl_fail(error, TL_ERR_FORMAT, "%s ends after %lld bytes, within its header", name, (long long)total);
        length |= (int64_t)b[10] << 16 | (int64_t)b[11] << 24;
        *header_at = 12;
    }
    if (length > total - *header_at)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s: the header's length is given as %lld bytes; the file ends after %lld: half a download?",
                       name, (long long)length, (long long)(total - *header_at));
    if (length > TL_NPY_HEADER_MAX)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: a header of %lld bytes; at most %d are read, %d axes need 250",
                       name, (long long)length, TL_NPY_HEADER_MAX, TL_MAX_NDIM);
    *data_at = *header_at + length;
    return TL_OK;
}

tl_status tl_npy_parse(const void *bytes, size_t size, int64_t total, const char *name, tl_npy_header *header,
                       tl_error *error) {
    tl_npy_header h = {0};
    int64_t header_at = 0, data_at = 0;
    if ((uint64_t)size > (uint64_t)total || total < 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "%zu bytes of a file of %lld", size, (long long)total);
    tl_status status = tl_npy_prefix(bytes, size, total, name, &h.version, &header_at, &data_at, error);
    if (status != TL_OK)
        return status;
    if ((uint64_t)data_at > size)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s: %zu bytes were given of a header of %lld", name, size,
                       (long long)data_at);
    cursor c = {(const char *)bytes + header_at, (const char *)bytes + data_at, name, error};
    status = parse_dictionary(&c, &h);
    if (status != TL_OK)
        return status;
    h.data_offset = data_at;
    int64_t there = total - data_at;
    if (h.bytes > there)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s: %lld values of %s take %lld bytes; %lld follow the header: half a download?", name,
                       (long long)h.count, h.descr, (long long)h.bytes, (long long)there);
    if (h.bytes < there)
        return tl_fail(
            error, TL_ERR_FORMAT,
            "%s: %lld values of %s take %lld bytes; %lld follow the header. One array a file is read; several "
            "belong in an .npz",
            name, (long long)h.count, h.descr, (long long)h.bytes, (long long)there);
    *header = h;
    return TL_OK;
}

tl_status tl_npy_stream_header(tl_npy_stream *s, tl_npy_header *header, tl_error *error) {
    unsigned char bytes[TL_NPY_PREFIX + TL_NPY_HEADER_MAX];
    size_t first = s->total < TL_NPY_PREFIX ? (size_t)s->total : TL_NPY_PREFIX;
    int version = 0;
    int64_t header_at = 0, data_at = 0;
    tl_status status = s->read(s->self, bytes, first, error);
    if (status == TL_OK)
        status = tl_npy_prefix(bytes, first, s->total, s->name, &version, &header_at, &data_at, error);
    if (status != TL_OK)
        return status;
    /* No dictionary is shorter than the two bytes that version 1's prefix is. */
    if (data_at < (int64_t)first)
        return tl_fail(error, TL_ERR_FORMAT, "%s: a header of %lld bytes holds no shape", s->name,
                       (long long)(data_at - header_at));
    status = s->read(s->self, bytes + first, (uint64_t)data_at - first, error);
    return status == TL_OK ? tl_npy_parse(bytes, (size_t)data_at, s->total, s->name, header, error) : status;
}

tl_status tl_npy_dtype(const tl_npy_header *h, const tl_npy_options *options, const char *name, tl_dtype *dtype,
                       tl_error *error) {
    const char *as = options ? options->as : NULL;
    if (as) {
        *dtype = tl_dtype_parse(as);
        if (*dtype != TL_BF16 && *dtype != TL_F8E4M3 && *dtype != TL_F8E5M2)
            return tl_fail(error, TL_ERR_ARGUMENT,
                           "%s read as \"%.20s\": bf16, f8e4m3 and f8e5m2, which NumPy does not have, would work", name,
                           as);
        if (h->kind != 'u' || h->element_bytes != tl_dtype_bytes(*dtype))
            return tl_fail(error, TL_ERR_DTYPE, "%s read as %s: it holds '%s'; bits of %s lie in 'u%d'", name, as,
                           h->descr, as, tl_dtype_bytes(*dtype));
        return TL_OK;
    }
    if (!h->has_dtype)
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "%s holds '%s', a format that tensors do not have; in Python, save "
                       "a.astype('i8')%s",
                       name, h->descr, h->kind == 'u' && h->element_bytes == 2 ? ", or read it as bf16" : "");
    *dtype = h->dtype;
    return TL_OK;
}
