/* kernel/body/random.c: numbers that depend on (seed, stream, first + i) alone, and dropout.
 *
 * The stream is base/random.h's, word for word: Philox4x32-10 (Salmon and others, SC11), key = seed, counter = {block,
 * stream}. It is generated here many blocks at a time so that it vectorises. With i the global index of an element:
 *   uniform, dropout (not f64)    the upper 24 bits of word i % 4 of block i/4
 *   uniform f64, truncated normal the upper 53 bits of words 2(i%2), 2(i%2)+1 of block i/2
 *   normal                        Box and Muller (1958): the two 53-bit uniforms u, v of block i/2,
 *                                 √(−2 log(1 − u))·cos 2πv for even i and ·sin 2πv for odd i
 * f32, bf16 and f16 outputs are the double rounded once (a bf16 uniform may round up to `high`). */
#include "kernel/body/body.h"
#include "kernel/body/math.h"

#define BLOCKS (TL_CHUNK / 2 + 16)

/* Blocks first … first + n − 1; word[w][b] is word w of block b. n a multiple of 16. */
static void philox(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, uint32_t word[4][BLOCKS]) {
    for (int64_t b = 0; b < n; b += 16) {
        uint32_t c0[16], c1[16], c2[16], c3[16];
        for (int l = 0; l < 16; l++) {
            uint64_t block = first + (uint64_t)(b + l);
            c0[l] = (uint32_t)block;
            c1[l] = (uint32_t)(block >> 32);
            c2[l] = (uint32_t)stream;
            c3[l] = (uint32_t)(stream >> 32);
        }
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            for (int l = 0; l < 16; l++) {
                uint64_t a = (uint64_t)c0[l] * 0xD2511F53u, c = (uint64_t)c2[l] * 0xCD9E8D57u;
                c0[l] = (uint32_t)(c >> 32) ^ c1[l] ^ k0;
                c2[l] = (uint32_t)(a >> 32) ^ c3[l] ^ k1;
                c1[l] = (uint32_t)c;
                c3[l] = (uint32_t)a;
            }
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        memcpy(&word[0][b], c0, sizeof c0);
        memcpy(&word[1][b], c1, sizeof c1);
        memcpy(&word[2][b], c2, sizeof c2);
        memcpy(&word[3][b], c3, sizeof c3);
    }
}

/* 24-bit uniforms of elements first … first + n − 1, n ≤ TL_CHUNK */
static void uniform_24(const tl_random_attr *attr, uint64_t first, int64_t n, float *out) {
    uint32_t word[4][BLOCKS], flat[TL_CHUNK + 64];
    int64_t skip = (int64_t)(first % 4), blocks = (skip + n + 3) / 4;
    philox(attr->seed, attr->stream, first / 4, (blocks + 15) & ~(int64_t)15, word);
    for (int64_t b = 0; b < blocks; b++)
        for (int w = 0; w < 4; w++)
            flat[4 * b + w] = word[w][b];
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(int32_t)(flat[skip + i] >> 8) * 0x1p-24f;
}

/* a 53-bit integer to a double without a 64-bit conversion, which few instruction sets have as a vector */
static inline double uniform_of(uint32_t low, uint32_t high) {
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11; /* 53 bits: the upper 21 and the lower 32 apart */
    double upper = tlm_double((bits >> 32) | UINT64_C(0x4330000000000000)) - 0x1p52;
    double lower = tlm_double((bits & 0xFFFFFFFFu) | UINT64_C(0x4330000000000000)) - 0x1p52;
    return (upper * 0x1p32 + lower) * 0x1p-53;
}

/* pairs of 53-bit uniforms: u[2b], u[2b+1] of block first/2 + b; returns the number to skip at the front */
static int64_t uniform_53(const tl_random_attr *attr, uint64_t first, int64_t n, double *u, double *v,
                          int64_t *blocks) {
    uint32_t word[4][BLOCKS];
    int64_t skip = (int64_t)(first % 2);
    *blocks = (skip + n + 1) / 2;
    philox(attr->seed, attr->stream, first / 2, (*blocks + 15) & ~(int64_t)15, word);
    for (int64_t b = 0; b < *blocks; b++) {
        u[b] = uniform_of(word[0][b], word[1][b]);
        v[b] = uniform_of(word[2][b], word[3][b]);
    }
    return skip;
}

typedef enum draw { DRAW_NORMAL, DRAW_TRUNCATED, DRAW_UNIFORM } draw;

typedef struct random_task {
    tl_walk walk; /* out; dropout: in, out, mask in flat order */
    const tl_random_attr *attr;
    draw what;
    int64_t per_task;
    double low, width; /* of the truncated normal's probability */
} random_task;

static void draw_normal(const tl_random_attr *attr, int64_t blocks, double *u, double *v) {
    for (int64_t b = 0; b < blocks; b++) {
        double radius = __builtin_sqrt(-2.0 * tlm_log64(1.0 - u[b])), sine, cosine;
        tlm_sincos_turns(v[b], &sine, &cosine);
        u[b] = attr->a + attr->b * (radius * cosine);
        v[b] = attr->a + attr->b * (radius * sine);
    }
}

/* The normal quantile, Wichura 1988 (AS 241, PPND16), 1e-16 relative; its third branch starts at p < e^−25, which
 * 53-bit uniforms inside a cut do not reach for cuts below 6.6: beyond, the second branch is still good to 1e-9. */
TLM double normal_quantile(double p) {
    double q = p - 0.5, z = 0.180625 - q * q;
    double top = 2509.0809287301226727, bottom = 5226.4952788528545610;
    top = top * z + 33430.575583588128105;
    top = top * z + 67265.770927008700853;
    top = top * z + 45921.953931549871457;
    top = top * z + 13731.693765509461125;
    top = top * z + 1971.5909503065514427;
    top = top * z + 133.14166789178437745;
    top = top * z + 3.3871328727963666080;
    bottom = bottom * z + 28729.085735721942674;
    bottom = bottom * z + 39307.895800092710610;
    bottom = bottom * z + 21213.794301586595867;
    bottom = bottom * z + 5394.1960214247511077;
    bottom = bottom * z + 687.18700749205790830;
    bottom = bottom * z + 42.313330701600911252;
    bottom = bottom * z + 1.0;
    double near = q * top / bottom;
    double tail = q < 0 ? p : 1.0 - p;
    double r = __builtin_sqrt(-tlm_log64(tail > 1e-300 ? tail : 1e-300)) - 1.6;
    double over = 7.74545014278341407640e-4, under = 1.05075007164441684324e-9;
    over = over * r + 0.0227238449892691845833;
    over = over * r + 0.241780725177450611770;
    over = over * r + 1.27045825245236838258;
    over = over * r + 3.64784832476320460504;
    over = over * r + 5.76949722146069140550;
    over = over * r + 4.63033784615654529590;
    over = over * r + 1.42343711074968357734;
    under = under * r + 5.47593808499534494600e-4;
    under = under * r + 0.0151986665636164571966;
    under = under * r + 0.148103976427480074590;
    under = under * r + 0.689767334985100004550;
    under = under * r + 1.67638483018380384940;
    under = under * r + 2.05319162663775882187;
    under = under * r + 1.0;
    double far = over / under;
    far = q < 0 ? -far : far;
    return q < 0.425 && q > -0.425 ? near : far;
}

static void random_range(void *argument, int64_t task, int thread) {
    (void)thread;
    const random_task *t = argument;
    const tl_random_attr *attr = t->attr;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->walk.total);
    bool wide = t->walk.dtype[0] == TL_F64;
    for (int64_t at = task * t->per_task; at < end; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, end - at), blocks, skip = 0;
        double u[BLOCKS], v[BLOCKS], value[TL_CHUNK + 2];
        uint64_t first = attr->first + (uint64_t)at;
        if (t->what == DRAW_UNIFORM && !wide) {
            float narrow[TL_CHUNK];
            uniform_24(attr, first, n, narrow);
            for (int64_t i = 0; i < n; i++)
                value[i] = attr->a + (attr->b - attr->a) * (double)narrow[i];
        } else {
            skip = uniform_53(attr, first, n, u, v, &blocks);
            if (t->what == DRAW_NORMAL)
                draw_normal(attr, blocks, u, v);
            for (int64_t b = 0; b < blocks; b++) {
                value[2 * b] = u[b];
                value[2 * b + 1] = v[b];
            }
            if (t->what == DRAW_UNIFORM)
                for (int64_t i = 0; i < 2 * blocks; i++)
                    value[i] = attr->a + (attr->b - attr->a) * value[i];
            if (t->what == DRAW_TRUNCATED)
                for (int64_t i = 0; i < 2 * blocks; i++) {
                    double z = normal_quantile(t->low + t->width * value[i]);
                    z = z < -attr->cut ? -attr->cut : z > attr->cut ? attr->cut : z;
                    value[i] = attr->a + attr->b * z;
                }
        }
        TL_K(flat_put_double)(&t->walk, 0, at, n, value + skip);
    }
}

static void random_run(tl_kcall *call, draw what) {
    const tl_array *array[] = {&call->out[0]};
    random_task t = {.attr = call->attr, .what = what};
    if (what == DRAW_TRUNCATED) {
        double cut = t.attr->cut;
        t.low = 0.5 * erfc(cut * 0.70710678118654752440); /* Φ(−cut) */
        t.width = 1 - 2 * t.low;
    }
    TL_K(walk_make)(&t.walk, array, 1, array[0]->ndim, false);
    if (t.walk.total == 0)
        return;
    t.per_task = t.walk.total < 2 * TL_TASK_ELEMENTS ? t.walk.total : TL_TASK_ELEMENTS;
    tl_engine_run(call->engine, tl_blocks_of(t.walk.total, t.per_task), random_range, &t);
}

void TL_K(normal)(tl_kcall *call) { random_run(call, DRAW_NORMAL); }
void TL_K(truncated_normal)(tl_kcall *call) { random_run(call, DRAW_TRUNCATED); }
void TL_K(uniform)(tl_kcall *call) { random_run(call, DRAW_UNIFORM); }

/* ---- dropout (Srivastava and others 2014, inverted): kept where the uniform is at least p. A dropped element is 0, even
 * where the input is infinite or NaN. ---- */

void TL_K(dropout_keeps)(const tl_random_attr *attr, uint64_t first, int64_t n, float *keep) {
    uniform_24(attr, attr->first + first, n, keep);
    for (int64_t i = 0; i < n; i++)
        keep[i] = (double)keep[i] >= attr->a ? 1 : 0;
}

static void dropout_range(void *argument, int64_t task, int thread) {
    (void)thread;
    const random_task *t = argument;
    double p = t->attr->a, factor = p < 1 ? 1 / (1 - p) : 0;
    int64_t end = tl_min_i64((task + 1) * t->per_task, t->walk.total);
    for (int64_t at = task * t->per_task; at < end; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, end - at);
        float u[TL_CHUNK], buffer[TL_CHUNK], narrow = (float)factor;
        double wide[TL_CHUNK];
        uint8_t *mask = (uint8_t *)t->walk.data[2] + at;
        uniform_24(t->attr, t->attr->first + (uint64_t)at, n, u);
        for (int64_t i = 0; i < n; i++)
            mask[i] = (double)u[i] >= p;
        if (t->walk.dtype[0] == TL_F64) {
            const double *x = TL_K(flat_double)(&t->walk, 0, at, n, wide);
            for (int64_t i = 0; i < n; i++)
                wide[i] = (double)u[i] >= p ? x[i] * factor : 0;
            TL_K(flat_put_double)(&t->walk, 1, at, n, wide);
        } else {
            const float *x = TL_K(flat_float)(&t->walk, 0, at, n, buffer);
            for (int64_t i = 0; i < n; i++)
                buffer[i] = (double)u[i] >= p ? x[i] * narrow : 0;
            TL_K(flat_put_float)(&t->walk, 1, at, n, buffer);
        }
    }
}

void TL_K(dropout)(tl_kcall *call) {
    tl_array mask = call->out[1];
    const tl_array *array[] = {&call->in[0], &call->out[0], &mask};
    random_task t = {.attr = call->attr};
    int64_t step = 1;
    for (int d = mask.ndim - 1; d >= 0; d--) { /* contiguous by contract; flat offsets are used */
        mask.stride[d] = step;
        step *= mask.size[d];
    }
    TL_K(walk_make)(&t.walk, array, 3, array[0]->ndim, false);
    if (t.walk.total == 0)
        return;
    t.per_task = t.walk.total < 2 * TL_TASK_ELEMENTS ? t.walk.total : TL_TASK_ELEMENTS;
    tl_engine_run(call->engine, tl_blocks_of(t.walk.total, t.per_task), dropout_range, &t);
}

static void dropout_backward_float(const void *constants, int64_t n, void *const pointer[]) {
    float factor = *(const float *)constants, *y = pointer[0];
    const float *mask = pointer[1], *g = pointer[2];
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = mask[i] != 0 ? g[i] * factor : 0;
}

static void dropout_backward_double(const void *constants, int64_t n, void *const pointer[]) {
    double factor = *(const double *)constants, *y = pointer[0];
    const double *mask = pointer[1], *g = pointer[2];
    TL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = mask[i] != 0 ? g[i] * factor : 0;
}

void TL_K(dropout_backward)(tl_kcall *call) {
    const tl_random_attr *attr = call->attr;
    double factor = attr->a < 1 ? 1 / (1 - attr->a) : 0;
    float narrow = (float)factor;
    bool wide = call->out[0].dtype == TL_F64;
    TL_K(each_call)(call, dropout_backward_float, dropout_backward_double, wide ? (void *)&factor : (void *)&narrow);
}
