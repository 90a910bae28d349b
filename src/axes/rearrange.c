/* rearrange, reduce, repeat: one path. The tensor is seen with an axis for each name (a view), the axes that go are
 * reduced, the others put in order, new ones stretched, and neighbours merged. */
#include "axes/pattern.h"
#include "op/reduce.h"

#include <string.h>

typedef enum kind { REARRANGE, REDUCE, REPEAT } kind;

/* An axis of the tensor once every name has its own. */
typedef struct axis {
    const char *name;
    tl_dim dim;
    bool spread; /* one of the axes of `...` */
} axis;

typedef struct transform {
    tl_pattern p;
    kind kind;
    tl_side left, right;
    const tl_axis_length *lengths;
    int n_lengths, spread; /* spread: how many axes `...` stands for */
    int n;
    axis axis[TL_MAX_NDIM];
} transform;

static const tl_dim *given_length(const transform *t, const char *name) {
    for (int i = 0; name && i < t->n_lengths; i++)
        if (strcmp(t->lengths[i].name, name) == 0)
            return &t->lengths[i].dim;
    return NULL;
}

static const tl_atom *atom_of(const tl_side *side, const char *name) {
    for (int i = 0; i < side->n_atom; i++)
        if (side->atom[i].name && strcmp(side->atom[i].name, name) == 0)
            return &side->atom[i];
    return NULL;
}

static tl_status check_lengths(transform *t) {
    for (int i = 0; i < t->n_lengths; i++) {
        const char *name = t->lengths[i].name;
        long long size = t->lengths[i].dim.size;
        if (!name)
            return tl_pattern_fail(&t->p, -1, 0, TL_ERR_ARGUMENT, "axis length %d, %lld, has no name", i, size);
        const tl_atom *atom = atom_of(&t->left, name);
        if (!atom)
            atom = atom_of(&t->right, name);
        if (!atom)
            return tl_pattern_fail(&t->p, -1, 0, TL_ERR_ARGUMENT,
                                   "axis length given for an axis that is not there: \"%.60s\" = %lld", name, size);
        if (size < 0)
            return tl_pattern_fail(&t->p, atom->at, atom->length, TL_ERR_ARGUMENT, "axis %s is given %lld; at least 0",
                                   name, size);
        for (int j = 0; j < i; j++)
            if (strcmp(t->lengths[j].name, name) == 0)
                return tl_pattern_fail(&t->p, atom->at, atom->length, TL_ERR_ARGUMENT,
                                       "axis %s is given two lengths, %lld and %lld", name,
                                       (long long)t->lengths[j].dim.size, size);
    }
    return TL_OK;
}

/* Which names may be on one side alone. */
static tl_status check_sides(transform *t) {
    const tl_pattern *p = &t->p;
    if (t->left.special < 0 && t->right.special >= 0) {
        int at = t->right.group[t->right.special].first;
        while (t->right.atom[at].kind != TL_TOKEN_ELLIPSIS)
            at++;
        return tl_pattern_fail(p, t->right.atom[at].at, 3, TL_ERR_ARGUMENT, "... on the right side only");
    }
    if (t->left.special >= 0 && t->right.special < 0 && t->kind != REDUCE)
        return tl_pattern_fail(p, t->left.group[t->left.special].at, 3, TL_ERR_ARGUMENT,
                               "... on the left side only; the axes it stands for have nowhere to go");
    for (int i = 0; i < t->left.n_atom; i++) {
        const tl_atom *a = &t->left.atom[i];
        if (t->kind != REDUCE && a->name && !atom_of(&t->right, a->name))
            return tl_pattern_fail(p, a->at, a->length, TL_ERR_ARGUMENT,
                                   "axis \"%s\" is on the left side only; name it on the right too%s", a->name,
                                   t->kind == REARRANGE ? ", or tl_reduce it away" : "");
        if (t->kind == REPEAT && a->number > 1)
            return tl_pattern_fail(p, a->at, a->length, TL_ERR_ARGUMENT,
                                   "an unnamed axis on the left has nowhere to go");
    }
    for (int i = 0; i < t->right.n_atom; i++) {
        const tl_atom *a = &t->right.atom[i];
        if (t->kind == REDUCE && a->number > 1)
            return tl_pattern_fail(p, a->at, a->length, TL_ERR_ARGUMENT,
                                   "a reduction makes no new axes; %lld has nothing to come from",
                                   (long long)a->number);
        if (!a->name || atom_of(&t->left, a->name))
            continue;
        if (t->kind != REPEAT)
            return tl_pattern_fail(p, a->at, a->length, TL_ERR_ARGUMENT,
                                   "unknown axis \"%s\": it is on the right side only%s", a->name,
                                   t->kind == REARRANGE ? "; tl_repeat_axes makes new axes" : "");
        if (!given_length(t, a->name))
            return tl_pattern_fail(p, a->at, a->length, TL_ERR_ARGUMENT, "new axis \"%s\" needs a length", a->name);
    }
    return TL_OK;
}

static tl_status add_axis(transform *t, const tl_atom *atom, tl_dim dim, bool spread) {
    if (t->n == TL_MAX_NDIM)
        return tl_pattern_fail(&t->p, atom->at, atom->length, TL_ERR_SHAPE,
                               "too many axes: the tensor would be seen with more than %d", TL_MAX_NDIM);
    if (!spread)
        dim.axis = atom->name;
    t->axis[t->n++] = (axis){atom->name, dim, spread};
    return TL_OK;
}

/* `(a b)` of which the tensor has the product. */
static tl_status split_group(transform *t, int group, tl_dim whole) {
    tl_ctx *ctx = t->p.ctx;
    tl_dim known = tl_dim_fixed(ctx, tl_dim_of(1)), dim[TL_SIDE_ATOMS];
    int first = t->left.group[group].first, n = t->left.group[group].n, open = -1;
    int at = t->left.group[group].at, length = t->left.group[group].length;
    const char *text = t->p.text + at;
    for (int i = 0; i < n; i++) {
        const tl_atom *a = &t->left.atom[first + i];
        const tl_dim *given = given_length(t, a->name);
        if (!given && !a->number) {
            if (open >= 0)
                return tl_pattern_fail(&t->p, at, length, TL_ERR_ARGUMENT,
                                       "lengths of both %s and %s in %.*s are unknown; give all but one",
                                       t->left.atom[first + open].name, a->name, length, text);
            open = i;
            continue;
        }
        dim[i] = tl_dim_fixed(ctx, given ? *given : tl_dim_of(a->number));
        known = tl_dim_mul(ctx, known, dim[i]);
        if (ctx->error.status != TL_OK)
            return ctx->error.status;
    }
    if (open < 0 && known.size != whole.size)
        return tl_pattern_fail(&t->p, at, length, TL_ERR_SHAPE,
                               "axis %.*s is %lld in the tensor, but the lengths given multiply to %lld", length, text,
                               (long long)whole.size, (long long)known.size);
    if (open < 0)
        tl_dim_assume_equal(ctx, whole, known);
    else if (known.size == 0 || whole.size % known.size)
        return tl_pattern_fail(&t->p, at, length, TL_ERR_SHAPE,
                               "axis %.*s is %lld: %lld not divisible by %lld, the lengths given", length, text,
                               (long long)whole.size, (long long)whole.size, (long long)known.size);
    else
        dim[open] = tl_dim_div(ctx, whole, known);
    for (int i = 0; i < n && ctx->error.status == TL_OK; i++) {
        const tl_atom *a = &t->left.atom[first + i];
        if (a->number != 1)
            add_axis(t, a, dim[i], false);
    }
    return ctx->error.status;
}

static tl_status match_axis(transform *t, const tl_atom *a, tl_dim dim) {
    const tl_dim *given = given_length(t, a->name);
    long long want = given ? (long long)given->size : (long long)a->number;
    if ((given || a->number) && want != dim.size)
        return tl_pattern_fail(&t->p, a->at, a->length, TL_ERR_SHAPE,
                               "axis %.*s is %lld in the tensor, but %lld was asked for", a->length, t->p.text + a->at,
                               (long long)dim.size, want);
    if (given)
        tl_dim_assume_equal(t->p.ctx, dim, *given);
    return a->number == 1 ? TL_OK : add_axis(t, a, dim, false);
}

/* Gives every name of the left side its dim. */
static tl_status match_left(transform *t, const tl_tensor *x) {
    char text[200];
    int named = t->left.n_group - (t->left.special >= 0);
    t->spread = x->shape.ndim - named;
    if (t->spread < 0 || (t->left.special < 0 && t->spread > 0))
        return tl_pattern_fail(&t->p, 0, 1, TL_ERR_SHAPE, "%s has %d axes, but the left side names %s%d",
                               tl_tensor_text(x, text, sizeof text), x->shape.ndim,
                               t->left.special >= 0 ? "at least " : "", named);
    for (int g = 0, at = 0; g < t->left.n_group; g++) {
        const tl_atom *first = &t->left.atom[t->left.group[g].first];
        tl_status status = TL_OK;
        if (g == t->left.special)
            for (int i = 0; i < t->spread && status == TL_OK; i++)
                status = add_axis(t, first, x->shape.dim[at++], true);
        else if (t->left.group[g].composed)
            status = split_group(t, g, x->shape.dim[at++]);
        else
            status = match_axis(t, first, x->shape.dim[at++]);
        if (status != TL_OK)
            return status;
    }
    return TL_OK;
}

static const tl_op *reduction_op(transform *t, tl_reduce_op reduction) {
    static const char *const names[] = {"sum", "mean", "max", "min", "prod"};
    if ((unsigned)reduction >= sizeof names / sizeof *names) {
        tl_pattern_fail(&t->p, -1, 0, TL_ERR_ARGUMENT, "reduction %d is none of sum, mean, max, min, prod",
                        (int)reduction);
        return NULL;
    }
    for (int i = 0; i < tl_op_list_count; i++)
        if (strcmp(tl_op_list[i]->name, names[reduction]) == 0 && tl_op_list[i]->attr_size == sizeof(tl_reduce_attr))
            return tl_op_list[i];
    tl_pattern_fail(&t->p, -1, 0, TL_ERR_UNSUPPORTED, "this build has no op %s", names[reduction]);
    return NULL;
}

static tl_tensor *reduced(transform *t, tl_tensor *x, const tl_op *op) {
    int axes[TL_MAX_NDIM], n = 0, kept = 0;
    for (int i = 0; i < t->n; i++) {
        const axis *a = &t->axis[i];
        bool stays = a->spread ? t->right.special >= 0 : a->name && atom_of(&t->right, a->name);
        if (stays)
            t->axis[kept++] = *a;
        else
            axes[n++] = i;
    }
    t->n = kept;
    if (n == 0)
        return x;
    tl_tensor *r = tl_reduce_call(op, x, axes, n, false, t->p.site);
    tl_release(x);
    return r;
}

/* Where the axes of the right side come from: an index of t->axis, or −1 for a new one with this dim. */
typedef struct target {
    int n, from[TL_MAX_NDIM];
    axis axis[TL_MAX_NDIM];
} target;

static tl_status add_target(transform *t, const tl_atom *atom, target *to, int from, axis a) {
    if (to->n == TL_MAX_NDIM)
        return tl_pattern_fail(&t->p, atom->at, atom->length, TL_ERR_SHAPE,
                               "too many axes: the result would be seen with more than %d", TL_MAX_NDIM);
    to->from[to->n] = from;
    to->axis[to->n++] = a;
    return TL_OK;
}

static tl_status target_atom(transform *t, const tl_atom *atom, target *to) {
    if (atom->kind == TL_TOKEN_ELLIPSIS) {
        for (int i = 0; i < t->n; i++)
            if (t->axis[i].spread) {
                tl_status status = add_target(t, atom, to, i, t->axis[i]);
                if (status != TL_OK)
                    return status;
            }
        return TL_OK;
    }
    if (atom->number == 1)
        return TL_OK;
    for (int i = 0; i < t->n && atom->name; i++)
        if (!t->axis[i].spread && t->axis[i].name == atom->name)
            return add_target(t, atom, to, i, t->axis[i]);
    const tl_dim *given = given_length(t, atom->name);
    tl_dim dim = tl_dim_fixed(t->p.ctx, given ? *given : tl_dim_of(atom->number));
    dim.axis = atom->name;
    return add_target(t, atom, to, -1, (axis){atom->name, dim, false});
}

/* The final shape: groups multiply; a merged axis is named as it is written. */
static tl_status final_shape(transform *t, const target *to, tl_shape *shape) {
    tl_ctx *ctx = t->p.ctx;
    int at = 0;
    shape->ndim = 0;
    for (int g = 0; g < t->right.n_group; g++) {
        bool composed = t->right.group[g].composed;
        tl_dim whole = tl_dim_fixed(ctx, tl_dim_of(1));
        int length = t->right.group[g].length, first = t->right.group[g].first, factors = 0;
        for (int i = first; i < first + t->right.group[g].n; i++) {
            const tl_atom *a = &t->right.atom[i];
            int axes = a->kind == TL_TOKEN_ELLIPSIS ? t->spread : a->number == 1 ? 0 : 1;
            for (int k = 0; k < axes; k++, at++, factors++) {
                whole = composed && factors ? tl_dim_mul(ctx, whole, to->axis[at].dim) : to->axis[at].dim;
                if (!composed && a->kind == TL_TOKEN_ELLIPSIS)
                    shape->dim[shape->ndim++] = whole; /* at most as many as targets */
            }
        }
        if (!composed && g == t->right.special)
            continue;
        if (shape->ndim == TL_MAX_NDIM)
            return tl_pattern_fail(&t->p, t->right.group[g].at, length, TL_ERR_SHAPE,
                                   "too many axes: the result would have more than %d", TL_MAX_NDIM);
        if (composed && factors > 1)
            whole.axis = tl_pattern_name(&t->p, t->right.group[g].at, length);
        shape->dim[shape->ndim++] = whole;
    }
    return ctx->error.status;
}

static tl_tensor *arranged(transform *t, tl_tensor *x) {
    target to = {0};
    tl_shape shape = {0}, with_ones = {0}, wide = {0};
    int order[TL_MAX_NDIM], n = 0;
    bool grows = false, moves = false;
    for (int i = 0; i < t->right.n_atom; i++)
        if (target_atom(t, &t->right.atom[i], &to) != TL_OK)
            return NULL;
    if (final_shape(t, &to, &shape) != TL_OK)
        return NULL;
    with_ones.ndim = wide.ndim = to.n;
    for (int i = 0; i < to.n; i++) {
        bool fresh = to.from[i] < 0;
        wide.dim[i] = to.axis[i].dim;
        with_ones.dim[i] = fresh ? tl_dim_fixed(t->p.ctx, tl_dim_of(1)) : to.axis[i].dim;
        grows |= fresh;
        if (!fresh) {
            moves |= to.from[i] != n;
            order[n++] = to.from[i];
        }
    }
    if (moves)
        x = tl_permute_(x, order, t->p.site);
    if (grows)
        x = tl_expand_(tl_view_(x, with_ones, t->p.site), wide, t->p.site);
    return tl_reshape_(x, shape, t->p.site);
}

static tl_tensor *run(transform *t, tl_tensor *x, const tl_op *op) {
    tl_ctx *ctx = x->ctx;
    tl_shape split = {.ndim = t->n};
    tl_tensor *result = NULL;
    for (int i = 0; i < t->n; i++)
        split.dim[i] = t->axis[i].dim;
    tl_scope_begin(ctx);
    if (ctx->error.status != TL_OK)
        return NULL;
    tl_tensor *y = tl_view_(x, split, t->p.site);
    if (y && op)
        y = reduced(t, y, op);
    if (y)
        y = arranged(t, y);
    tl_scope_end_into(ctx, &result, y);
    return result;
}

static tl_tensor *transformed(tl_tensor *x, kind how, tl_reduce_op reduction, const char *pattern,
                              const tl_axis_length *lengths, int n, const char *site) {
    static const char *const names[] = {"rearrange", "reduce", "repeat_axes"};
    transform t;
    int arrow;
    if (!x)
        return NULL;
    t.kind = how;
    t.lengths = lengths;
    t.n_lengths = lengths ? n : 0;
    t.n = t.spread = 0;
    tl_side_rules left = {.ellipsis = true, .numbers = how == REDUCE, .composed = true};
    tl_side_rules right = {.ellipsis = true, .ellipsis_inside = true, .numbers = how != REARRANGE, .composed = true};
    if (tl_pattern_read(&t.p, x->ctx, names[how], pattern, site) != TL_OK || tl_pattern_arrow(&t.p, &arrow) != TL_OK ||
        tl_side_parse(&t.p, 0, arrow, left, &t.left) != TL_OK ||
        tl_side_parse(&t.p, arrow + 1, t.p.n, right, &t.right) != TL_OK || check_lengths(&t) != TL_OK ||
        check_sides(&t) != TL_OK || match_left(&t, x) != TL_OK)
        return NULL;
    const tl_op *op = how == REDUCE ? reduction_op(&t, reduction) : NULL;
    return how == REDUCE && !op ? NULL : run(&t, x, op);
}

tl_tensor *tl_rearrange_(tl_tensor *x, const char *pattern, const tl_axis_length *lengths, int n, const char *site) {
    return transformed(x, REARRANGE, TL_REDUCE_SUM, pattern, lengths, n, site);
}

tl_tensor *tl_reduce_(tl_tensor *x, const char *pattern, tl_reduce_op reduction, const tl_axis_length *lengths, int n,
                      const char *site) {
    return transformed(x, REDUCE, reduction, pattern, lengths, n, site);
}

tl_tensor *tl_repeat_axes_(tl_tensor *x, const char *pattern, const tl_axis_length *lengths, int n, const char *site) {
    return transformed(x, REPEAT, TL_REDUCE_SUM, pattern, lengths, n, site);
}
