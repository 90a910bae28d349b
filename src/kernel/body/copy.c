/* kernel/body/copy.c: copies with conversion, and fills. */
#include "kernel/body/body.h"

typedef struct copy_task {
    tl_walk walk;
    int64_t per_task;
    bool saturating;
} copy_task;

static void copy_range(void *argument, int64_t task, int thread) {
    (void)thread;
    const copy_task *c = argument;
    const tl_walk *w = &c->walk;
    int last = w->ndim - 1;
    int64_t at = task * c->per_task, end = tl_min_i64(at + c->per_task, w->total);
    while (at < end) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(w, at, pointer);
        int64_t n = tl_min_i64(w->size[last] - at % w->size[last], end - at);
        (c->saturating ? TL_K(convert_saturating) : TL_K(convert))(w->dtype[0], pointer[0], w->stride[0][last],
                                                                   w->dtype[1], pointer[1], w->stride[1][last], n);
        at += n;
    }
}

/* A transposition: squares of 16 × 16 keep both sides' cache lines in use. Axes: `last` (output runs) and `second` (input
 * runs), both of the same dtype. */
#define SQUARE(type)                                                                                                   \
    static void square_##type(type *to, int64_t to_row, int64_t to_column, const type *from, int64_t row,              \
                              int64_t column, int64_t rows, int64_t columns) {                                         \
        for (int64_t i = 0; i < rows; i += 16)                                                                         \
            for (int64_t j = 0; j < columns; j += 16)                                                                  \
                for (int64_t k = i; k < tl_min_i64(i + 16, rows); k++)                                                 \
                    for (int64_t l = j; l < tl_min_i64(j + 16, columns); l++)                                          \
                        to[k * to_row + l * to_column] = from[k * row + l * column];                                   \
    }
SQUARE(uint64_t)
SQUARE(uint32_t)
SQUARE(uint16_t)

#define BAND 64 /* rows of the output in one task of a transposition */

typedef struct turn {
    tl_walk walk; /* the outer axes */
    int64_t rows, columns, bands;
    int64_t row[2], column[2];
} turn;

static void turn_band(void *argument, int64_t task, int thread) {
    (void)thread;
    const turn *t = argument;
    char *pointer[TL_MAX_IO];
    int bytes = t->walk.bytes[0];
    TL_K(walk_at)(&t->walk, task / t->bands, pointer);
    int64_t first = task % t->bands * BAND, rows = tl_min_i64(BAND, t->rows - first);
    char *to = pointer[0] + first * t->row[0] * bytes, *from = pointer[1] + first * t->row[1] * bytes;
    if (bytes == 8)
        square_uint64_t((uint64_t *)to, t->row[0], t->column[0], (const uint64_t *)from, t->row[1], t->column[1], rows,
                        t->columns);
    else if (bytes == 4)
        square_uint32_t((uint32_t *)to, t->row[0], t->column[0], (const uint32_t *)from, t->row[1], t->column[1], rows,
                        t->columns);
    else
        square_uint16_t((uint16_t *)to, t->row[0], t->column[0], (const uint16_t *)from, t->row[1], t->column[1], rows,
                        t->columns);
}

/* True when it was a transposition and is done. */
static bool copy_turned(tl_kcall *call, const tl_walk *w) {
    int last = w->ndim - 1, other = -1;
    if (w->dtype[0] != w->dtype[1] || w->bytes[0] < 2 || w->stride[0][last] != 1 || w->stride[1][last] == 1)
        return false;
    for (int d = 0; d < last; d++)
        if (w->stride[1][d] == 1 && w->size[d] >= 16)
            other = d;
    if (other < 0 || w->size[last] < 16)
        return false;
    turn t = {.rows = w->size[other], .columns = w->size[last], .bands = tl_blocks_of(w->size[other], BAND)};
    t.walk = *w;
    t.walk.total = w->total / (t.rows * t.columns);
    for (int a = 0; a < 2; a++) {
        t.row[a] = w->stride[a][other];
        t.column[a] = w->stride[a][last];
    }
    t.walk.ndim = 0;
    for (int d = 0; d < last; d++)
        if (d != other) {
            t.walk.size[t.walk.ndim] = w->size[d];
            for (int a = 0; a < 2; a++)
                t.walk.stride[a][t.walk.ndim] = w->stride[a][d];
            t.walk.ndim++;
        }
    if (w->total < 2 * TL_TASK_ELEMENTS)
        for (int64_t i = 0; i < t.walk.total * t.bands; i++)
            turn_band(&t, i, 0);
    else
        tl_engine_run(call->engine, t.walk.total * t.bands, turn_band, &t);
    return true;
}

static void copy_any(tl_kcall *call, bool saturating) {
    const tl_array *array[] = {&call->out[0], &call->in[0]};
    copy_task c = {.saturating = saturating};
    TL_K(walk_make)(&c.walk, array, 2, array[0]->ndim, true);
    if (c.walk.total == 0 || copy_turned(call, &c.walk))
        return;
    c.per_task = c.walk.total < 2 * TL_TASK_ELEMENTS ? c.walk.total : TL_TASK_ELEMENTS;
    tl_engine_run(call->engine, tl_blocks_of(c.walk.total, c.per_task), copy_range, &c);
}

void TL_K(copy)(tl_kcall *call) { copy_any(call, false); }
void TL_K(copy_saturating)(tl_kcall *call) { copy_any(call, true); }

/* The value is converted once; what is left is a copy from a zero-stride array. */
void TL_K(fill)(tl_kcall *call) {
    const tl_fill_attr *attr = call->attr;
    uint64_t element = 0;
    tl_kcall copy = {.engine = call->engine, .n_in = 1, .n_out = 1};
    copy.out[0] = call->out[0];
    copy.in[0] = call->out[0];
    for (int d = 0; d < copy.in[0].ndim; d++)
        copy.in[0].stride[d] = 0;
    copy.in[0].data = (char *)&element;
    TL_K(store_double)(call->out[0].dtype, (char *)&element, 1, &attr->value, 1);
    TL_K(copy)(&copy);
}
