/* The account of a mixture of experts: planned on meta = measured by the second instrument whatever the routing, what is kept for
 * backward, the formulas, and the same bits on any number of threads. */
#include "layers.h"

#include "instrument.h"
#include "tally/ops_moe.h"

/* n tokens of D, E experts of F, k choices each. Values: a small generator, so that no two rows are alike. */
typedef struct sizes {
    int64_t n, D, E, F, k;
} sizes;

typedef enum routing_kind { SPREAD, ONE_EXPERT, SKEWED, ROUTED, ROUTINGS } routing_kind;

static float drawn(uint64_t *seed) { /* splitmix64 */
    uint64_t z = (*seed += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (float)(int64_t)(z >> 40) * 0x1p-23f - 1;
}

static tl_tensor *random_of(tl_ctx *ctx, tl_shape shape, bool leaf, uint64_t seed) {
    int64_t count = 1;
    for (int d = 0; d < shape.ndim; d++)
        count *= shape.dim[d].size;
    float *v = malloc((size_t)count * 4 + 4);
    assert_non_null(v);
    for (int64_t i = 0; i < count; i++)
        v[i] = drawn(&seed);
    tl_tensor *t = tl_from_data(ctx, TL_F32, shape, leaf ? TL_PARAM : TL_DATA, v, count);
    free(v);
    assert_non_null(t);
    return leaf ? leaf_of(t) : t;
}

static tl_tensor *experts_of(tl_ctx *ctx, tl_shape shape, int64_t n_expert, routing_kind kind) {
    int64_t count = shape.dim[0].size * shape.dim[1].size;
    int32_t *v = malloc((size_t)count * 4);
    assert_non_null(v);
    for (int64_t i = 0; i < count; i++)
        v[i] = (int32_t)(kind == SPREAD       ? i % n_expert
                         : kind == ONE_EXPERT ? n_expert - 1
                         : i % 7 == 0         ? 0
                                              : n_expert / 2);
    tl_tensor *t = tl_from_data(ctx, TL_I32, shape, TL_DATA, v, count);
    free(v);
    return t;
}

typedef struct step {
    tl_tensor *x, *router, *w1, *b1, *w2, *y;
    int64_t saved; /* after forward */
} step;

/* Forward and backward of a layer; the scope's tensors die with the context. */
static step run(tl_ctx *ctx, const sizes *s, routing_kind kind, bool grad) {
    tl_dim B = tl_dim_symbol(ctx, "B", 1, "test"), n = tl_dim_mul(ctx, B, tl_dim_symbol(ctx, "T", s->n, "test"));
    tl_dim D = tl_dim_symbol(ctx, "D", s->D, "test"), E = tl_dim_symbol(ctx, "E", s->E, "test");
    tl_dim F = tl_dim_symbol(ctx, "F", s->F, "test"), k = tl_dim_symbol(ctx, "k", s->k, "test");
    step t = {.x = random_of(ctx, TL_SHAPE(ctx, n, D), grad, 1),
              .router = random_of(ctx, TL_SHAPE(ctx, E, D), grad, 2),
              .w1 = random_of(ctx, TL_SHAPE(ctx, E, F, D), grad, 3),
              .b1 = random_of(ctx, TL_SHAPE(ctx, E, F), grad, 4),
              .w2 = random_of(ctx, TL_SHAPE(ctx, E, F, D), grad, 5)};
    tl_tensor *fixed = experts_of(ctx, TL_SHAPE(ctx, n, k), s->E, kind), *order, *offsets;
    tl_tensor *weight = random_of(ctx, TL_SHAPE(ctx, n, D), false, 6);
    tl_routing routing;
    tl_route_options o = {.k = k, .renormalise = true};
    tl_ledger_step_begin(ctx);
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_record(ctx, grad);
    int64_t before = tl_ledger_live(ctx, TL_SAVED);
    tl_scope_begin(ctx);
    tl_route_top_k(tl_linear(t.x, t.router, NULL), &o, &routing);
    tl_moe_sort(kind == ROUTED ? routing.experts : fixed, E, &order, &offsets);
    tl_tensor *h = tl_silu(tl_grouped_linear(tl_moe_permute(t.x, order, k), t.w1, t.b1, offsets, false));
    t.y = tl_moe_combine(tl_grouped_linear(h, t.w2, NULL, offsets, true), order, routing.weights);
    tl_scope_end_into(ctx, &t.y, t.y);
    check_ok(ctx);
    t.saved = tl_ledger_live(ctx, TL_SAVED) - before;
    if (grad) {
        tl_tensor *loss = tl_sum(tl_mul(t.y, weight), NULL, 0, false);
        tl_phase_set(ctx, TL_PHASE_BACKWARD);
        tl_record(ctx, false);
        assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
    }
    return t;
}

static void test_planned_is_measured(void **state) {
    (void)state;
    static const sizes cases[] = {{24, 8, 4, 6, 2}, {5, 3, 7, 9, 3}, {1, 16, 2, 4, 1}, {33, 20, 8, 12, 4}};
    int compared = 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int grad = 0; grad < 2; grad++) {
            const sizes *s = &cases[c];
            tl_ctx *meta = new_ctx(NULL, false);
            tl_counts planned, real;
            tl_peak peak;
            run(meta, s, SPREAD, grad);
            tl_ledger_counts(meta, TL_PHASE_ALL, &planned);
            tl_ledger_peak(meta, &peak);
            /* 2·n·D·E of the router, 2·k·n·D·F of each of the experts' two products; backward twice as much, and the loss has none */
            tl_u128 by_hand = (tl_u128)(2 * s->n * s->D * s->E + 4 * s->k * s->n * s->D * s->F) * (grad ? 3u : 1u);
            assert_true(planned.matmul == by_hand);
            for (routing_kind kind = SPREAD; kind < ROUTINGS; kind++) {
                tl_error error = {0};
                instrument *in = instrument_new(NULL);
                tl_allocator allocator = instrument_allocator(in);
                tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = instrument_kernels(in, tl_kernels_portable()),
                                                           .allocator = &allocator,
                                                           .threads = 2},
                                         &error);
                assert_non_null(ctx);
                instrument_begin(in);
                run(ctx, s, kind, grad);
                measured m = instrument_end(in);
                tl_ledger_counts(ctx, TL_PHASE_ALL, &real);
                assert_true(m.matmul == planned.matmul);
                assert_true(real.matmul == planned.matmul && real.arithmetic == planned.arithmetic &&
                            real.special == planned.special && real.read == planned.read &&
                            real.written == planned.written);
                assert_int_equal(m.peak, peak.bytes);
                tl_ctx_free(ctx);
                assert_int_equal(instrument_free(in), 0);
                compared++;
            }
            tl_ctx_free(meta);
        }
    print_message("planned = measured on %d layers\n", compared);
}

/* Unique bytes, by hand: x is a leaf and so are the weights. Router: softmax's output n·E·4; the experts n·k·4 that its gather
 * keeps; the division's result, which the combination weighs with too, and its sum (n·k + n)·4. Order k·n·4 and offsets
 * (E + 1)·4. The rows k·n·D·4; before silu and behind it 2·k·n·F·4; what comes out k·n·D·4. */
static void test_saved(void **state) {
    (void)state;
    static const sizes cases[] = {{24, 8, 4, 6, 2}, {5, 3, 7, 9, 3}, {33, 20, 8, 12, 4}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const sizes *s = &cases[c];
        tl_ctx *meta = new_ctx(NULL, false), *cpu = new_ctx(tl_kernels_portable(), false);
        int64_t m = s->n * s->k, by_hand = s->n * s->E + m + m + s->n + m + s->E + 1 + 2 * m * s->D + 2 * m * s->F;
        assert_int_equal(run(meta, s, ROUTED, true).saved, 4 * by_hand);
        assert_int_equal(run(cpu, s, ROUTED, true).saved, 4 * by_hand);
        assert_int_equal(run(meta, s, ROUTED, false).saved, 0);
        tl_ctx_free(meta);
        tl_ctx_free(cpu);
    }
}

typedef struct found {
    tl_ctx *ctx;
    int grouped;
} found;

static bool is_grouped(void *user, const tl_op_entry *e) {
    found *f = user;
    if (strncmp(e->op, "grouped_", 8) != 0 || e->matmul.count == 0)
        return true;
    const char *text = tl_poly_text(tl_ctx_space(f->ctx), e->matmul.formula, TL_FORMULA_ASCII);
    if (!text || strcmp(text, "2*B*T*D*F*k") != 0)
        fail_msg("%s counts %s", e->op, text);
    f->grouped++;
    return true;
}

/* Two products forward, and dx and dw of each: all 2·(k·B·T)·D·F. */
static void test_formulas(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, true);
    run(ctx, &(sizes){48, 16, 5, 12, 3}, SPREAD, true);
    found f = {ctx, 0};
    tl_ledger_each_op(ctx, is_grouped, &f);
    assert_int_equal(f.grouped, 6);
    const char *const *texts;
    assert_int_equal(tl_ctx_assumptions(ctx, &texts), 0); /* no size was taken for another */
    check_ok(ctx);
    tl_ctx_free(ctx);
}

/* A weight's second gradient is added in the product: no other tensor of its size is made. */
static void test_accumulates_in_place(void **state) {
    (void)state;
    const int64_t n = 12, E = 3, D = 50, F = 40;
    tl_error error = {0};
    instrument *in = instrument_new(NULL);
    tl_allocator allocator = instrument_allocator(in);
    tl_ctx *ctx = tl_ctx_new(
        &(tl_ctx_options){.kernels = instrument_kernels(in, tl_kernels_portable()), .allocator = &allocator}, &error);
    assert_non_null(ctx);
    tl_tensor *w = random_of(ctx, TL_SHAPE(ctx, tl_dim_of(E), tl_dim_of(F), tl_dim_of(D)), true, 3), *order, *offsets;
    tl_tensor *x = random_of(ctx, TL_SHAPE(ctx, tl_dim_of(n), tl_dim_of(D)), false, 4);
    tl_moe_sort(experts_of(ctx, TL_SHAPE(ctx, tl_dim_of(n), tl_dim_of(1)), E, SPREAD), tl_dim_of(E), &order, &offsets);
    int64_t peak[2];
    for (int i = 0; i < 2; i++) {
        tl_scope_begin(ctx);
        tl_record(ctx, true);
        tl_tensor *loss = tl_sum(tl_grouped_linear(x, w, NULL, offsets, false), NULL, 0, false);
        tl_record(ctx, false);
        int64_t before = instrument_live_bytes(in);
        instrument_begin(in);
        assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
        peak[i] = instrument_end(in).peak - before;
        tl_tape_clear(ctx);
        tl_scope_end(ctx);
    }
    assert_true(peak[0] >= E * F * D * 4);
    assert_true(peak[1] < E * F * D * 4);
    tl_ctx_free(ctx);
    assert_int_equal(instrument_free(in), 0);
}

static char *bytes_of(tl_tensor *t, size_t *size) {
    *size = (size_t)tl_tensor_count(t) * 4;
    char *bytes = malloc(*size);
    assert_non_null(bytes);
    assert_int_equal(tl_tensor_read(t, bytes, *size), TL_OK);
    return bytes;
}

static void test_threads(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    const sizes s = {301, 210, 7, 130, 3};
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++) {
        char *first[7] = {NULL};
        for (int i = 0; i < 4; i++) {
            tl_error error = {0};
            tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = *kernels, .threads = threads[i]}, &error);
            assert_non_null(ctx);
            step t = run(ctx, &s, ROUTED, true);
            tl_tensor *all[] = {t.y,
                                tl_tensor_grad(t.x),
                                tl_tensor_grad(t.router),
                                tl_tensor_grad(t.w1),
                                tl_tensor_grad(t.b1),
                                tl_tensor_grad(t.w2)};
            for (int j = 0; j < 6; j++) {
                size_t size;
                char *bytes = bytes_of(all[j], &size);
                if (!first[j])
                    first[j] = bytes;
                else {
                    if (memcmp(first[j], bytes, size) != 0)
                        fail_msg("result %d differs between 1 and %d threads", j, threads[i]);
                    free(bytes);
                }
            }
            tl_ctx_free(ctx);
        }
        for (int j = 0; j < 6; j++)
            free(first[j]);
    }
}

/* Under autocast the experts' products are in bf16; the router's softmax, and with it the weights, stay in f32. */
static void test_autocast(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    assert_int_equal(tl_autocast(ctx, TL_BF16), TL_OK);
    step t = run(ctx, &(sizes){24, 8, 4, 6, 2}, ROUTED, false);
    assert_int_equal(tl_tensor_dtype(t.y), TL_BF16);
    tl_routing routing;
    assert_int_equal(tl_route_top_k(tl_linear(t.x, t.router, NULL), &(tl_route_options){.k = tl_dim_of(2)}, &routing),
                     TL_OK);
    assert_int_equal(tl_tensor_dtype(routing.weights), TL_F32);
    step g = run(ctx, &(sizes){24, 8, 4, 6, 2}, ROUTED, true);
    assert_int_equal(tl_tensor_dtype(tl_tensor_grad(g.w1)), TL_F32);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_is_measured),  cmocka_unit_test(test_saved),   cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_accumulates_in_place), cmocka_unit_test(test_threads), cmocka_unit_test(test_autocast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
