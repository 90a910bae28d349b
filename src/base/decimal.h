/* base/decimal.h: decimal text and doubles, exactly, whatever the locale and without libm. Internal. */
#ifndef TL_BASE_DECIMAL_H
#define TL_BASE_DECIMAL_H

#include "tally/base.h"

/* mantissa * 10^exponent; mantissa has no trailing zero unless it is 0. */
typedef struct tl_decimal {
    tl_u128 mantissa;
    int64_t exponent;
    bool inexact; /* digits that 128 bits do not hold were dropped; the true value lies above mantissa, below mantissa +
                     1 */
    bool grouped; /* "_" or "," occurred */
    bool has_exponent;
} tl_decimal;

typedef enum tl_decimal_problem {
    TL_DECIMAL_OK,
    TL_DECIMAL_NO_DIGITS,
    TL_DECIMAL_GROUPING, /* "1,5", "1__0", "_1" */
    TL_DECIMAL_EXPONENT  /* "1e", "1e+" */
} tl_decimal_problem;

/* Reads digits with "_" or "," between them, a fraction, an exponent; *rest is what follows. No sign, no spaces. */
tl_decimal_problem tl_decimal_parse(const char *text, tl_decimal *out, const char **rest);

/* The nearest double, ties to even; infinity beyond the largest. */
double tl_decimal_double(const tl_decimal *decimal);

/* The `count` (1..17) leading decimal digits of a finite value >= 0, correctly rounded, as text; the first stands for
 * 10^*exponent. */
enum { TL_DECIMAL_DIGITS = 18 };
void tl_decimal_digits(double value, int count, char digits[TL_DECIMAL_DIGITS], int *exponent);

#endif
