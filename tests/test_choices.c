/* Every choice of tally/choices.h computes the same: loss and gradients in f64 as without it, to rounding, with and without
 * recompute; updates operation by operation move parameters as the fused ones do; and bytes are those of the literature.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small_models.h"
#include "tally/account.h"
#include "tally/cpu.h"
#include "tally/explain.h"
#include "tally/grad.h"
#include "tally/ops.h"
#include "tally/plan.h"

static void choose(const char *text, tl_choices *choices) {
    char list[TL_CHOICES_TEXT], *at = list, *one, *rest = NULL;
    tl_error error = {0};
    snprintf(list, sizeof list, "%s", text);
    for (; (one = strtok_r(at, ",", &rest)); at = NULL) {
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = '\0';
        if (tl_choice_set(choices, one, value, &error) != TL_OK)
            fail_msg("%s", error.message);
    }
}

static tl_ctx *cpu(void) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error);
    assert_non_null(ctx);
    return ctx;
}

/* ---- loss and gradients ---- */

enum { B = 2, T = 12 };

static tl_model gpt2_with_dropout(void) {
    tl_model m = small_gpt2();
    m.dropout_attention = m.dropout_embedding = m.dropout_residual = 0.1;
    return m;
}

/* All that a Gemma 2 and a Phi have, in llama's clothes: 1 + gain, gated GELU, soft caps, windows, partial rotary. */
static tl_model like_gemma(void) {
    tl_model m = small_llama();
    m.norm = TL_NORM_RMS_ONE;
    m.activation = TL_GELU_TANH;
    m.final_softcap = 3;
    m.attention_softcap = 2;
    m.window = 5;
    m.layer[0] = TL_LAYER_WINDOW;
    m.rotary_size = 4;
    m.tied = true;
    return m;
}

static tl_model like_gpt_oss(void) {
    tl_model m = small_llama();
    m.activation = TL_GLU_CLAMPED;
    m.sinks = true;
    m.window = 4;
    m.layer[0] = TL_LAYER_CHUNKED;
    return m;
}

static tl_model like_llama_interleaved(void) {
    tl_model m = small_llama();
    m.rope_interleaved = true;
    m.activation = TL_GELU_ERF;
    m.tied = true;
    return m;
}

typedef struct outcome {
    double loss;
    double *gradient; /* of all parameters, in turn */
    int64_t count;
} outcome;

static tl_tensor *ids(tl_ctx *ctx, const tl_model *m, bool targets) {
    int32_t id[B * T];
    uint32_t seed = targets ? 7 : 1;
    for (int i = 0; i < B * T; i++) {
        seed = seed * 1664525u + 1013904223u;
        id[i] = targets && i % 5 == 2 ? TL_IGNORE_INDEX : (int32_t)(seed >> 8) % (int32_t)m->vocab;
    }
    return tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(T)), TL_DATA, id, (int64_t)B * T);
}

static outcome run(const tl_model *m, const char *text, tl_recompute recompute) {
    tl_ctx *ctx = cpu();
    tl_choices choices = {0};
    choose(text, &choices);
    tl_net *net = tl_net_new(ctx, m, TL_F64);
    if (!net)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    tl_net_train(net, true);
    if (tl_net_recompute(net, recompute) != TL_OK || tl_net_choose(net, &choices) != TL_OK)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    outcome o = {0};
    tl_tensor *loss = tl_net_loss(net, ids(ctx, m, false), ids(ctx, m, true));
    if (!loss || tl_item(loss, &o.loss) != TL_OK || tl_backward(ctx, loss, 1.25) != TL_OK)
        fail_msg("%s: %s", text, tl_ctx_error(ctx)->message);
    const tl_parameter *list;
    int n = tl_net_parameters(net, &list);
    for (int i = 0; i < n; i++)
        o.count += tl_tensor_count(list[i].tensor);
    o.gradient = calloc((size_t)o.count, sizeof *o.gradient);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        tl_tensor *g = tl_tensor_grad(list[i].tensor);
        int64_t count = tl_tensor_count(list[i].tensor);
        if (g && tl_tensor_read(g, o.gradient + at, (size_t)count * sizeof(double)) != TL_OK)
            fail_msg("%s", tl_ctx_error(ctx)->message);
        at += count;
    }
    tl_net_free(net);
    tl_ctx_free(ctx);
    return o;
}

/* The largest difference of a gradient, over the largest gradient. */
static double distance(const outcome *a, const outcome *b) {
    double most = 0, scale = 0;
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        most = fmax(most, fabs(a->gradient[i] - b->gradient[i]));
        scale = fmax(scale, fabs(a->gradient[i]));
    }
    assert_true(scale > 0);
    return fmax(most / scale, fabs(a->loss - b->loss) / a->loss);
}

static const char *const alone[] = {"norm=composed",
                                    "norm=wide",
                                    "norm=composed,mean-input=on",
                                    "silu=composed",
                                    "softmax=composed",
                                    "softmax=composed,mask-tensor=on",
                                    "loss=log-softmax",
                                    "attention=flash",
                                    "attention=math",
                                    "glu=fused",
                                    "gelu=composed",
                                    "rotary=tables",
                                    "loss=full-fp32",
                                    "loss=chunked:1",
                                    "loss=chunked:5",
                                    "loss=chunked:24",
                                    "loss=fused:1",
                                    "loss=fused:7",
                                    "loss=fused:24",
                                    "repeat-kv=on",
                                    "attention-copies=on",
                                    "mask-tensor=on",
                                    "softmax-fp32=on",
                                    "attention=math,attention-copies=on",
                                    "attention=flash,repeat-kv=on"};
#define TOGETHER                                                                                                       \
    "norm=composed,gelu=composed,rotary=tables,repeat-kv=on,attention-copies=on,mask-tensor=on,loss=full-fp32"

static void test_the_same_loss_and_gradients(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tl_model (*make)(void);
    } models[] = {{"gpt2", small_gpt2},           {"gpt2, dropout", gpt2_with_dropout},
                  {"llama", small_llama},         {"like gemma", like_gemma},
                  {"like gpt-oss", like_gpt_oss}, {"like llama, interleaved", like_llama_interleaved}};
    static const tl_recompute again[] = {{TL_RECOMPUTE_NONE, 0}, {TL_RECOMPUTE_SELECTIVE, 0}, {TL_RECOMPUTE_FULL, 0}};
    int compared = 0;
    double worst = 0;
    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
        tl_model m = models[k].make();
        outcome plain = run(&m, "", again[0]);
        for (size_t r = 0; r < 3; r++)
            for (size_t i = 0; i <= sizeof alone / sizeof alone[0]; i++) {
                const char *text = i < sizeof alone / sizeof alone[0] ? alone[i] : TOGETHER;
                if (strstr(text, "math") && (m.sinks || m.attention_softcap != 0))
                    continue; /* refused: below */
                outcome o = run(&m, text, again[r]);
                double d = distance(&plain, &o);
                if (!(d < 1e-10))
                    fail_msg("%s, %s, recompute %zu: off by %g", models[k].name, text, r, d);
                worst = fmax(worst, d);
                free(o.gradient);
                compared++;
            }
        free(plain.gradient);
    }
    print_message("%d runs, at most %.1e off\n", compared, worst);
}

/* A distance of zero would also come of a choice that does nothing: each leaves other bytes, or other operations, behind. */
static bool count_ops(void *user, const tl_op_entry *e) {
    (void)e;
    ++*(int64_t *)user;
    return true;
}

static void look(const tl_model *m, const char *text, int64_t *saved, int64_t *ops) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_choices choices = {0};
    choose(text, &choices);
    tl_net *net = tl_net_new(ctx, m, TL_BF16);
    tl_net_train(net, true);
    assert_int_equal(tl_net_choose(net, &choices), TL_OK);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_ledger_step_begin(ctx);
    assert_non_null(tl_net_loss(net, ids(ctx, m, false), ids(ctx, m, true)));
    *saved = tl_ledger_live(ctx, TL_SAVED);
    *ops = 0;
    tl_ledger_each_op(ctx, count_ops, ops);
    tl_tape_clear(ctx);
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void test_each_choice_does_something_or_says_why(void **state) {
    (void)state;
    tl_model models[] = {small_gpt2(), gpt2_with_dropout(), small_llama(), like_gemma(), like_llama_interleaved()};
    static const char *const values[] = {
        "composed", "flash", "fused", "composed", "composed", "tables",   "fused:3", "on",      "on", "composed",
        "on",       "on",    "on",    "2",        "on",       "capacity", "f32",     "foreach", "on"};
    int silent = 0;
    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++)
        for (int i = 0; i < tl_choice_count() && strcmp(tl_choice_at(i)->name, "grads") != 0; i++) {
            char text[64];
            tl_choices choices = {0};
            int64_t saved[2], ops[2];
            snprintf(text, sizeof text, "%s=%s", tl_choice_at(i)->name, values[i]);
            choose(text, &choices);
            const char *why = tl_choice_effect(&models[k], &choices, i);
            look(&models[k], "", &saved[0], &ops[0]);
            look(&models[k], text, &saved[1], &ops[1]);
            bool changed = saved[0] != saved[1] || ops[0] != ops[1];
            if (changed != (why == NULL))
                fail_msg("model %zu, %s: %s, but it says \"%s\"", k, text, changed ? "changes" : "changes nothing",
                         why ? why : "");
            silent += why != NULL;
        }
    assert_true(silent >= 10);
}

/* ---- text ---- */

static void test_text(void **state) {
    (void)state;
    tl_error error = {0};
    char text[40];
    for (int i = 0; i < tl_choice_count(); i++) {
        const tl_choice *c = tl_choice_at(i);
        const char *at = c->values;
        tl_choices choices = {0};
        assert_true(tl_choice_is_default(&choices, i));
        for (int place = 0; *at; place++) {
            char word[40];
            size_t whole = strcspn(at, "|");
            snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "|["), at);
            assert_int_equal(tl_choice_set(&choices, c->name, word, &error), TL_OK);
            assert_int_equal(tl_choice_is_default(&choices, i), place == 0);
            const char *value = tl_choice_value(&choices, i, text, sizeof text);
            assert_memory_equal(value, word, strlen(word)); /* and perhaps its number */
            assert_int_equal(tl_choice_set(&choices, c->name, value, &error), TL_OK);
            at += whole + (at[whole] == '|');
        }
        error = (tl_error){0};
        assert_int_equal(tl_choice_set(&choices, c->name, "nonsense", &error), TL_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, c->values));
    }
    tl_choices choices = {0};
    assert_null(tl_choice_at(-1));
    assert_null(tl_choice_at(tl_choice_count()));
    assert_int_equal(tl_choice_set(&choices, "loss", "chunked:16", &error), TL_OK);
    assert_string_equal(tl_choice_value(&choices, 6, text, sizeof text), "chunked:16");
    static const char *const bad[] = {
        "chunked:0", "chunked:", "chunked:x", "chunked:257", "chunked:99999999999999999999",
        "full:3",    "",         "full|",     ":3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tl_choice_set(&choices, "loss", bad[i], &error), TL_ERR_ARGUMENT);
        assert_string_equal(tl_choice_value(&choices, 6, text, sizeof text), "chunked:16"); /* as it was */
    }
    assert_int_equal(tl_choice_set(&choices, "experts", "capacity:1.25", &error), TL_OK);
    assert_true(choices.experts == TL_EXPERTS_CAPACITY && choices.capacity_factor == 1.25);
    assert_int_equal(tl_choice_set(&choices, "experts", "capacity:-1", &error), TL_ERR_ARGUMENT);
    assert_int_equal(tl_choice_set(&choices, "experts", "capacity:1e3", &error), TL_ERR_ARGUMENT);
    error = (tl_error){0};
    assert_int_equal(tl_choice_set(&choices, "colour", "red", &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "update-in-backward"));
}

static void refused(const tl_model *m, tl_dtype dtype, const char *text, const char *why) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_net *net = tl_net_new(ctx, m, dtype);
    tl_choices choices = {0};
    choose(text, &choices);
    assert_int_equal(tl_net_choose(net, &choices), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, why));
    tl_net_free(net);
    tl_ctx_free(ctx);
}

static void refused_by_trainer(const char *text, tl_train_options o, const char *why) {
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_model m = small_gpt2();
    choose(text, &o.choices);
    assert_null(tl_trainer_new(ctx, &m, &o));
    assert_int_equal(tl_ctx_status(ctx), TL_ERR_UNSUPPORTED);
    assert_non_null(strstr(tl_ctx_error(ctx)->message, why));
    tl_ctx_free(ctx);
}

static tl_train_options training(tl_optimizer_kind kind, tl_dtype dtype) {
    return (tl_train_options){.micro_batch = B,
                              .seq = T,
                              .accumulation = 1,
                              .ranks = 1,
                              .dtype = dtype,
                              .optimizer = tl_optimizer_defaults(kind)};
}

static void test_what_cannot_be(void **state) {
    (void)state;
    tl_model gemma = like_gemma(), oss = like_gpt_oss(), gpt2 = gpt2_with_dropout();
    refused(&gemma, TL_F32, "attention=math", "softcap");
    refused(&oss, TL_F32, "attention=math", "sinks");
    refused(&gpt2, TL_BF16, "dropout-mask=4", "2 bytes");
    refused(&gpt2, TL_F64, "dropout-mask=2", "1 byte");
    tl_train_options o = training(TL_OPTIM_ADAMW, TL_F32);
    o.clip = 1;
    refused_by_trainer("update-in-backward=on", o, "clipping");
    o.clip = 0;
    o.accumulation = 2;
    refused_by_trainer("update-in-backward=on", o, "micro-batch");
    o.accumulation = 1;
    refused_by_trainer("update-in-backward=on,grads=f32", o, "buffers");
    refused_by_trainer("update-in-backward=on,update=foreach", o, "at once");
    o.loss_scaling = true;
    refused_by_trainer("update-in-backward=on", o, "loss scaling");
}

/* ---- updates ---- */

static tl_status same_batch(void *user, tl_ctx *ctx, const tl_train_options *options, int64_t micro, tl_batch *batch) {
    (void)options;
    (void)micro;
    batch->input = ids(ctx, user, false);
    batch->target = ids(ctx, user, true);
    return tl_ctx_status(ctx);
}

/* The parameters after three steps, and the bytes of the third. */
static outcome train(tl_model m, tl_train_options o, const char *text, tl_peak *peak, double *norm) {
    tl_ctx *ctx = cpu();
    outcome out = {0};
    tl_step_result result = {0};
    choose(text, &o.choices);
    tl_trainer *trainer = tl_trainer_new(ctx, &m, &o);
    if (!trainer)
        fail_msg("%s", tl_ctx_error(ctx)->message);
    for (int i = 0; i < 3; i++)
        if (tl_trainer_step(trainer, same_batch, &m, 1e-2, &result) != TL_OK)
            fail_msg("%s: %s", text, tl_ctx_error(ctx)->message);
    out.loss = result.loss;
    *norm = result.gradient_norm;
    tl_ledger_peak(ctx, peak);
    const tl_parameter *list;
    int n = tl_net_parameters(tl_trainer_net(trainer), &list);
    for (int i = 0; i < n; i++)
        out.count += tl_tensor_count(list[i].tensor);
    out.gradient = calloc((size_t)out.count, sizeof *out.gradient);
    int64_t at = 0;
    tl_record(ctx, false);
    for (int i = 0; i < n; i++) {
        tl_tensor *wide = tl_cast(list[i].tensor, TL_F64);
        int64_t count = tl_tensor_count(wide);
        assert_int_equal(tl_tensor_read(wide, out.gradient + at, (size_t)count * sizeof(double)), TL_OK);
        at += count;
    }
    tl_trainer_free(trainer);
    tl_ctx_free(ctx);
    return out;
}

static void same_parameters(const char *name, tl_train_options o, const char *text, double tolerance) {
    tl_peak peak;
    double norm[2];
    outcome a = train(small_llama(), o, "", &peak, &norm[0]), b = train(small_llama(), o, text, &peak, &norm[1]);
    double d = distance(&a, &b);
    if (!(d < tolerance) || !(fabs(norm[0] - norm[1]) <= 1e-6 * norm[0]))
        fail_msg("%s, %s: parameters differ by %g, norms %g and %g", name, text, d, norm[0], norm[1]);
    free(a.gradient);
    free(b.gradient);
}

static void test_updates_agree(void **state) {
    (void)state;
    static const tl_optimizer_kind kinds[] = {TL_OPTIM_SGD,  TL_OPTIM_ADAGRAD, TL_OPTIM_ADAMW,
                                              TL_OPTIM_ADAM, TL_OPTIM_RMSPROP, TL_OPTIM_ADAMW8BIT};
    static const char *const ways[] = {"update=tensor", "update=foreach", "update-in-backward=on",
                                       "update-in-backward=on,update=tensor", "grads=f32"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int variant = 0; variant < 3; variant++)
            for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
                tl_train_options o = training(kinds[k], kinds[k] == TL_OPTIM_ADAMW8BIT ? TL_F32 : TL_F64);
                tl_optimizer_options *p = &o.optimizer;
                p->weight_decay = variant ? 0.1 : 0;
                if (variant == 2) {
                    p->momentum = kinds[k] == TL_OPTIM_SGD || kinds[k] == TL_OPTIM_RMSPROP ? 0.9 : 0;
                    p->nesterov = kinds[k] == TL_OPTIM_SGD;
                    p->centered = kinds[k] == TL_OPTIM_RMSPROP;
                    p->epsilon_outside = kinds[k] == TL_OPTIM_ADAGRAD;
                    p->cs336_order = kinds[k] == TL_OPTIM_ADAMW;
                }
                o.recompute.kind = variant == 1 ? TL_RECOMPUTE_FULL : TL_RECOMPUTE_NONE;
                same_parameters(tl_optimizer_name(kinds[k]), o, ways[w], o.dtype == TL_F64 ? 1e-9 : 1e-4);
            }
    tl_train_options mixed = training(TL_OPTIM_ADAMW, TL_BF16);
    mixed.optimizer.master = mixed.optimizer.state_f32 = true;
    for (size_t w = 0; w < 4; w++)
        same_parameters("adamw, bf16-mixed", mixed, ways[w], 1e-2); /* of bf16: the last bit */
}

/* An update in backward never holds all gradients: at the end of backward, the moment of the peak without it, most are gone. */
static void test_update_in_backward_lets_gradients_go(void **state) {
    (void)state;
    tl_error error = {0};
    int64_t peak[2], high[2], parameters = 0;
    tl_model m = small_llama();
    m.layers = 6;
    m.tied = true;
    for (int early = 0; early < 2; early++) {
        tl_ctx *ctx = tl_ctx_new(NULL, &error);
        tl_train_options o = training(TL_OPTIM_ADAMW, TL_F32);
        o.micro_batch = 1;
        o.seq = 2; /* so that gradients, not activations, make the peak */
        o.choices.update_in_backward = early;
        tl_trainer *trainer = tl_trainer_new(ctx, &m, &o);
        for (int i = 0; i < 2; i++)
            assert_int_equal(tl_trainer_step(trainer, NULL, NULL, 1e-3, NULL), TL_OK);
        tl_peak p;
        tl_ledger_peak(ctx, &p);
        peak[early] = p.bytes;
        high[early] = tl_ledger_high(ctx, TL_GRAD);
        tl_parameter_count count;
        tl_net_count(tl_trainer_net(trainer), &count);
        parameters = 4 * count.unique;
        tl_trainer_free(trainer);
        tl_ctx_free(ctx);
    }
    print_message("peak %" PRId64 ", with updates in backward %" PRId64 "; gradients %" PRId64 ", %" PRId64 "\n",
                  peak[0], peak[1], high[0], high[1]);
    assert_int_equal(high[0], parameters);
    /* the table waits for the embedding; of the others two matrices at a time: a gate's and a value's, in one scope */
    assert_true(high[1] <= 4 * (61 * 32 + 2 * 72 * 32));
    /* what is left of the difference: two tokens' activations, which live where the peak is now */
    assert_true(peak[0] - peak[1] > parameters * 85 / 100 && peak[0] - peak[1] <= parameters);
}

/* Temporaries of the largest parameter, or of all: torch.optim's AdamW holds √v and its quotient, foreach one tensor of each. */
static void test_temporaries_of_updates(void **state) {
    (void)state;
    tl_error error = {0};
    int64_t work[3];
    static const char *const ways[] = {"update=fused", "update=tensor", "update=foreach"};
    tl_model m = small_gpt2();
    for (int w = 0; w < 3; w++) {
        tl_ctx *ctx = tl_ctx_new(NULL, &error);
        tl_train_options o = training(TL_OPTIM_ADAMW, TL_F32);
        choose(ways[w], &o.choices);
        tl_trainer *trainer = tl_trainer_new(ctx, &m, &o);
        for (int i = 0; i < 2; i++)
            assert_int_equal(tl_trainer_step(trainer, NULL, NULL, 1e-3, NULL), TL_OK);
        tl_peak peak;
        tl_ledger_phase_peak(ctx, TL_PHASE_STEP, &peak);
        work[w] = peak.by_category[TL_WORK];
        tl_parameter_count count;
        tl_net_count(tl_trainer_net(trainer), &count);
        if (w == 2)
            assert_int_equal(work[2] - work[0], 4 * count.unique);
        tl_trainer_free(trainer);
        tl_ctx_free(ctx);
    }
    assert_int_equal(work[1] - work[0], 2 * 4 * m.ff * m.width); /* the largest: 80·24 */
}

/* ---- bytes ---- */

typedef struct term {
    const char *pattern, *op;
    int64_t bytes;
} term;
typedef struct terms {
    term list[64];
    int count;
    const char *layer;
} terms;

static bool add_term(void *user, const tl_live_entry *e) {
    terms *t = user;
    int i = 0;
    if (e->category != TL_SAVED || strncmp(e->module, t->layer, strlen(t->layer)) != 0)
        return true;
    while (i < t->count && (strcmp(t->list[i].pattern, e->pattern) != 0 || strcmp(t->list[i].op, e->op) != 0))
        i++;
    assert_true(i < 64);
    t->count += i == t->count;
    t->list[i].pattern = e->pattern;
    t->list[i].op = e->op;
    t->list[i].bytes += e->bytes;
    return true;
}

static int64_t take(terms *t, const char *pattern, const char *op) {
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->list[i].pattern, pattern) == 0 && strcmp(t->list[i].op, op) == 0) {
            int64_t bytes = t->list[i].bytes;
            t->list[i].bytes = 0;
            return bytes;
        }
    return 0;
}

static void terms_of(tl_model m, int64_t batch, int64_t seq, const char *text, tl_ctx *ctx, terms *t) {
    tl_choices choices = {0};
    choose(text, &choices);
    tl_net *net = tl_net_new(ctx, &m, TL_BF16);
    assert_non_null(net);
    tl_net_train(net, true);
    assert_int_equal(tl_net_choose(net, &choices), TL_OK);
    assert_int_equal(tl_record(ctx, true), TL_OK);
    tl_ledger_step_begin(ctx);
    tl_tensor *tokens = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(batch), tl_dim_of(seq)), TL_DATA);
    assert_non_null(tl_net_loss(net, tokens, tokens));
    *t = (terms){.layer = "h.1"};
    assert_true(tl_ledger_each_live(ctx, TL_PHASE_LOSS, add_term, t)); /* all layers are done */
    tl_tape_clear(ctx);
    tl_net_free(net);
}

/* Korthikanti et al. 2022, section 4.1, at t = 1, in 16 bits with dropout: s·b·h times 34 + 5·a·s/h, each term where it stands in
 * the model. */
static void test_terms_of_korthikanti(void **state) {
    (void)state;
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    tl_model m;
    terms t;
    assert_int_equal(tl_catalogue_model("gpt2", &m, &error), TL_OK);
    m.layers = 3;
    m.dropout_attention = m.dropout_embedding = m.dropout_residual = 0.1;
    int64_t b = 3, s = 256, a = m.heads, sbh = s * b * m.width, as2b = a * s * s * b, row = 4 * s * b;
    terms_of(m, b, s, "", ctx, &t);
    assert_int_equal(take(&t, "h.*", "add"), 4 * sbh);                       /* inputs of both norms */
    assert_int_equal(take(&t, "h.*.ln_1", "layer_norm"), 2 * sbh + 2 * row); /* input of q, k, v; mean and 1/σ beside */
    assert_int_equal(take(&t, "h.*.attn.c_attn", "linear"), 6 * sbh);        /* q and k, and v */
    assert_int_equal(take(&t, "h.*.attn", "softmax"), 2 * as2b);
    int64_t dropped = take(&t, "h.*.attn", "dropout");
    assert_int_equal(dropped, as2b + 2 * as2b + sbh); /* mask; what values are weighed by; mask of the residual */
    int64_t mix = take(&t, "h.*.attn", "copy") + take(&t, "h.*.attn", "reshape") + take(&t, "h.*.attn", "view");
    assert_int_equal(mix, 2 * sbh);                                          /* input of the output projection */
    assert_int_equal(take(&t, "h.*.ln_2", "layer_norm"), 2 * sbh + 2 * row); /* input of the first product */
    assert_int_equal(take(&t, "h.*.mlp.c_fc", "linear"), 8 * sbh);           /* input of GELU */
    assert_int_equal(take(&t, "h.*.mlp", "gelu_tanh"), 8 * sbh);             /* input of the second product */
    assert_int_equal(take(&t, "h.*.mlp", "dropout"), sbh);                   /* mask */
    for (int i = 0; i < t.count; i++)
        if (t.list[i].bytes)
            fail_msg("%s %s: %" PRId64 " bytes more", t.list[i].pattern, t.list[i].op, t.list[i].bytes);
    /* FlashAttention: 5·a·s/h is gone; y is the projection's input, and a statistic a row and head comes */
    terms_of(m, b, s, "attention=flash", ctx, &t);
    assert_int_equal(take(&t, "h.*.attn.flash", "flash_attention"), 2 * sbh + 4 * a * s * b);
    assert_int_equal(take(&t, "h.*.attn", "dropout"), sbh);
    assert_int_equal(take(&t, "h.*.attn", "softmax"), 0);
    assert_int_equal(take(&t, "h.*.attn", "copy"), 0);
    tl_ctx_free(ctx);
}

/* Logits of B·T·V in 16 bits, and of a chunk alone: what the loss phase holds at most. */
static void test_bytes_of_losses(void **state) {
    (void)state;
    tl_error error = {0};
    tl_model m;
    assert_int_equal(tl_catalogue_model("gpt2", &m, &error), TL_OK);
    m.layers = 1;
    int64_t rows = 4 * 1024, V = m.vocab, D = m.width, live[4];
    static const char *const ways[] = {"loss=full", "loss=chunked:8", "loss=fused:8", "loss=full-fp32"};
    for (int w = 0; w < 4; w++) {
        tl_ctx *ctx = tl_ctx_new(NULL, &error);
        tl_choices choices = {0};
        choose(ways[w], &choices);
        tl_net *net = tl_net_new(ctx, &m, TL_BF16);
        assert_int_equal(tl_net_choose(net, &choices), TL_OK);
        assert_int_equal(tl_record(ctx, true), TL_OK);
        tl_tensor *tokens = tl_empty(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(4), tl_dim_of(1024)), TL_DATA);
        tl_ledger_step_begin(ctx);
        tl_tensor *loss = tl_net_loss(net, tokens, tokens);
        live[w] = tl_ledger_live(ctx, TL_SAVED);
        tl_phase_set(ctx, TL_PHASE_BACKWARD);
        assert_int_equal(tl_backward(ctx, loss, 1), TL_OK);
        tl_peak peak;
        tl_ledger_peak(ctx, &peak);
        print_message("%s: saved %" PRId64 ", peak %" PRId64 "\n", ways[w], live[w], peak.bytes);
        tl_net_free(net);
        tl_ctx_free(ctx);
    }
    assert_int_equal(live[0] - live[1],
                     2 * rows * V + 4 * rows + 4 - 8 * 4); /* logits, log-sum-exp, count; shares of chunks */
    assert_int_equal(live[2] - live[1],
                     2 * V * D - 8 * 4); /* the head's gradient; the tokens' has the place of the tokens */
    assert_int_equal(live[3] - live[0], 2 * rows * V - 4 * rows + 4); /* log softmax in f32; no log-sum-exp; the loss */
}

/* A formula is compared with the ledger where it is made: that it is made is the test. */
static void test_formulas_hold(void **state) {
    (void)state;
    static const tl_recompute again[] = {{TL_RECOMPUTE_NONE, 0}, {TL_RECOMPUTE_SELECTIVE, 0}, {TL_RECOMPUTE_FULL, 0}};
    static const char *const more[] = {"grads=f32", "update=tensor", "update=foreach", "update-in-backward=on",
                                       TOGETHER};
    enum { ALONE = sizeof alone / sizeof alone[0], MORE = sizeof more / sizeof more[0] };
    for (int i = 0; i < ALONE + MORE; i++)
        for (size_t r = 0; r < 3; r++) {
            tl_plan_options o = {
                .micro_batch = 2, .seq = 16, .precision = TL_PRECISION_BF16_MIXED, .recompute = again[r]};
            tl_plan_run plan;
            tl_explain_sum sum;
            tl_error error = {0};
            o.model = i % 2 ? small_llama() : gpt2_with_dropout();
            o.model.layers = 5;
            o.devices.count = 1;
            o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
            choose(i < ALONE ? alone[i] : more[i - ALONE], &o.choices);
            if (tl_plan_run_make(&o, true, &plan, &error) != TL_OK)
                fail_msg("%s", error.message);
            for (int which = TL_EXPLAIN_MATMUL; which <= TL_EXPLAIN_SPECIAL; which++) {
                if (tl_explain_flops(&plan, TL_PHASE_ALL, (tl_explain_count)which, &sum, &error) != TL_OK)
                    fail_msg("%d: %s", i, error.message);
                tl_explain_free(&sum);
            }
            if (tl_explain_memory(&plan, TL_PHASE_ALL, &sum, &error) != TL_OK)
                fail_msg("%d: %s", i, error.message);
            tl_explain_free(&sum);
            tl_plan_run_free(&plan);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_loss_and_gradients),
        cmocka_unit_test(test_each_choice_does_something_or_says_why),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_what_cannot_be),
        cmocka_unit_test(test_updates_agree),
        cmocka_unit_test(test_update_in_backward_lets_gradients_go),
        cmocka_unit_test(test_temporaries_of_updates),
        cmocka_unit_test(test_terms_of_korthikanti),
        cmocka_unit_test(test_bytes_of_losses),
        cmocka_unit_test(test_formulas_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
