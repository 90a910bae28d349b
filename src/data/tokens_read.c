/* data/tokens_read.c: ids out of the mapping, and a look at all of them. */
#include "data/tokens.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int tl_tokens_shard_at(const tl_tokens *t, int64_t position) {
    int low = 0, high = t->count - 1; /* the last that begins at `position` or before it: empty ones are passed over */
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (t->shards[middle].file.first <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

const tl_token_file *tl_tokens_at(const tl_tokens *t, int64_t position) {
    return position >= 0 && position < t->total ? &t->shards[tl_tokens_shard_at(t, position)].file : NULL;
}

static int64_t id_at(const unsigned char *from, int width, bool is_signed) {
    uint16_t two;
    uint32_t four;
    int64_t eight;
    switch (width) {
    case 2:
        memcpy(&two, from, 2);
        return two;
    case 4:
        memcpy(&four, from, 4);
        return is_signed ? (int32_t)four : (int64_t)four;
    default:
        memcpy(&eight, from, 8);
        return eight;
    }
}

int64_t tl_tokens_id(const tl_token_shard *shard, int64_t index) {
    const tl_token_file *f = &shard->file;
    return id_at(shard->map + f->offset + index * f->width, f->width, f->is_signed);
}

/* Dropping pages of a shared mapping loses nothing: they are read again when they are wanted. Only the process lets go. */
void tl_tokens_drop(const tl_token_shard *shard, int64_t from, int64_t to) {
    const tl_token_file *f = &shard->file;
    const uintptr_t map = (uintptr_t)shard->map, group = TL_TOKENS_GROUP;
    uintptr_t low = (map + (uintptr_t)(f->offset + from * f->width)) & ~(group - 1);
    uintptr_t high = (map + (uintptr_t)(f->offset + to * f->width) + group - 1) & ~(group - 1);
    low = low < map ? map : low;
    high = high > map + shard->map_bytes ? map + shard->map_bytes : high;
    if (low < high)
        (void)madvise((void *)low, high - low, MADV_DONTNEED); /* a hint: nothing depends on it */
}

static const char *hint(const tl_token_file *f, int64_t id) {
    if (f->form == TL_TOKENS_RAW && f->width == 4 && id >= TL_TOKENS_MOST_IDS)
        return "; these look like uint16 ids read as uint32";
    return "";
}

static tl_status bad_id(const tl_token_file *f, int64_t index, int64_t id, int64_t vocab, tl_error *error) {
    if (id < 0)
        return tl_fail(error, TL_ERR_FORMAT, "%s: id %lld at index %lld is negative", f->path, (long long)id,
                       (long long)index);
    return tl_fail(error, TL_ERR_FORMAT, "%s: id %lld at index %lld is not below the vocabulary of %lld%s", f->path,
                   (long long)id, (long long)index, (long long)vocab, hint(f, id));
}

/* Ids of one shard. */
static tl_status read_shard(const tl_token_shard *shard, int64_t from, int64_t count, int64_t vocab, int32_t *ids,
                            tl_error *error) {
    const tl_token_file *f = &shard->file;
    const unsigned char *at = shard->map + f->offset + from * f->width;
    if (f->width == 2 && vocab > UINT16_MAX) { /* nothing to check */
        for (int64_t i = 0; i < count; i++)
            ids[i] = (int32_t)id_at(at + 2 * i, 2, false);
        return TL_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = id_at(at + i * f->width, f->width, f->is_signed);
        if ((uint64_t)id >= (uint64_t)vocab)
            return bad_id(f, from + i, id, vocab, error);
        ids[i] = (int32_t)id;
    }
    return TL_OK;
}

tl_status tl_tokens_read(const tl_tokens *t, int64_t first, int64_t count, int64_t vocab, int32_t *ids,
                         tl_error *error) {
    if (first < 0 || count < 0 || first > t->total || count > t->total - first)
        return tl_fail(error, TL_ERR_ARGUMENT, "%lld tokens from %lld on: there are %lld", (long long)count,
                       (long long)first, (long long)t->total);
    if (vocab < 0 || vocab > (INT64_C(1) << 31))
        return tl_fail(error, TL_ERR_ARGUMENT, "a vocabulary of %lld; 1 to 2^31 would work", (long long)vocab);
    const int64_t bound = vocab ? vocab : INT64_C(1) << 31;
    tl_status status = TL_OK;
    for (int i = count ? tl_tokens_shard_at(t, first) : 0; count > 0 && status == TL_OK; i++) {
        const tl_token_shard *shard = &t->shards[i];
        const int64_t from = first - shard->file.first, left = shard->file.count - from;
        const int64_t n = count < left ? count : left;
        if (n <= 0)
            continue;
        status = read_shard(shard, from, n, bound, ids, error);
        tl_tokens_drop(shard, from, from + n);
        ids += n;
        first += n;
        count -= n;
    }
    return status;
}

/* ---- a look at all ids ---- */

enum { BLOCK_BYTES = 4 << 20 };

typedef struct look {
    const tl_token_scan_options *options;
    tl_token_scan *scan;
    int64_t bound;
    /* of the file at hand: uint32 read as uint16 shows in every second id */
    int64_t odd, odd_high, odd_zero, even_low;
} look;

static void note_bad(look *l, const tl_token_shard *shard, int64_t index, int64_t id) {
    tl_token_scan *s = l->scan;
    tl_error why = {TL_OK, ""};
    if (s->bad++ > 0)
        return;
    s->first_bad = shard->file.first + index;
    s->first_bad_id = id;
    if (l->options->vocab == 0 && id >= 0)
        tl_fail(&why, TL_ERR_FORMAT, "%s: id %lld at index %lld is beyond any known vocabulary%s", shard->file.path,
                (long long)id, (long long)index, hint(&shard->file, id));
    else
        bad_id(&shard->file, index, id, l->bound, &why);
    snprintf(s->problem, sizeof s->problem, "%.*s", (int)sizeof s->problem - 1, why.message);
}

static void look_at(look *l, const tl_token_shard *shard, int64_t from, int64_t to) {
    const tl_token_scan_options *o = l->options;
    const tl_token_file *f = &shard->file;
    tl_token_scan *s = l->scan;
    const unsigned char *at = shard->map + f->offset + from * f->width;
    for (int64_t i = from; i < to; i++, at += f->width) {
        const int64_t id = id_at(at, f->width, f->is_signed);
        s->least = id < s->least ? id : s->least;
        s->most = id > s->most ? id : s->most;
        s->separators += id == o->separator;
        if ((uint64_t)id >= (uint64_t)l->bound)
            note_bad(l, shard, i, id);
        if ((uint64_t)id < (uint64_t)o->histogram_size)
            o->histogram[id]++;
        if (i % 2) {
            l->odd++;
            l->odd_high += id >= TL_TOKENS_HIGH_HALF;
            l->odd_zero += id == 0;
        } else {
            l->even_low += id < TL_TOKENS_HIGH_HALF;
        }
    }
}

/* Every second id below 4, and the others not: halves of four bytes. Few ids may be so by chance, unless those are all 0. */
static bool is_halved(const look *l, const tl_token_file *f) {
    const int64_t even = f->count - l->odd;
    return f->form == TL_TOKENS_RAW && f->width == 2 && f->count % 2 == 0 && l->odd >= 2 && l->odd_high == 0 &&
           (l->odd >= 16 || l->odd_zero == l->odd) && l->even_low * 10 <= even * 9;
}

static void note_halved(look *l, const tl_token_shard *shard) {
    tl_token_scan *s = l->scan;
    const bool first = s->first_bad < 0 || s->first_bad > shard->file.first + 1;
    const bool here = !first && s->first_bad >= shard->file.first;
    s->bad += l->odd;
    if (first) {
        s->first_bad = shard->file.first + 1;
        s->first_bad_id = tl_tokens_id(shard, 1);
    }
    if (!first && !here)
        return; /* an earlier file has said what is wrong */
    snprintf(s->problem, sizeof s->problem,
             "%.300s: id %lld at index %lld: every second id (1, 3, 5, …) is below %d, %lld of %lld are 0: these look "
             "like uint32 ids read as uint16",
             shard->file.path, (long long)s->first_bad_id, (long long)(s->first_bad - shard->file.first),
             TL_TOKENS_HIGH_HALF, (long long)l->odd_zero, (long long)l->odd);
}

tl_status tl_tokens_scan(const tl_tokens *t, const tl_token_scan_options *options, tl_token_scan *scan,
                         tl_error *error) {
    look l = {.options = options, .scan = scan};
    *scan = (tl_token_scan){.least = INT64_MAX, .most = INT64_MIN, .first_bad = -1};
    if (options->vocab < 0 || options->vocab > (INT64_C(1) << 31))
        return tl_fail(error, TL_ERR_ARGUMENT, "a vocabulary of %lld; 1 to 2^31 would work", (long long)options->vocab);
    for (int i = 0; i < t->count; i++) {
        const tl_token_shard *shard = &t->shards[i];
        const int64_t count = shard->file.count, block = BLOCK_BYTES / (shard->file.width ? shard->file.width : 1);
        const bool bare = shard->file.form == TL_TOKENS_RAW && shard->file.width == 4;
        l.bound = options->vocab ? options->vocab : bare ? TL_TOKENS_MOST_IDS : INT64_C(1) << 31;
        l.odd = l.odd_high = l.odd_zero = l.even_low = 0;
        if (shard->map)
            (void)madvise((void *)(uintptr_t)shard->map, shard->map_bytes, MADV_SEQUENTIAL);
        for (int64_t from = 0; from < count; from += block) {
            const int64_t to = count - from < block ? count : from + block;
            look_at(&l, shard, from, to);
            tl_tokens_drop(shard, from, to);
        }
        if (shard->map)
            (void)madvise((void *)(uintptr_t)shard->map, shard->map_bytes, MADV_RANDOM);
        if (is_halved(&l, &shard->file))
            note_halved(&l, shard);
        scan->count += count;
    }
    if (scan->count == 0)
        scan->least = scan->most = 0;
    return TL_OK;
}
