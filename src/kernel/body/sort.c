/* kernel/body/sort.c: stable merge sort of positions along an axis. Keys are doubles (or 64-bit ints), in which every
 * narrower format is exact. */
#include "kernel/body/body.h"

typedef union key {
    double d;
    int64_t i;
} key;

typedef struct sort_task {
    tl_walk rows; /* x, values, positions over the other axes */
    int64_t n, count, stride[3], slots;
    bool descending, integer;
    char *work;
} sort_task;

/* a stands before b. NaN is larger than everything, as in numpy and PyTorch. */
static inline bool before(const sort_task *t, key a, key b) {
    if (t->integer)
        return t->descending ? a.i > b.i : a.i < b.i;
    if (a.d != a.d || b.d != b.d)
        return t->descending ? a.d != a.d && b.d == b.d : a.d == a.d && b.d != b.d;
    return t->descending ? a.d > b.d : a.d < b.d;
}

/* Bottom-up; of equals the left one first. Returns where the order lies. */
static int64_t *merge_sort(const sort_task *t, const key *keys, int64_t *order, int64_t *other) {
    for (int64_t i = 0; i < t->n; i++)
        order[i] = i;
    for (int64_t width = 1; width<t->n; width = width> t->n / 2 ? t->n : 2 * width) {
        for (int64_t at = 0; at < t->n;) {
            int64_t middle = at + tl_min_i64(width, t->n - at), end = middle + tl_min_i64(width, t->n - middle);
            int64_t left = at, right = middle;
            for (int64_t i = at; i < end; i++) {
                bool from_right = left == middle || (right < end && before(t, keys[order[right]], keys[order[left]]));
                other[i] = from_right ? order[right++] : order[left++];
            }
            at = end;
        }
        int64_t *swap = order;
        order = other;
        other = swap;
    }
    return order;
}

static void sort_slot(void *argument, int64_t slot, int thread) {
    (void)thread;
    const sort_task *t = argument;
    key *keys = (key *)(t->work + slot * 3 * t->n * 8);
    int64_t *order = (int64_t *)(keys + t->n), *other = order + t->n;
    for (int64_t row = slot; row < t->rows.total; row += t->slots) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, row, pointer);
        if (t->integer)
            TL_K(load_int)(&keys->i, t->rows.dtype[0], pointer[0], t->stride[0], t->n);
        else
            TL_K(load_double)(&keys->d, t->rows.dtype[0], pointer[0], t->stride[0], t->n);
        const int64_t *sorted = merge_sort(t, keys, order, other);
        for (int64_t i = 0; i < t->count; i++) {
            const char *from = pointer[0] + sorted[i] * t->stride[0] * t->rows.bytes[0];
            memcpy(pointer[1] + i * t->stride[1] * t->rows.bytes[1], from, (size_t)t->rows.bytes[0]);
        }
        TL_K(store_int)(TL_I64, pointer[2], t->stride[2], sorted, t->count);
    }
}

/* The array without one axis. */
static tl_array without(const tl_array *a, int axis, int64_t *stride) {
    tl_array rest = *a;
    *stride = a->size[axis] > 1 ? a->stride[axis] : 1;
    rest.ndim--;
    for (int d = axis; d < rest.ndim; d++) {
        rest.size[d] = a->size[d + 1];
        rest.stride[d] = a->stride[d + 1];
    }
    return rest;
}

void TL_K(sort)(tl_kcall *call) {
    const tl_sort_attr *attr = call->attr;
    sort_task t = {.n = call->in[0].size[attr->axis],
                   .count = attr->count,
                   .slots = TL_SORT_SLOTS,
                   .descending = attr->descending,
                   .integer = tl_compute_of(call->in[0].dtype) == TL_COMPUTE_INT,
                   .work = call->work};
    tl_array x = without(&call->in[0], attr->axis, &t.stride[0]);
    tl_array values = without(&call->out[0], attr->axis, &t.stride[1]);
    tl_array positions = without(&call->out[1], attr->axis, &t.stride[2]);
    const tl_array *array[] = {&x, &values, &positions};
    TL_K(walk_make)(&t.rows, array, 3, x.ndim, false);
    if (t.rows.total == 0 || t.n == 0 || t.count == 0)
        return;
    bool large = t.rows.total * t.n >= TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, t.slots, sort_slot, &t);
}
