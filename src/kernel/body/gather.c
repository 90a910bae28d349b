/* kernel/body/gather.c: gathers and scatters. Axis, elementwise and n-dimensional indices are one thing here: a position of
 * the picked tensor is a place in x that its own axes give (strides in x, 0 where an index decides) plus what one or more
 * indices give. */
#include "kernel/body/body.h"

typedef struct pick {
    int ndim; /* axes of the picked tensor */
    int64_t size[TL_MAX_NDIM], picked[TL_MAX_NDIM], x[TL_MAX_NDIM], index[TL_MAX_NDIM], flat[TL_MAX_NDIM]; /* strides */
    int n_index;
    int64_t limit[TL_MAX_NDIM], step[TL_MAX_NDIM]; /* of the axes of x that indices choose */
    int64_t component;                             /* stride between the indices of one position */
    int64_t rows, run;                             /* run: elements of the last axis that share their indices; else 1 */
} pick;

typedef struct pick_task {
    pick p;
    tl_array x, index, picked, before; /* before: scatter's trace */
    tl_combine combine;
    bool trace;
    int64_t per_task, strip, fault;
} pick_task;

static void axis_like(pick *p, int to, const tl_array *picked, int64_t x_stride, int64_t index_stride,
                      int64_t flat_stride) {
    p->size[to] = picked->size[to];
    p->picked[to] = picked->stride[to];
    p->x[to] = x_stride;
    p->index[to] = index_stride;
    p->flat[to] = flat_stride;
}

static void pick_make(pick *p, const tl_index_attr *attr, const tl_array *x, const tl_array *index,
                      const tl_array *picked) {
    int64_t flat[TL_MAX_NDIM], product = 1;
    for (int d = index->ndim - 1; d >= 0; d--) {
        flat[d] = product;
        product *= index->size[d];
    }
    p->ndim = picked->ndim;
    p->n_index = 1;
    p->component = 0;
    int axis = attr->axis, outer = index->ndim - 1; /* ND: the last axis of index holds the components */
    if (attr->kind == TL_INDEX_ND) {
        p->n_index = (int)index->size[outer];
        p->component = index->stride[outer];
    }
    for (int k = 0; k < p->n_index; k++) {
        p->limit[k] = x->size[axis + k];
        p->step[k] = x->stride[axis + k];
    }
    for (int d = 0; d < p->ndim; d++) {
        if (attr->kind == TL_INDEX_ELEMENTS)
            axis_like(p, d, picked, d == axis ? 0 : x->stride[d], index->stride[d], flat[d]);
        else if (attr->kind == TL_INDEX_AXIS) {
            bool indexed = d >= axis && d < axis + index->ndim;
            int from = d < axis ? d : d - index->ndim + 1;
            axis_like(p, d, picked, indexed ? 0 : x->stride[from], indexed ? index->stride[d - axis] : 0,
                      indexed ? flat[d - axis] : 0);
        } else {
            bool indexed = d < outer;
            int64_t own = d < axis ? x->stride[d] : indexed ? 0 : x->stride[axis + p->n_index + d - outer];
            axis_like(p, d, picked, own, indexed ? index->stride[d] : 0, indexed ? flat[d] : 0);
        }
    }
    int last = p->ndim - 1;
    bool free_last = last >= 0 && (attr->kind == TL_INDEX_ND     ? last >= outer
                                   : attr->kind == TL_INDEX_AXIS ? last >= axis + index->ndim
                                                                 : false);
    p->run = free_last ? p->size[last] : 1;
    p->rows = 1;
    for (int d = 0; d < p->ndim - (free_last ? 1 : 0); d++)
        p->rows *= p->size[d];
}

/* Element offsets in x and picked of a row; false and a fault where an index is out of range. */
static bool pick_at(pick_task *t, int64_t row, int64_t *x, int64_t *picked) {
    const pick *p = &t->p;
    int64_t rest = row, at = 0, flat = 0;
    *x = *picked = 0;
    int last = p->ndim - 1;
    if (last >= 0 && p->run != 1)
        last--;
    else if (last >= 0 && p->size[last] == 1)
        last--;
    for (int d = last; d >= 0; d--) {
        int64_t i = rest % p->size[d];
        rest /= p->size[d];
        *x += i * p->x[d];
        *picked += i * p->picked[d];
        at += i * p->index[d];
        flat += i * p->flat[d];
    }
    for (int k = 0; k < p->n_index; k++) {
        int64_t value;
        const char *from = t->index.data + (at + k * p->component) * tl_bytes_of(t->index.dtype);
        TL_K(load_int)(&value, t->index.dtype, from, 1, 1);
        if (value < 0)
            value += p->limit[k];
        if (value < 0 || value >= p->limit[k]) {
            int64_t position = flat + k + 1, now = __atomic_load_n(&t->fault, __ATOMIC_RELAXED);
            while (position < now &&
                   !__atomic_compare_exchange_n(&t->fault, &now, position, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                ;
            return false;
        }
        *x += value * p->step[k];
    }
    return true;
}

static char *element(const tl_array *a, int64_t offset) { return a->data + offset * tl_bytes_of(a->dtype); }

static void gather_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    pick_task *t = argument;
    const pick *p = &t->p;
    bool long_run = p->run != 1;
    int64_t end = tl_min_i64((task + 1) * t->per_task, p->rows), x, picked;
    int64_t from = long_run ? p->x[p->ndim - 1] : 1, to = long_run ? p->picked[p->ndim - 1] : 1;
    for (int64_t row = task * t->per_task; row < end; row++) {
        if (!pick_at(t, row, &x, &picked))
            return;
        TL_K(convert)(t->picked.dtype, element(&t->picked, picked), to, t->x.dtype, element(&t->x, x), from, p->run);
    }
}

void TL_K(gather)(tl_kcall *call) {
    pick_task t = {.x = call->in[0], .index = call->in[1], .picked = call->out[0], .fault = INT64_MAX};
    pick_make(&t.p, call->attr, &t.x, &t.index, &t.picked);
    if (t.p.rows == 0 || t.p.run == 0)
        return;
    t.per_task = tl_rows_per_task(t.p.run);
    bool large = t.p.rows * t.p.run >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.p.rows, t.per_task), gather_rows, &t);
    if (t.fault != INT64_MAX)
        call->fault = t.fault;
}

/* ---- scatter ---- */

/* NaN wins, as in max. */
#define COMBINE(name, type, plus, times)                                                                               \
    static void name(tl_combine combine, type *x, const type *u, int64_t n) {                                          \
        for (int64_t i = 0; i < n; i++)                                                                                \
            switch (combine) {                                                                                         \
            case TL_COMBINE_ADD:                                                                                       \
                x[i] = plus;                                                                                           \
                break;                                                                                                 \
            case TL_COMBINE_MUL:                                                                                       \
                x[i] = times;                                                                                          \
                break;                                                                                                 \
            case TL_COMBINE_MAX:                                                                                       \
                x[i] = u[i] > x[i] || u[i] != u[i] ? u[i] : x[i];                                                      \
                break;                                                                                                 \
            case TL_COMBINE_MIN:                                                                                       \
                x[i] = u[i] < x[i] || u[i] != u[i] ? u[i] : x[i];                                                      \
                break;                                                                                                 \
            default:                                                                                                   \
                x[i] = u[i];                                                                                           \
                break;                                                                                                 \
            }                                                                                                          \
    }
COMBINE(combine_float, float, x[i] + u[i], x[i] * u[i])
COMBINE(combine_double, double, x[i] + u[i], x[i] * u[i])
/* ints wrap: through unsigned, where that is defined */
COMBINE(combine_int, int64_t, (int64_t)((uint64_t)x[i] + (uint64_t)u[i]), (int64_t)((uint64_t)x[i] * (uint64_t)u[i]))

typedef union buffer {
    float f[TL_CHUNK];
    double d[TL_CHUNK];
    int64_t i[TL_CHUNK];
} buffer;

static void load(tl_compute compute, buffer *to, tl_dtype dtype, const char *from, int64_t stride, int64_t n) {
    if (compute == TL_COMPUTE_FLOAT)
        TL_K(load_float)(to->f, dtype, from, stride, n);
    else if (compute == TL_COMPUTE_DOUBLE)
        TL_K(load_double)(to->d, dtype, from, stride, n);
    else
        TL_K(load_int)(to->i, dtype, from, stride, n);
}

static void store(tl_compute compute, tl_dtype dtype, char *to, int64_t stride, const buffer *from, int64_t n) {
    if (compute == TL_COMPUTE_FLOAT)
        TL_K(store_float)(dtype, to, stride, from->f, n);
    else if (compute == TL_COMPUTE_DOUBLE)
        TL_K(store_double)(dtype, to, stride, from->d, n);
    else
        TL_K(store_int)(dtype, to, stride, from->i, n);
}

static void scatter_run(const pick_task *t, char *x, int64_t x_stride, const char *u, int64_t u_stride, int64_t n) {
    if (t->combine == TL_COMBINE_REPLACE) {
        TL_K(convert)(t->x.dtype, x, x_stride, t->picked.dtype, u, u_stride, n);
        return;
    }
    tl_compute compute = tl_compute_of(t->x.dtype);
    buffer a, b;
    load(compute, &a, t->x.dtype, x, x_stride, n);
    load(compute, &b, t->picked.dtype, u, u_stride, n);
    if (compute == TL_COMPUTE_FLOAT)
        combine_float(t->combine, a.f, b.f, n);
    else if (compute == TL_COMPUTE_DOUBLE)
        combine_double(t->combine, a.d, b.d, n);
    else
        combine_int(t->combine, a.i, b.i, n);
    store(compute, t->x.dtype, x, x_stride, &a, n);
}

typedef struct strip {
    int64_t first, count, x, picked, before; /* elements of the run, and its strides */
} strip;

static strip strip_of(const pick_task *t, int64_t task) {
    const pick *p = &t->p;
    int last = p->ndim - 1;
    strip s = {.count = 1, .x = 1, .picked = 1, .before = 1};
    if (p->run == 1)
        return s;
    s.first = task * t->strip;
    s.count = tl_min_i64(t->strip, p->run - s.first);
    s.x = p->x[last];
    s.picked = p->picked[last];
    s.before = t->before.stride[last];
    return s;
}

/* Offset of a row of picked in an array of the same sizes and other strides. */
static int64_t same_row(const pick *p, const tl_array *a, int64_t row) {
    int64_t offset = 0;
    for (int d = p->ndim - (p->run != 1 ? 2 : 1); d >= 0; d--) {
        offset += row % p->size[d] * a->stride[d];
        row /= p->size[d];
    }
    return offset;
}

/* Each task owns a strip of the run and goes through all rows in order, so no two tasks write one element. */
static void scatter_strip(void *argument, int64_t task, int thread) {
    (void)thread;
    pick_task *t = argument;
    strip s = strip_of(t, task);
    int64_t x, picked;
    for (int64_t row = 0; row < t->p.rows; row++) {
        if (!pick_at(t, row, &x, &picked))
            return;
        char *to = element(&t->x, x + s.first * s.x);
        if (t->trace)
            TL_K(convert)
        (t->before.dtype, element(&t->before, same_row(&t->p, &t->before, row) + s.first * s.before), s.before,
         t->x.dtype, to, s.x, s.count);
        scatter_run(t, to, s.x, element(&t->picked, picked + s.first * s.picked), s.picked, s.count);
    }
}

static void run_strips(tl_kcall *call, pick_task *t, tl_engine_task *task) {
    if (t->p.rows == 0 || t->p.run == 0)
        return;
    t->strip = TL_CHUNK / 4;
    bool large = t->p.rows * t->p.run >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t->p.run, t->strip), task, t);
    if (t->fault != INT64_MAX)
        call->fault = t->fault;
}

static void scatter_call(tl_kcall *call, bool trace) {
    const tl_index_attr *attr = call->attr;
    pick_task t = {.x = call->out[0],
                   .index = call->in[0],
                   .picked = call->in[1],
                   .before = trace ? call->out[1] : call->in[1],
                   .combine = attr->combine,
                   .trace = trace,
                   .fault = INT64_MAX};
    pick_make(&t.p, attr, &t.x, &t.index, &t.picked);
    run_strips(call, &t, scatter_strip);
}

void TL_K(scatter)(tl_kcall *call) { scatter_call(call, false); }
void TL_K(scatter_trace)(tl_kcall *call) { scatter_call(call, true); }

/* g: gradient of x, u: of what was picked (on entry what the combination found), p: what was picked. */
#define REVERSE(name, type)                                                                                            \
    static void name(tl_combine combine, type *g, type *u, const type *p, int64_t n) {                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type found = u[i];                                                                                         \
            bool taken = combine == TL_COMBINE_REPLACE || (combine == TL_COMBINE_MAX && p[i] > found) ||               \
                         (combine == TL_COMBINE_MIN && p[i] < found);                                                  \
            switch (combine) {                                                                                         \
            case TL_COMBINE_ADD:                                                                                       \
                u[i] = g[i];                                                                                           \
                break;                                                                                                 \
            case TL_COMBINE_MUL:                                                                                       \
                u[i] = g[i] * found;                                                                                   \
                g[i] *= p[i];                                                                                          \
                break;                                                                                                 \
            default:                                                                                                   \
                u[i] = taken ? g[i] : 0;                                                                               \
                g[i] = taken ? 0 : g[i];                                                                               \
                break;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }
REVERSE(reverse_float, float)
REVERSE(reverse_double, double)

static void reverse_strip(void *argument, int64_t task, int thread) {
    (void)thread;
    pick_task *t = argument;
    strip s = strip_of(t, task);
    bool looks = t->combine != TL_COMBINE_REPLACE && t->combine != TL_COMBINE_ADD;
    tl_compute compute = tl_compute_of(t->x.dtype);
    int64_t x, picked;
    for (int64_t row = t->p.rows - 1; row >= 0; row--) {
        if (!pick_at(t, row, &x, &picked))
            return;
        char *g = element(&t->x, x + s.first * s.x);
        char *u = element(&t->before, same_row(&t->p, &t->before, row) + s.first * s.before);
        buffer gradient, found, value;
        load(compute, &gradient, t->x.dtype, g, s.x, s.count);
        memset(&found, 0, (size_t)s.count * sizeof(double)); /* no more: a run may be one element */
        memset(&value, 0, (size_t)s.count * sizeof(double));
        if (looks) {
            load(compute, &found, t->before.dtype, u, s.before, s.count);
            load(compute, &value, t->picked.dtype, element(&t->picked, picked + s.first * s.picked), s.picked, s.count);
        }
        if (compute == TL_COMPUTE_DOUBLE)
            reverse_double(t->combine, gradient.d, found.d, value.d, s.count);
        else
            reverse_float(t->combine, gradient.f, found.f, value.f, s.count);
        store(compute, t->x.dtype, g, s.x, &gradient, s.count);
        store(compute, t->before.dtype, u, s.before, &found, s.count);
    }
}

void TL_K(scatter_reverse)(tl_kcall *call) {
    const tl_index_attr *attr = call->attr;
    pick_task t = {.x = call->out[0],
                   .index = call->in[0],
                   .picked = call->n_in > 1 ? call->in[1] : call->out[1],
                   .before = call->out[1],
                   .combine = attr->combine,
                   .fault = INT64_MAX};
    pick_make(&t.p, attr, &t.x, &t.index, &t.picked);
    run_strips(call, &t, reverse_strip);
}
