/* Files of tokens: forms, sets of shards, what is refused and with which words, a look at all ids, writing. Expected
 * values: files as NumPy wrote them and llm.c's header as its dev/data/data_common.py describes it
 * (tests/fixtures/token_fixtures.h), and exact arithmetic. Cases of ../shared/FAULTS.md under "Data" are marked FAULTS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixtures/token_fixtures.h"
#include "token_files.h"

static size_t from_hex(const char *hex, unsigned char *out) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (unsigned char)byte;
    }
    return n;
}

static size_t from_llmc(const char *hex, unsigned char *out) {
    unsigned char all[64];
    size_t n = from_hex(hex, all);
    memset(out, 0, 1024);
    memcpy(out, all, 12);
    memcpy(out + 1024, all + 12, n - 12);
    return 1024 + n - 12;
}

static void refused(const char *path, tl_token_form form, int width, const char *words) {
    tl_error error;
    assert_null(open_one(path, form, width, &error));
    if (!strstr(error.message, words))
        print_error("\"%s\" does not say \"%s\"\n", error.message, words);
    assert_non_null(strstr(error.message, words));
    assert_non_null(strstr(error.message, token_folder));
}

static void same_ids(const tl_tokens *t, const int32_t *want, int64_t n) {
    int32_t got[16];
    tl_error error = {TL_OK, ""};
    assert_true(tl_tokens_count(t) == n && n <= 16);
    assert_int_equal(tl_tokens_read(t, 0, n, 0, got, &error), TL_OK);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
}

static uint16_t *some_ids(int64_t n) {
    uint16_t *ids = malloc((size_t)n * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (uint16_t)((i * i * 31 + i * 7919) % 50257);
    return ids;
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
        snprintf(token_paths[0], sizeof token_paths[0], "%s/w.bin", token_folder);
        tl_token_writer *w = tl_token_writer_new(token_paths[0], cases[i].form, cases[i].width, NULL, &error);
        assert_non_null(w);
        assert_int_equal(tl_token_writer_put(w, ids, 2, &error), TL_OK);
        assert_int_equal(tl_token_writer_put(w, ids + 2, 3, &error), TL_OK);
        assert_int_equal(tl_token_writer_count(w), 5);
        assert_int_equal(tl_token_writer_end(w, TL_OK, &error), TL_OK);
        FILE *file = fopen(token_paths[0], "rb");
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
    tl_token_writer *w = tl_token_writer_new(token_paths[0], TL_TOKENS_RAW, 2, NULL, &error);
    tl_status status = tl_token_writer_put(w, wide, 3, &error);
    assert_int_equal(status, TL_ERR_ARGUMENT);
    says(&error, "id 70000 at index 1");
    says(&error, "65535");
    assert_int_equal(tl_token_writer_end(w, status, &error), status);
    struct stat about;
    assert_int_equal(stat(token_paths[0], &about), 0);
    assert_int_equal(about.st_size, 4); /* the old file */
    snprintf(token_paths[1], sizeof token_paths[1], "%s/kept.bin.tmp", token_folder);
    assert_int_not_equal(stat(token_paths[1], &about), 0);
    error = (tl_error){TL_OK, ""};
    snprintf(token_paths[1], sizeof token_paths[1], "%s/new.bin", token_folder);
    w = tl_token_writer_new(token_paths[1], TL_TOKENS_NPY, 4, NULL, &error);
    status = tl_token_writer_put(w, negative, 3, &error);
    says(&error, "id -100 at index 2");
    assert_int_equal(tl_token_writer_end(w, status, &error), status);
    assert_int_not_equal(stat(token_paths[1], &about), 0);
    error = (tl_error){TL_OK, ""};
    assert_null(tl_token_writer_new("/nowhere/at/all.bin", TL_TOKENS_RAW, 2, NULL, &error));
    says(&error, "/nowhere/at/all.bin");
    assert_null(tl_token_writer_new(token_paths[1], TL_TOKENS_ANY, 2, NULL, &error));
    assert_null(tl_token_writer_new(token_paths[1], TL_TOKENS_RAW, 8, NULL, &error));
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
    t = opened(token_paths[0], 4);
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
    refused(token_folder, TL_TOKENS_LLMC, 0, "not an llm.c shard"); /* a folder is read by its files */
}

static void refuses_other_forms_by_name(void **state) {
    unsigned char bytes[2048];
    (void)state;
    /* FAULTS: a .npy header read as tokens. */
    refused(put(0, "a.bin", bytes, from_hex(token_npy_u2, bytes)), TL_TOKENS_RAW, 2, "a NumPy array");
    refused(token_paths[0], TL_TOKENS_LLMC, 0, "a NumPy array");
    refused(token_paths[0], TL_TOKENS_ANY, 4, "holds uint16");
    refused(put(0, "b.bin", bytes, from_llmc(token_llmc_1, bytes)), TL_TOKENS_RAW, 2, "an llm.c shard");
    refused(put(0, "c.bin", "\1\0\2\0", 4), TL_TOKENS_NPY, 0, "is no NumPy array");
    refused(put(0, "d.bin", "\1\0\2\0\3\0", 6), TL_TOKENS_RAW, 4, "no multiple of 4");
    tl_error error;
    assert_null(open_one(token_paths[0], TL_TOKENS_RAW, 3, &error));
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
    tl_error error = {TL_OK, ""};
    int32_t got[8];
    char inside[128];
    (void)state;
    snprintf(inside, sizeof inside, "%s/set", token_folder);
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
    assert_string_equal(tl_tokens_at(t, 2)->path, token_paths[0]);
    assert_string_equal(tl_tokens_at(t, 3)->path, token_paths[1]);
    assert_string_equal(tl_tokens_at(t, 7)->path, token_paths[2]);
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
    snprintf(token_paths[6], sizeof token_paths[6], "%s/s_0[12].bin", inside);
    t = opened(token_paths[6], 2);
    same_ids(t, all, 7);
    tl_tokens_close(t);
    error = (tl_error){TL_OK, ""};
    t = tl_tokens_open((const char *[]){token_paths[2], token_paths[0]}, 2, &(tl_tokens_options){TL_TOKENS_RAW, 2},
                       NULL, &error);
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
    assert_null(tl_tokens_open(NULL, 0, NULL, NULL, &error));
    assert_true(error.message[0] != '\0');
    snprintf(token_paths[6], sizeof token_paths[6], "%s/none*.bin", inside);
    refused(token_paths[6], TL_TOKENS_ANY, 0, "no file matches");
}

static void refuses_a_mixed_stream(void **state) {
    unsigned char bytes[2048];
    uint16_t *ids = some_ids(64);
    char inside[128];
    (void)state;
    snprintf(inside, sizeof inside, "%s/mixed", token_folder);
    assert_int_equal(mkdir(inside, 0777), 0);
    put(0, "mixed/a.bin", bytes, from_llmc(token_llmc_1, bytes));
    put(1, "mixed/b.bin", bytes, from_llmc(token_llmc_7, bytes));
    refused(inside, TL_TOKENS_ANY, 0, "b.bin is llmc of uint32");
    put(1, "mixed/b.bin", ids, 128);
    refused(inside, TL_TOKENS_ANY, 0, "b.bin is raw of uint16");
    refused(inside, TL_TOKENS_LLMC, 0, "b.bin is no llm.c shard");
    unlink(token_paths[0]);
    unlink(token_paths[1]);
    refused(inside, TL_TOKENS_ANY, 0, "holds no *.bin");
    put(0, "mixed/fineweb_train_000001.bin", ids, 128);
    put(1, "mixed/fineweb_val_000000.bin", ids, 128);
    refused(inside, TL_TOKENS_ANY, 0, "not one stream");
    snprintf(token_paths[2], sizeof token_paths[2], "%s/*train*", inside);
    tl_tokens *t = opened(token_paths[2], 0);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        TOKEN_TEST(reads_what_others_wrote),
        TOKEN_TEST(writes_as_others_do),
        TOKEN_TEST(refuses_to_write_what_does_not_fit),
        TOKEN_TEST(infers_a_width_with_evidence),
        TOKEN_TEST(refuses_what_is_no_tokens),
        TOKEN_TEST(refuses_other_forms_by_name),
        TOKEN_TEST(holds_headers_against_the_file),
        TOKEN_TEST(reads_shards_as_one_stream),
        TOKEN_TEST(refuses_a_mixed_stream),
        TOKEN_TEST(finds_the_first_bad_id),
        TOKEN_TEST(suspects_a_wrong_width),
        TOKEN_TEST(counts_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
