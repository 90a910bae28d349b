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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_equal_huggingface),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
