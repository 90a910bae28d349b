/* kernel/body/masked.c: masked softmax, log softmax, SwiGLU. mask.h has the rows. */
#include "kernel/body/body.h"
#include "kernel/body/math.h"

typedef struct masked_row {
    const char *x, *mask; /* mask NULL: none */
    tl_dtype x_dtype, mask_dtype;
    int64_t x_stride, mask_stride, columns;
    int64_t low, high; /* columns [low, high) are seen */
    double scale;
    bool has_sink;
    double sink;
} masked_row;

typedef struct multiply_add_task {
    const tl_multiply_add_attr *attr;
    bool two;
} multiply_add_task;

#define REAL float
#define N(name) name##_float
#define LOAD TL_K(load_float)
#define STORE TL_K(store_float)
#define LANES_ADD tl_lanes_add_float
#define LANES_SUM tl_lanes_sum_float
#define EXP tlm_exp
#define LOG tlm_log
#define SIGMOID(x) (1.0f / (1.0f + tlm_exp(-(x))))
#include "kernel/body/mask.h"
#undef REAL
#undef N
#undef LOAD
#undef STORE
#undef LANES_ADD
#undef LANES_SUM
#undef EXP
#undef LOG
#undef SIGMOID
#define REAL double
#define N(name) name##_double
#define LOAD TL_K(load_double)
#define STORE TL_K(store_double)
#define LANES_ADD tl_lanes_add_double
#define LANES_SUM tl_lanes_sum_double
#define EXP tlm_exp64
#define LOG tlm_log64
#define SIGMOID(x) (1.0 / (1.0 + tlm_exp64(-(x))))
#include "kernel/body/mask.h"

static int64_t last_stride(const tl_array *a) {
    return a->ndim == 0 || a->size[a->ndim - 1] == 1 ? 1 : a->stride[a->ndim - 1];
}

typedef struct masked_task {
    tl_walk rows; /* y, x, [mask], [sink], or for the backward of log softmax: dx, y, gradient */
    const tl_masked_softmax_attr *attr;
    const tl_array *positions, *lengths; /* NULL: none */
    int64_t matrix_rows, batch_rows, columns, stride[4], per_task;
    enum { MASKED, SCORES, LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD } what;
} masked_task;

static int64_t length_of(const masked_task *t, int64_t batch) {
    int64_t length;
    const tl_array *a = t->lengths;
    TL_K(load_int)(&length, a->dtype, a->data + batch * a->stride[0] * tl_bytes_of(a->dtype), 1, 1);
    return tl_max_i64(0, tl_min_i64(length, t->columns));
}

static int64_t position_of(const masked_task *t, int64_t batch, int64_t row) {
    int64_t position;
    const tl_array *a = t->positions;
    TL_K(load_int)
    (&position, a->dtype, a->data + (batch * a->stride[0] + row * a->stride[1]) * tl_bytes_of(a->dtype), 1, 1);
    return position;
}

/* Which columns row `at` sees: causal (j ≤ i + offset), window, document, length. */
static void seen(const masked_task *t, int64_t at, masked_row *r) {
    int64_t i = at % t->matrix_rows, offset = t->attr->offset;
    if (t->lengths) {
        r->high = length_of(t, at / t->batch_rows);
        offset = r->high - t->matrix_rows;
    }
    if (t->attr->causal)
        r->high = tl_min_i64(r->high, i + offset + 1);
    if (t->attr->window_after >= 0)
        r->high = tl_min_i64(r->high, i + offset + t->attr->window_after + 1);
    if (t->attr->window_before >= 0)
        r->low = tl_max_i64(0, i + offset - t->attr->window_before);
    if (t->attr->chunk > 0 && i + offset >= 0)
        r->low = tl_max_i64(r->low, (i + offset) - (i + offset) % t->attr->chunk);
    if (t->positions)
        r->low = tl_max_i64(r->low, i + offset - position_of(t, at / t->batch_rows, i));
}

static void masked_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const masked_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        masked_row r = {.x = pointer[1], .x_dtype = t->rows.dtype[1], .x_stride = t->stride[1], .columns = t->columns};
        r.high = t->columns;
        r.scale = 1;
        bool wide = r.x_dtype == TL_F64;
        if (t->what == MASKED || t->what == SCORES) {
            r.scale = t->attr->scale;
            seen(t, at, &r);
            if (t->attr->has_mask) {
                r.mask = pointer[2];
                r.mask_dtype = t->rows.dtype[2];
                r.mask_stride = t->stride[2];
            }
            if (t->attr->has_sink) {
                int at_sink = t->attr->has_mask ? 3 : 2;
                r.has_sink = true;
                TL_K(load_double)(&r.sink, t->rows.dtype[at_sink], pointer[at_sink], 1, 1);
            }
            if (t->what == SCORES)
                (wide ? scores_row_double : scores_row_float)(&r, pointer[0], r.x_dtype, t->stride[0]);
            else
                (wide ? masked_softmax_row_double : masked_softmax_row_float)(&r, pointer[0], r.x_dtype, t->stride[0]);
        } else if (t->what == LOG_SOFTMAX)
            (wide ? log_softmax_row_double : log_softmax_row_float)(&r, pointer[0], r.x_dtype, t->stride[0]);
        else
            (wide ? log_softmax_backward_row_double : log_softmax_backward_row_float)(&r, pointer[2], t->stride[2],
                                                                                      pointer[0], t->stride[0]);
    }
}

static void run_rows(tl_kcall *call, masked_task *t, const tl_array *const array[], int n_array) {
    const tl_array *x = array[1];
    t->columns = x->size[x->ndim - 1];
    t->matrix_rows = x->ndim > 1 ? tl_max_i64(1, x->size[x->ndim - 2]) : 1;
    t->batch_rows = 1;
    for (int d = 1; d < x->ndim - 1; d++)
        t->batch_rows *= tl_max_i64(1, x->size[d]);
    for (int a = 0; a < n_array; a++)
        t->stride[a] = last_stride(array[a]);
    TL_K(walk_make)(&t->rows, array, n_array, x->ndim - 1, false);
    if (t->columns == 0 || t->rows.total == 0)
        return;
    t->per_task = tl_rows_per_task(t->columns);
    bool large = t->rows.total * t->columns >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t->rows.total, t->per_task), masked_rows, t);
}

static void masked_call(tl_kcall *call, masked_task *t) {
    const tl_array *array[] = {&call->out[0], &call->in[0], &call->in[1], &call->in[2]};
    t->attr = call->attr;
    if (t->attr->has_positions)
        t->positions = &call->in[1 + t->attr->has_mask + t->attr->has_sink];
    if (t->attr->has_lengths)
        t->lengths = &call->in[call->n_in - 1];
    run_rows(call, t, array, 2 + t->attr->has_mask + t->attr->has_sink);
}

void TL_K(masked_softmax)(tl_kcall *call) { masked_call(call, &(masked_task){.what = MASKED}); }
void TL_K(masked_scores)(tl_kcall *call) { masked_call(call, &(masked_task){.what = SCORES}); }

void TL_K(log_softmax)(tl_kcall *call) {
    masked_task t = {.what = LOG_SOFTMAX};
    run_rows(call, &t, (const tl_array *[]){&call->out[0], &call->in[0]}, 2);
}

void TL_K(log_softmax_backward)(tl_kcall *call) {
    masked_task t = {.what = LOG_SOFTMAX_BACKWARD};
    run_rows(call, &t, (const tl_array *[]){&call->out[0], &call->in[0], &call->in[1]}, 3);
}

void TL_K(multiply_add)(tl_kcall *call) {
    TL_K(each_call)(call, multiply_add_float, multiply_add_double, &(multiply_add_task){call->attr, call->n_in > 2});
}

void TL_K(swiglu)(tl_kcall *call) { TL_K(each_call)(call, swiglu_float, swiglu_double, call->attr); }

void TL_K(swiglu_backward)(tl_kcall *call) {
    static const int access[] = {TL_WRITE, TL_WRITE, TL_READ, TL_READ, TL_READ};
    const tl_array *array[] = {&call->out[0], &call->out[1], &call->in[0], &call->in[1], &call->in[2]};
    bool wide = call->out[0].dtype == TL_F64;
    TL_K(each)
    (call->engine, array, access, 5, wide ? TL_COMPUTE_DOUBLE : TL_COMPUTE_FLOAT,
     wide ? swiglu_backward_double : swiglu_backward_float, call->attr);
}
