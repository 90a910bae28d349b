/* Checked shapes: names bound to sizes over several tensors. */
#include "axes/pattern.h"

#include <string.h>

static int bound_index(const tl_axes *axes, const char *name) {
    for (int i = 0; i < axes->n; i++)
        if (strcmp(axes->axis[i].name, name) == 0)
            return i;
    return -1;
}

tl_dim tl_axes_dim(const tl_axes *axes, const char *name) {
    int i = bound_index(axes, name);
    return i < 0 ? tl_dim_of(-1) : axes->axis[i].dim;
}

static tl_status bind(const tl_pattern *p, tl_axes *axes, const tl_atom *a, tl_dim dim, const char *tensor) {
    if (axes->n == TL_MAX_AXES)
        return tl_pattern_fail(p, a->at, a->length, TL_ERR_ARGUMENT, "more than %d names", TL_MAX_AXES);
    axes->axis[axes->n].name = a->name;
    axes->axis[axes->n].dim = tl_dim_named(dim, a->name);
    axes->axis[axes->n++].tensor = tensor;
    return TL_OK;
}

/* One axis of the tensor by one name, number or `_`. */
static tl_status check_one(const tl_pattern *p, tl_axes *axes, const tl_atom *a, tl_tensor *t, int at,
                           const char *tensor) {
    tl_dim *dim = &t->shape.dim[at];
    char text[200];
    if (a->number) {
        if (a->number == dim->size)
            return TL_OK;
        return tl_pattern_fail(p, a->at, a->length, TL_ERR_SHAPE, "%s is %s: axis %d is %lld, not %lld", tensor,
                               tl_tensor_text(t, text, sizeof text), at, (long long)dim->size, (long long)a->number);
    }
    if (strcmp(a->name, "_") == 0)
        return TL_OK;
    int i = bound_index(axes, a->name);
    if (i >= 0 && axes->axis[i].dim.size != dim->size)
        return tl_pattern_fail(p, a->at, a->length, TL_ERR_SHAPE, "%s is %s: axis %s is %lld, but %lld in %s", tensor,
                               tl_tensor_text(t, text, sizeof text), a->name, (long long)dim->size,
                               (long long)axes->axis[i].dim.size, axes->axis[i].tensor);
    if (i >= 0)
        tl_dim_assume_equal(p->ctx, *dim, axes->axis[i].dim);
    else if (bind(p, axes, a, *dim, tensor) != TL_OK)
        return p->ctx->error.status;
    dim->axis = a->name;
    return TL_OK;
}

/* `(a b)`: what is bound multiplies; one name may take the rest. */
static tl_status check_product(const tl_pattern *p, tl_axes *axes, const tl_side *side, int group, tl_tensor *t, int at,
                               const char *tensor) {
    int from = side->group[group].at, length = side->group[group].length;
    tl_dim whole = t->shape.dim[at], known = tl_dim_fixed(p->ctx, tl_dim_of(1));
    const tl_atom *open = NULL;
    char text[200];
    for (int i = side->group[group].first; i < side->group[group].first + side->group[group].n; i++) {
        const tl_atom *a = &side->atom[i];
        int bound = a->name ? bound_index(axes, a->name) : -1;
        if (a->number || bound >= 0)
            known = tl_dim_mul(p->ctx, known, a->number ? tl_dim_of(a->number) : axes->axis[bound].dim);
        else if (open)
            return tl_pattern_fail(p, a->at, a->length, TL_ERR_ARGUMENT,
                                   "neither %s nor %s is known yet; bind one by another tensor first", open->name,
                                   a->name);
        else
            open = a;
    }
    if (p->ctx->error.status != TL_OK)
        return p->ctx->error.status;
    if (open ? known.size == 0 || whole.size % known.size != 0 : whole.size != known.size)
        return tl_pattern_fail(p, from, length, TL_ERR_SHAPE, "%s is %s: axis %.*s is %lld, %s %lld", tensor,
                               tl_tensor_text(t, text, sizeof text), length, p->text + from, (long long)whole.size,
                               open ? "not divisible by" : "but the names multiply to", (long long)known.size);
    t->shape.dim[at].axis = tl_pattern_name(p, from, length);
    if (!open) {
        tl_dim_assume_equal(p->ctx, whole, known);
        return p->ctx->error.status;
    }
    tl_dim rest = tl_dim_div(p->ctx, whole, known);
    if (p->ctx->error.status != TL_OK || strcmp(open->name, "_") == 0)
        return p->ctx->error.status;
    return bind(p, axes, open, rest, tensor);
}

/* In a shape a name may be met twice ("n n" is square), unlike in a pattern that moves axes. */
tl_status tl_check_shape_(tl_axes *axes, tl_tensor *t, const char *tensor, const char *pattern, const char *site) {
    tl_pattern p;
    tl_side side;
    char text[200];
    if (!t)
        return TL_ERR_ARGUMENT;
    tl_side_rules rules = {.ellipsis = true, .underscore = true, .numbers = true, .composed = true, .repeated = true};
    tl_status status = tl_pattern_read(&p, t->ctx, "check_shape", pattern, site);
    if (status == TL_OK)
        status = tl_side_parse(&p, 0, p.n, rules, &side);
    if (status != TL_OK)
        return status;
    int named = side.n_group - (side.special >= 0), spread = t->shape.ndim - named;
    if (spread < 0 || (side.special < 0 && spread > 0))
        return tl_pattern_fail(&p, 0, 1, TL_ERR_SHAPE, "%s is %s with %d axes; the pattern names %s%d", tensor,
                               tl_tensor_text(t, text, sizeof text), t->shape.ndim,
                               side.special >= 0 ? "at least " : "", named);
    for (int g = 0, at = 0; g < side.n_group && status == TL_OK; g++) {
        if (g == side.special)
            at += spread;
        else if (side.group[g].composed)
            status = check_product(&p, axes, &side, g, t, at++, tensor);
        else
            status = check_one(&p, axes, &side.atom[side.group[g].first], t, at++, tensor);
    }
    return status;
}
