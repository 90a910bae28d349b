/* cli/dtype_out.c: number formats: what each holds, from the library's own account of them (tally/dtype.h). */
#include <string.h>

#include "tally/dtype.h"

#include "dtype_out.h"

/* In the order of a list for people; what cannot be computed. */
static const struct row {
    tl_dtype dtype;
    const char *note;
} formats[] = {
    {TL_F64, "IEEE 754 binary64"},
    {TL_F32, "IEEE 754 binary32"},
    {TL_F16, "IEEE 754 binary16: training needs its loss scaled"},
    {TL_BF16, "the upper half of f32: its range, fewer digits"},
    {TL_F8E4M3, "no infinity; one NaN of each sign"},
    {TL_F8E5M2, "the upper half of f16"},
    {TL_I64, "two's complement"},
    {TL_I32, "two's complement"},
    {TL_I16, "two's complement"},
    {TL_I8, "two's complement"},
    {TL_U8, "bytes"},
    {TL_U16, "token ids below 65,536"},
    {TL_BOOL, "one byte, 0 or 1"},
};
#define N_FORMATS ((int)(sizeof formats / sizeof formats[0]))

static void put_real(tl_grid *grid, double value) {
    char text[TL_TEXT];
    snprintf(text, sizeof text, "%.5g", value);
    tl_grid_real(grid, value, text);
}

static void put_row(tl_grid *grid, const struct row *f) {
    const tl_finfo *real = tl_dtype_finfo(f->dtype);
    const tl_iinfo *whole = tl_dtype_iinfo(f->dtype);
    tl_grid_string(grid, tl_dtype_name(f->dtype), NULL);
    tl_grid_integer(grid, tl_dtype_bytes(f->dtype), NULL);
    if (real) {
        tl_grid_integer(grid, real->exponent_bits, NULL);
        tl_grid_integer(grid, real->mantissa_bits, NULL);
        put_real(grid, -real->largest);
        put_real(grid, real->largest);
        put_real(grid, real->smallest_normal);
        put_real(grid, real->smallest_subnormal);
        put_real(grid, real->epsilon);
        tl_grid_boolean(grid, real->has_infinity, NULL);
    } else {
        char text[TL_TEXT];
        tl_grid_null(grid);
        tl_grid_null(grid);
        tl_grid_integer(grid, whole->least, NULL);
        snprintf(text, sizeof text, "%.5g", (double)whole->most);
        tl_grid_integer(grid, whole->most, whole->bits > 32 ? text : NULL);
        for (int i = 0; i < 3; i++)
            tl_grid_null(grid);
        tl_grid_boolean(grid, false, NULL);
    }
    tl_grid_string(grid, f->note, NULL);
}

static void out_details(const tl_cli *cli, const struct row *f) {
    const tl_finfo *real = tl_dtype_finfo(f->dtype);
    const tl_iinfo *whole = tl_dtype_iinfo(f->dtype);
    char rest[96];
    if (real)
        snprintf(rest, sizeof rest, "%d B: 1 sign, %d exponent, %d mantissa bits", real->bits / 8, real->exponent_bits,
                 real->mantissa_bits);
    else
        snprintf(rest, sizeof rest, "%d B: %s", whole->bits / 8,
                 f->dtype == TL_BOOL ? "a truth value"
                 : whole->is_signed  ? "signed"
                                     : "no sign");
    tl_out_answer(cli, tl_dtype_name(f->dtype), rest);
    tl_out_item(cli, "what", "%s", f->note);
    if (!real) {
        tl_out_item(cli, "least", "%lld", (long long)whole->least);
        tl_out_item(cli, "largest", "%lld", (long long)whole->most);
        return;
    }
    tl_out_item(cli, "largest", "%.9g", real->largest);
    tl_out_item(cli, "normal", "from %.9g", real->smallest_normal);
    tl_out_item(cli, "smallest", "%.9g (subnormal)", real->smallest_subnormal);
    tl_out_item(cli, "step at 1", "%.9g: about %.1f decimal digits", real->epsilon,
                (real->mantissa_bits + 1) * 0.30103);
}

static int unknown(const tl_cli *cli, const char *name) {
    const char *names[N_FORMATS + 2] = {"all"};
    for (int i = 0; i < N_FORMATS; i++)
        names[i + 1] = tl_dtype_name(formats[i].dtype);
    const char *near = tl_nearest_of(name, names);
    return tl_usage(cli, "--dtype \"%.80s\": no such format; %s are%s%s%s", name, TL_DTYPE_NAMES,
                    near ? ". Did you mean " : "", near ? near : "", near ? "?" : "");
}

int tl_dtype_report(const tl_cli *cli, const char *name) {
    static const tl_column columns[] = {
        {"name", "name", false, false, false},
        {"bytes", "bytes", true, false, false},
        {"exponent_bits", "exponent", true, false, false},
        {"mantissa_bits", "mantissa", true, false, false},
        {"least", NULL, true, false, false},
        {"largest", "largest", true, false, false},
        {"smallest_normal", "normal from", true, false, false},
        {"smallest", "smallest", true, false, false},
        {"epsilon", "step at 1", true, false, false},
        {"has_infinity", NULL, false, false, false},
        {"note", NULL, false, false, false},
    };
    const bool all = strcmp(name, "all") == 0;
    const tl_dtype asked = tl_dtype_parse(name);
    if (!all && asked == TL_DTYPE_COUNT)
        return unknown(cli, name);
    tl_grid *grid = NULL;
    for (int i = 0; i < N_FORMATS; i++) {
        const struct row *f = &formats[i];
        if (!all && f->dtype != asked)
            continue;
        if (!all && cli->format == TL_FORMAT_TABLE) {
            out_details(cli, f);
            return TL_EXIT_OK;
        }
        grid = grid ? grid : tl_grid_new(columns, (int)(sizeof columns / sizeof columns[0]));
        put_row(grid, f);
    }
    int status = tl_grid_print(cli, grid, "dtypes");
    tl_grid_free(grid);
    return status;
}
