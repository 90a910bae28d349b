/* tokenizer.json in the forms that models come in, against ids recorded from Hugging Face's library, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tokens.h"

#include "tokenizer/bpe.h"

#include "fixtures/tokenizer_fixtures.h"

static tl_tokenizer *parse(const char *json, tl_error *error) {
    tl_tokenizer_file file;
    tl_tokenizer *tokenizer = NULL;
    if (tl_tokenizer_file_parse(json, strlen(json), "t.json", &file, error) == TL_OK)
        tokenizer = tl_tokenizer_build(&file, NULL, error);
    tl_tokenizer_file_free(&file);
    return tokenizer;
}

static void forms_equal_huggingface(void **state) {
    tl_tokenizer *tokenizer = NULL;
    int open = -1, differ = 0;
    (void)state;
    for (size_t i = 0; i < sizeof form_cases / sizeof form_cases[0]; i++) {
        tl_error error = {0};
        tl_token_list ids = {0};
        tl_token_text text = {0};
        if (form_cases[i].form != open) {
            tl_tokenizer_free(tokenizer);
            open = form_cases[i].form;
            tokenizer = parse(forms[open].json, &error);
            if (!tokenizer)
                fail_msg("%s: %s", forms[open].name, error.message);
        }
        const char *given = form_cases[i].text;
        if (tl_tokenizer_encode(tokenizer, given, strlen(given), TL_SPECIAL_ENCODE, &ids, &error) != TL_OK) {
            print_message("%s \"%s\": %s\n", forms[open].name, given, error.message);
            differ++;
        } else if (ids.count != form_cases[i].count ||
                   (ids.count > 0 && memcmp(ids.ids, form_cases[i].ids, ids.count * sizeof *ids.ids) != 0)) {
            print_message("%s \"%s\":", forms[open].name, given);
            for (size_t k = 0; k < ids.count; k++)
                print_message(" %d", (int)ids.ids[k]);
            print_message("\n");
            differ++;
        }
        assert_int_equal(tl_tokenizer_decode(tokenizer, form_cases[i].ids, form_cases[i].count, &text, &error), TL_OK);
        if (text.count != strlen(form_cases[i].decoded) ||
            (text.count > 0 && memcmp(text.bytes, form_cases[i].decoded, text.count) != 0)) {
            print_message("%s \"%s\" decodes to \"%.*s\"\n", forms[open].name, given, (int)text.count, text.bytes);
            differ++;
        }
        tl_token_list_free(&ids);
        tl_token_text_free(&text);
    }
    tl_tokenizer_free(tokenizer);
    assert_int_equal(differ, 0);
}

/* ---- a small file whose parts can be replaced ---- */

enum { ADDED, NORMALIZER, PRE, POST, DECODER, MODEL, ROOT, PARTS };
#define BPE(more) "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":5},\"merges\":[\"a b\"]" more "}"
static const char *const plain[PARTS] = {
    "[]",    "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "null", "{\"type\":\"ByteLevel\"}",
    BPE(""), ""};

static tl_tokenizer *parse_with(int part, const char *json, tl_error *error) {
    const char *parts[PARTS];
    char text[4096];
    memcpy(parts, plain, sizeof parts);
    parts[part] = json;
    (void)snprintf(text, sizeof text,
                   "{\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,"
                   "\"model\":%s%s}",
                   parts[ADDED], parts[NORMALIZER], parts[PRE], parts[POST], parts[DECODER], parts[MODEL], parts[ROOT]);
    return parse(text, error);
}

static void what_is_not_done_is_refused_by_name(void **state) {
    static const struct {
        int part;
        const char *json, *says;
        tl_status status;
    } cases[] = {
        {ROOT, ",\"truncation\":{\"max_length\":512}", "\"truncation\"", TL_ERR_UNSUPPORTED},
        {ROOT, ",\"padding\":{}", "\"padding\"", TL_ERR_UNSUPPORTED},
        {NORMALIZER, "{\"type\":\"NFKC\"}", "normalizer of type \"NFKC\"", TL_ERR_UNSUPPORTED},
        {NORMALIZER, "{\"type\":\"Lowercase\"}", "\"Lowercase\"", TL_ERR_UNSUPPORTED},
        {NORMALIZER, "{\"type\":\"Prepend\",\"prepend\":\"x\"}", "\"Prepend\"", TL_ERR_UNSUPPORTED},
        {NORMALIZER, "7", "normalizer is 7", TL_ERR_FORMAT},
        {NORMALIZER, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"StripAccents\"}]}",
         "normalizer.normalizers[0] of type \"StripAccents\"", TL_ERR_UNSUPPORTED},
        {PRE, "{\"type\":\"BertPreTokenizer\"}", "pre_tokenizer of type \"BertPreTokenizer\"", TL_ERR_UNSUPPORTED},
        {PRE, "null", "neither ByteLevel nor U+2581", TL_ERR_UNSUPPORTED},
        {PRE, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"MergedWithNext\",\"invert\":false}",
         "\"behavior\" MergedWithNext", TL_ERR_UNSUPPORTED},
        {PRE, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"ab(c\"},\"behavior\":\"Isolated\"}", "",
         TL_ERR_UNSUPPORTED},
        {PRE,
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"ab(c\"},\"behavior\":"
         "\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}",
         "pre_tokenizer.pretokenizers[0]: the pattern does not compile at byte 4: missing closing parenthesis",
         TL_ERR_FORMAT},
        {PRE,
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},{\"type\":"
         "\"Digits\"}]}",
         "pretokenizers[1] behind ByteLevel", TL_ERR_UNSUPPORTED},
        {PRE, "{\"type\":\"ByteLevel\",\"add_prefix_space\":1}", "add_prefix_space is 1", TL_ERR_FORMAT},
        {POST, "{\"type\":\"BertProcessing\"}", "\"BertProcessing\"", TL_ERR_UNSUPPORTED},
        {POST, "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}",
         "puts \"<s>\" before a text", TL_ERR_FORMAT},
        {DECODER, "null", "decoder is missing", TL_ERR_FORMAT},
        {DECODER, "{\"type\":\"WordPiece\"}", "decoder of type \"WordPiece\"", TL_ERR_UNSUPPORTED},
        {MODEL, "{\"type\":\"Unigram\",\"vocab\":[]}", "model.type is Unigram", TL_ERR_UNSUPPORTED},
        {MODEL, BPE(",\"dropout\":0.1"), "model.dropout", TL_ERR_UNSUPPORTED},
        {MODEL, BPE(",\"end_of_word_suffix\":\"</w>\""), "model.end_of_word_suffix", TL_ERR_UNSUPPORTED},
        {MODEL, BPE(",\"continuing_subword_prefix\":\"##\""), "model.continuing_subword_prefix", TL_ERR_UNSUPPORTED},
        {MODEL, BPE(",\"unk_token\":\"<unk>\""), "model.unk_token is \"<unk>\"", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a z\"]}",
         "model.merges[0]: the merge of \"a\" and "
         "\"z\": the vocabulary has no \"z\"",
         TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}", "has no \"aa\"", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\",[\"a\",\"a\"]]}",
         "model.merges[1]: the merge of \"a\" and \"a\" is there twice", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}", "model.merges[0]", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}", "model.merges[0]", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}", "id 0 is both \"a\" and \"b\"",
         TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}", "duplicate", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}", "the id of \"a\" is -1", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}", "the id of \"a\"", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":16777215},\"merges\":[]}", "id 16777215 among 1 tokens",
         TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":9223372036854775807},\"merges\":[]}", "id 9223372036854775807",
         TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"\":0},\"merges\":[]}", "a token of no bytes", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}", "holds no token", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}", "model.vocab is a list", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":0}}", "model.merges is missing", TL_ERR_FORMAT},
        {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"\xFF\":0},\"merges\":[]}", "not valid JSON", TL_ERR_FORMAT},
        {ADDED, "[{\"id\":9,\"content\":\"<x>\",\"single_word\":true}]", "\"single_word\"", TL_ERR_UNSUPPORTED},
        {ADDED, "[{\"id\":0,\"content\":\"<x>\"}]", "id 0 is both \"a\" and \"<x>\"", TL_ERR_FORMAT},
        {ADDED, "[{\"id\":7,\"content\":\"a\"}]", "\"a\" has the ids 0 and 7", TL_ERR_FORMAT},
        {ADDED, "[{\"id\":7,\"content\":\"\"}]", "added_tokens[0]", TL_ERR_FORMAT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_error error = {0};
        tl_tokenizer *tokenizer = parse_with(cases[i].part, cases[i].json, &error);
        if (tokenizer)
            fail_msg("%s was taken", cases[i].json);
        if (error.status != cases[i].status || !strstr(error.message, cases[i].says) ||
            strncmp(error.message, "t.json:", 7) != 0)
            fail_msg("%s: %s: %s", cases[i].json, tl_status_name(error.status), error.message);
    }
}

/* FAULTS: a tokenizer that says 128,000 and emits 128,255. */
static void size_is_the_largest_id_and_one(void **state) {
    tl_error error = {0};
    size_t length;
    (void)state;
    tl_tokenizer *t = parse_with(ADDED, "[{\"id\":255,\"content\":\"</s>\",\"special\":true}]", &error);
    assert_non_null(t);
    assert_int_equal(tl_tokenizer_size(t), 256);
    assert_int_equal(tl_tokenizer_entries(t), 5);
    assert_int_equal(tl_tokenizer_end_of_text(t), 255);
    assert_null(tl_tokenizer_bytes(t, 3, &length)); /* a hole */
    GIVES(t, "abcab", TL_SPECIAL_TEXT, 2, 5, 2);
    tl_token_text text = {0};
    const int32_t hole[] = {0, 3};
    assert_int_equal(tl_tokenizer_decode(t, hole, 2, &text, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "id 3 at position 1"));
    tl_token_text_free(&text);
    tl_tokenizer_free(t);
}

static void what_has_no_token_is_named(void **state) {
    tl_error error = {0};
    tl_token_list list = {0};
    (void)state;
    tl_tokenizer *t = parse_with(MODEL, BPE(""), &error);
    assert_non_null(t);
    assert_int_equal(tl_tokenizer_encode(t, "ab d", 4, TL_SPECIAL_TEXT, &list, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "the byte 0x20"));
    assert_int_equal(list.count, 0);
    tl_tokenizer_free(t);
    t = parse_with(MODEL, BPE(",\"unk_token\":\"c\""), &error);
    assert_non_null(t);
    GIVES(t, "abd", TL_SPECIAL_TEXT, 2, 5);
    tl_token_list_free(&list);
    tl_tokenizer_free(t);
}

/* BOS and EOS are told, never added by themselves. */
static void ends_are_told(void **state) {
    tl_error error = {0};
    size_t count;
    (void)state;
    tl_tokenizer *t = parse_with(POST,
                                 "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"c\"}},{"
                                 "\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"ab\"}}]}",
                                 &error);
    assert_non_null(t);
    assert_int_equal(tl_tokenizer_prefix(t, &count)[0], 5);
    assert_int_equal(count, 1);
    assert_int_equal(tl_tokenizer_suffix(t, &count)[0], 2);
    assert_int_equal(count, 1);
    GIVES(t, "ab", TL_SPECIAL_TEXT, 2);
    tl_tokenizer_free(t);
}

/* Normal form C is checked: what stays as it is passes, what might change is named (examples: UAX 15, figures 3 to 5). */
static void normal_form_c_is_held(void **state) {
    static const char *const stay[] = {"caf\303\251", "\350\252\236 \355\225\234\352\270\200", "x\314\226y", "\316\251",
                                       "q\314\226\314\215"};
    static const char *const change[] = {"cafe\314\201", "\342\204\253", "\341\204\200\341\205\241",
                                         "q\314\215\314\226"};
    tl_error error = {0};
    tl_token_list list = {0};
    (void)state;
    tl_tokenizer *t = parse(forms[2].json, &error);
    assert_string_equal(forms[2].name, "qwen");
    assert_non_null(t);
    for (size_t i = 0; i < sizeof stay / sizeof stay[0]; i++)
        round_trips(t, stay[i], strlen(stay[i]), TL_SPECIAL_TEXT);
    for (size_t i = 0; i < sizeof change / sizeof change[0]; i++) {
        tl_error_clear(&error);
        assert_int_equal(tl_tokenizer_encode(t, change[i], strlen(change[i]), TL_SPECIAL_TEXT, &list, &error),
                         TL_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.message, "normal form C"));
    }
    assert_non_null(strstr(error.message, "U+0316 at byte 3"));
    tl_token_list_free(&list);
    tl_tokenizer_free(t);
}

/* A pattern that tries for ever is stopped, one that looks far ahead each time too, and the text decides neither. */
static void patterns_cannot_hang(void **state) {
    static const char *const patterns[] = {"(a+)+b|a", "a*b|a", "(?=.*b)a|a", "(a|aa)+$|a"};
    const size_t length = 300000;
    char json[512], *text = malloc(length);
    (void)state;
    assert_non_null(text);
    memset(text, 'a', length);
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        tl_error error = {0};
        tl_token_list list = {0};
        (void)snprintf(json, sizeof json,
                       "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                       "\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}",
                       patterns[i]);
        tl_tokenizer *t = parse_with(PRE, json, &error);
        if (!t)
            fail_msg("%s", error.message);
        if (tl_tokenizer_encode(t, text, length, TL_SPECIAL_TEXT, &list, &error) != TL_ERR_UNSUPPORTED)
            fail_msg("%s: %zu ids", patterns[i], list.count);
        assert_non_null(strstr(error.message, "too many steps"));
        tl_token_list_free(&list);
        tl_tokenizer_free(t);
    }
    free(text);
}

/* A word of a megabyte, such as a run of blanks or of zero bytes, is a word: 2^20 times the byte, whose id is 0. */
static void a_word_of_a_megabyte_is_one(void **state) {
    const size_t length = (size_t)1 << 20;
    tl_error error = {0};
    tl_token_list list = {0};
    char *text = malloc(length);
    (void)state;
    assert_non_null(text);
    memset(text, 'a', length); /* ByteLevel's pattern takes a run of letters as one word */
    tl_tokenizer *t = parse_with(PRE, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", &error);
    if (!t)
        fail_msg("%s", error.message);
    if (tl_tokenizer_encode(t, text, length, TL_SPECIAL_TEXT, &list, &error) != TL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(list.count, length);
    tl_token_list_free(&list);
    tl_tokenizer_free(t);
    free(text);
}

/* Bytes that are no UTF-8 stay together in pieces, also where the last could begin a character: here C6 C6 merges. */
static void what_is_no_utf8_stays_together(void **state) {
    tl_error error = {0};
    (void)state;
    tl_tokenizer *t = parse_with(MODEL,
                                 "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\303\206\":1,\"\303\206\303\206\":2},"
                                 "\"merges\":[\"\303\206 \303\206\"]}",
                                 &error);
    if (!t)
        fail_msg("%s", error.message);
    GIVES(t, "a\306\306\306\306a\306a", TL_SPECIAL_TEXT, 0, 2, 2, 0, 1, 0);
    round_trips(t, "a\306\306\306\306a\306a\306\306", 10, TL_SPECIAL_TEXT);
    tl_tokenizer_free(t);
}

/* U+180E is no white space since Unicode 6.3 (PropList.txt), U+0085 is, and U+001C never was. */
static void white_space_is_unicodes(void **state) {
    tl_error error = {0};
    (void)state;
    tl_tokenizer *t =
        parse_with(PRE,
                   "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+|[^]"
                   "\\\\s]|\\\\S\"},"
                   "\"behavior\":\"Removed\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}",
                   &error);
    if (!t)
        fail_msg("%s", error.message);
    tl_token_list list = {0};
    encode(t, "a\342\200\250b ]", 7, TL_SPECIAL_TEXT, &list); /* all of it matches and is removed */
    assert_int_equal(list.count, 0);
    tl_tokenizer_free(t);
    /* Only white space is taken off: "a" and "b" are left, and what is neither is an error by name. */
    t = parse_with(
        PRE,
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s\"},\"behavior\":"
        "\"Removed\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}",
        &error);
    if (!t)
        fail_msg("%s", error.message);
    GIVES(t, "a b\302\205ab\343\200\200c\t\n", TL_SPECIAL_TEXT, 0, 1, 2, 5);
    assert_int_equal(tl_tokenizer_encode(t, "a\341\240\216b", 5, TL_SPECIAL_TEXT, &list, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "0xE1"));
    tl_error_clear(&error);
    assert_int_equal(tl_tokenizer_encode(t, "a\034b", 3, TL_SPECIAL_TEXT, &list, &error), TL_ERR_ARGUMENT);
    tl_token_list_free(&list);
    tl_tokenizer_free(t);
}

/* Patterns that look back or at the start of the text: pieces give what the whole gives. */
static void patterns_may_look_back(void **state) {
    static const char *const patterns[] = {"(?<=a)b|a", "^a|b", "\\\\bab|c", "\\\\Aa|b+", "a(?=b)|b(?!c)", "ab$|a|b"};
    char json[512];
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        tl_error error = {0};
        (void)snprintf(json, sizeof json,
                       "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                       "\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
                       "false}]}",
                       patterns[i]);
        tl_tokenizer *t = parse_with(PRE, json, &error);
        if (!t)
            fail_msg("%s", error.message);
        round_trips(t, "abcababcbbcaab", 14, TL_SPECIAL_TEXT);
        tl_tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_equal_huggingface),
        cmocka_unit_test(what_is_not_done_is_refused_by_name),
        cmocka_unit_test(size_is_the_largest_id_and_one),
        cmocka_unit_test(what_has_no_token_is_named),
        cmocka_unit_test(ends_are_told),
        cmocka_unit_test(normal_form_c_is_held),
        cmocka_unit_test(patterns_cannot_hang),
        cmocka_unit_test(a_word_of_a_megabyte_is_one),
        cmocka_unit_test(what_is_no_utf8_stays_together),
        cmocka_unit_test(white_space_is_unicodes),
        cmocka_unit_test(patterns_may_look_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
