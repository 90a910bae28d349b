/* kernel/body/mask.h: masked softmax, log softmax and SwiGLU for one compute type. Included once per type, with
 *   REAL      float or double            N(name)   name_float, name_double
 *   LOAD, STORE  the conversions of that type     LANES_ADD, LANES_SUM, EXP, LOG, SIGMOID
 * No guard: it is meant to be included more than once. Rows are read in pieces of TL_CHUNK, as often as there are passes,
 * so that no row is too long and 16-bit rows round once. */

/* scale·x + mask over columns [at, at + n) in `to`; −inf where hidden. */
static void N(masked_piece)(const masked_row *r, int64_t at, int64_t n, REAL *to) {
    REAL added[TL_CHUNK];
    LOAD(to, r->x_dtype, r->x + at * r->x_stride * tl_bytes_of(r->x_dtype), r->x_stride, n);
    for (int64_t i = 0; i < n; i++)
        to[i] *= (REAL)r->scale;
    if (r->mask) {
        LOAD(added, r->mask_dtype, r->mask + at * r->mask_stride * tl_bytes_of(r->mask_dtype), r->mask_stride, n);
        if (r->mask_dtype == TL_BOOL)
            for (int64_t i = 0; i < n; i++)
                to[i] = added[i] != 0 ? to[i] : -(REAL)__builtin_inf();
        else /* what is hidden may hold anything, NaN too */
            for (int64_t i = 0; i < n; i++)
                to[i] = added[i] == -(REAL)__builtin_inf() ? added[i] : to[i] + added[i];
    }
    for (int64_t i = 0; i < n && at + i < r->low; i++)
        to[i] = -(REAL)__builtin_inf();
    for (int64_t i = tl_max_i64(0, r->high - at); i < n; i++)
        to[i] = -(REAL)__builtin_inf();
}

static REAL N(largest)(REAL best, const REAL *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        best = x[i] > best || x[i] != x[i] ? x[i] : best;
    return best;
}

static void N(masked_softmax_row)(const masked_row *r, char *y, tl_dtype dtype, int64_t stride) {
    REAL buffer[TL_CHUNK], best = r->has_sink ? (REAL)r->sink : -(REAL)__builtin_inf(), lane[16] = {0};
    int64_t bytes = tl_bytes_of(dtype), n;
    for (int64_t at = 0; at < r->columns; at += n) {
        n = tl_min_i64(TL_CHUNK, r->columns - at);
        N(masked_piece)(r, at, n, buffer);
        best = N(largest)(best, buffer, n);
    }
    bool nothing = best == -(REAL)__builtin_inf();
    for (int64_t at = 0; at < r->columns && !nothing; at += n) {
        n = tl_min_i64(TL_CHUNK, r->columns - at);
        N(masked_piece)(r, at, n, buffer);
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            buffer[i] = EXP(buffer[i] - best);
        LANES_ADD(lane, buffer, n);
    }
    REAL factor = nothing ? 0 : 1 / (LANES_SUM(lane) + (r->has_sink ? EXP((REAL)r->sink - best) : 0));
    for (int64_t at = 0; at < r->columns; at += n) {
        n = tl_min_i64(TL_CHUNK, r->columns - at);
        if (nothing)
            memset(buffer, 0, sizeof buffer);
        else {
            N(masked_piece)(r, at, n, buffer);
            TL_INDEPENDENT
            for (int64_t i = 0; i < n; i++)
                buffer[i] = EXP(buffer[i] - best) * factor;
        }
        STORE(dtype, y + at * stride * bytes, stride, buffer, n);
    }
}

static void N(scores_row)(const masked_row *r, char *y, tl_dtype dtype, int64_t stride) {
    REAL buffer[TL_CHUNK];
    for (int64_t at = 0; at < r->columns; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, r->columns - at);
        N(masked_piece)(r, at, n, buffer);
        STORE(dtype, y + at * stride * tl_bytes_of(dtype), stride, buffer, n);
    }
}

static void N(log_softmax_row)(const masked_row *r, char *y, tl_dtype dtype, int64_t stride) {
    REAL buffer[TL_CHUNK], best = -(REAL)__builtin_inf(), lane[16] = {0};
    int64_t bytes = tl_bytes_of(dtype), n;
    for (int64_t at = 0; at < r->columns; at += n) {
        n = tl_min_i64(TL_CHUNK, r->columns - at);
        N(masked_piece)(r, at, n, buffer);
        best = N(largest)(best, buffer, n);
    }
    for (int64_t at = 0; at < r->columns; at += n) {
        n = tl_min_i64(TL_CHUNK, r->columns - at);
        N(masked_piece)(r, at, n, buffer);
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            buffer[i] = EXP(buffer[i] - best);
        LANES_ADD(lane, buffer, n);
    }
    REAL log_sum = LOG(LANES_SUM(lane));
    for (int64_t at = 0; at < r->columns; at += n) {
        n = tl_min_i64(TL_CHUNK, r->columns - at);
        N(masked_piece)(r, at, n, buffer);
        for (int64_t i = 0; i < n; i++)
            buffer[i] = (buffer[i] - best) - log_sum;
        STORE(dtype, y + at * stride * bytes, stride, buffer, n);
    }
}

/* r->x is the output y, `g` its gradient: g − e^y·Σg */
static void N(log_softmax_backward_row)(const masked_row *r, const char *g, int64_t g_stride, char *to,
                                        int64_t stride) {
    REAL y[TL_CHUNK], gradient[TL_CHUNK], lane[16] = {0};
    tl_dtype dtype = r->x_dtype;
    int64_t bytes = tl_bytes_of(dtype), n;
    for (int64_t at = 0; at < r->columns; at += n) {
        n = tl_min_i64(TL_CHUNK, r->columns - at);
        LOAD(gradient, dtype, g + at * g_stride * bytes, g_stride, n);
        LANES_ADD(lane, gradient, n);
    }
    REAL sum = LANES_SUM(lane);
    for (int64_t at = 0; at < r->columns; at += n) {
        n = tl_min_i64(TL_CHUNK, r->columns - at);
        LOAD(gradient, dtype, g + at * g_stride * bytes, g_stride, n);
        LOAD(y, dtype, r->x + at * r->x_stride * bytes, r->x_stride, n);
        TL_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            gradient[i] -= EXP(y[i]) * sum;
        STORE(dtype, to + at * stride * bytes, stride, gradient, n);
    }
}

static void N(multiply_add)(const void *constants, int64_t n, void *const pointer[]) {
    const multiply_add_task *t = constants;
    const REAL keep = (REAL)t->attr->keep, value = (REAL)t->attr->value;
    REAL *to = pointer[0];
    const REAL *into = pointer[1], *x = pointer[2], *y = t->two ? pointer[3] : NULL;
    if (!y)
        for (int64_t i = 0; i < n; i++)
            to[i] = keep * into[i] + value * x[i];
    else if (t->attr->divides)
        for (int64_t i = 0; i < n; i++)
            to[i] = keep * into[i] + value * (x[i] / y[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = keep * into[i] + value * (x[i] * y[i]);
}

static void N(swiglu)(const void *constants, int64_t n, void *const pointer[]) {
    const REAL alpha = (REAL)((const tl_swiglu_attr *)constants)->alpha;
    REAL *y = pointer[0];
    const REAL *a = pointer[1], *b = pointer[2];
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * SIGMOID(alpha * a[i]) * b[i];
}

/* d/da a·σ(αa) = σ + αa·σ(1 − σ) */
static void N(swiglu_backward)(const void *constants, int64_t n, void *const pointer[]) {
    const REAL alpha = (REAL)((const tl_swiglu_attr *)constants)->alpha;
    REAL *da = pointer[0], *db = pointer[1];
    const REAL *a = pointer[2], *b = pointer[3], *g = pointer[4];
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        REAL s = SIGMOID(alpha * a[i]), rest = SIGMOID(-alpha * a[i]);
        da[i] = g[i] * b[i] * (s + alpha * a[i] * s * rest);
        db[i] = g[i] * a[i] * s;
    }
}
