/* format_oracle.h: number formats by their definition (IEEE 754-2019, 3.4 and 4.3.1; OCP 8-bit Floating Point
 * Specification 1.0, 5): slow, in exact double arithmetic, and with nothing of the library's in it. */
#ifndef TESTS_FORMAT_ORACLE_H
#define TESTS_FORMAT_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct oracle_format {
    const char *name;
    int exponent_bits, fraction_bits;
    bool no_infinity; /* E4M3: the top exponent holds numbers, all ones is NaN */
} oracle_format;

extern const oracle_format oracle_f16, oracle_bf16, oracle_f8e4m3, oracle_f8e5m2;

/* The pattern after the largest number: infinity, or E4M3's NaN. */
uint32_t oracle_top(const oracle_format *f);
/* Of a pattern without its sign, at most oracle_top: that has the value that is next in line, as rounding needs it. */
double oracle_value(const oracle_format *f, uint32_t pattern);

/* Where the last of a series of searches ended, zeroed to begin with: magnitudes must not fall from call to call. */
typedef struct oracle_walk {
    bool begun;
    uint32_t low;
    double next, middle;
} oracle_walk;

/* The pattern that the float32 of these bits rounds to. Without `walk` each search is its own. */
uint32_t oracle_round(const oracle_format *f, uint32_t bits, bool saturating, oracle_walk *walk);

#endif
