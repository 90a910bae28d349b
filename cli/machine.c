/* cli/machine.c: tally machine, this machine's measured roofline: peak by dtype, bandwidth by level, products by shape.
 *
 * --json: {"schema","verb","cpu","kernels","threads","memory_bytes","available_bytes",
 *   "peak_flop_per_s":{"fp32","bf16","fp64"},                  null where there is none
 *   "bandwidth":[{"level","bytes","bytes_per_s"}],             the working set, and STREAM's triad over it
 *   "products":[{"dtype","m","n","k","flop_per_s","share_of_peak"}],
 *   "disturbed" (0 to 1: what other programs took of the processors meanwhile),
 *   "measured_at" (seconds since 1970), "measured_now", "cache" (the file, null where it could not be kept)}
 * csv and md are one long list of the same figures: what, name, m, n, k, bytes, value, unit.
 */
#include <limits.h>
#include <string.h>
#include <time.h>

#include "tally/machine.h"
#include "verb.h"

enum { OWN_REFRESH, OWN_QUICK, OWN_THREADS };

typedef struct tl_page {
    tl_machine machine;
    bool now, kept;
    char path[PATH_MAX];
} tl_page;

static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F64};
static const char *const names[] = {"fp32", "bf16", "fp64"};
#define N_DTYPES 3

static const char *name_of(tl_dtype dtype) {
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i] == dtype)
            return names[i];
    return tl_dtype_name(dtype);
}

static double share_of(const tl_machine *machine, const tl_machine_shape *shape) {
    double peak = tl_machine_peak(machine, shape->dtype);
    return peak > 0 ? shape->flop_per_s / peak : 0;
}

/* ---- for people ----------------------------------------------------------------------------------------------- */

static void out_head(const tl_cli *cli, const tl_page *page) {
    const tl_machine *machine = &page->machine;
    char rate[TL_TEXT], bytes[TL_TEXT], more[TL_TEXT], text[320] = "", rest[160];
    size_t at = 0;
    snprintf(text, sizeof text, "%s fp32", tl_text_rate(machine->peak_fp32, rate));
    snprintf(rest, sizeof rest, "(%s, %d thread%s, %s kernels)", machine->cpu, machine->threads,
             machine->threads == 1 ? "" : "s", machine->kernels);
    tl_out_answer(cli, text, rest);
    for (int i = 0; i < N_DTYPES && at < sizeof text; i++) {
        double peak = tl_machine_peak(machine, dtypes[i]);
        int n = peak > 0 ? snprintf(text + at, sizeof text - at, "%s%s\xc2\xa0%s", at ? "   " : "", names[i],
                                    tl_text_rate(peak, rate))
                         : 0;
        at += n > 0 ? (size_t)n : 0;
    }
    tl_out_item(cli, "peak", "%s", text);
    tl_out_item(cli, "", "of multiply-adds that never leave the registers: what MFU here is a share of");
    tl_out_item(cli, "memory", "%s, %s of it available now",
                tl_text_bytes((double)machine->memory_bytes, cli->units, bytes),
                tl_text_bytes((double)machine->available_bytes, cli->units, more));
}

static int out_bandwidth(const tl_cli *cli, const tl_machine *machine) {
    static const tl_column columns[] = {{"level", "level", false, false, false},
                                        {"bytes", "working set", true, false, false},
                                        {"bytes_per_s", "bandwidth", true, false, false},
                                        {"fp32", "ridge fp32", true, false, false},
                                        {"bf16", "bf16", true, false, false}};
    char text[TL_TEXT], ridge[TL_TEXT + 8];
    if (machine->n_levels == 0)
        return TL_EXIT_OK;
    tl_grid *grid = tl_grid_new(columns, 5);
    for (int i = 0; i < machine->n_levels; i++) {
        double rate = machine->level[i].bytes_per_s;
        tl_grid_string(grid, machine->level[i].name, NULL);
        tl_grid_integer(grid, machine->level[i].bytes,
                        tl_text_bytes((double)machine->level[i].bytes, cli->units, text));
        tl_grid_real(grid, rate, tl_text_bandwidth(rate, text));
        for (int j = 0; j < 2; j++) {
            double peak = tl_machine_peak(machine, dtypes[j]);
            if (peak <= 0 || rate <= 0) {
                tl_grid_null(grid);
                continue;
            }
            snprintf(ridge, sizeof ridge, "%.1f FLOP/B", peak / rate);
            tl_grid_real(grid, peak / rate, ridge);
        }
    }
    tl_out(cli, "\n");
    int status = tl_grid_print(cli, grid, "bandwidth");
    tl_grid_free(grid);
    return status;
}

static const tl_machine_shape *find_shape(const tl_machine *machine, tl_dtype dtype, const tl_machine_shape *like) {
    for (int i = 0; i < machine->n_shapes; i++) {
        const tl_machine_shape *shape = &machine->shape[i];
        if (shape->dtype == dtype && shape->m == like->m && shape->n == like->n && shape->k == like->k)
            return shape;
    }
    return NULL;
}

#define BAR 10
static void put_shape(tl_grid *grid, const tl_machine *machine, const tl_machine_shape *shape) {
    char text[TL_TEXT], bar[BAR + 1] = "";
    if (!shape) {
        tl_grid_null(grid);
        tl_grid_null(grid);
        tl_grid_string(grid, "", NULL);
        return;
    }
    double share = share_of(machine, shape);
    for (int i = 0; i < BAR; i++)
        bar[i] = share * BAR > i + 0.5 ? '#' : '.';
    snprintf(text, sizeof text, "%.1f", shape->flop_per_s / 1e9);
    tl_grid_real(grid, shape->flop_per_s, text);
    snprintf(text, sizeof text, "%.0f %%", share * 100);
    tl_grid_real(grid, share, text);
    tl_grid_string(grid, bar, NULL);
}

static int out_products(const tl_cli *cli, const tl_machine *machine) {
    static const tl_column columns[] = {{"shape", "product m×n×k", false, false, false},
                                        {"fp32", "fp32", true, false, false},
                                        {"share32", "of peak", true, false, false},
                                        {"bar32", "", false, false, false},
                                        {"bf16", "bf16", true, false, false},
                                        {"share16", "of peak", true, false, false},
                                        {"bar16", "", false, false, false}};
    char text[96];
    if (machine->n_shapes == 0)
        return TL_EXIT_OK;
    tl_grid *grid = tl_grid_new(columns, 7);
    for (int i = 0; i < machine->n_shapes; i++) {
        const tl_machine_shape *shape = &machine->shape[i];
        if (shape->dtype != TL_F32 && find_shape(machine, TL_F32, shape))
            continue; /* its row is there */
        snprintf(text, sizeof text, "%lld×%lld×%lld", (long long)shape->m, (long long)shape->n, (long long)shape->k);
        tl_grid_string(grid, text, NULL);
        put_shape(grid, machine, find_shape(machine, TL_F32, shape));
        put_shape(grid, machine, find_shape(machine, TL_BF16, shape));
    }
    tl_out(cli, "\n");
    int status = tl_grid_print(cli, grid, "products");
    tl_grid_free(grid);
    if (status == TL_EXIT_OK)
        tl_out(cli, "\nRates in GFLOP/s: C[m,n] = A[m,k]·B[k,n], forward and both backward layouts.\n"
                    "Bandwidth: a[i] = b[i] + s·c[i], 12 bytes an element; ridge = peak / bandwidth.\n");
    return status;
}

/* Too much for the figures to be this machine's. */
#define DISTURBED 0.1

static void out_foot(const tl_cli *cli, const tl_page *page) {
    char ago[TL_TEXT];
    time_t seconds = time(NULL);
    if (page->machine.disturbed > DISTURBED)
        tl_out_item(cli, "busy",
                    "other programs took %.0f %% of the processors meanwhile: bandwidths and products are too low; "
                    "`tally machine --refresh' when they are idle",
                    page->machine.disturbed * 100);
    if (page->now && page->kept)
        tl_out_item(cli, "cached", "%s", page->path);
    else if (!page->now)
        tl_out_item(cli, "cached", "%s, measured %s ago; --refresh measures again", page->path,
                    tl_text_duration(
                        seconds > page->machine.measured_at ? (double)(seconds - page->machine.measured_at) : 0, ago));
}

static int print_page(const tl_cli *cli, const tl_page *page) {
    out_head(cli, page);
    int status = out_bandwidth(cli, &page->machine);
    if (status == TL_EXIT_OK)
        status = out_products(cli, &page->machine);
    if (status == TL_EXIT_OK)
        out_foot(cli, page);
    return status;
}

/* ---- for programs --------------------------------------------------------------------------------------------- */

static int print_json(const tl_cli *cli, const tl_page *page) {
    const tl_machine *machine = &page->machine;
    tl_json *json = tl_cli_json_open(cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "cpu", machine->cpu);
    tl_json_put_string(json, "kernels", machine->kernels);
    tl_json_put_integer(json, "threads", machine->threads);
    tl_json_put_integer(json, "memory_bytes", machine->memory_bytes);
    tl_json_put_integer(json, "available_bytes", machine->available_bytes);
    tl_json_key(json, "peak_flop_per_s");
    tl_json_object(json);
    for (int i = 0; i < N_DTYPES; i++) {
        double peak = tl_machine_peak(machine, dtypes[i]);
        tl_json_key(json, names[i]);
        if (peak > 0)
            tl_json_real(json, peak);
        else
            tl_json_null(json);
    }
    tl_json_end(json);
    tl_json_key(json, "bandwidth");
    tl_json_array(json);
    for (int i = 0; i < machine->n_levels; i++) {
        tl_json_object(json);
        tl_json_put_string(json, "level", machine->level[i].name);
        tl_json_put_integer(json, "bytes", machine->level[i].bytes);
        tl_json_put_real(json, "bytes_per_s", machine->level[i].bytes_per_s);
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_key(json, "products");
    tl_json_array(json);
    for (int i = 0; i < machine->n_shapes; i++) {
        const tl_machine_shape *shape = &machine->shape[i];
        tl_json_object(json);
        tl_json_put_string(json, "dtype", name_of(shape->dtype));
        tl_json_put_integer(json, "m", shape->m);
        tl_json_put_integer(json, "n", shape->n);
        tl_json_put_integer(json, "k", shape->k);
        tl_json_put_real(json, "flop_per_s", shape->flop_per_s);
        tl_json_put_real(json, "share_of_peak", share_of(machine, shape));
        tl_json_end(json);
    }
    tl_json_end(json);
    tl_json_put_real(json, "disturbed", machine->disturbed);
    tl_json_put_integer(json, "measured_at", machine->measured_at);
    tl_json_put_boolean(json, "measured_now", page->now);
    tl_json_put_string(json, "cache", page->kept ? page->path : NULL);
    return tl_cli_json_close(cli, json);
}

/* One row of the long list: m, n, k and bytes only where they are (0: not). */
static void put_row(tl_grid *grid, const char *what, const char *name, const int64_t size[3], int64_t bytes,
                    double value, const char *unit) {
    tl_grid_string(grid, what, NULL);
    tl_grid_string(grid, name, NULL);
    for (int i = 0; i < 3; i++) {
        if (size)
            tl_grid_integer(grid, size[i], NULL);
        else
            tl_grid_null(grid);
    }
    if (bytes)
        tl_grid_integer(grid, bytes, NULL);
    else
        tl_grid_null(grid);
    tl_grid_real(grid, value, NULL);
    tl_grid_string(grid, unit, NULL);
}

static int print_list(const tl_cli *cli, const tl_machine *machine) {
    static const tl_column columns[] = {{"what", "what", false, false, false},  {"name", "name", false, false, false},
                                        {"m", "m", true, false, false},         {"n", "n", true, false, false},
                                        {"k", "k", true, false, false},         {"bytes", "bytes", true, false, false},
                                        {"value", "value", true, false, false}, {"unit", "unit", false, false, false}};
    tl_grid *grid = tl_grid_new(columns, 8);
    for (int i = 0; i < N_DTYPES; i++)
        if (tl_machine_peak(machine, dtypes[i]) > 0)
            put_row(grid, "peak", names[i], NULL, 0, tl_machine_peak(machine, dtypes[i]), "FLOP/s");
    for (int i = 0; i < machine->n_levels; i++)
        put_row(grid, "bandwidth", machine->level[i].name, NULL, machine->level[i].bytes, machine->level[i].bytes_per_s,
                "B/s");
    for (int i = 0; i < machine->n_shapes; i++) {
        const tl_machine_shape *shape = &machine->shape[i];
        put_row(grid, "product", name_of(shape->dtype), (const int64_t[3]){shape->m, shape->n, shape->k}, 0,
                shape->flop_per_s, "FLOP/s");
    }
    int status = tl_grid_print(cli, grid, "figures");
    tl_grid_free(grid);
    return status;
}

/* ---- the verb ------------------------------------------------------------------------------------------------- */

static int read_threads(const tl_cli *cli, int *threads) {
    tl_error error = {TL_OK, ""};
    const char *text = cli->own[OWN_THREADS];
    int64_t wanted = 0;
    *threads = tl_machine_cores();
    if (!text)
        return TL_EXIT_OK;
    if (tl_parse_size(text, &wanted, &error) != TL_OK)
        return tl_usage(cli, "--threads: %s", error.message);
    if (wanted < 1 || wanted > 1024)
        return tl_usage(cli, "--threads %.40s: from 1 to 1024", text);
    if (wanted > *threads)
        tl_note(cli, "%lld threads, and this machine has %d core%s to give: they will take turns", (long long)wanted,
                *threads, *threads == 1 ? "" : "s");
    *threads = (int)wanted;
    return TL_EXIT_OK;
}

/* From the cache unless it is to be refreshed; else measured, and kept for the next time. */
static int get(const tl_cli *cli, int threads, tl_page *page) {
    tl_error error = {TL_OK, ""};
    bool quick = cli->own[OWN_QUICK] != NULL;
    if (!cli->own[OWN_REFRESH]) {
        tl_status status = tl_machine_load(threads, &page->machine, &error);
        if (status == TL_OK) {
            page->kept = tl_machine_cache_path(page->path, sizeof page->path, &error) == TL_OK;
            return TL_EXIT_OK;
        }
        if (status != TL_ERR_NOT_FOUND || cli->verbosity > 0)
            tl_note(cli, "%s", error.message);
        tl_error_clear(&error);
    }
    tl_note(cli, "measuring this machine, about %s", quick ? "a second" : "5 s");
    if (tl_machine_measure(threads, quick, &page->machine, &error) != TL_OK)
        return tl_failed(cli, &error);
    page->now = true;
    page->kept = tl_machine_save(&page->machine, &error) == TL_OK &&
                 tl_machine_cache_path(page->path, sizeof page->path, &error) == TL_OK;
    if (!page->kept)
        tl_note(cli, "not kept for the next time: %s", error.message);
    return TL_EXIT_OK;
}

static int run(tl_cli *cli) {
    tl_page page = {.now = false};
    int threads = 1, status = read_threads(cli, &threads);
    if (status == TL_EXIT_OK)
        status = get(cli, threads, &page);
    if (status != TL_EXIT_OK)
        return status;
    if (cli->format == TL_FORMAT_JSON)
        return print_json(cli, &page);
    return cli->format == TL_FORMAT_TABLE ? print_page(cli, &page) : print_list(cli, &page.machine);
}

static const struct argp_option own[] = {
    {"refresh", TL_OWN(OWN_REFRESH), NULL, 0, "measure again, though it is cached", 1},
    {"quick", TL_OWN(OWN_QUICK), NULL, 0, "where it has to be measured, take one second and fewer shapes", 1},
    {"threads", TL_OWN(OWN_THREADS), "N", 0, "threads to measure with (default: one for each core)", 1},
    {0},
};

const tl_verb tl_verb_machine = {
    .name = "machine",
    .summary = "this machine's measured roofline: peak, bandwidth, products",
    .group = TL_GROUP_AFTER,
    .arguments = "",
    .details = "Peak by number format, bandwidth by level of memory, and the share of the peak\n"
               "that products of different shapes reach. Measured once (about 5 s; best on an\n"
               "idle machine), then read from $XDG_CACHE_HOME/tally/machine.json, else\n"
               "~/.cache/tally/machine.json. TALLY_ISA=avx2 measures those kernels.",
    .own = own,
    .run = run,
};
