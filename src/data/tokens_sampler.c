/* data/tokens_sampler.c: which windows of a stream are drawn. Nothing is kept but the options: window i is computed from i. */
#include "tally/tokens.h"

#include <string.h>

#include "base/random.h"
#include "base/stream.h"

static tl_status check_documents(const tl_sampler_options *o, int64_t total, tl_error *error) {
    if (o->document_count < 0 || (o->document_count > 0 && !o->documents))
        return tl_fail(error, TL_ERR_ARGUMENT, "%lld documents without their positions", (long long)o->document_count);
    for (int64_t i = 0; i < o->document_count; i++) {
        if (o->documents[i] < 0 || o->documents[i] > total)
            return tl_fail(error, TL_ERR_ARGUMENT, "document %lld begins at %lld of a stream of %lld tokens",
                           (long long)i, (long long)o->documents[i], (long long)total);
        if (i && o->documents[i] < o->documents[i - 1])
            return tl_fail(error, TL_ERR_ARGUMENT, "document %lld begins at %lld, before the one before it (%lld)",
                           (long long)i, (long long)o->documents[i], (long long)o->documents[i - 1]);
    }
    return TL_OK;
}

tl_status tl_sampler_init(tl_sampler *s, const tl_tokens *tokens, const tl_sampler_options *o, tl_error *error) {
    const int64_t n = tl_tokens_count(tokens), T = o->seq;
    const tl_token_file *first = tl_tokens_file(tokens, 0);
    const char *name = first ? first->path : "the stream", *more = tl_tokens_files(tokens) > 1 ? " and the others" : "";
    if (T < 1 || T > (INT64_C(1) << 40))
        return tl_fail(error, TL_ERR_ARGUMENT, "windows of %lld tokens; 1 or more would work", (long long)T);
    if ((unsigned)o->kind > TL_SAMPLER_IN_ORDER)
        return tl_fail(error, TL_ERR_ARGUMENT, "there is no sampler %d", (int)o->kind);
    if (n < 2)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s%s: %s; a window of %lld needs %lld, the last of them as a target",
                       name, more, n ? "1 token" : "no tokens", (long long)T, (long long)T + 1);
    if (n - 1 < T) /* both are small and positive: nothing wraps */
        return tl_fail(
            error, TL_ERR_ARGUMENT,
            "%s%s: %lld tokens; a window of %lld needs %lld, the last of them as a target: windows of %lld or "
            "fewer would work",
            name, more, (long long)n, (long long)T, (long long)T + 1, (long long)n - 1);
    if (o->ignore_boundaries && o->separator < 0 && !o->documents)
        return tl_fail(
            error, TL_ERR_ARGUMENT,
            "targets across documents cannot be ignored where no separator and no positions of documents are "
            "named");
    const tl_status status = check_documents(o, n, error);
    if (status != TL_OK)
        return status;
    *s = (tl_sampler){.tokens = tokens, .options = *o, .stream = tl_stream_id("data", "windows")};
    s->windows = o->kind == TL_SAMPLER_RANDOM ? n - T : (n - 1) / T;
    return TL_OK;
}

int64_t tl_sampler_start(const tl_sampler *s, uint64_t index) {
    const uint64_t windows = (uint64_t)s->windows;
    const tl_sampler_options *o = &s->options;
    switch (o->kind) {
    case TL_SAMPLER_RANDOM:
        return (int64_t)tl_random_below(o->seed, s->stream, index, windows);
    case TL_SAMPLER_EPOCHS:
        return o->seq * (int64_t)tl_random_permute(o->seed, s->stream, index / windows, windows, index % windows);
    default:
        return o->seq * (int64_t)(index % windows);
    }
}

static int64_t first_document_from(const tl_sampler_options *o, int64_t position) {
    int64_t low = 0, high = o->document_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (o->documents[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where a document's first token is the target. */
static void ignore_boundaries(const tl_sampler_options *o, int64_t start, const int32_t *input, int32_t *target) {
    const int64_t T = o->seq;
    for (int64_t i = first_document_from(o, start + 1); i < o->document_count && o->documents[i] <= start + T; i++)
        target[o->documents[i] - start - 1] = TL_IGNORE_INDEX;
    if (o->separator < 0)
        return;
    for (int64_t t = 0; t < T; t++)
        if ((o->separator_begins ? target[t] : input[t]) == o->separator)
            target[t] = TL_IGNORE_INDEX;
}

void tl_sampler_positions(const tl_sampler *s, uint64_t index, const int32_t *input, int32_t *positions) {
    const tl_sampler_options *o = &s->options;
    const int64_t start = tl_sampler_start(s, index), T = o->seq;
    int64_t document = first_document_from(o, start), begin = 0;
    for (int64_t t = 0; t < T; t++) {
        for (; document < o->document_count && o->documents[document] <= start + t; document++)
            begin = t;
        if (o->separator >= 0 &&
            (o->separator_begins ? input[t] == o->separator : t > 0 && input[t - 1] == o->separator))
            begin = t;
        positions[t] = (int32_t)(t - begin);
    }
}

tl_status tl_sampler_window(const tl_sampler *s, uint64_t index, int32_t *input, int32_t *target, tl_error *error) {
    const tl_sampler_options *o = &s->options;
    const int64_t start = tl_sampler_start(s, index), T = o->seq;
    tl_status status = tl_tokens_read(s->tokens, start, T, o->vocab, input, error);
    if (status == TL_OK)
        status = tl_tokens_read(s->tokens, start + T, 1, o->vocab, target + T - 1, error);
    if (status != TL_OK)
        return status;
    memcpy(target, input + 1, (size_t)(T - 1) * sizeof *target);
    if (o->ignore_boundaries)
        ignore_boundaries(o, start, input, target);
    return TL_OK;
}
