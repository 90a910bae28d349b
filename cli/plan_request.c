/* cli/plan_request.c: from the command line to the planner's options. */
#include <string.h>

#include "groups.h"
#include "lora.h"
#include "plan_request.h"
#include "tally/engine.h"

tl_optimizer_options tl_cli_optimizer(const tl_cli *cli) {
    return tl_cli_optimizer_of(cli->options.at[TL_OPTION_OPTIM].choice);
}

tl_optimizer_options tl_cli_optimizer_of(int choice) {
    tl_optimizer_options o;
    switch (choice) {
    case TL_CHOICE_ADAMW:
        return tl_optimizer_defaults(TL_OPTIM_ADAMW);
    case TL_CHOICE_ADAM:
        return tl_optimizer_defaults(TL_OPTIM_ADAM);
    case TL_CHOICE_ADAMW8BIT:
        return tl_optimizer_defaults(TL_OPTIM_ADAMW8BIT);
    case TL_CHOICE_RMSPROP:
        return tl_optimizer_defaults(TL_OPTIM_RMSPROP);
    case TL_CHOICE_MOMENTUM:
        o = tl_optimizer_defaults(TL_OPTIM_SGD);
        o.momentum = 0.9;
        return o;
    case TL_CHOICE_ADAGRAD:
        return tl_optimizer_defaults(TL_OPTIM_ADAGRAD);
    case TL_CHOICE_SGD:
        return tl_optimizer_defaults(TL_OPTIM_SGD);
    default:
        return tl_optimizer_defaults(TL_OPTIM_NONE);
    }
}

tl_recompute tl_cli_recompute(const tl_cli *cli) {
    const tl_option_value *value = &cli->options.at[TL_OPTION_RECOMPUTE];
    return (tl_recompute){(tl_recompute_kind)value->choice, value->choice == TL_RECOMPUTE_EVERY ? value->size : 0};
}

static int request_here(const tl_cli *cli, tl_request *r) {
    tl_error error = {TL_OK, ""};
    r->device = "this machine";
    if (r->options.devices.count != 1)
        return tl_usage(cli, "--gpus %s: this machine is one device; here would work",
                        cli->options.at[TL_OPTION_GPUS].text);
    r->options.threads = tl_machine_cores();
    r->measured = tl_machine_load(r->options.threads, &r->machine, &error) == TL_OK;
    if (!r->measured) {
        if (error.status == TL_ERR_FORMAT)
            tl_note(cli, "%s", error.message);
        memset(&r->machine, 0, sizeof r->machine);
        r->machine.threads = r->options.threads;
    }
    tl_error_clear(&error);
    if (tl_machine_memory(&r->machine.memory_bytes, &r->machine.available_bytes, &error) != TL_OK)
        return tl_failed(cli, &error);
    r->options.machine = &r->machine;
    if (!tl_given(cli, TL_OPTION_GPUS))
        tl_notes_add(&r->defaults, "-g here (this machine, %d thread%s)", r->options.threads,
                     r->options.threads == 1 ? "" : "s");
    return TL_EXIT_OK;
}

int tl_request_devices(const tl_cli *cli, tl_request *r) {
    const tl_options *options = &cli->options;
    memset(r, 0, sizeof *r);
    if (options->devices_status != TL_OK)
        return tl_usage(cli, "--gpus: %s", options->devices_error.message);
    r->options.devices = options->devices;
    r->options.engine = tl_cli_engine(cli);
    tl_cli_formats(cli, &r->options.precision, &r->options.autocast);
    r->options.optimizer = tl_cli_optimizer(cli);
    r->options.recompute = tl_cli_recompute(cli);
    r->options.peak = options->at[TL_OPTION_PEAK].real;
    r->options.mfu = options->at[TL_OPTION_MFU].real;
    int status = tl_cli_lora_typed(cli, &r->options.lora);
    if (status == TL_EXIT_OK && tl_given(cli, TL_OPTION_GROUPS))
        status = tl_cli_groups(cli, "", options->at[TL_OPTION_GROUPS].text, &r->options.optimizer);
    if (status != TL_EXIT_OK)
        return status;
    if (options->devices.here)
        status = request_here(cli, r);
    else
        r->device = options->devices.accelerator->name;
    const bool other = r->options.engine != tl_engine_at(0);
    if (!tl_given(cli, TL_OPTION_PRECISION))
        tl_notes_add(&r->defaults, "--precision %s%s%s%s%s", tl_precision_name(r->options.precision),
                     other ? " of " : "", other ? r->options.engine->name : "", other ? ": " : "",
                     other ? r->options.engine->formats : "");
    if (!tl_given(cli, TL_OPTION_OPTIM))
        tl_notes_add(&r->defaults, "--optim %s", tl_option_choice(cli, TL_OPTION_OPTIM));
    return status;
}

int tl_request_model(const tl_cli *cli, const char *model, tl_request *r) {
    const tl_options *options = &cli->options;
    tl_plan_options *o = &r->options;
    tl_error error = {TL_OK, ""};
    if (tl_model_find(model, &o->model, &error) != TL_OK)
        return tl_failed(cli, &error);
    tl_engine_choose(o->engine, &o->model, &o->choices);
    const int chosen = tl_cli_choices(cli, &o->choices);
    if (chosen != TL_EXIT_OK)
        return chosen;
    bool tokens = o->model.family != TL_FAMILY_CRUNCHER;
    o->seq = 1;
    if (tokens) {
        o->seq = options->at[TL_OPTION_SEQ].size ? options->at[TL_OPTION_SEQ].size : o->model.context;
        if (!tl_given(cli, TL_OPTION_SEQ) && !r->free_seq)
            tl_notes_add(&r->defaults, "--seq %lld, the model's context (%s)", (long long)o->seq,
                         o->model.source_context.text);
        else if (o->seq > o->model.context && !o->model.learned_positions)
            tl_notes_add(&r->defaults, "--seq %lld goes beyond the model's context of %lld", (long long)o->seq,
                         (long long)o->model.context);
    } else if (tl_given(cli, TL_OPTION_SEQ)) {
        tl_notes_add(&r->defaults, "--seq changes nothing: %s has no sequence", o->model.name);
    }
    o->micro_batch = options->at[TL_OPTION_MICRO_BATCH].size;
    o->global_batch = options->at[TL_OPTION_GLOBAL_BATCH].size;
    if (!tl_given(cli, TL_OPTION_MICRO_BATCH) && !r->free_batch)
        tl_notes_add(&r->defaults, "--micro-batch %lld", (long long)o->micro_batch);
    o->causal = options->at[TL_OPTION_FLOPS].choice == TL_FLOPS_CAUSAL;
    o->tokens = options->at[TL_OPTION_TOKENS].count;
    o->price = options->at[TL_OPTION_PRICE].real;
    if (tl_given(cli, TL_OPTION_PRICE) && !tl_given(cli, TL_OPTION_TOKENS))
        tl_notes_add(&r->defaults, "--price changes nothing without --tokens, which say how long the run is");
    return TL_EXIT_OK;
}

void tl_request_peak_hint(const tl_cli *cli, const tl_request *r) {
    const tl_accelerator *a = r->options.devices.accelerator;
    tl_rate rate = tl_cli_precision_rate((int)r->options.precision);
    double dense = a ? a->rate[rate] : 0, sparse = a ? dense * a->sparse_factor : 0, peak = r->options.peak;
    if (sparse > 0 && peak > sparse * 0.99 && peak < sparse * 1.01)
        tl_note(cli,
                "--peak %s is the figure WITH 2:4 sparsity of %s; its dense %s peak is %.4g TFLOP/s, and dense is "
                "what a training run can reach",
                cli->options.at[TL_OPTION_PEAK].text, a->name, tl_rate_name(rate), dense / 1e12);
    else if (dense > 0 && peak > dense * 1.01)
        tl_note(cli, "--peak %s is more than the dense %s peak of %s, %.4g TFLOP/s",
                cli->options.at[TL_OPTION_PEAK].text, tl_rate_name(rate), a->name, dense / 1e12);
}

void tl_cli_quote(const char *word, char *buffer, size_t size) {
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+:,=@%";
    size_t at = 0;
    if (word[0] && !word[strspn(word, plain)]) {
        snprintf(buffer, size, "%s", word);
        return;
    }
    if (at + 1 < size)
        buffer[at++] = '\'';
    for (; *word && at + 6 < size; word++) {
        if (*word == '\'') {
            memcpy(buffer + at, "'\\''", 4);
            at += 4;
        } else {
            buffer[at++] = *word;
        }
    }
    if (at + 1 < size)
        buffer[at++] = '\'';
    if (size)
        buffer[at < size ? at : size - 1] = '\0';
}

static void append(char *text, size_t size, const char *format, ...) TL_PRINTF(3, 4);
static void append(char *text, size_t size, const char *format, ...) {
    size_t at = strlen(text);
    va_list args;
    va_start(args, format);
    if (at < size)
        vsnprintf(text + at, size - at, format, args);
    va_end(args);
}

void tl_request_text(const tl_cli *cli, const tl_request *r, const char *verb, const char *model, char *text,
                     size_t size) {
    static const tl_option as_typed[] = {TL_OPTION_TOKENS, TL_OPTION_MFU, TL_OPTION_PEAK, TL_OPTION_PRICE,
                                         TL_OPTION_GROUPS};
    const tl_plan_options *o = &r->options;
    const char *gpus = cli->options.at[TL_OPTION_GPUS].text;
    char quoted[2 * TL_GROUPS_TEXT];
    text[0] = '\0';
    tl_cli_quote(model, quoted, sizeof quoted);
    append(text, size, "%s %s %s", cli->program, verb, quoted);
    tl_cli_quote(gpus ? gpus : "here", quoted, sizeof quoted);
    append(text, size, " -g %.200s", quoted);
    if (o->model.family != TL_FAMILY_CRUNCHER)
        append(text, size, " --seq %lld", (long long)o->seq);
    append(text, size, " --micro-batch %lld", (long long)o->micro_batch);
    if (o->global_batch)
        append(text, size, " --global-batch %lld", (long long)o->global_batch);
    if (o->engine != tl_engine_at(0))
        append(text, size, " --engine %s", o->engine->name);
    append(text, size, " --precision %s --optim %s --flops %s", tl_precision_name(o->precision),
           tl_option_choice(cli, TL_OPTION_OPTIM), tl_option_choice(cli, TL_OPTION_FLOPS));
    if (o->autocast != (o->engine->autocast && o->precision >= TL_PRECISION_BF16_MIXED))
        append(text, size, " --autocast %s", o->autocast ? "on" : "off");
    char recompute[32];
    if (o->recompute.kind != TL_RECOMPUTE_NONE)
        append(text, size, " --recompute %s", tl_recompute_text(o->recompute, recompute, sizeof recompute));
    char choices[TL_CHOICES_TEXT];
    tl_choices own;
    tl_engine_choose(o->engine, &o->model, &own);
    if (tl_choices_difference(&own, &o->choices, choices, sizeof choices)[0])
        append(text, size, " --choice %s", choices);
    tl_cli_lora_text(&o->lora, quoted, sizeof quoted);
    append(text, size, "%s", quoted);
    if (o->clip > 0)
        append(text, size, " --clip %g", o->clip);
    for (size_t i = 0; i < sizeof as_typed / sizeof as_typed[0]; i++)
        if (tl_given(cli, as_typed[i])) {
            tl_cli_quote(cli->options.at[as_typed[i]].text, quoted, sizeof quoted);
            append(text, size, " --%s %s", tl_option_name(as_typed[i]), quoted);
        }
}
