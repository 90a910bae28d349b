/* Attention by blocks (Dao et al. 2022, FlashAttention; Dao 2023, FlashAttention-2). Nothing of size T×S is kept: backward computes
 * the scores again from q, k and each row's log-sum-exp. */
#include "op/rows.h"

#include "base/stream.h"
#include "tally/ops_attention.h"

#include <stdio.h>
#include <string.h>

static const tl_flash_attr *attr_of(const tl_sig *sig) { return TL_ATTR(tl_flash_attr, sig); }

/* ---- shapes ---- */

static tl_status check_shapes(tl_sig *sig) {
    char a[200], b[200], c[200];
    const tl_tensor *q = sig->in[0], *k = sig->in[1], *v = sig->in[2];
    const char *why = NULL;
    if (q->shape.ndim != 4 || k->shape.ndim != 4 || v->shape.ndim != 4)
        why = "q[B,H,T,K], k[B,G,S,K] and v[B,G,S,L] have 4 axes";
    else if (!tl_dim_match(sig->ctx, q->shape.dim[0], k->shape.dim[0]) ||
             !tl_dim_match(sig->ctx, k->shape.dim[0], v->shape.dim[0]))
        why = "their batches must be equal";
    else if (k->shape.dim[1].size < 1 || q->shape.dim[1].size % k->shape.dim[1].size ||
             !tl_dim_match(sig->ctx, k->shape.dim[1], v->shape.dim[1]))
        why = "k and v must have as many heads, and q a multiple of that";
    else if (!tl_dim_match(sig->ctx, q->shape.dim[3], k->shape.dim[3]))
        why = "the heads of q and k must be of one size";
    else if (!tl_dim_match(sig->ctx, k->shape.dim[2], v->shape.dim[2]))
        why = "k and v must have as many rows";
    else if (q->shape.dim[3].size > TL_FLASH_MOST || v->shape.dim[3].size > TL_FLASH_MOST)
        why = "heads of at most 1024 would work: a block of larger ones does not fit a worker's scratch";
    else if (k->dtype != q->dtype || v->dtype != q->dtype)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "q is %s, k %s and v %s; one format for all would work",
                           tl_dtype_name(q->dtype), tl_dtype_name(k->dtype), tl_dtype_name(v->dtype));
    if (!why)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_SHAPE, "q %s, k %s, v %s: %s", tl_tensor_text(q, a, sizeof a),
                       tl_tensor_text(k, b, sizeof b), tl_tensor_text(v, c, sizeof c), why);
}

/* sinks, slopes and positions, from input `at` on */
static tl_status check_vectors(tl_sig *sig, int at) {
    const tl_flash_attr *o = attr_of(sig);
    tl_dim heads = tl_in_dim(sig, 0, 1);
    tl_status status;
    if (o->has_sinks) {
        if ((status = tl_sig_want_float(sig, at)) || (status = tl_sig_want_vector(sig, at, heads, "the sinks")))
            return status;
        at++;
    }
    if (o->has_slopes && sig->in[at]->dtype != TL_F32)
        return tl_sig_fail(sig, TL_ERR_DTYPE, "the slopes are %s; f32 would work", tl_dtype_name(sig->in[at]->dtype));
    if (o->has_slopes && sig->needs_grad[at])
        return tl_sig_fail(sig, TL_ERR_UNSUPPORTED, "the slopes want a gradient, and there is none of them");
    if (o->has_slopes && (status = tl_sig_want_vector(sig, at++, heads, "the tensor of slopes")))
        return status;
    if (!o->has_positions)
        return TL_OK;
    tl_shape rows = TL_SHAPE(sig->ctx, tl_in_dim(sig, 0, 0), tl_in_dim(sig, 0, 2));
    status = tl_sig_want_index(sig, at, "the positions");
    return status == TL_OK ? tl_sig_want_shape(sig, at, &rows, "the positions") : status;
}

static tl_status check_options(tl_sig *sig) {
    const tl_flash_attr *o = attr_of(sig);
    const tl_shape *q = &sig->in[0]->shape;
    int64_t limit = INT64_MAX / 4;
    if (o->offset < 0 || o->offset > limit || q->dim[2].size > limit)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the offset is %lld; 0 or more, below 2^61, would work",
                           (long long)o->offset);
    if (o->chunk < 0)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "a chunk of %lld columns; 1 or more, or 0 for none, would work",
                           (long long)o->chunk);
    if (!(o->softcap >= 0) || !(o->softcap < 1e30))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the softcap is %g; a positive number, or 0 for none, would work",
                           o->softcap);
    if (!(o->dropout.a >= 0) || !(o->dropout.a < 1))
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the probability of dropout is %g; 0 or more and below 1 would work",
                           o->dropout.a);
    int64_t need = tl_flash_scratch(tl_flash_block(q->dim[3].size, tl_in_dim(sig, 2, 3).size, true), q->dim[3].size,
                                    tl_in_dim(sig, 2, 3).size, true);
    if (sig->ctx->scratch_bytes > 0 && sig->ctx->scratch_bytes < need) /* 0: another device's plan */
        return tl_sig_fail(sig, TL_ERR_ARGUMENT,
                           "the context has %lld bytes of scratch a thread; %lld (the default is 2 MiB) would work",
                           (long long)sig->ctx->scratch_bytes, (long long)need);
    return TL_OK;
}

static tl_shape shape_of(tl_ctx *ctx, const tl_shape *x) { /* [B,H,T,K] → [B,T,H,K], as it lies in memory */
    return TL_SHAPE(ctx, x->dim[0], x->dim[2], x->dim[1], x->dim[3]);
}

static tl_status flash_infer(tl_sig *sig) {
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = check_shapes(sig)) || (status = check_vectors(sig, 3)) ||
        (status = check_options(sig)))
        return status;
    const tl_shape *q = &sig->in[0]->shape;
    tl_dtype dtype = sig->in[0]->dtype;
    tl_shape rows = tl_shape_leading(q), y = shape_of(sig->ctx, q);
    y.dim[3] = tl_in_dim(sig, 2, 3);
    tl_sig_add(sig, dtype, &y);
    if (sig->recording)
        tl_sig_add(sig, tl_statistic_dtype(dtype), &rows)->hidden = true; /* log-sum-exp */
    return TL_OK;
}

/* ---- cost ---- */

typedef struct pairs {
    tl_dim rest[2];               /* B, H */
    tl_dim full[2], seen[2], met; /* T·S; twice the visible pairs; pairs of the blocks that are computed */
    bool hides;
} pairs;

static const char *text_of(tl_ctx *ctx, tl_dim d, char *text, size_t size) {
    const char *formula = ctx->space && d.formula ? tl_poly_text(ctx->space, d.formula, TL_FORMULA_SYMBOLS) : NULL;
    if (formula)
        snprintf(text, size, "%s", formula);
    else
        snprintf(text, size, "%lld", (long long)d.size);
    return text;
}

static bool is_number(tl_dim d) {
    int64_t numerator, denominator;
    return !d.formula || tl_poly_is_constant(d.formula, &numerator, &denominator);
}

/* A count that no polynomial gives: a symbol that says what it counts. */
static tl_dim counted(const tl_sig *sig, int64_t count, const char *what) {
    const tl_flash_attr *o = attr_of(sig);
    if (!sig->ctx->space || (is_number(tl_in_dim(sig, 0, 2)) && is_number(tl_in_dim(sig, 1, 2))))
        return tl_dim_of(count);
    char t[48], s[48], text[200];
    int at = snprintf(text, sizeof text, "%s of %s rows and %s keys", what,
                      text_of(sig->ctx, tl_in_dim(sig, 0, 2), t, sizeof t),
                      text_of(sig->ctx, tl_in_dim(sig, 1, 2), s, sizeof s));
    if (o->causal)
        at += snprintf(text + at, sizeof text - (size_t)at, ", causal");
    if (o->window_before >= 0)
        at += snprintf(text + at, sizeof text - (size_t)at, ", window %lld", (long long)o->window_before);
    if (o->chunk > 0)
        at += snprintf(text + at, sizeof text - (size_t)at, ", chunks of %lld", (long long)o->chunk);
    if (o->offset > 0)
        snprintf(text + at, sizeof text - (size_t)at, ", from row %lld", (long long)o->offset);
    return tl_dim_counted(sig->ctx, count, text);
}

/* The first row position beyond `at` from which the columns seen may change otherwise than by the same step a row: where the keys
 * end (`early` before that too), where a window or chunk begins to cut. Between two such both ends move evenly, so that a sum over
 * ten million rows is a few products. */
static int64_t next_change(const tl_flash_attr *o, int64_t at, int64_t columns, int64_t early) {
    int64_t begin = o->chunk > 0 ? at / o->chunk * o->chunk : 0, next = INT64_MAX;
    bool cut = o->window_before >= 0 && o->window_before < INT64_MAX / 4;
    const int64_t changes[] = {columns - 1 - early,
                               columns - 1,
                               columns,
                               cut ? o->window_before : -1,
                               cut ? o->window_before + 1 : -1,
                               cut ? columns + o->window_before : -1,
                               o->chunk > 0 && o->chunk < INT64_MAX - begin ? begin + o->chunk : -1,
                               cut && o->chunk > 0 ? begin + o->window_before : -1,
                               cut && o->chunk > 0 ? begin + o->window_before + 1 : -1};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        if (changes[i] > at && changes[i] < next)
            next = changes[i];
    return next;
}

static int64_t seen_by(const tl_flash_attr *o, int64_t row, int64_t columns) {
    int64_t low, high;
    tl_flash_sees(o, row, columns, &low, &high);
    return high - low;
}

static int64_t visible_pairs(const tl_flash_attr *o, int64_t rows, int64_t columns) {
    int64_t sum = 0;
    for (int64_t i = 0, n; i < rows; i += n) {
        int64_t next = next_change(o, i + o->offset, columns, 0) - o->offset;
        n = (next < rows ? next : rows) - i;
        sum += n * (seen_by(o, i, columns) + seen_by(o, i + n - 1, columns)) / 2;
    }
    return sum;
}

/* Of the block of rows from `i` on. */
static int64_t pairs_of_block(const tl_flash_attr *o, int64_t i, int64_t rows, int64_t columns, int64_t block) {
    int64_t low, high, other, n = rows - i < block ? rows - i : block;
    tl_flash_sees(o, i, columns, &low, &other);
    tl_flash_sees(o, i + n - 1, columns, &other, &high);
    if (low >= high)
        return 0;
    low = low / block * block;
    high = high % block ? (high / block + 1) * block : high;
    return n * ((high < columns ? high : columns) - low);
}

static int64_t computed_pairs(const tl_flash_attr *o, int64_t rows, int64_t columns, int64_t block) {
    int64_t sum = 0;
    for (int64_t i = 0, blocks; i < rows; i += blocks * block) {
        int64_t next = next_change(o, i + o->offset, columns, 2 * block) - o->offset;
        blocks =
            ((next < rows ? next : rows) - i) / block; /* whole ones before it: each a block further than the last */
        if (blocks < 2) {
            sum += pairs_of_block(o, i, rows, columns, block);
            blocks = 1;
        } else
            sum += blocks *
                   (pairs_of_block(o, i, rows, columns, block) +
                    pairs_of_block(o, i + (blocks - 1) * block, rows, columns, block)) /
                   2;
    }
    return sum;
}

/* T(2S − T + 1) is twice what a causal square, or the last T rows of one, leaves. */
static tl_dim causal_reach(tl_ctx *ctx, tl_dim rows, tl_dim columns) {
    tl_dim twice = tl_dim_mul(ctx, tl_dim_of(2), columns);
    tl_dim reach = {.size = twice.size - rows.size + 1};
    if (ctx->space)
        reach.formula = tl_poly_add(ctx->space, tl_poly_sub(ctx->space, twice.formula, tl_dim_fixed(ctx, rows).formula),
                                    tl_poly_constant(ctx->space, 1));
    return reach;
}

static void count_pairs(const tl_sig *sig, pairs *p) {
    const tl_flash_attr *o = attr_of(sig);
    tl_dim rows = tl_in_dim(sig, 0, 2), columns = tl_in_dim(sig, 1, 2);
    bool wide = sig->in[0]->dtype == TL_F64, cut = o->window_before >= 0 || o->chunk > 0;
    memset(p, 0, sizeof *p);
    p->rest[0] = tl_in_dim(sig, 0, 0);
    p->rest[1] = tl_in_dim(sig, 0, 1);
    p->full[0] = rows;
    p->full[1] = columns;
    p->hides = o->causal || cut;
    if (!p->hides)
        return;
    int64_t block = tl_flash_block(tl_in_dim(sig, 0, 3).size, tl_in_dim(sig, 2, 3).size, wide);
    p->met = counted(sig, computed_pairs(o, rows.size, columns.size, block),
                     block == 64 ? "pairs in blocks of 64 that are not all hidden"
                                 : "pairs in blocks that are not all hidden");
    if (!cut && columns.size - o->offset == rows.size) {
        p->seen[0] = rows;
        p->seen[1] = causal_reach(sig->ctx, rows, columns);
    } else {
        p->seen[0] = tl_dim_of(2);
        p->seen[1] = counted(sig, visible_pairs(o, rows.size, columns.size), "visible pairs");
    }
}

typedef enum which { FULL, SEEN, MET } which;

/* factor × (pairs) × `size` of all heads */
static tl_amount pair_amount(const tl_sig *sig, const pairs *p, which w, int64_t factor, tl_dim size) {
    tl_dim dims[5] = {p->rest[0], p->rest[1], size};
    int n = 3;
    w = p->hides ? w : FULL;
    if (w == MET)
        dims[n++] = p->met;
    else {
        dims[n++] = w == FULL ? p->full[0] : p->seen[0];
        dims[n++] = w == FULL ? p->full[1] : p->seen[1];
    }
    return tl_amount_of(sig->ctx, w == SEEN ? factor / 2 : factor, dims, n);
}

/* Products of `of_k` × K + `of_l` × L multiply-adds a pair. */
static void product_cost(const tl_sig *sig, const pairs *p, int64_t of_k, int64_t of_l, tl_cost *cost) {
    tl_ctx *ctx = sig->ctx;
    tl_dim k = tl_in_dim(sig, 0, 3), l = tl_in_dim(sig, 2, 3);
    tl_dim size = tl_dim_add(ctx, tl_dim_mul(ctx, tl_dim_of(of_k), k), tl_dim_mul(ctx, tl_dim_of(of_l), l));
    cost->matmul = pair_amount(sig, p, FULL, 2, size);
    if (p->hides) {
        cost->matmul_causal = pair_amount(sig, p, SEEN, 2, size);
        cost->executed = pair_amount(sig, p, MET, 2, size);
        cost->causal_set = cost->executed_set = true;
    }
    cost->m = tl_in_dim(sig, 0, 2).size;
    cost->n = tl_in_dim(sig, 1, 2).size;
    cost->k = k.size;
    cost->batch = tl_in_dim(sig, 0, 0).size * tl_in_dim(sig, 0, 1).size; /* fits: q's elements were counted */
}

static void more(const tl_sig *sig, tl_amount *to, tl_amount amount) { *to = tl_amount_add(sig->ctx, *to, amount); }

static void flash_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_flash_attr *o = attr_of(sig);
    const tl_shape *y = &sig->out[0].shape;
    const tl_dim one = tl_dim_of(1);
    pairs p;
    count_pairs(sig, &p);
    product_cost(sig, &p, 1, 1, cost);
    /* A pair that is computed: scale, − largest, Σ and e^; c·tanh(x/c) 2 and tanh; slope·distance and + 2; ·1/(1 − p) 1. A row:
     * log and + largest; a sink: − largest, e^, +; ÷ Σ for each element of y. That a block scales what came before is the way
     * the sum is taken, not part of the formula. */
    int64_t each = 3 + (o->softcap != 0 ? 2 : 0) + (o->has_slopes ? 2 : 0) + (o->dropout.a > 0 ? 1 : 0);
    cost->arithmetic = pair_amount(sig, &p, MET, each, one);
    cost->special = pair_amount(sig, &p, MET, o->softcap != 0 ? 2 : 1, one);
    more(sig, &cost->arithmetic, tl_amount_shape(sig->ctx, 1, y));
    more(sig, &cost->arithmetic, tl_amount_of(sig->ctx, o->has_sinks ? 3 : 1, y->dim, 3));
    more(sig, &cost->special, tl_amount_of(sig->ctx, o->has_sinks ? 2 : 1, y->dim, 3));
}

static void flash_saves(const tl_sig *sig, tl_saves *saves) {
    saves->in = (1u << sig->n_in) - 1;
    saves->out = 3;
}

static tl_status flash_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->flash_attention);
}

/* ---- backward: in: q, k, v, y, log-sum-exp, gradient of y, [sinks], [slopes], [positions] ---- */

static tl_status backward_infer(tl_sig *sig) {
    const tl_flash_attr *o = attr_of(sig);
    tl_status status;
    if ((status = tl_sig_want_float(sig, 0)) || (status = check_shapes(sig)) || (status = check_vectors(sig, 6)) ||
        (status = check_options(sig)))
        return status;
    tl_ctx *ctx = sig->ctx;
    const tl_shape *q = &sig->in[0]->shape;
    tl_shape rows = tl_shape_leading(q), dq = shape_of(ctx, q), dk = shape_of(ctx, &sig->in[1]->shape);
    tl_shape dv = shape_of(ctx, &sig->in[2]->shape), y = dq;
    y.dim[3] = tl_in_dim(sig, 2, 3);
    if ((status = tl_sig_want_shape(sig, 3, &y, "the output")) ||
        (status = tl_sig_want_shape(sig, 4, &rows, "the log-sum-exp")) ||
        (status = tl_sig_want_shape(sig, 5, &y, "the gradient")) || (status = tl_sig_want_float(sig, 3)) ||
        (status = tl_sig_want_float(sig, 4)) || (status = tl_sig_want_float(sig, 5)))
        return status;
    const tl_shape *const shape[] = {&dq, &dk, &dv, o->has_sinks ? &sig->in[6]->shape : NULL};
    for (int i = 0; i < 4; i++)
        if ((o->wanted >> i & 1u) && shape[i])
            tl_sig_add(sig, i < 3 ? sig->in[0]->dtype : sig->in[6]->dtype, shape[i]);
    return TL_OK;
}

/* Sums of 16-bit gradients, and of dq by parts of the keys: see kernel/table.h. */
static tl_dim backward_workspace(const tl_sig *sig) {
    tl_ctx *ctx = sig->ctx;
    const uint32_t wanted = attr_of(sig)->wanted;
    const tl_shape *q = &sig->in[0]->shape, *k = &sig->in[1]->shape, *v = &sig->in[2]->shape;
    bool wide = sig->in[0]->dtype == TL_F64, rounds = !wide && sig->in[0]->dtype != TL_F32;
    int64_t part = tl_flash_part(k->dim[0].size * k->dim[1].size, k->dim[2].size,
                                 tl_flash_block(q->dim[3].size, v->dim[3].size, wide));
    int64_t parts = k->dim[2].size / part + (k->dim[2].size % part != 0);
    tl_dim sum = tl_dim_of(0);
    if (rounds && (wanted & TL_FLASH_DK))
        sum = tl_dim_add(ctx, sum, tl_elements_dim(ctx, k));
    if (rounds && (wanted & TL_FLASH_DV))
        sum = tl_dim_add(ctx, sum, tl_elements_dim(ctx, v));
    if (parts > 1 && (wanted & TL_FLASH_DQ))
        sum = tl_dim_add(ctx, sum, tl_dim_mul(ctx, tl_dim_of(parts), tl_elements_dim(ctx, q)));
    return sum.size ? tl_dim_mul(ctx, tl_dim_of(wide ? 8 : 4), sum) : sum;
}

static void backward_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_flash_attr *o = attr_of(sig);
    const tl_shape *y = &sig->in[3]->shape;
    const tl_dim one = tl_dim_of(1);
    bool dq = o->wanted & TL_FLASH_DQ, dk = o->wanted & TL_FLASH_DK, dv = o->wanted & TL_FLASH_DV;
    bool scores = dq || dk, sinks = o->wanted & TL_FLASH_DSINKS;
    cost->workspace = backward_workspace(sig);
    pairs p;
    count_pairs(sig, &p);
    if (scores || dv) {
        /* q·kᵀ again; dP = dy·vᵀ; dq = dS·k; dk = dSᵀ·q; dv = Pᵀ·dy */
        product_cost(sig, &p, 1 + dq + dk, scores + dv, cost);
        cost->matmul_again = pair_amount(sig, &p, FULL, 2, tl_in_dim(sig, 0, 3));
        cost->matmul_causal_again = pair_amount(sig, &p, SEEN, 2, tl_in_dim(sig, 0, 3));
        /* A pair: scale, − log-sum-exp and e^, with softcap and slopes as forward; dS = P·(dP − Σ)·scale 3, with a softcap
         * (1 − tanh²)· 3; dropout of P and dP. */
        int64_t each = 2 + (o->softcap != 0 ? 2 : 0) + (o->has_slopes ? 2 : 0) + (scores ? 3 : 0) +
                       (scores && o->softcap != 0 ? 3 : 0) + (o->dropout.a > 0 ? scores + dv : 0);
        cost->arithmetic = pair_amount(sig, &p, MET, each, one);
        cost->special = pair_amount(sig, &p, MET, o->softcap != 0 ? 2 : 1, one);
    }
    if (scores || sinks) /* Σ y·dy */
        more(sig, &cost->arithmetic, tl_amount_shape(sig->ctx, 2, y));
    if (sinks) { /* e^(sink − log-sum-exp)·Σ, added up */
        more(sig, &cost->arithmetic, tl_amount_of(sig->ctx, 3, y->dim, 3));
        more(sig, &cost->special, tl_amount_of(sig->ctx, 1, y->dim, 3));
    }
}

static tl_status backward_forward(const tl_sig *sig, tl_args *args) {
    const uint32_t wanted = attr_of(sig)->wanted;
    tl_array given[4];
    memcpy(given, args->call.out, sizeof given);
    int next = 0;
    for (int slot = 0; slot < 4; slot++) {
        args->call.out[slot] = args->call.in[0]; /* a shape to look at, and no data */
        args->call.out[slot].data = NULL;
        if (wanted >> slot & 1u)
            args->call.out[slot] = given[next++];
    }
    args->call.n_out = 4;
    return tl_args_run(sig, args, args->kernels->flash_attention_backward);
}

static void sample_attr(uint64_t *seed, tl_flash_attr *attr) {
    memset(attr, 0, sizeof *attr);
    attr->scale = tl_sample_below(seed, 2) ? 1 : 0.5;
    attr->softcap = tl_sample_below(seed, 3) ? 0 : 1.5;
    attr->causal = tl_sample_below(seed, 2);
    attr->offset = tl_sample_below(seed, 2) ? 0 : tl_sample_below(seed, 5);
    attr->window_before = tl_sample_below(seed, 2) ? -1 : tl_sample_below(seed, 4);
    attr->chunk = tl_sample_below(seed, 3) ? 0 : 1 + tl_sample_below(seed, 4);
    attr->has_sinks = tl_sample_below(seed, 2);
}

static void sample_inputs(uint64_t *seed, tl_case *c, int64_t y[4]) {
    int64_t b = 1 + tl_sample_below(seed, 2), g = 1 + tl_sample_below(seed, 2), h = g * (1 + tl_sample_below(seed, 2));
    int64_t t = tl_sample_below(seed, 8), s = tl_sample_below(seed, 9), k = 1 + tl_sample_below(seed, 6);
    int64_t l = 1 + tl_sample_below(seed, 6);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, (int64_t[]){b, h, t, k});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, (int64_t[]){b, g, s, k});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, (int64_t[]){b, g, s, l});
    y[0] = b, y[1] = t, y[2] = h, y[3] = l;
}

static void sample_positions(uint64_t *seed, tl_case *c, const int64_t y[4], tl_flash_attr *attr) {
    attr->has_positions = tl_sample_below(seed, 3) == 0;
    if (!attr->has_positions)
        return;
    tl_sample_input(c, TL_I64, TL_FILL_INDEX, 2, y); /* [B,T] */
    c->in[c->n_in - 1].limit = 5;
}

static void backward_sample(uint64_t seed, tl_case *c) {
    tl_flash_attr attr;
    int64_t y[4];
    sample_attr(&seed, &attr);
    sample_inputs(&seed, c, y);
    attr.has_slopes = tl_sample_below(&seed, 2);
    attr.slopes_scaled = attr.has_slopes && tl_sample_below(&seed, 2);
    attr.wanted = 1 + (uint32_t)tl_sample_below(&seed, attr.has_sinks ? 15 : 7);
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, y);
    tl_sample_input(c, TL_F32, TL_FILL_POSITIVE, 3, (int64_t[]){y[0], y[2], y[1]});
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 4, y);
    if (attr.has_sinks)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &y[2]);
    if (attr.has_slopes) {
        tl_sample_input(c, TL_F32, TL_FILL_UNIT, 1, &y[2]);
        c->in[c->n_in - 1].fixed_dtype = true;
    }
    sample_positions(&seed, c, y, &attr);
    memcpy(c->attr, &attr, sizeof attr);
    for (int i = 0; i < 4; i++)
        c->n_out += (int)(attr.wanted >> i & 1u);
    c->tolerance = 1e-5;
}

TL_OP(flash_attention_backward, sizeof(tl_flash_attr), backward_infer, backward_cost, TL_SAVES_NONE, backward_forward,
      TL_NO_GRAD, backward_sample);

static tl_status flash_grad(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    tl_flash_attr attr = *(const tl_flash_attr *)tl_saved_attr(saved);
    tl_tensor *in[9] = {tl_saved_in(saved, 0),  tl_saved_in(saved, 1),  tl_saved_in(saved, 2),
                        tl_saved_out(saved, 0), tl_saved_out(saved, 1), gout[0]};
    tl_tensor *out[4] = {NULL};
    int n_in = 6, n_out = 0;
    for (int i = 3; i < saved->n_in; i++)
        in[n_in++] = tl_saved_in(saved, i);
    attr.wanted = 0;
    for (int i = 0; i < 3 + attr.has_sinks; i++)
        if (tl_saved_needs(saved, i)) {
            attr.wanted |= 1u << i;
            n_out++;
        }
    tl_status status = tl_run(ctx, &tl_op_flash_attention_backward, in, n_in, &attr, out, n_out, saved->site);
    n_out = 0;
    for (int i = 0; i < 4 && status == TL_OK; i++)
        if (attr.wanted >> i & 1u) {
            tl_tensor *gradient = out[n_out++];
            gin[i] = i < 3 ? tl_transpose_(gradient, 1, 2, saved->site) : gradient;
        }
    return tl_ctx_status(ctx);
}

/* Slopes want no gradient, which the tests of all ops ask of every input: tests/test_flash.c has them. */
static void flash_sample(uint64_t seed, tl_case *c) {
    tl_flash_attr attr;
    int64_t y[4];
    sample_attr(&seed, &attr);
    sample_inputs(&seed, c, y);
    if (attr.has_sinks)
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &y[2]);
    sample_positions(&seed, c, y, &attr);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
    c->tolerance = 1e-5;
}

TL_OP(flash_attention, sizeof(tl_flash_attr), flash_infer, flash_cost, flash_saves, flash_forward, flash_grad,
      flash_sample);

tl_tensor *tl_flash_attention_(tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_flash_options *o, const char *site) {
    tl_flash_attr attr;
    tl_tensor *in[6] = {q, k, v};
    int n_in = 3;
    if (!q || !k || !v)
        return NULL;
    tl_ctx *ctx = q->ctx;
    memset(&attr, 0, sizeof attr);
    int64_t size = q->shape.ndim ? q->shape.dim[q->shape.ndim - 1].size : 0;
    attr.scale = o->scale != 0 ? o->scale : size > 0 ? 1 / __builtin_sqrt((double)size) : 1;
    attr.softcap = o->softcap;
    attr.causal = o->causal;
    attr.offset = o->offset;
    attr.window_before = o->window_before < 0 ? -1 : o->window_before;
    attr.chunk = o->chunk;
    attr.has_sinks = o->sinks != NULL;
    attr.has_slopes = o->slopes != NULL;
    attr.has_positions = o->positions != NULL;
    attr.slopes_scaled = o->slopes_scaled;
    if (o->dropout != 0) {
        attr.dropout.seed = ctx->seed_dropout;
        attr.dropout.stream = tl_stream_id("dropout", o->dropout_name ? o->dropout_name : "");
        attr.dropout.first = ctx->random_position;
        attr.dropout.a = o->dropout;
    }
    if (o->sinks)
        in[n_in++] = o->sinks;
    if (o->slopes)
        in[n_in++] = o->slopes;
    if (o->positions)
        in[n_in++] = o->positions;
    tl_tensor *y = tl_run1(&tl_op_flash_attention, in, n_in, &attr, site);
    if (y && o->dropout != 0) /* as tl_dropout of [B,H,T,S] goes on */
        ctx->random_position +=
            (uint64_t)tl_tensor_count(q) / (uint64_t)(size ? size : 1) * (uint64_t)k->shape.dim[2].size;
    return tl_transpose_(y, 1, 2, site);
}
