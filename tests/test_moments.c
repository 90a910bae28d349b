/* The moments beside the steps, planned and measured apart: what tl_plan_make says of init, load, step and save against real
 * runs that load and save real files, as the second instrument saw them (instrument.h, which knows nothing of the ledger).
 * And memory over a step: the planned timeline against the allocator's calls, one by one. Everything is compared exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "instrument.h"
#include "optim/transfer.h"
#include "small_models.h"
#include "tally/ckpt.h"
#include "tally/engine.h"
#include "tally/lora.h"
#include "tally/plan.h"
#include "tally/weights.h"

enum { SEQ = 16, EXTRAS = 64 };

typedef struct kind {
    tl_precision precision;
    bool autocast;
} kind;
static const kind kinds[] = {{TL_PRECISION_FP32, false},       {TL_PRECISION_BF16, false},
                             {TL_PRECISION_BF16_MIXED, false}, {TL_PRECISION_FP16_MIXED, false},
                             {TL_PRECISION_FP8_MIXED, false},  {TL_PRECISION_BF16_MIXED, true}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct rule {
    const char *name;
    tl_optimizer_kind kind;
    double momentum;
} rule;
static const rule rules[] = {{"sgd", TL_OPTIM_SGD, 0},         {"momentum", TL_OPTIM_SGD, 0.9},
                             {"adamw", TL_OPTIM_ADAMW, 0},     {"adagrad", TL_OPTIM_ADAGRAD, 0},
                             {"rmsprop", TL_OPTIM_RMSPROP, 0}, {"adamw8bit", TL_OPTIM_ADAMW8BIT, 0}};
enum { RULES = sizeof rules / sizeof *rules };

static char folder[] = "/tmp/tally-moments-XXXXXX";

static void path_of(const char *name, char path[128]) { snprintf(path, 128, "%s/%s", folder, name); }

static tl_plan_options options_of(tl_model model, const rule *r, kind k, int64_t micros, int prefetch) {
    tl_plan_options o = {.model = model,
                         .devices = {.count = 1, .here = true},
                         .threads = 1,
                         .seq = SEQ,
                         .micro_batch = 2,
                         .global_batch = 2 * micros,
                         .precision = k.precision,
                         .autocast = k.autocast,
                         .optimizer = tl_optimizer_defaults(r->kind),
                         .prefetch = prefetch,
                         .weights = true};
    o.optimizer.momentum = r->momentum;
    return o;
}

static tl_train_options train_of(const tl_plan_options *o) {
    tl_error error = {0};
    tl_train_options t = {.micro_batch = o->micro_batch,
                          .seq = o->seq,
                          .accumulation = o->global_batch / o->micro_batch,
                          .ranks = 1,
                          .optimizer = o->optimizer,
                          .condensed = true,
                          .autocast = o->autocast,
                          .recompute = o->recompute,
                          .lora = o->lora,
                          .prefetch = o->prefetch};
    assert_int_equal(tl_precision_apply(o->precision, &t, &error), TL_OK);
    return t;
}

/* ---- a real run ---- */

typedef struct world {
    instrument *in;
    tl_allocator allocator;
    tl_model model;
    tl_ctx *ctx;
    tl_trainer *trainer;
    int64_t init_peak;
} world;

static void begin(world *w, const tl_plan_options *o, const tl_allocator *base) {
    tl_error error = {0};
    tl_train_options train = train_of(o);
    *w = (world){.in = instrument_new(base), .model = o->model};
    w->allocator = instrument_allocator(w->in);
    tl_ctx_options options = {.kernels = instrument_kernels(w->in, tl_kernels_portable()), .allocator = &w->allocator};
    instrument_begin(w->in);
    w->ctx = tl_ctx_new(&options, &error);
    assert_non_null(w->ctx);
    w->trainer = tl_trainer_new(w->ctx, &w->model, &train);
    assert_non_null(w->trainer);
    w->init_peak = instrument_end(w->in).peak;
    if (train.loss_scaling) /* a skipped step updates nothing */
        assert_int_equal(tl_trainer_set_scaler(w->trainer, &(tl_loss_scaler){.scale = 256}), TL_OK);
}

static void end(world *w) {
    tl_trainer_free(w->trainer);
    tl_ctx_free(w->ctx);
    assert_int_equal(instrument_free(w->in), 0);
}

static int64_t step(world *w, random_batch *batch) {
    tl_step_result result;
    instrument_begin(w->in);
    if (tl_trainer_step(w->trainer, random_batch_source, batch, 1e-3, &result) != TL_OK)
        fail_msg("%s", tl_ctx_error(w->ctx)->message);
    return instrument_end(w->in).peak;
}

/* As cli/train_checkpoint.c: what the precision carries is a part of the checkpoint. */
typedef struct contents {
    tl_ckpt_contents run;
    tl_ckpt_part part;
    tl_ckpt_tensor extras[EXTRAS];
} contents;

static void contents_of(const world *w, contents *c) {
    const char *name;
    tl_tensor *tensor;
    memset(c, 0, sizeof *c);
    c->part = (tl_ckpt_part){.name = "precision", .tensors = c->extras};
    while (tl_trainer_extra(w->trainer, (int)c->part.n_tensors, &name, &tensor)) {
        assert_true(c->part.n_tensors < EXTRAS);
        c->extras[c->part.n_tensors++] = (tl_ckpt_tensor){name, tensor};
    }
    c->run = (tl_ckpt_contents){w->ctx, tl_trainer_net(w->trainer), tl_trainer_optimizer(w->trainer), &c->part, 1};
}

typedef struct moments {
    int64_t init, load, weights, weights_save, step, save;
    int64_t state, largest; /* bytes: what lives after loading; the largest parameter */
    int64_t save_calls;
    int64_t bookkeeping, bookkeeping_saved; /* past the allocator, all of it summed: header and tables of names */
    int64_t tensors;
} moments;

static void measure_saving(const tl_plan_options *o, moments *m) {
    world w;
    contents c;
    tl_error error = {0};
    char path[128];
    begin(&w, o, NULL);
    random_batch batch = {w.in, &w.model, 42};
    (void)step(&w, &batch);
    m->init = w.init_peak;
    m->step = step(&w, &batch);
    contents_of(&w, &c);
    path_of("run.safetensors", path);
    instrument_begin(w.in);
    if (tl_ckpt_save(path, &c.run, &(tl_ckpt_state){.step = 2}, &error) != TL_OK)
        fail_msg("%s", error.message);
    measured saved = instrument_end(w.in);
    m->save = saved.peak;
    m->save_calls = saved.allocations;
    m->bookkeeping_saved = saved.uncounted.bytes;
    if (w.model.family != TL_FAMILY_CRUNCHER) {
        path_of("weights", path);
        instrument_begin(w.in);
        if (tl_weights_save(path, c.run.net, NULL, &error) != TL_OK)
            fail_msg("%s", error.message);
        m->weights_save = instrument_end(w.in).peak;
    }
    end(&w);
}

static void measure_loading(const tl_plan_options *o, moments *m) {
    world w;
    contents c;
    tl_error error = {0};
    tl_ckpt_state state;
    tl_peak own;
    char path[128];
    begin(&w, o, NULL);
    contents_of(&w, &c);
    path_of("run.safetensors", path);
    instrument_begin(w.in);
    if (tl_ckpt_load(path, &c.run, &state, &error) != TL_OK)
        fail_msg("%s", error.message);
    measured loaded = instrument_end(w.in);
    m->load = loaded.peak;
    m->bookkeeping = loaded.uncounted.bytes;
    m->state = instrument_live_bytes(w.in);
    tl_ledger_phase_peak(w.ctx, TL_PHASE_LOAD, &own);
    assert_int_equal(own.bytes, m->load);
    /* init was over when states came */
    tl_ledger_phase_peak(w.ctx, TL_PHASE_INIT, &own);
    assert_int_equal(own.bytes, m->init);
    random_batch batch = {w.in, &w.model, 43};
    assert_int_equal(step(&w, &batch), m->step); /* a resumed run's first step is like any other */
    end(&w);
    if (w.model.family == TL_FAMILY_CRUNCHER)
        return;
    begin(&w, o, NULL);
    path_of("weights", path);
    instrument_begin(w.in);
    if (tl_weights_load(path, tl_trainer_net(w.trainer), NULL, &error) != TL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(tl_optimizer_refresh(tl_trainer_optimizer(w.trainer)), TL_OK);
    m->weights = instrument_end(w.in).peak;
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(w.trainer), &list);
    m->tensors = count;
    for (int i = 0; i < count; i++)
        if (tl_tensor_storage_bytes(list[i].tensor) > m->largest)
            m->largest = tl_tensor_storage_bytes(list[i].tensor);
    end(&w);
}

static int differ(const char *name, const char *what, int64_t planned, int64_t real) {
    if (planned == real)
        return 0;
    print_message("%s: %s planned %" PRId64 ", measured %" PRId64 "\n", name, what, planned, real);
    return 1;
}

static void compare(const tl_plan_options *o, const char *name, int *different) {
    tl_error error = {0};
    tl_plan p;
    moments m = {0};
    int n = 0;
    if (tl_plan_make(o, &p, &error) != TL_OK)
        fail_msg("%s: %s", name, error.message);
    measure_saving(o, &m);
    measure_loading(o, &m);
    n += differ(name, "init", p.init.bytes, m.init);
    n += differ(name, "load", p.load.bytes, m.load);
    n += differ(name, "step", p.peak.bytes, m.step);
    n += differ(name, "save", p.save.bytes, m.save);
    if (o->model.family != TL_FAMILY_CRUNCHER) {
        n += differ(name, "weights", p.weights.bytes, m.weights);
        n += differ(name, "block of weights", m.largest < 1 << 20 ? m.largest : 1 << 20, m.weights - m.init);
        /* never more than the state and one tensor */
        assert_true(m.weights <= m.init + m.largest);
        assert_true(m.weights_save <= m.save + m.largest);
        assert_true(m.weights_save > m.save);
    }
    assert_int_equal(m.load, m.state); /* a checkpoint's values go straight into the tensors */
    assert_int_equal(m.save_calls, 0);
    /* Names, shapes and the header, at most five tensors of a parameter; a value's buffer would grow with the model instead. */
    if (m.tensors) {
        assert_true(m.bookkeeping < 65536 + m.tensors * 5 * 2048);
        assert_true(m.bookkeeping_saved < 65536 + m.tensors * 5 * 2048);
    }
    assert_int_equal(p.load.phase, TL_PHASE_LOAD);
    assert_int_equal(p.save.phase, TL_PHASE_SAVE);
    *different += n != 0;
}

static void test_moments_of_every_run(void **state) {
    (void)state;
    tl_model (*const bases[])(void) = {small_gpt2, small_llama, small_cruncher};
    int different = 0, compared = 0;
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
        for (int r = 0; r < RULES; r++)
            for (int k = 0; k < KINDS; k++) {
                char name[256];
                tl_model model = bases[b]();
                if (rules[r].kind == TL_OPTIM_ADAMW8BIT && b < 2) { /* wide enough for states of 8 bits */
                    model.width = 96;
                    model.head_size = model.width / model.heads;
                }
                int prefetch = b < 2 && r % 2 == 1 ? 2 : 0;
                tl_plan_options o = options_of(model, &rules[r], kinds[k], 1 + 2 * (r % 2), prefetch);
                if (b == 2)
                    o.seq = 1;
                snprintf(name, sizeof name, "%s, %s, %s%s", model.name, rules[r].name,
                         tl_precision_name(kinds[k].precision), kinds[k].autocast ? ", autocast" : "");
                compare(&o, name, &different);
                compared++;
            }
    print_message("init, load, step and save planned = measured on %d of %d runs\n", compared - different, compared);
    assert_int_equal(different, 0);
}

/* Published weights into a quantised base: each is there in full for as long as it is quantised. */
static void test_weights_into_a_quantised_base(void **state) {
    static const tl_lora_base bases[] = {TL_LORA_PLAIN, TL_LORA_INT8, TL_LORA_NF4, TL_LORA_NF4_TWICE};
    tl_model (*const models[])(void) = {small_gpt2, small_llama};
    char path[128];
    (void)state;
    path_of("published", path);
    for (int m = 0; m < 2; m++)
        for (int b = 0; b < 4; b++) {
            world w;
            tl_plan p;
            tl_error error = {0};
            tl_plan_options o = options_of(models[m](), &rules[2], kinds[0], 1, 0);
            begin(&w, &o, NULL);
            if (tl_weights_save(path, tl_trainer_net(w.trainer), NULL, &error) != TL_OK)
                fail_msg("%s", error.message);
            end(&w);
            o.lora = (tl_lora_options){.rank = 4, .base = bases[b], .targets = "all-linear"};
            assert_int_equal(tl_plan_make(&o, &p, &error), TL_OK);
            begin(&w, &o, NULL);
            instrument_begin(w.in);
            if (tl_weights_load(path, tl_trainer_net(w.trainer), NULL, &error) != TL_OK)
                fail_msg("%s", error.message);
            assert_int_equal(instrument_end(w.in).peak, p.weights.bytes);
            assert_int_equal(w.init_peak, p.init.bytes);
            end(&w);
        }
}

/* ---- the comparison can fail ---- */

static tl_status allocates(void *self, char *block, int64_t block_bytes) {
    world *w = self;
    (void)block, (void)block_bytes;
    tl_tensor *t = tl_empty(w->ctx, TL_U8, TL_SHAPE(w->ctx, tl_dim_of(100)), TL_WORK);
    tl_free(tl_keep(t));
    return tl_ctx_status(w->ctx);
}

/* A hundred bytes that reading would take beside the state, and the plan knows nothing of. */
static void test_a_buffer_is_seen(void **state) {
    (void)state;
    tl_error error = {0};
    tl_plan p;
    tl_plan_options o = options_of(small_gpt2(), &rules[2], kinds[0], 1, 0);
    assert_int_equal(tl_plan_make(&o, &p, &error), TL_OK);
    for (int with = 0; with < 2; with++) {
        world w;
        begin(&w, &o, NULL);
        instrument_begin(w.in);
        tl_optimizer *states = tl_trainer_optimizer(w.trainer);
        assert_int_equal(tl_transfer_load(w.ctx, states, 1, true, with ? allocates : NULL, &w), TL_OK);
        assert_int_equal(instrument_end(w.in).peak, p.load.bytes + (with ? 100 : 0));
        end(&w);
    }
}

/* The larger of the moments and the step's arena must fit, and is named. */
static void test_the_largest_moment_decides(void **state) {
    (void)state;
    tl_error error = {0};
    tl_plan p;
    tl_plan_options o = options_of(small_gpt2(), &rules[2], kinds[0], 1, 0);
    assert_int_equal(tl_plan_make(&o, &p, &error), TL_OK);
    assert_ptr_equal(tl_plan_largest_moment(&p), &p.peak);
    assert_int_equal(tl_plan_needs(&p, tl_engine_at(0)), p.arena_bytes);
    assert_int_equal(p.needs_bytes, p.arena_bytes);
    p.load.bytes = p.arena_bytes + 1;
    assert_ptr_equal(tl_plan_largest_moment(&p), &p.load);
    assert_int_equal(tl_plan_needs(&p, tl_engine_at(0)), p.arena_bytes + 1);
    p.save.bytes = p.arena_bytes + 2;
    assert_ptr_equal(tl_plan_largest_moment(&p), &p.save);
    p.init.bytes = p.arena_bytes + 3;
    assert_ptr_equal(tl_plan_largest_moment(&p), &p.init);
    assert_int_equal(tl_plan_needs(&p, tl_engine_at(0)), p.arena_bytes + 3);
}

/* Published weights go into a net whose optimizer has made its copies: an update that changes nothing must leave them be. */
static void test_published_weights_reach_the_copies(void **state) {
    (void)state;
    tl_error error = {0};
    char path[128];
    path_of("published", path);
    tl_plan_options o = options_of(small_llama(), &rules[0], kinds[2], 1, 0);
    const uint16_t three_eighths = 0x3EC0; /* bf16: 1.5 × 2^−2, exponent 125, mantissa 1000000 */
    world from, to;
    begin(&from, &o, NULL);
    tl_tensor *a = tl_net_find(tl_trainer_net(from.trainer), "model.layers.0.mlp.up_proj.weight");
    assert_non_null(a);
    for (int64_t i = 0; i < tl_tensor_count(a); i++)
        ((uint16_t *)tl_tensor_data(a))[i] = three_eighths;
    assert_int_equal(tl_weights_save(path, tl_trainer_net(from.trainer), NULL, &error), TL_OK);
    end(&from);
    begin(&to, &o, NULL);
    tl_trainer *trainer = to.trainer;
    assert_int_equal(tl_weights_load(path, tl_trainer_net(trainer), NULL, &error), TL_OK);
    assert_int_equal(tl_optimizer_refresh(tl_trainer_optimizer(trainer)), TL_OK);
    random_batch batch = {to.in, &to.model, 5};
    tl_step_result result;
    assert_int_equal(tl_trainer_step(trainer, random_batch_source, &batch, 0.0, &result), TL_OK);
    tl_tensor *b = tl_net_find(tl_trainer_net(trainer), "model.layers.0.mlp.up_proj.weight");
    const uint16_t *values = tl_tensor_data(b);
    for (int64_t i = 0; i < tl_tensor_count(b); i++)
        assert_int_equal(values[i], three_eighths);
    end(&to);
}

/* ---- memory over a step ---- */

/* What lives after each call for a storage, below the instrument: allocation by allocation. */
typedef struct recorder {
    int64_t live, count, capacity;
    int64_t *after;
    bool on;
} recorder;

static void note(recorder *r, int64_t bytes) {
    r->live += bytes;
    if (!r->on)
        return;
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 4096;
        r->after = realloc(r->after, (size_t)r->capacity * sizeof *r->after);
        assert_non_null(r->after);
    }
    r->after[r->count++] = r->live;
}

static void *record_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind alloc_kind) {
    const tl_allocator *real = tl_allocator_default();
    void *pointer = real->alloc(real->self, bytes, align, alloc_kind);
    if (pointer && alloc_kind == TL_ALLOC_STORAGE)
        note(self, (int64_t)bytes);
    return pointer;
}

static void record_release(void *self, void *pointer, size_t bytes, tl_alloc_kind alloc_kind) {
    const tl_allocator *real = tl_allocator_default();
    if (alloc_kind == TL_ALLOC_STORAGE)
        note(self, -(int64_t)bytes);
    real->release(real->self, pointer, bytes, alloc_kind);
}

static void compare_timelines(const tl_plan_options *o, const char *name) {
    tl_error error = {0};
    tl_plan_timeline t;
    world w;
    recorder r = {0};
    tl_allocator base = {record_alloc, record_release, &r};
    if (tl_plan_timeline_make(o, 0, &t, &error) != TL_OK)
        fail_msg("%s: %s", name, error.message);
    begin(&w, o, &base);
    random_batch batch = {NULL, &w.model, 7};
    (void)step(&w, &batch);
    int64_t before = r.live, peak = before;
    r.on = true;
    (void)step(&w, &batch);
    r.on = false;
    assert_int_equal(t.points[0].bytes, before);
    if (t.events != r.count)
        fail_msg("%s: %" PRId64 " events planned, %" PRId64 " measured", name, t.events, r.count);
    int64_t at = 0;
    for (int64_t i = 0; i < t.n_points; i++) {
        if (t.points[i].begins)
            continue;
        if (t.points[i].bytes != r.after[at])
            fail_msg("%s: event %" PRId64 " (%s, %s): planned %" PRId64 ", measured %" PRId64, name, at + 1,
                     t.points[i].module, t.points[i].op, t.points[i].bytes, r.after[at]);
        assert_int_equal(t.points[i].event, at + 1);
        peak = r.after[at] > peak ? r.after[at] : peak;
        at++;
    }
    assert_int_equal(at, r.count);
    assert_int_equal(t.points[t.high].bytes, peak);
    assert_int_equal(t.points[t.n_points - 1].bytes, before); /* a step leaves nothing behind */
    end(&w);
    free(r.after);
    tl_plan_timeline_free(&t);
}

static void test_timeline_against_the_allocator(void **state) {
    (void)state;
    tl_model (*const bases[])(void) = {small_gpt2, small_llama, small_cruncher};
    static const tl_recompute again[] = {{TL_RECOMPUTE_NONE, 0}, {TL_RECOMPUTE_SELECTIVE, 0}, {TL_RECOMPUTE_FULL, 0}};
    int compared = 0;
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
        for (int r = 0; r < RULES; r += 2)
            for (int k = 0; k < KINDS; k++)
                for (size_t a = 0; a < (b == 2 ? 1 : sizeof again / sizeof *again); a++) {
                    char name[256];
                    tl_plan_options o = options_of(bases[b](), &rules[r], kinds[k], 1 + (r + k) % 3, 0);
                    if (b == 2)
                        o.seq = 1;
                    o.recompute = again[a];
                    o.every_micro_batch = true; /* a real run has them all */
                    snprintf(name, sizeof name, "%s, %s, kind %d, recompute %zu", o.model.name, rules[r].name, k, a);
                    compare_timelines(&o, name);
                    compared++;
                }
    print_message("timelines equal at every allocation and release of %d runs\n", compared);
}

/* The replayed sums against the peaks the ledger kept as it went; and that thinning loses none of them. */
static void test_timeline_keeps_every_maximum(void **state) {
    (void)state;
    tl_model (*const bases[])(void) = {small_gpt2, small_llama};
    static const int64_t most[] = {0, 1, 20, 64, 511, 100000};
    for (size_t b = 0; b < 2; b++)
        for (int64_t micros = 1; micros < 6; micros += 2)
            for (size_t m = 0; m < sizeof most / sizeof *most; m++) {
                tl_error error = {0};
                tl_plan p;
                tl_plan_timeline t;
                tl_plan_options o = options_of(bases[b](), &rules[2], kinds[2], micros, 2);
                assert_int_equal(tl_plan_make(&o, &p, &error), TL_OK);
                assert_int_equal(tl_plan_timeline_make(&o, most[m], &t, &error), TL_OK);
                int64_t high[TL_PHASE_COUNT] = {0}, event = 0, points = 0;
                for (int64_t i = 0; i < t.n_points; i++) {
                    if (t.points[i].bytes > high[t.points[i].phase])
                        high[t.points[i].phase] = t.points[i].bytes;
                    assert_true(t.points[i].event >= event);
                    event = t.points[i].event;
                }
                for (int phase = TL_PHASE_FORWARD; phase <= TL_PHASE_STEP; phase++)
                    assert_int_equal(high[phase], p.step[phase].bytes);
                assert_int_equal(t.points[t.high].bytes, p.peak.bytes);
                assert_int_equal(t.points[t.high].phase, p.peak.phase);
                assert_string_equal(t.points[t.high].module, p.peak.module);
                assert_string_equal(t.points[t.high].op, p.peak.op);
                assert_int_equal(t.allocations, micros == 1 ? p.allocations : t.allocations);
                for (int64_t i = 0; i < t.n_stretches; i++) {
                    const tl_plan_stretch *s = &t.stretches[i];
                    assert_int_equal(s->first, points);
                    points += s->count;
                    assert_true(t.points[s->first].begins && s->high >= s->first && s->high < s->first + s->count);
                    for (int64_t k = s->first; k < s->first + s->count; k++)
                        assert_true(t.points[k].phase == s->phase && t.points[k].bytes <= t.points[s->high].bytes);
                }
                assert_int_equal(points, t.n_points);
                int64_t bound = most[m] > 2 * t.n_stretches ? most[m] : 2 * t.n_stretches;
                assert_true(most[m] == 0 || t.n_points <= bound);
                /* Who holds a phase's peak: no more than it. */
                for (int phase = TL_PHASE_FORWARD; phase <= TL_PHASE_COUNT; phase++) {
                    tl_plan_holder top[TL_PLAN_TOP];
                    int count = 0;
                    int64_t dropped = 0, sum = 0;
                    if (phase == TL_PHASE_SAVE)
                        continue;
                    assert_int_equal(tl_plan_top(&t.run, (tl_phase)phase, top, &count, &dropped, &error), TL_OK);
                    for (int i = 0; i < count; i++) {
                        sum += top[i].bytes;
                        assert_true(i == 0 || top[i].bytes <= top[i - 1].bytes);
                    }
                    assert_true(count > 0 && sum <= (phase == TL_PHASE_ALL ? p.peak.bytes : p.step[phase].bytes));
                }
                tl_plan_timeline_free(&t);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_into_a_quantised_base),
        cmocka_unit_test(test_moments_of_every_run),
        cmocka_unit_test(test_a_buffer_is_seen),
        cmocka_unit_test(test_the_largest_moment_decides),
        cmocka_unit_test(test_published_weights_reach_the_copies),
        cmocka_unit_test(test_timeline_against_the_allocator),
        cmocka_unit_test(test_timeline_keeps_every_maximum),
    };
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const left[] = {"run.safetensors", "weights/model.safetensors",   "weights/config.json",
                                       "weights",         "published/model.safetensors", "published/config.json",
                                       "published"};
    char path[128];
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        path_of(left[i], path);
        (void)remove(path);
    }
    return failed || rmdir(folder) != 0; /* fails where something was left behind */
}
