/* cli/tensors_out.c: what files of named tensors hold: every tensor with its format, shape and bytes, totals by format, and
 * of a checkpoint its step, its losses and what each role takes. */
#include <string.h>
#include <sys/stat.h>

#include "tally/ckpt.h"
#include "tally/weights.h"
#include "tensor_rows.h"
#include "tensors_out.h"

enum { FORMATS = 32, ROLES = 64 };

/* Tensors, values and bytes under one name: a format, a role. */
typedef struct sum {
    char name[64];
    int64_t tensors, values, bytes;
} sum;

typedef struct report {
    const tl_cli *cli;
    const char *path;
    tl_weights_files *files; /* of weights */
    tl_ckpt *ckpt;           /* of a checkpoint */
    bool verified;
    sum formats[FORMATS], roles[ROLES], all;
    sum packed[2]; /* values in codes, and the bytes of their scales with them */
    int n_formats, n_roles;
    int64_t file_bytes;
} report;

static int64_t file_count(const report *r) { return r->ckpt ? 1 : tl_weights_file_count(r->files); }

static const tl_safetensors *file_at(const report *r, int64_t i) {
    return r->ckpt ? tl_ckpt_file(r->ckpt) : tl_weights_file(r->files, i);
}

static const char *file_name(const report *r, int64_t i) { return r->ckpt ? NULL : tl_weights_file_name(r->files, i); }

/* A shard may hold what the index does not name, or says lies in another: no part of the model. */
static bool counts(const report *r, int64_t file, const tl_safetensors_tensor *t) {
    return r->ckpt || tl_weights_file_counts(r->files, file, t->name);
}

static void add(sum *s, const tl_safetensors_tensor *t) {
    s->tensors++;
    s->values += t->count;
    s->bytes += t->bytes;
}

static void add_to(sum *list, int *n, int most, const char *name, size_t length, const tl_safetensors_tensor *t) {
    int i = 0;
    length = length < sizeof list->name ? length : sizeof list->name - 1;
    while (i < *n && (strncmp(list[i].name, name, length) != 0 || list[i].name[length] != '\0'))
        i++;
    if (i == *n && *n < most)
        snprintf(list[(*n)++].name, sizeof list->name, "%.*s", (int)length, name);
    if (i < *n)
        add(&list[i], t);
}

/* "model", "master", "optim.exp_avg", "precision": what stands before the parameter's name. */
static size_t role_length(const char *name) {
    size_t n = strcspn(name, ".");
    return strncmp(name, "optim.", 6) == 0 ? 6 + strcspn(name + 6, ".") : n;
}

static bool has_tensor(const report *r, const char *name) {
    for (int64_t f = 0; f < file_count(r); f++)
        if (tl_safetensors_find(file_at(r, f), name))
            return true;
    return false;
}

/* Of a tensor NAME of codes the scales, NAME without `end` but with `scales`. */
static bool has_scales(const report *r, const char *name, const char *end, const char *scales) {
    char other[512];
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0 &&
           snprintf(other, sizeof other, "%.*s%s", (int)(n - m), name, scales) < (int)sizeof other &&
           has_tensor(r, other);
}

/* MXFP4's blocks hold two values a byte; each 128 × 128 of DeepSeek's fp8 has a scale. */
static void add_packed(report *r, const tl_safetensors_tensor *t) {
    sum *mx = &r->packed[0], *fp8 = &r->packed[1];
    bool u8 = strcmp(t->format, "U8") == 0;
    if (u8 && t->ndim == 4 && t->dim[3] == 16 && has_scales(r, t->name, "_blocks", "_scales")) {
        add(mx, t);
        mx->values += t->count;
    } else if (u8 && t->ndim == 3 && has_scales(r, t->name, "_scales", "_blocks")) {
        mx->bytes += t->bytes;
    } else if (strcmp(t->format, "F8_E4M3") == 0 && has_scales(r, t->name, ".weight", ".weight_scale_inv")) {
        add(fp8, t);
    } else if (has_scales(r, t->name, ".weight_scale_inv", ".weight"))
        fp8->bytes += t->bytes;
}

static void sum_up(report *r) {
    for (int64_t f = 0; f < file_count(r); f++) {
        const tl_safetensors *file = file_at(r, f);
        r->file_bytes += tl_safetensors_bytes(file);
        for (int64_t i = 0; i < tl_safetensors_count(file); i++) {
            const tl_safetensors_tensor *t = tl_safetensors_at(file, i);
            if (!counts(r, f, t))
                continue;
            add(&r->all, t);
            if (!r->ckpt)
                add_packed(r, t);
            add_to(r->formats, &r->n_formats, FORMATS, t->format, strlen(t->format), t);
            if (r->ckpt)
                add_to(r->roles, &r->n_roles, ROLES, t->name, role_length(t->name), t);
        }
    }
}

/* ---- for people ---- */

static int print_rows(const report *r, bool all) {
    tl_tensor_rows *rows = tl_tensor_rows_new(r->cli, all);
    for (int64_t f = 0; rows && f < file_count(r); f++)
        for (int64_t i = 0; i < tl_safetensors_count(file_at(r, f)); i++) {
            const tl_safetensors_tensor *t = tl_safetensors_at(file_at(r, f), i);
            if (counts(r, f, t))
                tl_tensor_rows_add(rows, &(tl_tensor_row){t->name, t->format, file_name(r, f), t->ndim, t->dim,
                                                          t->count, t->bytes, t->dtype != TL_DTYPE_COUNT});
        }
    int status = rows ? tl_tensor_rows_print(rows) : TL_EXIT_FAILED;
    tl_tensor_rows_free(rows);
    return status;
}

static void out_sums(const tl_cli *cli, const char *label, const sum *list, int n) {
    char values[TL_TEXT], bytes[TL_TEXT];
    for (int i = 0; i < n; i++)
        tl_out_item(cli, i ? "" : label, "%s: %lld tensor%s, %s values, %s B", list[i].name, (long long)list[i].tensors,
                    list[i].tensors == 1 ? "" : "s", tl_text_grouped((tl_u128)list[i].values, values),
                    tl_text_grouped((tl_u128)list[i].bytes, bytes));
}

static const char *const packed_names[2] = {"MXFP4 (U8 in _blocks, and _scales)", "fp8 with weight_scale_inv"};
static const char *const packed_keys[2] = {"mxfp4", "fp8"};

static void out_packed(const report *r) {
    char values[TL_TEXT], bytes[TL_TEXT];
    bool first = true;
    for (int i = 0; i < 2; i++) {
        const sum *s = &r->packed[i];
        if (s->values == 0)
            continue;
        tl_out_item(r->cli, first ? "packed" : "",
                    "%s: %lld tensor%s, %s parameters, %s B with their scales: %.4g bits each", packed_names[i],
                    (long long)s->tensors, s->tensors == 1 ? "" : "s", tl_text_grouped((tl_u128)s->values, values),
                    tl_text_grouped((tl_u128)s->bytes, bytes), 8 * (double)s->bytes / (double)s->values);
        first = false;
    }
}

static void out_metadata(const report *r) {
    const tl_safetensors *file = file_at(r, 0);
    bool first = true;
    for (int64_t i = 0; i < tl_safetensors_metadata_count(file); i++) {
        const char *key = tl_safetensors_metadata_key(file, i), *value = tl_safetensors_metadata(file, key);
        char line[120];
        size_t n = 0;
        if (r->ckpt && strncmp(key, "tally.", 6) == 0)
            continue;
        for (const char *c = value; *c && n + 4 < sizeof line; c++) /* on one line, without what a terminal obeys */
            if (!((*c == ' ' || *c == '\n') && n > 0 && line[n - 1] == ' '))
                line[n++] = (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c;
        bool cut = n + 4 >= sizeof line;
        while (cut && n > 0 && ((unsigned char)line[n - 1] & 0xc0) == 0x80)
            n--; /* not within a character */
        n -= cut && n > 0 && (unsigned char)line[n - 1] >= 0xc0;
        line[n] = '\0';
        tl_out_item(r->cli, first ? "metadata" : "", "%.60s = %s%s", key, line, cut ? "…" : "");
        first = false;
    }
}

static void out_checkpoint(const report *r) {
    const tl_cli *cli = r->cli;
    const tl_ckpt_state *s = tl_ckpt_state_of(r->ckpt);
    if (s->has_loss || s->has_validation_loss) {
        char loss[48] = "", validation[48] = "";
        if (s->has_loss)
            snprintf(loss, sizeof loss, "%.6g", s->loss);
        if (s->has_validation_loss)
            snprintf(validation, sizeof validation, "%svalidation %.6g", s->has_loss ? ", " : "", s->validation_loss);
        tl_out_item(cli, "loss", "%s%s", loss, validation);
    }
    out_sums(cli, "roles", r->roles, r->n_roles);
    tl_out_item(cli, "data", "%llu examples drawn", (unsigned long long)s->data_position);
    tl_out_item(cli, "seeds", "init %llu, data %llu, dropout %llu at position %llu", (unsigned long long)s->seed_init,
                (unsigned long long)s->seed_data, (unsigned long long)s->seed_dropout,
                (unsigned long long)s->dropout_position);
    tl_out_item(cli, "checksums", "%s",
                r->verified ? "the header's and every tensor's agree"
                            : "the header's agrees; --verify reads the values too");
}

static void out_summary(const report *r) {
    const tl_cli *cli = r->cli;
    char answer[TL_TEXT], rest[512], size[TL_TEXT], digits[TL_TEXT];
    int64_t files = file_count(r);
    tl_text_bytes((double)r->file_bytes, cli->units, size);
    tl_text_grouped((tl_u128)r->file_bytes, digits);
    if (r->ckpt) {
        const tl_ckpt_state *s = tl_ckpt_state_of(r->ckpt);
        snprintf(answer, sizeof answer, "step %lld of %lld", (long long)s->step, (long long)s->total_steps);
        snprintf(rest, sizeof rest, "a checkpoint of tally (safetensors, %s = %s B)", size, digits);
    } else {
        char values[TL_TEXT];
        snprintf(answer, sizeof answer, "%s values", tl_text_count((double)r->all.values, values));
        if (files == 1 && !file_name(r, 0))
            snprintf(rest, sizeof rest, "in %lld tensors: a safetensors file (%s = %s B)", (long long)r->all.tensors,
                     size, digits);
        else
            snprintf(rest, sizeof rest, "in %lld tensors: %lld safetensors files of one index (%s = %s B)",
                     (long long)r->all.tensors, (long long)files, size, digits);
    }
    tl_out_answer(cli, answer, rest);
    tl_out_item(cli, "file", "%s", r->path);
    if (r->ckpt)
        out_checkpoint(r);
    else if (tl_weights_files_note(r->files)[0])
        tl_out_item(cli, "strays", "%s", tl_weights_files_note(r->files));
    out_sums(cli, "formats", r->formats, r->n_formats);
    out_packed(r);
    out_metadata(r);
}

/* ---- for machines ---- */

static void json_sums(tl_json *json, const char *key, const char *name, const sum *list, int n) {
    tl_json_key(json, key);
    tl_json_array(json);
    for (int i = 0; i < n; i++) {
        tl_json_object(json);
        tl_json_put_string(json, name, list[i].name);
        tl_json_put_integer(json, "tensors", list[i].tensors);
        tl_json_put_integer(json, "values", list[i].values);
        tl_json_put_integer(json, "bytes", list[i].bytes);
        tl_json_end(json);
    }
    tl_json_end(json);
}

static void json_packed(tl_json *json, const report *r) {
    tl_json_key(json, "packed");
    tl_json_array(json);
    for (int i = 0; i < 2; i++) {
        const sum *s = &r->packed[i];
        if (s->values == 0)
            continue;
        tl_json_object(json);
        tl_json_put_string(json, "format", packed_keys[i]);
        tl_json_put_integer(json, "tensors", s->tensors);
        tl_json_put_integer(json, "parameters", s->values);
        tl_json_put_integer(json, "bytes", s->bytes);
        tl_json_put_real(json, "bits_per_parameter", 8 * (double)s->bytes / (double)s->values);
        tl_json_end(json);
    }
    tl_json_end(json);
}

static void json_checkpoint(tl_json *json, const report *r) {
    const tl_ckpt_state *s = tl_ckpt_state_of(r->ckpt);
    tl_json_put_integer(json, "step", s->step);
    tl_json_put_integer(json, "total_steps", s->total_steps);
    if (s->has_loss)
        tl_json_put_real(json, "loss", s->loss);
    if (s->has_validation_loss)
        tl_json_put_real(json, "validation_loss", s->validation_loss);
    tl_json_put_unsigned(json, "data_position", s->data_position);
    tl_json_put_unsigned(json, "seed_init", s->seed_init);
    tl_json_put_unsigned(json, "seed_data", s->seed_data);
    tl_json_put_unsigned(json, "seed_dropout", s->seed_dropout);
    tl_json_put_unsigned(json, "dropout_position", s->dropout_position);
    tl_json_put_boolean(json, "verified", r->verified);
    json_sums(json, "roles", "role", r->roles, r->n_roles);
}

static void json_tensors(tl_json *json, const report *r) {
    tl_json_key(json, "tensors");
    tl_json_array(json);
    for (int64_t f = 0; f < file_count(r); f++)
        for (int64_t i = 0; i < tl_safetensors_count(file_at(r, f)); i++) {
            const tl_safetensors_tensor *t = tl_safetensors_at(file_at(r, f), i);
            if (!counts(r, f, t))
                continue;
            tl_json_object(json);
            tl_json_put_string(json, "name", t->name);
            tl_json_put_string(json, "dtype", t->format);
            tl_json_key(json, "shape");
            tl_json_array(json);
            for (int64_t d = 0; d < t->ndim; d++)
                tl_json_integer(json, t->dim[d]);
            tl_json_end(json);
            tl_json_put_integer(json, "values", t->count);
            tl_json_put_integer(json, "bytes", t->bytes);
            tl_json_put_integer(json, "offset", t->offset);
            if (file_name(r, f))
                tl_json_put_string(json, "file", file_name(r, f));
            tl_json_end(json);
        }
    tl_json_end(json);
}

static int print_json(const report *r) {
    const tl_safetensors *file = file_at(r, 0);
    tl_json *json = tl_cli_json_open(r->cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "path", r->path);
    tl_json_put_string(json, "kind", r->ckpt ? "checkpoint" : "safetensors");
    tl_json_put_integer(json, "files", file_count(r));
    tl_json_put_integer(json, "file_bytes", r->file_bytes);
    tl_json_put_integer(json, "values", r->all.values);
    tl_json_put_integer(json, "value_bytes", r->all.bytes);
    if (r->ckpt)
        json_checkpoint(json, r);
    else if (tl_weights_files_note(r->files)[0])
        tl_json_put_string(json, "strays", tl_weights_files_note(r->files));
    json_sums(json, "formats", "dtype", r->formats, r->n_formats);
    json_packed(json, r);
    tl_json_key(json, "metadata");
    tl_json_object(json);
    for (int64_t i = 0; file && i < tl_safetensors_metadata_count(file); i++) {
        const char *key = tl_safetensors_metadata_key(file, i);
        tl_json_put_string(json, key, tl_safetensors_metadata(file, key));
    }
    tl_json_end(json);
    json_tensors(json, r);
    return tl_cli_json_close(r->cli, json);
}

/* ---- the verb's part ---- */

static bool exists(const char *folder, const char *name, char *path, size_t size) {
    struct stat st;
    return snprintf(path, size, "%s/%s", folder, name) < (int)size && stat(path, &st) == 0;
}

bool tl_is_tensors(const char *path, bool is_folder, const unsigned char *head, size_t length, char *inside,
                   size_t size) {
    char other[TL_CKPT_PATH];
    if (is_folder) {
        if (exists(path, "checkpoints", inside, size) || exists(path, "latest", inside, size)) {
            const char *folder = strcmp(inside + strlen(inside) - 6, "latest") == 0 ? path : inside;
            if (tl_ckpt_folder_latest(folder, other, NULL) == TL_OK)
                return snprintf(inside, size, "%s", other) < (int)size;
        }
        return exists(path, "model.safetensors.index.json", inside, size) ||
               exists(path, "model.safetensors", inside, size);
    }
    static const char index[] = ".safetensors.index.json", file[] = ".safetensors";
    size_t n = strlen(path);
    if (n >= sizeof index && strcmp(path + n - sizeof index + 1, index) == 0)
        return true;
    return (n >= sizeof file && strcmp(path + n - sizeof file + 1, file) == 0) ||
           (length > 9 && (head[8] == '{' || head[8] == ' ') && head[4] == 0 && head[5] == 0 && head[6] == 0 &&
            head[7] == 0);
}

static bool open_files(report *r, bool verify, tl_error *error) {
    size_t n = strlen(r->path);
    bool is_index = n > 5 && strcmp(r->path + n - 5, ".json") == 0;
    tl_safetensors *file = is_index ? NULL : tl_safetensors_open(r->path, error);
    bool is_checkpoint = file && tl_ckpt_is(file);
    tl_safetensors_close(file);
    if (!is_index && !file)
        return false;
    if (is_checkpoint)
        r->ckpt = tl_ckpt_open(r->path, error);
    else
        r->files = tl_weights_open(r->path, error);
    if (r->ckpt && verify) {
        if (tl_ckpt_verify(r->ckpt, error) != TL_OK)
            return false;
        r->verified = true;
    }
    return r->ckpt || r->files;
}

int tl_tensors_report(const tl_cli *cli, const char *path, bool verify, bool all) {
    static report r; /* zeroed; large enough that the stack is no place for it */
    tl_error error = {TL_OK, ""};
    int status = TL_EXIT_FAILED;
    r.cli = cli;
    r.path = path;
    if (!open_files(&r, verify, &error)) {
        tl_say(cli, "%s", error.message);
    } else if (verify && !r.ckpt) {
        status = tl_usage(cli, "--verify is for a checkpoint, which has checksums; \"%.300s\" is weights", path);
    } else if (sum_up(&r), cli->format == TL_FORMAT_JSON) {
        status = print_json(&r);
    } else {
        if (cli->format == TL_FORMAT_TABLE)
            out_summary(&r);
        status = print_rows(&r, all);
    }
    tl_ckpt_close(r.ckpt);
    tl_weights_close(r.files);
    return status;
}
