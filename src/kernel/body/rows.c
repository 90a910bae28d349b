/* kernel/body/rows.c: softmax, norms and cross-entropy: rows in tasks cut by shape, see rows.h for the rows themselves. */
#include "kernel/body/body.h"
#include "kernel/body/math.h"
#include "kernel/body/rows_vector.h"

typedef struct tl_line {
    tl_dtype dtype;
    char *data;
    int64_t stride; /* elements */
    bool past;      /* written past the caches: contiguous, of the compute type */
} tl_line;

#define ROW_CHUNK                                                                                                      \
    4096 /* terms of a row that are kept, not computed twice; of doubles they fill the first-level cache */

/* lane[j % 16] = the larger of it and x[j]; n is a multiple of 16, and a NaN in x is passed over */
static inline void lanes_max_float(float lane[16], const float *x, int64_t n) {
#ifdef TL_HAVE_VECTOR_MATH
    __m512 best = _mm512_loadu_ps(lane);
    for (int64_t j = 0; j < n; j += 16)
        best = _mm512_max_ps(_mm512_loadu_ps(x + j), best);
    _mm512_storeu_ps(lane, best);
#else
    for (int64_t j = 0; j < n; j += 16)
        for (int l = 0; l < 16; l++)
            lane[l] = x[j + l] > lane[l] ? x[j + l] : lane[l];
#endif
}
static inline void lanes_max_double(double lane[16], const double *x, int64_t n) {
    for (int64_t j = 0; j < n; j += 16)
        for (int l = 0; l < 16; l++)
            lane[l] = x[j + l] > lane[l] ? x[j + l] : lane[l];
}

/* x = e^(x − shift) over n elements, a multiple of 16. `next`: what will be read next, fetched meanwhile; only a hint. */
static inline void exp_all_float(float *x, int64_t n, float shift, const char *next) {
#ifdef TL_HAVE_VECTOR_MATH
    for (int64_t i = 0; i < n; i += 16) {
        _mm_prefetch(next + 4 * i, _MM_HINT_T0);
        _mm512_storeu_ps(x + i, tlv_exp(_mm512_sub_ps(_mm512_loadu_ps(x + i), tlv_set(shift))));
    }
#else
    (void)next;
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        x[i] = tlm_exp(x[i] - shift);
#endif
}
static inline void exp_all_double(double *x, int64_t n, double shift, const char *next) {
    (void)next;
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        x[i] = tlm_exp64(x[i] - shift);
}

typedef struct tl_norm_task {
    tl_walk rows; /* forward: x, y, mean, rstd; backward: x, gradient, dx, mean, rstd */
    bool centred, writes_dx, past;
    double epsilon, gain_offset;
    int64_t columns, per_task;
    tl_line gain, bias;
    int64_t stride[3]; /* along the last axis */
    void *dgain, *dbias;
} tl_norm_task;

#define REAL float
#define N(name) name##_float
#define OWN TL_F32
#define LOAD TL_K(load_float)
#define STORE TL_K(store_float)
#define LANES_ADD tl_lanes_add_four_float
#define LANES_SUM tl_lanes_sum_float
#define LANES_MAX lanes_max_float
#define LANES_SQUARES tl_lanes_squares_float
#define EXP_ALL exp_all_float
#define EXP tlm_exp
#define LOG tlm_log
#define SQRT __builtin_sqrtf
#include "kernel/body/rows.h"
#undef REAL
#undef N
#undef OWN
#undef LOAD
#undef STORE
#undef LANES_ADD
#undef LANES_SUM
#undef LANES_MAX
#undef LANES_SQUARES
#undef EXP_ALL
#undef EXP
#undef LOG
#undef SQRT
#define REAL double
#define N(name) name##_double
#define OWN TL_F64
#define LOAD TL_K(load_double)
#define STORE TL_K(store_double)
#define LANES_ADD tl_lanes_add_double
#define LANES_SUM tl_lanes_sum_double
#define LANES_MAX lanes_max_double
#define LANES_SQUARES tl_lanes_squares_double
#define EXP_ALL exp_all_double
#define EXP tlm_exp64
#define LOG tlm_log64
#define SQRT __builtin_sqrt
#include "kernel/body/rows.h"

/* A row's line of array `a` of a walk over rows. */
static tl_line line_at(const tl_walk *rows, int a, char *const pointer[], int64_t stride) {
    return (tl_line){rows->dtype[a], pointer[a], stride, false};
}

static int64_t last_stride(const tl_array *a) {
    return a->ndim == 0 || a->size[a->ndim - 1] == 1 ? 1 : a->stride[a->ndim - 1];
}

/* Written past the caches: by size alone. */
static bool goes_past(const tl_array *y, int64_t elements) {
    bool own = y->dtype == TL_F32 || y->dtype == TL_F64;
    return own && last_stride(y) == 1 && elements * tl_bytes_of(y->dtype) >= TL_PAST_CACHE;
}

static tl_engine *engine_for(const tl_kcall *call, int64_t elements) {
    return elements < 2 * TL_TASK_ELEMENTS ? NULL : call->engine;
}

/* ---- softmax ---- */

typedef struct softmax_task {
    tl_walk rows;
    int64_t columns, per_task, stride[3], rows_in_matrix;
    double scale;
    bool causal, past;
} softmax_task;

#ifdef TL_HAVE_VECTOR_MATH
static bool whole_lines(const tl_walk *rows, int a, int64_t first, int64_t end) {
    char *pointer[TL_MAX_IO];
    for (int64_t at = first; at < end; at++) {
        TL_K(walk_at)(rows, at, pointer);
        if (!tlv_whole_line(pointer[a]))
            return false;
    }
    return true;
}

/* All rows of a task in a pipeline; false where it does not serve. */
static bool softmax_rows_piped(const softmax_task *t, int64_t first, int64_t end) {
    if (!t->past || t->causal || t->rows.dtype[0] != TL_F32 || t->rows.dtype[1] != TL_F32 || t->stride[1] != 1 ||
        !tlv_pipe_serves(t->columns) || !whole_lines(&t->rows, 0, first, end))
        return false;
    _Alignas(64) float terms[2][TLV_PIPE_MOST];
    softmax_stage s = {.x1 = NULL};
    for (int64_t at = first; at < end + 2;
         at++) { /* row at in its first pass, at − 1 in its second, at − 2 in its last */
        char *pointer[TL_MAX_IO];
        s.terms3 = s.x2 ? s.terms2 : NULL;
        s.factor3 = s.sum2 == 0 ? 0 : 1 / s.sum2;
        s.terms2 = terms[at & 1];
        s.x2 = s.x1;
        s.shift2 = s.best1 == -__builtin_inff() ? 0 : s.best1;
        if (s.terms3) {
            TL_K(walk_at)(&t->rows, at - 2, pointer);
            s.y3 = (float *)(void *)pointer[0];
        }
        s.x1 = NULL;
        if (at < end) {
            TL_K(walk_at)(&t->rows, at, pointer);
            s.x1 = (const float *)(const void *)pointer[1];
        }
        softmax_pipe(&s, t->columns, (float)t->scale);
    }
    return true;
}
#endif

static void softmax_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const softmax_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
#ifdef TL_HAVE_VECTOR_MATH
    if (softmax_rows_piped(t, task * t->per_task, end)) {
        TL_K(stream_end)();
        return;
    }
#endif
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        tl_line y = line_at(&t->rows, 0, pointer, t->stride[0]), x = line_at(&t->rows, 1, pointer, t->stride[1]);
        int64_t seen = t->columns;
        y.past = t->past;
        if (t->causal)
            seen = tl_max_i64(0, tl_min_i64(seen, at % t->rows_in_matrix + 1 + t->columns - t->rows_in_matrix));
        if (x.dtype == TL_F64)
            softmax_row_double(&x, &y, t->columns, seen, t->scale);
        else
            softmax_row_float(&x, &y, t->columns, seen, (float)t->scale);
    }
    if (t->past)
        TL_K(stream_end)();
}

static void softmax_backward_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const softmax_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        tl_line out = line_at(&t->rows, 0, pointer, t->stride[0]), y = line_at(&t->rows, 1, pointer, t->stride[1]);
        tl_line g = line_at(&t->rows, 2, pointer, t->stride[2]);
        if (y.dtype == TL_F64)
            softmax_backward_row_double(&y, &g, &out, t->columns, t->scale);
        else
            softmax_backward_row_float(&y, &g, &out, t->columns, (float)t->scale);
    }
}

static void softmax_run(tl_kcall *call, int n_array, tl_engine_task *task) {
    const tl_softmax_attr *attr = call->attr;
    const tl_array *array[] = {&call->out[0], &call->in[0], &call->in[1]}, *x = array[1];
    softmax_task t = {.scale = attr->scale, .causal = attr->causal && x->ndim >= 2};
    t.columns = x->size[x->ndim - 1];
    t.rows_in_matrix = x->ndim >= 2 ? x->size[x->ndim - 2] : 1;
    for (int a = 0; a < n_array; a++)
        t.stride[a] = last_stride(array[a]);
    TL_K(walk_make)(&t.rows, array, n_array, x->ndim - 1, false);
    t.per_task = tl_rows_per_task(t.columns);
    t.past = task == softmax_rows && goes_past(array[0], t.rows.total * t.columns);
    if (t.columns > 0)
        tl_engine_run(engine_for(call, t.rows.total * t.columns), tl_blocks_of(t.rows.total, t.per_task), task, &t);
}

void TL_K(softmax)(tl_kcall *call) { softmax_run(call, 2, softmax_rows); }
void TL_K(softmax_backward)(tl_kcall *call) { softmax_run(call, 3, softmax_backward_rows); }

/* ---- norms ---- */

static void norm_outputs(const tl_walk *rows, char *const pointer[], tl_line *mean, tl_line *rstd) {
    *mean = *rstd = (tl_line){TL_F32, NULL, 0, false};
    if (rows->n_array > 2)
        *rstd = line_at(rows, rows->n_array - 1, pointer, 1);
    if (rows->n_array > 3)
        *mean = line_at(rows, 2, pointer, 1);
}

static void norm_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const tl_norm_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        tl_line x = line_at(&t->rows, 0, pointer, t->stride[0]), y = line_at(&t->rows, 1, pointer, t->stride[1]);
        y.past = t->past;
        tl_line mean, rstd;
        norm_outputs(&t->rows, pointer, &mean, &rstd);
        if (x.dtype == TL_F64)
            norm_row_double(t, &x, &y, &mean, &rstd);
        else
            norm_row_float(t, &x, &y, &mean, &rstd);
    }
    if (t->past)
        TL_K(stream_end)();
}

static tl_line vector_line(const tl_array *a) { return (tl_line){a->dtype, a->data, last_stride(a), false}; }

static void norm_forward(tl_kcall *call, bool centred) {
    const tl_norm_attr *attr = call->attr;
    const tl_array *array[4] = {&call->in[0], &call->out[0]}, *x = array[0];
    int n_array = 2;
    for (int i = 1; i < call->n_out; i++)
        array[n_array++] = &call->out[i];
    tl_norm_task t = {.centred = centred,
                      .epsilon = attr->epsilon,
                      .gain_offset = attr->gain_offset,
                      .columns = x->size[x->ndim - 1]};
    t.gain = vector_line(&call->in[1]);
    if (centred && call->n_in > 2)
        t.bias = vector_line(&call->in[2]);
    t.stride[0] = last_stride(array[0]);
    t.stride[1] = last_stride(array[1]);
    TL_K(walk_make)(&t.rows, array, n_array, x->ndim - 1, false);
    t.per_task = tl_rows_per_task(t.columns);
    t.past = goes_past(array[1], t.rows.total * t.columns);
    tl_engine_run(engine_for(call, t.rows.total * t.columns), tl_blocks_of(t.rows.total, t.per_task), norm_rows, &t);
}

static void norm_backward_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const tl_norm_task *t = argument;
    bool wide = t->rows.dtype[0] == TL_F64;
    int64_t end = tl_min_i64((task + 1) * TL_ROW_BLOCK, t->rows.total), bytes = t->columns * (wide ? 8 : 4);
    char *dgain = t->dgain ? (char *)t->dgain + task * bytes : NULL;
    char *dbias = t->dbias ? (char *)t->dbias + task * bytes : NULL;
    if (dgain)
        memset(dgain, 0, (size_t)bytes);
    if (dbias)
        memset(dbias, 0, (size_t)bytes);
    for (int64_t at = task * TL_ROW_BLOCK; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        tl_line line[5] = {line_at(&t->rows, 0, pointer, t->stride[0]), line_at(&t->rows, 1, pointer, t->stride[1]),
                           line_at(&t->rows, 2, pointer, t->stride[2]), line_at(&t->rows, 3, pointer, 1),
                           line_at(&t->rows, 4, pointer, 1)};
        if (!t->writes_dx)
            line[2].data = NULL;
        if (wide)
            norm_backward_row_double(t, line, (double *)dgain, (double *)dbias);
        else
            norm_backward_row_float(t, line, (float *)dgain, (float *)dbias);
    }
}

static void norm_backward(tl_kcall *call, bool centred) {
    const tl_array *x = &call->in[0], *rstd = &call->in[centred ? 3 : 2], *mean = centred ? &call->in[2] : rstd;
    tl_array dx = call->out[0];
    const tl_array *gradient = &call->in[centred ? 4 : 3], *array[] = {x, gradient, &dx, mean, rstd};
    bool writes_dx = dx.data != NULL;
    if (!writes_dx)
        dx = *gradient; /* not wanted: the walk goes along the gradient instead and writes nothing */
    const tl_norm_attr *attr = call->attr;
    tl_norm_task t = {.centred = centred,
                      .writes_dx = writes_dx,
                      .gain_offset = attr->gain_offset,
                      .columns = x->size[x->ndim - 1],
                      .gain = vector_line(&call->in[1])};
    for (int a = 0; a < 3; a++)
        t.stride[a] = last_stride(array[a]);
    TL_K(walk_make)(&t.rows, array, 5, x->ndim - 1, false);
    int64_t blocks = tl_blocks_of(t.rows.total, TL_ROW_BLOCK);
    bool wide = x->dtype == TL_F64, has_bias = centred && call->n_out > 2 && call->out[2].data;
    bool has_gain = call->n_out > 1 && call->out[1].data;
    char *work = call->work; /* NULL where there are no rows: then the sums are zeros */
    t.dgain = has_gain ? work : NULL;
    t.dbias = has_bias && work ? work + blocks * t.columns * (wide ? 8 : 4) : NULL;
    if (t.columns == 0)
        return;
    tl_engine_run(engine_for(call, t.rows.total * t.columns), blocks, norm_backward_rows, &t);
    for (int o = 1; o < 3; o++) {
        const void *partial = o == 1 ? t.dgain : t.dbias;
        bool wanted = o == 1 ? has_gain : has_bias;
        if (wanted && wide)
            norm_collect_double(&call->out[o], partial, blocks, t.columns);
        else if (wanted)
            norm_collect_float(&call->out[o], partial, blocks, t.columns);
    }
}

void TL_K(layer_norm)(tl_kcall *call) { norm_forward(call, true); }
void TL_K(rms_norm)(tl_kcall *call) { norm_forward(call, false); }
void TL_K(layer_norm_backward)(tl_kcall *call) { norm_backward(call, true); }
void TL_K(rms_norm_backward)(tl_kcall *call) { norm_backward(call, false); }

/* ---- cross-entropy ---- */

typedef struct entropy_task {
    tl_walk rows; /* logits, targets, lse, and backward: gradient of the logits */
    int64_t columns, per_task, stride, out_stride, ignore;
    double factor;
} entropy_task;

static int64_t int_at(tl_dtype dtype, const char *memory) {
    int64_t value;
    TL_K(load_int)(&value, dtype, memory, 1, 1);
    return value;
}

static void entropy_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const entropy_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        tl_line x = line_at(&t->rows, 0, pointer, t->stride), lse = line_at(&t->rows, 2, pointer, 1);
        if (x.dtype == TL_F64)
            log_sum_exp_row_double(&x, t->columns, &lse);
        else
            log_sum_exp_row_float(&x, t->columns, &lse);
    }
}

/* The mean over counted targets, in order of position; differences and sum in double. */
static double entropy_loss(const entropy_task *t, int64_t *counted, int64_t *fault) {
    double sum = 0;
    *counted = 0;
    for (int64_t at = 0; at < t->rows.total; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        int64_t target = int_at(t->rows.dtype[1], pointer[1]);
        if (target == t->ignore)
            continue;
        if (target < 0 || target >= t->columns) {
            *fault = at + 1;
            return 0;
        }
        double lse, logit;
        TL_K(load_double)(&lse, t->rows.dtype[2], pointer[2], 1, 1);
        TL_K(load_double)(&logit, t->rows.dtype[0], pointer[0] + target * t->stride * t->rows.bytes[0], 1, 1);
        sum += lse - logit;
        ++*counted;
    }
    return *counted ? sum / (double)*counted : 0;
}

void TL_K(cross_entropy)(tl_kcall *call) {
    const tl_loss_attr *attr = call->attr;
    const tl_array *x = &call->in[0];
    int rows_ndim = x->ndim - 1;
    tl_array lse = call->n_out > 1 ? call->out[1] : *x;
    if (call->n_out == 1) {
        lse.dtype = x->dtype == TL_F64 ? TL_F64 : TL_F32;
        lse.data = call->work;
        int64_t step = 1;
        for (int d = rows_ndim - 1; d >= 0; d--) {
            lse.stride[d] = step;
            step *= x->size[d];
        }
    }
    const tl_array *array[] = {x, &call->in[1], &lse};
    entropy_task t = {.columns = x->size[rows_ndim], .stride = last_stride(x), .ignore = attr->ignore_index};
    TL_K(walk_make)(&t.rows, array, 3, rows_ndim, false);
    t.per_task = tl_rows_per_task(t.columns);
    tl_engine_run(engine_for(call, t.rows.total * t.columns), tl_blocks_of(t.rows.total, t.per_task), entropy_rows, &t);
    int64_t counted, fault = 0;
    double loss = entropy_loss(&t, &counted, &fault), count;
    if (fault) {
        call->fault = fault;
        return;
    }
    count = (double)counted;
    TL_K(store_double)(call->out[0].dtype, call->out[0].data, 1, &loss, 1);
    if (call->n_out > 2)
        TL_K(store_double)(call->out[2].dtype, call->out[2].data, 1, &count, 1);
}

static void entropy_backward_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const entropy_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        tl_line x = line_at(&t->rows, 0, pointer, t->stride), dx = line_at(&t->rows, 3, pointer, t->out_stride);
        tl_line lse = line_at(&t->rows, 2, pointer, 1);
        int64_t target = int_at(t->rows.dtype[1], pointer[1]);
        if (target == t->ignore || target >= t->columns)
            target = -1;
        if (x.dtype == TL_F64)
            cross_entropy_backward_row_double(&x, &dx, t->columns, target, get_double(&lse, 0), t->factor);
        else
            cross_entropy_backward_row_float(&x, &dx, t->columns, target, get_float(&lse, 0), (float)t->factor);
    }
}

void TL_K(cross_entropy_backward)(tl_kcall *call) {
    const tl_loss_attr *attr = call->attr;
    const tl_array *x = &call->in[0], *array[] = {x, &call->in[1], &call->in[2], &call->out[0]};
    double count, gradient;
    TL_K(load_double)(&count, call->in[3].dtype, call->in[3].data, 1, 1);
    TL_K(load_double)(&gradient, call->in[4].dtype, call->in[4].data, 1, 1);
    entropy_task t = {.columns = x->size[x->ndim - 1], .stride = last_stride(x), .ignore = attr->ignore_index};
    t.out_stride = last_stride(&call->out[0]);
    t.factor = count > 0 ? gradient / count : 0;
    TL_K(walk_make)(&t.rows, array, 4, x->ndim - 1, false);
    t.per_task = tl_rows_per_task(t.columns);
    tl_engine_run(engine_for(call, t.rows.total * t.columns), tl_blocks_of(t.rows.total, t.per_task),
                  entropy_backward_rows, &t);
}
