/* Facts of CS336 (Stanford), lecture 2 (spring2025-lectures, lecture_02.py @ bbdbc9c5), and figures other tools got wrong,
 * each as the ledger says them. Expected values are the lecture's or are worked out in the comment.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/table.h"
#include "small_models.h"
#include "tally/account.h"
#include "tally/grad.h"
#include "tally/ops.h"
#include "tally/train.h"

#define MIB (INT64_C(1) << 20)
#define DIM(n) tl_dim_of(n)

static tl_ctx *meta(void) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.scratch_bytes = TL_NO_SCRATCH}, &error);
    assert_non_null(ctx);
    return ctx;
}

static tl_ctx *cpu(void) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .seed_init = 5}, &error);
    assert_non_null(ctx);
    return ctx;
}

static int64_t matmul(const tl_ctx *ctx, tl_phase phase) {
    tl_counts c;
    tl_ledger_counts(ctx, phase, &c);
    return (int64_t)c.matmul;
}

/* ---- memory ---- */

static void test_tensor_bytes(void **state) {
    (void)state;
    tl_ctx *ctx = meta();
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(4), DIM(8)), TL_WORK);
    assert_int_equal(tl_tensor_storage_bytes(x), 128); /* 4·8·4 */
    /* One matrix in the feed-forward layer of GPT-3: 2304 MB in the lecture's words, which are MiB. */
    tl_tensor *w = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(49152), DIM(12288)), TL_WORK);
    assert_int_equal(tl_tensor_storage_bytes(w), 2304 * MIB);
    assert_int_equal(tl_ledger_live_total(ctx), 128 + 2304 * MIB);
    tl_ctx_free(ctx);
}

/* Two 32×32 fp32 matrices: the lecture asserts memory_allocated() moves by 2·4·32·32 = 8192. On a device with bytes. */
static void test_allocated_bytes_move(void **state) {
    (void)state;
    tl_ctx *ctx = cpu();
    int64_t before = tl_ledger_live_total(ctx);
    tl_scope_begin(ctx);
    tl_tensor *y = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(32), DIM(32)), TL_WORK), 0.0);
    tl_tensor *z = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(32), DIM(32)), TL_WORK), 0.0);
    assert_non_null(y);
    assert_non_null(z);
    assert_int_equal(tl_ledger_live_total(ctx) - before, 8192);
    tl_scope_end(ctx);
    assert_int_equal(tl_ledger_live_total(ctx), before);
    tl_ctx_free(ctx);
}

/* ---- the Cruncher ---- */

enum { D = 64, LAYERS = 2, P = LAYERS * D * D + D };

static tl_train_options crunch_options(int64_t batch) {
    tl_train_options o = {.micro_batch = batch, .seq = 1, .accumulation = 1, .ranks = 1, .dtype = TL_F32};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAGRAD);
    return o;
}

static void test_cruncher_parameters(void **state) {
    (void)state;
    tl_ctx *ctx = meta();
    tl_model model = small_cruncher();
    tl_net *net = tl_net_new(ctx, &model, TL_F32);
    tl_parameter_count count;
    tl_net_count(net, &count);
    assert_int_equal(count.unique, 8256); /* 2·64² + 64 */
    assert_int_equal(count.unique, P);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* The lecture's account of the Cruncher with its AdaGrad: 4·(P + A + G + S), with A = B·D·layers activations, G = P
 * gradients and S = P optimizer states. It is a sum of everything that exists at some time. The ledger's peak is what exists
 * at one time, the moment the last gradient (that of the first layer) is made:
 *
 *   param P, optim P (from the first step on), grad: all of P, as the last one has just arrived
 *   data: x [B,D] and y [B]
 *   saved: none of the lecture's A is left but x, which is data. In the lecture's A are the outputs of both layers, h1 and
 *     h2. Backward lets go of them layer by layer: h2 went with the last layer, h1 with the second.
 *   work: the gradient of h1 [B,D], from which the last weight gradient is being computed, and the loss (1 element), which
 *     its scope still holds, with the seed of backward (1)
 */
static void test_cruncher_memory(void **state) {
    (void)state;
    enum { B = 8 };
    tl_ctx *ctx = meta();
    tl_model model = small_cruncher();
    tl_train_options o = crunch_options(B);
    tl_trainer *trainer = tl_trainer_new(ctx, &model, &o);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tl_trainer_step(trainer, NULL, NULL, 0.01, NULL), TL_OK);
    int64_t lecture = 4 * (P + B * D * LAYERS + P + P);
    assert_int_equal(lecture, 103168); /* 4·(8256 + 1024 + 8256 + 8256) */
    tl_peak peak;
    tl_ledger_peak(ctx, &peak);
    assert_int_equal(peak.phase, TL_PHASE_BACKWARD);
    assert_int_equal(peak.by_category[TL_PARAM], 4 * P);
    assert_int_equal(peak.by_category[TL_OPTIM], 4 * P);
    assert_int_equal(peak.by_category[TL_GRAD], 4 * P);
    assert_int_equal(peak.by_category[TL_DATA], 4 * (B * D + B));
    assert_int_equal(peak.by_category[TL_SAVED], 0);
    assert_int_equal(peak.by_category[TL_WORK], 4 * (B * D + 2));
    int64_t activations_gone = 4 * B * D * LAYERS, batch = 4 * (B * D + B), gradient = 4 * B * D, scalars = 4 * 2;
    assert_int_equal(peak.bytes, lecture - activations_gone + batch + gradient + scalars);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
}

/* 6·B·P is forward 2, backward 4. The input wants no gradient, so the first layer's 2·B·D² is not computed. */
static void test_cruncher_flops(void **state) {
    (void)state;
    enum { B = 8 };
    for (int input_wants = 0; input_wants < 2; input_wants++) {
        tl_ctx *ctx = meta();
        tl_model model = small_cruncher();
        tl_net *net = tl_net_new(ctx, &model, TL_F32);
        tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(B), DIM(D)), TL_DATA);
        tl_tensor *y = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(B)), TL_DATA);
        tl_tensor_require_grad(x, input_wants);
        assert_int_equal(tl_record(ctx, true), TL_OK);
        tl_ledger_step_begin(ctx);
        tl_tensor *loss = tl_net_loss(net, x, y);
        tl_phase_set(ctx, TL_PHASE_BACKWARD);
        assert_int_equal(tl_backward(ctx, loss, 1.0), TL_OK);
        int64_t missing = input_wants ? 0 : 2 * B * D * D;
        assert_int_equal(matmul(ctx, TL_PHASE_FORWARD), 2 * B * P);
        assert_int_equal(matmul(ctx, TL_PHASE_BACKWARD), 4 * B * P - missing);
        assert_int_equal(matmul(ctx, TL_PHASE_ALL), 6 * B * P - missing);
        assert_true((tl_tensor_grad(x) != NULL) == (input_wants != 0));
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
}

/* ---- initialisation ---- */

static double size_of_outputs(double std, int64_t d) {
    enum { ROWS = 32, OUT = 32 };
    static float out[ROWS * OUT];
    tl_ctx *ctx = cpu();
    tl_tensor *w = tl_normal(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(OUT), DIM(d)), TL_PARAM), 0.0, std, "w", 0);
    tl_tensor *x = tl_normal(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(ROWS), DIM(d)), TL_DATA), 0.0, 1.0, "x", 0);
    assert_int_equal(tl_tensor_read(tl_linear(x, w, NULL), out, sizeof out), TL_OK);
    tl_ctx_free(ctx);
    double sum = 0;
    for (int i = 0; i < ROWS * OUT; i++)
        sum += (double)out[i] * (double)out[i];
    return sqrt(sum / (ROWS * OUT));
}

/* "each element of output scales as sqrt(input_dim)"; the lecture takes 16384. The mean square of 1024 outputs is within a
 * few percent of its expectation. */
static void test_outputs_grow_with_width(void **state) {
    (void)state;
    static const int64_t widths[] = {256, 4096, 16384};
    for (int i = 0; i < 3; i++) {
        double root = sqrt((double)widths[i]);
        assert_true(fabs(size_of_outputs(1.0, widths[i]) / root - 1) < 0.1);
        assert_true(fabs(size_of_outputs(1.0 / root, widths[i]) - 1) < 0.1);
    }
}

/* ---- one linear layer under AdamW ---- */

static void linear_2048(tl_dtype dtype, bool step, int64_t live[3]) {
    enum { SIZE = 2048 };
    tl_ctx *ctx = meta();
    tl_tensor *w = tl_keep(tl_empty(ctx, dtype, TL_SHAPE(ctx, DIM(SIZE), DIM(SIZE)), TL_PARAM));
    tl_tensor_require_grad(w, true);
    tl_parameter list[] = {{.name = "weight", .tensor = w, .decay = true}};
    tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_optimizer *adamw = tl_optimizer_new(ctx, list, 1, &o);
    live[0] = tl_ledger_live_total(ctx);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_scope_begin(ctx);
    tl_tensor *x = tl_empty(ctx, dtype, TL_SHAPE(ctx, DIM(4), DIM(SIZE)), TL_DATA);
    assert_int_equal(tl_backward(ctx, tl_mean(tl_linear(x, w, NULL), NULL, 0, false), 1.0), TL_OK);
    tl_scope_end(ctx);
    live[1] = tl_ledger_live_total(ctx);
    if (step)
        assert_int_equal(tl_optimizer_step(adamw, 1e-3), TL_OK);
    live[2] = tl_ledger_live_total(ctx);
    tl_optimizer_free(adamw);
    tl_tensor_clear_grad(w);
    tl_free(w);
    assert_int_equal(tl_ledger_live_total(ctx), 0);
    tl_ctx_free(ctx);
}

/* 2048·2048 parameters are 4 Mi: 4, 8, 16 bytes each. A common demonstration of PyTorch's memory_allocated(). */
static void test_linear_under_adamw(void **state) {
    (void)state;
    int64_t live[3];
    linear_2048(TL_F32, true, live);
    assert_int_equal(live[0], 16 * MIB);
    assert_int_equal(live[1], 32 * MIB);
    assert_int_equal(live[2], 64 * MIB);
    for (int i = 0; i < 3; i++)
        assert_int_equal(live[i] / (2048 * 2048), 4 << i);
    linear_2048(TL_BF16, false, live);
    assert_int_equal(live[0], 8 * MIB);
    assert_int_equal(live[1], 16 * MIB);
    linear_2048(TL_F16, false, live);
    assert_int_equal(live[0], 8 * MIB);
    tl_ctx *ctx = meta();
    tl_tensor *w = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(2048), DIM(2048)), TL_PARAM);
    assert_int_equal(tl_tensor_storage_bytes(tl_cast(w, TL_BF16)), 8 * MIB);
    assert_int_equal(tl_tensor_storage_bytes(tl_cast(w, TL_F16)), 8 * MIB);
    tl_ctx_free(ctx);
}

/* ---- FLOPs ---- */

/* Backward is twice forward but for the first layer's input gradient, 2·B·d_in·d_out of the first layer. */
static void test_backward_is_twice_forward(void **state) {
    (void)state;
    enum { B = 16, DEPTH = 12 };
    static const int64_t width[DEPTH + 1] = {40, 64, 32, 64, 96, 64, 32, 48, 64, 80, 64, 32, 24};
    tl_ctx *ctx = meta();
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_tensor *h = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(B), DIM(width[0])), TL_DATA);
    int64_t forward = 0;
    for (int i = 0; i < DEPTH; i++) {
        tl_tensor *w = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(width[i + 1]), DIM(width[i])), TL_PARAM);
        tl_tensor_require_grad(w, true);
        h = tl_relu(tl_linear(h, w, NULL));
        forward += 2 * B * width[i] * width[i + 1];
    }
    tl_tensor *loss = tl_mean(h, NULL, 0, false);
    tl_phase_set(ctx, TL_PHASE_BACKWARD);
    assert_int_equal(tl_backward(ctx, loss, 1.0), TL_OK);
    assert_int_equal(matmul(ctx, TL_PHASE_FORWARD), forward);
    assert_int_equal(matmul(ctx, TL_PHASE_BACKWARD), 2 * forward - 2 * B * width[0] * width[1]);
    tl_ctx_free(ctx);
}

/* 6·(parameters)·(rows) holds where each parameter is used once a row. One matrix applied R times does 6·R, less the input's
 * gradient: (6R − 2)·B·D². */
static void test_reused_parameter(void **state) {
    (void)state;
    enum { B = 4, WIDTH = 16, R = 10, PARAMETERS = WIDTH * WIDTH };
    tl_ctx *ctx = meta();
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_tensor *w = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(WIDTH), DIM(WIDTH)), TL_PARAM);
    tl_tensor_require_grad(w, true);
    tl_tensor *h = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(B), DIM(WIDTH)), TL_DATA);
    for (int i = 0; i < R; i++)
        h = tl_linear(h, w, NULL);
    assert_int_equal(tl_backward(ctx, tl_mean(h, NULL, 0, false), 1.0), TL_OK);
    int64_t per_parameter_and_row = matmul(ctx, TL_PHASE_ALL) / (PARAMETERS * B);
    assert_int_equal(per_parameter_and_row, 6 * R - 2);
    assert_true(per_parameter_and_row > 6);
    tl_ctx_free(ctx);
}

/* Scores and AV: 2·(2·H·T²·K) each a product, whoever multiplies them and wherever. */
static int64_t attention_flops(int64_t heads, int64_t kv_heads, int64_t T, int64_t K) {
    tl_ctx *ctx = meta();
    int64_t group = heads / kv_heads;
    tl_tensor *q = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(1), DIM(kv_heads), DIM(group), DIM(T), DIM(K)), TL_WORK);
    tl_tensor *k = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(1), DIM(kv_heads), DIM(1), DIM(T), DIM(K)), TL_WORK);
    tl_tensor *v = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, DIM(1), DIM(kv_heads), DIM(1), DIM(T), DIM(K)), TL_WORK);
    tl_tensor *scores = tl_matmul(q, tl_transpose(k, -1, -2));
    assert_non_null(tl_matmul(tl_softmax(scores, 1.0, false), v));
    int64_t flops = matmul(ctx, TL_PHASE_ALL);
    tl_ctx_free(ctx);
    return flops;
}

static void test_attention_figures(void **state) {
    (void)state;
    /* pytorch/pytorch#195460: CPU attention on q = k = v (1,12,64,64) was counted 0; expected 12,582,912 = 4·12·64²·64. */
    assert_int_equal(attention_flops(12, 12, 64, 64), 12582912);
    /* facebookresearch/xformers#1404: 8 query and 2 key/value heads were counted with the latter, 4 times too low; right is
     * 134,217,728 = 4·8·T²·K, which T = 256, K = 64 gives. The keys are not repeated: the products are. */
    assert_int_equal(attention_flops(8, 2, 256, 64), 134217728);
    assert_int_equal(attention_flops(8, 8, 256, 64), 134217728);
    /* pytorch/pytorch#177169: a counter stopped at 32 query and 8 key/value heads. */
    assert_int_equal(attention_flops(32, 8, 16, 128), INT64_C(4) * 32 * 16 * 16 * 128);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_bytes),        cmocka_unit_test(test_allocated_bytes_move),
        cmocka_unit_test(test_cruncher_parameters), cmocka_unit_test(test_cruncher_memory),
        cmocka_unit_test(test_cruncher_flops),      cmocka_unit_test(test_outputs_grow_with_width),
        cmocka_unit_test(test_linear_under_adamw),  cmocka_unit_test(test_backward_is_twice_forward),
        cmocka_unit_test(test_reused_parameter),    cmocka_unit_test(test_attention_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
