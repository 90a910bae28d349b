/* Learning merges, against the plainest implementation there is, and writing them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tokens.h"

#include "fixtures/bpe_fixtures.h"

static char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = malloc((size_t)1 << 20);
    assert_non_null(text);
    *length = fread(text, 1, ((size_t)1 << 20) - 1, file);
    text[*length] = '\0';
    (void)fclose(file);
    return text;
}

static char *read_shared(const char *name, size_t *length) {
    const char *shared = getenv("TALLY_SHARED");
    char path[1200];
    (void)snprintf(path, sizeof path, "%s/suites/cs336/tokenizer/%s", shared ? shared : "../shared", name);
    char *text = read_file(path, length);
    if (!text)
        print_message("SKIPPED: %s cannot be read; set TALLY_SHARED\n", path);
    return text;
}

static tl_tokenizer *train(const char *text, size_t length, int64_t size, const char *const *specials, size_t count) {
    tl_error error = {0};
    tl_tokenizer *t = tl_tokenizer_train(text, length, size, specials, count, NULL, &error);
    if (!t)
        fail_msg("%s", error.message);
    return t;
}

/* Every merge makes the next id, unless its bytes were a token before, so the token of merge i is looked up by its bytes;
 * merges.txt tells the order. */
static void merges_are(const tl_tokenizer *t, const char *expected) {
    char folder[64] = "/tmp/tally-train-XXXXXX", path[128];
    tl_error error = {0};
    size_t length, count = 0;
    assert_non_null(mkdtemp(folder));
    if (tl_tokenizer_save(t, folder, &error) != TL_OK)
        fail_msg("%s", error.message);
    tl_tokenizer *again = open_it(folder);
    assert_int_equal(tl_tokenizer_size(again), tl_tokenizer_size(t));
    assert_int_equal(tl_tokenizer_end_of_text(again), tl_tokenizer_end_of_text(t));
    (void)snprintf(path, sizeof path, "%s/merges.txt", folder);
    char *text = read_file(path, &length), *save = NULL;
    assert_non_null(text);
    (void)strtok_r(text, "\n", &save);
    for (char *line; (line = strtok_r(NULL, "\n", &save)) != NULL; count++) {
        char got[2048] = "", *blank = strchr(line, ' ');
        size_t n = 0;
        assert_non_null(blank);
        /* GPT-2's letters back to bytes: those above U+0100 in order of the bytes that do not print. */
        for (const char *c = line; *c; c++) {
            unsigned code = (unsigned char)*c;
            if (c == blank) {
                got[n++] = '-';
                continue;
            }
            if (code >= 0xC0)
                code = (code & 0x1F) << 6 | ((unsigned char)*++c & 0x3F);
            if (code >= 256)
                code = code - 256 <= 32 ? code - 256 : code - 256 < 67 ? code - 256 - 33 + 127 : 173;
            n += (size_t)snprintf(got + n, sizeof got - n, "%02x", code);
        }
        if (strncmp(expected, got, n) != 0 || (expected[n] != ' ' && expected[n] != '\0'))
            fail_msg("merge %zu is %s, not %.40s", count, got, expected);
        expected += n + (expected[n] == ' ');
    }
    assert_string_equal(expected, "");
    free(text);
    tl_tokenizer_free(again);
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/vocab.json", folder);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left there */
}

static const char *const end_of_text[] = {"<|endoftext|>"};

static void corpus_gives_the_expected_merges(void **state) {
    size_t length;
    char *text = read_shared("corpus.en", &length);
    struct timespec before, after;
    (void)state;
    if (!text)
        skip();
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    tl_tokenizer *t = train(text, length, 500, end_of_text, 1);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double seconds = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    print_message("vocabulary of 500 from corpus.en: %.3f s\n", seconds);
    assert_true(seconds < 1.5); /* CS336's test_train_bpe_speed */
    assert_int_equal(tl_tokenizer_size(t), 500);
    assert_int_equal(tl_tokenizer_end_of_text(t), 499);
    merges_are(t, corpus_merges);
    round_trips(t, text, 5000, TL_SPECIAL_ENCODE);
    tl_tokenizer_free(t);
    free(text);
}

/* CS336's test_train_bpe_special_tokens: nothing of <|endoftext|> gets into a token. */
static void special_tokens_are_cut_first(void **state) {
    size_t length;
    char *text = read_shared("tinystories_sample.txt", &length);
    (void)state;
    if (!text)
        skip();
    tl_tokenizer *t = train(text, length, 1000, end_of_text, 1);
    merges_are(t, stories_merges);
    for (int32_t id = 0; id < tl_tokenizer_size(t); id++) {
        size_t n;
        const char *bytes = tl_tokenizer_bytes(t, id, &n);
        if (!tl_tokenizer_is_special(t, id) && memmem(bytes, n, "<|", 2))
            fail_msg("id %d holds <|", (int)id);
    }
    tl_tokenizer_free(t);
    free(text);
}

static void runs_and_ties_are_right(void **state) {
    static const char *const x[] = {"<|x|>"};
    (void)state;
    tl_tokenizer *t = train(OWN_TEXT, sizeof OWN_TEXT - 1, 600, NULL, 0);
    merges_are(t, own_merges);
    tl_tokenizer_free(t);
    t = train(RUNS_TEXT, sizeof RUNS_TEXT - 1, 600, x, 1);
    merges_are(t, runs_merges);
    tl_tokenizer_free(t);
    t = train("", 0, 600, x, 1);
    merges_are(t, "");
    assert_int_equal(tl_tokenizer_size(t), 257);
    tl_tokenizer_free(t);
}

static void what_cannot_be_learned_is_refused(void **state) {
    static const char *const bad[] = {"</s>"}, *const twice[] = {"<|x|>", "<|x|>"};
    tl_error error = {0};
    (void)state;
    assert_null(tl_tokenizer_train("a", 1, 255, NULL, 0, NULL, &error));
    assert_non_null(strstr(error.message, "256 (bytes and special tokens)"));
    tl_error_clear(&error);
    assert_null(tl_tokenizer_train("a", 1, 300, bad, 1, NULL, &error));
    assert_non_null(strstr(error.message, "<|name|>"));
    tl_error_clear(&error);
    assert_null(tl_tokenizer_train("a", 1, 300, twice, 2, NULL, &error));
    assert_non_null(strstr(error.message, "has the ids"));
    tl_error_clear(&error);
    tl_tokenizer *t = open_it("bytes");
    assert_int_equal(tl_tokenizer_save(t, "/tmp", &error), TL_ERR_UNSUPPORTED);
    tl_tokenizer_free(t);
    tl_error_clear(&error);
    t = train("aaaa", 4, 300, NULL, 0);
    assert_int_equal(tl_tokenizer_save(t, "/dev/null/folder", &error), TL_ERR_IO);
    tl_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_gives_the_expected_merges),
        cmocka_unit_test(special_tokens_are_cut_first),
        cmocka_unit_test(runs_and_ties_are_right),
        cmocka_unit_test(what_cannot_be_learned_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
