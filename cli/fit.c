/* cli/fit.c: tally fit, what is the largest that fits. `fit model` needs the bytes of a parameter alone; the others are plans
 * made again and again (cli/fit_plan.c). */
#include <string.h>

#include "fit.h"
#include "plan_request.h"

/* Bytes each parameter costs while it trains, as one layer showed them on meta. */
typedef struct tl_state_bytes {
    int weight, grad, master, first, second; /* first, second: the optimizer's states */
    int scales;                              /* bytes for every TL_PLAN_BLOCK parameters */
    const char *first_name, *second_name;
} tl_state_bytes;

/* The core says how many bytes of states there are; which states they are is the optimizer's definition: Adam's m and v
 * (Kingma & Ba 2015), momentum's buffer, AdaGrad's sum of squares. */
static tl_status state_bytes(int precision, int optim, tl_grads_code grads, tl_state_bytes *bytes, tl_error *error) {
    int64_t each[TL_CATEGORY_COUNT];
    tl_optimizer_options optimizer = tl_cli_optimizer_of(optim);
    tl_status status = tl_plan_block_bytes_kept((tl_precision)precision, &optimizer, grads, each, error);
    memset(bytes, 0, sizeof *bytes);
    if (status != TL_OK)
        return status;
    bytes->weight = (int)(each[TL_PARAM] / TL_PLAN_BLOCK), bytes->grad = (int)(each[TL_GRAD] / TL_PLAN_BLOCK);
    bytes->master = (int)(each[TL_MASTER] / TL_PLAN_BLOCK), bytes->first = (int)(each[TL_OPTIM] / TL_PLAN_BLOCK);
    bytes->scales = (int)(each[TL_OPTIM] % TL_PLAN_BLOCK);
    switch (optim) {
    case TL_CHOICE_MOMENTUM:
        bytes->first_name = "momentum";
        break;
    case TL_CHOICE_ADAGRAD:
        bytes->first_name = "sum of squares";
        break;
    case TL_CHOICE_RMSPROP:
        bytes->first_name = "mean of squares";
        break;
    default: /* two states of one format */
        bytes->second = bytes->first /= 2;
        bytes->first_name = "m", bytes->second_name = "v";
        break;
    }
    return TL_OK;
}

/* Bytes of TL_PLAN_BLOCK parameters, which is a whole number. */
static int block_bytes(tl_state_bytes b) {
    return (b.weight + b.grad + b.master + b.first + b.second) * TL_PLAN_BLOCK + b.scales;
}

/* "16", "10.03125" */
static const char *each_text(tl_state_bytes b, char text[TL_TEXT]) {
    int block = block_bytes(b);
    if (block % TL_PLAN_BLOCK == 0)
        snprintf(text, TL_TEXT, "%d", block / TL_PLAN_BLOCK);
    else
        snprintf(text, TL_TEXT, "%.5f", (double)block / TL_PLAN_BLOCK);
    return text;
}

/* "w + g + m + v" and "4+4+4+4". */
static void terms(tl_state_bytes bytes, char letters[TL_TEXT], char numbers[TL_TEXT]) {
    snprintf(letters, TL_TEXT, "w + g%s%s%s%s%s%s", bytes.master ? " + master" : "", bytes.first ? " + " : "",
             bytes.first ? (bytes.second ? "m" : "s") : "", bytes.second ? " + " : "", bytes.second ? "v" : "",
             bytes.scales ? " + scales" : "");
    int n = snprintf(numbers, TL_TEXT, "%d+%d", bytes.weight, bytes.grad);
    const int more[] = {bytes.master, bytes.first, bytes.second};
    for (int i = 0; i < 3; i++)
        if (more[i])
            n += snprintf(numbers + n, (size_t)(TL_TEXT - n), "+%d", more[i]);
    if (bytes.scales)
        snprintf(numbers + n, (size_t)(TL_TEXT - n), "+%d/%d", bytes.scales, TL_PLAN_BLOCK);
}

typedef struct tl_fit {
    int64_t devices;
    int64_t capacity; /* bytes of one device, as labelled */
    int64_t driver;   /* as the driver shows them, 0: not known */
    const char *device;
    tl_grads_code grads;
    tl_state_bytes bytes;
    int64_t value;
} tl_fit;

/* Parameters whose state fills n devices; -1 when beyond int64. */
static int64_t parameters_in(int64_t devices, int64_t capacity, tl_state_bytes bytes) {
    tl_u128 all = (tl_u128)devices * (tl_u128)capacity;
    if (all > INT64_MAX)
        return -1;
    return (int64_t)(all * TL_PLAN_BLOCK / (tl_u128)block_bytes(bytes));
}

static int read_device(const tl_cli *cli, tl_fit *fit, tl_notes *assumed) {
    const tl_devices *devices = &cli->options.devices;
    fit->devices = devices->count;
    if (devices->here) {
        tl_error error = {TL_OK, ""};
        int64_t available;
        if (tl_machine_memory(&fit->capacity, &available, &error) != TL_OK)
            return tl_usage(cli, "this machine does not say how much memory it has (%s): name a device, --gpus 8xH100",
                            error.message);
        if (fit->devices != 1)
            return tl_usage(cli, "--gpus %s: this machine is one device here", cli->options.at[TL_OPTION_GPUS].text);
        fit->device = "this machine";
        if (!tl_given(cli, TL_OPTION_GPUS))
            tl_notes_add(assumed, "--gpus here (this machine's whole memory)");
        return TL_EXIT_OK;
    }
    fit->device = devices->accelerator->name;
    fit->capacity = devices->accelerator->label_bytes;
    fit->driver = devices->accelerator->driver_bytes;
    tl_cli_devices_assumed(cli, assumed);
    return TL_EXIT_OK;
}

/* Other choices on the same devices, so that the price of this one shows. */
static void out_instead(const tl_cli *cli, const tl_fit *fit) {
    static const struct {
        int precision, optim;
    } others[] = {{TL_PRECISION_FP32, TL_CHOICE_ADAMW}, {TL_PRECISION_BF16_MIXED, TL_CHOICE_ADAMW},
                  {TL_PRECISION_BF16, TL_CHOICE_ADAMW}, {TL_PRECISION_FP32, TL_CHOICE_MOMENTUM},
                  {TL_PRECISION_FP32, TL_CHOICE_SGD},   {TL_PRECISION_BF16_MIXED, TL_CHOICE_SGD}};
    static const char *const precisions[] = {"fp32", "bf16", "bf16-mixed"};
    static const char *const optims[] = {"adamw", "adam", "sgd", "momentum"};
    char text[512] = "", letters[TL_TEXT], numbers[TL_TEXT], count[TL_TEXT];
    size_t at = 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0] && at < sizeof text; i++) {
        if (others[i].precision == cli->options.at[TL_OPTION_PRECISION].choice &&
            others[i].optim == cli->options.at[TL_OPTION_OPTIM].choice)
            continue;
        tl_state_bytes bytes;
        tl_error error = {TL_OK, ""};
        if (state_bytes(others[i].precision, others[i].optim, fit->grads, &bytes, &error) != TL_OK)
            continue;
        terms(bytes, letters, numbers);
        int64_t value = parameters_in(fit->devices, fit->capacity, bytes);
        int n =
            snprintf(text + at, sizeof text - at, "%s%s %s %s (%s)", at ? "; " : "", precisions[others[i].precision],
                     optims[others[i].optim], tl_text_count((double)value, count), numbers);
        at += n > 0 ? (size_t)n : 0;
    }
    tl_out_item(cli, "instead", "%s", text);
}

static void out_text(const tl_cli *cli, const tl_fit *fit, const tl_notes *assumed, const tl_notes *left_out) {
    char count[TL_TEXT], letters[TL_TEXT], numbers[TL_TEXT], bytes[TL_TEXT], line[TL_TEXT + 16];
    char rest[160], each[192];
    const tl_state_bytes b = fit->bytes;
    terms(b, letters, numbers);
    snprintf(line, sizeof line, "%s parameters", tl_text_count((double)fit->value, count));
    if (fit->devices == 1)
        snprintf(rest, sizeof rest, "(state alone, on one device)");
    else
        snprintf(rest, sizeof rest, "(state alone, fully sharded over %lld devices)", (long long)fit->devices);
    tl_out_answer(cli, line, rest);
    tl_text_plain((double)fit->capacity / 1e9, 3, count);
    tl_out_item(cli, "P", "= devices·%s / (%s)\n= %lld·%se9 / (%s B)", cli->options.devices.here ? "memory" : "HBM",
                letters, (long long)fit->devices, count, numbers);
    int n = snprintf(each, sizeof each, "%s B: weight %d, gradient %d", each_text(b, count), b.weight, b.grad);
    if (b.master)
        n += snprintf(each + n, sizeof each - (size_t)n, ", fp32 master %d", b.master);
    if (b.first)
        n += snprintf(each + n, sizeof each - (size_t)n, ", %s %s %d", tl_option_choice(cli, TL_OPTION_OPTIM),
                      b.first_name, b.first);
    if (b.second)
        n += snprintf(each + n, sizeof each - (size_t)n, ", %s %d", b.second_name, b.second);
    if (b.scales)
        snprintf(each + n, sizeof each - (size_t)n, ", scales %d/%d", b.scales, TL_PLAN_BLOCK);
    tl_out_item(cli, "each", "%s   (%s, %s)", each, tl_option_choice(cli, TL_OPTION_PRECISION),
                tl_option_choice(cli, TL_OPTION_OPTIM));
    tl_text_bytes((double)fit->capacity, cli->units, bytes);
    tl_out_item(cli, "memory", "%s a device: %s%s", bytes, fit->device,
                cli->options.devices.here ? "" : ", as labelled");
    if (fit->driver) {
        char shown[TL_TEXT], more[TL_TEXT];
        tl_text_grouped((tl_u128)(fit->driver / (1 << 20)), shown);
        tl_text_count((double)parameters_in(fit->devices, fit->driver, fit->bytes), more);
        tl_out_item(cli, "driver", "with driver-visible memory (%s MiB = %s): %s", shown,
                    tl_text_bytes((double)fit->driver, TL_UNITS_SI, bytes), more);
    }
    out_instead(cli, fit);
    tl_notes_out(cli, "assumed", assumed);
    tl_notes_out(cli, "leaves out", left_out);
    tl_out_item(cli, "next:", "tally plan MODEL -g %s\n  (adds activations and workspaces, and says whether it fits)",
                tl_given(cli, TL_OPTION_GPUS) ? cli->options.at[TL_OPTION_GPUS].text : "here");
}

static int print_record(const tl_cli *cli, const tl_fit *fit, const tl_notes *assumed, const tl_notes *left_out) {
    static const tl_column columns[] = {
        {"what", "what", false, false, false},
        {"value", "parameters", true, false, false},
        {"peak_bytes", "state per device", true, false, false},
        {"capacity_bytes", "capacity per device", true, false, false},
        {"formula", "formula", false, false, false},
        {"devices", "devices", true, false, false},
        {"device", "device", false, false, false},
        {"precision", "precision", false, false, false},
        {"optim", "optimizer", false, false, false},
        {"bytes_per_parameter", "bytes per parameter", true, false, false},
        {"driver_bytes", "driver-visible per device", true, false, false},
        {"value_driver", "parameters with driver-visible memory", true, false, false},
    };
    char text[TL_TEXT], letters[TL_TEXT], numbers[TL_TEXT], formula[160];
    terms(fit->bytes, letters, numbers);
    snprintf(formula, sizeof formula, "P = devices·HBM / (%s) = %lld·%lld / (%s)", letters, (long long)fit->devices,
             (long long)fit->capacity, numbers);
    /* The fullest device holds ceil(P / devices) parameters. */
    int64_t most = fit->value / fit->devices + (fit->value % fit->devices != 0), block = block_bytes(fit->bytes);
    int64_t peak = (int64_t)(((tl_u128)most * (tl_u128)block + TL_PLAN_BLOCK - 1) / TL_PLAN_BLOCK);
    tl_grid *grid = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    tl_grid_string(grid, "model", NULL);
    tl_grid_integer(grid, fit->value, tl_text_grouped((tl_u128)fit->value, text));
    tl_grid_integer(grid, peak, tl_text_bytes((double)peak, cli->units, text));
    tl_grid_integer(grid, fit->capacity, tl_text_bytes((double)fit->capacity, cli->units, text));
    tl_grid_string(grid, formula, NULL);
    tl_grid_integer(grid, fit->devices, NULL);
    tl_grid_string(grid, fit->device, NULL);
    tl_grid_string(grid, tl_option_choice(cli, TL_OPTION_PRECISION), NULL);
    tl_grid_string(grid, tl_option_choice(cli, TL_OPTION_OPTIM), NULL);
    if (block % TL_PLAN_BLOCK == 0)
        tl_grid_integer(grid, block / TL_PLAN_BLOCK, NULL);
    else
        tl_grid_real(grid, (double)block / TL_PLAN_BLOCK, NULL);
    if (fit->driver) {
        int64_t more = parameters_in(fit->devices, fit->driver, fit->bytes);
        tl_grid_integer(grid, fit->driver, tl_text_bytes((double)fit->driver, cli->units, text));
        tl_grid_integer(grid, more, tl_text_grouped((tl_u128)more, text));
    } else {
        tl_grid_null(grid);
        tl_grid_null(grid);
    }
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_grid_json_row(grid, 0, json);
            tl_notes_json(json, "assumptions", assumed);
            tl_notes_json(json, "leaves_out", left_out);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print_record(cli, grid);
    }
    tl_grid_free(grid);
    return status;
}

/* 2+2+12 or 2+4+12: what gradients are summed in is part of the state. */
static int read_grads(const tl_cli *cli, tl_fit *fit, tl_notes *assumed) {
    tl_choices choices = {0};
    tl_error error = {TL_OK, ""};
    if (!tl_given(cli, TL_OPTION_GRADS))
        return TL_EXIT_OK;
    if (tl_choice_set(&choices, "grads", cli->options.at[TL_OPTION_GRADS].text, &error) != TL_OK)
        return tl_usage(cli, "--grads: %s", error.message);
    fit->grads = choices.grads;
    if (fit->grads == TL_GRADS_F32)
        tl_notes_add(assumed, cli->options.at[TL_OPTION_PRECISION].choice == TL_PRECISION_FP32
                                  ? "--grads f32 changes no byte of the state: gradients are f32 already"
                                  : "--grads f32: gradients summed in f32 buffers, as Megatron's main gradients");
    return TL_EXIT_OK;
}

static int fit_model(tl_cli *cli) {
    tl_fit fit = {0};
    tl_notes assumed = {0}, left_out = {0};
    tl_error error = {TL_OK, ""};
    if (cli->n_arguments > 1)
        return tl_usage(cli, "\"%.80s\" is one argument too many: `fit model' finds the model's size",
                        cli->arguments[1]);
    static const uint64_t no_state = (TL_TAKES(SEQ) | TL_TAKES(MICRO_BATCH) | TL_TAKES(RECOMPUTE) | TL_TAKES(ENGINE) |
                                      TL_TAKES(AUTOCAST) | TL_TAKES_CHOICES | TL_TAKES_LORA) &
                                     ~TL_TAKES(GRADS);
    for (int i = 0; i < TL_OPTION_COUNT; i++)
        if ((no_state >> i & 1) && tl_given(cli, (tl_option)i))
            return tl_usage(
                cli,
                "--%s changes nothing for `fit model', which holds the state alone, as --precision, --optim and "
                "--grads say it; `fit batch MODEL' and `fit context MODEL' take it",
                tl_option_name((tl_option)i));
    if (cli->own[TL_FIT_OWN_LEVERS])
        return tl_usage(cli, "--levers is of `fit batch MODEL' and `fit context MODEL'");
    int status = read_device(cli, &fit, &assumed);
    if (status != TL_EXIT_OK)
        return status;
    if (!tl_given(cli, TL_OPTION_PRECISION))
        tl_notes_add(&assumed, "--precision %s", tl_option_choice(cli, TL_OPTION_PRECISION));
    if (!tl_given(cli, TL_OPTION_OPTIM))
        tl_notes_add(&assumed, "--optim %s", tl_option_choice(cli, TL_OPTION_OPTIM));
    if (cli->options.at[TL_OPTION_PRECISION].choice == TL_PRECISION_FP8_MIXED)
        tl_notes_add(&assumed,
                     "fp8 is emulated: weights stay in bf16; a layer's 51 scales and histories are not counted");
    if ((status = read_grads(cli, &fit, &assumed)) != TL_EXIT_OK)
        return status;
    tl_notes_add(&left_out, "activations");
    tl_notes_add(&left_out, "workspaces");
    if (fit.devices > 1)
        tl_notes_add(&left_out, "gathered layers and communication buffers");
    tl_notes_add(&left_out, "the driver's context and the allocator's fragmentation");
    if (state_bytes(cli->options.at[TL_OPTION_PRECISION].choice, cli->options.at[TL_OPTION_OPTIM].choice, fit.grads,
                    &fit.bytes, &error) != TL_OK)
        return tl_failed(cli, &error);
    fit.value = parameters_in(fit.devices, fit.capacity, fit.bytes);
    if (fit.value < 0)
        return tl_usage(cli, "--gpus %s: that is more memory than 2^63 bytes", cli->options.at[TL_OPTION_GPUS].text);
    if (fit.capacity == 0)
        return tl_usage(cli, "the memory of %s is not known", fit.device);
    if (cli->format != TL_FORMAT_TABLE)
        return print_record(cli, &fit, &assumed, &left_out);
    out_text(cli, &fit, &assumed, &left_out);
    return TL_EXIT_OK;
}

static int run(tl_cli *cli) {
    static const char *const whats[] = {"model", "batch", "context", "devices", NULL};
    const char *what = cli->arguments[0], *near = tl_nearest_of(what, whats);
    if (strcmp(what, "model") == 0)
        return fit_model(cli);
    for (int i = 1; whats[i]; i++)
        if (strcmp(what, whats[i]) == 0)
            return tl_fit_plan(cli, (tl_fit_what)i);
    return tl_usage(cli, "\"%.80s\" is nothing that fits; it takes: model, batch, context or devices%s%s%s", what,
                    near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static const struct argp_option own_options[] = {
    {"levers", TL_OWN(TL_FIT_OWN_LEVERS), NULL, 0,
     "batch, context: with each lever, alone and together, and which brings most", 5},
    {0},
};

const tl_verb tl_verb_fit = {
    .name = "fit",
    .summary = "the largest model, batch or context that fits, or the fewest devices",
    .group = TL_GROUP_BEFORE,
    .arguments = "model | batch MODEL | context MODEL | devices MODEL",
    .words = "model batch context devices",
    .details = "model    P = devices·memory / (bytes of weight, gradient, master copy, optimizer\n"
               "         states): the state alone, fully sharded\n"
               "batch    the largest micro-batch of MODEL on one of the devices\n"
               "context  the longest sequence\n"
               "devices  the fewest devices\n"
               "The last three plan the model again and again; nothing is extrapolated. Where\n"
               "nothing fits the exit status is 3.\n\n"
               "  tally fit model --gpus 8xH100 --optim adamw --precision fp32\n"
               "  tally fit batch gpt2-xl -g A100-80G\n"
               "  tally fit batch gpt2-xl -g A100-80G --seq 1024 --precision fp32 --levers\n"
               "  tally fit context llama-3.2-1b -g H100",
    .takes = TL_TAKES(GPUS) | TL_TAKES(PRECISION) | TL_TAKES(AUTOCAST) | TL_TAKES(OPTIM) | TL_TAKES(SEQ) |
             TL_TAKES(MICRO_BATCH) | TL_TAKES(RECOMPUTE) | TL_TAKES_CHOICES | TL_TAKES_LORA | TL_TAKES(ENGINE),
    .does = {[TL_OPTION_PRECISION] = TL_DOES(TL_PRECISION_FP32) | TL_DOES(TL_PRECISION_BF16) |
                                     TL_DOES(TL_PRECISION_BF16_MIXED) | TL_DOES(TL_PRECISION_FP16_MIXED) |
                                     TL_DOES(TL_PRECISION_FP8_MIXED)},
    .own = own_options,
    .min_arguments = 1,
    .max_arguments = 2,
    .run = run,
};
