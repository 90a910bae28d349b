/* config/gguf.c: the header of a GGUF file, read front to back with a cursor that knows how much of the file is left. */
#include "tally/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/sniff.h"

enum { BUFFER = 1 << 16, KEY_MOST = 65535, NAME_MOST = 4096, NDIM_MOST = 4, PAIR_LEAST = 13, TENSOR_LEAST = 24 };

struct tl_gguf {
    char name[512]; /* for messages */
    int version;
    int64_t bytes, header_bytes;
    tl_gguf_pair *pairs;
    int64_t n_pairs;
    tl_gguf_tensor *tensors;
    int64_t n_tensors;
    const tl_gguf_pair **pair_by_key;
    const tl_gguf_tensor **tensor_by_name;
};

/* ggml.h, enum ggml_type, and the blocks of ggml.c's type_traits: values and bytes of one block. */
static const struct {
    int number, values, bytes;
    const char *word;
} formats[] = {
    {0, 1, 4, "F32"},         {1, 1, 2, "F16"},         {2, 32, 18, "Q4_0"},      {3, 32, 20, "Q4_1"},
    {6, 32, 22, "Q5_0"},      {7, 32, 24, "Q5_1"},      {8, 32, 34, "Q8_0"},      {9, 32, 36, "Q8_1"},
    {10, 256, 84, "Q2_K"},    {11, 256, 110, "Q3_K"},   {12, 256, 144, "Q4_K"},   {13, 256, 176, "Q5_K"},
    {14, 256, 210, "Q6_K"},   {15, 256, 292, "Q8_K"},   {16, 256, 66, "IQ2_XXS"}, {17, 256, 74, "IQ2_XS"},
    {18, 256, 98, "IQ3_XXS"}, {19, 256, 50, "IQ1_S"},   {20, 32, 18, "IQ4_NL"},   {21, 256, 110, "IQ3_S"},
    {22, 256, 82, "IQ2_S"},   {23, 256, 136, "IQ4_XS"}, {24, 1, 1, "I8"},         {25, 1, 2, "I16"},
    {26, 1, 4, "I32"},        {27, 1, 8, "I64"},        {28, 1, 8, "F64"},        {29, 256, 56, "IQ1_M"},
    {30, 1, 2, "BF16"},       {34, 256, 54, "TQ1_0"},   {35, 256, 66, "TQ2_0"},   {39, 32, 17, "MXFP4"},
};

static const struct {
    const char *name;
    int bytes;
} types[TL_GGUF_TYPE_COUNT] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                               {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 8}, {"array", 12},
                               {"u64", 8}, {"i64", 8}, {"f64", 8}};

const char *tl_gguf_type_name(tl_gguf_type type) {
    return (unsigned)type < TL_GGUF_TYPE_COUNT ? types[type].name : "unknown";
}

/* ---- the cursor ---- */

typedef struct cursor {
    tl_gguf *g;
    int file;
    int64_t at; /* of the next byte, in the file */
    unsigned char *buffer;
    int64_t start, filled; /* the buffer holds the file's bytes start … start + filled − 1 */
    tl_error *error;
    tl_status status; /* the first failure; later calls do nothing */
} cursor;

#define FAIL(c, kind, ...)                                                                                             \
    do {                                                                                                               \
        if ((c)->status == TL_OK)                                                                                      \
            (c)->status = tl_fail((c)->error, (kind), __VA_ARGS__);                                                    \
    } while (0)

static int64_t left(const cursor *c) { return c->g->bytes - c->at; }

static bool fill(cursor *c) {
    ssize_t n;
    do
        n = pread(c->file, c->buffer, BUFFER, (off_t)c->at);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        int reason = errno;
        FAIL(c, TL_ERR_IO, "cannot read %s: %s", c->g->name, strerror(reason));
    } else if (n == 0)
        FAIL(c, TL_ERR_FORMAT, "%s has become shorter while it was read: it ends at byte %lld", c->g->name,
             (long long)c->at);
    c->start = c->at;
    c->filled = n > 0 ? n : 0;
    return n > 0;
}

/* n bytes, or nothing at all: `out` is zeroed after a failure. */
static void take(cursor *c, void *out, int64_t n, const char *what) {
    char *to = out;
    if (c->status == TL_OK && n > left(c))
        FAIL(c, TL_ERR_FORMAT, "%s ends at byte %lld, within %s at byte %lld: half a download?", c->g->name,
             (long long)c->g->bytes, what, (long long)c->at);
    if (c->status != TL_OK) {
        memset(out, 0, (size_t)n);
        return;
    }
    for (int64_t done = 0; done < n;) {
        if (c->at < c->start || c->at >= c->start + c->filled)
            if (!fill(c)) {
                memset(out, 0, (size_t)n);
                return;
            }
        int64_t here = c->start + c->filled - c->at;
        here = here < n - done ? here : n - done;
        memcpy(to + done, c->buffer + (c->at - c->start), (size_t)here);
        done += here;
        c->at += here;
    }
}

static void step_over(cursor *c, int64_t n, const char *what) {
    if (c->status == TL_OK && n > left(c))
        FAIL(c, TL_ERR_FORMAT, "%s ends at byte %lld, within %s at byte %lld: half a download?", c->g->name,
             (long long)c->g->bytes, what, (long long)c->at);
    if (c->status == TL_OK)
        c->at += n;
}

static uint64_t take_number(cursor *c, int bytes, const char *what) {
    unsigned char raw[8] = {0};
    uint64_t value = 0;
    take(c, raw, bytes, what);
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | raw[i];
    return value;
}

/* A length or count of things of at least `least` bytes each, which the rest of the file must be able to hold. */
static int64_t take_count(cursor *c, int64_t least, const char *what) {
    int64_t at = c->at;
    uint64_t n = take_number(c, 8, what);
    if (c->status == TL_OK && n > (uint64_t)(left(c) / least))
        FAIL(c, TL_ERR_FORMAT, "%s: %s at byte %lld is %llu, more than the rest of the file (%lld bytes) can hold",
             c->g->name, what, (long long)at, (unsigned long long)n, (long long)left(c));
    return c->status == TL_OK ? (int64_t)n : 0;
}

static void *allocate(cursor *c, int64_t count, size_t size) {
    void *p = c->status == TL_OK ? calloc(count > 0 ? (size_t)count : 1, size) : NULL;
    if (!p)
        FAIL(c, TL_ERR_MEMORY, "%s: no memory for its header", c->g->name);
    return p;
}

/* A string of its own; NULL after a failure. Bytes that a name cannot hold are an error. */
static char *take_name(cursor *c, int64_t most, const char *what) {
    int64_t at = c->at, n = take_count(c, 1, what);
    if (c->status == TL_OK && (n == 0 || n > most))
        FAIL(c, TL_ERR_FORMAT, "%s: %s at byte %lld has %lld bytes; 1 to %lld would do", c->g->name, what,
             (long long)at, (long long)n, (long long)most);
    char *text = allocate(c, c->status == TL_OK ? n + 1 : 1, 1);
    if (!text)
        return NULL;
    if (c->status == TL_OK)
        take(c, text, n, what);
    for (int64_t i = 0; i < n && c->status == TL_OK; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            FAIL(c, TL_ERR_FORMAT, "%s: %s at byte %lld holds a control character", c->g->name, what, (long long)at);
    if (c->status == TL_OK)
        return text;
    free(text);
    return NULL;
}

/* ---- pairs ---- */

static void take_numbers(cursor *c, tl_gguf_pair *p, tl_gguf_type type, int64_t count) {
    bool real = type == TL_GGUF_F32 || type == TL_GGUF_F64;
    double *number = allocate(c, count, sizeof *number);
    int64_t *integer = real ? NULL : allocate(c, count, sizeof *integer);
    p->number = number;
    p->integer = integer;
    for (int64_t i = 0; i < count && c->status == TL_OK; i++) {
        uint64_t raw = take_number(c, types[type].bytes, "a value");
        uint32_t word = (uint32_t)raw;
        float narrow;
        int shift = 64 - 8 * types[type].bytes;
        if (type == TL_GGUF_F32) {
            memcpy(&narrow, &word, sizeof narrow);
            number[i] = (double)narrow;
        } else if (type == TL_GGUF_F64)
            memcpy(&number[i], &raw, sizeof raw);
        else if (type == TL_GGUF_I8 || type == TL_GGUF_I16 || type == TL_GGUF_I32 || type == TL_GGUF_I64)
            integer[i] = (int64_t)(raw << shift) >> shift;
        else
            integer[i] = (int64_t)raw;
        if (type == TL_GGUF_BOOL && raw > 1)
            FAIL(c, TL_ERR_FORMAT, "%s: \"%.200s\" is a flag of value %llu; 0 or 1 would do", c->g->name, p->key,
                 (unsigned long long)raw);
        if (!real)
            number[i] = type == TL_GGUF_U64 ? (double)raw : (double)integer[i];
    }
}

static void take_string(cursor *c, tl_gguf_pair *p) {
    p->count = take_count(c, 1, "the length of a string");
    int64_t kept = p->count < TL_GGUF_KEPT_BYTES ? p->count : TL_GGUF_KEPT_BYTES;
    char *text = allocate(c, kept + 1, 1);
    p->text = text;
    if (text)
        take(c, text, kept, "a string");
    step_over(c, p->count - kept, "a string");
}

static tl_gguf_type take_type(cursor *c, const char *key) {
    int64_t at = c->at;
    uint64_t type = take_number(c, 4, "a type");
    if (c->status == TL_OK && type >= TL_GGUF_TYPE_COUNT)
        FAIL(c, TL_ERR_FORMAT, "%s: \"%.200s\" is of type %llu at byte %lld; 0 to %d are known", c->g->name, key,
             (unsigned long long)type, (long long)at, TL_GGUF_TYPE_COUNT - 1);
    return c->status == TL_OK ? (tl_gguf_type)type : TL_GGUF_U8;
}

static void take_array(cursor *c, tl_gguf_pair *p) {
    p->element = take_type(c, p->key);
    if (c->status == TL_OK && p->element == TL_GGUF_ARRAY)
        FAIL(c, TL_ERR_UNSUPPORTED, "%s: \"%.200s\" is an array of arrays, which nothing writes", c->g->name, p->key);
    p->count = take_count(c, types[p->element].bytes, "the length of an array");
    if (p->element == TL_GGUF_STRING)
        for (int64_t i = 0; i < p->count && c->status == TL_OK; i++)
            step_over(c, take_count(c, 1, "the length of a string"), "a string");
    else if (p->count <= TL_GGUF_KEPT_NUMBERS)
        take_numbers(c, p, p->element, p->count);
    else
        step_over(c, p->count * types[p->element].bytes, "an array");
}

static void take_pair(cursor *c, tl_gguf_pair *p) {
    p->key = take_name(c, KEY_MOST, "a key");
    if (!p->key)
        return;
    p->type = take_type(c, p->key);
    p->count = 1;
    if (p->type == TL_GGUF_STRING)
        take_string(c, p);
    else if (p->type == TL_GGUF_ARRAY)
        take_array(c, p);
    else
        take_numbers(c, p, p->type, 1);
}

/* ---- tensors ---- */

static void take_tensor(cursor *c, tl_gguf_tensor *t) {
    char unknown[32];
    const char *format = NULL;
    t->name = take_name(c, NAME_MOST, "a tensor's name");
    uint64_t ndim = take_number(c, 4, "a number of axes");
    if (c->status == TL_OK && ndim > NDIM_MOST)
        FAIL(c, TL_ERR_FORMAT, "%s: tensor \"%.200s\" has %llu axes; at most %d would do", c->g->name, t->name,
             (unsigned long long)ndim, NDIM_MOST);
    t->ndim = c->status == TL_OK ? (int)ndim : 0;
    t->count = 1;
    for (int i = 0; i < t->ndim && c->status == TL_OK; i++) {
        uint64_t size = take_number(c, 8, "a size");
        t->dim[i] = (int64_t)size;
        if (c->status == TL_OK && (size > (uint64_t)INT64_MAX || !tl_mul_i64(t->count, (int64_t)size, &t->count)))
            FAIL(c, TL_ERR_FORMAT, "%s: the sizes of tensor \"%.200s\" multiply to more than 63 bits", c->g->name,
                 t->name);
    }
    uint64_t type = take_number(c, 4, "a tensor's type"), offset = take_number(c, 8, "an offset");
    if (c->status != TL_OK)
        return;
    t->bytes = -1;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if ((uint64_t)formats[i].number == type) {
            int64_t row = t->ndim ? t->dim[0] : 1;
            format = formats[i].word;
            if (row % formats[i].values)
                FAIL(c, TL_ERR_FORMAT, "%s: rows of %lld values of tensor \"%.200s\" are no whole blocks of %s (%d)",
                     c->g->name, (long long)row, t->name, format, formats[i].values);
            else if (!tl_mul_i64(t->count / formats[i].values, formats[i].bytes, &t->bytes))
                FAIL(c, TL_ERR_FORMAT, "%s: tensor \"%.200s\" has more bytes than 63 bits count", c->g->name, t->name);
        }
    snprintf(unknown, sizeof unknown, "type %llu", (unsigned long long)type);
    char *own = format || c->status != TL_OK ? NULL : strdup(unknown);
    if (!format && !own)
        FAIL(c, TL_ERR_MEMORY, "%s: no memory for its header", c->g->name);
    t->format = format ? format : own;
    if (offset > (uint64_t)c->g->bytes)
        FAIL(c, TL_ERR_FORMAT, "%s: tensor \"%.200s\" begins %llu bytes into the values; the file has %lld in all",
             c->g->name, t->name, (unsigned long long)offset, (long long)c->g->bytes);
    t->offset = (int64_t)offset; /* from the start of the file: once that is known */
}

static int by_offset(const void *a, const void *b) {
    const tl_gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

static int by_name(const void *a, const void *b) {
    const tl_gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_key(const void *a, const void *b) {
    const tl_gguf_pair *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static void check_ranges(cursor *c, int64_t alignment) {
    tl_gguf *g = c->g;
    int64_t end = g->header_bytes;
    const char *before = "the header";
    for (int64_t i = 0; i < g->n_tensors; i++)
        g->tensor_by_name[i] = &g->tensors[i];
    qsort(g->tensor_by_name, (size_t)g->n_tensors, sizeof *g->tensor_by_name, by_offset);
    for (int64_t i = 0; i < g->n_tensors && c->status == TL_OK; i++) {
        const tl_gguf_tensor *t = g->tensor_by_name[i];
        int64_t bytes = t->bytes < 0 ? 0 : t->bytes;
        if ((t->offset - g->header_bytes) % alignment)
            FAIL(c, TL_ERR_FORMAT, "%s: tensor \"%.200s\" does not begin at a multiple of %lld", g->name, t->name,
                 (long long)alignment);
        if (t->offset < end && bytes > 0)
            FAIL(c, TL_ERR_FORMAT, "%s: tensor \"%.200s\" begins at byte %lld, within %s, which ends at byte %lld",
                 g->name, t->name, (long long)t->offset, before, (long long)end);
        if (bytes > g->bytes - t->offset)
            FAIL(c, TL_ERR_FORMAT,
                 "%s: the values of tensor \"%.200s\" end at byte %lld, and the file at byte %lld: half a download?",
                 g->name, t->name, (long long)t->offset + (long long)bytes, (long long)g->bytes);
        if (bytes > 0) {
            end = t->offset + bytes;
            before = t->name;
        }
    }
}

static void check_names(cursor *c) {
    tl_gguf *g = c->g;
    qsort(g->tensor_by_name, (size_t)g->n_tensors, sizeof *g->tensor_by_name, by_name);
    for (int64_t i = 1; i < g->n_tensors; i++)
        if (strcmp(g->tensor_by_name[i - 1]->name, g->tensor_by_name[i]->name) == 0)
            FAIL(c, TL_ERR_FORMAT, "%s: tensor \"%.200s\" is there twice", g->name, g->tensor_by_name[i]->name);
}

/* ---- the file ---- */

static void take_start(cursor *c) {
    char magic[4];
    take(c, magic, 4, "its mark");
    if (c->status != TL_OK)
        return;
    if (memcmp(magic, "GGUF", 4) != 0) {
        const char *what = tl_sniff(c->buffer, (size_t)c->filled);
        FAIL(c, TL_ERR_FORMAT, "%s: is %s, not a GGUF file", c->g->name, what ? what : "no file known here");
        return;
    }
    uint64_t version = take_number(c, 4, "its version");
    if (c->status == TL_OK && (version & 0xffff) == 0 && version)
        FAIL(c, TL_ERR_UNSUPPORTED, "%s: is a big-endian GGUF file; little-endian ones are read", c->g->name);
    else if (c->status == TL_OK && version != 2 && version != 3)
        FAIL(c, TL_ERR_UNSUPPORTED, "%s: is GGUF version %llu; 2 and 3 are read", c->g->name,
             (unsigned long long)version);
    c->g->version = (int)version;
}

static int64_t alignment_of(cursor *c) {
    const tl_gguf_pair *p = tl_gguf_pair_find(c->g, "general.alignment");
    if (!p)
        return 32;
    int64_t a = p->integer && p->type != TL_GGUF_ARRAY ? p->integer[0] : 0;
    if (a < 1 || a > 1 << 20 || (a & (a - 1)))
        FAIL(c, TL_ERR_FORMAT, "%s: general.alignment is no power of two up to 2^20", c->g->name);
    return c->status == TL_OK ? a : 32;
}

static void read_header(cursor *c) {
    tl_gguf *g = c->g;
    take_start(c);
    int64_t tensors = take_count(c, TENSOR_LEAST, "the number of tensors");
    int64_t pairs = take_count(c, PAIR_LEAST, "the number of pairs");
    g->pairs = allocate(c, pairs, sizeof *g->pairs);
    g->pair_by_key = allocate(c, pairs, sizeof *g->pair_by_key);
    for (; g->n_pairs < pairs && c->status == TL_OK; g->n_pairs++)
        take_pair(c, &g->pairs[g->n_pairs]);
    for (int64_t i = 0; i < pairs && c->status == TL_OK; i++)
        g->pair_by_key[i] = &g->pairs[i];
    if (c->status == TL_OK)
        qsort(g->pair_by_key, (size_t)pairs, sizeof *g->pair_by_key, by_key);
    for (int64_t i = 1; i < pairs && c->status == TL_OK; i++)
        if (strcmp(g->pair_by_key[i - 1]->key, g->pair_by_key[i]->key) == 0)
            FAIL(c, TL_ERR_FORMAT, "%s: \"%.200s\" is there twice", g->name, g->pair_by_key[i]->key);
    g->tensors = allocate(c, tensors, sizeof *g->tensors);
    g->tensor_by_name = allocate(c, tensors, sizeof *g->tensor_by_name);
    for (; g->n_tensors < tensors && c->status == TL_OK; g->n_tensors++)
        take_tensor(c, &g->tensors[g->n_tensors]);
    int64_t alignment = c->status == TL_OK ? alignment_of(c) : 32;
    int64_t padding = (alignment - c->at % alignment) % alignment;
    g->header_bytes = tensors ? c->at + padding : c->at;
    if (c->status == TL_OK && tensors && g->header_bytes > g->bytes)
        FAIL(c, TL_ERR_FORMAT, "%s ends at byte %lld, before its values: half a download?", g->name,
             (long long)g->bytes);
    for (int64_t i = 0; i < g->n_tensors && c->status == TL_OK; i++) {
        if (g->tensors[i].offset > g->bytes - g->header_bytes)
            FAIL(c, TL_ERR_FORMAT, "%s: tensor \"%.200s\" begins beyond the end of the file", g->name,
                 g->tensors[i].name);
        g->tensors[i].offset += g->header_bytes;
    }
    if (c->status == TL_OK)
        check_ranges(c, alignment);
    if (c->status == TL_OK)
        check_names(c);
}

static int open_regular(tl_gguf *g, const char *path, tl_error *error) {
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), reason = errno;
    if (file < 0) {
        tl_fail(error, reason == ENOENT ? TL_ERR_NOT_FOUND : TL_ERR_IO, "cannot open %s: %s", g->name,
                strerror(reason));
        return -1;
    }
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
        tl_fail(error, TL_ERR_IO, "%s is no regular file", g->name);
        (void)close(file);
        return -1;
    }
    g->bytes = (int64_t)about.st_size;
    return file;
}

tl_gguf *tl_gguf_open(const char *path, tl_error *error) {
    tl_gguf *g = calloc(1, sizeof *g);
    cursor c = {.g = g, .file = -1, .error = error, .buffer = malloc(BUFFER)};
    if (g && c.buffer) {
        tl_quotable(path, strlen(path), g->name, sizeof g->name);
        c.file = open_regular(g, path, error);
        if (c.file >= 0)
            read_header(&c);
        else
            c.status = TL_ERR_IO;
    } else
        c.status = tl_fail(error, TL_ERR_MEMORY, "no memory to read \"%.200s\"", path);
    if (c.file >= 0)
        (void)close(c.file);
    free(c.buffer);
    if (c.status == TL_OK)
        return g;
    tl_gguf_close(g);
    return NULL;
}

static bool is_known(const char *format) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].word == format)
            return true;
    return false;
}

void tl_gguf_close(tl_gguf *g) {
    if (!g)
        return;
    /* After a failure the last one counted is half filled, the rest of it zero. */
    for (int64_t i = 0; g->pairs && i < g->n_pairs; i++) {
        free((void *)(uintptr_t)g->pairs[i].key);
        free((void *)(uintptr_t)g->pairs[i].text);
        free((void *)(uintptr_t)g->pairs[i].number);
        free((void *)(uintptr_t)g->pairs[i].integer);
    }
    for (int64_t i = 0; g->tensors && i < g->n_tensors; i++) {
        free((void *)(uintptr_t)g->tensors[i].name);
        if (!is_known(g->tensors[i].format))
            free((void *)(uintptr_t)g->tensors[i].format);
    }
    free(g->pairs);
    free(g->tensors);
    free(g->pair_by_key);
    free(g->tensor_by_name);
    free(g);
}

int tl_gguf_version(const tl_gguf *g) { return g->version; }
int64_t tl_gguf_bytes(const tl_gguf *g) { return g->bytes; }
int64_t tl_gguf_header_bytes(const tl_gguf *g) { return g->header_bytes; }
int64_t tl_gguf_pairs(const tl_gguf *g) { return g->n_pairs; }
int64_t tl_gguf_tensors(const tl_gguf *g) { return g->n_tensors; }

const tl_gguf_pair *tl_gguf_pair_at(const tl_gguf *g, int64_t i) {
    return i >= 0 && i < g->n_pairs ? &g->pairs[i] : NULL;
}

const tl_gguf_tensor *tl_gguf_tensor_at(const tl_gguf *g, int64_t i) {
    return i >= 0 && i < g->n_tensors ? &g->tensors[i] : NULL;
}

const tl_gguf_pair *tl_gguf_pair_find(const tl_gguf *g, const char *key) {
    const tl_gguf_pair wanted = {.key = key}, *at = &wanted;
    const tl_gguf_pair **found = bsearch(&at, g->pair_by_key, (size_t)g->n_pairs, sizeof *g->pair_by_key, by_key);
    return found ? *found : NULL;
}

const tl_gguf_tensor *tl_gguf_tensor_find(const tl_gguf *g, const char *name) {
    const tl_gguf_tensor wanted = {.name = name}, *at = &wanted;
    const tl_gguf_tensor **found =
        bsearch(&at, g->tensor_by_name, (size_t)g->n_tensors, sizeof *g->tensor_by_name, by_name);
    return found ? *found : NULL;
}
