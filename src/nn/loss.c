/* The output projection and the loss: of all tokens at once, or chunk after chunk. */
#include "nn/cache.h"
#include "nn/lora.h"
#include "tally/ops_choices.h"
#include "tally/ops_layers.h"

#include "tally/grad.h"
#include "tensor/ctx.h"

static tl_tensor *head_weight(const tl_net *net) { return net->head ? net->head : net->token_table; }

static tl_tensor *capped(const tl_net *net, tl_tensor *y) {
    double cap = net->model.final_softcap;
    if (cap == 0)
        return y;
    tl_tensor *inner = tl_scale(y, 1 / cap, 0), *bent = tl_tanh(inner);
    tl_release(y);
    tl_release(inner);
    return tl_scale(bent, cap, 0);
}

static tl_tensor *logits_of(tl_net *net, tl_tensor *x) {
    tl_tensor *w = head_weight(net);
    tl_lora_slot *slot = net->lora && net->head ? tl_lora_slot_of(net, w, false) : NULL;
    if (slot)
        return capped(net, tl_lora_layer(net, x, w, net->head_bias, TL_HERE));
    return capped(net, tl_linear(x, w, net->head_bias));
}

tl_tensor *tl_head(tl_net *net, tl_tensor *x) {
    tl_enter(net, "lm_head", -1);
    if (net->cache && net->cache->last_only && x)
        x = tl_slice(x, 1, tl_tensor_size(x, 1) - 1, tl_dim_of(1), 1);
    return tl_leave(net, logits_of(net, x));
}

/* Leading axes in one: [… V] as [rows, V], targets […] as [rows]. */
static tl_tensor *as_rows(tl_net *net, tl_tensor *x, int keep) {
    const tl_shape *s = tl_tensor_shape(x);
    if (s->ndim == 1 + keep)
        return x;
    tl_dim rows = tl_dim_mul(net->ctx, s->dim[0], s->dim[1]);
    return tl_reshape(x, keep ? TL_SHAPE(net->ctx, rows, s->dim[2]) : TL_SHAPE(net->ctx, rows));
}

/* PyTorch's cross_entropy, of Hugging Face's logits.float() or of logits as they are: log softmax is kept, the logits are not. */
static tl_tensor *loss_by_log_softmax(tl_net *net, tl_tensor *logits, tl_tensor *target) {
    static const tl_loss_options mean = {TL_LOSS_MEAN, true, TL_IGNORE_INDEX};
    if (!logits)
        return NULL;
    tl_dtype dtype = tl_tensor_dtype(logits);
    if (net->choices.loss != TL_LOSS_LOG_SOFTMAX && dtype != TL_F64)
        dtype = TL_F32;
    tl_tensor *wide = tl_cast(logits, dtype);
    tl_tensor *rows = wide ? as_rows(net, wide, 1) : NULL, *log_p = tl_log_softmax(rows);
    if (net->choices.hold_logits && rows && net->n_held < TL_LOSS_CHUNKS_MAX)
        net->held[net->n_held++] = tl_keep(rows);
    if (wide != logits) {
        if (rows != wide)
            tl_release(rows);
        tl_release(wide);
    }
    return tl_nll_loss(log_p, as_rows(net, target, 0), NULL, &mean);
}

tl_tensor *tl_token_loss(tl_net *net, tl_tensor *logits, tl_tensor *target) {
    tl_enter(net, "loss", -1);
    if (net->choices.loss == TL_LOSS_FULL_FP32 || net->choices.loss == TL_LOSS_LOG_SOFTMAX)
        return tl_leave(net, loss_by_log_softmax(net, logits, target));
    return tl_leave(net, tl_cross_entropy(logits, target, TL_IGNORE_INDEX));
}

/* ---- projection and loss together ---- */

struct chunks {
    int n;
    tl_tensor *x[TL_LOSS_CHUNKS_MAX], *target[TL_LOSS_CHUNKS_MAX];
    tl_tensor *share[TL_LOSS_CHUNKS_MAX]; /* its counted targets over all: what its mean counts for */
};

/* As torch.chunk: equal sizes, rounded up, and what is left. */
static int chunk_sizes(tl_net *net, tl_dim rows, tl_dim *size) {
    int64_t wanted = net->choices.loss_chunks > 0 ? net->choices.loss_chunks : TL_LOSS_CHUNKS_DEFAULT, each;
    if (wanted > rows.size)
        wanted = rows.size > 0 ? rows.size : 1;
    each = (rows.size + wanted - 1) / wanted;
    int n = each > 0 ? (int)((rows.size + each - 1) / each) : 1;
    bool even = n > 0 && rows.size % n == 0;
    for (int i = 0; i < n; i++)
        size[i] = even        ? tl_dim_div(net->ctx, rows, tl_dim_of(n))
                  : i < n - 1 ? tl_dim_of(each)
                              : tl_dim_of(rows.size - each * (n - 1));
    return n;
}

/* One split has at most 16 parts; more are split twice. */
static tl_status split_rows(tl_ctx *ctx, tl_tensor *x, const tl_dim *size, int n, tl_tensor *out[]) {
    enum { PARTS = 16 };
    tl_dim group[PARTS] = {{0}};
    tl_tensor *part[PARTS] = {0};
    int groups = (n + PARTS - 1) / PARTS;
    if (n <= PARTS)
        return tl_split(x, 0, size, n, out);
    for (int g = 0; g < groups; g++) {
        group[g] = tl_dim_of(0);
        for (int i = g * PARTS; i < n && i < (g + 1) * PARTS; i++)
            group[g] = group[g].size ? tl_dim_add(ctx, group[g], size[i]) : size[i];
    }
    tl_status status = tl_split(x, 0, group, groups, part);
    for (int g = 0; g < groups && status == TL_OK; g++)
        status = tl_split(part[g], 0, size + g * PARTS, n - g * PARTS < PARTS ? n - g * PARTS : PARTS, out + g * PARTS);
    return status;
}

static tl_tensor *counted(tl_ctx *ctx, tl_tensor *target, tl_tensor *ignored, tl_dtype dtype) {
    (void)ctx;
    tl_tensor *counts = tl_not_equal(target, ignored), *numbers = tl_cast(counts, dtype);
    tl_release(counts);
    tl_tensor *sum = tl_sum(numbers, NULL, 0, false);
    tl_release(numbers);
    return sum;
}

static tl_status make_shares(tl_net *net, tl_tensor *target, struct chunks *c) {
    tl_ctx *ctx = net->ctx;
    tl_dtype dtype = net->dtype == TL_F64 ? TL_F64 : TL_F32;
    bool recording = ctx->recording;
    tl_shape none = {.ndim = 0};
    ctx->recording = false;
    tl_tensor *ignored = tl_empty(ctx, tl_tensor_dtype(target), none, TL_WORK),
              *one = tl_empty(ctx, dtype, none, TL_WORK);
    if (ignored && one && tl_fill(ignored, TL_IGNORE_INDEX) && tl_fill(one, 1)) {
        tl_tensor *all = tl_maximum(counted(ctx, target, ignored, dtype), one);
        for (int i = 0; i < c->n; i++)
            c->share[i] = tl_div(counted(ctx, c->target[i], ignored, dtype), all);
    }
    ctx->recording = recording;
    return tl_ctx_status(ctx);
}

/* in: tokens [n,D], targets [n], the chunk's share → its part of the loss */
static tl_status chunk_region(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    tl_net *net = *(tl_net *const *)user;
    tl_tensor *logits = tl_head(net, in[0]);
    tl_enter(net, "loss", -1);
    tl_tensor *mean = net->choices.loss == TL_LOSS_CHUNKS_FP32 ? loss_by_log_softmax(net, logits, in[1])
                                                               : tl_cross_entropy(logits, in[1], TL_IGNORE_INDEX);
    out[0] = tl_leave(net, tl_mul(mean, in[2]));
    tl_release(logits);
    return tl_ctx_status(ctx);
}

static tl_tensor *chunked(tl_net *net, const struct chunks *c) {
    tl_tensor *sum = NULL;
    for (int i = 0; i < c->n; i++) {
        tl_tensor *in[] = {c->x[i], c->target[i], c->share[i]}, *part = NULL;
        tl_status status = net->choices.loss != TL_LOSS_CHUNKED
                               ? chunk_region(net->ctx, &net, in, &part)
                               : tl_checkpoint(net->ctx, chunk_region, &net, sizeof net, in, 3, &part, 1);
        if (status != TL_OK)
            return NULL;
        sum = sum ? tl_add(sum, part) : part;
    }
    return sum;
}

/* ---- gradients at once ---- */

struct fused {
    tl_tensor *x, *w, *bias;    /* in the format of the products */
    tl_tensor *dx, *dw, *dbias; /* NULL: not wanted */
    tl_tensor *dx_rows[TL_LOSS_CHUNKS_MAX];
    tl_tensor *loss;
};

/* dlogits of a cap·tanh(logits/cap) whose gradient is dy: dy·(1 − tanh²). */
static tl_tensor *through_cap(tl_tensor *dy, tl_tensor *bent) {
    tl_tensor *square = tl_mul(bent, bent), *slope = tl_scale(square, -1, 1);
    tl_release(square);
    return tl_mul(dy, slope);
}

static tl_status fused_chunk(tl_net *net, struct fused *f, tl_tensor *x, tl_tensor *target, tl_tensor *share, int i) {
    tl_ctx *ctx = net->ctx;
    double cap = net->model.final_softcap;
    tl_scope_begin(ctx);
    tl_tensor *logits = tl_linear(x, f->w, f->bias), *bent = NULL, *d = logits;
    if (cap != 0) {
        tl_tensor *inner = tl_scale_into(logits, 1 / cap);
        bent = tl_tanh(inner);
        d = tl_scale(bent, cap, 0);
        tl_release(logits);
    }
    tl_module_begin(ctx, "loss", -1);
    bool wanted = f->dx || f->dw || f->dbias;
    tl_tensor *mean = wanted ? tl_cross_entropy_in_place(d, target, share, TL_IGNORE_INDEX)
                             : tl_cross_entropy(d, target, TL_IGNORE_INDEX);
    tl_accumulate(f->loss, tl_mul(mean, share));
    tl_module_end(ctx);
    tl_phase phase = tl_phase_get(ctx);
    tl_phase_set(ctx, TL_PHASE_BACKWARD); /* what follows is backward's work, done here */
    if (wanted && cap != 0)
        d = through_cap(d, bent);
    if (f->dx)
        tl_matmul_into(f->dx_rows[i], d, f->w, TL_CAUSAL_NONE);
    if (f->dw)
        tl_matmul_into(f->dw, tl_transpose(d, 0, 1), x, TL_CAUSAL_NONE);
    if (f->dbias)
        tl_accumulate(f->dbias, tl_sum(d, (int[]){0}, 1, false));
    tl_phase_set(ctx, phase);
    tl_scope_end(ctx);
    return tl_ctx_status(ctx);
}

static tl_tensor *zeros_like(tl_net *net, const tl_tensor *x, bool wanted) {
    tl_tensor *zeros = wanted ? tl_empty(net->ctx, tl_tensor_dtype(x), *tl_tensor_shape(x), TL_WORK) : NULL;
    return zeros ? tl_fill(zeros, 0) : NULL;
}

/* Without recording: the loss and, where a gradient is wanted, the gradients of tokens, head and its bias. */
static tl_status run_fused(tl_net *net, const struct chunks *c, const tl_dim *size, struct fused *f,
                           const bool wanted[3]) {
    tl_ctx *ctx = net->ctx;
    tl_tensor *rows[TL_LOSS_CHUNKS_MAX];
    tl_shape none = {.ndim = 0};
    f->loss = tl_empty(ctx, net->dtype == TL_F64 ? TL_F64 : TL_F32, none, TL_WORK);
    if (!f->loss || !tl_fill(f->loss, 0) || split_rows(ctx, f->x, size, c->n, rows) != TL_OK)
        return tl_ctx_status(ctx);
    f->dx = zeros_like(net, f->x, wanted[0]);
    f->dw = zeros_like(net, f->w, wanted[1]);
    f->dbias = f->bias ? zeros_like(net, f->bias, wanted[2]) : NULL;
    if (f->dx && split_rows(ctx, f->dx, size, c->n, f->dx_rows) != TL_OK)
        return tl_ctx_status(ctx);
    for (int i = 0; i < c->n && tl_ctx_status(ctx) == TL_OK; i++)
        (void)fused_chunk(net, f, rows[i], c->target[i], c->share[i], i);
    return tl_ctx_status(ctx);
}

/* Liger's fused linear cross-entropy (Hsu et al. 2024, section 3.2). Under autocast the products are in its low format. */
static tl_tensor *fused(tl_net *net, tl_tensor *x, const struct chunks *c, const tl_dim *size) {
    tl_ctx *ctx = net->ctx;
    tl_tensor *of[3] = {x, head_weight(net), net->head_bias}, *gradient[3] = {0};
    if (net->lora && net->head && tl_lora_slot_of(net, net->head, false)) {
        tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED,
                    "the fused loss reads the head as it is, and this one is quantised, scaled or has adapters; loss "
                    "full, chunked or chunks-kept would work");
        return NULL;
    }
    bool recording = ctx->recording, wanted[3];
    tl_dtype low = ctx->cast_inputs ? ctx->autocast : TL_F32, dtype = low == TL_F32 ? tl_tensor_dtype(of[1]) : low;
    for (int i = 0; i < 3; i++)
        wanted[i] = of[i] && recording && tl_tensor_needs_grad(of[i]);
    ctx->recording = false;
    (void)tl_autocast(ctx, TL_F32);
    struct fused f = {.x = tl_cast(of[0], dtype), .w = tl_cast(of[1], dtype)};
    f.bias = of[2] ? tl_cast(of[2], dtype) : NULL;
    tl_status status = f.x && f.w ? run_fused(net, c, size, &f, wanted) : tl_ctx_status(ctx);
    tl_tensor *made[3] = {f.dx, f.dw, f.dbias};
    int n = 0;
    for (int i = 0; i < 3 && status == TL_OK; i++)
        if (wanted[i] && made[i]) {
            of[n] = of[i];
            gradient[n++] = tl_cast(made[i], tl_tensor_dtype(of[i]));
        }
    ctx->recording = recording;
    tl_tensor *loss = status != TL_OK ? NULL : n > 0 ? tl_given_gradients(f.loss, of, gradient, n) : f.loss;
    (void)tl_autocast(ctx, low); /* one it took before */
    return loss;
}

tl_tensor *tl_projected_loss(tl_net *net, tl_tensor *hidden, tl_tensor *target) {
    tl_dim size[TL_LOSS_CHUNKS_MAX];
    struct chunks c = {0};
    if (!hidden || !target || tl_tensor_ndim(hidden) != 3 || tl_tensor_ndim(target) != 2)
        return NULL;
    tl_scope_begin(net->ctx);
    tl_tensor *x = as_rows(net, hidden, 1), *t = as_rows(net, target, 0), *loss = NULL, *carried = NULL;
    if (x && t) {
        bool at_once = net->choices.loss == TL_LOSS_FUSED;
        c.n = chunk_sizes(net, tl_tensor_shape(x)->dim[0], size);
        tl_status status = split_rows(net->ctx, t, size, c.n, c.target);
        if (status == TL_OK && !at_once)
            status = split_rows(net->ctx, x, size, c.n, c.x);
        tl_enter(net, "loss", -1);
        if (status == TL_OK)
            status = make_shares(net, t, &c);
        for (int i = 0; i < c.n; i++) /* they outlive the module's scope */
            c.share[i] = c.share[i] ? tl_keep(c.share[i]) : NULL;
        (void)tl_leave(net, NULL);
        if (status == TL_OK && at_once) {
            tl_enter(net, "lm_head", -1);
            loss = tl_leave(net, fused(net, x, &c, size));
        } else if (status == TL_OK)
            loss = chunked(net, &c);
        for (int i = 0; i < c.n; i++)
            tl_free(c.share[i]);
    }
    tl_scope_end_into(net->ctx, &carried, loss);
    return carried;
}
