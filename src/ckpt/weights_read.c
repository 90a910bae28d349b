/* ckpt/weights_read.c: a published model's weights into a net, or those of a checkpoint. */
#include "ckpt/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/nearest.h"
#include "nn/names.h"
#include "optim/transfer.h"
#include "tally/ckpt.h"
#include "tally/lora.h"
#include "tensor/ctx.h"

enum { NAMED = 3, KINDS = TL_WEIGHTS_QUANTIZED + 1 };

/* Some names of many, for a message. */
typedef struct names {
    char text[480];
    int64_t count;
} names;

typedef struct loading {
    tl_net *net;
    const tl_model *model;
    const tl_parameter *parameters;
    int count;
    int64_t parts;      /* published tensors that the net is made of */
    const char *prefix; /* of the file's names */
    tl_weights_source source;
    bool *used; /* of the source's tensors */
    tl_weights_report *report;
    names missing;
    int64_t scaled, mx; /* tensors of fp8 with scales, and of MXFP4 */
    char *block;        /* of tl_transfer_weights: the file's bytes in its first half, converted values in the other */
    int64_t half;
    bool checkpoint; /* of a plain run: "model.NAME", each parameter whole, states beside it */
    tl_error *error;
} loading;

typedef tl_status visit_part(loading *l, const tl_parameter *p, const tl_weights_part *part);

static tl_status parts_of(loading *l, const tl_parameter *p, visit_part *visit) {
    int64_t parts = l->checkpoint ? 1 : tl_published_parts(l->model, p->name);
    tl_status status = TL_OK;
    for (int64_t k = 0; k < parts && status == TL_OK; k++) {
        tl_weights_part part;
        status = l->checkpoint ? tl_weights_whole_part(p, &part, l->error)
                               : tl_weights_part_of(l->model, p, k, &part, l->error);
        if (status == TL_OK)
            status = visit(l, p, &part);
    }
    return status;
}

static tl_status each_part(loading *l, visit_part *visit) {
    tl_status status = TL_OK;
    for (int i = 0; i < l->count && status == TL_OK; i++)
        status = parts_of(l, &l->parameters[i], visit);
    return status;
}

/* ---- names ---- */

static const char *name_of(const loading *l, const tl_weights_part *part, char whole[TL_WEIGHTS_NAME]) {
    if (!l->checkpoint)
        return tl_weights_whole_name(l->model, l->prefix, part->published.name, whole);
    snprintf(whole, TL_WEIGHTS_NAME, "model.%s", part->published.name);
    return whole;
}

static const tl_safetensors_tensor *find(const loading *l, const tl_weights_part *part, const tl_safetensors **file) {
    char whole[TL_WEIGHTS_NAME], blocks[TL_WEIGHTS_NAME];
    const tl_safetensors_tensor *t = tl_weights_source_find(&l->source, name_of(l, part, whole), file);
    if (t || l->checkpoint || !tl_weights_mx_blocks(whole, blocks))
        return t;
    t = tl_weights_source_find(&l->source, blocks, file);
    return t && tl_weights_is_mx(t) ? t : NULL;
}

/* DeepSeek's fp8: a scale for each block of 128 × 128, beside the tensor; MXFP4's scales. NULL: it has none. */
static const tl_safetensors_tensor *find_scale(const loading *l, const tl_safetensors_tensor *t,
                                               const tl_safetensors **file) {
    char name[TL_WEIGHTS_NAME];
    if (tl_weights_is_mx(t))
        return tl_weights_mx_scales(t->name, name) ? tl_weights_source_find(&l->source, name, file) : NULL;
    if (t->dtype != TL_F8E4M3 || snprintf(name, sizeof name, "%s_scale_inv", t->name) >= (int)sizeof name)
        return NULL;
    return tl_weights_source_find(&l->source, name, file);
}

/* Where the token table is tells what stands before all names: a file may be of the decoder alone, or hold it as a part of a
 * model of text and pictures. */
static void find_prefix(loading *l) {
    static const char *const others[] = {"",
                                         "transformer.",
                                         "model.",
                                         "decoder.",
                                         "model.decoder.",
                                         "language_model.model.",
                                         "model.language_model.",
                                         "language_model.",
                                         TL_WEIGHTS_SEQUENTIAL};
    char whole[TL_WEIGHTS_NAME];
    const char *own = tl_weights_own_prefix(l->model);
    l->prefix = own;
    if (tl_weights_source_index(&l->source, tl_weights_table_name(l->model, own, whole)) >= 0)
        return;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (tl_weights_source_index(&l->source, tl_weights_table_name(l->model, others[i], whole)) >= 0) {
            l->prefix = others[i];
            snprintf(l->report->prefix, sizeof l->report->prefix, "%s", others[i]);
            if (own[0])
                tl_weights_note(l->report, "names start with \"%s\" instead of \"%s\"", others[i], own);
            return;
        }
}

static void add_name(names *n, const char *name) {
    size_t used = strlen(n->text);
    char quoted[128];
    if (n->count++ < NAMED)
        snprintf(n->text + used, sizeof n->text - used, "%s%s", used ? ", " : "",
                 tl_quotable(name, strlen(name), quoted, sizeof quoted));
}

static const char *end_names(names *n) {
    size_t used = strlen(n->text);
    if (n->count > NAMED)
        snprintf(n->text + used, sizeof n->text - used, " and %lld more", (long long)(n->count - NAMED));
    return n->text;
}

static tl_status mark_part(loading *l, const tl_parameter *p, const tl_weights_part *part) {
    char whole[TL_WEIGHTS_NAME], scales[TL_WEIGHTS_NAME];
    const tl_safetensors *file;
    const tl_safetensors_tensor *t = find(l, part, &file), *scale = t ? find_scale(l, t, &file) : NULL;
    (void)p;
    l->parts++;
    if (!t) {
        add_name(&l->missing, name_of(l, part, whole));
        return TL_OK;
    }
    l->used[tl_weights_source_index(&l->source, t->name)] = true;
    if (scale)
        l->used[tl_weights_source_index(&l->source, scale->name)] = true;
    else if (tl_weights_is_mx(t) && tl_weights_mx_scales(t->name, scales))
        add_name(&l->missing, scales);
    return TL_OK;
}

static tl_status fail_missing(loading *l) {
    const char *hint = "";
    if (!l->missing.count)
        return TL_OK;
    if (l->missing.count == 1 && strcmp(l->missing.text, "lm_head.weight") == 0)
        hint = "; without a head of its own a model has \"tie_word_embeddings\": true in its config.json";
    else if (tl_weights_source_index(&l->source, "transformer.embd.wte.weight") >= 0)
        hint = "; these are the names of Phi's first form: a config.json of model_type phi-msft would work";
    return tl_fail(l->error, TL_ERR_SHAPE, "%s lacks %lld of this model's %lld tensors: %s%s", l->source.name,
                   (long long)l->missing.count, (long long)l->parts, end_names(&l->missing), hint);
}

/* Multi-token prediction is known by what only it has: a layer of the decoder that the config.json left out must not pass. */
static bool predicts(const loading *l, const char *whole) {
    char name[TL_WEIGHTS_NAME];
    const char *layer = strchr(whole + strlen(l->prefix), '.'), *end = layer ? strchr(layer + 1, '.') : NULL;
    return end && snprintf(name, sizeof name, "%.*s.eh_proj.weight", (int)(end - whole), whole) < (int)sizeof name &&
           tl_weights_source_index(&l->source, name) >= 0;
}

static void note_ignored(loading *l, names kinds[KINDS]) {
    static const char *const what[KINDS] = {[TL_WEIGHTS_OTHER_PART] = "of other parts of the model",
                                            [TL_WEIGHTS_PREDICTION] = "of multi-token prediction",
                                            [TL_WEIGHTS_SHARED] =
                                                "of layers that read the keys and values of earlier ones"};
    if (kinds[TL_WEIGHTS_BUFFER].count)
        tl_weights_note(l->report, "ignored, being no parameters: %s", end_names(&kinds[TL_WEIGHTS_BUFFER]));
    l->report->ignored += kinds[TL_WEIGHTS_BUFFER].count;
    for (int k = 0; k < KINDS; k++)
        if (what[k] && kinds[k].count) {
            tl_weights_note(l->report, "ignored %lld tensors %s: %s", (long long)kinds[k].count, what[k],
                            end_names(&kinds[k]));
            l->report->ignored += kinds[k].count;
        }
}

/* What the files hold and no parameter is made of. A tied head's own tensor is looked at afterwards. */
static tl_status check_others(loading *l) {
    names kinds[KINDS] = {0};
    char head[TL_WEIGHTS_NAME];
    const char *format = "";
    tl_weights_head_name(l->model, l->prefix, head);
    for (int64_t i = 0; i < tl_weights_source_tensors(&l->source); i++) {
        const char *whole = tl_weights_source_name(&l->source, i), *its = "";
        if (l->used[i] || (l->model->tied && strcmp(whole, head) == 0))
            continue;
        tl_weights_kind kind = tl_weights_kind_of(l->model, l->prefix, whole, &its);
        if (kind == TL_WEIGHTS_PREDICTION && !predicts(l, whole))
            kind = TL_WEIGHTS_UNKNOWN;
        if (kind == TL_WEIGHTS_FP8_SCALE) /* of no tensor in fp8 */
            kind = TL_WEIGHTS_UNKNOWN;
        if (kind == TL_WEIGHTS_QUANTIZED && !format[0])
            format = its;
        add_name(&kinds[kind], whole);
    }
    /* What is missing is often there, in such a format. */
    if (kinds[TL_WEIGHTS_QUANTIZED].count)
        return tl_fail(l->error, TL_ERR_UNSUPPORTED,
                       "%s holds weights in %s, which is not read (%s): the model's files in bf16 or f16, in fp8 with "
                       "weight_scale_inv, or with gpt_oss's experts in MXFP4, would work",
                       l->source.name, format, end_names(&kinds[TL_WEIGHTS_QUANTIZED]));
    tl_status status = fail_missing(l);
    if (status != TL_OK)
        return status;
    note_ignored(l, kinds);
    if (!kinds[TL_WEIGHTS_UNKNOWN].count)
        return TL_OK;
    return tl_fail(l->error, TL_ERR_SHAPE, "%s holds %lld tensors that this %s has no place for: %s", l->source.name,
                   (long long)kinds[TL_WEIGHTS_UNKNOWN].count, tl_family_name(l->model->family),
                   end_names(&kinds[TL_WEIGHTS_UNKNOWN]));
}

/* ---- one tensor ---- */

static tl_status check_scale(const loading *l, const tl_safetensors_tensor *t, bool turned) {
    const tl_safetensors *file;
    const tl_safetensors_tensor *scale = find_scale(l, t, &file);
    char name[128];
    if (!scale)
        return TL_OK;
    tl_quotable(scale->name, strlen(scale->name), name, sizeof name);
    if (scale->dtype != TL_F32 && scale->dtype != TL_BF16 && scale->dtype != TL_F16)
        return tl_fail(l->error, TL_ERR_DTYPE, "%s holds %s in %s; scales in F32, BF16 and F16 are read",
                       l->source.name, name, scale->format);
    bool fits = t->ndim == 2 && scale->ndim == 2 && !turned;
    for (int d = 0; d < 2 && fits; d++)
        fits = scale->dim[d] == (t->dim[d] + TL_WEIGHTS_FP8_BLOCK - 1) / TL_WEIGHTS_FP8_BLOCK;
    if (!fits)
        return tl_fail(l->error, TL_ERR_SHAPE, "%s holds %s, which does not scale blocks of %d × %d: no other are read",
                       l->source.name, name, TL_WEIGHTS_FP8_BLOCK, TL_WEIGHTS_FP8_BLOCK);
    return TL_OK;
}

static tl_status check_mx(const loading *l, const tl_weights_part *part, const tl_safetensors_tensor *t) {
    const tl_safetensors *file;
    char name[128];
    if (tl_names_of(l->model)->expert_gate_up && !tl_names_of(l->model)->fused_rows &&
        tl_weights_mx_fits(part, t, find_scale(l, t, &file)))
        return TL_OK;
    tl_quotable(t->name, strlen(t->name), name, sizeof name);
    return tl_fail(l->error, TL_ERR_SHAPE,
                   "%s holds %s, which with its scales is not MXFP4 of a parameter [experts, in, out] of this model: "
                   "blocks [experts, out, in/%d, %d] and scales [experts, out, in/%d] in U8 would be",
                   l->source.name, name, TL_WEIGHTS_MX_BLOCK, TL_WEIGHTS_MX_BLOCK / 2, TL_WEIGHTS_MX_BLOCK);
}

static tl_status check_part(loading *l, const tl_parameter *p, const tl_weights_part *part) {
    const tl_safetensors *file;
    const tl_safetensors_tensor *t = find(l, part, &file);
    bool same = t->ndim == part->ndim;
    char have[160] = "[", want[160] = "[", name[128];
    (void)p;
    if (tl_weights_is_mx(t))
        return check_mx(l, part, t);
    for (int64_t i = 0; i < t->ndim && i < TL_MAX_NDIM; i++)
        snprintf(have + strlen(have), sizeof have - strlen(have), "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    for (int i = 0; i < part->ndim; i++) {
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%lld", i ? ", " : "", (long long)part->dim[i]);
        same = same && t->dim[i] == part->dim[i];
    }
    tl_quotable(t->name, strlen(t->name), name, sizeof name);
    if (!same)
        return tl_fail(l->error, TL_ERR_SHAPE, "%s holds %s as %s%s]; this model has it as %s]", l->source.name, name,
                       have, t->ndim > TL_MAX_NDIM ? ", …" : "", want);
    if (t->dtype == TL_DTYPE_COUNT || !tl_dtype_is_float(t->dtype))
        return tl_fail(l->error, TL_ERR_DTYPE,
                       "%s holds %s in %s, which is not read as weights; F64, F32, F16, BF16, F8_E4M3 and F8_E5M2 are",
                       l->source.name, name, t->format);
    return check_scale(l, t, part->published.transposed);
}

static tl_status read_part(loading *l, const tl_parameter *p, const tl_weights_part *part) {
    tl_weights_passage way = {.from = l->source.name,
                              .to = tl_tensor_dtype(p->tensor),
                              .turned = part->published.transposed,
                              .block = l->block,
                              .half = l->half};
    const tl_safetensors_tensor *t = way.tensor = find(l, part, &way.file);
    way.scale = find_scale(l, t, &way.scale_file);
    way.data = (char *)tl_tensor_data(p->tensor) + part->first * tl_dtype_bytes(way.to);
    tl_status status = tl_weights_read_tensor(&way, l->error);
    p->tensor->storage->version++;
    l->report->tensors++;
    l->report->bytes += t->bytes + (way.scale ? way.scale->bytes : 0);
    l->report->formats[t->dtype]++;
    l->report->converted += t->dtype != way.to;
    l->report->transposed += way.turned || tl_weights_is_mx(t);
    l->mx += tl_weights_is_mx(t);
    l->scaled += way.scale != NULL && !tl_weights_is_mx(t);
    return status;
}

typedef struct quantized {
    loading *loading;
    int index;
} quantized;

static tl_status read_full(void *self, tl_tensor *tensor) {
    const quantized *q = self;
    tl_parameter full = q->loading->parameters[q->index];
    full.tensor = tensor;
    return parts_of(q->loading, &full, read_part);
}

static tl_status read_quantized(loading *l, int index) {
    quantized q = {l, index};
    tl_ctx *ctx = tl_tensor_ctx(l->parameters[index].tensor);
    tl_status status = tl_transfer_quantized(l->net, index, read_full, &q);
    if (tl_ctx_status(ctx) != TL_OK)
        return tl_fail(l->error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    return status;
}

static tl_status read_all(loading *l) {
    tl_status status = TL_OK;
    for (int i = 0; i < l->count && status == TL_OK; i++)
        status = l->parameters[i].full ? read_quantized(l, i) : parts_of(l, &l->parameters[i], read_part);
    return status;
}

/* A tied model's file may hold the head all the same; then it must be the embedding. */
static tl_status check_tied(loading *l) {
    const tl_safetensors *file, *table_file;
    char whole[TL_WEIGHTS_NAME], head_name[TL_WEIGHTS_NAME];
    const tl_safetensors_tensor *head = tl_weights_source_find(
                                    &l->source, tl_weights_head_name(l->model, l->prefix, head_name), &file),
                                *table = tl_weights_source_find(
                                    &l->source, tl_weights_table_name(l->model, l->prefix, whole), &table_file);
    if (!l->model->tied || !head || !table || l->used[tl_weights_source_index(&l->source, head_name)])
        return TL_OK;
    tl_status status = TL_OK;
    bool same = head->bytes == table->bytes && head->dtype == table->dtype;
    for (int64_t at = 0; at < head->bytes && same && status == TL_OK; at += l->half) {
        int64_t n = head->bytes - at < l->half ? head->bytes - at : l->half;
        status = tl_safetensors_read(file, head, at, l->block, n, l->error);
        if (status == TL_OK)
            status = tl_safetensors_read(table_file, table, at, l->block + l->half, n, l->error);
        same = status == TL_OK && memcmp(l->block, l->block + l->half, (size_t)n) == 0;
    }
    if (status != TL_OK)
        return status;
    if (!same)
        return tl_fail(l->error, TL_ERR_FORMAT,
                       "%s holds a %s of its own, while the model ties its head to %s: its config.json should say "
                       "\"tie_word_embeddings\": false",
                       l->source.name, head_name, whole);
    l->report->ignored++;
    tl_weights_note(l->report, "ignored %s, which repeats %s", head_name, whole);
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
                     (long long)r->formats[d], d == TL_U8 ? "MXFP4" : tl_dtype_name((tl_dtype)d));
    tl_weights_note(r, "converted to %s: %s", tl_dtype_name(to), text);
    if (l->scaled)
        tl_weights_note(r, "%lld of them times their weight_scale_inv", (long long)l->scaled);
}

static tl_status load(void *self, char *block, int64_t block_bytes) {
    loading *l = self;
    l->block = block;
    l->half = block_bytes / 2 & ~(int64_t)7; /* whole values in each */
    l->used = calloc((size_t)tl_weights_source_tensors(&l->source) + 1, sizeof *l->used);
    if (!l->used)
        return tl_fail(l->error, TL_ERR_MEMORY, "%s: no memory for a table of tensors", l->source.name);
    if (!l->checkpoint)
        find_prefix(l);
    tl_status status = each_part(l, mark_part);
    if (status == TL_OK)
        status = l->checkpoint ? fail_missing(l) : check_others(l);
    if (status == TL_OK)
        status = each_part(l, check_part);
    if (status == TL_OK && !l->checkpoint)
        status = check_tied(l);
    if (status == TL_OK)
        status = read_all(l);
    if (status == TL_OK)
        note_formats(l);
    free(l->used);
    return status;
}

/* A checkpoint of tally, or the folder of a run: the same names as the net's, nothing to convert. */
static bool is_checkpoint(const char *path, tl_ckpt_found *found) {
    struct stat st;
    char folder[TL_CKPT_PATH];
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(folder, sizeof folder, "%.4000s/checkpoints", path);
        return tl_ckpt_folder_find(folder, found, NULL) == TL_OK || tl_ckpt_folder_find(path, found, NULL) == TL_OK;
    }
    tl_safetensors *f = tl_safetensors_open(path, NULL);
    bool is = f && tl_ckpt_is(f);
    tl_safetensors_close(f);
    snprintf(found->path, sizeof found->path, "%s", path);
    found->note[0] = '\0';
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
    tl_ckpt_found found;
    loading l = {.net = net, .model = tl_net_model(net), .report = report ? report : &own_report, .error = &own};
    memset(l.report, 0, sizeof *l.report);
    l.count = tl_net_parameters(net, &l.parameters);
    while (l.count > 0 && l.parameters[l.count - 1].adapter) /* no published file has them, and they stand at the end */
        l.count--;
    tl_ctx *ctx = l.count > 0 ? tl_tensor_ctx(l.parameters[0].tensor) : NULL;
    if (!ctx || tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta takes no values");
    if (!tl_weights_own_prefix(l.model))
        return tl_fail(error, TL_ERR_UNSUPPORTED, "%s has no published weights; decoders have",
                       tl_family_name(l.model->family));
    bool ours = is_checkpoint(path, &found);
    if (ours && found.note[0])
        tl_weights_note(l.report, "%s", found.note);
    tl_status status = ours && tl_net_lora(net) ? is_plain(found.path, &l.checkpoint, &own) : TL_OK;
    if (status == TL_OK && ours && !l.checkpoint)
        return load_checkpoint(found.path, net, l.report, error);
    if (status == TL_OK)
        status = tl_weights_source_open(&l.source, ours ? found.path : path, l.report, &own);
    if (status != TL_OK)
        return tl_fail(error, status, "%s", own.message);
    l.report->files = l.source.count;
    status = tl_transfer_weights(net, TL_PHASE_LOAD, load, &l);
    tl_weights_source_close(&l.source);
    return status == TL_OK ? TL_OK
                           : tl_fail(error, status, "%s", own.status != TL_OK ? own.message : ctx->error.message);
}
