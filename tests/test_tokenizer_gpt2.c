/* GPT-2's vocabulary and merges, read from TALLY_SHARED/suites/cs336/tokenizer, against an independent encoder's ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tokens.h"

#include "fixtures/gpt2_tokens.h"

static char folder[1024];
static tl_tokenizer *gpt2;

static int set_up(void **state) {
    const char *shared = getenv("TALLY_SHARED");
    char path[1200];
    (void)state;
    (void)snprintf(folder, sizeof folder, "%s/suites/cs336/tokenizer", shared ? shared : "../shared");
    (void)snprintf(path, sizeof path, "%s/gpt2_vocab.json", folder);
    FILE *file = fopen(path, "rb");
    if (!file) {
        print_message("SKIPPED: %s cannot be read; set TALLY_SHARED\n", path);
        return 0;
    }
    (void)fclose(file);
    gpt2 = open_it(folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    tl_tokenizer_free(gpt2);
    return 0;
}

static char *read_file(const char *name, size_t *length) {
    char path[1200];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = malloc((size_t)1 << 20);
    assert_non_null(text);
    *length = fread(text, 1, (size_t)1 << 20, file);
    (void)fclose(file);
    return text;
}

/* FNV-1a over little-endian 32-bit ids, as the fixture's script has it. */
static uint64_t hash_of(const int32_t *ids, size_t count) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < count; i++)
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ ((uint32_t)ids[i] >> shift & 0xFF)) * 0x100000001B3u;
    return hash;
}

static void says_what_it_is(void **state) {
    (void)state;
    if (!gpt2)
        skip();
    size_t length;
    assert_int_equal(tl_tokenizer_size(gpt2), 50257); /* Radford et al. 2019, section 2.2 */
    assert_int_equal(tl_tokenizer_entries(gpt2), 50257);
    assert_int_equal(tl_tokenizer_end_of_text(gpt2), 50256);
    assert_true(tl_tokenizer_is_special(gpt2, 50256));
    assert_false(tl_tokenizer_is_special(gpt2, 50255));
    assert_string_equal(tl_tokenizer_describe(gpt2), "byte-level BPE, 50257 tokens, 50000 merges");
    assert_memory_equal(tl_tokenizer_bytes(gpt2, 995, &length), " world", 6);
    assert_int_equal(length, 6);
    assert_int_equal(tl_tokenizer_find(gpt2, " world", 6), 995);
    assert_null(tl_tokenizer_bytes(gpt2, 50257, &length));
}

/* Published: openai/tiktoken, tests/test_simple_public.py and tests/test_encoding.py ("gpt2"); keith2018/TinyGPT's tests;
 * nanogpt's tests ("Hello world!"). */
static void gives_published_ids(void **state) {
    (void)state;
    if (!gpt2)
        skip();
    GIVES(gpt2, "hello world", TL_SPECIAL_TEXT, 31373, 995);
    GIVES(gpt2, "hello <|endoftext|>", TL_SPECIAL_ENCODE, 31373, 220, 50256);
    GIVES(gpt2, "Hello world!", TL_SPECIAL_TEXT, 15496, 995, 0);
    GIVES(gpt2, "0", TL_SPECIAL_TEXT, 15);
    GIVES(gpt2, "00000000000000000", TL_SPECIAL_TEXT, 8269, 10535, 830);
    GIVES(gpt2, "Thanks for putting me into the right direction", TL_SPECIAL_TEXT, 9690, 329, 5137, 502, 656, 262, 826,
          4571);
    GIVES(gpt2, "\344\275\240\345\245\275\357\274\214\344\270\226\347\225\214", TL_SPECIAL_TEXT, 19526, 254, 25001, 121,
          171, 120, 234, 10310, 244, 45911, 234);
}

static void files_equal_the_independent_encoder(void **state) {
    (void)state;
    if (!gpt2)
        skip();
    for (size_t i = 0; i < sizeof gpt2_files / sizeof gpt2_files[0]; i++) {
        size_t length;
        char *text = read_file(gpt2_files[i].file, &length);
        tl_token_list ids = {0};
        encode(gpt2, text, length, TL_SPECIAL_TEXT, &ids);
        assert_int_equal(ids.count, gpt2_files[i].count);
        assert_memory_equal(ids.ids, gpt2_files[i].head, sizeof gpt2_files[i].head);
        assert_memory_equal(ids.ids + ids.count - 8, gpt2_files[i].tail, sizeof gpt2_files[i].tail);
        if (hash_of(ids.ids, ids.count) != gpt2_files[i].hash)
            fail_msg("%s: other ids", gpt2_files[i].file);
        round_trips(gpt2, text, length < 20000 ? length : 20000, TL_SPECIAL_TEXT);
        round_trips(gpt2, text, length < 20000 ? length : 20000, TL_SPECIAL_ENCODE);
        tl_token_list_free(&ids);
        free(text);
    }
}

static void texts_equal_the_independent_encoder(void **state) {
    (void)state;
    if (!gpt2)
        skip();
    for (size_t i = 0; i < sizeof gpt2_texts / sizeof gpt2_texts[0]; i++) {
        gives_ids(gpt2, gpt2_texts[i].text, gpt2_texts[i].bytes, TL_SPECIAL_TEXT, gpt2_texts[i].ids,
                  gpt2_texts[i].count);
        round_trips(gpt2, gpt2_texts[i].text, gpt2_texts[i].bytes, TL_SPECIAL_TEXT);
    }
}

/* Hugging Face's library (npm's @anush008/tokenizers 0.6.0) finds 923 ids with this hash where <|endoftext|> is a token, and
 * for the other three texts, which hold none, the ids of the independent encoder. */
static void special_tokens_equal_huggingface(void **state) {
    (void)state;
    if (!gpt2)
        skip();
    size_t length;
    char *text = read_file("tinystories_sample.txt", &length);
    tl_token_list ids = {0};
    encode(gpt2, text, length, TL_SPECIAL_ENCODE, &ids);
    assert_int_equal(ids.count, 923);
    assert_true(hash_of(ids.ids, ids.count) == 0x21E0D2D2276F9D2Au);
    tl_token_list_free(&ids);
    free(text);
}

/* Any bytes at all, cut anywhere. */
static void random_bytes_round_trip(void **state) {
    (void)state;
    if (!gpt2)
        skip();
    uint32_t random = 336;
    char text[600];
    static const char *const parts[] = {" ",
                                        "  ",
                                        "a",
                                        "the",
                                        "\n",
                                        "\xC3\xA9",
                                        "\xE2\x82",
                                        "\xFF",
                                        "'ll",
                                        "1",
                                        "\xF0\x9F\x99\x82",
                                        "<|endoftext|>",
                                        "<|end",
                                        ".",
                                        "\t",
                                        "\xC0\x80"};
    for (int round = 0; round < 200; round++) {
        size_t n = 0;
        while (n < sizeof text - 16) {
            random = random * 1664525 + 1013904223;
            const char *part = parts[random >> 28];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
        round_trips(gpt2, text, n, TL_SPECIAL_TEXT);
        round_trips(gpt2, text, n, TL_SPECIAL_ENCODE);
    }
}

/* A run of one letter is one word of a million: 244 runs of 4096 would be as fast, n² never would end. */
static void long_words_take_no_longer(void **state) {
    (void)state;
    if (!gpt2)
        skip();
    const size_t length = 1000000;
    char *text = malloc(length);
    assert_non_null(text);
    static const char letters[] = {'a', ' ', '1', '\n', '!'};
    for (size_t i = 0; i < sizeof letters; i++) {
        tl_token_list ids = {0};
        tl_token_text back = {0};
        tl_error error = {0};
        memset(text, letters[i], length);
        encode(gpt2, text, length, TL_SPECIAL_TEXT, &ids);
        assert_int_equal(tl_tokenizer_decode(gpt2, ids.ids, ids.count, &back, &error), TL_OK);
        assert_int_equal(back.count, length);
        assert_memory_equal(back.bytes, text, length);
        tl_token_list_free(&ids);
        tl_token_text_free(&back);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_is),
        cmocka_unit_test(gives_published_ids),
        cmocka_unit_test(files_equal_the_independent_encoder),
        cmocka_unit_test(texts_equal_the_independent_encoder),
        cmocka_unit_test(special_tokens_equal_huggingface),
        cmocka_unit_test(random_bytes_round_trip),
        cmocka_unit_test(long_words_take_no_longer),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
