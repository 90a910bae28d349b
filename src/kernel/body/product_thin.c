/* kernel/body/product_thin.c: a product of a few rows with a matrix whose columns are contiguous: one token through a linear
 * layer. All it has to do is read the matrix once, which packing it first would double; so each element is a dot product in
 * 16 lanes, lane l taking the terms l, l + 16, …, added in one fixed order. */
#include "kernel/body/body.h"

#define MOST_ROWS 8
#define COLUMN_BLOCK 64 /* columns of one task */

typedef struct thin_task {
    const tl_product *product;
    int bytes;
} thin_task;

/* Σ x·w of one x with `count` rows of weights, 1 or 4. */
static inline __attribute__((always_inline)) void dots(const float *x, const float *const w[4], int64_t k, float *sum,
                                                       const int count) {
    float lane[4][16];
    tl_float16 total[4] = {{0}};
    int64_t whole = k / 16 * 16;
    for (int64_t i = 0; i < whole; i += 16)
        for (int c = 0; c < count; c++)
            total[c] += *(const tl_float16 *)(x + i) * *(const tl_float16 *)(w[c] + i);
    for (int c = 0; c < count; c++) {
        memcpy(lane[c], &total[c], sizeof total[c]);
        for (int64_t i = whole; i < k; i++)
            lane[c][i - whole] += x[i] * w[c][i];
        sum[c] = tl_lanes_sum_float(lane[c]);
    }
}

static void store(const tl_product *p, int64_t row, int64_t column, float *sum, int64_t count) {
    int bytes = tl_bytes_of(p->dtype);
    float bias[4];
    if (p->bias) {
        TL_K(load_float)(bias, p->dtype, p->bias + column * p->bias_stride * bytes, p->bias_stride, count);
        for (int64_t c = 0; c < count; c++)
            sum[c] += bias[c];
    }
    TL_K(store_float)(p->dtype, p->c + (row * p->c_row + column) * bytes, 1, sum, count);
}

/* 16-bit rows are widened into the thread's scratch block: those of A, and behind them four of B. */
static void thin_columns(void *argument, int64_t task, int thread) {
    const thin_task *t = argument;
    const tl_product *p = t->product;
    bool own = p->dtype == TL_F32;
    float *room = own ? NULL : tl_engine_scratch(p->engine, thread);
    const float *x[MOST_ROWS], *w[4];
    for (int64_t r = 0; r < p->m; r++) {
        const char *from = p->a + r * p->a_row * t->bytes;
        x[r] = own ? (const float *)(const void *)from : room + r * p->k;
        if (!own)
            TL_K(load_float)(room + r * p->k, p->dtype, from, 1, p->k);
    }
    int64_t end = tl_min_i64((task + 1) * COLUMN_BLOCK, p->n);
    for (int64_t j = task * COLUMN_BLOCK; j < end;) {
        int count = end - j >= 4 ? 4 : 1;
        for (int c = 0; c < count; c++) {
            const char *from = p->b + (j + c) * p->b_col * t->bytes;
            w[c] = own ? (const float *)(const void *)from : room + (p->m + c) * p->k;
            if (!own)
                TL_K(load_float)(room + (p->m + c) * p->k, p->dtype, from, 1, p->k);
        }
        for (int64_t r = 0; r < p->m; r++) {
            float sum[4];
            if (count == 4)
                dots(x[r], w, p->k, sum, 4);
            else
                dots(x[r], w, p->k, sum, 1);
            store(p, r, j, sum, count);
        }
        j += count;
    }
}

bool TL_K(product_thin)(const tl_product *p) {
    bool sixteen = p->dtype == TL_BF16 || p->dtype == TL_F16;
    bool plain = (p->a_col == 1 || p->k == 1) && (p->b_row == 1 || p->k == 1) && p->n_batch == 0 && !p->accumulate;
    if (!plain || (!sixteen && p->dtype != TL_F32) || p->m < 1 || p->m > MOST_ROWS || p->n < 16 || p->k < 32)
        return false;
    if (sixteen && (!p->engine || (p->m + 4) * p->k * (int64_t)sizeof(float) > p->engine->scratch_bytes))
        return false;
    thin_task t = {.product = p, .bytes = tl_bytes_of(p->dtype)};
    bool small = p->m * p->n * p->k < 2 * TL_TASK_ELEMENTS && !sixteen;
    tl_engine_run(small ? NULL : p->engine, tl_blocks_of(p->n, COLUMN_BLOCK), thin_columns, &t);
    return true;
}
