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
static uint32_t pattern_below(const oracle_format *f, double size) {
    uint32_t low = 0, high = oracle_top(f);
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (oracle_value(f, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void stand_at(const oracle_format *f, oracle_walk *walk, uint32_t low) {
    walk->begun = true;
    walk->low = low;
    walk->next = oracle_value(f, low + 1);
    walk->middle = (oracle_value(f, low) + walk->next) / 2; /* one bit more than either: exact */
}

uint32_t oracle_round(const oracle_format *f, uint32_t bits, bool saturating, oracle_walk *walk) {
    const uint32_t top = oracle_top(f), sign = (bits >> 31) << (f->exponent_bits + f->fraction_bits);
    oracle_walk own = {0};
    float value;
    memcpy(&value, &bits, sizeof value);
    const double size = fabs((double)value);
    if (isnan(size)) {
        const uint32_t payload = (bits & 0x7FFFFF) >> (23 - f->fraction_bits), quiet = 1u << (f->fraction_bits - 1);
        return sign | (f->no_infinity ? top : top | payload | quiet);
    }
    if (!walk)
        walk = &own;
    if (!walk->begun)
        stand_at(f, walk, pattern_below(f, size));
    while (size >= walk->next && walk->low + 1 < top)
        stand_at(f, walk, walk->low + 1);
    const uint32_t nearest = walk->low + (size > walk->middle || (size == walk->middle && (walk->low & 1)));
    return sign | (saturating && nearest == top ? top - 1 : nearest);
}
