/* data/tokens.h: a stream of tokens from inside. Internal. */
#ifndef TALLY_DATA_TOKENS_H
#define TALLY_DATA_TOKENS_H

#include "base/arena.h"
#include "tally/tokens.h"

enum {
    TL_LLMC_HEADER = 1024, /* 256 int32 */
    TL_LLMC_MAGIC_16 = 20240520,
    TL_LLMC_VERSION_16 = 1,
    TL_LLMC_MAGIC_32 = 20240801,
    TL_LLMC_VERSION_32 = 7,
    TL_LLMC_MAGIC_EVALUATION = 20240522,
    TL_TOKENS_HEAD = 1024, /* bytes looked at to know a file */
    TL_TOKENS_MOST_FILES = 16384,
    /* In a word of two ids read as one of four bytes the second is the high half. No vocabulary known has 2^18 ids; one of
     * 2^21 there will not be soon. */
    TL_TOKENS_HIGH_HALF = 4,
    TL_TOKENS_MOST_IDS = 1 << 21,
    TL_TOKENS_GROUP = 64 << 10 /* pages are mapped in groups by the kernel (fault-around); they are dropped so too */
};

typedef struct tl_token_shard {
    tl_token_file file;
    const unsigned char *map; /* of the whole file; NULL: it is empty */
    size_t map_bytes;
    uint64_t device, inode; /* who it is, under whatever name */
} tl_token_shard;

struct tl_tokens {
    tl_allocator allocator;
    tl_arena names;
    tl_token_shard *shards;
    int count, capacity;
    int64_t total;
};

/* Decides the width of a raw file from its ids and fills in width, count and evidence; where they leave doubt width stays 0. */
tl_status tl_tokens_infer(const unsigned char *ids, tl_token_file *file, tl_error *error);
int tl_tokens_shard_at(const tl_tokens *tokens, int64_t position);
/* The id at an index of a shard, as it lies there: below zero and beyond 32 bits in int64 files. uint64 does not occur. */
int64_t tl_tokens_id(const tl_token_shard *shard, int64_t index);
/* Lets the pages of ids [from, to) of a shard go. */
void tl_tokens_drop(const tl_token_shard *shard, int64_t from, int64_t to);

#endif
