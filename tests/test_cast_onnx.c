/* ONNX's own cases of Cast, CastLike and BitCast (TALLY_SHARED/suites/onnx; see suites/README.md) through tl_cast,
 * tl_cast_saturating and tl_bitcast, on every instruction set, bit for bit. What the suite has and we do not is counted by
 * reason. */
#include "layers.h"

#include <dirent.h>
#include <jansson.h>

#include "npy.h"

typedef struct tally_of_cases {
    int run, out_of_scope;
    struct {
        char name[24]; /* the format we do not have */
        int count;
    } reason[16];
} tally_of_cases;

static bool suite_path(char *path, size_t size, const char *name, const char *file) {
    const char *shared = getenv("TALLY_SHARED");
    const int n = snprintf(path, size, "%s/suites/onnx%s%s%s%s", shared ? shared : "../shared", name ? "/" : "",
                           name ? name : "", file ? "/" : "", file ? file : "");
    return n > 0 && (size_t)n < size;
}

static tl_dtype dtype_of(const char *onnx_name) {
    static const struct {
        const char *name;
        tl_dtype dtype;
    } names[] = {
        {"DOUBLE", TL_F64},          {"FLOAT", TL_F32},         {"FLOAT16", TL_F16}, {"BFLOAT16", TL_BF16},
        {"FLOAT8E4M3FN", TL_F8E4M3}, {"FLOAT8E5M2", TL_F8E5M2}, {"INT64", TL_I64},   {"INT32", TL_I32},
        {"INT16", TL_I16},           {"INT8", TL_I8},           {"UINT8", TL_U8},    {"UINT16", TL_U16},
        {"BOOL", TL_BOOL},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, onnx_name) == 0)
            return names[i].dtype;
    return TL_DTYPE_COUNT;
}

static void leave_out(tally_of_cases *t, const char *format) {
    int i = 0;
    while (t->reason[i].count && strcmp(t->reason[i].name, format) != 0)
        assert_true(++i < 16);
    snprintf(t->reason[i].name, sizeof t->reason[i].name, "%s", format);
    t->reason[i].count++;
    t->out_of_scope++;
}

/* Entry `i` of the case's "inputs" or "outputs". */
static json_t *entry(json_t *about, const char *list, size_t i) {
    json_t *e = json_array_get(json_object_get(about, list), i);
    assert_non_null(e);
    return e;
}

static const char *text(json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    assert_non_null(value);
    return value;
}

static void load(npy *a, const char *name, json_t *e, tl_dtype dtype) {
    char path[4096];
    assert_true(suite_path(path, sizeof path, name, text(e, "file")));
    if (!npy_read(a, path))
        fail_msg("%s cannot be read", path);
    assert_int_equal(a->bytes, tl_dtype_bytes(dtype)); /* bf16 as u2, f8 as u1: the bits themselves */
}

static void check_case(const char *name, const char *op, json_t *about, tl_dtype from, tl_dtype to) {
    npy x, y;
    load(&x, name, entry(about, "inputs", 0), from);
    load(&y, name, entry(about, "outputs", 0), to);
    assert_int_equal(x.count, y.count);
    const size_t bytes = (size_t)(y.count * y.bytes);
    char *got = malloc(bytes ? bytes : 1);
    assert_non_null(got);
    json_t *saturate = json_object_get(json_object_get(about, "attrs"), "saturate"); /* absent: 1 */
    const bool saturating = !saturate || json_integer_value(saturate) != 0;
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++) {
        tl_ctx *ctx = new_ctx(*kernels, false);
        tl_dim dim[8];
        for (int i = 0; i < x.ndim; i++)
            dim[i] = tl_dim_of(x.size[i]);
        tl_tensor *t = tl_from_data(ctx, from, tl_shape_of(ctx, x.ndim, dim), TL_DATA, x.data, x.count);
        t = strcmp(op, "BitCast") == 0 ? tl_bitcast(t, to) : saturating ? tl_cast_saturating(t, to) : tl_cast(t, to);
        if (!t || tl_tensor_read(t, got, bytes) != TL_OK)
            fail_msg("%s: %s", name, tl_ctx_error(ctx)->message);
        for (size_t i = 0; i < bytes; i++)
            if (got[i] != ((const char *)y.data)[i])
                fail_msg("%s, %s: byte %zu of element %zu is 0x%02X, not 0x%02X", name, (*kernels)->name,
                         i % (size_t)y.bytes, i / (size_t)y.bytes, (unsigned char)got[i],
                         ((const unsigned char *)y.data)[i]);
        tl_ctx_free(ctx);
    }
    free(got);
    npy_free(&x);
    npy_free(&y);
}

static void one(tally_of_cases *t, const char *name) {
    char path[4096];
    json_error_t error;
    assert_true(suite_path(path, sizeof path, name, "case.json"));
    json_t *about = json_load_file(path, 0, &error);
    if (!about)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    const char *op = text(about, "op");
    if (strcmp(op, "Cast") == 0 || strcmp(op, "CastLike") == 0 || strcmp(op, "BitCast") == 0) {
        const char *from = text(entry(about, "inputs", 0), "dtype"), *to = text(entry(about, "outputs", 0), "dtype");
        if (dtype_of(from) == TL_DTYPE_COUNT)
            leave_out(t, from);
        else if (dtype_of(to) == TL_DTYPE_COUNT)
            leave_out(t, to);
        else {
            check_case(name, op, about, dtype_of(from), dtype_of(to));
            t->run++;
        }
    }
    json_decref(about);
}

static void test_cast_cases(void **state) {
    (void)state;
    char path[4096];
    tally_of_cases t = {0};
    assert_true(suite_path(path, sizeof path, NULL, NULL));
    DIR *folder = opendir(path);
    if (!folder) {
        print_message("SKIPPED: %s cannot be read; set TALLY_SHARED\n", path);
        skip();
    }
    for (struct dirent *e = readdir(folder); e; e = readdir(folder))
        if (strncmp(e->d_name, "test_cast", 9) == 0 || strncmp(e->d_name, "test_bitcast", 12) == 0)
            one(&t, e->d_name);
    closedir(folder);
    print_message("Cast, CastLike, BitCast: %d cases equal, %d out of scope", t.run, t.out_of_scope);
    for (int i = 0; i < 16 && t.reason[i].count; i++)
        print_message("%s%d %s", i ? ", " : ": ", t.reason[i].count, t.reason[i].name);
    print_message("\n");
    assert_true(t.run > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cast_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
