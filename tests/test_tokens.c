/* Files of tokens: forms, what is refused and with which words, samplers, the reader, writing. Expected values: files as
 * NumPy wrote them and llm.c's header as its dev/data/data_common.py describes it (tests/fixtures/token_fixtures.h), and
 * exact arithmetic. The cases of ../shared/FAULTS.md under "Data" are marked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tally/account.h"
#include "tally/cpu.h"
#include "tally/tokens.h"
#include "fixtures/token_fixtures.h"

static char folder[64], paths[8][160];
static const char *const *as_list(char (*at)[160], const char *list[8], int n) {
    for (int i = 0; i < n; i++)
        list[i] = at[i];
    return list;
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tally-tokens-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int clear_folder(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command); /* a name of our own making */
}

/* A file in the folder, at paths[slot]. */
static const char *put(int slot, const char *name, const void *data, size_t bytes) {
    snprintf(paths[slot], sizeof paths[slot], "%s/%s", folder, name);
    FILE *file = fopen(paths[slot], "wb");
    assert_non_null(file);
    assert_true(bytes == 0 || fwrite(data, 1, bytes, file) == bytes);
    assert_int_equal(fclose(file), 0);
    return paths[slot];
}

static const char *put_text(int slot, const char *name, const char *text) {
    return put(slot, name, text, strlen(text));
}

static size_t from_hex(const char *hex, unsigned char *out) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (unsigned char)byte;
    }
    return n;
}

/* llm.c's shard: the recorded words, zeros up to 1024 bytes, the ids. */
static size_t from_llmc(const char *hex, unsigned char *out) {
    unsigned char all[64];
    size_t n = from_hex(hex, all);
    memset(out, 0, 1024);
    memcpy(out, all, 12);
    memcpy(out + 1024, all + 12, n - 12);
    return 1024 + n - 12;
}

static tl_tokens *open_one(const char *path, tl_token_form form, int width, tl_error *error) {
    tl_tokens_options options = {form, width};
    *error = (tl_error){TL_OK, ""};
    return tl_tokens_open(&path, 1, &options, NULL, error);
}

static tl_tokens *opened(const char *path, int width) {
    tl_error error;
    tl_tokens *t = open_one(path, TL_TOKENS_ANY, width, &error);
    if (!t)
        print_error("%s\n", error.message);
    assert_non_null(t);
    return t;
}

static void refused(const char *path, tl_token_form form, int width, const char *words) {
    tl_error error;
    assert_null(open_one(path, form, width, &error));
    if (!strstr(error.message, words))
        print_error("\"%s\" does not say \"%s\"\n", error.message, words);
    assert_non_null(strstr(error.message, words));
    assert_non_null(strstr(error.message, folder));
}

static void says(const tl_error *error, const char *words) {
    if (!strstr(error->message, words))
        print_error("\"%s\" does not say \"%s\"\n", error->message, words);
    assert_non_null(strstr(error->message, words));
}

static void same_ids(const tl_tokens *t, const int32_t *want, int64_t n) {
    int32_t got[16];
    tl_error error = {TL_OK, ""};
    assert_true(tl_tokens_count(t) == n && n <= 16);
    assert_int_equal(tl_tokens_read(t, 0, n, 0, got, &error), TL_OK);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
}

/* Ids that look like those of a text: Zipf-like, below 50257. */
static uint16_t *some_ids(int64_t n) {
    uint16_t *ids = malloc((size_t)n * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (uint16_t)((i * i * 31 + i * 7919) % 50257);
    return ids;
}

/* Ids that tell where they stand. */
static const char *counting(int slot, const char *name, int64_t n) {
    uint32_t *ids = malloc((size_t)(n ? n : 1) * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (uint32_t)i;
    put(slot, name, ids, (size_t)n * 4);
    free(ids);
    return paths[slot];
}

/* ---- forms ---- */

static void reads_what_others_wrote(void **state) {
    static const struct {
        const char *hex, *dtype;
        bool large, llmc;
        int version;
    } cases[] = {{token_npy_u2, "uint16", false, false, 1}, {token_npy_u4, "uint32", true, false, 1},
                 {token_npy_i4, "int32", true, false, 1},   {token_npy_i8, "int64", true, false, 1},
                 {token_llmc_1, "uint16", false, true, 1},  {token_llmc_7, "uint32", true, true, 7}};
    unsigned char bytes[2048];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = cases[i].llmc ? from_llmc(cases[i].hex, bytes) : from_hex(cases[i].hex, bytes);
        tl_tokens *t = opened(put(0, "a.bin", bytes, n), 0);
        const tl_token_file *f = tl_tokens_file(t, 0);
        assert_int_equal(f->form, cases[i].llmc ? TL_TOKENS_LLMC : TL_TOKENS_NPY);
        assert_int_equal(f->version, cases[i].version);
        assert_string_equal(tl_token_file_dtype(f), cases[i].dtype);
        assert_false(f->inferred);
        same_ids(t, cases[i].large ? token_large_ids : token_ids, 5);
        tl_tokens_close(t);
    }
}

/* The same bytes as NumPy's and llm.c's writers; and what does not fit is refused (FAULTS: 70,000 → 4,464). */
static void writes_as_others_do(void **state) {
    static const struct {
        const char *hex;
        tl_token_form form;
        int width;
        bool large;
    } cases[] = {{token_npy_u2, TL_TOKENS_NPY, 2, false},
                 {token_npy_u4, TL_TOKENS_NPY, 4, true},
                 {token_llmc_1, TL_TOKENS_LLMC, 2, false},
                 {token_llmc_7, TL_TOKENS_LLMC, 4, true}};
    unsigned char want[2048], got[2048];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_error error = {TL_OK, ""};
        const int32_t *ids = cases[i].large ? token_large_ids : token_ids;
        size_t n = cases[i].form == TL_TOKENS_LLMC ? from_llmc(cases[i].hex, want) : from_hex(cases[i].hex, want);
        snprintf(paths[0], sizeof paths[0], "%s/w.bin", folder);
        tl_token_writer *w = tl_token_writer_new(paths[0], cases[i].form, cases[i].width, NULL, &error);
        assert_non_null(w);
        assert_int_equal(tl_token_writer_put(w, ids, 2, &error), TL_OK);
        assert_int_equal(tl_token_writer_put(w, ids + 2, 3, &error), TL_OK);
        assert_int_equal(tl_token_writer_count(w), 5);
        assert_int_equal(tl_token_writer_end(w, TL_OK, &error), TL_OK);
        FILE *file = fopen(paths[0], "rb");
        assert_non_null(file);
        assert_int_equal(fread(got, 1, sizeof got, file), n);
        fclose(file);
        assert_memory_equal(got, want, n);
    }
}

static void refuses_to_write_what_does_not_fit(void **state) {
    static const int32_t wide[] = {1, 70000, 2}, negative[] = {5, 6, -100};
    tl_error error = {TL_OK, ""};
    (void)state;
    put(0, "kept.bin", "old!", 4);
    tl_token_writer *w = tl_token_writer_new(paths[0], TL_TOKENS_RAW, 2, NULL, &error);
    tl_status status = tl_token_writer_put(w, wide, 3, &error);
    assert_int_equal(status, TL_ERR_ARGUMENT);
    says(&error, "id 70000 at index 1");
    says(&error, "65535");
    assert_int_equal(tl_token_writer_end(w, status, &error), status);
    struct stat about;
    assert_int_equal(stat(paths[0], &about), 0);
    assert_int_equal(about.st_size, 4); /* the old file */
    strcat(paths[0], ".tmp");
    assert_int_not_equal(stat(paths[0], &about), 0);
    error = (tl_error){TL_OK, ""};
    snprintf(paths[1], sizeof paths[1], "%s/new.bin", folder);
    w = tl_token_writer_new(paths[1], TL_TOKENS_NPY, 4, NULL, &error);
    status = tl_token_writer_put(w, negative, 3, &error);
    says(&error, "id -100 at index 2");
    assert_int_equal(tl_token_writer_end(w, status, &error), status);
    assert_int_not_equal(stat(paths[1], &about), 0);
    error = (tl_error){TL_OK, ""};
    assert_null(tl_token_writer_new("/nowhere/at/all.bin", TL_TOKENS_RAW, 2, NULL, &error));
    says(&error, "/nowhere/at/all.bin");
    assert_null(tl_token_writer_new(paths[1], TL_TOKENS_ANY, 2, NULL, &error));
    assert_null(tl_token_writer_new(paths[1], TL_TOKENS_RAW, 8, NULL, &error));
}

static void infers_a_width_with_evidence(void **state) {
    uint16_t *ids = some_ids(4096);
    uint32_t *wide = malloc(4096 * sizeof *wide);
    (void)state;
    assert_non_null(wide);
    for (int i = 0; i < 4096; i++)
        wide[i] = (uint32_t)ids[i] * 3 % 128256;
    tl_tokens *t = opened(put(0, "two.bin", ids, 8192), 0);
    assert_int_equal(tl_tokens_file(t, 0)->width, 2);
    assert_true(tl_tokens_file(t, 0)->inferred && tl_tokens_count(t) == 4096);
    assert_non_null(strstr(tl_tokens_file(t, 0)->evidence, "as uint32"));
    tl_tokens_close(t);
    t = opened(put(0, "four.bin", wide, 4096 * 4), 0);
    assert_int_equal(tl_tokens_file(t, 0)->width, 4);
    assert_non_null(strstr(tl_tokens_file(t, 0)->evidence, "as uint16"));
    tl_tokens_close(t);
    t = opened(put(0, "three.bin", ids, 6), 0); /* three ids of 2 bytes: never of 4 */
    assert_int_equal(tl_tokens_file(t, 0)->width, 2);
    tl_tokens_close(t);
    /* Bytes as uint16, as the byte tokenizer gives them: half of the words' high halves are letters. */
    for (int i = 0; i < 4096; i++)
        ids[i] = (uint16_t)("The quick brown fox\n"[i % 20]);
    t = opened(put(0, "bytes.bin", ids, 8192), 0);
    assert_int_equal(tl_tokens_file(t, 0)->width, 2);
    tl_tokens_close(t);
    /* Nothing speaks for either. */
    memset(ids, 0, 8192);
    refused(put(0, "zeros.bin", ids, 8192), TL_TOKENS_ANY, 0, "uint16 or uint32");
    t = opened(paths[0], 4);
    assert_true(tl_tokens_count(t) == 2048 && !tl_tokens_file(t, 0)->inferred);
    tl_tokens_close(t);
    free(ids);
    free(wide);
}

/* FAULTS: an odd number of bytes; what is no file of tokens is named. */
static void refuses_what_is_no_tokens(void **state) {
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } cases[] = {{"\1\0\2", 3, "odd number of bytes"},
                 {"PK\3\4....", 8, "a zip archive"},
                 {"<!DOCTYPE html><html>", 21, "an HTML page"},
                 {"  <HTML> <head>", 15, "an HTML page"},
                 {"version https://git-lfs.github.com/spec/v1", 42, "a git-LFS pointer"},
                 {"\x80\x04\x95 a pickle", 12, "a Python pickle"},
                 {"\x1f\x8b\x08 gzip", 8, "a gzip file"},
                 {"Once upon a time, there was a text.\n", 36, "is text, not tokens"},
                 {"\x10\0\0\0\0\0\0\0{\"a\":{}}", 16, "a safetensors file"},
                 {"GGUF\3\0\0\0", 8, "a GGUF file"}};
    unsigned char header[1024] = {0};
    static const uint32_t evaluation[2] = {20240522, 1};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(put(0, "x.bin", cases[i].bytes, cases[i].n), TL_TOKENS_ANY, 0, cases[i].words);
    for (size_t i = 0; i < 7; i++) /* stated width or not: a file with another's mark is not read as ids */
        refused(put(0, "x.bin", cases[i].bytes, cases[i].n), TL_TOKENS_RAW, 2, cases[i].words);
    memcpy(header, evaluation, 8);
    refused(put(0, "eval.bin", header, 1024), TL_TOKENS_ANY, 0, "evaluation file");
    refused(folder, TL_TOKENS_LLMC, 0, "not an llm.c shard"); /* a folder is read by its files */
}

static void refuses_other_forms_by_name(void **state) {
    unsigned char bytes[2048];
    (void)state;
    /* FAULTS: a .npy header read as tokens. */
    refused(put(0, "a.bin", bytes, from_hex(token_npy_u2, bytes)), TL_TOKENS_RAW, 2, "a NumPy array");
    refused(paths[0], TL_TOKENS_LLMC, 0, "a NumPy array");
    refused(paths[0], TL_TOKENS_ANY, 4, "holds uint16");
    refused(put(0, "b.bin", bytes, from_llmc(token_llmc_1, bytes)), TL_TOKENS_RAW, 2, "an llm.c shard");
    refused(put(0, "c.bin", "\1\0\2\0", 4), TL_TOKENS_NPY, 0, "is no NumPy array");
    refused(put(0, "d.bin", "\1\0\2\0\3\0", 6), TL_TOKENS_RAW, 4, "no multiple of 4");
    tl_error error;
    assert_null(open_one(paths[0], TL_TOKENS_RAW, 3, &error));
    says(&error, "2 or 4 would work");
}

static void holds_headers_against_the_file(void **state) {
    unsigned char bytes[2048];
    (void)state;
    size_t n = from_llmc(token_llmc_1, bytes);
    refused(put(0, "a.bin", bytes, n - 2), TL_TOKENS_ANY, 0, "counts 5 tokens, the file has room for 4");
    refused(put(0, "a.bin", bytes, n + 2), TL_TOKENS_ANY, 0, "the file has 1036");
    refused(put(0, "a.bin", bytes, 500), TL_TOKENS_ANY, 0, "cut short");
    bytes[4] = 3;
    refused(put(0, "a.bin", bytes, n), TL_TOKENS_ANY, 0, "version 3");
    bytes[4] = 1;
    bytes[11] = 0x80; /* a count below zero */
    refused(put(0, "a.bin", bytes, n), TL_TOKENS_ANY, 0, "negative");
    n = from_hex(token_npy_u2, bytes);
    refused(put(0, "a.npy", bytes, n - 2), TL_TOKENS_ANY, 0, "half a download");
    refused(put(0, "a.npy", bytes, n + 2), TL_TOKENS_ANY, 0, "One array a file");
    refused(put(0, "a.npy", bytes, 60), TL_TOKENS_ANY, 0, "a.npy");
    memcpy(strstr((char *)bytes + 10, "<u2"), "<f2", 3);
    refused(put(0, "a.npy", bytes, n), TL_TOKENS_ANY, 0, "tokens are '<u2'");
    n = from_hex(token_npy_i8, bytes);
    memcpy(strstr((char *)bytes + 10, "<i8"), ">i8", 3);
    refused(put(0, "a.npy", bytes, n), TL_TOKENS_ANY, 0, "tokens are '<u2'");
    n = from_hex(token_npy_u4, bytes);
    memcpy(strstr((char *)bytes + 10, "(5,), }"), "(5,1),}", 7);
    refused(put(0, "a.npy", bytes, n), TL_TOKENS_ANY, 0, "2 axes");
    tl_error error;
    assert_null(open_one("/dev/null", TL_TOKENS_ANY, 0, &error));
    says(&error, "no regular file");
}

/* ---- sets of shards ---- */

static void reads_shards_as_one_stream(void **state) {
    static const uint16_t a[] = {10, 11, 12}, b[] = {20, 21, 22, 23}, c[] = {30};
    static const int32_t all[] = {10, 11, 12, 20, 21, 22, 23, 30}, listed[] = {30, 10, 11, 12};
    const char *list[8];
    tl_error error = {TL_OK, ""};
    int32_t got[8];
    char inside[128];
    (void)state;
    snprintf(inside, sizeof inside, "%s/set", folder);
    assert_int_equal(mkdir(inside, 0777), 0);
    put(0, "set/s_01.bin", a, sizeof a);
    put(1, "set/s_02.bin", b, sizeof b);
    put(2, "set/s_03.bin", c, sizeof c);
    put(3, "set/README.md", "words", 5);
    put(4, "set/.hidden.bin", "???", 3);
    put(5, "set/s_04.bin.tmp", "???", 3);
    tl_tokens *t = opened(inside, 2);
    same_ids(t, all, 8);
    assert_int_equal(tl_tokens_files(t), 3);
    for (int64_t first = 0; first < 8; first++)
        for (int64_t n = 0; first + n <= 8; n++) {
            assert_int_equal(tl_tokens_read(t, first, n, 0, got, &error), TL_OK);
            assert_memory_equal(got, all + first, (size_t)n * sizeof *got);
        }
    assert_string_equal(tl_tokens_at(t, 2)->path, paths[0]);
    assert_string_equal(tl_tokens_at(t, 3)->path, paths[1]);
    assert_string_equal(tl_tokens_at(t, 7)->path, paths[2]);
    assert_null(tl_tokens_at(t, 8));
    assert_null(tl_tokens_at(t, -1));
    assert_int_equal(tl_tokens_read(t, 5, 4, 0, got, &error), TL_ERR_ARGUMENT);
    error = (tl_error){TL_OK, ""};
    assert_int_equal(tl_tokens_read(t, INT64_MAX, 1, 0, got, &error), TL_ERR_ARGUMENT);
    assert_int_equal(tl_tokens_read(t, 1, INT64_MAX, 0, got, &error), TL_ERR_ARGUMENT);
    assert_int_equal(tl_tokens_read(t, -1, 1, 0, got, &error), TL_ERR_ARGUMENT);
    tl_tokens_close(t);
    /* An id that is too large is named by its own file and index. */
    t = opened(inside, 2);
    error = (tl_error){TL_OK, ""};
    assert_int_equal(tl_tokens_read(t, 1, 7, 23, got, &error), TL_ERR_FORMAT);
    says(&error, "s_02.bin: id 23 at index 3 is not below the vocabulary of 23");
    tl_tokens_close(t);
    /* A pattern, and a list in an order of its own. */
    snprintf(paths[6], sizeof paths[6], "%s/s_0[12].bin", inside);
    t = opened(paths[6], 2);
    same_ids(t, all, 7);
    tl_tokens_close(t);
    error = (tl_error){TL_OK, ""};
    t = tl_tokens_open((const char *[]){paths[2], paths[0]}, 2, &(tl_tokens_options){TL_TOKENS_RAW, 2}, NULL, &error);
    assert_non_null(t);
    same_ids(t, listed, 4);
    tl_tokens_close(t);
    /* The index decides: what it does not name is not read, whatever it is. */
    put(4, "set/stray.bin", "PK\3\4", 4);
    refused(inside, TL_TOKENS_ANY, 2, "stray.bin is a zip archive");
    put_text(5, "set/shards.txt", "# in this order\ns_03.bin\r\n\n  s_01.bin  # first\n");
    t = opened(inside, 2);
    same_ids(t, listed, 4);
    tl_tokens_close(t);
    put_text(5, "set/shards.txt", "s_03.bin\ns_01.bin\ns_03.bin\n");
    refused(inside, TL_TOKENS_ANY, 2, "s_03.bin is named twice");
    put_text(5, "set/shards.txt", "s_09.bin\n");
    refused(inside, TL_TOKENS_ANY, 2, "s_09.bin");
    put_text(5, "set/shards.txt", "# none\n");
    refused(inside, TL_TOKENS_ANY, 2, "lists no files");
    put_text(5, "set/shards.txt", "\1\2\3\n");
    refused(inside, TL_TOKENS_ANY, 2, "no list of names");
    error = (tl_error){TL_OK, ""};
    assert_null(tl_tokens_open(as_list(paths, list, 0), 0, NULL, NULL, &error));
    assert_true(error.message[0] != '\0');
    snprintf(paths[6], sizeof paths[6], "%s/none*.bin", inside);
    refused(paths[6], TL_TOKENS_ANY, 0, "no file matches");
}

static void refuses_a_mixed_stream(void **state) {
    unsigned char bytes[2048];
    uint16_t *ids = some_ids(64);
    char inside[128];
    (void)state;
    snprintf(inside, sizeof inside, "%s/mixed", folder);
    assert_int_equal(mkdir(inside, 0777), 0);
    put(0, "mixed/a.bin", bytes, from_llmc(token_llmc_1, bytes));
    put(1, "mixed/b.bin", bytes, from_llmc(token_llmc_7, bytes));
    refused(inside, TL_TOKENS_ANY, 0, "b.bin is llmc of uint32");
    put(1, "mixed/b.bin", ids, 128);
    refused(inside, TL_TOKENS_ANY, 0, "b.bin is raw of uint16");
    refused(inside, TL_TOKENS_LLMC, 0, "b.bin is no llm.c shard");
    unlink(paths[0]);
    unlink(paths[1]);
    refused(inside, TL_TOKENS_ANY, 0, "holds no *.bin");
    put(0, "mixed/fineweb_train_000001.bin", ids, 128);
    put(1, "mixed/fineweb_val_000000.bin", ids, 128);
    refused(inside, TL_TOKENS_ANY, 0, "not one stream");
    snprintf(paths[2], sizeof paths[2], "%s/*train*", inside);
    tl_tokens *t = opened(paths[2], 0);
    assert_int_equal(tl_tokens_files(t), 1);
    tl_tokens_close(t);
    free(ids);
}

/* ---- a look at all ids ---- */

static tl_token_scan scanned(const tl_tokens *t, int64_t vocab, int64_t separator) {
    tl_token_scan scan;
    tl_error error = {TL_OK, ""};
    tl_token_scan_options options = {.vocab = vocab, .separator = separator};
    assert_int_equal(tl_tokens_scan(t, &options, &scan, &error), TL_OK);
    return scan;
}

static void finds_the_first_bad_id(void **state) {
    uint16_t *ids = some_ids(5000);
    tl_token_scan s;
    (void)state;
    ids[0] = 0;
    ids[4321] = 50258;
    ids[4999] = 65535;
    tl_tokens *t = opened(put(0, "v.bin", ids, 10000), 2);
    s = scanned(t, 50257, 50256);
    assert_true(s.count == 5000 && s.bad == 2 && s.first_bad == 4321 && s.first_bad_id == 50258);
    assert_true(s.least == 0 && s.most == 65535);
    assert_non_null(strstr(s.problem, "v.bin: id 50258 at index 4321 is not below the vocabulary of 50257"));
    s = scanned(t, 0, -1);
    assert_true(s.bad == 0 && s.first_bad == -1 && s.problem[0] == '\0' && s.separators == 0);
    tl_tokens_close(t);
    free(ids);
    /* FAULTS: a tokenizer that says 128,000 and emits 128,255. */
    unsigned char bytes[2048];
    t = opened(put(0, "l.bin", bytes, from_llmc(token_llmc_7, bytes)), 0);
    s = scanned(t, 128000, 0);
    assert_true(s.bad == 2 && s.first_bad == 0 && s.first_bad_id == 128000 && s.most == 128255 && s.separators == 1);
    assert_int_equal(scanned(t, 128256, 0).bad, 0);
    tl_tokens_close(t);
    static const int64_t negative[] = {5, -1};
    memset(bytes, 0, sizeof bytes);
    size_t n = from_hex(token_npy_i8, bytes);
    memcpy(bytes + n - 16, negative, 16);
    t = opened(put(0, "n.npy", bytes, n), 0);
    s = scanned(t, 0, -1);
    assert_true(s.bad == 1 && s.first_bad == 4 && s.least == -1);
    assert_non_null(strstr(s.problem, "id -1 at index 4 is negative"));
    tl_tokens_close(t);
}

/* FAULTS: a uint32 file read as uint16, and the reverse. */
static void suspects_a_wrong_width(void **state) {
    uint16_t *ids = some_ids(4096);
    uint32_t *wide = malloc(4096 * sizeof *wide);
    tl_token_scan s;
    (void)state;
    assert_non_null(wide);
    for (int i = 0; i < 4096; i++)
        wide[i] = ids[i];
    tl_tokens *t = opened(put(0, "w.bin", wide, 4096 * 4), 2);
    s = scanned(t, 50257, -1);
    assert_true(s.bad == 4096 && s.first_bad == 1 && s.first_bad_id == 0);
    assert_non_null(strstr(s.problem, "uint32 ids read as uint16"));
    tl_tokens_close(t);
    t = opened(put(0, "n.bin", ids, 4096 * 2), 4);
    s = scanned(t, 0, -1);
    assert_true(s.bad > 1000);
    assert_non_null(strstr(s.problem, "uint16 ids read as uint32"));
    s = scanned(t, 50257, -1);
    assert_non_null(strstr(s.problem, "uint16 ids read as uint32"));
    tl_tokens_close(t);
    t = opened(put(0, "g.bin", ids, 4096 * 2), 2); /* what is as it should be is not suspected */
    assert_int_equal(scanned(t, 50257, -1).bad, 0);
    tl_tokens_close(t);
    free(ids);
    free(wide);
}

static void counts_ids(void **state) {
    static const uint16_t ids[] = {3, 1, 3, 2, 9, 3};
    int64_t histogram[4] = {0};
    tl_token_scan scan;
    tl_error error = {TL_OK, ""};
    tl_token_scan_options options = {.separator = -1, .histogram = histogram, .histogram_size = 4};
    (void)state;
    tl_tokens *t = opened(put(0, "h.bin", ids, sizeof ids), 2);
    assert_int_equal(tl_tokens_scan(t, &options, &scan, &error), TL_OK);
    assert_true(histogram[0] == 0 && histogram[1] == 1 && histogram[2] == 1 && histogram[3] == 3);
    options.vocab = -5;
    assert_int_equal(tl_tokens_scan(t, &options, &scan, &error), TL_ERR_ARGUMENT);
    tl_tokens_close(t);
}

/* ---- samplers ---- */

static tl_sampler_options sampling(tl_sampler_kind kind, int64_t seq, uint64_t seed) {
    return (tl_sampler_options){.kind = kind, .seq = seq, .seed = seed, .separator = -1};
}

/* FAULTS: files of 0, 1, T and T + 1 tokens. */
static void small_files_do_not_wrap(void **state) {
    enum { T = 8 };
    static const struct {
        int64_t n;
        const char *words; /* NULL: it works */
    } cases[] = {{0, "no tokens; a window of 8 needs 9"},
                 {1, "1 token; a window of 8 needs 9"},
                 {2, "windows of 1 or fewer would work"},
                 {T, "8 tokens; a window of 8 needs 9, the last of them as a target: windows of 7 or fewer would work"},
                 {T + 1, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int kind = TL_SAMPLER_RANDOM; kind <= TL_SAMPLER_IN_ORDER; kind++) {
            tl_sampler s;
            tl_error error = {TL_OK, ""};
            tl_tokens *t = opened(counting(0, "small.bin", cases[i].n), 4);
            tl_sampler_options o = sampling((tl_sampler_kind)kind, T, 1);
            tl_status status = tl_sampler_init(&s, t, &o, &error);
            if (cases[i].words) {
                assert_int_equal(status, TL_ERR_ARGUMENT);
                says(&error, cases[i].words);
                says(&error, "small.bin");
            } else {
                int32_t input[T], target[T];
                assert_int_equal(status, TL_OK);
                assert_int_equal(s.windows, 1);
                assert_int_equal(tl_sampler_window(&s, UINT64_MAX, input, target, &error), TL_OK);
                for (int k = 0; k < T; k++)
                    assert_true(input[k] == k && target[k] == k + 1);
            }
            static const int64_t bad[] = {0, -1, INT64_MAX};
            for (size_t b = 0; b < 3; b++) {
                o.seq = bad[b];
                error = (tl_error){TL_OK, ""};
                assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_ERR_ARGUMENT);
            }
            tl_tokens_close(t);
        }
}

/* CS336 assignment 1, get_batch: x[i … i+T), y one later, i uniform over all n − T starts; each is drawn equally often. */
static void random_windows_are_uniform(void **state) {
    enum { N = 30, T = 7, DRAWS = 23000 };
    int count[N] = {0};
    tl_error error = {TL_OK, ""};
    tl_sampler s, other;
    int differ = 0;
    (void)state;
    tl_tokens *t = opened(counting(0, "r.bin", N), 4);
    tl_sampler_options o = sampling(TL_SAMPLER_RANDOM, T, 336), p = sampling(TL_SAMPLER_RANDOM, T, 337);
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_init(&other, t, &p, &error), TL_OK);
    assert_int_equal(s.windows, N - T);
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t x[T], y[T];
        assert_int_equal(tl_sampler_window(&s, i, x, y, &error), TL_OK);
        assert_true(x[0] == tl_sampler_start(&s, i) && x[0] >= 0 && x[0] < N - T);
        for (int k = 0; k < T; k++)
            assert_true(x[k] == x[0] + k && y[k] == x[k] + 1);
        count[x[0]]++;
        differ += x[0] != tl_sampler_start(&other, i);
    }
    /* Chi-square of 22 degrees of freedom: beyond 60 with probability 2e-5. */
    double chi = 0;
    for (int i = 0; i < N - T; i++)
        chi += (count[i] - 1000.0) * (count[i] - 1000.0) / 1000.0;
    assert_true(chi < 60);
    assert_true(differ > DRAWS / 2);
    tl_tokens_close(t);
}

/* Each window once an epoch, in any epoch, and each epoch in an order of its own. */
static void epochs_have_each_window_once(void **state) {
    static const int64_t sizes[] = {2, 3, 4, 5, 17, 64, 255, 256, 257, 1000, 4097};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int64_t T = 3, W = sizes[i];
        unsigned char *seen = malloc((size_t)W);
        int64_t moved = 0, again = 0;
        tl_error error = {TL_OK, ""};
        tl_sampler s;
        assert_non_null(seen);
        tl_tokens *t = opened(counting(0, "e.bin", W * T + 1 + (int64_t)(i % 3)), 4);
        tl_sampler_options o = sampling(TL_SAMPLER_EPOCHS, T, 7);
        assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
        assert_int_equal(s.windows, W);
        static const uint64_t epochs[] = {0, 1, 2, 3, 1000000007};
        for (size_t e = 0; e < 5; e++) {
            memset(seen, 0, (size_t)W);
            for (int64_t k = 0; k < W; k++) {
                const int64_t start = tl_sampler_start(&s, epochs[e] * (uint64_t)W + (uint64_t)k);
                assert_true(start >= 0 && start % T == 0 && start / T < W);
                assert_int_equal(seen[start / T]++, 0);
                moved += start / T != k;
                again += start == tl_sampler_start(&s, (uint64_t)k);
            }
        }
        if (W >= 64) { /* one window of a random order stays where it is on average, whatever W */
            assert_true(moved > 5 * W - 40);
            assert_true(again < W + 40);
        }
        tl_tokens_close(t);
        free(seen);
    }
}

/* Five windows have 120 orders; over 12,000 epochs each about 100 times. */
static void small_epochs_have_all_orders(void **state) {
    enum { W = 5, EPOCHS = 12000 };
    static int count[3125];
    int orders = 0;
    double chi = 0;
    tl_error error = {TL_OK, ""};
    tl_sampler s;
    (void)state;
    tl_tokens *t = opened(counting(0, "o.bin", W + 1), 4);
    tl_sampler_options o = sampling(TL_SAMPLER_EPOCHS, 1, 11);
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    for (uint64_t e = 0; e < EPOCHS; e++) {
        int64_t order = 0;
        for (uint64_t k = 0; k < W; k++)
            order = order * W + tl_sampler_start(&s, e * W + k);
        count[order]++;
    }
    for (int i = 0; i < 3125; i++) {
        orders += count[i] > 0;
        chi += count[i] ? (count[i] - 100.0) * (count[i] - 100.0) / 100.0 : 0;
    }
    assert_int_equal(orders, 120);
    assert_true(chi < 119 + 5 * 15.4); /* 119 degrees of freedom, standard deviation √238 */
    tl_tokens_close(t);
}

static void ignores_targets_across_documents(void **state) {
    /* Two documents that end with 99: 5 6 99 | 7 8 99 */
    static const uint16_t ids[] = {5, 6, 99, 7, 8, 99, 1};
    static const int64_t starts[] = {0, 3, 6}, wrong[] = {3, 0}, outside[] = {8};
    static const int32_t end[] = {6, 99, TL_IGNORE_INDEX, 8, 99, TL_IGNORE_INDEX},
                         begin[] = {6, TL_IGNORE_INDEX, 7, 8, TL_IGNORE_INDEX, 1}, all[] = {6, 99, 7, 8, 99, 1};
    int32_t input[6], target[6];
    tl_error error = {TL_OK, ""};
    tl_sampler s;
    (void)state;
    tl_tokens *t = opened(put(0, "d.bin", ids, sizeof ids), 2);
    tl_sampler_options o = sampling(TL_SAMPLER_IN_ORDER, 6, 0);
    o.separator = 99;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 0, input, target, &error), TL_OK);
    assert_memory_equal(target, all, sizeof all); /* known, and not asked for */
    o.ignore_boundaries = true;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 0, input, target, &error), TL_OK);
    assert_memory_equal(target, end, sizeof end);
    o.separator_begins = true;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 0, input, target, &error), TL_OK);
    assert_memory_equal(target, begin, sizeof begin);
    o.separator = -1;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_ERR_ARGUMENT);
    o.documents = starts;
    o.document_count = 3;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 0, input, target, &error), TL_OK);
    assert_memory_equal(target, end, sizeof end);
    o.seq = 2; /* windows 0 1 2: the second begins with a boundary inside */
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 1, input, target, &error), TL_OK);
    assert_true(input[0] == 99 && target[0] == TL_IGNORE_INDEX && target[1] == 8);
    o.documents = wrong;
    o.document_count = 2;
    error = (tl_error){TL_OK, ""};
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_ERR_ARGUMENT);
    o.documents = outside;
    o.document_count = 1;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_ERR_ARGUMENT);
    tl_tokens_close(t);
}

/* ---- the reader ---- */

static tl_ctx *cpu(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    assert_non_null(ctx);
    return ctx;
}

enum { B = 3, T = 5, BATCHES = 60 };

/* `n` batches as they come: inputs and targets. */
static void draw(const tl_tokens *t, tl_sampler_kind kind, int threads, int slots, uint64_t position, int n,
                 int32_t *out) {
    tl_ctx *ctx = cpu();
    tl_reader *r = tl_reader_new(ctx, t,
                                 &(tl_reader_options){.sampler = sampling(kind, T, 5),
                                                      .micro_batch = B,
                                                      .threads = threads,
                                                      .slots = slots,
                                                      .position = position});
    assert_non_null(r);
    assert_int_equal(tl_reader_position(r), position);
    for (int i = 0; i < n; i++) {
        tl_tensor *input, *target;
        tl_scope_begin(ctx);
        assert_int_equal(tl_reader_batch(r, &input, &target), TL_OK);
        assert_true(tl_tensor_size(input, 0) == B && tl_tensor_size(target, 1) == T);
        assert_int_equal(tl_tensor_category(input), TL_DATA);
        assert_int_equal(tl_tensor_read(input, out + i * 2 * B * T, B * T * 4), TL_OK);
        assert_int_equal(tl_tensor_read(target, out + (i * 2 + 1) * B * T, B * T * 4), TL_OK);
        tl_scope_end(ctx);
        assert_int_equal(tl_reader_position(r), position + (uint64_t)(i + 1) * B);
    }
    assert_true(tl_reader_waited(r) >= 0);
    tl_reader_free(r);
    tl_ctx_free(ctx);
}

/* FAULTS: wrong data order after resuming in epoch ≥ 2. 16 windows an epoch, 180 windows drawn: eleven epochs. */
static void the_same_order_with_any_threads_and_after_resuming(void **state) {
    static int32_t once[BATCHES * 2 * B * T], again[BATCHES * 2 * B * T];
    static const int threads[] = {1, 2, 3, 7}, slots[] = {1, 2, 5, 3};
    (void)state;
    tl_tokens *t = opened(counting(0, "c.bin", 84), 4);
    for (int kind = TL_SAMPLER_RANDOM; kind <= TL_SAMPLER_IN_ORDER; kind++) {
        draw(t, (tl_sampler_kind)kind, 0, 1, 0, BATCHES, once);
        for (int i = 0; i < 4; i++) {
            memset(again, 0, sizeof again);
            draw(t, (tl_sampler_kind)kind, threads[i], slots[i], 0, BATCHES, again);
            assert_memory_equal(again, once, sizeof once);
        }
        for (int stop = 1; stop < BATCHES; stop += 13) {
            memset(again, 0, sizeof again);
            draw(t, (tl_sampler_kind)kind, 2, 2, 0, stop, again);
            draw(t, (tl_sampler_kind)kind, 1, 3, (uint64_t)stop * B, BATCHES - stop, again + stop * 2 * B * T);
            assert_memory_equal(again, once, sizeof once);
        }
    }
    tl_tokens_close(t);
}

/* An error met ahead comes when its batch does, after all good ones, and says where; and again when asked again. */
static void errors_arrive_with_their_batch(void **state) {
    (void)state;
    tl_tokens *t = opened(counting(0, "bad.bin", 101), 4); /* ids 0 … 100: window k of 5 has 5k … 5k + 5 */
    for (int threads = 0; threads <= 3; threads++) {
        tl_ctx *ctx = cpu();
        tl_reader_options o = {
            .sampler = sampling(TL_SAMPLER_IN_ORDER, 5, 1), .micro_batch = 2, .threads = threads, .slots = 4};
        o.sampler.vocab = 50; /* 50 is first a target in window 9, the second of batch 4 */
        tl_reader *r = tl_reader_new(ctx, t, &o);
        tl_tensor *input, *target;
        assert_non_null(r);
        tl_scope_begin(ctx);
        for (int i = 0; i < 4; i++)
            assert_int_equal(tl_reader_batch(r, &input, &target), TL_OK);
        assert_int_equal(tl_reader_batch(r, &input, &target), TL_ERR_FORMAT);
        says(tl_ctx_error(ctx), "bad.bin: id 50 at index 50 is not below the vocabulary of 50");
        assert_null(input);
        assert_int_equal(tl_reader_position(r), 8);
        tl_ctx_clear_error(ctx);
        assert_int_equal(tl_reader_batch(r, &input, &target), TL_ERR_FORMAT);
        tl_scope_end(ctx);
        tl_reader_free(r);
        tl_ctx_free(ctx);
    }
    tl_tokens_close(t);
}

static void stops_at_any_moment(void **state) {
    (void)state;
    tl_tokens *t = opened(counting(0, "s.bin", 5000), 4);
    for (int i = 0; i < 60; i++) {
        tl_ctx *ctx = cpu();
        tl_reader *r = tl_reader_new(ctx, t,
                                     &(tl_reader_options){.sampler = sampling(TL_SAMPLER_RANDOM, 100, 1),
                                                          .micro_batch = 8,
                                                          .threads = 1 + i % 4,
                                                          .slots = 1 + i % 3});
        assert_non_null(r);
        for (int k = 0; k < i % 5; k++) {
            tl_tensor *input, *target;
            tl_scope_begin(ctx);
            assert_int_equal(tl_reader_batch(r, &input, &target), TL_OK);
            tl_scope_end(ctx);
        }
        tl_reader_free(r);
        tl_ctx_free(ctx);
    }
    tl_tokens_close(t);
}

static void buffers_are_in_the_ledger(void **state) {
    (void)state;
    tl_tokens *t = opened(counting(0, "l.bin", 500), 4);
    tl_ctx *ctx = cpu();
    tl_reader_options o = {.sampler = sampling(TL_SAMPLER_RANDOM, 10, 1), .micro_batch = 4, .threads = 1, .slots = 3};
    tl_reader *r = tl_reader_new(ctx, t, &o);
    tl_tensor *input, *target;
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), 3 * 2 * 4 * 10 * 4);
    tl_scope_begin(ctx);
    assert_int_equal(tl_reader_batch(r, &input, &target), TL_OK);
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), (3 + 1) * 2 * 4 * 10 * 4);
    tl_scope_end(ctx);
    tl_reader_free(r);
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), 0);
    /* A ring of the caller's: none of its own; of another shape it is refused. */
    tl_scope_begin(ctx);
    o.ring = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(3), tl_dim_of(2), tl_dim_of(4), tl_dim_of(10)), TL_DATA);
    r = tl_reader_new(ctx, t, &o);
    assert_non_null(r);
    assert_int_equal(tl_reader_batch(r, &input, &target), TL_OK);
    tl_reader_free(r);
    o.micro_batch = 5;
    assert_null(tl_reader_new(ctx, t, &o));
    says(tl_ctx_error(ctx), "[3, 2, 5, 10] would work");
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
    tl_tokens_close(t);
}

static void refuses_a_reader_that_cannot_be(void **state) {
    static const struct {
        int64_t micro_batch;
        int threads, slots;
    } cases[] = {{0, 1, 2},  {-1, 1, 2},   {INT64_MAX, 1, 2}, {INT64_MAX / 64, 1, 2},
                 {1, -1, 2}, {1, 1000, 2}, {1, 1, -1},        {1, 1, 5000}};
    tl_error error = {TL_OK, ""};
    (void)state;
    tl_tokens *t = opened(counting(0, "x.bin", 100), 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_ctx *ctx = cpu();
        assert_null(tl_reader_new(ctx, t,
                                  &(tl_reader_options){.sampler = sampling(TL_SAMPLER_RANDOM, 10, 1),
                                                       .micro_batch = cases[i].micro_batch,
                                                       .threads = cases[i].threads,
                                                       .slots = cases[i].slots}));
        assert_true(strlen(tl_ctx_error(ctx)->message) > 10);
        tl_ctx_free(ctx);
    }
    tl_ctx *meta = tl_ctx_new(NULL, &error);
    assert_null(
        tl_reader_new(meta, t, &(tl_reader_options){.sampler = sampling(TL_SAMPLER_RANDOM, 10, 1), .micro_batch = 1}));
    tl_ctx_free(meta);
    tl_tokens_close(t);
}

/* In a child: the limit lies below what is asked for, and root would have none. */
static void locking_that_is_refused_is_an_error(void **state) {
    (void)state;
    tl_tokens *t = opened(counting(0, "m.bin", 100000), 4);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {4096, 4096};
        tl_error error = {TL_OK, ""};
        int verdict = 1;
        if (setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && (getuid() != 0 || setuid(65534) == 0)) {
            tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
            tl_reader_options o = {
                .sampler = sampling(TL_SAMPLER_RANDOM, 1000, 1), .micro_batch = 64, .threads = 1, .locked = true};
            const tl_reader *r = tl_reader_new(ctx, t, &o);
            verdict = !r && strstr(tl_ctx_error(ctx)->message, "RLIMIT_MEMLOCK is 4096 bytes") ? 0 : 2;
        }
        _exit(verdict);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    tl_tokens_close(t);
}

/* ---- memory ---- */

static int64_t status_kb(const char *key) {
    char line[128];
    int64_t kb = -1;
    const size_t n = strlen(key);
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            kb = strtoll(line + n + 1, NULL, 10);
    if (file)
        fclose(file);
    return kb;
}

/* A file of 2 GB (with holes: it takes no disk) costs no resident memory beyond the pages in use. Reading at random touches
 * 2000 × 8 windows of 2 KB, 64 KB each with the pages the kernel maps around: 1 GB if they stayed. */
static void a_large_file_costs_no_memory(void **state) {
    const int64_t count = INT64_C(1000000000), most_kb = 16 << 10;
    tl_error error = {TL_OK, ""};
    (void)state;
    put(0, "large.bin", "\1\0", 2);
    assert_int_equal(truncate(paths[0], (off_t)(2 * count)), 0);
    tl_tokens *t = opened(paths[0], 2);
    assert_true(tl_tokens_count(t) == count);
    const int64_t before = status_kb("VmRSS"), before_file = status_kb("RssFile");
    tl_ctx *ctx = cpu();
    tl_reader *r = tl_reader_new(
        ctx, t, &(tl_reader_options){.sampler = sampling(TL_SAMPLER_RANDOM, 1024, 9), .micro_batch = 8, .threads = 1});
    assert_non_null(r);
    int64_t most = 0;
    for (int i = 0; i < 2000; i++) {
        tl_tensor *input, *target;
        tl_scope_begin(ctx);
        assert_int_equal(tl_reader_batch(r, &input, &target), TL_OK);
        tl_scope_end(ctx);
        if (i % 100 == 99) {
            const int64_t now = status_kb("RssFile") - before_file;
            most = now > most ? now : most;
        }
    }
    tl_reader_free(r);
    tl_ctx_free(ctx);
    print_message("2000 batches from 2 GB: file pages resident at most %lld KB more, all %lld KB more\n",
                  (long long)most, (long long)(status_kb("VmRSS") - before));
    assert_true(most < most_kb);
    /* All of it, in order: 64 MB are enough to see that pages are dropped behind. */
    assert_int_equal(truncate(paths[0], (off_t)(64 << 20)), 0);
    tl_tokens_close(t);
    t = opened(paths[0], 2);
    tl_token_scan scan;
    assert_int_equal(tl_tokens_scan(t, &(tl_token_scan_options){.separator = -1}, &scan, &error), TL_OK);
    assert_true(scan.count == 32 << 20);
    assert_true(status_kb("RssFile") - before_file < most_kb);
    tl_tokens_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_what_others_wrote, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(writes_as_others_do, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(refuses_to_write_what_does_not_fit, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(infers_a_width_with_evidence, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(refuses_what_is_no_tokens, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(refuses_other_forms_by_name, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(holds_headers_against_the_file, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(reads_shards_as_one_stream, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(refuses_a_mixed_stream, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(finds_the_first_bad_id, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(suspects_a_wrong_width, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(counts_ids, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(small_files_do_not_wrap, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(random_windows_are_uniform, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(epochs_have_each_window_once, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(small_epochs_have_all_orders, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(ignores_targets_across_documents, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(the_same_order_with_any_threads_and_after_resuming, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(errors_arrive_with_their_batch, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(stops_at_any_moment, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(buffers_are_in_the_ledger, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(refuses_a_reader_that_cannot_be, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(locking_that_is_refused_is_an_error, make_folder, clear_folder),
        cmocka_unit_test_setup_teardown(a_large_file_costs_no_memory, make_folder, clear_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
