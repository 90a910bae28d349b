/* tally/formula.h: polynomials over named symbols, the form in which the account opens up.
 *
 * A polynomial is a sum of monomials: a rational coefficient times symbols to integer exponents, negative ones included
 * (K = D/H). Polynomials are immutable and interned in a space, so that equal ones are the same pointer and comparing
 * them is comparing pointers. NULL stands for "no formula": a plain number; every operation on NULL gives NULL.
 * A space holds one error: an overflow (coefficients are 64-bit fractions) or a failed allocation sticks there and the
 * operation returns NULL. Nothing here calls libm.
 */
#ifndef TALLY_FORMULA_H
#define TALLY_FORMULA_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_MAX_SYMBOLS 32

typedef struct tl_space tl_space; /* owns polynomials and symbols */
typedef struct tl_poly tl_poly;

typedef struct tl_symbol {
    const char *name;   /* "D"; owned by the space */
    int64_t value;      /* its size in the run that made the formulas */
    const char *source; /* where the value came from: "n_embd", "4*D assumed by gpt2"; owned by the space */
} tl_symbol;

tl_space *tl_space_new(const tl_allocator *allocator, tl_error *error);
void tl_space_free(tl_space *space);
/* The space's sticky error; status TL_OK when none. */
const tl_error *tl_space_error(const tl_space *space);

/* A symbol. The first call fixes value and source; a later one with another value is TL_ERR_ARGUMENT. */
const tl_poly *tl_poly_symbol(tl_space *space, const char *name, int64_t value, const char *source);
int tl_space_symbols(const tl_space *space, const tl_symbol **symbols);

const tl_poly *tl_poly_constant(tl_space *space, int64_t value);
const tl_poly *tl_poly_fraction(tl_space *space, int64_t numerator, int64_t denominator);
const tl_poly *tl_poly_add(tl_space *space, const tl_poly *a, const tl_poly *b);
const tl_poly *tl_poly_sub(tl_space *space, const tl_poly *a, const tl_poly *b);
const tl_poly *tl_poly_mul(tl_space *space, const tl_poly *a, const tl_poly *b);
/* a/b where b is a single monomial; otherwise NULL without an error (not expressible: the caller makes a new symbol). */
const tl_poly *tl_poly_div(tl_space *space, const tl_poly *a, const tl_poly *b);
/* True if `p` is a number; then *numerator and *denominator are set. */
bool tl_poly_is_constant(const tl_poly *p, int64_t *numerator, int64_t *denominator);
/* True if the symbol occurs in p. */
bool tl_poly_uses(const tl_space *space, const tl_poly *p, const char *symbol);

typedef struct tl_binding {
    const char *symbol;
    int64_t value;
} tl_binding;

/* The exact value with the given bindings; symbols not bound take their own value. TL_ERR_ARGUMENT if the value is
 * negative or not whole (a fraction is a bug in a formula, never rounded), TL_ERR_OVERFLOW beyond 128 bits. */
tl_status tl_poly_value(const tl_space *space, const tl_poly *p, const tl_binding *bindings, int count, tl_u128 *value,
                        tl_error *error) TL_MUST_CHECK;

/* Text as a person would write it. Factors out numbers, A, B, T, then N, and nothing else:
 * "2·B·T·(N·(4·D² + 2·D·F + 2·D·T) + D·V)"; negative exponents as "D²/H"; with `ascii`, "*" and "^".
 * With `numbers`, symbols are replaced by their values. Allocated from the space, freed with it; NULL on failure. */
typedef enum tl_formula_style { TL_FORMULA_SYMBOLS = 0, TL_FORMULA_ASCII = 1, TL_FORMULA_NUMBERS = 2 } tl_formula_style;
const char *tl_poly_text(tl_space *space, const tl_poly *p, int style);

#ifdef __cplusplus
}
#endif
#endif
