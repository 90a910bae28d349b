/* kernel/body/nf4.c: to NF4 and back (tally/ops_nf4.h): 16 levels, blocks of 64 values with one scale, two codes a byte. */
#include "kernel/body/body.h"

#define BLOCK 64        /* TL_NF4_BLOCK: even, so that no byte belongs to two blocks */
#define SCALE_BLOCK 256 /* TL_NF4_SCALE_BLOCK */
#define ZERO 7          /* the code of 0 */

/* Dettmers et al. 2023, appendix E. */
static const float levels[16] = {-1.0f,
                                 -0.6961928009986877f,
                                 -0.5250730514526367f,
                                 -0.39491748809814453f,
                                 -0.28444138169288635f,
                                 -0.18477343022823334f,
                                 -0.09105003625154495f,
                                 0.0f,
                                 0.07958029955625534f,
                                 0.16093020141124725f,
                                 0.24611230194568634f,
                                 0.33791524171829224f,
                                 0.44070982933044434f,
                                 0.5626170039176941f,
                                 0.7229568362236023f,
                                 1.0f};

typedef struct quantize_task {
    tl_walk walk; /* x, in flat order */
    uint8_t *packed;
    float *scale;
    double middle[15]; /* between two levels: exact */
    int64_t per_task;  /* blocks */
} quantize_task;

/* The nearest level of each of n numbers within [−1, 1], the lower of two that are as near. */
static void put_codes(const quantize_task *t, const double *v, int64_t n, uint8_t *packed) {
    uint8_t code[BLOCK];
    for (int64_t i = 0; i < n; i++) {
        int c = 0;
        for (int k = 0; k < 15; k++)
            c += v[i] > t->middle[k];
        code[i] = (uint8_t)c;
    }
    if (n % 2)
        code[n] = ZERO;
    for (int64_t i = 0; i < n; i += 2)
        packed[i / 2] = (uint8_t)(code[i] << 4 | code[i + 1]);
}

/* What is not finite makes the block's scale NaN, which is found afterwards. */
#define QUANTIZE(type, flat)                                                                                           \
    static void quantize_##type(const quantize_task *t, int64_t block) {                                               \
        int64_t first = block * BLOCK, n = tl_min_i64(BLOCK, t->walk.total - first);                                   \
        type buffer[BLOCK], largest = 0;                                                                               \
        const type *x = TL_K(flat)(&t->walk, 0, first, n, buffer);                                                     \
        double v[BLOCK];                                                                                               \
        bool finite = true;                                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type magnitude = x[i] < 0 ? -x[i] : x[i];                                                                  \
            finite = finite && x[i] - x[i] == 0;                                                                       \
            largest = magnitude > largest ? magnitude : largest;                                                       \
        }                                                                                                              \
        float scale = (float)largest;                                                                                  \
        if (!finite || scale - scale != 0)                                                                             \
            scale = __builtin_nanf("");                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                                \
            v[i] = scale > 0 ? (double)(x[i] / (type)scale) : 0;                                                       \
        t->scale[block] = scale;                                                                                       \
        put_codes(t, v, n, t->packed + first / 2);                                                                     \
    }
QUANTIZE(float, flat_float)
QUANTIZE(double, flat_double)

static void quantize_run(void *argument, int64_t task, int thread) {
    const quantize_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, tl_blocks_of(t->walk.total, BLOCK));
    (void)thread;
    for (int64_t block = task * t->per_task; block < end; block++)
        if (t->walk.dtype[0] == TL_F64)
            quantize_double(t, block);
        else
            quantize_float(t, block);
}

/* 1 + the position of the first value of a block that has no finite form in f32. */
static int64_t bad_value(const quantize_task *t, int64_t block) {
    int64_t first = block * BLOCK, n = tl_min_i64(BLOCK, t->walk.total - first);
    double buffer[BLOCK];
    const double *x = TL_K(flat_double)(&t->walk, 0, first, n, buffer);
    for (int64_t i = 0; i < n; i++) {
        float narrow = (float)x[i];
        if (narrow - narrow != 0)
            return 1 + first + i;
    }
    return 1 + first;
}

void TL_K(nf4_quantize)(tl_kcall *call) {
    const tl_array *array[] = {&call->in[0]};
    quantize_task t = {.packed = (uint8_t *)call->out[0].data, .scale = (float *)call->out[1].data};
    TL_K(walk_make)(&t.walk, array, 1, array[0]->ndim, false);
    if (t.walk.total == 0)
        return;
    for (int k = 0; k < 15; k++)
        t.middle[k] = ((double)levels[k] + (double)levels[k + 1]) / 2;
    int64_t blocks = tl_blocks_of(t.walk.total, BLOCK);
    t.per_task = t.walk.total < 2 * TL_TASK_ELEMENTS ? blocks : tl_rows_per_task(BLOCK);
    tl_engine_run(call->engine, tl_blocks_of(blocks, t.per_task), quantize_run, &t);
    for (int64_t block = 0; block < blocks && !call->fault; block++)
        if (t.scale[block] != t.scale[block])
            call->fault = bad_value(&t, block);
}

void TL_K(nf4_scales)(tl_kcall *call) {
    const tl_array *s = &call->in[0];
    int64_t n = s->size[0], stride = s->stride[0];
    const float *scale = (const float *)(const void *)s->data;
    int8_t *code = (int8_t *)call->out[0].data;
    float *outer = (float *)call->out[1].data, *mean = (float *)call->out[2].data;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)scale[i * stride];
    *mean = n > 0 ? (float)(sum / (double)n) : 0;
    for (int64_t first = 0; first < n; first += SCALE_BLOCK) {
        int64_t end = tl_min_i64(first + SCALE_BLOCK, n);
        float largest = 0;
        for (int64_t i = first; i < end; i++) {
            float d = __builtin_fabsf(scale[i * stride] - *mean);
            largest = d > largest ? d : largest;
        }
        float step = largest / 127.0f;
        outer[first / SCALE_BLOCK] = step;
        for (int64_t i = first; i < end; i++) {
            float c = step > 0 ? __builtin_rintf((scale[i * stride] - *mean) / step) : 0;
            code[i] = (int8_t)(c > 127 ? 127 : c < -127 ? -127 : c); /* a step that is no normal number is coarse */
        }
    }
}

typedef struct dequantize_task {
    const uint8_t *packed;
    const float *scale; /* NULL: codes, outer, mean */
    const int8_t *code;
    const float *outer;
    float mean;
    char *out;
    tl_dtype dtype;
    int64_t from;            /* the value that out begins with */
    int64_t total, per_task; /* values, blocks */
} dequantize_task;

static float scale_of(const dequantize_task *t, int64_t block) {
    return t->scale ? t->scale[block] : (float)t->code[block] * t->outer[block / SCALE_BLOCK] + t->mean;
}

/* A run of at most a block whose first value is anywhere in its own. */
static void dequantize_apart(const dequantize_task *t, int64_t first, int64_t n) {
    char *out = t->out + first * tl_bytes_of(t->dtype);
    float level[BLOCK];
    double wide[BLOCK];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = t->from + first + i;
        float scale = scale_of(t, at / BLOCK);
        level[i] = levels[(t->packed[at / 2] >> (at % 2 ? 0 : 4)) & 15];
        wide[i] = (double)level[i] * (double)scale;
        level[i] *= scale;
    }
    if (t->dtype == TL_F64)
        TL_K(store_double)(t->dtype, out, 1, wide, n);
    else
        TL_K(store_float)(t->dtype, out, 1, level, n);
}

static void dequantize_block(const dequantize_task *t, int64_t block) {
    int64_t first = block * BLOCK, n = tl_min_i64(BLOCK, t->total - first);
    if (t->from % BLOCK != 0) {
        dequantize_apart(t, first, n);
        return;
    }
    const uint8_t *packed = t->packed + (t->from + first) / 2;
    float scale = scale_of(t, t->from / BLOCK + block);
    char *out = t->out + first * tl_bytes_of(t->dtype);
    float level[BLOCK];
    for (int64_t i = 0; i < n; i += 2) {
        level[i] = levels[packed[i / 2] >> 4];
        level[i + 1] = levels[packed[i / 2] & 15];
    }
    if (t->dtype == TL_F64) {
        double wide[BLOCK];
        for (int64_t i = 0; i < n; i++)
            wide[i] = (double)level[i] * (double)scale;
        TL_K(store_double)(t->dtype, out, 1, wide, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        level[i] *= scale;
    TL_K(store_float)(t->dtype, out, 1, level, n);
}

static void dequantize_run(void *argument, int64_t task, int thread) {
    const dequantize_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, tl_blocks_of(t->total, BLOCK));
    (void)thread;
    for (int64_t block = task * t->per_task; block < end; block++)
        dequantize_block(t, block);
}

void TL_K(nf4_dequantize)(tl_kcall *call) {
    const tl_array *out = &call->out[0];
    dequantize_task t = {
        .packed = (const uint8_t *)call->in[0].data, .out = out->data, .dtype = out->dtype, .total = 1};
    if (call->attr)
        t.from = *(const int64_t *)call->attr;
    if (call->n_in == 2)
        t.scale = (const float *)(const void *)call->in[1].data;
    for (int d = 0; d < out->ndim; d++)
        t.total *= out->size[d];
    if (t.total == 0)
        return;
    if (call->n_in == 4) {
        t.code = (const int8_t *)call->in[1].data;
        t.outer = (const float *)(const void *)call->in[2].data;
        t.mean = *(const float *)(const void *)call->in[3].data;
    }
    int64_t blocks = tl_blocks_of(t.total, BLOCK);
    t.per_task = t.total < 2 * TL_TASK_ELEMENTS ? blocks : tl_rows_per_task(BLOCK);
    tl_engine_run(call->engine, tl_blocks_of(blocks, t.per_task), dequantize_run, &t);
}
