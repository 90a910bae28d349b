/* npy.h: reads the .npy files of tests: floats, integers and bool, little-endian, C order (numpy.lib.format, version 1 and
 * 2). */
#ifndef TESTS_NPY_H
#define TESTS_NPY_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct npy {
    char kind; /* f, i, u or b */
    int bytes, ndim;
    int64_t size[8], count;
    void *data;
} npy;

static inline void npy_free(npy *a) {
    free(a->data);
    a->data = NULL;
}

/* The header's shape, "(4, 12, 64)", "(5,)" or "()". */
static inline int npy_shape(npy *a, const char *text) {
    a->ndim = 0;
    a->count = 1;
    for (const char *at = text; *at && *at != ')';) {
        if (*at < '0' || *at > '9') {
            at++;
            continue;
        }
        char *end = NULL;
        if (a->ndim == 8)
            return 0;
        a->size[a->ndim] = strtoll(at, &end, 10);
        a->count *= a->size[a->ndim++];
        at = end;
    }
    return 1;
}

static inline int npy_header(npy *a, const char *header) {
    const char *type = strstr(header, "'descr': '"), *shape = strstr(header, "'shape': (");
    if (!type || !shape || !strstr(header, "'fortran_order': False"))
        return 0;
    type += strlen("'descr': '");
    if (*type != '<' && *type != '|')
        return 0;
    a->kind = type[1];
    a->bytes = type[2] - '0';
    return strchr("fiub", a->kind) != NULL && npy_shape(a, shape + strlen("'shape': ("));
}

/* 1, or 0 with nothing allocated. */
static inline int npy_read(npy *a, const char *path) {
    unsigned char head[12];
    char header[1024];
    int ok = 0;
    FILE *file = fopen(path, "rb");
    memset(a, 0, sizeof *a);
    if (!file)
        return 0;
    if (fread(head, 1, 10, file) == 10 && memcmp(head, "\x93NUMPY", 6) == 0) {
        size_t length = head[8] | (size_t)head[9] << 8;
        if (head[6] > 1 && fread(head + 10, 1, 2, file) != 2)
            length = sizeof header;
        if (length < sizeof header && fread(header, 1, length, file) == length) {
            header[length] = 0;
            ok = npy_header(a, header);
        }
    }
    if (ok) {
        size_t bytes = (size_t)a->count * (size_t)a->bytes;
        a->data = malloc(bytes ? bytes : 1);
        ok = a->data && fread(a->data, 1, bytes, file) == bytes;
        if (!ok)
            npy_free(a);
    }
    fclose(file);
    return ok;
}

/* An f2 is told from the bits of a bf16 or f8, which are stored as integers, by its kind alone. */
static inline double npy_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                  : exponent == 0 ? ldexp(fraction, -24)
                                  : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -size : size;
}

static inline double npy_at(const npy *a, int64_t i) {
    union {
        double f8;
        float f4;
        int64_t i8;
        uint64_t u8;
    } v = {.u8 = 0};
    memcpy(&v, (const char *)a->data + i * a->bytes, (size_t)a->bytes);
    if (a->kind == 'b')
        return v.u8 != 0;
    if (a->kind == 'f')
        return a->bytes == 8 ? v.f8 : a->bytes == 4 ? (double)v.f4 : npy_half((uint16_t)v.u8);
    if (a->kind == 'u')
        return (double)v.u8;
    int unused = 64 - 8 * a->bytes; /* the sign, spread */
    return (double)((int64_t)(v.u8 << unused) >> unused);
}

#endif
