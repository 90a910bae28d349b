/* kernel/body/update_8bit.c: AdamW with states of 8 bits, block by block.
 *
 * Dettmers, Lewis, Shleifer, Zettlemoyer 2022, "8-bit Optimizers via Block-wise Quantization": a code stands for one of 256
 * numbers in [−1, 1] times the block's largest magnitude. The numbers (their dynamic tree quantisation, as their library
 * makes it): decade e of 0 … 6 reaches from 10^(e−7) to 10^(e−6) and is cut in 2^e equal parts, each of which gives its
 * middle; with these their negatives, 0 and 1. m's code is the place among those 256 in ascending order. v has no sign, so
 * each of its decades is cut in twice as many parts. One thing is ours: a v above 0 never becomes 0, but at least the
 * smallest number there is, as m/(√0 + ε) would throw the parameter across the room. */
#include <math.h>

#include "kernel/body/body.h"

/* Finding the nearest number: the first 16 bits of a float (its exponent and 7 bits of fraction) name a range so short that
 * at most one middle between two numbers lies in it (the numbers near 1 are 0.007 apart, the ranges there 0.004 long). So
 * a table of where each range begins, and one comparison. Ranges below the first middle are the first one's. */
#define FIRST_RANGE 0x3400 /* 2^-23 */
#define LAST_RANGE 0x3F80  /* 1 */

typedef struct code_table {
    float value[256];  /* by code */
    float middle[256]; /* of the k-th number that is not negative and the next; the last is beyond all */
    uint8_t begin[LAST_RANGE - FIRST_RANGE + 1];
    int zero; /* the code of 0 */
} code_table;

static void make_table(code_table *t, bool sign) {
    static const double reach[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};
    int zero = sign ? 127 : 0, at = zero + 1, k = 0;
    t->zero = zero;
    t->value[zero] = 0;
    for (int e = 0; e < 7; e++) {
        int parts = sign ? 1 << e : 2 << e;
        for (int j = 0; j < parts; j++, at++) {
            t->value[at] = (float)(reach[e] * (0.1 + 0.9 * (j + 0.5) / parts));
            if (sign)
                t->value[2 * zero - at] = -t->value[at];
        }
    }
    t->value[at] = 1;
    for (int i = zero; i < 255; i++)
        t->middle[i - zero] = (t->value[i] + t->value[i + 1]) / 2;
    t->middle[255 - zero] = 2;
    for (uint32_t range = FIRST_RANGE; range <= LAST_RANGE; range++) {
        uint32_t bits = range << 16;
        float low;
        memcpy(&low, &bits, sizeof low);
        while (low > t->middle[k])
            k++;
        t->begin[range - FIRST_RANGE] = (uint8_t)k;
    }
}

/* The nearest number's place among those that are not negative, of 0 ≤ x ≤ 1; a middle goes to the smaller. A NaN, whose
 * scale is one too, gets any. */
static inline int place_of(const code_table *t, float x) {
    uint32_t range;
    memcpy(&range, &x, sizeof range);
    range >>= 16;
    range = range < FIRST_RANGE ? FIRST_RANGE : range > LAST_RANGE ? LAST_RANGE : range;
    int k = t->begin[range - FIRST_RANGE];
    return k + (x > t->middle[k]);
}

/* No number is −1: what is nearest to it is the last negative one. The sign is arithmetic, as no branch could guess it. */
static inline uint8_t signed_code(const code_table *t, float x) {
    int minus = x < 0, k = place_of(t, x < 0 ? -x : x);
    k -= minus & (k > t->zero);
    return (uint8_t)(t->zero + ((k ^ -minus) + minus));
}

static inline uint8_t plain_code(const code_table *t, float x) {
    int k = place_of(t, x);
    return (uint8_t)(k + ((k == 0) & (x > 0)));
}

/* The largest magnitude. As bits without their sign floats are in order, and a NaN, which then shows in the block's scale,
 * is above all. */
#define LARGEST(type, bits)                                                                                            \
    static inline type largest_##type(const type *x, int64_t n) {                                                      \
        bits most = 0, sign = (bits)1 << (8 * sizeof(bits) - 1);                                                       \
        type value;                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            bits of;                                                                                                   \
            memcpy(&of, x + i, sizeof of);                                                                             \
            of &= ~sign;                                                                                               \
            most = of > most ? of : most;                                                                              \
        }                                                                                                              \
        memcpy(&value, &most, sizeof value);                                                                           \
        return value;                                                                                                  \
    }
LARGEST(float, uint32_t)
LARGEST(double, uint64_t)

typedef struct block_task {
    tl_walk walk; /* parameter, gradient, [copy], in flat order */
    uint8_t *code[2];
    float *scale[2];
    code_table mean, square;
    double beta1, beta2, epsilon, step_size, root, keep;
    int64_t per_task; /* blocks */
} block_task;

#define BLOCKS(type, square_root)                                                                                      \
    static void block_##type(const block_task *t, int64_t block) {                                                     \
        int64_t first = block * TL_8BIT_BLOCK, n = tl_min_i64(TL_8BIT_BLOCK, t->walk.total - first);                   \
        type p_buffer[TL_8BIT_BLOCK], g_buffer[TL_8BIT_BLOCK], next[TL_8BIT_BLOCK];                                    \
        type m[TL_8BIT_BLOCK], v[TL_8BIT_BLOCK];                                                                       \
        const type *p = TL_K(flat_##type)(&t->walk, 0, first, n, p_buffer);                                            \
        const type *g = TL_K(flat_##type)(&t->walk, 1, first, n, g_buffer);                                            \
        uint8_t *m_code = t->code[0] + first, *v_code = t->code[1] + first;                                            \
        type m_scale = (type)t->scale[0][block], v_scale = (type)t->scale[1][block];                                   \
        type beta1 = (type)t->beta1, beta2 = (type)t->beta2, rest1 = (type)(1 - t->beta1),                             \
             rest2 = (type)(1 - t->beta2);                                                                             \
        type epsilon = (type)t->epsilon, step = (type)t->step_size, root = (type)t->root, keep = (type)t->keep;        \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            m[i] = (type)t->mean.value[m_code[i]] * m_scale;                                                           \
            v[i] = (type)t->square.value[v_code[i]] * v_scale;                                                         \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            m[i] = beta1 * m[i] + rest1 * g[i];                                                                        \
            v[i] = beta2 * v[i] + rest2 * g[i] * g[i];                                                                 \
            next[i] = p[i] * keep - step * m[i] / (square_root(v[i]) * root + epsilon);                                \
        }                                                                                                              \
        type most_m = largest_##type(m, n), most_v = largest_##type(v, n);                                             \
        type by_m = most_m > 0 ? most_m : 1, by_v = most_v > 0 ? most_v : 1;                                           \
        float x[TL_8BIT_BLOCK], y[TL_8BIT_BLOCK];                                                                      \
        t->scale[0][block] = (float)most_m;                                                                            \
        t->scale[1][block] = (float)most_v;                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] = (float)(m[i] / by_m);                                                                               \
            y[i] = (float)(v[i] / by_v);                                                                               \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            m_code[i] = signed_code(&t->mean, x[i]);                                                                   \
            v_code[i] = plain_code(&t->square, y[i]);                                                                  \
        }                                                                                                              \
        TL_K(flat_put_##type)(&t->walk, 0, first, n, next);                                                            \
        if (t->walk.n_array > 2)                                                                                       \
            TL_K(flat_put_##type)(&t->walk, 2, first, n, next);                                                        \
    }
BLOCKS(float, __builtin_sqrtf)
BLOCKS(double, __builtin_sqrt)

static void block_run(void *argument, int64_t task, int thread) {
    (void)thread;
    const block_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, tl_blocks_of(t->walk.total, TL_8BIT_BLOCK));
    for (int64_t block = task * t->per_task; block < end; block++)
        if (t->walk.dtype[0] == TL_F64)
            block_double(t, block);
        else
            block_float(t, block);
}

void TL_K(adamw8bit)(tl_kcall *call) {
    const tl_adamw_attr *attr = call->attr;
    const tl_array *array[] = {&call->out[0], &call->in[0], &call->out[5 < call->n_out ? 5 : 0]};
    double correct1 = 1 - pow(attr->beta1, (double)attr->step), correct2 = 1 - pow(attr->beta2, (double)attr->step);
    block_task t = {.beta1 = attr->beta1,
                    .beta2 = attr->beta2,
                    .epsilon = attr->epsilon,
                    .step_size = attr->lr / correct1,
                    .root = 1 / sqrt(correct2),
                    .keep = 1 - attr->lr * attr->weight_decay};
    for (int k = 0; k < 2; k++) {
        t.code[k] = (uint8_t *)call->out[1 + k].data;
        t.scale[k] = (float *)call->out[3 + k].data;
    }
    TL_K(walk_make)(&t.walk, array, call->n_out > 5 ? 3 : 2, array[0]->ndim, false);
    if (t.walk.total == 0)
        return;
    make_table(&t.mean, true);
    make_table(&t.square, false);
    t.per_task = tl_rows_per_task(TL_8BIT_BLOCK);
    int64_t blocks = tl_blocks_of(t.walk.total, TL_8BIT_BLOCK);
    if (t.walk.total < 2 * TL_TASK_ELEMENTS)
        t.per_task = blocks;
    tl_engine_run(call->engine, tl_blocks_of(blocks, t.per_task), block_run, &t);
}
