/* How near each hot kernel comes to what bounds it on this machine.
 *
 *   bench_kernel [threads] [isa]
 *
 * Two rates are measured first: copy bandwidth (memcpy, read + write bytes, with the same threads and a working set of
 * about the same size) and peak FLOP/s (multiply-adds on registers). A kernel that moves data is bound by bytes ÷ bandwidth, a
 * product by FLOPs ÷ peak; "of bound" is that time over the median of the measured ones. Kernels with many operations per
 * element (exp, GELU, random numbers) stay below 100 % for that reason. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernel/engine.h"

#define REPEATS 9
#define SCRATCH (2 << 20)

typedef struct bench {
    const tl_kernels *table;
    tl_engine *engine;
    int threads;
    double peak;
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

/* Median time of one run; each sample is at least a millisecond of runs. */
static double median(void (*run)(void *), void *argument) {
    double sample[REPEATS], start = seconds();
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
    return sample[REPEATS / 2];
}

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

typedef struct copying {
    const bench *b;
    char *from, *to;
    int64_t bytes, part;
} copying;

static void copy_part(void *argument, int64_t task, int thread) {
    (void)thread;
    copying *c = argument;
    int64_t at = task * c->part, n = c->bytes - at < c->part ? c->bytes - at : c->part;
    memcpy(c->to + at, c->from + at, (size_t)n);
}
static void copy_all(void *argument) {
    copying *c = argument;
    tl_engine_run(c->b->engine, (c->bytes + c->part - 1) / c->part, copy_part, c);
}

/* bytes per second, reads and writes counted, over a working set of `bytes` */
static double bandwidth(const bench *b, int64_t bytes) {
    copying c = {b, need((size_t)bytes / 2), need((size_t)bytes / 2), bytes / 2, 64 << 10};
    double t = median(copy_all, &c);
    free(c.from);
    free(c.to);
    return (double)bytes / t;
}

#define ROUNDS 200000
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float fma_512(void) {
    __m512 sum[10], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (int j = 0; j < 10; j++)
        sum[j] = _mm512_set1_ps((float)j);
    for (int i = 0; i < ROUNDS; i++) {
        sum[0] = _mm512_fmadd_ps(sum[0], a, b), sum[1] = _mm512_fmadd_ps(sum[1], a, b);
        sum[2] = _mm512_fmadd_ps(sum[2], a, b), sum[3] = _mm512_fmadd_ps(sum[3], a, b);
        sum[4] = _mm512_fmadd_ps(sum[4], a, b), sum[5] = _mm512_fmadd_ps(sum[5], a, b);
        sum[6] = _mm512_fmadd_ps(sum[6], a, b), sum[7] = _mm512_fmadd_ps(sum[7], a, b);
        sum[8] = _mm512_fmadd_ps(sum[8], a, b), sum[9] = _mm512_fmadd_ps(sum[9], a, b);
    }
    for (int j = 1; j < 10; j++)
        sum[0] = _mm512_add_ps(sum[0], sum[j]);
    return _mm512_reduce_add_ps(sum[0]);
}
__attribute__((target("avx2,fma"))) static float fma_256(void) {
    __m256 sum[10], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    for (int j = 0; j < 10; j++)
        sum[j] = _mm256_set1_ps((float)j);
    for (int i = 0; i < ROUNDS; i++) {
        sum[0] = _mm256_fmadd_ps(sum[0], a, b), sum[1] = _mm256_fmadd_ps(sum[1], a, b);
        sum[2] = _mm256_fmadd_ps(sum[2], a, b), sum[3] = _mm256_fmadd_ps(sum[3], a, b);
        sum[4] = _mm256_fmadd_ps(sum[4], a, b), sum[5] = _mm256_fmadd_ps(sum[5], a, b);
        sum[6] = _mm256_fmadd_ps(sum[6], a, b), sum[7] = _mm256_fmadd_ps(sum[7], a, b);
        sum[8] = _mm256_fmadd_ps(sum[8], a, b), sum[9] = _mm256_fmadd_ps(sum[9], a, b);
    }
    for (int j = 1; j < 10; j++)
        sum[0] = _mm256_add_ps(sum[0], sum[j]);
    float out[8];
    _mm256_storeu_ps(out, sum[0]);
    return out[0] + out[7];
}
#endif

typedef struct peaking {
    const bench *b;
    int lanes;
    float sink[64];
} peaking;

static void peak_task(void *argument, int64_t task, int thread) {
    peaking *p = argument;
    (void)task;
#if defined(__x86_64__)
    p->sink[thread % 64] = p->lanes == 16 ? fma_512() : fma_256();
#else
    p->sink[thread % 64] = 0;
#endif
}
static void peak_all(void *argument) {
    peaking *p = argument;
    tl_engine_run(p->b->engine, p->b->threads, peak_task, p);
}

/* 0 where there is no such loop for the table: then products show their rate alone */
static double peak_rate(const bench *b) {
    peaking p = {.b = b,
                 .lanes = strcmp(b->table->name, "avx512") == 0 ? 16
                          : strcmp(b->table->name, "avx2") == 0 ? 8
                                                                : 0};
    if (!p.lanes)
        return 0;
    return (double)b->threads * ROUNDS * 10 * 2 * p.lanes / median(peak_all, &p);
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
    int64_t bytes = 0;
    for (int i = 0; i < j->call.n_in + j->call.n_out; i++) {
        const tl_array *a = i < j->call.n_in ? &j->call.in[i] : &j->call.out[i - j->call.n_in];
        int64_t n = 1;
        for (int d = 0; d < a->ndim; d++)
            n *= a->stride[d] == 0 ? 1 : a->size[d];
        bytes += n * tl_dtype_bytes(a->dtype);
    }
    double t = median(run_job, j), rate = bandwidth(b, bytes);
    printf("%-22s %9.1f us  %7.2f GB/s  bound %9.1f us (%.1f MB at %5.1f GB/s)  %5.0f %% of bound\n", name, t * 1e6,
           (double)bytes / t * 1e-9, (double)bytes / rate * 1e6, (double)bytes * 1e-6, rate * 1e-9,
           100 * (double)bytes / rate / t);
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
    tl_norm_attr norm = {1e-5};
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

static void product(const bench *b, const char *name, int64_t m, int64_t n, int64_t k, bool turn_a, bool turn_b,
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
    double flops = 2.0 * (double)m * (double)n * (double)k * (double)batch, t = median(run_product, &p);
    printf("%-14s %-4s %5lld x %5lld x %5lld", name, tl_dtype_name(dtype), (long long)m, (long long)n, (long long)k);
    printf(batch > 1 ? " x %4lld" : "       ", (long long)batch);
    printf(" %10.1f us  %7.1f GFLOP/s", t * 1e6, flops / t * 1e-9);
    if (b->peak > 0)
        printf("  %5.0f %% of %s peak", 100 * flops / t / b->peak, "f32");
    printf("\n");
    free(a_memory.data);
    free(b_memory.data);
    free(c_memory.data);
}

static void products(const bench *b, int64_t rows, int64_t width, tl_dtype dtype) {
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
    b.peak = peak_rate(&b);
    printf("table %s, %d threads, peak %.1f GFLOP/s f32, medians of %d\n", b.table->name, b.threads, b.peak * 1e-9,
           REPEATS);
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
