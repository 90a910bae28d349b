/* cli/gpus.c: tally gpus, the accelerators known here: the list, or all about one. */
#include <ctype.h>
#include <string.h>

#include "verb.h"

/* Does `name` hold `part`, in either case? */
static bool holds(const char *name, const char *part) {
    size_t length = strlen(part);
    for (; *name; name++) {
        size_t i = 0;
        while (i < length && name[i] && tolower((unsigned char)name[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == length)
            return true;
    }
    return length == 0;
}

static double ridge(const tl_accelerator *a) {
    double rate = a->rate[TL_RATE_BF16] > 0 ? a->rate[TL_RATE_BF16] : a->rate[TL_RATE_FP16];
    return a->bandwidth > 0 ? rate / a->bandwidth : 0;
}

static void put_rate(tl_grid *grid, double rate) {
    char text[TL_TEXT];
    if (rate > 0)
        tl_grid_real(grid, rate, tl_text_plain(rate / 1e12, 1, text));
    else
        tl_grid_null(grid);
}

static void put_bytes(const tl_cli *cli, tl_grid *grid, int64_t bytes) {
    char text[TL_TEXT];
    if (bytes > 0)
        tl_grid_integer(grid, bytes, tl_text_bytes((double)bytes, cli->units, text));
    else
        tl_grid_null(grid);
}

static void put_row(const tl_cli *cli, tl_grid *grid, const tl_accelerator *a) {
    char text[TL_TEXT];
    tl_grid_string(grid, a->name, NULL);
    tl_grid_string(grid, a->vendor, NULL);
    if (a->label_bytes) /* a label is in GB, whatever the units asked for */
        tl_grid_integer(grid, a->label_bytes,
                        cli->units == TL_UNITS_IEC
                            ? tl_text_bytes((double)a->label_bytes, TL_UNITS_IEC, text)
                            : (snprintf(text, sizeof text, "%.0f GB", (double)a->label_bytes / 1e9), text));
    else
        tl_grid_null(grid);
    put_bytes(cli, grid, a->memory_bytes);
    put_bytes(cli, grid, a->driver_bytes);
    if (a->bandwidth > 0)
        tl_grid_real(grid, a->bandwidth, tl_text_plain(a->bandwidth / 1e9, 0, text));
    else
        tl_grid_null(grid);
    for (int rate = 0; rate < TL_RATE_COUNT; rate++)
        put_rate(grid, a->rate[rate]);
    if (ridge(a) > 0)
        tl_grid_real(grid, ridge(a), tl_text_plain(ridge(a), 0, text));
    else
        tl_grid_null(grid);
    tl_grid_string(grid, a->link && a->link[0] ? a->link : NULL, NULL);
    if (a->link_bandwidth > 0)
        tl_grid_real(grid, a->link_bandwidth, tl_text_plain(a->link_bandwidth / 1e9, 1, text));
    else
        tl_grid_null(grid);
    tl_grid_integer(grid, a->link_domain, NULL);
    if (a->watts > 0)
        tl_grid_real(grid, a->watts, tl_text_plain(a->watts, 0, text));
    else
        tl_grid_null(grid);
    tl_grid_real(grid, a->sparse_factor, NULL);
    tl_grid_string(grid, a->source, NULL);
    tl_grid_string(grid, a->uncertain && a->uncertain[0] ? a->uncertain : NULL,
                   a->uncertain && a->uncertain[0] ? "?" : "");
}

static const tl_column columns[] = {
    {"name", "name", false, false, true},
    {"vendor", NULL, false, false, false},
    {"label_bytes", "memory", true, false, false},
    {"memory_bytes", NULL, true, false, false},
    {"driver_bytes", NULL, true, false, false},
    {"bandwidth_bytes_per_s", "GB/s", true, false, false},
    {"fp64_flop_per_s", NULL, true, false, false},
    {"fp32_flop_per_s", "fp32", true, true, false},
    {"tf32_flop_per_s", "tf32", true, true, false},
    {"bf16_flop_per_s", "bf16", true, false, false},
    {"fp16_flop_per_s", "fp16", true, false, false},
    {"fp8_flop_per_s", "fp8", true, false, false},
    {"fp4_flop_per_s", NULL, true, false, false},
    {"int8_op_per_s", NULL, true, false, false},
    {"ridge_flop_per_byte", "ridge", true, false, false},
    {"link", NULL, false, false, false},
    {"link_bytes_per_s", "link GB/s", true, true, false},
    {"link_devices", NULL, true, false, false},
    {"watts", "W", true, true, false},
    {"sparse_factor", NULL, true, false, false},
    {"source", NULL, false, false, false},
    {"uncertain", "", false, false, false},
};
#define N_COLUMNS ((int)(sizeof columns / sizeof columns[0]))

static int list(const tl_cli *cli, const char *part) {
    tl_grid *grid = tl_grid_new(columns, N_COLUMNS);
    bool doubtful = false;
    for (int i = 0; i < tl_accelerator_count(); i++) {
        const tl_accelerator *a = tl_accelerator_at(i);
        if (part && !holds(a->name, part) && !holds(a->vendor, part))
            continue;
        put_row(cli, grid, a);
        doubtful = doubtful || (a->uncertain && a->uncertain[0]);
    }
    int status = tl_grid_print(cli, grid, "gpus");
    tl_grid_free(grid);
    if (status == TL_EXIT_OK && cli->format == TL_FORMAT_TABLE) {
        tl_out(cli, "\n");
        tl_out_wrapped(
            cli, 0, "",
            doubtful ? "GB/s of memory; TFLOP/s by format, all dense; ridge in FLOP/B at bf16 (or fp16): memory limits "
                       "below "
                       "it; - not published; ? something to re-check. `tally gpus NAME' says what, and the sources."
                     : "GB/s of memory; TFLOP/s by format, all dense; ridge in FLOP/B at bf16 (or fp16): memory limits "
                       "below "
                       "it; - not published. `tally gpus NAME' has the sources.");
    }
    return status;
}

static void out_details(const tl_cli *cli, const tl_accelerator *a, const char *note) {
    char label[TL_TEXT], other[TL_TEXT], text[TL_TEXT], rates[512] = "";
    size_t at = 0;
    snprintf(label, sizeof label, "%s, %.0f GB", a->vendor, (double)a->label_bytes / 1e9);
    tl_out_answer(cli, a->name, label);
    if (note)
        tl_out_item(cli, "assumed", "%s", note);
    tl_out_item(
        cli, "label", "%s = %s as the vendor counts, %s", tl_text_bytes((double)a->label_bytes, TL_UNITS_SI, label),
        tl_text_grouped((tl_u128)a->label_bytes, text), tl_text_bytes((double)a->label_bytes, TL_UNITS_IEC, other));
    if (a->memory_bytes)
        tl_out_item(cli, "capacity", "%s = %s of memory", tl_text_bytes((double)a->memory_bytes, TL_UNITS_IEC, label),
                    tl_text_bytes((double)a->memory_bytes, TL_UNITS_SI, other));
    else
        tl_out_item(cli, "capacity", "not known beyond the label");
    if (a->driver_bytes)
        tl_out_item(cli, "driver", "shows %s MiB = %s", tl_text_grouped((tl_u128)(a->driver_bytes >> 20), label),
                    tl_text_bytes((double)a->driver_bytes, TL_UNITS_SI, other));
    if (a->bandwidth > 0)
        tl_out_item(cli, "reads", "%s", tl_text_bandwidth(a->bandwidth, label));
    for (int rate = 0; rate < TL_RATE_COUNT && at < sizeof rates; rate++) {
        if (a->rate[rate] <= 0 || rate == TL_RATE_INT8)
            continue;
        int n = snprintf(rates + at, sizeof rates - at, "%s%s %s", at ? "  " : "", tl_rate_name((tl_rate)rate),
                         tl_text_plain(a->rate[rate] / 1e12, 1, text));
        at += n > 0 ? (size_t)n : 0;
    }
    tl_out_item(cli, "TFLOP/s", "%s   (dense)%s%s%s", rates, a->rate[TL_RATE_INT8] > 0 ? "; int8 " : "",
                a->rate[TL_RATE_INT8] > 0 ? tl_text_plain(a->rate[TL_RATE_INT8] / 1e12, 1, text) : "",
                a->rate[TL_RATE_INT8] > 0 ? " TOP/s" : "");
    if (a->sparse_factor > 1 && a->rate[TL_RATE_BF16] > 0)
        tl_out_item(cli, "sparse", "the sheet's %.4g TFLOP/s bf16 is with 2:4 sparsity: no peak of ordinary training",
                    a->rate[TL_RATE_BF16] * a->sparse_factor / 1e12);
    if (ridge(a) > 0)
        tl_out_item(cli, "ridge", "%.0f FLOP/B at %s: below it memory limits, above it the arithmetic", ridge(a),
                    a->rate[TL_RATE_BF16] > 0 ? "bf16" : "fp16");
    if (a->link && a->link[0])
        tl_out_item(cli, "link", "%s%s%s, %lld device%s share it", a->link, a->link_bandwidth > 0 ? ", one way " : "",
                    a->link_bandwidth > 0 ? tl_text_bandwidth(a->link_bandwidth, label) : "", (long long)a->link_domain,
                    a->link_domain == 1 ? "" : "s");
    if (a->watts > 0)
        tl_out_item(cli, "power", "%.0f W", a->watts);
    tl_out_item(cli, "source", "%s", a->source && a->source[0] ? a->source : "none named");
    if (a->uncertain && a->uncertain[0])
        tl_out_item(cli, "re-check", "%s", a->uncertain);
}

static int run(tl_cli *cli) {
    const tl_accelerator *found = NULL;
    const char *note = NULL, *name = cli->arguments[0];
    tl_error error = {TL_OK, ""};
    if (!cli->n_arguments)
        return list(cli, NULL);
    if (tl_accelerator_find(name, &found, &note, &error) == TL_OK) {
        if (cli->format == TL_FORMAT_TABLE) {
            out_details(cli, found, note);
            return TL_EXIT_OK;
        }
        tl_grid *grid = tl_grid_new(columns, N_COLUMNS);
        put_row(cli, grid, found);
        int status = tl_grid_print(cli, grid, "gpus");
        tl_grid_free(grid);
        return status;
    }
    for (int i = 0; i < tl_accelerator_count(); i++)
        if (name[0] && (holds(tl_accelerator_at(i)->name, name) || holds(tl_accelerator_at(i)->vendor, name)))
            return list(cli, name);
    return tl_failed(cli, &error);
}

const tl_verb tl_verb_gpus = {
    .name = "gpus",
    .summary = "accelerators: dense rates, memory, bandwidth, ridge, and where the figures come from",
    .group = TL_GROUP_LOOKUP,
    .arguments = "[NAME]",
    .words = NULL,
    .details = "A bare H100 is the SXM5 80 GB part, A100-80G the SXM4 80 GB one. Part of a\n"
               "name lists all that hold it.",
    .takes = 0,
    .own = NULL,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
