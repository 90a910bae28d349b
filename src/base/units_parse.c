/* Numbers as people write them. Whole ones are exact: decimal arithmetic in 128 bits, never a double. */
#include "tally/units.h"

#include "base/decimal.h"

#include <string.h>

enum { QUOTED = 40 }; /* bytes of the user's text that a message repeats */

static int quoted_length(const char *text) {
    size_t length = strlen(text);
    if (length <= QUOTED)
        return (int)length;
    for (length = QUOTED; length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80;)
        length--;
    return (int)length;
}

/* "TEXT" with "..." if it was cut, then why; `what` names the kind of number wanted. */
static tl_status refuse(tl_error *error, tl_status status, const char *what, const char *text, const char *why) {
    const int length = quoted_length(text);
    return tl_fail(error, status, "%s \"%.*s%s\": %s", what, length, text, text[length] ? "..." : "", why);
}

static tl_status read_decimal(const char *what, const char *example, const char *text, tl_decimal *d, const char **rest,
                              tl_error *error) {
    char why[160];
    if (!text)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s is missing; %s would work", what, example);
    if (!text[0])
        return tl_fail(error, TL_ERR_ARGUMENT, "%s is empty; %s would work", what, example);
    if (text[0] == '-')
        return refuse(error, TL_ERR_ARGUMENT, what, text, "it may not be negative");
    const char *message[] = {
        "", "not a number", "separators stand between digits: 1,000 in groups of three, or 1_000; decimals use a point",
        "an exponent without digits; 1e18 or 1E would be 10^18"};
    const tl_decimal_problem problem = tl_decimal_parse(text, d, rest);
    if (problem == TL_DECIMAL_OK)
        return TL_OK;
    if (problem != TL_DECIMAL_NO_DIGITS)
        return refuse(error, TL_ERR_ARGUMENT, what, text, message[problem]);
    tl_error draft = {0}; /* only to join two texts */
    tl_fail(&draft, TL_ERR_ARGUMENT, "not a number; %s would work", example);
    memcpy(why, draft.message, sizeof why - 1);
    why[sizeof why - 1] = '\0';
    return refuse(error, TL_ERR_ARGUMENT, what, text, why);
}

static const char *skip_space(const char *rest) { return rest[0] == ' ' && rest[1] ? rest + 1 : rest; }

/* The power of ten of K M B (or G) T P E, in either case; -1 if it is none. */
static int count_power(char letter) {
    switch (letter) {
    case 'K':
    case 'k':
        return 3;
    case 'M':
    case 'm':
        return 6;
    case 'B':
    case 'b':
    case 'G':
    case 'g':
        return 9;
    case 'T':
    case 't':
        return 12;
    case 'P':
    case 'p':
        return 15;
    case 'E':
    case 'e':
        return 18;
    default:
        return -1;
    }
}

/* mantissa * 2^two * 10^exponent if that is whole and at most 2^127. */
static tl_status exact_value(const char *what, const char *text, const tl_decimal *d, int two, tl_u128 *value,
                             tl_error *error) {
    const tl_u128 most = (tl_u128)1 << 127;
    tl_u128 result = d->mantissa;
    if (d->inexact)
        return d->exponent < 0 ? refuse(error, TL_ERR_ARGUMENT, what, text, "not a whole number")
                               : refuse(error, TL_ERR_OVERFLOW, what, text, "more than 2^127");
    for (int i = 0; i < two; i++)
        if (!tl_mul_u128(result, 2, &result))
            return refuse(error, TL_ERR_OVERFLOW, what, text, "too many digits");
    for (int64_t e = d->exponent; e < 0; e++) {
        if (result % 10)
            return refuse(error, TL_ERR_ARGUMENT, what, text, "not a whole number");
        result /= 10;
        if (!result)
            break;
    }
    for (int64_t e = d->exponent; e > 0 && result; e--)
        if (!tl_mul_u128(result, 10, &result) || result > most)
            return refuse(error, TL_ERR_OVERFLOW, what, text, "more than 2^127");
    if (result > most)
        return refuse(error, TL_ERR_OVERFLOW, what, text, "more than 2^127");
    *value = result;
    return TL_OK;
}

tl_status tl_parse_count(const char *text, tl_u128 *value, tl_error *error) {
    const char *what = "the count", *rest = NULL;
    tl_decimal d;
    tl_status status = read_decimal(what, "70B, 1.5T, 15e12 or 1,000", text, &d, &rest, error);
    if (status != TL_OK)
        return status;
    if (*rest) {
        rest = skip_space(rest);
        const int power = count_power(rest[0]);
        if (rest[0] == 'm' && !rest[1])
            return refuse(error, TL_ERR_ARGUMENT, what, text, "\"m\" could be thousandths; use M for millions");
        if (power < 0 || rest[1])
            return refuse(error, TL_ERR_ARGUMENT, what, text, "text after the number; K M B (or G) T P E are known");
        d.exponent += power;
    }
    return exact_value(what, text, &d, 0, value, error);
}

static tl_status to_int64(const char *what, const char *text, tl_u128 wide, int64_t *value, tl_error *error) {
    if (wide > INT64_MAX)
        return refuse(error, TL_ERR_OVERFLOW, what, text, "more than 9,223,372,036,854,775,807 (2^63 - 1)");
    *value = (int64_t)wide;
    return TL_OK;
}

tl_status tl_parse_size(const char *text, int64_t *value, tl_error *error) {
    tl_u128 wide = 0;
    const tl_status status = tl_parse_count(text, &wide, error);
    return status == TL_OK ? to_int64("the size", text, wide, value, error) : status;
}

/* The suffix of a number of bytes: prefix letter, "i" for powers of 1024, "B". NULL or why it is refused. */
static const char *byte_suffix(const char *suffix, int *ten, int *two) {
    static const char letters[] = "KMGTPE";
    *ten = *two = 0;
    if (!strcmp(suffix, "B"))
        return NULL;
    const char upper = suffix[0] >= 'a' && suffix[0] <= 'z' ? (char)(suffix[0] - 'a' + 'A') : suffix[0];
    const char *letter = upper ? strchr(letters, upper) : NULL;
    if (!letter)
        return "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB are known";
    const bool binary = suffix[1] == 'i';
    const char *unit = suffix + 1 + binary;
    /* "Gb" is read as gigabits by some; "gb" is only somebody in a hurry. */
    if (!strcmp(unit, "b") && suffix[0] == upper)
        return "a small b could be bits; write B for bytes";
    if (strcmp(unit, "B") && strcmp(unit, "b"))
        return "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB are known";
    const int step = (int)(letter - letters) + 1;
    *ten = binary ? 0 : 3 * step;
    *two = binary ? 10 * step : 0;
    return NULL;
}

/* "80G": neither 80e9 nor 80*2^30 is guessed. */
static tl_status refuse_bare(const char *text, const char *rest, tl_error *error) {
    int digits = quoted_length(text);
    const char prefix = rest[0] >= 'a' ? (char)(rest[0] - 'a' + 'A') : rest[0];
    const char *space = strchr(text, ' ');
    const char *end = space && space < rest ? space : rest;
    digits = end - text < digits ? (int)(end - text) : digits;
    return tl_fail(error, TL_ERR_ARGUMENT,
                   "the memory size \"%.*s%s\" does not say which unit: write %.*s%sB (powers of 1000) or %.*s%ciB "
                   "(powers of 1024)",
                   quoted_length(text), text, text[quoted_length(text)] ? "..." : "", digits, text,
                   prefix == 'K' ? "k" : (const char[]){prefix, '\0'}, digits, text, prefix);
}

tl_status tl_parse_bytes(const char *text, int64_t *value, tl_error *error) {
    const char *what = "the memory size", *rest = NULL;
    tl_decimal d;
    tl_status status = read_decimal(what, "80GB, 512MiB or 85899345920", text, &d, &rest, error);
    int ten = 0, two = 0;
    if (status != TL_OK)
        return status;
    if (*rest) {
        rest = skip_space(rest);
        if (rest[0] != 0 && strchr("KMGTPEkmgtpe", rest[0]) && (!rest[1] || (rest[1] == 'i' && !rest[2])))
            return refuse_bare(text, rest, error);
        const char *why = byte_suffix(rest, &ten, &two);
        if (why)
            return refuse(error, TL_ERR_ARGUMENT, what, text, why);
    }
    d.exponent += ten;
    tl_u128 wide = 0;
    status = exact_value(what, text, &d, two, &wide, error);
    return status == TL_OK ? to_int64(what, text, wide, value, error) : status;
}

tl_status tl_parse_rate(const char *text, double *value, tl_error *error) {
    const char *what = "the rate", *rest = NULL;
    tl_decimal d;
    const tl_status status = read_decimal(what, "989.4T, 989.4TFLOP/s or 989.4e12", text, &d, &rest, error);
    if (status != TL_OK)
        return status;
    if (*rest) {
        rest = skip_space(rest);
        const char *unit = rest;
        int power = 0;
        if (unit[0] == 'm')
            return refuse(error, TL_ERR_ARGUMENT, what, text, "\"m\" could be thousandths; use M for millions");
        if (unit[0] != 'F' && (power = count_power(unit[0])) >= 0)
            unit++;
        if (power < 0 || (*unit && strcmp(unit, "FLOP/s") && strcmp(unit, "FLOPs/s") && strcmp(unit, "FLOPS")))
            return refuse(error, TL_ERR_ARGUMENT, what, text,
                          "text after the number; 989.4T, 989.4TFLOP/s and 1.979P are understood");
        d.exponent += power;
    }
    const double result = tl_decimal_double(&d);
    if (!(result > 0) || result > 1.7976931348623157e308)
        return refuse(error, TL_ERR_ARGUMENT, what, text, "it must be above 0 and finite");
    *value = result;
    return TL_OK;
}

static void put_bound(double bound, char *buffer) {
    if (bound < 0) {
        *buffer++ = '-';
        bound = -bound;
    }
    tl_text_power(bound, buffer);
    if (bound < 1e15 && bound == (double)(int64_t)bound)
        tl_u128_text((tl_u128)(int64_t)bound, buffer);
}

tl_status tl_parse_number(const char *text, double low, double high, double *value, tl_error *error) {
    const char *what = "the number", *rest = NULL;
    const bool negative = text && text[0] == '-' && text[1];
    tl_decimal d;
    const tl_status status = read_decimal(what, "0.5 or 2.5e3", negative ? text + 1 : text, &d, &rest, error);
    if (status != TL_OK)
        return status;
    if (*rest)
        return refuse(error, TL_ERR_ARGUMENT, what, text, "text after the number; a plain number is wanted");
    const double size = tl_decimal_double(&d), result = negative ? -size : size;
    if (size > 1.7976931348623157e308)
        return refuse(error, TL_ERR_ARGUMENT, what, text, "too large: it must be finite");
    if (!(result >= low && result <= high)) {
        char from[TL_TEXT + 1], to[TL_TEXT + 1];
        put_bound(low, from);
        put_bound(high, to);
        const int length = quoted_length(text);
        return tl_fail(error, TL_ERR_ARGUMENT, "%s \"%.*s%s\": it must lie between %s and %s", what, length, text,
                       text[length] ? "..." : "", from, to);
    }
    *value = result;
    return TL_OK;
}
