/* tokenizer/bpe.h: byte-pair encoding of one word. Internal.
 *
 * Sennrich, Haddow, Birch 2016 (arXiv:1508.07909): a word is a row of symbols; of all neighbours that form a merge, the one
 * that was learned first (lowest rank), and of those the leftmost, become one symbol, until none is left.
 */
#ifndef TL_TOKENIZER_BPE_H
#define TL_TOKENIZER_BPE_H

#include "tokenizer/tokenizer.h"

#include "config/tokenizer_file.h"

typedef struct tl_bpe_name {
    const char *text; /* as the file spells it; NULL: none */
    uint32_t length;
} tl_bpe_name;

typedef struct tl_bpe_pair {
    uint64_t key; /* left id << 32 | right id; TL_BPE_NO_PAIR: free */
    uint32_t rank;
    int32_t id; /* what they become */
} tl_bpe_pair;
#define TL_BPE_NO_PAIR UINT64_MAX

struct tl_bpe {
    tl_bpe_name *names; /* by id */
    int32_t *slots;     /* ids by the hash of their name, −1: free */
    size_t n_slots;     /* a power of two, as n_pairs is */
    tl_bpe_pair *pairs;
    size_t n_pairs;
    size_t n_merges;
    int32_t byte_ids[256]; /* the id of a single byte, −1: none */
    int32_t unk;
    bool byte_level, ignore_merges, byte_fallback, fuse_unk;
    bool nfc, prefix_space;
    bool blocks, split_blocks, prepend_always, strip_first;
    bool block_inside; /* some token has a U+2581 behind another letter, so a word need not end before one */
    bool plain;        /* vocab.json and merges.txt say all of it */
    tl_prepend prepend;
};

/* Memory of one encoder for the words it encodes. {0} is empty. */
typedef struct tl_bpe_work {
    void *symbols;
    size_t n_symbols;
    void *heap;
    size_t n_heap;
    void *letters;
    size_t n_letters;
} tl_bpe_work;
void tl_bpe_work_free(tl_bpe_work *work, const tl_allocator *allocator);

/* A tokenizer from what a file holds; NULL with *error filled. */
tl_tokenizer *tl_tokenizer_build(const tl_tokenizer_file *file, const tl_allocator *allocator, tl_error *error);
/* Builds tokens and tables of `t` from what a file holds. */
tl_status tl_bpe_build(tl_tokenizer *t, const tl_tokenizer_file *file, tl_error *error) TL_MUST_CHECK;

/* The id of the token with this name as the file spells it, or −1. */
int32_t tl_bpe_find(const tl_bpe *bpe, const char *text, size_t length);
const tl_bpe_pair *tl_bpe_find_pair(const tl_bpe *bpe, int32_t left, int32_t right);

/* Appends the ids of one word. `at` is its place in the text, for messages. */
tl_status tl_bpe_word(const tl_bpe *bpe, const tl_allocator *allocator, tl_bpe_work *work, const char *word,
                      size_t length, uint64_t at, tl_token_list *out, tl_error *error) TL_MUST_CHECK;

/* GPT-2's printable letter for a byte, as UTF-8: bytes that print stand for themselves, the others, in order, for U+0100
 * and on. Returns its length, 1 or 2. And back: the byte that the letter at the front stands for, −1: none; *length its
 * bytes. */
int tl_bpe_letter(unsigned char byte, char letter[2]);
int tl_bpe_byte(const char *text, size_t count, int *length);

static inline uint64_t tl_bpe_mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}

static inline uint64_t tl_bpe_hash(const char *bytes, size_t length) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return tl_bpe_mix(hash);
}

#endif
