/* Layers against the CS336 assignment's values (TALLY_SHARED/suites/cs336/assignment1-npy; see suites/README.md) and the
 * small values of TALLY_SHARED/data/cs336.md. */
#include "layers.h"

#include "npy.h"

/* Reads one file of the suite; skips the test, loudly, where the suite is not there. */
static npy load(const char *name) {
    char path[512];
    npy a;
    const char *shared = getenv("TALLY_SHARED");
    snprintf(path, sizeof path, "%s/suites/cs336/assignment1-npy/%s.npy", shared ? shared : "../shared", name);
    if (!npy_read(&a, path)) {
        print_message("SKIPPED: %s cannot be read; set TALLY_SHARED\n", path);
        skip();
    }
    return a;
}

static double *doubles(const npy *a) {
    double *values = malloc((size_t)(a->count ? a->count : 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < a->count; i++)
        values[i] = npy_at(a, i);
    return values;
}

static tl_tensor *tensor_from(tl_ctx *ctx, tl_dtype dtype, const npy *a) {
    tl_dim dim[8];
    for (int i = 0; i < a->ndim; i++)
        dim[i] = tl_dim_of(a->size[i]);
    tl_dtype own = a->kind == 'f' ? (a->bytes == 8 ? TL_F64 : TL_F32) : a->bytes == 8 ? TL_I64 : TL_I32;
    return tl_cast(tl_from_data(ctx, own, tl_shape_of(ctx, a->ndim, dim), TL_DATA, a->data, a->count), dtype);
}

static void check_npy(const char *what, tl_tensor *t, const npy *expected, double tolerance) {
    double *values = doubles(expected);
    check_close(what, t, values, expected->count, tolerance);
    free(values);
}

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

static void test_softmax(void **state) {
    (void)state;
    npy x = load("softmax_in"), y = load("softmax_out_torch"), y100 = load("softmax_out_plus100_torch");
    EACH(ctx) {
        tl_tensor *t = tensor_from(ctx, TL_F32, &x);
        check_npy("softmax", tl_softmax(t, 1, false), &y, 1e-6);
        check_npy("softmax of x + 100", tl_softmax(tl_scale(t, 1, 100), 1, false), &y100, 1e-6);
    }
    npy_free(&x);
    npy_free(&y);
    npy_free(&y100);
}

static void test_cross_entropy(void **state) {
    (void)state;
    npy x = load("ce_in"), target = load("ce_target");
    /* the handout's tests: data/cs336.md */
    static const double plain[] = {1.60947275}, large[] = {272.962494};
    EACH(ctx) {
        tl_tensor *logits = tensor_from(ctx, TL_F32, &x), *targets = tensor_from(ctx, TL_I64, &target);
        check_close("cross-entropy", tl_cross_entropy(logits, targets, -100), plain, 1, 1e-6);
        tl_tensor *times = tl_scale(logits, 1000, 0);
        check_close("cross-entropy × 1000", tl_cross_entropy(times, targets, -100), large, 1, 1e-6);
    }
    npy_free(&x);
    npy_free(&target);
}

static void test_silu(void **state) {
    (void)state;
    npy x = load("silu_in"), y = load("silu_out_torch");
    EACH(ctx)
    check_npy("SiLU", tl_silu(tensor_from(ctx, TL_F32, &x)), &y, 1e-6);
    npy_free(&x);
    npy_free(&y);
}

static void test_rope(void **state) {
    (void)state;
    npy x = load("input_in_embeddings"), y = load("expected_test_rope");
    tl_rotary_options options = {.theta = 10000, .interleaved = true};
    EACH(ctx)
    check_npy("RoPE", tl_rotary(tensor_from(ctx, TL_F32, &x), &options), &y, 2e-6);
    npy_free(&x);
    npy_free(&y);
}

/* The table is not in the suite: its rows are put where the expected output has them. */
static void test_embedding(void **state) {
    (void)state;
    npy ids = load("input_in_indices"), y = load("expected_test_embedding");
    int64_t width = y.size[y.ndim - 1], height = 10000;
    double *table = calloc((size_t)(height * width), sizeof *table);
    assert_non_null(table);
    for (int64_t i = 0; i < ids.count; i++)
        for (int64_t d = 0; d < width; d++)
            table[(int64_t)npy_at(&ids, i) * width + d] = npy_at(&y, i * width + d);
    EACH(ctx) {
        tl_tensor *t = tensor_of(ctx, TL_F32, table, 2, (int)height, (int)width);
        check_npy("embedding", tl_embedding(t, tensor_from(ctx, TL_I64, &ids)), &y, 0);
        check_npy("embedding, i32", tl_embedding(t, tensor_from(ctx, TL_I32, &ids)), &y, 0);
    }
    free(table);
    npy_free(&ids);
    npy_free(&y);
}

static void test_attention(void **state) {
    (void)state;
    npy q = load("input_q"), k = load("input_k"), v = load("input_v"), mask = load("input_mask");
    npy expected = load("expected_test_scaled_dot_product_attention");
    npy four = load("expected_test_4d_scaled_dot_product_attention");
    double *bias = doubles(&mask);
    for (int64_t i = 0; i < mask.count; i++)
        bias[i] = bias[i] != 0 ? 0 : -INFINITY; /* True means attend */
    EACH(ctx) {
        tl_tensor *tq = tensor_from(ctx, TL_F32, &q), *tk = tensor_from(ctx, TL_F32, &k),
                  *tv = tensor_from(ctx, TL_F32, &v);
        tl_tensor *hidden = tensor_of(ctx, TL_F32, bias, 3, 4, 12, 16);
        tl_tensor *scores = tl_add(tl_matmul(tq, tl_transpose(tk, -1, -2)), hidden);
        check_npy("attention", tl_matmul(tl_softmax(scores, 0.125, false), tv), &expected, 2e-6);
        tl_dim two = tl_dim_of(2), rows = tl_dim_of(12), keys = tl_dim_of(16), width = tl_dim_of(64);
        tq = tl_view(tq, TL_SHAPE(ctx, two, two, rows, width));
        tk = tl_view(tk, TL_SHAPE(ctx, two, two, keys, width));
        tv = tl_view(tv, TL_SHAPE(ctx, two, two, keys, width));
        hidden = tl_view(hidden, TL_SHAPE(ctx, two, two, rows, keys));
        scores = tl_add(tl_matmul(tq, tl_transpose(tk, -1, -2)), hidden);
        check_npy("attention, 4 axes", tl_matmul(tl_softmax(scores, 0.125, false), tv), &four, 2e-6);
    }
    free(bias);
    npy_free(&q);
    npy_free(&k);
    npy_free(&v);
    npy_free(&mask);
    npy_free(&expected);
    npy_free(&four);
}

/* The assignment's stream: a linear layer learns [x0 + x1, −x2] in 1000 steps of AdamW. The losses and the weights are
 * torch's; the assignment accepts its own within 1e-4. */
static void test_adamw_stream(void **state) {
    (void)state;
    npy x = load("adamw_x_1000x3"), w0 = load("adamw_w0"), losses = load("adamw_loss_torch");
    npy last = load("adamw_final_torch1.13.1"), own = load("expected_test_adamw");
    static const double zero[6];
    EACH(ctx) {
        tl_tensor *w = leaf_of(tensor_from(ctx, TL_F32, &w0));
        tl_tensor *m = tensor_of(ctx, TL_F32, zero, 2, 2, 3), *v = tensor_of(ctx, TL_F32, zero, 2, 2, 3);
        for (int t = 0; t < 1000; t++) {
            double row[3] = {npy_at(&x, 3 * t), npy_at(&x, 3 * t + 1), npy_at(&x, 3 * t + 2)};
            double wanted[2] = {(double)(float)(row[0] + row[1]), -row[2]}, loss = 0;
            tl_adamw_options options = {1e-3, 0.9, 0.999, 1e-8, 0.01, t + 1, false};
            tl_scope_begin(ctx);
            tl_record(ctx, true);
            tl_tensor *y = tl_linear(tensor_of(ctx, TL_F32, row, 1, 3), w, NULL);
            tl_tensor *mean = tl_mse(y, tensor_of(ctx, TL_F32, wanted, 1, 2));
            tl_record(ctx, false);
            check_ok(ctx);
            assert_int_equal(tl_item(mean, &loss), TL_OK);
            double expected = npy_at(&losses, t);
            if (!(fabs(2 * loss - expected) <= 1e-5 * (1 + expected)))
                fail_msg("step %d: loss %.9g, expected %.9g", t, 2 * loss, expected);
            assert_int_equal(tl_backward(ctx, mean, 2), TL_OK); /* the stream sums the two squares */
            assert_int_equal(tl_adamw_update(w, tl_tensor_grad(w), m, v, NULL, &options), TL_OK);
            tl_tensor_clear_grad(w);
            tl_scope_end(ctx);
        }
        check_npy("weights after 1000 steps", w, &last, 1e-5);
        check_npy("the assignment's weights", w, &own, 1e-4);
    }
    npy_free(&x);
    npy_free(&w0);
    npy_free(&losses);
    npy_free(&last);
    npy_free(&own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),      cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_silu),
        cmocka_unit_test(test_rope),         cmocka_unit_test(test_embedding),     cmocka_unit_test(test_attention),
        cmocka_unit_test(test_adamw_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
