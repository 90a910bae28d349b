/* kernel/body/fold.c: least, product, sums of |x|, of x² and of e^x over axes, and what is needed for their gradients. Every
 * output is folded by itself; one long run is cut in parts by its length alone. Sums as in reduce.c: blocks in 16
 * lanes, blocks pairwise. */
#include "kernel/body/body.h"
#include "kernel/body/math.h"

#define BLOCK 1024
#define MAX_PARTS 1024

typedef enum fold { FOLD_MIN, FOLD_MAX, FOLD_PROD, FOLD_ABS, FOLD_SQUARES, FOLD_EXP } fold;

/* level[k] holds the sum of 2^k parts whenever bit k of `count` is set. */
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
    for (int k = 0; k < 64; k++)
        if (p->count >> k & 1u) {
            sum = !any ? p->level[k] : narrow ? (double)((float)p->level[k] + (float)sum) : p->level[k] + sum;
            any = true;
        }
    return sum;
}

static double start_of(fold what) {
    return what == FOLD_MIN ? (double)INFINITY : what == FOLD_MAX ? -(double)INFINITY : what == FOLD_PROD ? 1 : 0;
}

/* Two results of min, max or prod; a NaN wins. */
static double joined(fold what, double a, double b, bool narrow) {
    if (what == FOLD_MIN)
        return b < a || b != b ? (a != a ? a : b) : a;
    if (what == FOLD_MAX)
        return b > a || b != b ? (a != a ? a : b) : a;
    return narrow ? (double)((float)a * (float)b) : a * b;
}

#define FOLD_RUN(type, flat, lanes_add, lanes_sum, exp_of, fabs_of, narrow)                                            \
    static double fold_##type(const tl_walk *w, fold what, int64_t from, int64_t to, double shift) {                   \
        type buffer[BLOCK], mapped[BLOCK], best = (type)start_of(what);                                                \
        pairwise p = {.count = 0};                                                                                     \
        for (int64_t at = from; at < to; at += BLOCK) {                                                                \
            int64_t n = tl_min_i64(BLOCK, to - at);                                                                    \
            const type *x = TL_K(flat)(w, 0, at, n, buffer);                                                           \
            type lane[16] = {0};                                                                                       \
            switch (what) {                                                                                            \
            case FOLD_MIN:                                                                                             \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    best = x[i] < best || x[i] != x[i] ? (best != best ? best : x[i]) : best;                          \
                continue;                                                                                              \
            case FOLD_MAX:                                                                                             \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    best = x[i] > best || x[i] != x[i] ? (best != best ? best : x[i]) : best;                          \
                continue;                                                                                              \
            case FOLD_PROD:                                                                                            \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    best *= x[i];                                                                                      \
                continue;                                                                                              \
            case FOLD_ABS:                                                                                             \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    mapped[i] = fabs_of(x[i]);                                                                         \
                break;                                                                                                 \
            case FOLD_SQUARES:                                                                                         \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    mapped[i] = x[i] * x[i];                                                                           \
                break;                                                                                                 \
            default:                                                                                                   \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    mapped[i] = exp_of(x[i] - (type)shift);                                                            \
            }                                                                                                          \
            lanes_add(lane, mapped, n);                                                                                \
            pairwise_add(&p, (double)lanes_sum(lane), narrow);                                                         \
        }                                                                                                              \
        return what <= FOLD_PROD ? (double)best : pairwise_sum(&p, narrow);                                            \
    }
FOLD_RUN(float, flat_float, tl_lanes_add_float, tl_lanes_sum_float, tlm_exp, __builtin_fabsf, true)
FOLD_RUN(double, flat_double, tl_lanes_add_double, tl_lanes_sum_double, tlm_exp64, __builtin_fabs, false)

/* ints: exact modulo 2^64 */
static int64_t fold_int(const tl_walk *w, fold what) {
    uint64_t sum = what == FOLD_PROD ? 1 : 0;
    int64_t best = what == FOLD_MIN ? INT64_MAX : INT64_MIN;
    int last = w->ndim - 1;
    for (int64_t at = 0; at < w->total;) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(w, at, pointer);
        int64_t x[TL_CHUNK], n = tl_min_i64(w->size[last] - at % w->size[last], tl_min_i64(TL_CHUNK, w->total - at));
        TL_K(load_int)(x, w->dtype[0], pointer[0], w->stride[0][last], n);
        for (int64_t i = 0; i < n; i++) {
            uint64_t v = (uint64_t)x[i];
            if (what == FOLD_PROD)
                sum *= v;
            else
                sum += what == FOLD_ABS ? (x[i] < 0 ? 0 - v : v) : v * v;
            best = what == FOLD_MIN ? tl_min_i64(best, x[i]) : tl_max_i64(best, x[i]);
        }
        at += n;
    }
    return what <= FOLD_MAX ? best : (int64_t)sum;
}

typedef struct fold_task {
    tl_walk kept;    /* array 0: out, array 1: in, over the kept axes */
    tl_walk reduced; /* array 0: in, over the reduced axes */
    fold what;
    tl_compute compute;
    bool root, log; /* finishes with √, or with log and the largest taken out before */
    int64_t per_task, part;
    double shift, *partial;
} fold_task;

static double fold_run(const fold_task *f, const tl_walk *w, fold what, int64_t from, int64_t to, double shift) {
    return f->compute == TL_COMPUTE_DOUBLE ? fold_double(w, what, from, to, shift)
                                           : fold_float(w, what, from, to, shift);
}

/* What e^x is shifted by: the largest, or 0 where that is no number to subtract. */
static double shift_of(double largest) { return largest - largest == 0 ? largest : 0; }

static double finish(const fold_task *f, double value, double shift) {
    bool wide = f->compute == TL_COMPUTE_DOUBLE;
    if (f->root)
        return wide ? __builtin_sqrt(value) : (double)__builtin_sqrtf((float)value);
    if (f->log)
        return wide ? tlm_log64(value) + shift : (double)(tlm_log((float)value) + (float)shift);
    return value;
}

static void fold_outputs(void *argument, int64_t task, int thread) {
    (void)thread;
    const fold_task *f = argument;
    int64_t end = tl_min_i64((task + 1) * f->per_task, f->kept.total);
    tl_walk w = f->reduced;
    for (int64_t at = task * f->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&f->kept, at, pointer);
        w.data[0] = pointer[1];
        if (f->compute == TL_COMPUTE_INT) {
            int64_t value = fold_int(&w, f->what);
            TL_K(store_int)(f->kept.dtype[0], pointer[0], 1, &value, 1);
            continue;
        }
        double shift = f->log ? shift_of(fold_run(f, &w, FOLD_MAX, 0, w.total, 0)) : 0;
        double value = finish(f, fold_run(f, &w, f->what, 0, w.total, shift), shift);
        TL_K(store_double)(f->kept.dtype[0], pointer[0], 1, &value, 1);
    }
}

static void fold_part(void *argument, int64_t task, int thread) {
    (void)thread;
    const fold_task *f = argument;
    int64_t end = tl_min_i64((task + 1) * f->part, f->reduced.total);
    f->partial[task] = fold_run(f, &f->reduced, f->what, task * f->part, end, f->shift);
}

/* One output and a long run. */
static double fold_long(tl_engine *engine, fold_task *f, fold what) {
    double partial[MAX_PARTS];
    bool narrow = f->compute == TL_COMPUTE_FLOAT;
    int64_t total = f->reduced.total, part = TL_TASK_ELEMENTS;
    fold kept = f->what;
    while (tl_blocks_of(total, part) > MAX_PARTS)
        part *= 2;
    f->part = part;
    f->partial = partial;
    f->what = what;
    int64_t n = tl_blocks_of(total, part);
    tl_engine_run(engine, n, fold_part, f);
    f->what = kept;
    f->partial = NULL;
    pairwise p = {.count = 0};
    double best = start_of(what);
    for (int64_t i = 0; i < n; i++)
        if (what <= FOLD_PROD)
            best = joined(what, best, partial[i], narrow);
        else
            pairwise_add(&p, partial[i], narrow);
    return what <= FOLD_PROD ? best : pairwise_sum(&p, narrow);
}

/* Kept and reduced axes of `in`, and of `other` of the same or the reduced sizes beside them. */
static void split_axes(const tl_array *in, const tl_array *out, tl_array *kept_in, tl_array *kept_out,
                       tl_array *reduced) {
    *kept_in = *reduced = *in;
    *kept_out = *out;
    kept_in->ndim = kept_out->ndim = reduced->ndim = 0;
    for (int d = 0; d < in->ndim; d++) {
        bool gone = out->size[d] == 1 && in->size[d] != 1;
        tl_array *to = gone ? reduced : kept_in;
        to->size[to->ndim] = in->size[d];
        to->stride[to->ndim++] = in->stride[d];
        if (!gone) {
            kept_out->size[kept_out->ndim] = in->size[d];
            kept_out->stride[kept_out->ndim++] = out->stride[d];
        }
    }
}

static void fold_call(tl_kcall *call, fold what, bool root, bool log) {
    const tl_array *in = &call->in[0], *out = &call->out[0];
    tl_array kept_in, kept_out, reduced;
    split_axes(in, out, &kept_in, &kept_out, &reduced);
    const tl_array *pair[] = {&kept_out, &kept_in}, *one[] = {&reduced};
    fold_task f = {.what = what, .compute = tl_compute_of(in->dtype), .root = root, .log = log};
    TL_K(walk_make)(&f.kept, pair, 2, kept_in.ndim, true);
    TL_K(walk_make)(&f.reduced, one, 1, reduced.ndim, false);
    if (f.kept.total == 0)
        return;
    bool large = f.kept.total * f.reduced.total >= 2 * TL_TASK_ELEMENTS;
    tl_engine *engine = large ? call->engine : NULL;
    if (f.compute == TL_COMPUTE_INT || f.kept.total > 1 || f.reduced.total == 0) {
        f.per_task = tl_rows_per_task(f.reduced.total);
        tl_engine_run(engine, tl_blocks_of(f.kept.total, f.per_task), fold_outputs, &f);
        return;
    }
    if (log)
        f.shift = shift_of(fold_long(engine, &f, FOLD_MAX));
    double value = finish(&f, fold_long(engine, &f, what), f.shift);
    char *to[TL_MAX_IO];
    TL_K(walk_at)(&f.kept, 0, to);
    TL_K(store_double)(out->dtype, to[0], 1, &value, 1);
}

void TL_K(min)(tl_kcall *call) { fold_call(call, FOLD_MIN, false, false); }
void TL_K(prod)(tl_kcall *call) { fold_call(call, FOLD_PROD, false, false); }
void TL_K(l1)(tl_kcall *call) { fold_call(call, FOLD_ABS, false, false); }
void TL_K(l2)(tl_kcall *call) { fold_call(call, FOLD_SQUARES, true, false); }
void TL_K(sum_square)(tl_kcall *call) { fold_call(call, FOLD_SQUARES, false, false); }
void TL_K(log_sum_exp)(tl_kcall *call) { fold_call(call, FOLD_EXP, false, true); }

/* ---- gradients of reductions, elementwise: x, y and the gradient seen in x's shape ---- */

#define THREE(name, type, suffix, expression)                                                                          \
    static void name##_##suffix(const void *constants, int64_t n, void *const pointer[]) {                             \
        (void)constants;                                                                                               \
        type *out = pointer[0];                                                                                        \
        const type *x = pointer[1], *y = pointer[2], *g = pointer[3];                                                  \
        TL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            out[i] = expression;                                                                                       \
    }
#define THREE_KERNEL(name, expression_float, expression_double)                                                        \
    THREE(name, float, float, expression_float)                                                                        \
    THREE(name, double, double, expression_double)                                                                     \
    void TL_K(name)(tl_kcall * call) { TL_K(each_call)(call, name##_float, name##_double, NULL); }
/* at a norm of 0 the slope is taken to be 0 (PyTorch's subgradient) */
THREE_KERNEL(l2_backward, y[i] == 0 ? 0 : g[i] * (x[i] / y[i]), y[i] == 0 ? 0 : g[i] * (x[i] / y[i]))
/* y −∞: nothing was summed that counts */
THREE_KERNEL(log_sum_exp_backward, y[i] == -INFINITY ? 0 : g[i] * tlm_exp(x[i] - y[i]),
             y[i] == -(double)INFINITY ? 0 : g[i] * tlm_exp64(x[i] - y[i]))

/* Gradient of a product: g times the product of all others, as (what is before)·(what is after): no division, so zeros
 * need no case of their own. in: x, g (x's ndim, size 1 where reduced) → out[0] like x. */
typedef struct prod_task {
    tl_walk kept;    /* x, g, out over the kept axes */
    tl_walk reduced; /* x, out over the reduced axes */
    int64_t per_task;
    bool wide;
} prod_task;

#define OTHERS(type, flat, put)                                                                                        \
    static void others_##type(const tl_walk *w, type g) {                                                              \
        type x_buffer[BLOCK], y_buffer[BLOCK], made[BLOCK], before = g, after = 1;                                     \
        for (int64_t at = 0; at < w->total; at += BLOCK) {                                                             \
            int64_t n = tl_min_i64(BLOCK, w->total - at);                                                              \
            const type *x = TL_K(flat)(w, 0, at, n, x_buffer);                                                         \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                made[i] = before;                                                                                      \
                before *= x[i];                                                                                        \
            }                                                                                                          \
            TL_K(put)(w, 1, at, n, made);                                                                              \
        }                                                                                                              \
        for (int64_t block = tl_blocks_of(w->total, BLOCK) - 1; block >= 0; block--) {                                 \
            int64_t at = block * BLOCK, n = tl_min_i64(BLOCK, w->total - at);                                          \
            const type *x = TL_K(flat)(w, 0, at, n, x_buffer), *y = TL_K(flat)(w, 1, at, n, y_buffer);                 \
            for (int64_t i = n - 1; i >= 0; i--) {                                                                     \
                made[i] = y[i] * after;                                                                                \
                after *= x[i];                                                                                         \
            }                                                                                                          \
            TL_K(put)(w, 1, at, n, made);                                                                              \
        }                                                                                                              \
    }
OTHERS(float, flat_float, flat_put_float)
OTHERS(double, flat_double, flat_put_double)

static void prod_backward_outputs(void *argument, int64_t task, int thread) {
    (void)thread;
    const prod_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->kept.total);
    tl_walk w = t->reduced;
    for (int64_t at = task * t->per_task; at < end; at++) {
        char *pointer[TL_MAX_IO];
        double g;
        TL_K(walk_at)(&t->kept, at, pointer);
        w.data[0] = pointer[0];
        w.data[1] = pointer[2];
        TL_K(load_double)(&g, t->kept.dtype[1], pointer[1], 1, 1);
        if (t->wide)
            others_double(&w, g);
        else
            others_float(&w, (float)g);
    }
}

void TL_K(prod_backward)(tl_kcall *call) {
    const tl_array *x = &call->in[0], *g = &call->in[1], *out = &call->out[0];
    tl_array kept_x, kept_g, reduced_x, kept_out, reduced_out, unused;
    split_axes(x, g, &kept_x, &kept_g, &reduced_x);
    split_axes(out, g, &kept_out, &unused, &reduced_out);
    const tl_array *kept[] = {&kept_x, &kept_g, &kept_out}, *reduced[] = {&reduced_x, &reduced_out};
    prod_task t = {.wide = x->dtype == TL_F64};
    TL_K(walk_make)(&t.kept, kept, 3, kept_x.ndim, false);
    TL_K(walk_make)(&t.reduced, reduced, 2, reduced_x.ndim, false);
    t.per_task = tl_rows_per_task(t.reduced.total);
    if (t.kept.total == 0 || t.reduced.total == 0)
        return;
    bool large = t.kept.total * t.reduced.total >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_blocks_of(t.kept.total, t.per_task), prod_backward_outputs, &t);
}
