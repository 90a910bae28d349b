/* What a polynomial is worth: exact values and questions about it. */
#include "base/poly.h"

#include <string.h>

bool tl_poly_is_constant(const tl_poly *p, int64_t *numerator, int64_t *denominator) {
    if (!p || p->count > 1)
        return false;
    if (p->count == 1)
        for (size_t w = 0; w < TL_MAX_SYMBOLS / 8; w++)
            if (p->term[0].word[w])
                return false;
    if (numerator)
        *numerator = p->count ? p->term[0].numerator : 0;
    if (denominator)
        *denominator = p->count ? p->term[0].denominator : 1;
    return true;
}

bool tl_poly_uses(const tl_space *space, const tl_poly *p, const char *symbol) {
    if (!p || !symbol)
        return false;
    const int index = tl_space_find(space, symbol);
    for (int i = 0; index >= 0 && i < p->count; i++)
        if (p->term[i].exponent[index])
            return true;
    return false;
}

typedef struct fraction {
    tl_u128 numerator, denominator;
} fraction;

static tl_u128 gcd_u128(tl_u128 a, tl_u128 b) {
    while (b) {
        if (!(a >> 64) && !(b >> 64))
            return tl_gcd_u64((uint64_t)a, (uint64_t)b);
        tl_u128 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The magnitude of one monomial, reduced. Denominators come first, so that each factor is cancelled before it can
 * overflow: D²/H is small even where D² alone is not. */
static bool monomial_value(const tl_monomial *term, const int64_t *value, int symbols, fraction *out) {
    tl_u128 denominator = (tl_u128)term->denominator;
    for (int i = 0; i < symbols; i++)
        for (int e = term->exponent[i]; e < 0; e++)
            if (!tl_mul_u128(denominator, (tl_u128)value[i], &denominator))
                return false;
    tl_u128 numerator = (tl_u128)(term->numerator < 0 ? -term->numerator : term->numerator);
    if (denominator != 1) {
        const tl_u128 divisor = gcd_u128(numerator, denominator);
        numerator /= divisor;
        denominator /= divisor;
    }
    for (int i = 0; i < symbols; i++) {
        for (int e = term->exponent[i]; e > 0; e--) {
            tl_u128 factor = (tl_u128)value[i];
            if (factor == 0) { /* the whole monomial is zero, however large the other factors */
                *out = (fraction){0, 1};
                return true;
            }
            if (denominator != 1) {
                const tl_u128 divisor = gcd_u128(factor, denominator);
                factor /= divisor;
                denominator /= divisor;
            }
            if (!tl_mul_u128(numerator, factor, &numerator))
                return false;
        }
    }
    *out = (fraction){numerator, denominator};
    return true;
}

/* A sum as whole part and rest below one, so that a denominator never costs range. */
typedef struct sum {
    tl_u128 whole;
    fraction rest;
} sum;

static bool sum_add(sum *s, fraction term) {
    if (!tl_add_u128(s->whole, term.numerator / term.denominator, &s->whole))
        return false;
    if (term.denominator == 1)
        return true;
    term.numerator %= term.denominator;
    const tl_u128 divisor = gcd_u128(s->rest.denominator, term.denominator);
    tl_u128 left, right, denominator, numerator;
    if (!tl_mul_u128(s->rest.numerator, term.denominator / divisor, &left) ||
        !tl_mul_u128(term.numerator, s->rest.denominator / divisor, &right) ||
        !tl_mul_u128(s->rest.denominator, term.denominator / divisor, &denominator) ||
        !tl_add_u128(left, right, &numerator))
        return false;
    if (!tl_add_u128(s->whole, numerator / denominator, &s->whole))
        return false;
    numerator %= denominator;
    const tl_u128 common = gcd_u128(numerator, denominator);
    s->rest = (fraction){numerator / common, denominator / common};
    return true;
}

static tl_status bind(const tl_space *space, const tl_binding *bindings, int count, int64_t value[TL_MAX_SYMBOLS],
                      tl_error *error) {
    for (int i = 0; i < space->symbol_count; i++)
        value[i] = space->symbols[i].value;
    for (int i = 0; i < count; i++) {
        const int index = bindings[i].symbol ? tl_space_find(space, bindings[i].symbol) : -1;
        if (bindings[i].value < 0)
            return tl_fail(error, TL_ERR_ARGUMENT, "%s = %lld: a symbol of a formula is at least 0",
                           bindings[i].symbol ? bindings[i].symbol : "?", (long long)bindings[i].value);
        /* A name this space does not know is no error: one set of bindings serves many models. */
        if (index >= 0)
            value[index] = bindings[i].value;
    }
    return TL_OK;
}

static tl_status check_zero_division(const tl_space *space, const tl_poly *p, const int64_t *value, tl_error *error) {
    for (int t = 0; t < p->count; t++)
        for (int i = 0; i < space->symbol_count; i++)
            if (p->term[t].exponent[i] < 0 && value[i] == 0)
                return tl_fail(error, TL_ERR_ARGUMENT, "a formula divides by %s, and %s is 0", space->symbols[i].name,
                               space->symbols[i].name);
    return TL_OK;
}

tl_status tl_poly_value(const tl_space *space, const tl_poly *p, const tl_binding *bindings, int count, tl_u128 *value,
                        tl_error *error) {
    if (!p)
        return tl_fail(error, TL_ERR_ARGUMENT, "there is no formula to evaluate");
    int64_t bound[TL_MAX_SYMBOLS] = {0};
    tl_status status = bind(space, bindings, count, bound, error);
    if (status == TL_OK)
        status = check_zero_division(space, p, bound, error);
    if (status != TL_OK)
        return status;
    sum plus = {0, {0, 1}}, minus = {0, {0, 1}};
    for (int t = 0; t < p->count; t++) {
        fraction term;
        if (!monomial_value(&p->term[t], bound, space->symbol_count, &term) ||
            !sum_add(p->term[t].numerator < 0 ? &minus : &plus, term))
            return tl_fail(error, TL_ERR_OVERFLOW, "the value of a formula of %d terms is beyond 128 bits", p->count);
    }
    if (plus.rest.numerator != minus.rest.numerator || plus.rest.denominator != minus.rest.denominator)
        return tl_fail(error, TL_ERR_ARGUMENT, "the value of a formula of %d terms is not a whole number", p->count);
    if (plus.whole < minus.whole) {
        char text[TL_U128_DIGITS];
        return tl_fail(error, TL_ERR_ARGUMENT, "the value of a formula is negative: -%s",
                       tl_u128_text(minus.whole - plus.whole, text));
    }
    *value = plus.whole - minus.whole;
    return TL_OK;
}
