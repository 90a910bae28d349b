/* cli/tensor_rows.c: tensors gathered into rows. Two are one row when their names differ in whole numbers between dots alone and
 * format, shape and readability agree; a row keeps the place of its first. */
#include "tensor_rows.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_DIMS = 8 };

typedef struct folded {
    tl_tensor_row first;
    char *pattern; /* owned */
    int64_t tensors, count, bytes;
} folded;

struct tl_tensor_rows {
    const tl_cli *cli;
    bool fold, failed;
    folded *list;
    int64_t n, capacity;
    int64_t *slots; /* hash of pattern, format and shape to the row's index + 1 */
    int64_t n_slots;
};

tl_tensor_rows *tl_tensor_rows_new(const tl_cli *cli, bool all) {
    tl_tensor_rows *rows = calloc(1, sizeof *rows);
    if (rows) {
        rows->cli = cli;
        rows->fold = !all && cli->format == TL_FORMAT_TABLE;
    }
    return rows;
}

void tl_tensor_rows_free(tl_tensor_rows *rows) {
    if (!rows)
        return;
    for (int64_t i = 0; i < rows->n; i++)
        free(rows->list[i].pattern);
    free(rows->list);
    free(rows->slots);
    free(rows);
}

const char *tl_tensor_shape_text(int64_t ndim, const int64_t *dim, char text[TL_TEXT]) {
    size_t at = (size_t)snprintf(text, TL_TEXT, "[");
    for (int64_t i = 0; i < ndim && i < SHOWN_DIMS && at < TL_TEXT - 24; i++)
        at += (size_t)snprintf(text + at, TL_TEXT - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
    snprintf(text + at, TL_TEXT - at, "%s]", ndim > SHOWN_DIMS ? ", …" : "");
    return text;
}

/* "model.layers.12.mlp" → "model.layers.*.mlp" */
static char *pattern_of(const char *name) {
    char *pattern = malloc(strlen(name) + 1), *to = pattern;
    bool at_start = true;
    while (pattern && *name) {
        size_t digits = at_start ? strspn(name, "0123456789") : 0;
        if (digits && (name[digits] == '.' || name[digits] == '\0')) {
            *to++ = '*';
            name += digits;
            at_start = false;
            continue;
        }
        at_start = *name == '.';
        *to++ = *name++;
    }
    if (pattern)
        *to = '\0';
    return pattern;
}

static bool same_shape(const tl_tensor_row *a, const tl_tensor_row *b) {
    return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0);
}

static uint64_t hash_of(const char *pattern, const tl_tensor_row *row) {
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *c = pattern; *c; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(1099511628211);
    for (const char *c = row->format; *c; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return (h ^ (uint64_t)row->count) * UINT64_C(1099511628211);
}

static bool grow(tl_tensor_rows *rows) {
    if (rows->n < rows->capacity)
        return true;
    int64_t capacity = rows->capacity ? 2 * rows->capacity : 64, n_slots = 2 * capacity;
    folded *list = realloc(rows->list, (size_t)capacity * sizeof *list);
    if (list)
        rows->list = list;
    int64_t *slots = calloc((size_t)n_slots, sizeof *slots);
    if (!list || !slots) {
        free(slots);
        return false;
    }
    for (int64_t i = 0; i < rows->n; i++) {
        uint64_t at = hash_of(list[i].pattern, &list[i].first) % (uint64_t)n_slots;
        while (slots[at])
            at = (at + 1) % (uint64_t)n_slots;
        slots[at] = i + 1;
    }
    free(rows->slots);
    rows->slots = slots;
    rows->n_slots = n_slots;
    rows->capacity = capacity;
    return true;
}

void tl_tensor_rows_add(tl_tensor_rows *rows, const tl_tensor_row *row) {
    char *pattern = rows->fold ? pattern_of(row->name) : strdup(row->name);
    if (rows->failed || !pattern || !grow(rows)) {
        rows->failed = true;
        free(pattern);
        return;
    }
    uint64_t at = hash_of(pattern, row) % (uint64_t)rows->n_slots;
    for (; rows->slots[at]; at = (at + 1) % (uint64_t)rows->n_slots) {
        folded *f = &rows->list[rows->slots[at] - 1];
        if (!rows->fold || strcmp(f->pattern, pattern) != 0 || strcmp(f->first.format, row->format) != 0 ||
            !same_shape(&f->first, row) || f->first.readable != row->readable)
            continue;
        f->tensors++;
        f->count += row->count;
        f->bytes = f->bytes < 0 || row->bytes < 0 ? -1 : f->bytes + row->bytes;
        if (f->first.file && (!row->file || strcmp(f->first.file, row->file) != 0))
            f->first.file = "several";
        free(pattern);
        return;
    }
    rows->list[rows->n] = (folded){*row, pattern, 1, row->count, row->bytes};
    rows->slots[at] = ++rows->n;
}

int tl_tensor_rows_print(const tl_tensor_rows *rows) {
    static const tl_column columns[] = {
        {"name", "tensor", false, false, false}, {"dtype", "dtype", false, false, false},
        {"shape", "shape", false, false, false}, {"values", "values", true, true, false},
        {"bytes", "bytes", true, false, false},  {"file", "file", false, true, false},
        {"readable", NULL, false, false, false},
    };
    char text[TL_TEXT], name[512];
    if (rows->failed) {
        tl_say(rows->cli, "no memory for the table of tensors");
        return TL_EXIT_FAILED;
    }
    tl_grid *grid = tl_grid_new(columns, 7);
    bool several = false;
    for (int64_t i = 0; i < rows->n; i++) {
        const folded *f = &rows->list[i];
        const tl_tensor_row *t = &f->first;
        if (f->tensors > 1)
            snprintf(name, sizeof name, "%.440s ×%lld", f->pattern, (long long)f->tensors);
        several = several || f->tensors > 1;
        tl_grid_string(grid, f->tensors > 1 ? f->pattern : t->name, f->tensors > 1 ? name : NULL);
        tl_grid_string(grid, t->format, NULL);
        tl_grid_string(grid, tl_tensor_shape_text(t->ndim, t->dim, text), NULL);
        tl_grid_integer(grid, f->count, tl_text_grouped((tl_u128)f->count, text));
        if (f->bytes < 0)
            tl_grid_null(grid);
        else
            tl_grid_integer(grid, f->bytes, tl_text_grouped((tl_u128)f->bytes, text));
        if (t->file)
            tl_grid_string(grid, t->file, NULL);
        else
            tl_grid_null(grid);
        tl_grid_boolean(grid, t->readable, NULL);
    }
    int status = tl_grid_print(rows->cli, grid, "tensors");
    tl_grid_free(grid);
    if (several && status == TL_EXIT_OK)
        tl_out_item(rows->cli, "note", "layers alike are one row, with their sum; --all lists every tensor");
    return status;
}
