/* The safetensors format: what the format's text (github.com/huggingface/safetensors, README "Format") demands is checked on
 * files made here byte by byte; what is written is read by these bytes too. Files of others are run by make conformance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tally/safetensors.h"

static char folder[64], path[96];

/* `header` with its length before it and `values` bytes 0, 1, 2 … behind it. */
static void make(const char *header, size_t length, size_t values) {
    unsigned char start[8];
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(file >= 0);
    for (int i = 0; i < 8; i++)
        start[i] = (unsigned char)(length >> 8 * i & 255);
    assert_int_equal(write(file, start, 8), 8);
    assert_int_equal(write(file, header, length), (ssize_t)length);
    for (size_t i = 0; i < values; i++) {
        unsigned char byte = (unsigned char)i;
        assert_int_equal(write(file, &byte, 1), 1);
    }
    close(file);
}

static void make_raw(const char *bytes, size_t length) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, length), (ssize_t)length);
    close(file);
}

static void assert_says(const char *words) {
    tl_error error = {TL_OK, ""};
    tl_safetensors *f = tl_safetensors_open(path, &error);
    if (f)
        fail_msg("accepted, where \"%s\" should have been said", words);
    assert_int_equal(error.status, TL_ERR_FORMAT);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

/* Header, bytes of values behind it, and NULL or what the refusal says. */
typedef struct header_case {
    const char *header;
    size_t values;
    const char *words;
} header_case;

#define ONE(dtype, shape, offsets) "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                                                             \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],"        \
    "\"data_offsets\":" second "}}"

static const header_case cases[] = {
    {"{}", 0, NULL},
    {" \t\r\n{}  \n", 0, NULL},
    {ONE("F32", "[2,3]", "[0,24]"), 24, NULL},
    {ONE("F32", "[]", "[0,4]"), 4, NULL},
    {ONE("F32", "[0,7]", "[0,0]"), 0, NULL},
    {ONE("U64", "[2]", "[0,16]"), 16, NULL},
    {ONE("F4", "[4]", "[0,2]"), 2, NULL},
    {ONE("C64", "[1]", "[0,8]"), 8, NULL},
    {TWO("[4,8]", "[0,4]"), 8, NULL}, /* any order in the header */
    {"{\"__metadata__\":{\"k\":\"v\",\"\":\"\"}}", 0, NULL},
    {"{\"a\":{\"more\":1,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, NULL},
    {ONE("F32", "[2,3]", "[0,24]"), 23, "its end is missing"},
    {ONE("F32", "[2,3]", "[0,24]"), 25, "1 bytes follow the last tensor"},
    {ONE("F32", "[2,3]", "[0,20]"), 20, "come to 24"},
    {ONE("F32", "[2,3]", "[4,28]"), 28, "there is a gap"},
    {ONE("F32", "[2,3]", "[24,0]"), 24, "after its end"},
    {ONE("F32", "[2,-3]", "[0,24]"), 24, "no count"},
    {ONE("F32", "[2.0,3]", "[0,24]"), 24, "no count"},
    {ONE("F32", "[\"2\",3]", "[0,24]"), 24, "no count"},
    {ONE("F32", "[2,[3]]", "[0,24]"), 24, "no count"},
    {ONE("F32", "7", "[0,24]"), 24, "\"shape\" is missing or no list"},
    {ONE("F32", "[6]", "[0,24,48]"), 24, "two numbers"},
    {ONE("F32", "[6]", "[0]"), 24, "two numbers"},
    {ONE("F32", "[6]", "{}"), 24, "two numbers"},
    {ONE("F32", "[6]", "[-24,0]"), 24, "no place in a file"},
    {ONE("F32", "[6]", "[0.5,24.5]"), 24, "no place in a file"},
    {ONE("F4", "[3]", "[0,2]"), 2, "in the middle of a byte"},
    {ONE("f32", "[6]", "[0,24]"), 24, "the format does not have"},
    {ONE("FLOAT", "[6]", "[0,24]"), 24, "the format does not have"},
    {ONE("F32", "[4611686018427387904,4]", "[0,24]"), 24, "more than 63 bits"},
    {ONE("F32", "[4294967296,4294967296,0]", "[0,0]"), 0, "more than 63 bits"},
    {ONE("F64", "[1152921504606846976]", "[0,24]"), 24, "63 bits"},
    {ONE("F32", "[18446744073709551614]", "[0,24]"), 24, "not valid JSON"},
    {ONE("F32", "[6]", "[0,1099511627776]"), 24, "come to 24"},
    {ONE("U8", "[1099511627776]", "[0,1099511627776]"), 24, "its end is missing"},
    {TWO("[0,4]", "[2,6]"), 6, "they overlap"},
    {TWO("[0,4]", "[0,4]"), 4, "they overlap"},
    {TWO("[0,4]", "[5,9]"), 9, "there is a gap"},
    {"{\"a\":3}", 0, "no object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "\"dtype\" is missing"},
    {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "\"dtype\" is missing or no string"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "\"data_offsets\" is missing"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
     "\"data_offsets\":[0,1]}}",
     1, "duplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "no string"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "duplicate"},
    {"{\"__metadata__\":[]}", 0, "no object of strings"},
    {"{\"__metadata__\":null}", 0, "no object of strings"},
    {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "not valid JSON"},
    {"{\"a\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "not valid JSON"},
    {"{\"a\":", 0, "not valid JSON"},
    {"{} {}", 0, "not valid JSON"},
    {"[]", 0, "no JSON object"},
    {"\"a\"", 0, "no JSON object"},
    {"", 0, "no JSON object"},
    {"    ", 0, "no JSON object"},
};

static void headers_by_the_format(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_error error = {TL_OK, ""};
        make(cases[i].header, strlen(cases[i].header), cases[i].values);
        tl_safetensors *f = tl_safetensors_open(path, &error);
        bool right =
            cases[i].words ? !f && error.status == TL_ERR_FORMAT && strstr(error.message, cases[i].words) : !!f;
        if (!right)
            fail_msg("%s: %s", cases[i].header, f ? "accepted" : error.message);
        tl_safetensors_close(f);
    }
}

static void lengths_are_not_trusted(void **state) {
    static const uint64_t lengths[] = {1,         3, 100000000, 100000001, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX - 7,
                                       UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char bytes[10] = "........{}";
        for (int b = 0; b < 8; b++)
            bytes[b] = (char)(lengths[i] >> 8 * b & 255);
        make_raw(bytes, sizeof bytes);
        assert_says(lengths[i] == 1           ? "not valid JSON"
                    : lengths[i] <= 100000000 ? "its end is missing"
                                              : "larger than 100,000,000");
    }
    for (size_t n = 1; n < 8; n++) {
        make_raw("\2\0\0\0\0\0\0", n);
        assert_says("shorter than the 8 bytes");
    }
    make_raw("", 0);
    assert_says("is empty");
}

/* Bytes as these programs write them: zip's local header, pickle's PROTO 2, NumPy's magic, GGUF's, RFC 1952's. */
static void says_what_the_file_is(void **state) {
    static const struct {
        const char *bytes;
        size_t length;
        const char *words;
    } files[] = {
        {"PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\20\0\0\0archive/data.pkl", 46,
         "a PyTorch checkpoint (a zip archive with a pickle in it"},
        {"PK\3\4\24\0\0\0\0\0....................", 30, "a zip archive"},
        {"\x80\2}q\0(X\5\0\0\0modelq\1", 18, "a Python pickle"},
        {"<!DOCTYPE html>\n<html><head><title>Sign in</title>", 50, "an HTML page"},
        {"<html><body>429</body></html>", 29, "an HTML page"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548105171\n", 72, "a git-LFS pointer"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16, "a GGUF file"},
        {"\x93NUMPY\1\0v\0{'descr': '<f4'", 26, "a NumPy array"},
        {"\x1f\x8b\10\0\0\0\0\0\0\3..........", 20, "a gzip file"},
        {"{\"metadata\": {\"total_size\": 1}, \"weight_map\": {}}", 49, "JSON: a model's index"},
        {"Entry not found", 15, "text (a server's answer"},
        {"TALLYCK\n\1\0\0\0................", 28, "no safetensors file"},
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, "no JSON object"}, /* space made for a download that never came */
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        make_raw(files[i].bytes, files[i].length);
        assert_says(files[i].words);
    }
    unlink(path);
    tl_error error = {TL_OK, ""};
    assert_null(tl_safetensors_open(path, &error));
    assert_int_equal(error.status, TL_ERR_NOT_FOUND);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_says("a folder");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0666), 0); /* must not wait for a writer */
    assert_says("no regular file");
    unlink(path);
}

/* Adds to a text that has room; what was added. */
static size_t put(char *text, size_t at, const char *format, ...) TL_PRINTF(3, 4);

static size_t put(char *text, size_t at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + at, 256, format, args);
    va_end(args);
    assert_true(n > 0 && n < 256);
    return (size_t)n;
}

/* A list of a million sizes of 1 multiplies to 1 and is no reason to run out of anything; with eight 256s among them it is
 * beyond 63 bits. */
static void a_million_dimensions(void **state) {
    (void)state;
    enum { DIMS = 1000000 };
    for (int big = 0; big < 2; big++) {
        char *header = malloc(2 * DIMS + 256);
        assert_non_null(header);
        size_t at = put(header, 0, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1");
        for (int i = 1; i < DIMS; i++)
            at += put(header, at, big && i < 9 ? ",256" : ",1");
        at += put(header, at, "],\"data_offsets\":[0,1]}}");
        make(header, at, 1);
        free(header);
        if (big) {
            assert_says("multiply to more than 63 bits");
            continue;
        }
        tl_error error = {TL_OK, ""};
        tl_safetensors *f = tl_safetensors_open(path, &error);
        if (!f)
            fail_msg("%s", error.message);
        assert_int_equal(tl_safetensors_at(f, 0)->ndim, DIMS);
        tl_safetensors_close(f);
    }
}

/* 92 thousand tensors are what the largest published index has; linear look-up would take minutes. */
static void many_tensors_are_fast(void **state) {
    (void)state;
    enum { TENSORS = 92000 };
    char *header = malloc((size_t)TENSORS * 120), name[64];
    assert_non_null(header);
    size_t at = put(header, 0, "{");
    for (int i = 0; i < TENSORS; i++)
        at += put(header, at,
                  "%s\"model.layers.%d.mlp.experts.%d.up_proj.weight\":{\"dtype\":\"U8\",\"shape\":[1],"
                  "\"data_offsets\":[%d,%d]}",
                  i ? "," : "", i / 256, i % 256, TENSORS - 1 - i, TENSORS - i);
    at += put(header, at, "}");
    make(header, at, 0);
    free(header);
    assert_int_equal(truncate(path, (off_t)(8 + at + TENSORS)), 0);
    tl_error error = {TL_OK, ""};
    clock_t begin = clock();
    tl_safetensors *f = tl_safetensors_open(path, &error);
    if (!f)
        fail_msg("%s", error.message);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up_proj.weight", i / 256, i % 256);
        const tl_safetensors_tensor *t = tl_safetensors_find(f, name);
        assert_non_null(t);
        assert_int_equal(t->offset, 8 + at + (size_t)(TENSORS - 1 - i));
    }
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (seconds > 20)
        fail_msg("%g seconds", seconds);
    tl_safetensors_close(f);
}

/* ---- writing ---- */

static const tl_safetensors_item items[] = {
    {"b.weight", TL_F32, 2, {2, 3}}, {"a \"quoted\" \xc3\xa9", TL_BF16, 1, {3}},
    {"empty", TL_I64, 2, {0, 5}},    {"scalar", TL_F64, 0, {0}},
    {"flags", TL_BOOL, 1, {2}},
};
enum { ITEMS = sizeof items / sizeof items[0], VALUES = 24 + 6 + 0 + 8 + 2 };
static const tl_safetensors_text texts[] = {{"format", "pt"}, {"note", "line\nline"}};

static tl_status write_it(tl_error *error) {
    unsigned char values[VALUES];
    for (int i = 0; i < VALUES; i++)
        values[i] = (unsigned char)(7 * i);
    tl_safetensors_writer *w = tl_safetensors_begin(path, items, ITEMS, texts, 2, error);
    if (!w)
        return error->status;
    tl_status status = tl_safetensors_write(w, values, 10, error); /* in pieces of any size */
    if (status == TL_OK)
        status = tl_safetensors_write(w, values + 10, VALUES - 10, error);
    return tl_safetensors_end(w, status, error);
}

/* The whole file, spelled out from the format's text. */
static void writes_these_bytes(void **state) {
    static const char json[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"line\\nline\"},"
        "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"a \\\"quoted\\\" \xc3\xa9\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]},"
        "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,5],\"data_offsets\":[30,30]},"
        "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[30,38]},"
        "\"flags\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[38,40]}}";
    unsigned char have[1024];
    tl_error error = {TL_OK, ""};
    size_t header = (sizeof json - 1 + 7) / 8 * 8;
    (void)state;
    assert_int_equal(write_it(&error), TL_OK);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(have, 1, sizeof have, file), 8 + header + VALUES);
    fclose(file);
    assert_int_equal(have[0] | have[1] << 8, header);
    assert_memory_equal(have + 8, json, sizeof json - 1);
    for (size_t i = sizeof json - 1; i < header; i++)
        assert_int_equal(have[8 + i], ' ');
    for (int i = 0; i < VALUES; i++)
        assert_int_equal(have[8 + header + (size_t)i], (unsigned char)(7 * i));
}

static void reads_what_it_wrote(void **state) {
    tl_error error = {TL_OK, ""};
    unsigned char value[8];
    (void)state;
    assert_int_equal(write_it(&error), TL_OK);
    tl_safetensors *f = tl_safetensors_open(path, &error);
    assert_non_null(f);
    assert_int_equal(tl_safetensors_count(f), ITEMS);
    assert_string_equal(tl_safetensors_metadata(f, "note"), "line\nline");
    assert_null(tl_safetensors_metadata(f, "nothing"));
    for (int i = 0; i < ITEMS; i++) {
        const tl_safetensors_tensor *t = tl_safetensors_find(f, items[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, items[i].dtype);
        assert_int_equal(t->ndim, items[i].ndim);
        for (int d = 0; d < items[i].ndim; d++)
            assert_int_equal(t->dim[d], items[i].dim[d]);
    }
    const tl_safetensors_tensor *scalar = tl_safetensors_find(f, "scalar");
    assert_int_equal(tl_safetensors_read(f, scalar, 2, value, 6, &error), TL_OK);
    assert_int_equal(value[0], 7 * 32 % 256);
    assert_int_equal(tl_safetensors_read(f, scalar, 2, value, 7, &error), TL_ERR_ARGUMENT);
    tl_error_clear(&error);
    assert_int_equal(truncate(path, 8 + 400), 0); /* while it is open */
    assert_int_equal(tl_safetensors_read(f, scalar, 0, value, 8, &error), TL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "has become shorter"));
    tl_safetensors_close(f);
}

static void what_cannot_be_written(void **state) {
    tl_error error = {TL_OK, ""};
    const tl_safetensors_item twice[] = {{"a", TL_U8, 1, {1}}, {"b", TL_U8, 1, {1}}, {"a", TL_U8, 1, {1}}},
                              reserved = {"__metadata__", TL_U8, 1, {1}}, huge = {"a", TL_F32, 2, {INT64_MAX / 2, 2}},
                              negative = {"a", TL_F32, 1, {-1}};
    (void)state;
    unlink(path);
    assert_null(tl_safetensors_begin(path, twice, 3, NULL, 0, &error));
    assert_non_null(strstr(error.message, "two tensors are called \"a\""));
    const tl_safetensors_item *const wrong[] = {&reserved, &huge, &negative};
    for (int i = 0; i < 3; i++) {
        tl_error_clear(&error);
        assert_null(tl_safetensors_begin(path, wrong[i], 1, NULL, 0, &error));
        assert_int_equal(error.status, TL_ERR_ARGUMENT);
    }
    tl_error_clear(&error);
    tl_safetensors_writer *w = tl_safetensors_begin(path, items, ITEMS, NULL, 0, &error);
    assert_non_null(w);
    assert_int_equal(tl_safetensors_write(w, texts, VALUES + 1, &error),
                     TL_ERR_ARGUMENT); /* more than the header says */
    tl_error_clear(&error);
    assert_int_equal(tl_safetensors_end(w, TL_OK, &error), TL_ERR_STATE); /* and less */
    assert_int_not_equal(access(path, F_OK), 0);
    tl_error_clear(&error);
    assert_null(tl_safetensors_begin("/nonexistent/x.safetensors", items, ITEMS, NULL, 0, &error));
    assert_int_equal(error.status, TL_ERR_IO);
}

/* At every length of file that the system may allow: the error is reported, the old file whole, nothing else left. */
static void a_limit_on_the_size_leaves_the_old_one(void **state) {
    tl_error error = {TL_OK, ""};
    struct stat before, after;
    char temporary[128];
    (void)state;
    assert_int_equal(write_it(&error), TL_OK);
    assert_int_equal(stat(path, &before), 0);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    for (rlim_t limit = 0; limit < (rlim_t)before.st_size; limit += 31) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct rlimit r = {limit, limit};
            signal(SIGXFSZ, SIG_IGN);
            tl_error_clear(&error);
            _exit(setrlimit(RLIMIT_FSIZE, &r) == 0 && write_it(&error) == TL_ERR_IO && error.message[0] ? 0 : 1);
        }
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(after.st_ino, before.st_ino);
        assert_int_not_equal(access(temporary, F_OK), 0);
    }
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tally-safetensors-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails where something was left behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_by_the_format),
        cmocka_unit_test(lengths_are_not_trusted),
        cmocka_unit_test(says_what_the_file_is),
        cmocka_unit_test(a_million_dimensions),
        cmocka_unit_test(many_tensors_are_fast),
        cmocka_unit_test(writes_these_bytes),
        cmocka_unit_test(reads_what_it_wrote),
        cmocka_unit_test(what_cannot_be_written),
        cmocka_unit_test(a_limit_on_the_size_leaves_the_old_one),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
