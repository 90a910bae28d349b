/* The .npy format, versions 1 to 3 (numpy.lib.format), little-endian. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/conformance.h"

enum { HEADER_LIMIT = 4096 };
#define COUNT_LIMIT ((int64_t)1 << 28)

void npy_array_free(npy_array *a) {
    free(a->data);
    a->data = NULL;
}

static bool read_sizes(npy_array *a, const char *at) {
    a->ndim = 0;
    a->count = 1;
    while (*at && *at != ')') {
        if (*at == ' ' || *at == ',') {
            at++;
            continue;
        }
        char *end = NULL;
        long long size = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (size < 0 || size > COUNT_LIMIT || a->ndim == TL_MAX_NDIM)
            return false;
        a->size[a->ndim++] = size;
        if (!tl_mul_i64(a->count, size, &a->count) || a->count > COUNT_LIMIT)
            return false;
        at = end;
    }
    return *at == ')';
}

static bool read_header(npy_array *a, const char *header, bool *fortran) {
    static const char descr[] = "'descr': '", order[] = "'fortran_order': ", shape[] = "'shape': (";
    const char *type = strstr(header, descr), *turned = strstr(header, order), *sizes = strstr(header, shape);
    if (!type || !turned || !sizes)
        return false;
    type += sizeof descr - 1;
    turned += sizeof order - 1;
    if ((*type != '<' && *type != '|') || !type[1] || !strchr("fiub", type[1]) || !type[2] ||
        !strchr("1248", type[2]) || type[3] != '\'')
        return false;
    *fortran = strncmp(turned, "True", 4) == 0;
    a->kind = type[1];
    a->bytes = type[2] - '0';
    return (*fortran || strncmp(turned, "False", 5) == 0) && read_sizes(a, sizes + sizeof shape - 1);
}

/* Column-major elements put in C order. */
static bool turn(npy_array *a) {
    char *to = malloc((size_t)a->count * (size_t)a->bytes + 1);
    if (!to)
        return false;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t rest = i, from = 0, index[TL_MAX_NDIM] = {0};
        for (int d = a->ndim - 1; d >= 0; d--) {
            index[d] = rest % a->size[d];
            rest /= a->size[d];
        }
        for (int d = a->ndim - 1; d >= 0; d--)
            from = from * a->size[d] + index[d];
        memcpy(to + i * a->bytes, a->data + from * a->bytes, (size_t)a->bytes);
    }
    free(a->data);
    a->data = to;
    return true;
}

static const char *read_file(npy_array *a, FILE *file) {
    unsigned char head[12];
    char header[HEADER_LIMIT + 1];
    bool fortran = false;
    if (fread(head, 1, 10, file) != 10 || memcmp(head, "\x93NUMPY", 6) != 0)
        return "is not a .npy file";
    size_t length = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1) {
        if (fread(head + 10, 1, 2, file) != 2)
            return "ends in its header";
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    if (length > HEADER_LIMIT || fread(header, 1, length, file) != length)
        return "has a header longer than 4096 bytes or than the file";
    header[length] = 0;
    if (!read_header(a, header, &fortran))
        return "has a header that is not understood (little-endian f, i, u or b, at most 8 axes and 2^28 elements are)";
    size_t bytes = (size_t)a->count * (size_t)a->bytes;
    a->data = malloc(bytes + 1);
    if (!a->data)
        return "needs more memory than there is";
    if (fread(a->data, 1, bytes, file) != bytes || fgetc(file) != EOF)
        return "is shorter or longer than its header says";
    return fortran && a->count > 0 && !turn(a) ? "needs more memory than there is" : NULL;
}

bool npy_array_read(npy_array *a, const char *path, char *why, size_t why_size) {
    memset(a, 0, sizeof *a);
    FILE *file = fopen(path, "rb");
    const char *fault = file ? read_file(a, file) : "cannot be opened";
    if (file)
        fclose(file);
    if (!fault)
        return true;
    npy_array_free(a);
    snprintf(why, why_size, "%s %s", path, fault);
    return false;
}
