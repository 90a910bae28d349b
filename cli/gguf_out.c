/* cli/gguf_out.c: what a GGUF file holds: the model it describes, its metadata, totals by format, and its tensors. */
#include "gguf_out.h"

#include <string.h>

#include "tally/gguf.h"
#include "tensor_rows.h"

enum { FORMATS = 48, LINE = 100, SHOWN_NUMBERS = 6 };

typedef struct total {
    const char *format;
    int64_t tensors, values, bytes; /* bytes −1: unknown */
} total;

typedef struct totals {
    total of[FORMATS], all;
    int n;
} totals;

static void add(total *t, const tl_gguf_tensor *x) {
    t->tensors++;
    t->values += x->count;
    t->bytes = t->bytes < 0 || x->bytes < 0 ? -1 : t->bytes + x->bytes;
}

static void sum_up(const tl_gguf *g, totals *sum) {
    memset(sum, 0, sizeof *sum);
    for (int64_t i = 0; i < tl_gguf_tensors(g); i++) {
        const tl_gguf_tensor *t = tl_gguf_tensor_at(g, i);
        int k = 0;
        while (k < sum->n && strcmp(sum->of[k].format, t->format) != 0)
            k++;
        if (k == sum->n && sum->n < FORMATS)
            sum->of[sum->n++].format = t->format;
        if (k < sum->n)
            add(&sum->of[k], t);
        add(&sum->all, t);
    }
}

static bool is_u64(const tl_gguf_pair *p) { return (p->type == TL_GGUF_ARRAY ? p->element : p->type) == TL_GGUF_U64; }

/* The value on one line, without what a terminal obeys. */
static const char *value_text(const tl_gguf_pair *p, char line[LINE]) {
    size_t n = 0;
    if (p->text) {
        for (const char *c = p->text; *c && n + 4 < LINE; c++)
            if (!((*c == ' ' || *c == '\n') && n > 0 && line[n - 1] == ' '))
                line[n++] = (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c;
        while (n > 0 && ((unsigned char)line[n - 1] & 0xc0) == 0x80 && n + 4 >= LINE)
            n--; /* not within a character */
        if (n > 0 && n + 4 >= LINE && (unsigned char)line[n - 1] >= 0xc0)
            n--;
        snprintf(line + n, LINE - n, "%s", n + 5 >= LINE ? "…" : "");
        return line;
    }
    if (p->type == TL_GGUF_ARRAY && (!p->number || p->count > SHOWN_NUMBERS)) {
        snprintf(line, LINE, "%lld of type %s", (long long)p->count, tl_gguf_type_name(p->element));
        return line;
    }
    bool is_unsigned = is_u64(p);
    for (int64_t i = 0; i < p->count && n + 32 < LINE; i++)
        n += (size_t)(is_unsigned  ? snprintf(line + n, LINE - n, "%s%llu", i ? ", " : "",
                                              (unsigned long long)(uint64_t)p->integer[i])
                      : p->integer ? snprintf(line + n, LINE - n, "%s%lld", i ? ", " : "", (long long)p->integer[i])
                                   : snprintf(line + n, LINE - n, "%s%.7g", i ? ", " : "", p->number[i]));
    if (p->type == TL_GGUF_BOOL)
        snprintf(line, LINE, "%s", p->integer[0] ? "true" : "false");
    return line;
}

static void out_summary(const tl_cli *cli, const tl_gguf *g, const char *path, const totals *sum) {
    char values[TL_TEXT], rest[512], size[TL_TEXT], digits[TL_TEXT], bytes[TL_TEXT], line[LINE];
    snprintf(line, sizeof line, "%s values", tl_text_count((double)sum->all.values, values));
    snprintf(rest, sizeof rest, "in %lld tensors: a GGUF file, version %d (%s = %s B)", (long long)sum->all.tensors,
             tl_gguf_version(g), tl_text_bytes((double)tl_gguf_bytes(g), cli->units, size),
             tl_text_grouped((tl_u128)tl_gguf_bytes(g), digits));
    tl_out_answer(cli, line, rest);
    tl_out_item(cli, "file", "%s", path);
    for (int i = 0; i < sum->n; i++) {
        const total *t = &sum->of[i];
        if (t->bytes < 0)
            snprintf(bytes, sizeof bytes, "an unknown number of");
        else
            tl_text_grouped((tl_u128)t->bytes, bytes);
        tl_out_item(cli, i ? "" : "formats", "%s: %lld tensor%s, %s values, %s B%s", t->format, (long long)t->tensors,
                    t->tensors == 1 ? "" : "s", tl_text_grouped((tl_u128)t->values, values), bytes, "");
        if (t->bytes > 0 && t->values > 0)
            tl_out_item(cli, "", "  %.4g bits a value", 8.0 * (double)t->bytes / (double)t->values);
    }
    for (int64_t i = 0; i < tl_gguf_pairs(g); i++) {
        const tl_gguf_pair *p = tl_gguf_pair_at(g, i);
        tl_out_item(cli, i ? "" : "metadata", "%.60s = %s", p->key, value_text(p, line));
    }
    tl_model model;
    tl_error error = {TL_OK, ""};
    if (tl_gguf_model(g, path, &model, &error) == TL_OK)
        tl_out_item(cli, "model", "`tally plan %s' plans it as %s", path, tl_family_name(model.family));
    else
        tl_out_item(cli, "model", "not planned from this file: %s", error.message);
}

static void json_value(tl_json *json, const tl_gguf_pair *p) {
    if (p->type == TL_GGUF_ARRAY)
        tl_json_array(json);
    if (p->text)
        tl_json_string(json, p->text);
    for (int64_t i = 0; p->number && i < p->count; i++)
        if (p->type == TL_GGUF_BOOL || (p->type == TL_GGUF_ARRAY && p->element == TL_GGUF_BOOL))
            tl_json_boolean(json, p->integer[i] != 0);
        else if (is_u64(p))
            tl_json_unsigned(json, (uint64_t)p->integer[i]);
        else if (p->integer)
            tl_json_integer(json, p->integer[i]);
        else
            tl_json_real(json, p->number[i]);
    if (p->type == TL_GGUF_ARRAY)
        tl_json_end(json);
}

static void json_metadata(tl_json *json, const tl_gguf *g) {
    tl_json_key(json, "metadata");
    tl_json_array(json);
    for (int64_t i = 0; i < tl_gguf_pairs(g); i++) {
        const tl_gguf_pair *p = tl_gguf_pair_at(g, i);
        tl_json_object(json);
        tl_json_put_string(json, "key", p->key);
        tl_json_put_string(json, "type", tl_gguf_type_name(p->type));
        if (p->type == TL_GGUF_ARRAY)
            tl_json_put_string(json, "element", tl_gguf_type_name(p->element));
        if (p->type == TL_GGUF_ARRAY || p->type == TL_GGUF_STRING)
            tl_json_put_integer(json, "count", p->count);
        if (p->text || p->number) {
            tl_json_key(json, "value");
            json_value(json, p);
        }
        tl_json_end(json);
    }
    tl_json_end(json);
}

static void json_tensors(tl_json *json, const tl_gguf *g) {
    tl_json_key(json, "tensors");
    tl_json_array(json);
    for (int64_t i = 0; i < tl_gguf_tensors(g); i++) {
        const tl_gguf_tensor *t = tl_gguf_tensor_at(g, i);
        tl_json_object(json);
        tl_json_put_string(json, "name", t->name);
        tl_json_put_string(json, "dtype", t->format);
        tl_json_key(json, "shape");
        tl_json_array(json);
        for (int d = 0; d < t->ndim; d++)
            tl_json_integer(json, t->dim[d]);
        tl_json_end(json);
        tl_json_put_integer(json, "values", t->count);
        if (t->bytes >= 0)
            tl_json_put_integer(json, "bytes", t->bytes);
        tl_json_put_integer(json, "offset", t->offset);
        tl_json_end(json);
    }
    tl_json_end(json);
}

static int print_json(const tl_cli *cli, const tl_gguf *g, const char *path, const totals *sum) {
    tl_json *json = tl_cli_json_open(cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "path", path);
    tl_json_put_string(json, "kind", "gguf");
    tl_json_put_integer(json, "version", tl_gguf_version(g));
    tl_json_put_integer(json, "file_bytes", tl_gguf_bytes(g));
    tl_json_put_integer(json, "header_bytes", tl_gguf_header_bytes(g));
    tl_json_put_integer(json, "values", sum->all.values);
    if (sum->all.bytes >= 0)
        tl_json_put_integer(json, "value_bytes", sum->all.bytes);
    json_metadata(json, g);
    json_tensors(json, g);
    return tl_cli_json_close(cli, json);
}

int tl_gguf_report(const tl_cli *cli, const char *path, bool all) {
    tl_error error = {TL_OK, ""};
    tl_gguf *g = tl_gguf_open(path, &error);
    totals sum;
    if (!g)
        return tl_failed(cli, &error);
    sum_up(g, &sum);
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON)
        status = print_json(cli, g, path, &sum);
    else {
        tl_tensor_rows *rows = tl_tensor_rows_new(cli, all);
        if (cli->format == TL_FORMAT_TABLE)
            out_summary(cli, g, path, &sum);
        for (int64_t i = 0; rows && i < tl_gguf_tensors(g); i++) {
            const tl_gguf_tensor *t = tl_gguf_tensor_at(g, i);
            tl_tensor_rows_add(rows,
                               &(tl_tensor_row){t->name, t->format, NULL, t->ndim, t->dim, t->count, t->bytes, false});
        }
        if (rows)
            status = tl_tensor_rows_print(rows);
        tl_tensor_rows_free(rows);
    }
    tl_gguf_close(g);
    return status;
}
