#include "base/random.h"

#include <Random123/philox.h>
#include <math.h>

void tl_random_u32x4(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    const philox4x32_ctr_t block = {
        {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    const philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const philox4x32_ctr_t random = philox4x32_R(10, block, key);
    for (int i = 0; i < 4; i++)
        out[i] = random.v[i];
}

static uint64_t pair(const uint32_t words[4], unsigned half) {
    return (uint64_t)words[2 * half + 1] << 32 | words[2 * half];
}

static double unit(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

float tl_random_uniform_f32(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t words[4];
    tl_random_u32x4(seed, stream, index / 4, words);
    return (float)(words[index % 4] >> 8) * 0x1p-24f;
}

static uint64_t bits64(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t words[4];
    tl_random_u32x4(seed, stream, index / 2, words);
    return pair(words, index % 2);
}

double tl_random_uniform_f64(uint64_t seed, uint64_t stream, uint64_t index) {
    return unit(bits64(seed, stream, index));
}

uint64_t tl_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound) {
    return (uint64_t)((tl_u128)bits64(seed, stream, index) * bound >> 64);
}

enum { FEISTEL_ROUNDS = 8, FEISTEL_LEAST_HALF = 4 };

uint64_t tl_random_permute(uint64_t seed, uint64_t stream, uint64_t round, uint64_t count, uint64_t index) {
    unsigned half = FEISTEL_LEAST_HALF;
    if (count == 1) /* what the walk below comes to, after 256 networks or so */
        return 0;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < count)
        half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (unsigned r = 0; r < FEISTEL_ROUNDS; r++) {
            uint32_t words[4];
            tl_random_u32x4(seed, stream + round * FEISTEL_ROUNDS + r, right, words);
            const uint64_t mixed = left ^ (words[0] & mask);
            left = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}

/* Both normals of a block. */
static void normal_pair(uint64_t seed, uint64_t stream, uint64_t block, double out[2]) {
    uint32_t words[4];
    tl_random_u32x4(seed, stream, block, words);
    /* 1 - u lies in (0, 1] and is exact, so the logarithm is finite. */
    const double radius = sqrt(-2.0 * log(1.0 - unit(pair(words, 0))));
    const double angle = 6.283185307179586476925 * unit(pair(words, 1));
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

double tl_random_normal_f64(uint64_t seed, uint64_t stream, uint64_t index) {
    double both[2];
    normal_pair(seed, stream, index / 2, both);
    return both[index % 2];
}

float tl_random_normal_f32(uint64_t seed, uint64_t stream, uint64_t index) {
    return (float)tl_random_normal_f64(seed, stream, index);
}

void tl_random_fill_uniform_f32(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float *out) {
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        const uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 4 == 0)
            tl_random_u32x4(seed, stream, index / 4, words);
        out[i] = (float)(words[index % 4] >> 8) * 0x1p-24f;
    }
}

void tl_random_fill_normal_f64(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, double *out) {
    double both[2] = {0};
    for (int64_t i = 0; i < count; i++) {
        const uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 2 == 0)
            normal_pair(seed, stream, index / 2, both);
        out[i] = both[index % 2];
    }
}

void tl_random_fill_normal_f32(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float *out) {
    double both[2] = {0};
    for (int64_t i = 0; i < count; i++) {
        const uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 2 == 0)
            normal_pair(seed, stream, index / 2, both);
        out[i] = (float)both[index % 2];
    }
}
