/* cli/npy_out.c: what a .npy or .npz holds: the header, the range of the values, and the values themselves as NumPy shows
 * them. */
#include <stdlib.h>
#include <string.h>

#include "npy_out.h"
#include "tally/cpu.h"
#include "tally/format.h"
#include "tally/npy.h"

typedef struct tl_value_range {
    bool any; /* a finite value */
    double least, most, sum;
    int64_t least_whole, most_whole; /* of whole numbers, every digit */
    int64_t finite, nan, infinite, zero;
} tl_value_range;

static double float_at(tl_dtype dtype, const char *at) {
    double wide;
    float single;
    uint16_t half;
    memcpy(&half, at, tl_dtype_bytes(dtype) > 1 ? 2 : 1);
    switch (dtype) {
    case TL_F64:
        memcpy(&wide, at, 8);
        return wide;
    case TL_F32:
        memcpy(&single, at, 4);
        return single;
    case TL_F16:
        return tl_f16_to_f32(half);
    case TL_BF16:
        return tl_bf16_to_f32(half);
    case TL_F8E4M3:
        return tl_f8e4m3_to_f32((uint8_t)*at);
    default:
        return tl_f8e5m2_to_f32((uint8_t)*at);
    }
}

static int64_t whole_at(tl_dtype dtype, const char *at) {
    int64_t value = 0;
    int bytes = tl_dtype_bytes(dtype), shift = 64 - 8 * bytes;
    memcpy(&value, at, (size_t)bytes); /* little-endian */
    return tl_dtype_iinfo(dtype)->is_signed ? (int64_t)((uint64_t)value << shift) >> shift : value;
}

/* The order of the values does not matter, and what was read from a file has no gaps: from the first byte to the last. */
static void look(const tl_tensor *t, tl_value_range *r) {
    tl_dtype dtype = tl_tensor_dtype(t);
    bool is_float = tl_dtype_is_float(dtype);
    int64_t count = tl_tensor_count(t), bytes = tl_dtype_bytes(dtype);
    const char *at = tl_tensor_data(t);
    *r = (tl_value_range){0};
    for (int64_t i = 0; i < count; i++, at += bytes) {
        int64_t whole = is_float ? 0 : whole_at(dtype, at);
        double value = is_float ? float_at(dtype, at) : (double)whole;
        if (value != value)
            r->nan++;
        else if (value - value != 0)
            r->infinite++;
        else {
            r->least = !r->any || value < r->least ? value : r->least;
            r->most = !r->any || value > r->most ? value : r->most;
            r->least_whole = !r->any || whole < r->least_whole ? whole : r->least_whole;
            r->most_whole = !r->any || whole > r->most_whole ? whole : r->most_whole;
            r->any = true;
            r->sum += value;
            r->finite++;
            r->zero += value == 0;
        }
    }
}

static const tl_column columns[] = {
    {"name", "name", false, false, false},
    {"dtype", "dtype", false, false, false},
    {"shape", "shape", false, false, false},
    {"bytes", "bytes", true, false, false},
    {"stored_bytes", "stored", true, true, false},
    {"descr", "descr", false, true, false},
    {"fortran_order", NULL, false, false, false},
    {"count", NULL, true, false, false},
    {"minimum", "min", true, false, false},
    {"maximum", "max", true, false, false},
    {"mean", "mean", true, true, false},
    {"zeros", NULL, true, false, false},
    {"nan", "nan", true, true, false},
    {"infinite", "inf", true, true, false},
    {"problem", NULL, false, false, false},
};
#define N_COLUMNS ((int)(sizeof columns / sizeof columns[0]))

static char *shape_text(const tl_npy_header *h, char text[256]) {
    int n = snprintf(text, 256, "[");
    for (int i = 0; i < h->ndim; i++)
        n += snprintf(text + n, 256 - (size_t)n, "%s%lld", i ? ", " : "", (long long)h->size[i]);
    snprintf(text + n, 256 - (size_t)n, "]");
    return text;
}

static void put_value(tl_grid *grid, bool any, bool is_float, double value, int64_t whole) {
    char text[TL_TEXT];
    snprintf(text, sizeof text, "%.6g", value);
    if (!any)
        tl_grid_null(grid);
    else if (is_float)
        tl_grid_real(grid, value, text);
    else
        tl_grid_integer(grid, whole, NULL);
}

/* t NULL: the values could not be read, `problem` says why. */
static void put_row(const tl_cli *cli, tl_grid *grid, const char *name, const tl_npy_header *h, int64_t stored,
                    const tl_tensor *t, const char *problem) {
    char shape[256], human[TL_TEXT];
    tl_value_range r = {0};
    bool is_float = t && tl_dtype_is_float(tl_tensor_dtype(t));
    if (t)
        look(t, &r);
    tl_grid_string(grid, name, NULL);
    tl_grid_string(grid, t ? tl_dtype_name(tl_tensor_dtype(t)) : NULL, NULL);
    tl_grid_string(grid, h->version ? shape_text(h, shape) : NULL, NULL);
    tl_grid_integer(grid, h->bytes, tl_text_bytes((double)h->bytes, cli->units, human));
    tl_grid_integer(grid, stored, tl_text_bytes((double)stored, cli->units, human));
    tl_grid_string(grid, h->version ? h->descr : NULL, NULL);
    tl_grid_boolean(grid, h->fortran, NULL);
    tl_grid_integer(grid, h->count, NULL);
    put_value(grid, r.any, is_float, r.least, r.least_whole);
    put_value(grid, r.any, is_float, r.most, r.most_whole);
    put_value(grid, r.any, true, r.any ? r.sum / (double)r.finite : 0, 0);
    tl_grid_integer(grid, r.zero, NULL);
    tl_grid_integer(grid, r.nan, NULL);
    tl_grid_integer(grid, r.infinite, NULL);
    tl_grid_string(grid, problem, NULL);
}

static void out_values(const tl_cli *cli, const tl_tensor *t) {
    tl_text text = {0};
    tl_format_options o = tl_format_defaults();
    if (tl_tensor_format(t, &o, &text) == TL_OK) {
        const char *line = text.data;
        while (*line) {
            size_t n = strcspn(line, "\n");
            tl_out(cli, "%.*s\n", (int)n, line);
            line += n + (line[n] == '\n');
        }
    }
    tl_text_free(&text);
}

static void out_array(const tl_cli *cli, const char *path, const tl_npy_header *h, const tl_tensor *t, int64_t bytes) {
    char size[TL_TEXT], digits[TL_TEXT], text[256], rest[512];
    tl_value_range r;
    bool is_float = tl_dtype_is_float(tl_tensor_dtype(t));
    look(t, &r);
    snprintf(rest, sizeof rest, "a NumPy array (.npy) of %s B", tl_text_grouped((tl_u128)bytes, digits));
    snprintf(text, sizeof text, "%s", tl_dtype_name(tl_tensor_dtype(t)));
    shape_text(h, text + strlen(text));
    tl_out_answer(cli, text, rest);
    tl_out_item(cli, "file", "%s", path);
    tl_out_item(cli, "header", "version %d.0, '%s', %s order; values from byte %lld on", h->version, h->descr,
                h->fortran ? "Fortran" : "C", (long long)h->data_offset);
    tl_out_item(cli, "values", "%s, %s B", tl_text_grouped((tl_u128)h->count, size),
                tl_text_grouped((tl_u128)h->bytes, digits));
    if (r.any && is_float)
        tl_out_item(cli, "range", "%.9g to %.9g, mean %.9g", r.least, r.most, r.sum / (double)r.finite);
    else if (r.any)
        tl_out_item(cli, "range", "%lld to %lld, mean %.9g", (long long)r.least_whole, (long long)r.most_whole,
                    r.sum / (double)r.finite);
    tl_out_item(cli, "among them", "%lld zero, %lld NaN, %lld infinite", (long long)r.zero, (long long)r.nan,
                (long long)r.infinite);
    out_values(cli, t);
}

static tl_ctx *context(const tl_cli *cli) {
    tl_error error = {TL_OK, ""};
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, &error);
    tl_ctx *ctx = kernels ? tl_ctx_new(&(tl_ctx_options){.kernels = kernels}, &error) : NULL;
    if (!ctx)
        tl_say(cli, "%s", error.message);
    return ctx;
}

static int print_json(const tl_cli *cli, const char *path, int64_t bytes, const tl_grid *grid) {
    tl_json *json = tl_cli_json_open(cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "path", path);
    tl_json_put_string(json, "kind", "npy");
    tl_json_put_integer(json, "file_bytes", bytes);
    tl_grid_json_row(grid, 0, json);
    return tl_cli_json_close(cli, json);
}

int tl_npy_report(const tl_cli *cli, const char *path, const char *as, int64_t bytes) {
    tl_npy_header h;
    tl_error error = {TL_OK, ""};
    int status = TL_EXIT_FAILED;
    tl_ctx *ctx = context(cli);
    if (!ctx)
        return status;
    tl_tensor *t = tl_npy_read(ctx, path, &(tl_npy_options){.as = as});
    tl_grid *grid = tl_grid_new(columns, N_COLUMNS);
    if (!t)
        tl_say(cli, "%s", tl_ctx_error(ctx)->message);
    else if (tl_npy_peek(path, &h, &error) != TL_OK)
        tl_say(cli, "%s", error.message);
    else if (cli->format == TL_FORMAT_TABLE) {
        out_array(cli, path, &h, t, bytes);
        status = TL_EXIT_OK;
    } else {
        put_row(cli, grid, path, &h, h.bytes, t, NULL);
        status =
            cli->format == TL_FORMAT_JSON ? print_json(cli, path, bytes, grid) : tl_grid_print(cli, grid, "arrays");
    }
    tl_grid_free(grid);
    tl_ctx_free(ctx);
    return status;
}

int tl_npz_report(const tl_cli *cli, const char *path, const char *as, int64_t bytes) {
    char digits[TL_TEXT], rest[512];
    tl_error error = {TL_OK, ""};
    int status = TL_EXIT_FAILED;
    tl_npz *npz = tl_npz_open(path, NULL, &error);
    if (!npz) {
        tl_say(cli, "%s", error.message);
        return status;
    }
    tl_ctx *ctx = context(cli);
    tl_grid *grid = tl_grid_new(columns, N_COLUMNS);
    for (int i = 0; ctx && i < tl_npz_count(npz); i++) {
        const tl_npz_member *m = tl_npz_at(npz, i);
        tl_npy_header h = {0};
        tl_error why = {TL_OK, ""};
        tl_scope_begin(ctx);
        tl_tensor *t = NULL;
        if (tl_npz_peek(npz, i, &h, &why) == TL_OK) {
            bool bits = as && h.kind == 'u' && h.element_bytes == (strcmp(as, "bf16") == 0 ? 2 : 1);
            t = tl_npz_read(ctx, npz, m->name, &(tl_npy_options){.as = bits ? as : NULL});
            if (!t)
                tl_fail(&why, TL_ERR_FORMAT, "%s", tl_ctx_error(ctx)->message);
        }
        if (why.status != TL_OK && cli->format == TL_FORMAT_TABLE)
            tl_note(cli, "%s", why.message);
        put_row(cli, grid, m->name, &h, m->stored_bytes, t, why.status == TL_OK ? NULL : why.message);
        tl_scope_end(ctx);
        tl_ctx_clear_error(ctx);
    }
    if (ctx) {
        if (cli->format == TL_FORMAT_TABLE) {
            snprintf(rest, sizeof rest, "array%s in an .npz of %s B", tl_npz_count(npz) == 1 ? "" : "s",
                     tl_text_grouped((tl_u128)bytes, digits));
            snprintf(digits, sizeof digits, "%d", tl_npz_count(npz));
            tl_out_answer(cli, digits, rest);
            tl_out_item(cli, "file", "%s", path);
        }
        status = tl_grid_print(cli, grid, "arrays");
    }
    tl_grid_free(grid);
    tl_ctx_free(ctx);
    tl_npz_close(npz);
    return status;
}

bool tl_is_npz(const char *path) {
    tl_error error = {TL_OK, ""};
    tl_npy_header h;
    size_t n = strlen(path);
    if (n > 4 && strcmp(path + n - 4, ".npz") == 0)
        return true;
    tl_npz *npz = tl_npz_open(path, NULL, &error);
    bool is = npz && tl_npz_count(npz) > 0 && tl_npz_peek(npz, 0, &h, &error) == TL_OK;
    tl_npz_close(npz);
    return is;
}
