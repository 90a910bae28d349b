/* What frameworks keep and where, in values: no choice of it changes what is computed. Merged adapters and learned prompts beside
 * weights changed by hand, and their gradients beside differences. Bytes are tests/test_planned_measured.c's (planned_kept.h). */
#include "layers.h"

#include "instrument.h"
#include "small_models.h"
#include "tally/init.h"
#include "tally/lora.h"
#include "tally/ops_choices.h"
#include "tally/ops_layers.h"
#include "tally/ops_nf4.h"
#include "tally/plan.h"

/* ---- ops ---- */

static void test_retain(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    double values[] = {1, -2, 3}, other[] = {5, 6, 7, 8};
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_scope_begin(ctx);
    tl_tensor *x = tl_keep(tensor_of(ctx, TL_F64, values, 1, 3));
    tl_tensor_require_grad(x, true);
    tl_scope_begin(ctx);
    tl_tensor *kept = tl_copy(tensor_of(ctx, TL_F64, other, 1, 4)), *carried = NULL;
    tl_tensor *y = tl_retain(tl_scale(x, 2, 0), kept);
    tl_scope_end_into(ctx, &carried, tl_sum(y, NULL, 0, false));
    check_ok(ctx);
    assert_int_equal(tl_ledger_live(ctx, TL_SAVED), 4 * 8); /* the four numbers nobody needs */
    assert_int_equal(tl_backward(ctx, carried, 1), TL_OK);
    assert_int_equal(tl_ledger_live(ctx, TL_SAVED), 0);
    double g[3];
    assert_int_equal(tl_tensor_read(tl_tensor_grad(x), g, sizeof g), TL_OK);
    for (int i = 0; i < 3; i++)
        assert_true(g[i] == 2);
    assert_ptr_equal(tl_retain(x, NULL), x);
    tl_scope_end(ctx);
    tl_tensor_clear_grad(x);
    tl_free(x);
    tl_ctx_free(ctx);
}

/* By way of f16: the level times the scale is rounded to f16, exact in bf16's wider range or rounded again. */
static void test_by_f16(void **state) {
    (void)state;
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)
        for (int twice = 0; twice < 2; twice++) {
            tl_ctx *ctx = new_ctx(*kernels, false);
            tl_scope_begin(ctx);
            tl_shape shape = TL_SHAPE(ctx, tl_dim_of(9), tl_dim_of(40));
            tl_tensor *w = tl_empty(ctx, TL_F32, shape, TL_WORK), *x = tl_empty(ctx, TL_BF16, shape, TL_WORK);
            assert_int_equal(tl_init_normal(w, 0, 0.02, "w"), TL_OK);
            assert_int_equal(tl_init_normal(x, 0, 1, "x"), TL_OK);
            tl_nf4 q;
            assert_int_equal(tl_quantize_nf4(w, twice, &q), TL_OK);
            tl_tensor *full = tl_cast(tl_dequantize_nf4(&q, shape, TL_F16), TL_BF16);
            tl_tensor *want = tl_linear(x, full, NULL);
            q.by_f16 = true;
            tl_tensor *got = tl_linear_nf4(x, &q, tl_dim_of(9), NULL);
            check_ok(ctx);
            assert_memory_equal(tl_tensor_data(got), tl_tensor_data(want), 9 * 9 * 2);
            tl_scope_end(ctx);
            tl_ctx_free(ctx);
        }
}

/* ---- training: the same numbers ---- */

static double loss_after(const tl_model *model, const tl_train_options *o, int steps) {
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_trainer *trainer = tl_trainer_new(ctx, model, o);
    check_ok(ctx);
    random_batch batch = {.model = model, .seed = 5};
    tl_step_result result = {0};
    for (int i = 0; i < steps; i++)
        if (tl_trainer_step(trainer, random_batch_source, &batch, 3e-3, &result) != TL_OK)
            fail_msg("%s", tl_ctx_error(ctx)->message);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return result.loss;
}

static tl_train_options plain(void) {
    tl_train_options o = {.micro_batch = 2, .seq = 11, .accumulation = 2, .ranks = 1, .clip = 1, .dtype = TL_F32};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    return o;
}

static void test_same_numbers(void **state) {
    (void)state;
    for (int llama = 0; llama < 2; llama++) {
        tl_model model = llama ? small_llama() : small_gpt2();
        tl_train_options o = plain();
        model.dropout_residual = 0.1;
        o.recompute.kind = TL_RECOMPUTE_FULL;
        double want = loss_after(&model, &o, 4);
        o.choices.offload = true;
        assert_true(loss_after(&model, &o, 4) == want); /* to the bit */
        o = plain();
        want = loss_after(&model, &o, 4);
        o.choices.grads_apart = true;
        assert_true(fabs(loss_after(&model, &o, 4) - want) < 1e-5 * want);
        o.choices.grads_apart = false;
        o.choices.loss = TL_LOSS_FULL_FP32;
        o.choices.hold_logits = true;
        assert_true(fabs(loss_after(&model, &o, 4) - want) < 1e-5 * want);
        o.choices.loss_chunks = 3;
        o.choices.loss = TL_LOSS_CHUNKS_FP32;
        assert_true(fabs(loss_after(&model, &o, 4) - want) < 1e-5 * want);
        o.choices.loss = TL_LOSS_CHUNKED;
        double again = loss_after(&model, &o, 4);
        o.choices.loss = TL_LOSS_CHUNKS_KEPT;
        o.choices.hold_logits = false;
        assert_true(loss_after(&model, &o, 4) == again);
    }
}

/* What goes to the host is each layer's input, [B,T,D]; most is kept while a layer is computed again, whose input is back. */
static void test_offloaded_bytes(void **state) {
    (void)state;
    tl_plan_options o = {.model = small_llama(), .seq = 16, .micro_batch = 2, .precision = TL_PRECISION_BF16};
    tl_plan kept, away;
    tl_error error = {0};
    assert_int_equal(tl_parse_devices("A100-40G", &o.devices, &error), TL_OK);
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    o.recompute.kind = TL_RECOMPUTE_FULL;
    o.model.layers = 12;
    assert_int_equal(tl_plan_make(&o, &kept, &error), TL_OK);
    o.choices.offload = true;
    assert_int_equal(tl_plan_make(&o, &away, &error), TL_OK);
    int64_t input = o.micro_batch * o.seq * o.model.width * 2;
    assert_int_equal(kept.high[TL_SAVED] - away.high[TL_SAVED], 11 * input);
}

/* ---- adapters ---- */

static tl_model fused_llama(void) {
    tl_model m = small_llama();
    m.fused_qkv = true;
    return m;
}

static tl_net *adapted(tl_ctx *ctx, const tl_lora_options *o) {
    tl_model m = fused_llama();
    tl_net *net = tl_net_new_lora(ctx, &m, TL_F64, NULL, o);
    check_ok(ctx);
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    for (int i = 0; i < count; i++)
        if (list[i].adapter)
            assert_int_equal(tl_init_normal(list[i].tensor, 0, 0.2, list[i].name), TL_OK);
    return net;
}

static tl_tensor *tokens_of(tl_ctx *ctx, int add) {
    int32_t ids[2 * 9];
    for (int i = 0; i < 18; i++)
        ids[i] = (7 * i * i + 3 + add) % 50;
    return tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(2), tl_dim_of(9)), TL_DATA, ids, 18);
}

static double loss_of(tl_ctx *ctx, tl_net *net, bool backward) {
    double value;
    tl_scope_begin(ctx);
    assert_int_equal(tl_record(ctx, backward), TL_OK);
    tl_tensor *loss = tl_net_loss(net, tokens_of(ctx, 0), tokens_of(ctx, 5));
    check_ok(ctx);
    assert_int_equal(tl_tensor_read(tl_cast(loss, TL_F64), &value, sizeof value), TL_OK);
    if (backward)
        assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
    tl_scope_end(ctx);
    return value;
}

/* The merged adapters of layer l into a copy of its weight by hand: a group's rows are R queries, a key, a value of K each. */
static void test_merged(void **state) {
    (void)state;
    enum { D = 32, H = 4, G = 2, K = 8, R = H / G, RANK = 3 };
    const double alpha = 5;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_lora_options o = {.rank = RANK, .alpha = alpha, .merged_qv = true};
    tl_net *net = adapted(ctx, &o);
    assert_int_equal(tl_net_count_trainable(net), 2 * (2 * RANK * D + (H + G) * K * RANK));
    double with = loss_of(ctx, net, false);
    for (int l = 0; l < 2; l++) {
        char name[3][96];
        static const char *const part[] = {"weight", "lora_A.weight", "lora_B.weight"};
        double *at[3];
        for (int i = 0; i < 3; i++) {
            snprintf(name[i], sizeof name[i], "model.layers.%d.self_attn.qkv_proj.%s", l, part[i]);
            tl_tensor *t = tl_net_find(net, name[i]);
            assert_non_null(t);
            at[i] = tl_tensor_data(t);
        }
        for (int row = 0; row < (H + 2 * G) * K; row++) {
            int group = row / ((R + 2) * K), inside = row % ((R + 2) * K), kind = inside / K;
            if (kind == R)
                continue; /* keys have none */
            int of_b = kind < R ? group * R * K + inside : H * K + group * K + inside % K, half = kind < R ? 0 : RANK;
            for (int d = 0; d < D; d++)
                for (int r = 0; r < RANK; r++)
                    at[0][row * D + d] += alpha / RANK * at[2][of_b * RANK + r] * at[1][(half + r) * D + d];
        }
        memset(at[2], 0, sizeof(double) * (H + G) * K * RANK);
    }
    assert_true(fabs(loss_of(ctx, net, false) - with) < 1e-12);
    assert_int_equal(tl_net_merge_lora(net), TL_ERR_UNSUPPORTED);
    tl_ctx_clear_error(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

/* Each adapter's gradient beside central differences at some of its elements. */
static void check_gradients(const tl_lora_options *o) {
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_net *net = adapted(ctx, o);
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list), seen = 0;
    loss_of(ctx, net, true);
    for (int i = 0; i < count; i++) {
        if (list[i].frozen) {
            assert_null(tl_tensor_grad(list[i].tensor));
            continue;
        }
        seen++;
        double *values = tl_tensor_data(list[i].tensor);
        const double *g = tl_tensor_data(tl_tensor_grad(list[i].tensor));
        int64_t n = tl_tensor_count(list[i].tensor);
        for (int64_t k = 0; k < n; k += 1 + n / 3) {
            const double was = values[k], step = 1e-5;
            values[k] = was + step;
            double up = loss_of(ctx, net, false);
            values[k] = was - step;
            double down = loss_of(ctx, net, false);
            values[k] = was;
            if (fabs((up - down) / (2 * step) - g[k]) > 1e-8 + 1e-5 * fabs(g[k]))
                fail_msg("%s, element %lld: %g, by differences %g", list[i].name, (long long)k, g[k],
                         (up - down) / (2 * step));
        }
    }
    assert_true(seen > 1);
    for (int i = 0; i < count; i++)
        tl_tensor_clear_grad(list[i].tensor);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void test_gradients(void **state) {
    (void)state;
    check_gradients(&(tl_lora_options){.rank = 3, .merged_qv = true});
    check_gradients(&(tl_lora_options){
        .rank = 3, .merged_qv = true, .base = TL_LORA_NF4, .base_head = true, .base_keeps_input = true});
    check_gradients(&(tl_lora_options){.prefix = 5, .prefix_from = 1});
    check_gradients(&(tl_lora_options){.prefix = 5, .scales = true});
    check_gradients(&(tl_lora_options){.prefix = 5, .scales = true, .base = TL_LORA_NF4, .base_head = true});
}

/* A gate of 0 is the base, to the bit; one row of a prompt is found by every query whatever its key: adding to a layer's result
 * the prompt's value times the gate, a constant, cannot depend on the query projection's rows. */
static void test_prompt(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_model m = fused_llama();
    tl_net *base = tl_net_new(ctx, &m, TL_F64);
    tl_net *net = tl_net_new_lora(ctx, &m, TL_F64, NULL, &(tl_lora_options){.prefix = 5});
    check_ok(ctx);
    assert_int_equal(tl_net_count_trainable(net), 2 * (5 * 32 + 4)); /* a prompt and a gate a head, two layers */
    assert_true(loss_of(ctx, net, false) == loss_of(ctx, base, false));
    tl_net_free(net);
    net = tl_net_new_lora(ctx, &m, TL_F64, NULL, &(tl_lora_options){.prefix = 5, .scales = true});
    check_ok(ctx);
    /* beside it bias and scale of qkv 64, out 32, gate and up 72 each, down 32, the head 61, and five norms of 32 */
    assert_int_equal(tl_net_count_trainable(net), 2 * (5 * 32 + 4) + 2 * (2 * (64 + 32 + 72 + 72 + 32) + 61) + 5 * 32);
    assert_true(loss_of(ctx, net, false) == loss_of(ctx, base, false));
    tl_net_free(net);
    tl_net_free(base);
    tl_ctx_free(ctx);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        tl_lora_options o;
        bool fused, tied;
        const char *says;
    } wrong[] = {
        {{.rank = 2, .base_head = true}, true, false, "plain base"},
        {{.rank = 2, .merged_qv = true}, false, false, "q, k and v in one"},
        {{.rank = 2, .base = TL_LORA_NF4, .base_head = true}, false, true, "token table"},
        {{.rank = 2, .prefix = 3}, true, false, "one of the two"},
        {{.prefix_from = 3}, true, false, "prompt"},
        {{.prefix = 3}, false, false, "not one product"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
        tl_model m = small_llama();
        m.fused_qkv = wrong[i].fused;
        m.tied = wrong[i].tied;
        assert_null(tl_net_new_lora(ctx, &m, TL_F32, NULL, &wrong[i].o));
        if (!strstr(tl_ctx_error(ctx)->message, wrong[i].says))
            fail_msg("\"%s\" does not say \"%s\"", tl_ctx_error(ctx)->message, wrong[i].says);
        tl_ctx_free(ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_retain),          cmocka_unit_test(test_by_f16),  cmocka_unit_test(test_same_numbers),
        cmocka_unit_test(test_offloaded_bytes), cmocka_unit_test(test_merged),  cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_prompt),          cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
