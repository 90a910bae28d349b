/* What each op declares (bytes read and written, arithmetic and special counts) against what was seen where its kernels are
 * entered (instrument_elements.h, which shares no code with the ledger and knows no `cost`): op by op through a whole training
 * step, the plan's on meta and the run's own ledger.
 *
 * Exceptions, by name: an op that reads a number itself, outside any kernel.
 *   clip_scale   Σ of squares, one f64
 *   fp8_round    the row's scale, one f32
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
#include "op/core.h"
#include "small_models.h"
#include "tally/grad.h"
#include "tally/plan.h"

extern const tl_op tl_op_linear, tl_op_rms_norm, tl_op_softmax;

static const struct {
    const char *op;
    int64_t bytes;
} read_by_the_op[] = {{"clip_scale", 8}, {"fp8_round", 4}};

typedef struct declared {
    const tl_ctx *ctx;
    const char *name; /* of the configuration */
    const touched *seen;
    int64_t count, at;
    int different;
    bool quiet;
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
        if (strcmp(e->op, read_by_the_op[i].op) == 0)
            read += read_by_the_op[i].bytes;
    if (t->unknown) {
        print_message("%s: %s calls %s, whose formula is not listed\n", d->name, t->op, t->unknown);
        d->different++;
    }
    d->different += differ(d, t, "bytes read", e->read.count, (tl_u128)read);
    d->different += differ(d, t, "bytes written", e->written.count, (tl_u128)t->written);
    d->different += differ(d, t, "arithmetic", e->arithmetic.count, t->arithmetic);
    d->different += differ(d, t, "special", e->special.count, t->special);
    d->at++;
    return true;
}

/* How many figures of the context's log differ from what was seen. */
static int compare(const char *name, const tl_ctx *ctx, bool quiet) {
    declared d = {.ctx = ctx, .name = name, .quiet = quiet};
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
    int different = compare(name, meta, false) + compare(name, real, true);
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
    int different = compare(op->name, meta, true);
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
        cmocka_unit_test(test_a_wrong_cost_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
