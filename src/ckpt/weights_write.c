/* ckpt/weights_write.c: a net's weights as Hugging Face's tools read them. */
#include "ckpt/weights.h"
#include "tally/lora.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nearest.h"
#include "data/replace.h"
#include "tally/config.h"
#include "tensor/ctx.h"

typedef struct saving {
    const char *folder, *prefix;
    const tl_model *model;
    const tl_parameter *parameters;
    int count;
    char (*names)[TL_WEIGHTS_NAME]; /* in the file */
    tl_safetensors_item *items;
    int *shard; /* of each parameter */
    int shards;
    tl_dtype dtype;
    char *buffer, *converted; /* each takes a row of any of them */
    int64_t buffer_bytes;
    tl_error *error;
} saving;

static tl_status no_memory(const saving *s) {
    return tl_fail(s->error, TL_ERR_MEMORY, "no memory to write %d tensors", s->count);
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

static int64_t bytes_of(const saving *s, int i) {
    const tl_tensor *t = s->parameters[i].tensor;
    return tl_tensor_count(t) * tl_dtype_bytes(s->dtype);
}

static tl_status describe(saving *s, int64_t shard_bytes) {
    int64_t used = 0;
    s->names = calloc((size_t)s->count + 1, sizeof *s->names);
    s->items = calloc((size_t)s->count + 1, sizeof *s->items);
    s->shard = calloc((size_t)s->count + 1, sizeof *s->shard);
    if (!s->names || !s->items || !s->shard)
        return no_memory(s);
    s->buffer_bytes = TL_WEIGHTS_BUFFER;
    for (int i = 0; i < s->count; i++) {
        const tl_parameter *p = &s->parameters[i];
        const tl_shape *shape = tl_tensor_shape(p->tensor);
        bool head = strncmp(p->name, "lm_head.", 8) == 0, turned = tl_weights_is_transposed(s->model, p->name);
        snprintf(s->names[i], TL_WEIGHTS_NAME, "%s%s", head ? "" : s->prefix, p->name);
        s->items[i] = (tl_safetensors_item){.name = s->names[i], .dtype = s->dtype, .ndim = shape->ndim};
        for (int d = 0; d < shape->ndim; d++)
            s->items[i].dim[d] = shape->dim[turned ? shape->ndim - 1 - d : d].size;
        if (shard_bytes > 0 && i > 0 && used > shard_bytes - bytes_of(s, i)) {
            s->shards++;
            used = 0;
        }
        used += bytes_of(s, i);
        s->shard[i] = s->shards;
        int64_t row = turned ? s->items[i].dim[1] * 8 : 0; /* 8: the widest format */
        if (row > s->buffer_bytes)
            s->buffer_bytes = row;
    }
    s->shards++;
    s->buffer = malloc((size_t)s->buffer_bytes);
    s->converted = malloc((size_t)s->buffer_bytes);
    return s->buffer && s->converted ? TL_OK : no_memory(s);
}

static void file_name(const saving *s, int shard, char name[64]) {
    if (s->shards == 1)
        snprintf(name, 64, TL_WEIGHTS_FILE);
    else
        snprintf(name, 64, "model-%05d-of-%05d.safetensors", shard + 1, s->shards);
}

/* ---- values ---- */

static tl_status write_tensor(const saving *s, tl_safetensors_writer *w, int i) {
    const tl_tensor *t = s->parameters[i].tensor;
    tl_dtype from = tl_tensor_dtype(t);
    const char *data = tl_tensor_data((tl_tensor *)(uintptr_t)t), *piece;
    int width = tl_dtype_bytes(from), written = tl_dtype_bytes(s->dtype);
    bool turned = tl_weights_is_transposed(s->model, s->parameters[i].name);
    if (!turned && from == s->dtype)
        return tl_safetensors_write(w, data, bytes_of(s, i), s->error);
    int64_t all = turned ? s->items[i].dim[0] : tl_tensor_count(t), columns = turned ? s->items[i].dim[1] : 1,
            rows = s->buffer_bytes / (columns * 8);
    tl_status status = TL_OK;
    for (int64_t row = 0; row < all && status == TL_OK; row += rows) {
        int64_t n = all - row < rows ? all - row : rows;
        piece = data + row * width;
        if (turned) {
            tl_weights_gather(piece, all, s->buffer, n, columns, width);
            piece = s->buffer;
        }
        if (!tl_weights_convert(piece, from, s->converted, s->dtype, n * columns))
            return tl_fail(s->error, TL_ERR_DTYPE, "%s holds a value that %s cannot; f32 or bf16 would take it",
                           s->items[i].name, tl_dtype_name(s->dtype));
        status = tl_safetensors_write(w, s->converted, n * columns * written, s->error);
    }
    return status;
}

static tl_status write_shard(const saving *s, int shard) {
    /* transformers reads a file only where it says which framework's layout it has: theirs. */
    static const tl_safetensors_text format = {"format", "pt"};
    char path[TL_WEIGHTS_PATH], name[64];
    int first = 0, last;
    file_name(s, shard, name);
    tl_status status = path_of(s, name, path);
    if (status != TL_OK)
        return status;
    while (s->shard[first] != shard)
        first++;
    for (last = first; last < s->count && s->shard[last] == shard;)
        last++;
    tl_safetensors_writer *w = tl_safetensors_begin(path, s->items + first, last - first, &format, 1, s->error);
    if (!w)
        return s->error->status;
    for (int i = first; i < last && status == TL_OK; i++)
        status = write_tensor(s, w, i);
    return tl_safetensors_end(w, status, s->error);
}

static tl_status write_index(const saving *s) {
    tl_json *json = tl_json_new(NULL, 2);
    char name[64];
    int64_t total = 0;
    if (!json)
        return no_memory(s);
    for (int i = 0; i < s->count; i++)
        total += bytes_of(s, i);
    tl_json_object(json);
    tl_json_key(json, "metadata");
    tl_json_object(json);
    tl_json_put_integer(json, "total_size", total);
    tl_json_end(json);
    tl_json_key(json, "weight_map");
    tl_json_object(json);
    for (int i = 0; i < s->count; i++) {
        file_name(s, s->shard[i], name);
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

static tl_status save(saving *s, const tl_weights_options *options) {
    tl_status status = make_folder(s);
    if (status == TL_OK)
        status = describe(s, options ? options->shard_bytes : 0);
    for (int i = 0; i < s->shards && status == TL_OK; i++)
        status = write_shard(s, i);
    if (status == TL_OK && s->shards > 1)
        status = write_index(s);
    if (status == TL_OK)
        status = write_config(s);
    return status == TL_OK ? drop_other(s) : status;
}

static tl_status check(const tl_model *m, const char *prefix, tl_error *error) {
    char name[96];
    tl_quotable(m->name, strlen(m->name), name, sizeof name);
    if (m->family != TL_FAMILY_GPT2 && m->family != TL_FAMILY_LLAMA)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s: Hugging Face has no %s; gpt2 and llama are written", name,
                       tl_family_name(m->family));
    if (m->family == TL_FAMILY_LLAMA && (!m->gated || m->rope_interleaved))
        return tl_fail(
            error, TL_ERR_UNSUPPORTED,
            "%s has %s, which no config.json of Hugging Face can say: its tools would compute something else", name,
            m->gated ? "rotary positions on neighbouring pairs" : "an MLP without a gate");
    if (prefix[0] && (m->family != TL_FAMILY_GPT2 || strcmp(prefix, "transformer.") != 0))
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "names cannot start with \"%.40s\": \"transformer.\", of gpt2's alone, or nothing would work",
                       prefix);
    return TL_OK;
}

tl_status tl_weights_save(const char *folder, const tl_net *net, const tl_weights_options *options, tl_error *error) {
    tl_error own = {TL_OK, ""};
    saving s = {.folder = folder,
                .prefix = options && options->prefix ? options->prefix : "",
                .model = tl_net_model(net),
                .error = &own};
    s.count = tl_net_parameters(net, &s.parameters);
    tl_ctx *ctx = s.count > 0 ? tl_tensor_ctx(s.parameters[0].tensor) : NULL;
    if (!ctx || tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta has no values to save");
    if (ctx->error.status != TL_OK)
        return tl_fail(error, ctx->error.status, "%s", ctx->error.message);
    tl_status status = check(s.model, s.prefix, error);
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
    tl_phase before = tl_phase_get(ctx);
    tl_phase_set(ctx, TL_PHASE_SAVE);
    status = save(&s, options);
    tl_phase_set(ctx, before);
    free(s.names);
    free(s.items);
    free(s.shard);
    free(s.buffer);
    free(s.converted);
    return status == TL_OK ? TL_OK : tl_fail(error, status, "%s", own.message);
}
