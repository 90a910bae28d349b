/* cli/options.c: the options all verbs share, as one table, and the parsing of a command line into them.
 *
 * argp does the parsing. Before it runs, tl_options_scan looks at the names alone (cli/options_names.c); what --help prints is
 * cli/help.c.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

typedef enum tl_kind {
    KIND_DEVICES,
    KIND_SIZE,
    KIND_COUNT,
    KIND_RATE,
    KIND_REAL,
    KIND_CHOICE,
    KIND_TEXT,
    KIND_FLAG,
    KIND_WAY
} tl_kind;

static const char *const precisions[] = {"fp32", "bf16", "bf16-mixed", "fp16-mixed", "fp8-mixed", NULL};
static const char *const optimizers[] = {"adamw",   "adam",      "sgd",  "momentum", "adagrad",
                                         "rmsprop", "adamw8bit", "none", NULL};
static const char *const switches[] = {"off", "on", NULL};
/* Of tally/choices.h, which reads them: these are for completion and for near misses. */
static const char *const attentions[] = {"eager", "flash", "math", NULL};
static const char *const losses[] = {"full",        "full-fp32",   "chunked",     "fused",
                                     "log-softmax", "chunks-kept", "chunks-fp32", NULL};
static const char *const norms[] = {"fused", "composed", "wide", NULL};
static const char *const gelus[] = {"fused", "composed", NULL};
static const char *const glus[] = {"composed", "fused", NULL};
static const char *const rotaries[] = {"computed", "tables", NULL};
static const char *const gradients[] = {"parameters", "f32", NULL};
static const char *const updates[] = {"fused", "tensor", "foreach", NULL};
static const char *const documents[] = {"joined", "masked", NULL};
static const char *const recomputes[] = {"none", "selective", "full", "every", NULL};
static const char *const lora_bases[] = {"plain", "int8", "nf4", "nf4-dq", NULL};
static const char *const flops_kinds[] = {"causal", "full", NULL};
static const char *const engines[] = {"tally",  "torch-eager", "torch-compile",  "hf-trainer",  "torchtune",
                                      "litgpt", "torchtitan",  "megatron-local", "megatron-te", "deepspeed",
                                      NULL};

typedef struct tl_row {
    const char *name;
    int letter; /* short option, 0: none */
    const char *argument;
    tl_kind kind;
    const char *const *choices;
    int by_default; /* choices: the index; whole numbers: the value */
    uint32_t does;  /* choices: the values this build does; whole numbers: the largest it does, 0: any */
    int64_t low;    /* whole numbers: the smallest */
    const char *help;
} tl_row;

static const tl_row rows[TL_OPTION_COUNT] = {
    [TL_OPTION_GPUS] = {"gpus", 'g', "NxNAME", KIND_DEVICES, NULL, 0, 0, 0,
                        "Devices: 8xH100, A100-80G, here (see `tally gpus')"},
    [TL_OPTION_SEQ] = {"seq", 0, "T", KIND_SIZE, NULL, 0, 0, 1, "Tokens of a sequence (default: the model's context)"},
    [TL_OPTION_MICRO_BATCH] = {"micro-batch", 0, "B", KIND_SIZE, NULL, 1, 0, 1,
                               "Sequences computed at once (default 1)"},
    [TL_OPTION_GLOBAL_BATCH] = {"global-batch", 0, "N", KIND_SIZE, NULL, 0, 0, 1, "Sequences of one optimizer step"},
    [TL_OPTION_TOKENS] = {"tokens", 't', "N", KIND_COUNT, NULL, 0, 0, 0, "Tokens to train on: 15T, 300e9"},
    [TL_OPTION_PARAMS] = {"params", 0, "N", KIND_COUNT, NULL, 0, 0, 0, "Parameters, when no MODEL is named: 70B"},
    [TL_OPTION_PRECISION] = {"precision", 0, "NAME", KIND_CHOICE, precisions, TL_PRECISION_BF16_MIXED,
                             TL_DOES(TL_PRECISION_FP32) | TL_DOES(TL_PRECISION_BF16) |
                                 TL_DOES(TL_PRECISION_BF16_MIXED) | TL_DOES(TL_PRECISION_FP16_MIXED) |
                                 TL_DOES(TL_PRECISION_FP8_MIXED),
                             0, "fp32, bf16, bf16-mixed (default), fp16-mixed, fp8-mixed (emulated)"},
    [TL_OPTION_AUTOCAST] = {"autocast", 0, "off|on", KIND_CHOICE, switches, 0, TL_DOES(0) | TL_DOES(1), 0,
                            "Mixed precisions: fp32 parameters, cast op by op (default off)"},
    [TL_OPTION_OPTIM] = {"optim", 0, "NAME", KIND_CHOICE, optimizers, TL_CHOICE_ADAMW,
                         TL_DOES(TL_CHOICE_ADAMW) | TL_DOES(TL_CHOICE_ADAM) | TL_DOES(TL_CHOICE_SGD) |
                             TL_DOES(TL_CHOICE_MOMENTUM) | TL_DOES(TL_CHOICE_ADAGRAD) | TL_DOES(TL_CHOICE_RMSPROP) |
                             TL_DOES(TL_CHOICE_ADAMW8BIT),
                         0, "Optimizer: adamw (default), adam, sgd, momentum, adagrad, rmsprop, adamw8bit"},
    [TL_OPTION_ATTENTION] = {"attention", 0, "NAME", KIND_WAY, attentions, 0, 0, 0,
                             "How attention is computed: eager (default), flash, math"},
    [TL_OPTION_LOSS] = {"loss", 0, "NAME", KIND_WAY, losses, 0, 0, 0,
                        "The loss: full (default), full-fp32, chunked[:K], fused[:K], log-softmax"},
    [TL_OPTION_NORM] = {"norm", 0, "NAME", KIND_WAY, norms, 0, 0, 0, "RMSNorm: fused (default), composed or wide"},
    [TL_OPTION_GLU] = {"glu", 0, "NAME", KIND_WAY, glus, 0, 0, 0, "Gated MLPs: composed (default) or fused"},
    [TL_OPTION_GELU] = {"gelu", 0, "NAME", KIND_WAY, gelus, 0, 0, 0, "GELU's tanh form: fused (default) or composed"},
    [TL_OPTION_ROTARY] = {"rotary", 0, "NAME", KIND_WAY, rotaries, 0, 0, 0,
                          "Rotary positions: computed (default) or from tables"},
    [TL_OPTION_REPEAT_KV] = {"repeat-kv", 0, "off|on", KIND_WAY, switches, 0, 0, 0,
                             "Copy keys and values to every query head (default off)"},
    [TL_OPTION_GRADS] = {"grads", 0, "NAME", KIND_WAY, gradients, 0, 0, 0,
                         "Gradients as parameters (default), or in f32 buffers"},
    [TL_OPTION_UPDATE] = {"update", 0, "NAME", KIND_WAY, updates, 0, 0, 0,
                          "The optimizer's step: fused (default), tensor, foreach"},
    [TL_OPTION_UPDATE_IN_BACKWARD] = {"update-in-backward", 0, "off|on", KIND_WAY, switches, 0, 0, 0,
                                      "Step each parameter once its gradient is whole (default off)"},
    [TL_OPTION_DOCUMENTS] = {"documents", 0, "NAME", KIND_WAY, documents, 0, 0, 0,
                             "Packed documents: joined (default), or masked: attention within each"},
    [TL_OPTION_CHOICE] = {"choice", 0, "NAME=VALUE", KIND_WAY, NULL, 0, 0, 0,
                          "Any choice by name, several with commas: mask-tensor=on"},
    [TL_OPTION_RECOMPUTE] = {"recompute", 0, "WHAT", KIND_CHOICE, recomputes, TL_RECOMPUTE_NONE, 0, 0,
                             "What backward computes again: none (default), selective, full, every:K"},
    [TL_OPTION_ENGINE] = {"engine", 0, "NAME", KIND_CHOICE, engines, 0, 0, 0,
                          "Run as this framework does: tally (default), torch-eager, hf-trainer, megatron-te, …"},
    [TL_OPTION_FLOPS] = {"flops", 0, "HOW", KIND_CHOICE, flops_kinds, TL_FLOPS_FULL,
                         TL_DOES(TL_FLOPS_CAUSAL) | TL_DOES(TL_FLOPS_FULL), 0,
                         "Count attention in full (default) or its causal half"},
    [TL_OPTION_ZERO] = {"zero", 0, "STAGE", KIND_SIZE, NULL, 0, 0, 0,
                        "ZeRO stage: what data-parallel ranks share out (0 in this build)"},
    [TL_OPTION_TP] = {"tp", 0, "N", KIND_SIZE, NULL, 1, 1, 1, "Tensor-parallel ranks (1 in this build)"},
    [TL_OPTION_PP] = {"pp", 0, "N", KIND_SIZE, NULL, 1, 1, 1, "Pipeline stages (1 in this build)"},
    [TL_OPTION_VPP] = {"vpp", 0, "N", KIND_SIZE, NULL, 1, 1, 1,
                       "Virtual stages of each pipeline stage (1 in this build)"},
    [TL_OPTION_CP] = {"cp", 0, "N", KIND_SIZE, NULL, 1, 1, 1, "Context-parallel ranks (1 in this build)"},
    [TL_OPTION_EP] = {"ep", 0, "N", KIND_SIZE, NULL, 1, 1, 1, "Expert-parallel ranks (1 in this build)"},
    [TL_OPTION_DP] = {"dp", 0, "N", KIND_SIZE, NULL, 1, 1, 1, "Data-parallel ranks (all devices, in this build)"},
    [TL_OPTION_SEQUENCE_PARALLEL] = {"sequence-parallel", 0, NULL, KIND_FLAG, NULL, 0, 0, 0,
                                     "Split norms and dropouts over tensor-parallel ranks"},
    [TL_OPTION_GROUPS] = {"groups", 0, "LIST", KIND_TEXT, NULL, 0, 0, 0,
                          "Rules by name: \"*.bias:weight-decay=0;wte.*:frozen\""},
    [TL_OPTION_LORA] = {"lora", 0, "RANK", KIND_SIZE, NULL, 0, 0, 1, "Train adapters of this rank only (LoRA)"},
    [TL_OPTION_QLORA] = {"qlora", 0, "RANK", KIND_SIZE, NULL, 0, 0, 1,
                         "The same over 4-bit weights (QLoRA): --lora-base nf4-dq"},
    [TL_OPTION_LORA_ALPHA] = {"lora-alpha", 0, "X", KIND_REAL, NULL, 0, 0, 0,
                              "Their product counts X/RANK (default: twice the rank)"},
    [TL_OPTION_LORA_DROPOUT] = {"lora-dropout", 0, "P", KIND_REAL, NULL, 0, 0, 0,
                                "Dropout of the adapters' input (default 0)"},
    [TL_OPTION_LORA_TARGETS] = {"lora-targets", 0, "NAMES", KIND_TEXT, NULL, 0, 0, 0,
                                "Layers with adapters: q_proj,v_proj (default), all-linear, …"},
    [TL_OPTION_LORA_TRAIN] = {"lora-train", 0, "NAMES", KIND_TEXT, NULL, 0, 0, 0,
                              "Modules trained in full beside them: embed_tokens, lm_head, …"},
    [TL_OPTION_LORA_BASE] = {"lora-base", 0, "FORM", KIND_CHOICE, lora_bases, 0, 0, 0,
                             "Frozen weights: plain (default), int8, nf4, nf4-dq"},
    [TL_OPTION_INFER] = {"infer", 0, NULL, KIND_FLAG, NULL, 0, 0, 0, "Plan serving instead of training"},
    [TL_OPTION_MFU] = {"mfu", 0, "SHARE", KIND_REAL, NULL, 0, 0, 0, "Model FLOP/s over peak, between 0 and 1: 0.5"},
    [TL_OPTION_PEAK] = {"peak", 0, "FLOP/s", KIND_RATE, NULL, 0, 0, 0,
                        "Dense peak of one device, by hand: 989.4e12, 312T"},
    [TL_OPTION_PRICE] = {"price", 0, "USD", KIND_REAL, NULL, 0, 0, 0, "Price of one device for an hour (default 2.00)"},
};

/* Options the contract names that no verb of this build does at all. */
static const uint64_t not_done = TL_TAKES(INFER) | TL_TAKES(SEQUENCE_PARALLEL);

enum { KEY_COMMON = 0x100, KEY_JSON = 0x200, KEY_FORMAT, KEY_UNITS, KEY_COLOR, KEY_HELP };

#define HEADER(text, group)                                                                                            \
    { NULL, 0, NULL, 0, text, group }
static const struct argp_option global_options[] = {
    HEADER("For every verb", 90),
    {"json", KEY_JSON, NULL, 0, "Print JSON (schema tally/1); the same as --format json", 90},
    {"format", KEY_FORMAT, "FORM", 0, "table, md, csv or json; csv and json give raw numbers", 90},
    {"units", KEY_UNITS, "si|iec", 0, "Bytes in GB = 1e9 (default) or GiB = 2^30", 90},
    {"color", KEY_COLOR, "WHEN", 0, "auto, always or never; NO_COLOR is respected", 90},
    {"quiet", 'q', NULL, 0, "No remarks on standard error", 90},
    {"verbose", 'v', NULL, 0, "More of them", 90},
    {"help", KEY_HELP, NULL, 0, "This text", 91},
    {0},
};

const char *tl_option_name(tl_option option) { return rows[option].name; }

const char *const *tl_option_choices(tl_option option) { return rows[option].choices; }

const char *tl_option_choice(const tl_cli *cli, tl_option option) {
    return rows[option].choices[cli->options.at[option].choice];
}

static int common_key(tl_option option) { return rows[option].letter ? rows[option].letter : KEY_COMMON + (int)option; }

/* ---- values --------------------------------------------------------------------------------------------------- */

static int index_of(const char *const *list, const char *text) {
    for (int i = 0; list[i]; i++)
        if (strcmp(list[i], text) == 0)
            return i;
    return -1;
}

/* "fp32, bf16 or bf16-mixed" of those in `mask` (all when 0). */
static const char *list_of(const char *const *list, uint32_t mask, char *buffer, size_t size) {
    int last = -1;
    for (int i = 0; list[i]; i++)
        if (!mask || mask & TL_DOES(i))
            last = i;
    size_t at = 0;
    bool first = true;
    buffer[0] = '\0';
    for (int i = 0; list[i] && at < size; i++) {
        if (mask && !(mask & TL_DOES(i)))
            continue;
        int n = snprintf(buffer + at, size - at, "%s%s", first ? "" : i == last ? " or " : ", ", list[i]);
        at += n > 0 ? (size_t)n : 0;
        first = false;
    }
    return buffer;
}

static uint32_t does(const tl_cli *cli, tl_option option) {
    uint32_t own = cli->verb->does[option];
    return own ? own : rows[option].does;
}

static int set_choice(tl_cli *cli, tl_option option, const char *text) {
    const tl_row *row = &rows[option];
    tl_option_value *value = &cli->options.at[option];
    char known[256], done[256];
    int index = index_of(row->choices, text);
    if (option == TL_OPTION_RECOMPUTE && strncmp(text, "every:", 6) == 0) {
        tl_error error = {TL_OK, ""};
        index = TL_RECOMPUTE_EVERY;
        if (tl_parse_size(text + 6, &value->size, &error) != TL_OK || value->size < 1)
            return tl_usage(cli, "--recompute every:K takes a number of layers from 1 up, not \"%.80s\"", text + 6);
    } else if (index == TL_RECOMPUTE_EVERY && option == TL_OPTION_RECOMPUTE) {
        return tl_usage(cli, "--recompute every:K needs the number of layers, such as every:4");
    }
    if (index < 0) {
        const char *near = tl_nearest_of(text, row->choices);
        return tl_usage(cli, "--%s \"%.80s\": no such value; it is one of %s%s%s%s", row->name, text,
                        list_of(row->choices, 0, known, sizeof known), near ? ". Did you mean " : "", near ? near : "",
                        near ? "?" : "");
    }
    uint32_t mask = does(cli, option);
    if (mask && !(mask & TL_DOES(index)))
        return tl_usage(cli, "--%s %s is not done by `%s' in this build; it does %s", row->name, text, cli->verb->name,
                        list_of(row->choices, mask, done, sizeof done));
    value->choice = index;
    return TL_EXIT_OK;
}

static int set_size(tl_cli *cli, tl_option option, const char *text) {
    const tl_row *row = &rows[option];
    tl_option_value *value = &cli->options.at[option];
    tl_error error = {TL_OK, ""};
    if (tl_parse_size(text, &value->size, &error) != TL_OK)
        return tl_usage(cli, "--%s: %s", row->name, error.message);
    if (value->size < row->low)
        return tl_usage(cli, "--%s %s: it is at least %lld", row->name, text, (long long)row->low);
    if (option == TL_OPTION_ZERO && value->size > 3)
        return tl_usage(cli, "--zero %s: the stages are 0, 1, 2 and 3", text);
    uint32_t most = does(cli, option);
    bool parallel = option >= TL_OPTION_ZERO && option <= TL_OPTION_DP;
    if ((most || option == TL_OPTION_ZERO) && value->size > (int64_t)most)
        return tl_usage(cli, "--%s %s is not done by `%s' in this build; it does --%s %u at most%s", row->name, text,
                        cli->verb->name, row->name, (unsigned)most, parallel ? " (one device holds everything)" : "");
    return TL_EXIT_OK;
}

static int set_real(tl_cli *cli, tl_option option, const char *text) {
    tl_option_value *value = &cli->options.at[option];
    tl_error error = {TL_OK, ""};
    if (option == TL_OPTION_PEAK) {
        if (tl_parse_rate(text, &value->real, &error) != TL_OK)
            return tl_usage(cli, "--peak: %s", error.message);
        return TL_EXIT_OK;
    }
    double high = option == TL_OPTION_PRICE ? 1e9 : 1e300;
    if (tl_parse_number(text, 0, high, &value->real, &error) != TL_OK)
        return tl_usage(cli, "--%s: %s", rows[option].name, error.message);
    if (option == TL_OPTION_MFU && value->real > 1) {
        if (value->real > 1.5 && value->real <= 100)
            return tl_usage(cli, "--mfu %s: cannot be, it is a share of the peak; did you mean %g (%g %%)?", text,
                            value->real / 100, value->real);
        return tl_usage(cli, "--mfu %s: cannot be, no run computes faster than the peak; it lies between 0 and 1",
                        text);
    }
    if (option == TL_OPTION_MFU && value->real <= 0)
        return tl_usage(cli, "--mfu %s: a run at this rate never ends; it lies between 0 and 1", text);
    return TL_EXIT_OK;
}

/* "8xH100": has a count; "H100" has none. */
static bool devices_counted(const char *text) {
    size_t digits = strspn(text, "0123456789_,");
    return digits > 0 && (text[digits] == '\0' || text[digits] == 'x' || text[digits] == 'X');
}

static int set_common(tl_cli *cli, tl_option option, const char *text) {
    tl_options *options = &cli->options;
    tl_error error = {TL_OK, ""};
    if (options->at[option].text && rows[option].kind == KIND_FLAG)
        return tl_usage(cli, "--%s is given twice", rows[option].name);
    if (options->at[option].text)
        return tl_usage(cli, "--%s is given twice (%s, %s)", rows[option].name, options->at[option].text,
                        text ? text : "");
    options->at[option].text = text ? text : "";
    switch (rows[option].kind) {
    case KIND_DEVICES:
        options->devices_counted = devices_counted(text);
        options->devices_status = tl_parse_devices(text, &options->devices, &options->devices_error);
        /* With --peak by hand a verb may know enough without the device's name, so only what is no name at all is
         * refused here. */
        if (options->devices_status != TL_OK && !(cli->verb->takes & TL_TAKES(PEAK)))
            return tl_usage(cli, "--gpus: %s", options->devices_error.message);
        return TL_EXIT_OK;
    case KIND_COUNT:
        if (tl_parse_count(text, &options->at[option].count, &error) != TL_OK)
            return tl_usage(cli, "--%s: %s", rows[option].name, error.message);
        if (options->at[option].count == 0)
            return tl_usage(cli, "--%s 0: it is at least 1", rows[option].name);
        return TL_EXIT_OK;
    case KIND_SIZE:
        return set_size(cli, option, text);
    case KIND_RATE:
    case KIND_REAL:
        return set_real(cli, option, text);
    case KIND_CHOICE:
        return set_choice(cli, option, text);
    case KIND_WAY:
        return tl_cli_way(cli, option, text);
    case KIND_TEXT:
        if (text && !*text)
            return tl_usage(cli, "--%s is empty; %s is wanted", rows[option].name, rows[option].argument);
        return TL_EXIT_OK;
    case KIND_FLAG:
        return TL_EXIT_OK;
    }
    return TL_EXIT_OK;
}

/* Says which verbs take the option; returns TL_EXIT_USAGE. */
static int refuse_option(const tl_cli *cli, tl_option option) {
    char takers[256] = "";
    size_t at = 0;
    int n = 0;
    for (int i = 0; i < tl_verb_count() && at < sizeof takers; i++) {
        const tl_verb *verb = tl_verb_at(i);
        if (!(verb->takes & TL_TAKES(GPUS) << option))
            continue;
        int wrote = snprintf(takers + at, sizeof takers - at, "%s`%s'", n ? ", " : "", verb->name);
        at += wrote > 0 ? (size_t)wrote : 0;
        n++;
    }
    if (n)
        return tl_usage(cli, "`%s' does not take --%s; %s %s", cli->verb->name, rows[option].name, takers,
                        n > 1 ? "do" : "does");
    return tl_usage(cli, "--%s is not done by any verb of this build", rows[option].name);
}

/* Two that differ are no order: the last would win without a word. */
static int set_format(tl_cli *cli, tl_format format, const char *text) {
    if (cli->format_said && cli->format != format)
        return tl_usage(cli, "two formats are asked for, %s and %s: one of them", cli->format_said, text);
    cli->format = format;
    cli->format_said = text;
    return TL_EXIT_OK;
}

static int set_global(tl_cli *cli, int key, const char *text) {
    static const char *const formats[] = {"table", "md", "csv", "json", NULL};
    static const char *const units[] = {"si", "iec", NULL};
    static const char *const colors[] = {"auto", "always", "never", NULL};
    const char *const *list = key == KEY_FORMAT ? formats : key == KEY_UNITS ? units : colors;
    const char *name = key == KEY_FORMAT ? "format" : key == KEY_UNITS ? "units" : "color";
    char known[64];
    switch (key) {
    case KEY_JSON:
        return set_format(cli, TL_FORMAT_JSON, "--json");
    case KEY_HELP:
        cli->help = true;
        return TL_EXIT_OK;
    case 'q':
        cli->verbosity = -1;
        return TL_EXIT_OK;
    case 'v':
        cli->verbosity = cli->verbosity < 0 ? 1 : cli->verbosity + 1;
        return TL_EXIT_OK;
    default:
        break;
    }
    int index = index_of(list, text);
    if (index < 0)
        return tl_usage(cli, "--%s \"%.80s\": no such value; it is one of %s", name, text,
                        list_of(list, 0, known, sizeof known));
    if (key == KEY_FORMAT)
        return set_format(cli, (tl_format)index, text);
    if (key == KEY_UNITS)
        cli->units = (tl_units)index;
    else
        cli->color = (tl_color)index;
    return TL_EXIT_OK;
}

/* ---- tables for argp ------------------------------------------------------------------------------------------ */

void tl_options_merge(const tl_verb *verb, struct argp_option merged[TL_MERGED]) {
    int n = 0;
    if (verb)
        for (const struct argp_option *own = verb->own; own && (own->name || own->doc) && n < TL_OWN_COUNT; own++) {
            merged[n] = *own;
            if (verb->letters && n < (int)strlen(verb->letters) && verb->letters[n] != ' ')
                merged[n].key = verb->letters[n];
            n++;
        }
    for (int i = 0; verb && i < TL_OPTION_COUNT; i++) {
        bool takes = verb->takes >> i & 1;
        const char *title = tl_options_title(verb, i);
        if (title)
            merged[n++] = (struct argp_option){.doc = title, .group = 10};
        merged[n++] = (struct argp_option){rows[i].name,
                                           common_key((tl_option)i),
                                           rows[i].argument,
                                           takes ? 0 : OPTION_HIDDEN,
                                           verb->says[i] ? verb->says[i] : rows[i].help,
                                           10};
    }
    for (const struct argp_option *global = global_options; global->name || global->doc; global++)
        merged[n++] = *global;
    merged[n] = (struct argp_option){0};
}

void tl_cli_options_each(const tl_verb *verb, void (*each)(void *self, const struct argp_option *option), void *self) {
    struct argp_option merged[TL_MERGED];
    tl_options_merge(verb, merged);
    for (const struct argp_option *option = merged; option->name || option->doc; option++)
        if (option->name && !(option->flags & OPTION_HIDDEN))
            each(self, option);
}

static tl_option common_of_key(int key) {
    for (int i = 0; i < TL_OPTION_COUNT; i++)
        if (common_key((tl_option)i) == key)
            return (tl_option)i;
    return TL_OPTION_COUNT;
}

/* ---- argp ----------------------------------------------------------------------------------------------------- */

typedef struct tl_parse {
    tl_cli *cli;
    int status;
    int verb_index;
} tl_parse;

/* What a verb's own option may not be: given before, or nothing where something is wanted. (A prompt may: its verb says.) */
static int check_own(const tl_cli *cli, int key, const char *text) {
    const char *before = cli->own[key - TL_OWN(0)];
    const struct argp_option *own = cli->verb->own;
    while (own->name && own->key != key)
        own++;
    const char *name = own->name ? own->name : "?";
    if (before && text)
        return tl_usage(cli, "--%s is given twice (%.80s, %.80s)", name, before, text);
    if (before)
        return tl_usage(cli, "--%s is given twice", name);
    if (text && !*text && strcmp(name, "prompt") != 0)
        return tl_usage(cli, "--%s is empty; %s is wanted", name, own->arg ? own->arg : "a value");
    return TL_EXIT_OK;
}

static error_t parse_verb(int key, char *text, struct argp_state *state) {
    tl_parse *parse = state->input;
    tl_cli *cli = parse->cli;
    if (parse->status != TL_EXIT_OK)
        return 0; /* the first complaint is enough */
    if (key == ARGP_KEY_ARG) {
        int most = cli->verb->max_arguments;
        if (cli->n_arguments >= most)
            parse->status = most ? tl_usage(cli, "\"%.80s\" is one argument too many", text)
                                 : tl_usage(cli, "it takes no arguments, and \"%.80s\" is one", text);
        else
            cli->arguments[cli->n_arguments++] = text;
        return 0;
    }
    const char *letters = cli->verb->letters, *letter = letters && key > ' ' && key < 127 ? strchr(letters, key) : NULL;
    if (letter) /* of the verb's own, whose rows come first */
        key = TL_OWN((int)(letter - letters));
    if (key >= TL_OWN(0) && key < TL_OWN(TL_OWN_COUNT)) {
        parse->status = check_own(cli, key, text);
        cli->own[key - TL_OWN(0)] = text ? text : "";
        return 0;
    }
    tl_option option = common_of_key(key);
    if (option < TL_OPTION_COUNT) {
        if (not_done >> option & 1 && !(cli->verb->takes >> option & 1))
            parse->status = tl_usage(cli, "--%s is not done by any verb of this build", rows[option].name);
        else if (!(cli->verb->takes >> option & 1))
            parse->status = refuse_option(cli, option);
        else
            parse->status = set_common(cli, option, text);
        return 0;
    }
    if ((key >= KEY_JSON && key <= KEY_HELP) || key == 'q' || key == 'v') {
        parse->status = set_global(cli, key, text);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

int tl_cli_parse(tl_cli *cli, int argc, char **argv) {
    struct argp_option merged[TL_MERGED];
    tl_options_merge(cli->verb, merged);
    for (int i = 0; i < TL_OPTION_COUNT; i++) {
        cli->options.at[i].choice = rows[i].kind == KIND_CHOICE ? rows[i].by_default : 0;
        cli->options.at[i].size = rows[i].kind == KIND_SIZE ? rows[i].by_default : 0;
    }
    cli->options.at[TL_OPTION_PRICE].real = 2.0;
    cli->options.devices = (tl_devices){.count = 1, .here = true};
    int status = tl_options_scan(cli, merged, argc, argv, false);
    if (status != TL_EXIT_OK)
        return status;
    const struct argp argp = {merged, parse_verb, NULL, NULL, NULL, NULL, NULL};
    tl_parse parse = {cli, TL_EXIT_OK, 0};
    error_t failed = argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &parse);
    if (parse.status == TL_EXIT_OK && failed)
        parse.status = tl_usage(cli, "the command line was not understood: %s", strerror(failed));
    if (parse.status == TL_EXIT_OK && !cli->help && cli->n_arguments < cli->verb->min_arguments)
        parse.status = tl_usage(cli, "it needs %s", cli->verb->arguments);
    return parse.status;
}

static error_t parse_global(int key, char *text, struct argp_state *state) {
    tl_parse *parse = state->input;
    if (key == ARGP_KEY_ARG) {
        parse->verb_index = state->next - 1;
        state->next = state->argc; /* the rest is the verb's */
        return 0;
    }
    if ((key >= KEY_JSON && key <= KEY_HELP) || key == 'q' || key == 'v') {
        if (parse->status == TL_EXIT_OK)
            parse->status = set_global(parse->cli, key, text);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

int tl_cli_parse_global(tl_cli *cli, int argc, char **argv, int *verb_index) {
    struct argp_option merged[TL_MERGED];
    tl_options_merge(NULL, merged);
    /* Everyone tries it, and its answer is a verb. */
    if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
        static char version[] = "version";
        argv[1] = version;
    }
    int status = tl_options_scan(cli, merged, argc, argv, true);
    if (status != TL_EXIT_OK)
        return status;
    const struct argp argp = {merged, parse_global, NULL, NULL, NULL, NULL, NULL};
    tl_parse parse = {cli, TL_EXIT_OK, argc};
    error_t failed = argp_parse(&argp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP, NULL, &parse);
    *verb_index = parse.verb_index;
    if (parse.status == TL_EXIT_OK && failed)
        parse.status = tl_usage(cli, "the command line was not understood: %s", strerror(failed));
    return parse.status;
}
