/* kernel/body/walk.c: strides, dtypes and threads, once for all elementwise kernels. */
#include "kernel/body/body.h"

#ifdef __AVX__
#include <immintrin.h>
#endif

static int64_t size_of_stride(int64_t stride) { return stride < 0 ? -stride : stride; }

void TL_K(walk_make)(tl_walk *walk, const tl_array *const array[], int n_array, int ndim, bool sort) {
    walk->n_array = n_array;
    walk->total = 1;
    int order[TL_MAX_NDIM], count = 0;
    for (int d = 0; d < ndim; d++) {
        walk->total *= array[0]->size[d];
        if (array[0]->size[d] != 1)
            order[count++] = d;
    }
    if (sort) /* insertion sort, outermost first: stable, so equal strides keep their order */
        for (int i = 1; i < count; i++)
            for (int j = i; j > 0; j--) {
                int64_t before = size_of_stride(array[0]->stride[order[j - 1]]);
                if (before >= size_of_stride(array[0]->stride[order[j]]))
                    break;
                int swap = order[j];
                order[j] = order[j - 1];
                order[j - 1] = swap;
            }
    for (int a = 0; a < n_array; a++) {
        walk->dtype[a] = array[a]->dtype;
        walk->bytes[a] = tl_bytes_of(array[a]->dtype);
        walk->data[a] = array[a]->data;
    }
    walk->ndim = 0;
    for (int i = 0; i < count; i++) {
        int d = order[i], last = walk->ndim - 1;
        bool merge = last >= 0;
        for (int a = 0; merge && a < n_array; a++)
            merge = walk->stride[a][last] == array[a]->stride[d] * array[a]->size[d];
        if (merge)
            walk->size[last] *= array[0]->size[d];
        else
            walk->size[walk->ndim++] = array[0]->size[d];
        for (int a = 0; a < n_array; a++)
            walk->stride[a][walk->ndim - 1] = array[a]->stride[d];
    }
    if (walk->ndim == 0) {
        walk->ndim = 1;
        walk->size[0] = 1;
        for (int a = 0; a < n_array; a++)
            walk->stride[a][0] = 1;
    }
}

/* An array that is not wanted has no data, and nothing may be added to a null pointer. */
static inline char *at_offset(char *data, int64_t bytes) { return data ? data + bytes : data; }

void TL_K(walk_at)(const tl_walk *walk, int64_t position, char *pointer[]) {
    int64_t index[TL_MAX_NDIM];
    if (walk->ndim == 1) {
        for (int a = 0; a < walk->n_array; a++)
            pointer[a] = at_offset(walk->data[a], position * walk->stride[a][0] * walk->bytes[a]);
        return;
    }
    for (int d = walk->ndim - 1; d >= 0; d--) {
        index[d] = position % walk->size[d];
        position /= walk->size[d];
    }
    for (int a = 0; a < walk->n_array; a++) {
        int64_t offset = 0;
        for (int d = 0; d < walk->ndim; d++)
            offset += index[d] * walk->stride[a][d];
        pointer[a] = at_offset(walk->data[a], offset * walk->bytes[a]);
    }
}

/* A large result is gone from the caches before it is read, and an ordinary store first reads the line it writes: half
 * as much traffic again for a copy. Non-temporal stores leave that out. */
void TL_K(stream)(char *to, const char *from, int64_t bytes) {
#if defined(__AVX512F__) || defined(__AVX__)
    int64_t head = (int64_t)(-(uintptr_t)to & 63u), at = tl_min_i64(head, bytes);
    memcpy(to, from, (size_t)at);
    for (; at + 64 <= bytes; at += 64) {
#ifdef __AVX512F__
        _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
#else
        __m256i low = _mm256_loadu_si256((const void *)(from + at));
        __m256i high = _mm256_loadu_si256((const void *)(from + at + 32));
        _mm256_stream_si256((void *)(to + at), low);
        _mm256_stream_si256((void *)(to + at + 32), high);
#endif
    }
    memcpy(to + at, from + at, (size_t)(bytes - at));
#else
    memcpy(to, from, (size_t)bytes);
#endif
}

/* Before other threads may read what was streamed. */
void TL_K(stream_end)(void) {
#ifdef __AVX__
    _mm_sfence();
#endif
}

typedef union buffer {
    float f[TL_CHUNK];
    double d[TL_CHUNK];
    int64_t i[TL_CHUNK];
} buffer;

#define MAX_EACH 6
#define PAST_STEP                                                                                                      \
    512 /* elements at a time: longer runs of stores leave the reads waiting (measured: 128 to 256 is best) */

typedef struct each {
    tl_walk walk;
    int access[MAX_EACH];
    bool direct[MAX_EACH], all_direct;
    bool past; /* array 0 is large, and written straight to memory: see TL_K(stream) */
    tl_compute compute;
    tl_each_loop *loop, *past_loop; /* past_loop: NULL, or writes past the caches by itself */
    const void *constants;
    int64_t per_task;
} each;

static void load(tl_compute compute, buffer *to, tl_dtype dtype, const char *from, int64_t stride, int64_t n) {
    if (compute == TL_COMPUTE_FLOAT)
        TL_K(load_float)(to->f, dtype, from, stride, n);
    else if (compute == TL_COMPUTE_DOUBLE)
        TL_K(load_double)(to->d, dtype, from, stride, n);
    else
        TL_K(load_int)(to->i, dtype, from, stride, n);
}

static void store(tl_compute compute, tl_dtype dtype, char *to, int64_t stride, const buffer *from, int64_t n) {
    if (compute == TL_COMPUTE_FLOAT)
        TL_K(store_float)(dtype, to, stride, from->f, n);
    else if (compute == TL_COMPUTE_DOUBLE)
        TL_K(store_double)(dtype, to, stride, from->d, n);
    else
        TL_K(store_int)(dtype, to, stride, from->i, n);
}

/* Straight from the inputs to memory: up to the first whole line and after the last one as usual. */
static void each_past(const each *e, int64_t n, char *const pointer[]) {
    int64_t head = tl_min_i64(n, (int64_t)(-(uintptr_t)pointer[0] & 63u) / (int64_t)sizeof(float));
    int64_t part[3] = {head, (n - head) & ~(int64_t)15, (n - head) & 15}, at = 0;
    void *operand[MAX_EACH];
    for (int i = 0; i < 3; at += part[i++]) {
        for (int a = 0; a < e->walk.n_array; a++)
            operand[a] = pointer[a] + at * (int64_t)sizeof(float);
        if (part[i] > 0)
            (i == 1 ? e->past_loop : e->loop)(e->constants, part[i], operand);
    }
}

/* One run along the innermost axis. `held` remembers what a zero-stride buffer holds, so that it is filled once. */
static void each_run(const each *e, int64_t n, char *pointer[], buffer *buffers, const char **held, int64_t *held_n) {
    const tl_walk *w = &e->walk;
    int inner = w->ndim - 1;
    void *operand[MAX_EACH];
    if (e->past_loop) {
        each_past(e, n, pointer);
        return;
    }
    int64_t step = e->past ? (w->n_array > 2 ? 128 : PAST_STEP) : e->all_direct ? n : TL_CHUNK;
    for (int64_t at = 0; at < n; at += step) {
        int64_t count = tl_min_i64(step, n - at);
        for (int a = 0; a < w->n_array; a++) {
            int64_t stride = w->stride[a][inner];
            char *memory = pointer[a] + at * stride * w->bytes[a];
            operand[a] = memory;
            if (a == 0 && e->past)
                operand[a] = &buffers[a];
            if (e->direct[a])
                continue;
            operand[a] = &buffers[a];
            if (!(e->access[a] & TL_READ) || (stride == 0 && held[a] == memory && held_n[a] >= count))
                continue;
            load(e->compute, &buffers[a], w->dtype[a], memory, stride, count);
            held[a] = e->access[a] & TL_WRITE ? NULL : memory;
            held_n[a] = count;
        }
        e->loop(e->constants, count, operand);
        if (e->past)
            TL_K(stream)(pointer[0] + at * w->bytes[0], (const char *)&buffers[0], count * w->bytes[0]);
        for (int a = 0; a < w->n_array; a++)
            if (!e->direct[a] && e->access[a] & TL_WRITE)
                store(e->compute, w->dtype[a], pointer[a] + at * w->stride[a][inner] * w->bytes[a], w->stride[a][inner],
                      &buffers[a], count);
    }
}

static void each_task(void *argument, int64_t task, int thread) {
    (void)thread;
    const each *e = argument;
    const tl_walk *w = &e->walk;
    _Alignas(64) buffer buffers[MAX_EACH];
    const char *held[MAX_EACH] = {NULL};
    int64_t held_n[MAX_EACH] = {0};
    int64_t at = task * e->per_task, end = tl_min_i64(at + e->per_task, w->total), inner = w->size[w->ndim - 1];
    char *pointer[TL_MAX_IO];
    int64_t index[TL_MAX_NDIM], rest = at;
    TL_K(walk_at)(w, at, pointer);
    for (int d = w->ndim - 1; d >= 0; d--) {
        index[d] = rest % w->size[d];
        rest /= w->size[d];
    }
    while (at < end) {
        int last = w->ndim - 1;
        int64_t n = tl_min_i64(inner - index[last], end - at);
        each_run(e, n, pointer, buffers, held, held_n);
        at += n;
        if (at >= end)
            break;
        /* to the start of the next run: back along the inner axis, one step along the first outer axis with room */
        for (int a = 0; a < w->n_array; a++)
            pointer[a] -= index[last] * w->stride[a][last] * w->bytes[a];
        index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            bool carry = ++index[d] == w->size[d];
            for (int a = 0; a < w->n_array; a++)
                pointer[a] += (carry ? -(w->size[d] - 1) : 1) * w->stride[a][d] * w->bytes[a];
            if (!carry)
                break;
            index[d] = 0;
        }
    }
    if (e->past)
        TL_K(stream_end)();
}

static const tl_dtype direct_dtype[] = {TL_F32, TL_F64, TL_I64};

/* Few elements that all lie one after the other: nothing to walk. Without this, a one-element op spends most of its time
 * filling in a walk. */
static bool each_small(const tl_array *const array[], int n_array, tl_compute compute, tl_each_loop *loop,
                       const void *constants) {
    void *pointer[MAX_EACH];
    int64_t total = 1;
    for (int d = array[0]->ndim - 1; d >= 0; d--) {
        int64_t size = array[0]->size[d];
        for (int a = 0; a < n_array; a++)
            if (size != 1 && array[a]->stride[d] != total)
                return false;
        total *= size;
        if (total == 0 || total >= 2 * TL_TASK_ELEMENTS)
            return false;
    }
    for (int a = 0; a < n_array; a++) {
        if (array[a]->dtype != direct_dtype[compute])
            return false;
        pointer[a] = array[a]->data;
    }
    loop(constants, total, pointer);
    return true;
}

static void each_with(tl_engine *engine, const tl_array *const array[], const int access[], int n_array,
                      tl_compute compute, tl_each_loop *loop, tl_each_loop *past_loop, const void *constants) {
    if (each_small(array, n_array, compute, loop, constants))
        return;
    each e;
    e.compute = compute;
    e.loop = loop;
    e.constants = constants;
    e.all_direct = true;
    TL_K(walk_make)(&e.walk, array, n_array, array[0]->ndim, true);
    if (e.walk.total == 0)
        return;
    for (int a = 0; a < n_array; a++) {
        int64_t stride = e.walk.stride[a][e.walk.ndim - 1];
        bool one = e.walk.size[e.walk.ndim - 1] == 1;
        e.access[a] = access[a];
        e.direct[a] = array[a]->dtype == direct_dtype[compute] && (stride == 1 || one);
        e.all_direct = e.all_direct && e.direct[a];
    }
    e.past = access[0] == TL_WRITE && e.direct[0] && e.walk.total * e.walk.bytes[0] >= TL_PAST_CACHE;
    e.past_loop = e.past && e.all_direct ? past_loop : NULL;
    e.per_task = e.walk.total < 2 * TL_TASK_ELEMENTS ? e.walk.total : TL_TASK_ELEMENTS;
    tl_engine_run(engine, tl_blocks_of(e.walk.total, e.per_task), each_task, &e);
}

void TL_K(each)(tl_engine *engine, const tl_array *const array[], const int access[], int n_array, tl_compute compute,
                tl_each_loop *loop, const void *constants) {
    each_with(engine, array, access, n_array, compute, loop, NULL, constants);
}

void TL_K(each_call_past)(tl_kcall *call, tl_each_loop *loop_float, tl_each_loop *loop_double, tl_each_loop *past_float,
                          const void *constants) {
    const tl_array *array[MAX_EACH] = {&call->out[0]};
    int access[MAX_EACH] = {TL_WRITE};
    for (int i = 0; i < call->n_in; i++) {
        array[i + 1] = &call->in[i];
        access[i + 1] = TL_READ;
    }
    bool wide = tl_compute_of(call->out[0].dtype) == TL_COMPUTE_DOUBLE;
    each_with(call->engine, array, access, call->n_in + 1, wide ? TL_COMPUTE_DOUBLE : TL_COMPUTE_FLOAT,
              wide ? loop_double : loop_float, wide ? NULL : past_float, constants);
}

void TL_K(each_call)(tl_kcall *call, tl_each_loop *loop_float, tl_each_loop *loop_double, const void *constants) {
    TL_K(each_call_past)(call, loop_float, loop_double, NULL, constants);
}

#define FLAT(name, type, load_name, own_dtype)                                                                         \
    const type *TL_K(name)(const tl_walk *walk, int array, int64_t position, int64_t n, type *to) {                    \
        int last = walk->ndim - 1;                                                                                     \
        int64_t index[TL_MAX_NDIM], rest = position, offset = 0, done = 0, stride = walk->stride[array][last];         \
        for (int d = last; d >= 0; d--) {                                                                              \
            index[d] = rest % walk->size[d];                                                                           \
            rest /= walk->size[d];                                                                                     \
            offset += index[d] * walk->stride[array][d];                                                               \
        }                                                                                                              \
        const char *from = walk->data[array] + offset * walk->bytes[array];                                            \
        if (walk->dtype[array] == own_dtype && stride == 1 && index[last] + n <= walk->size[last])                     \
            return (const type *)from;                                                                                 \
        while (done < n) {                                                                                             \
            int64_t count = tl_min_i64(walk->size[last] - index[last], n - done);                                      \
            TL_K(load_name)(to + done, walk->dtype[array], from, stride, count);                                       \
            done += count;                                                                                             \
            if (done == n)                                                                                             \
                break;                                                                                                 \
            from -= index[last] * stride * walk->bytes[array];                                                         \
            index[last] = 0;                                                                                           \
            for (int d = last - 1; d >= 0; d--) {                                                                      \
                bool carry = ++index[d] == walk->size[d];                                                              \
                from += (carry ? -(walk->size[d] - 1) : 1) * walk->stride[array][d] * walk->bytes[array];              \
                if (!carry)                                                                                            \
                    break;                                                                                             \
                index[d] = 0;                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
        return to;                                                                                                     \
    }

FLAT(flat_float, float, load_float, TL_F32)
FLAT(flat_double, double, load_double, TL_F64)

#define FLAT_PUT(name, type, store_name)                                                                               \
    void TL_K(name)(const tl_walk *walk, int array, int64_t position, int64_t n, const type *from) {                   \
        int last = walk->ndim - 1;                                                                                     \
        for (int64_t done = 0; done < n;) {                                                                            \
            char *pointer[TL_MAX_IO];                                                                                  \
            int64_t at = position + done, count = tl_min_i64(walk->size[last] - at % walk->size[last], n - done);      \
            TL_K(walk_at)(walk, at, pointer);                                                                          \
            TL_K(store_name)(walk->dtype[array], pointer[array], walk->stride[array][last], from + done, count);       \
            done += count;                                                                                             \
        }                                                                                                              \
    }

FLAT_PUT(flat_put_float, float, store_float)
FLAT_PUT(flat_put_double, double, store_double)
