/* Which windows are drawn from a stream of tokens, and the reader that draws them ahead: the same order with any number of
 * threads and after resuming, errors in their place, memory. Expected values are exact arithmetic: ids that tell where they
 * stand. Cases of ../shared/FAULTS.md are marked FAULTS. Meant to run under TSan too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tally/account.h"
#include "tally/cpu.h"
#include "token_files.h"

/* ---- samplers ---- */

static tl_sampler_options sampling(tl_sampler_kind kind, int64_t seq, uint64_t seed) {
    return (tl_sampler_options){.kind = kind, .seq = seq, .seed = seed, .separator = -1};
}

/* FAULTS: files of 0, 1, T and T + 1 tokens. */
static void small_files_do_not_wrap(void **state) {
    enum { T = 8 };
    static const struct {
        int64_t n;
        const char *words; /* NULL: it works */
    } cases[] = {{0, "no tokens; a window of 8 needs 9"},
                 {1, "1 token; a window of 8 needs 9"},
                 {2, "windows of 1 or fewer would work"},
                 {T, "8 tokens; a window of 8 needs 9, the last of them as a target: windows of 7 or fewer would work"},
                 {T + 1, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int kind = TL_SAMPLER_RANDOM; kind <= TL_SAMPLER_IN_ORDER; kind++) {
            tl_sampler s;
            tl_error error = {TL_OK, ""};
            tl_tokens *t = opened(counting(0, "small.bin", cases[i].n), 4);
            tl_sampler_options o = sampling((tl_sampler_kind)kind, T, 1);
            tl_status status = tl_sampler_init(&s, t, &o, &error);
            if (cases[i].words) {
                assert_int_equal(status, TL_ERR_ARGUMENT);
                says(&error, cases[i].words);
                says(&error, "small.bin");
            } else {
                int32_t input[T], target[T];
                assert_int_equal(status, TL_OK);
                assert_int_equal(s.windows, 1);
                assert_int_equal(tl_sampler_window(&s, UINT64_MAX, input, target, &error), TL_OK);
                for (int k = 0; k < T; k++)
                    assert_true(input[k] == k && target[k] == k + 1);
            }
            static const int64_t bad[] = {0, -1, INT64_MAX};
            for (size_t b = 0; b < 3; b++) {
                o.seq = bad[b];
                error = (tl_error){TL_OK, ""};
                assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_ERR_ARGUMENT);
            }
            tl_tokens_close(t);
        }
}

/* CS336 assignment 1, get_batch: x[i … i+T), y one later, i uniform over all n − T starts; each is drawn equally often. */
static void random_windows_are_uniform(void **state) {
    enum { N = 30, T = 7, DRAWS = 23000 };
    int count[N] = {0};
    tl_error error = {TL_OK, ""};
    tl_sampler s, other;
    int differ = 0;
    (void)state;
    tl_tokens *t = opened(counting(0, "r.bin", N), 4);
    tl_sampler_options o = sampling(TL_SAMPLER_RANDOM, T, 336), p = sampling(TL_SAMPLER_RANDOM, T, 337);
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_init(&other, t, &p, &error), TL_OK);
    assert_int_equal(s.windows, N - T);
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t x[T], y[T];
        assert_int_equal(tl_sampler_window(&s, i, x, y, &error), TL_OK);
        assert_true(x[0] == tl_sampler_start(&s, i) && x[0] >= 0 && x[0] < N - T);
        for (int k = 0; k < T; k++)
            assert_true(x[k] == x[0] + k && y[k] == x[k] + 1);
        count[x[0]]++;
        differ += x[0] != tl_sampler_start(&other, i);
    }
    /* Chi-square of 22 degrees of freedom: beyond 60 with probability 2e-5. */
    double chi = 0;
    for (int i = 0; i < N - T; i++)
        chi += (count[i] - 1000.0) * (count[i] - 1000.0) / 1000.0;
    assert_true(chi < 60);
    assert_true(differ > DRAWS / 2);
    tl_tokens_close(t);
}

/* Each window once an epoch, in any epoch, and each epoch in an order of its own. */
static void epochs_have_each_window_once(void **state) {
    static const int64_t sizes[] = {2, 3, 4, 5, 17, 64, 255, 256, 257, 1000, 4097};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int64_t T = 3, W = sizes[i];
        unsigned char *seen = malloc((size_t)W);
        int64_t moved = 0, again = 0;
        tl_error error = {TL_OK, ""};
        tl_sampler s;
        assert_non_null(seen);
        tl_tokens *t = opened(counting(0, "e.bin", W * T + 1 + (int64_t)(i % 3)), 4);
        tl_sampler_options o = sampling(TL_SAMPLER_EPOCHS, T, 7);
        assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
        assert_int_equal(s.windows, W);
        static const uint64_t epochs[] = {0, 1, 2, 3, 1000000007};
        for (size_t e = 0; e < 5; e++) {
            memset(seen, 0, (size_t)W);
            for (int64_t k = 0; k < W; k++) {
                const int64_t start = tl_sampler_start(&s, epochs[e] * (uint64_t)W + (uint64_t)k);
                assert_true(start >= 0 && start % T == 0 && start / T < W);
                assert_int_equal(seen[start / T]++, 0);
                moved += start / T != k;
                again += start == tl_sampler_start(&s, (uint64_t)k);
            }
        }
        if (W >= 64) { /* one window of a random order stays where it is on average, whatever W */
            assert_true(moved > 5 * W - 40);
            assert_true(again < W + 40);
        }
        tl_tokens_close(t);
        free(seen);
    }
}

/* Five windows have 120 orders; over 12,000 epochs each about 100 times. */
static void small_epochs_have_all_orders(void **state) {
    enum { W = 5, EPOCHS = 12000 };
    static int count[3125];
    int orders = 0;
    double chi = 0;
    tl_error error = {TL_OK, ""};
    tl_sampler s;
    (void)state;
    tl_tokens *t = opened(counting(0, "o.bin", W + 1), 4);
    tl_sampler_options o = sampling(TL_SAMPLER_EPOCHS, 1, 11);
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    for (uint64_t e = 0; e < EPOCHS; e++) {
        int64_t order = 0;
        for (uint64_t k = 0; k < W; k++)
            order = order * W + tl_sampler_start(&s, e * W + k);
        count[order]++;
    }
    for (int i = 0; i < 3125; i++) {
        orders += count[i] > 0;
        chi += count[i] ? (count[i] - 100.0) * (count[i] - 100.0) / 100.0 : 0;
    }
    assert_int_equal(orders, 120);
    assert_true(chi < 119 + 5 * 15.4); /* 119 degrees of freedom, standard deviation √238 */
    tl_tokens_close(t);
}

static void ignores_targets_across_documents(void **state) {
    /* Two documents that end with 99: 5 6 99 | 7 8 99 */
    static const uint16_t ids[] = {5, 6, 99, 7, 8, 99, 1};
    static const int64_t starts[] = {0, 3, 6}, wrong[] = {3, 0}, outside[] = {8};
    static const int32_t end[] = {6, 99, TL_IGNORE_INDEX, 8, 99, TL_IGNORE_INDEX},
                         begin[] = {6, TL_IGNORE_INDEX, 7, 8, TL_IGNORE_INDEX, 1}, all[] = {6, 99, 7, 8, 99, 1};
    int32_t input[6], target[6];
    tl_error error = {TL_OK, ""};
    tl_sampler s;
    (void)state;
    tl_tokens *t = opened(put(0, "d.bin", ids, sizeof ids), 2);
    tl_sampler_options o = sampling(TL_SAMPLER_IN_ORDER, 6, 0);
    o.separator = 99;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 0, input, target, &error), TL_OK);
    assert_memory_equal(target, all, sizeof all); /* known, and not asked for */
    o.ignore_boundaries = true;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 0, input, target, &error), TL_OK);
    assert_memory_equal(target, end, sizeof end);
    o.separator_begins = true;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 0, input, target, &error), TL_OK);
    assert_memory_equal(target, begin, sizeof begin);
    static const int32_t within[] = {0, 1, 2, 0, 1, 2}, from_mark[] = {0, 1, 0, 1, 2, 0};
    int32_t position[6];
    tl_sampler_positions(&s, 0, input, position);
    assert_memory_equal(position, from_mark, sizeof from_mark); /* a mark begins its document */
    o.separator_begins = false;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    tl_sampler_positions(&s, 0, input, position);
    assert_memory_equal(position, within, sizeof within); /* or ends it */
    o.separator = -1;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_ERR_ARGUMENT);
    o.documents = starts;
    o.document_count = 3;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 0, input, target, &error), TL_OK);
    assert_memory_equal(target, end, sizeof end);
    tl_sampler_positions(&s, 0, input, position);
    assert_memory_equal(position, within, sizeof within);
    o.seq = 2; /* windows 0 1 2: the second begins with a boundary inside */
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_OK);
    assert_int_equal(tl_sampler_window(&s, 1, input, target, &error), TL_OK);
    assert_true(input[0] == 99 && target[0] == TL_IGNORE_INDEX && target[1] == 8);
    tl_sampler_positions(&s, 1, input, position); /* 99 | 7: what lies before the window counts for nothing */
    assert_true(position[0] == 0 && position[1] == 0);
    tl_sampler_positions(&s, 2, input, position); /* 8 99, from the middle of a document */
    assert_true(position[0] == 0 && position[1] == 1);
    o.documents = wrong;
    o.document_count = 2;
    error = (tl_error){TL_OK, ""};
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_ERR_ARGUMENT);
    o.documents = outside;
    o.document_count = 1;
    assert_int_equal(tl_sampler_init(&s, t, &o, &error), TL_ERR_ARGUMENT);
    tl_tokens_close(t);
}

/* ---- the reader ---- */

static tl_ctx *cpu(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    assert_non_null(ctx);
    return ctx;
}

enum { B = 3, T = 5, BATCHES = 60 };

/* `n` batches as they come: inputs and targets. */
static void draw(const tl_tokens *t, tl_sampler_kind kind, int threads, int slots, uint64_t position, int n,
                 int32_t *out) {
    tl_ctx *ctx = cpu();
    tl_reader *r = tl_reader_new(ctx, t,
                                 &(tl_reader_options){.sampler = sampling(kind, T, 5),
                                                      .micro_batch = B,
                                                      .threads = threads,
                                                      .slots = slots,
                                                      .position = position});
    assert_non_null(r);
    assert_int_equal(tl_reader_position(r), position);
    for (int i = 0; i < n; i++) {
        tl_token_batch batch;
        tl_scope_begin(ctx);
        assert_int_equal(tl_reader_next(r, &batch), TL_OK);
        assert_true(tl_tensor_size(batch.input, 0) == B && tl_tensor_size(batch.target, 1) == T);
        assert_int_equal(tl_tensor_category(batch.input), TL_DATA);
        assert_int_equal(tl_tensor_read(batch.input, out + i * 2 * B * T, B * T * 4), TL_OK);
        assert_int_equal(tl_tensor_read(batch.target, out + (i * 2 + 1) * B * T, B * T * 4), TL_OK);
        tl_scope_end(ctx);
        assert_int_equal(tl_reader_position(r), position + (uint64_t)(i + 1) * B);
    }
    assert_true(tl_reader_waited(r) >= 0);
    tl_reader_free(r);
    tl_ctx_free(ctx);
}

/* FAULTS: wrong data order after resuming in epoch ≥ 2. 16 windows an epoch, 180 windows drawn: eleven epochs. */
static void the_same_order_with_any_threads_and_after_resuming(void **state) {
    static int32_t once[BATCHES * 2 * B * T], again[BATCHES * 2 * B * T];
    static const int threads[] = {1, 2, 3, 7}, slots[] = {1, 2, 5, 3};
    (void)state;
    tl_tokens *t = opened(counting(0, "c.bin", 84), 4);
    for (int kind = TL_SAMPLER_RANDOM; kind <= TL_SAMPLER_IN_ORDER; kind++) {
        draw(t, (tl_sampler_kind)kind, 0, 1, 0, BATCHES, once);
        for (int i = 0; i < 4; i++) {
            memset(again, 0, sizeof again);
            draw(t, (tl_sampler_kind)kind, threads[i], slots[i], 0, BATCHES, again);
            assert_memory_equal(again, once, sizeof once);
        }
        for (int stop = 1; stop < BATCHES; stop += 13) {
            memset(again, 0, sizeof again);
            draw(t, (tl_sampler_kind)kind, 2, 2, 0, stop, again);
            draw(t, (tl_sampler_kind)kind, 1, 3, (uint64_t)stop * B, BATCHES - stop, again + stop * 2 * B * T);
            assert_memory_equal(again, once, sizeof once);
        }
    }
    tl_tokens_close(t);
}

/* An error met ahead comes when its batch does, after all good ones, and says where; and again when asked again. */
static void errors_arrive_with_their_batch(void **state) {
    (void)state;
    tl_tokens *t = opened(counting(0, "bad.bin", 101), 4); /* ids 0 … 100: window k of 5 has 5k … 5k + 5 */
    for (int threads = 0; threads <= 3; threads++) {
        tl_ctx *ctx = cpu();
        tl_reader_options o = {
            .sampler = sampling(TL_SAMPLER_IN_ORDER, 5, 1), .micro_batch = 2, .threads = threads, .slots = 4};
        o.sampler.vocab = 50; /* 50 is first a target in window 9, the second of batch 4 */
        tl_reader *r = tl_reader_new(ctx, t, &o);
        tl_token_batch batch;
        assert_non_null(r);
        tl_scope_begin(ctx);
        for (int i = 0; i < 4; i++)
            assert_int_equal(tl_reader_next(r, &batch), TL_OK);
        assert_int_equal(tl_reader_next(r, &batch), TL_ERR_FORMAT);
        says(tl_ctx_error(ctx), "bad.bin: id 50 at index 50 is not below the vocabulary of 50");
        assert_null(batch.input);
        assert_int_equal(tl_reader_position(r), 8);
        tl_ctx_clear_error(ctx);
        assert_int_equal(tl_reader_next(r, &batch), TL_ERR_FORMAT);
        tl_scope_end(ctx);
        tl_reader_free(r);
        tl_ctx_free(ctx);
    }
    tl_tokens_close(t);
}

/* Steps of several micro-batches: the windows follow each other as one by one, and each batch tells how many targets count
 * of how many in its step (documents of 7 tokens; ids tell where they stand, and 0 … 6 is the first). */
static void steps_tell_their_counted_targets(void **state) {
    static int64_t starts[200];
    (void)state;
    for (int64_t i = 0; i < 200; i++)
        starts[i] = 7 * i;
    tl_tokens *t = opened(counting(0, "a.bin", 1400), 4);
    for (int threads = 0; threads <= 2; threads++) {
        tl_ctx *ctx = cpu();
        tl_reader_options o = {
            .sampler = sampling(TL_SAMPLER_EPOCHS, 10, 3), .micro_batch = 2, .accumulation = 3, .threads = threads};
        tl_sampler s;
        tl_error error = {TL_OK, ""};
        o.sampler.ignore_boundaries = true;
        o.sampler.documents = starts;
        o.sampler.document_count = 200;
        assert_int_equal(tl_sampler_init(&s, t, &o.sampler, &error), TL_OK);
        tl_reader *r = tl_reader_new(ctx, t, &o);
        assert_non_null(r);
        for (uint64_t step = 0; step < 40; step++) {
            int64_t counted = 0, told = 0, total = 0;
            for (uint64_t micro = 0; micro < 3; micro++) {
                tl_token_batch batch;
                int32_t x[20], y[20], want_x[10], want_y[10];
                tl_scope_begin(ctx);
                assert_int_equal(tl_reader_next(r, &batch), TL_OK);
                assert_int_equal(tl_tensor_read(batch.input, x, sizeof x), TL_OK);
                assert_int_equal(tl_tensor_read(batch.target, y, sizeof y), TL_OK);
                tl_scope_end(ctx);
                for (uint64_t b = 0; b < 2; b++) {
                    assert_int_equal(tl_sampler_window(&s, step * 6 + micro * 2 + b, want_x, want_y, &error), TL_OK);
                    assert_memory_equal(x + 10 * b, want_x, sizeof want_x);
                    assert_memory_equal(y + 10 * b, want_y, sizeof want_y);
                }
                for (int i = 0; i < 20; i++) {
                    assert_true(y[i] == ((x[i] + 1) % 7 == 0 ? TL_IGNORE_INDEX : x[i] + 1));
                    counted += y[i] != TL_IGNORE_INDEX;
                }
                told += batch.counted;
                assert_true(micro == 0 || total == batch.total);
                total = batch.total;
            }
            assert_true(counted == told && told == total && total < 60);
        }
        assert_int_equal(tl_reader_position(r), 240);
        tl_reader_free(r);
        tl_ctx_free(ctx);
    }
    tl_tokens_close(t);
}

static void stops_at_any_moment(void **state) {
    (void)state;
    tl_tokens *t = opened(counting(0, "s.bin", 5000), 4);
    for (int i = 0; i < 60; i++) {
        tl_ctx *ctx = cpu();
        tl_reader *r = tl_reader_new(ctx, t,
                                     &(tl_reader_options){.sampler = sampling(TL_SAMPLER_RANDOM, 100, 1),
                                                          .micro_batch = 8,
                                                          .threads = 1 + i % 4,
                                                          .slots = 1 + i % 3});
        assert_non_null(r);
        for (int k = 0; k < i % 5; k++) {
            tl_token_batch batch;
            tl_scope_begin(ctx);
            assert_int_equal(tl_reader_next(r, &batch), TL_OK);
            tl_scope_end(ctx);
        }
        tl_reader_free(r);
        tl_ctx_free(ctx);
    }
    tl_tokens_close(t);
}

static void buffers_are_in_the_ledger(void **state) {
    (void)state;
    tl_tokens *t = opened(counting(0, "l.bin", 500), 4);
    tl_ctx *ctx = cpu();
    tl_reader_options o = {.sampler = sampling(TL_SAMPLER_RANDOM, 10, 1), .micro_batch = 4, .threads = 1, .slots = 3};
    tl_reader *r = tl_reader_new(ctx, t, &o);
    tl_token_batch batch;
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), 3 * 2 * 4 * 10 * 4);
    tl_scope_begin(ctx);
    assert_int_equal(tl_reader_next(r, &batch), TL_OK);
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), (3 + 1) * 2 * 4 * 10 * 4);
    tl_scope_end(ctx);
    tl_reader_free(r);
    assert_int_equal(tl_ledger_live(ctx, TL_DATA), 0);
    /* A ring of the caller's: none of its own; of another shape it is refused. */
    tl_scope_begin(ctx);
    o.ring = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(3), tl_dim_of(1), tl_dim_of(2), tl_dim_of(4), tl_dim_of(10)),
                      TL_DATA);
    r = tl_reader_new(ctx, t, &o);
    assert_non_null(r);
    assert_int_equal(tl_reader_next(r, &batch), TL_OK);
    tl_reader_free(r);
    o.micro_batch = 5;
    assert_null(tl_reader_new(ctx, t, &o));
    says(tl_ctx_error(ctx), "[3, 1, 2, 5, 10] would work");
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
    tl_tokens_close(t);
}

static void refuses_a_reader_that_cannot_be(void **state) {
    static const struct {
        int64_t micro_batch;
        int threads, slots;
    } cases[] = {{0, 1, 2},  {-1, 1, 2},   {INT64_MAX, 1, 2}, {INT64_MAX / 64, 1, 2},
                 {1, -1, 2}, {1, 1000, 2}, {1, 1, -1},        {1, 1, 5000}};
    tl_error error = {TL_OK, ""};
    (void)state;
    tl_tokens *t = opened(counting(0, "x.bin", 100), 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_ctx *ctx = cpu();
        assert_null(tl_reader_new(ctx, t,
                                  &(tl_reader_options){.sampler = sampling(TL_SAMPLER_RANDOM, 10, 1),
                                                       .micro_batch = cases[i].micro_batch,
                                                       .threads = cases[i].threads,
                                                       .slots = cases[i].slots}));
        assert_true(strlen(tl_ctx_error(ctx)->message) > 10);
        tl_ctx_free(ctx);
    }
    tl_ctx *meta = tl_ctx_new(NULL, &error);
    assert_null(
        tl_reader_new(meta, t, &(tl_reader_options){.sampler = sampling(TL_SAMPLER_RANDOM, 10, 1), .micro_batch = 1}));
    tl_ctx_free(meta);
    tl_tokens_close(t);
}

/* The sanitizers' runtimes make mlock do nothing. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MLOCK_IS_REAL false
#elif defined(__has_feature)
#define MLOCK_IS_REAL !(__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define MLOCK_IS_REAL true
#endif

/* In a child: the limit lies below what is asked for, and root would have none. */
static void locking_that_is_refused_is_an_error(void **state) {
    (void)state;
    if (!MLOCK_IS_REAL)
        skip();
    tl_tokens *t = opened(counting(0, "m.bin", 100000), 4);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {4096, 4096};
        tl_error error = {TL_OK, ""};
        int verdict = 1;
        if (setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && (getuid() != 0 || setuid(65534) == 0)) {
            tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
            tl_reader_options o = {
                .sampler = sampling(TL_SAMPLER_RANDOM, 1000, 1), .micro_batch = 64, .threads = 1, .locked = true};
            const tl_reader *r = tl_reader_new(ctx, t, &o);
            verdict = !r && strstr(tl_ctx_error(ctx)->message, "RLIMIT_MEMLOCK is 4096 bytes") ? 0 : 2;
        }
        _exit(verdict);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    tl_tokens_close(t);
}

/* ---- memory ---- */

static int64_t status_kb(const char *key) {
    char line[128];
    int64_t kb = -1;
    const size_t n = strlen(key);
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            kb = strtoll(line + n + 1, NULL, 10);
    if (file)
        fclose(file);
    return kb;
}

/* A file of 2 GB (with holes: it takes no disk) costs no resident memory beyond the pages in use. Reading at random touches
 * 2000 × 8 windows of 2 KB, 64 KB each with the pages the kernel maps around: 1 GB if they stayed. */
static void a_large_file_costs_no_memory(void **state) {
    const int64_t count = INT64_C(1000000000), most_kb = 16 << 10;
    tl_error error = {TL_OK, ""};
    (void)state;
    put(0, "large.bin", "\1\0", 2);
    assert_int_equal(truncate(token_paths[0], (off_t)(2 * count)), 0);
    tl_tokens *t = opened(token_paths[0], 2);
    assert_true(tl_tokens_count(t) == count);
    const int64_t before = status_kb("VmRSS"), before_file = status_kb("RssFile");
    tl_ctx *ctx = cpu();
    tl_reader *r = tl_reader_new(
        ctx, t, &(tl_reader_options){.sampler = sampling(TL_SAMPLER_RANDOM, 1024, 9), .micro_batch = 8, .threads = 1});
    assert_non_null(r);
    int64_t most = 0;
    for (int i = 0; i < 2000; i++) {
        tl_token_batch batch;
        tl_scope_begin(ctx);
        assert_int_equal(tl_reader_next(r, &batch), TL_OK);
        tl_scope_end(ctx);
        if (i % 100 == 99) {
            const int64_t now = status_kb("RssFile") - before_file;
            most = now > most ? now : most;
        }
    }
    tl_reader_free(r);
    tl_ctx_free(ctx);
    print_message("2000 batches from 2 GB: file pages resident at most %lld KB more, all %lld KB more\n",
                  (long long)most, (long long)(status_kb("VmRSS") - before));
    assert_true(most < most_kb);
    /* All of it, in order: 64 MB are enough to see that pages are dropped behind. */
    assert_int_equal(truncate(token_paths[0], (off_t)(64 << 20)), 0);
    tl_tokens_close(t);
    t = opened(token_paths[0], 2);
    tl_token_scan scan;
    assert_int_equal(tl_tokens_scan(t, &(tl_token_scan_options){.separator = -1}, &scan, &error), TL_OK);
    assert_true(scan.count == 32 << 20);
    assert_true(status_kb("RssFile") - before_file < most_kb);
    tl_tokens_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TOKEN_TEST(small_files_do_not_wrap),
        TOKEN_TEST(random_windows_are_uniform),
        TOKEN_TEST(epochs_have_each_window_once),
        TOKEN_TEST(small_epochs_have_all_orders),
        TOKEN_TEST(ignores_targets_across_documents),
        TOKEN_TEST(the_same_order_with_any_threads_and_after_resuming),
        TOKEN_TEST(errors_arrive_with_their_batch),
        TOKEN_TEST(steps_tell_their_counted_targets),
        TOKEN_TEST(stops_at_any_moment),
        TOKEN_TEST(buffers_are_in_the_ledger),
        TOKEN_TEST(refuses_a_reader_that_cannot_be),
        TOKEN_TEST(locking_that_is_refused_is_an_error),
        TOKEN_TEST(a_large_file_costs_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
