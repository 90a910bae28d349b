/* cli/fit_plan.c: tally fit batch, context and devices: answers found by planning again. */
#include <stdlib.h>
#include <string.h>

#include "fit.h"
#include "lora.h"
#include "plan_request.h"
#include "tally/engine.h"

static const char *const what_names[] = {"model", "batch", "context", "devices"};

typedef struct tl_fitting {
    tl_request request;
    tl_fit_what what;
    const char *model;
    int64_t value; /* 0: nothing fits */
    int64_t bytes, peak_bytes, next_bytes;
    int64_t capacity, usable, context;
    bool limited;
    int runs;
    char formula[256];
    tl_notes assumed, left_out;
} tl_fitting;

static int find_axis(const tl_cli *cli, tl_fitting *f) {
    tl_error error = {TL_OK, ""};
    tl_plan_largest found;
    tl_plan_axis axis = f->what == TL_FIT_BATCH ? TL_PLAN_MICRO_BATCH : TL_PLAN_SEQ;
    if (tl_plan_find_largest(&f->request.options, axis, &found, &error) != TL_OK)
        return tl_failed(cli, &error);
    f->value = found.value, f->bytes = found.bytes, f->peak_bytes = found.peak_bytes;
    f->next_bytes = found.next_bytes, f->limited = found.limited, f->runs = found.runs;
    const char *symbol = f->what == TL_FIT_BATCH ? "B" : "T";
    snprintf(f->formula, sizeof f->formula,
             f->request.options.engine == tl_engine_at(0)
                 ? "largest %s with arena(%s) <= usable = capacity - device context, by %d plans"
                 : "largest %s with held(%s) <= usable = capacity - device context - workspaces, by %d plans",
             symbol, symbol, f->runs);
    return TL_EXIT_OK;
}

static int find_devices(const tl_cli *cli, tl_fitting *f) {
    tl_error error = {TL_OK, ""};
    tl_plan *p = calloc(1, sizeof *p);
    if (!p) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    if (tl_plan_make(&f->request.options, p, &error) != TL_OK) {
        free(p);
        return tl_failed(cli, &error);
    }
    f->runs = 1;
    f->value = p->fits ? 1 : 0;
    f->bytes = p->needs_bytes, f->peak_bytes = p->peak.bytes;
    free(p);
    snprintf(f->formula, sizeof f->formula,
             "1 if arena <= usable, else none: plain data parallel keeps everything on every device");
    return TL_EXIT_OK;
}

static const char *answer(const tl_fitting *f, char *buffer, size_t size) {
    char text[TL_TEXT];
    tl_text_grouped((tl_u128)f->value, text);
    if (f->value == 0)
        snprintf(buffer, size, f->what == TL_FIT_DEVICES ? "no number of devices is enough" : "nothing fits");
    else if (f->what == TL_FIT_BATCH)
        snprintf(buffer, size, "micro-batch %s", text);
    else if (f->what == TL_FIT_CONTEXT)
        snprintf(buffer, size, "%s tokens", text);
    else
        snprintf(buffer, size, "1 device");
    return buffer;
}

/* What did not fit: nothing less can be asked for. */
static const char *smallest(const tl_fitting *f, char *buffer, size_t size) {
    if (f->what == TL_FIT_BATCH)
        snprintf(buffer, size, "one sequence of %lld tokens", (long long)f->request.options.seq);
    else
        snprintf(buffer, size, f->what == TL_FIT_CONTEXT ? "even one token" : "each of them");
    return buffer;
}

/* The command that plans what was found, with all that was given. */
static void out_next(const tl_cli *cli, const tl_fitting *f) {
    const tl_plan_options *o = &f->request.options;
    char quoted[256];
    tl_cli_quote(f->model, quoted, sizeof quoted);
    const char *gpus = tl_given(cli, TL_OPTION_GPUS) ? cli->options.at[TL_OPTION_GPUS].text : "here";
    char with[256 + TL_CHOICES_TEXT + 2 * TL_LORA_TARGETS] = "", choices[TL_CHOICES_TEXT];
    if (tl_given(cli, TL_OPTION_PRECISION) || tl_given(cli, TL_OPTION_OPTIM))
        snprintf(with, sizeof with, " --precision %s --optim %s", tl_precision_name(o->precision),
                 tl_option_choice(cli, TL_OPTION_OPTIM));
    if (o->engine != tl_engine_at(0)) {
        size_t at = strlen(with);
        snprintf(with + at, sizeof with - at, " --engine %s", o->engine->name);
    }
    if (o->recompute.kind != TL_RECOMPUTE_NONE) {
        char recompute[32];
        size_t at = strlen(with);
        snprintf(with + at, sizeof with - at, " --recompute %s",
                 tl_recompute_text(o->recompute, recompute, sizeof recompute));
    }
    tl_choices own;
    tl_engine_choose(o->engine, &o->model, &own);
    if (tl_choices_difference(&own, &o->choices, choices, sizeof choices)[0]) {
        size_t at = strlen(with);
        snprintf(with + at, sizeof with - at, " --choice %s", choices);
    }
    if (o->autocast)
        snprintf(with + strlen(with), sizeof with - strlen(with), " --autocast on");
    tl_cli_lora_text(&o->lora, with + strlen(with), sizeof with - strlen(with));
    if (f->what == TL_FIT_BATCH && f->value)
        tl_out_item(cli, "next:", "tally plan %s -g %s --seq %lld --micro-batch %lld%s", quoted, gpus,
                    (long long)o->seq, (long long)f->value, with);
    else if (f->what == TL_FIT_CONTEXT && f->value)
        tl_out_item(cli, "next:", "tally plan %s -g %s --seq %lld --micro-batch %lld%s", quoted, gpus,
                    (long long)f->value, (long long)o->micro_batch, with);
    else {
        if (f->what != TL_FIT_CONTEXT && tl_given(cli, TL_OPTION_SEQ))
            snprintf(with + strlen(with), sizeof with - strlen(with), " --seq %lld", (long long)o->seq);
        if (f->what != TL_FIT_BATCH && tl_given(cli, TL_OPTION_MICRO_BATCH))
            snprintf(with + strlen(with), sizeof with - strlen(with), " --micro-batch %lld", (long long)o->micro_batch);
        tl_out_item(cli, "next:", "tally plan %s -g %s%s\n  (%s)", quoted, gpus, with,
                    f->value ? "the whole account" : "what is missing, and what would make it fit");
    }
}

static void out_text(const tl_cli *cli, const tl_fitting *f) {
    const tl_plan_options *o = &f->request.options;
    char line[96], about[256], one[64], need[TL_TEXT], has[TL_TEXT], next[TL_TEXT];
    tl_text_bytes((double)f->bytes, cli->units, need), tl_text_bytes((double)f->usable, cli->units, has);
    if (f->value)
        snprintf(about, sizeof about, "(needs %s of %s usable on %s)", need, has, f->request.device);
    else
        snprintf(about, sizeof about, "(%s needs %s, %s has %s usable)", smallest(f, one, sizeof one), need,
                 f->request.device, has);
    tl_out_answer(cli, answer(f, line, sizeof line), about);
    if (f->next_bytes && f->value)
        tl_out_item(cli, "one more", "would need %s, %s too much",
                    tl_text_bytes((double)f->next_bytes, cli->units, next),
                    tl_text_bytes((double)(f->next_bytes - f->usable), cli->units, has));
    if (f->limited)
        tl_out_item(cli, "limit", "the model has %lld learned positions (%s); the memory would hold more",
                    (long long)o->model.context, o->model.source_context.text);
    if (f->what == TL_FIT_DEVICES)
        tl_out_item(cli, "why",
                    f->value ? "it fits on one; more devices go faster, none of them holds less: plain data "
                               "parallel keeps weights, gradients and states on every device"
                             : "more devices do not shrink what each must hold: plain data parallel keeps "
                               "weights, gradients and states on every device; ZeRO and tensor parallelism "
                               "come with a later version");
    tl_out_item(cli, "found by", "%d plan%s on meta; nothing extrapolated", f->runs, f->runs == 1 ? "" : "s");
    tl_notes_out(cli, "assumed", &f->assumed);
    tl_notes_out(cli, "leaves out", &f->left_out);
    out_next(cli, f);
}

static int print_record(const tl_cli *cli, const tl_fitting *f) {
    static const tl_column columns[] = {
        {"what", "what", false, false, false},
        {"value", "value", true, false, false},
        {"peak_bytes", "peak", true, false, false},
        {"capacity_bytes", "capacity per device", true, false, false},
        {"formula", "formula", false, false, false},
        {"arena_bytes", "needs", true, false, false},
        {"usable_bytes", "usable", true, false, false},
        {"next_bytes", "one more would need", true, false, false},
        {"limited", "limited by the model", false, false, false},
        {"device", "device", false, false, false},
        {"model", "model", false, false, false},
    };
    char text[TL_TEXT];
    tl_grid *grid = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    tl_grid_string(grid, what_names[f->what], NULL);
    if (f->value)
        tl_grid_integer(grid, f->value, tl_text_grouped((tl_u128)f->value, text));
    else
        tl_grid_null(grid);
    tl_grid_integer(grid, f->peak_bytes, tl_text_bytes((double)f->peak_bytes, cli->units, text));
    tl_grid_integer(grid, f->capacity, tl_text_bytes((double)f->capacity, cli->units, text));
    tl_grid_string(grid, f->formula, NULL);
    tl_grid_integer(grid, f->bytes, tl_text_bytes((double)f->bytes, cli->units, text));
    tl_grid_integer(grid, f->usable, tl_text_bytes((double)f->usable, cli->units, text));
    if (f->next_bytes)
        tl_grid_integer(grid, f->next_bytes, tl_text_bytes((double)f->next_bytes, cli->units, text));
    else
        tl_grid_null(grid);
    tl_grid_boolean(grid, f->limited, f->limited ? "yes" : "no");
    tl_grid_string(grid, f->request.device, NULL);
    tl_grid_string(grid, f->request.options.model.name, NULL);
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_grid_json_row(grid, 0, json);
            tl_notes_json(json, "assumptions", &f->assumed);
            tl_notes_json(json, "leaves_out", &f->left_out);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print_record(cli, grid);
    }
    tl_grid_free(grid);
    return status;
}

/* What is being looked for must not be given as well. */
static int check_options(const tl_cli *cli, tl_fit_what what) {
    if (cli->n_arguments < 2)
        return tl_usage(cli, "fit %s needs a MODEL: a name of `tally models' or a config.json", what_names[what]);
    if (what == TL_FIT_BATCH && tl_given(cli, TL_OPTION_MICRO_BATCH))
        return tl_usage(cli, "--micro-batch is what `fit batch' finds: leave it out");
    if (what == TL_FIT_DEVICES && cli->own[TL_FIT_OWN_LEVERS])
        return tl_usage(cli, "--levers is of `fit batch' and `fit context'; `plan' says what makes it fit");
    if (what == TL_FIT_CONTEXT && tl_given(cli, TL_OPTION_SEQ))
        return tl_usage(cli, "--seq is what `fit context' finds: leave it out");
    return TL_EXIT_OK;
}

static void add_notes(const tl_cli *cli, tl_fitting *f) {
    f->assumed = f->request.defaults;
    tl_cli_devices_assumed(cli, &f->assumed);
    if (cli->options.devices.count > 1 && f->what != TL_FIT_DEVICES)
        tl_notes_add(&f->assumed, "each of the %lld devices holds the same (plain data parallel)",
                     (long long)cli->options.devices.count);
    if (!cli->options.devices.here)
        tl_notes_add(&f->assumed, "%.2f GiB of device context outside tensors", (double)f->context / 1073741824.0);
    const tl_engine *e = f->request.options.engine;
    char text[TL_CHOICES_TEXT];
    if (e != tl_engine_at(0))
        tl_notes_add(&f->assumed, "engine %s: %s", e->name,
                     tl_engine_text(e, &f->request.options.model, text, sizeof text));
    if (e->allocator == TL_ALLOCATOR_CACHING && !cli->options.devices.here)
        tl_notes_add(&f->assumed, "%.3f of the live peak held by its caching allocator, %lld MiB of workspaces",
                     1 + e->slack_permille / 1000.0, (long long)(e->workspaces * e->workspace_bytes >> 20));
    else
        tl_notes_add(&f->left_out, "allocator slack beyond the arena");
    if (!cli->options.devices.here)
        tl_notes_add(&f->left_out, "%s on the device",
                     e->workspaces ? "NCCL's memory" : "library workspaces (cuBLAS, NCCL)");
    if (f->what == TL_FIT_CONTEXT && f->value > f->request.options.model.context)
        tl_notes_add(&f->left_out, "whether the model is any good beyond its context of %lld",
                     (long long)f->request.options.model.context);
}

static int levers(const tl_cli *cli, tl_fitting *f) {
    add_notes(cli, f);
    const tl_fit_levers_asked asked = {cli,         f->what,   &f->request.options, f->request.device,
                                       f->capacity, f->usable, &f->assumed,         &f->left_out};
    return tl_fit_levers(&asked);
}

static int answered(const tl_cli *cli, tl_fitting *f) {
    int status = f->what == TL_FIT_DEVICES ? find_devices(cli, f) : find_axis(cli, f);
    if (status != TL_EXIT_OK)
        return status;
    add_notes(cli, f);
    if (cli->format != TL_FORMAT_TABLE)
        status = print_record(cli, f);
    else
        out_text(cli, f);
    return status == TL_EXIT_OK && f->value == 0 ? TL_EXIT_VIOLATED : status;
}

int tl_fit_plan(tl_cli *cli, tl_fit_what what) {
    int status = check_options(cli, what);
    if (status != TL_EXIT_OK)
        return status;
    tl_fitting *f = calloc(1, sizeof *f);
    if (!f) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    f->what = what;
    f->model = cli->arguments[1];
    status = tl_request_devices(cli, &f->request);
    f->request.free_seq = what == TL_FIT_CONTEXT;
    f->request.free_batch = what == TL_FIT_BATCH;
    if (status == TL_EXIT_OK)
        status = tl_request_model(cli, f->model, &f->request);
    if (status == TL_EXIT_OK) {
        tl_plan_capacity(&f->request.options.devices, f->request.options.machine, f->request.options.engine,
                         &f->capacity, &f->usable, &f->context);
        if (f->usable <= 0)
            status = tl_usage(cli, "the memory of %s is not known", f->request.device);
    }
    if (status == TL_EXIT_OK)
        status = cli->own[TL_FIT_OWN_LEVERS] ? levers(cli, f) : answered(cli, f);
    free(f);
    return status;
}
