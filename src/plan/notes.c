/* What a plan assumes and what it leaves out, in words. */
#include "hw/assumptions.h"
#include "plan/plan.h"
#include "tally/engine.h"
#include "tally/lora.h"
#include "tally/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tl_plan_note(char notes[TL_PLAN_NOTES][200], int *count, const char *format, ...) {
    if (*count >= TL_PLAN_NOTES) { /* never fewer without a word */
        snprintf(notes[TL_PLAN_NOTES - 1], sizeof notes[0], "and more than %d others", TL_PLAN_NOTES - 1);
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(notes[(*count)++], sizeof notes[0], format, args);
    va_end(args);
}

static void note_precision(const tl_plan_options *o, tl_plan *p) {
    if (o->precision == TL_PRECISION_FP16_MIXED)
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "dynamic loss scaling from 2^16; a step it skips computes as much and updates nothing");
    if (o->precision == TL_PRECISION_FP8_MIXED)
        tl_plan_note(
            p->assumptions, &p->n_assumptions,
            "fp8 is emulated: the blocks' linear layers round values to it and keep and multiply them in bf16; 8-bit "
            "tensor cores would keep half of those bytes");
    if (o->autocast)
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "autocast: fp32 parameters, cast anew by each product that uses them");
}

/* "a=1,b=2" for people: lines break at spaces. */
static const char *spaced(const char *list, char *out, size_t size) {
    size_t at = 0;
    for (; *list && at + 3 < size; list++) {
        out[at++] = *list;
        if (*list == ',')
            out[at++] = ' ';
    }
    out[at] = '\0';
    return out;
}

/* Which engine, what is its doing and what was given beside it. False: tally's own ways. */
static bool note_engine(const tl_plan_options *o, tl_plan *p) {
    char text[TL_CHOICES_TEXT], list[TL_CHOICES_TEXT];
    tl_choices own;
    if (!o->engine || o->engine == tl_engine_at(0))
        return false;
    tl_engine_choose(o->engine, &o->model, &own);
    tl_plan_note(p->assumptions, &p->n_assumptions, "engine %s: %s", o->engine->name, o->engine->what);
    tl_plan_note(p->assumptions, &p->n_assumptions, "%s chooses %s", o->engine->name,
                 spaced(tl_engine_text(o->engine, &o->model, text, sizeof text), list, sizeof list));
    if (tl_choices_difference(&own, &o->choices, text, sizeof text)[0])
        tl_plan_note(p->assumptions, &p->n_assumptions, "given instead of what %s chooses: %s", o->engine->name,
                     spaced(text, list, sizeof list));
    return true;
}

/* What is held beside tensors on a device, each number with its range (hw/assumptions.h). */
static void note_outside(const tl_plan_options *o, tl_plan *p) {
    const tl_engine *e = o->engine ? o->engine : tl_engine_at(0);
    bool torch = e->allocator == TL_ALLOCATOR_CACHING;
    if (p->context_bytes)
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "%.2f GiB of device context outside tensors (%.2f to %.1f GiB measured by others)",
                     (double)p->context_bytes / 1073741824.0,
                     torch ? TL_TORCH_CONTEXT_LOW_GIB : TL_DEVICE_CONTEXT_LOW_GIB, TL_DEVICE_CONTEXT_HIGH_GIB);
    if (p->workspace_bytes)
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "%lld MiB of cuBLAS workspaces: %d handles of %lld MiB (8 to 32 a handle reported)",
                     (long long)(p->workspace_bytes >> 20), e->workspaces, (long long)(e->workspace_bytes >> 20));
    if (p->slack_bytes)
        tl_plan_note(
            p->assumptions, &p->n_assumptions,
            "%s's caching allocator holds %.3f of the live peak (1.02 to 1.15 reported); that must fit, no arena",
            e->name, 1 + e->slack_permille / 1000.0);
}

/* Why a choice that is on changes nothing in this run; NULL: it does. What lies in the model alone, tl_choice_effect says. */
static const char *idle(const tl_plan_options *o, const char *name) {
    const tl_lora_options *l = &o->lora;
    bool narrow = o->precision == TL_PRECISION_BF16 || o->precision == TL_PRECISION_BF16_MIXED ||
                  o->precision == TL_PRECISION_FP16_MIXED || o->precision == TL_PRECISION_FP8_MIXED;
    int64_t share = o->micro_batch * o->devices.count;
    tl_loss_code loss = o->choices.loss;
    bool in_chunks = loss == TL_LOSS_CHUNKED || loss == TL_LOSS_CHUNKS_KEPT || loss == TL_LOSS_CHUNKS_FP32;
    if (strcmp(name, "offload") == 0 && o->recompute.kind != TL_RECOMPUTE_FULL &&
        o->recompute.kind != TL_RECOMPUTE_EVERY)
        return "no layer is computed again (--recompute full or every:K)";
    if (strcmp(name, "grads-apart") == 0 && o->global_batch <= share && !in_chunks)
        return "a step is one micro-batch, and no product adds to another's gradient";
    if (strcmp(name, "adapters") == 0 && l->rank == 0)
        return "there are no adapters (--lora RANK)";
    if (strcmp(name, "adapters") == 0 && (!narrow || o->autocast))
        return "they are in f32 already";
    if (strncmp(name, "base-", 5) == 0 && l->base == TL_LORA_PLAIN)
        return "no weight is quantised (--qlora RANK, --lora-base)";
    if (strcmp(name, "base-by-f16") == 0 && l->base == TL_LORA_INT8)
        return "int8 weights are not written out by way of f16";
    return NULL;
}

static void note_idle(const tl_plan_options *o, const tl_choices *own, tl_plan *p) {
    char text[TL_CHOICES_TEXT], by_engine[40];
    for (int i = 0; i < tl_choice_count(); i++) {
        const char *name = tl_choice_at(i)->name, *value = tl_choice_value(&o->choices, i, text, sizeof text);
        bool asked = !tl_choice_is_default(&o->choices, i) &&
                     strcmp(value, tl_choice_value(own, i, by_engine, sizeof by_engine)) != 0;
        const char *why = asked && !tl_choice_effect(&o->model, &o->choices, i) ? idle(o, name) : NULL;
        if (why)
            tl_plan_note(p->assumptions, &p->n_assumptions, "%s %s changes nothing: %s", name, value, why);
    }
}

/* How the model is run, and what of it the model does not notice. */
static void note_choices(const tl_plan_options *o, tl_plan *p) {
    char attention[40], loss[40], text[TL_CHOICES_TEXT];
    const tl_choices *c = &o->choices;
    const char *again = o->recompute.kind == TL_RECOMPUTE_NONE    ? "kept"
                        : o->recompute.kind == TL_RECOMPUTE_EVERY ? "kept where a layer is not computed again"
                                                                  : "not kept but computed again";
    tl_choices others = *c;
    others.attention = TL_ATTENTION_EAGER;
    others.loss = TL_LOSS_FULL;
    others.loss_chunks = 0;
    for (int i = 0; i < tl_choice_count(); i++) {
        const char *name = tl_choice_at(i)->name;
        if (strcmp(name, "attention") == 0)
            snprintf(attention, sizeof attention, "%s", tl_choice_value(c, i, text, sizeof text));
        if (strcmp(name, "loss") == 0)
            snprintf(loss, sizeof loss, "%s", tl_choice_value(c, i, text, sizeof text));
    }
    if (o->model.family != TL_FAMILY_CRUNCHER)
        tl_plan_note(p->assumptions, &p->n_assumptions, "attention %s: the T×T scores are %s; loss %s", attention,
                     c->attention == TL_ATTENTION_FLASH ? "never a tensor" : again, loss);
    bool of_engine = note_engine(o, p);
    if (!of_engine && tl_choices_text(&others, text, sizeof text)[0])
        tl_plan_note(p->assumptions, &p->n_assumptions, "%s", text);
    tl_choices own = {0};
    if (of_engine)
        tl_engine_choose(o->engine, &o->model, &own);
    note_idle(o, &own, p);
    bool eager = c->attention == TL_ATTENTION_EAGER;
    if (c->softmax_fp32 && !own.softmax_fp32 && o->precision == TL_PRECISION_FP32 && eager)
        tl_plan_note(p->assumptions, &p->n_assumptions, "softmax-fp32 on changes nothing: scores are fp32 already");
    if (c->attention_copies && !own.attention_copies && o->micro_batch == 1 && eager)
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "attention-copies on changes nothing for one sequence at once: its heads are a batch already");
    for (int i = 0; i < tl_choice_count(); i++) {
        const char *why = tl_choice_effect(&o->model, c, i);
        char by_engine[40];
        bool asked = strcmp(tl_choice_value(c, i, text, sizeof text),
                            tl_choice_value(&own, i, by_engine, sizeof by_engine)) != 0;
        if (why && asked)
            tl_plan_note(p->assumptions, &p->n_assumptions, "%s %s changes nothing for %.60s: %s",
                         tl_choice_at(i)->name, tl_choice_value(c, i, text, sizeof text), o->model.name, why);
    }
}

/* Frozen layers that could have adapters and have none. */
static void note_not_adapted(const tl_plan_run *run, tl_plan *p) {
    char names[160];
    const tl_net *net = tl_trainer_net(run->trainer);
    if (tl_net_lora(net)->rank > 0 && tl_net_lora_rest(net, names, sizeof names) > 0)
        tl_plan_note(p->assumptions, &p->n_assumptions, "frozen and without adapters: %s", names);
}

/* peft's ModulesToSaveWrapper keeps the frozen original beside the copy that is trained. */
static void note_trained(const tl_lora_options *lora, const tl_plan_run *run, tl_plan *p) {
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(run->trainer), &list);
    int64_t bytes = 0;
    char text[TL_TEXT];
    for (int i = 0; i < count; i++)
        if (!list[i].frozen && !list[i].adapter)
            bytes += tl_tensor_storage_bytes(list[i].tensor);
    if (!lora->trained[0])
        return;
    tl_plan_note(p->assumptions, &p->n_assumptions, "trained in full: %.120s", lora->trained);
    tl_plan_note(p->leaves_out, &p->n_leaves_out,
                 "the frozen original that peft keeps of each module to save (%s bytes): here there is one",
                 tl_text_grouped((tl_u128)bytes, text));
}

static void note_lora(const tl_plan_options *o, const tl_plan_run *run, tl_plan *p) {
    const tl_lora_options *lora = tl_net_lora(tl_trainer_net(run->trainer));
    if (!lora)
        return;
    p->adapted_layers = tl_net_lora_layers(tl_trainer_net(run->trainer));
    p->lora_alpha = lora->alpha;
    snprintf(p->lora_targets, sizeof p->lora_targets, "%s", lora->targets);
    if (!o->lora.targets)
        tl_plan_note(p->assumptions, &p->n_assumptions, "adapters on %.120s", lora->targets);
    if (!(o->lora.alpha > 0))
        tl_plan_note(p->assumptions, &p->n_assumptions, "their alpha %g, twice the rank", lora->alpha);
    if (lora->base != TL_LORA_PLAIN)
        tl_plan_note(p->assumptions, &p->n_assumptions,
                     "base %s: the linear layers of the blocks%s%s; %s stay as they are", tl_lora_base_name(lora->base),
                     o->model.experts > 0 ? " and the experts, along the flattened weights" : "",
                     lora->base_head ? ", and the head" : "",
                     lora->base_head ? "embeddings, norms and biases" : "embeddings, norms, biases and the head");
    note_not_adapted(run, p);
    note_trained(lora, run, p);
}

bool tl_plan_file_differs(const tl_model *model, const tl_parameter_count *count, char text[160]) {
    if (!model->file_values || model->file_values == count->unique)
        return false;
    snprintf(text, 160,
             "the file's tensors hold %lld values, the model its metadata describes %lld: %s, and only the latter is "
             "counted",
             (long long)model->file_values, (long long)count->unique,
             model->file_values > count->unique ? "more than that model has" : "some are missing");
    return true;
}

void tl_plan_notes(const tl_plan_options *o, const tl_plan_run *run, tl_plan *p) {
    const tl_accelerator *a = o->devices.accelerator;
    char differs[160];
    if (!o->lora.rank && tl_plan_file_differs(&o->model, &p->parameters, differs))
        tl_plan_note(p->assumptions, &p->n_assumptions, "%s", differs);
    if (o->devices.note)
        tl_plan_note(p->assumptions, &p->n_assumptions, "%s", o->devices.note);
    for (int i = 0; i < o->model.n_assumed; i++)
        tl_plan_note(p->assumptions, &p->n_assumptions, "%s", o->model.assumed[i]);
    if (a)
        note_outside(o, p);
    note_precision(o, p);
    note_choices(o, p);
    note_lora(o, run, p);
    if (o->model.router_loss > 0)
        tl_plan_note(p->leaves_out, &p->n_leaves_out,
                     "the router's load-balancing loss (times %g), which training refuses", o->model.router_loss);
    if (!p->slack_bytes)
        tl_plan_note(p->leaves_out, &p->n_leaves_out, "allocator slack beyond the arena");
    if (a)
        tl_plan_note(p->leaves_out, &p->n_leaves_out,
                     p->workspace_bytes ? "NCCL's memory on the device"
                                        : "library workspaces (cuBLAS, NCCL) on the device");
    tl_plan_note(p->leaves_out, &p->n_leaves_out, "host memory of the data loader");
    if (o->devices.count > 1)
        tl_plan_note(p->leaves_out, &p->n_leaves_out, "gradient buckets of the all-reduce");
}
