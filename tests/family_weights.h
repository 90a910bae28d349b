/* family_weights.h: the weights of fixtures/family_fixtures.h, made by rule instead of stored. */
#ifndef TALLY_TESTS_FAMILY_WEIGHTS_H
#define TALLY_TESTS_FAMILY_WEIGHTS_H

#include <stdint.h>

/* Values 0 … count − 1 of the parameter `name`: base + scale·u rounded to float32, u = (z >> 40)/2^24 − 1/2 in [−1/2, 1/2),
 * z = splitmix64(fnv1a64(name) + index). base and scale are the fixture row's. */
void family_weights_fill(float *values, int64_t count, const char *name, double base, double scale);

#endif
