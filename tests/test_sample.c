/* The next token: sets of top-k and top-p by exact arithmetic, ties, what is refused, and draws counted against their
 * probabilities (Pearson's chi-square, 1900). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/stream.h"
#include "tally/sample.h"

static tl_sample *sample_of(int64_t vocab, double temperature, int64_t top_k, double top_p, uint64_t seed) {
    tl_sample_options o = {temperature, top_k, top_p, seed};
    tl_error error = {TL_OK, ""};
    tl_sample *s = tl_sample_new(NULL, vocab, &o, &error);
    if (!s)
        fail_msg("%s", error.message);
    return s;
}

static int64_t probabilities(tl_sample *s, const double *logits, double *p) {
    tl_error error = {TL_OK, ""};
    int64_t kept = -1;
    if (tl_sample_probabilities(s, logits, p, &kept, &error) != TL_OK)
        fail_msg("%s", error.message);
    return kept;
}

static int32_t next(tl_sample *s, const double *logits, uint64_t sequence, uint64_t index) {
    tl_error error = {TL_OK, ""};
    int32_t token = -1;
    if (tl_sample_next(s, logits, sequence, index, &token, &error) != TL_OK)
        fail_msg("%s", error.message);
    return token;
}

/* n equal logits weigh exactly 1 each, so that p = m/n is reached by exactly m tokens, the lowest ids, and the next double
 * above it by m + 1: in binary, n a power of two, every number here is exact. */
static void test_top_p_exactly(void **state) {
    (void)state;
    enum { N = 64 };
    double logits[N], p[N];
    for (int i = 0; i < N; i++)
        logits[i] = 3.25;
    for (int m = 1; m < N; m++)
        for (int above = 0; above < 2; above++) {
            double top_p = (double)m / N;
            tl_sample *s = sample_of(N, 1, 0, above ? nextafter(top_p, 1) : top_p, 0);
            int64_t kept = probabilities(s, logits, p);
            assert_int_equal(kept, m + above);
            for (int i = 0; i < N; i++)
                assert_true(i < kept ? p[i] == 1.0 / (double)kept : p[i] == 0);
            tl_sample_free(s);
        }
}

/* Weights 8, 4, 2, 1, 1 of 16 (logits their logarithms), scattered: cumulated 1/2, 3/4, 7/8, 15/16, 1. p between two of these
 * takes the token that reaches it (Holtzman et al. 2020, eq. 3: the smallest set whose probability is at least p). */
static void test_nucleus(void **state) {
    (void)state;
    static const double share[] = {1, 4, 16, 1, 8, 2};
    static const int order[] = {2, 4, 1, 5, 0, 3}; /* 16, 8, 4, 2, 1, 1 of 32; of the two ones the lower id first */
    static const double cumulated[] = {16, 24, 28, 30, 31, 32};
    double logits[6], p[6];
    for (int i = 0; i < 6; i++)
        logits[i] = log(share[i]);
    for (int n = 1; n <= 6; n++) {
        double top_p = ((n > 1 ? cumulated[n - 2] : 0) + cumulated[n - 1]) / 64; /* half-way */
        tl_sample *s = sample_of(6, 1, 0, top_p, 0);
        assert_int_equal(probabilities(s, logits, p), n);
        double all = cumulated[n - 1], total = 0;
        for (int i = 0; i < 6; i++) {
            double expected = i < n ? share[order[i]] / all : 0;
            assert_true(fabs(p[order[i]] - expected) <= 1e-15);
            total += p[order[i]];
        }
        assert_true(fabs(total - 1) <= 1e-15);
        tl_sample_free(s);
    }
    /* top-k first: of 16, 8, 4 (k = 3) the first is 4/7, which is 0.57: p = 0.6 takes two; of all it would take two too, but
     * p = 0.57 takes one of three and two of all */
    tl_sample *s = sample_of(6, 1, 3, 0.57, 0);
    assert_int_equal(probabilities(s, logits, p), 1);
    tl_sample_free(s);
    s = sample_of(6, 1, 0, 0.57, 0);
    assert_int_equal(probabilities(s, logits, p), 2);
    tl_sample_free(s);
}

static void test_top_k_and_ties(void **state) {
    (void)state;
    static const double logits[] = {1, 5, 5, 5, -INFINITY, 0};
    double p[6];
    for (int64_t k = 1; k <= 8; k++) {
        tl_sample *s = sample_of(6, 2, k, 1, 0);
        int64_t kept = probabilities(s, logits, p);
        assert_int_equal(kept, k < 5 ? k : 5); /* −infinity has no probability */
        for (int i = 1; i < 4; i++)
            assert_true((p[i] > 0) == (i <= k)); /* of equals the lower id */
        tl_sample_free(s);
    }
    tl_sample *greedy = sample_of(6, 0, 0, 1, 9);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(next(greedy, logits, i, i), 1);
    assert_int_equal(probabilities(greedy, logits, p), 1);
    assert_true(p[1] == 1);
    tl_sample_free(greedy);
}

/* Temperature: weights e^(logit/T). T = 2 takes 4 : 1 to 2 : 1; logits of 1e6 do not overflow; a tiny T is greedy. */
static void test_temperature(void **state) {
    (void)state;
    const double logits[] = {1e6 + log(4), 1e6};
    double p[2];
    tl_sample *s = sample_of(2, 2, 0, 1, 0);
    probabilities(s, logits, p);
    assert_true(fabs(p[0] - 2.0 / 3) < 1e-10);
    tl_sample_free(s);
    s = sample_of(2, 1e-300, 0, 1, 0);
    probabilities(s, logits, p);
    assert_true(p[0] == 1 && p[1] == 0);
    tl_sample_free(s);
}

/* The draw, by its definition: the first id whose cumulated probability exceeds number `index` of the stream. */
static void test_draw_by_definition(void **state) {
    (void)state;
    const double logits[] = {0, 0, 0, 0};
    tl_sample *s = sample_of(4, 1, 0, 1, 77);
    for (uint64_t sequence = 0; sequence < 3; sequence++)
        for (uint64_t i = 0; i < 200; i++) {
            char name[8];
            snprintf(name, sizeof name, "%d", (int)sequence);
            double u = tl_random_uniform_f64(77, tl_stream_id("sample", name), i);
            assert_int_equal(next(s, logits, sequence, i), (int)(u * 4)); /* quarters are exact */
        }
    /* any order of asking, the same tokens */
    int32_t forward[50];
    for (uint64_t i = 0; i < 50; i++)
        forward[i] = next(s, logits, 0, i);
    for (uint64_t i = 50; i-- > 0;)
        assert_int_equal(next(s, logits, 0, i), forward[i]);
    tl_sample_free(s);
}

/* 60,000 draws from seven tokens. With 6 degrees of freedom chi-square exceeds 22.46 once in a thousand (tables of the
 * distribution, 0.999 quantile); the seed is fixed, so that the test is one draw of luck, made once. */
static void test_distribution(void **state) {
    (void)state;
    enum { N = 7, DRAWS = 60000 };
    static const double share[N] = {1, 2, 3, 5, 8, 13, 21};
    static const struct {
        double temperature;
        int64_t top_k;
        double top_p;
        int kept;
    } cases[] = {{1, 0, 1, 7}, {1, 3, 1, 3}, {1, 0, 0.7, 3}, {2, 5, 0.9, 5}};
    static const double limit[] = {0, 0, 13.82, 16.27, 18.47, 20.52, 22.46}; /* 0.999 quantile by degrees of freedom */
    double logits[N], p[N];
    for (int i = 0; i < N; i++)
        logits[i] = log(share[i]);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t count[N] = {0};
        tl_sample *s = sample_of(N, cases[c].temperature, cases[c].top_k, cases[c].top_p, 2020);
        int64_t kept = probabilities(s, logits, p);
        assert_int_equal(kept, cases[c].kept);
        for (uint64_t i = 0; i < DRAWS; i++)
            count[next(s, logits, 0, i)]++;
        double chi = 0;
        for (int i = 0; i < N; i++) {
            double expected = 0, all = 0; /* from the shares, not from our probabilities */
            for (int k = 0; k < N; k++)
                all += k >= N - kept ? pow(share[k], 1 / cases[c].temperature) : 0;
            expected = i >= N - kept ? DRAWS * pow(share[i], 1 / cases[c].temperature) / all : 0;
            if (expected == 0)
                assert_int_equal(count[i], 0);
            else
                chi += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
        }
        if (!(chi < limit[kept - 1]))
            fail_msg("case %d: chi-square %.2f with %d degrees of freedom", (int)c, chi, (int)kept - 1);
        tl_sample_free(s);
    }
}

static void check_refused(int64_t vocab, tl_sample_options o, const char *part) {
    tl_error error = {TL_OK, ""};
    assert_null(tl_sample_new(NULL, vocab, &o, &error));
    assert_int_equal(error.status, TL_ERR_ARGUMENT);
    if (!strstr(error.message, part))
        fail_msg("\"%s\" does not say \"%s\"", error.message, part);
}

static void test_refusals(void **state) {
    (void)state;
    check_refused(5, (tl_sample_options){-1, 0, 1, 0}, "temperature");
    check_refused(5, (tl_sample_options){NAN, 0, 1, 0}, "temperature");
    check_refused(5, (tl_sample_options){INFINITY, 0, 1, 0}, "temperature");
    check_refused(5, (tl_sample_options){1, -3, 1, 0}, "top-k");
    check_refused(5, (tl_sample_options){1, 0, 0, 0}, "top-p");
    check_refused(5, (tl_sample_options){1, 0, 1.5, 0}, "top-p");
    check_refused(0, tl_sample_defaults(), "logits of 0 tokens");
    static const struct {
        double logits[3];
        const char *part;
    } bad[] = {{{0, NAN, 1}, "token 1 is NaN"},
               {{0, 2, INFINITY}, "token 2 is infinite"},
               {{-INFINITY, -INFINITY, -INFINITY}, "all 3 logits"}};
    for (int greedy = 0; greedy < 2; greedy++) {
        tl_sample *s = sample_of(3, greedy ? 0 : 1, 2, 0.5, 0);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            tl_error error = {TL_OK, ""};
            int32_t token = -1;
            assert_int_equal(tl_sample_next(s, bad[i].logits, 0, 0, &token, &error), TL_ERR_ARGUMENT);
            assert_non_null(strstr(error.message, bad[i].part));
            assert_int_equal(token, -1);
        }
        tl_sample_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_p_exactly),      cmocka_unit_test(test_nucleus),
        cmocka_unit_test(test_top_k_and_ties),     cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_draw_by_definition), cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
