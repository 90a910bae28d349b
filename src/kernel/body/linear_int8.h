/* kernel/body/linear_int8.h: int8 weights times activations for one compute type; included twice by linear_int8.c with REAL,
 * N(name), OWN, LOAD, STORE, SUM and VECTOR (16 REALs). No guard.
 *
 * An element's sum runs in 16 lanes, lane l taking the terms l, l + 16, …, and the lanes are added in one fixed order: its
 * bits depend on neither the tiles nor the instruction set. */

/* ROWS × OUTPUTS sums over the first n columns, a multiple of 16, into lanes. */
static inline __attribute__((always_inline)) void N(dots)(const REAL *const x[], const int8_t *const q[], int64_t n,
                                                          REAL (*lane)[16], const int rows, const int outputs) {
    VECTOR sum[8] = {{0}};
    for (int64_t i = 0; i < n; i += 16) {
        TL_UNROLL
        for (int o = 0; o < outputs; o++) {
            VECTOR weight;
            N(widen)(q[o] + i, &weight);
            TL_UNROLL
            for (int r = 0; r < rows; r++)
                sum[o * rows + r] += *(const VECTOR *)(x[r] + i) * weight;
        }
    }
    TL_UNROLL
    for (int s = 0; s < rows * outputs; s++)
        memcpy(lane[s], &sum[s], sizeof sum[s]);
}

static inline REAL N(finish)(const int8_task *t, const REAL *x, const int8_t *q, REAL *lane, int64_t whole,
                             int64_t output) {
    for (int64_t i = whole; i < t->columns; i++)
        lane[i - whole] += x[i] * (REAL)q[i];
    REAL sum = SUM(lane) * (REAL)t->scale[output * t->scale_stride], bias;
    if (!t->bias)
        return sum;
    LOAD(&bias, t->dtype, t->bias + output * t->bias_stride * tl_bytes_of(t->dtype), 1, 1);
    return sum + bias;
}

/* Rows first … first + rows − 1 of x with the outputs of one block. */
static void N(rows_run)(const int8_task *t, const REAL *const x[], char *const y[], int rows, int64_t from,
                        int64_t to) {
    REAL lane[8][16], out[ROWS][OUTPUT_BLOCK];
    int64_t whole = t->columns / 16 * 16;
    for (int64_t o = from; o < to;) {
        int together = rows == 1 ? (to - o >= 4 ? 4 : 1) : to - o >= 2 ? 2 : 1;
        const int8_t *q[4];
        for (int k = 0; k < 4; k++)
            q[k] = t->q + tl_min_i64(o + k, to - 1) * t->q_stride;
        if (rows == 1 && together == 4)
            N(dots)(x, q, whole, lane, 1, 4);
        else if (rows == 1)
            N(dots)(x, q, whole, lane, 1, 1);
        else if (together == 2)
            N(dots)(x, q, whole, lane, ROWS, 2);
        else
            N(dots)(x, q, whole, lane, ROWS, 1);
        int step = rows == 1 ? 1 : ROWS;
        for (int k = 0; k < together; k++)
            for (int r = 0; r < rows; r++)
                out[r][o + k - from] = N(finish)(t, x[r], q[k], lane[k * step + r], whole, o + k);
        o += together;
    }
    for (int r = 0; r < rows; r++)
        STORE(t->dtype, y[r] + from * tl_bytes_of(t->dtype), 1, out[r], to - from);
}

static void N(tile)(void *argument, int64_t task, int thread) {
    (void)thread;
    const int8_task *t = argument;
    int64_t row = task / t->blocks * ROW_BLOCK, end = tl_min_i64(row + ROW_BLOCK, t->rows);
    int64_t from = task % t->blocks * OUTPUT_BLOCK, to = tl_min_i64(from + OUTPUT_BLOCK, t->outputs);
    while (row < end) {
        const REAL *x[ROWS];
        char *y[ROWS], *pointer[2];
        int rows = end - row >= 2 ? (int)tl_min_i64(ROWS, end - row) : 1;
        for (int r = 0; r < ROWS; r++) { /* rows past the last repeat it and are not stored */
            TL_K(walk_at)(&t->walk, row + tl_min_i64(r, rows - 1), pointer);
            y[r] = pointer[0];
            x[r] = t->work ? (const REAL *)t->work + (row + tl_min_i64(r, rows - 1)) * t->columns
                           : (const REAL *)pointer[1];
        }
        N(rows_run)(t, x, y, rows, from, to);
        row += rows;
    }
}

/* Row `task` of x in the compute type. */
static void N(load)(void *argument, int64_t task, int thread) {
    (void)thread;
    const int8_task *t = argument;
    char *pointer[2];
    TL_K(walk_at)(&t->walk, task, pointer);
    LOAD((REAL *)t->work + task * t->columns, t->dtype, pointer[1], t->x_stride, t->columns);
}
