/* data/sums_score.c: asking a net held-out sums. */
#include "tally/data.h"

#include <stdio.h>
#include <string.h>

#include "tally/account.h"
#include "tally/grad.h"
#include "tally/ops.h"
#include "tensor/ctx.h"

/* The next token of each row: the largest logit at the last position. */
static tl_status next_tokens(tl_net *net, tl_ctx *ctx, const int32_t *tokens, int64_t rows, int64_t length,
                             int64_t *next) {
    tl_scope_begin(ctx);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(rows), tl_dim_of(length));
    tl_tensor *input = tl_ctx_is_meta(ctx) ? tl_empty(ctx, TL_I32, shape, TL_DATA)
                                           : tl_from_data(ctx, TL_I32, shape, TL_DATA, tokens, rows * length);
    tl_tensor *logits = tl_net_forward(net, input);
    tl_tensor *last = tl_slice(logits, 1, length - 1, tl_dim_of(1), 1);
    tl_tensor *best = tl_argmax(last);
    tl_status status = tl_ctx_status(ctx);
    if (status == TL_OK && !tl_ctx_is_meta(ctx))
        status = tl_tensor_read(best, next, (size_t)rows * sizeof *next);
    tl_scope_end(ctx);
    return status;
}

/* Rows of questions become rows one longer, the answer so far behind them. */
static void append(int32_t *tokens, int64_t rows, int64_t length, const int64_t *next) {
    for (int64_t r = rows - 1; r >= 0; r--) {
        memmove(tokens + r * (length + 1), tokens + r * length, (size_t)length * sizeof *tokens);
        tokens[r * (length + 1) + length] = (int32_t)next[r];
    }
}

static tl_sums_answer read_answer(int a, int b, const int32_t *row) {
    tl_sums_answer r = {.a = a, .b = b, .answer = 0};
    char written[TL_SUMS_ANSWER + 1];
    for (int i = 0; i < TL_SUMS_ANSWER; i++)
        written[i] = tl_sums_character(row[TL_SUMS_QUESTION + i]);
    written[TL_SUMS_ANSWER] = '\0';
    const char *number = written + (written[0] == ' ');
    for (const char *at = number; *at; at++)
        r.answer = r.answer < 0 || *at < '0' || *at > '9' ? -1 : r.answer * 10 + (*at - '0');
    if (*number == '0')
        r.answer = -1;
    r.right = r.answer == a + b;
    snprintf(r.text, sizeof r.text, "%d+%d=%s", a, b, number);
    return r;
}

typedef struct asking {
    const tl_sums *sums;
    tl_net *net;
    tl_ctx *ctx;
    int32_t *tokens; /* batch × TL_SUMS_LENGTH */
    int64_t *next;   /* batch */
} asking;

static tl_status ask(const asking *q, int64_t first, int64_t rows, tl_sums_score *score, tl_sums_answer *answers,
                     int n_answers) {
    int32_t row[TL_SUMS_LENGTH], unused[TL_SUMS_LENGTH];
    const bool meta = tl_ctx_is_meta(q->ctx);
    for (int64_t r = 0; r < rows && !meta; r++) {
        int a, b;
        tl_sums_held_out(q->sums, first + r, &a, &b);
        tl_sums_encode(a, b, TL_SUMS_LENGTH, row, unused);
        memcpy(q->tokens + r * TL_SUMS_QUESTION, row, TL_SUMS_QUESTION * sizeof *row);
    }
    for (int64_t length = TL_SUMS_QUESTION; length < TL_SUMS_LENGTH; length++) {
        tl_status status = next_tokens(q->net, q->ctx, q->tokens, rows, length, q->next);
        if (status != TL_OK)
            return status;
        append(q->tokens, rows, length, q->next);
    }
    for (int64_t r = 0; r < rows && !meta; r++) {
        int a, b;
        tl_sums_held_out(q->sums, first + r, &a, &b);
        tl_sums_answer answer = read_answer(a, b, q->tokens + r * TL_SUMS_LENGTH);
        score->right += answer.right;
        if (answers && score->asked < n_answers)
            answers[score->asked] = answer;
        score->asked++;
    }
    return TL_OK;
}

tl_status tl_sums_evaluate(const tl_sums *sums, tl_net *net, tl_ctx *ctx, int64_t first, int64_t count, int64_t batch,
                           tl_sums_score *score, tl_sums_answer *answers, int n_answers) {
    *score = (tl_sums_score){0, 0};
    if (first < 0 || count < 1 || batch < 1 || batch > INT32_MAX)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%lld sums from %lld on in batches of %lld: 1 or more would work",
                           (long long)count, (long long)first, (long long)batch);
    size_t tokens_bytes = (size_t)batch * TL_SUMS_LENGTH * sizeof(int32_t),
           next_bytes = (size_t)batch * sizeof(int64_t);
    asking q = {.sums = sums, .net = net, .ctx = ctx};
    q.tokens = tl_host_alloc(ctx, tokens_bytes);
    q.next = tl_host_alloc(ctx, next_bytes);
    bool recording = tl_is_recording(ctx);
    tl_status status = tl_ctx_status(ctx);
    if (status == TL_OK)
        status = tl_record(ctx, false);
    tl_net_train(net, false);
    tl_ledger_step_begin(ctx); /* its account is its own */
    for (int64_t done = 0; done < count && status == TL_OK; done += batch)
        status = ask(&q, first + done, count - done < batch ? count - done : batch, score, answers, n_answers);
    tl_net_train(net, true);
    if (status == TL_OK)
        status = tl_record(ctx, recording);
    tl_host_free(ctx, q.tokens, tokens_bytes);
    tl_host_free(ctx, q.next, next_bytes);
    return status;
}
