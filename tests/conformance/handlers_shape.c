/* Shapes, views, copies, formats and constants. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conformance/conformance.h"

static tl_shape shape_of(const npy_array *a) {
    tl_shape shape = {.ndim = a->ndim};
    for (int d = 0; d < a->ndim; d++)
        shape.dim[d] = tl_dim_of(a->size[d]);
    return shape;
}

/* From the end where negative; an axis that does not exist is the nearest that does: then the result differs. */
static int axis_of(int64_t axis, int ndim) {
    axis = axis < -ndim ? 0 : axis < 0 ? axis + ndim : axis;
    return axis < ndim ? (int)axis : ndim > 0 ? ndim - 1 : 0;
}

static void run_identity(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = c->x[0];
}

/* 0 keeps the input's size (unless allowzero), −1 takes what is left. */
static void run_reshape(conformance_case *c) {
    int64_t want[TL_MAX_NDIM], rest = c->in[0].array.count;
    int n = conformance_ints(c, 1, "shape", want), open = -1;
    tl_shape shape = {.ndim = n < 0 ? 0 : n};
    bool allow_zero = conformance_int(c, "allowzero", 0) != 0;
    conformance_exact(c);
    for (int d = 0; d < n; d++) {
        int64_t size = want[d] == 0 && !allow_zero && d < c->in[0].array.ndim ? c->in[0].array.size[d] : want[d];
        shape.dim[d] = tl_dim_of(size);
        if (size == -1)
            open = d;
        else if (size > 0)
            rest /= size;
    }
    if (open >= 0)
        shape.dim[open] = tl_dim_of(rest);
    c->y[0] = tl_reshape(c->x[0], shape);
}

static void run_transpose(conformance_case *c) {
    int64_t perm[TL_MAX_NDIM];
    int axes[TL_MAX_NDIM], n = conformance_ints(c, -1, "perm", perm), ndim = c->in[0].array.ndim;
    conformance_exact(c);
    for (int i = 0; i < ndim; i++)
        axes[i] = n == ndim ? (int)perm[i] : ndim - 1 - i;
    c->y[0] = tl_permute(c->x[0], axes);
}

static void run_concat(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = tl_concat(c->x, c->n_in, (int)conformance_int(c, "axis", 0));
}

/* Sizes by an input, or equal ones, the last smaller. */
static void run_split(conformance_case *c) {
    int64_t given[TL_MAX_NDIM];
    int n = conformance_ints(c, 1, "split", given), axis = axis_of(conformance_int(c, "axis", 0), c->in[0].array.ndim);
    tl_dim sizes[CONFORMANCE_IO];
    int64_t whole = c->in[0].array.size[axis], parts = c->n_out > 0 ? c->n_out : 1, each = (whole + parts - 1) / parts;
    conformance_exact(c);
    for (int i = 0; i < c->n_out; i++) {
        int64_t left = whole - i * each;
        sizes[i] = tl_dim_of(n > i ? given[i] : left < each ? (left < 0 ? 0 : left) : each);
    }
    tl_status status = tl_split(c->x[0], axis, sizes, c->n_out, c->y);
    (void)status; /* sticks in the context */
}

/* Bounds clamp as numpy's do. */
static void run_slice(conformance_case *c) {
    int64_t start[TL_MAX_NDIM], end[TL_MAX_NDIM], axis[TL_MAX_NDIM], step[TL_MAX_NDIM];
    int n = conformance_ints(c, 1, "starts", start), ends = conformance_ints(c, 2, "ends", end);
    int axes = conformance_ints(c, 3, "axes", axis), steps = conformance_ints(c, 4, "steps", step);
    tl_tensor *y = c->x[0];
    conformance_exact(c);
    for (int i = 0; i < n && i < ends; i++) {
        int d = axis_of(axes > i ? axis[i] : i, c->in[0].array.ndim);
        int64_t by = steps > i ? step[i] : 1, size = c->in[0].array.size[d];
        if (by == 0 || by == INT64_MIN) {
            conformance_skip(c, "a step of 0, or one that has no opposite");
            return;
        }
        int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size, from = start[i], to = end[i];
        from = from < 0 ? from + size : from;
        to = to < 0 ? to + size : to;
        from = from < (by < 0 ? -1 : 0) ? low : from > high ? high : from;
        to = to < low ? low : to > size ? size : to;
        int64_t count = by > 0 ? (to - from + by - 1) / by : (from - to - by - 1) / -by;
        y = tl_slice(y, d, count > 0 ? from : 0, tl_dim_of(count > 0 ? count : 0), count > 0 ? by : 1);
    }
    c->y[0] = y;
}

static void run_squeeze(conformance_case *c) {
    int64_t axis[TL_MAX_NDIM];
    int n = conformance_ints(c, 1, "axes", axis), ndim = c->in[0].array.ndim;
    tl_shape shape = {.ndim = 0};
    conformance_exact(c);
    for (int d = 0; d < ndim; d++) {
        bool gone = n < 0 && c->in[0].array.size[d] == 1;
        for (int i = 0; i < n; i++)
            gone = gone || axis_of(axis[i], ndim) == d;
        if (!gone)
            shape.dim[shape.ndim++] = tl_dim_of(c->in[0].array.size[d]);
    }
    c->y[0] = tl_view(c->x[0], shape);
}

static void run_unsqueeze(conformance_case *c) {
    int64_t axis[TL_MAX_NDIM];
    int n = conformance_ints(c, 1, "axes", axis), ndim = c->in[0].array.ndim + n;
    tl_shape shape = {.ndim = ndim};
    conformance_exact(c);
    if (n < 0 || ndim > TL_MAX_NDIM) { /* the sizes below would not fit */
        conformance_skip(c, "no axes, or more than %d", TL_MAX_NDIM);
        return;
    }
    for (int d = 0, from = 0; d < ndim; d++) {
        bool added = false;
        for (int i = 0; i < n; i++)
            added = added || axis_of(axis[i], ndim) == d;
        shape.dim[d] = tl_dim_of(added ? 1 : c->in[0].array.size[from++]);
    }
    c->y[0] = tl_view(c->x[0], shape);
}

static void run_flatten(conformance_case *c) {
    int ndim = c->in[0].array.ndim;
    int64_t given = conformance_int(c, "axis", 1);
    int axis = given < 0 ? axis_of(given, ndim) : axis_of(given, ndim + 1); /* one past the last is allowed */
    int64_t rows = 1, columns = 1;
    conformance_exact(c);
    for (int d = 0; d < ndim; d++)
        *(d < axis ? &rows : &columns) *= c->in[0].array.size[d];
    c->y[0] = tl_reshape(c->x[0], TL_SHAPE(c->ctx, tl_dim_of(rows), tl_dim_of(columns)));
}

/* Both ways: the input may be the larger one. */
static void run_expand(conformance_case *c) {
    int64_t want[TL_MAX_NDIM];
    const npy_array *x = &c->in[0].array;
    int n = conformance_ints(c, 1, "shape", want), ndim = n > x->ndim ? n : x->ndim;
    tl_shape shape = {.ndim = ndim};
    conformance_exact(c);
    for (int i = 1; i <= ndim; i++) {
        int64_t mine = i <= x->ndim ? x->size[x->ndim - i] : 1, asked = i <= n ? want[n - i] : 1;
        shape.dim[ndim - i] = tl_dim_of(asked == 1 ? mine : asked);
    }
    c->y[0] = tl_expand(c->x[0], shape);
}

/* An axis after another: seen as [1, size], stretched to [times, size], put together. */
static void run_tile(conformance_case *c) {
    int64_t times[TL_MAX_NDIM];
    int n = conformance_ints(c, 1, "repeats", times);
    tl_tensor *y = c->x[0];
    conformance_exact(c);
    for (int d = 0; d < n && d < c->in[0].array.ndim && y; d++) {
        tl_shape from = *tl_tensor_shape(y), seen = from, wide;
        if (from.ndim == TL_MAX_NDIM) {
            conformance_skip(c, "%d axes leave none to stretch", from.ndim);
            return;
        }
        memmove(&seen.dim[d + 1], &from.dim[d], (size_t)(from.ndim - d) * sizeof *seen.dim);
        seen.dim[d] = tl_dim_of(1);
        seen.ndim++;
        wide = seen;
        wide.dim[d] = tl_dim_of(times[d]);
        from.dim[d] = tl_dim_mul(c->ctx, from.dim[d], wide.dim[d]);
        y = tl_reshape(tl_expand(tl_reshape(y, seen), wide), from);
    }
    c->y[0] = y;
}

static tl_tensor *whole_numbers(conformance_case *c, const int64_t *value, int count, int ndim) {
    tl_shape shape = {.ndim = ndim};
    shape.dim[0] = tl_dim_of(count);
    return tl_from_data(c->ctx, TL_I64, shape, TL_DATA, value, count);
}

static void run_shape(conformance_case *c) {
    int ndim = c->in[0].array.ndim;
    int64_t from = conformance_int(c, "start", 0), to = conformance_int(c, "end", ndim), size[TL_MAX_NDIM];
    from = from < 0 ? from + ndim : from;
    to = to < 0 ? to + ndim : to;
    from = from < 0 ? 0 : from > ndim ? ndim : from;
    to = to < from ? from : to > ndim ? ndim : to;
    for (int64_t d = from; d < to; d++)
        size[d - from] = tl_tensor_size(c->x[0], (int)d);
    c->y[0] = whole_numbers(c, size, (int)(to - from), 1);
}

static void run_size(conformance_case *c) {
    int64_t count = tl_tensor_count(c->x[0]);
    c->y[0] = whole_numbers(c, &count, 1, 0);
}

static void run_constant(conformance_case *c) { conformance_skip(c, "case.json does not hold the value"); }

/* case.json names the value's format and not the value: that of the first element is taken from the file, so what is
 * compared is the shape, the format and that all are equal. */
static void run_constant_of_shape(conformance_case *c) {
    int64_t size[TL_MAX_NDIM];
    tl_shape shape = {.ndim = conformance_ints(c, 0, NULL, size)};
    conformance_value kept = c->in[0];
    c->in[0] = c->out[0];
    double value = conformance_first(c, 0, 0);
    c->in[0] = kept;
    conformance_exact(c);
    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = tl_dim_of(size[d]);
    tl_tensor *y = tl_empty(c->ctx, c->out[0].dtype, shape, TL_DATA);
    c->y[0] = y ? tl_fill(y, value) : NULL;
}

/* ONNX saturates float8 unless told otherwise. */
static void cast_to(conformance_case *c, tl_dtype to) {
    conformance_exact(c);
    bool saturate = conformance_int(c, "saturate", 1) != 0;
    c->y[0] = saturate ? tl_cast_saturating(c->x[0], to) : tl_cast(c->x[0], to);
}
static void run_cast(conformance_case *c) {
    tl_dtype to;
    if (!conformance_dtype(conformance_int(c, "to", 0), &to))
        conformance_skip(c, "to a format that is not ours");
    else
        cast_to(c, to);
}
static void run_cast_like(conformance_case *c) { cast_to(c, c->in[1].dtype); }

static void run_bitcast(conformance_case *c) {
    tl_dtype to;
    conformance_exact(c);
    if (!conformance_dtype(conformance_int(c, "to", 0), &to))
        conformance_skip(c, "to a format that is not ours");
    else
        c->y[0] = tl_bitcast(c->x[0], to);
}

static void run_range(conformance_case *c) {
    double start = conformance_first(c, 0, 0), limit = conformance_first(c, 1, 0), step = conformance_first(c, 2, 1);
    double count = ceil((limit - start) / step);
    tl_shape shape = {.ndim = 1};
    if (!(count < 0x1p31)) {
        conformance_skip(c, "a range without end");
        return;
    }
    shape.dim[0] = tl_dim_of(count > 0 ? (int64_t)count : 0);
    tl_tensor *y = tl_empty(c->ctx, c->in[0].dtype, shape, TL_DATA);
    c->y[0] = y ? tl_range(y, start, step) : NULL;
}

static void run_eye_like(conformance_case *c) {
    tl_dtype to = c->in[0].dtype;
    conformance_exact(c);
    if (conformance_has(c, "dtype") && !conformance_dtype(conformance_int(c, "dtype", 0), &to)) {
        conformance_skip(c, "of a format that is not ours");
        return;
    }
    tl_tensor *y = tl_empty(c->ctx, to, shape_of(&c->in[0].array), TL_DATA);
    c->y[0] = y ? tl_eye(y, conformance_int(c, "k", 0)) : NULL;
}

static void run_trilu(conformance_case *c) {
    int64_t k[TL_MAX_NDIM] = {0};
    int n = conformance_ints(c, 1, NULL, k);
    conformance_exact(c);
    if (n < 1)
        k[0] = 0;
    c->y[0] = conformance_int(c, "upper", 1) ? tl_triu(c->x[0], k[0]) : tl_tril(c->x[0], k[0]);
}

const conformance_entry conformance_shape[] = {
    {"BitCast", run_bitcast},     {"Cast", run_cast},
    {"CastLike", run_cast_like},  {"Concat", run_concat},
    {"Constant", run_constant},   {"ConstantOfShape", run_constant_of_shape},
    {"Expand", run_expand},       {"EyeLike", run_eye_like},
    {"Flatten", run_flatten},     {"Identity", run_identity},
    {"Range", run_range},         {"Reshape", run_reshape},
    {"Shape", run_shape},         {"Size", run_size},
    {"Slice", run_slice},         {"Split", run_split},
    {"Squeeze", run_squeeze},     {"Tile", run_tile},
    {"Transpose", run_transpose}, {"Trilu", run_trilu},
    {"Unsqueeze", run_unsqueeze}, {NULL, NULL},
};
