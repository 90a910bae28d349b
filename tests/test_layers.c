/* Layers, losses and optimizer updates against torch's values (tests/fixtures/make_layer_fixtures.py), on every kernel
 * table, in f64 and f32. */
#include "layers.h"

#include "fixtures/layer_fixtures.h"

static const tl_dtype dtypes[] = {TL_F64, TL_F32};

static double tolerance_of(tl_dtype dtype) { return dtype == TL_F64 ? 1e-12 : 4e-6; }

typedef void body(tl_ctx *ctx, tl_dtype dtype, double tolerance);

static void each(body *run) {
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)
        for (int d = 0; d < 2; d++) {
            tl_ctx *ctx = new_ctx(*kernels, d == 1);
            tl_record(ctx, true);
            run(ctx, dtypes[d], tolerance_of(dtypes[d]));
            check_ok(ctx);
            tl_ctx_free(ctx);
        }
}

#define CHECK(what, t, expected) check_close(what, (t), (expected), COUNT(expected), tolerance)
#define CHECK_GRAD(what, t, expected) CHECK(what, tl_tensor_grad(t), expected)

static void run_linear(tl_ctx *ctx, tl_dtype dtype, double tolerance) {
    tl_tensor *x = leaf_of(tensor_of(ctx, dtype, linear_x, 3, 2, 3, 4)),
              *w = leaf_of(tensor_of(ctx, dtype, linear_w, 2, 5, 4));
    tl_tensor *b = leaf_of(tensor_of(ctx, dtype, linear_b, 1, 5)), *g = tensor_of(ctx, dtype, linear_g, 3, 2, 3, 5);
    tl_tensor *y = tl_linear(x, w, b);
    CHECK("linear", y, linear_y);
    backward_with(y, g);
    CHECK_GRAD("linear dx", x, linear_dx);
    CHECK_GRAD("linear dw", w, linear_dw);
    CHECK_GRAD("linear db", b, linear_db);
    /* a second step adds into the weight's gradient by the product itself */
    double twice[COUNT(linear_dw)];
    for (int64_t i = 0; i < COUNT(linear_dw); i++)
        twice[i] = 2 * linear_dw[i];
    tl_record(ctx, true);
    backward_with(tl_linear(x, w, NULL), g);
    CHECK_GRAD("linear dw twice", w, twice);
}

static void test_linear(void **state) {
    (void)state;
    each(run_linear);
}

static void run_layer_norm(tl_ctx *ctx, tl_dtype dtype, double tolerance) {
    for (int mask = 1; mask < 8; mask++) { /* each choice of gradients */
        tl_tensor *in[3] = {tensor_of(ctx, dtype, layer_x, 3, 2, 33, 3), tensor_of(ctx, dtype, layer_gain, 1, 3),
                            tensor_of(ctx, dtype, layer_bias, 1, 3)};
        tl_tensor *g = tensor_of(ctx, dtype, layer_g, 3, 2, 33, 3);
        for (int i = 0; i < 3; i++)
            tl_tensor_require_grad(in[i], mask >> i & 1);
        tl_record(ctx, true);
        tl_tensor *y = tl_layer_norm(in[0], in[1], in[2], 1e-5);
        CHECK("layer norm", y, layer_y);
        backward_with(y, g);
        if (mask & 1)
            CHECK_GRAD("layer norm dx", in[0], layer_dx);
        if (mask & 2)
            CHECK_GRAD("layer norm dgain", in[1], layer_dgain);
        if (mask & 4)
            CHECK_GRAD("layer norm dbias", in[2], layer_dbias);
        for (int i = 0; i < 3; i++)
            assert_int_equal(tl_tensor_grad(in[i]) != NULL, mask >> i & 1);
    }
}

static void test_layer_norm(void **state) {
    (void)state;
    each(run_layer_norm);
}

static void run_rms_norm(tl_ctx *ctx, tl_dtype dtype, double tolerance) {
    for (int mask = 1; mask < 4; mask++) {
        tl_tensor *in[2] = {tensor_of(ctx, dtype, rms_x, 3, 2, 33, 3), tensor_of(ctx, dtype, rms_gain, 1, 3)};
        tl_tensor *g = tensor_of(ctx, dtype, rms_g, 3, 2, 33, 3);
        for (int i = 0; i < 2; i++)
            tl_tensor_require_grad(in[i], mask >> i & 1);
        tl_record(ctx, true);
        tl_tensor *y = tl_rms_norm(in[0], in[1], 1e-6);
        CHECK("RMS norm", y, rms_y);
        backward_with(y, g);
        if (mask & 1)
            CHECK_GRAD("RMS norm dx", in[0], rms_dx);
        if (mask & 2)
            CHECK_GRAD("RMS norm dgain", in[1], rms_dgain);
    }
}

static void test_rms_norm(void **state) {
    (void)state;
    each(run_rms_norm);
}

#define UNARY(name, call, x_, y_, g_, dx_)                                                                             \
    static void name(tl_ctx *ctx, tl_dtype dtype, double tolerance) {                                                  \
        tl_tensor *x = leaf_of(tensor_of(ctx, dtype, x_, 1, 12)), *y = call(x);                                        \
        CHECK(#call, y, y_);                                                                                           \
        backward_with(y, tensor_of(ctx, dtype, g_, 1, 12));                                                            \
        CHECK_GRAD(#call " dx", x, dx_);                                                                               \
    }
UNARY(run_gelu_tanh, tl_gelu_tanh, tanhgelu_x, tanhgelu_y, tanhgelu_g, tanhgelu_dx)
UNARY(run_gelu_erf, tl_gelu_erf, erfgelu_x, erfgelu_y, erfgelu_g, erfgelu_dx)
UNARY(run_silu, tl_silu, silu_x, silu_y, silu_g, silu_dx)

static void test_activations(void **state) {
    (void)state;
    each(run_gelu_tanh);
    each(run_gelu_erf);
    each(run_silu);
}

static void run_softmax(tl_ctx *ctx, tl_dtype dtype, double tolerance) {
    tl_tensor *x = leaf_of(tensor_of(ctx, dtype, causal_x, 3, 2, 3, 5)), *y = tl_softmax(x, 0.5, true);
    CHECK("softmax", y, causal_y);
    backward_with(y, tensor_of(ctx, dtype, causal_g, 3, 2, 3, 5));
    CHECK_GRAD("softmax dx", x, causal_dx);
}

static void test_softmax(void **state) {
    (void)state;
    each(run_softmax);
}

static void run_rotary(tl_ctx *ctx, tl_dtype dtype, double tolerance) {
    tl_rotary_options options = {.theta = 10000, .first_position = 7};
    tl_tensor *x = leaf_of(tensor_of(ctx, dtype, rotary_x, 3, 2, 3, 8)), *y = tl_rotary(x, &options);
    CHECK("rotary", y, rotary_y);
    backward_with(y, tensor_of(ctx, dtype, rotary_g, 3, 2, 3, 8));
    CHECK_GRAD("rotary dx", x, rotary_dx);
    tl_rotary_options llama = {
        .theta = 500, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 64};
    tl_record(ctx, true);
    x = leaf_of(tensor_of(ctx, dtype, scaled_x, 3, 1, 40, 8));
    y = tl_rotary(x, &llama);
    CHECK("rotary, Llama 3.1", y, scaled_y);
    backward_with(y, tensor_of(ctx, dtype, scaled_g, 3, 1, 40, 8));
    CHECK_GRAD("rotary, Llama 3.1, dx", x, scaled_dx);
}

static void test_rotary(void **state) {
    (void)state;
    each(run_rotary);
}

static tl_tensor *indices_of(tl_ctx *ctx, tl_dtype dtype, const int64_t *values, int64_t rows, int64_t columns) {
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(rows), tl_dim_of(columns));
    return tl_cast(tl_from_data(ctx, TL_I64, shape, TL_DATA, values, rows * columns), dtype);
}

static void run_cross_entropy(tl_ctx *ctx, tl_dtype dtype, double tolerance) {
    for (int narrow = 0; narrow < 2; narrow++) {
        tl_tensor *x = leaf_of(tensor_of(ctx, dtype, entropy_x, 3, 2, 4, 7));
        tl_tensor *target = indices_of(ctx, narrow ? TL_I32 : TL_I64, entropy_target, 2, 4);
        CHECK("cross-entropy, inference", (tl_record(ctx, false), tl_cross_entropy(x, target, -100)), entropy_y);
        tl_record(ctx, true);
        tl_tensor *loss = tl_cross_entropy(x, target, -100);
        CHECK("cross-entropy", loss, entropy_y);
        backward_with(loss, NULL);
        CHECK_GRAD("cross-entropy dx", x, entropy_dx);
    }
}

static void test_cross_entropy(void **state) {
    (void)state;
    each(run_cross_entropy);
}

static void run_mse(tl_ctx *ctx, tl_dtype dtype, double tolerance) {
    tl_tensor *a = leaf_of(tensor_of(ctx, dtype, mse_a, 2, 3, 4)), *b = leaf_of(tensor_of(ctx, dtype, mse_b, 2, 3, 4));
    tl_tensor *loss = tl_mse(a, b);
    CHECK("MSE", loss, mse_y);
    backward_with(loss, NULL);
    CHECK_GRAD("MSE da", a, mse_da);
    CHECK_GRAD("MSE db", b, mse_db);
}

static void test_mse(void **state) {
    (void)state;
    each(run_mse);
}

static void run_embedding(tl_ctx *ctx, tl_dtype dtype, double tolerance) {
    tl_tensor *table = leaf_of(tensor_of(ctx, dtype, embedding_table, 2, 6, 3));
    tl_tensor *y = tl_embedding(table, indices_of(ctx, TL_I64, embedding_ids, 2, 3));
    CHECK("embedding", y, embedding_y);
    backward_with(y, tensor_of(ctx, dtype, embedding_g, 3, 2, 3, 3));
    CHECK_GRAD("embedding dtable", table, embedding_dtable);
}

static void test_embedding(void **state) {
    (void)state;
    each(run_embedding);
}

/* ---- optimizer updates: three steps each ---- */

typedef tl_status step(tl_tensor *p, tl_tensor *g, tl_tensor *a, tl_tensor *b, tl_tensor *copy, int t);

static tl_status step_adamw(tl_tensor *p, tl_tensor *g, tl_tensor *m, tl_tensor *v, tl_tensor *copy, int t) {
    tl_adamw_options options = {1e-2, 0.9, 0.95, 1e-3, 0.1, t, false};
    return tl_adamw_update(p, g, m, v, copy, &options);
}

static tl_status step_cs336(tl_tensor *p, tl_tensor *g, tl_tensor *m, tl_tensor *v, tl_tensor *copy, int t) {
    tl_adamw_options options = {1e-2, 0.9, 0.95, 1e-3, 0.1, t, true};
    return tl_adamw_update(p, g, m, v, copy, &options);
}

static tl_status step_sgd(tl_tensor *p, tl_tensor *g, tl_tensor *a, tl_tensor *b, tl_tensor *copy, int t) {
    (void)a;
    (void)b;
    return tl_sgd_update(p, g, NULL, copy, 0.1, 0, 0.01, false, t == 1);
}

static tl_status step_momentum(tl_tensor *p, tl_tensor *g, tl_tensor *a, tl_tensor *b, tl_tensor *copy, int t) {
    (void)b;
    return tl_sgd_update(p, g, a, copy, 0.1, 0.9, 0.01, false, t == 1);
}

static tl_status step_nesterov(tl_tensor *p, tl_tensor *g, tl_tensor *a, tl_tensor *b, tl_tensor *copy, int t) {
    (void)b;
    return tl_sgd_update(p, g, a, copy, 0.1, 0.9, 0.01, true, t == 1);
}

static tl_status step_adagrad(tl_tensor *p, tl_tensor *g, tl_tensor *a, tl_tensor *b, tl_tensor *copy, int t) {
    (void)b;
    (void)t;
    return tl_adagrad_update(p, g, a, copy, (&(tl_adagrad_options){.lr = 0.1, .epsilon = 1e-2}));
}

static void run_steps(tl_ctx *ctx, tl_dtype dtype, double tolerance, step *update, const double *p0, const double *g,
                      const double *after) {
    static const double zero[5];
    tl_tensor *p = leaf_of(tensor_of(ctx, dtype, p0, 1, 5)), *a = tensor_of(ctx, dtype, zero, 1, 5);
    tl_tensor *b = tensor_of(ctx, dtype, zero, 1, 5), *copy = tensor_of(ctx, TL_BF16, zero, 1, 5);
    for (int t = 1; t <= 3; t++) {
        uint32_t version = tl_tensor_version(p);
        assert_int_equal(update(p, tensor_of(ctx, dtype, g + 5 * (t - 1), 1, 5), a, b, t == 2 ? NULL : copy, t), TL_OK);
        check_close("parameter", p, after + 5 * (t - 1), 5, tolerance);
        assert_int_equal(tl_tensor_version(p), version + 1);
        if (t != 2) /* bf16 keeps 8 bits: half a unit in the last place is at most 2^-8 */
            check_close("copy", copy, after + 5 * (t - 1), 5, 0x1p-8);
    }
}

#define STEPS(name)                                                                                                    \
    static void run_##name(tl_ctx *ctx, tl_dtype dtype, double tolerance) {                                            \
        run_steps(ctx, dtype, tolerance, step_##name, name##_p, name##_g, name##_after);                               \
    }                                                                                                                  \
    static void test_##name(void **state) {                                                                            \
        (void)state;                                                                                                   \
        each(run_##name);                                                                                              \
    }
STEPS(adamw)
STEPS(cs336)
STEPS(sgd)
STEPS(momentum)
STEPS(nesterov)
STEPS(adagrad)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),        cmocka_unit_test(test_layer_norm), cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_activations),   cmocka_unit_test(test_softmax),    cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_mse),        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_adamw),         cmocka_unit_test(test_cs336),      cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_momentum),      cmocka_unit_test(test_nesterov),   cmocka_unit_test(test_adagrad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
