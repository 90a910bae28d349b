/* Same seed, same bits, on any number of threads: twenty training steps of each family, every loss and every parameter.
 * Sizes are chosen so that products, rows and elementwise kernels are all cut into several tasks (TL_TASK_ELEMENTS).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "instrument.h"
#include "small_models.h"
#include "tally/account.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STEPS = 3 }; /* a sanitizer looks for races and overruns, which do not take long to show */
#else
enum { STEPS = 20 };
#endif

typedef struct trace {
    double loss[STEPS], norm[STEPS];
    char *parameters; /* all of them, one after another */
    size_t bytes;
} trace;

static tl_model wide_gpt2(void) {
    tl_model m = small_gpt2();
    m.width = 32;
    m.heads = m.kv_heads = 4;
    m.ff = 128;
    m.vocab = 200;
    m.context = 64;
    m.dropout_embedding = m.dropout_attention = m.dropout_residual = 0.1;
    return m;
}

static tl_model wide_llama(void) {
    tl_model m = small_llama();
    m.ff = 144;
    m.vocab = 210;
    return m;
}

static void save_parameters(const tl_net *net, trace *t) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    t->bytes = 0;
    for (int i = 0; i < count; i++)
        t->bytes += (size_t)tl_tensor_storage_bytes(list[i].tensor);
    t->parameters = malloc(t->bytes);
    assert_non_null(t->parameters);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes = (size_t)tl_tensor_storage_bytes(list[i].tensor);
        assert_int_equal(tl_tensor_read(list[i].tensor, t->parameters + at, bytes), TL_OK);
        at += bytes;
    }
}

static trace train(const tl_model *model, const tl_kernels *kernels, int threads, bool mixed) {
    tl_error error = {0};
    trace t = {.bytes = 0};
    tl_train_options o = {.micro_batch = 5, .seq = 64, .accumulation = 1, .ranks = 1, .dtype = TL_F32, .clip = 1};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    if (mixed) {
        o.dtype = TL_BF16;
        o.optimizer.master = o.optimizer.state_f32 = true;
    }
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = kernels, .threads = threads, .seed_init = 1}, &error);
    assert_non_null(ctx);
    tl_trainer *trainer = tl_trainer_new(ctx, model, &o);
    assert_non_null(trainer);
    random_batch batch = {NULL, model, 11};
    for (int i = 0; i < STEPS; i++) {
        tl_step_result r;
        batch.seed = 11 + (uint64_t)(i % 2); /* two batches over and over, so that there is something to learn */
        assert_int_equal(tl_trainer_step(trainer, random_batch_source, &batch, 1e-2, &r), TL_OK);
        t.loss[i] = r.loss;
        t.norm[i] = r.gradient_norm;
    }
    save_parameters(tl_trainer_net(trainer), &t);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return t;
}

static void assert_same_bits(const trace *a, const trace *b) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->parameters, b->parameters, a->bytes);
}

/* On every number of threads; returns the trace on one. */
static trace same_on_all(const tl_model *model, const tl_kernels *kernels, bool mixed) {
    static const int threads[] = {2, 3, 8};
    trace one = train(model, kernels, 1, mixed);
    assert_true(one.loss[0] > one.loss[STEPS - 1] || STEPS < 20); /* it does train */
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        trace many = train(model, kernels, threads[i], mixed);
        assert_same_bits(&one, &many);
        free(many.parameters);
    }
    return one;
}

static const tl_kernels *best(void) {
    tl_error error = {0};
    const tl_kernels *k = tl_kernels_for_cpu(NULL, &error);
    assert_non_null(k);
    return k;
}

/* The tables differ in exp, tanh and the order inside a product's vector, so agree closely, not exactly. */
static void check_model(const tl_model *model) {
    trace portable = same_on_all(model, tl_kernels_portable(), false);
    trace fast = same_on_all(model, best(), false);
    for (int i = 0; i < STEPS; i++)
        assert_true(fabs(portable.loss[i] - fast.loss[i]) <= 1e-4 * portable.loss[i]);
    free(portable.parameters);
    free(fast.parameters);
}

static void test_gpt2(void **state) {
    (void)state;
    tl_model m = wide_gpt2();
    check_model(&m);
}

static void test_llama(void **state) {
    (void)state;
    tl_model m = wide_llama();
    check_model(&m);
}

static void test_bf16_mixed(void **state) {
    (void)state;
    tl_model m = wide_llama();
    trace fast = same_on_all(&m, best(), true);
    free(fast.parameters);
}

/* Other starting values give other bits: the comparison above can fail. */
static void test_comparison_can_fail(void **state) {
    (void)state;
    tl_model m = wide_gpt2();
    trace a = train(&m, tl_kernels_portable(), 1, false);
    m.init_std = 0.021;
    trace b = train(&m, tl_kernels_portable(), 1, false);
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_not_equal(a.parameters, b.parameters, a.bytes);
    free(a.parameters);
    free(b.parameters);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_bf16_mixed),
        cmocka_unit_test(test_comparison_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
