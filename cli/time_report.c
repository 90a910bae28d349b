/* cli/time_report.c: what tally time prints. */
#include <string.h>

#include "time_account.h"

/* "70e9", "989.4e12", "1024": as one would type it, powers of ten in threes. */
static const char *brief(double value, char *buffer) {
    static const char *const powers[] = {"", "e3", "e6", "e9", "e12", "e15", "e18", "e21", "e24", "e27", "e30"};
    char plain[TL_TEXT];
    int power = 0;
    if (value < 1e5)
        return tl_text_plain(value, value < 10 ? 4 : 1, buffer);
    while (value >= 1000 && power < 10) {
        value /= 1000;
        power++;
    }
    snprintf(buffer, TL_TEXT, "%.40s%s", tl_text_plain(value, value < 100 ? 3 : 1, plain), powers[power]);
    return buffer;
}

/* "1.2437e7" */
static const char *power_of_ten(double value, char *buffer) {
    char text[TL_TEXT];
    snprintf(text, sizeof text, "%.4e", value);
    char *e = strchr(text, 'e');
    int exponent = 0;
    if (!e || sscanf(e + 1, "%d", &exponent) != 1 || (exponent >= 0 && exponent < 4))
        snprintf(buffer, TL_TEXT, "%.5g", value);
    else
        snprintf(buffer, TL_TEXT, "%.*se%d", (int)(e - text), text, exponent);
    return buffer;
}

static const char *tera(double rate, char *buffer) {
    snprintf(buffer, TL_TEXT, rate >= 1e11 ? "%.4g TFLOP/s" : "%.3g TFLOP/s", rate / 1e12);
    if (rate >= 1e16)
        snprintf(buffer, TL_TEXT, "%.0f TFLOP/s", rate / 1e12);
    return buffer;
}

/* "0.3998"; what would be 0.0000 in such digits as a power of ten. */
static const char *share(double mfu, char *buffer) {
    if (mfu >= 1e-3)
        return tl_text_plain(mfu, 4, buffer);
    snprintf(buffer, TL_TEXT, "%.3g", mfu);
    return buffer;
}

/* "GPU-hours" where the vendor calls them so. */
static const char *hours_word(const tl_time *t) {
    const char *vendor = t->accelerator ? t->accelerator->vendor : "";
    return strcmp(vendor, "NVIDIA") == 0 || strcmp(vendor, "AMD") == 0 ? "GPU-hours" : "device-hours";
}

/* The sparse figure's device, when the peak given by hand is one (within 1 %); its dense rate in *dense. A dense figure
 * of another device at the same precision is no hint. */
static const tl_accelerator *sparse_figure(const tl_time *t, double *dense) {
    const tl_accelerator *found = NULL;
    if (!t->peak_by_hand)
        return NULL;
    for (int i = 0; i < tl_accelerator_count(); i++) {
        const tl_accelerator *each = tl_accelerator_at(i);
        double rate = each->rate[t->rate], sparse = rate * each->sparse_factor;
        if (t->accelerator && each != t->accelerator)
            continue;
        if (rate > 0 && t->peak > rate * 0.99 && t->peak < rate * 1.01)
            return NULL;
        if (!found && sparse > 0 && t->peak > sparse * 0.99 && t->peak < sparse * 1.01) {
            found = each;
            *dense = rate;
        }
    }
    return found;
}

/* `all` names every source of the device; else the first of them, which is the vendor's own where there is one. */
static void peak_source(const tl_time *t, bool all, char *buffer, size_t size) {
    double dense = 0;
    const tl_accelerator *sparse = sparse_figure(t, &dense);
    if (!t->peak_by_hand && !t->accelerator) {
        snprintf(buffer, size, "this machine, %s, measured by `tally machine'", tl_rate_name(t->rate));
    } else if (!t->peak_by_hand) {
        size_t length = strcspn(t->accelerator->source, all ? "" : ";");
        snprintf(buffer, size, "%s %s dense, %.*s", t->accelerator->name, tl_rate_name(t->rate), (int)length,
                 t->accelerator->source);
    } else if (sparse) {
        snprintf(buffer, size, "--peak, by hand: the figure with 2:4 sparsity of %s", sparse->name);
    } else {
        snprintf(buffer, size, "by hand (--peak)");
    }
}

/* The answer's text when the MFU is `mfu` and all else stays. */
static const char *answer_at(const tl_time *t, double mfu, char *buffer) {
    double scale = mfu / t->mfu;
    switch (t->solve) {
    case TL_TIME_PARAMS:
        return tl_text_count(tl_u128_double(t->params) * scale, buffer);
    case TL_TIME_TOKENS:
        return tl_text_count(tl_u128_double(t->tokens) * scale, buffer);
    case TL_TIME_GPUS: {
        double devices = tl_u128_double(t->flops) / (t->peak * mfu * t->seconds);
        int64_t up = (int64_t)devices + ((double)(int64_t)devices < devices);
        return tl_text_grouped((tl_u128)(up > 0 ? up : 1), buffer);
    }
    default:
        return tl_text_duration(t->seconds / scale, buffer);
    }
}

/* "0.35: 205.6 days  0.40: 179.9  …": the unit once, as long as it stays the same. */
static void out_ladder(const tl_cli *cli, const tl_time *t) {
    double rungs[5], middle = t->mfu;
    char text[512] = "", unit[TL_TEXT] = "", rung[TL_TEXT], step[TL_TEXT];
    size_t at = 0;
    if (t->solve == TL_TIME_MFU)
        middle = t->mfu < 0.65 ? t->mfu : 0.5;
    for (int i = 0; i < 5; i++)
        rungs[i] = middle < 0.2 ? middle * (0.5 + 0.25 * i) : middle + 0.05 * (i - 3);
    for (int i = 0; i < 5 && at < sizeof text; i++) {
        if (rungs[i] > 1)
            continue;
        answer_at(t, rungs[i], rung);
        snprintf(step, sizeof step, middle < 0.2 ? "%.3g" : "%.2f", rungs[i]);
        char *days = strstr(rung, " days");
        if (days)
            days[2] = '\0'; /* "205.6 d": so that five fit into 80 columns */
        char *space = strchr(rung, ' ');
        if (space && strcmp(space, unit) == 0)
            *space = '\0';
        else if (space)
            snprintf(unit, sizeof unit, "%s", space);
        int n = snprintf(text + at, sizeof text - at, "%s%s: %s", at ? "  " : "", step, rung);
        at += n > 0 ? (size_t)n : 0;
    }
    tl_out_item(cli, "MFU", "%s%s", text, t->solve == TL_TIME_GPUS ? " devices" : "");
}

static void out_formula(const tl_cli *cli, const tl_time *t) {
    char p[TL_TEXT], k[TL_TEXT], n[TL_TEXT], peak[TL_TEXT], mfu[TL_TEXT], s[TL_TEXT];
    brief(tl_u128_double(t->active), p), brief(tl_u128_double(t->tokens), k), brief((double)t->devices, n),
        brief(t->peak, peak);
    snprintf(mfu, sizeof mfu, t->mfu < 0.1 ? "%.3g" : "%.2f", t->mfu);
    power_of_ten(t->seconds, s);
    switch (t->solve) {
    case TL_TIME_PARAMS:
        tl_out_item(cli, "P", "= time·devices·peak·MFU / (6·tokens)\n= %s·%s·%s·%s / (6·%s) = %s", s, n, peak, mfu, k,
                    p);
        break;
    case TL_TIME_TOKENS:
        tl_out_item(cli, "tokens", "= time·devices·peak·MFU / (6·P)\n= %s·%s·%s·%s / (6·%s) = %s", s, n, peak, mfu, p,
                    k);
        break;
    case TL_TIME_GPUS:
        tl_out_item(cli, "devices", "= 6·P·tokens / (time·peak·MFU)\n= 6·%s·%s / (%s·%s·%s) = %s, rounded up", p, k, s,
                    peak, mfu, n);
        break;
    case TL_TIME_MFU:
        tl_out_item(cli, "MFU", "= 6·P·tokens / (devices·peak·time)\n= 6·%s·%s / (%s·%s·%s) = %.4g", p, k, n, peak, s,
                    t->mfu);
        break;
    default:
        tl_out_item(cli, "time", "= 6·P·tokens / (devices·peak·MFU)\n= 6·%s·%s / (%s·%s·%s) = %s s", p, k, n, peak, mfu,
                    s);
        break;
    }
}

static void out_peak(const tl_cli *cli, const tl_time *t) {
    char rate[TL_TEXT], other[TL_TEXT], answer[TL_TEXT], source[256];
    double dense = 0;
    const tl_accelerator *sparse = sparse_figure(t, &dense);
    peak_source(t, false, source, sizeof source);
    tera(t->peak, rate);
    if (sparse) {
        tl_out_item(cli, "peak",
                    "%s (--peak): this is the figure WITH 2:4 sparsity of %s; its dense %s peak is %s, which says %s%s",
                    rate, sparse->name, tl_rate_name(t->rate), tera(dense, other),
                    t->solve == TL_TIME_MFU ? "MFU " : "",
                    t->solve == TL_TIME_MFU ? share(t->mfu * t->peak / dense, answer)
                                            : answer_at(t, t->mfu * dense / t->peak, answer));
    } else if (t->peak_by_hand && t->dense > 0 && t->peak > t->dense * 1.01) {
        tl_out_item(cli, "peak", "%s (--peak): more than the dense %s peak of %s, %s", rate, tl_rate_name(t->rate),
                    t->device_name, tera(t->dense, other));
    } else if (!t->peak_by_hand && t->accelerator && t->accelerator->sparse_factor > 1) {
        double figure = t->peak * t->accelerator->sparse_factor;
        tl_out_item(cli, "peak", "%s: %s (%s is with 2:4 sparsity; it would say %s%s)", rate, source,
                    tera(figure, other), t->solve == TL_TIME_MFU ? "MFU " : "",
                    t->solve == TL_TIME_MFU ? share(t->mfu * t->peak / figure, answer)
                                            : answer_at(t, t->mfu * figure / t->peak, answer));
    } else {
        tl_out_item(cli, "peak", "%s: %s", rate, source);
    }
}

static const char *times(double ratio, char *buffer) {
    if (ratio >= 1000)
        return tl_text_count(ratio, buffer);
    snprintf(buffer, TL_TEXT, ratio >= 9.95 ? "%.0f" : ratio >= 0.995 ? "%.1f" : "%.2g", ratio);
    return buffer;
}

/* Known runs and thresholds.
 * GPT-3: 3.14e23 (Brown et al. 2020, arXiv:2005.14165, table D.1). GPT-4: about 2e25, never published (Epoch AI's estimate).
 * EU: Regulation (EU) 2024/1689, article 51(2). US: Executive Order 14110, section 4.2(b)(i), revoked 20 January 2025. */
static void out_flops(const tl_cli *cli, const tl_time *t) {
    char all[TL_TEXT], gpt3[TL_TEXT], gpt4[TL_TEXT];
    const char *limits = "above 1e25 (EU AI Act) and 1e26 (US EO 14110, revoked 2025)";
    double flops = tl_u128_double(t->flops);
    if (flops < 1e25)
        limits = "below 1e25 (EU AI Act) and 1e26 (US EO 14110, revoked 2025)";
    else if (flops < 1e26)
        limits = "above 1e25 (EU AI Act), below 1e26 (US EO 14110, revoked 2025)";
    times(flops / 3e23, gpt3), times(flops / 2e25, gpt4);
    if (flops < 1e6)
        tl_out_item(cli, "FLOPs", "%s, far below GPT-3 (3e23)", tl_text_grouped(t->flops, all));
    else if (flops < 3e20)
        tl_out_item(cli, "FLOPs", "%s, far below GPT-3 (3e23)", tl_text_power(flops, all));
    else
        tl_out_item(cli, "FLOPs", "%s: %s × GPT-3 (3e23), %s × GPT-4 (2e25, rumoured);\n%s", tl_text_power(flops, all),
                    gpt3, gpt4, limits);
}

/* The model to go on with: the one named, or the one of the catalogue within 5 % of the parameters. */
static bool next_model(const tl_time *t, char *name, size_t size) {
    double best = 0.05, wanted = tl_u128_double(t->params);
    bool found = false;
    if (t->model[0]) {
        snprintf(name, size, "%s", t->model);
        return true;
    }
    for (int i = 0; i < tl_catalogue_count(); i++) {
        tl_model model;
        tl_error error = {TL_OK, ""};
        tl_u128 total = 0;
        if (tl_catalogue_model(tl_catalogue_name(i), &model, &error) != TL_OK ||
            tl_cli_model_parameters(&model, &total, &error) != TL_OK)
            continue;
        double off = tl_u128_double(total) / wanted - 1;
        off = off < 0 ? -off : off;
        if (off < best) {
            best = off;
            found = true;
            snprintf(name, size, "%s", tl_catalogue_name(i));
        }
    }
    return found;
}

static void out_next(const tl_cli *cli, const tl_time *t) {
    char name[128] = "", tokens[TL_TEXT], devices[128];
    const char *typed = cli->options.at[TL_OPTION_GPUS].text;
    if (!t->accelerator)
        return;
    snprintf(devices, sizeof devices, "%lldx%s", (long long)t->devices, t->device_name);
    if (cli->options.devices_counted && strlen(typed) < sizeof devices)
        snprintf(devices, sizeof devices, "%s", typed);
    brief(tl_u128_double(t->tokens), tokens);
    if (tl_given(cli, TL_OPTION_TOKENS) && strlen(cli->options.at[TL_OPTION_TOKENS].text) < sizeof tokens)
        snprintf(tokens, sizeof tokens, "%s", cli->options.at[TL_OPTION_TOKENS].text);
    if (tl_verb_find("plan") && next_model(t, name, sizeof name))
        tl_out_item(cli, "next:", "tally plan %s -t %s -g %s\n  (adds attention, memory and what limits it)", name,
                    tokens, devices);
    else
        tl_out_item(cli, "next:", "tally fit model -g %s\n  (the largest model whose state fits there)", devices);
}

static void out_answer(const tl_cli *cli, const tl_time *t) {
    char answer[160], rest[320], value[TL_TEXT], hours[TL_TEXT], money[TL_TEXT], price[TL_TEXT], time[TL_TEXT],
        aside[96] = "";
    double days = t->seconds / 86400;
    tl_text_count(t->device_hours, hours), tl_text_money(t->amount, money), tl_text_money(t->price, price);
    tl_text_duration(t->seconds, time);
    switch (t->solve) {
    case TL_TIME_PARAMS:
        snprintf(answer, sizeof answer, "%s parameters", tl_text_count(tl_u128_double(t->params), value));
        break;
    case TL_TIME_TOKENS:
        snprintf(answer, sizeof answer, "%s tokens", tl_text_count(tl_u128_double(t->tokens), value));
        break;
    case TL_TIME_GPUS:
        snprintf(answer, sizeof answer, "%s device%s", tl_text_grouped((tl_u128)t->devices, value),
                 t->devices == 1 ? "" : "s");
        break;
    case TL_TIME_MFU:
        snprintf(answer, sizeof answer, t->mfu > 1 ? "cannot be: it would take an MFU of %s" : "MFU %s",
                 share(t->mfu, value));
        break;
    default:
        snprintf(answer, sizeof answer, "%s", time);
        break;
    }
    if (t->solve != TL_TIME_TIME)
        snprintf(aside, sizeof aside, "in %s; ", time);
    else if (days >= 730)
        snprintf(aside, sizeof aside, "%s days; ", tl_text_grouped((tl_u128)(days + 0.5), value));
    else if (days >= 14)
        snprintf(aside, sizeof aside, "%.1f weeks; ", days / 7);
    else if (days >= 2)
        snprintf(aside, sizeof aside, "%.0f hours; ", days * 24);
    snprintf(rest, sizeof rest, "(%s%s %s; %s at %s/h)", aside, hours, hours_word(t), money, price);
    tl_out_answer(cli, answer, rest);
}

static void leaves_out(const tl_time *t, tl_notes *notes) {
    (void)t;
    tl_notes_add(notes, "attention over the sequence (its FLOPs grow with T²)");
    tl_notes_add(notes, "recomputation");
    tl_notes_add(notes, "restarts and evaluation");
    tl_notes_add(notes, "whether it fits in memory");
}

static int print_record(const tl_cli *cli, const tl_time *t, const tl_notes *left_out) {
    static const tl_column columns[] = {
        {"solved_for", "solved for", false, false, false},
        {"parameters", "parameters", true, false, false},
        {"parameters_active", "active parameters", true, false, false},
        {"tokens", "tokens", true, false, false},
        {"devices", "devices", true, false, false},
        {"device", "device", false, false, false},
        {"precision", "precision", false, false, false},
        {"peak_flop_per_s", "peak", true, false, false},
        {"peak_source", "peak source", false, false, false},
        {"mfu", "MFU", true, false, false},
        {"possible", "possible", false, false, false},
        {"flops", "FLOPs", true, false, false},
        {"seconds", "time", true, false, false},
        {"days", "days", true, false, false},
        {"device_hours", "device-hours", true, false, false},
        {"price_per_device_hour", "price per device-hour", true, false, false},
        {"currency", NULL, false, false, false},
        {"amount", "cost", true, false, false},
    };
    static const char *const precisions[] = {"fp32", "bf16", "bf16-mixed", "fp16-mixed", "fp8-mixed"};
    char text[TL_TEXT], source[256];
    tl_grid *grid = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    peak_source(t, true, source, sizeof source);
    tl_grid_string(grid, tl_time_names[t->solve], NULL);
    tl_grid_unsigned(grid, t->params, tl_text_grouped(t->params, text));
    tl_grid_unsigned(grid, t->active, tl_text_grouped(t->active, text));
    tl_grid_unsigned(grid, t->tokens, tl_text_grouped(t->tokens, text));
    tl_grid_integer(grid, t->devices, NULL);
    tl_grid_string(grid, t->device_name[0] ? t->device_name : NULL, NULL);
    tl_grid_string(grid, precisions[t->precision], NULL);
    tl_grid_real(grid, t->peak, tera(t->peak, text));
    tl_grid_string(grid, source, NULL);
    tl_grid_real(grid, t->mfu, share(t->mfu, text));
    tl_grid_boolean(grid, t->mfu <= 1, t->mfu <= 1 ? "yes" : "no: MFU above 1");
    tl_grid_unsigned(grid, t->flops, tl_text_power(tl_u128_double(t->flops), text));
    tl_grid_real(grid, t->seconds, tl_text_duration(t->seconds, text));
    tl_grid_real(grid, t->seconds / 86400, tl_text_plain(t->seconds / 86400, 4, text));
    tl_grid_real(grid, t->device_hours, tl_text_count(t->device_hours, text));
    tl_grid_real(grid, t->price, tl_text_money(t->price, text));
    tl_grid_string(grid, "USD", NULL);
    tl_grid_real(grid, t->amount, tl_text_money(t->amount, text));
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_grid_json_row(grid, 0, json);
            tl_json_put_string(json, "formula",
                               t->active == t->params ? "6·P·tokens = time·devices·peak·MFU"
                                                      : "6·P·tokens = time·devices·peak·MFU, P: parameters_active");
            tl_notes_json(json, "assumptions", &t->assumptions);
            tl_notes_json(json, "leaves_out", left_out);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print_record(cli, grid);
    }
    tl_grid_free(grid);
    return status;
}

/* Has the catalogue a doubt about the device that could touch its rate? What torch or the driver show of the memory
 * does not. */
static bool is_doubtful(const tl_accelerator *a) {
    return a->uncertain && a->uncertain[0] && !strstr(a->uncertain, "torch") && !strstr(a->uncertain, "nvidia-smi");
}

int tl_time_report(tl_cli *cli, tl_time *t) {
    tl_notes left_out = {0};
    char other[TL_TEXT];
    int status = TL_EXIT_OK;
    leaves_out(t, &left_out);
    if (!tl_given(cli, TL_OPTION_PRECISION) && !t->peak_by_hand)
        tl_notes_add(&t->assumptions, "--precision bf16");
    if (t->rate == TL_RATE_FP32 && t->accelerator && !t->peak_by_hand && t->accelerator->rate[TL_RATE_TF32] > t->peak)
        tl_notes_add(&t->assumptions, "fp32 proper; with TF32 the peak would be %s",
                     tera(t->accelerator->rate[TL_RATE_TF32], other));
    if (!tl_given(cli, TL_OPTION_PRICE))
        tl_notes_add(&t->assumptions, "--price %.2f (US dollars a device-hour)", t->price);
    tl_notes_add(&t->assumptions, t->active == t->params ? "a dense model: 6 FLOPs a parameter and token"
                                                         : "6 FLOPs an active parameter and token");
    if (t->accelerator && !t->peak_by_hand && is_doubtful(t->accelerator))
        tl_notes_add(&t->assumptions, "to re-check for %s: %s", t->accelerator->name, t->accelerator->uncertain);
    if (cli->format != TL_FORMAT_TABLE) {
        status = print_record(cli, t, &left_out);
    } else {
        out_answer(cli, t);
        out_formula(cli, t);
        out_peak(cli, t);
        if (t->solve != TL_TIME_MFU)
            out_ladder(cli, t);
        out_flops(cli, t);
        tl_notes_out(cli, "assumed", &t->assumptions);
        tl_notes_out(cli, "leaves out", &left_out);
        out_next(cli, t);
    }
    if (status == TL_EXIT_OK && t->mfu > 1) {
        tl_say(cli, "an MFU of %.3g cannot be: no run computes faster than the peak", t->mfu);
        return TL_EXIT_VIOLATED;
    }
    return status;
}
