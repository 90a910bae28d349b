/* kernel/body/index.c: embedding look-up and its gradient, and rotary positions. */
#include <math.h>

#include "kernel/body/body.h"

typedef struct embedding_task {
    tl_walk rows; /* ids, and out (forward) or gradient (backward) */
    tl_array table;
    int64_t columns, stride, per_task, strip;
    int64_t fault; /* smallest 1 + position of a bad id, INT64_MAX when none; shared between tasks */
} embedding_task;

static int64_t last_stride(const tl_array *a) { return a->size[a->ndim - 1] == 1 ? 1 : a->stride[a->ndim - 1]; }

static void fault_at(int64_t *fault, int64_t position) {
    int64_t now = __atomic_load_n(fault, __ATOMIC_RELAXED);
    while (position + 1 < now &&
           !__atomic_compare_exchange_n(fault, &now, position + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static int64_t id_at(const embedding_task *t, char *const pointer[]) {
    int64_t id;
    TL_K(load_int)(&id, t->rows.dtype[0], pointer[0], 1, 1);
    return id;
}

static void embedding_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    embedding_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        int64_t id = id_at(t, pointer);
        if (id < 0 || id >= t->table.size[0]) {
            fault_at(&t->fault, at);
            return;
        }
        const char *row = t->table.data + id * t->table.stride[0] * tl_bytes_of(t->table.dtype);
        TL_K(convert)(t->rows.dtype[1], pointer[1], t->stride, t->table.dtype, row, last_stride(&t->table), t->columns);
    }
}

void TL_K(embedding)(tl_kcall *call) {
    const tl_array *ids = &call->in[1], *array[] = {ids, &call->out[0]};
    embedding_task t = {.table = call->in[0], .columns = call->in[0].size[1], .fault = INT64_MAX};
    t.stride = last_stride(&call->out[0]);
    TL_K(walk_make)(&t.rows, array, 2, ids->ndim, false);
    t.per_task = tl_rows_per_task(t.columns);
    bool large = t.rows.total * t.columns >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.rows.total, t.per_task), embedding_rows, &t);
    if (t.fault != INT64_MAX)
        call->fault = t.fault;
}

/* Each task owns a strip of columns and adds all rows to it in order of position, so no two tasks write one element. A
 * 16-bit table rounds after each addition: there is nowhere to keep floats. */
static void embedding_backward_strip(void *argument, int64_t task, int thread) {
    (void)thread;
    embedding_task *t = argument;
    int bytes = tl_bytes_of(t->table.dtype);
    int64_t first = task * t->strip, n = tl_min_i64(t->strip, t->columns - first);
    int64_t column = last_stride(&t->table);
    char *base = t->table.data + first * column * bytes;
    uint64_t zero = 0;
    for (int64_t v = 0; v < t->table.size[0]; v++)
        TL_K(convert)
    (t->table.dtype, base + v * t->table.stride[0] * bytes, column, t->table.dtype, (char *)&zero, 0, n);
    for (int64_t at = 0; at < t->rows.total; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, at, pointer);
        int64_t id = id_at(t, pointer);
        if (id < 0 || id >= t->table.size[0]) {
            fault_at(&t->fault, at);
            return;
        }
        char *row = base + id * t->table.stride[0] * bytes;
        const char *from = pointer[1] + first * t->stride * t->rows.bytes[1];
        for (int64_t i = 0; i < n; i += TL_CHUNK) {
            int64_t count = tl_min_i64(TL_CHUNK, n - i);
            char *to = row + i * column * bytes;
            const char *add = from + i * t->stride * t->rows.bytes[1];
            if (t->table.dtype == TL_F32 && t->rows.dtype[1] == TL_F32 && column == 1 && t->stride == 1) {
                float *y = (float *)to;
                const float *x = (const float *)add;
                TL_INDEPENDENT
                for (int64_t j = 0; j < count; j++)
                    y[j] += x[j];
            } else if (t->table.dtype == TL_F64) {
                double a[TL_CHUNK], b[TL_CHUNK];
                TL_K(load_double)(a, t->table.dtype, to, column, count);
                TL_K(load_double)(b, t->rows.dtype[1], add, t->stride, count);
                for (int64_t j = 0; j < count; j++)
                    a[j] += b[j];
                TL_K(store_double)(t->table.dtype, to, column, a, count);
            } else {
                float a[TL_CHUNK], b[TL_CHUNK];
                TL_K(load_float)(a, t->table.dtype, to, column, count);
                TL_K(load_float)(b, t->rows.dtype[1], add, t->stride, count);
                for (int64_t j = 0; j < count; j++)
                    a[j] += b[j];
                TL_K(store_float)(t->table.dtype, to, column, a, count);
            }
        }
    }
}

void TL_K(embedding_backward)(tl_kcall *call) {
    const tl_array *ids = &call->in[0], *array[] = {ids, &call->in[1]};
    embedding_task t = {.table = call->out[0], .columns = call->out[0].size[1], .fault = INT64_MAX, .strip = 64};
    t.stride = last_stride(&call->in[1]);
    TL_K(walk_make)(&t.rows, array, 2, ids->ndim, false);
    bool large = (t.rows.total + t.table.size[0]) * t.columns >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.columns, t.strip), embedding_backward_strip, &t);
    if (t.fault != INT64_MAX)
        call->fault = t.fault;
}

/* ---- rotary positions (Su and others 2021, RoFormer, equation 34) ---- */

enum { TL_K_LINEAR = 2, TL_K_YARN, TL_K_DYNAMIC, TL_K_NTK, TL_K_LONGROPE }; /* of tl_rotary_scaling, in tally/ops.h */

#define PAIRS 64 /* angles computed at a time */

typedef struct rotary_task {
    tl_walk outer; /* out, in over the axes before T */
    const tl_rotary_attr *attr;
    int64_t positions, width, rotated, per_task, row[2], column[2];
    double theta, low, high, magnitude; /* the base; the ends of yarn's ramp; what cosine and sine are multiplied by */
    const double *divisors;             /* longrope's of this length */
} rotary_task;

/* The pair that turns `turns` times over the original context (Peng et al. 2023, YaRN, equation 17, solved for the pair). */
static double yarn_pair(const tl_rotary_attr *attr, int64_t width, double turns) {
    double context = (double)attr->original_context;
    return (double)width * log(context / (turns * 2 * 3.14159265358979323846)) / (2 * log(attr->theta));
}

/* 0.1·m·ln(s) + 1 (the same, equation 22; DeepSeek-AI 2024 multiply the logarithm) */
static double yarn_magnitude(double scale, double m) { return scale <= 1 ? 1 : 0.1 * m * log(scale) + 1; }

static void make_yarn(rotary_task *t) {
    const tl_rotary_attr *a = t->attr;
    t->low = yarn_pair(a, t->rotated, a->beta_fast);
    t->high = yarn_pair(a, t->rotated, a->beta_slow);
    if (!a->no_truncate) {
        t->low = floor(t->low);
        t->high = ceil(t->high);
    }
    t->low = t->low > 0 ? t->low : 0;
    t->high = t->high < (double)t->rotated - 1 ? t->high : (double)t->rotated - 1;
    if (t->low == t->high)
        t->high += 0.001; /* as Hugging Face's linear_ramp_factor */
    if (a->attention_factor != 0)
        t->magnitude = a->attention_factor;
    else if (a->mscale != 0 && a->mscale_all != 0)
        t->magnitude = yarn_magnitude(a->factor, a->mscale) / yarn_magnitude(a->factor, a->mscale_all);
    else
        t->magnitude = yarn_magnitude(a->factor, 1);
}

/* The base that stretches the slowest pair by `factor` and leaves the fastest (Peng et al. 2023, equation 16). */
static double stretched(const rotary_task *t, double factor) {
    return t->attr->theta * pow(factor, (double)t->rotated / ((double)t->rotated - 2));
}

/* Short or long factors by the length alone, the magnitude at any length (Ding et al. 2024, LongRoPE; Phi-3's report). */
static void make_longrope(rotary_task *t, double length) {
    const tl_rotary_attr *a = t->attr;
    double original = (double)a->original_context;
    t->divisors = length > original ? a->long_factors : a->short_factors;
    if (a->attention_factor != 0)
        t->magnitude = a->attention_factor;
    else if (a->factor > 1)
        t->magnitude = sqrt(1 + log(a->factor) / log(original));
}

/* What is the same for all pairs and positions. */
static void prepare(rotary_task *t) {
    const tl_rotary_attr *a = t->attr;
    double length = (double)a->first + (double)t->positions, original = (double)a->original_context;
    t->magnitude = 1;
    t->theta = a->theta;
    if (a->scaling == TL_K_YARN)
        make_yarn(t);
    else if (a->scaling == TL_K_NTK)
        t->theta = stretched(t, a->factor);
    else if (a->scaling == TL_K_DYNAMIC && length > original)
        t->theta = stretched(t, a->factor * length / original - (a->factor - 1));
    else if (a->scaling == TL_K_LONGROPE)
        make_longrope(t, length);
}

/* θ^(−2i/R), and what scaling makes of it beside another θ: linear, all divided by `factor` (Chen et al. 2023); yarn, divided
 * but for the pairs that turn often, with a ramp between (Peng et al. 2023, equations 18–20); Llama-3.1's (Meta's llama-models, rope scaling):
 * wavelengths beyond original/low are divided by `factor`, those under original/high kept, those between blended. */
static double frequency(const rotary_task *t, int64_t pair) {
    const tl_rotary_attr *attr = t->attr;
    if (attr->pairs > 0 && pair >= attr->pairs)
        return 0;
    double f = pow(t->theta, -2.0 * (double)pair / (double)t->rotated);
    if (attr->scaling == TL_K_LONGROPE)
        return f / t->divisors[pair];
    if (attr->factor == 0 || attr->scaling == TL_K_DYNAMIC || attr->scaling == TL_K_NTK)
        return f;
    if (attr->scaling == TL_K_LINEAR)
        return f / attr->factor;
    if (attr->scaling == TL_K_YARN) {
        double ramp = ((double)pair - t->low) / (t->high - t->low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        return ramp * f / attr->factor + (1 - ramp) * f;
    }
    double wavelength = 2 * 3.14159265358979323846 / f, original = (double)attr->original_context;
    if (wavelength < original / attr->high_freq_factor)
        return f;
    if (wavelength >= original / attr->low_freq_factor) /* at the edge the blend is the same, or 0/0 if low is high */
        return f / attr->factor;
    double blend = (original / wavelength - attr->low_freq_factor) / (attr->high_freq_factor - attr->low_freq_factor);
    return (1 - blend) * f / attr->factor + blend * f;
}

static void rotate(const rotary_task *t, char *to, const char *from, const double *cosine, const double *sine,
                   int64_t first, int64_t n) {
    int64_t half = t->rotated / 2, step = t->attr->interleaved ? 2 : 1, gap = t->attr->interleaved ? 1 : half;
    int bytes = t->outer.bytes[0];
    const char *a_from = from + first * step * t->column[1] * bytes, *b_from = a_from + gap * t->column[1] * bytes;
    char *a_to = to + first * step * t->column[0] * bytes, *b_to = a_to + gap * t->column[0] * bytes;
    int64_t in_stride = step * t->column[1], out_stride = step * t->column[0];
    tl_dtype dtype = t->outer.dtype[0];
    if (dtype == TL_F64) {
        double a[PAIRS], b[PAIRS], c[PAIRS], d[PAIRS];
        TL_K(load_double)(a, dtype, a_from, in_stride, n);
        TL_K(load_double)(b, dtype, b_from, in_stride, n);
        for (int64_t i = 0; i < n; i++) {
            c[i] = a[i] * cosine[i] - b[i] * sine[i];
            d[i] = a[i] * sine[i] + b[i] * cosine[i];
        }
        TL_K(store_double)(dtype, a_to, out_stride, c, n);
        TL_K(store_double)(dtype, b_to, out_stride, d, n);
    } else {
        float a[PAIRS], b[PAIRS], c[PAIRS], d[PAIRS];
        TL_K(load_float)(a, dtype, a_from, in_stride, n);
        TL_K(load_float)(b, dtype, b_from, in_stride, n);
        for (int64_t i = 0; i < n; i++) {
            float co = (float)cosine[i], si = (float)sine[i];
            c[i] = a[i] * co - b[i] * si;
            d[i] = a[i] * si + b[i] * co;
        }
        TL_K(store_float)(dtype, a_to, out_stride, c, n);
        TL_K(store_float)(dtype, b_to, out_stride, d, n);
    }
}

/* Positions outside, so that an angle's sine and cosine serve every head and sequence. */
static void rotary_positions(void *argument, int64_t task, int thread) {
    (void)thread;
    const rotary_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->positions), pairs = t->rotated / 2;
    for (int64_t first = 0; first < pairs; first += PAIRS) {
        int64_t n = tl_min_i64(PAIRS, pairs - first);
        double speed[PAIRS], cosine[PAIRS], sine[PAIRS];
        for (int64_t i = 0; i < n; i++)
            speed[i] = frequency(t, first + i);
        for (int64_t p = task * t->per_task; p < end; p++) {
            for (int64_t i = 0; i < n; i++) {
                double angle = (double)(t->attr->first + p) * speed[i];
                cosine[i] = cos(angle) * t->magnitude;
                sine[i] = (t->attr->inverse ? -sin(angle) : sin(angle)) * t->magnitude;
            }
            for (int64_t o = 0; o < t->outer.total; o++) {
                char *pointer[TL_MAX_IO];
                TL_K(walk_at)(&t->outer, o, pointer);
                rotate(t, pointer[0] + p * t->row[0] * t->outer.bytes[0],
                       pointer[1] + p * t->row[1] * t->outer.bytes[1], cosine, sine, first, n);
            }
        }
    }
    for (int64_t p = task * t->per_task; p < end; p++) /* what does not turn is copied */
        for (int64_t o = 0; o < t->outer.total && t->rotated / 2 * 2 < t->width; o++) {
            char *pointer[TL_MAX_IO];
            TL_K(walk_at)(&t->outer, o, pointer);
            for (int64_t i = t->rotated / 2 * 2; i < t->width; i++) {
                int64_t to = p * t->row[0] + i * t->column[0], from = p * t->row[1] + i * t->column[1];
                memmove(pointer[0] + to * t->outer.bytes[0], pointer[1] + from * t->outer.bytes[1],
                        (size_t)t->outer.bytes[0]);
            }
        }
}

void TL_K(rotary)(tl_kcall *call) {
    const tl_array *array[] = {&call->out[0], &call->in[0]}, *x = array[1];
    rotary_task t = {
        .attr = call->attr, .width = x->size[x->ndim - 1], .positions = x->ndim > 1 ? x->size[x->ndim - 2] : 1};
    for (int a = 0; a < 2; a++) {
        t.row[a] = x->ndim > 1 ? array[a]->stride[x->ndim - 2] : 0;
        t.column[a] = array[a]->stride[x->ndim - 1];
    }
    TL_K(walk_make)(&t.outer, array, 2, x->ndim > 1 ? x->ndim - 2 : 0, false);
    if (t.outer.total == 0 || t.width == 0 || t.positions == 0)
        return;
    t.rotated = t.attr->rotated > 0 ? t.attr->rotated : t.width;
    prepare(&t);
    t.per_task = tl_rows_per_task(t.outer.total * t.width);
    bool large = t.outer.total * t.width * t.positions >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.positions, t.per_task), rotary_positions, &t);
}
