/* Recompute: a checkpointed region gives the same bits with less kept, draws the same random numbers again, counts what it
 * executes twice apart, nests, and refuses by name what it could not do right. Then the nets' policies: the FLOPs and bytes
 * of Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models", beside the ledger's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "instrument.h"
#include "small_models.h"
#include "tally/account.h"
#include "tally/grad.h"
#include "tally/ops.h"
#include "tally/plan.h"

#define DIM(n) tl_dim_of(n)

static tl_ctx *new_ctx(instrument *in) {
    tl_error error = {0};
    tl_allocator allocator = instrument_allocator(in);
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .allocator = &allocator}, &error);
    assert_non_null(ctx);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    return ctx;
}

static tl_tensor *values(tl_ctx *ctx, int64_t rows, int64_t columns, uint64_t seed, bool leaf) {
    float v[512];
    assert_true(rows * columns <= 512);
    for (int64_t i = 0; i < rows * columns; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = (float)((double)(seed >> 40) / (1 << 24) - 0.5);
    }
    tl_tensor *t =
        tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, DIM(rows), DIM(columns)), leaf ? TL_PARAM : TL_DATA, v, rows * columns);
    assert_non_null(t);
    if (leaf)
        tl_tensor_require_grad(t, true);
    return t;
}

static tl_tensor *sum(tl_tensor *x) { return tl_sum(x, NULL, 0, false); }

static void backward(tl_ctx *ctx, tl_tensor *loss) {
    tl_status status = tl_backward(ctx, loss, 1.0);
    if (status != TL_OK)
        fail_msg("%s", tl_ctx_error(ctx)->message);
}

/* ---- a layer with dropout, as a region ---- */

typedef struct layer {
    tl_tensor *w;
    double dropout;
    bool nested;
    int *runs; /* how often it ran */
} layer;

static tl_status layer_region(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const layer *l = user;
    ++*l->runs;
    if (l->nested) {
        layer inner = *l;
        inner.nested = false;
        return tl_checkpoint(ctx, layer_region, &inner, sizeof inner, in, 1, out, 1);
    }
    tl_tensor *y = tl_gelu_tanh(tl_dropout(tl_linear(in[0], l->w, NULL), l->dropout, "layer"));
    out[0] = tl_add(in[0], y);
    return tl_ctx_status(ctx);
}

typedef struct outcome {
    float loss[1], gw[64], gx[64], g0[64];
    tl_counts all, again;
    int64_t saved;
    int runs;
} outcome;

enum { PLAIN, REGION, NESTED };

/* Three layers over a leaf; x is also used outside, before and after the regions, so that its gradients meet. */
static void run_layers(int how, outcome *o) {
    instrument *in = instrument_new(NULL);
    tl_ctx *ctx = new_ctx(in);
    memset(o, 0, sizeof *o);
    tl_tensor *w = values(ctx, 8, 8, 3, true), *x0 = values(ctx, 8, 8, 5, true), *w0 = values(ctx, 8, 8, 9, true);
    tl_ledger_step_begin(ctx);
    tl_tensor *x = tl_linear(x0, w0, NULL), *early = tl_exp(x), *y = x;
    for (int i = 0; i < 3; i++) {
        layer l = {w, 0.25, how == NESTED, &o->runs};
        tl_tensor *made = NULL;
        if (how == PLAIN)
            assert_int_equal(layer_region(ctx, &l, &y, &made), TL_OK);
        else
            assert_int_equal(tl_checkpoint(ctx, layer_region, &l, sizeof l, &y, 1, &made, 1), TL_OK);
        y = made;
    }
    o->saved = tl_ledger_live(ctx, TL_SAVED);
    tl_tensor *loss = sum(tl_mul(tl_mul(y, early), tl_tanh(x)));
    assert_int_equal(tl_tensor_read(loss, o->loss, sizeof o->loss), TL_OK);
    backward(ctx, loss);
    assert_int_equal(tl_tensor_read(tl_tensor_grad(w), o->gw, sizeof o->gw), TL_OK);
    assert_int_equal(tl_tensor_read(tl_tensor_grad(x0), o->gx, sizeof o->gx), TL_OK);
    assert_int_equal(tl_tensor_read(tl_tensor_grad(w0), o->g0, sizeof o->g0), TL_OK);
    tl_ledger_counts(ctx, TL_PHASE_ALL, &o->all);
    tl_ledger_recomputed(ctx, TL_PHASE_ALL, &o->again);
    assert_int_equal(tl_ledger_live(ctx, TL_SAVED), 0);
    assert_int_equal(tl_tape_nodes(ctx), 0);
    tl_ctx_free(ctx);
    assert_int_equal(instrument_free(in), 0);
}

static void test_same_bits_with_less_kept(void **state) {
    (void)state;
    outcome plain, region, nested;
    run_layers(PLAIN, &plain);
    run_layers(REGION, &region);
    run_layers(NESTED, &nested);
    for (const outcome *o = &region; o; o = o == &region ? &nested : NULL) {
        assert_memory_equal(o->loss, plain.loss, sizeof plain.loss);
        assert_memory_equal(o->gw, plain.gw, sizeof plain.gw);
        assert_memory_equal(o->gx, plain.gx, sizeof plain.gx);
        assert_memory_equal(o->g0, plain.g0, sizeof plain.g0);
        assert_true(o->saved < plain.saved);
        /* what is not recomputed is the plain run's, exactly */
        assert_true(o->all.matmul - o->again.matmul == plain.all.matmul);
        assert_true(o->all.special - o->again.special == plain.all.special);
        assert_true(o->all.arithmetic - o->again.arithmetic == plain.all.arithmetic);
    }
    /* One product of 8×8×8 a layer: once more in a region, twice more in a nested one. */
    assert_true(plain.again.matmul == 0 && plain.again.ops == 0);
    assert_true(region.again.matmul == 3 * 2 * 8 * 8 * 8);
    assert_true(nested.again.matmul == 2 * 3 * 2 * 8 * 8 * 8);
    assert_int_equal(plain.runs, 3);
    assert_int_equal(region.runs, 6);
    /* Outer: 3, again 3. Inner: with each of those 6, and once more in backward of the second. */
    assert_int_equal(nested.runs, 6 + 9);
    /* x0, x (an input, saved by exp's output elsewhere), exp(x), and the inputs of layers 2 and 3: 8×8 floats each. w and
     * w0 are parameters. */
    assert_int_equal(region.saved, 4 * 256);
}

/* ---- what is refused, and what is left behind ---- */

typedef struct odd {
    tl_tensor *outer; /* of the expression around it */
    int *run;
    enum { CAPTURE, CAPTURE_NESTED, DRAW_MORE, OTHER_SHAPE, NOTHING, WRITE, WALK, RECORD, FAIL } what;
} odd;

static tl_status odd_region(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    const odd *o = user;
    bool again = ++*o->run > 1;
    layer l = {in[0], 0, false, o->run};
    switch (o->what) {
    case CAPTURE:
        out[0] = tl_mul(in[0], o->outer);
        break;
    case CAPTURE_NESTED:
        (void)tl_checkpoint(ctx, layer_region, &l, sizeof l, (tl_tensor *[]){o->outer}, 1, out, 1);
        break;
    case DRAW_MORE:
        out[0] = tl_dropout(in[0], 0.5, "odd");
        if (again)
            out[0] = tl_dropout(out[0], 0.5, "odd");
        break;
    case OTHER_SHAPE:
        out[0] = again ? tl_transpose(in[0], 0, 1) : tl_copy(in[0]);
        break;
    case NOTHING:
        break;
    case WRITE:
        out[0] = tl_accumulate(in[0], in[0]);
        break;
    case WALK:
        return tl_backward(ctx, sum(in[0]), 1);
    case RECORD:
        (void)tl_record(ctx, true);
        out[0] = tl_exp(in[0]);
        (void)tl_record(ctx, true);
        out[0] = tl_exp(tl_add(out[0], o->outer));
        break;
    case FAIL:
        return TL_ERR_ARGUMENT;
    }
    return tl_ctx_status(ctx);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        int what;
        tl_status status;
        const char *says;
        bool in_forward;
    } cases[] = {
        {CAPTURE, TL_ERR_STATE, "name it among the region's inputs", true},
        {CAPTURE_NESTED, TL_ERR_STATE, "name it among the region's inputs", true},
        {DRAW_MORE, TL_ERR_STATE, "the first time it drew 8", false},
        {OTHER_SHAPE, TL_ERR_STATE, "the first time it was f32[2, 4]", false},
        {NOTHING, TL_ERR_STATE, "made no output 0", true},
        {WRITE, TL_ERR_STATE, "backward still needs", true},
        {WALK, TL_ERR_STATE, "call it after the region", true},
        {RECORD, TL_ERR_STATE, "records by itself", true},
        {FAIL, TL_ERR_ARGUMENT, "failed without a message", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        instrument *in = instrument_new(NULL);
        tl_ctx *ctx = new_ctx(in);
        int runs = 0;
        tl_tensor *x = tl_exp(values(ctx, 2, 4, 1, true)), *y = NULL;
        odd o = {x, &runs, 0};
        memcpy(&o.what, &cases[i].what, sizeof o.what);
        tl_tensor *input =
            cases[i].what == CAPTURE || cases[i].what == CAPTURE_NESTED ? values(ctx, 2, 4, 2, false) : x;
        int64_t nodes = tl_tape_nodes(ctx), saved = tl_ledger_live(ctx, TL_SAVED);
        tl_status status = tl_checkpoint(ctx, odd_region, &o, sizeof o, &input, 1, &y, 1);
        if (cases[i].in_forward) {
            assert_int_equal(tl_tape_nodes(ctx), nodes);
            assert_int_equal(tl_ledger_live(ctx, TL_SAVED), saved);
        } else {
            assert_int_equal(status, TL_OK);
            status = tl_backward(ctx, sum(y), 1);
            assert_int_equal(tl_tape_nodes(ctx), 0);
            assert_int_equal(tl_ledger_live(ctx, TL_SAVED), 0);
        }
        assert_int_equal(status, cases[i].status);
        if (!strstr(tl_ctx_error(ctx)->message, cases[i].says))
            fail_msg("%s", tl_ctx_error(ctx)->message);
        tl_ctx_free(ctx);
        assert_int_equal(instrument_free(in), 0);
    }
}

static void test_bad_calls(void **state) {
    (void)state;
    int runs = 0;
    for (int i = 0; i < 4; i++) {
        instrument *in = instrument_new(NULL);
        tl_ctx *ctx = new_ctx(in), *other = new_ctx(in);
        layer l = {values(ctx, 8, 8, 3, true), 0, false, &runs};
        tl_tensor *x = i == 2 ? NULL : values(i == 3 ? other : ctx, 8, 8, 1, false), *y[17];
        assert_int_equal(tl_checkpoint(ctx, layer_region, &l, sizeof l, &x, i != 0, y, i == 1 ? 17 : 1),
                         TL_ERR_ARGUMENT);
        tl_ctx_free(ctx);
        tl_ctx_free(other);
        assert_int_equal(instrument_free(in), 0);
    }
    assert_int_equal(runs, 0);
}

static void test_what_is_recorded(void **state) {
    (void)state;
    instrument *in = instrument_new(NULL);
    tl_ctx *ctx = new_ctx(in);
    int runs = 0;
    layer l = {values(ctx, 8, 8, 3, true), 0, false, &runs};
    tl_tensor *x = values(ctx, 8, 8, 1, false), *y;
    /* Captured parameters alone want the gradient; the pointer is passed on as it is. */
    assert_int_equal(tl_checkpoint(ctx, layer_region, &l, 0, &x, 1, &y, 1), TL_OK);
    assert_int_equal(tl_tape_nodes(ctx), 1);
    backward(ctx, sum(y));
    assert_non_null(tl_tensor_grad(l.w));
    /* Nothing wants one: nothing is recorded or kept. Nor without recording. */
    tl_tensor_clear_grad(l.w);
    tl_tensor_require_grad(l.w, false);
    assert_int_equal(tl_checkpoint(ctx, layer_region, &l, sizeof l, &x, 1, &y, 1), TL_OK);
    assert_int_equal(tl_tape_nodes(ctx), 0);
    tl_tensor_require_grad(l.w, true);
    assert_int_equal(tl_record(ctx, false), TL_OK);
    assert_int_equal(tl_checkpoint(ctx, layer_region, &l, sizeof l, &x, 1, &y, 1), TL_OK);
    assert_int_equal(tl_tape_nodes(ctx), 0);
    assert_int_equal(tl_ledger_live(ctx, TL_SAVED), 0);
    assert_int_equal(runs, 4);
    tl_ctx_free(ctx);
    assert_int_equal(instrument_free(in), 0);
}

/* Inputs passed through, given twice, a leaf among them, an output that wants nothing. d(loss) by hand: loss = Σ a·p + a + a
 * with a = exp(x), p a leaf: da = p + 2, dp = a. */
static tl_status many_region(tl_ctx *ctx, const void *user, tl_tensor *const in[], tl_tensor *out[]) {
    (void)user;
    out[0] = tl_mul(in[0], in[2]);
    out[1] = in[1];
    out[2] = tl_add(in[0], in[3]);
    out[3] = tl_copy(in[3]);
    return tl_ctx_status(ctx);
}

static void test_many_inputs_and_outputs(void **state) {
    (void)state;
    float with[2][8] = {{0}}, without[2][8] = {{0}};
    for (int plain = 0; plain < 2; plain++) {
        instrument *in = instrument_new(NULL);
        tl_ctx *ctx = new_ctx(in);
        tl_tensor *x = values(ctx, 2, 4, 1, true), *p = values(ctx, 2, 4, 2, true), *c = values(ctx, 2, 4, 3, false);
        tl_tensor *a = tl_exp(x), *ins[] = {a, a, p, c}, *outs[4] = {0};
        tl_status status =
            plain ? many_region(ctx, NULL, ins, outs) : tl_checkpoint(ctx, many_region, NULL, 0, ins, 4, outs, 4);
        assert_int_equal(status, TL_OK);
        tl_tensor *loss = sum(tl_add(tl_add(outs[0], outs[1]), tl_add(outs[2], outs[3])));
        backward(ctx, loss);
        float(*g)[8] = plain ? without : with;
        assert_int_equal(tl_tensor_read(tl_tensor_grad(x), g[0], sizeof g[0]), TL_OK);
        assert_int_equal(tl_tensor_read(tl_tensor_grad(p), g[1], sizeof g[1]), TL_OK);
        float av[8], pv[8];
        assert_int_equal(tl_tensor_read(a, av, sizeof av), TL_OK);
        assert_int_equal(tl_tensor_read(p, pv, sizeof pv), TL_OK);
        for (int i = 0; i < 8; i++) {
            assert_true(g[1][i] == av[i]);
            assert_float_equal(g[0][i], (pv[i] + 2) * av[i], 1e-5);
        }
        tl_ctx_free(ctx);
        assert_int_equal(instrument_free(in), 0);
    }
    assert_memory_equal(with, without, sizeof with);
}

/* ---- nets ---- */

typedef struct trained {
    double loss[3];
    size_t size;
    char *weights; /* all parameters after the last step */
    int64_t saved_high, peak;
} trained;

static void train(tl_model model, tl_recompute recompute, int threads, int64_t accumulation, tl_dtype dtype,
                  trained *t) {
    tl_error error = {0};
    model.dropout_embedding = model.dropout_attention = model.dropout_residual = 0.1;
    model.layers = 5;
    tl_train_options options = {
        .micro_batch = 2, .seq = 16, .accumulation = accumulation, .ranks = 1, .dtype = dtype, .clip = 1};
    options.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    options.recompute = recompute;
    tl_ctx *ctx =
        tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_for_cpu(NULL, &error), .threads = threads}, &error);
    assert_non_null(ctx);
    tl_trainer *trainer = tl_trainer_new(ctx, &model, &options);
    assert_non_null(trainer);
    random_batch batch = {NULL, &model, 11};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < 3; i++) {
        tl_step_result result;
        assert_int_equal(tl_trainer_step(trainer, random_batch_source, &batch, 1e-2, &result), TL_OK);
        t->loss[i] = result.loss;
    }
    tl_peak peak;
    tl_ledger_peak(ctx, &peak);
    t->peak = peak.bytes;
    t->saved_high = tl_ledger_high(ctx, TL_SAVED);
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(trainer), &list);
    for (int i = 0; i < count; i++) {
        size_t bytes = (size_t)(tl_tensor_count(list[i].tensor) * tl_dtype_bytes(dtype));
        t->weights = realloc(t->weights, t->size + bytes);
        assert_non_null(t->weights);
        assert_int_equal(tl_tensor_read(list[i].tensor, t->weights + t->size, bytes), TL_OK);
        t->size += bytes;
    }
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
}

static void test_nets_keep_their_bits(void **state) {
    (void)state;
    static const tl_recompute policies[] = {
        {TL_RECOMPUTE_SELECTIVE, 0}, {TL_RECOMPUTE_FULL, 0}, {TL_RECOMPUTE_EVERY, 2}, {TL_RECOMPUTE_EVERY, 7}};
    for (int family = 0; family < 2; family++)
        for (int64_t accumulation = 1; accumulation <= 2; accumulation++) {
            tl_model model = family ? small_llama() : small_gpt2();
            tl_dtype dtype = accumulation == 2 ? TL_BF16 : TL_F32;
            trained none;
            train(model, (tl_recompute){TL_RECOMPUTE_NONE, 0}, 1, accumulation, dtype, &none);
            for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
                for (int threads = 1; threads <= 2; threads++) {
                    trained t;
                    train(model, policies[p], threads, accumulation, dtype, &t);
                    assert_memory_equal(t.loss, none.loss, sizeof t.loss);
                    assert_int_equal(t.size, none.size);
                    assert_memory_equal(t.weights, none.weights, t.size);
                    assert_true(t.saved_high < none.saved_high);
                    free(t.weights);
                }
            free(none.weights);
        }
}

static void test_policies_are_checked(void **state) {
    (void)state;
    static const struct {
        tl_recompute recompute;
        bool cruncher;
        tl_status status;
    } cases[] = {
        {{TL_RECOMPUTE_EVERY, 0}, false, TL_ERR_ARGUMENT},  {{TL_RECOMPUTE_FULL, 2}, false, TL_ERR_ARGUMENT},
        {{TL_RECOMPUTE_FULL, 0}, true, TL_ERR_UNSUPPORTED}, {{TL_RECOMPUTE_NONE, 0}, true, TL_OK},
        {{TL_RECOMPUTE_EVERY, INT64_MAX}, false, TL_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_error error = {0};
        tl_ctx *ctx = tl_ctx_new(NULL, &error);
        tl_model model = cases[i].cruncher ? small_cruncher() : small_gpt2();
        tl_net *net = tl_net_new(ctx, &model, TL_F32);
        assert_int_equal(tl_net_recompute(net, cases[i].recompute), cases[i].status);
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
    char text[32];
    assert_string_equal(tl_recompute_text((tl_recompute){TL_RECOMPUTE_EVERY, 3}, text, sizeof text), "every:3");
    assert_string_equal(tl_recompute_text((tl_recompute){TL_RECOMPUTE_SELECTIVE, 0}, text, sizeof text), "selective");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_with_less_kept),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_what_is_recorded),
        cmocka_unit_test(test_many_inputs_and_outputs),
        cmocka_unit_test(test_nets_keep_their_bits),
        cmocka_unit_test(test_policies_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
