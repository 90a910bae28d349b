/* What the declarations of ops share: outputs, messages, amounts, broadcasting, sample cases. */
#include "op/core.h"

#include <stdio.h>
#include <string.h>

tl_output *tl_sig_add(tl_sig *sig, tl_dtype dtype, const tl_shape *shape) {
    if (sig->n_out >= TL_MAX_IO) {
        tl_sig_fail(sig, TL_ERR_ARGUMENT, "more than %d outputs", TL_MAX_IO);
        return NULL;
    }
    tl_output *o = &sig->out[sig->n_out++];
    o->shape.ndim = shape->ndim;
    for (int i = 0; i < shape->ndim; i++) /* not all of a shape: most have few axes */
        o->shape.dim[i] = shape->dim[i];
    o->dtype = dtype;
    o->category = TL_WORK;
    o->alias = TL_NEW;
    o->in_place = o->hidden = o->elementwise = false;
    o->offset = 0;
    return o;
}

tl_status tl_sig_fail(tl_sig *sig, tl_status status, const char *format, ...) {
    char message[800];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return tl_ctx_fail(sig->ctx, status, "%s (%s): %s", sig->op->name, sig->site, message);
}

tl_status tl_sig_want_float(tl_sig *sig, int input) {
    tl_dtype dtype = sig->in[input]->dtype;
    if (tl_dtype_is_float(dtype))
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_DTYPE,
                       "input %d is %s; a floating format (f64, f32, f16, bf16, f8e4m3, f8e5m2) would work", input,
                       tl_dtype_name(dtype));
}

tl_status tl_sig_want_arithmetic(tl_sig *sig, int input) {
    if (sig->in[input]->dtype != TL_BOOL)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_DTYPE, "there is no arithmetic in bool; cast to an integer or a floating format");
}

tl_status tl_sig_want_same_dtype(tl_sig *sig) {
    for (int i = 1; i < sig->n_in; i++)
        if (sig->in[i]->dtype != sig->in[0]->dtype)
            return tl_sig_fail(sig, TL_ERR_DTYPE, "input %d is %s but input 0 is %s; cast one of them", i,
                               tl_dtype_name(sig->in[i]->dtype), tl_dtype_name(sig->in[0]->dtype));
    return TL_OK;
}

tl_status tl_sig_want_ndim(tl_sig *sig, int input, int at_least) {
    char text[200];
    if (sig->in[input]->shape.ndim >= at_least)
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_SHAPE, "input %d is %s; at least %d axes are needed", input,
                       tl_tensor_text(sig->in[input], text, sizeof text), at_least);
}

tl_status tl_product_failed(const tl_sig *sig) {
    return tl_ctx_fail(sig->ctx, TL_ERR_STATE, "%s (%s): the product library failed part-way; the result is undefined",
                       sig->op->name, sig->site);
}

bool tl_is_readable_matrix(const tl_tensor *x) {
    int rows = x->shape.ndim - 2, columns = rows + 1;
    bool many_rows = x->shape.dim[rows].size > 1, many_columns = x->shape.dim[columns].size > 1;
    if ((many_rows && x->stride[rows] <= 0) || (many_columns && x->stride[columns] <= 0))
        return false;
    return !many_rows || !many_columns || x->stride[rows] == 1 || x->stride[columns] == 1;
}

tl_status tl_sig_want_readable(tl_sig *sig, int input) {
    char text[200];
    if (tl_is_readable_matrix(sig->in[input]))
        return TL_OK;
    return tl_sig_fail(sig, TL_ERR_SHAPE, "input %d is %s; one of its last two strides must be 1: copy it first", input,
                       tl_tensor_text(sig->in[input], text, sizeof text));
}

void tl_cost_free(const tl_sig *sig, tl_cost *cost) {
    (void)sig;
    (void)cost;
}

void tl_saves_none(const tl_sig *sig, tl_saves *saves) {
    (void)sig;
    (void)saves;
}

tl_status tl_grad_none(tl_ctx *ctx, const tl_saved *saved, tl_tensor *const gout[], tl_tensor *gin[]) {
    (void)gout;
    (void)gin;
    return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "%s has no gradient", saved->op->name);
}

static void formula_check(tl_ctx *ctx) {
    const tl_error *error = tl_space_error(ctx->space);
    if (error->status != TL_OK)
        tl_ctx_fail(ctx, error->status, "%s", error->message);
}

tl_amount tl_amount_of(tl_ctx *ctx, int64_t factor, const tl_dim *dims, int count) {
    tl_amount a = {.count = (tl_u128)factor};
    int64_t product = factor;
    int i = 0;
    while (i < count && product > 0 && !__builtin_mul_overflow(product, dims[i].size, &product))
        i++; /* nearly every count fits 63 bits */
    if (i == count && product >= 0)
        a.count = (tl_u128)product;
    for (i = i == count ? count : 0; i < count; i++)
        if (!tl_mul_u128(a.count, (tl_u128)dims[i].size, &a.count))
            tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "a count of FLOPs or bytes is beyond 128 bits");
    if (ctx->space) {
        a.formula = tl_poly_constant(ctx->space, factor);
        for (i = 0; i < count; i++)
            a.formula = tl_poly_mul(ctx->space, a.formula, tl_dim_fixed(ctx, dims[i]).formula);
        formula_check(ctx);
    }
    return a;
}

tl_amount tl_amount_shape(tl_ctx *ctx, int64_t factor, const tl_shape *shape) {
    return tl_amount_of(ctx, factor, shape->dim, shape->ndim);
}

tl_amount tl_amount_add(tl_ctx *ctx, tl_amount a, tl_amount b) {
    tl_amount sum = {.count = a.count + b.count};
    if (sum.count < b.count)
        tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "a count of FLOPs or bytes is beyond 128 bits");
    if (ctx->space) {
        sum.formula = !a.formula ? b.formula : !b.formula ? a.formula : tl_poly_add(ctx->space, a.formula, b.formula);
        formula_check(ctx);
    }
    return sum;
}

tl_amount tl_amount_scale(tl_ctx *ctx, tl_amount a, int64_t numerator, int64_t denominator) {
    tl_amount r = {0};
    if (!tl_mul_u128(a.count, (tl_u128)numerator, &r.count))
        tl_ctx_fail(ctx, TL_ERR_OVERFLOW, "a count of FLOPs or bytes is beyond 128 bits");
    if (denominator <= 0 || r.count % (tl_u128)denominator)
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "a count that is not whole: dividing by %lld", (long long)denominator);
    else
        r.count /= (tl_u128)denominator;
    if (ctx->space && a.formula) {
        r.formula = tl_poly_mul(ctx->space, a.formula, tl_poly_fraction(ctx->space, numerator, denominator));
        formula_check(ctx);
    }
    return r;
}

tl_status tl_sig_broadcast(tl_sig *sig, int a, int b, tl_shape *shape) {
    const tl_shape *x = &sig->in[a]->shape, *y = &sig->in[b]->shape;
    int ndim = x->ndim > y->ndim ? x->ndim : y->ndim;
    shape->ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        int at_x = x->ndim - 1 - i, at_y = y->ndim - 1 - i, to = ndim - 1 - i;
        if (at_x < 0 || at_y < 0) {
            shape->dim[to] = at_x < 0 ? y->dim[at_y] : x->dim[at_x];
            continue;
        }
        tl_dim p = x->dim[at_x], q = y->dim[at_y];
        if (p.size == q.size) {
            tl_dim_assume_equal(sig->ctx, p, q);
            shape->dim[to] = p.axis ? p : q;
            if (p.formula)
                shape->dim[to].formula = p.formula;
        } else if (p.size == 1)
            shape->dim[to] = q;
        else if (q.size == 1)
            shape->dim[to] = p;
        else {
            char left[200], right[200];
            return tl_sig_fail(
                sig, TL_ERR_SHAPE,
                "%s and %s do not broadcast: sizes %lld and %lld meet at axis %d%s%s; equal sizes, or 1, would "
                "work",
                tl_tensor_text(sig->in[a], left, sizeof left), tl_tensor_text(sig->in[b], right, sizeof right),
                (long long)p.size, (long long)q.size, to, p.axis || q.axis ? " " : "",
                p.axis ? p.axis : (q.axis ? q.axis : ""));
        }
    }
    return TL_OK;
}

void tl_array_broadcast(tl_array *array, const tl_shape *shape) {
    int added = shape->ndim - array->ndim;
    for (int i = shape->ndim - 1; i >= 0; i--) { /* from the last, so that no axis is overwritten before it is moved */
        int at = i - added;
        array->stride[i] = at < 0 || (array->size[at] == 1 && shape->dim[i].size != 1) ? 0 : array->stride[at];
        array->size[i] = shape->dim[i].size;
    }
    array->ndim = shape->ndim;
}

tl_tensor *tl_saved_in(const tl_saved *saved, int input) { return saved->in[input]; }

tl_tensor *tl_saved_out(const tl_saved *saved, int output) { return saved->out[output]; }

const void *tl_saved_attr(const tl_saved *saved) { return saved->attr; }

const tl_shape *tl_saved_shape(const tl_saved *saved, int input) { return &saved->in_shape[input]; }

tl_dtype tl_saved_dtype(const tl_saved *saved, int input) { return saved->in_dtype[input]; }

bool tl_saved_needs(const tl_saved *saved, int input) { return saved->needs[input]; }

const char *tl_saved_site(const tl_saved *saved) { return saved->site; }

tl_tensor *tl_saved_into(const tl_saved *saved, int input) { return saved->into[input]; }

int64_t tl_sample_below(uint64_t *seed, int64_t limit) {
    *seed += 0x9E3779B97F4A7C15u; /* splitmix64, public domain (Vigna) */
    uint64_t z = *seed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return limit > 0 ? (int64_t)(z % (uint64_t)limit) : 0;
}

void tl_sample_input(tl_case *c, tl_dtype dtype, tl_fill fill, int ndim, const int64_t *sizes) {
    int i = c->n_in++;
    c->in[i].ndim = ndim;
    for (int d = 0; d < ndim; d++)
        c->in[i].size[d] = sizes[d];
    c->in[i].dtype = dtype;
    c->in[i].fill = fill;
    c->in[i].fixed_dtype = !tl_dtype_is_float(dtype);
}
