/* Chains of views of a small storage against brute force: beside each view, the list of elements it should meet, made by
 * the definition of the operation index by index. Strides and offset must give that list, all of it inside the storage;
 * what is legal must be accepted (a view of another shape may need a copy), what is not, refused with a message. */
#include "tally/views.h"

#include "tally/ops.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ELEMENTS = 60, MOST = 4096 };

typedef struct bytes {
    const uint8_t *data;
    size_t left;
} bytes;

static int next(bytes *b, int limit) {
    if (b->left == 0)
        return 0;
    b->left--;
    return *b->data++ % limit;
}

typedef struct model {
    int ndim;
    int64_t size[TL_MAX_NDIM], count;
    int16_t at[MOST];
} model;

static void start(model *m, int ndim, const int64_t *size) {
    m->ndim = ndim;
    m->count = 1;
    for (int i = 0; i < ndim; i++)
        m->count *= m->size[i] = size[i];
}

static void unravel(const model *m, int64_t flat, int64_t index[]) {
    for (int d = m->ndim - 1; d >= 0; d--) {
        index[d] = flat % m->size[d];
        flat /= m->size[d];
    }
}

static int16_t element(const model *m, const int64_t index[]) {
    int64_t flat = 0;
    for (int d = 0; d < m->ndim; d++)
        flat = flat * m->size[d] + index[d];
    return m->at[flat];
}

/* One operation, drawn: `x` to `*y` by the library, `from` to `to` by definition. Returns whether it is legal: 0 no, 1 yes,
 * 2 legal but a copy may be needed. */
typedef struct step {
    tl_ctx *ctx;
    bytes *b;
    tl_tensor *x, *y;
    const model *from;
    model *to;
} step;

static bool begin(step *s, int ndim, const int64_t *size) {
    int64_t count = 1;
    if (ndim > TL_MAX_NDIM)
        return false;
    for (int i = 0; i < ndim; i++)
        count *= size[i] < 0 ? 0 : size[i];
    if (count > MOST)
        return false;
    start(s->to, ndim, size);
    return true;
}

static int step_slice(step *s) {
    const model *f = s->from;
    int axis = next(s->b, f->ndim ? f->ndim : 1);
    int64_t first = next(s->b, 9) - 2, count = next(s->b, 6), by = next(s->b, 7) - 3, size[TL_MAX_NDIM];
    s->y = tl_slice(s->x, axis, first, tl_dim_of(count), by);
    if (f->ndim == 0 || by == 0)
        return 0;
    int64_t n = f->size[axis];
    first = first < 0 ? first + n : first;
    int64_t last = first + (count - 1) * by;
    if (first < 0 || first > n || (count > 0 && (first >= n || last < 0 || last >= n)))
        return 0;
    memcpy(size, f->size, sizeof size);
    size[axis] = count;
    if (!begin(s, f->ndim, size))
        return 0;
    for (int64_t i = 0; i < s->to->count; i++) {
        int64_t index[TL_MAX_NDIM];
        unravel(s->to, i, index);
        index[axis] = first + index[axis] * by;
        s->to->at[i] = element(f, index);
    }
    return 1;
}

static int step_select(step *s) {
    const model *f = s->from;
    int axis = next(s->b, f->ndim ? f->ndim : 1);
    int64_t at = next(s->b, 12) - 6, size[TL_MAX_NDIM] = {0};
    s->y = tl_select(s->x, axis, at);
    if (f->ndim == 0 || at >= f->size[axis] || at < -f->size[axis])
        return 0;
    at = at < 0 ? at + f->size[axis] : at;
    for (int i = 0, k = 0; i < f->ndim; i++)
        if (i != axis)
            size[k++] = f->size[i];
    begin(s, f->ndim - 1, size);
    for (int64_t i = 0; i < s->to->count; i++) {
        int64_t index[TL_MAX_NDIM], full[TL_MAX_NDIM];
        unravel(s->to, i, index);
        for (int d = 0, k = 0; d < f->ndim; d++)
            full[d] = d == axis ? at : index[k++];
        s->to->at[i] = element(f, full);
    }
    return 1;
}

static int step_flip(step *s) {
    const model *f = s->from;
    int axis = next(s->b, f->ndim + 1) - 1; /* −1: all */
    s->y = tl_flip(s->x, &axis, axis < 0 ? 0 : 1);
    begin(s, f->ndim, f->size);
    for (int64_t i = 0; i < s->to->count; i++) {
        int64_t index[TL_MAX_NDIM];
        unravel(s->to, i, index);
        for (int d = 0; d < f->ndim; d++)
            if (axis < 0 || d == axis)
                index[d] = f->size[d] - 1 - index[d];
        s->to->at[i] = element(f, index);
    }
    return 1;
}

static int step_transpose(step *s) {
    const model *f = s->from;
    int a = next(s->b, 8), b = next(s->b, 8);
    int64_t size[TL_MAX_NDIM];
    s->y = tl_transpose(s->x, a, b);
    if (a >= f->ndim || b >= f->ndim)
        return 0;
    memcpy(size, f->size, sizeof size);
    size[a] = f->size[b];
    size[b] = f->size[a];
    begin(s, f->ndim, size);
    for (int64_t i = 0; i < s->to->count; i++) {
        int64_t index[TL_MAX_NDIM], swap;
        unravel(s->to, i, index);
        swap = index[a];
        index[a] = index[b];
        index[b] = swap;
        s->to->at[i] = element(f, index);
    }
    return 1;
}

static int step_expand(step *s) {
    const model *f = s->from;
    int more = next(s->b, 3), legal = 1;
    tl_shape shape = {.ndim = f->ndim + more};
    int64_t size[2 * TL_MAX_NDIM];
    for (int i = 0; i < shape.ndim; i++) {
        size[i] = i < more || f->size[i - more] == 1 ? next(s->b, 4) : f->size[i - more];
        if (i < TL_MAX_NDIM)
            shape.dim[i] = tl_dim_of(size[i]);
    }
    if (!begin(s, shape.ndim, size))
        legal = 0;
    if (legal || shape.ndim > TL_MAX_NDIM)
        s->y = tl_expand(s->x, shape);
    for (int64_t i = 0; legal && i < s->to->count; i++) {
        int64_t index[TL_MAX_NDIM];
        unravel(s->to, i, index);
        for (int d = 0; d < f->ndim; d++)
            if (f->size[d] == 1)
                index[d + more] = 0;
        s->to->at[i] = element(f, index + more);
    }
    return legal;
}

static int step_diagonal(step *s) {
    const model *f = s->from;
    int a = next(s->b, 4), b = next(s->b, 4), k = 0;
    int64_t offset = next(s->b, 9) - 4, size[TL_MAX_NDIM];
    s->y = tl_diagonal(s->x, offset, a, b);
    if (a >= f->ndim || b >= f->ndim || a == b)
        return 0;
    for (int i = 0; i < f->ndim; i++)
        if (i != a && i != b)
            size[k++] = f->size[i];
    size[k] = 0;
    for (int64_t i = 0; i < f->size[a]; i++)
        size[k] += i + offset >= 0 && i + offset < f->size[b];
    begin(s, k + 1, size);
    for (int64_t i = 0; i < s->to->count; i++) {
        int64_t index[TL_MAX_NDIM], full[TL_MAX_NDIM];
        unravel(s->to, i, index);
        for (int d = 0, from = 0; d < f->ndim; d++)
            if (d != a && d != b)
                full[d] = index[from++];
        full[a] = index[k] + (offset < 0 ? -offset : 0);
        full[b] = full[a] + offset;
        s->to->at[i] = element(f, full);
    }
    return 1;
}

static int step_unfold(step *s) {
    const model *f = s->from;
    int axis = next(s->b, f->ndim ? f->ndim : 1);
    int64_t width = next(s->b, 6), by = next(s->b, 4), size[TL_MAX_NDIM + 1] = {0};
    s->y = tl_unfold(s->x, axis, tl_dim_of(width), by);
    if (f->ndim == 0 || f->ndim == TL_MAX_NDIM || width < 1 || by < 1 || width > f->size[axis])
        return 0;
    memcpy(size, f->size, sizeof f->size);
    size[axis] = 0;
    for (int64_t i = 0; i + width <= f->size[axis]; i += by)
        size[axis]++;
    size[f->ndim] = width;
    if (!begin(s, f->ndim + 1, size))
        return 3; /* right, and too large to follow */
    for (int64_t i = 0; i < s->to->count; i++) {
        int64_t index[TL_MAX_NDIM];
        unravel(s->to, i, index);
        index[axis] = index[axis] * by + index[f->ndim];
        s->to->at[i] = element(f, index);
    }
    return 1;
}

static int step_ones(step *s) {
    const model *f = s->from;
    int64_t size[TL_MAX_NDIM + 1];
    int k = 0, axis = next(s->b, 9);
    bool add = next(s->b, 2) != 0;
    s->y = add ? tl_unsqueeze(s->x, axis) : tl_squeeze(s->x, axis);
    if (add ? axis > f->ndim || f->ndim == TL_MAX_NDIM : axis >= f->ndim || f->size[axis] != 1)
        return 0;
    for (int i = 0; i < f->ndim; i++) {
        if (add && i == axis)
            size[k++] = 1;
        if (add || i != axis)
            size[k++] = f->size[i];
    }
    if (add && axis == f->ndim)
        size[k++] = 1;
    begin(s, k, size);
    memcpy(s->to->at, f->at, sizeof f->at);
    return 1;
}

static int step_view(step *s) {
    const model *f = s->from;
    tl_shape shape = {.ndim = next(s->b, 5)};
    int64_t size[TL_MAX_NDIM], left = f->count;
    for (int i = 0; i < shape.ndim; i++) {
        size[i] = 1 + next(s->b, 5);
        if (i == shape.ndim - 1 || left % size[i])
            size[i] = i == shape.ndim - 1 ? left : 1;
        left = size[i] ? left / size[i] : 0;
        shape.dim[i] = tl_dim_of(size[i]);
    }
    bool legal = (shape.ndim || f->count == 1) && begin(s, shape.ndim, size) && s->to->count == f->count;
    s->y = tl_view(s->x, shape);
    memcpy(s->to->at, f->at, sizeof f->at);
    return legal ? 2 : 0;
}

static int step_as_strided(step *s) {
    tl_shape shape = {.ndim = next(s->b, 4)};
    int64_t size[TL_MAX_NDIM], stride[TL_MAX_NDIM], offset = next(s->b, 64) - 2;
    for (int i = 0; i < shape.ndim; i++) {
        shape.dim[i] = tl_dim_of(size[i] = next(s->b, 6));
        stride[i] = next(s->b, 41) - 20;
    }
    s->y = tl_as_strided(s->x, shape, stride, offset);
    begin(s, shape.ndim, size);
    for (int64_t i = 0; i < s->to->count; i++) {
        int64_t index[TL_MAX_NDIM], at = offset;
        unravel(s->to, i, index);
        for (int d = 0; d < shape.ndim; d++)
            at += index[d] * stride[d];
        if (at < 0 || at >= ELEMENTS)
            return 0;
        s->to->at[i] = (int16_t)at;
    }
    return 1;
}

static void check(const tl_tensor *t, const model *m) {
    if (tl_tensor_ndim(t) != m->ndim || tl_tensor_count(t) != m->count)
        abort();
    for (int d = 0; d < m->ndim; d++)
        if (tl_tensor_size(t, d) != m->size[d])
            abort();
    for (int64_t i = 0; i < m->count; i++) {
        int64_t index[TL_MAX_NDIM], at = tl_tensor_offset(t);
        unravel(m, i, index);
        for (int d = 0; d < m->ndim; d++)
            at += index[d] * tl_tensor_stride(t, d);
        if (at < 0 || at >= ELEMENTS || at != m->at[i])
            abort();
    }
}

/* Never false where two views meet; true where they do not only if the equation is large, which none of these is. */
static void check_overlap(const tl_tensor *a, const model *m, const tl_tensor *b, const model *n) {
    unsigned char met[ELEMENTS] = {0};
    bool want = false;
    for (int64_t i = 0; i < m->count; i++)
        met[m->at[i]] = 1;
    for (int64_t i = 0; i < n->count; i++)
        want |= met[n->at[i]];
    if (tl_tensors_overlap(a, b) != want)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int (*const steps[])(step *) = {step_slice,    step_select, step_flip, step_transpose, step_expand,
                                           step_diagonal, step_unfold, step_ones, step_view,      step_as_strided};
    static model models[3]; /* the base, the last, the next */
    tl_error error = {0};
    tl_ctx_options options = {.formulas = size > 0 && data[0] & 0x80, .scratch_bytes = TL_NO_SCRATCH};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    if (!ctx)
        return 0;
    bytes b = {data, size};
    int now = 1;
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(3), tl_dim_of(4), tl_dim_of(5)), TL_WORK), *base = x;
    start(&models[0], 3, (int64_t[]){3, 4, 5});
    for (int i = 0; i < ELEMENTS; i++)
        models[0].at[i] = (int16_t)i;
    models[1] = models[0];
    for (int k = 0; k < 12 && b.left > 0; k++) {
        step s = {ctx, &b, x, NULL, &models[now], &models[3 - now]};
        int legal = steps[next(&b, (int)(sizeof steps / sizeof *steps))](&s);
        if (s.y ? legal == 0 || tl_ctx_status(ctx) != TL_OK : legal == 1 || legal == 3)
            abort();
        if (!s.y || legal == 3) {
            if (!s.y && tl_ctx_status(ctx) != TL_OK && tl_ctx_error(ctx)->message[0] == '\0')
                abort();
            tl_ctx_clear_error(ctx);
            continue;
        }
        check(s.y, &models[3 - now]);
        check_overlap(base, &models[0], s.y, &models[3 - now]);
        check_overlap(x, &models[now], s.y, &models[3 - now]);
        x = s.y;
        now = 3 - now;
    }
    tl_ctx_free(ctx);
    return 0;
}
