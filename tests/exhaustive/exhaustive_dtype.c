/* Every one of the 2^32 float32 patterns to f16, bf16, f8e4m3 and f8e5m2, saturating and not: the public conversions and
 * the kernels of every instruction set, bit for bit against the oracle of tests/format_oracle.h.
 *
 *   exhaustive_dtype [THREADS [FIRST LAST]]   chunks FIRST … LAST of 256 (the pattern's upper byte); minutes for all
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format_oracle.h"
#include "kernel/table.h"

enum { CHUNKS = 256, BLOCK = 1 << 12, MOST_THREADS = 64 };

static const struct target {
    const oracle_format *format;
    tl_dtype dtype;
    bool saturating;
} targets[] = {
    {&oracle_f16, TL_F16, false},      {&oracle_bf16, TL_BF16, false},     {&oracle_f8e4m3, TL_F8E4M3, false},
    {&oracle_f8e4m3, TL_F8E4M3, true}, {&oracle_f8e5m2, TL_F8E5M2, false}, {&oracle_f8e5m2, TL_F8E5M2, true},
};
enum { TARGETS = sizeof targets / sizeof targets[0] };

typedef struct shared {
    pthread_mutex_t lock;
    int next, last, done;
    uint64_t inputs, compared, wrong;
    struct timespec start;
    const tl_kernels *table[3];
    int n_tables;
} shared;

static uint32_t public_bits(const struct target *t, float v) {
    switch (t->dtype) {
    case TL_F16:
        return tl_f32_to_f16(v);
    case TL_BF16:
        return tl_f32_to_bf16(v);
    case TL_F8E4M3:
        return tl_f32_to_f8e4m3(v, t->saturating);
    default:
        return tl_f32_to_f8e5m2(v, t->saturating);
    }
}

static tl_array array_of(void *data, tl_dtype dtype) {
    return (tl_array){.data = data, .dtype = dtype, .ndim = 1, .size = {BLOCK}, .stride = {1}};
}

/* The wrong ones of a block, which is looked at one by one only where memory differs. */
static uint64_t differences(const struct target *t, const char *who, const uint32_t *in, const char *want,
                            const char *got) {
    const size_t bytes = (size_t)tl_dtype_bytes(t->dtype);
    uint64_t wrong = 0;
    if (memcmp(want, got, BLOCK * bytes) == 0)
        return 0;
    for (size_t i = 0; i < BLOCK; i++) {
        uint32_t a = 0, b = 0;
        memcpy(&a, want + i * bytes, bytes);
        memcpy(&b, got + i * bytes, bytes);
        if (a != b && wrong++ == 0)
            fprintf(stderr, "%s, %s%s of 0x%08X: 0x%X, not 0x%X\n", who, t->format->name,
                    t->saturating ? ", saturating," : "", in[i], b, a);
    }
    return wrong;
}

static uint64_t check_block(const shared *s, const struct target *t, const uint32_t *in, oracle_walk *walk) {
    _Alignas(64) char want[2 * BLOCK] = {0}, got[2 * BLOCK] = {0};
    const size_t bytes = (size_t)tl_dtype_bytes(t->dtype);
    uint64_t wrong = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        const uint32_t a = oracle_round(t->format, in[i], t->saturating, walk);
        float v;
        memcpy(&v, &in[i], sizeof v);
        const uint32_t b = public_bits(t, v);
        memcpy(want + i * bytes, &a, bytes); /* the low bytes come first */
        memcpy(got + i * bytes, &b, bytes);
    }
    wrong += differences(t, "public", in, want, got);
    for (int k = 0; k < s->n_tables; k++) {
        tl_kcall call = {.n_in = 1, .n_out = 1};
        call.in[0] = array_of((char *)(uintptr_t)in, TL_F32);
        call.out[0] = array_of(got, t->dtype);
        memset(got, 0xA5, sizeof got);
        (t->saturating ? s->table[k]->copy_saturating : s->table[k]->copy)(&call);
        wrong += differences(t, s->table[k]->name, in, want, got);
    }
    return wrong;
}

static uint64_t check_chunk(const shared *s, int chunk) {
    uint32_t in[BLOCK];
    oracle_walk walk[TARGETS] = {0};
    uint64_t wrong = 0;
    for (uint32_t at = 0; at < 1u << 24; at += BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++)
            in[i] = (uint32_t)chunk << 24 | (at + i);
        for (int t = 0; t < TARGETS; t++)
            wrong += check_block(s, &targets[t], in, &walk[t]);
    }
    return wrong;
}

static void *worker(void *argument) {
    shared *s = argument;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        const int chunk = s->next++;
        pthread_mutex_unlock(&s->lock);
        if (chunk > s->last)
            return NULL;
        const uint64_t wrong = check_chunk(s, chunk);
        pthread_mutex_lock(&s->lock);
        s->done++;
        s->wrong += wrong;
        s->inputs += 1u << 24;
        s->compared += (uint64_t)TARGETS * (uint64_t)(1 + s->n_tables) << 24;
        if (s->done % 16 == 0) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            printf("%3d chunks, %llu inputs, %llu wrong, %.0f s\n", s->done, (unsigned long long)s->inputs,
                   (unsigned long long)s->wrong, (double)(now.tv_sec - s->start.tv_sec));
            fflush(stdout);
        }
        pthread_mutex_unlock(&s->lock);
    }
}

/* -1 of what is not a number in the range. */
static int number(const char *text, int low, int high) {
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    return end != text && *end == '\0' && value >= low && value <= high ? (int)value : -1;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"portable", "avx2", "avx512"};
    shared s = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = CHUNKS - 1};
    const int threads = argc > 1 ? number(argv[1], 1, MOST_THREADS) : 2;
    if (argc > 3) {
        s.next = number(argv[2], 0, CHUNKS - 1);
        s.last = number(argv[3], 0, CHUNKS - 1);
    }
    if (threads < 0 || s.next < 0 || s.last < 0) {
        fprintf(stderr, "exhaustive_dtype [THREADS [FIRST LAST]]: 1 to %d threads, chunks 0 to %d\n", MOST_THREADS,
                CHUNKS - 1);
        return 2;
    }
    for (int i = 0; i < 3; i++) {
        tl_error error = {TL_OK, ""};
        const tl_kernels *table = tl_kernels_for_cpu(names[i], &error);
        if (table)
            s.table[s.n_tables++] = table;
        printf("%s: %s\n", names[i], table ? "checked" : "NOT CHECKED, this processor does not have it");
    }
    clock_gettime(CLOCK_MONOTONIC, &s.start);
    pthread_t thread[MOST_THREADS];
    int started = 0;
    while (started < threads && pthread_create(&thread[started], NULL, worker, &s) == 0)
        started++;
    if (started == 0)
        worker(&s);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    printf("%llu inputs to %d targets: %llu conversions compared, %llu wrong\n", (unsigned long long)s.inputs, TARGETS,
           (unsigned long long)s.compared, (unsigned long long)s.wrong);
    return s.wrong != 0;
}
