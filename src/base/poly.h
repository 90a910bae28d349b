/* base/poly.h: how a space keeps its polynomials. Internal to poly*.c.
 *
 * A planner adds and multiplies formulas hundreds of thousands of times in a few tens of milliseconds, nearly always
 * the same ones (every layer repeats the last). So polynomials are interned, and the result of (operation, a, b) is
 * remembered under its pointers: the usual operation is one look-up.
 */
#ifndef TL_BASE_POLY_H
#define TL_BASE_POLY_H

#include "base/arena.h"
#include "tally/formula.h"

/* No padding: polynomials are hashed and compared as bytes. */
typedef struct tl_monomial {
    int64_t numerator;   /* != 0, coprime to denominator */
    int64_t denominator; /* > 0 */
    union {
        int8_t exponent[TL_MAX_SYMBOLS]; /* by index of the symbol in the space */
        uint64_t word[TL_MAX_SYMBOLS / 8];
    };
} tl_monomial;

enum { TL_TEXT_STYLES = 4 };

struct tl_poly {
    uint64_t hash;
    uint32_t id; /* order of creation; makes (a,b) and (b,a) one key */
    int32_t count;
    const char *text[TL_TEXT_STYLES]; /* texts made so far, by style */
    tl_monomial term[];               /* strictly falling in monomial order; none for zero */
};

typedef struct tl_memo {
    const tl_poly *a, *b, *result;
    uintptr_t operation;
} tl_memo;

struct tl_space {
    const tl_allocator *allocator;
    tl_arena arena;
    tl_error error;
    tl_symbol symbols[TL_MAX_SYMBOLS];
    const tl_poly *symbol_poly[TL_MAX_SYMBOLS];
    int symbol_count;
    tl_poly **table; /* interned polynomials, open addressing */
    size_t table_size, table_count;
    tl_memo *memo;
    size_t memo_size, memo_count;
    tl_monomial *scratch; /* where a result is built before it is interned */
    size_t scratch_size;  /* in monomials */
};

/* < 0, 0, > 0 by exponents alone; invariant under multiplication by a monomial. */
int tl_monomial_compare(const tl_monomial *a, const tl_monomial *b);
uint64_t tl_gcd_u64(uint64_t a, uint64_t b);
/* Index of a symbol, -1 if the space has none of that name. */
int tl_space_find(const tl_space *space, const char *name);

#endif
