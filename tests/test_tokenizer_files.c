/* Tokenizer files on the disk: how they are found, and what is said of those that are something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tokens.h"

static char folder[64];

static int set_up(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/tally-tokenizer-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static const char *const names[] = {"vocab.json",     "merges.txt", "gpt2_vocab.json", "gpt2_merges.txt",
                                    "tokenizer.json", "fifo",       "large.json"};

static void in_folder(const char *name, char path[256]) { (void)snprintf(path, 256, "%s/%s", folder, name); }

static void remove_all(void) {
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        in_folder(names[i], path);
        (void)unlink(path);
    }
}

static int tear_down(void **state) {
    (void)state;
    remove_all();
    return rmdir(folder);
}

static void write_bytes(const char *name, const char *bytes, size_t length) {
    char path[256];
    in_folder(name, path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const char *name, const char *text) { write_bytes(name, text, strlen(text)); }

static void refuses(const char *name, tl_status status, const char *says) {
    tl_error error = {0};
    char path[256];
    in_folder(name, path);
    tl_tokenizer *tokenizer = tl_tokenizer_open(path, NULL, &error);
    if (tokenizer)
        fail_msg("%s was taken, not \"%s\"", name, says);
    if (error.status != status || !strstr(error.message, says))
        fail_msg("%s: %s: %s\nnot: %s", name, tl_status_name(error.status), error.message, says);
}

static void takes(const char *name) {
    char path[256];
    in_folder(name, path);
    tl_tokenizer *tokenizer = open_it(path);
    GIVES(tokenizer, "ab<|endoftext|>ab", TL_SPECIAL_ENCODE, 2, 3, 2);
    tl_tokenizer_free(tokenizer);
}

#define VOCAB "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}"
#define JSON                                                                                                           \
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<|endoftext|>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\""     \
    "ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","        \
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}"

static void files_are_found(void **state) {
    (void)state;
    refuses("", TL_ERR_NOT_FOUND, "holds no tokenizer.json and no vocab.json");
    refuses("tokenizer.json", TL_ERR_NOT_FOUND, "No such file");
    write_text("vocab.json", VOCAB);
    refuses("", TL_ERR_NOT_FOUND, "merges.txt: No such file");
    write_text("merges.txt", "#version: 0.2\r\na b\r\n\r\n");
    takes("");
    takes("vocab.json");
    takes("merges.txt");
    remove_all();
    write_text("gpt2_vocab.json", VOCAB);
    write_text("gpt2_merges.txt", "a b");
    takes("");
    takes("gpt2_merges.txt");
    remove_all();
    write_text("tokenizer.json", JSON);
    takes("");
    takes("tokenizer.json");
    remove_all();
}

static void what_a_file_really_is_is_said(void **state) {
    (void)state;
    write_text("tokenizer.json", "<!DOCTYPE html><html></html>");
    refuses("", TL_ERR_FORMAT, "is an HTML page");
    write_text("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    refuses("", TL_ERR_FORMAT, "is a git-LFS pointer");
    write_text("tokenizer.json", "PK\3\4....");
    refuses("", TL_ERR_FORMAT, "is a zip archive");
    write_text("tokenizer.json", "\x1f\x8b.......");
    refuses("", TL_ERR_FORMAT, "is a gzip file");
    write_text("tokenizer.json", "");
    refuses("", TL_ERR_FORMAT, "is empty");
    write_text("tokenizer.json", "\n[1, 2]");
    refuses("", TL_ERR_FORMAT, "is a JSON list");
    write_text("tokenizer.json", "IQ== 0\nIg== 1\n");
    refuses("", TL_ERR_FORMAT, "no JSON object");
    write_text("tokenizer.json", VOCAB);
    refuses("", TL_ERR_FORMAT, "has no \"model\"");
    write_text("tokenizer.json", "{\"model\": {");
    refuses("", TL_ERR_FORMAT, "tokenizer.json:1:11: not valid JSON");
    write_text("tokenizer.json", "{\"model\": {\"type\": \"\xC3\x28\"}}");
    refuses("", TL_ERR_FORMAT, "not valid JSON: unable to decode byte 0xc3");
    remove_all();
    write_text("vocab.json", JSON);
    write_text("merges.txt", "a b\n");
    refuses("", TL_ERR_FORMAT, "is a tokenizer.json");
    write_text("vocab.json", VOCAB);
    write_text("merges.txt", "<!doctype html>\n<html>");
    refuses("", TL_ERR_FORMAT, "merges.txt: is an HTML page");
    write_text("merges.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    refuses("", TL_ERR_FORMAT, "merges.txt: is a git-LFS pointer");
    remove_all();
}

static void merges_are_named_by_line(void **state) {
    (void)state;
    write_text("vocab.json", VOCAB);
    write_text("merges.txt", "#version: 0.2\na b\nab a\n");
    refuses("", TL_ERR_FORMAT, "merges.txt:3: the merge of \"ab\" and \"a\": the vocabulary has no \"aba\"");
    write_text("merges.txt", "a b\n\na b c\n");
    refuses("", TL_ERR_FORMAT, ":3: \"a b c\" is no merge");
    write_text("merges.txt", "a b\n b\n");
    refuses("", TL_ERR_FORMAT, ":2: \" b\" is no merge");
    write_text("merges.txt", "a b\na b\n");
    refuses("", TL_ERR_FORMAT, "merges.txt:2: the merge of \"a\" and \"b\" is there twice");
    write_text("merges.txt", "a b\n#version: 0.2\n");
    refuses("", TL_ERR_FORMAT, "the vocabulary has no \"#version:\"");
    remove_all();
}

/* What does not end, or is no file, is not waited for. */
static void no_regular_file_is_read(void **state) {
    char path[256];
    (void)state;
    in_folder("fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses("fifo", TL_ERR_FORMAT, "is a FIFO");
    in_folder("large.json", path);
    write_text("large.json", "{");
    assert_int_equal(truncate(path, ((off_t)64 << 20) + 1), 0);
    refuses("large.json", TL_ERR_FORMAT, "64 MiB");
    remove_all();
    memset(path, 'x', sizeof path);
    tl_error error = {0};
    char *longest = malloc(10001);
    assert_non_null(longest);
    memset(longest, 'x', 10000);
    longest[10000] = '\0';
    assert_null(tl_tokenizer_open(longest, NULL, &error));
    assert_int_equal(error.status, TL_ERR_ARGUMENT);
    free(longest);
}

/* A million merges: every pair of a thousand letters. */
static void a_million_merges_are_read(void **state) {
    enum { LETTERS = 1000 };
    char(*letters)[8] = calloc(LETTERS, 8);
    char *vocab = malloc((size_t)32 << 20), *merges = malloc((size_t)16 << 20);
    size_t v = 0, m = 0, id = 0;
    (void)state;
    assert_non_null(letters);
    assert_non_null(vocab);
    assert_non_null(merges);
    for (int i = 0; i < LETTERS; i++) {
        const unsigned code = 0x4E00 + (unsigned)i;
        (void)snprintf(letters[i], 8, "%c%c%c", (int)(0xE0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3F)),
                       (int)(0x80 | (code & 0x3F)));
        v += (size_t)snprintf(vocab + v, 64, "%c\"%s\":%zu", i == 0 ? '{' : ',', letters[i], id++);
    }
    for (int i = 0; i < LETTERS; i++)
        for (int k = 0; k < LETTERS; k++) {
            v += (size_t)snprintf(vocab + v, 64, ",\"%s%s\":%zu", letters[i], letters[k], id++);
            m += (size_t)snprintf(merges + m, 64, "%s %s\n", letters[i], letters[k]);
        }
    vocab[v++] = '}';
    write_bytes("vocab.json", vocab, v);
    write_bytes("merges.txt", merges, m);
    tl_tokenizer *tokenizer = open_it(folder);
    assert_int_equal(tl_tokenizer_size(tokenizer), 1001000);
    assert_string_equal(tl_tokenizer_describe(tokenizer), "byte-level BPE, 1001000 tokens, 1000000 merges");
    tl_tokenizer_free(tokenizer);
    remove_all();
    free(letters);
    free(vocab);
    free(merges);
}

/* ---- failing allocations ---- */

typedef struct counter {
    long left; /* allocations that still succeed; −1: all */
    long live;
} counter;

static void *count_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    counter *c = self;
    const tl_allocator *plain = tl_allocator_default();
    if (c->left == 0)
        return NULL;
    c->left -= c->left > 0;
    c->live++;
    return plain->alloc(plain->self, bytes, align, kind);
}

static void count_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    const tl_allocator *plain = tl_allocator_default();
    ((counter *)self)->live--;
    plain->release(plain->self, pointer, bytes, kind);
}

static void every_allocation_may_fail(void **state) {
    static const char text[] = "ab  ab<|endoftext|>aab";
    counter c = {.left = -1};
    const tl_allocator allocator = {count_alloc, count_release, &c};
    bool done = false;
    (void)state;
    write_text("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3,\"\304\240\":4}");
    write_text("merges.txt", "a b\n");
    for (long n = 0; !done && n < 10000; n++) {
        tl_error error = {0};
        tl_token_list list = {.allocator = &allocator};
        c.left = n;
        tl_tokenizer *tokenizer = tl_tokenizer_open(folder, &allocator, &error);
        tl_encoder *encoder = tokenizer ? tl_encoder_new(tokenizer, TL_SPECIAL_ENCODE, &allocator, &error) : NULL;
        tl_status status = encoder ? TL_OK : TL_ERR_MEMORY;
        for (size_t i = 0; i < sizeof text - 1 && status == TL_OK; i++)
            status = tl_encoder_feed(encoder, text + i, 1, &list, &error);
        if (status == TL_OK)
            status = tl_encoder_finish(encoder, &list, &error);
        done = status == TL_OK;
        if (done)
            assert_int_equal(list.count, 7);
        else
            assert_int_equal(error.status, TL_ERR_MEMORY);
        tl_token_list_free(&list);
        tl_encoder_free(encoder);
        tl_tokenizer_free(tokenizer);
        assert_int_equal(c.live, 0);
    }
    assert_true(done);
    remove_all();
}

static void every_allocation_of_learning_may_fail(void **state) {
    static const char text[] = "abab abab cd cd<|x|>abcd\n\nabcd";
    static const char *const specials[] = {"<|x|>"};
    counter c = {.left = -1};
    const tl_allocator allocator = {count_alloc, count_release, &c};
    bool done = false;
    (void)state;
    for (long n = 0; !done && n < 10000; n++) {
        tl_error error = {0};
        c.left = n;
        tl_tokenizer *t = tl_tokenizer_train(text, sizeof text - 1, 260, specials, 1, &allocator, &error);
        tl_status status = t ? tl_tokenizer_save(t, folder, &error) : TL_ERR_MEMORY;
        done = status == TL_OK;
        if (!done)
            assert_int_equal(error.status, TL_ERR_MEMORY);
        tl_tokenizer_free(t);
        assert_int_equal(c.live, 0);
    }
    assert_true(done);
    tl_tokenizer *again = open_it(folder);
    assert_int_equal(tl_tokenizer_size(again), 260);
    tl_tokenizer_free(again);
    remove_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_found),
        cmocka_unit_test(what_a_file_really_is_is_said),
        cmocka_unit_test(merges_are_named_by_line),
        cmocka_unit_test(no_regular_file_is_read),
        cmocka_unit_test(a_million_merges_are_read),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_allocation_of_learning_may_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
