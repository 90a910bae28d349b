/* base/random.h: random numbers that depend on (seed, stream, index) alone.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11), through Random123.
 * The key is the seed (low word first); the counter is {block low, block high, stream low, stream high}. There is no
 * state: any thread may draw number i, any sharding draws the same numbers. Random numbers of different kinds drawn at
 * the same (seed, stream) share bits; give each use a stream of its own.
 */
#ifndef TL_BASE_RANDOM_H
#define TL_BASE_RANDOM_H

#include "base/stream.h"
#include "tally/base.h"

/* Block `counter` of a stream: four words of 32 random bits. */
void tl_random_u32x4(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]);

/* Uniform in [0,1). f32: number i is the upper 24 bits of word i%4 of block i/4, times 2^-24.
 * f64: number i is the upper 53 bits of words 2(i%2) (low) and 2(i%2)+1 (high) of block i/2, times 2^-53. */
float tl_random_uniform_f32(uint64_t seed, uint64_t stream, uint64_t index);
double tl_random_uniform_f64(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, bound), bound > 0, from the 64 bits uniform_f64 is made of: floor(bits * bound / 2^64). The
 * unevenness is below bound/2^64. */
uint64_t tl_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound);

/* Where `index` of [0, count) goes in a permutation of [0, count), count > 0: each (seed, stream, round) has one of its own,
 * and no table is made. A Feistel network (Luby and Rackoff 1988) of 8 rounds whose round function is Philox, on the even
 * number of bits that holds `count`, but at least 8, so that small counts are mixed as well; a result of `count` or more goes
 * through again until it is below (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). */
uint64_t tl_random_permute(uint64_t seed, uint64_t stream, uint64_t round, uint64_t count, uint64_t index);

/* Standard normal, by Box and Muller (1958), in double: with u, v the two 53-bit uniforms of block i/2 and
 * r = sqrt(-2 log(1 - u)), number i is r cos(2 pi v) for even i and r sin(2 pi v) for odd i. f32 is f64 rounded. */
float tl_random_normal_f32(uint64_t seed, uint64_t stream, uint64_t index);
double tl_random_normal_f64(uint64_t seed, uint64_t stream, uint64_t index);

/* Numbers first .. first+count-1, each the same as from the calls above; twice as fast or more. */
void tl_random_fill_uniform_f32(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float *out);
void tl_random_fill_normal_f32(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float *out);
void tl_random_fill_normal_f64(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, double *out);

#endif
