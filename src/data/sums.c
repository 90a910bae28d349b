/* data/sums.c: which sums are trained on, which are held out, how they are written. */
#include "tally/data.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "tensor/ctx.h"

enum { LOW = 100, NUMBERS = 900, HELD_OUT_ONE_IN = 16, ATTEMPTS = 64 };

static const char characters[TL_SUMS_VOCAB + 1] = "0123456789+= ";
enum { PLUS = 10, EQUALS = 11, BLANK = 12 };

struct tl_sums {
    tl_allocator allocator;
    uint64_t seed, stream, position;
    int64_t held_out_count;
    uint32_t *held_out; /* (a − LOW)·NUMBERS + (b − LOW), shuffled */
    int32_t *tokens;    /* of a batch, then its targets */
    int64_t capacity;   /* of each */
};

/* splitmix64's finisher (Steele, Lea, Flood 2014): every bit of the pair reaches every bit of the hash. */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

bool tl_sums_is_held_out(int a, int b) {
    int low = a < b ? a : b, high = a < b ? b : a;
    return mix((uint64_t)low * 1000 + (uint64_t)high) % HELD_OUT_ONE_IN == 0;
}

static int64_t list_held_out(uint32_t *list) {
    int64_t n = 0;
    for (int a = LOW; a < LOW + NUMBERS; a++)
        for (int b = LOW; b < LOW + NUMBERS; b++)
            if (tl_sums_is_held_out(a, b)) {
                if (list)
                    list[n] = (uint32_t)((a - LOW) * NUMBERS + (b - LOW));
                n++;
            }
    return n;
}

tl_sums *tl_sums_new(const tl_allocator *allocator, uint64_t seed, tl_error *error) {
    const tl_allocator *from = allocator ? allocator : tl_allocator_default();
    tl_sums *s = from->alloc(from->self, sizeof *s, 16, TL_ALLOC_HOST);
    int64_t n = list_held_out(NULL);
    uint32_t *list = s ? from->alloc(from->self, (size_t)n * sizeof *list, 16, TL_ALLOC_HOST) : NULL;
    if (!list) {
        if (s)
            from->release(from->self, s, sizeof *s, TL_ALLOC_HOST);
        tl_fail(error, TL_ERR_MEMORY, "no memory for the list of held-out sums");
        return NULL;
    }
    *s = (tl_sums){.allocator = *from,
                   .seed = seed,
                   .stream = tl_stream_id("data", "sums"),
                   .held_out_count = n,
                   .held_out = list};
    list_held_out(list);
    for (int64_t i = n - 1; i > 0; i--) { /* Fisher and Yates, as Durstenfeld 1964 */
        int64_t j = (int64_t)tl_random_below(0, s->stream, (uint64_t)i, (uint64_t)i + 1);
        uint32_t swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
    return s;
}

void tl_sums_free(tl_sums *s) {
    if (!s)
        return;
    tl_allocator from = s->allocator;
    from.release(from.self, s->held_out, (size_t)s->held_out_count * sizeof *s->held_out, TL_ALLOC_HOST);
    if (s->tokens)
        from.release(from.self, s->tokens, (size_t)s->capacity * 2 * sizeof *s->tokens, TL_ALLOC_HOST);
    from.release(from.self, s, sizeof *s, TL_ALLOC_HOST);
}

void tl_sums_training(const tl_sums *s, uint64_t index, int *a, int *b) {
    for (uint64_t attempt = 0;; attempt++) { /* sixteen in seventeen end at the first */
        uint32_t word[4];
        tl_random_u32x4(s->seed, s->stream + 1 + attempt % ATTEMPTS, index, word);
        for (int i = 0; i < 4; i += 2) {
            *a = LOW + (int)(((uint64_t)word[i] * NUMBERS) >> 32);
            *b = LOW + (int)((((uint64_t)word[i + 1] * NUMBERS) >> 32) + attempt / ATTEMPTS) % NUMBERS;
            if (!tl_sums_is_held_out(*a, *b))
                return;
        }
    }
}

int64_t tl_sums_held_out_count(const tl_sums *s) { return s->held_out_count; }

void tl_sums_held_out(const tl_sums *s, int64_t index, int *a, int *b) {
    uint32_t pair = s->held_out[index % s->held_out_count];
    *a = LOW + (int)(pair / NUMBERS);
    *b = LOW + (int)(pair % NUMBERS);
}

/* "137+485= 622": the answer's digits stand in the same places whether it has three or four. */
static void write_sum(int a, int b, int32_t text[TL_SUMS_LENGTH]) {
    int sum = a + b, divisor = 100;
    for (int i = 0; i < 3; i++, divisor /= 10) {
        text[i] = a / divisor % 10;
        text[4 + i] = b / divisor % 10;
    }
    text[3] = PLUS;
    text[7] = EQUALS;
    divisor = 1000;
    for (int i = 0; i < TL_SUMS_ANSWER; i++, divisor /= 10)
        text[TL_SUMS_QUESTION + i] = sum < divisor ? BLANK : sum / divisor % 10;
}

void tl_sums_encode(int a, int b, int64_t seq, int32_t *tokens, int32_t *targets) {
    int32_t text[TL_SUMS_LENGTH];
    write_sum(a, b, text);
    for (int64_t t = 0; t < seq; t++) {
        bool answer = t + 1 >= TL_SUMS_QUESTION && t + 1 < TL_SUMS_LENGTH;
        tokens[t] = t < TL_SUMS_SEQ ? text[t] : BLANK;
        targets[t] = answer ? text[t + 1] : TL_IGNORE_INDEX;
    }
}

char tl_sums_character(int64_t token) { return token >= 0 && token < TL_SUMS_VOCAB ? characters[token] : '?'; }

uint64_t tl_sums_position(const tl_sums *s) { return s->position; }

void tl_sums_seek(tl_sums *s, uint64_t position) { s->position = position; }

static tl_status room(tl_sums *s, int64_t count, tl_error *error) {
    if (count <= s->capacity)
        return TL_OK;
    tl_allocator *from = &s->allocator;
    int32_t *more = from->alloc(from->self, (size_t)count * 2 * sizeof *more, 16, TL_ALLOC_HOST);
    if (!more)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for a batch of %lld tokens", (long long)count);
    if (s->tokens)
        from->release(from->self, s->tokens, (size_t)s->capacity * 2 * sizeof *s->tokens, TL_ALLOC_HOST);
    s->tokens = more;
    s->capacity = count;
    return TL_OK;
}

static tl_status check_sizes(int64_t micro_batch, int64_t seq, int64_t *count, tl_error *error) {
    if (seq < TL_SUMS_SEQ)
        return tl_fail(error, TL_ERR_ARGUMENT, "a sequence of %lld tokens: a sum needs %d", (long long)seq,
                       TL_SUMS_SEQ);
    if (micro_batch < 1 || !tl_mul_i64(micro_batch, seq, count) || *count > INT64_MAX / 16)
        return tl_fail(error, TL_ERR_ARGUMENT, "%lld sums of %lld tokens: 1 or more that fit in memory would work",
                       (long long)micro_batch, (long long)seq);
    return TL_OK;
}

tl_status tl_sums_batch(tl_sums *s, tl_ctx *ctx, int64_t micro_batch, int64_t seq, tl_tensor **input,
                        tl_tensor **target) {
    tl_error error = {TL_OK, ""};
    int64_t count = 0;
    tl_status status = check_sizes(micro_batch, seq, &count, &error);
    if (status == TL_OK)
        status = room(s, count, &error);
    if (status != TL_OK)
        return tl_ctx_fail(ctx, error.status, "%s", error.message);
    int32_t *targets = s->tokens + count;
    for (int64_t i = 0; i < micro_batch; i++) {
        int a, b;
        tl_sums_training(s, s->position + (uint64_t)i, &a, &b);
        tl_sums_encode(a, b, seq, s->tokens + i * seq, targets + i * seq);
    }
    s->position += (uint64_t)micro_batch;
    tl_dim B = tl_dim_named(tl_dim_symbol(ctx, "B", micro_batch, "micro-batch"), "batch");
    tl_dim T = tl_dim_named(tl_dim_symbol(ctx, "T", seq, "sequence length"), "seq");
    *input = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, B, T), TL_DATA, s->tokens, count);
    *target = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, B, T), TL_DATA, targets, count);
    return tl_ctx_status(ctx);
}
