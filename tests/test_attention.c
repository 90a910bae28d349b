/* Attention, group norm and weighted losses with their gradients beside torch (tests/fixtures/make_attention_fixtures.py), what a
 * row sees that sees nothing, targets that do not count, and what is refused. */
#include "layers.h"

#include "fixtures/attention_fixtures.h"
#include "tally/ops_layers.h"

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

static const double zeros[256];

static void check_grad(const char *what, tl_tensor *t, const double *expected, int64_t count) {
    check_close(what, tl_tensor_grad(t), expected, count, 1e-12);
}

static void test_against_torch(void **state) {
    (void)state;
    EACH(ctx) {
        tl_record(ctx, true);
        tl_tensor *q = leaf_of(tensor_of(ctx, TL_F64, attention_q, 4, 2, 4, 3, 4));
        tl_tensor *k = leaf_of(tensor_of(ctx, TL_F64, attention_k, 4, 2, 2, 3, 4));
        tl_tensor *v = leaf_of(tensor_of(ctx, TL_F64, attention_v, 4, 2, 2, 3, 5));
        tl_tensor *past_key = leaf_of(tensor_of(ctx, TL_F64, attention_past_key, 4, 2, 2, 3, 4));
        tl_tensor *past_value = leaf_of(tensor_of(ctx, TL_F64, attention_past_value, 4, 2, 2, 3, 5));
        tl_tensor *mask = leaf_of(tensor_of(ctx, TL_F64, attention_mask, 4, 2, 1, 3, 6));
        tl_attention_options o = {.softcap = 2, .causal = true, .window = true, .before = 4, .after = -1};
        o.mask = mask;
        o.past_key = past_key;
        o.past_value = past_value;
        tl_tensor *y = tl_attention(q, k, v, &o);
        check_close("attention", y, attention_y, COUNT(attention_y), 1e-12);
        backward_with(y, tensor_of(ctx, TL_F64, attention_g, 4, 2, 4, 3, 5));
        check_grad("dq", q, attention_dq, COUNT(attention_dq));
        check_grad("dk", k, attention_dk, COUNT(attention_dk));
        check_grad("dv", v, attention_dv, COUNT(attention_dv));
        check_grad("dpast_key", past_key, attention_dpast_key, COUNT(attention_dpast_key));
        check_grad("dpast_value", past_value, attention_dpast_value, COUNT(attention_dpast_value));
        check_grad("dmask", mask, attention_dmask, COUNT(attention_dmask));
        tl_tape_clear(ctx);
        tl_record(ctx, true);
        tl_tensor *x = leaf_of(tensor_of(ctx, TL_F64, group_x, 4, 2, 6, 3, 2));
        tl_tensor *gain = leaf_of(tensor_of(ctx, TL_F64, group_gain, 1, 6));
        tl_tensor *bias = leaf_of(tensor_of(ctx, TL_F64, group_bias, 1, 6));
        y = tl_group_norm(x, gain, bias, 3, 1e-5);
        check_close("group norm", y, group_y, COUNT(group_y), 1e-12);
        backward_with(y, tensor_of(ctx, TL_F64, group_g, 4, 2, 6, 3, 2));
        check_grad("group dx", x, group_dx, COUNT(group_dx));
        check_grad("group dgain", gain, group_dgain, 6);
        check_grad("group dbias", bias, group_dbias, 6);
        tl_tape_clear(ctx);
    }
}

static void test_losses(void **state) {
    (void)state;
    static const struct {
        const double *x, *w, *y, *g, *dx, *dw;
        tl_loss_reduction reduction;
    } c[] = {{loss_mean_x, loss_mean_w, loss_mean_y, NULL, loss_mean_dx, loss_mean_dw, TL_LOSS_MEAN},
             {loss_sum_x, loss_sum_w, loss_sum_y, NULL, loss_sum_dx, loss_sum_dw, TL_LOSS_SUM},
             {loss_none_x, loss_none_w, loss_none_y, loss_none_g, loss_none_dx, loss_none_dw, TL_LOSS_NONE}};
    EACH(ctx)
    for (int i = 0; i < 3; i++) {
        tl_shape shape = TL_SHAPE(ctx, tl_dim_of(3), tl_dim_of(2), tl_dim_of(2));
        tl_tensor *targets = tl_from_data(ctx, TL_I64, shape, TL_DATA, loss_targets, 12);
        tl_record(ctx, true);
        tl_tensor *x = leaf_of(tensor_of(ctx, TL_F64, c[i].x, 4, 3, 5, 2, 2));
        tl_tensor *w = leaf_of(tensor_of(ctx, TL_F64, c[i].w, 1, 5));
        tl_loss_options o = {c[i].reduction, true, 1};
        tl_tensor *y = tl_cross_entropy_loss(x, targets, w, &o, NULL);
        check_close("loss", y, c[i].y, c[i].g ? 12 : 1, 1e-13);
        backward_with(y, c[i].g ? tensor_of(ctx, TL_F64, c[i].g, 3, 3, 2, 2) : NULL);
        check_grad("loss dx", x, c[i].dx, 60);
        check_grad("loss dw", w, c[i].dw, 5);
        tl_tape_clear(ctx);
        /* without weights the mean goes to cross_entropy: the same number as by log softmax */
        o.reduction = TL_LOSS_MEAN;
        double by_rows;
        tl_tensor *log_p;
        assert_int_equal(tl_item(tl_cross_entropy_loss(x, targets, NULL, &o, NULL), &by_rows), TL_OK);
        check_close("two ways", tl_cross_entropy_loss(x, targets, NULL, &o, &log_p), &by_rows, 1, 1e-13);
        check_close("Σp = 1", tl_sum(tl_exp(log_p), (int[]){1}, 1, false),
                    (double[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 12, 1e-13);
    }
}

/* FAULTS: all targets ignored is 0/0 elsewhere; a target of −4 is accepted elsewhere. */
static void test_targets(void **state) {
    (void)state;
    static const double logits[] = {1, 2, 3, 4, 5, 6};
    static const int64_t ignored[] = {-1, -1}, outside[] = {0, -4}, beyond[] = {3, 0};
    EACH(ctx)
    for (int reduction = 0; reduction < 3; reduction++) {
        tl_loss_options o = {(tl_loss_reduction)reduction, true, -1};
        tl_shape two = TL_SHAPE(ctx, tl_dim_of(2));
        tl_record(ctx, true);
        tl_tensor *x = leaf_of(tensor_of(ctx, TL_F32, logits, 2, 2, 3));
        tl_tensor *w = leaf_of(tensor_of(ctx, TL_F32, logits, 1, 3));
        tl_tensor *loss = tl_cross_entropy_loss(x, tl_from_data(ctx, TL_I64, two, TL_DATA, ignored, 2), w, &o, NULL);
        check_close("all ignored", loss, zeros, reduction == TL_LOSS_NONE ? 2 : 1, 0);
        backward_with(reduction == TL_LOSS_NONE ? tl_sum(loss, NULL, 0, false) : loss, NULL);
        check_close("all ignored, dx", tl_tensor_grad(x), zeros, 6, 0);
        check_close("all ignored, dw", tl_tensor_grad(w), zeros, 3, 0);
        tl_tape_clear(ctx);
        assert_null(tl_nll_loss(x, tl_from_data(ctx, TL_I64, two, TL_DATA, outside, 2), w, &o));
        check_fails(ctx, TL_ERR_ARGUMENT, "the target at position 1 is outside 0 … 2 and is not the ignored index -1");
        o.ignores = false;
        assert_null(tl_nll_loss(x, tl_from_data(ctx, TL_I64, two, TL_DATA, ignored, 2), NULL, &o));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 0 is outside 0 … 2");
        assert_null(tl_nll_loss(x, tl_from_data(ctx, TL_I64, two, TL_DATA, beyond, 2), NULL, &o));
        check_fails(ctx, TL_ERR_ARGUMENT, "position 0");
        assert_null(tl_nll_loss(x, x, NULL, &o));
        check_fails(ctx, TL_ERR_DTYPE, "i32 or i64");
        assert_null(tl_nll_loss(x, tl_from_data(ctx, TL_I64, two, TL_DATA, ignored, 2), x, &o));
        check_fails(ctx, TL_ERR_SHAPE, "the class weights");
    }
}

/* FAULTS: fully masked rows are NaN, uniform or a mean of v elsewhere. Here: 0, with gradients that are 0, whatever hides them and
 * whatever lies in what is hidden. */
static void test_masked_rows(void **state) {
    (void)state;
    enum { MASK_BOOL, MASK_FLOAT, LENGTHS, WINDOW, WAYS };
    static const unsigned char sees[] = {0, 0, 1, 0};
    static const double minus[] = {-INFINITY, -INFINITY, 0, -INFINITY}, q[] = {1, 2, 3, 4}, v[] = {5, 6, 7, 8};
    static const double y_expected[] = {0, 0, 5, 6}, dv[] = {1, 1, 0, 0}, ones[] = {1, 1, 1, 1};
    static const int64_t one_key[] = {1};
    double k[] = {1, 1, NAN, INFINITY}; /* the second key is never seen */
    EACH(ctx)
    for (int way = 0; way < WAYS; way++) {
        tl_shape two = TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(2));
        tl_tensor *a = leaf_of(tensor_of(ctx, TL_F32, q, 4, 1, 1, 2, 2));
        tl_tensor *values = leaf_of(tensor_of(ctx, TL_F32, v, 4, 1, 1, 2, 2));
        tl_attention_options o = {.scale = 1};
        if (way == MASK_BOOL)
            o.mask = tl_from_data(ctx, TL_BOOL, two, TL_DATA, sees, 4);
        else if (way == MASK_FLOAT)
            o.mask = tensor_of(ctx, TL_F32, minus, 2, 2, 2);
        else if (way == LENGTHS) { /* one key for two rows: the first is before it */
            o.causal = true;
            o.lengths = tl_from_data(ctx, TL_I64, TL_SHAPE(ctx, tl_dim_of(1)), TL_DATA, one_key, 1);
        } else { /* row i sees column i − 1 */
            o.window = true;
            o.before = 1;
            o.causal = true;
            o.after = 0;
            o.mask = tl_from_data(ctx, TL_BOOL, two, TL_DATA, sees, 4);
        }
        tl_record(ctx, true);
        tl_tensor *y = tl_attention(a, tensor_of(ctx, TL_F32, k, 4, 1, 1, 2, 2), values, &o);
        check_close("a row that sees nothing", y, y_expected, 4, 0);
        backward_with(y, tensor_of(ctx, TL_F32, ones, 4, 1, 1, 2, 2));
        check_close("dv", tl_tensor_grad(values), dv, 4, 0);
        tl_tape_clear(ctx);
    }
}

/* The gradient with regard to scores stays finite and is 0 in such a row. */
static void test_masked_gradient(void **state) {
    (void)state;
    static const double x[] = {1, 2, 3, 4}, g[] = {1, 2, 3, 5}, dx[] = {0, 0, -0.5, 0.5};
    static const unsigned char sees[] = {0, 0, 1, 1};
    static const double same[] = {3, 3};
    EACH(ctx) {
        tl_record(ctx, true);
        tl_tensor *t =
            leaf_of(tl_expand(tensor_of(ctx, TL_F64, same, 2, 2, 1), TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(2))));
        tl_tensor *mask = tl_from_data(ctx, TL_BOOL, TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(2)), TL_DATA, sees, 4);
        tl_mask_options o = {.scale = 1, .window_before = -1, .window_after = -1};
        tl_tensor *y = tl_masked_softmax(t, mask, NULL, &o);
        check_close("rows", y, (double[]){0, 0, 0.5, 0.5}, 4, 1e-15);
        backward_with(y, tensor_of(ctx, TL_F64, g, 2, 2, 2));
        check_close("dx", tl_tensor_grad(t), dx, 4, 1e-15);
        tl_tape_clear(ctx);
        assert_null(tl_masked_softmax(t, tensor_of(ctx, TL_F32, x, 2, 2, 2), NULL, &o));
        check_fails(ctx, TL_ERR_DTYPE, "bool or f64");
        assert_null(tl_masked_softmax(t, tensor_of(ctx, TL_F64, x, 1, 4), NULL, &o));
        check_fails(ctx, TL_ERR_SHAPE, "do not broadcast");
    }
}

static void test_refused(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_dim two = tl_dim_of(2), three = tl_dim_of(3), eight = tl_dim_of(8);
    tl_tensor *q = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, two, three, two, eight), TL_DATA);
    tl_tensor *k = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, two, two, two, eight), TL_DATA);
    tl_tensor *flat = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, two, two, eight), TL_DATA);
    tl_attention_options o = {0}, odd = {.heads = 3, .kv_heads = 2};
    assert_null(tl_attention(q, k, k, &o));
    check_fails(ctx, TL_ERR_SHAPE, "q a multiple of that");
    assert_null(tl_attention(q, flat, flat, &o));
    check_fails(ctx, TL_ERR_SHAPE, "all have 4");
    assert_null(tl_attention(flat, flat, flat, &o));
    check_fails(ctx, TL_ERR_SHAPE, "numbers of heads");
    assert_null(tl_attention(flat, flat, flat, &odd));
    check_fails(ctx, TL_ERR_SHAPE, "8");
    assert_null(tl_group_norm(q, flat, flat, 2, 1e-5));
    check_fails(ctx, TL_ERR_SHAPE, "a divisor");
    assert_null(tl_layer_norm_from(q, flat, NULL, 4, 1e-5, NULL, NULL));
    check_fails(ctx, TL_ERR_SHAPE, "-4 to 3");
    tl_rotary_cache cache = {.cosine = flat, .sine = flat};
    assert_null(tl_rotary_cached(q, &cache));
    check_fails(ctx, TL_ERR_SHAPE, "half of what is rotated");
    tl_ctx_free(ctx);
}

/* Attention's own account: what backward gets is q, k, v and the probabilities; heads that share keys are not repeated. */
static void test_saved(void **state) {
    (void)state;
    enum { B = 2, H = 6, G = 2, T = 16, K = 8, FLOAT = 4 };
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_dim b = tl_dim_of(B), t = tl_dim_of(T), k = tl_dim_of(K);
    tl_tensor *q = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, b, tl_dim_of(H), t, k), TL_PARAM);
    tl_tensor *keys = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, b, tl_dim_of(G), t, k), TL_PARAM);
    tl_tensor *values = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, b, tl_dim_of(G), t, k), TL_PARAM);
    tl_attention_options o = {.causal = true};
    tl_record(ctx, true);
    tl_tensor *y = tl_attention(leaf_of(q), leaf_of(keys), leaf_of(values), &o);
    check_ok(ctx);
    assert_non_null(y);
    assert_int_equal(tl_ledger_live(ctx, TL_SAVED), B * H * T * T * FLOAT); /* parameters are not counted as saved */
    tl_counts counts;
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    assert_int_equal((int64_t)counts.matmul, 2 * 2 * B * H * T * T * K);
    assert_int_equal((int64_t)counts.matmul_causal, 2 * 2 * B * H * K * T * (T + 1) / 2);
    tl_ctx_free(ctx);
}

static char *all_results(int threads, size_t *bytes) {
    enum { B = 2, H = 4, T = 96, K = 16 };
    tl_error error = {0};
    tl_ctx_options options = {.kernels = tl_kernels_for_cpu(NULL, &error), .threads = threads, .seed_init = 5};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    assert_non_null(ctx);
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(H), tl_dim_of(T), tl_dim_of(K));
    tl_tensor *q = leaf_of(tl_normal(tl_empty(ctx, TL_F32, shape, TL_DATA), 0, 1, "q", 0));
    tl_tensor *k = leaf_of(tl_normal(tl_empty(ctx, TL_F32, shape, TL_DATA), 0, 1, "k", 0));
    tl_attention_options o = {.causal = true, .window = true, .before = 40, .after = -1, .softcap = 5};
    tl_record(ctx, true);
    tl_tensor *y = tl_attention(q, k, tl_swiglu(q, k, 1), &o);
    tl_tensor *loss =
        tl_sum(tl_log_softmax(tl_reshape(y, TL_SHAPE(ctx, tl_dim_of(B * H), tl_dim_of(T * K)))), NULL, 0, false);
    tl_record(ctx, false);
    check_ok(ctx);
    assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
    tl_tensor *out[] = {y, tl_tensor_grad(q), tl_tensor_grad(k)};
    size_t each = (size_t)B * H * T * K * 4;
    char *all = malloc(3 * each);
    assert_non_null(all);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(tl_tensor_read(out[i], all + i * each, each), TL_OK);
    *bytes = 3 * each;
    tl_ctx_free(ctx);
    return all;
}

static void test_threads(void **state) {
    (void)state;
    static const int threads[] = {2, 3, 8};
    size_t bytes, more;
    char *one = all_results(1, &bytes);
    for (int i = 0; i < 3; i++) {
        char *many = all_results(threads[i], &more);
        assert_int_equal(bytes, more);
        assert_memory_equal(one, many, bytes);
        free(many);
    }
    free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_torch), cmocka_unit_test(test_losses),          cmocka_unit_test(test_targets),
        cmocka_unit_test(test_masked_rows),   cmocka_unit_test(test_masked_gradient), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_saved),         cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
