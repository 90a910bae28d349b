/* tokenizer/tokenizer.h: what an open tokenizer holds. Internal. */
#ifndef TL_TOKENIZER_TOKENIZER_H
#define TL_TOKENIZER_TOKENIZER_H

#include "tally/tokenizer.h"

#include "base/arena.h"

/* Ids beyond this are refused: the table of tokens is indexed by id, and a file must not choose how much memory that takes. */
#define TL_TOKENIZER_MOST_IDS ((int64_t)1 << 24)

typedef struct tl_token {
    const char *bytes; /* what it stands for; NULL: no token has this id */
    uint32_t length;
    bool added; /* found in the text before anything else is done */
    bool special, lstrip, rstrip;
} tl_token;

typedef struct tl_bpe tl_bpe;
typedef struct tl_splitter tl_splitter;

struct tl_tokenizer {
    const tl_allocator *allocator;
    tl_arena arena; /* everything below, but for the splitter and the tables of bpe */
    tl_token *tokens;
    int64_t size, entries;
    int32_t end_of_text;
    int32_t *added; /* ids of added tokens, sorted by their bytes */
    size_t n_added;
    bool starts_added[256]; /* could an added token start with this byte */
    bool has_lstrip;
    int32_t *prefix, *suffix;
    size_t n_prefix, n_suffix;
    char describe[160];
    tl_bpe *bpe;           /* NULL: bytes */
    tl_splitter *splitter; /* NULL: nothing splits */
};

/* Room for `want` elements of `size` bytes: doubles, checked. false: *pointer is as before. */
bool tl_tokenizer_grow(const tl_allocator *allocator, void **pointer, size_t *capacity, size_t want, size_t size);

/* The length of the UTF-8 character at the front of `count` ≥ 1 bytes: 1 to 4; 0: no character starts here; −1: it may be
 * one, but is not whole. Unicode 15, table 3-7: no surrogates, nothing beyond U+10FFFF, no overlong form. */
int tl_tokenizer_character(const char *bytes, size_t count);

/* Fills in what added tokens need (sorted, first bytes) and the end of text, once all tokens stand. */
tl_status tl_tokenizer_index_added(tl_tokenizer *tokenizer, tl_error *error);

/* The longest added token at the front of the bytes, or −1; `plain`: of those that are not special. *partial: the bytes may
 * be the start of one (or of a longer one), and more bytes would tell. */
int32_t tl_tokenizer_added_at(const tl_tokenizer *tokenizer, const char *bytes, size_t count, bool plain,
                              bool *partial);

#endif
