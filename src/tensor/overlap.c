/* Do two tensors share memory? The elements of a view are offset + Σ stride·index with bounded indices, so two views share
 * one if a bounded linear equation has a solution. */
#include "tensor/ctx.h"

typedef __int128 wide;

enum { MAX_TERMS = 2 * TL_MAX_NDIM + 2, BUDGET = 4096 };

typedef struct equation {
    wide coefficient[MAX_TERMS], bound[MAX_TERMS]; /* Σ coefficient·z, 0 ≤ z ≤ bound; coefficients fall, all above 0 */
    wide most[MAX_TERMS + 1], divisor[MAX_TERMS + 1]; /* of the terms from here on */
    int n, left;
} equation;

static void add_term(equation *e, wide coefficient, wide bound) {
    int at = 0;
    if (coefficient == 0 || bound == 0)
        return;
    while (at < e->n && e->coefficient[at] > coefficient)
        at++;
    if (at < e->n && e->coefficient[at] == coefficient) {
        e->bound[at] += bound;
        return;
    }
    for (int i = e->n++; i > at; i--) {
        e->coefficient[i] = e->coefficient[i - 1];
        e->bound[i] = e->bound[i - 1];
    }
    e->coefficient[at] = coefficient;
    e->bound[at] = bound;
}

/* Adds t's axes as terms; gives its lowest and highest byte. False: it has no elements. */
static bool add_tensor(equation *e, const tl_tensor *t, wide *low, wide *high) {
    wide bytes = tl_dtype_bytes(t->dtype);
    *low = *high = t->offset * bytes;
    for (int i = 0; i < t->shape.ndim; i++) {
        wide reach = t->shape.dim[i].size - 1, stride = t->stride[i] * bytes;
        if (reach < 0)
            return false;
        if (stride < 0)
            *low += stride * reach;
        else
            *high += stride * reach;
        add_term(e, stride < 0 ? -stride : stride, reach);
    }
    return true;
}

static wide divisor_of(wide a, wide b) {
    while (b) {
        wide rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Has Σ from term `at` on = target a solution? True too when the budget runs out. */
static bool solvable(equation *e, int at, wide target) {
    if (target < 0 || target > e->most[at])
        return false;
    if (target == 0)
        return true;
    if (at == e->n || target % e->divisor[at])
        return false;
    if (--e->left < 0)
        return true;
    wide c = e->coefficient[at], most = target / c, least = 0;
    if (most > e->bound[at])
        most = e->bound[at];
    if (target > e->most[at + 1])
        least = (target - e->most[at + 1] + c - 1) / c;
    for (wide z = most; z >= least; z--)
        if (solvable(e, at + 1, target - z * c))
            return true;
    return false;
}

bool tl_tensors_overlap(const tl_tensor *a, const tl_tensor *b) {
    if (!a || !b || a->storage != b->storage)
        return false;
    equation e = {.left = BUDGET};
    wide a_low, a_high, b_low, b_high;
    if (!add_tensor(&e, a, &a_low, &a_high) || !add_tensor(&e, b, &b_low, &b_high))
        return false;
    /* An index of b counted from its other end turns its terms' signs: a_low + Σ… = b_high − Σ…. */
    wide target = b_high - a_low;
    if (tl_dtype_bytes(a->dtype) != tl_dtype_bytes(b->dtype)) { /* the bytes within each element */
        add_term(&e, 1, tl_dtype_bytes(a->dtype) - 1);
        add_term(&e, 1, tl_dtype_bytes(b->dtype) - 1);
        target += tl_dtype_bytes(b->dtype) - 1;
    }
    for (int i = e.n - 1; i >= 0; i--) {
        e.most[i] = e.most[i + 1] + e.coefficient[i] * e.bound[i];
        e.divisor[i] = divisor_of(e.coefficient[i], e.divisor[i + 1]);
    }
    return solvable(&e, 0, target);
}
