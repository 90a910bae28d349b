/* tensor/summary.c: a table of tensors: what each is, and which of them are views of the same bytes. */
#include <stdio.h>
#include <string.h>

#include "tally/format.h"
#include "tensor/ctx.h"

enum { COLUMNS = 8, CELL = 200 };

typedef char row[COLUMNS][CELL];

/* 0 "A" … 25 "Z", 26 "AA": as a spreadsheet's columns. */
static void letters(int index, char out[CELL]) {
    char reversed[8];
    int n = 0, i = 0;
    for (index++; index > 0; index = (index - 1) / 26)
        reversed[n++] = (char)('A' + (index - 1) % 26);
    while (n > 0)
        out[i++] = reversed[--n];
    out[i] = 0;
}

static void numbers(const int64_t *list, int n, char out[CELL]) {
    size_t used = (size_t)snprintf(out, CELL, "[");
    for (int i = 0; i < n && used < CELL; i++)
        used += (size_t)snprintf(out + used, CELL - used, "%s%lld", i ? ", " : "", (long long)list[i]);
    if (used < CELL)
        snprintf(out + used, CELL - used, "]");
}

/* The storage's number in order of appearance. */
static int storage_index(const tl_named_tensor *list, int i, bool *first) {
    int index = 0;
    *first = true;
    for (int k = 0; k < i; k++) {
        bool seen = false;
        if (list[k].tensor->storage == list[i].tensor->storage) {
            *first = false;
            return storage_index(list, k, &seen);
        }
        for (int j = 0; j < k && !seen; j++)
            seen = list[j].tensor->storage == list[k].tensor->storage;
        index += !seen;
    }
    return index;
}

static void fill(const tl_named_tensor *list, int i, row out) {
    const tl_tensor *t = list[i].tensor;
    int64_t sizes[TL_MAX_NDIM];
    bool first;
    for (int d = 0; d < t->shape.ndim; d++)
        sizes[d] = t->shape.dim[d].size;
    snprintf(out[0], CELL, "%s", list[i].name ? list[i].name : "");
    snprintf(out[1], CELL, "%s", tl_dtype_name(t->dtype));
    numbers(sizes, t->shape.ndim, out[2]);
    numbers(t->stride, t->shape.ndim, out[3]);
    snprintf(out[4], CELL, "%lld", (long long)t->offset);
    snprintf(out[5], CELL, "%lld", (long long)(tl_tensor_count(t) * tl_dtype_bytes(t->dtype)));
    letters(storage_index(list, i, &first), out[6]);
    snprintf(out[7], CELL, "%lld", (long long)t->storage->bytes);
}

static tl_status add_row(tl_text *text, const row cells, const int width[COLUMNS]) {
    tl_status status = TL_OK;
    for (int c = 0; c < COLUMNS && status == TL_OK; c++) {
        bool right = c == 4 || c == 5 || c == 7;
        if (c == COLUMNS - 1)
            status = tl_text_printf(text, "%*s\n", width[c], cells[c]);
        else
            status = tl_text_printf(text, right ? "%*s  " : "%-*s  ", width[c], cells[c]);
    }
    return status;
}

tl_status tl_tensors_summary(const tl_named_tensor *list, int count, tl_text *text, tl_error *error) {
    static const row titles = {"name", "dtype", "shape", "strides", "offset", "bytes", "storage", "its bytes"};
    int width[COLUMNS], storages = 0;
    int64_t total = 0;
    row cells;
    for (int i = 0; i < count; i++)
        if (!list[i].tensor)
            return tl_fail(error, TL_ERR_ARGUMENT, "tensor %d (%.80s) is NULL", i, list[i].name ? list[i].name : "?");
    for (int c = 0; c < COLUMNS; c++)
        width[c] = (int)strlen(titles[c]);
    for (int i = 0; i < count; i++) {
        bool first = false;
        fill(list, i, cells);
        for (int c = 0; c < COLUMNS; c++)
            width[c] = (int)strlen(cells[c]) > width[c] ? (int)strlen(cells[c]) : width[c];
        (void)storage_index(list, i, &first);
        storages += first;
        if (first && !tl_add_i64(total, list[i].tensor->storage->bytes, &total))
            return tl_fail(error, TL_ERR_OVERFLOW, "the storages add up to more than 2^63 bytes");
    }
    tl_status status = add_row(text, titles, width);
    for (int i = 0; i < count && status == TL_OK; i++) {
        fill(list, i, cells);
        status = add_row(text, (const char(*)[CELL])cells, width);
    }
    if (status == TL_OK)
        status = tl_text_printf(text, "%d tensor%s on %d storage%s: %lld bytes\n", count, count == 1 ? "" : "s",
                                storages, storages == 1 ? "" : "s", (long long)total);
    return status == TL_OK ? TL_OK : tl_fail(error, status, "no memory for a table of %d tensors", count);
}
