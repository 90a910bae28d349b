/* ckpt/weights_read.c: a published model's weights into a net, or those of a checkpoint. */
#include "ckpt/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/nearest.h"
#include "tally/ckpt.h"
#include "tally/lora.h"
#include "tensor/ctx.h"

enum { NAMED = 3 };

typedef struct loading {
    tl_net *net;
    const tl_model *model;
    const tl_parameter *parameters;
    int count;
    tl_weights_source source;
    tl_weights_report *report;
    char *buffer, *converted;
    int64_t buffer_bytes;
    bool checkpoint; /* of a plain run: "model.NAME", nothing transposed, states beside it */
    tl_error *error;
} loading;

static bool is_turned(const loading *l, const char *name) {
    return !l->checkpoint && tl_weights_is_transposed(l->model, name);
}

/* ---- names ---- */

static const char *with_prefix(const loading *l, const char *name, char whole[TL_WEIGHTS_NAME]) {
    /* The head stands beside the transformer, not in it. */
    bool head = strncmp(name, "lm_head.", 8) == 0 && !l->checkpoint;
    snprintf(whole, TL_WEIGHTS_NAME, "%s%s", head ? "" : l->report->prefix, name);
    return whole;
}

static void find_prefix(loading *l) {
    const tl_safetensors *file;
    char whole[TL_WEIGHTS_NAME];
    if (l->model->family != TL_FAMILY_GPT2 || l->count == 0)
        return;
    snprintf(whole, sizeof whole, "transformer.%s", l->parameters[0].name);
    if (tl_weights_source_find(&l->source, whole, &file))
        snprintf(l->report->prefix, sizeof l->report->prefix, "transformer.");
}

static void add_name(char *text, size_t size, int64_t *count, const char *name) {
    size_t used = strlen(text);
    char quoted[128];
    if ((*count)++ < NAMED)
        snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                 tl_quotable(name, strlen(name), quoted, sizeof quoted));
}

static void end_names(char *text, size_t size, int64_t count) {
    size_t used = strlen(text);
    if (count > NAMED)
        snprintf(text + used, size - used, " and %lld more", (long long)(count - NAMED));
}

static tl_status check_missing(loading *l) {
    char text[480] = "", whole[TL_WEIGHTS_NAME];
    int64_t missing = 0;
    const tl_safetensors *file;
    for (int i = 0; i < l->count; i++)
        if (!tl_weights_source_find(&l->source, with_prefix(l, l->parameters[i].name, whole), &file))
            add_name(text, sizeof text, &missing, whole);
    end_names(text, sizeof text, missing);
    if (!missing)
        return TL_OK;
    bool head = missing == 1 && strcmp(text, "lm_head.weight") == 0;
    return tl_fail(l->error, TL_ERR_SHAPE, "%s lacks %lld of this model's %d tensors: %s%s", l->source.name,
                   (long long)missing, l->count, text,
                   head ? "; without a head of its own a model has \"tie_word_embeddings\": true in its config.json"
                        : "");
}

static bool is_parameter(const loading *l, const char *name) {
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->parameters[i].name, name) == 0)
            return true;
    return false;
}

static const char *without_prefix(const loading *l, const char *name) {
    size_t n = strlen(l->report->prefix);
    return n > 0 && strncmp(name, l->report->prefix, n) == 0 ? name + n : name;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* What the files hold and the net has no place for. A tied head's own tensor is looked at afterwards. */
static tl_status check_unknown(loading *l) {
    char text[480] = "", ignored[480] = "";
    int64_t unknown = 0, buffers = 0;
    const char **names = malloc(((size_t)l->count + 1) * sizeof *names);
    if (!names)
        return tl_fail(l->error, TL_ERR_MEMORY, "%s: no memory for a table of tensors", l->source.name);
    for (int i = 0; i < l->count; i++)
        names[i] = l->parameters[i].name;
    qsort(names, (size_t)l->count, sizeof *names, by_text);
    for (int64_t i = 0; i < tl_weights_source_tensors(&l->source); i++) {
        const char *whole = tl_weights_source_name(&l->source, i), *name = without_prefix(l, whole);
        if (bsearch(&name, names, (size_t)l->count, sizeof *names, by_text) ||
            (l->model->tied && strcmp(whole, "lm_head.weight") == 0))
            continue;
        if (tl_weights_is_buffer(l->model, name))
            add_name(ignored, sizeof ignored, &buffers, whole);
        else
            add_name(text, sizeof text, &unknown, whole);
    }
    free(names);
    end_names(text, sizeof text, unknown);
    end_names(ignored, sizeof ignored, buffers);
    if (buffers)
        tl_weights_note(l->report, "ignored, being no parameters: %s", ignored);
    l->report->ignored += buffers;
    if (!unknown)
        return TL_OK;
    return tl_fail(l->error, TL_ERR_SHAPE, "%s holds %lld tensors that this %s has no place for: %s", l->source.name,
                   (long long)unknown, tl_family_name(l->model->family), text);
}

/* ---- one tensor ---- */

static tl_status check_tensor(const loading *l, const tl_safetensors_tensor *t, const tl_parameter *p) {
    const tl_shape *s = p->full ? p->full : tl_tensor_shape(p->tensor);
    bool turned = is_turned(l, p->name);
    bool same = t->ndim == s->ndim;
    char have[160] = "[", want[160] = "[", name[128];
    for (int64_t i = 0; i < t->ndim && i < TL_MAX_NDIM; i++)
        snprintf(have + strlen(have), sizeof have - strlen(have), "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    for (int i = 0; i < s->ndim; i++) {
        int64_t size = s->dim[turned ? s->ndim - 1 - i : i].size;
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%lld", i ? ", " : "", (long long)size);
        same = same && t->dim[i] == size;
    }
    tl_quotable(t->name, strlen(t->name), name, sizeof name);
    if (!same)
        return tl_fail(l->error, TL_ERR_SHAPE, "%s holds %s as %s%s]; this model has it as %s]", l->source.name, name,
                       have, t->ndim > TL_MAX_NDIM ? ", …" : "", want);
    if (t->dtype == TL_DTYPE_COUNT || !tl_dtype_is_float(t->dtype))
        return tl_fail(l->error, TL_ERR_DTYPE,
                       "%s holds %s in %s, which is not read as weights; F64, F32, F16, BF16, F8_E4M3 and F8_E5M2 are",
                       l->source.name, name, t->format);
    return TL_OK;
}

/* Rows of the file that the buffers take at a time. */
static tl_status make_room(loading *l, int64_t row_bytes, int64_t *rows) {
    if (row_bytes > l->buffer_bytes) {
        free(l->buffer);
        free(l->converted);
        l->buffer_bytes = row_bytes > TL_WEIGHTS_BUFFER ? row_bytes : TL_WEIGHTS_BUFFER;
        l->buffer = malloc((size_t)l->buffer_bytes);
        l->converted = malloc((size_t)l->buffer_bytes);
        if (!l->buffer || !l->converted)
            return tl_fail(l->error, TL_ERR_MEMORY, "no memory for a row of %lld bytes", (long long)row_bytes);
    }
    *rows = l->buffer_bytes / row_bytes;
    return TL_OK;
}

/* Through the buffers: converted, and turned where the file has [in, out]. */
static tl_status read_converted(loading *l, const tl_safetensors *file, const tl_safetensors_tensor *t,
                                const tl_parameter *p) {
    tl_dtype to = tl_tensor_dtype(p->tensor);
    bool turned = is_turned(l, p->name);
    int64_t columns = turned ? t->dim[1] : 1, all = turned ? t->dim[0] : t->count, rows = 0;
    int from_bytes = tl_dtype_bytes(t->dtype), to_bytes = tl_dtype_bytes(to);
    int64_t widest = columns * (from_bytes > to_bytes ? from_bytes : to_bytes);
    char *data = tl_tensor_data(p->tensor);
    if (t->count == 0)
        return TL_OK;
    tl_status status = make_room(l, widest, &rows);
    for (int64_t row = 0; row < all && status == TL_OK; row += rows) {
        int64_t n = all - row < rows ? all - row : rows;
        status =
            tl_safetensors_read(file, t, row * columns * from_bytes, l->buffer, n * columns * from_bytes, l->error);
        char *out = turned ? l->converted : data + row * to_bytes;
        if (status == TL_OK && !tl_weights_convert(l->buffer, t->dtype, out, to, n * columns)) {
            char name[128];
            status = tl_fail(l->error, TL_ERR_DTYPE,
                             "%s: %s holds a value that %s cannot; a net of f32 or bf16 would take it", l->source.name,
                             tl_quotable(t->name, strlen(t->name), name, sizeof name), tl_dtype_name(to));
        }
        if (status == TL_OK && turned)
            tl_weights_scatter(l->converted, n, columns, data + row * to_bytes, all, to_bytes);
    }
    return status;
}

static tl_status read_one(loading *l, const tl_parameter *p) {
    char whole[TL_WEIGHTS_NAME];
    const tl_safetensors *file;
    const tl_safetensors_tensor *t = tl_weights_source_find(&l->source, with_prefix(l, p->name, whole), &file);
    tl_dtype dtype = tl_tensor_dtype(p->tensor);
    bool turned = is_turned(l, p->name);
    tl_status status;
    if (t->dtype == dtype && !turned)
        status = tl_safetensors_read(file, t, 0, tl_tensor_data(p->tensor), t->bytes, l->error);
    else
        status = read_converted(l, file, t, p);
    p->tensor->storage->version++;
    l->report->tensors++;
    l->report->bytes += t->bytes;
    l->report->formats[t->dtype]++;
    l->report->converted += t->dtype != dtype;
    l->report->transposed += turned;
    return status;
}

/* A quantised parameter's values come in full, one parameter at a time, and are quantised where they lie. */
static tl_status read_quantized(loading *l, int index) {
    tl_ctx *ctx = tl_tensor_ctx(l->parameters[index].tensor);
    tl_parameter full = l->parameters[index];
    tl_scope_begin(ctx);
    full.tensor = tl_empty(ctx, tl_tensor_dtype(l->parameters[0].tensor), *full.full, TL_WORK);
    tl_status status = full.tensor ? read_one(l, &full) : tl_ctx_status(ctx);
    if (status == TL_OK)
        status = tl_net_requantize(l->net, index, full.tensor);
    tl_scope_end(ctx);
    if (tl_ctx_status(ctx) != TL_OK)
        return tl_fail(l->error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    return status;
}

/* A tied model's file may hold the head all the same; then it must be the embedding. */
static tl_status check_tied(loading *l) {
    const tl_safetensors *file, *table_file;
    char whole[TL_WEIGHTS_NAME];
    const char *table_name = l->model->family == TL_FAMILY_GPT2 ? "wte.weight" : "model.embed_tokens.weight";
    const tl_safetensors_tensor *head = tl_weights_source_find(&l->source, "lm_head.weight", &file);
    const tl_safetensors_tensor *table =
        tl_weights_source_find(&l->source, with_prefix(l, table_name, whole), &table_file);
    int64_t rows = 0;
    if (!l->model->tied || !head || !table || is_parameter(l, "lm_head.weight"))
        return TL_OK;
    tl_status status = make_room(l, 1, &rows);
    bool same = head->bytes == table->bytes && head->dtype == table->dtype;
    for (int64_t at = 0; at < head->bytes && same && status == TL_OK; at += rows) {
        int64_t n = head->bytes - at < rows ? head->bytes - at : rows;
        status = tl_safetensors_read(file, head, at, l->buffer, n, l->error);
        if (status == TL_OK)
            status = tl_safetensors_read(table_file, table, at, l->converted, n, l->error);
        same = status == TL_OK && memcmp(l->buffer, l->converted, (size_t)n) == 0;
    }
    if (status != TL_OK)
        return status;
    if (!same)
        return tl_fail(
            l->error, TL_ERR_FORMAT,
            "%s holds a lm_head.weight of its own, while the model ties its head to %s: its config.json should "
            "say \"tie_word_embeddings\": false",
            l->source.name, whole);
    l->report->ignored++;
    tl_weights_note(l->report, "ignored lm_head.weight, which repeats %s", whole);
    return TL_OK;
}

/* ---- all ---- */

static void note_formats(const loading *l) {
    tl_weights_report *r = l->report;
    if (!r->converted)
        return;
    char text[160] = "";
    tl_dtype to = tl_tensor_dtype(l->parameters[0].tensor);
    for (int d = 0; d < TL_DTYPE_COUNT; d++)
        if (r->formats[d] && d != (int)to)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld tensors of %s", text[0] ? " and " : "",
                     (long long)r->formats[d], tl_dtype_name((tl_dtype)d));
    tl_weights_note(r, "converted to %s: %s", tl_dtype_name(to), text);
}

static tl_status load(loading *l) {
    tl_status status = TL_OK;
    if (l->checkpoint)
        snprintf(l->report->prefix, sizeof l->report->prefix, "model.");
    else
        find_prefix(l);
    status = check_missing(l);
    if (status == TL_OK && !l->checkpoint)
        status = check_unknown(l);
    for (int i = 0; i < l->count && status == TL_OK; i++) {
        const tl_safetensors *file;
        char whole[TL_WEIGHTS_NAME];
        status =
            check_tensor(l, tl_weights_source_find(&l->source, with_prefix(l, l->parameters[i].name, whole), &file),
                         &l->parameters[i]);
    }
    if (status == TL_OK && !l->checkpoint)
        status = check_tied(l);
    for (int i = 0; i < l->count && status == TL_OK; i++)
        status = l->parameters[i].full ? read_quantized(l, i) : read_one(l, &l->parameters[i]);
    if (status == TL_OK)
        note_formats(l);
    return status;
}

/* A checkpoint of tally, or the folder of a run: the same names as the net's, nothing to convert. */
static bool is_checkpoint(const char *path, char file[TL_CKPT_PATH]) {
    struct stat st;
    char folder[TL_CKPT_PATH];
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(folder, sizeof folder, "%.4000s/checkpoints", path);
        return tl_ckpt_folder_latest(folder, file, NULL) == TL_OK || tl_ckpt_folder_latest(path, file, NULL) == TL_OK;
    }
    tl_safetensors *f = tl_safetensors_open(path, NULL);
    bool is = f && tl_ckpt_is(f);
    tl_safetensors_close(f);
    snprintf(file, TL_CKPT_PATH, "%s", path);
    return is;
}

static tl_status load_checkpoint(const char *path, tl_net *net, tl_weights_report *report, tl_error *error) {
    tl_ckpt_state state;
    const tl_parameter *list;
    tl_ckpt_contents contents = {.net = net};
    int count = tl_net_parameters(net, &list);
    contents.ctx = count > 0 ? tl_tensor_ctx(list[0].tensor) : NULL;
    tl_status status = tl_ckpt_load(path, &contents, &state, error);
    report->files = 1;
    for (int i = 0; i < count && status == TL_OK; i++) {
        report->tensors++;
        report->bytes += tl_tensor_storage_bytes(list[i].tensor);
        report->formats[tl_tensor_dtype(list[i].tensor)]++;
    }
    if (status == TL_OK)
        tl_weights_note(report, "a checkpoint of tally at step %lld", (long long)state.step);
    return status;
}

/* Whether a checkpoint is of a run that trained every parameter, to start adapters from. */
static tl_status is_plain(const char *file, bool *plain, tl_error *error) {
    tl_ckpt *c = tl_ckpt_open(file, error);
    if (!c)
        return error->status;
    const tl_safetensors *f = tl_ckpt_file(c);
    *plain = true;
    for (int64_t i = 0; i < tl_safetensors_count(f) && *plain; i++)
        *plain = !strstr(tl_safetensors_at(f, i)->name, ".lora_A.");
    tl_status status = *plain ? tl_ckpt_verify(c, error) : TL_OK;
    tl_ckpt_close(c);
    return status;
}

tl_status tl_weights_load(const char *path, tl_net *net, tl_weights_report *report, tl_error *error) {
    tl_weights_report own_report = {0};
    tl_error own = {TL_OK, ""};
    char file[TL_CKPT_PATH];
    loading l = {.net = net, .model = tl_net_model(net), .report = report ? report : &own_report, .error = &own};
    memset(l.report, 0, sizeof *l.report);
    l.count = tl_net_parameters(net, &l.parameters);
    while (l.count > 0 && l.parameters[l.count - 1].adapter) /* no published file has them, and they stand at the end */
        l.count--;
    tl_ctx *ctx = l.count > 0 ? tl_tensor_ctx(l.parameters[0].tensor) : NULL;
    if (!ctx || tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta takes no values");
    if (l.model->family != TL_FAMILY_GPT2 && l.model->family != TL_FAMILY_LLAMA)
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s has no published weights; gpt2 and llama have",
                       tl_family_name(l.model->family));
    bool ours = is_checkpoint(path, file);
    tl_status status = ours && tl_net_lora(net) ? is_plain(file, &l.checkpoint, &own) : TL_OK;
    if (status == TL_OK && ours && !l.checkpoint)
        return load_checkpoint(file, net, l.report, error);
    if (status == TL_OK)
        status = tl_weights_source_open(&l.source, ours ? file : path, l.report, &own);
    if (status != TL_OK)
        return tl_fail(error, status, "%s", own.message);
    tl_phase before = tl_phase_get(ctx);
    tl_phase_set(ctx, TL_PHASE_LOAD);
    l.report->files = l.source.count;
    status = load(&l);
    tl_phase_set(ctx, before);
    tl_weights_source_close(&l.source);
    free(l.buffer);
    free(l.converted);
    return status == TL_OK ? TL_OK : tl_fail(error, status, "%s", own.message);
}
