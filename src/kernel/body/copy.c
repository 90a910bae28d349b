/* kernel/body/copy.c: copies with conversion, and fills. */
#include "kernel/body/body.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

typedef struct copy_task {
    tl_walk walk;
    int64_t per_task;
    bool saturating, past;
} copy_task;

#if defined(__AVX512F__) && defined(__AVX512BW__)
/* Rounded to nearest even in the upper half, as convert.c does: a NaN keeps its upper bits and is quiet. */
static inline __m512i bf16_above(const float *from) {
    __m512 x = _mm512_loadu_ps(from);
    __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));
}

/* Floats to bf16 past the caches, to whole lines: n is a multiple of 32. */
static void bf16_past(char *to, const float *from, int64_t n) {
    _Alignas(64) int16_t place[32];
    for (int i = 0; i < 32; i++)
        place[i] = (int16_t)(2 * i + 1);
    const __m512i upper = _mm512_load_si512(place);
    for (int64_t i = 0; i < n; i += 32) {
        __m512i low = bf16_above(from + i), high = bf16_above(from + i + 16);
        _mm512_stream_si512((void *)(to + 2 * i), _mm512_permutex2var_epi16(low, upper, high));
    }
}

/* Contiguous floats to contiguous bf16, without a way through a buffer. */
static void bf16_run(char *to, const float *from, int64_t n) {
    int64_t head = tl_min_i64(n, (int64_t)(-(uintptr_t)to & 63u) / 2), whole = (n - head) & ~(int64_t)31;
    TL_K(convert)(TL_BF16, to, 1, TL_F32, (const char *)from, 1, head);
    bf16_past(to + 2 * head, from + head, whole);
    head += whole;
    TL_K(convert)(TL_BF16, to + 2 * head, 1, TL_F32, (const char *)(from + head), 1, n - head);
}
#endif

/* A run along the innermost axis. */
static void copy_run(const copy_task *c, char *to, const char *from, int64_t n) {
    const tl_walk *w = &c->walk;
    int last = w->ndim - 1;
    int64_t to_stride = w->stride[0][last], from_stride = w->stride[1][last];
    if (!c->past) {
        (c->saturating ? TL_K(convert_saturating) : TL_K(convert))(w->dtype[0], to, to_stride, w->dtype[1], from,
                                                                   from_stride, n);
        return;
    }
    if (w->dtype[0] == w->dtype[1] && from_stride == 1) {
        TL_K(stream)(to, from, n * w->bytes[0]);
        return;
    }
#if defined(__AVX512F__) && defined(__AVX512BW__)
    if (w->dtype[0] == TL_BF16 && w->dtype[1] == TL_F32 && from_stride == 1) {
        bf16_run(to, (const float *)(const void *)from, n);
        return;
    }
#endif
    _Alignas(64) char buffer[TL_CHUNK * 8];
    for (int64_t at = 0; at < n; at += TL_CHUNK) {
        int64_t count = tl_min_i64(TL_CHUNK, n - at);
        (c->saturating ? TL_K(convert_saturating) : TL_K(convert))(
            w->dtype[0], buffer, 1, w->dtype[1], from + at * from_stride * w->bytes[1], from_stride, count);
        TL_K(stream)(to + at * w->bytes[0], buffer, count * w->bytes[0]);
    }
}

static void copy_range(void *argument, int64_t task, int thread) {
    (void)thread;
    const copy_task *c = argument;
    const tl_walk *w = &c->walk;
    int last = w->ndim - 1;
    int64_t at = task * c->per_task, end = tl_min_i64(at + c->per_task, w->total), index[TL_MAX_NDIM], rest = at;
    char *pointer[TL_MAX_IO];
    TL_K(walk_at)(w, at, pointer);
    for (int d = last; d >= 0; d--) {
        index[d] = rest % w->size[d];
        rest /= w->size[d];
    }
    while (at < end) {
        int64_t n = tl_min_i64(w->size[last] - index[last], end - at);
        copy_run(c, pointer[0], pointer[1], n);
        at += n;
        if (at >= end)
            break;
        for (int a = 0; a < 2; a++)
            pointer[a] -= index[last] * w->stride[a][last] * w->bytes[a];
        index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            bool carry = ++index[d] == w->size[d];
            for (int a = 0; a < 2; a++)
                pointer[a] += (carry ? -(w->size[d] - 1) : 1) * w->stride[a][d] * w->bytes[a];
            if (!carry)
                break;
            index[d] = 0;
        }
    }
    if (c->past)
        TL_K(stream_end)();
}

/* A transposition: squares of 16 × 16 keep both sides' cache lines in use. Axes: `last` (output runs) and `second` (input
 * runs), both of the same dtype. */
#define SQUARE(type)                                                                                                   \
    static void square_##type(type *to, int64_t to_row, int64_t to_column, const type *from, int64_t row,              \
                              int64_t column, int64_t rows, int64_t columns) {                                         \
        for (int64_t i = 0; i < rows; i += 16)                                                                         \
            for (int64_t j = 0; j < columns; j += 16)                                                                  \
                for (int64_t k = i; k < tl_min_i64(i + 16, rows); k++)                                                 \
                    for (int64_t l = j; l < tl_min_i64(j + 16, columns); l++)                                          \
                        to[k * to_row + l * to_column] = from[k * row + l * column];                                   \
    }
SQUARE(uint64_t)
SQUARE(uint32_t)
SQUARE(uint16_t)

#ifdef __AVX512F__
/* 16 × 16 floats: rows of `from` (a stride apart) become columns. Every cache line is read once and written once, whole, so
 * it does not matter that lines a large power of two apart cannot be cached together. */
static void square_registers(char *to, int64_t to_row, const char *from, int64_t column, bool past) {
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_loadu_ps((const float *)(const void *)from + i * column);
    for (int i = 0; past && i < 16; i++) /* the next squares' lines */
        _mm_prefetch(from + 4 * i * column + 128,
                     _MM_HINT_T1); /* rows apart by a power of two do not fit the first level */
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d low = _mm512_castps_pd(b[i + j]), high = _mm512_castps_pd(b[i + j + 2]);
            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    /* a[4q + r]: column 4p + r of rows 4q … 4q + 3 in quarter p */
    for (int r = 0; r < 4; r++) {
        __m512 even = _mm512_shuffle_f32x4(a[r], a[4 + r], 0x88), odd = _mm512_shuffle_f32x4(a[r], a[4 + r], 0xDD);
        __m512 even2 = _mm512_shuffle_f32x4(a[8 + r], a[12 + r], 0x88);
        __m512 odd2 = _mm512_shuffle_f32x4(a[8 + r], a[12 + r], 0xDD);
        b[r] = _mm512_shuffle_f32x4(even, even2, 0x88);
        b[8 + r] = _mm512_shuffle_f32x4(even, even2, 0xDD);
        b[4 + r] = _mm512_shuffle_f32x4(odd, odd2, 0x88);
        b[12 + r] = _mm512_shuffle_f32x4(odd, odd2, 0xDD);
    }
    for (int i = 0; i < 16; i++) {
        float *line = (float *)(void *)to + i * to_row;
        if (past)
            _mm512_stream_ps(line, b[i]);
        else
            _mm512_storeu_ps(line, b[i]);
    }
}

/* rows × columns of 4-byte elements; the parts that do not fill a square go one by one. */
static void turn_registers(char *to, int64_t to_row, const char *from, int64_t column, int64_t rows, int64_t columns,
                           bool past) {
    int64_t whole_rows = rows & ~(int64_t)15, whole_columns = columns & ~(int64_t)15;
    past = past && ((uintptr_t)to & 63u) == 0 && to_row % 16 == 0;
    for (int64_t l = 0; l < whole_columns; l += 128)
        for (int64_t k = 0; k < whole_rows; k += 16)
            for (int64_t m = l; m < tl_min_i64(l + 128, whole_columns); m += 16)
                square_registers(to + 4 * (k * to_row + m), to_row, from + 4 * (k + m * column), column, past);
    uint32_t *target = (uint32_t *)(void *)to;
    const uint32_t *source = (const uint32_t *)(const void *)from;
    for (int64_t k = 0; k < rows; k++)
        for (int64_t l = k < whole_rows ? whole_columns : 0; l < columns; l++)
            target[k * to_row + l] = source[k + l * column];
}
#endif

/* Rows of the output in one task of a transposition; a large one reads longer pieces. */
#define BAND 256
#define WIDE_BAND 512

typedef struct turn {
    tl_walk walk; /* the outer axes */
    int64_t rows, columns, bands, band;
    int64_t row[2], column[2];
    bool past;
} turn;

static void turn_band(void *argument, int64_t task, int thread) {
    (void)thread;
    const turn *t = argument;
    char *pointer[TL_MAX_IO];
    int bytes = t->walk.bytes[0];
    TL_K(walk_at)(&t->walk, task / t->bands, pointer);
    int64_t first = task % t->bands * t->band, rows = tl_min_i64(t->band, t->rows - first);
    char *to = pointer[0] + first * t->row[0] * bytes, *from = pointer[1] + first * t->row[1] * bytes;
#ifdef __AVX512F__
    if (bytes == 4) {
        turn_registers(to, t->row[0], from, t->column[1], rows, t->columns, t->past);
        if (t->past)
            TL_K(stream_end)();
        return;
    }
#endif
    if (bytes == 8)
        square_uint64_t((uint64_t *)to, t->row[0], t->column[0], (const uint64_t *)from, t->row[1], t->column[1], rows,
                        t->columns);
    else if (bytes == 4)
        square_uint32_t((uint32_t *)to, t->row[0], t->column[0], (const uint32_t *)from, t->row[1], t->column[1], rows,
                        t->columns);
    else
        square_uint16_t((uint16_t *)to, t->row[0], t->column[0], (const uint16_t *)from, t->row[1], t->column[1], rows,
                        t->columns);
}

/* True when it was a transposition and is done. */
static bool copy_turned(tl_kcall *call, const tl_walk *w) {
    int last = w->ndim - 1, other = -1;
    if (w->dtype[0] != w->dtype[1] || w->bytes[0] < 2 || w->stride[0][last] != 1 || w->stride[1][last] == 1)
        return false;
    for (int d = 0; d < last; d++)
        if (w->stride[1][d] == 1 && w->size[d] >= 16)
            other = d;
    if (other < 0 || w->size[last] < 16)
        return false;
    turn t = {.rows = w->size[other], .columns = w->size[last], .past = w->total * w->bytes[0] >= TL_PAST_CACHE};
    t.band = t.past ? WIDE_BAND : BAND;
    t.bands = tl_blocks_of(t.rows, t.band);
    t.walk = *w;
    t.walk.total = w->total / (t.rows * t.columns);
    for (int a = 0; a < 2; a++) {
        t.row[a] = w->stride[a][other];
        t.column[a] = w->stride[a][last];
    }
    t.walk.ndim = 0;
    for (int d = 0; d < last; d++)
        if (d != other) {
            t.walk.size[t.walk.ndim] = w->size[d];
            for (int a = 0; a < 2; a++)
                t.walk.stride[a][t.walk.ndim] = w->stride[a][d];
            t.walk.ndim++;
        }
    if (w->total < 2 * TL_TASK_ELEMENTS)
        for (int64_t i = 0; i < t.walk.total * t.bands; i++)
            turn_band(&t, i, 0);
    else
        tl_engine_run(call->engine, t.walk.total * t.bands, turn_band, &t);
    return true;
}

static void copy_any(tl_kcall *call, bool saturating) {
    const tl_array *array[] = {&call->out[0], &call->in[0]};
    copy_task c = {.saturating = saturating};
    TL_K(walk_make)(&c.walk, array, 2, array[0]->ndim, true);
    if (c.walk.total == 0 || copy_turned(call, &c.walk))
        return;
    int last = c.walk.ndim - 1;
    if (c.walk.total * c.walk.bytes[0] >= TL_PAST_CACHE && c.walk.stride[0][last] == 1 && c.walk.stride[1][last] == 1) {
        /* long runs are written past the caches wherever they go, but reading is best done in order: the input's */
        const tl_array *turned[] = {&call->in[0], &call->out[0]};
        tl_walk by_input;
        TL_K(walk_make)(&by_input, turned, 2, array[0]->ndim, true);
        if (by_input.ndim == c.walk.ndim && by_input.size[last] == c.walk.size[last] && by_input.stride[0][last] == 1 &&
            by_input.stride[1][last] == 1)
            for (int a = 0; a < 2; a++) {
                memcpy(c.walk.stride[a], by_input.stride[1 - a], sizeof c.walk.stride[a]);
                memcpy(c.walk.size, by_input.size, sizeof c.walk.size);
            }
    }
    c.past = c.walk.stride[0][last] == 1 && c.walk.size[last] * c.walk.bytes[0] >= 256 &&
             c.walk.total * c.walk.bytes[0] >= TL_PAST_CACHE;
    c.per_task = c.walk.total < 2 * TL_TASK_ELEMENTS ? c.walk.total : TL_TASK_ELEMENTS;
    tl_engine_run(call->engine, tl_blocks_of(c.walk.total, c.per_task), copy_range, &c);
}

void TL_K(copy)(tl_kcall *call) { copy_any(call, false); }
void TL_K(copy_saturating)(tl_kcall *call) { copy_any(call, true); }

/* The value is converted once; what is left is a copy from a zero-stride array. */
void TL_K(fill)(tl_kcall *call) {
    const tl_fill_attr *attr = call->attr;
    uint64_t element = 0;
    tl_kcall copy = {.engine = call->engine, .n_in = 1, .n_out = 1};
    copy.out[0] = call->out[0];
    copy.in[0] = call->out[0];
    for (int d = 0; d < copy.in[0].ndim; d++)
        copy.in[0].stride[d] = 0;
    copy.in[0].data = (char *)&element;
    TL_K(store_double)(call->out[0].dtype, (char *)&element, 1, &attr->value, 1);
    TL_K(copy)(&copy);
}
