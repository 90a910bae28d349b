/* cli/time.c: tally time, the napkin: parameters, tokens, devices, peak and MFU give the time; any one left out is
 * solved for. The inputs and the arithmetic are here, what is printed is in cli/time_report.c.
 */
#include <math.h>
#include <string.h>

#include "time_account.h"

const char *const tl_time_names[TL_TIME_COUNT + 1] = {"params", "tokens", "gpus", "mfu", "time", NULL};

enum { OWN_DAYS, OWN_TIME, OWN_SOLVE };

static const struct argp_option own_options[] = {
    {"days", TL_OWN(OWN_DAYS), "N", 0, "The time there is, in days", 0},
    {"time", TL_OWN(OWN_TIME), "DURATION", 0, "The same with its unit: 90d, 12h, 6w, 1.5y", 0},
    {"solve", TL_OWN(OWN_SOLVE), "NAME", 0, "What to solve for: params, tokens, gpus, mfu or time", 0},
    {0},
};

#define SECONDS_PER_DAY 86400.0

static int parse_duration(const tl_cli *cli, const char *text, double *seconds) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"s", 1},
                 {"min", 60},
                 {"h", 3600},
                 {"d", SECONDS_PER_DAY},
                 {"day", SECONDS_PER_DAY},
                 {"days", SECONDS_PER_DAY},
                 {"w", 7 * SECONDS_PER_DAY},
                 {"weeks", 7 * SECONDS_PER_DAY},
                 {"y", 365.25 * SECONDS_PER_DAY},
                 {"years", 365.25 * SECONDS_PER_DAY}};
    char number[64];
    tl_error error = {TL_OK, ""};
    size_t digits = strspn(text, "0123456789.eE+-_");
    const char *unit = text + digits + strspn(text + digits, " ");
    if (digits == 0 || digits >= sizeof number)
        return tl_usage(cli, "--time \"%.80s\" is no duration; 90d, 12h, 6w and 1.5y are", text);
    snprintf(number, sizeof number, "%.*s", (int)digits, text);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(unit, units[i].unit) == 0) {
            double value = 0;
            if (tl_parse_number(number, 0, 1e30, &value, &error) != TL_OK)
                return tl_usage(cli, "--time: %s", error.message);
            if (value <= 0)
                return tl_usage(cli, "--time %s: it is more than 0", text);
            *seconds = value * units[i].seconds;
            return TL_EXIT_OK;
        }
    return tl_usage(cli, "--time \"%.80s\": the unit is missing or unknown; it is one of s, min, h, d, w, y", text);
}

static int read_time(const tl_cli *cli, tl_time *t) {
    tl_error error = {TL_OK, ""};
    if (cli->own[OWN_DAYS] && cli->own[OWN_TIME])
        return tl_usage(cli, "--days and --time say the same thing: give one");
    if (cli->own[OWN_TIME])
        return parse_duration(cli, cli->own[OWN_TIME], &t->seconds);
    double days = 0;
    if (tl_parse_number(cli->own[OWN_DAYS], 0, 1e30, &days, &error) != TL_OK)
        return tl_usage(cli, "--days: %s", error.message);
    if (days <= 0)
        return tl_usage(cli, "--days %s: it is more than 0", cli->own[OWN_DAYS]);
    t->seconds = days * SECONDS_PER_DAY;
    return TL_EXIT_OK;
}

static int read_params(const tl_cli *cli, tl_time *t) {
    tl_error error = {TL_OK, ""};
    if (tl_given(cli, TL_OPTION_PARAMS) && cli->n_arguments)
        return tl_usage(cli, "MODEL %s and --params %s both say how many parameters: give one", cli->arguments[0],
                        cli->options.at[TL_OPTION_PARAMS].text);
    if (!cli->n_arguments) {
        t->params = t->active = cli->options.at[TL_OPTION_PARAMS].count;
        return TL_EXIT_OK;
    }
    tl_model model;
    tl_parameter_count count;
    if (tl_model_find(cli->arguments[0], &model, &error) != TL_OK || tl_plan_count(&model, &count, &error) != TL_OK)
        return tl_failed(cli, &error);
    t->params = (tl_u128)count.unique;
    t->active = (tl_u128)count.active;
    snprintf(t->model, sizeof t->model, "%s", model.name);
    if (t->active == t->params) {
        tl_notes_add(&t->assumptions, "every parameter of %s is counted, embeddings included", model.name);
    } else {
        char active[TL_TEXT], all[TL_TEXT];
        tl_notes_add(
            &t->assumptions,
            "P: the %s parameters of %s that a token passes, embeddings included; its %s are a mixture of experts",
            tl_text_grouped(t->active, active), model.name, tl_text_grouped(t->params, all));
    }
    return TL_EXIT_OK;
}

/* The peak of this machine, where `tally machine' has measured it. */
static int read_here(const tl_cli *cli, tl_time *t) {
    tl_machine machine;
    tl_error error = {TL_OK, ""};
    tl_dtype dtype = t->precision == TL_PRECISION_FP32 ? TL_F32 : TL_BF16;
    bool has_dtype = t->precision != TL_PRECISION_FP16_MIXED && t->precision != TL_PRECISION_FP8_MIXED;
    bool measured = has_dtype && tl_machine_load(tl_machine_cores(), &machine, &error) == TL_OK;
    t->peak = measured ? tl_machine_peak(&machine, dtype) : 0;
    if (t->peak > 0)
        return TL_EXIT_OK;
    return tl_usage(cli, "the %s peak of this machine is unknown%s: give --peak FLOP/s", tl_rate_name(t->rate),
                    !has_dtype || measured ? "; `tally machine' measures fp32 and, where the processor has it, bf16"
                                           : " until `tally machine' has measured it");
}

static int read_devices(const tl_cli *cli, tl_time *t) {
    const tl_options *options = &cli->options;
    t->rate = tl_cli_precision_rate(t->precision);
    if (tl_given(cli, TL_OPTION_GPUS)) {
        if (options->devices_status != TL_OK) {
            int status = tl_cli_devices_by_hand(cli, &t->devices, t->device_name, sizeof t->device_name);
            if (status != TL_EXIT_OK)
                return status;
        } else {
            t->devices = options->devices.count;
            t->accelerator = options->devices.accelerator;
            t->here = options->devices.here;
            snprintf(t->device_name, sizeof t->device_name, "%.60s",
                     t->here          ? "this machine"
                     : t->accelerator ? t->accelerator->name
                                      : "");
            tl_cli_devices_assumed(cli, &t->assumptions);
        }
    }
    if (t->accelerator)
        t->dense = t->accelerator->rate[t->rate];
    if (tl_given(cli, TL_OPTION_PEAK)) {
        t->peak = options->at[TL_OPTION_PEAK].real;
        t->peak_by_hand = true;
        return TL_EXIT_OK;
    }
    if (!tl_given(cli, TL_OPTION_GPUS))
        return tl_usage(cli,
                        "the peak of a device is needed: name the device, as in --gpus %sH100, or give --peak FLOP/s",
                        t->solve == TL_TIME_GPUS ? "" : "8x");
    if (t->here)
        return read_here(cli, t);
    if (t->dense <= 0)
        return tl_usage(cli, "%s has no published dense %s rate: choose another --precision or give --peak FLOP/s",
                        t->device_name, tl_rate_name(t->rate));
    t->peak = t->dense;
    return TL_EXIT_OK;
}

/* Which input is to be found: the one left out, and --solve must agree. */
static int choose(const tl_cli *cli, tl_time *t) {
    bool given[TL_TIME_COUNT] = {
        [TL_TIME_PARAMS] = tl_given(cli, TL_OPTION_PARAMS) || cli->n_arguments,
        [TL_TIME_TOKENS] = tl_given(cli, TL_OPTION_TOKENS),
        [TL_TIME_GPUS] = tl_given(cli, TL_OPTION_GPUS),
        [TL_TIME_MFU] = tl_given(cli, TL_OPTION_MFU),
        [TL_TIME_TIME] = cli->own[OWN_DAYS] || cli->own[OWN_TIME],
    };
    int asked = -1, missing = 0, last = -1;
    char list[64] = "";
    if (cli->own[OWN_SOLVE]) {
        const char *name = cli->own[OWN_SOLVE];
        if (strcmp(name, "days") == 0)
            name = "time";
        for (int i = 0; i < TL_TIME_COUNT; i++)
            if (strcmp(tl_time_names[i], name) == 0)
                asked = i;
        if (asked < 0)
            return tl_usage(cli, "--solve \"%.80s\": no such input; it is one of params, tokens, gpus, mfu or time",
                            name);
    }
    for (int i = 0; i < TL_TIME_COUNT; i++)
        missing += !given[i];
    /* "-g H100" without a number says which device, not how many. */
    if (given[TL_TIME_GPUS] && !cli->options.devices_counted &&
        (asked == TL_TIME_GPUS || (asked < 0 && missing == 0))) {
        given[TL_TIME_GPUS] = false;
        missing++;
    }
    for (int i = 0; i < TL_TIME_COUNT; i++)
        if (!given[i]) {
            size_t at = strlen(list);
            snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", tl_time_names[i]);
            last = i;
        }
    if (asked >= 0 && given[asked])
        return tl_usage(cli, "--solve %s, and yet it is given: leave it out%s", tl_time_names[asked],
                        asked == TL_TIME_GPUS ? " (name the device without a number: -g H100)" : "");
    if (missing == 0)
        return tl_usage(cli, "all of params, tokens, gpus, mfu and time are given: leave one out to solve for it");
    if (missing > 1)
        return tl_usage(cli, "four of params, tokens, gpus, mfu and time give the fifth; missing: %s", list);
    t->solve = (tl_time_input)last;
    return TL_EXIT_OK;
}

/* A real count to a whole one; false beyond 2^100, which no run is near. */
static bool whole(double value, tl_u128 *count) {
    if (!(value >= 0) || value > 0x1p100)
        return false;
    *count = (tl_u128)value;
    return true;
}

/* time = 6·P·tokens / (devices·peak·MFU), solved for the one left out.
 * 6: 2 FLOPs a parameter and token forward, 4 backward (Kaplan et al. 2020, arXiv:2001.08361, section 2.1). */
static int compute(const tl_cli *cli, tl_time *t) {
    double work = t->seconds * t->peak * t->mfu * (double)t->devices; /* FLOPs that can be done in the time */
    double params = tl_u128_double(t->active), tokens = tl_u128_double(t->tokens);
    switch (t->solve) {
    case TL_TIME_PARAMS:
        if (!whole(work / (TL_NAPKIN_FLOPS * tokens), &t->params))
            return tl_usage(cli, "the parameters are beyond counting");
        t->active = t->params;
        break;
    case TL_TIME_TOKENS:
        if (!whole(work / (TL_NAPKIN_FLOPS * params), &t->tokens))
            return tl_usage(cli, "the tokens are beyond counting");
        break;
    case TL_TIME_GPUS: {
        double devices = ceil(TL_NAPKIN_FLOPS * params * tokens / (t->seconds * t->peak * t->mfu));
        if (!(devices < 1e15))
            return tl_usage(cli, "it would take %.3g devices, more than there can be", devices);
        t->devices = devices < 1 ? 1 : (int64_t)devices;
        break;
    }
    default:
        break;
    }
    if (t->params == 0 || t->tokens == 0)
        return tl_usage(cli, "not one %s fits in that time", t->params == 0 ? "parameter" : "token");
    if (!tl_mul_u128(t->active, t->tokens, &t->flops) || !tl_mul_u128(t->flops, TL_NAPKIN_FLOPS, &t->flops))
        return tl_usage(cli, "6 x params x tokens is more than 2^128 FLOPs");
    double flops = tl_u128_double(t->flops), rate = (double)t->devices * t->peak;
    if (t->solve == TL_TIME_MFU)
        t->mfu = flops / (rate * t->seconds);
    else if (t->solve == TL_TIME_TIME)
        t->seconds = flops / (rate * t->mfu);
    if (!isfinite(t->seconds) || !isfinite(t->mfu) || t->seconds <= 0)
        return tl_usage(cli, "these inputs give no finite time");
    t->device_hours = t->seconds / 3600 * (double)t->devices;
    t->amount = t->device_hours * t->price;
    return TL_EXIT_OK;
}

static int run(tl_cli *cli) {
    tl_time t = {.solve = TL_TIME_COUNT};
    int status = choose(cli, &t);
    t.precision = TL_PRECISION_BF16;
    if (tl_given(cli, TL_OPTION_PRECISION))
        t.precision = cli->options.at[TL_OPTION_PRECISION].choice;
    t.tokens = cli->options.at[TL_OPTION_TOKENS].count;
    t.mfu = cli->options.at[TL_OPTION_MFU].real;
    t.price = cli->options.at[TL_OPTION_PRICE].real;
    if (status == TL_EXIT_OK && t.solve != TL_TIME_TIME)
        status = read_time(cli, &t);
    if (status == TL_EXIT_OK)
        status = read_devices(cli, &t);
    if (status == TL_EXIT_OK && t.solve != TL_TIME_PARAMS)
        status = read_params(cli, &t);
    if (status == TL_EXIT_OK)
        status = compute(cli, &t);
    return status == TL_EXIT_OK ? tl_time_report(cli, &t) : status;
}

const tl_verb tl_verb_time = {
    .name = "time",
    .summary = "the napkin: parameters, tokens, devices, MFU give time and cost; solves for any",
    .group = TL_GROUP_BEFORE,
    .arguments = "[MODEL]",
    .words = NULL,
    .details = "time = 6·P·tokens / (devices·peak·MFU)\n\n"
               "Give four of params (or a MODEL), tokens, gpus, mfu and time (--days, --time);\n"
               "the fifth is solved for. The peak is the device's dense rate at --precision\n"
               "(here bf16 unless said), or --peak. Where the answer cannot be (an MFU above 1)\n"
               "the exit status is 3.\n\n"
               "How long, how many devices, at what MFU:\n"
               "  tally time --params 70B --tokens 15T --gpus 1024xH100 --mfu 0.5\n"
               "  tally time --params 70B --tokens 15T --gpus H100 --mfu 0.4 --days 30\n"
               "  tally time --params 70B --tokens 15T --gpus 2048xH100 --days 90",
    .takes = TL_TAKES(GPUS) | TL_TAKES(TOKENS) | TL_TAKES(PRECISION) | TL_TAKES(MFU) | TL_TAKES(PRICE) |
             TL_TAKES(PARAMS) | TL_TAKES(PEAK),
    .does = {[TL_OPTION_PRECISION] = TL_DOES(TL_PRECISION_FP32) | TL_DOES(TL_PRECISION_BF16) |
                                     TL_DOES(TL_PRECISION_BF16_MIXED) | TL_DOES(TL_PRECISION_FP16_MIXED) |
                                     TL_DOES(TL_PRECISION_FP8_MIXED)},
    .says = {[TL_OPTION_PRECISION] = "Whose peak: bf16 (default), fp32, bf16-mixed, fp16-mixed, fp8-mixed"},
    .own = own_options,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
