/* bench/validate.c: plans every single-device row of memory tables that others measured, and prints planned beside measured.
 *
 *   validate DIR     reads torchtune_memory_tables.csv, litgpt_memory_tables.csv and measured_memory_misc.csv there
 *
 * What a row does not say is a documented fact of its framework at that date, in a table of validate_litgpt.c or
 * validate_torchtune.c beside its source. No number is fitted to a row. Exit status: 0; 1 a row or file that cannot be read; 3 the
 * figures are beyond the bar (median 6 %, nine tenths within 12 %, every row that was out of memory said to be so).
 */
#include "validate.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 512 };
#define BAR_MEDIAN 0.06
#define BAR_TENTH 0.12

struct report {
    answer row[ROWS];
    int count;
};

bool report_add(report *r, const answer *a) {
    if (r->count == ROWS) {
        fprintf(stderr, "more than %d rows\n", ROWS);
        return false;
    }
    r->row[r->count++] = *a;
    return true;
}

static double error_of(const answer *a) { return a->planned / a->measured - 1; }

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- planning ---- */

bool plan_start(tl_plan_options *o, const char *model, const char *device, answer *a) {
    tl_error error = {0};
    memset(o, 0, sizeof *o);
    if (tl_catalogue_model(model, &o->model, &error) != TL_OK ||
        tl_parse_devices(device, &o->devices, &error) != TL_OK) {
        snprintf(a->why, sizeof a->why, "%.180s", error.message);
        return false;
    }
    o->seq = o->model.context;
    o->micro_batch = 1;
    o->precision = TL_PRECISION_BF16;
    o->optimizer =
        (tl_optimizer_options){.kind = TL_OPTIM_ADAMW, .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    const tl_accelerator *card = o->devices.accelerator;
    if (card)
        a->device = (double)(card->driver_bytes   ? card->driver_bytes
                             : card->memory_bytes ? card->memory_bytes
                                                  : card->label_bytes);
    return true;
}

double taken(double peak) {
    const tl_engine *engine;
    if (tl_engine_find("litgpt", &engine, NULL) !=
        TL_OK) /* what PyTorch holds is the same in all of its engines here */
        return peak;
    return (double)tl_engine_needs(engine, 0, (int64_t)peak) + (double)engine->context_bytes +
           (double)engine->workspaces * (double)engine->workspace_bytes;
}

bool plan_peak(const tl_plan_options *o, answer *a, tl_plan *plan) {
    tl_error error = {0};
    tl_status status = tl_plan_make(o, plan, &error);
    if (status == TL_OK) {
        a->planned = (double)plan->peak.bytes;
        a->needs = taken(a->planned);
        return true;
    }
    snprintf(a->why, sizeof a->why, "%.180s", error.message);
    a->planned = 0;
    return status != TL_ERR_MEMORY;
}

/* ---- the table ---- */

static bool is_ranked(const answer *a) { return !a->why[0] && !a->side; }

static void print_row(const answer *a) {
    if (a->why[0])
        printf("%-86.86s  not planned: %s\n", a->what, a->why);
    else if (a->oom)
        printf("%-86.86s %8.2f      OOM  %s\n", a->what, a->planned / 1e9, a->needs > a->device ? "said" : "NOT SAID");
    else
        printf("%-86.86s %8.2f %8.2f %+6.1f %%%s\n", a->what, a->planned / 1e9, a->measured / 1e9, 100 * error_of(a),
               a->side ? " *" : "");
}

static int print_figures(const report *r) {
    double error[ROWS];
    int n = 0, within = 0, oom = 0, said = 0, left = 0;
    for (int i = 0; i < r->count; i++) {
        const answer *a = &r->row[i];
        left += a->why[0] != '\0';
        if (!is_ranked(a))
            continue;
        oom += a->oom;
        said += a->oom && a->needs > a->device;
        if (a->oom)
            continue;
        error[n] = error_of(a) < 0 ? -error_of(a) : error_of(a);
        within += error[n] <= BAR_TENTH;
        n++;
    }
    if (n == 0) {
        fprintf(stderr, "no row could be planned\n");
        return 1;
    }
    qsort(error, (size_t)n, sizeof error[0], by_size);
    double median = n % 2 ? error[n / 2] : (error[n / 2 - 1] + error[n / 2]) / 2;
    double ninth = error[(9 * n + 9) / 10 - 1];
    printf(
        "\nrows planned %d: median error %.1f %%, 90th percentile %.1f %%, largest %.1f %%; within 12 %%: %d of %d\n",
        n, 100 * median, 100 * ninth, 100 * error[n - 1], within, n);
    printf("out of memory: %d of %d said; not planned: %d\n", said, oom, left);
    return median <= BAR_MEDIAN && 10 * within >= 9 * n && said == oom ? 0 : 3;
}

int main(int argc, char **argv) {
    static report r;
    static const struct {
        const char *file;
        bool (*add)(report *r, const char *path);
    } tables[] = {{"torchtune_memory_tables.csv", validate_torchtune},
                  {"litgpt_memory_tables.csv", validate_litgpt},
                  {"measured_memory_misc.csv", validate_misc}};
    int found = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: validate DIR\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        char path[1024];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", argv[1], tables[i].file) >= sizeof path) {
            fprintf(stderr, "%s: the path is too long\n", argv[1]);
            return 1;
        }
        FILE *there = fopen(path, "r");
        if (!there) {
            fprintf(stderr, "%s: not there\n", path);
            continue;
        }
        fclose(there);
        found++;
        if (!tables[i].add(&r, path))
            return 1;
    }
    if (found == 0)
        return 1;
    printf("%-86s %8s %8s\n", "row", "planned", "measured GB");
    for (int i = 0; i < r.count; i++)
        print_row(&r.row[i]);
    int status = print_figures(&r);
    return fflush(stdout) == 0 && !ferror(stdout) ? status : 1;
}
