/* Optimizers inside the training step: micro-batches of unequal masks, 8-bit states, what restoring makes, seeds of their
 * own. tests/fixtures/make_optim_fixtures.py recorded PyTorch's loss and gradients of the masked batch. */
#include "layers.h"

#include "fixtures/optim_fixtures.h"
#include "tally/data.h"
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

static tl_model gpt2_of(int64_t width, int64_t heads, int64_t ff, int64_t vocab, int64_t context) {
    return (tl_model){.name = "small",
                      .family = TL_FAMILY_GPT2,
                      .layers = 2,
                      .width = width,
                      .heads = heads,
                      .kv_heads = heads,
                      .head_size = width / heads,
                      .ff = ff,
                      .vocab = vocab,
                      .context = context,
                      .tied = true,
                      .learned_positions = true,
                      .attention_bias = true,
                      .mlp_bias = true,
                      .activation = TL_GELU_TANH,
                      .norm_epsilon = 1e-5,
                      .init_std = 0.02};
}

/* ---- micro-batches of unequal masks ---- */

enum { SEQUENCES = 8, SEQ = 6, VOCAB = 17 };

typedef enum told { TOLD, UNTOLD, WRONG_COUNT, WRONG_TOTAL, MORE_THAN_TOTAL, NEGATIVE } told;

typedef struct masked {
    told told;
    bool hide_all;
} masked;

/* Sequence s hides the targets whose hash lies below (s + 1)/10: 6 6 5 4 2 3 1 0 of 6 are counted. */
static tl_status masked_batch(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    const masked *how = user;
    uint32_t ids = fnv1a("gpt2/masked"), hash = fnv1a("gpt2/hidden");
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(o->micro_batch), tl_dim_of(SEQ));
    batch->input = tl_empty(ctx, TL_I32, shape, TL_DATA);
    batch->target = tl_empty(ctx, TL_I32, shape, TL_DATA);
    int32_t *x = tl_tensor_data(batch->input), *y = tl_tensor_data(batch->target);
    int64_t counted = 0, total = 0;
    for (int i = 0; i < SEQUENCES && !how->hide_all; i++)
        total += masked_counts[i];
    for (int64_t b = 0; b < o->micro_batch; b++)
        for (int64_t t = 0; t < SEQ; t++) {
            int64_t s = micro * o->micro_batch + b;
            bool hidden = uniform(hash, s * SEQ + t) + 0.5 < (double)(s + 1) / 10 || how->hide_all;
            x[b * SEQ + t] = (int32_t)((uniform(ids, s * (SEQ + 1) + t) + 0.5) * VOCAB);
            y[b * SEQ + t] = hidden ? TL_IGNORE_INDEX : (int32_t)((uniform(ids, s * (SEQ + 1) + t + 1) + 0.5) * VOCAB);
            counted += !hidden;
        }
    if (how->told == UNTOLD)
        return tl_ctx_status(ctx);
    batch->counted = how->told == WRONG_COUNT ? 1 : how->told == MORE_THAN_TOTAL ? total + 1 : counted;
    batch->counted = how->told == NEGATIVE ? -1 : batch->counted;
    batch->total = how->told == WRONG_TOTAL ? total + micro : total;
    return tl_ctx_status(ctx);
}

static void set_masked_parameters(tl_net *net) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    for (int i = 0; i < count; i++) {
        char name[200];
        snprintf(name, sizeof name, "gpt2/%s", list[i].name);
        size_t length = strlen(name);
        bool bias = strcmp(name + length - 4, "bias") == 0, norm = strstr(name, "ln_") != NULL;
        double *data = tl_tensor_data(list[i].tensor);
        for (int64_t k = 0; k < tl_tensor_count(list[i].tensor); k++)
            data[k] = uniform(fnv1a(name), k) * (bias ? 0.1 : norm ? 0.2 : 0.3) + (norm && !bias ? 1 : 0);
    }
}

enum { MOST = 8192 };
typedef struct outcome {
    tl_status status;
    char message[1024];
    double loss, gradient[MOST]; /* of all parameters, one after the other */
    int64_t at[32], count, events;
} outcome;

/* One step of SGD with lr 1: what is gone from a parameter is its gradient. */
static void one_step(int64_t accumulation, masked how, outcome *out) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .threads = 2}, &error);
    assert_non_null(ctx);
    tl_model model = gpt2_of(12, 2, 24, VOCAB, 8);
    tl_train_options o = {
        .micro_batch = SEQUENCES / accumulation, .seq = SEQ, .accumulation = accumulation, .ranks = 1, .dtype = TL_F64};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_SGD);
    tl_trainer *trainer = tl_trainer_new(ctx, &model, &o);
    check_ok(ctx);
    set_masked_parameters(tl_trainer_net(trainer));
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(trainer), &list);
    memset(out, 0, sizeof *out);
    for (int i = 0; i < count; i++) {
        out->at[i] = out->count;
        out->count += tl_tensor_count(list[i].tensor);
        assert_true(out->count <= MOST);
        memcpy(out->gradient + out->at[i], tl_tensor_data(list[i].tensor),
               (size_t)tl_tensor_count(list[i].tensor) * sizeof(double));
    }
    tl_step_result result = {0};
    out->status = tl_trainer_step(trainer, masked_batch, &how, 1.0, &result);
    snprintf(out->message, sizeof out->message, "%s", tl_ctx_error(ctx)->message);
    out->loss = result.loss;
    out->events = tl_ledger_allocations(ctx);
    for (int i = 0; i < count; i++) {
        const double *after = tl_tensor_data(list[i].tensor);
        for (int64_t k = 0; k < tl_tensor_count(list[i].tensor); k++)
            out->gradient[out->at[i] + k] -= after[k];
    }
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
}

static double farthest(const double *a, const double *b, int64_t n) {
    double far = 0;
    for (int64_t i = 0; i < n; i++)
        far = fmax(far, fabs(a[i] - b[i]));
    return far;
}

static void test_unequal_masks(void **state) {
    (void)state;
    static outcome whole, parts;
    one_step(1, (masked){.told = TOLD}, &whole);
    assert_int_equal(whole.status, TL_OK);
    /* wte.weight, wpe.weight, h.0.ln_1.weight, .bias, h.0.attn.c_attn.weight …, ln_f.weight, ln_f.bias */
    print_message("one batch: loss %.17g, PyTorch %.17g\n", whole.loss, masked_loss);
    assert_true(fabs(whole.loss - masked_loss) <= 1e-12 * masked_loss);
    assert_true(farthest(whole.gradient, masked_gradients, 24) <= 1e-12);
    assert_true(farthest(whole.gradient + whole.at[4], masked_gradients + 24, 24) <= 1e-12);
    assert_true(farthest(whole.gradient + whole.count - 12, masked_gradients + 48, 12) <= 1e-12);
    for (int64_t accumulation = 2; accumulation <= 8; accumulation *= 2) { /* the last of 8 counts no target at all */
        one_step(accumulation, (masked){.told = TOLD}, &parts);
        assert_int_equal(parts.status, TL_OK);
        double far = farthest(whole.gradient, parts.gradient, whole.count);
        print_message("A = %d: %.2g from one batch\n", (int)accumulation, far);
        assert_true(far <= 1e-12);
        assert_true(fabs(parts.loss - masked_loss) <= 1e-12 * masked_loss);
    }
    int64_t told_events = parts.events;
    one_step(8, (masked){.told = UNTOLD}, &parts); /* the mean of means, as it is elsewhere, is another gradient */
    assert_true(farthest(whole.gradient, parts.gradient, whole.count) > 1e-3);
    assert_int_equal(parts.events, told_events); /* and the same account, so that a plan need not know */
}

static void test_what_batches_tell_has_to_agree(void **state) {
    (void)state;
    static const struct {
        told told;
        const char *says;
    } cases[] = {{WRONG_COUNT, "add up to 4, and 27 were told as the step's total; stopped before the update"},
                 {WRONG_TOTAL, "micro-batch 2 tells of 9 counted targets out of 28, and the first of 27"},
                 {MORE_THAN_TOTAL, "micro-batch 1 tells of 28 counted targets out of 27"},
                 {NEGATIVE, "micro-batch 1 tells of -1 counted targets"}};
    static outcome out;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        one_step(4, (masked){.told = cases[i].told}, &out);
        assert_int_equal(out.status, TL_ERR_ARGUMENT);
        if (!strstr(out.message, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", out.message, cases[i].says);
        for (int64_t k = 0; k < out.count; k++)
            assert_true(out.gradient[k] == 0); /* no update */
    }
}

/* FAULTS, "Numerics": 0/0. Nothing to learn from: a loss of 0 and gradients of 0. */
static void test_all_targets_ignored(void **state) {
    (void)state;
    static outcome out;
    for (int64_t accumulation = 1; accumulation <= 4; accumulation *= 4)
        for (int tell = 0; tell < 2; tell++) {
            one_step(accumulation, (masked){.told = tell ? TOLD : UNTOLD, .hide_all = true}, &out);
            assert_int_equal(out.status, TL_OK);
            assert_true(out.loss == 0);
            for (int64_t k = 0; k < out.count; k++)
                assert_true(out.gradient[k] == 0);
        }
}

/* ---- 8-bit states ---- */

/* The 256 numbers by the definition in tally/optim.h, in any order. */
static int numbers(bool sign, double value[256]) {
    int n = 0;
    value[n++] = 0;
    value[n++] = 1;
    for (int e = 0; e < 7; e++) {
        int parts = (1 << e) * (sign ? 1 : 2);
        for (int j = 0; j < parts; j++) {
            double x = pow(10, e - 6) * (0.1 + 0.9 * (j + 0.5) / parts);
            value[n++] = x;
            if (sign)
                value[n++] = -x;
        }
    }
    return n;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void test_8_bit_codes(void **state) {
    (void)state;
    enum { N = 4500 }; /* 17 blocks and a part */
    static double g[N], zeros[N], signed_[256], plain_[256];
    static unsigned char codes[2][N];
    static float scales[2][18];
    assert_int_equal(numbers(true, signed_), 256);
    assert_int_equal(numbers(false, plain_), 256);
    qsort(signed_, 256, sizeof *signed_, by_value);
    qsort(plain_, 256, sizeof *plain_, by_value);
    /* what the paper's library, bitsandbytes, prints of create_dynamic_map: its smallest and its last three numbers */
    assert_true(fabs(signed_[128] - 5.5e-7) < 1e-15 && fabs(signed_[254] - 0.99296875) < 1e-15);
    assert_true(fabs(plain_[1] - 3.25e-7) < 1e-15 && fabs(plain_[254] - 0.996484375) < 1e-15);
    for (int i = 0; i < N; i++) /* 12 decades, and zeros */
        g[i] = i % 11 == 0 ? 0 : uniform(7, i) * pow(10, 12 * uniform(8, i));
    for (const tl_kernels *const *k = all_kernels(); *k; k++) {
        tl_ctx *ctx = new_ctx(*k, false);
        tl_scope_begin(ctx);
        tl_tensor *p = leaf_of(tensor_of(ctx, TL_F32, zeros, 2, 45, 100));
        tl_parameter parameter = {.name = "w.weight", .tensor = p, .decay = true};
        tl_optimizer_options o = tl_optimizer_defaults(TL_OPTIM_ADAMW8BIT);
        tl_optimizer *optimizer = tl_optimizer_new(ctx, &parameter, 1, &o);
        tl_record(ctx, true);
        backward_with(p, tensor_of(ctx, TL_F32, g, 2, 45, 100));
        assert_int_equal(tl_optimizer_step(optimizer, 1e-3), TL_OK);
        assert_int_equal(tl_optimizer_states(optimizer, 0), 4);
        assert_string_equal(tl_optimizer_state_name(optimizer, 3), "exp_avg_sq_scale");
        assert_int_equal(tl_ledger_live(ctx, TL_OPTIM), 2 * N + 2 * 4 * 18);
        for (int s = 0; s < 2; s++) {
            assert_int_equal(tl_tensor_read(tl_optimizer_state(optimizer, 0, s), codes[s], sizeof codes[s]), TL_OK);
            assert_int_equal(tl_tensor_read(tl_optimizer_state(optimizer, 0, 2 + s), scales[s], sizeof scales[s]),
                             TL_OK);
        }
        for (int i = 0; i < N; i++)
            for (int s = 0; s < 2; s++) {
                const double *table = s ? plain_ : signed_;
                double grad = (double)(float)g[i], exact = s ? 0.001 * grad * grad : 0.1 * grad, most = 0;
                for (int j = i / 256 * 256; j < N && j < i / 256 * 256 + 256; j++)
                    most = fmax(most, s ? 0.001 * g[j] * g[j] : fabs(0.1 * g[j]));
                assert_true(fabs((double)scales[s][i / 256] - most) <= 1e-6 * most);
                double x = exact / most, best = INFINITY, mine = fabs(table[codes[s][i]] - x);
                for (int c = s && x > 0; c < 256; c++) /* a v above 0 is never 0 */
                    best = fmin(best, fabs(table[c] - x));
                if (!(mine <= best + 1e-6 * fabs(x)))
                    fail_msg("element %d, state %d: %.9g is code %d, %.9g", i, s, x, codes[s][i], table[codes[s][i]]);
                if (x == 0)
                    assert_true(table[codes[s][i]] == 0);
            }
        tl_tensor_clear_grad(p);
        tl_optimizer_free(optimizer);
        tl_scope_end(ctx);
        tl_ctx_free(ctx);
    }
}

typedef struct stream {
    int64_t drawn;
} stream;

/* x → 3·x + 5 modulo the vocabulary, of which a quarter is noise. */
static tl_status next_batch(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    stream *s = user;
    (void)micro;
    tl_shape shape = TL_SHAPE(ctx, tl_dim_of(o->micro_batch), tl_dim_of(o->seq));
    batch->input = tl_empty(ctx, TL_I32, shape, TL_DATA);
    batch->target = tl_empty(ctx, TL_I32, shape, TL_DATA);
    int32_t *x = tl_tensor_data(batch->input), *y = tl_tensor_data(batch->target);
    for (int64_t i = 0; i < o->micro_batch * o->seq; i++, s->drawn++) {
        x[i] = (int32_t)((uniform(1, s->drawn) + 0.5) * 61);
        bool noise = uniform(2, s->drawn) < -0.25;
        y[i] = noise ? (int32_t)((uniform(3, s->drawn) + 0.5) * 61) : (3 * x[i] + 5) % 61;
    }
    return tl_ctx_status(ctx);
}

/* The mean loss of the last 50 of 300 steps. */
static double train(tl_optimizer_kind kind, int64_t *optim_bytes) {
    tl_error error = {0};
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, &error);
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = kernels, .threads = 2, .seed_init = 3}, &error);
    assert_non_null(ctx);
    tl_model model = gpt2_of(64, 4, 128, 61, 16);
    tl_train_options o = {.micro_batch = 8, .seq = 16, .accumulation = 1, .ranks = 1, .dtype = TL_F32, .clip = 1};
    o.optimizer = tl_optimizer_defaults(kind);
    tl_trainer *trainer = tl_trainer_new(ctx, &model, &o);
    check_ok(ctx);
    stream s = {0};
    tl_schedule schedule = {TL_SCHEDULE_COSINE, 3e-3, 3e-4, 20, 300, 0};
    double sum = 0, first = 0;
    for (int step = 1; step <= 300; step++) {
        tl_step_result result;
        if (tl_trainer_step(trainer, next_batch, &s, tl_schedule_lr(&schedule, step), &result) != TL_OK)
            fail_msg("step %d: %s", step, tl_ctx_error(ctx)->message);
        first = step == 1 ? result.loss : first;
        sum += step > 250 ? result.loss : 0;
    }
    assert_true(sum / 50 < first / 2);
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(trainer), &list);
    int64_t expected = 0;
    for (int i = 0; i < count; i++) {
        int64_t n = tl_tensor_count(list[i].tensor), states = tl_optimizer_states(tl_trainer_optimizer(trainer), i);
        bool small = n < 4096 || kind == TL_OPTIM_ADAMW;
        assert_int_equal(states, small ? 2 : 4);
        expected += small ? 8 * n : 2 * n + 8 * ((n + 255) / 256);
    }
    *optim_bytes = tl_ledger_live(ctx, TL_OPTIM);
    assert_int_equal(*optim_bytes, expected);
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return sum / 50;
}

static void test_8_bit_loss(void **state) {
    (void)state;
    int64_t wide_bytes, small_bytes;
    double wide = train(TL_OPTIM_ADAMW, &wide_bytes), small = train(TL_OPTIM_ADAMW8BIT, &small_bytes);
    print_message("adamw %.5f, adamw8bit %.5f: %.3f %% apart; states %lld and %lld bytes\n", wide, small,
                  100 * fabs(small - wide) / wide, (long long)wide_bytes, (long long)small_bytes);
    assert_true(fabs(small - wide) <= 0.01 * wide);
    assert_true(small_bytes * 2 < wide_bytes); /* the tables of this small model stay in f32 */
}

/* ---- restoring ---- */

static void test_restore_makes_all_states(void **state) {
    (void)state;
    for (int kind = TL_OPTIM_SGD; kind < TL_OPTIM_KINDS; kind++) {
        tl_error error = {0};
        tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
        tl_model model = gpt2_of(64, 4, 128, 61, 16);
        tl_parameter_group group = {.pattern = "h.1.*", .frozen = true};
        tl_train_options o = {.micro_batch = 1, .seq = 4, .accumulation = 1, .ranks = 1, .dtype = TL_BF16};
        o.optimizer = tl_optimizer_defaults((tl_optimizer_kind)kind);
        o.optimizer.master = o.optimizer.state_f32 = true;
        o.optimizer.momentum = kind == TL_OPTIM_SGD || kind == TL_OPTIM_RMSPROP ? 0.9 : 0;
        o.optimizer.centered = kind == TL_OPTIM_RMSPROP;
        o.optimizer.groups = &group;
        o.optimizer.n_groups = 1;
        tl_trainer *a = tl_trainer_new(ctx, &model, &o), *b = tl_trainer_new(ctx, &model, &o);
        check_ok(ctx);
        stream s = {0};
        int64_t before = tl_ledger_live(ctx, TL_OPTIM);
        assert_int_equal(before, 0);
        assert_int_equal(tl_trainer_step(a, next_batch, &s, 0.1, NULL), TL_OK);
        int64_t one = tl_ledger_live(ctx, TL_OPTIM);
        tl_optimizer *p = tl_trainer_optimizer(a), *q = tl_trainer_optimizer(b);
        assert_int_equal(tl_optimizer_restore(q, 1), TL_OK);
        assert_int_equal(tl_ledger_live(ctx, TL_OPTIM), 2 * one);
        assert_int_equal(tl_optimizer_steps(q), 1);
        const tl_parameter *list;
        int count = tl_net_parameters(tl_trainer_net(a), &list);
        for (int i = 0; i < count; i++) {
            bool frozen = strncmp(list[i].name, "h.1.", 4) == 0;
            assert_true((tl_optimizer_states(p, i) == 0) == frozen);
            assert_true((tl_optimizer_master(p, i) == NULL) == frozen);
            for (int k = 0; k < TL_OPTIM_MAX_STATES; k++) {
                const tl_tensor *x = tl_optimizer_state(p, i, k), *y = tl_optimizer_state(q, i, k);
                assert_true((x != NULL) == (k < tl_optimizer_states(p, i)) && (x != NULL) == (y != NULL));
                if (x) {
                    assert_int_equal(tl_tensor_dtype(x), tl_tensor_dtype(y));
                    assert_int_equal(tl_tensor_count(x), tl_tensor_count(y));
                    assert_non_null(tl_optimizer_state_name(p, k));
                }
            }
        }
        tl_trainer_free(a);
        tl_trainer_free(b);
        tl_ctx_free(ctx);
    }
}

/* ---- a seed for each source ---- */

typedef struct drawn {
    float weight[64], dropped[64];
    int32_t ids[64];
} drawn;

static drawn draw(uint64_t init, uint64_t data, uint64_t dropout) {
    tl_error error = {0};
    drawn d;
    double ones[64];
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    tl_ctx_options options = {
        .kernels = tl_kernels_portable(), .seed_init = init, .seed_data = data, .seed_dropout = dropout};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    tl_model model = gpt2_of(12, 2, 24, VOCAB, 8);
    tl_net *net = tl_net_new(ctx, &model, TL_F32);
    check_ok(ctx);
    memcpy(d.weight, tl_tensor_data(tl_net_find(net, "h.1.mlp.c_fc.weight")), sizeof d.weight);
    tl_scope_begin(ctx);
    tl_record(ctx, true);
    tl_tensor *y = tl_dropout(leaf_of(tensor_of(ctx, TL_F32, ones, 1, 64)), 0.5, "residual"), *x = NULL, *t = NULL;
    assert_int_equal(tl_tensor_read(y, d.dropped, sizeof d.dropped), TL_OK);
    tl_sums *sums = tl_sums_new(NULL, options.seed_data, &error);
    assert_int_equal(tl_sums_batch(sums, ctx, 4, 16, &x, &t), TL_OK);
    assert_int_equal(tl_tensor_read(x, d.ids, sizeof d.ids), TL_OK);
    tl_sums_free(sums);
    tl_tape_clear(ctx);
    tl_scope_end(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
    return d;
}

static void test_seeds_are_apart(void **state) {
    (void)state;
    drawn base = draw(1, 2, 3), same = draw(1, 2, 3), init = draw(9, 2, 3), data = draw(1, 9, 3),
          dropout = draw(1, 2, 9);
    assert_memory_equal(&base, &same, sizeof base);
    assert_memory_not_equal(base.weight, init.weight, sizeof base.weight);
    assert_memory_equal(base.ids, init.ids, sizeof base.ids);
    assert_memory_equal(base.dropped, init.dropped, sizeof base.dropped);
    assert_memory_equal(base.weight, data.weight, sizeof base.weight);
    assert_memory_not_equal(base.ids, data.ids, sizeof base.ids);
    assert_memory_equal(base.dropped, data.dropped, sizeof base.dropped);
    assert_memory_equal(base.weight, dropout.weight, sizeof base.weight);
    assert_memory_equal(base.ids, dropout.ids, sizeof base.ids);
    assert_memory_not_equal(base.dropped, dropout.dropped, sizeof base.dropped);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unequal_masks),       cmocka_unit_test(test_what_batches_tell_has_to_agree),
        cmocka_unit_test(test_all_targets_ignored), cmocka_unit_test(test_8_bit_codes),
        cmocka_unit_test(test_8_bit_loss),          cmocka_unit_test(test_restore_makes_all_states),
        cmocka_unit_test(test_seeds_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
