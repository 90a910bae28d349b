/* Which layers have adapters, and which modules are trained in full: by the last part of their names. */
#include "nn/lora.h"
#include "nn/names.h"

#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

#include "base/strings.h"

typedef struct part {
    const char *at;
    int length;
} part;

/* Experts published in one have names without ".weight". */
int tl_lora_module_length(const char *weight) {
    static const char *const ends[] = {".weight", ".bias"};
    size_t length = strlen(weight);
    for (int i = 0; i < 2; i++)
        if (length > strlen(ends[i]) && tl_ends_with(weight, ends[i]))
            return (int)(length - strlen(ends[i]));
    return (int)length;
}

/* Of "model.layers.0.self_attn.q_proj.weight" the part `from_end` before ".weight": 0 is q_proj, 1 self_attn. */
static part part_of(const char *name, int from_end) {
    const char *end = name + tl_lora_module_length(name);
    for (;; from_end--) {
        const char *at = end;
        while (at > name && at[-1] != '.')
            at--;
        if (from_end == 0)
            return (part){at, (int)(end - at)};
        if (at == name)
            return (part){name, 0};
        end = at - 1;
    }
}

static bool holds(part p, const char *text) {
    size_t n = strlen(text);
    for (int i = 0; i + (int)n <= p.length; i++)
        if (memcmp(p.at + i, text, n) == 0)
            return true;
    return false;
}

static bool is_attention(const char *name) {
    part module = part_of(name, 1);
    return holds(module, "attn") || holds(module, "attention") || holds(module, "mixer");
}

static bool is_word(const char *word, size_t length, const char *text) {
    return length == strlen(text) && memcmp(word, text, length) == 0;
}

static bool is_called(const tl_parameter *p, const char *word, size_t length) {
    part last = part_of(p->name, 0);
    return (size_t)last.length == length && memcmp(last.at, word, length) == 0;
}

/* The head is a target by its own name alone: peft leaves it out of all-linear too. */
static bool is_target(const tl_net *net, const tl_parameter *p, const char *word, size_t length) {
    if (p->tensor == net->head)
        return is_called(p, word, length);
    if (!p->linear && !p->experts)
        return false;
    if (is_word(word, length, "all-linear"))
        return true;
    if (is_word(word, length, "attention"))
        return is_attention(p->name);
    if (is_word(word, length, "mlp"))
        return !is_attention(p->name);
    return is_called(p, word, length);
}

static int matches(const tl_net *net, const char *word, size_t length) {
    int n = 0;
    for (int i = 0; i < net->count; i++)
        n += !net->parameters[i].adapter && is_target(net, &net->parameters[i], word, length);
    return n;
}

/* ---- what there is, for messages ---- */

static bool can_adapt(const tl_net *net, const tl_parameter *p) {
    return p->linear || p->experts || p->tensor == net->head;
}

static bool can_train(const tl_net *net, const tl_parameter *p) {
    (void)net;
    return !p->adapter && !p->full && !p->linear && !p->experts && tl_tensor_needs_grad(p->tensor);
}

/* The names that such parameters have, each once; how many. */
static int list_names(const tl_net *net, bool (*such)(const tl_net *, const tl_parameter *), char *text, size_t size) {
    size_t used = 0;
    int n = 0;
    text[0] = '\0';
    for (int i = 0; i < net->count && used < size; i++) {
        const tl_parameter *p = &net->parameters[i];
        part last = part_of(p->name, 0);
        bool seen = !such(net, p);
        for (int j = 0; j < i && !seen; j++)
            seen = such(net, &net->parameters[j]) && is_called(&net->parameters[j], last.at, (size_t)last.length);
        if (!seen)
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? ", " : "", last.length, last.at);
        n += !seen;
    }
    return n;
}

/* ---- a list of names ---- */

/* The next word of a list; false behind the last. */
static bool next_word(const char **at, const char **word, size_t *length) {
    if (!*at)
        return false;
    *word = *at;
    *length = strcspn(*at, ",");
    *at = (*at)[*length] ? *at + *length + 1 : NULL;
    return true;
}

/* peft's choice for the families it knows. */
static const char *default_targets(const tl_net *net) {
    static const char *const fused[] = {"c_attn", "query_key_value", "qkv_proj", "Wqkv"};
    if (matches(net, "q_proj", 6) && matches(net, "v_proj", 6))
        return "q_proj,v_proj";
    for (size_t i = 0; i < sizeof fused / sizeof fused[0]; i++)
        if (matches(net, fused[i], strlen(fused[i])))
            return fused[i];
    return "attention";
}

static bool check_targets(tl_net *net) {
    const char *at = net->lora->targets, *word;
    char names[400];
    size_t length;
    while (next_word(&at, &word, &length)) {
        int shown = (int)(length < 60 ? length : 60);
        if (length > 0 && matches(net, word, length) > 0)
            continue;
        list_names(net, can_adapt, names, sizeof names);
        if (net->model.tied && net->names && is_word(word, length, net->names->head))
            tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT,
                        "adapters for \"%.*s\": the head of %s is its token table, and what they learn could not be "
                        "folded into it; the table can be trained in full, or adapters go to %s",
                        shown, word, net->model.name, names);
        else
            tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT,
                        "adapters for \"%.*s\": %s has no linear layer of that name; there are %s, or all-linear, "
                        "attention and mlp",
                        shown, word, net->model.name, names[0] ? names : "none");
        return false;
    }
    return true;
}

static bool check_trained(tl_net *net) {
    const char *at = net->lora->trained[0] ? net->lora->trained : NULL, *word;
    char names[400];
    size_t length;
    while (next_word(&at, &word, &length)) {
        int found = 0, shown = (int)(length < 60 ? length : 60);
        for (int i = 0; i < net->count; i++) {
            const tl_parameter *p = &net->parameters[i];
            if (length == 0 || !is_called(p, word, length))
                continue;
            if (p->full || tl_lora_is_target(net, p)) {
                tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT, "\"%.*s\" to be trained in full: %s %s", shown, word, p->name,
                            p->full ? "is quantised and cannot be" : "has adapters already: one of the two would work");
                return false;
            }
            found++;
        }
        if (found)
            continue;
        list_names(net, can_train, names, sizeof names);
        tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT,
                    "\"%.*s\" to be trained in full: %s has no module of that name; there are %s, and its layers",
                    shown, word, net->model.name, names);
        return false;
    }
    return true;
}

bool tl_lora_check_names(tl_net *net) {
    struct tl_lora *l = net->lora;
    if (!l->targets[0])
        snprintf(l->targets, sizeof l->targets, "%s", default_targets(net));
    return check_targets(net) && check_trained(net);
}

bool tl_lora_is_target(const tl_net *net, const tl_parameter *p) {
    const char *at = net->lora->targets, *word;
    size_t length;
    while (next_word(&at, &word, &length))
        if (is_target(net, p, word, length))
            return true;
    return false;
}

bool tl_lora_is_trained(const tl_net *net, const tl_parameter *p) {
    const char *at = net->lora->trained[0] ? net->lora->trained : NULL, *word;
    size_t length;
    while (next_word(&at, &word, &length))
        if (is_called(p, word, length))
            return true;
    return false;
}

static bool has_none(const tl_net *net, const tl_parameter *p) {
    return can_adapt(net, p) && p->frozen && !tl_lora_is_target(net, p);
}

int tl_net_lora_rest(const tl_net *net, char *names, size_t size) {
    names[0] = '\0';
    return net->lora ? list_names(net, has_none, names, size) : 0;
}
