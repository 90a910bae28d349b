/* conformance.h: single-op cases of others (ONNX's, converted to case.json and .npy) run through our ops.
 *
 * A handler turns one case into calls of tally/ops.h: inputs are in x, by their place in the node (NULL where an optional
 * one is absent), results go to y. It runs twice, on the device meta and on the processor: what decides a shape is read
 * from the file's values (conformance_ints), never from a tensor. A new op is one line in a handlers_*.c.
 */
#ifndef TALLY_TESTS_CONFORMANCE_H
#define TALLY_TESTS_CONFORMANCE_H

#include <jansson.h>

#include "tally/ops.h"

enum { CONFORMANCE_IO = 16 };

/* One .npy file. bfloat16 is there as u2 patterns and float8 as u1: case.json has the true format. */
typedef struct npy_array {
    char kind; /* f i u b */
    int bytes, ndim;
    int64_t size[TL_MAX_NDIM], count;
    char *data; /* C order */
} npy_array;
/* false with the reason in `why`, and nothing allocated. Trusts no header. */
bool npy_array_read(npy_array *a, const char *path, char *why, size_t why_size);
void npy_array_free(npy_array *a);

typedef struct conformance_value {
    bool given;       /* false: an optional input or output that is absent */
    const char *name; /* ONNX's name of the format, "FLOAT16" */
    tl_dtype dtype;
    npy_array array;
} conformance_value;

typedef struct conformance_case {
    const char *test, *op;
    int opset;
    json_t *attrs;
    int n_in, n_out;
    conformance_value in[CONFORMANCE_IO], out[CONFORMANCE_IO];
    tl_ctx *ctx;
    tl_tensor *x[CONFORMANCE_IO], *y[CONFORMANCE_IO];
    double rtol,
        atol; /* floats: |found − expected| ≤ atol + rtol·|expected|; the caller sets ONNX's own 1e-3 and 1e-7 */
    char skip[160]; /* why this case is not comparable */
} conformance_case;

typedef void conformance_handler(conformance_case *c);
typedef struct conformance_entry {
    const char *op;
    conformance_handler *run;
} conformance_entry;
/* Each ends with {NULL, NULL}. */
extern const conformance_entry conformance_elementwise[], conformance_reduce[], conformance_shape[],
    conformance_index[], conformance_layers[];

/* ---- for handlers ---- */
int64_t conformance_int(const conformance_case *c, const char *attribute, int64_t otherwise);
double conformance_real(const conformance_case *c, const char *attribute, double otherwise);
const char *conformance_text(const conformance_case *c, const char *attribute, const char *otherwise);
bool conformance_has(const conformance_case *c, const char *attribute);
/* The values of an integer input (axes, shapes), or of an attribute that is a list where there is no such input; how many,
 * −1: neither is there. At most TL_MAX_NDIM. `input` −1: the attribute alone. */
int conformance_ints(const conformance_case *c, int input, const char *attribute, int64_t value[]);
/* The first value of a float or integer input. */
double conformance_first(const conformance_case *c, int input, double otherwise);
/* This case cannot be compared: says why. */
void conformance_skip(conformance_case *c, const char *format, ...) TL_PRINTF(2, 3);
/* The result must be equal, not close. */
static inline void conformance_exact(conformance_case *c) { c->rtol = c->atol = 0; }
/* ONNX's number of a format; false: not one of ours. */
bool conformance_dtype(int64_t onnx, tl_dtype *dtype);
bool conformance_dtype_named(const char *name, tl_dtype *dtype); /* "FLOAT16" */
/* A tensor of no axes with this value. */
tl_tensor *conformance_constant(conformance_case *c, tl_dtype dtype, double value);

/* safetensors.c: the files of SUITES/safetensors-vectors; prints its own result and adds to *failed. False: no such
 * folder. */
bool conformance_safetensors(const char *suites, int *failed);

/* compare.c: "" or the first difference. On meta only shapes and formats are compared. */
void conformance_compare(const conformance_case *c, char *text, size_t size);

#endif
