/* .npy and .npz: NumPy's own files (tests/fixtures/make_npy_fixtures.py), and files nobody should have written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/npy.h"
#include "fixtures/npy_fixtures.h"
#include "kernel/table.h"
#include "tally/account.h"
#include "tally/ops.h"

#define DIM(n) tl_dim_of(n)
enum { ROOM = 1 << 16 };

static char folder[] = "/tmp/tally-npy-XXXXXX";
static char path[64], other[64];

static int set_up(void **state) {
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.npy", folder);
    snprintf(other, sizeof other, "%s/b.npz", folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    (void)unlink(path);
    (void)unlink(other);
    return rmdir(folder); /* fails where a temporary file was left behind */
}

static tl_ctx *cpu(void) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    assert_non_null(ctx);
    return ctx;
}

static int dtype_named(const char *name) {
    for (int i = 0; i < TL_DTYPE_COUNT; i++)
        if (strcmp(tl_dtype_name((tl_dtype)i), name) == 0)
            return i;
    return -1;
}

static size_t unhex(const char *hex, unsigned char *out) {
    static const char digits[] = "0123456789abcdef";
    size_t bytes = strlen(hex) / 2;
    assert_true(bytes <= ROOM);
    for (size_t i = 0; i < bytes; i++)
        out[i] =
            (unsigned char)((strchr(digits, hex[2 * i]) - digits) << 4 | (strchr(digits, hex[2 * i + 1]) - digits));
    return bytes;
}

static void put_file(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t get_file(const char *name, unsigned char *bytes) {
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, ROOM, file);
    fclose(file);
    return size;
}

/* ---- NumPy's files ---- */

static void check_fixture(tl_ctx *ctx, const struct npy_fixture *f, bool copy) {
    static unsigned char file[ROOM], values[ROOM], read[ROOM];
    size_t size = unhex(f->file, file), bytes = unhex(f->values, values);
    put_file(path, file, size);
    tl_tensor *t = tl_npy_read(ctx, path, &(tl_npy_options){.copy = copy});
    assert_non_null(t);
    assert_string_equal(tl_dtype_name(tl_tensor_dtype(t)), f->dtype);
    assert_int_equal(tl_tensor_ndim(t), f->ndim);
    for (int d = 0; d < f->ndim; d++)
        assert_int_equal(tl_tensor_size(t, d), f->size[d]);
    if (f->fortran) /* [2,3,4]: the first axis is fastest, and nothing was moved */
        assert_true(tl_tensor_stride(t, 0) == 1 && tl_tensor_stride(t, 1) == 2 && tl_tensor_stride(t, 2) == 6);
    assert_int_equal(tl_tensor_category(t), TL_DATA);
    assert_int_equal(tl_tensor_read(t, read, bytes), TL_OK);
    if (bytes)
        assert_memory_equal(read, values, bytes);
    /* Written again it is the same file, byte for byte, where NumPy wrote version 1.0 in this machine's byte order. */
    assert_int_equal(tl_npy_write(t, path), TL_OK);
    if (!f->swapped && file[6] == 1) {
        assert_int_equal(get_file(path, read), size);
        assert_memory_equal(read, file, size);
    }
}

static void test_numpy_files(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    int compared = 0;
    for (size_t i = 0; i < sizeof npy_fixtures / sizeof npy_fixtures[0]; i++) {
        if (dtype_named(npy_fixtures[i].dtype) < 0)
            continue;
        tl_scope_begin(ctx);
        check_fixture(ctx, &npy_fixtures[i], false);
        check_fixture(ctx, &npy_fixtures[i], true);
        tl_scope_end(ctx);
        compared++;
    }
    assert_true(compared >= 18);
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), 0);
    tl_ctx_free(ctx);
}

/* A format this build does not have is named, not misread. */
static void test_missing_formats(void **state) {
    (void)state;
    static const char header[] = "{'descr': '<u4', 'fortran_order': False, 'shape': (1,), }";
    unsigned char file[128] = "\x93NUMPY\1\0\x38\0";
    tl_npy_header h;
    tl_error error = {0};
    tl_ctx *ctx = cpu();
    file[8] = sizeof header - 1;
    memcpy(file + 10, header, sizeof header - 1);
    put_file(path, file, 10 + sizeof header - 1 + 4);
    assert_int_equal(tl_npy_peek(path, &h, &error), TL_OK);
    assert_false(h.has_dtype);
    assert_null(tl_npy_read(ctx, path, NULL));
    assert_int_equal(tl_ctx_status(ctx), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "<u4"));
    tl_ctx_free(ctx);
}

/* ---- mapping ---- */

static long resident_bytes(void) {
    long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &total, &resident), 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* 2 GiB of f32 as a sparse file: header, then nothing but length. */
static void test_two_gigabytes_cost_nothing(void **state) {
    (void)state;
    unsigned char head[128];
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (536870912,), }";
    const float last = 42;
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\1\0\x76\0", 10);
    memcpy(head + 10, header, sizeof header - 1);
    put_file(path, head, sizeof head);
    int file = open(path, O_WRONLY);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, 128 + (INT64_C(1) << 31)), 0);
    assert_int_equal(pwrite(file, &last, 4, 128 + (INT64_C(1) << 31) - 4), 4);
    close(file);
    tl_ctx *ctx = cpu();
    long before = resident_bytes();
    tl_tensor *t = tl_npy_read(ctx, path, NULL);
    assert_non_null(t);
    assert_int_equal(tl_tensor_size(t, 0), 536870912);
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), INT64_C(1) << 31);
    double value = 0;
    assert_int_equal(tl_item(tl_slice(t, 0, -1, DIM(1), 1), &value), TL_OK);
    assert_true(value == 42);
    assert_true(resident_bytes() - before < 16 << 20);
    tl_release(t);
    tl_ctx_free(ctx);
    assert_int_equal(truncate(path, 0), 0);
}

static void test_writing_into_a_mapping_stays_here(void **state) {
    (void)state;
    static unsigned char file[ROOM], after[ROOM];
    const struct npy_fixture *f = &npy_fixtures[1]; /* f4 [2,3] */
    size_t size = unhex(f->file, file);
    double value = 0;
    tl_ctx *ctx = cpu();
    put_file(path, file, size);
    tl_tensor *t = tl_npy_read(ctx, path, NULL);
    assert_non_null(tl_fill(t, 7));
    assert_int_equal(tl_item(tl_slice(tl_slice(t, 0, 0, DIM(1), 1), 1, 0, DIM(1), 1), &value), TL_OK);
    assert_true(value == 7);
    assert_int_equal(get_file(path, after), size);
    assert_memory_equal(after, file, size);
    tl_ctx_free(ctx); /* with the mapping alive: the context lets go of it */
}

/* Values at an odd place in the file cannot be mapped; they are copied and the same. */
static void test_unaligned(void **state) {
    (void)state;
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
    unsigned char file[128] = "\x93NUMPY\1\0";
    const float values[] = {1.5f, -2.5f};
    float read[2];
    size_t n = sizeof header - 1;
    assert_true((10 + n) % 4 != 0);
    file[8] = (unsigned char)n;
    memcpy(file + 10, header, n);
    memcpy(file + 10 + n, values, 8);
    put_file(path, file, 10 + n + 8);
    tl_ctx *ctx = cpu();
    assert_int_equal(tl_tensor_read(tl_npy_read(ctx, path, NULL), read, 8), TL_OK);
    assert_memory_equal(read, values, 8);
    tl_ctx_free(ctx);
}

static void test_meta(void **state) {
    (void)state;
    static unsigned char file[ROOM];
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    put_file(path, file, unhex(npy_fixtures[1].file, file));
    tl_tensor *t = tl_npy_read(ctx, path, NULL);
    assert_non_null(t);
    assert_null(tl_tensor_data(t));
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), 24);
    assert_int_equal(tl_npy_write(t, path), TL_ERR_STATE);
    tl_ctx_free(ctx);
}

/* ---- bits of formats NumPy lacks ---- */

/* All 256 patterns of each 8-bit format, there and back. */
static void test_f8(void **state) {
    (void)state;
    static const tl_dtype formats[] = {TL_F8E4M3, TL_F8E5M2};
    unsigned char bits[256], read[256];
    tl_npy_header h;
    tl_error error = {0};
    tl_ctx *ctx = cpu();
    for (int i = 0; i < 256; i++)
        bits[i] = (unsigned char)i;
    for (int f = 0; f < 2; f++) {
        tl_tensor *x = tl_from_data(ctx, formats[f], TL_SHAPE(ctx, DIM(16), DIM(16)), TL_DATA, bits, 256);
        assert_int_equal(tl_npy_write(x, path), TL_OK);
        assert_int_equal(tl_npy_peek(path, &h, &error), TL_OK);
        assert_string_equal(h.descr, "|u1");
        assert_int_equal(tl_tensor_dtype(tl_npy_read(ctx, path, NULL)), TL_U8);
        tl_tensor *y = tl_npy_read(ctx, path, &(tl_npy_options){.as = tl_dtype_name(formats[f])});
        assert_non_null(y);
        assert_int_equal(tl_tensor_dtype(y), formats[f]);
        assert_int_equal(tl_tensor_read(y, read, 256), TL_OK);
        assert_memory_equal(read, bits, 256);
    }
    assert_null(tl_npy_read(ctx, path, &(tl_npy_options){.as = "bf16"}));
    assert_int_equal(tl_ctx_status(ctx), TL_ERR_DTYPE);
    tl_ctx_free(ctx);
}

static void test_bf16(void **state) {
    (void)state;
    static const uint16_t bits[] = {0x3E8A, 0x3F80, 0xFF80};
    uint16_t read[3];
    tl_npy_header h;
    tl_error error = {0};
    tl_ctx *ctx = cpu();
    tl_tensor *x = tl_from_data(ctx, TL_BF16, TL_SHAPE(ctx, DIM(3)), TL_DATA, bits, 3);
    assert_int_equal(tl_npy_write(x, path), TL_OK);
    assert_int_equal(tl_npy_peek(path, &h, &error), TL_OK);
    assert_string_equal(h.descr, "<u2");
    tl_tensor *y = tl_npy_read(ctx, path, &(tl_npy_options){.as = "bf16"});
    assert_non_null(y);
    assert_int_equal(tl_tensor_dtype(y), TL_BF16);
    assert_int_equal(tl_tensor_read(y, read, sizeof read), TL_OK);
    assert_memory_equal(read, bits, sizeof bits);
    assert_null(tl_npy_read(ctx, path, &(tl_npy_options){.as = "f64"}));
    assert_int_equal(tl_ctx_status(ctx), TL_ERR_ARGUMENT);
    tl_ctx_clear_error(ctx);
    assert_int_equal(tl_npy_write(tl_cast(x, TL_F32), path), TL_OK);
    assert_null(tl_npy_read(ctx, path, &(tl_npy_options){.as = "bf16"}));
    assert_int_equal(tl_ctx_status(ctx), TL_ERR_DTYPE);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "<f4"));
    tl_ctx_free(ctx);
}

/* ---- headers nobody should have written ---- */

static tl_status parse(const char *header, int64_t values, tl_error *error) {
    static unsigned char file[ROOM];
    tl_npy_header h;
    size_t n = strlen(header);
    assert_true(n < 60000);
    memcpy(file, "\x93NUMPY\2\0", 8);
    for (int i = 0; i < 4; i++)
        file[8 + i] = (unsigned char)(n >> 8 * i);
    memcpy(file + 12, header, n);
    *error = (tl_error){0};
    return tl_npy_parse(file, 12 + n, 12 + (int64_t)n + values, "x.npy", &h, error);
}

#define REST ", 'fortran_order': False, 'shape': (2,)}"

static void test_refused_headers(void **state) {
    (void)state;
    static const struct {
        const char *header, *message;
        tl_status status;
    } cases[] = {
        {"{'descr': '|O'" REST, "pickle", TL_ERR_UNSUPPORTED},
        {"{'descr': 'O'" REST, "pickle", TL_ERR_UNSUPPORTED},
        {"{'descr': [('a', '<f4'), ('b', '<i8')]" REST, "structured", TL_ERR_UNSUPPORTED},
        {"{'descr': '<U3'" REST, "text", TL_ERR_UNSUPPORTED},
        {"{'descr': '|S8'" REST, "byte strings", TL_ERR_UNSUPPORTED},
        {"{'descr': '|V16'" REST, "raw records", TL_ERR_UNSUPPORTED},
        {"{'descr': '<c8'" REST, "complex", TL_ERR_UNSUPPORTED},
        {"{'descr': '<M8[s]'" REST, "dates", TL_ERR_UNSUPPORTED},
        {"{'descr': '<f16'" REST, "f2, f4 and f8", TL_ERR_UNSUPPORTED},
        {"{'descr': '<f99999999999'" REST, "f2, f4 and f8", TL_ERR_UNSUPPORTED},
        {"{'descr': '<q9'" REST, "no number format", TL_ERR_FORMAT},
        {"{'descr': ''" REST, "no number format", TL_ERR_FORMAT},
        {"{'descr': 'f4'" REST, "in which order", TL_ERR_FORMAT},
        {"{'descr': '|f4'" REST, "in which order", TL_ERR_FORMAT},
        {"{'descr': 4" REST, "a format in quotes", TL_ERR_FORMAT},
        {"{'descr': '<f4" REST, "'<f4, '", TL_ERR_UNSUPPORTED},
        {"{'descr': '<f4}", "a format in quotes", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'descr': '<f8'" REST, "twice", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'colour': 3" REST, "\"colour\"", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'shape': (2,)}", "lacks the key 'fortran_order'", TL_ERR_FORMAT},
        {"{'fortran_order': False, 'shape': (2,)}", "lacks the key 'descr'", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False}", "lacks the key 'shape'", TL_ERR_FORMAT},
        {"{}", "lacks the key", TL_ERR_FORMAT},
        {"", "a dictionary", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (2,)}", "True or False", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", "(2,) is one axis", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "a shape", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "0 or more", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.5,)}", "comma", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (007,)}", "leading zeros", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", "beyond 2^63", TL_ERR_OVERFLOW},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "axis 0", TL_ERR_OVERFLOW},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (65536, 65536, 65536, 65536)}", "axis 3", TL_ERR_OVERFLOW},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (4611686018427387904, 4, 0)}", "axis 1", TL_ERR_OVERFLOW},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", "9 axes", TL_ERR_UNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} junk", "nothing more", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,),,}", "a key in quotes", TL_ERR_FORMAT},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", "a comma", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "a comma", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", "16 bytes; 8 follow", TL_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "4 bytes; 8 follow", TL_ERR_FORMAT},
        {"{'de\\x73cr': '<f4'" REST, "a key in quotes", TL_ERR_FORMAT},
    };
    tl_error error;
    assert_int_equal(parse("{'descr': '<f4'" REST, 8, &error), TL_OK);
    assert_int_equal(parse("{\"shape\":(2,) ,'descr':'<f4','fortran_order':True} \n", 8, &error), TL_OK);
    assert_int_equal(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 2L), }", 8, &error), TL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_status status = parse(cases[i].header, 8, &error);
        if (status != cases[i].status || !strstr(error.message, cases[i].message))
            fail_msg("%s: %s", cases[i].header, error.message);
        assert_non_null(strstr(error.message, "x.npy"));
    }
}

/* A million axes: as many as fit under the longest header are counted; a longer header is refused by its length. */
static void test_a_million_axes(void **state) {
    (void)state;
    static char header[20000];
    unsigned char head[12] = "\x93NUMPY\2\0";
    tl_npy_header h;
    tl_error error;
    int n = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < 8000; i++)
        n += snprintf(header + n, sizeof header - (size_t)n, "1,");
    snprintf(header + n, sizeof header - (size_t)n, ")}");
    assert_int_equal(parse(header, 8, &error), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "8000 axes; at most 8"));
    const uint32_t length = 2000055; /* 1,000,000 × "1," and the rest */
    for (int i = 0; i < 4; i++)
        head[8 + i] = (unsigned char)(length >> 8 * i);
    put_file(path, head, sizeof head);
    assert_int_equal(truncate(path, 12 + length + 4), 0);
    error = (tl_error){0};
    assert_int_equal(tl_npy_peek(path, &h, &error), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "a header of 2000055 bytes"));
    /* The same length in a file of 12 bytes: nothing is allocated by it. */
    assert_int_equal(truncate(path, 12), 0);
    error = (tl_error){0};
    assert_int_equal(tl_npy_peek(path, &h, &error), TL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "half a download"));
}

static void test_other_files(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {
        {"", 0, "an empty file"},
        {"PK\3\4aaaaaaaaaa", 14, "zip archive"},
        {"\x80\4\x95xxxxxxxxxxx", 14, "pickle"},
        {"<!DOCTYPE html>", 15, "HTML"},
        {"version https://git-lfs.github.com/spec/v1", 42, "git-LFS"},
        {"{\"a\": 1, \"b\": 2}", 16, "JSON"},
        {"\x93NUMPY", 6, "unfinished .npy"},
        {"\x93NUMPY\4\0v\0", 10, "version 4.0"},
        {"\x93NUMPY\1\1v\0", 10, "version 1.1"},
        {"\1\2\3\4\5\6\7\10\11\12\13\14", 12, "no kind of file"},
    };
    tl_ctx *ctx = cpu();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_file(path, cases[i].bytes, cases[i].size);
        assert_null(tl_npy_read(ctx, path, NULL));
        if (!strstr(tl_ctx_error(ctx)->message, cases[i].message))
            fail_msg("%s: %s", cases[i].message, tl_ctx_error(ctx)->message);
        tl_ctx_clear_error(ctx);
    }
    assert_null(tl_npy_read(ctx, "/nowhere/a.npy", NULL));
    assert_int_equal(tl_ctx_status(ctx), TL_ERR_IO);
    tl_ctx_clear_error(ctx);
    assert_null(tl_npy_read(ctx, folder, NULL));
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "no regular file"));
    tl_ctx_free(ctx);
}

/* Every file that a broken download could leave is refused. */
static void test_every_truncation(void **state) {
    (void)state;
    static unsigned char file[ROOM];
    tl_ctx *ctx = cpu();
    size_t size = unhex(npy_fixtures[1].file, file);
    for (size_t n = 0; n < size; n++) {
        put_file(path, file, n);
        assert_null(tl_npy_read(ctx, path, NULL));
        assert_int_equal(tl_ctx_status(ctx), TL_ERR_FORMAT);
        tl_ctx_clear_error(ctx);
    }
    tl_ctx_free(ctx);
}

static void test_bools(void **state) {
    (void)state;
    static unsigned char file[ROOM];
    tl_ctx *ctx = cpu();
    size_t i = 0, size = 0;
    while (strcmp(npy_fixtures[i].dtype, "bool") != 0)
        i++;
    size = unhex(npy_fixtures[i].file, file);
    file[size - 2] = 2;
    put_file(path, file, size);
    assert_null(tl_npy_read(ctx, path, NULL));
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "value 4 of a bool array is 2"));
    tl_ctx_free(ctx);
}

/* ---- writing ---- */

/* The disk is full (here: no file may grow beyond 64 bytes): the old file is whole, and no other is left. */
static void test_full_disk(void **state) {
    (void)state;
    static unsigned char file[ROOM], after[ROOM];
    struct rlimit before, small;
    tl_error error = {0};
    tl_ctx *ctx = cpu();
    size_t size = unhex(npy_fixtures[1].file, file);
    tl_tensor *x = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(1000)), TL_WORK), 1);
    const tl_npz_entry entry = {"x", x};
    put_file(path, file, size);
    put_file(other, file, size);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    small = before;
    small.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tl_status npy = tl_npy_write(x, path), npz = tl_npz_write(other, &entry, 1, false, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(npy, TL_ERR_IO);
    assert_int_equal(npz, TL_ERR_IO);
    assert_int_equal(get_file(path, after), size);
    assert_memory_equal(after, file, size);
    assert_int_equal(get_file(other, after), size);
    assert_memory_equal(after, file, size);
    tl_ctx_free(ctx); /* tear_down finds the folder with these two files and nothing else, or fails */
}

static void test_strided(void **state) {
    (void)state;
    float values[24], read[24];
    tl_ctx *ctx = cpu();
    for (int i = 0; i < 24; i++)
        values[i] = (float)i;
    tl_tensor *x = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, DIM(2), DIM(3), DIM(4)), TL_DATA, values, 24);
    tl_tensor *views[] = {tl_slice(x, 2, 3, DIM(2), -2), tl_transpose(x, 0, 1),
                          tl_expand(tl_slice(x, 0, 0, DIM(1), 1), TL_SHAPE(ctx, DIM(2), DIM(3), DIM(4)))};
    for (int i = 0; i < 3; i++) {
        float want[24];
        size_t bytes = (size_t)tl_tensor_count(views[i]) * 4;
        assert_int_equal(tl_npy_write(views[i], path), TL_OK);
        tl_tensor *y = tl_npy_read(ctx, path, NULL);
        assert_int_equal(tl_tensor_read(views[i], want, bytes), TL_OK);
        assert_int_equal(tl_tensor_read(y, read, bytes), TL_OK);
        assert_memory_equal(read, want, bytes);
    }
    tl_ctx_free(ctx);
}

/* ---- archives ---- */

static void check_small(tl_ctx *ctx, const tl_npz *z) {
    float weights[64];
    int32_t ids[3];
    bool on[2];
    assert_int_equal(tl_npz_count(z), 3);
    assert_int_equal(tl_tensor_read(tl_npz_read(ctx, z, "weights", NULL), weights, sizeof weights), TL_OK);
    for (int i = 0; i < 64; i++)
        assert_true(weights[i] == (float)i);
    assert_int_equal(tl_tensor_read(tl_npz_read(ctx, z, "ids", NULL), ids, sizeof ids), TL_OK);
    assert_true(ids[0] == 3 && ids[1] == 1 && ids[2] == 2);
    assert_int_equal(tl_tensor_read(tl_npz_read(ctx, z, "on", NULL), on, sizeof on), TL_OK);
    assert_true(on[0] && !on[1]);
}

static void test_numpy_archives(void **state) {
    (void)state;
    static unsigned char file[ROOM];
    const char *const archives[] = {npz_stored, npz_deflated};
    for (int i = 0; i < 2; i++) {
        tl_error error = {0};
        tl_npy_header h;
        tl_ctx *ctx = cpu();
        put_file(other, file, unhex(archives[i], file));
        tl_npz *z = tl_npz_open(other, NULL, &error);
        assert_non_null(z);
        check_small(ctx, z);
        assert_int_equal(tl_npz_at(z, 0)->deflated, i);
        assert_int_equal(tl_npz_peek(z, 0, &h, &error), TL_OK);
        assert_true(h.ndim == 2 && h.size[0] == 8 && h.bytes == 256);
        assert_null(tl_npz_at(z, 3));
        assert_null(tl_npz_read(ctx, z, "weight", NULL));
        assert_int_equal(tl_ctx_status(ctx), TL_ERR_NOT_FOUND);
        assert_non_null(strstr(tl_ctx_error(ctx)->message, "weights, ids, on"));
        tl_npz_close(z);
        tl_ctx_free(ctx);
    }
}

/* Written, read, and written again: the same bytes. With 64-bit fields too, which otherwise take 4 GiB to see. */
static void test_archives_written(void **state) {
    (void)state;
    static unsigned char file[ROOM], again[ROOM];
    for (int i = 0; i < 4; i++) {
        uint64_t wide_from = i < 2 ? 0xFFFFFFFF : 0;
        tl_error error = {0};
        tl_ctx *ctx = cpu();
        put_file(other, file, unhex(npz_stored, file));
        tl_npz *z = tl_npz_open(other, NULL, &error);
        tl_npz_entry entries[3];
        for (int k = 0; k < 3; k++)
            entries[k] = (tl_npz_entry){tl_npz_at(z, k)->name, tl_npz_read(ctx, z, tl_npz_at(z, k)->name, NULL)};
        assert_int_equal(tl_npz_write_wide(other, entries, 3, i % 2, wide_from, &error), TL_OK);
        size_t size = get_file(other, file);
        assert_int_equal(tl_npz_write_wide(other, entries, 3, i % 2, wide_from, &error), TL_OK);
        assert_int_equal(get_file(other, again), size);
        assert_memory_equal(again, file, size);
        tl_npz *y = tl_npz_open(other, NULL, &error);
        assert_non_null(y);
        check_small(ctx, y);
        tl_npz_close(y);
        const tl_npz_entry twice[] = {entries[0], entries[0]}, bad = {"../x", entries[0].tensor};
        assert_int_equal(tl_npz_write(other, twice, 2, false, &error), TL_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "two arrays are called weights"));
        error = (tl_error){0};
        assert_int_equal(tl_npz_write(other, &bad, 1, false, &error), TL_ERR_ARGUMENT);
        error = (tl_error){0};
        assert_int_equal(tl_npz_write(other, NULL, 0, false, &error), TL_OK);
        y = tl_npz_open(other, NULL, &error);
        assert_non_null(y);
        assert_int_equal(tl_npz_count(y), 0);
        tl_npz_close(y);
        tl_npz_close(z);
        tl_ctx_free(ctx);
    }
}

/* 1 if all three members read as they should, 0 if an error was reported. Other values must never come. */
static int read_all(tl_ctx *ctx) {
    tl_error error = {0};
    int good = 1;
    float weights[64];
    tl_npz *z = tl_npz_open(other, NULL, &error);
    if (!z) {
        assert_int_not_equal(error.status, TL_OK);
        return 0;
    }
    tl_scope_begin(ctx);
    for (int i = 0; i < tl_npz_count(z); i++) {
        tl_tensor *t = tl_npz_read(ctx, z, tl_npz_at(z, i)->name, NULL);
        if (!t) {
            assert_int_not_equal(tl_ctx_status(ctx), TL_OK);
            tl_ctx_clear_error(ctx);
            good = 0;
        } else if (tl_tensor_storage_bytes(t) == 256) {
            assert_int_equal(tl_tensor_read(t, weights, 256), TL_OK);
            for (int k = 0; k < 64; k++)
                assert_true(weights[k] == (float)k);
        }
    }
    tl_scope_end(ctx);
    tl_npz_close(z);
    return good;
}

/* Each byte of an archive turned over, and each length cut off: an error or the same values, never others. */
static void test_every_byte(void **state) {
    (void)state;
    static unsigned char file[ROOM];
    const char *const archives[] = {npz_stored, npz_deflated};
    for (int a = 0; a < 2; a++) {
        tl_ctx *ctx = cpu();
        size_t size = unhex(archives[a], file);
        for (size_t i = 0; i < size; i++) {
            file[i] ^= 0xff;
            put_file(other, file, size);
            file[i] ^= 0xff;
            (void)read_all(ctx);
        }
        for (size_t n = 0; n < size; n++) {
            put_file(other, file, n);
            assert_int_equal(read_all(ctx), 0);
        }
        tl_ctx_free(ctx);
    }
}

static void test_damaged_values(void **state) {
    (void)state;
    static unsigned char file[ROOM];
    tl_error error = {0};
    tl_ctx *ctx = cpu();
    size_t size = unhex(npz_stored, file);
    file[300] ^= 1; /* among the weights */
    put_file(other, file, size);
    tl_npz *z = tl_npz_open(other, NULL, &error);
    assert_non_null(z);
    assert_null(tl_npz_read(ctx, z, "weights", NULL));
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "CRC-32"));
    tl_npz_close(z);
    tl_ctx_free(ctx);
    put_file(other, "\x93NUMPY\1\0v\0aaaaaaaaaaaaaaaaaaaaaaa", 30);
    assert_null(tl_npz_open(other, NULL, &error));
    assert_non_null(strstr(error.message, "it is one array"));
}

/* ---- memory that runs out ---- */

typedef struct stingy {
    int left;
    int64_t live;
} stingy;

static void *stingy_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    stingy *s = self;
    const tl_allocator *real = tl_allocator_default();
    if (s->left-- <= 0)
        return NULL;
    s->live++;
    return real->alloc(real->self, bytes, align, kind);
}

static void stingy_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    const tl_allocator *real = tl_allocator_default();
    ((stingy *)self)->live--;
    real->release(real->self, pointer, bytes, kind);
}

static void test_no_memory(void **state) {
    (void)state;
    static unsigned char file[ROOM];
    put_file(path, file, unhex(npy_fixtures[1].file, file));
    put_file(other, file, unhex(npz_deflated, file));
    bool done = false;
    for (int allowed = 0; !done; allowed++) {
        stingy s = {1 << 20, 0};
        tl_allocator allocator = {stingy_alloc, stingy_release, &s};
        tl_error error = {0};
        tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .allocator = &allocator}, &error);
        assert_non_null(ctx);
        s.left = allowed;
        tl_tensor *mapped = tl_npy_read(ctx, path, NULL);
        tl_tensor *copied = tl_npy_read(ctx, path, &(tl_npy_options){.copy = true});
        tl_npz *z = tl_npz_open(other, &allocator, &error);
        tl_tensor *packed = z ? tl_npz_read(ctx, z, "weights", NULL) : NULL;
        done = mapped && copied && packed;
        if (!done)
            assert_true(tl_ctx_status(ctx) == TL_ERR_MEMORY || error.status == TL_ERR_MEMORY);
        tl_npz_close(z);
        tl_ctx_free(ctx);
        assert_int_equal(s.live, 0);
        assert_true(allowed < 200);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numpy_files),
        cmocka_unit_test(test_missing_formats),
        cmocka_unit_test(test_two_gigabytes_cost_nothing),
        cmocka_unit_test(test_writing_into_a_mapping_stays_here),
        cmocka_unit_test(test_unaligned),
        cmocka_unit_test(test_meta),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_f8),
        cmocka_unit_test(test_refused_headers),
        cmocka_unit_test(test_a_million_axes),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_bools),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_numpy_archives),
        cmocka_unit_test(test_archives_written),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_damaged_values),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
