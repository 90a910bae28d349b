/* Mixtures of experts: routers, layers and the balancing loss with their gradients beside torch
 * (tests/fixtures/make_moe_fixtures.py), ties, where each choice goes, and what is refused. What they cost: test_moe_account.c. */
#include "layers.h"

#include "fixtures/moe_fixtures.h"
#include "tally/ops_moe.h"

#define EACH(ctx)                                                                                                      \
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)                                        \
        for (tl_ctx *ctx = new_ctx(*kernels, false); ctx; check_ok(ctx), tl_ctx_free(ctx), ctx = NULL)

static tl_tensor *whole_of(tl_ctx *ctx, tl_dtype dtype, const int64_t *values, int64_t rows, int64_t columns) {
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(rows), tl_dim_of(columns));
    tl_tensor *t = tl_from_data(ctx, TL_I64, shape, TL_DATA, values, rows * columns);
    return tl_cast(t, dtype);
}

static void check_whole(const char *what, tl_tensor *t, const int64_t *expected, int64_t count) {
    int32_t found[64];
    if (!t)
        fail_msg("%s: %s", what, "no tensor");
    assert_int_equal(tl_tensor_dtype(t), TL_I32);
    assert_int_equal(tl_tensor_count(t), count);
    assert_int_equal(tl_tensor_read(t, found, (size_t)count * 4), TL_OK);
    for (int64_t i = 0; i < count; i++)
        if (found[i] != expected[i])
            fail_msg("%s: element %lld is %d, expected %lld", what, (long long)i, (int)found[i],
                     (long long)expected[i]);
}

/* ---- routers ---- */

typedef struct router {
    const char *name;
    tl_route_options o;
    bool bias;
    const double *weights, *g, *dscores;
    const int64_t *experts;
} router;

#define ROUTER(name)                                                                                                   \
#name, .weights = name##_weights, .experts = name##_experts, .g = name##_g, .dscores = name##_dscores

static void test_routers(void **state) {
    (void)state;
    const router routers[] = {
        {ROUTER(mixtral), .o = {.k = tl_dim_of(2), .renormalise = true}},
        {ROUTER(qwen2_moe), .o = {.k = tl_dim_of(3)}},
        {ROUTER(deepseek_v2), .o = {.k = tl_dim_of(3), .n_group = 4, .topk_group = 2, .scale = 16}},
        {ROUTER(deepseek_v3), .bias = true,
         .o = {.k = tl_dim_of(3),
               .score = TL_ROUTE_SIGMOID,
               .n_group = 4,
               .topk_group = 2,
               .group = TL_ROUTE_GROUP_TOP2,
               .renormalise = true,
               .renormalise_epsilon = 1e-20,
               .scale = 2.5}},
        {ROUTER(gpt_oss), .o = {.k = tl_dim_of(3), .score = TL_ROUTE_CHOSEN_SOFTMAX}},
        {ROUTER(llama4), .o = {.k = tl_dim_of(1), .score = TL_ROUTE_CHOSEN_SIGMOID}},
    };
    EACH(ctx)
    for (size_t i = 0; i < sizeof routers / sizeof *routers; i++) {
        const router *r = &routers[i];
        int k = (int)r->o.k.size;
        tl_route_options o = r->o;
        tl_routing routing;
        o.bias = r->bias ? tensor_of(ctx, TL_F64, correction, 1, 8) : NULL;
        tl_record(ctx, true);
        tl_tensor *s = leaf_of(tensor_of(ctx, TL_F64, scores, 2, 6, 8));
        assert_int_equal(tl_route_top_k(s, &o, &routing), TL_OK);
        check_whole(r->name, routing.experts, r->experts, 6 * k);
        check_close(r->name, routing.weights, r->weights, 6 * k, 1e-13);
        assert_int_equal(routing.probabilities != NULL, o.score <= TL_ROUTE_SIGMOID);
        backward_with(routing.weights, tensor_of(ctx, TL_F64, r->g, 2, 6, k));
        check_close(r->name, tl_tensor_grad(s), r->dscores, 48, 1e-13);
        tl_tape_clear(ctx);
    }
}

/* softmax → top-k → renormalised is softmax over the k best: e^x_i/Σ_all ÷ (Σ_k e^x/Σ_all). */
static void test_two_ways_to_mixtral(void **state) {
    (void)state;
    EACH(ctx) {
        tl_routing routing;
        tl_route_options o = {.k = tl_dim_of(2), .score = TL_ROUTE_CHOSEN_SOFTMAX};
        assert_int_equal(tl_route_top_k(tensor_of(ctx, TL_F64, scores, 2, 6, 8), &o, &routing), TL_OK);
        check_whole("experts", routing.experts, mixtral_experts, 12);
        check_close("weights", routing.weights, mixtral_weights, 12, 1e-13);
    }
}

/* The lower index first, NaN before all: the order that tl_top_k documents. A bias changes the choice alone. */
static void test_ties(void **state) {
    (void)state;
    static const double equal[] = {1, 1, 1, 1, 1, 1, 0, 2, 2, 2, 0, 2, 0, NAN, 3, NAN, -INFINITY, 3};
    static const int64_t three[] = {0, 1, 2, 1, 2, 3, 1, 3, 2}, grouped[] = {0, 1, 2, 2, 3, 5, 0, 1, 3};
    static const double towards[] = {0, 0, 0, 0, 0, 9};
    static const int64_t biased[] = {5, 0, 1, 5, 1, 2, 1, 3, 5};
    EACH(ctx) {
        for (int form = 0; form < 4; form++) {
            tl_dtype dtype = (const tl_dtype[]){TL_F64, TL_F32, TL_BF16, TL_F16}[form];
            tl_tensor *what = tensor_of(ctx, dtype, equal, 2, 3, 6), *bias = tensor_of(ctx, dtype, towards, 1, 6);
            check_whole("ties", tl_route_choose(what, NULL, tl_dim_of(3), 0, 0, TL_ROUTE_GROUP_MAX), three, 9);
            check_whole("bias", tl_route_choose(what, bias, tl_dim_of(3), 1, 1, TL_ROUTE_GROUP_MAX), biased, 9);
            /* groups of 2; row 0: all equal, the first two; row 1: sums 2, 4, 2 → the second, and of 2 = 2 the first; but by
             * their best all are 2; row 2: NaN + anything is NaN */
            tl_tensor *best = tl_route_choose(what, NULL, tl_dim_of(3), 3, 2, TL_ROUTE_GROUP_TOP2);
            static const int64_t sums[] = {0, 1, 2, 1, 2, 3, 1, 3, 2};
            check_whole("groups by two", best, sums, 9);
        }
        /* groups 1 and 2 are the best by their largest */
        static const double larger[] = {1, 1, 1, 1, 1, 1, 0, 0, 4, 3, 1, 2, 5, 4, 3, 4, 3, 0};
        tl_tensor *what = tensor_of(ctx, TL_F32, larger, 2, 3, 6);
        check_whole("groups", tl_route_choose(what, NULL, tl_dim_of(3), 3, 2, TL_ROUTE_GROUP_MAX), grouped, 9);
    }
}

static void test_balance(void **state) {
    (void)state;
    EACH(ctx) {
        tl_route_options o = {.k = tl_dim_of(2), .renormalise = true};
        tl_routing routing;
        tl_record(ctx, true);
        tl_tensor *s = leaf_of(tensor_of(ctx, TL_F64, scores, 2, 6, 8));
        assert_int_equal(tl_route_top_k(s, &o, &routing), TL_OK);
        tl_tensor *loss = tl_moe_balance_loss(routing.probabilities, routing.experts);
        check_close("balance", loss, balance, 1, 1e-13);
        backward_with(loss, NULL);
        check_close("balance, dscores", tl_tensor_grad(s), balance_dscores, 48, 1e-13);
        tl_tape_clear(ctx);
        /* Switch, section 2.2: under uniform routing 1 for each choice: 4·Σ 1/4·k/4·… = k, exactly. */
        static const double even[] = {.25, .25, .25, .25, .25, .25, .25, .25};
        static const int64_t spread[] = {0, 1, 2, 3};
        tl_tensor *p = tensor_of(ctx, TL_F32, even, 2, 2, 4);
        check_close("uniform", tl_moe_balance_loss(p, whole_of(ctx, TL_I64, spread, 2, 2)), (double[]){2}, 1, 0);
        static const int64_t once[] = {2, 2, 0, 2};
        check_close("shares", tl_moe_load(whole_of(ctx, TL_I32, once, 4, 1), tl_dim_of(3), TL_F32),
                    (double[]){.25, 0, .75}, 3, 0);
    }
}

/* ---- which row ---- */

static void test_orders(void **state) {
    (void)state;
    /* counted by hand from layer_experts {1 0, 1 2, 4 1, 0 1, 1 4, 2 1}: choice t·2 + j */
    static const int64_t order[] = {1, 6, 0, 2, 5, 7, 8, 11, 3, 10, 4, 9}, offsets[] = {0, 2, 8, 10, 10, 12};
    static const int64_t by_token[] = {1, 6, 0, 2, 3, 10, -1, -1, 4, 9};
    static const int64_t by_choice[] = {6, 1, 0, 2, 10, 3, -1, -1, 4, 9};
    static const int64_t none[] = {0, 0, 0};
    EACH(ctx)
    for (int wide = 0; wide < 2; wide++) {
        tl_tensor *experts = whole_of(ctx, wide ? TL_I64 : TL_I32, layer_experts, 6, 2), *o, *at;
        assert_int_equal(tl_moe_sort(experts, tl_dim_of(5), &o, &at), TL_OK);
        check_whole("order", o, order, 12);
        check_whole("offsets", at, offsets, 6);
        check_whole("by token", tl_moe_capacity(experts, tl_dim_of(5), tl_dim_of(2), false), by_token, 10);
        check_whole("by choice", tl_moe_capacity(experts, tl_dim_of(5), tl_dim_of(2), true), by_choice, 10);
        assert_int_equal(tl_tensor_count(tl_moe_capacity(experts, tl_dim_of(5), tl_dim_of(0), true)), 0);
        assert_int_equal(tl_moe_sort(whole_of(ctx, TL_I64, order, 0, 2), tl_dim_of(2), &o, &at), TL_OK);
        check_whole("no tokens", at, none, 3);
    }
}

/* Switch, equation 3: tokens ÷ experts × factor, rounded up here. */
static void test_capacity_of(void **state) {
    (void)state;
    static const struct {
        int64_t n, k, e, is;
        double factor;
    } c[] = {{1024, 1, 8, 160, 1.25}, {6, 2, 5, 3, 1.25}, {6, 2, 5, 3, 1},
             {10, 1, 4, 5, 2},        {7, 3, 3, 8, 1.1},  {0, 2, 4, 0, 1}};
    tl_ctx *ctx = new_ctx(NULL, true);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        assert_int_equal(
            tl_moe_capacity_dim(ctx, tl_dim_of(c[i].n), tl_dim_of(c[i].k), tl_dim_of(c[i].e), c[i].factor).size,
            c[i].is);
    tl_dim n = tl_dim_mul(ctx, tl_dim_symbol(ctx, "B", 2, "test"), tl_dim_symbol(ctx, "T", 9, "test"));
    tl_dim places = tl_moe_capacity_dim(ctx, n, tl_dim_symbol(ctx, "k", 2, "test"), tl_dim_of(8), 1.25);
    assert_int_equal(places.size, 6); /* 45/8 */
    assert_non_null(places.formula);
    check_ok(ctx);
    static const double bad[] = {0, -1, 1.00001, NAN, INFINITY};
    for (int i = 0; i < 5; i++) {
        tl_moe_capacity_dim(ctx, n, n, n, bad[i]);
        check_fails(ctx, TL_ERR_ARGUMENT, "a capacity factor of");
    }
    tl_ctx_free(ctx);
}

/* ---- layers ---- */

typedef struct layer {
    tl_tensor *x, *weights, *w1, *b1, *w2;
} layer;

static layer layer_of(tl_ctx *ctx, tl_dtype dtype) {
    return (layer){
        leaf_of(tensor_of(ctx, dtype, layer_x, 2, 6, 4)), leaf_of(tensor_of(ctx, dtype, layer_weights, 2, 6, 2)),
        leaf_of(tensor_of(ctx, dtype, layer_w1, 3, 5, 3, 4)), leaf_of(tensor_of(ctx, dtype, layer_b1, 2, 5, 3)),
        leaf_of(tensor_of(ctx, dtype, layer_w2, 3, 5, 3, 4))};
}

static tl_tensor *dropless(const layer *l) {
    tl_ctx *ctx = tl_tensor_ctx(l->x);
    tl_tensor *order, *offsets;
    tl_moe_sort(whole_of(ctx, TL_I32, layer_experts, 6, 2), tl_dim_of(5), &order, &offsets);
    tl_tensor *rows = tl_moe_permute(l->x, order, tl_dim_of(2));
    tl_tensor *h = tl_silu(tl_grouped_linear(rows, l->w1, l->b1, offsets, false));
    return tl_moe_combine(tl_grouped_linear(h, l->w2, NULL, offsets, true), order, l->weights);
}

static tl_tensor *capacity(const layer *l, bool choice_first) {
    tl_ctx *ctx = tl_tensor_ctx(l->x);
    tl_tensor *experts = whole_of(ctx, TL_I32, layer_experts, 6, 2);
    tl_tensor *order = tl_moe_capacity(experts, tl_dim_of(5), tl_dim_of(2), choice_first);
    tl_tensor *h = tl_matmul(tl_moe_permute(l->x, order, tl_dim_of(2)), tl_transpose(l->w1, 1, 2));
    tl_tensor *bias = tl_view(l->b1, TL_SHAPE(ctx, tl_dim_of(5), tl_dim_of(1), tl_dim_of(3)));
    return tl_moe_combine(tl_matmul(tl_silu(tl_add(h, bias)), l->w2), order, l->weights);
}

#define CHECK_LAYER(name, l, y)                                                                                        \
    do {                                                                                                               \
        check_close(#name " y", (y), name##_y, 24, 1e-13);                                                             \
        backward_with((y), tensor_of(ctx, TL_F64, layer_g, 2, 6, 4));                                                  \
        check_close(#name " dx", tl_tensor_grad((l).x), name##_dx, 24, 1e-13);                                         \
        check_close(#name " dweights", tl_tensor_grad((l).weights), name##_dweights, 12, 1e-13);                       \
        check_close(#name " dw1", tl_tensor_grad((l).w1), name##_dw1, 60, 1e-13);                                      \
        check_close(#name " db1", tl_tensor_grad((l).b1), name##_db1, 15, 1e-13);                                      \
        check_close(#name " dw2", tl_tensor_grad((l).w2), name##_dw2, 60, 1e-13);                                      \
        tl_tape_clear(ctx);                                                                                            \
    } while (0)

static void test_layers(void **state) {
    (void)state;
    EACH(ctx) {
        tl_record(ctx, true);
        layer l = layer_of(ctx, TL_F64);
        CHECK_LAYER(dropless, l, dropless(&l));
        tl_record(ctx, true);
        l = layer_of(ctx, TL_F64);
        CHECK_LAYER(by_token, l, capacity(&l, false));
        tl_record(ctx, true);
        l = layer_of(ctx, TL_F64);
        CHECK_LAYER(by_choice, l, capacity(&l, true));
    }
}

/* With a place for every choice nothing is dropped: both ways are one layer. A second backward doubles what is there. */
static void test_accumulates(void **state) {
    (void)state;
    double twice[60];
    EACH(ctx) {
        layer l = layer_of(ctx, TL_F64);
        for (int i = 0; i < 2; i++) {
            tl_record(ctx, true);
            backward_with(dropless(&l), tensor_of(ctx, TL_F64, layer_g, 2, 6, 4));
            tl_tape_clear(ctx);
        }
        for (int i = 0; i < 60; i++)
            twice[i] = 2 * dropless_dw1[i];
        check_close("dw1 twice", tl_tensor_grad(l.w1), twice, 60, 1e-13);
        for (int i = 0; i < 60; i++)
            twice[i] = 2 * dropless_dw2[i];
        check_close("dw2 twice", tl_tensor_grad(l.w2), twice, 60, 1e-13);
    }
}

/* llama4: the score scales what goes in, and what comes out is added with weights 1. */
static void test_scaled_input(void **state) {
    (void)state;
    static const double x[] = {1, 2, 3, 4, 5, 6}, gate[] = {.5, 2, 4}, w[] = {1, 0, 0, 1, 3, 0, 0, 3};
    static const int64_t experts[] = {1, 0, 1};
    static const double y[] = {1.5, 3, 6, 8, 60, 72}, dx[] = {1.5, 1.5, 2, 2, 12, 12};
    EACH(ctx) {
        tl_tensor *order, *offsets;
        tl_record(ctx, true);
        tl_tensor *in = leaf_of(tensor_of(ctx, TL_F32, x, 2, 3, 2));
        tl_moe_sort(whole_of(ctx, TL_I64, experts, 3, 1), tl_dim_of(2), &order, &offsets);
        tl_tensor *scaled = tl_mul(in, tensor_of(ctx, TL_F32, gate, 2, 3, 1));
        tl_tensor *rows = tl_moe_permute(scaled, order, tl_dim_of(1));
        rows = tl_grouped_linear(rows, tensor_of(ctx, TL_F32, w, 3, 2, 2, 2), NULL, offsets, true);
        tl_tensor *out = tl_moe_sum(rows, order, tl_dim_of(3), tl_dim_of(1));
        check_close("y", out, y, 6, 0);
        backward_with(tl_sum(out, NULL, 0, false), NULL);
        check_close("dx", tl_tensor_grad(in), dx, 6, 0);
        tl_tape_clear(ctx);
    }
}

/* 256 + 1 is 256 in bf16 (8 bits, half to even), 256 + 1 + 1 = 258 is in it: the sum is rounded once. */
static void test_rounds_once(void **state) {
    (void)state;
    static const double y[] = {256, 1, 1}, ones[] = {1, 1, 1};
    static const int64_t rows[] = {0, 1, 2};
    EACH(ctx)
    for (int form = 0; form < 3; form++) {
        tl_dtype weights = (const tl_dtype[]){TL_F32, TL_BF16, TL_F16}[form];
        tl_tensor *three = tensor_of(ctx, TL_BF16, y, 2, 3, 1),
                  *order = tl_view(whole_of(ctx, TL_I32, rows, 1, 3), TL_SHAPE(ctx, tl_dim_of(3)));
        tl_record(ctx, true);
        tl_tensor *w = leaf_of(tensor_of(ctx, weights, ones, 2, 1, 3));
        tl_tensor *sum = tl_moe_combine(three, order, w);
        assert_int_equal(tl_tensor_dtype(sum), TL_BF16);
        check_close("Σ", sum, (double[]){258}, 1, 0);
        backward_with(tl_sum(tl_cast(sum, TL_F32), NULL, 0, false), NULL);
        assert_int_equal(tl_tensor_dtype(tl_tensor_grad(w)), weights);
        check_close("dw", tl_tensor_grad(w), y, 3, 0);
        tl_tape_clear(ctx);
        check_close("Σ of 1", tl_moe_sum(three, order, tl_dim_of(1), tl_dim_of(3)), (double[]){258}, 1, 0);
    }
}

/* ---- refusals ---- */

static void test_routing_refuses(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_tensor *s = tensor_of(ctx, TL_F32, scores, 2, 6, 8);
    tl_routing routing;
    static const struct {
        int64_t k, n_group, topk_group;
        tl_route_group group;
        const char *says;
    } bad[] = {{9, 0, 0, TL_ROUTE_GROUP_MAX, "9 of 8 experts a token; 1 to 8 would work"},
               {0, 0, 0, TL_ROUTE_GROUP_MAX, "0 of 8 experts a token"},
               {-1, 0, 0, TL_ROUTE_GROUP_MAX, "-1 of 8 experts a token"},
               {2, 3, 1, TL_ROUTE_GROUP_MAX, "8 experts do not divide into 3 groups"},
               {2, 4, 5, TL_ROUTE_GROUP_MAX, "the best 5 of 4 groups; 1 to 4 would work"},
               {2, 4, 0, TL_ROUTE_GROUP_MAX, "the best 0 of 4 groups"},
               {2, 0, 2, TL_ROUTE_GROUP_MAX, "the best 2 of 0 groups; 0 and 0 for no groups would work"},
               {2, -2, 0, TL_ROUTE_GROUP_MAX, "of -2 groups"},
               {3, 4, 1, TL_ROUTE_GROUP_MAX, "3 experts a token from 1 groups of 2; at most 2 would work"},
               {2, 8, 4, TL_ROUTE_GROUP_TOP2, "groups of one expert have no best two"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tl_route_options o = {.k = tl_dim_of(bad[i].k),
                              .n_group = bad[i].n_group,
                              .topk_group = bad[i].topk_group,
                              .group = bad[i].group};
        assert_int_not_equal(tl_route_top_k(s, &o, &routing), TL_OK);
        assert_null(routing.weights);
        assert_null(routing.experts);
        check_fails(ctx, TL_ERR_ARGUMENT, bad[i].says);
    }
    tl_route_options o = {.k = tl_dim_of(2), .score = TL_ROUTE_CHOSEN_SOFTMAX, .renormalise = true};
    tl_route_top_k(s, &o, &routing);
    check_fails(ctx, TL_ERR_ARGUMENT, "renormalising it does nothing");
    o = (tl_route_options){.k = tl_dim_of(2), .renormalise_epsilon = 1e-20};
    tl_route_top_k(s, &o, &routing);
    check_fails(ctx, TL_ERR_ARGUMENT, "with renormalise, would work");
    o = (tl_route_options){.k = tl_dim_of(2), .scale = NAN};
    tl_route_top_k(s, &o, &routing);
    check_fails(ctx, TL_ERR_ARGUMENT, "a finite one would work");
    o = (tl_route_options){.k = tl_dim_of(2), .bias = tensor_of(ctx, TL_F32, correction, 1, 7)};
    tl_route_top_k(s, &o, &routing);
    check_fails(ctx, TL_ERR_SHAPE, "the bias is f32[7]");
    o = (tl_route_options){.k = tl_dim_of(2)};
    tl_route_top_k(tensor_of(ctx, TL_F32, scores, 1, 48), &o, &routing);
    check_fails(ctx, TL_ERR_SHAPE, "[tokens, experts] would work");
    assert_int_equal(tl_route_top_k(NULL, &o, &routing), TL_ERR_ARGUMENT);
    tl_ctx_free(ctx);
}

static void test_dispatch_refuses(void **state) {
    (void)state;
    EACH(ctx) {
        static const int64_t beyond[] = {0, 1, 5, 0}, below[] = {0, -1, 0, 0}, rows[] = {0, 3, -2, 1},
                             many[] = {0, 4, 1, 1};
        tl_tensor *x = tensor_of(ctx, TL_F32, layer_x, 2, 2, 4), *order, *offsets;
        tl_tensor *w = tensor_of(ctx, TL_F32, layer_weights, 2, 2, 2), *y = tensor_of(ctx, TL_F32, layer_x, 3, 2, 2, 4);
        assert_int_not_equal(tl_moe_sort(whole_of(ctx, TL_I32, beyond, 2, 2), tl_dim_of(5), &order, &offsets), TL_OK);
        assert_null(order);
        check_fails(ctx, TL_ERR_ARGUMENT, "the expert at position 2 is outside 0 … 4");
        tl_moe_sort(whole_of(ctx, TL_I64, below, 2, 2), tl_dim_of(5), &order, &offsets);
        check_fails(ctx, TL_ERR_ARGUMENT, "the expert at position 1 is outside");
        assert_null(tl_moe_capacity(whole_of(ctx, TL_I64, below, 2, 2), tl_dim_of(5), tl_dim_of(1), true));
        check_fails(ctx, TL_ERR_ARGUMENT, "the expert at position 1 is outside");
        assert_null(tl_moe_load(whole_of(ctx, TL_I64, beyond, 2, 2), tl_dim_of(5), TL_F32));
        check_fails(ctx, TL_ERR_ARGUMENT, "the expert at position 2 is outside");
        tl_moe_sort(whole_of(ctx, TL_I64, beyond, 2, 2), tl_dim_of(0), &order, &offsets);
        check_fails(ctx, TL_ERR_ARGUMENT, "0 experts; 1 to");
        tl_moe_sort(w, tl_dim_of(5), &order, &offsets);
        check_fails(ctx, TL_ERR_DTYPE, "i32 or i64 would work");
        assert_null(tl_moe_capacity(whole_of(ctx, TL_I64, beyond, 2, 2), tl_dim_of(5), tl_dim_of(-1), false));
        check_fails(ctx, TL_ERR_ARGUMENT, "5 experts with -1 places each");
        tl_tensor *wrong = whole_of(ctx, TL_I32, rows, 2, 2), *high = whole_of(ctx, TL_I64, many, 2, 2);
        assert_null(tl_moe_permute(x, wrong, tl_dim_of(2)));
        check_fails(ctx, TL_ERR_ARGUMENT, "the choice in row 2 is outside 0 … 3, and not −1");
        assert_null(tl_moe_permute(x, high, tl_dim_of(2)));
        check_fails(ctx, TL_ERR_ARGUMENT, "the choice in row 1 is outside 0 … 3");
        assert_null(tl_moe_permute(x, high, tl_dim_of(0)));
        check_fails(ctx, TL_ERR_ARGUMENT, "2 tokens of 0 choices each");
        assert_null(tl_moe_combine(y, wrong, w));
        check_fails(ctx, TL_ERR_ARGUMENT, "the choice in row 2 is outside");
        assert_null(tl_moe_sum(y, wrong, tl_dim_of(2), tl_dim_of(2)));
        check_fails(ctx, TL_ERR_ARGUMENT, "the choice in row 2 is outside");
        assert_null(tl_moe_sum(y, wrong, tl_dim_of(INT64_C(1) << 40), tl_dim_of(2)));
        check_fails(ctx, TL_ERR_OVERFLOW, "numbered in 32 bits");
        assert_null(tl_moe_combine(x, wrong, w));
        check_fails(ctx, TL_ERR_SHAPE, "the tensor of rows is f32[2, 4]");
        assert_null(tl_moe_combine(y, wrong, tensor_of(ctx, TL_F64, layer_weights, 2, 2, 2)));
        check_fails(ctx, TL_ERR_DTYPE, "the weights are f64 and the rows f32");
        assert_null(tl_moe_combine(y, wrong, NULL));
        check_fails(ctx, TL_ERR_ARGUMENT, "input 2 is missing");
    }
}

static void test_products_refuse(void **state) {
    (void)state;
    static const struct {
        int64_t offsets[4];
        const char *says;
    } bad[] = {{{1, 2, 3, 6}, "offset 0 is 1"},
               {{0, 4, 3, 6}, "offset 2 is 3"},
               {{0, 2, 3, 5}, "offset 3 is 5; offsets that rise from 0 to the 6 rows would work"},
               {{0, 2, 9, 6}, "offset 2 is 9"},
               {{0, -1, 3, 6}, "offset 1 is -1"}};
    EACH(ctx) {
        tl_tensor *x = tensor_of(ctx, TL_F32, layer_x, 2, 6, 4), *w = tensor_of(ctx, TL_F32, layer_w1, 3, 3, 3, 4);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            tl_shape four = TL_SHAPE(ctx, tl_dim_of(4));
            assert_null(
                tl_grouped_linear(x, w, NULL, tl_from_data(ctx, TL_I64, four, TL_DATA, bad[i].offsets, 4), false));
            check_fails(ctx, TL_ERR_ARGUMENT, bad[i].says);
        }
        tl_tensor *good = tl_view(whole_of(ctx, TL_I32, (int64_t[]){0, 6, 6, 6}, 1, 4), TL_SHAPE(ctx, tl_dim_of(4)));
        assert_null(tl_grouped_linear(x, w, NULL, good, true));
        check_fails(ctx, TL_ERR_SHAPE, "[experts, in, out] would work");
        assert_null(tl_grouped_linear(x, w, tensor_of(ctx, TL_F32, layer_b1, 2, 3, 2), good, false));
        check_fails(ctx, TL_ERR_SHAPE, "the bias is f32[3, 2]");
        assert_null(tl_grouped_linear(x, tl_cast(w, TL_F64), NULL, good, false));
        check_fails(ctx, TL_ERR_DTYPE, "x is f32, the weights f64; one format would work");
        assert_null(tl_grouped_linear(x, w, NULL, x, false));
        check_fails(ctx, TL_ERR_DTYPE, "the offsets are f32");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routers),
        cmocka_unit_test(test_two_ways_to_mixtral),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_capacity_of),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_accumulates),
        cmocka_unit_test(test_scaled_input),
        cmocka_unit_test(test_rounds_once),
        cmocka_unit_test(test_routing_refuses),
        cmocka_unit_test(test_dispatch_refuses),
        cmocka_unit_test(test_products_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
