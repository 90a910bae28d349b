/* kernel/body/rows.h: kernels that work along the last axis, for one compute type. Included once per type, with
 *   REAL      float or double            N(name)   name_float, name_double
 *   OWN       TL_F32 or TL_F64           LOAD, STORE  the conversions of that type
 *   LANES_ADD, LANES_SUM, LANES_MAX, LANES_SQUARES, EXP, EXP_ALL, LOG, SQRT
 * No guard: it is meant to be included more than once. */

/* Part of a row as contiguous numbers: the memory itself, or loaded into `buffer`. */
static inline const REAL *N(piece)(const tl_line *line, int64_t from, int64_t n, REAL *buffer) {
    const char *memory = line->data + from * line->stride * tl_bytes_of(line->dtype);
    if (line->dtype == OWN && line->stride == 1)
        return (const REAL *)memory;
    LOAD(buffer, line->dtype, memory, line->stride, n);
    return buffer;
}

static inline REAL *N(target)(const tl_line *line, int64_t from, REAL *buffer) {
    return line->dtype == OWN && line->stride == 1 && !line->past ? (REAL *)line->data + from : buffer;
}

static inline void N(put)(const tl_line *line, int64_t from, int64_t n, const REAL *values) {
    if (line->past)
        TL_K(stream)(line->data + from * (int64_t)sizeof *values, (const char *)values, n * (int64_t)sizeof *values);
    else if (line->dtype != OWN || line->stride != 1)
        STORE(line->dtype, line->data + from * line->stride * tl_bytes_of(line->dtype), line->stride, values, n);
}

static inline REAL N(get)(const tl_line *line, int64_t at) {
    REAL value;
    LOAD(&value, line->dtype, line->data + at * line->stride * tl_bytes_of(line->dtype), 1, 1);
    return value;
}

static inline void N(set)(const tl_line *line, int64_t at, REAL value) {
    STORE(line->dtype, line->data + at * line->stride * tl_bytes_of(line->dtype), 1, &value, 1);
}

/* scale·x of a piece in `buffer`, padded with −inf to a multiple of 16; returns the padded length. */
static int64_t N(scaled)(const tl_line *x, int64_t from, int64_t n, REAL scale, REAL *buffer) {
    const REAL *values = N(piece)(x, from, n, buffer);
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        buffer[i] = values[i] * scale;
    int64_t padded = (n + 15) & ~(int64_t)15;
    for (int64_t i = n; i < padded; i++)
        buffer[i] = -(REAL)__builtin_inf();
    return padded;
}

/* buffer = e^(buffer − best) over n elements, a multiple of 16; added to the lanes */
static inline void N(exp_shifted)(REAL *buffer, int64_t n, REAL best, REAL lane[16], const char *next) {
    EXP_ALL(buffer, n, best, next);
    LANES_ADD(lane, buffer, n);
}

/* Largest element and Σ e^(scale·x − largest) over the first n of a row; with n ≤ ROW_CHUNK the terms stay in `buffer`. */
static REAL N(exp_sum)(const tl_line *x, int64_t n, REAL scale, REAL *buffer, REAL *largest) {
    REAL lane[16], best = -(REAL)__builtin_inf(), direct;
    if (x->dtype == OWN && x->stride == 1 &&
        N(exp_sum_direct)((const REAL *)x->data, n, scale, n <= ROW_CHUNK ? buffer : NULL,
                          x->data + n * (int64_t)sizeof *buffer, largest, &direct))
        return direct;
    for (int l = 0; l < 16; l++)
        lane[l] = best;
    int64_t padded = 0;
    for (int64_t at = 0; at < n; at += ROW_CHUNK) {
        padded = N(scaled)(x, at, tl_min_i64(ROW_CHUNK, n - at), scale, buffer);
        LANES_MAX(lane, buffer, padded);
    }
    for (int l = 0; l < 16; l++)
        best = lane[l] > best ? lane[l] : best;
    *largest = best;
    for (int l = 0; l < 16; l++)
        lane[l] = 0;
    /* all −inf, or NaN among −inf: nothing to shift by */
    REAL shift = best == -(REAL)__builtin_inf() ? 0 : best;
    for (int64_t at = 0; at < n; at += ROW_CHUNK) {
        if (n > ROW_CHUNK)
            padded = N(scaled)(x, at, tl_min_i64(ROW_CHUNK, n - at), scale, buffer);
        N(exp_shifted)(buffer, padded, shift, lane, x->data + (n + at) * (int64_t)sizeof *buffer);
    }
    return LANES_SUM(lane);
}

static void N(softmax_row)(const tl_line *x, const tl_line *y, int64_t columns, int64_t seen, REAL scale) {
    REAL buffer[ROW_CHUNK], best, sum = N(exp_sum)(x, seen, scale, buffer, &best);
    REAL shift = best == -(REAL)__builtin_inf() ? 0 : best;
    REAL factor = sum == 0 ? 0 : 1 / sum;
    for (int64_t at = 0; at < columns; at += ROW_CHUNK) {
        int64_t n = tl_min_i64(ROW_CHUNK, columns - at), live = tl_max_i64(0, tl_min_i64(n, seen - at));
        if (seen > ROW_CHUNK && live > 0)
            EXP_ALL(buffer, N(scaled)(x, at, live, scale, buffer), shift, x->data);
        if (y->past && live == n && N(scale_past)(y->data + at * (int64_t)sizeof *buffer, buffer, n, factor))
            continue;
        REAL *to = N(target)(y, at, buffer);
        TL_INDEPENDENT
        for (int64_t i = 0; i < live; i++)
            to[i] = buffer[i] * factor;
        for (int64_t i = live; i < n; i++)
            to[i] = 0;
        N(put)(y, at, n, to);
    }
}

static void N(softmax_backward_row)(const tl_line *y, const tl_line *g, const tl_line *out, int64_t columns,
                                    REAL scale) {
    REAL a[TL_CHUNK], b[TL_CHUNK], product[TL_CHUNK], lane[16] = {0};
    for (int64_t at = 0; at < columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, columns - at);
        const REAL *yp = N(piece)(y, at, n, a), *gp = N(piece)(g, at, n, b);
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            product[i] = yp[i] * gp[i];
        LANES_ADD(lane, product, n);
    }
    REAL sum = LANES_SUM(lane);
    for (int64_t at = 0; at < columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, columns - at);
        const REAL *yp = N(piece)(y, at, n, a), *gp = N(piece)(g, at, n, b);
        REAL *to = N(target)(out, at, product);
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            to[i] = scale * yp[i] * (gp[i] - sum);
        N(put)(out, at, n, to);
    }
}

/* ---- layer norm (Ba, Kiros, Hinton 2016) and, with centred = false, RMS norm (Zhang, Sennrich 2019) ---- */

/* Gains at … at + n with their offset, in `buffer` where they do not lie as they are wanted. */
static const REAL *N(gain_piece)(const tl_norm_task *t, int64_t at, int64_t n, REAL *buffer) {
    const REAL *gain = N(piece)(&t->gain, at, n, buffer);
    if (t->gain_offset == 0)
        return gain;
    for (int64_t i = 0; i < n; i++)
        buffer[i] = gain[i] + (REAL)t->gain_offset;
    return buffer;
}

static void N(norm_row)(const tl_norm_task *t, const tl_line *x, const tl_line *y, const tl_line *mean_out,
                        const tl_line *rstd_out) {
    REAL a[TL_CHUNK], b[TL_CHUNK], c[TL_CHUNK], d[TL_CHUNK], lane[16] = {0}, mean = 0, count = (REAL)t->columns;
    if (t->centred) {
        for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {
            int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);
            LANES_ADD(lane, N(piece)(x, at, n, a), n);
        }
        mean = LANES_SUM(lane) / count;
        memset(lane, 0, sizeof lane);
    }
    for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);
        LANES_SQUARES(lane, N(piece)(x, at, n, a), n, mean);
    }
    REAL rstd = 1 / SQRT(LANES_SUM(lane) / count + (REAL)t->epsilon);
    for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);
        const REAL *xp = N(piece)(x, at, n, a), *gain = N(gain_piece)(t, at, n, b);
        const REAL *bias = t->bias.data ? N(piece)(&t->bias, at, n, c) : NULL;
        if (y->past && N(norm_past)(y->data + at * (int64_t)sizeof *d, xp, gain, bias, n, mean, rstd))
            continue;
        REAL *to = N(target)(y, at, d);
        if (bias) {
            TL_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                to[i] = (xp[i] - mean) * rstd * gain[i] + bias[i];
        } else {
            TL_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                to[i] = (xp[i] - mean) * rstd * gain[i];
        }
        N(put)(y, at, n, to);
    }
    if (mean_out->data)
        N(set)(mean_out, 0, mean);
    if (rstd_out->data)
        N(set)(rstd_out, 0, rstd);
}

/* One row: with x̂ = (x − mean)·rstd and h = g·gain, dx = rstd·(h − Σh/D − x̂·Σ(h·x̂)/D) (the Σh term only when centred);
 * dgain += g·x̂ and dbias += g go to the partial sums of the row's block. */
static void N(norm_backward_row)(const tl_norm_task *t, const tl_line line[], REAL *dgain, REAL *dbias) {
    const tl_line *x = &line[0], *g = &line[1], *dx = &line[2];
    REAL mean = t->centred ? N(get)(&line[3], 0) : 0, rstd = N(get)(&line[4], 0), count = (REAL)t->columns;
    REAL a[TL_CHUNK], b[TL_CHUNK], c[TL_CHUNK], h[TL_CHUNK], hx[TL_CHUNK], lane[16] = {0}, lane_x[16] = {0};
    for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);
        const REAL *xp = N(piece)(x, at, n, a), *gp = N(piece)(g, at, n, b), *gain = N(gain_piece)(t, at, n, c);
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            REAL normal = (xp[i] - mean) * rstd;
            h[i] = gp[i] * gain[i];
            hx[i] = h[i] * normal;
        }
        LANES_ADD(lane, h, n);
        LANES_ADD(lane_x, hx, n);
        REAL *to = dgain ? dgain + at : NULL;
        TL_INDEPENDENT
        for (int64_t i = 0; to && i < n; i++)
            to[i] += gp[i] * ((xp[i] - mean) * rstd);
        REAL *to_bias = dbias ? dbias + at : NULL;
        TL_INDEPENDENT
        for (int64_t i = 0; to_bias && i < n; i++)
            to_bias[i] += gp[i];
    }
    if (!dx->data)
        return;
    REAL first = t->centred ? LANES_SUM(lane) / count : 0, second = LANES_SUM(lane_x) / count;
    for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);
        const REAL *xp = N(piece)(x, at, n, a), *gp = N(piece)(g, at, n, b), *gain = N(gain_piece)(t, at, n, c);
        REAL *to = N(target)(dx, at, h);
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++) {
            REAL normal = (xp[i] - mean) * rstd;
            to[i] = rstd * (gp[i] * gain[i] - first - normal * second);
        }
        N(put)(dx, at, n, to);
    }
}

/* The blocks' partial sums, added in order. */
static void N(norm_collect)(const tl_array *out, const REAL *partial, int64_t blocks, int64_t columns) {
    tl_line line = {out->dtype, out->data, out->stride[0], false};
    for (int64_t at = 0; at < columns; at += TL_CHUNK) {
        REAL sum[TL_CHUNK] = {0};
        int64_t n = tl_min_i64(TL_CHUNK, columns - at);
        for (int64_t b = 0; b < blocks; b++) {
            const REAL *part = partial + b * columns + at;
            TL_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                sum[i] += part[i];
        }
        STORE(line.dtype, line.data + at * line.stride * tl_bytes_of(line.dtype), line.stride, sum, n);
    }
}

/* ---- cross-entropy ---- */

static void N(log_sum_exp_row)(const tl_line *x, int64_t columns, const tl_line *lse) {
    REAL buffer[ROW_CHUNK], best, sum = N(exp_sum)(x, columns, 1, buffer, &best);
    bool finite = best > -(REAL)__builtin_inf();
    N(set)(lse, 0, finite ? best + LOG(sum) : sum == sum ? best : sum);
}

static void N(cross_entropy_backward_row)(const tl_line *x, const tl_line *dx, int64_t columns, int64_t target,
                                          REAL lse, REAL factor) {
    REAL a[TL_CHUNK], b[TL_CHUNK];
    for (int64_t at = 0; at < columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, columns - at);
        REAL *to = N(target)(dx, at, b);
        if (target < 0) {
            memset(to, 0, (size_t)n * sizeof *to);
        } else {
            const REAL *xp = N(piece)(x, at, n, a);
            bool here = target >= at && target < at + n;
            REAL own = here ? (EXP(xp[target - at] - lse) - 1) * factor : 0;
            TL_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                to[i] = EXP(xp[i] - lse) * factor;
            if (here)
                to[target - at] = own;
        }
        N(put)(dx, at, n, to);
    }
}
