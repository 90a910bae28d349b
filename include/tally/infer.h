/* tally/infer.h: a net at work: generating text, token by token, and evaluating what it says of a text. Both are written
 * once; on meta they run without a value and leave the account of what is to come.
 */
#ifndef TALLY_INFER_H
#define TALLY_INFER_H

#include "tally/account.h"
#include "tally/cache.h"
#include "tally/choices.h"
#include "tally/lora.h"
#include "tally/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a forward or many of them took, from the ledger ---- */
typedef struct tl_infer_counts {
    int64_t forwards;
    int64_t tokens;                               /* that went in */
    int64_t peak_bytes;                           /* the highest of them */
    int64_t peak_by_category[TL_CATEGORY_COUNT];  /* at that moment */
    int64_t allocations;                          /* of storages */
    tl_u128 matmul, matmul_causal;                /* FLOPs of products; causal: the masked half left out */
    tl_u128 executed;                             /* of matmul: without hidden blocks that fused attention skips */
    tl_u128 read, written;                        /* bytes, as the ops declare them */
    tl_u128 last_matmul, last_read, last_written; /* of the last forward alone: decoding grows with what it has seen */
} tl_infer_counts;

/* ---- generating ---- */
typedef struct tl_generate_options {
    int64_t max_tokens; /* new ones, 1 or more */
    int32_t end_id;     /* after it generating stops; it is reported. −1: none */
    tl_sample_options sample;
    uint64_t sequence; /* of the draws: another text from the same seed */
    /* Called before each forward (0: prefill) and with each new token; either may be NULL. `token` false: stop. */
    void (*begin)(void *user, int64_t forward);
    bool (*token)(void *user, int64_t index, int32_t token);
    void *user;
} tl_generate_options;

typedef struct tl_generation {
    int64_t prompt_tokens, new_tokens;
    bool ended;                      /* by end_id */
    tl_infer_counts prefill, decode; /* decode: new_tokens − 1 forwards of one token each, but for longrope's, below */
} tl_generation;

/* `prompt` (1 or more ids below the vocabulary) goes through the net at once, then each new token alone. The cache has batch
 * 1 and is gone on with from its length. It must take prompt + max_tokens − 1 more positions: refused before the first
 * forward otherwise. On meta max_tokens tokens are counted and none is drawn: callbacks are not called, prompt's values are
 * not read (NULL is allowed). Every forward starts the ledger's log anew. Where a new token takes a model with longrope past its
 * original context, the prompt and all new tokens go through the net once more, for all are turned anew (tl_cache_holds); with
 * positions in the cache before the prompt that is refused there, TL_ERR_UNSUPPORTED. */
tl_status tl_generate(tl_net *net, tl_cache *cache, const int32_t *prompt, int64_t prompt_tokens,
                      const tl_generate_options *options, tl_generation *result) TL_MUST_CHECK;

/* ---- evaluating ----
 * A text of n tokens has n − 1 targets: each token but the first, foretold from those before it within a window of `seq`
 * inputs. Windows start every `stride` tokens. stride = seq: they lie side by side, and a window's first targets see little.
 * stride < seq: they overlap, and of each window after the first only the last `stride` targets count, all of which see at
 * least seq − stride tokens; it costs seq ÷ stride times as much. Each target counts once whatever the stride. The last
 * window is shorter where the text is.
 *
 * Losses are computed a token (f32, f64 in a net of f64; logits of 16 bits are widened first) and added in f64 in the order of
 * the text: the sum depends on the batch only as far as the product's bits do. */

/* Positions [count, seq] of rows that were just asked for, counted from 0 in each document (tl_net_documents). */
typedef void tl_eval_positions(void *user, int64_t first, int64_t count, const int32_t *input, int32_t *positions);
typedef struct tl_eval_options {
    int64_t seq, stride; /* stride 0: seq; 1 … seq */
    int64_t batch;       /* windows at once */
    void (*begin)(void *user, int64_t forward);
    void (*done)(void *user, int64_t targets, double nats); /* after each batch: so far. NULL: not called */
    void *user;
    tl_eval_positions *positions; /* of rows; the rows' user. NULL: rows are whole */
} tl_eval_options;

/* Ids first … first + count − 1 of the text. */
typedef tl_status tl_eval_source(void *user, int64_t first, int64_t count, int32_t *ids, tl_error *error);

typedef struct tl_evaluation {
    int64_t targets, windows;
    double nats; /* Σ −log p; 0 on meta */
    tl_infer_counts counts;
} tl_evaluation;

/* The first `tokens` tokens of a text. On meta the source is not asked (may be NULL). Nothing is recorded, dropout is off. */
tl_status tl_evaluate(tl_net *net, int64_t tokens, tl_eval_source *source, void *source_user,
                      const tl_eval_options *options, tl_evaluation *result) TL_MUST_CHECK;

/* Rows that stand each for itself (questions and answers): `count` of them from row `first` on, inputs and targets
 * [count, seq]; a target TL_IGNORE_INDEX does not count. */
typedef tl_status tl_eval_rows(void *user, int64_t first, int64_t count, int32_t *input, int32_t *target,
                               tl_error *error);
/* The same for `rows` such rows; the stride is not looked at. On meta the source is not asked and no target counted. */
tl_status tl_evaluate_rows(tl_net *net, int64_t rows, tl_eval_rows *source, void *source_user,
                           const tl_eval_options *options, tl_evaluation *result) TL_MUST_CHECK;

/* ---- planning: either on meta ---- */
typedef struct tl_infer_options {
    tl_model model;
    tl_dtype dtype; /* of the net */
    bool int8;      /* quantised once loaded */
    /* How the net is run (tl_net_choose): attention flash writes no scores. Zeroed: as tl_net_new leaves it. */
    tl_choices choices;
    tl_lora_options base; /* rank 0: how frozen weights are kept, quantised one by one (tally/lora.h) */
    int threads;
    /* generating */
    tl_dtype cache_dtype;
    int64_t capacity, prompt_tokens, new_tokens;
    /* evaluating: new_tokens 0 */
    int64_t tokens;
    bool rows; /* `tokens` are rows of their own */
    tl_eval_options eval;
} tl_infer_options;

typedef struct tl_infer_plan {
    int64_t weights_bytes; /* live parameters, scales included, when all is loaded */
    int64_t cache_bytes;
    int64_t position_bytes; /* of a position in every layer: 2·N·G·K·size, or N·(Rkv + Kr)·size of latent attention */
    int64_t
        window_bytes; /* of cache_bytes what layers with a window hold, however many positions; 0: none is that long */
    int64_t expert_bytes; /* of the weights those that routing chooses among */
    /* load: published weights come, through their block (tally/weights.h), and become int8 where asked; the last: of all */
    int64_t init_peak_bytes, load_peak_bytes, peak_bytes;
    tl_generation generation;
    tl_evaluation evaluation;
} tl_infer_plan;
tl_status tl_infer_plan_make(const tl_infer_options *options, tl_infer_plan *plan, tl_error *error) TL_MUST_CHECK;
/* What is live of parameters, and the peaks of init and load, in a context that holds the net: planned or real. */
void tl_infer_plan_read(const tl_ctx *ctx, tl_infer_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
