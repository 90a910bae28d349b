/* ckpt/weights_write.c: a net's weights as Hugging Face's tools read them. */
#include "ckpt/weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nearest.h"
#include "data/replace.h"
#include "optim/transfer.h"
#include "tally/config.h"
#include "tally/lora.h"
#include "tensor/ctx.h"

enum { TL_WEIGHTS_WRITTEN = sizeof((tl_published *)NULL)->name + 16 }; /* with "transformer." */

typedef struct saving {
    const char *folder, *prefix;
    const tl_model *model;
    const tl_parameter *parameters;
    int n_parameters;
    int64_t count; /* published tensors */
    struct written {
        char name[TL_WEIGHTS_WRITTEN]; /* in the file */
        int parameter, shard;
        int64_t first, values; /* of the parameter's */
        bool turned;
    } * tensors;
    tl_safetensors_item *items;
    int shards;
    tl_dtype dtype;
    const tl_weights_options *options;
    char *block; /* of tl_transfer_weights: turned values in its first half, converted ones in the other */
    int64_t half;
    tl_error *error;
} saving;

static tl_status no_memory(const saving *s) {
    return tl_fail(s->error, TL_ERR_MEMORY, "no memory to write %lld tensors", (long long)s->count);
}

static tl_status path_of(const saving *s, const char *name, char path[TL_WEIGHTS_PATH]) {
    if (snprintf(path, TL_WEIGHTS_PATH, "%s/%s", s->folder, name) >= TL_WEIGHTS_PATH - 8)
        return tl_fail(s->error, TL_ERR_ARGUMENT, "a path of more than %d bytes", TL_WEIGHTS_PATH - 8);
    return TL_OK;
}

static tl_status write_text(const saving *s, const char *name, tl_json *json) {
    char path[TL_WEIGHTS_PATH];
    size_t length = 0;
    const char *text = json ? tl_json_text(json, &length) : NULL;
    tl_replace file;
    if (!text)
        return no_memory(s);
    tl_status status = path_of(s, name, path);
    if (status != TL_OK)
        return status;
    status = tl_replace_begin(&file, path, s->error);
    if (status == TL_OK)
        status = tl_replace_write(&file, text, length, s->error);
    if (status == TL_OK)
        status = tl_replace_write(&file, "\n", 1, s->error);
    return tl_replace_end(&file, status, s->error);
}

/* ---- what goes where ---- */

static int64_t bytes_of(const saving *s, int64_t i) { return s->tensors[i].values * tl_dtype_bytes(s->dtype); }

static tl_status describe_part(saving *s, int parameter, int64_t number, struct written *w, tl_safetensors_item *item) {
    tl_weights_part part;
    char whole[TL_WEIGHTS_NAME];
    tl_status status = tl_weights_part_of(s->model, &s->parameters[parameter], number, &part, s->error);
    if (status != TL_OK)
        return status;
    *w = (struct written){.parameter = parameter, .first = part.first, .values = part.count};
    w->turned = part.published.transposed;
    snprintf(w->name, sizeof w->name, "%s", tl_weights_whole_name(s->model, s->prefix, part.published.name, whole));
    *item = (tl_safetensors_item){.name = w->name, .dtype = s->dtype, .ndim = part.ndim};
    memcpy(item->dim, part.dim, sizeof part.dim[0] * (size_t)part.ndim);
    return TL_OK;
}

static tl_status describe(saving *s, int64_t shard_bytes) {
    int64_t used = 0, i = 0;
    for (int p = 0; p < s->n_parameters; p++)
        s->count += tl_published_parts(s->model, s->parameters[p].name);
    s->tensors = calloc((size_t)s->count + 1, sizeof *s->tensors);
    s->items = calloc((size_t)s->count + 1, sizeof *s->items);
    if (!s->tensors || !s->items)
        return no_memory(s);
    for (int p = 0; p < s->n_parameters; p++) {
        int64_t parts = tl_published_parts(s->model, s->parameters[p].name);
        for (int64_t k = 0; k < parts; k++, i++) {
            tl_status status = describe_part(s, p, k, &s->tensors[i], &s->items[i]);
            if (status != TL_OK)
                return status;
            if (shard_bytes > 0 && i > 0 && used > shard_bytes - bytes_of(s, i)) {
                s->shards++;
                used = 0;
            }
            used += bytes_of(s, i);
            s->tensors[i].shard = s->shards;
        }
    }
    s->shards++;
    return TL_OK;
}

static void file_name(const saving *s, int shard, char name[64]) {
    if (s->shards == 1)
        snprintf(name, 64, TL_WEIGHTS_FILE);
    else
        snprintf(name, 64, "model-%05d-of-%05d.safetensors", shard + 1, s->shards);
}

/* ---- values ---- */

/* `rows` × `columns` values of the file's tensor, of which the parameter has the first at `values`. `all`: rows of a tensor that
 * is turned; 0: it is not. */
static tl_status write_piece(const saving *s, tl_safetensors_writer *w, int64_t i, const char *values, int64_t rows,
                             int64_t columns, int64_t all) {
    tl_dtype from = tl_tensor_dtype(s->parameters[s->tensors[i].parameter].tensor);
    if (all > 0) {
        tl_weights_gather(values, all, s->block, rows, columns, tl_dtype_bytes(from));
        values = s->block;
    }
    if (!tl_weights_convert(values, from, s->block + s->half, s->dtype, rows * columns))
        return tl_fail(s->error, TL_ERR_DTYPE, "%s holds a value that %s cannot; f32 or bf16 would take it",
                       s->items[i].name, tl_dtype_name(s->dtype));
    return tl_safetensors_write(w, s->block + s->half, rows * columns * tl_dtype_bytes(s->dtype), s->error);
}

static tl_status write_tensor(const saving *s, tl_safetensors_writer *w, int64_t i) {
    const struct written *t = &s->tensors[i];
    tl_tensor *tensor = (tl_tensor *)(uintptr_t)s->parameters[t->parameter].tensor;
    int from = tl_dtype_bytes(tl_tensor_dtype(tensor)), to = tl_dtype_bytes(s->dtype);
    const char *data = (const char *)tl_tensor_data(tensor) + t->first * from;
    if (!t->turned && tl_tensor_dtype(tensor) == s->dtype)
        return tl_safetensors_write(w, data, bytes_of(s, i), s->error);
    int64_t all = t->turned ? s->items[i].dim[0] : 1, columns = t->turned ? s->items[i].dim[1] : t->values;
    int64_t values = s->half / (from > to ? from : to),
            rows = columns > 0 && values / columns > 1 ? values / columns : 1;
    int64_t width = rows > 1 ? columns : values; /* a row that is too wide for the block goes in several pieces */
    tl_status status = TL_OK;
    for (int64_t row = 0; row < all && status == TL_OK; row += rows)
        for (int64_t column = 0; column < columns && status == TL_OK; column += width) {
            int64_t n = all - row < rows ? all - row : rows, m = columns - column < width ? columns - column : width;
            int64_t first = t->turned ? column * all + row : column;
            status = write_piece(s, w, i, data + first * from, n, m, t->turned ? all : 0);
        }
    return status;
}

static tl_status write_shard(const saving *s, int shard) {
    /* transformers reads a file only where it says which framework's layout it has: theirs. */
    static const tl_safetensors_text format = {"format", "pt"};
    char path[TL_WEIGHTS_PATH], name[64];
    int64_t first = 0, last;
    file_name(s, shard, name);
    tl_status status = path_of(s, name, path);
    if (status != TL_OK)
        return status;
    while (s->tensors[first].shard != shard)
        first++;
    for (last = first; last < s->count && s->tensors[last].shard == shard;)
        last++;
    tl_safetensors_writer *w = tl_safetensors_begin(path, s->items + first, last - first, &format, 1, s->error);
    if (!w)
        return s->error->status;
    for (int64_t i = first; i < last && status == TL_OK; i++)
        status = write_tensor(s, w, i);
    return tl_safetensors_end(w, status, s->error);
}

static tl_status write_index(const saving *s) {
    tl_json *json = tl_json_new(NULL, 2);
    char name[64];
    int64_t total = 0;
    if (!json)
        return no_memory(s);
    for (int64_t i = 0; i < s->count; i++)
        total += bytes_of(s, i);
    tl_json_object(json);
    tl_json_key(json, "metadata");
    tl_json_object(json);
    tl_json_put_integer(json, "total_size", total);
    tl_json_end(json);
    tl_json_key(json, "weight_map");
    tl_json_object(json);
    for (int64_t i = 0; i < s->count; i++) {
        file_name(s, s->tensors[i].shard, name);
        tl_json_put_string(json, s->items[i].name, name);
    }
    tl_json_end(json);
    tl_json_end(json);
    tl_status status = write_text(s, TL_WEIGHTS_INDEX, json);
    tl_json_free(json);
    return status;
}

/* Readers differ in which of the two they prefer: only the one just written may be there. */
static tl_status drop_other(const saving *s) {
    char path[TL_WEIGHTS_PATH];
    tl_status status = path_of(s, s->shards == 1 ? TL_WEIGHTS_INDEX : TL_WEIGHTS_FILE, path);
    if (status == TL_OK && unlink(path) != 0 && errno != ENOENT) {
        int reason = errno;
        return tl_fail(s->error, TL_ERR_IO, "cannot remove %s: %s", path, strerror(reason));
    }
    return status;
}

static tl_status write_config(const saving *s) {
    tl_json *json = tl_config_json(s->model, s->dtype);
    tl_status status = write_text(s, "config.json", json);
    tl_json_free(json);
    return status;
}

/* The folder and those above it. */
static tl_status make_folder(const saving *s) {
    char path[TL_WEIGHTS_PATH];
    struct stat info;
    tl_status status = path_of(s, "", path); /* ends in a slash */
    for (char *at = path + 1; status == TL_OK && *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        int reason = mkdir(path, 0777) != 0 ? errno : 0;
        if (reason && (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)))
            status = tl_fail(s->error, TL_ERR_IO, "cannot make the folder %s: %s", path, strerror(reason));
        *at = '/';
    }
    return status;
}

static tl_status save(void *self, char *block, int64_t block_bytes) {
    saving *s = self;
    s->block = block;
    s->half = block_bytes / 2 & ~(int64_t)7; /* whole values in each */
    tl_status status = make_folder(s);
    if (status == TL_OK)
        status = describe(s, s->options ? s->options->shard_bytes : 0);
    for (int i = 0; i < s->shards && status == TL_OK; i++)
        status = write_shard(s, i);
    if (status == TL_OK && s->shards > 1)
        status = write_index(s);
    if (status == TL_OK)
        status = write_config(s);
    return status == TL_OK ? drop_other(s) : status;
}

/* What is written must say the model again: a folder that nothing reads is worse than none. */
static tl_status check_config(const tl_model *m, const char *name, tl_error *error) {
    tl_error own = {TL_OK, ""};
    size_t length = 0;
    tl_model *again = malloc(sizeof *again);
    tl_json *json = tl_config_json(m, TL_DTYPE_COUNT);
    const char *text = json ? tl_json_text(json, &length) : NULL;
    tl_status status = again && text ? tl_config_parse(text, length, name, again, &own)
                                     : tl_fail(error, TL_ERR_MEMORY, "%s: no memory for its config.json", name);
    if (own.status != TL_OK)
        status = tl_fail(error, TL_ERR_UNSUPPORTED, "%s: a config.json of such a model is not written: %s", name,
                         own.message);
    tl_json_free(json);
    free(again);
    return status;
}

static tl_status check(const saving *s, const char *prefix, tl_error *error) {
    const tl_model *m = s->model;
    char name[96];
    tl_quotable(m->name, strlen(m->name), name, sizeof name);
    if (!s->prefix)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: Hugging Face has no %s; decoders are written", name,
                       tl_family_name(m->family));
    if (m->not_computed[0])
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s has %.160s, which was not read whole and is not written", name,
                       m->not_computed);
    if (m->family == TL_FAMILY_LLAMA && (!m->gated || m->rope_interleaved))
        return tl_fail(
            error, TL_ERR_UNSUPPORTED,
            "%s has %s, which no config.json of Hugging Face can say: its tools would compute something else", name,
            m->gated ? "rotary positions on neighbouring pairs" : "an MLP without a gate");
    if (prefix && prefix[0] && (m->family != TL_FAMILY_GPT2 || strcmp(prefix, "transformer.") != 0))
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "names cannot start with \"%.40s\": \"transformer.\", of gpt2's alone, or nothing would work",
                       prefix);
    return check_config(m, name, error);
}

tl_status tl_weights_save(const char *folder, const tl_net *net, const tl_weights_options *options, tl_error *error) {
    tl_error own = {TL_OK, ""};
    const char *prefix = options ? options->prefix : NULL;
    saving s = {.folder = folder, .model = tl_net_model(net), .options = options, .error = &own};
    s.prefix = prefix && prefix[0] ? prefix : tl_weights_own_prefix(s.model);
    s.n_parameters = tl_net_parameters(net, &s.parameters);
    tl_ctx *ctx = s.n_parameters > 0 ? tl_tensor_ctx(s.parameters[0].tensor) : NULL;
    if (!ctx || tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta has no values to save");
    if (ctx->error.status != TL_OK)
        return tl_fail(error, ctx->error.status, "%s", ctx->error.message);
    tl_status status = check(&s, prefix, error);
    if (status == TL_OK && tl_net_lora(net))
        status = tl_fail(error, TL_ERR_UNSUPPORTED,
                         "a net with adapters over a base of %s is not written as a plain model%s",
                         tl_lora_base_name(tl_net_lora(net)->base),
                         tl_net_lora(net)->base == TL_LORA_PLAIN ? "; tl_net_merge_lora folds them in first" : "");
    if (status != TL_OK)
        return status;
    s.dtype = options && options->convert ? options->dtype : tl_tensor_dtype(s.parameters[0].tensor);
    if (!tl_dtype_is_float(s.dtype) || tl_dtype_bytes(s.dtype) < 2)
        return tl_fail(error, TL_ERR_DTYPE, "weights are written in f64, f32, bf16 or f16, not in %s",
                       tl_dtype_name(s.dtype));
    status = tl_transfer_weights(net, TL_PHASE_SAVE, save, &s);
    free(s.tensors);
    free(s.items);
    return status == TL_OK ? TL_OK
                           : tl_fail(error, status, "%s", own.status != TL_OK ? own.message : ctx->error.message);
}
