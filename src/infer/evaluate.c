/* Evaluating: windows over a text, in batches; losses a token, added in the order of the text. */
#include "infer/infer.h"
#include "nn/net.h"
#include "tally/ops.h"
#include "tally/ops_layers.h"
#include "tensor/ctx.h"

#include <string.h>

enum { LOSS_PARTS = 8 };

typedef struct evaluator {
    tl_net *net;
    tl_ctx *ctx;
    const tl_eval_options *options;
    tl_eval_source *source;
    tl_eval_rows *row_source;
    void *source_user;
    bool by_rows;           /* rows of their own, not windows of a text */
    int64_t tokens, stride; /* by rows: how many there are */
    int32_t *ids;           /* (batch − 1)·stride + seq + 1 of the text */
    int32_t *rows[3];       /* inputs, targets and positions, batch × seq */
    double *losses;         /* batch × seq */
} evaluator;

/* Window w: its first input, and how many it has. */
static int64_t window_length(const evaluator *e, int64_t w) {
    if (e->by_rows)
        return e->options->seq;
    int64_t left = e->tokens - 1 - w * e->stride;
    return left < e->options->seq ? left : e->options->seq;
}

/* The last one ends with the text. */
static int64_t window_count(const evaluator *e) {
    if (e->by_rows)
        return e->tokens;
    int64_t targets = e->tokens - 1, seq = e->options->seq;
    return targets <= seq ? 1 : 1 + (targets - seq + e->stride - 1) / e->stride;
}

static tl_status read_rows(evaluator *e, int64_t first, int64_t windows, int64_t length) {
    tl_error error = {TL_OK, ""};
    if (e->by_rows) {
        tl_status status = e->row_source(e->source_user, first, windows, e->rows[0], e->rows[1], &error);
        if (status == TL_OK && e->options->positions)
            e->options->positions(e->source_user, first, windows, e->rows[0], e->rows[2]);
        return status == TL_OK ? TL_OK : tl_ctx_fail(e->ctx, status, "%s", error.message);
    }
    int64_t from = first * e->stride, count = (windows - 1) * e->stride + length + 1;
    if (e->source(e->source_user, from, count, e->ids, &error) != TL_OK)
        return tl_ctx_fail(e->ctx, error.status ? error.status : TL_ERR_IO, "%s", error.message);
    for (int64_t w = 0; w < windows; w++)
        for (int k = 0; k < 2; k++)
            memcpy(e->rows[k] + w * length, e->ids + w * e->stride + k, (size_t)length * sizeof(int32_t));
    return TL_OK;
}

static tl_tensor *batch_tensor(const evaluator *e, int which, int64_t windows, int64_t length) {
    tl_shape shape = TL_SHAPE(e->ctx, tl_dim_of(windows), tl_dim_of(length));
    return tl_ctx_is_meta(e->ctx) ? tl_empty(e->ctx, TL_I32, shape, TL_DATA)
                                  : tl_from_data(e->ctx, TL_I32, shape, TL_DATA, e->rows[which], windows * length);
}

/* The logits of a batch as rows [windows·length, V]. */
static tl_tensor *logits_of(const evaluator *e, int64_t windows, int64_t length) {
    tl_ctx *ctx = e->ctx;
    tl_tensor *input = batch_tensor(e, 0, windows, length);
    if (e->by_rows && e->options->positions && tl_net_documents(e->net, batch_tensor(e, 2, windows, length)) != TL_OK)
        return NULL;
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_tensor *logits = tl_net_forward(e->net, input);
    tl_net_documents(e->net, NULL);
    if (!logits)
        return NULL;
    return tl_view(logits, TL_SHAPE(ctx, tl_dim_of(windows * length), tl_tensor_shape(logits)->dim[2]));
}

/* −log p of `count` targets from `first` on; 16-bit logits are widened first. What a part makes dies with it. */
static tl_status part_losses(const evaluator *e, tl_tensor *logits, tl_tensor *target, int64_t first, int64_t count) {
    static const tl_loss_options each = {.reduction = TL_LOSS_NONE, .ignores = true, .ignore_index = TL_IGNORE_INDEX};
    tl_ctx *ctx = e->ctx;
    tl_scope_begin(ctx);
    tl_dim rows = tl_dim_of(count);
    tl_tensor *part = tl_slice(logits, 0, first, rows, 1);
    if (part && tl_tensor_dtype(part) != TL_F64)
        part = tl_cast(part, TL_F32);
    tl_tensor *loss = tl_cross_entropy_loss(part, tl_slice(target, 0, first, rows, 1), NULL, &each, NULL);
    loss = tl_cast(loss, TL_F64);
    tl_status status = tl_ctx_status(ctx);
    if (status == TL_OK && !tl_ctx_is_meta(ctx))
        status = tl_tensor_read(loss, e->losses + first, (size_t)count * sizeof *e->losses);
    tl_scope_end(ctx);
    return status;
}

/* Nothing is recorded, so that no log softmax has to last: it is made of a part of the rows at a time, beside the logits. */
static tl_status token_losses(const evaluator *e, int64_t windows, int64_t length) {
    const int64_t rows = windows * length, each = (rows + LOSS_PARTS - 1) / LOSS_PARTS;
    tl_ctx *ctx = e->ctx;
    tl_tensor *logits = logits_of(e, windows, length);
    tl_phase_set(ctx, TL_PHASE_LOSS);
    tl_tensor *target = logits ? batch_tensor(e, 1, windows, length) : NULL;
    target = target ? tl_view(target, TL_SHAPE(ctx, tl_dim_of(rows))) : NULL;
    tl_status status = tl_ctx_status(ctx);
    for (int64_t first = 0; first < rows && status == TL_OK; first += each)
        status = part_losses(e, logits, target, first, rows - first < each ? rows - first : each);
    return status;
}

/* Of a window after the first, what the one before has not seen as a target. */
static void add_losses(const evaluator *e, int64_t first, int64_t windows, int64_t length, tl_evaluation *r) {
    for (int64_t w = 0; w < windows; w++) {
        int64_t done = (first + w) * e->stride; /* targets before this window's first */
        for (int64_t i = 0; i < length; i++)
            if (e->by_rows ? e->losses && e->rows[1][w * length + i] != TL_IGNORE_INDEX : done + i == r->targets) {
                r->nats += e->losses ? e->losses[w * length + i] : 0;
                r->targets++;
            }
        r->windows++;
    }
}

static tl_status run_batch(evaluator *e, int64_t first, int64_t windows, int64_t length, int64_t forward,
                           tl_evaluation *r) {
    tl_ctx *ctx = e->ctx;
    bool meta = tl_ctx_is_meta(ctx);
    tl_status status = meta ? TL_OK : read_rows(e, first, windows, length);
    if (status != TL_OK)
        return status;
    tl_ledger_step_begin(ctx);
    if (e->options->begin && !meta)
        e->options->begin(e->options->user, forward);
    tl_scope_begin(ctx);
    status = token_losses(e, windows, length);
    tl_scope_end(ctx);
    if (status != TL_OK)
        return status;
    tl_infer_count(ctx, windows * length, &r->counts);
    add_losses(e, first, windows, length, r);
    if (e->options->done && !meta)
        e->options->done(e->options->user, r->targets, r->nats);
    return TL_OK;
}

static tl_status run(evaluator *e, tl_evaluation *r) {
    int64_t all = window_count(e), forward = 0;
    tl_status status = TL_OK;
    for (int64_t w = 0; w < all && status == TL_OK;) {
        int64_t length = window_length(e, w), n = 1; /* only the last may be shorter: it goes alone */
        while (n < e->options->batch && w + n < all && window_length(e, w + n) == length)
            n++;
        status = run_batch(e, w, n, length, forward++, r);
        w += n;
    }
    return status;
}

static tl_status check(const evaluator *e) {
    const tl_eval_options *o = e->options;
    int64_t elements = 0;
    if (o->seq < 1 || o->batch < 1 || o->stride < 0 || o->stride > o->seq)
        return tl_ctx_fail(e->ctx, TL_ERR_ARGUMENT,
                           "windows of %lld tokens every %lld, %lld at once; 1 or more, and a stride of 1 to %lld, "
                           "would work",
                           (long long)o->seq, (long long)o->stride, (long long)o->batch, (long long)o->seq);
    if (!tl_mul_i64(o->seq, o->batch, &elements) || elements > INT64_C(1) << 40)
        return tl_ctx_fail(e->ctx, TL_ERR_OVERFLOW, "%lld windows of %lld tokens at once; fewer would work",
                           (long long)o->batch, (long long)o->seq);
    if (e->by_rows && e->tokens < 1)
        return tl_ctx_fail(e->ctx, TL_ERR_ARGUMENT, "%lld rows; 1 or more would work", (long long)e->tokens);
    if (!e->by_rows && e->tokens < 2)
        return tl_ctx_fail(e->ctx, TL_ERR_ARGUMENT,
                           "a text of %lld token%s has nothing to foretell; 2 or more would work", (long long)e->tokens,
                           e->tokens == 1 ? "" : "s");
    if (e->net->model.family == TL_FAMILY_CRUNCHER)
        return tl_ctx_fail(e->ctx, TL_ERR_UNSUPPORTED, "%s has no vocabulary; gpt2 and llama have", e->net->model.name);
    if (e->net->model.learned_positions && o->seq > e->net->model.context)
        return tl_ctx_fail(e->ctx, TL_ERR_ARGUMENT, "windows of %lld tokens; %s has %lld positions (%s)",
                           (long long)o->seq, e->net->model.name, (long long)e->net->model.context,
                           e->net->model.source_context.text);
    return TL_OK;
}

static tl_status evaluate(evaluator *e, tl_evaluation *result) {
    tl_net *net = e->net;
    tl_ctx *ctx = e->ctx;
    const tl_eval_options *options = e->options;
    memset(result, 0, sizeof *result);
    e->stride = options->stride ? options->stride : options->seq;
    tl_status status = tl_ctx_status(ctx);
    if (status == TL_OK)
        status = check(e);
    if (status != TL_OK)
        return status;
    bool recording = ctx->recording, training = net->training;
    tl_phase before = tl_phase_get(ctx);
    ctx->recording = net->training = false;
    size_t rows = (size_t)(options->batch * options->seq);
    size_t ids = ((size_t)((options->batch - 1) * e->stride + options->seq) + 1) * sizeof(int32_t);
    if (!tl_ctx_is_meta(ctx)) {
        e->ids = tl_host_alloc(ctx, ids);
        for (int k = 0; k < (options->positions ? 3 : 2); k++)
            e->rows[k] = tl_host_alloc(ctx, rows * sizeof(int32_t));
        e->losses = tl_host_alloc(ctx, rows * sizeof(double));
    }
    status = tl_ctx_status(ctx);
    if (status == TL_OK)
        status = run(e, result);
    tl_host_free(ctx, e->ids, ids);
    for (int k = 0; k < 3; k++)
        tl_host_free(ctx, e->rows[k], rows * sizeof(int32_t));
    tl_host_free(ctx, e->losses, rows * sizeof(double));
    tl_phase_set(ctx, before);
    ctx->recording = recording;
    net->training = training;
    return status;
}

tl_status tl_evaluate(tl_net *net, int64_t tokens, tl_eval_source *source, void *source_user,
                      const tl_eval_options *options, tl_evaluation *result) {
    evaluator e = {.net = net, .ctx = net->ctx, .options = options, .tokens = tokens};
    e.source = source;
    e.source_user = source_user;
    return evaluate(&e, result);
}

tl_status tl_evaluate_rows(tl_net *net, int64_t rows, tl_eval_rows *source, void *source_user,
                           const tl_eval_options *options, tl_evaluation *result) {
    evaluator e = {.net = net, .ctx = net->ctx, .options = options, .tokens = rows, .by_rows = true};
    e.row_source = source;
    e.source_user = source_user;
    return evaluate(&e, result);
}
