/* The choices by name: their values as text, what a model or a run cannot hold, and what changes nothing for a model. */
#include "nn/net.h"

#include "tensor/ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum choice_index {
    NORM,
    ATTENTION,
    GLU,
    GELU,
    SILU,
    ROTARY,
    LOSS,
    REPEAT_KV,
    ATTENTION_COPIES,
    SOFTMAX,
    SOFTMAX_FP32,
    MASK_TENSOR,
    CLAMP_SCORES,
    DROPOUT_MASK,
    MEAN_INPUT,
    EXPERTS,
    GRADS,
    UPDATE,
    UPDATE_IN_BACKWARD,
    DOCUMENTS,
    GRADS_APART,
    HOLD_LOGITS,
    OFFLOAD,
    ADAPTERS,
    BASE_HEAD,
    BASE_BY_F16,
    BASE_INPUT,
    CHOICES
} choice_index;

static const tl_choice choices_table[CHOICES] = {
    [NORM] = {"norm", "fused|composed|wide", "RMSNorm as one op, or operation by operation in f32; wide: the gain too"},
    [ATTENTION] = {"attention", "eager|flash|math",
                   "Scores as tensors, by blocks that keep none, or PyTorch's math path"},
    [GLU] = {"glu", "composed|fused", "A gated MLP's activation and product apart, or one op"},
    [GELU] = {"gelu", "fused|composed", "GELU's tanh form as one op, or operation by operation"},
    [SILU] = {"silu", "fused|composed", "SiLU as one op, or x times its sigmoid"},
    [ROTARY] = {"rotary", "computed|tables", "Angles computed where used, or cosines and sines as tensors"},
    [LOSS] = {"loss", "full|full-fp32|chunked[:K]|fused[:K]|log-softmax|chunks-kept[:K]|chunks-fp32[:K]",
              "Logits of all tokens, in f32, a part at a time with the output projection, or their log softmax"},
    [REPEAT_KV] = {"repeat-kv", "off|on", "Keys and values copied to every query head"},
    [ATTENTION_COPIES] = {"attention-copies", "off|on", "Eager: views made contiguous for the batched products"},
    [SOFTMAX] = {"softmax", "fused|composed", "Eager: softmax as one op, or operation by operation"},
    [SOFTMAX_FP32] = {"softmax-fp32", "off|on", "Eager: softmax of 16-bit scores in f32, and back"},
    [MASK_TENSOR] = {"mask-tensor", "off|on", "Eager: the causal mask is a tensor that is added"},
    [CLAMP_SCORES] = {"clamp-scores", "off|on", "Eager: masked scores are kept by a largest with the lowest number"},
    [DROPOUT_MASK] = {"dropout-mask", "1|2|4", "Bytes an element of a dropout's mask"},
    [MEAN_INPUT] = {"mean-input", "off|on", "Composed norms: the mean keeps its input (PyTorch 1.13)"},
    [EXPERTS] = {"experts", "dropless|capacity[:F]", "Experts take all their tokens, or F times an even share"},
    [GRADS] = {"grads", "parameters|f32", "Gradients in the parameters' format, or summed in f32 buffers"},
    [UPDATE] = {"update", "fused|tensor|foreach",
                "The optimizer in one pass, or op by op for each parameter or for all at once"},
    [UPDATE_IN_BACKWARD] = {"update-in-backward", "off|on",
                            "Each parameter is stepped as soon as its gradient is whole"},
    [DOCUMENTS] = {"documents", "joined|masked", "Packed documents: attention across them, or within each alone"},
    [GRADS_APART] = {"grads-apart", "off|on", "A gradient is made as a tensor before it is added to what is there"},
    [HOLD_LOGITS] = {"hold-logits", "off|on", "The loss's f32 logits live until the next forward"},
    [OFFLOAD] = {"offload", "off|on", "Inputs of recomputed layers wait in the host's memory"},
    [ADAPTERS] = {"adapters", "run|f32", "Adapters in the run's format, or in f32"},
    [BASE_HEAD] = {"base-head", "off|on", "A quantised base: the output projection too"},
    [BASE_BY_F16] = {"base-by-f16", "off|on", "NF4 weights are written out in f16 and cast"},
    [BASE_INPUT] = {"base-input", "off|on", "Products with a quantised weight keep their input (bitsandbytes)"},
};

int tl_choice_count(void) { return CHOICES; }

const tl_choice *tl_choice_at(int index) { return index >= 0 && index < CHOICES ? &choices_table[index] : NULL; }

/* The place of `value` (of `length`) among "a|b[:K]|c"; *takes: it may have a number behind a colon. −1: none of them. */
static int place_of(const char *values, const char *value, size_t length, bool *takes) {
    int place = 0;
    for (const char *at = values; *at; place++) {
        size_t whole = strcspn(at, "|"), word = strcspn(at, "|[");
        if (word == length && strncmp(at, value, length) == 0) {
            *takes = word < whole;
            return place;
        }
        at += whole + (at[whole] == '|');
    }
    return -1;
}

static const char *word_at(const char *values, int place, char *buffer, size_t size) {
    const char *at = values;
    for (; place > 0 && *at; place--)
        at += strcspn(at, "|") + 1;
    snprintf(buffer, size, "%.*s", (int)strcspn(at, "|["), at);
    return buffer;
}

/* Of those that have two values; NULL: others. */
static bool *flag_of(tl_choices *c, int index) {
    switch (index) {
    case REPEAT_KV:
        return &c->repeat_kv;
    case ATTENTION_COPIES:
        return &c->attention_copies;
    case SOFTMAX_FP32:
        return &c->softmax_fp32;
    case MASK_TENSOR:
        return &c->mask_tensor;
    case CLAMP_SCORES:
        return &c->clamp_scores;
    case MEAN_INPUT:
        return &c->mean_input;
    case UPDATE_IN_BACKWARD:
        return &c->update_in_backward;
    case DOCUMENTS:
        return &c->documents;
    case GRADS_APART:
        return &c->grads_apart;
    case HOLD_LOGITS:
        return &c->hold_logits;
    case OFFLOAD:
        return &c->offload;
    case ADAPTERS:
        return &c->adapters_f32;
    case BASE_HEAD:
        return &c->base_head;
    case BASE_BY_F16:
        return &c->base_by_f16;
    case BASE_INPUT:
        return &c->base_keeps_input;
    default:
        return NULL;
    }
}

static int get(const tl_choices *c, int index) {
    tl_choices copy = *c;
    const bool *flag = flag_of(&copy, index);
    if (flag)
        return *flag;
    switch (index) {
    case NORM:
        return (int)c->norm;
    case ATTENTION:
        return (int)c->attention;
    case GLU:
        return (int)c->glu;
    case GELU:
        return (int)c->gelu;
    case SILU:
        return (int)c->silu;
    case ROTARY:
        return (int)c->rotary;
    case LOSS:
        return (int)c->loss;
    case SOFTMAX:
        return (int)c->softmax;
    case DROPOUT_MASK:
        return c->dropout_mask_bytes == 4 ? 2 : c->dropout_mask_bytes == 2;
    case EXPERTS:
        return (int)c->experts;
    case GRADS:
        return (int)c->grads;
    case UPDATE:
        return (int)c->update;
    default:
        return 0;
    }
}

static void set(tl_choices *c, int index, int place) {
    bool *flag = flag_of(c, index);
    if (flag)
        *flag = place != 0;
    switch (index) {
    case NORM:
        c->norm = (tl_norm_code)place;
        break;
    case ATTENTION:
        c->attention = (tl_attention_code)place;
        break;
    case GLU:
        c->glu = (tl_glu_code)place;
        break;
    case GELU:
        c->gelu = (tl_gelu_code)place;
        break;
    case SILU:
        c->silu = (tl_silu_code)place;
        break;
    case ROTARY:
        c->rotary = (tl_rotary_code)place;
        break;
    case LOSS:
        c->loss = (tl_loss_code)place;
        c->loss_chunks = 0;
        break;
    case SOFTMAX:
        c->softmax = (tl_softmax_code)place;
        break;
    case DROPOUT_MASK:
        c->dropout_mask_bytes = place == 0 ? 0 : 1 << place;
        break;
    case EXPERTS:
        c->experts = (tl_experts_code)place;
        c->capacity_factor = 0;
        break;
    case GRADS:
        c->grads = (tl_grads_code)place;
        break;
    case UPDATE:
        c->update = (tl_update_code)place;
        break;
    default:
        break;
    }
}

/* Digits alone: a count of chunks. */
static bool read_count(const char *text, int64_t *count) {
    *count = 0;
    if (!*text)
        return false;
    for (; *text; text++)
        if (*text < '0' || *text > '9' || (*count = *count * 10 + (*text - '0')) > 1000000)
            return false;
    return true;
}

/* "1.25": digits and at most one point, so that no locale and no exponent matters. */
static bool read_factor(const char *text, double *factor) {
    double unit = 0;
    int digits = 0;
    *factor = 0;
    for (; *text; text++) {
        if (*text == '.' && unit == 0)
            unit = 1;
        else if (*text < '0' || *text > '9' || ++digits > 9)
            return false;
        else if (unit == 0)
            *factor = *factor * 10 + (*text - '0');
        else
            *factor += (*text - '0') * (unit /= 10);
    }
    return digits > 0 && *factor > 0;
}

static tl_status set_number(tl_choices *c, int index, const char *number, tl_error *error) {
    if (index == LOSS) {
        if (read_count(number, &c->loss_chunks) && c->loss_chunks >= 1 && c->loss_chunks <= TL_LOSS_CHUNKS_MAX)
            return TL_OK;
        return tl_fail(error, TL_ERR_ARGUMENT, "loss in \"%.40s\" chunks; 1 to %d would work", number,
                       TL_LOSS_CHUNKS_MAX);
    }
    if (read_factor(number, &c->capacity_factor) && c->capacity_factor <= 1e6)
        return TL_OK;
    return tl_fail(error, TL_ERR_ARGUMENT, "experts' capacity of \"%.40s\"; a number above 0, such as 1.25, would work",
                   number);
}

tl_status tl_choice_set(tl_choices *choices, const char *name, const char *value, tl_error *error) {
    for (int i = 0; i < CHOICES; i++) {
        if (strcmp(choices_table[i].name, name) != 0)
            continue;
        bool takes = false;
        size_t word = strcspn(value, ":");
        int place = place_of(choices_table[i].values, value, word, &takes);
        if (place < 0 || (value[word] && !takes))
            return tl_fail(error, TL_ERR_ARGUMENT, "%s \"%.80s\"; %s would work", name, value, choices_table[i].values);
        tl_choices changed = *choices;
        set(&changed, i, place);
        tl_status status = value[word] ? set_number(&changed, i, value + word + 1, error) : TL_OK;
        if (status == TL_OK)
            *choices = changed;
        return status;
    }
    char known[480];
    size_t at = 0;
    for (int i = 0; i < CHOICES && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
                               i == 0             ? ""
                               : i == CHOICES - 1 ? " or "
                                                  : ", ",
                               choices_table[i].name);
    return tl_fail(error, TL_ERR_ARGUMENT, "there is no choice \"%.80s\"; %s would work", name, known);
}

const char *tl_choice_value(const tl_choices *choices, int index, char *buffer, size_t size) {
    char word[32];
    if (index < 0 || index >= CHOICES)
        return "?";
    word_at(choices_table[index].values, get(choices, index), word, sizeof word);
    bool parts = index == LOSS && tl_loss_projects(choices->loss);
    if (parts)
        snprintf(buffer, size, "%s:%lld", word,
                 (long long)(choices->loss_chunks > 0 ? choices->loss_chunks : TL_LOSS_CHUNKS_DEFAULT));
    else if (index == EXPERTS && choices->experts == TL_EXPERTS_CAPACITY)
        snprintf(buffer, size, "%s:%g", word, choices->capacity_factor > 0 ? choices->capacity_factor : 1);
    else
        snprintf(buffer, size, "%s", word);
    return buffer;
}

tl_status tl_choices_parse(const char *text, tl_choices *choices, tl_error *error) {
    tl_choices changed = *choices;
    uint32_t seen = 0;
    for (const char *at = text; *at;) {
        char name[32], value[64];
        size_t whole = strcspn(at, ","), word = strcspn(at, "=,");
        if (at[word] != '=' || word >= sizeof name || whole - word > sizeof value)
            return tl_fail(error, TL_ERR_ARGUMENT, "\"%.80s\" is no choice; NAME=VALUE, as norm=composed, would work",
                           at);
        snprintf(name, sizeof name, "%.*s", (int)word, at);
        snprintf(value, sizeof value, "%.*s", (int)(whole - word - 1), at + word + 1);
        tl_status status = tl_choice_set(&changed, name, value, error);
        if (status != TL_OK)
            return status;
        for (int i = 0; i < CHOICES; i++)
            if (strcmp(choices_table[i].name, name) == 0) {
                if (seen >> i & 1)
                    return tl_fail(error, TL_ERR_ARGUMENT, "%s is chosen twice", name);
                seen |= UINT32_C(1) << i;
            }
        at += whole + (at[whole] == ',');
        if (!*at && at[-1] == ',')
            return tl_fail(error, TL_ERR_ARGUMENT, "\"%.80s\" ends with a comma", text);
    }
    *choices = changed;
    return TL_OK;
}

char *tl_choices_difference(const tl_choices *base, const tl_choices *choices, char *buffer, size_t size) {
    char text[40], other[40];
    size_t at = 0;
    if (size > 0)
        buffer[0] = '\0';
    for (int i = 0; i < CHOICES && at < size; i++) {
        const char *value = tl_choice_value(choices, i, text, sizeof text);
        if (strcmp(value, tl_choice_value(base, i, other, sizeof other)) != 0)
            at += (size_t)snprintf(buffer + at, size - at, "%s%s=%s", at ? "," : "", choices_table[i].name, value);
    }
    return buffer;
}

char *tl_choices_text(const tl_choices *choices, char *buffer, size_t size) {
    static const tl_choices none = {0};
    return tl_choices_difference(&none, choices, buffer, size);
}

bool tl_choice_is_default(const tl_choices *choices, int index) { return get(choices, index) == 0; }

/* ---- what changes nothing ---- */

static bool is_rms(const tl_model *m) {
    tl_norm_kind kind = tl_norm_kind_of(m);
    return kind == TL_NORM_RMS || kind == TL_NORM_RMS_ONE || m->qk_norm != TL_QK_NONE || m->kv_rank > 0;
}

static bool has_dropout(const tl_model *m) {
    return m->dropout_attention > 0 || m->dropout_embedding > 0 || m->dropout_residual > 0;
}

static const char *gate_effect(const tl_model *m) {
    if (!m->gated)
        return "its MLP has no gate";
    return m->activation == TL_RELU ? "there is no fused op of a gate with ReLU" : NULL;
}

static const char *gelu_effect(const tl_model *m, const tl_choices *c) {
    if (m->activation == TL_GELU_ERF)
        return "its GELU is by erf, which frameworks run as one op";
    if (m->activation != TL_GELU_TANH)
        return "its activation is not GELU";
    return m->gated && c->glu == TL_GLU_FUSED ? "the gate is fused with its product" : NULL;
}

static const char *silu_effect(const tl_model *m, const tl_choices *c) {
    if (m->activation != TL_SILU)
        return "its activation is not SiLU";
    return m->gated && c->glu == TL_GLU_FUSED ? "the gate is fused with its product" : NULL;
}

static const char *eager_effect(const tl_choices *c, int index) {
    if (c->attention == TL_ATTENTION_FLASH)
        return "attention is one op (attention flash)";
    if (c->attention == TL_ATTENTION_MATH && index != ATTENTION_COPIES)
        return "PyTorch's math path has a mask tensor and a softmax of its own (attention math)";
    return NULL;
}

static const char *effect(const tl_model *m, const tl_choices *c, int index) {
    bool cruncher = m->family == TL_FAMILY_CRUNCHER;
    if (cruncher && (index < GRADS || index == DOCUMENTS))
        return "it has linear layers alone";
    switch (index) {
    case NORM:
        return is_rms(m) ? NULL : "its norms are LayerNorms, which frameworks run as one op";
    case GLU:
        return gate_effect(m);
    case GELU:
        return gelu_effect(m, c);
    case SILU:
        return silu_effect(m, c);
    case ROTARY:
        return tl_positions_of(m) == TL_POSITIONS_ROTARY ? NULL : "its positions are not rotary";
    case REPEAT_KV:
        return m->kv_rank == 0 && m->kv_heads < m->heads ? NULL : "every query head has keys and values of its own";
    case SOFTMAX:
        if (m->sinks)
            return "its softmax has sinks, and no composed form";
        return eager_effect(c, index);
    case MEAN_INPUT:
        return !is_rms(m)                 ? "its norms are LayerNorms, which frameworks run as one op"
               : c->norm == TL_NORM_FUSED ? "norms are one op (norm fused)"
                                          : NULL;
    case ATTENTION_COPIES:
    case SOFTMAX_FP32:
    case MASK_TENSOR:
        return eager_effect(c, index);
    case CLAMP_SCORES:
        return c->attention == TL_ATTENTION_EAGER && !c->mask_tensor ? "no mask is added to its scores (mask-tensor on)"
                                                                     : eager_effect(c, index);
    case DROPOUT_MASK:
        return has_dropout(m) ? NULL : "it has no dropout";
    case EXPERTS:
        return m->experts > 0 ? NULL : "it has no experts";
    case HOLD_LOGITS:
        return c->loss == TL_LOSS_FULL_FP32 || c->loss == TL_LOSS_LOG_SOFTMAX || c->loss == TL_LOSS_CHUNKS_FP32
                   ? NULL
                   : "its loss is one op on the logits (loss full-fp32, log-softmax or chunks-fp32 would have a "
                     "variable)";
    case BASE_HEAD:
        return m->tied ? "its head is its token table, which is not quantised" : NULL;
    default:
        return NULL;
    }
}

const char *tl_choice_effect(const tl_model *model, const tl_choices *choices, int index) {
    return index < 0 || index >= CHOICES || tl_choice_is_default(choices, index) ? NULL : effect(model, choices, index);
}

/* ---- what cannot be ---- */

static tl_status refuse(const tl_net *net, int index, const tl_choices *c, const char *why) {
    char text[40];
    return tl_ctx_fail(net->ctx, TL_ERR_UNSUPPORTED, "%s %s for %s: %s", choices_table[index].name,
                       tl_choice_value(c, index, text, sizeof text), net->model.name, why);
}

static bool in_range(const tl_choices *c) {
    static const int last[CHOICES] = {[NORM] = TL_NORM_WIDE,
                                      [ATTENTION] = TL_ATTENTION_MATH,
                                      [GLU] = TL_GLU_FUSED,
                                      [GELU] = TL_GELU_COMPOSED,
                                      [SILU] = TL_SILU_COMPOSED,
                                      [ROTARY] = TL_ROTARY_TABLES,
                                      [LOSS] = TL_LOSS_CHUNKS_FP32,
                                      [REPEAT_KV] = 1,
                                      [ATTENTION_COPIES] = 1,
                                      [SOFTMAX] = TL_SOFTMAX_COMPOSED,
                                      [SOFTMAX_FP32] = 1,
                                      [MEAN_INPUT] = 1,
                                      [MASK_TENSOR] = 1,
                                      [CLAMP_SCORES] = 1,
                                      [DROPOUT_MASK] = 2,
                                      [EXPERTS] = TL_EXPERTS_CAPACITY,
                                      [DOCUMENTS] = 1,
                                      [GRADS] = TL_GRADS_F32,
                                      [UPDATE] = TL_UPDATE_FOREACH,
                                      [UPDATE_IN_BACKWARD] = 1,
                                      [GRADS_APART] = 1,
                                      [HOLD_LOGITS] = 1,
                                      [OFFLOAD] = 1,
                                      [ADAPTERS] = 1,
                                      [BASE_HEAD] = 1,
                                      [BASE_BY_F16] = 1,
                                      [BASE_INPUT] = 1};
    for (int i = 0; i < CHOICES; i++)
        if (get(c, i) < 0 || get(c, i) > last[i])
            return false;
    int bytes = c->dropout_mask_bytes;
    return c->loss_chunks >= 0 && c->loss_chunks <= TL_LOSS_CHUNKS_MAX && c->capacity_factor >= 0 &&
           c->capacity_factor <= 1e6 && bytes >= 0 && bytes <= 4 && bytes != 3;
}

tl_status tl_net_choose(tl_net *net, const tl_choices *choices) {
    const tl_model *m = &net->model;
    if (!in_range(choices))
        return tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT, "choices that are none; what tl_choice_set makes would work");
    if (choices->attention == TL_ATTENTION_MATH && (m->attention_softcap != 0 || m->sinks))
        return refuse(net, ATTENTION, choices,
                      m->sinks ? "scaled_dot_product_attention has no sinks; eager or flash would work"
                               : "scaled_dot_product_attention has no softcap; eager or flash would work");
    if (choices->documents && net->names && tl_net_not_packed(net))
        return refuse(net, DOCUMENTS, choices, tl_net_not_packed(net));
    int64_t bytes = tl_dtype_bytes(net->dtype), mask = choices->dropout_mask_bytes;
    bool autocast = net->dtype == TL_F32 && mask == 2; /* what runs in 16 bits keeps masks of 2 bytes */
    if (mask > 1 && mask != bytes && !autocast && has_dropout(m))
        return refuse(net, DROPOUT_MASK, choices,
                      bytes == 2   ? "a run in 16 bits keeps masks of 2 bytes or of 1"
                      : bytes == 4 ? "a run in f32 keeps masks of 4 bytes or of 1"
                                   : "a run in f64 keeps masks of 1 byte here");
    net->choices = *choices;
    return TL_OK;
}
