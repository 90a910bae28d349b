/* Tokenizers: text to ids and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tokens.h"

static void bytes_are_their_own_ids(void **state) {
    (void)state;
    tl_tokenizer *plain = open_it("bytes"), *with_end = open_it("bytes+eot");
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    assert_int_equal(tl_tokenizer_size(plain), 256);
    assert_int_equal(tl_tokenizer_end_of_text(plain), -1);
    assert_int_equal(tl_tokenizer_size(with_end), 257);
    assert_int_equal(tl_tokenizer_end_of_text(with_end), 256);
    round_trips(plain, all, 256, TL_SPECIAL_REFUSE);
    round_trips(with_end, all, 256, TL_SPECIAL_REFUSE);
    round_trips(plain, "", 0, TL_SPECIAL_REFUSE);
    GIVES(plain, "a\xC3\xA9", TL_SPECIAL_TEXT, 97, 0xC3, 0xA9);
    tl_tokenizer_free(plain);
    tl_tokenizer_free(with_end);
}

static void special_tokens_are_the_callers_choice(void **state) {
    (void)state;
    tl_tokenizer *t = open_it("bytes+eot");
    tl_token_list list = {0};
    tl_error error = {0};
    GIVES(t, "a<|endoftext|>b", TL_SPECIAL_ENCODE, 97, 256, 98);
    GIVES(t, "<|<|endoftext|><|endoftext|", TL_SPECIAL_ENCODE, '<', '|', 256, '<', '|', 'e', 'n', 'd', 'o', 'f', 't',
          'e', 'x', 't', '|');
    GIVES(t, "<|endoftext|>", TL_SPECIAL_TEXT, '<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't', '|', '>');
    assert_int_equal(tl_tokenizer_encode(t, "ab<|endoftext|>", 15, TL_SPECIAL_REFUSE, &list, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "<|endoftext|>"));
    assert_non_null(strstr(error.message, "byte 2"));
    assert_int_equal(list.count, 0);
    round_trips(t, "a<|endoftext|>b<|endoftext|", 27, TL_SPECIAL_ENCODE);
    tl_token_list_free(&list);
    tl_tokenizer_free(t);
}

static void decoding_names_a_wrong_id(void **state) {
    (void)state;
    tl_tokenizer *t = open_it("bytes");
    tl_token_text text = {0};
    tl_error error = {0};
    const int32_t ids[] = {65, 66, 256}, negative[] = {-4};
    assert_int_equal(tl_tokenizer_decode(t, ids, 3, &text, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "id 256 at position 2"));
    assert_int_equal(text.count, 0);
    tl_error_clear(&error);
    assert_int_equal(tl_tokenizer_decode(t, negative, 1, &text, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "id -4"));
    tl_token_text_free(&text);
    tl_tokenizer_free(t);
}

static void only_whole_characters_are_shown(void **state) {
    (void)state;
    assert_int_equal(tl_token_text_whole("a\xE2\x82\xAC", 4), 4);
    assert_int_equal(tl_token_text_whole("a\xE2\x82", 3), 1);
    assert_int_equal(tl_token_text_whole("a\xE2", 2), 1);
    assert_int_equal(tl_token_text_whole("\xF0\x9F\x98", 3), 0);
    assert_int_equal(tl_token_text_whole("a\xFF", 2), 2); /* never going to be one */
    assert_int_equal(tl_token_text_whole("\x80\x80\x80\x80", 4), 4);
    assert_int_equal(tl_token_text_whole("", 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_their_own_ids),
        cmocka_unit_test(special_tokens_are_the_callers_choice),
        cmocka_unit_test(decoding_names_a_wrong_id),
        cmocka_unit_test(only_whole_characters_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
