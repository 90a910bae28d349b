#include "format_oracle.h"

#include <math.h>
#include <string.h>

const oracle_format oracle_f16 = {"f16", 5, 10, false}, oracle_bf16 = {"bf16", 8, 7, false},
                    oracle_f8e4m3 = {"f8e4m3", 4, 3, true}, oracle_f8e5m2 = {"f8e5m2", 5, 2, false};

uint32_t oracle_top(const oracle_format *f) {
    const uint32_t all = (1u << (f->exponent_bits + f->fraction_bits)) - 1;
    return f->no_infinity ? all : all - ((1u << f->fraction_bits) - 1);
}

double oracle_value(const oracle_format *f, uint32_t pattern) {
    const int bias = (1 << (f->exponent_bits - 1)) - 1, exponent = (int)(pattern >> f->fraction_bits);
    const double fraction = (double)(pattern & ((1u << f->fraction_bits) - 1));
    if (exponent == 0)
        return ldexp(fraction, 1 - bias - f->fraction_bits);
    return ldexp(fraction + ldexp(1, f->fraction_bits), exponent - bias - f->fraction_bits);
}

/* The largest pattern below the top whose value is at most `size`. */
static uint32_t pattern_below(const oracle_format *f, double size, uint32_t *hint) {
    uint32_t low = hint ? *hint : 0, high = oracle_top(f);
    if (hint) {
        while (low + 1 < high && oracle_value(f, low + 1) <= size)
            low++;
        return *hint = low;
    }
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (oracle_value(f, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint32_t oracle_round(const oracle_format *f, uint32_t bits, bool saturating, uint32_t *hint) {
    const uint32_t top = oracle_top(f), sign = (bits >> 31) << (f->exponent_bits + f->fraction_bits);
    float value;
    memcpy(&value, &bits, sizeof value);
    const double size = fabs((double)value);
    if (isnan(size)) {
        const uint32_t payload = (bits & 0x7FFFFF) >> (23 - f->fraction_bits), quiet = 1u << (f->fraction_bits - 1);
        return sign | (f->no_infinity ? top : top | payload | quiet);
    }
    const uint32_t low = pattern_below(f, size, hint);
    const double middle = (oracle_value(f, low) + oracle_value(f, low + 1)) / 2; /* a bit more than either: exact */
    const uint32_t nearest = low + (size > middle || (size == middle && (low & 1)));
    return sign | (saturating && nearest == top ? top - 1 : nearest);
}
