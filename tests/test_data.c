/* Sums: what is held out, how they are written, that the same (seed, index) gives the same example. Expected values come
 * from arithmetic and from the header's words; the count of pairs is 900 · 900. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tally/data.h"
#include "tally/account.h"
#include "tally/cpu.h"

static tl_sums *new_sums(uint64_t seed) {
    tl_error error = {TL_OK, ""};
    tl_sums *sums = tl_sums_new(NULL, seed, &error);
    assert_non_null(sums);
    return sums;
}

static void mirrors_are_held_out_together(void **state) {
    int64_t held_out = 0;
    (void)state;
    for (int a = 100; a < 1000; a++)
        for (int b = 100; b < 1000; b++) {
            assert_int_equal(tl_sums_is_held_out(a, b), tl_sums_is_held_out(b, a));
            held_out += tl_sums_is_held_out(a, b);
        }
    /* One in sixteen of 810,000 is 50,625; a hash is near it, not at it (5 standard deviations of a fair one: 1.4 %). */
    assert_in_range(held_out, 49500, 51750);
    tl_sums *sums = new_sums(1);
    assert_int_equal(tl_sums_held_out_count(sums), held_out);
    tl_sums_free(sums);
}

static void held_out_list_has_each_once(void **state) {
    static unsigned char seen[900][900];
    tl_sums *sums = new_sums(1), *other = new_sums(99);
    (void)state;
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < tl_sums_held_out_count(sums); i++) {
        int a, b, c, d;
        tl_sums_held_out(sums, i, &a, &b);
        tl_sums_held_out(other, i, &c, &d);
        assert_true(a == c && b == d); /* no seed enters */
        assert_true(a >= 100 && a < 1000 && b >= 100 && b < 1000);
        assert_true(tl_sums_is_held_out(a, b));
        assert_int_equal(seen[a - 100][b - 100]++, 0);
    }
    tl_sums_free(sums);
    tl_sums_free(other);
}

static void training_never_shows_a_held_out_pair(void **state) {
    tl_sums *sums = new_sums(7);
    int64_t low = 0;
    (void)state;
    for (uint64_t i = 0; i < 300000; i++) {
        int a, b;
        tl_sums_training(sums, i, &a, &b);
        assert_true(a >= 100 && a < 1000 && b >= 100 && b < 1000);
        assert_false(tl_sums_is_held_out(a, b));
        low += a < 550;
    }
    assert_in_range(low, 148000, 152000); /* half of them, within 7 standard deviations */
    tl_sums_free(sums);
}

static void same_seed_and_index_same_example(void **state) {
    tl_sums *x = new_sums(3), *y = new_sums(3), *z = new_sums(4);
    int same = 0;
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        int a, b, c, d, e, f;
        tl_sums_training(x, i, &a, &b);
        tl_sums_training(y, 999 - i, &c, &d);
        tl_sums_training(y, i, &c, &d);
        tl_sums_training(z, i, &e, &f);
        assert_true(a == c && b == d);
        same += a == e && b == f;
    }
    assert_in_range(same, 0, 5); /* another seed is another order */
    tl_sums_free(x);
    tl_sums_free(y);
    tl_sums_free(z);
}

static void encodes_as_written(void **state) {
    static const struct {
        int a, b;
        const char *text;
    } cases[] = {{137, 485, "137+485= 622"}, {900, 900, "900+900=1800"}, {100, 100, "100+100= 200"},
                 {999, 999, "999+999=1998"}, {500, 499, "500+499= 999"}, {500, 500, "500+500=1000"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t tokens[16], targets[16];
        tl_sums_encode(cases[i].a, cases[i].b, 16, tokens, targets);
        for (int t = 0; t < 16; t++) {
            char want = t < TL_SUMS_SEQ ? cases[i].text[t] : ' ';
            assert_int_equal(tl_sums_character(tokens[t]), want);
            if (t >= 7 && t < 11) /* after '=' and after three of the answer's four characters */
                assert_int_equal(tl_sums_character(targets[t]), cases[i].text[t + 1]);
            else
                assert_int_equal(targets[t], -100);
        }
    }
    assert_int_equal(tl_sums_character(13), '?');
    assert_int_equal(tl_sums_character(-1), '?');
    assert_int_equal(tl_sums_character(INT64_MAX), '?');
}

static tl_ctx *cpu(void) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    assert_non_null(ctx);
    return ctx;
}

static void batches_go_on_where_they_were(void **state) {
    tl_ctx *ctx = cpu();
    tl_sums *sums = new_sums(5), *again = new_sums(5);
    int32_t first[6 * 12], second[3 * 12];
    tl_tensor *input, *target;
    (void)state;
    tl_scope_begin(ctx);
    assert_int_equal(tl_sums_batch(sums, ctx, 6, 12, &input, &target), TL_OK);
    assert_int_equal(tl_tensor_read(input, first, sizeof first), TL_OK);
    assert_int_equal(tl_tensor_category(input), TL_DATA);
    assert_int_equal(tl_tensor_category(target), TL_DATA);
    assert_int_equal(tl_sums_position(sums), 6);
    tl_sums_seek(again, 3);
    assert_int_equal(tl_sums_batch(again, ctx, 3, 12, &input, &target), TL_OK);
    assert_int_equal(tl_tensor_read(input, second, sizeof second), TL_OK);
    assert_memory_equal(first + 3 * 12, second, sizeof second);
    tl_scope_end(ctx);
    tl_sums_free(sums);
    tl_sums_free(again);
    tl_ctx_free(ctx);
}

static void refuses_sizes_that_cannot_be(void **state) {
    static const int64_t sizes[][2] = {
        {1, 10}, {0, 11}, {-1, 11}, {1, 0}, {1, -5}, {INT64_MAX, 11}, {INT64_MAX / 8, INT64_MAX}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tl_ctx *ctx = cpu();
        tl_sums *sums = new_sums(5);
        tl_tensor *input, *target;
        assert_int_equal(tl_sums_batch(sums, ctx, sizes[i][0], sizes[i][1], &input, &target), TL_ERR_ARGUMENT);
        assert_true(strlen(tl_ctx_error(ctx)->message) > 10);
        assert_int_equal(tl_sums_position(sums), 0);
        tl_sums_free(sums);
        tl_ctx_free(ctx);
    }
}

/* A net that knows nothing gets next to nothing right, and asking it changes neither the tape nor the parameters. */
static void evaluation_is_honest(void **state) {
    tl_ctx *ctx = cpu();
    tl_sums *sums = new_sums(5);
    tl_model model = {.name = "small",
                      .family = TL_FAMILY_GPT2,
                      .layers = 1,
                      .width = 16,
                      .heads = 2,
                      .kv_heads = 2,
                      .head_size = 8,
                      .ff = 32,
                      .vocab = 13,
                      .context = 12,
                      .tied = true,
                      .learned_positions = true,
                      .activation = TL_GELU_TANH,
                      .norm_epsilon = 1e-5,
                      .init_std = 0.02};
    tl_net *net = tl_net_new(ctx, &model, TL_F32);
    tl_sums_score score;
    tl_sums_answer answers[4];
    (void)state;
    assert_non_null(net);
    assert_int_equal(tl_sums_evaluate(sums, net, ctx, 0, 50, 16, &score, answers, 4), TL_OK);
    assert_int_equal(score.asked, 50); /* 16 + 16 + 16 + 2 */
    assert_in_range(score.right, 0, 2);
    for (int i = 0; i < 4; i++) {
        char question[16];
        snprintf(question, sizeof question, "%d+%d=", answers[i].a, answers[i].b);
        assert_memory_equal(answers[i].text, question, 8);
        assert_true(tl_sums_is_held_out(answers[i].a, answers[i].b));
        assert_int_equal(answers[i].right, answers[i].answer == answers[i].a + answers[i].b);
    }
    assert_int_equal(tl_sums_evaluate(sums, net, ctx, 0, 0, 16, &score, NULL, 0), TL_ERR_ARGUMENT);
    tl_net_free(net);
    tl_sums_free(sums);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mirrors_are_held_out_together),
        cmocka_unit_test(held_out_list_has_each_once),
        cmocka_unit_test(training_never_shows_a_held_out_pair),
        cmocka_unit_test(same_seed_and_index_same_example),
        cmocka_unit_test(encodes_as_written),
        cmocka_unit_test(batches_go_on_where_they_were),
        cmocka_unit_test(refuses_sizes_that_cannot_be),
        cmocka_unit_test(evaluation_is_honest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
