/* pack and unpack: tensors that differ in some axes, flattened and laid side by side, and back. */
#include "axes/pattern.h"

#include <string.h>

typedef struct packing {
    tl_pattern p;
    tl_side side;
    int before, after; /* axes on either side of `*` */
} packing;

static tl_status read_packing(packing *k, tl_ctx *ctx, const char *what, const char *pattern, const char *site) {
    tl_status status = tl_pattern_read(&k->p, ctx, what, pattern, site);
    if (status == TL_OK)
        status = tl_side_parse(&k->p, 0, k->p.n, (tl_side_rules){.star = true}, &k->side);
    if (status != TL_OK)
        return status;
    if (k->side.special < 0)
        return tl_pattern_fail(&k->p, -1, 0, TL_ERR_ARGUMENT, "no * for the axes that are packed");
    if (k->side.n_group > TL_MAX_NDIM)
        return tl_pattern_fail(&k->p, k->side.group[TL_MAX_NDIM].at, 1, TL_ERR_SHAPE, "too many axes: more than %d",
                               TL_MAX_NDIM);
    for (int i = 0; i < k->side.n_atom; i++)
        if (k->side.atom[i].number)
            return tl_pattern_fail(&k->p, k->side.atom[i].at, 1, TL_ERR_ARGUMENT,
                                   "axes are named here; a number has no meaning");
    k->before = k->side.special;
    k->after = k->side.n_group - 1 - k->before;
    return TL_OK;
}

static tl_status check_count(const packing *k, int n) {
    if (n >= 1 && n <= TL_MAX_IO)
        return TL_OK;
    return tl_pattern_fail(&k->p, -1, 0, TL_ERR_ARGUMENT, "%d tensors; 1 to %d would work", n, TL_MAX_IO);
}

/* The axes of x: named ones agree with `common`, those of `*` go to *packed, and *flat is what the pattern says. */
static tl_status flatten(packing *k, int index, const tl_tensor *x, tl_shape *common, tl_shape *packed,
                         tl_shape *flat) {
    int spread = x->shape.ndim - k->before - k->after;
    char text[200];
    if (spread < 0)
        return tl_pattern_fail(&k->p, 0, 1, TL_ERR_SHAPE, "tensor %d, %s, has %d axes; the pattern names at least %d",
                               index, tl_tensor_text(x, text, sizeof text), x->shape.ndim, k->before + k->after);
    tl_dim star = tl_dim_fixed(k->p.ctx, tl_dim_of(1));
    packed->ndim = 0;
    flat->ndim = k->before + 1 + k->after;
    for (int i = 0; i < x->shape.ndim; i++) {
        tl_dim dim = x->shape.dim[i];
        if (i >= k->before && i < k->before + spread) {
            packed->dim[packed->ndim++] = dim;
            star = packed->ndim == 1 ? tl_dim_named(dim, NULL) : tl_dim_mul(k->p.ctx, star, dim);
            continue;
        }
        int at = i < k->before ? i : i - spread + 1;
        const tl_atom *atom = &k->side.atom[at];
        if (index > 0 && common->dim[at].size != dim.size)
            return tl_pattern_fail(&k->p, atom->at, atom->length, TL_ERR_SHAPE,
                                   "axis %s is %lld in tensor %d, but %lld in tensor 0", atom->name,
                                   (long long)dim.size, index, (long long)common->dim[at].size);
        if (index > 0)
            tl_dim_assume_equal(k->p.ctx, common->dim[at], dim);
        flat->dim[at] = tl_dim_named(dim, atom->name);
    }
    flat->dim[k->before] = star;
    if (index == 0)
        *common = *flat;
    return k->p.ctx->error.status;
}

tl_tensor *tl_pack_(tl_tensor *const x[], int n, const char *pattern, tl_shape packed[], const char *site) {
    packing k;
    tl_shape common, flat;
    tl_tensor *part[TL_MAX_IO], *result = NULL, *whole = NULL;
    for (int i = 0; i < n; i++)
        if (!x[i])
            return NULL;
    if (n < 1)
        return NULL;
    tl_ctx *ctx = x[0]->ctx;
    if (read_packing(&k, ctx, "pack", pattern, site) != TL_OK || check_count(&k, n) != TL_OK)
        return NULL;
    tl_scope_begin(ctx);
    for (int i = 0; i < n && ctx->error.status == TL_OK; i++)
        if (flatten(&k, i, x[i], &common, &packed[i], &flat) == TL_OK)
            part[i] = tl_reshape_(x[i], flat, site);
    if (ctx->error.status == TL_OK)
        whole = tl_concat_(part, n, k.before, site);
    tl_scope_end_into(ctx, &result, whole);
    return result;
}

/* Sizes along `*`: products of the packed shapes, one of which may hold a −1. */
static tl_status packed_sizes(packing *k, tl_dim star, const tl_shape packed[], int n, tl_shape shape[],
                              tl_dim size[]) {
    tl_ctx *ctx = k->p.ctx;
    int open = -1, open_axis = -1;
    int64_t used = 0;
    for (int i = 0; i < n; i++) {
        shape[i] = packed[i];
        size[i] = tl_dim_fixed(ctx, tl_dim_of(1));
        if (packed[i].ndim < 0 || packed[i].ndim + k->before + k->after > TL_MAX_NDIM)
            return tl_pattern_fail(&k->p, -1, 0, TL_ERR_SHAPE, "tensor %d would have too many axes: more than %d", i,
                                   TL_MAX_NDIM);
        for (int d = 0; d < packed[i].ndim; d++) {
            if (packed[i].dim[d].size == -1 && open < 0) {
                open = i;
                open_axis = d;
                continue;
            }
            if (packed[i].dim[d].size < 0)
                return tl_pattern_fail(&k->p, -1, 0, TL_ERR_ARGUMENT,
                                       "size %lld in the shape of tensor %d; one -1 at most",
                                       (long long)packed[i].dim[d].size, i);
            shape[i].dim[d] = tl_dim_fixed(ctx, packed[i].dim[d]);
            size[i] = tl_dim_mul(ctx, size[i], shape[i].dim[d]);
        }
        if (i != open && ctx->error.status == TL_OK && !tl_add_i64(used, size[i].size, &used))
            return tl_pattern_fail(&k->p, -1, 0, TL_ERR_OVERFLOW, "the packed sizes add up to more than 2^63");
    }
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    int64_t rest = star.size - used;
    if (open < 0 ? rest != 0 : rest < 0 || size[open].size == 0 || rest % size[open].size != 0)
        return tl_pattern_fail(&k->p, k->side.group[k->before].at, 1, TL_ERR_SHAPE,
                               "the packed axis has %lld, but the shapes take %lld%s", (long long)star.size,
                               (long long)used, open < 0 ? "" : " and what is left does not divide");
    if (open >= 0) {
        shape[open].dim[open_axis] = tl_dim_fixed(ctx, tl_dim_of(rest / size[open].size));
        size[open] = tl_dim_fixed(ctx, tl_dim_of(rest));
    }
    return TL_OK;
}

tl_status tl_unpack_(tl_tensor *x, const tl_shape packed[], int n, const char *pattern, tl_tensor *out[],
                     const char *site) {
    packing k;
    tl_shape shape[TL_MAX_IO];
    tl_dim size[TL_MAX_IO];
    tl_tensor *part[TL_MAX_IO];
    char text[200];
    for (int i = 0; i < n; i++)
        out[i] = NULL;
    if (!x)
        return TL_ERR_ARGUMENT;
    tl_status status = read_packing(&k, x->ctx, "unpack", pattern, site);
    if (status == TL_OK)
        status = check_count(&k, n);
    if (status != TL_OK)
        return status;
    if (x->shape.ndim != k.side.n_group)
        return tl_pattern_fail(&k.p, 0, 1, TL_ERR_SHAPE, "%s has %d axes, but the pattern names %d",
                               tl_tensor_text(x, text, sizeof text), x->shape.ndim, k.side.n_group);
    if ((status = packed_sizes(&k, x->shape.dim[k.before], packed, n, shape, size)) != TL_OK ||
        (status = tl_split_(x, k.before, size, n, part, site)) != TL_OK)
        return status;
    for (int i = 0; i < n; i++) {
        tl_shape full = {.ndim = k.before + shape[i].ndim + k.after};
        for (int d = 0; d < k.before; d++)
            full.dim[d] = tl_dim_named(x->shape.dim[d], k.side.atom[d].name);
        for (int d = 0; d < shape[i].ndim; d++)
            full.dim[k.before + d] = shape[i].dim[d];
        for (int d = 0; d < k.after; d++)
            full.dim[k.before + shape[i].ndim + d] =
                tl_dim_named(x->shape.dim[k.before + 1 + d], k.side.atom[k.before + 1 + d].name);
        out[i] = tl_view_(part[i], full, site);
        tl_release(part[i]);
    }
    return x->ctx->error.status;
}
