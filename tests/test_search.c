/* Many plans at once: one step on meta says what two do, what fewer layers tell of the whole is near it, and an answer takes a
 * bounded amount of work. The expected values are tl_plan_make's, which runs two steps of the whole model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/lever.h"

static tl_plan_options options_for(const char *model, const char *devices) {
    tl_error error = {TL_OK, ""};
    tl_plan_options o = {.micro_batch = 1, .precision = TL_PRECISION_BF16_MIXED};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    if (tl_catalogue_model(model, &o.model, &error) != TL_OK || tl_parse_devices(devices, &o.devices, &error) != TL_OK)
        fail_msg("%s", error.message);
    o.seq = o.model.context;
    return o;
}

static tl_plan made(const tl_plan_options *o) {
    tl_error error = {TL_OK, ""};
    tl_plan p;
    if (tl_plan_make(o, &p, &error) != TL_OK)
        fail_msg("%s: %s", o->model.name, error.message);
    return p;
}

static tl_plan_pool *new_pool(void) {
    tl_error error = {TL_OK, ""};
    tl_plan_pool *pool = tl_plan_pool_new(&error);
    assert_non_null(pool);
    return pool;
}

static void assert_same_peak(const tl_plan_peak *x, const tl_plan_peak *y) {
    assert_int_equal(x->bytes, y->bytes);
    assert_memory_equal(x->by_category, y->by_category, sizeof x->by_category);
    assert_int_equal(x->phase, y->phase);
    assert_string_equal(x->module, y->module);
    assert_string_equal(x->op, y->op);
}

/* Everything tl_plan_account says, against two steps. */
static void check_account(const tl_plan_options *o, tl_plan_pool *pool) {
    tl_error error = {TL_OK, ""};
    tl_plan two = made(o), one;
    assert_int_equal(tl_plan_account(o, true, pool, &one, &error), TL_OK);
    assert_same_peak(&one.peak, &two.peak);
    assert_same_peak(&one.init, &two.init);
    assert_same_peak(&one.load, &two.load);
    assert_same_peak(&one.save, &two.save);
    assert_same_peak(&one.weights, &two.weights);
    for (int i = 0; i < TL_PHASE_COUNT; i++)
        assert_same_peak(&one.step[i], &two.step[i]);
    assert_memory_equal(one.high, two.high, sizeof one.high);
    assert_int_equal(one.arena_bytes, two.arena_bytes);
    assert_int_equal(one.allocations, two.allocations);
    assert_int_equal(one.needs_bytes, two.needs_bytes);
    assert_int_equal(one.usable_bytes, two.usable_bytes);
    assert_int_equal(one.fits, two.fits);
    assert_true(one.per_step == two.per_step && one.hardware_per_step == two.hardware_per_step);
    assert_true(one.again_per_step == two.again_per_step && one.arithmetic_per_step == two.arithmetic_per_step);
    assert_int_equal(one.sent_per_step, two.sent_per_step);
    assert_true(one.step_seconds == two.step_seconds);
}

/* Dense and sparse, windows, latent attention; states in 8 bits, float8's scales, loss scaling, adapters, master gradients,
 * updates in backward, micro-batches, clipping: whatever a run carries from a step to the next. */
static void one_step_says_what_two_do(void **state) {
    static const char *const models[] = {"gpt2",        "smollm2-135m", "gemma-3-1b", "deepseek-v2-lite",
                                         "gpt-oss-20b", "opt-350m"};
    (void)state;
    tl_plan_pool *pool = new_pool();
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        tl_plan_options o = options_for(models[m], "4xH100"), plain;
        o.seq = 256;
        plain = o;
        check_account(&o, pool);
        o.micro_batch = 2, o.global_batch = 24, o.clip = 1, o.choices.grads = TL_GRADS_F32;
        check_account(&o, pool);
        o = plain, o.optimizer.kind = TL_OPTIM_ADAMW8BIT, o.optimizer.states = TL_STATES_DEFAULT;
        o.recompute = (tl_recompute){TL_RECOMPUTE_EVERY, 2}, o.weights = true;
        check_account(&o, pool);
        o = plain, o.precision = TL_PRECISION_FP8_MIXED, o.choices.loss = TL_LOSS_FULL_FP32;
        check_account(&o, pool);
        o = plain, o.precision = TL_PRECISION_FP16_MIXED, o.autocast = true, o.choices.rotary = TL_ROTARY_TABLES;
        check_account(&o, pool);
        o = plain, o.lora = (tl_lora_options){.rank = 8, .base = o.model.experts ? TL_LORA_PLAIN : TL_LORA_NF4_TWICE};
        o.recompute.kind = TL_RECOMPUTE_FULL, o.weights = true;
        check_account(&o, pool);
        o = plain, o.precision = TL_PRECISION_BF16, o.optimizer = tl_optimizer_defaults(TL_OPTIM_SGD);
        o.choices.update_in_backward = true, o.choices.attention = TL_ATTENTION_FLASH, o.prefetch = 2;
        check_account(&o, pool);
    }
    tl_plan_pool_free(pool);
}

/* A guess is exact in FLOPs, which are the same for each layer of a kind; of the bytes it says how far above it may be. */
static void fewer_layers_tell_of_the_whole(void **state) {
    static const struct {
        const char *model;
        int64_t layers; /* (2 + 3) where all are alike; first, another kind and last, and one more of each */
    } models[] = {{"llama-2-70b", 2 + 3},     {"llama-3-8b", 2 + 3},     {"gpt2-xl", 2 + 3},
                  {"gemma-3-27b", 3 + 4 + 4}, {"gemma-2-9b", 3 + 4 + 4}, {"deepseek-v2-lite", 3 + 4}};
    (void)state;
    tl_error error = {TL_OK, ""};
    tl_plan_pool *pool = new_pool();
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int lever = 0; lever < 4; lever++) {
            tl_plan_options o = options_for(models[m].model, "H100"), pulled;
            char change[TL_PLAN_CHANGE];
            tl_lever l = {.recompute = lever == 1 ? TL_LEVER_FULL : 0,
                          .ways = lever == 2 ? TL_WAY_FLASH : 0,
                          .adapters = lever == 3};
            tl_plan_estimate e;
            tl_lever_pull(&o, &l, &pulled, change);
            assert_int_equal(tl_plan_guess(&pulled, INT64_MAX, pool, &e, &error), TL_OK);
            assert_true(e.known);
            assert_int_equal(e.layers, models[m].layers);
            tl_plan p = made(&pulled);
            assert_true(e.hardware_per_step == p.hardware_per_step);
            assert_true((double)e.least <= (double)p.needs_bytes * (1 + e.above / 100.0));
            assert_true((double)e.needs > 0.85 * (double)p.needs_bytes &&
                        (double)e.needs < 1.15 * (double)p.needs_bytes);
        }
    tl_plan_pool_free(pool);
}

static tl_plan_estimate guessed(const tl_plan_options *o) {
    tl_error error = {TL_OK, ""};
    tl_plan_estimate e;
    tl_plan_pool *pool = new_pool();
    assert_int_equal(tl_plan_guess(o, INT64_MAX, pool, &e, &error), TL_OK);
    tl_plan_pool_free(pool);
    return e;
}

/* Where a layer in K is computed again whole periods are kept; where that is most of the model nothing is told. */
static void guesses_keep_the_period(void **state) {
    (void)state;
    tl_plan_options o = options_for("llama-2-70b", "H100");
    o.recompute = (tl_recompute){TL_RECOMPUTE_EVERY, 4};
    tl_plan_estimate e = guessed(&o);
    tl_plan p = made(&o);
    assert_true(e.known && e.layers == 4 + 8 && e.hardware_per_step == p.hardware_per_step);
    o.recompute.every = 3; /* 80 = 26·3 + 2 */
    e = guessed(&o);
    p = made(&o);
    assert_true(e.known && e.layers == 2 + 3 + 2 + 6 && e.hardware_per_step == p.hardware_per_step);
    o.recompute.every = 30;
    assert_false(guessed(&o).known);
    o = options_for("gemma-3-27b", "H100"); /* five layers of a window to one without */
    o.recompute = (tl_recompute){TL_RECOMPUTE_EVERY, 4};
    assert_false(guessed(&o).known);
    o = options_for("pythia-70m", "H100"); /* 6 layers: as soon planned */
    assert_false(guessed(&o).known);
    o = options_for("cruncher", "H100");
    o.seq = 1;
    assert_false(guessed(&o).known);
    o = options_for("llama-3-8b", "H100"); /* other layers have no learned rows */
    o.lora.prefix = 10, o.lora.prefix_from = 2;
    assert_false(guessed(&o).known);
}

/* The bar of 100 ms (bench/bench_plan.sh) as work that can be counted on a busy machine: a whole plan of 80 layers takes 6 to 8
 * ms, so 100 ms are about a thousand layers. Without guesses llama-2-70b took 13 plans and llama-3-8b 38. */
static void advice_takes_bounded_work(void **state) {
    static const struct {
        const char *model;
        int runs;
        int64_t layers;
    } models[] = {{"llama-2-70b", 8, 700},      {"llama-3-70b", 8, 700},       {"llama-3-8b", 14, 700},
                  {"qwen3-32b", 8, 700},        {"gemma-3-4b", 16, 900},       {"gemma-2-9b", 14, 900},
                  {"mistral-7b-v0.1", 14, 700}, {"deepseek-v2-lite", 10, 700}, {"llama-4-scout-17b-16e", 4, 700}};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        tl_error error = {TL_OK, ""};
        tl_plan_advice advice, again;
        tl_plan_options o = options_for(models[m].model, "8xH100");
        tl_plan p = made(&o);
        assert_false(p.fits);
        assert_int_equal(tl_plan_advise(&o, &p, &advice, &error), TL_OK);
        assert_true(advice.count > 0);
        if (advice.runs > models[m].runs || advice.layers > models[m].layers)
            fail_msg("%s: %d plans and %lld layers", models[m].model, advice.runs, (long long)advice.layers);
        assert_int_equal(tl_plan_advise(&o, &p, &again, &error), TL_OK);
        assert_memory_equal(&again, &advice, sizeof advice); /* cleared before it is filled */
    }
}

/* The answer and the next, and where the guess was beside them a few more. */
static void search_takes_few_plans(void **state) {
    static const char *const models[] = {"gpt2-xl", "llama-3.2-1b", "gemma-3-1b", "pythia-70m"};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int axis = 0; axis < 2; axis++) {
            tl_error error = {TL_OK, ""};
            tl_plan_largest l;
            tl_plan_options o = options_for(models[m], "H100");
            o.seq = 512;
            assert_int_equal(tl_plan_find_largest(&o, axis ? TL_PLAN_SEQ : TL_PLAN_MICRO_BATCH, &l, &error), TL_OK);
            if (l.value < 2 || l.runs < 1 || l.runs > (o.model.layers < 10 ? 24 : 8))
                fail_msg("%s: %lld by %d plans", models[m], (long long)l.value, l.runs);
            int64_t *size = axis ? &o.seq : &o.micro_batch;
            *size = l.value;
            tl_plan p = made(&o);
            assert_true(p.fits && p.needs_bytes == l.bytes && p.peak.bytes == l.peak_bytes);
            if (l.limited)
                continue;
            *size = l.value + 1;
            p = made(&o);
            assert_true(!p.fits && p.needs_bytes == l.next_bytes);
        }
}

/* What is let go is handed out again, and a block with bytes of a tensor is not kept. */
static void the_pool_keeps_blocks(void **state) {
    (void)state;
    tl_plan_pool *pool = new_pool();
    const tl_allocator *a = tl_plan_pool_allocator(pool);
    void *first = a->alloc(a->self, 1000, 16, TL_ALLOC_HOST), *other = a->alloc(a->self, 1000, 16, TL_ALLOC_HOST);
    assert_true(first && other && first != other);
    a->release(a->self, first, 1000, TL_ALLOC_HOST);
    void *second = a->alloc(a->self, 1024, 16, TL_ALLOC_HOST); /* both are of 2^10 bytes */
    assert_ptr_equal(second, first);
    void *storage = a->alloc(a->self, 1000, 64, TL_ALLOC_STORAGE);
    assert_true(storage && (uintptr_t)storage % 64 == 0);
    a->release(a->self, storage, 1000, TL_ALLOC_STORAGE);
    a->release(a->self, second, 1024, TL_ALLOC_HOST);
    a->release(a->self, other, 1000, TL_ALLOC_HOST);
    void *one = a->alloc(a->self, 1, 16, TL_ALLOC_HOST);
    assert_non_null(one);
    a->release(a->self, one, 1, TL_ALLOC_HOST);
    tl_plan_pool_free(pool);
    tl_plan_pool_free(NULL);
    assert_null(tl_plan_pool_allocator(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_step_says_what_two_do), cmocka_unit_test(fewer_layers_tell_of_the_whole),
        cmocka_unit_test(guesses_keep_the_period),   cmocka_unit_test(advice_takes_bounded_work),
        cmocka_unit_test(search_takes_few_plans),    cmocka_unit_test(the_pool_keeps_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
