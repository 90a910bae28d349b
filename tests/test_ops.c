/* Every op of the generated list, driven by its own sample cases. What is expected comes from outside the op: another
 * instruction set, central differences, the other device, the declaration, another memory layout, exact arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 40, GRADIENT_SEEDS = 24, FAILURE_SEEDS = 3, PROBES = 64 };

static tl_ctx *context(const tl_kernels *kernels, const tl_allocator *allocator, bool formulas) {
    tl_error error = {0};
    tl_ctx_options options = {.kernels = kernels, .allocator = allocator, .formulas = formulas, .seed_init = 1};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    if (!ctx && !allocator)
        fail_msg("%s", error.message);
    return ctx;
}

static void check_ok(const op_case *o, const tl_ctx *ctx, const char *what, uint64_t seed) {
    if (tl_ctx_status(ctx) != TL_OK)
        fail_msg("%s, case %llu, %s: %s", o->op->name, (unsigned long long)seed, what, tl_ctx_error(ctx)->message);
}

static void run_values(const op_case *o, const tl_kernels *kernels, layout how, uint64_t seed, op_values *v) {
    tl_ctx *ctx = context(kernels, NULL, false);
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    op_case_inputs(o, ctx, how, 0, in);
    op_case_run(o, ctx, in, out);
    check_ok(o, ctx, "forward", seed);
    op_values_read(v, out, o->c.n_out);
    tl_ctx_free(ctx);
}

/* Relative to the largest value of the output; tolerance 0: equal. */
static void compare(const op_case *o, const op_values *want, const op_values *got, double tolerance, const char *what,
                    uint64_t seed) {
    for (int j = 0; j < want->n; j++) {
        double largest = 0;
        assert_int_equal(want->count[j], got->count[j]);
        for (int64_t i = 0; i < want->count[j]; i++)
            if (fabs(want->value[j][i]) > largest && !isinf(want->value[j][i]))
                largest = fabs(want->value[j][i]);
        for (int64_t i = 0; i < want->count[j]; i++) {
            double a = want->value[j][i], b = got->value[j][i];
            if (a != b && !(fabs(a - b) <= tolerance * largest) && !(isnan(a) && isnan(b)))
                fail_msg("%s, case %llu, %s: element %lld of output %d is %.17g, not %.17g", o->op->name,
                         (unsigned long long)seed, what, (long long)i, j, b, a);
        }
    }
}

static void every_instruction_set_agrees(void **state) {
    (void)state;
    static const char *const names[] = {"avx2", "avx512"};
    for (size_t isa = 0; isa < sizeof names / sizeof *names; isa++) {
        tl_error error = {0};
        const tl_kernels *kernels = tl_kernels_for_cpu(names[isa], &error);
        if (!kernels) {
            print_message("this machine has no %s: not compared\n", names[isa]);
            continue;
        }
        for (int k = 0; k < tl_op_list_count; k++)
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                op_case o;
                op_values want, got;
                op_case_make(&o, tl_op_list[k], seed, TL_F32);
                run_values(&o, tl_kernels_portable(), LAYOUT_PLAIN, seed, &want);
                run_values(&o, kernels, LAYOUT_PLAIN, seed, &got);
                compare(&o, &want, &got, o.c.tolerance, names[isa], seed);
                op_values_free(&want);
                op_values_free(&got);
                op_case_free(&o);
            }
    }
}

static void layouts_agree(void **state) {
    (void)state;
    static const char *const names[] = {"plain", "transposed", "sliced", "negative steps", "expanded"};
    for (int k = 0; k < tl_op_list_count; k++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            for (layout how = LAYOUT_TRANSPOSED; how < LAYOUT_COUNT; how++) {
                op_case o;
                op_values want, got;
                op_case_make(&o, tl_op_list[k], seed, TL_F32);
                if (how == LAYOUT_EXPANDED)
                    op_case_flatten(&o);
                run_values(&o, tl_kernels_portable(), LAYOUT_PLAIN, seed, &want);
                run_values(&o, tl_kernels_portable(), how, seed, &got);
                compare(&o, &want, &got, o.c.tolerance, names[how], seed);
                op_values_free(&want);
                op_values_free(&got);
                op_case_free(&o);
            }
}

/* ---- gradients ---- */

static double loss_at(const op_case *o, tl_ctx *ctx, uint64_t seed) {
    double loss = 0;
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    tl_scope_begin(ctx);
    op_case_inputs(o, ctx, LAYOUT_PLAIN, 0, in);
    op_case_run(o, ctx, in, out);
    check_ok(o, ctx, "forward", seed);
    for (int j = 0; j < o->c.n_out; j++) {
        if (!tl_dtype_is_float(out[j]->dtype) || op_case_weight(seed, j, 0) == 0)
            continue;
        double *value = op_read(out[j]);
        for (int64_t i = 0; i < tl_tensor_count(out[j]); i++)
            loss += value[i] * op_case_weight(seed, j, i);
        free(value);
    }
    tl_scope_end(ctx);
    tl_ledger_step_begin(ctx);
    return loss;
}

typedef struct probe {
    int input;
    int64_t element;
    double slope;
} probe;

/* Central differences at a few elements of each floating input. */
static int probes_of(op_case *o, tl_ctx *ctx, uint64_t seed, probe *probes) {
    const double h = 1e-5;
    int n = 0;
    for (int i = 0; i < o->c.n_in; i++) {
        int64_t count = op_case_count(o, i);
        if (!op_case_is_float(o, i) || o->c.in[i].frozen)
            continue;
        for (int p = 0; p < PROBES && p < count; p++) {
            int64_t at = count <= PROBES ? p : p * (count - 1) / (PROBES - 1);
            double kept = o->value[i][at];
            o->value[i][at] = kept + h;
            double up = loss_at(o, ctx, seed);
            o->value[i][at] = kept - h;
            double down = loss_at(o, ctx, seed);
            o->value[i][at] = kept;
            probes[n++] = (probe){i, at, (up - down) / (2 * h)};
        }
    }
    return n;
}

static void check_gradients(const op_case *o, tl_ctx *ctx, unsigned mask, uint64_t seed, const probe *probes, int n) {
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    tl_scope_begin(ctx);
    op_case_inputs(o, ctx, LAYOUT_PLAIN, mask, in);
    tl_record(ctx, true);
    op_case_run(o, ctx, in, out);
    tl_tensor *loss = op_case_loss(ctx, out, o->c.n_out, seed);
    tl_record(ctx, false);
    check_ok(o, ctx, "recording", seed);
    if (loss && tl_backward(ctx, loss, 1) != TL_OK)
        check_ok(o, ctx, "backward", seed);
    for (int i = 0; loss && i < o->c.n_in; i++) {
        const tl_tensor *grad = tl_tensor_grad(in[i]);
        bool wanted = mask >> i & 1u;
        if (!wanted != !grad)
            fail_msg("%s, case %llu, mask %x: input %d %s a gradient", o->op->name, (unsigned long long)seed, mask, i,
                     grad ? "got" : "did not get");
        if (!grad)
            continue;
        double *value = op_read(grad);
        for (int p = 0; p < n; p++) {
            double got = probes[p].input == i ? value[probes[p].element] : 0, want = probes[p].slope;
            if (probes[p].input == i && !(fabs(got - want) <= 2e-6 * (1 + fabs(want))))
                fail_msg(
                    "%s, case %llu, mask %x: the gradient of element %lld of input %d is %.12g, differences say %.12g",
                    o->op->name, (unsigned long long)seed, mask, (long long)probes[p].element, i, got, want);
        }
        free(value);
    }
    tl_tape_clear(ctx);
    tl_scope_end(ctx);
    tl_ledger_step_begin(ctx);
}

/* Which inputs can want a gradient. */
static unsigned floats_of(const op_case *o) {
    unsigned floats = 0;
    for (int i = 0; i < o->c.n_in; i++)
        if (op_case_is_float(o, i) && !o->c.in[i].frozen)
            floats |= 1u << i;
    return floats;
}

static bool all_f64(const op_case *o) {
    bool all = true;
    tl_ctx *ctx = context(NULL, NULL, false);
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    op_case_inputs(o, ctx, LAYOUT_PLAIN, 0, in);
    op_case_run(o, ctx, in, out);
    for (int j = 0; j < o->c.n_out; j++)
        all = all && out[j] && out[j]->dtype == TL_F64;
    tl_ctx_free(ctx);
    return all;
}

static void gradients_match_differences(void **state) {
    (void)state;
    int checked = 0;
    for (int k = 0; k < tl_op_list_count; k++) {
        if (tl_op_list[k]->grad == tl_grad_none)
            continue;
        tl_ctx *ctx = context(tl_kernels_portable(), NULL, false);
        for (uint64_t seed = 1; seed <= GRADIENT_SEEDS; seed++) {
            op_case o;
            probe probes[PROBES * TL_MAX_IO];
            op_case_make(&o, tl_op_list[k], seed, TL_F64);
            unsigned floats = floats_of(&o);
            if (all_f64(&o)) {
                int n = probes_of(&o, ctx, seed, probes);
                for (unsigned mask = 1; mask <= floats; mask++)
                    if ((mask & ~floats) == 0)
                        check_gradients(&o, ctx, mask, seed, probes, n);
                checked++;
            }
            op_case_free(&o);
        }
        tl_ctx_free(ctx);
    }
    assert_true(checked > 0);
}

/* ---- the account ---- */

typedef struct account {
    tl_counts counts[TL_PHASE_COUNT + 1];
    tl_peak peak;
    int64_t live[TL_CATEGORY_COUNT], allocations;
} account;

/* Forward and backward of one case; the caller frees the context. */
static void whole_step(const op_case *o, tl_ctx *ctx, unsigned mask, uint64_t seed) {
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    op_case_inputs(o, ctx, LAYOUT_PLAIN, mask, in);
    tl_record(ctx, true);
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    op_case_run(o, ctx, in, out);
    tl_tensor *loss = mask ? op_case_loss(ctx, out, o->c.n_out, seed) : NULL;
    tl_phase_set(ctx, TL_PHASE_BACKWARD);
    if (loss && tl_tensor_needs_grad(loss) && tl_backward(ctx, loss, 1) != TL_OK)
        return;
}

static void account_of(const op_case *o, const tl_kernels *kernels, unsigned mask, uint64_t seed, account *a) {
    tl_ctx *ctx = context(kernels, NULL, false);
    memset(a, 0, sizeof *a);
    tl_ledger_step_begin(ctx);
    whole_step(o, ctx, mask, seed);
    check_ok(o, ctx, "a step", seed);
    for (int p = 0; p <= TL_PHASE_COUNT; p++)
        tl_ledger_counts(ctx, (tl_phase)p, &a->counts[p]);
    tl_ledger_peak(ctx, &a->peak);
    for (int c = 0; c < TL_CATEGORY_COUNT; c++)
        a->live[c] = tl_ledger_live(ctx, (tl_category)c);
    a->allocations = tl_ledger_allocations(ctx);
    tl_ctx_free(ctx);
}

static bool counts_equal(const tl_counts *a, const tl_counts *b) {
    return a->matmul == b->matmul && a->matmul_causal == b->matmul_causal && a->executed == b->executed &&
           a->arithmetic == b->arithmetic && a->special == b->special && a->read == b->read &&
           a->written == b->written && a->sent == b->sent && a->ops == b->ops;
}

static unsigned wanted_of(const op_case *o) { return o->op->grad == tl_grad_none ? 0 : floats_of(o); }

static void meta_and_cpu_account_alike(void **state) {
    (void)state;
    for (int k = 0; k < tl_op_list_count; k++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            op_case o;
            account cpu, meta;
            op_case_make(&o, tl_op_list[k], seed, TL_F32);
            account_of(&o, tl_kernels_portable(), wanted_of(&o), seed, &cpu);
            account_of(&o, NULL, wanted_of(&o), seed, &meta);
            for (int p = 0; p <= TL_PHASE_COUNT; p++)
                if (!counts_equal(&cpu.counts[p], &meta.counts[p]))
                    fail_msg("%s, case %llu: counts of phase %d differ", o.op->name, (unsigned long long)seed, p);
            if (cpu.peak.bytes != meta.peak.bytes || cpu.allocations != meta.allocations ||
                memcmp(cpu.peak.by_category, meta.peak.by_category, sizeof cpu.peak.by_category) ||
                memcmp(cpu.live, meta.live, sizeof cpu.live))
                fail_msg("%s, case %llu: bytes differ", o.op->name, (unsigned long long)seed);
            op_case_free(&o);
        }
}

/* Unique storages, and bytes of those that stand for something not made yet. */
typedef struct storage_set {
    int n;
    const tl_storage *storage[2 * TL_MAX_IO];
    int64_t bytes;
} storage_set;

static void set_add(storage_set *s, const tl_storage *storage) {
    for (int i = 0; i < s->n; i++)
        if (s->storage[i] == storage)
            return;
    s->storage[s->n++] = storage;
    s->bytes += storage->bytes;
}

/* What the op's own declaration says it keeps, from a signature filled here. */
static bool declared(const op_case *o, tl_ctx *ctx, tl_tensor *const in[], unsigned mask, tl_sig *sig,
                     tl_saves *saves) {
    memset(sig, 0, sizeof *sig);
    memset(saves, 0, sizeof *saves);
    sig->ctx = ctx;
    sig->op = o->op;
    sig->attr = o->c.attr;
    sig->site = "test:1";
    sig->n_in = o->c.n_in;
    sig->recording = true;
    for (int i = 0; i < o->c.n_in; i++) {
        sig->in[i] = in[i];
        sig->needs_grad[i] = mask >> i & 1u;
    }
    if (o->op->infer(sig) != TL_OK)
        return false;
    o->op->saves(sig, saves);
    return true;
}

static void check_saved(const op_case *o, unsigned mask, uint64_t seed) {
    tl_ctx *ctx = context(tl_kernels_portable(), NULL, false);
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    tl_sig sig;
    tl_saves saves;
    int64_t before = tl_ledger_live_total(ctx), fresh = 0; /* before: scratch */
    op_case_inputs(o, ctx, LAYOUT_PLAIN, mask, in);
    assert_true(declared(o, ctx, in, mask, &sig, &saves));
    storage_set saved = {0}, held = {0};
    for (int i = 0; i < o->c.n_in; i++) {
        if ((saves.in >> i & 1u) && !(mask >> i & 1u))
            set_add(&saved, in[i]->storage); /* those of a mask are parameters, not "saved" */
        if ((saves.in >> i & 1u) || (mask >> i & 1u))
            set_add(&held, in[i]->storage);
    }
    for (int j = 0; j < sig.n_out; j++) {
        if (!(saves.out >> j & 1u))
            continue;
        int64_t count = 0;
        tl_shape_count(&sig.out[j].shape, &count);
        if (sig.out[j].alias == TL_NEW)
            fresh += count * tl_dtype_bytes(sig.out[j].dtype);
        else
            set_add(&held, in[sig.out[j].alias]->storage);
    }
    tl_record(ctx, true);
    op_case_run(o, ctx, in, out);
    check_ok(o, ctx, "forward", seed);
    if (tl_ledger_live(ctx, TL_SAVED) != saved.bytes + fresh)
        fail_msg("%s, case %llu, mask %x: %lld bytes are saved, declared are %lld", o->op->name,
                 (unsigned long long)seed, mask, (long long)tl_ledger_live(ctx, TL_SAVED),
                 (long long)(saved.bytes + fresh));
    for (int j = 0; j < o->c.n_out; j++)
        tl_release(out[j]);
    for (int i = 0; i < o->c.n_in; i++)
        tl_release(in[i]);
    if (tl_ledger_live_total(ctx) - before != held.bytes + fresh)
        fail_msg("%s, case %llu, mask %x: the tape holds %lld bytes, declared are %lld", o->op->name,
                 (unsigned long long)seed, mask, (long long)(tl_ledger_live_total(ctx) - before),
                 (long long)(held.bytes + fresh));
    tl_tape_clear(ctx);
    assert_int_equal(tl_ledger_live_total(ctx), before);
    tl_ctx_free(ctx);
}

static void saved_is_what_is_declared(void **state) {
    (void)state;
    for (int k = 0; k < tl_op_list_count; k++)
        for (uint64_t seed = 1; tl_op_list[k]->grad != tl_grad_none && seed <= SEEDS; seed++) {
            op_case o;
            op_case_make(&o, tl_op_list[k], seed, TL_F32);
            unsigned floats = floats_of(&o);
            for (unsigned mask = 1; mask <= floats; mask++)
                if ((mask & ~floats) == 0)
                    check_saved(&o, mask, seed);
            op_case_free(&o);
        }
}

/* ---- formulas ---- */

typedef struct formula_check {
    tl_ctx *ctx;
    const char *op;
    uint64_t seed;
} formula_check;

static void check_formula(const formula_check *f, const char *what, const tl_poly *p, tl_u128 count) {
    tl_u128 value = 0;
    tl_error error = {0};
    char want[TL_U128_DIGITS], got[TL_U128_DIGITS];
    if (p && tl_poly_value(tl_ctx_space(f->ctx), p, NULL, 0, &value, &error) != TL_OK)
        fail_msg("%s, case %llu, %s: %s", f->op, (unsigned long long)f->seed, what, error.message);
    if (value != count)
        fail_msg("%s, case %llu, %s: the formula says %s, the count is %s", f->op, (unsigned long long)f->seed, what,
                 tl_u128_text(value, got), tl_u128_text(count, want));
}

static bool check_op_formulas(void *user, const tl_op_entry *e) {
    formula_check f = *(formula_check *)user;
    f.op = e->op;
    check_formula(&f, "matmul", e->matmul.formula, e->matmul.count);
    check_formula(&f, "matmul_causal", e->matmul_causal.formula, e->matmul_causal.count);
    check_formula(&f, "executed", e->executed.formula, e->executed.count);
    check_formula(&f, "matmul again", e->matmul_again.formula, e->matmul_again.count);
    check_formula(&f, "matmul_causal again", e->matmul_causal_again.formula, e->matmul_causal_again.count);
    check_formula(&f, "arithmetic", e->arithmetic.formula, e->arithmetic.count);
    check_formula(&f, "special", e->special.formula, e->special.count);
    check_formula(&f, "read", e->read.formula, e->read.count);
    check_formula(&f, "written", e->written.formula, e->written.count);
    check_formula(&f, "sent", e->sent.formula, e->sent.count);
    return true;
}

static bool check_live_formulas(void *user, const tl_live_entry *e) {
    formula_check f = *(formula_check *)user;
    if (e->op)
        f.op = e->op;
    check_formula(&f, "bytes", e->formula, (tl_u128)e->bytes);
    return true;
}

static void formulas_evaluate_to_counts(void **state) {
    (void)state;
    for (int k = 0; k < tl_op_list_count; k++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            op_case o;
            op_case_make(&o, tl_op_list[k], seed, TL_F32);
            tl_ctx *ctx = context(NULL, NULL, true);
            formula_check f = {ctx, o.op->name, seed};
            tl_ledger_step_begin(ctx);
            whole_step(&o, ctx, wanted_of(&o), seed);
            check_ok(&o, ctx, "with formulas", seed);
            tl_ledger_each_op(ctx, check_op_formulas, &f);
            tl_ledger_each_live(ctx, TL_PHASE_ALL, check_live_formulas, &f);
            tl_ctx_free(ctx);
            op_case_free(&o);
        }
}

/* Written into memory that is there: the same bits as into new memory, no allocation; and over an input where the op says
 * that it can. */
static void written_into_is_the_same(void **state) {
    (void)state;
    int written = 0, over_input = 0;
    for (int k = 0; k < tl_op_list_count; k++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            op_case o;
            op_values want, got;
            tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO], *into;
            op_case_make(&o, tl_op_list[k], seed, TL_F32);
            tl_ctx *ctx = context(tl_kernels_portable(), NULL, false);
            op_case_inputs(&o, ctx, LAYOUT_PLAIN, 0, in);
            op_case_run(&o, ctx, in, out);
            check_ok(&o, ctx, "into new memory", seed);
            if (o.c.in_place || o.c.n_out != 1 || tl_tensor_shares_storage(out[0], in[0])) {
                tl_ctx_free(ctx);
                op_case_free(&o);
                continue;
            }
            op_values_read(&want, out, 1);
            for (int i = -1; i < o.c.n_in; i++) { /* −1: into memory of its own; i: over input i */
                bool fits = i < 0 || (tl_shape_equal(&in[i]->shape, &out[0]->shape) && in[i]->dtype == out[0]->dtype);
                if (!fits)
                    continue;
                op_case_inputs(&o, ctx, LAYOUT_PLAIN, 0, in);
                into = i < 0 ? tl_empty(ctx, out[0]->dtype, out[0]->shape, TL_WORK) : in[i];
                if (into->storage->data) /* nothing may be left of what was there */
                    memset(into->storage->data, i < 0 ? 0x5a : 0, i < 0 ? (size_t)into->storage->bytes : 0);
                tl_tensor *y = tl_run_into(o.op, in, o.c.n_in, o.c.attr, into, "test:1");
                if (!y && i >= 0 && tl_ctx_status(ctx) == TL_ERR_STATE) { /* not elementwise */
                    tl_ctx_clear_error(ctx);
                    continue;
                }
                check_ok(&o, ctx, "into a tensor", seed);
                op_values_read(&got, &y, 1);
                if (!o.c.random)
                    compare(&o, &want, &got, 0, i < 0 ? "into a tensor" : "over an input", seed);
                op_values_free(&got);
                (*(i < 0 ? &written : &over_input))++;
            }
            op_values_free(&want);
            tl_ctx_free(ctx);
            op_case_free(&o);
        }
    assert_true(written > 20 * SEEDS && over_input > 10 * SEEDS);
}

/* ---- allocations that fail ---- */

typedef struct failing {
    int64_t until_failure; /* negative: never */
    int64_t outstanding;
    bool failed;
} failing;

static void *failing_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    failing *f = self;
    (void)kind;
    if (f->until_failure == 0) {
        f->failed = true;
        return NULL;
    }
    if (f->until_failure > 0)
        f->until_failure--;
    void *pointer = NULL;
    if (posix_memalign(&pointer, align < sizeof(void *) ? sizeof(void *) : align, bytes))
        return NULL;
    f->outstanding += (int64_t)bytes;
    return pointer;
}

static void failing_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    failing *f = self;
    (void)kind;
    f->outstanding -= (int64_t)bytes;
    free(pointer);
}

static void every_failed_allocation_is_an_error(void **state) {
    (void)state;
    for (int k = 0; k < tl_op_list_count; k++)
        for (uint64_t seed = 1; seed <= FAILURE_SEEDS; seed++) {
            op_case o;
            op_case_make(&o, tl_op_list[k], seed, TL_F32);
            bool failed = true;
            for (int64_t n = 0; failed && n < 4000; n++) {
                failing f = {.until_failure = n};
                tl_allocator allocator = {failing_alloc, failing_release, &f};
                tl_ctx *ctx = context(tl_kernels_portable(), &allocator, false);
                tl_status status = TL_ERR_MEMORY;
                if (ctx) {
                    whole_step(&o, ctx, wanted_of(&o), seed);
                    status = tl_ctx_status(ctx);
                    tl_ctx_free(ctx);
                }
                failed = f.failed;
                if (status != (failed ? TL_ERR_MEMORY : TL_OK))
                    fail_msg("%s, case %llu, allocation %lld %s: status %s", o.op->name, (unsigned long long)seed,
                             (long long)n, failed ? "failed" : "did not fail", tl_status_name(status));
                if (f.outstanding != 0)
                    fail_msg("%s, case %llu, allocation %lld failed: %lld bytes leak", o.op->name,
                             (unsigned long long)seed, (long long)n, (long long)f.outstanding);
            }
            assert_false(failed);
            op_case_free(&o);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_agrees), cmocka_unit_test(layouts_agree),
        cmocka_unit_test(gradients_match_differences),  cmocka_unit_test(meta_and_cpu_account_alike),
        cmocka_unit_test(saved_is_what_is_declared),    cmocka_unit_test(formulas_evaluate_to_counts),
        cmocka_unit_test(written_into_is_the_same),     cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
