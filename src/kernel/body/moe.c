/* kernel/body/moe.c: a mixture of experts: choosing, which choice lies in which row, rows there and back. What goes over all
 * choices one after another is a counting sort of small integers; rows of D are cut by shape alone. */
#include "kernel/body/body.h"

/* ---- choosing ---- */

typedef struct choose_task {
    tl_walk rows; /* experts, what is chosen by */
    const tl_array *bias;
    tl_route_attr attr;
    int64_t n_expert, from, to; /* strides along the last axis */
    tl_compute compute;
    char *work;
    int64_t slot_bytes;
} choose_task;

/* a stands before b, which comes later: strictly larger, NaN the largest, as in sort.c. */
static inline bool better(double a, double b) { return a > b || (a != a && b == b); }

/* `at` into the `count` best so far, of at most k; a later equal stays behind. */
static int64_t keep_best(const double *key, int64_t *best, int64_t count, int64_t k, int64_t at) {
    if (count == k && !better(key[at], key[best[k - 1]]))
        return count;
    int64_t place = count < k ? count : k - 1;
    for (; place > 0 && better(key[at], key[best[place - 1]]); place--)
        best[place] = best[place - 1];
    best[place] = at;
    return count < k ? count + 1 : k;
}

/* The sum is rounded as the scores are computed, so that ties are the same ones. */
static double group_key(const choose_task *t, const double *key, int64_t size) {
    int64_t best[2] = {0, 0}, count = 0;
    for (int64_t e = 0; e < size; e++)
        count = keep_best(key, best, count, t->attr.top2 ? 2 : 1, e);
    if (!t->attr.top2)
        return key[best[0]];
    double sum = key[best[0]] + key[best[1]];
    return t->compute == TL_COMPUTE_DOUBLE ? sum : (double)(float)sum;
}

/* The scores of a row, and the bias on them, in the compute type; every float is a double. */
static void load_keys(const choose_task *t, const char *from, double *key) {
    for (int64_t at = 0; at < t->n_expert; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, t->n_expert - at);
        const char *scores = from + at * t->from * t->rows.bytes[1];
        int64_t step = t->bias ? t->bias->stride[0] : 0;
        const char *bias = t->bias ? t->bias->data + at * step * tl_bytes_of(t->bias->dtype) : NULL;
        double other[TL_CHUNK];
        TL_K(load_double)(key + at, t->rows.dtype[1], scores, t->from, n);
        if (!bias)
            continue;
        TL_K(load_double)(other, t->bias->dtype, bias, step, n);
        for (int64_t i = 0; i < n; i++)
            key[at + i] = t->compute == TL_COMPUTE_DOUBLE ? key[at + i] + other[i]
                                                          : (double)((float)key[at + i] + (float)other[i]);
    }
}

static void choose_slot(void *argument, int64_t slot, int thread) {
    (void)thread;
    const choose_task *t = argument;
    const tl_route_attr *a = &t->attr;
    int64_t groups = a->n_group > 1 ? a->n_group : 1, size = t->n_expert / groups;
    double *key = (double *)(void *)(t->work + slot * t->slot_bytes), *group = key + t->n_expert;
    int64_t *best = (int64_t *)(void *)(group + groups), *best_group = best + a->k;
    for (int64_t row = slot; row < t->rows.total; row += TL_SORT_SLOTS) {
        char *pointer[TL_MAX_IO];
        TL_K(walk_at)(&t->rows, row, pointer);
        load_keys(t, pointer[1], key);
        if (groups > 1) {
            int64_t chosen = 0;
            for (int64_t g = 0; g < groups; g++) {
                group[g] = group_key(t, key + g * size, size);
                chosen = keep_best(group, best_group, chosen, a->topk_group, g);
            }
            memset(group, 0, (size_t)groups * sizeof *group);
            for (int64_t g = 0; g < chosen; g++)
                group[best_group[g]] = 1;
        } else
            group[0] = 1;
        int64_t count = 0;
        for (int64_t g = 0; g < groups; g++)
            for (int64_t e = g * size; group[g] != 0 && e < (g + 1) * size; e++)
                count = keep_best(key, best, count, a->k, e);
        TL_K(store_int)(t->rows.dtype[0], pointer[0], t->to, best, a->k);
    }
}

void TL_K(route_choose)(tl_kcall *call) {
    const tl_array *what = &call->in[0], *out = &call->out[0];
    const tl_array *array[] = {out, what};
    choose_task t = {.bias = call->n_in > 1 ? &call->in[1] : NULL,
                     .attr = *(const tl_route_attr *)call->attr,
                     .n_expert = what->size[1],
                     .from = what->stride[1],
                     .to = out->stride[1],
                     .compute = tl_compute_of(what->dtype),
                     .work = call->work};
    TL_K(walk_make)(&t.rows, array, 2, 1, false);
    t.slot_bytes = call->work_bytes / TL_SORT_SLOTS;
    if (t.rows.total == 0)
        return;
    bool large = t.rows.total * t.n_expert >= 2 * TL_TASK_ELEMENTS;
    tl_engine_run(large ? call->engine : NULL, tl_min_i64(TL_SORT_SLOTS, t.rows.total), choose_slot, &t);
}

/* ---- rows of experts ---- */

static int64_t whole_at(const tl_array *a, int64_t row, int64_t column) {
    int64_t value;
    int64_t at = row * a->stride[0] + column * (a->ndim > 1 ? a->stride[1] : 0);
    TL_K(load_int)(&value, a->dtype, a->data + at * tl_bytes_of(a->dtype), 1, 1);
    return value;
}

/* The expert of choice (row, column); −1 and a fault where there is none of that number. */
static int64_t expert_at(tl_kcall *call, int64_t row, int64_t column, int64_t n_expert) {
    int64_t e = whole_at(&call->in[0], row, column);
    if (e >= 0 && e < n_expert)
        return e;
    call->fault = 1 + row * call->in[0].size[1] + column;
    return -1;
}

static int32_t *i32_at(const tl_array *a, int64_t row, int64_t column) {
    int64_t at = row * a->stride[0] + column * (a->ndim > 1 ? a->stride[1] : 0);
    return (int32_t *)(void *)(a->data + at * 4);
}

/* Counts in offsets[e], makes ends of them, and goes back from the last choice, so that an expert's stay in order. */
void TL_K(moe_sort)(tl_kcall *call) {
    const tl_array *experts = &call->in[0], *order = &call->out[0], *offsets = &call->out[1];
    int64_t n = experts->size[0], k = experts->size[1], n_expert = offsets->size[0] - 1;
    for (int64_t e = 0; e <= n_expert; e++)
        *i32_at(offsets, e, 0) = 0;
    for (int64_t t = 0; t < n; t++)
        for (int64_t j = 0; j < k; j++) {
            int64_t e = expert_at(call, t, j, n_expert);
            if (e < 0)
                return;
            ++*i32_at(offsets, e, 0);
        }
    for (int64_t e = 1; e <= n_expert; e++)
        *i32_at(offsets, e, 0) += *i32_at(offsets, e - 1, 0);
    for (int64_t t = n - 1; t >= 0; t--)
        for (int64_t j = k - 1; j >= 0; j--) {
            int64_t e = expert_at(call, t, j, n_expert);
            *i32_at(order, --*i32_at(offsets, e, 0), 0) = (int32_t)(t * k + j);
        }
}

void TL_K(moe_capacity)(tl_kcall *call) {
    const tl_array *experts = &call->in[0], *order = &call->out[0];
    const tl_capacity_attr *attr = call->attr;
    int64_t n = experts->size[0], k = experts->size[1], n_expert = order->size[0], capacity = order->size[1];
    int64_t *filled = call->work;
    for (int64_t e = 0; e < n_expert; e++) {
        filled[e] = 0;
        for (int64_t c = 0; c < capacity; c++)
            *i32_at(order, e, c) = -1;
    }
    for (int64_t i = 0; i < n * k; i++) {
        int64_t t = attr->choice_first ? i % n : i / k, j = attr->choice_first ? i / n : i % k;
        int64_t e = expert_at(call, t, j, n_expert);
        if (e < 0)
            return;
        if (filled[e] < capacity)
            *i32_at(order, e, filled[e]++) = (int32_t)(t * k + j);
    }
}

void TL_K(moe_load)(tl_kcall *call) {
    const tl_array *experts = &call->in[0], *load = &call->out[0];
    int64_t n = experts->size[0], k = experts->size[1], n_expert = load->size[0];
    int64_t *count = call->work;
    for (int64_t e = 0; e < n_expert; e++)
        count[e] = 0;
    for (int64_t t = 0; t < n; t++)
        for (int64_t j = 0; j < k; j++) {
            int64_t e = expert_at(call, t, j, n_expert);
            if (e < 0)
                return;
            count[e]++;
        }
    for (int64_t e = 0; e < n_expert; e++) {
        double share = n > 0 ? (double)count[e] / (double)n : 0;
        TL_K(store_double)(load->dtype, load->data + e * load->stride[0] * tl_bytes_of(load->dtype), 1, &share, 1);
    }
}

/* ---- there ---- */

typedef struct rows_task {
    tl_walk rows;                       /* order, then the arrays whose rows it places */
    tl_array token, weights, d_weights; /* [n,D]; [n,k] twice: data NULL where there is none */
    int64_t n, k, columns, per_task, step[3], fault;
    int32_t *start, *list; /* rows of token t: list[start[t]] … list[start[t+1] − 1], rising */
    tl_compute compute;
} rows_task;

/* The choice in a row: −1 for none, −2 and a fault for what is no choice. */
static int64_t choice_at(rows_task *t, int64_t row, char *pointer[]) {
    int64_t f;
    TL_K(walk_at)(&t->rows, row, pointer);
    TL_K(load_int)(&f, t->rows.dtype[0], pointer[0], 1, 1);
    if (f >= -1 && f < t->n * t->k)
        return f;
    int64_t now = __atomic_load_n(&t->fault, __ATOMIC_RELAXED);
    while (row + 1 < now &&
           !__atomic_compare_exchange_n(&t->fault, &now, row + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return -2;
}

static char *row_of(const tl_array *a, int64_t row) { return a->data + row * a->stride[0] * tl_bytes_of(a->dtype); }

static void zero_row(const rows_task *t, int array, char *to) {
    float zero[TL_CHUNK] = {0};
    for (int64_t at = 0; at < t->columns; at += TL_CHUNK)
        TL_K(store_float)
    (t->rows.dtype[array], to + at * t->step[array] * t->rows.bytes[array], t->step[array], zero,
     tl_min_i64(TL_CHUNK, t->columns - at));
}

static void permute_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    rows_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t row = task * t->per_task; row < end; row++) {
        char *pointer[TL_MAX_IO];
        int64_t f = choice_at(t, row, pointer);
        if (f < -1)
            return;
        if (f < 0)
            zero_row(t, 1, pointer[1]);
        else
            TL_K(convert)
        (t->rows.dtype[1], pointer[1], t->step[1], t->token.dtype, row_of(&t->token, f / t->k), t->token.stride[1],
         t->columns);
    }
}

static void run_over(tl_kcall *call, rows_task *t, int64_t rows, int64_t elements, tl_engine_task *task) {
    t->per_task = tl_rows_per_task(elements);
    bool large = rows * elements >= 2 * TL_TASK_ELEMENTS;
    if (rows > 0)
        tl_engine_run(large ? call->engine : NULL, tl_blocks_of(rows, t->per_task), task, t);
}

/* order and arrays of its sizes with one axis more. */
static void rows_make(rows_task *t, const tl_array *const array[], int n_array) {
    TL_K(walk_make)(&t->rows, array, n_array, array[0]->ndim, false);
    for (int a = 1; a < n_array; a++)
        t->step[a] = array[a]->stride[array[0]->ndim];
    t->compute = tl_compute_of(t->token.dtype);
    t->fault = INT64_MAX;
}

void TL_K(moe_permute)(tl_kcall *call) {
    const tl_moe_attr *attr = call->attr;
    const tl_array *array[] = {&call->in[1], &call->out[0]};
    rows_task t = {.token = call->in[0], .n = call->in[0].size[0], .k = attr->k, .columns = call->in[0].size[1]};
    rows_make(&t, array, 2);
    run_over(call, &t, t.rows.total, t.columns, permute_rows);
    if (t.fault != INT64_MAX)
        call->fault = t.fault;
}

/* ---- and back ---- */

/* The rows of each token: a counting sort by token. False: a fault. */
static bool list_rows(tl_kcall *call, rows_task *t) {
    char *pointer[TL_MAX_IO];
    int32_t total = 0;
    t->start = call->work;
    t->list = t->start + t->n + 1;
    memset(t->start, 0, (size_t)(t->n + 1) * sizeof *t->start);
    for (int64_t row = 0; row < t->rows.total; row++) {
        int64_t f = choice_at(t, row, pointer);
        if (f < -1) {
            call->fault = t->fault;
            return false;
        }
        if (f >= 0)
            t->start[f / t->k]++;
    }
    for (int64_t token = 0; token <= t->n; token++)
        t->start[token] = total += t->start[token];
    for (int64_t row = t->rows.total - 1; row >= 0; row--) {
        int64_t f = choice_at(t, row, pointer);
        if (f >= 0)
            t->list[--t->start[f / t->k]] = (int32_t)row;
    }
    return true;
}

static char *weight_at(const rows_task *t, const tl_array *weights, int64_t f) {
    return weights->data +
           (f / t->k * weights->stride[0] + f % t->k * weights->stride[1]) * tl_bytes_of(weights->dtype);
}

/* REAL: one compute type. A token's row is 0 + w·y + w·y …, in order of rows. Backward: dy = w·g, dw = Σ y·g in fixed lanes. */
#define TOKENS(REAL)                                                                                                   \
    static void combine_token_##REAL(rows_task *t, int64_t token) {                                                    \
        REAL sum[TL_CHUNK], row[TL_CHUNK], w = 1;                                                                      \
        char *pointer[TL_MAX_IO];                                                                                      \
        for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {                                                        \
            int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);                                                         \
            memset(sum, 0, sizeof sum);                                                                                \
            for (int64_t i = t->start[token]; i < t->start[token + 1]; i++) {                                          \
                int64_t f = choice_at(t, t->list[i], pointer);                                                         \
                if (t->weights.data)                                                                                   \
                    TL_K(load_##REAL)(&w, t->weights.dtype, weight_at(t, &t->weights, f), 1, 1);                       \
                TL_K(load_##REAL)                                                                                      \
                (row, t->rows.dtype[1], pointer[1] + at * t->step[1] * t->rows.bytes[1], t->step[1], n);               \
                for (int64_t c = 0; c < n; c++)                                                                        \
                    sum[c] += w * row[c];                                                                              \
            }                                                                                                          \
            char *to = row_of(&t->token, token) + at * t->token.stride[1] * tl_bytes_of(t->token.dtype);               \
            TL_K(store_##REAL)(t->token.dtype, to, t->token.stride[1], sum, n);                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void backward_row_##REAL(rows_task *t, int64_t row) {                                                       \
        REAL g[TL_CHUNK], other[TL_CHUNK], lane[16] = {0}, w = 0;                                                      \
        char *pointer[TL_MAX_IO];                                                                                      \
        int64_t f = choice_at(t, row, pointer);                                                                        \
        bool dy = t->weights.data, dw = t->d_weights.data;                                                             \
        if (dy)                                                                                                        \
            TL_K(load_##REAL)(&w, t->weights.dtype, weight_at(t, &t->weights, f), 1, 1);                               \
        for (int64_t at = 0; at < t->columns; at += TL_CHUNK) {                                                        \
            int64_t n = tl_min_i64(TL_CHUNK, t->columns - at);                                                         \
            const char *from = row_of(&t->token, f / t->k) + at * t->token.stride[1] * tl_bytes_of(t->token.dtype);    \
            TL_K(load_##REAL)(g, t->token.dtype, from, t->token.stride[1], n);                                         \
            if (dw) {                                                                                                  \
                from = pointer[2] + at * t->step[2] * t->rows.bytes[2];                                                \
                TL_K(load_##REAL)(other, t->rows.dtype[2], from, t->step[2], n);                                       \
                for (int64_t c = 0; c < n; c++)                                                                        \
                    other[c] *= g[c];                                                                                  \
                tl_lanes_add_##REAL(lane, other, n);                                                                   \
            }                                                                                                          \
            for (int64_t c = 0; dy && c < n; c++)                                                                      \
                g[c] *= w;                                                                                             \
            if (dy)                                                                                                    \
                TL_K(store_##REAL)                                                                                     \
            (t->rows.dtype[1], pointer[1] + at * t->step[1] * t->rows.bytes[1], t->step[1], g, n);                     \
        }                                                                                                              \
        if (dw) {                                                                                                      \
            char *to = weight_at(t, &t->d_weights, f);                                                                 \
            TL_K(load_##REAL)(&w, t->d_weights.dtype, to, 1, 1);                                                       \
            w += tl_lanes_sum_##REAL(lane);                                                                            \
            TL_K(store_##REAL)(t->d_weights.dtype, to, 1, &w, 1);                                                      \
        }                                                                                                              \
    }
TOKENS(float)
TOKENS(double)

static void combine_tokens(void *argument, int64_t task, int thread) {
    (void)thread;
    rows_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->n);
    for (int64_t token = task * t->per_task; token < end; token++) {
        if (t->compute == TL_COMPUTE_DOUBLE)
            combine_token_double(t, token);
        else
            combine_token_float(t, token);
    }
}

/* What one token takes: its share of the rows. */
static int64_t token_elements(const rows_task *t) {
    return (t->n > 0 ? 1 + t->rows.total / t->n : 1) * (t->columns > 0 ? t->columns : 1);
}

void TL_K(moe_combine)(tl_kcall *call) {
    const tl_moe_attr *attr = call->attr;
    const tl_array *array[] = {&call->in[1], &call->in[0]};
    rows_task t = {.token = call->out[0], .n = call->out[0].size[0], .k = attr->k, .columns = call->out[0].size[1]};
    if (call->n_in > 2)
        t.weights = call->in[2];
    rows_make(&t, array, 2);
    if (list_rows(call, &t))
        run_over(call, &t, t.n, token_elements(&t), combine_tokens);
}

static void backward_tokens(void *argument, int64_t task, int thread) {
    (void)thread;
    rows_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->n);
    for (int64_t token = task * t->per_task; token < end; token++) {
        float zero = 0;
        for (int64_t j = 0; t->d_weights.data && j < t->k; j++)
            TL_K(store_float)(t->d_weights.dtype, weight_at(t, &t->d_weights, token * t->k + j), 1, &zero, 1);
        for (int64_t i = t->start[token]; i < t->start[token + 1]; i++) {
            if (t->compute == TL_COMPUTE_DOUBLE)
                backward_row_double(t, t->list[i]);
            else
                backward_row_float(t, t->list[i]);
        }
    }
}

/* Rows that no choice lies in have no token. */
static void backward_free_rows(void *argument, int64_t task, int thread) {
    (void)thread;
    rows_task *t = argument;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->rows.total);
    for (int64_t row = task * t->per_task; row < end; row++) {
        char *pointer[TL_MAX_IO];
        if (choice_at(t, row, pointer) < 0)
            zero_row(t, 1, pointer[1]);
    }
}

void TL_K(moe_combine_backward)(tl_kcall *call) {
    const tl_moe_attr *attr = call->attr;
    const tl_array *array[] = {&call->in[0], &call->out[0], &call->in[3]}; /* order, dy, y */
    rows_task t = {.token = call->in[1],
                   .weights = call->in[2],
                   .d_weights = call->out[1],
                   .n = call->in[1].size[0],
                   .k = attr->k,
                   .columns = call->in[1].size[1]};
    rows_make(&t, array, 3);
    if (!list_rows(call, &t))
        return;
    run_over(call, &t, t.n, token_elements(&t), backward_tokens);
    if (call->out[0].data)
        run_over(call, &t, t.rows.total, t.columns, backward_free_rows);
}
