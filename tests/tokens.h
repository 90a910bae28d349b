/* tokens.h: what tests of tokenizers share. Include it behind cmocka.h. */
#ifndef TL_TESTS_TOKENS_H
#define TL_TESTS_TOKENS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/tokenizer.h"

static inline tl_tokenizer *open_it(const char *path) {
    tl_error error = {0};
    tl_tokenizer *tokenizer = tl_tokenizer_open(path, NULL, &error);
    if (!tokenizer)
        fail_msg("%s", error.message);
    return tokenizer;
}

static inline void encode(const tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_special special,
                          tl_token_list *out) {
    tl_error error = {0};
    if (tl_tokenizer_encode(tokenizer, text, bytes, special, out, &error) != TL_OK)
        fail_msg("%s", error.message);
}

static inline void gives_ids(const tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_special special,
                             const int32_t *ids, size_t count) {
    tl_token_list list = {0};
    encode(tokenizer, text, bytes, special, &list);
    size_t same = 0;
    while (same < count && same < list.count && ids[same] == list.ids[same])
        same++;
    if (list.count != count || same < count)
        fail_msg("\"%s\": %zu ids, %zu wanted; id %zu is %d", text, list.count, count, same,
                 same < list.count ? (int)list.ids[same] : -1);
    tl_token_list_free(&list);
}
#define GIVES(tokenizer, text, special, ...)                                                                           \
    gives_ids(tokenizer, text, strlen(text), special, (const int32_t[]){__VA_ARGS__},                                  \
              sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* decode(encode(text)) and the same ids whatever the pieces. */
static inline void round_trips(const tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_special special) {
    tl_error error = {0};
    tl_token_list whole = {0}, pieces = {0};
    tl_token_text back = {0};
    encode(tokenizer, text, bytes, special, &whole);
    assert_int_equal(tl_tokenizer_decode(tokenizer, whole.ids, whole.count, &back, &error), TL_OK);
    assert_int_equal(back.count, bytes);
    if (bytes > 0)
        assert_memory_equal(back.bytes, text, bytes);
    tl_encoder *encoder = tl_encoder_new(tokenizer, special, NULL, &error);
    assert_non_null(encoder);
    for (size_t step = 1; step <= 4096; step = step * 3 + 1) {
        pieces.count = 0;
        for (size_t at = 0; at < bytes; at += step)
            assert_int_equal(
                tl_encoder_feed(encoder, text + at, bytes - at < step ? bytes - at : step, &pieces, &error), TL_OK);
        assert_int_equal(tl_encoder_finish(encoder, &pieces, &error), TL_OK);
        assert_int_equal(pieces.count, whole.count);
        if (whole.count > 0)
            assert_memory_equal(pieces.ids, whole.ids, whole.count * sizeof *whole.ids);
    }
    tl_encoder_free(encoder);
    tl_token_list_free(&whole);
    tl_token_list_free(&pieces);
    tl_token_text_free(&back);
}

#endif
