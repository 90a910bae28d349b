/* Packed documents: attention within each document alone, positions from 0 in each (Dubey et al. 2024, The Llama 3 herd of models,
 * section 3.2; the variable-length form of flash attention). What a packed row must give is what its documents give one by one: the
 * losses and gradients of the same net over rows that hold a document each, weighed by their targets. In float64, so that
 * only the order of sums differs. Every family, every way of computing attention, every recompute. */
#include "family_models.h"
#include "layers.h"
#include "small_models.h"
#include "tally/nn.h"
#include "tally/ops_attention.h"
#include "tally/ops_layers.h"

enum { B = 2, T = 11, MOST_PARAMETERS = 128 };

/* Lengths of the documents of each row; 0 ends them. */
static const int lengths[B][5] = {{4, 1, 6, 0}, {3, 2, 2, 4, 0}};

typedef struct packed {
    int32_t input[B][T], target[B][T], position[B][T];
    int counted;
} packed;

static uint32_t next(uint32_t *seed) { return *seed = *seed * 1664525u + 1013904223u; }

static packed packed_of(int64_t vocab) {
    packed p = {.counted = 0};
    uint32_t seed = 7;
    for (int b = 0; b < B; b++)
        for (int d = 0, t = 0; lengths[b][d]; d++)
            for (int i = 0; i < lengths[b][d]; i++, t++) {
                p.input[b][t] = (int32_t)(next(&seed) >> 8) % (int32_t)vocab;
                p.target[b][t] = next(&seed) >> 29 == 0 || i == lengths[b][d] - 1
                                     ? TL_IGNORE_INDEX
                                     : (int32_t)(next(&seed) >> 8) % (int32_t)vocab;
                p.position[b][t] = i;
                p.counted += p.target[b][t] != TL_IGNORE_INDEX;
            }
    return p;
}

static tl_tensor *ids(tl_ctx *ctx, const int32_t *values, int rows, int columns) {
    return tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(rows), tl_dim_of(columns)), TL_DATA, values,
                        (int64_t)rows * columns);
}

/* The loss of some rows, and its gradients added to the parameters'. */
static double learn(tl_ctx *ctx, tl_net *net, tl_tensor *input, tl_tensor *target, tl_tensor *positions,
                    double weight) {
    double loss = 0;
    assert_int_equal(tl_net_documents(net, positions), TL_OK);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_tensor *value = tl_net_loss(net, input, target);
    check_ok(ctx);
    assert_int_equal(tl_item(value, &loss), TL_OK);
    assert_int_equal(tl_backward(ctx, value, weight), TL_OK);
    check_ok(ctx);
    tl_net_let_go(net);
    tl_net_documents(net, NULL);
    return loss;
}

static double learn_packed(tl_ctx *ctx, tl_net *net, const packed *p, bool masked) {
    tl_scope_begin(ctx);
    double loss = learn(ctx, net, ids(ctx, p->input[0], B, T), ids(ctx, p->target[0], B, T),
                        masked ? ids(ctx, p->position[0], B, T) : NULL, 1);
    tl_scope_end(ctx);
    return loss;
}

static double learn_one_by_one(tl_ctx *ctx, tl_net *net, const packed *p) {
    double sum = 0;
    for (int b = 0; b < B; b++)
        for (int d = 0, t = 0; lengths[b][d]; t += lengths[b][d++]) {
            int n = lengths[b][d], counted = 0;
            for (int i = 0; i < n; i++)
                counted += p->target[b][t + i] != TL_IGNORE_INDEX;
            if (!counted)
                continue;
            const double weight = (double)counted / p->counted;
            tl_scope_begin(ctx);
            sum += weight *
                   learn(ctx, net, ids(ctx, p->input[b] + t, 1, n), ids(ctx, p->target[b] + t, 1, n), NULL, weight);
            tl_scope_end(ctx);
        }
    return sum;
}

/* The gradients as doubles, and gone from the parameters. NULL: there was none. */
static void take_gradients(tl_net *net, double *gradient[MOST_PARAMETERS]) {
    const tl_parameter *list;
    const int count = tl_net_parameters(net, &list);
    assert_true(count <= MOST_PARAMETERS);
    for (int i = 0; i < count; i++) {
        tl_tensor *g = tl_tensor_grad(list[i].tensor);
        const size_t bytes = (size_t)tl_tensor_count(list[i].tensor) * sizeof(double);
        gradient[i] = g ? malloc(bytes) : NULL;
        if (g)
            assert_int_equal(tl_tensor_read(g, gradient[i], bytes), TL_OK);
        tl_tensor_clear_grad(list[i].tensor);
    }
}

/* The largest difference from `b`, in parts of the largest of its parameter's. */
static double compare_and_free(tl_net *net, double *a[], double *b[]) {
    const tl_parameter *list;
    const int count = tl_net_parameters(net, &list);
    double worst = 0;
    for (int i = 0; i < count; i++) {
        double most = 1e-9; /* a key's bias has no gradient: what is left of it is rounding */
        assert_true((a[i] == NULL) == (b[i] == NULL));
        for (int64_t k = 0; a[i] && k < tl_tensor_count(list[i].tensor); k++)
            most = fmax(most, fabs(b[i][k]));
        for (int64_t k = 0; a[i] && k < tl_tensor_count(list[i].tensor); k++)
            worst = fmax(worst, isfinite(a[i][k]) ? fabs(a[i][k] - b[i][k]) / most : INFINITY);
        free(a[i]);
        free(b[i]);
    }
    return worst;
}

static double worst_of_all;

/* Whether the choices hold for the model; what packed rows give is compared. */
static bool compare(const char *what, const tl_model *model, const char *choices, tl_recompute recompute,
                    bool joined_differs) {
    tl_error error = {0};
    tl_choices chosen = {0};
    double *masked[MOST_PARAMETERS], *apart[MOST_PARAMETERS];
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .threads = 2}, &error);
    assert_non_null(ctx);
    assert_int_equal(tl_choices_parse(choices, &chosen, &error), TL_OK);
    tl_net *net = tl_net_new(ctx, model, TL_F64);
    check_ok(ctx);
    bool holds = tl_net_choose(net, &chosen) == TL_OK && tl_net_recompute(net, recompute) == TL_OK;
    tl_ctx_clear_error(ctx);
    if (holds) {
        const packed p = packed_of(model->vocab);
        const double loss = learn_packed(ctx, net, &p, true);
        take_gradients(net, masked);
        const double expected = learn_one_by_one(ctx, net, &p);
        take_gradients(net, apart);
        const double worst = compare_and_free(net, masked, apart);
        worst_of_all = fmax(worst_of_all, worst);
        if (!(fabs(loss - expected) <= 1e-12 * expected) || !(worst <= 1e-9))
            fail_msg("%s, %s, %s: a loss of %.17g packed and %.17g one by one, gradients %.2g apart", what, model->name,
                     choices, loss, expected, worst);
        const double joined = learn_packed(ctx, net, &p, false);
        take_gradients(net, masked);
        const tl_parameter *list;
        for (int i = 0; i < tl_net_parameters(net, &list); i++)
            free(masked[i]);
        if (joined_differs && fabs(joined - expected) < 1e-7 * expected)
            fail_msg("%s: joined documents give the same loss, and nothing was tested", what);
    }
    tl_net_free(net);
    tl_ctx_free(ctx);
    return holds;
}

static const char *const ways[] = {
    "attention=eager",  "attention=flash", "attention=math",      "mask-tensor=on",
    "softmax=composed", "rotary=tables",   "repeat-kv=on",        "attention=flash,repeat-kv=on",
    "loss=chunked:3",   "softmax-fp32=on", "attention-copies=on", "loss=fused:2,attention=flash",
};
static const tl_recompute recomputes[] = {
    {TL_RECOMPUTE_NONE, 0}, {TL_RECOMPUTE_SELECTIVE, 0}, {TL_RECOMPUTE_FULL, 0}, {TL_RECOMPUTE_EVERY, 2}};

/* Chunks restart with no document; Falcon's ALiBi is rounded to bf16 by where in a row a key stands. */
static bool is_refused(const tl_model *m) {
    bool refused = m->alibi_scaled;
    for (int64_t i = 0; i < m->layers; i++)
        refused = refused || (m->layer[i] & TL_LAYER_CHUNKED);
    return refused;
}

static void test_gpt2_and_llama_every_way(void **state) {
    (void)state;
    int held = 0;
    for (int family = 0; family < 2; family++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (int r = 0; r < 4; r++) {
                const tl_model model = family ? small_llama() : small_gpt2();
                held += compare(family ? "llama" : "gpt2", &model, ways[w], recomputes[r], true);
            }
    assert_int_equal(held, 2 * (int)(sizeof ways / sizeof *ways) * 4);
    print_message("packed = one by one, gradients within %.2g\n", worst_of_all);
}

static void test_every_family(void **state) {
    (void)state;
    int held = 0, chunked = 0;
    for (int i = 0; i < family_model_count(); i++) {
        const tl_model model = family_model(i);
        char what[32];
        snprintf(what, sizeof what, "family model %d", i);
        if (is_refused(&model)) {
            chunked++;
            continue;
        }
        for (int w = 0; w < 4; w++)
            held += compare(what, &model, ways[w], recomputes[w % 3], false);
    }
    assert_true(held > 2 * family_model_count() && chunked > 0);
    print_message("%d families and ways, gradients within %.2g\n", held, worst_of_all);
}

/* ---- the two ops beside each other, over more than a block of rows and keys ---- */

static void test_flash_beside_masked_softmax(void **state) {
    (void)state;
    enum { ROWS = 150, HEADS = 2, SIZE = 8, N = B * HEADS * ROWS * SIZE };
    static const int64_t begins[B][6] = {{0, 1, 63, 64, 130, ROWS}, {0, 149, ROWS}};
    static double value[3][N];
    int64_t position[B * ROWS];
    uint32_t seed = 3;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N; i++)
            value[k][i] = (double)next(&seed) * 0x1p-31 - 1;
    for (int b = 0; b < B; b++)
        for (int i = 0, d = 0; i < ROWS; i++) {
            d += begins[b][d + 1] == i;
            position[b * ROWS + i] = i - begins[b][d];
        }
    for (int window = -1; window < 60; window += 20)
        for (const tl_kernels *const *k = all_kernels(); *k; k++)
            for (int wide = 0; wide < 2; wide++) {
                tl_ctx *ctx = new_ctx(*k, false);
                tl_tensor *in[2][3];
                tl_scope_begin(ctx);
                tl_record(ctx, true);
                tl_tensor *rows = tl_from_data(ctx, TL_I64, TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(ROWS)), TL_DATA,
                                               position, B * ROWS);
                for (int form = 0; form < 2; form++)
                    for (int i = 0; i < 3; i++)
                        in[form][i] =
                            leaf_of(tensor_of(ctx, wide ? TL_F64 : TL_F32, value[i], 4, B, HEADS, ROWS, SIZE));
                const tl_flash_options blocks = {
                    .scale = 0.3, .causal = true, .window_before = window, .positions = rows};
                const tl_mask_options seen = {
                    .scale = 0.3, .causal = true, .window_before = window, .window_after = -1, .positions = rows};
                tl_tensor *weight = tensor_of(ctx, wide ? TL_F64 : TL_F32, value[0], 4, B, HEADS, ROWS, SIZE);
                static double expected[4][N];
                for (int form = 1; form >= 0; form--) { /* composed, then by blocks */
                    tl_tensor **qkv = in[form], *y;
                    tl_record(ctx, true);
                    if (form)
                        y = tl_matmul(
                            tl_masked_softmax(tl_matmul(qkv[0], tl_transpose(qkv[1], -1, -2)), NULL, NULL, &seen),
                            qkv[2]);
                    else
                        y = tl_flash_attention(qkv[0], qkv[1], qkv[2], &blocks);
                    tl_tensor *loss = tl_sum(tl_mul(y, weight), NULL, 0, false);
                    tl_record(ctx, false);
                    check_ok(ctx);
                    assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
                    for (int i = 0; i < 4; i++) {
                        tl_tensor *t = tl_cast(tl_contiguous(i < 3 ? tl_tensor_grad(qkv[i]) : y), TL_F64);
                        check_ok(ctx);
                        if (form == 1)
                            assert_int_equal(tl_tensor_read(t, expected[i], sizeof expected[i]), TL_OK);
                        else
                            check_close("flash", t, expected[i], N, wide ? 1e-12 : 2e-5);
                    }
                }
                tl_tape_clear(ctx);
                tl_scope_end(ctx);
                tl_ctx_free(ctx);
            }
}

/* ---- what is refused ---- */

static void test_refusals(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    const tl_model gpt2 = small_gpt2(), cruncher = small_cruncher();
    tl_scope_begin(ctx);
    tl_net *net = tl_net_new(ctx, &gpt2, TL_F32), *vectors = tl_net_new(ctx, &cruncher, TL_F32);
    const packed p = packed_of(gpt2.vocab);
    assert_int_equal(tl_net_documents(net, ids(ctx, p.position[0], B, T - 1)), TL_OK);
    assert_null(tl_net_forward(net, ids(ctx, p.input[0], B, T)));
    check_fails(ctx, TL_ERR_SHAPE, "one a token would work");
    assert_int_equal(tl_net_documents(net, NULL), TL_OK);
    tl_net_documents(vectors, ids(ctx, p.position[0], B, T));
    check_fails(ctx, TL_ERR_UNSUPPORTED, "has no sequence");
    tl_tensor *x = tensor_of(ctx, TL_F32, (double[24]){0}, 3, 2, 3, 4);
    tl_mask_options o = {.scale = 1, .window_before = -1, .window_after = -1};
    o.positions = ids(ctx, p.position[0], 3, 2);
    assert_null(tl_masked_softmax(x, NULL, NULL, &o));
    check_fails(ctx, TL_ERR_SHAPE, "positions");
    o.positions = tensor_of(ctx, TL_F32, (double[6]){0}, 2, 2, 3);
    assert_null(tl_masked_softmax(x, NULL, NULL, &o));
    check_fails(ctx, TL_ERR_DTYPE, "positions");
    tl_tensor *q = tensor_of(ctx, TL_F32, (double[24]){0}, 4, 1, 2, 3, 4);
    tl_flash_options f = {.causal = true, .window_before = -1, .positions = ids(ctx, p.position[0], 1, 4)};
    assert_null(tl_flash_attention(q, q, q, &f));
    check_fails(ctx, TL_ERR_SHAPE, "positions");
    for (int i = 0; i < family_model_count(); i++) {
        const tl_model model = family_model(i);
        if (!is_refused(&model))
            continue;
        tl_net *chunks = tl_net_new(ctx, &model, TL_F32);
        assert_int_equal(tl_net_choose(chunks, &(tl_choices){.documents = true}), TL_ERR_UNSUPPORTED);
        check_fails(ctx, TL_ERR_UNSUPPORTED, "documents masked for");
        tl_net_free(chunks);
    }
    tl_net_free(net);
    tl_net_free(vectors);
    tl_scope_end(ctx);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_and_llama_every_way),
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_flash_beside_masked_softmax),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
