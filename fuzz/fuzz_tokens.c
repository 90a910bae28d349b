/* Any bytes at all as a file of tokens, in every form and width: read or refused with a message; what is read is within the
 * bounds that were asked for, the same at any place, sampled, and the same when written again. */
#include "tally/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4096 };

static void check(bool good) {
    if (!good)
        abort();
}

static void check_message(const tl_error *error) {
    check(error->status != TL_OK && error->message[0] != '\0');
    for (const char *c = error->message; *c != '\0'; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void write_again(const int32_t *ids, int64_t n, const char *out) {
    static int32_t again[MOST];
    for (int form = TL_TOKENS_RAW; form <= TL_TOKENS_NPY; form++)
        for (int width = 2; width <= 4; width += 2) {
            tl_error error = {TL_OK, ""};
            bool fits = true;
            for (int64_t i = 0; i < n; i++)
                fits = fits && (width == 4 || ids[i] <= 65535);
            tl_token_writer *w = tl_token_writer_new(out, (tl_token_form)form, width, NULL, &error);
            check(w);
            tl_status status = tl_token_writer_put(w, ids, n, &error);
            check((status == TL_OK) == fits);
            check(tl_token_writer_end(w, status, &error) == status);
            if (!fits) {
                check_message(&error);
                check(access(out, F_OK) != 0);
                continue;
            }
            tl_tokens_options o = {(tl_token_form)form, width};
            tl_tokens *t = tl_tokens_open(&out, 1, &o, NULL, &error);
            /* As raw ids some look like another file's header, or like text: that is said. */
            check(t || form == TL_TOKENS_RAW);
            if (t) {
                check(tl_tokens_count(t) == n && tl_tokens_read(t, 0, n, 0, again, &error) == TL_OK);
                check(memcmp(ids, again, (size_t)n * sizeof *ids) == 0);
            }
            tl_tokens_close(t);
            check(unlink(out) == 0);
        }
}

/* Written again, unless `out` is NULL? */
static bool use(const tl_tokens *t, int64_t vocab, const char *out) {
    static int32_t ids[MOST], input[MOST], target[MOST];
    tl_error error = {TL_OK, ""};
    tl_token_scan scan;
    const int64_t n = tl_tokens_count(t) < MOST ? tl_tokens_count(t) : MOST;
    check(tl_tokens_scan(t, &(tl_token_scan_options){.vocab = vocab, .separator = 7}, &scan, &error) == TL_OK);
    check(scan.count == tl_tokens_count(t) && (scan.bad > 0) == (scan.first_bad >= 0));
    check((scan.bad > 0) == (scan.problem[0] != '\0'));
    check(scan.first_bad < scan.count && (scan.bad == 0 || tl_tokens_at(t, scan.first_bad)));
    if (tl_tokens_read(t, 0, n, vocab, ids, &error) != TL_OK) {
        check_message(&error);
        check(scan.bad > 0);
        return false;
    }
    for (int64_t i = 0; i < n; i++)
        check(ids[i] >= 0 && (!vocab || ids[i] < vocab) && ids[i] >= scan.least && ids[i] <= scan.most);
    for (int kind = TL_SAMPLER_RANDOM; kind <= TL_SAMPLER_IN_ORDER; kind++) {
        tl_sampler s;
        /* A permutation of few is walked for long (base/random.h): of two windows 128 networks each time. Short windows of epochs
         * leave most of the time to the reader. */
        tl_sampler_options o = {.kind = (tl_sampler_kind)kind,
                                .seq = 1 + n / (kind == TL_SAMPLER_EPOCHS ? 60 : 3),
                                .seed = (uint64_t)vocab,
                                .vocab = vocab,
                                .separator = 7,
                                .ignore_boundaries = true};
        error = (tl_error){TL_OK, ""};
        if (tl_sampler_init(&s, t, &o, &error) != TL_OK) {
            check_message(&error);
            check(n <= o.seq);
            continue;
        }
        for (uint64_t i = 0; i < (kind == TL_SAMPLER_EPOCHS ? 3 : 9); i++) {
            const int64_t start = tl_sampler_start(&s, i);
            check(start >= 0 && start + o.seq < tl_tokens_count(t));
            if (tl_sampler_window(&s, i, input, target, &error) == TL_OK && start + o.seq < n)
                check(memcmp(input, ids + start, (size_t)o.seq * sizeof *ids) == 0);
        }
    }
    if (out)
        write_again(ids, n, out);
    return out != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[64], out[64];
    bool written =
        false; /* each write is flushed to the disk: once an input is enough, and in memory where that can be */
    if (!path[0]) {
        const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(path, sizeof path, "%s/fuzz-tokens-%ld", folder, (long)getpid());
        snprintf(out, sizeof out, "%s/fuzz-tokens-%ld.out", folder, (long)getpid());
    }
    FILE *file = fopen(path, "wb");
    check(file && fwrite(data, 1, size, file) == size);
    check(fclose(file) == 0);
    const char *list[1] = {path};
    for (int form = TL_TOKENS_ANY; form <= TL_TOKENS_NPY; form++)
        for (int width = 0; width <= 4; width += 2) {
            tl_error error = {TL_OK, ""};
            tl_token_file f;
            const tl_tokens_options o = {(tl_token_form)form, width};
            /* A header alone: the ids may be as many as it says. */
            if (tl_tokens_parse(data, size, (int64_t)size, "fuzz.bin", &o, &f, &error) != TL_OK)
                check_message(&error);
            error = (tl_error){TL_OK, ""};
            tl_tokens *t = tl_tokens_open(list, 1, &o, NULL, &error);
            if (t)
                written |= use(t, size > 2 ? data[size / 2] : 0, written ? NULL : out);
            else
                check_message(&error);
            tl_tokens_close(t);
        }
    (void)unlink(path);
    return 0;
}
