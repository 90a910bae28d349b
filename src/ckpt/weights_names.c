/* ckpt/weights_names.c: what published files call a net's tensors, and what else lies in them. Sources: index files on the
 * Hugging Face hub; transformers' modeling_*.py for the names of buffers. */
#include "ckpt/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "nn/names.h"

tl_status tl_weights_part_of(const tl_model *model, const tl_parameter *p, int64_t part, tl_weights_part *out,
                             tl_error *error) {
    const tl_shape *s = p->full ? p->full : tl_tensor_shape(p->tensor);
    tl_status status = tl_published_part(model, p->name, part, &out->published, error);
    if (status != TL_OK)
        return status;
    int skip = out->published.expert >= 0; /* the expert's axis */
    out->ndim = s->ndim - skip;
    out->count = 1;
    for (int d = 0; d < out->ndim; d++) {
        out->dim[d] = s->dim[out->published.transposed ? s->ndim - 1 - d : d + skip].size;
        out->count *= out->dim[d];
    }
    out->first = skip ? out->published.expert * out->count : 0;
    return TL_OK;
}

tl_status tl_weights_whole_part(const tl_parameter *p, tl_weights_part *out, tl_error *error) {
    const tl_shape *s = p->full ? p->full : tl_tensor_shape(p->tensor);
    out->published = (tl_published){.expert = -1};
    if (snprintf(out->published.name, sizeof out->published.name, "%s", p->name) >= (int)sizeof out->published.name)
        return tl_fail(error, TL_ERR_OVERFLOW, "the parameter's name %.60s… is too long", p->name);
    out->ndim = s->ndim;
    out->first = 0;
    out->count = 1;
    for (int d = 0; d < s->ndim; d++)
        out->count *= out->dim[d] = s->dim[d].size;
    return TL_OK;
}

/* ---- prefixes ---- */

const char *tl_weights_own_prefix(const tl_model *model) {
    const tl_names *names = tl_names_of(model);
    return names ? names->prefix : NULL;
}

static bool is_of(const char *name, const char *module) {
    return module && tl_starts_with(name, module) && name[strlen(module)] == '.';
}

/* The form before phi-msft's (microsoft/phi-1_5's first files, modeling_mixformer_sequential.py): one list, layers.0 the tokens,
 * layers.1 the first block, and behind the last block the norm and the head. */
static bool is_sequential(const tl_model *model, const char *prefix) {
    return model->family == TL_FAMILY_PHI_MSFT && strcmp(prefix, TL_WEIGHTS_SEQUENTIAL) == 0;
}

static void sequential_name(const tl_model *model, const char *name, char whole[TL_WEIGHTS_NAME]) {
    char *rest = NULL;
    if (tl_starts_with(name, "transformer.embd."))
        snprintf(whole, TL_WEIGHTS_NAME, "layers.0.%s", name + strlen("transformer.embd."));
    else if (tl_starts_with(name, "lm_head."))
        snprintf(whole, TL_WEIGHTS_NAME, "layers.%lld.%s", (long long)model->layers + 1, name + strlen("lm_head."));
    else if (tl_starts_with(name, "transformer.h.")) {
        long long layer = strtoll(name + strlen("transformer.h."), &rest, 10);
        snprintf(whole, TL_WEIGHTS_NAME, "layers.%lld%s", layer + 1, rest);
    } else
        snprintf(whole, TL_WEIGHTS_NAME, "%s", name);
}

const char *tl_weights_whole_name(const tl_model *model, const char *prefix, const char *name,
                                  char whole[TL_WEIGHTS_NAME]) {
    static const char text[] = "language_model.";
    const tl_names *names = tl_names_of(model);
    if (is_sequential(model, prefix)) {
        sequential_name(model, name, whole);
        return whole;
    }
    /* The head stands beside the decoder, not in it; where the whole text model is a part, it is in that part. */
    if (is_of(name, names->head))
        snprintf(whole, TL_WEIGHTS_NAME, "%s%s", tl_starts_with(prefix, text) ? text : "", name);
    else if (tl_starts_with(name, names->prefix))
        snprintf(whole, TL_WEIGHTS_NAME, "%s%s", prefix, name + strlen(names->prefix));
    else
        snprintf(whole, TL_WEIGHTS_NAME, "%s", name);
    return whole;
}

const char *tl_weights_head_name(const tl_model *model, const char *prefix, char whole[TL_WEIGHTS_NAME]) {
    char name[64];
    snprintf(name, sizeof name, "%s.weight", tl_names_of(model)->head);
    return tl_weights_whole_name(model, prefix, name, whole);
}

const char *tl_weights_table_name(const tl_model *model, const char *prefix, char whole[TL_WEIGHTS_NAME]) {
    if (is_sequential(model, prefix))
        snprintf(whole, TL_WEIGHTS_NAME, "%s0.wte.weight", prefix);
    else
        snprintf(whole, TL_WEIGHTS_NAME, "%s%s.weight", prefix, tl_names_of(model)->tokens);
    return whole;
}

/* ---- what is no parameter ---- */

static bool is_buffer(const tl_model *model, const char *name) {
    /* Masks: .attn.bias of GPT-2 and GPT-J, .attention.bias of GPT-NeoX. Rotary tables, under several modules. OPT's "version"
     * is fairseq's mark. */
    static const char *const masks[] = {
        ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".attn.embed_positions", NULL};
    static const char *const anywhere[] = {".inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached", NULL};
    bool masked =
        model->family == TL_FAMILY_GPT2 || model->family == TL_FAMILY_GPTJ || model->family == TL_FAMILY_GPT_NEOX;
    for (int i = 0; masked && masks[i]; i++)
        if (tl_ends_with(name, masks[i]) && is_of(name, tl_names_of(model)->layers))
            return true;
    for (int i = 0; anywhere[i]; i++)
        if (tl_ends_with(name, anywhere[i]))
            return true;
    return strcmp(name, "rotary_emb.inv_freq") == 0 || (model->family == TL_FAMILY_OPT && strcmp(name, "version") == 0);
}

static bool is_other_part(const char *whole) {
    static const char *const modules[] = {"vision_tower", "vision_model", "multi_modal_projector", "visual",
                                          "audio_tower",  "embed_vision", "embed_audio",           "patch_merger"};
    const char *name = tl_starts_with(whole, "model.") ? whole + 6 : whole;
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (is_of(name, modules[i]))
            return true;
    return false;
}

bool tl_weights_is_scale(const char *name) { return tl_ends_with(name, ".weight_scale_inv"); }

/* "layers.61.…" of a model of 61 layers. */
static bool is_beyond(const tl_model *model, const char *name) {
    const char *layers = tl_names_of(model)->layers;
    char *end = NULL;
    if (!is_of(name, layers) || name[strlen(layers) + 1] < '0' || name[strlen(layers) + 1] > '9')
        return false;
    long long layer = strtoll(name + strlen(layers) + 1, &end, 10);
    return *end == '.' && layer >= model->layers;
}

/* Gemma 4's checkpoints hold keys and values of every layer (transformers' Gemma4TextModel ignores them on loading). */
static bool is_shared(const tl_model *model, const char *name) {
    const tl_names *n = tl_names_of(model);
    const char *const parts[] = {n->k, n->v, n->k_norm};
    char *end = NULL;
    if (!is_of(name, n->layers) || name[strlen(n->layers) + 1] < '0' || name[strlen(n->layers) + 1] > '9')
        return false;
    long long layer = strtoll(name + strlen(n->layers) + 1, &end, 10);
    if (*end != '.' || layer >= model->layers || tl_model_kv_source(model, layer) == layer ||
        !is_of(end + 1, n->attention))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (is_of(end + 1 + strlen(n->attention) + 1, parts[i]))
            return true;
    return false;
}

tl_weights_kind tl_weights_kind_of(const tl_model *model, const char *prefix, const char *whole, const char **format) {
    static const struct {
        const char *end, *format;
    } quantized[] = {{"_blocks", "MXFP4"},
                     {"_scales", "MXFP4"},
                     {".qweight", "GPTQ or AWQ"},
                     {".qzeros", "GPTQ or AWQ"},
                     {".scales", "GPTQ or AWQ"},
                     {".g_idx", "GPTQ or AWQ"},
                     {".weight_packed", "compressed-tensors"},
                     {".weight_scale", "fp8 or int8 with one scale a row"},
                     {".absmax", "bitsandbytes"},
                     {".quant_map", "bitsandbytes"},
                     {".SCB", "bitsandbytes"}};
    bool inside = tl_starts_with(whole, prefix);
    const char *name = inside ? whole + strlen(prefix) : whole;
    if (is_other_part(whole))
        return TL_WEIGHTS_OTHER_PART;
    if (is_buffer(model, name))
        return TL_WEIGHTS_BUFFER;
    if (inside && model->family == TL_FAMILY_DEEPSEEK_V3 && is_beyond(model, name))
        return TL_WEIGHTS_PREDICTION;
    if (inside && is_shared(model, name))
        return TL_WEIGHTS_SHARED;
    if (tl_weights_is_scale(name))
        return TL_WEIGHTS_FP8_SCALE;
    for (size_t i = 0; i < sizeof quantized / sizeof quantized[0]; i++)
        if (tl_ends_with(name, quantized[i].end)) {
            *format = quantized[i].format;
            return TL_WEIGHTS_QUANTIZED;
        }
    return TL_WEIGHTS_UNKNOWN;
}
