#include "base/decimal.h"

#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A mantissa below this takes one more digit. */
static const tl_u128 mantissa_limit = ~(tl_u128)0 / 10;

/* Zeros wait until a later digit needs them, so that "1000000...0" and "1.000...0" stay exact at any length. */
static void add_digit(tl_decimal *d, int digit, int64_t *zeros, bool fraction) {
    d->exponent -= fraction;
    if (digit == 0 || d->inexact) {
        d->inexact = d->inexact || (digit && d->mantissa);
        ++*zeros;
        return;
    }
    while (*zeros > 0 && d->mantissa && d->mantissa < mantissa_limit) {
        d->mantissa *= 10;
        --*zeros;
    }
    if (d->mantissa == 0)
        *zeros = 0;
    if (*zeros > 0 || d->mantissa >= mantissa_limit) {
        d->inexact = true;
        ++*zeros;
        return;
    }
    d->mantissa = d->mantissa * 10 + (tl_u128)digit;
}

/* "1,000,000": one to three digits, then groups of three; "_" may stand between any two digits. */
static bool separator_fits(const char *text, const char *at) {
    if (at == text || !is_digit(at[-1]) || !is_digit(at[1]))
        return false;
    if (*at == '_')
        return true;
    int before = 0;
    while (at - before > text && is_digit(at[-before - 1]))
        before++;
    const bool first = at - before == text;
    if (first ? before > 3 : before != 3)
        return false;
    return is_digit(at[1]) && is_digit(at[2]) && is_digit(at[3]) && !is_digit(at[4]);
}

static const char *parse_exponent(const char *p, tl_decimal *out) {
    const bool negative = p[1] == '-';
    p += p[1] == '-' || p[1] == '+' ? 2 : 1;
    int64_t exponent = 0;
    for (; is_digit(*p); p++)
        if (exponent < 1000000000) /* more is more than anything below can use */
            exponent = exponent * 10 + (*p - '0');
    out->exponent += negative ? -exponent : exponent;
    out->has_exponent = true;
    return p;
}

tl_decimal_problem tl_decimal_parse(const char *text, tl_decimal *out, const char **rest) {
    *out = (tl_decimal){0};
    const char *p = text;
    int64_t zeros = 0;
    bool any = false;
    for (; is_digit(*p) || *p == '_' || *p == ','; p++) {
        if (!is_digit(*p)) {
            if (!separator_fits(text, p))
                return TL_DECIMAL_GROUPING;
            out->grouped = true;
            continue;
        }
        add_digit(out, *p - '0', &zeros, false);
        any = true;
    }
    if (*p == '.' && (any || is_digit(p[1]))) {
        for (p++; is_digit(*p); p++) {
            add_digit(out, *p - '0', &zeros, true);
            any = true;
        }
    }
    if (!any)
        return TL_DECIMAL_NO_DIGITS;
    out->exponent += zeros;
    if (*p == 'e' || (*p == 'E' && (is_digit(p[1]) || p[1] == '-' || p[1] == '+'))) {
        if (!is_digit(p[1]) && !((p[1] == '-' || p[1] == '+') && is_digit(p[2])))
            return TL_DECIMAL_EXPONENT;
        p = parse_exponent(p, out);
    }
    if (out->mantissa == 0)
        out->exponent = 0;
    *rest = p;
    return TL_DECIMAL_OK;
}

/* ---- to double: long division of big integers, so that rounding is exact ---- */

enum { LIMBS = 84 }; /* 2688 bits: 10^383 (1273 bits) shifted by up to 1200 bits, and the other way round */

typedef struct big {
    uint32_t limb[LIMBS];
    int count; /* limbs in use; the highest is not zero */
} big;

static void big_set(big *b, tl_u128 value) {
    for (b->count = 0; value; value >>= 32)
        b->limb[b->count++] = (uint32_t)value;
}

static void big_times_ten(big *b, int64_t power) {
    for (; power > 0; power--) {
        uint64_t carry = 0;
        for (int i = 0; i < b->count; i++) {
            carry += (uint64_t)b->limb[i] * 10;
            b->limb[i] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry)
            b->limb[b->count++] = (uint32_t)carry;
    }
}

static void big_shift(big *b, int bits) {
    const int limbs = bits / 32, rest = bits % 32;
    if (!b->count || !bits)
        return;
    b->limb[b->count] = 0;
    for (int i = b->count; i >= 0; i--) {
        uint64_t both = (uint64_t)b->limb[i] << 32 | (i ? b->limb[i - 1] : 0);
        b->limb[i + limbs] = (uint32_t)(both >> (32 - rest));
    }
    memset(b->limb, 0, (size_t)limbs * sizeof b->limb[0]);
    b->count += limbs + 1;
    if (!b->limb[b->count - 1])
        b->count--;
}

static int big_bits(const big *b) { return b->count ? b->count * 32 - __builtin_clz(b->limb[b->count - 1]) : 0; }

static int big_compare(const big *a, const big *b) {
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (int i = a->count - 1; i >= 0; i--)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

static void big_subtract(big *a, const big *b) {
    int64_t borrow = 0;
    for (int i = 0; i < a->count; i++) {
        borrow += (int64_t)a->limb[i] - (i < b->count ? b->limb[i] : 0);
        a->limb[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    while (a->count && !a->limb[a->count - 1])
        a->count--;
}

/* top / bottom < 2^64 as a whole number; top becomes the rest. */
static uint64_t big_divide(big *top, const big *bottom) {
    uint64_t quotient = 0;
    for (int bit = 63; bit >= 0; bit--) {
        if (big_bits(bottom) + bit > big_bits(top))
            continue;
        big shifted = *bottom;
        big_shift(&shifted, bit);
        if (big_compare(&shifted, top) <= 0) {
            big_subtract(top, &shifted);
            quotient |= UINT64_C(1) << bit;
        }
    }
    return quotient;
}

static double double_of_bits(uint64_t bits) {
    union {
        uint64_t bits;
        double value;
    } both = {bits};
    return both.value;
}

double tl_decimal_double(const tl_decimal *d) {
    /* mantissa < 10^39, so these bounds are beyond any finite or nonzero double. */
    if (d->mantissa == 0 || d->exponent < -400)
        return 0;
    if (d->exponent > 310)
        return double_of_bits(UINT64_C(0x7FF) << 52);
    big top, bottom;
    memset(&top, 0, sizeof top);
    memset(&bottom, 0, sizeof bottom);
    big_set(&top, d->mantissa);
    big_set(&bottom, 1);
    /* A dropped tail is any value strictly between two mantissas: half of one is as good. */
    if (d->inexact) {
        big_shift(&top, 1);
        top.limb[0] |= 1;
        big_shift(&bottom, 1);
    }
    big_times_ten(&top, d->exponent);
    big_times_ten(&bottom, -d->exponent);
    /* value = quotient * 2^scale with 54 or 55 bits of quotient; fewer among the subnormals. */
    int scale = big_bits(&top) - big_bits(&bottom) - 54;
    if (scale < -1075)
        scale = -1075;
    if (scale > 0)
        big_shift(&bottom, scale);
    else
        big_shift(&top, -scale);
    uint64_t quotient = big_divide(&top, &bottom);
    uint64_t sticky = top.count != 0;
    while (quotient >> 54) {
        sticky |= quotient & 1;
        quotient >>= 1;
        scale++;
    }
    const uint64_t half = quotient & 1;
    uint64_t fraction = quotient >> 1; /* 53 bits, or fewer at the least scale */
    scale++;
    fraction += half & (sticky | (fraction & 1));
    if (scale + 1075 > 2046 || (scale + 1075 == 2046 && fraction >> 53))
        return double_of_bits(UINT64_C(0x7FF) << 52);
    /* The hidden bit carries into the exponent field: a subnormal has neither. */
    return double_of_bits(((uint64_t)(scale + 1074) << 52) + fraction);
}

/* ---- writing ---- */

void tl_decimal_digits(double value, int count, char digits[TL_DECIMAL_DIGITS], int *exponent) {
    char text[64];
    int at = 0, found = 0;
    /* printf rounds exactly. Its decimal point depends on the locale, so everything but digits is skipped. */
    const int length = snprintf(text, sizeof text, "%.*e", count - 1, value);
    for (; at < length && text[at] != 'e'; at++)
        if (is_digit(text[at]) && found < count)
            digits[found++] = text[at];
    digits[found] = '\0';
    int size = 0;
    const bool negative = at + 1 < length && text[at + 1] == '-';
    for (at += 2; at < length && is_digit(text[at]); at++)
        size = size * 10 + (text[at] - '0');
    *exponent = negative ? -size : size;
}
