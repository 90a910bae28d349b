/* Autocast: a rule for every op, and what the rules do. Expected lists: PyTorch 1.13's "Automatic Mixed Precision: op
 * reference" (CUDA ops that autocast to float16, to float32, to the widest input type). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tally/account.h"
#include "tally/cpu.h"
#include "tally/grad.h"
#include "tally/op.h"
#include "tally/ops.h"

/* An op that was added without a rule fails here, and is refused under autocast. */
static void every_op_has_a_rule(void **state) {
    (void)state;
    int missing = 0;
    assert_true(tl_op_list_count > 150);
    for (int k = 0; k < tl_op_list_count; k++)
        if (tl_autocast_rule_of(tl_op_list[k]) == TL_AUTOCAST_NO_RULE) {
            print_message("%s has no rule in src/grad/autocast.c\n", tl_op_list[k]->name);
            missing++;
        }
    assert_int_equal(missing, 0);
    tl_op stranger = *tl_op_list[0];
    stranger.name = "stranger";
    assert_int_equal(tl_autocast_rule_of(&stranger), TL_AUTOCAST_NO_RULE);
}

static tl_autocast_rule rule_named(const char *name) {
    for (int k = 0; k < tl_op_list_count; k++)
        if (strcmp(tl_op_list[k]->name, name) == 0)
            return tl_autocast_rule_of(tl_op_list[k]);
    fail_msg("there is no op %s", name);
    return TL_AUTOCAST_NO_RULE;
}

static void rules_follow_pytorch(void **state) {
    (void)state;
    static const char *const low[] = {"matmul", "linear"};
    static const char *const wide[] = {"exp",        "log",         "power",    "reciprocal", "rsqrt",
                                       "layer_norm", "softmax",     "prod",     "sum",        "cumsum",
                                       "cumprod",    "log_softmax", "nll_loss", "mse",        "softplus"};
    for (size_t i = 0; i < sizeof low / sizeof *low; i++)
        assert_int_equal(rule_named(low[i]), TL_AUTOCAST_LOW);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (rule_named(wide[i]) != TL_AUTOCAST_FLOAT)
            fail_msg("%s: %s", wide[i], tl_autocast_rule_name(rule_named(wide[i])));
    assert_int_equal(rule_named("concat"), TL_AUTOCAST_WIDEST); /* cat, stack */
    assert_int_equal(rule_named("relu"), TL_AUTOCAST_KEEP);     /* in no list: as its input comes */
}

static tl_ctx *context(const tl_kernels *kernels) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = kernels}, &error);
    assert_non_null(ctx);
    return ctx;
}

static tl_tensor *filled(tl_ctx *ctx, tl_dtype dtype, int64_t rows, int64_t columns, double value) {
    return tl_fill(tl_empty(ctx, dtype, TL_SHAPE(ctx, tl_dim_of(rows), tl_dim_of(columns)), TL_WORK), value);
}

/* Casts are ops: their bytes are in the ledger, where they happen, and on meta as elsewhere. */
static void casts_are_booked(void **state) {
    (void)state;
    const tl_kernels *const devices[] = {NULL, tl_kernels_portable()};
    for (int d = 0; d < 2; d++) {
        tl_ctx *ctx = context(devices[d]);
        int64_t before = tl_ledger_live_total(ctx);
        tl_scope_begin(ctx);
        tl_tensor *x = filled(ctx, TL_F32, 3, 5, 0.5), *w = filled(ctx, TL_F32, 7, 5, 0.25);
        tl_ledger_step_begin(ctx);
        tl_counts counts;
        assert_int_equal(tl_autocast(ctx, TL_BF16), TL_OK);
        tl_tensor *y = tl_linear(x, w, NULL);
        assert_int_equal(tl_tensor_dtype(y), TL_BF16);
        tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
        assert_int_equal(counts.ops, 3);
        /* x: 15 elements read in 4 bytes, written in 2; w: 35; the product reads 15 + 35 and writes 21 of 2 bytes each */
        assert_true(counts.read == 4 * 15 + 4 * 35 + 2 * (15 + 35));
        assert_true(counts.written == 2 * 15 + 2 * 35 + 2 * 21);
        assert_int_equal(tl_tensor_dtype(tl_softmax(y, 1, false)), TL_F32);
        assert_int_equal(tl_tensor_dtype(tl_relu(y)), TL_BF16);
        assert_int_equal(tl_tensor_dtype(tl_add(y, filled(ctx, TL_F32, 3, 7, 1))), TL_F32);
        assert_int_equal(tl_tensor_dtype(tl_add(y, y)), TL_BF16);
        tl_tensor *wide = filled(ctx, TL_F64, 3, 5, 1); /* f64 is never cast */
        assert_int_equal(tl_tensor_dtype(tl_matmul(wide, tl_transpose(wide, 0, 1))), TL_F64);
        assert_int_equal(tl_autocast(ctx, TL_F32), TL_OK); /* off */
        assert_int_equal(tl_tensor_dtype(tl_linear(x, w, NULL)), TL_F32);
        assert_int_equal(tl_ctx_status(ctx), TL_OK);
        tl_scope_end(ctx);
        assert_int_equal(tl_ledger_live_total(ctx), before);
        tl_ctx_free(ctx);
    }
}

/* Gradients come back in the parameter's own format: d(Σ x·wᵀ)/dw is Σ x over its rows: 3 · 0.5. */
static void gradients_are_cast_back(void **state) {
    (void)state;
    tl_ctx *ctx = context(tl_kernels_portable());
    tl_scope_begin(ctx);
    tl_tensor *x = filled(ctx, TL_F32, 3, 5, 0.5), *w = filled(ctx, TL_F32, 7, 5, 0.25);
    tl_tensor_require_grad(w, true);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    assert_int_equal(tl_autocast(ctx, TL_F16), TL_OK);
    tl_tensor *loss = tl_sum(tl_linear(x, w, NULL), NULL, 0, false);
    assert_int_equal(tl_tensor_dtype(loss), TL_F32); /* sums are in f32 */
    assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
    assert_int_equal(tl_tensor_dtype(tl_linear(x, w, NULL)), TL_F16); /* still on */
    float g[35];
    assert_int_equal(tl_tensor_dtype(tl_tensor_grad(w)), TL_F32);
    assert_int_equal(tl_tensor_read(tl_tensor_grad(w), g, sizeof g), TL_OK);
    for (int i = 0; i < 35; i++)
        assert_true(g[i] == 1.5f);
    tl_tensor_clear_grad(w);
    tl_tape_clear(ctx);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
}

static void refuses_other_formats(void **state) {
    (void)state;
    tl_ctx *ctx = context(NULL);
    assert_int_equal(tl_autocast(ctx, TL_F64), TL_ERR_DTYPE);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, "bf16 or f16"));
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_rule),   cmocka_unit_test(rules_follow_pytorch),
        cmocka_unit_test(casts_are_booked),      cmocka_unit_test(gradients_are_cast_back),
        cmocka_unit_test(refuses_other_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
