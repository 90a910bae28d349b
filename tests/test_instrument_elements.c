/* What each op declares (bytes read and written, arithmetic and special counts) against what was seen where its kernels are
 * entered (instrument_elements.h, which shares no code with the ledger and knows no `cost`): op by op through a whole training
 * step, the plan's on meta and the run's own ledger.
 *
 * Exceptions, by name:
 *   clip_scale   reads a number itself, outside any kernel: Σ of squares, one f64
 *   fp8_round    the same: the row's scale, one f32
 *   logical_not  hands its kernel a zero of its own, one byte, to compare with
 *   eye          its ones are written over its zeros: fewer than one row of each plane, and not declared
 *   all_reduce   has no kernel: its traffic is between ranks
 * and where an input or output is empty the others are declared as read, though there is nothing to read them for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "instrument.h"
#include "instrument_elements.h"
#include "op_case.h"
#include "small_models.h"
#include "tally/grad.h"
#include "tally/plan.h"

extern const tl_op tl_op_linear, tl_op_rms_norm, tl_op_softmax;

enum { SEEDS = 40 };

static const struct {
    const char *op;
    int64_t bytes;
} read_by_the_op[] = {{"clip_scale", 8}, {"fp8_round", 4}, {"logical_not", -1}};

typedef struct declared {
    const char *name; /* of the configuration */
    const touched *seen;
    int64_t count, at;
    int different;
    bool quiet;
    bool bytes_alone; /* of an op whose formula is not listed */
} declared;

static int differ(const declared *d, const touched *t, const char *what, tl_u128 said, tl_u128 seen) {
    char a[TL_U128_DIGITS], b[TL_U128_DIGITS];
    if (said == seen)
        return 0;
    if (!d->quiet)
        print_message("%s: op %" PRId64 ", %s (%s): %s declared %s, at the kernel's entry %s\n", d->name, d->at, t->op,
                      t->site, what, tl_u128_text(said, a), tl_u128_text(seen, b));
    return 1;
}

static bool compare_op(void *user, const tl_op_entry *e) {
    declared *d = user;
    if (d->at >= d->count || strcmp(e->op, d->seen[d->at].op) != 0) {
        print_message("%s: op %" PRId64 " is %s in the ledger and %s in the run\n", d->name, d->at, e->op,
                      d->at < d->count ? d->seen[d->at].op : "missing");
        d->different++;
        return false;
    }
    const touched *t = &d->seen[d->at];
    int64_t read = t->read;
    for (size_t i = 0; i < sizeof read_by_the_op / sizeof *read_by_the_op; i++)
        if (strcmp(e->op, read_by_the_op[i].op) == 0 && !t->empty)
            read += read_by_the_op[i].bytes;
    if (t->unknown && !d->bytes_alone) {
        print_message("%s: %s calls %s, whose formula is not listed\n", d->name, t->op, t->unknown);
        d->different++;
    }
    if (!t->empty || (tl_u128)read > e->read.count)
        d->different += differ(d, t, "bytes read", e->read.count, (tl_u128)read);
    d->different += differ(d, t, "bytes written", e->written.count, (tl_u128)t->written);
    d->at++;
    if (t->unknown)
        return true;
    d->different += differ(d, t, "arithmetic", e->arithmetic.count, t->arithmetic);
    d->different += differ(d, t, "special", e->special.count, t->special);
    return true;
}

/* How many figures of the context's log differ from what was seen. */
static int compare(const char *name, const tl_ctx *ctx, bool quiet, bool bytes_alone) {
    declared d = {.name = name, .quiet = quiet, .bytes_alone = bytes_alone};
    d.seen = elements_of_ops(&d.count);
    assert_true(d.count > 0);
    tl_ledger_each_op(ctx, compare_op, &d);
    if (d.different == 0 && d.at != d.count) {
        print_message("%s: %" PRId64 " ops in the ledger, %" PRId64 " in the run\n", name, d.at, d.count);
        d.different++;
    }
    return d.different;
}

/* ---- a training step ---- */

static void two_steps(tl_ctx *ctx, const char *name, const tl_model *model, const tl_train_options *train, bool real) {
    tl_trainer *trainer = tl_trainer_new(ctx, model, train);
    if (!trainer)
        fail_msg("%s: %s", name, tl_ctx_error(ctx)->message);
    if (real && train->loss_scaling) /* 2^16 overflows on random numbers, and a skipped step updates nothing */
        assert_int_equal(tl_trainer_set_scaler(trainer, &(tl_loss_scaler){.scale = 256}), TL_OK);
    random_batch batch = {NULL, model, 42};
    for (int i = 0; i < 2; i++) {
        elements_begin();
        if (tl_trainer_step(trainer, real ? random_batch_source : NULL, real ? &batch : NULL, 1e-3, NULL) != TL_OK)
            fail_msg("%s: %s", name, tl_ctx_error(ctx)->message);
    }
    tl_trainer_free(trainer);
}

static int step_differences(const char *name, const tl_model *model, const tl_train_options *train, int threads,
                            int64_t *ops) {
    tl_error error = {0};
    tl_ctx *meta = tl_ctx_new(&(tl_ctx_options){.threads = threads}, &error);
    tl_ctx *real =
        tl_ctx_new(&(tl_ctx_options){.kernels = elements_kernels(tl_kernels_portable()), .threads = threads}, &error);
    assert_true(meta && real);
    two_steps(meta, name, model, train, false);
    elements_watch(real);
    two_steps(real, name, model, train, true);
    int different = compare(name, meta, false, false) + compare(name, real, true, false);
    int64_t count;
    elements_of_ops(&count);
    *ops += count;
    tl_ctx_free(real);
    tl_ctx_free(meta);
    return different;
}

typedef enum rule { SGD, MOMENTUM, ADAMW, ADAMW_CS336, ADAGRAD, ADAM, RMSPROP, RMSPROP_ALL, ADAMW8BIT, RULES } rule;

static void set_optimizer(tl_optimizer_options *o, rule r) {
    static const tl_optimizer_kind kinds[RULES] = {TL_OPTIM_SGD,     TL_OPTIM_SGD,     TL_OPTIM_ADAMW,
                                                   TL_OPTIM_ADAMW,   TL_OPTIM_ADAGRAD, TL_OPTIM_ADAM,
                                                   TL_OPTIM_RMSPROP, TL_OPTIM_RMSPROP, TL_OPTIM_ADAMW8BIT};
    *o = tl_optimizer_defaults(kinds[r]);
    o->momentum = r == MOMENTUM || r == RMSPROP_ALL ? 0.9 : 0;
    o->centered = r == RMSPROP_ALL;
    o->cs336_order = r == ADAMW_CS336;
}

static void test_declared_is_touched(void **state) {
    (void)state;
    static const struct {
        tl_precision precision;
        bool autocast;
    } kinds[] = {{TL_PRECISION_FP32, false},       {TL_PRECISION_BF16, false},      {TL_PRECISION_BF16_MIXED, false},
                 {TL_PRECISION_FP16_MIXED, false}, {TL_PRECISION_FP8_MIXED, false}, {TL_PRECISION_BF16_MIXED, true},
                 {TL_PRECISION_FP16_MIXED, true},  {TL_PRECISION_FP8_MIXED, true}};
    static const tl_recompute again[] = {{TL_RECOMPUTE_NONE, 0}, {TL_RECOMPUTE_SELECTIVE, 0}, {TL_RECOMPUTE_FULL, 0}};
    tl_model (*const bases[])(void) = {small_gpt2, small_llama, small_cruncher};
    int64_t ops = 0;
    int different = 0, compared = 0;
    for (size_t b = 0; b < 3; b++)
        for (rule r = SGD; r < RULES; r++)
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
                for (size_t w = 0; w < (bases[b] == small_cruncher ? 1 : sizeof again / sizeof *again); w++) {
                    char name[96];
                    tl_error error = {0};
                    tl_model model = bases[b]();
                    tl_train_options train = {.micro_batch = 2, .seq = 16, .ranks = 1, .dtype = TL_F32};
                    snprintf(name, sizeof name, "base %zu, rule %d, %s%s, recompute %zu", b, (int)r,
                             tl_precision_name(kinds[k].precision), kinds[k].autocast ? ", autocast" : "", w);
                    set_optimizer(&train.optimizer, r);
                    train.accumulation = 1 + 2 * ((int)r % 2);
                    train.clip = r == ADAMW || r == SGD ? 0.5 : 0;
                    train.autocast = kinds[k].autocast;
                    train.recompute = again[w];
                    if (r == ADAM)
                        model.dropout_embedding = model.dropout_attention = model.dropout_residual = 0.1;
                    if (r == MOMENTUM) { /* other forms of the same family: biases, one key head, the plain MLP */
                        model.tied = !model.tied;
                        if (model.family == TL_FAMILY_LLAMA) {
                            model.attention_bias = model.mlp_bias = true;
                            model.kv_heads = 1;
                        }
                    }
                    model.gated &= r != ADAGRAD;
                    if (tl_precision_apply(kinds[k].precision, &train, &error) != TL_OK)
                        fail_msg("%s: %s", name, error.message);
                    different += step_differences(name, &model, &train, r == ADAGRAD ? 2 : 1, &ops) != 0;
                    compared++;
                }
    print_message("declared = touched on %d of %d steps, %" PRId64 " ops\n", compared - different, compared, ops);
    assert_int_equal(different, 0);
}

/* ---- kernels against arithmetic on the model's sizes ---- */

typedef struct expected {
    const char *kernel;
    int64_t elements;
    int64_t special; /* calls of exp, tanh, log, sin, cos in all */
} expected;

/* Runs a step of both kinds; what the kernels saw and what the ledger counts as special must both be the formulas'. */
static void check_kernels(const char *name, const tl_model *model, const expected *list, int count) {
    tl_error error = {0};
    tl_train_options train = {.micro_batch = 3, .seq = 14, .accumulation = 2, .ranks = 1, .dtype = TL_F32};
    train.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    tl_ctx *meta = tl_ctx_new(NULL, &error);
    tl_ctx *real = tl_ctx_new(&(tl_ctx_options){.kernels = elements_kernels(tl_kernels_portable())}, &error);
    assert_true(meta && real);
    two_steps(meta, name, model, &train, false);
    elements_watch(real);
    two_steps(real, name, model, &train, true);
    tl_u128 special = 0;
    for (int i = 0; i < count; i++) {
        if (elements_of_kernel(list[i].kernel) != list[i].elements)
            fail_msg("%s: %s saw %" PRId64 " elements, not %" PRId64, name, list[i].kernel,
                     elements_of_kernel(list[i].kernel), list[i].elements);
        special += (tl_u128)list[i].special;
    }
    tl_counts counts;
    tl_ledger_counts(meta, TL_PHASE_ALL, &counts);
    char a[TL_U128_DIGITS], b[TL_U128_DIGITS];
    if (counts.special != special)
        fail_msg("%s: the plan counts %s special calls, not %s", name, tl_u128_text(counts.special, a),
                 tl_u128_text(special, b));
    tl_ctx_free(real);
    tl_ctx_free(meta);
}

static void test_kernels_see_the_formulas(void **state) {
    (void)state;
    const int64_t A = 2, B = 3, T = 14;
    tl_model g = small_gpt2(), l = small_llama();
    int64_t N = g.layers, D = g.width, H = g.heads, F = g.ff, V = g.vocab, C = g.context, rows = A * B * T;
    int64_t scores = A * N * B * H * T * T, hidden = N * rows * F, norms = (2 * N + 1) * rows * D;
    /* token and position tables; a block's four D×D with biases, two D×F with biases, two norms; the last norm */
    int64_t params = V * D + C * D + N * (4 * D * D + 4 * D + 2 * D * F + F + D + 4 * D) + 2 * D;
    const expected gpt2[] = {
        {"softmax", scores, scores},
        {"softmax_backward", scores, 0},
        {"gelu_tanh", hidden, hidden},
        {"layer_norm", norms, 0},
        {"layer_norm_backward", norms, 0},
        {"gelu_tanh_backward", hidden, hidden},
        {"adamw", params, 0},
        {"embedding_backward", rows * D, 0},
        {"cross_entropy", rows * V, rows * (V + 1)},
        {"rotary", 0, 0},
        {"cross_entropy_backward", rows * V, rows * V},
    };
    check_kernels("gpt2", &g, gpt2, (int)(sizeof gpt2 / sizeof *gpt2));
    int64_t G = l.kv_heads, K = l.head_size;
    N = l.layers, D = l.width, H = l.heads, F = l.ff, V = l.vocab;
    scores = A * N * B * H * T * T, hidden = N * rows * F, norms = (2 * N + 1) * rows * D;
    params = 2 * V * D + N * (2 * D * H * K + 2 * D * G * K + 3 * D * F + 2 * D) + D;
    /* Queries and keys are turned, and their gradients back: four calls a layer, each with T·K/2 angles. */
    const expected llama[] = {
        {"softmax", scores, scores},
        {"softmax_backward", scores, 0},
        {"rms_norm", norms, 0},
        {"rms_norm_backward", norms, 0},
        {"adamw", params, 0},
        {"rotary", 2 * N * rows * (H + G) * K, A * N * 4 * T * K},
        {"silu", hidden, hidden},
        {"silu_backward", hidden, hidden},
        {"cross_entropy", rows * V, rows * (V + 1)},
        {"cross_entropy_backward", rows * V, rows * V},
    };
    check_kernels("llama", &l, llama, (int)(sizeof llama / sizeof *llama));
}

/* ---- every op, on its own samples ---- */

static int case_differences(const op_case *o, layout how, uint64_t seed) {
    char name[96];
    tl_error error = {0};
    tl_ctx *real = tl_ctx_new(&(tl_ctx_options){.kernels = elements_kernels(tl_kernels_portable())}, &error);
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    assert_non_null(real);
    snprintf(name, sizeof name, "%s, case %llu, layout %d", o->op->name, (unsigned long long)seed, (int)how);
    op_case_inputs(o, real, how, 0, in);
    tl_ledger_step_begin(real);
    elements_watch(real);
    elements_begin();
    if (op_case_run(o, real, in, out) != TL_OK)
        fail_msg("%s: %s", name, tl_ctx_error(real)->message);
    int64_t count;
    elements_of_ops(&count);
    int different = count > 0 ? compare(name, real, false, true) : 0;
    tl_ctx_free(real);
    return different;
}

static bool is_exception(const tl_op *op) {
    return strcmp(op->name, "all_reduce") == 0 || strcmp(op->name, "eye") == 0;
}

static void test_every_op(void **state) {
    (void)state;
    int different = 0, compared = 0;
    for (int k = 0; k < tl_op_list_count; k++)
        for (uint64_t seed = 1; seed <= SEEDS && !is_exception(tl_op_list[k]); seed++) {
            op_case o;
            op_case_make(&o, tl_op_list[k], seed, TL_F32);
            different += case_differences(&o, LAYOUT_PLAIN, seed) != 0;
            op_case_free(&o);
            compared++;
        }
    print_message("declared = touched on %d of %d samples of %d ops\n", compared - different, compared,
                  tl_op_list_count);
    assert_int_equal(different, 0);
}

/* ---- mutations ---- */

static const tl_op *honest;

static void one_more_read(const tl_sig *sig, tl_cost *cost) {
    honest->cost(sig, cost);
    cost->read = (tl_amount){0};
    for (int i = 0; i < sig->n_in; i++)
        cost->read = tl_amount_add(sig->ctx, cost->read,
                                   tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->in[i]->dtype), &sig->in[i]->shape));
    cost->read.count += 4;
    cost->read_set = true;
}

static void one_less_written(const tl_sig *sig, tl_cost *cost) {
    honest->cost(sig, cost);
    cost->written = (tl_amount){0};
    for (int i = 0; i < sig->n_out; i++)
        cost->written = tl_amount_add(sig->ctx, cost->written,
                                      tl_amount_shape(sig->ctx, tl_dtype_bytes(sig->out[i].dtype), &sig->out[i].shape));
    cost->written.count -= 4;
    cost->written_set = true;
}

static void one_more_arithmetic(const tl_sig *sig, tl_cost *cost) {
    honest->cost(sig, cost);
    cost->arithmetic.count++;
}

static void one_more_special(const tl_sig *sig, tl_cost *cost) {
    honest->cost(sig, cost);
    cost->special.count++;
}

static void run_op(tl_ctx *ctx, const tl_op *op) {
    tl_softmax_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.scale = 0.5;
    tl_ledger_step_begin(ctx);
    tl_scope_begin(ctx);
    tl_tensor *x = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(7), tl_dim_of(5)), TL_DATA), 1.0);
    tl_tensor *w = tl_fill(tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(9), tl_dim_of(5)), TL_PARAM), 0.5);
    bool two = honest == &tl_op_linear;
    assert_non_null(tl_run1(op, (tl_tensor *[]){x, w}, two ? 2 : 1, two ? NULL : &attr, TL_HERE));
    tl_scope_end(ctx);
}

static int op_differences(const tl_op *op) {
    tl_error error = {0};
    tl_ctx *meta = tl_ctx_new(NULL, &error);
    tl_ctx *real = tl_ctx_new(&(tl_ctx_options){.kernels = elements_kernels(tl_kernels_portable())}, &error);
    run_op(meta, op);
    elements_watch(real);
    elements_begin();
    run_op(real, op);
    int different = compare(op->name, meta, true, false);
    tl_ctx_free(real);
    tl_ctx_free(meta);
    return different;
}

static void test_a_wrong_cost_is_caught(void **state) {
    (void)state;
    void (*const wrong[])(const tl_sig *, tl_cost *) = {one_more_read, one_less_written, one_more_arithmetic,
                                                        one_more_special};
    const tl_op *const ops[] = {&tl_op_linear, &tl_op_softmax};
    for (size_t o = 0; o < 2; o++) {
        tl_op op = *(honest = ops[o]);
        assert_int_equal(op_differences(&op), 0);
        for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
            op.cost = wrong[w];
            assert_int_equal(op_differences(&op), 1); /* that figure, nothing else */
        }
    }
}

static int release(void **state) {
    (void)state;
    elements_free();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_declared_is_touched),
        cmocka_unit_test(test_kernels_see_the_formulas),
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_a_wrong_cost_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
