/* The library in hostile hands: an allocator that fails at every point in turn, NULL and foreign tensors, sizes that do not
 * exist, work in the wrong order. Each is an error in the context, never a crash; that nothing leaks is for the allocator's
 * own count here and for ASan beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tally/account.h"
#include "tally/cpu.h"
#include "tally/grad.h"
#include "tally/ops.h"
#include "tally/plan.h"
#include "tally/train.h"

#include "small_models.h"

/* ---- an allocator whose k-th call fails, and all after it if it is `broken` ---- */

typedef struct failing {
    int64_t calls, fails_at, live;
    bool broken;
} failing;

static void *failing_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    failing *f = self;
    (void)kind;
    f->calls++;
    if (f->fails_at && (f->calls == f->fails_at || (f->broken && f->calls > f->fails_at)))
        return NULL;
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (p)
        f->live++;
    return p;
}

static void failing_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    (void)bytes;
    (void)kind;
    ((failing *)self)->live--;
    free(pointer);
}

static tl_status two_steps(failing *f, const tl_model *model, const tl_kernels *kernels, bool formulas) {
    const tl_allocator allocator = {failing_alloc, failing_release, f};
    const tl_ctx_options options = {.kernels = kernels, .allocator = &allocator, .formulas = formulas};
    tl_train_options train = {.micro_batch = 2, .seq = 5, .accumulation = 2, .ranks = 1, .dtype = TL_F32, .clip = 1.0};
    tl_error error = {TL_OK, ""};
    train.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    if (!ctx) {
        assert_int_not_equal(error.status, TL_OK);
        return error.status;
    }
    tl_trainer *trainer = tl_trainer_new(ctx, model, &train);
    for (int i = 0; trainer && i < 2; i++)
        if (tl_trainer_step(trainer, NULL, NULL, 1e-3, NULL) != TL_OK)
            break;
    if (trainer && tl_ctx_status(ctx) == TL_OK) {
        tl_arena_plan arena;
        if (tl_arena_plan_make(ctx, &arena) == TL_OK)
            tl_arena_plan_free(ctx, &arena);
    }
    tl_status status = tl_ctx_status(ctx);
    if (!trainer)
        assert_int_not_equal(status, TL_OK);
    if (status != TL_OK)
        assert_true(tl_ctx_error(ctx)->message[0] != '\0');
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return status;
}

static void fail_everywhere(const tl_model *model, bool formulas) {
    failing f = {0};
    assert_int_equal(two_steps(&f, model, NULL, formulas), TL_OK);
    assert_int_equal(f.live, 0);
    const int64_t calls = f.calls;
    assert_true(calls > 20);
    for (int broken = 0; broken < 2; broken++)
        for (int64_t k = 1; k <= calls; k += k > 400 ? 7 : 1) {
            failing g = {.fails_at = k, .broken = broken != 0};
            tl_status status = two_steps(&g, model, NULL, formulas);
            if (status != TL_ERR_MEMORY || g.live != 0)
                fail_msg("call %lld of %lld failing%s: status %d, %lld blocks kept", (long long)k, (long long)calls,
                         broken ? " and all after it" : "", (int)status, (long long)g.live);
        }
}

static void training_survives_every_allocation_failing(void **state) {
    const tl_model gpt2 = small_gpt2(), llama = small_llama(), cruncher = small_cruncher();
    (void)state;
    fail_everywhere(&gpt2, false);
    fail_everywhere(&llama, false);
    fail_everywhere(&cruncher, true);
    fail_everywhere(&gpt2, true);
}

/* ---- arguments ---- */

static tl_ctx *fresh(const tl_kernels *kernels) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = kernels, .formulas = true}, &error);
    assert_non_null(ctx);
    return ctx;
}

/* The operation before left this error and nothing else. */
static void refused(tl_ctx *ctx, const void *result, const char *says) {
    const tl_error *error = tl_ctx_error(ctx);
    if (result || error->status == TL_OK || !strstr(error->message, says))
        fail_msg("wanted an error saying \"%s\", found %d \"%s\"", says, (int)error->status, error->message);
    tl_ctx_clear_error(ctx);
}

static void null_tensors_stay_null(void **state) {
    tl_ctx *ctx = fresh(NULL);
    (void)state;
    assert_null(tl_add(NULL, NULL));
    assert_null(tl_linear(NULL, NULL, NULL));
    assert_null(tl_softmax(NULL, 1.0, true));
    tl_tensor *none[] = {NULL, NULL};
    assert_null(tl_concat(none, 2, 0));
    assert_null(tl_layer_norm(NULL, NULL, NULL, 1e-5));
    assert_null(tl_embedding(NULL, NULL));
    assert_null(tl_cross_entropy(NULL, NULL, -100));
    assert_null(tl_keep(NULL));
    tl_free(NULL);
    tl_release(NULL);
    tl_tensor_clear_grad(NULL);
    tl_tensor_require_grad(NULL, true);
    assert_null(tl_tensor_grad(NULL));
    tl_ctx_free(NULL);
    tl_trainer_free(NULL);
    tl_net_free(NULL);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    assert_int_not_equal(tl_backward(ctx, NULL, 1.0), TL_OK);
    tl_ctx_free(ctx);
}

static void shapes_that_cannot_be(void **state) {
    tl_ctx *ctx = fresh(NULL);
    tl_dim nine[9];
    (void)state;
    for (int i = 0; i < 9; i++)
        nine[i] = tl_dim_of(1);
    refused(ctx, tl_empty(ctx, TL_F32, tl_shape_of(ctx, 9, nine), TL_WORK), "8");
    assert_non_null(tl_empty(ctx, TL_F32, tl_shape_of(ctx, 8, nine), TL_WORK));
    refused(ctx, tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(INT64_C(1) << 62), tl_dim_of(4)), TL_WORK), "2^63");
    refused(ctx, tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(INT64_MAX)), TL_WORK), "2^63");
    refused(ctx, tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(-1)), TL_WORK), "-1");
    refused(ctx, tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(INT64_MIN)), TL_WORK), "beyond 64 bits");
    tl_dim huge = tl_dim_mul(ctx, tl_dim_of(INT64_MAX), tl_dim_of(2));
    refused(ctx, huge.size ? ctx : NULL, "");
    huge = tl_dim_add(ctx, tl_dim_of(INT64_MAX), tl_dim_of(1));
    refused(ctx, huge.size ? ctx : NULL, "");
    huge = tl_dim_div(ctx, tl_dim_of(4), tl_dim_of(0));
    refused(ctx, huge.size ? ctx : NULL, "");
    huge = tl_dim_ceil_div(ctx, tl_dim_of(4), 0);
    refused(ctx, huge.size ? ctx : NULL, "");
    huge = tl_dim_div(ctx, tl_dim_of(INT64_MIN), tl_dim_of(-1));
    refused(ctx, huge.size ? ctx : NULL, "");
    tl_ctx_free(ctx);
}

static void zero_sizes_pass_through(void **state) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = fresh(tl_kernels_for_cpu(NULL, &error));
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(0), tl_dim_of(4)), TL_WORK);
    tl_tensor *w = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(3), tl_dim_of(4)), TL_PARAM), 1.0);
    (void)state;
    assert_int_equal(tl_tensor_count(tl_linear(x, w, NULL)), 0);
    assert_int_equal(tl_tensor_count(tl_softmax(x, 1.0, false)), 0);
    assert_int_equal(tl_tensor_count(tl_copy(tl_transpose(x, 0, 1))), 0);
    assert_int_equal(tl_tensor_count(tl_add(x, x)), 0);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

static void contexts_do_not_mix(void **state) {
    tl_ctx *one = fresh(NULL), *two = fresh(NULL);
    tl_tensor *a = tl_empty(one, TL_F32, TL_SHAPE(one, tl_dim_of(1)), TL_WORK);
    tl_tensor *b = tl_empty(two, TL_F32, TL_SHAPE(two, tl_dim_of(1)), TL_WORK);
    (void)state;
    refused(one, tl_add(a, b), "context");
    assert_int_equal(tl_record(one, true), TL_OK);
    assert_int_equal(tl_record(two, true), TL_OK);
    tl_tensor_require_grad(a, true);
    tl_tensor_require_grad(b, true);
    tl_tensor *loss = tl_scale(a, 2.0, 0.0), *other = tl_scale(b, 2.0, 0.0);
    assert_non_null(loss);
    assert_non_null(other);
    refused(two, tl_backward(two, loss, 1.0) == TL_OK ? a : NULL, "context");
    assert_int_equal(tl_backward(one, loss, 1.0), TL_OK);
    tl_ctx_free(one);
    tl_ctx_free(two);
}

static void repetition_and_modules_have_bounds(void **state) {
    tl_ctx *ctx = fresh(NULL);
    char name[5000];
    (void)state;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int64_t count = -1; count != 0; count = count == -1 ? INT64_MAX : 0) {
        tl_repeat r = tl_repeat_begin(ctx, "N", count);
        refused(ctx, tl_repeat_next(&r) ? ctx : NULL, "would work");
    }
    tl_module_begin(ctx, name, 1);
    assert_non_null(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(4)), TL_WORK));
    tl_module_end(ctx);
    tl_ctx_clear_error(ctx);
    for (int i = 0; i < 2000; i++)
        tl_module_begin(ctx, "deep", i);
    tl_peak peak;
    tl_ledger_peak(ctx, &peak);
    for (int i = 0; i < 2000; i++)
        tl_module_end(ctx);
    tl_ctx_clear_error(ctx);
    tl_module_end(ctx); /* one too many */
    tl_ctx_clear_error(ctx);
    tl_scope_end(ctx); /* none is open */
    tl_ctx_clear_error(ctx);
    assert_non_null(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(4)), TL_WORK));
    tl_ctx_free(ctx);
}

static void symbols_run_out_with_a_message(void **state) {
    tl_ctx *ctx = fresh(NULL);
    char name[16];
    (void)state;
    tl_dim product = tl_dim_of(1);
    int i = 0;
    for (; i < 100 && tl_ctx_status(ctx) == TL_OK; i++) {
        snprintf(name, sizeof name, "S%d", i);
        product = tl_dim_mul(ctx, product, tl_dim_symbol(ctx, name, 1, "here"));
    }
    assert_in_range(i, 17, 99);
    refused(ctx, NULL, "one too many");
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_survives_every_allocation_failing),
        cmocka_unit_test(null_tensors_stay_null),
        cmocka_unit_test(shapes_that_cannot_be),
        cmocka_unit_test(zero_sizes_pass_through),
        cmocka_unit_test(contexts_do_not_mix),
        cmocka_unit_test(repetition_and_modules_have_bounds),
        cmocka_unit_test(symbols_run_out_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
