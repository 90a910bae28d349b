/* hw/machine_measure.c: measures this machine: what it computes at most, how fast its memories are, and what share of the
 * peak products of different shapes reach through the kernels a run would use.
 *
 * Peaks are the best of several samples, in the threads' own time: whatever else runs can only take away from them.
 * Bandwidths and products are medians of the time that passes, as a run meets it.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "hw/machine_system.h"
#include "kernel/peak.h"
#include "kernel/table.h"
#include "tally/machine.h"

#define MOST_SAMPLES 7
#define SCRATCH_BYTES ((int64_t)2 << 20) /* as a context has by default */

typedef struct measurement {
    tl_machine *machine;
    int threads;
    bool quick;
    double deadline;     /* in the seconds of now() */
    double had, offered; /* seconds of processors: what the threads got while peaks were measured, and could have got */
    tl_error *error;
} measurement;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static double elapsed(double since) {
    double seconds = now() - since;
    return seconds > 1e-9 ? seconds : 1e-9; /* the clock's own step */
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *sample, int n) {
    qsort(sample, (size_t)n, sizeof *sample, compare);
    return n % 2 ? sample[n / 2] : (sample[n / 2 - 1] + sample[n / 2]) / 2;
}

static void *take(int64_t bytes, const char *what, tl_error *error) {
    const tl_allocator *from = tl_allocator_default();
    void *block = from->alloc(from->self, (size_t)bytes, 64, TL_ALLOC_HOST);
    if (!block)
        tl_fail(error, TL_ERR_MEMORY, "measuring this machine: no memory for %s (%lld bytes)", what, (long long)bytes);
    return block;
}

static void give_back(void *block, int64_t bytes) {
    const tl_allocator *from = tl_allocator_default();
    if (block)
        from->release(from->self, block, (size_t)bytes, TL_ALLOC_HOST);
}

/* ---- peaks ---------------------------------------------------------------------------------------------------- */

typedef struct peak_job {
    const tl_peak_loop *loop;
    int64_t rounds;
    double *result;  /* of each task: kept so that the work is */
    double *seconds; /* of each task, on its processor */
} peak_job;

/* The time this thread itself ran: what other programs take of the processor is not the processor's peak. */
static double thread_now(void) {
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void run_peak(void *argument, int64_t task, int thread) {
    (void)thread;
    const peak_job *job = argument;
    double start = thread_now();
    job->result[task] = job->loop->run(job->rounds);
    double seconds = thread_now() - start;
    job->seconds[task] = seconds > 1e-9 ? seconds : 1e-9;
}

static double peak_of(measurement *at, tl_pool *pool, const tl_peak_loop *loop, double *places) {
    const double wanted = at->quick ? 3e-3 : 8e-3;
    /* Threads that take turns on a processor do not add up: then the clock on the wall tells. */
    const bool own_processor = at->threads <= tl_machine_cores();
    peak_job job = {loop, 1 << 12, places, places + at->threads};
    double best = 0;
    /* Longer and longer runs wake the threads and raise the clock as well. */
    for (double seconds = 0; seconds < wanted && job.rounds < (int64_t)1 << 40; job.rounds *= 2) {
        double start = now();
        tl_pool_run(pool, at->threads, run_peak, &job);
        seconds = elapsed(start);
    }
    for (int i = 0; i < (at->quick ? 4 : MOST_SAMPLES); i++) {
        double work = (double)loop->flop_per_round * (double)job.rounds, start = now(), rate = 0;
        tl_pool_run(pool, at->threads, run_peak, &job);
        double whole = elapsed(start);
        for (int j = 0; j < at->threads && own_processor; j++) {
            rate += work / job.seconds[j];
            at->had += job.seconds[j];
            at->offered += whole;
        }
        if (!own_processor)
            rate = work * at->threads / whole;
        best = rate > best ? rate : best;
    }
    return best;
}

static double *peak_place(tl_machine *machine, tl_dtype dtype) {
    switch (dtype) {
    case TL_F32:
        return &machine->peak_fp32;
    case TL_BF16:
        return &machine->peak_bf16;
    case TL_F64:
        return &machine->peak_fp64;
    default:
        return NULL;
    }
}

static void raise_peak(tl_machine *machine, tl_dtype dtype, double rate) {
    double *peak = peak_place(machine, dtype);
    if (peak && rate > *peak)
        *peak = rate;
}

static tl_status measure_peaks(measurement *at, tl_pool *pool) {
    tl_peak_loop loops[TL_PEAK_LOOPS];
    int64_t bytes = 2 * at->threads * (int64_t)sizeof(double);
    double *places = take(bytes, "results", at->error);
    if (!places)
        return TL_ERR_MEMORY;
    for (int i = 0, n = tl_peak_loops(loops); i < n; i++)
        raise_peak(at->machine, loops[i].dtype, peak_of(at, pool, &loops[i], places));
    give_back(places, bytes);
    at->machine->disturbed = at->had < at->offered ? 1 - at->had / at->offered : 0;
    return TL_OK;
}

/* ---- bandwidth ------------------------------------------------------------------------------------------------ */

#define STREAM_FLOATS 64 /* what the triad takes at a time */

typedef struct stream_job {
    tl_peak_triad *triad;
    float *block;   /* each task's three arrays, one after another */
    int64_t count;  /* floats of one array of one task */
    int64_t passes; /* 0: fill it */
} stream_job;

static void run_stream(void *argument, int64_t task, int thread) {
    (void)thread;
    const stream_job *job = argument;
    float *a = job->block + task * 3 * job->count, *b = a + job->count, *c = b + job->count;
    for (int64_t i = 0; job->passes == 0 && i < 3 * job->count; i++)
        a[i] = 1;
    for (int64_t pass = 0; pass < job->passes; pass++)
        job->triad(a, b, c, job->count);
}

static double bandwidth_of(const measurement *at, tl_pool *pool, stream_job *job) {
    const double wanted = at->quick ? 2e-3 : 5e-3;
    const int samples = at->quick ? 5 : MOST_SAMPLES;
    double sample[MOST_SAMPLES];
    job->passes = 0;
    tl_pool_run(pool, at->threads, run_stream, job);
    for (job->passes = 1; job->passes < (int64_t)1 << 40; job->passes *= 2) {
        double start = now();
        tl_pool_run(pool, at->threads, run_stream, job);
        if (elapsed(start) > wanted)
            break;
    }
    for (int i = 0; i < samples; i++) {
        double start = now();
        tl_pool_run(pool, at->threads, run_stream, job);
        sample[i] =
            3.0 * (double)sizeof(float) * (double)job->count * (double)job->passes * at->threads / elapsed(start);
    }
    return median(sample, samples);
}

static void add_level(tl_machine *machine, int level, int64_t bytes) {
    int i = machine->n_levels++;
    if (level)
        memcpy(machine->level[i].name, (char[3]){'L', (char)('0' + level), '\0'}, 3);
    else
        memcpy(machine->level[i].name, "memory", 7);
    machine->level[i].bytes = bytes;
}

/* The working sets: half of a thread's share of each cache, more than the level before holds; then several times all
 * caches. What leaves no such room (a small share of the last cache, little memory) is left out. */
static void choose_levels(const measurement *at, int64_t available) {
    tl_caches caches;
    int64_t below = 0, last = 0;
    const int64_t chunk = 3 * STREAM_FLOATS * (int64_t)sizeof(float);
    tl_caches_read("", &caches);
    for (int i = 0; i < caches.n && i < 3; i++) {
        int sharing = caches.at[i].shared_by < at->threads ? caches.at[i].shared_by : at->threads;
        int64_t share = caches.at[i].bytes / sharing;
        int64_t each = share / 2 > below * 3 / 2 ? share / 2 : share * 3 / 4;
        each -= each % chunk;
        last = share * at->threads;
        if (each > 0 && each > below && each <= available / 8 / at->threads)
            add_level(at->machine, caches.at[i].level, each * at->threads);
        below = share > below ? share : below;
    }
    int64_t most = available / 4, wanted = last * (at->quick ? 2 : 4);
    if (wanted < (int64_t)64 << 20)
        wanted = (int64_t)64 << 20;
    int64_t each = (wanted < most ? wanted : most) / at->threads;
    each -= each % chunk;
    if (each > 0 && each * at->threads > last + last / 2)
        add_level(at->machine, 0, each * at->threads);
}

static tl_status measure_bandwidth(const measurement *at, tl_pool *pool) {
    tl_machine *machine = at->machine;
    int64_t most = 0;
    choose_levels(at, machine->available_bytes);
    for (int i = 0; i < machine->n_levels; i++)
        most = machine->level[i].bytes > most ? machine->level[i].bytes : most;
    if (most == 0)
        return TL_OK;
    float *block = take(most, "a stream", at->error);
    if (!block)
        return TL_ERR_MEMORY;
    for (int i = 0; i < machine->n_levels; i++) {
        stream_job job = {tl_peak_triad_best(), block,
                          machine->level[i].bytes / at->threads / 3 / (int64_t)sizeof(float), 0};
        machine->level[i].bytes_per_s = bandwidth_of(at, pool, &job);
    }
    give_back(block, most);
    return TL_OK;
}

/* ---- products ------------------------------------------------------------------------------------------------- */

typedef struct product_shape {
    int m, n, k, batch;
} product_shape;

/* Smallest first, so that a slow machine runs out of time where it matters least. Squares; one token at a time and few;
 * the heads of attention, which come in batches (scores: T·T·64, values: T·64·T); then the layers of small transformers
 * forward, backward to the input and to the weights, and a vocabulary. */
static const product_shape shapes[] = {
    {64, 64, 64, 1},      {1, 1024, 1024, 1},   {128, 128, 128, 1},    {1, 4096, 1024, 1},    {128, 128, 64, 8},
    {16, 1024, 1024, 1},  {256, 256, 256, 1},   {2048, 128, 128, 1},   {128, 512, 2048, 1},   {256, 256, 64, 8},
    {256, 64, 256, 8},    {512, 512, 512, 1},   {512, 768, 768, 1},    {1024, 1024, 64, 8},   {1024, 64, 1024, 8},
    {512, 3072, 768, 1},  {512, 768, 3072, 1},  {768, 3072, 512, 1},   {1024, 1024, 1024, 1}, {256, 16384, 256, 1},
    {16384, 256, 256, 1}, {256, 256, 16384, 1}, {2048, 1024, 1024, 1},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))
_Static_assert(2 * N_SHAPES <= TL_MACHINE_SHAPES, "two dtypes of every shape are kept");

typedef struct product_job {
    const tl_kernels *kernels;
    tl_engine *engine;
    char *a, *b, *c;
} product_job;

static double flop_of(const product_shape *s) { return 2.0 * s->m * s->n * s->k * s->batch; }

/* Once with each layout a linear layer has: weights as stored (x·Wᵀ), for the input's gradient (g·W) and for the weights'
 * (gᵀ·x). A training step has as many FLOPs of each. */
static void run_products(const product_job *job, tl_dtype dtype, const product_shape *s) {
    tl_product p = {
        .engine = job->engine, .dtype = dtype, .m = s->m, .n = s->n, .k = s->k, .a = job->a, .b = job->b, .c = job->c};
    if (s->batch > 1) {
        p.n_batch = 1;
        p.batch[0] = s->batch;
        p.a_batch[0] = (int64_t)s->m * s->k;
        p.b_batch[0] = (int64_t)s->k * s->n;
        p.c_batch[0] = (int64_t)s->m * s->n;
    }
    p.c_row = s->n;
    p.a_row = s->k, p.a_col = 1, p.b_row = 1, p.b_col = s->k;
    job->kernels->product(&p);
    p.b_row = s->n, p.b_col = 1;
    job->kernels->product(&p);
    p.a_row = 1, p.a_col = s->m;
    job->kernels->product(&p);
}

#define LONG_RUN 20e-3

/* FLOP/s of one shape within about `seconds`; two samples in any case, three where they are short. */
static double rate_of(const product_job *job, tl_dtype dtype, const product_shape *s, double seconds) {
    double sample[MOST_SAMPLES] = {0}, begin = now();
    int repeats = 1, n = 0;
    run_products(job, dtype, s); /* makes what is cached, wakes the threads */
    double once = elapsed(begin);
    if (once < LONG_RUN) {
        double start = now();
        run_products(job, dtype, s);
        once = elapsed(start);
    }
    if (once < 1e-3)
        repeats = (int)(1e-3 / once) + 1;
    while (n < MOST_SAMPLES && (n < (once < LONG_RUN ? 3 : 2) || now() - begin < seconds)) {
        double start = now();
        for (int i = 0; i < repeats; i++)
            run_products(job, dtype, s);
        sample[n++] = 3 * flop_of(s) * repeats / elapsed(start);
    }
    return median(sample, n);
}

static void measure_dtype(const measurement *at, const product_job *job, tl_dtype dtype, double deadline) {
    tl_machine *machine = at->machine;
    double guide = 0; /* FLOP/s */
    for (int i = 0; i < N_SHAPES; i++) {
        const product_shape *s = &shapes[i];
        double left = deadline - now();
        /* The first is measured whatever it takes: it tells what the others would. A quick look has no time for products
         * that take most of it. */
        double foreseen = guide > 0 ? 3 * 3 * flop_of(s) / guide : 0; /* warm-up, two samples; three layouts */
        if (i > 0 && foreseen > (at->quick ? left / 3 : left))
            continue;
        double rate = rate_of(job, dtype, s, left / (N_SHAPES - i));
        machine->shape[machine->n_shapes++] = (tl_machine_shape){dtype, s->m, s->n, s->k, rate};
        raise_peak(machine, dtype, rate);
        /* Large products are the steadiest guide to larger ones; those of one row are no guide to others. */
        if (s->m > 1)
            guide = rate;
    }
}

/* Small numbers of both signs, in every place of every operand: neither subnormal nor growing. */
static void fill(char *to, int64_t bytes, tl_dtype dtype) {
    int64_t size = tl_dtype_bytes(dtype), n = bytes / size;
    for (int64_t i = 0; i < n; i++) {
        float value = (float)(i % 13 - 6) * 0.0625F;
        if (dtype == TL_BF16)
            ((uint16_t *)(void *)to)[i] = tl_f32_to_bf16(value);
        else
            ((float *)(void *)to)[i] = value;
    }
}

static tl_status measure_products(const measurement *at, const tl_kernels *kernels) {
    int64_t bytes[3] = {0}, scratch_bytes = SCRATCH_BYTES * at->threads;
    product_job job = {.kernels = kernels};
    for (int i = 0; i < N_SHAPES; i++) {
        const int64_t m = shapes[i].m, n = shapes[i].n, k = shapes[i].k, each = 4 * shapes[i].batch;
        const int64_t need[3] = {m * k * each, k * n * each, m * n * each};
        for (int j = 0; j < 3; j++)
            bytes[j] = need[j] > bytes[j] ? need[j] : bytes[j];
    }
    void *scratch = take(scratch_bytes, "the threads' scratch", at->error);
    job.a = scratch ? take(bytes[0], "an operand", at->error) : NULL;
    job.b = job.a ? take(bytes[1], "an operand", at->error) : NULL;
    job.c = job.b ? take(bytes[2], "a product", at->error) : NULL;
    tl_status status =
        job.c ? kernels->engine_open(NULL, at->threads, scratch, SCRATCH_BYTES, &job.engine, at->error) : TL_ERR_MEMORY;
    if (status == TL_OK) {
        const tl_dtype dtypes[] = {TL_F32, TL_BF16};
        for (int i = 0; i < 2; i++) {
            fill(job.a, bytes[0], dtypes[i]);
            fill(job.b, bytes[1], dtypes[i]);
            memset(job.c, 0, (size_t)bytes[2]);
            /* fp32 takes the longer */
            measure_dtype(at, &job, dtypes[i], now() + (at->deadline - now()) * (i == 0 ? 0.6 : 1));
        }
        kernels->engine_close(job.engine);
    }
    give_back(job.c, bytes[2]);
    give_back(job.b, bytes[1]);
    give_back(job.a, bytes[0]);
    give_back(scratch, scratch_bytes);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------------------------ */

tl_status tl_machine_measure(int threads, bool quick, tl_machine *machine, tl_error *error) {
    tl_machine found = {.threads = threads};
    measurement at = {
        .machine = &found, .threads = threads, .quick = quick, .deadline = now() + (quick ? 1.2 : 5.2), .error = error};
    tl_pool *pool = NULL;
    if (threads < 1 || threads > TL_POOL_MAX_THREADS)
        return tl_fail(error, TL_ERR_ARGUMENT, "measuring this machine with %d threads: needs 1 to %d", threads,
                       TL_POOL_MAX_THREADS);
    tl_error unknown = {TL_OK, ""};
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, &unknown);
    if (!kernels)
        return tl_fail(error, unknown.status, "%s", unknown.message);
    tl_cpu_name("", found.cpu, sizeof found.cpu);
    size_t length = strlen(kernels->name);
    memcpy(found.kernels, kernels->name, length < sizeof found.kernels ? length : sizeof found.kernels - 1);
    tl_status status = tl_machine_memory(&found.memory_bytes, &found.available_bytes, error);
    if (status == TL_OK)
        status = tl_pool_open(NULL, threads, &pool, error);
    if (status == TL_OK)
        status = measure_peaks(&at, pool);
    if (status == TL_OK)
        status = measure_bandwidth(&at, pool);
    tl_pool_close(pool); /* before the products, whose engine has threads of its own */
    if (status == TL_OK)
        status = measure_products(&at, kernels);
    time_t seconds = time(NULL);
    found.measured_at = seconds > 0 ? (int64_t)seconds : 0;
    if (status == TL_OK)
        *machine = found;
    return status;
}
