/* How near each hot kernel comes to what bounds it on this machine.
 *
 *   bench_kernel [threads] [isa]
 *
 * What bounds is measured at its best, with the same threads: bandwidth is that of the fastest of several plain loops (a copy by
 * memcpy, by ordinary and by non-temporal stores; for what hardly writes, a loop that only reads) over a working set of about
 * the same size, and peak FLOP/s that of the fastest loop of multiply-adds on registers (kernel/peak.h: every instruction set
 * of the processor, whatever the table) of the product's own dtype. Both are measured anew beside each kernel, best of all
 * samples; kernels are given by their medians. So no share can be above 100 %: where one is, the bound was disturbed, and the
 * line says so. "of bound" is the bound's time over the kernel's. Kernels with many operations per element (exp, GELU, random
 * numbers) stay below 100 % for that reason. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernel/engine.h"
#include "kernel/peak.h"

#define REPEATS 9
#define SCRATCH (2 << 20)

typedef struct bench {
    const tl_kernels *table;
    tl_engine *engine;
    int threads;
    double peak[TL_DTYPE_COUNT]; /* the best seen of a dtype's loops so far, FLOP/s; 0: there is no loop */
} bench;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times of one run, sorted; each sample is at least a millisecond of runs. */
static void measure(void (*run)(void *), void *argument, double sample[REPEATS]) {
    double start = seconds();
    run(argument);
    double once = seconds() - start;
    int inner = once > 1e-3 ? 1 : (int)(1e-3 / (once + 1e-9)) + 1;
    for (int i = 0; i < REPEATS; i++) {
        start = seconds();
        for (int j = 0; j < inner; j++)
            run(argument);
        sample[i] = (seconds() - start) / inner;
    }
    qsort(sample, REPEATS, sizeof *sample, by_size);
}
static double median(void (*run)(void *), void *argument) {
    double sample[REPEATS];
    measure(run, argument, sample);
    return sample[REPEATS / 2];
}
static double best(void (*run)(void *), void *argument) {
    double sample[REPEATS];
    measure(run, argument, sample);
    return sample[0];
}

static const char *impossible(double share) { return share > 1.005 ? "  (cannot be: the bound was disturbed)" : ""; }

static void *need(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes + 64) != 0) {
        fprintf(stderr, "bench_kernel: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0, bytes + 64);
    return p;
}

/* ---- the two rates ---- */

typedef enum copy_way { BY_MEMCPY, BY_STORES, PAST_CACHES, READING, WAYS } copy_way;

typedef struct copying {
    const bench *b;
    char *from, *to;
    int64_t bytes, part;
    copy_way way;
    float sink[256];
} copying;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float stream_512(char *to, const char *from, int64_t n, copy_way way) {
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t i = 0; i + 256 <= n; i += 256)
        for (int j = 0; j < 4; j++) {
            __m512 x = _mm512_loadu_ps(from + i + 64 * j);
            if (way == READING)
                sum[j] = _mm512_add_ps(sum[j], x);
            else if (way == PAST_CACHES)
                _mm512_stream_ps((float *)(void *)(to + i + 64 * j), x);
            else
                _mm512_storeu_ps(to + i + 64 * j, x);
        }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
}
__attribute__((target("avx2"))) static float stream_256(char *to, const char *from, int64_t n, copy_way way) {
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t i = 0; i + 128 <= n; i += 128)
        for (int j = 0; j < 4; j++) {
            __m256 x = _mm256_loadu_ps((const float *)(const void *)(from + i + 32 * j));
            if (way == READING)
                sum[j] = _mm256_add_ps(sum[j], x);
            else if (way == PAST_CACHES)
                _mm256_stream_ps((float *)(void *)(to + i + 32 * j), x);
            else
                _mm256_storeu_ps((float *)(void *)(to + i + 32 * j), x);
        }
    float out[8];
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
    return out[0] + out[7];
}
static bool has_512(void) { return __builtin_cpu_supports("avx512f"); }
static bool has_ways(void) { return __builtin_cpu_supports("avx2"); }
#else
static bool has_ways(void) { return false; }
#endif

static void copy_part(void *argument, int64_t task, int thread) {
    copying *c = argument;
    int64_t at = task * c->part, n = c->bytes - at < c->part ? c->bytes - at : c->part;
    (void)thread;
#if defined(__x86_64__)
    if (c->way != BY_MEMCPY) {
        c->sink[thread % 256] += (has_512() ? stream_512 : stream_256)(c->to + at, c->from + at, n, c->way);
        return;
    }
#endif
    memcpy(c->to + at, c->from + at, (size_t)n);
}
static void copy_all(void *argument) {
    copying *c = argument;
    tl_engine_run(c->b->engine, (c->bytes + c->part - 1) / c->part, copy_part, c);
}

/* bytes per second over a working set of `bytes`, reads and writes counted */
static double bandwidth(const bench *b, int64_t bytes, bool reads) {
    bool only = reads && has_ways();
    copying c = {.b = b, .bytes = (only ? bytes : bytes / 2) / 256 * 256, .part = 64 << 10};
    c.from = need((size_t)c.bytes), c.to = only ? c.from : need((size_t)c.bytes);
    double t = 0;
    for (copy_way w = only ? READING : BY_MEMCPY; w < (only ? WAYS : has_ways() ? READING : BY_STORES); w++) {
        c.way = w;
        double spent = best(copy_all, &c);
        t = t == 0 || spent < t ? spent : t;
    }
    double rate = (double)c.bytes * (only ? 1 : 2) / t;
    if (!only)
        free(c.to);
    free(c.from);
    return rate;
}

#define ROUNDS 100000

typedef struct peaking {
    const bench *b;
    tl_peak_loop loop;
    double sink[256];
} peaking;

static void peak_task(void *argument, int64_t task, int thread) {
    peaking *p = argument;
    (void)task;
    p->sink[thread % 256] += p->loop.run(ROUNDS);
}
static void peak_all(void *argument) {
    peaking *p = argument;
    tl_engine_run(p->b->engine, p->b->threads, peak_task, p);
}

/* Tries the loops of a dtype again: what was seen at its best stays. */
static void peak_again(bench *b, tl_dtype dtype) {
    tl_peak_loop loops[TL_PEAK_LOOPS];
    int n = tl_peak_loops(loops);
    for (int i = 0; i < n; i++) {
        peaking p = {.b = b, .loop = loops[i]};
        if (loops[i].dtype != dtype)
            continue;
        double rate = (double)b->threads * ROUNDS * loops[i].flop_per_round / best(peak_all, &p);
        b->peak[dtype] = rate > b->peak[dtype] ? rate : b->peak[dtype];
    }
}

/* ---- kernels ---- */

typedef struct job {
    tl_kernel *kernel;
    tl_kcall call;
} job;

static void run_job(void *argument) {
    job *j = argument;
    j->kernel(&j->call);
}

static tl_array matrix(tl_dtype dtype, int64_t rows, int64_t columns) {
    tl_array a = {.dtype = dtype, .ndim = 2, .size = {rows, columns}, .stride = {columns, 1}};
    a.data = need((size_t)(rows * columns * tl_dtype_bytes(dtype)));
    float *value = (void *)a.data;
    for (int64_t i = 0; dtype == TL_F32 && i < rows * columns; i++)
        value[i] = (float)(i % 101) * 0.05f - 2.5f;
    return a;
}

static tl_array vector(tl_dtype dtype, int64_t n) {
    tl_array a = matrix(dtype, 1, n);
    a.ndim = 1;
    a.size[0] = n;
    a.stride[0] = 1;
    return a;
}

static void report(const bench *b, const char *name, job *j) {
    int64_t bytes = 0, written = 0;
    for (int i = 0; i < j->call.n_in + j->call.n_out; i++) {
        const tl_array *a = i < j->call.n_in ? &j->call.in[i] : &j->call.out[i - j->call.n_in];
        int64_t n = 1;
        for (int d = 0; d < a->ndim; d++)
            n *= a->stride[d] == 0 ? 1 : a->size[d];
        bytes += n * tl_dtype_bytes(a->dtype);
        written += i < j->call.n_in ? 0 : n * tl_dtype_bytes(a->dtype);
    }
    bool reads = written < bytes / 16;
    double t = median(run_job, j), rate = bandwidth(b, bytes, reads), share = (double)bytes / rate / t;
    printf("%-22s %9.1f us  %7.2f GB/s  bound %9.1f us (%.1f MB at %5.1f GB/s%s)  %5.0f %% of bound%s\n", name, t * 1e6,
           (double)bytes / t * 1e-9, (double)bytes / rate * 1e6, (double)bytes * 1e-6, rate * 1e-9,
           reads ? ", reading" : "", 100 * share, impossible(share));
    for (int i = 0; i < j->call.n_in; i++)
        free(j->call.in[i].data);
    for (int i = 0; i < j->call.n_out; i++)
        free(j->call.out[i].data);
}

static void elementwise(const bench *b, int64_t rows, int64_t width) {
    const tl_kernels *k = b->table;
    struct {
        const char *name;
        tl_kernel *kernel;
        int n_in;
    } all[] = {{"copy", k->copy, 1},
               {"add", k->add, 2},
               {"gelu_erf", k->gelu_erf, 1},
               {"gelu_tanh", k->gelu_tanh, 1},
               {"silu", k->silu, 1},
               {"exp", k->exp, 1},
               {"gelu_erf_backward", k->gelu_erf_backward, 2},
               {"relu", k->relu, 1}};
    printf("\nelementwise, %lld x %lld f32\n", (long long)rows, (long long)width);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        job j = {all[i].kernel, {.engine = b->engine, .n_in = all[i].n_in, .n_out = 1}};
        for (int a = 0; a < all[i].n_in; a++)
            j.call.in[a] = matrix(TL_F32, rows, width);
        j.call.out[0] = matrix(TL_F32, rows, width);
        report(b, all[i].name, &j);
    }
    job bias = {k->add, {.engine = b->engine, .n_in = 2, .n_out = 1}};
    bias.call.in[0] = matrix(TL_F32, rows, width);
    bias.call.in[1] = vector(TL_F32, width);
    bias.call.in[1].ndim = 2, bias.call.in[1].size[0] = rows, bias.call.in[1].size[1] = width;
    bias.call.in[1].stride[0] = 0, bias.call.in[1].stride[1] = 1;
    bias.call.out[0] = matrix(TL_F32, rows, width);
    report(b, "add a row", &bias);
    job half = {k->copy, {.engine = b->engine, .n_in = 1, .n_out = 1}};
    half.call.in[0] = matrix(TL_F32, rows, width);
    half.call.out[0] = matrix(TL_BF16, rows, width);
    report(b, "copy f32 to bf16", &half);
    job sum = {k->sum, {.engine = b->engine, .n_in = 1, .n_out = 1}};
    sum.call.in[0] = matrix(TL_F32, rows, width);
    sum.call.out[0] = matrix(TL_F32, 1, width);
    report(b, "sum of rows", &sum);
    tl_random_attr random = {.seed = 1, .stream = 2, .a = 0.1};
    job drop = {k->dropout, {.engine = b->engine, .n_in = 1, .n_out = 2, .attr = &random}};
    drop.call.in[0] = matrix(TL_F32, rows, width);
    drop.call.out[0] = matrix(TL_F32, rows, width);
    drop.call.out[1] = matrix(TL_U8, rows, width);
    report(b, "dropout", &drop);
}

static void by_rows(const bench *b, int64_t rows, int64_t width) {
    const tl_kernels *k = b->table;
    tl_softmax_attr softmax = {1, false};
    tl_norm_attr norm = {.epsilon = 1e-5};
    tl_loss_attr loss = {-100};
    printf("\nrows, %lld x %lld f32\n", (long long)rows, (long long)width);
    job j = {k->softmax, {.engine = b->engine, .n_in = 1, .n_out = 1, .attr = &softmax}};
    j.call.in[0] = matrix(TL_F32, rows, width);
    j.call.out[0] = matrix(TL_F32, rows, width);
    report(b, "softmax", &j);
    j = (job){k->layer_norm, {.engine = b->engine, .n_in = 3, .n_out = 3, .attr = &norm}};
    j.call.in[0] = matrix(TL_F32, rows, width);
    j.call.in[1] = vector(TL_F32, width), j.call.in[2] = vector(TL_F32, width);
    j.call.out[0] = matrix(TL_F32, rows, width);
    j.call.out[1] = vector(TL_F32, rows), j.call.out[2] = vector(TL_F32, rows);
    report(b, "layer_norm", &j);
    j = (job){k->layer_norm_backward, {.engine = b->engine, .n_in = 5, .n_out = 3, .attr = &norm}};
    j.call.in[0] = matrix(TL_F32, rows, width), j.call.in[1] = vector(TL_F32, width);
    j.call.in[2] = vector(TL_F32, rows), j.call.in[3] = vector(TL_F32, rows),
    j.call.in[4] = matrix(TL_F32, rows, width);
    j.call.out[0] = matrix(TL_F32, rows, width);
    j.call.out[1] = vector(TL_F32, width), j.call.out[2] = vector(TL_F32, width);
    void *work = need((size_t)(2 * (rows / TL_ROW_BLOCK + 1) * width * 4));
    j.call.work = work;
    report(b, "layer_norm_backward", &j);
    free(work);
    j = (job){k->cross_entropy, {.engine = b->engine, .n_in = 2, .n_out = 3, .attr = &loss}};
    j.call.in[0] = matrix(TL_F32, rows, width), j.call.in[1] = vector(TL_I64, rows);
    j.call.out[0] = vector(TL_F32, 1), j.call.out[1] = vector(TL_F32, rows), j.call.out[2] = vector(TL_F32, 1);
    report(b, "cross_entropy", &j);
}

static void optimizer(const bench *b, int64_t n) {
    tl_adamw_attr attr = {1e-3, 0.9, 0.95, 1e-8, 0.1, 10, false};
    printf("\noptimizer, %lld parameters\n", (long long)n);
    job j = {b->table->adamw, {.engine = b->engine, .n_in = 1, .n_out = 3, .attr = &attr}};
    j.call.in[0] = vector(TL_F32, n);
    for (int i = 0; i < 3; i++) {
        j.call.out[i] = vector(TL_F32, n);
        memset(j.call.out[i].data, 0, (size_t)n * 4);
    }
    report(b, "adamw", &j);
}

/* ---- products ---- */

typedef struct producing {
    const tl_kernels *table;
    tl_product product;
} producing;

static void run_product(void *argument) {
    producing *p = argument;
    p->table->product(&p->product);
}

static void product(bench *b, const char *name, int64_t m, int64_t n, int64_t k, bool turn_a, bool turn_b,
                    int64_t batch, tl_dtype dtype) {
    tl_array a_memory = matrix(dtype, batch * m, k), b_memory = matrix(dtype, batch * k, n);
    tl_array c_memory = matrix(dtype, batch * m, n);
    producing p = {b->table,
                   {.engine = b->engine,
                    .dtype = dtype,
                    .m = m,
                    .n = n,
                    .k = k,
                    .a = a_memory.data,
                    .b = b_memory.data,
                    .c = c_memory.data,
                    .a_row = turn_a ? 1 : k,
                    .a_col = turn_a ? m : 1,
                    .b_row = turn_b ? 1 : n,
                    .b_col = turn_b ? k : 1,
                    .c_row = n,
                    .n_batch = 1,
                    .batch = {batch},
                    .a_batch = {m * k},
                    .b_batch = {k * n},
                    .c_batch = {m * n}}};
    peak_again(b, dtype);
    double flops = 2.0 * (double)m * (double)n * (double)k * (double)batch, t = median(run_product, &p);
    peak_again(b, dtype);
    double peak = b->peak[dtype], share = peak > 0 ? flops / t / peak : 0;
    printf("%-14s %-4s %5lld x %5lld x %5lld", name, tl_dtype_name(dtype), (long long)m, (long long)n, (long long)k);
    printf(batch > 1 ? " x %4lld" : "       ", (long long)batch);
    printf(" %10.1f us  %7.1f GFLOP/s", t * 1e6, flops / t * 1e-9);
    if (peak > 0)
        printf("  %5.0f %% of %s peak, %.1f GFLOP/s%s", 100 * share, tl_dtype_name(dtype), peak * 1e-9,
               impossible(share));
    printf("\n");
    free(a_memory.data);
    free(b_memory.data);
    free(c_memory.data);
}

static void products(bench *b, int64_t rows, int64_t width, tl_dtype dtype) {
    product(b, "qkv", rows, 3 * width, width, false, true, 1, dtype);
    product(b, "proj", rows, width, width, false, true, 1, dtype);
    product(b, "fc", rows, 4 * width, width, false, true, 1, dtype);
    product(b, "fc2", rows, width, 4 * width, false, true, 1, dtype);
    product(b, "fc dX", rows, width, 4 * width, false, false, 1, dtype);
    product(b, "fc2 dX", rows, 4 * width, width, false, false, 1, dtype);
    product(b, "fc dW", 4 * width, width, rows, true, false, 1, dtype);
    product(b, "proj dW", width, width, rows, true, false, 1, dtype);
}

int main(int argc, char **argv) {
    bench b = {.threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 2};
    tl_error error = {0};
    b.table = tl_kernels_for_cpu(argc > 2 ? argv[2] : NULL, &error);
    if (!b.table || b.threads < 1 || b.threads > 256) {
        fprintf(stderr, "bench_kernel: %s\n", b.table ? "threads: 1 to 256" : error.message);
        return 2;
    }
    void *scratch = need((size_t)b.threads * SCRATCH);
    if (b.table->engine_open(NULL, b.threads, scratch, SCRATCH, &b.engine, &error) != TL_OK) {
        fprintf(stderr, "bench_kernel: %s\n", error.message);
        return 1;
    }
    peak_again(&b, TL_F32);
    peak_again(&b, TL_BF16);
    printf("table %s, %d threads; kernels: medians of %d, bounds: the best seen; peak %.1f GFLOP/s f32", b.table->name,
           b.threads, REPEATS, b.peak[TL_F32] * 1e-9);
    if (b.peak[TL_BF16] > 0)
        printf(", %.1f GFLOP/s bf16", b.peak[TL_BF16] * 1e-9);
    printf("\n");
    elementwise(&b, 6000, 128);
    elementwise(&b, 1024, 3072);
    by_rows(&b, 24000, 12);
    by_rows(&b, 6000, 128);
    by_rows(&b, 1024, 8192);
    optimizer(&b, 800000);
    optimizer(&b, 8000000);
    printf("\nproducts of a small model: D = 128, 6000 rows\n");
    products(&b, 6000, 128, TL_F32);
    product(&b, "scores", 12, 12, 32, false, true, 2000, TL_F32);
    product(&b, "values", 12, 32, 12, false, false, 2000, TL_F32);
    printf("\nproducts of GPT-2: D = 768, 1024 rows\n");
    products(&b, 1024, 768, TL_F32);
    products(&b, 1024, 768, TL_BF16);
    product(&b, "scores", 1024, 1024, 64, false, true, 12, TL_F32);
    product(&b, "values", 1024, 64, 1024, false, false, 12, TL_F32);
    b.table->engine_close(b.engine);
    free(scratch);
    return 0;
}
