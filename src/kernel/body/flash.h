/* kernel/body/flash.h: attention by blocks for one compute type; included twice by flash.c with REAL, N(name), OWN, LOAD, STORE,
 * VECTOR, MULTIPLY_ADD, EXP_ROW and TANH. No guard.
 *
 * Scores lie as [key][row], so that the maximum and the sum of a row run down a column of lanes: each is one chain in order of
 * the keys, no vector is ever summed across, and k and v are read where they lie. */

#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))

/* A worker's scratch block, cut up. `block` rows (or keys) each; t: transposed, [size][block]. */
typedef struct N(room) {
    REAL *q, *qt, *k, *dk, *dq;      /* of kp */
    REAL *v, *dv, *g, *gt;           /* of lp; g: the gradient of y. Forward: gt is yᵀ */
    REAL *s, *ds;                    /* [key][row] */
    REAL *most, *sum, *factor, *lse; /* a row each */
    int32_t *low, *high;             /* keys of the block that a row sees */
    REAL *line;                      /* one row of q, k, v or y */
    int64_t flops;
} N(room);

static void N(room_make)(N(room) * r, const flash_task *t, int thread) {
    REAL *at = tl_engine_scratch(t->call->engine, thread);
    const int64_t k = t->block * t->kp, l = t->block * t->lp, b = t->block;
    REAL **const of_k[] = {&r->q, &r->qt, &r->k, &r->dk, &r->dq}, **const of_l[] = {&r->v, &r->dv, &r->g, &r->gt};
    for (int i = 0; i < 5; i++, at += k)
        *of_k[i] = at;
    for (int i = 0; i < 4; i++, at += l)
        *of_l[i] = at;
    r->s = at, r->ds = at + b * b, at += 2 * b * b;
    r->most = at, r->sum = at + b, r->factor = at + 2 * b, r->lse = at + 3 * b, at += 4 * b;
    r->low = (int32_t *)(void *)at, r->high = r->low + b;
    r->line = at + 4 * b;
    r->flops = 0;
}

/* ROWS × (vectors · LANES) of C (+)= A·B. Rows past the last repeat it and are not stored. */
static inline __attribute__((always_inline)) void N(micro)(REAL *c, int64_t ldc, const REAL *a, int64_t a_row,
                                                           int64_t a_col, const REAL *b, int64_t ldb, int64_t k,
                                                           int64_t rows, bool add, const int vectors) {
    VECTOR sum[ROWS][2];
    const REAL *line[ROWS];
    TL_UNROLL
    for (int i = 0; i < ROWS; i++) {
        int64_t row = i < rows ? i : rows - 1;
        line[i] = a + row * a_row;
        TL_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[i][v] = add ? *(const VECTOR *)&c[row * ldc + v * LANES] : (VECTOR){0};
    }
    for (int64_t l = 0; l < k; l++) {
        VECTOR right[2];
        TL_UNROLL
        for (int v = 0; v < vectors; v++)
            right[v] = *(const VECTOR *)&b[l * ldb + v * LANES];
        TL_UNROLL
        for (int i = 0; i < ROWS; i++) {
            REAL left = line[i][l * a_col];
            TL_UNROLL
            for (int v = 0; v < vectors; v++)
                MULTIPLY_ADD(sum[i][v], left, right[v]);
        }
    }
    TL_UNROLL
    for (int i = 0; i < ROWS; i++)
        if (i < rows) {
            TL_UNROLL
            for (int v = 0; v < vectors; v++)
                *(VECTOR *)&c[i * ldc + v * LANES] = sum[i][v];
        }
}

/* C[m,n] (+)= A[m,k]·B[k,n]; rows of B and C lie contiguous and reach to whole vectors. */
static void N(product)(N(room) * r, REAL *c, int64_t ldc, const REAL *a, int64_t a_row, int64_t a_col, const REAL *b,
                       int64_t ldb, int64_t m, int64_t n, int64_t k, bool add) {
    r->flops += 2 * m * n * k;
    for (int64_t j = 0; j < n;) {
        bool two = n - j > LANES;
        for (int64_t i = 0; i < m; i += ROWS) {
            if (two)
                N(micro)
            (c + i * ldc + j, ldc, a + i * a_row, a_row, a_col, b + j, ldb, k, tl_min_i64(ROWS, m - i), add, 2);
            else N(micro)(c + i * ldc + j, ldc, a + i * a_row, a_row, a_col, b + j, ldb, k, tl_min_i64(ROWS, m - i),
                          add, 1);
        }
        j += two ? 2 * LANES : LANES;
    }
}

/* `count` rows of x from [b, first, head] (or [b, head, first]: its stride is `step`) into rows of `padded`, zeros behind. */
static void N(load_rows)(REAL *to, int64_t padded, const tl_array *x, const char *from, int64_t step, int64_t count,
                         int64_t size) {
    int64_t bytes = tl_bytes_of(x->dtype);
    for (int64_t i = 0; i < count; i++) {
        LOAD(to + i * padded, x->dtype, from + i * step * bytes, x->stride[3], size);
        for (int64_t c = size; c < padded; c++)
            to[i * padded + c] = 0;
    }
}

/* [count][padded] → [size][block], zeros in the lanes behind the last row. */
static void N(turn)(REAL *to, int64_t block, const REAL *from, int64_t padded, int64_t count, int64_t size) {
    int64_t lanes = (count + LANES - 1) / LANES * LANES;
    for (int64_t i0 = 0; i0 < lanes; i0 += 16) {
        int64_t end = tl_min_i64(i0 + 16, lanes);
        for (int64_t c = 0; c < size; c++)
            for (int64_t i = i0; i < end; i++)
                to[c * block + i] = i < count ? from[i * padded + c] : 0;
    }
}

/* Where keys (or values) of a block are read: in place, or widened into the scratch block. */
static const REAL *N(operand)(REAL *room, int64_t padded, const tl_array *x, int64_t b, int64_t group, int64_t first,
                              int64_t count, int64_t size, int64_t *row, int64_t *column) {
    const char *from = place(x, b, group, first);
    if (x->dtype == OWN) {
        *row = x->stride[2];
        *column = x->stride[3];
        return (const REAL *)(const void *)from;
    }
    N(load_rows)(room, padded, x, from, x->stride[2], count, size);
    *row = padded;
    *column = 1;
    return room;
}

static REAL N(of_head)(const tl_array *x, int64_t head) {
    REAL value = 0;
    if (x)
        LOAD(&value, x->dtype, x->data + head * x->stride[0] * tl_bytes_of(x->dtype), 1, 1);
    return value;
}

/* Which of keys [j0, j0 + keys) each row sees; false: all rows see all. */
static bool N(limits)(N(room) * r, const flash_task *t, int64_t b, int64_t i0, int64_t rows, int64_t j0, int64_t keys) {
    int64_t low, high, last_low, last_high;
    tl_flash_sees(t->attr, i0, t->S, &low, &high);
    tl_flash_sees(t->attr, i0 + rows - 1, t->S, &last_low, &last_high);
    if (!t->positions && last_low <= j0 && high >= j0 + keys)
        return false;
    for (int64_t i = 0; i < t->block; i++) {
        r->low[i] = r->high[i] = 0;
        if (i >= rows)
            continue;
        tl_flash_sees(t->attr, i0 + i, t->S, &low, &high);
        if (t->positions)
            low = tl_max_i64(low, document_of(t, b, i0 + i));
        r->low[i] = (int32_t)tl_max_i64(0, tl_min_i64(low - j0, keys));
        r->high[i] = (int32_t)tl_max_i64(0, tl_min_i64(high - j0, keys));
    }
    return true;
}

/* scale·x, c·tanh(x/c), + slope·(column − position) of one key, or Falcon's scale·(slope·column), which bf16 rounds and so is not
 * the same from another place; `cap` takes 1 − tanh², or is NULL. */
static void N(score)(const flash_task *t, REAL *x, REAL *cap, int64_t n, REAL slope, int64_t column, int64_t position) {
    const REAL scale = (REAL)t->attr->scale, most = (REAL)t->attr->softcap;
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
    if (most != 0) {
        const REAL inverse = 1 / most;
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            REAL h = TANH(x[i] * inverse);
            x[i] = most * h;
            if (cap)
                cap[i] = 1 - h * h;
        }
    }
    if (slope != 0 && t->attr->slopes_scaled) {
        const REAL bias = (REAL)to_bf16(to_bf16((float)slope) * to_bf16((float)column)) * scale;
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            x[i] += bias;
    } else if (slope != 0)
        for (int64_t i = 0; i < n; i++)
            x[i] += slope * (REAL)(column - position - i);
}

static void N(hide)(const N(room) * r, REAL *x, int64_t n, int32_t key, REAL value) {
    const int32_t *low = r->low, *high = r->high;
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        x[i] = key >= low[i] && key < high[i] ? x[i] : value;
}

/* x[key][row] · 1/(1 − p) where the element is kept, 0 where not. */
static void N(drop)(const flash_task *t, REAL *x, int64_t head, int64_t i0, int64_t rows, int64_t j0, int64_t keys) {
    const REAL factor = (REAL)(1 / (1 - t->attr->dropout.a));
    float keep[64];
    for (int64_t i = 0; i < rows; i++) {
        TL_K(dropout_keeps)(&t->attr->dropout, (uint64_t)((head * t->T + i0 + i) * t->S + j0), keys, keep);
        for (int64_t j = 0; j < keys; j++)
            x[j * t->block + i] = keep[j] != 0 ? x[j * t->block + i] * factor : 0;
    }
}

/* The scores of a block become e^(score − most), the running maximum and sum go on, and what was summed so far is scaled. */
static void N(online)(N(room) * r, const flash_task *t, int64_t keys, int64_t lanes) {
    REAL *most = r->most, *sum = r->sum, *factor = r->factor, shift[64];
    for (int64_t i = 0; i < lanes; i++)
        factor[i] = most[i];
    for (int64_t j = 0; j < keys; j++) {
        const REAL *s = r->s + j * t->block;
        TL_INDEPENDENT
        for (int64_t i = 0; i < lanes; i++)
            most[i] = s[i] > most[i] || s[i] != s[i] ? s[i] : most[i];
    }
    bool moved = false;
    for (int64_t i = 0; i < lanes; i++) {
        shift[i] = most[i] == -(REAL)__builtin_inf() ? 0 : most[i];
        moved |= factor[i] != most[i];
        factor[i] -= shift[i];
    }
    EXP_ROW(factor, NULL, NULL, lanes);
    for (int64_t i = 0; i < lanes; i++)
        sum[i] *= factor[i];
    for (int64_t j = 0; j < keys; j++)
        EXP_ROW(r->s + j * t->block, shift, sum, lanes);
    for (int64_t c = 0; moved && c < t->L; c++) {
        REAL *y = r->gt + c * t->block;
        TL_INDEPENDENT
        for (int64_t i = 0; i < lanes; i++)
            y[i] *= factor[i];
    }
}

static void N(store_block)(N(room) * r, const flash_task *t, int64_t b, int64_t h, int64_t i0, int64_t rows) {
    const tl_array *y = &t->call->out[0], *lse = t->call->n_out > 1 ? &t->call->out[1] : NULL;
    const REAL none = -(REAL)__builtin_inf();
    for (int64_t i = 0; i < rows; i++) {
        REAL factor = 1, sum = r->sum[i], most = r->most[i];
        if (t->sinks) {
            REAL sink = N(of_head)(t->sinks, h), up = sink > most ? sink : most, part[2] = {most - up, sink - up};
            if (up != none) {
                EXP_ROW(part, NULL, NULL, 2);
                factor = part[0];
                sum = sum * factor + part[1];
                most = up;
            }
        }
        factor = sum == 0 ? 0 : factor / sum;
        for (int64_t c = 0; c < t->L; c++)
            r->line[c] = r->gt[c * t->block + i] * factor;
        STORE(y->dtype, place(y, b, i0 + i, h), y->stride[3], r->line, t->L);
        REAL value = sum == 0 ? none : most + LOG(sum);
        if (lse)
            STORE(lse->dtype, place(lse, b, h, i0 + i), 1, &value, 1);
    }
}

static void N(forward)(void *argument, int64_t task, int thread) {
    const flash_task *t = argument;
    const tl_array *q = &t->call->in[0], *k = &t->call->in[1], *v = &t->call->in[2];
    N(room) r;
    N(room_make)(&r, t, thread);
    int64_t block = t->block, i0 = task % t->row_blocks * block, h = task / t->row_blocks % t->H;
    int64_t b = task / t->row_blocks / t->H, group = h / (t->H / t->G), rows = tl_min_i64(block, t->T - i0);
    int64_t lanes = (rows + LANES - 1) / LANES * LANES, low, high, row, column;
    const REAL slope = N(of_head)(t->slopes, h);
    N(load_rows)(r.q, t->kp, q, place(q, b, h, i0), q->stride[2], rows, t->K);
    N(turn)(r.qt, block, r.q, t->kp, rows, t->K);
    for (int64_t i = 0; i < block; i++) {
        r.most[i] = -(REAL)__builtin_inf();
        r.sum[i] = 0;
    }
    memset(r.gt, 0, (size_t)(t->L * block) * sizeof(REAL));
    block_keys(t, i0, rows, 0, t->S, &low, &high);
    for (int64_t j0 = low; j0 < high; j0 += block) {
        int64_t keys = tl_min_i64(block, t->S - j0);
        const REAL *a = N(operand)(r.k, t->kp, k, b, group, j0, keys, t->K, &row, &column);
        N(product)(&r, r.s, block, a, row, column, r.qt, block, keys, rows, t->K, false);
        bool hidden = N(limits)(&r, t, b, i0, rows, j0, keys);
        for (int64_t j = 0; j < keys; j++) {
            N(score)(t, r.s + j * block, NULL, lanes, slope, j0 + j, i0 + t->attr->offset);
            if (hidden)
                N(hide)(&r, r.s + j * block, lanes, (int32_t)j, -(REAL)__builtin_inf());
        }
        N(online)(&r, t, keys, lanes);
        if (t->attr->dropout.a > 0)
            N(drop)(t, r.s, b * t->H + h, i0, rows, j0, keys);
        a = N(operand)(r.v, t->lp, v, b, group, j0, keys, t->L, &row, &column);
        N(product)(&r, r.gt, block, a, column, row, r.s, block, t->L, rows, keys, true);
    }
    N(store_block)(&r, t, b, h, i0, rows);
    __atomic_fetch_add(&t->call->product_flops, r.flops, __ATOMIC_RELAXED);
}

/* ---- backward ---- */

/* Σ y·dy of each row, which is Σ P·dP (Dao et al. 2022, eq. 4). */
static REAL N(dot)(const flash_task *t, REAL *line, const REAL *g, int64_t b, int64_t h, int64_t i) {
    const tl_array *y = &t->call->in[3];
    REAL sum = 0;
    LOAD(line, y->dtype, place(y, b, i, h), y->stride[3], t->L);
    for (int64_t c = 0; c < t->L; c++)
        sum += line[c] * g[c];
    return sum;
}

/* Scores and dP become P (dropped) and the gradient of scale·q·kᵀ, times scale. */
static void N(differentiate)(N(room) * r, const flash_task *t, int64_t head, int64_t i0, int64_t rows, int64_t j0,
                             int64_t keys, REAL slope) {
    const int64_t lanes = (rows + LANES - 1) / LANES * LANES, block = t->block;
    const bool hidden = N(limits)(r, t, head / t->H, i0, rows, j0, keys), drops = t->attr->dropout.a > 0;
    const REAL scale = (REAL)t->attr->scale, *most = r->sum;
    REAL cap[64];
    if (drops && (t->wanted & (TL_FLASH_DQ | TL_FLASH_DK)))
        N(drop)(t, r->ds, head, i0, rows, j0, keys);
    for (int64_t i = 0; i < lanes; i++)
        cap[i] = 1;
    for (int64_t j = 0; j < keys; j++) {
        REAL *p = r->s + j * block, *ds = r->ds + j * block;
        N(score)(t, p, cap, lanes, slope, j0 + j, i0 + t->attr->offset);
        EXP_ROW(p, r->lse, NULL, lanes);
        if (hidden)
            N(hide)(r, p, lanes, (int32_t)j, 0);
        if (!(t->wanted & (TL_FLASH_DQ | TL_FLASH_DK)))
            continue;
        TL_INDEPENDENT
        for (int64_t i = 0; i < lanes; i++)
            ds[i] = p[i] * (ds[i] - most[i]) * (cap[i] * scale);
        if (hidden)
            N(hide)(r, ds, lanes, (int32_t)j, 0);
    }
    if (drops)
        N(drop)(t, r->s, head, i0, rows, j0, keys);
}

/* sums[j0 …] += Aᵀ·B over the rows: `a` is [key][row], `b` [row][padded]. */
static void N(add_keys)(N(room) * r, const flash_task *t, const sums *to, REAL *tile, const REAL *a, const REAL *b,
                        int64_t padded, int64_t first, int64_t keys, int64_t rows, int64_t size) {
    for (int64_t j = 0; j < keys; j++)
        LOAD(tile + j * padded, OWN, to->data + (first + j) * to->row * (int64_t)sizeof(REAL), 1, size);
    N(product)(r, tile, padded, a, t->block, 1, b, padded, keys, size, rows, true);
    for (int64_t j = 0; j < keys; j++)
        STORE(OWN, to->data + (first + j) * to->row * (int64_t)sizeof(REAL), 1, tile + j * padded, size);
}

/* One block of rows of one head with its keys in [from, to). */
static void N(backward_rows)(N(room) * r, const flash_task *t, const sums *dk, const sums *dv, int64_t b, int64_t h,
                             int64_t i0, int64_t from, int64_t to) {
    const tl_array *q = &t->call->in[0], *k = &t->call->in[1], *v = &t->call->in[2], *g = &t->call->in[5];
    const int64_t block = t->block, rows = tl_min_i64(block, t->T - i0), group = h / (t->H / t->G);
    const REAL slope = N(of_head)(t->slopes, h), none = -(REAL)__builtin_inf();
    const bool scores = t->wanted & (TL_FLASH_DQ | TL_FLASH_DK);
    int64_t low, high, row, column;
    memset(r->dq, 0, (size_t)(rows * t->kp) * sizeof(REAL));
    block_keys(t, i0, rows, from, to, &low, &high);
    if (low < high) {
        N(load_rows)(r->q, t->kp, q, place(q, b, h, i0), q->stride[2], rows, t->K);
        N(load_rows)(r->g, t->lp, g, place(g, b, i0, h), g->stride[1], rows, t->L);
        N(turn)(r->qt, block, r->q, t->kp, rows, t->K);
        N(turn)(r->gt, block, r->g, t->lp, rows, t->L);
        for (int64_t i = 0; i < block; i++)
            r->lse[i] = r->sum[i] = 0;
        for (int64_t i = 0; i < rows; i++) {
            LOAD(&r->lse[i], t->call->in[4].dtype, place(&t->call->in[4], b, h, i0 + i), 1, 1);
            r->lse[i] = r->lse[i] == none ? 0 : r->lse[i];
            r->sum[i] = scores ? N(dot)(t, r->line, r->g + i * t->lp, b, h, i0 + i) : 0;
        }
    }
    for (int64_t j0 = low; j0 < high; j0 += block) {
        int64_t keys = tl_min_i64(block, t->S - j0);
        N(load_rows)(r->k, t->kp, k, place(k, b, group, j0), k->stride[2], keys, t->K);
        N(product)(r, r->s, block, r->k, t->kp, 1, r->qt, block, keys, rows, t->K, false);
        if (scores) {
            const REAL *a = N(operand)(r->v, t->lp, v, b, group, j0, keys, t->L, &row, &column);
            N(product)(r, r->ds, block, a, row, column, r->gt, block, keys, rows, t->L, false);
        }
        N(differentiate)(r, t, b * t->H + h, i0, rows, j0, keys, slope);
        if (t->wanted & TL_FLASH_DV)
            N(add_keys)(r, t, dv, r->dv, r->s, r->g, t->lp, j0, keys, rows, t->L);
        if (t->wanted & TL_FLASH_DK)
            N(add_keys)(r, t, dk, r->dk, r->ds, r->q, t->kp, j0, keys, rows, t->K);
        if (t->wanted & TL_FLASH_DQ)
            N(product)(r, r->dq, t->kp, r->ds, 1, block, r->k, t->kp, rows, t->K, keys, true);
    }
}

/* One part of the keys of one key/value head, for all the heads that share it. */
static void N(backward)(void *argument, int64_t task, int thread) {
    const flash_task *t = argument;
    const tl_array *dq = &t->call->out[0];
    N(room) r;
    N(room_make)(&r, t, thread);
    int64_t part = task % t->parts, group = task / t->parts % t->G, b = task / t->parts / t->G, each = t->H / t->G;
    int64_t from = part * t->part, to = tl_min_i64(from + t->part, t->S);
    sums dk = sums_of(t, 1, b, group), dv = sums_of(t, 2, b, group);
    for (int64_t j = from; j < to; j++) {
        if (dk.data)
            memset(dk.data + j * dk.row * (int64_t)sizeof(REAL), 0, (size_t)t->K * sizeof(REAL));
        if (dv.data)
            memset(dv.data + j * dv.row * (int64_t)sizeof(REAL), 0, (size_t)t->L * sizeof(REAL));
    }
    for (int64_t h = group * each; h < (group + 1) * each; h++)
        for (int64_t i0 = 0; i0 < t->T; i0 += t->block) {
            N(backward_rows)(&r, t, &dk, &dv, b, h, i0, from, to);
            for (int64_t i = 0; (t->wanted & TL_FLASH_DQ) && i < tl_min_i64(t->block, t->T - i0); i++) {
                REAL *sum = (REAL *)(void *)t->sum_q + (((part * t->B + b) * t->H + h) * t->T + i0 + i) * t->K;
                if (t->parts > 1)
                    memcpy(sum, r.dq + i * t->kp, (size_t)t->K * sizeof(REAL));
                else
                    STORE(dq->dtype, place(dq, b, i0 + i, h), dq->stride[3], r.dq + i * t->kp, t->K);
            }
        }
    for (int64_t j = from; j < to; j++)
        for (int o = 1; o < 3; o++) {
            const tl_array *out = &t->call->out[o];
            const sums *s = o == 1 ? &dk : &dv;
            if (s->data && s->rounds)
                STORE(out->dtype, place(out, b, j, group), out->stride[3],
                      (const REAL *)(const void *)s->data + j * s->row, out->size[3]);
        }
    __atomic_fetch_add(&t->call->product_flops, r.flops, __ATOMIC_RELAXED);
}

/* dq of a block of rows: its parts, in order. */
static void N(add_parts)(void *argument, int64_t task, int thread) {
    const flash_task *t = argument;
    const tl_array *dq = &t->call->out[0];
    REAL *sum = tl_engine_scratch(t->call->engine, thread);
    int64_t i0 = task % t->row_blocks * t->block, head = task / t->row_blocks, step = t->B * t->H * t->T * t->K;
    for (int64_t i = i0; i < tl_min_i64(i0 + t->block, t->T); i++) {
        const REAL *from = (const REAL *)(const void *)t->sum_q + (head * t->T + i) * t->K;
        memcpy(sum, from, (size_t)t->K * sizeof(REAL));
        for (int64_t p = 1; p < t->parts; p++)
            for (int64_t c = 0; c < t->K; c++)
                sum[c] += from[p * step + c];
        STORE(dq->dtype, place(dq, head / t->H, i, head % t->H), dq->stride[3], sum, t->K);
    }
}

/* −Σ e^(sink − lse)·Σ y·dy over a head's rows: the sink's share of each row takes no value. */
static void N(sink_gradient)(void *argument, int64_t h, int thread) {
    const flash_task *t = argument;
    const tl_array *g = &t->call->in[5], *lse = &t->call->in[4], *out = &t->call->out[3];
    N(room) r;
    N(room_make)(&r, t, thread);
    const REAL sink = N(of_head)(t->sinks, h);
    double total = 0;
    for (int64_t b = 0; b < t->B; b++)
        for (int64_t i = 0; i < t->T; i++) {
            REAL share;
            LOAD(&share, lse->dtype, place(lse, b, h, i), 1, 1);
            if (share == -(REAL)__builtin_inf())
                continue;
            share = sink - share;
            EXP_ROW(&share, NULL, NULL, 1);
            LOAD(r.g, g->dtype, place(g, b, i, h), g->stride[3], t->L);
            total -= (double)share * (double)N(dot)(t, r.line, r.g, b, h, i);
        }
    REAL value = (REAL)total;
    STORE(out->dtype, out->data + h * out->stride[0] * tl_bytes_of(out->dtype), 1, &value, 1);
}

#undef LANES
