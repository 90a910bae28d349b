/* The next token: softmax in double, top-k and top-p by a heap that gives up the largest one by one, a draw by its number. */
#include "tally/sample.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/stream.h"

struct tl_sample {
    tl_allocator allocator;
    tl_sample_options options;
    int64_t vocab;
    double *weight; /* e^((logit − largest)/temperature); 0: left out */
    double *chosen; /* the same of those that stay */
    int64_t *heap;  /* ids, the largest first */
    int64_t heaped;
};

tl_sample_options tl_sample_defaults(void) { return (tl_sample_options){.temperature = 1, .top_p = 1}; }

static tl_status check_options(const tl_sample_options *o, int64_t vocab, tl_error *error) {
    if (vocab < 1 || vocab > INT32_MAX)
        return tl_fail(error, TL_ERR_ARGUMENT, "logits of %lld tokens; 1 to 2^31 − 1 would work", (long long)vocab);
    if (!(o->temperature >= 0 && o->temperature <= 1.7976931348623157e308))
        return tl_fail(error, TL_ERR_ARGUMENT, "a temperature of %g; 0 (greedy) or a positive number would work",
                       o->temperature);
    if (o->temperature == 0)
        return TL_OK;
    if (o->top_k < 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "top-k %lld; 0 (all) or more would work", (long long)o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return tl_fail(error, TL_ERR_ARGUMENT, "top-p %g; above 0 and at most 1 (all) would work", o->top_p);
    return TL_OK;
}

static void *take(const tl_allocator *from, size_t bytes) {
    return from->alloc(from->self, bytes, sizeof(double), TL_ALLOC_HOST);
}

static void give(const tl_allocator *to, void *pointer, size_t bytes) {
    if (pointer)
        to->release(to->self, pointer, bytes, TL_ALLOC_HOST);
}

tl_sample *tl_sample_new(const tl_allocator *allocator, int64_t vocab, const tl_sample_options *options,
                         tl_error *error) {
    const tl_allocator *from = allocator ? allocator : tl_allocator_default();
    if (check_options(options, vocab, error) != TL_OK)
        return NULL;
    tl_sample *s = take(from, sizeof *s);
    if (s) {
        *s = (tl_sample){.allocator = *from, .options = *options, .vocab = vocab};
        s->weight = take(from, (size_t)vocab * sizeof *s->weight);
        s->chosen = take(from, (size_t)vocab * sizeof *s->chosen);
        s->heap = take(from, (size_t)vocab * sizeof *s->heap);
        if (s->weight && s->chosen && s->heap)
            return s;
        tl_sample_free(s);
    }
    tl_fail(error, TL_ERR_MEMORY, "no memory to draw from %lld tokens", (long long)vocab);
    return NULL;
}

void tl_sample_free(tl_sample *s) {
    if (!s)
        return;
    tl_allocator to = s->allocator;
    give(&to, s->weight, (size_t)s->vocab * sizeof *s->weight);
    give(&to, s->chosen, (size_t)s->vocab * sizeof *s->chosen);
    give(&to, s->heap, (size_t)s->vocab * sizeof *s->heap);
    give(&to, s, sizeof *s);
}

static tl_status check_logits(const tl_sample *s, const double *logits, int64_t *best, tl_error *error) {
    *best = 0;
    for (int64_t i = 0; i < s->vocab; i++) {
        if (logits[i] != logits[i] || logits[i] > 1.7976931348623157e308)
            return tl_fail(error, TL_ERR_ARGUMENT, "the logit of token %lld is %s: the net's numbers have run away",
                           (long long)i, logits[i] != logits[i] ? "NaN" : "infinite");
        if (logits[i] > logits[*best])
            *best = i;
    }
    if (logits[*best] < -1.7976931348623157e308)
        return tl_fail(error, TL_ERR_ARGUMENT, "all %lld logits are −infinity: there is no token to take",
                       (long long)s->vocab);
    return TL_OK;
}

/* Does one token come before another? The larger logit, of equals the lower id. By logits, not weights: exp may make two of
 * them equal. */
static bool before(const double *logits, int64_t one, int64_t other) {
    double mine = logits[one], its = logits[other];
    return mine > its || (mine == its && one < other);
}

static void sink(tl_sample *s, const double *logits, int64_t at) {
    int64_t id = s->heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= s->heaped)
            break;
        if (child + 1 < s->heaped && before(logits, s->heap[child + 1], s->heap[child]))
            child++;
        if (!before(logits, s->heap[child], id))
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = id;
}

static void heap_fill(tl_sample *s, const double *logits) {
    s->heaped = s->vocab;
    for (int64_t i = 0; i < s->vocab; i++)
        s->heap[i] = i;
    for (int64_t i = s->vocab / 2 - 1; i >= 0; i--)
        sink(s, logits, i);
}

/* The largest that is left, put behind the heap: after n calls heap[vocab − 1 … vocab − n] are the first n in order. */
static int64_t heap_take(tl_sample *s, const double *logits) {
    int64_t top = s->heap[0];
    s->heap[0] = s->heap[--s->heaped];
    s->heap[s->heaped] = top;
    if (s->heaped > 0)
        sink(s, logits, 0);
    return top;
}

/* Of the tokens in order, the first k, and of those as few as reach p; their weights go to chosen. */
static void choose(tl_sample *s, const double *logits) {
    const tl_sample_options *o = &s->options;
    int64_t most = o->top_k && o->top_k < s->vocab ? o->top_k : s->vocab;
    double all = 0, sum = 0;
    memset(s->chosen, 0, (size_t)s->vocab * sizeof *s->chosen);
    heap_fill(s, logits);
    if (most == s->vocab) {
        for (int64_t i = 0; i < s->vocab; i++)
            all += s->weight[i];
    } else {
        for (int64_t i = 0; i < most; i++)
            all += s->weight[heap_take(s, logits)];
    }
    for (int64_t i = 0; i < most && (i == 0 || o->top_p == 1 || sum < o->top_p * all); i++) {
        int64_t id = most == s->vocab ? heap_take(s, logits) : s->heap[s->vocab - 1 - i];
        s->chosen[id] = s->weight[id];
        sum += s->weight[id];
    }
}

/* Weights of what stays in chosen; their sum in order of ids. */
static tl_status prepare(tl_sample *s, const double *logits, double *sum, tl_error *error) {
    int64_t best = 0;
    tl_status status = check_logits(s, logits, &best, error);
    if (status != TL_OK)
        return status;
    if (s->options.temperature == 0) {
        memset(s->chosen, 0, (size_t)s->vocab * sizeof *s->chosen);
        s->chosen[best] = *sum = 1;
        return TL_OK;
    }
    for (int64_t i = 0; i < s->vocab; i++)
        s->weight[i] = exp((logits[i] - logits[best]) / s->options.temperature);
    if ((s->options.top_k && s->options.top_k < s->vocab) || s->options.top_p < 1)
        choose(s, logits);
    else
        memcpy(s->chosen, s->weight, (size_t)s->vocab * sizeof *s->chosen);
    *sum = 0;
    for (int64_t i = 0; i < s->vocab; i++)
        *sum += s->chosen[i];
    return TL_OK;
}

tl_status tl_sample_probabilities(tl_sample *s, const double *logits, double *probability, int64_t *kept,
                                  tl_error *error) {
    double sum = 0;
    tl_status status = prepare(s, logits, &sum, error);
    if (kept)
        *kept = 0;
    for (int64_t i = 0; i < s->vocab && status == TL_OK; i++) {
        probability[i] = s->chosen[i] / sum;
        if (kept)
            *kept += s->chosen[i] > 0;
    }
    return status;
}

tl_status tl_sample_next(tl_sample *s, const double *logits, uint64_t sequence, uint64_t index, int32_t *token,
                         tl_error *error) {
    double sum = 0, reached = 0;
    char name[24];
    tl_status status = prepare(s, logits, &sum, error);
    if (status != TL_OK)
        return status;
    snprintf(name, sizeof name, "%llu", (unsigned long long)sequence);
    double u = s->options.temperature == 0
                   ? 0
                   : tl_random_uniform_f64(s->options.seed, tl_stream_id("sample", name), index) * sum;
    for (int64_t i = 0; i < s->vocab; i++) {
        if (s->chosen[i] == 0)
            continue;
        *token = (int32_t)i; /* the last that can be drawn, should rounding leave u beyond them all */
        reached += s->chosen[i];
        if (reached > u)
            break;
    }
    return TL_OK;
}
