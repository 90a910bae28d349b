/* Weights from (name, index): what family_parts.py computes with numpy, bit for bit. */
#include "family_weights.h"

static uint64_t fnv1a64(const char *text) { /* Fowler, Noll, Vo: FNV-1a, 64 bits */
    uint64_t h = 0xCBF29CE484222325U;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001B3U;
    return h;
}

static uint64_t splitmix64(uint64_t x) { /* Steele, Lea, Flood 2014 */
    uint64_t z = x + 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

void family_weights_fill(float *values, int64_t count, const char *name, double base, double scale) {
    uint64_t hash = fnv1a64(name);
    for (int64_t i = 0; i < count; i++) {
        double u = (double)(splitmix64(hash + (uint64_t)i) >> 40) / 16777216.0 - 0.5;
        values[i] = (float)(base + scale * u);
    }
}
