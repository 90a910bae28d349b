/* config/tokenizer_file.h: the files of a byte-pair tokenizer as plain tables. Here since jansson stays behind this folder.
 *
 * Forms: vocab.json ({"token": id, …}) with merges.txt (one "left right" a line, best first; GPT-2's), and Hugging Face's
 * tokenizer.json. What the second asks for and nothing here does is refused by name, never dropped.
 */
#ifndef TL_CONFIG_TOKENIZER_FILE_H
#define TL_CONFIG_TOKENIZER_FILE_H

#include "tally/base.h"

#define TL_TOKENIZER_MOST_BYTES ((size_t)64 << 20)
#define TL_TOKENIZER_MOST_VALUES ((size_t)8 << 20)
#define TL_TOKENIZER_STAGES 8
#define TL_TOKENIZER_ENDS 8

typedef struct tl_tokenizer_entry {
    const char *text;
    size_t length;
    int64_t id;
} tl_tokenizer_entry;

typedef struct tl_tokenizer_merge {
    const char *left, *right;
    size_t left_length, right_length;
    size_t place; /* its line in merges.txt, its number from 1 in tokenizer.json */
} tl_tokenizer_merge;

typedef struct tl_tokenizer_added {
    const char *text;
    size_t length;
    int64_t id;
    bool special, lstrip, rstrip, normalized;
} tl_tokenizer_added;

/* One step of splitting: by a pattern, or by a text where it stands as it is. */
typedef struct tl_tokenizer_stage {
    const char *pattern;
    size_t length;
    bool literal;
    bool keep_matches, keep_gaps; /* which of the two kinds of pieces go on */
    char where[64];               /* "pre_tokenizer.pretokenizers[0]" */
} tl_tokenizer_stage;

typedef enum tl_prepend {
    TL_PREPEND_NEVER,
    TL_PREPEND_FIRST, /* at the start of the text */
    TL_PREPEND_EACH   /* at the start of each stretch between added tokens */
} tl_prepend;

typedef struct tl_tokenizer_file {
    char name[256]; /* for messages */
    bool json;      /* tokenizer.json */
    tl_tokenizer_entry *entries;
    tl_tokenizer_merge *merges;
    tl_tokenizer_added *added;
    size_t n_entries, n_merges, n_added;
    tl_tokenizer_stage stages[TL_TOKENIZER_STAGES];
    int n_stages;
    bool byte_level;    /* tokens are bytes, written in GPT-2's 256 printable letters */
    bool prefix_space;  /* ByteLevel's add_prefix_space */
    bool nfc;           /* the text is to be in Unicode's normal form C */
    bool ignore_merges; /* a word that is a token as a whole is that token */
    bool byte_fallback; /* a character without a token becomes <0xNN> tokens */
    bool fuse_unk;
    const char *unk; /* NULL: none */
    size_t unk_length;
    bool blocks;            /* blanks are written U+2581 (SentencePiece, Metaspace) */
    bool normalized_blocks; /* by the normalizer, so before added tokens called "normalized" are looked for */
    bool split_blocks;      /* and each starts a word */
    tl_prepend prepend;     /* a U+2581 in front */
    bool prepend_always;    /* even where there is one */
    bool strip_first;       /* decoding drops one blank at the start */
    char prefix[TL_TOKENIZER_ENDS][64]; /* special tokens put before and behind a text, by their text */
    char suffix[TL_TOKENIZER_ENDS][64];
    int n_prefix, n_suffix;
    void *owners[2]; /* what the texts above live in */
    char *text;
} tl_tokenizer_file;

/* `path`: a folder or file as tl_tokenizer_open takes them. *file is to be freed whether this succeeds or not. */
tl_status tl_tokenizer_file_read(const char *path, tl_tokenizer_file *file, tl_error *error) TL_MUST_CHECK;
/* The same from memory. `name` is for messages. */
tl_status tl_tokenizer_file_parse(const char *text, size_t length, const char *name, tl_tokenizer_file *file,
                                  tl_error *error) TL_MUST_CHECK;
tl_status tl_tokenizer_file_parse_pair(const char *vocab, size_t vocab_length, const char *merges, size_t merges_length,
                                       const char *name, tl_tokenizer_file *file, tl_error *error) TL_MUST_CHECK;
void tl_tokenizer_file_free(tl_tokenizer_file *file);
/* Splitting as GPT-2 does. */
void tl_tokenizer_gpt2_stage(tl_tokenizer_stage *stage, const char *where);

#endif
