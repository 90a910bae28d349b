/* conformance [FOLDER]: runs every case of FOLDER/onnx (default $TALLY_SHARED/suites) and prints a line per op, `ok` or
 * `not ok` with its first difference; what cannot be compared is counted by its reason. Exit status 1 on any failure. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/conformance.h"
#include "tally/cpu.h"

enum {
    PATH_SIZE = 1024,
    LONG_PATH = 3 * PATH_SIZE,
    TEXT = 1100,
    MAX_REASONS = 256,
    MAX_CASES = 20000,
    TEST_NAME = 200
};

/* What no language model uses, what has a shape that depends on data, and what has no value to compare. */
static const struct {
    const char *op, *why;
} out_of_scope[] = {
    {"NonZero", "the output's shape depends on data"},
    {"Unique", "the output's shape depends on data"},
    {"Compress", "the output's shape depends on data"},
    {"NonMaxSuppression", "the output's shape depends on data"},
};

typedef struct op_result {
    int passed, failed, skipped;
    char first[TEXT]; /* of the failures */
} op_result;

typedef struct reason {
    char text[TEXT];
    int count;
} reason;

typedef struct totals {
    int passed, failed, skipped, ops, n_reasons;
    reason reasons[MAX_REASONS];
} totals;

static void count_reason(totals *t, const char *text) {
    int i = 0;
    t->skipped++;
    while (i < t->n_reasons && strcmp(t->reasons[i].text, text) != 0)
        i++;
    if (i == MAX_REASONS)
        return;
    if (i == t->n_reasons) {
        t->n_reasons++;
        snprintf(t->reasons[i].text, TEXT, "%s", text);
    }
    t->reasons[i].count++;
}

static conformance_handler *handler_of(const char *op) {
    const conformance_entry *const tables[] = {conformance_elementwise, conformance_reduce, conformance_shape,
                                               conformance_index, conformance_layers};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const conformance_entry *e = tables[t]; e->op; e++)
            if (strcmp(e->op, op) == 0)
                return e->run;
    return NULL;
}

static int place_in(const json_t *names, const char *name) {
    for (int i = 0; i < (int)json_array_size(names); i++) {
        const char *at = json_string_value(json_array_get(names, (size_t)i));
        if (at && strcmp(at, name) == 0)
            return i;
    }
    return -1;
}

/* numpy has no bfloat16 and no float8: those lie there as u2 and u1. */
static bool stored_as(const npy_array *a, tl_dtype dtype) {
    bool real = tl_dtype_is_float(dtype) && dtype != TL_BF16 && tl_dtype_bytes(dtype) > 1;
    char kind = real ? 'f' : dtype == TL_BOOL ? 'b' : strchr(tl_dtype_name(dtype), 'i') ? 'i' : 'u';
    return a->bytes == tl_dtype_bytes(dtype) && a->kind == kind;
}

/* One list of case.json into values, each at its place in the node. 1, 0 when a format is not ours, −1 with `text`. */
static int read_values(const char *folder, const json_t *list, const json_t *names, conformance_value value[], int *n,
                       char *text, const char **format) {
    int ours = 1;
    *n = (int)json_array_size(names);
    if (*n > CONFORMANCE_IO) {
        snprintf(text, TEXT, "%d inputs or outputs; at most %d are read", *n, CONFORMANCE_IO);
        return -1;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *file = json_string_value(json_object_get(one, "file"));
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *dtype = json_string_value(json_object_get(one, "dtype"));
        char path[LONG_PATH];
        int at = name ? place_in(names, name) : -1;
        if (!file || strchr(file, '/') || !dtype) {
            snprintf(text, TEXT, "case.json: value %d has no file, name or dtype that can be used", (int)i);
            return -1;
        }
        if (at < 0) /* an op expanded into others may leave an input unused */
            continue;
        value[at].name = dtype;
        if (!conformance_dtype_named(dtype, &value[at].dtype)) {
            *format = dtype;
            ours = 0;
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", folder, file);
        if (!npy_array_read(&value[at].array, path, text, TEXT))
            return -1;
        value[at].given = true;
        if (!stored_as(&value[at].array, value[at].dtype)) {
            snprintf(text, TEXT, "%s holds %c%d, not %s", file, value[at].array.kind, value[at].array.bytes, dtype);
            return -1;
        }
    }
    return ours;
}

static void make_inputs(conformance_case *c) {
    for (int i = 0; i < c->n_in; i++) {
        const npy_array *a = &c->in[i].array;
        tl_shape shape = {.ndim = a->ndim};
        c->x[i] = NULL;
        if (!c->in[i].given)
            continue;
        for (int d = 0; d < a->ndim; d++)
            shape.dim[d] = tl_dim_of(a->size[d]);
        c->x[i] = tl_from_data(c->ctx, c->in[i].dtype, shape, TL_DATA, a->data, a->count);
    }
}

/* On one device; false with `text`. */
static bool run_on(conformance_case *c, conformance_handler *handler, const tl_kernels *kernels, char *text) {
    tl_error error = {0};
    tl_ctx_options options = {.kernels = kernels, .threads = 2, .scratch_bytes = kernels ? 0 : TL_NO_SCRATCH};
    c->ctx = tl_ctx_new(&options, &error);
    if (!c->ctx) {
        snprintf(text, TEXT, "%s", error.message);
        return false;
    }
    c->rtol = 1e-3; /* onnx.backend.test's own */
    c->atol = 1e-7;
    memset(c->y, 0, sizeof c->y);
    make_inputs(c);
    handler(c);
    text[0] = 0;
    if (!c->skip[0])
        conformance_compare(c, text, TEXT);
    tl_ctx_free(c->ctx);
    return text[0] == 0;
}

/* 1 passed, 0 failed with `text`, −1 not comparable with `text`. */
static int run_case(const char *folder, conformance_case *c, const json_t *root, conformance_handler *handler,
                    const tl_kernels *kernels, char *text) {
    const char *format = NULL;
    int in = read_values(folder, json_object_get(root, "inputs"), json_object_get(root, "node_inputs"), c->in, &c->n_in,
                         text, &format);
    int out = in < 0 ? -1
                     : read_values(folder, json_object_get(root, "outputs"), json_object_get(root, "node_outputs"),
                                   c->out, &c->n_out, text, &format);
    if (in < 0 || out < 0)
        return 0;
    if (!in || !out) {
        snprintf(text, TEXT, "%s is not one of our formats", format);
        return -1;
    }
    bool same = run_on(c, handler, NULL, text) && (c->skip[0] || run_on(c, handler, kernels, text));
    if (c->skip[0]) {
        snprintf(text, TEXT, "%s: %s", c->op, c->skip);
        return -1;
    }
    return same;
}

static void one_case(const char *suite, const char *name, const char *op, const json_t *root, const tl_kernels *kernels,
                     op_result *result, totals *t) {
    char folder[2 * PATH_SIZE], text[TEXT] = "";
    for (size_t i = 0; i < sizeof out_of_scope / sizeof *out_of_scope; i++)
        if (strcmp(out_of_scope[i].op, op) == 0) {
            snprintf(text, sizeof text, "%s is out of scope: %s", op, out_of_scope[i].why);
            result->skipped++;
            count_reason(t, text);
            return;
        }
    conformance_handler *handler = handler_of(op);
    if (!handler) {
        snprintf(text, sizeof text, "%s has no handler", op);
        result->skipped++;
        count_reason(t, text);
        return;
    }
    conformance_case *c = calloc(1, sizeof *c);
    if (!c)
        return;
    c->test = name;
    c->op = op;
    c->attrs = json_object_get(root, "attrs");
    c->opset = (int)json_integer_value(json_object_get(json_object_get(root, "opset"), ""));
    snprintf(folder, sizeof folder, "%s/%s", suite, name);
    int verdict = run_case(folder, c, root, handler, kernels, text);
    for (int i = 0; i < CONFORMANCE_IO; i++) {
        npy_array_free(&c->in[i].array);
        npy_array_free(&c->out[i].array);
    }
    free(c);
    if (verdict < 0) {
        result->skipped++;
        count_reason(t, text);
    } else if (verdict > 0)
        result->passed++;
    else {
        if (!result->failed++)
            snprintf(result->first, sizeof result->first, "%.150s: %.900s", name, text);
        printf("# %s: %s\n", name, text);
    }
}

/* ---- the folder ---- */

typedef struct found {
    char name[TEST_NAME], op[64];
    json_t *root;
} found;

static int by_op(const void *a, const void *b) {
    const found *x = a, *y = b;
    int order = strcmp(x->op, y->op);
    return order ? order : strcmp(x->name, y->name);
}

/* How many; a folder without a readable case.json counts as one whose op is "". */
static int find_cases(const char *suite, found **cases) {
    DIR *folder = opendir(suite);
    int n = 0;
    *cases = folder ? calloc(MAX_CASES, sizeof **cases) : NULL;
    for (struct dirent *e = NULL; *cases && n < MAX_CASES && (e = readdir(folder));) {
        char path[LONG_PATH];
        json_error_t error;
        if (e->d_name[0] == '.' || strlen(e->d_name) >= TEST_NAME)
            continue;
        snprintf(path, sizeof path, "%s/%s/case.json", suite, e->d_name);
        FILE *file = fopen(path, "rb");
        if (!file) /* a licence, a manifest */
            continue;
        found *f = &(*cases)[n++];
        snprintf(f->name, sizeof f->name, "%.*s", TEST_NAME - 1, e->d_name);
        f->root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
        fclose(file);
        const char *op = json_string_value(json_object_get(f->root, "op"));
        snprintf(f->op, sizeof f->op, "%.63s", op ? op : "");
    }
    if (folder)
        closedir(folder);
    if (*cases)
        qsort(*cases, (size_t)n, sizeof **cases, by_op);
    return n;
}

static void report_op(const char *op, const op_result *r, totals *t) {
    t->passed += r->passed;
    t->failed += r->failed;
    if (r->failed)
        printf("not ok %s: %d passed, %d failed, first %s\n", op, r->passed, r->failed, r->first);
    else if (r->passed)
        printf("ok %s: %d passed\n", op, r->passed);
    t->ops += r->failed || r->passed;
}

int main(int argc, char **argv) {
    const char *shared = getenv("TALLY_SHARED");
    char suites[PATH_SIZE], suite[PATH_SIZE + 8];
    tl_error error = {0};
    static totals t;
    int files_failed = 0;
    if (argc > 1)
        snprintf(suites, sizeof suites, "%s", argv[1]);
    else
        snprintf(suites, sizeof suites, "%s/suites", shared ? shared : "../shared");
    snprintf(suite, sizeof suite, "%s/onnx", suites);
    bool files = conformance_safetensors(suites, &files_failed);
    found *cases;
    int n = find_cases(suite, &cases);
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, &error);
    if (!cases || n == 0 || !kernels) {
        printf("skip conformance: %s\n", kernels ? "NO OP CASES FOUND, none was compared" : error.message);
        printf("# looked in %s; make conformance SUITES=FOLDER takes another\n", suite);
        free(cases);
        return files ? files_failed > 0 : argc > 1;
    }
    op_result result = {0};
    for (int i = 0; i < n; i++) {
        if (cases[i].op[0])
            one_case(suite, cases[i].name, cases[i].op, cases[i].root, kernels, &result, &t);
        else if (!result.failed++)
            snprintf(result.first, sizeof result.first, "%s: case.json is not one", cases[i].name);
        json_decref(cases[i].root);
        if (i + 1 < n && strcmp(cases[i + 1].op, cases[i].op) == 0)
            continue;
        report_op(cases[i].op, &result, &t);
        memset(&result, 0, sizeof result);
    }
    free(cases);
    for (int i = 0; i < t.n_reasons; i++)
        printf("# not compared: %d, %s\n", t.reasons[i].count, t.reasons[i].text);
    printf("# %d cases of %d ops passed, %d failed, %d not compared (reasons above)\n", t.passed, t.ops, t.failed,
           t.skipped);
    printf("# the op cases of cs336/assignment1-npy and the float16 vectors are run by test_layers_cs336 and "
           "test_dtype\n");
    return t.failed > 0 || files_failed > 0;
}
