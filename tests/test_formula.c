/* Polynomials: interning, arithmetic, exact values and text. Expected texts are those of shared/DESIGN.md and UX.md;
 * expected values are the published sizes named beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tally/formula.h"

typedef struct names {
    tl_space *s;
    const tl_poly *A, *B, *T, *N, *D, *F, *H, *G, *K, *V, *C;
} names;

/* GPT-2 XL, as in UX.md: N 48, D 1600, F 6400, V 50257, C 1024; 25 heads. */
static names open_names(const tl_allocator *allocator) {
    names n = {.s = tl_space_new(allocator, NULL)};
    assert_non_null(n.s);
    /* Not in the order they are written, on purpose. */
    n.V = tl_poly_symbol(n.s, "V", 50257, "vocab_size");
    n.T = tl_poly_symbol(n.s, "T", 1024, "--context");
    n.C = tl_poly_symbol(n.s, "C", 1024, "n_positions");
    n.F = tl_poly_symbol(n.s, "F", 6400, "4*D assumed by gpt2");
    n.D = tl_poly_symbol(n.s, "D", 1600, "n_embd");
    n.N = tl_poly_symbol(n.s, "N", 48, "n_layer");
    n.K = tl_poly_symbol(n.s, "K", 64, "n_embd/n_head");
    n.G = tl_poly_symbol(n.s, "G", 5, "num_key_value_heads");
    n.H = tl_poly_symbol(n.s, "H", 25, "n_head");
    n.B = tl_poly_symbol(n.s, "B", 4, "--batch");
    n.A = tl_poly_symbol(n.s, "A", 2, "--accumulate");
    return n;
}

static const tl_poly *num(names *n, int64_t v) { return tl_poly_constant(n->s, v); }
static const tl_poly *mul(names *n, const tl_poly *a, const tl_poly *b) { return tl_poly_mul(n->s, a, b); }
static const tl_poly *add(names *n, const tl_poly *a, const tl_poly *b) { return tl_poly_add(n->s, a, b); }
static const tl_poly *scaled(names *n, int64_t v, const tl_poly *a, const tl_poly *b) {
    return mul(n, num(n, v), b ? mul(n, a, b) : a);
}

/* N·(4·D² + 2·D·F + 9·D + F) + D·V + D·C + 2·D */
static const tl_poly *gpt2_parameters(names *n) {
    const tl_poly *layer = add(n, scaled(n, 4, n->D, n->D), scaled(n, 2, n->D, n->F));
    layer = add(n, layer, add(n, scaled(n, 9, n->D, NULL), n->F));
    const tl_poly *rest = add(n, mul(n, n->C, n->D), mul(n, n->V, n->D));
    return add(n, add(n, rest, scaled(n, 2, n->D, NULL)), mul(n, n->N, layer));
}

static const tl_poly *gpt2_flops(names *n) {
    const tl_poly *layer = add(n, scaled(n, 2, n->D, n->T), scaled(n, 2, n->D, n->F));
    layer = add(n, layer, scaled(n, 4, n->D, n->D));
    const tl_poly *sum = add(n, mul(n, n->D, n->V), mul(n, n->N, layer));
    return mul(n, scaled(n, 2, n->B, n->T), sum);
}

static const tl_poly *llama_bytes(names *n) {
    const tl_poly *layer = add(n, scaled(n, 4, n->D, n->D), scaled(n, 3, n->D, n->F));
    layer = add(n, layer, scaled(n, 2, n->D, NULL));
    return mul(n, num(n, 16), add(n, add(n, mul(n, n->N, layer), scaled(n, 2, n->V, n->D)), n->D));
}

static void test_text_of_designs(void **state) {
    (void)state;
    names n = open_names(NULL);
    const tl_poly *p = gpt2_parameters(&n), *f = gpt2_flops(&n);
    assert_string_equal(tl_poly_text(n.s, p, 0), "N·(4·D² + 2·D·F + 9·D + F) + D·V + D·C + 2·D");
    assert_string_equal(tl_poly_text(n.s, f, 0), "2·B·T·(N·(4·D² + 2·D·F + 2·D·T) + D·V)");
    assert_string_equal(tl_poly_text(n.s, f, TL_FORMULA_ASCII), "2*B*T*(N*(4*D^2 + 2*D*F + 2*D*T) + D*V)");
    assert_string_equal(tl_poly_text(n.s, f, TL_FORMULA_NUMBERS),
                        "2·4·1024·(48·(4·1600² + 2·1600·6400 + 2·1600·1024) + 1600·50257)");
    assert_string_equal(tl_poly_text(n.s, f, TL_FORMULA_NUMBERS | TL_FORMULA_ASCII),
                        "2*4*1024*(48*(4*1600^2 + 2*1600*6400 + 2*1600*1024) + 1600*50257)");
    assert_string_equal(tl_poly_text(n.s, llama_bytes(&n), 0), "16·(N·(4·D² + 3·D·F + 2·D) + 2·D·V + D)");
    assert_ptr_equal(tl_poly_text(n.s, p, 0), tl_poly_text(n.s, p, 0));
    assert_null(tl_poly_text(n.s, NULL, 0));
    assert_null(tl_poly_text(n.s, p, 4));
    assert_int_equal(tl_space_error(n.s)->status, TL_OK);
    tl_space_free(n.s);
}

static void expect_text(names *n, const tl_poly *p, const char *text) {
    assert_non_null(p);
    assert_string_equal(tl_poly_text(n->s, p, 0), text);
}

static void test_text_of_pieces(void **state) {
    (void)state;
    names n = open_names(NULL);
    const tl_poly *half = tl_poly_fraction(n.s, 1, 2), *one = num(&n, 1);
    expect_text(&n, num(&n, 0), "0");
    expect_text(&n, num(&n, -7), "-7");
    expect_text(&n, half, "1/2");
    expect_text(&n, tl_poly_div(n.s, mul(&n, n.D, n.D), n.H), "D²/H");
    expect_text(&n, tl_poly_div(n.s, one, n.H), "1/H");
    expect_text(&n, tl_poly_div(n.s, n.D, mul(&n, n.H, n.K)), "D/(H·K)");
    expect_text(&n, add(&n, scaled(&n, 2, n.G, n.K), mul(&n, n.K, n.H)), "H·K + 2·G·K");
    expect_text(&n, mul(&n, half, mul(&n, n.T, n.T)), "T²/2");
    expect_text(&n, mul(&n, tl_poly_fraction(n.s, 3, 2), n.T), "3·T/2");
    expect_text(&n, mul(&n, half, mul(&n, n.T, add(&n, n.T, one))), "T·(T + 1)/2"); /* a causal mask, DESIGN.md */
    expect_text(&n, tl_poly_sub(n.s, mul(&n, n.D, n.V), n.D), "D·V - D");
    expect_text(&n, tl_poly_sub(n.s, n.F, mul(&n, n.D, n.V)), "-D·V + F");
    expect_text(&n, tl_poly_sub(n.s, num(&n, -1), n.D), "-(D + 1)");
    expect_text(&n, mul(&n, n.N, add(&n, n.D, one)), "N·(D + 1)");
    expect_text(&n, add(&n, mul(&n, n.N, n.D), one), "N·D + 1");
    expect_text(&n, tl_poly_sub(n.s, n.F, mul(&n, n.N, add(&n, n.D, one))), "-N·(D + 1) + F");
    expect_text(&n, mul(&n, mul(&n, n.T, n.A), mul(&n, n.D, n.B)), "A·B·T·D");
    const tl_poly *dense = tl_poly_symbol(n.s, "N_dense", 3, "first_k_dense_replace");
    const tl_poly *moe = tl_poly_symbol(n.s, "N_moe", 58, "");
    const tl_poly *classes = add(&n, mul(&n, moe, add(&n, n.D, n.F)), mul(&n, dense, add(&n, n.F, one)));
    expect_text(&n, add(&n, classes, n.V), "N_dense·(F + 1) + N_moe·(D + F) + V");
    const tl_poly *power = one;
    for (int i = 0; i < 12; i++)
        power = mul(&n, power, n.D);
    expect_text(&n, power, "D¹²");
    assert_string_equal(tl_poly_text(n.s, tl_poly_div(n.s, one, power), TL_FORMULA_ASCII), "1/D^12");
    tl_space_free(n.s);
}

static void test_values(void **state) {
    (void)state;
    names n = open_names(NULL);
    tl_u128 value = 0;
    tl_error error = {0};
    /* GPT-2 XL has 1,557,611,200 parameters (UX.md; and Hugging Face gpt2-xl). */
    assert_int_equal(tl_poly_value(n.s, gpt2_parameters(&n), NULL, 0, &value, &error), TL_OK);
    assert_true(value == 1557611200);
    /* GPT-2 small: 124,439,808 (Hugging Face gpt2). */
    const tl_binding small[] = {{"N", 12}, {"D", 768}, {"F", 3072}, {"not there", 1}};
    assert_int_equal(tl_poly_value(n.s, gpt2_parameters(&n), small, 4, &value, &error), TL_OK);
    assert_true(value == 124439808);
    /* T(T+1)/2 is whole though its monomials are not. */
    const tl_poly *mask = mul(&n, tl_poly_fraction(n.s, 1, 2), mul(&n, n.T, add(&n, n.T, num(&n, 1))));
    const tl_binding odd[] = {{"T", 7}};
    assert_int_equal(tl_poly_value(n.s, mask, odd, 1, &value, &error), TL_OK);
    assert_true(value == 28);
    /* Gauss; 2^62·(2^62+1)/2 = 2^123 + 2^61. */
    const tl_binding large[] = {{"T", INT64_C(1) << 62}};
    assert_int_equal(tl_poly_value(n.s, mask, large, 1, &value, &error), TL_OK);
    assert_true(value == ((tl_u128)1 << 123) + ((tl_u128)1 << 61));
    /* D·D²/H² with D = H = 2^62: no overflow on the way. */
    const tl_poly *ratio = tl_poly_div(n.s, n.D, n.H);
    const tl_binding equal[] = {{"D", INT64_C(1) << 62}, {"H", INT64_C(1) << 62}};
    assert_int_equal(tl_poly_value(n.s, mul(&n, n.D, mul(&n, ratio, ratio)), equal, 2, &value, &error), TL_OK);
    assert_true(value == (tl_u128)1 << 62);
    assert_int_equal(tl_poly_value(n.s, num(&n, 0), NULL, 0, &value, &error), TL_OK);
    assert_true(value == 0);
    assert_int_equal(error.status, TL_OK);
    tl_space_free(n.s);
}

static void test_refused_values(void **state) {
    (void)state;
    names n = open_names(NULL);
    tl_u128 value = 77;
    tl_error error = {0};
    assert_int_equal(tl_poly_value(n.s, tl_poly_fraction(n.s, 1, 2), NULL, 0, &value, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "not a whole number"));
    tl_error_clear(&error);
    assert_int_equal(tl_poly_value(n.s, num(&n, -3), NULL, 0, &value, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "-3"));
    tl_error_clear(&error);
    const tl_binding zero[] = {{"H", 0}}, negative[] = {{"D", -1}}, huge[] = {{"D", INT64_MAX}};
    const tl_poly *ratio = tl_poly_div(n.s, n.D, n.H);
    assert_int_equal(tl_poly_value(n.s, ratio, zero, 1, &value, &error), TL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "divides by H"));
    assert_int_equal(tl_poly_value(n.s, n.D, negative, 1, &value, NULL), TL_ERR_ARGUMENT);
    const tl_poly *cube = mul(&n, n.D, mul(&n, n.D, n.D));
    assert_int_equal(tl_poly_value(n.s, cube, huge, 1, &value, NULL), TL_ERR_OVERFLOW);
    assert_int_equal(tl_poly_value(n.s, NULL, NULL, 0, &value, NULL), TL_ERR_ARGUMENT);
    assert_true(value == 77);
    tl_space_free(n.s);
}

static void test_interning(void **state) {
    (void)state;
    names n = open_names(NULL);
    assert_ptr_equal(add(&n, n.D, n.F), add(&n, n.F, n.D));
    assert_ptr_equal(mul(&n, n.D, n.F), mul(&n, n.F, n.D));
    assert_ptr_equal(tl_poly_sub(n.s, add(&n, n.D, n.F), n.F), n.D);
    assert_ptr_equal(tl_poly_sub(n.s, n.D, n.D), num(&n, 0));
    assert_ptr_equal(mul(&n, num(&n, 0), n.D), num(&n, 0));
    assert_ptr_equal(mul(&n, tl_poly_div(n.s, n.D, n.H), n.H), n.D);
    assert_ptr_equal(tl_poly_fraction(n.s, 2, -4), tl_poly_fraction(n.s, -1, 2));
    const tl_poly *sum = add(&n, n.D, n.F), *difference = tl_poly_sub(n.s, n.D, n.F);
    assert_ptr_equal(mul(&n, sum, difference), tl_poly_sub(n.s, mul(&n, n.D, n.D), mul(&n, n.F, n.F)));
    assert_ptr_not_equal(n.T, n.C); /* equal sizes are not equal formulas */
    assert_ptr_equal(tl_poly_symbol(n.s, "D", 1600, "again"), n.D);
    assert_null(tl_poly_div(n.s, n.D, sum));
    assert_null(tl_poly_div(n.s, n.D, num(&n, 0)));
    assert_null(add(&n, NULL, n.D));
    assert_null(mul(&n, n.D, NULL));
    assert_null(tl_poly_sub(n.s, NULL, NULL));
    assert_int_equal(tl_space_error(n.s)->status, TL_OK);
    assert_true(tl_poly_uses(n.s, sum, "F"));
    assert_false(tl_poly_uses(n.s, sum, "V"));
    assert_false(tl_poly_uses(n.s, sum, "Q"));
    int64_t top = 0, bottom = 0;
    assert_true(tl_poly_is_constant(tl_poly_fraction(n.s, 6, 4), &top, &bottom));
    assert_true(top == 3 && bottom == 2);
    assert_false(tl_poly_is_constant(n.D, &top, &bottom));
    assert_false(tl_poly_is_constant(NULL, &top, &bottom));
    const tl_symbol *symbols = NULL;
    assert_int_equal(tl_space_symbols(n.s, &symbols), 11);
    assert_string_equal(symbols[4].source, "n_embd");
    tl_space_free(n.s);
}

/* (x+y)^2k at random small points against plain integers. */
static void test_arithmetic_against_integers(void **state) {
    (void)state;
    names n = open_names(NULL);
    uint64_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        const tl_poly *poly = num(&n, 1);
        int64_t whole = 1;
        const tl_poly *symbols[] = {n.D, n.F, n.H, n.K};
        const int64_t values[] = {7, 5, 3, 2};
        const tl_binding bound[] = {{"D", 7}, {"F", 5}, {"H", 3}, {"K", 2}};
        for (int step = 0; step < 8; step++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            const int pick = (int)(seed >> 60) & 3;
            if (seed >> 33 & 1) {
                poly = add(&n, poly, symbols[pick]);
                whole += values[pick];
            } else {
                poly = mul(&n, poly, add(&n, symbols[pick], num(&n, 1)));
                whole *= values[pick] + 1;
            }
        }
        tl_u128 value = 0;
        assert_int_equal(tl_poly_value(n.s, poly, bound, 4, &value, NULL), TL_OK);
        assert_true(value == (tl_u128)whole);
    }
    tl_space_free(n.s);
}

static void test_sticky_errors(void **state) {
    (void)state;
    names n = open_names(NULL);
    const tl_poly *large = mul(&n, num(&n, INT64_MAX), n.D);
    assert_non_null(large);
    assert_null(add(&n, large, large));
    assert_int_equal(tl_space_error(n.s)->status, TL_ERR_OVERFLOW);
    assert_non_null(add(&n, n.D, n.F)); /* the space still works, the error stays */
    assert_int_equal(tl_space_error(n.s)->status, TL_ERR_OVERFLOW);
    tl_space_free(n.s);

    n = open_names(NULL);
    assert_null(tl_poly_symbol(n.s, "D", 1601, "elsewhere"));
    assert_int_equal(tl_space_error(n.s)->status, TL_ERR_ARGUMENT);
    assert_non_null(strstr(tl_space_error(n.s)->message, "1600"));
    tl_space_free(n.s);

    n = open_names(NULL);
    const tl_poly *power = n.D;
    for (int i = 0; i < 6; i++)
        power = mul(&n, power, power);
    assert_non_null(power); /* D^64 */
    assert_null(mul(&n, power, power));
    assert_int_equal(tl_space_error(n.s)->status, TL_ERR_OVERFLOW);
    tl_space_free(n.s);

    n = open_names(NULL);
    for (int i = 0; i < TL_MAX_SYMBOLS - 11; i++) {
        const char name[] = {'x', (char)('a' + i), '\0'};
        assert_non_null(tl_poly_symbol(n.s, name, i, NULL));
    }
    assert_null(tl_poly_symbol(n.s, "one_too_many", 1, NULL));
    assert_int_equal(tl_space_error(n.s)->status, TL_ERR_UNSUPPORTED);
    tl_space_free(n.s);
}

/* An allocator that fails from its n-th call on, and counts what is out. */
typedef struct failing {
    int64_t left, out;
} failing;

static void *failing_alloc(void *self, size_t bytes, size_t align, tl_alloc_kind kind) {
    failing *f = self;
    assert_int_equal(kind, TL_ALLOC_HOST);
    if (f->left-- <= 0)
        return NULL;
    f->out += (int64_t)bytes;
    return tl_allocator_default()->alloc(NULL, bytes, align, kind);
}

static void failing_release(void *self, void *pointer, size_t bytes, tl_alloc_kind kind) {
    ((failing *)self)->out -= (int64_t)bytes;
    tl_allocator_default()->release(NULL, pointer, bytes, kind);
}

static void test_failing_allocator(void **state) {
    (void)state;
    bool done = false;
    for (int64_t allowed = 0; !done; allowed++) {
        assert_true(allowed < 200);
        failing f = {allowed, 0};
        const tl_allocator allocator = {failing_alloc, failing_release, &f};
        tl_error error = {0};
        tl_space *s = tl_space_new(&allocator, &error);
        if (!s) {
            assert_int_equal(error.status, TL_ERR_MEMORY);
            continue;
        }
        const tl_poly *sum = tl_poly_symbol(s, "D", 3, "x");
        const tl_poly *D = sum;
        for (int i = 0; sum && i < 300; i++)
            sum = tl_poly_add(s, tl_poly_mul(s, sum, D ? tl_poly_constant(s, i % 2) : D), D);
        const char *text = tl_poly_text(s, sum, 0);
        done = text != NULL;
        assert_int_equal(tl_space_error(s)->status, done ? TL_OK : TL_ERR_MEMORY);
        tl_space_free(s);
        assert_true(f.out == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_of_designs), cmocka_unit_test(test_text_of_pieces),
        cmocka_unit_test(test_values),          cmocka_unit_test(test_refused_values),
        cmocka_unit_test(test_interning),       cmocka_unit_test(test_arithmetic_against_integers),
        cmocka_unit_test(test_sticky_errors),   cmocka_unit_test(test_failing_allocator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
