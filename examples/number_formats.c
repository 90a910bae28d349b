/* What fits into 64, 32, 16 and 8 bits. Range comes from the exponent's bits, precision from the mantissa's, and training
 * needs range more: 1e-8 is zero in f16 and a number in bf16, though both have 16 bits.
 *
 *     cc number_formats.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/cpu.h>
#include <tally/ops.h>

static const tl_dtype formats[] = {TL_F64, TL_F32, TL_F16, TL_BF16, TL_F8E4M3, TL_F8E5M2};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static void table(void) {
    printf("format  bytes  exponent  mantissa       largest  smallest normal  subnormal  step at 1\n");
    for (int i = 0; i < FORMATS; i++) {
        const tl_finfo *f = tl_dtype_finfo(formats[i]);
        printf("%-6s  %5d  %8d  %8d  %12.7g  %15.7g  %9.3g  %9.3g\n", tl_dtype_name(formats[i]),
               tl_dtype_bytes(formats[i]), f->exponent_bits, f->mantissa_bits, f->largest, f->smallest_normal,
               f->smallest_subnormal, f->epsilon);
    }
    printf("\n");
}

/* The number as the format keeps it: cast there and back. */
static void keep(tl_ctx *ctx, double number) {
    printf("%-10g is", number);
    for (int i = 1; i < FORMATS; i++) {
        double kept = 0;
        tl_scope_begin(ctx);
        tl_tensor *x = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(1)), TL_WORK), number);
        if (tl_item(tl_cast(x, formats[i]), &kept) == TL_OK)
            printf("  %s %.7g", tl_dtype_name(formats[i]), kept);
        tl_scope_end(ctx);
    }
    printf("\n");
}

int main(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx_options options = {.kernels = tl_kernels_for_cpu(NULL, &error)};
    tl_ctx *ctx = options.kernels ? tl_ctx_new(&options, &error) : NULL;
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    table();
    keep(ctx, 1e-8);    /* below f16's smallest subnormal, 6e-8 */
    keep(ctx, 0.1);     /* in no binary format */
    keep(ctx, 1.0 / 3); /* fewer digits each time */
    keep(ctx, 70000);   /* beyond f16's largest, 65504, and those of 8 bits */
    keep(ctx, 448);

    /* Saturating or not is a choice when 8 bits are too few. */
    printf("\n500 in f8e4m3: %g saturating, %g not\n", tl_f8e4m3_to_f32(tl_f32_to_f8e4m3(500, true)),
           tl_f8e4m3_to_f32(tl_f32_to_f8e4m3(500, false)));
    printf("60000 in f8e5m2: %g, and 62000: %g\n", tl_f8e5m2_to_f32(tl_f32_to_f8e5m2(60000, false)),
           tl_f8e5m2_to_f32(tl_f32_to_f8e5m2(62000, false)));

    /* What two formats make together: as PyTorch has it. */
    printf("f16 with bf16 makes %s, i64 with f16 makes %s\n", tl_dtype_name(tl_dtype_promote(TL_F16, TL_BF16)),
           tl_dtype_name(tl_dtype_promote(TL_I64, TL_F16)));
    tl_status status = tl_ctx_status(ctx);
    if (status != TL_OK)
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    tl_ctx_free(ctx);
    return status != TL_OK;
}
