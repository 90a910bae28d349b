/* Initialisation: each fill against its formula and its moments, each scheme of a net against the fill it stands for. What
 * σ should be is written out here from the papers: Glorot & Bengio 2010, He et al. 2015, Radford et al. 2019. */
#include "layers.h"

#include "small_models.h"
#include "tally/init.h"

static tl_tensor *empty(tl_ctx *ctx, int ndim, const int64_t *size) {
    tl_dim dim[4];
    for (int i = 0; i < ndim; i++)
        dim[i] = tl_dim_of(size[i]);
    return tl_empty(ctx, TL_F64, tl_shape_of(ctx, ndim, dim), TL_PARAM);
}

static void check_same(const char *what, tl_tensor *found, tl_tensor *expected) {
    check_ok(tl_tensor_ctx(found));
    int64_t n = tl_tensor_count(expected);
    size_t bytes = (size_t)n * (size_t)tl_dtype_bytes(tl_tensor_dtype(expected));
    assert_int_equal(tl_tensor_count(found), n);
    assert_int_equal(tl_tensor_dtype(found), tl_tensor_dtype(expected));
    if (memcmp(tl_tensor_data(found), tl_tensor_data(expected), bytes) != 0)
        fail_msg("%s: not the numbers expected", what);
}

typedef struct moments {
    double mean, std, least, most;
} moments;

static moments moments_of(const tl_tensor *t) {
    const double *x = tl_tensor_data((tl_tensor *)(uintptr_t)t);
    moments m = {0, 0, x[0], x[0]};
    int64_t n = tl_tensor_count(t);
    for (int64_t i = 0; i < n; i++) {
        m.mean += x[i] / (double)n;
        m.least = fmin(m.least, x[i]);
        m.most = fmax(m.most, x[i]);
    }
    for (int64_t i = 0; i < n; i++)
        m.std += (x[i] - m.mean) * (x[i] - m.mean) / (double)n;
    m.std = sqrt(m.std);
    return m;
}

#define NEAR(found, expected, room)                                                                                    \
    do {                                                                                                               \
        double found_ = (found), expected_ = (expected);                                                               \
        if (!(fabs(found_ - expected_) <= (room)))                                                                     \
            fail_msg("line %d: %.9g, expected %.9g", __LINE__, found_, expected_);                                     \
    } while (0)

enum { ROWS = 400, COLUMNS = 250 }; /* 100,000 numbers: a mean is off by σ/316, a σ by σ/447 */

/* By moments and bounds, which any generator has to meet: 5 standard errors. */
static void check_moments(tl_tensor *t, double std, double bound) {
    check_ok(tl_tensor_ctx(t));
    moments m = moments_of(t);
    NEAR(m.mean, 0, 5 * std / 316);
    NEAR(m.std, std, 5 * std / 447);
    assert_true(m.least >= -bound && m.most <= bound);
    if (bound < 100 * std) { /* and they come close to it: of 100,000 the last 1 % is not empty */
        assert_true(m.most > 0.95 * bound && m.least < -0.95 * bound);
    }
}

static void test_fills_have_their_moments(void **state) {
    (void)state;
    static const int64_t size[] = {ROWS, COLUMNS};
    for (const tl_kernels *const *k = all_kernels(); *k; k++) {
        tl_ctx *ctx = new_ctx(*k, false);
        tl_scope_begin(ctx);
        tl_tensor *t = empty(ctx, 2, size);
        double xavier = sqrt(2.0 / (ROWS + COLUMNS)), in = 1 / sqrt(COLUMNS), out = 1 / sqrt(ROWS);
        assert_int_equal(tl_init_normal(t, 0, 0.3, "w"), TL_OK);
        check_moments(t, 0.3, INFINITY);
        /* a normal cut at ±3σ: σ·√(1 − 6·φ(3)/(2·Φ(3) − 1)), φ(3) = 0.00443184841, Φ(3) = 0.99865010197 */
        assert_int_equal(tl_init_truncated_normal(t, 0, 0.3, "w"), TL_OK);
        check_moments(t, 0.3 * 0.98657835, 0.9);
        assert_int_equal(tl_init_uniform(t, -0.5, 0.5, "w"), TL_OK);
        check_moments(t, 1 / sqrt(12), 0.5);
        assert_int_equal(tl_init_xavier_normal(t, 1, "w"), TL_OK);
        check_moments(t, xavier, INFINITY);
        assert_int_equal(tl_init_xavier_uniform(t, 5.0 / 3, "w"), TL_OK);
        check_moments(t, 5.0 / 3 * xavier, 5.0 / 3 * sqrt(6.0 / (ROWS + COLUMNS)));
        assert_int_equal(tl_init_kaiming_normal(t, TL_FAN_IN, sqrt(2), "w"), TL_OK);
        check_moments(t, sqrt(2) * in, INFINITY);
        assert_int_equal(tl_init_kaiming_normal(t, TL_FAN_OUT, sqrt(2), "w"), TL_OK);
        check_moments(t, sqrt(2) * out, INFINITY);
        assert_int_equal(tl_init_kaiming_uniform(t, TL_FAN_IN, 1, "w"), TL_OK);
        check_moments(t, in, sqrt(3) * in);
        assert_int_equal(tl_init_residual(t, 0.02, 12, "w"), TL_OK);
        check_moments(t, 0.02 / sqrt(24), INFINITY);
        assert_int_equal(tl_init_zeros(t), TL_OK);
        assert_true(moments_of(t).most == 0 && moments_of(t).least == 0);
        assert_int_equal(tl_init_ones(t), TL_OK);
        assert_true(moments_of(t).most == 1 && moments_of(t).least == 1);
        tl_scope_end(ctx);
        tl_ctx_free(ctx);
    }
}

/* torch.nn.init: of a weight [out, in, …] what follows counts to both fans. */
static void test_fans(void **state) {
    (void)state;
    static const int64_t size[] = {4, 3, 2, 5};
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_scope_begin(ctx);
    tl_tensor *t = empty(ctx, 4, size), *same = empty(ctx, 4, size);
    assert_int_equal(tl_init_xavier_normal(t, 1, "w"), TL_OK);
    check_same("fans 30 and 40", t, tl_normal(same, 0, sqrt(2.0 / 70), "w", 0));
    assert_int_equal(tl_init_kaiming_normal(t, TL_FAN_IN, 1, "w"), TL_OK);
    check_same("fan in 30", t, tl_normal(same, 0, sqrt(1.0 / 30), "w", 0));
    assert_int_equal(tl_init_kaiming_normal(t, TL_FAN_OUT, 1, "w"), TL_OK);
    check_same("fan out 40", t, tl_normal(same, 0, sqrt(1.0 / 40), "w", 0));
    NEAR(tl_init_gain(TL_GAIN_LINEAR, 0), 1, 0);
    NEAR(tl_init_gain(TL_GAIN_SIGMOID, 0), 1, 0);
    NEAR(tl_init_gain(TL_GAIN_TANH, 0), 5.0 / 3, 1e-15);
    NEAR(tl_init_gain(TL_GAIN_RELU, 0), 1.4142135623730951, 1e-15);
    NEAR(tl_init_gain(TL_GAIN_LEAKY_RELU, 0.2), 1.3867504905630728,
         1e-15); /* torch.nn.init.calculate_gain's own example */
    NEAR(tl_init_gain(TL_GAIN_SELU, 0), 0.75, 0);
    tl_tensor *bias = empty(ctx, 1, size);
    assert_int_equal(tl_init_xavier_uniform(bias, 1, "b"), TL_ERR_SHAPE);
    check_fails(ctx, TL_ERR_SHAPE, "1 axes has no fan_in and fan_out");
    assert_int_equal(tl_init_kaiming_normal(t, TL_FAN_IN, -1, "w"), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "gain -1");
    assert_int_equal(tl_init_residual(t, 0.02, 0, "w"), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "0 layers");
    assert_int_equal(tl_init_normal(t, 0, INFINITY, "w"), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "must be finite");
    assert_int_equal(tl_init_normal(t, 0, 1, NULL), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "a name is needed");
    assert_int_equal(tl_init_zeros(NULL), TL_ERR_ARGUMENT);
    assert_int_equal(tl_init_kaiming_uniform(NULL, TL_FAN_IN, 1, "w"), TL_ERR_ARGUMENT);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
}

/* ---- nets ---- */

enum how { NORMAL, TRUNCATED, UNIFORM, CONSTANT };
typedef struct expectation {
    const char *scheme, *parameter;
    enum how how;
    double value; /* σ, the bound or the constant */
} expectation;

static void check_net(tl_model (*model_of)(void), const expectation *e) {
    tl_model model = model_of();
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_net *net = tl_net_new_as(ctx, &model, TL_F32, e->scheme);
    check_ok(ctx);
    tl_tensor *found = tl_net_find(net, e->parameter);
    assert_non_null(found);
    tl_scope_begin(ctx);
    tl_tensor *same = tl_empty(ctx, TL_F32, *tl_tensor_shape(found), TL_PARAM);
    if (e->how == NORMAL)
        tl_normal(same, 0, e->value, e->parameter, 0);
    else if (e->how == TRUNCATED)
        tl_truncated_normal(same, 0, e->value, 3, e->parameter, 0);
    else if (e->how == UNIFORM)
        tl_uniform(same, -e->value, e->value, e->parameter, 0);
    else
        tl_fill(same, e->value);
    char what[120];
    snprintf(what, sizeof what, "%s, %s", e->scheme ? e->scheme : "NULL", e->parameter);
    check_same(what, found, same);
    tl_scope_end(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void test_schemes(void **state) {
    (void)state;
    /* gpt2: N 2, D 24, F 80; llama: N 2, D 32, K 8, H 4, G 2, F 72, V 61; both with an init_std of 0.02 */
    const expectation gpt2[] = {
        {NULL, "h.1.attn.c_attn.weight", NORMAL, 0.02},
        {NULL, "h.1.attn.c_proj.weight", NORMAL, 0.02 / sqrt(4)},
        {"default", "h.0.mlp.c_proj.weight", NORMAL, 0.02 / sqrt(4)},
        {"gpt2:0.5", "h.0.mlp.c_proj.weight", NORMAL, 0.5 / sqrt(4)},
        {"gpt2:0.5", "wpe.weight", NORMAL, 0.5},
        {"normal", "h.0.mlp.c_proj.weight", NORMAL, 0.02},
        {"normal:1e-3", "wte.weight", NORMAL, 1e-3},
        {"truncated:0.1", "h.0.mlp.c_fc.weight", TRUNCATED, 0.1},
        {"uniform:0.25", "h.0.mlp.c_fc.weight", UNIFORM, 0.25},
        {"cs336", "h.0.mlp.c_fc.weight", TRUNCATED, sqrt(2.0 / (24 + 80))},
        {"cs336", "wte.weight", TRUNCATED, 1},
        {"xavier", "h.0.mlp.c_fc.weight", UNIFORM, sqrt(3) * sqrt(2.0 / (24 + 80))},
        {"xavier-normal", "h.0.attn.c_attn.weight", NORMAL, sqrt(2.0 / (24 + 72))},
        {"xavier", "wte.weight", NORMAL, 0.02},
        {"kaiming-normal", "h.0.mlp.c_fc.weight", NORMAL, sqrt(2) * sqrt(1.0 / 24)},
        {"kaiming", "h.0.mlp.c_proj.weight", UNIFORM, sqrt(3) * (sqrt(2) * sqrt(1.0 / 80))},
        {"kaiming", "h.0.mlp.c_proj.bias", CONSTANT, 0},
        {"uniform", "ln_f.weight", CONSTANT, 1},
        {"zeros", "h.0.mlp.c_fc.weight", CONSTANT, 0},
        {"zeros", "h.0.ln_1.weight", CONSTANT, 1},
    };
    const expectation llama[] = {
        {NULL, "model.layers.1.self_attn.o_proj.weight", NORMAL, 0.02},
        {"gpt2", "model.layers.1.self_attn.o_proj.weight", NORMAL, 0.02 / sqrt(4)},
        {"gpt2", "model.layers.1.mlp.down_proj.weight", NORMAL, 0.02 / sqrt(4)},
        {"gpt2", "model.layers.1.mlp.up_proj.weight", NORMAL, 0.02},
        {"cs336", "model.embed_tokens.weight", TRUNCATED, 1},
        {"cs336", "lm_head.weight", TRUNCATED, sqrt(2.0 / (32 + 61))},
        {"kaiming-normal", "lm_head.weight", NORMAL, sqrt(2) * sqrt(1.0 / 32)},
        {"zeros", "model.norm.weight", CONSTANT, 1},
    };
    for (size_t i = 0; i < sizeof gpt2 / sizeof *gpt2; i++)
        check_net(small_gpt2, &gpt2[i]);
    for (size_t i = 0; i < sizeof llama / sizeof *llama; i++)
        check_net(small_llama, &llama[i]);
    check_net(small_cruncher, &(expectation){NULL, "layers.1.weight", NORMAL, 1 / sqrt(64)});
    check_net(small_cruncher, &(expectation){"kaiming-normal", "final.weight", NORMAL, sqrt(2) * sqrt(1.0 / 64)});
}

static void test_no_scheme(void **state) {
    (void)state;
    static const struct {
        const char *scheme, *says;
    } cases[] = {{"glorot", "\"glorot\": there is none of that name; there are: default gpt2 normal"},
                 {"", "there is none of that name"},
                 {"xavier:2", "this one takes no number"},
                 {"normal:", "must be above 0 and below 1e6"},
                 {"normal:0", "must be above 0"},
                 {"normal:-1", "must be above 0"},
                 {"normal:nan", "must be above 0"},
                 {"normal:1e400", "must be above 0 and below 1e6"},
                 {"normal:0.02x", "must be above 0"},
                 {"norma", "none of that name"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tl_model model = small_gpt2();
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        assert_null(tl_net_new_as(ctx, &model, TL_F32, cases[i].scheme));
        check_fails(ctx, TL_ERR_ARGUMENT, cases[i].says);
        tl_ctx_free(ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fills_have_their_moments),
        cmocka_unit_test(test_fans),
        cmocka_unit_test(test_schemes),
        cmocka_unit_test(test_no_scheme),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
