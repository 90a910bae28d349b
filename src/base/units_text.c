/* Numbers as people read them: x.xx, xx.x or xxx.x of a unit. */
#include "tally/units.h"

#include "base/decimal.h"

#include <stdio.h>
#include <string.h>

static bool is_finite(double value) { return value - value == 0; }

/* "nan", "inf", or NULL for what can be written in digits. */
static const char *odd_name(double value) {
    if (is_finite(value))
        return NULL;
    return value != value ? "nan" : value > 0 ? "inf" : "-inf";
}

/* A finite value >= 0.01 or 0 with `decimals` digits after the point, rounded exactly; at most 16 digits before it. */
static void put_fixed(double value, int decimals, char *buffer, size_t size) {
    char digits[TL_DECIMAL_DIGITS];
    int exponent = 0;
    tl_decimal_digits(value, 17, digits, &exponent); /* 17 digits never round up to another power of ten */
    int count = exponent + 1 + decimals;
    count = count < 1 ? 1 : count > 17 ? 17 : count;
    tl_decimal_digits(value, count, digits, &exponent);
    size_t length = 0;
    const int available = (int)strlen(digits);
    for (int place = exponent > 0 ? exponent : 0; place >= -decimals && length + 2 < size; place--) {
        const int index = exponent - place;
        if (place == -1)
            buffer[length++] = '.';
        buffer[length++] = index >= 0 && index < available ? digits[index] : '0';
    }
    buffer[length] = '\0';
}

/* Three digits, four from a hundred on; thousands (only with units of 1024) without decimals. */
static int decimals_of(double value) { return value >= 999.95 ? 0 : value >= 9.995 ? 1 : 2; }

typedef struct unit_scale {
    const char *const *units; /* units[i] stands for step^i, NULL ends */
    double step;
    double carry; /* what rounds to this or more takes the next unit */
} unit_scale;

static char *put_scaled(double value, unit_scale scale, const char *suffix, char *buffer) {
    char number[32];
    const char *odd = odd_name(value);
    if (odd) {
        snprintf(buffer, TL_TEXT, "%s%s%s", odd, suffix[0] ? " " : "", suffix);
        return buffer;
    }
    const bool negative = value < 0;
    const double whole = negative ? -value : value;
    double size = whole, unit = 1;
    int index = 0;
    while (size >= scale.carry && scale.units[index + 1]) {
        index++;
        unit *= scale.step; /* exact up to 1000^7 and for powers of 1024: one rounding in the division */
        size = whole / unit;
    }
    if (size >= scale.carry) {
        tl_text_power(value, number);
        snprintf(buffer, TL_TEXT, "%s%s%s", number, suffix[0] ? " " : "", suffix);
        return buffer;
    }
    if (index == 0 && size == (double)(int64_t)size)
        put_fixed(size, 0, number, sizeof number);
    else if (index == 0 && size < 0.01)
        tl_text_power(size, number);
    else
        put_fixed(size, decimals_of(size), number, sizeof number);
    snprintf(buffer, TL_TEXT, "%s%s%s%s%s", negative ? "-" : "", number, scale.units[index][0] || suffix[0] ? " " : "",
             scale.units[index], suffix);
    return buffer;
}

static const char *const count_units[] = {"", "K", "M", "B", "T", "P", "E", NULL};
static const char *const si_units[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y", NULL};
static const char *const iec_units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi", NULL};

char *tl_text_count(double value, char *buffer) {
    return put_scaled(value, (unit_scale){count_units, 1000, 999.95}, "", buffer);
}

char *tl_text_bytes(double bytes, tl_units units, char *buffer) {
    if (units == TL_UNITS_IEC)
        return put_scaled(bytes, (unit_scale){iec_units, 1024, 1023.5}, "B", buffer);
    return put_scaled(bytes, (unit_scale){si_units, 1000, 999.95}, "B", buffer);
}

char *tl_text_flops(double flops, char *buffer) {
    return put_scaled(flops, (unit_scale){si_units, 1000, 999.95}, "FLOPs", buffer);
}

char *tl_text_rate(double flop_per_second, char *buffer) {
    return put_scaled(flop_per_second, (unit_scale){si_units, 1000, 999.95}, "FLOP/s", buffer);
}

char *tl_text_bandwidth(double bytes_per_second, char *buffer) {
    return put_scaled(bytes_per_second, (unit_scale){si_units, 1000, 999.95}, "B/s", buffer);
}

char *tl_text_duration(double seconds, char *buffer) {
    static const struct {
        double seconds; /* of one unit */
        double below;   /* in this unit; from here on the next */
        int decimals;   /* -1: three or four digits */
        const char *name;
    } units[] = {
        {1e-9, 999.95, -1, "ns"}, {1e-6, 999.95, -1, "us"}, {1e-3, 999.95, -1, "ms"},   {1, 59.95, -1, "s"},
        {60, 59.95, 1, "min"},    {3600, 23.95, 1, "h"},    {86400, 365.25, 1, "days"}, {31557600, 1e6, 1, "years"},
    };
    enum { LAST = sizeof units / sizeof units[0] - 1 };
    char number[32];
    const char *odd = odd_name(seconds);
    if (odd || seconds == 0) {
        snprintf(buffer, TL_TEXT, "%s s", odd ? odd : "0");
        return buffer;
    }
    const bool negative = seconds < 0;
    const double size = negative ? -seconds : seconds;
    size_t i = 0;
    double amount = size * 1e9;
    while (i < LAST && amount >= units[i].below) {
        i++;
        /* Below a second, times a whole number: dividing by 1e-3, which is inexact, would round twice. */
        amount = i == 1 ? size * 1e6 : i == 2 ? size * 1e3 : size / units[i].seconds;
    }
    if (amount >= units[i].below || (i == 0 && amount < 0.01))
        tl_text_power(amount, number);
    else
        put_fixed(amount, units[i].decimals < 0 ? decimals_of(amount) : units[i].decimals, number, sizeof number);
    snprintf(buffer, TL_TEXT, "%s%s %s", negative ? "-" : "", number, units[i].name);
    return buffer;
}

char *tl_text_grouped(tl_u128 value, char *buffer) {
    char digits[TL_U128_DIGITS];
    tl_u128_text(value, digits);
    size_t length = strlen(digits), out = 0;
    for (size_t i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            buffer[out++] = ',';
        buffer[out++] = digits[i];
    }
    buffer[out] = '\0';
    return buffer;
}

char *tl_text_power(double value, char *buffer) {
    char digits[TL_DECIMAL_DIGITS];
    int exponent = 0;
    const char *odd = odd_name(value);
    if (odd || value == 0) {
        snprintf(buffer, TL_TEXT, "%s", odd ? odd : "0");
        return buffer;
    }
    tl_decimal_digits(value < 0 ? -value : value, 2, digits, &exponent);
    snprintf(buffer, TL_TEXT, "%s%c.%ce%d", value < 0 ? "-" : "", digits[0], digits[1], exponent);
    return buffer;
}
