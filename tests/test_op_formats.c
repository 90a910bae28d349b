/* Every op in every number format it accepts and in every layout, against the same values in f64 on the portable table; and
 * every op with 1, 2, 3 and 8 threads, bit for bit. Cases are the ops' own samples. */
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

#include "kernel/engine.h"

enum { SEEDS = 10 };

static tl_ctx *context(const tl_kernels *kernels, int threads) {
    tl_error error = {0};
    tl_ctx_options options = {.kernels = kernels, .seed_init = 1, .threads = threads};
    tl_ctx *ctx = tl_ctx_new(&options, &error);
    if (!ctx)
        fail_msg("%s", error.message);
    return ctx;
}

/* The outputs of one run, in order, and how many; −1: this op does not take the format. */
static int run(const op_case *o, tl_ctx *ctx, layout how, uint64_t seed, op_values *v, tl_dtype dtype[]) {
    tl_tensor *in[TL_MAX_IO], *out[TL_MAX_IO];
    tl_scope_begin(ctx);
    op_case_inputs(o, ctx, how, 0, in);
    tl_status status = op_case_run(o, ctx, in, out);
    if (status == TL_ERR_DTYPE) {
        tl_ctx_clear_error(ctx);
        tl_scope_end(ctx);
        return -1;
    }
    if (status != TL_OK)
        fail_msg("%s, case %llu in %s: %s", o->op->name, (unsigned long long)seed, tl_dtype_name(o->dtype),
                 tl_ctx_error(ctx)->message);
    for (int j = 0; j < o->c.n_out; j++)
        dtype[j] = tl_tensor_dtype(out[j]);
    op_values_read(v, out, o->c.n_out);
    tl_scope_end(ctx);
    tl_ledger_step_begin(ctx);
    return o->c.n_out;
}

/* One unit in the last place of 1: a result is rounded once, and what it is made from may be, some few times. */
static double unit_of(tl_dtype dtype) {
    const tl_finfo *f = tl_dtype_finfo(dtype);
    return f ? f->epsilon : 0;
}

static void compare(const op_case *o, const op_values *want, const op_values *got, const tl_dtype dtype[],
                    double tolerance, const char *what, uint64_t seed) {
    for (int j = 0; j < want->n; j++) {
        double largest = 0, allowed = tl_dtype_is_float(dtype[j]) ? tolerance : 0;
        const tl_finfo *f = tl_dtype_finfo(dtype[j]);
        assert_int_equal(want->count[j], got->count[j]);
        for (int64_t i = 0; i < want->count[j]; i++)
            if (isfinite(want->value[j][i]) && fabs(want->value[j][i]) > largest)
                largest = fabs(want->value[j][i]);
        for (int64_t i = 0; i < want->count[j]; i++) {
            double a = want->value[j][i], b = got->value[j][i];
            bool beyond = f && fabs(a) > f->largest * (1 - 2 * tolerance); /* infinity, NaN or the largest */
            if (!(fabs(a - b) <= allowed * largest) && !(isnan(a) && isnan(b)) && a != b && !beyond)
                fail_msg("%s, case %llu in %s, %s: element %lld of output %d is %.17g, not %.17g", o->op->name,
                         (unsigned long long)seed, tl_dtype_name(o->dtype), what, (long long)i, j, b, a);
        }
    }
}

/* f64 says what a whole-number format gives where all results are whole and fit. */
static bool whole(const op_values *v, const tl_dtype made[]) {
    for (int j = 0; j < v->n; j++)
        for (int64_t i = 0; i < v->count[j]; i++)
            if (!(v->value[j][i] <= (made[j] == TL_BOOL ? 1 : 100)) || v->value[j][i] != nearbyint(v->value[j][i]) ||
                v->value[j][i] < 0)
                return false;
    return true;
}

static bool takes(const op_case *o) {
    for (int i = 0; i < o->c.n_in; i++)
        if (!o->c.in[i].fixed_dtype)
            return true;
    return false;
}

static void set_values(op_case *o, tl_dtype dtype) {
    for (int i = 0; i < o->c.n_in; i++)
        for (int64_t k = 0; !o->c.in[i].fixed_dtype && k < op_case_count(o, i); k++)
            o->value[i][k] = op_case_rounded(dtype, o->value[i][k]);
}

/* 1 when the op takes the format. */
static int one_case(const tl_op *op, tl_dtype dtype, uint64_t seed, tl_ctx *portable, tl_ctx *best) {
    op_case o;
    op_values want, got;
    tl_dtype made[TL_MAX_IO], reference[TL_MAX_IO];
    static const char *const names[] = {"plain", "transposed", "sliced", "negative steps", "expanded"};
    int took = 0;
    op_case_make(&o, op, seed, dtype);
    set_values(&o, dtype);
    bool ints = !tl_dtype_is_float(dtype), random = o.c.random;
    double unit = unit_of(dtype), tolerance = o.c.tolerance + (ints ? 0 : dtype == TL_F64 ? 1e-13 : 4 * unit);
    for (layout how = LAYOUT_PLAIN; takes(&o) && how < LAYOUT_COUNT; how++) {
        if (how == LAYOUT_EXPANDED)
            op_case_flatten(&o);
        o.dtype = dtype;
        if (run(&o, portable, LAYOUT_PLAIN, seed, &got, made) < 0)
            break;
        took = 1;
        o.dtype = TL_F64;
        /* Rows of equal values, as flattening makes them, have norms that are all rounding. */
        bool known = how == LAYOUT_PLAIN && !random && run(&o, portable, LAYOUT_PLAIN, seed, &want, reference) > 0;
        o.dtype = dtype;
        if (known && (!ints || whole(&want, made)))
            compare(&o, &want, &got, made, tolerance, "against f64", seed);
        if (known)
            op_values_free(&want);
        want = got;
        if (run(&o, best, how, seed, &got, made) < 0)
            fail_msg("%s refuses %s in another layout", op->name, tl_dtype_name(dtype));
        compare(&o, &want, &got, made, o.c.tolerance + 2 * unit * (o.c.tolerance > 0), names[how], seed);
        op_values_free(&want);
        op_values_free(&got);
    }
    op_case_free(&o);
    return took;
}

static void every_format_agrees(void **state) {
    (void)state;
    tl_error error = {0};
    const tl_kernels *fast = tl_kernels_for_cpu(NULL, &error);
    tl_ctx *portable = context(tl_kernels_portable(), 1), *best = context(fast ? fast : tl_kernels_portable(), 2);
    int pairs = 0, expected_at_least = 100;
    for (int k = 0; k < tl_op_list_count; k++)
        for (int t = 0; t < TL_DTYPE_COUNT; t++) {
            int took = 0;
            for (uint64_t seed = 1; seed <= SEEDS; seed++)
                took |= one_case(tl_op_list[k], (tl_dtype)t, seed, portable, best);
            pairs += took;
        }
    print_message("%d pairs of op and format\n", pairs);
    assert_true(pairs > expected_at_least);
    tl_ctx_free(portable);
    tl_ctx_free(best);
}

/* ---- threads ---- */

static void every_thread_count_agrees(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    static const tl_dtype formats[] = {TL_F32, TL_BF16, TL_I32};
    tl_ctx *ctx[4];
    for (int i = 0; i < 4; i++)
        ctx[i] = context(&tl_kernels_table_tiny, threads[i]);
    for (int k = 0; k < tl_op_list_count; k++)
        for (size_t t = 0; t < sizeof formats / sizeof *formats; t++)
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                op_case o;
                op_values one, more;
                tl_dtype made[TL_MAX_IO];
                op_case_make(&o, tl_op_list[k], seed, formats[t]);
                set_values(&o, formats[t]);
                if (run(&o, ctx[0], LAYOUT_PLAIN, seed, &one, made) >= 0) {
                    for (int i = 1; i < 4; i++) {
                        run(&o, ctx[i], LAYOUT_PLAIN, seed, &more, made);
                        for (int j = 0; j < one.n; j++)
                            if (memcmp(one.value[j], more.value[j], (size_t)one.count[j] * sizeof(double)) != 0)
                                fail_msg("%s, case %llu in %s: %d threads give other bits than 1", o.op->name,
                                         (unsigned long long)seed, tl_dtype_name(formats[t]), threads[i]);
                        op_values_free(&more);
                    }
                    op_values_free(&one);
                }
                op_case_free(&o);
            }
    for (int i = 0; i < 4; i++)
        tl_ctx_free(ctx[i]);
}

/* The tiny table is the portable one cut otherwise: equal but for the order of sums. */
static void tiny_tasks_agree(void **state) {
    (void)state;
    tl_ctx *portable = context(tl_kernels_portable(), 1), *tiny = context(&tl_kernels_table_tiny, 3);
    for (int k = 0; k < tl_op_list_count; k++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            op_case o;
            op_values want, got;
            tl_dtype made[TL_MAX_IO];
            op_case_make(&o, tl_op_list[k], seed, TL_F32);
            run(&o, portable, LAYOUT_PLAIN, seed, &want, made);
            run(&o, tiny, LAYOUT_PLAIN, seed, &got, made);
            compare(&o, &want, &got, made, o.c.tolerance, "tiny tasks", seed);
            op_values_free(&want);
            op_values_free(&got);
            op_case_free(&o);
        }
    tl_ctx_free(portable);
    tl_ctx_free(tiny);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_agrees),
        cmocka_unit_test(every_thread_count_agrees),
        cmocka_unit_test(tiny_tasks_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
