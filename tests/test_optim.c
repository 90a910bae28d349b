/* Optimizers: 200 steps of each beside PyTorch's, CS336's stream in both orders, clipping, groups, states, schedules,
 * micro-batches of unequal masks, 8-bit states. tests/fixtures/make_optim_fixtures.py made the numbers and says how weights
 * and batches are made; this file makes them by the same integer arithmetic. */
#include "layers.h"

#include "fixtures/optim_fixtures.h"
#include "npy.h"
#include "tally/train.h"

static uint32_t fnv1a(const char *text) {
    uint32_t h = 2166136261u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

static double uniform(uint32_t seed, int64_t i) {
    uint32_t x = (uint32_t)((uint64_t)i * 2654435761u) + seed;
    x ^= x >> 16;
    x *= 0x45D9F3Bu;
    x ^= x >> 16;
    return x / 4294967296.0 - 0.5;
}

static tl_tensor *hashed(tl_ctx *ctx, const char *name, int rows, int columns) {
    double values[64];
    for (int i = 0; i < rows * columns; i++)
        values[i] = uniform(fnv1a(name), i);
    return columns > 1 || strstr(name, "weight") ? tensor_of(ctx, TL_F64, values, 2, rows, columns)
                                                 : tensor_of(ctx, TL_F64, values, 1, rows);
}

/* ---- 200 steps beside PyTorch ---- */

enum { STEPS = 200, EVERY = 20, BATCH = 4, IN = 3, HIDDEN = 5, OUT = 2, LOSSES = STEPS / EVERY, VALUES = LOSSES + 32 };

typedef struct small_net {
    tl_parameter list[4]; /* up.weight, up.bias, down.weight, down.bias */
} small_net;

static small_net net_of(tl_ctx *ctx) {
    static const char *const names[] = {"up.weight", "up.bias", "down.weight", "down.bias"};
    static const int rows[] = {HIDDEN, HIDDEN, OUT, OUT}, columns[] = {IN, 1, HIDDEN, 1};
    small_net net;
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "optim/%s", names[i]);
        tl_tensor *t = leaf_of(hashed(ctx, name, rows[i], columns[i]));
        net.list[i] = (tl_parameter){.name = names[i], .tensor = t, .decay = columns[i] > 1};
    }
    check_ok(ctx);
    return net;
}

static tl_tensor *loss_of(tl_ctx *ctx, const small_net *net, int step) {
    char name[32];
    double wanted[2 * BATCH];
    snprintf(name, sizeof name, "optim/x/%d", step % 7);
    for (int i = 0; i < BATCH; i++) {
        uint32_t seed = fnv1a(name);
        wanted[2 * i] = uniform(seed, 3 * i) + uniform(seed, 3 * i + 1);
        wanted[2 * i + 1] = -uniform(seed, 3 * i + 2);
    }
    tl_tensor *x = hashed(ctx, name, BATCH, IN);
    tl_tensor *h = tl_tanh(tl_linear(x, net->list[0].tensor, net->list[1].tensor));
    return tl_mse(tl_linear(h, net->list[2].tensor, net->list[3].tensor),
                  tensor_of(ctx, TL_F64, wanted, 2, BATCH, OUT));
}

/* A gradient in every parameter; its loss. */
static double gradients_of(tl_ctx *ctx, const small_net *net, int step) {
    double value = 0;
    tl_record(ctx, true);
    tl_tensor *loss = loss_of(ctx, net, step);
    tl_record(ctx, false);
    check_ok(ctx);
    assert_int_equal(tl_item(loss, &value), TL_OK);
    assert_int_equal(tl_backward(ctx, loss, 1.0), TL_OK);
    return value;
}

static void let_go(const small_net *net) {
    for (int i = 0; i < 4; i++)
        tl_tensor_clear_grad(net->list[i].tensor);
}

static double worst; /* of all cases, relative */

static void follow(const tl_kernels *kernels, const char *name, const tl_optimizer_options *o, const double *expected) {
    tl_ctx *ctx = new_ctx(kernels, false);
    tl_scope_begin(ctx);
    small_net net = net_of(ctx);
    tl_optimizer *optimizer = tl_optimizer_new(ctx, net.list, 4, o);
    check_ok(ctx);
    double found[VALUES];
    int n = 0;
    for (int step = 0; step < STEPS; step++) {
        tl_scope_begin(ctx);
        double loss = gradients_of(ctx, &net, step);
        if (tl_optimizer_step(optimizer, o->lr) != TL_OK)
            fail_msg("%s: %s", name, tl_ctx_error(ctx)->message);
        let_go(&net);
        tl_scope_end(ctx);
        if ((step + 1) % EVERY == 0)
            found[n++] = loss;
    }
    for (int i = 0; i < 4; i++) {
        size_t bytes = (size_t)tl_tensor_count(net.list[i].tensor) * 8;
        assert_int_equal(tl_tensor_read(net.list[i].tensor, found + n, bytes), TL_OK);
        n += (int)tl_tensor_count(net.list[i].tensor);
    }
    assert_int_equal(n, VALUES);
    for (int i = 0; i < n; i++) {
        double wrong = fabs(found[i] - expected[i]) / fabs(expected[i]);
        worst = wrong > worst ? wrong : worst;
        if (!(wrong <= 1e-9)) /* the bar is 1e-5 */
            fail_msg("%s, value %d: %.17g, PyTorch %.17g", name, i, found[i], expected[i]);
    }
    tl_optimizer_free(optimizer);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
}

static tl_optimizer_options plain(tl_optimizer_kind kind, double lr) {
    tl_optimizer_options o = tl_optimizer_defaults(kind);
    o.lr = lr;
    o.weight_decay = 0;
    o.decay_all = true; /* PyTorch's one group */
    return o;
}

#define FOLLOW(case_, kind_, lr_, ...)                                                                                 \
    do {                                                                                                               \
        tl_optimizer_options o = plain(TL_OPTIM_##kind_, lr_);                                                         \
        __VA_ARGS__;                                                                                                   \
        for (const tl_kernels *const *k = all_kernels(); *k; k++)                                                      \
            follow(*k, #case_, &o, optim_##case_);                                                                     \
    } while (0)

static void test_follows_pytorch(void **state) {
    (void)state;
    static const tl_parameter_group groups[] = {
        {.pattern = "*.weight", .lr_factor = 0.1, .weight_decay = 0.5},
        {.pattern = "up.bias", .frozen = true},
    };
    FOLLOW(sgd, SGD, 0.1, );
    FOLLOW(sgd_decay, SGD, 0.1, o.weight_decay = 0.01);
    FOLLOW(momentum, SGD, 0.05, o.momentum = 0.9);
    FOLLOW(momentum_decay, SGD, 0.05, o.momentum = 0.9, o.weight_decay = 0.01);
    FOLLOW(nesterov, SGD, 0.05, o.momentum = 0.9, o.nesterov = true);
    FOLLOW(nesterov_decay, SGD, 0.05, o.momentum = 0.9, o.nesterov = true, o.weight_decay = 0.01);
    FOLLOW(adagrad, ADAGRAD, 0.05, o.epsilon = 1e-10, o.epsilon_outside = true);
    FOLLOW(adagrad_decay, ADAGRAD, 0.05, o.epsilon = 1e-3, o.epsilon_outside = true, o.weight_decay = 0.01);
    FOLLOW(adagrad_lecture, ADAGRAD, 0.05, o.epsilon = 1e-3);
    FOLLOW(rmsprop, RMSPROP, 0.005, );
    FOLLOW(rmsprop_decay, RMSPROP, 0.005, o.alpha = 0.9, o.epsilon = 1e-4, o.weight_decay = 0.01);
    FOLLOW(rmsprop_momentum, RMSPROP, 0.002, o.momentum = 0.9);
    FOLLOW(rmsprop_centered, RMSPROP, 0.002, o.centered = true, o.epsilon = 1e-3);
    FOLLOW(rmsprop_all, RMSPROP, 0.001, o.alpha = 0.95, o.momentum = 0.5, o.centered = true, o.weight_decay = 0.01,
           o.epsilon = 1e-3);
    FOLLOW(adam, ADAM, 0.01, );
    FOLLOW(adam_decay, ADAM, 0.01, o.beta1 = 0.8, o.beta2 = 0.99, o.weight_decay = 0.01);
    FOLLOW(adamw, ADAMW, 0.01, o.weight_decay = 0.01);
    FOLLOW(adamw_decay, ADAMW, 0.01, o.beta1 = 0.8, o.beta2 = 0.99, o.epsilon = 1e-4, o.weight_decay = 0.3);
    FOLLOW(adamw_cs336, ADAMW, 0.01, o.beta1 = 0.8, o.beta2 = 0.99, o.epsilon = 1e-4, o.weight_decay = 0.3,
           o.cs336_order = true);
    FOLLOW(adamw_groups, ADAMW, 0.01, o.weight_decay = 0.7, o.decay_all = false, o.groups = groups, o.n_groups = 2);
    static const tl_parameter_group moments[] = {
        {.pattern = "down.*",
         .lr_factor = 0.5,
         .weight_decay = TL_GROUP_DECAY,
         .has_betas = true,
         .beta1 = 0.5,
         .beta2 = 0.9,
         .epsilon = 1e-3},
        {.pattern = "up.*",
         .lr_factor = 1,
         .weight_decay = TL_GROUP_DECAY,
         .has_betas = true,
         .beta1 = 0.9,
         .beta2 = 0.95},
    };
    for (int update = TL_UPDATE_FUSED; update <= TL_UPDATE_FOREACH; update++)
        FOLLOW(adamw_moments, ADAMW, 0.01, o.groups = moments, o.n_groups = 2, o.update = (tl_update_code)update);
    print_message("largest relative difference from PyTorch in 23 cases of 200 steps: %.2g\n", worst);
}

/* ---- CS336's stream: ../shared/suites/cs336 ---- */

static npy load(const char *name) {
    char path[600];
    const char *root = getenv("TALLY_SHARED");
    snprintf(path, sizeof path, "%s/suites/cs336/assignment1-npy/%s.npy", root ? root : "../shared", name);
    npy a;
    if (!npy_read(&a, path)) {
        print_message("SKIPPED: %s cannot be read; set TALLY_SHARED\n", path);
        skip();
    }
    return a;
}

/* 1000 steps of a 3→2 linear layer towards [x0 + x1, −x2] in fp32; the largest distances from both files. */
static void stream(const tl_kernels *kernels, bool cs336_order, const npy *own, const npy *other, double far[2]) {
    npy x = load("adamw_x_1000x3"), w0 = load("adamw_w0");
    double start[6];
    float end[6];
    for (int i = 0; i < 6; i++)
        start[i] = npy_at(&w0, i);
    tl_ctx *ctx = new_ctx(kernels, false);
    tl_scope_begin(ctx);
    tl_tensor *w = leaf_of(tensor_of(ctx, TL_F32, start, 2, 2, 3));
    tl_parameter parameter = {.name = "weight", .tensor = w, .decay = true};
    tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    o.cs336_order = cs336_order;
    tl_optimizer *optimizer = tl_optimizer_new(ctx, &parameter, 1, &o);
    for (int t = 0; t < 1000; t++) {
        double row[3] = {npy_at(&x, 3 * t), npy_at(&x, 3 * t + 1), npy_at(&x, 3 * t + 2)};
        double wanted[2] = {(double)(float)(row[0] + row[1]), -row[2]};
        tl_scope_begin(ctx);
        tl_record(ctx, true);
        tl_tensor *loss =
            tl_mse(tl_linear(tensor_of(ctx, TL_F32, row, 2, 1, 3), w, NULL), tensor_of(ctx, TL_F32, wanted, 2, 1, 2));
        tl_record(ctx, false);
        check_ok(ctx);
        assert_int_equal(tl_backward(ctx, loss, 2), TL_OK); /* the stream sums the two squares */
        assert_int_equal(tl_optimizer_step(optimizer, o.lr), TL_OK);
        tl_tensor_clear_grad(w);
        tl_scope_end(ctx);
    }
    assert_int_equal(tl_tensor_read(w, end, sizeof end), TL_OK);
    far[0] = far[1] = 0;
    for (int i = 0; i < 6; i++) {
        far[0] = fmax(far[0], fabs((double)end[i] - npy_at(own, i)));
        far[1] = fmax(far[1], fabs((double)end[i] - npy_at(other, i)));
    }
    tl_optimizer_free(optimizer);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
    npy_free(&x);
    npy_free(&w0);
}

static void test_cs336_stream(void **state) {
    (void)state;
    npy torch = load("adamw_final_torch1.13.1"), handout = load("expected_test_adamw");
    for (const tl_kernels *const *k = all_kernels(); *k; k++)
        for (int cs336 = 0; cs336 < 2; cs336++) {
            double far[2];
            stream(*k, cs336, cs336 ? &handout : &torch, cs336 ? &torch : &handout, far);
            if (!(far[0] <= 2e-6 && far[1] > 2e-6))
                fail_msg("%s order: %.3g from its own weights, %.3g from the other's", cs336 ? "CS336's" : "PyTorch's",
                         far[0], far[1]);
            print_message("%s order: %.2g from its own, %.2g from the other's\n", cs336 ? "CS336's" : "PyTorch's",
                          far[0], far[1]);
        }
    npy_free(&torch);
    npy_free(&handout);
}

/* ---- clipping; FAULTS, "Optimizers" ---- */

typedef struct clipped {
    tl_ctx *ctx;
    tl_parameter list[2];
} clipped;

/* Two parameters a and b with these gradients, of 128 elements each. */
static clipped clip_begin(tl_dtype dtype, double a, double b, int changed, double at_changed) {
    double values[128];
    clipped c = {.ctx = new_ctx(tl_kernels_portable(), false)};
    tl_scope_begin(c.ctx);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 128; i++)
            values[i] = k == 1 && i == changed ? at_changed : k ? b : a;
        tl_tensor *p = leaf_of(tensor_of(c.ctx, dtype, values, 1, 128)), *g = tensor_of(c.ctx, dtype, values, 1, 128);
        tl_record(c.ctx, true);
        backward_with(p, g);
        c.list[k] = (tl_parameter){.name = k ? "b.weight" : "a.weight", .tensor = p};
    }
    return c;
}

static void clip_end(clipped *c) {
    for (int k = 0; k < 2; k++)
        tl_tensor_clear_grad(c->list[k].tensor);
    tl_scope_end(c->ctx);
    tl_ctx_free(c->ctx);
}

static void check_clip(double a, double b, int changed, double at_changed, double norm) {
    clipped c = clip_begin(TL_F32, a, b, changed, at_changed);
    double found = 0, after[128];
    tl_tensor *t = tl_clip_gradients(c.ctx, c.list, 2, 1.0);
    check_ok(c.ctx);
    assert_int_equal(tl_item(t, &found), TL_OK);
    assert_true(fabs(found - norm) <= 1e-6 * norm);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 128; i++)
            after[i] = (k == 1 && i == changed ? at_changed : k ? b : a) / fmax(1, norm);
        check_close("clipped", tl_tensor_grad(c.list[k].tensor), after, 128, 2e-6);
    }
    clip_end(&c);
}

static void test_clipping(void **state) {
    (void)state;
    check_clip(0.01, 0.02, -1, 0, sqrt(128 * (0.0001 + 0.0004))); /* below 1: as it is */
    check_clip(1, 2, -1, 0, sqrt(128 * 5.0));
    check_clip(0, 0, 5, 1e20, 1e20);                /* its square leaves float32: every gradient was 0 */
    check_clip(0, 1e19, -1, 0, sqrt(128.0) * 1e19); /* 128 × 1e19: the sum of squares leaves float32 */
    check_clip(3e38, 3e38, -1, 0, sqrt(256.0) * 3e38);
    static const double bad[] = {-1, 0, NAN, -INFINITY};
    for (int i = 0; i < 4; i++) {
        clipped c = clip_begin(TL_F32, 1, 2, -1, 0);
        double as_before[128];
        for (int k = 0; k < 128; k++)
            as_before[k] = 1;
        assert_null(tl_clip_gradients(c.ctx, c.list, 2, bad[i]));
        check_fails(c.ctx, TL_ERR_ARGUMENT, "must be positive"); /* a negative one flips every gradient elsewhere */
        check_close("not clipped", tl_tensor_grad(c.list[0].tensor), as_before, 128, 0);
        clip_end(&c);
    }
}

static void test_a_gradient_counts_once(void **state) {
    (void)state;
    clipped c = clip_begin(TL_F32, 1, 2, -1, 0);
    const tl_parameter twice[] = {c.list[0], c.list[1], c.list[0]};
    double as_before[128];
    for (int k = 0; k < 128; k++)
        as_before[k] = 1;
    assert_null(tl_clip_gradients(c.ctx, twice, 3, 1));
    check_fails(c.ctx, TL_ERR_ARGUMENT, "a.weight is given twice");
    check_close("not clipped", tl_tensor_grad(c.list[0].tensor), as_before, 128, 0);
    clip_end(&c);
}

static void test_non_finite_gradients(void **state) {
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int d = 0; d < 4; d++)
        for (int i = 0; i < 3; i++) {
            static const tl_dtype dtypes[] = {TL_F64, TL_F32, TL_BF16, TL_F16};
            double as_before[128];
            clipped c = clip_begin(dtypes[d], 2, 1, 77, bad[i]);
            for (int k = 0; k < 128; k++)
                as_before[k] = 2;
            assert_string_equal(tl_first_non_finite_gradient(c.ctx, c.list, 2), "b.weight");
            assert_null(tl_first_non_finite_gradient(c.ctx, c.list, 1));
            assert_null(tl_clip_gradients(c.ctx, c.list, 2, 1.0));
            check_fails(c.ctx, TL_ERR_STATE, "the gradient of b.weight is not finite");
            check_close("not clipped", tl_tensor_grad(c.list[0].tensor), as_before, 128, 0);
            clip_end(&c);
        }
    clipped c = clip_begin(TL_F64, 1e200, 1, -1, 0); /* finite, and its square is not */
    assert_null(tl_first_non_finite_gradient(c.ctx, c.list, 2));
    assert_null(tl_clip_gradients(c.ctx, c.list, 2, 1.0));
    check_fails(c.ctx, TL_ERR_STATE, "more than f64 holds");
    clip_end(&c);
}

/* ---- groups, options, states ---- */

static void refused(const tl_optimizer_options *o, const char *says) {
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_scope_begin(ctx);
    small_net net = net_of(ctx);
    assert_null(tl_optimizer_new(ctx, net.list, 4, o));
    check_fails(ctx, TL_ERR_ARGUMENT, says);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
}

#define GROUP(pattern_, factor_, decay_, frozen_)                                                                      \
    { .pattern = pattern_, .lr_factor = factor_, .weight_decay = decay_, .frozen = frozen_ }

static void test_groups_are_checked(void **state) {
    (void)state;
    static const struct {
        tl_parameter_group group;
        const char *says;
    } cases[] = {
        {GROUP("h.*.weight", 1, TL_GROUP_DECAY, false), "\"h.*.weight\" matches none of the 4 parameters"},
        {GROUP("up", 1, 0, false), "\"up\" matches none"}, /* a pattern is the whole name's */
        {GROUP("up.weight?", 1, 0, false), "matches none"},
        {GROUP(NULL, 1, 0, false), "has no pattern"},
        {GROUP("*.weight", 0, 0, false), "a factor above 0 would work, or frozen"},
        {GROUP("*.weight", -1, 0, false), "a factor above 0"},
        {GROUP("*.weight", NAN, 0, false), "a factor above 0"},
        {GROUP("*.weight", 1, -0.5, false), "a weight decay of -0.5"},
        {GROUP("*.weight", 1, NAN, false), "a weight decay of"},
        {GROUP("*.weight", 0.5, 0, true), "is frozen: a factor of 0.5"},
        {GROUP("weight", 1, 0, false), "\"*weight*\" would match 2"},
        {GROUP("*", 0, 0, true), "all 4 parameters are frozen and nothing is left"},
        {{.pattern = "*", .frozen = true, .epsilon = 1e-3}, "is frozen: betas and epsilon have no effect"},
        {{.pattern = "*", .lr_factor = 1, .has_betas = true, .beta1 = 0.9, .beta2 = 0.99}, "sgd has no betas"},
        {{.pattern = "*", .lr_factor = 1, .beta2 = 0.99}, "betas that it does not have"},
        {{.pattern = "*", .lr_factor = 1, .epsilon = 1e-3}, "sgd has no epsilon"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_SGD);
        o.groups = &cases[i].group;
        o.n_groups = 1;
        refused(&o, cases[i].says);
    }
    tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_SGD);
    o.n_groups = 1;
    refused(&o, "no list of them");
    static const tl_parameter_group covered[] = {GROUP("up.*", 0.5, 0, false), GROUP("down.*", 1, 0, false),
                                                 GROUP("*", 1, 0, false)};
    o.groups = covered;
    o.n_groups = 3;
    refused(&o, "\"up.*\" holds nothing: later groups, \"*\" among them");
    static const struct {
        double beta1, beta2, epsilon;
        const char *says;
    } moments[] = {{1, 0.9, 0, "a beta of 1"},
                   {-0.1, 0.9, 0, "a beta of -0.1"},
                   {0.9, 1.5, 0, "a beta of 1.5"},
                   {0.9, NAN, 0, "a beta of"},
                   {0.9, 0.9, -1, "an epsilon of -1"},
                   {0.9, 0.9, NAN, "an epsilon of"},
                   {0.9, 0.9, INFINITY, "an epsilon of inf"}};
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
        const tl_parameter_group g = {.pattern = "*",
                                      .lr_factor = 1,
                                      .has_betas = true,
                                      .beta1 = moments[i].beta1,
                                      .beta2 = moments[i].beta2,
                                      .epsilon = moments[i].epsilon};
        o = tl_optimizer_defaults(TL_OPTIM_ADAMW);
        o.groups = &g;
        o.n_groups = 1;
        refused(&o, moments[i].says);
    }
}

/* A text says what the struct says. Numbers are read by strtod in both, so they are equal and not only close. */
static void test_groups_as_text(void **state) {
    (void)state;
    tl_optimizer_options base = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_group_list list;
    tl_error error = {TL_OK, ""};
    base.lr = 1e-2;
    assert_int_equal(tl_groups_parse("", &base, &list, &error), TL_OK);
    assert_int_equal(list.count, 0);
    const char *text =
        "*.bias:weight-decay=0.5;h.?.*:lr=1e-3,beta2=0.95,epsilon=1e-6;wte*:frozen;*:lr-factor=2,beta1=0";
    assert_int_equal(tl_groups_parse(text, &base, &list, &error), TL_OK);
    assert_int_equal(list.count, 4);
    const tl_parameter_group *g = list.group;
    assert_string_equal(g[0].pattern, "*.bias");
    assert_true(g[0].weight_decay == 0.5 && g[0].lr_factor == 1 && !g[0].has_betas && g[0].epsilon == 0 &&
                !g[0].frozen);
    assert_string_equal(g[1].pattern, "h.?.*");
    assert_true(g[1].lr_factor == 1e-3 / 1e-2 && g[1].weight_decay == TL_GROUP_DECAY && g[1].has_betas);
    assert_true(g[1].beta1 == 0.9 && g[1].beta2 == 0.95 && g[1].epsilon == 1e-6);
    assert_string_equal(g[2].pattern, "wte*");
    assert_true(g[2].frozen && g[2].lr_factor == 0 && g[2].weight_decay == 0);
    assert_true(g[3].lr_factor == 2 && g[3].has_betas && g[3].beta1 == 0 && g[3].beta2 == 0.999);
    static const struct {
        const char *text, *says;
    } bad[] = {{"*.bias", "group 1, character 1: \"*.bias\" is not PATTERN:RULE"},
               {"a:frozen;", "group 2, character 10: \"\" is not"},
               {"a:frozen;;b:frozen", "group 2, character 10"},
               {":frozen", "is not PATTERN"},
               {"a:", "is not PATTERN"},
               {"a:frozen,", "group 1 \"a\", character 10: \"\" is no rule"},
               {"a:decay=0", "character 3: \"decay=0\" is no rule; lr=X"},
               {"a:lr", "\"lr\" is no rule"},
               {"a:lr=", "lr: "},
               {"a:lr=-1", "lr: "},
               {"a:lr=nan", "lr: "},
               {"a:lr=0", "a number above 0 would work, or frozen"},
               {"a:lr-factor=0", "or frozen"},
               {"a:epsilon=0", "a number above 0 would work"},
               {"a:beta1=1", "beta1 is 1; it lies below 1"},
               {"a:weight-decay=1e31", "weight-decay: "},
               {"a:lr=1,lr=2", "character 8: lr is given twice"},
               {"a:lr=1,lr-factor=2", "say the same thing"},
               {"a:frozen,frozen", "frozen is given twice"},
               {"a:lr=1;b:frozen,weight-decay=0", "group 2 \"b\", character 8: it is frozen, and its other rules"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error = (tl_error){TL_OK, ""};
        assert_int_equal(tl_groups_parse(bad[i].text, &base, &list, &error), TL_ERR_ARGUMENT);
        if (!strstr(error.message, bad[i].says))
            fail_msg("\"%s\": \"%s\" does not say \"%s\"", bad[i].text, error.message, bad[i].says);
    }
    base.lr = 0;
    assert_int_equal(tl_groups_parse("a:lr=1", &base, &list, &error), TL_ERR_ARGUMENT);
    char many[40 * 12 + 1];
    for (int i = 0, at = 0; i < 40; i++)
        at += snprintf(many + at, sizeof many - (size_t)at, i ? ";a:frozen" : "a:frozen");
    assert_int_equal(tl_groups_parse(many, &base, &list, &error), TL_ERR_ARGUMENT);
    char longest[TL_GROUPS_TEXT + 1];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(tl_groups_parse(longest, &base, &list, &error), TL_ERR_ARGUMENT);
}

/* One SGD step of lr 1 with decay 1 and no gradient to speak of: θ·(1 − factor·decay) tells which rule held. */
static void test_the_last_group_holds(void **state) {
    (void)state;
    static const struct {
        tl_parameter_group groups[3];
        double kept[4]; /* of up.weight, up.bias, down.weight, down.bias */
    } cases[] = {
        {{GROUP("*", 1, TL_GROUP_DECAY, false), GROUP("up.*", 1, TL_GROUP_DECAY, false),
          GROUP("*s", 1, TL_GROUP_DECAY, false)},
         {0.5, 1, 0.5, 1}}, /* the default rule: no decay of biases */
        {{GROUP("*", 0.5, TL_GROUP_DECAY, false), GROUP("*.bias", 1, 0.25, false), GROUP("down.*", 0.25, 1, false)},
         {0.75, 0.75, 0.75, 0.75}},
        {{GROUP("up.*", 1, 0, false), GROUP("??.weight", 1, 1, false), GROUP("*wn*", 0.5, 0.5, false)},
         {0, 1, 0.75, 0.75}},
        {{GROUP("*", 0, 0, true), GROUP("*a*", 1, 1, false), GROUP("d*s", 0, 0, true)}, {1, 0, 1, 1}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_scope_begin(ctx);
        small_net net = net_of(ctx);
        tl_parameter_group groups[3];
        memcpy(groups, cases[k].groups, sizeof groups);
        tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_SGD);
        o.weight_decay = 0.5;
        o.groups = groups;
        o.n_groups = 3;
        tl_optimizer *optimizer = tl_optimizer_new(ctx, net.list, 4, &o);
        check_ok(ctx);
        memset(groups, 0, sizeof groups); /* borrowed until here */
        double before[4][64];
        tl_tensor *sum = NULL;
        tl_record(ctx, true);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(
                tl_tensor_read(net.list[i].tensor, before[i], (size_t)tl_tensor_count(net.list[i].tensor) * 8), TL_OK);
            tl_tensor *zero = tl_sum(tl_scale(net.list[i].tensor, 0, 0), NULL, 0, false);
            sum = sum ? tl_add(sum, zero) : zero;
        }
        backward_with(sum, NULL);
        assert_int_equal(tl_optimizer_step(optimizer, 1.0), TL_OK);
        for (int i = 0; i < 4; i++) {
            for (int64_t j = 0; j < tl_tensor_count(net.list[i].tensor); j++)
                before[i][j] *= cases[k].kept[i];
            check_close(net.list[i].name, net.list[i].tensor, before[i], tl_tensor_count(net.list[i].tensor), 1e-15);
        }
        let_go(&net);
        tl_optimizer_free(optimizer);
        tl_scope_end(ctx);
        tl_ctx_free(ctx);
    }
}

static void test_options_without_effect(void **state) {
    (void)state;
    static const struct {
        tl_optimizer_kind kind;
        const char *says;
    } cases[] = {
        {TL_OPTIM_SGD, "sgd has no cs336_order"},
        {TL_OPTIM_ADAM, "adam has no cs336_order"},
        {TL_OPTIM_ADAMW8BIT, "adamw8bit has no cs336"},
        {TL_OPTIM_ADAMW, "adamw has no nesterov"},
        {TL_OPTIM_SGD, "sgd has no nesterov"},
        {TL_OPTIM_ADAM, "adam has no momentum"},
        {TL_OPTIM_SGD, "sgd has no alpha"},
        {TL_OPTIM_ADAGRAD, "adagrad has no centered"},
        {TL_OPTIM_RMSPROP, "no epsilon_outside"},
        {TL_OPTIM_ADAMW8BIT, "no other format of states"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tl_optimizer_options o = tl_optimizer_defaults(cases[i].kind);
        o.cs336_order = i < 3;
        o.nesterov = i == 3 || i == 4;
        o.momentum = i == 5 ? 0.5 : 0;
        o.alpha = i == 6 ? 0.5 : o.alpha;
        o.centered = i == 7;
        o.epsilon_outside = i == 8;
        o.states = i == 9 ? TL_STATES_BF16 : TL_STATES_DEFAULT;
        refused(&o, cases[i].says);
    }
    static const double bad[] = {-0.1, 1, NAN};
    for (int i = 0; i < 3; i++) {
        tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_RMSPROP);
        o.alpha = bad[i];
        refused(&o, "rmsprop: alpha is");
        o = tl_optimizer_defaults(TL_OPTIM_ADAM);
        o.beta2 = bad[i];
        refused(&o, "adam: beta2 is");
    }
}

static void test_parameters_are_checked(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_scope_begin(ctx);
    small_net net = net_of(ctx);
    net.list[3].tensor = net.list[1].tensor; /* stepped twice elsewhere */
    tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    assert_null(tl_optimizer_new(ctx, net.list, 4, &o));
    check_fails(ctx, TL_ERR_ARGUMENT, "down.bias is given twice");
    net = net_of(ctx);
    net.list[2].tensor = tl_transpose(net.list[0].tensor, 0, 1); /* and so are other handles on the same numbers */
    assert_null(tl_optimizer_new(ctx, net.list, 4, &o));
    check_fails(ctx, TL_ERR_ARGUMENT, "down.weight is given twice");
    net = net_of(ctx);
    net.list[3].tensor = tl_slice(net.list[0].tensor, 0, 1, tl_dim_of(2), 1); /* a part of it */
    assert_null(tl_optimizer_new(ctx, net.list, 4, &o));
    check_fails(ctx, TL_ERR_ARGUMENT, "down.bias is given twice");
    net = net_of(ctx); /* parts that do not meet are parameters like any others: q, k and v of one tensor */
    net.list[1].tensor = tl_slice(net.list[0].tensor, 0, 0, tl_dim_of(1), 1);
    net.list[3].tensor = tl_slice(net.list[0].tensor, 0, 1, tl_dim_of(2), 1);
    tl_optimizer *parts = tl_optimizer_new(ctx, &net.list[1], 3, &o);
    check_ok(ctx);
    tl_optimizer_free(parts);
    net = net_of(ctx);
    net.list[1].tensor = tl_cast(net.list[1].tensor, TL_I32); /* an integer parameter is read as a float elsewhere */
    assert_null(tl_optimizer_new(ctx, net.list, 4, &o));
    check_fails(ctx, TL_ERR_DTYPE, "parameter up.bias is i32");
    net = net_of(ctx);
    tl_optimizer *optimizer = tl_optimizer_new(ctx, net.list, 4, &o);
    assert_int_equal(tl_optimizer_restore(optimizer, -1), TL_ERR_ARGUMENT);
    check_fails(ctx, TL_ERR_ARGUMENT, "after -1 steps");
    tl_optimizer_free(optimizer);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
}

/* What each optimizer keeps: names as in torch's state_dict, formats, and nothing before the first step. */
static void test_states(void **state) {
    (void)state;
    static const struct {
        tl_optimizer_kind kind;
        double momentum;
        bool centered;
        int count;
        const char *names[3];
    } cases[] = {
        {TL_OPTIM_SGD, 0, false, 0, {NULL}},
        {TL_OPTIM_SGD, 0.9, false, 1, {"momentum_buffer", NULL}},
        {TL_OPTIM_ADAGRAD, 0, false, 1, {"sum", NULL}},
        {TL_OPTIM_RMSPROP, 0, false, 1, {"square_avg", NULL}},
        {TL_OPTIM_RMSPROP, 0.9, false, 2, {"square_avg", "momentum_buffer", NULL}},
        {TL_OPTIM_RMSPROP, 0, true, 2, {"square_avg", "grad_avg", NULL}},
        {TL_OPTIM_RMSPROP, 0.9, true, 3, {"square_avg", "momentum_buffer", "grad_avg"}},
        {TL_OPTIM_ADAM, 0, false, 2, {"exp_avg", "exp_avg_sq", NULL}},
        {TL_OPTIM_ADAMW, 0, false, 2, {"exp_avg", "exp_avg_sq", NULL}},
    };
    static const tl_dtype formats[] = {TL_F64, TL_F64, TL_F32, TL_BF16, TL_F16}; /* of f64 parameters */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int format = 0; format < 5; format++) {
            tl_ctx *ctx = new_ctx(tl_kernels_portable(), true);
            tl_scope_begin(ctx);
            small_net net = net_of(ctx);
            tl_optimizer_options o = tl_optimizer_defaults(cases[i].kind);
            o.momentum = cases[i].momentum;
            o.centered = cases[i].centered;
            o.states = (tl_state_format)format;
            tl_optimizer *optimizer = tl_optimizer_new(ctx, net.list, 4, &o);
            check_ok(ctx);
            int64_t elements = HIDDEN * IN + HIDDEN + OUT * HIDDEN + OUT;
            assert_int_equal(tl_ledger_live(ctx, TL_OPTIM), 0);
            gradients_of(ctx, &net, 0);
            assert_int_equal(tl_optimizer_step(optimizer, 0.01), TL_OK);
            assert_int_equal(tl_ledger_live(ctx, TL_OPTIM),
                             elements * cases[i].count * tl_dtype_bytes(formats[format]));
            for (int k = 0; k < TL_OPTIM_MAX_STATES; k++) {
                const char *name = tl_optimizer_state_name(optimizer, k);
                tl_tensor *t = tl_optimizer_state(optimizer, 2, k);
                assert_int_equal(name != NULL, k < cases[i].count);
                assert_int_equal(t != NULL, k < cases[i].count);
                if (name)
                    assert_string_equal(name, cases[i].names[k]);
                if (t)
                    assert_int_equal(tl_tensor_dtype(t), formats[format]);
            }
            assert_int_equal(tl_optimizer_states(optimizer, 2), cases[i].count);
            assert_null(tl_optimizer_state_name(optimizer, -1));
            let_go(&net);
            tl_optimizer_free(optimizer);
            assert_int_equal(tl_ledger_live(ctx, TL_OPTIM), 0);
            tl_scope_end(ctx);
            tl_ctx_free(ctx);
        }
}

/* ---- schedules ---- */

static void test_schedules(void **state) {
    (void)state;
    static const struct {
        tl_schedule schedule;
        int64_t step;
        double lr;
    } cases[] = {
        /* ../shared/data/cs336.md: "cosine schedule (warm-up 7, cycle 21, 1→0.1)" */
        {{TL_SCHEDULE_COSINE, 1, 0.1, 7, 21, 0}, 8, 0.9887175604818206},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 7, 21, 0}, 14, 0.55},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 7, 21, 0}, 20, 0.11128243951817937},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 7, 21, 0}, 0, 0},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 7, 21, 0}, 3, 3.0 / 7},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 7, 21, 0}, 7, 1},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 7, 21, 0}, 21, 0.1},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 7, 21, 0}, 1000, 0.1},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 21, 21, 0}, 20, 20.0 / 21}, /* warm-up alone */
        {{TL_SCHEDULE_COSINE, 1, 0.1, 21, 21, 0}, 21, 0.1},
        /* by hand, from the definitions in the header */
        {{TL_SCHEDULE_CONSTANT, 0.5, 0, 0, 0, 0}, 0, 0.5},
        {{TL_SCHEDULE_CONSTANT, 0.5, 0, 4, 0, 0}, 1, 0.125},
        {{TL_SCHEDULE_CONSTANT, 0.5, 0, 4, 0, 0}, 4000000, 0.5},
        {{TL_SCHEDULE_LINEAR, 1, 0.5, 0, 8, 0}, 0, 1},
        {{TL_SCHEDULE_LINEAR, 1, 0.5, 0, 8, 0}, 2, 0.875},
        {{TL_SCHEDULE_LINEAR, 1, 0.5, 4, 8, 0}, 6, 0.75},
        {{TL_SCHEDULE_LINEAR, 1, 0.5, 4, 8, 0}, 8, 0.5},
        {{TL_SCHEDULE_WSD, 1, 0, 4, 20, 8}, 2, 0.5},
        {{TL_SCHEDULE_WSD, 1, 0, 4, 20, 8}, 12, 1},
        {{TL_SCHEDULE_WSD, 1, 0, 4, 20, 8}, 14, 0.75},
        {{TL_SCHEDULE_WSD, 1, 0.5, 4, 20, 8}, 16, 0.75},
        {{TL_SCHEDULE_WSD, 1, 0.5, 4, 20, 8}, 20, 0.5},
        {{TL_SCHEDULE_WSD, 1, 0.5, 4, 20, 0}, 19, 1},
        {{TL_SCHEDULE_WSD_SQRT, 1, 0, 4, 20, 8}, 12, 1},
        {{TL_SCHEDULE_WSD_SQRT, 1, 0, 4, 20, 8}, 14, 0.5}, /* 1 − √(2/8) */
        {{TL_SCHEDULE_WSD_SQRT, 1, 0.5, 4, 20, 8}, 14, 0.75},
        {{TL_SCHEDULE_WSD_SQRT, 1, 0.5, 4, 20, 8}, 20, 0.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tl_error error = {0};
        if (tl_schedule_check(&cases[i].schedule, &error) != TL_OK)
            fail_msg("schedule %zu: %s", i, error.message);
        double lr = tl_schedule_lr(&cases[i].schedule, cases[i].step);
        if (!(fabs(lr - cases[i].lr) <= 1e-15))
            fail_msg("schedule %zu, step %lld: %.17g, expected %.17g", i, (long long)cases[i].step, lr, cases[i].lr);
    }
    static const struct {
        tl_schedule schedule;
        const char *says;
    } bad[] = {
        {{TL_SCHEDULE_COSINE, 1, 0.1, 22, 21, 0}, "22 steps of warm-up in 21 in all"},
        {{TL_SCHEDULE_COSINE, 1, 0.1, 0, 0, 0}, "a total of 1 or more"},
        {{TL_SCHEDULE_COSINE, 0.1, 1, 7, 21, 0}, "0 ≤ min ≤ max"},
        {{TL_SCHEDULE_COSINE, NAN, 0, 7, 21, 0}, "finite ones"},
        {{TL_SCHEDULE_COSINE, INFINITY, 0, 7, 21, 0}, "finite ones"},
        {{TL_SCHEDULE_LINEAR, 1, -1, 7, 21, 0}, "0 ≤ min ≤ max"},
        {{TL_SCHEDULE_LINEAR, 1, 0, -7, 21, 0}, "none may be negative"},
        {{TL_SCHEDULE_LINEAR, 1, 0, 7, 21, 3}, "has no decay_steps"},
        {{TL_SCHEDULE_CONSTANT, 1, 0.5, 0, 0, 0}, "has no min"},
        {{TL_SCHEDULE_CONSTANT, 1, 0, 0, 5, 0}, "has no total"},
        {{TL_SCHEDULE_WSD, 1, 0, 7, 21, 15}, "at most 14 would work"},
        {{(tl_schedule_kind)9, 1, 0, 7, 21, 15}, "constant, linear, cosine, wsd"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tl_error error = {0};
        assert_int_equal(tl_schedule_check(&bad[i].schedule, &error), TL_ERR_ARGUMENT);
        if (!strstr(error.message, bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", error.message, bad[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_pytorch),
        cmocka_unit_test(test_cs336_stream),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_non_finite_gradients),
        cmocka_unit_test(test_a_gradient_counts_once),
        cmocka_unit_test(test_groups_are_checked),
        cmocka_unit_test(test_groups_as_text),
        cmocka_unit_test(test_the_last_group_holds),
        cmocka_unit_test(test_options_without_effect),
        cmocka_unit_test(test_parameters_are_checked),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
