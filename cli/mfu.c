/* cli/mfu.c: tally mfu, MFU and HFU of any run from its speed: model, devices and tokens/s, with the formula and what may be
 * wrong. The FLOPs of a token are those of the model's own code, run on meta; 6·P stands beside them.
 *
 * --json: {"schema","verb","model","parameters","parameters_active","devices","device","precision","seq","tokens_per_second",
 *   "peak_flop_per_s","peak_source","attention","flops_per_token","flops_per_token_full","flops_per_token_causal",
 *   "hardware_flops_per_token","flop_per_s_per_device","mfu","mfu_full","mfu_causal","mfu_6p","hfu","possible","formula",
 *   "may_be_wrong","assumptions","leaves_out"}. What the input does not say is null.
 */
#include <math.h>
#include <string.h>

#include "plan_request.h"

enum { OWN_SPEED, OWN_STEP, OWN_ACHIEVED };

static const struct argp_option own_options[] = {
    {"tokens-per-second", TL_OWN(OWN_SPEED), "N", 0, "Speed of the whole run, over all devices: 1.2M", 0},
    {"step-seconds", TL_OWN(OWN_STEP), "S", 0, "The same by the time of a step of --global-batch sequences", 0},
    {"achieved", TL_OWN(OWN_ACHIEVED), "FLOP/s", 0, "Model FLOP/s of one device, without a MODEL: 420e12, 420T", 0},
    {0},
};

typedef struct reading {
    tl_cli *cli;
    tl_request request;
    tl_plan plan; /* of one device, one micro-batch */
    bool has_model, has_plan;
    tl_u128 params, active;
    int64_t devices;
    char device[64];
    double peak, dense, speed, achieved; /* achieved: model FLOP/s of a device in the convention asked for */
    char source[320];
    double per_token, full, causal, hardware; /* FLOPs; 0: not known */
    double mfu, mfu_full, mfu_causal, mfu_6p, hfu;
    tl_notes wrong, left_out;
} reading;

/* ---- inputs ---- */

/* "11000.5", or, of tokens/s, a count as "1.2M"; of FLOP/s a rate. */
static int read_positive(const tl_cli *cli, int own, const char *name, double *value) {
    tl_error error = {TL_OK, ""}, plain = {TL_OK, ""};
    const char *text = cli->own[own];
    tl_u128 count = 0;
    tl_status status = own == OWN_ACHIEVED ? tl_parse_rate(text, value, &error)
                                           : tl_parse_number(text, 0, 1e30, value, own == OWN_SPEED ? &plain : &error);
    if (status != TL_OK && own == OWN_SPEED) {
        status = tl_parse_count(text, &count, &error);
        *value = tl_u128_double(count);
    }
    if (status != TL_OK)
        return tl_usage(cli, "--%s: %s", name, error.message);
    return *value > 0 ? TL_EXIT_OK : tl_usage(cli, "--%s %s: it is more than 0", name, text);
}

/* What would change nothing. */
static int refuse_idle(const reading *r) {
    static const tl_option of_a_model[] = {TL_OPTION_SEQ, TL_OPTION_ATTENTION, TL_OPTION_RECOMPUTE, TL_OPTION_FLOPS};
    const tl_cli *cli = r->cli;
    for (size_t i = 0; i < sizeof of_a_model / sizeof of_a_model[0] && !r->has_model; i++)
        if (tl_given(cli, of_a_model[i]) && !(of_a_model[i] == TL_OPTION_SEQ && cli->own[OWN_STEP]))
            return tl_usage(cli, "--%s changes nothing without a MODEL", tl_option_name(of_a_model[i]));
    return tl_given(cli, TL_OPTION_GLOBAL_BATCH) && !cli->own[OWN_STEP]
               ? tl_usage(cli, "--global-batch changes nothing without --step-seconds")
               : TL_EXIT_OK;
}

static int check_inputs(reading *r) {
    const tl_cli *cli = r->cli;
    const int ways = !!cli->own[OWN_SPEED] + !!cli->own[OWN_STEP] + !!cli->own[OWN_ACHIEVED];
    r->has_model = cli->n_arguments > 0;
    if (ways != 1)
        return tl_usage(cli, "one of --tokens-per-second, --step-seconds and --achieved says how fast the run is%s",
                        ways ? ", not several" : "");
    if (r->has_model && tl_given(cli, TL_OPTION_PARAMS))
        return tl_usage(cli, "MODEL %s and --params %s both say how many parameters: give one", cli->arguments[0],
                        cli->options.at[TL_OPTION_PARAMS].text);
    if (cli->own[OWN_ACHIEVED] && (r->has_model || tl_given(cli, TL_OPTION_PARAMS)))
        return tl_usage(cli, "--achieved is FLOP/s already: it needs no model");
    if (!cli->own[OWN_ACHIEVED] && !r->has_model && !tl_given(cli, TL_OPTION_PARAMS))
        return tl_usage(cli, "tokens/s become FLOP/s by a model: name one, or give --params");
    if (!r->has_model && cli->own[OWN_STEP] && !tl_given(cli, TL_OPTION_SEQ))
        return tl_usage(cli, "a step's tokens are --global-batch times --seq: give --seq");
    if (cli->own[OWN_STEP] && !tl_given(cli, TL_OPTION_GLOBAL_BATCH))
        return tl_usage(cli,
                        "--step-seconds is of a step of --global-batch sequences: give that, accumulation included");
    return refuse_idle(r);
}

static int read_device(reading *r) {
    const tl_cli *cli = r->cli;
    if (cli->options.devices_status != TL_OK) {
        int status = tl_cli_devices_by_hand(cli, &r->devices, r->device, sizeof r->device);
        if (status != TL_EXIT_OK)
            return status;
        tl_cli_formats(cli, &r->request.options.precision, &r->request.options.autocast);
        r->request.options.optimizer = tl_cli_optimizer(cli);
        r->request.options.recompute = tl_cli_recompute(cli);
        r->request.options.engine = tl_cli_engine(cli);
        r->request.options.peak = cli->options.at[TL_OPTION_PEAK].real;
    } else {
        int status = tl_request_devices(cli, &r->request);
        if (status != TL_EXIT_OK)
            return status;
        r->devices = r->request.options.devices.count;
        snprintf(r->device, sizeof r->device, "%s", r->request.device);
        r->request.defaults.n = 0; /* of training */
        if (!tl_given(cli, TL_OPTION_GPUS))
            tl_notes_add(&r->request.defaults, "-g here");
        if (!tl_given(cli, TL_OPTION_PRECISION))
            tl_notes_add(&r->request.defaults, "--precision %s", tl_precision_name(r->request.options.precision));
        tl_cli_devices_assumed(cli, &r->request.defaults);
    }
    tl_plan_options *o = &r->request.options;
    const tl_accelerator *a = o->devices.accelerator;
    r->dense = a ? a->rate[tl_cli_precision_rate((int)o->precision)] : 0;
    r->peak = o->peak;
    if (o->peak > 0)
        tl_plan_peak_by_hand(&o->devices, o->precision, o->peak, r->source, sizeof r->source);
    else
        r->peak = tl_plan_peak_rate(&o->devices, o->machine, o->precision, r->source, sizeof r->source);
    if (r->peak <= 0)
        return tl_usage(cli, "the dense %s peak of %s is not known%s: give --peak FLOP/s",
                        tl_precision_name(o->precision), r->device,
                        o->devices.here ? " (`tally machine' measures it)" : "");
    return TL_EXIT_OK;
}

/* FLOPs of a token: of the model's step on one device, which more devices only share out. */
static int read_model(reading *r) {
    const tl_cli *cli = r->cli;
    tl_error error = {TL_OK, ""};
    tl_plan_options *o = &r->request.options;
    if (!r->has_model) {
        r->params = r->active = cli->options.at[TL_OPTION_PARAMS].count;
        return TL_EXIT_OK;
    }
    r->request.free_batch = true; /* a token's FLOPs are the same in any batch */
    int status = tl_request_model(cli, cli->arguments[0], &r->request);
    if (status != TL_EXIT_OK)
        return status;
    if (o->model.family == TL_FAMILY_CRUNCHER)
        return tl_usage(cli, "%s has no tokens", o->model.name);
    tl_plan_options one = *o;
    one.devices.count = 1;
    one.global_batch = one.micro_batch;
    one.mfu = 0;
    if (tl_plan_make(&one, &r->plan, &error) != TL_OK)
        return tl_failed(cli, &error);
    const double tokens = (double)one.micro_batch * (double)one.seq;
    r->params = (tl_u128)r->plan.parameters.unique;
    r->active = (tl_u128)r->plan.parameters.active;
    r->full = tl_u128_double(r->plan.per_step) / tokens;
    r->causal = tl_u128_double(r->plan.per_step_causal) / tokens;
    r->hardware = tl_u128_double(r->plan.hardware_per_step) / tokens;
    r->has_plan = true;
    return TL_EXIT_OK;
}

static int read_speed(reading *r) {
    const tl_cli *cli = r->cli;
    double seconds = 0;
    if (cli->own[OWN_ACHIEVED])
        return read_positive(cli, OWN_ACHIEVED, "achieved", &r->achieved);
    if (cli->own[OWN_SPEED])
        return read_positive(cli, OWN_SPEED, "tokens-per-second", &r->speed);
    int status = read_positive(cli, OWN_STEP, "step-seconds", &seconds);
    const int64_t seq = r->has_model ? r->request.options.seq : cli->options.at[TL_OPTION_SEQ].size;
    if (status == TL_EXIT_OK)
        r->speed = (double)cli->options.at[TL_OPTION_GLOBAL_BATCH].size * (double)seq / seconds;
    return status;
}

/* ---- the arithmetic ---- */

static bool causal(const reading *r) { return r->cli->options.at[TL_OPTION_FLOPS].choice == TL_FLOPS_CAUSAL; }

static void compute(reading *r) {
    const double rate = (double)r->devices * r->peak, six = TL_NAPKIN_FLOPS * tl_u128_double(r->active);
    if (r->achieved > 0) {
        r->mfu = r->achieved / r->peak;
        return;
    }
    r->per_token = !r->has_plan ? six : causal(r) ? r->causal : r->full;
    r->mfu = r->per_token * r->speed / rate;
    r->mfu_6p = six * r->speed / rate;
    r->mfu_full = r->full * r->speed / rate;
    r->mfu_causal = r->causal * r->speed / rate;
    r->hfu = r->hardware * r->speed / rate;
    r->achieved = r->mfu * r->peak;
}

static const char *share(double mfu, char *buffer) {
    if (mfu >= 1e-3)
        return tl_text_plain(mfu, 4, buffer);
    snprintf(buffer, TL_TEXT, "%.3g", mfu);
    return buffer;
}

/* What, if mistaken, would give another figure; each with that figure. */
static void suspect(reading *r) {
    char a[TL_TEXT], b[TL_TEXT];
    const tl_plan_options *o = &r->request.options;
    const tl_accelerator *acc = o->devices.accelerator;
    const double sparse = acc ? r->dense * acc->sparse_factor : 0;
    if (r->mfu > 1)
        tl_notes_add(&r->wrong,
                     "an MFU of %s cannot be: the speed, the devices, the precision or the peak is not this run's",
                     share(r->mfu, a));
    if (o->peak > 0 && sparse > 0 && o->peak > sparse * 0.99 && o->peak < sparse * 1.01)
        tl_notes_add(&r->wrong, "the peak is the 2:4-sparse figure: by the dense %.4g TFLOP/s MFU is %s",
                     r->dense / 1e12, share(r->mfu * r->peak / r->dense, a));
    else if (o->peak > 0 && r->dense > 0 && (o->peak > r->dense * 1.01 || o->peak < r->dense * 0.99))
        tl_notes_add(&r->wrong, "the peak is not %s's dense %.4g TFLOP/s, by which MFU is %s", r->device,
                     r->dense / 1e12, share(r->mfu * r->peak / r->dense, a));
    else if (o->peak <= 0 && sparse > 0)
        tl_notes_add(&r->wrong, "a tool that takes the 2:4-sparse figure, %.4g TFLOP/s, as the peak says %s",
                     sparse / 1e12, share(r->mfu * r->peak / sparse, a));
    if (r->speed > 0 && r->devices > 1 && r->mfu * (double)r->devices <= 1)
        tl_notes_add(&r->wrong, "tokens/s is taken as of all %lld devices: of each of them, MFU is %s",
                     (long long)r->devices, share(r->mfu * (double)r->devices, a));
    if (r->has_plan)
        tl_notes_add(&r->wrong, "convention: attention in full %s, causal T(T+1)/2 %s, 6·P alone %s",
                     share(r->mfu_full, a), share(r->mfu_causal, b), share(r->mfu_6p, (char[TL_TEXT]){0}));
    if (r->has_plan && r->hfu > r->mfu * 1.0001)
        tl_notes_add(&r->wrong, "HFU counts %s: as an MFU it is too high",
                     r->plan.again_per_step > 0 ? "what backward computes again"
                                                : "the masked half, which this attention computes and throws away");
    tl_notes_add(&r->left_out,
                 r->has_plan ? "arithmetic outside matrix products" : "HFU: what is recomputed is a model's");
    if (!r->has_plan && r->speed > 0)
        tl_notes_add(&r->left_out, "attention over the sequence: 6·P has none");
}

/* ---- what is printed ---- */

static void put_real(tl_grid *grid, double value) {
    char text[TL_TEXT];
    if (value > 0)
        tl_grid_real(grid, value, share(value, text));
    else
        tl_grid_null(grid);
}

static void put_count(tl_grid *grid, tl_u128 value) {
    char text[TL_TEXT];
    if (value > 0)
        tl_grid_unsigned(grid, value, tl_text_grouped(value, text));
    else
        tl_grid_null(grid);
}

/* FLOPs of a token; a whole number where the step's are a multiple of its tokens, as in every model here. */
static void put_flops(tl_grid *grid, double value) { put_count(grid, value > 0 ? (tl_u128)(value + 0.5) : 0); }

static const char formula_of_speed[] = "MFU = FLOPs a token · tokens/s / (devices · peak)",
                  formula_of_rate[] = "MFU = FLOP/s of a device / peak";

static int print_record(const reading *r) {
    static const tl_column columns[] = {
        {"model", "model", false, false, false},
        {"parameters", "parameters", true, false, false},
        {"parameters_active", "active parameters", true, false, false},
        {"devices", "devices", true, false, false},
        {"device", "device", false, false, false},
        {"precision", "precision", false, false, false},
        {"seq", "sequence", true, false, false},
        {"tokens_per_second", "tokens/s", true, false, false},
        {"peak_flop_per_s", "peak", true, false, false},
        {"peak_source", "peak source", false, false, false},
        {"attention", "attention", false, false, false},
        {"flops_per_token", "FLOPs a token", true, false, false},
        {"flops_per_token_full", "attention full", true, false, false},
        {"flops_per_token_causal", "attention causal", true, false, false},
        {"hardware_flops_per_token", "executed", true, false, false},
        {"flop_per_s_per_device", "FLOP/s a device", true, false, false},
        {"mfu", "MFU", true, false, false},
        {"mfu_full", "MFU full", true, false, false},
        {"mfu_causal", "MFU causal", true, false, false},
        {"mfu_6p", "MFU by 6·P", true, false, false},
        {"hfu", "HFU", true, false, false},
        {"possible", "possible", false, false, false},
    };
    const tl_cli *cli = r->cli;
    char text[TL_TEXT];
    tl_grid *grid = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    tl_grid_string(grid, r->has_model ? r->request.options.model.name : NULL, NULL);
    put_count(grid, r->params);
    put_count(grid, r->active);
    tl_grid_integer(grid, r->devices, NULL);
    tl_grid_string(grid, r->device[0] ? r->device : NULL, NULL);
    tl_grid_string(grid, tl_precision_name(r->request.options.precision), NULL);
    put_count(grid, r->has_plan ? (tl_u128)r->plan.seq : 0);
    put_real(grid, r->speed);
    tl_grid_real(grid, r->peak, tl_text_rate(r->peak, text));
    tl_grid_string(grid, r->source, NULL);
    tl_grid_string(grid, !r->has_plan ? NULL : causal(r) ? "causal" : "full", NULL);
    put_flops(grid, r->per_token);
    put_flops(grid, r->full);
    put_flops(grid, r->causal);
    put_flops(grid, r->hardware);
    tl_grid_real(grid, r->achieved, tl_text_rate(r->achieved, text));
    put_real(grid, r->mfu);
    put_real(grid, r->mfu_full);
    put_real(grid, r->mfu_causal);
    put_real(grid, r->mfu_6p);
    put_real(grid, r->hfu);
    tl_grid_boolean(grid, r->mfu <= 1, r->mfu <= 1 ? "yes" : "no: MFU above 1");
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_grid_json_row(grid, 0, json);
            tl_json_put_string(json, "formula", r->speed > 0 ? formula_of_speed : formula_of_rate);
            tl_notes_json(json, "may_be_wrong", &r->wrong);
            tl_notes_json(json, "assumptions", &r->request.defaults);
            tl_notes_json(json, "leaves_out", &r->left_out);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print_record(cli, grid);
    }
    tl_grid_free(grid);
    return status;
}

/* "989.4e12": in the power of ten one knows it by, or in its own where it is far from that. */
static const char *scaled(double value, int power, char *buffer) {
    const double part = value / pow(10, power);
    if (part >= 1e-3 && part < 1e5)
        snprintf(buffer, TL_TEXT, "%.5ge%d", part, power);
    else
        snprintf(buffer, TL_TEXT, "%.5g", value);
    return buffer;
}

static void print_page(const reading *r) {
    const tl_cli *cli = r->cli;
    char answer[96], rest[128] = "", a[TL_TEXT], b[TL_TEXT], c[TL_TEXT], rate[TL_TEXT];
    snprintf(answer, sizeof answer, r->mfu > 1 ? "cannot be: an MFU of %s" : "MFU %s", share(r->mfu, a));
    if (r->has_plan)
        snprintf(rest, sizeof rest, "(%s attention; HFU %s)", causal(r) ? "causal" : "full", share(r->hfu, b));
    else if (r->speed > 0)
        snprintf(rest, sizeof rest, "(by 6·P)");
    tl_out_answer(cli, answer, rest[0] ? rest : NULL);
    tl_text_rate(r->peak, rate);
    if (r->speed > 0)
        tl_out_item(cli, "MFU", "= FLOPs a token·tokens/s / (devices·peak)\n= %s·%.6g / (%lld·%s) = %s",
                    scaled(r->per_token, 9, b), r->speed, (long long)r->devices, scaled(r->peak, 12, c), a);
    else
        tl_out_item(cli, "MFU", "= FLOP/s of a device / peak\n= %s / %s = %s", scaled(r->achieved, 12, b),
                    scaled(r->peak, 12, c), a);
    tl_out_item(cli, "peak", "%s: %.*s", rate, (int)strcspn(r->source, ";"),
                r->source); /* the vendor's own comes first */
    if (r->speed > 0)
        tl_out_item(cli, "achieved", "%s a device", tl_text_rate(r->achieved, b));
    if (r->has_plan) {
        tl_out_item(cli, "a token", "%s model FLOPs: forward and backward once, %s attention, sequences of %lld",
                    tl_text_grouped((tl_u128)(r->per_token + 0.5), a), causal(r) ? "causal" : "full",
                    (long long)r->plan.seq);
        tl_out_item(cli, "executed", "%s: HFU = %s", tl_text_grouped((tl_u128)(r->hardware + 0.5), a),
                    share(r->hfu, b));
    } else if (r->speed > 0) {
        tl_out_item(cli, "a token", "%s FLOPs = 6·P", tl_text_grouped((tl_u128)(r->per_token + 0.5), a));
    }
    tl_notes_out(cli, "beware", &r->wrong);
    tl_notes_out(cli, "assumed", &r->request.defaults);
    tl_notes_out(cli, "leaves out", &r->left_out);
}

static int run(tl_cli *cli) {
    reading r = {.cli = cli};
    int status = check_inputs(&r);
    status = status ? status : read_device(&r);
    status = status ? status : read_model(&r);
    status = status ? status : read_speed(&r);
    if (status != TL_EXIT_OK)
        return status;
    compute(&r);
    if (!isfinite(r.mfu))
        return tl_usage(cli, "these inputs give no finite MFU");
    suspect(&r);
    if (cli->format == TL_FORMAT_TABLE)
        print_page(&r);
    else
        status = print_record(&r);
    if (status == TL_EXIT_OK && r.mfu > 1) {
        tl_say(cli, "an MFU of %.3g cannot be: no run computes faster than the peak", r.mfu);
        return TL_EXIT_VIOLATED;
    }
    return status;
}

const tl_verb tl_verb_mfu = {
    .name = "mfu",
    .summary = "MFU and HFU of any run: model, devices and tokens/s, with the formula",
    .group = TL_GROUP_AFTER,
    .arguments = "[MODEL]",
    .words = NULL,
    .details = "MFU = FLOPs a token · tokens/s / (devices · peak)\n\n"
               "The FLOPs of a token are counted by running the model's code on meta; with\n"
               "--params they are 6·P. HFU counts what is executed: --recompute and\n"
               "--attention flash change it. Above 1 the exit status is 3.\n\n"
               "  tally mfu llama-3-8b -g 8xH100 --seq 8192 --tokens-per-second 60000\n"
               "  tally mfu gpt2 -g 8xA100-80G --step-seconds 0.3 --global-batch 512\n"
               "  tally mfu --params 7B -g 64xA100-80G --tokens-per-second 200K\n"
               "  tally mfu --achieved 420e12 -g H100",
    .takes = TL_TAKES(GPUS) | TL_TAKES(SEQ) | TL_TAKES(GLOBAL_BATCH) | TL_TAKES(PARAMS) | TL_TAKES(PRECISION) |
             TL_TAKES(ATTENTION) | TL_TAKES(RECOMPUTE) | TL_TAKES(FLOPS) | TL_TAKES(PEAK),
    .own = own_options,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
