/* tally/data.h: data to train on. In this build: sums.
 *
 * Sums: "137+485=622". Both numbers have three digits (100 … 999), so there are 810,000 ordered pairs. A pair (a, b) and
 * its mirror (b, a) are held out together, by a hash of the two numbers that no seed enters: about one pair in sixteen.
 * Training draws from the others alone, so an exact answer to a held-out sum was computed, not remembered.
 *
 * Encoding, TL_SUMS_LENGTH characters: "137+485= 622" or "900+900=1800": digits in the usual order, the answer flush right
 * in four places as in a column of sums, with a blank and no zero in front. The model learns the answer's four characters
 * only: all other targets are TL_IGNORE_INDEX.
 */
#ifndef TALLY_DATA_H
#define TALLY_DATA_H

#include "tally/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_SUMS_VOCAB 13 /* "0123456789+= ": the blank also fills up longer sequences */
#define TL_SUMS_QUESTION 8
#define TL_SUMS_ANSWER 4
#define TL_SUMS_LENGTH (TL_SUMS_QUESTION + TL_SUMS_ANSWER)
/* Tokens the model sees: the last character is only ever a target. */
#define TL_SUMS_SEQ (TL_SUMS_LENGTH - 1)

typedef struct tl_sums tl_sums;

/* Training order from `seed`. NULL with *error filled. */
tl_sums *tl_sums_new(const tl_allocator *allocator, uint64_t seed, tl_error *error);
void tl_sums_free(tl_sums *sums);

/* Is this pair (and so its mirror) kept from training? */
bool tl_sums_is_held_out(int a, int b);
/* Training example i, the same for the same (seed, i) on any machine; any i, drawn with replacement. */
void tl_sums_training(const tl_sums *sums, uint64_t index, int *a, int *b);
int64_t tl_sums_held_out_count(const tl_sums *sums);
/* Held-out pair i of tl_sums_held_out_count, in an order that is shuffled and always the same. */
void tl_sums_held_out(const tl_sums *sums, int64_t index, int *a, int *b);

/* One example: seq ≥ TL_SUMS_SEQ tokens and as many targets; target t is the character after token t. */
void tl_sums_encode(int a, int b, int64_t seq, int32_t *tokens, int32_t *targets);
/* The character of a token; '?' outside the vocabulary. */
char tl_sums_character(int64_t token);

/* The next micro_batch training examples as tensors i32 [B,T] (category data) in the current scope, dims named B and T as
 * the training step names them. The position (examples drawn so far) is part of a checkpoint. */
tl_status tl_sums_batch(tl_sums *sums, tl_ctx *ctx, int64_t micro_batch, int64_t seq, tl_tensor **input,
                        tl_tensor **target) TL_MUST_CHECK;
uint64_t tl_sums_position(const tl_sums *sums);
void tl_sums_seek(tl_sums *sums, uint64_t position);

typedef struct tl_sums_answer {
    int a, b;
    int answer;    /* what the model wrote, read as a number; −1: no number */
    char text[16]; /* as a person writes it: "137+485=622" */
    bool right;
} tl_sums_answer;
typedef struct tl_sums_score {
    int64_t asked, right;
} tl_sums_score;
/* Asks the net `count` held-out sums from `first` on, batch by batch: greedy decoding, digit by digit, each digit fed back.
 * The first `n_answers` are kept in `answers` (may be NULL). Nothing is recorded and dropout is off meanwhile. The ledger's
 * log starts with it. On meta the same forwards run, nothing is asked and `sums` may be NULL. */
tl_status tl_sums_evaluate(const tl_sums *sums, tl_net *net, tl_ctx *ctx, int64_t first, int64_t count, int64_t batch,
                           tl_sums_score *score, tl_sums_answer *answers, int n_answers) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
