/* kernel/body/along.c: cumulative sums and products, log-softmax, triangles, ranges and one-hot rows. A row is one task's:
 * running values go from its first element to its last, in float or double, whatever the layout. */
#include "kernel/body/body.h"
#include "kernel/body/math.h"

typedef struct along_task {
    tl_walk rows;
    int64_t columns, per_task, stride[3]; /* along the last axis; negative when reversed */
    int64_t first[3];                     /* where a row begins, in elements from its pointer */
    tl_compute compute;
    bool product, exclusive;
} along_task;

static int64_t last_stride(const tl_array *a) {
    return a->ndim == 0 || a->size[a->ndim - 1] == 1 ? 1 : a->stride[a->ndim - 1];
}

/* Rows of the arrays, which have the same sizes; walked from the last column when `reversed`. */
static void along_make(along_task *t, const tl_array *const array[], int n_array, bool reversed) {
    const tl_array *x = array[0];
    t->columns = x->size[x->ndim - 1];
    t->compute = tl_compute_of(array[1]->dtype);
    TL_K(walk_make)(&t->rows, array, n_array, x->ndim - 1, false);
    for (int a = 0; a < n_array; a++) {
        int64_t stride = last_stride(array[a]);
        t->first[a] = reversed ? (t->columns - 1) * stride : 0;
        t->stride[a] = reversed ? -stride : stride;
    }
    t->per_task = tl_rows_per_task(t->columns);
}

static void along_run(tl_kcall *call, along_task *t, tl_engine_task *task) {
    if (t->columns == 0 || t->rows.total == 0)
        return;
    bool large = t->rows.total * t->columns >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t->rows.total, t->per_task), task, t);
}

/* Row pointers at flat row `at`, moved to where the walk begins. */
static void along_at(const along_task *t, int64_t at, char *pointer[]) {
    TL_K(walk_at)(&t->rows, at, pointer);
    for (int a = 0; a < t->rows.n_array; a++)
        pointer[a] += t->first[a] * t->rows.bytes[a];
}

/* ---- cumulative ---- */

#define CUMULATE(type, start_type, load, store, plus, times)                                                           \
    static void cumulate_##type(const along_task *t, char *const pointer[]) {                                          \
        start_type running = t->product ? 1 : 0;                                                                       \
        for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {                                                        \
            type buffer[TL_CHUNK];                                                                                     \
            int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);                                                         \
            TL_K(load)(buffer, t->rows.dtype[1], pointer[1] + at * t->stride[1] * t->rows.bytes[1], t->stride[1], n);  \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                start_type before = running, x = (start_type)buffer[i];                                                \
                running = t->product ? before times x : before plus x;                                                 \
                buffer[i] = (type)(t->exclusive ? before : running);                                                   \
            }                                                                                                          \
            TL_K(store)(t->rows.dtype[0], pointer[0] + at * t->stride[0] * t->rows.bytes[0], t->stride[0], buffer, n); \
        }                                                                                                              \
    }
CUMULATE(float, float, load_float, store_float, +, *)
CUMULATE(double, double, load_double, store_double, +, *)
CUMULATE(int64_t, uint64_t, load_int, store_int, +, *) /* wraps */

static void cumulate_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const along_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        along_at(t, at, pointer);
        if (t->compute == TL_COMPUTE_DOUBLE)
            cumulate_double(t, pointer);
        else if (t->compute == TL_COMPUTE_FLOAT)
            cumulate_float(t, pointer);
        else
            cumulate_int64_t(t, pointer);
    }
}

void TL_K(cumulate)(tl_kcall *call) {
    const tl_cumulate_attr *attr = call->attr;
    const tl_array *array[] = {&call->out[0], &call->in[0]};
    along_task t = {.product = attr->product, .exclusive = attr->exclusive};
    along_make(&t, array, 2, attr->reverse);
    along_run(call, &t, cumulate_rows);
}

/* Gradient of a cumulative product, without division. With P_i = Π_{j<i} x_j: dx_i = P_i·S_i, S_i = g_i + x_{i+1}·S_{i+1};
 * exclusive: S_i = g_{i+1} + x_{i+1}·S_{i+1}, S_last = 0. First P forward into the output, then S backward. */
#define CUMULATE_BACKWARD(type, load, store)                                                                           \
    static void cumulate_backward_##type(const along_task *t, char *const pointer[]) {                                 \
        type running = 1, s = 0, next_x = 0, next_g = 0;                                                               \
        int64_t out_step = t->stride[0] * t->rows.bytes[0], x_step = t->stride[1] * t->rows.bytes[1];                  \
        int64_t g_step = t->stride[2] * t->rows.bytes[2];                                                              \
        for (int64_t i = 0; i < t->columns; i++) {                                                                     \
            type x;                                                                                                    \
            TL_K(load)(&x, t->rows.dtype[1], pointer[1] + i * x_step, 1, 1);                                           \
            TL_K(store)(t->rows.dtype[0], pointer[0] + i * out_step, 1, &running, 1);                                  \
            running *= x;                                                                                              \
        }                                                                                                              \
        for (int64_t i = t->columns - 1; i >= 0; i--) {                                                                \
            type x, g, p;                                                                                              \
            TL_K(load)(&x, t->rows.dtype[1], pointer[1] + i * x_step, 1, 1);                                           \
            TL_K(load)(&g, t->rows.dtype[2], pointer[2] + i * g_step, 1, 1);                                           \
            TL_K(load)(&p, t->rows.dtype[0], pointer[0] + i * out_step, 1, 1);                                         \
            s = (t->exclusive ? next_g : g) + next_x * s;                                                              \
            p *= s;                                                                                                    \
            TL_K(store)(t->rows.dtype[0], pointer[0] + i * out_step, 1, &p, 1);                                        \
            next_x = x;                                                                                                \
            next_g = g;                                                                                                \
        }                                                                                                              \
    }
CUMULATE_BACKWARD(float, load_float, store_float)
CUMULATE_BACKWARD(double, load_double, store_double)

static void cumulate_backward_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const along_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        along_at(t, at, pointer);
        if (t->compute == TL_COMPUTE_DOUBLE)
            cumulate_backward_double(t, pointer);
        else
            cumulate_backward_float(t, pointer);
    }
}

void TL_K(cumprod_backward)(tl_kcall *call) {
    const tl_cumulate_attr *attr = call->attr;
    const tl_array *array[] = {&call->out[0], &call->in[0], &call->in[1]};
    along_task t = {.exclusive = attr->exclusive};
    along_make(&t, array, 3, attr->reverse);
    along_run(call, &t, cumulate_backward_rows);
}

/* ---- triangles: a row is copied where it is kept, zero elsewhere ---- */

typedef struct triangle_task {
    tl_walk rows; /* out, in */
    int64_t height, width, per_task, stride[2], diagonal;
    bool upper;
} triangle_task;

static void triangle_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const triangle_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    uint64_t zero = 0;
    tl_dtype dtype = t->rows.dtype[0];
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        /* upper keeps columns from row + diagonal on, lower those up to it, it included */
        int64_t row = at % t->height, edge = row + t->diagonal + (t->upper ? 0 : 1);
        edge = tl_max_i64(0, tl_min_i64(edge, t->width));
        int64_t from = t->upper ? edge : 0, to = t->upper ? t->width : edge, bytes = t->rows.bytes[0];
        TL_K(convert)(dtype, pointer[0], t->stride[0], dtype, (const char *)&zero, 0, from);
        TL_K(convert)
        (dtype, pointer[0] + from * t->stride[0] * bytes, t->stride[0], dtype, pointer[1] + from * t->stride[1] * bytes,
         t->stride[1], to - from);
        TL_K(convert)
        (dtype, pointer[0] + to * t->stride[0] * bytes, t->stride[0], dtype, (const char *)&zero, 0, t->width - to);
    }
}

void TL_K(triangle)(tl_kcall *call) {
    const tl_triangle_attr *attr = call->attr;
    const tl_array *array[] = {&call->out[0], &call->in[0]}, *x = array[1];
    triangle_task t = {.upper = attr->upper, .height = x->size[x->ndim - 2], .width = x->size[x->ndim - 1]};
    /* a diagonal beyond the matrix is as good as one just beyond it, and row + diagonal then fits */
    t.diagonal = tl_max_i64(-t.height - 1, tl_min_i64(attr->diagonal, t.width + 1));
    for (int a = 0; a < 2; a++)
        t.stride[a] = last_stride(array[a]);
    TL_K(walk_make)(&t.rows, array, 2, x->ndim - 1, false);
    t.per_task = tl_rows_per_task(t.width);
    bool large = t.rows.total * t.width >= 2 * TL_TASK_ELEMENTS;
    if (t.rows.total * t.width > 0)
        tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.rows.total, t.per_task), triangle_rows, &t);
}

/* ---- start + i·step along the only axis ---- */

void TL_K(range)(tl_kcall *call) {
    const tl_range_attr *attr = call->attr;
    const tl_array *out = &call->out[0];
    int64_t total = out->size[0], bytes = tl_bytes_of(out->dtype);
    bool ints = tl_compute_of(out->dtype) == TL_COMPUTE_INT;
    for (int64_t at = 0; at < total; at += TL_CHUNK) {
        double value[TL_CHUNK];
        int64_t whole[TL_CHUNK], n = tl_min_i64(TL_CHUNK, total - at);
        char *to = out->data + at * out->stride[0] * bytes;
        for (int64_t i = 0; i < n; i++) {
            value[i] = attr->start + (double)(at + i) * attr->step;
            whole[i] = (int64_t)((uint64_t)attr->start_int + (uint64_t)(at + i) * (uint64_t)attr->step_int);
        }
        if (ints)
            TL_K(store_int)(out->dtype, to, out->stride[0], whole, n);
        else
            TL_K(store_double)(out->dtype, to, out->stride[0], value, n);
    }
}

/* ---- one-hot: out[…, j, …] = on where j is the index, off elsewhere; negative indices count from the end ---- */

typedef struct one_hot_task {
    tl_walk rows; /* out, indices */
    int64_t depth, stride, per_task;
    uint64_t on, off; /* elements */
} one_hot_task;

static void one_hot_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const one_hot_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    tl_dtype dtype = t->rows.dtype[0];
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        int64_t index;
        TL_K(walk_at)(&t->rows, at, pointer);
        TL_K(load_int)(&index, t->rows.dtype[1], pointer[1], 1, 1);
        TL_K(convert)(dtype, pointer[0], t->stride, dtype, (const char *)&t->off, 0, t->depth);
        if (index < 0 && index >= -t->depth)
            index += t->depth;
        if (index >= 0 && index < t->depth)
            TL_K(convert)
        (dtype, pointer[0] + index * t->stride * t->rows.bytes[0], 1, dtype, (const char *)&t->on, 1, 1);
    }
}

/* in: indices; out: the same axes and then the depth */
void TL_K(one_hot)(tl_kcall *call) {
    const tl_one_hot_attr *attr = call->attr;
    const tl_array *out = &call->out[0], *array[] = {out, &call->in[0]};
    one_hot_task t = {.depth = out->size[out->ndim - 1], .stride = last_stride(out)};
    TL_K(store_double)(out->dtype, (char *)&t.on, 1, &attr->on, 1);
    TL_K(store_double)(out->dtype, (char *)&t.off, 1, &attr->off, 1);
    TL_K(walk_make)(&t.rows, array, 2, out->ndim - 1, false);
    t.per_task = tl_rows_per_task(t.depth);
    bool large = t.rows.total * t.depth >= 2 * TL_TASK_ELEMENTS;
    if (t.rows.total > 0 && t.depth > 0)
        tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.rows.total, t.per_task), one_hot_rows, &t);
}
