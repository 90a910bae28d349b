/* Row kernels, look-ups, losses, random numbers and updates: against double formulas written here; edge cases; the same
 * bits for any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "kernel_arrays.h"

#define EACH_TABLE(table)                                                                                              \
    for (int table_index_ = 0; table_index_ < 3; table_index_++)                                                       \
        for (const tl_kernels *table = tl_kernels_for_cpu(table_names[table_index_], NULL); table; table = NULL)

static const tl_dtype floats[] = {TL_F64, TL_F32, TL_BF16, TL_F16};

static tl_dtype statistic(tl_dtype dtype) { return dtype == TL_F64 ? TL_F64 : TL_F32; }

/* rounding of the result, and of terms of size `size` in the compute type */
static double room(tl_dtype dtype, double size, double result) {
    double u = dtype == TL_F64 ? 0x1p-53 : 0x1p-24;
    return 64 * u * size + (dtype == TL_F64 ? 0 : 1.01 * unit_of(dtype) * fabs(result)) +
           (dtype == TL_F16 ? 0x1p-25 : 0);
}

static void softmax_case(const tl_kernels *table, tl_dtype dtype, int layout, const int64_t size[3],
                         tl_softmax_attr attr) {
    int64_t n = count_of(3, size), columns = size[2];
    box x = box_make(dtype, 3, size, layout), y = box_make(dtype, 3, size, (layout + 1) % 4);
    box g = box_make(dtype, 3, size, (layout + 2) % 4), dx = box_make(dtype, 3, size, layout);
    box_random(&x, 1, -4, 4);
    box_random(&g, 2, -1, 1);
    if (n > columns)
        for (int64_t j = 0; j < columns; j++)
            box_put(&x, columns + j, -INFINITY); /* a row masked by its values */
    run(table->softmax, NULL, (box *[]){&x}, 1, (box *[]){&y}, 1, &attr, 0);
    run(table->softmax_backward, NULL, (box *[]){&y, &g}, 2, (box *[]){&dx}, 1, &attr, 0);
    for (int64_t r = 0; r * columns < n; r++) {
        int64_t seen = attr.causal ? r % size[1] + 1 + columns - size[1] : columns;
        seen = seen < 0 ? 0 : seen > columns ? columns : seen;
        double most = -INFINITY, sum = 0, dot = 0;
        for (int64_t j = 0; j < seen; j++)
            most = fmax(most, attr.scale * box_get(&x, r * columns + j));
        for (int64_t j = 0; j < seen; j++)
            sum += most == -INFINITY ? 0 : exp(attr.scale * box_get(&x, r * columns + j) - most);
        for (int64_t j = 0; j < columns; j++) {
            double e = j < seen && sum > 0 ? exp(attr.scale * box_get(&x, r * columns + j) - most) / sum : 0;
            CLOSE(box_get(&y, r * columns + j), e, room(dtype, e, e));
            dot += box_get(&y, r * columns + j) * box_get(&g, r * columns + j);
        }
        for (int64_t j = 0; j < columns; j++) {
            double yv = box_get(&y, r * columns + j), e = attr.scale * yv * (box_get(&g, r * columns + j) - dot);
            CLOSE(box_get(&dx, r * columns + j), e, room(dtype, yv * (1 + fabs(attr.scale)), e));
        }
    }
    box_free(&x), box_free(&y), box_free(&g), box_free(&dx);
}

static void test_softmax(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{2, 12, 12}, {3, 5, 9}, {2, 9, 5}, {1, 3, 1500},
                                       {2, 0, 4},   {2, 3, 0}, {1, 1, 1}};
    EACH_TABLE(table)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int d = 0; d < 4; d++)
            for (int layout = 0; layout < LAYOUT_COUNT; layout++)
                for (int causal = 0; causal < 2; causal++)
                    softmax_case(table, floats[d], layout, sizes[s], (tl_softmax_attr){causal ? 0.125 : 1.5, causal});
}

static void norm_case(const tl_kernels *table, tl_dtype dtype, int layout, const int64_t size[3], bool centred,
                      bool bias) {
    int64_t n = count_of(3, size), columns = size[2], rows = columns ? n / columns : 0,
            stat_size[2] = {size[0], size[1]};
    tl_norm_attr attr = {1e-5, 0};
    box x = box_make(dtype, 3, size, layout), y = box_make(dtype, 3, size, (layout + 1) % 4);
    box g = box_make(dtype, 3, size, (layout + 2) % 4), gain = box_make(dtype, 1, &columns, layout);
    box shift = box_make(dtype, 1, &columns, 0), mean = box_make(statistic(dtype), 2, stat_size, layout);
    box rstd = box_make(statistic(dtype), 2, stat_size, 0), dgain = box_make(dtype, 1, &columns, LAYOUT_GAPS);
    box dbias = box_make(dtype, 1, &columns, 0);
    box_random(&x, 1, -2, 3);
    box_random(&g, 2, -1, 1);
    box_random(&gain, 3, 0.5, 1.5);
    box_random(&shift, 4, -1, 1);
    if (centred)
        run(table->layer_norm, NULL, (box *[]){&x, &gain, &shift}, bias ? 3 : 2, (box *[]){&y, &mean, &rstd}, 3, &attr,
            0);
    else
        run(table->rms_norm, NULL, (box *[]){&x, &gain}, 2, (box *[]){&y, &rstd}, 2, &attr, 0);
    double *gain_sum = calloc((size_t)columns + 1, 8), *bias_sum = calloc((size_t)columns + 1, 8);
    double *hat = calloc((size_t)n + 1, 8), *dx = calloc((size_t)n + 1, 8);
    assert_true(gain_sum && bias_sum && hat && dx);
    for (int64_t r = 0; r < rows; r++) {
        double m = 0, v = 0, first = 0, second = 0;
        for (int64_t j = 0; centred && j < columns; j++)
            m += box_get(&x, r * columns + j) / (double)columns;
        for (int64_t j = 0; j < columns; j++)
            v += pow(box_get(&x, r * columns + j) - m, 2) / (double)columns;
        double inverse = 1 / sqrt(v + attr.epsilon);
        CLOSE(box_get(&rstd, r), inverse, room(statistic(dtype), inverse, inverse));
        if (centred)
            CLOSE(box_get(&mean, r), m, room(statistic(dtype), 3, m));
        for (int64_t j = 0; j < columns; j++) {
            double h = (box_get(&x, r * columns + j) - m) * inverse, gv = box_get(&g, r * columns + j);
            double e = h * box_get(&gain, j) + (centred && bias ? box_get(&shift, j) : 0);
            CLOSE(box_get(&y, r * columns + j), e, room(dtype, 2 * inverse + 2, e));
            hat[r * columns + j] = h;
            gain_sum[j] += gv * h;
            bias_sum[j] += gv;
            first += centred ? gv * box_get(&gain, j) / (double)columns : 0;
            second += gv * box_get(&gain, j) * h / (double)columns;
        }
        for (int64_t j = 0; j < columns; j++)
            dx[r * columns + j] =
                inverse * (box_get(&g, r * columns + j) * box_get(&gain, j) - first - hat[r * columns + j] * second);
    }
    int64_t work = 2 * (rows / TL_ROW_BLOCK + 1) * columns * 8;
    box *back_in[] = {&x, &gain, centred ? &mean : &rstd, centred ? &rstd : &g, &g};
    tl_kernel *back = centred ? table->layer_norm_backward : table->rms_norm_backward;
    int n_out = centred && bias ? 3 : 2;
    run(back, NULL, back_in, centred ? 5 : 4, (box *[]){NULL, &dgain, &dbias}, n_out, &attr,
        work + 8); /* dx not wanted */
    box same = g;  /* dx in place on the gradient, parameters not wanted */
    run(back, NULL, back_in, centred ? 5 : 4, (box *[]){&same, NULL, NULL}, n_out, &attr, work + 8);
    for (int64_t j = 0; rows && j < columns; j++) {
        CLOSE(box_get(&dgain, j), gain_sum[j], room(dtype, 4 * (double)rows, gain_sum[j]));
        if (n_out == 3)
            CLOSE(box_get(&dbias, j), bias_sum[j], room(dtype, (double)rows, bias_sum[j]));
    }
    for (int64_t i = 0; i < n; i++)
        CLOSE(box_get(&same, i), dx[i], room(dtype, 60, dx[i]));
    free(gain_sum), free(bias_sum), free(hat), free(dx);
    box *all[] = {&x, &y, &g, &gain, &shift, &mean, &rstd, &dgain, &dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        box_free(all[i]);
}

static void test_norms(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{3, 5, 7}, {2, 70, 128}, {1, 3, 1300}, {0, 3, 8}, {1, 1, 2}};
    EACH_TABLE(table)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int d = 0; d < 4; d++)
            for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
                norm_case(table, floats[d], layout, sizes[s], true, true);
                norm_case(table, floats[d], layout, sizes[s], true, false);
                norm_case(table, floats[d], layout, sizes[s], false, false);
            }
}

static void entropy_case(const tl_kernels *table, tl_dtype dtype, tl_dtype ids, int layout, int64_t rows,
                         int64_t columns, bool all_ignored) {
    int64_t size[2] = {rows, columns}, one = 1;
    tl_loss_attr attr = {-100};
    box x = box_make(dtype, 2, size, layout), target = box_make(ids, 1, &rows, layout),
        dx = box_make(dtype, 2, size, layout);
    box lse = box_make(statistic(dtype), 1, &rows, 0), loss = box_make(statistic(dtype), 1, &one, 0);
    box count = box_make(TL_F32, 1, &one, 0), gradient = box_make(statistic(dtype), 1, &one, 0);
    box_random(&x, 3, -30, 30);
    box_fill(&gradient, 0.5);
    double sum = 0, counted = 0;
    for (int64_t r = 0; r < rows; r++)
        box_put(&target, r, all_ignored || r % 3 == 1 ? -100 : (double)(r * 7 % columns));
    assert_int_equal(
        run(table->cross_entropy, NULL, (box *[]){&x, &target}, 2, (box *[]){&loss, &lse, &count}, 3, &attr, 0), 0);
    run(table->cross_entropy_backward, NULL, (box *[]){&x, &target, &lse, &count, &gradient}, 5, (box *[]){&dx}, 1,
        &attr, 0);
    for (int64_t r = 0; r < rows; r++)
        counted += box_get_int(&target, r) >= 0;
    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, e = 0;
        int64_t at = box_get_int(&target, r);
        for (int64_t j = 0; j < columns; j++)
            most = fmax(most, box_get(&x, r * columns + j));
        for (int64_t j = 0; j < columns; j++)
            e += exp(box_get(&x, r * columns + j) - most);
        double l = most + log(e > 0 ? e : 1);
        CLOSE(box_get(&lse, r), l, room(statistic(dtype), 30, l));
        for (int64_t j = 0; j < columns; j++) {
            double p = exp(box_get(&x, r * columns + j) - l);
            double d = at < 0 ? 0 : (p - (j == at)) * 0.5 / counted;
            CLOSE(box_get(&dx, r * columns + j), d, room(dtype, 0.5 / counted, d));
        }
        if (at >= 0)
            sum += l - box_get(&x, r * columns + at);
    }
    double mean = counted > 0 ? sum / counted : 0;
    CLOSE(box_get(&loss, 0), mean, room(statistic(dtype), 30, mean));
    CLOSE(box_get(&count, 0), counted, 0);
    box alone = box_make(statistic(dtype), 1, &one, 0); /* inference: the same loss, log-sum-exps in work */
    run(table->cross_entropy, NULL, (box *[]){&x, &target}, 2, (box *[]){&alone}, 1, &attr, rows * 8 + 8);
    CLOSE(box_get(&alone, 0), box_get(&loss, 0), 0);
    if (rows > 2 && !all_ignored) {
        box_put(&target, 2, (double)columns);
        assert_int_equal(
            run(table->cross_entropy, NULL, (box *[]){&x, &target}, 2, (box *[]){&loss, &lse, &count}, 3, &attr, 0), 3);
        box_put(&target, 2, -4);
        assert_int_equal(
            run(table->cross_entropy, NULL, (box *[]){&x, &target}, 2, (box *[]){&loss, &lse, &count}, 3, &attr, 0), 3);
    }
    box *all[] = {&x, &target, &dx, &lse, &loss, &count, &gradient, &alone};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        box_free(all[i]);
}

static void test_cross_entropy(void **state) {
    (void)state;
    EACH_TABLE(table)
    for (int d = 0; d < 4; d++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            entropy_case(table, floats[d], TL_I64, layout, 20, 16, false);
            entropy_case(table, floats[d], TL_I32, layout, 7, 1100, false);
            entropy_case(table, floats[d], TL_I64, layout, 5, 16, true);
            entropy_case(table, floats[d], TL_I64, layout, 0, 16, false);
        }
}

static void test_mse(void **state) {
    (void)state;
    const int64_t size[2] = {90, 101}, one = 1, n = 90 * 101;
    EACH_TABLE(table)
    for (int d = 0; d < 4; d++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            tl_dtype dtype = floats[d];
            box a = box_make(dtype, 2, size, layout), b = box_make(dtype, 2, size, 0), da = box_make(dtype, 2, size, 0);
            box loss = box_make(statistic(dtype), 1, &one, 0), g = box_make(statistic(dtype), 1, &one, 0);
            box_random(&a, 1, -1, 1);
            box_random(&b, 2, -1, 1);
            box_fill(&g, 3);
            run(table->mse, NULL, (box *[]){&a, &b}, 2, (box *[]){&loss}, 1, NULL, 8 * (n / 4096 + 1));
            run(table->mse_backward, NULL, (box *[]){&a, &b, &g}, 3, (box *[]){&da}, 1, NULL, 0);
            double sum = 0;
            for (int64_t i = 0; i < n; i++) {
                double difference = box_get(&a, i) - box_get(&b, i), e = 6 * difference / (double)n;
                sum += difference * difference;
                CLOSE(box_get(&da, i), e, room(dtype, 12 / (double)n, e));
            }
            CLOSE(box_get(&loss, 0), sum / (double)n,
                  room(statistic(dtype), 16, sum / (double)n)); /* the sum here is naive */
            box_free(&a), box_free(&b), box_free(&da), box_free(&loss), box_free(&g);
        }
}

static void test_embedding(void **state) {
    (void)state;
    const int64_t table_size[2] = {11, 70}, ids_size[2] = {4, 6}, out_size[3] = {4, 6, 70};
    EACH_TABLE(table)
    for (int d = 0; d < 3; d++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            box w = box_make(floats[d], 2, table_size, layout),
                ids = box_make(layout % 2 ? TL_I32 : TL_I64, 2, ids_size, layout);
            box y = box_make(floats[d], 3, out_size, (layout + 1) % 4), dw = box_make(floats[d], 2, table_size, layout);
            box_random(&w, 1, -1, 1);
            double sum[11 * 70] = {0};
            for (int64_t i = 0; i < 24; i++)
                box_put(&ids, i, (double)(i * i % 9));
            assert_int_equal(run(table->embedding, NULL, (box *[]){&w, &ids}, 2, (box *[]){&y}, 1, NULL, 0), 0);
            for (int64_t i = 0; i < 24 * 70; i++) {
                int64_t id = box_get_int(&ids, i / 70);
                CLOSE(box_get(&y, i), box_get(&w, id * 70 + i % 70), 0);
                box_put(&y, i, (double)(i % 5) - 2); /* small integers: exact in every dtype */
                sum[id * 70 + i % 70] += (double)(i % 5) - 2;
            }
            assert_int_equal(run(table->embedding_backward, NULL, (box *[]){&ids, &y}, 2, (box *[]){&dw}, 1, NULL, 0),
                             0);
            for (int64_t i = 0; i < 11 * 70; i++)
                CLOSE(box_get(&dw, i), sum[i], 0);
            box_put(&ids, 7, 11);
            box_put(&ids, 9, -1);
            assert_int_equal(run(table->embedding, NULL, (box *[]){&w, &ids}, 2, (box *[]){&y}, 1, NULL, 0), 8);
            assert_int_equal(run(table->embedding_backward, NULL, (box *[]){&ids, &y}, 2, (box *[]){&dw}, 1, NULL, 0),
                             8);
            box_free(&w), box_free(&ids), box_free(&y), box_free(&dw);
        }
}

static void test_rotary(void **state) {
    (void)state;
    const int64_t size[3] = {3, 9, 24}, n = 3 * 9 * 24;
    EACH_TABLE(table)
    for (int form = 0; form < 8; form++)
        for (int d = 0; d < 3; d++) {
            tl_rotary_attr attr = {.theta = 10000, .first = 5, .interleaved = form & 1};
            if (form & 4) { /* Llama-3.1's values, on a context short enough to reach all three ranges */
                attr.factor = 8, attr.low_freq_factor = 1, attr.high_freq_factor = 4, attr.original_context = 64;
            }
            box x = box_make(floats[d], 3, size, form % 4), y = box_make(floats[d], 3, size, 0);
            box_random(&x, 2, -1, 1);
            run(table->rotary, NULL, (box *[]){&x}, 1, (box *[]){&y}, 1, &attr, 0);
            for (int64_t r = 0; r < 27; r++)
                for (int64_t i = 0; i < 12; i++) {
                    double f = pow(10000, -2.0 * (double)i / 24), wavelength = 2 * acos(-1) / f;
                    if (form & 4) {
                        double blend = (64 / wavelength - 1) / 3;
                        blend = blend < 0 ? 0 : blend > 1 ? 1 : blend;
                        f = f * (blend + (1 - blend) / 8);
                    }
                    double angle = (double)(5 + r % 9) * f;
                    int64_t a = r * 24 + (form & 1 ? 2 * i : i), b = form & 1 ? a + 1 : a + 12;
                    double u = box_get(&x, a), v = box_get(&x, b);
                    CLOSE(box_get(&y, a), u * cos(angle) - v * sin(angle), room(floats[d], 1, 1));
                    CLOSE(box_get(&y, b), u * sin(angle) + v * cos(angle), room(floats[d], 1, 1));
                }
            attr.inverse = true; /* in place, back to the start */
            run(table->rotary, NULL, (box *[]){&y}, 1, (box *[]){&y}, 1, &attr, 0);
            for (int64_t i = 0; i < n; i++)
                CLOSE(box_get(&y, i), box_get(&x, i), room(floats[d], 2, 3));
            box_free(&x), box_free(&y);
        }
}

static void test_random(void **state) {
    (void)state;
    const int64_t n = 50000, part = 1001;
    EACH_TABLE(table) {
        tl_engine *engine = engine_make(table, 3);
        tl_random_attr attr = {
            .seed = 0x123456789abcdefULL, .stream = 0xfeedULL << 40, .first = 0, .a = -2, .b = 3, .cut = 2};
        for (int k = 0; k < 3; k++)
            for (int d = 0; d < 4; d++) {
                tl_kernel *kernel = k == 0 ? table->uniform : k == 1 ? table->normal : table->truncated_normal;
                box whole = box_make(floats[d], 1, &n, 0), shard = box_make(floats[d], 1, &part, LAYOUT_GAPS);
                attr.first = 0;
                run(kernel, engine, NULL, 0, (box *[]){&whole}, 1, &attr, 0);
                double sum = 0, square = 0;
                for (int64_t i = 0; i < n; i++) {
                    double v = box_get(&whole, i);
                    sum += v;
                    square += v * v;
                    if (k == 0) { /* base/random.h's uniforms, scaled */
                        double u = d == 0 ? tl_random_uniform_f64(attr.seed, attr.stream, (uint64_t)i)
                                          : (double)tl_random_uniform_f32(attr.seed, attr.stream, (uint64_t)i);
                        CLOSE(v, rounded(floats[d], -2 + 5 * u), 1.01 * unit_of(floats[d]) * fabs(v));
                    } else if (k == 1) {
                        double z = -2 + 3 * tl_random_normal_f64(attr.seed, attr.stream, (uint64_t)i);
                        CLOSE(v, z, 1e-13 + 1.01 * unit_of(floats[d]) * fabs(z) + 0x1p-25);
                    } else {
                        assert_true(fabs(v + 2) <= 6 * (1 + 0x1p-7));
                    }
                }
                /* mean and variance; of a normal cut at ±2: 0.7737413 (1 − 4φ(2)/(2Φ(2) − 1)) */
                double mean = sum / (double)n, variance = square / (double)n - mean * mean;
                double expected = k == 0 ? 25.0 / 12 : k == 1 ? 9 : 9 * 0.77374130;
                CLOSE(mean, k == 0 ? 0.5 : -2, 0.08);
                CLOSE(variance, expected, 0.15);
                attr.first = 12345; /* a shard draws the same bits */
                run(kernel, NULL, NULL, 0, (box *[]){&shard}, 1, &attr, 0);
                for (int64_t i = 0; i < part; i++)
                    CLOSE(box_get(&shard, i), box_get(&whole, 12345 + i), 0);
                box_free(&whole), box_free(&shard);
            }
        engine_drop(table, engine);
    }
}

static void test_dropout(void **state) {
    (void)state;
    const int64_t size[2] = {300, 200}, n = 60000;
    EACH_TABLE(table)
    for (int d = 0; d < 4; d++) {
        tl_random_attr attr = {.seed = 3, .stream = 9, .first = 6, .a = 0.25};
        box x = box_make(floats[d], 2, size, LAYOUT_TURNED), y = box_make(floats[d], 2, size, LAYOUT_GAPS);
        box mask = box_make(TL_U8, 2, size, 0), back = box_make(floats[d], 2, size, 0);
        box_random(&x, 1, 1, 2);
        run(table->dropout, NULL, (box *[]){&x}, 1, (box *[]){&y, &mask}, 2, &attr, 0);
        run(table->dropout_backward, NULL, (box *[]){&mask, &x}, 2, (box *[]){&back}, 1, &attr, 0);
        double kept = 0;
        for (int64_t i = 0; i < n; i++) {
            bool keep = (double)tl_random_uniform_f32(3, 9, (uint64_t)i + 6) >= 0.25;
            double e = keep ? box_get(&x, i) / 0.75 : 0;
            assert_int_equal(box_get_int(&mask, i), keep);
            CLOSE(box_get(&y, i), e, room(floats[d], 0.1, e));
            CLOSE(box_get(&back, i), box_get(&y, i), 0);
            kept += keep;
        }
        CLOSE(kept / (double)n, 0.75, 0.01);
        attr.a = 1; /* nothing is kept, nothing is NaN */
        run(table->dropout, NULL, (box *[]){&x}, 1, (box *[]){&y, &mask}, 2, &attr, 0);
        CLOSE(box_get(&y, 77), 0, 0);
        box_free(&x), box_free(&y), box_free(&mask), box_free(&back);
    }
}

/* Three steps of each optimizer beside the same steps in double. */
static void updates(const tl_kernels *table, tl_dtype dtype, int layout, int which) {
    const int64_t n = 1500;
    box p = box_make(dtype, 1, &n, layout), g = box_make(dtype, 1, &n, 0), low = box_make(TL_BF16, 1, &n, 0);
    box m = box_make(statistic(dtype), 1, &n, 0), v = box_make(statistic(dtype), 1, &n, layout);
    box_random(&p, 1, -1, 1);
    box_fill(&m, 0);
    box_fill(&v, 0);
    double *ref = calloc((size_t)n * 3, 8);
    assert_non_null(ref);
    for (int64_t i = 0; i < n; i++)
        ref[3 * i] = box_get(&p, i);
    for (int step = 1; step <= 3; step++) {
        box_random(&g, (uint32_t)step, -1, 1);
        tl_adamw_attr adam = {0.01, 0.9, 0.95, 1e-8, 0.1, step, which == 1};
        tl_adagrad_attr adagrad = {.lr = 0.01, .epsilon = 1e-6};
        tl_sgd_attr sgd = {0.1, which == 3 ? 0 : 0.9, 0.01, which == 5, step == 1};
        if (which < 2)
            run(table->adamw, NULL, (box *[]){&g}, 1, (box *[]){&p, &m, &v, &low}, 4, &adam, 0);
        else if (which == 2)
            run(table->adagrad, NULL, (box *[]){&g}, 1, (box *[]){&p, &m, &low}, 3, &adagrad, 0);
        else if (which == 3)
            run(table->sgd, NULL, (box *[]){&g}, 1, (box *[]){&p, &low}, 2, &sgd, 0);
        else
            run(table->sgd, NULL, (box *[]){&g}, 1, (box *[]){&p, &m, &low}, 3, &sgd, 0);
        for (int64_t i = 0; i < n; i++) {
            double *r = ref + 3 * i, gv = box_get(&g, i), c1 = 1 - pow(0.9, step), c2 = 1 - pow(0.95, step);
            if (which < 2) {
                r[1] = 0.9 * r[1] + 0.1 * gv;
                r[2] = 0.95 * r[2] + 0.05 * gv * gv;
                if (which == 0)
                    r[0] = r[0] * (1 - 0.001) - 0.01 * (r[1] / c1) / (sqrt(r[2] / c2) + 1e-8);
                else
                    r[0] = (r[0] - 0.01 * sqrt(c2) / c1 * r[1] / (sqrt(r[2]) + 1e-8)) * (1 - 0.001);
            } else if (which == 2) {
                r[1] += gv * gv;
                r[0] -= 0.01 * gv / sqrt(r[1] + 1e-6);
            } else {
                double d = gv + 0.01 * r[0];
                r[1] = step == 1 || which == 3 ? d : 0.9 * r[1] + d;
                r[0] -= 0.1 * (which == 3 ? d : which == 5 ? d + 0.9 * r[1] : r[1]);
            }
            CLOSE(box_get(&p, i), r[0], 3 * room(dtype, 4, fmax(1, r[0])));
            CLOSE(box_get(&low, i), rounded(TL_BF16, box_get(&p, i)), dtype == TL_F64 ? 0x1p-8 : 0);
        }
    }
    free(ref);
    box_free(&p), box_free(&g), box_free(&low), box_free(&m), box_free(&v);
}

static void test_updates(void **state) {
    (void)state;
    EACH_TABLE(table)
    for (int which = 0; which < 6; which++)
        for (int d = 0; d < 3; d++)
            for (int layout = 0; layout < LAYOUT_COUNT; layout += 3)
                updates(table, floats[d], layout, which);
}

/* 1, 2, 3 and 8 threads, and the three tables' exact kernels, give the same bytes. */
static void test_threads(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    const int64_t size[2] = {700, 130}, rows = 700, columns = 130, one = 1, vocabulary[2] = {50, 130};
    EACH_TABLE(table) {
        box x = box_make(TL_F32, 2, size, 0), g = box_make(TL_F32, 2, size, 0), gain = box_make(TL_F32, 1, &columns, 0);
        box ids = box_make(TL_I64, 1, &rows, 0), first[12], found[12];
        box_random(&x, 1, -3, 3), box_random(&g, 2, -1, 1), box_random(&gain, 3, 0, 1), box_random(&ids, 4, 0, 50);
        for (int e = 0; e < 4; e++) {
            tl_engine *engine = engine_make(table, threads[e]);
            for (int i = 0; i < 12; i++)
                found[i] = i < 5    ? box_make(TL_F32, 2, size, 0)
                           : i < 7  ? box_make(TL_F32, 1, &columns, 0)
                           : i < 9  ? box_make(TL_F32, 1, &rows, 0)
                           : i < 11 ? box_make(TL_F32, 1, &one, 0)
                                    : box_make(TL_F32, 2, vocabulary, 0);
            tl_softmax_attr softmax = {1, false};
            tl_norm_attr norm = {1e-5, 0};
            tl_loss_attr loss = {-100};
            tl_random_attr random = {.seed = 1, .stream = 2, .b = 1};
            int64_t work = 2 * (rows / TL_ROW_BLOCK + 1) * columns * 4;
            run(table->softmax, engine, (box *[]){&x}, 1, (box *[]){&found[0]}, 1, &softmax, 0);
            run(table->layer_norm, engine, (box *[]){&x, &gain, &gain}, 3, (box *[]){&found[1], &found[7], &found[8]},
                3, &norm, 0);
            run(table->layer_norm_backward, engine, (box *[]){&x, &gain, &found[7], &found[8], &g}, 5,
                (box *[]){&found[2], &found[5], &found[6]}, 3, &norm, work);
            run(table->cross_entropy, engine, (box *[]){&x, &ids}, 2, (box *[]){&found[9], &found[7], &found[10]}, 3,
                &loss, 0);
            run(table->cross_entropy_backward, engine, (box *[]){&x, &ids, &found[7], &found[10], &found[9]}, 5,
                (box *[]){&found[3]}, 1, &loss, 0);
            run(table->normal, engine, NULL, 0, (box *[]){&found[4]}, 1, &random, 0);
            run(table->embedding_backward, engine, (box *[]){&ids, &g}, 2, (box *[]){&found[11]}, 1, NULL, 0);
            for (int i = 0; i < 12; i++) {
                if (e == 0)
                    first[i] = found[i];
                assert_memory_equal(first[i].memory, found[i].memory, (size_t)found[i].bytes);
                if (e > 0)
                    box_free(&found[i]);
            }
            engine_drop(table, engine);
        }
        for (int i = 0; i < 12; i++)
            box_free(&first[i]);
        box_free(&x), box_free(&g), box_free(&gain), box_free(&ids);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax), cmocka_unit_test(test_norms),     cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_mse),     cmocka_unit_test(test_embedding), cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_random),  cmocka_unit_test(test_dropout),   cmocka_unit_test(test_updates),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
