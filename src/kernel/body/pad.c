/* kernel/body/pad.c: padding by reflection, by the edge or by wrapping around. Along an axis the padded positions fall into
 * stretches that run forwards (+1), backwards (−1) or stand still (0) in x: a row is copied stretch by stretch. */
#include "kernel/body/body.h"

typedef struct stretch {
    int64_t at, step, n; /* position in x */
} stretch;

/* The stretch that begins at padded position i of an axis of n elements; n ≥ 1. */
static stretch stretch_at(tl_pad_mode mode, int64_t n, int64_t before, int64_t i) {
    int64_t j = i - before, period;
    if (mode == TL_PAD_EDGE || n == 1) {
        if (j < 0)
            return (stretch){0, 0, -j};
        return j < n ? (stretch){j, 1, n - j} : (stretch){n - 1, 0, INT64_MAX};
    }
    period = mode == TL_PAD_WRAP ? n : 2 * (n - 1);
    j %= period;
    if (j < 0)
        j += period;
    if (j < n)
        return (stretch){j, 1, n - j};
    return (stretch){period - j, -1, period - j};
}

typedef struct pad_task {
    tl_array x, padded; /* backward: x is written */
    const tl_pad_attr *attr;
    int64_t rows, per_task;
} pad_task;

static void row_pointers(const pad_task *t, int64_t row, char **x, char **padded) {
    int64_t x_offset = 0, padded_offset = 0;
    for (int d = t->x.ndim - 2; d >= 0; d--) {
        int64_t i = row % t->padded.size[d];
        row /= t->padded.size[d];
        padded_offset += i * t->padded.stride[d];
        x_offset += stretch_at(t->attr->mode, t->x.size[d], t->attr->before[d], i).at * t->x.stride[d];
    }
    *x = t->x.data + x_offset * tl_bytes_of(t->x.dtype);
    *padded = t->padded.data + padded_offset * tl_bytes_of(t->padded.dtype);
}

static void pad_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const pad_task *t = argument;
    int last = t->x.ndim - 1, bytes = tl_bytes_of(t->x.dtype);
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows), columns = t->padded.size[last];
    for (int64_t row = task * t->per_task; row < end; row++) {
        char *x, *padded;
        row_pointers(t, row, &x, &padded);
        for (int64_t i = 0; i < columns;) {
            stretch s = stretch_at(t->attr->mode, t->x.size[last], t->attr->before[last], i);
            int64_t n = tl_min_i64(s.n, columns - i), stride = t->padded.stride[last];
            TL_K(convert)
            (t->padded.dtype, padded + i * stride * bytes, stride, t->x.dtype, x + s.at * t->x.stride[last] * bytes,
             s.step * t->x.stride[last], n);
            i += n;
        }
    }
}

static void pad_call(tl_kcall *call, pad_task *t) {
    t->attr = call->attr;
    t->rows = 1;
    for (int d = 0; d < t->padded.ndim - 1; d++)
        t->rows *= t->padded.size[d];
}

void TL_K(pad)(tl_kcall *call) {
    pad_task t = {.x = call->in[0], .padded = call->out[0]};
    pad_call(call, &t);
    int64_t columns = t.padded.ndim ? t.padded.size[t.padded.ndim - 1] : 1;
    if (t.rows * columns == 0)
        return;
    if (t.padded.ndim == 0) {
        TL_K(convert)(t.padded.dtype, t.padded.data, 1, t.x.dtype, t.x.data, 1, 1);
        return;
    }
    t.per_task = tl_rows_per_task(columns);
    bool large = t.rows * columns >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.rows, t.per_task), pad_rows, &t);
}

/* x[step·i] += g[i]. A 16-bit x rounds after each stretch: there is nowhere to keep floats. */
#define ADD(name, type, load, store)                                                                                   \
    static void name(tl_dtype dtype, char *x, int64_t x_stride, const char *g, int64_t stride, int64_t n) {            \
        type a[TL_CHUNK], b[TL_CHUNK];                                                                                 \
        for (int64_t at = 0; at < n; at += TL_CHUNK) {                                                                 \
            int64_t count = tl_min_i64(TL_CHUNK, n - at), kept = x_stride ? count : 1;                                 \
            char *to = x + at * x_stride * tl_bytes_of(dtype);                                                         \
            TL_K(load)(a, dtype, to, x_stride, kept);                                                                  \
            TL_K(load)(b, dtype, g + at * stride * tl_bytes_of(dtype), stride, count);                                 \
            for (int64_t i = 0; i < count; i++)                                                                        \
                a[x_stride ? i : 0] += b[i];                                                                           \
            TL_K(store)(dtype, to, x_stride, a, kept);                                                                 \
        }                                                                                                              \
    }
ADD(add_float, float, load_float, store_float)
ADD(add_double, double, load_double, store_double)

void TL_K(pad_backward)(tl_kcall *call) {
    pad_task t = {.x = call->out[0], .padded = call->in[0]};
    pad_call(call, &t);
    tl_fill_attr zero = {0};
    tl_kcall fill = {.engine = call->engine, .n_out = 1, .attr = &zero};
    fill.out[0] = call->out[0];
    TL_K(fill)(&fill);
    int last = t.x.ndim - 1;
    int64_t columns = last < 0 ? 1 : t.padded.size[last];
    if (t.rows * columns == 0)
        return;
    void (*add)(tl_dtype, char *, int64_t, const char *, int64_t, int64_t) =
        t.x.dtype == TL_F64 ? add_double : add_float;
    if (last < 0) {
        add(t.x.dtype, t.x.data, 1, t.padded.data, 1, 1);
        return;
    }
    for (int64_t row = 0; row < t.rows; row++) { /* one thread: rows of the padding meet in rows of x */
        char *x, *padded;
        int bytes = tl_bytes_of(t.x.dtype);
        row_pointers(&t, row, &x, &padded);
        for (int64_t i = 0; i < columns;) {
            stretch s = stretch_at(t.attr->mode, t.x.size[last], t.attr->before[last], i);
            int64_t n = tl_min_i64(s.n, columns - i), stride = t.padded.stride[last];
            add(t.x.dtype, x + s.at * t.x.stride[last] * bytes, s.step * t.x.stride[last], padded + i * stride * bytes,
                stride, n);
            i += n;
        }
    }
}
