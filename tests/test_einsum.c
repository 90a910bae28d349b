/* einsum, rearrange, reduce and repeat against numpy (tests/fixtures/make_axes_fixtures.py), and what einsum costs: FLOPs,
 * copies and gradients. */
#include "layers.h"

#include "axes/pattern.h"
#include "axes_case.h"
#include "fixtures/axes_fixtures.h"
#include "tally/views.h"

#define D(n) tl_dim_of(n)

/* The hash of the script. */
static double drawn(int operand, int64_t i) {
    uint32_t h = (uint32_t)((uint64_t)i * 2654435761u + (uint64_t)operand * 40503u + 12345u);
    return ((double)((h >> 15) % 17) - 8) / 4;
}

/* An operand; turned: its axes lie in memory in the other order; flipped: also backwards. */
typedef enum lie { AS_IS, TURNED, FLIPPED, LIES } lie;

static tl_tensor *operand(tl_ctx *ctx, tl_dtype dtype, int k, int ndim, const int64_t *size, lie how) {
    tl_shape shape = {.ndim = ndim};
    int64_t count = 1;
    int axes[TL_MAX_NDIM];
    for (int i = 0; i < ndim; i++) {
        shape.dim[i] = D(size[i]);
        count *= size[i];
        axes[i] = ndim - 1 - i;
    }
    double *value = calloc((size_t)count + 1, sizeof *value);
    assert_non_null(value);
    for (int64_t i = 0; i < count; i++)
        value[i] = drawn(k, i);
    tl_tensor *t = tl_cast(tl_from_data(ctx, TL_F64, shape, TL_DATA, value, count), dtype);
    free(value);
    if (how == TURNED)
        return tl_permute(tl_copy(tl_permute(t, axes)), axes);
    return how == FLIPPED ? tl_flip(tl_copy(tl_flip(t, NULL, 0)), NULL, 0) : t;
}

static tl_tensor *run(tl_ctx *ctx, const axes_case *c, tl_dtype dtype, lie how) {
    tl_tensor *in[8];
    tl_axis_length length[4];
    for (int i = 0; i < c->n; i++)
        in[i] = operand(ctx, dtype, i, c->in[i].ndim, c->in[i].size, how);
    for (int i = 0; i < c->n_lengths; i++)
        length[i] = (tl_axis_length){c->length[i].name, D(c->length[i].size)};
    if (c->kind == EINSUM)
        return tl_einsum(ctx, c->pattern, in, c->n);
    if (c->kind == REARRANGE)
        return tl_rearrange(in[0], c->pattern, length, c->n_lengths);
    if (c->kind == REDUCE)
        return tl_reduce(in[0], c->pattern, c->reduction, length, c->n_lengths);
    return tl_repeat_axes(in[0], c->pattern, length, c->n_lengths);
}

static void check(tl_ctx *ctx, const axes_case *c, tl_dtype dtype, lie how, double tolerance) {
    tl_tensor *y = run(ctx, c, dtype, how);
    if (!y)
        fail_msg("\"%s\": %s", c->pattern, tl_ctx_error(ctx)->message);
    assert_int_equal(tl_tensor_ndim(y), c->ndim);
    for (int i = 0; i < c->ndim; i++)
        if (tl_tensor_size(y, i) != c->size[i])
            fail_msg("\"%s\": axis %d is %lld, not %lld", c->pattern, i, (long long)tl_tensor_size(y, i),
                     (long long)c->size[i]);
    int64_t count = tl_tensor_count(y);
    double *value = calloc((size_t)count + 1, sizeof *value), sum = 0, most = 1;
    assert_non_null(value);
    assert_int_equal(tl_tensor_read(tl_cast(y, TL_F64), value, (size_t)count * sizeof *value), TL_OK);
    for (int64_t i = 0; i < count; i++) {
        double weight = 1 + (double)(i * 7 % 13);
        sum += value[i] * weight;
        most += fabs(value[i]) * weight;
    }
    for (int i = 0; i < c->kept; i++)
        if (!(fabs(value[i] - axes_values[c->first + i]) <= tolerance * (1 + fabs(axes_values[c->first + i]))))
            fail_msg("\"%s\": element %d is %.17g, numpy's %.17g", c->pattern, i, value[i], axes_values[c->first + i]);
    if (!(fabs(sum - c->checksum) <= tolerance * most))
        fail_msg("\"%s\": the checksum is %.17g, numpy's %.17g", c->pattern, sum, c->checksum);
    free(value);
}

static bool has_op(const char *name) {
    for (int i = 0; i < tl_op_list_count; i++)
        if (strcmp(tl_op_list[i]->name, name) == 0)
            return true;
    return false;
}

static bool is_missing(const axes_case *c) {
    return c->kind == REDUCE &&
           ((c->reduction == TL_REDUCE_MIN && !has_op("min")) || (c->reduction == TL_REDUCE_PROD && !has_op("prod")));
}

static void patterns_agree_with_numpy(void **state) {
    (void)state;
    int checked = 0;
    for (const tl_kernels *const *kernels = all_kernels(); *kernels; kernels++)
        for (lie how = AS_IS; how < LIES; how++) {
            tl_ctx *ctx = new_ctx(*kernels, false);
            checked = 0;
            for (int64_t i = 0; i < COUNT(axes_cases); i++) {
                const axes_case *c = &axes_cases[i];
                tl_scope_begin(ctx);
                if (is_missing(c)) {
                    assert_null(run(ctx, c, TL_F32, how));
                    assert_non_null(strstr(tl_ctx_error(ctx)->message, "this build has no op"));
                    tl_ctx_clear_error(ctx);
                } else {
                    check(ctx, c, TL_F32, how, 1e-5);
                    check(ctx, c, TL_F64, how, 1e-13);
                    checked++;
                }
                tl_scope_end(ctx);
            }
            tl_ctx_free(ctx);
        }
    assert_true(checked >= 200);
}

/* Whole numbers have no matmul: the same patterns by multiplication and sum. All values are made whole first. */
static void integers_are_contracted(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    tl_tensor *a = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, D(2), D(3)), TL_DATA, (int32_t[]){1, 2, 3, 4, 5, 6}, 6);
    tl_tensor *b = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, D(3), D(2)), TL_DATA, (int32_t[]){1, 0, 2, -1, 0, 3}, 6);
    int32_t got[4];
    tl_tensor *c = tl_einsum(ctx, "ij,jk->ik", ((tl_tensor *[]){a, b}), 2);
    assert_non_null(c);
    assert_int_equal(tl_tensor_read(c, got, sizeof got), TL_OK);
    assert_memory_equal(got, ((int32_t[]){5, 7, 14, 13}), sizeof got); /* by hand */
    c = tl_einsum(ctx, "ij,jk,kl->il", ((tl_tensor *[]){a, b, a}), 3);
    assert_non_null(c);
    int32_t wide[6];
    assert_int_equal(tl_tensor_read(c, wide, sizeof wide), TL_OK);
    assert_memory_equal(wide, ((int32_t[]){33, 45, 57, 66, 93, 120}), sizeof wide);
    c = tl_einsum(ctx, "ij->", &a, 1);
    assert_int_equal(tl_tensor_dtype(c), TL_I32);
    tl_ctx_free(ctx);
}

/* ---- gradients ---- */

static double loss_of(tl_ctx *ctx, const char *pattern, tl_tensor *const in[], int n, tl_tensor **out) {
    tl_tensor *y = tl_einsum(ctx, pattern, in, n);
    if (!y)
        fail_msg("\"%s\": %s", pattern, tl_ctx_error(ctx)->message);
    int64_t count = tl_tensor_count(y);
    double *weight = calloc((size_t)count + 1, sizeof *weight), loss = 0;
    assert_non_null(weight);
    for (int64_t i = 0; i < count; i++)
        weight[i] = drawn(7, i) + 0.3;
    tl_tensor *w = tl_from_data(ctx, TL_F64, *tl_tensor_shape(y), TL_DATA, weight, count);
    free(weight);
    *out = tl_sum(tl_mul(y, w), NULL, 0, false);
    assert_int_equal(tl_item(*out, &loss), TL_OK);
    return loss;
}

/* Products of operands are linear in each operand (and quadratic where a diagonal meets itself, which none does), so a
 * central difference of any width is exact but for rounding. */
static void gradients_match_differences(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        int n, ndim[4];
        int64_t size[4][4];
    } cases[] = {
        {"ij,jk->ik", 2, {2, 2}, {{2, 3}, {3, 2}}},
        {"ij,jk->ki", 2, {2, 2}, {{2, 3}, {3, 2}}},
        {"ii->i", 1, {2}, {{3, 3}}},
        {"iij,ij->j", 2, {3, 2}, {{2, 2, 3}, {2, 3}}},
        {"ij->", 1, {2}, {{2, 3}}},
        {"i,j->ij", 2, {1, 1}, {{2}, {3}}},
        {"i,ij,j->", 3, {1, 2, 1}, {{2}, {2, 3}, {3}}},
        {"bhid,bhjd->bhij", 2, {4, 4}, {{2, 2, 2, 3}, {2, 2, 3, 3}}},
        {"bihd,bjhd->bhij", 2, {4, 4}, {{2, 2, 2, 3}, {2, 3, 2, 3}}},
        {"btd,dhk->bhtk", 2, {3, 3}, {{2, 2, 3}, {3, 2, 2}}},
        {"ab,bc,cd->ad", 3, {2, 2, 2}, {{2, 3}, {3, 2}, {2, 2}}},
        {"...ij,...jk->...ik", 2, {3, 2}, {{2, 2, 3}, {3, 2}}},
        {"...i,...i->...", 2, {3, 2}, {{2, 1, 3}, {2, 3}}},
        {"ij,kl->il", 2, {2, 2}, {{2, 3}, {2, 2}}},
        {"ab,bc,cd,de->ea", 4, {2, 2, 2, 2}, {{2, 2}, {2, 3}, {3, 2}, {2, 2}}},
        {"batch seq, seq width -> width batch", 2, {2, 2}, {{2, 3}, {3, 2}}},
    };
    for (int64_t k = 0; k < COUNT(cases); k++)
        for (lie how = AS_IS; how < LIES; how++) {
            tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
            tl_tensor *in[4], *loss = NULL;
            for (int i = 0; i < cases[k].n; i++) {
                in[i] = operand(ctx, TL_F64, i, cases[k].ndim[i], cases[k].size[i], how);
                tl_tensor_require_grad(in[i], true);
            }
            assert_int_equal(tl_record(ctx, true), TL_OK);
            loss_of(ctx, cases[k].pattern, in, cases[k].n, &loss);
            if (tl_backward(ctx, loss, 1) != TL_OK)
                fail_msg("\"%s\": %s", cases[k].pattern, tl_ctx_error(ctx)->message);
            tl_record(ctx, false);
            for (int i = 0; i < cases[k].n; i++) {
                int64_t count = tl_tensor_count(in[i]);
                double got[64], *data = tl_tensor_data(in[i]);
                assert_in_range(count, 1, 64);
                assert_non_null(tl_tensor_grad(in[i]));
                assert_int_equal(tl_tensor_read(tl_tensor_grad(in[i]), got, (size_t)count * sizeof *got), TL_OK);
                for (int64_t e = 0; e < count; e++) {
                    int64_t at = 0, rest = e;
                    for (int d = cases[k].ndim[i] - 1; d >= 0; d--) {
                        at += rest % cases[k].size[i][d] * tl_tensor_stride(in[i], d);
                        rest /= cases[k].size[i][d];
                    }
                    double before = data[at];
                    data[at] = before + 0.5;
                    double up = loss_of(ctx, cases[k].pattern, in, cases[k].n, &loss);
                    data[at] = before - 0.5;
                    double down = loss_of(ctx, cases[k].pattern, in, cases[k].n, &loss);
                    data[at] = before;
                    if (fabs(got[e] - (up - down)) > 1e-10)
                        fail_msg("\"%s\": the gradient of element %lld of operand %d is %.17g, not %.17g",
                                 cases[k].pattern, (long long)e, i, got[e], up - down);
                }
            }
            tl_ctx_free(ctx);
        }
}

/* ---- the account ---- */

static tl_u128 matmul_flops(tl_ctx *ctx) {
    tl_counts counts;
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    return counts.matmul;
}

/* A·(B·v) against (A·B)·v, the textbook's example: 2·(m·n + m·n) for n×n matrices and a vector against 2·(n³ + n²). */
static void the_cheaper_order_is_taken(void **state) {
    (void)state;
    const int64_t n = 1000;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_tensor *a = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(n), D(n)), TL_WORK);
    tl_tensor *v = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(n), D(1)), TL_WORK);
    int pair[2][2];
    tl_u128 flops;
    tl_ledger_step_begin(ctx);
    assert_non_null(tl_einsum(ctx, "ij,jk,kl->il", ((tl_tensor *[]){a, a, v}), 3));
    assert_true(matmul_flops(ctx) == (tl_u128)(2 * n * n * 2));
    assert_int_equal(tl_ledger_allocations(ctx), 2);
    assert_int_equal(tl_einsum_order(ctx, "ij,jk,kl->il", ((tl_tensor *[]){a, a, v}), 3, pair, &flops), 2);
    assert_true(flops == (tl_u128)(4 * n * n));
    assert_int_equal(pair[0][0], 1);
    assert_int_equal(pair[0][1], 2);
    tl_ledger_step_begin(ctx); /* the mirror image contracts from the left */
    tl_tensor *row = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(1), D(n)), TL_WORK);
    assert_non_null(tl_einsum(ctx, "ij,jk,kl->il", ((tl_tensor *[]){row, a, a}), 3));
    assert_true(matmul_flops(ctx) == (tl_u128)(4 * n * n));
    /* Cormen et al., Introduction to Algorithms, 15.2: A1 … A6 of 30×35, 35×15, 15×5, 5×10, 10×20, 20×25 take 15,125
     * multiplications at best, ((A1(A2A3))((A4A5)A6)). */
    static const int64_t size[] = {30, 35, 15, 5, 10, 20, 25};
    tl_tensor *chain[6];
    for (int i = 0; i < 6; i++)
        chain[i] = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(size[i]), D(size[i + 1])), TL_WORK);
    tl_ledger_step_begin(ctx);
    assert_non_null(tl_einsum(ctx, "ab,bc,cd,de,ef,fg->ag", chain, 6));
    assert_true(matmul_flops(ctx) == 2 * 15125);
    tl_ctx_free(ctx);
}

static void orders_are_kept(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_tensor *a = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(3), D(3)), TL_WORK);
    tl_tensor *b = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(3), D(4)), TL_WORK);
    for (int i = 0; i < 3; i++)
        assert_non_null(tl_einsum(ctx, "ij,jk->ik", ((tl_tensor *[]){a, a}), 2));
    assert_int_equal(ctx->axes->made, 1);
    assert_non_null(tl_einsum(ctx, "ij,jk->ik", ((tl_tensor *[]){a, b}), 2)); /* other shapes */
    assert_non_null(tl_einsum(ctx, "ij,jk->ki", ((tl_tensor *[]){a, b}), 2)); /* another pattern */
    assert_int_equal(ctx->axes->made, 3);
    char pattern[40];
    for (int i = 0; i < 100; i++) { /* more than are kept */
        snprintf(pattern, sizeof pattern, "x%d b -> b x%d", i, i);
        assert_non_null(tl_einsum(ctx, pattern, &b, 1));
    }
    assert_int_equal(ctx->axes->made, 103);
    tl_ctx_free(ctx);
}

/* Attention on [batch, seq, heads, dim] reads its operands where they lie: one new storage a product. */
static void attention_needs_no_copy(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_shape shape = TL_SHAPE(ctx, D(2), D(8), D(4), D(16));
    tl_tensor *q = tl_empty(ctx, TL_F32, shape, TL_WORK), *k = tl_empty(ctx, TL_F32, shape, TL_WORK);
    tl_ledger_step_begin(ctx);
    tl_tensor *s =
        tl_einsum(ctx, "batch seq heads dim, batch key heads dim -> batch heads seq key", ((tl_tensor *[]){q, k}), 2);
    assert_non_null(s);
    assert_int_equal(tl_ledger_allocations(ctx), 1);
    assert_true(matmul_flops(ctx) == 2 * 2 * 4 * 8 * 8 * 16);
    assert_string_equal(tl_tensor_shape(s)->dim[3].axis, "key");
    assert_non_null(
        tl_einsum(ctx, "batch heads seq key, batch key heads dim -> batch seq heads dim", ((tl_tensor *[]){s, k}), 2));
    assert_int_equal(tl_ledger_allocations(ctx), 2);
    tl_tensor *w = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(64), D(32)), TL_WORK);
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(2), D(8), D(64)), TL_WORK);
    tl_ledger_step_begin(ctx);
    assert_non_null(tl_einsum(ctx, "btd,df->btf", ((tl_tensor *[]){x, w}), 2));
    assert_int_equal(tl_ledger_allocations(ctx), 1);
    assert_non_null(
        tl_einsum(ctx, "ii->i", (tl_tensor *[]){tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(3), D(3)), TL_WORK)}, 1));
    assert_int_equal(tl_ledger_allocations(ctx), 2); /* the operand itself */
    tl_ctx_free(ctx);
}

static void formulas_survive(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, true);
    tl_dim b = tl_dim_symbol(ctx, "B", 2, "test"), t = tl_dim_symbol(ctx, "T", 8, "test");
    tl_dim h = tl_dim_symbol(ctx, "H", 4, "test"), d = tl_dim_symbol(ctx, "D", 64, "test");
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, b, t, d), TL_WORK);
    tl_tensor *q = tl_rearrange(x, "b t (h k) -> b h t k", TL_LENGTHS({"h", h}));
    assert_non_null(q);
    const tl_dim *k = &tl_tensor_shape(q)->dim[3];
    assert_int_equal(k->size, 16);
    assert_string_equal(k->axis, "k");
    assert_string_equal(tl_poly_text(tl_ctx_space(ctx), k->formula, TL_FORMULA_SYMBOLS), "D/H");
    tl_tensor *back = tl_rearrange(q, "b h t k -> (b t) (h k)", TL_NO_LENGTHS);
    assert_non_null(back);
    assert_string_equal(tl_poly_text(tl_ctx_space(ctx), tl_tensor_shape(back)->dim[0].formula, TL_FORMULA_SYMBOLS),
                        "B·T");
    assert_string_equal(tl_poly_text(tl_ctx_space(ctx), tl_tensor_shape(back)->dim[1].formula, TL_FORMULA_SYMBOLS),
                        "D");
    assert_string_equal(tl_tensor_shape(back)->dim[1].axis, "(h k)");
    tl_ledger_step_begin(ctx);
    assert_non_null(tl_einsum(ctx, "bhik,bhjk->bhij", ((tl_tensor *[]){q, q}), 2));
    tl_counts counts;
    tl_ledger_counts(ctx, TL_PHASE_ALL, &counts);
    assert_true(counts.matmul == 2 * 2 * 4 * 8 * 8 * 16);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

/* ---- allocations that fail ---- */

typedef struct failing {
    int64_t left, outstanding;
} failing;

static void *failing_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    failing *f = self;
    void *pointer = NULL;
    (void)kind;
    if (f->left-- <= 0 || posix_memalign(&pointer, align < sizeof pointer ? sizeof pointer : align, bytes))
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

static void failed_allocations_are_errors(void **state) {
    (void)state;
    bool done = false;
    for (int64_t n = 0; !done && n < 400; n++) {
        failing f = {.left = n};
        tl_allocator allocator = {failing_alloc, failing_release, &f};
        tl_error error = {0};
        tl_ctx_options options = {.kernels = tl_kernels_portable(), .allocator = &allocator};
        tl_ctx *ctx = tl_ctx_new(&options, &error);
        if (ctx) {
            tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(2), D(3), D(4)), TL_WORK);
            if (x)
                x = tl_fill(x, 1);
            tl_tensor *y = tl_rearrange(x, "a b c -> b (c a)", TL_NO_LENGTHS);
            tl_tensor *z = tl_einsum(ctx, "abc, bd -> da", ((tl_tensor *[]){x, y}), 2);
            z = tl_reduce(tl_repeat_axes(z, "d a -> d a 2", TL_NO_LENGTHS), "d a r -> d r", TL_REDUCE_SUM,
                          TL_NO_LENGTHS);
            done = z != NULL;
            assert_int_equal(tl_ctx_status(ctx), done ? TL_OK : TL_ERR_MEMORY);
            tl_ctx_free(ctx);
        }
        assert_int_equal(f.outstanding, 0);
    }
    assert_true(done);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_agree_with_numpy),
        cmocka_unit_test(integers_are_contracted),
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(the_cheaper_order_is_taken),
        cmocka_unit_test(orders_are_kept),
        cmocka_unit_test(attention_needs_no_copy),
        cmocka_unit_test(formulas_survive),
        cmocka_unit_test(failed_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
