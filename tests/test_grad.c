/* The tape: where gradients land and what they cost, what is refused, where backward is booked, and that nothing is lost
 * when any allocation fails. Values are exact in float32: small whole numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "instrument.h"
#include "small_models.h"
#include "tally/account.h"
#include "tally/grad.h"
#include "tally/ops.h"
#include "tensor/ctx.h"

#define DIM(n) tl_dim_of(n)
#define VECTOR(ctx, n) TL_SHAPE((ctx), DIM(n))
#define MATRIX(ctx, m, n) TL_SHAPE((ctx), DIM(m), DIM(n))

typedef struct bench { /* a context whose memory is watched, and some tensors */
    instrument *in;
    tl_ctx *ctx;
} bench;

static bench bench_new(void) {
    tl_error error = {0};
    bench b = {.in = instrument_new(NULL)};
    tl_allocator allocator = instrument_allocator(b.in);
    b.ctx = tl_ctx_new(
        &(tl_ctx_options){.kernels = instrument_kernels(b.in, tl_kernels_portable()), .allocator = &allocator}, &error);
    assert_non_null(b.ctx);
    assert_int_equal(tl_record(b.ctx, true), TL_OK);
    return b;
}

static void bench_free(bench *b) {
    tl_ctx_free(b->ctx);
    assert_int_equal(instrument_free(b->in), 0);
}

/* 1, 2, 3, … */
static tl_tensor *counted(tl_ctx *ctx, tl_shape shape, bool leaf) {
    float v[256];
    int64_t count = 1;
    for (int i = 0; i < shape.ndim; i++)
        count *= shape.dim[i].size;
    assert_true(count <= 256);
    for (int64_t i = 0; i < count; i++)
        v[i] = (float)(i + 1);
    tl_tensor *t = tl_from_data(ctx, TL_F32, shape, leaf ? TL_PARAM : TL_DATA, v, count);
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

static void assert_values(const tl_tensor *t, const float *expected, size_t count) {
    float v[256];
    assert_non_null(t);
    assert_int_equal(tl_tensor_count(t), count);
    assert_int_equal(tl_tensor_read(t, v, count * sizeof *v), TL_OK);
    for (size_t i = 0; i < count; i++)
        if (v[i] != expected[i])
            fail_msg("element %zu is %g, not %g", i, (double)v[i], (double)expected[i]);
}

static void assert_all(const tl_tensor *t, float value, size_t count) {
    float v[256];
    for (size_t i = 0; i < count; i++)
        v[i] = value;
    assert_values(t, v, count);
}

/* Allocations of exactly so many bytes in the ledger's log: sizes are chosen so that one kind of tensor has them. */
typedef struct size_count {
    int64_t bytes, count;
} size_count;

static void count_size(void *user, uint32_t slot, int64_t bytes, bool carried, tl_category category) {
    size_count *s = user;
    (void)slot;
    (void)category;
    s->count += !carried && bytes == s->bytes;
}

static int64_t allocations_of(const tl_ctx *ctx, int64_t bytes) {
    size_count s = {bytes, 0};
    tl_ledger_each_event(ctx, count_size, &s);
    return s.count;
}

typedef struct op_count {
    const char *op;
    int64_t count;
} op_count;

static bool count_op(void *user, const tl_op_entry *e) {
    op_count *c = user;
    c->count += strcmp(e->op, c->op) == 0;
    return true;
}

static int64_t ops_named(const tl_ctx *ctx, const char *op) {
    op_count c = {op, 0};
    tl_ledger_each_op(ctx, count_op, &c);
    return c.count;
}

static void assert_refused(const tl_ctx *ctx, tl_status got, tl_status status, const char *says) {
    assert_int_equal(got, status);
    assert_int_equal(tl_ctx_status(ctx), status);
    if (!strstr(tl_ctx_error(ctx)->message, says))
        fail_msg("\"%s\" does not say \"%s\"", tl_ctx_error(ctx)->message, says);
}

/* ---- adoption and accumulation ---- */

/* y = x·wᵀ summed: dw = column sums of x in every row. The first gradient is the product's own output. */
static void test_first_gradient_is_adopted(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, MATRIX(b.ctx, 7, 5), true), *x = counted(b.ctx, MATRIX(b.ctx, 2, 5), false);
    tl_tensor *ones = tl_fill(tl_empty(b.ctx, TL_F32, MATRIX(b.ctx, 2, 7), TL_DATA), 1);
    tl_ledger_step_begin(b.ctx);
    tl_tensor *loss = sum(tl_mul(tl_linear(x, w, NULL), ones));
    instrument_begin(b.in);
    backward(b.ctx, loss);
    measured m = instrument_end(b.in);
    tl_tensor *g = tl_tensor_grad(w);
    static const float row[] = {7, 9, 11, 13, 15};
    float expected[35];
    for (int i = 0; i < 35; i++)
        expected[i] = row[i % 5];
    assert_values(g, expected, 35);
    assert_int_equal(tl_tensor_category(g), TL_GRAD);
    assert_int_equal(allocations_of(b.ctx, 7 * 5 * 4), 1);
    assert_int_equal(ops_named(b.ctx, "copy"), 0);
    assert_int_equal(m.allocations, 3); /* the seed, of which the sum's gradient is a view, the product's and w's */
    assert_int_equal(m.products, 1);
    bench_free(&b);
}

static void test_later_gradients_are_added_in_place(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, MATRIX(b.ctx, 7, 5), true), *bias = counted(b.ctx, VECTOR(b.ctx, 7), true);
    tl_tensor *x = counted(b.ctx, MATRIX(b.ctx, 2, 5), false);
    backward(b.ctx, sum(tl_linear(x, w, bias)));
    tl_tensor *gw = tl_tensor_grad(w), *gb = tl_tensor_grad(bias);
    const void *data_w = tl_tensor_data(gw), *data_b = tl_tensor_data(gb);
    tl_ledger_step_begin(b.ctx);
    backward(b.ctx, sum(tl_linear(x, w, bias)));
    assert_ptr_equal(tl_tensor_grad(w), gw);
    assert_ptr_equal(tl_tensor_data(gw), data_w);
    assert_ptr_equal(tl_tensor_data(tl_tensor_grad(bias)), data_b);
    assert_int_equal(ops_named(b.ctx, "matmul_into"), 1);
    assert_int_equal(ops_named(b.ctx, "accumulate"), 1); /* the bias */
    assert_int_equal(allocations_of(b.ctx, 7 * 5 * 4), 0);
    assert_all(gb, 4, 7); /* 2 rows, twice */
    tl_tensor_clear_grad(w);
    assert_null(tl_tensor_grad(w));
    bench_free(&b);
}

/* One parameter in two layers: 2 gradients, one tensor. */
static void test_shared_parameter(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, MATRIX(b.ctx, 1, 3), true), *x = counted(b.ctx, MATRIX(b.ctx, 2, 3), false);
    tl_tensor *y = counted(b.ctx, MATRIX(b.ctx, 1, 3), false);
    tl_ledger_step_begin(b.ctx);
    backward(b.ctx, sum(tl_add(tl_linear(x, w, NULL), tl_linear(y, w, NULL))));
    /* x's column sums {5,7,9} and, broadcast over both rows, 2·y {2,4,6} */
    assert_values(tl_tensor_grad(w), (float[]){7, 11, 15}, 3);
    assert_int_equal(ops_named(b.ctx, "matmul_into"), 1);
    bench_free(&b);
}

static void test_leaf_used_twice_in_one_op(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 5), true);
    backward(b.ctx, sum(tl_mul(w, w)));
    assert_values(tl_tensor_grad(w), (float[]){2, 4, 6, 8, 10}, 5);
    tl_tensor_clear_grad(w);
    backward(b.ctx, sum(tl_add(w, w)));
    assert_all(tl_tensor_grad(w), 2, 5);
    tl_tensor_clear_grad(w);
    backward(b.ctx, sum(tl_sub(w, w)));
    assert_all(tl_tensor_grad(w), 0, 5);
    bench_free(&b);
}

/* a + b hands both the same gradient; each leaf gets its own memory all the same. */
static void test_gradients_never_share_memory(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *p = counted(b.ctx, VECTOR(b.ctx, 5), true), *q = counted(b.ctx, VECTOR(b.ctx, 5), true);
    backward(b.ctx, sum(tl_scale(tl_add(p, q), 3, 0)));
    assert_all(tl_tensor_grad(p), 3, 5);
    assert_all(tl_tensor_grad(q), 3, 5);
    assert_false(tl_tensor_shares_storage(tl_tensor_grad(p), tl_tensor_grad(q)));
    backward(b.ctx, sum(tl_scale(p, 2, 0)));
    assert_all(tl_tensor_grad(p), 5, 5);
    assert_all(tl_tensor_grad(q), 3, 5);
    bench_free(&b);
}

/* A value used by three later ops: its gradients meet at the node. */
static void test_gradients_meet_at_a_node(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 4), true);
    tl_tensor *h = tl_scale(w, 2, 0);
    backward(b.ctx, sum(tl_add(tl_add(tl_mul(h, h), h), tl_scale(h, 5, 0)))); /* d/dw (4w² + 2w + 10w) = 8w + 12 */
    assert_values(tl_tensor_grad(w), (float[]){20, 28, 36, 44}, 4);
    bench_free(&b);
}

static void test_views_of_leaves(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, MATRIX(b.ctx, 3, 2), true), *k = counted(b.ctx, MATRIX(b.ctx, 2, 3), false);
    backward(b.ctx, sum(tl_mul(tl_transpose(w, 0, 1), k)));
    assert_true(tl_tensor_is_contiguous(tl_tensor_grad(w)));
    assert_values(tl_tensor_grad(w), (float[]){1, 4, 2, 5, 3, 6}, 6);
    tl_tensor_clear_grad(w);
    backward(b.ctx, sum(tl_slice(w, 0, 1, DIM(2), 1)));
    assert_values(tl_tensor_grad(w), (float[]){0, 0, 1, 1, 1, 1}, 6);
    tl_tensor_clear_grad(w);
    backward(b.ctx, sum(tl_expand(tl_view(w, TL_SHAPE(b.ctx, DIM(1), DIM(6))), MATRIX(b.ctx, 4, 6))));
    assert_all(tl_tensor_grad(w), 4, 6);
    assert_int_equal(tl_tensor_ndim(tl_tensor_grad(w)), 2);
    assert_int_equal(tl_tensor_size(tl_tensor_grad(w), 0), 3);
    bench_free(&b);
}

static void test_split_with_unused_pieces(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, MATRIX(b.ctx, 2, 6), true), *piece[3];
    tl_dim sizes[] = {DIM(1), DIM(2), DIM(3)};
    assert_int_equal(tl_split(w, 1, sizes, 3, piece), TL_OK);
    backward(b.ctx, sum(tl_scale(piece[1], 7, 0)));
    assert_values(tl_tensor_grad(w), (float[]){0, 7, 7, 0, 0, 0, 0, 7, 7, 0, 0, 0}, 12);
    bench_free(&b);
}

static void test_seed_scales(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 3), true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tl_backward(b.ctx, sum(tl_scale(w, 8, 0)), 0.25), TL_OK);
    assert_all(tl_tensor_grad(w), 8, 3); /* the mean of four */
    bench_free(&b);
}

/* Only what wants a gradient gets one, and nothing is computed for the others. */
static void test_frozen(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, MATRIX(b.ctx, 4, 3), false), *v = counted(b.ctx, MATRIX(b.ctx, 2, 4), true);
    tl_tensor *x = counted(b.ctx, MATRIX(b.ctx, 5, 3), false);
    tl_tensor *h = tl_linear(x, w, NULL);
    assert_false(tl_tensor_needs_grad(h));
    assert_int_equal(tl_tape_nodes(b.ctx), 0);
    tl_tensor *loss = sum(tl_linear(h, v, NULL));
    assert_int_equal(tl_tape_nodes(b.ctx), 2);
    instrument_begin(b.in);
    backward(b.ctx, loss);
    assert_int_equal(instrument_end(b.in).products, 1); /* dv, no dh */
    assert_non_null(tl_tensor_grad(v));
    assert_null(tl_tensor_grad(w));
    assert_null(tl_tensor_grad(x));
    bench_free(&b);
}

/* ---- refusals ---- */

static void test_recording_off(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 3), true);
    assert_int_equal(tl_record(b.ctx, false), TL_OK);
    assert_false(tl_is_recording(b.ctx));
    tl_tensor *loss = sum(tl_mul(w, w));
    assert_int_equal(tl_tape_nodes(b.ctx), 0);
    assert_int_equal(tl_ledger_live(b.ctx, TL_SAVED), 0);
    assert_refused(b.ctx, tl_backward(b.ctx, loss, 1), TL_ERR_STATE, "recorded");
    assert_null(tl_tensor_grad(w));
    bench_free(&b);
}

static void test_backward_twice(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 3), true);
    tl_tensor *loss = sum(tl_mul(w, w));
    backward(b.ctx, loss);
    assert_int_equal(tl_tape_nodes(b.ctx), 0);
    assert_refused(b.ctx, tl_backward(b.ctx, loss, 1), TL_ERR_STATE, "recorded");
    assert_values(tl_tensor_grad(w), (float[]){2, 4, 6}, 3);
    bench_free(&b);
}

static void test_starts_from_one_element(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 3), true);
    assert_refused(b.ctx, tl_backward(b.ctx, tl_mul(w, w), 1), TL_ERR_SHAPE, "one element");
    tl_ctx_clear_error(b.ctx);
    assert_refused(b.ctx, tl_backward(b.ctx, NULL, 1), TL_ERR_ARGUMENT, "nothing");
    bench_free(&b);
}

static void test_saved_tensors_are_guarded(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 3), true), *x = counted(b.ctx, VECTOR(b.ctx, 3), false);
    tl_tensor *loss = sum(tl_mul(w, x)); /* keeps x */
    assert_null(tl_scale_into(x, 2));
    assert_refused(b.ctx, tl_ctx_status(b.ctx), TL_ERR_STATE, "backward still needs");
    tl_ctx_clear_error(b.ctx);
    /* A write that went past the guard (by a kernel of another library, say) is found by its version. */
    x->storage->version++;
    assert_refused(b.ctx, tl_backward(b.ctx, loss, 1), TL_ERR_STATE, "changed since");
    assert_null(tl_tensor_grad(w));
    tl_ctx_clear_error(b.ctx);
    assert_int_equal(tl_tape_nodes(b.ctx), 0); /* nothing is held any more */
    assert_non_null(tl_scale_into(x, 2));
    assert_int_equal(tl_tensor_version(x), 2);
    bench_free(&b);
}

static void test_no_writing_into_an_expression(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 3), true);
    assert_null(tl_scale_into(w, 2));
    assert_refused(b.ctx, tl_ctx_status(b.ctx), TL_ERR_STATE, "recorded expression");
    bench_free(&b);
}

/* ---- the account of backward ---- */

static void test_saved_becomes_work_again(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 6), true);
    int64_t work = tl_ledger_live(b.ctx, TL_WORK);
    tl_tensor *y = tl_exp(w); /* keeps its output */
    assert_int_equal(tl_tensor_category(y), TL_SAVED);
    assert_int_equal(tl_ledger_live(b.ctx, TL_SAVED), 24);
    tl_tensor *z = tl_mul(y, w); /* keeps y again and w, which stays a parameter */
    assert_int_equal(tl_tensor_category(w), TL_PARAM);
    assert_int_equal(tl_ledger_live(b.ctx, TL_SAVED), 24); /* unique storages */
    tl_tape_clear(b.ctx);
    assert_int_equal(tl_ledger_live(b.ctx, TL_SAVED), 0);
    assert_int_equal(tl_tensor_category(y), TL_WORK);
    assert_int_equal(tl_ledger_live(b.ctx, TL_WORK) - work, 48); /* y and z */
    tl_release(y);
    tl_release(z);
    assert_int_equal(tl_ledger_live(b.ctx, TL_WORK), work);
    bench_free(&b);
}

/* What only the tape holds goes as the walk passes it: never back to work. */
static void test_saved_goes_with_its_node(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, VECTOR(b.ctx, 6), true);
    int64_t before = instrument_live_bytes(b.in);
    tl_scope_begin(b.ctx);
    tl_tensor *loss = NULL;
    tl_tensor *inner = sum(tl_exp(tl_exp(tl_scale(w, 0.01, 0))));
    tl_scope_end_into(b.ctx, &loss, inner);
    assert_int_equal(instrument_live_bytes(b.in) - before, 2 * 24 + 4); /* two exp outputs and the loss */
    backward(b.ctx, loss);
    assert_int_equal(instrument_live_bytes(b.in) - before, 24 + 4); /* the gradient and the loss */
    assert_int_equal(tl_ledger_live(b.ctx, TL_SAVED), 0);
    bench_free(&b);
}

typedef struct places {
    int forward, backward, elsewhere;
    const char *site, *user_site;
} places;

static bool look_at_place(void *user, const tl_op_entry *e) {
    places *p = user;
    if (strncmp(e->op, "linear", 6) == 0) {
        p->site = e->site;
        p->user_site = e->user_site;
        p->forward += e->phase == TL_PHASE_FORWARD && strcmp(e->module, "net.layer.3") == 0 &&
                      strcmp(e->pattern, "net.layer.*") == 0;
    } else if (strncmp(e->op, "matmul", 6) == 0) {
        bool same = p->site && strcmp(e->site, p->site) == 0 && strcmp(e->user_site, p->user_site) == 0;
        if (same && e->phase == TL_PHASE_BACKWARD && strcmp(e->module, "net.layer.3") == 0)
            p->backward++;
        else
            p->elsewhere++;
    }
    return true;
}

static void test_backward_is_booked_where_forward_was(void **state) {
    (void)state;
    bench b = bench_new();
    tl_tensor *w = counted(b.ctx, MATRIX(b.ctx, 4, 3), true), *x = counted(b.ctx, MATRIX(b.ctx, 2, 3), true);
    tl_phase_set(b.ctx, TL_PHASE_FORWARD);
    tl_module_begin(b.ctx, "net", -1);
    tl_module_begin(b.ctx, "layer", 3);
    tl_tensor *y = tl_linear(x, w, NULL);
    tl_module_end(b.ctx);
    tl_module_end(b.ctx);
    tl_phase_set(b.ctx, TL_PHASE_LOSS);
    tl_tensor *loss = sum(y);
    tl_phase_set(b.ctx, TL_PHASE_BACKWARD);
    backward(b.ctx, loss);
    places p = {0};
    tl_ledger_each_op(b.ctx, look_at_place, &p);
    assert_int_equal(p.forward, 1);
    assert_int_equal(p.backward, 2); /* dx and dw */
    assert_int_equal(p.elsewhere, 0);
    assert_non_null(strstr(p.site, "test_grad.c:"));
    assert_string_not_equal(p.site, p.user_site); /* the module call's line */
    tl_counts forward, back;
    tl_ledger_counts(b.ctx, TL_PHASE_FORWARD, &forward);
    tl_ledger_counts(b.ctx, TL_PHASE_BACKWARD, &back);
    assert_true(back.matmul == 2 * forward.matmul);
    bench_free(&b);
}

/* ---- failure ---- */

typedef struct trial {
    tl_model model;
    tl_train_options options;
    const tl_kernels *kernels;
    bool formulas;
} trial;

/* Two steps with the allocation after `calls` more failing. True if it did fail. */
static bool run_trial(const trial *t, int64_t calls) {
    tl_error error = {0};
    tl_status status = TL_ERR_MEMORY;
    bool failed = false;
    instrument *in = instrument_new(NULL);
    tl_allocator allocator = instrument_allocator(in);
    instrument_fail_after(in, calls);
    tl_ctx *ctx = tl_ctx_new(
        &(tl_ctx_options){.kernels = t->kernels, .allocator = &allocator, .threads = 2, .formulas = t->formulas},
        &error);
    if (ctx) {
        tl_trainer *trainer = tl_trainer_new(ctx, &t->model, &t->options);
        random_batch batch = {NULL, &t->model, 1};
        tl_batch_source *source = t->kernels ? random_batch_source : NULL;
        for (int i = 0; i < 2 && trainer; i++)
            if ((status = tl_trainer_step(trainer, source, &batch, 1e-3, NULL)) != TL_OK)
                break;
        if (!trainer)
            status = tl_ctx_status(ctx);
        failed = instrument_has_failed(in); /* what fails while all is let go is nobody's result */
        tl_trainer_free(trainer);
        tl_ctx_free(ctx);
    } else {
        status = error.status;
        failed = instrument_has_failed(in);
    }
    if (status != (failed ? TL_ERR_MEMORY : TL_OK))
        fail_msg("allocation %lld %s: status %s", (long long)calls, failed ? "failed" : "never came",
                 tl_status_name(status));
    assert_int_equal(instrument_free(in), 0);
    return failed;
}

static void fail_every_allocation(const trial *t, int64_t stride, int64_t at_least) {
    int64_t calls = 0, failures = 0;
    while (run_trial(t, calls)) {
        failures++;
        calls += failures < 200 ? 1 : stride;
    }
    print_message("%lld allocations, each failing in turn\n", (long long)calls);
    assert_true(calls >= at_least); /* it went through the whole run */
}

static trial small_trial(tl_model model) {
    trial t = {.model = model, .kernels = tl_kernels_portable()};
    t.model.layers = 1;
    t.model.vocab = 11;
    t.options =
        (tl_train_options){.micro_batch = 1, .seq = 4, .accumulation = 2, .ranks = 1, .dtype = TL_BF16, .clip = 1};
    t.options.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    t.options.optimizer.master = t.options.optimizer.state_f32 = true;
    return t;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 7 };
#else
enum { STRIDE = 1 };
#endif

static void test_every_allocation_fails_gpt2(void **state) {
    (void)state;
    tl_model model = small_gpt2();
    model.dropout_attention = model.dropout_residual = 0.1;
    trial t = small_trial(model);
    fail_every_allocation(&t, STRIDE, 300);
}

static void test_every_allocation_fails_llama(void **state) {
    (void)state;
    trial t = small_trial(small_llama());
    fail_every_allocation(&t, STRIDE, 300);
}

static void test_every_allocation_fails_with_formulas(void **state) {
    (void)state;
    trial t = small_trial(small_llama());
    t.kernels = NULL;
    t.formulas = true;
    fail_every_allocation(&t, STRIDE, 100);
}

/* The same with every block, or attention alone, computed again in backward: dropout's numbers, the inner tape, its nodes. */
static void test_every_allocation_fails_with_recompute(void **state) {
    (void)state;
    tl_model model = small_gpt2();
    model.dropout_attention = model.dropout_residual = 0.1;
    trial t = small_trial(model);
    t.options.recompute.kind = TL_RECOMPUTE_FULL;
    fail_every_allocation(&t, STRIDE, 300);
    t = small_trial(small_llama());
    t.options.recompute.kind = TL_RECOMPUTE_SELECTIVE;
    fail_every_allocation(&t, STRIDE, 300);
    t.options.recompute = (tl_recompute){TL_RECOMPUTE_EVERY, 2};
    t.kernels = NULL;
    t.formulas = true;
    fail_every_allocation(&t, STRIDE, 100);
}

/* A source whose second micro-batch has a token beyond the vocabulary, while `bad`. */
typedef struct faulty {
    random_batch good;
    bool bad;
} faulty;

static tl_status faulty_source(void *user, tl_ctx *ctx, const tl_train_options *o, int64_t micro, tl_batch *batch) {
    faulty *f = user;
    f->good.seed = 3 + (uint64_t)micro;
    tl_status status = random_batch_source(&f->good, ctx, o, micro, batch);
    if (status == TL_OK && f->bad && micro == 1)
        *(int32_t *)tl_tensor_data(batch->input) = 1000000;
    return status;
}

/* A step that failed in its second micro-batch leaves no gradients of the first behind: the next step is as if it had
 * never been. */
/* Scopes deeper than the marks there is room for, and no memory for more: the ends still match, so that what the outer
 * scopes hold stays. */
static void test_a_scope_without_memory(void **state) {
    (void)state;
    enum { DEEP = 64 }; /* what the first growth of the marks holds */
    bench b = bench_new();
    tl_tensor *held = counted(b.ctx, VECTOR(b.ctx, 3), false);
    for (int i = 0; i < DEEP; i++)
        tl_scope_begin(b.ctx);
    tl_tensor *inner = counted(b.ctx, VECTOR(b.ctx, 2), false);
    instrument_fail_after(b.in, 0);
    tl_scope_begin(b.ctx);
    assert_true(instrument_has_failed(b.in));
    assert_int_equal(tl_ctx_status(b.ctx), TL_ERR_MEMORY);
    tl_scope_end(b.ctx);
    assert_int_equal(tl_tensor_count(inner), 2);
    assert_int_equal(instrument_live_blocks(b.in), 3); /* the scratch block and both */
    for (int i = 0; i < DEEP; i++)
        tl_scope_end(b.ctx);
    assert_int_equal(tl_tensor_count(held), 3);
    assert_int_equal(instrument_live_blocks(b.in), 2);
    bench_free(&b);
}

/* The peak of a phase is what lived in it: allocations of the next phase do not enter its categories. */
static void test_the_peak_of_a_phase_is_its_own(void **state) {
    (void)state;
    tl_error error = {0};
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.scratch_bytes = TL_NO_SCRATCH}, &error);
    assert_non_null(ctx);
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_ledger_step_begin(ctx);
    assert_non_null(tl_empty(ctx, TL_F32, VECTOR(ctx, 100), TL_WORK));
    tl_phase_set(ctx, TL_PHASE_LOSS);
    tl_release(tl_empty(ctx, TL_F32, VECTOR(ctx, 1), TL_WORK));
    tl_peak peak;
    tl_ledger_phase_peak(ctx, TL_PHASE_FORWARD, &peak);
    assert_int_equal(peak.bytes, 400);
    assert_int_equal(peak.by_category[TL_WORK], 400);
    tl_ledger_phase_peak(ctx, TL_PHASE_LOSS, &peak);
    assert_int_equal(peak.bytes, 404);
    assert_int_equal(peak.by_category[TL_WORK], 404);
    tl_ctx_free(ctx);
}

static void test_a_failed_step_leaves_nothing(void **state) {
    (void)state;
    double norm[2];
    for (int fails = 0; fails < 2; fails++) {
        tl_error error = {0};
        tl_model model = small_llama();
        trial t = small_trial(model);
        tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = t.kernels}, &error);
        tl_trainer *trainer = tl_trainer_new(ctx, &t.model, &t.options);
        int64_t live = tl_ledger_live_total(ctx);
        faulty f = {{NULL, &t.model, 0}, true};
        tl_step_result result;
        if (fails) {
            tl_status status = tl_trainer_step(trainer, faulty_source, &f, 1e-3, &result);
            assert_refused(ctx, status, TL_ERR_ARGUMENT, "out of range");
            assert_int_equal(tl_ledger_live_total(ctx), live);
            assert_int_equal(tl_tape_nodes(ctx), 0);
            tl_ctx_clear_error(ctx);
        }
        f.bad = false;
        assert_int_equal(tl_trainer_step(trainer, faulty_source, &f, 1e-3, &result), TL_OK);
        norm[fails] = result.gradient_norm;
        tl_trainer_free(trainer);
        tl_ctx_free(ctx);
    }
    assert_true(norm[0] > 0);
    assert_memory_equal(&norm[0], &norm[1], sizeof norm[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_gradient_is_adopted),
        cmocka_unit_test(test_later_gradients_are_added_in_place),
        cmocka_unit_test(test_shared_parameter),
        cmocka_unit_test(test_leaf_used_twice_in_one_op),
        cmocka_unit_test(test_gradients_never_share_memory),
        cmocka_unit_test(test_gradients_meet_at_a_node),
        cmocka_unit_test(test_views_of_leaves),
        cmocka_unit_test(test_split_with_unused_pieces),
        cmocka_unit_test(test_seed_scales),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_recording_off),
        cmocka_unit_test(test_backward_twice),
        cmocka_unit_test(test_starts_from_one_element),
        cmocka_unit_test(test_saved_tensors_are_guarded),
        cmocka_unit_test(test_no_writing_into_an_expression),
        cmocka_unit_test(test_saved_becomes_work_again),
        cmocka_unit_test(test_saved_goes_with_its_node),
        cmocka_unit_test(test_backward_is_booked_where_forward_was),
        cmocka_unit_test(test_every_allocation_fails_gpt2),
        cmocka_unit_test(test_every_allocation_fails_llama),
        cmocka_unit_test(test_every_allocation_fails_with_formulas),
        cmocka_unit_test(test_every_allocation_fails_with_recompute),
        cmocka_unit_test(test_a_scope_without_memory),
        cmocka_unit_test(test_the_peak_of_a_phase_is_its_own),
        cmocka_unit_test(test_a_failed_step_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
