/* Ours beside PyTorch's, in one run, taken in turns.
 *
 *   bench_torch [rounds] [case]
 *
 * Each round times samples of ours, of PyTorch's (bench/torch_peer.py, over pipes) and of what bounds both, as many of each,
 * with as many threads on either side. Printed are the best of all rounds, and the ratio ours ÷ PyTorch's with the range that
 * the rounds gave. With one thread a sample is CPU time of the process, so that other work on the machine disturbs it
 * less; with more it is wall time. Both sides make a new output per call from memory that stays with the process (mallopt), so
 * that neither faults pages in.
 *
 * The bound of what moves data is bytes ÷ the bandwidth of a plain loop of the same pattern and size (read; read and write;
 * two reads and a write; a read and half as many bytes written), the faster of ordinary and non-temporal stores; of reading,
 * the fastest of 1, 2, 4 and 8 streams in eight sums and of one in one sum, each with and without fetching ahead, in tasks of
 * 1 MiB. A copy into another order counts as read and write. The bound of a product is FLOPs ÷ multiply-adds in registers. */
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernel/engine.h"
#include "kernel/peak.h"
#include "tensor/ctx.h"
#include "tally/account.h"
#include "tally/cpu.h"
#include "tally/grad.h"
#include "tally/ops.h"
#include "tally/train.h"

#define MAX_ROUNDS 99

/* ---- the other side ---- */

typedef struct peer {
    pid_t pid;
    FILE *to, *from;
} peer;

static bool peer_ask(peer *p, const char *question, char *answer, size_t size) {
    if (!p->to || (question && (fprintf(p->to, "%s\n", question) < 0 || fflush(p->to) != 0)) ||
        !fgets(answer, (int)size, p->from))
        return false;
    answer[strcspn(answer, "\n")] = '\0';
    return true;
}

/* OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE make some OpenBLAS builds slow: unset for the peer alone. */
static bool peer_open(peer *p, const char *script, char *version, size_t size) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0 || (p->pid = fork()) < 0)
        return false;
    if (p->pid == 0) {
        unsetenv("OPENBLAS_CORETYPE");
        unsetenv("OPENBLAS_L2_SIZE");
        if (dup2(to[0], 0) < 0 || dup2(from[1], 1) < 0)
            _exit(127);
        close(to[1]);
        close(from[0]);
        execl("/usr/bin/python3", "python3", script, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    p->to = fdopen(to[1], "w");
    p->from = fdopen(from[0], "r");
    return p->to && p->from && peer_ask(p, NULL, version, size);
}

static void peer_close(peer *p) {
    if (p->to)
        fclose(p->to);
    if (p->from)
        fclose(p->from);
    if (p->pid > 0)
        waitpid(p->pid, NULL, 0);
    *p = (peer){0};
}

/* ---- time ---- */

static double clock_of(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one run: of four that take 100 us or more the least, since what else reads memory comes and goes within
 * milliseconds; of shorter ones the mean of as many as take 2 ms. */
static double sample(void (*run)(void *), void *argument, int threads) {
    double least = 0;
    for (int64_t count = 1, singles = 0;;) {
        double start = clock_of(threads);
        for (int64_t i = 0; i < count; i++)
            run(argument);
        double spent = clock_of(threads) - start;
        if (count == 1 && (singles > 0 || spent >= 1e-4)) {
            least = singles == 0 || spent < least ? spent : least;
            if (++singles == 4)
                return least;
        } else if (spent >= 2e-3 || count >= 1 << 20)
            return spent / (double)count;
        else
            count *= 4;
    }
}

/* ---- what bounds ---- */

typedef enum pattern { READ, READ_WRITE, READ_READ_WRITE, READ_HALF_WRITE, FLOPS, NOTHING } pattern;
static const char *const pattern_names[] = {"read", "read+write", "2 read+write", "read+half write", "FLOPs", ""};

typedef struct streams {
    float *a, *b, *c;
    int64_t n;
    pattern pattern;
    bool past_cache;
    int read_streams, ahead; /* of READ: 0 is one stream in one sum; elements fetched ahead */
    float sink[256];
    tl_engine *engine;
    tl_peak_loop peak;
} streams;

#define PART 16384
typedef float float16 __attribute__((vector_size(64), aligned(4), may_alias));

static float part_portable(const float *a, const float *b, float *c, pattern what) {
    if (what == READ_WRITE)
        memcpy(c, a, PART * sizeof *a);
    else if (what == READ_HALF_WRITE)
        for (int i = 0; i < PART; i += 32)
            *(float16 *)(c + i / 2) = *(const float16 *)(a + i) + *(const float16 *)(a + i + 16);
    else
        for (int i = 0; i < PART; i += 16)
            *(float16 *)(c + i) = *(const float16 *)(a + i) + *(const float16 *)(b + i);
    return c[0];
}
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float part_avx512(const float *a, const float *b, float *c, pattern what,
                                                            bool past_cache) {
    for (int i = 0; what == READ_HALF_WRITE && i < PART; i += 32) {
        __m512 x = _mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(a + i + 16));
        if (past_cache)
            _mm512_stream_ps(c + i / 2, x);
        else
            _mm512_storeu_ps(c + i / 2, x);
    }
    for (int i = 0; what != READ_HALF_WRITE && i < PART; i += 64)
        for (int j = 0; j < 4; j++) {
            __m512 x = _mm512_loadu_ps(a + i + 16 * j);
            if (what == READ_READ_WRITE)
                x = _mm512_add_ps(x, _mm512_loadu_ps(b + i + 16 * j));
            if (past_cache)
                _mm512_stream_ps(c + i + 16 * j, x);
            else
                _mm512_storeu_ps(c + i + 16 * j, x);
        }
    return c[0];
}
#endif

/* A task of reading: as many bytes as a reduction's, and as many sums as hide the latency of an addition. */
#define READ_PART (1 << 18)
#define READ_LINES(step, which, place)                                                                                 \
    for (int at = 0; !ahead && at < width; at += (step))                                                               \
        _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) sum[which] += *(const float16 *)(a + (place));             \
    for (int at = 0; ahead && at < width; at += (step))                                                                \
        _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) {                                                          \
            __builtin_prefetch(a + (place) + ahead, 0, 2);                                                             \
            sum[which] += *(const float16 *)(a + (place));                                                             \
        }                                                                                                              \
    break
#define READER(target, suffix)                                                                                         \
    target static float read_##suffix(const float *a, int n, int ahead) {                                              \
        float16 sum[8] = {{0}};                                                                                        \
        int width = READ_PART / (n ? n : 1);                                                                           \
        switch (n) {                                                                                                   \
        case 0:                                                                                                        \
            READ_LINES(128, 0, at + 16 * j);                                                                           \
        case 1:                                                                                                        \
            READ_LINES(128, j, at + 16 * j);                                                                           \
        case 2:                                                                                                        \
            READ_LINES(64, j, j % 2 * width + at + j / 2 * 16);                                                        \
        case 4:                                                                                                        \
            READ_LINES(32, j, j % 4 * width + at + j / 4 * 16);                                                        \
        default:                                                                                                       \
            READ_LINES(16, j, j *width + at);                                                                          \
        }                                                                                                              \
        for (int j = 1; j < 8; j++)                                                                                    \
            sum[0] += sum[j];                                                                                          \
        return sum[0][0] + sum[0][15];                                                                                 \
    }
READER(, portable)
#if defined(__x86_64__)
READER(__attribute__((target("avx512f"))), avx512)
#endif

static void read_part(void *argument, int64_t task, int thread) {
    streams *s = argument;
    const float *a = s->a + task * READ_PART;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        s->sink[thread % 256] += read_avx512(a, s->read_streams, s->ahead);
        return;
    }
#endif
    s->sink[thread % 256] += read_portable(a, s->read_streams, s->ahead);
}
static void read_all(void *argument) {
    streams *s = argument;
    tl_engine_run(s->engine, s->n / READ_PART, read_part, s);
}

static void stream_part(void *argument, int64_t task, int thread) {
    streams *s = argument;
    int64_t at = task * PART;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        s->sink[thread % 256] += part_avx512(s->a + at, s->b + at, s->c + (s->pattern == READ_HALF_WRITE ? at / 2 : at),
                                             s->pattern, s->past_cache);
        return;
    }
#endif
    s->sink[thread % 256] +=
        part_portable(s->a + at, s->b + at, s->c + (s->pattern == READ_HALF_WRITE ? at / 2 : at), s->pattern);
}
static void stream_all(void *argument) {
    streams *s = argument;
    tl_engine_run(s->engine, s->n / PART, stream_part, s);
}
static void peak_part(void *argument, int64_t task, int thread) {
    streams *s = argument;
    (void)task;
    s->sink[thread % 256] += (float)s->peak.run(100000);
}
static void peak_all(void *argument) {
    streams *s = argument;
    tl_engine_run(s->engine, s->engine->threads, peak_part, s);
}

/* ---- cases ---- */

typedef struct bench {
    tl_ctx *ctx;
    peer peer;
    int threads, rounds;
    streams streams;
} bench;

typedef struct work {
    bench *bench;
    const char *name;
    tl_tensor *x, *y, *gain, *bias;
    tl_trainer *trainer;
    int64_t size[6];
    int n_size;
} work;

typedef struct bench_case {
    const char *title, *name;
    int n_size;
    int64_t size[6];
    pattern pattern;
    double amount; /* bytes or FLOPs of one iteration */
    double wanted; /* the bar on the ratio (kind 'r') or on the share of the bound */
    char kind;   /* 'r' ratio at most, 'b' share of the bound at least, 's' PyTorch's time ÷ ours at least, ' ' none */
    int threads; /* most: the case runs with 1 and, where this is 2, with 2 */
} bench_case;

#define MIB64 ((int64_t)16 << 20)
#define WIDE 4096, 4096
#define BYTES (4.0 * (double)MIB64)
#define PRODUCT(title, kind, m, n, k, batch)                                                                           \
    { title, kind, 4, {m, n, k, batch}, FLOPS, 2.0 * (m) * (n) * (k) * (batch), 0, ' ', 2 }

static const bench_case cases[] = {
    {"add, one element", "add_one", 1, {1}, NOTHING, 0, 0.35, 'r', 1},
    {"add", "add", 1, {MIB64}, READ_READ_WRITE, 3 * BYTES, 0.85, 'b', 2},
    {"mul", "mul", 1, {MIB64}, READ_READ_WRITE, 3 * BYTES, 0.85, 'b', 2},
    {"exp", "exp", 1, {MIB64}, READ_WRITE, 2 * BYTES, 0.85, 'b', 2},
    {"sum", "sum", 1, {MIB64}, READ, BYTES, 0.85, 'b', 2},
    {"mean", "mean", 1, {MIB64}, READ, BYTES, 0.85, 'b', 2},
    {"max", "max", 1, {MIB64}, READ, BYTES, 0.85, 'b', 2},
    {"sum of each row", "sum_rows", 2, {WIDE}, READ, BYTES, 0.85, 'b', 2},
    {"sum of each column", "sum_columns", 2, {WIDE}, READ, BYTES, 0.85, 'b', 2},
    {"softmax, rows of 1024", "softmax", 2, {16384, 1024}, READ_WRITE, 2 * BYTES, 0.7, 'b', 2},
    {"layer norm, of 1024", "layer_norm", 2, {16384, 1024}, READ_WRITE, 2 * BYTES, 0.7, 'b', 2},
    {"rms norm, of 1024", "rms_norm", 2, {16384, 1024}, READ_WRITE, 2 * BYTES, 0.7, 'b', 2},
    {"GELU, tanh form", "gelu_tanh", 1, {MIB64}, READ_WRITE, 2 * BYTES, 0.7, 'b', 2},
    {"GELU, erf", "gelu_erf", 1, {MIB64}, READ_WRITE, 2 * BYTES, 0.7, 'b', 2},
    {"transpose 4096 x 4096", "transpose", 2, {WIDE}, READ_WRITE, 2 * BYTES, 0.7, 'b', 2},
    {"permute 0,2,1,3", "permute", 4, {8, 1024, 32, 64}, READ_WRITE, 2 * BYTES, 0.7, 'b', 2},
    {"cast f32 to bf16", "cast", 1, {MIB64}, READ_HALF_WRITE, 1.5 * BYTES, 0.85, 'b', 2},
    PRODUCT("matmul qkv", "matmul_nt", 1024, 2304, 768, 1),
    PRODUCT("matmul fc", "matmul_nt", 1024, 3072, 768, 1),
    PRODUCT("matmul fc2", "matmul_nt", 1024, 768, 3072, 1),
    PRODUCT("matmul fc dX", "matmul", 1024, 768, 3072, 1),
    PRODUCT("matmul fc dW", "matmul_tn", 3072, 768, 1024, 1),
    PRODUCT("matmul q k, 48 heads", "matmul_nt", 256, 256, 64, 48),
    PRODUCT("matmul square", "matmul", 1024, 1024, 1024, 1),
    {"Cruncher step", "cruncher", 3, {64, 2, 64}, NOTHING, 0, 3, 's', 1},
    {"GPT-2 step, 4 layers", "gpt2", 6, {4, 256, 8, 128, 2048, 4}, NOTHING, 0, 0, ' ', 2},
};

static tl_shape shape_of(tl_ctx *ctx, const int64_t *size, int n) {
    tl_dim dim[6];
    for (int i = 0; i < n; i++)
        dim[i] = tl_dim_of(size[i]);
    return tl_shape_of(ctx, n, dim);
}

/* The same values as the peer's. */
static tl_tensor *matrix(tl_ctx *ctx, const int64_t *size, int n) {
    tl_tensor *t = tl_empty(ctx, TL_F32, shape_of(ctx, size, n), TL_DATA);
    float *value = tl_tensor_data(t);
    for (int64_t i = 0; i < tl_tensor_count(t); i++)
        value[i] = (float)(i % 101) * 0.05f - 2.5f;
    return tl_keep(t);
}

static void run_add_one(void *argument) {
    work *w = argument;
    tl_ctx *ctx = w->bench->ctx;
    tl_scope_begin(ctx);
    for (int i = 0; i < 1000; i++)
        tl_release(tl_add(w->x, w->y));
    tl_scope_end(ctx);
    tl_ledger_step_begin(ctx); /* what every training step does: the log starts anew */
}

static void run_op(void *argument) {
    work *w = argument;
    const char *n = w->name;
    tl_ctx *ctx = w->bench->ctx;
    tl_scope_begin(ctx);
    if (!strcmp(n, "add"))
        tl_add(w->x, w->y);
    else if (!strcmp(n, "mul"))
        tl_mul(w->x, w->y);
    else if (!strcmp(n, "exp"))
        tl_exp(w->x);
    else if (!strcmp(n, "sum"))
        tl_sum(w->x, NULL, 0, false);
    else if (!strcmp(n, "mean"))
        tl_mean(w->x, NULL, 0, false);
    else if (!strcmp(n, "max"))
        tl_max(w->x, NULL, 0, false);
    else if (!strcmp(n, "sum_rows") || !strcmp(n, "sum_columns"))
        tl_sum(w->x, (int[]){n[4] == 'r'}, 1, false);
    else if (!strcmp(n, "softmax"))
        tl_softmax(w->x, 1, false);
    else if (!strcmp(n, "layer_norm"))
        tl_layer_norm(w->x, w->gain, w->bias, 1e-5);
    else if (!strcmp(n, "rms_norm"))
        tl_rms_norm(w->x, w->gain, 1e-5);
    else if (!strcmp(n, "gelu_tanh"))
        tl_gelu_tanh(w->x);
    else if (!strcmp(n, "gelu_erf"))
        tl_gelu_erf(w->x);
    else if (!strcmp(n, "transpose"))
        tl_contiguous(tl_transpose(w->x, 0, 1));
    else if (!strcmp(n, "permute"))
        tl_contiguous(tl_permute(w->x, ((int[]){0, 2, 1, 3})));
    else if (!strcmp(n, "cast"))
        tl_cast(w->x, TL_BF16);
    else
        tl_matmul(w->x, w->y);
    tl_scope_end(ctx);
    tl_ledger_step_begin(ctx);
}

static tl_status batch_of(void *user, tl_ctx *ctx, const tl_train_options *options, int64_t micro, tl_batch *batch) {
    work *w = user;
    (void)options;
    (void)micro;
    const void *x = tl_tensor_data(w->x), *y = tl_tensor_data(w->y);
    batch->input = tl_from_data(ctx, tl_tensor_dtype(w->x), *tl_tensor_shape(w->x), TL_DATA, x, tl_tensor_count(w->x));
    batch->target = tl_from_data(ctx, tl_tensor_dtype(w->y), *tl_tensor_shape(w->y), TL_DATA, y, tl_tensor_count(w->y));
    return tl_ctx_status(ctx);
}

static void run_step(void *argument) {
    work *w = argument;
    tl_step_result result;
    if (tl_trainer_step(w->trainer, batch_of, w, strcmp(w->name, "gpt2") ? 0.01 : 1e-3, &result) != TL_OK) {
        fprintf(stderr, "bench_torch: %s\n", tl_ctx_error(w->bench->ctx)->message);
        exit(1);
    }
}

static bool make_step(work *w) {
    tl_ctx *ctx = w->bench->ctx;
    tl_error error = {0};
    tl_model m;
    const int64_t *s = w->size;
    bool gpt2 = !strcmp(w->name, "gpt2");
    if (tl_catalogue_model(w->name, &m, &error) != TL_OK)
        return false;
    tl_train_options o = {.micro_batch = s[2], .seq = 1, .accumulation = 1, .ranks = 1, .dtype = TL_F32};
    o.optimizer = tl_optimizer_defaults(gpt2 ? TL_OPTIM_ADAMW : TL_OPTIM_SGD);
    if (!gpt2) {
        m.width = s[0], m.layers = s[1];
        w->x = matrix(ctx, (int64_t[]){s[2], s[0]}, 2);
        w->y = matrix(ctx, &s[2], 1);
    } else {
        m.layers = s[0], m.width = s[1], m.heads = m.kv_heads = s[2], m.head_size = s[1] / s[2], m.ff = 4 * s[1];
        m.context = s[3], m.vocab = s[4];
        m.dropout_embedding = m.dropout_attention = m.dropout_residual = 0;
        o.micro_batch = s[5], o.seq = s[3];
        w->x = tl_keep(tl_empty(ctx, TL_I32, shape_of(ctx, (int64_t[]){s[5], s[3]}, 2), TL_DATA));
        int32_t *id = tl_tensor_data(w->x);
        for (int64_t i = 0; i < s[5] * s[3]; i++)
            id[i] = (int32_t)(i % s[4]);
        w->y = tl_keep(w->x);
    }
    w->trainer = tl_trainer_new(ctx, &m, &o);
    return w->trainer != NULL;
}

static bool work_make(work *w) {
    tl_ctx *ctx = w->bench->ctx;
    const char *n = w->name;
    const int64_t *s = w->size;
    if (!strcmp(n, "cruncher") || !strcmp(n, "gpt2"))
        return make_step(w);
    tl_scope_begin(ctx);
    if (!strncmp(n, "matmul", 6)) {
        int first = s[3] == 1; /* one matrix has two axes */
        bool turn_a = !strcmp(n, "matmul_tn"), turn_b = !strcmp(n, "matmul_nt");
        w->x = matrix(ctx, (int64_t[]){s[3], turn_a ? s[2] : s[0], turn_a ? s[0] : s[2]} + first, 3 - first);
        w->y = matrix(ctx, (int64_t[]){s[3], turn_b ? s[1] : s[2], turn_b ? s[2] : s[1]} + first, 3 - first);
        if (turn_a)
            w->x = tl_keep(tl_transpose(w->x, -1, -2));
        if (turn_b)
            w->y = tl_keep(tl_transpose(w->y, -1, -2));
    } else {
        w->x = matrix(ctx, s, w->n_size);
        w->y = !strcmp(n, "add") || !strcmp(n, "mul") || !strcmp(n, "add_one") ? matrix(ctx, s, w->n_size) : NULL;
        tl_shape row = shape_of(ctx, &s[w->n_size - 1], 1);
        w->gain = tl_keep(tl_fill(tl_empty(ctx, TL_F32, row, TL_DATA), 1));
        w->bias = tl_keep(tl_fill(tl_empty(ctx, TL_F32, row, TL_DATA), 0));
    }
    tl_scope_end(ctx);
    return tl_ctx_status(ctx) == TL_OK;
}

/* ---- the table ---- */

/* How many loops may bound a pattern; the fastest does. */
static int ways_of(pattern p) { return p == READ ? 10 : p == FLOPS || p == NOTHING ? 1 : 2; }

static double bound_sample(bench *b, const bench_case *c, int way) {
    streams *s = &b->streams;
    static const double moved[] = {1, 2, 3, 1.5};
    if (c->pattern == NOTHING)
        return 0;
    s->engine = b->ctx->engine;
    if (c->pattern == FLOPS)
        return c->amount / (100000.0 * s->peak.flop_per_round * b->threads / sample(peak_all, s, b->threads));
    s->pattern = c->pattern;
    s->past_cache = way;
    s->read_streams = (1 << way / 2) / 2; /* 0, 1, 2, 4, 8 */
    s->ahead = way % 2 * 1024;
    double spent = sample(c->pattern == READ ? read_all : stream_all, s, b->threads);
    return spent * c->amount / (moved[c->pattern] * 4.0 * (double)s->n);
}

static void keep_least(double *least, double value) {
    if (*least == 0 || value < *least)
        *least = value;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *time_text(double seconds, char *text, size_t size) {
    if (seconds <= 0)
        snprintf(text, size, "-");
    else if (seconds < 1e-5)
        snprintf(text, size, "%.0f ns", seconds * 1e9);
    else if (seconds < 1e-2)
        snprintf(text, size, "%.1f us", seconds * 1e6);
    else
        snprintf(text, size, "%.2f ms", seconds * 1e3);
    return text;
}

static const char *verdict(const bench_case *c, double ours, double theirs, double bound) {
    bool met = c->kind == 'r'   ? ours <= c->wanted * theirs
               : c->kind == 's' ? theirs >= c->wanted * ours
                                : bound >= c->wanted * ours;
    if (c->kind == ' ' || (c->kind != 'b' && theirs <= 0))
        return "";
    return met ? "met" : "NOT met";
}

/* `time` holds, sorted by round, ours, PyTorch's (0: none) and the bound. */
static void print_row(const bench *b, const bench_case *c, double time[3][MAX_ROUNDS], const char *complaint) {
    double best[3] = {0}, ratio[MAX_ROUNDS] = {0};
    char text[3][32], bar[32] = "", spread[48] = "-";
    for (int side = 0; side < 3; side++)
        for (int i = 0; i < b->rounds; i++)
            best[side] = i == 0 || time[side][i] < best[side] ? time[side][i] : best[side];
    for (int side = 0; side < 3; side++)
        time_text(best[side], text[side], sizeof text[side]);
    if (best[1] > 0) {
        for (int i = 0; i < b->rounds; i++)
            ratio[i] = time[0][i] / time[1][i];
        qsort(ratio, (size_t)b->rounds, sizeof *ratio, by_size);
        snprintf(spread, sizeof spread, "%5.2f (%.2f-%.2f)", best[0] / best[1], ratio[b->rounds / 4],
                 ratio[b->rounds - 1 - b->rounds / 4]);
    }
    if (c->kind == 'r')
        snprintf(bar, sizeof bar, "ratio <= %.2f", c->wanted);
    else if (c->kind == 's')
        snprintf(bar, sizeof bar, "ratio <= 1/%.0f", c->wanted);
    else if (c->kind == 'b')
        snprintf(bar, sizeof bar, ">= %.0f %%", 100 * c->wanted);
    printf("%-22s %d %11s %11s %-18s", c->title, b->threads, text[0], text[1], spread);
    if (best[2] > 0) {
        double rate = c->amount / best[2] * 1e-9;
        printf(" %11s  %6.1f %s, %-12s %4.0f %%", text[2], rate, c->pattern == FLOPS ? "GFLOP/s" : "GB/s",
               pattern_names[c->pattern], 100 * best[2] / best[0]);
        if (best[1] > 0)
            printf(" %4.0f %%", 100 * best[2] / best[1]);
    } else
        printf(" %11s", "-");
    bool disturbed = best[2] > 1.005 * best[0];
    printf("  %s %s%s%s%s\n", bar, verdict(c, best[0], best[1], best[2]),
           disturbed ? " (over 100 % cannot be: the bound was disturbed, or is a slower loop)" : "",
           *complaint ? "  PyTorch: " : "", complaint);
    fflush(stdout);
}

static bool run_case(bench *b, const bench_case *c) {
    static double time[3][MAX_ROUNDS];
    char question[200], answer[256] = "no peer";
    work w = {.bench = b, .name = c->name, .n_size = c->n_size};
    memcpy(w.size, c->size, sizeof w.size);
    tl_error error = {0};
    tl_ctx_options options = {.threads = b->threads, .kernels = tl_kernels_for_cpu(NULL, &error)};
    b->ctx = tl_ctx_new(&options, &error);
    if (!b->ctx || !work_make(&w)) {
        fprintf(stderr, "bench_torch: %s: %s\n", c->title, b->ctx ? tl_ctx_error(b->ctx)->message : error.message);
        return false;
    }
    int used = snprintf(question, sizeof question, "setup %s %d", c->name, b->threads);
    for (int i = 0; i < c->n_size; i++)
        used += snprintf(question + used, sizeof question - (size_t)used, " %lld", (long long)c->size[i]);
    bool there = peer_ask(&b->peer, question, answer, sizeof answer) && !strcmp(answer, "ok");
    bool step = w.trainer != NULL, one = !strcmp(c->name, "add_one");
    void (*run)(void *) = step ? run_step : one ? run_add_one : run_op;
    for (int i = 0; i < 3; i++)
        run(&w);
    for (int i = 0; i < b->rounds; i++) {
        char seconds[256];
        time[0][i] = time[1][i] = time[2][i] = 0;
        /* as many samples of either side as of the bound: a least one of more samples would be less */
        for (int way = 0; way < ways_of(c->pattern); way++) {
            keep_least(&time[0][i], sample(run, &w, b->threads) / (one ? 1000 : 1));
            bool answered = there && peer_ask(&b->peer, "run", seconds, sizeof seconds);
            keep_least(&time[1][i], answered ? strtod(seconds, NULL) : 0);
            keep_least(&time[2][i], bound_sample(b, c, way));
        }
    }
    bool fine = tl_ctx_status(b->ctx) == TL_OK;
    if (fine)
        print_row(b, c, time, there || !b->peer.to ? "" : answer);
    else
        fprintf(stderr, "bench_torch: %s: %s\n", c->title, tl_ctx_error(b->ctx)->message);
    tl_trainer_free(w.trainer);
    tl_ctx_free(b->ctx);
    return fine;
}

/* Huge pages: the loops that bound must not be slower than what they bound. */
static float *huge(size_t bytes) {
    void *memory = aligned_alloc(2 << 20, bytes);
    if (memory)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static bool streams_make(streams *s) {
    s->n = MIB64;
    size_t bytes = (size_t)s->n * sizeof(float);
    s->a = huge(bytes), s->b = huge(bytes), s->c = huge(bytes);
    if (!s->a || !s->b || !s->c)
        return false;
    memset(s->a, 0, bytes), memset(s->b, 0, bytes), memset(s->c, 0, bytes);
    tl_peak_loop loops[TL_PEAK_LOOPS];
    int n = tl_peak_loops(loops);
    for (int i = n - 1; i >= 0; i--)
        if (loops[i].dtype == TL_F32)
            s->peak = loops[i];
    return true;
}

int main(int argc, char **argv) {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, 2147483647);
    signal(SIGPIPE, SIG_IGN);
    bench b = {.rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 7};
    if (b.rounds < 1 || b.rounds > MAX_ROUNDS) {
        fprintf(stderr, "bench_torch: rounds is '%s'; 1 to %d would work\n", argv[1], MAX_ROUNDS);
        return 2;
    }
    char version[128] = "";
    const char *script = getenv("TORCH_PEER");
    if (!peer_open(&b.peer, script ? script : "bench/torch_peer.py", version, sizeof version)) {
        fprintf(stderr, "bench_torch: /usr/bin/python3 has no torch (Debian: python3-torch); ours alone\n");
        peer_close(&b.peer);
    }
    if (!streams_make(&b.streams)) {
        fprintf(stderr, "bench_torch: no memory for 3 x 64 MiB\n");
        return 1;
    }
    printf("%s; best of %d rounds taken in turns; 1 thread: CPU time, more: wall time\n",
           *version ? version : "no PyTorch", b.rounds);
    printf(
        "add on one element: tl_add and tl_release, ledger on; PyTorch: the faster of a TorchScript and a Python loop "
        "of torch.add in inference mode\n\n");
    printf("%-22s %s %11s %11s %-18s %11s  %-29s %6s %6s\n", "case", "t", "ours", "PyTorch", "ratio (quartiles)",
           "bound", "at, pattern", "ours", "PyTorch");
    bool fine = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 2 && strcmp(argv[2], cases[i].name))
            continue;
        for (b.threads = 1; b.threads <= cases[i].threads; b.threads++)
            fine = run_case(&b, &cases[i]) && fine;
    }
    peer_close(&b.peer);
    free(b.streams.a), free(b.streams.b), free(b.streams.c);
    return fine ? 0 : 1;
}
