/* cli/dtype_out.c: number formats: their bits, and what follows from them. */
#include <math.h>
#include <string.h>

#include "dtype_out.h"

/* IEEE 754-2019 (binary64, 32, 16); bfloat16: the upper half of binary32; the 8-bit ones: Micikevicius et al. 2022,
 * arXiv:2209.05433, table 1. */
typedef struct tl_format_row {
    const char *name, *alias;
    int exponent, mantissa;
    bool no_infinity; /* e4m3: the top exponent is numbers too, all ones is NaN */
    const char *note;
} tl_format_row;

static const tl_format_row formats[] = {
    {"f64", "fp64", 11, 52, false, "IEEE 754 binary64"},
    {"f32", "fp32", 8, 23, false, "IEEE 754 binary32"},
    {"bf16", "bfloat16", 8, 7, false, "the upper half of f32: its range, fewer digits"},
    {"f16", "fp16", 5, 10, false, "IEEE 754 binary16: training needs its loss scaled"},
    {"f8e4m3", "e4m3", 4, 3, true, "no infinity; one NaN of each sign"},
    {"f8e5m2", "e5m2", 5, 2, false, "the upper half of f16"},
};
#define N_FORMATS ((int)(sizeof formats / sizeof formats[0]))

static int bias(const tl_format_row *f) { return (1 << (f->exponent - 1)) - 1; }

static double largest(const tl_format_row *f) {
    int top = (1 << f->exponent) - 2 - bias(f);
    if (f->no_infinity)
        return ldexp(2 - ldexp(1, 1 - f->mantissa), top + 1);
    return ldexp(2 - ldexp(1, -f->mantissa), top);
}

static double smallest_normal(const tl_format_row *f) { return ldexp(1, 1 - bias(f)); }
static double smallest(const tl_format_row *f) { return ldexp(1, 1 - bias(f) - f->mantissa); }
static double epsilon(const tl_format_row *f) { return ldexp(1, -f->mantissa); }
static int bytes(const tl_format_row *f) { return (1 + f->exponent + f->mantissa) / 8; }

static void put_real(tl_grid *grid, double value) {
    char text[TL_TEXT];
    snprintf(text, sizeof text, "%.5g", value);
    tl_grid_real(grid, value, text);
}

static void out_details(const tl_cli *cli, const tl_format_row *f) {
    char rest[96];
    snprintf(rest, sizeof rest, "%d B: 1 sign, %d exponent, %d mantissa bits", bytes(f), f->exponent, f->mantissa);
    tl_out_answer(cli, f->name, rest);
    tl_out_item(cli, "what", "%s", f->note);
    tl_out_item(cli, "largest", "%.9g", largest(f));
    tl_out_item(cli, "normal", "from %.9g", smallest_normal(f));
    tl_out_item(cli, "smallest", "%.9g (subnormal)", smallest(f));
    tl_out_item(cli, "step at 1", "%.9g: about %.1f decimal digits", epsilon(f), (f->mantissa + 1) * 0.30103);
}

int tl_dtype_report(const tl_cli *cli, const char *name) {
    static const tl_column columns[] = {
        {"name", "name", false, false, false},
        {"bytes", "bytes", true, false, false},
        {"exponent_bits", "exponent", true, false, false},
        {"mantissa_bits", "mantissa", true, false, false},
        {"largest", "largest", true, false, false},
        {"smallest_normal", "normal from", true, false, false},
        {"smallest", "smallest", true, false, false},
        {"epsilon", "step at 1", true, false, false},
        {"note", NULL, false, false, false},
    };
    const char *names[N_FORMATS + 2] = {"all"};
    bool all = strcmp(name, "all") == 0, found = false;
    tl_grid *grid = tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
    for (int i = 0; i < N_FORMATS; i++) {
        const tl_format_row *f = &formats[i];
        bool is = strcmp(name, f->name) == 0 || strcmp(name, f->alias) == 0;
        names[i + 1] = f->name;
        if (is && cli->format == TL_FORMAT_TABLE) {
            tl_grid_free(grid);
            out_details(cli, f);
            return TL_EXIT_OK;
        }
        if (!all && !is)
            continue;
        found = true;
        tl_grid_string(grid, f->name, NULL);
        tl_grid_integer(grid, bytes(f), NULL);
        tl_grid_integer(grid, f->exponent, NULL);
        tl_grid_integer(grid, f->mantissa, NULL);
        put_real(grid, largest(f));
        put_real(grid, smallest_normal(f));
        put_real(grid, smallest(f));
        put_real(grid, epsilon(f));
        tl_grid_string(grid, f->note, NULL);
    }
    const char *near = tl_nearest_of(name, names);
    int status =
        found ? tl_grid_print(cli, grid, "dtypes")
              : tl_usage(cli, "--dtype \"%.80s\": no such format; f64, f32, bf16, f16, f8e4m3 and f8e5m2 are%s%s%s",
                         name, near ? ". Did you mean " : "", near ? near : "", near ? "?" : "");
    tl_grid_free(grid);
    return status;
}
