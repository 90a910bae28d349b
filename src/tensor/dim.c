/* Dims: a size and, in a run that keeps formulas, a polynomial. */
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

tl_dim tl_dim_of(int64_t size) { return (tl_dim){.size = size}; }

tl_dim tl_dim_named(tl_dim dim, const char *axis) {
    dim.axis = axis;
    return dim;
}

static void space_check(tl_ctx *ctx) {
    const tl_error *error = tl_space_error(ctx->space);
    if (error->status != TL_OK)
        tl_ctx_fail(ctx, error->status, "%s", error->message);
}

tl_dim tl_dim_fixed(tl_ctx *ctx, tl_dim dim) {
    if (ctx->space && !dim.formula) {
        dim.formula = tl_poly_constant(ctx->space, dim.size);
        space_check(ctx);
    }
    return dim;
}

tl_dim tl_dim_symbol(tl_ctx *ctx, const char *symbol, int64_t value, const char *source) {
    tl_dim dim = {.size = value};
    if (value < 0)
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%s is %lld (from %s); a size must not be negative", symbol, (long long)value,
                    source ? source : "the caller");
    else if (ctx->space) {
        dim.formula = tl_poly_symbol(ctx->space, symbol, value, source ? source : "");
        space_check(ctx);
    }
    return dim;
}

static tl_dim dim_result(tl_ctx *ctx, bool ok, const char *verb, tl_dim a, tl_dim b, int64_t size,
                         const tl_poly *formula) {
    if (!ok) {
        tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "sizes %lld and %lld %s overflow 64 bits", (long long)a.size,
                    (long long)b.size, verb);
        return (tl_dim){0};
    }
    if (ctx->space && !formula)
        space_check(ctx);
    return (tl_dim){.size = size, .formula = formula};
}

tl_dim tl_dim_mul(tl_ctx *ctx, tl_dim a, tl_dim b) {
    int64_t size = 0;
    bool ok = tl_mul_i64(a.size, b.size, &size);
    const tl_poly *formula = NULL;
    if (ok && ctx->space)
        formula = tl_poly_mul(ctx->space, tl_dim_fixed(ctx, a).formula, tl_dim_fixed(ctx, b).formula);
    return dim_result(ctx, ok, "multiplied", a, b, size, formula);
}

tl_dim tl_dim_add(tl_ctx *ctx, tl_dim a, tl_dim b) {
    int64_t size = 0;
    bool ok = tl_add_i64(a.size, b.size, &size);
    const tl_poly *formula = NULL;
    if (ok && ctx->space)
        formula = tl_poly_add(ctx->space, tl_dim_fixed(ctx, a).formula, tl_dim_fixed(ctx, b).formula);
    return dim_result(ctx, ok, "added", a, b, size, formula);
}

/* The symbol with this definition, or a new one. */
static const tl_poly *invented_symbol(tl_ctx *ctx, const char *definition, int64_t value) {
    const tl_symbol *symbols = NULL;
    int count = tl_space_symbols(ctx->space, &symbols);
    for (int i = 0; i < count; i++)
        if (symbols[i].value == value && strcmp(symbols[i].source, definition) == 0)
            return tl_poly_symbol(ctx->space, symbols[i].name, value, definition);
    char name[16];
    snprintf(name, sizeof name, "X%d", ++ctx->invented);
    return tl_poly_symbol(ctx->space, name, value, definition);
}

tl_dim tl_dim_div(tl_ctx *ctx, tl_dim a, tl_dim b) {
    if (b.size <= 0 || a.size % b.size) {
        tl_ctx_fail(ctx, TL_ERR_SHAPE, "size %lld%s%s cannot be divided by %lld%s%s", (long long)a.size,
                    a.axis ? " of axis " : "", a.axis ? a.axis : "", (long long)b.size, b.axis ? " of axis " : "",
                    b.axis ? b.axis : "");
        return (tl_dim){0};
    }
    const tl_poly *formula = NULL;
    if (ctx->space) {
        a = tl_dim_fixed(ctx, a);
        b = tl_dim_fixed(ctx, b);
        formula = tl_poly_div(ctx->space, a.formula, b.formula);
        space_check(ctx);
        if (!formula && ctx->error.status == TL_OK) { /* not expressible: a new symbol with its definition */
            char source[160];
            const char *over = tl_poly_text(ctx->space, a.formula, TL_FORMULA_SYMBOLS);
            const char *under = tl_poly_text(ctx->space, b.formula, TL_FORMULA_SYMBOLS);
            snprintf(source, sizeof source, "(%s)/(%s)", over ? over : "?", under ? under : "?");
            formula = invented_symbol(ctx, source, a.size / b.size);
            space_check(ctx);
        }
    }
    return (tl_dim){.size = a.size / b.size, .formula = formula};
}

tl_dim tl_dim_ceil_div(tl_ctx *ctx, tl_dim a, int64_t b) {
    if (b <= 0 || a.size < 0) {
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                    "size %lld cannot be divided, rounding up, by %lld; a positive number would work",
                    (long long)a.size, (long long)b);
        return (tl_dim){0};
    }
    tl_dim up = {.size = a.size / b + (a.size % b != 0)};
    int64_t numerator, denominator;
    if (!ctx->space || !a.formula || tl_poly_is_constant(a.formula, &numerator, &denominator))
        return tl_dim_fixed(ctx, up);
    const char *over = tl_poly_text(ctx->space, a.formula, TL_FORMULA_SYMBOLS);
    char definition[160];
    snprintf(definition, sizeof definition, "ceil((%s)/%lld)", over ? over : "?", (long long)b);
    up.formula = invented_symbol(ctx, definition, up.size);
    space_check(ctx);
    return up;
}

tl_dim tl_dim_counted(tl_ctx *ctx, int64_t size, const char *definition) {
    tl_dim dim = {.size = size};
    if (ctx->space) {
        dim.formula = invented_symbol(ctx, definition, size);
        space_check(ctx);
    }
    return dim;
}

void tl_dim_assume_equal(tl_ctx *ctx, tl_dim a, tl_dim b) {
    if (!ctx->space || !a.formula || !b.formula || a.formula == b.formula)
        return;
    const char *left = tl_poly_text(ctx->space, a.formula, TL_FORMULA_SYMBOLS);
    const char *right = tl_poly_text(ctx->space, b.formula, TL_FORMULA_SYMBOLS);
    char text[256];
    snprintf(text, sizeof text, "%s = %s", left ? left : "?", right ? right : "?");
    for (int i = 0; i < ctx->assumption_count; i++)
        if (strcmp(ctx->assumptions[i], text) == 0)
            return;
    int64_t capacity = ctx->assumption_capacity;
    if (!tl_host_grow(ctx, &ctx->assumptions, sizeof *ctx->assumptions, ctx->assumption_count + 1, &capacity))
        return;
    ctx->assumption_capacity = (int)capacity;
    char *copy = tl_host_text(ctx, text);
    if (copy)
        ctx->assumptions[ctx->assumption_count++] = copy;
}

bool tl_dim_match(tl_ctx *ctx, tl_dim a, tl_dim b) {
    if (a.size != b.size)
        return false;
    tl_dim_assume_equal(ctx, a, b);
    return true;
}

tl_shape tl_shape_of(tl_ctx *ctx, int ndim, const tl_dim *dims) {
    tl_shape shape = {.ndim = ndim};
    if (ndim < 0 || ndim > TL_MAX_NDIM) {
        tl_ctx_fail(ctx, TL_ERR_SHAPE, "%d axes; 0 to %d would work", ndim, TL_MAX_NDIM);
        shape.ndim = -1;
        return shape;
    }
    for (int i = 0; i < ndim; i++)
        shape.dim[i] = tl_dim_fixed(ctx, dims[i]);
    return shape;
}

bool tl_shape_count(const tl_shape *shape, int64_t *count) {
    int64_t n = 1;
    bool zero = false, ok = true;
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i].size == 0)
            zero = true;
        else if (!tl_mul_i64(n, shape->dim[i].size, &n))
            ok = false;
    }
    *count = zero ? 0 : n;
    return ok; /* [2^62, 4, 0] is refused too: strides would overflow */
}

const tl_poly *tl_shape_formula(tl_ctx *ctx, const tl_shape *shape, int64_t factor) {
    if (!ctx->space)
        return NULL;
    const tl_poly *p = tl_poly_constant(ctx->space, factor);
    for (int i = 0; i < shape->ndim && p; i++)
        p = tl_poly_mul(ctx->space, p, tl_dim_fixed(ctx, shape->dim[i]).formula);
    space_check(ctx);
    return p;
}

bool tl_shape_equal(const tl_shape *a, const tl_shape *b) {
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i].size != b->dim[i].size)
            return false;
    return true;
}

void tl_shape_contiguous(const tl_shape *shape, int64_t stride[TL_MAX_NDIM]) {
    int64_t step = 1;
    for (int i = shape->ndim - 1; i >= 0; i--) {
        stride[i] = step;
        if (shape->dim[i].size > 1)
            step *= shape->dim[i].size;
    }
}

char *tl_shape_text(const tl_shape *shape, char *buffer, size_t size) {
    size_t used = 0;
    int n = snprintf(buffer, size, "[");
    used = n > 0 ? (size_t)n : 0;
    for (int i = 0; i < shape->ndim && used < size; i++) {
        const tl_dim *d = &shape->dim[i];
        n = snprintf(buffer + used, size - used, "%s%s%s%lld", i ? ", " : "", d->axis ? d->axis : "",
                     d->axis ? " " : "", (long long)d->size);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < size)
        snprintf(buffer + used, size - used, "]");
    return buffer;
}
