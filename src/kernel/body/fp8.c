/* kernel/body/fp8.c: what training in 8 bits does to values: scaled, rounded to float8, scaled back; the largest magnitude;
 * the scale that follows from the largest magnitudes of the steps before. */
#include "kernel/body/body.h"

#define MAX_PARTS 1024

/* n values through float8 and back. A finite value beyond the largest becomes the largest; an infinity becomes NaN, for it
 * must be seen later, and 448 would hide it. */
#define ROUND(type, from_dtype, load)                                                                                  \
    static void round_##type(const void *constants, int64_t n, void *const pointer[]) {                                \
        const tl_fp8_attr *attr = constants;                                                                           \
        type scale = (type)attr->scale, back = (type)(1.0 / attr->scale);                                              \
        type *y = pointer[0], buffer[TL_CHUNK];                                                                        \
        const type *x = pointer[1];                                                                                    \
        uint8_t code[TL_CHUNK];                                                                                        \
        for (int64_t at = 0; at < n; at += TL_CHUNK) {                                                                 \
            int64_t count = tl_min_i64(TL_CHUNK, n - at);                                                              \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                type v = x[at + i];                                                                                    \
                buffer[i] = v - v == 0 ? v * scale : (type)__builtin_nan("");                                          \
            }                                                                                                          \
            TL_K(convert_saturating)(attr->format, (char *)code, 1, from_dtype, (const char *)buffer, 1, count);       \
            TL_K(load)(buffer, attr->format, (const char *)code, 1, count);                                            \
            for (int64_t i = 0; i < count; i++)                                                                        \
                y[at + i] = buffer[i] * back;                                                                          \
        }                                                                                                              \
    }
ROUND(float, TL_F32, load_float)
ROUND(double, TL_F64, load_double)

void TL_K(fp8_round)(tl_kcall *call) { TL_K(each_call)(call, round_float, round_double, call->attr); }

static float larger(float a, float b) { return b > a || b != b ? (a != a ? a : b) : a; }

typedef struct amax_task {
    tl_walk walk;
    int64_t part;
    float *partial;
} amax_task;

static void amax_part(void *argument, int64_t task, int thread) {
    amax_task *t = argument;
    float buffer[TL_CHUNK], best = 0;
    int64_t end = tl_min_i64((task + 1) * t->part, t->walk.total);
    (void)thread;
    for (int64_t at = task * t->part; at < end; at += TL_CHUNK) {
        int64_t n = tl_min_i64(TL_CHUNK, end - at);
        const float *x = TL_K(flat_float)(&t->walk, 0, at, n, buffer);
        for (int64_t i = 0; i < n; i++)
            best = larger(best, __builtin_fabsf(x[i]));
    }
    t->partial[task] = best;
}

void TL_K(absolute_max)(tl_kcall *call) {
    float partial[MAX_PARTS], best;
    const tl_array *array[] = {&call->in[0]};
    amax_task t = {.partial = partial};
    TL_K(walk_make)(&t.walk, array, 1, call->in[0].ndim, true);
    t.part = tl_max_i64(TL_TASK_ELEMENTS, tl_blocks_of(t.walk.total, MAX_PARTS));
    int64_t parts = tl_blocks_of(t.walk.total, t.part);
    tl_engine_run(call->engine, parts, amax_part, &t);
    memcpy(&best, call->out[0].data, sizeof best);
    for (int64_t i = 0; i < parts; i++)
        best = larger(best, partial[i]);
    memcpy(call->out[0].data, &best, sizeof best);
}

/* 2^floor(log2(largest/amax)): the exponent of the quotient, kept where its reciprocal is a normal float too. */
static float power_of_two(double largest, float amax) {
    double quotient = largest / (double)amax;
    uint64_t bits;
    memcpy(&bits, &quotient, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52 & 0x7FF) - 1023;
    exponent = exponent > 100 ? 100 : exponent < -100 ? -100 : exponent;
    uint32_t scale_bits = (uint32_t)(exponent + 127) << 23;
    float scale;
    memcpy(&scale, &scale_bits, sizeof scale);
    return scale;
}

void TL_K(fp8_roll)(tl_kcall *call) {
    const tl_array *state = &call->out[0];
    int64_t columns = state->size[1];
    for (int64_t row = 0; row < state->size[0]; row++) {
        float *s = (float *)state->data + row * columns, amax = 0;
        for (int64_t i = 1; i < columns; i++)
            amax = larger(amax, s[i]);
        if (amax > 0 && amax - amax == 0)
            s[0] = power_of_two(row == TL_FP8_GRADIENT ? 57344 : 448, amax);
        for (int64_t i = columns - 1; i > 1; i--)
            s[i] = s[i - 1];
        s[1] = 0;
    }
}
