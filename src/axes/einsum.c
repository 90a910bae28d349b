/* Contractions as views, products and sums. */
#include "axes/einsum.h"
#include "op/views.h"

#include <string.h>

/* A tensor whose axes are labels. */
typedef struct factor {
    tl_tensor *t;
    int n;
    uint8_t label[TL_MAX_NDIM];
    bool own; /* made here: released once it was used */
} factor;

typedef struct job {
    tl_ctx *ctx;
    const tl_einsum_plan *plan;
    const char *site;
    tl_dim dim[TL_EINSUM_LABELS];
} job;

static void replace(factor *f, tl_tensor *t) {
    if (f->own)
        tl_release(f->t);
    f->t = t;
    f->own = true;
}

static void drop_label(factor *f, int axis) {
    f->n--;
    for (int i = axis; i < f->n; i++)
        f->label[i] = f->label[i + 1];
}

static tl_label_set set_of(const factor *f) {
    tl_label_set set = 0;
    for (int i = 0; i < f->n; i++)
        set |= tl_label_bit(f->label[i]);
    return set;
}

/* The sum in x's own dtype: sums of whole numbers are i64, and the next product wants what the operands are. */
static tl_tensor *summed(const job *j, tl_tensor *x, const int axes[], int n) {
    if (!x)
        return NULL;
    tl_tensor *wide = tl_sum_(x, axes, n, false, j->site);
    tl_tensor *sum = tl_cast_(wide, x->dtype, j->site);
    if (sum != wide)
        tl_release(wide);
    return sum;
}

/* Diagonals, stretched axes of size 1, and sums over what no one else needs. */
static void prepare(const job *j, int operand, factor *f) {
    const tl_einsum_plan *plan = j->plan;
    for (int a = 0; a < f->n && f->t; a++)
        for (int b = a + 1; b < f->n && f->t; b++)
            if (f->label[a] == f->label[b]) {
                uint8_t label = f->label[a];
                replace(f, tl_diagonal_(f->t, 0, a, b, j->site));
                drop_label(f, b);
                drop_label(f, a);
                f->label[f->n++] = label;
                a = -1; /* from the start: the axes moved */
                break;
            }
    for (int a = f->n - 1; a >= 0 && f->t; a--)
        if (f->t->shape.dim[a].size != plan->label[f->label[a]].size) {
            replace(f, tl_squeeze_(f->t, a, j->site));
            drop_label(f, a);
        }
    tl_label_set stays = tl_einsum_operand_set(plan, operand);
    int axes[TL_MAX_NDIM], n = 0;
    for (int a = 0; a < f->n; a++)
        if (!(stays >> f->label[a] & 1))
            axes[n++] = a;
    if (n == 0 || !f->t)
        return;
    replace(f, summed(j, f->t, axes, n));
    for (int i = n - 1; i >= 0; i--)
        drop_label(f, axes[i]);
}

/* Axes of f whose label is in `set`, outermost in memory first. */
static int axes_in(const factor *f, tl_label_set set, int axes[]) {
    int n = 0;
    for (int i = 0; i < f->n; i++)
        if (set >> f->label[i] & 1)
            axes[n++] = i;
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0; k--) {
            int64_t a = f->t->stride[axes[k - 1]], b = f->t->stride[axes[k]];
            if ((a < 0 ? -a : a) >= (b < 0 ? -b : b))
                break;
            int swap = axes[k];
            axes[k] = axes[k - 1];
            axes[k - 1] = swap;
        }
    return n;
}

static int axis_of(const factor *f, int label) {
    for (int i = 0; i < f->n; i++)
        if (f->label[i] == label)
            return i;
    return -1;
}

/* Do these labels, in order, join to one axis of f in memory? */
static bool joins(const factor *f, const uint8_t label[], int n) {
    int last = -1;
    for (int i = 0; i < n; i++) {
        int axis = axis_of(f, label[i]);
        int64_t size = f->t->shape.dim[axis].size, reach;
        if (size == 1)
            continue;
        if (last >= 0 && (!tl_mul_i64(f->t->stride[axis], size, &reach) || f->t->stride[last] != reach))
            return false;
        last = axis;
    }
    return true;
}

static int labels_in(const factor *f, tl_label_set set, uint8_t label[]) {
    int axes[TL_MAX_NDIM], n = axes_in(f, set, axes);
    for (int i = 0; i < n; i++)
        label[i] = f->label[axes[i]];
    return n;
}

/* The order in which two factors lay out what is summed: one that both can see without a copy, if there is one. */
static int summed_labels(const factor *a, const factor *b, tl_label_set set, uint8_t label[]) {
    uint8_t other[TL_MAX_NDIM];
    int n = labels_in(a, set, label);
    labels_in(b, set, other);
    int first = joins(a, label, n) + joins(b, label, n), second = joins(a, other, n) + joins(b, other, n);
    if (second > first)
        memcpy(label, other, (size_t)n);
    return n;
}

static tl_dim merged_dim(const job *j, const uint8_t label[], int n) {
    tl_dim dim = tl_dim_fixed(j->ctx, tl_dim_of(1));
    for (int i = 0; i < n; i++)
        dim = i == 0 ? j->dim[label[0]] : tl_dim_mul(j->ctx, dim, j->dim[label[i]]);
    return dim;
}

/* Batch axes that a product takes one by one; where there are more than it takes, the first are merged. */
enum { BATCH = 6 };

typedef struct groups {
    int n_batch, n_rows, n_columns, merged; /* merged: how many of the batch labels are one axis */
    uint8_t batch[TL_MAX_NDIM], rows[TL_MAX_NDIM], columns[TL_MAX_NDIM];
} groups;

/* f as [batch …, rows, columns], a view where memory allows. */
static tl_tensor *matrix_of(const job *j, const factor *f, const groups *g) {
    int order[TL_MAX_NDIM], n = 0;
    tl_shape shape = {0};
    for (int i = 0; i < g->n_batch; i++)
        order[n++] = axis_of(f, g->batch[i]);
    for (int i = 0; i < g->n_rows; i++)
        order[n++] = axis_of(f, g->rows[i]);
    for (int i = 0; i < g->n_columns; i++)
        order[n++] = axis_of(f, g->columns[i]);
    if (g->merged > 0)
        shape.dim[shape.ndim++] = merged_dim(j, g->batch, g->merged);
    for (int i = g->merged; i < g->n_batch; i++)
        shape.dim[shape.ndim++] = j->dim[g->batch[i]];
    shape.dim[shape.ndim++] = merged_dim(j, g->rows, g->n_rows);
    shape.dim[shape.ndim++] = merged_dim(j, g->columns, g->n_columns);
    return j->ctx->error.status == TL_OK ? tl_reshape_(tl_permute_(f->t, order, j->site), shape, j->site) : NULL;
}

/* Sees t as the dims of `labels`, which c gets. */
static void label_result(const job *j, tl_tensor *t, const uint8_t labels[], int n, factor *c) {
    tl_shape shape = {.ndim = n};
    for (int i = 0; i < n; i++) {
        shape.dim[i] = j->dim[labels[i]];
        c->label[i] = labels[i];
    }
    c->n = n;
    c->own = true;
    c->t = tl_view_(t, shape, j->site);
}

static void product(const job *j, const factor *a, const factor *b, tl_label_set kept, factor *c) {
    tl_label_set in_a = set_of(a), in_b = set_of(b);
    groups left = {0}, right;
    uint8_t labels[3 * TL_MAX_NDIM];
    left.n_batch = labels_in(a, in_a & in_b & kept, left.batch);
    left.merged = left.n_batch > BATCH ? left.n_batch - BATCH + 1 : 0;
    right = left;
    left.n_columns = right.n_rows = summed_labels(a, b, in_a & in_b & ~kept, left.columns);
    memcpy(right.rows, left.columns, (size_t)right.n_rows);
    left.n_rows = labels_in(a, in_a & ~in_b, left.rows);
    right.n_columns = labels_in(b, in_b & ~in_a, right.columns);
    tl_tensor *y = tl_matmul_(matrix_of(j, a, &left), matrix_of(j, b, &right), j->site);
    int n = left.n_batch;
    memcpy(labels, left.batch, (size_t)n);
    memcpy(labels + n, left.rows, (size_t)left.n_rows);
    n += left.n_rows;
    memcpy(labels + n, right.columns, (size_t)right.n_columns);
    label_result(j, y, labels, n + right.n_columns, c);
}

/* f with axes `labels`, those it lacks of size 1. */
static tl_tensor *aligned(const job *j, const factor *f, const uint8_t labels[], int n) {
    int order[TL_MAX_NDIM], have = 0;
    tl_shape shape = {.ndim = n};
    for (int i = 0; i < n; i++) {
        int axis = axis_of(f, labels[i]);
        shape.dim[i] = axis < 0 ? tl_dim_fixed(j->ctx, tl_dim_of(1)) : j->dim[labels[i]];
        if (axis >= 0)
            order[have++] = axis;
    }
    return tl_view_(tl_permute_(f->t, order, j->site), shape, j->site);
}

/* Where nothing is summed, or whole numbers are: multiplied with broadcasting, then summed. */
static void outer(const job *j, const factor *a, const factor *b, tl_label_set kept, factor *c) {
    uint8_t labels[2 * TL_MAX_NDIM];
    int axes[TL_MAX_NDIM], n = a->n, gone = 0, left = 0;
    memcpy(labels, a->label, (size_t)n);
    for (int i = 0; i < b->n; i++)
        if (axis_of(a, b->label[i]) < 0)
            labels[n++] = b->label[i];
    if (n > TL_MAX_NDIM) {
        tl_ctx_fail(j->ctx, TL_ERR_SHAPE,
                    "einsum (%s): too many axes: a product of whole numbers would have %d before it is summed", j->site,
                    n);
        return;
    }
    tl_tensor *y = tl_mul_(aligned(j, a, labels, n), aligned(j, b, labels, n), j->site);
    for (int i = 0; i < n; i++)
        if (kept >> labels[i] & 1)
            labels[left++] = labels[i];
        else
            axes[gone++] = i;
    if (gone)
        y = summed(j, y, axes, gone);
    label_result(j, y, labels, left, c);
}

static void contract(const job *j, factor *a, factor *b, tl_label_set needed, factor *c) {
    tl_label_set all = set_of(a) | set_of(b), kept = all & needed;
    tl_tensor *result = NULL;
    c->t = NULL;
    tl_scope_begin(j->ctx);
    if (j->ctx->error.status != TL_OK)
        return;
    if (kept != all && tl_dtype_is_float(a->t->dtype))
        product(j, a, b, kept, c);
    else
        outer(j, a, b, kept, c);
    tl_scope_end_into(j->ctx, &result, c->t);
    c->t = result;
    if (a->own)
        tl_release(a->t);
    if (b->own)
        tl_release(b->t);
    a->own = b->own = false;
}

/* Dims of the labels: from the operand that has the size, with the names that the result will carry. */
static void find_dims(job *j, tl_tensor *const operands[]) {
    const tl_einsum_plan *plan = j->plan;
    for (int i = 0; i < plan->labels; i++) {
        const tl_label *l = &plan->label[i];
        j->dim[i] = tl_dim_fixed(j->ctx, operands[l->operand]->shape.dim[l->axis]);
        if (plan->words && l->name)
            j->dim[i].axis = l->name;
    }
    for (int i = 0; i < plan->n; i++)
        for (int d = 0; d < plan->ndim[i]; d++) {
            tl_dim dim = operands[i]->shape.dim[d];
            int label = plan->axis[i][d];
            if (dim.size == plan->label[label].size)
                tl_dim_assume_equal(j->ctx, j->dim[label], dim);
        }
}

static tl_tensor *in_order(const job *j, const factor *f) {
    int order[TL_MAX_NDIM];
    bool moves = false;
    factor last;
    for (int i = 0; i < f->n; i++) {
        order[i] = axis_of(f, j->plan->out[i]);
        moves |= order[i] != i;
    }
    label_result(j, moves ? tl_permute_(f->t, order, j->site) : f->t, j->plan->out, f->n, &last);
    return last.t;
}

static tl_tensor *run(job *j, tl_tensor *const operands[]) {
    const tl_einsum_plan *plan = j->plan;
    factor f[2 * TL_MAX_IO];
    tl_label_set out = tl_einsum_out_set(plan);
    find_dims(j, operands);
    for (int i = 0; i < plan->n; i++) {
        f[i] = (factor){.t = operands[i], .n = plan->ndim[i]};
        memcpy(f[i].label, plan->axis[i], sizeof f[i].label);
        prepare(j, i, &f[i]);
        if (!f[i].t)
            return NULL;
    }
    bool used[2 * TL_MAX_IO] = {false};
    for (int k = 0; k < plan->n - 1; k++) {
        int a = plan->pair[k][0], b = plan->pair[k][1], c = plan->n + k;
        tl_label_set needed = out;
        used[a] = used[b] = true;
        for (int i = 0; i < c; i++)
            if (!used[i])
                needed |= set_of(&f[i]);
        contract(j, &f[a], &f[b], needed, &f[c]);
        if (!f[c].t)
            return NULL;
    }
    return in_order(j, &f[2 * plan->n - 2]);
}

static bool fits(const tl_einsum_plan *plan, const char *text, tl_tensor *const operands[], int n) {
    if (!plan || plan->n != n || strcmp(plan->text, text) != 0)
        return false;
    for (int i = 0; i < n; i++) {
        if (operands[i]->shape.ndim != plan->ndim[i])
            return false;
        for (int d = 0; d < plan->ndim[i]; d++)
            if (operands[i]->shape.dim[d].size != plan->size[i][d])
                return false;
    }
    return true;
}

void tl_einsum_plan_free(tl_ctx *ctx, tl_einsum_plan *plan) {
    if (!plan)
        return;
    if (plan->text)
        tl_host_free(ctx, plan->text, strlen(plan->text) + 1);
    tl_host_free(ctx, plan, sizeof *plan);
}

static tl_einsum_plan *make_plan(tl_ctx *ctx, const char *text, tl_tensor *const operands[], int n, const char *site) {
    tl_pattern p;
    if (tl_pattern_read(&p, ctx, "einsum", text, site) != TL_OK)
        return NULL;
    tl_einsum_plan *plan = tl_host_alloc(ctx, sizeof *plan);
    if (!plan)
        return NULL;
    plan->n = n;
    for (int i = 0; i < n; i++) {
        plan->ndim[i] = operands[i]->shape.ndim;
        for (int d = 0; d < plan->ndim[i]; d++)
            plan->size[i][d] = operands[i]->shape.dim[d].size;
    }
    plan->text = tl_host_text(ctx, text);
    if (!plan->text || tl_einsum_read(plan, &p, operands) != TL_OK || tl_einsum_decide(plan, &p) != TL_OK) {
        tl_einsum_plan_free(ctx, plan);
        return NULL;
    }
    return plan;
}

static const tl_einsum_plan *plan_for(tl_ctx *ctx, const char *text, tl_tensor *const operands[], int n,
                                      const char *site) {
    if (ctx->error.status != TL_OK)
        return NULL;
    if (n < 1 || n > TL_MAX_IO) {
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "einsum (%s): %d operands; 1 to %d would work", site, n, TL_MAX_IO);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        if (!operands[i])
            return NULL; /* what failed before has its message */
        if (operands[i]->ctx != ctx) {
            tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "einsum (%s): operand %d belongs to another context", site, i);
            return NULL;
        }
    }
    tl_axes_state *state = tl_axes_state_of(ctx);
    int size = state ? (int)(sizeof state->plan / sizeof *state->plan) : 0;
    for (int i = 0; text && i < size; i++)
        if (fits(state->plan[i], text, operands, n))
            return state->plan[i];
    tl_einsum_plan *plan = state ? make_plan(ctx, text, operands, n, site) : NULL;
    if (!plan)
        return NULL;
    tl_einsum_plan_free(ctx, state->plan[state->next]);
    state->plan[state->next] = plan;
    state->next = (state->next + 1) % size;
    state->made++;
    return plan;
}

tl_tensor *tl_einsum_(tl_ctx *ctx, const char *pattern, tl_tensor *const operands[], int n, const char *site) {
    job j = {.ctx = ctx, .site = site, .plan = plan_for(ctx, pattern, operands, n, site)};
    tl_tensor *result = NULL;
    if (!j.plan)
        return NULL;
    tl_scope_begin(ctx);
    if (ctx->error.status != TL_OK)
        return NULL;
    tl_tensor *y = run(&j, operands);
    tl_scope_end_into(ctx, &result, y);
    return result;
}

int tl_einsum_order_(tl_ctx *ctx, const char *pattern, tl_tensor *const operands[], int n, int pair[][2],
                     tl_u128 *flops, const char *site) {
    const tl_einsum_plan *plan = plan_for(ctx, pattern, operands, n, site);
    if (!plan)
        return -1;
    for (int i = 0; i < n - 1; i++) {
        pair[i][0] = plan->pair[i][0];
        pair[i][1] = plan->pair[i][1];
    }
    if (flops)
        *flops = plan->flops;
    return n - 1;
}
