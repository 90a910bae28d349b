/* kernel/body/reduce.c: sum, mean, max, sum of squares, count of what is not finite, argmax.
 *
 * The order of a sum is fixed by the shape. A run of elements is cut in blocks of BLOCK, each summed in 16 lanes; block
 * sums are added pairwise. A reduction whose inner axis is kept adds rows pairwise, in the same way, column by column.
 */
#include "kernel/body/body.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define BLOCK 1024
#define STRIP 1024        /* most columns of one task of a column reduction, and elements of its accumulators */
#define MAX_PARTIALS 1024 /* partial sums of one long run */

typedef enum reduction { REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_SQUARES, REDUCE_NON_FINITE } reduction;

/* Pairwise adding without memory for all parts: level[k] holds the sum of 2^k parts whenever bit k of `count` is set. */
typedef struct pairwise {
    uint64_t count;
    double level[64];
} pairwise;

static void pairwise_add(pairwise *p, double part, bool narrow) {
    int k = 0;
    for (; p->count >> k & 1u; k++)
        part = narrow ? (double)((float)p->level[k] + (float)part) : p->level[k] + part;
    p->level[k] = part;
    p->count++;
}

static double pairwise_sum(const pairwise *p, bool narrow) {
    double sum = 0;
    bool any = false;
    for (int k = 0; k < 64 && p->count >> k; k++)
        if (p->count >> k & 1u) {
            sum = !any ? p->level[k] : narrow ? (double)((float)p->level[k] + (float)sum) : p->level[k] + sum;
            any = true;
        }
    return sum;
}

static inline float larger_float(float a, float b) { return b > a || b != b ? (a != a ? a : b) : a; }
static inline double larger_double(double a, double b) { return b > a || b != b ? (a != a ? a : b) : a; }

/* The largest of n, NaN if there is one, started from `best`. */
static float run_larger(float best, const float *x, int64_t n) {
    int64_t j = 0;
#ifdef __AVX512F__
    __m512 lane[4];
    __mmask16 numbers[2] = {0xffff, 0xffff}; /* lanes that met no NaN */
    for (int k = 0; k < 4; k++)
        lane[k] = _mm512_set1_ps(-__builtin_inff());
    for (; j + 64 <= n; j += 64) {
        __m512 v[4];
        for (int k = 0; k < 4; k++) {
            v[k] = _mm512_loadu_ps(x + j + 16 * k);
            __builtin_prefetch(x + j + 16 * k + BLOCK, 0, 2);
            lane[k] = _mm512_max_ps(v[k], lane[k]);
        }
        for (int k = 0; k < 2; k++) /* two lines in one comparison */
            numbers[k] = _mm512_mask_cmp_ps_mask(numbers[k], v[k], v[k + 2], _CMP_ORD_Q);
    }
    if ((numbers[0] & numbers[1]) != 0xffff)
        j = 0; /* one by one, for the first NaN's bits */
    else
        for (int k = 0; k < 4; k++)
            best = larger_float(best, _mm512_reduce_max_ps(lane[k]));
#else
    typedef int32_t ints __attribute__((vector_size(64), aligned(4), may_alias));
    tl_float16 lane[4];
    if (n >= 64) {
        for (int k = 0; k < 4; k++)
            lane[k] = *(const tl_float16 *)(x + 16 * k);
        for (j = 64; j + 64 <= n; j += 64)
            for (int k = 0; k < 4; k++) {
                tl_float16 v = *(const tl_float16 *)(x + j + 16 * k), old = lane[k];
                ints take = ((v > old) | (v != v)) & (old == old);
                lane[k] = (tl_float16)(((ints)v & take) | ((ints)old & ~take));
            }
        for (int k = 0; k < 64; k++)
            best = larger_float(best, lane[k / 16][k % 16]);
    }
#endif
    for (; j < n; j++)
        best = larger_float(best, x[j]);
    return best;
}

/* The sum of one block as tl_lanes_add_float gives it, asking for the block after it: a block is a page, and at its end the
 * processor stops fetching by itself. Blocks in order are one stream, which the memory serves best; the additions of one wait
 * for each other, but not for those of the next. */
static float block_sum(const float *x) {
    tl_float16 sum = {0};
    for (int64_t i = 0; i < BLOCK; i += 16) {
        __builtin_prefetch(x + i + BLOCK, 0, 2);
        sum += *(const tl_float16 *)(x + i);
    }
    float lane[16];
    memcpy(lane, &sum, sizeof lane);
    return tl_lanes_sum_float(lane);
}

static double run_float(const tl_walk *w, reduction what, int64_t from, int64_t to) {
    float buffer[BLOCK];
    bool direct = w->ndim == 1 && w->dtype[0] == TL_F32 && w->stride[0][0] == 1;
    const float *whole = (const float *)(const void *)w->data[0];
    if (what == REDUCE_MAX) {
        float best = -__builtin_inff();
        if (direct)
            return (double)run_larger(best, whole + from, to - from);
        for (int64_t at = from; at < to; at += BLOCK) {
            int64_t n = tl_min_i64(BLOCK, to - at);
            const float *x = TL_K(flat_float)(w, 0, at, n, buffer);
            best = run_larger(best, x, n);
        }
        return (double)best;
    }
    pairwise p;
    int64_t at = from;
    p.count = 0; /* the levels are written before they are read, and clearing them costs what 500 additions do */
    for (; direct && at + BLOCK <= to; at += BLOCK)
        pairwise_add(&p, (double)block_sum(whole + at), true);
    for (; at < to; at += BLOCK) {
        int64_t n = tl_min_i64(BLOCK, to - at);
        const float *x = TL_K(flat_float)(w, 0, at, n, buffer);
        float lane[16] = {0};
        tl_lanes_add_float(lane, x, n);
        pairwise_add(&p, (double)tl_lanes_sum_float(lane), true);
    }
    return pairwise_sum(&p, true);
}

/* In double whatever the format: squares, or ones where x − x is not 0, which is where x is NaN or infinite. */
static double run_squares(const tl_walk *w, bool count, int64_t from, int64_t to) {
    float buffer[BLOCK];
    double wide[BLOCK];
    pairwise p = {.count = 0};
    for (int64_t at = from; at < to; at += BLOCK) {
        int64_t n = tl_min_i64(BLOCK, to - at);
        double lane[16] = {0};
        if (w->dtype[0] == TL_F64) {
            const double *x = TL_K(flat_double)(w, 0, at, n, wide);
            TL_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                wide[i] = count ? (x[i] - x[i] == 0 ? 0.0 : 1.0) : x[i] * x[i];
        } else {
            const float *x = TL_K(flat_float)(w, 0, at, n, buffer);
            TL_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                wide[i] = count ? (x[i] - x[i] == 0 ? 0.0 : 1.0) : (double)x[i] * (double)x[i];
        }
        tl_lanes_add_double(lane, wide, n);
        pairwise_add(&p, tl_lanes_sum_double(lane), false);
    }
    return pairwise_sum(&p, false);
}

static double run_double(const tl_walk *w, reduction what, int64_t from, int64_t to) {
    double buffer[BLOCK], best = -__builtin_inf();
    pairwise p = {.count = 0};
    for (int64_t at = from; at < to; at += BLOCK) {
        int64_t n = tl_min_i64(BLOCK, to - at);
        const double *x = TL_K(flat_double)(w, 0, at, n, buffer);
        if (what == REDUCE_MAX) {
            for (int64_t i = 0; i < n; i++)
                best = larger_double(best, x[i]);
            continue;
        }
        double lane[16] = {0};
        tl_lanes_add_double(lane, x, n);
        pairwise_add(&p, tl_lanes_sum_double(lane), false);
    }
    return what == REDUCE_MAX ? best : pairwise_sum(&p, false);
}

/* ints: exact modulo 2^64, any order; mean truncates towards zero */
static int64_t run_int(const tl_walk *w, reduction what, int64_t count) {
    uint64_t sum = 0;
    int64_t best = INT64_MIN;
    for (int64_t at = 0; at < count;) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(w, at, pointer);
        int last = w->ndim - 1;
        int64_t value[TL_CHUNK], n = tl_min_i64(w->size[last] - at % w->size[last], tl_min_i64(TL_CHUNK, count - at));
        TL_K(load_int)(value, w->dtype[0], pointer[0], w->stride[0][last], n);
        for (int64_t i = 0; i < n; i++) {
            sum += (uint64_t)value[i];
            best = value[i] > best ? value[i] : best;
        }
        at += n;
    }
    if (what == REDUCE_MAX)
        return count ? best : 0;
    return what == REDUCE_MEAN ? (count ? (int64_t)sum / count : 0) : (int64_t)sum;
}

typedef struct reduce_task {
    tl_walk kept;    /* array 0: out, array 1: in, over the kept axes */
    tl_walk reduced; /* array 0: in, over the reduced axes */
    reduction what;
    tl_compute compute;
    int64_t strip;
    int64_t per_task; /* rows, or parts, of one task */
    int64_t part;     /* elements of one partial of a single long run */
    int64_t parts;
    double *partial;
} reduce_task;

/* Elements that one thread should read before it takes another task: long runs, because every start costs the latency of
 * the memory and what two threads read in turns is no stream to either (64 KiB at a time: two thirds of the bandwidth of
 * 1 MiB), but 64 tasks, so that threads which others hold up do not hold up the rest. No result depends on it. */
static int64_t elements_per_task(int64_t total) {
    return tl_min_i64(tl_max_i64(total / 64, TL_TASK_ELEMENTS), 16 * (int64_t)TL_TASK_ELEMENTS);
}

static bool is_flat(reduction what) { return what == REDUCE_SQUARES || what == REDUCE_NON_FINITE; }

static double run(const reduce_task *r, const tl_walk *w, int64_t from, int64_t to) {
    if (is_flat(r->what))
        return run_squares(w, r->what == REDUCE_NON_FINITE, from, to);
    return r->compute == TL_COMPUTE_DOUBLE ? run_double(w, r->what, from, to) : run_float(w, r->what, from, to);
}

static double finish(const reduce_task *r, double value) {
    if (r->what != REDUCE_MEAN)
        return value;
    double count = (double)r->reduced.total;
    return r->compute == TL_COMPUTE_DOUBLE ? value / count : (double)((float)value / (float)count);
}

static void reduce_runs(void *argument, int64_t task, int thread) {
    (void)thread;
    const reduce_task *r = argument;
    int64_t end = tl_min_i64((task + 1) * r->per_task, r->kept.total);
    tl_walk run_walk = r->reduced;
    for (int64_t at = task * r->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&r->kept, at, pointer);
        run_walk.data[0] = pointer[1];
        if (r->compute == TL_COMPUTE_INT) {
            int64_t value = run_int(&run_walk, r->what, run_walk.total);
            TL_K(store_int)(r->kept.dtype[0], pointer[0], 1, &value, 1);
            continue;
        }
        double value = finish(r, run(r, &run_walk, 0, run_walk.total));
        TL_K(store_double)(r->kept.dtype[0], pointer[0], 1, &value, 1);
    }
}

static void reduce_parts(void *argument, int64_t task, int thread) {
    (void)thread;
    const reduce_task *r = argument;
    int64_t end = tl_min_i64((task + 1) * r->per_task, r->parts);
    for (int64_t i = task * r->per_task; i < end; i++)
        r->partial[i] = run(r, &r->reduced, i * r->part, tl_min_i64((i + 1) * r->part, r->reduced.total));
}

/* One output and a long run: partial sums of parts, then those pairwise. */
static double reduce_long(tl_engine *engine, reduce_task *r) {
    double partial[MAX_PARTIALS];
    int64_t total = r->reduced.total, part = TL_TASK_ELEMENTS;
    while (tl_blocks_of(total, part) > MAX_PARTIALS)
        part *= 2;
    r->part = part;
    r->partial = partial;
    int64_t n = tl_blocks_of(total, part);
    r->parts = n;
    r->per_task = tl_max_i64(1, elements_per_task(total) / part);
    tl_engine_run(total < 2 * TL_TASK_ELEMENTS ? NULL : engine, tl_blocks_of(n, r->per_task), reduce_parts, r);
    pairwise p = {.count = 0};
    double best = -__builtin_inf();
    bool narrow = !is_flat(r->what) && r->compute == TL_COMPUTE_FLOAT;
    for (int64_t i = 0; i < n; i++) {
        pairwise_add(&p, partial[i], narrow);
        best = larger_double(best, partial[i]);
    }
    return r->what == REDUCE_MAX ? best : pairwise_sum(&p, narrow);
}

/* to[i] = the sum of eight rows in order, eight streams at once so that the sum stays in a register, and the next eight fetched
 * into the second level (into the first is slower than not at all). width is a multiple of 16. */
#define EIGHT_ROWS(suffix, type, vector)                                                                               \
    static void eight_rows_##suffix(type *to, const type *from, int64_t row, int64_t width) {                          \
        const int64_t lanes = (int64_t)(sizeof(vector) / sizeof(type));                                                \
        for (int64_t i = 0; i < width; i += lanes) {                                                                   \
            vector sum = {0};                                                                                          \
            for (int j = 0; j < 8; j++) {                                                                              \
                __builtin_prefetch(from + (j + 8) * row + i, 0, 2);                                                    \
                sum += *(const vector *)(from + j * row + i);                                                          \
            }                                                                                                          \
            *(vector *)(to + i) = sum;                                                                                 \
        }                                                                                                              \
    }
EIGHT_ROWS(float, float, tl_float16)
EIGHT_ROWS(double, double, tl_double8)

/* Columns: levels of STRIP sums. 40 levels serve 2^40 rows. */
#define LEVELS 40
#define COLUMNS(suffix, type, load_name, larger)                                                                       \
    static void columns_##suffix(const reduce_task *r, char *to, const char *from, int64_t n, int64_t to_stride,       \
                                 int64_t from_stride) {                                                                \
        type level[LEVELS][STRIP], row[STRIP];                                                                         \
        const tl_walk *w = &r->reduced;                                                                                \
        uint64_t count = 0;                                                                                            \
        int64_t width = r->strip;                                                                                      \
        int last = w->ndim - 1;                                                                                        \
        const char *base = NULL;                                                                                       \
        bool own = w->bytes[0] == (int)sizeof(type) && from_stride == 1;                                               \
        bool whole = own && r->what != REDUCE_MAX && n == width;                                                       \
        tl_walk rows = *w;                                                                                             \
        rows.data[0] = (char *)(uintptr_t)from;                                                                        \
        for (int64_t at = 0; at < w->total; at += 8) {                                                                 \
            type part[STRIP];                                                                                          \
            int64_t ahead = w->size[last] - at % w->size[last], end = tl_min_i64(at + 8, w->total);                    \
            if (whole && ahead >= 8) {                                                                                 \
                char *pointer[TL_MAX_IO];                                                                              \
                TL_K(walk_at)(&rows, at, pointer);                                                                     \
                eight_rows_##suffix(part, (const type *)(const void *)pointer[0], w->stride[0][last], width);          \
                base = NULL;                                                                                           \
                end = at;                                                                                              \
            } else                                                                                                     \
                for (int64_t i = 0; i < width; i++)                                                                    \
                    part[i] = r->what == REDUCE_MAX ? (type)-__builtin_inf() : (type)0;                                \
            for (int64_t j = at; j < end; j++) {                                                                       \
                const type *x = row;                                                                                   \
                int64_t inner = j % w->size[last];                                                                     \
                if (base == NULL || inner == 0) {                                                                      \
                    char *pointer[TL_MAX_IO];                                                                          \
                    TL_K(walk_at)(&rows, j - inner, pointer);                                                          \
                    base = pointer[0];                                                                                 \
                }                                                                                                      \
                const char *memory = base + inner * w->stride[0][last] * w->bytes[0];                                  \
                /* pieces of rows far apart: no processor guesses the next ones */                                     \
                for (int64_t i = 0; from_stride == 1 && i < n; i += 64 / (int64_t)sizeof(type))                        \
                    __builtin_prefetch(memory + 8 * w->stride[0][last] * w->bytes[0] + i * w->bytes[0]);               \
                if (own)                                                                                               \
                    x = (const type *)memory;                                                                          \
                else                                                                                                   \
                    TL_K(load_name)(row, w->dtype[0], memory, from_stride, n);                                         \
                if (r->what == REDUCE_MAX)                                                                             \
                    for (int64_t i = 0; i < n; i++)                                                                    \
                        part[i] = larger(part[i], x[i]);                                                               \
                else if (n == width)                                                                                   \
                    for (int64_t i = 0; i < width; i++)                                                                \
                        part[i] += x[i];                                                                               \
                else                                                                                                   \
                    for (int64_t i = 0; i < n; i++)                                                                    \
                        part[i] += x[i];                                                                               \
            }                                                                                                          \
            int k = 0;                                                                                                 \
            for (; count >> k & 1u; k++)                                                                               \
                for (int64_t i = 0; i < width; i++)                                                                    \
                    part[i] = r->what == REDUCE_MAX ? larger(level[k][i], part[i]) : level[k][i] + part[i];            \
            memcpy(level[k], part, (size_t)width * sizeof *part);                                                      \
            count++;                                                                                                   \
        }                                                                                                              \
        bool any = false;                                                                                              \
        for (int64_t i = 0; i < width; i++)                                                                            \
            row[i] = r->what == REDUCE_MAX ? (type)-__builtin_inf() : (type)0;                                         \
        for (int k = 0; k < LEVELS; k++)                                                                               \
            if (count >> k & 1u) {                                                                                     \
                for (int64_t i = 0; i < width; i++)                                                                    \
                    row[i] = !any                    ? level[k][i]                                                     \
                             : r->what == REDUCE_MAX ? larger(level[k][i], row[i])                                     \
                                                     : level[k][i] + row[i];                                           \
                any = true;                                                                                            \
            }                                                                                                          \
        if (r->what == REDUCE_MEAN)                                                                                    \
            for (int64_t i = 0; i < width; i++)                                                                        \
                row[i] /= (type)w->total;                                                                              \
        TL_K(store_##suffix)(r->kept.dtype[0], to, to_stride, row, n);                                                 \
    }
COLUMNS(float, float, load_float, larger_float)
COLUMNS(double, double, load_double, larger_double)

static void reduce_columns(void *argument, int64_t task, int thread) {
    (void)thread;
    const reduce_task *r = argument;
    const tl_walk *k = &r->kept;
    int last = k->ndim - 1;
    int64_t strips = tl_blocks_of(k->size[last], r->strip), first = task % strips * r->strip;
    int64_t n = tl_min_i64(r->strip, k->size[last] - first);
    char *pointer[TL_MAX_IO];
    TL_K(walk_at)(k, task / strips * k->size[last] + first, pointer);
    if (r->compute == TL_COMPUTE_DOUBLE)
        columns_double(r, pointer[0], pointer[1], n, k->stride[0][last], k->stride[1][last]);
    else
        columns_float(r, pointer[0], pointer[1], n, k->stride[0][last], k->stride[1][last]);
}

static void reduce(tl_kcall *call, reduction what) {
    const tl_array *in = &call->in[0], *out = &call->out[0];
    tl_array kept_in = *in, kept_out = *out, reduced = *in;
    kept_in.ndim = kept_out.ndim = reduced.ndim = 0;
    for (int d = 0; d < in->ndim; d++) {
        bool gone = is_flat(what) || (out->size[d] == 1 && in->size[d] != 1);
        tl_array *to = gone ? &reduced : &kept_in;
        to->size[to->ndim] = in->size[d];
        to->stride[to->ndim++] = in->stride[d];
        if (!gone) {
            kept_out.size[kept_out.ndim] = in->size[d];
            kept_out.stride[kept_out.ndim++] = out->stride[d];
        }
    }
    const tl_array *pair[] = {&kept_out, &kept_in}, *one[] = {&reduced};
    reduce_task r = {.what = what, .compute = tl_compute_of(in->dtype)};
    TL_K(walk_make)(&r.kept, pair, 2, kept_in.ndim, true);
    TL_K(walk_make)(&r.reduced, one, 1, reduced.ndim, false);
    if (r.kept.total == 0)
        return;
    bool large = r.kept.total * r.reduced.total >= 2 * TL_TASK_ELEMENTS;
    tl_engine *engine = large ? call->engine : NULL;
    if (r.compute == TL_COMPUTE_INT || r.kept.total > 1 || r.reduced.total == 0) {
        int64_t kept_stride = r.kept.stride[1][r.kept.ndim - 1], stride = r.reduced.stride[0][r.reduced.ndim - 1];
        bool columns = r.compute != TL_COMPUTE_INT && r.reduced.total > 0 && r.kept.size[r.kept.ndim - 1] >= 8 &&
                       kept_stride == 1 && stride != 1;
        if (columns) {
            int64_t inner = r.kept.size[r.kept.ndim - 1];
            /* wide ones read longer pieces, few ones feed more threads */
            r.strip = inner >= 4 * STRIP ? STRIP : inner >= 2 * STRIP ? STRIP / 4 : STRIP / 16;
            tl_engine_run(engine, r.kept.total / inner * tl_blocks_of(inner, r.strip), reduce_columns, &r);
            return;
        }
        int64_t run = tl_max_i64(1, r.reduced.total);
        r.per_task = tl_max_i64(1, elements_per_task(r.kept.total * run) / run);
        tl_engine_run(engine, tl_blocks_of(r.kept.total, r.per_task), reduce_runs, &r);
        return;
    }
    double value = finish(&r, reduce_long(engine, &r));
    char *to[TL_MAX_IO];
    TL_K(walk_at)(&r.kept, 0, to);
    TL_K(store_double)(out->dtype, to[0], 1, &value, 1);
}

void TL_K(sum)(tl_kcall *call) { reduce(call, REDUCE_SUM); }
void TL_K(mean)(tl_kcall *call) { reduce(call, REDUCE_MEAN); }
void TL_K(max)(tl_kcall *call) { reduce(call, REDUCE_MAX); }

void TL_K(square_sum)(tl_kcall *call) {
    tl_kcall one = *call;
    one.out[0].ndim = 0;
    reduce(&one, REDUCE_SQUARES);
}

void TL_K(non_finite)(tl_kcall *call) {
    tl_kcall one = *call;
    one.out[0].ndim = 0;
    reduce(&one, REDUCE_NON_FINITE);
}

/* ---- argmax: the first (or last) of equals; a NaN is larger than any number, and as argmin smaller ---- */

typedef struct argmax_task {
    tl_walk rows;
    tl_dtype dtype;
    int64_t columns, stride, per_task;
    bool least, last;
} argmax_task;

static int64_t argmax_row(const argmax_task *t, const char *row) {
    bool ints = tl_compute_of(t->dtype) == TL_COMPUTE_INT;
    double value[TL_CHUNK], best = 0;
    int64_t whole[TL_CHUNK], best_int = 0, found = 0;
    for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);
        const char *from = row + at * t->stride * tl_bytes_of(t->dtype);
        if (ints)
            TL_K(load_int)(whole, t->dtype, from, t->stride, n);
        else
            TL_K(load_double)(value, t->dtype, from, t->stride, n);
        for (int64_t i = 0; i < n; i++) {
            bool first = at + i == 0, equal = t->last;
            bool more = ints ? (t->least ? whole[i] < best_int : whole[i] > best_int) || (equal && whole[i] == best_int)
                        : !(best == best) ? equal && value[i] != value[i]
                                          : (t->least ? value[i] < best : value[i] > best) || value[i] != value[i] ||
                                                (equal && value[i] == best);
            if (!first && !more)
                continue;
            found = at + i;
            best_int = ints ? whole[i] : 0;
            best = ints ? 0 : value[i];
        }
    }
    return found;
}

static void argmax_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    const argmax_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        int64_t found = argmax_row(t, pointer[1]);
        TL_K(store_int)(t->rows.dtype[0], pointer[0], 1, &found, 1);
    }
}

void TL_K(argmax)(tl_kcall *call) {
    const tl_array *in = &call->in[0], *pair[] = {&call->out[0], in};
    argmax_task t = {.dtype = in->dtype, .columns = in->size[in->ndim - 1], .stride = in->stride[in->ndim - 1]};
    TL_K(walk_make)(&t.rows, pair, 2, in->ndim - 1, false);
    if (call->attr) {
        const tl_argmax_attr *attr = call->attr;
        t.least = attr->least;
        t.last = attr->last;
    }
    t.per_task = tl_rows_per_task(t.columns);
    bool large = t.rows.total * t.columns >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.rows.total, t.per_task), argmax_rows, &t);
}
